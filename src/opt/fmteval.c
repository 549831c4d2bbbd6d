/* Symbolic evaluation of a format's text: an expression, with the element's number known, becomes a node over the block's fields. Functions
   are expanded, what is known is folded, the branch not taken is never looked at. In: expressions of a checked format. Out: DAG nodes. */
#include <string.h>
#include "opt/fmteval.h"

Dx fmt_fail(FmtEval *s, Err *e) {
  if (s->err) err_free(e);
  else s->err = lang_err_at(s->m, s->at, e);
  return dx_int(s->d, 0);
}

typedef struct FmtMemo { const FormatFn *fn; Dx arg, arg2, value; int loop; } FmtMemo; /* loop: whose index the arguments use, 0 none */
enum { MAX_STEPS = 1 << 24 };

void fmt_begin(FmtEval *s, Dag *d, const Module *m, const FormatDecl *f, bool encode) {
  *s = (FmtEval){.d = d, .m = m, .f = f, .left = MAX_STEPS, .encode = encode, .fn = encode ? f->encode : f->fn, .n_fns = encode ? f->n_encodes : f->n_fns};
  for (int i = 0; i < DX_MAX_AXES; i++) s->axis_max[i] = -1;
}

const Field *fmt_field(const FormatDecl *f, const char *name) {
  for (int k = 0; k < f->n_fields; k++) if (!strcmp(f->field[k].name, name)) return &f->field[k];
  return NULL;
}

static Dx field(FmtEval *s, const Field *fl, Dx index) {
  IrMem m = dx_mem(fl->elt);
  int64_t i = 0;
  bool known = dx_is_int(s->d, index, &i);
  DxRange r = known ? (DxRange){i, i} : dx_range(s->d, index, s->axis_max);
  if (m == IR_M_none) return fmt_fail(s, err_new(ERR_UNSUPPORTED, "format %s: field %s: kind %s is not known", s->f->name, fl->name, fl->elt));
  if (known && (i < 0 || i >= fl->count)) return fmt_fail(s, err_new(ERR_SHAPE, "format %s: %s[%lld] is outside its %lld elements", s->f->name, fl->name, (long long)i, (long long)fl->count));
  if (r.lo < 0 || r.hi >= fl->count)
    return fmt_fail(s, err_new(ERR_SHAPE, "format %s: an index of field %s runs from %lld to %lld, expected 0 to %lld; mask it with &", s->f->name, fl->name, (long long)r.lo, (long long)r.hi, (long long)fl->count - 1));
  bool flt = m == IR_M_f16 || m == IR_M_bf16 || m == IR_M_f32;
  DxNode n = {.kind = DX_FIELD, .op = (uint8_t)m, .type = flt ? DT_F32 : DT_INT, .ival = fl->offset + i * ir_mem_bytes[m], .fval = !strcmp(fl->elt, "u32")};
  if (s->via) {
    Dx at = dx_op2(s->d, DXO_MUL, index, dx_int(s->d, ir_mem_bytes[m]));
    return dx_part(s->d, m, !strcmp(fl->elt, "u32"), s->via - 1, dx_op2(s->d, DXO_ADD, s->via_byte, dx_op2(s->d, DXO_ADD, at, dx_int(s->d, fl->offset))), s->via_most);
  }
  if (!known) n.n_args = 1, n.arg[0] = index;
  return dx_node(s->d, n);
}

void fmt_name(FmtEval *s, const char *name, Dx value) {
  CHECK(s->n < FMT_MAX_NAMES);
  s->arg[s->n] = name;
  s->val[s->n++] = value;
}

/* ---- the format's functions ---------------------------------------------------------------------------------------- */
static FmtMemo *memo_slot(FmtEval *s, FmtMemo want) {
  uint64_t key[4] = {(uint64_t)(uintptr_t)want.fn, (uint64_t)want.arg, (uint64_t)want.arg2, (uint64_t)want.loop}, i = hash_bytes(key, sizeof key, 0);
  for (i &= (uint64_t)(s->cap_memo - 1); s->memo[i].fn; i = (i + 1) & (uint64_t)(s->cap_memo - 1))
    if (s->memo[i].fn == want.fn && s->memo[i].arg == want.arg && s->memo[i].arg2 == want.arg2 && s->memo[i].loop == want.loop) break;
  return &s->memo[i];
}

