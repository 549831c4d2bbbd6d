/* The keywords of a JSON Schema that look at the value itself: types, constants, numbers, texts, counts; and their negations. In: a
   condition. Out: a Branch (what holds for each type), or several where a negation can be met in several ways. */
#include <string.h>
#include "text/schema_priv.h"

Branch schema_top(void) { return (Branch){.types = T_ALL, .max_len = -1, .max_items = -1, .max_props = -1}; }

Err *schema_fault(const Cond *c, const char *key, const char *expected) { return err_new(ERR_FORMAT, "%s/%s: expected %s", c->path, key, expected); }

Err *schema_count(const Cond *c, const char *key, int64_t deflt, int64_t *out) {
  const json_t *v = json_object_get(c->js, key);
  double d = json_is_real(v) ? json_real_value(v) : 0;
  if (!v) { *out = deflt; return NULL; }
  if (json_is_integer(v)) *out = json_integer_value(v);
  else if (json_is_real(v) && d >= 0 && d <= 9e15 && d == (double)(int64_t)d) *out = (int64_t)d;
  else return schema_fault(c, key, "a whole number of at least 0");
  if (*out < 0) return schema_fault(c, key, "a whole number of at least 0");
  *out = MIN(*out, INT32_MAX);
  return NULL;
}

static bool wide(const Schema *s) { return s->flags & GRAMMAR_ANY_ORDER; }

/* Texts of the number as a generator writes it: 2 and not 2.0. */
static Err *number_word(GrWork *w, Dec d, Dfa **out) {
  Str t = {0};
  if (d.n > 400 || d.exp > 400 || d.exp < -400) return err_new(ERR_LIMIT, "a number of more than 400 digits");
  if (d.neg && d.n) str_add(&t, "-");
  if (d.exp <= 0 || !d.n) str_add(&t, "0");
  for (int i = 0; i < d.exp; i++) str_add_c(&t, i < d.n ? d.digits[i] : '0');
  if (d.n > MAX(d.exp, 0)) {
    str_add(&t, ".");
    for (int i = d.exp; i < 0; i++) str_add(&t, "0");
    str_add_n(&t, d.digits + MAX(d.exp, 0), (size_t)(d.n - MAX(d.exp, 0)));
  }
  DfaWord word = {t.p, t.n};
  Err *e = grammar_dfa_words(w, &word, 1, false, out);
  str_free(&t);
  return e;
}

static Err *number_equal(Schema *s, const json_t *v, bool all_spellings, Dfa **out) {
  Dec d;
  TRY(grammar_dec_from_json(&s->w, v, &d));
  return all_spellings ? grammar_num_compare(&s->w, d, NUM_EQ, out) : number_word(&s->w, d, out);
}

static DfaWord word_of(const json_t *v) { return (DfaWord){json_string_value(v), json_string_length(v)}; }

Err *schema_value(Schema *s, const Cond *c, Branch *out) {
  const json_t *v = c->js, *item;
  Branch b = schema_top();
  Dfa *d;
  size_t i;
  const char *key;
  switch (json_typeof(v)) {
    case JSON_NULL: b.types = T_NULL; break;
    case JSON_TRUE: b.types = T_TRUE; break;
    case JSON_FALSE: b.types = T_FALSE; break;
    case JSON_STRING: {
      DfaWord w = word_of(v);
      b.types = T_STR;
      TRY(grammar_dfa_words(&s->w, &w, 1, false, &d));
      b.str = d;
      break;
    }
    case JSON_INTEGER: case JSON_REAL:
      b.types = T_NUM;
      TRY(number_equal(s, v, wide(s), &d));
      b.num = d;
      break;
    case JSON_ARRAY: {
      ArrPart p = {.n_prefix = (int)json_array_size(v), .covers = true};
      b.types = T_ARR;
      p.prefix = ARENA_ARRAY(s->w.a, Cond *, p.n_prefix + 1);
      json_array_foreach(v, i, item) p.prefix[i] = schema_cond(s, item, COND_VALUE, c->path, c->base);
      p.items = s->nothing;
      b.min_items = b.max_items = p.n_prefix;
      PUSH(s->w.a, b.arr, b.n_arr, b.cap_arr, p);
      break;
    }
    default: {
      ObjPart p = {.additional = s->nothing, .covers = true};
      b.types = T_OBJ;
      json_object_foreach((json_t *)v, key, item) {
        size_t n = strlen(key); /* names with NUL inside cannot come through Jansson's iterator whole: refused while scanning */
        PUSH(s->w.a, p.prop, p.n_props, p.cap_props, (PropRow){key, n, schema_cond(s, item, COND_VALUE, c->path, c->base)});
        PUSH(s->w.a, b.required, b.n_required, b.cap_required, (DfaWord){key, n});
      }
      PUSH(s->w.a, b.obj, b.n_obj, b.cap_obj, p);
    }
  }
  *out = b;
  return NULL;
}

