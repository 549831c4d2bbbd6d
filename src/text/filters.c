/* Filters on texts and numbers, and the table of all filters (filters.def); those on sequences are in sequences.c.
   In: the value and arguments bound by the row's parameter list; an argument not given has kind V_ERROR. Out: a value or an error. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "text/priv.h"

#define FAIL ((Val){.kind = V_ERROR})
#define FILTER_FN(fn) Val fn(Render *r, Val v, Val *arg, const Args *all)
#define UNUSED_ARGS (void)r; (void)v; (void)arg; (void)all
#define GIVEN(a) ((a).kind != V_ERROR)

static Val safe_str(Render *r, const VStr *v) {
  Weave s = {0};
  text_weave_part(&s, v, v->p, v->n);
  return text_weave_take(r, &s, true);
}

static bool int_arg(Render *r, Val v, int64_t otherwise, int64_t *out) {
  if (!GIVEN(v)) { *out = otherwise; return true; }
  if (!val_is_int(v)) { v.kind == V_UNDEF ? text_undefined_error(r, v) : val_fail(r, ERR_FORMAT, "expected an integer, got %s", val_type_name(v)); return false; }
  Int128 i = val_as_int(v);
  *out = i > INT32_MAX ? INT32_MAX : i < -(Int128)INT32_MAX ? -INT32_MAX : (int64_t)i;
  return true;
}

static Val number_error(Render *r, Val v, const char *what) {
  return v.kind == V_UNDEF ? text_undefined_error(r, v) : val_fail(r, ERR_FORMAT, "bad operand type for %s: '%s'", what, val_type_name(v));
}

/* Texts. */
FILTER_FN(text_filter_upper) { UNUSED_ARGS; v = text_soft_str(r, v); return GIVEN(v) ? text_str_case(r, v, 1) : v; }
FILTER_FN(text_filter_lower) { UNUSED_ARGS; v = text_soft_str(r, v); return GIVEN(v) ? text_str_case(r, v, 0) : v; }
FILTER_FN(text_filter_capitalize) { UNUSED_ARGS; v = text_soft_str(r, v); return GIVEN(v) ? text_str_case(r, v, 3) : v; }
FILTER_FN(text_filter_string) { UNUSED_ARGS; return text_soft_str(r, v); }
FILTER_FN(text_filter_trim) { UNUSED_ARGS; v = text_soft_str(r, v); return GIVEN(v) ? text_str_strip(r, v, arg[0], 3) : v; }

