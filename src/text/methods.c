/* Methods of values: Python's string, list, dictionary and number methods, and those of loop, cycler and joiner.
   In: the value and arguments bound by the row's parameter list (methods.def). Out: a value or an error as in Python. Strings count
   in code points; Markup stays Markup where Python keeps it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "text/priv.h"

#define FAIL ((Val){.kind = V_ERROR})
#define METHOD_FN(fn) static Val fn(Render *r, Val self, Val *arg, const Args *all)
#define UNUSED_ARGS (void)r; (void)self; (void)arg; (void)all
#define STR_OF(v) ((v).u.s->p), ((v).u.s->n)

static bool want_str(Render *r, Val v, const char *what) {
  if (v.kind == V_STR && !v.u.s->bytes) return true;
  v.kind == V_UNDEF ? text_undefined_error(r, v) : val_fail(r, ERR_FORMAT, "%s: expected text, got %s", what, val_type_name(v));
  return false;
}

static bool want_int(Render *r, Val v, int64_t otherwise, int64_t *out) {
  if (v.kind == V_ERROR || v.kind == V_NONE) { *out = otherwise; return true; }
  if (!val_is_int(v)) { v.kind == V_UNDEF ? text_undefined_error(r, v) : val_fail(r, ERR_FORMAT, "expected an integer, got %s", val_type_name(v)); return false; }
  Int128 i = val_as_int(v);
  *out = i > INT32_MAX ? INT32_MAX : i < -(Int128)INT32_MAX ? -INT32_MAX : (int64_t)i;
  return true;
}

/* A copy of bytes inside s. */
static Val part(Render *r, const VStr *s, const char *p, size_t n) {
  if (!text_render_room(r, n + sizeof(VStr), (int64_t)(n / 64))) return FAIL;
  Val v = val_part(r->arena, s, p, n);
  ((VStr *)(uintptr_t)v.u.s)->safe = s->safe;
  return v;
}

void text_escape(Str *out, const char *p, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (p[i] == '&') str_add(out, "&amp;");
    else if (p[i] == '<') str_add(out, "&lt;");
    else if (p[i] == '>') str_add(out, "&gt;");
    else if (p[i] == '\'') str_add(out, "&#39;");
    else if (p[i] == '"') str_add(out, "&#34;");
    else str_add_c(out, p[i]);
  }
}

Val text_to_str(Render *r, Val v) {
  if (v.kind == V_STR && !v.u.s->safe && !v.u.s->bytes) return v;
  Str s = {0};
  val_print(&s, v);
  return text_render_take(r, &s, false);
}

Val text_soft_str(Render *r, Val v) { return v.kind == V_STR && !v.u.s->bytes ? v : text_to_str(r, v); }

/* Code point index to byte offset; i up to the length. */
static size_t offset_of(Val s, int64_t i) {
  if (val_n_chars(s) == s.u.s->n) return (size_t)i;
  const char *q = s.u.s->p, *end = q + s.u.s->n;
  for (; i > 0 && q < end; i--) {
    int32_t cp;
    q += text_utf8_next(q, end, &cp);
  }
  return (size_t)(q - s.u.s->p);
}

Val text_str_slice(Render *r, Val s, int64_t start, int64_t stop, int64_t step, int64_t count) {
  (void)stop;
  if (count <= 0) return part(r, s.u.s, s.u.s->p, 0);
  if (step == 1) {
    size_t from = offset_of(s, start);
    Val rest = {.kind = V_STR, .u.s = &(VStr){.p = s.u.s->p + from, .n = s.u.s->n - from, .n_chars = val_n_chars(s) == s.u.s->n ? (int64_t)(s.u.s->n - from) : -1}};
    size_t len = val_n_chars(s) == s.u.s->n ? (size_t)count : offset_of(rest, count);
    Val v = part(r, s.u.s, s.u.s->p + from, len);
    if (v.kind == V_STR) ((VStr *)(uintptr_t)v.u.s)->bytes = s.u.s->bytes;
    return v;
  }
  size_t n = val_n_chars(s), k = 0;
  if (!text_render_room(r, (n + 1) * sizeof(uint32_t), (int64_t)n / 16)) return FAIL;
  uint32_t *at = ARENA_ARRAY(r->arena, uint32_t, n + 1);
  for (const char *q = s.u.s->p, *end = q + s.u.s->n; q < end;) {
    int32_t cp;
    at[k++] = (uint32_t)(q - s.u.s->p);
    q += text_utf8_next(q, end, &cp);
  }
  at[k] = (uint32_t)s.u.s->n;
  Weave out = {0};
  for (int64_t i = 0; i < count; i++) {
    int64_t c = start + i * step;
    text_weave_part(&out, s.u.s, s.u.s->p + at[c], at[c + 1] - at[c]);
  }
  return text_weave_take(r, &out, s.u.s->safe);
}

