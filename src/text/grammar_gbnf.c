/* llama.cpp's GBNF. In: the text. Out: a grammar whose start is the rule `root`. A rule becomes an expression tree in which a call is one more
   symbol; small rules that do not call themselves are copied into their callers, so that automata span what tokens span. Nesting is
   bounded by GR_NEST_MAX, the number of rules by RULES_MAX; left recursion is refused by grammar_finish. */
#include <string.h>
#include "text/grammar_priv.h"
#include "text/priv.h"

enum { RULES_MAX = 20000, INLINE_MAX = 100, CALLER_MAX = 4000, INLINE_ROUNDS = 12 };
typedef struct Rule { const char *name; size_t n_name; Re *re; int line; bool defined, calls, wanted; int64_t size; } Rule;
typedef struct Gbnf {
  GrWork *w;
  const char *p, *end, *start;
  Rule *rule; int n_rules, cap_rules;
  int *slot; uint32_t mask;
  int depth;
} Gbnf;

static int line_of(const Gbnf *s) {
  int n = 1;
  for (const char *p = s->start; p < s->p; p++) n += *p == '\n';
  return n;
}
static Err *fail(const Gbnf *s, const char *what) { return err_new(ERR_SYNTAX, "GBNF, line %d: %s", line_of(s), what); }
static int peek(const Gbnf *s) { return s->p < s->end ? (uint8_t)*s->p : -1; }
static bool is_name(int c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; }

static void space(Gbnf *s, bool newlines) {
  for (; s->p < s->end; s->p++) {
    int c = *s->p;
    if (c == '#') {
      while (s->p < s->end && *s->p != '\n') s->p++;
      if (s->p == s->end) return;
      c = '\n';
    }
    if (c != ' ' && c != '\t' && c != '\r' && !(newlines && c == '\n')) return;
  }
}

static Err *rule_index(Gbnf *s, const char *name, size_t n, int *out) {
  if (2u * (uint32_t)s->n_rules >= s->mask) {
    s->mask = s->mask ? s->mask * 2 + 1 : 63;
    s->slot = ARENA_ARRAY(s->w->a, int, s->mask + 1);
    for (int i = 0; i < s->n_rules; i++) {
      uint32_t k = (uint32_t)hash_bytes(s->rule[i].name, s->rule[i].n_name, 3) & s->mask;
      while (s->slot[k]) k = (k + 1) & s->mask;
      s->slot[k] = i + 1;
    }
  }
  uint32_t k = (uint32_t)hash_bytes(name, n, 3) & s->mask;
  for (; s->slot[k]; k = (k + 1) & s->mask) {
    const Rule *r = &s->rule[s->slot[k] - 1];
    if (r->n_name == n && !memcmp(r->name, name, n)) { *out = s->slot[k] - 1; return NULL; }
  }
  if (s->n_rules == RULES_MAX) return err_new(ERR_LIMIT, "GBNF: more than %d rules", RULES_MAX);
  PUSH(s->w->a, s->rule, s->n_rules, s->cap_rules, (Rule){.name = arena_dup_n(s->w->a, name, n), .n_name = n, .line = line_of(s)});
  s->slot[k] = s->n_rules;
  *out = s->n_rules - 1;
  return NULL;
}

/* One character of a literal or a class. */
static Err *character(Gbnf *s, uint32_t *out) {
  int32_t cp;
  if (peek(s) != '\\') {
    s->p += text_utf8_next(s->p, s->end, &cp);
    if (cp < 0) return fail(s, "broken UTF-8");
    *out = (uint32_t)cp;
    return NULL;
  }
  s->p++;
  int c = peek(s), n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (c < 0) return fail(s, "a backslash at the end");
  s->p++;
  if (n) {
    uint32_t v = 0;
    for (int i = 0; i < n; i++, s->p++) {
      int d = text_digit(peek(s));
      if (d >= 16) return fail(s, "an escape needs two, four or eight hexadecimal digits (\\x, \\u, \\U)");
      v = v << 4 | (uint32_t)d;
    }
    if (v > SYM_MAX_CHAR || (v >= 0xD800 && v < 0xE000)) return fail(s, "an escape that is no code point");
    *out = v;
    return NULL;
  }
  static const char from[] = "tnr\\\"[]^-", to[] = "\t\n\r\\\"[]^-";
  const char *k = strchr(from, c);
  if (!k || !c) return fail(s, "an unknown escape");
  *out = (uint8_t)to[k - from];
  return NULL;
}

static Err *literal(Gbnf *s, Re **out) {
  *out = grammar_re_new(s->w, RE_CAT);
  s->p++;
  while (peek(s) != '"') {
    uint32_t cp;
    if (peek(s) < 0 || peek(s) == '\n') return fail(s, "a literal without its closing quote");
    TRY(grammar_work_spend(s->w, 4));
    TRY(character(s, &cp));
    grammar_re_add(s->w, *out, grammar_re_range(s->w, cp, cp));
  }
  s->p++;
  return NULL;
}

