/* Functions, types and the builder. Tables of names and rules come from the .def files. What goes in must follow ops.def: the builder
   CHECKs only what would corrupt its own arrays; ir_fn_verify says the rest. Light folding is simplify.c's. */
#include <string.h>
#include "ir/priv.h"

const char *const ir_op_name[IR_N_OPS] = {
#define OP(name, n_args, rule, flags, meaning) #name,
#include "ir/ops.def"
#undef OP
};
const int8_t ir_op_n_args[IR_N_OPS] = {
#define OP(name, n_args, rule, flags, meaning) n_args,
#include "ir/ops.def"
#undef OP
};
const char ir_op_rule[IR_N_OPS] = {
#define OP(name, n_args, rule, flags, meaning) RULE_##rule,
#include "ir/ops.def"
#undef OP
};
const char *const ir_op_flags[IR_N_OPS] = {
#define OP(name, n_args, rule, flags, meaning) flags,
#include "ir/ops.def"
#undef OP
};
const char *const ir_type_name[IR_N_BASIC] = {
#define TYPE(name, elt, lanes) #name,
#include "ir/types.def"
#undef TYPE
};
static const struct { uint8_t elt, n_lanes; } type_row[IR_N_BASIC] = {
#define TYPE(name, elt, lanes) {IR_E_##elt, lanes},
#include "ir/types.def"
#undef TYPE
};
const char *const ir_mem_name[IR_N_MEM] = {"none", "u8", "i8", "u16", "i16", "i32", "i64", "f16", "bf16", "f32", "ptr"};
const int8_t ir_mem_bytes[IR_N_MEM] = {0, 1, 1, 2, 2, 4, 8, 2, 2, 4, 8};
const uint8_t ir_mem_elt[IR_N_MEM] = {IR_E_NONE, IR_E_I32, IR_E_I32, IR_E_I32, IR_E_I32, IR_E_I32, IR_E_I64, IR_E_F32, IR_E_F32, IR_E_F32, IR_E_PTR};
const char *const ir_pred_name[IR_N_PRED] = {"none", "eq", "ne", "lt", "le", "gt", "ge"};
const char *const ir_space_name[IR_N_SPACE] = {"global", "scratch", "args"};

bool ir_flag(IrOp op, char flag) { return strchr(ir_op_flags[op], flag) != NULL; }
bool ir_is_addr(IrOp op) { return op == IR_load || op == IR_store || op == IR_prefetch || op == IR_tload || op == IR_tstore; }
bool ir_is_tile(IrOp op) { return op >= IR_tbegin && op <= IR_tdot2; }
bool ir_has_result(IrOp op) { return op != IR_store && op != IR_prefetch && !ir_is_tile(op); }

/* functions */
IrFn *ir_fn_new(Arena *a, const char *name) {
  IrFn *fn = ARENA_NEW(a, IrFn);
  fn->arena = a;
  fn->name = arena_dup(a, name);
  PUSH(a, fn->ins, fn->n_ins, fn->cap_ins, (IrIns){.block = -1});
  return fn;
}

int ir_block_add(IrFn *fn) {
  PUSH(fn->arena, fn->blocks, fn->n_blocks, fn->cap_blocks, (IrBlock){0});
  return fn->n_blocks - 1;
}

static void *dup_items(Arena *a, const void *p, int n, size_t n_bytes) {
  if (n == 0) return NULL;
  return memcpy(arena_alloc_array(a, (size_t)n, n_bytes), p, (size_t)n * n_bytes);
}

IrFn *ir_fn_clone(Arena *a, const IrFn *fn) {
  IrFn *c = ARENA_NEW(a, IrFn);
  *c = *fn;
  c->arena = a;
  c->name = arena_dup(a, fn->name);
  c->ins = dup_items(a, fn->ins, fn->n_ins, sizeof *fn->ins);
  c->blocks = dup_items(a, fn->blocks, fn->n_blocks, sizeof *fn->blocks);
  c->ptrs = dup_items(a, fn->ptrs, fn->n_ptrs, sizeof *fn->ptrs);
  c->cap_ins = fn->n_ins, c->cap_blocks = fn->n_blocks, c->cap_ptrs = fn->n_ptrs;
  for (int i = 0; i < c->n_blocks; i++) {
    IrBlock *b = &c->blocks[i];
    b->params = dup_items(a, b->params, b->n_params, sizeof *b->params);
    b->ins = dup_items(a, b->ins, b->n_ins, sizeof *b->ins);
    b->cap_params = b->n_params, b->cap_ins = b->n_ins;
    for (int e = 0; e < 2; e++) b->edge[e].args = dup_items(a, b->edge[e].args, b->edge[e].n_args, sizeof *b->edge[e].args);
  }
  return c;
}

