/* Filters on sequences: sorting, grouping, selecting, mapping, joining.
   In: any iterable. Out: lists, or iterators where Jinja gives generators: those are computed at once, but an error in them shows
   only when they are first read, and they can be read once. Sorts are stable merge sorts. */
#include <string.h>
#include "text/priv.h"

#define FAIL ((Val){.kind = V_ERROR})
#define FILTER_FN(fn) Val fn(Render *r, Val v, Val *arg, const Args *all)
#define UNUSED_ARGS (void)r; (void)v; (void)arg; (void)all
#define GIVEN(a) ((a).kind != V_ERROR)

typedef struct Items { Val *p; int n, cap; } Items;
static void keep(Render *r, Items *x, Val v) { PUSH(r->arena, x->p, x->n, x->cap, v); }

/* Python's generator objects: what failed while making them is held back, but a spent budget is not. */
static Val iterator(Render *r, Items x, const char *type) {
  if (r->err && err_kind(r->err) == ERR_LIMIT) return FAIL;
  VIter *it = ARENA_NEW(r->arena, VIter);
  *it = (VIter){.items = x.p, .n = x.n, .type = type, .late = r->err};
  if (r->err) PUSH(r->arena, r->late, r->n_late, r->cap_late, it);
  r->err = NULL;
  return (Val){.kind = V_ITER, .u.it = it};
}

/* depth is part of the state an error leaves behind */
#define LAZY_BEGIN Items out = {0}; Val *items; int n, depth_ = r->depth
#define LAZY_END r->depth = depth_; return iterator(r, out, "generator")

Val text_lower_if_str(Render *r, Val v) { return v.kind == V_STR && !v.u.s->bytes ? text_str_case(r, v, 0) : v; }

Val text_attr_path(Render *r, Val item, Val path, const Val *otherwise) {
  if (path.kind == V_ERROR || path.kind == V_NONE) return item;
  if (path.kind != V_STR) {
    Val v = text_getitem(r, item, path);
    return v.kind == V_UNDEF && otherwise && otherwise->kind != V_NONE ? *otherwise : v;
  }
  for (const char *p = path.u.s->p, *end = p + path.u.s->n; p <= end && GIVEN(item);) {
    const char *dot = memchr(p, '.', (size_t)(end - p)), *stop = dot ? dot : end;
    bool number = stop > p && stop - p < 9;
    int64_t i = 0;
    for (const char *c = p; c < stop; c++) {
      number &= *c >= '0' && *c <= '9';
      if (number) i = i * 10 + (*c - '0');
    }
    item = text_getitem(r, item, number ? val_int(r->arena, i) : val_str(r->arena, p, (size_t)(stop - p)));
    if (item.kind == V_UNDEF && otherwise && otherwise->kind != V_NONE) item = *otherwise;
    p = stop + 1;
  }
  return item;
}

static Val key_of(Render *r, Val item, Val path, bool ignore_case, const Val *otherwise) {
  Val v = text_attr_path(r, item, path, otherwise);
  return ignore_case && GIVEN(v) ? text_lower_if_str(r, v) : v;
}

/* Sorting. keys and items move together. */
static bool merge_sort(Render *r, Val *key, Val *item, int n, bool reverse) {
  if (!text_render_room(r, (size_t)n * 2 * sizeof(Val), n)) return false;
  Val *k2 = ARENA_ARRAY(r->arena, Val, (size_t)n + 1), *i2 = ARENA_ARRAY(r->arena, Val, (size_t)n + 1);
  bool ok = true;
  for (int64_t w = 1; w < n && ok; w *= 2) {
    for (int64_t lo = 0; lo < n && ok; lo += 2 * w) {
      int64_t mid = MIN(lo + w, n), hi = MIN(lo + 2 * w, n), i = lo, j = mid;
      for (int64_t k = lo; k < hi; k++) {
        bool right = i >= mid;
        if (!right && j < hi) {
          int c = text_compare(r, key[j], key[i], &ok);
          right = reverse ? c > 0 : c < 0;
        }
        k2[k] = right ? key[j] : key[i];
        i2[k] = right ? item[j++] : item[i++];
      }
    }
    memcpy(key, k2, (size_t)n * sizeof *key);
    memcpy(item, i2, (size_t)n * sizeof *item);
  }
  return ok;
}

