/* gen/x86 encoding: instructions as data, their facts (rows of insts.def), bytes, assembly text, and an assembler with labels and a
   constant pool. Knows nothing of IR or register allocation. */
#ifndef LUMEN_GEN_X86_ENC_H
#define LUMEN_GEN_X86_ENC_H
#include "base/base.h"

typedef enum X86Op {
  X86_none,
#define INS(id, ...) X86_##id,
#include "gen/x86/insts.def"
#undef INS
  X86_N_OPS
} X86Op;

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 };

/* General registers 0..15 (RAX..R15), vectors 0..31 (0..15 unless the row is EVEX), masks k0..k7, tiles 0..7. */
typedef struct X86Ins {
  uint16_t op;
  int8_t r[4];            /* register operands in Intel order (destination first), -1: none. When `mem`, the r/m operand's slot is -1 */
  bool mem;               /* the r/m operand is memory */
  int8_t base, index;     /* general registers, -1 none (index never rsp); both -1 with label >= 0: rip-relative to that label + disp */
  uint8_t scale;          /* 1 2 4 8 */
  int32_t disp;
  int64_t imm;
  int8_t mask;            /* EVEX k register, 0: none */
  bool zero;              /* EVEX {z} */
  bool bcast;             /* EVEX embedded broadcast of one element of the memory operand */
  int32_t label;          /* branch target or rip-relative data label, -1 none */
} X86Ins;
/* An empty instruction: no registers, no memory, no label. */
#define X86_INS(o) ((X86Ins){.op = (uint16_t)(o), .r = {-1, -1, -1, -1}, .base = -1, .index = -1, .scale = 1, .label = -1})

typedef enum X86Enc { X86_LEG, X86_VEX, X86_EVX } X86Enc;

/* Facts that are yes or no. Short names, because insts.def is made of them. */
enum {
  X86F_TIED = 1 << 0,     /* operand 0 is read as well as written */
  X86F_RO = 1 << 1,       /* operand 0 is only read: compares, tests, push */
  X86F_MASK = 1 << 2,     /* takes {k}; with a mask and without {z}, a register operand 0 is read too */
  X86F_ZERO = 1 << 3,     /* takes {z} when operand 0 is a register */
  X86F_BCAST = 1 << 4,    /* takes embedded broadcast; the element has 8 bytes when W, else 4 */
  X86F_BRANCH = 1 << 5,
  X86F_WFLAGS = 1 << 6,
  X86F_RFLAGS = 1 << 7,
  X86F_NOREG = 1 << 8,    /* the r/m operand must be memory */
  X86F_DIV = 1 << 9,      /* also reads and writes rax and rdx */
  X86F_XMM0 = 1 << 10,    /* also reads xmm0 */
  X86F_COMM = 1 << 11,    /* whole vectors whose two sources may swap, which can save a byte of VEX */
  X86F_CMPI = 1 << 12,    /* as COMM, for the symmetric predicates of a compare */
  X86F_SWAP = 1 << 13,    /* general register to register: opcode - 2 with the operands exchanged is the assembler's choice */
  X86F_REV = 1 << 14,     /* vector register to register: the store opcode may save a byte of VEX; rev_opcode in enc.c knows it */
  X86F_ALU = 1 << 15,     /* group 1: short forms for imm8 and for the accumulator */
  X86F_TEST = 1 << 16,    /* accumulator form A9 */
  X86F_NOSIZE = 1 << 17,  /* memory operand is an address, printed without a size */
  X86F_VZERO = 1 << 18,   /* vzeroupper: no operands and writes vectors */
  X86F_REL8 = 1 << 19,    /* branch that has a one-byte-displacement form */
  X86F_SHIFT = 1 << 22,   /* the count 1 has a form without an immediate */
  X86F_TILE = 1 << 23,    /* of the matrix extension: registers are tiles, 0..7 */
  X86F_SIB = 1 << 24,     /* the index register holds the distance of rows and must be there */
  X86F_MODRM = 1 << 25,   /* a ModRM byte with r/m 0, though no operand is there */
  X86F_PREF = 1 << 21,    /* a hint: reads nothing that counts */
};

typedef struct X86Row {
  const char *id;         /* "addps_z" */
  const char *name;       /* "vaddps" */
  const char *ops;        /* pairs (place, class) in Intel order, see insts.def */
  uint8_t enc, pp, map, w, opcode;
  int8_t ext;             /* ModRM.reg when it is part of the opcode, -1 none */
  uint8_t vl;             /* 0: 128 bits or scalar, 1: 256, 2: 512 */
  uint8_t mem_bytes;      /* size of the r/m operand in memory; 0: register only */
  uint32_t flags;
} X86Row;

/* enc.c: facts and bytes. */
const X86Row *x86_row(int op);
int x86_op_find(const char *id);                      /* X86_none when there is no such row */
int x86_n_regs(int op);                               /* how many slots of r[] the row uses (the r/m operand counts) */
char x86_reg_class(int op, int slot);                 /* 'r' general, 'v' vector, 'k' mask, 't' tile, 'm' memory only */
int x86_mem_slot(int op);                             /* slot of r[] that may (or must) be memory; -1 none */
int x86_imm_bytes(int op);                            /* 0, 1, 4 or 8 */
bool x86_imm_fits(int op, int64_t imm);
int x86_encode(const X86Ins *in, uint8_t *out);       /* no label; writes at most 15 bytes and returns how many */

/* asm.c: instructions to one blob: code, then the pool of constants. */
typedef struct X86Asm X86Asm;
typedef struct X86Blob {
  const uint8_t *p;                                   /* in the arena; run it from a 64-byte aligned address */
  size_t n_bytes, n_code_bytes;                       /* the pool starts at the next multiple of 64 after the code */
} X86Blob;
X86Asm *x86_asm_new(Arena *a);
int x86_asm_label(X86Asm *s);                         /* a new label, not yet bound */
void x86_asm_bind(X86Asm *s, int label);              /* here, once */
void x86_asm_align(X86Asm *s, int n_bytes);           /* nops up to a multiple of a power of two <= 64 */
void x86_asm_emit(X86Asm *s, const X86Ins *in);
int x86_asm_const(X86Asm *s, const void *p, int n_bytes); /* label of a constant of 4, 8, 16, 32 or 64 bytes, aligned to its size; equal ones are shared */
X86Blob x86_asm_finish(X86Asm *s);                    /* every label used must be bound; the assembler is spent */
int64_t x86_asm_label_pos(const X86Asm *s, int label); /* after finish: byte offset in the blob */

/* dis.c: one instruction in Intel syntax, which the LLVM assembler reads after `.intel_syntax noprefix`; labels print as .L7. No newline. */
void x86_ins_text(const X86Ins *in, Str *out);
#endif
