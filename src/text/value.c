/* Values with Python's meaning: equality, truth, hashing, str() and repr(), ordered dictionaries.
   In: values of one arena. Out: values and text. Values may be nested without end or share parts without end (a template can build
   both), so every walk is bounded in depth and steps: past a bound repr prints "..." and equality says no. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "text/priv.h"

enum { MAX_WALK = 400, MAX_STEPS = 20000000 };

Val val_none(void) { return (Val){.kind = V_NONE}; }
Val val_bool(bool b) { return (Val){.kind = V_BOOL, .u.b = b}; }
Val val_float(double f) { return (Val){.kind = V_FLOAT, .u.f = f}; }

Val val_int(Arena *a, Int128 i) {
  if (i >= INT64_MIN && i <= INT64_MAX) return (Val){.kind = V_INT, .u.i = (int64_t)i};
  Int128 *big = ARENA_NEW(a, Int128);
  *big = i;
  return (Val){.kind = V_BIG, .u.big = big};
}

Val val_str_view(Arena *a, const char *p, size_t n) {
  VStr *s = ARENA_NEW(a, VStr);
  *s = (VStr){.p = p, .n = n, .n_chars = -1};
  return (Val){.kind = V_STR, .u.s = s};
}

Val val_str(Arena *a, const char *p, size_t n) { return val_str_view(a, arena_dup_n(a, n ? p : "", n), n); }

Val val_list(Arena *a, int cap) {
  VList *l = ARENA_NEW(a, VList);
  if (cap > 0) l->items = ARENA_ARRAY(a, Val, (size_t)cap);
  l->cap = MAX(cap, 0);
  return (Val){.kind = V_LIST, .u.l = l};
}

Val val_tuple(Arena *a, int cap) {
  Val v = val_list(a, cap);
  v.u.l->tuple = true;
  return v;
}

void val_push(Arena *a, Val list, Val item) { PUSH(a, list.u.l->items, list.u.l->n, list.u.l->cap, item); }
Val val_dict(Arena *a) { return (Val){.kind = V_DICT, .u.d = ARENA_NEW(a, VDict)}; }

bool val_is_int(Val v) { return v.kind == V_BOOL || v.kind == V_INT || v.kind == V_BIG; }
bool val_is_number(Val v) { return val_is_int(v) || v.kind == V_FLOAT; }
Int128 val_as_int(Val v) { return v.kind == V_BOOL ? v.u.b : v.kind == V_INT ? v.u.i : *v.u.big; }
double val_as_float(Val v) { return v.kind == V_FLOAT ? v.u.f : (double)val_as_int(v); }
bool val_is_str(Val v, const char *text) { return v.kind == V_STR && v.u.s->n == strlen(text) && !memcmp(v.u.s->p, text, v.u.s->n); }

size_t val_n_chars(Val v) {
  VStr *s = (VStr *)(uintptr_t)v.u.s; /* the count is a cache */
  if (s->n_chars < 0) s->n_chars = (int64_t)(s->bytes ? s->n : text_utf8_count(s->p, s->n));
  return (size_t)s->n_chars;
}

static bool hashable_in(Val v, int depth) {
  if (v.kind == V_DICT || (v.kind == V_LIST && !v.u.l->tuple) || depth > MAX_WALK) return false;
  if (v.kind != V_LIST) return v.kind != V_VIEW;
  for (int i = 0; i < v.u.l->n; i++)
    if (!hashable_in(v.u.l->items[i], depth + 1)) return false;
  return true;
}

bool val_hashable(Val v) { return hashable_in(v, 0); }

/* Equal values hash alike: 1, 1.0 and True are one key. */
static uint64_t hash_val(Val v) {
  if (val_is_number(v)) {
    double f = val_as_float(v);
    if (f == 0) f = 0;
    return hash_bytes(&f, sizeof f, 1);
  }
  if (v.kind == V_STR) return hash_bytes(v.u.s->p, v.u.s->n, 2);
  if (v.kind == V_LIST) {
    uint64_t h = 3;
    for (int i = 0; i < v.u.l->n; i++) h = h * 31 + hash_val(v.u.l->items[i]);
    return h * 0x9E3779B97F4A7C15u;
  }
  return v.kind * 0x9E3779B97F4A7C15u;
}

static void dict_index(Arena *a, VDict *d) {
  uint32_t n = 32;
  while (n < 2 * (uint32_t)d->cap) n *= 2;
  d->slot = ARENA_ARRAY(a, int32_t, n);
  d->n_slots = n;
  memset(d->slot, 0xFF, n * sizeof *d->slot);
  for (int i = 0; i < d->n; i++) {
    uint32_t s = (uint32_t)hash_val(d->keys[i]) & (n - 1);
    while (d->slot[s] >= 0) s = (s + 1) & (n - 1);
    d->slot[s] = i;
  }
}