/* One branch for all scalars together, one for each array and object. */
Err *schema_values(Schema *s, const Cond *c, const json_t *list, Branches *out) {
  Branch all = schema_top(), b;
  size_t i, n = json_array_size(list);
  const json_t *item;
  DfaWord *word = ARENA_ARRAY(s->w.a, DfaWord, n + 1);
  int n_words = 0;
  Dfa *num = NULL, *one, *both;
  all.types = 0;
  TRY(grammar_work_spend(&s->w, (int64_t)n));
  json_array_foreach(list, i, item) {
    if (json_is_string(item)) { word[n_words++] = word_of(item); continue; }
    TRY(schema_value(s, schema_cond(s, item, COND_VALUE, c->path, c->base), &b));
    if (b.types & (T_ARR | T_OBJ)) { PUSH(s->w.a, out->b, out->n, out->cap, b); continue; }
    all.types |= b.types;
    if (!b.num) continue;
    TRY(number_equal(s, item, wide(s), &one));
    if (num) { TRY(grammar_dfa_or(&s->w, num, one, &both)); num = both; }
    else num = one;
  }
  if (n_words) {
    Dfa *d;
    all.types |= T_STR;
    TRY(grammar_dfa_words(&s->w, word, n_words, false, &d));
    for (int k = 0; k < d->n; k++) d->st[k].tag = MIN(d->st[k].tag, 0);
    all.str = d;
  }
  all.num = num;
  if (all.types) PUSH(s->w.a, out->b, out->n, out->cap, all);
  return NULL;
}

static Err *type_mask(const Cond *c, const json_t *v, unsigned *types, bool *integer) {
  static const struct { const char *name; unsigned types; } row[] = {
    {"null", T_NULL}, {"boolean", T_TRUE | T_FALSE}, {"number", T_NUM}, {"integer", 0}, {"string", T_STR}, {"array", T_ARR}, {"object", T_OBJ}};
  size_t n = json_is_array(v) ? json_array_size(v) : 1;
  *types = 0;
  *integer = false;
  for (size_t i = 0; i < n; i++) {
    const char *name = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
    size_t k = 0;
    while (name && k < COUNT_OF(row) && strcmp(row[k].name, name)) k++;
    if (!name || k == COUNT_OF(row)) return schema_fault(c, "type", "null, boolean, number, integer, string, array, object, or an array of these");
    *types |= row[k].types;
    *integer |= !row[k].types;
  }
  if (*types & T_NUM) *integer = false;
  return NULL;
}

static const struct { const char *key; int relations; } bounds[] = {
  {"minimum", NUM_EQ | NUM_GT}, {"maximum", NUM_EQ | NUM_LT}, {"exclusiveMinimum", NUM_GT}, {"exclusiveMaximum", NUM_LT}};

static const struct { const char *name; int max_length; const char *re, *or_else; } formats[] = {
#define FORMAT(name, max_length, re, or_else) {name, max_length, re, or_else},
#include "text/schema_formats.def"
#undef FORMAT
};

