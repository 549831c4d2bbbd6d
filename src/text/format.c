/* Python's two ways of formatting: "%05d" % x and "{:>5}".format(x).
   In: a format and values. Out: a string, or an error as Python gives one. Widths and precisions are bounded. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "text/priv.h"

enum { MAX_WIDTH = 1 << 20, MAX_PRECISION = 1000 };
typedef struct Spec {
  int32_t fill;
  char align, sign, comma, type;   /* 0: not given */
  bool alt, zero;
  int width, precision;            /* precision -1: not given */
} Spec;

static void digits_of(Str *out, Int128 v, int base, bool upper) {
  char buf[136], *p = buf + sizeof buf;
  do {
    int d = (int)(v % base);
    d = d < 0 ? -d : d;
    *--p = (char)(d < 10 ? '0' + d : (upper ? 'A' : 'a') + d - 10);
    v /= base;
  } while (v);
  str_add_n(out, p, (size_t)(buf + sizeof buf - p));
}

/* Digits in groups of three (four for hexadecimal with '_'). */
static void grouped(Str *s, char comma) {
  size_t n = 0;
  while (n < s->n && s->p[n] >= '0' && s->p[n] <= '9') n++;
  Str r = {0};
  for (size_t i = 0; i < n; i++) {
    if (i && (n - i) % 3 == 0) str_add_c(&r, comma);
    str_add_c(&r, s->p[i]);
  }
  str_add_n(&r, s->p + n, s->n - n);
  str_free(s);
  *s = r;
}

static void pad(Str *out, const Spec *f, char default_align, const char *sign, const Str *body) {
  size_t len = strlen(sign) + text_utf8_count(body->p ? body->p : "", body->n), fill = (size_t)f->width > len ? (size_t)f->width - len : 0;
  char align = f->align ? f->align : f->zero ? '=' : default_align;
  size_t left = align == '>' ? fill : align == '^' ? fill / 2 : 0;
  int32_t c = f->fill ? f->fill : f->zero ? '0' : ' ';
  for (size_t i = 0; i < left; i++) text_utf8_add(out, c);
  str_add(out, sign);
  for (size_t i = 0; align == '=' && i < fill; i++) text_utf8_add(out, c);
  str_add_n(out, body->p, body->n);
  for (size_t i = left; align != '=' && i < fill; i++) text_utf8_add(out, c);
}

static void format_int(Str *out, const Spec *f, Int128 v) {
  Str body = {0};
  char sign[4] = "";
  int n = 0, base = f->type == 'x' || f->type == 'X' ? 16 : f->type == 'o' ? 8 : f->type == 'b' ? 2 : 10;
  if (v < 0) sign[n++] = '-';
  else if (f->sign == '+' || f->sign == ' ') sign[n++] = f->sign;
  if (f->alt && base != 10) { sign[n++] = '0'; sign[n++] = f->type; }
  sign[n] = 0;
  digits_of(&body, v, base, f->type == 'X');
  if (f->comma) grouped(&body, f->comma);
  if (f->precision > (int)body.n) { /* "%.5d" */
    Str z = {0};
    for (size_t i = body.n; i < (size_t)f->precision; i++) str_add_c(&z, '0');
    str_add_n(&z, body.p, body.n);
    str_free(&body);
    body = z;
  }
  pad(out, f, '>', sign, &body);
  str_free(&body);
}

static void float_body(Str *s, const Spec *f, double v) {
  char type = f->type == 'n' ? 'g' : f->type;
  if (isnan(v) || isinf(v)) str_add(s, isnan(v) ? "nan" : "inf");
  else if (type == '%') { str_addf(s, "%.*f", f->precision < 0 ? 6 : f->precision, v * 100); }
  else if (!type && f->precision < 0) val_repr_float(s, v);
  else {
    char fmt[8] = "%.*";
    size_t n = 3;
    if (f->alt) { memcpy(fmt, "%#.*", 5); n = 4; }
    fmt[n] = type ? type : 'g';
    fmt[n + 1] = 0;
    char buf[2400];
    static const char *const known = "eEfFgG";
    if (!strchr(known, fmt[n])) fmt[n] = 'g';
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(buf, sizeof buf, fmt, f->precision < 0 ? 6 : f->precision, v);
#pragma GCC diagnostic pop
    str_add(s, buf);
    if (!type && !strpbrk(buf, ".en")) str_add(s, ".0");
  }
  if (f->comma) grouped(s, f->comma);
  if (type == '%') str_add_c(s, '%');
}

