/* tests/reply/messages.txt: requests in clients' shapes, what the template gets of them, and the prompts. And back: what templates write for
   calls in the history is what models write, so each template's own words for a golden conversation are read as a reply. */
#include "reply_cases.h"

static const struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 30, .tm_wday = 1};

static TextChat *chat_open(Arena *a, const char *path, const json_t *special) {
  Str text = {0};
  TextChat *c = NULL;
  EXPECT_OK(os_read_file(path, 1 << 20, &text));
  EXPECT_OK(text_chat_new(a, text.p ? text.p : "", text.n, special, &c));
  str_free(&text);
  return c;
}

static void expect_json(const json_t *expect, const char *key, const json_t *got) {
  const json_t *want = json_object_get(expect, key);
  if (!want) return;
  char *g = got ? json_dumps(got, JSON_ENCODE_ANY) : NULL, *w = json_dumps(want, JSON_ENCODE_ANY);
  EXPECT(json_equal(want, got) || (json_is_null(want) && !got), "%s: %s, expected %s", key, g, w);
  free(g);
  free(w);
}

static void expect_prompt(const TextChat *c, const json_t *expect, const json_t *request) {
  const json_t *parts = json_object_get(expect, "prompt");
  const char *error = json_string_value(json_object_get(expect, "prompt_error")), *absent = json_string_value(json_object_get(expect, "not_in_prompt"));
  Str out = {0};
  if (!parts && !error) return;
  Err *e = text_chat_render(c, request, &now, &out, NULL);
  if (error) EXPECT(e && strstr(err_text(e), error), "%s, expected %s", e ? err_text(e) : out.p, error);
  else EXPECT(!e, "%s", err_text(e));
  const char *at = out.p;
  for (size_t i = 0; at && i < json_array_size(parts); i++) {
    const char *part = json_string_value(json_array_get(parts, i));
    at = strstr(at, part);
    EXPECT(at, "\"%s\" is not in its place in %s", part, out.p);
    at = at ? at + strlen(part) : NULL;
  }
  if (absent && out.p) EXPECT(!strstr(out.p, absent), "\"%s\" is in %s", absent, out.p);
  err_free(e);
  str_free(&out);
}

static void check_request(const TextChat *c, TextDialect d, const char *body_text, const char *expect_text) {
  json_error_t where;
  json_t *body = json_loads(body_text, 0, &where), *expect = json_loads(expect_text, 0, &where), *request = NULL, *tools = NULL;
  EXPECT(body && expect, "the case's JSON: %s", where.text);
  const char *error = json_string_value(json_object_get(expect, "error"));
  Err *e = text_chat_request(c, d, body, &request, &tools);
  if (error) EXPECT(e && err_kind(e) == ERR_USAGE && strstr(err_text(e), error), "%s, expected %s", e ? err_text(e) : "taken", error);
  else EXPECT(!e, "%s", err_text(e));
  if (!e) {
    const char *key;
    json_t *v;
    expect_json(expect, "messages", json_object_get(request, "messages"));
    expect_json(expect, "tools", tools);
    json_object_foreach(json_object_get(expect, "kwargs"), key, v) expect_json(json_object_get(expect, "kwargs"), key, json_object_get(json_object_get(request, "kwargs"), key));
    expect_prompt(c, expect, request);
  }
  err_free(e);
  json_decref(body);
  json_decref(expect);
  json_decref(request);
  json_decref(tools);
}

static void test_requests(void) {
  Str text = {0};
  Arena *a = arena_new("chats");
  TextChat *c = NULL;
  TextDialect d = TEXT_CHAT_COMPLETIONS;
  char name[200] = "";
  EXPECT_OK(os_read_file("tests/reply/messages.txt", 1 << 20, &text));
  for (char *line = strtok(text.p, "\n"); line; line = strtok(NULL, "\n")) {
    if (!strncmp(line, "template ", 9)) {
      char path[300];
      snprintf(path, sizeof path, "tests/text/templates/templates/%s", line + 9);
      c = chat_open(a, path, NULL);
    } else if (!strncmp(line, "dialect ", 8)) d = strcmp(line + 8, "anthropic") ? TEXT_CHAT_COMPLETIONS : TEXT_MESSAGES;
    else if (!strncmp(line, "case ", 5)) snprintf(name, sizeof name, "%s %s", d == TEXT_MESSAGES ? "blocks:" : "messages:", line + 5);
    else if (!strcmp(line, "<<<")) {
      char *body = strtok(NULL, "\n"), *mark = strtok(NULL, "\n"), *expect = strtok(NULL, "\n");
      TEST(name) {
        EXPECT(mark && !strcmp(mark, ">>>") && expect, "the case's form");
        check_request(c, d, body, expect);
      }
    } else EXPECT(*line == '#', "what is \"%s\"?", line);
  }
  str_free(&text);
  arena_free(a);
}

/* ---- templates' own words as replies ---- */

/* The conversation up to and with its first assistant message. */
static json_t *cut_conversation(const json_t *conversation, bool with_assistant) {
  json_t *out = json_deep_copy(conversation), *messages = json_object_get(out, "messages");
  size_t n = 0;
  while (n < json_array_size(messages) && strcmp(json_string_value(json_object_get(json_array_get(messages, n), "role")), "assistant")) n++;
  while (json_array_size(messages) > n + with_assistant) json_array_remove(messages, json_array_size(messages) - 1);
  return out;
}

