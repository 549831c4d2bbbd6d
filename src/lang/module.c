/* From sources to a checked module: parses each, lets later declarations override earlier ones, checks the rest; and the look-ups. */
#include <string.h>
#include "lang/priv.h"

bool lang_expr_same(const Expr *a, const Expr *b) {
  if (a == b) return true;
  if (!a || !b || a->kind != b->kind || a->op != b->op || a->n_args != b->n_args || a->n_binders != b->n_binders) return false;
  if (a->ival != b->ival || memcmp(&a->fval, &b->fval, sizeof a->fval) != 0) return false;
  if ((a->name == NULL) != (b->name == NULL) || (a->name && strcmp(a->name, b->name))) return false;
  for (int i = 0; i < a->n_args; i++) if (!lang_expr_same(a->arg[i], b->arg[i])) return false;
  for (int i = 0; i < a->n_binders; i++)
    if (strcmp(a->binder[i].name, b->binder[i].name) || !lang_expr_same(a->binder[i].extent, b->binder[i].extent)) return false;
  return true;
}

static void told_twice(LangCtx *x, Loc at, const char *kind, const char *name, Loc first) {
  lang_diag(x, at, "%s %s is already declared in line %d", kind, name, first.line);
}

/* Adds a declaration to the module's list of its kind, in the place of one of the same name from an earlier source. */
#define MERGE(kind, T, list, n, cap)                                                          \
  static void merge_##kind(LangCtx *x, Module *m, T *d, int *cap) {                           \
    for (int i = 0; i < m->n; i++) {                                                          \
      if (strcmp(m->list[i]->name, d->name)) continue;                                        \
      if (m->list[i]->loc.file == d->loc.file) told_twice(x, d->loc, #kind, d->name, m->list[i]->loc); \
      else m->list[i] = d;                                                                    \
      return;                                                                                 \
    }                                                                                         \
    PUSH(m->arena, m->list, m->n, *cap, d);                                                   \
  }
MERGE(format, FormatDecl, format, n_formats, cap)
MERGE(layout, LayoutDecl, layout, n_layouts, cap)
MERGE(table, TableDecl, table, n_tables, cap)
MERGE(fn, FnDecl, fn, n_fns, cap)
MERGE(hypers, HypersDecl, hypers, n_hypers, cap)
MERGE(model, ModelDecl, model, n_models, cap)

static bool same_variant(const OpDecl *a, const OpDecl *b) {
  if (strcmp(a->name, b->name) || (a->precision == NULL) != (b->precision == NULL)) return false;
  return (!a->precision || !strcmp(a->precision, b->precision)) && lang_expr_same(a->when, b->when);
}

/* Ops of later sources come first: of each name, and so in the list. */
static void merge_ops(LangCtx *x, Module *m, const Unit *u) {
  OpDecl **op = ARENA_ARRAY(m->arena, OpDecl *, (size_t)u->n_ops + (size_t)m->n_ops);
  int n = 0;
  for (int i = 0; i < u->n_ops; i++) {
    int j = 0;
    while (j < n && !same_variant(op[j], u->op[i])) j++;
    if (j < n) told_twice(x, u->op[i]->loc, "op", u->op[i]->name, op[j]->loc);
    else op[n++] = u->op[i];
  }
  int n_new = n;
  for (int i = 0; i < m->n_ops; i++) {
    int j = 0;
    while (j < n_new && !same_variant(op[j], m->op[i])) j++;
    if (j == n_new) op[n++] = m->op[i];
  }
  m->op = op;
  m->n_ops = n;
}

/* The lines of what a model uses stand in the place of `use NAME`. */
static void expand_uses(LangCtx *x, const Module *m, ModelDecl *d) {
  HyperDecl *h = NULL;
  int n = 0, cap = 0, cap_writes = d->n_writes;
  const char **names = ARENA_ARRAY(x->arena, const char *, (size_t)m->n_hypers + 1);
  for (int i = 0; i < m->n_hypers; i++) names[i] = m->hypers[i]->name;
  for (int i = 0; i < d->n_hypers; i++) {
    const HypersDecl *u = NULL;
    for (int k = 0; k < m->n_hypers && !d->hyper[i].value; k++) if (!strcmp(names[k], d->hyper[i].name)) u = m->hypers[k];
    if (d->hyper[i].value) PUSH(x->arena, h, n, cap, d->hyper[i]);
    else if (!u) lang_diag_near(x, d->hyper[i].loc, d->hyper[i].name, names, m->n_hypers, "unknown hypers %s", d->hyper[i].name);
    for (int k = 0; u && k < u->n_hypers; k++) PUSH(x->arena, h, n, cap, u->hyper[k]);
    for (int k = 0; u && k < u->n_writes; k++) PUSH(x->arena, d->write, d->n_writes, cap_writes, u->write[k]);
  }
  d->hyper = h;
  d->n_hypers = n;
}