/* Jinja's title: a word begins after space, '-', '(', '{', '[' or '<'. */
FILTER_FN(text_filter_title) {
  UNUSED_ARGS;
  Str s = {0};
  bool in_word = false;
  v = text_soft_str(r, v);
  if (!GIVEN(v)) return v;
  for (const char *q = v.u.s->p, *end = q + v.u.s->n; q < end;) {
    int32_t c, m[3];
    q += text_utf8_next(q, end, &c);
    int n = text_char_case(c, in_word ? CASE_LOWER : CASE_UPPER, m);
    for (int i = 0; i < n; i++) text_utf8_add(&s, m[i]);
    in_word = !(text_char_is_pyspace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<');
  }
  return text_render_take(r, &s, v.u.s->safe);
}

FILTER_FN(text_filter_center) {
  UNUSED_ARGS;
  Val width = GIVEN(arg[0]) ? arg[0] : val_int(r->arena, 80);
  Args args = {.pos = &width, .n = 1};
  v = text_soft_str(r, v);
  return GIVEN(v) ? text_call_row(r, text_method_row(v, "center", 6), v, &args) : v;
}

FILTER_FN(text_filter_replace) {
  UNUSED_ARGS;
  int64_t count;
  if (arg[2].kind == V_NONE) arg[2] = FAIL;
  Val s = text_to_str(r, v), old = text_to_str(r, arg[0]), with = text_to_str(r, arg[1]);
  return GIVEN(s) && GIVEN(old) && GIVEN(with) && int_arg(r, arg[2], -1, &count) ? text_str_replace(r, s, old, with, count) : FAIL;
}

FILTER_FN(text_filter_escape) {
  UNUSED_ARGS;
  Str s = {0};
  if (v.kind == V_STR && v.u.s->safe) return v;
  v = text_to_str(r, v);
  if (!GIVEN(v)) return v;
  text_escape(&s, v.u.s->p, v.u.s->n);
  return text_render_take(r, &s, true);
}

FILTER_FN(text_filter_forceescape) {
  UNUSED_ARGS;
  Str s = {0};
  v = text_to_str(r, v);
  if (!GIVEN(v)) return v;
  text_escape(&s, v.u.s->p, v.u.s->n);
  return text_render_take(r, &s, true);
}

FILTER_FN(text_filter_safe) {
  UNUSED_ARGS;
  v = text_to_str(r, v);
  return GIVEN(v) ? safe_str(r, v.u.s) : v;
}

FILTER_FN(text_filter_format) {
  UNUSED_ARGS;
  if (all->n && all->n_kw) return val_fail(r, ERR_FORMAT, "format: positional and keyword arguments at the same time");
  Val args = val_tuple(r->arena, all->n);
  for (int i = 0; i < all->n; i++) val_push(r->arena, args, all->pos[i]);
  v = text_soft_str(r, v);
  return GIVEN(v) ? text_percent(r, v, args, all->n_kw ? all : NULL) : v;
}

FILTER_FN(text_filter_indent) {
  UNUSED_ARGS;
  int64_t width = 4;
  bool first = val_truth(arg[1]), blank = val_truth(arg[2]);
  Weave s = {0}, pad = {0};
  if (v.kind != V_STR) return number_error(r, v, "indent");
  if (arg[0].kind == V_STR) text_weave_print(&pad, arg[0]);
  else if (!int_arg(r, arg[0], 4, &width) || !text_render_room(r, (size_t)MAX(width, 0), 0)) return FAIL;
  else for (int64_t i = 0; i < width; i++) text_weave_own(&pad, " ", 1);
  Val lines = text_str_splitlines(r, v, false);
  bool ends = v.u.s->n && GIVEN(lines); /* Jinja adds a newline first, so a text that ends in one has an empty last line */
  if (ends && strchr("\n\r", v.u.s->p[v.u.s->n - 1])) val_push(r->arena, lines, val_str(r->arena, "", 0));
  for (int i = 0; GIVEN(lines) && i < lines.u.l->n && s.text.n <= TEMPLATE_MAX_OUTPUT; i++) {
    const VStr *line = lines.u.l->items[i].u.s;
    if (i) text_weave_own(&s, "\n", 1);
    if (i ? line->n || blank : first) text_weave_add(&s, &pad);
    text_weave_part(&s, line, line->p, line->n);
  }
  if (GIVEN(lines) && !lines.u.l->n && first) text_weave_add(&s, &pad);
  text_weave_free(&pad);
  if (!GIVEN(lines)) { text_weave_free(&s); return FAIL; }
  return text_weave_take(r, &s, v.u.s->safe);
}

FILTER_FN(text_filter_truncate) {
  UNUSED_ARGS;
  int64_t length, leeway, len = v.kind == V_STR ? (int64_t)val_n_chars(v) : 0;
  Val end = GIVEN(arg[2]) ? arg[2] : val_str_view(r->arena, "...", 3);
  if (arg[3].kind == V_NONE) arg[3] = FAIL;
  if (v.kind != V_STR || end.kind != V_STR) return number_error(r, v.kind == V_STR ? end : v, "truncate");
  if (!int_arg(r, arg[0], 255, &length) || !int_arg(r, arg[3], 5, &leeway)) return FAIL;
  int64_t keep = length - (int64_t)val_n_chars(end);
  if (keep < 0 || leeway < 0) return val_fail(r, ERR_FORMAT, "truncate: length %lld is less than its end mark, or leeway below 0", (long long)length);
  if (len <= length + leeway) return v;
  Val cut = text_str_slice(r, v, 0, keep, 1, MIN(keep, len));
  if (!GIVEN(cut)) return cut;
  size_t n = cut.u.s->n;
  const char *space = val_truth(arg[1]) ? NULL : memrchr(cut.u.s->p, ' ', n);
  Str s = {0};
  str_add_n(&s, cut.u.s->p, space ? (size_t)(space - cut.u.s->p) : n);
  str_add_n(&s, end.u.s->p, end.u.s->n);
  return text_render_take(r, &s, v.u.s->safe);
}

/* Python's textwrap for one line: chunks are words and the spaces between; a long word is cut; a hyphen between letters may break. */
typedef struct Wrap { Str *out; const char *newline; size_t n_newline; int64_t width; bool cut, hyphens, any; } Wrap;

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (uint8_t)c >= 0x80; }