static bool render(const TextChat *c, json_t *request, bool prompt, Str *out) {
  json_object_set_new(request, "kwargs", json_pack("{s:b}", "add_generation_prompt", prompt));
  Err *e = text_template_chat(c->template, request, &now, out);
  bool ok = !e && out->n;
  err_free(e);
  json_decref(request);
  return ok;
}

static size_t common(const Str *a, const Str *b) {
  size_t n = 0;
  while (n < a->n && n < b->n && a->p[n] == b->p[n]) n++;
  return n;
}

static size_t common_end(const Str *a, const Str *b) {
  size_t n = 0;
  while (n < a->n && n < b->n && a->p[a->n - 1 - n] == b->p[b->n - 1 - n]) n++;
  return n;
}

/* What stands behind an assistant's message: the end of one with a plain text. */
static void text_behind(const TextChat *c, const json_t *conversation, Str *out) {
  Str s = {0};
  json_t *r = cut_conversation(conversation, false);
  json_array_append_new(json_object_get(r, "messages"), json_pack("{s:s, s:s}", "role", "assistant", "content", "qzend"));
  const char *at = render(c, r, false, &s) ? strstr(s.p, "qzend") : NULL;
  if (at) str_add(out, at + 5);
  str_free(&s);
}

static void check_round(const TextChat *c, const json_t *conversation, int *n_checked) {
  Str asked = {0}, answered = {0}, behind = {0};
  json_t *cut = cut_conversation(conversation, true);
  const json_t *assistant = json_array_get(json_object_get(cut, "messages"), json_array_size(json_object_get(cut, "messages")) - 1);
  json_t *want = json_deep_copy(json_object_get(assistant, "tool_calls"));
  if (render(c, cut, false, &answered) && render(c, cut_conversation(conversation, false), true, &asked)) {
    text_behind(c, conversation, &behind);
    size_t at = common(&asked, &answered), end = answered.n - common_end(&answered, &behind);
    for (size_t back = at; at < asked.n && back && back + 20 > at && answered.p[back] != '>'; back--)
      if (answered.p[back] == '<') at = back; /* two markers that begin alike */
    size_t n_shown = strstr(answered.p + at, "부산") || strstr(answered.p + at, "\\ubd80") ? json_array_size(want) : 1; /* some templates show one call only */
    TextReplyOptions o = {.tools = json_object_get(conversation, "tools")};
    TextReply *r = text_reply_new(c->syntax, c->reason, &o);
    TextCollect got = {0};
    text_reply_prompt(r, answered.p, at);
    if (end > at) text_reply_feed(r, answered.p + at, end - at, text_collect_event, &got);
    text_reply_end(r, text_collect_event, &got);
    bool same = json_array_size(got.calls) == n_shown;
    for (size_t i = 0; same && i < n_shown; i++) {
      const json_t *f = json_object_get(json_array_get(got.calls, i), "function"), *w = json_object_get(json_array_get(want, i), "function");
      json_t *args = json_loads(json_string_value(json_object_get(f, "arguments")), 0, NULL);
      same = json_equal(args, json_object_get(w, "arguments")) && json_equal(json_object_get(f, "name"), json_object_get(w, "name"));
      json_decref(args);
    }
    char *calls = json_dumps(got.calls ? got.calls : want, 0);
    EXPECT(same, "%s / %s gives %s and content %s", text_syntax_name(c->syntax), answered.p + at, calls, got.content.p);
    free(calls);
    text_reply_free(r);
    text_collect_free(&got);
    ++*n_checked;
  }
  json_decref(want);
  str_free(&asked);
  str_free(&answered);
  str_free(&behind);
}

static void test_rounds(void) {
  json_t *conversations, *facts;
  int n = 0, n_templates = 0;
  EXPECT_OK(json_parse_file("tests/text/templates/conversations.json", 1 << 24, &conversations));
  EXPECT_OK(json_parse_file("tests/text/templates/templates.json", 1 << 24, &facts));
  static const char *const names[] = {"tool_call_dict", "tool_parallel", "reasoning_tool"};
  const char *name;
  json_t *fact;
  json_object_foreach(facts, name, fact) {
    char path[300], title[300];
    snprintf(path, sizeof path, "tests/text/templates/templates/%s.jinja", name);
    snprintf(title, sizeof title, "a template's own calls are read: %s", name);
    Arena *a = arena_new("chat");
    const json_t *special = json_object_get(fact, "special_tokens");
    int before = n;
    TEST(title) {
      TextChat *c = chat_open(a, path, special);
      for (size_t k = 0; k < COUNT_OF(names) && c->shows_calls; k++) {
        json_t *conversation = json_deep_copy(json_object_get(conversations, names[k]));
        json_object_set_new(conversation, "special_tokens", json_deep_copy(special));
        check_round(c, conversation, &n);
        json_decref(conversation);
      }
    }
    n_templates += n > before;
    arena_free(a);
  }
  TEST("enough templates show calls") EXPECT(n_templates > 25 && n > 70, "%d templates, %d conversations", n_templates, n);
  json_decref(conversations);
  json_decref(facts);
}

int main(void) {
  test_requests();
  test_rounds();
  TEST_MAIN_END();
}
