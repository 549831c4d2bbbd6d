/* Weights: reading blocks as the format's text says (raw), reading the packed form lane by lane, unpacking codes, integer contraction of
   four codes at a time, and panels (weights of a tile unpacked once). What is done for a format follows from its FormatForm alone.
   In: DX_WGT nodes. Out: IR values: value f32, code i32 (unsigned), scale and offset f32. */
#include <string.h>
#include "opt/emit.h"

static const FormatForm *form_of(const Emit *e, int buf) { return e->p->buf[buf].fmt; }

static int64_t buf_K(const Emit *e, int buf) {
  int64_t K = 0;
  CHECK(dx_is_int(e->d, e->p->buf[buf].dim[1], &K), "weight %s: K is not known", e->p->buf[buf].name);
  return K;
}

/* l = multiple of D + constant below D; false when the remainder is not known here. */
static bool split(Emit *e, Lin l, int64_t D, Lin *whole, int64_t *rest) {
  for (int i = 0; i < l.n; i++) {
    if (l.t[i].c % D) {
      emit_fail(e, err_new(ERR_UNSUPPORTED, "a position inside blocks of %lld weights is not known before run time", (long long)D));
      return false;
    }
  }
  *rest = l.k % D;
  for (int i = 0; i < l.n; i++) l.t[i].c /= D;
  l.k /= D;
  *whole = l;
  return true;
}

/* ---- raw blocks ---------------------------------------------------------------------------------------------------- */
/* The table's address: among the region's arguments, or among those of a packing or decoding function. */
static IrRef emit_table(const Emit *e, const FormatForm *f, int table) {
  if (!e->r) return e->arg[table];
  int want = TP_TABLE + tp_table(e->p, f->dag->tab[table].data), i = 0;
  while (i < e->r->n_args && e->r->arg[i] != want) i++;
  CHECK(i < e->r->n_args, "region %s: table %s is no argument", e->r->name, f->dag->tab[table].decl->name);
  return e->arg[i];
}

/* A table of 16 floats, kept in registers; the index is below 16. */
static IrRef pick16(Emit *e, IrRef base, IrRef index, int lanes, int first, int n) {
  IrType ti = ir_vec_type(IR_E_I32, lanes);
  if (n == lanes) return ir_op2(&e->b, IR_pick, index, emit_load_at(e, IR_M_f32, lanes, base, lin_const(4 * first)));
  IrRef set = ir_cmp(&e->b, IR_icmp, IR_P_ne, ir_op2(&e->b, IR_and, index, ir_const_i(&e->b, ti, n / 2)), ir_const_i(&e->b, ti, 0));
  IrRef above = pick16(e, base, index, lanes, first + n / 2, n / 2);
  return ir_op3(&e->b, IR_select, set, above, pick16(e, base, index, lanes, first, n / 2));
}

/* table[index]: lane by lane when the index is. */
IrRef emit_lookup(Emit *e, const FormatForm *f, const DxNode *n, IrRef index, int lanes) {
  IrRef base = emit_table(e, f, (int)n->ival);
  IrType ti = ir_vec_type(IR_E_I32, lanes), tf = ir_vec_type(IR_E_F32, lanes);
  int bytes = ir_mem_bytes[n->op];
  if (lanes == 1) return emit_load_at(e, (IrMem)n->op, 1, base, lin_ref(ir_op1(&e->b, IR_sext, index), bytes));
  const DxNode *at = &f->dag->node[n->arg[0]];
  int64_t most = at->kind == DX_LEAF ? f->leaf[at->ival].hi : dx_range(f->dag, n->arg[0], NULL).hi;
  if (n->op == IR_M_f32 && f->dag->tab[n->ival].decl->n_values == FULL_LANES && most < FULL_LANES) return pick16(e, base, index, lanes, 0, FULL_LANES);
  if (bytes > 1) index = ir_shift(&e->b, IR_shl, index, bytes == 2 ? 1 : 2);
  if (n->op != IR_M_f16 && n->op != IR_M_bf16) return ir_gather(&e->b, (IrMem)n->op, n->type == DT_F32 ? tf : ti, base, index, 0);
  emit_store_at(e, IR_M_u16, e->scratch, lin_const(0), ir_gather(&e->b, IR_M_u16, ti, base, index, 0), 0); /* widened on the way through scratch */
  return ir_load(&e->b, (IrMem)n->op, tf, e->scratch, 0, 1, 0);
}

/* An index in the first of the rows, an int of 64 bits. */
static IrRef of_first_row(Emit *e, const FormatForm *f, Dx x) {
  const DxNode n = f->dag->node[x];
  const DxPart *p = n.kind == DX_PART ? &f->dag->part[n.ival] : NULL;
  IrRef a[2], v;
  if (n.kind == DX_INT) return ir_const_i(&e->b, IR_T_i64, n.ival);
  if (n.kind == DX_AXIS) return n.ival ? e->part_block : e->part_row;
  if (p && n.type == DT_INT) {
    Lin at = lin_ref(of_first_row(e, f, n.arg[0]), 1);
    bool large = p->byte > INT32_MAX;
    at.k = large ? 0 : p->byte;
    IrRef base = large ? ir_padd(&e->b, e->part[p->part], ir_const_i(&e->b, IR_T_i64, p->byte)) : e->part[p->part];
    return ir_op1(&e->b, IR_sext, emit_load_at(e, (IrMem)n.op, 1, base, at));
  }
  bool counts = n.kind == DX_OP && n.n_args == 2 && n.type == DT_INT;
  for (int i = 0; i < 2 && counts; i++) a[i] = of_first_row(e, f, n.arg[i]);
  switch (counts ? (DxOp)n.op : DXO_NONE) {
    case DXO_ADD: v = ir_op2(&e->b, IR_add, a[0], a[1]); break;
    case DXO_SUB: v = ir_op2(&e->b, IR_sub, a[0], a[1]); break;
    case DXO_MUL: v = ir_op2(&e->b, IR_mul, a[0], a[1]); break;
    case DXO_DIV: v = ir_op2(&e->b, IR_udiv, a[0], a[1]); break;
    case DXO_MOD: v = ir_op2(&e->b, IR_urem, a[0], a[1]); break;
    case DXO_AND: v = ir_op2(&e->b, IR_and, a[0], a[1]); break;
    default:
      emit_fail(e, err_new(ERR_LIMIT, "an index into a tensor of more than 2 GiB is no sum, product or quotient"));
      v = ir_const_i(&e->b, IR_T_i64, 0);
  }
  return v;
}

