/* What a chat template can show, and prompts from it. In: a template's text; requests in the form of message.c. Out: facts found by rendering
   small conversations with words that cannot be in a template, so that no template is known by its name; prompts. */
#include <stdlib.h>
#include <string.h>
#include "text/message.h"
#include "text/replyparts.h"
#include "text/toolcall.h"

#define WORD "qzword"
static const struct tm probe_time = {.tm_year = 126, .tm_mday = 1, .tm_wday = 4};

json_t *text_chat_special_tokens(const TextChat *c) {
  return c->special_tokens ? json_deep_copy(c->special_tokens) : json_pack("{s:s, s:s}", "bos_token", "", "eos_token", "");
}

json_t *text_chat_probe_tools(void) {
  return json_pack("[{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s, s:s}}, s:[s]}}}]", "type", "function", "function", "name", WORD "fn", "description", "d", "parameters", "type", "object",
                   "properties", WORD "key", "type", "string", "description", "d", "required", WORD "key");
}

/* Whether the template shows these words of messages (stolen). */
static bool shows(const TextChat *c, json_t *messages, bool has_tools, const char *const *words) {
  Str out = {0};
  json_t *request = json_pack("{s:o, s:{s:b}, s:o}", "messages", messages, "kwargs", "add_generation_prompt", 1, "special_tokens", text_chat_special_tokens(c));
  CHECK(request, "a probe is no JSON");
  if (c->wants_tools) json_object_set_new(request, "tools", json_array());
  if (has_tools)
    json_object_set_new(request, "tools", text_chat_probe_tools());
  Err *e = text_template_chat(c->template, request, &probe_time, &out);
  bool ok = !e && out.n;
  for (; ok && *words; words++) ok = strstr(out.p, *words) != NULL;
  err_free(e);
  str_free(&out);
  json_decref(request);
  return ok;
}

static json_t *text_message(const char *role, const char *text) { return json_pack("{s:s, s:s}", "role", role, "content", text); }

static json_t *call_conversation(bool null_content, bool text_arguments) {
  json_t *arguments = text_arguments ? json_string("{\"" WORD "key\": \"" WORD "value\"}") : json_pack("{s:s}", WORD "key", WORD "value");
  json_t *call = json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", "call00001", "type", "function", "function", "name", WORD "fn", "arguments", arguments);
  json_t *assistant = json_pack("{s:s, s:o, s:[o]}", "role", "assistant", "content", null_content ? json_null() : json_string(""), "tool_calls", call);
  json_t *tool = json_pack("{s:s, s:s, s:s, s:s}", "role", "tool", "content", WORD "result", "tool_call_id", "call00001", "name", WORD "fn");
  return json_pack("[o, o, o]", text_message("user", "a"), assistant, tool);
}

static void find_calls(TextChat *c) {
  static const char *const words[] = {WORD "key", WORD "value", NULL}, *const result[] = {WORD "result", NULL};
  for (int form = 0; form < 4 && !c->shows_calls; form++) {
    bool null_content = form & 1, text_arguments = form & 2;
    if (!shows(c, call_conversation(null_content, text_arguments), false, words)) continue;
    c->shows_calls = true;
    c->wants_null_content = null_content;
    c->wants_text_arguments = text_arguments;
  }
  json_t *messages = call_conversation(c->wants_null_content, c->wants_text_arguments), *assistant = json_array_get(messages, 1);
  if (!c->shows_calls) json_object_del(assistant, "tool_calls"), json_object_set_new(assistant, "content", json_string("b"));
  c->shows_results = shows(c, messages, false, result);
}

