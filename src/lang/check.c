/* The checker: formats, tables, functions and ops of a merged module. Names resolve, shapes' ranks match, omitted ranges are filled in
   (Stmt.axis, Binder.extent), and nothing calls itself. Models are check_model.c's. */
#include <string.h>
#include "lang/priv.h"

enum { MAX_BLOCK = 1 << 16, MAX_BLOCK_BYTES = 1 << 20 };

static bool name_taken(Check *c, const char *name, Loc at) {
  if (!lang_reduction(name) && !lang_builtin(name, true)) return false;
  lang_diag(c->x, at, "%s is built in", name);
  return true;
}

/* ---- formats ---- */
static bool is_sane(const Field *d) { return d->count >= 1 && d->count <= MAX_BLOCK_BYTES && d->offset <= MAX_BLOCK_BYTES; }

static void check_field(Check *c, const FormatDecl *f, int i) {
  const Field *d = &f->field[i];
  int64_t size = lang_scalar(d->elt)->n_bytes;
  if (d->count < 1 || d->count > MAX_BLOCK_BYTES) {
    lang_diag(c->x, d->loc, "field %s has %lld elements: at least 1, at most %d", d->name, (long long)d->count, MAX_BLOCK_BYTES);
    return;
  }
  if (d->offset > MAX_BLOCK_BYTES) {
    lang_diag(c->x, d->loc, "field %s is at byte %lld: at most %d", d->name, (long long)d->offset, MAX_BLOCK_BYTES);
    return;
  }
  int64_t end = d->offset + size * d->count;
  if (f->n_bytes && end > f->n_bytes) lang_diag(c->x, d->loc, "field %s ends at byte %lld, after the block's %lld bytes", d->name, (long long)end, (long long)f->n_bytes);
  for (int j = 0; j < i; j++) {
    const Field *o = &f->field[j];
    if (!is_sane(o)) continue;
    int64_t o_end = o->offset + lang_scalar(o->elt)->n_bytes * o->count;
    if (d->offset < o_end && o->offset < end) {
      lang_diag(c->x, d->loc, "field %s (bytes %lld to %lld) overlaps field %s (bytes %lld to %lld)", d->name, (long long)d->offset, (long long)end - 1, o->name,
                (long long)o->offset, (long long)o_end - 1);
      return;
    }
  }
}

static void check_layout(Check *c, FormatDecl *f) {
  if (f->block < 0) lang_diag(c->x, f->loc, "format %s says no block: write block and the number of elements", f->name);
  else if (f->block < 1 || f->block > MAX_BLOCK) lang_diag(c->x, f->loc, "format %s: block %lld, expected 1 to %d", f->name, (long long)f->block, MAX_BLOCK);
  if (f->n_bytes > MAX_BLOCK_BYTES) lang_diag(c->x, f->loc, "format %s: bytes %lld, at most %d", f->name, (long long)f->n_bytes, MAX_BLOCK_BYTES);
  if (!f->n_fields) lang_diag(c->x, f->loc, "format %s has no fields", f->name);
  int64_t end = 0;
  for (int i = 0; i < f->n_fields; i++) {
    const Field *d = &f->field[i];
    check_field(c, f, i);
    Var v = {.name = d->name, .what = "a field", .loc = d->loc, .ty = lang_scalar(d->elt)->is_float ? TY_F32 : TY_INT, .n_dims = d->is_array};
    v.dim = ARENA_ARRAY(c->x->arena, Expr *, 1);
    v.dim[0] = lang_int(c, d->count, d->loc);
    lang_declare(c, v);
    if (is_sane(d)) end = MAX(end, d->offset + lang_scalar(d->elt)->n_bytes * d->count);
  }
  if (!f->n_bytes) f->n_bytes = end;
}

/* Types the function's expression, then declares it: a function sees those above it only, so none calls itself. */
static Ty check_format_fn(Check *c, FormatFn *fn) {
  int outer = c->n_vars;
  if (fn->arg) lang_declare(c, (Var){.name = fn->arg, .what = "an index", .loc = fn->loc, .ty = TY_INT});
  if (fn->arg2) lang_declare(c, (Var){.name = fn->arg2, .what = "an index", .loc = fn->loc, .ty = TY_INT});
  Ty t = lang_check_expr(c, fn->value);
  c->n_vars = outer;
  if (t == TY_BOOL) lang_diag(c->x, fn->loc, "%s must be a number, got a condition; write (.. ? 1 : 0)", fn->name);
  return t == TY_BOOL ? TY_ERR : t;
}

