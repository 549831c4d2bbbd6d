/* States in a format of blocks, as a KV cache may be: reading elements as the format's text says, storing whole blocks as its encode says.

   Memory is bytes; along dimension block_dim lie blocks, each as in a file:          .. [block 0][block 1] .. the next row
   or, where one of the last two dimensions is a number S, S rows' blocks together:   .. [number 0 of rows 0..S-1][number 1 of rows 0..S-1] ..
   Bytes lie by fours there along the dimension before the last: [.., D, S] four of an array of row 0, four of row 1; [.., S, D] byte 0 of rows
   0..3, byte 1 of rows 0..3, until the array ends and rows 4..7 begin. Lanes run along the last dimension, and an integer product takes four codes
   of each lane at once.

   Lanes over the rows read each number of a block as one vector, and the position in the block must be known; lanes along the blocks
   (which start at a multiple of 16 and are known too) read what neighbours' expressions have in common as vectors: numbers one behind the
   other, shifts, tables. In: loads and stores of such buffers. Out: IR values. Bits are those of the text: nothing is moved or fused. */
#include <string.h>
#include "opt/emit.h"

/* Where a block lies: byte of its first number, and its row among those side by side. */
typedef struct Place { Emit *e; int buf; const FormatForm *f; IrRef base; Lin byte, side; TpSide rows; int lanes; uint64_t key; } Place;
typedef struct Lanes { Dx x[FULL_LANES]; int64_t off[FULL_LANES]; } Lanes; /* one element each: its value, bytes from the place to its block */

/* What is stored by fours: along the array, or over rows. */
static bool by_fours(const Place *p, const DxNode *n) {
  const Field *fl = tp_block_bytes(p->f, (IrMem)n->op, n->ival);
  return fl && p->rows.rows > 1 && !p->rows.by_rows && fl->count % 4 == 0;
}

static const Field *over_rows(const Place *p, const DxNode *n) { return p->rows.by_rows ? tp_block_bytes(p->f, (IrMem)n->op, n->ival) : NULL; }

static Lin field_byte(Place *p, const DxNode *n, int64_t off) {
  const Field *fl = over_rows(p, n);
  Lin side = p->side, at;
  side.lane = 0;
  if (fl) { /* of the first lane where lanes are rows: a multiple of 16 */
    at = lin_scale(lin_divmod(p->e, side, 4, false), 4 * fl->count);
    at = lin_add(p->e, at, lin_divmod(p->e, side, 4, true));
  } else at = lin_scale(side, by_fours(p, n) ? 4 : ir_mem_bytes[n->op]);
  at = lin_add(p->e, p->byte, at);
  at.k += tp_block_byte(p->f, (IrMem)n->op, n->ival + off, 0, p->rows);
  at.lane = 0;
  return at;
}

static int nth_of_four(const Place *p, const DxNode *n) { return (int)((n->ival % p->f->decl->n_bytes - tp_block_bytes(p->f, (IrMem)n->op, n->ival)->offset) % 4); }

/* Byte nth of each lane as the int it is. */
static IrRef byte_of(IrBuild *b, IrMem m, IrRef v, int lanes, int nth) {
  if (m == IR_M_i8) return ir_shift(b, IR_sar, nth < 3 ? ir_shift(b, IR_shl, v, 24 - 8 * nth) : v, 24);
  if (nth) v = ir_shift(b, IR_shr, v, 8 * nth);
  return nth < 3 ? ir_op2(b, IR_and, v, ir_const_i(b, ir_vec_type(IR_E_I32, lanes), 255)) : v;
}

/* Bytes of rows that lie by fours over rows: lane l is row l. */
static IrRef rows_one_by_one(Place *p, const DxNode *n, int64_t count) {
  IrBuild *b = &p->e->b;
  Lin at = field_byte(p, n, 0);
  IrRef v = ir_const_i(b, ir_vec_type(IR_E_I32, p->lanes), 0);
  for (int l = 0; l < p->lanes; l++) {
    Lin one = at;
    one.k += l / 4 * 4 * count + l % 4;
    v = ir_insert(b, v, emit_load_at(p->e, (IrMem)n->op, 1, p->base, one), l);
  }
  return v;
}

