/* Values to JSON text exactly as Python's json.dumps with transformers' defaults: no HTML escapes, ", " and ": " without indent.
   In: a value. Out: a string, or an error for what JSON cannot hold. Depth and size are bounded. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "text/priv.h"

enum { MAX_JSON_DEPTH = 300 };
typedef struct Dump { Render *r; Str out; bool ascii, sort, indented; Val indent, item, key; } Dump;

static void dump_str(Dump *d, const char *p, size_t n) {
  static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
  str_add_c(&d->out, '"');
  for (const char *q = p, *end = p + n; q < end;) {
    int32_t c;
    int k = text_utf8_next(q, end, &c);
    const char *hit = c > 0 && c < 0x80 ? strchr(from, (char)c) : NULL;
    if (hit) { str_add_c(&d->out, '\\'); str_add_c(&d->out, to[hit - from]); }
    else if (c < 0x20 || (d->ascii && c > 0x7E && c < 0x10000)) str_addf(&d->out, "\\u%04x", c < 0 ? 0xFFFD : (unsigned)c);
    else if (d->ascii && c >= 0x10000) str_addf(&d->out, "\\u%04x\\u%04x", 0xD800 + ((unsigned)(c - 0x10000) >> 10), 0xDC00 + ((unsigned)(c - 0x10000) & 0x3FF));
    else str_add_n(&d->out, q, (size_t)k);
    q += k;
  }
  str_add_c(&d->out, '"');
}

static void dump_float(Dump *d, double f) {
  if (isnan(f)) str_add(&d->out, "NaN");
  else if (isinf(f)) str_add(&d->out, f < 0 ? "-Infinity" : "Infinity");
  else val_repr_float(&d->out, f);
}

static void newline(Dump *d, int depth) {
  if (!d->indented) return;
  str_add_c(&d->out, '\n');
  for (int i = 0; i < depth; i++) val_print(&d->out, d->indent);
}

static bool dump(Dump *d, Val v, int depth);

static bool dump_key(Dump *d, Val k) {
  if (k.kind == V_STR && !k.u.s->bytes) { dump_str(d, k.u.s->p, k.u.s->n); return true; }
  if (!val_is_number(k) && k.kind != V_NONE) { val_fail(d->r, ERR_FORMAT, "keys must be str, int, float, bool or None, not %s", val_type_name(k)); return false; }
  str_add_c(&d->out, '"');
  bool ok = dump(d, k, 0);
  str_add_c(&d->out, '"');
  return ok;
}

static bool sorted_order(Dump *d, const VDict *dict, int *order) {
  int *tmp = ARENA_ARRAY(d->r->arena, int, (size_t)dict->n + 1);
  bool ok = true;
  for (int i = 0; i < dict->n; i++) order[i] = i;
  for (int w = 1; w < dict->n && ok; w *= 2) { /* bottom-up merge sort: stable, n log n */
    for (int lo = 0; lo < dict->n; lo += 2 * w) {
      int mid = MIN(lo + w, dict->n), hi = MIN(lo + 2 * w, dict->n), i = lo, j = mid;
      for (int k = lo; k < hi; k++) {
        bool right = i >= mid || (j < hi && text_compare(d->r, dict->keys[order[j]], dict->keys[order[i]], &ok) < 0);
        tmp[k] = right ? order[j++] : order[i++];
      }
    }
    memcpy(order, tmp, (size_t)dict->n * sizeof *order);
  }
  return ok;
}

static bool dump_dict(Dump *d, const VDict *dict, int depth) {
  if (!dict->n) { str_add(&d->out, "{}"); return true; }
  int *order = ARENA_ARRAY(d->r->arena, int, (size_t)dict->n + 1);
  for (int i = 0; i < dict->n; i++) order[i] = i;
  if (d->sort && !sorted_order(d, dict, order)) return false;
  str_add_c(&d->out, '{');
  for (int i = 0; i < dict->n; i++) {
    if (i) val_print(&d->out, d->item);
    newline(d, depth + 1);
    if (!dump_key(d, dict->keys[order[i]])) return false;
    val_print(&d->out, d->key);
    if (!dump(d, dict->vals[order[i]], depth + 1)) return false;
  }
  newline(d, depth);
  str_add_c(&d->out, '}');
  return true;
}

static bool dump_list(Dump *d, const VList *l, int depth) {
  if (!l->n) { str_add(&d->out, "[]"); return true; }
  str_add_c(&d->out, '[');
  for (int i = 0; i < l->n; i++) {
    if (i) val_print(&d->out, d->item);
    newline(d, depth + 1);
    if (!dump(d, l->items[i], depth + 1)) return false;
  }
  newline(d, depth);
  str_add_c(&d->out, ']');
  return true;
}

static bool dump(Dump *d, Val v, int depth) {
  if (depth > MAX_JSON_DEPTH) { val_fail(d->r, ERR_LIMIT, "tojson: nested deeper than %d", MAX_JSON_DEPTH); return false; }
  if (d->out.n > TEMPLATE_MAX_OUTPUT) { val_fail(d->r, ERR_LIMIT, "tojson: more than %d MiB", TEMPLATE_MAX_OUTPUT >> 20); return false; }
  if (!text_render_room(d->r, 0, 1)) return false;
  switch (v.kind) {
    case V_NONE: str_add(&d->out, "null"); return true;
    case V_BOOL: str_add(&d->out, v.u.b ? "true" : "false"); return true;
    case V_INT: case V_BIG: val_print_int(&d->out, val_as_int(v)); return true;
    case V_FLOAT: dump_float(d, v.u.f); return true;
    case V_LIST: return dump_list(d, v.u.l, depth);
    case V_DICT: return dump_dict(d, v.u.d, depth);
    case V_STR:
      if (!v.u.s->bytes) { dump_str(d, v.u.s->p, v.u.s->n); return true; }
      break;
    default: break;
  }
  val_fail(d->r, ERR_FORMAT, "object of type %s is not JSON serializable", val_type_name(v));
  return false;
}

Val text_to_json(Render *r, Val v, bool ascii, Val indent, Val separators, bool sort) {
  Dump d = {.r = r, .ascii = ascii, .sort = sort, .indented = indent.kind != V_NONE};
  d.indent = indent;
  if (val_is_int(indent)) {
    Int128 n = MIN(MAX(val_as_int(indent), 0), 1000);
    char *spaces = arena_alloc(r->arena, (size_t)n + 1);
    memset(spaces, ' ', (size_t)n);
    d.indent = val_str_view(r->arena, spaces, (size_t)n);
  } else if (indent.kind != V_NONE && indent.kind != V_STR) {
    return val_fail(r, ERR_FORMAT, "tojson: indent is %s, expected an integer or text", val_type_name(indent));
  }
  d.item = val_str_view(r->arena, d.indented ? "," : ", ", d.indented ? 1 : 2);
  d.key = val_str_view(r->arena, ": ", 2);
  if (separators.kind == V_LIST && separators.u.l->n == 2 && separators.u.l->items[0].kind == V_STR && separators.u.l->items[1].kind == V_STR) {
    d.item = separators.u.l->items[0];
    d.key = separators.u.l->items[1];
  } else if (separators.kind != V_NONE) {
    return val_fail(r, ERR_FORMAT, "tojson: separators must be two texts");
  }
  if (dump(&d, v, 0)) return text_render_take(r, &d.out, false);
  str_free(&d.out);
  return (Val){0};
}
