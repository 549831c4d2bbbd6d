/* Tokens to text, and the end of it. In: ids one by one. Out: text as soon as it is certain: whole characters (the decoder's care) that are
   not the beginning of a stop text. Stop texts may begin and end inside tokens. After END or STOP nothing is held. */
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
  *a = (RunAnswer){.stops = *stops, .texts = texts};
  text_decoder_init(&a->decoder, v, TEXT_SKIP_SPECIAL);
  return NULL;
}

void run_answer_free(RunAnswer *a) {
  text_stops_free(&a->texts);
  str_free(&a->decoded);
}

RunReason run_answer_take(RunAnswer *a, int32_t id, Str *out) {
  a->n_tokens++;
  for (int i = 0; i < a->stops.n_ends; i++)
    if (a->stops.end[i] == id) {
      run_answer_end(a, out);
      return RUN_END;
    }
  str_clear(&a->decoded);
  text_decode(&a->decoder, id, &a->decoded);
  if (text_stops_take(&a->texts, a->decoded.p, a->decoded.n, out)) return RUN_STOP;
  return a->stops.max_tokens >= 0 && a->n_tokens >= a->stops.max_tokens ? RUN_LENGTH : RUN_GOING;
}

void run_answer_end(RunAnswer *a, Str *out) {
  str_clear(&a->decoded);
  text_decode_end(&a->decoder, &a->decoded);
  if (!text_stops_take(&a->texts, a->decoded.p, a->decoded.n, out)) text_stops_end(&a->texts, out);
}
