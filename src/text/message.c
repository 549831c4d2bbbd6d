/* Requests in the shapes clients send, to the one that chat templates get: an array of {role, content, tool_calls?, tool_call_id?, name?,
   reasoning_content?}. In: a request's JSON, from anybody. Out: JSON in that form, or an Err that names the place.

   developer is system, function is tool. Content is text: text parts are joined by newlines; images stay parts where the template can show
   them. Several system texts in front are one, joined by a blank line. A tool's result belongs to a call before it, by id, or without
   one to the first call that has no result yet. Arguments are objects (or JSON text, where the template wants that); text that is no JSON
   object stays the text it is. A last assistant text is continued; an empty one is left out. */
#include <stdlib.h>
#include <string.h>
#include "text/message.h"
#include "text/toolcall.h"

typedef struct Call { json_t *id, *name; bool is_answered; } Call;
typedef struct Reader {
  const TextChat *chat;
  Arena *arena;
  json_t *out;             /* messages */
  Call *call; int n_calls, cap_calls, n_turn; /* n_turn: where the last assistant's calls begin */
  Err *e;
} Reader;

/* What one message's content came to. */
typedef struct Content { Str text, reasoning; json_t *parts, *calls; bool has_images; } Content;

static void content_free(Content *c) {
  str_free(&c->text);
  str_free(&c->reasoning);
  json_decref(c->parts);
  json_decref(c->calls);
}

static const char *type_name(const json_t *v) {
  static const char *const names[] = {"an object", "an array", "a string", "an integer", "a number", "true", "false", "null"};
  return v ? names[json_typeof(v)] : "nothing";
}

static const char *get_string(const json_t *object, const char *key) { return json_string_value(json_object_get(object, key)); }

static bool is_one_of(const char *s, const char *const *list) {
  for (; *list; list++)
    if (!strcmp(s, *list)) return true;
  return false;
}

static void add_text(Str *s, const json_t *text) {
  if (s->n) str_add_c(s, '\n');
  str_add_n(s, json_string_value(text), json_string_length(text));
}

/* ---- content ---- */

static Err *take_image(Reader *r, const json_t *part, const char *place, Content *c) {
  if (!r->chat->shows_images) return err_new(ERR_USAGE, "%s: the model takes no images", place);
  json_t *copy = json_deep_copy(part);
  json_object_set_new(copy, "type", json_string("image"));
  json_array_append_new(c->parts, copy);
  c->has_images = true;
  return NULL;
}

static Err *take_text(const json_t *text, const char *place, const char *key, Content *c) {
  if (!json_is_string(text)) return err_new(ERR_USAGE, "%s.%s: expected a string, got %s", place, key, type_name(text));
  if (!json_string_length(text)) return NULL;
  add_text(&c->text, text);
  json_array_append_new(c->parts, json_pack("{s:s, s:O}", "type", "text", "text", text));
  return NULL;
}

/* A part that both dialects have. *taken: it was one. */
static Err *take_part(Reader *r, const json_t *part, const char *place, Content *c, bool *taken) {
  static const char *const texts[] = {"text", "input_text", "output_text", NULL}, *const images[] = {"image_url", "input_image", "image", NULL},
    *const thoughts[] = {"thinking", "reasoning", "redacted_thinking", NULL};
  *taken = true;
  if (json_is_string(part)) {
    add_text(&c->text, part);
    json_array_append_new(c->parts, json_pack("{s:s, s:O}", "type", "text", "text", part));
    return NULL;
  }
  const char *type = get_string(part, "type");
  if (!type) return err_new(ERR_USAGE, "%s.type: expected a string, got %s", place, type_name(json_object_get(part, "type")));
  if (is_one_of(type, texts)) return take_text(json_object_get(part, "text"), place, "text", c);
  if (!strcmp(type, "refusal")) return take_text(json_object_get(part, "refusal"), place, "refusal", c);
  if (is_one_of(type, images)) return take_image(r, part, place, c);
  if (is_one_of(type, thoughts)) {
    const json_t *t = json_object_get(part, "thinking");
    if (!t) t = json_object_get(part, "text");
    if (json_is_string(t)) add_text(&c->reasoning, t);
    return NULL;
  }
  *taken = false;
  return NULL;
}

