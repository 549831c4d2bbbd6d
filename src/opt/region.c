/* From statements to regions. A region is a set of statements that share their leading axes; its items (points of those axes) run on any
   thread in any order, so a statement may join only if what it reads from the region it reads at its own item. Contractions over packed
   weights form regions of their own kind, which take along other contractions of the same shape and the element-wise statements behind
   them. In: a program. Out: a plan: regions in phases. Bits cannot change here: no statement's arithmetic is touched. */
#include <string.h>
#include "opt/opt.h"

enum { MAX_CHEAP_SIZE = 200 };      /* operations of an expression that is inlined */
enum { MAX_SHRINK_COST = 1 << 17 }; /* elements one item may cost for a region to give up parallel axes for the sake of one barrier less */

typedef struct Ints { int *v, n, cap; } Ints;
typedef struct Planner {
  Tp *p; Dag *d; Arena *a;
  TpPlan *plan;
  bool *dead;
  Ints *reads, *after;       /* by statement: buffers it reads; statements above it that touch what it writes or write what it reads */
  int *stmt_region;          /* region of each statement, -1 not yet */
  int64_t *cost; int n_cost; /* steps of reductions under each expression, 0 not known yet */
  uint32_t *record;          /* of each expression in the form of the region being finished, 0 none yet */
} Planner;

/* ---- walking loads ------------------------------------------------------------------------------------------------- */
typedef bool (*LoadFn)(void *ctx, const DxNode *load); /* false stops */
static bool walk_loads(Dag *d, Dx x, LoadFn fn, void *ctx) {
  const DxNode *n = &d->node[x];
  if (!dag_walk_first(d, x)) return true;
  if ((n->kind == DX_LOAD || n->kind == DX_WGT) && !fn(ctx, n)) return false;
  for (int i = 0; i < n->n_args; i++) if (!walk_loads(d, n->arg[i], fn, ctx)) return false;
  return true;
}

static bool each_load(Dag *d, Dx x, LoadFn fn, void *ctx) {
  dag_walk_begin(d);
  return walk_loads(d, x, fn, ctx);
}

static bool each_stmt_load(Dag *d, const TpStmt *t, LoadFn fn, void *ctx) {
  dag_walk_begin(d);
  for (int i = 0; i < t->n_index; i++) if (!walk_loads(d, t->index[i], fn, ctx)) return false;
  for (int i = 0; i < t->n_axes; i++) if (!walk_loads(d, t->extent[i], fn, ctx)) return false;
  return walk_loads(d, t->rhs, fn, ctx);
}

static bool walk_kind(Dag *d, Dx x, DxKind k) {
  const DxNode *n = &d->node[x];
  if (n->kind == k) return true;
  if (!dag_walk_first(d, x)) return false;
  for (int i = 0; i < n->n_args; i++) if (walk_kind(d, n->arg[i], k)) return true;
  return false;
}

static bool has_kind(Dag *d, Dx x, DxKind k) {
  dag_walk_begin(d);
  return walk_kind(d, x, k);
}

/* ---- axis order ---------------------------------------------------------------------------------------------------- */
typedef struct AxisMap { Dag *d; Dx to[DX_MAX_AXES]; } AxisMap;
static Dx map_axis(void *ctx, Dx x) {
  AxisMap *m = ctx;
  const DxNode *n = &m->d->node[x];
  return n->kind == DX_AXIS && n->ival < DX_MAX_AXES && m->to[n->ival] ? m->to[n->ival] : 0;
}

/* Axes whose extent is a symbol (rows) come first, so that statements that scatter by another axis still share the rows axis. */
static void order_axes(Planner *pl, TpStmt *t) {
  AxisMap m = {.d = pl->d};
  Dx extent[DX_BINDER];
  int n = 0;
  for (int pass = 0; pass < 3; pass++) { /* an axis along blocks comes last: nobody shares a block */
    for (int i = 0; i < t->n_axes; i++) {
      if ((i + 1 == t->block_axis ? 2 : pl->d->node[t->extent[i]].kind == DX_SYM ? 0 : 1) != pass) continue;
      m.to[i] = dx_axis(pl->d, n);
      extent[n++] = t->extent[i];
    }
  }
  if (t->block_axis) t->block_axis = n;
  for (int i = 0; i < n; i++) t->extent[i] = dx_rewrite(pl->d, extent[i], map_axis, &m);
  for (int i = 0; i < t->n_index; i++) t->index[i] = dx_rewrite(pl->d, t->index[i], map_axis, &m);
  t->rhs = dx_rewrite(pl->d, t->rhs, map_axis, &m);
}