static void memo_grow(FmtEval *s) {
  FmtMemo *old = s->memo;
  int n = s->cap_memo;
  s->cap_memo = n ? n * 2 : 1024;
  s->memo = ARENA_ARRAY(s->d->arena, FmtMemo, s->cap_memo);
  for (int i = 0; i < n; i++) if (old[i].fn) *memo_slot(s, old[i]) = old[i];
}

/* What a field holds once `v` is stored there. */
static Dx stored(FmtEval *s, const Field *f, Dx v) {
  IrMem m = dx_mem(f->elt);
  DxRange r = s->d->node[v].type == DT_INT ? dx_range(s->d, v, s->axis_max) : (DxRange){0, 0};
  int64_t top = (int64_t)1 << (8 * ir_mem_bytes[m] - 1);
  if (m == IR_M_f16) return dx_op1(s->d, DXO_RF16, dx_to_f32(s->d, v));
  if (m == IR_M_bf16) return dx_op1(s->d, DXO_RBF16, dx_to_f32(s->d, v));
  if (m == IR_M_f32) return dx_to_f32(s->d, v);
  if (m == IR_M_i32) return v;
  if (m == IR_M_u8 || m == IR_M_u16) return r.lo >= 0 && r.hi < 2 * top ? v : dx_op2(s->d, DXO_AND, v, dx_int(s->d, 2 * top - 1));
  if (r.lo >= -top && r.hi < top) return v;
  Dx low = dx_op2(s->d, DXO_AND, v, dx_int(s->d, 2 * top - 1)); /* the top bit is the sign */
  return dx_op2(s->d, DXO_SUB, dx_op2(s->d, DXO_XOR, low, dx_int(s->d, top)), dx_int(s->d, top));
}

Dx fmt_call(FmtEval *s, const FormatFn *fn, Dx arg, Dx arg2) {
  if (s->n_memo * 2 >= s->cap_memo) memo_grow(s);
  FmtMemo key = {fn, arg, arg2, 0, (s->d->node[arg].axes | s->d->node[arg2].axes) ? s->loop_id : 0};
  const FmtMemo *m = memo_slot(s, key);
  if (m->fn) return m->value;
  if (s->depth >= FMT_MAX_DEPTH || s->n + 2 > FMT_MAX_NAMES) return fmt_fail(s, err_new(ERR_LIMIT, "format %s: %s: calls nest deeper than %d", s->f->name, fn->name, FMT_MAX_DEPTH));
  int mark = s->n;
  s->depth++;
  if (fn->arg) fmt_name(s, fn->arg, arg);
  if (fn->arg2) fmt_name(s, fn->arg2, arg2);
  Dx v = fmt_eval(s, fn->value);
  const Field *f = s->encode ? fmt_field(s->f, fn->name) : NULL;
  if (f && !s->err) v = stored(s, f, v);
  s->n = mark;
  s->depth--;
  if (s->n_memo * 2 >= s->cap_memo) memo_grow(s);
  key.value = v;
  *memo_slot(s, key) = key;
  s->n_memo++;
  return v;
}

static const FormatFn *own_fn(const FmtEval *s, const char *name) {
  for (int i = 0; i < s->n_fns; i++) if (!strcmp(s->fn[i].name, name)) return &s->fn[i];
  return NULL;
}

static Dx eval_name(FmtEval *s, const Expr *e) {
  for (int i = s->n - 1; i >= s->base; i--) if (!strcmp(s->arg[i], e->name)) return s->val[i];
  const FormatFn *own = own_fn(s, e->name);
  if (own && !own->arg) return fmt_call(s, own, 0, 0);
  const Field *f = s->encode ? NULL : fmt_field(s->f, e->name);
  for (int i = 0; s->parts && !s->via && i < s->parts->decl->n_parts; i++) if (!strcmp(s->parts->decl->part[i].name, e->name)) return fmt_part(s, i, NULL, 0);
  return f ? field(s, f, dx_int(s->d, 0)) : fmt_fail(s, err_new(ERR_NOT_FOUND, "format %s: name '%s' has no value here", s->f->name, e->name));
}

