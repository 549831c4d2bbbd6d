/* Instruction selection, operation by operation. What is one instruction is a row of patterns.def; here is the rest. */
#include <string.h>
#include "gen/x86/sel.h"

typedef struct VecPat { uint16_t fam; uint8_t n_args; int8_t imm; bool comm, ok; } VecPat;
enum { COL_I32, COL_F32, COL_SCALAR, N_COLS };
static const VecPat vec_pats[IR_N_OPS][N_COLS] = {
#define VEC(op, elt, fam, n, imm, comm) [IR_##op][COL_##elt] = {F_##fam, n, imm, comm, true},
#define SCALAR(op, fam, n, imm, comm) [IR_##op][COL_SCALAR] = {F_##fam, n, imm, comm, true},
#define GPR(op, ins)
#include "gen/x86/patterns.def"
#undef VEC
#undef SCALAR
#undef GPR
};
typedef struct GprPat { uint16_t op32, op64, imm32, imm64; } GprPat;
static const GprPat gpr_pats[IR_N_OPS] = {
#define VEC(...)
#define SCALAR(...)
#define GPR(op, ins) [IR_##op] = {X86_##ins##32, X86_##ins##64, X86_##ins##32_i, X86_##ins##64_i},
#include "gen/x86/patterns.def"
#undef VEC
#undef SCALAR
#undef GPR
};
static const uint16_t cmov32[16] = {
#define C(c, n) [n] = X86_cmov##c##32,
#define CODES C(o, 0) C(no, 1) C(b, 2) C(ae, 3) C(e, 4) C(ne, 5) C(be, 6) C(a, 7) C(s, 8) C(ns, 9) C(p, 10) C(np, 11) C(l, 12) C(ge, 13) C(le, 14) C(g, 15)
    CODES
#undef C
};
static const uint16_t cmov64[16] = {
#define C(c, n) [n] = X86_cmov##c##64,
    CODES
#undef C
};
static const uint16_t setcc[16] = {
#define C(c, n) [n] = X86_set##c,
    CODES
#undef C
};

#define OPDS(...) ((Opd[]){__VA_ARGS__}), (int)(sizeof((Opd[]){__VA_ARGS__}) / sizeof(Opd))
static Opd R(int reg) { return sel_reg(reg); }
static int type_lanes(const Sel *s, const IrIns *in) { return ir_type_lanes(s->fn, in->type); }
static bool is_wide(const Sel *s, IrRef v) {
  IrElt e = ir_type_elt(s->fn, s->fn->ins[v].type);
  return e == IR_E_I64 || e == IR_E_PTR;
}
static bool is_vec(const Sel *s, IrRef v) { return sel_class(s, s->fn->ins[v].type) == M_V; }
static bool imm32(const Sel *s, IrRef v, int64_t *c) { return ir_is_const(s->fn, v, c) && *c >= INT32_MIN && *c <= INT32_MAX; }
static int vop(Sel *s, Fam f, int lanes) { return sel_fam(f, sel_width(s, lanes)); }
/* A new vector register of `lanes` lanes = family(sources). */
static int vec(Sel *s, Fam f, int lanes, const Opd *src, int n, int64_t imm) {
  return sel_op(s, vop(s, f, lanes), M_V, MAX(lanes, 4) * 4, src, n, imm);
}
static int vec1(Sel *s, Fam f, int lanes, int a) { return vec(s, f, lanes, OPDS(R(a)), 0); }
static int vec2(Sel *s, Fam f, int lanes, int a, int b) { return vec(s, f, lanes, OPDS(R(a), R(b)), 0); }
static int veci(Sel *s, Fam f, int lanes, int a, int64_t imm) { return vec(s, f, lanes, OPDS(R(a)), imm); }
static void copy(Sel *s, int d, int a) {
  MIns in = sel_blank;
  in.op = M_COPY, in.flags = M_DEF, in.n_r = 2, in.r[0] = d, in.r[1] = a;
  sel_put(s, in);
}

/* ---- patterns ---- */
static void sel_vec_pattern(Sel *s, IrRef v, const VecPat *p) {
  const IrIns *in = &s->fn->ins[v];
  int lanes = type_lanes(s, in), op = vop(s, (Fam)p->fam, lanes);
  bool tied = x86_row(op)->flags & X86F_TIED;
  IrRef a = in->arg[0], b = in->arg[1];
  if (p->n_args == 1) {
    /* A scalar form copies the rest of the register from its first source. */
    if (x86_n_regs(op) == 3 || tied) {
      int x = sel_use(s, a);
      sel_emit(s, op, sel_dst(s, v), OPDS(R(x), R(x)), MAX(p->imm, 0));
    } else {
      Opd x = sel_last(s, a, op);
      sel_emit(s, op, sel_dst(s, v), &x, 1, MAX(p->imm, 0));
    }
    return;
  }
  if (p->comm && !sel_folds(s, b, op) && (sel_folds(s, a, op) || ir_is_const(s->fn, a, NULL) || (tied && !sel_dies(s, a) && sel_dies(s, b)))) {
    IrRef t = a;
    a = b, b = t;
  }
  int d = sel_dst(s, v);
  Opd y = sel_last(s, b, op);
  int x = tied ? sel_use_fresh(s, a) : sel_use(s, a);
  sel_emit(s, op, d, OPDS(R(x), y), 0);
}

/* Used here alone, so that it may become part of what uses it. */
static bool only_here(const Sel *s, const IrIns *in, IrRef x) { return s->n_uses[x] == 1 && s->fn->ins[x].block == in->block && s->reg[x] < 0; }

/* a | (b & c) of lanes is one instruction where there are mask registers; false: it is not of that shape. */
static bool sel_or_and(Sel *s, IrRef v) {
  enum { A_OR_B_AND_C = 0xf8 };
  const IrIns *in = &s->fn->ins[v];
  if (!s->t->kmask || in->op != IR_or) return false;
  for (int i = 1; i >= 0; i--) {
    IrRef x = sel_root(s, in->arg[i]);
    const IrIns *both = &s->fn->ins[x];
    if (both->op != IR_and || !only_here(s, in, x)) continue;
    int op = vop(s, F_pternlogd, type_lanes(s, in)), d = sel_dst(s, v);
    bool turn = sel_folds(s, both->arg[0], op) && !sel_folds(s, both->arg[1], op);
    Opd c = sel_last(s, both->arg[!turn], op);
    int b = sel_use(s, both->arg[turn]), a = sel_use_fresh(s, in->arg[1 - i]);
    sel_emit(s, op, d, OPDS(R(a), R(b), c), A_OR_B_AND_C);
    return true;
  }
  return false;
}

