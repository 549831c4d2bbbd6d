/* Running a template's tree: scopes, statements, expressions, attribute access under the sandbox.
   In: a tree and a context. Out: text in render->out, or render->err. Python's meaning throughout: names are looked up in the scopes
   around the place where the code stands (a macro keeps the scopes of its definition), then the context, then the globals.
   Every node costs a step, every level of nesting a depth, all memory comes from one arena with a budget: nothing runs for ever. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "text/priv.h"

typedef struct Var { const char *name; Val v; } Var;
struct Scope { Scope *parent; Var *vars; int n, cap; };
typedef enum Flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE, FLOW_FAIL } Flow;

static Val eval(Render *r, const Node *n, Scope *s);
static Flow run(Render *r, Node *const *list, int n, Scope *s);
#define EVAL(v, node) Val v = eval(r, (node), s); if (v.kind == V_ERROR) return v
#define FAIL ((Val){.kind = V_ERROR})

Val val_fail(Render *r, ErrKind kind, const char *fmt, ...) {
  if (r->err) return FAIL;
  va_list ap;
  Str s = {0};
  va_start(ap, fmt);
  str_vaddf(&s, fmt, ap);
  va_end(ap);
  r->err = kind == ERR_USAGE ? err_new(kind, "%s", s.p) : err_new(kind, "template line %d: %s", r->line, s.p);
  str_free(&s);
  return FAIL;
}

bool text_render_room(Render *r, size_t n_bytes, int64_t n_steps) {
  r->steps += n_steps;
  if (n_bytes > TEMPLATE_MAX_MEMORY || r->arena->n_bytes + n_bytes > TEMPLATE_MAX_MEMORY) {
    val_fail(r, ERR_LIMIT, "needs more than %d MiB", TEMPLATE_MAX_MEMORY >> 20);
    return false;
  }
  if (r->steps > TEMPLATE_MAX_STEPS) {
    val_fail(r, ERR_LIMIT, "runs for more than %d steps", TEMPLATE_MAX_STEPS);
    return false;
  }
  return true;
}

Val text_render_take(Render *r, Str *s, bool safe) {
  Val v = FAIL;
  if (s->n > TEMPLATE_MAX_OUTPUT) val_fail(r, ERR_LIMIT, "makes a text of more than %d MiB", TEMPLATE_MAX_OUTPUT >> 20);
  else if (text_render_room(r, s->n, (int64_t)(s->n / 64))) {
    v = val_str(r->arena, s->p ? s->p : "", s->n);
    ((VStr *)(uintptr_t)v.u.s)->safe = safe;
  }
  str_free(s);
  return v;
}

Val text_weave_take(Render *r, Weave *w, bool safe) {
  size_t n_user = w->user.n;
  uint8_t *user = NULL;
  if (n_user && text_render_room(r, w->text.n, 0)) {
    user = arena_alloc(r->arena, w->text.n + 1);
    memcpy(user, w->user.p, n_user);
  }
  str_free(&w->user);
  Val v = text_render_take(r, &w->text, safe);
  if (v.kind != V_STR || r->err) return v.kind == V_STR ? FAIL : v;
  VStr *s = (VStr *)(uintptr_t)v.u.s;
  s->ours = true;
  s->user = user;
  return v;
}

Val text_undefined(Render *r, const char *hint, const char *name, const char *owner) {
  VUndef *u = ARENA_NEW(r->arena, VUndef);
  *u = (VUndef){.hint = hint, .name = name, .owner = owner};
  return (Val){.kind = V_UNDEF, .u.u = u};
}

Val text_undefined_error(Render *r, Val v) {
  const VUndef *u = v.u.u;
  if (!u) return val_fail(r, ERR_FORMAT, "undefined value");
  if (u->hint) return val_fail(r, ERR_FORMAT, "%s", u->hint);
  if (u->owner) return val_fail(r, ERR_FORMAT, "'%s' has no attribute '%s'", u->owner, u->name);
  return val_fail(r, ERR_FORMAT, "'%s' is undefined", u->name);
}

/* Scopes. */
static Scope *scope_new(Render *r, Scope *parent) {
  Scope *s = ARENA_NEW(r->arena, Scope);
  s->parent = parent;
  return s;
}

static void scope_set(Render *r, Scope *s, const char *name, Val v) {
  for (int i = 0; i < s->n; i++)
    if (s->vars[i].name == name) { s->vars[i].v = v; return; }
  PUSH(r->arena, s->vars, s->n, s->cap, (Var){name, v});
}

/* Implicit names (loop, caller, ...) are compared by text; the others by pointer, since equal names are equal pointers. */
static const char *interned(Render *r, const char *name) {
  const Names *t = &r->t->names;
  for (uint32_t i = (uint32_t)hash_bytes(name, strlen(name), 0) & t->mask; t->slot && t->slot[i]; i = (i + 1) & t->mask)
    if (!strcmp(t->slot[i], name)) return t->slot[i];
  return name;
}

static Val lookup(Render *r, const char *name, const Scope *s) {
  for (; s; s = s->parent)
    for (int i = s->n - 1; i >= 0; i--)
      if (s->vars[i].name == name) return s->vars[i].v;
  const Val *v = val_get(r->context, name);
  if (v) return *v;
  const BuiltinRow *row = text_global_row(name);
  if (row) return text_func(r, row, val_none());
  if (!strcmp(name, "self")) {
    VObject *o = ARENA_NEW(r->arena, VObject);
    o->type = "jinja2.runtime.TemplateReference";
    return (Val){.kind = V_OBJECT, .u.o = o};
  }
  return text_undefined(r, NULL, name, NULL);
}

Val text_func(Render *r, const BuiltinRow *row, Val self) {
  VFunc *f = ARENA_NEW(r->arena, VFunc);
  *f = (VFunc){.name = row->name, .row = row, .self = self};
  return (Val){.kind = V_FUNC, .u.fn = f};
}

/* Attributes and items. */
static const char *owner_name(Render *r, Val v) {
  return v.kind == V_NONE ? "None" : arena_printf(r->arena, "%s object", val_type_name(v));
}

static bool loop_attr(Render *r, VLoop *l, const char *name, Val *out) {
  if (!strcmp(name, "index")) *out = val_int(r->arena, l->at + 1);
  else if (!strcmp(name, "index0")) *out = val_int(r->arena, l->at);
  else if (!strcmp(name, "revindex")) *out = val_int(r->arena, l->n - l->at);
  else if (!strcmp(name, "revindex0")) *out = val_int(r->arena, l->n - l->at - 1);
  else if (!strcmp(name, "first")) *out = val_bool(l->at == 0);
  else if (!strcmp(name, "last")) *out = val_bool(l->at == l->n - 1);
  else if (!strcmp(name, "length")) *out = val_int(r->arena, l->n);
  else if (!strcmp(name, "depth")) *out = val_int(r->arena, l->depth + 1);
  else if (!strcmp(name, "depth0")) *out = val_int(r->arena, l->depth);
  else if (!strcmp(name, "previtem")) *out = l->at > 0 ? l->items[l->at - 1] : text_undefined(r, "there is no previous item", name, NULL);
  else if (!strcmp(name, "nextitem")) *out = l->at + 1 < l->n ? l->items[l->at + 1] : text_undefined(r, "there is no next item", name, NULL);
  else return false;
  return true;
}