/* Of lanes side by side: a byte comes out of its four. */
static IrRef field_lanes(Place *p, const DxNode *n) {
  const Field *fl = over_rows(p, n);
  if (p->lanes > 1 && fl) return rows_one_by_one(p, n, fl->count);
  Lin at = field_byte(p, n, 0);
  if (p->lanes == 1 || !by_fours(p, n)) return emit_load_at(p->e, (IrMem)n->op, p->lanes, p->base, at);
  int nth = nth_of_four(p, n);
  at.k -= nth;
  return byte_of(&p->e->b, (IrMem)n->op, emit_load_at(p->e, IR_M_i32, p->lanes, p->base, at), p->lanes, nth);
}

/* The field's number `index` places further on, which the data chooses, in each lane another. */
static IrRef field_chosen(Place *p, const DxNode *n, IrRef index) {
  IrBuild *b = &p->e->b;
  DxNode first = *n;
  bool fours = by_fours(p, n), half = n->op == IR_M_f16 || n->op == IR_M_bf16;
  const Field *over = over_rows(p, n);
  int nth = fours ? nth_of_four(p, n) : 0, bytes = ir_mem_bytes[n->op];
  IrType t = ir_vec_type(IR_E_I32, p->lanes);
  first.ival -= nth;
  Lin at = field_byte(p, &first, 0);
  IrRef off = ir_op2(b, IR_mul, index, ir_const_i(b, t, over ? 4 : bytes * p->rows.rows));
  if (fours) { /* whole fours lie as many fours apart as there are rows */
    index = ir_op2(b, IR_add, index, ir_const_i(b, t, nth));
    IrRef rest = ir_op2(b, IR_and, index, ir_const_i(b, t, 3));
    off = ir_op2(b, IR_add, rest, ir_op2(b, IR_mul, ir_op2(b, IR_sub, index, rest), ir_const_i(b, t, p->rows.rows)));
  }
  if (p->lanes == 1) return emit_load_at(p->e, (IrMem)n->op, 1, p->base, lin_add(p->e, at, lin_ref(ir_op1(b, IR_sext, off), 1)));
  if (p->side.lane) {
    IrRef lane = ir_iota(b, p->lanes), low = ir_op2(b, IR_and, lane, ir_const_i(b, t, 3));
    if (over) lane = ir_op2(b, IR_add, low, ir_op2(b, IR_mul, ir_op2(b, IR_sub, lane, low), ir_const_i(b, t, over->count)));
    else lane = ir_op2(b, IR_mul, lane, ir_const_i(b, t, fours ? 4 : bytes));
    off = ir_op2(b, IR_add, off, lane);
  }
  IrRef base = ir_padd(b, p->base, lin_value(p->e, at));
  IrType tf = ir_vec_type(IR_E_F32, p->lanes);
  if (!half) return ir_gather(b, (IrMem)n->op, n->type == DT_F32 ? tf : t, base, off, 0);
  emit_store_at(p->e, IR_M_u16, p->e->scratch, lin_const(0), ir_gather(b, IR_M_u16, t, base, off, 0), 0); /* widened on the way through scratch */
  return ir_load(b, (IrMem)n->op, tf, p->e->scratch, 0, 1, 0);
}

static IrType lanes_of(const Place *p, DxType t) { return ir_vec_type(t == DT_F32 ? IR_E_F32 : t == DT_BOOL ? IR_E_I1 : IR_E_I32, p->lanes); }

static IrRef element(Place *p, Dx x) {
  Emit *e = p->e;
  if (x < e->field.n && e->field.v[x]) return e->field.v[x];
  const DxNode n = p->f->dag->node[x];
  IrRef a[3], v;
  switch (n.kind) {
    case DX_INT: v = ir_const_i(&e->b, lanes_of(p, (DxType)n.type), (int32_t)n.ival); break;
    case DX_FLT: v = ir_const_f(&e->b, lanes_of(p, DT_F32), n.fval); break;
    case DX_FIELD: v = n.n_args ? field_chosen(p, &n, element(p, n.arg[0])) : field_lanes(p, &n); break;
    case DX_TAB: v = emit_lookup(e, p->f, &n, element(p, n.arg[0]), p->lanes); break;
    default:
      CHECK(n.kind == DX_OP, "format %s: node of kind %d", p->f->decl->name, n.kind);
      for (int i = 0; i < n.n_args; i++) a[i] = element(p, n.arg[i]);
      v = emit_node_op(e, p->f->dag, x, NULL, a);
  }
  if (x < e->field.n) e->field.v[x] = v;
  return v;
}