/* The nearest int, ties to even, is how lanes are converted anyway; false: it is not of that shape. */
static bool sel_nearest(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  IrRef x = sel_root(s, in->arg[0]);
  if (in->op != IR_f2i || s->fn->ins[x].op != IR_frint || !only_here(s, in, x)) return false;
  int op = vop(s, F_cvtps2dq, type_lanes(s, in)), d = sel_dst(s, v);
  Opd y = sel_last(s, s->fn->ins[x].arg[0], op);
  sel_emit(s, op, d, OPDS(y), 0);
  return true;
}

static void sel_gpr_pattern(Sel *s, IrRef v, const GprPat *p) {
  const IrIns *in = &s->fn->ins[v];
  bool wide = is_wide(s, v);
  IrRef a = in->arg[0], b = in->arg[1];
  int64_t c;
  int op = wide ? p->op64 : p->op32;
  bool comm = strchr(ir_op_flags[in->op], 'c') != NULL;
  if (comm && (imm32(s, a, &c) || (!imm32(s, b, &c) && !sel_folds(s, b, op) && (sel_folds(s, a, op) || (!sel_dies(s, a) && sel_dies(s, b)))))) {
    IrRef t = a;
    a = b, b = t;
  }
  int d = sel_dst(s, v);
  if (imm32(s, b, &c)) {
    sel_emit(s, wide ? p->imm64 : p->imm32, d, OPDS(R(sel_use(s, a))), c);
    return;
  }
  Opd y = sel_last(s, b, op);
  sel_emit(s, op, d, OPDS(R(sel_use(s, a)), y), 0);
}

/* ---- general registers ---- */
static void lea(Sel *s, int d, bool wide, Opd m) { sel_emit(s, wide ? X86_lea64 : X86_lea32, d, &m, 1, 0); }

static void sel_add(Sel *s, IrRef v) {
  static const GprPat pat = {X86_add32, X86_add64, X86_add32_i, X86_add64_i};
  const IrIns *in = &s->fn->ins[v];
  IrRef a = in->arg[0], b = in->arg[1];
  bool wide = is_wide(s, v), imm_a, imm_b;
  int64_t c = 0, ca;
  imm_a = imm32(s, a, &ca), imm_b = imm32(s, b, &c);
  if (imm_a && !imm_b) { IrRef t = a; a = b, b = t; c = ca; imm_b = true; }
  int op = wide ? pat.op64 : pat.op32;
  if (sel_dies(s, a) || (!imm_b && sel_dies(s, b)) || (imm_a && imm_b) || sel_folds(s, a, op) || sel_folds(s, b, op)) {
    sel_gpr_pattern(s, v, &pat);
    return;
  }
  int d = sel_dst(s, v);
  Opd m = {.reg = M_NONE, .mem = true, .base = sel_use(s, a), .index = M_NONE, .scale = 1, .disp = (int)c};
  if (!imm_b) m.index = sel_use(s, b), m.disp = 0;
  lea(s, d, wide, m);
}

static void sel_mul(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  IrRef a = in->arg[0], b = in->arg[1];
  bool wide = is_wide(s, v);
  int64_t c;
  int op = wide ? X86_imul64 : X86_imul32;
  if (imm32(s, a, &c) || (!imm32(s, b, &c) && !sel_dies(s, a) && sel_dies(s, b))) { IrRef t = a; a = b, b = t; }
  int d = sel_dst(s, v);
  if (imm32(s, b, &c)) {
    if (c > 0 && !(c & (c - 1))) {
      sel_emit(s, wide ? X86_shl64_i : X86_shl32_i, d, OPDS(R(sel_use(s, a))), __builtin_ctzll((uint64_t)c));
      return;
    }
    sel_emit(s, wide ? X86_imul64_i : X86_imul32_i, d, OPDS(R(sel_use(s, a))), c);
    return;
  }
  Opd y = sel_last(s, b, op);
  sel_emit(s, op, d, OPDS(R(sel_use(s, a)), y), 0);
}

static void sel_shift(Sel *s, IrRef v) {
  static const uint16_t ops[3][2] = {{X86_shl32_i, X86_shl64_i}, {X86_shr32_i, X86_shr64_i}, {X86_sar32_i, X86_sar64_i}};
  static const Fam fam[3] = {F_pslld_i, F_psrld_i, F_psrad_i};
  const IrIns *in = &s->fn->ins[v];
  int k = in->op == IR_shl ? 0 : in->op == IR_shr ? 1 : 2, d = sel_dst(s, v);
  int op = is_vec(s, v) ? vop(s, fam[k], type_lanes(s, in)) : ops[k][is_wide(s, v)];
  sel_emit(s, op, d, OPDS(R(sel_use(s, in->arg[0]))), in->imm);
}

static void sel_div(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  bool wide = is_wide(s, v);
  int64_t c;
  int d = sel_dst(s, v);
  bool power = ir_is_const(s->fn, in->arg[1], &c) && c > 0 && !(c & (c - 1));
  if (power && in->op == IR_udiv) {
    sel_emit(s, wide ? X86_shr64_i : X86_shr32_i, d, OPDS(R(sel_use(s, in->arg[0]))), __builtin_ctzll((uint64_t)c));
    return;
  }
  if (power && c - 1 <= INT32_MAX) {
    sel_emit(s, wide ? X86_and64_i : X86_and32_i, d, OPDS(R(sel_use(s, in->arg[0]))), c - 1);
    return;
  }
  MIns q = sel_blank;
  q.op = in->op == IR_udiv ? M_UDIV : M_UREM;
  q.flags = M_DEF | (wide ? M_WIDE : 0);
  q.n_r = 3;
  q.fixed = 1 << RAX | 1 << RDX;
  q.r[0] = d, q.r[1] = sel_use(s, in->arg[0]), q.r[2] = sel_use(s, in->arg[1]);
  sel_put(s, q);
}

/* ---- conditions ---- */
static const uint8_t pred_cc[IR_N_PRED] = {[IR_P_eq] = CC_E, [IR_P_ne] = CC_NE, [IR_P_lt] = CC_L, [IR_P_le] = CC_LE, [IR_P_gt] = CC_G, [IR_P_ge] = CC_GE};
static const IrPred pred_swap[IR_N_PRED] = {IR_P_none, IR_P_eq, IR_P_ne, IR_P_gt, IR_P_ge, IR_P_lt, IR_P_le};

