/* Legalization, IR to IR. In: a verified function; out: a new one with the same meaning to the bit, in which no vector is wider than
   the target's registers and no operation is left that the target cannot do (half floats without F16C, brain floats).

   A wide value becomes parts: part p holds lanes p*L .. p*L + L-1. Reductions combine part p with part p + n/2 first, which is
   the tree that ops.def defines. What stays for instruction selection: dot4, fma, gathers, tiles and partial stores of at most one register. */
#include <string.h>
#include "gen/gen.h"

enum { MAX_PARTS = 4 };
typedef struct Legal {
  const IrFn *src;
  const Target *t;
  IrBuild b;                     /* into the new function */
  IrRef *map;                    /* part p of source value v: map[v * MAX_PARTS + p] */
  int *block;                    /* of each source block; -1: unreachable */
  int *order, n_order;           /* reachable source blocks, reverse postorder */
} Legal;

static IrType type_map(Legal *l, IrType t) {
  if (ir_is_ptr(t)) return ir_ptr_type(l->b.fn, l->src->ptrs[t - IR_N_BASIC]);
  int n = ir_type_lanes(l->src, t);
  return n > l->t->vec_lanes ? ir_vec_type(ir_type_elt(l->src, t), l->t->vec_lanes) : t;
}
static int type_parts(Legal *l, IrType t) {
  int n = ir_type_lanes(l->src, t);
  return n > l->t->vec_lanes ? n / l->t->vec_lanes : 1;
}
static int value_parts(Legal *l, IrRef v) { return type_parts(l, ir_type_of(l->src, v)); }
/* Part p of v; a value that was not split serves every part (a scalar condition, a base pointer). */
static IrRef part(Legal *l, IrRef v, int p) {
  if (!v) return 0;
  return l->map[v * MAX_PARTS + (value_parts(l, v) == 1 ? 0 : p)];
}

/* ---- arithmetic that replaces what the target lacks; N lanes or one ---- */
static IrType like(IrBuild *b, IrRef v, IrElt e) { return ir_vec_type(e, ir_type_lanes(b->fn, ir_type_of(b->fn, v))); }
static IrRef ci(IrBuild *b, IrRef v, int64_t imm) { return ir_const_i(b, like(b, v, IR_E_I32), imm); }
static IrRef and_i(IrBuild *b, IrRef v, int64_t imm) { return ir_op2(b, IR_and, v, ci(b, v, imm)); }
static IrRef or_i(IrBuild *b, IrRef v, int64_t imm) { return ir_op2(b, IR_or, v, ci(b, v, imm)); }
static IrRef add_i(IrBuild *b, IrRef v, int64_t imm) { return ir_op2(b, IR_add, v, ci(b, v, imm)); }
static IrRef cmp_i(IrBuild *b, IrPred p, IrRef v, int64_t imm) { return ir_cmp(b, IR_icmp, p, v, ci(b, v, imm)); }

/* h: the half's bits in the low 16 of an i32. Exact; a signalling NaN turns quiet, as the hardware does it. */
static IrRef f16_widen(IrBuild *b, IrRef h) {
  IrRef sign = ir_shift(b, IR_shl, and_i(b, h, 0x8000), 16), mag = and_i(b, h, 0x7fff), m = ir_shift(b, IR_shl, mag, 13);
  IrRef normal = add_i(b, m, 112 << 23);
  IrRef tiny = ir_op1(b, IR_bits, ir_op2(b, IR_fmul, ir_op1(b, IR_i2f, mag), ir_const_f(b, like(b, h, IR_E_F32), 0x1p-24f)));
  IrRef inf = or_i(b, m, 0x7f800000), nan = or_i(b, m, 0x7fc00000);
  IrRef r = ir_op3(b, IR_select, cmp_i(b, IR_P_lt, mag, 0x400), tiny, normal);
  r = ir_op3(b, IR_select, cmp_i(b, IR_P_ge, mag, 0x7c00), inf, r);
  r = ir_op3(b, IR_select, cmp_i(b, IR_P_gt, mag, 0x7c00), nan, r);
  return ir_op1(b, IR_bits, ir_op2(b, IR_or, sign, r));
}

