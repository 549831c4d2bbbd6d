/* The tools of a request: which one a name means, and what type a parameter has. In: the tools array of a request, already checked for its
   shape, and text of a model. Out: JSON. A schema may be anything: what it does not say makes a parameter a string. */
#include <string.h>
#include "text/toolcall.h"

enum { MAX_SCHEMA_DEPTH = 16 };

static const json_t *find_exact(const ToolSet *s, const Str *name) {
  for (size_t i = 0; i < json_array_size(s->tools); i++) {
    const json_t *f = json_object_get(json_array_get(s->tools, i), "function"), *own = json_object_get(f, "name");
    if (json_is_string(own) && json_string_length(own) == name->n && !memcmp(json_string_value(own), name->p, name->n)) return f;
  }
  return NULL;
}

static void cut(Str *s, size_t n) {
  s->n = n;
  s->p[n] = 0;
}

static void drop_front(Str *s, size_t n) {
  memmove(s->p, s->p + n, s->n - n + 1);
  s->n -= n;
}

static void trim(Str *s) {
  while (s->n && strchr(" \t\r\n", s->p[s->n - 1])) cut(s, s->n - 1);
  drop_front(s, strspn(s->p, " \t\r\n"));
}

const json_t *tool_set_find(const ToolSet *s, const char *name, size_t n, Str *clean) {
  str_clear(clean);
  str_add_n(clean, name, n);
  trim(clean);
  const json_t *tool = find_exact(s, clean);
  size_t n_word = strcspn(clean->p, " <");
  if (!tool && n_word < clean->n) cut(clean, n_word), tool = find_exact(s, clean);
  if (!tool && !strncmp(clean->p, "functions.", 10)) drop_front(clean, 10), tool = find_exact(s, clean);
  char *colon = tool ? NULL : strrchr(clean->p, ':');
  if (colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1)) cut(clean, (size_t)(colon - clean->p)), tool = find_exact(s, clean);
  if (!tool && clean->n > 5 && !strcmp(clean->p + clean->n - 5, ".call")) cut(clean, clean->n - 5), tool = find_exact(s, clean);
  return tool;
}

static unsigned type_named(const char *name) {
  static const char *const names[] = {"string", "number", "integer", "boolean", "object", "array", "null"};
  for (unsigned i = 0; name && i < COUNT_OF(names); i++)
    if (!strcmp(name, names[i])) return 1u << i;
  return 0;
}

static unsigned type_of_value(const json_t *v) {
  switch (json_typeof(v)) {
    case JSON_STRING: return TOOL_TYPE_STRING;
    case JSON_INTEGER: return TOOL_TYPE_INTEGER | TOOL_TYPE_NUMBER;
    case JSON_REAL: return TOOL_TYPE_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE: return TOOL_TYPE_BOOLEAN;
    case JSON_OBJECT: return TOOL_TYPE_OBJECT;
    case JSON_ARRAY: return TOOL_TYPE_ARRAY;
    default: return TOOL_TYPE_NULL;
  }
}

/* "#/a/b" in root; NULL when it leads nowhere. */
static const json_t *pointed(const json_t *root, const char *ref) {
  if (!ref || *ref != '#') return NULL;
  for (ref++; root && *ref == '/';) {
    char key[128];
    size_t n = 0;
    for (ref++; *ref && *ref != '/'; ref++) {
      bool tilde = ref[0] == '~' && (ref[1] == '0' || ref[1] == '1');
      if (n + 1 < sizeof key) key[n++] = tilde ? (ref[1] == '0' ? '~' : '/') : *ref;
      ref += tilde;
    }
    key[n] = 0;
    root = json_object_get(root, key);
  }
  return root;
}