static int add_sizes(int a, int b) { return MIN(a + b, LANG_MAX_INLINE + 1); }

/* Nodes of e with every format function in it written out; saturates. */
static int inlined_nodes(const FormatFn *fn, const int *size, int n, const Expr *e) {
  int total = 1;
  for (int i = 0; i < n; i++) if ((e->kind == EX_CALL || e->kind == EX_NAME) && !strcmp(fn[i].name, e->name)) total = add_sizes(total, size[i]);
  for (int i = 0; i < e->n_args; i++) total = add_sizes(total, inlined_nodes(fn, size, n, e->arg[i]));
  for (int i = 0; i < e->n_binders; i++) if (e->binder[i].extent) total = add_sizes(total, inlined_nodes(fn, size, n, e->binder[i].extent));
  return total;
}

static void check_sizes(Check *c, const FormatFn *fn, int n) {
  int *size = ARENA_ARRAY(c->x->arena, int, (size_t)n);
  for (int i = 0; i < n; i++) {
    size[i] = inlined_nodes(fn, size, i, fn[i].value);
    if (size[i] <= LANG_MAX_INLINE) continue;
    lang_diag(c->x, fn[i].loc, "%s is too large with everything it uses: at most %d operations", fn[i].name, LANG_MAX_INLINE);
    size[i] = 0;
  }
}

static void check_encode(Check *c, FormatDecl *f) {
  c->n_vars = 0;
  c->block = f->block;
  lang_declare(c, (Var){.name = "x", .what = "a function", .loc = f->loc, .ty = TY_F32, .callable = true});
  for (int i = 0; i < f->n_encodes; i++) {
    FormatFn *fn = &f->encode[i];
    const Field *d = NULL;
    for (int j = 0; j < f->n_fields; j++) if (!strcmp(f->field[j].name, fn->name)) d = &f->field[j];
    Ty t = check_format_fn(c, fn);
    Ty want = !d ? t : lang_scalar(d->elt)->is_float ? TY_F32 : TY_INT;
    if (d && d->is_array && !fn->arg) lang_diag(c->x, fn->loc, "field %s has %lld elements: write %s(i) = ..", d->name, (long long)d->count, d->name);
    if (d && fn->arg2) lang_diag(c->x, fn->loc, "field %s takes one index at most", fn->name);
    if (d && !d->is_array && fn->arg) lang_diag(c->x, fn->loc, "field %s is one value: write %s = ..", d->name, d->name);
    if (d && !lang_ty_fits(t, want)) lang_diag(c->x, fn->value->loc, "field %s is %s, got %s; write i32(rint(..))", fn->name, d->elt, lang_ty_text(t));
    lang_declare(c, (Var){.name = fn->name, .what = d ? "a field" : "a function", .loc = fn->loc, .ty = want, .callable = fn->arg != NULL, .two = fn->arg2 != NULL});
  }
  for (int j = 0; j < f->n_fields; j++) {
    const Var *v = lang_var(c, f->field[j].name);
    if (!v) lang_diag(c->x, f->field[j].loc, "encode does not give field %s", f->field[j].name);
  }
  c->block = 0;
}

/* Checks and declares them in turn. -> x, the value; NULL: there is none. */
static const FormatFn *check_functions(Check *c, FormatFn *fns, int n) {
  const FormatFn *value = NULL;
  for (int i = 0; i < n; i++) {
    FormatFn *fn = &fns[i];
    Ty t = check_format_fn(c, fn);
    if (!strcmp(fn->name, "x")) value = fn;
    lang_declare(c, (Var){.name = fn->name, .what = "a function", .loc = fn->loc, .ty = t, .callable = fn->arg != NULL, .two = fn->arg2 != NULL});
  }
  return value;
}