/* ---- lanes along blocks -------------------------------------------------------------------------------------------- */
static bool all_same(const Lanes *l) {
  for (int i = 1; i < FULL_LANES; i++) if (l->x[i] != l->x[0] || l->off[i] != l->off[0]) return false;
  return true;
}

/* The same but for the numbers they read: an operation or lookup of one kind. */
static bool alike(const Dag *d, const Lanes *l) {
  const DxNode *n = &d->node[l->x[0]];
  for (int i = 1; i < FULL_LANES; i++) {
    const DxNode *k = &d->node[l->x[i]];
    if (k->kind != n->kind || k->op != n->op || k->type != n->type || k->n_args != n->n_args || k->ival != n->ival) return false;
    if (n->kind == DX_OP && (n->op == DXO_SHL || n->op == DXO_SHR) && (k->arg[1] != n->arg[1] || !dx_is_int(d, n->arg[1], NULL))) return false;
  }
  if (n->kind == DX_OP && d->node[n->arg[0]].type == DT_INT && (n->op == DXO_DIV || n->op == DXO_MOD)) return false; /* how depends on ranges */
  return n->kind == DX_OP || n->kind == DX_TAB;
}

static bool fields_in_line(const Dag *d, const Lanes *l) {
  const DxNode *n = &d->node[l->x[0]];
  for (int i = 0; i < FULL_LANES; i++) {
    const DxNode *k = &d->node[l->x[i]];
    if (k->kind != DX_FIELD || k->n_args || k->op != n->op || k->ival + l->off[i] != n->ival + l->off[0] + i * ir_mem_bytes[n->op]) return false;
  }
  return true;
}

/* 16 bytes from byte `at` on are of this array of one block. */
static bool array_holds(const FormatForm *f, const Field *fl, int64_t at) { return at % f->decl->n_bytes + FULL_LANES <= fl->offset + fl->count; }

/* Numbers in line that are one behind the other in memory too, or bytes of one array with three of other rows between them. 0: neither. */
static IrRef in_line(Place *p, const Lanes *l) {
  const Dag *d = p->f->dag;
  const DxNode *n = &d->node[l->x[0]];
  if (!fields_in_line(d, l)) return 0;
  Lin at = field_byte(p, n, l->off[0]);
  if (p->rows.rows == 1) return emit_load_at(p->e, (IrMem)n->op, FULL_LANES, p->base, at);
  const Field *fl = over_rows(p, n);
  if (!fl || l->off[0] != l->off[FULL_LANES - 1] || !array_holds(p->f, fl, n->ival)) return 0;
  return byte_of(&p->e->b, (IrMem)n->op, emit_load_at(p->e, IR_M_i32, FULL_LANES, p->base, at), FULL_LANES, 0);
}

static IrRef vector(Place *p, const Lanes *l);

static IrRef one_by_one(Place *p, const Lanes *l) {
  Emit *e = p->e;
  bool flt = p->f->dag->node[l->x[0]].type == DT_F32;
  IrType t = ir_vec_type(flt ? IR_E_F32 : IR_E_I32, FULL_LANES);
  IrRef v = flt ? ir_const_f(&e->b, t, 0) : ir_const_i(&e->b, t, 0);
  for (int i = 0; i < FULL_LANES; i++) {
    Place one = *p;
    one.lanes = 1;
    one.byte.k += l->off[i] * p->rows.rows;
    if (i && l->off[i] != l->off[i - 1]) emit_field_memo(e, p->f, (uint64_t)-2); /* another block: the same expressions have other values */
    emit_field_memo(e, p->f, (uint64_t)-1);
    v = ir_insert(&e->b, v, element(&one, l->x[i]), i);
  }
  emit_field_memo(e, p->f, (uint64_t)-2);
  return v;
}

