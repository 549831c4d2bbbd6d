/* Processor detection, code pages and the thread pool. The pool's cases are also the race check: build this program once more with
     make BUILD=build/tsan EXTRA=-fsanitize=thread build/tsan/tests/test_dev && build/tsan/tests/test_dev
   and the sanitizer ends it with an error on any race (the data below is plain, not atomic, on purpose). */
#include "test.h"
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "dev/dev.h"
#include "gen/x86/enc.h"

static void cpu(void) {
  DevCpu c;
  dev_cpu_detect(&c);
  Str line = {0}, info = {0};
  dev_cpu_text(&c, &line);
  printf("# %s\n", line.p);
#if defined(__x86_64__)
  FILE *f = fopen("/proc/cpuinfo", "r");
  if (f) {
    EXPECT_OK(os_read_all(f, 1 << 24, &info));
    fclose(f);
    /* The kernel's list drops what the system does not enable, so the two must agree. */
    static const char *const pairs[][2] = {{"ssse3", "ssse3"}, {"sse41", "sse4_1"}, {"avx", "avx"}, {"fma", "fma"}, {"f16c", "f16c"}, {"avx2", "avx2"},
        {"bmi2", "bmi2"}, {"avxvnni", "avx_vnni"}, {"avx512f", "avx512f"}, {"avx512bw", "avx512bw"}, {"avx512dq", "avx512dq"}, {"avx512vl", "avx512vl"},
        {"avx512vnni", "avx512_vnni"}, {"avx512bf16", "avx512_bf16"}, {"avx512fp16", "avx512_fp16"}, {"amx_tile", "amx_tile"}, {"amx_int8", "amx_int8"}};
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
      char word[40];
      snprintf(word, sizeof word, " %s ", pairs[i][1]);
      bool theirs = strstr(info.p, word) != NULL, ours = dev_cpu_has(&c, pairs[i][0]);
      EXPECT(ours == theirs, "%s: ours %d, /proc/cpuinfo %d", pairs[i][0], ours, theirs);
    }
  }
  EXPECT(c.l1d_bytes >= 8192 && c.l2_bytes >= c.l1d_bytes, "%zu %zu", c.l1d_bytes, c.l2_bytes);
#endif
  EXPECT(!dev_cpu_has(&c, "no such feature"));
  str_free(&line), str_free(&info);
}

/* The permissions of the page an address lies on, like "r-xp". */
static bool page_perms(const void *at, char perms[5]) {
  Str maps = {0};
  FILE *f = fopen("/proc/self/maps", "r");
  if (!f) return false;
  EXPECT_OK(os_read_all(f, 1 << 24, &maps));
  fclose(f);
  bool found = false;
  for (char *line = maps.p; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
    unsigned long long lo, hi;
    char got[8];
    if (sscanf(line, "%llx-%llx %4s", &lo, &hi, got) != 3 || (uintptr_t)at < lo || (uintptr_t)at >= hi) continue;
    memcpy(perms, got, 5);
    found = true;
  }
  str_free(&maps);
  return found;
}

/* f(x) = x + k, and the constant comes from the pool. */
static X86Blob add_k(Arena *a, int32_t k) {
  X86Asm *s = x86_asm_new(a);
  int32_t pair[2] = {k, 0};
  X86Ins mov = X86_INS(X86_mov64), add = X86_INS(X86_add64), ret = X86_INS(X86_ret);
  mov.r[0] = RAX, mov.r[1] = RDI;
  add.r[0] = RAX, add.mem = true, add.label = x86_asm_const(s, pair, 8);
  x86_asm_emit(s, &mov), x86_asm_emit(s, &add), x86_asm_emit(s, &ret);
  return x86_asm_finish(s);
}