static Err *class(Gbnf *s, Re **out) {
  SymSet *set = ARENA_NEW(s->w->a, SymSet);
  s->p++;
  bool negated = peek(s) == '^';
  if (negated) s->p++;
  while (peek(s) != ']') {
    uint32_t lo, hi;
    if (peek(s) < 0) return fail(s, "[ without ]");
    TRY(grammar_work_spend(s->w, 4));
    TRY(character(s, &lo));
    hi = lo;
    if (peek(s) == '-' && s->p + 1 < s->end && s->p[1] != ']') { s->p++; TRY(character(s, &hi)); }
    if (hi < lo) return fail(s, "a range that runs backwards");
    grammar_set_add(s->w, set, lo, hi);
  }
  s->p++;
  if (negated) grammar_set_invert(s->w, set);
  else grammar_set_normalize(set);
  *out = grammar_re_new(s->w, RE_SET);
  (*out)->set = set;
  return NULL;
}

static Err *alternatives(Gbnf *s, bool nested, Re **out);

static Err *item(Gbnf *s, Re **out) {
  int c = peek(s), index;
  if (c == '"') return literal(s, out);
  if (c == '[') return class(s, out);
  if (c == '.') {
    SymSet *set = ARENA_NEW(s->w->a, SymSet);
    s->p++;
    grammar_set_invert(s->w, set);
    *out = grammar_re_new(s->w, RE_SET);
    (*out)->set = set;
    return NULL;
  }
  if (c == '(') {
    s->p++;
    if (++s->depth > GR_NEST_MAX) return err_new(ERR_LIMIT, "GBNF, line %d: parentheses nested more than %d deep", line_of(s), GR_NEST_MAX);
    TRY(alternatives(s, true, out));
    s->depth--;
    if (peek(s) != ')') return fail(s, "( without )");
    s->p++;
    return NULL;
  }
  if (c == '<' || c == '!') return err_new(ERR_UNSUPPORTED, "GBNF, line %d: tokens in a grammar are not supported", line_of(s));
  const char *name = s->p;
  while (is_name(peek(s))) s->p++;
  if (s->p == name) return fail(s, "expected a literal, a class, a rule's name or (");
  TRY(rule_index(s, name, (size_t)(s->p - name), &index));
  *out = grammar_re_range(s->w, SYM_CALL + (uint32_t)index, SYM_CALL + (uint32_t)index);
  return NULL;
}

static Err *number(Gbnf *s, int *out) {
  int64_t v = 0;
  if (peek(s) < '0' || peek(s) > '9') return fail(s, "expected a number");
  for (; peek(s) >= '0' && peek(s) <= '9'; s->p++) v = MIN(v * 10 + (peek(s) - '0'), 1000000000);
  *out = (int)v;
  return NULL;
}

static Err *repetitions(Gbnf *s, bool nested, Re **re) {
  for (int n = 0;; n++) {
    space(s, nested);
    int c = peek(s), min = 0, max = -1;
    if (c != '*' && c != '+' && c != '?' && c != '{') return NULL;
    if (n > 8) return fail(s, "too many repetitions in a row");
    s->p++;
    if (c == '+') min = 1;
    if (c == '?') max = 1;
    if (c == '{') {
      space(s, nested);
      if (peek(s) != ',') TRY(number(s, &min));
      max = min;
      space(s, nested);
      if (peek(s) == ',') {
        s->p++;
        space(s, nested);
        max = -1;
        if (peek(s) != '}') TRY(number(s, &max));
        space(s, nested);
      }
      if (peek(s) != '}') return fail(s, "{ without }");
      s->p++;
      if (max >= 0 && max < min) return fail(s, "a repetition whose bounds are swapped");
    }
    *re = grammar_re_repeat(s->w, *re, min, max);
  }
}

static bool line_goes_on(Gbnf *s) { /* after a line's end outside parentheses: a | may stand first on the next */
  const char *p = s->p;
  space(s, true);
  if (peek(s) == '|') return true;
  s->p = p;
  return false;
}

static Err *alternatives(Gbnf *s, bool nested, Re **out) {
  Re *alt = grammar_re_new(s->w, RE_ALT), *cat = grammar_re_new(s->w, RE_CAT), *kid;
  for (;;) {
    TRY(grammar_work_spend(s->w, 4));
    space(s, nested);
    int c = peek(s);
    if (c == '|' || (c == '\n' && line_goes_on(s))) {
      s->p++;
      space(s, true);
      grammar_re_add(s->w, alt, cat);
      cat = grammar_re_new(s->w, RE_CAT);
      continue;
    }
    if (c < 0 || c == ')' || c == '\n') break;
    TRY(item(s, &kid));
    TRY(repetitions(s, nested, &kid));
    grammar_re_add(s->w, cat, kid);
  }
  *out = alt->n_kids ? grammar_re_add(s->w, alt, cat) : cat;
  return NULL;
}