static void format_float(Str *out, const Spec *f, double v) {
  Str body = {0};
  char sign[2] = "";
  if (signbit(v) && !isnan(v)) { sign[0] = '-'; v = -v; }
  else if (f->sign == '+' || f->sign == ' ') sign[0] = f->sign;
  float_body(&body, f, v);
  pad(out, f, '>', sign, &body);
  str_free(&body);
}

static void format_text(Str *out, const Spec *f, const char *p, size_t n, char default_align) {
  Str body = {0};
  size_t keep = 0;
  for (int i = 0; keep < n && (f->precision < 0 || i < f->precision); i++) {
    int32_t cp;
    keep += (size_t)text_utf8_next(p + keep, p + n, &cp);
  }
  str_add_n(&body, p, keep);
  Spec g = *f;
  if (g.zero && !g.align) g.align = default_align;
  pad(out, &g, default_align, "", &body);
  str_free(&body);
}

/* "%": one argument in place. false: error set. */
static bool percent_one(Render *r, Spec *f, Val v, bool escape, Str *out) {
  char t = f->type;
  if (strchr("diuoxXc", t) && v.kind == V_UNDEF) { text_undefined_error(r, v); return false; }
  if (strchr("diu", t)) {
    if (!val_is_number(v) || (v.kind == V_FLOAT && !(fabs(v.u.f) < 1e37))) { val_fail(r, ERR_FORMAT, "%%%c format: a real number is required, not %s", t, val_type_name(v)); return false; }
    f->type = 'd';
    format_int(out, f, v.kind == V_FLOAT ? (Int128)v.u.f : val_as_int(v));
    return true;
  }
  if (strchr("oxX", t)) {
    if (!val_is_int(v)) { val_fail(r, ERR_FORMAT, "%%%c format: an integer is required, not %s", t, val_type_name(v)); return false; }
    format_int(out, f, val_as_int(v));
    return true;
  }
  if (strchr("eEfFgG", t)) {
    if (!val_is_number(v)) { val_fail(r, ERR_FORMAT, "must be real number, not %s", val_type_name(v)); return false; }
    format_float(out, f, val_as_float(v));
    return true;
  }
  Str s = {0};
  f->zero = false;
  if (t == 'c' && val_is_int(v) && val_as_int(v) >= 0 && val_as_int(v) <= 0x10FFFF) text_utf8_add(&s, (int32_t)val_as_int(v));
  else if (t == 'c' && (v.kind != V_STR || val_n_chars(v) != 1)) { val_fail(r, ERR_FORMAT, "%%c requires int or char"); return false; }
  else if (t == 'r' || t == 'a') val_repr(&s, v);
  else val_print(&s, v);
  if (escape && !(v.kind == V_STR && v.u.s->safe)) {
    Str e = {0};
    text_escape(&e, s.p ? s.p : "", s.n);
    str_free(&s);
    s = e;
  }
  format_text(out, f, s.p ? s.p : "", s.n, '>');
  str_free(&s);
  return true;
}

typedef struct Percent { const char *p, *end; Val args; const Args *named; int next; bool mapped; } Percent;

static bool next_arg(Render *r, Percent *x, Val *out) {
  bool tuple = x->args.kind == V_LIST && x->args.u.l->tuple;
  if (tuple ? x->next >= x->args.u.l->n : x->next > 0) { val_fail(r, ERR_FORMAT, "not enough arguments for format string"); return false; }
  *out = tuple ? x->args.u.l->items[x->next] : x->args;
  x->next++;
  return true;
}

