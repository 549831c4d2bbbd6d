/* Instantiation: an op's text, with dimensions and formats filled in, becomes statements over buffers. Functions are expanded where they
   are called, scalar lets are replaced by their values, dimensions that are known become constants. In: a checked Module and arguments.
   Out: statements appended to the program. Errors name the op, the parameter, what was got and what was expected. */
#include <string.h>
#include "opt/opt.h"

typedef struct Binding { const char *name; enum { BIND_VALUE, BIND_BUF } kind; Dx value; int buf; } Binding;
typedef struct Scope {
  Tp *p;
  Binding item[128]; int n;
  int depth;                /* of reductions around the expression */
  int fn_depth;
  int64_t axis_max[DX_MAX_AXES];
  int left;                 /* expressions that may still be evaluated */
  const char *op;
  int *laid;                /* by buffer: 1 + the temporary that has a weight's elements as floats; NULL: none has */
  int sorted;               /* 1 + the weight in whose order of columns the other arguments are */
  Loc at;                   /* of the expression at hand */
  Err *err;
} Scope;
enum { MAX_FN_DEPTH = 40, MAX_STEPS = 1 << 22, MAX_STMTS = 2048 };

static Dx fail(Scope *s, Err *e) {
  if (s->err) err_free(e);
  else s->err = lang_err_at(s->p->module, s->at, e);
  return dx_int(s->p->dag, 0);
}

static void bind(Scope *s, Binding b) {
  if (s->n == (int)COUNT_OF(s->item)) fail(s, err_new(ERR_LIMIT, "op %s: more than %zu names in scope", s->op, COUNT_OF(s->item)));
  else s->item[s->n++] = b;
}

static const Binding *lookup(const Scope *s, const char *name) {
  for (int i = s->n - 1; i >= 0; i--) if (!strcmp(s->item[i].name, name)) return &s->item[i];
  return NULL;
}

Tp *tp_new(Arena *a, const Module *m, const char *precision) {
  Tp *p = ARENA_NEW(a, Tp);
  *p = (Tp){.arena = a, .dag = dag_new(a), .module = m, .precision = precision};
  return p;
}

int tp_sym(Tp *p, const char *name) {
  for (int i = 0; i < p->n_syms; i++) if (!strcmp(p->sym[i].name, name)) return i;
  PUSH(p->arena, p->sym, p->n_syms, p->cap_syms, (TpSym){name});
  return p->n_syms - 1;
}

int tp_buf(Tp *p, TpBuf b) {
  b.alias = p->n_bufs;
  b.local = -1;
  PUSH(p->arena, p->buf, p->n_bufs, p->cap_bufs, b);
  return p->n_bufs - 1;
}

int tp_view(Tp *p, int buf, const Dx *dim, int n_dims) {
  TpBuf b = p->buf[buf];
  b.n_dims = n_dims;
  memcpy(b.dim, dim, sizeof(Dx) * (size_t)n_dims);
  PUSH(p->arena, p->buf, p->n_bufs, p->cap_bufs, b);
  return p->n_bufs - 1;
}

int tp_root(const Tp *p, int buf) {
  while (p->buf[buf].alias != buf) buf = p->buf[buf].alias;
  return buf;
}

int tp_table(Tp *p, const void *data) {
  for (int i = 0; i < p->n_tables; i++) if (p->table[i] == data) return i;
  PUSH(p->arena, p->table, p->n_tables, p->cap_tables, data);
  return p->n_tables - 1;
}

Err *tp_form(Tp *p, const char *format, FormatForm **out) {
  for (int i = 0; i < p->n_forms; i++) {
    if (!strcmp(p->form[i]->decl->name, format)) { *out = p->form[i]; return NULL; }
  }
  const FormatDecl *f = lang_format(p->module, format);
  if (!f) return err_new(ERR_NOT_FOUND, "format '%s': no such format", format);
  TRY(format_analyze(p->arena, p->module, f, out));
  PUSH(p->arena, p->form, p->n_forms, p->cap_forms, *out);
  return NULL;
}

int64_t tp_dim_elems(const Tp *p, const TpBuf *b, int i, const int64_t *sym) {
  const DxNode *d = &p->dag->node[b->dim[i]];
  CHECK(d->kind == DX_INT || sym, "buffer %s: inner dimension is not known", b->name);
  int64_t n = d->kind == DX_INT ? d->ival : sym[d->ival];
  return b->blocks && i == b->block_dim ? (n + b->blocks->block - 1) / b->blocks->block * b->blocks->n_bytes : n;
}

static int64_t buf_dim_product(const Tp *p, const TpBuf *b, int from, const int64_t *sym) {
  int64_t n = 1;
  for (int i = from; i < b->n_dims; i++) n *= tp_dim_elems(p, b, i, sym);
  return n;
}

const Field *tp_block_bytes(const FormatForm *f, IrMem m, int64_t at) {
  at %= f->decl->n_bytes;
  for (int i = 0; i < f->decl->n_fields && (m == IR_M_u8 || m == IR_M_i8); i++) {
    const Field *fl = &f->decl->field[i];
    if (at >= fl->offset && at < fl->offset + fl->count * ir_mem_bytes[dx_mem(fl->elt)]) return fl;
  }
  return NULL;
}

TpSide tp_buf_side(const Tp *p, const TpBuf *b) {
  TpSide s = {1, false};
  if (b->side_dim < 0) return s;
  CHECK(dx_is_int(p->dag, b->dim[b->side_dim], &s.rows));
  s.by_rows = b->side_dim < b->block_dim;
  return s;
}

int64_t tp_block_byte(const FormatForm *f, IrMem m, int64_t at, int64_t lane, TpSide side) {
  const Field *fl = tp_block_bytes(f, m, at);
  int64_t i = fl ? at % f->decl->n_bytes - fl->offset : 0;
  if (fl && side.by_rows) return (at - i) * side.rows + lane / 4 * 4 * fl->count + i * 4 + lane % 4;
  if (fl && side.rows > 1 && fl->count % 4 == 0) return (at - i % 4) * side.rows + lane * 4 + i % 4;
  return at * side.rows + lane * ir_mem_bytes[m];
}

