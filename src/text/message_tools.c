/* The tools of a request, in any client's form: {type:"function", function:{..}}, the flat {type:"function", name, parameters}, {name,
   description, input_schema}. Types that a server runs itself are left out: the model cannot be asked for them. And what templates
   want of definitions that clients leave out. */
#include <string.h>
#include "text/message.h"

static json_t *schema_of(const json_t *f) {
  json_t *s = json_object_get(f, "parameters");
  if (!json_is_object(s)) s = json_object_get(f, "input_schema");
  return json_is_object(s) ? json_incref(s) : json_pack("{s:s, s:{}}", "type", "object", "properties");
}

static Err *tool_of(const json_t *t, const char *place, size_t i, json_t **out) {
  const json_t *f = json_object_get(t, "function");
  const char *type = json_string_value(json_object_get(t, "type"));
  *out = NULL;
  if (!json_is_object(t)) return err_new(ERR_USAGE, "%s[%zu]: expected an object", place, i);
  if (type && strcmp(type, "function") && !json_object_get(t, "input_schema") && !f) return NULL;
  if (!f) f = t;
  const json_t *name = json_object_get(f, "name"), *description = json_object_get(f, "description"), *parameters = json_object_get(f, "parameters");
  if (!json_is_string(name) || !json_string_length(name)) return err_new(ERR_USAGE, "%s[%zu]: its name must be a string that is not empty", place, i);
  if (parameters && !json_is_object(parameters) && !json_is_null(parameters)) return err_new(ERR_USAGE, "%s[%zu]: its parameters must be an object", place, i);
  json_t *own = json_pack("{s:O}", "name", name);
  if (json_is_string(description)) json_object_set_new(own, "description", json_deep_copy(description));
  json_object_set_new(own, "parameters", schema_of(f));
  *out = json_pack("{s:s, s:o}", "type", "function", "function", own);
  return NULL;
}

Err *text_tools_normalise(const json_t *tools, const char *place, json_t **out) {
  if (!tools || json_is_null(tools)) {
    *out = NULL;
    return NULL;
  }
  if (!json_is_array(tools)) return err_new(ERR_USAGE, "%s: expected an array", place);
  json_t *all = json_array();
  Err *e = NULL;
  for (size_t i = 0; !e && i < json_array_size(tools); i++) {
    json_t *tool = NULL;
    e = tool_of(json_array_get(tools, i), place, i, &tool);
    if (tool) json_array_append_new(all, tool);
  }
  if (e || !json_array_size(all)) json_decref(all), all = NULL;
  if (!e) *out = all;
  return e;
}

/* Templates were written with complete definitions in mind. */
static void schema_complete(json_t *s, int depth) {
  enum { DEPTH_MAX = 64 };
  json_t *type = json_object_get(s, "type"), *properties = json_object_get(s, "properties"), *items = json_object_get(s, "items"), *one;
  const char *key;
  size_t i;
  if (!json_is_object(s) || depth > DEPTH_MAX) return;
  if (json_is_array(type)) { /* the first that says something */
    const json_t *said = json_array_get(type, 0);
    json_array_foreach(type, i, one) if (json_is_string(one) && strcmp(json_string_value(one), "null")) { said = one; break; }
    if (said) json_object_set(s, "type", (json_t *)said);
  }
  if (!json_object_get(s, "description")) json_object_set_new(s, "description", json_string(""));
  if (json_is_true(json_object_get(s, "additionalProperties"))) json_object_set_new(s, "additionalProperties", json_object());
  schema_complete(items, depth + 1);
  void *next;
  json_object_foreach_safe(properties, next, key, one) {
    if (json_is_true(one)) json_object_set_new(properties, key, json_object());
    schema_complete(json_object_get(properties, key), depth + 1);
  }
}

bool text_tools_complete(json_t *tools) {
  json_t *before = json_deep_copy(tools), *tool;
  size_t i;
  json_array_foreach(tools, i, tool) {
    json_t *f = json_object_get(tool, "function"), *parameters = json_object_get(f, "parameters");
    if (!json_is_object(f)) continue;
    if (!json_object_get(f, "description")) json_object_set_new(f, "description", json_string(""));
    bool is_told = json_object_get(parameters, "description") != NULL;
    schema_complete(parameters, 0);
    if (!is_told) json_object_del(parameters, "description"); /* of the function itself */
  }
  bool changed = !json_equal(before, tools);
  json_decref(before);
  return changed;
}
