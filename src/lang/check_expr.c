/* Expressions: names resolve, numbers of arguments and indices match, types fit; omitted ranges of reductions are filled in.
   In: a tree whose height the parser has bounded, and the names in scope. Out: its type; mistakes are told where they stand and give
   TY_ERR, which silences what follows from them. */
#include <string.h>
#include "lang/priv.h"

/* ---- names ---- */
const Var *lang_var(const Check *c, const char *name) {
  for (int i = c->n_vars - 1; i >= 0; i--) if (!strcmp(c->var[i].name, name)) return &c->var[i];
  return NULL;
}

Var *lang_declare(Check *c, Var v) {
  const Var *old = lang_var(c, v.name);
  if (old && old->loc.line) lang_diag(c->x, v.loc, "%s is already %s (line %d)", v.name, old->what, old->loc.line);
  else if (old) lang_diag(c->x, v.loc, "%s is already %s", v.name, old->what);
  PUSH(c->x->arena, c->var, c->n_vars, c->cap, v);
  return &c->var[c->n_vars - 1];
}

static bool is_below(const Check *c, const char *name) {
  for (int i = 0; i < c->n_own; i++) if (!strcmp(c->own[i].name, name)) return true;
  return false;
}

/* Suggests what can stand at this place: with call, what takes arguments in parentheses. */
void lang_unknown(Check *c, Loc at, const char *name, bool call) {
  if (is_below(c, name)) {
    lang_diag(c->x, at, "%s is not declared above: functions here see only those above them", name);
    return;
  }
  const char **names = NULL;
  int n = 0, cap = 0;
  Arena *a = c->x->arena;
  for (int i = 0; i < c->n_vars; i++) if (c->var[i].callable == call) PUSH(a, names, n, cap, c->var[i].name);
  for (int i = 0; i < c->m->n_fns && call; i++) PUSH(a, names, n, cap, c->m->fn[i]->name);
  for (int i = 0; i < lang_n_builtins && call; i++)
    if (c->in_hyper || c->in_layout || !lang_builtins[i].hyper_only) PUSH(a, names, n, cap, lang_builtins[i].name);
  for (int i = 0; i < c->m->n_tables && !call; i++) PUSH(a, names, n, cap, c->m->table[i]->name);
  for (int op = OP_NONE + 1; op < OP_COUNT && call; op++) {
    const char *text = lang_op_text((ExprOp)op);
    if (lang_reduction(text)) PUSH(a, names, n, cap, text);
  }
  lang_diag_near(c->x, at, name, names, n, call ? "unknown function %s" : "unknown name %s", name);
}

Expr *lang_int(Check *c, int64_t v, Loc at) {
  Expr *e = ARENA_NEW(c->x->arena, Expr);
  *e = (Expr){.kind = EX_INT, .loc = at, .ival = v};
  return e;
}

int lang_count_nodes(const Expr *e) {
  int n = 1;
  for (int i = 0; i < e->n_args; i++) n += lang_count_nodes(e->arg[i]);
  for (int i = 0; i < e->n_binders; i++) if (e->binder[i].extent) n += lang_count_nodes(e->binder[i].extent);
  return n;
}

bool lang_uses_name(const Expr *e, const char *name) {
  if (e->kind == EX_NAME && !strcmp(e->name, name)) return true;
  for (int i = 0; i < e->n_args; i++) if (lang_uses_name(e->arg[i], name)) return true;
  for (int i = 0; i < e->n_binders; i++) if (e->binder[i].extent && lang_uses_name(e->binder[i].extent, name)) return true;
  return false;
}

/* ---- types ---- */
const char *lang_ty_text(Ty t) {
  static const char *const text[] = {[TY_ERR] = "?", [TY_INT] = "an int", [TY_F32] = "a float", [TY_BOOL] = "a condition", [TY_ANY] = "a number"};
  return text[t];
}

bool lang_ty_fits(Ty got, Ty want) {
  return got == want || got == TY_ERR || want == TY_ERR || (got == TY_ANY && want != TY_BOOL) || (got == TY_INT && (want == TY_F32 || want == TY_ANY)) ||
         (want == TY_ANY && got == TY_F32);
}

