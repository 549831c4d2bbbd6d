/* The steps between a text and the model: normalizers rewrite it, pre-tokenizers cut it into pieces.
   In: any bytes; regular expressions see only the valid UTF-8 runs, broken bytes become pieces of their own. Out: pieces that point
   into the text or the call's arena. A pattern that runs out of stack or steps is tried again on a shorter window, so every text
   ends in pieces and the time stays near linear. Rules by name: splits.def. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "text/priv.h"

struct Regex { pcre2_code *code; };

/* Oniguruma's and Rust's \s is White_Space; PCRE2's adds U+180E. Outside a class \s is spelled out, inside it the ranges are. */
static void add_portable(Str *out, const char *p, size_t n) {
  static const char spaces[] = "\\x{9}-\\x{d}\\x{20}\\x{85}\\p{Z}";
  int depth = 0;
  for (size_t i = 0; i < n; i++) {
    if (p[i] == '\\' && i + 1 < n) {
      if (p[i + 1] == 's') {
        if (!depth) str_add_c(out, '[');
        str_add(out, spaces);
        if (!depth) str_add_c(out, ']');
      } else if (p[i + 1] == 'S' && !depth) {
        str_addf(out, "[^%s]", spaces);
      } else {
        str_add_n(out, p + i, 2);
      }
      i++;
      continue;
    }
    if (p[i] == '[' && !depth) depth = 1;
    else if (p[i] == ']' && depth && p[i - 1] != '[') depth = 0;
    str_add_c(out, p[i]);
  }
}

Err *text_regex_new(TextVocab *v, const char *pattern, size_t n, Regex **out) {
  Str s = {0};
  add_portable(&s, pattern, n);
  int code;
  PCRE2_SIZE at;
  pcre2_code *re = pcre2_compile((PCRE2_SPTR)s.p, s.n, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
  str_free(&s);
  if (!re) {
    PCRE2_UCHAR why[200] = "";
    pcre2_get_error_message(code, why, sizeof why);
    return err_new(ERR_FORMAT, "tokenizer pattern '%.*s': %s", (int)MIN(n, (size_t)200), pattern, (const char *)why);
  }
  pcre2_jit_compile(re, PCRE2_JIT_COMPLETE); /* without JIT the interpreter does the same */
  *out = ARENA_NEW(v->arena, Regex);
  (*out)->code = re;
  PUSH(v->arena, v->regexes, v->n_regexes, v->cap_regexes, *out);
  return NULL;
}

void text_regex_free(Regex *re) {
  if (re) pcre2_code_free(re->code);
}

enum {
#define RULE(id, pattern) RULE_##id,
#include "text/splits.def"
#undef RULE
  N_RULES
};
static const char *const rule_pattern[N_RULES] = {
#define RULE(id, pattern) pattern,
#include "text/splits.def"
#undef RULE
};
#define MAX_RULES 6
static const struct SplitRow { const char *name; bool ignore_merges, form; int n; int rule[MAX_RULES]; } split_rows[] = {
#define SPLIT(name, ignore, form, ...) {name, ignore, form, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), {__VA_ARGS__}},
#include "text/splits.def"
#undef SPLIT
};

const char *text_split_rule_name(int i) { return i < (int)COUNT_OF(split_rows) ? split_rows[i].name : NULL; }

Err *text_split_rule(TextVocab *v, const char *name) {
  const struct SplitRow *row = NULL;
  for (size_t i = 0; i < COUNT_OF(split_rows) && !row; i++)
    if (!strcmp(split_rows[i].name, name)) row = &split_rows[i];
  if (!row) return err_new(ERR_UNSUPPORTED, "tokenizer: unknown pre-tokenizer '%s'", name);
  v->pre = ARENA_ARRAY(v->arena, Step, MAX_RULES);
  for (v->n_pre = 0; v->n_pre < row->n; v->n_pre++) {
    Step *s = &v->pre[v->n_pre];
    *s = (Step){.kind = STEP_SPLIT, .mode = SPLIT_ISOLATED};
    const char *p = rule_pattern[row->rule[v->n_pre]];
    TRY(text_regex_new(v, p, strlen(p), &s->re));
  }
  if (row->form) {
    v->norm = ARENA_NEW(v->arena, Step);
    v->norm[0] = (Step){.kind = STEP_FORM, .mode = FORM_NFC};
    v->n_norm = 1;
  }
  v->ignore_merges = row->ignore_merges;
  return NULL;
}

/* One matcher per call: its stack grows only when a pattern asks for it. */
typedef struct Matcher { pcre2_match_data *data; pcre2_match_context *cx; pcre2_jit_stack *stack; } Matcher;

static void matcher_close(Matcher *m) {
  pcre2_match_data_free(m->data);
  pcre2_match_context_free(m->cx);
  pcre2_jit_stack_free(m->stack);
  *m = (Matcher){0};
}

/* p[n] valid UTF-8. Finds the next match from `at`. */
static bool match_next(Matcher *m, const Regex *re, const char *p, size_t n, size_t at, size_t *from, size_t *to) {
  if (!m->data) {
    m->data = pcre2_match_data_create(1, NULL);
    m->cx = pcre2_match_context_create(NULL);
    CHECK(m->data && m->cx, "out of memory");
    pcre2_set_match_limit(m->cx, 2000000);
    pcre2_set_heap_limit(m->cx, 64 * 1024);
  }
  for (size_t end = n;;) {
    int rc = pcre2_match(re->code, (PCRE2_SPTR)p, end, at, PCRE2_NO_UTF_CHECK, m->data, m->cx);
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc >= 0) {
      const PCRE2_SIZE *o = pcre2_get_ovector_pointer(m->data);
      *from = o[0];
      *to = o[1];
      return true;
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !m->stack) {
      m->stack = pcre2_jit_stack_create(64 * 1024, 8 << 20, NULL);
      if (m->stack) { pcre2_jit_stack_assign(m->cx, NULL, m->stack); continue; }
    }
    if (end - at <= 64) return false;
    end = at + (end - at) / 2; /* a piece may be cut here; only monstrous pieces are */
    while (end > at + 1 && ((uint8_t)p[end] & 0xC0) == 0x80) end--;
  }
}