static size_t chunk_len(const Wrap *w, const char *p, size_t n) {
  size_t k = 0;
  bool space = p[0] == ' ' || p[0] == '\t';
  while (k < n && (p[k] == ' ' || p[k] == '\t') == space) {
    k++;
    if (w->hyphens && !space && k > 1 && k < n && p[k - 1] == '-' && is_letter(p[k - 2]) && is_letter(p[k])) break;
  }
  return k;
}

static void wrap_line(Wrap *w, const char *p, size_t n) {
  Str line = {0};
  int64_t len = 0;
  bool first = true;
  while (n) {
    size_t k = chunk_len(w, p, n);
    int64_t chars = (int64_t)text_utf8_count(p, k);
    bool space = p[0] == ' ' || p[0] == '\t';
    if (len + chars > w->width && !(space && !len)) {
      if (chars > w->width && w->cut && !space) { /* fill the line with the beginning of a long word */
        k = 0;
        for (int64_t room = MAX(w->width - len, len ? 0 : 1); room > 0 && k < n; room--) { int32_t c; k += (size_t)text_utf8_next(p + k, p + n, &c); }
        str_add_n(&line, p, k);
        p += k;
        n -= k;
      } else if (space || !len) {
        if (!space) str_add_n(&line, p, k);
        p += k;
        n -= k;
      }
      while (line.n && (line.p[line.n - 1] == ' ' || line.p[line.n - 1] == '\t')) line.n--;
      if (!first) str_add_n(w->out, w->newline, w->n_newline);
      str_add_n(w->out, line.p, line.n);
      first = false;
      str_clear(&line);
      len = 0;
      continue;
    }
    if (!(space && !len && !first)) { str_add_n(&line, p, k); len += chars; }
    p += k;
    n -= k;
  }
  while (line.n && (line.p[line.n - 1] == ' ' || line.p[line.n - 1] == '\t')) line.n--;
  if (line.n && !first) str_add_n(w->out, w->newline, w->n_newline);
  str_add_n(w->out, line.p, line.n);
  str_free(&line);
}

FILTER_FN(text_filter_wordwrap) {
  UNUSED_ARGS;
  Str s = {0};
  Wrap w = {.out = &s, .newline = "\n", .n_newline = 1, .cut = !GIVEN(arg[1]) || val_truth(arg[1]), .hyphens = !GIVEN(arg[3]) || val_truth(arg[3])};
  if (v.kind != V_STR) return number_error(r, v, "wordwrap");
  if (!int_arg(r, arg[0], 79, &w.width)) return FAIL;
  if (w.width <= 0) return val_fail(r, ERR_FORMAT, "wordwrap: width %lld, expected above 0", (long long)w.width);
  if (arg[2].kind == V_STR) { w.newline = arg[2].u.s->p; w.n_newline = arg[2].u.s->n; }
  Val lines = text_str_splitlines(r, v, false);
  if (!GIVEN(lines)) return lines;
  for (int i = 0; i < lines.u.l->n; i++) {
    if (i) str_add_n(&s, w.newline, w.n_newline);
    wrap_line(&w, lines.u.l->items[i].u.s->p, lines.u.l->items[i].u.s->n);
    if (!text_render_room(r, s.n, (int64_t)lines.u.l->items[i].u.s->n / 16)) { str_free(&s); return FAIL; }
  }
  return text_render_take(r, &s, false);
}

