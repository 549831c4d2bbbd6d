/* Instruction selection: a legal IR function in, machine IR over virtual registers out.

   Blocks are taken in reverse layout order and instructions from last to first, so that every use is seen before its definition: an
   instruction nobody asked for is never emitted, a load with one use is read in place, an address is folded into its uses, and the
   first request seen for a value is its last use (sel_dies), which decides which operand a two-address instruction overwrites. */
#include <string.h>
#include "gen/x86/sel.h"

const MIns sel_blank = {.r = {M_NONE, M_NONE, M_NONE, M_NONE}, .tied = M_NONE, .base = M_NONE, .index = M_NONE, .mask = M_NONE};

static const uint16_t fams[F_N][W_N] = {
#define FAM(name, x, vx, y, zx, zy, z) {X86_##x, X86_##vx, X86_##y, X86_##zx, X86_##zy, X86_##z},
#include "gen/x86/families.def"
#undef FAM
};

int sel_fam(Fam f, int width) {
  int op = fams[f][width];
  CHECK(op != X86_none, "family %d has no form of width %d", f, width);
  return op;
}

int sel_width(const Sel *s, int lanes) {
  if (lanes == 16) return W_Z;
  if (lanes == 8) return s->t->kmask ? W_ZY : W_Y;
  return s->t->kmask ? W_ZX : s->t->vex ? W_VX : W_X;
}

MClass sel_class(const Sel *s, IrType t) {
  IrElt e = ir_type_elt(s->fn, t);
  if (ir_type_lanes(s->fn, t) == 1) return e == IR_E_F32 ? M_V : M_G;
  return e == IR_E_I1 && s->t->kmask ? M_K : M_V;
}
int sel_lanes(const Sel *s, IrRef v) { return ir_type_lanes(s->fn, s->fn->ins[v].type); }

/* bits of a vector and trunc leave the register as it is; a 32-bit value's upper half means nothing, but loads and extracts clear it. */
static bool is_alias(const Sel *s, const IrIns *in) {
  if (in->op == IR_zext) return s->fn->ins[in->arg[0]].op == IR_load || s->fn->ins[in->arg[0]].op == IR_extract;
  return in->op == IR_trunc || (in->op == IR_bits && sel_class(s, in->type) == sel_class(s, s->fn->ins[in->arg[0]].type));
}
IrRef sel_root(const Sel *s, IrRef v) {
  while (is_alias(s, &s->fn->ins[v])) v = s->fn->ins[v].arg[0];
  return v;
}

bool sel_dies(const Sel *s, IrRef v) {
  v = sel_root(s, v);
  if (s->fn->ins[v].op == IR_const) return true;
  return s->reg[v] < 0 && s->ord->depth[s->fn->ins[v].block] >= s->depth;
}

int sel_new(Sel *s, MClass c, int bytes) { return mir_reg_new(s->m, c, bytes); }

MIns *sel_put(Sel *s, MIns in) {
  if (in.op < M_FIRST_PSEUDO && x86_row(in.op)->enc != X86_EVX && s->t->n_vec_regs > 16)
    for (int i = 0; i < in.n_r; i++)
      if (in.r[i] >= 0 && s->m->regs[in.r[i]].cls == M_V) s->m->regs[in.r[i]].low16 = true;
  PUSH(s->a, s->out, s->n_out, s->cap_out, in);
  return &s->out[s->n_out - 1];
}

Opd sel_reg(int reg) { return (Opd){.reg = reg, .base = M_NONE, .index = M_NONE}; }

static void set_mem(MIns *in, Opd m) {
  in->flags |= M_MEM | (m.bcast ? M_BCAST : 0);
  in->base = m.base, in->index = m.index, in->scale = (uint8_t)m.scale, in->disp = m.disp;
}

