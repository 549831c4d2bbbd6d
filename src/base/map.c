/* Files in memory, and what happens where one cannot be read after all: it shrank under us, its disk or network failed. The system sends SIGBUS
   to whoever touches such a page. A handler puts an empty page there and notes which file it was, so that the reader ends as it would, and whoever
   asked for the bytes finds out by os_map_check before anything is made of them. A signal handler sees only what is global: hence the list of mapped files.

   In: paths. Out: bytes that can always be read. Must hold: nobody reads a mapping that is being unmapped. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/base.h"

/* begin 0: not in use. Never freed: a handler may be looking at it. */
typedef struct Mapped Mapped;
struct Mapped { _Atomic(uintptr_t) begin, end; atomic_bool is_taken, has_failed; struct stat st; Mapped *next; };
static _Atomic(Mapped *) mapped;
static atomic_int n_failed;                 /* pages, of all files so far */
static pthread_once_t handler = PTHREAD_ONCE_INIT;
static struct sigaction before;

static Mapped *mapped_at(uintptr_t at) {
  for (Mapped *m = atomic_load(&mapped); m; m = m->next) {
    uintptr_t begin = atomic_load(&m->begin);
    if (begin && at >= begin && at < atomic_load(&m->end)) return m;
  }
  return NULL;
}

/* mmap is no more than a system call here, and Linux lets a handler make it. */
static void on_bus_error(int sig, siginfo_t *info, void *context) {
  int saved = errno;
  uintptr_t at = (uintptr_t)info->si_addr, page = (uintptr_t)sysconf(_SC_PAGESIZE);
  Mapped *m = mapped_at(at);
  void *to = (void *)(at / page * page);
  if (m && mmap(to, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == to) {
    atomic_store(&m->has_failed, true);
    atomic_fetch_add(&n_failed, 1);
  } else if (before.sa_flags & SA_SIGINFO && before.sa_sigaction) before.sa_sigaction(sig, info, context);
  else if (!(before.sa_flags & SA_SIGINFO) && before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) before.sa_handler(sig);
  else sigaction(SIGBUS, &(struct sigaction){.sa_handler = SIG_DFL}, NULL); /* not a file of ours: it comes again, and ends the process */
  errno = saved;
}

static Mapped *take_row(void) {
  for (Mapped *m = atomic_load(&mapped); m; m = m->next) {
    bool is_free = false;
    if (atomic_compare_exchange_strong(&m->is_taken, &is_free, true)) return m;
  }
  Mapped *m = calloc(1, sizeof *m);
  CHECK(m, "out of memory");
  atomic_store(&m->is_taken, true);
  m->next = atomic_load(&mapped);
  while (!atomic_compare_exchange_weak(&mapped, &m->next, m)) {}
  return m;
}

static void handle_bus_errors(void) { sigaction(SIGBUS, &(struct sigaction){.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO}, &before); }

static void watch(const FileMap *f, const struct stat *st) {
  pthread_once(&handler, handle_bus_errors);
  Mapped *m = take_row();
  m->st = *st;
  atomic_store(&m->has_failed, false);
  atomic_store(&m->end, (uintptr_t)f->p + f->n_bytes);
  atomic_store(&m->begin, (uintptr_t)f->p);
}

Err *os_map_file(const char *path, FileMap *out) {
  int fd;
  struct stat st;
  FileMap m = {0};
  TRY(os_open_regular(path, &fd, &st));
  void *p = st.st_size > 0 ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
  int code = errno;
  close(fd);
  if (p == MAP_FAILED) return err_new(ERR_IO, "%s: cannot be mapped: %s", path, strerror(code));
  if (p) {
    m = (FileMap){p, (size_t)st.st_size};
    watch(&m, &st);
  }
  *out = m;
  return NULL;
}

void os_unmap_file(FileMap *f) {
  Mapped *m = f->p ? mapped_at((uintptr_t)f->p) : NULL;
  if (m) {
    atomic_store(&m->begin, 0);
    atomic_store(&m->is_taken, false);
  }
  if (f->p) munmap((void *)(uintptr_t)f->p, f->n_bytes);
  *f = (FileMap){0};
}

bool os_map_failed(const FileMap *f) {
  const Mapped *m = atomic_load(&n_failed) && f->p ? mapped_at((uintptr_t)f->p) : NULL;
  return m && atomic_load(&m->has_failed);
}

Err *os_map_check(const FileMap *f, const char *path) {
  struct stat now;
  const Mapped *m = f->p ? mapped_at((uintptr_t)f->p) : NULL;
  if (!m) return NULL;
  bool is_same = !stat(path, &now) && now.st_dev == m->st.st_dev && now.st_ino == m->st.st_ino; /* another file of its name does not matter */
  if (is_same && (now.st_size != m->st.st_size || now.st_mtim.tv_sec != m->st.st_mtim.tv_sec || now.st_mtim.tv_nsec != m->st.st_mtim.tv_nsec))
    return err_new(ERR_IO, "%s: was changed while it was read: %lld bytes, %lld before", path, (long long)now.st_size, (long long)m->st.st_size);
  return atomic_load(&m->has_failed) ? err_new(ERR_IO, "%s: a part of it could not be read: the file shrank, or its disk failed", path) : NULL;
}

void os_drop_file_pages(const void *p, size_t n_bytes) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), lo = ROUND_UP((uintptr_t)p, page), hi = ((uintptr_t)p + n_bytes) / page * page;
  if (hi > lo) (void)madvise((void *)lo, hi - lo, MADV_DONTNEED);
}