static void code(void) {
  Arena *a = arena_new("compile");
  DevCode *c = dev_code_new(true);
  enum { N = 200 };
  const void *entries[N];
  for (int i = 0; i < N; i++) {
    X86Blob b = add_k(a, i);
    EXPECT_OK(dev_code_add(c, "add_k", b.p, b.n_bytes, &entries[i]));
  }
#if defined(__x86_64__)
  for (int i = 0; i < N; i++) {
    int64_t (*fn)(int64_t);
    memcpy(&fn, &entries[i], sizeof fn);
    EXPECT(fn(1000) == 1000 + i && !((uintptr_t)entries[i] & 63));
  }
#endif
  char perms[5] = "", path[64];
  if (page_perms(entries[N - 1], perms)) EXPECT(!strcmp(perms, "r-xp"), "code page is %s", perms);
  uint8_t *big = calloc(1, 70 << 20);
  const void *entry = NULL;
  EXPECT_OK(dev_code_add(c, "larger than a region", big, 70 << 20, &entry));
  EXPECT(entry && dev_code_bytes(c) > (size_t)70 << 20);
  free(big);
  snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
  Str map = {0};
  EXPECT_OK(os_read_file(path, 1 << 24, &map));
  char line[100];
  snprintf(line, sizeof line, "%llx %x add_k\n", (unsigned long long)(uintptr_t)entries[7], 72u);
  EXPECT(map.p && strstr(map.p, line), "no line %s in %.200s", line, map.p ? map.p : "");
  unlink(path);
  str_free(&map), dev_code_free(c), arena_free(a);
}

enum { N_ROUNDS = 300, N_MAX = 64 };
typedef struct Shared {
  DevPool *pool;
  int64_t cell[N_MAX];   /* written by its thread, read by all after a barrier */
  int64_t sum;           /* written in the serial step */
  int64_t n_bad;
  int64_t bad[N_MAX];
  uint8_t seen[5000];    /* how often each claimed piece was done */
  DevClaim claim;
} Shared;

static void exchange(void *ctx, int thread, int n) {
  Shared *s = ctx;
  for (int round = 0; round < N_ROUNDS; round++) {
    s->cell[thread] = round * 1000 + thread;
    if (dev_barrier_last(s->pool, thread)) {
      s->sum = 0;
      for (int i = 0; i < n; i++) s->sum += s->cell[i];
      atomic_store(&s->claim.next, 0);
      dev_barrier_release(s->pool);
    }
    s->bad[thread] += s->sum != (int64_t)round * 1000 * n + n * (n - 1) / 2;
    int64_t b, e;
    while (round % 2 ? dev_claim(&s->claim, 7, (int64_t)sizeof s->seen, &b, &e) : dev_claim_part(&s->claim, 3, (int64_t)sizeof s->seen, n, &b, &e))
      for (int64_t i = b; i < e; i++) s->seen[i] = (uint8_t)(s->seen[i] + 1);
    dev_barrier(s->pool, thread);
  }
}

static void pool_case(int n_threads) {
  static Shared s;
  memset(&s, 0, sizeof s);
  EXPECT_OK(dev_pool_new(n_threads, &s.pool));
  EXPECT(dev_pool_n_threads(s.pool) == n_threads);
  dev_pool_run(s.pool, exchange, &s);
  for (int i = 0; i < n_threads; i++) s.n_bad += s.bad[i];
  EXPECT(s.n_bad == 0, "%lld sums seen too early or too late", (long long)s.n_bad);
  for (size_t i = 0; i < sizeof s.seen; i++) EXPECT(s.seen[i] == (uint8_t)N_ROUNDS, "piece %zu done %d times", i, s.seen[i]);
  dev_pool_free(s.pool);
}

static void count_up(void *ctx, int thread, int n) {
  (void)n;
  ((int64_t *)ctx)[thread * 8]++;
}

