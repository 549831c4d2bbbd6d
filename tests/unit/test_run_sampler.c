/* Samplers: hand-computed choices, ties, the order, the seed. */
#include <math.h>
#include "run/run.h"
#include "test.h"

/* The choice for logits at position n, or -1 after a failure. */
static int32_t pick_at(RunSampling p, const float *logits, int n_vocab, const int32_t *context, int64_t n, int64_t n_prompt) {
  RunSampler *s;
  int32_t id = -1;
  Err *e = run_sampler_new(&p, n_vocab, &s);
  if (!e) {
    e = run_sampler_pick(s, logits, NULL, context, n, n_prompt, &id);
    run_sampler_free(s);
  }
  err_free(e);
  return id;
}

static double uniform(uint64_t seed, int64_t position) { return (double)(run_random(seed, position) >> 11) / 9007199254740992.0; }

/* Which ids come up over many positions, as a set of bits. */
static unsigned support(RunSampling p, const float *logits, int n_vocab) {
  static int32_t context[400];
  unsigned seen = 0;
  for (int i = 0; i < 400; i++) seen |= 1u << pick_at(p, logits, n_vocab, context, i, i);
  return seen;
}

static void test_greedy(void) {
  RunSampling p = RUN_SAMPLING_GREEDY;
  TEST("greedy takes the largest, ties to the lowest id") {
    EXPECT(pick_at(p, (float[]){1, 3, 3, 2}, 4, NULL, 0, 0) == 1);
    EXPECT(pick_at(p, (float[]){-INFINITY, -5, -INFINITY}, 3, NULL, 0, 0) == 1);
    EXPECT(pick_at(p, (float[]){-0.0f, 0.0f}, 2, NULL, 0, 0) == 0);
    p.seed = 99, p.top_k = 1, p.top_p = 0.1;
    EXPECT(pick_at(p, (float[]){1, 3, 3, 2}, 4, NULL, 0, 0) == 1, "cuts and seeds change nothing");
  }
  TEST("logits that are no numbers are an error") {
    RunSampling q = RUN_SAMPLING_GREEDY;
    for (int t = 0; t < 2; t++, q.temperature = 1) {
      EXPECT(pick_at(q, (float[]){1, NAN, 2}, 3, NULL, 0, 0) == -1);
      EXPECT(pick_at(q, (float[]){1, INFINITY, 2}, 3, NULL, 0, 0) == -1);
      EXPECT(pick_at(q, (float[]){-INFINITY, -INFINITY}, 2, NULL, 0, 0) == -1);
    }
    RunSampler *s;
    int32_t id = 77;
    EXPECT_OK(run_sampler_new(&q, 2, &s));
    Err *e = run_sampler_pick(s, (float[]){0, NAN}, NULL, (int32_t[]){0, 0, 0}, 3, 0, &id);
    EXPECT(e && err_kind(e) == ERR_FORMAT && strstr(err_text(e), "token 1 at position 3"), "%s", e ? err_text(e) : "no error");
    EXPECT(id == 77, "nothing is written on failure");
    err_free(e);
    run_sampler_free(s);
  }
  TEST("settings outside their range are refused by name") {
    struct { RunSampling p; const char *name; } bad[] = {
      {{.temperature = -1, .top_p = 1, .repeat_penalty = 1}, "temperature"}, {{.temperature = NAN, .top_p = 1, .repeat_penalty = 1}, "temperature"},
      {{.top_p = 1.5, .repeat_penalty = 1}, "top-p"}, {{.top_p = 1, .repeat_penalty = 0}, "repeat-penalty"}, {{.top_p = 1, .repeat_penalty = 1, .min_p = 2}, "min-p"},
      {{.top_p = 1, .repeat_penalty = 1, .top_k = -1}, "top-k"}, {{.top_p = 1, .repeat_penalty = 1, .bias = (RunBias[]){{4, 1}}, .n_biases = 1}, "token 4"},
      {{.top_p = 1, .repeat_penalty = 1, .bias = (RunBias[]){{2, INFINITY}}, .n_biases = 1}, "token 2"}};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
      RunSampler *s;
      Err *e = run_sampler_new(&bad[i].p, 4, &s);
      EXPECT(e && err_kind(e) == ERR_USAGE && strstr(err_text(e), bad[i].name), "%s: %s", bad[i].name, e ? err_text(e) : "accepted");
      if (!e) run_sampler_free(s);
      err_free(e);
    }
  }
}

