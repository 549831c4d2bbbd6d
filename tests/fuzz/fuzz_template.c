/* libFuzzer target of chat templates and of requests. The first byte picks the way; up to a zero byte stands a template, behind it JSON: a template's
   context, a chat's request as templates take it, or a body as clients send it, which goes through text_chat_request. Anything ends in a text or
   an Err, twice in the same; what came out is no longer than the bound. tests/fuzz/run builds and runs it. */
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "text/priv.h"
#include "text/reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 30, .tm_hour = 9, .tm_min = 5, .tm_sec = 7, .tm_wday = 1, .tm_yday = 333};

static Err *body(Arena *a, int how, const char *src, size_t n_src, const char *json, size_t n, Str *out) {
  TextChat *c;
  json_t *js, *request, *tools;
  TRY(json_parse_text(json, n, 1 << 16, "body", &js));
  Err *e = text_chat_new(a, src, n_src, NULL, &c);
  if (!e) e = text_chat_request(c, how & 4 ? TEXT_MESSAGES : TEXT_CHAT_COMPLETIONS, js, &request, &tools);
  if (!e) {
    Str user = {0};
    e = text_chat_render(c, request, &now, out, &user);
    if (!e && user.n > out->n) abort();
    str_free(&user);
    json_decref(request);
    json_decref(tools);
  }
  json_decref(js);
  return e;
}

static Err *once(int how, const char *src, size_t n_src, const char *json, size_t n, Str *out) {
  Arena *a = arena_new("fuzz");
  TextTemplate *t = NULL;
  Err *e = NULL;
  if (how % 3 == 2) {
    e = body(a, how, src, n_src, json, n, out);
  } else {
    e = text_template_parse(a, src, n_src, &t);
    if (!e) e = how % 3 ? text_template_chat_text(t, json, n, &now, out) : text_template_render_text(t, json, n, &now, out);
  }
  arena_free(a);
  return e;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (!n) return 0;
  const uint8_t *zero = memchr(data + 1, 0, n - 1);
  size_t k = zero ? (size_t)(zero - data) - 1 : n - 1;
  const char *json = zero ? (const char *)zero + 1 : "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"x\": [1, \"b\", null, {\"c\": 2.5}]}";
  size_t n_json = zero ? n - k - 2 : strlen(json);
  Str first = {0}, second = {0};
  Err *e = once(data[0], (const char *)data + 1, k, json, n_json, &first), *again = once(data[0], (const char *)data + 1, k, json, n_json, &second);
  if (!e != !again || first.n != second.n || (first.n && memcmp(first.p, second.p, first.n))) abort();
  if (e && first.n) abort();
  if (first.n > TEMPLATE_MAX_OUTPUT) abort();
  err_free(e);
  err_free(again);
  str_free(&first);
  str_free(&second);
  return 0;
}
