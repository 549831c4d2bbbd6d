/* What this machine gives at best, measured with three kernels of our own: independent chains of f32 multiply-adds, the same of products of
   bytes, and reading memory. They are written as IR text for the target's lanes and registers and compiled like any other kernel, so a peak
   is what our own code can reach, not what a data sheet says. In: a set of kernels and threads. Out: rates of all threads together. */
#include <stdlib.h>
#include <string.h>
#include "kern/kern.h"

enum { ROUNDS = 4096, UNROLL = 4, READ_ITEM = 1024, MIN_TRIES = 4, MAX_TRIES = 2000, TRY_NS = 80000000 };

static void text_begin(Str *s, const char *name, const char *type, int n_acc, const char *first) {
  str_addf(s, "fn @%s(%%1: ptr<ptr[?], args>, %%2: i64, %%3: i64, %%4: ptr<u8[?], scratch>) {\nb0(%%1, %%2, %%3, %%4):\n%s  jmp b1(%%2", name, first);
  for (int i = 0; i < n_acc; i++) str_add(s, ", %20");
  str_add(s, ")\nb1(%30: i64");
  for (int i = 0; i < n_acc; i++) str_addf(s, ", %%%d: %s", 100 + i, type);
  str_add(s, "):\n");
}

/* The loop's end, then the accumulators' sum into scratch, so that nothing is for nothing. next: of accumulator i is %next+i. */
static void text_end(Str *s, const char *type, const char *mem, const char *add, int n_acc, int next) {
  str_add(s, "  %31 = const i64 1\n  %32 = add %30, %31\n  %33 = icmp.lt %32, %3\n  br %33, b1(%32");
  for (int i = 0; i < n_acc; i++) str_addf(s, ", %%%d", next + i);
  str_add(s, "), b2(");
  for (int i = 0; i < n_acc; i++) str_addf(s, i ? ", %%%d" : "%%%d", next + i);
  str_add(s, ")\nb2(");
  for (int i = 0; i < n_acc; i++) str_addf(s, i ? ", %%%d: %s" : "%%%d: %s", 60000 + i, type);
  str_add(s, "):\n");
  int sum = 60000;
  for (int i = 1; i < n_acc; i++, sum = 60100 + i - 1) str_addf(s, "  %%%d = %s %%%d, %%%d\n", 60100 + i, add, i == 1 ? 60000 : sum, 60000 + i);
  str_addf(s, "  store.%s %%4 + 0, %%%d\n  ret\n}\n", mem, n_acc > 1 ? 60100 + n_acc - 1 : 60000);
}

static Err *compile(Kerns *k, Str *s, const Kern **out) {
  Arena *a = arena_new("compile");
  IrFn *fn;
  Err *e = ir_fn_parse(a, s->p, &fn);
  if (!e) e = kern_fn(k, fn, out);
  arena_free(a);
  str_free(s);
  return err_wrap(e, "peak kernel");
}

/* n_acc chains, each UNROLL steps an iteration: item = one iteration. */
static Err *chains(Kerns *k, bool ints, int *madds_per_item, const Kern **out) {
  const Target *t = kern_target(k);
  int n_acc = MIN(t->n_vec_regs - 4, 24);
  Str s = {0}, first = {0};
  char type[16];
  snprintf(type, sizeof type, ints ? "i32x%d" : "f32x%d", t->vec_lanes);
  if (ints) str_addf(&first, "  %%20 = iota %s\n  %%21 = const %s 117901063\n  %%22 = add %%20, %%21\n", type, type);
  else str_addf(&first, "  %%20 = const %s 0.5\n  %%21 = const %s 0.25\n", type, type);
  text_begin(&s, ints ? "peak.dot4" : "peak.fma", type, n_acc, first.p);
  for (int u = 0; u < UNROLL; u++)
    for (int i = 0; i < n_acc; i++) {
      int from = 100 * (u + 1) + i, to = 100 * (u + 2) + i;
      if (ints) str_addf(&s, "  %%%d = dot4 %%%d, %%21, %%22, 15\n", to, from);
      else str_addf(&s, "  %%%d = fma %%%d, %%20, %%21\n", to, from);
    }
  text_end(&s, type, ints ? "i32" : "f32", ints ? "add" : "fadd", n_acc, 100 * (UNROLL + 1));
  str_free(&first);
  *madds_per_item = n_acc * UNROLL * t->vec_lanes * (ints ? 4 : 1);
  return compile(k, &s, out);
}

/* Item: READ_ITEM bytes of each of n_streams that lie args[1] bytes apart, read by vectors as wide as the target has them; lines `ahead` bytes
   further on are asked for, 0: none. Which way is fastest depends on the machine. */