Err *tp_buf_format(const Tp *p, TpBuf *b, const TypeExpr *t, FormatForm *f) {
  int64_t n = 0;
  bool number = f->plain && (f->mem == IR_M_f32 || f->mem == IR_M_f16 || f->mem == IR_M_bf16);
  b->mem = number ? f->mem : IR_M_u8;
  if (number) return NULL;
  b->blocks = f;
  bool last = b->n_dims > 1 && t->dim[b->n_dims - 1]->kind == EX_INT, before = b->n_dims > 2 && t->dim[b->n_dims - 2]->kind == EX_INT;
  b->block_dim = b->n_dims - (last ? 2 : 1);
  b->side_dim = last ? b->n_dims - 1 : before && t->dim[b->n_dims - 2]->ival % 4 == 0 ? b->n_dims - 2 : -1;
  if (b->block_dim < 1 || !dx_is_int(p->dag, b->dim[b->block_dim], &n))
    return err_new(ERR_UNSUPPORTED, "%s: blocks of format %s must lie along a dimension of known length behind the first", b->name, f->decl->name);
  if (n % f->decl->block)
    return err_new(ERR_SHAPE, "%s: dimension %d is %lld elements, which are no whole blocks of format %s: it has %lld elements a block", b->name, b->block_dim, (long long)n, f->decl->name, (long long)f->decl->block);
  return NULL;
}

int64_t tp_buf_rows(const Tp *p, int buf, const int64_t *sym) {
  const TpBuf *b = &p->buf[buf];
  const DxNode *d = &p->dag->node[b->dim[0]];
  return b->n_dims == 0 ? 1 : d->kind == DX_INT ? d->ival : sym[d->ival];
}

int64_t tp_row_pad(int64_t n_elems, IrMem mem) {
  int64_t n = ROUND_UP(n_elems, 16), bytes = ir_mem_bytes[mem];
  return n * bytes % 1024 == 0 ? n + 64 / bytes : n;
}

int64_t tp_row_elems(const Tp *p, int buf) {
  const TpBuf *b = &p->buf[buf];
  if (b->n_dims < 2) return 1;
  if (b->pitch) return b->pitch;
  return tp_row_pad(buf_dim_product(p, b, 1, NULL), b->mem);
}

int64_t tp_buf_slack(const Tp *p, const TpBuf *b) {
  return 64 + (b->blocks ? (FULL_LANES / b->blocks->block + 1) * b->blocks->n_bytes * tp_buf_side(p, b).rows : 0);
}

int64_t tp_buf_bytes(const Tp *p, int buf, const int64_t *sym) {
  return ROUND_UP(tp_buf_rows(p, buf, sym) * tp_row_elems(p, buf) * ir_mem_bytes[p->buf[buf].mem] + tp_buf_slack(p, &p->buf[buf]), 64);
}

/* ---- expressions --------------------------------------------------------------------------------------------------- */
static Dx eval(Scope *s, const Expr *e);

static Dx eval_fn(Scope *s, const Expr *e, const FnDecl *f) {
  if (s->fn_depth == MAX_FN_DEPTH) return fail(s, err_new(ERR_LIMIT, "%s: calls nest deeper than %d", e->name, MAX_FN_DEPTH));
  if (f->n_params != e->n_args) return fail(s, err_new(ERR_SHAPE, "%s: got %d arguments, expected %d", e->name, e->n_args, f->n_params));
  Dx arg[16];
  if (e->n_args > 16) return fail(s, err_new(ERR_LIMIT, "%s: more than 16 arguments", e->name));
  for (int i = 0; i < e->n_args; i++) {
    arg[i] = eval(s, e->arg[i]);
    if (!strcmp(f->param[i].type.elt, "f32")) arg[i] = dx_to_f32(s->p->dag, arg[i]);
  }
  int mark = s->n;
  s->fn_depth++;
  for (int i = 0; i < e->n_args; i++) bind(s, (Binding){f->param[i].name, BIND_VALUE, arg[i], 0});
  for (int i = 0; i < f->n_lets; i++) bind(s, (Binding){f->let[i].name, BIND_VALUE, eval(s, f->let[i].rhs), 0});
  Dx v = eval(s, f->value);
  if (!strcmp(f->result.elt, "f32")) v = dx_to_f32(s->p->dag, v);
  s->fn_depth--;
  s->n = mark;
  return v;
}

static Dx eval_call(Scope *s, const Expr *e) {
  int n = 0;
  DxOp op = dx_builtin(e->name, &n);
  const FnDecl *f = op ? NULL : lang_fn(s->p->module, e->name);
  Dx arg[3] = {0};
  if (f) return eval_fn(s, e, f);
  if (!op) return fail(s, err_new(ERR_NOT_FOUND, "function '%s': no such function", e->name));
  if (n != e->n_args) return fail(s, err_new(ERR_SHAPE, "%s: got %d arguments, expected %d", e->name, e->n_args, n));
  for (int i = 0; i < n; i++) arg[i] = eval(s, e->arg[i]);
  if (s->err) return arg[0];
  Dx x = dx_call(s->p->dag, op, arg);
  return x ? x : fail(s, err_new(ERR_UNSUPPORTED, "op %s: gcd of what is not known before run time, or below 0", s->op));
}

static int raw_twin(Tp *p, int buf) {
  TpBuf b = p->buf[buf];
  if (b.fmt->rows) b.fmt = b.fmt->rows;
  for (int i = 0; i < p->n_bufs; i++) if (p->buf[i].raw && p->buf[i].tag == b.tag && p->buf[i].fmt == b.fmt) return i;
  b.raw = true;
  b.bf16 = false;
  return tp_buf(p, b);
}

static const char *const wgt_attr[] = {[WA_CODE] = "code", [WA_SCALE] = "scale", [WA_OFFSET] = "offset", [WA_STEP] = "step", [WA_UNIT] = "unit"};

static Dx weight(Scope *s, int buf, WgtAttr attr, Dx row, Dx k) {
  Dag *d = s->p->dag;
  FormatForm *f = s->p->buf[buf].fmt;
  if (attr == WA_STEP && !f->step) return dx_int(d, 1);
  if (attr == WA_UNIT && !f->step) attr = WA_SCALE;
  if (attr != WA_VALUE && !f->integer) return fail(s, err_new(ERR_UNSUPPORTED, "op %s: format %s has no codes; ask with: when %s.integer", s->op, f->decl->name, s->p->buf[buf].name));
  if (attr == WA_OFFSET && f->dag->node[f->offset].kind == DX_FLT && f->dag->node[f->offset].fval == 0.0f) return dx_flt(d, 0.0f);
  if (s->laid && s->laid[buf]) {
    if (attr != WA_VALUE) return fail(s, err_new(ERR_UNSUPPORTED, "op %s: %s.%s is only for statements y[m,n] = .. of two indices with %s[n, k] in a chain or an isum over k", s->op, s->p->buf[buf].name, wgt_attr[attr], s->p->buf[buf].name));
    if (s->sorted == buf + 1) k = dx_node(d, (DxNode){.kind = DX_LOAD, .type = DT_INT, .n_args = 1, .arg = {k}, .ival = s->p->buf[buf].order - 1});
    return dx_node(d, (DxNode){.kind = DX_LOAD, .type = DT_F32, .n_args = 2, .arg = {row, k}, .ival = s->laid[buf] - 1});
  }
  if (d->node[row].kind != DX_AXIS) {
    if (attr != WA_VALUE) return fail(s, err_new(ERR_UNSUPPORTED, "op %s: rows of a weight picked by an index have a value only, no code or scale", s->op));
    buf = raw_twin(s->p, buf);
  } else if (f->sorted && s->sorted != buf + 1) {
    return fail(s, err_new(ERR_UNSUPPORTED, "op %s: %s has its columns in the order of their groups, and this op does more with columns than sum over them", s->op, s->p->buf[buf].name));
  }
  return dx_node(d, (DxNode){.kind = DX_WGT, .op = (uint8_t)attr, .type = attr == WA_CODE || attr == WA_STEP ? DT_INT : DT_F32, .n_args = 2, .arg = {row, k}, .ival = buf});
}

