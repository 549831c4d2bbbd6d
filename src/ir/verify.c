/* Is a function legal? Every rule of ops.def, and the graph's: each block ends in a terminator, edges give a block's parameters their
   types, a value is defined once and dominates its uses. Goes in: any function; NULL comes out when legal, else the first fault with the
   function, the block, the instruction as text, and what was expected. Safe on indices out of range. Time near-linear. */
#include <string.h>
#include "ir/priv.h"

typedef struct Check {
  const IrFn *fn;
  Arena *arena;
  const IrOrder *order;
  int *at;            /* position of a value in its block, parameters 0, instructions from 1; 0 in an unseen block */
  bool *seen;         /* stands in some block */
  int block;
  IrRef v;            /* the instruction looked at; 0: the block or its terminator */
} Check;

static Err *fault(const Check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static Err *fault(const Check *c, const char *fmt, ...) {
  Str s = {0};
  str_addf(&s, "fn @%s: b%d", c->fn->name, c->block);
  if (c->v) { str_add(&s, ": "); ir_ins_print(c->fn, c->v, &s); }
  str_add(&s, ": ");
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&s, fmt, ap);
  va_end(ap);
  Err *e = err_new(ERR_FORMAT, "%s", s.p);
  str_free(&s);
  return e;
}

static const char *type_text(const Check *c, IrType t) {
  Str s = {0};
  ir_type_print(c->fn, t, &s);
  const char *p = arena_dup(c->arena, s.p);
  str_free(&s);
  return p;
}

static bool type_exists(const Check *c, IrType t) { return t < IR_N_BASIC || t - IR_N_BASIC < c->fn->n_ptrs; }

/* Structure: indices, one place per value. After this every arg, param and edge of the function may be followed. */
static Err *place(Check *c, IrRef v, int pos, bool is_param) {
  const IrFn *fn = c->fn;
  c->v = 0;
  if (v <= 0 || v >= fn->n_ins) return fault(c, "%%%d is no value; there are %d", v, fn->n_ins - 1);
  const IrIns *x = &fn->ins[v];
  if (x->op >= IR_N_OPS || x->mem >= IR_N_MEM || x->pred >= IR_N_PRED || !type_exists(c, x->type)) return fault(c, "%%%d has op %d, mem %d, pred %d or type %d out of range", v, x->op, x->mem, x->pred, x->type);
  if (c->seen[v]) return fault(c, "%%%d stands twice", v);
  c->v = v;
  if (x->block != c->block) return fault(c, "says it stands in b%d", x->block);
  if (is_param != (x->op == IR_param)) return fault(c, is_param ? "is a parameter of the block but no param" : "param among the instructions; it belongs in the block's list");
  c->seen[v] = true;
  c->at[v] = pos;
  return NULL;
}

static Err *check_places(Check *c) {
  const IrFn *fn = c->fn;
  if (fn->n_blocks == 0) return err_new(ERR_FORMAT, "fn @%s: no block", fn->name);
  for (c->block = 0; c->block < fn->n_blocks; c->block++) {
    const IrBlock *b = &fn->blocks[c->block];
    for (int i = 0; i < b->n_params; i++) TRY(place(c, b->params[i], 0, true));
    for (int i = 0; i < b->n_ins; i++) TRY(place(c, b->ins[i], i + 1, false));
    c->v = 0;
    if (b->term == IR_NO_TERM) return fault(c, "no terminator; expected jmp, br or ret");
    if (b->term > IR_RET) return fault(c, "unknown terminator %d", b->term);
    for (int e = 0; e < 2 && b->term != IR_RET && (e == 0 || b->term == IR_BR); e++) {
      int to = b->edge[e].block;
      if (to < 0 || to >= fn->n_blocks) return fault(c, "edge to b%d, which does not exist", to);
      if (to == 0) return fault(c, "edge to b0; the entry is entered once");
    }
  }
  return NULL;
}

