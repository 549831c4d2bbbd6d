/* The lexer: one source's text in, an array of tokens out. Line ends are white space; the parser sees them as Tok.first only.
   Names: letters, digits and _ of any script (utf8proc L*, N*, M* after the first), brought to NFC so that equal-looking names are equal.
   Every byte must be UTF-8; what is not is reported once and skipped. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "lang/priv.h"

typedef struct Lexer {
  LangCtx *x;
  const char *file, *p, *end;
  int line, col;
  bool first;
  Tok *tok; int n_toks, cap;
} Lexer;

static Loc here(const Lexer *l) { return (Loc){l->file, l->line, l->col}; }

static bool is_name_char(int32_t c, bool first) {
  if (c < 128) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
  utf8proc_category_t k = utf8proc_category(c);
  if (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) return true;
  return !first && k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_NO;
}

static void advance(Lexer *l, int n_bytes) {
  l->p += n_bytes;
  l->col++;
}

/* Skips blanks, line ends and comments, and bytes that are no text. */
static void skip_blanks(Lexer *l) {
  bool told = false;
  while (l->p < l->end) {
    char c = *l->p;
    if (c == '\n') {
      l->p++;
      l->line++;
      l->col = 1;
      l->first = true;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      advance(l, 1);
    } else if (c == '#') {
      while (l->p < l->end && *l->p != '\n') {
        int32_t cp;
        int n = lang_utf8_next(l->p, (size_t)(l->end - l->p), &cp);
        if (!n && !told) lang_diag(l->x, here(l), "byte 0x%02x is not UTF-8", (unsigned char)*l->p);
        told |= !n;
        advance(l, MAX(n, 1));
      }
    } else {
      return;
    }
  }
}

static void lex_name(Lexer *l, Tok *t) {
  const char *start = l->p;
  bool ascii = true;
  for (bool first = true; l->p < l->end; first = false) {
    int32_t c;
    int n = lang_utf8_next(l->p, (size_t)(l->end - l->p), &c);
    if (!n || !is_name_char(c, first)) break;
    ascii &= c < 128;
    advance(l, n);
  }
  t->kind = TOK_NAME;
  t->text = arena_dup_n(l->x->arena, start, (size_t)(l->p - start));
  if (ascii) return;
  utf8proc_uint8_t *nfc = utf8proc_NFC((const utf8proc_uint8_t *)t->text);
  if (nfc) t->text = arena_dup(l->x->arena, (const char *)nfc);
  free(nfc);
}