static Err *take_content(Reader *r, const json_t *content, const char *place, Content *c) {
  c->parts = json_array();
  if (!content || json_is_null(content)) return NULL;
  if (json_is_string(content)) {
    str_add_n(&c->text, json_string_value(content), json_string_length(content));
    return NULL;
  }
  if (!json_is_array(content)) return err_new(ERR_USAGE, "%s: expected a string or an array, got %s", place, type_name(content));
  for (size_t i = 0; i < json_array_size(content); i++) {
    bool taken;
    const json_t *part = json_array_get(content, i);
    char *at = arena_printf(r->arena, "%s[%zu]", place, i);
    TRY(take_part(r, part, at, c, &taken));
    if (!taken) return err_new(ERR_USAGE, "%s.type: \"%s\" cannot be shown to the model", at, get_string(part, "type"));
  }
  return NULL;
}

static json_t *content_value(const Content *c) {
  return c->has_images ? json_incref(c->parts) : json_stringn(c->text.p ? c->text.p : "", c->text.n);
}

/* ---- calls and results ---- */

static json_t *arguments_of(const TextChat *chat, const json_t *given) {
  json_t *object = NULL;
  if (json_is_object(given)) object = json_deep_copy(given);
  else if (!given || json_is_null(given) || !json_string_length(given)) object = json_object();
  else object = json_loadb(json_string_value(given), json_string_length(given), JSON_ALLOW_NUL, NULL);
  if (json_is_string(given) && (chat->wants_text_arguments || !json_is_object(object))) {
    json_t *text = json_string_length(given) ? json_deep_copy(given) : json_string("{}");
    json_decref(object);
    return text;
  }
  if (!chat->wants_text_arguments) return object;
  char *text = json_dumps(object, 0);
  json_t *v = json_string(text ? text : "{}");
  free(text);
  json_decref(object);
  return v;
}

static Err *add_call(Reader *r, const json_t *id, const json_t *name, const json_t *arguments, const char *place, json_t *calls) {
  if (!json_is_string(name) || !json_string_length(name)) return err_new(ERR_USAGE, "%s.name: expected a string, got %s", place, type_name(name));
  if (arguments && !json_is_string(arguments) && !json_is_object(arguments) && !json_is_null(arguments))
    return err_new(ERR_USAGE, "%s.arguments: expected JSON text or an object, got %s", place, type_name(arguments));
  json_t *own = json_is_string(id) && json_string_length(id) ? json_deep_copy(id) : json_sprintf("call%05d", r->n_calls);
  json_t *call = json_pack("{s:o, s:s, s:{s:O, s:o}}", "id", own, "type", "function", "function", "name", name, "arguments", arguments_of(r->chat, arguments));
  PUSH(r->arena, r->call, r->n_calls, r->cap_calls, (Call){own, json_object_get(json_object_get(call, "function"), "name"), false});
  json_array_append_new(calls, call);
  return NULL;
}

static Err *take_calls(Reader *r, const json_t *list, const char *place, Content *c) {
  if (!list || json_is_null(list)) return NULL;
  if (!json_is_array(list)) return err_new(ERR_USAGE, "%s: expected an array, got %s", place, type_name(list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i), *f = json_object_get(item, "function");
    char *at = arena_printf(r->arena, f ? "%s[%zu].function" : "%s[%zu]", place, i);
    if (!json_is_object(item)) return err_new(ERR_USAGE, "%s: expected an object, got %s", at, type_name(item));
    if (!f) f = item;
    TRY(add_call(r, json_object_get(item, "id"), json_object_get(f, "name"), json_object_get(f, "arguments"), at, c->calls));
  }
  return NULL;
}

/* The call a result answers: by its id, or the first of the last turn's without one. */
static Err *find_call(Reader *r, const json_t *id, const char *place, Call **out) {
  if (id && !json_is_null(id) && !json_is_string(id)) return err_new(ERR_USAGE, "%s: expected a string, got %s", place, type_name(id));
  bool by_id = json_is_string(id) && json_string_length(id);
  for (int i = by_id ? 0 : r->n_turn; i < r->n_calls; i++) {
    Call *c = &r->call[by_id ? r->n_calls - 1 - i : i];
    if (c->is_answered || (by_id && !json_equal(c->id, id))) continue;
    c->is_answered = true;
    *out = c;
    return NULL;
  }
  if (by_id) return err_new(ERR_USAGE, "%s: no call before it that waits for a result has the id \"%s\"", place, json_string_value(id));
  return err_new(ERR_USAGE, "%s: missing, and no call before it waits for a result", place);
}

