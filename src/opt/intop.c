/* Operations of the expression DAG on values at hand, and of them those on ints that no lane of a vector has as an instruction: division and
   shifts by amounts that differ. In: a node, its arguments' values (equal lanes). Out: its value. What the ints may be decides how. */
#include "opt/emit.h"

static IrRef lanes_of(Emit *e, IrType t, int64_t v) { return ir_const_i(&e->b, t, (int32_t)v); }

/* a / by of ints below 2^24, by at least 1: an int's quotient rounded to f32 never reaches the next int. by: the same as a number, 0 unknown. */
static IrRef small_quotient(Emit *e, IrRef a, IrRef b, int64_t by, int64_t most) {
  IrBuild *o = &e->b;
  IrRef x = ir_op1(o, IR_i2f, a);
  IrType t = ir_type_of(e->fn, x);
  if (by && most < 1 << 21) /* halfway between two quotients, the error of a reciprocal is too small to matter */
    return ir_op1(o, IR_f2i, ir_op2(o, IR_fmul, ir_op2(o, IR_fadd, x, ir_const_f(o, t, 0.5f)), ir_const_f(o, t, 1.0f / (float)by)));
  return ir_op1(o, IR_f2i, ir_op2(o, IR_fdiv, x, ir_op1(o, IR_i2f, b)));
}

/* Digit by digit, as many bits at a time as keep the rest and them below 2^24. a: 32 bits without a sign. */
static IrRef long_division(Emit *e, bool mod, IrRef a, IrRef b, int64_t by, int64_t most) {
  IrBuild *o = &e->b;
  IrType t = ir_type_of(e->fn, a);
  int bits = 0, at = 1;
  while (by >> bits) bits++;
  while (at < 32 && most >> at) at++;
  IrRef q = 0, rest = 0;
  while (at > 0) {
    int take = MIN(24 - bits, at);
    at -= take;
    IrRef digit = at ? ir_shift(o, IR_shr, a, at) : a;
    digit = ir_op2(o, IR_and, digit, lanes_of(e, t, ((int64_t)1 << take) - 1));
    if (rest) digit = ir_op2(o, IR_or, ir_shift(o, IR_shl, rest, take), digit);
    IrRef part = small_quotient(e, digit, b, by, ((int64_t)1 << 24) - 1);
    rest = ir_op2(o, IR_sub, digit, ir_op2(o, IR_mul, part, b));
    q = q ? ir_op2(o, IR_or, ir_shift(o, IR_shl, q, take), part) : part;
  }
  return mod ? rest : q;
}

/* by 2^23 to 2^30, so that the quotient is below 512: guessed from half of a, which has no sign, and set right by what is left. */
static IrRef great_divisor(Emit *e, bool mod, IrRef a, IrRef b, int64_t by) {
  IrBuild *o = &e->b;
  IrType t = ir_type_of(e->fn, a);
  IrRef zero = lanes_of(e, t, 0), one = lanes_of(e, t, 1), x = ir_op1(o, IR_i2f, ir_shift(o, IR_shr, a, 1));
  IrRef q = ir_op1(o, IR_f2i, ir_op2(o, IR_fmul, x, ir_const_f(o, ir_type_of(e->fn, x), 2.0f / (float)by)));
  IrRef rest = ir_op2(o, IR_sub, a, ir_op2(o, IR_mul, q, b));
  IrRef under = ir_cmp(o, IR_icmp, IR_P_lt, rest, zero), over = ir_cmp(o, IR_icmp, IR_P_ge, rest, b);
  if (mod) return ir_op3(o, IR_select, under, ir_op2(o, IR_add, rest, b), ir_op3(o, IR_select, over, ir_op2(o, IR_sub, rest, b), rest));
  return ir_op3(o, IR_select, under, ir_op2(o, IR_sub, q, one), ir_op3(o, IR_select, over, ir_op2(o, IR_add, q, one), q));
}

/* a / b or a % b; what may be below 0 counts as 32 bits without a sign, as where there is an instruction. */
static IrRef divide(Emit *e, const Dag *d, const DxNode *n, const int64_t *axis_max, IrRef a, IrRef b) {
  enum { EXACT = 1 << 24 };
  IrBuild *o = &e->b;
  IrType t = ir_type_of(e->fn, a);
  bool mod = n->op == DXO_MOD;
  int64_t by = 0;
  DxRange r = dx_range(d, n->arg[0], axis_max), rb = dx_range(d, n->arg[1], axis_max);
  bool known = dx_is_int(d, n->arg[1], &by) && by >= 1;
  int64_t most = r.lo < 0 ? UINT32_MAX : MIN(r.hi, UINT32_MAX);
  if (!known) by = 0;
  if (ir_type_lanes(e->fn, t) == 1) return ir_op2(o, mod ? IR_urem : IR_udiv, a, b);
  if (known && !(by & (by - 1))) {
    if (mod) return ir_op2(o, IR_and, a, lanes_of(e, t, by - 1));
    return by == 1 ? a : ir_shift(o, IR_shr, a, __builtin_ctzll((uint64_t)by));
  }
  if (most < EXACT && rb.lo >= 1 && rb.hi < EXACT) {
    IrRef q = small_quotient(e, a, b, by, most);
    return mod ? ir_op2(o, IR_sub, a, ir_op2(o, IR_mul, q, b)) : q;
  }
  if (known && by < EXACT / 2) return long_division(e, mod, a, b, by, most);
  if (known && by <= 1 << 30) return great_divisor(e, mod, a, b, by);
  emit_fail(e, err_new(ERR_UNSUPPORTED, "/ and %% of ints need a divisor that is a number, at most %d, or both known to be below %d", 1 << 30, EXACT));
  return a;
}

/* By amounts that differ, of which the lowest five bits count: one step for each bit that they may have. */
static IrRef shift(Emit *e, const Dag *d, const DxNode *n, const int64_t *axis_max, IrOp op, IrRef a, IrRef by) {
  IrBuild *o = &e->b;
  IrType t = ir_type_of(e->fn, by);
  DxRange r = dx_range(d, n->arg[1], axis_max);
  for (int bit = 1; bit <= 16 && (r.lo < 0 || bit <= r.hi); bit *= 2) {
    IrRef set = ir_cmp(o, IR_icmp, IR_P_ne, ir_op2(o, IR_and, by, lanes_of(e, t, bit)), lanes_of(e, t, 0));
    a = ir_op3(o, IR_select, set, ir_shift(o, op, a, bit), a);
  }
  return a;
}

IrRef emit_node_op(Emit *e, const Dag *d, Dx x, const int64_t *axis_max, IrRef *a) {
  const DxNode n = d->node[x];
  DxType type = (DxType)d->node[n.arg[n.op == DXO_COND ? 1 : 0]].type;
  bool logical = n.op == DXO_SHR && dx_range(d, n.arg[0], axis_max).lo >= 0;
  int64_t by;
  if (type == DT_INT && (n.op == DXO_DIV || n.op == DXO_MOD)) return divide(e, d, &n, axis_max, a[0], a[1]);
  if (n.op == DXO_SHL || n.op == DXO_SHR) {
    if (!dx_is_int(d, n.arg[1], &by)) return shift(e, d, &n, axis_max, n.op == DXO_SHL ? IR_shl : logical ? IR_shr : IR_sar, a[0], a[1]);
    a[1] = ir_const_i(&e->b, IR_T_i32, by); /* a number, whatever the lanes */
  }
  return emit_op(e, (DxOp)n.op, type, a, n.n_args, logical);
}