Err *text_chat_new(Arena *a, const char *template_text, size_t n, const json_t *special_tokens, TextChat **out) {
  static const char *const word[] = {WORD, NULL}, *const fn[] = {WORD "fn", NULL};
  TextTemplate *t;
  TRY(text_template_parse(a, template_text, n, &t));
  TextChat *c = ARENA_NEW(a, TextChat);
  *c = (TextChat){.template = t, .text = arena_dup_n(a, template_text, n), .n = n, .special_tokens = special_tokens,
    .syntax = text_syntax_find(template_text, n), .reason = text_reason_find(template_text, n), .shows_images = memmem(template_text, n, "image", 5) != NULL};
  c->wants_tools = !shows(c, json_pack("[o]", text_message("user", WORD)), false, word) && shows(c, json_pack("[o]", text_message("user", WORD)), true, word);
  c->shows_system = shows(c, json_pack("[o, o]", text_message("system", WORD), text_message("user", "a")), false, word);
  c->shows_late_system = shows(c, json_pack("[o, o, o, o]", text_message("user", "a"), text_message("assistant", "b"), text_message("system", WORD), text_message("user", "c")), false, word);
  c->shows_tools = shows(c, json_pack("[o]", text_message("user", "a")), true, fn);
  find_calls(c);
  *out = c;
  return NULL;
}

/* ---- calls as the model would have written them ---- */

static void python_literal(Str *out, const json_t *v) {
  const char *key;
  json_t *item;
  size_t i;
  char *s;
  switch (json_typeof(v)) {
    case JSON_TRUE: str_add(out, "True"); return;
    case JSON_FALSE: str_add(out, "False"); return;
    case JSON_NULL: str_add(out, "None"); return;
    case JSON_ARRAY:
      str_add_c(out, '[');
      json_array_foreach(v, i, item) {
        if (i) str_add(out, ", ");
        python_literal(out, item);
      }
      str_add_c(out, ']');
      return;
    case JSON_OBJECT:
      str_add_c(out, '{');
      json_object_foreach((json_t *)v, key, item) {
        if (out->p[out->n - 1] != '{') str_add(out, ", ");
        tool_string_add(out, key, strlen(key));
        str_add(out, ": ");
        python_literal(out, item);
      }
      str_add_c(out, '}');
      return;
    default:
      s = json_dumps(v, JSON_ENCODE_ANY);
      str_add(out, s ? s : "None");
      free(s);
  }
}

static void write_json(Str *out, const json_t *v) {
  char *s = json_dumps(v, JSON_ENCODE_ANY);
  str_add(out, s ? s : "{}");
  free(s);
}

static void write_python(Str *out, const char *name, const json_t *args) {
  const char *key;
  json_t *v;
  bool first = true;
  str_addf(out, "[%s(", name);
  json_object_foreach((json_t *)args, key, v) {
    str_addf(out, first ? "%s=" : ", %s=", key);
    python_literal(out, v);
    first = false;
  }
  str_add(out, ")]");
}

/* {key:<|"|>text<|"|>,key:1}: for values that have no other writing it is JSON's. */
static void write_braces(Str *out, const json_t *v) {
  const char *key, *sep = "";
  json_t *item;
  size_t i;
  bool is_list = json_is_array(v);
  if (json_is_string(v)) str_addf(out, "<|\"|>%s<|\"|>", json_string_value(v));
  else if (!is_list && !json_is_object(v)) write_json(out, v);
  else {
    str_add_c(out, is_list ? '[' : '{');
    if (is_list) json_array_foreach(v, i, item) str_add(out, sep), write_braces(out, item), sep = ",";
    else json_object_foreach((json_t *)v, key, item) str_addf(out, "%s%s:", sep, key), write_braces(out, item), sep = ",";
    str_add_c(out, is_list ? ']' : '}');
  }
}

static void write_value(Str *out, const json_t *v) {
  if (json_is_string(v)) str_add_n(out, json_string_value(v), json_string_length(v));
  else write_json(out, v);
}

