/* Matrix tiles: sums that the tiles of a target can do, found by their structure, and the IR that does them 16 or 32 rows at once.
   Bytes: isum(k: a[m, .. + k] * w.code[n, .. + k]) over a panel of codes. Pairs: a chain over blocks of 32 of (a chain over even positions + one over
   odd ones) of products of bfloat16, over a panel that keeps two of them in 32 bits. A tile flushes denormals, so it is given only operands that are 0
   or at least 2^-56: of their products no sum is denormal. In: a region and a schedule. Out: vectors of sums, bit for bit those that emit.c makes. */
#include "opt/emit.h"

enum { PAIR_BLOCK = 32, TILE_ROWS = 16, TILE_BYTES = 1024, LEAST_BYTES = 16, N_SUMS = 4 };

bool tp_is_bf16(const Dag *d, Dx x) { /* abs(r) < c ? 0 : r, r = bits_f32(y & -65536) */
  const DxNode *n = &d->node[x], *r = &d->node[n->arg[2]];
  int64_t v;
  if (n->kind != DX_OP || n->op != DXO_COND || r->kind != DX_OP || r->op != DXO_BITF) return false;
  const DxNode *bits = &d->node[r->arg[0]], *zero = &d->node[n->arg[1]], *lt = &d->node[n->arg[0]];
  if (bits->kind != DX_OP || bits->op != DXO_AND || !dx_is_int(d, bits->arg[1], &v) || v != -65536) return false;
  if (zero->kind != DX_FLT || f32_to_bits(zero->fval) || lt->kind != DX_OP || lt->op != DXO_LT) return false;
  const DxNode *abs = &d->node[lt->arg[0]], *least = &d->node[lt->arg[1]];
  return abs->kind == DX_OP && abs->op == DXO_ABS && abs->arg[0] == n->arg[2] && least->kind == DX_FLT && least->fval >= 0x1p-56f;
}

/* ---- which sums -------------------------------------------------------------------------------------------------------- */
/* Plain axis 0, and not in the other index: rows of a tile lie one behind the other. */
static bool of_rows(const Dag *d, const DxNode *n) {
  const DxNode *m = &d->node[n->arg[0]];
  return n->n_args == 2 && m->kind == DX_AXIS && m->ival == 0 && !(d->node[n->arg[1]].axes & 1);
}

/* Bytes along the sum of one tile's operand; 0: no sum of bytes. */
static int bytes_of(const Tp *p, Dx red) {
  const Dag *d = p->dag;
  const DxNode *n = &d->node[red];
  Dx load, code;
  int64_t len;
  bool ok = true;
  if (n->kind != DX_RED || n->op != RED_ISUM || !dx_is_int(d, n->arg[0], &len) || !dx_is_product(d, n->arg[1], DX_LOAD, &load, &code)) return 0;
  const DxNode *a = &d->node[load], *w = &d->node[code];
  int axis = (int)n->ival;
  if (p->buf[a->ival].mem != IR_M_i8 || !of_rows(d, a) || w->kind != DX_WGT || w->op != WA_CODE || p->buf[w->ival].raw || d->node[w->arg[1]].axes & 1) return 0;
  if (dx_coef(d, a->arg[1], axis, &ok) != 1 || dx_coef(d, w->arg[1], axis, &ok) != 1 || !ok) return 0;
  int bytes = len <= 64 ? (int)len : (int)dx_gcd(len, 64);
  return bytes >= LEAST_BYTES && bytes % 4 == 0 && len <= 256 ? bytes : 0;
}

/* An index with all axes 0; *ok false: it is not linear. */
static int64_t at_zero(const Dag *d, Dx x, bool *ok) {
  const DxNode *n = &d->node[x];
  if (n->kind == DX_INT) return n->ival;
  if (n->kind == DX_AXIS) return 0;
  if (n->kind == DX_OP && n->n_args == 2) {
    if (n->op == DXO_ADD) return at_zero(d, n->arg[0], ok) + at_zero(d, n->arg[1], ok);
    if (n->op == DXO_SUB) return at_zero(d, n->arg[0], ok) - at_zero(d, n->arg[1], ok);
    if (n->op == DXO_MUL) return at_zero(d, n->arg[0], ok) * at_zero(d, n->arg[1], ok);
  }
  *ok = false;
  return 0;
}

/* k = 32 b + 2 i + odd */
static bool is_position(const Dag *d, Dx k, int b, int i, int odd) {
  bool ok = true;
  uint32_t axes = d->node[k].axes & ~(1u << b | 1u << i);
  return !axes && dx_coef(d, k, b, &ok) == PAIR_BLOCK && dx_coef(d, k, i, &ok) == 2 && at_zero(d, k, &ok) == odd && ok;
}

