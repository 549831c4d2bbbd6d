/* A Jinja template's tokens to its tree, by recursive descent.
   In: text. Out: a TextTemplate in the arena, or ERR_SYNTAX with the line. Nesting is bounded. Filters and tests that do not exist
   are an error here, except inside {% if %} and inline if, where Jinja only finds out when the branch runs.
   Source: the Jinja2 3.1 template designer documentation and its behaviour. */
#include <string.h>
#include "text/priv.h"

enum { MAX_NEST = 100, MAX_CHAIN = 400 };
typedef struct Parser {
  Arena *a;
  Names *names;
  const Token *tok;      /* the current one */
  int depth, n_loops;
  Node *macros[MAX_NEST];
  int n_macros;
} Parser;

static Err *bad_at(int line, const char *what) { return err_new(ERR_SYNTAX, "template line %d: %s", line, what); }
static const char *describe(const Token *t) { return t->kind == TK_NAME ? t->name : text_token_name(t->kind); }
static Err *unexpected(const Parser *p, const char *want) { return err_new(ERR_SYNTAX, "template line %d: expected %s, got '%s'", p->tok->line, want, describe(p->tok)); }

static Node *node_new(Parser *p, NodeKind kind) {
  Node *n = ARENA_NEW(p->a, Node);
  n->kind = (uint8_t)kind;
  n->line = p->tok->line;
  return n;
}

static bool is_word(const Parser *p, const char *w) { return p->tok->kind == TK_NAME && !strcmp(p->tok->name, w); }
static bool next_is_word(const Parser *p, const char *w) { return p->tok->kind != TK_EOF && p->tok[1].kind == TK_NAME && !strcmp(p->tok[1].name, w); }
static void advance(Parser *p) { if (p->tok->kind != TK_EOF) p->tok++; }
static bool skip(Parser *p, TokenKind k) { return p->tok->kind == k ? advance(p), true : false; }
static bool skip_word(Parser *p, const char *w) { return is_word(p, w) ? advance(p), true : false; }
static Err *expect(Parser *p, TokenKind k) { return skip(p, k) ? NULL : unexpected(p, text_token_name(k)); }
static Err *expect_name(Parser *p, const char **out) {
  if (p->tok->kind != TK_NAME) return unexpected(p, "a name");
  *out = p->tok->name;
  advance(p);
  return NULL;
}

static Err *deeper(Parser *p) { return ++p->depth > MAX_NEST ? bad_at(p->tok->line, "nested too deep") : NULL; }
static void add(Parser *p, Node *n, int *cap, Node *item) { PUSH(p->a, n->list, n->n, *cap, item); }

static Err *expression(Parser *p, bool cond, Node **out);
static Err *primary(Parser *p, bool with_namespace, Node **out);
static Err *postfix(Parser *p, Node *n, Node **out);
static Err *statements(Parser *p, const char *const *ends, Node ***list, int *n);
static Err *subparse(Parser *p, const char *const *ends, Node ***list, int *n);

/* A list without brackets: one expression, or a tuple where a comma follows. end_word also ends it. */
typedef struct TupleRule { bool simple, no_cond, parens, with_namespace; const char *end_word; } TupleRule;

static bool tuple_end(const Parser *p, const TupleRule *r) {
  TokenKind k = p->tok->kind;
  return k == TK_VAR_END || k == TK_BLOCK_END || k == TK_RPAREN || (r->end_word && is_word(p, r->end_word));
}

static Err *tuple(Parser *p, TupleRule r, Node **out) {
  Node *t = node_new(p, N_TUPLE);
  int cap = 0;
  bool is_tuple = false;
  for (;;) {
    if (t->n) TRY(expect(p, TK_COMMA));
    if (tuple_end(p, &r)) break;
    Node *item;
    TRY(r.simple ? primary(p, r.with_namespace, &item) : expression(p, !r.no_cond, &item));
    add(p, t, &cap, item);
    if (p->tok->kind != TK_COMMA) break;
    is_tuple = true;
  }
  if (!is_tuple && t->n == 1) { *out = t->list[0]; return NULL; }
  if (!is_tuple && !r.parens) return unexpected(p, "an expression");
  *out = t;
  return NULL;
}