/* A use of u at position pos of the block. Unreachable code may use any value. */
static Err *use(const Check *c, IrRef u, int pos) {
  const IrFn *fn = c->fn;
  if (u <= 0 || u >= fn->n_ins || !c->seen[u]) return fault(c, "%%%d is not defined", u);
  const IrIns *d = &fn->ins[u];
  if (d->type == IR_T_none) return fault(c, "%%%d (%s) has no result", u, ir_op_name[d->op]);
  if (d->block == c->block ? c->at[u] < pos : c->order->pos[c->block] < 0) return NULL;
  if (d->block == c->block) return fault(c, "%%%d is used before it is defined", u);
  if (c->order->pos[d->block] < 0 || !ir_dominates(c->order, d->block, c->block)) return fault(c, "%%%d of b%d does not dominate this use", u, d->block);
  return NULL;
}

static IrElt arg_elt(const Check *c, const IrIns *x, int k) { return ir_type_elt(c->fn, c->fn->ins[x->arg[k]].type); }
static int arg_lanes(const Check *c, const IrIns *x, int k) { return ir_type_lanes(c->fn, c->fn->ins[x->arg[k]].type); }
static const char *arg_text(const Check *c, const IrIns *x, int k) { return type_text(c, c->fn->ins[x->arg[k]].type); }

static Err *want_arg(const Check *c, const IrIns *x, int k, IrType t) {
  if (c->fn->ins[x->arg[k]].type == t) return NULL;
  return fault(c, "argument %d is %s, expected %s", k, arg_text(c, x, k), type_text(c, t));
}

static Err *want_elt(const Check *c, const IrIns *x, int k, bool ok, const char *expected) {
  return ok ? NULL : fault(c, "argument %d is %s, expected %s", k, arg_text(c, x, k), expected);
}

static bool is_int(IrElt e) { return e == IR_E_I32 || e == IR_E_I64; }

static Err *check_alike(const Check *c, const IrIns *x) { /* S F I B Q: all arguments as the first */
  for (int k = 1; k < ir_op_n_args[x->op]; k++) TRY(want_arg(c, x, k, c->fn->ins[x->arg[0]].type));
  return NULL;
}

static Err *check_const(const Check *c, const IrIns *x) {
  IrElt e = ir_type_elt(c->fn, x->type);
  bool fits = e == IR_E_I64 || (e == IR_E_I1 && (x->imm == 0 || x->imm == 1)) || (e == IR_E_I32 && x->imm == (int32_t)x->imm) || (e == IR_E_F32 && x->imm == (int64_t)(uint32_t)x->imm);
  if (e == IR_E_PTR || e == IR_E_NONE) return fault(c, "type is %s, expected i1, i32, i64, f32 or a vector", type_text(c, x->type));
  return fits ? NULL : fault(c, "%lld does not fit %s", (long long)x->imm, type_text(c, x->type));
}

static Err *check_select(const Check *c, const IrIns *x) {
  int n = arg_lanes(c, x, 0);
  TRY(want_elt(c, x, 0, arg_elt(c, x, 0) == IR_E_I1, "i1 or i1xN"));
  TRY(want_arg(c, x, 2, c->fn->ins[x->arg[1]].type));
  return n == 1 || n == arg_lanes(c, x, 1) ? NULL : fault(c, "argument 0 has %d lanes, expected 1 or %d", n, arg_lanes(c, x, 1));
}

static Err *check_conversion(const Check *c, const IrIns *x) {
  IrElt e = arg_elt(c, x, 0);
  int n = arg_lanes(c, x, 0);
  switch (x->op) {
    case IR_sext: case IR_zext: return want_arg(c, x, 0, IR_T_i32);
    case IR_trunc: return want_arg(c, x, 0, IR_T_i64);
    case IR_i2f: return want_elt(c, x, 0, e == IR_E_I32, "i32 or i32xN");
    case IR_f2i: return want_elt(c, x, 0, e == IR_E_F32, "f32 or f32xN");
    case IR_bits: return want_elt(c, x, 0, e == IR_E_I32 || e == IR_E_F32, "i32 or f32, or a vector of it");
    default: /* splat */
      TRY(want_elt(c, x, 0, n == 1 && (e == IR_E_I32 || e == IR_E_F32 || e == IR_E_I1), "i32, f32 or i1"));
      if (ir_type_elt(c->fn, x->type) == e && ir_type_lanes(c->fn, x->type) > 1) return NULL;
      return fault(c, "result is %s, expected a vector of %s", type_text(c, x->type), arg_text(c, x, 0));
  }
}