static void check_format(Check *c, FormatDecl *f) {
  c->n_vars = 0;
  c->own = f->fn;
  c->n_own = f->n_fns;
  if (lang_is_variable_elt(f->name)) lang_diag(c->x, f->loc, "a format's name may not begin with a capital: that stands for any format");
  check_layout(c, f);
  const FormatFn *value = check_functions(c, f->fn, f->n_fns);
  if (!value || !value->arg || value->arg2) lang_diag(c->x, value ? value->loc : f->loc, "format %s has no x(i) = .., the value of element i", f->name);
  check_sizes(c, f->fn, f->n_fns);
  c->n_own = 0;
  if (f->n_encodes) check_encode(c, f);
  if (f->gguf_id > UINT32_MAX) lang_diag(c->x, f->loc, "gguf %lld: a format's number in GGUF files has 32 bits: at most %u", (long long)f->gguf_id, UINT32_MAX);
  for (int i = 0; c->m->format[i] != f; i++)
    if (f->gguf_id >= 0 && c->m->format[i]->gguf_id == f->gguf_id) lang_diag(c->x, f->loc, "gguf %lld is already format %s", (long long)f->gguf_id, c->m->format[i]->name);
}

/* ---- layouts ---- */
/* A star, and no more than one: it is replaced by what the names share. */
static void check_pattern(Check *c, const char *s, Loc at) {
  const char *star = strchr(s, '*');
  if (!star || strchr(star + 1, '*')) lang_diag(c->x, at, "\"%s\": expected one *, which stands for what the names of a weight's tensors share", s);
}

static void check_part(Check *c, const PartDecl *t) {
  Ty ty = TY_ERR;
  for (int i = 0; i < t->n_elts; i++) {
    const LangScalar *s = lang_scalar(t->elt[i]);
    const FormatDecl *f = s ? NULL : lang_format(c->m, t->elt[i]);
    if (!s && !f && !lang_is_variable_elt(t->elt[i])) lang_diag_near(c->x, t->loc, t->elt[i], lang_scalar_names, lang_n_scalars, "unknown element type %s", t->elt[i]);
    if (f && f->block != 1) lang_diag(c->x, t->loc, "format %s has blocks of %lld elements: a layout's tensors have elements one by one", f->name, (long long)f->block);
    Ty one = s && !s->is_float ? TY_INT : TY_F32;
    ty = ty == TY_ERR || ty == one ? one : TY_ANY;
  }
  if (ty == TY_ANY) ty = TY_F32;                             /* ints and floats: taken as floats */
  lang_declare(c, (Var){.name = t->name, .what = "a tensor", .loc = t->loc, .ty = ty, .dim = t->dim, .n_dims = t->n_dims, .part = true});
  for (int i = 0; i < t->n_files; i++) check_pattern(c, t->file[i], t->loc);
  if (t->n_dims > LAYOUT_MAX_DIMS) lang_diag(c->x, t->loc, "%s has %d dimensions, a tensor of a file at most %d", t->name, t->n_dims, LAYOUT_MAX_DIMS);
  const TableDecl *table = t->is ? lang_table(c->m, t->is) : NULL;
  if (t->is && !table) lang_diag(c->x, t->loc, "unknown table %s", t->is);
  if (table && (t->n_elts != 1 || strcmp(t->elt[0], table->elt))) lang_diag(c->x, t->loc, "%s: table %s is of %s", t->name, t->is, table->elt);
  if (t->groups && (t->n_dims != 1 || ty != TY_INT)) lang_diag(c->x, t->loc, "%s: groups are ints, one for each column", t->name);
}

/* Names that stand alone among the extents are dimensions. */
static void declare_extents(Check *c, const LayoutDecl *l) {
  const char *own[2] = {l->rows, l->cols};
  int n = 2;
  for (int i = 0; i < 2; i++) lang_declare(c, (Var){.name = own[i], .what = "a dimension", .loc = l->loc, .ty = TY_INT});
  for (int i = 0; i < l->n_parts; i++)
    for (int k = 0; k < l->part[i].n_dims; k++) {
      const Expr *e = l->part[i].dim[k];
      bool fn = false;
      for (int j = 0; j < l->n_fns && e->kind == EX_NAME; j++) fn = fn || !strcmp(l->fn[j].name, e->name);
      if (e->kind != EX_NAME || fn || lang_var(c, e->name)) continue;
      lang_declare(c, (Var){.name = e->name, .what = "a dimension", .loc = e->loc, .ty = TY_INT});
      if (++n == LAYOUT_MAX_NAMES + 1) lang_diag(c->x, e->loc, "layout %s: more than %d names of dimensions", l->name, LAYOUT_MAX_NAMES);
    }
}