static Err *constant(Parser *p, Val v, Node **out) {
  Node *n = node_new(p, N_CONST);
  n->value = v;
  *out = n;
  return NULL;
}

static Err *strings(Parser *p, Node **out) {
  Node *n = node_new(p, N_CONST);
  n->value = p->tok->value;
  advance(p);
  if (p->tok->kind == TK_STRING) {
    Str s = {0};
    val_print(&s, n->value);
    for (; p->tok->kind == TK_STRING; advance(p)) val_print(&s, p->tok->value);
    n->value = val_own(p->a, val_str(p->a, s.p ? s.p : "", s.n));
    val_n_chars(n->value);
    str_free(&s);
  }
  *out = n;
  return NULL;
}

static Err *list_or_dict(Parser *p, bool dict, Node **out) {
  Node *n = node_new(p, dict ? N_DICT : N_LIST);
  TokenKind close = dict ? TK_RBRACE : TK_RBRACKET;
  int cap = 0;
  advance(p);
  while (p->tok->kind != close) {
    if (n->n) TRY(expect(p, TK_COMMA));
    if (p->tok->kind == close) break;
    Node *item;
    TRY(expression(p, true, &item));
    add(p, n, &cap, item);
    if (!dict) continue;
    TRY(expect(p, TK_COLON));
    TRY(expression(p, true, &item));
    add(p, n, &cap, item);
  }
  advance(p);
  *out = n;
  return NULL;
}

static void note_implicit(Parser *p, const char *name) {
  for (int i = 0; i < p->n_macros; i++) {
    Node *m = p->macros[i];
    m->uses_varargs |= !strcmp(name, "varargs");
    m->uses_kwargs |= !strcmp(name, "kwargs");
    m->uses_caller |= !strcmp(name, "caller");
  }
}

static Err *name(Parser *p, bool with_namespace, Node **out) {
  static const struct { const char *word; int value; } words[] = {{"true", 1}, {"True", 1}, {"false", 0}, {"False", 0}, {"none", -1}, {"None", -1}};
  const char *w = p->tok->name;
  for (size_t i = 0; i < COUNT_OF(words); i++)
    if (!strcmp(w, words[i].word)) {
      TRY(constant(p, words[i].value < 0 ? val_none() : val_bool(words[i].value), out));
      advance(p);
      return NULL;
    }
  Node *n = node_new(p, N_NAME);
  n->name = w;
  advance(p);
  if (with_namespace && p->tok->kind == TK_DOT) {
    advance(p);
    n->kind = N_NSREF;
    const char *attr;
    TRY(expect_name(p, &attr));
    n->value = val_own(p->a, val_str_view(p->a, attr, strlen(attr)));
  } else {
    note_implicit(p, w);
  }
  *out = n;
  return NULL;
}

static Err *primary(Parser *p, bool with_namespace, Node **out) {
  switch (p->tok->kind) {
    case TK_NAME: return name(p, with_namespace, out);
    case TK_STRING: return strings(p, out);
    case TK_INTEGER: case TK_FLOAT:
      TRY(constant(p, p->tok->value, out));
      advance(p);
      return NULL;
    case TK_LPAREN:
      advance(p);
      TRY(deeper(p));
      TRY(tuple(p, (TupleRule){.parens = true}, out));
      p->depth--;
      return expect(p, TK_RPAREN);
    case TK_LBRACKET: case TK_LBRACE:
      TRY(deeper(p));
      TRY(list_or_dict(p, p->tok->kind == TK_LBRACE, out));
      p->depth--;
      return NULL;
    default: return err_new(ERR_SYNTAX, "template line %d: unexpected '%s'", p->tok->line, describe(p->tok));
  }
}