/* types */
static bool same_ptr(const IrPtr *a, const IrPtr *b) {
  if (a->mem != b->mem || a->space != b->space || a->n_dims != b->n_dims) return false;
  for (int i = 0; i < a->n_dims; i++) if (a->dim[i] != b->dim[i]) return false;
  return true;
}

IrType ir_ptr_type(IrFn *fn, IrPtr p) {
  CHECK(p.n_dims <= IR_MAX_DIMS && p.mem < IR_N_MEM && p.space < IR_N_SPACE, "bad pointer type");
  for (int i = 0; i < fn->n_ptrs; i++) if (same_ptr(&fn->ptrs[i], &p)) return (IrType)(IR_N_BASIC + i);
  CHECK(fn->n_ptrs < UINT16_MAX - IR_N_BASIC, "too many pointer types");
  PUSH(fn->arena, fn->ptrs, fn->n_ptrs, fn->cap_ptrs, p);
  return (IrType)(IR_N_BASIC + fn->n_ptrs - 1);
}

IrType ir_vec_type_or_none(IrElt e, int n_lanes) {
  for (int t = 1; t < IR_N_BASIC; t++) if (type_row[t].elt == e && type_row[t].n_lanes == n_lanes) return (IrType)t;
  return IR_T_none;
}

IrType ir_vec_type(IrElt e, int n_lanes) {
  IrType t = ir_vec_type_or_none(e, n_lanes);
  CHECK(t != IR_T_none, "no type with element %d and %d lanes", e, n_lanes);
  return t;
}

bool ir_is_ptr(IrType t) { return t >= IR_N_BASIC; }

IrElt ir_type_elt(const IrFn *fn, IrType t) {
  (void)fn;
  return ir_is_ptr(t) ? IR_E_PTR : (IrElt)type_row[t].elt;
}

int ir_type_lanes(const IrFn *fn, IrType t) {
  (void)fn;
  return ir_is_ptr(t) ? 1 : type_row[t].n_lanes;
}

IrType ir_type_of(const IrFn *fn, IrRef v) {
  CHECK(v > 0 && v < fn->n_ins, "%%%d is no value", v);
  return fn->ins[v].type;
}

static IrType conversion_type(IrOp op, IrElt e, int n) {
  if (op == IR_sext || op == IR_zext) return IR_T_i64;
  if (op == IR_trunc) return IR_T_i32;
  if (op == IR_i2f) return ir_vec_type_or_none(IR_E_F32, n);
  if (op == IR_f2i) return ir_vec_type_or_none(IR_E_I32, n);
  if (op == IR_bits) return ir_vec_type_or_none(e == IR_E_F32 ? IR_E_I32 : IR_E_F32, n);
  return IR_T_none;
}

IrType ir_result_type(const IrFn *fn, IrOp op, const IrRef *arg) {
  int n_args = ir_op_n_args[op];
  if (n_args == 0 || ir_is_addr(op) || op == IR_gather || op == IR_splat) return IR_T_none;
  IrType t = ir_type_of(fn, arg[0]);
  IrElt e = ir_type_elt(fn, t);
  int n = ir_type_lanes(fn, t);
  switch (ir_op_rule[op]) {
    case RULE_Q: return ir_vec_type_or_none(IR_E_I1, n);
    case RULE_W: return ir_type_of(fn, arg[1]);
    case RULE_R: return ir_vec_type_or_none(e, 1);
    case RULE_X: return conversion_type(op, e, n);
    default: return op == IR_pick ? ir_type_of(fn, arg[1]) : op == IR_extract ? ir_vec_type_or_none(e, 1) : t;
  }
}

bool ir_is_const(const IrFn *fn, IrRef v, int64_t *imm) {
  if (v <= 0 || fn->ins[v].op != IR_const) return false;
  if (imm) *imm = fn->ins[v].imm;
  return true;
}