/* An element's place in a tensor whose bytes 31 bits do not count: *base is the place in the first row, less half of what an offset may be; offsets are from there.
   What they are modulo 2^32 is enough, as the rows of a tile lie close (note_far). */
static IrRef far_offsets(Emit *e, const FormatForm *f, const DxPart *p, Dx byte, IrRef at, IrRef *base, int64_t *disp) {
  enum { HALF = 1 << 30, DISP_MAX = 1 << 24 };
  *disp = p->byte < DISP_MAX ? p->byte : 0;
  uint64_t key[4] = {(uint64_t)byte, (uint64_t)p->part, (uint64_t)(p->byte - *disp), 0}, of_base = hash_bytes(key, sizeof key, 2);
  key[3] = 1;
  uint64_t of_offs = hash_bytes(key, sizeof key, 2);
  IrRef offs = emit_made(e, &e->load, of_offs);
  *base = emit_made(e, &e->load, of_base);
  if (offs && *base) return offs;
  IrRef first = of_first_row(e, f, byte);
  *base = ir_padd(&e->b, e->part[p->part], ir_op2(&e->b, IR_add, first, ir_const_i(&e->b, IR_T_i64, p->byte - *disp - HALF)));
  offs = ir_op2(&e->b, IR_sub, at, ir_splat(&e->b, ir_op1(&e->b, IR_trunc, first), FULL_LANES));
  offs = ir_op2(&e->b, IR_add, offs, ir_const_i(&e->b, IR_T_i32x16, HALF));
  emit_keep(&e->load, of_base, *base);
  return emit_keep(&e->load, of_offs, offs);
}

/* An element of a layout's tensor, for each of 16 rows. m: how it is read. */
IrRef emit_part(Emit *e, const FormatForm *f, const DxNode *n, IrMem m, IrRef at) {
  const DxPart *p = &f->dag->part[n->ival];
  bool flt = m == IR_M_f16 || m == IR_M_bf16 || m == IR_M_f32;
  IrRef base = e->part[p->part];
  int64_t disp = p->byte;
  if (f->dag->far >> p->part & 1) at = far_offsets(e, f, p, n->arg[0], at, &base, &disp);
  if (m != IR_M_f16 && m != IR_M_bf16) return ir_gather(&e->b, m, flt ? IR_T_f32x16 : IR_T_i32x16, base, at, disp);
  emit_store_at(e, IR_M_u16, e->scratch, lin_const(0), ir_gather(&e->b, IR_M_u16, IR_T_i32x16, base, at, disp), 0); /* widened on the way through scratch */
  return ir_load(&e->b, m, IR_T_f32x16, e->scratch, 0, 1, 0);
}

static IrRef block_value(Emit *e, const FormatForm *f, Dx x, IrRef base, IrRef offs, Lin byte) {
  if (x < e->field.n && e->field.v[x]) return e->field.v[x];
  const DxNode *n = &f->dag->node[x];
  int lanes = offs ? ir_type_lanes(e->fn, ir_type_of(e->fn, offs)) : 1;
  IrType ti = ir_vec_type(IR_E_I32, lanes), tf = ir_vec_type(IR_E_F32, lanes);
  IrRef a[3], v;
  switch (n->kind) {
    case DX_INT: v = ir_const_i(&e->b, ti, (int32_t)n->ival); break;
    case DX_FLT: v = ir_const_f(&e->b, tf, n->fval); break;
    case DX_FIELD:
      if (n->n_args) { /* of the element that the data chooses: its bytes further on, in each lane its own */
        int bytes = ir_mem_bytes[n->op];
        v = block_value(e, f, n->arg[0], base, offs, byte);
        n = &f->dag->node[x];
        if (offs) offs = ir_op2(&e->b, IR_add, offs, ir_op2(&e->b, IR_mul, v, ir_const_i(&e->b, ti, bytes)));
        else byte = lin_add(e, byte, lin_ref(ir_op1(&e->b, IR_sext, v), bytes));
      }
      byte.k += n->ival;
      if (offs && (n->op == IR_M_f16 || n->op == IR_M_bf16)) { /* widened on the way through scratch */
        emit_store_at(e, IR_M_u16, e->scratch, lin_const(0), ir_gather(&e->b, IR_M_u16, ti, base, offs, byte.k), 0);
        v = ir_load(&e->b, (IrMem)n->op, tf, e->scratch, 0, 1, 0);
      } else if (offs) v = ir_gather(&e->b, (IrMem)n->op, n->type == DT_F32 ? tf : ti, base, offs, byte.k);
      else v = emit_load_at(e, (IrMem)n->op, 1, base, byte);
      break;
    case DX_AXIS: v = n->ival ? ir_splat(&e->b, ir_op1(&e->b, IR_trunc, e->part_block), lanes) : offs; break;
    case DX_PART: {
      Dx byte_at = n->arg[0];
      IrRef at = block_value(e, f, byte_at, base, offs, byte);
      n = &f->dag->node[x];
      v = emit_part(e, f, n, (IrMem)n->op, at);
      break;
    }
    case DX_TAB: v = emit_lookup(e, f, n, block_value(e, f, n->arg[0], base, offs, byte), lanes); break;
    default:
      CHECK(n->kind == DX_OP, "format %s: node of kind %d", f->decl->name, n->kind);
      for (int i = 0; i < n->n_args; i++) a[i] = block_value(e, f, n->arg[i], base, offs, byte);
      v = emit_node_op(e, f->dag, x, NULL, a);
  }
  if (x < e->field.n) e->field.v[x] = v;
  return v;
}