static Err *call_args(Parser *p, Node *n) {
  int cap = 0, cap_kw = 0, cap_names = 0, n_names = 0;
  bool comma = false;
  int line = p->tok->line;
  TRY(expect(p, TK_LPAREN));
  while (p->tok->kind != TK_RPAREN) {
    if (comma) {
      TRY(expect(p, TK_COMMA));
      if (p->tok->kind == TK_RPAREN) break;
    }
    Node *v;
    if (p->tok->kind == TK_MUL) {
      if (n->b || n->c) return bad_at(line, "invalid syntax for function call expression");
      advance(p);
      TRY(expression(p, true, &n->b));
    } else if (p->tok->kind == TK_POW) {
      if (n->c) return bad_at(line, "invalid syntax for function call expression");
      advance(p);
      TRY(expression(p, true, &n->c));
    } else if (p->tok->kind == TK_NAME && p->tok[1].kind == TK_ASSIGN) {
      if (n->c) return bad_at(line, "invalid syntax for function call expression");
      const char *key = p->tok->name;
      advance(p);
      advance(p);
      TRY(expression(p, true, &v));
      PUSH(p->a, n->names, n_names, cap_names, key);
      PUSH(p->a, n->list2, n->n2, cap_kw, v);
    } else {
      if (n->b || n->c || n->n2) return bad_at(line, "invalid syntax for function call expression");
      TRY(expression(p, true, &v));
      add(p, n, &cap, v);
    }
    comma = true;
  }
  return expect(p, TK_RPAREN);
}

static Err *call(Parser *p, Node *callee, Node **out) {
  Node *n = node_new(p, N_CALL);
  n->a = callee;
  TRY(call_args(p, n));
  *out = n;
  return NULL;
}

static Err *slice_part(Parser *p, Node **out) {
  TokenKind k = p->tok->kind;
  if (k == TK_COLON || k == TK_RBRACKET || k == TK_COMMA) return NULL;
  return expression(p, true, out);
}

static Err *subscribed(Parser *p, Node **out) {
  Node *first = NULL, *s = node_new(p, N_SLICE);
  if (p->tok->kind != TK_COLON) {
    TRY(expression(p, true, &first));
    if (p->tok->kind != TK_COLON) { *out = first; return NULL; }
  }
  advance(p);
  s->a = first;
  TRY(slice_part(p, &s->b));
  if (skip(p, TK_COLON)) TRY(slice_part(p, &s->c));
  *out = s;
  return NULL;
}

static Err *subscript(Parser *p, Node *obj, Node **out) {
  Node *n = node_new(p, N_GETITEM);
  n->a = obj;
  if (skip(p, TK_DOT)) {
    if (p->tok->kind == TK_NAME) {
      n->kind = N_GETATTR;
      n->name = p->tok->name;
    } else if (p->tok->kind == TK_INTEGER) {
      TRY(constant(p, p->tok->value, &n->b));
    } else {
      return unexpected(p, "a name or number");
    }
    advance(p);
    *out = n;
    return NULL;
  }
  Node *args = node_new(p, N_TUPLE), *item;
  int cap = 0;
  advance(p);
  while (p->tok->kind != TK_RBRACKET) {
    if (args->n) TRY(expect(p, TK_COMMA));
    TRY(subscribed(p, &item));
    add(p, args, &cap, item);
  }
  TRY(expect(p, TK_RBRACKET));
  n->b = args->n == 1 ? args->list[0] : args;
  *out = n;
  return NULL;
}

/* A chain is a tree leaning left: it is evaluated by recursion, so its length is bounded like nesting. */
static Err *postfix(Parser *p, Node *n, Node **out) {
  int chain = 0;
  for (;; chain++) {
    TokenKind k = p->tok->kind;
    if (chain > MAX_NEST) return bad_at(p->tok->line, "chain too long");
    if (k == TK_DOT || k == TK_LBRACKET) TRY(subscript(p, n, &n));
    else if (k == TK_LPAREN) TRY(call(p, n, &n));
    else break;
  }
  *out = n;
  return NULL;
}

static Err *dotted(Parser *p, const char **out) {
  TRY(expect_name(p, out));
  while (skip(p, TK_DOT)) {
    const char *more;
    TRY(expect_name(p, &more));
    *out = arena_printf(p->a, "%s.%s", *out, more);
  }
  return NULL;
}

