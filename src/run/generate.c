/* The token loop: prompt ids in, text out as it becomes certain. A session remembers the ids whose state its sequence holds, so a prompt that
   begins with them costs only the rest: the turns of a conversation, or the same question again. Whatever goes wrong between steps, held ids
   and sequence agree. */
#include <math.h>
#include <stdlib.h>
#include "run/run.h"

struct RunSession {
  Model *model;
  Seq *seq;
  TextIds ids;             /* ids[0..seq_n_tokens) are held; past them, during a call, what comes next */
};

Err *run_session_new(Model *m, RunSession **out) {
  RunSession *s = calloc(1, sizeof *s);
  if (!s) return err_new(ERR_MEMORY, "session: %zu bytes", sizeof *s);
  s->model = m;
  *out = s;
  return NULL;
}

Err *run_session_ready(RunSession *s, const volatile int *cancel) {
  model_cancel_by(s->model, cancel);
  Err *e = model_load(s->model);
  model_cancel_by(s->model, NULL);
  return e || s->seq ? e : seq_new(s->model, &s->seq);
}

void run_session_free(RunSession *s) {
  if (!s) return;
  seq_free(s->seq);
  text_ids_free(&s->ids);
  free(s);
}

void run_result_free(RunResult *r) {
  str_free(&r->text);
  text_ids_free(&r->ids);
  free(r->logprob);
  free(r->top);
  *r = (RunResult){0};
}

static bool cancelled(const RunRequest *q) { return q->cancel && *q->cancel; }

/* Text that was just added to the result. False: stop. */
static bool tell(const RunRequest *q, const RunResult *r, size_t n_before) {
  return r->text.n == n_before || !q->on_text || q->on_text(q->ctx, r->text.p + n_before, r->text.n - n_before);
}

static Err *request_check(const RunSession *s, const RunRequest *q) {
  int64_t context = model_context(s->model);
  if (!q->n_prompt) return err_new(ERR_USAGE, "the prompt has no token");
  for (int64_t i = 0; i < q->n_prompt; i++)
    if (q->prompt[i] < 0 || q->prompt[i] >= model_n_vocab(s->model))
      return err_new(ERR_LIMIT, "token %d of the prompt at %lld, expected 0 to %lld", q->prompt[i], (long long)i, (long long)model_n_vocab(s->model) - 1);
  return q->n_prompt <= context ? NULL : err_new(ERR_LIMIT, "the prompt has %lld tokens, the context holds %lld (--context)", (long long)q->n_prompt, (long long)context);
}

/* Brings the ids to the prompt, keeping the beginning that is held. At least one token is left to read: its logits are what we are after. */
static void rewind_to(RunSession *s, const RunRequest *q) {
  int64_t same = 0, most = MIN(seq_n_tokens(s->seq), q->n_prompt - 1);
  while (same < most && s->ids.p[same] == q->prompt[same]) same++;
  seq_truncate(s->seq, same);
  s->ids.n = (size_t)same;
  for (int64_t i = same; i < q->n_prompt; i++) text_ids_add(&s->ids, q->prompt[i]);
}

/* Reads the ids not read yet, a chunk at a time; *logits of the last one. Fails: ERR_CANCELLED too, amid a chunk. */
static Err *read_chunks(RunSession *s, const RunRequest *q, const float **logits) {
  int64_t total = (int64_t)s->ids.n, stride;
  bool is_long = total - seq_n_tokens(s->seq) > 1;
  for (int64_t at; (at = seq_n_tokens(s->seq)) < total && !cancelled(q);) {
    int n = (int)MIN(total - at, (int64_t)model_chunk(s->model));
    bool last = at + n == total;
    const float *l;
    TRY(model_step(s->model, &(StepPart){s->seq, s->ids.p + at, n, last}, 1, &l, &stride));
    if (last) *logits = l;
    if (q->on_read && is_long) q->on_read(q->ctx, at + n, total);
  }
  return NULL;
}

/* *logits: unchanged where it was cancelled. */
static Err *read_on(RunSession *s, const RunRequest *q, const float **logits) {
  model_cancel_by(s->model, q->cancel);
  Err *e = read_chunks(s, q, logits);
  model_cancel_by(s->model, NULL);
  if (!e || err_kind(e) != ERR_CANCELLED) return e;
  err_free(e);
  return NULL;
}

static void trace_ids(const char *what, const TextVocab *v, const int32_t *id, int64_t n) {
  if (!trace_on(TRACE_tok, NULL)) return;
  Str s = {0};
  for (int64_t i = 0; i < n; i++) {
    Str text = {0};
    TextDecoder d;
    text_decoder_init(&d, v, 0);
    text_decode(&d, id[i], &text);
    text_decode_end(&d, &text);
    str_addf(&s, " %d ", id[i]);
    file_quote(text.n ? text.p : "", text.n, &s);
    str_free(&text);
  }
  trace_printf(TRACE_tok, "%s%s", what, s.n ? s.p : " nothing");
  str_free(&s);
}

/* Notes the token's probability at the place where it will stand; logits NULL: it had to come. */
static Err *note_likely(const RunSession *s, const RunRequest *q, RunResult *r, const float *logits, int32_t id) {
  size_t at = r->ids.n, n_top = (size_t)q->n_top;
  if (!q->has_logprobs) return NULL;
  if (!(at & (at - 1))) {                      /* room for twice as many */
    size_t cap = MAX(at * 2, (size_t)1);
    double *logprob = realloc(r->logprob, cap * sizeof *logprob);
    if (logprob) r->logprob = logprob;
    RunLikely *top = n_top ? realloc(r->top, cap * n_top * sizeof *top) : NULL;
    if (top) r->top = top;
    if (!logprob || (n_top && !top)) return err_new(ERR_MEMORY, "probabilities: %zu bytes", cap * (sizeof *logprob + n_top * sizeof *top));
  }
  if (logits) {
    run_logprobs(logits, model_n_vocab(s->model), id, (int)n_top, &r->logprob[at], r->top + at * n_top);
    return NULL;
  }
  r->logprob[at] = NAN;
  for (size_t i = 0; i < n_top; i++) r->top[at * n_top + i] = (RunLikely){-1, RUN_LOGPROB_MIN};
  return NULL;
}

