/* Models: hyperparameters, tensors, states and the graph. Names exist; every call of an op gets the number, ranks, element types and
   dimensions it asks for. Dimensions are compared by value: both sides are evaluated modulo a prime, with a fixed number for every name
   that a file gives, so H*D and D*H are equal, E/H*H and E too, and H*D and E are not. */
#include <string.h>
#include "lang/priv.h"

typedef struct GType { const char *elt; Expr **dim; int n_dims; bool is_number; Ty ty; } GType; /* is_number: a hyper or literal of type ty. dim[i] NULL: taken from what it is assigned to; elt NULL likewise, or told */
typedef enum GKind { G_PARAM, G_TENSOR, G_HYPER, G_VALUE, G_LAYER } GKind;
typedef struct GVar { const char *name; GKind kind; GType type; const LayerDecl *layer; Loc loc; } GVar;
typedef struct Graph {
  Check *c;
  const ModelDecl *m;
  GVar *var; int n_vars, cap;
} Graph;
typedef struct Bind { const char *name; Expr *dim; } Bind;
enum { MAX_BINDS = 64 };
#define PRIME UINT64_C(2147483647)

static const char *kind_text(GKind k) {
  static const char *const text[] = {"parameter of the graph", "tensor", "hyperparameter", "value", "layer"};
  return text[k];
}

/* ---- dimensions ---- */
static uint64_t eval_opaque(const Expr *e) {
  Str s = {0};
  lang_print_expr(e, &s);
  uint64_t v = 1009 + hash_bytes(s.p, s.n, 7) % (PRIME - 1009);
  str_free(&s);
  return v;
}

static bool has_call(const Expr *e) {
  if (e->kind == EX_CALL || e->kind == EX_STR || e->kind == EX_REDUCE || e->kind == EX_FLOAT) return true;
  for (int i = 0; i < e->n_args; i++) if (has_call(e->arg[i])) return true;
  return false;
}

static uint64_t power(uint64_t a, uint64_t n) {
  uint64_t r = 1;
  for (; n; n >>= 1, a = a * a % PRIME) if (n & 1) r = r * a % PRIME;
  return r;
}

/* Division is taken to be exact, as it is in files that load: E / H * H is E. */
static uint64_t eval_binary(ExprOp op, uint64_t a, uint64_t b) {
  switch (op) {
    case OP_ADD: return (a + b) % PRIME;
    case OP_SUB: return (a + PRIME - b) % PRIME;
    case OP_MUL: return a * b % PRIME;
    case OP_DIV: return a * power(b, PRIME - 2) % PRIME;
    default: return hash_bytes(&a, sizeof a, b * OP_COUNT + (uint64_t)op) % PRIME;
  }
}

static uint64_t eval_dim(const ModelDecl *m, const Expr *e, int depth) {
  if (depth > 2 * LANG_MAX_DEPTH) return 0;
  if (e->kind == EX_INT) return (uint64_t)e->ival % PRIME;
  if (e->kind == EX_NAME) {
    for (int i = 0; i < m->n_hypers; i++)
      if (!m->hyper[i].axis.name && !strcmp(m->hyper[i].name, e->name) && !has_call(m->hyper[i].value) && !lang_uses_name(m->hyper[i].value, "context"))
        return eval_dim(m, m->hyper[i].value, depth + 1);
  }
  if (e->kind == EX_BINARY) return eval_binary(e->op, eval_dim(m, e->arg[0], depth + 1), eval_dim(m, e->arg[1], depth + 1));
  if (e->kind == EX_UNARY && e->op == OP_NEG) return PRIME - eval_dim(m, e->arg[0], depth + 1);
  return eval_opaque(e);
}

static bool same_dim(const ModelDecl *m, const Expr *a, const Expr *b) { return eval_dim(m, a, 0) == eval_dim(m, b, 0); }

static const char *dim_text(Check *c, const Expr *e) {
  Str s = {0};
  lang_print_expr(e, &s);
  const char *text = arena_dup(c->x->arena, s.p);
  str_free(&s);
  return text;
}

