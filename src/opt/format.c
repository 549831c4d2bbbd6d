/* What a storage format's text means. x(i) is evaluated symbolically for every element of a block; what comes out is compared across
   elements to find the canonical form

     x = scale[g] * (code - bias) + offset[g]

   with an integer code per element and scales shared by groups, and from it how weights are packed: 16 rows side by side, codes split
   into planes of 8, 4, 2 or 1 bits so that a 64-byte vector holds four consecutive codes (a quad) of each of 16 rows, and scales as
   arrays of 16. Formats that have no such form are kept as f32. In: a format declaration. Out: FormatForm. */
#include <string.h>
#include "opt/opt.h"

typedef struct FmtEval { Dag *d; const Module *m; const FormatDecl *f; const char *arg[40]; Dx val[40]; int n; int depth; Err *err; } FmtEval;

static Dx fail(FmtEval *s, Err *e) {
  if (s->err) err_free(e);
  else s->err = e;
  return dx_int(s->d, 0);
}

static Dx eval(FmtEval *s, const Expr *e);

static IrMem field_mem(const char *elt) {
  if (!strcmp(elt, "u32")) return IR_M_i32;
  for (int m = 1; m < IR_N_MEM; m++) if (!strcmp(ir_mem_name[m], elt)) return (IrMem)m;
  return IR_M_none;
}

static Dx field(FmtEval *s, const char *name, int64_t i) {
  for (int k = 0; k < s->f->n_fields; k++) {
    const Field *fl = &s->f->field[k];
    if (strcmp(fl->name, name)) continue;
    IrMem m = field_mem(fl->elt);
    if (m == IR_M_none) return fail(s, err_new(ERR_UNSUPPORTED, "format %s: field %s: kind %s is not known", s->f->name, name, fl->elt));
    if (i < 0 || i >= fl->count) return fail(s, err_new(ERR_SHAPE, "format %s: %s[%lld] is outside its %lld elements", s->f->name, name, (long long)i, (long long)fl->count));
    bool flt = m == IR_M_f16 || m == IR_M_bf16 || m == IR_M_f32;
    return dx_node(s->d, (DxNode){.kind = DX_FIELD, .op = (uint8_t)m, .type = flt ? DT_F32 : DT_INT, .ival = fl->offset + i * ir_mem_bytes[m]});
  }
  return 0;
}

static Dx call_own(FmtEval *s, const FormatFn *fn, Dx arg) {
  if (++s->depth > 40) return fail(s, err_new(ERR_LIMIT, "format %s: %s: calls nest deeper than 40", s->f->name, fn->name));
  int mark = s->n;
  if (fn->arg) {
    s->arg[s->n] = fn->arg;
    s->val[s->n++] = arg;
  }
  Dx v = eval(s, fn->value);
  s->n = mark;
  s->depth--;
  return v;
}

static Dx eval_name(FmtEval *s, const Expr *e) {
  for (int i = s->n - 1; i >= 0; i--) if (!strcmp(s->arg[i], e->name)) return s->val[i];
  for (int i = 0; i < s->f->n_fns; i++) if (!s->f->fn[i].arg && !strcmp(s->f->fn[i].name, e->name)) return call_own(s, &s->f->fn[i], 0);
  Dx x = field(s, e->name, 0);
  return x ? x : fail(s, err_new(ERR_NOT_FOUND, "format %s: name '%s' has no value here", s->f->name, e->name));
}

static Dx eval_call(FmtEval *s, const Expr *e) {
  if (s->err) return dx_int(s->d, 0);
  for (int i = 0; i < s->f->n_fns; i++)
    if (s->f->fn[i].arg && e->n_args == 1 && !strcmp(s->f->fn[i].name, e->name)) return call_own(s, &s->f->fn[i], eval(s, e->arg[0]));
  static const struct { const char *name; DxOp op; int n; } fns[] = {{"f32", DXO_TOF, 1}, {"i32", DXO_TOI, 1}, {"abs", DXO_ABS, 1}, {"bits_f32", DXO_BITF, 1}, {"min", DXO_MIN, 2}, {"max", DXO_MAX, 2}};
  for (size_t i = 0; i < COUNT_OF(fns); i++) {
    if (strcmp(fns[i].name, e->name) || fns[i].n != e->n_args) continue;
    Dx a = eval(s, e->arg[0]);
    return fns[i].n == 1 ? dx_op1(s->d, fns[i].op, a) : dx_op2(s->d, fns[i].op, a, eval(s, e->arg[1]));
  }
  return fail(s, err_new(ERR_NOT_FOUND, "format %s: function '%s': no such function", s->f->name, e->name));
}

