/* What the operating system gives: files, page memory, time, CPUs. Paths and sizes in, bytes or an Err out.
   Nothing here keeps state. Linux only: /proc and cgroup texts are read where a call has no other source, and their absence is never an error. */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/base.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; older ones refuse it */
#endif
static const size_t HUGE_BYTES = (size_t)2 << 20;
enum { PROC_TEXT_MAX = 1 << 16 };

/* ---- files ---- */

static Err *io_err(const char *path, const char *what) {
  int code = errno;
  return err_new(code == ENOENT || code == ENOTDIR ? ERR_NOT_FOUND : ERR_IO, "%s: %s: %s", path, what, strerror(code));
}

Err *os_open_regular(const char *path, int *fd, struct stat *st) {
  Err *e = NULL;
  int got = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer is refused, not waited for */
  if (got < 0) return io_err(path, "cannot be opened");
  if (fstat(got, st)) e = io_err(path, "cannot be examined");
  else if (!S_ISREG(st->st_mode)) e = err_new(ERR_IO, "%s: is %s, expected a regular file", path, S_ISDIR(st->st_mode) ? "a directory" : "a device or pipe");
  if (e) close(got);
  else os_input_note(*fd = got);
  return e;
}

Err *os_read_all(FILE *f, size_t max_bytes, Str *out) {
  char chunk[16384];
  size_t got, total = 0;
  Str text = {0};
  while ((got = fread(chunk, 1, sizeof chunk, f)) > 0) {
    total += got;
    if (total > max_bytes) {
      str_free(&text);
      return err_new(ERR_LIMIT, "more than %zu bytes", max_bytes);
    }
    str_add_n(&text, chunk, got);
  }
  if (ferror(f)) {
    str_free(&text);
    return err_new(ERR_IO, "cannot be read: %s", strerror(errno));
  }
  str_add_n(out, text.n ? text.p : "", text.n);
  str_free(&text);
  return NULL;
}

Err *os_read_file(const char *path, size_t max_bytes, Str *out) {
  int fd;
  struct stat st;
  TRY(os_open_regular(path, &fd, &st));
  FILE *f = fdopen(fd, "rb");
  if (!f) {
    close(fd);
    return err_new(ERR_MEMORY, "%s: no memory to read it", path);
  }
  Err *e = os_read_all(f, max_bytes, out);
  fclose(f);
  return err_wrap(e, "%s", path);
}

/* Moves what was read, less a byte order mark, to out. */
static Err *take_text(Err *e, Str *s, const char *path, Str *out) {
  bool is_wide = s->n >= 2 && (!memcmp(s->p, "\xFF\xFE", 2) || !memcmp(s->p, "\xFE\xFF", 2));
  size_t mark = s->n >= 3 && !memcmp(s->p, "\xEF\xBB\xBF", 3) ? 3 : 0;
  if (!e && is_wide) e = err_new(ERR_FORMAT, "%s: its byte order mark says UTF-16, expected UTF-8", path);
  if (!e && s->n) str_add_n(out, s->p + mark, s->n - mark);
  str_free(s);
  return e;
}

Err *os_read_text(const char *path, size_t max_bytes, Str *out) {
  Str s = {0};
  Err *e = os_read_file(path, max_bytes, &s);
  return take_text(e, &s, path, out);
}

const char *os_input_name(const char *path) { return strcmp(path, "-") ? path : "standard input"; }

Err *os_read_input(const char *path, size_t max_bytes, Str *out) {
  Str s = {0};
  const char *name = os_input_name(path);
  FILE *f = name == path ? fopen(path, "rbe") : stdin;
  if (!f) return io_err(path, "cannot be opened");
  os_input_note(fileno(f));
  Err *e = err_wrap(os_read_all(f, max_bytes, &s), "%s", name);
  if (f != stdin) fclose(f);
  return take_text(e, &s, name, out);
}