static MIns build(Sel *s, int op, int dst, const Opd *src, int n, int64_t imm) {
  const X86Row *row = x86_row(op);
  MIns in = sel_blank;
  in.op = (uint16_t)op;
  in.imm = imm;
  in.mem_bytes = row->mem_bytes;
  if (!(row->flags & X86F_RO)) {
    in.flags |= M_DEF;
    in.r[in.n_r++] = dst;
  }
  int i = 0;
  if (row->flags & X86F_TIED) {
    CHECK(n >= 1 && !src[0].mem, "%s: the tied operand is memory", row->id);
    int c = mir_reg_new(s->m, s->m->regs[dst].cls, s->m->regs[dst].bytes);
    MIns copy = sel_blank;
    copy.op = M_COPY, copy.flags = M_DEF, copy.n_r = 2, copy.r[0] = c, copy.r[1] = src[0].reg;
    sel_put(s, copy);
    in.tied = c;
    i = 1;
  }
  for (; i < n; i++) {
    if (src[i].mem) set_mem(&in, src[i]);
    in.r[in.n_r++] = src[i].mem ? M_NONE : src[i].reg;
  }
  CHECK(in.n_r == x86_n_regs(op), "%s: %d operands, wants %d", row->id, in.n_r, x86_n_regs(op));
  int slot = x86_mem_slot(op);
  CHECK(!(in.flags & M_MEM) || (slot >= 0 && in.r[slot] == M_NONE), "%s: memory in the wrong place", row->id);
  if (!(in.flags & M_MEM) && slot == in.n_r - 1 && slot > 0 && row->mem_bytes)
    in.flags |= M_FOLD | (row->flags & X86F_BCAST && !row->w ? M_FOLDB : 0);
  return in;
}

MIns *sel_emit(Sel *s, int op, int dst, const Opd *src, int n, int64_t imm) { return sel_put(s, build(s, op, dst, src, n, imm)); }

int sel_op(Sel *s, int op, MClass c, int bytes, const Opd *src, int n, int64_t imm) {
  int d = sel_new(s, c, bytes);
  sel_emit(s, op, d, src, n, imm);
  return d;
}

/* Memory is operand 0 and only written: no register is defined. */
void sel_store(Sel *s, int op, Opd at, int v, int64_t imm) {
  MIns in = sel_blank;
  in.op = (uint16_t)op;
  in.imm = imm;
  in.n_r = 2;
  in.r[1] = v;
  in.mem_bytes = x86_row(op)->mem_bytes;
  set_mem(&in, at);
  sel_put(s, in);
}

/* ---- constants ---- */
Opd sel_pool(Sel *s, const void *p, int n_bytes) {
  return (Opd){.reg = M_NONE, .mem = true, .base = M_POOL, .index = M_NONE, .scale = 1, .disp = mir_pool_add(s->m, p, n_bytes)};
}

static MIns pseudo(int op, int dst) {
  MIns in = sel_blank;
  in.op = (uint16_t)op, in.flags = M_DEF, in.n_r = 1, in.r[0] = dst;
  return in;
}

/* Puts `in`, which makes a constant, before the instruction being selected; in loops into the entry block instead, once per key. */
static int const_place(Sel *s, MClass c, int bytes, int64_t key, int lanes, MIns in, bool fresh) {
  bool hoist = s->depth > 0 && !fresh;
  if (hoist)
    for (int i = 0; i < s->n_hoist; i++)
      if (s->hoist[i].bits == key && s->hoist[i].lanes == lanes && s->hoist[i].cls == (int)c) return s->hoist[i].reg;
  int d = sel_new(s, c, bytes);
  in.r[0] = d;
  if (!hoist) {
    sel_put(s, in);
    return d;
  }
  PUSH(s->m->arena, s->m->remats, s->m->n_remats, s->m->cap_remats, in);
  s->m->regs[d].remat = s->m->n_remats;
  PUSH(s->a, s->entry, s->n_entry, s->cap_entry, in);
  PUSH(s->a, s->hoist, s->n_hoist, s->cap_hoist, (HoistKey){key, lanes, (int)c, d});
  return d;
}

