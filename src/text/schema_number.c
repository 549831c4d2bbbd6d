/* Numbers as texts. A bound or a divisor is an exact decimal; what satisfies it is a regular language of plain decimals (no exponents:
   with them it would not be regular), built by exploring a small machine that reads digits and compares or divides as it goes. -0 is zero.
   Zeros after the point change nothing, so 1.50 is 1.5. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "text/grammar_priv.h"

Err *grammar_dec_from_json(GrWork *w, const json_t *v, Dec *out) {
  char text[64];
  if (json_is_integer(v)) snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
  else if (json_is_real(v) && isfinite(json_real_value(v))) {
    int prec = 15;
    do snprintf(text, sizeof text, "%.*e", prec - 1, json_real_value(v));
    while (prec++ < 17 && strtod(text, NULL) != json_real_value(v)); /* the shortest text that means this number */
  } else return err_new(ERR_FORMAT, "expected a number");
  Dec d = {.neg = text[0] == '-'};
  char *digits = arena_alloc(w->a, sizeof text);
  int n = 0, point = -1, exp = 0;
  for (const char *p = text + d.neg; *p; p++) {
    if (*p == '.') point = n;
    else if (*p == 'e') { exp = atoi(p + 1); break; }
    else digits[n++] = *p;
  }
  d.exp = (point < 0 ? n : point) + exp;
  int skip = 0;
  while (skip < n && digits[skip] == '0') skip++;
  d.digits = digits + skip;
  d.exp -= skip;
  n -= skip;
  while (n && d.digits[n - 1] == '0') n--;
  d.n = n;
  if (!n) d = (Dec){.digits = digits};
  *out = d;
  return NULL;
}

/* Comparing: the magnitude is read from its first digit on. The bound's integer part has n_int digits ("0" when it is below 1). */
enum { AT_START, AT_SIGN, AT_INT, AT_ZERO, AT_POINT, AT_FRAC };
typedef struct Bound { Dec b; int n_int, relations; } Bound;
typedef struct At { int phase, cmp, k, neg; } At; /* cmp: NumRelation so far; k: digits of this part read (int: capped at n_int + 1) */
static uint64_t at_pack(At a) { return (uint64_t)a.phase | (uint64_t)a.cmp << 4 | (uint64_t)a.neg << 8 | (uint64_t)a.k << 16; }
static At at_unpack(uint64_t s) { return (At){s & 15, s >> 4 & 15, (int)(s >> 16), s >> 8 & 1}; }

static int digit_at(const Bound *b, int k) { /* of the bound; k counts from the first digit of its integer part */
  int i = b->b.exp > 0 ? k : k - 1 + b->b.exp;
  return i >= 0 && i < b->b.n ? b->b.digits[i] - '0' : 0;
}
static bool any_digit_from(const Bound *b, int k) { return b->b.n && (b->b.exp > 0 ? k : k - 1 + b->b.exp) < b->b.n; }

static uint64_t compare_step(const void *ctx, uint64_t state, char c) {
  const Bound *b = ctx;
  At a = at_unpack(state);
  if (c == '-') return a.phase == AT_START ? at_pack((At){AT_SIGN, NUM_EQ, 0, 1}) : UINT64_MAX;
  if (c == '.') {
    if (a.phase != AT_INT && a.phase != AT_ZERO) return UINT64_MAX;
    int cmp = a.k < b->n_int ? NUM_LT : a.k > b->n_int ? NUM_GT : a.cmp;
    return at_pack((At){AT_POINT, cmp, 0, a.neg});
  }
  int d = c - '0';
  if (a.phase == AT_ZERO) return UINT64_MAX;
  if (a.phase <= AT_INT) {
    int cmp = a.cmp, want = digit_at(b, a.k);
    if (cmp == NUM_EQ && a.k < b->n_int && d != want) cmp = d < want ? NUM_LT : NUM_GT;
    return at_pack((At){a.phase < AT_INT && !d ? AT_ZERO : AT_INT, cmp, MIN(a.k + 1, b->n_int + 1), a.neg});
  }
  int k = a.k, cmp = a.cmp;
  if (cmp == NUM_EQ) {
    int want = digit_at(b, b->n_int + k);
    if (d != want) cmp = d < want ? NUM_LT : NUM_GT;
    else if (any_digit_from(b, b->n_int + k)) k++;
  }
  return at_pack((At){AT_FRAC, cmp, cmp == NUM_EQ ? k : 0, a.neg});
}

static int32_t compare_tag(const void *ctx, uint64_t state) {
  const Bound *b = ctx;
  At a = at_unpack(state);
  int cmp = a.cmp;
  if (a.phase == AT_START || a.phase == AT_SIGN || a.phase == AT_POINT) return -1;
  if (a.phase == AT_INT || a.phase == AT_ZERO) {
    cmp = a.k < b->n_int ? NUM_LT : a.k > b->n_int ? NUM_GT : a.cmp;
    a.k = 0;
  }
  if (cmp == NUM_EQ && any_digit_from(b, b->n_int + a.k)) cmp = NUM_LT;
  return (cmp & b->relations) ? 0 : -1;
}

static Err *compare_magnitude(GrWork *w, Dec bound, int relations, Dfa **out) {
  Bound b = {.b = bound, .n_int = MAX(bound.exp, 1), .relations = relations};
  if (b.n_int > 2000 || bound.n - bound.exp > 2000) return err_new(ERR_LIMIT, "a bound of more than 2000 digits");
  DfaMachine m = {.start = at_pack((At){AT_START, NUM_EQ, 0, 0}), .alphabet = ".0123456789", .step = compare_step, .tag = compare_tag, .ctx = &b};
  return grammar_dfa_machine(w, &m, out);
}

