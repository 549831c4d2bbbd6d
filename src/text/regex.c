/* Regular expressions as JSON Schema means them: ECMA-262 with Unicode. In: UTF-8 text. Out: an expression tree; its anchors are symbols of
   their own (SYM_BEGIN, SYM_END), so that ^ and $ may stand anywhere: the text is read as BEGIN text END, and the marks are taken off the
   automaton again. What no automaton of ours can say (back references, look-around, word boundaries) is refused by name. The parser
   recurses once for each open parenthesis, at most GR_NEST_MAX deep. */
#include <string.h>
#include "text/grammar_priv.h"
#include "text/priv.h"

Re *grammar_re_new(GrWork *w, ReKind kind) {
  Re *re = ARENA_NEW(w->a, Re);
  re->kind = kind;
  return re;
}

Re *grammar_re_add(GrWork *w, Re *parent, Re *kid) {
  PUSH(w->a, parent->kid, parent->n_kids, parent->cap, kid);
  return parent;
}

Re *grammar_re_repeat(GrWork *w, Re *kid, int min, int max) {
  Re *re = grammar_re_add(w, grammar_re_new(w, RE_REPEAT), kid);
  re->min = min;
  re->max = max;
  return re;
}

Re *grammar_re_range(GrWork *w, uint32_t lo, uint32_t hi) {
  Re *re = grammar_re_new(w, RE_SET);
  SymSet *s = ARENA_NEW(w->a, SymSet);
  grammar_set_add(w, s, lo, hi);
  re->set = s;
  return re;
}

Re *grammar_re_text(GrWork *w, const char *utf8, size_t n) {
  Re *re = grammar_re_new(w, RE_CAT);
  for (const char *p = utf8, *end = utf8 + n; p < end;) {
    int32_t cp;
    p += text_utf8_next(p, end, &cp);
    grammar_re_add(w, re, grammar_re_range(w, cp < 0 ? 0xFFFD : (uint32_t)cp, cp < 0 ? 0xFFFD : (uint32_t)cp));
  }
  return re;
}

typedef struct Parser { GrWork *w; const char *start, *p, *end; int depth; } Parser;

static Err *fail(const Parser *s, const char *what) {
  return err_new(ERR_SYNTAX, "regular expression, byte %zu: %s", (size_t)(s->p - s->start), what);
}
static Err *refuse(const Parser *s, const char *what) {
  return err_new(ERR_UNSUPPORTED, "regular expression, byte %zu: %s is not supported", (size_t)(s->p - s->start), what);
}
static int peek(const Parser *s, int k) { return s->end - s->p > k ? (uint8_t)s->p[k] : -1; }

/* After \u: XXXX, a pair of surrogates, or {X..}. */
static Err *parse_u(Parser *s, uint32_t *cp) {
  int64_t v, low;
  if (peek(s, 0) == '{') {
    int n = 0;
    while (n < 8 && text_digit(peek(s, n + 1)) < 16) n++;
    v = n ? text_hex(s->p + 1, s->end, n) : -1;
    if (v < 0 || peek(s, n + 1) != '}' || v > SYM_MAX_CHAR) return fail(s, "\\u{..} needs a code point in hexadecimal");
    s->p += n + 2;
    *cp = (uint32_t)v;
    return NULL;
  }
  v = text_hex(s->p, s->end, 4);
  if (v < 0) return fail(s, "\\u needs four hexadecimal digits");
  s->p += 4;
  if (v >= 0xD800 && v < 0xDC00 && peek(s, 0) == '\\' && peek(s, 1) == 'u' && (low = text_hex(s->p + 2, s->end, 4)) >= 0xDC00 && low < 0xE000) {
    v = 0x10000 + ((v - 0xD800) << 10) + (low - 0xDC00);
    s->p += 6;
  }
  *cp = (uint32_t)v;
  return NULL;
}

static const struct { const char *brief, *whole; unsigned bits; } categories[] = {
#define CATEGORY(brief, whole, bits) {brief, whole, bits},
#include "text/regex_classes.def"
#undef CATEGORY
};