/* *out stays NULL where the keyword is none of these, or is left out with a warning. */
static Err *number_keyword(Schema *s, const Cond *c, const char *key, const json_t *v, Dfa **out) {
  Dec d;
  bool multiple = !strcmp(key, "multipleOf");
  int relations = 0;
  for (size_t i = 0; i < COUNT_OF(bounds); i++) if (!strcmp(bounds[i].key, key)) relations = bounds[i].relations;
  if (!multiple && !relations) return NULL;
  if (!json_is_number(v)) return schema_fault(c, key, "a number");
  TRY(grammar_dec_from_json(&s->w, v, &d));
  Err *e = multiple ? grammar_num_multiple(&s->w, d, out) : grammar_num_compare(&s->w, d, relations, out);
  if (e && err_kind(e) == ERR_UNSUPPORTED) {
    Err *r = schema_refuse(s, c->path, key, err_text(e));
    err_free(e);
    return r;
  }
  return err_wrap(e, "%s/%s", c->path, key);
}

static Err *text_keyword(Schema *s, const Cond *c, const char *key, const json_t *v, Dfa **out) {
  bool pattern = !strcmp(key, "pattern"), format = !strcmp(key, "format");
  if (!pattern && !format) return NULL;
  if (!json_is_string(v)) return schema_fault(c, key, "a string");
  const char *text = json_string_value(v);
  size_t k = 0;
  Err *e;
  if (pattern) e = grammar_regex_dfa(&s->w, text, json_string_length(v), true, out);
  else {
    while (k < COUNT_OF(formats) && strcmp(formats[k].name, text)) k++;
    if (k == COUNT_OF(formats)) return schema_refuse(s, c->path, key, arena_printf(s->w.a, "the format `%s` is not supported", text));
    e = grammar_regex_dfa(&s->w, formats[k].re, strlen(formats[k].re), false, out);
    if (!e && formats[k].or_else) {
      Dfa *also;
      TRY(grammar_regex_dfa(&s->w, formats[k].or_else, strlen(formats[k].or_else), false, &also));
      e = grammar_dfa_or(&s->w, *out, also, out);
    }
    if (!e && formats[k].max_length) {
      Dfa *len;
      TRY(grammar_dfa_length(&s->w, 0, formats[k].max_length, &len));
      e = grammar_dfa_and(&s->w, *out, len, out);
    }
  }
  if (e && err_kind(e) == ERR_UNSUPPORTED) {
    Err *r = schema_refuse(s, c->path, key, err_text(e));
    err_free(e);
    return r;
  }
  return err_wrap(e, "%s/%s", c->path, key);
}

static Err *narrow(Schema *s, const Dfa **have, const Dfa *more) {
  Dfa *d;
  if (!*have) { *have = more; return NULL; }
  TRY(grammar_dfa_and(&s->w, *have, more, &d));
  *have = d;
  return NULL;
}

static Err *local_object(Schema *s, const Cond *c, Branch *b) {
  const json_t *props = json_object_get(c->js, "properties"), *pats = json_object_get(c->js, "patternProperties");
  const json_t *more = json_object_get(c->js, "additionalProperties"), *req = json_object_get(c->js, "required"), *names = json_object_get(c->js, "propertyNames"), *v;
  const char *key;
  size_t i;
  ObjPart p = {0};
  if ((props && !json_is_object(props)) || (pats && !json_is_object(pats))) return schema_fault(c, props && !json_is_object(props) ? "properties" : "patternProperties", "an object");
  json_object_foreach((json_t *)props, key, v)
    PUSH(s->w.a, p.prop, p.n_props, p.cap_props, (PropRow){key, strlen(key), schema_cond(s, v, COND_SCHEMA, arena_printf(s->w.a, "%s/properties/%s", c->path, key), c->base)});
  json_object_foreach((json_t *)pats, key, v) {
    Dfa *d;
    Err *e = grammar_regex_dfa(&s->w, key, strlen(key), true, &d);
    if (e && err_kind(e) == ERR_UNSUPPORTED) {
      Err *r = schema_refuse(s, c->path, "patternProperties", err_text(e));
      err_free(e);
      TRY(r);
      continue;
    }
    TRY(err_wrap(e, "%s/patternProperties", c->path));
    PUSH(s->w.a, p.pattern, p.n_patterns, p.cap_patterns, (PatternRow){key, d, schema_cond(s, v, COND_SCHEMA, arena_printf(s->w.a, "%s/patternProperties/%s", c->path, key), c->base)});
  }
  if (more) p.additional = schema_cond(s, more, COND_SCHEMA, arena_printf(s->w.a, "%s/additionalProperties", c->path), c->base);
  p.covers = more != NULL;
  if (props || pats || more) PUSH(s->w.a, b->obj, b->n_obj, b->cap_obj, p);
  if (req && !json_is_array(req)) return schema_fault(c, "required", "an array of names");
  json_array_foreach(req, i, v) {
    if (!json_is_string(v)) return schema_fault(c, "required", "an array of names");
    if (strlen(json_string_value(v)) != json_string_length(v)) return schema_refuse(s, c->path, "required", "a name with U+0000 is not supported");
    PUSH(s->w.a, b->required, b->n_required, b->cap_required, word_of(v));
  }
  if (names) PUSH(s->w.a, b->names, b->n_names, b->cap_names, schema_cond(s, names, COND_SCHEMA, arena_printf(s->w.a, "%s/propertyNames", c->path), c->base));
  TRY(schema_count(c, "minProperties", 0, &b->min_props));
  return schema_count(c, "maxProperties", -1, &b->max_props);
}

