/* JSON Schema (2020-12) to conditions and branches. In: the schema. Out: for any set of conditions that must hold together, the ways to
   meet them (disjunctive normal form over types); schema_emit.c makes rules of them.

   Conditions are interned and children stay conditions until they are needed, so recursion through references costs one rule for each set
   of conditions that really meets. Merging (allOf, references with siblings, if/then/else, dependent keywords) is the product of branches:
   numbers and texts by automata, objects and arrays by keeping the parts side by side, since what applies to a property is the union of
   what each part says of it. Negations are pushed down to the keywords. A schema that needs itself before any value is read is a
   reference cycle. Bounds: the work budget, BRANCHES_MAX ways, DEPTH_MAX conditions under way. */
#include <stdlib.h>
#include <string.h>
#include "text/schema_priv.h"

enum { BRANCHES_MAX = 2000, DEPTH_MAX = 600, OVERLAP_DEPTH = 6 };

static const struct { const char *name; enum { ASSERT, NOTE, REFUSE } class; } keywords[] = {
#define KEYWORD(name, class) {name, class},
#include "text/schema_keywords.def"
#undef KEYWORD
};

Err *schema_refuse(Schema *s, const char *path, const char *key, const char *why) {
  if (!(s->flags & GRAMMAR_RELAX)) return err_new(ERR_UNSUPPORTED, "%s/%s: %s", path, key, why);
  str_addf(&s->g->warnings, "%s/%s: %s\n", path, key, why);
  return NULL;
}

/* URIs: RFC 3986, as far as $id and $ref need it. Base: what references in a schema are relative to. */
static bool has_scheme(const char *u) {
  const char *p = u;
  while ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (p > u && ((*p >= '0' && *p <= '9') || strchr("+.-", *p)) && *p)) p++;
  return p > u && *p == ':';
}

static const char *uri_resolve(Arena *a, const char *base, const char *ref) { /* without fragments */
  const char *colon = has_scheme(base) ? strchr(base, ':') + 1 : base, *path = colon;
  if (!*ref) return base;
  if (has_scheme(ref)) return ref;
  if (!strncmp(colon, "//", 2)) { path = colon + 2 + strcspn(colon + 2, "/"); }
  if (!strncmp(ref, "//", 2)) return arena_printf(a, "%.*s%s", (int)(colon - base), base, ref);
  const char *slash = strrchr(path, '/');
  char *all = *ref == '/' ? arena_dup(a, ref) : arena_printf(a, "%.*s%s", slash ? (int)(slash - path + 1) : 0, path, ref);
  if (!slash && *ref != '/' && path != base && *path != '/') all = arena_printf(a, "%s%s", colon == path ? "" : "/", ref);
  char *out = arena_alloc(a, strlen(all) + 2), *o = out;
  for (const char *p = all; *p;) { /* dot segments */
    size_t n = strcspn(p + (*p == '/'), "/") + (*p == '/');
    if ((n == 2 && !memcmp(p, "/.", 2)) || (n == 3 && !memcmp(p, "/..", 3))) {
      if (n == 3) while (o > out && *--o != '/') {}
      if (!p[n]) *o++ = '/';
    } else {
      memcpy(o, p, n);
      o += n;
    }
    p += n;
  }
  *o = 0;
  return arena_printf(a, "%.*s%s", (int)(path - base), base, out);
}

static const char *base_of(Schema *s, const json_t *js, const char *base) {
  const char *id = json_string_value(json_object_get(js, "$id"));
  if (!id) return base;
  size_t n = strcspn(id, "#");
  return n ? uri_resolve(s->w.a, base, arena_dup_n(s->w.a, id, n)) : base;
}

Cond *schema_cond(Schema *s, const json_t *js, CondKind kind, const char *path, const char *base) {
  struct { const json_t *js; int64_t kind; } key = {js, kind};
  uint64_t h = hash_bytes(&key, sizeof key, 11);
  if (2u * (uint32_t)s->n_conds >= s->mask) {
    s->mask = s->mask ? s->mask * 2 + 1 : 255;
    s->slot = ARENA_ARRAY(s->w.a, int, s->mask + 1);
    for (int i = 0; i < s->n_conds; i++) {
      key.js = s->cond[i]->js;
      key.kind = s->cond[i]->kind;
      uint32_t k = (uint32_t)hash_bytes(&key, sizeof key, 11) & s->mask;
      while (s->slot[k]) k = (k + 1) & s->mask;
      s->slot[k] = i + 1;
    }
  }
  uint32_t k = (uint32_t)h & s->mask;
  for (; s->slot[k]; k = (k + 1) & s->mask) {
    Cond *c = s->cond[s->slot[k] - 1];
    if (c->js == js && c->kind == kind) return c;
  }
  Cond *c = ARENA_NEW(s->w.a, Cond);
  *c = (Cond){.js = js, .kind = kind, .id = s->n_conds, .path = path, .base = kind == COND_VALUE ? base : base_of(s, js, base)};
  PUSH(s->w.a, s->cond, s->n_conds, s->cap_conds, c);
  s->slot[k] = s->n_conds;
  return c;
}