/* ---- declarations of the model ---- */
static void check_hypers(Check *c, HyperDecl *hyper, int n) {
  for (int i = 0; i < n; i++) {
    HyperDecl *h = &hyper[i];
    int outer = c->n_vars;
    Var v = {.name = h->name, .what = "a hyperparameter", .loc = h->loc};
    if (h->axis.name) {
      lang_check_int(c, h->axis.extent, "a range");
      lang_declare(c, (Var){.name = h->axis.name, .what = "an index", .loc = h->axis.loc, .ty = TY_INT});
      v.dim = ARENA_ARRAY(c->x->arena, Expr *, 1);
      v.dim[0] = h->axis.extent;
      v.n_dims = 1;
    }
    v.ty = lang_check_expr(c, h->value);
    c->n_vars = outer;
    if (v.ty == TY_BOOL) lang_diag(c->x, h->loc, "%s must be a number, got a condition; write (.. ? 1 : 0)", h->name);
    if (v.ty == TY_BOOL) v.ty = TY_ERR;
    if (h->axis.name && v.ty != TY_ERR) v.ty = TY_F32;
    lang_declare(c, v);
  }
}

static void check_condition(Check *c, Expr *e) {
  Ty t = lang_check_expr(c, e);
  if (t != TY_BOOL && t != TY_ERR) lang_diag(c->x, e->loc, "when wants a condition, got a number; write (.. != 0)");
}

static void check_writes(Check *c, const ModelDecl *m) {
  for (int i = 0; i < m->n_writes; i++) {
    const WriteDecl *w = &m->write[i];
    int outer = c->n_vars;
    if (!w->key[0]) lang_diag(c->x, w->loc, "an empty name");
    if (w->when) check_condition(c, w->when);
    if (w->axis.name) {
      lang_check_int(c, w->axis.extent, "a range");
      lang_declare(c, (Var){.name = w->axis.name, .what = "an index", .loc = w->axis.loc, .ty = TY_INT});
    } else if (w->value->kind == EX_STR) continue;
    if (lang_check_expr(c, w->value) == TY_BOOL) lang_diag(c->x, w->loc, "\"%s\" must be a number or a text, got a condition; write (.. ? 1 : 0)", w->key);
    c->n_vars = outer;
  }
}

static void check_source(Check *c, const TensorDecl *t, const char *var) {
  for (int i = 0; i < t->n_sources; i++)
    for (const char *s = strchr(t->source[i].name, '{'); s; s = strchr(s + 1, '{')) {
      size_t n = strcspn(s + 1, "}");
      if (var && s[1 + n] && strlen(var) == n && !strncmp(var, s + 1, n)) continue;
      lang_diag(c->x, t->loc, var ? "\"%s\": only {%s}, the layer's number, may stand in a name" : "\"%s\": {..} is for the tensors of a layer%s", t->source[i].name, var ? var : "");
      return;
    }
}

static const TensorDecl *find_tensor(const TensorDecl *t, int n, const char *name) {
  for (int i = 0; i < n; i++) if (!strcmp(t[i].name, name)) return &t[i];
  return NULL;
}

static bool is_literal(const Expr *e) {
  if (e->kind == EX_UNARY && e->op == OP_NEG) e = e->arg[0];
  return e->kind == EX_INT || e->kind == EX_FLOAT;
}

static void check_otherwise(Check *c, const ModelDecl *m, const LayerDecl *l, const TensorDecl *t) {
  const Expr *e = t->otherwise;
  if (is_literal(e)) {
    const Expr *n = e->kind == EX_UNARY ? e->arg[0] : e;
    if (n->kind == EX_FLOAT) lang_check_f32(c, e->loc, n->fval);
    return;
  }
  if (e->kind != EX_NAME) {
    lang_diag(c->x, e->loc, "after else stands another tensor's name or a number");
    return;
  }
  const TensorDecl *o = l ? find_tensor(l->tensor, (int)(t - l->tensor), e->name) : NULL;
  if (!o) o = find_tensor(m->tensor, l ? m->n_tensors : (int)(t - m->tensor), e->name);
  if (!o && !strcmp(e->name, "none")) return;
  if (!o) {
    const char **names = NULL;
    int n = 0, cap = 0;
    for (int i = 0; l && l->tensor + i < t; i++) PUSH(c->x->arena, names, n, cap, l->tensor[i].name);
    for (int i = 0; l ? i < m->n_tensors : m->tensor + i < t; i++) PUSH(c->x->arena, names, n, cap, m->tensor[i].name);
    lang_diag_near(c->x, e->loc, e->name, names, n, "no tensor %s is declared above", e->name);
  } else if (o->type.n_dims != t->type.n_dims) {
    lang_diag(c->x, e->loc, "%s has %d dimensions, %s has %d", o->name, o->type.n_dims, t->name, t->type.n_dims);
  }
}