static bool macro_attr(Render *r, const Node *m, const char *name, Val *out) {
  if (!strcmp(name, "name")) *out = val_str_view(r->arena, m->name, strlen(m->name));
  else if (!strcmp(name, "arguments")) {
    *out = val_tuple(r->arena, (int)m->value.u.i);
    for (int i = 0; i < (int)m->value.u.i; i++) val_push(r->arena, *out, val_str_view(r->arena, m->names[i], strlen(m->names[i])));
  } else if (!strcmp(name, "catch_kwargs")) *out = val_bool(m->uses_kwargs);
  else if (!strcmp(name, "catch_varargs")) *out = val_bool(m->uses_varargs);
  else if (!strcmp(name, "caller")) *out = val_bool(m->uses_caller);
  else return false;
  return true;
}

/* What Python's getattr would find: true and the value (perhaps an unsafe one, which prints as nothing and fails when used). */
static bool python_attr(Render *r, Val obj, const char *name, size_t n, Val *out) {
  bool dunder = n > 4 && !memcmp(name, "__", 2) && !memcmp(name + n - 2, "__", 2);
  if (obj.kind == V_UNDEF && (n != 9 || memcmp(name, "__class__", 9))) { *out = text_undefined_error(r, obj); return true; }
  if (obj.kind == V_NAMESPACE && !dunder) {
    const Val *v = val_get((Val){.kind = V_DICT, .u.d = obj.u.d}, name);
    if (v) *out = *v;
    return v != NULL;
  }
  if (obj.kind == V_LOOP && loop_attr(r, obj.u.loop, name, out)) return true;
  if (obj.kind == V_FUNC && obj.u.fn->macro && macro_attr(r, obj.u.fn->macro, name, out)) return true;
  if (obj.kind == V_LIST && obj.u.l->group && (!strcmp(name, "grouper") || !strcmp(name, "list"))) { *out = obj.u.l->items[name[0] == 'l']; return true; }
  if (val_is_number(obj) && (!strcmp(name, "real") || (!strcmp(name, "numerator") && obj.kind != V_FLOAT))) { *out = obj.kind == V_BOOL ? val_int(r->arena, obj.u.b) : obj; return true; }
  if (val_is_number(obj) && !strcmp(name, "imag")) { *out = obj.kind == V_FLOAT ? val_float(0) : val_int(r->arena, 0); return true; }
  if (obj.kind == V_RANGE && !strcmp(name, "start")) { *out = val_int(r->arena, obj.u.r->start); return true; }
  if (obj.kind == V_RANGE && !strcmp(name, "stop")) { *out = val_int(r->arena, obj.u.r->stop); return true; }
  if (obj.kind == V_OBJECT && !strcmp(name, "current") && obj.u.o->n) { *out = obj.u.o->items[obj.u.o->at]; return true; }
  if (dunder || text_method_mutates(obj, name, n)) {
    *out = text_undefined(r, arena_printf(r->arena, "access to attribute '%.*s' of '%s' object is unsafe", (int)n, name, val_type_name(obj)), name, NULL);
    return true;
  }
  const BuiltinRow *row = text_method_row(obj, name, n);
  if (row) *out = text_func(r, row, obj);
  return row != NULL;
}

static int64_t len_of_range(const VRange *x) {
  if (x->step > 0) return x->start < x->stop ? (x->stop - x->start - 1) / x->step + 1 : 0;
  return x->start > x->stop ? (x->start - x->stop - 1) / -x->step + 1 : 0;
}

/* obj[key] as Python: false where Python raises TypeError or LookupError. */
static bool python_item(Render *r, Val obj, Val key, Val *out) {
  if (obj.kind == V_DICT) {
    Val *v = val_hashable(key) ? val_find(obj.u.d, key) : NULL;
    if (v) *out = *v;
    return v != NULL;
  }
  if (!val_is_int(key)) return false;
  Int128 i = val_as_int(key), len = obj.kind == V_STR ? (Int128)val_n_chars(obj) : obj.kind == V_LIST ? obj.u.l->n : obj.kind == V_RANGE ? len_of_range(obj.u.r) : -1;
  if (len < 0) return false;
  if (i < 0) i += len;
  if (i < 0 || i >= len) return false;
  if (obj.kind == V_LIST) *out = obj.u.l->items[i];
  else if (obj.kind == V_RANGE) *out = val_int(r->arena, obj.u.r->start + (int64_t)i * obj.u.r->step);
  else if (obj.u.s->bytes) *out = val_int(r->arena, (uint8_t)obj.u.s->p[i]);
  else *out = text_str_slice(r, obj, (int64_t)i, (int64_t)i + 1, 1, 1);
  return true;
}

Val text_getattr(Render *r, Val obj, const char *name, size_t n) {
  Val out;
  if (python_attr(r, obj, name, n, &out)) return out;
  VStr s = {.p = name, .n = n, .n_chars = -1};
  if (obj.kind == V_UNDEF) return text_undefined_error(r, obj);
  if (python_item(r, obj, (Val){.kind = V_STR, .u.s = &s}, &out)) return out;
  return text_undefined(r, NULL, arena_dup_n(r->arena, name, n), owner_name(r, obj));
}

Val text_getitem(Render *r, Val obj, Val key) {
  Val out;
  if (obj.kind == V_UNDEF) return text_undefined_error(r, obj);
  if (python_item(r, obj, key, &out)) return out;
  if (key.kind == V_STR && !key.u.s->bytes && python_attr(r, obj, key.u.s->p, key.u.s->n, &out)) return out;
  Str s = {0};
  val_print(&s, key);
  Val u = text_undefined(r, NULL, arena_dup_n(r->arena, s.p ? s.p : "", MIN(s.n, (size_t)200)), owner_name(r, obj));
  str_free(&s);
  return u;
}

/* A slice's part: None or an index. */
static bool slice_index(Render *r, Val v, int64_t otherwise, int64_t *out) {
  if (v.kind == V_NONE) { *out = otherwise; return true; }
  if (v.kind == V_UNDEF) { text_undefined_error(r, v); return false; }
  if (!val_is_int(v)) { val_fail(r, ERR_FORMAT, "slice indices must be integers or None"); return false; }
  Int128 i = val_as_int(v);
  *out = i > INT32_MAX ? INT32_MAX : i < INT32_MIN ? INT32_MIN : (int64_t)i;
  return true;
}

