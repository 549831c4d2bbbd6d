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
  int32_t *same;           /* dry's: how many tokens before each of the last ones repeat the end of the text */
  size_t cap_same;
  int64_t position;        /* of the token that is chosen */
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

double run_exp_negative(double x) {
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

double run_log_positive(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int64_t exponent = (int64_t)(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffu) | (uint64_t)1023 << 52;
  double m;                                   /* 1 <= m < 2, then around 1 */
  memcpy(&m, &bits, sizeof m);
  if (m > 1.4142135623730951) m *= 0.5, exponent++;
  double z = (m - 1) / (m + 1), s = z * z, y = 0; /* ln m = 2 artanh z, |z| <= 0.172: s^12 is under 1e-18 */
  for (int k = 23; k >= 1; k -= 2) y = y * s + 1.0 / k;
  return (double)exponent * 0.693147180559945309 + 2 * z * y;
}

/* 0 <= u < 1 out of random bits. */
static double unit_of(uint64_t random) { return (double)(random >> 11) * 0x1p-53; }

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

static int by_id(const void *a, const void *b) {
  const Candidate *x = a, *y = b;
  return (x->id > y->id) - (x->id < y->id);
}

static int by_rank(const void *a, const void *b) {
  const Candidate *x = a, *y = b;
  return x->x != y->x ? (x->x > y->x ? -1 : 1) : by_id(a, b);
}

/* The k best of the list, in order. */
static void list_best(RunSampler *s, int64_t k) {
  if (!s->sorted) qsort(s->list, (size_t)s->n, sizeof *s->list, by_rank);
  s->sorted = true;
  s->n = MIN(s->n, k);
}

/* Weights at a temperature -> their sum, in list order. */
static double weigh(RunSampler *s, double temperature) {
  double sum = 0;
  for (int64_t i = 0; i < s->n; i++) sum += s->list[i].weight = run_exp_negative(((double)s->list[i].x - s->max) / temperature);
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

/* same[i], for i tokens before the end: how long a stretch that ends there equals the end of the text, at most `most`. Z-function of the text
   read backwards (Gusfield 1997): linear. */
static void repeats_find(RunSampler *s, const int32_t *end, int64_t n, int64_t most) {
  int64_t from = 0, to = 0;                   /* the stretch that reaches furthest back */
  for (int64_t i = 1; i < n; i++) {
    int64_t z = i < to ? MIN((int64_t)s->same[i - from], to - i) : 0;
    while (i + z < n && end[-1 - (i + z)] == end[-1 - z]) z++;
    s->same[i] = (int32_t)z;
    if (i + z > to) from = i, to = i + z;
  }
  for (int64_t i = 1; i < n; i++) s->same[i] = (int32_t)MIN((int64_t)s->same[i], most);
}

/* "Don't repeat yourself" (p-e-w, text-generation-webui #5677). A repetition does not go through tokens that break it. */
static void sample_dry(RunSampler *s, const Past *past) {
  int64_t n = s->p.dry_window && past->n > s->p.dry_window ? s->p.dry_window : past->n, most = 0;
  const int32_t *end = past->id + past->n;
  const uint8_t *breaks = s->p.dry_breaks;
  while (most < n && !(breaks && breaks[end[-1 - most]])) most++;
  if (most < s->p.dry_allowed_length || n < 2) return;
  if ((size_t)n > s->cap_same) {
    s->cap_same = (size_t)n * 2;
    s->same = realloc(s->same, s->cap_same * sizeof *s->same);
    CHECK(s->same, "no memory for %zu tokens", s->cap_same);
  }
  repeats_find(s, end, n, most);
  for (int64_t i = 1; i < n; i++) {           /* the token behind the stretch that ends i before the end: the longest stretch counts */
    int32_t next = end[-i];
    if (s->same[i] >= s->p.dry_allowed_length && !(breaks && breaks[next])) s->count[next] = MAX(s->count[next], (uint32_t)s->same[i]);
  }
  for (int64_t i = 1; i < n; i++) {
    int32_t next = end[-i];
    if (!s->count[next]) continue;
    double penalty = s->p.dry_multiplier;
    for (int64_t k = s->p.dry_allowed_length; k < s->count[next] && penalty < 1e30; k++) penalty *= s->p.dry_base;
    s->x[next] -= (float)MIN(penalty, 1e30);
    s->count[next] = 0;
  }
}

static void sample_top_n_sigma(RunSampler *s, const Past *past) {
  (void)past;
  list_all(s);
  double sum = 0, square = 0, n = (double)s->n;
  for (int64_t i = 0; i < s->n; i++) sum += (double)s->list[i].x - s->max;
  for (int64_t i = 0; i < s->n; i++) {
    double d = (double)s->list[i].x - s->max - sum / n;
    square += d * d;
  }
  double floor = -s->p.top_n_sigma * sqrt(square / n); /* IEEE's square root is exact */
  int64_t kept = 0;
  for (int64_t i = 0; i < s->n; i++)
    if ((double)s->list[i].x - s->max >= floor) s->list[kept++] = s->list[i];
  s->n = kept;
}

static void sample_top_k(RunSampler *s, const Past *past) {
  (void)past;
  if (s->n) {
    list_best(s, s->p.top_k);
    return;
  }
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

static int by_distance(const void *a, const void *b) {
  const Candidate *x = a, *y = b;
  return x->weight != y->weight ? (x->weight < y->weight ? -1 : 1) : (x->id > y->id) - (x->id < y->id);
}

/* Meister et al. 2022. Afterwards candidates are in order of their id. */
static void sample_typical_p(RunSampler *s, const Past *past) {
  (void)past;
  list_all(s);
  double sum = weigh(s, 1), log_sum = run_log_positive(sum), entropy = 0, reached = 0;
  for (int64_t i = 0; i < s->n; i++) entropy -= s->list[i].weight / sum * ((double)s->list[i].x - s->max - log_sum);
  for (int64_t i = 0; i < s->n; i++) {
    double d = -((double)s->list[i].x - s->max - log_sum) - entropy;
    s->list[i].weight = d < 0 ? -d : d;
  }
  qsort(s->list, (size_t)s->n, sizeof *s->list, by_distance);
  int64_t kept = 0;
  while (kept < s->n && reached <= s->p.typical_p) reached += run_exp_negative((double)s->list[kept++].x - s->max) / sum;
  s->n = kept;
  s->sorted = false;
  qsort(s->list, (size_t)s->n, sizeof *s->list, by_id);
  s->max = s->list[0].x;                      /* the likeliest may be gone */
  for (int64_t i = 1; i < s->n; i++) s->max = MAX(s->max, s->list[i].x);
}

/* Exclude top choices (p-e-w, text-generation-webui #6335). */
static void sample_xtc(RunSampler *s, const Past *past) {
  (void)past;
  list_all(s);
  if (unit_of(run_random(~s->p.seed, s->position)) >= s->p.xtc_probability) return;
  double sum = weigh(s, 1);
  const Candidate *least = NULL;
  int64_t n = 0, kept = 0;
  for (int64_t i = 0; i < s->n; i++) {
    const Candidate *c = &s->list[i];
    if (c->weight < s->p.xtc_threshold * sum) continue;
    n++;
    if (!least || better(least->x, least->id, c)) least = c;
  }
  if (n < 2) return;
  int32_t stays = least->id;
  for (int64_t i = 0; i < s->n; i++)
    if (s->list[i].id == stays || s->list[i].weight < s->p.xtc_threshold * sum) s->list[kept++] = s->list[i];
  s->n = kept;
  s->max = s->list[0].x;
  for (int64_t i = 1; i < s->n; i++) s->max = MAX(s->max, s->list[i].x);
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

static bool may_come(const uint64_t *allowed, int64_t i) { return !allowed || (allowed[i / 64] >> (i % 64) & 1); }

/* The largest of x[n] that may come and where it is first. */
static Err *largest(const float *x, const uint64_t *allowed, int64_t n, int64_t position, int32_t *out) {
  float max = -INFINITY;
  int64_t at = -1;
  for (int64_t i = 0; i < n; i++) {
    if (!(x[i] < INFINITY))
      return err_new(ERR_FORMAT, "logit of token %lld at position %lld: %g, expected a number", (long long)i, (long long)position, (double)x[i]);
    if (x[i] > max && may_come(allowed, i)) max = x[at = i];
  }
  if (at < 0) return err_new(ERR_FORMAT, "logits at position %lld: all that may come are -inf, nothing can be chosen", (long long)position);
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

Err *run_sampling_check(const RunSampling *p, int64_t n_vocab) {
  const struct { const char *name; double value, lo, hi; } range[] = {
    {"temperature", p->temperature, 0, 1e6}, {"top-k", (double)p->top_k, 0, 1e9}, {"top-p", p->top_p, 0, 1}, {"min-p", p->min_p, 0, 1},
    {"typical-p", p->typical_p, 0, 1}, {"top-n-sigma", p->top_n_sigma, 0, 1e6}, {"xtc-probability", p->xtc_probability, 0, 1}, {"xtc-threshold", p->xtc_threshold, 0, 1},
    {"dry-multiplier", p->dry_multiplier, 0, 1e3}, {"dry-base", p->dry_multiplier > 0 ? p->dry_base : 1, 1, 1e3},
    {"dry-allowed-length", p->dry_multiplier > 0 ? (double)p->dry_allowed_length : 1, 1, 1e6}, {"dry-window", (double)p->dry_window, 0, 1e12},
    {"repeat-penalty", p->repeat_penalty, 1e-3, 1e3}, {"repeat-window", (double)p->repeat_window, 0, 1e12},
    {"presence-penalty", p->presence_penalty, -1e3, 1e3}, {"frequency-penalty", p->frequency_penalty, -1e3, 1e3}};
  for (size_t i = 0; i < COUNT_OF(range); i++)
    if (!(range[i].value >= range[i].lo && range[i].value <= range[i].hi))
      return err_new(ERR_USAGE, "%s: %g, expected %g to %g", range[i].name, range[i].value, range[i].lo, range[i].hi);
  for (int i = 0; i < p->n_biases; i++)
    if (p->bias[i].id < 0 || p->bias[i].id >= n_vocab || !(p->bias[i].add < INFINITY))
      return err_new(ERR_USAGE, "bias of token %d: %g, expected a number and a token from 0 to %lld", p->bias[i].id, (double)p->bias[i].add, (long long)n_vocab - 1);
  return NULL;
}

Err *run_sampler_new(const RunSampling *p, int64_t n_vocab, RunSampler **out) {
  CHECK(n_vocab > 0 && n_vocab <= INT32_MAX, "vocabulary of %lld", (long long)n_vocab);
  TRY(run_sampling_check(p, n_vocab));
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
  free(s->same);
  free(s);
}

Err *run_sampler_pick(RunSampler *s, const float *logits, const uint64_t *allowed, const int32_t *context, int64_t n_context, int64_t n_prompt, int32_t *out) {
  int32_t best;
  Past past = {context, n_context, MIN(n_prompt, n_context)};
  if (!s->x) return largest(logits, allowed, s->n_vocab, n_context, out);
  for (int64_t i = 0; i < n_context; i++) CHECK(context[i] >= 0 && context[i] < s->n_vocab, "token %d in the context", context[i]);
  memcpy(s->x, logits, (size_t)s->n_vocab * sizeof *s->x);
  s->n = 0;
  s->sorted = false;
  for (size_t i = 0; i < COUNT_OF(rows); i++)
    if (rows[i].stage == LOGIT && row_on(&s->p, i)) rows[i].fn(s, &past);
  for (int64_t i = 0; allowed && i < s->n_vocab; i++)
    if (!may_come(allowed, i)) s->x[i] = -INFINITY;
  TRY(largest(s->x, NULL, s->n_vocab, n_context, &best));
  s->position = n_context;
  s->max = s->x[best];
  for (size_t i = 0; i < COUNT_OF(rows); i++)
    if (rows[i].stage == CUT && row_on(&s->p, i)) rows[i].fn(s, &past);
  *out = s->p.temperature > 0 ? draw(s, unit_of(run_random(s->p.seed, n_context))) : best;
  return NULL;
}

uint8_t *run_dry_breaks(Arena *a, const TextVocab *v, int64_t n_vocab, const char *const *text, int n) {
  uint8_t *out = arena_alloc(a, (size_t)n_vocab + 1);
  Str s = {0};
  for (int64_t id = 0; id < MIN(n_vocab, (int64_t)text_vocab_n_tokens(v)); id++) {
    str_clear(&s);
    text_detokenize(v, &(int32_t){(int32_t)id}, 1, 0, &s);
    for (int i = 0; i < n; i++) out[id] |= s.n && memmem(s.p, s.n, text[i], strlen(text[i]));
  }
  str_free(&s);
  return out;
}

void run_sampler_help(FILE *f) {
  for (size_t i = 0; i < COUNT_OF(rows); i++) fprintf(f, "  %-12s %s\n", rows[i].name, rows[i].meaning);
}