static WgtAttr attr_of(const Expr *base) {
  for (size_t i = WA_CODE; base->kind == EX_FIELD && i < COUNT_OF(wgt_attr); i++) if (!strcmp(base->name, wgt_attr[i])) return (WgtAttr)i;
  return WA_VALUE;
}

/* An element of a state in blocks, or what it is made of; its scale stays whole. */
static Dx block_load(Scope *s, int buf, const Dx *idx, int n, WgtAttr attr) {
  const FormatForm *f = s->p->buf[buf].blocks;
  if (attr == WA_STEP) return dx_int(s->p->dag, 1);
  if (attr == WA_UNIT) attr = WA_SCALE;
  if (attr != WA_VALUE && !f->integer) return fail(s, err_new(ERR_UNSUPPORTED, "op %s: format %s has no codes; ask with: when %s.integer", s->op, f->decl->name, s->p->buf[buf].name));
  if (attr == WA_OFFSET && f->dag->node[f->offset].kind == DX_FLT && f->dag->node[f->offset].fval == 0.0f) return dx_flt(s->p->dag, 0.0f);
  DxNode node = {.kind = DX_LOAD, .op = (uint8_t)attr, .type = attr == WA_CODE ? DT_INT : DT_F32, .n_args = (uint8_t)n, .ival = buf};
  memcpy(node.arg, idx, sizeof(Dx) * (size_t)n);
  return dx_node(s->p->dag, node);
}

static Dx eval_index(Scope *s, const Expr *e) {
  const Expr *base = e->arg[0];
  const char *name = base->kind == EX_FIELD ? base->arg[0]->name : base->name;
  const Binding *b = lookup(s, name);
  if (b && b->kind == BIND_VALUE && base->kind == EX_NAME) return b->value; /* a tensor left out: its default */
  if (!b || b->kind != BIND_BUF) return fail(s, err_new(ERR_NOT_FOUND, "op %s: '%s' is not a tensor", s->op, name));
  int buf = b->buf;
  Dx idx[DX_MAX_ARGS];
  int n = e->n_args - 1;
  const TpBuf *t = &s->p->buf[buf];
  if (n != t->n_dims) return fail(s, err_new(ERR_SHAPE, "op %s: %s has %d dimensions, got %d indices", s->op, name, t->n_dims, n));
  for (int i = 0; i < n; i++) idx[i] = eval(s, e->arg[i + 1]);
  t = &s->p->buf[buf];
  if (t->fmt) {
    WgtAttr attr;
    if (n != 2) return fail(s, err_new(ERR_SHAPE, "op %s: weight %s needs two indices (row, k)", s->op, name));
    attr = attr_of(base);
    return weight(s, buf, attr, idx[0], idx[1]);
  }
  if (t->blocks) return block_load(s, buf, idx, n, attr_of(base));
  if (base->kind == EX_FIELD) return fail(s, err_new(ERR_UNSUPPORTED, "op %s: %s is stored as numbers, which have no %s", s->op, name, base->name));
  DxNode node = {.kind = DX_LOAD, .type = t->mem == IR_M_f32 || t->mem == IR_M_f16 || t->mem == IR_M_bf16 ? DT_F32 : DT_INT, .n_args = (uint8_t)n, .ival = buf};
  memcpy(node.arg, idx, sizeof(Dx) * (size_t)n);
  return dx_node(s->p->dag, node);
}

static Dx eval_field(Scope *s, const Expr *e) {
  const Binding *b = e->arg[0]->kind == EX_NAME ? lookup(s, e->arg[0]->name) : NULL;
  const TpBuf *t = b && b->kind == BIND_BUF ? &s->p->buf[b->buf] : NULL;
  static const int digits[IR_N_MEM] = {[IR_M_f32] = 24, [IR_M_f16] = 11, [IR_M_bf16] = 8};
  FormatForm *f = t && t->blocks ? t->blocks : t ? t->fmt : NULL;
  if (t && !strcmp(e->name, "digits")) return dx_int(s->p->dag, f && !f->plain ? 0 : digits[f ? f->mem : t->mem]); /* binary ones of plain floats */
  if (!f) return dx_int(s->p->dag, 0);
  if (!strcmp(e->name, "integer")) return dx_int(s->p->dag, f->integer);
  if (!strcmp(e->name, "group")) return dx_int(s->p->dag, f->group);
  if (!strcmp(e->name, "span")) return dx_int(s->p->dag, f->step && !t->blocks ? f->span : f->group);
  if (!strcmp(e->name, "scaled")) return dx_int(s->p->dag, t->blocks && format_scaled(s->p->arena, s->p->module, f));
  if (!strcmp(e->name, "bits")) return dx_int(s->p->dag, (8 * f->n_bytes + f->block - 1) / f->block);
  if (!strcmp(e->name, "bias")) return dx_int(s->p->dag, f->bias);
  return fail(s, err_new(ERR_NOT_FOUND, "op %s: a weight has no attribute '%s'", s->op, e->name));
}

static bool has_zero_factor(const Dag *d, Dx x) {
  const DxNode *n = &d->node[x];
  if (n->kind == DX_FLT) return n->fval == 0.0f;
  if (n->kind == DX_RED && n->op == RED_CHAIN) return has_zero_factor(d, n->arg[1]);
  return n->kind == DX_OP && n->op == DXO_MUL && (has_zero_factor(d, n->arg[0]) || has_zero_factor(d, n->arg[1]));
}

/* A chain's product with a factor that is the constant 0 is no term of it: a format without offsets costs nothing for them. */
static Dx drop_zero_terms(Dag *d, Dx x) {
  const DxNode n = d->node[x];
  if (n.kind != DX_OP || n.op != DXO_ADD) return x;
  Dx a = drop_zero_terms(d, n.arg[0]), b = drop_zero_terms(d, n.arg[1]);
  return has_zero_factor(d, b) ? a : has_zero_factor(d, a) ? b : dx_op2(d, DXO_ADD, a, b);
}