/* Case. */
static bool is_cased(int32_t c) {
  int k = text_char_category(c);
  return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT || (c >= 0x2B0 && c <= 0x2B8) || c == 0xAA || c == 0xBA || (c >= 0x2160 && c <= 0x217F) || (c >= 0x24B6 && c <= 0x24E9);
}

static bool is_case_ignorable(int32_t c) {
  int k = text_char_category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019;
}

/* A sigma at the end of a word has a form of its own. */
static bool final_sigma(const char *start, const char *at, const char *after, const char *end) {
  int32_t c;
  const char *q = at;
  bool before = false;
  while (q > start) {
    const char *prev = q - 1;
    while (prev > start && ((uint8_t)*prev & 0xC0) == 0x80) prev--;
    text_utf8_next(prev, q, &c);
    q = prev;
    if (is_case_ignorable(c)) continue;
    before = is_cased(c);
    break;
  }
  while (before && after < end) {
    after += text_utf8_next(after, end, &c);
    if (is_case_ignorable(c)) continue;
    return !is_cased(c);
  }
  return before;
}

static void add_case(Str *out, int32_t c, CaseMode mode, const char *start, const char *at, const char *after, const char *end) {
  int32_t m[3];
  if (c == 0x3A3 && mode == CASE_LOWER) { text_utf8_add(out, final_sigma(start, at, after, end) ? 0x3C2 : 0x3C3); return; }
  int n = text_char_case(c, mode, m);
  for (int i = 0; i < n; i++) text_utf8_add(out, m[i]);
}

Val text_str_case(Render *r, Val s, int how) {
  Str out = {0};
  bool in_word = false;
  const char *start = s.u.s->p, *end = start + s.u.s->n;
  for (const char *q = start; q < end;) {
    int32_t c;
    const char *after = q + text_utf8_next(q, end, &c);
    CaseMode mode = how == 1 ? CASE_UPPER : CASE_LOWER;
    if (how == 2) mode = in_word ? CASE_LOWER : CASE_TITLE;
    if (how == 3) mode = q == start ? CASE_TITLE : CASE_LOWER;
    if (how == 4) mode = text_char_category(c) == UTF8PROC_CATEGORY_LU ? CASE_LOWER : CASE_UPPER;
    if (how == 4 && text_char_category(c) != UTF8PROC_CATEGORY_LU && text_char_category(c) != UTF8PROC_CATEGORY_LL) text_utf8_add(&out, c);
    else add_case(&out, c, mode, start, q, after, end);
    in_word = is_cased(c);
    q = after;
  }
  return text_render_take(r, &out, s.u.s->safe);
}

METHOD_FN(m_lower) { UNUSED_ARGS; return text_str_case(r, self, 0); }
METHOD_FN(m_upper) { UNUSED_ARGS; return text_str_case(r, self, 1); }
METHOD_FN(m_title) { UNUSED_ARGS; return text_str_case(r, self, 2); }
METHOD_FN(m_capitalize) { UNUSED_ARGS; return text_str_case(r, self, 3); }
METHOD_FN(m_swapcase) { UNUSED_ARGS; return text_str_case(r, self, 4); }

/* Stripping. */
static bool in_set(int32_t c, Val chars) {
  if (chars.kind != V_STR) return text_char_is_pyspace(c);
  for (const char *q = chars.u.s->p, *end = q + chars.u.s->n; q < end;) {
    int32_t x;
    q += text_utf8_next(q, end, &x);
    if (x == c) return true;
  }
  return false;
}

Val text_str_strip(Render *r, Val s, Val chars, int sides) {
  if (chars.kind != V_ERROR && chars.kind != V_NONE && !want_str(r, chars, "strip")) return FAIL;
  const char *p = s.u.s->p, *end = p + s.u.s->n;
  int32_t c;
  int64_t cost = chars.kind == V_STR ? (int64_t)chars.u.s->n / 16 : 0;
  while ((sides & 1) && p < end) {
    int k = text_utf8_next(p, end, &c);
    if (!in_set(c, chars)) break;
    if (cost && !text_render_room(r, 0, cost)) return FAIL;
    p += k;
  }
  while ((sides & 2) && end > p) {
    const char *q = end - 1;
    while (q > p && ((uint8_t)*q & 0xC0) == 0x80) q--;
    text_utf8_next(q, end, &c);
    if (!in_set(c, chars)) break;
    if (cost && !text_render_room(r, 0, cost)) return FAIL;
    end = q;
  }
  return part(r, s.u.s, p, (size_t)(end - p));
}

METHOD_FN(m_strip) { UNUSED_ARGS; return text_str_strip(r, self, arg[0], 3); }
METHOD_FN(m_lstrip) { UNUSED_ARGS; return text_str_strip(r, self, arg[0], 1); }
METHOD_FN(m_rstrip) { UNUSED_ARGS; return text_str_strip(r, self, arg[0], 2); }

/* Splitting and joining. */
static void push_part(Render *r, Val list, const VStr *s, const char *p, size_t n) { val_push(r->arena, list, part(r, s, p, n)); }