static const DxOp infix[OP_COUNT] = {
  [OP_OR] = DXO_LOR, [OP_AND] = DXO_LAND, [OP_EQ] = DXO_EQ, [OP_NE] = DXO_NE, [OP_LE] = DXO_LE, [OP_GE] = DXO_GE, [OP_LT] = DXO_LT,
  [OP_GT] = DXO_GT, [OP_BOR] = DXO_OR, [OP_BXOR] = DXO_XOR, [OP_BAND] = DXO_AND, [OP_SHL] = DXO_SHL, [OP_SHR] = DXO_SHR,
  [OP_ADD] = DXO_ADD, [OP_SUB] = DXO_SUB, [OP_MUL] = DXO_MUL, [OP_DIV] = DXO_DIV, [OP_MOD] = DXO_MOD,
};

static Dx eval(FmtEval *s, const Expr *e) {
  if (s->err) return dx_int(s->d, 0);
  switch (e->kind) {
    case EX_INT: return dx_int(s->d, e->ival);
    case EX_FLOAT: return dx_flt(s->d, (float)e->fval);
    case EX_NAME: return eval_name(s, e);
    case EX_CALL: return eval_call(s, e);
    case EX_INDEX: {
      int64_t i;
      Dx x = eval(s, e->arg[1]);
      if (s->err) return x;
      if (!dx_is_int(s->d, x, &i)) return fail(s, err_new(ERR_SHAPE, "format %s: an index depends on the data", s->f->name));
      x = field(s, e->arg[0]->name, i);
      return x ? x : fail(s, err_new(ERR_NOT_FOUND, "format %s: no field '%s'", s->f->name, e->arg[0]->name));
    }
    case EX_UNARY: {
      Dx a = eval(s, e->arg[0]);
      return e->op == OP_INV ? dx_op2(s->d, DXO_XOR, a, dx_int(s->d, -1)) : dx_op1(s->d, e->op == OP_NEG ? DXO_NEG : DXO_LNOT, a);
    }
    case EX_BINARY: {
      Dx a = eval(s, e->arg[0]);
      return dx_op2(s->d, infix[e->op], a, eval(s, e->arg[1]));
    }
    case EX_COND: { /* the branch not taken is not evaluated: it may index outside its field */
      Dx c = eval(s, e->arg[0]);
      int64_t v;
      if (dx_is_int(s->d, c, &v)) return eval(s, e->arg[v ? 1 : 2]);
      Dx a = eval(s, e->arg[1]);
      return dx_op3(s->d, DXO_COND, c, a, eval(s, e->arg[2]));
    }
    default: return fail(s, err_new(ERR_SYNTAX, "format %s: this kind of expression does not belong here", s->f->name));
  }
}

/* ---- canonical form ------------------------------------------------------------------------------------------------ */
typedef struct Leafs { Dag *d; Dx at[MAX_LEAVES]; int n; bool over; } Leafs;

static Dx leafify(Leafs *l, Dx x) {
  DxNode n = l->d->node[x];
  bool leaf = n.kind == DX_FIELD || (n.type == DT_INT && n.kind != DX_INT);
  if (leaf) {
    if (l->n == MAX_LEAVES) { l->over = true; return x; }
    l->at[l->n] = x;
    return dx_node(l->d, (DxNode){.kind = DX_LEAF, .type = n.type, .ival = l->n++});
  }
  for (int i = 0; i < n.n_args; i++) n.arg[i] = leafify(l, l->d->node[x].arg[i]);
  return n.n_args ? dx_node(l->d, n) : x;
}

static int granularity(const Dx *at, int block) {
  for (int g = block; g > 1; g--) {
    if (block % g) continue;
    bool same = true;
    for (int i = 0; i < block && same; i++) same = at[i] == at[i / g * g];
    if (same) return g;
  }
  return 1;
}

static void planes(PackLeaf *l) {
  static const uint8_t split[9][2] = {{0}, {1}, {2}, {2, 1}, {4}, {4, 1}, {4, 2}, {8}, {8}};
  int bits = 1;
  while ((l->hi - l->lo) >> bits) bits++;
  for (int i = 0, shift = 0; bits <= 8 && i < 2 && split[bits][i]; i++) {
    l->plane_bits[l->n_planes] = split[bits][i];
    l->plane_shift[l->n_planes++] = shift;
    shift += split[bits][i];
  }
}