static bool holds_always(const Cond *c) {
  return (c->kind == COND_SCHEMA && (json_is_true(c->js) || (json_is_object(c->js) && !json_object_size(c->js)))) || (c->kind == COND_NOT && json_is_false(c->js));
}

void schema_set_add(Schema *s, CondSet *set, Cond *c) {
  int i = set->n;
  if (!c || holds_always(c)) return;
  for (int k = 0; k < set->n; k++) if (set->c[k] == c) return;
  PUSH(s->w.a, set->c, set->n, set->cap, c);
  for (; i > 0 && set->c[i - 1]->id > c->id; i--) set->c[i] = set->c[i - 1];
  set->c[i] = c;
}

static void place_add(Schema *s, const char *uri, Place at, bool dynamic) {
  if (s->n_places == s->cap_places) s->place = arena_grow(s->w.a, s->place, sizeof *s->place, (size_t)s->n_places, &s->cap_places);
  s->place[s->n_places].uri = uri;
  s->place[s->n_places].at = at;
  s->place[s->n_places++].dynamic = dynamic;
}

/* Registers every $id, $anchor and $dynamicAnchor at a place where a schema may stand. Depth: that of the JSON text. */
static Err *scan(Schema *s, const json_t *js, const char *path, const char *base) {
  static const char *const one[] = {"not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties"};
  static const char *const list[] = {"allOf", "anyOf", "oneOf", "prefixItems"}, *const map[] = {"$defs", "definitions", "properties", "patternProperties", "dependentSchemas"};
  const json_t *v;
  const char *key;
  size_t i;
  if (!json_is_object(js)) return NULL;
  TRY(grammar_work_spend(&s->w, 20 + (int64_t)strlen(path)));
  const char *outer = base;
  base = base_of(s, js, base);
  if (json_object_get(js, "$id")) place_add(s, base, (Place){js, path, outer}, false);
  for (int k = 0; k < 2; k++) {
    v = json_object_get(js, k ? "$dynamicAnchor" : "$anchor");
    if (json_is_string(v)) place_add(s, arena_printf(s->w.a, "%s#%s", base, json_string_value(v)), (Place){js, path, outer}, k);
  }
  if (json_object_get(js, "unevaluatedItems") || json_object_get(js, "unevaluatedProperties")) s->has_unevaluated = true;
  for (size_t k = 0; k < COUNT_OF(one); k++)
    if ((v = json_object_get(js, one[k]))) TRY(scan(s, v, arena_printf(s->w.a, "%s/%s", path, one[k]), base));
  for (size_t k = 0; k < COUNT_OF(list); k++)
    json_array_foreach(json_object_get(js, list[k]), i, v) TRY(scan(s, v, arena_printf(s->w.a, "%s/%s/%zu", path, list[k], i), base));
  for (size_t k = 0; k < COUNT_OF(map); k++)
    json_object_foreach(json_object_get(js, map[k]), key, v) TRY(scan(s, v, arena_printf(s->w.a, "%s/%s/%s", path, map[k], key), base));
  return NULL;
}

static const Place *place_find(const Schema *s, const char *uri) {
  for (int i = 0; i < s->n_places; i++) if (!strcmp(s->place[i].uri, uri)) return &s->place[i].at;
  return NULL;
}

/* One step of a JSON pointer, ~ and % undone. */
static const json_t *pointer_step(Schema *s, const json_t *js, const char *p, size_t n) {
  char *key = arena_dup_n(s->w.a, p, n), *o = key;
  for (size_t i = 0; i < n; i++) {
    unsigned hex;
    if (p[i] == '%' && i + 2 < n + 0 && sscanf(p + i + 1, "%2x", &hex) == 1) { *o++ = (char)hex; i += 2; }
    else *o++ = p[i];
  }
  *o = 0;
  char *q = key;
  for (const char *i = key; *i; i++) {
    if (*i == '~' && (i[1] == '0' || i[1] == '1')) *q++ = *++i == '0' ? '~' : '/';
    else *q++ = *i;
  }
  *q = 0;
  if (json_is_array(js)) return *key ? json_array_get(js, strtoul(key, NULL, 10)) : NULL;
  return json_object_get(js, key);
}