static Dx eval_builtin(FmtEval *s, const Expr *e, DxOp op) {
  Dx arg[3] = {0};
  for (int i = 0; i < e->n_args; i++) arg[i] = fmt_eval(s, e->arg[i]);
  if (s->err) return arg[0];
  Dx x = dx_call(s->d, op, arg);
  return x ? x : fmt_fail(s, err_new(ERR_UNSUPPORTED, "format %s: gcd of what depends on the data, or is below 0", s->f->name));
}

/* A fn sees its parameters and what it names itself, nothing of the format. */
static Dx eval_fn(FmtEval *s, const Expr *e, const FnDecl *f) {
  Dx arg[8];
  int base = s->base, mark = s->n;
  if (f->n_params > (int)COUNT_OF(arg) || s->n + f->n_params + f->n_lets > FMT_MAX_NAMES || s->depth > FMT_MAX_DEPTH)
    return fmt_fail(s, err_new(ERR_LIMIT, "format %s: %s: too many names or calls inside one another", s->f->name, f->name));
  for (int i = 0; i < f->n_params; i++) {
    arg[i] = fmt_eval(s, e->arg[i]);
    if (!strcmp(f->param[i].type.elt, "f32")) arg[i] = dx_to_f32(s->d, arg[i]);
  }
  s->base = s->n;
  s->depth++;
  for (int i = 0; i < f->n_params; i++) fmt_name(s, f->param[i].name, arg[i]);
  for (int i = 0; i < f->n_lets; i++) {
    Dx v = fmt_eval(s, f->let[i].rhs);
    fmt_name(s, f->let[i].name, v);
  }
  Dx v = fmt_eval(s, f->value);
  if (!strcmp(f->result.elt, "f32")) v = dx_to_f32(s->d, v);
  s->depth--;
  s->base = base;
  s->n = mark;
  return v;
}

/* The float to store: memory of f32, one after another. */
static Dx input(FmtEval *s, Dx index) {
  int64_t i;
  if (s->err) return index;
  if (!dx_is_int(s->d, index, &i)) {
    DxRange r = dx_range(s->d, index, s->axis_max);
    if (r.lo >= 0 && r.hi < s->f->block) return dx_node(s->d, (DxNode){.kind = DX_LOAD, .type = DT_F32, .n_args = 1, .arg = {index}});
    return fmt_fail(s, err_new(ERR_SHAPE, "format %s: encode: an index of x runs from %lld to %lld, expected 0 to %lld", s->f->name, (long long)r.lo, (long long)r.hi, (long long)s->f->block - 1));
  }
  if (i < 0 || i >= s->f->block) return fmt_fail(s, err_new(ERR_SHAPE, "format %s: encode: x(%lld) is outside the block of %lld", s->f->name, (long long)i, (long long)s->f->block));
  return dx_node(s->d, (DxNode){.kind = DX_FIELD, .op = IR_M_f32, .type = DT_F32, .ival = 4 * i});
}

static Dx eval_call(FmtEval *s, const Expr *e) {
  if (s->err) return dx_int(s->d, 0);
  const FormatFn *own = own_fn(s, e->name);
  if (s->encode && !strcmp(e->name, "x") && e->n_args == 1) return input(s, fmt_eval(s, e->arg[0]));
  if (own && own->arg && e->n_args == 1 + (own->arg2 != NULL)) {
    Dx a = fmt_eval(s, e->arg[0]);
    return fmt_call(s, own, a, own->arg2 ? fmt_eval(s, e->arg[1]) : 0);
  }
  int n = 0;
  DxOp op = dx_builtin(e->name, &n);
  if (op && n == e->n_args) return eval_builtin(s, e, op);
  Dx of_parts = s->parts ? fmt_part_call(s, e) : 0;
  if (of_parts || s->err) return of_parts;
  const FnDecl *f = lang_fn(s->m, e->name);
  if (f) return eval_fn(s, e, f);
  return fmt_fail(s, err_new(ERR_NOT_FOUND, "format %s: function '%s': no such function", s->f->name, e->name));
}

