/* Local rewriting of one instruction, for the builder and ir_pass_fold alike: constants are computed by eval.c, and an instruction
   that equals an existing value gives way to it. Nothing here may change a bit of any result: float identities are limited to sign and
   bit moves, and a float operation on constants is folded only when its result is not a NaN (NaN payloads are the machine's own). */
#include "ir/priv.h"

static bool is_nan_bits(int64_t imm) { return ((uint32_t)imm & 0x7fffffff) > 0x7f800000; }

static IrRef to_const(IrIns *x, int64_t imm) {
  *x = (IrIns){.op = IR_const, .type = x->type, .block = x->block, .imm = imm};
  return 0;
}

/* Every argument constant: true when x became a constant. Vector constants have all lanes alike, so one lane is computed. */
static bool fold_consts(const IrFn *fn, IrIns *x) {
  int n = ir_op_n_args[x->op];
  char rule = ir_op_rule[x->op];
  if (n == 0 || rule == RULE_L || rule == RULE_T || rule == RULE_G || rule == RULE_R) return false;
  if (rule == RULE_V && x->op != IR_extract && x->op != IR_dot4) return false;
  if (rule == RULE_I && (x->imm < 0 || x->imm >= 64)) return false; /* the verifier's to refuse */
  if (x->type == IR_T_none) return false;
  IrVal v[3], out;
  for (int k = 0; k < n; k++) {
    int64_t imm;
    if (!x->arg[k] || !ir_is_const(fn, x->arg[k], &imm)) return false;
    if ((x->op == IR_udiv || x->op == IR_urem) && k == 1 && imm == 0) return false;
    ir_val_set(&v[k], ir_type_elt(fn, ir_type_of(fn, x->arg[k])), 1, imm);
  }
  IrEval e = ir_eval_of(fn, x);
  e.n_lanes = e.n_cond = 1;
  if (x->op == IR_extract) e.imm = 0;
  ir_eval(&e, &v[0], &v[1], &v[2], &out);
  IrElt r = ir_type_elt(fn, x->type);
  if (r == IR_E_F32 && rule == RULE_F && is_nan_bits(out.u[0])) return false;
  to_const(x, ir_val_imm(&out, r));
  return true;
}

/* x op constant, the constant being argument 1. */
static IrRef const_identity(const IrFn *fn, IrIns *x, int64_t c) {
  IrRef a = x->arg[0];
  int64_t ones = ir_type_elt(fn, x->type) == IR_E_I1 ? 1 : -1;
  switch (x->op) {
    case IR_add: case IR_sub: case IR_xor: case IR_bxor: return c == 0 ? a : 0;
    case IR_or: case IR_bor: return c == 0 ? a : c == ones ? x->arg[1] : 0;
    case IR_and: case IR_band: return c == 0 ? x->arg[1] : c == ones ? a : 0;
    case IR_mul: return c == 1 ? a : c == 0 ? x->arg[1] : 0;
    case IR_udiv: return c == 1 ? a : 0;
    case IR_urem: return c == 1 ? to_const(x, 0) : 0;
    case IR_padd: return c == 0 ? a : 0;
    default: return 0;
  }
}

static IrRef same_args(const IrFn *fn, IrIns *x) {
  (void)fn;
  switch (x->op) {
    case IR_sub: case IR_xor: case IR_bxor: return to_const(x, 0);
    case IR_and: case IR_or: case IR_band: case IR_bor: case IR_smin: case IR_smax: return x->arg[0];
    case IR_icmp: return to_const(x, x->pred == IR_P_eq || x->pred == IR_P_le || x->pred == IR_P_ge);
    default: return 0;
  }
}

static IrRef unary(const IrFn *fn, IrIns *x) {
  const IrIns *a = &fn->ins[x->arg[0]];
  switch (x->op) {
    case IR_trunc: return a->op == IR_sext || a->op == IR_zext ? a->arg[0] : 0;
    case IR_bits: return a->op == IR_bits ? a->arg[0] : 0;
    case IR_fneg: return a->op == IR_fneg ? a->arg[0] : 0;
    case IR_fabs:
      if (a->op == IR_fabs) return x->arg[0];
      if (a->op == IR_fneg) x->arg[0] = a->arg[0];
      return 0;
    case IR_extract:
      if (a->op == IR_splat) return a->arg[0];
      if (a->op == IR_insert && a->imm == x->imm) return a->arg[1];
      if (a->op == IR_iota) return to_const(x, x->imm);
      return 0;
    case IR_shl: case IR_shr: case IR_sar: return x->imm == 0 ? x->arg[0] : 0;
    default: return 0;
  }
}

static IrRef select_identity(const IrFn *fn, IrIns *x) {
  int64_t c;
  if (x->arg[1] == x->arg[2]) return x->arg[1];
  if (ir_is_const(fn, x->arg[0], &c)) return c ? x->arg[1] : x->arg[2];
  return 0;
}

