/* What a model's files say about answering: how a conversation becomes a prompt, which tokens end an answer, which settings its makers
   recommend. In: an open view and its vocabulary. Nothing here knows a family: ends are found by looking at what the template writes. */
#include <math.h>
#include <string.h>
#include <time.h>
#include "model/vocab.h"
#include "run/run.h"

static json_t *message(const char *role, const char *text) { return json_pack("{s:s, s:s}", "role", role, "content", text); }

/* The template's text behind an assistant's message, appended to out. Nothing where there is no template or it refuses. */
static void text_behind(Arena *a, const Weights *w, const char *template, Str *out) {
  static const char mark[] = "0lumen0mark0";
  Str s = {0};
  json_t *request = json_pack("{s:[o, o], s:{s:b}}", "messages", message("user", "a"), message("assistant", mark), "kwargs", "add_generation_prompt", 0);
  Err *e = model_chat_render(a, w, template, request, &s, NULL);
  const char *last = NULL;
  for (const char *p = e || !s.n ? NULL : s.p; p && (p = strstr(p, mark)); p++) last = p;
  if (last) str_add(out, last + strlen(mark));
  json_decref(request);
  err_free(e);
  str_free(&s);
}

Err *run_ends(Arena *a, const Weights *w, const TextVocab *v, const char *template, int32_t **out, int *n) {
  int32_t *named;
  int n_named;
  Str s = {0};
  TextIds ids = {0};
  TRY(model_vocab_ends(a, w, v, &named, &n_named));
  int32_t *ends = ARENA_ARRAY(a, int32_t, (size_t)n_named + 1);
  if (n_named) memcpy(ends, named, (size_t)n_named * sizeof *ends);
  text_behind(a, w, template, &s);
  size_t skip = s.n ? strspn(s.p, " \t\r\n") : 0;
  Err *e = s.n > skip ? text_tokenize(v, s.p + skip, s.n - skip, 0, &ids) : NULL;
  bool adds = !e && ids.n && text_vocab_is_special(v, ids.p[0]);
  for (int i = 0; i < n_named; i++) adds = adds && ends[i] != ids.p[0];
  if (adds) ends[n_named++] = ids.p[0];
  text_ids_free(&ids);
  str_free(&s);
  if (!e) *out = ends, *n = n_named;
  return e;
}

/* What the template wrote of the answer itself: the beginning that is to be continued. */
static void prefix_of(const json_t *request, Str *out) {
  const json_t *messages = json_object_get(request, "messages"), *last = json_array_get(messages, json_array_size(messages) - 1);
  const json_t *content = json_object_get(last, "content");
  if (!json_is_true(json_object_get(json_object_get(request, "kwargs"), "continue_final_message")) || !json_is_string(content)) return;
  str_add_n(out, json_string_value(content), json_string_length(content));
}

Err *run_prompt_make(const TextChat *c, const TextVocab *v, TextDialect d, const json_t *body, RunPrompt *out) {
  RunPrompt p = {0};
  json_t *request;
  time_t seconds = time(NULL);
  struct tm now;
  localtime_r(&seconds, &now);
  TRY(text_chat_request(c, d, body, &request, &p.tools));
  Str user = {0};
  Err *e = text_chat_render(c, request, &now, &p.text, &user);
  if (!e) trace_text(TRACE_chat, "rendered prompt", p.text.n ? p.text.p : "");
  /* the template writes BOS itself where the model wants it */
  if (!e) e = text_tokenize_marked(v, p.text.n ? p.text.p : "", (const uint8_t *)user.p, p.text.n, 0, &p.ids);
  if (!e) prefix_of(request, &p.prefix);
  json_decref(request);
  str_free(&user);
  if (e) run_prompt_free(&p);
  else *out = p;
  return e;
}

void run_prompt_free(RunPrompt *p) {
  str_free(&p->text);
  str_free(&p->prefix);
  text_ids_free(&p->ids);
  json_decref(p->tools);
  *p = (RunPrompt){0};
}

TextReply *run_prompt_reply(const TextChat *c, const RunPrompt *p, const TextReplyOptions *o) {
  TextReplyOptions own = *o;
  own.tools = p->tools;
  TextReply *r = text_reply_new(c->syntax, c->reason, &own);
  text_reply_prompt(r, p->text.n ? p->text.p : "", p->text.n);
  if (p->prefix.n) text_reply_prefix(r, p->prefix.p, p->prefix.n);
  return r;
}

Err *run_raw_ids(const TextVocab *v, const char *text, size_t n, TextIds *out) { return text_tokenize(v, text, n, TEXT_ADD_SPECIAL | TEXT_ONCE, out); }

typedef enum Advice {
#define SAMPLING(id, folder, gguf, is_int, lo, hi) ADVICE_##id,
#include "model/sampling.def"
#undef SAMPLING
} Advice;
static const struct { const char *key[2]; double lo, hi; } advice[] = {
#define SAMPLING(id, folder, gguf, is_int, lo, hi) {{folder, gguf}, lo, hi},
#include "model/sampling.def"
#undef SAMPLING
};

/* The first of the keys that holds a number of sense; else the value as it is. A file's odd recommendation is no error. */
static double recommended(const Weights *w, Advice id, double value) {
  for (int i = 0; i < 2; i++) {
    double x = NAN;
    err_free(file_kv_float(w, advice[id].key[i], &x));
    if (x >= advice[id].lo && x <= advice[id].hi) return x;
  }
  return value;
}

RunSampling run_sampling_default(const Weights *w) {
  RunSampling p = {.xtc_threshold = RUN_XTC_THRESHOLD, .dry_base = RUN_DRY_BASE, .dry_allowed_length = RUN_DRY_ALLOWED_LENGTH, .temperature = RUN_TEMPERATURE, .top_k = RUN_TOP_K, .top_p = RUN_TOP_P, .min_p = RUN_MIN_P, .repeat_penalty = RUN_REPEAT_PENALTY, .repeat_window = RUN_REPEAT_WINDOW};
  p.temperature = recommended(w, ADVICE_TEMPERATURE, p.temperature);
  p.top_k = (int64_t)recommended(w, ADVICE_TOP_K, (double)p.top_k);
  p.top_p = recommended(w, ADVICE_TOP_P, p.top_p);
  p.min_p = recommended(w, ADVICE_MIN_P, p.min_p);
  p.repeat_penalty = recommended(w, ADVICE_REPEAT_PENALTY, p.repeat_penalty);
  return p;
}
