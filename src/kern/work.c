/* What a region has to do: multiply-adds and bytes, counted from its statements, and the integer arithmetic that takes (how far attention
   reaches back depends on positions, which are data). In: a plan, the numbers of its rows, the integers it indexes by. Out: numbers that a
   time can be held against. */
#include <math.h>
#include <string.h>
#include "kern/kern.h"

/* ---- integers ------------------------------------------------------------------------------------------------------ */
static int64_t eval_load(KernEval *e, const DxNode *n) {
  const TpBuf *t = &e->tp->buf[n->ival];
  const int32_t *p = e->ints ? e->ints[tp_root(e->tp, (int)n->ival)] : NULL;
  if (!p || t->mem != IR_M_i32 || t->role != BUF_INPUT || n->n_args != 1) return e->unknown = true, 0;
  int64_t at = kern_eval(e, n->arg[0]);
  if (at < 0 || at >= tp_buf_rows(e->tp, (int)n->ival, e->sym)) return e->unknown = true, 0;
  return p[at];
}

static int64_t eval_op(KernEval *e, const DxNode *n) {
  int64_t a = kern_eval(e, n->arg[0]), b = n->n_args > 1 ? kern_eval(e, n->arg[1]) : 0;
  switch (n->op) {
    case DXO_ADD: return a + b;
    case DXO_SUB: return a - b;
    case DXO_MUL: return a * b;
    case DXO_DIV: if (b > 0) return a / b; break;
    case DXO_MOD: if (b > 0) return a % b; break;
    case DXO_MIN: return MIN(a, b);
    case DXO_MAX: return MAX(a, b);
    case DXO_NEG: return -a;
    case DXO_AND: return a & b;
    case DXO_OR: return a | b;
    case DXO_SHL: if (b >= 0 && b < 32) return a << b; break;
    case DXO_SHR: if (b >= 0 && b < 32) return a >> b; break;
    case DXO_EQ: return a == b;
    case DXO_NE: return a != b;
    case DXO_LT: return a < b;
    case DXO_LE: return a <= b;
    case DXO_GT: return a > b;
    case DXO_GE: return a >= b;
    case DXO_LAND: return a && b;
    case DXO_LOR: return a || b;
    case DXO_LNOT: return !a;
    case DXO_COND: return kern_eval(e, n->arg[a ? 1 : 2]);
    default: break;
  }
  e->unknown = true;
  return 0;
}

int64_t kern_eval(KernEval *e, Dx x) {
  const DxNode *n = &e->tp->dag->node[x];
  switch (n->kind) {
    case DX_INT: return n->ival;
    case DX_AXIS: return e->axis[n->ival];
    case DX_SYM: return e->sym[n->ival];
    case DX_LOAD: return eval_load(e, n);
    case DX_OP: if (n->type != DT_F32) return eval_op(e, n); break;
    default: break;
  }
  e->unknown = true;
  return 0;
}

static int64_t dim_value(const KernEval *e, Dx x) {
  const DxNode *n = &e->tp->dag->node[x];
  return n->kind == DX_INT ? n->ival : n->kind == DX_SYM ? e->sym[n->ival] : 0;
}

/* ---- how far an index reaches while axes run from axis[] to top[] ---------------------------------------------------- */
enum { FAR = 1 << 30, MOST_LOADS = 4096 };
typedef struct Reach { int64_t lo, hi; } Reach;
typedef struct Touch { bool any; Reach dim[IR_MAX_DIMS]; } Touch;
typedef struct Walk { KernEval *e; int64_t top[DX_MAX_AXES]; Touch *touch; } Walk; /* touch: by buffer */

static Reach reach(Walk *w, Dx x);

static Reach reach_load(Walk *w, const DxNode *n) {
  Reach at = n->n_args == 1 ? reach(w, n->arg[0]) : (Reach){0, FAR}, r = {FAR, 0};
  const int32_t *p = w->e->ints ? w->e->ints[tp_root(w->e->tp, (int)n->ival)] : NULL;
  if (!p || at.lo < 0 || at.hi - at.lo > MOST_LOADS || at.hi >= tp_buf_rows(w->e->tp, (int)n->ival, w->e->sym)) return (Reach){0, FAR};
  for (int64_t i = at.lo; i <= at.hi; i++) r = (Reach){MIN(r.lo, p[i]), MAX(r.hi, p[i])};
  return r;
}