static void check_type(Check *c, const TypeExpr *t) {
  bool any;
  lang_elt_type(c, t, &any);
  for (int i = 0; i < t->n_dims; i++) lang_check_int(c, t->dim[i], "a dimension");
}

/* rows and each: where a row comes from, what an element becomes. */
static void check_maps(Check *c, const TensorDecl *t, const TensorSource *s) {
  int outer = c->n_vars;
  if (s->row) {
    lang_declare(c, (Var){.name = s->row_name, .what = "a row", .loc = t->loc, .ty = TY_INT});
    lang_check_int(c, s->row, "a row");
    c->n_vars = outer;
  }
  if (s->when) check_condition(c, s->when);
  if (!s->each) return;
  if (strcmp(t->type.elt, "f32")) lang_diag(c->x, s->each->loc, "each is for tensors of f32: %s stays as the file has it", t->name);
  lang_declare(c, (Var){.name = s->each_name, .what = "an element", .loc = t->loc, .ty = TY_F32});
  if (lang_check_expr(c, s->each) == TY_BOOL) lang_diag(c->x, s->each->loc, "an element must be a number, got a condition; write (.. ? 1 : 0)");
  c->n_vars = outer;
}

static void check_tensor(Check *c, const ModelDecl *m, const LayerDecl *l, const TensorDecl *t) {
  check_type(c, &t->type);
  check_source(c, t, l ? l->var : NULL);
  for (int i = 0; i < t->n_sources; i++) check_maps(c, t, &t->source[i]);
  if (t->otherwise) check_otherwise(c, m, l, t);
}

static void told_twice(Check *c, Loc at, const char *name, int line) { lang_diag(c->x, at, "%s is already declared in line %d", name, line); }

static void check_layer(Check *c, const ModelDecl *m, LayerDecl *l) {
  int outer = c->n_vars;
  lang_check_int(c, l->count, "the number of layers");
  lang_declare(c, (Var){.name = l->var, .what = "a layer's number", .loc = l->loc, .ty = TY_INT});
  for (int i = 0; i < l->n_hypers; i++) if (l->hyper[i].axis.name) lang_diag(c->x, l->hyper[i].loc, "a layer's hyperparameter is one number");
  check_hypers(c, l->hyper, l->n_hypers);
  for (int i = 0; i < l->n_tensors; i++) {
    const TensorDecl *o = find_tensor(l->tensor, i, l->tensor[i].name);
    if (o) told_twice(c, l->tensor[i].loc, o->name, o->loc.line);
    check_tensor(c, m, l, &l->tensor[i]);
  }
  for (int i = 0; i < l->n_states; i++) {
    const StateDecl *s = &l->state[i];
    const TensorDecl *o = find_tensor(l->tensor, l->n_tensors, s->name);
    if (o) told_twice(c, s->loc, o->name, o->loc.line);
    for (int j = 0; j < i; j++) if (!strcmp(l->state[j].name, s->name)) told_twice(c, s->loc, s->name, l->state[j].loc.line);
    check_type(c, &s->type);
  }
  c->n_vars = outer;
}

/* ---- the graph ---- */
static GVar *gvar(Graph *g, const char *name) {
  for (int i = g->n_vars - 1; i >= 0; i--) if (!strcmp(g->var[i].name, name)) return &g->var[i];
  return NULL;
}

static void gdeclare(Graph *g, GVar v) {
  const GVar *old = gvar(g, v.name);
  if (old) lang_diag(g->c->x, v.loc, "%s is already a %s (line %d)", v.name, kind_text(old->kind), old->loc.line);
  PUSH(g->c->x->arena, g->var, g->n_vars, g->cap, v);
}

static GType gtype(const TypeExpr *t) {
  const LangScalar *s = lang_scalar(t->elt);
  return (GType){.elt = t->elt, .dim = t->dim, .n_dims = t->n_dims, .ty = s && !s->is_float ? TY_INT : TY_F32};
}

static void unknown_value(Graph *g, Loc at, const char *name) {
  const char **names = NULL;
  int n = 0, cap = 0;
  for (int i = 0; i < g->n_vars; i++) PUSH(g->c->x->arena, names, n, cap, g->var[i].name);
  lang_diag_near(g->c->x, at, name, names, n, "unknown name %s", name);
}

