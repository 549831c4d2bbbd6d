/* Pages for generated code. In: blobs; out: addresses that stay valid until the object is freed. A blob gets whole pages, is written
   while they are writable and not executable, and never changes after: so no thread ever runs code on a page that is writable.
   Address space is reserved in large regions, which keeps blobs near each other for the branch predictors and the TLB. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "dev/dev.h"

typedef struct Region { uint8_t *p; size_t n_bytes, n_used; struct Region *next; } Region;
struct DevCode { Region *regions; size_t n_bytes; bool perf_map; };
enum { REGION_BYTES = 64 << 20 };

DevCode *dev_code_new(bool perf_map) {
  DevCode *c = calloc(1, sizeof *c);
  CHECK(c, "no memory for a code object");
  c->perf_map = perf_map;
  return c;
}

void dev_code_free(DevCode *c) {
  if (!c) return;
  for (Region *r = c->regions, *next; r; r = next) {
    next = r->next;
    munmap(r->p, r->n_bytes);
    free(r);
  }
  free(c);
}

static Err *region_add(DevCode *c, size_t n_bytes) {
  size_t n = MAX(n_bytes, (size_t)REGION_BYTES);
  void *p = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED && n > n_bytes) p = mmap(NULL, n = n_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return err_new(ERR_MEMORY, "code pages: %zu bytes wanted, got: %s", n, strerror(errno));
  Region *r = calloc(1, sizeof *r);
  CHECK(r, "no memory for a code region");
  *r = (Region){.p = p, .n_bytes = n, .next = c->regions};
  c->regions = r;
  return NULL;
}

static void perf_map_add(const void *start, size_t n_bytes, const char *name) {
  char path[64];
  snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
  FILE *f = fopen(path, "a");
  if (!f) return; /* a profiler's convenience: running without it is right */
  fprintf(f, "%llx %zx %s\n", (unsigned long long)(uintptr_t)start, n_bytes, name);
  fclose(f);
}

Err *dev_code_add(DevCode *c, const char *name, const void *p, size_t n_bytes, const void **entry) {
  CHECK(n_bytes > 0, "empty code %s", name);
  size_t page = (size_t)sysconf(_SC_PAGESIZE), n = ROUND_UP(n_bytes, page);
  if (!c->regions || c->regions->n_bytes - c->regions->n_used < n) TRY(region_add(c, n));
  Region *r = c->regions;
  uint8_t *at = r->p + r->n_used;
  if (mprotect(at, n, PROT_READ | PROT_WRITE)) return err_new(ERR_MEMORY, "code pages for %s: %zu bytes wanted, got: %s", name, n, strerror(errno));
  memcpy(at, p, n_bytes);
#if defined(__x86_64__)
  memset(at + n_bytes, 0xCC, n - n_bytes); /* a jump past the end traps */
#endif
  if (mprotect(at, n, PROT_READ | PROT_EXEC)) return err_new(ERR_MEMORY, "%s: the system does not let memory be executed: %s", name, strerror(errno));
  __builtin___clear_cache((char *)at, (char *)at + n);
  r->n_used += n;
  c->n_bytes += n;
  if (c->perf_map) perf_map_add(at, n_bytes, name);
  *entry = at;
  return NULL;
}

size_t dev_code_bytes(const DevCode *c) { return c->n_bytes; }
