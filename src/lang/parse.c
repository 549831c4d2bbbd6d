/* The parser: one source's text in, its declarations out; a Pratt parser for expressions, one function per declaration.
   After a mistake it says so once, runs on without speaking until the next statement or declaration (panic), and goes on there. Line ends
   are blanks: a statement starts with a name followed by [ = or , and no operator is a name, so none is needed between statements.
   Bounds: recursion and the height of every tree stay under LANG_MAX_DEPTH, so that whoever walks a tree may recurse. */
#include <string.h>
#include "lang/priv.h"

typedef struct Parser {
  LangCtx *x;
  const char *file;
  const Tok *tok;
  int at;
  int item;            /* where the current statement or declaration began */
  int depth;
  int n_items;         /* so far in this declaration */
  int n_told;          /* diagnostics before this declaration */
  bool panic;
} Parser;

/* Every Expr made here is the head of one of these. */
typedef struct Tall { Expr e; int height; } Tall;
static int height(const Expr *e) { return ((const Tall *)(const void *)e)->height; }

/* ---- tokens ---- */
static const Tok *peek(const Parser *p) { return &p->tok[p->at]; }
static Loc loc_of(const Parser *p, const Tok *t) { return (Loc){p->file, t->line, t->col}; }
static Loc here(const Parser *p) { return loc_of(p, peek(p)); }
static void next(Parser *p) { if (peek(p)->kind != TOK_EOF) p->at++; }

static bool is_sym(const Tok *t, const char *s) { return t->kind == TOK_SYM && t->sym == LANG_SYM(s[0], s[0] ? s[1] : 0); }
static bool is_word(const Tok *t, const char *w) { return t->kind == TOK_NAME && !strcmp(t->text, w); }
static bool at_sym(const Parser *p, const char *s) { return !p->panic && is_sym(peek(p), s); }
static bool at_word(const Parser *p, const char *w) { return !p->panic && is_word(peek(p), w); }

/* Just after the token before this one: where what is missing at the end of a text belongs. */
static Loc after_last(const Parser *p) {
  const Tok *t = peek(p) - (p->at > 0);
  Loc at = loc_of(p, t);
  for (int i = 0; i < t->n; i++) at.col += ((unsigned char)t->at[i] & 0xc0) != 0x80;
  return at;
}

static void fail(Parser *p, const char *expected) {
  if (p->panic) return;
  p->panic = true;
  const Tok *t = peek(p);
  int n = MIN(t->n, 60);
  while (n < t->n && n > 0 && ((unsigned char)t->at[n] & 0xc0) == 0x80) n--;
  if (t->kind == TOK_EOF) lang_diag(p->x, after_last(p), "expected %s, got the end of the text", expected);
  else lang_diag(p->x, here(p), "expected %s, got %.*s", expected, n, t->at);
}

static void fail_at(Parser *p, Loc at, const char *what) {
  if (p->panic) return;
  p->panic = true;
  lang_diag(p->x, at, "%s", what);
}

/* Something is missing from a declaration that is otherwise right. */
static void fail_missing(Parser *p, Loc at, const char *what) {
  if (p->n_told == p->x->n_diags) fail_at(p, at, what);
}

static bool accept(Parser *p, const char *s) {
  if (!at_sym(p, s)) return false;
  next(p);
  return true;
}

static bool accept_word(Parser *p, const char *w) {
  if (!at_word(p, w)) return false;
  next(p);
  return true;
}

static void expect(Parser *p, const char *s) {
  if (!accept(p, s)) fail(p, s);
}

static bool is_reserved(const char *name) { return !strcmp(name, "for") || !strcmp(name, "as") || !strcmp(name, "return"); }

static const char *expect_name(Parser *p, const char *what) {
  const Tok *t = peek(p);
  if (p->panic || t->kind != TOK_NAME || is_reserved(t->text)) {
    fail(p, what);
    return "";
  }
  next(p);
  return t->text;
}

static int64_t expect_int(Parser *p, const char *what) {
  const Tok *t = peek(p);
  if (p->panic || t->kind != TOK_INT) {
    fail(p, what);
    return 0;
  }
  next(p);
  return t->ival;
}

static bool enter(Parser *p) {
  if (p->depth >= LANG_MAX_DEPTH) fail_at(p, here(p), "this nests too deeply: at most 200 levels");
  p->depth++;
  return !p->panic;
}
static void leave(Parser *p) { p->depth--; }

/* Keeps whoever compares all pairs of a declaration's parts quick. */
static void count_item(Parser *p) {
  if (++p->n_items > LANG_MAX_ITEMS) fail_at(p, here(p), "this declaration is too long: at most 20000 statements, parameters and arguments");
}

/* ---- expressions ---- */
static Expr *parse_expr(Parser *p);
static Expr *parse_binary(Parser *p, int min_prec);

static Expr *node(Parser *p, ExprKind kind, ExprOp op, Loc at, Expr **arg, int n_args) {
  Tall *t = ARENA_NEW(p->x->arena, Tall);
  t->e = (Expr){.kind = kind, .op = op, .loc = at, .arg = arg, .n_args = n_args};
  t->height = 1;
  for (int i = 0; i < n_args; i++) t->height = MAX(t->height, height(arg[i]) + 1);
  if (t->height > LANG_MAX_DEPTH) fail_at(p, at, "this expression is too deep: at most 200 levels; name a part of it");
  return &t->e;
}

