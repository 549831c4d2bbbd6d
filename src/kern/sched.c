/* Which schedule a region gets. A register tile needs, for every row, as many accumulators as the deepest sum within sums of its statements, and one for
   each result that later statements of the region use. The largest tile that leaves a few registers for operands wins; products of integers
   gain nothing beyond 8 rows. Weights are unpacked once per tile of 16 rows (a panel in scratch) when enough row tiles follow to pay for it. */
#include "kern/kern.h"

typedef struct Need { int sums; bool integer, coded, steps; int64_t K; } Need; /* sums: accumulators a row needs at once; steps: codes are summed with their steps */

static void look(const TpPlan *p, Dx x, Need *n) {
  const DxNode d = p->tp->dag->node[x];
  if (!dag_walk_first(p->tp->dag, x)) return;
  StepSum s;
  n->steps = n->steps || (d.type == DT_INT && lower_sum_of_steps(p->tp, x, &s));
  n->coded |= lower_made_of_weight(p->tp->dag, x) >= 0;
  if (d.kind == DX_WGT) {
    n->integer |= d.op == WA_CODE;
    n->coded |= p->tp->buf[d.ival].fmt->code >= 0;
    int64_t K = 0;
    if (dx_is_int(p->tp->dag, p->tp->buf[d.ival].dim[1], &K)) n->K = MAX(n->K, K);
  }
  for (int i = 0; i < d.n_args; i++) look(p, d.arg[i], n);
}

/* Accumulators a row needs while x is made: a sum holds one over all of its body, unless it has a single term; what an operation's earlier arguments came to
   waits for the later ones. steps: sums of codes times steps go on where the one before ended. *is_sum: x is made of such sums. Nodes met before are
   in registers or made again; they are not counted twice. */
static int held(const TpPlan *p, Dx x, bool steps, bool *is_sum) {
  const DxNode d = p->tp->dag->node[x]; /* sums of steps are looked for with new nodes */
  int most = 0, waiting = 0;
  int64_t len = 0;
  StepSum s;
  *is_sum = false;
  if (!dag_walk_first(p->tp->dag, x)) return 0;
  for (int i = 0; i < d.n_args; i++) {
    bool sum;
    int need = waiting + held(p, d.arg[i], steps, &sum);
    most = MAX(most, need);
    waiting += sum;
    *is_sum |= sum;
  }
  bool sums = d.kind == DX_RED && (d.op == RED_CHAIN || d.op == RED_ISUM);
  *is_sum |= sums;
  if (sums && steps && lower_sum_of_steps(p->tp, d.arg[1], &s) && p->tp->buf[s.buf].fmt->by == 1) return most;
  return most + (sums && !(dx_is_int(p->tp->dag, d.arg[0], &len) && len == 1));
}

enum { LEAST_ITEMS = 8 }; /* below that, threads would wait for each other more than lockstep saves */

/* The most neighbours of an axis, beyond the rows, that all statements with shared reads can run in lockstep: query heads of one key head. */
static int group_of(const TpPlan *p, const TpRegion *r, int axis) {
  int64_t n;
  if (!dx_is_int(p->tp->dag, r->par[axis], &n)) return 1;
  for (int R = 8; R > 1; R--) {
    bool all = n % R == 0 && n / R >= LEAST_ITEMS, any = false;
    for (int i = 0; i < r->n_stmts && all; i++) {
      const TpStmt *t = &p->tp->stmt[r->stmt[i]];
      bool alone = lower_shares_rows(p->tp, t, 0, 1) && !lower_shares_rows(p->tp, t, axis, R);
      any |= lower_shares_rows(p->tp, t, axis, R);
      all = !alone;
    }
    if (all && any) return R;
  }
  return 1;
}

/* Regions without packed weights: a tile of rows in lockstep where that saves loads; its locals should stay in the first-level cache. With one
   row, neighbours along another axis that read the same. */
static void lockstep(const Target *t, const TpPlan *p, const TpRegion *r, KernShape shape, Sched *s) {
  bool shares = false;
  int vec = 16 / t->vec_lanes, most = (t->n_vec_regs - 2 - 2 * vec) / vec;
  for (int i = 0; i < r->n_stmts; i++) shares |= lower_shares_rows(p->tp, &p->tp->stmt[r->stmt[i]], 0, 1);
  s->chains = MIN(most, 16);
  if (shares && shape != KERN_ONE) s->tile[0] = shape == KERN_FEW ? MIN(most, 4) : MIN(most, 8);
  for (int axis = 1; shares && shape == KERN_ONE && axis < r->n_par; axis++) {
    int R = group_of(p, r, axis);
    if (R > s->tile[0] && R <= most) s->tile[0] = R, s->row_axis = axis;
  }
  if (s->tile[0] < 2) s->tile[0] = 1, s->row_axis = 0;
  trace_printf(TRACE_sched, "%s: %d neighbours along axis %d in lockstep, up to %d sums at once", r->name, s->tile[0], s->row_axis, s->chains);
}

