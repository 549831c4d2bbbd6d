/* Expressions to IR. An expression is emitted for all rows of a register tile at once: what does not depend on the row is emitted once,
   what does is emitted per row in lockstep, so that a contraction becomes the classic register tile without anybody naming it.
   Vectors are `lanes` consecutive values of one axis. In: an expression and the bindings of its axes. Out: IR values. */
#include <string.h>
#include "opt/emit.h"

enum { MAX_STEPS = 1 << 24, MAX_INS = 1 << 18 };

void emit_fail(Emit *e, Err *err) {
  if (e->err) err_free(err);
  else e->err = err;
}

/* ---- linear forms -------------------------------------------------------------------------------------------------- */
Lin lin_const(int64_t k) { return (Lin){.k = k}; }
Lin lin_ref(IrRef v, int64_t coef) { return (Lin){.n = 1, .t = {{v, coef}}}; }

Lin lin_scale(Lin a, int64_t c) {
  if (c == 0) return lin_const(0);
  for (int i = 0; i < a.n; i++) a.t[i].c *= c;
  a.k *= c;
  a.lane *= c;
  return a;
}

Lin lin_add(Emit *e, Lin a, Lin b) {
  for (int i = 0; i < b.n; i++) {
    int k = 0;
    while (k < a.n && a.t[k].v != b.t[i].v) k++;
    if (k == LIN_TERMS) {
      emit_fail(e, err_new(ERR_LIMIT, "an index has more than %d terms", LIN_TERMS));
      return a;
    }
    if (k == a.n) a.t[a.n++].v = b.t[i].v, a.t[k].c = 0;
    a.t[k].c += b.t[i].c;
    if (a.t[k].c == 0) a.t[k] = a.t[--a.n];
  }
  a.k += b.k;
  a.lane += b.lane;
  return a;
}

/* Outer loops' values come first, so that partial sums can leave inner loops. */
static IrRef lin_sum(Emit *e, Lin *l) {
  IrRef sum = 0;
  for (int i = 1; i < l->n; i++)
    for (int k = i; k > 0 && l->t[k - 1].v > l->t[k].v; k--) {
      IrRef v = l->t[k].v;
      int64_t c = l->t[k].c;
      l->t[k] = l->t[k - 1];
      l->t[k - 1].v = v, l->t[k - 1].c = c;
    }
  for (int i = 0; i < l->n; i++) {
    IrRef t = l->t[i].v;
    if (l->t[i].c != 1) t = ir_op2(&e->b, IR_mul, t, ir_const_i(&e->b, IR_T_i64, l->t[i].c));
    sum = sum ? ir_op2(&e->b, IR_add, sum, t) : t;
  }
  return sum;
}

IrRef lin_value(Emit *e, Lin l) {
  IrRef sum = lin_sum(e, &l);
  if (!sum) return ir_const_i(&e->b, IR_T_i64, l.k);
  return l.k ? ir_op2(&e->b, IR_add, sum, ir_const_i(&e->b, IR_T_i64, l.k)) : sum;
}

uint64_t lin_hash(const Lin *l, uint64_t h) {
  uint64_t k[2] = {h, (uint64_t)l->k}; /* h and k are small numbers: mixed one after the other, or 6 and 1 would be 7 and 0 */
  h = hash_bytes(k, sizeof k, 0);
  for (int i = 0; i < l->n; i++) {
    uint64_t t[2] = {(uint64_t)l->t[i].v, (uint64_t)l->t[i].c};
    h = hash_bytes(t, sizeof t, h);
  }
  return h;
}

IrRef emit_made(const Emit *e, Made *m, uint64_t key) {
  if (m->block != e->b.at) m->n = 0, m->block = e->b.at;
  for (int i = 0; i < m->n; i++) if (m->at[i].key == key) return m->at[i].v;
  return 0;
}

IrRef emit_keep(Made *m, uint64_t key, IrRef v) {
  if (m->n == (int)COUNT_OF(m->at)) m->n = 0;
  m->at[m->n].key = key;
  m->at[m->n++].v = v;
  return v;
}

/* l / D or l % D where it takes instructions, made once in a block. */
static IrRef divided(Emit *e, Lin l, int64_t D, bool mod) {
  uint64_t key = lin_hash(&l, (uint64_t)D * 2 + mod);
  IrRef d = emit_made(e, &e->div, key);
  if (d) return d;
  IrRef v = lin_value(e, l);
  int sh = 0;
  while ((int64_t)1 << sh < D) sh++;
  if ((int64_t)1 << sh == D) d = mod ? ir_op2(&e->b, IR_and, v, ir_const_i(&e->b, IR_T_i64, D - 1)) : ir_shift(&e->b, IR_shr, v, sh);
  else d = ir_op2(&e->b, mod ? IR_urem : IR_udiv, v, ir_const_i(&e->b, IR_T_i64, D));
  return emit_keep(&e->div, key, d);
}

/* (l / D, l % D) for nonnegative l, lanes allowed when they do not cross a multiple of D. */
Lin lin_divmod(Emit *e, Lin l, int64_t D, bool mod) {
  int64_t lane = l.lane, g = D;
  for (int i = 0; i < l.n; i++) g = dx_gcd(g, l.t[i].c);
  l.lane = 0;
  if (lane && (lane != 1 || g % e->lanes || l.k % e->lanes || D % e->lanes)) emit_fail(e, err_new(ERR_UNSUPPORTED, "a division splits lanes"));
  Lin r;
  int64_t low = l.k >= 0 ? l.k % g : 0; /* below what the rest is a multiple of: it stays in the remainder */
  l.k -= low;
  if (g == D && l.k >= 0) {
    r = mod ? lin_const(low) : l;
    for (int i = 0; !mod && i < r.n; i++) r.t[i].c /= D;
    if (!mod) r.k /= D;
  } else {
    if (l.k % g == 0) { /* how many times g: what the result is a multiple of stays known */
      for (int i = 0; i < l.n; i++) l.t[i].c /= g;
      l.k /= g, D /= g;
    } else g = 1;
    r = lin_ref(divided(e, l, D, mod), mod ? g : 1);
    if (mod) r.k = low;
  }
  if (mod) r.lane = lane;
  return r;
}

static int arg_slot(const Emit *e, int what) {
  for (int i = 0; i < e->r->n_args; i++) if (e->r->arg[i] == what) return i;
  CHECK(false, "region %s has no argument %d", e->r->name, what);
  return 0;
}