static Err *from_text(GrWork *w, const char *re, Dfa **out) { return grammar_regex_dfa(w, re, strlen(re), false, out); }

/* "-" before every text of d. */
static void negate(GrWork *w, const Dfa *d, Dfa *out) {
  out->n = out->cap = d->n + 1;
  out->st = ARENA_ARRAY(w->a, DfaState, d->n + 1);
  out->st[0] = (DfaState){.edge = ARENA_NEW(w->a, DfaEdge), .n_edges = 1, .cap = 1, .tag = -1};
  out->st[0].edge[0] = (DfaEdge){'-', '-', 1};
  for (int i = 0; i < d->n; i++) {
    out->st[i + 1] = d->st[i];
    out->st[i + 1].edge = ARENA_ARRAY(w->a, DfaEdge, d->st[i].n_edges + 1);
    for (int k = 0; k < d->st[i].n_edges; k++) {
      out->st[i + 1].edge[k] = d->st[i].edge[k];
      out->st[i + 1].edge[k].to++;
    }
  }
}

Err *grammar_num_compare(GrWork *w, Dec bound, int relations, Dfa **out) {
  Dec zero = {.digits = "0"}, size = bound;
  size.neg = false;
  bool below_zero = bound.neg && bound.n, is_zero = !bound.n;
  int flipped = (relations & NUM_EQ) | (relations & NUM_LT ? NUM_GT : 0) | (relations & NUM_GT ? NUM_LT : 0);
  Dfa *plus, *minus, *signed_ = ARENA_NEW(w->a, Dfa);
  /* x >= 0 against the bound; then -x: against a negative bound the order turns round, against zero it is equal or less, else less. */
  TRY(compare_magnitude(w, below_zero ? zero : size, below_zero ? (relations & NUM_GT ? NUM_LT | NUM_EQ | NUM_GT : 0) : relations, &plus));
  int rel = below_zero || is_zero ? flipped : relations & NUM_LT ? NUM_LT | NUM_EQ | NUM_GT : 0;
  TRY(compare_magnitude(w, below_zero || is_zero ? size : zero, rel, &minus));
  negate(w, minus, signed_);
  TRY(grammar_dfa_minimize(w, signed_));
  return grammar_dfa_or(w, plus, signed_, out);
}

/* Division: the divisor is m * 10^-places with a whole m; the digits are read as one whole number and zeros are added up to `places`
   behind the point; further digits must be zero. */
typedef struct Divisor { uint32_t m, pow10; int places; } Divisor;

static uint64_t divide_step(const void *ctx, uint64_t state, char c) {
  const Divisor *d = ctx;
  int phase = state & 15, k = (int)(state >> 4 & 0xFFF);
  uint64_t rem = state >> 16;
  if (c == '-') return phase == AT_START ? AT_SIGN : UINT64_MAX;
  if (c == '.') return phase == AT_INT || phase == AT_ZERO ? (rem << 16 | AT_POINT) : UINT64_MAX;
  if (phase == AT_ZERO) return UINT64_MAX;
  uint64_t digit = (uint64_t)(c - '0');
  if (phase <= AT_INT) return ((rem * 10 + digit) % d->m) << 16 | (unsigned)(phase < AT_INT && !digit ? AT_ZERO : AT_INT);
  if (k == d->places) return digit ? UINT64_MAX : rem << 16 | (uint64_t)k << 4 | AT_FRAC;
  return ((rem * 10 + digit) % d->m) << 16 | (uint64_t)(k + 1) << 4 | AT_FRAC;
}

static int32_t divide_tag(const void *ctx, uint64_t state) {
  const Divisor *d = ctx;
  int phase = state & 15;
  uint64_t rem = state >> 16;
  if (phase == AT_START || phase == AT_SIGN || phase == AT_POINT) return -1;
  for (int k = (int)(state >> 4 & 0xFFF); k < d->places; k++) rem = rem * 10 % d->m;
  return rem ? -1 : 0;
}

Err *grammar_num_multiple(GrWork *w, Dec of, Dfa **out) {
  enum { DIVISOR_MAX = 5000, PLACES_MAX = 12 };
  Divisor d = {.m = 0};
  int zeros = MAX(of.exp - of.n, 0);
  d.places = MAX(of.n - of.exp, 0);
  uint64_t m = 0;
  for (int i = 0; i < of.n && m <= DIVISOR_MAX; i++) m = m * 10 + (uint64_t)(of.digits[i] - '0');
  for (int i = 0; i < zeros && m <= DIVISOR_MAX; i++) m *= 10;
  if (!m || of.neg) return err_new(ERR_FORMAT, "expected a number above 0");
  if (m > DIVISOR_MAX || d.places > PLACES_MAX)
    return err_new(ERR_UNSUPPORTED, "a divisor of more than %d once written without a point, or of more than %d places, is not supported", DIVISOR_MAX, PLACES_MAX);
  d.m = (uint32_t)m;
  DfaMachine machine = {.start = AT_START, .alphabet = "-.0123456789", .step = divide_step, .tag = divide_tag, .ctx = &d};
  return grammar_dfa_machine(w, &machine, out);
}

Err *grammar_num_any(GrWork *w, Dfa **out) { return from_text(w, "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?", out); }
Err *grammar_num_plain(GrWork *w, Dfa **out) { return from_text(w, "-?(0|[1-9][0-9]*)(\\.[0-9]+)?", out); }
Err *grammar_num_integer(GrWork *w, bool point_zero, Dfa **out) {
  return from_text(w, point_zero ? "-?(0|[1-9][0-9]*)(\\.0+)?" : "-?(0|[1-9][0-9]*)", out);
}
