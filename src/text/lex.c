/* A Jinja template's text to tokens, with transformers' settings: trim_blocks, lstrip_blocks, one trailing newline dropped, \r\n as \n.
   In: UTF-8. Out: an array of tokens in the arena, ended by TK_EOF, or ERR_SYNTAX with the line. Linear in the text, but for the
   search of a raw block's end, which happens once per block. Source of the rules: Jinja2 3.1, its lexer's documented behaviour. */
#include <stdlib.h>
#include <string.h>
#include "text/priv.h"

typedef struct Lexer {
  Arena *a;
  Names *names;
  const char *p, *end;
  int line;
  Token *tok;
  int n, cap;
  char open[256];        /* brackets that wait for their partner */
  int n_open;
  bool line_starting;    /* the last thing read ended with a newline, or nothing was read */
} Lexer;

static const struct { const char *text; int n; } operators[] = {
#define OPERATOR(id, text) {text, sizeof(text) - 1},
#include "text/jinja_operators.def"
#undef OPERATOR
};
#define FIRST_OPERATOR ((int)TK_FLOAT + 1)

const char *text_token_name(TokenKind k) {
  static const char *const plain[] = {"end of template", "template data", "begin of print statement", "end of print statement", "begin of statement block", "end of statement block", "name", "string", "integer", "float"};
  return (int)k < FIRST_OPERATOR ? plain[k] : operators[(int)k - FIRST_OPERATOR].text;
}

const char *text_name(Arena *a, Names *names, const char *p, size_t n) {
  if (!names->slot || names->n * 2 >= names->mask) {
    Names old = *names;
    names->mask = old.slot ? old.mask * 2 + 1 : 255;
    names->slot = ARENA_ARRAY(a, const char *, (size_t)names->mask + 1);
    for (uint32_t i = 0; old.slot && i <= old.mask; i++) {
      if (!old.slot[i]) continue;
      uint32_t j = (uint32_t)hash_bytes(old.slot[i], strlen(old.slot[i]), 0) & names->mask;
      while (names->slot[j]) j = (j + 1) & names->mask;
      names->slot[j] = old.slot[i];
    }
  }
  uint32_t i = (uint32_t)hash_bytes(p, n, 0) & names->mask;
  for (; names->slot[i]; i = (i + 1) & names->mask)
    if (!strncmp(names->slot[i], p, n) && !names->slot[i][n]) return names->slot[i];
  names->n++;
  return names->slot[i] = arena_dup_n(a, p, n);
}

static Err *bad(const Lexer *l, const char *what) { return err_new(ERR_SYNTAX, "template line %d: %s", l->line, what); }
static void push(Lexer *l, TokenKind kind, Token t) {
  t.kind = kind;
  t.line = l->line;
  PUSH(l->a, l->tok, l->n, l->cap, t);
}

static void count_lines(Lexer *l, const char *from, const char *to) {
  for (; from < to; from++) l->line += *from == '\n';
}

static const char *skip_space(const char *p, const char *end) {
  while (p < end) {
    int32_t c;
    int k = text_utf8_next(p, end, &c);
    if (!text_char_is_pyspace(c)) break;
    p += k;
  }
  return p;
}

static const char *rstrip(const char *p, const char *end) {
  while (end > p) {
    const char *q = end - 1;
    while (q > p && ((uint8_t)*q & 0xC0) == 0x80) q--;
    int32_t c;
    text_utf8_next(q, end, &c);
    if (!text_char_is_pyspace(c)) break;
    end = q;
  }
  return end;
}

static void move_to(Lexer *l, const char *to) {
  l->line_starting = to > l->p ? to[-1] == '\n' : l->line_starting;
  count_lines(l, l->p, to);
  l->p = to;
}

/* The text before a tag, stripped as the tag's sign and lstrip_blocks say. */
static void push_data(Lexer *l, const char *from, const char *to, char sign, bool is_block) {
  const char *end = to;
  if (sign == '-') {
    end = rstrip(from, to);
  } else if (sign != '+' && is_block) {
    const char *nl = to;
    while (nl > from && nl[-1] != '\n') nl--;
    if ((nl > from || l->line_starting) && skip_space(nl, to) == to) end = nl;
  }
  if (end > from) push(l, TK_DATA, (Token){.value = val_own(l->a, val_str(l->a, from, (size_t)(end - from)))});
}