Lin lin_of(Emit *e, Dx x) {
  const DxNode *n = &e->d->node[x];
  int64_t v;
  if (n->kind == DX_INT) return lin_const(n->ival);
  if (n->kind == DX_SYM) return lin_ref(e->arg[arg_slot(e, ~(int)n->ival)], 1);
  if (n->kind == DX_AXIS) {
    Lin l = e->axis[n->ival];
    if (n->ival == e->row_axis && e->n_rows > 1) l.k += e->row / e->blocks;
    if (n->ival == e->lane_axis && e->blocks > 1) l.k += (int64_t)e->lanes * (e->row % e->blocks);
    return l;
  }
  if (n->kind == DX_OP && n->n_args == 2) {
    Dx a = n->arg[0], b = n->arg[1];
    if (n->op == DXO_ADD) { Lin la = lin_of(e, a); return lin_add(e, la, lin_of(e, b)); }
    if (n->op == DXO_SUB) { Lin la = lin_of(e, a); return lin_add(e, la, lin_scale(lin_of(e, b), -1)); }
    if (n->op == DXO_MUL && dx_is_int(e->d, b, &v)) return lin_scale(lin_of(e, a), v);
    if (n->op == DXO_MUL && dx_is_int(e->d, a, &v)) return lin_scale(lin_of(e, b), v);
    if ((n->op == DXO_DIV || n->op == DXO_MOD) && dx_is_int(e->d, b, &v) && v > 0) return lin_divmod(e, lin_of(e, a), v, n->op == DXO_MOD);
  }
  int lane_axis = e->lane_axis;
  if (lane_axis >= 0 && n->axes >> lane_axis & 1) emit_fail(e, err_new(ERR_UNSUPPORTED, "an index is not linear in the lanes"));
  int n_rows = e->n_rows;
  Vals val = emit(e, x);
  e->n_rows = n_rows;
  return lin_ref(ir_op1(&e->b, IR_sext, emit_pick(e, val, e->row, false)), 1);
}

/* ---- memory -------------------------------------------------------------------------------------------------------- */
static IrType elt_type(IrMem m, int lanes) {
  return ir_vec_type(m == IR_M_f16 || m == IR_M_bf16 || m == IR_M_f32 ? IR_E_F32 : IR_E_I32, lanes);
}

IrRef emit_load_at(Emit *e, IrMem m, int lanes, IrRef ptr, Lin byte) {
  uint64_t key[3] = {(uint64_t)m, (uint64_t)lanes, (uint64_t)ptr}, h = lin_hash(&byte, hash_bytes(key, sizeof key, 0));
  IrRef v = emit_made(e, &e->load, h);
  if (v) return v;
  IrRef idx = lin_sum(e, &byte);
  return emit_keep(&e->load, h, ir_load(&e->b, m, elt_type(m, lanes), ptr, idx, 1, byte.k));
}

void emit_prefetch_at(Emit *e, IrRef ptr, Lin byte) {
  IrRef idx = lin_sum(e, &byte);
  ir_prefetch(&e->b, ptr, idx, 1, byte.k);
}

void emit_store_at(Emit *e, IrMem m, IrRef ptr, Lin byte, IrRef v, int n_lanes) {
  IrRef idx = lin_sum(e, &byte);
  e->load.n = 0;
  ir_store(&e->b, m == IR_M_i8 ? IR_M_u8 : m == IR_M_i16 ? IR_M_u16 : m, ptr, idx, 1, byte.k, v, n_lanes);
}

IrMem buf_mem(const Emit *e, int buf) { return e->p->buf[buf].mem; }

static bool is_local(const Emit *e, int buf) { return e->p->buf[buf].local == e->region; }

IrRef buf_base(Emit *e, int buf) { return is_local(e, buf) ? e->scratch : e->arg[arg_slot(e, tp_root(e->p, buf))]; }

/* Elements between neighbours along each dimension; 0 for those a local buffer does not keep. The outermost kept one is padded to 16. */
void emit_buf_strides(const Emit *e, int buf, int64_t *stride) {
  const TpBuf *b = &e->p->buf[buf];
  int first = is_local(e, buf) ? e->r->n_par : 0;
  int64_t s = 1;
  for (int i = b->n_dims - 1; i >= 0; i--) {
    if (i == first && i < b->n_dims - 1) s = first ? ROUND_UP(s, 16) : tp_row_pad(s, b->mem);
    stride[i] = i < first ? 0 : s;
    if (i > first) s *= tp_dim_elems(e->p, b, i, NULL);
  }
  if (!first && b->pitch) stride[0] = b->pitch;
}

/* The part of a sum that is x % n, or c times that; 0: none is. */
static Dx find_mod(const Dag *d, Dx sum, Dx x, Dx n, int64_t *c) {
  const DxNode *s = &d->node[sum];
  *c = 1;
  if (s->kind != DX_OP || s->n_args != 2) return 0;
  if (s->op == DXO_MOD) return s->arg[0] == x && s->arg[1] == n ? sum : 0;
  if (s->op == DXO_MUL) return dx_is_int(d, s->arg[1], c) && d->node[s->arg[0]].op == DXO_MOD && find_mod(d, s->arg[0], x, n, &(int64_t){0}) ? sum : 0;
  if (s->op != DXO_ADD) return 0;
  Dx a = find_mod(d, s->arg[0], x, n, c);
  return a ? a : find_mod(d, s->arg[1], x, n, c);
}

static Lin lin_without(Emit *e, Dx sum, Dx part) {
  const DxNode *s = &e->d->node[sum];
  if (sum == part) return lin_const(0);
  if (s->kind != DX_OP || s->op != DXO_ADD) return lin_of(e, sum);
  Dx a = s->arg[0], b = s->arg[1];
  Lin l = lin_without(e, a, part);
  return lin_add(e, l, lin_without(e, b, part));
}

/* x / n, and x % n times c in the next dimension, which lie so that together they are x: it, else 0. part: the second, a part of its index. */
static Dx cut_up(const Dag *d, Dx outer, Dx inner, int64_t outer_stride, int64_t stride, Dx *part, int64_t *c) {
  const DxNode *a = &d->node[outer];
  int64_t n;
  if (a->kind != DX_OP || a->op != DXO_DIV || !dx_is_int(d, a->arg[1], &n)) return 0;
  *part = find_mod(d, inner, a->arg[0], a->arg[1], c);
  return *part && n * *c * stride == outer_stride ? a->arg[0] : 0;
}

Lin buf_index(Emit *e, int buf, const Dx *index, int n_index) {
  int64_t stride[IR_MAX_DIMS], c = 1;
  Lin l = lin_const(0);
  emit_buf_strides(e, buf, stride);
  for (int i = n_index - 1; i >= 0; i--) {
    Dx part = 0, whole = i > 0 && stride[i] ? cut_up(e->d, index[i - 1], index[i], stride[i - 1], stride[i], &part, &c) : 0;
    if (whole) {
      l = lin_add(e, l, lin_scale(lin_of(e, whole), c * stride[i]));
      l = lin_add(e, l, lin_scale(lin_without(e, index[i], part), stride[i]));
      i--;
    } else if (stride[i]) l = lin_add(e, l, lin_scale(lin_of(e, index[i]), stride[i]));
  }
  return l;
}