int sel_const(Sel *s, const void *p, int n_bytes) {
  Opd at = sel_pool(s, p, n_bytes);
  MIns in = build(s, sel_fam(F_movups, sel_width(s, n_bytes / 4)), 0, &at, 1, 0);
  return const_place(s, M_V, n_bytes, at.disp, -1, in, false);
}

int sel_splat_bits(Sel *s, uint32_t bits, int lanes, bool fresh) {
  int bytes = lanes * 4;
  if (bits == 0 || (bits == 0xffffffff && lanes > 1))
    return const_place(s, M_V, bytes, bits, lanes, pseudo(bits ? M_ONES : M_CLEAR, 0), fresh);
  uint32_t p[16];
  for (int i = 0; i < 16; i++) p[i] = bits;
  bool one = lanes == 1 || s->t->kmask;
  Opd at = sel_pool(s, p, one ? 4 : bytes);
  int op = lanes == 1 ? sel_fam(F_movss, sel_width(s, 1)) : sel_fam(s->t->kmask ? F_broadcastss : F_movups, sel_width(s, lanes));
  MIns in = build(s, op, 0, &at, 1, 0);
  if (lanes > 1 && s->t->kmask) in.flags |= M_BCAST;
  return const_place(s, M_V, bytes, bits, lanes, in, fresh);
}

int sel_kconst(Sel *s, unsigned bits) {
  uint32_t p = bits;
  Opd at = sel_pool(s, &p, 4);
  return const_place(s, M_K, 8, bits, 0, build(s, X86_kmovw, 0, &at, 1, 0), false);
}

static int const_general(Sel *s, int64_t v, bool wide) {
  int op = !wide || (v >= 0 && v <= UINT32_MAX) ? X86_mov32_i : v >= INT32_MIN && v < 0 ? X86_mov64_i32 : X86_mov64_i64;
  MIns in = sel_blank;
  in.op = (uint16_t)op, in.flags = M_DEF, in.n_r = 1, in.r[0] = sel_new(s, M_G, 8);
  in.imm = op == X86_mov32_i ? (int64_t)(int32_t)(uint32_t)v : v;
  sel_put(s, in);
  return in.r[0];
}

static int value_const(Sel *s, IrRef v, bool fresh) {
  const IrIns *in = &s->fn->ins[v];
  IrElt e = ir_type_elt(s->fn, in->type);
  int lanes = ir_type_lanes(s->fn, in->type);
  if (lanes == 1 && e != IR_E_F32) return const_general(s, e == IR_E_I1 ? in->imm & 1 : in->imm, e == IR_E_I64);
  if (e != IR_E_I1) return sel_splat_bits(s, (uint32_t)in->imm, lanes, fresh);
  if (s->t->kmask) return sel_kconst(s, in->imm & 1 ? (1u << lanes) - 1 : 0);
  return sel_splat_bits(s, in->imm & 1 ? 0xffffffff : 0, lanes, fresh);
}

/* ---- values ---- */
static int value_bytes(const Sel *s, IrType t) {
  MClass c = sel_class(s, t);
  return c == M_V ? ir_type_lanes(s->fn, t) * 4 : 8;
}
int sel_dst(Sel *s, IrRef v) {
  v = sel_root(s, v);
  if (s->reg[v] < 0) s->reg[v] = sel_new(s, sel_class(s, s->fn->ins[v].type), value_bytes(s, s->fn->ins[v].type));
  return s->reg[v];
}
int sel_use(Sel *s, IrRef v) {
  v = sel_root(s, v);
  return s->fn->ins[v].op == IR_const ? value_const(s, v, false) : sel_dst(s, v);
}
int sel_use_fresh(Sel *s, IrRef v) {
  v = sel_root(s, v);
  return s->fn->ins[v].op == IR_const ? value_const(s, v, true) : sel_dst(s, v);
}