/* the builder */
IrRef ir_param(IrFn *fn, int block, IrType t) {
  CHECK(block >= 0 && block < fn->n_blocks, "no block b%d", block);
  IrRef v = fn->n_ins;
  PUSH(fn->arena, fn->ins, fn->n_ins, fn->cap_ins, (IrIns){.op = IR_param, .type = t, .block = block});
  IrBlock *b = &fn->blocks[block];
  PUSH(fn->arena, b->params, b->n_params, b->cap_params, v);
  return v;
}

IrRef ir_emit(IrBuild *b, IrIns ins) {
  IrFn *fn = b->fn;
  CHECK(b->at >= 0 && b->at < fn->n_blocks, "no block b%d", b->at);
  IrBlock *blk = &fn->blocks[b->at];
  CHECK(blk->term == IR_NO_TERM, "block b%d of %s has its terminator already", b->at, fn->name);
  IrRef v = fn->n_ins;
  ins.block = b->at;
  PUSH(fn->arena, fn->ins, fn->n_ins, fn->cap_ins, ins);
  PUSH(fn->arena, blk->ins, blk->n_ins, blk->cap_ins, v);
  return v;
}

static IrRef emit_simplified(IrBuild *b, IrIns ins) {
  IrRef same = ir_simplify(b, &ins, false);
  return same ? same : ir_emit(b, ins);
}

IrRef ir_const_i(IrBuild *b, IrType t, int64_t v) {
  IrElt e = ir_type_elt(b->fn, t);
  CHECK(e == IR_E_I1 || e == IR_E_I32 || e == IR_E_I64, "not an integer type");
  if (e == IR_E_I1) v = v != 0;
  if (e == IR_E_I32) v = (int32_t)(uint32_t)(uint64_t)v;
  return ir_emit(b, (IrIns){.op = IR_const, .type = t, .imm = v});
}

IrRef ir_const_f(IrBuild *b, IrType t, float v) {
  CHECK(ir_type_elt(b->fn, t) == IR_E_F32, "not a float type");
  return ir_emit(b, (IrIns){.op = IR_const, .type = t, .imm = f32_to_bits(v)});
}

static IrRef op_n(IrBuild *b, IrOp op, IrPred p, IrRef x, IrRef y, IrRef z, int64_t imm) {
  IrIns ins = {.op = (uint8_t)op, .pred = (uint8_t)p, .arg = {x, y, z}, .imm = imm};
  ins.type = ir_result_type(b->fn, op, ins.arg);
  return emit_simplified(b, ins);
}

IrRef ir_op1(IrBuild *b, IrOp op, IrRef x) { CHECK(ir_op_n_args[op] == 1 && op != IR_splat, "%s", ir_op_name[op]); return op_n(b, op, IR_P_none, x, 0, 0, 0); }
IrRef ir_op2(IrBuild *b, IrOp op, IrRef x, IrRef y) { CHECK(ir_op_n_args[op] == 2, "%s", ir_op_name[op]); return op_n(b, op, IR_P_none, x, y, 0, 0); }
IrRef ir_op3(IrBuild *b, IrOp op, IrRef x, IrRef y, IrRef z) { CHECK(ir_op_n_args[op] == 3, "%s", ir_op_name[op]); return op_n(b, op, IR_P_none, x, y, z, 0); }
IrRef ir_shift(IrBuild *b, IrOp op, IrRef x, int by) { CHECK(ir_op_rule[op] == RULE_I, "%s", ir_op_name[op]); return op_n(b, op, IR_P_none, x, 0, 0, by); }
IrRef ir_cmp(IrBuild *b, IrOp op, IrPred p, IrRef x, IrRef y) { CHECK(ir_op_rule[op] == RULE_Q, "%s", ir_op_name[op]); return op_n(b, op, p, x, y, 0, 0); }
IrRef ir_dot4(IrBuild *b, IrRef acc, IrRef u, IrRef s, int u_max) { return op_n(b, IR_dot4, IR_P_none, acc, u, s, u_max); }
IrRef ir_extract(IrBuild *b, IrRef v, int lane) { return op_n(b, IR_extract, IR_P_none, v, 0, 0, lane); }
IrRef ir_insert(IrBuild *b, IrRef v, IrRef x, int lane) { return op_n(b, IR_insert, IR_P_none, v, x, 0, lane); }
IrRef ir_padd(IrBuild *b, IrRef ptr, IrRef bytes) { return op_n(b, IR_padd, IR_P_none, ptr, bytes, 0, 0); }