FILTER_FN(text_filter_wordcount) {
  UNUSED_ARGS;
  int64_t n = 0;
  bool in = false;
  v = text_soft_str(r, v);
  if (!GIVEN(v)) return v;
  for (const char *q = v.u.s->p, *end = q + v.u.s->n; q < end;) {
    int32_t c;
    q += text_utf8_next(q, end, &c);
    bool w = text_char_is_word(c);
    n += w && !in;
    in = w;
  }
  return val_int(r->arena, n);
}

static void url_quote(Str *out, Val v, bool query) {
  Str s = {0};
  val_print(&s, v);
  for (size_t i = 0; i < s.n; i++) {
    char c = s.p[i];
    bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c && strchr("_.-~", c)) || (c == '/' && !query);
    if (plain) str_add_c(out, c);
    else if (c == ' ' && query) str_add_c(out, '+');
    else str_addf(out, "%%%02X", (uint8_t)c);
  }
  str_free(&s);
}

FILTER_FN(text_filter_urlencode) {
  UNUSED_ARGS;
  Str s = {0};
  Val *items;
  int n;
  if (v.kind != V_DICT && v.kind != V_LIST && v.kind != V_VIEW && v.kind != V_ITER) { url_quote(&s, v, false); return text_render_take(r, &s, false); }
  if (v.kind == V_DICT) v = text_call_row(r, text_method_row(v, "items", 5), v, &(Args){0});
  if (!text_iterate(r, v, &items, &n)) return FAIL;
  for (int i = 0; i < n; i++) {
    Val *pair;
    int two;
    if (!text_iterate(r, items[i], &pair, &two) || two != 2) { str_free(&s); return r->err ? FAIL : val_fail(r, ERR_FORMAT, "urlencode: expected pairs"); }
    if (i) str_add_c(&s, '&');
    url_quote(&s, pair[0], true);
    str_add_c(&s, '=');
    url_quote(&s, pair[1], true);
  }
  return text_render_take(r, &s, false);
}

FILTER_FN(text_filter_urlize) { UNUSED_ARGS; return val_fail(r, ERR_UNSUPPORTED, "the filter urlize makes HTML links and is not supported"); }

/* Comments and tags out, runs of space to one, the usual entities back. */
FILTER_FN(text_filter_striptags) {
  UNUSED_ARGS;
  Str s = {0};
  bool gap = false;
  static const char *const entity[][2] = {{"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}, {"&quot;", "\""}, {"&#34;", "\""}, {"&#39;", "'"}, {"&nbsp;", "\xC2\xA0"}};
  v = text_to_str(r, v);
  if (!GIVEN(v)) return v;
  for (const char *q = v.u.s->p, *end = q + v.u.s->n; q < end;) {
    size_t left = (size_t)(end - q);
    bool comment = left >= 4 && !memcmp(q, "<!--", 4);
    const char *close = *q == '<' ? memmem(q, left, comment ? "-->" : ">", comment ? 3 : 1) : NULL;
    if (close) { q = close + (comment ? 3 : 1); continue; }
    int32_t c;
    int k = text_utf8_next(q, end, &c);
    if (text_char_is_pyspace(c)) { gap = s.n > 0; q += k; continue; }
    if (gap) str_add_c(&s, ' ');
    gap = false;
    size_t e = 0;
    while (e < COUNT_OF(entity) && (left < strlen(entity[e][0]) || memcmp(q, entity[e][0], strlen(entity[e][0])))) e++;
    if (*q == '&' && e < COUNT_OF(entity)) { str_add(&s, entity[e][1]); q += strlen(entity[e][0]); continue; }
    str_add_n(&s, q, (size_t)k);
    q += k;
  }
  return text_render_take(r, &s, false);
}