static void check_says(Check *c, const SaysDecl *s) {
  for (int i = 0; i < s->n_keys; i++) {
    const char *star = strchr(s->key[i], '*');
    if (star && strchr(star + 1, '*')) lang_diag(c->x, s->loc, "\"%s\": more than one *", s->key[i]);
  }
  for (int i = 0; i < s->n_values; i++) lang_check_int(c, s->value[i], "what a key says");
}

static void check_rules(Check *c, const RulesDecl *r) {
  const char *star = strchr(r->key, '*');
  if (star && strchr(star + 1, '*')) lang_diag(c->x, r->loc, "\"%s\": more than one *", r->key);
  if (star && (star < r->key + 2 || star[-1] != '.' || (star[1] && star[1] != '.'))) lang_diag(c->x, r->loc, "\"%s\": * is a whole name here, not the first", r->key);
  for (int i = 0; i < r->n_forms; i++)
    if (r->form[i].spares && r->form[i].kind == RULE_class) lang_diag(c->x, r->loc, "not %s: of which %s a weight is, nobody here knows", lang_rules[RULE_class].name, lang_rules[RULE_class].name);
}

static void check_layout_text(Check *c, LayoutDecl *l) {
  c->n_vars = 0;
  c->own = l->fn;
  c->n_own = l->n_fns;
  c->in_layout = true;
  check_pattern(c, l->of, l->loc);
  declare_extents(c, l);
  for (int i = 0; i < l->n_parts; i++) check_part(c, &l->part[i]);
  for (int i = 0; i < l->n_extents; i++) check_pattern(c, l->extents[i], l->loc);
  for (int i = 0; i < l->n_aparts; i++) check_pattern(c, l->apart[i], l->loc);
  for (int i = 0; i < l->n_besides; i++) check_pattern(c, l->beside[i], l->loc);
  const FormatFn *value = check_functions(c, l->fn, l->n_fns);
  for (int i = 0; i < l->n_parts; i++) {
    for (int k = 0; k < l->part[i].n_dims; k++) lang_check_int(c, l->part[i].dim[k], "an extent");
    if (l->part[i].groups) lang_check_int(c, l->part[i].groups, "the number of groups");
  }
  if (l->when) lang_check_cond(c, l->when);
  for (int i = 0; i < l->n_says; i++) check_says(c, &l->says[i]);
  for (int i = 0; i < l->n_rules; i++) check_rules(c, &l->rule[i]);
  if (!l->n_parts) lang_diag(c->x, l->loc, "layout %s has no tensors", l->name);
  if (l->n_parts > LAYOUT_MAX_PARTS) lang_diag(c->x, l->loc, "layout %s has %d tensors, at most %d fit", l->name, l->n_parts, LAYOUT_MAX_PARTS);
  if (!value || !value->arg2) lang_diag(c->x, value ? value->loc : l->loc, "layout %s has no x(n, k) = .., the value in row n, column k", l->name);
  check_sizes(c, l->fn, l->n_fns);
  c->n_own = 0;
  c->in_layout = false;
}

static void not_held(Check *c, Loc at, const char *what, double v, const char *elt) {
  Str text = {0};
  str_add_float(&text, v, false);
  lang_diag(c->x, at, "%s is %s, which %s cannot hold", what, text.p, elt);
  str_free(&text);
}

static void check_table(Check *c, const TableDecl *t) {
  for (int i = 0; i < t->n_values; i++) {
    if (lang_scalar_holds(lang_scalar(t->elt), t->value[i])) continue;
    not_held(c, t->loc, arena_printf(c->x->arena, "element %d of table %s", i, t->name), t->value[i], t->elt);
    return;
  }
}