static Reach reach_op(Walk *w, const DxNode *n) {
  Reach a = reach(w, n->arg[0]), b = n->n_args > 1 ? reach(w, n->arg[1]) : (Reach){0, 0};
  bool one = b.lo == b.hi && b.lo > 0;
  switch (n->op) {
    case DXO_ADD: return (Reach){a.lo + b.lo, a.hi + b.hi};
    case DXO_SUB: return (Reach){a.lo - b.hi, a.hi - b.lo};
    case DXO_MUL: if (a.lo >= 0 && b.lo >= 0 && a.hi <= FAR && b.hi <= FAR) return (Reach){a.lo * b.lo, a.hi * b.hi}; break;
    case DXO_DIV: if (one && a.lo >= 0) return (Reach){a.lo / b.lo, a.hi / b.lo}; break;
    case DXO_MOD: if (one && a.lo >= 0) return a.lo / b.lo == a.hi / b.lo ? (Reach){a.lo % b.lo, a.hi % b.lo} : (Reach){0, b.lo - 1}; break;
    case DXO_MIN: return (Reach){MIN(a.lo, b.lo), MIN(a.hi, b.hi)};
    case DXO_MAX: return (Reach){MAX(a.lo, b.lo), MAX(a.hi, b.hi)};
    default: break;
  }
  return (Reach){0, FAR};
}

static Reach reach(Walk *w, Dx x) {
  const DxNode *n = &w->e->tp->dag->node[x];
  switch (n->kind) {
    case DX_INT: return (Reach){n->ival, n->ival};
    case DX_AXIS: return (Reach){w->e->axis[n->ival], w->top[n->ival]};
    case DX_SYM: return (Reach){w->e->sym[n->ival], w->e->sym[n->ival]};
    case DX_LOAD: return reach_load(w, n);
    case DX_OP: if (n->type == DT_INT) return reach_op(w, n); break;
    default: break;
  }
  return (Reach){0, FAR};
}

static void touch(Walk *w, int buf, const Dx *index, int n) {
  Touch *t = &w->touch[buf];
  for (int i = 0; i < n; i++) {
    Reach r = reach(w, index[i]);
    int64_t end = dim_value(w->e, w->e->tp->buf[buf].dim[i]) - 1;
    r = (Reach){MAX(MIN(r.lo, end), 0), MAX(MIN(r.hi, end), 0)};
    t->dim[i] = t->any ? (Reach){MIN(t->dim[i].lo, r.lo), MAX(t->dim[i].hi, r.hi)} : r;
  }
  t->any = true;
}

static void set_axis(Walk *w, int axis, int64_t lo, int64_t hi) {
  w->e->axis[axis] = lo;
  w->top[axis] = MAX(hi, lo);
}

static int64_t extent(Walk *w, Dx x) {
  w->e->unknown = false;
  return MAX(kern_eval(w->e, x), 0);
}

static void touch_loads(Walk *w, Dx x) {
  const DxNode *n = &w->e->tp->dag->node[x];
  if (n->kind == DX_RED) {
    int64_t ext = extent(w, n->arg[0]);
    if (ext == 0 && !w->e->unknown) return;
    set_axis(w, (int)n->ival, 0, w->e->unknown ? FAR : ext - 1);
  }
  for (int i = n->kind == DX_RED; i < n->n_args; i++) touch_loads(w, n->arg[i]);
  if (n->kind == DX_LOAD || n->kind == DX_WGT) touch(w, (int)n->ival, n->arg, n->n_args);
}

/* ---- multiply-adds ------------------------------------------------------------------------------------------------- */
static bool has_product(const Dag *d, Dx x, int axis) {
  const DxNode *n = &d->node[x];
  if (n->kind != DX_OP) return false;
  if (n->op == DXO_MUL || n->op == DXO_FMA) return n->axes >> axis & 1;
  for (int i = 0; i < n->n_args; i++) if (has_product(d, n->arg[i], axis)) return true;
  return false;
}

typedef struct Count { double i, f, pairs; } Count; /* pairs: of f */

/* Multiply-adds of the innermost reductions; a sum around sums adds as little as it costs beside them, and is not counted. */
static Count madds(Walk *w, Dx x) {
  const DxNode *n = &w->e->tp->dag->node[x];
  Count c = {0};
  if (n->kind != DX_RED) {
    for (int i = 0; i < n->n_args; i++) {
      Count a = madds(w, n->arg[i]);
      c.i += a.i, c.f += a.f, c.pairs += a.pairs;
    }
    return c;
  }
  double ext = (double)extent(w, n->arg[0]);
  set_axis(w, (int)n->ival, 0, 0);
  c = madds(w, n->arg[1]);
  Dx even[2];
  bool pair = n->op == RED_CHAIN && tp_is_pair(w->e->tp, n->arg[1], even);
  if (c.i + c.f == 0 && has_product(w->e->tp->dag, n->arg[1], (int)n->ival)) *(n->type == DT_F32 ? &c.f : &c.i) = pair ? 2 : 1;
  if (pair && w->e->tp->dot2) c.pairs = c.f;
  return (Count){c.i * ext, c.f * ext, c.pairs * ext};
}