FILTER_FN(text_filter_xmlattr) {
  UNUSED_ARGS;
  Str s = {0};
  if (v.kind != V_DICT) return number_error(r, v, "xmlattr");
  for (int i = 0; i < v.u.d->n; i++) {
    Val key = v.u.d->keys[i], item = v.u.d->vals[i];
    if (item.kind == V_NONE || item.kind == V_UNDEF) continue;
    if (key.kind != V_STR || strpbrk(key.u.s->p, " \t\n\r\f\v/>=")) { str_free(&s); return val_fail(r, ERR_FORMAT, "invalid character in attribute name"); }
    if (s.n) str_add_c(&s, ' ');
    Str one = {0};
    val_print(&one, item);
    text_escape(&s, key.u.s->p, key.u.s->n);
    str_add(&s, "=\"");
    item.kind == V_STR && item.u.s->safe ? str_add_n(&s, one.p, one.n) : text_escape(&s, one.p ? one.p : "", one.n);
    str_add_c(&s, '"');
    str_free(&one);
  }
  Str out = {0};
  if (s.n && (!GIVEN(arg[0]) || val_truth(arg[0]))) str_add_c(&out, ' ');
  str_add_n(&out, s.p, s.n);
  str_free(&s);
  return text_render_take(r, &out, r->autoescape);
}

/* Numbers. */
FILTER_FN(text_filter_abs) {
  UNUSED_ARGS;
  if (!val_is_number(v)) return number_error(r, v, "abs()");
  if (v.kind == V_FLOAT) return val_float(fabs(v.u.f));
  return val_as_int(v) < 0 ? text_binary(r, TK_SUB, val_int(r->arena, 0), v) : val_int(r->arena, val_as_int(v));
}

/* int(text, base) as Python reads it: spaces around, a sign, a prefix that fits the base, '_' between digits. */
static bool parse_int(const char *p, const char *end, int base, Int128 *out) {
  int32_t c;
  while (p < end && (text_utf8_next(p, end, &c), text_char_is_pyspace(c))) p += text_utf8_next(p, end, &c);
  while (end > p && strchr(" \t\n\r\f\v", end[-1]) && end[-1]) end--;
  bool neg = p < end && *p == '-', digit = false;
  if (p < end && (*p == '-' || *p == '+')) p++;
  if (p + 2 < end && *p == '0') {
    char x = (char)(p[1] | 32);
    int prefix = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 0;
    if (prefix && (base == prefix || base == 0)) { p += 2; base = prefix; }
  }
  if (base == 0) base = 10;
  Int128 v = 0;
  for (; p < end; p++) {
    if (*p == '_' && digit && p + 1 < end && p[1] != '_') continue;
    int d = text_digit(*p);
    if (d >= base || __builtin_mul_overflow(v, (Int128)base, &v) || __builtin_add_overflow(v, (Int128)d, &v)) return false;
    digit = true;
  }
  *out = neg ? -v : v;
  return digit;
}

static bool parse_float(Val s, double *out) {
  char buf[400], *end;
  size_t n = 0;
  const char *p = s.u.s->p, *stop = p + s.u.s->n;
  while (p < stop && strchr(" \t\n\r\f\v", *p) && *p) p++;
  while (stop > p && strchr(" \t\n\r\f\v", stop[-1]) && stop[-1]) stop--;
  if (p == stop || (size_t)(stop - p) >= sizeof buf) return false;
  for (const char *q = p; q < stop; q++) {
    bool between = *q == '_' && q > p && q + 1 < stop && q[-1] >= '0' && q[-1] <= '9' && q[1] >= '0' && q[1] <= '9';
    if (between) continue;
    if (!*q || (!strchr("+-.eE0123456789", *q) && !((*q | 32) >= 'a' && (*q | 32) <= 'z'))) return false;
    buf[n++] = *q;
  }
  buf[n] = 0;
  const char *body = buf + (buf[0] == '+' || buf[0] == '-');
  bool word = !strcasecmp(body, "inf") || !strcasecmp(body, "infinity") || !strcasecmp(body, "nan");
  if (!word && strpbrk(body, "abcdfghijklmnopqrstuvwxyzABCDFGHIJKLMNOPQRSTUVWXYZ")) return false; /* no hexadecimal floats */
  *out = strtod(buf, &end);
  return end == buf + n;
}