static bool star_or_number(Render *r, Percent *x, int *out) {
  if (x->p < x->end && *x->p == '*') {
    Val v;
    x->p++;
    if (!next_arg(r, x, &v)) return false;
    if (!val_is_int(v) || val_as_int(v) > MAX_WIDTH || val_as_int(v) < 0) { val_fail(r, ERR_FORMAT, "* wants int"); return false; }
    *out = (int)val_as_int(v);
    return true;
  }
  *out = 0;
  while (x->p < x->end && *x->p >= '0' && *x->p <= '9') {
    *out = *out * 10 + (*x->p++ - '0');
    if (*out > MAX_WIDTH) { val_fail(r, ERR_LIMIT, "format width past %d", MAX_WIDTH); return false; }
  }
  return true;
}

static bool mapped_arg(Render *r, Percent *x, Val *out) {
  const char *close = memchr(x->p, ')', (size_t)(x->end - x->p));
  if (!close) { val_fail(r, ERR_FORMAT, "incomplete format key"); return false; }
  size_t n = (size_t)(close - x->p);
  const char *key = x->p + 1;
  n--;
  x->p = close + 1;
  x->mapped = true;
  for (int i = 0; x->named && i < x->named->n_kw; i++)
    if (strlen(x->named->kw_names[i]) == n && !memcmp(x->named->kw_names[i], key, n)) { *out = x->named->kw[i]; return true; }
  VStr s = {.p = key, .n = n, .n_chars = -1};
  const Val *v = x->args.kind == V_DICT ? val_find(x->args.u.d, (Val){.kind = V_STR, .u.s = &s}) : NULL;
  if (v) *out = *v;
  else val_fail(r, ERR_FORMAT, "format: no value for '%.*s'", (int)MIN(n, (size_t)100), key);
  return v != NULL;
}

static bool percent_field(Render *r, Percent *x, bool escape, Str *out) {
  Spec f = {.precision = -1};
  Val v = {0};
  bool have = false;
  if (x->p < x->end && *x->p == '(') {
    if (!mapped_arg(r, x, &v)) return false;
    have = true;
  }
  for (; x->p < x->end && strchr("#0- +", *x->p) && *x->p; x->p++) {
    if (*x->p == '#') f.alt = true;
    else if (*x->p == '0') f.zero = true;
    else if (*x->p == '-') f.align = '<';
    else if (f.sign != '+') f.sign = *x->p;
  }
  if (!star_or_number(r, x, &f.width)) return false;
  if (x->p < x->end && *x->p == '.') {
    x->p++;
    if (!star_or_number(r, x, &f.precision)) return false;
    if (f.precision > MAX_PRECISION) f.precision = MAX_PRECISION;
  }
  while (x->p < x->end && strchr("hlL", *x->p) && *x->p) x->p++;
  if (x->p >= x->end) { val_fail(r, ERR_FORMAT, "incomplete format"); return false; }
  f.type = *x->p++;
  if (f.type == '%') { str_add_c(out, '%'); return true; }
  if (!f.type || !strchr("diuoxXeEfFgGcrsa", f.type)) { val_fail(r, ERR_FORMAT, "unsupported format character '%c'", f.type); return false; }
  if (f.align == '<') f.zero = false;
  if (!have && !next_arg(r, x, &v)) return false;
  return percent_one(r, &f, v, escape, out);
}

Val text_percent(Render *r, Val fmt, Val args, const Args *named) {
  Str out = {0};
  Percent x = {.p = fmt.u.s->p, .end = fmt.u.s->p + fmt.u.s->n, .args = args, .named = named};
  while (x.p < x.end) {
    const char *q = memchr(x.p, '%', (size_t)(x.end - x.p));
    str_add_n(&out, x.p, (size_t)((q ? q : x.end) - x.p));
    if (!q) break;
    x.p = q + 1;
    if (!percent_field(r, &x, fmt.u.s->safe, &out) || !text_render_room(r, out.n, 4)) { str_free(&out); return (Val){0}; }
  }
  bool tuple = args.kind == V_LIST && args.u.l->tuple, left = tuple ? x.next < args.u.l->n : x.next == 0;
  if (left && !x.mapped && !named && args.kind != V_DICT && (tuple || args.kind != V_LIST)) {
    str_free(&out);
    return val_fail(r, ERR_FORMAT, "not all arguments converted during string formatting");
  }
  return text_render_take(r, &out, fmt.u.s->safe);
}