/* Many short regions with idle gaps between some: workers park and wake. */
static void regions(int n_threads, int n_regions) {
  DevPool *p = NULL;
  static int64_t counts[N_MAX * 8];
  memset(counts, 0, sizeof counts);
  EXPECT_OK(dev_pool_new(n_threads, &p));
  for (int i = 0; i < n_regions; i++) {
    dev_pool_run(p, count_up, counts);
    if (i % 500 == 499) usleep(1000);
  }
  for (int i = 0; i < n_threads; i++) EXPECT(counts[i * 8] == n_regions, "thread %d ran %lld of %d regions", i, (long long)counts[i * 8], n_regions);
  dev_pool_free(p);
}

static void many_barriers(void *ctx, int thread, int n) {
  (void)thread, (void)n;
  for (int i = 0; i < 2000; i++) dev_barrier(ctx, thread);
}

/* Two processes, each with a thread per core, share the cores: neither may collapse. The bound is generous, a collapse is seconds. */
static void two_processes(void) {
  int64_t t0 = os_now_ns();
  pid_t pids[2];
  fflush(stdout);
  for (int i = 0; i < 2; i++) {
    pids[i] = fork();
    if (pids[i]) continue;
    DevPool *p = NULL;
    err_free(dev_pool_new(os_n_cpus(), &p));
    for (int k = 0; k < 5 && p; k++) dev_pool_run(p, many_barriers, p);
    dev_pool_free(p);
    _exit(p ? 0 : 1);
  }
  for (int i = 0; i < 2; i++) {
    int status = 1;
    EXPECT(waitpid(pids[i], &status, 0) == pids[i] && status == 0, "status %d", status);
  }
  double us = (double)(os_now_ns() - t0) / 1000 / (5 * 2000);
  printf("# two processes, %d threads each: %.2f us per barrier\n", os_n_cpus(), us);
  EXPECT(us < 1000 * test_patience(), "%.1f us per barrier", us);
}

typedef struct Fit { DevPool *pool; int n_ran; } Fit;

static void fit_region(void *ctx, int thread, int n) {
  Fit *f = ctx;
  if (thread == 0) f->n_ran = n;
  for (int i = 0; i < 200; i++) {
    for (int64_t t0 = os_now_ns(); os_now_ns() - t0 < 5000;) {}
    dev_barrier(f->pool, thread);
  }
}

/* Regions until one of n threads was seen, at most for ms: whether it was. */
static bool fits(Fit *f, int n, int ms) {
  int64_t end = os_now_ns() + (int64_t)ms * 1000000;
  do dev_pool_run_fit(f->pool, fit_region, f);
  while (f->n_ran != n && os_now_ns() < end);
  return f->n_ran == n;
}

/* Two threads on one processor keep each other from running: one is left out; later both are tried again, and a whole region has both at once. */
static void crowded(void) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all)) return;
  CPU_ZERO(&one);
  for (int c = 0; c < CPU_SETSIZE && !CPU_COUNT(&one); c++) if (CPU_ISSET(c, &all)) CPU_SET(c, &one);
  EXPECT(!sched_setaffinity(0, sizeof one, &one));
  Fit f = {0};
  EXPECT_OK(dev_pool_new(2, &f.pool));
  EXPECT(fits(&f, 1, 3000 * test_patience()), "both threads still run on one processor");
  EXPECT(dev_pool_n_active(f.pool) == 1);
  static int64_t counts[16];
  memset(counts, 0, sizeof counts);
  dev_pool_run(f.pool, count_up, counts);
  EXPECT(counts[0] == 1 && counts[8] == 1, "a whole region ran on %d threads", (int)(counts[0] + counts[8]));
  EXPECT(fits(&f, 1, 3000 * test_patience()));
  EXPECT(fits(&f, 2, 5000 * test_patience()), "the thread that was left out never came back");
  dev_pool_free(f.pool);
  EXPECT(!sched_setaffinity(0, sizeof all, &all));
}

/* Thread 1 is kept from running, as far as clocks tell: it sleeps in the region. */
static void slow_region(void *ctx, int thread, int n) {
  Fit *f = ctx;
  if (thread == 0) f->n_ran = n;
  for (int i = 0; i < 300; i++) {
    if (thread == 1) usleep(50);
    dev_barrier(f->pool, thread);
  }
}