static Expr *node1(Parser *p, ExprKind kind, ExprOp op, Loc at, Expr *a) {
  Expr **arg = ARENA_ARRAY(p->x->arena, Expr *, 1);
  arg[0] = a;
  return node(p, kind, op, at, arg, 1);
}

static Expr *node2(Parser *p, ExprKind kind, ExprOp op, Loc at, Expr *a, Expr *b) {
  Expr **arg = ARENA_ARRAY(p->x->arena, Expr *, 2);
  arg[0] = a;
  arg[1] = b;
  return node(p, kind, op, at, arg, 2);
}

static Expr *named(Parser *p, ExprKind kind, Loc at, const char *name) {
  Expr *e = node(p, kind, OP_NONE, at, NULL, 0);
  e->name = name;
  return e;
}

/* Expressions up to the closing symbol, at least one; first goes before them when not NULL. */
static Expr **parse_list(Parser *p, Expr *first, const char *close, int *n_out) {
  Expr **arg = NULL;
  int n = 0, cap = 0;
  if (first) PUSH(p->x->arena, arg, n, cap, first);
  if (first || !at_sym(p, close)) {
    do {
      count_item(p);
      if (close[0] == ']' && n - (first != NULL) == LANG_MAX_DIMS) fail_at(p, here(p), "at most 16 dimensions");
      PUSH(p->x->arena, arg, n, cap, parse_expr(p));
    } while (accept(p, ","));
  }
  if (!accept(p, close)) fail(p, close[0] == ')' ? ", or )" : ", or ]");
  *n_out = n;
  return arg;
}

static Binder parse_binder(Parser *p) {
  Binder b = {.loc = here(p)};
  count_item(p);
  b.name = expect_name(p, "the name of an index");
  if (!accept(p, "<")) return b;
  if (enter(p)) b.extent = parse_binary(p, lang_op_prec(OP_BOR));
  leave(p);
  return b;
}

/* max( and min( begin a reduction when a colon that is not of a ?: comes before their closing parenthesis. */
static bool has_colon(const Parser *p) {
  int depth = 0, pending = 0;
  for (const Tok *t = peek(p) + 1; t->kind != TOK_EOF; t++) {
    if (is_sym(t, "(") || is_sym(t, "[")) depth++;
    else if (is_sym(t, ")") || is_sym(t, "]")) { if (depth-- == 0) return false; }
    else if (is_sym(t, "{") || is_sym(t, "}")) return false;
    else if (depth == 0 && is_sym(t, "?")) pending++;
    else if (depth == 0 && is_sym(t, ":") && pending-- == 0) return true;
  }
  return false;
}

static Expr *parse_reduction(Parser *p, Loc at, ExprOp op) {
  Binder *b = NULL;
  int n = 0, cap = 0;
  expect(p, "(");
  do PUSH(p->x->arena, b, n, cap, parse_binder(p)); while (accept(p, ","));
  if (!accept(p, ":")) fail(p, "< extent, or : and what is summed");
  Expr *e = node1(p, EX_REDUCE, op, at, parse_expr(p));
  if (!accept(p, ")")) fail(p, ")");
  for (int i = 0; i < n; i++)
    if (b[i].extent) ((Tall *)(void *)e)->height = MAX(height(e), height(b[i].extent) + 1);
  e->binder = b;
  e->n_binders = n;
  return e;
}

static Expr *parse_primary(Parser *p) {
  const Tok *t = peek(p);
  Loc at = here(p);
  if (accept(p, "(")) {
    Expr *e = parse_expr(p);
    expect(p, ")");
    return e;
  }
  if (p->panic || t->kind == TOK_EOF || t->kind == TOK_SYM || (t->kind == TOK_NAME && is_reserved(t->text))) {
    fail(p, "an expression");
    return node(p, EX_INT, OP_NONE, at, NULL, 0);
  }
  next(p);
  if (t->kind == TOK_NAME) {
    ExprOp red = at_sym(p, "(") ? lang_reduction(t->text) : OP_NONE;
    if (red && ((red != RED_MAX && red != RED_MIN) || has_colon(p))) return parse_reduction(p, at, red);
    if (!accept(p, "(")) return named(p, EX_NAME, at, t->text);
    int n;
    Expr **arg = parse_list(p, NULL, ")", &n);
    Expr *e = node(p, EX_CALL, OP_NONE, at, arg, n);
    e->name = t->text;
    return e;
  }
  Expr *e = named(p, t->kind == TOK_INT ? EX_INT : t->kind == TOK_FLOAT ? EX_FLOAT : EX_STR, at, t->kind == TOK_STR ? t->text : NULL);
  e->ival = t->ival;
  e->fval = t->fval;
  return e;
}

