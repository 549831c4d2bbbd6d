/* `lumen bench MODEL`: how fast this machine reads a prompt and makes tokens, beside the speed at which it can read memory at all. The ids are
   pseudo-random: what they say does not change the work. The model's files are read once before anything is timed, so a cold disk does not
   count; what that took is taken off first_token_ms. */
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "cmd/cmd.h"
#include "cmd/model_opts.h"
#include "dev/dev.h"
#include "run/run.h"

#define BENCH_ROWS(X, T)                                                                                    \
  X(T, prompt, 'p', INT, "N", "512", 1, 1 << 30, "tokens of the prompt")                                    \
  X(T, generate, 'g', INT, "N", "64", 1, 1 << 30, "tokens generated after it")                              \
  X(T, batch, 'b', INT, "N", "1", 1, 4096, "sequences; their tokens are generated in common steps")         \
  X(T, json, 'j', FLAG, "", NULL, 0, 0, "print JSON")                                                       \
  MODEL_OPT_ROWS(X, T)
OPT_DEFINE(BenchOpts, BENCH_ROWS)
enum { SHORT_PROMPT = 16 };

typedef struct Speed { int64_t n_tokens, t_ns, cpu_ns; } Speed; /* cpu_ns: of all threads, waiting included where they spin */
typedef struct Bench {
  const BenchOpts *o;
  Model *m;
  Seq **seq;               /* [batch] */
  int32_t *last;           /* [batch] the token each sequence takes next */
  Speed prefill, decode;
  int64_t first_token_ns;  /* from the start of the process, less warming */
  size_t rss_bytes, read_bytes;
  double read_bytes_per_s;
} Bench;

static double per_second(double n, int64_t t_ns) { return t_ns > 0 ? n * 1e9 / (double)t_ns : 0; }
static int64_t cpu_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static double ms(int64_t t_ns) { return (double)t_ns * 1e-6; }

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

/* ---- the speed of memory ---- */
typedef struct Reader { const uint64_t *p; size_t n; uint64_t sum[64]; } Reader; /* one sum each for up to 64 threads, so that reading is not idle */

static void read_part(void *ctx, int thread, int n_threads) {
  Reader *r = ctx;
  int64_t begin, end;
  dev_split((int64_t)r->n, 8, thread, n_threads, &begin, &end);
  uint64_t s[8] = {0};
  for (int64_t i = begin; i + 8 <= end; i += 8)
    for (int k = 0; k < 8; k++) s[k] += r->p[i + k];
  r->sum[thread % 64] = s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] ^ s[5] ^ s[6] ^ s[7];
}