/* Bits of UTF8PROC_CATEGORY_*; 0: no such category. */
static unsigned category(const char *name) {
  for (size_t i = 0; i < COUNT_OF(categories); i++) if (!strcmp(name, categories[i].brief) || !strcmp(name, categories[i].whole)) return categories[i].bits;
  return 0;
}

/* Names of properties that have values; what stands in braces without one is a category or a script. */
typedef enum PropertyKind { OF_CATEGORY, OF_SCRIPT, OF_EXTENSIONS } PropertyKind;
static const struct { const char *name; PropertyKind kind; } properties[] = {
  {"General_Category=", OF_CATEGORY}, {"gc=", OF_CATEGORY}, {"Script=", OF_SCRIPT}, {"sc=", OF_SCRIPT}, {"Script_Extensions=", OF_EXTENSIONS}, {"scx=", OF_EXTENSIONS},
};
static const int property_work[] = {[OF_CATEGORY] = 20000, [OF_SCRIPT] = 30000, [OF_EXTENSIONS] = 30000};

/* Made once for a compile: each asks about every code point, and a schema has the same ones in many patterns. */
struct GrProperty { PropertyKind kind; const char *value; SymSet set; GrProperty *next; };

static bool category_set(GrWork *w, const char *name, SymSet *set) {
  unsigned bits = category(name);
  for (int32_t cp = 0, from = -1; bits && cp <= SYM_MAX_CHAR + 1; cp++) {
    bool in = cp <= SYM_MAX_CHAR && (bits >> text_char_category(cp) & 1);
    if (in && from < 0) from = cp;
    if (!in && from >= 0) { grammar_set_add(w, set, (uint32_t)from, (uint32_t)cp - 1); from = -1; }
  }
  return bits;
}

static Err *property(Parser *s, PropertyKind kind, const char *value, SymSet *out) {
  GrProperty *p = s->w->properties;
  TRY(grammar_work_spend(s->w, property_work[kind]));
  while (p && (p->kind != kind || strcmp(p->value, value))) p = p->next;
  if (!p) {
    SymSet set = {0};
    if (!(kind == OF_CATEGORY ? category_set(s->w, value, &set) : grammar_script(s->w, value, kind == OF_EXTENSIONS, &set))) return refuse(s, "this Unicode property");
    p = ARENA_NEW(s->w->a, GrProperty);
    *p = (GrProperty){kind, arena_dup(s->w->a, value), set, s->w->properties};
    s->w->properties = p;
  }
  *out = p->set;
  return NULL;
}

static void ranges_add(GrWork *w, SymSet *to, const SymRange *r, int n, bool negated) {
  SymSet own = {0};
  for (int i = 0; i < n; i++) grammar_set_add(w, negated ? &own : to, r[i].lo, r[i].hi);
  if (!negated) return;
  grammar_set_invert(w, &own);
  ranges_add(w, to, own.r, own.n, false);
}

/* \p{Name}, \p{General_Category=Name}, \p{Script=Name}, \P{..}; s->p stands at the brace. */
static Err *parse_property(Parser *s, bool negated, SymSet *set) {
  char name[64];
  size_t n = 0;
  const char *p = s->p, *value = name;
  if (peek(s, 0) != '{') return fail(s, "\\p needs {a property}");
  for (p++; p < s->end && *p != '}' && n + 1 < sizeof name; p++) name[n++] = *p;
  if (p == s->end || *p != '}') return fail(s, "\\p needs {a property}");
  name[n] = 0;
  PropertyKind kind = category(name) ? OF_CATEGORY : OF_SCRIPT;
  for (size_t i = 0; i < COUNT_OF(properties); i++) {
    size_t k = strlen(properties[i].name);
    if (strncmp(name, properties[i].name, k)) continue;
    kind = properties[i].kind;
    value = name + k;
  }
  if (value == name && strchr(name, '=')) return refuse(s, "a property other than General_Category, Script and Script_Extensions");
  bool ascii = !strcmp(name, "ASCII");
  SymRange all = {0, ascii ? 0x7F : SYM_MAX_CHAR};
  SymSet own = {&all, 1, 1};
  if (!ascii && strcmp(name, "Any")) TRY(property(s, kind, value, &own));
  s->p = p + 1;
  ranges_add(s->w, set, own.r, own.n, negated);
  return NULL;
}

