/* ir: SSA functions with block arguments; types, builder, printer, parser, verifier, interpreter, passes that need nothing else.

   A function is a list of blocks; block 0 is the entry and its parameters are the function's. A block has parameters, instructions
   in order, and one terminator. Every value is an instruction, named by its index (IrRef > 0; 0 means none). Values are defined before
   use along every path (dominance). Ops are rows of ops.def, types of types.def. Text form, which reads back:

     fn @name(%1: ptr<f32[?,576], global>, %2: i64) {
     b0(%1, %2):
       %3 = load.f32 f32x16 %1, %2*4 + 64
       %4 = const i64 16
       %5 = icmp.lt %2, %4
       br %5, b1(%2), b2
     b1(%6: i64):
       store.f32 %1, %6*4 + 0, %3 lanes 7
       jmp b2
     b2:
       ret
     }
*/
#ifndef LUMEN_IR_H
#define LUMEN_IR_H
#include "base/base.h"

typedef int32_t IrRef;    /* a value: index into IrFn.ins; 0 is none */
typedef uint16_t IrType;  /* below IR_N_BASIC: a row of types.def; above: pointer type IrFn.ptrs[t - IR_N_BASIC] */

typedef enum IrOp {
#define OP(name, n_args, rule, flags, meaning) IR_##name,
#include "ir/ops.def"
#undef OP
  IR_N_OPS
} IrOp;

enum {
#define TYPE(name, elt, lanes) IR_T_##name,
#include "ir/types.def"
#undef TYPE
  IR_N_BASIC
};
typedef enum IrElt { IR_E_NONE, IR_E_I1, IR_E_I32, IR_E_I64, IR_E_F32, IR_E_PTR } IrElt;

typedef enum IrMem { IR_M_none, IR_M_u8, IR_M_i8, IR_M_u16, IR_M_i16, IR_M_i32, IR_M_i64, IR_M_f16, IR_M_bf16, IR_M_f32, IR_M_ptr, IR_N_MEM } IrMem;
typedef enum IrPred { IR_P_none, IR_P_eq, IR_P_ne, IR_P_lt, IR_P_le, IR_P_gt, IR_P_ge, IR_N_PRED } IrPred;
typedef enum IrSpace { IR_S_global, IR_S_scratch, IR_S_args, IR_N_SPACE } IrSpace; /* weights and activations; thread-local work; argument table */

/* ptr<f32[?,576], global>: what the memory holds. For the reader and the interpreter's bounds; code generation sees an address. */
enum { IR_MAX_DIMS = 6 };
typedef struct IrPtr { uint8_t mem, space, n_dims; int64_t dim[IR_MAX_DIMS]; } IrPtr; /* dim -1: unknown until run time */

typedef struct IrIns {
  uint8_t op, mem, pred, scale;  /* mem: load, store, gather; pred: icmp, fcmp; scale 1, 2, 4, 8: load, store */
  IrType type;                   /* of the result; IR_T_none for stores */
  int16_t n_lanes;               /* store: lanes written when fewer than the vector has, else 0; tload, tstore: the tile */
  int32_t block;                 /* where it stands; -1: removed */
  IrRef arg[3];
  int64_t imm;                   /* const, shift amount, lane, displacement in bytes, dot4 bound */
} IrIns;

typedef enum IrTermKind { IR_NO_TERM, IR_JMP, IR_BR, IR_RET } IrTermKind;
typedef struct IrEdge { int block; IrRef *args; int n_args; } IrEdge;
typedef struct IrBlock {
  IrRef *params; int n_params, cap_params;
  IrRef *ins; int n_ins, cap_ins;
  IrTermKind term;
  IrRef cond;                    /* IR_BR: i1; edge 0 when true, edge 1 when false */
  IrEdge edge[2];
} IrBlock;

typedef struct IrFn {
  Arena *arena;
  const char *name;
  IrIns *ins; int n_ins, cap_ins;          /* ins[0] is unused */
  IrBlock *blocks; int n_blocks, cap_blocks;
  IrPtr *ptrs; int n_ptrs, cap_ptrs;
} IrFn;

extern const char *const ir_op_name[IR_N_OPS];
extern const int8_t ir_op_n_args[IR_N_OPS];
extern const char ir_op_rule[IR_N_OPS];
extern const char *const ir_op_flags[IR_N_OPS];
extern const char *const ir_mem_name[IR_N_MEM], *const ir_pred_name[IR_N_PRED], *const ir_space_name[IR_N_SPACE];
extern const int8_t ir_mem_bytes[IR_N_MEM];

