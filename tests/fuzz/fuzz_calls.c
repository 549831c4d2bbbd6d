/* libFuzzer target of calls held to schemas: any schema, in any syntax, is refused or makes a grammar in which no walk ends blind; what a walk
   along the masks of a small vocabulary, special tokens among it, comes to is read as calls whose arguments satisfy the schema. The first byte
   picks the syntax, the second whether several calls and text may come; up to a zero byte stands the schema of the tool's parameters, behind it the
   walk: a byte a step. tests/fuzz/run builds and runs it. */
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "text/reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A template's words that decide on a row of toolcall.def. */
static const char *const templates[] = {"<tool_call><think>", "<function=<parameter=<think>", "<|python_tag|>", "<|python_start|>", "<|channel|>analysis<|call|>", "<|tool_call>call:<|channel>thought",
  "｜DSML｜</think>", "<arg_key><think>", "[TOOL_CALLS][THINK]", "<|tool_call_start|>", "<｜tool▁call▁begin｜><think>", "<|tool_call_begin|>", "<|tool_call:begin|><|think|><|begin|>",
  "<|START_ACTION|><|START_THINKING|>", "Action:\"tool_name\"", "<use_mcp_tool>", "<invoke name=", "<function=", "-> tool/function_call", "<tool_calls>", "<TOOLCALL>", "<|function_call|>",
  "function call<|role_sep|>", "<|tool_call|><think><response>", "functools["};
static const char *const more[] = {"\xFF<tool_call>", "\xFF</tool_call>", "\xFF<|\"|>", "\xFF<|channel|>", "\xFF<|call|>", "</parameter>", "\n</parameter>\n", "</arg_value>", "<parameter=a>", "\":", "\", \"",
  "{\"", "\"}", "})", "']", "None", "null", "\xED\x95\x9C", "\xED\x95", "\\n", "12", "<b>", "</"};
enum { N_MORE = sizeof more / sizeof *more, N_TOKENS = 255 + N_MORE, STEPS_MAX = 400 };

static GrammarVocab *small_vocab(void) {
  static uint8_t byte[256];
  const uint8_t *p[N_TOKENS];
  uint32_t len[N_TOKENS];
  GrammarVocab *v = NULL;
  for (int i = 0; i < 255; i++) { byte[i] = (uint8_t)i; p[i] = &byte[i]; len[i] = 1; }
  for (int i = 0; i < N_MORE; i++) { p[255 + i] = (const uint8_t *)more[i]; len[255 + i] = (uint32_t)strlen(more[i]); }
  if (grammar_vocab_from_bytes(p, len, N_TOKENS, &v)) abort();
  return v;
}

static bool satisfies(const json_t *schema, const char *text) {
  Grammar *g = NULL;
  Err *e = grammar_from_schema(schema, GRAMMAR_ANY_ORDER, &g);
  if (e) {                                                  /* what is enforced in calls is no worse than what is enforced here */
    err_free(e);
    return true;
  }
  GrammarMatcher *m = grammar_matcher_new(g, NULL);
  GrammarState *s = grammar_state_start(m), *next = NULL;
  e = grammar_state_accept(s, text, strlen(text), &next);
  bool ok = e || (next && grammar_state_may_end(next));
  err_free(e);
  grammar_state_unref(s);
  grammar_state_unref(next);
  grammar_matcher_free(m);
  grammar_free(g);
  return ok;
}

static void check_reply(const TextChat *c, const json_t *tools, const Str *text, bool is_required) {
  TextReplyOptions o = {.tools = tools};
  TextCollect collect = {0};
  TextReply *r = text_reply_new(c->syntax, c->reason, &o);
  text_reply_feed(r, text->p, text->n, text_collect_event, &collect);
  text_reply_end(r, text_collect_event, &collect);
  json_t *message = text_collect_message(&collect), *calls = json_object_get(message, "tool_calls");
  if (is_required && (!json_array_size(calls) || !json_is_null(json_object_get(message, "content")))) abort();
  for (size_t i = 0; i < json_array_size(calls); i++)
    if (!satisfies(json_object_get(json_object_get(json_array_get(tools, 0), "function"), "parameters"), json_string_value(json_object_get(json_object_get(json_array_get(calls, i), "function"), "arguments")))) abort();
  json_decref(message);
  text_collect_free(&collect);
  text_reply_free(r);
}

static void walk(const TextChat *c, const json_t *tools, const Grammar *g, const GrammarVocab *v, const uint8_t *p, size_t n, bool is_required) {
  GrammarMatcher *m = grammar_matcher_new(g, v);
  GrammarState *s = grammar_state_start(m), *next = NULL;
  uint64_t mask[(N_TOKENS + 63) / 64];
  Str text = {0};
  Err *e = NULL;
  for (size_t i = 0; i < n && i < STEPS_MAX && !e; i++) {
    int allowed[N_TOKENS], k = 0;
    e = grammar_state_mask(s, mask);
    for (int t = 0; !e && t < N_TOKENS; t++)
      if (mask[t / 64] >> (t % 64) & 1) allowed[k++] = t;
    if (!e && !k && !grammar_state_may_end(s)) abort();
    if (e || !k) break;
    size_t len;
    const uint8_t *bytes = grammar_vocab_bytes(v, allowed[p[i] % k], &len);
    str_add_n(&text, bytes + (*bytes == 0xFF), len - (*bytes == 0xFF));
    e = grammar_state_accept_token(s, allowed[p[i] % k], &next);
    if (e) break;
    if (!next) abort();
    grammar_state_unref(s);
    s = next;
  }
  if (!e && text.n && grammar_state_may_end(s)) check_reply(c, tools, &text, is_required);
  err_free(e);
  str_free(&text);
  grammar_state_unref(s);
  grammar_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static GrammarVocab *v;
  static TextChat *chat[sizeof templates / sizeof *templates];
  static Arena *a;
  if (!v) v = small_vocab();
  if (!a) a = arena_new("forever");
  if (n < 4) return 0;
  size_t which = data[0] % COUNT_OF(templates);
  if (!chat[which] && text_chat_new(a, templates[which], strlen(templates[which]), NULL, &chat[which])) abort();
  const uint8_t *zero = memchr(data + 2, 0, n - 2);
  size_t k = zero ? (size_t)(zero - data) - 2 : n - 2;
  json_t *schema = NULL, *tools;
  Err *e = json_parse_text((const char *)data + 2, k, 1 << 16, "schema", &schema);
  if (e || !json_is_object(schema)) {
    err_free(e);
    json_decref(schema);
    return 0;
  }
  tools = json_pack("[{s:s, s:{s:s, s:o}}]", "type", "function", "function", "name", "now", "parameters", schema);
  TextCallsOptions o = {.tools = tools, .many = data[1] & 1, .may_answer = data[1] & 2};
  Grammar *g = NULL;
  e = text_chat_calls(chat[which], &o, &g);
  if (!e && !grammar_is_empty(g)) walk(chat[which], tools, g, v, data + 2 + k + (zero != NULL), n - 2 - k - (zero != NULL), !o.may_answer);
  err_free(e);
  grammar_free(g);
  json_decref(tools);
  return 0;
}