static void test_penalties(void) {
  TEST("bias adds to its token") {
    RunSampling p = RUN_SAMPLING_GREEDY;
    p.bias = (RunBias[]){{2, 2.5f}, {1, -1}, {2, 0.25f}}, p.n_biases = 3;
    EXPECT(pick_at(p, (float[]){0.5f, 2, 0}, 3, NULL, 0, 0) == 2, "0.5, 1, 2.75");
    p.n_biases = 0;
    EXPECT(pick_at(p, (float[]){0.5f, 2, 0}, 3, NULL, 0, 0) == 1);
    p.bias = (RunBias[]){{1, -INFINITY}}, p.n_biases = 1;
    EXPECT(pick_at(p, (float[]){0.5f, 2, 0}, 3, NULL, 0, 0) == 0, "-inf forbids");
  }
  TEST("repetition divides positive logits and multiplies negative ones, once") {
    RunSampling p = RUN_SAMPLING_GREEDY;
    p.repeat_penalty = 2;
    EXPECT(pick_at(p, (float[]){3.9f, 2, -9}, 3, (int32_t[]){0, 0, 0}, 3, 3) == 1, "3.9 / 2 < 2");
    EXPECT(pick_at(p, (float[]){4.1f, 2, -9}, 3, (int32_t[]){0, 0, 0}, 3, 3) == 0, "4.1 / 2 > 2: only once");
    EXPECT(pick_at(p, (float[]){-1, -1.5f, -9}, 3, (int32_t[]){0}, 1, 0) == 1, "-1 * 2 < -1.5");
  }
  TEST("the window of repetition holds prompt and answer, and ends") {
    RunSampling p = RUN_SAMPLING_GREEDY;
    p.repeat_penalty = 2;
    p.repeat_window = 2;
    float x[] = {3, 2, 1};
    EXPECT(pick_at(p, x, 3, (int32_t[]){0, 1, 2}, 3, 3) == 0, "0 is too far back");
    EXPECT(pick_at(p, x, 3, (int32_t[]){1, 0, 2}, 3, 2) == 1);
    p.repeat_window = 0;
    EXPECT(pick_at(p, x, 3, (int32_t[]){0, 2, 2}, 3, 3) == 1, "0: all");
  }
  TEST("presence and frequency count the answer's tokens only") {
    RunSampling p = RUN_SAMPLING_GREEDY;
    float x[] = {3, 2.25f, 1};
    p.presence_penalty = 1;
    EXPECT(pick_at(p, x, 3, (int32_t[]){0, 0, 2}, 3, 2) == 0, "0 is the prompt's");
    EXPECT(pick_at(p, x, 3, (int32_t[]){2, 0, 0}, 3, 1) == 1, "3 - 1 < 2.25");
    p.presence_penalty = 0, p.frequency_penalty = 0.5;
    EXPECT(pick_at(p, x, 3, (int32_t[]){2, 2, 0}, 3, 1) == 0, "3 - 0.5 > 2.25");
    EXPECT(pick_at(p, x, 3, (int32_t[]){2, 0, 0}, 3, 1) == 1, "3 - 2 * 0.5 < 2.25");
    p.presence_penalty = 0.25;
    EXPECT(pick_at(p, x, 3, (int32_t[]){2, 2, 0}, 3, 1) == 0, "2.25 = 2.25: the lowest id");
  }
  TEST("penalties leave no trace for the next token") {
    RunSampling p = RUN_SAMPLING_GREEDY;
    RunSampler *s;
    int32_t id;
    p.repeat_penalty = 2, p.frequency_penalty = 1;
    EXPECT_OK(run_sampler_new(&p, 3, &s));
    EXPECT_OK(run_sampler_pick(s, (float[]){3, 2, 1}, NULL, (int32_t[]){0, 0, 0}, 3, 1, &id));
    EXPECT(id == 1);
    EXPECT_OK(run_sampler_pick(s, (float[]){3, 2, 1}, NULL, (int32_t[]){2}, 1, 0, &id));
    EXPECT(id == 0);
    run_sampler_free(s);
  }
}