IrRef emit_block_value(Emit *e, const FormatForm *f, Dx x, IrRef base, IrRef offs, Lin byte) {
  uint64_t key[3] = {(uint64_t)e->b.at, (uint64_t)base, (uint64_t)byte.k}, at = hash_bytes(key, sizeof key, 1);
  for (int i = 0; i < byte.n; i++) {
    uint64_t t[2] = {(uint64_t)byte.t[i].v, (uint64_t)byte.t[i].c};
    at = hash_bytes(t, sizeof t, at);
  }
  emit_field_memo(e, f, at);
  return block_value(e, f, x, base, offs, byte);
}

void emit_field_memo(Emit *e, const FormatForm *f, uint64_t at) {
  if (e->field.f != f || e->field.at != at || e->field.n < f->dag->n) {
    e->field.f = f;
    e->field.at = at;
    if (e->field.n < f->dag->n) e->field.v = ARENA_ARRAY(e->a, IrRef, f->dag->n + 64);
    else memset(e->field.v, 0, sizeof(IrRef) * (size_t)e->field.n);
    e->field.n = MAX(e->field.n, f->dag->n);
  }
}

typedef struct AtElement { const FormatForm *f; int64_t i; } AtElement;
static Dx leaf_at(void *ctx, Dx x) {
  const AtElement *m = ctx;
  const DxNode *n = &m->f->dag->node[x];
  return n->kind == DX_LEAF ? m->f->leaf[n->ival].at[m->i] : 0;
}

Dx emit_attr_form(const FormatForm *f, WgtAttr attr) { return attr == WA_SCALE ? f->scale : attr == WA_STEP ? f->step : attr == WA_UNIT ? f->unit : f->offset; }

int64_t emit_attr_shared(const FormatForm *f, WgtAttr attr) { return attr == WA_UNIT ? f->span : f->group; }

/* The attribute of element i over the block's fields. */
Dx emit_attr(const FormatForm *f, WgtAttr attr, int64_t i) {
  AtElement m = {f, i};
  if (attr == WA_VALUE) return f->x[i];
  if (attr == WA_CODE) return dx_op2(f->dag, DXO_SUB, f->leaf[f->code].at[i], dx_int(f->dag, f->leaf[f->code].lo));
  return dx_rewrite(f->dag, emit_attr_form(f, attr), leaf_at, &m);
}

static IrRef raw_value(Emit *e, const DxNode *n, const FormatForm *f, bool vec) {
  int buf = (int)n->ival;
  Lin row = lin_of(e, n->arg[0]), k = lin_of(e, n->arg[1]), block;
  int64_t i, row_bytes = buf_K(e, buf) / f->block * f->n_bytes;
  k.lane = 0;
  if (!split(e, k, f->block, &block, &i)) return ir_const_f(&e->b, IR_T_f32, 0);
  Lin byte = lin_add(e, lin_scale(row, row_bytes), lin_scale(block, f->n_bytes));
  if (f->plain) return emit_load_at(e, f->mem, vec ? e->lanes : 1, buf_base(e, buf), byte);
  return emit_block_value(e, f, emit_attr(f, (WgtAttr)n->op, i), buf_base(e, buf), 0, byte);
}

/* ---- packed tiles -------------------------------------------------------------------------------------------------- */
/* Rows from which the arithmetic between two reads of weights keeps the processor from looking ahead far enough itself; with fewer it does, and hints
   only cost (measured: 2 and 4 rows are a quarter slower with them, 8 rows a third faster). */
enum { ROWS_AHEAD = 6 };

static IrRef packed_load(Emit *e, int buf, IrMem m, Lin in_tile, int row_bytes) {
  PackLayout l = format_layout(form_of(e, buf), buf_K(e, buf));
  Lin byte = lin_add(e, in_tile, lin_ref(e->tile, l.tile_bytes));
  if (e->blocks > 1) { /* which of the blocks of lanes side by side */
    int64_t lane = (int64_t)e->row % e->blocks * e->lanes;
    byte.k += lane / PACK_ROWS * l.tile_bytes + lane % PACK_ROWS * row_bytes;
  }
  if (e->sub) byte = lin_add(e, byte, lin_ref(e->sub, (int64_t)e->lanes * row_bytes));
  IrRef v = emit_load_at(e, m, e->lanes, buf_base(e, buf), byte);
  if (!e->s.ahead || e->n_rows < ROWS_AHEAD || v <= e->newest) return v; /* loads of before come again */
  e->newest = v;
  byte.k += e->s.ahead;
  if (e->lanes * row_bytes >= 64 || byte.k % 64 == 0) emit_prefetch_at(e, buf_base(e, buf), byte);
  return v;
}