static Err *filter(Parser *p, Node *operand, Node **out) {
  Node *n = node_new(p, N_FILTER);
  n->a = operand;
  TRY(dotted(p, &n->name));
  if (p->tok->kind == TK_LPAREN) TRY(call_args(p, n));
  *out = n;
  return NULL;
}

static Err *test(Parser *p, Node *operand, Node **out) {
  Node *n = node_new(p, N_TEST);
  n->a = operand;
  bool negated = skip_word(p, "not");
  TRY(dotted(p, &n->name));
  TokenKind k = p->tok->kind;
  bool arg = k == TK_NAME || k == TK_STRING || k == TK_INTEGER || k == TK_FLOAT || k == TK_LBRACKET || k == TK_LBRACE;
  if (k == TK_LPAREN) {
    TRY(call_args(p, n));
  } else if (arg && !is_word(p, "else") && !is_word(p, "or") && !is_word(p, "and")) {
    if (is_word(p, "is")) return bad_at(p->tok->line, "tests cannot be chained with is");
    Node *v;
    int cap = 0;
    TRY(primary(p, false, &v));
    TRY(postfix(p, v, &v));
    add(p, n, &cap, v);
  }
  if (negated) {
    Node *no = node_new(p, N_NOT);
    no->a = n;
    n = no;
  }
  *out = n;
  return NULL;
}

static Err *unary(Parser *p, bool with_filter, Node **out) {
  Node *n;
  TokenKind k = p->tok->kind;
  if (k == TK_SUB || k == TK_ADD) {
    n = node_new(p, k == TK_SUB ? N_NEG : N_POS);
    advance(p);
    TRY(deeper(p));
    TRY(unary(p, false, &n->a));
    p->depth--;
  } else {
    TRY(primary(p, false, &n));
  }
  TRY(postfix(p, n, &n));
  for (int chain = 0; with_filter; chain++) {
    if (chain > MAX_NEST) return bad_at(p->tok->line, "chain too long");
    if (skip(p, TK_PIPE)) TRY(filter(p, n, &n));
    else if (skip_word(p, "is")) TRY(test(p, n, &n));
    else if (p->tok->kind == TK_LPAREN) TRY(call(p, n, &n));
    else break;
  }
  *out = n;
  return NULL;
}

/* Left-associative operators, the tightest first; between the last two stands "~". */
static bool operator_at(int level, TokenKind k) {
  if (level == 0) return k == TK_POW;
  if (level == 1) return k == TK_MUL || k == TK_DIV || k == TK_FLOORDIV || k == TK_MOD;
  return k == TK_ADD || k == TK_SUB;
}

static Err *concat(Parser *p, Node **out);

static Err *binary(Parser *p, int level, Node **out) {
  Node *left;
  TRY(level == 0 ? unary(p, true, &left) : level == 1 ? binary(p, 0, &left) : concat(p, &left));
  for (int chain = 0; operator_at(level, p->tok->kind); chain++) {
    if (chain > MAX_CHAIN) return bad_at(p->tok->line, "chain too long");
    Node *n = node_new(p, N_BINARY);
    n->op = (uint8_t)p->tok->kind;
    n->a = left;
    advance(p);
    TRY(level == 0 ? unary(p, true, &n->b) : level == 1 ? binary(p, 0, &n->b) : concat(p, &n->b));
    left = n;
  }
  *out = left;
  return NULL;
}

static Err *concat(Parser *p, Node **out) {
  Node *n = node_new(p, N_CONCAT), *item;
  int cap = 0;
  do {
    TRY(binary(p, 1, &item));
    add(p, n, &cap, item);
  } while (skip(p, TK_TILDE));
  *out = n->n == 1 ? n->list[0] : n;
  return NULL;
}