/* ---- values -------------------------------------------------------------------------------------------------------- */
static Vals one(Emit *e, IrRef v, bool vec) {
  Vals r = {1, vec, ARENA_NEW(e->a, IrRef)};
  r.v[0] = v;
  return r;
}

IrRef emit_pick(Emit *e, Vals v, int row, bool vec) {
  if (v.n > 1 && v.n < e->n_rows) row /= e->blocks; /* made before the rows were doubled by blocks of lanes */
  IrRef r = v.v[v.n == 1 ? 0 : row];
  return vec && !v.vec ? ir_splat(&e->b, r, e->lanes) : r;
}

int emit_mark(Emit *e) { return e->n_stack; }

void emit_forget(Emit *e, int mark) {
  while (e->n_stack > mark) e->memo[e->stack[--e->n_stack]] = NULL;
  e->load.n = 0;
}

void emit_forget_axis(Emit *e, int mark, int axis) {
  int n = mark;
  for (int i = mark; i < e->n_stack; i++) {
    if (e->d->node[e->stack[i]].axes >> axis & 1) e->memo[e->stack[i]] = NULL;
    else e->stack[n++] = e->stack[i];
  }
  e->n_stack = n;
}

static void remember(Emit *e, Dx x, Vals v) {
  e->memo[x] = ARENA_NEW(e->a, Vals);
  *e->memo[x] = v;
  PUSH(e->a, e->stack, e->n_stack, e->cap_stack, x);
}

static bool in_lanes(const Emit *e, Dx x) { return e->lane_axis >= 0 && e->d->node[x].axes >> e->lane_axis & 1; }
bool emit_in_rows(const Emit *e, Dx x) {
  uint32_t axes = e->d->node[x].axes;
  return e->n_rows > 1 && (axes >> e->row_axis & 1 || (e->blocks > 1 && e->lane_axis >= 0 && axes >> e->lane_axis & 1));
}

static IrRef pow2_shift(Emit *e, IrOp op, IrRef a, IrRef by) {
  int64_t k;
  if (!ir_is_const(e->fn, by, &k) || k < 0 || k > 31) {
    emit_fail(e, err_new(ERR_UNSUPPORTED, "a shift by an amount that is not constant"));
    return a;
  }
  return ir_shift(&e->b, op, a, (int)k);
}

static const uint8_t int_op[DXO_COUNT] = {
  [DXO_ADD] = IR_add, [DXO_SUB] = IR_sub, [DXO_MUL] = IR_mul, [DXO_AND] = IR_and, [DXO_OR] = IR_or, [DXO_XOR] = IR_xor, [DXO_MIN] = IR_smin,
  [DXO_MAX] = IR_smax,
};
static const uint8_t f32_op[DXO_COUNT] = {
  [DXO_ADD] = IR_fadd, [DXO_SUB] = IR_fsub, [DXO_MUL] = IR_fmul, [DXO_DIV] = IR_fdiv, [DXO_MIN] = IR_fmin, [DXO_MAX] = IR_fmax, [DXO_NEG] = IR_fneg,
  [DXO_ABS] = IR_fabs, [DXO_SQRT] = IR_fsqrt, [DXO_RINT] = IR_frint, [DXO_FLOOR] = IR_ffloor,
};
static const uint8_t pred_of[DXO_COUNT] = {[DXO_EQ] = IR_P_eq, [DXO_NE] = IR_P_ne, [DXO_LT] = IR_P_lt, [DXO_LE] = IR_P_le, [DXO_GT] = IR_P_gt, [DXO_GE] = IR_P_ge};

/* type: of the arguments (for COND, of the branches). logical: SHR brings zeros in. Arguments have equal lanes. */
IrRef emit_op(Emit *e, DxOp op, DxType type, const IrRef *a, int n_args, bool logical) {
  IrBuild *b = &e->b;
  IrType t = ir_type_of(e->fn, a[0]);
  if (pred_of[op]) return ir_cmp(b, type == DT_F32 ? IR_fcmp : IR_icmp, (IrPred)pred_of[op], a[0], a[1]);
  switch (op) {
    case DXO_SHL: return pow2_shift(e, IR_shl, a[0], a[1]);
    case DXO_SHR: return pow2_shift(e, logical ? IR_shr : IR_sar, a[0], a[1]);
    case DXO_LAND: return ir_op2(b, IR_band, a[0], a[1]);
    case DXO_LOR: return ir_op2(b, IR_bor, a[0], a[1]);
    case DXO_LNOT: return ir_op2(b, IR_bxor, a[0], ir_const_i(b, t, 1));
    case DXO_COND: return ir_op3(b, IR_select, a[0], a[1], a[2]);
    case DXO_FMA: return ir_op3(b, IR_fma, a[0], a[1], a[2]);
    case DXO_TOF: return ir_op1(b, IR_i2f, a[0]);
    case DXO_TOI: return type == DT_F32 ? ir_op1(b, IR_f2i, a[0]) : a[0];
    case DXO_I8: return ir_shift(b, IR_sar, ir_shift(b, IR_shl, type == DT_F32 ? ir_op1(b, IR_f2i, a[0]) : a[0], 24), 24);
    case DXO_BITF: case DXO_BITI: return ir_op1(b, IR_bits, a[0]);
    default: break;
  }
  if (type == DT_F32 && f32_op[op]) return n_args == 1 ? ir_op1(b, (IrOp)f32_op[op], a[0]) : ir_op2(b, (IrOp)f32_op[op], a[0], a[1]);
  IrRef zero = ir_const_i(b, t, 0);
  if (op == DXO_NEG) return ir_op2(b, IR_sub, zero, a[0]);
  if (op == DXO_ABS) return ir_op2(b, IR_smax, a[0], ir_op2(b, IR_sub, zero, a[0]));
  CHECK(int_op[op], "expression op %d has no IR", op);
  return ir_op2(b, (IrOp)int_op[op], a[0], a[1]);
}

static Vals emit_reduce(Emit *e, Dx x, Vals *init);