/* Byte within the tile of leaf s at element k, k a multiple of what the leaf's entry covers (or inside it). */
Lin emit_leaf_byte(Emit *e, const FormatForm *f, const PackLayout *l, int s, Lin k) {
  int64_t per = s == f->code ? f->chunk : f->leaf[s].gran, step = per;
  for (int i = 0; i < k.n; i++) step = dx_gcd(step, k.t[i].c);
  k.k -= k.k % step; /* elements that surely share the entry share its address, and so the load */
  Lin in_unit = lin_divmod(e, k, l->unit, true), entry = in_unit;
  Lin at = lin_scale(lin_divmod(e, k, l->unit, false), l->unit_bytes);
  at.k += l->leaf_off[s];
  if (!l->in_header[s]) {
    at.k += l->header_bytes;
    at = lin_add(e, at, lin_scale(lin_divmod(e, in_unit, l->sub, false), l->sub_bytes));
    entry = lin_divmod(e, in_unit, l->sub, true);
  }
  return lin_add(e, at, lin_scale(lin_divmod(e, entry, per, false), l->leaf_stride[s]));
}

/* Bits that quad q of a chunk stands above the low ends of its bytes, where most of it lies; -1: its codes do not fit there, or are a table's indices. */
static int quad_above(const FormatForm *f, int q) {
  const PackLeaf *l = &f->leaf[f->code];
  PackPiece piece[PACK_PIECES];
  int n = format_pieces(f, q, piece), above = piece[0].at - piece[0].to, bits = 0;
  for (int i = 0; i < n; i++) bits += piece[i].bits;
  return l->index || above < 0 || above + bits > 8 ? -1 : above;
}

/* Codes times 1 << above. */
static IrRef quad_raised(Emit *e, int buf, Lin k, int q, int above) {
  const FormatForm *f = form_of(e, buf);
  PackLayout l = format_layout(f, buf_K(e, buf));
  Lin at = emit_leaf_byte(e, f, &l, f->code, k);
  PackPiece piece[PACK_PIECES];
  int n = format_pieces(f, q, piece);
  IrRef sum = 0;
  for (int i = 0; i < n; i++) {
    int bits = piece[i].bits, to = piece[i].to + above, by = piece[i].at - to;
    IrRef v = packed_load(e, buf, IR_M_i32, lin_add(e, at, lin_const(piece[i].vec * 64)), 4);
    if (by) v = ir_shift(&e->b, by > 0 ? IR_shr : IR_shl, v, by > 0 ? by : -by);
    if (bits < 8) v = ir_op2(&e->b, IR_and, v, ir_const_i(&e->b, ir_vec_type(IR_E_I32, e->lanes), (int32_t)(0x01010101u * (uint32_t)(((1 << bits) - 1) << to))));
    sum = sum ? ir_op2(&e->b, IR_or, sum, v) : v;
  }
  return sum;
}

/* From a panel, of all 16 rows: those of the present lanes. */
static IrRef panel_load(Emit *e, IrMem m, Lin at) {
  if (e->sub) at = lin_add(e, at, lin_ref(e->sub, (int64_t)e->lanes * 4));
  return emit_load_at(e, m, e->lanes, e->scratch, at);
}

/* Codes 4q .. 4q+3 of the chunk at element k, of each row: one byte each, as i32 lanes. */
static IrRef quad(Emit *e, int buf, Lin k, int q) {
  const FormatForm *f = form_of(e, buf);
  const PackLeaf *lf = &f->leaf[f->code];
  if (e->panel[buf].code) {
    Lin at = lin_add(e, lin_scale(k, 16), lin_const(e->panel[buf].off + q * 64));
    return panel_load(e, IR_M_i32, at);
  }
  PackPiece piece[PACK_PIECES];
  int n = format_pieces(f, q, piece), above = n > 1 ? quad_above(f, q) : 0;
  IrRef sum = quad_raised(e, buf, k, q, MAX(above, 0));
  if (above > 0) sum = ir_shift(&e->b, IR_shr, sum, above);
  if (!lf->index) return sum;
  return ir_op2(&e->b, IR_shuf, emit_load_at(e, IR_M_i32, e->lanes, emit_table(e, f, lf->map), lin_const(0)), sum);
}

/* k in the chunk's beginning and the position inside it, which must be known. */
static bool in_chunk(Emit *e, const FormatForm *f, Lin k, Lin *chunk, int64_t *j) {
  Lin whole;
  if (!split(e, k, f->chunk, &whole, j)) return false;
  *chunk = k;
  chunk->k -= *j;
  return true;
}

static IrRef code_at(Emit *e, int buf, Lin k) {
  Lin chunk;
  int64_t j;
  IrType t = ir_vec_type(IR_E_I32, e->lanes);
  if (!in_chunk(e, form_of(e, buf), k, &chunk, &j)) return ir_const_i(&e->b, t, 0);
  IrRef v = quad(e, buf, chunk, (int)(j / 4));
  if (j % 4) v = ir_shift(&e->b, IR_shr, v, (int)(8 * (j % 4)));
  return j % 4 == 3 ? v : ir_op2(&e->b, IR_and, v, ir_const_i(&e->b, t, 255));
}