/* Both kinds of regions in turn, after every number of the one kind: a thread just counted out is there when all are wanted. The process that
   stands still is ended. */
static void both_kinds(void) {
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) {
    Fit f = {0};
    static int64_t counts[16];
    bool fewer = false, all = true;
    err_free(dev_pool_new(2, &f.pool));
    for (int i = 0; f.pool && i < 12; i++) {
      for (int k = 0; k < i % 3 + 1; k++) dev_pool_run_fit(f.pool, slow_region, &f);
      fewer |= dev_pool_n_active(f.pool) == 1;
      memset(counts, 0, sizeof counts);
      dev_pool_run(f.pool, count_up, counts);
      all &= counts[0] == 1 && counts[8] == 1;
    }
    dev_pool_free(f.pool);
    _exit(f.pool && fewer && all ? 0 : 1);
  }
  int status = 1;
  pid_t got = 0;
  for (int ms = 0; !got && ms < 30000 * test_patience(); ms += 10, usleep(10000)) got = waitpid(pid, &status, WNOHANG);
  if (!got) kill(pid, SIGKILL), waitpid(pid, &status, 0);
  EXPECT(got == pid && status == 0, "status %d, %s", status, got ? "ended" : "a region of all threads never began");
}

static void idle_parks(void) {
  DevPool *p = NULL;
  EXPECT_OK(dev_pool_new(4, &p));
  static int64_t counts[32];
  dev_pool_run(p, count_up, counts);
  usleep(2000);
  struct timespec a, b;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
  usleep(100000);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
  double ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
  EXPECT(ms < 20 * MIN(test_patience(), 3), "an idle pool used %.1f ms of processor in 100 ms", ms);
  dev_pool_free(p);
}

static void barrier_time(int n_threads) {
  DevPool *p = NULL;
  EXPECT_OK(dev_pool_new(n_threads, &p));
  dev_pool_run(p, many_barriers, p);
  int64_t t0 = os_now_ns();
  dev_pool_run(p, many_barriers, p);
  printf("# %d threads: %.2f us per barrier\n", n_threads, (double)(os_now_ns() - t0) / 2000 / 1000);
  dev_pool_free(p);
}

static void splits(void) {
  for (int n = 1; n < 9; n++)
    for (int64_t total = 0; total < 70; total++) {
      int64_t at = 0;
      for (int t = 0; t < n; t++) {
        int64_t b, e;
        dev_split(total, 16, t, n, &b, &e);
        EXPECT(b == at && e >= b && ((b & 15) == 0 || b == total), "%lld..%lld of %lld", (long long)b, (long long)e, (long long)total);
        at = e;
      }
      EXPECT(at == total);
    }
}

int main(void) {
  TEST("processor against /proc/cpuinfo") cpu();
  TEST("code pages") code();
  TEST("split covers everything once") splits();
  TEST("bad thread counts are errors") {
    DevPool *p = NULL;
    Err *e = dev_pool_new(0, &p);
    EXPECT(e && err_kind(e) == ERR_LIMIT && !p);
    err_free(e);
  }
  TEST("pool, 1 thread") pool_case(1);
  TEST("pool, 2 threads") pool_case(2);
  TEST("pool, 7 threads") pool_case(7);
  TEST("pool, more threads than cores") pool_case(2 * os_n_cpus() + 5 < N_MAX ? 2 * os_n_cpus() + 5 : N_MAX);
  TEST("many short regions") regions(os_n_cpus() < N_MAX ? os_n_cpus() : N_MAX, 3000);
  TEST("many short regions, oversubscribed") regions(12, 1000);
  TEST("an idle pool sleeps") idle_parks();
  TEST("two processes on the same cores") two_processes();
  TEST("threads that share a core are left out for a while") crowded();
  TEST("a thread that was just left out is there for a whole region") both_kinds();
  barrier_time(2);
  barrier_time(8);
  TEST_MAIN_END();
}