static Val slice(Render *r, Val obj, Val from, Val to, Val by) {
  int64_t len, step, start, stop;
  if (obj.kind == V_UNDEF) return text_undefined_error(r, obj);
  if (obj.kind != V_STR && obj.kind != V_LIST && obj.kind != V_RANGE) return text_undefined(r, NULL, "slice", owner_name(r, obj)); /* TypeError inside env.getitem */
  if (!text_length(r, obj, &len) || !slice_index(r, by, 1, &step)) return FAIL;
  if (!step) return val_fail(r, ERR_FORMAT, "slice step cannot be zero");
  if (!slice_index(r, from, step > 0 ? 0 : len - 1, &start) || !slice_index(r, to, step > 0 ? len : -1 - len, &stop)) return FAIL;
  if (start < 0) start = MAX(start + len, step > 0 ? 0 : -1);
  if (stop < 0) stop = MAX(stop + len, step > 0 ? 0 : -1);
  start = MIN(start, step > 0 ? len : len - 1);
  stop = MIN(stop, step > 0 ? len : len - 1);
  int64_t count = step > 0 ? (start < stop ? (stop - start - 1) / step + 1 : 0) : start > stop ? (start - stop - 1) / -step + 1 : 0;
  if (!text_render_room(r, (size_t)count * 4, count / 16)) return FAIL;
  if (obj.kind == V_STR) return text_str_slice(r, obj, start, stop, step, count);
  if (obj.kind == V_RANGE) {
    VRange *x = ARENA_NEW(r->arena, VRange);
    *x = (VRange){obj.u.r->start + start * obj.u.r->step, obj.u.r->start + (start + count * step) * obj.u.r->step, obj.u.r->step * step};
    return (Val){.kind = V_RANGE, .u.r = x};
  }
  if (!text_render_room(r, (size_t)count * sizeof(Val), count)) return FAIL;
  Val out = val_list(r->arena, (int)count);
  out.u.l->tuple = obj.u.l->tuple;
  for (int64_t k = 0; k < count; k++) val_push(r->arena, out, obj.u.l->items[start + k * step]);
  return out;
}

bool text_length(Render *r, Val v, int64_t *n) {
  switch (v.kind) {
    case V_STR: *n = (int64_t)val_n_chars(v); return true;
    case V_LIST: *n = v.u.l->n; return true;
    case V_DICT: *n = v.u.d->n; return true;
    case V_VIEW: *n = v.u.view->dict->n; return true;
    case V_RANGE: *n = len_of_range(v.u.r); return true;
    case V_LOOP: *n = v.u.loop->n; return true;
    case V_UNDEF: *n = 0; return true;
    default: val_fail(r, ERR_FORMAT, "object of type '%s' has no len()", val_type_name(v)); return false;
  }
}

static bool iterate_str(Render *r, Val v, Val **items, int *n) {
  size_t len = val_n_chars(v);
  if (len > INT32_MAX || !text_render_room(r, len * (sizeof(Val) + sizeof(VStr)), (int64_t)len)) return false;
  *items = ARENA_ARRAY(r->arena, Val, len + 1);
  *n = 0;
  for (const char *q = v.u.s->p, *end = q + v.u.s->n; q < end;) {
    int32_t cp;
    int k = v.u.s->bytes ? 1 : text_utf8_next(q, end, &cp);
    (*items)[(*n)++] = v.u.s->bytes ? val_int(r->arena, (uint8_t)*q) : val_str_view(r->arena, q, (size_t)k);
    if (v.u.s->ours && !v.u.s->bytes) {
      VStr *c = (VStr *)(uintptr_t)(*items)[*n - 1].u.s;
      c->ours = true;
      c->user = v.u.s->user ? v.u.s->user + (q - v.u.s->p) : NULL;
    }
    q += k;
  }
  return true;
}

static bool iterate_dict(Render *r, const VDict *d, int what, Val **items, int *n) {
  *items = what == 0 ? d->keys : d->vals;
  *n = d->n;
  if (what == 2) {
    if (!text_render_room(r, (size_t)d->n * 5 * sizeof(Val), d->n)) return false;
    *items = ARENA_ARRAY(r->arena, Val, (size_t)d->n + 1);
    for (int i = 0; i < d->n; i++) {
      (*items)[i] = val_tuple(r->arena, 2);
      val_push(r->arena, (*items)[i], d->keys[i]);
      val_push(r->arena, (*items)[i], d->vals[i]);
    }
  }
  return true;
}

bool text_iterate(Render *r, Val v, Val **items, int *n) {
  *items = NULL;
  *n = 0;
  switch (v.kind) {
    case V_UNDEF: return true;
    case V_LIST: *items = v.u.l->items; *n = v.u.l->n; return text_render_room(r, 0, *n / 4);
    case V_STR: return iterate_str(r, v, items, n);
    case V_DICT: return iterate_dict(r, v.u.d, 0, items, n);
    case V_VIEW: return iterate_dict(r, v.u.view->dict, v.u.view->what, items, n);
    case V_RANGE: {
      int64_t len = len_of_range(v.u.r);
      if (!text_render_room(r, (size_t)len * sizeof(Val), len)) return false;
      *items = ARENA_ARRAY(r->arena, Val, (size_t)len + 1);
      for (; *n < len; ++*n) (*items)[*n] = val_int(r->arena, v.u.r->start + *n * v.u.r->step);
      return true;
    }
    case V_ITER:
      if (v.u.it->late) { /* a lazy filter failed: now it shows */
        if (!r->err) r->err = v.u.it->late;
        else err_free(v.u.it->late);
        v.u.it->late = NULL;
        return false;
      }
      *items = v.u.it->items + v.u.it->at;
      *n = v.u.it->n - v.u.it->at;
      v.u.it->at = v.u.it->n;
      return text_render_room(r, 0, *n / 4);
    default: val_fail(r, ERR_FORMAT, "'%s' object is not iterable", val_type_name(v)); return false;
  }
}

/* Operators. */
static Val type_error(Render *r, TokenKind op, Val a, Val b) {
  if (a.kind == V_UNDEF) return text_undefined_error(r, a);
  if (b.kind == V_UNDEF) return text_undefined_error(r, b);
  return val_fail(r, ERR_FORMAT, "unsupported operand types for %s: '%s' and '%s'", text_token_name(op), val_type_name(a), val_type_name(b));
}

static Val repeat(Render *r, Val v, Int128 times) {
  if (times < 0) times = 0;
  size_t len = v.kind == V_STR ? v.u.s->n : (size_t)v.u.l->n, each = v.kind == V_STR ? 1 : sizeof(Val);
  if (len && times > (Int128)(TEMPLATE_MAX_MEMORY / (len * each))) { val_fail(r, ERR_LIMIT, "repeats into more than %d MiB", TEMPLATE_MAX_MEMORY >> 20); return FAIL; }
  if (!text_render_room(r, len * each * (size_t)times, (int64_t)(len * (size_t)times / 16))) return FAIL;
  if (v.kind == V_STR) {
    Weave s = {0};
    for (Int128 i = 0; len && i < times; i++) text_weave_part(&s, v.u.s, v.u.s->p, len);
    return text_weave_take(r, &s, v.u.s->safe);
  }
  Val out = val_list(r->arena, (int)(len * (size_t)times));
  out.u.l->tuple = v.u.l->tuple;
  for (Int128 i = 0; len && i < times; i++)
    for (size_t k = 0; k < len; k++) val_push(r->arena, out, v.u.l->items[k]);
  return out;
}