static Err *add_result(Reader *r, const json_t *id, const json_t *content, const char *place, const char *id_key, bool is_error) {
  Content c = {0};
  Call *call = NULL;
  Err *e = find_call(r, id, arena_printf(r->arena, "%s.%s", place, id_key), &call);
  if (!e) e = take_content(r, content, arena_printf(r->arena, "%s.content", place), &c);
  if (!e && is_error && strncmp(c.text.p ? c.text.p : "", "Error", 5)) {
    Str text = {0};
    str_addf(&text, "Error: %s", c.text.p ? c.text.p : "");
    str_free(&c.text);
    c.text = text;
  }
  if (!e) json_array_append_new(r->out, json_pack("{s:s, s:o, s:O, s:O}", "role", "tool", "content", content_value(&c), "tool_call_id", call->id, "name", call->name));
  content_free(&c);
  return e;
}

static void add_message(Reader *r, const char *role, const Content *c, const json_t *name) {
  json_t *m = json_object();
  bool null_content = json_array_size(c->calls) && !c->text.n && !c->has_images && r->chat->wants_null_content;
  json_object_set_new(m, "role", json_string(role));
  json_object_set_new(m, "content", null_content ? json_null() : content_value(c));
  if (c->reasoning.n && !strcmp(role, "assistant")) json_object_set_new(m, "reasoning_content", json_stringn(c->reasoning.p, c->reasoning.n));
  if (json_array_size(c->calls)) json_object_set(m, "tool_calls", c->calls);
  if (json_is_string(name)) json_object_set_new(m, "name", json_deep_copy(name));
  json_array_append_new(r->out, m);
}

/* ---- messages of chat completions ---- */

static Err *take_reasoning(const json_t *m, const char *place, Content *c) {
  static const char *const keys[] = {"reasoning_content", "reasoning", "thinking"};
  for (size_t i = 0; i < COUNT_OF(keys) && !c->reasoning.n; i++) {
    const json_t *v = json_object_get(m, keys[i]);
    if (!v || json_is_null(v) || json_is_object(v)) continue;
    if (!json_is_string(v)) return err_new(ERR_USAGE, "%s.%s: expected a string, got %s", place, keys[i], type_name(v));
    str_add_n(&c->reasoning, json_string_value(v), json_string_length(v));
  }
  return NULL;
}

static Err *take_assistant(Reader *r, const json_t *m, const char *place, Content *c) {
  const json_t *legacy = json_object_get(m, "function_call"), *refusal = json_object_get(m, "refusal");
  r->n_turn = r->n_calls;
  TRY(take_reasoning(m, place, c));
  TRY(take_calls(r, json_object_get(m, "tool_calls"), arena_printf(r->arena, "%s.tool_calls", place), c));
  if (json_is_object(legacy)) TRY(add_call(r, NULL, json_object_get(legacy, "name"), json_object_get(legacy, "arguments"), arena_printf(r->arena, "%s.function_call", place), c->calls));
  if (!c->text.n && json_is_string(refusal)) add_text(&c->text, refusal);
  return NULL;
}

static Err *read_message(Reader *r, const json_t *m, const char *place) {
  static const char *const roles[] = {"system", "user", "assistant", NULL};
  if (!json_is_object(m)) return err_new(ERR_USAGE, "%s: expected an object, got %s", place, type_name(m));
  const char *role = get_string(m, "role");
  if (!role) return err_new(ERR_USAGE, "%s.role: expected a string, got %s", place, type_name(json_object_get(m, "role")));
  if (!strcmp(role, "tool") || !strcmp(role, "function")) return add_result(r, json_object_get(m, "tool_call_id"), json_object_get(m, "content"), place, "tool_call_id", false);
  if (!strcmp(role, "developer")) role = "system";
  if (!is_one_of(role, roles)) return err_new(ERR_USAGE, "%s.role: unknown role \"%s\"", place, role);
  Content c = {.calls = json_array()};
  Err *e = take_content(r, json_object_get(m, "content"), arena_printf(r->arena, "%s.content", place), &c);
  if (!e && !strcmp(role, "assistant")) e = take_assistant(r, m, place, &c);
  if (!e) add_message(r, role, &c, json_object_get(m, "name"));
  content_free(&c);
  return e;
}

/* ---- messages with content blocks ---- */

