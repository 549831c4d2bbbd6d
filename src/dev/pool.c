/* Threads that run one function together. In: a function and a context; out: its effects, complete when dev_pool_run returns.

   A gate is a number that only grows: to wait is to wait for it to differ from what was seen, to open is to add one. A waiter reads it
   for a few microseconds, then gives its core away between reads, then sleeps in the kernel on it. The first costs least when all
   threads run at once; the others matter when something else wants the cores, another of our processes for one: then a waiter holds
   its core for tens of microseconds at most. A pool with more threads than cores does not spin at all.

   Where something else holds a core all the time, every barrier waits for the thread that shares it, a slice of the scheduler long, and short
   phases stand still more than they run. dev_pool_run_fit therefore watches for threads that want to run and do not (clock time less processor
   time less sleep), runs the next regions with fewer, and tries the full number again later, ever more rarely while it does not fit.
   A thread that is left out sleeps at a gate of its own; it comes back only after it has reached that gate. It learns of it when a region begins
   without it: so their number falls as a region begins and never between two, where a thread counted out would wait for one that does not come.

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
/* Fewer threads: when over WATCH_NS of regions a thread was kept from running for a SHARE of the time, and phases are shorter than PHASE_NS, a
   slice of the scheduler being 3 ms and more: longer ones share a core well enough. For REST_NS; twice as long when the next try goes wrong too. */
enum { WATCH_NS = 20000000, LOST_SHARE = 6, PHASE_NS = 500000, REST_NS = 100000000, MAX_REST_NS = 1600000000 };

typedef struct Gate { _Alignas(64) _Atomic uint32_t number; _Atomic uint32_t n_parked; } Gate;
/* A thread's own: asleep in this region; kept from running since the watch began. resting: at the gate `rest`, and may be called back to wait for start to differ from `from`. */
typedef struct Seat { _Alignas(64) int64_t parked_ns, lost_ns; _Atomic bool resting; uint32_t from; } Seat;

struct DevPool {
  Gate start;                               /* opens when a region begins */
  Gate pass;                                /* opens when a barrier is complete */
  Gate rest;                                /* opens when threads that were left out are called back */
  _Alignas(64) _Atomic int n_arrived;
  _Atomic int n_active;                     /* threads of the present region; changes only between regions */
  int64_t n_phases, watched_ns;             /* since the watch began; phases are counted by whoever completes a barrier */
  int64_t retry_at, rest_ns;                /* when to try with all threads again; how long the last rest was meant to be */
  int n_next;                               /* n_active from the next fitting region on: fewer, or the same */
  Seat *seat;                               /* n_threads */
  _Alignas(64) DevPoolFn *fn;               /* of the present region; written before start opens */
  void *ctx;
  int64_t began;                            /* of the present region */
  int n_threads, spin_ns;
  bool running, watching;
  _Atomic bool stop;
  pthread_t *threads;                       /* n_threads - 1 workers */
};

typedef struct Worker { DevPool *pool; int thread; } Worker;