IrRef ir_splat(IrBuild *b, IrRef x, int n_lanes) {
  if (n_lanes == 1) return x;
  IrType t = ir_vec_type(ir_type_elt(b->fn, ir_type_of(b->fn, x)), n_lanes);
  return emit_simplified(b, (IrIns){.op = IR_splat, .type = t, .arg = {x}});
}

IrRef ir_iota(IrBuild *b, int n_lanes) { return ir_emit(b, (IrIns){.op = IR_iota, .type = ir_vec_type(IR_E_I32, n_lanes)}); }

IrRef ir_load(IrBuild *b, IrMem m, IrType t, IrRef ptr, IrRef idx, int scale, int64_t disp) {
  return emit_simplified(b, (IrIns){.op = IR_load, .mem = (uint8_t)m, .scale = (uint8_t)scale, .type = t, .arg = {ptr, idx}, .imm = disp});
}

void ir_store(IrBuild *b, IrMem m, IrRef ptr, IrRef idx, int scale, int64_t disp, IrRef v, int n_lanes) {
  if (n_lanes == ir_type_lanes(b->fn, ir_type_of(b->fn, v))) n_lanes = 0;
  emit_simplified(b, (IrIns){.op = IR_store, .mem = (uint8_t)m, .scale = (uint8_t)scale, .n_lanes = (int16_t)n_lanes, .arg = {ptr, idx, v}, .imm = disp});
}

void ir_prefetch(IrBuild *b, IrRef ptr, IrRef idx, int scale, int64_t disp) {
  emit_simplified(b, (IrIns){.op = IR_prefetch, .scale = (uint8_t)scale, .arg = {ptr, idx}, .imm = disp});
}

void ir_tile(IrBuild *b, IrOp op, int64_t imm) { ir_emit(b, (IrIns){.op = (uint8_t)op, .imm = imm}); }

void ir_tile_mem(IrBuild *b, IrOp op, int tile, IrRef ptr, IrRef idx, int scale, int64_t disp, IrRef row_bytes) {
  emit_simplified(b, (IrIns){.op = (uint8_t)op, .scale = (uint8_t)scale, .n_lanes = (int16_t)tile, .arg = {ptr, idx, row_bytes}, .imm = disp});
}

IrRef ir_gather(IrBuild *b, IrMem m, IrType t, IrRef ptr, IrRef offs, int64_t disp) {
  return ir_emit(b, (IrIns){.op = IR_gather, .mem = (uint8_t)m, .type = t, .arg = {ptr, offs}, .imm = disp});
}

/* terminators */
static IrBlock *open_block(IrBuild *b) {
  CHECK(b->at >= 0 && b->at < b->fn->n_blocks, "no block b%d", b->at);
  IrBlock *blk = &b->fn->blocks[b->at];
  CHECK(blk->term == IR_NO_TERM, "block b%d of %s has its terminator already", b->at, b->fn->name);
  return blk;
}

static IrEdge edge_new(IrFn *fn, int block, const IrRef *args, int n) {
  CHECK(block >= 0 && block < fn->n_blocks, "no block b%d", block);
  return (IrEdge){block, dup_items(fn->arena, args, n, sizeof *args), n};
}

void ir_jmp(IrBuild *b, int block, const IrRef *args, int n_args) {
  IrBlock *blk = open_block(b);
  blk->term = IR_JMP;
  blk->edge[0] = edge_new(b->fn, block, args, n_args);
}

void ir_br(IrBuild *b, IrRef cond, int then_block, const IrRef *then_args, int n_then, int else_block, const IrRef *else_args, int n_else) {
  IrBlock *blk = open_block(b);
  blk->term = IR_BR;
  blk->cond = cond;
  blk->edge[0] = edge_new(b->fn, then_block, then_args, n_then);
  blk->edge[1] = edge_new(b->fn, else_block, else_args, n_else);
}

void ir_ret(IrBuild *b) { open_block(b)->term = IR_RET; }