static Err *reader(Kerns *k, int n_streams, int ahead, const Kern **out) {
  const Target *t = kern_target(k);
  int n_acc = 4, bytes = 4 * t->vec_lanes, n = READ_ITEM / bytes * n_streams, at = 0;
  Str s = {0}, first = {0};
  char type[16], name[40];
  snprintf(type, sizeof type, "i32x%d", t->vec_lanes);
  snprintf(name, sizeof name, "peak.read.%d.%d", n_streams, ahead);
  str_addf(&first, "  %%20 = const %s 0\n  %%21 = load.ptr ptr<u8[?], global> %%1 + 0\n  %%22 = const i64 %d\n  %%23 = load.i64 i64 %%1 + 8\n", type, READ_ITEM);
  text_begin(&s, name, type, n_acc, first.p);
  str_add(&s, "  %40 = mul %30, %22\n");
  for (int i = 1; i < n_streams; i++) str_addf(&s, "  %%%d = add %%%d, %%23\n", 40 + i, 39 + i);
  for (int i = 0; i < READ_ITEM / bytes; i++) {
    for (int r = 0; r < n_streams; r++, at++) {
      int from = at < n_acc ? 100 + at : 1000 + at - n_acc;
      if (ahead && i * bytes % 64 == 0) str_addf(&s, "  prefetch %%21, %%%d*1 + %d\n", 40 + r, i * bytes + ahead);
      str_addf(&s, "  %%%d = load.i32 %s %%21, %%%d*1 + %d\n  %%%d = xor %%%d, %%%d\n", 20000 + at, type, 40 + r, i * bytes, 1000 + at, from, 20000 + at);
    }
  }
  text_end(&s, type, "i32", "xor", n_acc, 1000 + n - n_acc);
  str_free(&first);
  return compile(k, &s, out);
}

typedef struct Rate { const Kern *k; void **args; int64_t n_items; bool shared; uint8_t *scratch; int64_t *t_ns; } Rate; /* t_ns: by thread, of the last try */

/* In processor time: others who use the machine make it wait, and a peak is what it could do without them. */
static void rate_thread(void *ctx, int thread, int n_threads) {
  Rate *r = ctx;
  int64_t a = 0, b = r->n_items;
  if (r->shared) dev_split(r->n_items, 1, thread, n_threads, &a, &b);
  int64_t t = os_thread_cpu_ns();
  if (a < b) r->k->entry(r->args, a, b, r->scratch + 4096 * (size_t)thread);
  r->t_ns[thread * 8] = os_thread_cpu_ns() - t;
}

/* Items per second of all threads: the best of as many tries as fit in 80 ms, the first of which warms up. shared: the items are split among threads. */
static double rate(DevPool *pool, Rate *r) {
  double best = 0;
  r->t_ns = calloc((size_t)dev_pool_n_threads(pool) * 8, sizeof *r->t_ns); /* a line of the cache each */
  CHECK(r->t_ns);
  int64_t start = os_now_ns();
  for (int i = 0; i < MIN_TRIES || (i < MAX_TRIES && os_now_ns() - start < TRY_NS); i++) {
    int64_t t = 0;
    dev_pool_run(pool, rate_thread, r);
    for (int k = 0; k < dev_pool_n_threads(pool); k++) t = MAX(t, r->t_ns[k * 8]);
    double n = (double)r->n_items * (r->shared ? 1 : dev_pool_n_threads(pool));
    if (i && t > 0) best = MAX(best, n * 1e9 / (double)t);
  }
  free(r->t_ns);
  int n_threads = dev_pool_n_threads(pool); /* threads beyond the processors take turns: their times do not add up */
  return best * MIN(n_threads, os_n_cpus()) / n_threads;
}

static const struct { int streams, ahead; } read_ways[] = {{1, 0}, {4, 0}, {1, 4096}, {4, 2048}};

static Err *read_rate(Kerns *k, DevPool *pool, uint8_t *scratch, size_t n_bytes, double *out) {
  Pages pages;
  int64_t n_items = (int64_t)MAX(n_bytes / READ_ITEM / 4, 1); /* of the four streams */
  TRY(os_pages_alloc((size_t)n_items * 4 * READ_ITEM, &pages));
  memset(pages.p, 1, (size_t)n_items * 4 * READ_ITEM);
  Err *e = NULL;
  *out = 0;
  for (size_t i = 0; !e && i < COUNT_OF(read_ways); i++) {
    int n = read_ways[i].streams;
    const Kern *rd;
    void *args[2] = {pages.p, (void *)(uintptr_t)(n_items * READ_ITEM)};
    e = reader(k, n, read_ways[i].ahead, &rd);
    if (!e) *out = MAX(*out, READ_ITEM * n * rate(pool, &(Rate){rd, args, n_items * 4 / n, true, scratch, NULL}));
  }
  os_pages_free(&pages);
  return e;
}

Err *kern_peak(Kerns *k, DevPool *pool, size_t n_bytes, KernPeak *out) {
  const Kern *fma, *dot;
  int fma_madds, dot_madds;
  Pages scratch;
  TRY(chains(k, false, &fma_madds, &fma));
  TRY(chains(k, true, &dot_madds, &dot));
  TRY(os_pages_alloc((size_t)dev_pool_n_threads(pool) * 4096, &scratch));
  KernPeak p;
  p.f32_madds_per_s = fma_madds * rate(pool, &(Rate){fma, NULL, 8 * ROUNDS, false, scratch.p, NULL});
  p.int_madds_per_s = dot_madds * rate(pool, &(Rate){dot, NULL, 8 * ROUNDS, false, scratch.p, NULL});
  Err *e = read_rate(k, pool, scratch.p, n_bytes, &p.read_bytes_per_s);
  os_pages_free(&scratch);
  if (!e) *out = p;
  return e;
}
