/* One pure instruction on values, exactly as ops.def says: the interpreter's arithmetic, and therefore constant folding's.
   Every result goes through memory, so the compiler of this file cannot fuse two operations of the IR. Integers wrap: they are
   computed unsigned. Relies on two's complement and an arithmetic >> of negative numbers, as every compiler we build with gives. */
#include <math.h>
#include <string.h>
#include "ir/priv.h"

_Static_assert(-1 >> 1 == -1, "arithmetic right shift");

IrEval ir_eval_of(const IrFn *fn, const IrIns *x) {
  IrEval e = {.op = x->op, .pred = x->pred, .imm = x->imm, .n_cond = 1};
  bool by_result = ir_op_n_args[x->op] == 0 || x->op == IR_splat || x->op == IR_select;
  IrType t = by_result ? x->type : ir_type_of(fn, x->arg[0]);
  e.elt = (uint8_t)ir_type_elt(fn, t);
  e.n_lanes = (uint8_t)ir_type_lanes(fn, t);
  if (x->op == IR_select) e.n_cond = (uint8_t)ir_type_lanes(fn, ir_type_of(fn, x->arg[0]));
  return e;
}

void ir_val_set(IrVal *v, IrElt e, int n_lanes, int64_t imm) {
  if (e == IR_E_I64) { v->q = imm; return; }
  for (int l = 0; l < n_lanes; l++) v->u[l] = (uint32_t)(uint64_t)imm;
}

int64_t ir_val_imm(const IrVal *v, IrElt e) { return e == IR_E_I64 ? v->q : e == IR_E_F32 ? (int64_t)v->u[0] : (int64_t)v->i[0]; }

static int32_t f2i(float f) { return f >= -2147483648.0f && f < 2147483648.0f ? (int32_t)f : INT32_MIN; }

static void shuf(const IrVal *a, const IrVal *by, int n_lanes, IrVal *out) {
  uint8_t from[64], which[64], to[64] = {0};
  memcpy(from, a->u, (size_t)n_lanes * 4);
  memcpy(which, by->u, (size_t)n_lanes * 4);
  for (int i = 0; i < n_lanes * 4; i++) if (which[i] < 128) to[i] = from[(i & ~15) + (which[i] & 15)];
  memcpy(out->u, to, (size_t)n_lanes * 4);
}

static uint32_t dot4(uint32_t acc, uint32_t u, uint32_t s) {
  for (int k = 0; k < 32; k += 8) acc += (uint32_t)((int32_t)(u >> k & 255) * (int8_t)(s >> k & 255));
  return acc;
}

static float dot2(float acc, uint32_t a, uint32_t b) {
  volatile float odd = fmaf(f32_from_bits(a & 0xffff0000u), f32_from_bits(b & 0xffff0000u), acc);
  return fmaf(f32_from_bits(a << 16), f32_from_bits(b << 16), odd);
}

/* dst[l] = expression in l, for all lanes; the constant trip counts let the compiler vectorise. */
#define EACH(dst, ...)                                                            \
  do {                                                                            \
    if (n == 1) { const int l = 0; out->dst[l] = (__VA_ARGS__); }                 \
    else if (n == 16) for (int l = 0; l < 16; l++) out->dst[l] = (__VA_ARGS__);   \
    else for (int l = 0; l < n; l++) out->dst[l] = (__VA_ARGS__);                 \
  } while (0)
#define WIDE_OR_EACH(wide_dst, wide, dst, ...) do { if (e->elt == IR_E_I64) out->wide_dst = (wide); else EACH(dst, __VA_ARGS__); } while (0)
#define COMPARE(T)                                                                \
  switch (e->pred) {                                                              \
    case IR_P_eq: EACH(i, a->T[l] == b->T[l]); break;                             \
    case IR_P_ne: EACH(i, a->T[l] != b->T[l]); break;                             \
    case IR_P_lt: EACH(i, a->T[l] < b->T[l]); break;                              \
    case IR_P_le: EACH(i, a->T[l] <= b->T[l]); break;                             \
    case IR_P_gt: EACH(i, a->T[l] > b->T[l]); break;                              \
    default: EACH(i, a->T[l] >= b->T[l]); break;                                  \
  }