static void gate_park(Gate *g, uint32_t seen) {
  atomic_fetch_add(&g->n_parked, 1);
  while (atomic_load(&g->number) == seen) syscall(SYS_futex, &g->number, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
  atomic_fetch_sub(&g->n_parked, 1);
}

/* -> how long it slept, in ns. */
static int64_t gate_wait(Gate *g, uint32_t seen, int spin_ns) {
  if (atomic_load_explicit(&g->number, memory_order_acquire) != seen) return 0;
  int64_t t0 = os_now_ns(), t = t0;
  while (t - t0 < spin_ns) {
    for (int i = 0; i < READS_PER_CLOCK; i++)
      if (atomic_load_explicit(&g->number, memory_order_acquire) != seen) return 0;
    t = os_now_ns();
  }
  while (t - t0 < YIELD_NS) {
    sched_yield();
    if (atomic_load_explicit(&g->number, memory_order_acquire) != seen) return 0;
    t = os_now_ns();
  }
  gate_park(g, seen);
  return os_now_ns() - t;
}

static void gate_open(Gate *g) {
  atomic_fetch_add(&g->number, 1);
  if (atomic_load(&g->n_parked)) syscall(SYS_futex, &g->number, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

bool dev_barrier_last(DevPool *p, int thread) {
  /* Seen before arriving: after it, the gate may open at any time, and the next region begin with fewer threads. */
  uint32_t seen = atomic_load_explicit(&p->pass.number, memory_order_relaxed);
  int n_active = atomic_load_explicit(&p->n_active, memory_order_relaxed);
  if (atomic_fetch_add(&p->n_arrived, 1) + 1 == n_active) return true;
  p->seat[thread].parked_ns += gate_wait(&p->pass, seen, p->spin_ns);
  return false;
}

void dev_barrier_release(DevPool *p) {
  atomic_store_explicit(&p->n_arrived, 0, memory_order_relaxed);
  p->n_phases++;
  gate_open(&p->pass);
}

void dev_barrier(DevPool *p, int thread) {
  if (dev_barrier_last(p, thread)) dev_barrier_release(p);
}

/* One thread's part of a region. A worker that was not let in at once has lost time since the region's begin. */
static void seat_work(DevPool *p, int thread) {
  Seat *s = &p->seat[thread];
  int64_t cpu = p->watching ? os_thread_cpu_ns() : 0;
  s->parked_ns = 0;
  p->fn(p->ctx, thread, atomic_load_explicit(&p->n_active, memory_order_relaxed));
  if (p->watching) s->lost_ns += os_now_ns() - p->began - (os_thread_cpu_ns() - cpu) - s->parked_ns;
}

/* Until called back -> the number of the start gate to wait for the end of. */
static uint32_t seat_rest(DevPool *p, int thread) {
  Seat *s = &p->seat[thread];
  atomic_store(&s->resting, true);
  for (;;) {
    uint32_t seen = atomic_load(&p->rest.number);
    if (!atomic_load(&s->resting) || atomic_load(&p->stop)) return s->from;
    gate_wait(&p->rest, seen, 0);
  }
}

static void *worker_main(void *arg) {
  Worker w = *(Worker *)arg;
  free(arg);
  char name[16];
  snprintf(name, sizeof name, "lumen-%d", w.thread);
  pthread_setname_np(pthread_self(), name);
  /* The gate starts at 0 and cannot open twice before a thread that takes part has been through the first region's end. */
  for (uint32_t seen = 0;;) {
    gate_wait(&w.pool->start, seen, w.pool->spin_ns);
    if (atomic_load(&w.pool->stop)) return NULL;
    if (w.thread >= atomic_load_explicit(&w.pool->n_active, memory_order_relaxed)) {
      seen = seat_rest(w.pool, w.thread);
      continue;
    }
    seat_work(w.pool, w.thread);
    dev_barrier(w.pool, w.thread);
    seen++;
  }
}

static void pool_stop(DevPool *p, int n_workers) {
  atomic_store(&p->stop, true);
  gate_open(&p->start);
  gate_open(&p->rest);
  for (int i = 0; i < n_workers; i++) pthread_join(p->threads[i], NULL);
  free(p->threads);
  free(p->seat);
  free(p);
}

Err *dev_pool_new(int n_threads, DevPool **out) {
  if (n_threads < 1 || n_threads > MAX_THREADS) return err_new(ERR_LIMIT, "%d threads, expected 1 to %d", n_threads, MAX_THREADS);
  DevPool *p = aligned_alloc(64, ROUND_UP(sizeof *p, 64));
  CHECK(p, "no memory for a thread pool");
  memset(p, 0, sizeof *p);
  p->n_threads = n_threads;
  atomic_store(&p->n_active, n_threads);
  p->n_next = n_threads;
  p->seat = aligned_alloc(64, (size_t)n_threads * sizeof *p->seat);
  CHECK(p->seat, "no memory for a thread pool");
  memset(p->seat, 0, (size_t)n_threads * sizeof *p->seat);
  p->spin_ns = n_threads <= os_n_cpus() ? SPIN_NS : 0;
  p->threads = calloc((size_t)n_threads, sizeof *p->threads);
  CHECK(p->threads, "no memory for a thread pool");
  for (int i = 1; i < n_threads; i++) {
    Worker *w = malloc(sizeof *w);
    CHECK(w, "no memory for a thread");
    *w = (Worker){p, i};
    int rc = os_thread_new(worker_main, w, &p->threads[i - 1]);
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

int dev_pool_n_active(const DevPool *p) { return p->n_next; }

/* Threads that rest come back, up to the first that has not come to rest yet; all of them: waits for it. */
static void call_back(DevPool *p, bool all) {
  int n = atomic_load(&p->n_active);
  uint32_t now = atomic_load(&p->start.number);
  for (; n < p->n_threads; n++) {
    while (all && !atomic_load(&p->seat[n].resting)) sched_yield();
    if (!atomic_load(&p->seat[n].resting)) break;
    p->seat[n].from = now;
    atomic_store(&p->seat[n].resting, false);
  }
  atomic_store(&p->n_active, n);
  p->n_next = n;
  gate_open(&p->rest);
}

static void watch_begin(DevPool *p) {
  p->n_phases = p->watched_ns = 0;
  for (int i = 0; i < p->n_threads; i++) p->seat[i].lost_ns = 0;
}

/* Between regions, when enough was seen. */
static void watch_end(DevPool *p) {
  int n = atomic_load(&p->n_active), n_lost = 0;
  for (int i = 0; i < n; i++) n_lost += p->seat[i].lost_ns > p->watched_ns / LOST_SHARE;
  if (n > 1 && n_lost && p->watched_ns / (p->n_phases + 1) < PHASE_NS) {
    if (n == p->n_threads) p->rest_ns = p->rest_ns ? MIN(p->rest_ns * 2, MAX_REST_NS) : REST_NS;
    p->retry_at = os_now_ns() + p->rest_ns;
    p->n_next = MAX(n - n_lost, 1);
    trace_printf(TRACE_batch, "others keep %d of %d threads from running: on with %d for %lld ms", n_lost, n, p->n_next, (long long)(p->rest_ns / 1000000));
  } else if (n == p->n_threads) {
    p->rest_ns = 0;
  }
  watch_begin(p);
}

static void run(DevPool *p, DevPoolFn *fn, void *ctx) {
  CHECK(!p->running, "regions of a pool neither nest nor overlap");
  p->running = true;
  p->fn = fn, p->ctx = ctx;
  p->began = os_now_ns();
  if (p->n_threads > 1) gate_open(&p->start);
  seat_work(p, 0);
  dev_barrier(p, 0);
  p->running = false;
}

void dev_pool_run(DevPool *p, DevPoolFn *fn, void *ctx) {
  if (atomic_load(&p->n_active) < p->n_threads) call_back(p, true);
  p->n_next = p->n_threads;
  p->watching = false;
  run(p, fn, ctx);
}

void dev_pool_run_fit(DevPool *p, DevPoolFn *fn, void *ctx) {
  if (p->n_next < p->n_threads && os_now_ns() >= p->retry_at) {
    call_back(p, false);
    watch_begin(p);
    trace_printf(TRACE_batch, "on with %d of %d threads", p->n_next, p->n_threads);
  }
  atomic_store(&p->n_active, p->n_next);
  p->watching = p->n_threads > 1;
  run(p, fn, ctx);
  if (p->watching && (p->watched_ns += os_now_ns() - p->began) >= WATCH_NS) watch_end(p);
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
    n = MIN(MAX((n_total - at) / (2 * n_threads) / least * least, least), n_total - at);
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