/* ---- merging, inlining --------------------------------------------------------------------------------------------- */
typedef struct BufMap { Planner *pl; int *to; const TpStmt *inl; int inl_buf; int depth; } BufMap;
static Dx map_buf(void *ctx, Dx x) {
  BufMap *m = ctx;
  DxNode n = m->pl->d->node[x];
  if ((n.kind != DX_LOAD && n.kind != DX_WGT) || m->to[n.ival] == n.ival) return 0;
  for (int i = 0; i < n.n_args; i++) n.arg[i] = dx_rewrite(m->pl->d, n.arg[i], map_buf, ctx);
  n.ival = m->to[n.ival];
  return dx_node(m->pl->d, n);
}

static int n_defs(const Tp *p, int buf) {
  int n = 0;
  for (int i = 0; i < p->n_stmts; i++) n += tp_root(p, p->stmt[i].buf) == tp_root(p, buf);
  return n;
}

/* The same whenever it is read: no state, and given by one statement at most. */
static bool is_stable(void *ctx, const DxNode *load) {
  const Tp *p = ctx;
  return p->buf[tp_root(p, (int)load->ival)].role != BUF_STATE && n_defs(p, (int)load->ival) <= 1;
}

static bool stmt_same(const TpStmt *a, const TpStmt *b) {
  return a->n_index == b->n_index && a->n_axes == b->n_axes && a->rhs == b->rhs && !memcmp(a->index, b->index, sizeof(Dx) * (size_t)a->n_index) &&
         !memcmp(a->extent, b->extent, sizeof(Dx) * (size_t)a->n_axes);
}

static void rewrite_stmt(Planner *pl, TpStmt *t, DxMap map, void *ctx) {
  for (int i = 0; i < t->n_index; i++) t->index[i] = dx_rewrite(pl->d, t->index[i], map, ctx);
  for (int i = 0; i < t->n_axes; i++) t->extent[i] = dx_rewrite(pl->d, t->extent[i], map, ctx);
  t->rhs = dx_rewrite(pl->d, t->rhs, map, ctx);
}

static void merge_equal(Planner *pl) {
  Tp *p = pl->p;
  BufMap m = {.pl = pl, .to = ARENA_ARRAY(pl->a, int, p->n_bufs)};
  for (int i = 0; i < p->n_bufs; i++) m.to[i] = i;
  for (int i = 0; i < p->n_stmts; i++) {
    TpStmt *t = &p->stmt[i];
    rewrite_stmt(pl, t, map_buf, &m);
    if (p->buf[t->buf].role != BUF_TEMP || p->buf[t->buf].alias != t->buf || n_defs(p, t->buf) != 1 || !each_load(pl->d, t->rhs, is_stable, p)) continue;
    for (int k = 0; k < i; k++) {
      if (pl->dead[k] || !stmt_same(&p->stmt[k], t) || p->buf[p->stmt[k].buf].mem != p->buf[t->buf].mem || p->buf[p->stmt[k].buf].role != BUF_TEMP) continue;
      m.to[t->buf] = p->stmt[k].buf;
      for (int v = 0; v < p->n_bufs; v++) if (p->buf[v].alias == t->buf && v != t->buf) p->buf[v].alias = p->stmt[k].buf;
      pl->dead[i] = true;
      break;
    }
  }
}

static bool cheap_load(void *ctx, const DxNode *load) {
  const Tp *p = ctx;
  return load->kind == DX_LOAD && load->type == DT_INT && p->buf[load->ival].role == BUF_INPUT;
}

static Dx map_inline(void *ctx, Dx x) {
  BufMap *m = ctx;
  const DxNode n = m->pl->d->node[x];
  if (n.kind != DX_LOAD || n.ival != m->inl_buf) return 0;
  AxisMap am = {.d = m->pl->d};
  for (int i = 0; i < n.n_args; i++) am.to[m->pl->d->node[m->inl->index[i]].ival] = dx_rewrite(m->pl->d, n.arg[i], map_inline, ctx);
  return dx_rewrite(m->pl->d, m->inl->rhs, map_axis, &am);
}

static bool is_other(void *ctx, const DxNode *load) { return load->ival != *(const int *)ctx; }