static Err *local_array(Schema *s, const Cond *c, Branch *b) {
  const json_t *prefix = json_object_get(c->js, "prefixItems"), *items = json_object_get(c->js, "items"), *contains = json_object_get(c->js, "contains"), *v;
  const json_t *unique = json_object_get(c->js, "uniqueItems");
  size_t i;
  ArrPart p = {0};
  if (prefix && !json_is_array(prefix)) return schema_fault(c, "prefixItems", "an array of schemas");
  if (items && !json_is_object(items) && !json_is_boolean(items)) return schema_fault(c, "items", "a schema");
  p.n_prefix = (int)json_array_size(prefix);
  p.prefix = ARENA_ARRAY(s->w.a, Cond *, p.n_prefix + 1);
  json_array_foreach(prefix, i, v) p.prefix[i] = schema_cond(s, v, COND_SCHEMA, arena_printf(s->w.a, "%s/prefixItems/%zu", c->path, i), c->base);
  if (items) p.items = schema_cond(s, items, COND_SCHEMA, arena_printf(s->w.a, "%s/items", c->path), c->base);
  p.covers = items != NULL;
  if (prefix || items) PUSH(s->w.a, b->arr, b->n_arr, b->cap_arr, p);
  if (contains) {
    Contains k = {.what = schema_cond(s, contains, COND_SCHEMA, arena_printf(s->w.a, "%s/contains", c->path), c->base)};
    TRY(schema_count(c, "minContains", 1, &k.min));
    TRY(schema_count(c, "maxContains", -1, &k.max));
    PUSH(s->w.a, b->contains, b->n_contains, b->cap_contains, k);
  }
  if (unique && !json_is_boolean(unique)) return schema_fault(c, "uniqueItems", "true or false");
  TRY(schema_count(c, "minItems", 0, &b->min_items));
  TRY(schema_count(c, "maxItems", -1, &b->max_items));
  b->unique = json_is_true(unique);
  b->unique_path = c->path;
  return NULL;
}

Err *schema_local(Schema *s, const Cond *c, Branch *out) {
  Branch b = schema_top();
  const json_t *v = json_object_get(c->js, "type");
  const char *key;
  if (v) {
    bool integer;
    unsigned types;
    TRY(type_mask(c, v, &types, &integer));
    b.types = types;
    if (integer) {
      Dfa *d;
      b.types |= T_NUM;
      TRY(grammar_num_integer(&s->w, wide(s), &d));
      b.num = d;
    }
  }
  json_object_foreach((json_t *)c->js, key, v) {
    Dfa *d = NULL;
    if (!(b.types & T_NUM) && !(b.types & T_STR)) break; /* the rest looks at numbers and texts only */
    if (b.types & T_NUM) TRY(number_keyword(s, c, key, v, &d));
    if (d) { TRY(narrow(s, &b.num, d)); continue; }
    if (b.types & T_STR) TRY(text_keyword(s, c, key, v, &d));
    if (d) TRY(narrow(s, &b.str, d));
  }
  TRY(schema_count(c, "minLength", 0, &b.min_len));
  TRY(schema_count(c, "maxLength", -1, &b.max_len));
  TRY(local_object(s, c, &b));
  TRY(local_array(s, c, &b));
  *out = b;
  return NULL;
}