static IrRef leaf_value(Emit *e, const FormatForm *f, int slot, int buf, Lin k) {
  const PackLeaf *lf = &f->leaf[slot];
  IrType t = ir_vec_type(IR_E_I32, e->lanes);
  IrRef v;
  if (slot == f->code) v = code_at(e, buf, k);
  else {
    PackLayout l = format_layout(f, buf_K(e, buf));
    v = packed_load(e, buf, lf->mem, emit_leaf_byte(e, f, &l, slot, k), ir_mem_bytes[lf->mem]);
  }
  return lf->is_int && lf->lo && !lf->as_is ? ir_op2(&e->b, IR_add, v, ir_const_i(&e->b, t, lf->lo)) : v;
}

/* Of one element: what the form says more than once is computed once. */
typedef struct FormMemo { Dx x[64]; IrRef v[64]; int n; } FormMemo;
static IrRef form_value(Emit *e, const FormatForm *f, FormMemo *memo, Dx x, int buf, Lin k) {
  const DxNode n = f->dag->node[x];
  IrRef a[3], v;
  if (n.kind == DX_INT) return ir_const_i(&e->b, ir_vec_type(IR_E_I32, e->lanes), n.ival);
  if (n.kind == DX_FLT) return ir_const_f(&e->b, ir_vec_type(IR_E_F32, e->lanes), n.fval);
  for (int i = 0; i < memo->n; i++) if (memo->x[i] == x) return memo->v[i];
  CHECK(n.kind == DX_LEAF || n.kind == DX_TAB || n.kind == DX_OP, "format %s: node of kind %d in its form", f->decl->name, n.kind);
  for (int i = 0; i < n.n_args; i++) a[i] = form_value(e, f, memo, n.arg[i], buf, k);
  if (n.kind == DX_LEAF) v = leaf_value(e, f, (int)n.ival, buf, k);
  else v = n.kind == DX_TAB ? emit_lookup(e, f, &n, a[0], e->lanes) : emit_node_op(e, f->dag, x, NULL, a);
  if (memo->n < (int)COUNT_OF(memo->x)) memo->x[memo->n] = x, memo->v[memo->n++] = v;
  return v;
}

IrRef emit_form(Emit *e, const FormatForm *f, Dx x, int buf, Lin k) {
  FormMemo memo = {.n = 0};
  return form_value(e, f, &memo, x, buf, k);
}

/* One of a pair of bfloat16: the even position lies low. */
static IrRef panel_pair(Emit *e, int buf, Lin k) {
  IrType t = ir_vec_type(IR_E_I32, e->lanes);
  int64_t odd = k.k & 1;
  k.k -= odd;
  for (int i = 0; i < k.n; i++) if (k.t[i].c % 2) emit_fail(e, err_new(ERR_UNSUPPORTED, "which of a pair of weights is meant is not known before run time"));
  Lin at = lin_add(e, lin_scale(k, 32), lin_const(e->panel[buf].off));
  IrRef v = emit_load_at(e, IR_M_i32, e->lanes, e->scratch, at);
  return ir_op1(&e->b, IR_bits, odd ? ir_op2(&e->b, IR_and, v, ir_const_i(&e->b, t, -65536)) : ir_shift(&e->b, IR_shl, v, 16));
}

/* Elements k and k + 1, both bfloat16. */
static IrRef weight_pair(Emit *e, int buf, Lin k) {
  if (e->panel[buf].value && e->s.pairs) return panel_load(e, IR_M_i32, lin_add(e, lin_scale(k, 32), lin_const(e->panel[buf].off)));
  const FormatForm *f = form_of(e, buf);
  PackLayout l = format_layout(f, buf_K(e, buf));
  IrRef half[2];
  for (int i = 0; i < 2; i++, k.k++) half[i] = packed_load(e, buf, IR_M_u16, emit_leaf_byte(e, f, &l, 0, k), 2);
  return ir_op2(&e->b, IR_or, half[0], ir_shift(&e->b, IR_shl, half[1], 16));
}

Vals emit_weight_pairs(Emit *e, Dx x) {
  const DxNode n = e->d->node[x];
  int rows = emit_in_rows(e, x) ? e->n_rows : 1;
  Vals r = {rows, true, ARENA_ARRAY(e->a, IrRef, rows)};
  for (e->row = 0; e->row < rows; e->row++) r.v[e->row] = weight_pair(e, (int)n.ival, lin_of(e, n.arg[1]));
  e->row = 0;
  return r;
}

static IrRef panel_value(Emit *e, int buf, Lin k) {
  if (e->s.pairs) return panel_pair(e, buf, k);
  Lin at = lin_add(e, lin_scale(k, 64), lin_const(e->panel[buf].off));
  return panel_load(e, IR_M_f32, at);
}

static IrRef kept_floats(Emit *e, int buf, WgtAttr attr, Lin k) {
  Lin at = lin_scale(lin_divmod(e, k, emit_attr_shared(form_of(e, buf), attr), false), 64);
  at.k += e->panel[buf].kept[attr] - 1;
  return panel_load(e, IR_M_f32, at);
}

static IrRef packed_value(Emit *e, const DxNode *n, const FormatForm *f) {
  int buf = (int)n->ival;
  Lin k = e->fill ? *e->fill : lin_of(e, n->arg[1]);
  if (n->op == WA_CODE) return code_at(e, buf, k);
  if (n->op == WA_VALUE && e->panel[buf].value && !e->panel[buf].expr) return panel_value(e, buf, k);
  if (n->op != WA_VALUE && e->panel[buf].kept[n->op]) return kept_floats(e, buf, (WgtAttr)n->op, k);
  return emit_form(e, f, n->op == WA_VALUE ? f->value : emit_attr_form(f, (WgtAttr)n->op), buf, k);
}