/* Of a field or a table by an index that cannot leave it. */
static Dx eval_index(FmtEval *s, const Expr *e) {
  const char *name = e->arg[0]->name;
  for (int k = 0; s->parts && !s->via && k < s->parts->decl->n_parts; k++) {
    Dx at[LAYOUT_MAX_DIMS];
    if (strcmp(s->parts->decl->part[k].name, name)) continue;
    for (int j = 1; j < e->n_args && j <= LAYOUT_MAX_DIMS; j++) at[j - 1] = fmt_eval(s, e->arg[j]);
    return s->err ? dx_int(s->d, 0) : fmt_part(s, k, at, e->n_args - 1);
  }
  Dx x = fmt_eval(s, e->arg[1]);
  if (s->err) return x;
  const Field *f = fmt_field(s->f, name);
  const TableDecl *t = f ? NULL : lang_table(s->m, name);
  if (t) {
    DxRange r = dx_range(s->d, x, s->axis_max);
    int k = dx_table(s->d, t);
    if (k < 0) return fmt_fail(s, err_new(ERR_LIMIT, "format %s: more than %d tables", s->f->name, DX_MAX_TABLES));
    if (r.lo >= 0 && r.hi < t->n_values) return dx_lookup(s->d, k, x);
    return fmt_fail(s, err_new(ERR_SHAPE, "format %s: an index of table %s runs from %lld to %lld, expected 0 to %d; mask it with &", s->f->name, name, (long long)r.lo, (long long)r.hi, t->n_values - 1));
  }
  if (!f) return fmt_fail(s, err_new(ERR_NOT_FOUND, "format %s: no field or table '%s'", s->f->name, name));
  return field(s, f, x);
}

/* ---- reductions ---------------------------------------------------------------------------------------------------- */
typedef struct Terms { FmtEval *s; const Expr *e; Dx *v; int n, cap; } Terms;
static void terms(Terms *t, int binder) {
  FmtEval *s = t->s;
  int64_t n;
  if (binder == t->e->n_binders) {
    Dx v = fmt_eval(s, t->e->arg[0]);
    PUSH(s->d->arena, t->v, t->n, t->cap, v);
    return;
  }
  Dx extent = fmt_eval(s, t->e->binder[binder].extent);
  if (s->err) return;
  if (!dx_is_int(s->d, extent, &n) || n > FMT_MAX_TERMS) {
    fmt_fail(s, err_new(ERR_SHAPE, "format %s: the range of %s must be a number, at most %d", s->f->name, t->e->binder[binder].name, FMT_MAX_TERMS));
    return;
  }
  for (int64_t i = 0; i < n && !s->err; i++) {
    int mark = s->n;
    if (s->n == FMT_MAX_NAMES) fmt_fail(s, err_new(ERR_LIMIT, "format %s: too many names inside one another", s->f->name));
    else fmt_name(s, t->e->binder[binder].name, dx_int(s->d, i));
    terms(t, binder + 1);
    s->n = mark;
  }
}

static Dx add_to(FmtEval *s, Dx acc, Dx v, bool split) {
  const DxNode n = s->d->node[v];
  if (split && n.kind == DX_OP && n.op == DXO_ADD) return add_to(s, add_to(s, acc, n.arg[0], split), n.arg[1], split);
  if (n.kind == DX_OP && n.op == DXO_MUL) return dx_op3(s->d, DXO_FMA, n.arg[0], n.arg[1], acc);
  return dx_op2(s->d, DXO_ADD, acc, v);
}