/* ---- addresses ---- */
static bool same_place(const Sel *s, IrRef v) { return s->fn->ins[v].block == s->cur && s->n_uses[v] <= 2 && s->reg[v] < 0; }
static bool fits32(int64_t v) { return v >= INT32_MIN && v <= INT32_MAX; }

/* Constants sink into the displacement and factors into the scale, as long as both can be encoded. */
Opd sel_mem(Sel *s, IrRef ptr, IrRef idx, int scale, int64_t disp) {
  const IrIns *ins = s->fn->ins;
  int64_t c;
  if (!scale) scale = 1;
  for (bool again = true; again;) {
    again = false;
    if (idx && ir_is_const(s->fn, idx, &c) && fits32(disp + c * scale)) disp += c * scale, idx = 0;
    if (idx && ins[idx].op == IR_add && ir_is_const(s->fn, ins[idx].arg[1], &c) && fits32(c) && fits32(disp + c * scale))
      disp += c * scale, idx = ins[idx].arg[0], again = true;
    if (idx && ins[idx].op == IR_shl && same_place(s, idx) && ins[idx].imm <= 3 && scale << ins[idx].imm <= 8)
      scale <<= ins[idx].imm, idx = ins[idx].arg[0], again = true;
    if (idx && ins[idx].op == IR_mul && same_place(s, idx) && ir_is_const(s->fn, ins[idx].arg[1], &c) && (c == 2 || c == 4 || c == 8) &&
        scale * c <= 8)
      scale *= (int)c, idx = ins[idx].arg[0], again = true;
    if (ins[ptr].op == IR_padd && ir_is_const(s->fn, ins[ptr].arg[1], &c) && fits32(c) && fits32(disp + c))
      disp += c, ptr = ins[ptr].arg[0], again = true;
    if (!idx && ins[ptr].op == IR_padd && same_place(s, ptr)) idx = ins[ptr].arg[1], scale = 1, ptr = ins[ptr].arg[0], again = true;
  }
  Opd m = {.reg = M_NONE, .mem = true, .index = M_NONE, .scale = scale};
  m.base = sel_use(s, ptr);
  if (idx) m.index = sel_use(s, idx);
  if (fits32(disp)) { m.disp = (int)disp; return m; }
  Opd sum = {.reg = M_NONE, .mem = true, .base = m.base, .index = const_general(s, disp, true), .scale = 1};
  m.base = sel_op(s, X86_lea64, M_G, 8, &sum, 1, 0);
  return m;
}

/* ---- memory as the last operand ---- */
static bool load_in_place(const Sel *s, IrRef v) {
  return s->fn->ins[v].op == IR_load && s->n_uses[v] == 1 && s->fn->ins[v].block == s->cur && s->epoch[v] == s->cur_epoch && s->reg[v] < 0;
}
static bool plain_mem(const IrIns *in) { return in->mem == IR_M_i32 || in->mem == IR_M_f32 || in->mem == IR_M_i64 || in->mem == IR_M_ptr; }

bool sel_folds(const Sel *s, IrRef v, int op) {
  const X86Row *row = x86_row(op);
  v = sel_root(s, v);
  const IrIns *in = &s->fn->ins[v];
  if (load_in_place(s, v) && plain_mem(in) && ir_mem_bytes[in->mem] * ir_type_lanes(s->fn, in->type) == row->mem_bytes)
    return row->enc != X86_LEG || row->mem_bytes <= 8;
  if (in->op != IR_splat || !(row->flags & X86F_BCAST) || row->w || s->n_uses[v] != 1 || in->block != s->cur || s->reg[v] >= 0) return false;
  IrRef from = sel_root(s, in->arg[0]);
  return load_in_place(s, from) && plain_mem(&s->fn->ins[from]) && ir_mem_bytes[s->fn->ins[from].mem] == 4;
}