static const char *find_first(const char *p, size_t n, const char *sub, size_t k) { return k == 1 ? memchr(p, sub[0], n) : memmem(p, n, sub, k); }

/* memmem is linear, a naive search from the end is not: long needles are searched in the mirrored text. */
static const char *find_last(const char *p, size_t n, const char *sub, size_t k) {
  if (k > n) return NULL;
  if (k <= 16) {
    for (const char *q = p + n - k;; q--) {
      if (!memcmp(q, sub, k)) return q;
      if (q == p) return NULL;
    }
  }
  char *mirror = malloc(n + k);
  CHECK(mirror, "out of memory");
  for (size_t i = 0; i < n; i++) mirror[i] = p[n - 1 - i];
  for (size_t i = 0; i < k; i++) mirror[n + i] = sub[k - 1 - i];
  const char *hit = memmem(mirror, n, mirror + n, k), *found = hit ? p + (n - (size_t)(hit - mirror) - k) : NULL;
  free(mirror);
  return found;
}

static void reverse_list(Val l) {
  for (int i = 0, j = l.u.l->n - 1; i < j; i++, j--) {
    Val t = l.u.l->items[i];
    l.u.l->items[i] = l.u.l->items[j];
    l.u.l->items[j] = t;
  }
}

static Val split_on(Render *r, Val s, Val sep, int64_t max, bool right) {
  Val out = val_list(r->arena, 4);
  const char *p = s.u.s->p, *end = p + s.u.s->n, *hit;
  size_t k = sep.u.s->n;
  if (!k) return val_fail(r, ERR_FORMAT, "empty separator");
  for (; max != 0 && !r->err; max--) {
    hit = right ? find_last(p, (size_t)(end - p), sep.u.s->p, k) : find_first(p, (size_t)(end - p), sep.u.s->p, k);
    if (!hit) break;
    if (right) { push_part(r, out, s.u.s, hit + k, (size_t)(end - hit) - k); end = hit; }
    else { push_part(r, out, s.u.s, p, (size_t)(hit - p)); p = hit + k; }
  }
  push_part(r, out, s.u.s, p, (size_t)(end - p));
  if (right) reverse_list(out);
  return r->err ? FAIL : out;
}

static const char *space_run(const char *p, const char *end, bool want) {
  while (p < end) {
    int32_t c;
    int k = text_utf8_next(p, end, &c);
    if (text_char_is_pyspace(c) != want) break;
    p += k;
  }
  return p;
}

static const char *space_run_back(const char *p, const char *end, bool want) {
  while (end > p) {
    const char *q = end - 1;
    int32_t c;
    while (q > p && ((uint8_t)*q & 0xC0) == 0x80) q--;
    text_utf8_next(q, end, &c);
    if (text_char_is_pyspace(c) != want) break;
    end = q;
  }
  return end;
}

static Val split_space(Render *r, Val s, int64_t max, bool right) {
  Val out = val_list(r->arena, 4);
  const char *p = space_run(s.u.s->p, s.u.s->p + s.u.s->n, true), *end = space_run_back(p, s.u.s->p + s.u.s->n, true);
  if (!right) end = s.u.s->p + s.u.s->n;
  else p = s.u.s->p;
  while (!r->err && p < end) {
    if (max-- == 0) {
      const char *q = right ? space_run(p, end, true) : p, *e = right ? end : space_run_back(p, end, true);
      if (right) q = p;
      push_part(r, out, s.u.s, q, (size_t)(e - q));
      if (!right) out.u.l->items[out.u.l->n - 1] = part(r, s.u.s, p, (size_t)(end - p));
      break;
    }
    if (right) {
      const char *w = space_run_back(p, end, false);
      push_part(r, out, s.u.s, w, (size_t)(end - w));
      end = space_run_back(p, w, true);
    } else {
      const char *w = space_run(p, end, false);
      push_part(r, out, s.u.s, p, (size_t)(w - p));
      p = space_run(w, end, true);
    }
  }
  if (right) reverse_list(out);
  return r->err ? FAIL : out;
}

static Val split_any(Render *r, Val self, Val *arg, bool right) {
  int64_t max;
  if (!want_int(r, arg[1], -1, &max)) return FAIL;
  if (arg[0].kind == V_ERROR || arg[0].kind == V_NONE) return split_space(r, self, max, right);
  return want_str(r, arg[0], "split") ? split_on(r, self, arg[0], max, right) : FAIL;
}

METHOD_FN(m_split) { UNUSED_ARGS; return split_any(r, self, arg, false); }
METHOD_FN(m_rsplit) { UNUSED_ARGS; return split_any(r, self, arg, true); }

static int line_end(const char *p, const char *end) {
  int32_t c;
  int k = text_utf8_next(p, end, &c);
  if (c == '\r' && p + 1 < end && p[1] == '\n') return 2;
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029 ? k : 0;
}