static Expr *parse_postfix(Parser *p) {
  Expr *e = parse_primary(p);
  for (;;) {
    Loc at = here(p);
    int n;
    if (accept(p, "[")) {
      Expr **arg = parse_list(p, e, "]", &n);
      e = node(p, EX_INDEX, OP_NONE, e->loc, arg, n);
    } else if (accept(p, ".")) {
      const char *name = expect_name(p, "a field's name");
      e = node1(p, EX_FIELD, OP_NONE, at, e);
      e->name = name;
    } else if (accept_word(p, "as")) {
      expect(p, "[");
      Expr **arg = parse_list(p, e, "]", &n);
      e = node(p, EX_AS, OP_NONE, at, arg, n);
    } else {
      return e;
    }
  }
}

static Expr *parse_prefix(Parser *p) {
  const Tok *t = peek(p);
  ExprOp op = !p->panic && t->kind == TOK_SYM ? lang_prefix(t->sym) : OP_NONE;
  if (!op) return parse_postfix(p);
  Loc at = here(p);
  Expr *e = NULL;
  if (enter(p)) {
    next(p);
    e = parse_prefix(p);
  } else {
    e = node(p, EX_INT, OP_NONE, at, NULL, 0);
  }
  leave(p);
  return node1(p, EX_UNARY, op, at, e);
}

/* "a" | "b" .. : a | before a string that follows anything else begins a tensor's next source. */
static bool is_names(const Expr *e) { return e->kind == EX_STR || (e->kind == EX_BINARY && e->op == OP_BOR && e->arg[1]->kind == EX_STR); }

static Expr *parse_binary(Parser *p, int min_prec) {
  Expr *e = parse_prefix(p);
  while (!p->panic && peek(p)->kind == TOK_SYM) {
    const LangInfix *in = lang_infix(peek(p)->sym);
    if (!in || in->prec < min_prec || (in->op == OP_BOR && peek(p)[1].kind == TOK_STR && !is_names(e))) break;
    Loc at = here(p);
    next(p);
    e = node2(p, EX_BINARY, in->op, at, e, parse_binary(p, in->prec + 1));
  }
  return e;
}

static Expr *parse_expr(Parser *p) {
  Expr *e;
  if (enter(p)) {
    e = parse_binary(p, 1);
    Loc at = here(p);
    if (accept(p, "?")) {
      Expr **arg = ARENA_ARRAY(p->x->arena, Expr *, 3);
      arg[0] = e;
      arg[1] = parse_expr(p);
      if (!accept(p, ":")) fail(p, ": of ? :");
      arg[2] = parse_expr(p);
      e = node(p, EX_COND, OP_NONE, at, arg, 3);
    }
  } else {
    e = node(p, EX_INT, OP_NONE, here(p), NULL, 0);
  }
  leave(p);
  return e;
}

/* ---- going on after a mistake ---- */
static const char *const decl_words[] = {"format", "layout", "table", "fn", "op", "hypers", "model"};

static bool at_decl(const Parser *p) {
  const Tok *t = peek(p);
  if (t->kind != TOK_NAME || !t->first || t[1].kind != TOK_NAME) return false;
  for (size_t i = 0; i < COUNT_OF(decl_words); i++) if (!strcmp(t->text, decl_words[i])) return true;
  return false;
}

/* To the next line that begins with a name in this block, the block's end, or a declaration at the margin. */
static void resync(Parser *p) {
  if (p->at == p->item) next(p);
  for (int depth = 0; peek(p)->kind != TOK_EOF; next(p)) {
    const Tok *t = peek(p);
    if (at_decl(p) && t->col == 1) break;
    if (is_sym(t, "{")) depth++;
    else if (is_sym(t, "}") && depth-- == 0) break;
    else if (depth == 0 && t->first && t->kind == TOK_NAME && p->at > p->item) break;
  }
  p->panic = false;
}

static void resync_decl(Parser *p) {
  if (p->at == p->item) next(p);
  for (int depth = 0; peek(p)->kind != TOK_EOF; next(p)) {
    const Tok *t = peek(p);
    if (at_decl(p) && (t->col == 1 || depth <= 0)) break;
    if (is_sym(t, "{")) depth++;
    else if (is_sym(t, "}")) depth--;
  }
  p->panic = false;
}

/* True while the block has another item; false once its } is eaten or cannot come. */
static bool block_next(Parser *p) {
  if (p->panic) resync(p);
  p->item = p->at;
  if (accept(p, "}")) return false;
  count_item(p);
  if (peek(p)->kind == TOK_EOF || (at_decl(p) && peek(p)->col == 1)) {
    fail(p, "} at the end of this block");
    return false;
  }
  return !p->panic;
}

/* ---- declarations ---- */
static TypeExpr parse_type(Parser *p) {
  TypeExpr t = {.loc = here(p)};
  t.elt = expect_name(p, "an element type (f32, i32, a format, or a capital letter for any format)");
  if (accept(p, "[")) t.dim = parse_list(p, NULL, "]", &t.n_dims);
  return t;
}

static Expr *signed_number(Expr *e) {
  Expr *n = e->kind == EX_UNARY && e->op == OP_NEG ? e->arg[0] : e;
  if (n == e || (n->kind != EX_INT && n->kind != EX_FLOAT)) return e;
  n->ival = -n->ival;
  n->fval = -n->fval;
  return n;
}