static Val float_to_int(Render *r, double f, Val otherwise) {
  if (!(fabs(f) < 1.7e38)) return otherwise;
  return val_int(r->arena, (Int128)f);
}

FILTER_FN(text_filter_int) {
  UNUSED_ARGS;
  Val otherwise = GIVEN(arg[0]) ? arg[0] : val_int(r->arena, 0);
  int64_t base;
  Int128 i;
  double f;
  if (!int_arg(r, arg[1], 10, &base)) return FAIL;
  if (v.kind == V_UNDEF) return text_undefined_error(r, v);
  if (v.kind == V_FLOAT) return float_to_int(r, v.u.f, otherwise);
  if (val_is_int(v)) return val_int(r->arena, val_as_int(v));
  if (v.kind != V_STR) return otherwise;
  if (base >= 0 && base <= 36 && base != 1 && parse_int(v.u.s->p, v.u.s->p + v.u.s->n, (int)base, &i)) return val_int(r->arena, i);
  return parse_float(v, &f) ? float_to_int(r, f, otherwise) : otherwise;
}

FILTER_FN(text_filter_float) {
  UNUSED_ARGS;
  double f;
  if (v.kind == V_UNDEF) return text_undefined_error(r, v);
  if (val_is_number(v)) return val_float(val_as_float(v));
  if (v.kind == V_STR && parse_float(v, &f)) return val_float(f);
  return GIVEN(arg[0]) ? arg[0] : val_float(0);
}

static Val round_int(Render *r, Int128 i, int64_t precision) {
  if (precision >= 0) return val_int(r->arena, i);
  if (precision < -37) return val_int(r->arena, 0);
  Int128 unit = 1;
  for (int64_t k = 0; k < -precision; k++) unit *= 10;
  Int128 q = i / unit, rest = i % unit;
  if (rest < 0) { rest += unit; q--; }
  if (rest * 2 > unit || (rest * 2 == unit && (q & 1))) q++;
  return val_int(r->arena, q * unit);
}

FILTER_FN(text_filter_round) {
  UNUSED_ARGS;
  int64_t precision;
  char buf[800];
  if (!val_is_number(v)) return number_error(r, v, "round()");
  if (!int_arg(r, arg[0], 0, &precision)) return FAIL;
  precision = MIN(MAX(precision, -300), 300);
  bool ceiling = GIVEN(arg[1]) && val_is_str(arg[1], "ceil"), down = GIVEN(arg[1]) && val_is_str(arg[1], "floor");
  if (GIVEN(arg[1]) && !ceiling && !down && !val_is_str(arg[1], "common")) return val_fail(r, ERR_FORMAT, "round: method must be common, ceil or floor");
  if (ceiling || down) {
    double unit = pow(10, (double)precision), x = val_as_float(v) * unit;
    return val_float((ceiling ? ceil(x) : floor(x)) / unit);
  }
  if (v.kind != V_FLOAT) return round_int(r, val_as_int(v), precision);
  if (isnan(v.u.f) || isinf(v.u.f)) return v;
  if (precision >= 0) {
    snprintf(buf, sizeof buf, "%.*f", (int)precision, v.u.f);
    return val_float(strtod(buf, NULL));
  }
  double unit = pow(10, (double)-precision);
  return val_float(nearbyint(v.u.f / unit) * unit);
}