/* The range of an axis; a number below 0 is 0. */
static Dx extent_of(Scope *s, const Expr *e, int axis) {
  Dag *d = s->p->dag;
  int64_t v;
  Dx x = eval(s, e);
  if (dx_is_int(d, x, &v) && v < 0) x = dx_int(d, 0);
  DxRange r = dx_range(d, x, s->axis_max);
  s->axis_max[axis] = r.hi < (int64_t)1 << 32 ? r.hi - 1 : -1;
  return x;
}

static Dx eval_reduce(Scope *s, const Expr *e, int i) {
  if (i == e->n_binders) return eval(s, e->arg[0]);
  Dag *d = s->p->dag;
  int axis = DX_BINDER + s->depth;
  if (e->op == RED_ARGMIN) return fail(s, err_new(ERR_UNSUPPORTED, "op %s: argmin is for formats", s->op));
  if (axis >= DX_MAX_AXES) return fail(s, err_new(ERR_LIMIT, "op %s: reductions nest too deep", s->op));
  Dx extent = extent_of(s, e->binder[i].extent, axis);
  int64_t len;
  bool alone = e->op == RED_ISUM && dx_is_int(d, extent, &len) && len == 1;   /* an integer by itself is its sum */
  int mark = s->n;
  bind(s, (Binding){e->binder[i].name, BIND_VALUE, alone ? dx_int(d, 0) : dx_axis(d, axis), 0});
  s->depth++;
  Dx body = eval_reduce(s, e, i + 1);
  s->depth--;
  s->n = mark;
  DxType t = (DxType)d->node[body].type;
  if (alone) return body;
  if (e->op == RED_SUM || e->op == RED_CHAIN) body = dx_to_f32(d, body), t = DT_F32;
  if (e->op == RED_CHAIN) body = drop_zero_terms(d, body);
  return dx_node(d, (DxNode){.kind = DX_RED, .op = (uint8_t)e->op, .type = (uint8_t)t, .n_args = 2, .arg = {extent, body}, .ival = axis});
}

static Dx eval_unary(Scope *s, const Expr *e) {
  Dx a = eval(s, e->arg[0]);
  if (e->op == OP_NEG) return dx_op1(s->p->dag, DXO_NEG, a);
  if (e->op == OP_NOT) return dx_op1(s->p->dag, DXO_LNOT, dx_truth(s->p->dag, a));
  return dx_op2(s->p->dag, DXO_XOR, a, dx_int(s->p->dag, -1));
}

/* What is known now decides now: the other side of && and || is not looked at. */
static Dx eval_logic(Scope *s, const Expr *e) {
  Dag *d = s->p->dag;
  int64_t v;
  Dx a = dx_truth(d, eval(s, e->arg[0]));
  if (dx_is_int(d, a, &v) && (v != 0) == (e->op == OP_OR)) return a;
  return dx_op2(d, dx_infix[e->op], a, dx_truth(d, eval(s, e->arg[1])));
}

static Dx eval_binary(Scope *s, const Expr *e) {
  Dag *d = s->p->dag;
  if (e->op == OP_AND || e->op == OP_OR) return eval_logic(s, e);
  Dx a = eval(s, e->arg[0]), b = eval(s, e->arg[1]);
  if ((e->op == OP_DIV || e->op == OP_MOD) && d->node[a].type == DT_INT && d->node[b].type == DT_INT) {
    DxRange r = dx_range(d, b, s->axis_max);
    if (r.lo < 1 && !s->err) return fail(s, err_new(ERR_SHAPE, "op %s: an int is divided by what may be %lld, expected at least 1; write max(.., 1)", s->op, (long long)r.lo));
  }
  return dx_op2(d, dx_infix[e->op], a, b);
}

static Dx eval_cond(Scope *s, const Expr *e) {
  Dag *d = s->p->dag;
  int64_t v;
  Dx c = dx_truth(d, eval(s, e->arg[0]));
  if (dx_is_int(d, c, &v)) return eval(s, e->arg[v ? 1 : 2]);
  Dx a = eval(s, e->arg[1]);
  return dx_op3(d, DXO_COND, c, a, eval(s, e->arg[2]));
}

static Dx eval_kind(Scope *s, const Expr *e) {
  Dag *d = s->p->dag;
  switch (e->kind) {
    case EX_INT: return dx_int(d, e->ival);
    case EX_FLOAT: return dx_flt(d, (float)e->fval);
    case EX_NAME: {
      const Binding *b = lookup(s, e->name);
      if (b && b->kind == BIND_VALUE) return b->value;
      if (b && s->p->buf[b->buf].n_dims == 0) return dx_node(d, (DxNode){.kind = DX_LOAD, .type = DT_F32, .ival = b->buf});
      return fail(s, err_new(ERR_NOT_FOUND, "op %s: name '%s' has no value here", s->op, e->name));
    }
    case EX_FIELD: return eval_field(s, e);
    case EX_INDEX: return eval_index(s, e);
    case EX_CALL: return eval_call(s, e);
    case EX_UNARY: return eval_unary(s, e);
    case EX_BINARY: return eval_binary(s, e);
    case EX_COND: return eval_cond(s, e);
    case EX_REDUCE: return eval_reduce(s, e, 0);
    default: return fail(s, err_new(ERR_SYNTAX, "op %s: this kind of expression does not belong here", s->op));
  }
}

/* Calls are written out where they stand, and a name may be used often: both are bounded, or a few lines could mean years of work. */
static Dx eval(Scope *s, const Expr *e) {
  if (s->err) return dx_int(s->p->dag, 0);
  if (s->left-- <= 0) return fail(s, err_new(ERR_LIMIT, "op %s: more than %d expressions with all that is called", s->op, MAX_STEPS));
  Loc around = s->at;
  s->at = e->loc;
  Dx x = eval_kind(s, e);
  s->at = around;
  if (!dx_too_large(s->p->dag, x)) return x;
  return fail(s, err_new(ERR_LIMIT, "op %s: an expression is too large with all it uses: at most %d operations, %d inside one another", s->op, DX_MAX_SIZE, DX_MAX_DEPTH));
}

/* ---- calls --------------------------------------------------------------------------------------------------------- */
static void dim_text(const Tp *p, Dx x, Str *out) {
  if (p->dag->node[x].kind == DX_SYM) str_add(out, p->sym[p->dag->node[x].ival].name);
  else dx_print(p->dag, x, out);
}

static Err *dim_mismatch(const Scope *s, const char *param, int i, Dx got, Dx want) {
  Str g = {0}, w = {0};
  dim_text(s->p, got, &g);
  dim_text(s->p, want, &w);
  Err *e = err_new(ERR_SHAPE, "op %s: %s: dimension %d is %s, expected %s", s->op, param, i, g.p, w.p);
  str_free(&g);
  str_free(&w);
  return e;
}