static void write_part(Str *out, const ToolPart *p, const json_t *call, int index, const char *key, const json_t *v) {
  const json_t *f = json_object_get(call, "function"), *args = json_object_get(f, "arguments");
  const char *name = json_string_value(json_object_get(f, "name")), *id = json_string_value(json_object_get(call, "id"));
  if (p->kind == TOOL_LITERAL || p->kind == TOOL_WRITTEN) str_add_n(out, p->text, (size_t)p->n);
  switch (p->what) {
    case 'n': str_add(out, name); return;
    case 'f': /* an id of another kind would leave the name out */
      if (id && strstr(id, name)) str_add(out, id);
      else str_addf(out, "functions.%s:%d", name, index);
      return;
    case 'i': str_add(out, id); return;
    case 'a': write_value(out, args); return;
    case 'g':
      if (json_is_string(args)) write_value(out, args);
      else write_braces(out, args);
      return;
    case 'o': str_addf(out, "[{\"name\": \"%s\", \"arguments\": ", name); write_value(out, args); str_add(out, "}]"); return;
    case 'p': write_python(out, name, args); return;
    case 'k': str_add(out, key); return;
    case 's': str_add(out, json_is_string(v) ? "true" : "false"); return;
    case 'v': write_value(out, v); return;
    case 'w': str_add_c(out, '\n'); write_value(out, v); str_add_c(out, '\n'); return;
    default: return;
  }
}

static bool is_in_template(const TextChat *c, const ToolPart *p) { return memmem(c->text, c->n, p->text, (size_t)p->n) != NULL; }

void text_chat_write_call(const TextChat *c, Str *out, const ToolPattern *p, const json_t *call, int index) {
  const json_t *args = json_object_get(json_object_get(call, "function"), "arguments");
  bool is_certain = false, is_told = !p->is_bare && is_in_template(c, &p->part[0]);
  for (int i = 0; i < p->n_parts; i++) {
    const char *key;
    json_t *v;
    is_certain |= p->part[i].kind == TOOL_CERTAIN;
    if (is_certain && is_told && p->part[i].kind == TOOL_LITERAL && !is_in_template(c, &p->part[i])) continue;
    if (p->part[i].kind != TOOL_LOOP) {
      write_part(out, &p->part[i], call, index, "", NULL);
      continue;
    }
    json_object_foreach((json_t *)args, key, v)
      for (int k = i + 1; k < p->part[i].to; k++) write_part(out, &p->part[k], call, index, key, v);
    i = p->part[i].to - 1;
  }
}

void text_chat_write_calls(const TextChat *c, json_t *messages) {
  ToolPattern pattern;
  size_t i, k;
  json_t *m, *call;
  tool_pattern_compile(c->syntax->pattern[0], &pattern);
  json_array_foreach(messages, i, m) {
    json_t *calls = json_object_get(m, "tool_calls"), *content = json_object_get(m, "content");
    Str text = {0};
    if (!calls) continue;
    if (json_is_string(content)) str_add_n(&text, json_string_value(content), json_string_length(content));
    json_array_foreach(calls, k, call) {
      if (text.n) str_add_c(&text, '\n');
      text_chat_write_call(c, &text, &pattern, call, (int)k);
    }
    json_object_set_new(m, "content", json_stringn(text.p, text.n));
    json_object_del(m, "tool_calls");
    str_free(&text);
  }
}

void text_chat_write_tools(const TextChat *c, const json_t *tools, json_t *messages) {
  Str text = {0};
  ToolPattern pattern;
  json_t *sample = json_pack("{s:s, s:{s:s, s:{s:s}}}", "id", "call00001", "function", "name", "NAME", "arguments", "PARAMETER", "VALUE"), *first = json_array_get(messages, 0);
  const json_t *own = json_object_get(first, "content");
  bool is_system = json_is_string(own) && !strcmp(json_string_value(json_object_get(first, "role")), "system");
  if (is_system) str_addf(&text, "%s\n\n", json_string_value(own));
  str_add(&text, "# Tools\n\nYou may call these functions, each described by a JSON text with the schema of its parameters:\n<tools>\n");
  for (size_t i = 0; i < json_array_size(tools); i++) {
    write_json(&text, json_object_get(json_array_get(tools, i), "function"));
    str_add_c(&text, '\n');
  }
  str_add(&text, "</tools>\n\nTo call a function, write exactly this, with its name and its parameters, once for each call:\n");
  tool_pattern_compile(c->syntax->pattern[0], &pattern);
  text_chat_write_call(c, &text, &pattern, sample, 0);
  json_t *content = json_stringn(text.p, text.n);
  if (is_system) json_object_set_new(first, "content", content);
  else json_array_insert_new(messages, 0, json_pack("{s:s, s:o}", "role", "system", "content", content));
  json_decref(sample);
  str_free(&text);
}