/* As the manual has it: 16 stripes, then a tree. */
static Dx striped(FmtEval *s, const Terms *t, ExprOp op) {
  Dx acc[16];
  DxOp step = op == RED_MAX ? DXO_MAX : DXO_MIN;
  float limit = f32_from_bits(op == RED_MAX ? 0xff800000u : 0x7f800000u);
  for (int l = 0; l < 16; l++) acc[l] = op == RED_SUM ? dx_flt(s->d, 0) : dx_flt(s->d, limit);
  for (int i = 0; i < t->n; i++) {
    Dx v = dx_to_f32(s->d, t->v[i]), *a = &acc[i % 16];
    *a = op == RED_SUM ? add_to(s, *a, v, false) : i < 16 ? v : dx_op2(s->d, step, *a, v);
  }
  for (int w = 8; w; w /= 2)
    for (int l = 0; l < w; l++) acc[l] = op == RED_SUM ? dx_op2(s->d, DXO_ADD, acc[l], acc[l + w]) : dx_op2(s->d, step, acc[l], acc[l + w]);
  return acc[0];
}

static Dx in_order(FmtEval *s, const Terms *t, ExprOp op) {
  bool chain = op == RED_CHAIN;
  Dx acc = chain ? dx_flt(s->d, 0) : dx_int(s->d, op == RED_MAX ? INT32_MIN : op == RED_MIN ? INT32_MAX : 0);
  for (int i = 0; i < t->n; i++) {
    if (chain) acc = add_to(s, acc, dx_to_f32(s->d, t->v[i]), true);
    else acc = op == RED_ISUM ? dx_op2(s->d, DXO_ADD, acc, t->v[i]) : i == 0 ? t->v[i] : dx_op2(s->d, op == RED_MAX ? DXO_MAX : DXO_MIN, acc, t->v[i]);
  }
  return acc;
}

static Dx first_least(FmtEval *s, const Terms *t) {
  Dx best = dx_flt(s->d, f32_from_bits(0x7f800000u)), at = dx_int(s->d, 0);
  for (int i = 0; i < t->n; i++) {
    Dx v = dx_to_f32(s->d, t->v[i]), less = dx_op2(s->d, DXO_LT, v, best);
    at = dx_op3(s->d, DXO_COND, less, dx_int(s->d, i), at);
    best = dx_op3(s->d, DXO_COND, less, v, best);
  }
  return at;
}

/* A long search stays a loop. */
static Dx search_loop(FmtEval *s, const Expr *e, int64_t n) {
  int axis = DX_BINDER + s->loops, mark = s->n;
  if (axis == DX_MAX_AXES || s->n == FMT_MAX_NAMES) return fmt_fail(s, err_new(ERR_LIMIT, "format %s: searches nest too deep", s->f->name));
  int outer = s->loop_id;
  s->loops++;
  s->loop_id = ++s->n_loops;
  s->axis_max[axis] = n - 1;
  fmt_name(s, e->binder[0].name, dx_axis(s->d, axis));
  Dx body = dx_to_f32(s->d, fmt_eval(s, e->arg[0]));
  s->n = mark;
  s->loops--;
  s->loop_id = outer;
  return dx_node(s->d, (DxNode){.kind = DX_RED, .op = RED_ARGMIN, .type = DT_INT, .n_args = 2, .arg = {dx_int(s->d, n), body}, .ival = axis});
}

static Dx eval_reduce(FmtEval *s, const Expr *e) {
  Terms t = {.s = s, .e = e};
  int64_t n;
  if (e->op == RED_ARGMIN && s->encode) {
    Dx extent = fmt_eval(s, e->binder[0].extent);
    if (!s->err && dx_is_int(s->d, extent, &n) && n > FMT_MAX_SEARCH) return fmt_fail(s, err_new(ERR_LIMIT, "format %s: a search over %lld values, expected at most %d", s->f->name, (long long)n, FMT_MAX_SEARCH));
    if (!s->err && dx_is_int(s->d, extent, &n) && n > FMT_UNROLL) return search_loop(s, e, n);
  }
  terms(&t, 0);
  if (s->err) return dx_int(s->d, 0);
  bool flt = e->op == RED_SUM;
  for (int i = 0; i < t.n; i++) flt = flt || s->d->node[t.v[i]].type == DT_F32;
  if (e->op == RED_ARGMIN) return first_least(s, &t);
  return flt && e->op != RED_CHAIN ? striped(s, &t, e->op) : in_order(s, &t, e->op);
}