static void leaf_finish(FormatForm *f, PackLeaf *l) {
  const DxNode *n = &f->dag->node[l->at[0]];
  l->is_int = n->type == DT_INT;
  l->gran = granularity(l->at, f->block);
  if (l->gran < 4) l->gran = 1;
  if (!l->is_int) {
    l->mem = n->kind == DX_FIELD ? (IrMem)n->op : IR_M_f32;
    return;
  }
  l->lo = INT64_MAX, l->hi = INT64_MIN;
  for (int i = 0; i < f->block; i++) {
    DxRange r = dx_range(f->dag, l->at[i], NULL);
    l->lo = MIN(l->lo, r.lo);
    l->hi = MAX(l->hi, r.hi);
  }
  if (l->gran == 1) planes(l);
  else l->mem = l->hi - l->lo < 256 ? IR_M_u8 : l->hi - l->lo < 65536 ? IR_M_u16 : IR_M_i32;
}

/* The form every format has: the value itself, kept as f32. */
static void keep_value(FormatForm *f) {
  f->n_leaves = 1;
  f->code = -1;
  f->leaf[0] = (PackLeaf){.mem = IR_M_f32, .gran = 1, .at = f->x};
  f->value = dx_node(f->dag, (DxNode){.kind = DX_LEAF, .type = DT_F32});
  f->chunk = 1;
}

static bool find_leaves(FormatForm *f, Arena *a) {
  Leafs first = {.d = f->dag};
  f->value = leafify(&first, f->x[0]);
  f->n_leaves = first.n;
  for (int s = 0; s < first.n; s++) f->leaf[s].at = ARENA_ARRAY(a, Dx, f->block);
  for (int i = 0; i < f->block; i++) {
    Leafs l = {.d = f->dag};
    if (leafify(&l, f->x[i]) != f->value || l.n != first.n || l.over) return false;
    for (int s = 0; s < l.n; s++) f->leaf[s].at[i] = l.at[s];
  }
  f->code = -1;
  for (int s = 0; s < f->n_leaves; s++) {
    PackLeaf *l = &f->leaf[s];
    leaf_finish(f, l);
    if (l->gran > 1 || (!l->is_int && l->gran == 1)) continue;
    if (f->code >= 0 || l->n_planes == 0) return false; /* two fine-grained integers, or wider than a byte */
    f->code = s;
  }
  return true;
}

static bool has_leaf(const Dag *d, Dx x, int slot) {
  const DxNode *n = &d->node[x];
  if (n->kind == DX_LEAF) return n->ival == slot;
  for (int i = 0; i < n->n_args; i++) if (has_leaf(d, n->arg[i], slot)) return true;
  return false;
}

static Dx mul(Dag *d, Dx a, Dx b) {
  for (int i = 0; i < 2; i++) {
    const DxNode *n = &d->node[i ? b : a];
    if (n->kind == DX_FLT && n->fval == 0.0f) return i ? b : a;
    if (n->kind == DX_FLT && n->fval == 1.0f) return i ? a : b;
  }
  return dx_op2(d, DXO_MUL, a, b);
}

static Dx addsub(Dag *d, DxOp op, Dx a, Dx b) {
  const DxNode *na = &d->node[a], *nb = &d->node[b];
  if (nb->kind == DX_FLT && nb->fval == 0.0f) return a;
  if (na->kind == DX_FLT && na->fval == 0.0f) return op == DXO_ADD ? b : dx_op1(d, DXO_NEG, b);
  return dx_op2(d, op, a, b);
}

/* x = A * code_value + C, or false. */
static bool affine(Dag *d, Dx x, int code, Dx *A, Dx *C) {
  const DxNode n = d->node[x];
  Dx a[2], c[2];
  if (!has_leaf(d, x, code)) {
    *A = dx_flt(d, 0);
    *C = x;
    return true;
  }
  if (n.kind != DX_OP) return false;
  if (n.op == DXO_TOF) {
    *A = dx_flt(d, 1);
    *C = dx_flt(d, 0);
    return d->node[n.arg[0]].kind == DX_LEAF;
  }
  for (int i = 0; i < n.n_args; i++) if (i > 1 || !affine(d, n.arg[i], code, &a[i], &c[i])) return false;
  if (n.op == DXO_ADD || n.op == DXO_SUB) {
    *A = addsub(d, (DxOp)n.op, a[0], a[1]);
    *C = addsub(d, (DxOp)n.op, c[0], c[1]);
    return true;
  }
  int other = has_leaf(d, n.arg[0], code) ? 1 : 0;
  if (n.op != DXO_MUL || has_leaf(d, n.arg[other], code)) return false;
  *A = mul(d, a[1 - other], n.arg[other]);
  *C = mul(d, c[1 - other], n.arg[other]);
  return true;
}