static Err *compare(Parser *p, Node **out) {
  Node *n = node_new(p, N_COMPARE);
  int cap = 0;
  TRY(binary(p, 2, &n->a));
  for (;;) {
    Node *o = node_new(p, N_CONST);
    TokenKind k = p->tok->kind;
    if (k == TK_EQ || k == TK_NE || k == TK_GT || k == TK_GE || k == TK_LT || k == TK_LE) {
      o->op = (uint8_t)k;
      advance(p);
    } else if (skip_word(p, "in")) {
      o->op = 0;
    } else if (is_word(p, "not") && next_is_word(p, "in")) {
      o->op = 1;
      advance(p);
      advance(p);
    } else {
      break;
    }
    TRY(binary(p, 2, &o->a));
    add(p, n, &cap, o);
  }
  *out = n->n ? n : n->a;
  return NULL;
}

static Err *not_expr(Parser *p, Node **out) {
  int n_not = 0;
  Node *outer = NULL, **slot = &outer;
  for (; is_word(p, "not"); n_not++) {
    if (n_not > MAX_NEST) return bad_at(p->tok->line, "nested too deep");
    *slot = node_new(p, N_NOT);
    slot = &(*slot)->a;
    advance(p);
  }
  TRY(compare(p, slot));
  *out = outer;
  return NULL;
}

static Err *and_or(Parser *p, bool is_or, Node **out) {
  Node *left;
  TRY(is_or ? and_or(p, false, &left) : not_expr(p, &left));
  for (int chain = 0; skip_word(p, is_or ? "or" : "and"); chain++) {
    if (chain > MAX_CHAIN) return bad_at(p->tok->line, "chain too long");
    Node *n = node_new(p, is_or ? N_OR : N_AND);
    n->a = left;
    TRY(is_or ? and_or(p, false, &n->b) : not_expr(p, &n->b));
    left = n;
  }
  *out = left;
  return NULL;
}

static Err *expression(Parser *p, bool cond, Node **out) {
  Node *n;
  TRY(deeper(p));
  TRY(and_or(p, true, &n));
  for (int chain = 0; cond && skip_word(p, "if"); chain++) {
    if (chain > MAX_NEST) return bad_at(p->tok->line, "chain too long");
    Node *c = node_new(p, N_COND);
    c->b = n;
    TRY(and_or(p, true, &c->a));
    if (skip_word(p, "else")) TRY(expression(p, true, &c->c));
    n = c;
  }
  p->depth--;
  *out = n;
  return NULL;
}

/* Statements. */
static Err *assignable(const Node *t) {
  if (t->kind == N_NAME || t->kind == N_NSREF) return NULL;
  if (t->kind != N_TUPLE) return bad_at(t->line, "cannot assign to this");
  for (int i = 0; i < t->n; i++) TRY(assignable(t->list[i]));
  return NULL;
}

static Err *target(Parser *p, const char *end_word, bool with_namespace, Node **out) {
  TRY(tuple(p, (TupleRule){.simple = true, .with_namespace = with_namespace, .end_word = end_word}, out));
  return assignable(*out);
}

static Err *parse_set(Parser *p, Node **out) {
  static const char *const ends[] = {"endset", NULL};
  Node *n = node_new(p, N_SET);
  TRY(target(p, NULL, true, &n->a));
  *out = n;
  if (skip(p, TK_ASSIGN)) return tuple(p, (TupleRule){0}, &n->b);
  n->kind = N_SETBLOCK;
  int chain = 0;
  while (skip(p, TK_PIPE)) {
    if (++chain > MAX_NEST) return bad_at(p->tok->line, "chain too long");
    TRY(filter(p, n->b, &n->b));
  }
  TRY(statements(p, ends, &n->list, &n->n));
  advance(p);
  return NULL;
}

static Err *parse_for(Parser *p, Node **out) {
  static const char *const ends[] = {"endfor", "else", NULL}, *const ends2[] = {"endfor", NULL};
  Node *n = node_new(p, N_FOR);
  TRY(target(p, "in", false, &n->a));
  if (!skip_word(p, "in")) return unexpected(p, "in");
  TRY(tuple(p, (TupleRule){.no_cond = true, .end_word = "recursive"}, &n->b));
  if (skip_word(p, "if")) TRY(expression(p, true, &n->c));
  n->flag = skip_word(p, "recursive");
  p->n_loops++;
  TRY(statements(p, ends, &n->list, &n->n));
  p->n_loops--;
  bool has_else = is_word(p, "else");
  advance(p);
  if (has_else) {
    TRY(statements(p, ends2, &n->list2, &n->n2));
    advance(p);
  }
  *out = n;
  return NULL;
}