typedef struct Span { size_t from, to; bool match; } Span;
typedef struct Spans { Span *p; int n, cap; } Spans;

static void spans_regex(Arena *a, Matcher *m, const Regex *re, const char *p, size_t base, size_t n, Spans *out) {
  size_t prev = 0, at = 0, from, to;
  while (at <= n && match_next(m, re, p + base, n, at, &from, &to)) {
    if (from > prev) PUSH(a, out->p, out->n, out->cap, (Span){base + prev, base + from, false});
    if (to > from) PUSH(a, out->p, out->n, out->cap, (Span){base + from, base + to, true});
    prev = to;
    at = to;
    if (to == from) {
      if (at >= n) break;
      do at++; while (at < n && ((uint8_t)p[base + at] & 0xC0) == 0x80);
    }
  }
  if (prev < n) PUSH(a, out->p, out->n, out->cap, (Span){base + prev, base + n, false});
}

static void spans_literal(Arena *a, const Step *s, const char *p, size_t n, Spans *out) {
  size_t prev = 0;
  for (size_t at = 0; s->n_text && at + s->n_text <= n;) {
    const char *hit = s->n_text == 1 ? memchr(p + at, s->text[0], n - at) : memmem(p + at, n - at, s->text, s->n_text);
    if (!hit) break;
    at = (size_t)(hit - p);
    if (at > prev) PUSH(a, out->p, out->n, out->cap, (Span){prev, at, false});
    PUSH(a, out->p, out->n, out->cap, (Span){at, at + s->n_text, true});
    prev = at += s->n_text;
  }
  if (prev < n) PUSH(a, out->p, out->n, out->cap, (Span){prev, n, false});
}