/* "{}": [[fill]align][sign][#][0][width][,][.precision][type] */
static bool parse_spec(Render *r, const char *p, const char *end, Spec *f) {
  int32_t first;
  *f = (Spec){.precision = -1};
  if (p < end) {
    int k = text_utf8_next(p, end, &first);
    if (p + k < end && strchr("<>=^", p[k]) && p[k]) { f->fill = first; f->align = p[k]; p += k + 1; }
    else if (strchr("<>=^", *p) && *p) f->align = *p++;
  }
  if (p < end && strchr("+- ", *p) && *p) f->sign = *p++;
  if (p < end && *p == '#') { f->alt = true; p++; }
  if (p < end && *p == '0') { f->zero = true; p++; }
  for (; p < end && *p >= '0' && *p <= '9'; p++)
    if ((f->width = f->width * 10 + (*p - '0')) > MAX_WIDTH) { val_fail(r, ERR_LIMIT, "format width past %d", MAX_WIDTH); return false; }
  if (p < end && (*p == ',' || *p == '_')) f->comma = *p++;
  if (p < end && *p == '.') {
    f->precision = 0;
    if (++p >= end || *p < '0' || *p > '9') { val_fail(r, ERR_FORMAT, "format specifier missing precision"); return false; }
    for (; p < end && *p >= '0' && *p <= '9'; p++) f->precision = MIN(f->precision * 10 + (*p - '0'), MAX_PRECISION);
  }
  if (p < end) f->type = *p++;
  if (p == end) return true;
  val_fail(r, ERR_FORMAT, "invalid format specifier");
  return false;
}

static bool format_value(Render *r, Val v, const char *p, const char *end, Str *out) {
  Spec f;
  if (!parse_spec(r, p, end, &f)) return false;
  bool number = val_is_number(v) && (v.kind != V_BOOL || p < end);
  if (number && v.kind != V_FLOAT && (!f.type || strchr("bdoxXnc", f.type))) {
    if (f.type == 'c') { Str s = {0}; text_utf8_add(&s, (int32_t)MIN(MAX(val_as_int(v), 0), 0x10FFFF)); format_text(out, &f, s.p, s.n, '<'); str_free(&s); return true; }
    format_int(out, &f, val_as_int(v));
    return true;
  }
  if (number && (!f.type || strchr("eEfFgGn%", f.type))) { format_float(out, &f, val_as_float(v)); return true; }
  if (number || (f.type && f.type != 's')) { val_fail(r, ERR_FORMAT, "unknown format code '%c' for object of type '%s'", f.type, val_type_name(v)); return false; }
  if (v.kind != V_STR && p < end) { val_fail(r, ERR_FORMAT, "unsupported format string passed to %s.__format__", val_type_name(v)); return false; }
  Str s = {0};
  val_print(&s, v);
  format_text(out, &f, s.p ? s.p : "", s.n, '<');
  str_free(&s);
  return true;
}

typedef struct Fields { const Args *args; Val mapping; int next; int depth; } Fields;

static bool field_first(Render *r, Fields *x, const char *p, size_t n, Val *out) {
  bool number = n > 0;
  for (size_t i = 0; i < n; i++) number &= p[i] >= '0' && p[i] <= '9';
  if (!n || number) {
    int i = n ? (n > 6 ? 1000000 : atoi(p)) : x->next++;
    if (i >= x->args->n) { val_fail(r, ERR_FORMAT, "replacement index %d out of range", i); return false; }
    *out = x->args->pos[i];
    return true;
  }
  for (int i = 0; i < x->args->n_kw; i++)
    if (strlen(x->args->kw_names[i]) == n && !memcmp(x->args->kw_names[i], p, n)) { *out = x->args->kw[i]; return true; }
  VStr s = {.p = p, .n = n, .n_chars = -1};
  const Val *v = x->mapping.kind == V_DICT ? val_find(x->mapping.u.d, (Val){.kind = V_STR, .u.s = &s}) : NULL;
  if (v) *out = *v;
  else val_fail(r, ERR_FORMAT, "format: no value for '%.*s'", (int)MIN(n, (size_t)100), p);
  return v != NULL;
}