/* ---- functions ---- */
static void check_fn_type(Check *c, const TypeExpr *t, const char *what) {
  if (t->n_dims) lang_diag(c->x, t->loc, "a fn's %s is one number: f32 or i32, without dimensions", what);
  else if (strcmp(t->elt, "f32") && strcmp(t->elt, "i32")) lang_diag(c->x, t->loc, "a fn's %s is f32 or i32, got %s", what, t->elt);
}

static Ty fn_type(const TypeExpr *t) { return !strcmp(t->elt, "i32") ? TY_INT : TY_F32; }

static void check_fn(Check *c, FnDecl *f) {
  c->n_vars = 0;
  name_taken(c, f->name, f->loc);
  for (int i = 0; i < f->n_params; i++) {
    check_fn_type(c, &f->param[i].type, "parameter");
    lang_declare(c, (Var){.name = f->param[i].name, .what = "a parameter", .loc = f->param[i].loc, .ty = fn_type(&f->param[i].type)});
  }
  check_fn_type(c, &f->result, "result");
  for (int i = 0; i < f->n_lets; i++) {
    Stmt *s = &f->let[i];
    Ty t = lang_check_expr(c, s->rhs);
    lang_declare(c, (Var){.name = s->name, .what = "a statement", .loc = s->loc, .ty = t});
  }
  Ty t = lang_check_expr(c, f->value);
  if (!lang_ty_fits(t, fn_type(&f->result))) lang_diag(c->x, f->value->loc, "%s returns %s, got %s", f->name, f->result.elt, lang_ty_text(t));
}

typedef struct FnWalk { Check *c; int *size; } FnWalk; /* size: 0 not seen, -1 on the path, else nodes with all that is called */

static int fn_size(FnWalk *w, int k, int depth);

static int calls_size(FnWalk *w, const Expr *e, int depth) {
  int total = 1;
  Module *m = w->c->m;
  for (int k = 0; k < m->n_fns && e->kind == EX_CALL && !lang_builtin(e->name, false); k++) {
    if (strcmp(m->fn[k]->name, e->name)) continue;
    if (w->size[k] == -1) lang_diag(w->c->x, e->loc, "%s calls itself: a fn may not", e->name);
    else total = add_sizes(total, fn_size(w, k, depth + 1));
  }
  for (int i = 0; i < e->n_args; i++) total = add_sizes(total, calls_size(w, e->arg[i], depth));
  for (int i = 0; i < e->n_binders; i++) if (e->binder[i].extent) total = add_sizes(total, calls_size(w, e->binder[i].extent, depth));
  return total;
}

static int fn_size(FnWalk *w, int k, int depth) {
  const FnDecl *f = w->c->m->fn[k];
  if (w->size[k] > 0) return w->size[k];
  if (depth > LANG_MAX_DEPTH) {
    lang_diag(w->c->x, f->loc, "%s is called through more than %d functions", f->name, LANG_MAX_DEPTH);
    return w->size[k] = 1;
  }
  w->size[k] = -1;
  int total = calls_size(w, f->value, depth);
  for (int i = 0; i < f->n_lets; i++) total = add_sizes(total, calls_size(w, f->let[i].rhs, depth));
  if (total > LANG_MAX_INLINE) lang_diag(w->c->x, f->loc, "%s is too large with everything it calls: at most %d operations", f->name, LANG_MAX_INLINE);
  return w->size[k] = total > LANG_MAX_INLINE ? 1 : total;
}

/* ---- ops ---- */
static void declare_dims(Check *c, const TypeExpr *t) {
  for (int i = 0; i < t->n_dims; i++) {
    const Expr *d = t->dim[i];
    if (d->kind != EX_NAME || lang_var(c, d->name)) continue;
    lang_declare(c, (Var){.name = d->name, .what = "a dimension", .loc = d->loc, .ty = TY_INT});
  }
}

static void check_dims(Check *c, const TypeExpr *t) {
  for (int i = 0; i < t->n_dims; i++) {
    if (t->dim[i]->kind == EX_INT && !t->dim[i]->ival) lang_diag(c->x, t->dim[i]->loc, "a dimension is at least 1");
    lang_check_int(c, t->dim[i], "a dimension");
  }
}