static int flags_icmp(Sel *s, const IrIns *in) {
  IrRef a = in->arg[0], b = in->arg[1];
  IrPred p = in->pred;
  int64_t c;
  if (imm32(s, a, &c) && !imm32(s, b, &c)) { IrRef t = a; a = b, b = t; p = pred_swap[p]; }
  bool wide = is_wide(s, a);
  if (ir_type_elt(s->fn, s->fn->ins[a].type) == IR_E_I1) {
    sel_emit(s, X86_cmp32, 0, OPDS(R(sel_use(s, a)), R(sel_use(s, b))), 0);
    return pred_cc[p];
  }
  if (imm32(s, b, &c)) {
    int x = sel_use(s, a);
    if (c == 0 && (p == IR_P_eq || p == IR_P_ne)) sel_emit(s, wide ? X86_test64 : X86_test32, 0, OPDS(R(x), R(x)), 0);
    else sel_emit(s, wide ? X86_cmp64_i : X86_cmp32_i, 0, OPDS(R(x)), c);
    return pred_cc[p];
  }
  int op = wide ? X86_cmp64 : X86_cmp32;
  Opd y = sel_last(s, b, op);
  sel_emit(s, op, 0, OPDS(R(sel_use(s, a)), y), 0);
  return pred_cc[p];
}

/* Vector compares know lt and le; the others swap or negate. */
static int fcmp_imm(IrPred p, bool *swap) {
  *swap = p == IR_P_gt || p == IR_P_ge;
  return p == IR_P_eq ? 0 : p == IR_P_ne ? 4 : p == IR_P_lt || p == IR_P_gt ? 1 : 2;
}

/* Scalar compare to a mask whose lane 0 counts: a mask register or a vector. */
static int fcmp_lane0(Sel *s, const IrIns *in) {
  bool swap;
  int imm = fcmp_imm(in->pred, &swap), a = sel_use(s, in->arg[swap]), b = sel_use(s, in->arg[!swap]);
  if (s->t->kmask) return sel_op(s, X86_cmpss_k_z, M_K, 8, OPDS(R(a), R(b)), imm);
  return vec(s, F_cmpss, 1, OPDS(R(a), R(b)), imm);
}

static int flags_fcmp(Sel *s, const IrIns *in) {
  if (in->pred == IR_P_eq || in->pred == IR_P_ne) {
    int m = fcmp_lane0(s, in);
    int r = sel_op(s, s->t->kmask ? X86_kmovw_rk : vop(s, F_movd_st, 1), M_G, 8, OPDS(R(m)), 0);
    sel_emit(s, X86_test32_i, 0, OPDS(R(r)), 1);
    return CC_NE;
  }
  bool swap = in->pred == IR_P_lt || in->pred == IR_P_le;
  int op = vop(s, F_ucomiss, 1);
  Opd y = sel_last(s, in->arg[!swap], op);
  sel_emit(s, op, 0, OPDS(R(sel_use(s, in->arg[swap])), y), 0);
  return in->pred == IR_P_lt || in->pred == IR_P_gt ? CC_A : CC_AE;
}

int sel_flags(Sel *s, IrRef cond) {
  const IrIns *in = &s->fn->ins[cond];
  if (in->block == s->cur && in->op == IR_icmp) return flags_icmp(s, in);
  if (in->block == s->cur && in->op == IR_fcmp) return flags_fcmp(s, in);
  int r = sel_use(s, cond);
  sel_emit(s, X86_test32, 0, OPDS(R(r), R(r)), 0);
  return CC_NE;
}

static int bool_from(Sel *s, int cc) {
  int b = sel_new(s, M_G, 8);
  sel_emit(s, setcc[cc], b, NULL, 0, 0);
  return b;
}

static void sel_scalar_cmp(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  int d = sel_dst(s, v), cc = in->op == IR_icmp ? flags_icmp(s, in) : flags_fcmp(s, in);
  sel_emit(s, X86_movzx8, d, OPDS(R(bool_from(s, cc))), 0);
}

static void sel_vec_icmp(Sel *s, IrRef v) {
  static const uint8_t k_imm[IR_N_PRED] = {[IR_P_eq] = 0, [IR_P_lt] = 1, [IR_P_le] = 2, [IR_P_ne] = 4, [IR_P_ge] = 5, [IR_P_gt] = 6};
  const IrIns *in = &s->fn->ins[v];
  int lanes = sel_lanes(s, in->arg[0]), d = sel_dst(s, v);
  if (s->t->kmask) {
    int op = vop(s, F_pcmpd_k, lanes);
    Opd y = sel_last(s, in->arg[1], op);
    sel_emit(s, op, d, OPDS(R(sel_use(s, in->arg[0])), y), k_imm[in->pred]);
    return;
  }
  int a = sel_use(s, in->arg[0]), b = sel_use(s, in->arg[1]);
  bool eq = in->pred == IR_P_eq || in->pred == IR_P_ne, swap = in->pred == IR_P_lt || in->pred == IR_P_ge;
  bool neg = in->pred == IR_P_ne || in->pred == IR_P_le || in->pred == IR_P_ge;
  int op = vop(s, eq ? F_pcmpeqd : F_pcmpgtd, lanes);
  if (!neg) { sel_emit(s, op, d, OPDS(R(swap ? b : a), R(swap ? a : b)), 0); return; }
  int t = sel_op(s, op, M_V, lanes * 4, OPDS(R(swap ? b : a), R(swap ? a : b)), 0);
  sel_emit(s, vop(s, F_pxor, lanes), d, OPDS(R(t), R(sel_splat_bits(s, 0xffffffff, lanes, false))), 0);
}

static void sel_vec_fcmp(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  bool swap;
  int lanes = sel_lanes(s, in->arg[0]), imm = fcmp_imm(in->pred, &swap), d = sel_dst(s, v);
  int op = vop(s, s->t->kmask ? F_cmpps_k : F_cmpps, lanes);
  Opd y = sel_last(s, in->arg[!swap], op);
  sel_emit(s, op, d, OPDS(R(sel_use(s, in->arg[swap])), y), imm);
}

/* ---- select ---- */
static int splat_bool(Sel *s, int r, int lanes);

/* The condition as a mask for `lanes` lanes. */
static int mask_of(Sel *s, IrRef cond, int lanes) {
  if (sel_lanes(s, cond) > 1) return sel_use(s, cond);
  const IrIns *in = &s->fn->ins[cond];
  if (lanes == 1 && in->op == IR_fcmp && in->block == s->cur) return fcmp_lane0(s, in);
  int r;
  if (in->block == s->cur && (in->op == IR_icmp || in->op == IR_fcmp) && s->reg[cond] < 0)
    r = sel_op(s, X86_movzx8, M_G, 8, OPDS(R(bool_from(s, sel_flags(s, cond)))), 0);
  else r = sel_use(s, cond);
  return splat_bool(s, r, lanes);
}

/* d = m ? y : x, lane by lane. */
static void blend(Sel *s, int d, int lanes, int m, int x, Opd y) {
  if (s->t->kmask) {
    MIns *in = sel_emit(s, vop(s, F_blendmps, lanes), d, OPDS(R(x), y), 0);
    in->mask = m;
    return;
  }
  if (s->t->vex) {
    sel_emit(s, vop(s, F_blendvps, lanes), d, OPDS(R(x), y, R(m)), 0);
    return;
  }
  int t = vec2(s, F_pand, lanes, y.reg, m), f = vec2(s, F_pandn, lanes, m, x);
  sel_emit(s, vop(s, F_por, lanes), d, OPDS(R(t), R(f)), 0);
}