static Err *ref_target(Schema *s, const Cond *c, const char *key, CondKind kind, Cond **out) {
  const char *ref = json_string_value(json_object_get(c->js, key));
  if (!ref) return schema_fault(c, key, "a string");
  size_t n = strcspn(ref, "#");
  const char *uri = uri_resolve(s->w.a, c->base, arena_dup_n(s->w.a, ref, n)), *frag = ref[n] ? ref + n + 1 : "";
  const Place *at = place_find(s, uri);
  if (!at) return err_new(ERR_UNSUPPORTED, "%s/%s: \"%s\" is outside this document; references to other documents are not supported", c->path, key, ref);
  Place to = *at;
  if (*frag && *frag != '/') {
    at = place_find(s, arena_printf(s->w.a, "%s#%s", uri, frag));
    if (!at) return err_new(ERR_FORMAT, "%s/%s: nothing in the schema is called \"%s\"", c->path, key, ref);
    to = *at;
  } else {
    for (const char *p = frag; *p; p += n) {
      n = strcspn(p + 1, "/") + 1;
      if (!to.js) continue;
      to.base = base_of(s, to.js, to.base);
      to.js = pointer_step(s, to.js, p + 1, n - 1);
    }
    to.path = arena_printf(s->w.a, "%s%s", at->path, frag);
    if (!to.js) return err_new(ERR_FORMAT, "%s/%s: nothing stands at \"%s\"", c->path, key, ref);
  }
  if (!strcmp(key, "$dynamicRef")) {
    int n_same = 0, plain = 1;
    size_t k = strlen(frag);
    for (int i = 0; i < s->n_places; i++) {
      const char *hash = strchr(s->place[i].uri, '#');
      if (!s->place[i].dynamic || !hash || strcmp(hash + 1, frag) || !k) continue;
      n_same++;
      if (s->place[i].at.js == to.js) plain = 0;
    }
    if (!plain && n_same > 1) return err_new(ERR_UNSUPPORTED, "%s/$dynamicRef: \"%s\" has several possible targets, which is not supported", c->path, ref);
  }
  *out = schema_cond(s, to.js, kind, to.path, to.base);
  return NULL;
}

static Err *check_keywords(Schema *s, const Cond *c) {
  const char *key;
  const json_t *v;
  json_object_foreach((json_t *)c->js, key, v) {
    size_t k = 0;
    while (k < COUNT_OF(keywords) && strcmp(keywords[k].name, key)) k++;
    if (k == COUNT_OF(keywords)) {
      if (!strncmp(key, "x-", 2)) continue;
      TRY(schema_refuse(s, c->path, key, "an unknown keyword"));
    } else if (keywords[k].class == REFUSE) {
      TRY(schema_refuse(s, c->path, key, "this keyword is not supported"));
    }
  }
  return NULL;
}

static Err *both(Schema *s, const Dfa *a, const Dfa *b, unsigned type, unsigned *types, const Dfa **out) {
  Dfa *d;
  *out = a ? a : b;
  if ((*types & type) && a && b && a != b) {
    TRY(grammar_dfa_and(&s->w, a, b, &d));
    *out = d;
  }
  if (*out && grammar_dfa_is_empty(*out)) *types &= ~type;
  return NULL;
}
static int64_t least(int64_t a, int64_t b) { return a < 0 ? b : b < 0 ? a : MIN(a, b); }

#define JOIN(field, n_field, cap_field)                                                                                  \
  do {                                                                                                                   \
    r.field = NULL;                                                                                                      \
    r.n_field = r.cap_field = 0;                                                                                         \
    for (int i_ = 0; i_ < a->n_field; i_++) PUSH(s->w.a, r.field, r.n_field, r.cap_field, a->field[i_]);                 \
    for (int i_ = 0; i_ < b->n_field; i_++) PUSH(s->w.a, r.field, r.n_field, r.cap_field, b->field[i_]);                 \
  } while (0)

Err *schema_cross(Schema *s, const Branch *a, const Branch *b, Branch *out) {
  Branch r = *a;
  r.types &= b->types;
  TRY(grammar_work_spend(&s->w, 20 + a->n_obj + b->n_obj + a->n_required + b->n_required));
  TRY(both(s, a->num, b->num, T_NUM, &r.types, &r.num));
  TRY(both(s, a->str, b->str, T_STR, &r.types, &r.str));
  r.min_len = MAX(a->min_len, b->min_len);
  r.min_items = MAX(a->min_items, b->min_items);
  r.min_props = MAX(a->min_props, b->min_props);
  r.max_len = least(a->max_len, b->max_len);
  r.max_items = least(a->max_items, b->max_items);
  r.max_props = least(a->max_props, b->max_props);
  if (r.max_len >= 0 && r.min_len > r.max_len) r.types &= ~(unsigned)T_STR;
  if (r.max_items >= 0 && r.min_items > r.max_items) r.types &= ~(unsigned)T_ARR;
  if (r.max_props >= 0 && r.min_props > r.max_props) r.types &= ~(unsigned)T_OBJ;
  if (b->unique) { r.unique = true; r.unique_path = b->unique_path; }
  if (r.types & T_ARR) {
    JOIN(arr, n_arr, cap_arr);
    JOIN(contains, n_contains, cap_contains);
  }
  if (r.types & T_OBJ) {
    JOIN(obj, n_obj, cap_obj);
    JOIN(required, n_required, cap_required);
    JOIN(names, n_names, cap_names);
  }
  *out = r;
  return NULL;
}

