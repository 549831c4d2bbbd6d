/* Log-probabilities of an answer's tokens: as JSON in the form of OpenAI's choices[].logprobs, or a line each for people. In: a result, the
   vocabulary. A token that had to come (what closes reasoning on a budget) has none: null. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cmd/run_cmd.h"

/* A token's text and its bytes: parts of characters are U+FFFD in the text. */
static json_t *token_json(const Run *r, int32_t id, double logprob) {
  Str bytes = {0}, text = {0};
  json_t *list = json_array();
  text_vocab_bytes(r->vocab, id, &bytes);
  for (size_t i = 0; i < bytes.n; i++) json_array_append_new(list, json_integer((uint8_t)bytes.p[i]));
  json_t *own = json_stringn(bytes.n ? bytes.p : "", bytes.n);
  if (!own) {
    TextDecoder d;
    text_decoder_init(&d, r->vocab, 0);
    d.started = true;
    text_decode(&d, id, &text);
    text_decode_end(&d, &text);
    own = json_stringn(text.n ? text.p : "", text.n);
  }
  json_t *o = json_pack("{s:o, s:o, s:o}", "token", own ? own : json_string(""), "logprob", isnan(logprob) ? json_null() : json_real(logprob), "bytes", list);
  str_free(&bytes);
  str_free(&text);
  return o;
}

json_t *cmd_logprobs_json(const Run *r, const RunResult *a) {
  json_t *content = json_array();
  for (size_t i = 0; i < a->ids.n; i++) {
    json_t *o = token_json(r, a->ids.p[i], a->logprob[i]), *top = json_array();
    for (int k = 0; k < r->n_top; k++) {
      const RunLikely *t = &a->top[i * (size_t)r->n_top + (size_t)k];
      if (t->id >= 0) json_array_append_new(top, token_json(r, t->id, t->logprob));
    }
    json_object_set_new(o, "top_logprobs", top);
    json_array_append_new(content, o);
  }
  return json_pack("{s:o}", "content", content);
}

static void token_print(const Run *r, int32_t id, double logprob, FILE *f) {
  Str bytes = {0}, quoted = {0};
  text_vocab_bytes(r->vocab, id, &bytes);
  json_t *whole = json_stringn(bytes.n ? bytes.p : "", bytes.n);
  if (whole) file_quote(bytes.n ? bytes.p : "", bytes.n, &quoted);
  for (size_t i = 0; !whole && i < bytes.n; i++) str_addf(&quoted, "\\x%02x", (uint8_t)bytes.p[i]); /* a part of a character */
  json_decref(whole);
  if (isnan(logprob)) fprintf(f, "  forced %s", quoted.p);
  else fprintf(f, "%8.3f %s", logprob, quoted.p);
  str_free(&bytes);
  str_free(&quoted);
}

void cmd_logprobs_print(const Run *r, const RunResult *a, FILE *f) {
  for (size_t i = 0; i < a->ids.n; i++) {
    token_print(r, a->ids.p[i], a->logprob[i], f);
    for (int k = 0; k < r->n_top; k++) {
      const RunLikely *t = &a->top[i * (size_t)r->n_top + (size_t)k];
      if (t->id < 0) continue;
      fputs(k ? " " : "   of", f);
      token_print(r, t->id, t->logprob, f);
    }
    fputc('\n', f);
  }
}