static Val add_sequences(Render *r, Val a, Val b) {
  if (a.kind == V_STR) {
    Weave s = {0};
    bool safe = a.u.s->safe || b.u.s->safe;
    safe && !a.u.s->safe ? text_weave_escape(&s, a) : text_weave_part(&s, a.u.s, a.u.s->p, a.u.s->n);
    safe && !b.u.s->safe ? text_weave_escape(&s, b) : text_weave_part(&s, b.u.s, b.u.s->p, b.u.s->n);
    return text_weave_take(r, &s, safe);
  }
  int n = a.u.l->n + b.u.l->n;
  if (!text_render_room(r, (size_t)n * sizeof(Val), n / 4)) return FAIL;
  Val out = val_list(r->arena, n);
  out.u.l->tuple = a.u.l->tuple;
  for (int i = 0; i < a.u.l->n; i++) val_push(r->arena, out, a.u.l->items[i]);
  for (int i = 0; i < b.u.l->n; i++) val_push(r->arena, out, b.u.l->items[i]);
  return out;
}

static Val float_op(Render *r, TokenKind op, double a, double b) {
  switch (op) {
    case TK_ADD: return val_float(a + b);
    case TK_SUB: return val_float(a - b);
    case TK_MUL: return val_float(a * b);
    case TK_DIV: return b == 0 ? val_fail(r, ERR_FORMAT, "division by zero") : val_float(a / b);
    case TK_POW:
      if (a == 0 && b < 0) return val_fail(r, ERR_FORMAT, "0.0 cannot be raised to a negative power");
      if (a < 0 && b != floor(b)) return val_fail(r, ERR_FORMAT, "a complex result");
      if (isinf(pow(a, b)) && !isinf(a) && !isinf(b)) return val_fail(r, ERR_FORMAT, "result too large");
      return val_float(pow(a, b));
    default: break;
  }
  if (b == 0) return val_fail(r, ERR_FORMAT, "float floor division or modulo by zero");
  double m = fmod(a, b);
  if (m != 0 && (m < 0) != (b < 0)) m += b;
  if (op == TK_MOD) return val_float(m == 0 ? copysign(0, b) : m);
  double q = (a - m) / b, f = floor(q);
  if (q != 0 && q - f > 0.5) f += 1;
  return val_float(q == 0 ? copysign(0, a / b) : f);
}

static Val int_pow(Render *r, Int128 a, Int128 b) {
  if (b < 0) return a == 0 ? val_fail(r, ERR_FORMAT, "0.0 cannot be raised to a negative power") : val_float(pow((double)a, (double)b));
  Int128 v = 1;
  bool over = false;
  for (; b; b >>= 1) {
    if (b & 1) over |= __builtin_mul_overflow(v, a, &v);
    if (b > 1) over |= __builtin_mul_overflow(a, a, &a) && b > 1;
    if (over) return val_fail(r, ERR_LIMIT, "integer past 127 bits");
  }
  return val_int(r->arena, v);
}

static Val int_op(Render *r, TokenKind op, Int128 a, Int128 b) {
  Int128 v = 0;
  bool over = false;
  if (op == TK_POW) return int_pow(r, a, b);
  if (op == TK_DIV) return b == 0 ? val_fail(r, ERR_FORMAT, "division by zero") : val_float((double)a / (double)b);
  if (op == TK_ADD) over = __builtin_add_overflow(a, b, &v);
  else if (op == TK_SUB) over = __builtin_sub_overflow(a, b, &v);
  else if (op == TK_MUL) over = __builtin_mul_overflow(a, b, &v);
  else {
    if (b == 0) return val_fail(r, ERR_FORMAT, "integer division or modulo by zero");
    if (b == -1) { /* the least integer has no positive twin */
      if (op == TK_MOD) return val_int(r->arena, 0);
      over = __builtin_sub_overflow((Int128)0, a, &v);
    } else {
      Int128 q = a / b, m = a % b;
      if (m && (m < 0) != (b < 0)) { q--; m += b; }
      v = op == TK_MOD ? m : q;
    }
  }
  return over ? val_fail(r, ERR_LIMIT, "integer past 127 bits") : val_int(r->arena, v);
}

Val text_binary(Render *r, TokenKind op, Val a, Val b) {
  if (val_is_number(a) && val_is_number(b)) {
    if (a.kind == V_FLOAT || b.kind == V_FLOAT) return float_op(r, op, val_as_float(a), val_as_float(b));
    return int_op(r, op, val_as_int(a), val_as_int(b));
  }
  if (op == TK_MOD && a.kind == V_STR && !a.u.s->bytes) {
    Val v = text_percent(r, a, b, NULL);
    text_origin_settle(v, a, &b, 1, NULL, 0);
    return v;
  }
  if (op == TK_MUL && (a.kind == V_STR || a.kind == V_LIST) && val_is_int(b)) return repeat(r, a, val_as_int(b));
  if (op == TK_MUL && (b.kind == V_STR || b.kind == V_LIST) && val_is_int(a)) return repeat(r, b, val_as_int(a));
  if (op == TK_ADD && a.kind == V_STR && b.kind == V_STR && a.u.s->bytes == b.u.s->bytes) return add_sequences(r, a, b);
  if (op == TK_ADD && a.kind == V_LIST && b.kind == V_LIST && a.u.l->tuple == b.u.l->tuple) return add_sequences(r, a, b);
  return type_error(r, op, a, b);
}

static int compare_lists(Render *r, Val a, Val b, bool *ok) {
  if (++r->depth > TEMPLATE_MAX_DEPTH) { val_fail(r, ERR_LIMIT, "nested too deep"); *ok = false; return 0; }
  int c = 0;
  for (int i = 0; i < MIN(a.u.l->n, b.u.l->n) && !c && *ok; i++) {
    if (val_equal(a.u.l->items[i], b.u.l->items[i])) continue;
    c = text_compare(r, a.u.l->items[i], b.u.l->items[i], ok);
  }
  r->depth--;
  return c ? c : (a.u.l->n > b.u.l->n) - (a.u.l->n < b.u.l->n);
}