bool os_is_device(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

bool os_exists(const char *path) {
  struct stat st;
  return stat(path, &st) == 0;
}

Err *os_look(const char *path, bool *there) {
  struct stat st;
  char to[256];
  if (!stat(path, &st)) *there = true;
  else if (errno != ENOENT && errno != ENOTDIR) return io_err(path, "cannot be looked up");
  else {
    ssize_t n = readlink(path, to, sizeof to);
    if (n >= 0) return err_new(ERR_NOT_FOUND, "%s: is a link to %.*s, which is not there", path, (int)n, to);
    *there = false;
  }
  return NULL;
}

bool os_is_dir(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

Err *os_make_dirs(const char *path) {
  char *copy = strdup(path);
  CHECK(copy, "out of memory for a path");
  Err *e = NULL;
  for (char *c = copy; !e && *c; c++) {
    if (c[1] && c[1] != '/') continue; /* cut only at the end of a component */
    char kept = c[1];
    c[1] = 0;
    if (mkdir(copy, 0777) && errno != EEXIST && !os_is_dir(copy)) e = io_err(copy, "cannot be made as a directory");
    c[1] = kept;
  }
  free(copy);
  if (!e && !os_is_dir(path)) e = err_new(ERR_IO, "%s: exists and is no directory", path);
  return e;
}

char *os_cache_dir(Arena *a) {
  const char *own = getenv("LUMEN_HOME"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (own && own[0]) return arena_dup(a, own);
  if (xdg && xdg[0] == '/') return arena_printf(a, "%s/lumen", xdg); /* a relative one is to be ignored, says the XDG specification */
  const struct passwd *user = home && home[0] ? NULL : getpwuid(getuid()); /* services and containers start without HOME */
  if (user && user->pw_dir && user->pw_dir[0] == '/') home = user->pw_dir;
  return arena_printf(a, "%s/.cache/lumen", home && home[0] ? home : ".");
}

/* ---- time ---- */

static int64_t clock_ns(clockid_t id) {
  struct timespec t;
  CHECK(clock_gettime(id, &t) == 0, "no such clock");
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t os_now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

int64_t os_thread_cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

int64_t os_process_cpu_ns(void) { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

/* Good to one clock tick (10 ms), rounded down. Without /proc: now. */
int64_t os_process_start_ns(void) {
  int64_t now = os_now_ns(), boot = clock_ns(CLOCK_BOOTTIME), start = now;
  Str s = {0};
  Err *e = os_read_file("/proc/self/stat", PROC_TEXT_MAX, &s);
  const char *p = e ? NULL : strrchr(s.p, ')'); /* the second field, the command's name, may hold spaces and parentheses */
  for (int field = 2; p && field < 22; field++) p = strchr(p + 1, ' ');
  long hz = sysconf(_SC_CLK_TCK);
  if (p && hz > 0) {
    unsigned long long ticks = strtoull(p + 1, NULL, 10);
    int64_t at = (int64_t)(ticks / (unsigned long long)hz) * 1000000000 + (int64_t)(ticks % (unsigned long long)hz) * (1000000000 / hz);
    if (at <= boot) start = at - (boot - now); /* ticks count from boot, sleep included */
  }
  err_free(e);
  str_free(&s);
  return start;
}

/* ---- CPUs ---- */

static int affinity_count(void) {
  for (int n = 1024; n <= 1 << 16; n *= 2) {
    cpu_set_t *set = CPU_ALLOC(n);
    CHECK(set, "out of memory for a CPU set");
    size_t size = CPU_ALLOC_SIZE(n);
    CPU_ZERO_S(size, set);
    int rc = sched_getaffinity(0, size, set), found = rc ? 0 : CPU_COUNT_S(size, set), code = errno;
    CPU_FREE(set);
    if (!rc) return MAX(found, 1);
    if (code != EINVAL) break; /* EINVAL: the kernel's mask is longer */
  }
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}

/* The quota a cgroup folder sets, in whole CPUs rounded up; 0: none, or no such folder. */
static int quota_at(const char *root, const char *group, size_t n_group, bool v2) {
  Str path = {0}, text = {0};
  long long quota = -1, period = 0;
  str_addf(&path, "%s%.*s/%s", root, (int)n_group, group, v2 ? "cpu.max" : "cpu.cfs_quota_us");
  Err *e = os_read_file(path.p, 256, &text);
  if (!e && v2) {
    if (sscanf(text.p, "%lld %lld", &quota, &period) != 2) quota = -1; /* "max 100000": no quota */
  } else if (!e) {
    quota = atoll(text.p);
    str_clear(&path);
    str_clear(&text);
    str_addf(&path, "%s%.*s/cpu.cfs_period_us", root, (int)n_group, group);
    e = os_read_file(path.p, 256, &text);
    if (!e) period = atoll(text.p);
  }
  err_free(e);
  str_free(&path);
  str_free(&text);
  if (quota <= 0 || period <= 0) return 0;
  long long n = quota / period + (quota % period != 0);
  return (int)MIN(n, 1LL << 16);
}

/* The smallest quota from the group up to the root: every level binds. */
static int quota_along(const char *root, const char *group, bool v2) {
  int best = 0;
  for (size_t n = strlen(group);; n--) {
    if (n == 0 || group[n] == '/' || group[n] == 0) {
      int q = quota_at(root, group, n, v2);
      if (q && (!best || q < best)) best = q;
    }
    if (n == 0) return best;
  }
}

static int cgroup_count(void) {
  Str s = {0};
  int best = 0;
  Err *e = os_read_file("/proc/self/cgroup", PROC_TEXT_MAX, &s);
  char *rest = e ? NULL : s.p;
  for (char *line; rest && (line = strsep(&rest, "\n"));) {
    char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
    if (!group) continue;
    *group++ = 0;
    names++;
    if (!strcmp(group, "/")) group = "";
    bool v2 = !names[0];
    if (!v2 && strcmp(names, "cpu") && strncmp(names, "cpu,", 4) && !strstr(names, ",cpu,") &&
        (strlen(names) < 4 || strcmp(names + strlen(names) - 4, ",cpu")))
      continue;
    int q = quota_along(v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu", group, v2);
    if (q && (!best || q < best)) best = q;
  }
  err_free(e);
  str_free(&s);
  return best;
}

int os_thread_new(void *(*run)(void *), void *arg, pthread_t *out) {
  static const int of_the_thread[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGPROF, SIGSEGV, SIGSYS, SIGTRAP};
  sigset_t blocked, old;
  sigfillset(&blocked);
  for (size_t i = 0; i < COUNT_OF(of_the_thread); i++) sigdelset(&blocked, of_the_thread[i]);
  pthread_sigmask(SIG_SETMASK, &blocked, &old);
  int rc = pthread_create(out, NULL, run, arg);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return rc;
}

int os_n_cpus(void) {
  int n = affinity_count(), quota = cgroup_count();
  return MAX(quota ? MIN(n, quota) : n, 1);
}

/* ---- memory ---- */

size_t os_peak_rss_bytes(void) {
  struct rusage u;
  return getrusage(RUSAGE_SELF, &u) ? 0 : (size_t)u.ru_maxrss * 1024;
}

static Err *pages_alloc(size_t n_bytes, bool allow_huge, Pages *out) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (n_bytes > SIZE_MAX / 2) return err_new(ERR_MEMORY, "memory: %zu bytes wanted, more than an address space holds", n_bytes);
  bool large = n_bytes >= HUGE_BYTES;
  size_t want = ROUND_UP(MAX(n_bytes, (size_t)1), page), slack = large ? HUGE_BYTES : 0;
  uint8_t *p = mmap(NULL, want + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return err_new(ERR_MEMORY, "memory: %zu bytes wanted, the system refuses: %s", n_bytes, strerror(errno));
  if (large) { /* keep the aligned middle */
    size_t head = (HUGE_BYTES - (uintptr_t)p % HUGE_BYTES) % HUGE_BYTES;
    if (head) munmap(p, head);
    if (slack - head) munmap(p + head + want, slack - head);
    p += head;
    if (allow_huge) (void)madvise(p, want, MADV_HUGEPAGE); /* a wish: kernels without huge pages refuse it */
  }
  *out = (Pages){p, want};
  return NULL;
}

Err *os_pages_alloc(size_t n_bytes, Pages *out) { return pages_alloc(n_bytes, true, out); }
Err *os_pages_alloc_small(size_t n_bytes, Pages *out) { return pages_alloc(n_bytes, false, out); }

void os_pages_want_huge(const Pages *p) {
  if (p->n_bytes >= HUGE_BYTES && !madvise(p->p, p->n_bytes, MADV_HUGEPAGE)) (void)madvise(p->p, p->n_bytes, MADV_COLLAPSE);
}

void os_pages_free(Pages *p) {
  if (p->p) munmap(p->p, p->n_bytes);
  *p = (Pages){0};
}

/* Adds AnonHugePages of every mapping that overlaps; a mapping the kernel merged with a neighbour counts up to our size. */
size_t os_pages_huge_bytes(const Pages *p) {
  FILE *f = p->p ? fopen("/proc/self/smaps", "re") : NULL;
  if (!f) return 0;
  char line[512];
  size_t total = 0;
  uintptr_t lo = (uintptr_t)p->p, hi = lo + p->n_bytes;
  bool inside = false;
  while (fgets(line, sizeof line, f)) {
    unsigned long long from, to, kib;
    if (sscanf(line, "%llx-%llx ", &from, &to) == 2) inside = from < hi && to > lo;
    else if (inside && sscanf(line, "AnonHugePages: %llu kB", &kib) == 1) total += (size_t)kib * 1024;
  }
  fclose(f);
  return MIN(total, p->n_bytes);
}