static Err *parse(Gbnf *s) {
  for (space(s, true); s->p < s->end; space(s, true)) {
    const char *name = s->p;
    int index;
    while (is_name(peek(s))) s->p++;
    if (s->p == name) return fail(s, "expected a rule's name");
    TRY(rule_index(s, name, (size_t)(s->p - name), &index));
    space(s, false);
    if (s->end - s->p < 3 || memcmp(s->p, "::=", 3)) return fail(s, "expected ::=");
    s->p += 3;
    space(s, true);
    if (s->rule[index].defined) return err_new(ERR_SYNTAX, "GBNF, line %d: rule `%s` is defined twice", line_of(s), s->rule[index].name);
    Re *re;
    TRY(alternatives(s, false, &re));
    if (peek(s) == ')') return fail(s, ") without (");
    s->rule[index].re = re;
    s->rule[index].defined = true;
  }
  for (int i = 0; i < s->n_rules; i++)
    if (!s->rule[i].defined) return err_new(ERR_SYNTAX, "GBNF, line %d: rule `%s` is not defined", s->rule[i].line, s->rule[i].name);
  return NULL;
}

static int call_of(const Re *re) { return re->kind == RE_SET && re->set->n && re->set->r[0].lo >= SYM_CALL ? (int)(re->set->r[0].lo - SYM_CALL) : -1; }

/* How many positions an expression has once repetitions are written out (saturating), and whether it calls rules. */
static int64_t measure(const Re *re, bool *calls) {
  int64_t n = 1;
  if (call_of(re) >= 0) *calls = true;
  for (int i = 0; i < re->n_kids; i++) n += measure(re->kid[i], calls);
  if (re->kind == RE_REPEAT) n *= MAX(MAX(re->min, re->max), 1);
  return MIN(n, 1 << 30);
}

static void copy_in(Gbnf *s, Re *re, int64_t times, int64_t *room, bool *changed) {
  if (re->kind == RE_REPEAT) times = MIN(times * MAX(MAX(re->min, re->max), 1), 1 << 30);
  for (int i = 0; i < re->n_kids; i++) {
    int k = call_of(re->kid[i]);
    if (k < 0) { copy_in(s, re->kid[i], times, room, changed); continue; }
    const Rule *r = &s->rule[k];
    if (r->calls || r->size > INLINE_MAX || r->size * times > *room) continue;
    re->kid[i] = r->re;
    *room -= r->size * times;
    *changed = true;
  }
}

static Err *inline_rules(Gbnf *s) {
  bool changed = true;
  for (int round = 0; changed && round < INLINE_ROUNDS; round++) {
    changed = false;
    for (int i = 0; i < s->n_rules; i++) {
      Rule *r = &s->rule[i];
      r->calls = false;
      r->size = measure(r->re, &r->calls);
      TRY(grammar_work_spend(s->w, r->size < CALLER_MAX ? r->size : CALLER_MAX));
    }
    for (int i = 0; i < s->n_rules; i++) {
      int64_t room = CALLER_MAX - s->rule[i].size;
      if (s->rule[i].calls && room > 0) copy_in(s, s->rule[i].re, 1, &room, &changed);
    }
  }
  return NULL;
}

static void want(const Gbnf *s, const Re *re, int *todo, int *n) {
  int k = call_of(re);
  if (k >= 0 && !s->rule[k].wanted) { s->rule[k].wanted = true; todo[(*n)++] = k; }
  for (int i = 0; i < re->n_kids; i++) want(s, re->kid[i], todo, n);
}

static Err *compile(Grammar *g, Gbnf *s) {
  GrWork *w = s->w;
  int root = -1, *todo = ARENA_ARRAY(w->a, int, s->n_rules + 1), n_todo = 0;
  for (int i = 0; i < s->n_rules; i++) if (!strcmp(s->rule[i].name, "root")) root = i;
  if (root < 0) return err_new(ERR_SYNTAX, "GBNF: no rule `root`");
  TRY(inline_rules(s));
  for (int i = 0; i < s->n_rules; i++) grammar_rule_new(g, GR_AUTOMATON, s->rule[i].name);
  uint32_t dead = grammar_state_new(g, 0); /* where rules start that nothing calls */
  for (int i = 0; i < s->n_rules; i++) g->rule[i].start = dead;
  s->rule[root].wanted = true;
  todo[n_todo++] = root;
  while (n_todo) {
    int i = todo[--n_todo];
    Dfa *d;
    want(s, s->rule[i].re, todo, &n_todo);
    Err *e = grammar_dfa_from_re(w, s->rule[i].re, &d);
    if (e) return err_wrap(e, "GBNF, rule `%s`", s->rule[i].name);
    uint32_t *map = ARENA_ARRAY(w->a, uint32_t, d->n);
    GrEncode enc = {.mode = GR_ENC_RAW, .rule = (uint32_t)i};
    TRY(grammar_encode_dfa(g, w, d, &enc, map));
    g->rule[i].start = map[0];
  }
  g->root = (uint32_t)root;
  return grammar_finish(g, w);
}

Err *grammar_from_gbnf(const char *text, size_t n, Grammar **out) {
  GrWork w = {.a = arena_new("compile"), .left = GR_BUDGET};
  Gbnf s = {.w = &w, .p = text, .start = text, .end = text + n};
  Grammar *g = grammar_new();
  Err *e = parse(&s);
  if (!e) e = compile(g, &s);
  arena_free(w.a);
  if (e) grammar_free(g);
  else *out = g;
  return e;
}