Vals emit_weight(Emit *e, Dx x) {
  const DxNode n = e->d->node[x];
  const FormatForm *f = form_of(e, (int)n.ival);
  bool raw = e->p->buf[n.ival].raw || e->s.naive;
  int rows = !e->fill && emit_in_rows(e, x) ? e->n_rows : 1;
  Vals r = {rows, !raw || (e->lane_axis >= 0 && n.axes >> e->lane_axis & 1), ARENA_ARRAY(e->a, IrRef, rows)};
  for (int k = 0; k < rows; k++) {
    e->row = k;
    r.v[k] = raw ? raw_value(e, &n, f, r.vec) : packed_value(e, &n, f);
  }
  e->row = 0;
  return r;
}

/* ---- integer contraction ------------------------------------------------------------------------------------------- */
static bool contiguous_bytes(const Emit *e, const DxNode *n, int axis) {
  bool ok = true;
  if (n->kind != DX_LOAD || e->p->buf[n->ival].mem != IR_M_i8) return false;
  for (int i = 0; i < n->n_args; i++) {
    if (e->lane_axis >= 0 && emit_lane_coef(e->d, n->arg[i], e->lane_axis, e->lanes, &ok)) return false; /* the same for all lanes */
    if (dx_coef(e->d, n->arg[i], axis, &ok) != (i == n->n_args - 1)) return false;
  }
  return ok;
}

static bool is_code(const Emit *e, Dx x) {
  const DxNode *n = &e->d->node[x];
  return n->op == WA_CODE && (n->kind == DX_WGT || (n->kind == DX_LOAD && e->p->buf[n->ival].blocks));
}

/* x of x - n */
static Dx without_bias(const Dag *d, Dx x, int64_t *n) {
  int64_t v = 0;
  bool less = d->node[x].kind == DX_OP && d->node[x].op == DXO_SUB && dx_is_int(d, d->node[x].arg[1], &v);
  if (n) *n = v;
  return less ? d->node[x].arg[0] : x;
}

bool emit_on_fours(Emit *e, Dx position, int axis) {
  Lin saved = e->axis[axis];
  bool ok = true;
  e->axis[axis] = lin_const(0);
  for (e->row = 0; e->row < e->n_rows && ok; e->row++) {
    Lin l = lin_of(e, position);
    ok = l.k % 4 == 0;
    for (int i = 0; i < l.n; i++) ok = ok && l.t[i].c % 4 == 0;
  }
  e->row = 0;
  e->axis[axis] = saved;
  return ok;
}

/* Sums of quads that stand above the low ends of their bytes, one for each height: shifted once, instead of every quad. */
typedef struct Above { int n[8]; IrRef sum[8]; } Above;
enum { LEAST_ABOVE = 3 }; /* quads that save more than a shift and an addition */

/* Of one row: with more, each would shift sums of its own. */
static void find_above(Emit *e, int buf, Dx position, int axis, int64_t len, Above *a) {
  const FormatForm *f = form_of(e, buf);
  for (int64_t q = 0; q < len && e->n_rows == 1 && !e->panel[buf].code; q += 4) {
    Lin chunk;
    int64_t j;
    e->axis[axis] = lin_const(q);
    int above = in_chunk(e, f, lin_of(e, position), &chunk, &j) ? quad_above(f, (int)(j / 4)) : 0;
    if (above > 0 && (!e->s.short_dots || f->code_max << above <= 127)) a->n[above]++;
  }
}

static IrRef add_above(Emit *e, const Above *a, IrRef sum) {
  for (int i = 1; i < 8; i++) if (a->sum[i]) sum = ir_op2(&e->b, IR_add, ir_shift(&e->b, IR_sar, a->sum[i], i), sum);
  return sum;
}