static IrRef vector(Place *p, const Lanes *l) {
  Emit *e = p->e;
  const Dag *d = p->f->dag;
  const DxNode n = d->node[l->x[0]];
  if (all_same(l)) {
    Place one = *p;
    one.lanes = 1;
    one.byte.k += l->off[0] * p->rows.rows;
    emit_field_memo(e, p->f, (uint64_t)-1);
    IrRef v = element(&one, l->x[0]);
    emit_field_memo(e, p->f, (uint64_t)-2);
    return ir_splat(&e->b, v, FULL_LANES);
  }
  IrRef line = in_line(p, l);
  if (line) return line;
  if (!alike(d, l)) return one_by_one(p, l);
  IrRef a[3];
  for (int i = 0; i < n.n_args; i++) {
    Lanes arg = *l;
    for (int k = 0; k < FULL_LANES; k++) arg.x[k] = d->node[l->x[k]].arg[i];
    bool amount = n.kind == DX_OP && (n.op == DXO_SHL || n.op == DXO_SHR) && i == 1;
    a[i] = amount ? ir_const_i(&e->b, IR_T_i32, d->node[arg.x[0]].ival) : vector(p, &arg);
  }
  if (n.kind == DX_TAB) return emit_lookup(e, p->f, &n, a[0], FULL_LANES);
  bool logical = n.op == DXO_SHR;
  for (int k = 0; logical && k < FULL_LANES; k++) logical = dx_range(d, d->node[l->x[k]].arg[0], NULL).lo >= 0;
  return emit_op(e, (DxOp)n.op, (DxType)d->node[n.arg[n.op == DXO_COND ? 1 : 0]].type, a, n.n_args, logical);
}

/* ---- loads --------------------------------------------------------------------------------------------------------- */
static Place place_of(Emit *e, int buf, const Dx *index, int n_index, Lin block) {
  const TpBuf *b = &e->p->buf[buf];
  int64_t stride[IR_MAX_DIMS];
  Place p = {.e = e, .buf = buf, .f = b->blocks, .base = buf_base(e, buf), .byte = lin_const(0), .side = lin_const(0), .rows = tp_buf_side(e->p, b), .lanes = 1};
  emit_buf_strides(e, buf, stride);
  for (int i = n_index - 1; i >= 0; i--) {
    if (i == b->block_dim) continue;
    if (i == b->side_dim) p.side = lin_of(e, index[i]);
    else p.byte = lin_add(e, p.byte, lin_scale(lin_of(e, index[i]), stride[i]));
  }
  p.byte = lin_add(e, p.byte, lin_scale(block, p.f->n_bytes * p.rows.rows));
  return p;
}

/* position = whole blocks + what is known */
static bool block_of(Emit *e, const TpBuf *b, Lin k, Lin *block, int64_t *rest) {
  int64_t n = b->blocks->block;
  for (int i = 0; i < k.n; i++) {
    if (k.t[i].c % n == 0) continue;
    emit_fail(e, err_new(ERR_UNSUPPORTED, "%s: a position in its blocks of %s is not known before run time", b->name, b->blocks->decl->name));
    return false;
  }
  *rest = k.k % n;
  k.k /= n;
  for (int i = 0; i < k.n; i++) k.t[i].c /= n;
  k.lane = 0;
  *block = k;
  return true;
}

/* What a store of the same region may change is read again each time. */
static bool is_written(const Emit *e, int buf) {
  for (int i = 0; i < e->r->n_stmts; i++) if (tp_root(e->p, e->p->stmt[e->r->stmt[i]].buf) == tp_root(e->p, buf)) return true;
  return false;
}

/* Of everything read there. */
static uint64_t place_key(const Place *p) {
  uint64_t k[4] = {(uint64_t)p->e->b.at, (uint64_t)p->base, (uint64_t)p->lanes, is_written(p->e, p->buf) ? (uint64_t)p->e->n_steps : 0};
  return lin_hash(&p->side, lin_hash(&p->byte, hash_bytes(k, sizeof k, 2)));
}