/* A document of plain text; others cannot be shown. */
static Err *take_document(Reader *r, const json_t *b, const char *place, Content *c) {
  const json_t *source = json_object_get(b, "source");
  const char *type = get_string(source, "type");
  if (type && !strcmp(type, "text")) return take_text(json_object_get(source, "data"), place, "source.data", c);
  if (type && !strcmp(type, "content")) {
    Content inner = {0};
    Err *e = take_content(r, json_object_get(source, "content"), place, &inner);
    if (!e && inner.text.n) str_addf(&c->text, c->text.n ? "\n%s" : "%s", inner.text.p);
    content_free(&inner);
    return e;
  }
  return err_new(ERR_USAGE, "%s.source.type: only documents of text can be shown to the model", place);
}

static Err *take_block(Reader *r, const json_t *b, const char *place, bool is_assistant, Content *c) {
  bool taken;
  TRY(take_part(r, b, place, c, &taken));
  if (taken) return NULL;
  const char *type = get_string(b, "type");
  if (!strcmp(type, "tool_use") && is_assistant) return add_call(r, json_object_get(b, "id"), json_object_get(b, "name"), json_object_get(b, "input"), place, c->calls);
  if (!strcmp(type, "tool_result") && !is_assistant)
    return add_result(r, json_object_get(b, "tool_use_id"), json_object_get(b, "content"), place, "tool_use_id", json_is_true(json_object_get(b, "is_error")));
  if (!strcmp(type, "document")) return take_document(r, b, place, c);
  return err_new(ERR_USAGE, "%s.type: \"%s\" cannot be shown to the model", place, type);
}

static Err *read_blocks(Reader *r, const json_t *m, const char *place) {
  static const char *const roles[] = {"system", "user", "assistant", NULL};
  const char *role = get_string(m, "role");
  const json_t *content = json_object_get(m, "content");
  if (!json_is_object(m)) return err_new(ERR_USAGE, "%s: expected an object, got %s", place, type_name(m));
  if (!role || !is_one_of(role, roles)) return err_new(ERR_USAGE, "%s.role: expected \"user\" or \"assistant\", got %s", place, role ? role : type_name(json_object_get(m, "role")));
  bool is_assistant = !strcmp(role, "assistant");
  Content c = {.calls = json_array()};
  Err *e = NULL;
  if (is_assistant) r->n_turn = r->n_calls;
  if (!json_is_array(content)) e = take_content(r, content, arena_printf(r->arena, "%s.content", place), &c);
  else c.parts = json_array();
  for (size_t i = 0; !e && json_is_array(content) && i < json_array_size(content); i++)
    e = take_block(r, json_array_get(content, i), arena_printf(r->arena, "%s.content[%zu]", place, i), is_assistant, &c);
  bool only_results = !is_assistant && json_is_array(content) && json_array_size(content) && !c.text.n && !c.has_images;
  if (!e && !only_results) add_message(r, role, &c, NULL);
  content_free(&c);
  return e;
}

/* ---- the whole ---- */

static bool has_role(const json_t *m, const char *role) {
  const char *own = get_string(m, "role");
  return own && !strcmp(own, role);
}

/* The system texts in front are one. Empty ones are none. */
static void join_systems(json_t *messages) {
  Str text = {0};
  size_t n = 0;
  while (has_role(json_array_get(messages, n), "system") && json_is_string(json_object_get(json_array_get(messages, n), "content"))) {
    const json_t *c = json_object_get(json_array_get(messages, n++), "content");
    if (!json_string_length(c)) continue;
    if (text.n) str_add(&text, "\n\n");
    str_add_n(&text, json_string_value(c), json_string_length(c));
  }
  for (size_t i = 0; i < n; i++) json_array_remove(messages, 0);
  if (text.n) json_array_insert_new(messages, 0, json_pack("{s:s, s:o}", "role", "system", "content", json_stringn(text.p, text.n)));
  str_free(&text);
}

/* A last assistant message: empty ones go, a text is to be continued. */
static void take_prefill(json_t *messages, json_t *kwargs) {
  for (size_t n; (n = json_array_size(messages)) > 0;) {
    const json_t *m = json_array_get(messages, n - 1), *content = json_object_get(m, "content");
    if (!has_role(m, "assistant") || json_object_get(m, "tool_calls")) return;
    if (json_is_string(content) && json_string_length(content)) {
      json_object_set_new(kwargs, "continue_final_message", json_true());
      json_object_set_new(kwargs, "add_generation_prompt", json_false());
      return;
    }
    json_array_remove(messages, n - 1);
  }
}