typedef struct Half { Dx load, weight; } Half; /* weight: what is made of it, as the panel keeps it */

static bool half_of(const Tp *p, Dx red, int b, int odd, Half *out) {
  const Dag *d = p->dag;
  const DxNode *n = &d->node[red];
  int64_t len;
  if (n->kind != DX_RED || n->op != RED_CHAIN || !dx_is_int(d, n->arg[0], &len) || len != PAIR_BLOCK / 2) return false;
  if (!dx_is_product(d, n->arg[1], DX_LOAD, &out->load, &out->weight)) return false;
  const DxNode *a = &d->node[out->load];
  Dx of = panel_weight(d, out->weight);
  if (p->buf[a->ival].mem != IR_M_bf16 || !p->buf[a->ival].bf16 || !of_rows(d, a) || of <= 0) return false;
  const DxNode *w = &d->node[of];
  if (p->buf[w->ival].raw || lower_made_of_weight(d, out->weight) < 0 || !tp_is_bf16(d, out->weight)) return false;
  return is_position(d, a->arg[1], b, (int)n->ival, odd) && is_position(d, w->arg[1], b, (int)n->ival, odd);
}

static bool pairs_of(const Tp *p, Dx red, Half out[2]) {
  const Dag *d = p->dag;
  const DxNode *n = &d->node[red];
  if (n->kind != DX_RED || n->op != RED_CHAIN || !dx_is_int(d, n->arg[0], NULL)) return false;
  const DxNode *sum = &d->node[n->arg[1]];
  if (sum->kind != DX_OP || sum->op != DXO_ADD) return false;
  for (int i = 0; i < 2; i++) if (!half_of(p, sum->arg[i], (int)n->ival, i, &out[i])) return false;
  return d->node[out[0].load].ival == d->node[out[1].load].ival && panel_same(d, out[0].weight, out[1].weight);
}

typedef struct Fit { const Tp *p; int bytes; bool pairs, other; } Fit;

static void find_sums(Fit *f, Dx x) {
  const Dag *d = f->p->dag;
  const DxNode *n = &d->node[x];
  Half half[2];
  int bytes = bytes_of(f->p, x);
  bool pairs = !bytes && pairs_of(f->p, x, half);
  if (!dag_walk_first(f->p->dag, x)) return;
  if (bytes || pairs) {
    if (f->bytes && (f->bytes != (pairs ? 64 : bytes) || f->pairs != pairs)) f->other = true;
    f->bytes = pairs ? 64 : bytes;
    f->pairs = pairs;
    return;
  }
  if (n->kind == DX_WGT && (n->op == WA_CODE || n->op == WA_VALUE)) f->other = true;
  for (int i = 0; i < n->n_args; i++) find_sums(f, n->arg[i]);
}

bool lower_matrix(const TpPlan *p, int region, Sched *s) {
  const TpRegion *r = &p->region[region];
  Fit f = {.p = p->tp};
  dag_walk_begin(p->tp->dag);
  for (int i = 0; i < r->n_stmts; i++) find_sums(&f, p->tp->stmt[r->stmt[i]].rhs);
  if (!r->contraction || !s->stage || s->lanes != TILE_ROWS || !f.bytes || f.other) return false;
  s->matrix_bytes = f.bytes;
  s->pairs = f.pairs;
  s->n_matrix = 0;
  if (f.pairs) s->matrix[s->n_matrix++] = 2 * TILE_ROWS; /* sums stay in tiles over all of K: two share a tile of weights */
  s->matrix[s->n_matrix++] = TILE_ROWS;                  /* sums of bytes leave after each group, into 16 rows' vectors */
  return true;
}

/* ---- in tiles ----------------------------------------------------------------------------------------------------------- */
static void tile_mem(Emit *e, IrOp op, int tile, IrRef ptr, Lin byte, int64_t row_bytes) {
  IrRef idx = 0;
  int64_t disp = byte.k;
  byte.k = 0;
  if (byte.n) idx = lin_value(e, byte);
  ir_tile_mem(&e->b, op, tile, ptr, idx, 1, disp, ir_const_i(&e->b, IR_T_i64, row_bytes));
}

/* Rows row .. row + 15 of what x loads at the axes' present place. */
static void load_rows(Emit *e, int tile, Dx x, int row) {
  const DxNode n = e->d->node[x];
  int buf = (int)n.ival, bytes = ir_mem_bytes[buf_mem(e, buf)];
  e->row = row;
  Lin at = lin_scale(buf_index(e, buf, n.arg, n.n_args), bytes);
  e->row = row + 1;
  Lin next = lin_scale(buf_index(e, buf, n.arg, n.n_args), bytes);
  e->row = 0;
  tile_mem(e, IR_tload, tile, buf_base(e, buf), at, next.k - at.k);
}