static Vals emit_op_node(Emit *e, Dx x) {
  const DxNode n = e->d->node[x];
  if (n.op == DXO_ADD && n.type == DT_INT && !e->matrix) { /* an integer sum starts from what is added to it: exact, and free; not in tiles */
    for (int i = 0; i < 2; i++) {
      const DxNode *r = &e->d->node[n.arg[i]];
      if (r->kind != DX_RED || r->op != RED_ISUM || !in_lanes(e, n.arg[i])) continue;
      Vals init = emit(e, n.arg[1 - i]);
      return emit_reduce(e, n.arg[i], &init);
    }
  }
  Vals a[3];
  bool vec = false;
  int rows = 1;
  for (int i = 0; i < n.n_args; i++) {
    a[i] = emit(e, n.arg[i]);
    vec |= a[i].vec;
    if (a[i].n > 1) rows = e->n_rows;
  }
  Vals r = {rows, vec, ARENA_ARRAY(e->a, IrRef, rows)};
  for (int k = 0; k < rows; k++) {
    IrRef v[3];
    bool scalar_amount = (n.op == DXO_SHL || n.op == DXO_SHR) && !a[1].vec;
    for (int i = 0; i < n.n_args; i++) v[i] = emit_pick(e, a[i], k, vec && !(scalar_amount && i == 1) && !(n.op == DXO_COND && i == 0 && !a[0].vec));
    r.v[k] = emit_node_op(e, e->d, x, NULL, v);
  }
  return r;
}

static bool lin_same(const Lin *a, const Lin *b) {
  bool same = a->n == b->n && a->k == b->k && a->lane == b->lane;
  for (int i = 0; same && i < a->n; i++) same = a->t[i].v == b->t[i].v && a->t[i].c == b->t[i].c;
  return same;
}

/* Every second number of 16 bits: the low or the high halves of words. */
static IrRef load_seconds(Emit *e, IrRef ptr, Lin byte) {
  bool high = byte.k % 4 == 2;
  for (int i = 0; i < byte.n; i++) high = high && byte.t[i].c % 4 == 0;
  if (high) byte.k -= 2;
  IrRef w = emit_load_at(e, IR_M_i32, e->lanes, ptr, byte);
  return ir_op1(&e->b, IR_bits, high ? ir_op2(&e->b, IR_and, w, ir_const_i(&e->b, elt_type(IR_M_i32, e->lanes), -65536)) : ir_shift(&e->b, IR_shl, w, 16));
}

/* as: the kind of memory that is read from where the element lies. */
static Vals load_as(Emit *e, Dx x, IrMem as) {
  const DxNode n = e->d->node[x];
  int buf = (int)n.ival;
  if (is_local(e, buf) && e->local[buf].kind == LOCAL_VALUE) {
    Vals v = e->local[buf].val;
    if (v.n == 1) return v;
    if (e->n_rows == 1) return (Vals){1, v.vec, v.v + e->tile_row};
    Vals all = {e->n_rows, v.vec, ARENA_ARRAY(e->a, IrRef, e->n_rows)};
    for (int k = 0; k < all.n; k++) all.v[k] = v.v[e->local[buf].by_blocks ? k : e->tile_row + k / e->blocks];
    return all;
  }
  int rows = emit_in_rows(e, x) ? e->n_rows : 1;
  Vals r = {rows, in_lanes(e, x), ARENA_ARRAY(e->a, IrRef, rows)};
  Lin *at = ARENA_ARRAY(e->a, Lin, rows);
  for (int k = 0; k < rows; k++) {
    e->row = k;
    if (e->p->buf[buf].blocks) {
      r.v[k] = emit_block_element(e, &n, r.vec);
      continue;
    }
    int64_t off = is_local(e, buf) ? e->local[buf].off + e->local[buf].row_bytes * (e->tile_row + k / e->blocks) : 0;
    Lin l = lin_scale(buf_index(e, buf, n.arg, n.n_args), ir_mem_bytes[buf_mem(e, buf)]);
    bool contiguous = l.lane == ir_mem_bytes[as], seconds = r.vec && as == IR_M_bf16 && l.lane == 4;
    if (!seconds && r.vec && l.lane != 0 && !contiguous) emit_fail(e, err_new(ERR_UNSUPPORTED, "%s: a load is not contiguous over the lanes", e->p->buf[buf].name));
    if (as == IR_M_u16 && buf_mem(e, buf) == IR_M_f32) off += 2; /* the upper half */
    l.k += off;
    l.lane = 0;
    at[k] = l;
    int before = 0; /* rows that read the same place share the load */
    while (before < k && !lin_same(&at[before], &l)) before++;
    if (before < k) {
      r.v[k] = r.v[before];
      continue;
    }
    if (seconds) {
      r.v[k] = load_seconds(e, buf_base(e, buf), l);
      continue;
    }
    IrRef v = emit_load_at(e, as, r.vec && contiguous ? e->lanes : 1, buf_base(e, buf), l);
    r.v[k] = r.vec && !contiguous ? ir_splat(&e->b, v, e->lanes) : v;
  }
  e->row = 0;
  return r;
}

static Vals emit_load(Emit *e, Dx x) { return load_as(e, x, buf_mem(e, (int)e->d->node[x].ival)); }
Vals emit_load_pairs(Emit *e, Dx x) { return load_as(e, x, IR_M_i32); }
Vals emit_load_upper(Emit *e, Dx x) { return load_as(e, x, IR_M_u16); }

bool emit_is_word(const Emit *e, Dx x) {
  const DxNode *n = &e->d->node[x];
  return n->kind == DX_LOAD && buf_mem(e, (int)n->ival) == IR_M_f32 && !e->p->buf[n->ival].blocks && e->local[n->ival].kind != LOCAL_VALUE && !in_lanes(e, x);
}

static Vals emit_axis(Emit *e, Dx x) {
  int rows = emit_in_rows(e, x) ? e->n_rows : 1;
  Vals r = {rows, in_lanes(e, x), ARENA_ARRAY(e->a, IrRef, rows)};
  for (int k = 0; k < rows; k++) {
    e->row = k;
    Lin l = lin_of(e, x);
    bool lane = l.lane != 0;
    l.lane = 0;
    IrRef v = ir_op1(&e->b, IR_trunc, lin_value(e, l));
    if (r.vec) v = ir_splat(&e->b, v, e->lanes);
    r.v[k] = lane ? ir_op2(&e->b, IR_add, v, ir_iota(&e->b, e->lanes)) : v;
  }
  e->row = 0;
  return r;
}

/* Every road to more code comes through here. */
static bool is_spent(Emit *e) {
  if (!e->err && (++e->n_steps > MAX_STEPS || e->fn->n_ins > MAX_INS)) emit_fail(e, err_new(ERR_LIMIT, "its code would be too long: sums inside sums are written out"));
  return e->err != NULL;
}

