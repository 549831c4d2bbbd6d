/* Tests (x is y) and global functions of templates. Rows: filters.def. In and out as in filters.c. */
#include <stdlib.h>
#include <string.h>
#include "text/priv.h"

#define FAIL ((Val){.kind = V_ERROR})
#define TEST_FN(fn) static Val fn(Render *r, Val v, Val *arg, const Args *all)
#define UNUSED_ARGS (void)r; (void)v; (void)arg; (void)all
#define GIVEN(a) ((a).kind != V_ERROR)
#define TYPE_TEST(fn, cond) TEST_FN(fn) { UNUSED_ARGS; return val_bool(cond); }

TYPE_TEST(t_defined, v.kind != V_UNDEF)
TYPE_TEST(t_undefined, v.kind == V_UNDEF)
TYPE_TEST(t_none, v.kind == V_NONE)
TYPE_TEST(t_boolean, v.kind == V_BOOL)
TYPE_TEST(t_false, v.kind == V_BOOL && !v.u.b)
TYPE_TEST(t_true, v.kind == V_BOOL && v.u.b)
TYPE_TEST(t_integer, v.kind == V_INT || v.kind == V_BIG)
TYPE_TEST(t_float, v.kind == V_FLOAT)
TYPE_TEST(t_string, v.kind == V_STR && !v.u.s->bytes)
TYPE_TEST(t_mapping, v.kind == V_DICT)
TYPE_TEST(t_number, val_is_number(v))
TYPE_TEST(t_sequence, v.kind == V_STR || v.kind == V_LIST || v.kind == V_DICT || v.kind == V_RANGE || v.kind == V_UNDEF)
TYPE_TEST(t_iterable, v.kind == V_STR || v.kind == V_LIST || v.kind == V_DICT || v.kind == V_RANGE || v.kind == V_UNDEF || v.kind == V_ITER || v.kind == V_VIEW || v.kind == V_LOOP)
TYPE_TEST(t_callable, v.kind == V_FUNC || v.kind == V_UNDEF || v.kind == V_LOOP || (v.kind == V_OBJECT && text_method_row(v, "__call__", 8)))
TYPE_TEST(t_escaped, v.kind == V_STR && v.u.s->safe)
TYPE_TEST(t_eq, val_equal(v, arg[0]))
TYPE_TEST(t_ne, !val_equal(v, arg[0]))
TYPE_TEST(t_sameas, v.kind == arg[0].kind && (v.kind == V_NONE || (v.kind == V_BOOL ? v.u.b == arg[0].u.b : v.kind == V_INT ? v.u.i == arg[0].u.i : v.u.o == arg[0].u.o)))
TYPE_TEST(t_filter, v.kind == V_STR && text_filter_row(v.u.s->p))
TYPE_TEST(t_test, v.kind == V_STR && text_test_row(v.u.s->p))

static Val modulo_is(Render *r, Val v, Val by, int64_t want) {
  if (v.kind == V_STR) return val_fail(r, ERR_FORMAT, "not all arguments converted during string formatting");
  Val m = text_binary(r, TK_MOD, v, by);
  return GIVEN(m) ? val_bool(val_equal(m, val_int(r->arena, want))) : m;
}
TEST_FN(t_odd) { UNUSED_ARGS; return modulo_is(r, v, val_int(r->arena, 2), 1); }
TEST_FN(t_even) { UNUSED_ARGS; return modulo_is(r, v, val_int(r->arena, 2), 0); }
TEST_FN(t_divisibleby) { UNUSED_ARGS; return modulo_is(r, v, arg[0], 0); }

static Val str_test(Render *r, Val v, const char *method) {
  Val s = text_to_str(r, v);
  return GIVEN(s) ? text_call_row(r, text_method_row(s, method, strlen(method)), s, &(Args){0}) : s;
}
TEST_FN(t_lower) { UNUSED_ARGS; return str_test(r, v, "islower"); }
TEST_FN(t_upper) { UNUSED_ARGS; return str_test(r, v, "isupper"); }

