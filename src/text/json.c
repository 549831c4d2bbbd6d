/* JSON text to values: the reader for tokenizer files, requests and template contexts. It keeps what templates can tell apart and
   common readers lose: the order of keys, 1 against 1.0, integers past 64 bits, NUL characters.
   In: bytes. Out: a value of the arena, or ERR_SYNTAX with the offset. Depth is bounded; a lone surrogate escape and broken UTF-8
   become U+FFFD. NaN and Infinity are read, as Python does. */
#include <stdlib.h>
#include <string.h>
#include "text/priv.h"

enum { MAX_DEPTH = 512 };
typedef JsonWalk Reader;

static Err *bad(const Reader *r, const char *what) { return err_new(ERR_SYNTAX, "JSON: %s at byte %zu", what, (size_t)(r->p - r->start)); }

/* Indented files are mostly spaces: past eights of them. */
static inline const char *past_spaces(const char *p, const char *end) {
  for (uint64_t w; end - p >= 8 && (memcpy(&w, p, 8), w == 0x2020202020202020u);) p += 8;
  return p;
}

static void skip(Reader *r) {
  r->p = past_spaces(r->p, r->end);
  while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\t' || *r->p == '\r')) r->p++;
}

static Err *escape(Reader *r, char **w) {
  if (r->p >= r->end) return bad(r, "string without end");
  char c = *r->p++;
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  const char *hit = c ? strchr(from, c) : NULL;
  if (hit) { *(*w)++ = to[hit - from]; return NULL; }
  int32_t cp = c == 'u' ? (int32_t)text_hex(r->p, r->end, 4) : -1, low;
  if (cp < 0) return bad(r, "bad escape");
  r->p += 4;
  if (cp >= 0xD800 && cp < 0xDC00 && r->end - r->p >= 6 && r->p[0] == '\\' && r->p[1] == 'u' && (low = (int32_t)text_hex(r->p + 2, r->end, 4)) >= 0xDC00 && low < 0xE000) {
    cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
    r->p += 6;
  }
  if (cp >= 0xD800 && cp < 0xE000) cp = 0xFFFD;
  *w += text_utf8_put(cp, *w);
  return NULL;
}

/* An escape is never shorter than the bytes it stands for, but a broken byte grows to three. view: *p is in the text itself. */
static Err *string_text(Reader *r, const char **p, size_t *n_out, bool *view) {
  const char *q = ++r->p;
  bool plain = true, ascii = true;
  for (; q < r->end && *q != '"'; q++) {
    if ((uint8_t)*q < 0x20) { r->p = q; return bad(r, "control character in a string"); }
    if (*q == '\\') { plain = false; q++; }
    else ascii &= (uint8_t)*q < 0x80;
  }
  if (q >= r->end) return bad(r, "string without end");
  size_t n = (size_t)(q - r->p);
  *view = plain && (ascii || text_utf8_valid(r->p, n) == n);
  if (*view) {
    *p = r->p;
    *n_out = n;
    r->p = q + 1;
    return NULL;
  }
  char *buf = arena_alloc(r->a, 3 * n + 4), *w = buf;
  while (r->p < r->end && *r->p != '"') {
    int32_t cp;
    if (*r->p == '\\') { r->p++; TRY(escape(r, &w)); continue; }
    if ((uint8_t)*r->p < 0x20) return bad(r, "control character in a string");
    r->p += text_utf8_next(r->p, r->end, &cp);
    w += text_utf8_put(cp < 0 ? 0xFFFD : cp, w);
  }
  if (r->p >= r->end) return bad(r, "string without end");
  r->p++;
  *p = buf;
  *n_out = (size_t)(w - buf);
  return NULL;
}

static Err *string(Reader *r, Val *out) {
  const char *p;
  size_t n;
  bool view;
  TRY(string_text(r, &p, &n, &view));
  *out = view ? val_str(r->a, p, n) : val_str_view(r->a, p, n);
  return NULL;
}

static Err *number(Reader *r, Val *out) {
  const char *s = r->p;
  bool neg = *s == '-', real = false;
  if (neg) r->p++;
  const char *d = r->p;
  while (r->p < r->end && *r->p >= '0' && *r->p <= '9') r->p++;
  if (r->p == d || (*d == '0' && r->p - d > 1)) return bad(r, "bad number");
  const char *int_end = r->p;
  if (r->p < r->end && *r->p == '.') {
    real = true;
    const char *f = ++r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9') r->p++;
    if (r->p == f) return bad(r, "bad number");
  }
  if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
    real = true;
    r->p++;
    if (r->p < r->end && (*r->p == '+' || *r->p == '-')) r->p++;
    const char *f = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9') r->p++;
    if (r->p == f) return bad(r, "bad number");
  }
  if (real) {
    Str t = {0};
    str_add_n(&t, s, (size_t)(r->p - s));
    *out = val_float(strtod(t.p, NULL));
    str_free(&t);
    return NULL;
  }
  if (int_end - d < 18) {
    int64_t i = 0;
    for (; d < int_end; d++) i = i * 10 + (*d - '0');
    *out = (Val){.kind = V_INT, .u.i = neg ? -i : i};
    return NULL;
  }
  if (int_end - d > 38) return bad(r, "integer of more than 38 digits");
  Int128 v = 0;
  for (; d < int_end; d++) v = v * 10 + (*d - '0');
  *out = val_int(r->a, neg ? -v : v);
  return NULL;
}

Err *text_json_enter(JsonWalk *w, char bracket) {
  skip(w);
  if (w->p >= w->end || *w->p != bracket) return bad(w, bracket == '[' ? "expected a list" : "expected an object");
  w->p++;
  return NULL;
}