static Ty join(Ty a, Ty b) {
  if (a == TY_ERR || b == TY_ERR) return TY_ERR;
  if (a == TY_F32 || b == TY_F32) return TY_F32;
  return a == TY_ANY || b == TY_ANY ? TY_ANY : a;
}

static bool is_number(Ty t) { return t != TY_BOOL; }

void lang_check_int(Check *c, Expr *e, const char *what) {
  Ty t = lang_check_expr(c, e);
  if (!lang_ty_fits(t, TY_INT)) lang_diag(c->x, e->loc, "%s must be an int, got %s", what, lang_ty_text(t));
}

void lang_check_cond(Check *c, Expr *e) {
  Ty t = lang_check_expr(c, e);
  if (t == TY_F32) lang_diag(c->x, e->loc, "a condition is wanted, got a float: compare it, as in a != 0.0");
}

Ty lang_elt_type(Check *c, const TypeExpr *t, bool *any_format) {
  const LangScalar *s = lang_scalar(t->elt);
  *any_format = false;
  if (s) return s->is_float ? TY_F32 : TY_INT;
  if (!lang_is_variable_elt(t->elt) && !lang_format(c->m, t->elt)) {
    const char **names = NULL;
    int n = 0, cap = 0;
    for (int i = 0; i < lang_n_scalars; i++) PUSH(c->x->arena, names, n, cap, lang_scalar_names[i]);
    for (int i = 0; i < c->m->n_formats; i++) PUSH(c->x->arena, names, n, cap, c->m->format[i]->name);
    lang_diag_near(c->x, t->loc, t->elt, names, n, "unknown element type %s", t->elt);
    return TY_ERR;
  }
  if (!t->n_dims) lang_diag(c->x, t->loc, "a format needs dimensions: %s[..]", t->elt);
  *any_format = true;
  return TY_F32;
}

/* ---- ranges ---- */
static Expr *copy_with(Check *c, const Expr *e, const Binder *from, Expr *const *to, int n) {
  for (int i = 0; i < n && e->kind == EX_NAME; i++) if (!strcmp(e->name, from[i].name)) return to[i];
  Expr *r = ARENA_NEW(c->x->arena, Expr);
  *r = *e;
  r->arg = ARENA_ARRAY(c->x->arena, Expr *, (size_t)e->n_args);
  for (int i = 0; i < e->n_args; i++) r->arg[i] = copy_with(c, e->arg[i], from, to, n);
  r->binder = ARENA_ARRAY(c->x->arena, Binder, (size_t)e->n_binders);
  for (int i = 0; i < e->n_binders; i++) {
    r->binder[i] = e->binder[i];
    if (e->binder[i].extent) r->binder[i].extent = copy_with(c, e->binder[i].extent, from, to, n);
  }
  return r;
}

/* Every name the expression uses is in scope or bound inside it. */
static bool is_closed(const Check *c, const Expr *e, const Expr *const *bound, int n_bound) {
  if (e->kind == EX_NAME && !lang_var(c, e->name) && !lang_table(c->m, e->name)) {
    for (int i = 0; i < n_bound; i++)
      for (int j = 0; j < bound[i]->n_binders; j++) if (!strcmp(bound[i]->binder[j].name, e->name)) return true;
    return false;
  }
  const Expr *inner[8];
  if (e->kind == EX_REDUCE && n_bound < 8) {
    memcpy(inner, bound, sizeof *bound * (size_t)n_bound);
    inner[n_bound++] = e;
    bound = inner;
  }
  for (int i = 0; i < e->n_args; i++) if (!is_closed(c, e->arg[i], bound, n_bound)) return false;
  for (int i = 0; i < e->n_binders; i++) if (e->binder[i].extent && !is_closed(c, e->binder[i].extent, bound, n_bound)) return false;
  return true;
}

typedef struct Infer { const char *name; Expr *found; const char *from; const Expr *clash, *clash_dim; const char *clash_from; bool too_large; } Infer;

