/* A scale that is a float times a small integer (a super-block's scale and the 4 to 8 bits of each of its groups): sums of integers are multiplied with
   that integer, and the float is applied once for all the groups that share it. Where codes times the integer still fit a byte, products of many rows
   take such bytes out of their panel.
   In: a form with its scale; sums that a schedule wants over such bytes. Out: FormatForm.step and what goes with it, or step 0; vectors of sums. */
#include <stdlib.h>
#include "opt/emit.h"
#include "opt/fmteval.h"

/* Groups so short that scaling their sums is a large part of the work: a step spares them a product each where neighbours share an activation's group. */
enum { SHORT_GROUP = 32 };

/* The leaf of the fewest elements that is an integer factor of x; -1: there is none. */
static int factor_of(const FormatForm *f, Dx x) {
  const DxNode *n = &f->dag->node[x];
  if (n->kind == DX_OP && n->op == DXO_TOF && f->dag->node[n->arg[0]].kind == DX_LEAF) return (int)f->dag->node[n->arg[0]].ival;
  if (n->kind != DX_OP || n->op != DXO_MUL) return -1;
  int a = factor_of(f, n->arg[0]), b = factor_of(f, n->arg[1]);
  return a < 0 || (b >= 0 && f->leaf[b].gran < f->leaf[a].gran) ? b : a;
}

/* x without that factor. */
static Dx without(Dag *d, Dx x, int slot) {
  const DxNode n = d->node[x];
  if (n.kind != DX_OP || n.op != DXO_MUL) return format_has_leaf(d, x, slot) ? dx_flt(d, 1) : x;
  Dx a = without(d, n.arg[0], slot), b = without(d, n.arg[1], slot);
  for (int i = 0; i < 2; i++) {
    const DxNode *one = &d->node[i ? b : a];
    if (one->kind == DX_FLT && one->fval == 1.0f) return i ? a : b;
  }
  return dx_op2(d, DXO_MUL, a, b);
}

/* (code * step + bias * (times - step)) / by is a byte, and exact, for all codes and steps: the largest; else -1. A code itself is halved first. */
static int fits(const ValueSet *code, const ValueSet *step, int64_t bias, int64_t times, int by) {
  int64_t most = 0;
  for (int i = 0; i < code->n; i++)
    for (int k = 0; k < step->n; k++) {
      int64_t add = bias * (times - step->v[k]), v = code->v[i] * step->v[k] + add;
      if (code->v[i] % by || add % by || v < 0 || v / by > 255) return -1;
      most = MAX(most, v / by);
    }
  return (int)most;
}

static int64_t largest(const PackLeaf *l) { return MAX(llabs(l->lo), llabs(l->hi)); }

/* Times that cost least where sums of activations are multiplied with it: nothing, a shift, a shift and a subtraction, a product. */
static int cost_of(int64_t times) { return times < 2 ? 0 : !(times & (times - 1)) ? 1 : !(times & (times + 1)) ? 2 : 3; }

void format_find_step(FormatForm *f) {
  ValueSet code, step;
  int slot = f->integer ? factor_of(f, f->scale) : -1, best = 4;
  if (slot < 0 || slot == f->code || !f->leaf[slot].is_int) return;
  f->unit = without(f->dag, f->scale, slot);
  f->span = (int)format_shared_by(f, f->unit);
  if (format_has_leaf(f->dag, f->unit, slot) || f->span <= f->group || f->span % f->group) return;
  const Dx leaf = dx_node(f->dag, (DxNode){.kind = DX_LEAF, .type = DT_INT, .ival = slot});
  if (f->group < SHORT_GROUP && largest(&f->leaf[f->code]) * largest(&f->leaf[slot]) <= INT32_MAX / 127 / f->span) f->step = leaf;
  if (!format_values(f, f->code, &code) || !format_values(f, slot, &step)) return;
  for (int i = 0; i < code.n; i++) code.v[i] += f->bias;
  for (int by = 1; by <= 2; by++)
    for (int64_t times = 0; times * f->bias <= 255 * by && times <= 255; times++) {
      int most = fits(&code, &step, f->bias, times, by);
      if (most < 0 || cost_of(times) + by > best) continue;
      if (f->by && cost_of(times) + by == best) continue;
      best = cost_of(times) + by;
      f->times = (int)times;
      f->by = by;
      f->most = most;
      f->step = leaf;
    }
}

/* ---- sums ---------------------------------------------------------------------------------------------------------------- */
/* Of isum(k: a * w.code): a; 0: it is no such sum. */
static Dx summed_with_code(const Dag *d, Dx x, int buf) {
  const DxNode *n = &d->node[x];
  Dx w, a;
  if (n->kind != DX_RED || n->op != RED_ISUM || !dx_is_product(d, n->arg[1], DX_WGT, &w, &a)) return 0;
  return d->node[w].op == WA_CODE && d->node[w].ival == buf ? a : 0;
}

typedef struct Axes { Dag *d; const Dx *to; int n; int binder, other; } Axes;
static Dx put_axes(void *ctx, Dx x) {
  const Axes *a = ctx;
  const DxNode *n = &a->d->node[x];
  if (n->kind != DX_AXIS) return 0;
  return n->ival < a->n ? a->to[n->ival] : n->ival == a->binder ? dx_axis(a->d, a->other) : 0;
}

/* The one statement that gives the buffer which x loads, its indices being its axes; NULL: there is no such statement. */
static const TpStmt *given(const Tp *p, Dx x) {
  const DxNode *n = &p->dag->node[x];
  const TpStmt *by = NULL;
  for (int i = 0; n->kind == DX_LOAD && i < p->n_stmts; i++) {
    if (p->stmt[i].buf != n->ival) continue;
    if (by) return NULL;
    by = &p->stmt[i];
  }
  if (!by || by->n_index != n->n_args || by->block_axis) return NULL;
  for (int i = 0; i < by->n_index; i++) {
    const DxNode *axis = &p->dag->node[by->index[i]];
    if (axis->kind != DX_AXIS || axis->ival != i) return NULL;
  }
  return by;
}

