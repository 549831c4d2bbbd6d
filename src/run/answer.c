/* Tokens to text, and the end of it. In: ids one by one. Out: text as soon as it is certain: whole characters (the decoder's care) that are
   not the beginning of a stop text. Stop texts may begin and end inside tokens. After END or STOP nothing is held. */
#include <string.h>
#include "run/run.h"

static const char *const names[][2] = {{"going", "it is not over"},
#define REASON(id, name, meaning) {name, meaning},
  RUN_REASONS(REASON)
#undef REASON
};
const char *run_reason_name(RunReason r) { return names[r][0]; }
const char *run_reason_meaning(RunReason r) { return names[r][1]; }

void run_answer_init(RunAnswer *a, const TextVocab *v, const RunStops *stops) {
  *a = (RunAnswer){.stops = *stops};
  text_decoder_init(&a->decoder, v, TEXT_SKIP_SPECIAL);
}

void run_answer_free(RunAnswer *a) { str_free(&a->held); }

/* Where the first stop text begins in s; -1: in no place. */
static int64_t stop_at(const RunStops *stops, const Str *s) {
  int64_t first = -1;
  for (int i = 0; i < stops->n_stops; i++) {
    const char *p = s->n ? memmem(s->p, s->n, stops->stop[i], strlen(stops->stop[i])) : NULL;
    if (p && (first < 0 || p - s->p < first)) first = p - s->p;
  }
  return first;
}

/* How many bytes at the end of s may be the beginning of a stop text. */
static size_t maybe_stop(const RunStops *stops, const Str *s) {
  size_t most = 0;
  for (int i = 0; i < stops->n_stops; i++) {
    size_t n = strlen(stops->stop[i]);
    for (size_t k = MIN(n - 1, s->n); k > most; k--)
      if (!memcmp(s->p + s->n - k, stops->stop[i], k)) most = k;
  }
  return most;
}

/* The first n held bytes are certain. */
static void release(RunAnswer *a, size_t n, Str *out) {
  if (!n) return;
  str_add_n(out, a->held.p, n);
  memmove(a->held.p, a->held.p + n, a->held.n - n + 1); /* with its NUL */
  a->held.n -= n;
}

RunReason run_answer_take(RunAnswer *a, int32_t id, Str *out) {
  a->n_tokens++;
  for (int i = 0; i < a->stops.n_ends; i++)
    if (a->stops.end[i] == id) {
      run_answer_end(a, out);
      return RUN_END;
    }
  text_decode(&a->decoder, id, &a->held);
  int64_t stop = stop_at(&a->stops, &a->held);
  if (stop >= 0) {
    release(a, (size_t)stop, out);
    str_clear(&a->held);
    return RUN_STOP;
  }
  release(a, a->held.n - maybe_stop(&a->stops, &a->held), out);
  return a->stops.max_tokens >= 0 && a->n_tokens >= a->stops.max_tokens ? RUN_LENGTH : RUN_GOING;
}

void run_answer_end(RunAnswer *a, Str *out) {
  text_decode_end(&a->decoder, &a->held);
  release(a, a->held.n, out);
}