static void sel_select(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  MClass c = sel_class(s, in->type);
  int d = sel_dst(s, v), lanes = type_lanes(s, in);
  if (c == M_V) {
    Opd y = R(0);
    int m = mask_of(s, in->arg[0], lanes);
    if (s->t->kmask && lanes > 1) y = sel_last(s, in->arg[1], vop(s, F_blendmps, lanes));
    else y = R(sel_use(s, in->arg[1]));
    blend(s, d, lanes, m, sel_use(s, in->arg[2]), y);
    return;
  }
  int a = sel_use(s, in->arg[1]), b = sel_use(s, in->arg[2]);
  if (c == M_K) {
    int m = mask_of(s, in->arg[0], lanes);
    int t = sel_op(s, X86_kandw, M_K, 8, OPDS(R(m), R(a)), 0), f = sel_op(s, X86_kandnw, M_K, 8, OPDS(R(m), R(b)), 0);
    sel_emit(s, X86_korw, d, OPDS(R(t), R(f)), 0);
    return;
  }
  int cc = sel_flags(s, in->arg[0]);
  sel_emit(s, is_wide(s, v) ? cmov64[cc] : cmov32[cc], d, OPDS(R(b), R(a)), 0);
}

/* smin and smax of scalars: the second unless the first is below (above) it. */
static void sel_minmax(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  bool wide = is_wide(s, v);
  int d = sel_dst(s, v), a = sel_use(s, in->arg[0]), b = sel_use(s, in->arg[1]), cc = in->op == IR_smin ? CC_L : CC_G;
  sel_emit(s, wide ? X86_cmp64 : X86_cmp32, 0, OPDS(R(a), R(b)), 0);
  sel_emit(s, wide ? cmov64[cc] : cmov32[cc], d, OPDS(R(b), R(a)), 0);
}

static void sel_mask_logic(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  int k = in->op == IR_band ? 0 : in->op == IR_bor ? 1 : 2;
  static const uint16_t ops[3] = {X86_kandw, X86_korw, X86_kxorw};
  static const Fam fam[3] = {F_pand, F_por, F_pxor};
  int d = sel_dst(s, v), a = sel_use(s, in->arg[0]), b = sel_use(s, in->arg[1]);
  sel_emit(s, s->t->kmask ? ops[k] : vop(s, fam[k], type_lanes(s, in)), d, OPDS(R(a), R(b)), 0);
}

/* ---- lanes ---- */
static int splat_gpr(Sel *s, int r, int lanes) {
  if (s->t->kmask) return vec1(s, F_pbroadcastd_r, lanes, r);
  int x = vec1(s, F_movd, 1, r);
  return s->t->vex ? vec1(s, F_pbroadcastd, lanes, x) : veci(s, F_pshufd, 4, x, 0);
}
/* 0 or 1 to a mask. */
static int splat_bool(Sel *s, int r, int lanes) {
  int neg = lanes == 1 && s->t->kmask ? r : sel_op(s, X86_neg32, M_G, 8, OPDS(R(r)), 0);
  if (s->t->kmask) return sel_op(s, X86_kmovw_kr, M_K, 8, OPDS(R(neg)), 0);
  return lanes == 1 ? vec1(s, F_movd, 1, neg) : splat_gpr(s, neg, lanes);
}

static void sel_splat(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  int lanes = type_lanes(s, in), d = sel_dst(s, v);
  IrElt e = ir_type_elt(s->fn, in->type);
  if (e == IR_E_I1) { copy(s, d, splat_bool(s, sel_use(s, in->arg[0]), lanes)); return; }
  int64_t c;
  if (ir_is_const(s->fn, in->arg[0], &c)) { copy(s, d, sel_splat_bits(s, (uint32_t)c, lanes, true)); return; }
  IrRef from = sel_root(s, in->arg[0]);
  const IrIns *f = &s->fn->ins[from];
  if (f->op == IR_load && s->t->vex) {
    int op = vop(s, F_broadcastss, lanes);
    if (sel_folds(s, from, op)) {
      Opd m = sel_last(s, from, op);
      sel_emit(s, op, d, &m, 1, 0);
      return;
    }
  }
  if (e == IR_E_I32) {
    /* bits of a scalar float need not pass through a general register */
    const IrIns *b = &s->fn->ins[in->arg[0]];
    if (b->op == IR_bits) e = IR_E_F32, in = b;
  }
  int x = sel_use(s, in->arg[0]);
  if (e == IR_E_I32) copy(s, d, splat_gpr(s, x, lanes));
  else if (s->t->vex) sel_emit(s, vop(s, F_broadcastss, lanes), d, OPDS(R(x)), 0);
  else sel_emit(s, vop(s, F_pshufd, 4), d, OPDS(R(x)), 0);
}

static void sel_iota(Sel *s, IrRef v) {
  int32_t p[16];
  for (int i = 0; i < 16; i++) p[i] = i;
  int d = sel_dst(s, v);
  copy(s, d, sel_const(s, p, sel_lanes(s, v) * 4));
}

/* The 128 bits of a wider vector that hold lane `lane`. */
static int quarter(Sel *s, int x, int lanes, int lane) {
  if (lane < 4) return x;
  int op = lanes == 16 ? X86_extractf32x4_z : s->t->kmask ? X86_extractf32x4_zy : X86_extractf128_y;
  return sel_op(s, op, M_V, 16, OPDS(R(x)), lane / 4);
}

static void sel_extract(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  int d = sel_dst(s, v), lane = (int)in->imm, x = quarter(s, sel_use(s, in->arg[0]), sel_lanes(s, in->arg[0]), lane);
  lane &= 3;
  if (ir_type_elt(s->fn, in->type) == IR_E_I32) {
    if (lane) sel_emit(s, vop(s, F_pextrd, 1), d, OPDS(R(x)), lane);
    else sel_emit(s, vop(s, F_movd_st, 1), d, OPDS(R(x)), 0);
  } else if (lane) sel_emit(s, vop(s, F_pshufd, 4), d, OPDS(R(x)), lane);
  else copy(s, d, x);
}

static void sel_insert(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  int lanes = type_lanes(s, in), lane = (int)in->imm, d = sel_dst(s, v);
  bool f = ir_type_elt(s->fn, in->type) == IR_E_F32;
  int x = sel_use_fresh(s, in->arg[0]), y = sel_use(s, in->arg[1]);
  if (lanes == 4) {
    sel_emit(s, vop(s, f ? F_insertps : F_pinsrd, 4), d, OPDS(R(x), R(y)), f ? lane << 4 : lane);
    return;
  }
  if (!s->t->kmask) {
    int w = f ? vec1(s, F_broadcastss, lanes, y) : splat_gpr(s, y, lanes);
    sel_emit(s, vop(s, F_blendps, lanes), d, OPDS(R(x), R(w)), 1 << lane);
    return;
  }
  /* A merging broadcast: the other lanes stay. */
  int k = sel_kconst(s, 1u << lane), c = sel_new(s, M_V, lanes * 4);
  copy(s, c, x);
  MIns *m = sel_emit(s, vop(s, f ? F_broadcastss : F_pbroadcastd_r, lanes), d, OPDS(R(y)), 0);
  m->tied = c;
  m->mask = k;
}