Val text_str_splitlines(Render *r, Val s, bool keep) {
  Val out = val_list(r->arena, 4);
  const char *p = s.u.s->p, *end = p + s.u.s->n;
  for (const char *q = p; q < end && !r->err;) {
    int k = line_end(q, end);
    if (!k) { q++; while (q < end && ((uint8_t)*q & 0xC0) == 0x80) q++; if (q < end) continue; k = 0; }
    push_part(r, out, s.u.s, p, (size_t)(q - p) + (keep ? (size_t)k : 0));
    p = q = q + k;
  }
  return r->err ? FAIL : out;
}

METHOD_FN(m_splitlines) { UNUSED_ARGS; return text_str_splitlines(r, self, val_truth(arg[0])); }

METHOD_FN(m_join) {
  UNUSED_ARGS;
  Val *items;
  int n;
  Weave s = {0};
  if (!text_iterate(r, arg[0], &items, &n)) return FAIL;
  for (int i = 0; i < n; i++) {
    bool ok = self.u.s->safe || (items[i].kind == V_STR && !items[i].u.s->bytes);
    if (!ok) val_fail(r, ERR_FORMAT, "sequence item %d: expected str instance, %s found", i, val_type_name(items[i]));
    if (!ok || !text_render_room(r, s.text.n, 1)) { text_weave_free(&s); return FAIL; }
    if (i) text_weave_part(&s, self.u.s, STR_OF(self));
    !self.u.s->safe || (items[i].kind == V_STR && items[i].u.s->safe) ? text_weave_print(&s, items[i]) : text_weave_escape(&s, items[i]);
  }
  return text_weave_take(r, &s, self.u.s->safe);
}

static Val partition(Render *r, Val self, Val sep, bool right) {
  if (!want_str(r, sep, "partition")) return FAIL;
  if (!sep.u.s->n) return val_fail(r, ERR_FORMAT, "empty separator");
  const char *p = self.u.s->p, *hit = right ? find_last(STR_OF(self), STR_OF(sep)) : memmem(STR_OF(self), STR_OF(sep));
  size_t n = self.u.s->n, k = sep.u.s->n, before = hit ? (size_t)(hit - p) : 0;
  const VStr *s = self.u.s;
  Val out = val_tuple(r->arena, 3), whole = part(r, s, p, n), empty = part(r, s, p, 0);
  if (r->err) return FAIL;
  val_push(r->arena, out, hit ? part(r, s, p, before) : right ? empty : whole);
  val_push(r->arena, out, hit ? part(r, s, hit, k) : empty);
  val_push(r->arena, out, hit ? part(r, s, hit + k, n - before - k) : right ? whole : empty);
  return r->err ? FAIL : out;
}
METHOD_FN(m_partition) { UNUSED_ARGS; return partition(r, self, arg[0], false); }
METHOD_FN(m_rpartition) { UNUSED_ARGS; return partition(r, self, arg[0], true); }

/* Searching. */
typedef struct Window { const char *p; size_t n; int64_t first; bool past; } Window; /* first: index of its first character */

static bool window(Render *r, Val s, Val from, Val to, Window *w) {
  int64_t len = (int64_t)val_n_chars(s), a, b;
  if (!want_int(r, from, 0, &a) || !want_int(r, to, len, &b)) return false;
  if (a < 0) a = MAX(a + len, 0);
  if (b < 0) b = MAX(b + len, 0);
  b = MIN(b, len);
  *w = (Window){.p = s.u.s->p, .first = a, .past = a > b};
  if (w->past) return true;
  size_t at = offset_of(s, a);
  w->p += at;
  w->n = offset_of(s, b) - at;
  return text_render_room(r, 0, (int64_t)(w->n / 64));
}

static Val find_any(Render *r, Val self, Val *arg, bool right, bool must) {
  Window w;
  if (!want_str(r, arg[0], "find") || !window(r, self, arg[1], arg[2], &w)) return FAIL;
  const char *hit = w.past ? NULL : right ? find_last(w.p, w.n, STR_OF(arg[0])) : memmem(w.p, w.n, STR_OF(arg[0]));
  if (!hit) return must ? val_fail(r, ERR_FORMAT, "substring not found") : val_int(r->arena, -1);
  return val_int(r->arena, w.first + (int64_t)text_utf8_count(w.p, (size_t)(hit - w.p)));
}
METHOD_FN(m_find) { UNUSED_ARGS; return find_any(r, self, arg, false, false); }
METHOD_FN(m_rfind) { UNUSED_ARGS; return find_any(r, self, arg, true, false); }
METHOD_FN(m_index) { UNUSED_ARGS; return find_any(r, self, arg, false, true); }
METHOD_FN(m_rindex) { UNUSED_ARGS; return find_any(r, self, arg, true, true); }