/* Integer arithmetic over inputs (how many keys a row sees) costs less than keeping it. */
static void inline_cheap(Planner *pl) {
  Tp *p = pl->p;
  for (int i = 0; i < p->n_stmts; i++) {
    TpStmt *t = &p->stmt[i];
    bool ok = !pl->dead[i] && p->buf[t->buf].role == BUF_TEMP && p->buf[t->buf].alias == t->buf && n_defs(p, t->buf) == 1;
    ok = ok && (pl->d->node[t->rhs].type == DT_INT || pl->d->node[t->rhs].kind == DX_FLT) && !has_kind(pl->d, t->rhs, DX_RED) && each_load(pl->d, t->rhs, cheap_load, p);
    ok = ok && pl->d->node[t->rhs].size <= MAX_CHEAP_SIZE;
    for (int k = 0; k < t->n_index; k++) ok = ok && pl->d->node[t->index[k]].kind == DX_AXIS;
    for (int v = 0; v < p->n_bufs; v++) ok = ok && (v == t->buf || tp_root(p, v) != t->buf);
    if (!ok) continue;
    BufMap m = {.pl = pl, .inl = t, .inl_buf = t->buf};
    pl->dead[i] = true;
    for (int k = i + 1; k < p->n_stmts; k++)
      if (!pl->dead[k] && !each_stmt_load(pl->d, &p->stmt[k], is_other, &m.inl_buf)) rewrite_stmt(pl, &p->stmt[k], map_inline, &m);
  }
}

typedef struct UseMark { const Tp *p; bool *used; } UseMark;
static bool mark_use(void *ctx, const DxNode *load) {
  UseMark *u = ctx;
  u->used[tp_root(u->p, (int)load->ival)] = true;
  return true;
}

static void drop_unused(Planner *pl) {
  Tp *p = pl->p;
  for (bool again = true; again;) {
    again = false;
    UseMark u = {p, ARENA_ARRAY(pl->a, bool, p->n_bufs)};
    for (int i = 0; i < p->n_stmts; i++) if (!pl->dead[i]) each_stmt_load(pl->d, &p->stmt[i], mark_use, &u);
    for (int i = 0; i < p->n_stmts; i++) {
      if (pl->dead[i] || p->buf[tp_root(p, p->stmt[i].buf)].role != BUF_TEMP || u.used[tp_root(p, p->stmt[i].buf)]) continue;
      pl->dead[i] = again = true;
    }
  }
}

/* ---- regions ------------------------------------------------------------------------------------------------------- */
typedef struct WgtFind { const Tp *p; int row_axis; bool mixed; } WgtFind;
static bool find_packed(void *ctx, const DxNode *load) {
  WgtFind *w = ctx;
  if (load->kind != DX_WGT || w->p->buf[load->ival].raw) return true;
  const DxNode *row = &w->p->dag->node[load->arg[0]];
  if (row->kind != DX_AXIS || (w->row_axis >= 0 && w->row_axis != row->ival)) w->mixed = true;
  else w->row_axis = (int)row->ival;
  return true;
}

/* y[m,n] over packed weights w[n,..]: n is the last axis of a two-axis statement. */
static bool is_contraction(const Planner *pl, const TpStmt *t) {
  WgtFind w = {pl->p, -1, false};
  each_load(pl->d, t->rhs, find_packed, &w);
  return !w.mixed && t->n_axes == 2 && w.row_axis == 1 && t->n_index == 2 && t->index[0] == dx_axis(pl->d, 0) && t->index[1] == dx_axis(pl->d, 1);
}

static int64_t extent_max(const Planner *pl, const TpStmt *t, int axis) {
  int64_t max[DX_MAX_AXES];
  for (int i = 0; i < DX_MAX_AXES; i++) max[i] = -1;
  for (int i = 0; i < axis; i++) {
    DxRange r = dx_range(pl->d, t->extent[i], max);
    max[i] = r.hi - 1;
  }
  return dx_range(pl->d, t->extent[axis], max).hi;
}

static int64_t red_cost(const Planner *pl, Dx x) {
  const DxNode *n = &pl->d->node[x];
  int64_t c = 1;
  if (x < pl->n_cost && pl->cost[x]) return pl->cost[x];
  for (int i = 0; i < n->n_args; i++) c = MAX(c, red_cost(pl, n->arg[i]));
  if (n->kind == DX_RED) {
    DxRange r = dx_range(pl->d, n->arg[0], NULL);
    c *= MIN(MAX(r.hi, 1), (int64_t)1 << 20);
  }
  c = MIN(c, (int64_t)1 << 40);
  if (x < pl->n_cost) pl->cost[x] = c;
  return c;
}

static int64_t item_cost(const Planner *pl, const TpStmt *t, int n_par) {
  int64_t c = red_cost(pl, t->rhs);
  for (int i = n_par; i < t->n_axes; i++) c = MIN(c * MIN(MAX(extent_max(pl, t, i), 1), (int64_t)1 << 20), (int64_t)1 << 50);
  return c;
}