/* build.c: the builder appends to block `at`. Light folding (constants, x+0, x*1, shifts by 0) happens here; no other rewriting. */
typedef struct IrBuild { IrFn *fn; int at; } IrBuild;
IrFn *ir_fn_new(Arena *a, const char *name);
IrFn *ir_fn_clone(Arena *a, const IrFn *fn);
int ir_block_add(IrFn *fn);
IrType ir_ptr_type(IrFn *fn, IrPtr p);                        /* interned */
IrType ir_vec_type(IrElt e, int n_lanes);                     /* i1, i32, f32, i64 (1 lane) */
IrElt ir_type_elt(const IrFn *fn, IrType t);
int ir_type_lanes(const IrFn *fn, IrType t);
bool ir_is_ptr(IrType t);
IrType ir_type_of(const IrFn *fn, IrRef v);
IrRef ir_param(IrFn *fn, int block, IrType t);
IrRef ir_emit(IrBuild *b, IrIns ins);                         /* appends as it is */
IrRef ir_const_i(IrBuild *b, IrType t, int64_t v);
IrRef ir_const_f(IrBuild *b, IrType t, float v);
IrRef ir_op1(IrBuild *b, IrOp op, IrRef x);                   /* result type by rule: F, fneg fabs fsqrt ..; sext zext trunc i2f f2i bits radd rmax rmin */
IrRef ir_op2(IrBuild *b, IrOp op, IrRef x, IrRef y);
IrRef ir_op3(IrBuild *b, IrOp op, IrRef x, IrRef y, IrRef z); /* fma, select */
IrRef ir_shift(IrBuild *b, IrOp op, IrRef x, int by);
IrRef ir_cmp(IrBuild *b, IrOp op, IrPred p, IrRef x, IrRef y);
IrRef ir_dot4(IrBuild *b, IrRef acc, IrRef u, IrRef s, int u_max);
IrRef ir_splat(IrBuild *b, IrRef x, int n_lanes);             /* n_lanes 1: x itself */
IrRef ir_iota(IrBuild *b, int n_lanes);
IrRef ir_extract(IrBuild *b, IrRef v, int lane);
IrRef ir_insert(IrBuild *b, IrRef v, IrRef x, int lane);
IrRef ir_load(IrBuild *b, IrMem m, IrType t, IrRef ptr, IrRef idx, int scale, int64_t disp);  /* idx 0: none */
void ir_store(IrBuild *b, IrMem m, IrRef ptr, IrRef idx, int scale, int64_t disp, IrRef v, int n_lanes);
bool ir_is_tile(IrOp op);                                     /* tbegin .. tdot2 */
void ir_tile(IrBuild *b, IrOp op, int64_t imm);               /* tbegin tend tzero tdot4 tdot2 */
void ir_tile_mem(IrBuild *b, IrOp op, int tile, IrRef ptr, IrRef idx, int scale, int64_t disp, IrRef row_bytes); /* tload tstore */
void ir_prefetch(IrBuild *b, IrRef ptr, IrRef idx, int scale, int64_t disp);
IrRef ir_gather(IrBuild *b, IrMem m, IrType t, IrRef ptr, IrRef offs, int64_t disp);
IrRef ir_padd(IrBuild *b, IrRef ptr, IrRef bytes);
void ir_jmp(IrBuild *b, int block, const IrRef *args, int n_args);
void ir_br(IrBuild *b, IrRef cond, int then_block, const IrRef *then_args, int n_then, int else_block, const IrRef *else_args, int n_else);
void ir_ret(IrBuild *b);
bool ir_is_const(const IrFn *fn, IrRef v, int64_t *imm);      /* const op; imm may be NULL */

/* print.c, parse.c: text and back. Printing then parsing then printing gives the same text. */
void ir_fn_print(const IrFn *fn, Str *out);
Err *ir_fn_parse(Arena *a, const char *text, IrFn **out);     /* errors: line, column, what was expected, nearest name */

/* verify.c: every rule of ops.def, dominance, terminators, edge arguments. NULL when legal. */
Err *ir_fn_verify(const IrFn *fn);

/* interp.c: runs any legal function, slowly and plainly. args: one 64-bit slot per entry parameter (f32 in the low half).
   Memory is the process's own; when spans are given every access must lie inside one of them. Fails: a step bound, an access outside. */
typedef struct IrSpan { const void *p; size_t n_bytes; bool writable; } IrSpan;
Err *ir_interp(const IrFn *fn, const uint64_t *args, int n_args, const IrSpan *spans, int n_spans, int64_t max_steps);

/* passes.c: rewriting in place; each keeps meaning and bits. */
void ir_pass_fold(IrFn *fn);   /* constant folding (by the interpreter's own arithmetic), identities that keep every bit, addresses, constant branches */
void ir_pass_cse(IrFn *fn);    /* dominator-scoped value numbering of pure ops, and of loads from spaces the function never writes */
void ir_pass_licm(IrFn *fn);   /* pure ops, and loads where no store of the loop may alias, move to a preheader; constants stay. licm.c says when */
void ir_pass_dce(IrFn *fn);    /* unused pure ops and loads, unused block parameters, unreachable blocks; chains of blocks become one. Renumbers blocks */

/* order.c: reverse postorder, dominators, loops. */
typedef struct IrOrder {
  int n; int *block; int *pos;       /* block[i] in reverse postorder, n reachable; pos[b]: its i, -1 when unreachable */
  int *idom;                         /* immediate dominator; the entry's and unreachable blocks' -1 */
  int *loop_head, *loop_up, *depth;  /* innermost natural loop's header or -1 (a header's is itself); the header of the loop around the one headed here, or -1; depth 0 outside loops */
  int *dom_in, *dom_out;             /* preorder intervals of the dominator tree */
  int *pred_at, *pred;               /* predecessors of b: pred[pred_at[b]] .. pred[pred_at[b + 1] - 1]; reachable ones only, once per edge */
} IrOrder;
IrOrder *ir_order(Arena *a, const IrFn *fn);
bool ir_dominates(const IrOrder *o, int a, int b);            /* a is on every path to b; both reachable; every block dominates itself */
bool ir_in_loop(const IrOrder *o, int head, int b);           /* b belongs to the loop headed by head */
#endif
