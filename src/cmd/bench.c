/* `lumen bench MODEL`: how fast this machine reads a prompt and makes tokens, and how near that is to what it can do: its arithmetic and its
   memory are measured in every round, the work is counted from the kernels' statements. The ids are pseudo-random: what they say does not
   change the work. The model's files are read once before anything is timed, so a cold disk does not count; what that took is taken off
   first_token_ms. Of several rounds each phase shows its median. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cmd/bench.h"
#include "cmd/quiet.h"
#include "run/run.h"

static const OptRow BenchOpts_rows[] = {BENCH_ROWS(OPT_ROW_, BenchOpts)};
enum { SHORT_PROMPT = 16, WATCHED_STEPS = 8 };

/* Reads the model's files so that they are in memory. */
static Err *warm(Arena *a, const char *path) {
  enum { CHUNK = 1 << 20 };
  Weights *w;
  TRY(cmd_weights_open(a, path, &w));
  char *chunk = malloc(CHUNK);
  for (int i = 0; chunk && i < w->n_files; i++) {
    int fd = open(w->file[i], O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && read(fd, chunk, CHUNK) > 0) continue;
    if (fd >= 0) close(fd);
  }
  free(chunk);
  file_weights_close(w);
  return NULL;
}

/* ---- the model ---- */

static int32_t some_token(const Bench *b, int64_t sequence, int64_t position) {
  return (int32_t)(run_random((uint64_t)sequence, position) % (uint64_t)model_n_vocab(b->m));
}

static int32_t best_token(const float *logits, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; i++) if (logits[i] > logits[best]) best = i;
  return (int32_t)best;
}

/* Sequence number i reads tokens until it holds n, and the last one's logits give its next token. */
static Err *read_until(Bench *b, int i, int64_t n) {
  int chunk = model_chunk(b->m);
  int32_t *ids = malloc((size_t)chunk * sizeof *ids);
  Err *e = ids ? NULL : err_new(ERR_MEMORY, "%d token ids", chunk);
  for (int64_t at = seq_n_tokens(b->seq[i]); !e && at < n; at += chunk) {
    int n_now = (int)MIN((int64_t)chunk, n - at);
    const float *logits;
    int64_t stride;
    for (int k = 0; k < n_now; k++) ids[k] = some_token(b, i, at + k);
    e = model_step(b->m, &(StepPart){b->seq[i], ids, n_now, at + n_now == n}, 1, &logits, &stride);
    if (!e && at + n_now == n) b->last[i] = best_token(logits, model_n_vocab(b->m));
  }
  free(ids);
  return e;
}

static Err *generate(Bench *b, Arena *a, int64_t n_steps) {
  int n = (int)b->o->batch;
  StepPart *part = ARENA_ARRAY(a, StepPart, (size_t)n);
  for (int i = 0; i < n; i++) part[i] = (StepPart){b->seq[i], &b->last[i], 1, 1};
  for (int64_t t = 0; t < n_steps; t++) {
    const float *logits;
    int64_t stride;
    TRY(model_step(b->m, part, n, &logits, &stride));
    for (int i = 0; i < n; i++) b->last[i] = best_token(logits + i * stride, model_n_vocab(b->m));
  }
  return NULL;
}

/* Every sequence holds as many tokens as decoding is measured after. */
static Err *fill_context(Bench *b) {
  for (int i = 0; i < b->o->batch; i++) {
    seq_truncate(b->seq[i], MIN(seq_n_tokens(b->seq[i]), b->context));
    TRY(read_until(b, i, b->context));
  }
  return NULL;
}

static Err *one_round(Bench *b, Arena *a, BenchRound *r) {
  int n = (int)b->o->batch;
  for (int i = 0; i < n; i++) seq_truncate(b->seq[i], 0);
  int64_t t = os_now_ns(), cpu = os_process_cpu_ns();
  for (int i = 0; i < n; i++) TRY(read_until(b, i, b->o->prompt));
  r->speed[0] = (BenchSpeed){n * b->o->prompt, os_now_ns() - t, os_process_cpu_ns() - cpu};
  TRY(fill_context(b));
  t = os_now_ns(), cpu = os_process_cpu_ns();
  TRY(generate(b, a, b->o->generate));
  r->speed[1] = (BenchSpeed){n * b->o->generate, os_now_ns() - t, os_process_cpu_ns() - cpu};
  if (!b->rss_bytes) b->rss_bytes = os_peak_rss_bytes(); /* before the peak's memory, which is not the model's */
  return model_peak(b->m, &r->peak);
}

/* ---- kernels ---- */
static void keep_phase(Bench *b, int phase, bool several) {
  const ModelSpent *s = model_spent(b->m, several);
  BenchPhase *p = &b->phase[phase];
  *p = (BenchPhase){.row = ARENA_ARRAY(b->arena, ModelSpentRow, s->n + 1), .n = s->n, .n_tokens = s->n_tokens, .t_ns = s->t_ns};
  for (int i = 0; i < s->n; i++) {
    const ModelSpentRow *r = &s->row[i];
    p->row[i] = *r;
    p->int_ops += r->int_ops;
    p->f32_ops += r->f32_ops;
    p->pair_ops += r->pair_ops;
    p->n_bytes += r->weight_bytes + r->state_bytes;
  }
}