static bool copy_items(Render *r, Val v, Val **out, int *n) {
  Val *items;
  if (!text_iterate(r, v, &items, n) || !text_render_room(r, (size_t)*n * 2 * sizeof(Val), *n)) return false;
  *out = ARENA_ARRAY(r->arena, Val, (size_t)*n + 1);
  for (int i = 0; i < *n; i++) (*out)[i] = items[i];
  return true;
}

static Val list_of(Render *r, const Val *items, int n) {
  if (!text_render_room(r, (size_t)n * sizeof(Val), n / 4)) return FAIL;
  Val out = val_list(r->arena, n);
  for (int i = 0; i < n; i++) val_push(r->arena, out, items[i]);
  return out;
}

/* "a,b.c": several attributes, compared one after another. */
static Val multi_key(Render *r, Val item, Val path, bool ignore_case) {
  if (path.kind != V_STR || !memchr(path.u.s->p, ',', path.u.s->n)) return key_of(r, item, path, ignore_case, NULL);
  Val keys = val_list(r->arena, 2);
  for (const char *p = path.u.s->p, *end = p + path.u.s->n; p <= end;) {
    const char *comma = memchr(p, ',', (size_t)(end - p)), *stop = comma ? comma : end;
    Val k = key_of(r, item, val_str(r->arena, p, (size_t)(stop - p)), ignore_case, NULL);
    if (!GIVEN(k)) return k;
    val_push(r->arena, keys, k);
    p = stop + 1;
  }
  return keys;
}

FILTER_FN(text_filter_sort) {
  UNUSED_ARGS;
  Val *items, *keys;
  int n;
  if (!copy_items(r, v, &items, &n)) return FAIL;
  keys = ARENA_ARRAY(r->arena, Val, (size_t)n + 1);
  for (int i = 0; i < n; i++)
    if (!GIVEN(keys[i] = multi_key(r, items[i], arg[2], !val_truth(arg[1])))) return FAIL;
  return merge_sort(r, keys, items, n, val_truth(arg[0])) ? list_of(r, items, n) : FAIL;
}

FILTER_FN(text_filter_dictsort) {
  UNUSED_ARGS;
  Val *items, *keys;
  int n, pos = GIVEN(arg[1]) && val_is_str(arg[1], "value");
  if (GIVEN(arg[1]) && !pos && !val_is_str(arg[1], "key")) return val_fail(r, ERR_FORMAT, "dictsort: you can only sort by either \"key\" or \"value\"");
  if (v.kind == V_UNDEF) return text_undefined_error(r, v);
  if (v.kind != V_DICT) return val_fail(r, ERR_FORMAT, "dictsort: '%s' object has no items", val_type_name(v));
  if (!text_iterate(r, text_call_row(r, text_method_row(v, "items", 5), v, &(Args){0}), &items, &n)) return FAIL;
  keys = ARENA_ARRAY(r->arena, Val, (size_t)n + 1);
  for (int i = 0; i < n; i++) {
    keys[i] = items[i].u.l->items[pos];
    if (!val_truth(arg[0]) && !GIVEN(keys[i] = text_lower_if_str(r, keys[i]))) return FAIL;
  }
  return merge_sort(r, keys, items, n, val_truth(arg[2])) ? list_of(r, items, n) : FAIL;
}