static bool starts(const Lexer *l, const char *p, const char *word) { return (size_t)(l->end - p) >= strlen(word) && !memcmp(p, word, strlen(word)); }

/* An end of tag at p: "-X" and the space after it, "+X", or X and (for blocks and comments) one newline. NULL: none here. */
static const char *tag_end(const Lexer *l, const char *p, const char *close, bool trim, bool plus) {
  if (starts(l, p, "-") && starts(l, p + 1, close)) return skip_space(p + 1 + strlen(close), l->end);
  if (plus && starts(l, p, "+") && starts(l, p + 1, close)) return p + 1 + strlen(close);
  if (!starts(l, p, close)) return NULL;
  p += strlen(close);
  return trim && p < l->end && *p == '\n' ? p + 1 : p;
}

static Err *lex_comment(Lexer *l) {
  for (const char *q = l->p; q < l->end; q++) {
    const char *after = tag_end(l, q, "#}", true, true);
    if (after) { move_to(l, after); return NULL; }
  }
  return bad(l, "missing end of comment tag");
}

/* "{% raw %}": where its data begins, or NULL. */
static const char *raw_begin(const Lexer *l, const char *p) {
  p += 2;
  if (p < l->end && (*p == '-' || *p == '+')) p++;
  p = skip_space(p, l->end);
  if (!starts(l, p, "raw")) return NULL;
  p = skip_space(p + 3, l->end);
  if (starts(l, p, "-%}")) return skip_space(p + 3, l->end);
  return starts(l, p, "%}") ? p + 2 : NULL;
}

static Err *lex_raw(Lexer *l) {
  for (const char *q = l->p; q < l->end; q++) {
    if (!starts(l, q, "{%")) continue;
    char sign = q + 2 < l->end && (q[2] == '-' || q[2] == '+') ? q[2] : 0;
    const char *w = skip_space(q + 2 + (sign != 0), l->end);
    if (!starts(l, w, "endraw")) continue;
    const char *after = tag_end(l, skip_space(w + 6, l->end), "%}", true, true);
    if (!after) continue;
    push_data(l, l->p, q, sign, true);
    move_to(l, after);
    return NULL;
  }
  return bad(l, "missing end of raw directive");
}

/* Literals. */
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static const char *digits(const char *p, const char *end) { /* (\d+_)*\d+ */
  const char *last = NULL;
  while (p < end && (is_digit(*p) || (*p == '_' && last == p))) {
    if (is_digit(*p)) last = p + 1;
    p++;
  }
  return last;
}

static const char *float_end(const Lexer *l, const char *p) {
  const char *q = digits(p, l->end), *f;
  bool real = false;
  if (!q) return NULL;
  if (q < l->end && *q == '.' && (f = digits(q + 1, l->end)) != NULL) { q = f; real = true; }
  if (q < l->end && (*q == 'e' || *q == 'E')) {
    const char *x = q + 1;
    if (x < l->end && (*x == '+' || *x == '-')) x++;
    if ((f = digits(x, l->end)) != NULL) { q = f; real = true; }
  }
  return real ? q : NULL;
}

static const char *radix_end(const char *p, const char *end, int base) {
  const char *last = NULL;
  for (p += 2; p < end;) {
    const char *d = *p == '_' ? p + 1 : p;
    if (d >= end || text_digit(*d) >= base) break;
    last = p = d + 1;
  }
  return last;
}

static Err *push_int(Lexer *l, const char *p, const char *end, int base) {
  Int128 v = 0;
  for (; p < end; p++) {
    if (*p == '_') continue;
    if (__builtin_mul_overflow(v, (Int128)base, &v) || __builtin_add_overflow(v, (Int128)text_digit(*p), &v)) return bad(l, "integer past 127 bits");
  }
  push(l, TK_INTEGER, (Token){.value = val_int(l->a, v)});
  return NULL;
}