static Err *push_branch(Schema *s, Branches *to, Branch b) {
  if (!b.types) return NULL;
  if (to->n >= BRANCHES_MAX) return err_new(ERR_LIMIT, "too large: more than %d ways to satisfy one part of the schema", BRANCHES_MAX);
  PUSH(s->w.a, to->b, to->n, to->cap, b);
  return NULL;
}

static Err *cross_all(Schema *s, Branches *cur, const Branches *with) {
  Branches out = {0};
  for (int i = 0; i < cur->n; i++)
    for (int k = 0; k < with->n; k++) {
      Branch r;
      TRY(schema_cross(s, &cur->b[i], &with->b[k], &r));
      TRY(push_branch(s, &out, r));
    }
  *cur = out;
  return NULL;
}
static Err *cross_cond(Schema *s, Branches *cur, Cond *c) {
  const Branches *b;
  TRY(schema_branches(s, c, &b));
  return cross_all(s, cur, b);
}
static Err *union_cond(Schema *s, Branches *to, Cond *c) {
  const Branches *b;
  TRY(schema_branches(s, c, &b));
  for (int i = 0; i < b->n; i++) TRY(push_branch(s, to, b->b[i]));
  return NULL;
}
static Branches top_branches(Schema *s) {
  Branches t = {0};
  PUSH(s->w.a, t.b, t.n, t.cap, schema_top());
  return t;
}

Err *schema_set_branches(Schema *s, const CondSet *set, Branches *out) {
  Branches cur = top_branches(s);
  for (int i = 0; i < set->n; i++) TRY(cross_cond(s, &cur, set->c[i]));
  *out = cur;
  return NULL;
}

static Cond *kid(Schema *s, const Cond *c, const char *key, CondKind kind) {
  return schema_cond(s, json_object_get(c->js, key), kind, arena_printf(s->w.a, "%s/%s", c->path, key), c->base);
}
static Cond *kid_at(Schema *s, const Cond *c, const char *key, size_t i, CondKind kind) {
  return schema_cond(s, json_array_get(json_object_get(c->js, key), i), kind, arena_printf(s->w.a, "%s/%s/%zu", c->path, key, i), c->base);
}
static Err *kids_count(const Cond *c, const char *key, size_t *n) {
  const json_t *v = json_object_get(c->js, key);
  if (v && (!json_is_array(v) || !json_array_size(v))) return schema_fault(c, key, "an array of schemas");
  *n = json_array_size(v);
  return NULL;
}

static void hide(Branches *b) { /* nothing here counts as evaluated */
  for (int i = 0; i < b->n; i++) {
    for (int k = 0; k < b->b[i].n_obj; k++) b->b[i].obj[k].unseen = true;
    for (int k = 0; k < b->b[i].n_arr; k++) b->b[i].arr[k].unseen = true;
  }
}

/* Whether some value may satisfy both: true when in doubt. */
static Err *may_hold(Schema *s, const Branches *b, int depth, bool *out);
static Err *set_may_hold(Schema *s, const CondSet *set, int depth, bool *out) {
  Branches b;
  *out = true;
  if (depth <= 0) return NULL;
  for (int i = 0; i < set->n; i++) if (set->c[i]->busy) return NULL;
  TRY(schema_set_branches(s, set, &b));
  return may_hold(s, &b, depth, out);
}
static Err *object_may_hold(Schema *s, const Branch *b, int depth, bool *out) {
  *out = true;
  for (int i = 0; i < b->n_required && *out; i++) {
    CondSet set = {0};
    for (int k = 0; k < b->n_obj; k++) {
      const ObjPart *p = &b->obj[k];
      int j = 0;
      while (j < p->n_props && (p->prop[j].n_name != b->required[i].n || memcmp(p->prop[j].name, b->required[i].p, b->required[i].n))) j++;
      if (j < p->n_props) schema_set_add(s, &set, p->prop[j].value);
      else if (!p->n_patterns) schema_set_add(s, &set, p->additional);
    }
    TRY(set_may_hold(s, &set, depth - 1, out));
  }
  return NULL;
}
static Err *array_may_hold(Schema *s, const Branch *b, int depth, bool *out) {
  *out = true;
  for (int64_t i = 0; i < MIN(b->min_items, 16) && *out; i++) {
    CondSet set = {0};
    for (int k = 0; k < b->n_arr; k++) schema_set_add(s, &set, i < b->arr[k].n_prefix ? b->arr[k].prefix[i] : b->arr[k].items);
    TRY(set_may_hold(s, &set, depth - 1, out));
  }
  return NULL;
}
static Err *may_hold(Schema *s, const Branches *b, int depth, bool *out) {
  *out = false;
  for (int i = 0; i < b->n && !*out; i++) {
    bool yes = b->b[i].types & (T_NULL | T_TRUE | T_FALSE | T_NUM | T_STR);
    if (!yes && (b->b[i].types & T_OBJ)) TRY(object_may_hold(s, &b->b[i], depth, &yes));
    if (!yes && (b->b[i].types & T_ARR)) TRY(array_may_hold(s, &b->b[i], depth, &yes));
    *out = yes;
  }
  return NULL;
}

