/* Private to instruction selection: sel.c holds operands, addresses, constants and blocks; selops.c the operations. */
#ifndef LUMEN_GEN_X86_SEL_H
#define LUMEN_GEN_X86_SEL_H
#include "gen/mir.h"
#include "gen/x86/enc.h"

typedef enum Fam {
#define FAM(name, x, vx, y, zx, zy, z) F_##name,
#include "gen/x86/families.def"
#undef FAM
  F_N
} Fam;
enum { W_X, W_VX, W_Y, W_ZX, W_ZY, W_Z, W_N };   /* columns of families.def */
enum { CC_B = 2, CC_AE = 3, CC_E = 4, CC_NE = 5, CC_A = 7, CC_L = 12, CC_GE = 13, CC_LE = 14, CC_G = 15 };

/* An operand: a register, or memory when `mem`. */
typedef struct Opd { int reg; bool mem, bcast; int base, index, scale, disp; } Opd;
typedef struct HoistKey { int64_t bits; int lanes, cls, reg; } HoistKey;

typedef struct Sel {
  Arena *a;
  const IrFn *fn;
  const Target *t;
  MFn *m;
  IrOrder *ord;
  int *reg;                    /* virtual register of each IR value; -1: nobody asked for it yet */
  int *n_uses;                 /* of each value, aliases seen through */
  int *epoch;                  /* stores before the instruction in its block */
  int *dot_sum;                /* dot4 without VNNI that may stay in 16 bits: the bounds of its chain so far; else 0 */
  bool *dot_partial;           /* and the next one in the chain goes on from there */
  int *first_block;            /* machine block of each IR block */
  int cur, cur_epoch, depth;   /* IR block being selected, epoch of the instruction being selected */
  MIns *out; int n_out, cap_out;       /* of the IR instruction being selected, in order */
  HoistKey *hoist; int n_hoist, cap_hoist;
  MIns *entry; int n_entry, cap_entry; /* hoisted constants */
} Sel;

/* sel.c */
extern const MIns sel_blank;
int sel_fam(Fam f, int width);                       /* CHECKs that the form exists */
int sel_width(const Sel *s, int lanes);
IrRef sel_root(const Sel *s, IrRef v);               /* sees through reinterpretations that cost nothing */
MClass sel_class(const Sel *s, IrType t);
int sel_lanes(const Sel *s, IrRef v);
bool sel_dies(const Sel *s, IrRef v);                /* the instruction being selected is v's last use; ask before sel_use */
int sel_use(Sel *s, IrRef v);                        /* v in a register */
int sel_use_fresh(Sel *s, IrRef v);                  /* the same, but a constant is made anew, so that it may be overwritten */
int sel_dst(Sel *s, IrRef v);                        /* v's register, to be written */
int sel_new(Sel *s, MClass c, int bytes);
Opd sel_reg(int reg);
Opd sel_mem(Sel *s, IrRef ptr, IrRef idx, int scale, int64_t disp);
Opd sel_pool(Sel *s, const void *p, int n_bytes);
Opd sel_last(Sel *s, IrRef v, int op);               /* v as the last operand of op: memory when that is possible and wise */
bool sel_folds(const Sel *s, IrRef v, int op);       /* sel_last would read v's load in place */
int sel_const(Sel *s, const void *p, int n_bytes);   /* these bytes in a vector register */
int sel_splat_bits(Sel *s, uint32_t bits, int lanes, bool fresh);  /* bits in every lane */
int sel_kconst(Sel *s, unsigned bits);
MIns *sel_put(Sel *s, MIns in);
MIns *sel_emit(Sel *s, int op, int dst, const Opd *src, int n, int64_t imm);  /* sources in order; a tied one first. Memory last */
int sel_op(Sel *s, int op, MClass c, int bytes, const Opd *src, int n, int64_t imm); /* the same into a new register, which it returns */
void sel_store(Sel *s, int op, Opd at, int v, int64_t imm);

/* selops.c */
void sel_ins(Sel *s, IrRef v);
int sel_flags(Sel *s, IrRef cond);                   /* emits a compare; returns the condition code that means true */
#endif