Vals emit(Emit *e, Dx x) {
  const DxNode *n = &e->d->node[x];
  if (is_spent(e)) return one(e, n->type == DT_F32 ? ir_const_f(&e->b, IR_T_f32, 0) : ir_const_i(&e->b, n->type == DT_BOOL ? IR_T_i1 : IR_T_i32, 0), false);
  if (e->memo[x]) return *e->memo[x];
  Vals v;
  switch (n->kind) {
    case DX_INT: v = one(e, ir_const_i(&e->b, n->type == DT_BOOL ? IR_T_i1 : IR_T_i32, n->ival), false); break;
    case DX_FLT: v = one(e, ir_const_f(&e->b, IR_T_f32, n->fval), false); break;
    case DX_SYM: case DX_AXIS: v = emit_axis(e, x); break;
    case DX_LOAD: v = emit_load(e, x); break;
    case DX_WGT: v = emit_weight(e, x); break;
    case DX_OP: if (!emit_from_panel(e, x, &v) && !emit_steps(e, x, NULL, &v)) v = emit_op_node(e, x); break;
    case DX_RED: v = emit_reduce(e, x, NULL); break;
    default: CHECK(false, "a node of kind %d outside its place", n->kind); v = one(e, 0, false);
  }
  remember(e, x, v);
  return v;
}

/* ---- loops --------------------------------------------------------------------------------------------------------- */
void loop_begin(Emit *e, Loop *l, IrRef n, bool never_empty, const IrRef *init, int n_init) {
  IrRef zero = ir_const_i(&e->b, IR_T_i64, 0), args[1 + COUNT_OF(l->carried)];
  int64_t k;
  l->n = n;
  l->n_carried = n_init;
  l->body = ir_block_add(e->fn);
  l->exit = ir_block_add(e->fn);
  args[0] = zero;
  for (int i = 0; i < n_init; i++) args[i + 1] = init[i];
  if (never_empty || (ir_is_const(e->fn, n, &k) && k > 0)) ir_jmp(&e->b, l->body, args, n_init + 1);
  else ir_br(&e->b, ir_cmp(&e->b, IR_icmp, IR_P_gt, n, zero), l->body, args, n_init + 1, l->exit, args + 1, n_init);
  l->iv = ir_param(e->fn, l->body, IR_T_i64);
  for (int i = 0; i < n_init; i++) l->carried[i] = ir_param(e->fn, l->body, ir_type_of(e->fn, init[i]));
  e->b.at = l->body;
  l->mark = emit_mark(e);
  e->load.n = 0;
}

void loop_end(Emit *e, Loop *l, const IrRef *next) {
  IrRef args[1 + COUNT_OF(l->carried)];
  args[0] = ir_op2(&e->b, IR_add, l->iv, ir_const_i(&e->b, IR_T_i64, 1));
  for (int i = 0; i < l->n_carried; i++) args[i + 1] = next[i];
  ir_br(&e->b, ir_cmp(&e->b, IR_icmp, IR_P_lt, args[0], l->n), l->body, args, l->n_carried + 1, l->exit, args + 1, l->n_carried);
  for (int i = 0; i < l->n_carried; i++) l->carried[i] = ir_param(e->fn, l->exit, ir_type_of(e->fn, next[i]));
  e->b.at = l->exit;
  emit_forget(e, l->mark);
}

/* ---- reductions ---------------------------------------------------------------------------------------------------- */
static IrRef identity(Emit *e, const DxNode *n, int lanes) {
  IrType t = ir_vec_type(n->type == DT_F32 ? IR_E_F32 : IR_E_I32, lanes);
  if (n->op == RED_ISUM || n->op == RED_SUM || n->op == RED_CHAIN) return n->type == DT_F32 ? ir_const_f(&e->b, t, 0) : ir_const_i(&e->b, t, 0);
  bool max = n->op == RED_MAX;
  if (n->type == DT_F32) return ir_const_f(&e->b, t, f32_from_bits(max ? 0xff800000u : 0x7f800000u));
  return ir_const_i(&e->b, t, max ? INT32_MIN : INT32_MAX);
}

/* A product, or a sum of nothing but products. */
static bool of_products(const Dag *d, Dx x) {
  const DxNode *n = &d->node[x];
  if (n->kind != DX_OP || n->type != DT_F32) return false;
  return n->op == DXO_MUL || (n->op == DXO_ADD && of_products(d, n->arg[0]) && of_products(d, n->arg[1]));
}

static void add_term(Emit *e, const DxNode *red, Dx term, Vals *acc) {
  if (is_spent(e)) return;
  if (red->op == RED_CHAIN && emit_pair(e, term, acc)) return;
  Vals sum;
  if (red->op == RED_ISUM && acc->vec && acc->n == e->n_rows && emit_steps(e, term, acc, &sum)) {
    memcpy(acc->v, sum.v, sizeof(IrRef) * (size_t)sum.n);
    return;
  }
  const DxNode n = e->d->node[term];
  if (red->op == RED_CHAIN && n.kind == DX_OP && n.op == DXO_ADD && of_products(e->d, term)) { /* each product in turn */
    add_term(e, red, n.arg[0], acc);
    add_term(e, red, n.arg[1], acc);
    return;
  }
  bool product = n.kind == DX_OP && n.op == DXO_MUL && n.type == DT_F32 && (red->op == RED_CHAIN || red->op == RED_SUM);
  Vals a = emit(e, product ? n.arg[0] : term), b = product ? emit(e, n.arg[1]) : a;
  for (int k = 0; k < acc->n; k++) {
    IrRef x = emit_pick(e, a, k, acc->vec);
    if (product) acc->v[k] = ir_op3(&e->b, IR_fma, x, emit_pick(e, b, k, acc->vec), acc->v[k]);
    else if (red->op == RED_MAX) acc->v[k] = ir_op2(&e->b, red->type == DT_F32 ? IR_fmax : IR_smax, acc->v[k], x);
    else if (red->op == RED_MIN) acc->v[k] = ir_op2(&e->b, red->type == DT_F32 ? IR_fmin : IR_smin, acc->v[k], x);
    else acc->v[k] = ir_op2(&e->b, red->type == DT_F32 ? IR_fadd : IR_add, acc->v[k], x);
  }
}

static void steps(Emit *e, const DxNode *red, Lin first, int64_t n, Vals *acc) {
  int axis = (int)red->ival;
  Lin saved = e->axis[axis];
  int mark = emit_mark(e);
  for (int64_t u = 0; u < n; u++) {
    e->axis[axis] = first;
    e->axis[axis].k += u;
    add_term(e, red, red->arg[1], acc);
    emit_forget_axis(e, mark, axis);
  }
  e->axis[axis] = saved;
}