/* load, store, gather: the memory type against the value's. */
static Err *check_mem(const Check *c, const IrIns *x, IrType value, const char *allowed) {
  IrElt e = ir_type_elt(c->fn, value);
  if (!x->mem || !strstr(allowed, ir_mem_name[x->mem])) return fault(c, "mem is %s, expected one of %s", ir_mem_name[x->mem], allowed);
  if (e == ir_mem_elt[x->mem]) return NULL;
  return fault(c, "value is %s, but %s holds %s", type_text(c, value), ir_mem_name[x->mem], ir_mem_elt[x->mem] == IR_E_I32 ? "i32 or i32xN" : ir_mem_elt[x->mem] == IR_E_F32 ? "f32 or f32xN" : ir_mem_elt[x->mem] == IR_E_I64 ? "i64" : "a pointer");
}

static Err *check_address(const Check *c, const IrIns *x) {
  TRY(want_elt(c, x, 0, arg_elt(c, x, 0) == IR_E_PTR, "a pointer"));
  if (x->arg[1]) TRY(want_arg(c, x, 1, IR_T_i64));
  if (x->scale != 1 && x->scale != 2 && x->scale != 4 && x->scale != 8) return fault(c, "scale is %d, expected 1, 2, 4 or 8", x->scale);
  return NULL;
}

static Err *check_store(const Check *c, const IrIns *x) {
  TRY(check_address(c, x));
  TRY(check_mem(c, x, c->fn->ins[x->arg[2]].type, "u8 u16 i32 i64 f16 bf16 f32 ptr"));
  int n = arg_lanes(c, x, 2);
  return x->n_lanes >= 0 && x->n_lanes < MAX(n, 2) ? NULL : fault(c, "lanes %d, expected 1 to %d, or 0 for all", x->n_lanes, n - 1);
}

static Err *check_gather(const Check *c, const IrIns *x) {
  TRY(want_elt(c, x, 0, arg_elt(c, x, 0) == IR_E_PTR, "a pointer"));
  TRY(want_elt(c, x, 1, arg_elt(c, x, 1) == IR_E_I32 && arg_lanes(c, x, 1) > 1, "i32xN"));
  TRY(check_mem(c, x, x->type, "u8 i8 u16 i16 i32 f32"));
  int n = ir_type_lanes(c->fn, x->type);
  return n == arg_lanes(c, x, 1) ? NULL : fault(c, "result has %d lanes, the offsets %d", n, arg_lanes(c, x, 1));
}

static Err *check_lane(const Check *c, const IrIns *x) { /* extract, insert */
  IrElt e = arg_elt(c, x, 0);
  int n = arg_lanes(c, x, 0);
  TRY(want_elt(c, x, 0, n > 1 && (e == IR_E_I32 || e == IR_E_F32), "i32xN or f32xN"));
  if (x->op == IR_insert) TRY(want_arg(c, x, 1, ir_vec_type(e, 1)));
  return x->imm >= 0 && x->imm < n ? NULL : fault(c, "lane %lld, expected 0 to %d", (long long)x->imm, n - 1);
}

static Err *check_tile(const Check *c, const IrIns *x) {
  int64_t to = x->imm & 15, a = x->imm >> 4 & 15, b = x->imm >> 8;
  switch (x->op) {
    case IR_tbegin: return x->imm >= 4 && x->imm <= 64 && x->imm % 4 == 0 ? NULL : fault(c, "%lld bytes, expected 4 to 64, a multiple of 4", (long long)x->imm);
    case IR_tend: return NULL;
    case IR_tzero: return x->imm >= 0 && x->imm < 8 ? NULL : fault(c, "tile %lld, expected 0 to 7", (long long)x->imm);
    case IR_tdot4: case IR_tdot2:
      if (x->imm >= 0 && to < 4 && (a == 4 || a == 5) && (b == 6 || b == 7)) return NULL;
      return fault(c, "sums in tile %lld of %lld and %lld, expected 0 to 3 of 4 or 5 and 6 or 7", (long long)to, (long long)a, (long long)b);
    default:
      TRY(check_address(c, x));
      TRY(want_arg(c, x, 2, IR_T_i64));
      return x->n_lanes >= 0 && x->n_lanes < 8 ? NULL : fault(c, "tile %d, expected 0 to 7", x->n_lanes);
  }
}