METHOD_FN(m_count) {
  UNUSED_ARGS;
  Window w;
  if (!want_str(r, arg[0], "count") || !window(r, self, arg[1], arg[2], &w)) return FAIL;
  int64_t n = 0;
  size_t k = arg[0].u.s->n;
  if (w.past) return val_int(r->arena, 0);
  if (!k) return val_int(r->arena, (Int128)text_utf8_count(w.p, w.n) + 1);
  for (const char *p = w.p, *end = w.p + w.n, *hit; (hit = find_first(p, (size_t)(end - p), STR_OF(arg[0]))) != NULL; p = hit + k) n++;
  return val_int(r->arena, n);
}

static Val affix(Render *r, Val self, Val *arg, bool at_end) {
  Window w;
  Val one = arg[0], *items = &one;
  int n = 1;
  if (one.kind == V_LIST && one.u.l->tuple) { items = one.u.l->items; n = one.u.l->n; }
  if (!window(r, self, arg[1], arg[2], &w)) return FAIL;
  for (int i = 0; i < n; i++) {
    if (!want_str(r, items[i], at_end ? "endswith" : "startswith")) return FAIL;
    size_t k = items[i].u.s->n;
    if (!w.past && k <= w.n && !memcmp(at_end ? w.p + w.n - k : w.p, items[i].u.s->p, k)) return val_bool(true);
  }
  return val_bool(false);
}
METHOD_FN(m_startswith) { UNUSED_ARGS; return affix(r, self, arg, false); }
METHOD_FN(m_endswith) { UNUSED_ARGS; return affix(r, self, arg, true); }

/* Replacing and padding. What takes the place of the conversation's text is the conversation's: it decides that it is there. */
static void put_instead(Weave *out, const VStr *s, const char *hit, size_t k, Val with, bool escape) {
  Weave one = {0}, old = {0};
  text_weave_part(&old, s, hit, k);
  escape ? text_weave_escape(&one, with) : text_weave_part(&one, with.u.s, STR_OF(with));
  old.user.n ? text_weave_foreign(out, one.text.p ? one.text.p : "", one.text.n) : text_weave_add(out, &one);
  text_weave_free(&one);
  text_weave_free(&old);
}

Val text_str_replace(Render *r, Val s, Val old, Val with, int64_t count) {
  if (!want_str(r, old, "replace") || !want_str(r, with, "replace")) return FAIL;
  Weave out = {0};
  const char *p = s.u.s->p, *end = p + s.u.s->n;
  size_t k = old.u.s->n;
  bool escape = s.u.s->safe && !with.u.s->safe;
  while (count != 0) {
    const char *hit = k ? find_first(p, (size_t)(end - p), old.u.s->p, k) : p;
    if (!hit || out.text.n > TEMPLATE_MAX_OUTPUT) break;
    text_weave_part(&out, s.u.s, p, (size_t)(hit - p));
    put_instead(&out, s.u.s, hit, k, with, escape);
    p = hit + k;
    count--;
    if (k) continue;
    if (p >= end) break;
    int32_t c;
    int m = text_utf8_next(p, end, &c);
    text_weave_part(&out, s.u.s, p, (size_t)m);
    p += m;
  }
  text_weave_part(&out, s.u.s, p, (size_t)(end - p));
  return text_weave_take(r, &out, s.u.s->safe);
}

METHOD_FN(m_replace) {
  UNUSED_ARGS;
  int64_t count;
  return want_int(r, arg[2], -1, &count) ? text_str_replace(r, self, arg[0], arg[1], count) : FAIL;
}

static Val justify(Render *r, Val self, Val *arg, int mode) {
  int64_t width, len = (int64_t)val_n_chars(self);
  const char *fill = " ";
  size_t n_fill = 1;
  if (!want_int(r, arg[0], 0, &width)) return FAIL;
  if (arg[1].kind != V_ERROR) {
    if (!want_str(r, arg[1], "fill character")) return FAIL;
    if (val_n_chars(arg[1]) != 1) return val_fail(r, ERR_FORMAT, "the fill character must be exactly one character long");
    fill = arg[1].u.s->p;
    n_fill = arg[1].u.s->n;
  }
  int64_t pad = MAX(width - len, 0), left = mode == 0 ? 0 : mode == 2 ? pad : pad / 2 + (pad & width & 1);
  if (!text_render_room(r, (size_t)pad * n_fill, pad / 16)) return FAIL;
  Str s = {0};
  for (int64_t i = 0; i < left; i++) str_add_n(&s, fill, n_fill);
  str_add_n(&s, STR_OF(self));
  for (int64_t i = left; i < pad; i++) str_add_n(&s, fill, n_fill);
  return text_render_take(r, &s, self.u.s->safe);
}
METHOD_FN(m_ljust) { UNUSED_ARGS; return justify(r, self, arg, 0); }
METHOD_FN(m_center) { UNUSED_ARGS; return justify(r, self, arg, 1); }
METHOD_FN(m_rjust) { UNUSED_ARGS; return justify(r, self, arg, 2); }