FILTER_FN(text_filter_filesizeformat) {
  UNUSED_ARGS;
  bool binary = val_truth(arg[0]);
  double base = binary ? 1024 : 1000, bytes, unit = base;
  static const char prefix[] = "kMGTPEZY";
  if (val_is_number(v)) bytes = val_as_float(v);
  else if (v.kind != V_STR || !parse_float(v, &bytes)) return number_error(r, v, "filesizeformat");
  Str s = {0};
  if (bytes == 1) str_add(&s, "1 Byte");
  else if (bytes < base) str_addf(&s, "%.0f Bytes", trunc(bytes));
  else {
    size_t i = 0;
    for (unit = base * base; i < 7 && bytes >= unit; i++) unit *= base;
    str_addf(&s, "%.1f %c%sB", base * bytes / unit, binary && !i ? 'K' : prefix[i], binary ? "i" : "");
  }
  return text_render_take(r, &s, false);
}

/* Anything. */
FILTER_FN(text_filter_default) {
  UNUSED_ARGS;
  if (v.kind != V_UNDEF && !(val_truth(arg[1]) && !val_truth(v))) return v;
  return GIVEN(arg[0]) ? arg[0] : val_str_view(r->arena, "", 0);
}

FILTER_FN(text_filter_length) {
  UNUSED_ARGS;
  int64_t n;
  return text_length(r, v, &n) ? val_int(r->arena, n) : FAIL;
}

FILTER_FN(text_filter_attr) {
  UNUSED_ARGS;
  if (arg[0].kind != V_STR) return val_fail(r, ERR_FORMAT, "attr: the name must be text");
  if (v.kind == V_DICT && !text_method_row(v, arg[0].u.s->p, arg[0].u.s->n) && !text_method_mutates(v, arg[0].u.s->p, arg[0].u.s->n)) return text_undefined(r, NULL, arg[0].u.s->p, "dict object");
  return text_getattr(r, v, arg[0].u.s->p, arg[0].u.s->n);
}

/* pprint sorts dictionaries; it does not break long lines here. */
static Val sorted_dicts(Render *r, Val v, int depth) {
  if (depth > 100 || (v.kind != V_DICT && v.kind != V_LIST) || !text_render_room(r, 64, 1)) return v;
  if (v.kind == V_LIST) {
    Val out = val_list(r->arena, v.u.l->n);
    out.u.l->tuple = v.u.l->tuple;
    for (int i = 0; i < v.u.l->n; i++) val_push(r->arena, out, sorted_dicts(r, v.u.l->items[i], depth + 1));
    return out;
  }
  Args none = {0};
  Val arg[3] = {val_bool(true), FAIL, FAIL}, pairs = text_filter_dictsort(r, v, arg, &none), out = val_dict(r->arena);
  if (!GIVEN(pairs)) return v;
  for (int i = 0; i < pairs.u.l->n; i++) val_put(r->arena, out.u.d, pairs.u.l->items[i].u.l->items[0], sorted_dicts(r, pairs.u.l->items[i].u.l->items[1], depth + 1));
  return out;
}

FILTER_FN(text_filter_pprint) {
  UNUSED_ARGS;
  Str s = {0};
  Val w = sorted_dicts(r, v, 0);
  if (r->err) return FAIL;
  val_repr(&s, w);
  return text_render_take(r, &s, false);
}

FILTER_FN(text_filter_tojson) {
  UNUSED_ARGS;
  return text_to_json(r, v, val_truth(arg[0]), GIVEN(arg[1]) ? arg[1] : val_none(), GIVEN(arg[2]) ? arg[2] : val_none(), val_truth(arg[3]));
}

static const BuiltinRow filters[] = {
#define FILTER(name, params, required, fn) {name, params, required, fn},
#include "text/filters.def"
#undef FILTER
};

const BuiltinRow *text_filter_row(const char *name) {
  for (size_t i = 0; i < COUNT_OF(filters); i++)
    if (!strcmp(filters[i].name, name)) return &filters[i];
  return NULL;
}
