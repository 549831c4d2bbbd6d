/* Every case of tests/reply: read whole, byte by byte and cut in two at every byte, whole calls and eager: what was expected, and the same.
   And whether the grammar that a model's calls are held to would have let the reply through. */
#include <glob.h>
#include "reply_cases.h"

static void set_file(Str *out, const char *folder, const char *name) {
  char path[400];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  str_clear(out);
  EXPECT_OK(os_read_file(path, 1 << 20, out));
}

static void add_string(json_t *o, const char *key, const json_t *v) {
  if (v && !json_is_null(v) && json_string_length(v)) json_object_set(o, key, (json_t *)v);
}

/* {reasoning?, content?, calls?: [[name, arguments, id?]]} of a message, with ids where the expected call has one. */
static json_t *as_expected(const json_t *message, const json_t *expect, bool is_eager) {
  json_t *o = json_object(), *calls = json_array(), *wanted = json_object_get(expect, "calls");
  add_string(o, "reasoning", json_object_get(message, "reasoning_content"));
  add_string(o, "content", json_object_get(message, "content"));
  const json_t *given = json_object_get(message, "tool_calls");
  for (size_t i = 0; i < json_array_size(given); i++) {
    const json_t *c = json_array_get(given, i), *f = json_object_get(c, "function");
    json_t *args = json_loads(json_string_value(json_object_get(f, "arguments")), JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    json_t *call = json_pack("[O, o]", json_object_get(f, "name"), args ? args : json_string("NO JSON"));
    const json_t *id = json_array_get(json_array_get(wanted, i), 2);
    if (id) json_array_append(call, is_eager ? (json_t *)id : json_object_get(c, "id")); /* eager: an id behind the arguments comes too late */
    json_array_append_new(calls, call);
  }
  if (json_array_size(calls)) json_object_set(o, "calls", calls);
  json_decref(calls);
  return o;
}

static void check_expected(const ReplyCase *c, const Heard *h, const char *how) {
  json_error_t where;
  json_t *expect = json_loadb(c->expect.p, c->expect.n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &where);
  json_t *message = text_collect_message(&h->collect), *got = as_expected(message, expect, *how == 'e');
  char *s = json_dumps(got, 0);
  EXPECT(expect, "the case's JSON: %s", where.text);
  json_object_del(expect, "held");
  EXPECT(json_equal(expect, got), "%s: got %s, expected %s", how, s, c->expect.p);
  free(s);
  json_decref(expect);
  json_decref(got);
  json_decref(message);
}

static void check_same(const Heard *a, Heard b, const char *how, size_t cut) {
  bool same = a->text.n == b.text.n && (!a->text.n || !memcmp(a->text.p, b.text.p, a->text.n));
  EXPECT(same, "%s %zu: got %s, expected %s", how, cut, b.text.p, a->text.p);
  heard_free(&b);
}

static const char *held_as(const ReplyCase *c) {
  Arena *a = arena_new("test");
  TextChat *chat;
  Grammar *g = NULL;
  json_t *tools = NULL;
  const char *how = "no";
  EXPECT_OK(text_chat_new(a, c->template.p, c->template.n, NULL, &chat));
  EXPECT_OK(text_tools_normalise(c->tools, "tools", &tools));
  EXPECT_OK(text_chat_calls(chat, &(TextCallsOptions){.tools = tools, .many = true, .may_answer = true}, &g));
  GrammarMatcher *m = grammar_matcher_new(g, NULL);
  GrammarState *s = grammar_state_start(m), *next = NULL;
  EXPECT_OK(grammar_state_accept(s, c->output.p, c->output.n, &next));
  if (next) how = grammar_state_may_end(next) ? "whole" : "cut";
  grammar_state_unref(next);
  grammar_state_unref(s);
  grammar_matcher_free(m);
  grammar_free(g);
  json_decref(tools);
  arena_free(a);
  return how;
}

/* Of a reply with calls: a model that is held may write it, as a whole or up to here, or not. */
static void check_held(const ReplyCase *c) {
  json_t *expect = json_loadb(c->expect.p, c->expect.n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
  const char *want = json_string_value(json_object_get(expect, "held")), *how = json_object_get(expect, "calls") ? held_as(c) : NULL;
  EXPECT(!how || !strcmp(how, want ? want : "whole"), "held: %s, expected %s", how, want ? want : "whole");
  json_decref(expect);
}

static void check_case(ReplyCase *c, const char *file) {
  char name[300];
  snprintf(name, sizeof name, "%s: %s", file, c->name);
  TEST(name) {
    for (int eager = 0; eager < 2; eager++) {
      Heard whole = listen(c, 0, 0, eager);
      check_expected(c, &whole, eager ? "eager" : "whole");
      check_same(&whole, listen(c, 0, 1, eager), "steps of", 1);
      check_same(&whole, listen(c, 0, 3, eager), "steps of", 3);
      for (size_t cut = 1; cut < c->output.n; cut++) check_same(&whole, listen(c, cut, 0, eager), eager ? "eager, cut at" : "cut at", cut);
      heard_free(&whole);
    }
    check_held(c);
  }
}

static void set_tools(ReplyCase *c, const char *name) {
  char path[300];
  json_decref(c->tools);
  c->tools = NULL;
  snprintf(path, sizeof path, "tests/reply/%s", name);
  if (strcmp(name, "none")) EXPECT_OK(json_parse_file(path, 1 << 20, &c->tools));
}

static void set_prefix(ReplyCase *c, const char *json) {
  json_t *s = json_loads(json, JSON_DECODE_ANY, NULL);
  EXPECT(json_is_string(s), "prefix %s", json);
  str_clear(&c->prefix);
  str_add(&c->prefix, json_string_value(s));
  json_decref(s);
}

static char *next_line(char **p) {
  char *line = *p, *end = line ? strchr(line, '\n') : NULL;
  if (!line || !*line) return NULL;
  if (end) *end = 0;
  *p = end ? end + 1 : NULL;
  return line;
}

static void read_output(ReplyCase *c, char **p) {
  str_clear(&c->output);
  bool first = true;
  for (char *line; (line = next_line(p)) && strcmp(line, ">>>"); first = false) {
    if (!first) str_add_c(&c->output, '\n');
    str_add(&c->output, line);
  }
}

static int run_file(const char *path) {
  Str text = {0};
  ReplyCase c = {0};
  int n = 0;
  EXPECT_OK(os_read_file(path, 1 << 20, &text));
  for (char *p = text.p, *line; (line = next_line(&p));) {
    if (!*line || *line == '#') continue;
    char *value = strchr(line, ' ');
    if (value) *value++ = 0;
    if (!strcmp(line, "template")) set_file(&c.template, strncmp(value, "templates/", 10) ? "tests/text/templates/templates" : "tests/reply", value);
    else if (!strcmp(line, "tools")) set_tools(&c, value);
    else if (!strcmp(line, "prefix")) set_prefix(&c, value);
    else if (!strcmp(line, "keep_unknown")) c.keeps_unknown = !strcmp(value, "on");
    else if (!strcmp(line, "keep_reasoning")) c.keeps_reasoning = !strcmp(value, "on");
    else if (!strcmp(line, "case")) snprintf(c.name, sizeof c.name, "%s", value);
    else if (!strcmp(line, "<<<")) {
      read_output(&c, &p);
      line = next_line(&p);
      str_clear(&c.expect);
      str_add(&c.expect, line ? line : "");
      check_case(&c, strrchr(path, '/') + 1);
      n++;
    } else EXPECT(false, "%s: what is \"%s\"?", path, line);
  }
  str_free(&text);
  str_free(&c.template);
  str_free(&c.output);
  str_free(&c.prefix);
  str_free(&c.expect);
  json_decref(c.tools);
  return n;
}

int main(void) {
  glob_t files;
  int n = 0;
  EXPECT(!glob("tests/reply/*.txt", 0, NULL, &files), "no cases");
  for (size_t i = 0; i < files.gl_pathc; i++)
    if (!strstr(files.gl_pathv[i], "/messages")) n += run_file(files.gl_pathv[i]);
  globfree(&files);
  TEST("all cases ran") EXPECT(n > 100, "%d", n);
  TEST_MAIN_END();
}