/* A pass of its own, so that watching costs the figures nothing: one prompt and a few steps of decoding, kernel by kernel. */
static Err *watch(Bench *b, Arena *a) {
  for (int i = 0; i < b->o->batch; i++) seq_truncate(b->seq[i], 0);
  model_spent_forget(b->m, false), model_spent_forget(b->m, true);
  model_spent_watch(b->m, true);
  TRY(read_until(b, 0, b->o->prompt));
  keep_phase(b, 0, model_spent(b->m, true)->n_steps > 0);
  model_spent_watch(b->m, false);
  TRY(fill_context(b));
  model_spent_forget(b->m, false);
  model_spent_watch(b->m, true);
  TRY(generate(b, a, MIN(b->o->generate, (int64_t)WATCHED_STEPS)));
  keep_phase(b, 1, false);
  model_spent_watch(b->m, false);
  return NULL;
}

static int by_speed(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return a < b ? -1 : a > b;
}

/* The round whose speed is the median, of an even number the lower; the best one where asked for. */
static const BenchRound *round_of(const Bench *b, int phase) {
  double *v = ARENA_ARRAY(b->arena, double, (size_t)b->o->rounds);
  for (int i = 0; i < b->o->rounds; i++) v[i] = cmd_bench_rate((double)b->round[i].speed[phase].n_tokens, b->round[i].speed[phase].t_ns);
  double *sorted = ARENA_ARRAY(b->arena, double, (size_t)b->o->rounds);
  memcpy(sorted, v, (size_t)b->o->rounds * sizeof *v);
  qsort(sorted, (size_t)b->o->rounds, sizeof *v, by_speed);
  double want = sorted[b->o->best ? b->o->rounds - 1 : (b->o->rounds - 1) / 2];
  int i = 0;
  while (v[i] < want || v[i] > want) i++;
  return &b->round[i];
}

static Err *measure(Bench *b, int64_t warm_ns) {
  int n = (int)b->o->batch;
  for (int i = 0; i < n; i++) TRY(seq_new(b->m, &b->seq[i]));
  TRY(read_until(b, 0, SHORT_PROMPT));
  b->first_token_ns = os_now_ns() - os_process_start_ns() - warm_ns;
  for (int i = 0; i < b->o->rounds; i++) {
    Arena *a = arena_new("round");
    Err *e = one_round(b, a, &b->round[i]);
    arena_free(a);
    TRY(e);
  }
  for (int p = 0; p < 2; p++) b->of[p] = round_of(b, p);
  Arena *a = arena_new("round");
  Err *e = watch(b, a);
  arena_free(a);
  return e;
}

/* ---- the command ---- */
static Err *too_long(const BenchOpts *o, int64_t wanted, const char *but, int64_t most) {
  return err_new(ERR_USAGE, "%lld tokens a sequence (--prompt %lld, --context %lld, --generate %lld), but %s %lld", (long long)wanted, (long long)o->prompt, (long long)o->context, (long long)o->generate, but, (long long)most);
}

/* What the model was made for, by its files: refused before its weights are read or anything is compiled. */
static Err *check_context(const BenchOpts *o, const Model *m, int64_t wanted) {
  int64_t own = model_made_for(m);
  if (!own || wanted <= own) return NULL;
  return too_long(o, wanted, "the model was made for", own);
}

static Err *check_outputs(const BenchOpts *o) {
  TRY(cmd_output_check(o->json));
  TRY(cmd_output_check(o->svg));
  if (!o->json || !o->svg || strcmp(o->json, o->svg)) return NULL;
  return err_new(ERR_USAGE, "--json and --svg both go to %s, expected one of them", strcmp(o->svg, "-") ? o->svg : "standard output");
}

static Err *bench(Arena *a, const BenchOpts *o, const char *name) {
  Bench b = {.o = o, .arena = a, .name = name, .seq = ARENA_ARRAY(a, Seq *, (size_t)o->batch), .last = ARENA_ARRAY(a, int32_t, (size_t)o->batch),
             .round = ARENA_ARRAY(a, BenchRound, (size_t)o->rounds)};
  ModelOptions options = MODEL_OPTIONS(o);
  const char *path;
  b.context = o->context ? o->context : o->prompt;
  int64_t wanted = MAX(o->prompt, b.context + o->generate);
  if (wanted > MODEL_MAX_CONTEXT) return too_long(o, wanted, "the most is", MODEL_MAX_CONTEXT);
  options.context = MAX(wanted, (int64_t)SHORT_PROMPT); /* no memory beyond what is measured */
  TRY(check_outputs(o));
  TRY(cmd_model_locate(a, name, &path));
  TRY(model_prepare(path, &options, &b.m));
  Err *e = check_context(o, b.m, wanted);
  if (!e) e = check_outputs(o);
  int64_t t = os_now_ns();
  if (!e) e = warm(a, path);
  int64_t warm_ns = os_now_ns() - t;
  if (!e) e = model_load(b.m);
  CmdQuiet q = cmd_quiet_now();
  if (!e) e = measure(&b, warm_ns);
  b.others = cmd_others_percent(&q);
  if (!e) e = cmd_bench_tell(&b);
  for (int i = 0; i < o->batch; i++) seq_free(b.seq[i]);
  model_close(b.m);
  return e;
}

int cmd_bench(int argc, char **argv) {
  Arena *a = arena_new("bench");
  BenchOpts o;
  OptRest rest;
  int code = CMD_OK;
  if (cmd_options(a, BenchOpts_rows, COUNT_OF(BenchOpts_rows), argc, argv, &o, &rest, &code)) {
    if (rest.n_args != 1) code = cmd_misused(argv[0], "%d models named, expected one", rest.n_args);
    else {
      Err *e = bench(a, &o, rest.arg[0]);
      if (e) code = cmd_fail(argv[0], e);
    }
  }
  arena_free(a);
  return code;
}