/* Packed weights lie in tiles that only a contraction reads. */
static Err *check_weights(const Planner *pl) {
  for (int i = 0; i < pl->p->n_stmts; i++) {
    const TpStmt *t = &pl->p->stmt[i];
    WgtFind w = {pl->p, -1, false};
    if (pl->dead[i]) continue;
    each_stmt_load(pl->d, t, find_packed, &w);
    if ((w.row_axis >= 0 || w.mixed) && !is_contraction(pl, t)) return err_new(ERR_UNSUPPORTED, "statement %s: weights must be indexed [last axis of the result, k] in a result of two axes", t->text);
  }
  return NULL;
}

/* ---- the text's order ---------------------------------------------------------------------------------------------- */
static bool has(const Ints *l, int v) {
  for (int i = 0; i < l->n; i++) if (l->v[i] == v) return true;
  return false;
}

typedef struct NoteRead { const Planner *pl; Ints *to; } NoteRead;
static bool note_read(void *ctx, const DxNode *load) {
  const NoteRead *n = ctx;
  int buf = tp_root(n->pl->p, (int)load->ival);
  if (!has(n->to, buf)) PUSH(n->pl->a, n->to->v, n->to->n, n->to->cap, buf);
  return true;
}

/* Statements run from top to bottom: what one reads is what those above it made and those below it have not yet changed. */
static void find_order(Planner *pl) {
  Tp *p = pl->p;
  pl->reads = ARENA_ARRAY(pl->a, Ints, p->n_stmts + 1);
  pl->after = ARENA_ARRAY(pl->a, Ints, p->n_stmts + 1);
  for (int i = 0; i < p->n_stmts; i++) {
    Ints *after = &pl->after[i];
    int made = tp_root(p, p->stmt[i].buf);
    if (pl->dead[i]) continue;
    each_stmt_load(pl->d, &p->stmt[i], note_read, &(NoteRead){pl, &pl->reads[i]});
    for (int k = 0; k < i; k++) {
      int other = tp_root(p, p->stmt[k].buf);
      if (!pl->dead[k] && (other == made || has(&pl->reads[i], other) || has(&pl->reads[k], made))) PUSH(pl->a, after->v, after->n, after->cap, k);
    }
  }
}

static bool is_next(const Planner *pl, int stmt) {
  const Ints *o = &pl->after[stmt];
  for (int i = 0; i < o->n; i++) if (pl->stmt_region[o->v[i]] < 0) return false;
  return true;
}

/* Reads of region-made buffers must be at the item itself: index i is axis i for every parallel axis. */
typedef struct LocalRead { const Planner *pl; const TpStmt *of; int region, n_par; bool depends; } LocalRead;
static bool at_item(const Planner *pl, const Dx *index, int n_index, int n_par) {
  if (n_index < n_par) return false;
  for (int i = 0; i < n_par; i++) {
    const DxNode *n = &pl->d->node[index[i]];
    if (n->kind != DX_AXIS || n->ival != i) return false;
  }
  return true;
}

static bool local_read(void *ctx, const DxNode *load) {
  LocalRead *l = ctx;
  const Planner *pl = l->pl;
  int r = tp_root(pl->p, (int)load->ival);
  for (int i = 0; i < pl->p->n_stmts; i++) {
    if (pl->dead[i] || tp_root(pl->p, pl->p->stmt[i].buf) != r || pl->stmt_region[i] != l->region || &pl->p->stmt[i] == l->of) continue;
    l->depends = true;
    if (load->ival != pl->p->stmt[i].buf && l->n_par > 1) return false; /* other dimensions: only rows are known to agree */
    if (!at_item(pl, load->arg, load->n_args, l->n_par) || !at_item(pl, pl->p->stmt[i].index, pl->p->stmt[i].n_index, l->n_par)) return false;
  }
  return true;
}

/* May run in region r at n_par parallel axes, all it reads being made before or at its own item. */
static bool reads_fit(const Planner *pl, const TpStmt *t, int region, int n_par, bool *depends) {
  LocalRead l = {.pl = pl, .of = t, .region = region, .n_par = n_par};
  bool ok = each_stmt_load(pl->d, t, local_read, &l);
  if (depends) *depends = l.depends;
  return ok;
}

typedef struct ReadAt { const Planner *pl; int buf, n_par; } ReadAt;
static bool read_at_item(void *ctx, const DxNode *load) {
  const ReadAt *r = ctx;
  if (tp_root(r->pl->p, (int)load->ival) != tp_root(r->pl->p, r->buf)) return true;
  return (load->ival == r->buf || r->n_par == 1) && at_item(r->pl, load->arg, load->n_args, r->n_par);
}