/* A range that is one dimension and another that is another: most likely a mistake. Ranges that are computed are not compared. */
static void offer(Check *c, Infer *f, Expr *extent, const char *from, const Expr *at) {
  if (lang_uses_name(extent, f->name)) return;
  const Expr *none[1] = {NULL};
  if (!is_closed(c, extent, none, 0)) return;
  if (!f->found) {
    f->found = extent;
    f->from = from;
  } else if (extent->kind == EX_NAME && f->found->kind == EX_NAME && strcmp(extent->name, f->found->name) && !f->clash) {
    f->clash = at;
    f->clash_dim = extent;
    f->clash_from = from;
  }
}

static void infer_in(Check *c, Infer *f, const Expr *e) {
  const Expr *base = e->kind == EX_INDEX ? e->arg[0] : NULL;
  if (base && base->kind == EX_FIELD) base = base->arg[0];
  const Var *v = base && base->kind == EX_NAME ? lang_var(c, base->name) : e->kind == EX_CALL ? lang_var(c, e->name) : NULL;
  for (int i = 1; base && v && !v->callable && v->ty != TY_ERR && i < e->n_args; i++) {
    if (e->arg[i]->kind != EX_NAME || strcmp(e->arg[i]->name, f->name) || v->n_dims != e->n_args - 1) continue;
    Expr *extent = v->dim[i - 1];
    if (v->axis) extent = copy_with(c, extent, v->axis, e->arg + 1, v->n_dims);
    if (lang_count_nodes(extent) > LANG_MAX_EXTENT) f->too_large = true;
    else offer(c, f, extent, v->name, e->arg[i]);
  }
  if (v && v->callable && c->block && e->n_args == 1 && e->arg[0]->kind == EX_NAME && !strcmp(e->arg[0]->name, f->name))
    offer(c, f, lang_int(c, c->block, e->loc), v->name, e);
  const TableDecl *t = !v && base && base->kind == EX_NAME ? lang_table(c->m, base->name) : NULL;
  if (t && e->n_args == 2 && e->arg[1]->kind == EX_NAME && !strcmp(e->arg[1]->name, f->name))
    offer(c, f, lang_int(c, t->n_values, e->loc), t->name, e);
  for (int i = 0; i < e->n_args; i++) infer_in(c, f, e->arg[i]);
  for (int i = 0; i < e->n_binders; i++) if (e->binder[i].extent) infer_in(c, f, e->binder[i].extent);
}

Expr *lang_infer(Check *c, const char *name, Loc at, Expr *const *in, int n_in, const char *example) {
  Infer f = {.name = name};
  for (int i = 0; i < n_in; i++) infer_in(c, &f, in[i]);
  if (f.clash) {
    lang_diag(c->x, f.clash->loc, "%s runs over dimension %s of %s, but this one of %s is %s; if that is meant, write: %s", name, f.found->name, f.from, f.clash_from,
              f.clash_dim->name, example);
    return NULL;
  }
  if (!f.found) lang_diag(c->x, at, f.too_large ? "the range of %s comes out too long; write: %s" : "cannot infer the range of %s; write: %s", name, example);
  return f.found;
}

/* ---- kinds of expressions ---- */
static Ty check_name(Check *c, Expr *e) {
  const Var *v = lang_var(c, e->name);
  const TableDecl *t = v ? NULL : lang_table(c->m, e->name);
  if (!v && !t && c->in_hyper && !strcmp(e->name, "context")) return TY_INT;
  if (!v && !t) {
    lang_unknown(c, e->loc, e->name, false);
    return TY_ERR;
  }
  if (t) lang_diag(c->x, e->loc, "%s is a table: pick an element with [..]", e->name);
  else if (v->callable) lang_diag(c->x, e->loc, "%s takes an index: %s(..)", e->name, e->name);
  else if (v->n_dims) lang_diag(c->x, e->loc, "%s has %d dimension%s: pick an element with [..]", e->name, v->n_dims, v->n_dims > 1 ? "s" : "");
  else if (v->pending) lang_diag(c->x, e->loc, "%s is read before a statement gives it", e->name);
  else return v->ty;
  return TY_ERR;
}