FILTER_FN(text_filter_groupby) {
  UNUSED_ARGS;
  Val *items, *keys, out;
  int n;
  const Val *otherwise = GIVEN(arg[1]) ? &arg[1] : NULL;
  if (!copy_items(r, v, &items, &n)) return FAIL;
  keys = ARENA_ARRAY(r->arena, Val, (size_t)n + 1);
  for (int i = 0; i < n; i++)
    if (!GIVEN(keys[i] = key_of(r, items[i], arg[0], !val_truth(arg[2]), otherwise))) return FAIL;
  if (!merge_sort(r, keys, items, n, false)) return FAIL;
  out = val_list(r->arena, 4);
  for (int i = 0, j; i < n; i = j) {
    for (j = i + 1; j < n && val_equal(keys[i], keys[j]); j++) {}
    Val pair = val_tuple(r->arena, 2), name = text_attr_path(r, items[i], arg[0], otherwise), list = list_of(r, items + i, j - i);
    if (!GIVEN(name) || !GIVEN(list)) return FAIL;
    pair.u.l->group = true;
    val_push(r->arena, pair, name);
    val_push(r->arena, pair, list);
    val_push(r->arena, out, pair);
  }
  return out;
}

static Val extreme(Render *r, Val v, const Val *arg, bool max) {
  Val *items, best = FAIL, best_key = FAIL;
  int n;
  bool ok = true;
  if (!text_iterate(r, v, &items, &n)) return FAIL;
  if (!n) return text_undefined(r, "no aggregated item, sequence was empty", NULL, NULL);
  for (int i = 0; i < n; i++) {
    Val k = key_of(r, items[i], arg[1], !val_truth(arg[0]), NULL);
    if (!GIVEN(k)) return k;
    int c = i ? text_compare(r, k, best_key, &ok) : 0;
    if (!ok) return FAIL;
    if (!i || (max ? c > 0 : c < 0)) { best = items[i]; best_key = k; }
  }
  return best;
}
FILTER_FN(text_filter_min) { UNUSED_ARGS; return extreme(r, v, arg, false); }
FILTER_FN(text_filter_max) { UNUSED_ARGS; return extreme(r, v, arg, true); }

FILTER_FN(text_filter_sum) {
  UNUSED_ARGS;
  Val *items, total = GIVEN(arg[1]) ? arg[1] : val_int(r->arena, 0);
  int n;
  if (!text_iterate(r, v, &items, &n)) return FAIL;
  if (total.kind == V_STR) return val_fail(r, ERR_FORMAT, "sum() can't sum strings");
  for (int i = 0; i < n && GIVEN(total); i++) {
    Val x = text_attr_path(r, items[i], arg[0], NULL);
    total = GIVEN(x) ? text_binary(r, TK_ADD, total, x) : x;
  }
  return total;
}

/* Ends, order, form. */
FILTER_FN(text_filter_first) {
  UNUSED_ARGS;
  Val *items;
  int n;
  if (v.kind == V_ITER && v.u.it->at < v.u.it->n && !v.u.it->late) return v.u.it->items[v.u.it->at++];
  if (!text_iterate(r, v, &items, &n)) return FAIL;
  return n ? items[0] : text_undefined(r, "no first item, sequence was empty", NULL, NULL);
}

FILTER_FN(text_filter_last) {
  UNUSED_ARGS;
  Val *items;
  int n;
  if (v.kind == V_ITER) return val_fail(r, ERR_FORMAT, "'%s' object is not reversible", val_type_name(v));
  if (!text_iterate(r, v, &items, &n)) return FAIL;
  return n ? items[n - 1] : text_undefined(r, "no last item, sequence was empty", NULL, NULL);
}

/* A template that wants chance gets the same item every time: prompts must be reproducible. */
FILTER_FN(text_filter_random) {
  UNUSED_ARGS;
  Val *items;
  int n;
  if (!text_iterate(r, v, &items, &n)) return FAIL;
  return n ? items[0] : text_undefined(r, "no random item, sequence was empty", NULL, NULL);
}

FILTER_FN(text_filter_list) {
  UNUSED_ARGS;
  Val *items;
  int n;
  return text_iterate(r, v, &items, &n) ? list_of(r, items, n) : FAIL;
}

