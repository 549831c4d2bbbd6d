/* Encoding: a format's `encode` as an IR function. 16 blocks side by side are the lanes of every value, so that what a text says of one
   block is said of 16 at once; they are laid out in scratch element by element first, and the fields leave through scratch block by block.
   Long searches (argmin) are loops, everything else is straight-line code. In: a format whose text passed the checker. Out: IR. */
#include <string.h>
#include "opt/emit.h"
#include "opt/fmteval.h"

typedef struct Enc {
  Emit *e; Dag *d; const FormatForm *f;
  IrRef *memo; int cap;         /* by node: its value where it dominates what is being emitted */
  Dx *made; int n_made, cap_made;
  int *hoisted, n_searches;     /* by node: the last search whose loop it was looked at for */
  IrRef axis[DX_MAX_AXES];
  int64_t axis_max[DX_MAX_AXES];
  int64_t x_off; /* in scratch: the floats; from 0 on there is room for one vector of halves */
} Enc;

enum { MAX_CODE = 1 << 19 }; /* instructions of the IR */
static IrRef value(Enc *c, Dx x);

static IrRef splat_i(Enc *c, int64_t v) { return ir_const_i(&c->e->b, IR_T_i32x16, (int32_t)v); }

static void remember(Enc *c, Dx x, IrRef v) {
  c->memo[x] = v;
  PUSH(c->e->a, c->made, c->n_made, c->cap_made, x);
}

static void forget(Enc *c, int mark) {
  while (c->n_made > mark) c->memo[c->made[--c->n_made]] = 0;
}

static IrRef rounded(Enc *c, IrMem m, IrRef v) {
  emit_store_at(c->e, m, c->e->scratch, lin_const(0), v, 0);
  return ir_load(&c->e->b, m, IR_T_f32x16, c->e->scratch, 0, 1, 0);
}

/* What the body needs and the loop does not change is computed before it. inside: axes of this loop and those in it. */
static void hoist(Enc *c, Dx x, uint32_t inside, int search) {
  const DxNode n = c->d->node[x];
  if (c->memo[x] || c->hoisted[x] == search || n.kind == DX_INT || n.kind == DX_FLT || n.kind == DX_FIELD || n.kind == DX_AXIS) return;
  c->hoisted[x] = search;
  if (!(n.axes & inside)) {
    value(c, x);
    return;
  }
  if (n.kind == DX_RED) inside |= 1u << n.ival;
  for (int i = 0; i < n.n_args; i++) hoist(c, n.arg[i], inside, search);
}

static IrRef search(Enc *c, const DxNode *n) {
  IrBuild *b = &c->e->b;
  int axis = (int)n->ival;
  int64_t len = 0;
  CHECK(n->op == RED_ARGMIN && dx_is_int(c->d, n->arg[0], &len));
  hoist(c, n->arg[1], 1u << axis, ++c->n_searches);
  int mark = c->n_made;
  Loop l;
  IrRef init[2] = {ir_const_f(b, IR_T_f32x16, f32_from_bits(0x7f800000u)), splat_i(c, 0)}, next[2];
  loop_begin(c->e, &l, ir_const_i(b, IR_T_i64, len), true, init, 2);
  IrRef outer = c->axis[axis];
  c->axis_max[axis] = len - 1;
  c->axis[axis] = ir_splat(b, ir_op1(b, IR_trunc, l.iv), 16);
  IrRef v = value(c, n->arg[1]), less = ir_cmp(b, IR_fcmp, IR_P_lt, v, l.carried[0]);
  next[0] = ir_op3(b, IR_select, less, v, l.carried[0]);
  next[1] = ir_op3(b, IR_select, less, c->axis[axis], l.carried[1]);
  forget(c, mark);
  loop_end(c->e, &l, next);
  c->axis[axis] = outer;
  return l.carried[1];
}

/* x of an index that differs from lane to lane. */
static IrRef at_index(Enc *c, IrRef index) {
  IrBuild *b = &c->e->b;
  IrRef offs = ir_op2(b, IR_add, ir_shift(b, IR_shl, index, 6), ir_shift(b, IR_shl, ir_iota(b, 16), 2));
  return ir_gather(b, IR_M_f32, IR_T_f32x16, c->e->scratch, offs, c->x_off);
}

static IrRef operation(Enc *c, Dx x) {
  IrRef a[3];
  const DxNode node = c->d->node[x], *n = &node;
  for (int i = 0; i < n->n_args; i++) a[i] = value(c, n->arg[i]);
  if (n->op == DXO_RF16 || n->op == DXO_RBF16) return rounded(c, n->op == DXO_RF16 ? IR_M_f16 : IR_M_bf16, a[0]);
  return emit_node_op(c->e, c->d, x, c->axis_max, a);
}