/* What t writes, others of the region have read or written at their own item only, and so does t. */
static bool write_fits(const Planner *pl, const TpRegion *r, const TpStmt *t, int n_par) {
  ReadAt at = {pl, t->buf, n_par};
  for (int i = 0; i < r->n_stmts; i++) {
    const TpStmt *u = &pl->p->stmt[r->stmt[i]];
    bool writes = tp_root(pl->p, u->buf) == tp_root(pl->p, t->buf);
    if (!writes && !has(&pl->reads[r->stmt[i]], tp_root(pl->p, t->buf))) continue;
    if (!at_item(pl, t->index, t->n_index, n_par) || !each_stmt_load(pl->d, u, read_at_item, &at)) return false;
    if (writes && (!at_item(pl, u->index, u->n_index, n_par) || (u->buf != t->buf && n_par > 1))) return false;
  }
  return true;
}

static int max_par(const TpStmt *t) { return t->n_axes > 1 ? t->n_axes - 1 : t->n_axes; }

static int common_prefix(const TpRegion *r, const TpStmt *t) {
  int n = 0;
  while (n < r->n_par && n < t->n_axes && r->par[n] == t->extent[n]) n++;
  return n;
}

static int64_t region_cost(const Planner *pl, const TpRegion *r, int n_par) {
  int64_t c = 0;
  for (int i = 0; i < r->n_stmts; i++) c += item_cost(pl, &pl->p->stmt[r->stmt[i]], n_par);
  return c;
}

static bool writes_state(const Planner *pl, const TpStmt *t) { return pl->p->buf[tp_root(pl->p, t->buf)].role == BUF_STATE; }

static bool region_writes_state(const Planner *pl, const TpRegion *r) {
  for (int i = 0; i < r->n_stmts; i++) if (writes_state(pl, &pl->p->stmt[r->stmt[i]])) return true;
  return false;
}

/* The parallel axes region r would have with statement t in it; 0: it may not join. What has nothing to do with a region that stores to a
   state stays out of it: sooner or later it meets who reads that state, at places that are not the item's, and would be torn in two. */
static int join_par(const Planner *pl, const TpRegion *r, int region, const TpStmt *t) {
  int most = t->block_axis ? MIN(common_prefix(r, t), max_par(t)) : common_prefix(r, t);
  bool stores = region_writes_state(pl, r) && !writes_state(pl, t);
  for (int n = most; n >= 1; n--) {
    bool depends;
    if (!reads_fit(pl, t, region, n, &depends) || !write_fits(pl, r, t, n)) continue; /* what fits with more axes fits with fewer */
    if (stores && !depends) continue;
    bool light = region_cost(pl, r, n) + item_cost(pl, t, n) <= MAX_SHRINK_COST;
    if (n < r->n_par && !light) continue;
    if (n < max_par(t) && item_cost(pl, t, n) > MAX_SHRINK_COST) continue; /* t would lose its own parallelism */
    return n;
  }
  return 0;
}

static bool contraction_joins(const Planner *pl, const TpRegion *r, int region, const TpStmt *t) {
  const TpStmt *first = &pl->p->stmt[r->stmt[0]];
  if (t->n_axes != 2 || t->extent[0] != first->extent[0] || t->extent[1] != first->extent[1]) return false;
  if (!reads_fit(pl, t, region, 2, NULL) || !write_fits(pl, r, t, 2)) return false;
  if (is_contraction(pl, t)) return r->n_stmts < 4;
  bool flat = t->n_index == 2 && t->index[0] == dx_axis(pl->d, 0) && t->index[1] == dx_axis(pl->d, 1);
  bool depends = false;
  reads_fit(pl, t, region, 2, &depends);
  return flat && depends && !has_kind(pl->d, t->rhs, DX_RED);
}

static void place(Planner *pl, TpRegion *r, int region, int stmt) {
  int *more = ARENA_ARRAY(pl->a, int, r->n_stmts + 1);
  if (r->n_stmts) memcpy(more, r->stmt, sizeof(int) * (size_t)r->n_stmts);
  more[r->n_stmts] = stmt;
  r->stmt = more;
  r->n_stmts++;
  pl->stmt_region[stmt] = region;
}

static bool grow(Planner *pl, TpRegion *r, int region) {
  bool grew = false;
  for (int i = 0; i < pl->p->n_stmts; i++) {
    TpStmt *t = &pl->p->stmt[i];
    if (pl->dead[i] || pl->stmt_region[i] >= 0 || !is_next(pl, i)) continue;
    if (r->contraction) {
      if (!contraction_joins(pl, r, region, t)) continue;
    } else {
      int n = is_contraction(pl, t) ? 0 : join_par(pl, r, region, t);
      if (!n) continue;
      r->n_par = n;
    }
    place(pl, r, region, i);
    grew = true;
  }
  return grew;
}