/* b.name: *state says whether it is one. False and told when there is none. */
static bool find_field(Graph *g, const Expr *e, GType *out, bool *state) {
  const Expr *base = e->arg[0];
  const GVar *v = base->kind == EX_NAME ? gvar(g, base->name) : NULL;
  if (base->kind == EX_NAME && !v) {
    unknown_value(g, base->loc, base->name);
    return false;
  }
  if (!v || v->kind != G_LAYER) {
    lang_diag(g->c->x, e->loc, "only a layer has fields, as in b.%s of for b in ..", e->name);
    return false;
  }
  const char **names = NULL;
  int n = 0, cap = 0;
  const LayerDecl *l = v->layer;
  for (int i = 0; l && i < l->n_hypers; i++) {
    *state = false;
    *out = (GType){.is_number = true, .ty = TY_ANY};
    if (!strcmp(l->hyper[i].name, e->name)) return true;
    PUSH(g->c->x->arena, names, n, cap, l->hyper[i].name);
  }
  for (int i = 0; l && i < l->n_tensors; i++) {
    *state = false;
    *out = gtype(&l->tensor[i].type);
    if (!strcmp(l->tensor[i].name, e->name)) return true;
    PUSH(g->c->x->arena, names, n, cap, l->tensor[i].name);
  }
  for (int i = 0; l && i < l->n_states; i++) {
    *state = true;
    *out = gtype(&l->state[i].type);
    if (!strcmp(l->state[i].name, e->name)) return true;
    PUSH(g->c->x->arena, names, n, cap, l->state[i].name);
  }
  if (l) lang_diag_near(g->c->x, e->loc, e->name, names, n, "layer %s has no number, tensor or state %s", l->name, e->name);
  return false;
}

static bool check_value(Graph *g, const Expr *e, GType *out);

static const char *elt_text(const GType *t) {
  if (t->is_number) return t->ty == TY_INT ? "an int" : "a number";
  return t->elt ? t->elt : "?";
}

static bool elt_fits(Graph *g, const TypeExpr *want, const GType *got) {
  if (got->is_number) return !want->n_dims && lang_scalar(want->elt) && lang_ty_fits(got->ty, lang_scalar(want->elt)->is_float ? TY_F32 : TY_INT);
  if (!got->elt) return true;
  const LangScalar *s = lang_scalar(got->elt);
  if (lang_is_variable_elt(want->elt)) return !s || s->is_float;
  return !strcmp(want->elt, got->elt) || (!lang_scalar(want->elt) && lang_is_variable_elt(got->elt) && lang_format(g->c->m, want->elt));
}

static Expr *find_bind(const Bind *b, int n, const char *name) {
  for (int i = 0; i < n; i++) if (!strcmp(b[i].name, name)) return b[i].dim;
  return NULL;
}

/* The dimension with the names of the op replaced by what they are bound to; NULL while one is not. */
static Expr *bind_dim(Graph *g, const Expr *e, const Bind *b, int n) {
  if (e->kind == EX_NAME) return find_bind(b, n, e->name);
  Expr *r = ARENA_NEW(g->c->x->arena, Expr);
  *r = *e;
  r->arg = ARENA_ARRAY(g->c->x->arena, Expr *, (size_t)e->n_args);
  for (int i = 0; i < e->n_args; i++) {
    r->arg[i] = bind_dim(g, e->arg[i], b, n);
    if (!r->arg[i]) return NULL;
  }
  return r;
}