/* A capital letter stands for everything that is stored; a kind of element is that kind. */
static Err *check_elt(const OpDecl *op, const Param *pa, const TpBuf *b) {
  const char *want = pa->type.elt;
  IrMem m = dx_mem(want), got = b->fmt && b->fmt->plain ? b->fmt->mem : b->mem;
  if ((want[0] >= 'A' && want[0] <= 'Z') || (m != IR_M_none && m == got) || (b->fmt && !strcmp(b->fmt->decl->name, want))) return NULL;
  return err_new(ERR_SHAPE, "op %s: %s: got %s, expected %s", op->name, pa->name, b->fmt ? b->fmt->decl->name : ir_mem_name[b->mem], want);
}

static Err *bind_params(Scope *s, const OpDecl *op, const TpArg *arg, int n_args) {
  TpArg more[16];
  int n_given = n_args;
  for (int i = n_args; i < op->n_params && op->param[i].deflt; i++, n_args++) {
    if (arg != more) memcpy(more, arg, sizeof *arg * (size_t)MIN(n_args, 16)), arg = more;
    if (i < 16) more[i] = op->param[i].deflt->kind == EX_INT ? (TpArg){.kind = TA_INT, .ival = op->param[i].deflt->ival} : (TpArg){.kind = TA_FLT, .fval = op->param[i].deflt->fval};
  }
  if (n_args != op->n_params || n_args > 16) return err_new(ERR_SHAPE, "op %s: got %d arguments, expected %d (at most 16)", op->name, n_args, op->n_params);
  for (int i = 0; i < n_args; i++) {
    const Param *pa = &op->param[i];
    bool tensor = pa->type.n_dims > 0;
    bool same = tensor && i >= n_given; /* every element is the default */
    if (!same && tensor != (arg[i].kind == TA_BUF)) return err_new(ERR_SHAPE, "op %s: %s: a %s was expected", op->name, pa->name, tensor ? "tensor" : "number");
    if (tensor && !same) bind(s, (Binding){pa->name, BIND_BUF, 0, arg[i].buf});
    else {
      bool f = !strcmp(pa->type.elt, "f32");
      if (!f && (arg[i].kind != TA_INT || arg[i].ival < INT32_MIN || arg[i].ival > INT32_MAX))
        return err_new(ERR_LIMIT, "op %s: %s is %g, expected a whole number of 32 bits", op->name, pa->name, arg[i].kind == TA_FLT ? arg[i].fval : (double)arg[i].ival);
      double v = arg[i].kind == TA_FLT ? arg[i].fval : (double)arg[i].ival;
      bind(s, (Binding){pa->name, BIND_VALUE, f ? dx_flt(s->p->dag, (float)v) : dx_int(s->p->dag, arg[i].ival), 0});
    }
    if (!tensor || same) continue;
    const TpBuf *b = &s->p->buf[arg[i].buf];
    if (b->n_dims != pa->type.n_dims) return err_new(ERR_SHAPE, "op %s: %s has %d dimensions, expected %d", op->name, pa->name, b->n_dims, pa->type.n_dims);
    TRY(check_elt(op, pa, b));
    TRY(err_wrap(tp_dims_check(s->p, pa->name, b), "op %s", op->name));
    for (int k = 0; k < b->n_dims; k++) {
      const Expr *e = pa->type.dim[k];
      if (e->kind == EX_NAME && !lookup(s, e->name)) bind(s, (Binding){e->name, BIND_VALUE, b->dim[k], 0});
    }
  }
  for (int i = 0; i < n_args; i++) {
    for (int k = 0; arg[i].kind == TA_BUF && k < op->param[i].type.n_dims; k++) {
      Dx want = eval(s, op->param[i].type.dim[k]), got = s->p->buf[arg[i].buf].dim[k];
      if (!s->err && want != got) return dim_mismatch(s, op->param[i].name, k, got, want);
    }
  }
  return s->err;
}

static Err *bind_results(Scope *s, const OpDecl *op, int *results, int n_results) {
  if (n_results != op->n_results) return err_new(ERR_SHAPE, "op %s: %d results wanted, it has %d", op->name, n_results, op->n_results);
  for (int i = 0; i < n_results; i++) {
    const Param *r = &op->result[i];
    TpBuf b = {.name = r->name, .role = BUF_TEMP, .mem = dx_mem(r->type.elt), .n_dims = r->type.n_dims, .tag = -1};
    bool given = results[i] >= 0;
    if (b.n_dims > IR_MAX_DIMS) return err_new(ERR_LIMIT, "op %s: %s: more than %d dimensions", op->name, r->name, IR_MAX_DIMS);
    if (given && s->p->buf[results[i]].n_dims != b.n_dims) return err_new(ERR_SHAPE, "op %s: result %s: %d dimensions, expected %d", op->name, r->name, s->p->buf[results[i]].n_dims, b.n_dims);
    for (int k = 0; k < b.n_dims; k++) {
      const Expr *e = r->type.dim[k];
      if (given && e->kind == EX_NAME && !lookup(s, e->name)) bind(s, (Binding){e->name, BIND_VALUE, s->p->buf[results[i]].dim[k], 0});
      b.dim[k] = eval(s, e);
      if (s->err) return s->err;
      if (given && b.dim[k] != s->p->buf[results[i]].dim[k]) return dim_mismatch(s, r->name, k, s->p->buf[results[i]].dim[k], b.dim[k]);
    }
    if (given) b.mem = s->p->buf[results[i]].mem, b.blocks = s->p->buf[results[i]].blocks;
    if (!given && b.mem == IR_M_none) return err_new(ERR_SHAPE, "op %s: result %s: its format must come from the place it is stored to", op->name, r->name);
    TRY(err_wrap(tp_dims_check(s->p, r->name, &b), "op %s", op->name));
    if (!given) results[i] = tp_buf(s->p, b);
    bind(s, (Binding){r->name, BIND_BUF, 0, results[i]});
  }
  return NULL;
}

