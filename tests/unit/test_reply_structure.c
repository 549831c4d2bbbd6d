/* Formats and tool choices of requests, in the words of all clients. */
#include "test.h"
#include "text/reply.h"

/* What a request's grammar takes and does not; NULL for both: it has none. Or part of its error. */
static const struct { const char *body, *takes, *refuses, *error; } formats[] = {
  {"{}", NULL, NULL, NULL},
  {"{\"response_format\": null, \"json_schema\": null, \"format\": \"\"}", NULL, NULL, NULL},
  {"{\"response_format\": {\"type\": \"text\"}}", NULL, NULL, NULL},
  {"{\"response_format\": {\"type\": \"json_object\"}}", "{\"a\": 1}", "[1]", NULL},
  {"{\"response_format\": {\"type\": \"json_object\", \"schema\": {\"const\": 1}}}", "1", "2", NULL},
  {"{\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"n\", \"strict\": true, \"schema\": {\"enum\": [\"x\", 2]}}}}", "2", "3", NULL},
  {"{\"response_format\": {\"type\": \"json_schema\", \"schema\": {\"type\": \"null\"}}}", "null", "0", NULL},
  {"{\"text\": {\"format\": {\"type\": \"json_schema\", \"name\": \"n\", \"schema\": {\"const\": true}}}}", "true", "false", NULL},
  {"{\"output_config\": {\"format\": {\"type\": \"json_schema\", \"schema\": {\"const\": true}}}}", "true", "false", NULL},
  {"{\"output_format\": {\"type\": \"json_schema\", \"schema\": {\"const\": true}}}", "true", "false", NULL},
  {"{\"format\": \"json\"}", "{}", "1", NULL},
  {"{\"format\": {\"type\": \"integer\"}}", "12", "\"12\"", NULL},
  {"{\"json_schema\": {\"type\": \"integer\"}}", "12", "\"12\"", NULL},
  {"{\"guided_json\": {\"type\": \"integer\"}}", "12", "\"12\"", NULL},
  {"{\"guided_regex\": \"a+\"}", "aa", "b", NULL},
  {"{\"guided_choice\": [\"네\", \"a\\\"\\\\\\n\"]}", "네", "아니요", NULL},
  {"{\"guided_choice\": [\"네\", \"a\\\"\\\\\\n\"]}", "a\"\\\n", "a", NULL},
  {"{\"guided_choice\": []}", NULL, NULL, "guided_choice"},
  {"{\"guided_choice\": [\"a\", 1]}", NULL, NULL, "guided_choice[1]"},
  {"{\"structured_outputs\": {\"choice\": [\"a\"]}}", "a", "b", NULL},
  {"{\"structured_outputs\": {\"regex\": \"a+\"}}", "aa", "b", NULL},
  {"{\"structured_outputs\": {\"json\": {\"type\": \"integer\"}}}", "12", "\"12\"", NULL},
  {"{\"structured_outputs\": {\"json_object\": true}}", "{}", "1", NULL},
  {"{\"structured_outputs\": {\"xml\": 1}}", NULL, NULL, "structured_outputs"},
  {"{\"regex\": \"a+\"}", "aa", "b", NULL},
  {"{\"grammar\": \"root ::= \\\"yes\\\" | \\\"no\\\"\"}", "no", "maybe", NULL},
  {"{\"response_format\": {\"type\": \"xml\"}}", NULL, NULL, "response_format.type"},
  {"{\"response_format\": \"json\"}", NULL, NULL, "response_format.type"},
  {"{\"response_format\": {\"type\": \"json_schema\"}}", NULL, NULL, "response_format.schema"},
  {"{\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": {\"type\": \"array\", \"uniqueItems\": true}}}}", NULL, NULL, "uniqueItems"},
  {"{\"format\": \"yaml\"}", NULL, NULL, "format"},
  {"{\"guided_regex\": \"(\"}", NULL, NULL, "guided_regex"},
  {"{\"grammar\": 5}", NULL, NULL, "grammar"},
};

static bool takes(GrammarMatcher *m, const char *text) {
  GrammarState *s = grammar_state_start(m), *next = NULL;
  EXPECT_OK(grammar_state_accept(s, text, strlen(text), &next));
  bool ok = next && grammar_state_may_end(next);
  grammar_state_unref(s);
  grammar_state_unref(next);
  return ok;
}

static void check_format(size_t i) {
  json_t *body = json_loads(formats[i].body, 0, NULL);
  Grammar *g = NULL;
  CHECK(body, "case %zu is no JSON", i);
  Err *e = text_request_grammar(body, &g);
  EXPECT(!e == !formats[i].error && (!e || strstr(err_text(e), formats[i].error)), "%s: %s", formats[i].body, e ? err_text(e) : "accepted");
  EXPECT(e || !g == !formats[i].takes, "%s: %s", formats[i].body, g ? "a grammar" : "no grammar");
  if (g && formats[i].takes) {
    GrammarMatcher *m = grammar_matcher_new(g, NULL);
    EXPECT(takes(m, formats[i].takes) && !takes(m, formats[i].refuses), "%s", formats[i].body);
    grammar_matcher_free(m);
  }
  err_free(e);
  grammar_free(g);
  json_decref(body);
}

static const struct { const char *body; TextToolMode mode; const char *only; bool many; const char *error; } choices[] = {
  {"{}", TEXT_TOOLS_AUTO, NULL, true, NULL},
  {"{\"tool_choice\": null}", TEXT_TOOLS_AUTO, NULL, true, NULL},
  {"{\"tool_choice\": \"none\"}", TEXT_TOOLS_NONE, NULL, true, NULL},
  {"{\"tool_choice\": \"required\", \"parallel_tool_calls\": false}", TEXT_TOOLS_REQUIRED, NULL, false, NULL},
  {"{\"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"f\"}}}", TEXT_TOOLS_ONE, "f", false, NULL},
  {"{\"tool_choice\": {\"type\": \"function\", \"name\": \"f\"}}", TEXT_TOOLS_ONE, "f", false, NULL},
  {"{\"tool_choice\": {\"type\": \"tool\", \"name\": \"f\"}}", TEXT_TOOLS_ONE, "f", false, NULL},
  {"{\"tool_choice\": {\"type\": \"any\", \"disable_parallel_tool_use\": true}}", TEXT_TOOLS_REQUIRED, NULL, false, NULL},
  {"{\"tool_choice\": {\"type\": \"auto\"}}", TEXT_TOOLS_AUTO, NULL, true, NULL},
  {"{\"tool_choice\": \"f\"}", TEXT_TOOLS_AUTO, NULL, true, "\"f\""},
  {"{\"tool_choice\": {\"type\": \"function\"}}", TEXT_TOOLS_AUTO, NULL, true, "names no function"},
  {"{\"tool_choice\": 5}", TEXT_TOOLS_AUTO, NULL, true, "expected a word"},
};

static void check_choice(size_t i) {
  json_t *body = json_loads(choices[i].body, 0, NULL);
  TextToolChoice c = {0};
  CHECK(body, "case %zu is no JSON", i);
  Err *e = text_request_tool_choice(body, &c);
  EXPECT(!e == !choices[i].error && (!e || strstr(err_text(e), choices[i].error)), "%s: %s", choices[i].body, e ? err_text(e) : "accepted");
  bool same_name = !c.only == !choices[i].only && (!c.only || !strcmp(c.only, choices[i].only));
  EXPECT(e || (c.mode == choices[i].mode && c.many == choices[i].many && same_name), "%s: mode %d, %s, many %d", choices[i].body, c.mode, c.only ? c.only : "none", c.many);
  err_free(e);
  json_decref(body);
}

int main(void) {
  TEST("formats are enforced or refused by their place") {
    for (size_t i = 0; i < COUNT_OF(formats); i++) check_format(i);
  }
  TEST("tool choices of all clients") {
    for (size_t i = 0; i < COUNT_OF(choices); i++) check_choice(i);
  }
  TEST_MAIN_END();
}
