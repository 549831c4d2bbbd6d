/* Characters: reading and writing UTF-8, properties, full case mapping, the four normal forms.
   In: bytes that may be broken. Out: never an error; a broken byte is the code point -1 and passes through normal forms unchanged.
   Tables come from utf8proc; casing.def adds the mappings of one character to several. Unicode Standard, chapters 3 and 5.18. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "text/priv.h"

int text_utf8_next_any(const char *p, const char *end, int32_t *cp) {
  const uint8_t *s = (const uint8_t *)p;
  ptrdiff_t left = end - p;
  uint8_t c = s[0];
  if (c < 0x80) { *cp = c; return 1; }
  int n = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
  int32_t v = c >= 0xF0 ? c & 7 : c >= 0xE0 ? c & 15 : c & 31;
  static const int32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
  *cp = -1;
  if (c < 0xC2 || c > 0xF4 || left < n) return 1;
  for (int i = 1; i < n; i++) {
    if ((s[i] & 0xC0) != 0x80) return 1;
    v = v << 6 | (s[i] & 0x3F);
  }
  if (v < least[n] || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000)) return 1;
  *cp = v;
  return n;
}

int64_t text_hex(const char *p, const char *end, int n) {
  int64_t v = 0;
  if (end - p < n) return -1;
  for (int i = 0; i < n; i++) {
    int d = text_digit(p[i]);
    if (d >= 16) return -1;
    v = v << 4 | d;
  }
  return v;
}

int text_utf8_put(int32_t cp, char out[4]) {
  if (cp < 0x80) { out[0] = (char)cp; return 1; }
  if (cp < 0x800) { out[0] = (char)(0xC0 | cp >> 6); out[1] = (char)(0x80 | (cp & 63)); return 2; }
  if (cp < 0x10000) {
    out[0] = (char)(0xE0 | cp >> 12);
    out[1] = (char)(0x80 | (cp >> 6 & 63));
    out[2] = (char)(0x80 | (cp & 63));
    return 3;
  }
  out[0] = (char)(0xF0 | cp >> 18);
  out[1] = (char)(0x80 | (cp >> 12 & 63));
  out[2] = (char)(0x80 | (cp >> 6 & 63));
  out[3] = (char)(0x80 | (cp & 63));
  return 4;
}

void text_utf8_add(Str *s, int32_t cp) {
  char b[4];
  str_add_n(s, b, (size_t)text_utf8_put(cp, b));
}

size_t text_utf8_valid(const char *p, size_t n) {
  const char *q = p, *end = p + n;
  while (q < end) {
    uint64_t eight;
    int32_t cp;
    if (end - q >= 8 && (memcpy(&eight, q, 8), !(eight & 0x8080808080808080u))) { q += 8; continue; }
    int k = text_utf8_next(q, end, &cp);
    if (cp < 0) break;
    q += k;
  }
  return (size_t)(q - p);
}

size_t text_utf8_count(const char *p, size_t n) {
  size_t count = 0;
  for (const char *q = p, *end = p + n; q < end; count++) {
    int32_t cp;
    q += text_utf8_next(q, end, &cp);
  }
  return count;
}

/* The Unicode Standard's "maximal subpart": bytes that begin a legal sequence belong together. */
int text_utf8_seq_len(const char *p, size_t n, bool *complete) {
  int32_t cp;
  int k = text_utf8_next(p, p + n, &cp);
  *complete = true;
  if (cp >= 0) return k;
  uint8_t c = (uint8_t)p[0];
  int want = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2, got = 1;
  if (c < 0xC2 || c > 0xF4) return 1;
  for (; got < want && (size_t)got < n; got++) {
    uint8_t b = (uint8_t)p[got];
    uint8_t lo = got > 1 ? 0x80 : c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80, hi = got > 1 ? 0xBF : c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    if (b < lo || b > hi) return got;
  }
  *complete = (size_t)got < n || got == want;
  return got;
}

int text_char_category(int32_t cp) { return cp < 0 ? UTF8PROC_CATEGORY_CN : (int)utf8proc_category(cp); }

int text_char_class(int32_t cp) {
  int c = text_char_category(cp);
  if (c == UTF8PROC_CATEGORY_CN) return CHAR_OTHER;
  if (c <= UTF8PROC_CATEGORY_LO) return CHAR_LETTER;
  if (c <= UTF8PROC_CATEGORY_ME) return CHAR_MARK;
  if (c <= UTF8PROC_CATEGORY_NO) return CHAR_NUMBER;
  if (c <= UTF8PROC_CATEGORY_PO) return CHAR_PUNCT;
  if (c <= UTF8PROC_CATEGORY_SO) return CHAR_SYMBOL;
  if (c <= UTF8PROC_CATEGORY_ZP) return CHAR_SEPARATOR;
  return CHAR_OTHER;
}