/* The types a schema lets through; 0: it does not say. budget bounds the whole walk. */
static unsigned types(const json_t *schema, const json_t *root, int depth, int *budget) {
  static const char *const any[] = {"anyOf", "oneOf", "allOf"};
  if (!json_is_object(schema) || depth > MAX_SCHEMA_DEPTH || --*budget < 0) return 0;
  unsigned mask = 0;
  const json_t *t = json_object_get(schema, "type"), *e = json_object_get(schema, "enum"), *c = json_object_get(schema, "const");
  if (json_is_string(t)) return type_named(json_string_value(t));
  if (json_is_array(t)) {
    for (size_t i = 0; i < json_array_size(t); i++) mask |= type_named(json_string_value(json_array_get(t, i)));
    return mask;
  }
  for (size_t i = 0; json_is_array(e) && i < json_array_size(e); i++) mask |= type_of_value(json_array_get(e, i));
  if (c) mask |= type_of_value(c);
  if (mask) return mask;
  for (size_t k = 0; k < COUNT_OF(any); k++) {
    const json_t *list = json_object_get(schema, any[k]);
    for (size_t i = 0; json_is_array(list) && i < json_array_size(list); i++) mask |= types(json_array_get(list, i), root, depth + 1, budget);
  }
  const json_t *ref = json_object_get(schema, "$ref");
  if (json_is_string(ref)) mask |= types(pointed(root, json_string_value(ref)), root, depth + 1, budget);
  if (!mask && json_is_object(json_object_get(schema, "properties"))) mask = TOOL_TYPE_OBJECT;
  if (!mask && json_object_get(schema, "items")) mask = TOOL_TYPE_ARRAY;
  return mask;
}

/* Whether JSON text that begins with this byte is of one of the types. */
static bool fits(unsigned mask, char first) {
  switch (first) {
    case '"': return mask & TOOL_TYPE_STRING;
    case '{': return mask & TOOL_TYPE_OBJECT;
    case '[': return mask & TOOL_TYPE_ARRAY;
    case 't':
    case 'f': return mask & TOOL_TYPE_BOOLEAN;
    case 'n': return mask & TOOL_TYPE_NULL;
    default: return mask & (TOOL_TYPE_NUMBER | TOOL_TYPE_INTEGER);
  }
}

static bool add_as(ToolDialect d, unsigned mask, const char *text, size_t n, Str *out) {
  size_t before = out->n;
  char first = tool_value_of_text(d, text, n, out);
  if (first && fits(mask, first)) return true;
  if (first) cut(out, before);
  return false;
}

/* The types of a property in an object's schema and what it is put together from; *found: it is declared somewhere. */
static unsigned property_types(const json_t *schema, const json_t *root, const char *key, size_t n, int depth, int *budget, bool *found) {
  static const char *const all[] = {"allOf", "anyOf", "oneOf"}, *const one[] = {"then", "else"};
  unsigned mask = 0;
  if (!json_is_object(schema) || depth > MAX_SCHEMA_DEPTH || --*budget < 0) return 0;
  const json_t *own = key ? json_object_getn(json_object_get(schema, "properties"), key, n) : NULL, *ref = json_object_get(schema, "$ref");
  if (own) *found = true, mask |= types(own, root, 0, budget);
  for (size_t k = 0; k < COUNT_OF(all); k++) {
    const json_t *list = json_object_get(schema, all[k]);
    for (size_t i = 0; json_is_array(list) && i < json_array_size(list); i++) mask |= property_types(json_array_get(list, i), root, key, n, depth + 1, budget, found);
  }
  for (size_t k = 0; k < COUNT_OF(one); k++) mask |= property_types(json_object_get(schema, one[k]), root, key, n, depth + 1, budget, found);
  if (json_is_string(ref)) mask |= property_types(pointed(root, json_string_value(ref)), root, key, n, depth + 1, budget, found);
  return mask;
}

unsigned tool_param_types(const json_t *tool, const char *key, size_t n) {
  const json_t *root = json_object_get(tool, "parameters");
  int budget = 1000;
  bool found = false;
  unsigned mask = property_types(root, root, key, n, 0, &budget, &found);
  return found ? mask : types(json_object_get(root, "additionalProperties"), root, 0, &budget);
}

void tool_param_add(const json_t *tool, const char *key, size_t n_key, const char *text, size_t n, Str *out) {
  unsigned mask = tool_param_types(tool, key, n_key);
  bool done = false;
  if (!mask) done = false;
  else if (mask & TOOL_TYPE_STRING) done = (mask & TOOL_TYPE_NULL) && add_as(TOOL_JSON, TOOL_TYPE_NULL, text, n, out);
  else done = add_as(TOOL_JSON, mask, text, n, out) || add_as(TOOL_PYTHON, mask, text, n, out);
  if (!done) tool_string_add(out, text, n);
}