static void test_cuts(void) {
  /* probabilities 0.1 0.4 0.05 0.25 0.2 */
  float x[] = {logf(0.1f), logf(0.4f), logf(0.05f), logf(0.25f), logf(0.2f)};
  RunSampling all = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = 3};
  TEST("without cuts everything comes up") { EXPECT(support(all, x, 5) == 0x1f); }
  TEST("top-k keeps the k largest, ties to the lowest ids") {
    RunSampling p = all;
    for (p.top_k = 1; p.top_k <= 6; p.top_k++) {
      static const unsigned want[] = {0, 1u << 1, 0x0a, 0x1a, 0x1b, 0x1f, 0x1f};
      EXPECT(support(p, x, 5) == want[p.top_k], "top_k %lld: 0x%x", (long long)p.top_k, support(p, x, 5));
    }
    p.top_k = 2;
    EXPECT(support(p, (float[]){1, 2, 2, 2, 2}, 5) == 0x06);
    EXPECT(support(p, (float[]){1, 1, 1, 1, 2}, 5) == 0x11);
    EXPECT(support(p, (float[]){-INFINITY, -INFINITY, 1, -INFINITY, -INFINITY}, 5) == 0x04, "-inf is never kept");
  }
  TEST("top-p keeps the fewest that reach it, sorted or not") {
    const struct { double p; unsigned want; } cases[] = {{0, 0x02}, {0.39, 0x02}, {0.41, 0x0a}, {0.64, 0x0a}, {0.66, 0x1a}, {0.84, 0x1a}, {0.86, 0x1b}, {0.96, 0x1f}, {1, 0x1f}};
    for (size_t i = 0; i < COUNT_OF(cases); i++)
      for (int k = 0; k <= 5; k += 5) {
        RunSampling p = all;
        p.top_p = cases[i].p, p.top_k = k;
        EXPECT(support(p, x, 5) == cases[i].want, "top_p %g top_k %d: 0x%x, expected 0x%x", cases[i].p, k, support(p, x, 5), cases[i].want);
      }
  }
  TEST("top-p counts what top-k left: 0.4 and 0.25 become 0.615 and 0.385") {
    RunSampling p = all;
    p.top_k = 2, p.top_p = 0.61;
    EXPECT(support(p, x, 5) == 0x02);
    p.top_p = 0.62;
    EXPECT(support(p, x, 5) == 0x0a);
  }
  TEST("min-p keeps what is near the best") {
    const struct { double p; unsigned want; } cases[] = {{0.12, 0x1f}, {0.13, 0x1b}, {0.24, 0x1b}, {0.26, 0x1a}, {0.51, 0x0a}, {0.63, 0x02}, {1, 0x02}};
    for (size_t i = 0; i < COUNT_OF(cases); i++)
      for (int k = 0; k <= 5; k += 5) {
        RunSampling p = all;
        p.min_p = cases[i].p, p.top_k = k;
        EXPECT(support(p, x, 5) == cases[i].want, "min_p %g: 0x%x, expected 0x%x", cases[i].p, support(p, x, 5), cases[i].want);
      }
  }
  TEST("cuts look at probabilities before temperature") {
    RunSampling p = all;
    p.min_p = 0.51, p.temperature = 50;
    EXPECT(support(p, x, 5) == 0x0a);
  }
  TEST("cuts look at logits after penalties") {
    RunSampling p = all;
    p.top_k = 1, p.bias = (RunBias[]){{2, 10}}, p.n_biases = 1;
    EXPECT(support(p, x, 5) == 0x04);
  }
}