static Param parse_param(Parser *p, const char *what) {
  Param r = {.loc = here(p)};
  count_item(p);
  r.name = expect_name(p, what);
  expect(p, ":");
  r.type = parse_type(p);
  if (accept(p, "=")) r.deflt = signed_number(parse_expr(p));
  return r;
}

static Param *parse_params(Parser *p, int *n_out) {
  Param *param = NULL;
  int n = 0, cap = 0;
  expect(p, "(");
  if (!at_sym(p, ")")) {
    do PUSH(p->x->arena, param, n, cap, parse_param(p, "a parameter's name")); while (accept(p, ","));
  }
  if (!accept(p, ")")) fail(p, ", or )");
  *n_out = n;
  return param;
}

/* Bytes of a named scalar kind; an unknown one is told here, since offsets depend on it. */
static const LangScalar *parse_scalar(Parser *p) {
  Loc at = here(p);
  const char *name = expect_name(p, "a scalar kind");
  const LangScalar *s = p->panic ? NULL : lang_scalar(name);
  if (!s && !p->panic) lang_diag_near(p->x, at, name, lang_scalar_names, lang_n_scalars, "unknown scalar kind %s", name);
  return s ? s : lang_scalar(lang_scalar_names[0]);
}

static Field parse_field(Parser *p) {
  Field f = {.loc = here(p), .count = 1};
  f.name = expect_name(p, "a field's name");
  expect(p, ":");
  f.elt = parse_scalar(p)->name;
  if (accept(p, "[")) {
    f.is_array = true;
    f.count = expect_int(p, "the number of elements");
    expect(p, "]");
  }
  expect(p, "@");
  f.offset = expect_int(p, "the field's offset in bytes");
  return f;
}

static FormatFn parse_format_fn(Parser *p) {
  FormatFn f = {.loc = here(p)};
  f.name = expect_name(p, "a name");
  if (accept(p, "(")) {
    f.arg = expect_name(p, "the name of the element's index");
    if (accept(p, ",")) f.arg2 = expect_name(p, "the name of a second index");
    expect(p, ")");
  }
  if (!accept(p, "=")) fail(p, f.arg ? "=" : "= or (i) = or a field's : type @offset");
  f.value = parse_expr(p);
  return f;
}

static void parse_encode(Parser *p, FormatDecl *f) {
  int cap = 0;
  expect(p, "{");
  while (!p->panic && block_next(p)) PUSH(p->x->arena, f->encode, f->n_encodes, cap, parse_format_fn(p));
}

static FormatDecl *parse_format(Parser *p) {
  FormatDecl *f = ARENA_NEW(p->x->arena, FormatDecl);
  int cap_fields = 0, cap_fns = 0;
  f->loc = here(p);
  f->name = expect_name(p, "the format's name");
  f->gguf_id = f->block = -1;
  if (accept(p, ":")) {
    if (!accept_word(p, "gguf")) fail(p, "gguf and its number");
    f->gguf_id = expect_int(p, "the format's number in GGUF files");
  }
  expect(p, "{");
  while (!p->panic && block_next(p)) {
    const Tok *t = peek(p), *after = t->kind == TOK_EOF ? t : t + 1;
    if (after->kind == TOK_INT && accept_word(p, "block")) f->block = expect_int(p, "elements in a block");
    else if (after->kind == TOK_INT && accept_word(p, "bytes")) f->n_bytes = expect_int(p, "bytes in a block");
    else if (is_sym(after, "{") && accept_word(p, "encode")) parse_encode(p, f);
    else if (is_sym(after, ":")) PUSH(p->x->arena, f->field, f->n_fields, cap_fields, parse_field(p));
    else PUSH(p->x->arena, f->fn, f->n_fns, cap_fns, parse_format_fn(p));
    if (p->panic) resync(p);
  }
  return f;
}

static const char *expect_text(Parser *p) {
  const Tok *t = peek(p);
  if (p->panic || t->kind != TOK_STR) {
    fail(p, "a string");
    return "";
  }
  next(p);
  return t->text;
}

/* "a" | "b" */
static const char **parse_texts(Parser *p, int *n_out) {
  const char **text = NULL;
  int n = 0, cap = 0;
  do {
    count_item(p);
    const char *s = expect_text(p);
    if (p->panic) break;
    PUSH(p->x->arena, text, n, cap, s);
  } while (accept(p, "|"));
  *n_out = n;
  return text;
}

static PartDecl parse_part(Parser *p) {
  PartDecl t = {.loc = here(p)};
  int cap = 0;
  t.name = expect_name(p, "the tensor's name");
  expect(p, ":");
  do PUSH(p->x->arena, t.elt, t.n_elts, cap, expect_name(p, "an element type (i32, bf16, a format, or a capital letter for any)")); while (accept(p, "|"));
  expect(p, "[");
  t.dim = parse_list(p, NULL, "]", &t.n_dims);
  if (accept_word(p, "groups")) t.groups = parse_prefix(p);
  if (accept_word(p, "is")) t.is = expect_name(p, "the name of a table");
  expect(p, "=");
  t.file = parse_texts(p, &t.n_files);
  if (!p->panic && accept_word(p, "else")) {
    if (!accept_word(p, "none")) fail(p, "none");
    t.optional = true;
  }
  return t;
}