/* Strings compare by code point, which is the order of their UTF-8 bytes. NaN is never less: it counts as equal here. */
int text_compare(Render *r, Val a, Val b, bool *ok) {
  if (!text_render_room(r, 0, 1)) { *ok = false; return 0; }
  if (val_is_number(a) && val_is_number(b)) {
    if (a.kind == V_FLOAT || b.kind == V_FLOAT) { double x = val_as_float(a), y = val_as_float(b); return (x > y) - (x < y); }
    Int128 x = val_as_int(a), y = val_as_int(b);
    return (x > y) - (x < y);
  }
  if (a.kind == V_STR && b.kind == V_STR && a.u.s->bytes == b.u.s->bytes) {
    int c = memcmp(a.u.s->p, b.u.s->p, MIN(a.u.s->n, b.u.s->n));
    return c ? c : (a.u.s->n > b.u.s->n) - (a.u.s->n < b.u.s->n);
  }
  if (a.kind == V_LIST && b.kind == V_LIST && a.u.l->tuple == b.u.l->tuple) return compare_lists(r, a, b, ok);
  *ok = false;
  if (a.kind == V_UNDEF || b.kind == V_UNDEF) text_undefined_error(r, a.kind == V_UNDEF ? a : b);
  else val_fail(r, ERR_FORMAT, "'<' not supported between instances of '%s' and '%s'", val_type_name(a), val_type_name(b));
  return 0;
}

bool text_contains(Render *r, Val c, Val item, bool *ok) {
  if (c.kind == V_STR && !c.u.s->bytes) {
    if (item.kind == V_STR) return text_render_room(r, 0, (int64_t)(c.u.s->n / 64)) && (!item.u.s->n || memmem(c.u.s->p, c.u.s->n, item.u.s->p, item.u.s->n));
    *ok = false;
    item.kind == V_UNDEF ? text_undefined_error(r, item) : val_fail(r, ERR_FORMAT, "'in <string>' requires string as left operand, not %s", val_type_name(item));
    return false;
  }
  if (c.kind == V_DICT || (c.kind == V_VIEW && c.u.view->what == 0)) {
    const VDict *d = c.kind == V_DICT ? c.u.d : c.u.view->dict;
    if (!val_hashable(item)) { val_fail(r, ERR_FORMAT, "unhashable type: '%s'", val_type_name(item)); *ok = false; return false; }
    return val_find(d, item) != NULL;
  }
  Val *items;
  int n;
  if (c.kind == V_NONE || val_is_number(c)) { val_fail(r, ERR_FORMAT, "argument of type '%s' is not iterable", val_type_name(c)); *ok = false; return false; }
  if (!text_iterate(r, c, &items, &n)) { *ok = false; return false; }
  for (int i = 0; i < n; i++) {
    if (!text_render_room(r, 0, 1)) { *ok = false; return false; }
    if (!val_equal(items[i], item)) continue;
    if (c.kind == V_ITER) c.u.it->at = (int)(items - c.u.it->items) + i + 1; /* the rest can still be read */
    return true;
  }
  return false;
}

static Val compare_op(Render *r, uint8_t op, Val a, Val b) {
  bool ok = true, res;
  if (op == TK_EQ || op == TK_NE) return text_render_room(r, 0, 1) ? val_bool(val_equal(a, b) == (op == TK_EQ)) : FAIL;
  if (op <= 1) {
    res = text_contains(r, b, a, &ok) == (op == 0);
    return ok && !r->err ? val_bool(res) : FAIL;
  }
  bool nan = (a.kind == V_FLOAT && isnan(a.u.f)) || (b.kind == V_FLOAT && isnan(b.u.f));
  int c = text_compare(r, a, b, &ok);
  if (!ok) return FAIL;
  res = op == TK_LT ? c < 0 : op == TK_LE ? c <= 0 : op == TK_GT ? c > 0 : c >= 0;
  return val_bool(res && !nan);
}

/* Calls. */
static bool args_eval(Render *r, const Node *n, Scope *s, Args *out) {
  int extra = 0, extra_kw = 0;
  Val *more = NULL, star = FAIL, map = FAIL;
  if (n->b) {
    star = eval(r, n->b, s);
    if (star.kind == V_ERROR || !text_iterate(r, star, &more, &extra)) return false;
  }
  if (n->c) {
    map = eval(r, n->c, s);
    if (map.kind == V_ERROR) return false;
    if (map.kind != V_DICT) { val_fail(r, ERR_FORMAT, "argument after ** must be a mapping"); return false; }
    extra_kw = map.u.d->n;
  }
  if (!text_render_room(r, (size_t)(n->n + n->n2 + extra + extra_kw) * 48, extra + extra_kw)) return false;
  *out = (Args){.pos = ARENA_ARRAY(r->arena, Val, (size_t)(n->n + extra) + 1), .kw = ARENA_ARRAY(r->arena, Val, (size_t)(n->n2 + extra_kw) + 1)};
  const char **names = ARENA_ARRAY(r->arena, const char *, (size_t)(n->n2 + extra_kw) + 1);
  for (int i = 0; i < n->n; i++)
    if ((out->pos[out->n++] = eval(r, n->list[i], s)).kind == V_ERROR) return false;
  for (int i = 0; i < extra; i++) out->pos[out->n++] = more[i];
  for (int i = 0; i < n->n2; i++) {
    names[out->n_kw] = n->names[i];
    if ((out->kw[out->n_kw++] = eval(r, n->list2[i], s)).kind == V_ERROR) return false;
  }
  for (int i = 0; i < extra_kw; i++) {
    if (map.u.d->keys[i].kind != V_STR) { val_fail(r, ERR_FORMAT, "keywords must be strings"); return false; }
    names[out->n_kw] = map.u.d->keys[i].u.s->p;
    out->kw[out->n_kw++] = map.u.d->vals[i];
  }
  out->kw_names = names;
  return true;
}

enum { MAX_PARAMS = 8 };

static int param_index(const char *params, const char *name) {
  size_t n = strlen(name);
  int i = 0;
  for (const char *p = params; *p; i++) {
    size_t k = strcspn(p, " ");
    if (k == n && !memcmp(p, name, n)) return i;
    p += k + (p[k] == ' ');
  }
  return -1;
}

Val text_call_row(Render *r, const BuiltinRow *row, Val self, const Args *args) {
  Val arg[MAX_PARAMS] = {{0}};
  if (strcmp(row->params, "*")) {
    int n_params = 0;
    for (const char *p = row->params; *p; p++) n_params += p == row->params || p[-1] == ' ';
    if (args->n > n_params) return val_fail(r, ERR_FORMAT, "%s takes at most %d arguments (%d given)", row->name, n_params, args->n);
    for (int i = 0; i < args->n; i++) arg[i] = args->pos[i];
    for (int i = 0; i < args->n_kw; i++) {
      int k = param_index(row->params, args->kw_names[i]);
      if (k < 0) return val_fail(r, ERR_FORMAT, "%s got an unexpected keyword argument '%s'", row->name, args->kw_names[i]);
      if (arg[k].kind != V_ERROR) return val_fail(r, ERR_FORMAT, "%s got multiple values for argument '%s'", row->name, args->kw_names[i]);
      arg[k] = args->kw[i];
    }
    for (int i = 0; i < row->n_required; i++)
      if (arg[i].kind == V_ERROR) return val_fail(r, ERR_FORMAT, "%s misses an argument", row->name);
  }
  Val v = row->fn(r, self, arg, args);
  text_origin_settle(v, self, args->pos, args->n, args->kw, args->n_kw);
  return v;
}