static void test_draw(void) {
  TEST("random bits are splitmix64 of seed and position (values from an independent computation)") {
    EXPECT(run_random(0, 0) == 0xa706dd2f4d197e6fu);
    EXPECT(run_random(0, 1) == 0xb382a305f4414f5eu);
    EXPECT(run_random(1, 0) == 0x5e41ab087439611eu);
    EXPECT(run_random(42, 1000) == 0xb1fc8c824d524899u);
    EXPECT(run_random(UINT64_MAX, 7) == 0xb94ec6a04d7b4627u);
  }
  float x[] = {logf(0.5f), logf(0.3f), logf(0.2f)};
  static int32_t context[3000];
  TEST("the draw walks the tokens by id, or by rank after a sort") {
    RunSampling p = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = 7};
    float up[] = {x[2], x[1], x[0]};
    for (int i = 0; i < 300; i++) {
      double u = uniform(7, i);
      if (fabs(u - 0.5) < 1e-6 || fabs(u - 0.8) < 1e-6 || fabs(u - 0.2) < 1e-6) continue;
      p.top_k = 0;
      EXPECT(pick_at(p, x, 3, context, i, i) == (u < 0.5 ? 0 : u < 0.8 ? 1 : 2));
      EXPECT(pick_at(p, up, 3, context, i, i) == (u < 0.2 ? 0 : u < 0.5 ? 1 : 2));
      p.top_k = 3;
      EXPECT(pick_at(p, up, 3, context, i, i) == (u < 0.5 ? 2 : u < 0.8 ? 1 : 0));
    }
  }
  TEST("temperature 0.5 squares probabilities: 25 9 4 of 38") {
    RunSampling p = {.temperature = 0.5, .top_p = 1, .repeat_penalty = 1, .seed = 8};
    for (int i = 0; i < 300; i++) {
      double u = uniform(8, i) * 38;
      if (fabs(u - 25) > 1e-4 && fabs(u - 34) > 1e-4) EXPECT(pick_at(p, x, 3, context, i, i) == (u < 25 ? 0 : u < 34 ? 1 : 2));
    }
  }
  TEST("3000 positions of one seed: shares within 3%") {
    RunSampling p = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = 9};
    int n[3] = {0};
    for (int i = 0; i < 3000; i++) n[pick_at(p, x, 3, context, i, i)]++;
    EXPECT(abs(n[0] - 1500) < 90 && abs(n[1] - 900) < 90 && abs(n[2] - 600) < 90, "%d %d %d", n[0], n[1], n[2]);
  }
  TEST("the lowest temperatures take the best, the lowest logits never come") {
    RunSampling p = {.temperature = 1e-6, .top_p = 1, .repeat_penalty = 1};
    EXPECT(support(p, (float[]){-1e30f, 3, 3.01f, -INFINITY}, 4) == 0x04);
    p.temperature = 1;
    EXPECT(support(p, (float[]){-1e30f, 3, 3, -INFINITY}, 4) == 0x06);
    EXPECT(support(p, (float[]){3.4e38f, -3.4e38f}, 2) == 0x01);
  }
}

/* A large vocabulary: each cut against sorting everything. */
typedef struct Pair { float x; int32_t id; } Pair;
static int by_rank(const void *a, const void *b) {
  const Pair *p = a, *q = b;
  return p->x != q->x ? (p->x < q->x ? 1 : -1) : p->id - q->id;
}

static int32_t slow_pick(const float *x, int n, int k, double top_p, double temperature, double u) {
  Pair *r = malloc((size_t)n * sizeof *r);
  double sum = 0, kept = 0, goal;
  for (int i = 0; i < n; i++) r[i] = (Pair){x[i], i};
  qsort(r, (size_t)n, sizeof *r, by_rank);
  if (!k) k = n;
  for (int i = 0; i < k; i++) sum += exp((double)r[i].x - r[0].x);
  int m = 0;
  while (m < k && (m == 0 || kept < top_p * sum)) kept += exp((double)r[m++].x - r[0].x);
  sum = 0;
  for (int i = 0; i < m; i++) sum += exp(((double)r[i].x - r[0].x) / temperature);
  goal = u * sum, sum = 0;
  int i = 0;
  while (i < m - 1 && (sum += exp(((double)r[i].x - r[0].x) / temperature)) <= goal) i++;
  int32_t id = r[i].id;
  free(r);
  return id;
}

static void test_large(void) {
  enum { N = 20011 };
  float *x = malloc(N * sizeof *x);
  static int32_t context[64];
  TEST("a large vocabulary agrees with sorting everything") {
    for (int round = 0; round < 12; round++) {
      for (int i = 0; i < N; i++) x[i] = (float)(int)(run_random((uint64_t)round, i) % 4001) / 400; /* many ties */
      const int ks[] = {0, 1, 40, 5000};
      const double ps[] = {0.3, 0.95, 0.9999};
      for (int c = 0; c < 12; c++) {
        RunSampling p = {.temperature = 0.7, .top_k = ks[c % 4], .top_p = ps[c / 4], .repeat_penalty = 1, .seed = (uint64_t)round};
        int32_t got = pick_at(p, x, N, context, c, c), want = slow_pick(x, N, ks[c % 4], ps[c / 4], 0.7, uniform((uint64_t)round, c));
        EXPECT(got == want, "round %d top_k %d top_p %g: %d, expected %d", round, ks[c % 4], ps[c / 4], got, want);
      }
    }
  }
  free(x);
}