static SaysDecl parse_says(Parser *p) {
  SaysDecl s = {.loc = here(p)};
  int cap = 0;
  s.key = parse_texts(p, &s.n_keys);
  expect(p, "=");
  if (!p->panic && peek(p)->kind == TOK_STR) s.text = parse_texts(p, &s.n_texts);
  else do PUSH(p->x->arena, s.value, s.n_values, cap, parse_expr(p)); while (!p->panic && accept_word(p, "or"));
  return s;
}

static const char *rule_words(Arena *a) {
  const char *s = lang_rules[0].name;
  for (RuleKind k = 1; k < RULE_N_KINDS; k++) s = arena_printf(a, "%s%s%s", s, k + 1 < RULE_N_KINDS ? ", " : " or ", lang_rules[k].name);
  return s;
}

static RuleForm parse_rule_form(Parser *p) {
  RuleForm f = {.spares = accept_word(p, "not")};
  while (f.kind < RULE_N_KINDS && !accept_word(p, lang_rules[f.kind].name)) f.kind++;
  if (f.kind == RULE_N_KINDS) {
    fail(p, rule_words(p->x->arena));
    f.kind = RULE_name;
  }
  f.prefix = expect_text(p);
  return f;
}

static RulesDecl parse_rules(Parser *p) {
  RulesDecl r = {.loc = here(p)};
  int cap = 0;
  r.key = expect_text(p);
  expect(p, "=");
  do {
    count_item(p);
    PUSH(p->x->arena, r.form, r.n_forms, cap, parse_rule_form(p));
  } while (!p->panic && accept(p, "|"));
  return r;
}

static LayoutDecl *parse_layout(Parser *p) {
  LayoutDecl *l = ARENA_NEW(p->x->arena, LayoutDecl);
  int cap_parts = 0, cap_fns = 0, cap_says = 0, cap_rules = 0, n = 0;
  l->loc = here(p);
  l->name = expect_name(p, "the layout's name");
  expect(p, "[");
  l->rows = expect_name(p, "the name of the number of rows");
  expect(p, ",");
  l->cols = expect_name(p, "the name of the number of columns");
  expect(p, "]");
  expect(p, "=");
  const char **of = parse_texts(p, &n);
  l->of = n == 1 ? of[0] : "";
  if (n > 1 && !p->panic) fail_at(p, l->loc, "a layout is of one name of weights");
  expect(p, "{");
  while (!p->panic && block_next(p)) {
    const Tok *t = peek(p), *after = t->kind == TOK_EOF ? t : t + 1;
    if (after->kind == TOK_NAME && accept_word(p, "tensor")) PUSH(p->x->arena, l->part, l->n_parts, cap_parts, parse_part(p));
    else if (after->kind == TOK_STR && accept_word(p, "extents")) l->extents = parse_texts(p, &l->n_extents);
    else if (after->kind == TOK_STR && accept_word(p, "apart")) l->apart = parse_texts(p, &l->n_aparts);
    else if (after->kind == TOK_STR && accept_word(p, "beside")) l->beside = parse_texts(p, &l->n_besides);
    else if (after->kind == TOK_STR && accept_word(p, "says")) PUSH(p->x->arena, l->says, l->n_says, cap_says, parse_says(p));
    else if (after->kind == TOK_STR && accept_word(p, "rules")) PUSH(p->x->arena, l->rule, l->n_rules, cap_rules, parse_rules(p));
    else if (!is_sym(after, "=") && accept_word(p, "when")) l->when = parse_expr(p);
    else PUSH(p->x->arena, l->fn, l->n_fns, cap_fns, parse_format_fn(p));
    if (p->panic) resync(p);
  }
  return l;
}

static double parse_number(Parser *p) {
  bool neg = accept(p, "-");
  const Tok *t = peek(p);
  if (p->panic || (t->kind != TOK_INT && t->kind != TOK_FLOAT)) {
    fail(p, "a number");
    return 0;
  }
  next(p);
  double v = t->kind == TOK_INT ? (double)t->ival : t->fval;
  return neg ? -v : v;
}

static TableDecl *parse_table(Parser *p) {
  TableDecl *t = ARENA_NEW(p->x->arena, TableDecl);
  int cap = 0;
  t->loc = here(p);
  t->name = expect_name(p, "the table's name");
  expect(p, ":");
  t->elt = parse_scalar(p)->name;
  expect(p, "=");
  expect(p, "[");
  do {
    if (at_sym(p, "]") && t->n_values) break;
    PUSH(p->x->arena, t->value, t->n_values, cap, parse_number(p));
  } while (accept(p, ","));
  if (!accept(p, "]")) fail(p, ", or ]");
  return t;
}

static Stmt parse_let(Parser *p) {
  Stmt s = {.loc = here(p)};
  s.name = expect_name(p, "a name, or return and the result");
  expect(p, "=");
  s.rhs = parse_expr(p);
  return s;
}