static Err *parse_if(Parser *p, Node **out) {
  static const char *const ends[] = {"elif", "else", "endif", NULL}, *const ends2[] = {"endif", NULL};
  Node *first = NULL, **slot = &first;
  for (;;) {
    Node *n = node_new(p, N_IF);
    TRY(tuple(p, (TupleRule){.no_cond = true}, &n->a));
    TRY(statements(p, ends, &n->list, &n->n));
    *slot = n;
    bool more = is_word(p, "elif"), has_else = is_word(p, "else");
    advance(p);
    if (more) { /* a long chain of elif is a list, not a nest: see run_if */
      slot = &n->b;
      continue;
    }
    if (has_else) {
      TRY(statements(p, ends2, &n->list2, &n->n2));
      advance(p);
    }
    *out = first;
    return NULL;
  }
}

static Err *parse_with(Parser *p, Node **out) {
  static const char *const ends[] = {"endwith", NULL};
  Node *n = node_new(p, N_WITH), *values = node_new(p, N_LIST), *targets = node_new(p, N_LIST), *x;
  int cap = 0, cap2 = 0;
  while (p->tok->kind != TK_BLOCK_END) {
    if (targets->n) TRY(expect(p, TK_COMMA));
    TRY(target(p, NULL, false, &x));
    add(p, targets, &cap, x);
    TRY(expect(p, TK_ASSIGN));
    TRY(expression(p, true, &x));
    add(p, values, &cap2, x);
  }
  n->a = targets;
  n->b = values;
  TRY(statements(p, ends, &n->list, &n->n));
  advance(p);
  *out = n;
  return NULL;
}

/* Parameters of macros and call blocks; n counts them in `names`, defaults are the last n2 of them. */
static Err *signature(Parser *p, Node *n, int *n_params) {
  int cap = 0, cap2 = 0;
  *n_params = 0;
  TRY(expect(p, TK_LPAREN));
  while (p->tok->kind != TK_RPAREN) {
    if (*n_params) TRY(expect(p, TK_COMMA));
    const char *param;
    TRY(expect_name(p, &param));
    if (skip(p, TK_ASSIGN)) {
      Node *v;
      TRY(expression(p, true, &v));
      PUSH(p->a, n->list2, n->n2, cap2, v);
    } else if (n->n2) {
      return bad_at(p->tok->line, "non-default argument follows default argument");
    }
    PUSH(p->a, n->names, *n_params, cap, param);
  }
  return expect(p, TK_RPAREN);
}

/* The body of a macro is a function of its own: loops outside cannot be left from inside. */
static Err *macro_body(Parser *p, Node *n, const char *end) {
  const char *const ends[] = {end, NULL};
  int loops = p->n_loops;
  p->n_loops = 0;
  TRY(statements(p, ends, &n->list, &n->n));
  p->n_loops = loops;
  advance(p);
  return NULL;
}

static Err *macro_enter(Parser *p, Node *n) {
  if (p->n_macros == MAX_NEST) return bad_at(n->line, "nested too deep");
  p->macros[p->n_macros++] = n;
  return NULL;
}

static Err *parse_macro(Parser *p, Node **out) {
  Node *n = node_new(p, N_MACRO);
  int n_params;
  TRY(expect_name(p, &n->name));
  TRY(macro_enter(p, n));
  TRY(signature(p, n, &n_params));
  TRY(macro_body(p, n, "endmacro"));
  p->n_macros--;
  n->value = (Val){.kind = V_INT, .u.i = n_params};
  *out = n;
  return NULL;
}