static int compare_i64(IrPred p, int64_t a, int64_t b) {
  switch (p) {
    case IR_P_eq: return a == b;
    case IR_P_ne: return a != b;
    case IR_P_lt: return a < b;
    case IR_P_le: return a <= b;
    case IR_P_gt: return a > b;
    default: return a >= b;
  }
}

static void integers(const IrEval *e, const IrVal *restrict a, const IrVal *restrict b, const IrVal *restrict c, IrVal *restrict out) {
  int n = e->n_lanes, by = (int)e->imm;
  switch (e->op) {
    case IR_iota: for (int l = 0; l < n; l++) out->i[l] = l; break;
    case IR_add: WIDE_OR_EACH(uq, a->uq + b->uq, u, a->u[l] + b->u[l]); break;
    case IR_sub: WIDE_OR_EACH(uq, a->uq - b->uq, u, a->u[l] - b->u[l]); break;
    case IR_mul: WIDE_OR_EACH(uq, a->uq * b->uq, u, a->u[l] * b->u[l]); break;
    case IR_udiv: WIDE_OR_EACH(uq, a->uq / b->uq, u, a->u[l] / b->u[l]); break;
    case IR_urem: WIDE_OR_EACH(uq, a->uq % b->uq, u, a->u[l] % b->u[l]); break;
    case IR_and: case IR_band: WIDE_OR_EACH(uq, a->uq & b->uq, u, a->u[l] & b->u[l]); break;
    case IR_or: case IR_bor: WIDE_OR_EACH(uq, a->uq | b->uq, u, a->u[l] | b->u[l]); break;
    case IR_xor: case IR_bxor: WIDE_OR_EACH(uq, a->uq ^ b->uq, u, a->u[l] ^ b->u[l]); break;
    case IR_shuf: shuf(a, b, n, out); break;
    case IR_shl: WIDE_OR_EACH(uq, a->uq << by, u, a->u[l] << by); break;
    case IR_shr: WIDE_OR_EACH(uq, a->uq >> by, u, a->u[l] >> by); break;
    case IR_sar: WIDE_OR_EACH(q, a->q >> by, i, a->i[l] >> by); break;
    case IR_smin: WIDE_OR_EACH(q, a->q < b->q ? a->q : b->q, i, a->i[l] < b->i[l] ? a->i[l] : b->i[l]); break;
    case IR_smax: WIDE_OR_EACH(q, a->q > b->q ? a->q : b->q, i, a->i[l] > b->i[l] ? a->i[l] : b->i[l]); break;
    case IR_icmp:
      if (e->elt == IR_E_I64) out->i[0] = compare_i64((IrPred)e->pred, a->q, b->q);
      else COMPARE(i)
      break;
    case IR_dot4: EACH(u, dot4(a->u[l], b->u[l], c->u[l])); break;
    default: CHECK(false, "%s is not evaluated here", ir_op_name[e->op]);
  }
}

static void floats(const IrEval *e, const IrVal *restrict a, const IrVal *restrict b, const IrVal *restrict c, IrVal *restrict out) {
  int n = e->n_lanes;
  switch (e->op) {
    case IR_fadd: EACH(f, a->f[l] + b->f[l]); break;
    case IR_fsub: EACH(f, a->f[l] - b->f[l]); break;
    case IR_fmul: EACH(f, a->f[l] * b->f[l]); break;
    case IR_fdiv: EACH(f, a->f[l] / b->f[l]); break;
    case IR_dot2: EACH(f, dot2(a->f[l], b->u[l], c->u[l])); break;
    case IR_fma: EACH(f, fmaf(a->f[l], b->f[l], c->f[l])); break;
    case IR_fsqrt: EACH(f, sqrtf(a->f[l])); break;
    case IR_fmin: EACH(u, a->f[l] < b->f[l] ? a->u[l] : b->u[l]); break;
    case IR_fmax: EACH(u, a->f[l] > b->f[l] ? a->u[l] : b->u[l]); break;
    case IR_fneg: EACH(u, a->u[l] ^ 0x80000000u); break;
    case IR_fabs: EACH(u, a->u[l] & 0x7fffffffu); break;
    case IR_frint: EACH(f, nearbyintf(a->f[l])); break;
    case IR_ffloor: EACH(f, floorf(a->f[l])); break;
    case IR_fcmp: COMPARE(f) break;
    default: CHECK(false, "%s is not evaluated here", ir_op_name[e->op]);
  }
}