static FnDecl *parse_fn(Parser *p) {
  FnDecl *f = ARENA_NEW(p->x->arena, FnDecl);
  int cap = 0;
  f->loc = here(p);
  f->name = expect_name(p, "the function's name");
  f->param = parse_params(p, &f->n_params);
  expect(p, "->");
  f->result = parse_type(p);
  if (accept(p, "=")) {
    f->value = parse_expr(p);
    return f;
  }
  if (!accept(p, "{")) fail(p, "= and an expression, or { and statements");
  while (!p->panic && block_next(p)) {
    Loc at = here(p);
    if (f->value) fail_at(p, at, "nothing may follow return");
    else if (accept_word(p, "return")) f->value = parse_expr(p);
    else PUSH(p->x->arena, f->let, f->n_lets, cap, parse_let(p));
    if (p->panic) resync(p);
  }
  if (!f->value) fail_missing(p, f->loc, "this function returns nothing: end it with return and an expression");
  return f;
}

static Stmt parse_stmt(Parser *p) {
  Stmt s = {.loc = here(p)};
  int cap = 0;
  if (at_sym(p, "=") && p->at) fail_at(p, here(p), "this line goes on with the statement above it: does that end in an operator or an open bracket?");
  s.name = expect_name(p, "a statement");
  if (accept(p, "[")) s.index = parse_list(p, NULL, "]", &s.n_index);
  if (!accept(p, "=")) fail(p, s.index ? "=" : "[ or =");
  s.rhs = parse_expr(p);
  if (!accept_word(p, "for")) return s;
  do {
    Binder b = parse_binder(p);
    if (!b.extent) fail(p, "< and the index's range");
    PUSH(p->x->arena, s.axis, s.n_axes, cap, b);
  } while (accept(p, ","));
  return s;
}

static OpDecl *parse_op(Parser *p) {
  OpDecl *o = ARENA_NEW(p->x->arena, OpDecl);
  int cap_results = 0, cap_stmts = 0;
  o->loc = here(p);
  o->name = expect_name(p, "the operation's name");
  o->param = parse_params(p, &o->n_params);
  expect(p, "->");
  do PUSH(p->x->arena, o->result, o->n_results, cap_results, parse_param(p, "a result's name")); while (accept(p, ","));
  if (accept_word(p, "for")) o->precision = expect_name(p, "the precision's name");
  if (accept_word(p, "when")) o->when = parse_expr(p);
  if (!accept(p, "{")) fail(p, "for and a precision, when and a condition, or {");
  while (!p->panic && block_next(p)) {
    PUSH(p->x->arena, o->stmt, o->n_stmts, cap_stmts, parse_stmt(p));
    if (p->panic) resync(p);
  }
  return o;
}

/* ---- models ---- */
static const char **parse_strings(Parser *p, int *n_out) {
  const char **s = NULL;
  int n = 0, cap = 0;
  do {
    const Tok *t = peek(p);
    if (p->panic || t->kind != TOK_STR) {
      fail(p, "a string");
      break;
    }
    next(p);
    PUSH(p->x->arena, s, n, cap, t->text);
  } while (accept(p, ","));
  *n_out = n;
  return s;
}

static void parse_file(Parser *p, ModelDecl *m) {
  Loc at = here(p);
  bool gguf = accept_word(p, "gguf");
  if (!gguf && !accept_word(p, "hf")) fail(p, "gguf or hf");
  if ((gguf && m->n_gguf_archs) || (!gguf && m->n_hf_archs)) fail_at(p, at, "this kind of file is already given: put all its names in one line, with commas");
  if (gguf) m->gguf_arch = parse_strings(p, &m->n_gguf_archs);
  else if (!p->panic) m->hf_arch = parse_strings(p, &m->n_hf_archs);
}

static const char *parse_string(Parser *p, const char *what) {
  const Tok *t = peek(p);
  if (p->panic || t->kind != TOK_STR) {
    fail(p, what);
    return "";
  }
  next(p);
  return t->text;
}

/* also below "KEY"; also "FROM" as "TO", .. */
static void parse_also(Parser *p, ModelDecl *m, int *cap) {
  Loc at = here(p);
  if (accept_word(p, "below")) {
    if (m->below) fail_at(p, at, "also below is already given");
    m->below = parse_string(p, "a key's name in quotes");
    return;
  }
  do {
    NameMove v = {.loc = here(p)};
    v.from = parse_string(p, "below, or the beginning of a tensor's name in quotes");
    if (!accept_word(p, "as")) fail(p, "as and another beginning of the name");
    v.to = parse_string(p, "another beginning of the name in quotes");
    PUSH(p->x->arena, m->move, m->n_moves, *cap, v);
  } while (accept(p, ","));
}

/* What stands behind a name: [i] = value, where [i] may be left out. */
static Expr *parse_indexed(Parser *p, Binder *axis) {
  if (accept(p, "[")) {
    *axis = (Binder){.loc = here(p)};
    axis->name = expect_name(p, "the name of an index");
    expect(p, "]");
  }
  expect(p, "=");
  return parse_expr(p);
}

