/* What this machine gives at best, measured with three kernels of our own: independent chains of f32 multiply-adds, the same of products of
   bytes, and reading memory. They are written as IR text for the target's lanes and registers and compiled like any other kernel, so a peak
   is what our own code can reach, not what a data sheet says. In: a set of kernels and threads. Out: rates of all threads together. */
#include <stdlib.h>
#include <string.h>
#include "kern/kern.h"

enum { ROUNDS = 4096, UNROLL = 4, READ_ITEM = 1024, TRIES = 7 };

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

/* Item: READ_ITEM bytes, read by vectors as wide as the target has them. */
static Err *reader(Kerns *k, const Kern **out) {
  const Target *t = kern_target(k);
  int n_acc = 4, bytes = 4 * t->vec_lanes, n = READ_ITEM / bytes;
  Str s = {0}, first = {0};
  char type[16];
  snprintf(type, sizeof type, "i32x%d", t->vec_lanes);
  str_addf(&first, "  %%20 = const %s 0\n  %%21 = load.ptr ptr<u8[?], global> %%1 + 0\n  %%22 = const i64 %d\n", type, READ_ITEM);
  text_begin(&s, "peak.read", type, n_acc, first.p);
  str_add(&s, "  %34 = mul %30, %22\n");
  for (int i = 0; i < n; i++) {
    int from = i < n_acc ? 100 + i : 1000 + i - n_acc;
    str_addf(&s, "  %%%d = load.i32 %s %%21, %%34*1 + %d\n  %%%d = xor %%%d, %%%d\n", 5000 + i, type, i * bytes, 1000 + i, from, 5000 + i);
  }
  text_end(&s, type, "i32", "xor", n_acc, 1000 + n - n_acc);
  str_free(&first);
  return compile(k, &s, out);
}

typedef struct Rate { const Kern *k; void **args; int64_t n_items; bool shared; uint8_t *scratch; } Rate;

static void rate_thread(void *ctx, int thread, int n_threads) {
  Rate *r = ctx;
  int64_t a = 0, b = r->n_items;
  if (r->shared) dev_split(r->n_items, 1, thread, n_threads, &a, &b);
  if (a < b) r->k->entry(r->args, a, b, r->scratch + 4096 * (size_t)thread);
}

/* Items per second of all threads: the best of some tries, the first of which warms up. shared: the items are split among threads. */
static double rate(DevPool *pool, Rate *r) {
  double best = 0;
  for (int i = 0; i < TRIES; i++) {
    int64_t t = os_now_ns();
    dev_pool_run(pool, rate_thread, r);
    t = os_now_ns() - t;
    double n = (double)r->n_items * (r->shared ? 1 : dev_pool_n_threads(pool));
    if (i && t > 0) best = MAX(best, n * 1e9 / (double)t);
  }
  return best;
}

Err *kern_peak(Kerns *k, DevPool *pool, size_t n_bytes, KernPeak *out) {
  const Kern *fma, *dot, *rd;
  int fma_madds, dot_madds;
  Pages pages, scratch;
  TRY(chains(k, false, &fma_madds, &fma));
  TRY(chains(k, true, &dot_madds, &dot));
  TRY(reader(k, &rd));
  n_bytes = MAX(n_bytes / READ_ITEM, 1) * READ_ITEM;
  TRY(os_pages_alloc((size_t)dev_pool_n_threads(pool) * 4096, &scratch));
  Err *e = os_pages_alloc(n_bytes, &pages);
  if (e) {
    os_pages_free(&scratch);
    return e;
  }
  memset(pages.p, 1, n_bytes);
  void *args[1] = {pages.p};
  KernPeak p;
  p.f32_madds_per_s = fma_madds * rate(pool, &(Rate){fma, args, 8 * ROUNDS, false, scratch.p});
  p.int_madds_per_s = dot_madds * rate(pool, &(Rate){dot, args, 8 * ROUNDS, false, scratch.p});
  p.read_bytes_per_s = READ_ITEM * rate(pool, &(Rate){rd, args, (int64_t)(n_bytes / READ_ITEM), true, scratch.p});
  os_pages_free(&pages);
  os_pages_free(&scratch);
  *out = p;
  return NULL;
}
