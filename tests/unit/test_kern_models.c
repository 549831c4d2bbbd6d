/* Whole tiny models: logits against those of an independent implementation, and the same bits whatever runs them: every target, 1 to 4 threads,
   any chunks, alone or beside other sequences, in every precision and KV format. Cases are the folders of tests/models that hold model.gguf,
   golden.json and logits.f32. runtests: timeout 300 runtests: machine code */
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include "kern/kern.h"
#include "model/model.h"
#include "test.h"

enum { MAX_TOKENS = 512 };
typedef struct Case { const char *folder; char model[300]; int32_t ids[MAX_TOKENS]; int n, n_vocab; Str want; } Case;

static Arena *forever;
static const char *target[16];
static int n_targets;

static bool case_read(const char *folder, Case *c) {
  char path[300];
  Str text = {0};
  *c = (Case){.folder = folder};
  snprintf(c->model, sizeof c->model, "tests/models/%s/model.gguf", folder);
  snprintf(path, sizeof path, "tests/models/%s/golden.json", folder);
  if (!os_exists(c->model) || !os_exists(path)) return false;
  EXPECT_OK(os_read_file(path, 1 << 20, &text));
  json_t *o = json_loads(text.p, 0, NULL), *ids = json_object_get(o, "tokens");
  c->n = (int)json_array_size(ids);
  c->n_vocab = (int)json_integer_value(json_object_get(o, "vocab"));
  for (int i = 0; i < c->n && i < MAX_TOKENS; i++) c->ids[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
  json_decref(o);
  str_free(&text);
  snprintf(path, sizeof path, "tests/models/%s/logits.f32", folder);
  EXPECT_OK(os_read_file(path, 1 << 26, &c->want));
  EXPECT(c->n > 0 && c->n <= MAX_TOKENS && c->want.n == (size_t)c->n * (size_t)c->n_vocab * 4, "%s: %d tokens, %zu bytes of logits", folder, c->n, c->want.n);
  return true;
}

/* Logits of every position of the case, [n][vocabulary]; NULL after a failure. Freed by the caller. */
static float *all_logits(const Case *c, const ModelOptions *o) {
  Model *m = NULL;
  Seq *seq = NULL;
  float *out = malloc((size_t)c->n * (size_t)c->n_vocab * sizeof *out);
  Err *e = model_open(c->model, o, &m);
  if (!out) abort();
  if (!e) e = seq_new(m, &seq);
  for (int at = 0; !e && at < c->n;) {
    const float *logits;
    int64_t stride;
    int n = MIN(c->n - at, model_chunk(m));
    e = model_step(m, &(StepPart){seq, c->ids + at, n, 2}, 1, &logits, &stride);
    for (int i = 0; !e && i < n; i++, at++) memcpy(out + (int64_t)at * c->n_vocab, logits + i * stride, (size_t)c->n_vocab * sizeof *out);
  }
  bool failed = e != NULL;
  EXPECT_OK(e);
  seq_free(seq);
  model_close(m);
  if (!failed) return out;
  free(out);
  return NULL;
}

static void against_golden(const Case *c) {
  char name[200];
  snprintf(name, sizeof name, "%s: f32 logits within 1e-3 of the largest", c->folder);
  TEST(name) {
    float *got = all_logits(c, &(ModelOptions){.precision = "f32", .context = 512});
    const float *want = (const float *)(const void *)c->want.p;
    double worst = 0, most = 0;
    for (int64_t i = 0; got && i < (int64_t)c->n * c->n_vocab; i++) {
      double d = fabs((double)got[i] - (double)want[i]);
      worst = d <= worst ? worst : d; /* NaN counts */
      most = MAX(most, fabs((double)want[i]));
    }
    EXPECT(got && most > 0 && worst <= 1e-3 * most, "differs by %g, the largest is %g", worst, most);
    free(got);
  }
}

static void same_everywhere(const Case *c, const char *precision, const char *kv) {
  static const struct { int threads, chunk; } way[] = {{1, 0}, {2, 0}, {3, 16}, {4, 7}, {2, 1}, {4, 0}};
  char name[200];
  snprintf(name, sizeof name, "%s: %s, KV %s: the same bits on every target, with 1 to 4 threads, in any chunks", c->folder, precision, kv);
  TEST(name) {
    size_t n = (size_t)c->n * (size_t)c->n_vocab * sizeof(float);
    float *want = all_logits(c, &(ModelOptions){.precision = precision, .kv = kv, .context = 512, .n_threads = 1});
    for (size_t i = 1; want && i < COUNT_OF(way) + (size_t)n_targets; i++) {
      ModelOptions o = {.precision = precision, .kv = kv, .context = 512, .n_threads = 2};
      if (i < COUNT_OF(way)) o.n_threads = way[i].threads, o.chunk = way[i].chunk;
      else o.target = target[i - COUNT_OF(way)];
      float *got = all_logits(c, &o);
      EXPECT(got && !memcmp(want, got, n), "%s, %d threads, chunk %d", o.target ? o.target : "best target", o.n_threads, o.chunk);
      free(got);
    }
    free(want);
  }
}

/* ---- beside others -------------------------------------------------------------------------------------------------- */
enum { PROMPT = 20, STEPS = 5, MAX_BATCH = 17 };

/* Sequence `mine` of n reads PROMPT tokens in two steps and then one by one, the others beside it read other texts in pieces of other sizes:
   logits of all its PROMPT + STEPS positions. */
static Err *beside(Model *m, const Case *c, int n, int mine, float *out) {
  Seq *seq[MAX_BATCH] = {0};
  StepPart part[MAX_BATCH];
  int at[MAX_BATCH] = {0};
  Err *e = NULL;
  for (int i = 0; !e && i < n; i++) e = seq_new(m, &seq[i]);
  for (int step = 0; !e && step < 2 + STEPS; step++) {
    const float *logits;
    int64_t stride, row = 0, my_row = 0;
    for (int i = 0; i < n; i++) {
      int take = step == 0 ? 13 : step == 1 ? PROMPT - 13 : 1;
      if (i != mine) take = 1 + (i * 5 + step * 3) % (step < 2 ? 9 : 3);
      part[i] = (StepPart){seq[i], c->ids + (i == mine ? 0 : (i * 7) % 40) + at[i], take, i == mine ? 2 : (i + step) % 3};
      at[i] += take;
      if (i == mine) my_row = row;
      row += part[i].want == 2 ? take : part[i].want;
    }
    e = model_step(m, part, n, &logits, &stride);
    for (int k = 0; !e && k < part[mine].n_tokens; k++)
      memcpy(out + (int64_t)(at[mine] - part[mine].n_tokens + k) * c->n_vocab, logits + (my_row + k) * stride, (size_t)c->n_vocab * sizeof *out);
  }
  for (int i = 0; i < n; i++) seq_free(seq[i]);
  return e;
}

static void same_beside_others(const Case *c, const char *precision, const char *target_name) {
  static const int batch[] = {2, 3, 8, 17};
  char name[200];
  snprintf(name, sizeof name, "%s: %s on %s: the same bits alone and beside 1, 2, 7 and 16 others", c->folder, precision, target_name);
  TEST(name) {
    Model *m = NULL;
    size_t n = (size_t)c->n_vocab * (PROMPT + STEPS);
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    if (!want || !got) abort();
    EXPECT_OK(model_open(c->model, &(ModelOptions){.precision = precision, .target = target_name, .context = 96, .chunk = 256, .n_threads = 2}, &m));
    if (m) EXPECT_OK(beside(m, c, 1, 0, want));
    for (size_t i = 0; m && i < COUNT_OF(batch); i++) {
      memset(got, 0x55, n * sizeof *got);
      EXPECT_OK(beside(m, c, batch[i], batch[i] / 2, got));
      EXPECT(!memcmp(want, got, n * sizeof *got), "one of %d", batch[i]);
    }
    model_close(m);
    free(want);
    free(got);
  }
}

int main(void) {
  static Case c;
  int n_cases = 0;
  DIR *dir = opendir("tests/models");
  forever = arena_new("forever");
  for (int i = 0; i < gen_target_count(); i++) if (gen_target_runs(gen_target_get(i), kern_cpu())) target[n_targets++] = gen_target_get(i)->name;
  for (struct dirent *d = dir ? readdir(dir) : NULL; d; d = readdir(dir)) {
    if (d->d_name[0] == '.' || !case_read(arena_dup(forever, d->d_name), &c)) continue;
    static const char *const precision[] = {"f32", "int8"};
    against_golden(&c);
    for (int p = 0; p < 2; p++) {
      same_everywhere(&c, precision[p], "f32");
      same_everywhere(&c, precision[p], "f16");
      for (int t = 0; t < n_targets; t++) same_beside_others(&c, precision[p], target[t]);
    }
    str_free(&c.want);
    n_cases++;
  }
  if (dir) closedir(dir);
  TEST("there are models") EXPECT(n_cases >= 2, "%d", n_cases);
  arena_free(forever);
  TEST_MAIN_END();
}