FILTER_FN(text_filter_reverse) {
  UNUSED_ARGS;
  Val *items;
  int n;
  Items out = {0};
  if (v.kind == V_STR) return text_str_slice(r, v, (int64_t)val_n_chars(v) - 1, -1, -1, (int64_t)val_n_chars(v));
  if (!text_iterate(r, v, &items, &n) || !text_render_room(r, (size_t)n * sizeof(Val), n)) return FAIL;
  if (v.kind == V_ITER) {
    Val l = list_of(r, items, n);
    for (int i = 0; GIVEN(l) && i < n; i++) l.u.l->items[i] = items[n - 1 - i];
    return l;
  }
  for (int i = n - 1; i >= 0; i--) keep(r, &out, items[i]);
  return iterator(r, out, "list_reverseiterator");
}

FILTER_FN(text_filter_items) {
  UNUSED_ARGS;
  LAZY_BEGIN;
  if (v.kind != V_UNDEF && v.kind != V_DICT) val_fail(r, ERR_FORMAT, "can only get item pairs from a mapping");
  else if (v.kind == V_DICT && text_iterate(r, text_call_row(r, text_method_row(v, "items", 5), v, &(Args){0}), &items, &n)) out = (Items){items, n, n};
  LAZY_END;
}

FILTER_FN(text_filter_join) {
  UNUSED_ARGS;
  Val *items, sep = GIVEN(arg[0]) ? arg[0] : val_str_view(r->arena, "", 0);
  int n;
  Weave s = {0};
  bool escape = false;
  if (!text_iterate(r, v, &items, &n)) return FAIL;
  for (int i = 0; r->autoescape && i < n; i++) escape |= items[i].kind == V_STR && items[i].u.s->safe;
  for (int i = 0; i < n; i++) {
    Val x = text_attr_path(r, items[i], arg[1], NULL);
    if (!GIVEN(x) || !text_render_room(r, s.text.n, 1)) { text_weave_free(&s); return FAIL; }
    if (i) escape && !(sep.kind == V_STR && sep.u.s->safe) ? text_weave_escape(&s, sep) : text_weave_print(&s, sep);
    escape && !(x.kind == V_STR && x.u.s->safe) ? text_weave_escape(&s, x) : text_weave_print(&s, x);
  }
  return text_weave_take(r, &s, escape);
}

static bool count_arg(Render *r, Val v, int64_t *out) {
  if (!val_is_int(v)) { v.kind == V_UNDEF ? text_undefined_error(r, v) : val_fail(r, ERR_FORMAT, "expected an integer, got %s", val_type_name(v)); return false; }
  Int128 i = val_as_int(v);
  *out = i > INT32_MAX ? INT32_MAX : i < INT32_MIN ? INT32_MIN : (int64_t)i;
  return true;
}

FILTER_FN(text_filter_batch) {
  UNUSED_ARGS;
  LAZY_BEGIN;
  int64_t size = 0;
  bool fill = GIVEN(arg[1]) && arg[1].kind != V_NONE;
  if (text_iterate(r, v, &items, &n) && count_arg(r, arg[0], &size)) {
    Val row = {0};
    for (int i = 0; i < n; i++) {
      if (!i || row.u.l->n == size) keep(r, &out, row = val_list(r->arena, 4));
      val_push(r->arena, row, items[i]);
    }
    while (n && fill && row.u.l->n < size && text_render_room(r, sizeof(Val) * 2, 1)) val_push(r->arena, row, arg[1]);
  }
  LAZY_END;
}

FILTER_FN(text_filter_slice) {
  UNUSED_ARGS;
  LAZY_BEGIN;
  int64_t slices = 0, offset = 0;
  bool fill = GIVEN(arg[1]) && arg[1].kind != V_NONE;
  if (text_iterate(r, v, &items, &n) && count_arg(r, arg[0], &slices) && !slices) val_fail(r, ERR_FORMAT, "integer division by zero");
  for (int64_t i = 0; !r->err && i < slices && text_render_room(r, 64, 1); i++) {
    int64_t each = n / slices, extra = n % slices, start = offset + i * each;
    if (i < extra) offset++;
    int64_t end = offset + (i + 1) * each;
    Val row = list_of(r, items + start, (int)(end - start));
    if (GIVEN(row) && fill && i >= extra) val_push(r->arena, row, arg[1]);
    keep(r, &out, row);
  }
  LAZY_END;
}