static void form_regions(Planner *pl) {
  Tp *p = pl->p;
  for (int first = 0; first < p->n_stmts; first++) {
    if (pl->dead[first] || pl->stmt_region[first] >= 0) continue;
    int region = pl->plan->n_regions;
    const TpStmt *t = &p->stmt[first];
    TpRegion r = {.contraction = is_contraction(pl, t), .n_par = max_par(t)};
    memcpy(r.par, t->extent, sizeof(Dx) * (size_t)t->n_axes);
    place(pl, &r, region, first);
    while (grow(pl, &r, region)) {}
    PUSH(pl->a, pl->plan->region, pl->plan->n_regions, pl->plan->cap_regions, r);
  }
}

/* ---- phases, locals, arguments ---------------------------------------------------------------------------------------- */
typedef struct Touch { const Tp *p; bool *read; } Touch;
static bool touch(void *ctx, const DxNode *load) {
  Touch *t = ctx;
  t->read[tp_root(t->p, (int)load->ival)] = true;
  return true;
}

static void set_phases(Planner *pl) {
  TpPlan *plan = pl->plan;
  Tp *p = pl->p;
  bool **rd = ARENA_ARRAY(pl->a, bool *, plan->n_regions), **wr = ARENA_ARRAY(pl->a, bool *, plan->n_regions);
  for (int i = 0; i < plan->n_regions; i++) {
    TpRegion *r = &plan->region[i];
    Touch t = {p, ARENA_ARRAY(pl->a, bool, p->n_bufs)};
    wr[i] = ARENA_ARRAY(pl->a, bool, p->n_bufs);
    for (int k = 0; k < r->n_stmts; k++) {
      each_stmt_load(pl->d, &p->stmt[r->stmt[k]], touch, &t);
      wr[i][tp_root(p, p->stmt[r->stmt[k]].buf)] = true;
    }
    rd[i] = t.read;
    r->phase = 0;
    for (int j = 0; j < i; j++) {
      bool clash = false;
      for (int b = 0; b < p->n_bufs; b++) clash |= (wr[j][b] && (rd[i][b] || wr[i][b])) || (rd[j][b] && wr[i][b]);
      if (clash) r->phase = MAX(r->phase, plan->region[j].phase + 1);
    }
    plan->n_phases = MAX(plan->n_phases, r->phase + 1);
  }
}

static void sort_by_phase(TpPlan *plan) {
  for (int i = 1; i < plan->n_regions; i++) {
    TpRegion r = plan->region[i];
    int k = i;
    for (; k > 0 && plan->region[k - 1].phase > r.phase; k--) plan->region[k] = plan->region[k - 1];
    plan->region[k] = r;
  }
}

typedef struct LocalUse { Planner *pl; int region, n_par; int *home; bool *everywhere; } LocalUse;
static bool note_use(void *ctx, const DxNode *load) {
  LocalUse *u = ctx;
  int r = tp_root(u->pl->p, (int)load->ival);
  if (u->home[r] != u->region || !at_item(u->pl, load->arg, load->n_args, u->n_par) || u->pl->p->buf[load->ival].alias != load->ival) u->everywhere[r] = true;
  return true;
}

/* A temporary made and read in one region, always at the item itself, needs no memory outside it. */
static void localize(Planner *pl) {
  Tp *p = pl->p;
  int *home = ARENA_ARRAY(pl->a, int, p->n_bufs);
  bool *everywhere = ARENA_ARRAY(pl->a, bool, p->n_bufs);
  for (int b = 0; b < p->n_bufs; b++) home[b] = -1;
  for (int i = 0; i < pl->plan->n_regions; i++) {
    TpRegion *r = &pl->plan->region[i];
    for (int k = 0; k < r->n_stmts; k++) {
      TpStmt *t = &p->stmt[r->stmt[k]];
      int b = tp_root(p, t->buf);
      if ((home[b] >= 0 && home[b] != i) || !at_item(pl, t->index, t->n_index, r->contraction ? 2 : r->n_par) || t->buf != b) everywhere[b] = true;
      home[b] = i;
    }
  }
  for (int i = 0; i < pl->plan->n_regions; i++) {
    TpRegion *r = &pl->plan->region[i];
    LocalUse u = {pl, i, r->contraction ? 2 : r->n_par, home, everywhere};
    for (int k = 0; k < r->n_stmts; k++) each_stmt_load(pl->d, &p->stmt[r->stmt[k]], note_use, &u);
  }
  for (int b = 0; b < p->n_bufs; b++)
    p->buf[b].local = p->buf[b].role == BUF_TEMP && home[b] >= 0 && !everywhere[b] ? home[b] : -1;
  for (int b = 0; b < p->n_bufs; b++) p->buf[b].local = p->buf[tp_root(p, b)].local;
}