METHOD_FN(m_zfill) {
  UNUSED_ARGS;
  int64_t width, len = (int64_t)val_n_chars(self);
  if (!want_int(r, arg[0], 0, &width)) return FAIL;
  int64_t pad = MAX(width - len, 0);
  bool sign = self.u.s->n && (self.u.s->p[0] == '-' || self.u.s->p[0] == '+');
  if (!text_render_room(r, (size_t)pad, pad / 16)) return FAIL;
  Str s = {0};
  str_add_n(&s, self.u.s->p, sign);
  for (int64_t i = 0; i < pad; i++) str_add_c(&s, '0');
  str_add_n(&s, self.u.s->p + sign, self.u.s->n - sign);
  return text_render_take(r, &s, self.u.s->safe);
}

METHOD_FN(m_expandtabs) {
  UNUSED_ARGS;
  int64_t size, column = 0;
  if (!want_int(r, arg[0], 8, &size)) return FAIL;
  size = MIN(MAX(size, 0), 1000);
  Str s = {0};
  for (const char *q = self.u.s->p, *end = q + self.u.s->n; q < end && s.n <= TEMPLATE_MAX_OUTPUT;) {
    int32_t c;
    int k = text_utf8_next(q, end, &c);
    if (c == '\t') { for (int64_t i = size ? size - column % size : 0; i > 0; i--, column++) str_add_c(&s, ' '); }
    else { str_add_n(&s, q, (size_t)k); column = c == '\n' || c == '\r' ? 0 : column + 1; }
    q += k;
  }
  return text_render_take(r, &s, self.u.s->safe);
}

METHOD_FN(m_removeprefix) {
  UNUSED_ARGS;
  if (!want_str(r, arg[0], "removeprefix")) return FAIL;
  size_t k = arg[0].u.s->n, n = self.u.s->n;
  return k <= n && !memcmp(self.u.s->p, arg[0].u.s->p, k) ? part(r, self.u.s, self.u.s->p + k, n - k) : self;
}
METHOD_FN(m_removesuffix) {
  UNUSED_ARGS;
  if (!want_str(r, arg[0], "removesuffix")) return FAIL;
  size_t k = arg[0].u.s->n, n = self.u.s->n;
  return k <= n && !memcmp(self.u.s->p + n - k, arg[0].u.s->p, k) ? part(r, self.u.s, self.u.s->p, n - k) : self;
}

METHOD_FN(m_format) { UNUSED_ARGS; return text_format(r, self, all, val_none()); }
METHOD_FN(m_format_map) {
  UNUSED_ARGS;
  Args none = {0};
  return text_format(r, self, &none, arg[0]);
}

static bool is_utf8(Val v) {
  if (v.kind == V_ERROR) return true;
  static const char *const names[] = {"utf-8", "utf8", "UTF-8", "UTF8", "utf_8"};
  for (size_t i = 0; i < COUNT_OF(names); i++)
    if (val_is_str(v, names[i])) return true;
  return false;
}

METHOD_FN(m_encode) {
  UNUSED_ARGS;
  if (!is_utf8(arg[0])) return val_fail(r, ERR_FORMAT, "encode: only utf-8 is known");
  VStr *s = ARENA_NEW(r->arena, VStr);
  *s = (VStr){.p = self.u.s->p, .n = self.u.s->n, .n_chars = -1, .bytes = true};
  return (Val){.kind = V_STR, .u.s = s};
}

METHOD_FN(m_decode) {
  UNUSED_ARGS;
  if (!is_utf8(arg[0]) || text_utf8_valid(STR_OF(self)) != self.u.s->n) return val_fail(r, ERR_FORMAT, "decode: the bytes are not utf-8");
  return val_str_view(r->arena, STR_OF(self));
}

/* What a string is made of. */
typedef bool (*CharTest)(int32_t c);
static bool is_decimal(int32_t c) { return text_char_category(c) == UTF8PROC_CATEGORY_ND; }
static bool is_digit(int32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
         (c >= 0x2488 && c <= 0x2490) || (c >= 0x24F5 && c <= 0x24FD) || (c >= 0x2776 && c <= 0x277E) || (c >= 0x2780 && c <= 0x2788) || (c >= 0x278A && c <= 0x2792);
}
static bool is_numeric(int32_t c) { return text_char_class(c) == CHAR_NUMBER; }
static bool is_alpha(int32_t c) { return text_char_class(c) == CHAR_LETTER; }
static bool is_alnum(int32_t c) { return is_alpha(c) || is_numeric(c); }
static bool is_ascii(int32_t c) { return c >= 0 && c < 0x80; }