TEST_FN(t_in) {
  UNUSED_ARGS;
  bool ok = true, in = text_contains(r, arg[0], v, &ok);
  return ok && !r->err ? val_bool(in) : FAIL;
}

static Val order_test(Render *r, Val a, Val b, bool less, bool equal) {
  bool ok = true;
  int c = text_compare(r, a, b, &ok);
  bool nan = (a.kind == V_FLOAT && a.u.f != a.u.f) || (b.kind == V_FLOAT && b.u.f != b.u.f);
  return ok ? val_bool(!nan && (c == 0 ? equal : (c < 0) == less)) : FAIL;
}
TEST_FN(t_gt) { UNUSED_ARGS; return order_test(r, v, arg[0], false, false); }
TEST_FN(t_ge) { UNUSED_ARGS; return order_test(r, v, arg[0], false, true); }
TEST_FN(t_lt) { UNUSED_ARGS; return order_test(r, v, arg[0], true, false); }
TEST_FN(t_le) { UNUSED_ARGS; return order_test(r, v, arg[0], true, true); }

/* Globals. */
TEST_FN(g_range) {
  UNUSED_ARGS;
  int64_t x[3] = {0, 0, 1};
  int given = GIVEN(arg[2]) ? 3 : GIVEN(arg[1]) ? 2 : 1;
  for (int i = 0; i < given; i++) {
    if (!GIVEN(arg[i]) || !val_is_int(arg[i])) return arg[i].kind == V_UNDEF ? text_undefined_error(r, arg[i]) : val_fail(r, ERR_FORMAT, "range: expected integers");
    Int128 v128 = val_as_int(arg[i]);
    if (v128 > (int64_t)1 << 60 || v128 < -((int64_t)1 << 60)) return val_fail(r, ERR_LIMIT, "range too big: more than %d items", TEMPLATE_MAX_RANGE);
    x[i] = (int64_t)v128;
  }
  VRange *q = ARENA_NEW(r->arena, VRange);
  *q = given == 1 ? (VRange){0, x[0], 1} : (VRange){x[0], x[1], x[2]};
  if (!q->step) return val_fail(r, ERR_FORMAT, "range() arg 3 must not be zero");
  Val out = {.kind = V_RANGE, .u.r = q};
  int64_t n;
  if (!text_length(r, out, &n)) return FAIL;
  return n > TEMPLATE_MAX_RANGE ? val_fail(r, ERR_LIMIT, "range too big: more than %d items", TEMPLATE_MAX_RANGE) : out;
}

static Val make_dict(Render *r, const Args *all, const char *what) {
  Val out = val_dict(r->arena), *items;
  int n;
  if (all->n > 1) return val_fail(r, ERR_FORMAT, "%s expected at most 1 argument, got %d", what, all->n);
  if (all->n && all->pos[0].kind == V_DICT) {
    const VDict *d = all->pos[0].u.d;
    if (!text_render_room(r, (size_t)d->n * 4 * sizeof(Val), d->n)) return FAIL;
    for (int i = 0; i < d->n; i++) val_put(r->arena, out.u.d, d->keys[i], d->vals[i]);
  } else if (all->n) {
    if (!text_iterate(r, all->pos[0], &items, &n) || !text_render_room(r, (size_t)n * 4 * sizeof(Val), n)) return FAIL;
    for (int i = 0; i < n; i++) {
      Val *pair;
      int two;
      if (!text_iterate(r, items[i], &pair, &two)) return FAIL;
      if (two != 2 || !val_hashable(pair[0])) return val_fail(r, ERR_FORMAT, "%s: expected pairs with hashable keys", what);
      val_put(r->arena, out.u.d, pair[0], pair[1]);
    }
  }
  for (int i = 0; i < all->n_kw; i++) val_put(r->arena, out.u.d, val_str(r->arena, all->kw_names[i], strlen(all->kw_names[i])), all->kw[i]);
  return out;
}

TEST_FN(g_dict) { UNUSED_ARGS; return make_dict(r, all, "dict"); }