/* Valid runs go to the pattern, runs of broken bytes are spans without a match. */
static void spans_of(Arena *a, Matcher *m, const Step *s, const char *p, size_t n, Spans *out) {
  if (!s->re) { spans_literal(a, s, p, n, out); return; }
  for (size_t at = 0; at < n;) {
    size_t ok = text_utf8_valid(p + at, n - at);
    if (ok) { spans_regex(a, m, s->re, p, at, ok, out); at += ok; continue; }
    size_t bad = at;
    while (at < n && !text_utf8_valid(p + at, MIN(n - at, (size_t)4))) at++;
    PUSH(a, out->p, out->n, out->cap, (Span){bad, at, false});
  }
}

static void apply_mode(Arena *a, const Step *s, const char *p, Spans in, Pieces *out) {
  if (s->invert)
    for (int i = 0; i < in.n; i++) in.p[i].match = !in.p[i].match;
  bool last_match = false, any = false;
  for (int i = 0; i < in.n; i++) {
    Span x = in.p[i];
    bool glue = any && ((s->mode == SPLIT_PREVIOUS && x.match && !last_match) || (s->mode == SPLIT_CONTIGUOUS && x.match == last_match) ||
                        (s->mode == SPLIT_NEXT && !x.match && last_match));
    last_match = x.match;
    if (s->mode == SPLIT_REMOVED && x.match) continue;
    if (glue) out->p[out->n - 1].n += x.to - x.from;
    else PUSH(a, out->p, out->n, out->cap, (Piece){p + x.from, x.to - x.from});
    any = true;
  }
}

/* Spaces become the replacement; it is put in front where the mode says so; then every replacement begins a piece. */
static void metaspace(Arena *a, const Step *s, Piece x, bool at_start, Pieces *out) {
  Str b = {0};
  bool front = (s->mode == PREPEND_ALWAYS || (s->mode == PREPEND_FIRST && at_start)) && !(x.n && x.p[0] == ' ') && !(x.n >= s->n_text && !memcmp(x.p, s->text, s->n_text));
  if (front) str_add_n(&b, s->text, s->n_text);
  for (size_t i = 0; i < x.n; i++) x.p[i] == ' ' ? str_add_n(&b, s->text, s->n_text) : str_add_c(&b, x.p[i]);
  Piece y = {arena_dup_n(a, b.p ? b.p : "", b.n), b.n};
  str_free(&b);
  if (!s->left) { PUSH(a, out->p, out->n, out->cap, y); return; }
  Spans spans = {0};
  spans_literal(a, s, y.p, y.n, &spans);
  apply_mode(a, &(Step){.mode = SPLIT_NEXT}, y.p, spans, out);
}

static Piece prefix_space(Arena *a, Piece x) {
  int32_t cp = -1;
  if (x.n) text_utf8_next(x.p, x.p + x.n, &cp);
  if (!x.n || text_char_is_space(cp)) return x;
  char *p = arena_alloc(a, x.n + 1);
  p[0] = ' ';
  memcpy(p + 1, x.p, x.n);
  return (Piece){p, x.n + 1};
}

void text_steps_split(const TextVocab *v, Arena *a, const char *p, size_t n, bool at_start, Pieces *out) {
  Pieces in = {0};
  Matcher m = {0};
  if (n) PUSH(a, in.p, in.n, in.cap, (Piece){p, n});
  for (int k = 0; k < v->n_pre; k++) {
    const Step *s = &v->pre[k];
    Pieces next = {0};
    for (int i = 0; i < in.n; i++) {
      Piece x = in.p[i];
      if (s->kind == STEP_METASPACE) metaspace(a, s, x, at_start && i == 0, &next);
      else if (s->kind == STEP_PREFIX_SPACE) PUSH(a, next.p, next.n, next.cap, prefix_space(a, x));
      else {
        Spans spans = {0};
        spans_of(a, &m, s, x.p, x.n, &spans);
        apply_mode(a, s, x.p, spans, &next);
      }
    }
    in = next;
  }
  matcher_close(&m);
  *out = in;
}