/* Argument i against its parameter; binds the dimensions that stand alone. */
static bool fit_arg(Graph *g, const OpDecl *o, const Expr *call, int i, const GType *got, Bind *b, int *n) {
  const Param *p = &o->param[i];
  LangCtx *x = g->c->x;
  Loc at = call->arg[i]->loc;
  if (call->arg[i] == p->deflt) return true;
  if (got->n_dims != p->type.n_dims) {
    lang_diag(x, at, "argument %d of %s, %s, has %d dimension%s, got %d", i + 1, o->name, p->name, p->type.n_dims, p->type.n_dims == 1 ? "" : "s", got->n_dims);
    return false;
  }
  if (!elt_fits(g, &p->type, got)) {
    lang_diag(x, at, "argument %d of %s, %s, is %s%s, got %s", i + 1, o->name, p->name, p->type.elt, lang_is_variable_elt(p->type.elt) ? " (any format)" : "", elt_text(got));
    return false;
  }
  for (int j = 0; j < got->n_dims; j++) {
    const Expr *d = p->type.dim[j];
    Expr *want = bind_dim(g, d, b, *n);
    if (!got->dim[j]) continue;
    if (!want && d->kind == EX_NAME && *n < MAX_BINDS) b[(*n)++] = (Bind){d->name, got->dim[j]};
    if (!want || same_dim(g->m, want, got->dim[j])) continue;
    lang_diag(x, at, "argument %d of %s, %s: dimension %d is %s, expected %s (%s)", i + 1, o->name, p->name, j + 1, dim_text(g->c, got->dim[j]), dim_text(g->c, want), dim_text(g->c, d));
    return false;
  }
  return true;
}

/* One variant against the arguments; results' types go to out[n_results]. */
static bool fit_variant(Graph *g, const OpDecl *o, const Expr *call, const GType *arg, GType *out) {
  Bind b[MAX_BINDS];
  int n = 0;
  bool fits = true;
  for (int i = 0; i < o->n_params; i++) fits &= fit_arg(g, o, call, i, &arg[i], b, &n);
  for (int i = 0; i < o->n_results; i++) {
    const TypeExpr *t = &o->result[i].type;
    out[i] = gtype(t);
    out[i].dim = ARENA_ARRAY(g->c->x->arena, Expr *, (size_t)t->n_dims);
    for (int j = 0; j < t->n_dims; j++) out[i].dim[j] = bind_dim(g, t->dim[j], b, n);
    if (!lang_is_variable_elt(t->elt)) continue;
    out[i].elt = NULL;
    for (int k = 0; k < o->n_params; k++) if (!strcmp(o->param[k].type.elt, t->elt)) out[i].elt = arg[k].elt;
  }
  return fits;
}

/* The call with the parameters' defaults in place of arguments left out at the end. */
static const Expr *with_defaults(LangCtx *x, const Expr *e, const OpDecl *o) {
  if (e->n_args >= o->n_params) return e;
  Expr *full = ARENA_NEW(x->arena, Expr);
  *full = *e;
  full->arg = ARENA_ARRAY(x->arena, Expr *, (size_t)o->n_params);
  if (e->n_args) memcpy(full->arg, e->arg, sizeof *e->arg * (size_t)e->n_args);
  while (full->n_args < o->n_params && o->param[full->n_args].deflt) full->arg[full->n_args] = o->param[full->n_args].deflt, full->n_args++;
  return full;
}

/* A call of an op: its variant's results. NULL and told when it does not fit. */
static const OpDecl *check_op_call(Graph *g, const Expr *e, GType **out) {
  LangCtx *x = g->c->x;
  const OpDecl *o = lang_op(g->c->m, e->name, 0);
  if (o) e = with_defaults(x, e, o);
  GType *arg = ARENA_ARRAY(x->arena, GType, (size_t)e->n_args);
  bool fine = true;
  for (int i = 0; i < e->n_args; i++) fine &= check_value(g, e->arg[i], &arg[i]);
  if (!o) {
    const char **names = NULL;
    int n = 0, cap = 0;
    for (int i = 0; i < g->c->m->n_ops; i++) PUSH(x->arena, names, n, cap, g->c->m->op[i]->name);
    if (lang_fn(g->c->m, e->name)) lang_diag(x, e->loc, "%s is a fn of numbers: a graph calls ops", e->name);
    else lang_diag_near(x, e->loc, e->name, names, n, "unknown op %s", e->name);
    return NULL;
  }
  if (e->n_args != o->n_params) lang_diag(x, e->loc, "%s takes %d argument%s, got %d", o->name, o->n_params, o->n_params == 1 ? "" : "s", e->n_args);
  if (!fine || e->n_args != o->n_params) return NULL;
  for (int nth = 0;; nth++) {
    const OpDecl *v = lang_op(g->c->m, e->name, nth);
    if (!v) break;
    *out = ARENA_ARRAY(x->arena, GType, (size_t)v->n_results);
    x->quiet++;
    bool fits = fit_variant(g, v, e, arg, *out);
    x->quiet--;
    if (fits) return v;
  }
  fit_variant(g, o, e, arg, *out);
  return NULL;
}