/* f32 to the half's bits: the three roads of f32_to_f16, chosen by magnitude. */
static IrRef f16_narrow(IrBuild *b, IrRef f) {
  IrRef u = ir_op1(b, IR_bits, f), sign = and_i(b, ir_shift(b, IR_shr, u, 16), 0x8000), a = and_i(b, u, 0x7fffffff);
  IrRef half = ir_op2(b, IR_fadd, ir_op1(b, IR_bits, a), ir_const_f(b, like(b, f, IR_E_F32), 0.5f));
  IrRef tiny = add_i(b, ir_op1(b, IR_bits, half), -0x3f000000);
  IrRef odd = and_i(b, ir_shift(b, IR_shr, a, 13), 1);
  IrRef normal = ir_shift(b, IR_shr, ir_op2(b, IR_add, add_i(b, a, 0xfff - 0x38000000), odd), 13);
  IrRef nan = or_i(b, and_i(b, ir_shift(b, IR_shr, a, 13), 0x3ff), 0x7e00);
  IrRef r = ir_op3(b, IR_select, cmp_i(b, IR_P_lt, a, 0x38800000), tiny, normal);
  r = ir_op3(b, IR_select, cmp_i(b, IR_P_ge, a, 0x477ff000), ci(b, a, 0x7c00), r);
  r = ir_op3(b, IR_select, cmp_i(b, IR_P_gt, a, 0x7f800000), nan, r);
  return ir_op2(b, IR_or, sign, r);
}

static IrRef bf16_narrow(IrBuild *b, IrRef f) {
  IrRef u = ir_op1(b, IR_bits, f), odd = and_i(b, ir_shift(b, IR_shr, u, 16), 1);
  IrRef r = ir_shift(b, IR_shr, ir_op2(b, IR_add, add_i(b, u, 0x7fff), odd), 16);
  IrRef nan = or_i(b, ir_shift(b, IR_shr, u, 16), 0x40);
  return ir_op3(b, IR_select, cmp_i(b, IR_P_gt, and_i(b, u, 0x7fffffff), 0x7f800000), nan, r);
}

/* A load of at most one register. */
static IrRef load_part(Legal *l, IrMem m, IrType t, IrRef ptr, IrRef idx, int scale, int64_t disp) {
  bool half = m == IR_M_f16 && !l->t->f16c;
  if (m != IR_M_bf16 && !half) return ir_load(&l->b, m, t, ptr, idx, scale, disp);
  IrRef h = ir_load(&l->b, IR_M_u16, ir_vec_type(IR_E_I32, ir_type_lanes(l->b.fn, t)), ptr, idx, scale, disp);
  return half ? f16_widen(&l->b, h) : ir_op1(&l->b, IR_bits, ir_shift(&l->b, IR_shl, h, 16));
}
static void store_part(Legal *l, IrMem m, IrRef ptr, IrRef idx, int scale, int64_t disp, IrRef v, int n_lanes) {
  bool half = m == IR_M_f16 && !l->t->f16c;
  if (half) v = f16_narrow(&l->b, v);
  if (m == IR_M_bf16) v = bf16_narrow(&l->b, v);
  ir_store(&l->b, half || m == IR_M_bf16 ? IR_M_u16 : m, ptr, idx, scale, disp, v, n_lanes);
}

/* ---- one instruction ---- */
static void split_load(Legal *l, IrRef v, const IrIns *in) {
  int n = type_parts(l, in->type), step = l->t->vec_lanes * ir_mem_bytes[in->mem];
  IrType t = type_map(l, in->type);
  for (int p = 0; p < n; p++)
    l->map[v * MAX_PARTS + p] = load_part(l, in->mem, t, part(l, in->arg[0], 0), part(l, in->arg[1], 0), in->scale, in->imm + p * step);
}

static void split_store(Legal *l, const IrIns *in) {
  int n = value_parts(l, in->arg[2]), lanes = ir_type_lanes(l->src, ir_type_of(l->src, in->arg[2]));
  int each = lanes / n, left = in->n_lanes ? in->n_lanes : lanes;
  for (int p = 0; p < n && left > 0; p++, left -= each)
    store_part(l, in->mem, part(l, in->arg[0], 0), part(l, in->arg[1], 0), in->scale, in->imm + p * each * ir_mem_bytes[in->mem],
               part(l, in->arg[2], p), left >= each ? 0 : left);
}

static IrRef combine(IrBuild *b, IrOp op, IrElt e, IrRef x, IrRef y) {
  bool f = e == IR_E_F32;
  if (op == IR_radd) return ir_op2(b, f ? IR_fadd : IR_add, x, y);
  if (op == IR_rmax) return ir_op2(b, f ? IR_fmax : IR_smax, x, y);
  return ir_op2(b, f ? IR_fmin : IR_smin, x, y);
}
static void split_reduce(Legal *l, IrRef v, const IrIns *in) {
  IrRef w[MAX_PARTS];
  int n = value_parts(l, in->arg[0]);
  for (int p = 0; p < n; p++) w[p] = part(l, in->arg[0], p);
  for (n /= 2; n; n /= 2)
    for (int p = 0; p < n; p++) w[p] = combine(&l->b, in->op, ir_type_elt(l->src, in->type), w[p], w[p + n]);
  l->map[v * MAX_PARTS] = ir_op1(&l->b, in->op, w[0]);
}