/* name, then .attribute and [item] parts, under the sandbox. */
static bool field_value(Render *r, Fields *x, const char *p, const char *end, Val *out) {
  size_t n = 0;
  while (p + n < end && p[n] != '.' && p[n] != '[') n++;
  if (!field_first(r, x, p, n, out)) return false;
  for (p += n; p < end;) {
    bool item = *p++ == '[';
    const char *stop = p;
    while (stop < end && (item ? *stop != ']' : *stop != '.' && *stop != '[')) stop++;
    if (stop == p || (item && stop == end)) { val_fail(r, ERR_FORMAT, "bad format field"); return false; }
    bool number = item;
    for (const char *c = p; c < stop; c++) number &= *c >= '0' && *c <= '9';
    *out = !item ? text_getattr(r, *out, p, (size_t)(stop - p))
                 : text_getitem(r, *out, number && stop - p < 9 ? val_int(r->arena, atoi(p)) : val_str(r->arena, p, (size_t)(stop - p)));
    if (out->kind == V_ERROR) return false;
    p = stop + item;
  }
  return true;
}

static bool format_into(Render *r, Fields *x, const char *p, const char *end, bool escape, Str *out);

static bool format_field(Render *r, Fields *x, const char *p, const char *end, bool escape, Str *out) {
  const char *name_end = p, *spec = end;
  int brackets = 0;
  while (name_end < end && (brackets || (*name_end != '!' && *name_end != ':'))) {
    brackets += *name_end == '[' ? 1 : *name_end == ']' ? -1 : 0;
    name_end++;
  }
  char conv = 0;
  if (name_end < end && *name_end == '!') {
    conv = name_end + 1 < end ? name_end[1] : 0;
    if (!conv || !strchr("rsa", conv) || (name_end + 2 < end && name_end[2] != ':')) { val_fail(r, ERR_FORMAT, "bad conversion in format"); return false; }
    spec = MIN(name_end + 3, end);
  } else if (name_end < end) {
    spec = name_end + 1;
  }
  Val v;
  Str s = {0}, one = {0};
  if (!field_value(r, x, p, name_end, &v)) return false;
  bool ok = ++x->depth <= 2 && format_into(r, x, spec, end, false, &s);
  x->depth--;
  if (!ok) val_fail(r, ERR_FORMAT, "format fields nested too deep");
  if (ok && conv) {
    conv == 's' ? val_print(&one, v) : val_repr(&one, v);
    v = text_render_take(r, &one, false);
  }
  if (ok && v.kind != V_ERROR) ok = format_value(r, v, s.p ? s.p : "", (s.p ? s.p : "") + s.n, &one);
  else ok = false;
  if (ok && escape && !(v.kind == V_STR && v.u.s->safe)) text_escape(out, one.p ? one.p : "", one.n);
  else if (ok) str_add_n(out, one.p, one.n);
  str_free(&s);
  str_free(&one);
  return ok;
}

static bool format_into(Render *r, Fields *x, const char *p, const char *end, bool escape, Str *out) {
  while (p < end) {
    if ((*p == '{' || *p == '}') && p + 1 < end && p[1] == *p) { str_add_c(out, *p); p += 2; continue; }
    if (*p == '}') { val_fail(r, ERR_FORMAT, "single '}' encountered in format string"); return false; }
    if (*p != '{') { str_add_c(out, *p++); continue; }
    int depth = 1;
    const char *q = p + 1;
    for (; q < end && depth; q++) depth += *q == '{' ? 1 : *q == '}' ? -1 : 0;
    if (depth) { val_fail(r, ERR_FORMAT, "single '{' encountered in format string"); return false; }
    if (!format_field(r, x, p + 1, q - 1, escape, out) || !text_render_room(r, out->n, 4)) return false;
    p = q;
  }
  return true;
}

Val text_format(Render *r, Val fmt, const Args *args, Val mapping) {
  Str out = {0};
  Fields x = {.args = args, .mapping = mapping};
  if (!format_into(r, &x, fmt.u.s->p, fmt.u.s->p + fmt.u.s->n, fmt.u.s->safe, &out)) { str_free(&out); return (Val){0}; }
  return text_render_take(r, &out, fmt.u.s->safe);
}
