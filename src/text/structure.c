/* What a request asks of the form of its answer, in any client's words: a format, and which tools may, must or must not be called. In: a request's
   JSON, from anybody. Out: a grammar, a choice; or an Err that names the place. What is asked for is enforced or refused, never passed over. */
#include <string.h>
#include "text/reply.h"

static const char *get_string(const json_t *object, const char *key) { return json_string_value(json_object_get(object, key)); }
static bool is_there(const json_t *v) { return v && !json_is_null(v); }

static Err *from_schema(const json_t *schema, const char *place, Grammar **out) {
  if (!json_is_object(schema) && !json_is_boolean(schema)) return err_new(ERR_USAGE, "%s: expected a JSON Schema, an object", place);
  return err_wrap(grammar_from_schema(schema, 0, out), "%s", place);
}

static Err *from_text(const json_t *text, const char *place, bool is_regex, Grammar **out) {
  if (!json_is_string(text)) return err_new(ERR_USAGE, "%s: expected a string", place);
  const char *p = json_string_value(text);
  size_t n = json_string_length(text);
  return err_wrap(is_regex ? grammar_from_regex(p, n, out) : grammar_from_gbnf(p, n, out), "%s", place);
}

/* {type: "text" | "json_object" | "json_schema", ..}: the schema stands beside the type, or in json_schema. */
static Err *from_format(const json_t *format, const char *place, Grammar **out) {
  const char *type = get_string(format, "type");
  const json_t *inner = json_object_get(format, "json_schema"), *schema = json_object_get(inner ? inner : format, "schema");
  Arena *a = arena_new("place");
  char *where = arena_printf(a, "%s.%s", place, inner ? "json_schema.schema" : "schema");
  Err *e = NULL;
  if (!type) e = err_new(ERR_USAGE, "%s.type: expected text, json_object or json_schema", place);
  else if (!strcmp(type, "json_schema") || (!strcmp(type, "json_object") && is_there(schema))) e = from_schema(schema, where, out);
  else if (!strcmp(type, "json_object")) e = grammar_from_json_object(0, out);
  else if (strcmp(type, "text")) e = err_new(ERR_USAGE, "%s.type: \"%s\", expected text, json_object or json_schema", place, type);
  arena_free(a);
  return e;
}

/* One of some texts, as GBNF. */
static Err *from_choices(const json_t *list, const char *place, Grammar **out) {
  Str s = {0};
  if (!json_is_array(list) || !json_array_size(list)) return err_new(ERR_USAGE, "%s: expected an array of texts", place);
  str_add(&s, "root ::= ");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *text = json_array_get(list, i);
    if (!json_is_string(text)) {
      str_free(&s);
      return err_new(ERR_USAGE, "%s[%zu]: expected a text", place, i);
    }
    str_add(&s, i ? " | \"" : "\"");
    for (size_t k = 0; k < json_string_length(text); k++) {
      unsigned char c = (unsigned char)json_string_value(text)[k];
      str_addf(&s, c < ' ' || c == '"' || c == '\\' ? "\\x%02x" : "%c", c);
    }
    str_add_c(&s, '"');
  }
  Err *e = err_wrap(grammar_from_gbnf(s.p, s.n, out), "%s", place);
  str_free(&s);
  return e;
}

/* vLLM's structured_outputs: one of these, or nothing that is known here. */
static Err *from_parts(const json_t *parts, Grammar **out) {
  const json_t *json = json_object_get(parts, "json"), *regex = json_object_get(parts, "regex"), *choice = json_object_get(parts, "choice"), *grammar = json_object_get(parts, "grammar");
  if (is_there(json)) return from_schema(json, "structured_outputs.json", out);
  if (is_there(regex)) return from_text(regex, "structured_outputs.regex", true, out);
  if (is_there(choice)) return from_choices(choice, "structured_outputs.choice", out);
  if (is_there(grammar)) return from_text(grammar, "structured_outputs.grammar", false, out);
  if (json_is_true(json_object_get(parts, "json_object"))) return grammar_from_json_object(0, out);
  return err_new(ERR_USAGE, "structured_outputs: expected json, regex, choice, grammar or json_object");
}