IrRef emit_block_element(Emit *e, const DxNode *load, bool vec) {
  int buf = (int)load->ival;
  const TpBuf *b = &e->p->buf[buf];
  const FormatForm *f = b->blocks;
  Lin k = lin_of(e, load->arg[b->block_dim]), block;
  int64_t at;
  bool code = load->op == WA_CODE;
  IrType t = ir_vec_type(code ? IR_E_I32 : IR_E_F32, vec ? e->lanes : 1);
  if (e->err || !block_of(e, b, k, &block, &at)) return code ? ir_const_i(&e->b, t, 0) : ir_const_f(&e->b, t, 0);
  Place p = place_of(e, buf, load->arg, load->n_args, block);
  bool along = vec && k.lane;
  p.lanes = vec && p.side.lane ? e->lanes : 1;
  uint64_t h = place_key(&p);
  if (!along) {
    Dx x = emit_attr(f, (WgtAttr)load->op, at);
    emit_field_memo(e, f, h);
    IrRef v = element(&p, x);
    return vec && p.lanes == 1 ? ir_splat(&e->b, v, e->lanes) : v;
  }
  int64_t element_key[2] = {at, load->op};
  h = hash_bytes(element_key, sizeof element_key, h);
  IrRef v = emit_made(e, &e->load, h);
  if (v) return v;
  Lanes l;
  for (int i = 0; i < FULL_LANES; i++) l.x[i] = emit_attr(f, (WgtAttr)load->op, (at + i) % f->block), l.off[i] = (at + i) / f->block * f->n_bytes;
  return emit_keep(&e->load, h, vector(&p, &l));
}

/* ---- integer products ---------------------------------------------------------------------------------------------- */
static IrRef quad_word(void *ctx, const DxNode *n) {
  Place *p = ctx;
  if (!by_fours(p, n) || nth_of_four(p, n)) return 0;
  return emit_load_at(p->e, IR_M_i32, p->lanes, p->base, field_byte(p, n, 0));
}

static IrRef quad_value(void *ctx, Dx x) {
  Place *p = ctx;
  emit_field_memo(p->e, p->f, p->key);
  return element(p, x);
}

static Lin bytes_of(Emit *e, const DxNode *a) {
  int buf = (int)a->ival;
  Lin at = buf_index(e, buf, a->arg, a->n_args);
  if (e->p->buf[buf].local == e->region) at.k += e->local[buf].off + e->local[buf].row_bytes * (e->tile_row + e->row / e->blocks);
  return at;
}

/* Four codes of each lane's row, from element `at` on. 0: they are not known to fit bytes. */
static IrRef elements_quad(Place *p, int64_t at) {
  Dx x[4];
  p->lanes = p->e->lanes;
  p->key = place_key(p);
  for (int i = 0; i < 4; i++) x[i] = emit_attr(p->f, WA_CODE, at + i);
  return emit_quad(p->e, p->f, x, &(QuadFrom){.ctx = p, .word = quad_word, .value = quad_value});
}

/* x with every byte field `by` bytes further on is y: the same of an element so many later. */
static bool moved(const Dag *d, Dx x, Dx y, int by) {
  const DxNode *a = &d->node[x], *b = &d->node[y];
  if (a->kind == DX_FIELD) return !a->n_args && !b->n_args && b->kind == DX_FIELD && a->op == b->op && (a->op == IR_M_u8 || a->op == IR_M_i8) && a->ival + by == b->ival;
  if (a->kind != b->kind || a->op != b->op || a->n_args != b->n_args || a->kind == DX_TAB) return false;
  if (!a->n_args) return x == y;
  for (int i = 0; i < a->n_args; i++) if (!moved(d, a->arg[i], b->arg[i], by)) return false;
  return true;
}

/* One byte of four rows, and the same of the elements behind it. */
static IrRef rows_word(void *ctx, const DxNode *n) {
  Place *p = ctx;
  const Field *fl = tp_block_bytes(p->f, (IrMem)n->op, n->ival);
  if (!array_holds(p->f, fl, n->ival)) return 0;
  return emit_load_at(p->e, IR_M_i32, FULL_LANES, p->base, field_byte(p, n, 0));
}

/* 16 elements' codes from element `at` on, of four rows each; less: minus that, as signed bytes. 0: they do not lie so. */
static IrRef rows_quad(Place *p, int64_t at, int64_t less) {
  Emit *e = p->e;
  const FormatForm *f = p->f;
  IrType t = IR_T_i32x16;
  Dx x = emit_attr(f, WA_CODE, at), s = dx_op2(f->dag, DXO_SUB, x, dx_int(f->dag, less));
  for (int i = 1; i < FULL_LANES; i++) if (!moved(f->dag, x, emit_attr(f, WA_CODE, at + i), i)) return 0;
  if (less && f->dag->node[s].kind == DX_FIELD && f->dag->node[s].op == IR_M_i8) return rows_word(p, &f->dag->node[s]);
  IrRef u = emit_quad(e, f, (Dx[4]){x, x, x, x}, &(QuadFrom){.ctx = p, .word = rows_word, .same = true});
  if (!u || !less) return u;
  if (less < 128) u = ir_op2(&e->b, IR_add, u, ir_const_i(&e->b, t, (int32_t)(0x01010101u * (uint32_t)(128 - less))));
  return ir_op2(&e->b, IR_xor, u, ir_const_i(&e->b, t, (int32_t)0x80808080u));
}