/* Exactly one: each alternative without the others that it may overlap with. */
static Err *one_of(Schema *s, const Cond *c, Branches *cur) {
  size_t n;
  Branches all = {0};
  TRY(kids_count(c, "oneOf", &n));
  for (size_t i = 0; i < n; i++) {
    const Branches *own;
    TRY(schema_branches(s, kid_at(s, c, "oneOf", i, COND_SCHEMA), &own));
    Branches b = {.b = own->b, .n = own->n, .cap = own->n};
    for (size_t k = 0; k < n; k++) {
      if (k == i) continue;
      Branches meet = {.b = own->b, .n = own->n, .cap = own->n};
      bool overlap;
      TRY(cross_cond(s, &meet, kid_at(s, c, "oneOf", k, COND_SCHEMA)));
      TRY(may_hold(s, &meet, OVERLAP_DEPTH, &overlap));
      if (!overlap) continue;
      Branches without = b;
      Err *e = cross_cond(s, &without, kid_at(s, c, "oneOf", k, COND_NOT));
      if (e && err_kind(e) == ERR_UNSUPPORTED) {
        Err *r = schema_refuse(s, c->path, "oneOf", arena_printf(s->w.a, "alternatives %zu and %zu may hold together, and one cannot be excluded: %s", i, k, err_text(e)));
        err_free(e);
        TRY(r);
        continue;
      }
      TRY(e);
      b = without;
    }
    for (int k = 0; k < b.n; k++) TRY(push_branch(s, &all, b.b[k]));
  }
  return cross_all(s, cur, &all);
}

static Err *any_of(Schema *s, const Cond *c, Branches *cur) {
  size_t n;
  Branches all = {0};
  TRY(kids_count(c, "anyOf", &n));
  if (!s->has_unevaluated || n > 6) {
    if (s->has_unevaluated) TRY(schema_refuse(s, c->path, "anyOf", "more than 6 alternatives in a schema with unevaluated keywords are not supported"));
    for (size_t i = 0; i < n; i++) TRY(union_cond(s, &all, kid_at(s, c, "anyOf", i, COND_SCHEMA)));
    return cross_all(s, cur, &all);
  }
  for (unsigned set = 1; set < 1u << n; set++) { /* those that hold together evaluate together */
    Branches b = top_branches(s);
    for (size_t i = 0; i < n; i++) if (set >> i & 1) TRY(cross_cond(s, &b, kid_at(s, c, "anyOf", i, COND_SCHEMA)));
    for (int k = 0; k < b.n; k++) TRY(push_branch(s, &all, b.b[k]));
  }
  return cross_all(s, cur, &all);
}

static Err *if_then_else(Schema *s, const Cond *c, Branches *cur) {
  bool then = json_object_get(c->js, "then"), other = json_object_get(c->js, "else");
  Branches all = {0}, b = top_branches(s);
  if (!then && !other && !s->has_unevaluated) return NULL;
  TRY(cross_cond(s, &b, kid(s, c, "if", COND_SCHEMA)));
  if (then) TRY(cross_cond(s, &b, kid(s, c, "then", COND_SCHEMA)));
  for (int i = 0; i < b.n; i++) TRY(push_branch(s, &all, b.b[i]));
  b = top_branches(s);
  TRY(cross_cond(s, &b, kid(s, c, "if", COND_NOT)));
  if (other) TRY(cross_cond(s, &b, kid(s, c, "else", COND_SCHEMA)));
  for (int i = 0; i < b.n; i++) TRY(push_branch(s, &all, b.b[i]));
  return cross_all(s, cur, &all);
}

/* A branch in which the property is there, or not. */
static Branch with_property(Schema *s, const char *name, bool there) {
  Branch b = schema_top();
  DfaWord w = {name, strlen(name)};
  if (there) {
    PUSH(s->w.a, b.required, b.n_required, b.cap_required, w);
    b.types = T_OBJ;
    return b;
  }
  ObjPart p = {.unseen = true};
  PUSH(s->w.a, p.prop, p.n_props, p.cap_props, (PropRow){w.p, w.n, s->nothing});
  PUSH(s->w.a, b.obj, b.n_obj, b.cap_obj, p);
  return b;
}