/* Every dimension and the element type of a result are known, or the target knows them. */
static bool is_known(Graph *g, const GType *t, Loc at) {
  bool known = t->elt || t->is_number;
  for (int i = 0; i < t->n_dims; i++) known = known && t->dim[i];
  if (!known) lang_diag(g->c->x, at, "the type of this result comes from what it is assigned to: assign it to a state of a layer");
  return known;
}

static bool check_call_value(Graph *g, const Expr *e, GType *out) {
  GType *r;
  const OpDecl *o = check_op_call(g, e, &r);
  if (!o) return false;
  if (o->n_results != 1) {
    lang_diag(g->c->x, e->loc, "%s gives %d results: assign them first, as in a, b = %s(..)", o->name, o->n_results, o->name);
    return false;
  }
  *out = r[0];
  return is_known(g, out, e->loc);
}

static bool check_as(Graph *g, const Expr *e, GType *out) {
  GType t;
  for (int i = 1; i < e->n_args; i++) lang_check_int(g->c, e->arg[i], "a dimension");
  if (!check_value(g, e->arg[0], &t)) return false;
  if (t.is_number) {
    lang_diag(g->c->x, e->loc, "a number has no dimensions to change");
    return false;
  }
  *out = t;
  out->dim = e->arg + 1;
  out->n_dims = e->n_args - 1;
  uint64_t before = 1, after = 1;
  for (int i = 0; i < t.n_dims; i++) {
    if (!t.dim[i]) return true;
    before = before * eval_dim(g->m, t.dim[i], 0) % PRIME;
  }
  for (int i = 0; i < out->n_dims; i++) after = after * eval_dim(g->m, out->dim[i], 0) % PRIME;
  if (before == after) return true;
  const char *from = "", *sep = "";
  for (int i = 0; i < t.n_dims; i++, sep = ", ") from = arena_printf(g->c->x->arena, "%s%s%s", from, sep, dim_text(g->c, t.dim[i]));
  lang_diag(g->c->x, e->loc, "as keeps the number of elements: what it is applied to is [%s]", from);
  return false;
}

static bool same_type(Graph *g, const GType *want, const GType *got, bool take_elt) {
  if (want->n_dims != got->n_dims) return false;
  if (got->elt ? strcmp(want->elt, got->elt) != 0 : !take_elt) return false;
  for (int i = 0; i < want->n_dims; i++) if (got->dim[i] && !same_dim(g->m, want->dim[i], got->dim[i])) return false;
  return true;
}

static const char *type_text(Graph *g, const GType *t) {
  if (t->is_number) return elt_text(t);
  const char *s = arena_printf(g->c->x->arena, "%s[", elt_text(t));
  for (int i = 0; i < t->n_dims; i++) s = arena_printf(g->c->x->arena, "%s%s%s", s, i ? ", " : "", t->dim[i] ? dim_text(g->c, t->dim[i]) : "?");
  return arena_printf(g->c->x->arena, "%s]", s);
}

/* has(tensor) in a condition: the tensor is one. */
static bool check_has(Graph *g, const Expr *e) {
  GType t;
  bool state = false, fine = true;
  const Expr *arg = e->kind == EX_CALL && !strcmp(e->name, "has") && e->n_args == 1 ? e->arg[0] : NULL;
  for (int i = 0; !arg && i < e->n_args; i++) fine &= check_has(g, e->arg[i]);
  if (!arg || (arg->kind != EX_NAME && arg->kind != EX_FIELD)) return fine;
  if (arg->kind == EX_FIELD && !find_field(g, arg, &t, &state)) return false;
  const GVar *v = arg->kind == EX_NAME ? gvar(g, arg->name) : NULL;
  if (arg->kind == EX_NAME && !v) unknown_value(g, arg->loc, arg->name);
  bool tensor = arg->kind == EX_FIELD ? !state && !t.is_number : v && v->kind == G_TENSOR;
  if (!tensor && (v || arg->kind == EX_FIELD)) lang_diag(g->c->x, arg->loc, "has(..) asks for a tensor of the file, %s is none", arg->name);
  return tensor;
}

