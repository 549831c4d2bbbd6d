/* ir, private: what build, print, parse, verify, interp and passes share. */
#ifndef LUMEN_IR_PRIV_H
#define LUMEN_IR_PRIV_H
#include "ir/ir.h"

/* The rules of ops.def as characters, for tables. */
enum { RULE_C = 'C', RULE_P = 'P', RULE_S = 'S', RULE_F = 'F', RULE_I = 'I', RULE_B = 'B', RULE_Q = 'Q', RULE_W = 'W', RULE_X = 'X',
       RULE_L = 'L', RULE_T = 'T', RULE_G = 'G', RULE_R = 'R', RULE_V = 'V' };

/* build.c */
extern const char *const ir_type_name[IR_N_BASIC];
extern const uint8_t ir_mem_elt[IR_N_MEM];                    /* IrElt of a value loaded or stored as this */
bool ir_flag(IrOp op, char flag);                             /* of the flags column */
IrType ir_result_type(const IrFn *fn, IrOp op, const IrRef *arg); /* none where arguments do not decide: const, load, splat .. or are wrong */
IrType ir_vec_type_or_none(IrElt e, int n_lanes);
bool ir_is_addr(IrOp op);                                     /* load, store, prefetch, tload, tstore: ptr, optional index, scale, disp */
bool ir_has_result(IrOp op);

/* eval.c: one pure instruction on values. i1 is 0 or 1 in a 32-bit lane. */
typedef union IrVal { int32_t i[16]; uint32_t u[16]; float f[16]; int64_t q; uint64_t uq; uint8_t *p; } IrVal;
typedef struct IrEval {
  uint8_t op, pred, elt;         /* elt: of argument 0; of argument 1 for select; of the result where there is no argument */
  uint8_t n_lanes, n_cond;       /* lanes of argument 0, of the result for select, splat, const, iota; n_cond: select's argument 0 */
  int64_t imm;
} IrEval;
IrEval ir_eval_of(const IrFn *fn, const IrIns *x);
void ir_eval(const IrEval *e, const IrVal *a, const IrVal *b, const IrVal *c, IrVal *out); /* out is none of the arguments */
void ir_val_set(IrVal *v, IrElt e, int n_lanes, int64_t imm);
int64_t ir_val_imm(const IrVal *v, IrElt e);                  /* lane 0 as a const's imm */

/* simplify.c: rewrites x in place (constants first), or returns the existing value it equals, else 0. deep: also chains of constant
   additions, addresses and powers of two; needed constants are appended through b. */
IrRef ir_simplify(IrBuild *b, IrIns *x, bool deep);

/* bitops.c: shifts and masks of vectors, merged in place. */
void ir_simplify_bits(IrBuild *b, IrIns *x);

/* print.c */
void ir_type_print(const IrFn *fn, IrType t, Str *out);
void ir_ins_print(const IrFn *fn, IrRef v, Str *out);         /* one line, no indentation, no newline */

/* order.c */
int ir_n_edges(const IrBlock *b);                             /* 0 to 2 by the terminator */
#endif