static Err *dependent(Schema *s, const Cond *c, const char *keyword, Branches *cur) {
  const json_t *map = json_object_get(c->js, keyword), *v, *d;
  bool schemas = !strcmp(keyword, "dependentSchemas");
  const char *key;
  size_t i;
  if (map && !json_is_object(map)) return schema_fault(c, keyword, "an object");
  json_object_foreach((json_t *)map, key, v) {
    Branches all = {0}, then = {0};
    Branch there = with_property(s, key, true);
    if (!schemas)
      json_array_foreach(v, i, d) {
        if (!json_is_string(d)) return schema_fault(c, keyword, "arrays of names");
        PUSH(s->w.a, there.required, there.n_required, there.cap_required, (DfaWord){json_string_value(d), json_string_length(d)});
      }
    TRY(push_branch(s, &then, there));
    if (schemas) TRY(cross_cond(s, &then, schema_cond(s, v, COND_SCHEMA, arena_printf(s->w.a, "%s/%s/%s", c->path, keyword, key), c->base)));
    TRY(push_branch(s, &all, with_property(s, key, false)));
    for (int k = 0; k < then.n; k++) TRY(push_branch(s, &all, then.b[k]));
    TRY(cross_all(s, cur, &all));
  }
  return NULL;
}

static Err *unevaluated(Schema *s, const Cond *c, Branches *cur) {
  Cond *props = json_object_get(c->js, "unevaluatedProperties") ? kid(s, c, "unevaluatedProperties", COND_SCHEMA) : NULL;
  Cond *items = json_object_get(c->js, "unevaluatedItems") ? kid(s, c, "unevaluatedItems", COND_SCHEMA) : NULL;
  for (int i = 0; i < cur->n; i++) {
    Branch *b = &cur->b[i];
    ObjPart o = {.additional = props, .covers = true};
    ArrPart r = {.items = items, .covers = true};
    bool all_props = !props || !(b->types & T_OBJ), all_items = !items || !(b->types & T_ARR);
    for (int k = 0; k < b->n_obj; k++) {
      const ObjPart *p = &b->obj[k];
      if (p->unseen) continue;
      all_props |= p->covers;
      for (int j = 0; j < p->n_props; j++) PUSH(s->w.a, o.prop, o.n_props, o.cap_props, (PropRow){p->prop[j].name, p->prop[j].n_name, NULL});
      for (int j = 0; j < p->n_patterns; j++) PUSH(s->w.a, o.pattern, o.n_patterns, o.cap_patterns, (PatternRow){p->pattern[j].text, p->pattern[j].dfa, NULL});
    }
    for (int k = 0; k < b->n_arr; k++) {
      all_items |= b->arr[k].covers && !b->arr[k].unseen;
      if (!b->arr[k].unseen) r.n_prefix = MAX(r.n_prefix, b->arr[k].n_prefix);
    }
    if (!all_items && b->n_contains) TRY(schema_refuse(s, c->path, "unevaluatedItems", "beside contains it is not supported"));
    r.prefix = ARENA_ARRAY(s->w.a, Cond *, r.n_prefix + 1);
    Branch add = schema_top(), out;
    if (!all_props) PUSH(s->w.a, add.obj, add.n_obj, add.cap_obj, o);
    if (!all_items) PUSH(s->w.a, add.arr, add.n_arr, add.cap_arr, r);
    TRY(schema_cross(s, b, &add, &out));
    *b = out;
  }
  return NULL;
}

static Err *expand(Schema *s, Cond *c, Branches *out) {
  const json_t *js = c->js, *v;
  Branches cur = top_branches(s), list = {0};
  Cond *to;
  size_t n;
  TRY(check_keywords(s, c));
  Branch local;
  TRY(schema_local(s, c, &local));
  TRY(schema_cross(s, &cur.b[0], &local, &cur.b[0]));
  if (!cur.b[0].types) cur.n = 0;
  if ((v = json_object_get(js, "enum"))) {
    if (!json_is_array(v)) return schema_fault(c, "enum", "an array");
    TRY(schema_values(s, c, v, &list));
    TRY(cross_all(s, &cur, &list));
  }
  if ((v = json_object_get(js, "const"))) TRY(cross_cond(s, &cur, schema_cond(s, v, COND_VALUE, c->path, c->base)));
  static const char *const refs[] = {"$ref", "$dynamicRef"};
  for (size_t i = 0; i < COUNT_OF(refs); i++)
    if (json_object_get(js, refs[i])) {
      TRY(ref_target(s, c, refs[i], COND_SCHEMA, &to));
      TRY(cross_cond(s, &cur, to));
    }
  TRY(kids_count(c, "allOf", &n));
  for (size_t i = 0; i < n; i++) TRY(cross_cond(s, &cur, kid_at(s, c, "allOf", i, COND_SCHEMA)));
  if (json_object_get(js, "anyOf")) TRY(any_of(s, c, &cur));
  if (json_object_get(js, "oneOf")) TRY(one_of(s, c, &cur));
  if (json_object_get(js, "not")) TRY(cross_cond(s, &cur, kid(s, c, "not", COND_NOT)));
  if (json_object_get(js, "if")) TRY(if_then_else(s, c, &cur));
  TRY(dependent(s, c, "dependentRequired", &cur));
  TRY(dependent(s, c, "dependentSchemas", &cur));
  if (s->has_unevaluated) TRY(unevaluated(s, c, &cur));
  *out = cur;
  return NULL;
}