typedef struct ArgList { Planner *pl; TpRegion *r; int cap; } ArgList;
static void add_arg(ArgList *l, int what) {
  for (int i = 0; i < l->r->n_args; i++) if (l->r->arg[i] == what) return;
  PUSH(l->pl->a, l->r->arg, l->r->n_args, l->cap, what);
}

static void add_tables(ArgList *l, const FormatForm *f) {
  for (int i = 0; f && i < f->dag->n_tabs; i++) add_arg(l, TP_TABLE + tp_table(l->pl->p, f->dag->tab[i].data));
}

static void collect_args(ArgList *l, Dx x) {
  const DxNode *n = &l->pl->d->node[x];
  if (!dag_walk_first(l->pl->d, x)) return;
  if (n->kind == DX_SYM) add_arg(l, ~(int)n->ival);
  if ((n->kind == DX_LOAD || n->kind == DX_WGT) && l->pl->p->buf[n->ival].local < 0) add_arg(l, tp_root(l->pl->p, (int)n->ival));
  if (n->kind == DX_WGT) add_tables(l, l->pl->p->buf[n->ival].fmt);
  if (n->kind == DX_LOAD) add_tables(l, l->pl->p->buf[n->ival].blocks);
  for (int i = 0; i < n->n_args; i++) collect_args(l, n->arg[i]);
}

/* What a region does, in bytes: equal bytes are the same function. A record for each expression, behind those of its operands, which it names by
   their numbers; records say their own length. */
typedef struct Form { const Planner *pl; const TpRegion *r; Str out; uint32_t n; } Form;

static void put_ints(Form *f, const int64_t *v, int n) { str_add_n(&f->out, v, sizeof *v * (size_t)n); }

/* Of the buffer that is read: everything that instructions depend on but its address. */
static void put_buffer(Form *f, const DxNode *n) {
  const Planner *pl = f->pl;
  const TpBuf *b = &pl->p->buf[n->ival];
  const FormatForm *fmt = b->fmt ? b->fmt : b->blocks;
  bool ranged = n->ival < pl->d->n_load_range; /* ranges decide how ints are divided, and how many items there are */
  int64_t v[] = {b->mem, b->raw, b->bf16, fmt != NULL, fmt ? b->block_dim : 0, fmt && fmt == b->blocks ? b->side_dim + 1 : 0, b->n_dims, ranged};
  put_ints(f, v, COUNT_OF(v));
  if (fmt) str_add_n(&f->out, fmt->decl->name, strlen(fmt->decl->name) + 1);
  if (ranged) str_add_n(&f->out, &pl->d->load_range[n->ival], sizeof(DxRange));
}

static uint32_t put_dx(Form *f, Dx x) {
  const Planner *pl = f->pl;
  DxNode n = pl->d->node[x];
  int64_t of[DX_MAX_ARGS + IR_MAX_DIMS];
  int n_of = 0;
  if (x < pl->n_cost && pl->record[x]) return pl->record[x];
  bool reads = n.kind == DX_LOAD || n.kind == DX_WGT;
  const TpBuf *b = reads ? &pl->p->buf[n.ival] : NULL;
  for (int i = 0; i < n.n_args; i++) of[n_of++] = put_dx(f, n.arg[i]);
  for (int i = 0; reads && i < b->n_dims; i++) of[n_of++] = put_dx(f, b->dim[i]);
  int64_t id[4] = {n.kind, n.op, n.ival, n.n_args};
  if (reads) {
    int root = tp_root(pl->p, (int)n.ival), k = 0;
    while (k < f->r->n_args && f->r->arg[k] != root) k++;
    id[2] = b->local >= 0 ? -1 - root : k;
  }
  put_ints(f, id, COUNT_OF(id));
  str_add_n(&f->out, &n.fval, sizeof n.fval);
  if (reads) put_buffer(f, &n);
  put_ints(f, of, n_of);
  f->n++;
  if (x < pl->n_cost) pl->record[x] = f->n;
  return f->n;
}