enum { UNROLL_WHOLE = 64, UNROLL_CHAIN = 16, UNROLL = 8 };

/* The least or greatest over the tile's rows of an integer that depends on the row. */
IrRef emit_row_bound(Emit *e, Dx x, IrOp op) {
  IrRef r = 0;
  for (int k = 0; k < e->n_rows; k++) {
    e->row = k;
    IrRef v = lin_value(e, lin_of(e, x));
    r = r ? ir_op2(&e->b, op, r, v) : v;
  }
  e->row = 0;
  return r;
}

/* What was made for rows in lockstep is not for one alone. The stack keeps its places: outer marks point into it. */
static void forget_rows(Emit *e) {
  for (int i = 0; i < e->n_stack; i++) {
    uint32_t axes = e->d->node[e->stack[i]].axes;
    if (axes >> e->row_axis & 1 || (e->lane_axis >= 0 && axes >> e->lane_axis & 1)) e->memo[e->stack[i]] = NULL;
  }
}

/* Each row goes on alone, with all its blocks of lanes: the sums of the others stay where they are. */
static void rest_alone(Emit *e, const DxNode *n, IrRef least, const IrRef *len, Vals *acc) {
  int rows = e->n_rows / e->blocks, lockstep = e->n_rows, tile_row = e->tile_row;
  Lin row = e->axis[e->row_axis];
  Loop l;
  e->n_rows = e->blocks;
  for (int k = 0; k < rows; k++) {
    Vals one = {e->blocks, acc->vec, acc->v + k * e->blocks};
    forget_rows(e);
    e->axis[e->row_axis].k = row.k + k;
    e->tile_row = tile_row + k;
    loop_begin(e, &l, ir_op2(&e->b, IR_sub, len[k], least), false, one.v, one.n);
    memcpy(one.v, l.carried, sizeof(IrRef) * (size_t)one.n);
    steps(e, n, lin_ref(ir_op2(&e->b, IR_add, least, l.iv), 1), 1, &one);
    loop_end(e, &l, one.v);
    memcpy(one.v, l.carried, sizeof(IrRef) * (size_t)one.n);
  }
  forget_rows(e);
  e->axis[e->row_axis] = row;
  e->n_rows = lockstep, e->tile_row = tile_row;
}

/* All go on, and each keeps its sum once past its end: one copy of a long body instead of one for each row. */
static void rest_together(Emit *e, const DxNode *n, IrRef least, const IrRef *len, Vals *acc) {
  Loop l;
  loop_begin(e, &l, ir_op2(&e->b, IR_sub, emit_row_bound(e, n->arg[0], IR_smax), least), false, acc->v, acc->n);
  memcpy(acc->v, l.carried, sizeof(IrRef) * (size_t)acc->n);
  IrRef at = ir_op2(&e->b, IR_add, least, l.iv);
  steps(e, n, lin_ref(at, 1), 1, acc);
  for (int k = 0; k < acc->n; k++) acc->v[k] = ir_op3(&e->b, IR_select, ir_cmp(&e->b, IR_icmp, IR_P_lt, at, len[k / e->blocks]), acc->v[k], l.carried[k]);
  loop_end(e, &l, acc->v);
  memcpy(acc->v, l.carried, sizeof(IrRef) * (size_t)acc->n);
}

/* Rows of different lengths: together as far as all go. */
static Vals reduce_ragged(Emit *e, const DxNode *n, bool is_long, Vals acc) {
  IrRef least = ir_op2(&e->b, IR_smax, emit_row_bound(e, n->arg[0], IR_smin), ir_const_i(&e->b, IR_T_i64, 0)), len[MAX_TILE_ROWS];
  Lin saved = e->axis[n->ival];
  for (int k = 0; k < e->n_rows / e->blocks; k++) {
    e->row = k * e->blocks;
    len[k] = lin_value(e, lin_of(e, n->arg[0]));
  }
  e->row = 0;
  Loop l;
  loop_begin(e, &l, least, false, acc.v, acc.n);
  memcpy(acc.v, l.carried, sizeof(IrRef) * (size_t)acc.n);
  steps(e, n, lin_ref(l.iv, 1), 1, &acc);
  loop_end(e, &l, acc.v);
  memcpy(acc.v, l.carried, sizeof(IrRef) * (size_t)acc.n);
  (is_long ? rest_together : rest_alone)(e, n, least, len, &acc);
  e->axis[n->ival] = saved;
  return acc;
}

static bool find_reduction(Dag *d, Dx x) {
  const DxNode *n = &d->node[x];
  if (n->kind == DX_RED) return true;
  if (!dag_walk_first(d, x)) return false;
  for (int i = 0; i < n->n_args; i++) if (find_reduction(d, n->arg[i])) return true;
  return false;
}

static bool has_reduction(Dag *d, Dx x) {
  dag_walk_begin(d);
  return find_reduction(d, x);
}

/* One accumulator per row (and lane), increasing order. */
static Vals reduce_in_order(Emit *e, Dx x, Vals *init) {
  const DxNode n = e->d->node[x];
  bool vec = in_lanes(e, x);
  Vals acc = {emit_in_rows(e, x) ? e->n_rows : 1, vec, NULL};
  acc.v = ARENA_ARRAY(e->a, IrRef, acc.n);
  for (int k = 0; k < acc.n; k++) acc.v[k] = init ? emit_pick(e, *init, k, vec) : identity(e, &n, vec ? e->lanes : 1);
  int64_t ext, unit = emit_unit(e, n.arg[1], (int)n.ival);
  bool fixed = dx_is_int(e->d, n.arg[0], &ext);
  if (!fixed && unit > 1) emit_fail(e, err_new(ERR_UNSUPPORTED, "a sum over weights has no fixed length"));
  bool is_long = has_reduction(e->d, n.arg[1]); /* a body with a sum of its own */
  if (fixed && unit < UNROLL && vec && !is_long) unit = ROUND_UP(UNROLL, unit);
  if (fixed && (ext <= unit || (!is_long && ext <= (n.op == RED_ISUM ? UNROLL_WHOLE : UNROLL_CHAIN)))) {
    steps(e, &n, lin_const(0), ext, &acc);
    return acc;
  }
  if (!fixed && emit_in_rows(e, n.arg[0])) return reduce_ragged(e, &n, is_long, acc);
  IrRef count = fixed ? ir_const_i(&e->b, IR_T_i64, ext / unit) : lin_value(e, lin_of(e, n.arg[0]));
  Loop l;
  loop_begin(e, &l, count, false, acc.v, acc.n);
  memcpy(acc.v, l.carried, sizeof(IrRef) * (size_t)acc.n);
  steps(e, &n, lin_ref(l.iv, unit), unit, &acc);
  loop_end(e, &l, acc.v);
  memcpy(acc.v, l.carried, sizeof(IrRef) * (size_t)acc.n);
  if (fixed && ext % unit) steps(e, &n, lin_const(ext / unit * unit), ext % unit, &acc);
  return acc;
}