/* ---- milder forms of a conversation ---- */

static bool has_role(const json_t *m, const char *role) {
  const char *own = json_string_value(json_object_get(m, "role"));
  return own && !strcmp(own, role);
}

static bool has_text(const json_t *m) { return json_is_string(json_object_get(m, "content")) && !json_object_get(m, "tool_calls"); }

/* b's text behind a's, with a blank line between. */
static void join_into(json_t *a, const json_t *b) {
  json_object_set_new(a, "content", json_sprintf("%s\n\n%s", json_string_value(json_object_get(a, "content")), json_string_value(json_object_get(b, "content"))));
}

/* Results as user texts, for templates that would leave them out. */
static void results_to_users(json_t *messages) {
  size_t i;
  json_t *m;
  json_array_foreach(messages, i, m) {
    if (!has_role(m, "tool")) continue;
    const char *name = json_string_value(json_object_get(m, "name"));
    const json_t *content = json_object_get(m, "content");
    if (json_is_string(content)) json_object_set_new(m, "content", json_sprintf("Result of %s:\n%s", name ? name : "the tool", json_string_value(content)));
    json_object_set_new(m, "role", json_string("user"));
    json_object_del(m, "tool_call_id");
    json_object_del(m, "name");
  }
}

static void late_systems_to_users(json_t *messages) {
  size_t i;
  json_t *m;
  json_array_foreach(messages, i, m) if (i && has_role(m, "system")) json_object_set_new(m, "role", json_string("user"));
}

/* The system text in front of the first user's, or as a user's where there is none. */
static void system_to_user(json_t *messages) {
  json_t *system = json_array_get(messages, 0);
  if (!has_role(system, "system") || !has_text(system)) return;
  json_t *next = json_array_get(messages, 1);
  json_object_set_new(system, "role", json_string("user"));
  if (!next || !has_role(next, "user") || !has_text(next)) return;
  join_into(system, next);
  json_array_remove(messages, 1);
}

static void join_neighbours(json_t *messages) {
  for (size_t i = 1; i < json_array_size(messages);) {
    json_t *a = json_array_get(messages, i - 1), *b = json_array_get(messages, i);
    bool same = (has_role(a, "user") && has_role(b, "user")) || (has_role(a, "assistant") && has_role(b, "assistant"));
    if (!same || !has_text(a) || !has_text(b)) {
      i++;
      continue;
    }
    join_into(a, b);
    json_array_remove(messages, i);
  }
}

/* What would be left out without a word is put where it is seen. */
static void make_visible(const TextChat *c, json_t *messages) {
  if (!c->shows_results) results_to_users(messages);
  if (!c->shows_late_system) late_systems_to_users(messages);
  if (!c->shows_system) system_to_user(messages);
}

Err *text_chat_render(const TextChat *c, const json_t *request, const struct tm *now, Str *out, Str *user) {
  json_t *own = json_deep_copy(request), *messages = json_object_get(own, "messages");
  make_visible(c, messages);
  Err *first = text_template_chat_marked(c->template, own, now, out, user);
  Err *e = first;
  if (e && text_tools_complete(json_object_get(own, "tools"))) e = text_template_chat_marked(c->template, own, now, out, user);
  for (int form = 0; e && form < 3; form++) {
    if (form == 0) late_systems_to_users(messages);
    else if (form == 1) system_to_user(messages);
    else join_neighbours(messages);
    if (e != first) err_free(e);
    e = text_template_chat_marked(c->template, own, now, out, user);
  }
  if (e != first) err_free(e);
  if (!e) err_free(first), first = NULL;
  json_decref(own);
  return first;
}