/* Halves are combined until one lane is left. */
static void sel_reduce(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  bool f = ir_type_elt(s->fn, in->type) == IR_E_F32;
  Fam fam = in->op == IR_radd ? (f ? F_addps : F_paddd) : in->op == IR_rmax ? (f ? F_maxps : F_pmaxsd) : f ? F_minps : F_pminsd;
  int d = sel_dst(s, v), x = sel_use(s, in->arg[0]);
  for (int n = sel_lanes(s, in->arg[0]) / 2; n >= 1; n /= 2) {
    int hi;
    if (n == 8) hi = sel_op(s, X86_extractf64x4_z, M_V, 32, OPDS(R(x)), 1);
    else if (n == 4) hi = quarter(s, x, 8, 4);
    else hi = veci(s, F_pshufd, 4, x, n == 2 ? 0xee : 0x55);
    if (n == 1 && f) sel_emit(s, vop(s, fam, 4), d, OPDS(R(x), R(hi)), 0);
    else x = vec2(s, fam, n, x, hi);
  }
  if (!f) sel_emit(s, vop(s, F_movd_st, 1), d, OPDS(R(x)), 0);
}

/* ---- dot4 and fma ---- */
/* A link of a chain that stays in 16 bits until its last. */
static void dot4_short(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  int lanes = type_lanes(s, in), d = sel_dst(s, v);
  IrRef from = sel_root(s, in->arg[0]);
  bool first = s->fn->ins[from].op == IR_const, last = !s->dot_partial[v];
  Opd y = sel_last(s, in->arg[2], vop(s, F_pmaddubsw, lanes));
  int u = sel_use(s, in->arg[1]), x = first && !last ? d : sel_new(s, M_V, lanes * 4);
  sel_emit(s, vop(s, F_pmaddubsw, lanes), x, OPDS(R(u), y), 0);
  if (!first) {
    int sum = last ? sel_new(s, M_V, lanes * 4) : d;
    sel_emit(s, vop(s, F_paddw, lanes), sum, OPDS(R(sel_use(s, from)), R(x)), 0);
    x = sum;
  }
  if (last) sel_emit(s, vop(s, F_pmaddwd, lanes), d, OPDS(R(x), R(sel_splat_bits(s, 0x00010001, lanes, false))), 0);
}

static void sel_dot4(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  int lanes = type_lanes(s, in), d = sel_dst(s, v);
  if (s->t->vnni) {
    int op = vop(s, F_pdpbusd, lanes);
    Opd y = sel_last(s, in->arg[2], op);
    int u = sel_use(s, in->arg[1]);
    sel_emit(s, op, d, OPDS(R(sel_use_fresh(s, in->arg[0])), R(u), y), 0);
    return;
  }
  if (s->dot_sum[v]) { dot4_short(s, v); return; }
  int u = sel_use(s, in->arg[1]), acc = sel_use_fresh(s, in->arg[0]), sum;
  if (in->imm <= 127) { /* pairs stay within 16 bits: 2 * 127 * 128 */
    int op = vop(s, F_pmaddubsw, lanes);
    int pairs = vec(s, F_pmaddubsw, lanes, OPDS(R(u), sel_last(s, in->arg[2], op)), 0);
    sum = vec2(s, F_pmaddwd, lanes, pairs, sel_splat_bits(s, 0x00010001, lanes, false));
  } else {              /* even and odd bytes as 16 bits each: exact */
    int x = sel_use(s, in->arg[2]);
    int ue = vec2(s, F_pand, lanes, u, sel_splat_bits(s, 0x00ff00ff, lanes, false)), uo = veci(s, F_psrlw_i, lanes, u, 8);
    int se = veci(s, F_psraw_i, lanes, veci(s, F_psllw_i, lanes, x, 8), 8), so = veci(s, F_psraw_i, lanes, x, 8);
    sum = vec2(s, F_paddd, lanes, vec2(s, F_pmaddwd, lanes, ue, se), vec2(s, F_pmaddwd, lanes, uo, so));
  }
  sel_emit(s, vop(s, F_paddd, lanes), d, OPDS(R(acc), R(sum)), 0);
}

static void sel_dot2(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  int op = vop(s, F_dpbf16ps, type_lanes(s, in)), d = sel_dst(s, v);
  Opd y = sel_last(s, in->arg[2], op);
  int x = sel_use(s, in->arg[1]);
  sel_emit(s, op, d, OPDS(R(sel_use_fresh(s, in->arg[0])), R(x), y), 0);
}

/* One rounding without the instruction, two lanes at a time in f64: the product is exact; the sum s is rounded to odd, so that the
   final rounding to f32 sees what was lost (Boldo, Melquiond 2008: p >= 2q + 2 digits suffice, 53 >= 50). */
static int fma_pair(Sel *s, int a, int b, int c) {
  int p = sel_op(s, X86_mulpd_x, M_V, 16, OPDS(R(vec1(s, F_cvtps2pd, 4, a)), R(vec1(s, F_cvtps2pd, 4, b))), 0);
  int z = vec1(s, F_cvtps2pd, 4, c);
  int sum = sel_op(s, X86_addpd_x, M_V, 16, OPDS(R(p), R(z)), 0);
  int zz = sel_op(s, X86_subpd_x, M_V, 16, OPDS(R(sum), R(p)), 0);
  int pp = sel_op(s, X86_subpd_x, M_V, 16, OPDS(R(sum), R(zz)), 0);
  int e1 = sel_op(s, X86_subpd_x, M_V, 16, OPDS(R(p), R(pp)), 0), e2 = sel_op(s, X86_subpd_x, M_V, 16, OPDS(R(z), R(zz)), 0);
  int e = sel_op(s, X86_addpd_x, M_V, 16, OPDS(R(e1), R(e2)), 0);
  int zero = sel_splat_bits(s, 0, 4, false);
  /* Ordered and unequal: neither infinities nor NaN are touched. */
  int lt = sel_op(s, X86_cmppd_x, M_V, 16, OPDS(R(e), R(zero)), 1), gt = sel_op(s, X86_cmppd_x, M_V, 16, OPDS(R(zero), R(e)), 1);
  int lost = vec2(s, F_por, 4, lt, gt);
  int odd = veci(s, F_pshufd, 4, sel_op(s, X86_psllq_i_x, M_V, 16, OPDS(R(sum)), 63), 0xf5);
  odd = veci(s, F_psrad_i, 4, odd, 31);
  int move = vec2(s, F_pandn, 4, odd, lost);
  int away = veci(s, F_psrad_i, 4, veci(s, F_pshufd, 4, vec2(s, F_pxor, 4, e, sum), 0xf5), 31);
  uint64_t one[2] = {1, 1};
  int delta = vec2(s, F_pand, 4, vec2(s, F_por, 4, away, sel_const(s, one, 16)), move);
  int r = sel_op(s, X86_paddq_x, M_V, 16, OPDS(R(sum), R(delta)), 0);
  return vec1(s, F_cvtpd2ps, 4, r);
}