static Val all_chars(Val s, CharTest test, bool when_empty) {
  if (!s.u.s->n) return val_bool(when_empty);
  for (const char *q = s.u.s->p, *end = q + s.u.s->n; q < end;) {
    int32_t c;
    q += text_utf8_next(q, end, &c);
    if (!test(c)) return val_bool(false);
  }
  return val_bool(true);
}
METHOD_FN(m_isdigit) { UNUSED_ARGS; return all_chars(self, is_digit, false); }
METHOD_FN(m_isdecimal) { UNUSED_ARGS; return all_chars(self, is_decimal, false); }
METHOD_FN(m_isnumeric) { UNUSED_ARGS; return all_chars(self, is_numeric, false); }
METHOD_FN(m_isalpha) { UNUSED_ARGS; return all_chars(self, is_alpha, false); }
METHOD_FN(m_isalnum) { UNUSED_ARGS; return all_chars(self, is_alnum, false); }
METHOD_FN(m_isspace) { UNUSED_ARGS; return all_chars(self, text_char_is_pyspace, false); }
METHOD_FN(m_isascii) { UNUSED_ARGS; return all_chars(self, is_ascii, true); }
METHOD_FN(m_isprintable) { UNUSED_ARGS; return all_chars(self, text_char_is_printable, true); }
METHOD_FN(m_isidentifier) {
  UNUSED_ARGS;
  return val_bool(self.u.s->n && !(self.u.s->p[0] >= '0' && self.u.s->p[0] <= '9') && all_chars(self, text_char_is_word, false).u.b);
}

static Val has_case(Val s, int want, int other, bool title) {
  bool any = false, in_word = false;
  for (const char *q = s.u.s->p, *end = q + s.u.s->n; q < end;) {
    int32_t c;
    q += text_utf8_next(q, end, &c);
    int k = text_char_category(c);
    bool upper = k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LT, lower = k == UTF8PROC_CATEGORY_LL;
    if (title && ((upper && in_word) || (lower && !in_word))) return val_bool(false);
    if (!title && (k == other || k == UTF8PROC_CATEGORY_LT)) return val_bool(false);
    any |= title ? upper || lower : k == want;
    in_word = upper || lower;
  }
  return val_bool(any);
}
METHOD_FN(m_isupper) { UNUSED_ARGS; return has_case(self, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL, false); }
METHOD_FN(m_islower) { UNUSED_ARGS; return has_case(self, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LU, false); }
METHOD_FN(m_istitle) { UNUSED_ARGS; return has_case(self, 0, 0, true); }

/* Lists, dictionaries, numbers. */
METHOD_FN(m_list_index) {
  UNUSED_ARGS;
  int64_t n = self.u.l->n, from, to;
  if (!want_int(r, arg[1], 0, &from) || !want_int(r, arg[2], n, &to) || !text_render_room(r, 0, n)) return FAIL;
  if (from < 0) from = MAX(from + n, 0);
  if (to < 0) to += n;
  for (int64_t i = from; i < MIN(to, n); i++)
    if (val_equal(self.u.l->items[i], arg[0])) return val_int(r->arena, i);
  return val_fail(r, ERR_FORMAT, "the value is not in the list");
}
METHOD_FN(m_list_count) {
  UNUSED_ARGS;
  int n = 0;
  if (!text_render_room(r, 0, self.u.l->n)) return FAIL;
  for (int i = 0; i < self.u.l->n; i++) n += val_equal(self.u.l->items[i], arg[0]);
  return val_int(r->arena, n);
}
METHOD_FN(m_list_copy) {
  UNUSED_ARGS;
  if (!text_render_room(r, (size_t)self.u.l->n * sizeof(Val), self.u.l->n)) return FAIL;
  Val out = val_list(r->arena, self.u.l->n);
  for (int i = 0; i < self.u.l->n; i++) val_push(r->arena, out, self.u.l->items[i]);
  return out;
}
METHOD_FN(m_get) {
  UNUSED_ARGS;
  if (!val_hashable(arg[0])) return val_fail(r, ERR_FORMAT, "unhashable type: '%s'", val_type_name(arg[0]));
  const Val *v = val_find(self.u.d, arg[0]);
  return v ? *v : arg[1].kind == V_ERROR ? val_none() : arg[1];
}
static Val view(Render *r, Val self, int what) {
  VView *w = ARENA_NEW(r->arena, VView);
  *w = (VView){self.u.d, what};
  return (Val){.kind = V_VIEW, .u.view = w};
}
METHOD_FN(m_keys) { UNUSED_ARGS; return view(r, self, 0); }
METHOD_FN(m_values) { UNUSED_ARGS; return view(r, self, 1); }
METHOD_FN(m_items) { UNUSED_ARGS; return view(r, self, 2); }
METHOD_FN(m_dict_copy) {
  UNUSED_ARGS;
  if (!text_render_room(r, (size_t)self.u.d->n * 4 * sizeof(Val), self.u.d->n)) return FAIL;
  Val out = val_dict(r->arena);
  for (int i = 0; i < self.u.d->n; i++) val_put(r->arena, out.u.d, self.u.d->keys[i], self.u.d->vals[i]);
  return out;
}
METHOD_FN(m_fromkeys) {
  UNUSED_ARGS;
  Val *items, out = val_dict(r->arena);
  int n;
  if (!text_iterate(r, arg[0], &items, &n) || !text_render_room(r, (size_t)n * 4 * sizeof(Val), n)) return FAIL;
  for (int i = 0; i < n; i++) {
    if (!val_hashable(items[i])) return val_fail(r, ERR_FORMAT, "unhashable type: '%s'", val_type_name(items[i]));
    val_put(r->arena, out.u.d, items[i], arg[1].kind == V_ERROR ? val_none() : arg[1]);
  }
  return out;
}
METHOD_FN(m_self) { UNUSED_ARGS; return self; }
METHOD_FN(m_bit_length) {
  UNUSED_ARGS;
  Int128 v = val_as_int(self);
  int n = 0;
  for (; v; v /= 2) n++;
  return val_int(r->arena, n);
}
METHOD_FN(m_is_integer) { UNUSED_ARGS; return val_bool(floor(self.u.f) == self.u.f && !isinf(self.u.f)); }
static int64_t range_find(Render *r, Val self, Val v) {
  Val *items;
  int n;
  if (!text_iterate(r, self, &items, &n)) return -1;
  for (int i = 0; i < n; i++)
    if (val_equal(items[i], v)) return i;
  return -1;
}
METHOD_FN(m_range_index) {
  UNUSED_ARGS;
  int64_t i = range_find(r, self, arg[0]);
  return i < 0 ? val_fail(r, ERR_FORMAT, "the value is not in the range") : val_int(r->arena, i);
}
METHOD_FN(m_range_count) { UNUSED_ARGS; return val_int(r->arena, range_find(r, self, arg[0]) >= 0); }