static Err *parse_call(Parser *p, Node **out) {
  Node *n = node_new(p, N_CALLBLOCK), *m = node_new(p, N_MACRO);
  int n_params = 0;
  m->name = "caller";
  TRY(macro_enter(p, m));
  if (p->tok->kind == TK_LPAREN) TRY(signature(p, m, &n_params));
  p->n_macros--;
  TRY(expression(p, true, &n->a));
  if (n->a->kind != N_CALL) return bad_at(n->line, "expected call");
  TRY(macro_enter(p, m));
  TRY(macro_body(p, m, "endcall"));
  p->n_macros--;
  m->value = (Val){.kind = V_INT, .u.i = n_params};
  n->b = m;
  *out = n;
  return NULL;
}

static Err *parse_filter(Parser *p, Node **out) {
  static const char *const ends[] = {"endfilter", NULL};
  Node *n = node_new(p, N_FILTERBLOCK);
  TRY(filter(p, NULL, &n->b));
  int chain = 0;
  while (skip(p, TK_PIPE)) {
    if (++chain > MAX_NEST) return bad_at(p->tok->line, "chain too long");
    TRY(filter(p, n->b, &n->b));
  }
  TRY(statements(p, ends, &n->list, &n->n));
  advance(p);
  *out = n;
  return NULL;
}

static Err *parse_autoescape(Parser *p, Node **out) {
  static const char *const ends[] = {"endautoescape", NULL};
  Node *n = node_new(p, N_AUTOESCAPE);
  TRY(expression(p, true, &n->a));
  TRY(statements(p, ends, &n->list, &n->n));
  advance(p);
  *out = n;
  return NULL;
}

static Err *parse_block(Parser *p, Node **out) {
  Node *n = node_new(p, N_BLOCK);
  TRY(expect_name(p, &n->name));
  n->flag = skip_word(p, "scoped");
  if (skip_word(p, "required")) return bad_at(n->line, "required blocks need another template, and there is none");
  TRY(macro_body(p, n, "endblock"));
  if (p->tok->kind == TK_NAME && p->tok->name == n->name) advance(p);
  *out = n;
  return NULL;
}

static Err *parse_generation(Parser *p, Node **out) {
  Node *n = node_new(p, N_SCOPE);
  TRY(macro_body(p, n, "endgeneration"));
  *out = n;
  return NULL;
}

static Err *parse_print(Parser *p, Node **out) {
  Node *n = node_new(p, N_PRINT);
  int cap = 0;
  while (p->tok->kind != TK_BLOCK_END) {
    Node *v;
    if (n->n) TRY(expect(p, TK_COMMA));
    TRY(expression(p, true, &v));
    add(p, n, &cap, v);
  }
  *out = n;
  return NULL;
}

static Err *parse_jump(Parser *p, NodeKind kind, Node **out) {
  *out = node_new(p, kind);
  return p->n_loops ? NULL : bad_at(p->tok->line, "outside a loop");
}
static Err *parse_break(Parser *p, Node **out) { return parse_jump(p, N_BREAK, out); }
static Err *parse_continue(Parser *p, Node **out) { return parse_jump(p, N_CONTINUE, out); }

/* include, import, from, extends: legal to write, an error when reached, since there are no other templates. */
static Err *parse_loader(Parser *p, Node **out) {
  *out = node_new(p, N_LOADER);
  Node *ignored;
  TRY(expression(p, true, &ignored));
  while (p->tok->kind == TK_NAME || p->tok->kind == TK_COMMA) advance(p);
  return NULL;
}

static const struct { const char *word; Err *(*parse)(Parser *, Node **); } tags[] = {
  {"set", parse_set}, {"for", parse_for}, {"if", parse_if}, {"macro", parse_macro}, {"call", parse_call}, {"filter", parse_filter}, {"with", parse_with},
  {"block", parse_block}, {"print", parse_print}, {"autoescape", parse_autoescape}, {"generation", parse_generation}, {"break", parse_break},
  {"continue", parse_continue}, {"include", parse_loader}, {"import", parse_loader}, {"from", parse_loader}, {"extends", parse_loader}};

static Err *statement(Parser *p, Node **out) {
  if (p->tok->kind != TK_NAME) return bad_at(p->tok->line, "tag name expected");
  for (size_t i = 0; i < COUNT_OF(tags); i++)
    if (is_word(p, tags[i].word)) {
      TRY(deeper(p));
      advance(p);
      TRY(tags[i].parse(p, out));
      p->depth--;
      return NULL;
    }
  return err_new(ERR_SYNTAX, "template line %d: encountered unknown tag '%s'", p->tok->line, p->tok->name);
}