FILTER_FN(text_filter_unique) {
  UNUSED_ARGS;
  LAZY_BEGIN;
  Val seen = val_dict(r->arena);
  if (text_iterate(r, v, &items, &n))
    for (int i = 0; i < n && !r->err; i++) {
      Val k = key_of(r, items[i], arg[1], !val_truth(arg[0]), NULL);
      if (!GIVEN(k) || !text_render_room(r, 0, 1)) break;
      if (!val_hashable(k)) { val_fail(r, ERR_FORMAT, "unhashable type: '%s'", val_type_name(k)); break; }
      if (val_find(seen.u.d, k)) continue;
      val_put(r->arena, seen.u.d, k, val_none());
      keep(r, &out, items[i]);
    }
  LAZY_END;
}

/* Mapping and selecting by name of a filter or test. */
static const Val *kw_arg(const Args *all, const char *name) {
  for (int i = 0; i < all->n_kw; i++)
    if (!strcmp(all->kw_names[i], name)) return &all->kw[i];
  return NULL;
}

static Args rest_of(const Args *all, int skip) { return (Args){.pos = all->pos + skip, .n = all->n - skip, .kw = all->kw, .kw_names = all->kw_names, .n_kw = all->n_kw}; }

static bool map_ready(Render *r, const Args *all, const Val *path) {
  for (int i = 0; path && i < all->n_kw; i++)
    if (strcmp(all->kw_names[i], "attribute") && strcmp(all->kw_names[i], "default")) { val_fail(r, ERR_FORMAT, "map: unexpected keyword argument '%s'", all->kw_names[i]); return false; }
  if (!path && (!all->n || all->pos[0].kind != V_STR)) { val_fail(r, ERR_FORMAT, "map requires a filter argument"); return false; }
  return true;
}

FILTER_FN(text_filter_map) {
  UNUSED_ARGS;
  LAZY_BEGIN;
  const Val *path = all->n ? NULL : kw_arg(all, "attribute"), *otherwise = kw_arg(all, "default");
  if (val_truth(v) && map_ready(r, all, path) && text_iterate(r, v, &items, &n))
    for (int i = 0; i < n && !r->err; i++) {
      Args rest = all->n ? rest_of(all, 1) : *all;
      Val x = path ? text_attr_path(r, items[i], *path, otherwise) : text_filter(r, all->pos[0].u.s->p, items[i], &rest);
      if (GIVEN(x) && text_render_room(r, 0, 1)) keep(r, &out, x);
    }
  LAZY_END;
}

static Val choose(Render *r, Val v, const Args *all, bool by_attr, bool want) {
  LAZY_BEGIN;
  if (val_truth(v) && by_attr && !all->n) val_fail(r, ERR_FORMAT, "missing parameter for attribute name");
  else if (val_truth(v) && text_iterate(r, v, &items, &n))
    for (int i = 0; i < n && !r->err; i++) {
      Val x = by_attr ? text_attr_path(r, items[i], all->pos[0], NULL) : items[i];
      if (!GIVEN(x) || !text_render_room(r, 0, 1)) break;
      if (all->n > by_attr) {
        Args rest = rest_of(all, by_attr + 1);
        if (all->pos[by_attr].kind != V_STR) val_fail(r, ERR_FORMAT, "the name of a test must be text");
        else x = text_test(r, all->pos[by_attr].u.s->p, x, &rest);
      }
      if (!r->err && val_truth(x) == want) keep(r, &out, items[i]);
    }
  LAZY_END;
}
FILTER_FN(text_filter_select) { UNUSED_ARGS; return choose(r, v, all, false, true); }
FILTER_FN(text_filter_reject) { UNUSED_ARGS; return choose(r, v, all, false, false); }
FILTER_FN(text_filter_selectattr) { UNUSED_ARGS; return choose(r, v, all, true, true); }
FILTER_FN(text_filter_rejectattr) { UNUSED_ARGS; return choose(r, v, all, true, false); }
