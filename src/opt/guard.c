/* What a program may not do, whatever a text says: index outside a tensor, have dimensions that are not numbers, be larger than memory can
   be. A kernel's code tests nothing at run time, so what can be known is tested here. In: buffers and statements as they are made. Out: an
   error that says what runs from where to where. What depends on data (positions, tokens) is known only to who makes the data. */
#include <string.h>
#include "opt/opt.h"

enum { ROWS_MAX = 1 << 16 };                               /* a number of rows that is known at run time is at most this */
static const int64_t BYTES_MAX = (int64_t)1 << 46, ITEMS_MAX = (int64_t)1 << 50;

static int64_t dim_most(const Tp *p, Dx x) {
  int64_t v;
  return dx_is_int(p->dag, x, &v) ? v : ROWS_MAX;
}

Err *tp_dims_check(const Tp *p, const char *name, const TpBuf *b) {
  int64_t each = b->fmt ? (b->fmt->n_bytes + b->fmt->block - 1) / b->fmt->block : ir_mem_bytes[b->mem], most = BYTES_MAX / MAX(each, 1);
  for (int i = 0; i < b->n_dims; i++) {
    const DxNode *n = &p->dag->node[b->dim[i]];
    if (n->kind != DX_INT && (n->kind != DX_SYM || i > 0)) return err_new(ERR_SHAPE, "%s: dimension %d is not known before run time: only the first may be, as a number of rows", name, i);
    if (n->kind == DX_INT && n->ival < 1) return err_new(ERR_SHAPE, "%s: dimension %d is %lld, expected at least 1", name, i, (long long)n->ival);
    int64_t d = dim_most(p, b->dim[i]) + (i + 1 == b->n_dims ? 80 : 0); /* rows are padded */
    if (d > most) return err_new(ERR_LIMIT, "%s: more than %lld bytes", name, (long long)BYTES_MAX);
    most /= d;
  }
  return NULL;
}

/* ---- indices ------------------------------------------------------------------------------------------------------- */
typedef struct Guard {
  const Tp *p; const Dag *d; const TpStmt *t;
  Dx extent[DX_MAX_AXES];    /* of every axis around what is looked at */
  int64_t max[DX_MAX_AXES];  /* its largest value; -1: not known */
  uint32_t by_data;          /* axes whose extent depends on data */
} Guard;

/* known_counts: data whose bound is known counts too. */
static bool from_data(const Guard *g, Dx x, bool known_counts) {
  const DxNode *n = &g->d->node[x];
  bool known = n->kind == DX_LOAD && n->ival < g->d->n_data_max && g->d->data_max[n->ival] >= 0;
  if ((n->kind == DX_LOAD && (known_counts || !known)) || n->kind == DX_WGT || n->axes & g->by_data) return true;
  for (int i = 0; i < n->n_args; i++) if (from_data(g, n->arg[i], known_counts)) return true;
  return false;
}

static void enter(Guard *g, int axis, Dx extent) {
  DxRange r = dx_range(g->d, extent, g->max);
  g->extent[axis] = extent;
  g->max[axis] = r.hi < (int64_t)1 << 32 ? r.hi - 1 : -1;
  g->by_data = (g->by_data & ~(1u << axis)) | (from_data(g, extent, true) ? 1u << axis : 0);
}

static bool is_empty(const Guard *g, int axis) { return dx_is_int(g->d, g->extent[axis], NULL) && g->max[axis] < 0; }

static Err *check_index(const Guard *g, int buf, int i, Dx index) {
  const TpBuf *b = &g->p->buf[buf];
  const DxNode *n = &g->d->node[index];
  int64_t dim = 1;
  if (n->kind == DX_AXIS && g->extent[n->ival] == b->dim[i]) return NULL;
  if (from_data(g, index, false)) return NULL;
  DxRange r = dx_range(g->d, index, g->max);
  bool known = dx_is_int(g->d, b->dim[i], &dim);                  /* of rows, there is at least one */
  if ((r.lo >= 0 && r.hi < dim) || (!known && g->d->data_max)) return NULL;
  if (!known) return err_new(ERR_SHAPE, "op %s: %s: an index of %s, dimension %d, may leave its rows; it may be the rows' own index, come from data, or be 0", g->t->op, g->t->text, b->name, i);
  return err_new(ERR_SHAPE, "op %s: %s: an index of %s, dimension %d, runs from %lld to %lld, expected 0 to %lld (both sides of ? are read)", g->t->op, g->t->text, b->name, i,
                 (long long)r.lo, (long long)r.hi, (long long)dim - 1);
}

/* An element read of what the statement itself makes must be the one it gives: elements are made in any order. */
static Err *check_own(const Guard *g, const DxNode *load) {
  const TpStmt *t = g->t;
  if (tp_root(g->p, (int)load->ival) != tp_root(g->p, t->buf) || (load->ival == t->buf && load->n_args == t->n_index && !memcmp(load->arg, t->index, sizeof(Dx) * (size_t)t->n_index))) return NULL;
  return err_new(ERR_UNSUPPORTED, "op %s: %s reads elements of itself other than the one it gives", t->op, t->text);
}

static Err *check_expr(Guard *g, Dx x) {
  const DxNode *n = &g->d->node[x];
  if (n->kind == DX_RED) {
    int axis = (int)n->ival;
    TRY(check_expr(g, n->arg[0]));
    enter(g, axis, n->arg[0]);
    return is_empty(g, axis) ? NULL : check_expr(g, n->arg[1]);
  }
  for (int i = 0; i < n->n_args; i++) TRY(check_expr(g, n->arg[i]));
  if (n->kind != DX_LOAD && n->kind != DX_WGT) return NULL;
  for (int i = 0; i < n->n_args; i++) TRY(check_index(g, (int)n->ival, i, n->arg[i]));
  return check_own(g, n);
}

Err *tp_data_check(Tp *p, const int64_t *most) {
  Err *e = NULL;
  p->dag->data_max = most;
  p->dag->n_data_max = p->n_bufs;
  for (int i = 0; i < p->n_stmts && !e; i++) e = tp_stmt_check(p, &p->stmt[i]);
  p->dag->data_max = NULL;
  p->dag->n_data_max = 0;
  return e;
}

Err *tp_stmt_check(const Tp *p, const TpStmt *t) {
  Guard g = {.p = p, .d = p->dag, .t = t};
  int64_t most = ITEMS_MAX;
  for (int i = 0; i < DX_MAX_AXES; i++) g.max[i] = -1;
  for (int i = 0; i < t->n_axes; i++) {
    TRY(check_expr(&g, t->extent[i]));
    enter(&g, i, t->extent[i]);
    if (is_empty(&g, i)) return NULL;
    int64_t n = p->dag->node[t->extent[i]].kind == DX_SYM ? ROWS_MAX : g.max[i] + 1;
    if (n < 1 || n > most) return err_new(ERR_LIMIT, "op %s: %s has more than %lld elements, or a range that is not bounded", t->op, t->text, (long long)ITEMS_MAX);
    most /= n;
  }
  for (int i = 0; i < t->n_index; i++) TRY(check_expr(&g, t->index[i]));
  for (int i = 0; i < t->n_index; i++) TRY(check_index(&g, t->buf, i, t->index[i]));
  return check_expr(&g, t->rhs);
}