/* The next token: the one that must come, else the sampler's choice among those that may. Unchanged where it was cancelled. *is_forced: it closes
   the reasoning, and so do the ones behind it that go with the marker: they are not the answer's. */
static Err *next_token(RunSession *s, const RunRequest *q, RunSampler *sampler, RunResult *r, int64_t *t_first, int32_t *id, bool *is_forced) {
  const uint64_t *allowed = NULL;
  const float *logits = NULL;
  int32_t forced = q->budget ? text_budget_force(q->budget, q->reply) : -1;
  *is_forced = forced >= 0;
  if (q->guide) run_guide_ahead(q->guide, *is_forced || (q->reply && text_reply_is_reasoning(q->reply)));
  int64_t t_start = os_now_ns();
  if (forced < 0) TRY(read_on(s, q, &logits)); /* a token that must come needs no logits: it is read with what follows */
  int64_t t_now = os_now_ns();
  if (!*t_first && forced < 0) *t_first = t_now, r->prefill_ns = t_now - t_start;
  if (*t_first) r->decode_ns = t_now - *t_first;
  if (q->guide) TRY(run_guide_mask(q->guide, &allowed));
  if (cancelled(q)) return NULL;
  *id = forced;
  if (forced < 0) TRY(run_sampler_pick(sampler, logits, allowed, s->ids.p, (int64_t)s->ids.n, q->n_prompt, id));
  return note_likely(s, q, r, forced < 0 ? logits : NULL, *id);
}

/* Tells the answer, the budget and the guide. */
static Err *take_token(const RunRequest *q, RunAnswer *answer, RunResult *r, int32_t id, bool is_forced) {
  size_t n_before = r->text.n;
  bool was_reasoning = q->reply && text_reply_is_reasoning(q->reply);
  r->reason = run_answer_take(answer, id, &r->text);
  bool is_reasoning = q->reply && text_reply_is_reasoning(q->reply);
  if (q->budget) text_budget_take(q->budget, was_reasoning, id);
  if (q->guide && r->reason == RUN_END) TRY(run_guide_end(q->guide, id));
  if (q->guide && r->reason != RUN_END) {
    size_t n = r->text.n - n_before, n_call = 0;
    const char *rest = n ? r->text.p + n_before : "", *call = was_reasoning && !is_reasoning ? text_reply_call(q->reply, &n_call) : NULL;
    TRY(run_guide_take(q->guide, id, is_forced, call ? call : rest, call ? n_call : n, call != NULL, was_reasoning, is_reasoning));
  }
  if (q->guide && !r->reason && run_guide_is_over(q->guide)) r->reason = RUN_END, run_answer_end(answer, &r->text);
  return NULL;
}

static Err *loop(RunSession *s, const RunRequest *q, RunSampler *sampler, RunAnswer *answer, RunResult *r) {
  int64_t t_first = 0;
  if (q->stops.max_tokens == 0) r->reason = RUN_LENGTH;
  while (!r->reason) {
    int32_t id = -1;
    bool is_forced;
    TRY(next_token(s, q, sampler, r, &t_first, &id, &is_forced));
    if (id < 0) {
      r->reason = RUN_CANCELLED;
      break;
    }
    text_ids_add(&s->ids, id);
    text_ids_add(&r->ids, id);
    trace_ids("out", q->vocab, &id, 1);
    size_t n_before = r->text.n;
    TRY(take_token(q, answer, r, id, is_forced));
    if (!tell(q, r, n_before)) r->reason = RUN_CANCELLED;
    else if (!r->reason && (int64_t)s->ids.n > model_context(s->model)) r->reason = RUN_CONTEXT;
  }
  size_t n_before = r->text.n;
  if (r->reason != RUN_STOP && r->reason != RUN_END) run_answer_end(answer, &r->text);
  if (r->reason != RUN_CANCELLED) tell(q, r, n_before);
  return NULL;
}

Err *run_generate(RunSession *s, const RunRequest *q, RunResult *out) {
  RunSampler *sampler = NULL;
  RunAnswer answer;
  RunResult r = {0};
  TRY(request_check(s, q));
  TRY(run_answer_init(&answer, q->vocab, &q->stops));
  answer.reply = q->reply;
  answer.on_event = q->on_event;
  answer.ctx = q->ctx;
  if (q->guide) answer.decoder.started = true; /* a space that the grammar asked for is printed */
  Err *e = run_sampler_new(&q->sampling, model_n_vocab(s->model), &sampler);
  if (!e) e = run_session_ready(s, q->cancel);
  if (!e) {
    rewind_to(s, q);
    r.n_reused = seq_n_tokens(s->seq);
    trace_ids("in", q->vocab, q->prompt, q->n_prompt);
    e = loop(s, q, sampler, &answer, &r);
    s->ids.n = (size_t)seq_n_tokens(s->seq);
  }
  r.is_whole = !e && q->guide && run_guide_is_whole(q->guide);
  run_answer_free(&answer);
  run_sampler_free(sampler);
  if (e) run_result_free(&r);
  else *out = r;
  return e;
}