static void fma_emulate(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  int d = sel_dst(s, v), a = sel_use(s, in->arg[0]), b = sel_use(s, in->arg[1]), c = sel_use(s, in->arg[2]);
  int lo = fma_pair(s, a, b, c);
  if (type_lanes(s, in) == 1) { copy(s, d, lo); return; }
  int hi = fma_pair(s, veci(s, F_pshufd, 4, a, 0xee), veci(s, F_pshufd, 4, b, 0xee), veci(s, F_pshufd, 4, c, 0xee));
  sel_emit(s, vop(s, F_punpcklqdq, 4), d, OPDS(R(lo), R(hi)), 0);
}

/* The operand that dies is overwritten, the addend by preference: it is what loops carry. */
static void sel_fma(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  if (!s->t->fma) { fma_emulate(s, v); return; }
  IrRef a = in->arg[0], b = in->arg[1], c = in->arg[2];
  int lanes = type_lanes(s, in);
  bool one = lanes == 1;
  int op231 = vop(s, one ? F_fmadd231ss : F_fmadd231ps, lanes), op213 = vop(s, one ? F_fmadd213ss : F_fmadd213ps, lanes);
  int op132 = vop(s, one ? F_fmadd132ss : F_fmadd132ps, lanes), d = sel_dst(s, v);
  bool fa = sel_folds(s, a, op231), fb = sel_folds(s, b, op231), fc = sel_folds(s, c, op231);
  bool ca = ir_is_const(s->fn, sel_root(s, a), NULL), cb = ir_is_const(s->fn, sel_root(s, b), NULL), cc = ir_is_const(s->fn, sel_root(s, c), NULL);
  if ((fa && !fb) || (ca && !cb && !fb)) { IrRef t = a; a = b, b = t; bool f = fa; fa = fb, fb = f; f = ca, ca = cb, cb = f; }
  bool ties_c = !fc && !cc && (sel_dies(s, c) || (!(sel_dies(s, a) && !fa && !ca) && !(sel_dies(s, b) && !fb && !cb)));
  if (ties_c) {
    Opd y = sel_last(s, b, op231);
    int x = sel_use(s, a);
    sel_emit(s, op231, d, OPDS(R(sel_use_fresh(s, c)), R(x), y), 0);
    return;
  }
  bool b_first = !fb && !cb && sel_dies(s, b) && !sel_dies(s, a);
  if (b_first) { IrRef t = a; a = b, b = t; fb = fa; cb = ca; }
  if (fb && !fc) {
    Opd y = sel_last(s, b, op132);
    int x = sel_use(s, c);
    sel_emit(s, op132, d, OPDS(R(sel_use_fresh(s, a)), R(x), y), 0);
    return;
  }
  Opd y = sel_last(s, c, op213);
  int x = sel_use(s, b);
  sel_emit(s, op213, d, OPDS(R(sel_use_fresh(s, a)), R(x), y), 0);
}

/* ---- signs ---- */
static void sel_sign(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  int lanes = MAX(type_lanes(s, in), 4), d = sel_dst(s, v), x = sel_use(s, in->arg[0]);
  bool neg = in->op == IR_fneg;
  int m = sel_splat_bits(s, neg ? 0x80000000 : 0x7fffffff, lanes, false);
  sel_emit(s, vop(s, neg ? F_xorps : F_andps, lanes), d, OPDS(R(x), R(m)), 0);
}

/* ---- memory ---- */
static void sel_load(Sel *s, IrRef v) {
  static const uint16_t gpr[IR_N_MEM] = {[IR_M_u8] = X86_movzx8, [IR_M_i8] = X86_movsx8, [IR_M_u16] = X86_movzx16, [IR_M_i16] = X86_movsx16,
                                         [IR_M_i32] = X86_mov32, [IR_M_i64] = X86_mov64, [IR_M_ptr] = X86_mov64};
  static const Fam fam[IR_N_MEM] = {[IR_M_u8] = F_pmovzxbd, [IR_M_i8] = F_pmovsxbd, [IR_M_u16] = F_pmovzxwd, [IR_M_i16] = F_pmovsxwd,
                                    [IR_M_i32] = F_movups, [IR_M_f32] = F_movups, [IR_M_f16] = F_cvtph2ps};
  const IrIns *in = &s->fn->ins[v];
  int d = sel_dst(s, v), lanes = type_lanes(s, in);
  Opd m = sel_mem(s, in->arg[0], in->arg[1], in->scale, in->imm);
  if (lanes > 1) sel_emit(s, vop(s, fam[in->mem], lanes), d, &m, 1, 0);
  else if (in->mem == IR_M_f32) sel_emit(s, vop(s, F_movss, 1), d, &m, 1, 0);
  else if (in->mem == IR_M_f16) {
    int r = sel_op(s, X86_movzx16, M_G, 8, &m, 1, 0);
    sel_emit(s, vop(s, F_cvtph2ps, 4), d, OPDS(R(vec1(s, F_movd, 1, r))), 0);
  } else sel_emit(s, gpr[in->mem], d, &m, 1, 0);
}

/* Element by element into quarters: faster than the gather instructions for small elements, and the only way to read no byte too many. */
static int gather_quarter(Sel *s, const IrIns *in, Opd m, int offs) {
  int bytes = ir_mem_bytes[in->mem], x = bytes == 4 ? M_NONE : sel_splat_bits(s, 0, 4, true);
  Fam fam = bytes == 4 ? F_pinsrd : bytes == 2 ? F_pinsrw : F_pinsrb;
  for (int i = 0; i < 4; i++) {
    m.index = i ? sel_op(s, vop(s, F_pextrd, 1), M_G, 8, OPDS(R(offs)), i) : sel_op(s, vop(s, F_movd_st, 1), M_G, 8, OPDS(R(offs)), 0);
    if (bytes == 4 && i == 0) x = vec(s, F_movss, 1, &m, 1, 0);
    else x = vec(s, fam, 1, OPDS(R(x), m), bytes == 4 ? i : i * 4 / bytes);
  }
  return x;
}