/* Displacements stay within 31 bits, so that every target can encode them. */
static bool add_disp(IrIns *x, int64_t c, int64_t scale) {
  int64_t lim = INT32_MAX;
  if (c < -lim || c > lim) return false;
  int64_t d = x->imm + c * scale;
  if (x->imm < -lim || x->imm > lim || d < -lim || d > lim) return false;
  x->imm = d;
  return true;
}

/* ptr + index * scale + disp: constants move to disp; deep also looks through additions and shifts, all exact modulo 2^64. */
static void address(const IrFn *fn, IrIns *x, bool deep) {
  int64_t c;
  bool has_index = x->op != IR_gather && x->arg[1];
  if (has_index && ir_is_const(fn, x->arg[1], &c) && add_disp(x, c, x->scale)) x->arg[1] = 0, has_index = false;
  while (deep && has_index) {
    const IrIns *i = &fn->ins[x->arg[1]];
    if (i->op == IR_add && ir_is_const(fn, i->arg[1], &c) && add_disp(x, c, x->scale)) x->arg[1] = i->arg[0];
    else if (i->op == IR_sub && ir_is_const(fn, i->arg[1], &c) && c != INT64_MIN && add_disp(x, -c, x->scale)) x->arg[1] = i->arg[0];
    else if (i->op == IR_shl && i->imm <= 3 && x->scale << i->imm <= 8) x->scale = (uint8_t)(x->scale << i->imm), x->arg[1] = i->arg[0];
    else break;
  }
  for (const IrIns *p; deep && (p = &fn->ins[x->arg[0]])->op == IR_padd && ir_is_const(fn, p->arg[1], &c) && add_disp(x, c, 1);) x->arg[0] = p->arg[0];
  if (!has_index && x->op != IR_gather) x->scale = 1;
}

/* (x + c1) + c2, (p + c1) + c2: one addition of the wrapped sum. */
static void add_chain(IrBuild *b, IrIns *x) {
  IrFn *fn = b->fn;
  IrIns in = fn->ins[x->arg[0]];
  int64_t c1, c2;
  if (x->op != in.op || !ir_is_const(fn, x->arg[1], &c2) || !ir_is_const(fn, in.arg[1], &c1)) return;
  x->arg[0] = in.arg[0];
  x->arg[1] = ir_const_i(b, ir_type_of(fn, x->arg[1]), (int64_t)((uint64_t)c1 + (uint64_t)c2));
}

/* Multiplication and unsigned division by a power of two: shifts and masks, exact for integers. */
static void power_of_two(IrBuild *b, IrIns *x, int64_t c) {
  IrType t = ir_type_of(b->fn, x->arg[1]);
  uint64_t u = ir_type_elt(b->fn, t) == IR_E_I64 ? (uint64_t)c : (uint64_t)(uint32_t)c;
  if (u < 2 || (u & (u - 1)) != 0) return;
  if (x->op == IR_urem) {
    x->op = IR_and;
    x->arg[1] = ir_const_i(b, t, (int64_t)(u - 1));
  } else if (x->op == IR_mul || x->op == IR_udiv) {
    x->op = x->op == IR_mul ? IR_shl : IR_shr;
    x->arg[1] = 0;
    x->imm = __builtin_ctzll(u);
  }
}

static void swap_const(const IrFn *fn, IrIns *x) {
  int64_t c;
  if (!ir_flag((IrOp)x->op, 'c') || !ir_is_const(fn, x->arg[0], &c) || ir_is_const(fn, x->arg[1], NULL)) return;
  if (ir_op_rule[x->op] == RULE_F && is_nan_bits(c)) return; /* of two NaNs the machine may keep the first */
  IrRef t = x->arg[0];
  x->arg[0] = x->arg[1], x->arg[1] = t;
}

IrRef ir_simplify(IrBuild *b, IrIns *x, bool deep) {
  const IrFn *fn = b->fn;
  if (ir_is_addr((IrOp)x->op) || x->op == IR_gather) { address(fn, x, deep); return 0; }
  if (!ir_flag((IrOp)x->op, 'p') || ir_op_n_args[x->op] == 0) return 0;
  swap_const(fn, x);
  if (fold_consts(fn, x)) return 0;
  if (x->op == IR_select) return select_identity(fn, x);
  if (deep) ir_simplify_bits(b, x);
  if (ir_op_n_args[x->op] == 1) return unary(fn, x);
  if (ir_op_n_args[x->op] != 2) return 0;
  int64_t c;
  if (x->arg[0] == x->arg[1]) return same_args(fn, x);
  if (!ir_is_const(fn, x->arg[1], &c)) return 0;
  if (deep && (x->op == IR_add || x->op == IR_padd)) add_chain(b, x);
  if (deep && (x->op == IR_mul || x->op == IR_udiv || x->op == IR_urem)) power_of_two(b, x, c);
  return ir_is_const(fn, x->arg[1], &c) ? const_identity(fn, x, c) : 0;
}
