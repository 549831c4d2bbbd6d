/* Calls as grammars: what a template writes for a call is what its grammar takes, no more; and the reply of such a text is that call. All templates
   of the test set. */
#include "test.h"
#include "text/reply.h"

#define FOLDER "tests/text/templates"
static const struct tm now = {.tm_year = 126, .tm_mday = 1, .tm_wday = 4};

static json_t *tools_of_test(void) {
  return json_pack("[{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s}, s:{s:s}}, s:[s, s], s:b}}}, {s:s, s:{s:s, s:s, s:{s:s, s:{}}}}]", "type", "function", "function", "name", "look", "description", "Looks",
                   "parameters", "type", "object", "properties", "what", "type", "string", "often", "type", "integer", "required", "what", "often", "additionalProperties", 0,
                   "type", "function", "function", "name", "stop", "description", "Stops", "parameters", "type", "object", "properties");
}

/* The text of an answer with one call of look, as the template itself writes it: what stands behind the prompt of the question. */
static bool rendered_call(const TextChat *c, const json_t *tools, const char *name, json_t *arguments, Str *out) {
  json_t *call = json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", "abcde1234", "type", "function", "function", "name", name, "arguments", arguments);
  json_t *body = json_pack("{s:[{s:s, s:s}, {s:s, s:s, s:[o]}, {s:s, s:s, s:s, s:s}], s:O}", "messages", "role", "user", "content", "q", "role", "assistant", "content", "", "tool_calls", call, "role",
                           "tool", "tool_call_id", "abcde1234", "name", name, "content", "r", "tools", tools);
  json_t *request = NULL, *own = NULL;
  Err *e = text_chat_request(c, TEXT_CHAT_COMPLETIONS, body, &request, &own);
  if (!e) e = text_chat_render(c, request, &now, out, NULL);
  bool ok = !e;
  err_free(e);
  json_decref(request);
  json_decref(own);
  json_decref(body);
  return ok;
}

static bool accepts(GrammarMatcher *m, const char *p, size_t n) {
  GrammarState *s = grammar_state_start(m), *next = NULL;
  Err *e = grammar_state_accept(s, p, n, &next);
  bool ok = !e && next && grammar_state_may_end(next);
  err_free(e);
  grammar_state_unref(s);
  grammar_state_unref(next);
  return ok;
}

/* The longest part of the text that the grammar takes as a whole. */
static size_t longest(GrammarMatcher *m, const Str *text, size_t *at) {
  size_t best = 0;
  for (size_t i = 0; i < text->n; i++) {
    GrammarState *s = grammar_state_start(m), *next = NULL;
    for (size_t k = i; s && k < text->n; k++) {
      EXPECT_OK(grammar_state_accept(s, text->p + k, 1, &next));
      if (next && k + 1 - i > best && grammar_state_may_end(next)) best = k + 1 - i, *at = i;
      grammar_state_unref(s);
      s = next;
    }
    grammar_state_unref(s);
  }
  return best;
}

static void check_reply(const char *label, const TextChat *c, const json_t *tools, const char *p, size_t n) {
  TextReplyOptions o = {.tools = tools};
  TextReply *r = text_reply_new(c->syntax, c->reason, &o);
  TextCollect collect = {0};
  text_reply_feed(r, p, n, text_collect_event, &collect);
  text_reply_end(r, text_collect_event, &collect);
  json_t *message = text_collect_message(&collect), *f = json_object_get(json_array_get(json_object_get(message, "tool_calls"), 0), "function");
  const char *name = json_string_value(json_object_get(f, "name")), *args = json_string_value(json_object_get(f, "arguments"));
  EXPECT(name && !strcmp(name, "look") && args && !strcmp(args, "{\"what\": \"a b\", \"often\": 3}"), "%s: %.*s is read as %s(%s)", label, (int)n, p, name ? name : "none", args ? args : "");
  json_decref(message);
  text_collect_free(&collect);
  text_reply_free(r);
}

typedef struct Count { int n_forms, n_triggers, n_refused; } Count;

static void check_template(const char *label, const TextChat *c, Count *count) {
  Arena *a = arena_new("calls");
  json_t *tools = tools_of_test();
  TextCallsOptions o = {.tools = tools};
  Grammar *g = NULL, *behind = NULL;
  const char *trigger = "";
  Str text = {0}, wrong = {0};
  Err *e = text_chat_calls(a, c, &o, &g, NULL);
  count->n_refused += e && err_kind(e) == ERR_UNSUPPORTED;
  EXPECT(!e || err_kind(e) == ERR_UNSUPPORTED, "%s: %s", label, e ? err_text(e) : "");
  err_free(e);
  if (g && rendered_call(c, tools, "look", json_pack("{s:s, s:i}", "what", "a b", "often", 3), &text)) {
    GrammarMatcher *m = grammar_matcher_new(g, NULL);
    size_t at = 0, n = longest(m, &text, &at);
    count->n_forms++;
    EXPECT(n > 0, "%s: nothing of %s is a call", label, text.p + (text.n > 300 ? text.n - 300 : 0));
    if (n) check_reply(label, c, tools, text.p + at, n);
    EXPECT(rendered_call(c, tools, "look", json_pack("{s:s, s:s}", "what", "a b", "often", "3"), &wrong));
    EXPECT(!longest(m, &wrong, &at), "%s: takes a text for an integer", label);
    grammar_matcher_free(m);
    e = text_chat_calls(a, c, &o, &behind, &trigger);
    if (!e && n) {
      GrammarMatcher *b = grammar_matcher_new(behind, NULL);
      size_t k = strlen(trigger);
      count->n_triggers++;
      EXPECT(k && !memcmp(text.p + at, trigger, k) && accepts(b, text.p + at + k, n - k), "%s: trigger %s", label, trigger);
      grammar_matcher_free(b);
    }
    err_free(e);
  }
  grammar_free(g);
  grammar_free(behind);
  str_free(&text);
  str_free(&wrong);
  json_decref(tools);
  arena_free(a);
}

static void check_all(void) {
  json_t *templates = json_load_file(FOLDER "/templates.json", 0, NULL), *about;
  const char *name;
  Count count = {0};
  CHECK(templates, "test data is missing");
  json_object_foreach(templates, name, about) {
    Arena *a = arena_new("template");
    Str src = {0};
    TextChat *c = NULL;
    EXPECT_OK(os_read_file(arena_printf(a, FOLDER "/templates/%s.jinja", name), 1 << 22, &src));
    EXPECT_OK(text_chat_new(a, src.p, src.n, json_object_get(about, "special_tokens"), &c));
    int was = count.n_refused;
    if (c) check_template(name, c, &count);
    if (getenv("LUMEN_SHOW")) fprintf(stderr, "%s %s\n", count.n_refused > was ? "refused" : "form", name);
    str_free(&src);
    arena_free(a);
  }
  if (getenv("LUMEN_SHOW")) fprintf(stderr, "%d forms, %d triggers, %d refused\n", count.n_forms, count.n_triggers, count.n_refused);
  EXPECT(count.n_forms >= 20 && count.n_triggers >= 20, "%d forms, %d triggers, %d refused", count.n_forms, count.n_triggers, count.n_refused);
  json_decref(templates);
}

int main(void) {
  TEST("a template's own calls are what its grammar takes, and are read as calls") check_all();
  TEST_MAIN_END();
}