/* The text that a body prints. */
static Val capture(Render *r, Node *const *list, int n, Scope *s) {
  Weave buf = {0}, *outer = r->out;
  r->out = &buf;
  Flow f = run(r, list, n, s);
  r->out = outer;
  if (f == FLOW_FAIL) { text_weave_free(&buf); return FAIL; }
  return text_weave_take(r, &buf, r->autoescape);
}

static Val call_macro(Render *r, const VFunc *fn, const Args *args) {
  const Node *m = fn->macro;
  int n = (int)m->value.u.i, first_default = n - m->n2;
  Scope *s = scope_new(r, fn->closure);
  Val caller = text_undefined(r, "no caller defined", "caller", NULL), rest_kw = val_dict(r->arena), rest = val_tuple(r->arena, MAX(args->n - n, 0));
  bool *given = ARENA_ARRAY(r->arena, bool, (size_t)n + 1);
  for (int i = 0; i < n && i < args->n; i++) { scope_set(r, s, m->names[i], args->pos[i]); given[i] = true; }
  for (int i = n; i < args->n; i++) val_push(r->arena, rest, args->pos[i]);
  for (int i = 0; i < args->n_kw; i++) {
    const char *kw = args->kw_names[i];
    int k = 0;
    while (k < n && strcmp(m->names[k], kw)) k++;
    if (k < n && given[k]) return val_fail(r, ERR_FORMAT, "macro '%s' got multiple values for argument '%s'", m->name, kw);
    if (k < n) { scope_set(r, s, m->names[k], args->kw[i]); given[k] = true; }
    else if (m->uses_caller && !strcmp(kw, "caller")) caller = args->kw[i];
    else val_put(r->arena, rest_kw.u.d, val_str(r->arena, kw, strlen(kw)), args->kw[i]);
  }
  if (rest_kw.u.d->n && !m->uses_kwargs) return val_fail(r, ERR_FORMAT, "macro '%s' takes no keyword argument '%s'", m->name, rest_kw.u.d->keys[0].u.s->p);
  if (rest.u.l->n && !m->uses_varargs) return val_fail(r, ERR_FORMAT, "macro '%s' takes not more than %d arguments", m->name, n);
  for (int i = 0; i < n; i++) {
    if (given[i]) continue;
    Val v = i >= first_default ? eval(r, m->list2[i - first_default], s) : text_undefined(r, arena_printf(r->arena, "parameter '%s' was not provided", m->names[i]), m->names[i], NULL);
    if (v.kind == V_ERROR) return v;
    scope_set(r, s, m->names[i], v);
  }
  if (m->uses_caller) scope_set(r, s, interned(r, "caller"), caller);
  if (m->uses_kwargs) scope_set(r, s, interned(r, "kwargs"), rest_kw);
  if (m->uses_varargs) scope_set(r, s, interned(r, "varargs"), rest);
  return capture(r, m->list, m->n, scope_new(r, s));
}

static Flow loop_run(Render *r, const Node *n, Val iterable, Scope *s, int depth);

static Val call_loop(Render *r, VLoop *l, const Args *args) {
  if (!l->node->flag) return val_fail(r, ERR_FORMAT, "the loop is not recursive: add 'recursive' to its tag");
  if (args->n != 1 || args->n_kw) return val_fail(r, ERR_FORMAT, "loop takes one iterable");
  Weave buf = {0}, *outer = r->out;
  r->out = &buf;
  Flow f = loop_run(r, l->node, args->pos[0], l->scope, l->depth + 1);
  r->out = outer;
  if (f == FLOW_FAIL) { text_weave_free(&buf); return FAIL; }
  return text_weave_take(r, &buf, r->autoescape);
}

Val text_call(Render *r, Val fn, const Args *args) {
  if (fn.kind == V_UNDEF) return text_undefined_error(r, fn);
  if (fn.kind == V_LOOP) return call_loop(r, fn.u.loop, args);
  if (fn.kind == V_OBJECT) {
    const BuiltinRow *row = text_method_row(fn, "__call__", 8);
    if (row) return text_call_row(r, row, fn, args);
  }
  if (fn.kind != V_FUNC) return val_fail(r, ERR_FORMAT, "'%s' object is not callable", val_type_name(fn));
  if (!fn.u.fn->macro) return text_call_row(r, fn.u.fn->row, fn.u.fn->self, args);
  if ((r->depth += 8) > TEMPLATE_MAX_DEPTH) return val_fail(r, ERR_LIMIT, "macros nested too deep");
  Val v = call_macro(r, fn.u.fn, args);
  r->depth -= 8;
  return v;
}

Val text_filter(Render *r, const char *name, Val v, const Args *args) {
  const BuiltinRow *row = text_filter_row(name);
  return row ? text_call_row(r, row, v, args) : val_fail(r, ERR_FORMAT, "no filter named '%s' found", name);
}

Val text_test(Render *r, const char *name, Val v, const Args *args) {
  const BuiltinRow *row = text_test_row(name);
  return row ? text_call_row(r, row, v, args) : val_fail(r, ERR_FORMAT, "no test named '%s' found", name);
}

/* Expressions. */
static Val eval_collection(Render *r, const Node *n, Scope *s) {
  Val out = n->kind == N_DICT ? val_dict(r->arena) : val_list(r->arena, n->n);
  if (n->kind == N_TUPLE) out.u.l->tuple = true;
  for (int i = 0; i < n->n; i++) {
    EVAL(v, n->list[i]);
    if (n->kind != N_DICT) { val_push(r->arena, out, v); continue; }
    EVAL(item, n->list[++i]);
    if (!val_hashable(v)) return val_fail(r, ERR_FORMAT, "unhashable type: '%s'", val_type_name(v));
    val_put(r->arena, out.u.d, v, item);
  }
  return out;
}

static Val eval_item(Render *r, const Node *n, Scope *s) {
  EVAL(obj, n->a);
  if (n->b->kind != N_SLICE) {
    EVAL(key, n->b);
    return text_getitem(r, obj, key);
  }
  Val part[3] = {val_none(), val_none(), val_none()};
  const Node *nodes[3] = {n->b->a, n->b->b, n->b->c};
  for (int i = 0; i < 3; i++)
    if (nodes[i] && (part[i] = eval(r, nodes[i], s)).kind == V_ERROR) return FAIL;
  return slice(r, obj, part[0], part[1], part[2]);
}

static Val eval_compare(Render *r, const Node *n, Scope *s) {
  EVAL(left, n->a);
  for (int i = 0; i < n->n; i++) {
    EVAL(right, n->list[i]->a);
    Val v = compare_op(r, n->list[i]->op, left, right);
    if (v.kind == V_ERROR || i == n->n - 1 || !val_truth(v)) return v;
    left = right;
  }
  return val_bool(true);
}