/* A body up to (not including) one of the end words; the caller takes the word. */
static Err *statements(Parser *p, const char *const *ends, Node ***list, int *n) {
  skip(p, TK_COLON);
  TRY(expect(p, TK_BLOCK_END));
  TRY(subparse(p, ends, list, n));
  if (p->tok->kind == TK_EOF) return err_new(ERR_SYNTAX, "template line %d: unexpected end of template, expected '%s'", p->tok->line, ends[0]);
  return NULL;
}

static Err *subparse(Parser *p, const char *const *ends, Node ***list, int *n) {
  int cap = 0;
  while (p->tok->kind != TK_EOF) {
    Node *x;
    if (p->tok->kind == TK_DATA) {
      x = node_new(p, N_DATA);
      x->value = p->tok->value;
      advance(p);
    } else if (skip(p, TK_VAR_BEGIN)) {
      x = node_new(p, N_PRINT);
      int one = 0;
      Node *v;
      TRY(tuple(p, (TupleRule){0}, &v));
      add(p, x, &one, v);
      TRY(expect(p, TK_VAR_END));
    } else {
      TRY(expect(p, TK_BLOCK_BEGIN));
      for (int i = 0; ends && ends[i]; i++)
        if (is_word(p, ends[i])) return NULL;
      TRY(statement(p, &x));
      TRY(expect(p, TK_BLOCK_END));
    }
    PUSH(p->a, *list, *n, cap, x);
  }
  return NULL;
}

/* Unknown filters and tests. soft: inside an if, where they may stay unless they run. */
static Err *check(const Node *n, bool soft);

static Err *check_all(Node *const *list, int n, bool soft) {
  for (int i = 0; i < n; i++) TRY(check(list[i], soft));
  return NULL;
}

static Err *check_parts(const Node *n, bool head, bool body) {
  TRY(check(n->a, head));
  TRY(check(n->b, head));
  TRY(check(n->c, head));
  TRY(check_all(n->list, n->n, body));
  return check_all(n->list2, n->n2, body);
}

static Err *check(const Node *n, bool soft) {
  if (!n) return NULL;
  switch (n->kind) {
    case N_FILTER:
      if (!soft && !text_filter_row(n->name)) return err_new(ERR_SYNTAX, "template line %d: no filter named '%s'", n->line, n->name);
      return check_parts(n, soft, soft);
    case N_TEST:
      if (!soft && !text_test_row(n->name)) return err_new(ERR_SYNTAX, "template line %d: no test named '%s'", n->line, n->name);
      return check_parts(n, soft, soft);
    case N_IF:
      for (; n; n = n->b) {
        TRY(check(n->a, true));
        TRY(check_all(n->list, n->n, true));
        TRY(check_all(n->list2, n->n2, true));
      }
      return NULL;
    case N_COND: return check_parts(n, true, true);
    case N_FOR:
      TRY(check(n->b, soft));
      TRY(check(n->c, false));
      TRY(check_all(n->list, n->n, false));
      return check_all(n->list2, n->n2, false);
    case N_SETBLOCK: case N_FILTERBLOCK: case N_MACRO: case N_BLOCK: case N_SCOPE: case N_AUTOESCAPE: return check_parts(n, false, false);
    case N_CALLBLOCK: case N_WITH: return check_parts(n, soft, false);
    default: return check_parts(n, soft, soft);
  }
}

Err *text_template_tree(Arena *a, const char *src, size_t n, TextTemplate **out) {
  TextTemplate *t = ARENA_NEW(a, TextTemplate);
  Parser p = {.a = a, .names = &t->names};
  Token *tok;
  int n_tok;
  TRY(text_template_lex(a, &t->names, src, n, &tok, &n_tok));
  p.tok = tok;
  TRY(subparse(&p, NULL, &t->body, &t->n));
  TRY(check_all(t->body, t->n, false));
  *out = t;
  return NULL;
}