/* SentencePiece's character map: a double-array trie of byte strings, then NUL-terminated replacements. */
static bool charsmap_find(const TextVocab *v, const char *p, size_t n, const char **rep) {
  if (v->n_charsmap < 4) return false;
  const uint8_t *m = v->charsmap;
  uint32_t n_trie = (uint32_t)m[0] | (uint32_t)m[1] << 8 | (uint32_t)m[2] << 16 | (uint32_t)m[3] << 24;
  if (n_trie > v->n_charsmap - 4) return false;
  size_t n_units = n_trie / 4, node = 0;
#define UNIT(i) ((uint32_t)m[4 + 4 * (i)] | (uint32_t)m[5 + 4 * (i)] << 8 | (uint32_t)m[6 + 4 * (i)] << 16 | (uint32_t)m[7 + 4 * (i)] << 24)
#define OFFSET(u) (((u) >> 10) << (((u) & 1u << 9) >> 6))
  if (!n_units) return false;
  uint32_t u = UNIT(0);
  node ^= OFFSET(u);
  for (size_t i = 0; i < n; i++) {
    uint8_t c = (uint8_t)p[i];
    if (!c) return false;
    node ^= c;
    if (node >= n_units) return false;
    u = UNIT(node);
    if ((u & (1u << 31 | 0xFF)) != c) return false;
    node ^= OFFSET(u);
    if (u >> 8 & 1) { /* the shortest key that is a prefix decides, as in the Rust library */
      if (node >= n_units) return false;
      size_t at = 4 + (size_t)n_trie + (UNIT(node) & 0x7FFFFFFF);
      if (at >= v->n_charsmap || !memchr(m + at, 0, v->n_charsmap - at)) return false;
      *rep = (const char *)m + at;
      return true;
    }
  }
#undef UNIT
#undef OFFSET
  return false;
}

static void step_charsmap(const TextVocab *v, const char *p, size_t n, Str *out) {
  const char *rep;
  for (size_t at = 0; at < n;) {
    int32_t cp, next, state = 0;
    size_t len = (size_t)text_utf8_next(p + at, p + n, &cp), first = len;
    for (int32_t c = cp; cp >= 0 && at + len < n; c = next) {
      int k = text_utf8_next(p + at + len, p + n, &next);
      if (next < 0 || utf8proc_grapheme_break_stateful(c, next, &state)) break;
      len += (size_t)k;
    }
    if (len < 6 && charsmap_find(v, p + at, len, &rep)) { str_add(out, rep); at += len; continue; }
    for (size_t end = at + len; at < end; at += first) {
      first = (size_t)text_utf8_next(p + at, p + n, &cp);
      if (charsmap_find(v, p + at, first, &rep)) str_add(out, rep);
      else str_add_n(out, p + at, first);
    }
  }
}