static Val eval_concat(Render *r, const Node *n, Scope *s) {
  Weave buf = {0};
  for (int i = 0; i < n->n; i++) {
    Val v = eval(r, n->list[i], s);
    if (v.kind == V_ERROR || buf.text.n > TEMPLATE_MAX_OUTPUT) { text_weave_free(&buf); return v.kind == V_ERROR ? v : val_fail(r, ERR_LIMIT, "text too long"); }
    !r->autoescape || (v.kind == V_STR && v.u.s->safe) ? text_weave_print(&buf, v) : text_weave_escape(&buf, v);
  }
  return text_weave_take(r, &buf, r->autoescape);
}

static Val eval_call(Render *r, const Node *n, Scope *s) {
  Args args;
  EVAL(fn, n->a);
  return args_eval(r, n, s, &args) ? text_call(r, fn, &args) : FAIL;
}

/* Filters and tests share their form; a filter block's operand comes from outside. */
static Val eval_filter(Render *r, const Node *n, Scope *s, const Val *operand) {
  Args args;
  Val v = n->a ? (n->a->kind == N_FILTER && operand ? eval_filter(r, n->a, s, operand) : eval(r, n->a, s)) : operand ? *operand : val_none();
  if (v.kind == V_ERROR) return v;
  bool known = n->kind == N_FILTER ? text_filter_row(n->name) != NULL : text_test_row(n->name) != NULL;
  if (!known) return n->kind == N_FILTER ? text_filter(r, n->name, v, NULL) : text_test(r, n->name, v, NULL);
  if (!args_eval(r, n, s, &args)) return FAIL;
  return n->kind == N_FILTER ? text_filter(r, n->name, v, &args) : text_test(r, n->name, v, &args);
}

static Val eval_sign(Render *r, const Node *n, Scope *s) {
  EVAL(v, n->a);
  if (v.kind == V_UNDEF) return text_undefined_error(r, v);
  if (!val_is_number(v)) return val_fail(r, ERR_FORMAT, "bad operand type for unary %c: '%s'", n->kind == N_NEG ? '-' : '+', val_type_name(v));
  if (v.kind == V_FLOAT) return val_float(n->kind == N_NEG ? -v.u.f : v.u.f);
  return n->kind == N_NEG ? int_op(r, TK_SUB, 0, val_as_int(v)) : val_int(r->arena, val_as_int(v));
}

static Val eval_node(Render *r, const Node *n, Scope *s) {
  switch (n->kind) {
    case N_CONST: return n->value;
    case N_NAME: return lookup(r, n->name, s);
    case N_TUPLE: case N_LIST: case N_DICT: return eval_collection(r, n, s);
    case N_GETATTR: {
      EVAL(obj, n->a);
      return text_getattr(r, obj, n->name, strlen(n->name));
    }
    case N_GETITEM: return eval_item(r, n, s);
    case N_CALL: return eval_call(r, n, s);
    case N_FILTER: case N_TEST: return eval_filter(r, n, s, NULL);
    case N_COND: {
      EVAL(test, n->a);
      if (val_truth(test)) return eval(r, n->b, s);
      return n->c ? eval(r, n->c, s) : text_undefined(r, "the inline if-expression evaluated to false and no else section was defined", NULL, NULL);
    }
    case N_OR: case N_AND: {
      EVAL(left, n->a);
      return val_truth(left) == (n->kind == N_OR) ? left : eval(r, n->b, s);
    }
    case N_NOT: {
      EVAL(v, n->a);
      return val_bool(!val_truth(v));
    }
    case N_NEG: case N_POS: return eval_sign(r, n, s);
    case N_BINARY: {
      EVAL(left, n->a);
      EVAL(right, n->b);
      return text_binary(r, (TokenKind)n->op, left, right);
    }
    case N_COMPARE: return eval_compare(r, n, s);
    case N_CONCAT: return eval_concat(r, n, s);
    default: return val_fail(r, ERR_FORMAT, "a slice outside a subscript");
  }
}

static Val eval(Render *r, const Node *n, Scope *s) {
  if (!text_render_room(r, 0, 1)) return FAIL;
  if (++r->depth > TEMPLATE_MAX_DEPTH) return val_fail(r, ERR_LIMIT, "nested too deep");
  r->line = n->line;
  Val v = eval_node(r, n, s);
  r->depth--;
  return v;
}

/* Statements. */
static bool assign(Render *r, const Node *t, Val v, Scope *s) {
  if (t->kind == N_NAME) { scope_set(r, s, t->name, v); return true; }
  if (t->kind == N_NSREF) {
    Val ns = lookup(r, t->name, s);
    if (ns.kind != V_NAMESPACE) { val_fail(r, ERR_FORMAT, "cannot assign attribute on non-namespace object"); return false; }
    if (t->value.u.s->p[0] == '_') { val_fail(r, ERR_FORMAT, "templates cannot store names that begin with '_' on a namespace: '%s'", t->value.u.s->p); return false; }
    val_put(r->arena, ns.u.d, t->value, v);
    return true;
  }
  Val *items;
  int n;
  if (!text_iterate(r, v, &items, &n)) return false;
  if (n != t->n) { val_fail(r, ERR_FORMAT, "%s values to unpack (expected %d)", n > t->n ? "too many" : "not enough", t->n); return false; }
  for (int i = 0; i < n; i++)
    if (!assign(r, t->list[i], items[i], s)) return false;
  return true;
}

static bool emit(Render *r, Val v) {
  r->autoescape && !(v.kind == V_STR && v.u.s->safe) ? text_weave_escape(r->out, v) : text_weave_print(r->out, v);
  if (r->out->text.n > TEMPLATE_MAX_OUTPUT) { val_fail(r, ERR_LIMIT, "prints more than %d MiB", TEMPLATE_MAX_OUTPUT >> 20); return false; }
  return true;
}

/* The items that pass the loop's own `if`. */
static bool loop_filter(Render *r, const Node *n, Scope *s, Val **items, int *n_items) {
  Val *kept = ARENA_ARRAY(r->arena, Val, (size_t)*n_items + 1);
  int m = 0;
  for (int i = 0; i < *n_items; i++) {
    Scope *inner = scope_new(r, s);
    if (!assign(r, n->a, (*items)[i], inner)) return false;
    Val v = eval(r, n->c, inner);
    if (v.kind == V_ERROR) return false;
    if (val_truth(v)) kept[m++] = (*items)[i];
  }
  *items = kept;
  *n_items = m;
  return true;
}