bool text_char_is_space(int32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool text_char_is_pyspace(int32_t c) { return text_char_is_space(c) || (c >= 0x1C && c <= 0x1F); }

bool text_char_is_word(int32_t cp) {
  return cp == '_' || (text_char_class(cp) & (CHAR_LETTER | CHAR_MARK | CHAR_NUMBER)) || text_char_category(cp) == UTF8PROC_CATEGORY_PC;
}

bool text_char_is_printable(int32_t cp) { return cp == ' ' || !(text_char_class(cp) & (CHAR_SEPARATOR | CHAR_OTHER)); }

typedef struct Casing { int32_t cp, map[3][3]; } Casing;
static const Casing casings[] = {
#define CASING(c, l0, l1, l2, t0, t1, t2, u0, u1, u2) {c, {{l0, l1, l2}, {u0, u1, u2}, {t0, t1, t2}}},
#include "text/casing.def"
#undef CASING
};

static int compare_casing(const void *a, const void *b) {
  const Casing *x = a, *y = b;
  return (x->cp > y->cp) - (x->cp < y->cp);
}

int text_char_case(int32_t cp, CaseMode mode, int32_t out[3]) {
  if (cp >= 0x80) {
    Casing key = {.cp = cp};
    const Casing *c = bsearch(&key, casings, COUNT_OF(casings), sizeof *casings, compare_casing);
    if (c) {
      int n = 0;
      for (; n < 3 && c->map[mode][n]; n++) out[n] = c->map[mode][n];
      return n;
    }
  }
  out[0] = cp < 0 ? cp : mode == CASE_LOWER ? utf8proc_tolower(cp) : mode == CASE_UPPER ? utf8proc_toupper(cp) : utf8proc_totitle(cp);
  return 1;
}

/* Canonical order within a run of marks: stable by class. Runs may be as long as the text, so this is a merge sort. */
static void sort_marks(int32_t *cp, uint8_t *cls, int32_t *tmp, uint8_t *tmp_cls, size_t n) {
  if (n < 2) return;
  size_t h = n / 2;
  sort_marks(cp, cls, tmp, tmp_cls, h);
  sort_marks(cp + h, cls + h, tmp, tmp_cls, n - h);
  if (cls[h - 1] <= cls[h]) return;
  memcpy(tmp, cp, h * sizeof *cp);
  memcpy(tmp_cls, cls, h);
  for (size_t i = 0, j = h, k = 0; i < h; k++) {
    bool right = j < n && cls[j] < tmp_cls[i];
    cp[k] = right ? cp[j] : tmp[i];
    cls[k] = right ? cls[j] : tmp_cls[i];
    right ? j++ : i++;
  }
}

static void order_marks(int32_t *cp, size_t n) {
  uint8_t *cls = malloc(2 * n + 1);
  int32_t *tmp = malloc(n * sizeof *tmp + 1);
  CHECK(cls && tmp, "out of memory");
  for (size_t i = 0; i < n; i++) cls[i] = (uint8_t)utf8proc_get_property(cp[i])->combining_class;
  for (size_t i = 0; i < n;) {
    if (!cls[i]) { i++; continue; }
    size_t j = i;
    while (j < n && cls[j]) j++;
    sort_marks(cp + i, cls + i, tmp, cls + n, j - i);
    i = j;
  }
  free(cls);
  free(tmp);
}

static void normal_run(const char *p, size_t n, NormalForm form, Str *out) {
  utf8proc_option_t opt = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE;
  if (form == FORM_NFKC || form == FORM_NFKD) opt |= UTF8PROC_COMPAT;
  size_t cap = n + 64, m = 0;
  int32_t *cp = malloc(cap * sizeof *cp);
  CHECK(cp, "out of memory");
  for (const char *q = p, *end = p + n; q < end;) {
    int32_t c, last = 0;
    q += text_utf8_next(q, end, &c);
    if (cap - m < 32) {
      cap *= 2;
      cp = realloc(cp, cap * sizeof *cp);
      CHECK(cp, "out of memory");
    }
    utf8proc_ssize_t k = utf8proc_decompose_char(c, cp + m, (utf8proc_ssize_t)(cap - m), opt, &last);
    if (k < 0 || k > 32) { cp[m] = c; k = 1; }
    m += (size_t)k;
  }
  order_marks(cp, m);
  if (form == FORM_NFC || form == FORM_NFKC) {
    utf8proc_ssize_t k = utf8proc_normalize_utf32(cp, (utf8proc_ssize_t)m, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    CHECK(k >= 0, "composition failed");
    m = (size_t)k;
  }
  for (size_t i = 0; i < m; i++) text_utf8_add(out, cp[i]);
  free(cp);
}

bool text_char_is_still(int32_t cp, NormalForm form) {
  if (cp < 0xA0) return cp >= 0;
  if (form == FORM_NFD || form == FORM_NFKD) return false;
#define STILL(first, last, k) if (cp <= (last)) return cp >= (first) && (k || form == FORM_NFC);
#include "text/still.def"
#undef STILL
  return false;
}

/* A still character is its own normal form and never joins what stands before it. Runs of them pass, all but the last, which may take what follows;
   the others are brought to the form together with it. Broken bytes pass. */
void text_normal_form(const char *p, size_t n, NormalForm form, Str *out) {
  const char *done = p, *end = p + n;
  for (const char *q = p, *last = p; q < end;) {
    int32_t cp;
    int k = text_utf8_next(q, end, &cp);
    if (cp < 0 || text_char_is_still(cp, form)) { last = cp < 0 ? q + k : q; q += k; continue; }
    str_add_n(out, done, (size_t)(last - done));
    while (q < end && (k = text_utf8_next(q, end, &cp), cp >= 0 && !text_char_is_still(cp, form))) q += k;
    normal_run(last, (size_t)(q - last), form, out);
    done = last = q;
  }
  str_add_n(out, done, (size_t)(end - done));
}

int32_t text_char_read(const char *p, size_t n) {
  int32_t c;
  return n && (size_t)text_utf8_next(p, p + n, &c) == n ? c : -1;
}

int32_t text_char_join(int32_t a, int32_t b) {
  char apart[8];
  Str whole = {0};
  int n = text_utf8_put(a, apart);
  n += text_utf8_put(b, apart + n);
  text_normal_form(apart, (size_t)n, FORM_NFC, &whole);
  int32_t c = text_char_read(whole.p, whole.n);
  str_free(&whole);
  return c;
}