Opd sel_last(Sel *s, IrRef v, int op) {
  const X86Row *row = x86_row(op);
  IrRef r = sel_root(s, v);
  const IrIns *in = &s->fn->ins[r];
  if (sel_folds(s, r, op)) {
    bool bcast = in->op == IR_splat;
    if (bcast) in = &s->fn->ins[sel_root(s, in->arg[0])];
    Opd m = sel_mem(s, in->arg[0], in->arg[1], in->scale, in->imm);
    m.bcast = bcast;
    return m;
  }
  bool vec = sel_class(s, in->type) == M_V, bcast = row->flags & X86F_BCAST && !row->w;
  if (in->op != IR_const || !vec || s->depth > 0 || in->imm == 0) return sel_reg(sel_use(s, v));
  if (!bcast && row->mem_bytes != ir_type_lanes(s->fn, in->type) * 4) return sel_reg(sel_use(s, v));
  uint32_t p[16];
  for (int i = 0; i < 16; i++) p[i] = ir_type_elt(s->fn, in->type) == IR_E_I1 ? (uint32_t)-(in->imm & 1) : (uint32_t)in->imm;
  Opd m = sel_pool(s, p, bcast ? 4 : row->mem_bytes);
  m.bcast = bcast;
  return m;
}

/* ---- blocks ---- */
typedef struct Layout { int *block, n; } Layout;

/* Reverse postorder that visits the shallower successor first: the blocks of a loop stay together, and exits follow it. */
static Layout layout(Sel *s) {
  const IrFn *fn = s->fn;
  int n_blocks = fn->n_blocks, sp = 0, n = 0;
  int *stack = ARENA_ARRAY(s->a, int, n_blocks), *post = ARENA_ARRAY(s->a, int, n_blocks);
  uint8_t *next = ARENA_ARRAY(s->a, uint8_t, n_blocks), *seen = ARENA_ARRAY(s->a, uint8_t, n_blocks);
  stack[sp++] = 0;
  seen[0] = 1;
  while (sp) {
    const IrBlock *b = &fn->blocks[stack[sp - 1]];
    int n_succ = b->term == IR_BR ? 2 : b->term == IR_JMP;
    if (next[stack[sp - 1]] == n_succ) { post[n++] = stack[--sp]; continue; }
    int i = next[stack[sp - 1]]++;
    /* Of two equally deep, the second first, so that the first follows its branch. */
    if (n_succ == 2 && s->ord->depth[b->edge[1].block] <= s->ord->depth[b->edge[0].block]) i = 1 - i;
    int y = b->edge[i].block;
    if (!seen[y]) { seen[y] = 1; stack[sp++] = y; }
  }
  for (int i = 0; i < n / 2; i++) { int t = post[i]; post[i] = post[n - 1 - i]; post[n - 1 - i] = t; }
  return (Layout){post, n};
}

static int mblock_new(Sel *s, int depth) {
  PUSH(s->m->arena, s->m->blocks, s->m->n_blocks, s->m->cap_blocks, (MBlock){.depth = depth});
  return s->m->n_blocks - 1;
}

/* Makes the machine blocks in layout order; an edge of a branch that carries arguments gets a block of its own: behind its source when
   it goes back, before its target when it goes on. split[2 * b + e] is that block, or -1. */
