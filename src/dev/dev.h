/* dev: the machine we run on. What the processor can do, pages that hold code, and threads. Knows nothing of code generation. */
#ifndef LUMEN_DEV_H
#define LUMEN_DEV_H
#include <stdatomic.h>
#include "base/base.h"

/* cpu.c: features usable now (the processor has them and the system saves their registers). Rows of cpu.def. */
typedef struct DevCpu {
#define FEATURE(name, leaf, subleaf, reg, bit, state, meaning) bool name;
#include "dev/cpu.def"
#undef FEATURE
  size_t l1d_bytes, l2_bytes, l3_bytes; /* seen by one core; 0 when unknown */
  int l3_sharing;                       /* logical processors that share one L3; 0 when unknown */
  char brand[52];                       /* for display only: nothing may depend on it */
} DevCpu;
void dev_cpu_detect(DevCpu *out);
void dev_cpu_text(const DevCpu *c, Str *out);          /* one line: brand, features, caches */
/* The system lets this process and all its threads keep matrix tiles; asked once, before the first is used. false: it has none to give. */
bool dev_tiles_ask(void);
bool dev_cpu_has(const DevCpu *c, const char *feature); /* by row name; false for an unknown name */

/* code.c: memory for generated code. A page is writable or executable, never both. */
typedef struct DevCode DevCode;
DevCode *dev_code_new(bool perf_map);                  /* perf_map: also name every blob in /tmp/perf-PID.map, which perf(1) reads */
void dev_code_free(DevCode *c);                        /* no code of it may be running; NULL is fine */
/* Copy a position-independent blob; *entry is its 64-byte aligned start, valid until dev_code_free. Fails: ERR_MEMORY. */
Err *dev_code_add(DevCode *c, const char *name, const void *p, size_t n_bytes, const void **entry);
size_t dev_code_bytes(const DevCode *c);               /* pages held by blobs */

/* pool.c: n threads, the caller being number 0. Regions run one at a time and do not nest. Waiting spins briefly, yields, then parks. */
typedef struct DevPool DevPool;
typedef void DevPoolFn(void *ctx, int thread, int n_threads);
Err *dev_pool_new(int n_threads, DevPool **out);       /* at least 1. Fails: ERR_LIMIT */
void dev_pool_free(DevPool *p);                        /* outside a region; NULL is fine */
int dev_pool_n_threads(const DevPool *p);
void dev_pool_run(DevPool *p, DevPoolFn *fn, void *ctx); /* fn on every thread; returns when all are done and their writes visible */
/* The same on as many threads as really run: where others keep some of them from their cores and phases are short, those are left out for a while. */
void dev_pool_run_fit(DevPool *p, DevPoolFn *fn, void *ctx);
int dev_pool_n_active(const DevPool *p);               /* threads of the next dev_pool_run_fit, at most */
/* In a region, by every thread of it. All writes before it are visible to all after it. */
void dev_barrier(DevPool *p, int thread);
/* The same with a serial step: the last to arrive gets true at once, does the step and calls dev_barrier_release; the others get false after that. */
bool dev_barrier_last(DevPool *p, int thread);
void dev_barrier_release(DevPool *p);

/* Work claimed piece by piece: threads take [*begin, *end) of n_total until false. Zero `next` outside the region or in a serial step. */
typedef struct DevClaim { _Alignas(64) _Atomic int64_t next; } DevClaim;
bool dev_claim(DevClaim *c, int64_t chunk, int64_t n_total, int64_t *begin, int64_t *end);
/* The same in pieces that shrink with what is left, down to `least`, multiples of it: few claims, and threads that end close together. */
bool dev_claim_part(DevClaim *c, int64_t least, int64_t n_total, int n_threads, int64_t *begin, int64_t *end);
/* Work split by index: thread t of n gets [*begin, *end) of n_total, in multiples of `unit` except at the end. */
void dev_split(int64_t n_total, int64_t unit, int thread, int n_threads, int64_t *begin, int64_t *end);
#endif