static void test_more_cuts(void) {
  /* probabilities 0.1 0.4 0.05 0.25 0.2: expected information 1.415, of the tokens 2.303 0.916 2.996 1.386 1.609 */
  float x[] = {logf(0.1f), logf(0.4f), logf(0.05f), logf(0.25f), logf(0.2f)};
  RunSampling all = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = 3};
  TEST("typical-p: nearest to the expected information first: 0.25 0.2 0.4 0.1 0.05") {
    const struct { double p; unsigned want; } cases[] = {{0.24, 0x08}, {0.26, 0x18}, {0.44, 0x18}, {0.46, 0x1a}, {0.84, 0x1a}, {0.86, 0x1b}, {0.96, 0x1f}, {1, 0x1f}, {0, 0x1f}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
      RunSampling p = all;
      p.typical_p = cases[i].p;
      EXPECT(support(p, x, 5) == cases[i].want, "typical_p %g: 0x%x, expected 0x%x", cases[i].p, support(p, x, 5), cases[i].want);
    }
    RunSampling p = all;
    p.typical_p = 0.3, p.min_p = 0.9; /* 0.25 and 0.2 are left; 0.2 / 0.25 < 0.9 */
    EXPECT(support(p, x, 5) == 0x08, "what follows measures by the best that is left: 0x%x", support(p, x, 5));
  }
  TEST("top-n-sigma: logits 0 to 0.8 have deviation 0.283") {
    float y[] = {0, 0.2f, 0.4f, 0.6f, 0.8f};
    const struct { double n; unsigned want; } cases[] = {{0.5, 0x10}, {1, 0x18}, {1.5, 0x1c}, {2.5, 0x1e}, {2.9, 0x1f}, {0, 0x1f}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
      RunSampling p = all;
      p.top_n_sigma = cases[i].n;
      EXPECT(support(p, y, 5) == cases[i].want, "top_n_sigma %g: 0x%x, expected 0x%x", cases[i].n, support(p, y, 5), cases[i].want);
      p.top_k = 2; /* behind it, of what is left */
      EXPECT(support(p, y, 5) == (cases[i].want & 0x18), "and top_k 2: 0x%x", support(p, y, 5));
    }
  }
  TEST("XTC drops the likeliest above its threshold but the least of them") {
    RunSampling p = all;
    p.xtc_probability = 1, p.xtc_threshold = 0.15;
    EXPECT(support(p, x, 5) == 0x15, "0x%x", support(p, x, 5));
    p.xtc_threshold = 0.24;
    EXPECT(support(p, x, 5) == 0x1d, "0x%x", support(p, x, 5));
    p.xtc_threshold = 0.3;
    EXPECT(support(p, x, 5) == 0x1f, "one above it is none too many: 0x%x", support(p, x, 5));
    p.xtc_threshold = 0.15, p.xtc_probability = 0;
    EXPECT(support(p, x, 5) == 0x1f);
    p.xtc_probability = 0.5;
    int n_best = 0;
    for (int i = 0; i < 400; i++) n_best += pick_at(p, x, 5, (int32_t[400]){0}, i, i) == 1;
    EXPECT(n_best > 400 * 0.4 * 0.5 * 0.7 && n_best < 400 * 0.4 * 0.5 * 1.3, "half the time 0.4 may come: %d of 400", n_best);
  }
}

/* dry's choice between 3, which would prolong the repetition, and 4. */
static int32_t dry(RunSampling p, const int32_t *context, int n, float better_by) {
  return pick_at(p, (float[]){-9, -9, -9, 1 + better_by, 1, -9}, 6, context, n, 0);
}