/* The sum, four products of a lane a step: over elements where lanes are rows, over rows where lanes lie along the blocks. False: codes do not lie so. */
static bool dot4_steps(Emit *e, const DxNode *code, const DxNode *a, int64_t less, int a_max, int axis, int64_t len, Vals *init, Vals *out) {
  const TpBuf *b = &e->p->buf[code->ival];
  bool ok = true;
  Vals r = {e->n_rows, true, ARENA_ARRAY(e->a, IrRef, e->n_rows)};
  for (int k = 0; k < r.n; k++) r.v[k] = init ? emit_pick(e, *init, k, true) : ir_const_i(&e->b, ir_vec_type(IR_E_I32, e->lanes), 0);
  Lin saved = e->axis[axis];
  for (int64_t q = 0; q < len && ok; q += 4) {
    e->axis[axis] = lin_const(q);
    IrRef u = 0;
    uint64_t before = 0;
    for (int k = 0; k < r.n; k++) {
      e->row = k;
      Lin block;
      int64_t at;
      if (!block_of(e, b, lin_of(e, code->arg[b->block_dim]), &block, &at)) break;
      Place p = place_of(e, (int)code->ival, code->arg, code->n_args, block);
      uint64_t here = lin_hash(&p.side, lin_hash(&p.byte, (uint64_t)at));
      if (!u || here != before) u = p.rows.by_rows ? rows_quad(&p, at, less) : elements_quad(&p, at);
      ok = u != 0;
      if (!ok) break;
      before = here;
      IrRef s = ir_splat(&e->b, emit_load_at(e, IR_M_i32, 1, buf_base(e, (int)a->ival), bytes_of(e, a)), e->lanes);
      r.v[k] = less ? ir_dot4(&e->b, r.v[k], s, u, a_max) : ir_dot4(&e->b, r.v[k], u, s, b->blocks->code_max);
    }
  }
  e->row = 0;
  e->axis[axis] = saved;
  *out = r;
  return ok;
}

/* isum(i < len: a[.. + i] * k.code[.., position + i, row]), lanes over rows side by side. */
bool emit_block_dot4(Emit *e, const DxNode *code, const DxNode *a, int axis, int64_t len, Vals *init, Vals *out) {
  const TpBuf *b = &e->p->buf[code->ival];
  const FormatForm *f = b->blocks;
  bool ok = true;
  if (b->side_dim < b->block_dim || dx_coef(e->d, code->arg[b->block_dim], axis, &ok) != 1 || !ok || f->code_max > 255 || f->block % 4) return false;
  if (emit_lane_coef(e->d, code->arg[b->n_dims - 1], e->lane_axis, e->lanes, &ok) != 1 || !ok || !emit_on_fours(e, code->arg[b->block_dim], axis)) return false;
  if (!dot4_steps(e, code, a, 0, 0, axis, len, init, out)) emit_fail(e, err_new(ERR_UNSUPPORTED, "%s: four codes of %s are not known to fit bytes", b->name, f->decl->name));
  return true;
}

/* isum(k < len: a[.. + k] * k.code[.., first row + k, element]), lanes along the blocks. */
bool emit_rows_dot4(Emit *e, const DxNode *code, const DxNode *a, int64_t less, int a_max, int axis, int64_t len, Vals *init, Vals *out) {
  const TpBuf *b = &e->p->buf[code->ival];
  const FormatForm *f = b->blocks;
  bool ok = true;
  if (b->side_dim < 0 || b->side_dim > b->block_dim || e->lanes != FULL_LANES || f->block % FULL_LANES || f->code_max > 255) return false;
  if (less && (less > 128 || f->code_max - less > 127)) return false;
  for (int i = 0; i < code->n_args; i++) { /* the sum's axis moves the row, lanes the element, and neither anything else */
    if (dx_coef(e->d, code->arg[i], axis, &ok) != (i == b->side_dim) || !ok) return false;
    if (emit_lane_coef(e->d, code->arg[i], e->lane_axis, e->lanes, &ok) != (i == b->block_dim) || !ok) return false;
  }
  return emit_on_fours(e, code->arg[b->side_dim], axis) && dot4_steps(e, code, a, less, a_max, axis, len, init, out);
}