/* add is -bias * isum(a) over the very elements that inner = isum(a * code) sums. */
static bool is_bias_of(Tp *p, Dx add, Dx inner, int buf) {
  Dag *d = p->dag;
  const TpStmt *z = given(p, add), *u;
  int64_t times = 0;
  if (!z || d->node[z->rhs].kind != DX_OP || d->node[z->rhs].op != DXO_MUL) return false;
  const DxNode product = d->node[z->rhs], in = d->node[inner];
  int c = dx_is_int(d, product.arg[0], &times) ? 0 : 1;
  if (!dx_is_int(d, product.arg[c], &times) || times != -p->buf[buf].fmt->bias) return false;
  u = given(p, product.arg[1 - c]);
  if (!u || d->node[u->rhs].kind != DX_RED || d->node[u->rhs].op != RED_ISUM || d->node[u->rhs].arg[0] != in.arg[0]) return false;
  const DxNode sum = d->node[add];
  Axes to_z = {d, sum.arg, sum.n_args, -1, 0};
  Dx load = dx_rewrite(d, product.arg[1 - c], put_axes, &to_z);
  const DxNode at = d->node[load];
  Axes to_inner = {d, at.arg, at.n_args, (int)d->node[u->rhs].ival, (int)in.ival};
  return dx_rewrite(d, d->node[u->rhs].arg[1], put_axes, &to_inner) == summed_with_code(d, inner, buf);
}

bool lower_sum_of_steps(Tp *p, Dx x, StepSum *out) {
  const Dag *d = p->dag;
  Dx step, sum;
  if (d->node[x].type != DT_INT || !dx_is_product(d, x, DX_WGT, &step, &sum)) return false;
  const DxNode w = d->node[step], add = d->node[sum];
  StepSum s = {.buf = (int)w.ival, .inner = sum};
  if (w.op != WA_STEP || p->buf[s.buf].raw || !p->buf[s.buf].fmt->by) return false;
  for (int k = 0; k < 2 && add.kind == DX_OP && add.op == DXO_ADD; k++)
    if (summed_with_code(d, add.arg[k], s.buf)) s.inner = add.arg[k], s.add = add.arg[1 - k];
  if (!summed_with_code(d, s.inner, s.buf) || (s.add == 0) != (p->buf[s.buf].fmt->bias == 0) || (s.add && !is_bias_of(p, s.add, s.inner, s.buf))) return false;
  *out = s;
  return true;
}

/* A panel keeps v = (code * step + bias * (times - step)) / by, so step * (isum(a * code) - bias * isum(a)) = by * isum(a * v) - times * bias * isum(a);
   what the text adds is -bias * isum(a). onto: sums that this one goes on, or NULL. */
bool emit_steps(Emit *e, Dx x, const Vals *onto, Vals *out) {
  StepSum s;
  if (!e->s.steps || e->s.naive || !lower_sum_of_steps(e->p, x, &s) || !e->panel[s.buf].steps) return false;
  const FormatForm *f = e->p->buf[s.buf].fmt;
  Vals add = onto ? *onto : (Vals){0}, sum;
  if (s.add) { /* once a row where lanes share it */
    Vals text = emit(e, s.add), times = {text.n, text.vec, ARENA_ARRAY(e->a, IrRef, text.n)};
    for (int k = 0; k < text.n; k++) times.v[k] = ir_op2(&e->b, IR_mul, text.v[k], ir_const_i(&e->b, ir_type_of(e->fn, text.v[k]), f->times));
    add = onto ? (Vals){e->n_rows, true, ARENA_ARRAY(e->a, IrRef, e->n_rows)} : times;
    for (int k = 0; onto && k < add.n; k++) add.v[k] = ir_op2(&e->b, IR_add, emit_pick(e, *onto, k, true), emit_pick(e, times, k, true));
  }
  if (!emit_dot4(e, s.inner, add.n && f->by == 1 ? &add : NULL, &sum)) {
    emit_fail(e, err_new(ERR_UNSUPPORTED, "a sum of codes times steps does not lie in fours"));
    return false;
  }
  for (int k = 0; f->by == 2 && k < sum.n; k++) {
    sum.v[k] = ir_op2(&e->b, IR_add, sum.v[k], sum.v[k]);
    if (add.n) sum.v[k] = ir_op2(&e->b, IR_add, sum.v[k], emit_pick(e, add, k, true));
  }
  *out = sum;
  return true;
}

/* Four codes a lane at once: no byte of the result runs over, whatever the bytes on the way do. */
IrRef emit_stepped(Emit *e, int buf, Lin k, IrRef codes) {
  const FormatForm *f = e->p->buf[buf].fmt;
  IrType t = ir_vec_type(IR_E_I32, e->lanes);
  IrRef step = emit_form(e, f, f->step, buf, k);
  if (f->by == 2) codes = ir_shift(&e->b, IR_shr, codes, 1);
  IrRef v = ir_op2(&e->b, IR_mul, codes, step);
  if (!f->bias) return v;
  IrRef add = ir_op2(&e->b, IR_mul, ir_op2(&e->b, IR_sub, ir_const_i(&e->b, t, f->times), step), ir_const_i(&e->b, t, f->bias));
  if (f->by == 2) add = ir_shift(&e->b, IR_sar, add, 1);
  return ir_op2(&e->b, IR_add, v, ir_op2(&e->b, IR_mul, add, ir_const_i(&e->b, t, 0x01010101)));
}