static Err *union_pair(Schema *s, Branches *to, Cond *a, Cond *b) {
  Branches both_ = top_branches(s);
  TRY(cross_cond(s, &both_, a));
  TRY(cross_cond(s, &both_, b));
  for (int i = 0; i < both_.n; i++) TRY(push_branch(s, to, both_.b[i]));
  return NULL;
}

static Err *expand_not(Schema *s, Cond *c, Branches *out) {
  const json_t *js = c->js, *v, *d;
  const char *key;
  size_t n, i;
  Cond *to;
  TRY(check_keywords(s, c));
  TRY(schema_local_not(s, c, out));
  static const char *const refs[] = {"$ref", "$dynamicRef"};
  for (i = 0; i < COUNT_OF(refs); i++)
    if (json_object_get(js, refs[i])) {
      TRY(ref_target(s, c, refs[i], COND_NOT, &to));
      TRY(union_cond(s, out, to));
    }
  TRY(kids_count(c, "allOf", &n));
  for (i = 0; i < n; i++) TRY(union_cond(s, out, kid_at(s, c, "allOf", i, COND_NOT)));
  static const char *const some[] = {"anyOf", "oneOf"};
  for (size_t k = 0; k < 2; k++) {
    TRY(kids_count(c, some[k], &n));
    Branches none = top_branches(s);
    for (i = 0; i < n; i++) TRY(cross_cond(s, &none, kid_at(s, c, some[k], i, COND_NOT)));
    for (int j = 0; n && j < none.n; j++) TRY(push_branch(s, out, none.b[j]));
    for (i = 0; k && i < n; i++)
      for (size_t j = i + 1; j < n; j++) TRY(union_pair(s, out, kid_at(s, c, some[k], i, COND_SCHEMA), kid_at(s, c, some[k], j, COND_SCHEMA)));
  }
  if (json_object_get(js, "not")) TRY(union_cond(s, out, kid(s, c, "not", COND_SCHEMA)));
  if (json_object_get(js, "if")) {
    if (json_object_get(js, "then")) TRY(union_pair(s, out, kid(s, c, "if", COND_SCHEMA), kid(s, c, "then", COND_NOT)));
    if (json_object_get(js, "else")) TRY(union_pair(s, out, kid(s, c, "if", COND_NOT), kid(s, c, "else", COND_NOT)));
  }
  json_object_foreach(json_object_get(js, "dependentRequired"), key, v)
    json_array_foreach(v, i, d) {
      Branch there = with_property(s, key, true), gone = with_property(s, json_is_string(d) ? json_string_value(d) : "", false), r;
      TRY(schema_cross(s, &there, &gone, &r));
      TRY(push_branch(s, out, r));
    }
  json_object_foreach(json_object_get(js, "dependentSchemas"), key, v) {
    Branches b = {0};
    TRY(push_branch(s, &b, with_property(s, key, true)));
    TRY(cross_cond(s, &b, schema_cond(s, v, COND_NOT, arena_printf(s->w.a, "%s/dependentSchemas/%s", c->path, key), c->base)));
    for (int k = 0; k < b.n; k++) TRY(push_branch(s, out, b.b[k]));
  }
  static const char *const hard[] = {"unevaluatedProperties", "unevaluatedItems"};
  for (i = 0; i < COUNT_OF(hard); i++)
    if (json_object_get(js, hard[i])) TRY(schema_refuse(s, c->path, hard[i], "its negation is not supported"));
  return NULL;
}