static void split_iota(Legal *l, IrRef v, const IrIns *in) {
  int n = type_parts(l, in->type), lanes = ir_type_lanes(l->src, in->type) / n;
  IrRef base = ir_iota(&l->b, lanes);
  for (int p = 0; p < n; p++) l->map[v * MAX_PARTS + p] = add_i(&l->b, base, p * lanes);
}

static void split_lane(Legal *l, IrRef v, const IrIns *in) {
  int n = value_parts(l, in->arg[0]), lanes = ir_type_lanes(l->src, ir_type_of(l->src, in->arg[0])) / n;
  int at = (int)in->imm / lanes, lane = (int)in->imm % lanes;
  if (in->op == IR_extract) {
    l->map[v * MAX_PARTS] = ir_extract(&l->b, part(l, in->arg[0], at), lane);
    return;
  }
  for (int p = 0; p < n; p++) l->map[v * MAX_PARTS + p] = part(l, in->arg[0], p);
  l->map[v * MAX_PARTS + at] = ir_insert(&l->b, l->map[v * MAX_PARTS + at], part(l, in->arg[1], 0), lane);
}

/* Everything that works lane by lane: the same instruction on each part. */
static void split_lanewise(Legal *l, IrRef v, const IrIns *in) {
  int n = type_parts(l, in->type);
  for (int p = 0; p < n; p++) {
    IrIns out = *in;
    out.type = type_map(l, in->type);
    out.block = 0;
    bool alike = p > 0;
    for (int i = 0; i < 3; i++) {
      out.arg[i] = part(l, in->arg[i], p);
      if (alike && in->arg[i]) alike = out.arg[i] == part(l, in->arg[i], 0);
    }
    l->map[v * MAX_PARTS + p] = alike ? l->map[v * MAX_PARTS] : ir_emit(&l->b, out);
  }
}

/* Four lanes have no permutation by a vector before AVX: by bytes. */
static IrRef pick_part(Legal *l, IrRef at, IrRef from) {
  IrBuild *b = &l->b;
  if (ir_type_lanes(b->fn, ir_type_of(b->fn, at)) > 4) return ir_op2(b, IR_pick, at, from);
  IrRef bytes = add_i(b, ir_op2(b, IR_mul, and_i(b, at, 3), ci(b, at, 0x04040404)), 0x03020100);
  return ir_op1(b, IR_bits, ir_op2(b, IR_shuf, ir_op1(b, IR_bits, from), bytes));
}

/* Lane at % (n parts' lanes) of the parts of `from`: the upper bits of the number choose between them. */
static IrRef pick_among(Legal *l, IrRef at, IrRef from, int first, int n) {
  if (n == 1) return pick_part(l, at, part(l, from, first));
  IrRef set = cmp_i(&l->b, IR_P_ne, and_i(&l->b, at, n / 2 * l->t->vec_lanes), 0);
  IrRef above = pick_among(l, at, from, first + n / 2, n / 2);
  return ir_op3(&l->b, IR_select, set, above, pick_among(l, at, from, first, n / 2));
}

static void split_pick(Legal *l, IrRef v, const IrIns *in) {
  int n = type_parts(l, in->type);
  for (int p = 0; p < n; p++) l->map[v * MAX_PARTS + p] = pick_among(l, part(l, in->arg[0], p), in->arg[1], 0, n);
}

/* Where no instruction does both products: one after the other. */
static void split_dot2(Legal *l, IrRef v, const IrIns *in) {
  IrBuild *b = &l->b;
  if (l->t->dot2) { split_lanewise(l, v, in); return; }
  for (int p = 0; p < type_parts(l, in->type); p++) {
    IrRef sum = part(l, in->arg[0], p), x = part(l, in->arg[1], p), y = part(l, in->arg[2], p);
    sum = ir_op3(b, IR_fma, ir_op1(b, IR_bits, and_i(b, x, -65536)), ir_op1(b, IR_bits, and_i(b, y, -65536)), sum);
    l->map[v * MAX_PARTS + p] = ir_op3(b, IR_fma, ir_op1(b, IR_bits, ir_shift(b, IR_shl, x, 16)), ir_op1(b, IR_bits, ir_shift(b, IR_shl, y, 16)), sum);
  }
}