Val *val_find(const VDict *d, Val key) {
  if (!d->slot) {
    for (int i = 0; i < d->n; i++)
      if (val_equal(d->keys[i], key)) return &d->vals[i];
    return NULL;
  }
  if (!val_hashable(key)) return NULL;
  for (uint32_t s = (uint32_t)hash_val(key) & (d->n_slots - 1); d->slot[s] >= 0; s = (s + 1) & (d->n_slots - 1))
    if (val_equal(d->keys[d->slot[s]], key)) return &d->vals[d->slot[s]];
  return NULL;
}

void val_put(Arena *a, VDict *d, Val key, Val value) {
  Val *old = val_find(d, key);
  if (old) { *old = value; return; }
  if (d->n == d->cap) {
    int cap = d->cap, cap2 = d->cap;
    d->keys = arena_grow(a, d->keys, sizeof *d->keys, (size_t)d->n, &cap);
    d->vals = arena_grow(a, d->vals, sizeof *d->vals, (size_t)d->n, &cap2);
    CHECK(cap == cap2, "keys and values grow alike");
    d->cap = cap;
    if (cap > 8) { d->slot = NULL; dict_index(a, d); }
  }
  d->keys[d->n] = key;
  d->vals[d->n] = value;
  if (d->slot) {
    uint32_t s = (uint32_t)hash_val(key) & (d->n_slots - 1);
    while (d->slot[s] >= 0) s = (s + 1) & (d->n_slots - 1);
    d->slot[s] = d->n;
  }
  d->n++;
}

Val *val_get(Val dict, const char *key) {
  if (dict.kind != V_DICT) return NULL;
  VStr s = {.p = key, .n = strlen(key), .n_chars = -1};
  return val_find(dict.u.d, (Val){.kind = V_STR, .u.s = &s});
}

static int64_t range_len(const VRange *r) {
  if (r->step > 0) return r->start < r->stop ? (r->stop - r->start - 1) / r->step + 1 : 0;
  return r->start > r->stop ? (r->start - r->stop - 1) / -r->step + 1 : 0;
}

static bool equal_in(Val a, Val b, int depth, int64_t *steps) {
  if (depth > MAX_WALK || ++*steps > MAX_STEPS) return false;
  if (val_is_number(a) && val_is_number(b)) {
    if (a.kind != V_FLOAT && b.kind != V_FLOAT) return val_as_int(a) == val_as_int(b);
    return val_as_float(a) == val_as_float(b);
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case V_NONE: case V_UNDEF: return true;
    case V_STR: return a.u.s == b.u.s || (a.u.s->n == b.u.s->n && a.u.s->bytes == b.u.s->bytes && !memcmp(a.u.s->p, b.u.s->p, a.u.s->n));
    case V_LIST:
      if (a.u.l == b.u.l) return true;
      if (a.u.l->n != b.u.l->n || a.u.l->tuple != b.u.l->tuple) return false;
      for (int i = 0; i < a.u.l->n; i++)
        if (!equal_in(a.u.l->items[i], b.u.l->items[i], depth + 1, steps)) return false;
      return true;
    case V_DICT:
      if (a.u.d == b.u.d) return true;
      if (a.u.d->n != b.u.d->n) return false;
      for (int i = 0; i < a.u.d->n; i++) {
        const Val *other = val_find(b.u.d, a.u.d->keys[i]);
        if (!other || !equal_in(a.u.d->vals[i], *other, depth + 1, steps)) return false;
      }
      return true;
    case V_RANGE: return range_len(a.u.r) == range_len(b.u.r) && (!range_len(a.u.r) || (a.u.r->start == b.u.r->start && a.u.r->step == b.u.r->step));
    default: return a.u.o == b.u.o;
  }
}

bool val_equal(Val a, Val b) {
  int64_t steps = 0;
  return equal_in(a, b, 0, &steps);
}

bool val_truth(Val v) {
  switch (v.kind) {
    case V_ERROR: case V_UNDEF: case V_NONE: return false;
    case V_BOOL: return v.u.b;
    case V_INT: return v.u.i != 0;
    case V_FLOAT: return v.u.f != 0;
    case V_STR: return v.u.s->n != 0;
    case V_LIST: return v.u.l->n != 0;
    case V_DICT: return v.u.d->n != 0;
    case V_VIEW: return v.u.view->dict->n != 0;
    case V_RANGE: return range_len(v.u.r) != 0;
    default: return true;
  }
}

