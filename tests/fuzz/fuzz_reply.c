/* libFuzzer target of replies and stop texts: any bytes, read as any syntax and cut anywhere, give the same events, arguments that are JSON objects,
   and memory that is bounded; stop texts taken from the bytes themselves end them where a plain search says. The first bytes choose the syntax and
   the cuts. tests/fuzz/run builds and runs it. */
#include <stdlib.h>
#include <string.h>
#include "text/reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A template's words that decide on a row of toolcall.def and of reason.def. */
static const char *const templates[] = {"<tool_call><think>", "<function=<parameter=<think>", "<|python_tag|>", "<|python_start|><|think|></think>", "<|channel|>analysis<|call|>",
  "<|tool_call>call:<|channel>thought", "｜DSML｜</think>", "<arg_key><think>", "[TOOL_CALLS][THINK]", "<|tool_call_start|>", "<｜tool▁call▁begin｜><think>", "<|tool_call_begin|>",
  "<|tool_call:begin|><|think|><|begin|>", "<|START_ACTION|><|START_THINKING|>", "Action:\"tool_name\"", "<use_mcp_tool>", "<invoke name=<seed:think>", "<function=",
  "-> tool/function_call", "<tool_calls>[BEGIN FINAL RESPONSE]", "<TOOLCALL>", "<|function_call|>", "function call<|role_sep|>", "<|tool_call|><think><response>", "functools["};

typedef struct Heard { Str text; int last; TextCollect collect; } Heard;

static void hear(void *ctx, const TextEvent *e) {
  Heard *h = ctx;
  bool is_text = e->kind <= TEXT_EVENT_CONTENT || e->kind == TEXT_EVENT_CALL_ARGS;
  if (!is_text || h->last != (int)e->kind) str_addf(&h->text, "\n%d %d ", (int)e->kind, e->kind <= TEXT_EVENT_CONTENT ? 0 : e->index);
  if (is_text) str_add_n(&h->text, e->text, e->n);
  if (e->kind == TEXT_EVENT_CALL_BEGIN) str_addf(&h->text, "%s %s", e->id, e->name);
  h->last = (int)e->kind;
  text_collect_event(&h->collect, e);
}

static Heard listen(const char *template, const json_t *tools, unsigned flags, const uint8_t *p, size_t n, size_t step) {
  Heard h = {.last = -1};
  TextReplyOptions o = {.tools = tools, .is_eager = flags & 1, .keeps_unknown = flags & 2, .max_held = 1000};
  TextReply *r = text_reply_new(text_syntax_find(template, strlen(template)), text_reason_find(template, strlen(template)), &o);
  for (size_t at = 0; at < n; at += step) text_reply_feed(r, (const char *)p + at, n - at < step ? n - at : step, hear, &h);
  text_reply_end(r, hear, &h);
  if (text_reply_memory(r) > 200000 + 64 * n) abort();
  text_reply_free(r);
  return h;
}

static void check_arguments(const Heard *h) {
  json_t *m = text_collect_message(&h->collect), *calls = json_object_get(m, "tool_calls");
  for (size_t i = 0; i < json_array_size(calls); i++) {
    const char *args = json_string_value(json_object_get(json_object_get(json_array_get(calls, i), "function"), "arguments"));
    json_error_t why;
    json_t *v = args ? json_loads(args, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why) : NULL;
    bool unread = !v && (json_error_code(&why) == json_error_numeric_overflow || json_error_code(&why) == json_error_null_byte_in_key); /* JSON, but not for Jansson */
    if (!args || (!v && !unread)) abort();
    if (v && !json_is_object(v)) abort();
    json_decref(v);
  }
  json_decref(m);
}

/* Where a plain search ends the text: at the first byte that completes a stop text, before the longest one it completes. */
static size_t plain_stop(const char *p, size_t n, const char *const *stop, int n_stop) {
  for (size_t end = 1; end <= n; end++) {
    size_t best = 0;
    for (int i = 0; i < n_stop; i++) {
      size_t k = strlen(stop[i]);
      if (k <= end && k > best && !memcmp(p + end - k, stop[i], k)) best = k;
    }
    if (best) return end - best;
  }
  return n;
}

static void check_stops(const uint8_t *data, size_t n, size_t step) {
  char word[3][24];
  const char *stop[3];
  int n_stop = 0;
  for (int i = 0; i < 3 && n > 8; i++) {
    size_t at = data[i] * 7u % n, k = MIN((size_t)1 + data[i + 3] % 20, n - at);
    memcpy(word[i], data + at, k);
    word[i][k] = 0;
    if (i == 2) word[i][k - 1] = '!';
    word[i][text_utf8_valid(word[i], strlen(word[i]))] = 0; /* others are refused */
    if (word[i][0]) stop[n_stop++] = word[i];
  }
  if (!n_stop) return;
  TextStops s;
  Str out = {0};
  bool hit = false;
  if (text_stops_init(&s, stop, n_stop)) abort();
  for (size_t at = 0; at < n && !hit; at += step) hit = text_stops_take(&s, (const char *)data + at, n - at < step ? n - at : step, &out);
  if (!hit) text_stops_end(&s, &out);
  size_t want = plain_stop((const char *)data, n, stop, n_stop);
  if (out.n != want || (want && memcmp(out.p, data, want))) abort();
  text_stops_free(&s);
  str_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static json_t *tools;
  if (!tools)
    tools = json_loads("[{\"type\":\"function\",\"function\":{\"name\":\"now\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"anyOf\":[{\"type\":\"object\"},{\"type\":\"null\"}]},"
                       "\"c\":{\"$ref\":\"#/properties/c\"}}}}}]", 0, NULL);
  if (!tools) abort();
  if (n < 3) return 0;
  const char *template = templates[data[0] % COUNT_OF(templates)];
  Heard a = listen(template, tools, data[1], data + 3, n - 3, n), b = listen(template, tools, data[1], data + 3, n - 3, 1 + data[2] % 16);
  if (a.text.n != b.text.n || (a.text.n && memcmp(a.text.p, b.text.p, a.text.n))) abort();
  check_arguments(&a);
  check_stops(data + 3, n - 3, 1 + data[2] % 16);
  str_free(&a.text);
  str_free(&b.text);
  text_collect_free(&a.collect);
  text_collect_free(&b.collect);
  return 0;
}