/* What was emitted is already too much, or something failed: no more code, any value of the type will do. */
static IrRef nothing(Enc *c, DxType t) {
  IrBuild *b = &c->e->b;
  if (!c->e->err) emit_fail(c->e, err_new(ERR_LIMIT, "format %s: encode: more than %d instructions", c->f->decl->name, MAX_CODE));
  return t == DT_F32 ? ir_const_f(b, IR_T_f32x16, 0) : t == DT_BOOL ? ir_const_i(b, ir_vec_type(IR_E_I1, 16), 0) : splat_i(c, 0);
}

static IrRef value(Enc *c, Dx x) {
  const DxNode n = c->d->node[x];
  IrBuild *b = &c->e->b;
  if (c->e->err || c->e->fn->n_ins > MAX_CODE) return nothing(c, (DxType)n.type);
  if (c->memo[x]) return c->memo[x];
  IrRef v;
  switch (n.kind) {
    case DX_INT: return n.type == DT_BOOL ? ir_const_i(b, ir_vec_type(IR_E_I1, 16), n.ival) : splat_i(c, n.ival);
    case DX_FLT: return ir_const_f(b, IR_T_f32x16, n.fval);
    case DX_AXIS: return c->axis[n.ival];
    case DX_FIELD: return ir_load(b, IR_M_f32, IR_T_f32x16, c->e->scratch, 0, 1, c->x_off + 16 * n.ival);
    case DX_LOAD: v = at_index(c, value(c, n.arg[0])); break;
    case DX_TAB: v = emit_lookup(c->e, c->f, &n, value(c, n.arg[0]), 16); break;
    case DX_RED: v = search(c, &n); break;
    default:
      CHECK(n.kind == DX_OP, "format %s: encode: node of kind %d", c->f->decl->name, n.kind);
      v = operation(c, x);
  }
  remember(c, x, v);
  return v;
}

/* ---- fields -------------------------------------------------------------------------------------------------------- */
Err *format_stored(Arena *a, const Module *m, FormatForm *form) {
  FmtEval *s = ARENA_NEW(a, FmtEval);
  const FormatDecl *decl = form->decl;
  int64_t most = 0;
  int n = 0;
  if (form->stored) return NULL;
  if (!decl->n_encodes) return err_new(ERR_UNSUPPORTED, "format %s: its text has no encode, which says how floats become blocks", decl->name);
  fmt_begin(s, form->dag, m, decl, true);
  for (int i = 0; i < decl->n_fields; i++) most += decl->field[i].count;
  StoredNumber *out = ARENA_ARRAY(form->dag->arena, StoredNumber, most + 1);
  for (int i = 0; i < decl->n_fields; i++) {
    const Field *f = &decl->field[i];
    const FormatFn *fn = NULL;
    for (int k = 0; k < s->n_fns; k++) if (!strcmp(s->fn[k].name, f->name)) fn = &s->fn[k];
    CHECK(fn, "format %s: encode leaves out %s", decl->name, f->name);
    IrMem mem = dx_mem(f->elt);
    if (mem == IR_M_none) return err_new(ERR_UNSUPPORTED, "format %s: field %s: kind %s is not known", decl->name, f->name, f->elt);
    for (int64_t k = 0; k < f->count && !s->err; k++)
      out[n++] = (StoredNumber){mem, f->offset + k * ir_mem_bytes[mem], fmt_call(s, fn, fn->arg ? dx_int(s->d, k) : 0, 0)};
  }
  if (s->err) return s->err;
  form->stored = out;
  form->n_stored = n;
  return NULL;
}

/* A float that no input makes less than 0, by its form; NaN aside. */
static bool not_negative(const FormatForm *f, Dx x) {
  const Dag *d = f->dag;
  const DxNode *n = &d->node[x];
  bool a = n->kind == DX_OP && n->n_args > 1 && not_negative(f, n->arg[n->op == DXO_COND ? 1 : 0]), b = a && not_negative(f, n->arg[n->op == DXO_COND ? 2 : 1]);
  if (n->kind == DX_FLT) return n->fval >= 0;
  if (n->kind == DX_LEAF) {
    const PackLeaf *l = &f->leaf[n->ival];
    if (l->is_int) return l->lo >= 0;
    for (int i = 0; i < f->block / l->gran; i++) {
      const DxNode *at = &d->node[l->at[i * l->gran]];
      int k = 0;
      while (k < f->n_stored && (f->stored[k].mem != at->op || f->stored[k].at != at->ival % f->decl->n_bytes)) k++;
      if (at->kind != DX_FIELD || k == f->n_stored || !not_negative(f, f->stored[k].value)) return false;
    }
    return true;
  }
  switch (n->kind == DX_OP ? n->op : DXO_NONE) {
    case DXO_ABS: case DXO_SQRT: return true;
    case DXO_RF16: case DXO_RBF16: case DXO_RINT: case DXO_FLOOR: return not_negative(f, n->arg[0]);
    case DXO_TOF: return dx_range(d, n->arg[0], NULL).lo >= 0 || not_negative(f, n->arg[0]);
    case DXO_MAX: return a || not_negative(f, n->arg[1]);
    case DXO_ADD: case DXO_MUL: case DXO_DIV: case DXO_MIN: case DXO_COND: return b;
    default: return false;
  }
}