static Err *read_all(Reader *r, TextDialect d, const json_t *body) {
  const json_t *messages = json_object_get(body, "messages"), *system = json_object_get(body, "system");
  if (d == TEXT_MESSAGES && system && !json_is_null(system)) {
    Content c = {0};
    Err *e = take_content(r, system, "system", &c);
    if (!e) add_message(r, "system", &c, NULL);
    content_free(&c);
    TRY(e);
  }
  if (!json_is_array(messages)) return err_new(ERR_USAGE, "messages: expected an array, got %s", type_name(messages));
  if (!json_array_size(messages)) return err_new(ERR_USAGE, "messages: expected at least one message");
  for (size_t i = 0; i < json_array_size(messages); i++) {
    char *place = arena_printf(r->arena, "messages[%zu]", i);
    TRY((d == TEXT_MESSAGES ? read_blocks : read_message)(r, json_array_get(messages, i), place));
  }
  return NULL;
}

/* How much the request wants the model to think, in any client's words. */
static TextThinking thinking_of(const json_t *body) {
  TextThinking t = {0};
  const json_t *thinking = json_object_get(body, "thinking"), *enable = json_object_get(body, "enable_thinking");
  const char *type = get_string(thinking, "type");
  t.effort = get_string(body, "reasoning_effort");
  if (!t.effort) t.effort = get_string(json_object_get(body, "reasoning"), "effort");
  if (!t.effort) t.effort = get_string(json_object_get(body, "output_config"), "effort");
  if (json_is_true(enable) || json_is_true(thinking) || (type && strcmp(type, "disabled"))) t.mode = TEXT_THINK_ON;
  if (json_is_false(enable) || json_is_false(thinking) || (type && !strcmp(type, "disabled"))) t.mode = TEXT_THINK_OFF;
  return t;
}

static Err *kwargs_of(const TextChat *c, const json_t *body, json_t **out) {
  const json_t *given = json_object_get(body, "chat_template_kwargs");
  if (given && !json_is_null(given) && !json_is_object(given)) return err_new(ERR_USAGE, "chat_template_kwargs: expected an object, got %s", type_name(given));
  TextThinking t = thinking_of(body);
  *out = json_is_object(given) ? json_deep_copy(given) : json_object();
  if (!json_object_get(*out, "add_generation_prompt")) json_object_set_new(*out, "add_generation_prompt", json_true());
  text_reason_kwargs(c->text, c->n, &t, *out);
  return NULL;
}

static bool has_calls(const json_t *messages) {
  for (size_t i = 0; i < json_array_size(messages); i++)
    if (json_object_get(json_array_get(messages, i), "tool_calls")) return true;
  return false;
}

Err *text_chat_request(const TextChat *c, TextDialect d, const json_t *body, json_t **out, json_t **tools_out) {
  Reader r = {.chat = c, .arena = arena_new("messages"), .out = json_array()};
  json_t *tools = NULL, *kwargs = NULL;
  Err *e = json_is_object(body) ? text_tools_normalise(json_object_get(body, "tools"), "tools", &tools) : err_new(ERR_USAGE, "expected an object, got %s", type_name(body));
  if (!e) e = kwargs_of(c, body, &kwargs);
  if (!e) e = read_all(&r, d, body);
  if (!e) {
    join_systems(r.out);
    take_prefill(r.out, kwargs);
    if (!json_array_size(r.out)) e = err_new(ERR_USAGE, "messages: nothing is left to answer");
  }
  if (!e) {
    if (has_calls(r.out) && !c->shows_calls) text_chat_write_calls(c, r.out);
    if (tools && !c->shows_tools) text_chat_write_tools(c, tools, r.out);
    json_t *request = json_pack("{s:O, s:O, s:o}", "messages", r.out, "kwargs", kwargs, "special_tokens", text_chat_special_tokens(c));
    if (tools && c->shows_tools) json_object_set(request, "tools", tools);
    else if (c->wants_tools) json_object_set_new(request, "tools", json_array());
    *out = request;
    *tools_out = json_incref(tools);
  }
  json_decref(tools);
  json_decref(kwargs);
  json_decref(r.out);
  arena_free(r.arena);
  return e;
}