const char *val_type_name(Val v) {
  switch (v.kind) {
    case V_UNDEF: return "Undefined";
    case V_NONE: return "NoneType";
    case V_BOOL: return "bool";
    case V_INT: case V_BIG: return "int";
    case V_FLOAT: return "float";
    case V_STR: return v.u.s->bytes ? "bytes" : v.u.s->safe ? "Markup" : "str";
    case V_LIST: return v.u.l->tuple ? "tuple" : "list";
    case V_DICT: return "dict";
    case V_RANGE: return "range";
    case V_ITER: return v.u.it->type;
    case V_VIEW: return v.u.view->what == 0 ? "dict_keys" : v.u.view->what == 1 ? "dict_values" : "dict_items";
    case V_NAMESPACE: return "Namespace";
    case V_LOOP: return "LoopContext";
    case V_FUNC: return "function";
    default: return "object";
  }
}

void val_print_int(Str *out, Int128 i) {
  char buf[48], *p = buf + sizeof buf;
  bool neg = i < 0;
  do {
    int d = (int)(i % 10);
    *--p = (char)('0' + (d < 0 ? -d : d));
    i /= 10;
  } while (i);
  if (neg) *--p = '-';
  str_add_n(out, p, (size_t)(buf + sizeof buf - p));
}

/* The shortest digits that read back; exponents below -4 and from 16 on, as Python. */
void val_repr_float(Str *out, double f) {
  if (isnan(f)) { str_add(out, "nan"); return; }
  if (isinf(f)) { str_add(out, f < 0 ? "-inf" : "inf"); return; }
  char buf[64];
  for (int prec = 0; prec < 17; prec++) {
    snprintf(buf, sizeof buf, "%.*e", prec, f);
    if (strtod(buf, NULL) == f) break;
  }
  const char *digits = buf + (buf[0] == '-'), *e = strchr(buf, 'e');
  int exp = atoi(e + 1);
  char d[32];
  int n = 0;
  for (const char *q = digits; q < e; q++)
    if (*q != '.') d[n++] = *q;
  if (buf[0] == '-') str_add_c(out, '-');
  if (exp < -4 || exp >= 16) {
    str_add_c(out, d[0]);
    if (n > 1) { str_add_c(out, '.'); str_add_n(out, d + 1, (size_t)n - 1); }
    str_addf(out, "e%c%02d", exp < 0 ? '-' : '+', abs(exp));
    return;
  }
  if (exp < 0) {
    str_add(out, "0.");
    for (int i = -1; i > exp; i--) str_add_c(out, '0');
    str_add_n(out, d, (size_t)n);
    return;
  }
  for (int i = 0; i <= exp; i++) str_add_c(out, i < n ? d[i] : '0');
  str_add_c(out, '.');
  if (n > exp + 1) str_add_n(out, d + exp + 1, (size_t)(n - exp - 1));
  else str_add_c(out, '0');
}

static void repr_str(Str *out, const VStr *s) {
  char quote = memchr(s->p, '\'', s->n) && !memchr(s->p, '"', s->n) ? '"' : '\'';
  if (s->bytes) str_add_c(out, 'b');
  str_add_c(out, quote);
  for (const char *q = s->p, *end = s->p + s->n; q < end;) {
    int32_t c;
    int k = s->bytes ? 1 : text_utf8_next(q, end, &c);
    if (s->bytes) c = (uint8_t)*q;
    if (c == quote || c == '\\') { str_add_c(out, '\\'); str_add_c(out, (char)c); }
    else if (c == '\n') str_add(out, "\\n");
    else if (c == '\r') str_add(out, "\\r");
    else if (c == '\t') str_add(out, "\\t");
    else if (c < 0) str_addf(out, "\\udc%02x", (uint8_t)*q);
    else if (s->bytes ? c >= 32 && c < 127 : text_char_is_printable(c)) str_add_n(out, q, (size_t)k);
    else if (c < 0x100) str_addf(out, "\\x%02x", (unsigned)c);
    else if (c < 0x10000) str_addf(out, "\\u%04x", (unsigned)c);
    else str_addf(out, "\\U%08x", (unsigned)c);
    q += k;
  }
  str_add_c(out, quote);
}

static void repr_in(Str *out, Val v, int depth);

static void repr_items(Str *out, const Val *items, int n, int depth) {
  for (int i = 0; i < n; i++) {
    if (i) str_add(out, ", ");
    repr_in(out, items[i], depth + 1);
  }
}