static void sel_gather(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  int lanes = type_lanes(s, in), d = sel_dst(s, v), offs = sel_use(s, in->arg[1]), r = M_NONE;
  Opd m = sel_mem(s, in->arg[0], 0, 1, in->imm);
  if (m.index != M_NONE) m = (Opd){.reg = M_NONE, .mem = true, .base = sel_op(s, X86_lea64, M_G, 8, &m, 1, 0), .index = M_NONE};
  m.scale = 1;
  int ins = lanes == 16 ? X86_insertf32x4_z : s->t->kmask ? X86_insertf32x4_zy : X86_insertf128_y;
  for (int q = 0; q < lanes / 4; q++) {
    int x = gather_quarter(s, in, m, quarter(s, offs, lanes, 4 * q));
    r = q ? sel_op(s, ins, M_V, lanes * 4, OPDS(R(r), R(x)), q) : x;
  }
  int shift = in->mem == IR_M_i8 ? 24 : in->mem == IR_M_i16 ? 16 : 0;
  if (shift) r = veci(s, F_psrad_i, lanes, veci(s, F_pslld_i, lanes, r, shift), shift);
  copy(s, d, r);
}

/* The first n bytes of a 128-bit register. */
static void store_bytes(Sel *s, Opd at, int x, int n) {
  int off = 0;
  Opd m = at;
  if (n >= 16) { sel_store(s, vop(s, F_movups_st, 4), m, x, 0); return; }
  if (n - off >= 8) { sel_store(s, vop(s, F_movlps_st, 1), m, x, 0); off += 8; }
  for (; n - off >= 4; off += 4) {
    m.disp = at.disp + off;
    if (off) sel_store(s, vop(s, F_pextrd, 1), m, x, off / 4);
    else sel_store(s, vop(s, F_movss_st, 1), m, x, 0);
  }
  for (; n - off >= 2; off += 2) { m.disp = at.disp + off; sel_store(s, vop(s, F_pextrw_st, 1), m, x, off / 2); }
  for (; n - off >= 1; off++) { m.disp = at.disp + off; sel_store(s, vop(s, F_pextrb, 1), m, x, off); }
}

static void sel_store_scalar(Sel *s, const IrIns *in, Opd m) {
  static const uint16_t gpr[IR_N_MEM] = {[IR_M_u8] = X86_mov8_st, [IR_M_i8] = X86_mov8_st, [IR_M_u16] = X86_mov16_st, [IR_M_i16] = X86_mov16_st,
                                         [IR_M_i32] = X86_mov32_st, [IR_M_i64] = X86_mov64_st, [IR_M_ptr] = X86_mov64_st};
  int x = sel_use(s, in->arg[2]);
  if (in->mem == IR_M_f32) sel_store(s, vop(s, F_movss_st, 1), m, x, 0);
  else if (in->mem == IR_M_f16) sel_store(s, vop(s, F_pextrw_st, 1), m, veci(s, F_cvtps2ph, 4, x, 0), 0);
  else sel_store(s, gpr[in->mem], m, x, 0);
}

/* x of min(x, 127) where x is seen to be at least -128: what is kept of it as a signed byte. 0: not of that shape. */
static IrRef clamped_byte(const Sel *s, const IrIns *store) {
  IrRef v = sel_root(s, store->arg[2]), x;
  const IrIns *in = &s->fn->ins[v], *low;
  int64_t c;
  if (ir_mem_bytes[store->mem] != 1 || in->op != IR_smin || !only_here(s, store, v)) return 0;
  bool last = ir_is_const(s->fn, sel_root(s, in->arg[1]), &c);
  if ((!last && !ir_is_const(s->fn, sel_root(s, in->arg[0]), &c)) || c != 127) return 0;
  x = sel_root(s, in->arg[!last]);
  low = &s->fn->ins[x];
  if (low->op != IR_smax || !(ir_is_const(s->fn, sel_root(s, low->arg[0]), &c) || ir_is_const(s->fn, sel_root(s, low->arg[1]), &c)) || c < -128) return 0;
  return x;
}

static void sel_store_masked(Sel *s, const IrIns *in, Opd m, int lanes, int n) {
  static const Fam fam[IR_N_MEM] = {[IR_M_u8] = F_pmovdb, [IR_M_i8] = F_pmovdb, [IR_M_u16] = F_pmovdw, [IR_M_i16] = F_pmovdw,
                                    [IR_M_i32] = F_movups_st, [IR_M_f32] = F_movups_st, [IR_M_f16] = F_cvtps2ph};
  IrRef byte = clamped_byte(s, in);
  int x = sel_use(s, byte ? byte : in->arg[2]), k = n < lanes ? sel_kconst(s, (1u << n) - 1) : M_NONE;
  sel_store(s, vop(s, byte ? F_pmovsdb : fam[in->mem], lanes), m, x, 0);
  s->out[s->n_out - 1].mask = k;
}

/* The low byte or word of every lane, packed into the low bytes of 128 bits. */
static int narrow(Sel *s, int x, int lanes, int bytes) {
  uint8_t p[32];
  for (int i = 0; i < 32; i++) p[i] = i % 16 < 4 * bytes ? (uint8_t)(i % 16 / bytes * 4 + i % bytes) : 0x80;
  int y = vec2(s, F_pshufb, lanes, x, sel_const(s, p, lanes * 4));
  if (lanes == 4) return y;
  return vec2(s, bytes == 1 ? F_punpckldq : F_punpcklqdq, 4, y, quarter(s, y, lanes, 4));
}

static void sel_store_ins(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  int lanes = sel_lanes(s, in->arg[2]), n = in->n_lanes ? in->n_lanes : lanes, bytes = ir_mem_bytes[in->mem];
  Opd m = sel_mem(s, in->arg[0], in->arg[1], in->scale, in->imm);
  if (lanes == 1) { sel_store_scalar(s, in, m); return; }
  if (s->t->kmask) { sel_store_masked(s, in, m, lanes, n); return; }
  int x = sel_use(s, in->arg[2]);
  if (bytes == 4) {
    if (n == lanes) { sel_store(s, vop(s, F_movups_st, lanes), m, x, 0); return; }
    store_bytes(s, m, x, MIN(n, 4) * 4);
    m.disp += 16;
    if (n > 4) store_bytes(s, m, quarter(s, x, lanes, 4), (n - 4) * 4);
    return;
  }
  int y = in->mem == IR_M_f16 ? veci(s, F_cvtps2ph, lanes, x, 0) : narrow(s, x, lanes, bytes);
  store_bytes(s, m, y, n * bytes);
}

static void sel_prefetch(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  Opd m = sel_mem(s, in->arg[0], in->arg[1], in->scale, in->imm);
  MIns p = sel_blank;
  p.op = X86_prefetcht0, p.flags = M_MEM, p.n_r = 1;
  p.base = m.base, p.index = m.index, p.scale = (uint8_t)m.scale, p.disp = m.disp;
  sel_put(s, p);
}