/* isum(k < n: a[.. + k] * w.code[row, .. + k]), n a multiple of 4: four products a step. */
bool emit_dot4(Emit *e, Dx red, Vals *init, Vals *out) {
  const DxNode n = e->d->node[red], body = e->d->node[n.arg[1]];
  int axis = (int)n.ival;
  int64_t len;
  if (e->s.naive || e->lane_axis < 0 || body.kind != DX_OP || body.op != DXO_MUL || !dx_is_int(e->d, n.arg[0], &len) || len % 4 || len > 256) return false;
  int wi = is_code(e, without_bias(e->d, body.arg[0], NULL)) ? 0 : 1;
  int64_t less = 0;
  const DxNode w = e->d->node[without_bias(e->d, body.arg[wi], &less)], a = e->d->node[body.arg[1 - wi]];
  bool ok = true;
  if (w.kind == DX_LOAD && e->p->buf[w.ival].blocks) {
    DxRange r = dx_range(e->d, body.arg[1 - wi], NULL);
    if (!contiguous_bytes(e, &a, axis)) return false;
    return (!less && emit_block_dot4(e, &w, &a, axis, len, init, out)) || ((!less || (r.lo >= 0 && r.hi <= 127)) && emit_rows_dot4(e, &w, &a, less, (int)r.hi, axis, len, init, out));
  }
  if (less) return false;
  if (w.kind != DX_WGT || w.op != WA_CODE || e->p->buf[w.ival].raw || !contiguous_bytes(e, &a, axis)) return false;
  if (dx_coef(e->d, w.arg[1], axis, &ok) != 1 || !ok || emit_in_rows(e, body.arg[wi]) || !emit_on_fours(e, w.arg[1], axis)) return false;
  const FormatForm *f = form_of(e, (int)w.ival);
  Lin saved = e->axis[axis];
  IrType t = ir_vec_type(IR_E_I32, e->lanes);
  IrRef zero = ir_const_i(&e->b, t, 0), *top = NULL;
  Vals r = {e->n_rows, true, ARENA_ARRAY(e->a, IrRef, e->n_rows)};
  for (int k = 0; k < r.n; k++) r.v[k] = init ? emit_pick(e, *init, k, true) : zero;
  if (e->s.short_dots && f->code_max > 127) { /* the codes' top bits in a sum of their own: both fit 16 bits on the way */
    top = ARENA_ARRAY(e->a, IrRef, e->n_rows);
    for (int k = 0; k < r.n; k++) top[k] = zero;
  }
  Above above = {0};
  find_above(e, (int)w.ival, w.arg[1], axis, len, &above);
  for (int64_t q = 0; q < len; q += 4) {
    Lin chunk;
    int64_t j;
    e->axis[axis] = lin_const(q);
    if (!in_chunk(e, f, lin_of(e, w.arg[1]), &chunk, &j)) break;
    int up = quad_above(f, (int)(j / 4));
    if (up > 0 && above.n[up] >= LEAST_ABOVE) {
      IrRef s = ir_splat(&e->b, emit_load_at(e, IR_M_i32, 1, buf_base(e, (int)a.ival), buf_index(e, (int)a.ival, a.arg, a.n_args)), e->lanes);
      above.sum[up] = ir_dot4(&e->b, above.sum[up] ? above.sum[up] : zero, quad_raised(e, (int)w.ival, chunk, (int)(j / 4), up), s, f->code_max << up);
      continue;
    }
    IrRef u = quad(e, (int)w.ival, chunk, (int)(j / 4)), high = 0;
    if (top) {
      high = ir_op2(&e->b, IR_and, ir_shift(&e->b, IR_shr, u, 7), ir_const_i(&e->b, t, 0x01010101));
      u = ir_op2(&e->b, IR_and, u, ir_const_i(&e->b, t, 0x7f7f7f7f));
    }
    for (int k = 0; k < r.n; k++) {
      e->row = k;
      IrRef s = ir_splat(&e->b, emit_load_at(e, IR_M_i32, 1, buf_base(e, (int)a.ival), buf_index(e, (int)a.ival, a.arg, a.n_args)), e->lanes);
      r.v[k] = ir_dot4(&e->b, r.v[k], u, s, top ? 127 : e->panel[w.ival].steps ? f->most : f->code_max);
      if (top) top[k] = ir_dot4(&e->b, top[k], high, s, 1);
    }
  }
  for (int k = 0; top && k < r.n; k++) r.v[k] = ir_op2(&e->b, IR_add, r.v[k], ir_shift(&e->b, IR_shl, top[k], 7));
  r.v[0] = add_above(e, &above, r.v[0]);
  e->row = 0;
  e->axis[axis] = saved;
  *out = r;
  return true;
}

static int64_t unit_of(Emit *e, Dx x, int axis) {
  const DxNode *n = &e->d->node[x];
  int64_t unit = 1;
  if (!(n->axes >> axis & 1) || !dag_walk_first(e->d, x)) return 1;
  for (int i = 0; i < n->n_args; i++) {
    int64_t u = unit_of(e, n->arg[i], axis);
    unit = unit / dx_gcd(unit, u) * u;
  }
  if (n->kind == DX_LOAD && e->p->buf[n->ival].blocks) {
    const TpBuf *b = &e->p->buf[n->ival];
    bool linear = true;
    int64_t c = dx_coef(e->d, n->arg[b->block_dim], axis, &linear);
    if (!linear) emit_fail(e, err_new(ERR_UNSUPPORTED, "%s: a position in its blocks of %s is not linear", b->name, b->blocks->decl->name));
    int64_t u = c ? b->blocks->block / dx_gcd(b->blocks->block, c) : 1;
    return unit / dx_gcd(unit, u) * u;
  }
  if (n->kind != DX_WGT) return unit;
  const FormatForm *f = form_of(e, (int)n->ival);
  bool raw = e->p->buf[n->ival].raw || e->s.naive, ok = true;
  int64_t unit_len = format_layout(f, buf_K(e, (int)n->ival)).unit;
  bool by_chunk = n->op == WA_CODE || (n->op == WA_VALUE && f->code >= 0 && !e->panel[n->ival].value);
  int64_t need = raw ? f->block : by_chunk && unit_len <= (n->op == WA_CODE ? 256 : 128) ? unit_len : by_chunk ? f->chunk : 1;
  int64_t g = dx_gcd(need, dx_coef(e->d, n->arg[1], axis, &ok));
  if (!ok) emit_fail(e, err_new(ERR_UNSUPPORTED, "a weight's position is not linear"));
  return g ? need / g : 1;
}

int64_t emit_unit(Emit *e, Dx body, int axis) {
  dag_walk_begin(e->d);
  return unit_of(e, body, axis);
}