static const struct { const char *name; Ty ty; bool indexed; } attrs[] = {
#define ATTR(name, kind, indexed, meaning) {#name, TY_##kind, indexed},
#include "lang/attrs.def"
#undef ATTR
};

/* w.scale: the parameter and the type of its attribute; NULL and told if there is none. indexed: brackets follow. */
static const Var *check_attr(Check *c, const Expr *e, bool indexed, Ty *ty) {
  const Expr *base = e->arg[0];
  const Var *v = base->kind == EX_NAME ? lang_var(c, base->name) : NULL;
  if (base->kind == EX_NAME && !v) {
    lang_unknown(c, base->loc, base->name, false);
    return NULL;
  }
  if (!v || !v->any_format) {
    lang_diag(c->x, e->loc, "only a parameter of any format has attributes, as in w.scale[n,k] of w: W[N,K]");
    return NULL;
  }
  const char *names[COUNT_OF(attrs)];
  for (size_t i = 0; i < COUNT_OF(attrs); i++) {
    names[i] = attrs[i].name;
    if (strcmp(attrs[i].name, e->name)) continue;
    *ty = attrs[i].ty;
    if (attrs[i].indexed == indexed) return v;
    lang_diag(c->x, e->loc, indexed ? "%s.%s is one value: it takes no index" : "%s.%s is of an element: write its index, [..]", v->name, e->name);
    return NULL;
  }
  lang_diag_near(c->x, e->loc, e->name, names, (int)COUNT_OF(attrs), "a format has no attribute %s", e->name);
  return NULL;
}

/* b.window in a graph's condition, b the layer's name there. */
static bool is_of_loop(const Check *c, const Expr *e) { return c->loop && e->arg[0]->kind == EX_NAME && !strcmp(e->arg[0]->name, c->loop_var); }

static Ty check_layer_number(Check *c, const Expr *e) {
  const char **names = NULL;
  int n = 0, cap = 0;
  for (int i = 0; i < c->loop->n_hypers; i++) {
    if (!strcmp(c->loop->hyper[i].name, e->name)) return TY_ANY;
    PUSH(c->x->arena, names, n, cap, c->loop->hyper[i].name);
  }
  lang_diag_near(c->x, e->loc, e->name, names, n, "layer %s has no number %s", c->loop->name, e->name);
  return TY_ERR;
}

static Ty check_index(Check *c, Expr *e) {
  Expr *base = e->arg[0];
  int n = e->n_args - 1, n_dims = -1;
  Ty ty = TY_ERR;
  const char *name = base->name;
  for (int i = 1; i <= n; i++) lang_check_int(c, e->arg[i], "an index");
  if (base->kind == EX_FIELD) {
    const Var *v = check_attr(c, base, true, &ty);
    if (v) n_dims = v->n_dims;
    if (v) name = v->name;
  } else if (base->kind != EX_NAME) {
    lang_diag(c->x, e->loc, "only a name can be indexed");
  } else {
    const Var *v = lang_var(c, name);
    const TableDecl *t = v ? NULL : lang_table(c->m, name);
    if (t) n_dims = 1;
    if (t) ty = lang_scalar(t->elt)->is_float ? TY_F32 : TY_INT;
    if (!v && !t) lang_unknown(c, base->loc, name, false);
    else if (v && v->callable) lang_diag(c->x, base->loc, "%s is a function: write %s(..)", name, name);
    else if (v && v->pending) lang_diag(c->x, base->loc, "%s is read before a statement gives it", name);
    else if (v) { n_dims = v->n_dims; ty = v->ty; }
  }
  if (n_dims < 0 || n_dims == n) return n_dims < 0 ? TY_ERR : ty;
  if (!n_dims) lang_diag(c->x, base->loc, "%s is a scalar: it takes no index", name);
  else lang_diag(c->x, base->loc, "%s has %d dimension%s, got %d ind%s", name, n_dims, n_dims > 1 ? "s" : "", n, n > 1 ? "ices" : "ex");
  return TY_ERR;
}

