/* Tokens to text, and the end of it. In: ids one by one. Out: text as soon as it is certain: whole characters (the decoder's care) that are
   not the beginning of a stop text. Stop texts may begin and end inside tokens. With a reply the text goes through it first: special tokens
   that are its markers are spelled out for it, and stop texts are looked for in its content. After END or STOP nothing is held. */
#include "run/run.h"

static const char *const names[][2] = {{"going", "it is not over"},
#define REASON(id, name, meaning) {name, meaning},
  RUN_REASONS(REASON)
#undef REASON
};
const char *run_reason_name(RunReason r) { return names[r][0]; }
const char *run_reason_meaning(RunReason r) { return names[r][1]; }

Err *run_answer_init(RunAnswer *a, const TextVocab *v, const RunStops *stops) {
  TextStops texts;
  TRY(text_stops_init(&texts, stops->stop, stops->n_stops));
  *a = (RunAnswer){.stops = *stops, .texts = texts, .vocab = v};
  text_decoder_init(&a->decoder, v, TEXT_SKIP_SPECIAL);
  return NULL;
}

void run_answer_free(RunAnswer *a) {
  text_stops_free(&a->texts);
  str_free(&a->decoded);
}

static void put_content(RunAnswer *a, const char *p, size_t n) {
  if (!a->is_stopped) a->is_stopped = text_stops_take(&a->texts, p, n, a->out);
}

static void on_event(void *answer, const TextEvent *e) {
  RunAnswer *a = answer;
  if (e->kind == TEXT_EVENT_CONTENT) put_content(a, e->text, e->n);
  else if (a->on_event && !a->is_stopped) a->on_event(a->ctx, e);
}

static void put(RunAnswer *a, const char *p, size_t n) {
  if (a->reply) text_reply_feed(a->reply, p, n, on_event, a);
  else put_content(a, p, n);
}

static bool is_among(const int32_t *ids, int n, int32_t id) {
  for (int i = 0; i < n; i++)
    if (ids[i] == id) return true;
  return false;
}

/* Whether the token's spelling is what the reply must see; then it is put. */
static bool put_marker(RunAnswer *a, int32_t id, bool is_end) {
  size_t n = 0;
  const char *p = a->reply ? text_vocab_spelling(a->vocab, id, &n) : NULL;
  if (!p || !(is_end ? text_reply_goes_on(a->reply, p, n) : text_vocab_is_special(a->vocab, id) && text_reply_has_marker(a->reply, p, n))) return false;
  str_clear(&a->decoded);
  text_decode_end(&a->decoder, &a->decoded);
  a->decoder.started = true;                 /* the text goes on */
  put(a, a->decoded.p ? a->decoded.p : "", a->decoded.n);
  put(a, p, n);
  return true;
}

RunReason run_answer_take(RunAnswer *a, int32_t id, Str *out) {
  bool is_end = is_among(a->stops.end, a->stops.n_ends, id), is_stop = is_among(a->stops.stop_id, a->stops.n_stop_ids, id);
  a->n_tokens++;
  a->out = out;
  bool is_marker = !is_stop && put_marker(a, id, is_end);
  if (is_stop || (is_end && !is_marker)) {
    run_answer_end(a, out);
    return a->is_stopped || is_stop ? RUN_STOP : RUN_END;
  }
  if (!is_marker) {
    str_clear(&a->decoded);
    text_decode(&a->decoder, id, &a->decoded);
    put(a, a->decoded.p ? a->decoded.p : "", a->decoded.n);
  }
  if (a->is_stopped) return RUN_STOP;
  return a->stops.max_tokens >= 0 && a->n_tokens >= a->stops.max_tokens ? RUN_LENGTH : RUN_GOING;
}

void run_answer_end(RunAnswer *a, Str *out) {
  a->out = out;
  str_clear(&a->decoded);
  text_decode_end(&a->decoder, &a->decoded);
  put(a, a->decoded.p ? a->decoded.p : "", a->decoded.n);
  if (a->reply) text_reply_end(a->reply, on_event, a);
  if (!a->is_stopped) text_stops_end(&a->texts, out);
}