static void reduce(const IrEval *e, const IrVal *a, IrVal *out) {
  IrVal t = *a;
  bool is_f = e->elt == IR_E_F32;
  for (int h = e->n_lanes / 2; h >= 1; h /= 2)
    for (int l = 0; l < h; l++) {
      if (e->op == IR_radd) {
        if (is_f) t.f[l] = t.f[l] + t.f[l + h];
        else t.u[l] = t.u[l] + t.u[l + h];
      } else {
        bool low = e->op == IR_rmax ? (is_f ? t.f[l] > t.f[l + h] : t.i[l] > t.i[l + h]) : (is_f ? t.f[l] < t.f[l + h] : t.i[l] < t.i[l + h]);
        if (!low) t.u[l] = t.u[l + h];
      }
    }
  out->u[0] = t.u[0];
}

static void moves(const IrEval *e, const IrVal *restrict a, const IrVal *restrict b, const IrVal *restrict c, IrVal *restrict out) {
  int n = e->n_lanes;
  switch (e->op) {
    case IR_const: ir_val_set(out, (IrElt)e->elt, n, e->imm); break;
    case IR_select:
      if (e->elt == IR_E_I64 || e->elt == IR_E_PTR) out->q = a->i[0] ? b->q : c->q;
      else if (e->n_cond == 1) { const IrVal *from = a->i[0] ? b : c; EACH(u, from->u[l]); }
      else EACH(u, a->i[l] ? b->u[l] : c->u[l]);
      break;
    case IR_sext: out->q = a->i[0]; break;
    case IR_zext: out->q = a->u[0]; break;
    case IR_trunc: out->u[0] = (uint32_t)a->uq; break;
    case IR_i2f: EACH(f, (float)a->i[l]); break;
    case IR_f2i: EACH(i, f2i(a->f[l])); break;
    case IR_bits: EACH(u, a->u[l]); break;
    case IR_splat: EACH(u, a->u[0]); break;
    case IR_pick: EACH(u, b->u[a->u[l] % (unsigned)n]); break;
    case IR_extract: out->u[0] = a->u[e->imm]; break;
    case IR_insert: EACH(u, a->u[l]); out->u[e->imm] = b->u[0]; break;
    case IR_radd: case IR_rmax: case IR_rmin: reduce(e, a, out); break;
    case IR_padd: out->uq = a->uq + b->uq; break;
    default: CHECK(false, "%s is not evaluated here", ir_op_name[e->op]);
  }
}

void ir_eval(const IrEval *e, const IrVal *a, const IrVal *b, const IrVal *c, IrVal *out) {
  switch (ir_op_rule[e->op]) {
    case RULE_S: case RULE_I: case RULE_B: integers(e, a, b, c, out); return;
    case RULE_F: floats(e, a, b, c, out); return;
    case RULE_Q:
      if (e->elt == IR_E_F32) floats(e, a, b, c, out);
      else integers(e, a, b, c, out);
      return;
    case RULE_V:
      if (e->op == IR_dot2) { floats(e, a, b, c, out); return; }
      if (e->op == IR_dot4 || e->op == IR_iota) { integers(e, a, b, c, out); return; }
      /* fall through */
    default: moves(e, a, b, c, out);
  }
}