/* c ? a : b, chosen when the model is loaded: both sides have one type. */
static bool check_choice(Graph *g, const Expr *e, GType *out) {
  GType b;
  int n_told = g->c->x->n_diags;
  if (!check_has(g, e->arg[0])) return false;
  g->c->in_graph = true;
  lang_check_cond(g->c, e->arg[0]);
  g->c->in_graph = false;
  bool fine = g->c->x->n_diags == n_told;
  fine &= check_value(g, e->arg[1], out);
  fine &= check_value(g, e->arg[2], &b);
  if (!fine) return false;
  bool same = out->is_number == b.is_number && (out->is_number || same_type(g, out, &b, !out->elt));
  if (!same) lang_diag(g->c->x, e->loc, "both sides of : must be of one type, got %s and %s", type_text(g, out), type_text(g, &b));
  return same;
}

static bool check_value(Graph *g, const Expr *e, GType *out) {
  bool state;
  const GVar *v;
  switch (e->kind) {
    case EX_NAME:
      v = gvar(g, e->name);
      if (!v) unknown_value(g, e->loc, e->name);
      if (v && v->kind == G_LAYER) lang_diag(g->c->x, e->loc, "%s is a layer: name one of its tensors or states, %s.name", e->name, e->name);
      if (!v || v->kind == G_LAYER) return false;
      *out = v->type;
      return out->is_number ? out->ty != TY_ERR : true;
    case EX_FIELD: return find_field(g, e, out, &state);
    case EX_CALL: return check_call_value(g, e, out);
    case EX_AS: return check_as(g, e, out);
    case EX_COND: return check_choice(g, e, out);
    case EX_INT: case EX_FLOAT: case EX_UNARY:
      if (is_literal(e)) {
        *out = (GType){.is_number = true, .ty = lang_check_expr(g->c, (Expr *)(uintptr_t)e)};
        return true;
      }
      /* fall through */
    default:
      lang_diag(g->c->x, e->loc, "a graph calls ops; numbers are worked out in a hyper line");
      return false;
  }
}

static void assign(Graph *g, const Expr *target, const GType *t) {
  LangCtx *x = g->c->x;
  bool state = false;
  GType want;
  if (target->kind == EX_FIELD) {
    if (!find_field(g, target, &want, &state)) return;
    if (!state) lang_diag(x, target->loc, "%s is a tensor of the file: only states can be assigned", target->name);
    else if (!same_type(g, &want, t, true)) lang_diag(x, target->loc, "state %s is %s, got %s", target->name, type_text(g, &want), type_text(g, t));
    return;
  }
  const GVar *v = gvar(g, target->name);
  if (v && v->kind != G_VALUE) {
    lang_diag(x, target->loc, "%s is a %s: it cannot be assigned", target->name, kind_text(v->kind));
    return;
  }
  if (t->is_number) {
    lang_diag(x, target->loc, "numbers are named in a hyper line");
    return;
  }
  if (!is_known(g, t, target->loc)) return;
  if (!v) gdeclare(g, (GVar){.name = target->name, .kind = G_VALUE, .type = *t, .loc = target->loc});
  else if (!same_type(g, &v->type, t, false)) lang_diag(x, target->loc, "%s is %s (line %d), got %s", target->name, type_text(g, &v->type), v->loc.line, type_text(g, t));
}

static void check_graph(Graph *g, const GraphStmt *s, int n);

static void check_loop(Graph *g, const GraphStmt *s) {
  const LayerDecl *l = NULL;
  const char **names = NULL;
  int n = 0, cap = 0, outer = g->n_vars;
  for (int i = 0; i < g->m->n_layers; i++) {
    if (!strcmp(g->m->layer[i].name, s->layer)) l = &g->m->layer[i];
    PUSH(g->c->x->arena, names, n, cap, g->m->layer[i].name);
  }
  if (!l) lang_diag_near(g->c->x, s->loc, s->layer, names, n, "unknown layer %s", s->layer);
  bool taken = gvar(g, s->var) != NULL;
  gdeclare(g, (GVar){.name = s->var, .kind = G_LAYER, .layer = l, .loc = s->loc});
  g->c->loop = l;
  g->c->loop_var = s->var;
  if (!taken) check_graph(g, s->body, s->n_body);
  g->c->loop = NULL;
  g->n_vars = outer;
}

/* A mistaken value must not make its targets unknown as well. */
static void assign_unknown(Graph *g, const GraphStmt *s) {
  for (int i = 0; i < s->n_targets; i++) {
    if (s->target[i]->kind != EX_NAME || gvar(g, s->target[i]->name)) continue;
    gdeclare(g, (GVar){.name = s->target[i]->name, .kind = G_VALUE, .type = {.is_number = true, .ty = TY_ERR}, .loc = s->loc});
  }
}