static Branch *add_branch(Schema *s, Branches *out, unsigned types) {
  PUSH(s->w.a, out->b, out->n, out->cap, schema_top());
  out->b[out->n - 1].types = types;
  return &out->b[out->n - 1];
}

/* The values that are none of the list. Arrays and objects in it cannot be negated. */
static Err *not_values(Schema *s, const Cond *c, const char *key, const json_t *list, Branches *out) {
  const json_t *item;
  size_t i;
  unsigned types = T_ALL;
  Dfa *num = NULL, *str = NULL, *one;
  json_array_foreach(list, i, item) {
    if (json_is_array(item) || json_is_object(item)) return schema_refuse(s, c->path, key, "the negation of an array or an object is not supported");
    if (json_is_null(item)) types &= ~(unsigned)T_NULL;
    if (json_is_boolean(item)) types &= ~(unsigned)(json_is_true(item) ? T_TRUE : T_FALSE);
    if (json_is_number(item)) {
      TRY(number_equal(s, item, true, &one));
      if (!num) TRY(grammar_num_plain(&s->w, &num));
      TRY(grammar_dfa_minus(&s->w, num, one, &num));
    }
    if (json_is_string(item)) {
      DfaWord w = word_of(item);
      TRY(grammar_dfa_words(&s->w, &w, 1, false, &one));
      TRY(grammar_dfa_minus(&s->w, str ? str : grammar_dfa_any(&s->w), one, &str));
    }
  }
  Branch *b = add_branch(s, out, types);
  b->num = num;
  b->str = str;
  return NULL;
}

static Err *not_array(Schema *s, const Cond *c, Branches *out) {
  const json_t *prefix = json_object_get(c->js, "prefixItems"), *items = json_object_get(c->js, "items"), *contains = json_object_get(c->js, "contains"), *v;
  size_t i;
  int64_t n;
  TRY(schema_count(c, "minItems", 0, &n));
  if (n > 0) add_branch(s, out, T_ARR)->max_items = n - 1;
  TRY(schema_count(c, "maxItems", -1, &n));
  if (n >= 0) add_branch(s, out, T_ARR)->min_items = n + 1;
  json_array_foreach(prefix, i, v) {
    ArrPart p = {.n_prefix = (int)i + 1, .unseen = true};
    p.prefix = ARENA_ARRAY(s->w.a, Cond *, i + 1);
    p.prefix[i] = schema_cond(s, v, COND_NOT, arena_printf(s->w.a, "%s/prefixItems/%zu", c->path, i), c->base);
    Branch *b = add_branch(s, out, T_ARR);
    b->min_items = (int64_t)i + 1;
    PUSH(s->w.a, b->arr, b->n_arr, b->cap_arr, p);
  }
  if (items && !json_is_true(items)) {
    if (json_array_size(prefix)) TRY(schema_refuse(s, c->path, "items", "its negation beside prefixItems is not supported"));
    Branch *b = add_branch(s, out, T_ARR);
    PUSH(s->w.a, b->contains, b->n_contains, b->cap_contains, (Contains){schema_cond(s, items, COND_NOT, arena_printf(s->w.a, "%s/items", c->path), c->base), 1, -1});
  }
  if (contains) {
    if (json_object_get(c->js, "minContains") || json_object_get(c->js, "maxContains")) TRY(schema_refuse(s, c->path, "contains", "its negation with bounds is not supported"));
    ArrPart p = {.items = schema_cond(s, contains, COND_NOT, arena_printf(s->w.a, "%s/contains", c->path), c->base), .unseen = true};
    Branch *b = add_branch(s, out, T_ARR);
    PUSH(s->w.a, b->arr, b->n_arr, b->cap_arr, p);
  }
  if (json_is_true(json_object_get(c->js, "uniqueItems"))) TRY(schema_refuse(s, c->path, "uniqueItems", "its negation is not supported"));
  return NULL;
}