Err *text_json_next(JsonWalk *w, char bracket, bool *first, bool *more) {
  char close = bracket == '[' ? ']' : '}';
  bool was_first = *first;
  *first = false;
  *more = true;
  skip(w);
  if (w->p < w->end && *w->p == close) {
    w->p++;
    *more = false;
  } else if (!was_first) {
    if (w->p >= w->end || *w->p != ',') return bad(w, bracket == '[' ? "expected ',' or ']'" : "expected ',' or '}'");
    w->p++;
    skip(w);
  }
  return NULL;
}

Err *text_json_string(JsonWalk *w, const char **p, size_t *n) {
  bool view;
  skip(w);
  if (w->p >= w->end || *w->p != '"') return bad(w, "expected a string");
  return string_text(w, p, n, &view);
}

Err *text_json_key(JsonWalk *w, const char **p, size_t *n) {
  bool view;
  if (w->p >= w->end || *w->p != '"') return bad(w, "expected a key");
  TRY(string_text(w, p, n, &view));
  skip(w);
  if (w->p >= w->end || *w->p != ':') return bad(w, "expected ':'");
  w->p++;
  return NULL;
}

/* Past a list or an object, looking at strings and brackets only. Commas between its items are counted. */
static Err *pass_over(Reader *r, Val *out) {
  const char *from = r->p, *p = from, *end = r->end;
  int depth = 0;
  int64_t n = 1;
  do {
    p = past_spaces(p, end);
    if (p >= end) { r->p = p; return bad(r, "text without end"); }
    char c = *p++;
    if (c == '"') {
      while (p < end && *p != '"') p += *p == '\\' ? 2 : 1;
      if (p >= end) { r->p = end; return bad(r, "string without end"); }
      p++;
    } else if (c == '{' || c == '[') {
      depth++;
    } else if (c == '}' || c == ']') {
      depth--;
    } else {
      n += c == ',' && depth == 1;
    }
  } while (depth);
  r->p = p;
  *out = val_str_view(r->a, from, (size_t)(p - from));
  VStr *s = (VStr *)(uintptr_t)out->u.s;
  s->bytes = true;
  s->n_chars = n;
  return NULL;
}

int64_t text_json_late_n(Val late) { return late.u.s->n_chars; }
char text_json_late(const Val *v) { return v && v->kind == V_STR && v->u.s->bytes ? v->u.s->p[0] : 0; }
JsonWalk text_json_walk(Arena *a, Val late) { return (JsonWalk){.a = a, .p = late.u.s->p, .end = late.u.s->p + late.u.s->n, .start = late.u.s->p}; }

static Err *value(Reader *r, Val *out);

static Err *array(Reader *r, Val *out) {
  Val l = val_list(r->a, 0), item;
  r->p++;
  for (bool first = true, more;;) {
    TRY(text_json_next(r, '[', &first, &more));
    if (!more) break;
    TRY(value(r, &item));
    val_push(r->a, l, item);
  }
  *out = l;
  return NULL;
}

static Err *object(Reader *r, Val *out) {
  Val d = val_dict(r->a), item;
  r->p++;
  for (bool first = true, more;;) {
    const char *key;
    size_t n;
    TRY(text_json_next(r, '{', &first, &more));
    if (!more) break;
    TRY(text_json_key(r, &key, &n));
    skip(r);
    bool late = r->late && ((n == 5 && !memcmp(key, "vocab", 5)) || (n == 6 && !memcmp(key, "merges", 6)));
    TRY(late && r->p < r->end && (*r->p == '{' || *r->p == '[') ? pass_over(r, &item) : value(r, &item));
    val_put(r->a, d.u.d, val_str(r->a, key, n), item);
  }
  *out = d;
  return NULL;
}

static bool word(Reader *r, const char *w) {
  size_t n = strlen(w);
  if ((size_t)(r->end - r->p) < n || memcmp(r->p, w, n)) return false;
  r->p += n;
  return true;
}

static Err *value(Reader *r, Val *out) {
  skip(r);
  if (r->p >= r->end) return bad(r, "expected a value");
  char c = *r->p;
  if (c == '"') return string(r, out);
  if (c == '{' || c == '[') {
    if (++r->depth > MAX_DEPTH) return bad(r, "nested too deep");
    TRY(c == '{' ? object(r, out) : array(r, out));
    r->depth--;
    return NULL;
  }
  if (word(r, "true")) *out = val_bool(true);
  else if (word(r, "false")) *out = val_bool(false);
  else if (word(r, "null")) *out = val_none();
  else if (word(r, "NaN")) *out = val_float(__builtin_nan(""));
  else if (word(r, "Infinity")) *out = val_float(__builtin_inf());
  else if (word(r, "-Infinity")) *out = val_float(-__builtin_inf());
  else if (c == '-' || (c >= '0' && c <= '9')) return number(r, out);
  else return bad(r, "expected a value");
  return NULL;
}

Err *text_json_value(JsonWalk *w, Val *out) { return value(w, out); }

static Err *whole(Reader *r, Val *out) {
  if (r->end - r->p >= 3 && !memcmp(r->p, "\xEF\xBB\xBF", 3)) r->p += 3;
  Val v;
  TRY(value(r, &v));
  skip(r);
  if (r->p != r->end) return bad(r, "text after the value");
  *out = v;
  return NULL;
}

Err *text_json_parse(Arena *a, const char *p, size_t n, Val *out) {
  Reader r = {.a = a, .p = p, .end = p + n, .start = p};
  return whole(&r, out);
}

Err *text_json_parse_late(Arena *a, const char *p, size_t n, Val *out) {
  Reader r = {.a = a, .p = p, .end = p + n, .start = p, .late = true};
  return whole(&r, out);
}
