/* Normalizers: the steps that rewrite a text before it is cut into pieces.
   In: any bytes; broken ones pass through or count as no character. Out: the text after all steps. Most texts are made of a few kinds of
   characters that a step leaves alone or maps by rule (ASCII, Hangul, Han): those go by in loops of their own, the rest asks the tables. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "text/priv.h"

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

/* Between two of these a character always ends, whatever a grapheme may be: Unicode Standard Annex 29. */
static bool stands_alone(int32_t c) { return (c >= ' ' && c < 0x7F) || (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3041 && c <= 0x3096); }

/* One grapheme: mapped as a whole where that is short and has a mapping, else character by character. */
static size_t map_grapheme(const TextVocab *v, const char *p, size_t n, Str *out) {
  const char *rep;
  int32_t cp, next, state = 0;
  size_t len = (size_t)text_utf8_next(p, p + n, &cp), first = len;
  for (int32_t c = cp; cp >= 0 && len < n; c = next) {
    int k = text_utf8_next(p + len, p + n, &next);
    if (next < 0 || utf8proc_grapheme_break_stateful(c, next, &state)) break;
    len += (size_t)k;
  }
  if (len < 6 && charsmap_find(v, p, len, &rep)) { str_add(out, rep); return len; }
  for (size_t at = 0; at < len; at += first) {
    first = (size_t)text_utf8_next(p + at, p + n, &cp);
    if (charsmap_find(v, p + at, first, &rep)) str_add(out, rep);
    else str_add_n(out, p + at, first);
  }
  return len;
}

static void step_charsmap(const TextVocab *v, const char *p, size_t n, Str *out) {
  const char *rep, *end = p + n;
  while (p < end) {
    const char *q = p; /* what goes by unchanged: characters alone, with no mapping, before another one of the kind */
    int32_t c, next;
    int k = text_utf8_next(q, end, &c), m;
    while (stands_alone(c) && q + k < end && (m = text_utf8_next(q + k, end, &next), stands_alone(next)) && !charsmap_find(v, q, (size_t)k, &rep)) q += k, k = m, c = next;
    str_add_n(out, p, (size_t)(q - p));
    p = q + map_grapheme(v, q, (size_t)(end - q), out);
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

static void bert_any(const Step *s, const char *p, size_t n, Str *a, Str *b, Str *out) {
  str_clear(a);
  str_clear(b);
  step_bert_clean(s, p, n, a);
  if (s->accents) {
    text_normal_form(a->p ? a->p : "", a->n, FORM_NFD, b);
    str_clear(a);
    step_chars(STEP_STRIP_ACCENTS, b->p ? b->p : "", b->n, a);
  }
  if (s->lower) step_chars(STEP_LOWER, a->p ? a->p : "", a->n, out);
  else str_add_n(out, a->p, a->n);
}

/* A Hangul syllable's two or three letters, as its canonical decomposition has them: Unicode Standard, chapter 3.12. */
static int take_apart(int32_t c, char w[9]) {
  int i = c - 0xAC00, tail = i % 28, n = text_utf8_put(0x1100 + i / 588, w);
  n += text_utf8_put(0x1161 + i % 588 / 28, w + n);
  return tail ? n + text_utf8_put(0x11A7 + tail, w + n) : n;
}

/* What becomes of a character that no other one has a say in; 0: ask the tables. */
static int bert_plain(const Step *s, int32_t c, const char *p, char w[9]) {
  if (c >= 'a' && c <= 'z') { w[0] = (char)c; return 1; }
  if (c >= 0xAC00 && c <= 0xD7A3) {
    if (s->accents) return take_apart(c, w);
    memcpy(w, p, 3);
    return 3;
  }
  if (c >= ' ' && c < 0x7F) { w[0] = (char)(s->lower && c >= 'A' && c <= 'Z' ? c + 32 : c); return 1; }
  if (s->clean && (c == '\n' || c == '\t' || c == '\r')) { w[0] = ' '; return 1; }
  if (c >= 0x4E00 && c <= 0x9FFF) {
    if (!s->han) { memcpy(w, p, 3); return 3; }
    w[0] = w[4] = ' ';
    memcpy(w + 1, p, 3);
    return 5;
  }
  return 0;
}

/* Plain characters are starters that never change what stands beside them, so the rest may be done run by run. */
static void step_bert(const Step *s, const char *p, size_t n, Str *out) {
  Str a = {0}, b = {0};
  char buf[4096];
  size_t used = 0;
  for (const char *q = p, *end = p + n; q < end;) {
    int32_t c;
    int k = text_utf8_next(q, end, &c), m = bert_plain(s, c, q, buf + used);
    if (m) {
      q += k;
      used += (size_t)m;
      if (used > sizeof buf - 16) str_add_n(out, buf, used), used = 0;
      continue;
    }
    const char *from = q;
    for (int plain = 0; q < end && plain < 2; plain = m ? plain + 1 : 0, q += k) { /* two plain ones end a run */
      k = text_utf8_next(q, end, &c);
      m = bert_plain(s, c, q, buf + used);
    }
    str_add_n(out, buf, used);
    used = 0;
    bert_any(s, from, (size_t)(q - from), &a, &b, out);
  }
  str_add_n(out, buf, used);
  str_free(&a);
  str_free(&b);
}

/* Replacements may grow a text; a chain of them must not multiply it without end. */
enum { MAX_NORMALIZED = 1 << 30 };

static Err *step_one(const TextVocab *v, const Step *s, const char *p, size_t n, Str *out) {
  if (n > MAX_NORMALIZED || (s->n_with > 16 && s->n_with > MAX_NORMALIZED / (n + 1)))
    return err_new(ERR_LIMIT, "tokenizer: the text grows past %d bytes when normalized", MAX_NORMALIZED);
  switch (s->kind) {
    case STEP_FORM: text_normal_form(p, n, (NormalForm)s->mode, out); break;
    case STEP_LOWER: case STEP_STRIP_ACCENTS: case STEP_NMT: step_chars(s->kind, p, n, out); break;
    case STEP_STRIP: step_strip(s, p, n, out); break;
    case STEP_PREPEND:
      if (n) str_add_n(out, s->text, s->n_text);
      str_add_n(out, p, n);
      break;
    case STEP_REPLACE: case STEP_REPLACE_REGEX: text_step_replace(s, p, n, out); break;
    case STEP_CHARSMAP: step_charsmap(v, p, n, out); break;
    case STEP_BERT: step_bert(s, p, n, out); break;
    case STEP_SPLIT: case STEP_METASPACE: case STEP_PREFIX_SPACE: CHECK(false, "a pre-tokenizer among the normalizers");
  }
  return NULL;
}

Err *text_steps_normalize(const TextVocab *v, const Step *steps, int n_steps, const char *p, size_t n, Str *out) {
  Str half[2] = {{0}, {0}}; /* the text before a step and after it; the last one writes to out */
  Err *e = NULL;
  if (!n_steps) str_add_n(out, p, n);
  for (int i = 0; i < n_steps && !e; i++) {
    Str *to = i + 1 < n_steps ? &half[i & 1] : out;
    str_clear(&half[i & 1]);
    e = step_one(v, &steps[i], p, n, to);
    p = to->p ? to->p : "";
    n = to->n;
  }
  str_free(&half[0]);
  str_free(&half[1]);
  return e;
}