static void test_dry(void) {
  RunSampling p = RUN_SAMPLING_GREEDY;
  p.dry_multiplier = 1, p.dry_base = 2, p.dry_allowed_length = 2;
  const int32_t again[] = {0, 1, 2, 3, 5, 0, 1, 2};
  TEST("DRY: 0 1 2 came before, 3 behind it: minus 1 * 2^(3 - 2)") {
    EXPECT(dry(p, again, 8, 1.9f) == 4);
    EXPECT(dry(p, again, 8, 2.1f) == 3);
    p.dry_multiplier = 3, p.dry_base = 1;
    EXPECT(dry(p, again, 8, 2.9f) == 4);
    EXPECT(dry(p, again, 8, 3.1f) == 3);
    p.dry_multiplier = 1, p.dry_base = 2, p.dry_allowed_length = 3;
    EXPECT(dry(p, again, 8, 0.9f) == 4, "2^0");
    EXPECT(dry(p, again, 8, 1.1f) == 3);
    p.dry_allowed_length = 4;
    EXPECT(dry(p, again, 8, 0.1f) == 3, "shorter than what is allowed");
    p.dry_allowed_length = 2;
  }
  TEST("DRY: the longest repetition counts; the window and breaks end it") {
    const int32_t twice[] = {0, 1, 2, 3, 1, 2, 3, 0, 1, 2};
    EXPECT(dry(p, twice, 10, 1.9f) == 4, "3, not 2");
    p.dry_window = 5;
    EXPECT(dry(p, twice, 10, 0.1f) == 3, "2 3 0 1 2: nothing comes twice but 2");
    p.dry_window = 6;
    EXPECT(dry(p, twice, 10, 0.9f) == 4 && dry(p, twice, 10, 1.1f) == 3, "1 2 3 0 1 2: 2^0");
    p.dry_window = 0;
    p.dry_breaks = (uint8_t[]){1, 0, 0, 0, 0, 0};
    EXPECT(dry(p, again, 8, 0.9f) == 4 && dry(p, again, 8, 1.1f) == 3, "1 2 is left: 2^0");
    p.dry_breaks = (uint8_t[]){0, 1, 0, 0, 0, 0};
    EXPECT(dry(p, again, 8, 0.1f) == 3, "2 alone is shorter than what is allowed");
    p.dry_breaks = (uint8_t[]){0, 0, 0, 1, 0, 0};
    EXPECT(dry(p, again, 8, 0.1f) == 3, "a break is never held down");
    p.dry_breaks = NULL;
    int32_t same[600];
    for (int i = 0; i < 600; i++) same[i] = 3;
    EXPECT(dry(p, same, 600, 1e6f) == 4, "a huge penalty is still a number");
  }
}

static void test_allowed(void) {
  TEST("only what is allowed is chosen, whatever the samplers") {
    float x[70];
    uint64_t allowed[2] = {1u << 5 | 1u << 7, 1u << 1};
    for (int i = 0; i < 70; i++) x[i] = i == 65 ? 0 : (float)(70 - i);
    RunSampling p[] = {RUN_SAMPLING_GREEDY, {.temperature = 5, .top_p = 1, .repeat_penalty = 1}, {.temperature = 5, .top_p = 0.9, .top_k = 3, .repeat_penalty = 1.5, .typical_p = 0.9}};
    for (size_t k = 0; k < COUNT_OF(p); k++) {
      RunSampler *s;
      bool seen[70] = {false};
      EXPECT_OK(run_sampler_new(&p[k], 70, &s));
      for (int i = 0; i < 200; i++) {
        int32_t id = 0, context[200] = {0};
        EXPECT_OK(run_sampler_pick(s, x, allowed, context, i, i, &id));
        seen[id] = true;
      }
      for (int i = 0; i < 70; i++) EXPECT(!seen[i] || i == 5 || i == 7 || i == 65, "%d came up", i);
      EXPECT(seen[5]);
      uint64_t none[2] = {0};
      int32_t id;
      Err *e = run_sampler_pick(s, x, none, NULL, 0, 0, &id);
      EXPECT(e && err_kind(e) == ERR_FORMAT);
      err_free(e);
      run_sampler_free(s);
    }
  }
}

int main(void) {
  test_greedy();
  test_penalties();
  test_cuts();
  test_draw();
  test_large();
  test_more_cuts();
  test_dry();
  test_allowed();
  TEST_MAIN_END();
}