static Err *lex_number(Lexer *l) {
  const char *p = l->p, *q = l->n && l->p[-1] == '.' ? NULL : float_end(l, p);
  if (q) {
    char *buf = arena_alloc(l->a, (size_t)(q - p) + 1), *w = buf;
    for (const char *c = p; c < q; c++)
      if (*c != '_') *w++ = *c;
    push(l, TK_FLOAT, (Token){.value = val_float(strtod(buf, NULL))});
    l->p = q;
    return NULL;
  }
  char x = p + 1 < l->end ? (char)(p[1] | 32) : 0;
  int base = *p == '0' && x == 'x' ? 16 : *p == '0' && x == 'o' ? 8 : *p == '0' && x == 'b' ? 2 : 10;
  if (base != 10 && (q = radix_end(p, l->end, base)) != NULL) {
    TRY(push_int(l, p + 2, q, base));
    l->p = q;
    return NULL;
  }
  for (q = p + 1; q < l->end;) { /* [1-9](_?\d)* or 0(_?0)* */
    const char *d = *q == '_' ? q + 1 : q;
    if (d >= l->end || !is_digit(*d) || (*p == '0' && *d != '0')) break;
    q = d + 1;
  }
  TRY(push_int(l, p, q, 10));
  l->p = q;
  return NULL;
}

/* Python's escapes; what is no escape keeps its backslash. */
static Err *unescape(Lexer *l, const char *p, const char *end, Str *out) {
  static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
  while (p < end) {
    if (*p != '\\' || p + 1 == end) { str_add_c(out, *p++); continue; }
    char c = p[1];
    p += 2;
    const char *hit = c ? strchr(from, c) : NULL;
    int32_t cp = 0;
    if (hit) { str_add_c(out, to[hit - from]); continue; }
    if (c == '\n') continue;
    if (c >= '0' && c <= '7') {
      cp = c - '0';
      for (int i = 0; i < 2 && p < end && *p >= '0' && *p <= '7'; i++) cp = cp * 8 + (*p++ - '0');
    } else if (c == 'x' || c == 'u' || c == 'U') {
      int n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      int64_t v = text_hex(p, end, n);
      if (v < 0 || v > 0x10FFFF) return bad(l, "truncated \\ escape");
      cp = (int32_t)v;
      p += n;
    } else if (c == 'N') {
      return bad(l, "\\N escapes are not known here");
    } else {
      str_add_c(out, '\\');
      str_add_c(out, c);
      continue;
    }
    text_utf8_add(out, cp >= 0xD800 && cp < 0xE000 ? 0xFFFD : cp);
  }
  return NULL;
}

static Err *lex_string(Lexer *l) {
  char quote = *l->p;
  const char *q = l->p + 1;
  while (q < l->end && *q != quote) q += *q == '\\' && q + 1 < l->end ? 2 : 1;
  if (q >= l->end) return bad(l, "string without end");
  Str s = {0};
  Err *e = unescape(l, l->p + 1, q, &s);
  if (!e) {
    Val v = val_own(l->a, val_str(l->a, s.p ? s.p : "", s.n));
    val_n_chars(v); /* constants are shared by threads: nothing is left to be counted later */
    push(l, TK_STRING, (Token){.value = v});
    count_lines(l, l->p, q + 1);
    l->p = q + 1;
  }
  str_free(&s);
  return e;
}

static Err *lex_operator(Lexer *l) {
  size_t k = 0;
  while (k < COUNT_OF(operators) && !starts(l, l->p, operators[k].text)) k++;
  if (k == COUNT_OF(operators)) return err_new(ERR_SYNTAX, "template line %d: unexpected character '%.4s'", l->line, l->p);
  char c = operators[k].text[0];
  static const char openers[] = "([{", closers[] = ")]}";
  const char *opens = operators[k].n == 1 ? strchr(openers, c) : NULL;
  if (opens) {
    if (l->n_open == (int)sizeof l->open) return bad(l, "brackets nested too deep");
    l->open[l->n_open++] = closers[opens - openers];
  }
  if (operators[k].n == 1 && strchr(closers, c)) {
    if (!l->n_open) return err_new(ERR_SYNTAX, "template line %d: unexpected '%c'", l->line, c);
    char want = l->open[--l->n_open];
    if (want != c) return err_new(ERR_SYNTAX, "template line %d: unexpected '%c', expected '%c'", l->line, c, want);
  }
  push(l, (TokenKind)(FIRST_OPERATOR + (int)k), (Token){0});
  l->p += operators[k].n;
  return NULL;
}