static void blocks_make(Sel *s, Layout lay, int *split) {
  const IrFn *fn = s->fn;
  int *pos = ARENA_ARRAY(s->a, int, fn->n_blocks);
  for (int i = 0; i < lay.n; i++) pos[lay.block[i]] = i;
  for (int i = 0; i < 2 * fn->n_blocks; i++) split[i] = -1;
  /* Edges that go on, by target: a chain through their sources' slots. */
  int *head = ARENA_ARRAY(s->a, int, fn->n_blocks), *next = ARENA_ARRAY(s->a, int, 2 * fn->n_blocks);
  for (int i = 0; i < lay.n; i++) {
    int b = lay.block[i];
    for (int e = 0; e < 2 && fn->blocks[b].term == IR_BR; e++) {
      int to = fn->blocks[b].edge[e].block;
      if (fn->blocks[b].edge[e].n_args && pos[to] > i) { next[2 * b + e] = head[to]; head[to] = 2 * b + e + 1; }
    }
  }
  for (int i = 0; i < lay.n; i++) {
    int b = lay.block[i], depth = s->ord->depth[b];
    for (int x = head[b]; x; x = next[x - 1]) split[x - 1] = mblock_new(s, MIN(depth, s->ord->depth[(x - 1) / 2]));
    s->first_block[b] = mblock_new(s, depth);
    for (int e = 0; e < 2 && fn->blocks[b].term == IR_BR; e++)
      if (fn->blocks[b].edge[e].n_args && pos[fn->blocks[b].edge[e].block] <= i) split[2 * b + e] = mblock_new(s, depth);
  }
}

/* The reversed buffer of a block under construction. */
typedef struct Rev { MIns *ins; int n, cap; } Rev;
static void flush(Sel *s, Rev *r) {
  for (int i = s->n_out - 1; i >= 0; i--) PUSH(s->a, r->ins, r->n, r->cap, s->out[i]);
  s->n_out = 0;
}
static void block_finish(Sel *s, int mb, Rev *r) {
  MBlock *b = &s->m->blocks[mb];
  b->ins = ARENA_ARRAY(s->m->arena, MIns, r->n);
  b->n_ins = b->cap_ins = r->n;
  for (int i = 0; i < r->n; i++) b->ins[i] = r->ins[r->n - 1 - i];
}

static void edge_args(Sel *s, int mb, const IrEdge *e, Rev *r) {
  MBlock *b = &s->m->blocks[mb];
  b->term = M_JMP;
  b->succ[0] = s->first_block[e->block];
  b->n_args = e->n_args;
  b->args = ARENA_ARRAY(s->m->arena, int32_t, e->n_args);
  for (int i = 0; i < e->n_args; i++) b->args[i] = sel_use_fresh(s, e->args[i]);
  flush(s, r);
}

static void term_select(Sel *s, int ir, Rev *r, const int *split) {
  const IrBlock *k = &s->fn->blocks[ir];
  int mb = s->first_block[ir];
  if (k->term == IR_RET) { s->m->blocks[mb].term = M_RET; return; }
  if (k->term == IR_JMP) { edge_args(s, mb, &k->edge[0], r); return; }
  for (int e = 0; e < 2; e++) {
    int to = split[2 * ir + e];
    s->m->blocks[mb].succ[e] = to >= 0 ? to : s->first_block[k->edge[e].block];
    if (to < 0) continue;
    Rev own = {0};
    edge_args(s, to, &k->edge[e], &own);
    block_finish(s, to, &own);
  }
  s->m->blocks[mb].term = M_JCC;
  s->m->blocks[mb].cc = sel_flags(s, k->cond);
  flush(s, r);
}

static bool has_effect(const IrIns *in) { return strchr(ir_op_flags[in->op], 'w') != NULL; }

static void block_select(Sel *s, int ir, const int *split) {
  const IrBlock *k = &s->fn->blocks[ir];
  Rev r = {0};
  s->cur = ir;
  s->depth = s->ord->depth[ir];
  s->cur_epoch = 0;
  for (int i = 0; i < k->n_ins; i++) {
    s->epoch[k->ins[i]] = s->cur_epoch;
    s->cur_epoch += has_effect(&s->fn->ins[k->ins[i]]);
  }
  term_select(s, ir, &r, split);
  for (int i = k->n_ins - 1; i >= 0; i--) {
    IrRef v = k->ins[i];
    const IrIns *in = &s->fn->ins[v];
    s->cur_epoch = s->epoch[v];
    if (in->op == IR_const || is_alias(s, in) || (s->reg[v] < 0 && !has_effect(in))) continue;
    sel_ins(s, v);
    flush(s, &r);
  }
  if (ir == 0) {
    for (int i = s->n_entry - 1; i >= 0; i--) PUSH(s->a, r.ins, r.n, r.cap, s->entry[i]);
  }
  block_finish(s, s->first_block[ir], &r);
  MBlock *b = &s->m->blocks[s->first_block[ir]];
  b->n_params = k->n_params;
  b->params = ARENA_ARRAY(s->m->arena, int32_t, k->n_params);
  for (int i = 0; i < k->n_params; i++) b->params[i] = sel_dst(s, k->params[i]);
}