static void repr_dict(Str *out, const VDict *d, int depth) {
  str_add_c(out, '{');
  for (int i = 0; i < d->n; i++) {
    if (i) str_add(out, ", ");
    repr_in(out, d->keys[i], depth + 1);
    str_add(out, ": ");
    repr_in(out, d->vals[i], depth + 1);
  }
  str_add_c(out, '}');
}

static void repr_view(Str *out, const VView *w, int depth) {
  str_addf(out, "%s([", w->what == 0 ? "dict_keys" : w->what == 1 ? "dict_values" : "dict_items");
  for (int i = 0; i < w->dict->n; i++) {
    if (i) str_add(out, ", ");
    if (w->what == 2) str_add_c(out, '(');
    if (w->what != 1) repr_in(out, w->dict->keys[i], depth + 1);
    if (w->what == 2) str_add(out, ", ");
    if (w->what != 0) repr_in(out, w->dict->vals[i], depth + 1);
    if (w->what == 2) str_add_c(out, ')');
  }
  str_add(out, "])");
}

static void repr_in(Str *out, Val v, int depth) {
  if (depth > MAX_WALK || out->n > TEMPLATE_MAX_OUTPUT) { str_add(out, "..."); return; }
  switch (v.kind) {
    case V_NONE: str_add(out, "None"); break;
    case V_BOOL: str_add(out, v.u.b ? "True" : "False"); break;
    case V_INT: case V_BIG: val_print_int(out, val_as_int(v)); break;
    case V_FLOAT: val_repr_float(out, v.u.f); break;
    case V_STR:
      if (v.u.s->safe) str_add(out, "Markup(");
      repr_str(out, v.u.s);
      if (v.u.s->safe) str_add_c(out, ')');
      break;
    case V_LIST:
      str_add_c(out, v.u.l->tuple ? '(' : '[');
      repr_items(out, v.u.l->items, v.u.l->n, depth);
      if (v.u.l->tuple && v.u.l->n == 1) str_add_c(out, ',');
      str_add_c(out, v.u.l->tuple ? ')' : ']');
      break;
    case V_DICT: repr_dict(out, v.u.d, depth); break;
    case V_RANGE:
      str_addf(out, "range(%lld, %lld", (long long)v.u.r->start, (long long)v.u.r->stop);
      if (v.u.r->step != 1) str_addf(out, ", %lld", (long long)v.u.r->step);
      str_add_c(out, ')');
      break;
    case V_VIEW: repr_view(out, v.u.view, depth); break;
    case V_NAMESPACE:
      str_add(out, "<Namespace ");
      repr_dict(out, v.u.d, depth);
      str_add_c(out, '>');
      break;
    case V_LOOP: str_addf(out, "<LoopContext %d/%d>", v.u.loop->at + 1, v.u.loop->n); break;
    case V_UNDEF: str_add(out, "Undefined"); break;
    case V_FUNC: str_addf(out, v.u.fn->macro ? "<Macro '%s'>" : "<function %s>", v.u.fn->name); break;
    default: str_addf(out, "<%s object>", val_type_name(v)); break;
  }
}

void val_repr(Str *out, Val v) { repr_in(out, v, 0); }

void val_print(Str *out, Val v) {
  if (v.kind == V_STR && !v.u.s->bytes) str_add_n(out, v.u.s->p, v.u.s->n);
  else if (v.kind != V_UNDEF) repr_in(out, v, 0);
}

Val val_from_json(Arena *a, const json_t *j) {
  switch (json_typeof(j)) {
    case JSON_TRUE: return val_bool(true);
    case JSON_FALSE: return val_bool(false);
    case JSON_NULL: return val_none();
    case JSON_INTEGER: return val_int(a, json_integer_value(j));
    case JSON_REAL: return val_float(json_real_value(j));
    case JSON_STRING: return val_str(a, json_string_value(j), json_string_length(j));
    case JSON_ARRAY: {
      Val l = val_list(a, (int)json_array_size(j));
      for (size_t i = 0; i < json_array_size(j); i++) val_push(a, l, val_from_json(a, json_array_get(j, i)));
      return l;
    }
    case JSON_OBJECT: break;
  }
  Val d = val_dict(a);
  json_t *obj = (json_t *)(uintptr_t)j; /* Jansson's iterators take no const */
  for (void *it = json_object_iter(obj); it; it = json_object_iter_next(obj, it))
    val_put(a, d.u.d, val_str(a, json_object_iter_key(it), json_object_iter_key_len(it)), val_from_json(a, json_object_iter_value(it)));
  return d;
}