static void wrong_count(Check *c, const Expr *e, int least, int most) {
  if (least == most) lang_diag(c->x, e->loc, "%s takes %d argument%s, got %d", e->name, least, least == 1 ? "" : "s", e->n_args);
  else lang_diag(c->x, e->loc, "%s takes %d or %d arguments, got %d", e->name, least, most, e->n_args);
}

static bool is_names(const Expr *e) {
  return e->kind == EX_STR || (e->kind == EX_BINARY && e->op == OP_BOR && is_names(e->arg[0]) && is_names(e->arg[1]));
}

static bool is_part(const Check *c, const Expr *e) {
  const Var *v = c->in_layout && e->kind == EX_NAME ? lang_var(c, e->name) : NULL;
  return v && v->part;
}

static Ty check_builtin(Check *c, Expr *e, const LangBuiltin *b) {
  const char *opt = strchr(b->args, '?');
  int most = (int)strlen(b->args) - (opt != NULL), least = opt ? (int)(opt - b->args) : most;
  Ty joined = TY_INT;
  for (int i = 0, k = 0; i < e->n_args; i++, k++) {
    if (i < most && b->args[k] == '?') k++;
    char want = i < most ? b->args[k] : 'n';
    Expr *arg = e->arg[i];
    if (want == 's' || want == 't') {
      bool tensor = want == 't' && ((c->in_graph && (arg->kind == EX_NAME || arg->kind == EX_FIELD)) || is_part(c, arg));
      if (!tensor && !is_names(arg)) lang_diag(c->x, arg->loc, c->in_layout && want == 't' ? "argument %d of %s is a tensor of the layout" : "argument %d of %s is a name in quotes", i + 1, e->name);
      continue;
    }
    Ty t = lang_check_expr(c, arg);
    bool fits = want == 'n' ? is_number(t) : lang_ty_fits(t, want == 'i' ? TY_INT : TY_F32);
    if (!fits) lang_diag(c->x, arg->loc, "argument %d of %s is %s, got %s", i + 1, e->name, want == 'i' ? "an int" : want == 'f' ? "a float" : "a number", lang_ty_text(t));
    joined = join(joined, fits ? t : TY_ERR);
  }
  if (e->n_args < least || e->n_args > most) wrong_count(c, e, least, most);
  if (b->result == 'b') return TY_BOOL;
  if (b->result == 'k') return joined == TY_F32 ? TY_F32 : TY_ANY;
  return b->result == 'f' ? TY_F32 : b->result == 'i' ? TY_INT : joined;
}

/* A call of what is none: says what it is instead. */
static Ty no_function(Check *c, const Expr *e, const Var *v) {
  if (v) lang_diag(c->x, e->loc, v->n_dims ? "%s is a tensor: index it with [..]" : "%s is not a function", e->name);
  else if (lang_op(c->m, e->name, 0)) lang_diag(c->x, e->loc, "%s is an op: ops are called in a model's graph", e->name);
  else if (!c->in_hyper && lang_builtin(e->name, true)) lang_diag(c->x, e->loc, "%s is for a model's hyper lines", e->name);
  else if (c->in_hyper && lang_fn(c->m, e->name)) lang_diag(c->x, e->loc, "%s is a fn of kernels: hyper lines have only the built-in functions", e->name);
  else lang_unknown(c, e->loc, e->name, true);
  return TY_ERR;
}

static Ty check_fn_call(Check *c, Expr *e, const FnDecl *f) {
  if (e->n_args != f->n_params) wrong_count(c, e, f->n_params, f->n_params);
  for (int i = 0; i < e->n_args; i++) {
    Ty t = lang_check_expr(c, e->arg[i]);
    const LangScalar *s = i < f->n_params ? lang_scalar(f->param[i].type.elt) : NULL;
    if (s && !lang_ty_fits(t, s->is_float ? TY_F32 : TY_INT))
      lang_diag(c->x, e->arg[i]->loc, "argument %d of %s is %s, got %s", i + 1, e->name, s->is_float ? "a float" : "an int", lang_ty_text(t));
  }
  const LangScalar *s = lang_scalar(f->result.elt);
  return !s ? TY_ERR : s->is_float ? TY_F32 : TY_INT;
}