static Dx eval_kind(FmtEval *s, const Expr *e) {
  switch (e->kind) {
    case EX_INT: return dx_int(s->d, e->ival);
    case EX_FLOAT: return dx_flt(s->d, (float)e->fval);
    case EX_NAME: return eval_name(s, e);
    case EX_CALL: return eval_call(s, e);
    case EX_INDEX: return eval_index(s, e);
    case EX_REDUCE: return eval_reduce(s, e);
    case EX_UNARY: {
      Dx a = fmt_eval(s, e->arg[0]);
      if (e->op == OP_NOT) return dx_op1(s->d, DXO_LNOT, dx_truth(s->d, a));
      return e->op == OP_INV ? dx_op2(s->d, DXO_XOR, a, dx_int(s->d, -1)) : dx_op1(s->d, DXO_NEG, a);
    }
    case EX_BINARY: {
      Dx a = fmt_eval(s, e->arg[0]), b = fmt_eval(s, e->arg[1]);
      if (e->op == OP_AND || e->op == OP_OR) a = dx_truth(s->d, a), b = dx_truth(s->d, b);
      bool ints = s->d->node[a].type == DT_INT && s->d->node[b].type == DT_INT;
      if ((e->op == OP_DIV || e->op == OP_MOD) && ints && dx_range(s->d, b, s->axis_max).lo < 1)
        return fmt_fail(s, err_new(ERR_SHAPE, "format %s: an int is divided by what may be 0 or less; write max(.., 1)", s->f->name));
      if ((e->op == OP_DIV || e->op == OP_MOD) && ints) { /* what is not known at all may be right */
        int64_t lo = dx_range(s->d, a, s->axis_max).lo;
        if (lo < 0 && lo > INT32_MIN) return fmt_fail(s, err_new(ERR_SHAPE, "format %s: an int that may be %lld is divided, expected none below 0; add to it first, or use >>", s->f->name, (long long)lo));
      }
      int64_t by;
      if ((e->op == OP_DIV || e->op == OP_MOD) && ints && s->parts && dx_is_int(s->d, b, &by)) return fmt_divide(s, e->op == OP_MOD, a, by);
      return dx_op2(s->d, dx_infix[e->op], a, b);
    }
    case EX_COND: { /* the branch not taken is not evaluated: it may index outside its field */
      Dx c = dx_truth(s->d, fmt_eval(s, e->arg[0]));
      int64_t v;
      if (dx_is_int(s->d, c, &v)) return fmt_eval(s, e->arg[v ? 1 : 2]);
      Dx a = fmt_eval(s, e->arg[1]);
      return dx_op3(s->d, DXO_COND, c, a, fmt_eval(s, e->arg[2]));
    }
    default: return fmt_fail(s, err_new(ERR_SYNTAX, "format %s: this kind of expression does not belong here", s->f->name));
  }
}

/* An element's value is walked as it stands; what encode says is long, and walked once a node. */
Dx fmt_eval(FmtEval *s, const Expr *e) {
  if (s->err) return dx_int(s->d, 0);
  Loc around = s->at;
  if (s->left-- <= 0) return fmt_fail(s, err_new(ERR_LIMIT, "format %s: more than %d expressions", s->f->name, MAX_STEPS));
  s->at = e->loc;
  Dx x = eval_kind(s, e);
  s->at = around;
  if (s->encode ? s->d->node[x].depth <= FMT_MAX_HEIGHT : !dx_too_large(s->d, x)) return x;
  return fmt_fail(s, err_new(ERR_LIMIT, "format %s: an expression is too large with all it uses: at most %d operations, %d inside one another (%d in encode)", s->f->name, DX_MAX_SIZE, DX_MAX_DEPTH, FMT_MAX_HEIGHT));
}