/* loop, cycler, joiner. */
METHOD_FN(m_loop_cycle) {
  UNUSED_ARGS;
  if (!all->n) return val_fail(r, ERR_FORMAT, "no items for cycling given");
  return all->pos[self.u.loop->at % all->n];
}
METHOD_FN(m_loop_changed) {
  UNUSED_ARGS;
  VLoop *l = self.u.loop;
  Val now = val_tuple(r->arena, all->n);
  for (int i = 0; i < all->n; i++) val_push(r->arena, now, all->pos[i]);
  bool changed = !l->has_last || !val_equal(l->last, now);
  if (changed) { l->last = now; l->has_last = true; }
  return val_bool(changed);
}
METHOD_FN(m_cycler_next) {
  UNUSED_ARGS;
  VObject *o = self.u.o;
  Val v = o->items[o->at];
  o->at = (o->at + 1) % o->n;
  return v;
}
METHOD_FN(m_cycler_reset) { UNUSED_ARGS; self.u.o->at = 0; return val_none(); }
METHOD_FN(m_joiner_call) {
  UNUSED_ARGS;
  if (self.u.o->at) return self.u.o->items[0];
  self.u.o->at = 1;
  return val_str_view(r->arena, "", 0);
}

/* Lookup. */
typedef enum MethodType { TYPE_NONE, TYPE_STR, TYPE_BYTES, TYPE_LIST, TYPE_TUPLE, TYPE_DICT, TYPE_INT, TYPE_FLOAT, TYPE_LOOP, TYPE_RANGE, TYPE_CYCLER, TYPE_JOINER } MethodType;
static const struct { MethodType type; BuiltinRow row; } methods[] = {
#define METHOD(type, name, params, required, fn) {TYPE_##type, {name, params, required, fn}},
#include "text/methods.def"
#undef METHOD
};
static const struct { MethodType type; const char *name; } mutators[] = {
#define MUTATES(type, name) {TYPE_##type, name},
#include "text/methods.def"
#undef MUTATES
};

static MethodType type_of(Val v) {
  switch (v.kind) {
    case V_STR: return v.u.s->bytes ? TYPE_BYTES : TYPE_STR;
    case V_LIST: return v.u.l->tuple ? TYPE_TUPLE : TYPE_LIST;
    case V_DICT: return TYPE_DICT;
    case V_BOOL: case V_INT: case V_BIG: return TYPE_INT;
    case V_FLOAT: return TYPE_FLOAT;
    case V_LOOP: return TYPE_LOOP;
    case V_RANGE: return TYPE_RANGE;
    case V_OBJECT: return !strcmp(v.u.o->type, "Cycler") ? TYPE_CYCLER : !strcmp(v.u.o->type, "Joiner") ? TYPE_JOINER : TYPE_NONE;
    default: return TYPE_NONE;
  }
}

static bool same(const char *name, const char *p, size_t n) { return strlen(name) == n && !memcmp(name, p, n); }

const BuiltinRow *text_method_row(Val v, const char *name, size_t n) {
  MethodType t = type_of(v);
  for (size_t i = 0; t && i < COUNT_OF(methods); i++)
    if (methods[i].type == t && same(methods[i].row.name, name, n)) return &methods[i].row;
  return NULL;
}

bool text_method_mutates(Val v, const char *name, size_t n) {
  MethodType t = type_of(v);
  for (size_t i = 0; t && i < COUNT_OF(mutators); i++)
    if (mutators[i].type == t && same(mutators[i].name, name, n)) return true;
  return false;
}