static uint32_t extent_axes(const Dag *d, Dx x) {
  const DxNode *n = &d->node[x];
  uint32_t a = n->kind == DX_RED ? d->node[n->arg[0]].axes : 0;
  for (int i = 0; i < n->n_args; i++) a |= extent_axes(d, n->arg[i]);
  return a;
}

/* An axis on which no later extent depends is not walked. What is touched is looked at where walked axes begin and end. */
static Count stmt_madds(Walk *w, const TpStmt *t, int axis, bool at_end) {
  const Dag *d = w->e->tp->dag;
  if (axis == t->n_axes) {
    if (at_end) {
      touch_loads(w, t->rhs);
      touch(w, t->buf, t->index, t->n_index);
    }
    return madds(w, t->rhs);
  }
  uint32_t later = extent_axes(d, t->rhs);
  for (int i = axis + 1; i < t->n_axes; i++) later |= d->node[t->extent[i]].axes;
  int64_t ext = extent(w, t->extent[axis]);
  Count sum = {0};
  if (!(later >> axis & 1)) {
    set_axis(w, axis, 0, ext - 1);
    sum = ext ? stmt_madds(w, t, axis + 1, at_end) : sum;
    return (Count){sum.i * (double)ext, sum.f * (double)ext, sum.pairs * (double)ext};
  }
  for (int64_t i = 0; i < ext; i++) {
    set_axis(w, axis, i, i);
    Count c = stmt_madds(w, t, axis + 1, at_end && (i == 0 || i + 1 == ext));
    sum.i += c.i, sum.f += c.f, sum.pairs += c.pairs;
  }
  return sum;
}

/* ---- bytes --------------------------------------------------------------------------------------------------------- */
/* Packed weights whole, of raw ones the rows that are picked, of everything else what is touched. */
static double touched_bytes(const Walk *w, int b) {
  const Tp *tp = w->e->tp;
  const TpBuf *t = &tp->buf[b];
  double n = 1;
  if (t->fmt && !t->raw) return (double)format_layout(t->fmt, dim_value(w->e, t->dim[1])).tile_bytes * (double)((dim_value(w->e, t->dim[0]) + PACK_ROWS - 1) / PACK_ROWS);
  if (t->fmt) return (double)MIN(dim_value(w->e, t->dim[0]), tp->n_syms ? w->e->sym[0] : 1) * (double)dim_value(w->e, t->dim[1]) / t->fmt->block * t->fmt->n_bytes;
  for (int i = 0; i < t->n_dims; i++) {
    double elems = (double)(w->touch[b].dim[i].hi - w->touch[b].dim[i].lo + 1);
    n *= t->blocks && i == t->block_dim ? ceil(elems / t->blocks->block) * t->blocks->n_bytes : elems;
  }
  return n * ir_mem_bytes[t->mem];
}

static bool has_arg(const TpRegion *r, int root) {
  for (int i = 0; i < r->n_args; i++) if (r->arg[i] == root) return true;
  return false;
}

/* Bytes of every buffer touched, once each: under its several views the most. */
static void add_bytes(Walk *w, const TpPlan *p, int first, int end, bool temps, KernWork *out) {
  const Tp *tp = p->tp;
  for (int root = 0; root < tp->n_bufs; root++) {
    double most = 0;
    bool used = false;
    if (tp->buf[root].alias != root || (tp->buf[root].role == BUF_TEMP && !temps)) continue;
    for (int r = first; r < end; r++) used |= has_arg(&p->region[r], root);
    for (int b = root; used && b < tp->n_bufs; b++) if (w->touch[b].any && tp_root(tp, b) == root) most = MAX(most, touched_bytes(w, b));
    out->n_bytes += most;
    if (tp->buf[root].fmt) out->weight_bytes += most;
    if (tp->buf[root].role == BUF_STATE) out->state_bytes += most;
  }
}

void kern_work(const TpPlan *p, int first, int end, KernEval *e, bool temps, KernWork *out) {
  Arena *tmp = arena_new("compile");
  Walk *w = ARENA_NEW(tmp, Walk);
  KernWork k = {0};
  *w = (Walk){.e = e, .touch = ARENA_ARRAY(tmp, Touch, p->tp->n_bufs + 1)};
  for (int r = first; r < end; r++) {
    for (int i = 0; i < p->region[r].n_stmts; i++) {
      Count c = stmt_madds(w, &p->tp->stmt[p->region[r].stmt[i]], 0, true);
      k.int_madds += c.i;
      k.f32_madds += c.f;
      k.pair_madds += c.pairs;
    }
  }
  add_bytes(w, p, first, end, temps, &k);
  *out = k;
  arena_free(tmp);
}