/* Behind for, which stands at `at`: the index of the brackets and its range. */
static void parse_index_range(Parser *p, Loc at, Binder *axis) {
  Binder b = parse_binder(p);
  if (!p->panic && (!axis->name || strcmp(b.name, axis->name))) fail_at(p, at, "for must name the index in the brackets");
  if (!b.extent) fail(p, "< and the index's range");
  axis->extent = b.extent;
}

static HyperDecl parse_hyper(Parser *p) {
  HyperDecl h = {.loc = here(p)};
  h.name = expect_name(p, "the hyperparameter's name");
  h.value = parse_indexed(p, &h.axis);
  Loc at = here(p);
  if (accept_word(p, "for")) parse_index_range(p, at, &h.axis);
  else if (h.axis.name && !p->panic) fail(p, "for, the index and its range");
  return h;
}

static HyperDecl parse_use(Parser *p) {
  HyperDecl h = {.loc = here(p)};
  h.name = expect_name(p, "the name of a declaration of hypers");
  return h;
}

/* write "KEY" = value [when COND]; write "NAME"[i] = value for i < n [when COND] */
static WriteDecl parse_write(Parser *p) {
  WriteDecl w = {.loc = here(p)};
  w.key = parse_string(p, "a key's name in quotes");
  w.value = parse_indexed(p, &w.axis);
  if (w.axis.name) {
    Loc at = here(p);
    if (!accept_word(p, "for")) fail(p, "for, the index and its range");
    parse_index_range(p, at, &w.axis);
  }
  if (accept_word(p, "when")) w.when = parse_expr(p);
  return w;
}

static HypersDecl *parse_hypers(Parser *p) {
  HypersDecl *h = ARENA_NEW(p->x->arena, HypersDecl);
  int cap = 0, cap_writes = 0;
  h->loc = here(p);
  h->name = expect_name(p, "a name for these hyperparameters");
  expect(p, "{");
  while (!p->panic && block_next(p)) {
    if (accept_word(p, "hyper")) PUSH(p->x->arena, h->hyper, h->n_hypers, cap, parse_hyper(p));
    else if (accept_word(p, "write")) PUSH(p->x->arena, h->write, h->n_writes, cap_writes, parse_write(p));
    else fail(p, "hyper or write");
    if (p->panic) resync(p);
  }
  return h;
}

static TensorSource parse_source(Parser *p) {
  TensorSource s = {.loc = here(p)};
  s.name = parse_string(p, "a string");
  if (accept_word(p, "rows")) {
    s.row_name = expect_name(p, "the name of a row");
    expect(p, "->");
    s.row = parse_expr(p);
  }
  if (accept_word(p, "each")) {
    s.each_name = expect_name(p, "the name of an element");
    expect(p, "->");
    s.each = parse_expr(p);
  }
  if (accept_word(p, "when")) s.when = parse_expr(p);
  return s;
}

static TensorDecl parse_tensor(Parser *p) {
  TensorDecl t = {.loc = here(p)};
  t.name = expect_name(p, "the tensor's name");
  expect(p, ":");
  t.type = parse_type(p);
  expect(p, "=");
  int cap = 0;
  do PUSH(p->x->arena, t.source, t.n_sources, cap, parse_source(p)); while (accept(p, "|"));
  if (accept_word(p, "else")) t.otherwise = parse_prefix(p);
  return t;
}

static StateDecl parse_state(Parser *p) {
  StateDecl s = {.loc = here(p)};
  s.name = expect_name(p, "the state's name");
  expect(p, ":");
  s.type = parse_type(p);
  return s;
}

static LayerDecl parse_layer(Parser *p) {
  LayerDecl l = {.loc = here(p)};
  int cap_hypers = 0, cap_tensors = 0, cap_states = 0;
  l.name = expect_name(p, "the layer's name");
  expect(p, "(");
  Binder b = parse_binder(p);
  if (!b.extent) fail(p, "< and the number of layers");
  l.var = b.name;
  l.count = b.extent;
  expect(p, ")");
  expect(p, "{");
  while (!p->panic && block_next(p)) {
    if (accept_word(p, "hyper")) PUSH(p->x->arena, l.hyper, l.n_hypers, cap_hypers, parse_hyper(p));
    else if (accept_word(p, "tensor")) PUSH(p->x->arena, l.tensor, l.n_tensors, cap_tensors, parse_tensor(p));
    else if (accept_word(p, "state")) PUSH(p->x->arena, l.state, l.n_states, cap_states, parse_state(p));
    else fail(p, "hyper, tensor or state");
    if (p->panic) resync(p);
  }
  return l;
}

static Expr *parse_target(Parser *p) {
  count_item(p);
  Loc name_at = here(p);
  Expr *e = named(p, EX_NAME, name_at, expect_name(p, "a statement"));
  Loc at = here(p);
  if (!accept(p, ".")) return e;
  const char *name = expect_name(p, "the name of a state");
  e = node1(p, EX_FIELD, OP_NONE, at, e);
  e->name = name;
  return e;
}

static GraphStmt *parse_graph_block(Parser *p, Expr **result, int *n_out);