/* Bytes per second that n_threads read from n_bytes, again and again: the best of several passes. */
static Err *read_speed(int n_threads, size_t n_bytes, double *out) {
  DevPool *pool;
  Pages pages;
  TRY(dev_pool_new(n_threads, &pool));
  Err *e = os_pages_alloc(n_bytes, &pages);
  if (!e) {
    Reader r = {(const uint64_t *)(const void *)pages.p, n_bytes / sizeof(uint64_t), {0}};
    memset(pages.p, 1, n_bytes);
    int64_t best = INT64_MAX;
    for (int i = 0; i < 5; i++) {
      int64_t t = os_now_ns();
      dev_pool_run(pool, read_part, &r);
      best = MIN(best, os_now_ns() - t);
    }
    *out = per_second((double)n_bytes, best);
    os_pages_free(&pages);
  }
  dev_pool_free(pool);
  return e;
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

/* Sequence number i reads n tokens, and the last one's logits give its next token. */
static Err *prefill(Bench *b, int i, int64_t n) {
  int chunk = model_chunk(b->m);
  int32_t *ids = malloc((size_t)chunk * sizeof *ids);
  Err *e = ids ? NULL : err_new(ERR_MEMORY, "%d token ids", chunk);
  for (int64_t at = 0; !e && at < n; at += chunk) {
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

static Err *decode(Bench *b, Arena *a) {
  int n = (int)b->o->batch;
  StepPart *part = ARENA_ARRAY(a, StepPart, (size_t)n);
  for (int i = 0; i < n; i++) part[i] = (StepPart){b->seq[i], &b->last[i], 1, 1};
  for (int64_t t = 0; t < b->o->generate; t++) {
    const float *logits;
    int64_t stride;
    TRY(model_step(b->m, part, n, &logits, &stride));
    for (int i = 0; i < n; i++) b->last[i] = best_token(logits + i * stride, model_n_vocab(b->m));
  }
  return NULL;
}

static Err *measure(Bench *b, Arena *a, int64_t warm_ns) {
  int n = (int)b->o->batch;
  for (int i = 0; i < n; i++) TRY(seq_new(b->m, &b->seq[i]));
  TRY(prefill(b, 0, MIN((int64_t)SHORT_PROMPT, model_context(b->m))));
  b->first_token_ns = os_now_ns() - os_process_start_ns() - warm_ns;
  seq_truncate(b->seq[0], 0);
  int64_t t = os_now_ns(), cpu = cpu_now_ns();
  for (int i = 0; i < n; i++) TRY(prefill(b, i, b->o->prompt));
  b->prefill = (Speed){n * b->o->prompt, os_now_ns() - t, cpu_now_ns() - cpu};
  t = os_now_ns(), cpu = cpu_now_ns();
  TRY(decode(b, a));
  b->decode = (Speed){n * b->o->generate, os_now_ns() - t, cpu_now_ns() - cpu};
  b->rss_bytes = os_peak_rss_bytes();
  /* As much memory as a step's weights, so that a model that fits a cache is held against that cache. */
  b->read_bytes = (size_t)MIN(MAX(model_bytes_per_token(b->m), (int64_t)16 << 20), (int64_t)2 << 30);
  return read_speed(model_n_threads(b->m), b->read_bytes, &b->read_bytes_per_s);
}

/* Percent of the measured reading speed that decoding reads weights at: once per step, whatever the batch. */
static double bandwidth_percent(const Bench *b) {
  double used = per_second((double)model_bytes_per_token(b->m) * (double)b->o->generate, b->decode.t_ns);
  return b->read_bytes_per_s > 0 ? 100 * used / b->read_bytes_per_s : 0;
}

/* ---- telling ---- */

static json_t *speed_json(const Speed *s) {
  return json_pack("{s:I, s:f, s:f, s:f}", "tokens", (json_int_t)s->n_tokens, "seconds", (double)s->t_ns * 1e-9, "cpu_seconds", (double)s->cpu_ns * 1e-9, "tokens_per_second", per_second((double)s->n_tokens, s->t_ns));
}

static void print_json(const Bench *b, const char *name) {
  const ModelTimes *t = model_times(b->m);
  json_t *o = json_pack("{s:s, s:s, s:s, s:i, s:I, s:o, s:o, s:f, s:f, s:f, s:f, s:I}", "model", name, "target", model_target(b->m), "precision", model_precision(b->m),
                        "threads", model_n_threads(b->m), "batch", (json_int_t)b->o->batch, "prefill", speed_json(&b->prefill), "decode", speed_json(&b->decode),
                        "compile_ms", ms(t->compile_ns), "open_ms", ms(t->open_ns), "pack_ms", ms(t->pack_ns), "first_token_ms", ms(b->first_token_ns),
                        "peak_rss_bytes", (json_int_t)b->rss_bytes);
  json_t *more = json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:I, s:f}", "kernels", t->n_kernels, "code_bytes", (json_int_t)t->code_bytes,
                           "weight_bytes", (json_int_t)t->weight_bytes, "packed_bytes", (json_int_t)t->packed_bytes, "state_bytes", (json_int_t)t->state_bytes,
                           "huge_bytes", (json_int_t)t->huge_bytes, "context", (json_int_t)model_context(b->m), "chunk", model_chunk(b->m),
                           "bytes_per_token", (json_int_t)model_bytes_per_token(b->m), "read_test_bytes", (json_int_t)b->read_bytes,
                           "read_bytes_per_second", b->read_bytes_per_s);
  CHECK(o && more, "bench: no JSON");
  json_object_set_new(json_object_get(o, "decode"), "read_bandwidth_percent", json_real(bandwidth_percent(b)));
  json_object_update(o, more);
  json_decref(more);
  json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
  putchar('\n');
  json_decref(o);
}

static void print_text(const Bench *b, const char *name) {
  const ModelTimes *t = model_times(b->m);
  printf("%s: %s, %s, %d thread%s, batch %lld\n\n", name, model_target(b->m), model_precision(b->m), model_n_threads(b->m), model_n_threads(b->m) == 1 ? "" : "s", (long long)b->o->batch);
  printf("  %-14s %8lld tokens %9.3f s %10.1f tokens/s\n", "prefill", (long long)b->prefill.n_tokens, (double)b->prefill.t_ns * 1e-9, per_second((double)b->prefill.n_tokens, b->prefill.t_ns));
  printf("  %-14s %8lld tokens %9.3f s %10.1f tokens/s\n", "decode", (long long)b->decode.n_tokens, (double)b->decode.t_ns * 1e-9, per_second((double)b->decode.n_tokens, b->decode.t_ns));
  printf("  %-14s %.0f%% of %.1f GB/s (weights of %.1f MB, read once a step)\n", "bandwidth", bandwidth_percent(b), b->read_bytes_per_s * 1e-9, (double)model_bytes_per_token(b->m) * 1e-6);
  printf("  %-14s %.0f ms (opening %.0f, %d kernels of %.1f KB %.0f, packing %.0f)\n", "first token", ms(b->first_token_ns), ms(t->open_ns), t->n_kernels,
         (double)t->code_bytes / 1024, ms(t->compile_ns), ms(t->pack_ns));
  printf("  %-14s %.1f MB at most (weights %.1f, packed %.1f, state %.1f, on huge pages %.1f)\n", "memory", (double)b->rss_bytes * 1e-6, (double)t->weight_bytes * 1e-6,
         (double)t->packed_bytes * 1e-6, (double)t->state_bytes * 1e-6, (double)t->huge_bytes * 1e-6);
}

static Err *bench(Arena *a, const BenchOpts *o, const char *name) {
  Bench b = {.o = o, .seq = ARENA_ARRAY(a, Seq *, (size_t)o->batch), .last = ARENA_ARRAY(a, int32_t, (size_t)o->batch)};
  ModelOptions options = MODEL_OPTIONS(o);
  const char *path;
  if (!options.context) options.context = o->prompt + o->generate; /* no memory beyond what is measured; enough for a short prompt too */
  options.context = MAX(options.context, (int64_t)SHORT_PROMPT);
  if (options.context < o->prompt + o->generate)
    return err_new(ERR_USAGE, "--context: %lld, expected at least %lld for the prompt and what is generated", (long long)options.context, (long long)(o->prompt + o->generate));
  TRY(cmd_model_locate(a, name, &path));
  int64_t t = os_now_ns();
  TRY(warm(a, path));
  int64_t warm_ns = os_now_ns() - t;
  TRY(model_open(path, &options, &b.m));
  Err *e = measure(&b, a, warm_ns);
  if (!e && o->json) print_json(&b, name);
  else if (!e) print_text(&b, name);
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