static void add_property(Schema *s, Branches *out, const char *name, Cond *value, bool required) {
  Branch *b = add_branch(s, out, T_OBJ);
  ObjPart p = {.unseen = true};
  PUSH(s->w.a, p.prop, p.n_props, p.cap_props, (PropRow){name, strlen(name), value});
  PUSH(s->w.a, b->obj, b->n_obj, b->cap_obj, p);
  if (required) PUSH(s->w.a, b->required, b->n_required, b->cap_required, (DfaWord){name, strlen(name)});
}

static Err *not_object(Schema *s, const Cond *c, Branches *out) {
  static const char *const hard[] = {"patternProperties", "additionalProperties", "propertyNames"};
  const json_t *v;
  const char *key;
  size_t i;
  int64_t n;
  TRY(schema_count(c, "minProperties", 0, &n));
  if (n > 0) add_branch(s, out, T_OBJ)->max_props = n - 1;
  TRY(schema_count(c, "maxProperties", -1, &n));
  if (n >= 0) add_branch(s, out, T_OBJ)->min_props = n + 1;
  json_array_foreach(json_object_get(c->js, "required"), i, v)
    if (json_is_string(v)) add_property(s, out, json_string_value(v), s->nothing, false);
  json_object_foreach(json_object_get(c->js, "properties"), key, v)
    add_property(s, out, key, schema_cond(s, v, COND_NOT, arena_printf(s->w.a, "%s/properties/%s", c->path, key), c->base), true);
  for (i = 0; i < COUNT_OF(hard); i++) {
    v = json_object_get(c->js, hard[i]);
    if (v && !json_is_true(v)) TRY(schema_refuse(s, c->path, hard[i], "its negation is not supported"));
  }
  return NULL;
}

Err *schema_local_not(Schema *s, const Cond *c, Branches *out) {
  const json_t *v = json_object_get(c->js, "type");
  const char *key;
  Dfa *d;
  if (v) {
    unsigned types;
    bool integer;
    TRY(type_mask(c, v, &types, &integer));
    if (T_ALL & ~types) {
      Branch *b = add_branch(s, out, T_ALL & ~types);
      if (integer) {
        Dfa *plain;
        TRY(grammar_num_integer(&s->w, true, &d));
        TRY(grammar_num_plain(&s->w, &plain));
        TRY(grammar_dfa_minus(&s->w, plain, d, &d));
        b->num = d;
      }
    }
  }
  json_object_foreach((json_t *)c->js, key, v) {
    d = NULL;
    TRY(number_keyword(s, c, key, v, &d));
    if (d) {
      Dfa *plain;
      TRY(grammar_num_plain(&s->w, &plain));
      TRY(grammar_dfa_minus(&s->w, plain, d, &d));
      add_branch(s, out, T_NUM)->num = d;
      continue;
    }
    TRY(text_keyword(s, c, key, v, &d));
    if (!d) continue;
    TRY(grammar_dfa_minus(&s->w, grammar_dfa_any(&s->w), d, &d));
    add_branch(s, out, T_STR)->str = d;
  }
  int64_t n;
  TRY(schema_count(c, "minLength", 0, &n));
  if (n > 0) add_branch(s, out, T_STR)->max_len = n - 1;
  TRY(schema_count(c, "maxLength", -1, &n));
  if (n >= 0) add_branch(s, out, T_STR)->min_len = n + 1;
  if ((v = json_object_get(c->js, "enum"))) TRY(not_values(s, c, "enum", v, out));
  if ((v = json_object_get(c->js, "const"))) {
    json_t *list = json_array();
    json_array_append(list, (json_t *)v);
    Err *e = not_values(s, c, "const", list, out);
    json_decref(list);
    TRY(e);
  }
  TRY(not_array(s, c, out));
  return not_object(s, c, out);
}