static GraphStmt parse_graph_stmt(Parser *p) {
  GraphStmt s = {.loc = here(p)};
  if (accept_word(p, "for")) {
    s.var = expect_name(p, "a name for the layer");
    if (!accept_word(p, "in")) fail(p, "in and a layer's name");
    s.layer = expect_name(p, "a layer's name");
    expect(p, "{");
    if (enter(p)) s.body = parse_graph_block(p, NULL, &s.n_body);
    leave(p);
    return s;
  }
  int cap = 0;
  do PUSH(p->x->arena, s.target, s.n_targets, cap, parse_target(p)); while (accept(p, ","));
  if (!accept(p, "=")) fail(p, "= or ,");
  s.rhs = parse_expr(p);
  return s;
}

/* Up to and with the closing brace; return is taken where result is not NULL. */
static GraphStmt *parse_graph_block(Parser *p, Expr **result, int *n_out) {
  GraphStmt *stmt = NULL;
  int n = 0, cap = 0;
  while (!p->panic && block_next(p)) {
    Loc at = here(p);
    if (result && *result) fail_at(p, at, "nothing may follow return");
    else if (!at_word(p, "return")) PUSH(p->x->arena, stmt, n, cap, parse_graph_stmt(p));
    else if (!result) fail_at(p, at, "return stands at the end of the graph, not in a loop");
    else if (accept_word(p, "return")) *result = parse_expr(p);
    if (p->panic) resync(p);
  }
  *n_out = n;
  return stmt;
}

static void parse_graph(Parser *p, ModelDecl *m, Loc at) {
  if (m->result) fail_at(p, at, "a model has one graph");
  m->param = parse_params(p, &m->n_params);
  expect(p, "{");
  m->graph = parse_graph_block(p, &m->result, &m->n_graph);
  if (!m->result) fail_missing(p, at, "this graph returns nothing: end it with return and an expression");
}

static ModelDecl *parse_model(Parser *p) {
  ModelDecl *m = ARENA_NEW(p->x->arena, ModelDecl);
  Arena *a = p->x->arena;
  int cap_hypers = 0, cap_tensors = 0, cap_layers = 0, cap_writes = 0, cap_moves = 0;
  m->loc = here(p);
  m->name = expect_name(p, "the model's name");
  expect(p, "{");
  while (!p->panic && block_next(p)) {
    Loc at = here(p);
    if (accept_word(p, "file")) parse_file(p, m);
    else if (accept_word(p, "also")) parse_also(p, m, &cap_moves);
    else if (accept_word(p, "write")) PUSH(a, m->write, m->n_writes, cap_writes, parse_write(p));
    else if (accept_word(p, "hyper")) PUSH(a, m->hyper, m->n_hypers, cap_hypers, parse_hyper(p));
    else if (accept_word(p, "use")) PUSH(a, m->hyper, m->n_hypers, cap_hypers, parse_use(p));
    else if (accept_word(p, "tensor")) PUSH(a, m->tensor, m->n_tensors, cap_tensors, parse_tensor(p));
    else if (accept_word(p, "layer")) PUSH(a, m->layer, m->n_layers, cap_layers, parse_layer(p));
    else if (accept_word(p, "graph")) parse_graph(p, m, at);
    else fail(p, "file, also, hyper, use, write, tensor, layer or graph");
    if (p->panic) resync(p);
  }
  if (!m->result) fail_missing(p, m->loc, "this model has no graph");
  return m;
}

static void parse_decl(Parser *p, Unit *u) {
  Arena *a = p->x->arena;
  if (accept_word(p, "format")) PUSH(a, u->format, u->n_formats, u->cap_formats, parse_format(p));
  else if (accept_word(p, "layout")) PUSH(a, u->layout, u->n_layouts, u->cap_layouts, parse_layout(p));
  else if (accept_word(p, "table")) PUSH(a, u->table, u->n_tables, u->cap_tables, parse_table(p));
  else if (accept_word(p, "fn")) PUSH(a, u->fn, u->n_fns, u->cap_fns, parse_fn(p));
  else if (accept_word(p, "op")) PUSH(a, u->op, u->n_ops, u->cap_ops, parse_op(p));
  else if (accept_word(p, "hypers")) PUSH(a, u->hypers, u->n_hypers, u->cap_hypers, parse_hypers(p));
  else if (accept_word(p, "model")) PUSH(a, u->model, u->n_models, u->cap_models, parse_model(p));
  else fail(p, "a declaration (format, layout, table, fn, op, hypers or model)");
}

void lang_parse(LangCtx *x, const Source *src, Unit *u) {
  Tok *tok;
  int n_told = x->n_diags;
  lang_lex(x, src, &tok);
  if (x->n_diags > n_told) return;
  Parser p = {.x = x, .file = src->file, .tok = tok};
  for (int n = 0; peek(&p)->kind != TOK_EOF && x->n_diags < LANG_MAX_DIAGS; n++) {
    if (n == LANG_MAX_ITEMS) {
      lang_diag(x, here(&p), "this text has too many declarations: at most %d", LANG_MAX_ITEMS);
      break;
    }
    p.item = p.at;
    p.depth = p.n_items = 0;
    p.n_told = x->n_diags;
    parse_decl(&p, u);
    if (p.panic) resync_decl(&p);
  }
}