/* A temporary's dimensions are its axes' extents, or their largest values where they depend on data. */
static Err *temp_for(Scope *s, const Stmt *st, const TpStmt *t, int *out) {
  Dag *d = s->p->dag;
  DxType type = (DxType)d->node[t->rhs].type;
  const DxNode *r = &d->node[t->rhs];
  TpBuf b = {.name = st->name, .role = BUF_TEMP, .mem = type == DT_F32 ? IR_M_f32 : IR_M_i32, .n_dims = t->n_index, .tag = -1};
  if (r->kind == DX_OP && r->op == DXO_I8) b.mem = IR_M_i8;
  for (int i = 0; i < t->n_index; i++) {
    const DxNode *x = &d->node[t->index[i]];
    if (x->kind != DX_AXIS) return err_new(ERR_SHAPE, "op %s: %s: the first statement of a local tensor must index it by plain axes", s->op, st->name);
    Dx e = t->extent[x->ival];
    if (d->node[e].kind != DX_INT && d->node[e].kind != DX_SYM) {
      DxRange g = dx_range(d, e, s->axis_max);
      if (g.hi > (int64_t)1 << 32) return err_new(ERR_SHAPE, "op %s: %s: no bound is known for axis %s", s->op, st->name, st->axis[x->ival].name);
      e = dx_int(d, g.hi);
    }
    b.dim[i] = d->node[e].kind == DX_INT && d->node[e].ival < 1 ? dx_int(d, 1) : e; /* of an empty one */
  }
  TRY(err_wrap(tp_dims_check(s->p, st->name, &b), "op %s", s->op));
  *out = tp_buf(s->p, b);
  return NULL;
}

/* Floats of memory, one behind the other along the axis. */
static bool lies_along(const Tp *p, Dx x, int axis) {
  const DxNode *n = &p->dag->node[x];
  if (n->kind != DX_LOAD || n->n_args < 2 || p->buf[n->ival].blocks || p->buf[n->ival].mem != IR_M_f32 || p->buf[n->ival].fmt) return false;
  for (int i = 0; i < n->n_args; i++) {
    const DxNode *k = &p->dag->node[n->arg[i]];
    if (i + 1 == n->n_args ? k->kind != DX_AXIS || k->ival != axis : k->axes >> axis & 1) return false;
  }
  return true;
}

/* What is stored is worked out in a temporary first, whose last index is the axis of the blocks. */
static Err *store_through(Scope *s, const Stmt *st, TpStmt *t) {
  Tp *p = s->p;
  TpStmt first = *t;
  DxNode load = {.kind = DX_LOAD, .type = DT_F32, .n_args = (uint8_t)t->n_axes};
  int buf, n = 0;
  if (t->n_axes > IR_MAX_DIMS || p->n_stmts == MAX_STMTS) return err_new(ERR_LIMIT, "more than %d axes or %d statements", IR_MAX_DIMS, MAX_STMTS);
  first.block_axis = 0;
  first.n_index = t->n_axes;
  for (int i = 0; i < t->n_axes; i++) if (i + 1 != t->block_axis) first.index[n++] = dx_axis(p->dag, i);
  first.index[n] = dx_axis(p->dag, t->block_axis - 1);
  TRY(temp_for(s, st, &first, &buf));
  first.buf = buf;
  TRY(tp_stmt_check(p, &first));
  PUSH(p->arena, p->stmt, p->n_stmts, p->cap_stmts, first);
  load.ival = buf;
  memcpy(load.arg, first.index, sizeof(Dx) * (size_t)t->n_axes);
  t->rhs = dx_node(p->dag, load);
  return NULL;
}

/* A store of floats into blocks takes a block at once: its axis along them comes last, and the floats lie in memory one behind the other. */
static Err *store_blocks(Scope *s, const Stmt *st, TpStmt *t) {
  Tp *p = s->p;
  Dag *d = p->dag;
  const TpBuf *b = &p->buf[t->buf];
  int bd = b->block_dim, axis = d->node[t->index[bd]].kind == DX_AXIS ? (int)d->node[t->index[bd]].ival : -1;
  bool alone = axis >= 0 && t->n_axes > 1 && t->extent[axis] == b->dim[bd];
  for (int i = 0; i < t->n_index; i++) alone = alone && (i == bd || !(d->node[t->index[i]].axes >> axis & 1));
  for (int i = 0; i < t->n_axes; i++) alone = alone && !(d->node[t->extent[i]].axes >> axis & 1);
  if (!alone) return err_new(ERR_UNSUPPORTED, "its format %s has blocks along dimension %d, so a store must index that by an axis of its own that runs over all of it", b->blocks->decl->name, bd);
  TRY(format_stored(p->arena, p->module, b->blocks));
  t->block_axis = axis + 1;
  return lies_along(p, t->rhs, axis) ? NULL : store_through(s, st, t);
}

/* ---- weights as plain numbers ---------------------------------------------------------------------------------------- */
/* Whether packed weights, lanes of which are rows, serve a statement: those of y[m,n] = .. w[n,k] .., k linear, from reductions that go in order or are
   short, and of blocks of a fixed length. Else lay_weights makes floats of them first. open: axes of no fixed length. */
static bool packed_serves(const Scope *s, const TpStmt *t, Dx x, bool striped, uint64_t open) {
  const Dag *d = s->p->dag;
  const DxNode *n = &d->node[x];
  if (n->kind == DX_WGT && !s->p->buf[n->ival].raw) {
    const FormatForm *f = s->p->buf[n->ival].fmt;
    bool ok = f->plain || !(d->node[n->arg[1]].axes & open);
    for (int i = 0; i < DX_MAX_AXES && n->op == WA_VALUE; i++) {
      int64_t c = i < DX_BINDER && f->plain ? 0 : dx_coef(d, n->arg[1], i, &ok);
      ok = ok && (i >= DX_BINDER || c % f->block == 0);
    }
    return !striped && ok && d->node[n->arg[0]].ival == 1 && t->n_axes == 2 && t->n_index == 2 && t->index[0] == dx_axis(s->p->dag, 0) && t->index[1] == dx_axis(s->p->dag, 1);
  }
  int64_t ext;
  bool fixed = n->kind == DX_RED && dx_is_int(d, n->arg[0], &ext);
  if (n->kind == DX_RED && n->op != RED_CHAIN && n->op != RED_ISUM) striped = striped || n->op == RED_SUM || !fixed || ext < 1 || ext > FULL_LANES;
  if (n->kind == DX_RED && !fixed) open |= (uint64_t)1 << n->ival;
  for (int i = 0; i < n->n_args; i++) if (!packed_serves(s, t, n->arg[i], striped, open)) return false;
  return true;
}

