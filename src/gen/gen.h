/* gen: IR functions to machine code. In: a verified function and a target; out: bytes ready to be put on executable pages.

   Calling convention of the result: System V; up to 6 i64 or pointer parameters in rdi rsi rdx rcx r8 r9; returns nothing. */
#ifndef LUMEN_GEN_H
#define LUMEN_GEN_H
#include "base/base.h"
#include "ir/ir.h"

/* target.c: what a machine offers, never its name. Rows of targets.def. */
typedef struct Target {
  const char *name;
  int vec_lanes;             /* 32-bit lanes of the widest register: 16, 8, 4 */
  int n_vec_regs;
  bool vex;                  /* three-operand encodings, unaligned memory operands */
  bool fma, vnni, f16c, kmask;
  bool dot2;                 /* products of two bfloat16 a lane, as the IR has them */
  bool tiles;                /* matrix tiles of bytes and of bf16: the IR's t ops */
} Target;
/* What a processor may run now, told by the caller (kern_cpu asks the machine). sse41: with SSSE3; avx512: F, BW, DQ and VL. */
typedef struct GenCpu { bool sse41, avx2, fma, f16c, avx512, vnni, dot2, tiles; } GenCpu; /* tiles: and the system lets this process use them */
int gen_target_count(void);
const Target *gen_target_get(int i);                          /* 0 <= i < count, best first */
const Target *gen_target_find(const char *name);              /* NULL: no such target */
bool gen_target_runs(const Target *t, GenCpu cpu);
const Target *gen_target_host(GenCpu cpu);                    /* the best that runs; NULL: none */

/* legal.c: the same function with no vector wider than the target's and nothing the target lacks; interp gives the same bits. */
IrFn *gen_legalize(Arena *a, const IrFn *fn, const Target *t);

/* compile.c: legalize, select, allocate, emit. Fails: ERR_UNSUPPORTED (too many parameters, kinds that cannot be passed). */
typedef struct GenCode {
  const uint8_t *code; size_t n_bytes;  /* position-independent; constants follow the code; starts on 64 bytes; lives in the arena */
  int n_ins;                 /* machine instructions */
  int n_spills;              /* stores to and reloads from the stack, rematerialized constants included */
  int n_moves;               /* register to register moves left */
  int n_stack_bytes;
  int n_loop_ins, n_loop_spills, n_loop_moves;                /* the same in the deepest loops */
  const char *text;          /* assembly, when asked for */
} GenCode;
typedef struct GenOptions { bool want_text; Str *mach; } GenOptions; /* mach: machine instructions before registers are appended here; may be NULL */
Err *gen_compile(Arena *a, const IrFn *fn, const Target *t, const GenOptions *opt, GenCode *out); /* opt may be NULL */
#endif