/* ---- matrix tiles ---- */
/* Tiles are numbers, not values: they stand in imm, four bits each in the order of the encoding, and the emitter makes operands of them. */
static MIns tile_ins(int op, int64_t tiles) {
  MIns in = sel_blank;
  in.op = (uint16_t)op;
  in.imm = tiles;
  return in;
}

static void tile_at(MIns *in, Opd m) {
  in->n_r = 1;
  in->flags |= M_MEM;
  in->base = m.base, in->index = m.index, in->scale = (uint8_t)m.scale, in->disp = m.disp;
  in->mem_bytes = x86_row(in->op)->mem_bytes;
}

/* Palette 1; by tile, bytes of a row and rows: sums, left and right operands as ops.def says. */
static void sel_tbegin(Sel *s, int k_bytes) {
  uint8_t p[64] = {1};
  for (int t = 0; t < 8; t++) {
    p[16 + 2 * t] = (uint8_t)(t == 4 || t == 5 ? k_bytes : 64);
    p[48 + t] = (uint8_t)(t >= 6 ? k_bytes / 4 : 16);
  }
  MIns in = tile_ins(X86_ldtilecfg, 0);
  tile_at(&in, sel_pool(s, p, sizeof p));
  sel_put(s, in);
}

/* The index register is the distance of rows, so a whole address takes one register. */
static void sel_tile_mem(Sel *s, const IrIns *x) {
  MIns in = tile_ins(x->op == IR_tload ? X86_tileloadd : X86_tilestored, x->n_lanes);
  Opd m = sel_mem(s, x->arg[0], x->arg[1], x->scale, x->imm);
  if (m.index != M_NONE) m = (Opd){.reg = M_NONE, .mem = true, .base = sel_op(s, X86_lea64, M_G, 8, &m, 1, 0), .index = M_NONE};
  m.index = sel_use(s, x->arg[2]);
  m.scale = 1;
  tile_at(&in, m);
  sel_put(s, in);
}

static void sel_tile(Sel *s, const IrIns *x) {
  int64_t c = x->imm & 15, a = x->imm >> 4 & 15, b = x->imm >> 8;
  switch (x->op) {
    case IR_tbegin: sel_tbegin(s, (int)x->imm); break;
    case IR_tend: sel_put(s, tile_ins(X86_tilerelease, 0)); break;
    case IR_tzero: sel_put(s, tile_ins(X86_tilezero, x->imm)); break;
    case IR_tdot4: sel_put(s, tile_ins(X86_tdpbsud, c | a << 4 | b << 8)); break;
    case IR_tdot2: sel_put(s, tile_ins(X86_tdpbf16ps, c | a << 4 | b << 8)); break;
    default: sel_tile_mem(s, x);
  }
}

/* ---- conversions of scalars ---- */
static void sel_scalar_conv(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  int d = sel_dst(s, v);
  Opd x = R(0);
  switch (in->op) {
    case IR_sext: x = sel_last(s, in->arg[0], X86_movsxd); sel_emit(s, X86_movsxd, d, &x, 1, 0); break;
    case IR_zext: x = sel_last(s, in->arg[0], X86_mov32); sel_emit(s, X86_mov32, d, &x, 1, 0); break;
    case IR_i2f: sel_emit(s, vop(s, F_cvtdq2ps, 4), d, OPDS(R(vec1(s, F_movd, 1, sel_use(s, in->arg[0])))), 0); break;
    case IR_f2i: sel_emit(s, vop(s, F_cvttss2si, 1), d, OPDS(R(sel_use(s, in->arg[0]))), 0); break;
    default:
      CHECK(in->op == IR_bits, "%s", ir_op_name[in->op]);
      sel_emit(s, vop(s, ir_type_elt(s->fn, in->type) == IR_E_F32 ? F_movd : F_movd_st, 1), d, OPDS(R(sel_use(s, in->arg[0]))), 0);
  }
}

static void sel_padd(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  int64_t c;
  if (sel_dies(s, in->arg[0]) && (!ir_is_const(s->fn, in->arg[1], &c) || imm32(s, in->arg[1], &c))) { sel_add(s, v); return; }
  int d = sel_dst(s, v);
  lea(s, d, true, sel_mem(s, in->arg[0], in->arg[1], 1, 0));
}

void sel_ins(Sel *s, IrRef v) {
  const IrIns *in = &s->fn->ins[v];
  bool vector = in->type != IR_T_none && type_lanes(s, in) > 1, flt = in->type != IR_T_none && ir_type_elt(s->fn, in->type) == IR_E_F32;
  const VecPat *p = &vec_pats[in->op][vector ? (flt ? COL_F32 : COL_I32) : COL_SCALAR];
  if (vector && (sel_or_and(s, v) || sel_nearest(s, v))) return;
  if (p->ok && (vector || flt)) { sel_vec_pattern(s, v, p); return; }
  if (gpr_pats[in->op].op32 && !vector) { sel_gpr_pattern(s, v, &gpr_pats[in->op]); return; }
  switch (in->op) {
    case IR_iota: sel_iota(s, v); break;
    case IR_add: sel_add(s, v); break;
    case IR_mul: sel_mul(s, v); break;
    case IR_udiv: case IR_urem: sel_div(s, v); break;
    case IR_shl: case IR_shr: case IR_sar: sel_shift(s, v); break;
    case IR_smin: case IR_smax: sel_minmax(s, v); break;
    case IR_icmp: if (vector) sel_vec_icmp(s, v); else sel_scalar_cmp(s, v); break;
    case IR_fcmp: if (vector) sel_vec_fcmp(s, v); else sel_scalar_cmp(s, v); break;
    case IR_dot4: sel_dot4(s, v); break;
    case IR_dot2: sel_dot2(s, v); break;
    case IR_fma: sel_fma(s, v); break;
    case IR_fneg: case IR_fabs: sel_sign(s, v); break;
    case IR_band: case IR_bor: case IR_bxor: sel_mask_logic(s, v); break;
    case IR_select: sel_select(s, v); break;
    case IR_splat: sel_splat(s, v); break;
    case IR_extract: sel_extract(s, v); break;
    case IR_insert: sel_insert(s, v); break;
    case IR_radd: case IR_rmax: case IR_rmin: sel_reduce(s, v); break;
    case IR_padd: sel_padd(s, v); break;
    case IR_load: sel_load(s, v); break;
    case IR_gather: sel_gather(s, v); break;
    case IR_store: sel_store_ins(s, v); break;
    case IR_prefetch: sel_prefetch(s, v); break;
    case IR_tbegin: case IR_tend: case IR_tzero: case IR_tload: case IR_tstore: case IR_tdot4: case IR_tdot2: sel_tile(s, in); break;
    default: sel_scalar_conv(s, v);
  }
}