static void uses_count(Sel *s) {
  for (int b = 0; b < s->fn->n_blocks; b++) {
    const IrBlock *k = &s->fn->blocks[b];
    if (s->ord->pos[b] < 0) continue;
    for (int i = 0; i < k->n_ins; i++) {
      const IrIns *in = &s->fn->ins[k->ins[i]];
      if (is_alias(s, in)) continue;
      for (int j = 0; j < 3; j++) if (in->arg[j]) s->n_uses[sel_root(s, in->arg[j])]++;
    }
    for (int e = 0; e < (k->term == IR_BR ? 2 : k->term == IR_JMP); e++)
      for (int i = 0; i < k->edge[e].n_args; i++) s->n_uses[sel_root(s, k->edge[e].args[i])]++;
    if (k->term == IR_BR) s->n_uses[sel_root(s, k->cond)]++;
  }
}

/* Without VNNI, dot4s that start from zero and follow each other may add their pairs in 16 bits as long as the bounds allow it:
   2 * 128 * (sum of bounds) < 2^15. Then only the last one widens. */
enum { DOT_SUM_MAX = 32767 / (2 * 128) };
static void dots_chain(Sel *s) {
  s->dot_sum = ARENA_ARRAY(s->a, int, s->fn->n_ins);
  s->dot_partial = ARENA_ARRAY(s->a, bool, s->fn->n_ins);
  for (int b = 0; b < s->fn->n_blocks && !s->t->vnni; b++)
    for (int i = 0; i < s->fn->blocks[b].n_ins; i++) {
      IrRef v = s->fn->blocks[b].ins[i];
      const IrIns *in = &s->fn->ins[v];
      if (in->op != IR_dot4 || in->imm > DOT_SUM_MAX) continue;
      IrRef from = sel_root(s, in->arg[0]);
      const IrIns *f = &s->fn->ins[from];
      if (f->op == IR_const && f->imm == 0) { s->dot_sum[v] = (int)in->imm; continue; }
      if (!s->dot_sum[from] || s->n_uses[from] != 1 || f->block != b || s->dot_sum[from] + in->imm > DOT_SUM_MAX) continue;
      s->dot_sum[v] = s->dot_sum[from] + (int)in->imm;
      s->dot_partial[from] = true;
    }
}

MFn *x86_select(Arena *a, const IrFn *fn, const Target *t) {
  Sel s = {.a = a, .fn = fn, .t = t, .m = ARENA_NEW(a, MFn), .ord = ir_order(a, fn)};
  s.m->arena = a, s.m->name = fn->name, s.m->target = t;
  s.reg = ARENA_ARRAY(a, int, fn->n_ins);
  s.n_uses = ARENA_ARRAY(a, int, fn->n_ins);
  s.epoch = ARENA_ARRAY(a, int, fn->n_ins);
  s.first_block = ARENA_ARRAY(a, int, fn->n_blocks);
  for (int i = 0; i < fn->n_ins; i++) s.reg[i] = -1;
  uses_count(&s);
  dots_chain(&s);
  Layout lay = layout(&s);
  int *split = ARENA_ARRAY(a, int, 2 * fn->n_blocks);
  blocks_make(&s, lay, split);
  for (int i = lay.n - 1; i >= 0; i--) block_select(&s, lay.block[i], split);
  return s.m;
}