static int group_of(const FormatForm *f) {
  int g = f->block;
  for (int s = 0; s < f->n_leaves; s++)
    if (s != f->code && f->leaf[s].gran < g && (has_leaf(f->dag, f->scale, s) || has_leaf(f->dag, f->offset, s))) g = f->leaf[s].gran;
  return g;
}

static void find_integer(FormatForm *f) {
  if (f->code < 0) return;
  const PackLeaf *l = &f->leaf[f->code];
  if (f->block % 4 || !affine(f->dag, f->value, f->code, &f->scale, &f->offset)) return;
  f->group = group_of(f);
  f->bias = -l->lo;
  f->code_max = (int)(l->hi - l->lo);
  f->integer = f->group % 4 == 0 && f->chunk % 4 == 0 && (f->chunk % f->group == 0 || f->group % f->chunk == 0);
}

Err *format_analyze(Arena *a, const Module *m, const FormatDecl *decl, FormatForm **out) {
  FormatForm *f = ARENA_NEW(a, FormatForm);
  FmtEval *s = ARENA_NEW(a, FmtEval);
  *f = (FormatForm){.decl = decl, .dag = dag_new(a), .block = (int)decl->block, .n_bytes = (int)decl->n_bytes, .code = -1};
  *s = (FmtEval){.d = f->dag, .m = m, .f = decl};
  const FormatFn *x = NULL;
  for (int i = 0; i < decl->n_fns; i++) if (!strcmp(decl->fn[i].name, "x") && decl->fn[i].arg) x = &decl->fn[i];
  if (!x) return err_new(ERR_SYNTAX, "format %s: x(i), the value of an element, is missing", decl->name);
  if (decl->block < 1 || decl->block > 4096) return err_new(ERR_LIMIT, "format %s: block is %lld elements, expected 1 to 4096", decl->name, (long long)decl->block);
  f->x = ARENA_ARRAY(a, Dx, f->block);
  f->leaf = ARENA_ARRAY(a, PackLeaf, MAX_LEAVES);
  for (int i = 0; i < f->block; i++) f->x[i] = dx_to_f32(f->dag, call_own(s, x, dx_int(f->dag, i)));
  if (s->err) return s->err;
  const DxNode *n = &f->dag->node[f->x[0]];
  f->plain = f->block == 1 && n->kind == DX_FIELD && n->ival == 0 && f->n_bytes == ir_mem_bytes[n->op];
  f->mem = f->plain ? (IrMem)n->op : IR_M_none;
  f->chunk = f->block % 32 == 0 ? 32 : f->block;
  if (!find_leaves(f, a)) keep_value(f);
  find_integer(f);
  *out = f;
  return NULL;
}

PackLayout format_layout(const FormatForm *f, int64_t K) {
  PackLayout l = {.K = K};
  for (int s = 0; s < f->n_leaves; s++) {
    const PackLeaf *lf = &f->leaf[s];
    int64_t per = lf->gran;
    if (s == f->code) {
      per = f->chunk;
      for (int i = 0; i < lf->n_planes; i++) {
        int quads = f->chunk / 4, slots = 8 / lf->plane_bits[i];
        l.leaf_stride[s] += (quads + slots - 1) / slots * 64;
      }
    } else l.leaf_stride[s] = PACK_ROWS * ir_mem_bytes[lf->mem];
    l.leaf_off[s] = l.tile_bytes;
    l.tile_bytes += ROUND_UP((K + per - 1) / per * l.leaf_stride[s], 64);
  }
  return l;
}

void format_print(const FormatForm *f, Str *out) {
  str_addf(out, "format %s: block %d in %d bytes%s\n  value = ", f->decl->name, f->block, f->n_bytes, f->plain ? ", plain" : "");
  dx_print(f->dag, f->value, out);
  str_add(out, "\n");
  for (int s = 0; s < f->n_leaves; s++) {
    const PackLeaf *l = &f->leaf[s];
    if (l->is_int) str_addf(out, "  leaf%d: integer %lld..%lld, shared by %d", s, (long long)l->lo, (long long)l->hi, l->gran);
    else str_addf(out, "  leaf%d: %s, shared by %d", s, ir_mem_name[l->mem], l->gran);
    for (int i = 0; i < l->n_planes; i++) str_addf(out, "%s%d-bit plane", i ? ", " : "; ", l->plane_bits[i]);
    str_add(out, "\n");
  }
  if (!f->integer) return;
  str_addf(out, "  integer road: group %d, bias %lld, codes 0..%d\n    scale = ", f->group, (long long)f->bias, f->code_max);
  dx_print(f->dag, f->scale, out);
  str_add(out, "\n    offset = ");
  dx_print(f->dag, f->offset, out);
  str_add(out, "\n");
}
