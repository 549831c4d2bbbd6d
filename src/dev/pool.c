/* Threads that run one function together. In: a function and a context; out: its effects, complete when dev_pool_run returns.

   A gate is a number that only grows: to wait is to wait for it to differ from what was seen, to open is to add one. A waiter reads it
   for a few microseconds, then gives its core away between reads, then sleeps in the kernel on it. The first costs least when all
   threads run at once; the others matter when something else wants the cores, another of our processes for one: then a waiter holds
   its core for tens of microseconds at most. A pool with more threads than cores does not spin at all.

   No wake-up is lost: a waiter counts itself into n_parked before it sleeps, the opener changes the number before it looks at n_parked,
   and both are sequentially consistent; so either the opener sees the waiter, or the kernel sees the new number and does not let it
   sleep. The same order publishes what was written before. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "dev/dev.h"

enum { SPIN_NS = 10000, YIELD_NS = 40000, READS_PER_CLOCK = 64, MAX_THREADS = 1024 };

typedef struct Gate { _Alignas(64) _Atomic uint32_t number; _Atomic uint32_t n_parked; } Gate;

struct DevPool {
  Gate start;                               /* opens when a region begins */
  Gate pass;                                /* opens when a barrier is complete */
  _Alignas(64) _Atomic int n_arrived;
  _Alignas(64) DevPoolFn *fn;               /* of the present region; written before start opens */
  void *ctx;
  int n_threads, spin_ns;
  bool stop, running;
  pthread_t *threads;                       /* n_threads - 1 workers */
};

typedef struct Worker { DevPool *pool; int thread; } Worker;

static void gate_park(Gate *g, uint32_t seen) {
  atomic_fetch_add(&g->n_parked, 1);
  while (atomic_load(&g->number) == seen) syscall(SYS_futex, &g->number, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
  atomic_fetch_sub(&g->n_parked, 1);
}

static void gate_wait(Gate *g, uint32_t seen, int spin_ns) {
  if (atomic_load_explicit(&g->number, memory_order_acquire) != seen) return;
  int64_t t0 = os_now_ns(), t = t0;
  while (t - t0 < spin_ns) {
    for (int i = 0; i < READS_PER_CLOCK; i++)
      if (atomic_load_explicit(&g->number, memory_order_acquire) != seen) return;
    t = os_now_ns();
  }
  while (t - t0 < YIELD_NS) {
    sched_yield();
    if (atomic_load_explicit(&g->number, memory_order_acquire) != seen) return;
    t = os_now_ns();
  }
  gate_park(g, seen);
}

static void gate_open(Gate *g) {
  atomic_fetch_add(&g->number, 1);
  if (atomic_load(&g->n_parked)) syscall(SYS_futex, &g->number, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

bool dev_barrier_last(DevPool *p) {
  /* Seen before arriving: after it, the gate may open at any time. */
  uint32_t seen = atomic_load_explicit(&p->pass.number, memory_order_relaxed);
  if (atomic_fetch_add(&p->n_arrived, 1) + 1 == p->n_threads) return true;
  gate_wait(&p->pass, seen, p->spin_ns);
  return false;
}

void dev_barrier_release(DevPool *p) {
  atomic_store_explicit(&p->n_arrived, 0, memory_order_relaxed);
  gate_open(&p->pass);
}

void dev_barrier(DevPool *p) {
  if (dev_barrier_last(p)) dev_barrier_release(p);
}

static void *worker_main(void *arg) {
  Worker w = *(Worker *)arg;
  free(arg);
  char name[16];
  snprintf(name, sizeof name, "lumen-%d", w.thread);
  pthread_setname_np(pthread_self(), name);
  /* The gate starts at 0 and cannot open twice before this thread has been through the first region's end. */
  for (uint32_t seen = 0;; seen++) {
    gate_wait(&w.pool->start, seen, w.pool->spin_ns);
    if (w.pool->stop) return NULL;
    w.pool->fn(w.pool->ctx, w.thread, w.pool->n_threads);
    dev_barrier(w.pool);
  }
}

static void pool_stop(DevPool *p, int n_workers) {
  p->stop = true;
  gate_open(&p->start);
  for (int i = 0; i < n_workers; i++) pthread_join(p->threads[i], NULL);
  free(p->threads);
  free(p);
}

Err *dev_pool_new(int n_threads, DevPool **out) {
  if (n_threads < 1 || n_threads > MAX_THREADS) return err_new(ERR_LIMIT, "%d threads, expected 1 to %d", n_threads, MAX_THREADS);
  DevPool *p = aligned_alloc(64, ROUND_UP(sizeof *p, 64));
  CHECK(p, "no memory for a thread pool");
  memset(p, 0, sizeof *p);
  p->n_threads = n_threads;
  p->spin_ns = n_threads <= os_n_cpus() ? SPIN_NS : 0;
  p->threads = calloc((size_t)n_threads, sizeof *p->threads);
  CHECK(p->threads, "no memory for a thread pool");
  for (int i = 1; i < n_threads; i++) {
    Worker *w = malloc(sizeof *w);
    CHECK(w, "no memory for a thread");
    *w = (Worker){p, i};
    int rc = pthread_create(&p->threads[i - 1], NULL, worker_main, w);
    if (!rc) continue;
    free(w);
    pool_stop(p, i - 1);
    return err_new(ERR_LIMIT, "thread %d of %d: %s", i, n_threads, strerror(rc));
  }
  *out = p;
  return NULL;
}

void dev_pool_free(DevPool *p) {
  if (!p) return;
  CHECK(!p->running, "a pool is freed inside its region");
  pool_stop(p, p->n_threads - 1);
}

int dev_pool_n_threads(const DevPool *p) { return p->n_threads; }

void dev_pool_run(DevPool *p, DevPoolFn *fn, void *ctx) {
  CHECK(!p->running, "regions of a pool neither nest nor overlap");
  p->running = true;
  p->fn = fn, p->ctx = ctx;
  if (p->n_threads > 1) gate_open(&p->start);
  fn(ctx, 0, p->n_threads);
  dev_barrier(p);
  p->running = false;
}

bool dev_claim(DevClaim *c, int64_t chunk, int64_t n_total, int64_t *begin, int64_t *end) {
  int64_t at = atomic_fetch_add_explicit(&c->next, chunk, memory_order_relaxed);
  if (at >= n_total) return false;
  *begin = at;
  *end = MIN(at + chunk, n_total);
  return true;
}

bool dev_claim_part(DevClaim *c, int64_t least, int64_t n_total, int n_threads, int64_t *begin, int64_t *end) {
  int64_t at = atomic_load_explicit(&c->next, memory_order_relaxed), n;
  do {
    if (at >= n_total) return false;
    n = MIN(MAX((n_total - at) / (2 * n_threads), least), n_total - at);
  } while (!atomic_compare_exchange_weak_explicit(&c->next, &at, at + n, memory_order_relaxed, memory_order_relaxed));
  *begin = at;
  *end = at + n;
  return true;
}

void dev_split(int64_t n_total, int64_t unit, int thread, int n_threads, int64_t *begin, int64_t *end) {
  int64_t n_units = (n_total + unit - 1) / unit;
  int64_t b = n_units * thread / n_threads * unit, e = n_units * (thread + 1) / n_threads * unit;
  *begin = MIN(b, n_total);
  *end = MIN(e, n_total);
}
