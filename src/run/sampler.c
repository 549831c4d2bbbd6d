/* Logits of one position to one token. In: logits, the tokens so far, settings. Out: an id, a pure function of these and the seed: every sum
   runs in a fixed order in double, exp is our own, and random bits are a hash of seed and position. So an answer does not change with the
   machine, the thread count, or whatever else is being answered.

   Logit samplers work on a copy x of the logits. The first cut makes a list of candidates out of it: top_k by a heap of its k best, the
   others by taking all. From then on `list` is in descending order where `sorted`, else by id. Nothing is sorted that need not be. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "run/run.h"

typedef struct Candidate { double weight; float x; int32_t id; } Candidate; /* weight: exp(x - max), or at the end of the draw's temperature */

struct RunSampler {
  RunSampling p;
  int64_t n_vocab;
  float *x;                /* [n_vocab]; NULL where no sampler needs a copy */
  uint32_t *count;         /* [n_vocab] zero between calls */
  Candidate *list;         /* [n_vocab] */
  int64_t n;               /* candidates; 0: no list yet */
  bool sorted;
  float max;               /* largest of x */
};

/* The tokens so far, for penalties. */
typedef struct Past { const int32_t *id; int64_t n, n_prompt; } Past;

enum { LOGIT, CUT };

static uint64_t mix(uint64_t z) {                /* splitmix64's finaliser (Steele, Lea, Flood 2014) */
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t run_random(uint64_t seed, int64_t position) {
  const uint64_t golden = 0x9e3779b97f4a7c15u;
  return mix(mix(seed + golden) + ((uint64_t)position + 1) * golden);
}

/* exp of x <= 0 in plain arithmetic, relative error under 1e-15: the C library's result may depend on the processor. 0 below -700. */
static double exp_negative(double x) {
  if (x < -700) return 0;
  double n = (double)(int64_t)(x * 1.4426950408889634 - 0.5); /* cut towards 0: the nearest */
  double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10; /* ln 2 in two parts: n * the first is exact */
  double s = r * r;                          /* |r| <= 0.347: of exp's series the first term left out is under 1e-17; pairs of terms in s */
  double y = 1 / 479001600. + r * (1 / 6227020800.);
  y = (1 / 3628800. + r * (1 / 39916800.)) + s * y;
  y = (1 / 40320. + r * (1 / 362880.)) + s * y;
  y = (1 / 720. + r * (1 / 5040.)) + s * y;
  y = (1 / 24. + r * (1 / 120.)) + s * y;
  y = (1 / 2. + r * (1 / 6.)) + s * y;
  y = (1 + r) + s * y;
  uint64_t bits = (uint64_t)(1023 + (int64_t)n) << 52;
  double scale;
  memcpy(&scale, &bits, sizeof scale);
  return y * scale;
}

static bool better(float x, int32_t id, const Candidate *c) { return x > c->x || (x == c->x && id < c->id); }

/* Restores a heap of n below i; the root is the best, or where `worst` the worst. */
static void sift(Candidate *h, int64_t n, int64_t i, bool worst) {
  Candidate moved = h[i];
  for (int64_t k; (k = 2 * i + 1) < n; i = k) {
    if (k + 1 < n && better(h[k + 1].x, h[k + 1].id, &h[k]) != worst) k++;
    if (better(h[k].x, h[k].id, &moved) == worst) break;
    h[i] = h[k];
  }
  h[i] = moved;
}

static void heap(Candidate *h, int64_t n, bool worst) {
  for (int64_t i = n / 2 - 1; i >= 0; i--) sift(h, n, i, worst);
}

static void list_all(RunSampler *s) {
  if (s->n) return;
  for (int64_t i = 0; i < s->n_vocab; i++)
    if (s->x[i] > -INFINITY) s->list[s->n++] = (Candidate){0, s->x[i], (int32_t)i};
}

/* Weights at a temperature -> their sum, in list order. */
static double weigh(RunSampler *s, double temperature) {
  double sum = 0;
  for (int64_t i = 0; i < s->n; i++) sum += s->list[i].weight = exp_negative(((double)s->list[i].x - s->max) / temperature);
  return sum;
}

static void sample_bias(RunSampler *s, const Past *past) {
  (void)past;
  for (int i = 0; i < s->p.n_biases; i++) s->x[s->p.bias[i].id] += s->p.bias[i].add;
}

static void sample_repetition(RunSampler *s, const Past *past) {
  int64_t begin = s->p.repeat_window && past->n > s->p.repeat_window ? past->n - s->p.repeat_window : 0;
  float penalty = (float)s->p.repeat_penalty;
  for (int64_t i = begin; i < past->n; i++) {
    float *x = &s->x[past->id[i]];
    if (s->count[past->id[i]]++) continue;
    *x = *x < 0 ? *x * penalty : *x / penalty;
  }
  for (int64_t i = begin; i < past->n; i++) s->count[past->id[i]] = 0;
}

static void sample_presence(RunSampler *s, const Past *past) {
  for (int64_t i = past->n_prompt; i < past->n; i++) s->count[past->id[i]]++;
  for (int64_t i = past->n_prompt; i < past->n; i++) {
    int32_t id = past->id[i];
    if (s->count[id]) s->x[id] -= (float)s->count[id] * (float)s->p.frequency_penalty + (float)s->p.presence_penalty;
    s->count[id] = 0;
  }
}

static void sample_top_k(RunSampler *s, const Past *past) {
  (void)past;
  int64_t k = MIN(s->p.top_k, s->n_vocab), n = 0;
  Candidate *h = s->list;
  for (int64_t i = 0; i < s->n_vocab; i++) {
    float x = s->x[i];
    if (n == k && x <= h[0].x) continue;      /* ids rise, so at a tie the one inside wins */
    if (x == -INFINITY) continue;
    if (n < k) {
      h[n++] = (Candidate){0, x, (int32_t)i};
      if (n == k) heap(h, n, true);
    } else {
      h[0] = (Candidate){0, x, (int32_t)i};
      sift(h, n, 0, true);
    }
  }
  if (n < k) heap(h, n, true);
  s->n = n;
  while (n > 1) {                             /* the worst goes to the end, so the order is descending */
    Candidate worst = h[0];
    h[0] = h[--n];
    h[n] = worst;
    sift(h, n, 0, true);
  }
  s->sorted = true;
}

static void sample_top_p(RunSampler *s, const Past *past) {
  (void)past;
  list_all(s);
  double goal = weigh(s, 1) * s->p.top_p, sum = 0;
  Candidate *h = s->list;
  int64_t n = s->n, kept = 0;
  if (s->sorted) while (kept < n && (kept == 0 || sum < goal)) sum += h[kept++].weight;
  else {                                      /* take the best out of a heap until there are enough; they gather at its end */
    heap(h, n, false);
    while (kept < n && (kept == 0 || sum < goal)) {
      Candidate best = h[0];
      sum += best.weight;
      kept++;
      h[0] = h[n - kept];
      h[n - kept] = best;
      sift(h, n - kept, 0, false);
    }
    for (int64_t i = n - kept, j = n - 1; i < j; i++, j--) {
      Candidate c = h[i];
      h[i] = h[j];
      h[j] = c;
    }
    memmove(h, h + (n - kept), (size_t)kept * sizeof *h);
    s->sorted = true;
  }
  s->n = kept;
}

static void sample_min_p(RunSampler *s, const Past *past) {
  (void)past;
  list_all(s);
  weigh(s, 1);
  int64_t n = 0;
  for (int64_t i = 0; i < s->n; i++)
    if (s->list[i].weight >= s->p.min_p) s->list[n++] = s->list[i]; /* the best weighs 1 */
  s->n = n;
}

static void sample_temperature(RunSampler *s, const Past *past) {
  (void)past;
  list_all(s);
  weigh(s, s->p.temperature);
}

/* The first candidate at which the running sum of weights passes u times their sum, 0 <= u < 1. */
static int32_t draw(const RunSampler *s, double u) {
  double sum = 0, goal = 0;
  for (int64_t i = 0; i < s->n; i++) goal += s->list[i].weight;
  goal *= u;
  int32_t last = s->list[0].id;
  for (int64_t i = 0; i < s->n; i++) {
    if (s->list[i].weight <= 0) continue;
    last = s->list[i].id;
    if ((sum += s->list[i].weight) > goal) break;
  }
  return last;                                /* rounding may leave the goal just above the whole sum */
}

/* The largest of x[n] and where it is first. */
static Err *largest(const float *x, int64_t n, int64_t position, int32_t *out) {
  float max = -INFINITY;
  int64_t at = -1;
  for (int64_t i = 0; i < n; i++) {
    if (!(x[i] < INFINITY))
      return err_new(ERR_FORMAT, "logit of token %lld at position %lld: %g, expected a number", (long long)i, (long long)position, (double)x[i]);
    if (x[i] > max) max = x[at = i];
  }
  if (at < 0) return err_new(ERR_FORMAT, "logits at position %lld: all are -inf, nothing can be chosen", (long long)position);
  *out = (int32_t)at;
  return NULL;
}

typedef struct Row { const char *name; int stage; void (*fn)(RunSampler *s, const Past *past); const char *meaning; } Row;
static const Row rows[] = {
#define SAMPLER(name, stage, on, meaning) {#name, stage, sample_##name, meaning},
#include "run/samplers.def"
#undef SAMPLER
};

static bool row_on(const RunSampling *p, size_t row) {
  const bool on[] = {
#define SAMPLER(name, stage, on, meaning) on,
#include "run/samplers.def"
#undef SAMPLER
  };
  return on[row] && (rows[row].stage == LOGIT || p->temperature > 0);
}

static Err *settings_check(const RunSampling *p, int64_t n_vocab) {
  const struct { const char *name; double value, lo, hi; } range[] = {
    {"temperature", p->temperature, 0, 1e6}, {"top-k", (double)p->top_k, 0, 1e9}, {"top-p", p->top_p, 0, 1}, {"min-p", p->min_p, 0, 1},
    {"repeat-penalty", p->repeat_penalty, 1e-3, 1e3}, {"repeat-window", (double)p->repeat_window, 0, 1e12},
    {"presence-penalty", p->presence_penalty, -1e3, 1e3}, {"frequency-penalty", p->frequency_penalty, -1e3, 1e3}};
  for (size_t i = 0; i < COUNT_OF(range); i++)
    if (!(range[i].value >= range[i].lo && range[i].value <= range[i].hi))
      return err_new(ERR_USAGE, "%s: %g, expected %g to %g", range[i].name, range[i].value, range[i].lo, range[i].hi);
  for (int i = 0; i < p->n_biases; i++)
    if (p->bias[i].id < 0 || p->bias[i].id >= n_vocab || isnan(p->bias[i].add))
      return err_new(ERR_USAGE, "bias of token %d: %g, expected a number and a token from 0 to %lld", p->bias[i].id, (double)p->bias[i].add, (long long)n_vocab - 1);
  return NULL;
}

Err *run_sampler_new(const RunSampling *p, int64_t n_vocab, RunSampler **out) {
  CHECK(n_vocab > 0 && n_vocab <= INT32_MAX, "vocabulary of %lld", (long long)n_vocab);
  TRY(settings_check(p, n_vocab));
  RunSampler *s = calloc(1, sizeof *s);
  if (!s) return err_new(ERR_MEMORY, "sampler: %zu bytes", sizeof *s);
  s->p = *p;
  s->n_vocab = n_vocab;
  bool copies = false;
  for (size_t i = 0; i < COUNT_OF(rows); i++) copies = copies || row_on(p, i);
  size_t n = (size_t)n_vocab;
  if (copies) s->x = malloc(n * sizeof *s->x), s->count = calloc(n, sizeof *s->count), s->list = malloc(n * sizeof *s->list);
  if (copies && (!s->x || !s->count || !s->list)) {
    run_sampler_free(s);
    return err_new(ERR_MEMORY, "sampler: %zu bytes", n * (sizeof *s->x + sizeof *s->count + sizeof *s->list));
  }
  *out = s;
  return NULL;
}

void run_sampler_free(RunSampler *s) {
  if (!s) return;
  free(s->x);
  free(s->count);
  free(s->list);
  free(s);
}

Err *run_sampler_pick(RunSampler *s, const float *logits, const int32_t *context, int64_t n_context, int64_t n_prompt, int32_t *out) {
  int32_t best;
  Past past = {context, n_context, MIN(n_prompt, n_context)};
  if (!s->x) return largest(logits, s->n_vocab, n_context, out);
  for (int64_t i = 0; i < n_context; i++) CHECK(context[i] >= 0 && context[i] < s->n_vocab, "token %d in the context", context[i]);
  memcpy(s->x, logits, (size_t)s->n_vocab * sizeof *s->x);
  s->n = 0;
  s->sorted = false;
  for (size_t i = 0; i < COUNT_OF(rows); i++)
    if (rows[i].stage == LOGIT && row_on(&s->p, i)) rows[i].fn(s, &past);
  TRY(largest(s->x, s->n_vocab, n_context, &best));
  s->max = s->x[best];
  for (size_t i = 0; i < COUNT_OF(rows); i++)
    if (rows[i].stage == CUT && row_on(&s->p, i)) rows[i].fn(s, &past);
  *out = s->p.temperature > 0 ? draw(s, (double)(run_random(s->p.seed, n_context) >> 11) * 0x1p-53) : best;
  return NULL;
}

void run_sampler_help(FILE *f) {
  for (size_t i = 0; i < COUNT_OF(rows); i++) fprintf(f, "  %-12s %s\n", rows[i].name, rows[i].meaning);
}