static void finish_region(Planner *pl, TpRegion *r) {
  ArgList l = {pl, r, 0};
  Str name = {0};
  memset(pl->record, 0, sizeof *pl->record * (size_t)pl->n_cost);
  dag_walk_begin(pl->d);
  for (int i = 0; i < r->n_stmts; i++) {
    TpStmt *t = &pl->p->stmt[r->stmt[i]];
    for (int k = 0; k < t->n_index; k++) collect_args(&l, t->index[k]);
    for (int k = 0; k < t->n_axes; k++) collect_args(&l, t->extent[k]);
    collect_args(&l, t->rhs);
    if (pl->p->buf[t->buf].local < 0) add_arg(&l, tp_root(pl->p, t->buf));
    add_tables(&l, pl->p->buf[t->buf].blocks);
    bool told = false;
    for (int k = 0; k < i; k++) told |= !strcmp(pl->p->stmt[r->stmt[k]].op, t->op);
    if (!told) str_addf(&name, i ? "+%s" : "%s", t->op);
  }
  Form f = {.pl = pl, .r = r};
  put_ints(&f, (int64_t[]){r->n_par, r->contraction, r->n_stmts}, 3);
  for (int i = 0; i < r->n_stmts; i++) {
    TpStmt *t = &pl->p->stmt[r->stmt[i]];
    DxNode target = {.kind = DX_LOAD, .n_args = (uint8_t)t->n_index, .ival = t->buf};
    memcpy(target.arg, t->index, sizeof(Dx) * (size_t)t->n_index);
    int64_t of[DX_MAX_AXES + 3] = {t->n_axes, put_dx(&f, dx_node(pl->d, target)), put_dx(&f, t->rhs)};
    for (int k = 0; k < t->n_axes; k++) of[3 + k] = put_dx(&f, t->extent[k]);
    put_ints(&f, of, 3 + t->n_axes);
  }
  r->form = (const uint8_t *)arena_dup_n(pl->a, f.out.p, f.out.n);
  r->n_form = f.out.n;
  str_free(&f.out);
  r->name = arena_dup(pl->a, name.p);
  str_free(&name);
}

Err *tp_plan(Tp *p, TpPlan **out) {
  Planner *pl = ARENA_NEW(p->arena, Planner);
  *pl = (Planner){.p = p, .d = p->dag, .a = p->arena, .plan = ARENA_NEW(p->arena, TpPlan)};
  pl->plan->tp = p;
  pl->dead = ARENA_ARRAY(p->arena, bool, p->n_stmts);
  pl->stmt_region = ARENA_ARRAY(p->arena, int, p->n_stmts);
  for (int i = 0; i < p->n_stmts; i++) pl->stmt_region[i] = -1;
  for (int i = 0; i < p->n_stmts; i++) order_axes(pl, &p->stmt[i]);
  tp_keep_bf16(p);
  merge_equal(pl);
  inline_cheap(pl);
  drop_unused(pl);
  pl->n_cost = pl->d->n;
  pl->cost = ARENA_ARRAY(p->arena, int64_t, pl->n_cost);
  pl->record = ARENA_ARRAY(p->arena, uint32_t, pl->n_cost);
  TRY(check_weights(pl));
  find_order(pl);
  form_regions(pl);
  set_phases(pl);
  sort_by_phase(pl->plan);
  for (int i = 0; i < pl->plan->n_regions; i++)
    for (int k = 0; k < pl->plan->region[i].n_stmts; k++) pl->stmt_region[pl->plan->region[i].stmt[k]] = i;
  localize(pl);
  for (int i = 0; i < pl->plan->n_regions; i++) finish_region(pl, &pl->plan->region[i]);
  *out = pl->plan;
  return NULL;
}

void tp_plan_print(const TpPlan *plan, Str *out) {
  for (int i = 0; i < plan->n_regions; i++) {
    const TpRegion *r = &plan->region[i];
    str_addf(out, "phase %d region %d %s: %s, %d parallel axes, %d statements, args", r->phase, i, r->name, r->contraction ? "contraction" : "rows", r->n_par, r->n_stmts);
    for (int k = 0; k < r->n_args; k++) str_addf(out, r->arg[k] >= TP_TABLE ? " T%d" : r->arg[k] >= 0 ? " b%d" : " S%d", r->arg[k] >= TP_TABLE ? r->arg[k] - TP_TABLE : r->arg[k] >= 0 ? r->arg[k] : ~r->arg[k]);
    str_add(out, "\n");
    for (int k = 0; k < r->n_stmts; k++) {
      const TpStmt *t = &plan->tp->stmt[r->stmt[k]];
      str_addf(out, "    %s.%s%s[", t->op, t->text, plan->tp->buf[t->buf].local >= 0 ? " (local)" : "");
      for (int x = 0; x < t->n_index; x++) {
        if (x) str_add(out, ", ");
        dx_print(plan->tp->dag, t->index[x], out);
      }
      str_add(out, "] = ");
      dx_print(plan->tp->dag, t->rhs, out);
      str_add(out, "\n");
    }
  }
}