static Lin sums_at(const Emit *e, int slot) { return lin_const(e->sums_off + (int64_t)slot * TILE_BYTES); }

/* The sums of 16 rows go to scratch and come back as vectors. */
static void sums_out(Emit *e, int tile, int slot) {
  tile_mem(e, IR_tstore, tile, e->scratch, sums_at(e, slot), 64);
  e->load.n = 0; /* what was loaded from the slot before is old */
}

bool emit_tile_bytes(Emit *e, Dx red, Vals *out) {
  int bytes = e->matrix && !e->s.pairs && e->n_rows == TILE_ROWS ? bytes_of(e->p, red) : 0;
  const DxNode n = e->d->node[red];
  Dx load, code;
  int64_t len;
  if (!bytes || bytes != e->s.matrix_bytes || !dx_is_int(e->d, n.arg[0], &len) || !dx_is_product(e->d, n.arg[1], DX_LOAD, &load, &code)) return false;
  const DxNode w = e->d->node[code];
  int axis = (int)n.ival;
  Lin saved = e->axis[axis];
  if (!e->panel[w.ival].code || !emit_on_fours(e, w.arg[1], axis)) return false;
  int slot = e->n_sums++ % N_SUMS;
  ir_tile(&e->b, IR_tzero, slot);
  for (int64_t k = 0, i = e->n_sums; k < len; k += bytes, i++) {
    int a = 4 + (int)(i & 1), b = 6 + (int)(i & 1);
    e->axis[axis] = lin_const(k);
    load_rows(e, a, load, 0);
    tile_mem(e, IR_tload, b, e->scratch, lin_add(e, lin_scale(lin_of(e, w.arg[1]), 16), lin_const(e->panel[w.ival].off)), 64);
    ir_tile(&e->b, IR_tdot4, slot | a << 4 | b << 8);
  }
  e->axis[axis] = saved;
  sums_out(e, slot, slot);
  *out = (Vals){TILE_ROWS, true, ARENA_ARRAY(e->a, IrRef, TILE_ROWS)};
  for (int m = 0; m < TILE_ROWS; m++) out->v[m] = emit_load_at(e, IR_M_i32, TILE_ROWS, e->scratch, lin_add(e, sums_at(e, slot), lin_const(64 * m)));
  return true;
}

bool emit_tile_pairs(Emit *e, Dx red, Vals *out) {
  Half half[2];
  if (!e->matrix || !e->s.pairs || e->n_rows % TILE_ROWS || !pairs_of(e->p, red, half)) return false;
  const DxNode n = e->d->node[red], w = e->d->node[panel_weight(e->d, half[0].weight)];
  int outer = (int)n.ival, inner = (int)e->d->node[e->d->node[n.arg[1]].arg[0]].ival, tiles = e->n_rows / TILE_ROWS;
  Lin saved[2] = {e->axis[outer], e->axis[inner]};
  int64_t blocks = 0;
  CHECK(dx_is_int(e->d, n.arg[0], &blocks));
  if (!e->panel[w.ival].value || !e->panel[w.ival].expr) return false;
  for (int t = 0; t < tiles; t++) ir_tile(&e->b, IR_tzero, t);
  int unroll = blocks % 2 ? 1 : 2;
  Loop l;
  loop_begin(e, &l, ir_const_i(&e->b, IR_T_i64, blocks / unroll), false, NULL, 0);
  for (int u = 0; u < unroll; u++) {
    e->axis[outer] = lin_ref(l.iv, unroll);
    e->axis[outer].k += u;
    e->axis[inner] = lin_const(0);
    tile_mem(e, IR_tload, 6 + u, e->scratch, lin_add(e, lin_scale(lin_of(e, w.arg[1]), 32), lin_const(e->panel[w.ival].off)), 64);
    for (int t = 0; t < tiles; t++) {
      load_rows(e, 4 + t, half[0].load, t * TILE_ROWS);
      ir_tile(&e->b, IR_tdot2, t | (4 + t) << 4 | (6 + u) << 8);
    }
  }
  loop_end(e, &l, NULL);
  e->axis[outer] = saved[0], e->axis[inner] = saved[1];
  *out = (Vals){e->n_rows, true, ARENA_ARRAY(e->a, IrRef, e->n_rows)};
  for (int t = 0; t < tiles; t++) sums_out(e, t, t);
  for (int m = 0; m < e->n_rows; m++)
    out->v[m] = emit_load_at(e, IR_M_f32, TILE_ROWS, e->scratch, lin_add(e, sums_at(e, m / TILE_ROWS), lin_const(64 * (m % TILE_ROWS))));
  return true;
}