enum { SIDE_ROWS = 32 }; /* two tiles: more would be more streams than the prefetchers follow */

/* Weights are read once, in the order they lie, so memory should set the pace. Integer sums end with every group, and the processor works on several
   groups at once; a chain over all of K waits for its own last step, so two tiles take turns. */
static void one_row(const Target *t, const TpRegion *r, const Need *n, Sched *s) {
  int side = SIDE_ROWS / t->vec_lanes;
  while (side > 1 && side * MAX(n->sums, 1) + 4 > t->n_vec_regs) side /= 2;
  if (!n->integer && side * t->vec_lanes >= PACK_ROWS) s->side = side;
  if (s->side) trace_printf(TRACE_sched, "%s: one row, float road: %d blocks of %d weight rows side by side, as one chain of sums waits for its own last step", r->name, s->side, t->vec_lanes);
  else trace_printf(TRACE_sched, "%s: one row: weights are read once, in the order they lie, so memory sets the pace and no tile is needed", r->name);
}

/* Sums within sums that belong in registers; those around them take a term so seldom that memory does. One row less in a tile costs more where weights
   are unpacked for every tile, or registers are few. */
static int near_sums(const Target *t, KernShape shape, int sums) { return t->n_vec_regs < 32 ? MIN(sums, 2) : shape == KERN_FEW ? MIN(sums, 3) : sums; }

static const int tile_rows[] = {24, 16, 12, 8, 6, 4, 3, 2, 1};

/* What registers each size of tile needs, and which are left out for it. */
static void trace_tiles(const Target *t, const TpRegion *r, const Need *n, int spare, int chosen, const char *why_not_more) {
  if (!trace_on(TRACE_sched, r->name)) return;
  Str s = {0};
  for (size_t i = 0; i < COUNT_OF(tile_rows); i++) {
    int T = tile_rows[i], need = T * MAX(n->sums, 1) + spare;
    str_addf(&s, "%s%d rows need %d%s", i ? ", " : "", T, need, T == chosen ? " (chosen)" : need > t->n_vec_regs ? " (too many)" : T > chosen ? why_not_more : "");
  }
  trace_printf(TRACE_sched, "%s: of %d registers, %d for operands and %d a row: %s", r->name, t->n_vec_regs, spare, MAX(n->sums, 1), s.p);
  str_free(&s);
}

static Need need_of(const TpPlan *p, int region, bool steps) {
  const TpRegion *r = &p->region[region];
  Need n = {0};
  int waiting = 0; /* what earlier statements made and later ones of the region use stays in registers */
  for (int i = 0; i < r->n_stmts; i++) {
    const TpStmt *x = &p->tp->stmt[r->stmt[i]];
    bool is_sum;
    dag_walk_begin(p->tp->dag);
    look(p, x->rhs, &n);
    dag_walk_begin(p->tp->dag);
    int need = waiting + held(p, x->rhs, steps, &is_sum);
    n.sums = MAX(n.sums, need);
    waiting += p->tp->buf[x->buf].local == region;
  }
  return n;
}

/* Whatever its axes are. */
static bool is_even(const Dag *d, Dx x) {
  const DxNode *n = &d->node[x];
  if (n->kind == DX_INT) return n->ival % 2 == 0;
  if (n->kind != DX_OP || n->n_args != 2) return false;
  bool a = is_even(d, n->arg[0]), b = is_even(d, n->arg[1]);
  return n->op == DXO_MUL ? a || b : (n->op == DXO_ADD || n->op == DXO_SUB) && a && b;
}

/* A panel of pairs holds positions 2i and 2i + 1 together. */
static bool begins_pairs(const Tp *p, const DxNode *w) {
  int64_t K;
  return dx_is_int(p->dag, p->buf[w->ival].dim[1], &K) && K % 2 == 0 && is_even(p->dag, w->arg[1]);
}

typedef struct PairUse { bool any, other; } PairUse; /* other: a panel would hold what is no pair, or a pair's weight is read apart */