/* Digits with _ between them into buf; what does not fit makes the number too long. */
static int take_digits(Lexer *l, char *buf, int n, int cap, bool hex) {
  for (; l->p < l->end; advance(l, 1)) {
    char c = *l->p;
    bool digit = (c >= '0' && c <= '9') || (hex && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')));
    if (!digit && c != '_') break;
    if (c != '_' && n < cap - 1) buf[n++] = c;
  }
  buf[n] = 0;
  return n;
}

static char peek(const Lexer *l, int ahead) { return l->end - l->p > ahead ? l->p[ahead] : 0; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static void lex_number(Lexer *l, Tok *t) {
  char buf[400];
  Loc at = here(l);
  bool hex = *l->p == '0' && (peek(l, 1) == 'x' || peek(l, 1) == 'X'), real = false;
  if (hex) { advance(l, 1); advance(l, 1); }
  int n = take_digits(l, buf, 0, sizeof buf, hex);
  if (!hex && peek(l, 0) == '.' && is_digit(peek(l, 1))) {
    real = true;
    if (n < (int)sizeof buf - 1) buf[n++] = '.';
    advance(l, 1);
    n = take_digits(l, buf, n, sizeof buf, false);
  }
  int sign = peek(l, 1) == '+' || peek(l, 1) == '-';
  if (!hex && (peek(l, 0) == 'e' || peek(l, 0) == 'E') && is_digit(peek(l, 1 + sign))) {
    real = true;
    for (int i = 0; i <= sign; i++) {
      if (n < (int)sizeof buf - 1) buf[n++] = *l->p;
      advance(l, 1);
    }
    n = take_digits(l, buf, n, sizeof buf, false);
  }
  errno = 0;
  t->kind = real ? TOK_FLOAT : TOK_INT;
  if (real) t->fval = strtod(buf, NULL);
  else t->ival = (int64_t)strtoull(buf, NULL, hex ? 16 : 10);
  int32_t c;
  int len = lang_utf8_next(l->p, (size_t)(l->end - l->p), &c);
  if (n >= (int)sizeof buf - 1) lang_diag(l->x, at, "this number has too many digits: at most 398");
  else if (hex && !n) lang_diag(l->x, at, "0x wants hexadecimal digits after it");
  else if (real && !isfinite(t->fval)) lang_diag(l->x, at, "this number is too large for a float");
  else if (!real && (errno == ERANGE || t->ival < 0)) lang_diag(l->x, at, "this number is too large: at most 9223372036854775807");
  else if (len && is_name_char(c, false)) lang_diag(l->x, at, "a number may not run into a name; put a blank or an operator between them");
}

static void lex_string(Lexer *l, Tok *t) {
  Loc at = here(l);
  const char *start = l->p;
  char *out = arena_alloc(l->x->arena, strcspn(start + 1, "\n") + 2);
  int n = 0;
  bool closed = false;
  for (advance(l, 1); l->p < l->end && *l->p != '\n' && !closed;) {
    int32_t c;
    int len = lang_utf8_next(l->p, (size_t)(l->end - l->p), &c);
    if (!len) lang_diag(l->x, here(l), "byte 0x%02x is not UTF-8", (unsigned char)*l->p);
    if (c == '"' && len == 1) {
      closed = true;
    } else if (c == '\\' && len == 1) {
      static const char names[] = "\"\\nt", bytes[] = "\"\\\n\t";
      const char *k = peek(l, 1) ? strchr(names, peek(l, 1)) : NULL;
      if (!k) lang_diag(l->x, here(l), "unknown escape in a string: only \\\" \\\\ \\n \\t");
      else out[n++] = bytes[k - names];
      if (k) advance(l, 1);
    } else {
      for (int i = 0; i < len; i++) out[n++] = l->p[i];
    }
    advance(l, MAX(len, 1));
  }
  if (!closed) lang_diag(l->x, at, "this string does not end on its line");
  t->kind = TOK_STR;
  t->text = out;
}

static bool lex_symbol(Lexer *l, Tok *t) {
  static const char singles[] = "()[]{},:.@=?!";
  char a = *l->p, b = peek(l, 1);
  uint16_t two = LANG_SYM(a, b), one = LANG_SYM(a, 0);
  t->kind = TOK_SYM;
  if (b && (lang_infix(two) || two == LANG_SYM('-', '>'))) {
    t->sym = two;
    advance(l, 1);
    advance(l, 1);
    return true;
  }
  if (!strchr(singles, a) && !lang_infix(one) && !lang_prefix(one)) return false;
  t->sym = one;
  advance(l, 1);
  return true;
}

static void lex_bad(Lexer *l) {
  int32_t c;
  int n = lang_utf8_next(l->p, (size_t)(l->end - l->p), &c);
  if (!n) lang_diag(l->x, here(l), "byte 0x%02x is not UTF-8", (unsigned char)*l->p);
  else if (c == ';') lang_diag(l->x, here(l), "; is not needed: a statement ends where the next begins");
  else if (c < 32 || c == 127) lang_diag(l->x, here(l), "unexpected control character 0x%02x", (unsigned)c);
  else lang_diag(l->x, here(l), "unexpected character %.*s", n, l->p);
  advance(l, MAX(n, 1));
}

int lang_lex(LangCtx *x, const Source *src, Tok **out) {
  Lexer l = {.x = x, .file = src->file, .p = src->text, .line = 1, .col = 1, .first = true};
  size_t n = strlen(src->text);
  if (n > LANG_MAX_TEXT_BYTES) {
    lang_diag(x, here(&l), "the text has %zu bytes; at most %d", n, LANG_MAX_TEXT_BYTES);
    n = 0;
  }
  l.end = l.p + n;
  if (n >= 3 && !memcmp(l.p, "\xef\xbb\xbf", 3)) l.p += 3;
  for (;;) {
    skip_blanks(&l);
    Tok t = {.first = l.first, .line = l.line, .col = l.col, .at = l.p};
    if (l.p == l.end) {
      PUSH(x->arena, l.tok, l.n_toks, l.cap, t);
      break;
    }
    int32_t c = 0;
    lang_utf8_next(l.p, (size_t)(l.end - l.p), &c);
    bool got = true;
    if (is_name_char(c, true)) lex_name(&l, &t);
    else if (is_digit((char)(c < 128 ? c : 0)) || (c == '.' && is_digit(peek(&l, 1)))) lex_number(&l, &t);
    else if (c == '"') lex_string(&l, &t);
    else got = lex_symbol(&l, &t);
    if (!got) { lex_bad(&l); continue; }
    t.n = (int)(l.p - t.at);
    l.first = false;
    PUSH(x->arena, l.tok, l.n_toks, l.cap, t);
  }
  *out = l.tok;
  return l.n_toks;
}