static bool is_han(int32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

static void step_bert_clean(const Step *s, const char *p, size_t n, Str *out) {
  for (const char *q = p, *end = p + n; q < end;) {
    int32_t c;
    int k = text_utf8_next(q, end, &c);
    bool space = text_char_is_space(c);
    bool control = c <= 0 || c == 0xFFFD || (!(c == '\t' || c == '\n' || c == '\r') && text_char_class(c) == CHAR_OTHER && text_char_category(c) != UTF8PROC_CATEGORY_CN);
    if (s->clean && control) { q += k; continue; }
    if (s->clean && space) str_add_c(out, ' ');
    else if (s->han && is_han(c)) { str_add_c(out, ' '); str_add_n(out, q, (size_t)k); str_add_c(out, ' '); }
    else str_add_n(out, q, (size_t)k);
    q += k;
  }
}

static bool nmt_removed(int32_t c) { return (c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F; }
static bool nmt_space(int32_t c) {
  return c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
}

static void step_chars(StepKind kind, const char *p, size_t n, Str *out) {
  for (const char *q = p, *end = p + n; q < end;) {
    int32_t c, low[3];
    int k = text_utf8_next(q, end, &c);
    if (kind == STEP_LOWER && c >= 0) {
      int m = text_char_case(c, CASE_LOWER, low);
      for (int i = 0; i < m; i++) text_utf8_add(out, low[i]);
    } else if (kind == STEP_STRIP_ACCENTS && text_char_category(c) == UTF8PROC_CATEGORY_MN) {
    } else if (kind == STEP_NMT && nmt_removed(c)) {
    } else if (kind == STEP_NMT && nmt_space(c)) {
      str_add_c(out, ' ');
    } else {
      str_add_n(out, q, (size_t)k);
    }
    q += k;
  }
}

static void step_strip(const Step *s, const char *p, size_t n, Str *out) {
  const char *end = p + n, *q;
  int32_t c;
  while (s->left && p < end) {
    int k = text_utf8_next(p, end, &c);
    if (!text_char_is_space(c)) break;
    p += k;
  }
  while (s->right && end > p) {
    for (q = end - 1; q > p && ((uint8_t)*q & 0xC0) == 0x80; q--) {}
    text_utf8_next(q, end, &c);
    if (!text_char_is_space(c)) break;
    end = q;
  }
  str_add_n(out, p, (size_t)(end - p));
}

static void step_replace(const Step *s, const char *p, size_t n, Str *out) {
  Arena *a = arena_new("step");
  Matcher m = {0};
  Spans spans = {0};
  spans_of(a, &m, s, p, n, &spans);
  for (int i = 0; i < spans.n; i++) spans.p[i].match ? str_add_n(out, s->with, s->n_with) : str_add_n(out, p + spans.p[i].from, spans.p[i].to - spans.p[i].from);
  matcher_close(&m);
  arena_free(a);
}

static void step_bert(const Step *s, const char *p, size_t n, Str *out) {
  Str a = {0}, b = {0};
  step_bert_clean(s, p, n, &a);
  if (s->accents) {
    text_normal_form(a.p ? a.p : "", a.n, FORM_NFD, &b);
    str_clear(&a);
    step_chars(STEP_STRIP_ACCENTS, b.p ? b.p : "", b.n, &a);
  }
  if (s->lower) step_chars(STEP_LOWER, a.p ? a.p : "", a.n, out);
  else str_add_n(out, a.p, a.n);
  str_free(&a);
  str_free(&b);
}

/* Replacements may grow a text; a chain of them must not multiply it without end. */
enum { MAX_NORMALIZED = 1 << 30 };

Err *text_steps_normalize(const TextVocab *v, const Step *steps, int n_steps, const char *p, size_t n, Str *out) {
  Str cur = {0};
  str_add_n(&cur, p, n);
  for (int i = 0; i < n_steps; i++) {
    const Step *s = &steps[i];
    Str next = {0};
    if (cur.n > MAX_NORMALIZED || (s->n_with > 16 && s->n_with > MAX_NORMALIZED / (cur.n + 1))) {
      str_free(&cur);
      return err_new(ERR_LIMIT, "tokenizer: the text grows past %d bytes when normalized", MAX_NORMALIZED);
    }
    switch (s->kind) {
      case STEP_FORM: text_normal_form(cur.p, cur.n, (NormalForm)s->mode, &next); break;
      case STEP_LOWER: case STEP_STRIP_ACCENTS: case STEP_NMT: step_chars(s->kind, cur.p, cur.n, &next); break;
      case STEP_STRIP: step_strip(s, cur.p, cur.n, &next); break;
      case STEP_PREPEND:
        if (cur.n) str_add_n(&next, s->text, s->n_text);
        str_add_n(&next, cur.p, cur.n);
        break;
      case STEP_REPLACE: case STEP_REPLACE_REGEX: step_replace(s, cur.p, cur.n, &next); break;
      case STEP_CHARSMAP: step_charsmap(v, cur.p, cur.n, &next); break;
      case STEP_BERT: step_bert(s, cur.p, cur.n, &next); break;
      case STEP_SPLIT: case STEP_METASPACE: case STEP_PREFIX_SPACE: CHECK(false, "a pre-tokenizer among the normalizers");
    }
    str_add_n(&next, "", 0);
    str_free(&cur);
    cur = next;
  }
  str_add_n(out, cur.p, cur.n);
  str_free(&cur);
  return NULL;
}
