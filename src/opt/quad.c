/* Four neighbouring codes at once while packing: where their expressions are one and the same over neighbouring bytes, they are computed in the
   four bytes of a 32-bit lane, with one gather for the four. What does not fit is computed one by one and put together.
   In: four expressions over a block's fields, each 0 .. 255. Out: i32x16, code k in byte k. */
#include "opt/emit.h"

typedef struct Quad { Emit *e; const FormatForm *f; QuadFrom from; } Quad;
typedef struct Gathered { Emit *e; const FormatForm *f; IrRef base, offs; } Gathered;

static IrRef rep(Quad *q, int64_t byte) { return ir_const_i(&q->e->b, IR_T_i32x16, (int32_t)(0x01010101u * (uint32_t)(byte & 255))); }
static IrRef op(Quad *q, IrOp o, IrRef a, IrRef b) { return ir_op2(&q->e->b, o, a, b); }
static const DxNode *node(const Quad *q, Dx x) { return &q->f->dag->node[x]; }
static bool is_byte(const Quad *q, Dx x) {
  DxRange r = dx_range(q->f->dag, x, NULL);
  return r.lo >= 0 && r.hi <= 255;
}

static IrRef one_by_one(Quad *q, const Dx *x) {
  IrRef v = 0;
  if (!q->from.value) return 0;
  for (int k = 0; k < 4; k++) {
    if (!is_byte(q, x[k])) return 0;
    IrRef b = q->from.value(q->from.ctx, x[k]);
    if (k) b = ir_shift(&q->e->b, IR_shl, b, 8 * k);
    v = v ? op(q, IR_or, v, b) : b;
  }
  return v;
}

static IrRef bytes(Quad *q, const Dx *x);

/* Neighbouring bytes of the block, or one byte of four blocks: one gather. Signed ones come as they lie. */
static IrRef field_bytes(Quad *q, const Dx *x) {
  const DxNode *n = node(q, x[0]);
  if ((n->op != IR_M_u8 && n->op != IR_M_i8) || n->n_args) return 0;
  for (int k = 1; k < 4; k++) if (node(q, x[k])->op != n->op || node(q, x[k])->n_args || node(q, x[k])->ival != n->ival + (q->from.same ? 0 : k)) return 0;
  return q->from.word(q->from.ctx, n);
}

/* a op constant, where no byte runs over into the next. */
static IrRef by_constant(Quad *q, DxOp o, const Dx *a, int64_t c) {
  const DxNode *n = node(q, a[0]);
  DxRange r = dx_range(q->f->dag, a[0], NULL);
  int64_t add = o == DXO_ADD ? c : o == DXO_SUB ? -c : 0;
  if (add == 128 && n->kind == DX_FIELD && n->op == IR_M_i8 && !n->n_args) {
    IrRef v = field_bytes(q, a);
    return v ? op(q, IR_xor, v, rep(q, 128)) : 0;
  }
  for (int k = 0; k < 4; k++) if (!is_byte(q, a[k])) return 0;
  IrRef v = bytes(q, a);
  if (!v) return 0;
  if (o == DXO_AND) return c >= 0 ? op(q, IR_and, v, rep(q, c)) : 0;
  if (o == DXO_SHR && c >= 0 && c < 8) return op(q, IR_and, ir_shift(&q->e->b, IR_shr, v, (int)c), rep(q, 255 >> c));
  if (o == DXO_SHL && c >= 0 && c < 8 && r.hi << c <= 255) return ir_shift(&q->e->b, IR_shl, v, (int)c);
  if (o == DXO_ADD && c >= 0 && r.hi + c <= 255) return op(q, IR_add, v, rep(q, c));
  if (o == DXO_SUB && c >= 0 && r.lo >= c) return op(q, IR_sub, v, rep(q, c));
  return 0;
}

static IrRef op_bytes(Quad *q, const Dx *x) {
  const DxNode *n = node(q, x[0]);
  Dx a[4], b[4];
  int64_t c, other;
  for (int k = 0; k < 4; k++) {
    const DxNode *m = node(q, x[k]);
    if (m->op != n->op || m->n_args != 2) return 0;
    a[k] = m->arg[0];
    b[k] = m->arg[1];
  }
  if (dx_is_int(q->f->dag, b[0], &c)) {
    for (int k = 1; k < 4; k++) if (!dx_is_int(q->f->dag, b[k], &other) || other != c) return 0;
    return by_constant(q, (DxOp)n->op, a, c);
  }
  if (n->op != DXO_OR && n->op != DXO_XOR && n->op != DXO_AND) return 0;
  for (int k = 0; k < 4; k++) if (!is_byte(q, a[k]) || !is_byte(q, b[k])) return 0;
  IrRef u = bytes(q, a), v = u ? bytes(q, b) : 0;
  return v ? op(q, n->op == DXO_OR ? IR_or : n->op == DXO_XOR ? IR_xor : IR_and, u, v) : 0;
}

static IrRef bytes(Quad *q, const Dx *x) {
  const DxNode *n = node(q, x[0]);
  IrRef v = 0;
  bool same_kind = true;
  for (int k = 1; k < 4; k++) same_kind = same_kind && node(q, x[k])->kind == n->kind;
  if (same_kind && n->kind == DX_FIELD) v = field_bytes(q, x);
  if (same_kind && n->kind == DX_OP) v = op_bytes(q, x);
  return v ? v : one_by_one(q, x);
}

IrRef emit_quad(Emit *e, const FormatForm *f, const Dx *x, const QuadFrom *from) {
  Quad q = {e, f, *from};
  return bytes(&q, x);
}

static IrRef gathered_word(void *ctx, const DxNode *n) {
  const Gathered *g = ctx;
  return ir_gather(&g->e->b, IR_M_i32, IR_T_i32x16, g->base, g->offs, n->ival);
}

static IrRef gathered_value(void *ctx, Dx x) {
  const Gathered *g = ctx;
  return emit_block_value(g->e, g->f, x, g->base, g->offs, lin_const(0));
}

IrRef emit_code_bytes(Emit *e, const FormatForm *f, const Dx *x, IrRef base, IrRef offs) {
  Gathered g = {e, f, base, offs};
  IrRef v = emit_quad(e, f, x, &(QuadFrom){.ctx = &g, .word = gathered_word, .value = gathered_value});
  if (v) return v;
  emit_fail(e, err_new(ERR_UNSUPPORTED, "format %s: a code is not known to fit a byte", f->decl->name));
  return ir_const_i(&e->b, IR_T_i32x16, 0);
}