static void keep_tile(Legal *l, const IrIns *in) {
  CHECK(l->t->tiles, "%s has no matrix tiles", l->t->name);
  IrIns out = *in;
  for (int i = 0; i < 3; i++) out.arg[i] = part(l, in->arg[i], 0);
  ir_emit(&l->b, out);
}

static void split_ins(Legal *l, IrRef v) {
  const IrIns *in = &l->src->ins[v];
  switch (in->op) {
    case IR_load: split_load(l, v, in); break;
    case IR_store: split_store(l, in); break;
    case IR_iota: split_iota(l, v, in); break;
    case IR_extract: case IR_insert: split_lane(l, v, in); break;
    case IR_radd: case IR_rmax: case IR_rmin: split_reduce(l, v, in); break;
    case IR_dot2: split_dot2(l, v, in); break;
    case IR_pick: split_pick(l, v, in); break;
    case IR_tbegin: case IR_tend: case IR_tzero: case IR_tload: case IR_tstore: case IR_tdot4: case IR_tdot2: keep_tile(l, in); break;
    default: split_lanewise(l, v, in);
  }
}

/* ---- the function ---- */
static void block_visit(Legal *l, int root) {
  int n_blocks = l->src->n_blocks, sp = 0;
  int *stack = ARENA_ARRAY(l->b.fn->arena, int, n_blocks), *next = ARENA_ARRAY(l->b.fn->arena, int, n_blocks);
  int *post = ARENA_ARRAY(l->b.fn->arena, int, n_blocks), n = 0;
  stack[sp++] = root;
  l->block[root] = 0;
  while (sp) {
    int x = stack[sp - 1];
    const IrBlock *blk = &l->src->blocks[x];
    int n_succ = blk->term == IR_BR ? 2 : blk->term == IR_JMP ? 1 : 0;
    if (next[x] == n_succ) { post[n++] = x; sp--; continue; }
    int y = blk->edge[next[x]++].block;
    if (l->block[y] < 0) { l->block[y] = 0; stack[sp++] = y; }
  }
  for (int i = n - 1; i >= 0; i--) l->order[l->n_order++] = post[i];
}

static void edge_map(Legal *l, const IrEdge *e, IrEdge *out) {
  int n = 0;
  for (int i = 0; i < e->n_args; i++) n += value_parts(l, e->args[i]);
  *out = (IrEdge){l->block[e->block], ARENA_ARRAY(l->b.fn->arena, IrRef, n), n};
  n = 0;
  for (int i = 0; i < e->n_args; i++)
    for (int p = 0; p < value_parts(l, e->args[i]); p++) out->args[n++] = l->map[e->args[i] * MAX_PARTS + p];
}

static void term_map(Legal *l, const IrBlock *blk) {
  IrEdge e[2];
  if (blk->term == IR_RET) { ir_ret(&l->b); return; }
  edge_map(l, &blk->edge[0], &e[0]);
  if (blk->term == IR_JMP) { ir_jmp(&l->b, e[0].block, e[0].args, e[0].n_args); return; }
  edge_map(l, &blk->edge[1], &e[1]);
  ir_br(&l->b, part(l, blk->cond, 0), e[0].block, e[0].args, e[0].n_args, e[1].block, e[1].args, e[1].n_args);
}

IrFn *gen_legalize(Arena *a, const IrFn *fn, const Target *t) {
  Legal l = {.src = fn, .t = t, .b = {ir_fn_new(a, fn->name), 0}};
  l.map = ARENA_ARRAY(a, IrRef, fn->n_ins * MAX_PARTS);
  l.block = ARENA_ARRAY(a, int, fn->n_blocks);
  l.order = ARENA_ARRAY(a, int, fn->n_blocks);
  for (int i = 0; i < fn->n_blocks; i++) l.block[i] = -1;
  block_visit(&l, 0);
  for (int i = 0; i < l.n_order; i++) {
    const IrBlock *blk = &fn->blocks[l.order[i]];
    int to = l.block[l.order[i]] = i < l.b.fn->n_blocks ? i : ir_block_add(l.b.fn);
    for (int k = 0; k < blk->n_params; k++) {
      IrType ty = ir_type_of(fn, blk->params[k]);
      for (int p = 0; p < type_parts(&l, ty); p++) l.map[blk->params[k] * MAX_PARTS + p] = ir_param(l.b.fn, to, type_map(&l, ty));
    }
  }
  for (int i = 0; i < l.n_order; i++) {
    const IrBlock *blk = &fn->blocks[l.order[i]];
    l.b.at = i;
    for (int k = 0; k < blk->n_ins; k++) split_ins(&l, blk->ins[k]);
    term_map(&l, blk);
  }
  return l.b.fn;
}