static void declare_param(Check *c, const Param *p, bool is_result) {
  Var v = {.name = p->name, .what = is_result ? "a result" : "a parameter", .loc = p->loc, .dim = p->type.dim, .n_dims = p->type.n_dims, .pending = is_result};
  v.ty = lang_elt_type(c, &p->type, &v.any_format);
  check_dims(c, &p->type);
  lang_declare(c, v);
}

/* Names free in an index become axes, in order; explicit ranges move along. */
static void collect_axes(Check *c, const Stmt *s, const Expr *e, Binder **axis, int *n, int *cap) {
  bool is_explicit = false;
  Binder b = {.loc = e->loc, .name = e->name};
  for (int i = 0; i < s->n_axes && e->kind == EX_NAME; i++) {
    if (strcmp(s->axis[i].name, e->name)) continue;
    is_explicit = true;
    b = s->axis[i];
  }
  if (e->kind == EX_NAME && (is_explicit || (!lang_var(c, e->name) && !lang_table(c->m, e->name)))) {
    for (int i = 0; i < *n; i++) if (!strcmp((*axis)[i].name, e->name)) return;
    PUSH(c->x->arena, *axis, *n, *cap, b);
  }
  for (int i = e->kind == EX_INDEX && e->arg[0]->kind == EX_NAME; i < e->n_args; i++) collect_axes(c, s, e->arg[i], axis, n, cap);
}

static const Param *find_result(const OpDecl *o, const char *name) {
  for (int i = 0; i < o->n_results; i++) if (!strcmp(o->result[i].name, name)) return &o->result[i];
  return NULL;
}

/* Where the range of an axis may come from: the result's own dimensions, the indices, the value, the other ranges. */
static Expr **infer_sources(Check *c, const OpDecl *o, const Stmt *s, int *n_out) {
  Expr **in = ARENA_ARRAY(c->x->arena, Expr *, (size_t)s->n_index + (size_t)s->n_axes + 2);
  int n = 0;
  if (find_result(o, s->name) && s->n_index) {
    Expr *whole = ARENA_NEW(c->x->arena, Expr);
    *whole = (Expr){.kind = EX_INDEX, .loc = s->loc, .n_args = s->n_index + 1};
    whole->arg = ARENA_ARRAY(c->x->arena, Expr *, (size_t)whole->n_args);
    whole->arg[0] = ARENA_NEW(c->x->arena, Expr);
    *whole->arg[0] = (Expr){.kind = EX_NAME, .loc = s->loc, .name = s->name};
    for (int i = 0; i < s->n_index; i++) whole->arg[i + 1] = s->index[i];
    in[n++] = whole;
  } else {
    for (int i = 0; i < s->n_index; i++) in[n++] = s->index[i];
  }
  in[n++] = s->rhs;
  for (int i = 0; i < s->n_axes; i++) in[n++] = s->axis[i].extent;
  *n_out = n;
  return in;
}

static void check_axes(Check *c, const OpDecl *o, Stmt *s) {
  Binder *axis = NULL;
  int n = 0, cap = 0, n_in;
  for (int i = 0; i < s->n_index; i++) collect_axes(c, s, s->index[i], &axis, &n, &cap);
  for (int i = 0; i < s->n_axes; i++) {
    bool used = false;
    for (int j = 0; j < n; j++) used |= !strcmp(axis[j].name, s->axis[i].name);
    for (int j = 0; j < i; j++) if (!strcmp(s->axis[j].name, s->axis[i].name)) lang_diag(c->x, s->axis[i].loc, "the range of %s is given twice", s->axis[i].name);
    if (!used) lang_diag(c->x, s->axis[i].loc, "%s is not an index of %s[..]", s->axis[i].name, s->name);
  }
  Expr **in = infer_sources(c, o, s, &n_in);
  for (int i = 0; i < n; i++) {
    Binder *b = &axis[i];
    char *example = arena_printf(c->x->arena, "for %s < ..", b->name);
    if (!b->extent) {
      b->extent = lang_infer(c, b->name, b->loc, in, n_in, example);
    } else {
      int j = i + 1;
      while (j < n && !lang_uses_name(b->extent, axis[j].name)) j++;
      if (j < n) lang_diag(c->x, b->loc, "the range of %s uses %s, which comes after it in the indices", b->name, axis[j].name);
      else lang_check_int(c, b->extent, "a range");
    }
    if (!b->extent) b->extent = lang_int(c, 1, b->loc);
    lang_declare(c, (Var){.name = b->name, .what = "an index", .loc = b->loc, .ty = TY_INT});
  }
  s->axis = axis;
  s->n_axes = n;
  if (n > LANG_MAX_DIMS) lang_diag(c->x, s->loc, "%s has more than %d indices", s->name, LANG_MAX_DIMS);
}