/* Each weight that x reads packed, as floats in a temporary. */
static Err *lay_weights(Scope *s, const Stmt *st, Dx x) {
  Tp *p = s->p;
  const DxNode n = p->dag->node[x];
  int buf = (int)n.ival;
  for (int i = 0; i < n.n_args; i++) TRY(lay_weights(s, st, n.arg[i]));
  if (n.kind != DX_WGT || p->buf[buf].raw || s->laid[buf]) return NULL;
  TpBuf to = {.name = p->buf[buf].name, .role = BUF_TEMP, .mem = IR_M_f32, .n_dims = 2, .tag = -1};
  TpStmt t = {.n_index = 2, .n_axes = 2, .op = s->op, .text = st->name, .line = p->line, .call = p->n_calls};
  for (int i = 0; i < 2; i++) {
    t.index[i] = dx_axis(p->dag, i);
    t.extent[i] = to.dim[i] = p->buf[buf].dim[i];
  }
  t.rhs = dx_node(p->dag, (DxNode){.kind = DX_WGT, .op = WA_VALUE, .type = DT_F32, .n_args = 2, .arg = {t.index[0], t.index[1]}, .ival = raw_twin(p, buf)});
  TRY(err_wrap(tp_dims_check(p, to.name, &to), "op %s", s->op));
  s->laid[buf] = (t.buf = tp_buf(p, to)) + 1;
  TRY(tp_stmt_check(p, &t));
  if (p->n_stmts == MAX_STMTS) return err_new(ERR_LIMIT, "op %s: more than %d statements together with those before it", s->op, MAX_STMTS);
  PUSH(p->arena, p->stmt, p->n_stmts, p->cap_stmts, t);
  return NULL;
}

/* The right side of a statement; of weights, in the form that serves it. */
static Err *eval_rhs(Scope *s, const Stmt *st, TpStmt *t) {
  t->rhs = eval(s, st->rhs);
  if (s->err) return s->err;
  if (packed_serves(s, t, t->rhs, false, 0)) return NULL;
  s->laid = ARENA_ARRAY(s->p->arena, int, (size_t)s->p->n_bufs);
  TRY(lay_weights(s, st, t->rhs));
  t->rhs = eval(s, st->rhs);
  s->laid = NULL;
  return s->err;
}

static Err *add_stmt(Scope *s, const Stmt *st) {
  Tp *p = s->p;
  if (st->n_index == 0 && st->n_axes == 0) {
    bind(s, (Binding){st->name, BIND_VALUE, eval(s, st->rhs), 0});
    return s->err;
  }
  int mark = s->n;
  TpStmt t = {.n_index = st->n_index, .n_axes = st->n_axes, .op = s->op, .text = st->name, .line = p->line, .call = p->n_calls};
  for (int i = 0; i < DX_MAX_AXES; i++) s->axis_max[i] = -1;
  if (st->n_axes > DX_BINDER || st->n_index > IR_MAX_DIMS) return err_new(ERR_LIMIT, "op %s: %s: too many axes", s->op, st->name);
  for (int i = 0; i < st->n_axes; i++) bind(s, (Binding){st->axis[i].name, BIND_VALUE, dx_axis(p->dag, i), 0});
  for (int i = 0; i < st->n_axes; i++) t.extent[i] = extent_of(s, st->axis[i].extent, i);
  for (int i = 0; i < st->n_index; i++) t.index[i] = eval(s, st->index[i]);
  TRY(eval_rhs(s, st, &t));
  s->n = mark;
  const Binding *b = lookup(s, st->name);
  int buf = b && b->kind == BIND_BUF ? b->buf : -1;
  if (buf < 0) {
    TRY(temp_for(s, st, &t, &buf));
    bind(s, (Binding){st->name, BIND_BUF, 0, buf});
    while (p->dag->n_load_range <= buf) PUSH(p->arena, p->dag->load_range, p->dag->n_load_range, p->dag->cap_load_range, (DxRange){0});
    DxRange r = dx_range(p->dag, t.rhs, s->axis_max);
    if (p->dag->node[t.rhs].type == DT_INT && r.hi > 0 && r.hi < (int64_t)1 << 32) p->dag->load_range[buf] = r;
  }
  IrMem m = p->buf[buf].mem;
  const DxNode *r = &p->dag->node[t.rhs];
  if (p->buf[buf].blocks || m == IR_M_f32 || m == IR_M_f16 || m == IR_M_bf16) t.rhs = dx_to_f32(p->dag, t.rhs);
  else if (m == IR_M_i8 && r->kind == DX_OP && r->op == DXO_I8) t.rhs = dx_op1(p->dag, DXO_TOI, r->arg[0]); /* the store keeps 8 bits */
  t.buf = buf;
  if (p->buf[buf].blocks) TRY(err_wrap(store_blocks(s, st, &t), "op %s: %s", s->op, st->name));
  TRY(tp_stmt_check(p, &t));
  if (p->n_stmts == MAX_STMTS) return err_new(ERR_LIMIT, "op %s: more than %d statements together with those before it", s->op, MAX_STMTS);
  PUSH(p->arena, p->stmt, p->n_stmts, p->cap_stmts, t);
  return NULL;
}

static int dims_named(const Param *p, const char *name) {
  int n = 0;
  for (int i = 0; i < p->type.n_dims; i++) n += p->type.dim[i]->kind == EX_NAME && !strcmp(p->type.dim[i]->name, name);
  return n;
}

/* x[.., k] as x[.., order[k]] */
static Err *sort_columns(Tp *p, int *buf, int order) {
  TpBuf b = p->buf[*buf];
  TpStmt t = {.n_index = b.n_dims, .n_axes = b.n_dims, .op = "columns", .text = "sorted"};
  Dx from[2];
  if (b.n_dims > 2 || b.fmt) return err_new(ERR_UNSUPPORTED, "%s: only vectors and rows of numbers are put in the order of a weight's columns", b.name);
  for (int i = 0; i < b.n_dims; i++) {
    t.index[i] = from[i] = dx_axis(p->dag, i);
    t.extent[i] = b.dim[i];
  }
  from[b.n_dims - 1] = dx_node(p->dag, (DxNode){.kind = DX_LOAD, .type = DT_INT, .n_args = 1, .arg = {from[b.n_dims - 1]}, .ival = order});
  DxNode load = {.kind = DX_LOAD, .type = b.mem == IR_M_f32 || b.mem == IR_M_f16 || b.mem == IR_M_bf16 ? DT_F32 : DT_INT, .n_args = (uint8_t)b.n_dims, .ival = *buf};
  memcpy(load.arg, from, sizeof from);
  t.rhs = dx_node(p->dag, load);
  t.buf = *buf = tp_buf(p, (TpBuf){.name = b.name, .role = BUF_TEMP, .mem = b.mem, .n_dims = b.n_dims, .dim = {b.dim[0], b.dim[1]}, .tag = -1});
  TRY(tp_stmt_check(p, &t));
  PUSH(p->arena, p->stmt, p->n_stmts, p->cap_stmts, t);
  return NULL;
}