/* What a source declares, one declaration of the printed module at a time, so that a pattern may pick some by name. */
static void trace_decls(const Module *m) {
  if (!trace_on(TRACE_ast, NULL)) return;
#define EACH(list, count)                                                 \
  for (int i = 0; i < m->count; i++) {                                    \
    if (!trace_on(TRACE_ast, m->list[i]->name)) continue;                 \
    Module one = {.list = &m->list[i], .count = 1};                       \
    Str s = {0};                                                          \
    lang_print_module(&one, &s);                                          \
    trace_text(TRACE_ast, m->list[i]->loc.file, s.n ? s.p : "");          \
    str_free(&s);                                                         \
  }
  EACH(format, n_formats)
  EACH(layout, n_layouts)
  EACH(table, n_tables)
  EACH(fn, n_fns)
  EACH(op, n_ops)
  EACH(model, n_models)
#undef EACH
}

Err *lang_load(Arena *a, const Source *src, int n_src, Module **out) {
  LangCtx x = {.arena = a, .n_src = n_src};
  x.src = ARENA_ARRAY(a, Source, (size_t)n_src);
  Module *m = ARENA_NEW(a, Module);
  m->arena = a;
  m->src = x.src;
  m->n_src = n_src;
  int cap[6] = {0};
  for (int i = 0; i < n_src; i++) {
    x.src[i] = (Source){arena_dup(a, src[i].file), arena_dup(a, src[i].text)};
    Unit u = {0};
    lang_parse(&x, &x.src[i], &u);
    if (x.n_diags) continue;
    for (int j = 0; j < u.n_formats; j++) merge_format(&x, m, u.format[j], &cap[0]);
    for (int j = 0; j < u.n_layouts; j++) merge_layout(&x, m, u.layout[j], &cap[5]);
    for (int j = 0; j < u.n_tables; j++) merge_table(&x, m, u.table[j], &cap[1]);
    for (int j = 0; j < u.n_fns; j++) merge_fn(&x, m, u.fn[j], &cap[2]);
    for (int j = 0; j < u.n_hypers; j++) merge_hypers(&x, m, u.hypers[j], &cap[4]);
    for (int j = 0; j < u.n_models; j++) merge_model(&x, m, u.model[j], &cap[3]);
    merge_ops(&x, m, &u);
  }
  for (int i = 0; i < m->n_models && !x.n_diags; i++) expand_uses(&x, m, m->model[i]);
  if (!x.n_diags) lang_check(&x, m);
  Err *e = NULL;
  if (x.n_diags > LANG_MAX_DIAGS) str_addf(&x.text, "and %d more\n", x.n_diags - LANG_MAX_DIAGS);
  if (x.n_diags) e = err_new(ERR_SYNTAX, "%s", x.text.p);
  else *out = m, trace_decls(m);
  str_free(&x.text);
  return e;
}

const FormatDecl *lang_format(const Module *m, const char *name) {
  for (int i = 0; i < m->n_formats; i++) if (!strcmp(m->format[i]->name, name)) return m->format[i];
  return NULL;
}

const FormatDecl *lang_format_gguf(const Module *m, int64_t id) {
  for (int i = 0; i < m->n_formats && id >= 0; i++) if (m->format[i]->gguf_id == id) return m->format[i];
  return NULL;
}

const OpDecl *lang_op(const Module *m, const char *name, int nth) {
  for (int i = 0; i < m->n_ops; i++) if (!strcmp(m->op[i]->name, name) && nth-- == 0) return m->op[i];
  return NULL;
}

const FnDecl *lang_fn(const Module *m, const char *name) {
  for (int i = 0; i < m->n_fns; i++) if (!strcmp(m->fn[i]->name, name)) return m->fn[i];
  return NULL;
}

const TableDecl *lang_table(const Module *m, const char *name) {
  for (int i = 0; i < m->n_tables; i++) if (!strcmp(m->table[i]->name, name)) return m->table[i];
  return NULL;
}