/* A statement that is no result is a new tensor: its indices are its axes, one each. */
static void declare_local(Check *c, Stmt *s, Ty t) {
  Var v = {.name = s->name, .what = "a statement", .loc = s->loc, .ty = t, .n_dims = s->n_index, .axis = s->axis};
  v.dim = ARENA_ARRAY(c->x->arena, Expr *, (size_t)s->n_index);
  bool plain = s->n_axes == s->n_index;
  for (int i = 0; i < s->n_index; i++) {
    plain = plain && s->index[i]->kind == EX_NAME && !strcmp(s->index[i]->name, s->axis[i].name);
    v.dim[i] = plain ? s->axis[i].extent : lang_int(c, 1, s->loc);
  }
  if (!plain) {
    lang_diag(c->x, s->loc, "%s is no result of the op: each of its indices must be a name of its own, so that its dimensions are known", s->name);
    v.axis = NULL;
    v.ty = TY_ERR;
  }
  lang_declare(c, v);
}

static Var *result_var(Check *c, const char *name) {
  for (int i = 0; i < c->n_vars; i++) if (!strcmp(c->var[i].name, name)) return &c->var[i];
  return NULL;
}

static void check_stmt(Check *c, const OpDecl *o, Stmt *s) {
  const Param *r = find_result(o, s->name);
  const Var *old = r ? NULL : lang_var(c, s->name);
  if (r && r->type.n_dims != s->n_index) {
    lang_diag(c->x, s->loc, "%s has %d dimension%s, got %d ind%s", s->name, r->type.n_dims, r->type.n_dims == 1 ? "" : "s", s->n_index, s->n_index == 1 ? "ex" : "ices");
    result_var(c, s->name)->pending = false;
    return;
  }
  if (old) {
    lang_diag(c->x, s->loc, "%s is already %s (line %d)", s->name, old->what, old->loc.line);
    return;
  }
  int outer = c->n_vars;
  check_axes(c, o, s);
  for (int i = 0; i < s->n_index; i++) lang_check_int(c, s->index[i], "an index");
  Ty t = lang_check_expr(c, s->rhs);
  c->n_vars = outer;
  if (t == TY_BOOL) lang_diag(c->x, s->loc, "%s must be a number, got a condition; write (.. ? 1 : 0)", s->name);
  if (t == TY_BOOL) t = TY_ERR;
  if (r) result_var(c, s->name)->pending = false;
  if (!r) declare_local(c, s, t);
  else if (!lang_ty_fits(t, result_var(c, s->name)->ty)) lang_diag(c->x, s->rhs->loc, "%s is %s, got %s; write i32(..)", s->name, r->type.elt, lang_ty_text(t));
}

/* Defaults: plain numbers, of numbers and of tensors of floats, and nothing without one behind them. */
static void check_defaults(Check *c, const OpDecl *o) {
  for (int i = 0; i < o->n_params; i++) {
    const Param *p = &o->param[i];
    if (!p->deflt && i && o->param[i - 1].deflt) lang_diag(c->x, p->loc, "%s needs a default too: the parameter before it has one", p->name);
    if (!p->deflt) continue;
    const LangScalar *scalar = lang_scalar(p->type.elt);
    double v = p->deflt->kind == EX_INT ? (double)p->deflt->ival : p->deflt->fval;
    if (p->deflt->kind != EX_INT && p->deflt->kind != EX_FLOAT) lang_diag(c->x, p->loc, "the default of %s must be a plain number", p->name);
    else if (p->type.n_dims && strcmp(p->type.elt, "f32")) lang_diag(c->x, p->loc, "of tensors only those of f32 may have a default: %s is %s", p->name, p->type.elt);
    else if (scalar && !lang_scalar_holds(scalar, v)) not_held(c, p->deflt->loc, arena_printf(c->x->arena, "the default of %s", p->name), v, p->type.elt);
  }
}