Err *text_request_grammar(const json_t *body, Grammar **out) {
  const json_t *text = json_object_get(json_object_get(body, "text"), "format"), *config = json_object_get(json_object_get(body, "output_config"), "format");
  const struct { const char *place; const json_t *format; } formats[] = {
    {"response_format", json_object_get(body, "response_format")}, {"text.format", text}, {"output_config.format", config}, {"output_format", json_object_get(body, "output_format")}};
  const json_t *format = json_object_get(body, "format");
  static const char *const schemas[] = {"json_schema", "guided_json"}, *const regexes[] = {"guided_regex", "regex"}, *const grammars[] = {"grammar", "guided_grammar"};
  const json_t *parts = json_object_get(body, "structured_outputs"), *choice = json_object_get(body, "guided_choice");
  *out = NULL;
  for (size_t i = 0; i < COUNT_OF(formats); i++)
    if (is_there(formats[i].format)) TRY(from_format(formats[i].format, formats[i].place, out));
  if (*out) return NULL;
  if (json_is_string(format) && !strcmp(json_string_value(format), "json")) return grammar_from_json_object(0, out);
  if (is_there(format) && !(json_is_string(format) && !json_string_length(format))) return from_schema(format, "format", out);
  for (size_t i = 0; i < COUNT_OF(schemas); i++)
    if (is_there(json_object_get(body, schemas[i]))) return from_schema(json_object_get(body, schemas[i]), schemas[i], out);
  for (size_t i = 0; i < COUNT_OF(regexes); i++)
    if (is_there(json_object_get(body, regexes[i]))) return from_text(json_object_get(body, regexes[i]), regexes[i], true, out);
  for (size_t i = 0; i < COUNT_OF(grammars); i++)
    if (is_there(json_object_get(body, grammars[i]))) return from_text(json_object_get(body, grammars[i]), grammars[i], false, out);
  if (is_there(choice)) return from_choices(choice, "guided_choice", out);
  return is_there(parts) ? from_parts(parts, out) : NULL;
}

static Err *choice_word(const char *word, TextToolChoice *out) {
  static const struct { const char *word; TextToolMode mode; } words[] = {
    {"auto", TEXT_TOOLS_AUTO}, {"none", TEXT_TOOLS_NONE}, {"required", TEXT_TOOLS_REQUIRED}, {"any", TEXT_TOOLS_REQUIRED}};
  for (size_t i = 0; i < COUNT_OF(words); i++)
    if (!strcmp(word, words[i].word)) {
      out->mode = words[i].mode;
      return NULL;
    }
  return err_new(ERR_USAGE, "tool_choice: \"%s\", expected auto, none, required or a function", word);
}

Err *text_request_tool_choice(const json_t *body, TextToolChoice *out) {
  const json_t *choice = json_object_get(body, "tool_choice"), *parallel = json_object_get(body, "parallel_tool_calls");
  TextToolChoice c = {.mode = TEXT_TOOLS_AUTO, .many = !json_is_false(parallel) && !json_is_true(json_object_get(choice, "disable_parallel_tool_use"))};
  if (json_is_string(choice)) TRY(choice_word(json_string_value(choice), &c));
  else if (is_there(choice)) {
    const char *type = get_string(choice, "type"), *name = get_string(json_object_get(choice, "function"), "name");
    if (!name) name = get_string(choice, "name");
    if (!type) return err_new(ERR_USAGE, "tool_choice: expected a word, or an object with a type");
    bool is_named = !strcmp(type, "function") || !strcmp(type, "tool");
    if (is_named && !name) return err_new(ERR_USAGE, "tool_choice: names no function");
    if (!is_named) TRY(choice_word(type, &c));
    else c.mode = TEXT_TOOLS_ONE, c.only = name, c.many = false;
  }
  *out = c;
  return NULL;
}