/* ---- panels -------------------------------------------------------------------------------------------------------- */
/* The only weight of an expression over constants; 0: none yet, -1: something else is in it. */
static Dx only_weight(const Dag *d, Dx x, Dx found) {
  const DxNode *n = &d->node[x];
  if (n->kind == DX_WGT) return n->op == WA_VALUE && (!found || found == x) ? x : -1;
  if (n->kind == DX_INT || n->kind == DX_FLT) return found;
  if (n->kind != DX_OP) return -1;
  for (int i = 0; i < n->n_args && found >= 0; i++) found = only_weight(d, n->arg[i], found);
  return found;
}

Dx panel_weight(const Dag *d, Dx x) { return only_weight(d, x, 0); }

int lower_made_of_weight(const Dag *d, Dx x) {
  const DxNode *n = &d->node[x];
  if (n->kind != DX_OP || n->type != DT_F32 || n->op == DXO_MUL || n->op == DXO_ADD) return -1;
  Dx w = panel_weight(d, x);
  return w > 0 ? (int)d->node[w].ival : -1;
}

bool panel_same(const Dag *d, Dx a, Dx b) {
  const DxNode *m = &d->node[a], *n = &d->node[b];
  if (m->kind != n->kind || m->op != n->op || m->ival != n->ival || m->n_args != n->n_args) return false;
  if (m->kind == DX_WGT) return m->arg[0] == n->arg[0];
  if (m->n_args == 0) return a == b;
  for (int i = 0; i < m->n_args; i++) if (!panel_same(d, m->arg[i], n->arg[i])) return false;
  return true;
}

bool emit_from_panel(Emit *e, Dx x, Vals *out) {
  int buf = e->s.stage && !e->fill ? lower_made_of_weight(e->d, x) : -1;
  if (buf < 0 || !e->panel[buf].expr) return false;
  int rows = emit_in_rows(e, x) ? e->n_rows : 1;
  *out = (Vals){rows, true, ARENA_ARRAY(e->a, IrRef, rows)};
  for (e->row = 0; e->row < rows; e->row++) out->v[e->row] = panel_value(e, buf, lin_of(e, e->d->node[panel_weight(e->d, x)].arg[1]));
  e->row = 0;
  return true;
}

int64_t panel_bytes(const Emit *e, bool code) { return code ? 16 : e->s.pairs ? 32 : 64; }

/* What the panel keeps of element k. */
static IrRef panel_entry(Emit *e, int buf, Dx expr, Lin k) {
  if (!expr) return emit_form(e, form_of(e, buf), form_of(e, buf)->value, buf, k);
  int mark = emit_mark(e);
  e->fill = &k;
  Vals v = emit(e, expr);
  e->fill = NULL;
  int n_load = e->load.n;
  emit_forget(e, mark);
  e->load.n = n_load;
  return emit_pick(e, v, 0, true);
}

/* Elements k and k + 1 as bfloat16, which they are exactly. */
static IrRef panel_pair_entry(Emit *e, int buf, Dx expr, Lin k) {
  IrRef low = ir_shift(&e->b, IR_shr, ir_op1(&e->b, IR_bits, panel_entry(e, buf, expr, k)), 16);
  k.k++;
  return ir_op2(&e->b, IR_or, low, ir_op1(&e->b, IR_bits, panel_entry(e, buf, expr, k)));
}

void emit_panel(Emit *e, int buf) {
  const FormatForm *f = form_of(e, buf);
  Panel want = e->panel[buf];
  int lanes = e->lanes;
  IrRef sub = e->sub;
  int64_t K = buf_K(e, buf), step = f->code >= 0 ? f->chunk : dx_gcd(K, 16);
  Loop l;
  e->lanes = FULL_LANES;
  e->sub = 0;
  e->panel[buf] = (Panel){.off = want.off};
  loop_begin(e, &l, ir_const_i(&e->b, IR_T_i64, K / step), true, NULL, 0);
  bool pairs = e->s.pairs && !want.code;
  int64_t bytes = panel_bytes(e, want.code);
  for (int64_t j = 0; j < step; j += want.code ? 4 : pairs ? 2 : 1) {
    Lin k = lin_ref(l.iv, step);
    k.k = j;
    Lin to = lin_add(e, lin_ref(l.iv, step * bytes), lin_const(want.off + j * bytes));
    IrRef v = want.code ? quad(e, buf, lin_ref(l.iv, step), (int)(j / 4)) : pairs ? panel_pair_entry(e, buf, want.expr, k) : panel_entry(e, buf, want.expr, k);
    if (want.steps) v = emit_stepped(e, buf, k, v);
    int n_load = e->load.n; /* scratch never overlaps the packed weights, so what was loaded stays good */
    emit_store_at(e, want.code || pairs ? IR_M_i32 : IR_M_f32, e->scratch, to, v, 0);
    e->load.n = n_load;
  }
  loop_end(e, &l, NULL);
  for (int attr = WA_SCALE; attr <= WA_UNIT; attr++) {
    if (!want.kept[attr]) continue;
    int64_t shared = emit_attr_shared(f, (WgtAttr)attr);
    loop_begin(e, &l, ir_const_i(&e->b, IR_T_i64, K / shared), true, NULL, 0);
    IrRef v = emit_form(e, f, emit_attr_form(f, (WgtAttr)attr), buf, lin_ref(l.iv, shared));
    emit_store_at(e, IR_M_f32, e->scratch, lin_add(e, lin_ref(l.iv, 64), lin_const(want.kept[attr] - 1)), v, 0);
    loop_end(e, &l, NULL);
  }
  e->panel[buf] = want;
  e->lanes = lanes;
  e->sub = sub;
}