static Err *check_special(const Check *c, const IrIns *x) {
  if (ir_is_tile((IrOp)x->op)) return check_tile(c, x);
  switch (x->op) {
    case IR_iota:
      if (ir_type_elt(c->fn, x->type) == IR_E_I32 && ir_type_lanes(c->fn, x->type) > 1) return NULL;
      return fault(c, "type is %s, expected i32xN", type_text(c, x->type));
    case IR_dot4:
      TRY(want_elt(c, x, 0, arg_elt(c, x, 0) == IR_E_I32 && arg_lanes(c, x, 0) > 1, "i32xN"));
      TRY(check_alike(c, x));
      return x->imm >= 0 && x->imm <= 255 ? NULL : fault(c, "bound %lld, expected 0 to 255", (long long)x->imm);
    case IR_dot2:
      TRY(want_elt(c, x, 0, arg_elt(c, x, 0) == IR_E_F32 && arg_lanes(c, x, 0) > 1, "f32xN"));
      for (int i = 1; i < 3; i++) TRY(want_elt(c, x, i, arg_elt(c, x, i) == IR_E_I32 && arg_lanes(c, x, i) == arg_lanes(c, x, 0), "i32 of as many lanes"));
      return NULL;
    case IR_pick:
      TRY(want_elt(c, x, 0, arg_elt(c, x, 0) == IR_E_I32 && arg_lanes(c, x, 0) % 4 == 0, "i32x4, i32x8 or i32x16"));
      return want_elt(c, x, 1, arg_elt(c, x, 1) == IR_E_F32 && arg_lanes(c, x, 1) == arg_lanes(c, x, 0), "f32 of as many lanes");
    case IR_padd:
      TRY(want_elt(c, x, 0, arg_elt(c, x, 0) == IR_E_PTR, "a pointer"));
      return want_arg(c, x, 1, IR_T_i64);
    case IR_prefetch: return check_address(c, x);
    default: return check_lane(c, x);
  }
}

static Err *check_rule(const Check *c, const IrIns *x) {
  switch (ir_op_rule[x->op]) {
    case RULE_C: return check_const(c, x);
    case RULE_S:
      TRY(want_elt(c, x, 0, is_int(arg_elt(c, x, 0)), "i32, i64 or i32xN"));
      if ((x->op == IR_udiv || x->op == IR_urem) && arg_lanes(c, x, 0) > 1) return fault(c, "argument 0 is %s, expected i32 or i64", arg_text(c, x, 0));
      if (x->op == IR_shuf && arg_lanes(c, x, 0) % 4) return fault(c, "argument 0 is %s, expected i32x4, i32x8 or i32x16", arg_text(c, x, 0));
      return check_alike(c, x);
    case RULE_I: {
      TRY(want_elt(c, x, 0, is_int(arg_elt(c, x, 0)), "i32, i64 or i32xN"));
      int width = arg_elt(c, x, 0) == IR_E_I64 ? 64 : 32;
      return x->imm >= 0 && x->imm < width ? NULL : fault(c, "shift by %lld, expected 0 to %d", (long long)x->imm, width - 1);
    }
    case RULE_F: TRY(want_elt(c, x, 0, arg_elt(c, x, 0) == IR_E_F32, "f32 or f32xN")); return check_alike(c, x);
    case RULE_B: TRY(want_elt(c, x, 0, arg_elt(c, x, 0) == IR_E_I1, "i1 or i1xN")); return check_alike(c, x);
    case RULE_Q:
      if (x->op == IR_icmp) TRY(want_elt(c, x, 0, is_int(arg_elt(c, x, 0)), "i32, i64 or i32xN"));
      else TRY(want_elt(c, x, 0, arg_elt(c, x, 0) == IR_E_F32, "f32 or f32xN"));
      if (!x->pred) return fault(c, "no predicate; expected eq ne lt le gt ge");
      return check_alike(c, x);
    case RULE_W: return check_select(c, x);
    case RULE_X: return check_conversion(c, x);
    case RULE_L: TRY(check_address(c, x)); return check_mem(c, x, x->type, "u8 i8 u16 i16 i32 i64 f16 bf16 f32 ptr");
    case RULE_T: return check_store(c, x);
    case RULE_G: return check_gather(c, x);
    case RULE_R: return want_elt(c, x, 0, arg_lanes(c, x, 0) > 1 && (arg_elt(c, x, 0) == IR_E_I32 || arg_elt(c, x, 0) == IR_E_F32), "i32xN or f32xN");
    default: return check_special(c, x);
  }
}

