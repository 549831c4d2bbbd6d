/* kern: functions that run. Builds machine code for regions, packing and decoding, and keeps what it built: equal regions share code. */
#ifndef LUMEN_KERN_H
#define LUMEN_KERN_H
#include "dev/dev.h"
#include "gen/gen.h"
#include "opt/opt.h"

typedef void (*KernEntry)(void **args, int64_t first, int64_t last, void *scratch);
typedef struct Kern {
  const char *name;
  KernEntry entry;
  int64_t scratch_bytes;
  size_t code_bytes;
  int64_t compile_ns;
  Sched sched;
} Kern;
/* How many rows of activations a step has: what the schedule depends on. */
typedef enum KernShape { KERN_ONE, KERN_FEW, KERN_MANY, KERN_N_SHAPES } KernShape;
KernShape kern_shape(int64_t n_rows);

typedef struct Kerns Kerns;
Err *kern_set_new(const Target *t, bool perf_map, Kerns **out);  /* t NULL: the best this machine runs. Fails: ERR_UNSUPPORTED */
void kern_set_free(Kerns *k);                                    /* NULL is fine; kernels end with it */
const Target *kern_target(const Kerns *k);
int kern_n_built(const Kerns *k);
int64_t kern_compile_ns(const Kerns *k);
size_t kern_code_bytes(const Kerns *k);

Err *kern_region(Kerns *k, const TpPlan *p, int region, KernShape s, const Kern **out);
Err *kern_pack(Kerns *k, const FormatForm *f, int64_t K, const Kern **out);   /* opt.h lower_pack says the arguments */
Err *kern_decode(Kerns *k, const FormatForm *f, const Kern **out);            /* lower_decode likewise */
/* The schedule chosen for a region, by its structure and the target's registers; traced under sched. */
Sched kern_sched(const Target *t, size_t l2_bytes, const TpPlan *p, int region, KernShape s);
#endif