Err *schema_branches(Schema *s, Cond *c, const Branches **out) {
  if (c->done) { *out = c->done; return NULL; }
  if (c->busy) return err_new(ERR_FORMAT, "%s: a reference cycle: the schema needs itself before any value is read", c->path);
  if (s->depth >= DEPTH_MAX) return err_new(ERR_LIMIT, "%s: schemas nested more than %d deep", c->path, DEPTH_MAX);
  TRY(grammar_work_spend(&s->w, 100));
  Branches *b = ARENA_NEW(s->w.a, Branches);
  bool flag = json_is_boolean(c->js);
  if (!flag && c->kind != COND_VALUE && !json_is_object(c->js)) return err_new(ERR_FORMAT, "%s: expected a schema: an object, true or false", c->path);
  c->busy = true;
  s->depth++;
  Err *e = NULL;
  if (c->kind == COND_VALUE) {
    Branch v;
    e = schema_value(s, c, &v);
    if (!e) e = push_branch(s, b, v);
  } else if (flag) {
    if (json_is_true(c->js) == (c->kind == COND_SCHEMA)) e = push_branch(s, b, schema_top());
  } else if (c->kind == COND_SCHEMA) {
    e = expand(s, c, b);
  } else {
    e = expand_not(s, c, b);
    hide(b);
  }
  s->depth--;
  c->busy = false;
  if (e) return e;
  *out = c->done = b;
  return NULL;
}

Err *schema_string_dfa(Schema *s, const Branch *b, const Dfa **out) {
  Dfa *len, *d;
  *out = b->str ? b->str : grammar_dfa_any(&s->w);
  if (!b->min_len && b->max_len < 0) return NULL;
  TRY(grammar_dfa_length(&s->w, b->min_len, b->max_len, &len));
  TRY(grammar_dfa_and(&s->w, *out, len, &d));
  *out = d;
  return NULL;
}

Err *schema_texts_dfa(Schema *s, const Branches *b, const Dfa **out) {
  const Dfa *all = NULL, *own;
  Dfa *both;
  for (int i = 0; i < b->n; i++) {
    if (!(b->b[i].types & T_STR)) continue;
    TRY(schema_string_dfa(s, &b->b[i], &own));
    if (all) TRY(grammar_dfa_or(&s->w, all, own, &both));
    all = all ? both : own;
  }
  *out = all ? all : grammar_dfa_empty(&s->w);
  return NULL;
}

/* Names with U+0000 would be cut by Jansson's iterator. */
static Err *refuse_nul(const json_t *js) {
  const json_t *v;
  size_t i;
  if (json_is_array(js)) json_array_foreach(js, i, v) TRY(refuse_nul(v));
  if (!json_is_object(js)) return NULL;
  for (void *it = json_object_iter((json_t *)js); it; it = json_object_iter_next((json_t *)js, it)) {
    if (json_object_iter_key_len(it) != strlen(json_object_iter_key(it)))
      return err_new(ERR_UNSUPPORTED, "a name with U+0000 in it (\"%s..\") is not supported", json_object_iter_key(it));
    TRY(refuse_nul(json_object_iter_value(it)));
  }
  return NULL;
}

static Err *compile(Schema *s) {
  TRY(refuse_nul(s->root));
  const char *base = base_of(s, s->root, "");
  place_add(s, "", (Place){s->root, "#", ""}, false);
  place_add(s, base, (Place){s->root, "#", ""}, false);
  TRY(scan(s, s->root, "#", ""));
  return schema_emit(s, schema_cond(s, s->root, COND_SCHEMA, "#", ""));
}

Err *grammar_schema_rule(Grammar *g, GrWork *w, const json_t *schema, unsigned flags, uint32_t *rule) {
  return grammar_args_rule(g, w, schema, flags, NULL, rule);
}

Err *grammar_args_rule(Grammar *g, GrWork *w, const json_t *schema, unsigned flags, const GrArgs *args, uint32_t *rule) {
  Schema s = {.w = *w, .g = g, .flags = flags, .root = schema, .args = args && args->open ? args : NULL, .is_call = args != NULL, .escapes = args && args->escapes, .types = args ? T_OBJ : T_ALL, .values = args ? args->values : GR_VALUES_JSON};
  s.anything = schema_cond(&s, json_true(), COND_SCHEMA, "#", "");
  s.nothing = schema_cond(&s, json_false(), COND_SCHEMA, "#", "");
  Err *e = compile(&s);
  w->left = s.w.left;
  if (!e) *rule = g->root;
  return e;
}

Err *grammar_from_schema(const json_t *schema, unsigned flags, Grammar **out) {
  GrWork w = {.a = arena_new("compile"), .left = GR_BUDGET};
  Grammar *g = grammar_new();
  Err *e = grammar_schema_rule(g, &w, schema, flags, &g->root);
  if (!e) e = grammar_finish(g, &w);
  arena_free(w.a);
  if (e) grammar_free(g);
  else *out = g;
  return e;
}

Err *grammar_from_json_object(unsigned flags, Grammar **out) {
  json_t *js = json_pack("{s:s}", "type", "object");
  Err *e = js ? grammar_from_schema(js, flags, out) : err_new(ERR_MEMORY, "no memory");
  json_decref(js);
  return e;
}