static void find_use(const Tp *p, Dx x, PairUse *u) {
  const Dag *d = p->dag;
  const DxNode *n = &d->node[x];
  Dx even[2];
  if (!dag_walk_first(p->dag, x)) return;
  int made = lower_made_of_weight(d, x);
  u->other |= made >= 0 && !p->buf[made].raw;
  if (n->kind == DX_WGT && n->op == WA_VALUE && !p->buf[n->ival].raw) u->other |= p->buf[n->ival].bf16 || p->buf[n->ival].fmt->code >= 0;
  bool pairs = lower_weight_of_pair(p, x) >= 0 && tp_is_pair(p, n->arg[1], even);
  for (int i = 0; i < n->n_args && !pairs; i++) find_use(p, n->arg[i], u);
  for (int i = 0; i < 2 && pairs; i++) {
    const DxNode *side = &d->node[even[i]];
    u->other |= side->kind == DX_WGT && !begins_pairs(p, side);
    for (int k = 0; k < side->n_args; k++) find_use(p, side->arg[k], u);
  }
  u->any |= pairs;
}

/* Products of pairs of a weight's values are all that would be unpacked. */
static bool all_in_pairs(const TpPlan *p, const TpRegion *r) {
  PairUse u = {0};
  dag_walk_begin(p->tp->dag);
  for (int i = 0; i < r->n_stmts; i++) find_use(p->tp, p->tp->stmt[r->stmt[i]].rhs, &u);
  return u.any && !u.other;
}

Sched kern_sched(const Target *t, size_t l2_bytes, const TpPlan *p, int region, KernShape shape) {
  const TpRegion *r = &p->region[region];
  Sched s = {.lanes = t->vec_lanes, .tile = {1}, .n_tiles = 1, .short_dots = !t->vnni, .dot2 = t->dot2};
  if (!r->contraction) {
    lockstep(t, p, r, shape, &s);
    return s;
  }
  const bool steps = shape == KERN_MANY && t->vnni && !t->tiles;
  Need n = need_of(p, region, steps);
  if (shape == KERN_ONE) {
    one_row(t, r, &n, &s);
    return s;
  }
  n.sums = near_sums(t, shape, n.sums);
  int spare = t->vnni || !n.integer ? 4 : 6; /* weights, an activation, a scale, a temporary; widening needs two more */
  int most = (t->n_vec_regs - spare) / MAX(n.sums, 1);
  int T = 1, useful = shape == KERN_FEW || n.integer ? 8 : 24;
  for (int i = COUNT_OF(tile_rows) - 1; i >= 0; i--) if (tile_rows[i] <= MIN(most, useful)) T = tile_rows[i];
  trace_tiles(t, r, &n, spare, T, shape == KERN_FEW ? " (fewer rows come)" : " (no faster)");
  s.n_tiles = 0;
  s.tile[s.n_tiles++] = T;
  if (T > 8) s.tile[s.n_tiles++] = 8;
  if (T > 4) s.tile[s.n_tiles++] = 4;
  if (T > 2 && shape == KERN_FEW) s.tile[s.n_tiles++] = 2;
  if (T > 1) s.tile[s.n_tiles++] = 1;
  s.ahead = shape == KERN_FEW ? 4096 : 0;
  s.pairs = shape == KERN_MANY && t->dot2 && all_in_pairs(p, r);
  s.stage = shape == KERN_MANY && (n.coded || s.pairs);
  s.steps = steps && s.stage && n.steps;
  if (shape == KERN_MANY && n.K) { /* activations of a block take at most half the second-level cache, in whole tiles */
    int64_t row_bytes = n.K * (n.integer ? 1 : s.pairs ? 2 : 4), rows = (int64_t)l2_bytes / 2 / row_bytes / T * T;
    s.block_rows = (int)MAX(rows, 4 * T);
  }
  if (t->tiles && s.stage && lower_matrix(p, region, &s)) {
    s.block_rows = (int)ROUND_UP(s.block_rows, s.matrix[0]);
    trace_printf(TRACE_sched, "%s: sums in matrix tiles, %d rows at once, %d bytes of operands a row", r->name, s.matrix[0], s.matrix_bytes);
  }
  trace_printf(TRACE_sched, "%s: %s rows, %s road, %d sums a row; %d registers allow %d rows a tile; chosen %d%s, blocks of %d rows", r->name, shape == KERN_MANY ? "many" : "few", n.integer ? "integer" : "float", n.sums, t->n_vec_regs, most, T, s.pairs ? ", weights in pairs of bfloat16 per tile" : s.stage ? ", weights unpacked per tile" : "", s.block_rows);
  return s;
}