static Err *check_ins(const Check *c, int pos) {
  const IrIns *x = &c->fn->ins[c->v];
  bool addr = ir_is_addr((IrOp)x->op);
  for (int k = 0; k < ir_op_n_args[x->op]; k++)
    if (!(addr && k == 1 && x->arg[1] == 0)) TRY(use(c, x->arg[k], pos));
  TRY(check_rule(c, x));
  IrType want = ir_result_type(c->fn, (IrOp)x->op, x->arg);
  if (!ir_has_result((IrOp)x->op)) return x->type == IR_T_none ? NULL : fault(c, "has a result type, %s", type_text(c, x->type));
  if (want != IR_T_none && want != x->type) return fault(c, "result is %s, expected %s", type_text(c, x->type), type_text(c, want));
  return NULL;
}

static Err *check_edge(const Check *c, const IrEdge *e, int pos) {
  const IrBlock *to = &c->fn->blocks[e->block];
  if (e->n_args != to->n_params) return fault(c, "edge to b%d gives %d values, expected %d", e->block, e->n_args, to->n_params);
  for (int i = 0; i < e->n_args; i++) {
    TRY(use(c, e->args[i], pos));
    IrType got = c->fn->ins[e->args[i]].type, want = c->fn->ins[to->params[i]].type;
    if (got != want) return fault(c, "edge to b%d: value %d is %s, expected %s", e->block, i, type_text(c, got), type_text(c, want));
  }
  return NULL;
}

static Err *check_block(Check *c) {
  const IrFn *fn = c->fn;
  const IrBlock *b = &fn->blocks[c->block];
  for (int i = 0; i < b->n_params; i++) {
    IrType t = fn->ins[b->params[i]].type;
    c->v = b->params[i];
    if (t == IR_T_none) return fault(c, "a parameter needs a type");
    if (c->block == 0 && ir_type_lanes(fn, t) > 1) return fault(c, "is %s; a function's parameters are scalars", type_text(c, t));
  }
  for (int i = 0; i < b->n_ins; i++) { c->v = b->ins[i]; TRY(check_ins(c, i + 1)); }
  c->v = 0;
  if (b->term == IR_RET) return NULL;
  if (b->term == IR_BR) {
    TRY(use(c, b->cond, b->n_ins + 1));
    IrType t = fn->ins[b->cond].type;
    if (t != IR_T_i1) return fault(c, "br on %%%d, which is %s, expected i1", b->cond, type_text(c, t));
    TRY(check_edge(c, &b->edge[1], b->n_ins + 1));
  }
  return check_edge(c, &b->edge[0], b->n_ins + 1);
}

static Err *verify(Check *c) {
  c->at = ARENA_ARRAY(c->arena, int, c->fn->n_ins);
  c->seen = ARENA_ARRAY(c->arena, bool, c->fn->n_ins);
  TRY(check_places(c));
  c->order = ir_order(c->arena, c->fn);
  for (c->block = 0; c->block < c->fn->n_blocks; c->block++) TRY(check_block(c));
  return NULL;
}

Err *ir_fn_verify(const IrFn *fn) {
  Check c = {.fn = fn, .arena = arena_new("verify")};
  Err *e = verify(&c);
  arena_free(c.arena);
  return e;
}