static void check_assignment(Graph *g, const GraphStmt *s) {
  GType one, *r = &one;
  int n = 1;
  bool fine;
  if (s->rhs->kind == EX_CALL) {
    const OpDecl *o = check_op_call(g, s->rhs, &r);
    fine = o != NULL;
    if (o) n = o->n_results;
  } else {
    fine = check_value(g, s->rhs, &one);
  }
  if (fine && n != s->n_targets) lang_diag(g->c->x, s->loc, "%d result%s for %d name%s", n, n == 1 ? "" : "s", s->n_targets, s->n_targets == 1 ? "" : "s");
  if (!fine || n != s->n_targets) {
    assign_unknown(g, s);
    return;
  }
  for (int i = 0; i < n; i++) {
    const GVar *v = s->target[i]->kind == EX_NAME ? gvar(g, s->target[i]->name) : NULL;
    if (v && v->type.is_number && v->type.ty == TY_ERR) continue;
    assign(g, s->target[i], &r[i]);
  }
}

static void check_graph(Graph *g, const GraphStmt *s, int n) {
  for (int i = 0; i < n; i++) {
    if (s[i].n_targets) check_assignment(g, &s[i]);
    else check_loop(g, &s[i]);
  }
}

static void declare_graph(Graph *g) {
  const ModelDecl *m = g->m;
  Check *c = g->c;
  for (int i = 0; i < m->n_hypers; i++) {
    const Var *v = lang_var(c, m->hyper[i].name);
    GType t = {.is_number = !v->n_dims, .ty = v->ty, .elt = "f32", .dim = v->dim, .n_dims = v->n_dims};
    PUSH(c->x->arena, g->var, g->n_vars, g->cap, (GVar){.name = v->name, .kind = G_HYPER, .type = t, .loc = v->loc});
  }
  for (int i = 0; i < m->n_tensors; i++) gdeclare(g, (GVar){.name = m->tensor[i].name, .kind = G_TENSOR, .type = gtype(&m->tensor[i].type), .loc = m->tensor[i].loc});
  for (int i = 0; i < m->n_params; i++) {
    const Param *p = &m->param[i];
    for (int j = 0; j < p->type.n_dims; j++) {
      const Expr *d = p->type.dim[j];
      if (d->kind == EX_NAME && !lang_var(c, d->name)) lang_declare(c, (Var){.name = d->name, .what = "a dimension", .loc = d->loc, .ty = TY_INT});
    }
    check_type(c, &p->type);
    gdeclare(g, (GVar){.name = p->name, .kind = G_PARAM, .type = gtype(&p->type), .loc = p->loc});
  }
}

/* The graph is looked at only when what it uses is right. */
void lang_check_model(Check *c, ModelDecl *m) {
  int n_told = c->x->n_diags;
  c->n_vars = 0;
  c->in_hyper = true;
  if (!m->n_gguf_archs && !m->n_hf_archs) lang_diag(c->x, m->loc, "model %s says no file: write file gguf \"..\" with the architecture's name", m->name);
  check_hypers(c, m->hyper, m->n_hypers);
  check_writes(c, m);
  for (int i = 0; i < m->n_moves; i++) if (!m->move[i].from[0] || !m->move[i].to[0]) lang_diag(c->x, m->move[i].loc, "an empty name");
  for (int i = 0; i < m->n_tensors; i++) check_tensor(c, m, NULL, &m->tensor[i]);
  for (int i = 0; i < m->n_layers; i++) {
    for (int j = 0; j < i; j++) if (!strcmp(m->layer[j].name, m->layer[i].name)) told_twice(c, m->layer[i].loc, m->layer[i].name, m->layer[j].loc.line);
    check_layer(c, m, &m->layer[i]);
  }
  if (c->x->n_diags == n_told) {
    Graph g = {.c = c, .m = m};
    GType t;
    declare_graph(&g);
    if (c->x->n_diags == n_told) check_graph(&g, m->graph, m->n_graph);
    if (c->x->n_diags == n_told && check_value(&g, m->result, &t)) is_known(&g, &t, m->result->loc);
  }
  c->n_vars = 0;
  c->in_hyper = false;
}