static void add_shorthand(Parser *s, int c, SymSet *set) {
  static const SymRange digit[] = {{'0', '9'}}, word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
    space[] = {{9, 13}, {' ', ' '}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  int kind = c | 32;
  const SymRange *r = kind == 'd' ? digit : kind == 'w' ? word : space;
  size_t n = kind == 'd' ? COUNT_OF(digit) : kind == 'w' ? COUNT_OF(word) : COUNT_OF(space);
  ranges_add(s->w, set, r, (int)n, c < 'a');
}

/* After a backslash. Either one code point (*single) or a set added to set. */
static Err *parse_escape(Parser *s, bool in_class, SymSet *set, bool *single, uint32_t *cp) {
  int c = peek(s, 0);
  *single = true;
  if (c < 0) return fail(s, "a backslash at the end");
  if (strchr("dDwWsS", c) && c) { s->p++; *single = false; add_shorthand(s, c, set); return NULL; }
  if (c == 'p' || c == 'P') { s->p++; *single = false; return parse_property(s, c == 'P', set); }
  if (c == 'u') { s->p++; return parse_u(s, cp); }
  if (c == 'x') {
    int64_t v = text_hex(++s->p, s->end, 2);
    if (v < 0) return fail(s, "\\x needs two hexadecimal digits");
    s->p += 2;
    *cp = (uint32_t)v;
    return NULL;
  }
  if (c == 'c') {
    int l = peek(s, 1) | 32;
    if (l < 'a' || l > 'z') return fail(s, "\\c needs a letter");
    *cp = (uint32_t)l & 31;
    s->p += 2;
    return NULL;
  }
  if (c == '0' && (peek(s, 1) < '0' || peek(s, 1) > '9')) { s->p++; *cp = 0; return NULL; }
  if ((c >= '0' && c <= '9') || c == 'k') return refuse(s, "a back reference");
  if (c == 'b' && in_class) { s->p++; *cp = 8; return NULL; }
  if (c == 'b' || c == 'B') return refuse(s, "a word boundary");
  static const char from[] = "tnvfr", to[] = "\t\n\v\f\r";
  const char *k = c ? strchr(from, c) : NULL;
  if (k) { s->p++; *cp = (uint8_t)to[k - from]; return NULL; }
  if ((c | 32) >= 'a' && (c | 32) <= 'z') return fail(s, "an unknown escape");
  int32_t lit;
  s->p += text_utf8_next(s->p, s->end, &lit);
  if (lit < 0) return fail(s, "broken UTF-8");
  *cp = (uint32_t)lit;
  return NULL;
}

static Err *class_atom(Parser *s, SymSet *set, bool *single, uint32_t *cp) {
  if (peek(s, 0) == '\\') { s->p++; return parse_escape(s, true, set, single, cp); }
  int32_t c;
  s->p += text_utf8_next(s->p, s->end, &c);
  if (c < 0) return fail(s, "broken UTF-8");
  *single = true;
  *cp = (uint32_t)c;
  return NULL;
}

static Err *parse_class(Parser *s, Re **out) {
  SymSet *set = ARENA_NEW(s->w->a, SymSet);
  bool negated = peek(s, 0) == '^';
  if (negated) s->p++;
  while (peek(s, 0) != ']') {
    bool single, also;
    uint32_t lo, hi;
    if (s->p == s->end) return fail(s, "[ without ]");
    TRY(grammar_work_spend(s->w, 2));
    TRY(class_atom(s, set, &single, &lo));
    if (peek(s, 0) == '-' && peek(s, 1) != ']' && peek(s, 1) >= 0) {
      s->p++;
      TRY(class_atom(s, set, &also, &hi));
      if (single && also) {
        if (hi < lo) return fail(s, "a range that runs backwards");
        grammar_set_add(s->w, set, lo, hi);
      } else {
        grammar_set_add(s->w, set, '-', '-');
        if (single) grammar_set_add(s->w, set, lo, lo);
        if (also) grammar_set_add(s->w, set, hi, hi);
      }
    } else if (single) {
      grammar_set_add(s->w, set, lo, lo);
    }
  }
  s->p++;
  if (negated) grammar_set_invert(s->w, set);
  else grammar_set_normalize(set);
  *out = grammar_re_new(s->w, RE_SET);
  (*out)->set = set;
  return NULL;
}

static Err *parse_alternatives(Parser *s, Re **out);

static Err *parse_group(Parser *s, Re **out) {
  if (++s->depth > GR_NEST_MAX) return err_new(ERR_LIMIT, "regular expression: parentheses nested more than %d deep", GR_NEST_MAX);
  if (peek(s, 0) == '?') {
    if (peek(s, 1) == ':') s->p += 2;
    else if (peek(s, 1) == '=' || peek(s, 1) == '!') return refuse(s, "look-ahead");
    else if (peek(s, 1) == '<' && (peek(s, 2) == '=' || peek(s, 2) == '!')) return refuse(s, "look-behind");
    else if (peek(s, 1) == '<') {
      s->p += 2;
      while (s->p < s->end && *s->p != '>') s->p++;
      if (s->p == s->end) return fail(s, "a group's name without >");
      s->p++;
    } else {
      return fail(s, "an unknown kind of group");
    }
  }
  TRY(parse_alternatives(s, out));
  if (peek(s, 0) != ')') return fail(s, "( without )");
  s->p++;
  s->depth--;
  return NULL;
}

static Re *mark(GrWork *w, uint32_t sym) { return grammar_re_range(w, sym, sym); }

static Err *parse_atom(Parser *s, Re **out) {
  int c = peek(s, 0);
  bool single;
  uint32_t cp;
  if (c == '(') { s->p++; return parse_group(s, out); }
  if (c == '[') { s->p++; return parse_class(s, out); }
  if (c == '^') { s->p++; *out = mark(s->w, SYM_BEGIN); return NULL; }
  if (c == '$') { s->p++; *out = mark(s->w, SYM_END); return NULL; }
  if (c == '*' || c == '+' || c == '?') return fail(s, "nothing to repeat");
  SymSet *set = ARENA_NEW(s->w->a, SymSet);
  if (c == '.') {
    s->p++;
    grammar_set_add(s->w, set, '\n', '\n');
    grammar_set_add(s->w, set, '\r', '\r');
    grammar_set_add(s->w, set, 0x2028, 0x2029);
    grammar_set_invert(s->w, set);
  } else {
    if (c == '\\') { s->p++; TRY(parse_escape(s, false, set, &single, &cp)); }
    else TRY(class_atom(s, set, &single, &cp));
    if (single) grammar_set_add(s->w, set, cp, cp);
    grammar_set_normalize(set);
  }
  *out = grammar_re_new(s->w, RE_SET);
  (*out)->set = set;
  return NULL;
}

/* {n}, {n,} or {n,m} at s->p: moves past it. Numbers saturate: the budget refuses them later. */
static bool parse_braces(Parser *s, int *min, int *max) {
  const char *p = s->p + 1;
  int v[2] = {0, -1}, n[2] = {0, 0}, k = 0;
  for (; p < s->end && *p != '}'; p++) {
    if (*p == ',' && !k) { k = 1; continue; }
    if (*p < '0' || *p > '9') return false;
    v[k] = MIN(MAX(v[k], 0) * 10LL + (*p - '0'), 1000000000);
    n[k]++;
  }
  if (p == s->end || !n[0]) return false;
  *min = v[0];
  *max = k ? v[1] : v[0];
  s->p = p + 1;
  return true;
}

static Err *parse_quantified(Parser *s, Re **out) {
  TRY(parse_atom(s, out));
  TRY(grammar_work_spend(s->w, 10));
  int c = peek(s, 0), min = 0, max = -1;
  if (c == '*') s->p++;
  else if (c == '+') { s->p++; min = 1; }
  else if (c == '?') { s->p++; max = 1; }
  else if (c != '{' || !parse_braces(s, &min, &max)) return NULL;
  if (max >= 0 && max < min) return fail(s, "a repetition whose bounds are swapped");
  if (peek(s, 0) == '?') s->p++;
  *out = grammar_re_repeat(s->w, *out, min, max);
  return NULL;
}

static Err *parse_alternatives(Parser *s, Re **out) {
  Re *alt = grammar_re_new(s->w, RE_ALT), *cat = grammar_re_new(s->w, RE_CAT);
  for (; s->p < s->end && *s->p != ')';) {
    if (*s->p == '|') {
      s->p++;
      grammar_re_add(s->w, alt, cat);
      cat = grammar_re_new(s->w, RE_CAT);
      continue;
    }
    Re *kid;
    TRY(parse_quantified(s, &kid));
    grammar_re_add(s->w, cat, kid);
  }
  *out = alt->n_kids ? grammar_re_add(s->w, alt, cat) : cat;
  return NULL;
}

Err *grammar_re_parse(GrWork *w, const char *re, size_t n, Re **out) {
  Parser s = {.w = w, .start = re, .p = re, .end = re + n};
  TRY(parse_alternatives(&s, out));
  if (s.p < s.end) return fail(&s, ") without (");
  return NULL;
}

static Re *optional(GrWork *w, Re *a, Re *b) {
  Re *cat = grammar_re_add(w, grammar_re_new(w, RE_CAT), a);
  return grammar_re_repeat(w, b ? grammar_re_add(w, cat, b) : cat, 0, 1);
}
static Re *anything(GrWork *w) {
  SymSet *s = ARENA_NEW(w->a, SymSet);
  grammar_set_invert(w, s);
  Re *re = grammar_re_new(w, RE_SET);
  re->set = s;
  return grammar_re_repeat(w, re, 0, -1);
}

/* The automaton of BEGIN text END -> that of text. */
static Dfa *strip_marks(GrWork *w, const Dfa *d) {
  int start = -1;
  for (int i = 0; i < d->st[0].n_edges; i++)
    if (d->st[0].edge[i].lo <= SYM_BEGIN && d->st[0].edge[i].hi >= SYM_BEGIN) start = d->st[0].edge[i].to;
  if (start < 0) return grammar_dfa_empty(w);
  Dfa *out = ARENA_NEW(w->a, Dfa);
  out->st = ARENA_ARRAY(w->a, DfaState, d->n);
  out->n = out->cap = d->n;
  for (int i = 0; i < d->n; i++) { /* states 0 and start change places */
    const DfaState *from = &d->st[i];
    DfaState *to = &out->st[i == start ? 0 : i == 0 ? start : i];
    to->tag = -1;
    to->edge = ARENA_ARRAY(w->a, DfaEdge, from->n_edges + 1);
    for (int k = 0; k < from->n_edges; k++) {
      DfaEdge e = from->edge[k];
      if (e.lo <= SYM_END && e.hi >= SYM_END && d->st[e.to].tag >= 0) to->tag = 0;
      if (e.lo > SYM_MAX_CHAR) continue;
      e.hi = MIN(e.hi, SYM_MAX_CHAR);
      e.to = e.to == start ? 0 : e.to == 0 ? start : e.to;
      to->edge[to->n_edges++] = e;
    }
    to->cap = from->n_edges + 1;
  }
  return out;
}

Err *grammar_regex_dfa(GrWork *w, const char *re, size_t n, bool search, Dfa **out) {
  Re *p;
  Dfa *marked;
  TRY(grammar_re_parse(w, re, n, &p));
  Re *all = grammar_re_new(w, RE_CAT);
  grammar_re_add(w, all, optional(w, mark(w, SYM_BEGIN), search ? anything(w) : NULL));
  grammar_re_add(w, all, p);
  grammar_re_add(w, all, search ? optional(w, anything(w), mark(w, SYM_END)) : optional(w, mark(w, SYM_END), NULL));
  TRY(grammar_dfa_from_re(w, all, &marked));
  Dfa *d = strip_marks(w, marked);
  TRY(grammar_dfa_minimize(w, d));
  *out = d;
  return NULL;
}