/* A weight whose columns are sorted, in an op that sums over columns: what else has that dimension is put in the same order. */
static Err *sort_args(Scope *s, const OpDecl *op, TpArg *arg, int n_args) {
  Tp *p = s->p;
  for (int w = 0; w < n_args; w++) {
    const TypeExpr *t = &op->param[w].type;
    if (arg[w].kind != TA_BUF || !p->buf[arg[w].buf].order || !p->buf[arg[w].buf].fmt->sorted || t->n_dims != 2 || t->dim[1]->kind != EX_NAME) continue;
    const char *name = t->dim[1]->name;
    bool ok = !s->sorted;
    for (int i = 0; i < op->n_results; i++) ok = ok && !dims_named(&op->result[i], name);
    for (int i = 0; i < n_args; i++) {
      const TypeExpr *o = &op->param[i].type;
      int n = dims_named(&op->param[i], name);
      ok = ok && (n == 0 || (n == 1 && o->dim[o->n_dims - 1]->kind == EX_NAME && !strcmp(o->dim[o->n_dims - 1]->name, name)));
    }
    if (!ok) continue;                                       /* weight(..) tells, should the packed columns be read */
    for (int i = 0; i < n_args; i++) if (i != w && dims_named(&op->param[i], name)) TRY(sort_columns(p, &arg[i].buf, p->buf[arg[w].buf].order - 1));
    s->sorted = arg[w].buf + 1;
  }
  return NULL;
}

static void keep_call(Tp *p, const OpDecl *op, const TpArg *arg, int n_args, const int *results, int n_results) {
  TpCall c = {.op = op, .n_args = MIN(n_args, TP_CALL_ARGS), .n_results = MIN(n_results, TP_CALL_ARGS)};
  memcpy(c.arg, arg, sizeof *arg * (size_t)c.n_args);
  memcpy(c.result, results, sizeof *results * (size_t)c.n_results);
  PUSH(p->arena, p->call, p->n_calls, p->cap_calls, c);
}

/* Whether statements from `first` on may give every element of a tensor: false where they have fewer elements together. Rows are taken as many. */
static bool gives_all(const Tp *p, int first, int buf) {
  enum { MANY = 1009 };
  const Dag *d = p->dag;
  double want = 1, have = 0;
  int64_t v;
  for (int i = 0; i < p->buf[buf].n_dims; i++) want *= dx_is_int(d, p->buf[buf].dim[i], &v) ? (double)v : MANY;
  for (int k = first; k < p->n_stmts; k++) {
    double n = 1;
    for (int i = 0; i < p->stmt[k].n_axes; i++) {
      Dx e = p->stmt[k].extent[i];
      n *= d->node[e].kind == DX_SYM ? MANY : (double)dx_range(d, e, NULL).hi;
    }
    if (p->stmt[k].buf == buf) have += n;
  }
  return have >= want;
}

static Err *call_variant(Tp *p, const OpDecl *op, const TpArg *given, int n_args, int *results, int n_results, bool *fits) {
  TpArg arg[16];
  Scope *s = ARENA_NEW(p->arena, Scope);
  *s = (Scope){.p = p, .op = op->name, .left = MAX_STEPS};
  for (int i = 0; i < DX_MAX_AXES; i++) s->axis_max[i] = -1;
  *fits = false;
  if (op->precision && (!p->precision || strcmp(op->precision, p->precision))) return NULL;
  if (n_args > 16 || n_args > op->n_params) return err_new(ERR_SHAPE, "op %s: got %d arguments, expected %d (at most 16)", op->name, n_args, op->n_params);
  memcpy(arg, given, sizeof *arg * (size_t)n_args);
  TRY(err_wrap(sort_args(s, op, arg, n_args), "op %s", op->name));
  TRY(bind_params(s, op, arg, n_args));
  for (int i = 0; i < MIN(n_results, op->n_results); i++) /* a condition may ask what is stored to */
    if (results[i] >= 0) bind(s, (Binding){op->result[i].name, BIND_BUF, 0, results[i]});
  if (op->when) {
    Dx c = dx_truth(p->dag, eval(s, op->when));
    int64_t v = 0;
    if (s->err) return s->err;
    if (!dx_is_int(p->dag, c, &v)) return err_new(ERR_SHAPE, "op %s: its condition is not known before run time", op->name);
    if (!v) return NULL;
  }
  *fits = true;
  bool is_new[16] = {false};                                 /* no place was given for it, which might hold the rest */
  if (n_results > (int)COUNT_OF(is_new)) return err_new(ERR_LIMIT, "op %s: more than %zu results", op->name, COUNT_OF(is_new));
  for (int i = 0; i < n_results; i++) is_new[i] = results[i] < 0;
  TRY(bind_results(s, op, results, n_results));
  int first = p->n_stmts;
  for (int i = 0; i < op->n_stmts; i++) {
    Err *e = add_stmt(s, &op->stmt[i]);
    if (e) return e == s->err ? e : lang_err_at(p->module, op->stmt[i].loc, e);
  }
  for (int i = 0; i < n_results; i++)
    if (is_new[i] && !gives_all(p, first, results[i]))
      return lang_err_at(p->module, op->result[i].loc, err_new(ERR_SHAPE, "op %s: its statements do not give all elements of the result %s", op->name, op->result[i].name));
  return NULL;
}

Err *tp_call(Tp *p, const char *name, const TpArg *arg, int n_args, int *results, int n_results, const char **variant) {
  const OpDecl *op = lang_op(p->module, name, 0);
  if (!op) return err_new(ERR_NOT_FOUND, "op '%s': no such op", name);
  for (int i = 0; op; op = lang_op(p->module, name, ++i)) {
    bool fits;
    TRY(call_variant(p, op, arg, n_args, results, n_results, &fits));
    if (variant) *variant = op->precision ? op->precision : "f32";
    if (!fits) continue;
    keep_call(p, op, arg, n_args, results, n_results);
    return NULL;
  }
  return err_new(ERR_UNSUPPORTED, "op '%s': none of its variants fits these arguments at precision %s", name, p->precision ? p->precision : "f32");
}

void tp_print(const Tp *p, Str *out) {
  for (int i = 0; i < p->n_bufs; i++) {
    const TpBuf *b = &p->buf[i];
    str_addf(out, "b%d %s: %s[", i, b->name, b->fmt ? b->fmt->decl->name : ir_mem_name[b->mem]);
    for (int k = 0; k < b->n_dims; k++) {
      if (k) str_add(out, ",");
      dim_text(p, b->dim[k], out);
    }
    str_addf(out, "]%s%s\n", b->raw ? " raw" : "", b->alias != i ? " view" : "");
  }
  for (int i = 0; i < p->n_stmts; i++) {
    const TpStmt *t = &p->stmt[i];
    str_addf(out, "b%d[", t->buf);
    for (int k = 0; k < t->n_index; k++) {
      if (k) str_add(out, ", ");
      dx_print(p->dag, t->index[k], out);
    }
    str_add(out, "] = ");
    dx_print(p->dag, t->rhs, out);
    for (int k = 0; k < t->n_axes; k++) {
      str_addf(out, k ? ", i%d < " : " for i%d < ", k);
      dim_text(p, t->extent[k], out);
    }
    str_add(out, "\n");
  }
}