/* One vector step of a striped reduction at elements first .. first+15. Contiguous: those of `active` (i1x16, 0: all) count, and all are read;
   else n elements, and no other is read. */
static IrRef stripe_step(Emit *e, const DxNode *red, Lin first, bool contiguous, IrRef active, int n, IrRef acc) {
  int axis = (int)red->ival;
  Vals v = {1, true, &acc};
  IrRef old = acc;
  Lin saved = e->axis[axis];
  int mark = emit_mark(e);
  e->axis[axis] = first;
  if (contiguous) {
    e->axis[axis].lane = 1;
    add_term(e, red, red->arg[1], &v);
  } else { /* lane by lane: the same order, only slower */
    int lane_axis = e->lane_axis;
    e->lane_axis = -1;
    for (int i = 0; i < n; i++) {
      IrRef s = ir_extract(&e->b, old, i);
      Vals sv = {1, false, &s};
      e->axis[axis].k = first.k + i;
      add_term(e, red, red->arg[1], &sv);
      acc = ir_insert(&e->b, acc, s, i);
      emit_forget_axis(e, mark, axis);
    }
    e->lane_axis = lane_axis;
  }
  emit_forget_axis(e, mark, axis);
  e->axis[axis] = saved;
  return active ? ir_op3(&e->b, IR_select, active, acc, old) : acc;
}

/* Stripe l takes elements l, l+16, ..; then the tree. */
static IrRef reduce_striped(Emit *e, const DxNode *n) {
  int lane_axis = e->lane_axis, lanes = e->lanes, rows = e->n_rows, axis = (int)n->ival;
  Lin first = e->axis[axis];
  bool naive = e->s.naive;
  e->s.naive = false; /* vectors of the stripes are the definition, also in the oracle's form */
  bool contiguous = emit_lanes_fit(e, n->arg[1], axis, FULL_LANES);
  e->s.naive = naive;
  e->lane_axis = axis;
  e->lanes = FULL_LANES;
  int64_t ext;
  bool fixed = dx_is_int(e->d, n->arg[0], &ext);
  IrRef acc = identity(e, n, FULL_LANES), len = 0, full;
  if (fixed) full = ir_const_i(&e->b, IR_T_i64, ext / FULL_LANES);
  else {
    e->lane_axis = -1;
    len = lin_value(e, lin_of(e, n->arg[0]));
    e->lane_axis = axis;
    full = ir_shift(&e->b, IR_shr, len, 4);
  }
  if (fixed && ext / FULL_LANES <= 4 && contiguous) {
    for (int64_t i = 0; i < ext / FULL_LANES; i++) acc = stripe_step(e, n, lin_const(i * FULL_LANES), true, 0, FULL_LANES, acc);
  } else if (!fixed || ext >= FULL_LANES) {
    Loop l;
    loop_begin(e, &l, full, false, &acc, 1);
    acc = stripe_step(e, n, lin_ref(l.iv, FULL_LANES), contiguous, 0, FULL_LANES, l.carried[0]);
    loop_end(e, &l, &acc);
    acc = l.carried[0];
  }
  contiguous = contiguous && !emit_reads_raw(e, n->arg[1]); /* buffers have room behind them, files end where they end */
  if (fixed && !contiguous && ext % FULL_LANES) acc = stripe_step(e, n, lin_const(ext / FULL_LANES * FULL_LANES), false, 0, (int)(ext % FULL_LANES), acc);
  else if (fixed ? ext % FULL_LANES != 0 : contiguous) {
    Lin at = fixed ? lin_const(ext / FULL_LANES * FULL_LANES) : lin_ref(full, FULL_LANES);
    IrRef rest = fixed ? ir_const_i(&e->b, IR_T_i32, ext % FULL_LANES) : ir_op1(&e->b, IR_trunc, ir_op2(&e->b, IR_and, len, ir_const_i(&e->b, IR_T_i64, FULL_LANES - 1)));
    IrRef active = ir_cmp(&e->b, IR_icmp, IR_P_lt, ir_iota(&e->b, FULL_LANES), ir_splat(&e->b, rest, FULL_LANES));
    acc = stripe_step(e, n, at, true, active, FULL_LANES, acc);
  } else if (!fixed) emit_fail(e, err_new(ERR_UNSUPPORTED, "a striped sum of unknown length over scattered elements"));
  e->lane_axis = lane_axis;
  e->lanes = lanes;
  e->n_rows = rows;
  e->axis[axis] = first;
  return ir_op1(&e->b, n->op == RED_MAX ? IR_rmax : n->op == RED_MIN ? IR_rmin : IR_radd, acc);
}

/* A short largest or least on every lane: each element is a stripe of its own, then the tree over them. */
static bool is_short(const Dag *d, const DxNode *n) {
  int64_t ext;
  return (n->op == RED_MAX || n->op == RED_MIN) && dx_is_int(d, n->arg[0], &ext) && ext >= 1 && ext <= FULL_LANES;
}

static Vals reduce_short(Emit *e, Dx x) {
  const DxNode n = e->d->node[x];
  int axis = (int)n.ival;
  int64_t ext = 0;
  Vals v[FULL_LANES];
  Lin saved = e->axis[axis];
  int mark = emit_mark(e), rows = emit_in_rows(e, x) ? e->n_rows : 1;
  bool flt = n.type == DT_F32;
  IrOp op = n.op == RED_MAX ? flt ? IR_fmax : IR_smax : flt ? IR_fmin : IR_smin;
  dx_is_int(e->d, n.arg[0], &ext);
  for (int64_t i = 0; i < ext; i++) {
    e->axis[axis] = lin_const(i);
    v[i] = emit(e, n.arg[1]);
    emit_forget_axis(e, mark, axis);
  }
  e->axis[axis] = saved;
  Vals r = {rows, true, ARENA_ARRAY(e->a, IrRef, rows)};
  IrRef none = identity(e, &n, e->lanes);
  for (int k = 0; k < rows; k++) {
    IrRef s[FULL_LANES];
    for (int i = 0; i < FULL_LANES; i++) s[i] = i < ext ? emit_pick(e, v[i], k, true) : none;
    for (int half = FULL_LANES / 2; half; half /= 2)
      for (int i = 0; i < half; i++) if (i < ext) s[i] = i + half < ext || half == FULL_LANES / 2 ? ir_op2(&e->b, op, s[i], s[i + half]) : s[i];
    r.v[k] = s[0];
  }
  return r;
}

