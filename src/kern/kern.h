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

/* The machine we are on, as far as targets ask, and its best target. Fails: ERR_UNSUPPORTED (no target is for this processor). */
GenCpu kern_cpu(void);
Err *kern_target_host(const Target **out);
const char *kern_tiles_missing(void);  /* why matrix tiles cannot be used here; NULL: they can */

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
Err *kern_fn(Kerns *k, IrFn *fn, const Kern **out);                           /* any function with the signature of opt.h; kept by its name */
Err *kern_encode(Kerns *k, const Module *m, FormatForm *f, const Kern **out);  /* lower_encode likewise; its scratch is scratch_bytes */
/* blocks.c: whole blocks as declared, any number; scratch: the kernel's scratch_bytes and kern_blocks_bytes(f) behind them. */
size_t kern_blocks_bytes(const FormatForm *f);
void kern_encode_blocks(const Kern *encode, const FormatForm *f, const float *x, int64_t n_blocks, uint8_t *out, void *scratch);
void kern_decode_blocks(const Kern *decode, const FormatForm *f, const uint8_t *blocks, int64_t n_blocks, float *out);
/* The schedule chosen for a region, by its structure and the target's registers; traced under sched. */
Sched kern_sched(const Target *t, size_t l2_bytes, const TpPlan *p, int region, KernShape s);

/* spec.c: one call of an op as a line of text, 'OP parameter=type[dim,..] parameter=number ..':

     OP w=FORMAT[4096,4096] x=f32[1,4096]          OP q=f32[4,8,64] k=f16[2,40,64,16] v=f16[2,640,64] pos=i32[4]=600 scale=0.125

   type: an element type, or a format where the op's text has a capital letter. A dimension that the op uses only as number of rows (first
   dimension, never of weights) is a symbol of the program, as in models: the same kernels run for any number of rows. It may be given a name
   instead of a number; its value is then not known. =N behind an i32 tensor: its elements count up to N; else they are random but valid.
   Results need naming only where their type is a capital letter: k=f16[..]. */
enum { KERN_MAX_ITEMS = 16, KERN_MAX_SYMS = 8 };
typedef struct KernItem {
  const char *name, *elt;            /* elt NULL: a number */
  int64_t dim[IR_MAX_DIMS]; const char *dim_name[IR_MAX_DIMS]; int n_dims; /* dim_name: a symbol, dim is -1 then */
  bool is_int; int64_t ival; double fval;
  int64_t last;                      /* =N; -1: not given */
} KernItem;
typedef struct KernCall { const char *op; KernItem item[KERN_MAX_ITEMS]; int n_items; bool narrow, dot2; } KernCall; /* Tp.narrow and dot2, for targets with matrix tiles and products of pairs */
typedef struct KernSpec {
  const OpDecl *op;
  const char *text, *variant;        /* text: the call as it would be written */
  Tp *tp; TpPlan *plan;
  int64_t sym[KERN_MAX_SYMS];        /* rows of every symbol, -1: not known */
  int64_t *last;                     /* by buffer: KernItem.last */
} KernSpec;
/* Fail: ERR_USAGE (what, got, expected, nearest name). */
Err *kern_call_parse(Arena *a, const char *text, KernCall *out);
void kern_call_print(const KernCall *c, Str *out);
/* Gives dimension `var` of the op's text another size wherever the call has it; false: it has none. */
bool kern_call_resize(const Module *m, KernCall *c, const char *var, int64_t size);
/* The op's dimension variables, by the order of their first use: rows (symbols), and rows of weights. */
typedef struct KernDim { const char *name; bool is_rows, is_weight_row, is_weight_k; } KernDim;
int kern_op_dims(const OpDecl *op, KernDim *out, int max);
bool kern_type_is_format(const TypeExpr *t);  /* a capital letter: any format */
bool kern_type_is_weight(const TypeExpr *t);  /* of two dimensions: blocks, packed or read raw */
/* ERR_USAGE, with those there are, where no op is for it. NULL is f32. */
Err *kern_precision_check(Arena *a, const Module *m, const char *precision);
/* The call instantiated and planned. precision NULL: f32. Fails: ERR_USAGE, ERR_NOT_FOUND, and what tp_call says. */
Err *kern_call_build(Arena *a, const Module *m, const KernCall *c, const char *precision, KernSpec **out);

/* work.c: what there is to do, counted from the plan's statements. */
typedef struct KernWork { double int_madds, f32_madds, n_bytes, weight_bytes, state_bytes; } KernWork; /* multiply-adds inside reductions; bytes of what is touched, once each */
/* An integer expression over axes, symbols and integer inputs; `unknown` where it is none. ints: by buffer that is no view, NULL: not known. */
typedef struct KernEval { const Tp *tp; const int64_t *sym; const int32_t *const *ints; int64_t axis[DX_MAX_AXES]; bool unknown; } KernEval;
int64_t kern_eval(KernEval *e, Dx x);
void kern_work(const TpPlan *p, int first, int end, KernEval *e, bool temps, KernWork *out); /* regions first .. end-1; temps: temporaries in memory too */

/* check.c: memory with data for a spec whose symbols are all known. Every buffer ends where an inaccessible page begins and has a pattern in
   front; what has no meaning (paddings, temporaries) holds NaN. Equal seeds: equal data. */
typedef struct KernData KernData;
Err *kern_data_new(const KernSpec *s, uint64_t seed, KernData **out);  /* Fails: ERR_MEMORY, ERR_USAGE (=N outside what the op may index) */
void kern_data_free(KernData *d);                                      /* NULL is fine */
/* The oracle: the naive form, run by the interpreter. Fails: an access outside every buffer. */
Err *kern_data_interp(KernData *d);
/* Machine code for these rows; shape KERN_N_SHAPES: by their number. */
Err *kern_data_prepare(KernData *d, Kerns *k, KernShape shape);
Err *kern_data_run(KernData *d, DevPool *pool);                        /* pool NULL: the caller alone. Fails: ERR_MEMORY */
int kern_data_n_jobs(const KernData *d);                               /* regions, after kern_data_prepare */
const Kern *kern_data_kern(const KernData *d, int job, int64_t *n_items);
/* NULL: every result is the same bit for bit (any NaN is any NaN), nothing outside results was touched. Fails: ERR_FORMAT, says where. */
Err *kern_data_compare(const KernData *want, const KernData *got);
/* All of it for one shape and seed: the oracle against sets for several targets, with every schedule. n_runs, which may be NULL, grows by the runs done. */
Err *kern_check(const KernSpec *s, Kerns *const *set, int n_sets, uint64_t seed, DevPool *pool, int *n_runs);
KernWork kern_data_work(const KernData *d);                            /* of one run, of operands without temporaries */

/* peak.c: what the machine gives at best, measured with kernels of our own for the set's target. */
typedef struct KernPeak { double f32_madds_per_s, int_madds_per_s, read_bytes_per_s; } KernPeak;
Err *kern_peak(Kerns *k, DevPool *pool, size_t n_bytes, KernPeak *out); /* n_bytes: memory read again and again by all threads together */
#endif