static void check_op(Check *c, OpDecl *o) {
  c->n_vars = 0;
  check_defaults(c, o);
  name_taken(c, o->name, o->loc);
  for (int i = 0; i < o->n_params; i++) declare_dims(c, &o->param[i].type);
  for (int i = 0; i < o->n_results; i++) declare_dims(c, &o->result[i].type);
  for (int i = 0; i < o->n_params; i++) declare_param(c, &o->param[i], false);
  for (int i = 0; i < o->n_results; i++) declare_param(c, &o->result[i], true);
  for (int i = 0; i < o->n_results; i++)
    if (!o->result[i].type.n_dims) lang_diag(c->x, o->result[i].loc, "%s is a result, which has dimensions: write %s: %s[1]", o->result[i].name, o->result[i].name, o->result[i].type.elt);
  if (o->when) lang_check_cond(c, o->when);
  for (int i = 0; i < o->n_stmts; i++) check_stmt(c, o, &o->stmt[i]);
  for (int i = 0; i < o->n_results; i++) {
    const Var *v = lang_var(c, o->result[i].name);
    if (v && v->pending && strcmp(v->what, "a result") == 0) lang_diag(c->x, o->result[i].loc, "no statement gives the result %s", o->result[i].name);
  }
}

static void add_called(const Param *p, int n, Str *t) {
  for (int i = 0; i < n; i++) str_addf(t, "%s%s: %s%s%s", i ? ", " : "", p[i].name, p[i].type.elt, p[i].type.n_dims ? "[..]" : "", p[i].deflt ? " = .." : "");
}

/* How an op is called: (x: f32[..], most: i32 = ..) -> y: f32[..] */
static char *call_text(Check *c, const OpDecl *o) {
  Str t = {0};
  str_add_c(&t, '(');
  add_called(o->param, o->n_params, &t);
  str_add(&t, ") -> ");
  add_called(o->result, o->n_results, &t);
  char *text = arena_dup(c->x->arena, t.p);
  str_free(&t);
  return text;
}

/* Variants of one op are called alike. Told of the later source, whose variants come first, and once. */
static void check_variants(Check *c, const OpDecl *o) {
  const OpDecl *first = lang_op(c->m, o->name, 0), *v;
  if (first != o) return;
  for (int k = 1; (v = lang_op(c->m, o->name, k)); k++) {
    bool same = first->n_params == v->n_params && first->n_results == v->n_results;
    for (int i = 0; same && i < v->n_params; i++) same = first->param[i].type.n_dims == v->param[i].type.n_dims;
    for (int i = 0; same && i < v->n_results; i++) same = first->result[i].type.n_dims == v->result[i].type.n_dims;
    if (same) continue;
    const OpDecl *here = first->loc.file == v->loc.file ? v : first, *there = here == v ? first : v;
    lang_diag(c->x, here->loc, "this %s takes or gives other things than the one at %s:%d, %s: variants of an op are called alike; for another op take another name", o->name,
              there->loc.file, there->loc.line, call_text(c, there));
    return;
  }
}

void lang_check(LangCtx *x, Module *m) {
  Check c = {.x = x, .m = m};
  for (int i = 0; i < m->n_tables; i++) check_table(&c, m->table[i]);
  for (int i = 0; i < m->n_fns; i++) check_fn(&c, m->fn[i]);
  FnWalk w = {&c, ARENA_ARRAY(x->arena, int, (size_t)m->n_fns)};
  for (int i = 0; i < m->n_fns; i++) fn_size(&w, i, 0);
  for (int i = 0; i < m->n_formats; i++) check_format(&c, m->format[i]);
  for (int i = 0; i < m->n_layouts; i++) check_layout_text(&c, m->layout[i]);
  for (int i = 0; i < m->n_ops; i++) check_op(&c, m->op[i]);
  int n_told = x->n_diags;
  for (int i = 0; i < m->n_ops; i++) check_variants(&c, m->op[i]);
  for (int i = 0; i < m->n_models && x->n_diags == n_told; i++) lang_check_model(&c, m->model[i]);
}