TEST_FN(g_namespace) {
  UNUSED_ARGS;
  Val d = make_dict(r, all, "namespace");
  if (!GIVEN(d)) return d;
  for (int i = 0; i < d.u.d->n; i++)
    if (d.u.d->keys[i].kind == V_STR && d.u.d->keys[i].u.s->n && d.u.d->keys[i].u.s->p[0] == '_') return val_fail(r, ERR_FORMAT, "templates cannot store names that begin with '_' on a namespace: '%s'", d.u.d->keys[i].u.s->p);
  return (Val){.kind = V_NAMESPACE, .u.d = d.u.d};
}

static Val object(Render *r, const char *type, const Val *items, int n) {
  VObject *o = ARENA_NEW(r->arena, VObject);
  *o = (VObject){.type = type, .items = ARENA_ARRAY(r->arena, Val, (size_t)n + 1), .n = n};
  for (int i = 0; i < n; i++) o->items[i] = items[i];
  return (Val){.kind = V_OBJECT, .u.o = o};
}

TEST_FN(g_cycler) {
  UNUSED_ARGS;
  return all->n ? object(r, "Cycler", all->pos, all->n) : val_fail(r, ERR_FORMAT, "cycler: at least one item has to be provided");
}

TEST_FN(g_joiner) {
  UNUSED_ARGS;
  Val sep = GIVEN(arg[0]) ? arg[0] : val_str_view(r->arena, ", ", 2);
  return object(r, "Joiner", &sep, 1);
}

TEST_FN(g_lipsum) {
  UNUSED_ARGS;
  static const char text[] = "Lorem ipsum dolor sit amet, consectetur adipiscing elit.";
  return val_str_view(r->arena, text, sizeof text - 1);
}

TEST_FN(g_raise_exception) {
  UNUSED_ARGS;
  Str s = {0};
  val_print(&s, arg[0]);
  val_fail(r, ERR_USAGE, "%s", s.p ? s.p : "");
  str_free(&s);
  return FAIL;
}

TEST_FN(g_strftime_now) {
  UNUSED_ARGS;
  if (arg[0].kind != V_STR) return val_fail(r, ERR_FORMAT, "strftime_now: the format must be text");
  Str fmt = {0}; /* %f, %z and %Z are Python's own: a time without a zone */
  for (const char *p = arg[0].u.s->p; *p; p++) {
    if (p[0] != '%' || !p[1]) { str_add_c(&fmt, *p); continue; }
    p++;
    if (*p == 'f') str_add(&fmt, "000000");
    else if (*p != 'z' && *p != 'Z') { str_add_c(&fmt, '%'); str_add_c(&fmt, *p); }
  }
  str_add_c(&fmt, ' '); /* an empty result can then be told from a full buffer */
  size_t cap = fmt.n * 8 + 256;
  Val out = FAIL;
  if (cap > 1 << 20) val_fail(r, ERR_LIMIT, "strftime_now: the format has %zu bytes", fmt.n);
  else {
    char *buf = arena_alloc(r->arena, cap);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(buf, cap, fmt.p, &r->now);
#pragma GCC diagnostic pop
    out = n ? val_str(r->arena, buf, n - 1) : val_fail(r, ERR_LIMIT, "strftime_now: the text is too long");
  }
  str_free(&fmt);
  return out;
}

static const BuiltinRow tests[] = {
#define JINJA_TEST(name, params, required, fn) {name, params, required, fn},
#include "text/filters.def"
#undef JINJA_TEST
};
static const BuiltinRow globals[] = {
#define GLOBAL(name, params, required, fn) {name, params, required, fn},
#include "text/filters.def"
#undef GLOBAL
};

const BuiltinRow *text_test_row(const char *name) {
  for (size_t i = 0; i < COUNT_OF(tests); i++)
    if (!strcmp(tests[i].name, name)) return &tests[i];
  return NULL;
}

const BuiltinRow *text_global_row(const char *name) {
  for (size_t i = 0; i < COUNT_OF(globals); i++)
    if (!strcmp(globals[i].name, name)) return &globals[i];
  return NULL;
}