static Ty check_call(Check *c, Expr *e) {
  const Var *v = lang_var(c, e->name);
  if (v && v->callable) {
    for (int i = 0; i < e->n_args; i++) lang_check_int(c, e->arg[i], "an index");
    if (e->n_args != 1 + v->two) wrong_count(c, e, 1 + v->two, 1 + v->two);
    return v->ty;
  }
  const LangBuiltin *b = lang_builtin(e->name, c->in_hyper || c->in_layout);
  if (b) return check_builtin(c, e, b);
  const FnDecl *f = c->in_hyper ? NULL : lang_fn(c->m, e->name);
  return f ? check_fn_call(c, e, f) : no_function(c, e, v);
}

static Ty check_unary(Check *c, Expr *e) {
  Ty t = lang_check_expr(c, e->arg[0]);
  if (e->op == OP_NOT) {
    if (t == TY_F32) lang_diag(c->x, e->loc, "! wants a condition, got a float: compare it, as in a != 0.0");
    return TY_BOOL;
  }
  if (t == TY_BOOL || (e->op == OP_INV && !lang_ty_fits(t, TY_INT))) {
    lang_diag(c->x, e->loc, "%s wants %s, got %s", lang_op_text(e->op), e->op == OP_INV ? "an int" : "a number", lang_ty_text(t));
    return TY_ERR;
  }
  return e->op == OP_INV && t != TY_ERR ? TY_INT : t;
}

/* What an infix operator takes and gives. */
enum { FOR_NUMBERS, FOR_INTS, FOR_CONDS, FOR_COMPARE };
static int operands_of(ExprOp op) {
  switch (op) {
    case OP_OR: case OP_AND: return FOR_CONDS;
    case OP_EQ: case OP_NE: case OP_LE: case OP_GE: case OP_LT: case OP_GT: return FOR_COMPARE;
    case OP_ADD: case OP_SUB: case OP_MUL: case OP_DIV: return FOR_NUMBERS;
    default: return FOR_INTS;
  }
}

static Ty check_binary(Check *c, Expr *e) {
  Ty a = lang_check_expr(c, e->arg[0]), b = lang_check_expr(c, e->arg[1]);
  const char *text = lang_op_text(e->op);
  int kind = operands_of(e->op);
  if (a == TY_ERR || b == TY_ERR) return kind == FOR_NUMBERS ? TY_ERR : kind == FOR_INTS ? TY_INT : TY_BOOL;
  Ty bad = kind == FOR_CONDS ? (a == TY_F32 ? a : b) : kind == FOR_INTS ? (lang_ty_fits(a, TY_INT) ? b : a) : a == TY_BOOL ? a : b;
  if (kind == FOR_CONDS) {
    if (bad == TY_F32) lang_diag(c->x, e->loc, "%s wants conditions, got a float: compare it, as in a != 0.0", text);
    return TY_BOOL;
  }
  if (kind == FOR_COMPARE) {
    if (bad == TY_BOOL && a != b) lang_diag(c->x, e->loc, "%s compares numbers, got a condition", text);
    return TY_BOOL;
  }
  if (bad == TY_BOOL) {
    lang_diag(c->x, e->loc, "%s wants numbers, got a condition; write (.. ? 1 : 0)", text);
    return TY_ERR;
  }
  if (kind == FOR_INTS && !lang_ty_fits(bad, TY_INT)) {
    lang_diag(c->x, e->loc, "%s wants ints, got a float", text);
    return TY_INT;
  }
  const Expr *r = e->arg[1];
  bool by_int = r->kind == EX_INT, ints = lang_ty_fits(join(a, b), TY_INT);
  if (by_int && !r->ival && ints && (e->op == OP_DIV || e->op == OP_MOD)) lang_diag(c->x, r->loc, "division by zero");
  if (by_int && r->ival > 31 && !c->in_hyper && (e->op == OP_SHL || e->op == OP_SHR)) lang_diag(c->x, r->loc, "an int has 32 bits: shift by at most 31");
  return kind == FOR_INTS ? TY_INT : join(a, b);
}