static Vals emit_reduce(Emit *e, Dx x, Vals *init) {
  const DxNode n = e->d->node[x];
  Vals out;
  if (n.op == RED_ISUM && ((!init && emit_tile_bytes(e, x, &out)) || emit_dot4(e, x, init, &out))) return out;
  if (n.op == RED_CHAIN && !init && emit_tile_pairs(e, x, &out)) return out;
  if (in_lanes(e, x) && is_short(e->d, &n)) return reduce_short(e, x);
  if (n.op == RED_CHAIN || in_lanes(e, x) || e->s.naive) {
    if (n.op != RED_CHAIN && n.op != RED_ISUM && in_lanes(e, x)) emit_fail(e, err_new(ERR_UNSUPPORTED, "a striped sum on every lane"));
    if (n.op == RED_CHAIN || n.op == RED_ISUM) return reduce_in_order(e, x, init);
  }
  int rows = emit_in_rows(e, x) ? e->n_rows : 1, saved = e->n_rows;
  Lin m = e->axis[e->row_axis];
  Vals r = {rows, false, ARENA_ARRAY(e->a, IrRef, rows)};
  for (int k = 0; k < rows; k++) { /* rows of a striped sum share nothing: one after another */
    int mark = emit_mark(e);
    e->n_rows = 1;
    if (rows > 1) e->axis[e->row_axis].k = m.k + k / e->blocks;
    r.v[k] = reduce_striped(e, &n);
    if (rows > 1) emit_forget_axis(e, mark, e->row_axis);
    e->axis[e->row_axis] = m;
  }
  e->n_rows = saved;
  return r;
}

/* ---- what lanes allow ------------------------------------------------------------------------------------------------ */
int64_t dx_coef(const Dag *d, Dx x, int axis, bool *ok) {
  const DxNode *n = &d->node[x];
  int64_t v;
  if (!(n->axes >> axis & 1)) return 0;
  if (n->kind == DX_AXIS) return 1;
  if (n->kind == DX_OP && n->n_args == 2) {
    if (n->op == DXO_ADD) return dx_coef(d, n->arg[0], axis, ok) + dx_coef(d, n->arg[1], axis, ok);
    if (n->op == DXO_SUB) return dx_coef(d, n->arg[0], axis, ok) - dx_coef(d, n->arg[1], axis, ok);
    if (n->op == DXO_MUL && dx_is_int(d, n->arg[1], &v)) return dx_coef(d, n->arg[0], axis, ok) * v;
    if (n->op == DXO_MUL && dx_is_int(d, n->arg[0], &v)) return dx_coef(d, n->arg[1], axis, ok) * v;
  }
  *ok = false;
  return 0;
}

/* The same over a block of `lanes` values that starts at a multiple of `lanes`. */
int64_t emit_lane_coef(const Dag *d, Dx x, int axis, int lanes, bool *ok) {
  const DxNode *n = &d->node[x];
  int64_t v;
  if (n->kind == DX_OP && (n->op == DXO_DIV || n->op == DXO_MOD) && d->node[n->arg[0]].kind == DX_AXIS && d->node[n->arg[0]].ival == axis &&
      dx_is_int(d, n->arg[1], &v) && v % lanes == 0) return n->op == DXO_MOD;
  if (n->kind == DX_OP && (n->op == DXO_DIV || n->op == DXO_MOD) && dx_is_int(d, n->arg[1], NULL)) { /* of what is the same in all lanes */
    bool known = true;
    if (emit_lane_coef(d, n->arg[0], axis, lanes, &known) == 0 && known) return 0;
  }
  if (n->kind == DX_OP && n->n_args == 2 && n->axes >> axis & 1) {
    if (n->op == DXO_ADD) return emit_lane_coef(d, n->arg[0], axis, lanes, ok) + emit_lane_coef(d, n->arg[1], axis, lanes, ok);
    if (n->op == DXO_MUL && dx_is_int(d, n->arg[1], &v)) return emit_lane_coef(d, n->arg[0], axis, lanes, ok) * v;
  }
  return dx_coef(d, x, axis, ok);
}

static bool load_fits(Emit *e, const DxNode *n, int axis, int lanes) {
  int64_t stride[IR_MAX_DIMS], c = 0;
  bool ok = true;
  if (e->p->buf[n->ival].blocks) return emit_blocks_fit(e, n, axis, lanes);
  emit_buf_strides(e, (int)n->ival, stride);
  for (int i = n->n_args - 1; i >= 0; i--) c += emit_lane_coef(e->d, n->arg[i], axis, lanes, &ok) * stride[i];
  return ok && (c == 0 || c == 1 || (c == 2 && e->p->buf[n->ival].mem == IR_M_bf16));
}

static bool lanes_fit(Emit *e, Dx x, int axis, int lanes) {
  const DxNode *n = &e->d->node[x];
  if (!(n->axes >> axis & 1) || !dag_walk_first(e->d, x)) return true;
  if (e->s.naive) return false;
  if (n->kind == DX_AXIS) return true;
  if (n->kind == DX_LOAD) return load_fits(e, n, axis, lanes);
  if (n->kind == DX_WGT) {
    const TpBuf *b = &e->p->buf[n->ival];
    bool ok = true;
    if (b->raw) return b->fmt->plain && !(e->d->node[n->arg[0]].axes >> axis & 1) && dx_coef(e->d, n->arg[1], axis, &ok) == 1 && ok;
    return e->d->node[n->arg[0]].kind == DX_AXIS && e->d->node[n->arg[0]].ival == axis;
  }
  if (n->kind == DX_RED && n->op != RED_CHAIN && n->op != RED_ISUM && !is_short(e->d, n)) return false;
  if (n->kind == DX_RED && e->d->node[n->arg[0]].axes >> axis & 1) return false;
  if (n->kind == DX_OP && n->type == DT_INT && (n->op == DXO_DIV || n->op == DXO_MOD)) return false;
  for (int i = 0; i < n->n_args; i++) if (!lanes_fit(e, n->arg[i], axis, lanes)) return false;
  return true;
}

bool emit_reads_raw(const Emit *e, Dx x) {
  const DxNode *n = &e->d->node[x];
  if (n->kind == DX_WGT && e->p->buf[n->ival].raw) return true;
  for (int i = 0; i < n->n_args; i++) if (emit_reads_raw(e, n->arg[i])) return true;
  return false;
}

bool emit_lanes_fit(Emit *e, Dx x, int axis, int lanes) {
  dag_walk_begin(e->d);
  return lanes_fit(e, x, axis, lanes);
}