static Flow loop_run(Render *r, const Node *n, Val iterable, Scope *s, int depth) {
  Val *items;
  int n_items;
  bool completed = false;
  if ((r->depth += 4) > TEMPLATE_MAX_DEPTH) { val_fail(r, ERR_LIMIT, "loops nested too deep"); return FLOW_FAIL; }
  if (!text_iterate(r, iterable, &items, &n_items)) return FLOW_FAIL;
  if (n->c && !loop_filter(r, n, s, &items, &n_items)) return FLOW_FAIL;
  VLoop *l = ARENA_NEW(r->arena, VLoop);
  *l = (VLoop){.items = items, .n = n_items, .depth = depth, .node = n, .scope = s};
  const char *loop_name = interned(r, "loop");
  for (l->at = 0; l->at < n_items; l->at++) {
    Scope *inner = scope_new(r, s);
    scope_set(r, inner, loop_name, (Val){.kind = V_LOOP, .u.loop = l});
    if (!text_render_room(r, 0, 1) || !assign(r, n->a, items[l->at], inner)) return FLOW_FAIL;
    Flow f = run(r, n->list, n->n, inner);
    if (f == FLOW_FAIL) return f;
    if (f == FLOW_BREAK) break;
    completed |= f == FLOW_ON;
  }
  r->depth -= 4;
  return completed ? FLOW_ON : run(r, n->list2, n->n2, scope_new(r, s)); /* Jinja's else: no round was run to its end */
}

static Flow run_if(Render *r, const Node *n, Scope *s) {
  for (; n; n = n->b) {
    Val v = eval(r, n->a, s);
    if (v.kind == V_ERROR) return FLOW_FAIL;
    if (val_truth(v)) return run(r, n->list, n->n, s);
    if (!n->b) return run(r, n->list2, n->n2, s);
  }
  return FLOW_ON;
}

static Flow run_with(Render *r, const Node *n, Scope *s) {
  Scope *inner = scope_new(r, s);
  for (int i = 0; i < n->a->n; i++) {
    Val v = eval(r, n->b->list[i], s);
    if (v.kind == V_ERROR || !assign(r, n->a->list[i], v, inner)) return FLOW_FAIL;
  }
  return run(r, n->list, n->n, inner);
}

static Val macro_value(Render *r, const Node *n, Scope *s) {
  VFunc *f = ARENA_NEW(r->arena, VFunc);
  *f = (VFunc){.name = n->name, .macro = n, .closure = s};
  return (Val){.kind = V_FUNC, .u.fn = f};
}

static Val run_call(Render *r, const Node *n, Scope *s) {
  Args args, with;
  Val fn = eval(r, n->a->a, s);
  if (fn.kind == V_ERROR || !args_eval(r, n->a, s, &args)) return FAIL;
  with = args;
  with.kw = ARENA_ARRAY(r->arena, Val, (size_t)args.n_kw + 1);
  const char **names = ARENA_ARRAY(r->arena, const char *, (size_t)args.n_kw + 1);
  for (int i = 0; i < args.n_kw; i++) { with.kw[i] = args.kw[i]; names[i] = args.kw_names[i]; }
  with.kw[args.n_kw] = macro_value(r, n->b, s);
  names[args.n_kw] = "caller";
  with.n_kw = args.n_kw + 1;
  with.kw_names = names;
  return text_call(r, fn, &with);
}

static Flow run_captured(Render *r, const Node *n, Scope *s) {
  Weave buf = {0}, *outer = r->out;
  r->out = &buf;
  Flow f = run(r, n->list, n->n, scope_new(r, s));
  r->out = outer;
  if (f != FLOW_ON) { text_weave_free(&buf); return f; }
  Val v = text_weave_take(r, &buf, r->autoescape);
  if (v.kind != V_ERROR && n->b) v = eval_filter(r, n->b, s, &v);
  if (v.kind == V_ERROR) return FLOW_FAIL;
  if (n->kind == N_SETBLOCK) return assign(r, n->a, v, s) ? FLOW_ON : FLOW_FAIL;
  return emit(r, v) ? FLOW_ON : FLOW_FAIL;
}

static Flow run_one(Render *r, const Node *n, Scope *s) {
  Val v;
  Flow f;
  switch (n->kind) {
    case N_DATA:
      text_weave_own(r->out, n->value.u.s->p, n->value.u.s->n);
      return r->out->text.n <= TEMPLATE_MAX_OUTPUT || (val_fail(r, ERR_LIMIT, "prints more than %d MiB", TEMPLATE_MAX_OUTPUT >> 20), false) ? FLOW_ON : FLOW_FAIL;
    case N_PRINT:
      for (int i = 0; i < n->n; i++) {
        v = eval(r, n->list[i], s);
        if (v.kind == V_ERROR || !emit(r, v)) return FLOW_FAIL;
      }
      return FLOW_ON;
    case N_FOR:
      v = eval(r, n->b, s);
      return v.kind == V_ERROR ? FLOW_FAIL : loop_run(r, n, v, s, 0);
    case N_IF: return run_if(r, n, s);
    case N_SET:
      v = eval(r, n->b, s);
      return v.kind == V_ERROR || !assign(r, n->a, v, s) ? FLOW_FAIL : FLOW_ON;
    case N_SETBLOCK: case N_FILTERBLOCK: return run_captured(r, n, s);
    case N_MACRO: scope_set(r, s, n->name, macro_value(r, n, s)); return FLOW_ON;
    case N_CALLBLOCK:
      v = run_call(r, n, s);
      return v.kind == V_ERROR || !emit(r, v) ? FLOW_FAIL : FLOW_ON;
    case N_WITH: return run_with(r, n, s);
    case N_AUTOESCAPE: {
      v = eval(r, n->a, s);
      if (v.kind == V_ERROR) return FLOW_FAIL;
      bool was = r->autoescape;
      r->autoescape = val_truth(v);
      f = run(r, n->list, n->n, scope_new(r, s));
      r->autoescape = was;
      return f;
    }
    case N_BLOCK: return run(r, n->list, n->n, scope_new(r, n->flag ? s : r->root));
    case N_SCOPE: return run(r, n->list, n->n, scope_new(r, s));
    case N_BREAK: return FLOW_BREAK;
    case N_CONTINUE: return FLOW_CONTINUE;
    default: val_fail(r, ERR_FORMAT, "there are no other templates to load"); return FLOW_FAIL;
  }
}

static Flow run(Render *r, Node *const *list, int n, Scope *s) {
  if (++r->depth > TEMPLATE_MAX_DEPTH) { val_fail(r, ERR_LIMIT, "nested too deep"); return FLOW_FAIL; }
  for (int i = 0; i < n; i++) {
    if (!text_render_room(r, 0, 1)) return FLOW_FAIL;
    r->line = list[i]->line;
    Flow f = run_one(r, list[i], s);
    if (f != FLOW_ON) {
      r->depth--;
      return f;
    }
  }
  r->depth--;
  return FLOW_ON;
}

Err *text_render_run(Render *r) {
  r->root = scope_new(r, NULL);
  Flow f = run(r, r->t->body, r->t->n, r->root);
  CHECK((f == FLOW_FAIL) == (r->err != NULL), "a failure without a reason, or a reason without a failure");
  return r->err;
}