static Ty check_cond(Check *c, Expr *e) {
  lang_check_cond(c, e->arg[0]);
  Ty a = lang_check_expr(c, e->arg[1]), b = lang_check_expr(c, e->arg[2]);
  if (a == TY_ERR || b == TY_ERR) return TY_ERR;
  if ((a == TY_BOOL) != (b == TY_BOOL)) {
    lang_diag(c->x, e->loc, "both sides of : must be of one kind, got %s and %s", lang_ty_text(a), lang_ty_text(b));
    return TY_ERR;
  }
  return join(a, b);
}

static Ty check_reduce(Check *c, Expr *e) {
  int outer = c->n_vars;
  const char *text = lang_op_text(e->op);
  for (int i = 0; i < e->n_binders; i++) {
    Binder *b = &e->binder[i];
    char *example = arena_printf(c->x->arena, "%s(%s < ..: ..)", text, b->name);
    if (b->extent) lang_check_int(c, b->extent, "a range");
    else if (!lang_var(c, b->name)) b->extent = lang_infer(c, b->name, b->loc, e->arg, e->n_args, example);
    lang_declare(c, (Var){.name = b->name, .what = "an index", .loc = b->loc, .ty = TY_INT});
  }
  Ty t = lang_check_expr(c, e->arg[0]);
  c->n_vars = outer;
  if (t == TY_BOOL) lang_diag(c->x, e->loc, "%s wants numbers, got conditions; write (.. ? 1 : 0)", text);
  if (e->op == RED_ISUM && !lang_ty_fits(t, TY_INT)) lang_diag(c->x, e->loc, "isum wants ints, got floats: use sum or chain");
  if ((e->op == RED_SUM || e->op == RED_CHAIN) && t == TY_INT) lang_diag(c->x, e->loc, "%s wants floats, got ints: use isum, or f32(..)", text);
  if (e->op == RED_ARGMIN && e->n_binders != 1) lang_diag(c->x, e->loc, "argmin runs over one index, got %d", e->n_binders);
  if (t == TY_ERR || t == TY_BOOL) return TY_ERR;
  return e->op == RED_ISUM || e->op == RED_ARGMIN ? TY_INT : e->op == RED_SUM || e->op == RED_CHAIN ? TY_F32 : t;
}

static Ty check_int_literal(Check *c, const Expr *e) {
  if (!c->in_hyper && e->ival > 0xffffffffLL) lang_diag(c->x, e->loc, "an int has 32 bits: at most 0xffffffff");
  return TY_INT;
}

void lang_check_f32(Check *c, Loc at, double v) {
  if (!lang_scalar_holds(lang_scalar("f32"), v)) lang_diag(c->x, at, "this number is too large for a float of 32 bits");
}

static Ty check_float_literal(Check *c, const Expr *e) {
  if (!c->in_hyper) lang_check_f32(c, e->loc, e->fval);
  return TY_F32;
}

Ty lang_check_expr(Check *c, Expr *e) {
  Ty ignored;
  switch (e->kind) {
    case EX_INT: return check_int_literal(c, e);
    case EX_FLOAT: return check_float_literal(c, e);
    case EX_NAME: return check_name(c, e);
    case EX_FIELD: return is_of_loop(c, e) ? check_layer_number(c, e) : check_attr(c, e, false, &ignored) ? ignored : TY_ERR;
    case EX_INDEX: return check_index(c, e);
    case EX_CALL: return check_call(c, e);
    case EX_UNARY: return check_unary(c, e);
    case EX_BINARY: return check_binary(c, e);
    case EX_COND: return check_cond(c, e);
    case EX_REDUCE: return check_reduce(c, e);
    case EX_STR: lang_diag(c->x, e->loc, "a string may not stand here"); return TY_ERR;
    case EX_AS: lang_diag(c->x, e->loc, "as is for a model's graph"); return TY_ERR;
  }
  return TY_ERR;
}