bool format_scaled(Arena *a, const Module *m, FormatForm *f) {
  if (!f->integer || f->dag->node[f->offset].kind != DX_FLT || f->dag->node[f->offset].fval != 0) return false;
  Err *e = format_stored(a, m, f);
  if (e) err_free(e);
  return !e && not_negative(f, f->scale);
}

/* ---- 16 blocks ----------------------------------------------------------------------------------------------------- */
/* In scratch, from `at` on: the numbers, then the floats, element by element. */
int64_t emit_encode_bytes(const FormatForm *f) { return 64 * ((int64_t)f->n_stored + f->decl->block); }

static void load_blocks(Enc *c, IrRef x, IrRef offs) {
  Emit *e = c->e;
  IrBuild *b = &e->b;
  Loop l;
  loop_begin(e, &l, ir_const_i(b, IR_T_i64, c->f->decl->block), true, NULL, 0);
  IrRef v = ir_gather(b, IR_M_f32, IR_T_f32x16, ir_padd(b, x, lin_value(e, lin_ref(l.iv, 4))), offs, 0);
  Lin to = lin_ref(l.iv, 64);
  to.k = c->x_off;
  emit_store_at(e, IR_M_f32, e->scratch, to, v, 0);
  loop_end(e, &l, NULL);
}

void emit_encode(Emit *e, const FormatForm *f, IrRef x, IrRef offs, int64_t at) {
  Enc *c = ARENA_NEW(e->a, Enc);
  *c = (Enc){.e = e, .d = f->dag, .f = f, .memo = ARENA_ARRAY(e->a, IrRef, f->dag->n), .hoisted = ARENA_ARRAY(e->a, int, f->dag->n), .x_off = at + 64 * (int64_t)f->n_stored};
  load_blocks(c, x, offs);
  for (int i = 0; i < f->n_stored; i++) {
    const StoredNumber *s = &f->stored[i];
    bool half = s->mem == IR_M_f16 || s->mem == IR_M_bf16, flt = c->d->node[s->value].type == DT_F32;
    emit_store_at(e, half ? s->mem : flt ? IR_M_f32 : IR_M_i32, e->scratch, lin_const(at + 64 * i), value(c, s->value), 0);
  }
}

void emit_encoded(Emit *e, const FormatForm *f, int i, int64_t at, IrRef lane, IrRef to, Lin byte) {
  IrMem m = f->stored[i].mem;
  int bytes = ir_mem_bytes[m];
  bool half = m == IR_M_f16 || m == IR_M_bf16;
  IrRef v = ir_load(&e->b, half ? IR_M_u16 : IR_M_i32, IR_T_i32, e->scratch, lane, half ? 2 : 4, at + 64 * i);
  emit_store_at(e, bytes == 1 ? IR_M_u8 : bytes == 2 ? IR_M_u16 : IR_M_i32, to, byte, v, 0);
}

Err *lower_encode(Arena *a, const Module *m, FormatForm *f, const char *name, IrFn **out_fn, int64_t *scratch_bytes) {
  IrRef args, first, last;
  int64_t row = 4 * f->decl->block;
  TRY(format_stored(a, m, f));
  Emit *e = emit_new(a, name, &args, &first, &last);
  *scratch_bytes = 64 + emit_encode_bytes(f);
  IrType ptr = ir_ptr_type(e->fn, (IrPtr){.mem = IR_M_u8, .space = IR_S_global, .n_dims = 1, .dim = {-1}});
  IrRef x = ir_load(&e->b, IR_M_ptr, ptr, args, 0, 1, 0), blocks = ir_load(&e->b, IR_M_ptr, ptr, args, 0, 1, 8);
  Loop tiles, l;
  emit_tables(e, f, args, ptr);
  loop_begin(e, &tiles, ir_op2(&e->b, IR_sub, last, first), false, NULL, 0);
  IrRef tile = ir_op2(&e->b, IR_add, first, tiles.iv);
  IrRef offs = ir_op2(&e->b, IR_mul, ir_iota(&e->b, ENCODE_TILE), ir_const_i(&e->b, IR_T_i32x16, row));
  emit_encode(e, f, ir_padd(&e->b, x, lin_value(e, lin_ref(tile, ENCODE_TILE * row))), offs, 64);
  loop_begin(e, &l, ir_const_i(&e->b, IR_T_i64, ENCODE_TILE), true, NULL, 0);
  for (int i = 0; i < f->n_stored; i++) {
    Lin byte = lin_add(e, lin_ref(tile, ENCODE_TILE * f->decl->n_bytes), lin_ref(l.iv, f->decl->n_bytes));
    byte.k = f->stored[i].at;
    emit_encoded(e, f, i, 64, l.iv, blocks, byte);
  }
  loop_end(e, &l, NULL);
  loop_end(e, &tiles, NULL);
  ir_ret(&e->b);
  if (e->err) return err_wrap(e->err, "kernel %s", name);
  *out_fn = e->fn;
  return NULL;
}