static bool is_name_char(int32_t c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c >= 0x80 && text_char_is_word(c)); }

static Err *lex_inside(Lexer *l, bool block) {
  const char *close = block ? "%}" : "}}";
  l->n_open = 0;
  while (l->p < l->end) {
    const char *after = l->n_open ? NULL : tag_end(l, l->p, close, block, block);
    if (after) {
      push(l, block ? TK_BLOCK_END : TK_VAR_END, (Token){0});
      move_to(l, after);
      return NULL;
    }
    int32_t c;
    int k = text_utf8_next(l->p, l->end, &c);
    if (text_char_is_pyspace(c)) { l->line += c == '\n'; l->p += k; continue; }
    if (c < 0x80 && is_digit((char)c)) { TRY(lex_number(l)); continue; }
    if (is_name_char(c)) {
      const char *q = l->p;
      do q += k; while (q < l->end && (k = text_utf8_next(q, l->end, &c)) > 0 && is_name_char(c));
      push(l, TK_NAME, (Token){.name = text_name(l->a, l->names, l->p, (size_t)(q - l->p))});
      l->p = q;
      continue;
    }
    TRY(c == '\'' || c == '"' ? lex_string(l) : lex_operator(l));
  }
  return NULL; /* the parser says what is missing */
}

static Err *lex_root(Lexer *l) {
  while (l->p < l->end) {
    const char *q = l->p;
    while (q < l->end && !(*q == '{' && q + 1 < l->end && (q[1] == '{' || q[1] == '%' || q[1] == '#'))) {
      const char *next = memchr(q + 1, '{', (size_t)(l->end - q - 1));
      q = next ? next : l->end;
    }
    if (q >= l->end) {
      push(l, TK_DATA, (Token){.value = val_own(l->a, val_str(l->a, l->p, (size_t)(l->end - l->p)))});
      l->p = l->end;
      return NULL;
    }
    char sign = q + 2 < l->end && (q[2] == '-' || q[2] == '+') ? q[2] : 0;
    const char *raw = q[1] == '%' ? raw_begin(l, q) : NULL;
    push_data(l, l->p, q, sign, q[1] != '{');
    move_to(l, raw ? raw : q + 2 + (sign != 0));
    l->line_starting = l->p[-1] == '\n';
    if (raw) { TRY(lex_raw(l)); continue; }
    if (q[1] == '#') { TRY(lex_comment(l)); continue; }
    push(l, q[1] == '%' ? TK_BLOCK_BEGIN : TK_VAR_BEGIN, (Token){0});
    TRY(lex_inside(l, q[1] == '%'));
  }
  return NULL;
}

Err *text_template_lex(Arena *a, Names *names, const char *src, size_t n, Token **out, int *n_out) {
  char *text = arena_alloc(a, n + 1);
  size_t m = 0;
  for (size_t i = 0; i < n; i++) {
    if (src[i] == '\r') { text[m++] = '\n'; i += i + 1 < n && src[i + 1] == '\n'; }
    else text[m++] = src[i];
  }
  if (m && text[m - 1] == '\n') m--;
  if (text_utf8_valid(text, m) != m) return err_new(ERR_SYNTAX, "template: not UTF-8 at byte %zu", text_utf8_valid(text, m));
  Lexer l = {.a = a, .names = names, .p = text, .end = text + m, .line = 1, .line_starting = true};
  TRY(lex_root(&l));
  push(&l, TK_EOF, (Token){0});
  *out = l.tok;
  *n_out = l.n;
  return NULL;
}