/* Lanes are rows side by side, or elements along the blocks from a multiple of 16 on, where that is known: not in a reduction's loop. */
bool emit_blocks_fit(Emit *e, const DxNode *load, int axis, int lanes) {
  const TpBuf *b = &e->p->buf[load->ival];
  bool ok = true;
  for (int i = 0; i < load->n_args; i++) {
    int64_t c = emit_lane_coef(e->d, load->arg[i], axis, lanes, &ok);
    if (!ok || (c && (c != 1 || (i != b->block_dim && i != b->side_dim) || axis >= DX_BINDER))) return false;
  }
  return true;
}

static bool along_blocks(Emit *e, Dx x, int axis) {
  const DxNode *n = &e->d->node[x];
  if (!(n->axes >> axis & 1) || !dag_walk_first(e->d, x)) return false;
  if (n->kind == DX_LOAD && e->p->buf[n->ival].blocks && e->d->node[n->arg[e->p->buf[n->ival].block_dim]].axes >> axis & 1) return true;
  for (int i = 0; i < n->n_args; i++) if (along_blocks(e, n->arg[i], axis)) return true;
  return false;
}

bool emit_along_blocks(Emit *e, Dx x, int axis) {
  dag_walk_begin(e->d);
  return along_blocks(e, x, axis);
}

/* ---- stores -------------------------------------------------------------------------------------------------------- */
/* Lanes are 16 blocks of the row. Past the row's last block lanes repeat it, and are not stored. */
static void store_tile(Emit *e, const FormatForm *f, Place *to, IrRef x, int64_t first, int64_t n, int64_t at) {
  IrBuild *b = &e->b;
  int64_t block = f->decl->block;
  IrRef lane = ir_op2(b, IR_smin, ir_iota(b, ENCODE_TILE), ir_const_i(b, IR_T_i32x16, n - 1));
  IrRef from = ir_padd(b, x, ir_const_i(b, IR_T_i64, 4 * block * first));
  emit_encode(e, f, from, ir_op2(b, IR_mul, lane, ir_const_i(b, IR_T_i32x16, 4 * block)), at);
  Loop l;
  loop_begin(e, &l, ir_const_i(b, IR_T_i64, n), true, NULL, 0);
  for (int i = 0; i < f->n_stored; i++) {
    DxNode num = {.op = (uint8_t)f->stored[i].mem, .ival = f->stored[i].at};
    Lin byte = lin_add(e, field_byte(to, &num, first * f->decl->n_bytes), lin_ref(l.iv, f->decl->n_bytes * to->rows.rows));
    emit_encoded(e, f, i, at, l.iv, to->base, byte);
  }
  loop_end(e, &l, NULL);
}

void emit_block_store(Emit *e, const TpStmt *t) {
  const TpBuf *b = &e->p->buf[t->buf];
  const DxNode src = e->d->node[t->rhs];
  int axis = t->block_axis - 1, rows = e->n_rows;
  int64_t D = 0, at = e->scratch_bytes;
  CHECK(dx_is_int(e->d, b->dim[b->block_dim], &D) && rows == 1);
  e->scratch_bytes += emit_encode_bytes(b->blocks);
  e->axis[axis] = lin_const(0);
  Place to = place_of(e, t->buf, t->index, t->n_index, lin_const(0));
  int sb = (int)src.ival;
  Lin from = lin_scale(buf_index(e, sb, src.arg, src.n_args), 4);
  if (e->p->buf[sb].local == e->region) from.k += e->local[sb].off + e->local[sb].row_bytes * e->tile_row;
  IrRef x = ir_padd(&e->b, buf_base(e, sb), lin_value(e, from));
  for (int64_t i = 0, n = D / b->blocks->decl->block; i < n; i += ENCODE_TILE) store_tile(e, b->blocks, &to, x, i, MIN(n - i, (int64_t)ENCODE_TILE), at);
}
