/* Machine IR: the target's instructions over virtual registers, in SSA form with block parameters. Made by instruction selection
   (x86/isel.c), given registers by ra.c, written as bytes by x86/emit.c. Private to gen.

   Two-address instructions: r[0] is written and `tied` is read from the same register. Selection emits M_COPY c, t before the
   instruction and ties it to c, which nothing else reads: so a tie always can be kept, and the copy vanishes when c and t may share. */
#ifndef LUMEN_GEN_MIR_H
#define LUMEN_GEN_MIR_H
#include "gen/gen.h"

typedef enum MClass { M_G, M_V, M_K, M_N_CLASS } MClass;        /* general, vector, mask registers */
enum { M_MAX_REGS = 32, M_NONE = -1, M_POOL = -2, M_FRAME = -3 };  /* POOL, FRAME: as a base; disp is the constant's index, the slot's offset */

/* Pseudo instructions; everything below M_FIRST_PSEUDO is an instruction of the target. */
enum { M_FIRST_PSEUDO = 0xff00, M_COPY = M_FIRST_PSEUDO, M_RELOAD, M_SPILL, M_UDIV, M_UREM, M_CLEAR, M_ONES };

enum { M_DEF = 1, M_MEM = 2, M_BCAST = 4, M_ZERO = 8, M_FOLD = 16, M_FOLDB = 32, M_WIDE = 64 };
/* DEF: r[0] is written, not read. FOLD: the last register operand could be memory, mem_bytes of it; FOLDB: or one broadcast element.
   WIDE: 64-bit general operands of a pseudo instruction. */
typedef struct MIns {
  uint16_t op;
  uint8_t flags, n_r, scale;
  uint8_t mem_bytes;
  uint8_t fixed;               /* general registers (bits of the first 8) destroyed between reading and writing */
  int32_t r[4];                /* virtual registers in the order of the encoding, destination first */
  int32_t tied;                /* a virtual register, or M_NONE */
  int32_t base, index, mask;   /* virtual registers, or M_NONE; base also M_POOL, M_FRAME */
  int32_t disp;
  int64_t imm;
} MIns;

typedef struct MReg {
  uint8_t cls;
  uint8_t bytes;               /* meaningful bytes: what a spill must keep */
  bool low16;                  /* vector registers 0..15 only: some instruction cannot encode more */
  bool no_spill;               /* made by spilling: must get a register */
  int32_t slot;                /* frame offset when it lives in memory, else M_NONE */
  int32_t def_block, def_ins;  /* def_ins -1: block parameter */
  int32_t remat;               /* index into MFn.remats + 1: one instruction that makes the value anew; 0: none */
} MReg;

typedef enum MTerm { M_JMP, M_JCC, M_RET } MTerm;
typedef struct MBlock {
  int32_t *params; int n_params;
  MIns *ins; int n_ins, cap_ins;
  MTerm term;
  int cc;                      /* M_JCC: condition code of the encoding; succ[0] when it holds, else succ[1] */
  int succ[2];
  int32_t *args; int n_args;   /* of a M_JMP: what the successor's parameters get. M_JCC edges carry none: they were split */
  int depth;                   /* of loops around it */
} MBlock;

typedef struct MConst { int n_bytes; uint8_t p[64]; } MConst;
typedef struct MFn {
  Arena *arena;
  const char *name;
  const Target *target;
  MBlock *blocks; int n_blocks, cap_blocks;   /* in layout order; block 0 is the entry, its parameters arrive in fixed registers */
  MReg *regs; int n_regs, cap_regs;
  MIns *remats; int n_remats, cap_remats;
  MConst *pool; int n_pool, cap_pool;         /* constants; base M_POOL with disp the index */
  int n_frame;                                /* bytes of stack slots */
  bool has_wide_slots;                        /* some slot is a vector's */
} MFn;

/* What ra.c decided. A move's places: registers 0 .. 31 of the class, or slots: M_SLOT + frame offset. */
enum { M_SLOT = 1 << 16 };
typedef struct RegMap {
  int8_t *phys;                /* of each virtual register; -1: lives in memory or is never used */
  int n_spills;                /* instructions added by spilling */
  uint32_t used[M_N_CLASS];    /* registers given to anything */
} RegMap;

typedef struct RegSet { int n[M_N_CLASS]; const uint8_t *order[M_N_CLASS]; const uint8_t *params; } RegSet; /* allocation order; entry parameters' registers */

int mir_reg_new(MFn *fn, MClass cls, int bytes);
int mir_pool_add(MFn *fn, const void *p, int n_bytes);  /* index of these bytes in the constant pool, shared */
RegMap *ra_run(MFn *fn, const RegSet *set);

/* x86/: selection, printing and emission. */
MFn *x86_select(Arena *a, const IrFn *fn, const Target *t);
void x86_mir_print(const MFn *fn, const RegMap *map, Str *out);
const RegSet *x86_reg_set(const Target *t);
void x86_emit(const MFn *fn, const RegMap *map, bool want_text, GenCode *out);
#endif
