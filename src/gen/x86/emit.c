/* Machine IR with registers to bytes: pseudo instructions, moves on edges, prologue and epilogue, jumps between blocks.

   Frame, from the stack pointer up: the slots, one scratch slot for parallel moves, the caller's stack pointer (only when the frame is
   aligned for vectors); above it the saved registers. Vector slots make the frame 64-byte aligned, so legacy SSE may read them. */
#include <string.h>
#include "gen/mir.h"
#include "gen/x86/enc.h"

enum { SCRATCH_BYTES = 64 };
typedef struct Emit {
  const MFn *fn;
  const RegMap *map;
  const Target *t;
  X86Asm *as;
  int *label, *ends;           /* of each block; where a jump to it ends */
  int *pool;                   /* label of each constant; -1: not placed yet */
  bool want_text;
  Str text;
  GenCode *out;
  int depth, deepest;          /* of the block being written; of the function's loops */
  int scratch, save, n_frame;  /* offsets in the frame */
  bool frame;                  /* there is one */
} Emit;

static const uint8_t order_g[] = {RAX, RCX, RDX, RSI, RDI, R8, R9, R10, R11, RBX, RBP, R12, R13, R14, R15};
static const uint8_t order_v[] = {16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const uint8_t order_k[] = {1, 2, 3, 4, 5, 6, 7}; /* k0 cannot mask */
static const uint8_t param_regs[] = {RDI, RSI, RDX, RCX, R8, R9};
static const uint8_t saved_regs[] = {RBX, RBP, R12, R13, R14, R15};

const RegSet *x86_reg_set(const Target *t) {
  static const RegSet few = {{COUNT_OF(order_g), 16, 0}, {order_g, order_v + 16, order_k}, param_regs};
  static const RegSet many = {{COUNT_OF(order_g), 32, COUNT_OF(order_k)}, {order_g, order_v, order_k}, param_regs};
  return t->n_vec_regs == 32 ? &many : &few;
}

static void put(Emit *e, const X86Ins *in) {
  x86_asm_emit(e->as, in);
  e->out->n_ins++;
  if (e->depth == e->deepest) e->out->n_loop_ins++;
  if (!e->want_text) return;
  str_add(&e->text, "  ");
  x86_ins_text(in, &e->text);
  str_add_c(&e->text, '\n');
}
enum { LOOP_ALIGN = 32 };      /* bytes: one fetch window, so that a short loop does not straddle two */
static bool is_loop_head(const Emit *e, int b) {
  const MFn *fn = e->fn;
  for (int k = b; k < fn->n_blocks && fn->blocks[k].depth >= fn->blocks[b].depth; k++)
    for (int i = 0; i < (fn->blocks[k].term == M_JCC ? 2 : fn->blocks[k].term == M_JMP); i++)
      if (fn->blocks[k].succ[i] == b) return true;
  return false;
}
static void bind(Emit *e, int label) {
  x86_asm_bind(e->as, label);
  if (e->want_text) str_addf(&e->text, ".L%d:\n", label);
}
static void put_rr(Emit *e, int op, int a, int b) {
  X86Ins in = X86_INS(op);
  in.r[0] = (int8_t)a, in.r[1] = (int8_t)b;
  put(e, &in);
}
static void put_ri(Emit *e, int op, int a, int64_t imm) {
  X86Ins in = X86_INS(op);
  in.r[0] = (int8_t)a, in.imm = imm;
  put(e, &in);
}
static void put_jump(Emit *e, int op, int label) {
  X86Ins in = X86_INS(op);
  in.label = label;
  put(e, &in);
}

/* ---- moves ---- */
/* A place: a register of the class, or a slot of the frame. */
typedef struct Place { int phys, slot; } Place;
static Place place_of(const Emit *e, int v) { return (Place){e->map->phys[v], e->fn->regs[v].slot}; }
static bool in_reg(Place p) { return p.phys >= 0; }
static bool same(Place a, Place b) { return in_reg(a) ? a.phys == b.phys : !in_reg(b) && a.slot == b.slot; }

/* The whole register, when bytes says so, between registers and memory. Columns: between registers, load, store. */
static void move_ops(const Emit *e, int cls, int bytes, int ops[3]) {
  static const uint16_t g[3] = {X86_mov64, X86_mov64, X86_mov64_st}, k[3] = {X86_kmovq, X86_kmovq, X86_kmovq_st};
  static const uint16_t vec[3][4][3] = { /* level, size class */
      {{X86_movaps_x, X86_movss_x, X86_movss_st_x}, {X86_movaps_x, X86_movups_x, X86_movups_st_x}, {0}, {0}},
      {{X86_movaps_vx, X86_movss_vx, X86_movss_st_vx}, {X86_movaps_vx, X86_movups_vx, X86_movups_st_vx}, {X86_movaps_y, X86_movups_y, X86_movups_st_y}, {0}},
      {{X86_movaps_zx, X86_movss_z, X86_movss_st_z}, {X86_movaps_zx, X86_movups_zx, X86_movups_st_zx}, {X86_movaps_zy, X86_movups_zy, X86_movups_st_zy},
       {X86_movaps_z, X86_movups_z, X86_movups_st_z}}};
  int size = bytes <= 4 ? 0 : bytes <= 16 ? 1 : bytes <= 32 ? 2 : 3;
  const uint16_t *from = cls == M_G ? g : cls == M_K ? k : vec[e->t->kmask ? 2 : e->t->vex ? 1 : 0][size];
  for (int i = 0; i < 3; i++) ops[i] = from[i];
  CHECK(ops[0], "no move of %d bytes", bytes);
}

static void put_frame(Emit *e, int op, int slot_of_reg, int reg, int off) {
  X86Ins in = X86_INS(op);
  in.r[slot_of_reg] = (int8_t)reg;
  in.mem = true, in.base = RSP, in.disp = off;
  put(e, &in);
}

/* Registers and one side in memory only. */
static void move_simple(Emit *e, int cls, int bytes, Place d, Place s) {
  int ops[3];
  move_ops(e, cls, bytes, ops);
  if (in_reg(d) && in_reg(s)) {
    e->out->n_moves++;
    if (e->depth == e->deepest) e->out->n_loop_moves++;
    put_rr(e, ops[0], d.phys, s.phys);
    return;
  }
  CHECK(in_reg(d) || in_reg(s), "memory to memory");
  e->out->n_spills++;
  if (e->depth == e->deepest) e->out->n_loop_spills++;
  if (in_reg(d)) put_frame(e, ops[1], 0, d.phys, s.slot);
  else put_frame(e, ops[2], 1, s.phys, d.slot);
}

/* A register that nothing in the function uses and the caller does not expect back; -1: none. */
static int free_reg(const Emit *e, int cls) {
  const RegSet *set = x86_reg_set(e->t);
  uint32_t keep = cls == M_G ? 1u << RBX | 1u << RBP | 0xf000u : 0;
  for (int i = 0; i < set->n[cls]; i++) {
    int p = set->order[cls][i];
    if (!(e->map->used[cls] >> p & 1) && !(keep >> p & 1)) return p;
  }
  return -1;
}

typedef struct Move { int cls, bytes; Place d, s; bool done; } Move;

/* Through a free register, or by way of the scratch slot around a borrowed one. */
static void move_memory(Emit *e, const Move *m) {
  int t = free_reg(e, m->cls);
  bool borrowed = t < 0;
  if (borrowed) t = m->cls == M_G ? RAX : m->cls == M_K ? 1 : 0;
  Place tmp = {t, 0}, scratch = {-1, e->scratch};
  int all = m->cls == M_V ? e->t->vec_lanes * 4 : 8;
  if (borrowed) move_simple(e, m->cls, all, scratch, tmp);
  move_simple(e, m->cls, m->bytes, tmp, m->s);
  move_simple(e, m->cls, m->bytes, m->d, tmp);
  if (borrowed) move_simple(e, m->cls, all, tmp, scratch);
}

/* All moves at once. A move may go when no other still reads its destination; what is left are cycles: one source is parked in a free
   register or, when there is none, exchanged through the scratch slot. */
static void moves_parallel(Emit *e, Move *m, int n) {
  int left = 0;
  for (int i = 0; i < n; i++) { m[i].done = same(m[i].d, m[i].s); left += !m[i].done; }
  while (left) {
    bool any = false;
    for (int i = 0; i < n; i++) {
      if (m[i].done) continue;
      bool blocked = false;
      for (int j = 0; j < n && !blocked; j++) blocked = j != i && !m[j].done && m[j].cls == m[i].cls && same(m[j].s, m[i].d);
      if (blocked) continue;
      if (!in_reg(m[i].d) && !in_reg(m[i].s)) move_memory(e, &m[i]);
      else move_simple(e, m[i].cls, m[i].bytes, m[i].d, m[i].s);
      m[i].done = any = true;
      left--;
    }
    if (any) continue;
    int i = 0;
    while (m[i].done) i++;
    /* Everything that read this source now reads the parked copy. Only registers can be parked in the slot directly. */
    bool memory = false;
    for (int j = 0; j < n; j++) memory = memory || (!m[j].done && !(in_reg(m[j].d) && in_reg(m[j].s)));
    /* Moves between slots need the free register themselves. */
    Place old = m[i].s, park = {memory ? -1 : free_reg(e, m[i].cls), 0};
    if (!in_reg(park)) park = (Place){-1, e->scratch + (m[i].cls == M_G ? 64 : m[i].cls == M_K ? 72 : 80)};
    Move go = {m[i].cls, m[i].bytes, park, old, false};
    for (int j = 0; j < n; j++) if (!m[j].done && m[j].cls == go.cls && same(m[j].s, old)) go.bytes = MAX(go.bytes, m[j].bytes);
    if (!in_reg(park) && !in_reg(old)) move_memory(e, &go);
    else move_simple(e, go.cls, go.bytes, park, old);
    for (int j = 0; j < n; j++) if (!m[j].done && m[j].cls == go.cls && same(m[j].s, old)) m[j].s = park;
  }
}

/* The moves of an edge; false when there are no arguments. */
static bool edge_list(const Emit *e, const MBlock *b, Move **out) {
  const MBlock *to = &e->fn->blocks[b->succ[0]];
  Move *m = *out = ARENA_ARRAY(e->fn->arena, Move, b->n_args);
  for (int i = 0; i < b->n_args; i++) {
    const MReg *r = &e->fn->regs[to->params[i]];
    Place d = place_of(e, to->params[i]); /* a slot is as wide as its parameter, though a scalar may come from the low lane of a wider register */
    m[i] = (Move){r->cls, in_reg(d) ? MAX(r->bytes, e->fn->regs[b->args[i]].bytes) : r->bytes, d, place_of(e, b->args[i]), false};
  }
  return b->n_args > 0;
}
static void edge_moves(Emit *e, const MBlock *b) {
  Move *m;
  if (edge_list(e, b, &m)) moves_parallel(e, m, b->n_args);
}
static Move *entry_list(const Emit *e) {
  const MBlock *b = &e->fn->blocks[0];
  Move *m = ARENA_ARRAY(e->fn->arena, Move, b->n_params);
  for (int i = 0; i < b->n_params; i++) m[i] = (Move){M_G, 8, place_of(e, b->params[i]), {param_regs[i], 0}, false};
  return m;
}

static bool edge_is_free(const Emit *e, const MBlock *b) {
  const MBlock *to = &e->fn->blocks[b->succ[0]];
  for (int i = 0; i < b->n_args; i++)
    if (!same(place_of(e, to->params[i]), place_of(e, b->args[i]))) return false;
  return true;
}

/* ---- instructions ---- */
static int phys(const Emit *e, int v) { return v < 0 ? -1 : e->map->phys[v]; }

static X86Ins lowered(Emit *e, const MIns *in) {
  X86Ins x = X86_INS(in->op);
  for (int i = 0; i < in->n_r; i++) x.r[i] = (int8_t)phys(e, in->r[i]);
  const X86Row *row = x86_row(in->op);
  if (row->flags & X86F_TILE) { /* tiles are numbers in imm; the slot of a memory operand has none */
    for (int i = 0, k = 0; i < x86_n_regs(in->op); i++) if (x86_reg_class(in->op, i) == 't') x.r[i] = (int8_t)(in->imm >> 4 * k++ & 15);
  } else x.imm = in->imm;
  x.mask = in->mask >= 0 ? (int8_t)phys(e, in->mask) : 0;
  x.zero = in->flags & M_ZERO;
  if (!(in->flags & M_MEM)) return x;
  x.mem = true;
  x.disp = in->disp;
  x.scale = in->scale ? in->scale : 1;
  /* On a load that broadcasts by itself the flag only tells the allocator how it may be folded. */
  x.bcast = (in->flags & M_BCAST) && (x86_row(in->op)->flags & X86F_BCAST);
  if (in->base == M_POOL) {
    if (e->pool[in->disp] < 0) e->pool[in->disp] = x86_asm_const(e->as, e->fn->pool[in->disp].p, e->fn->pool[in->disp].n_bytes);
    x.label = e->pool[in->disp];
    x.disp = 0;
  } else {
    x.base = (int8_t)(in->base == M_FRAME ? RSP : phys(e, in->base));
    x.index = (int8_t)phys(e, in->index);
  }
  return x;
}

static void put_div(Emit *e, const MIns *in) {
  bool wide = in->flags & M_WIDE;
  int d = phys(e, in->r[0]), res = in->op == M_UDIV ? RAX : RDX;
  put_rr(e, wide ? X86_mov64 : X86_mov32, RAX, phys(e, in->r[1]));
  put_rr(e, X86_xor32, RDX, RDX);
  X86Ins div = X86_INS(wide ? X86_div64 : X86_div32);
  div.r[0] = (int8_t)phys(e, in->r[2]);
  put(e, &div);
  if (d != res) put_rr(e, wide ? X86_mov64 : X86_mov32, d, res);
}

static void put_set(Emit *e, const MIns *in) {
  int d = phys(e, in->r[0]), bytes = e->fn->regs[in->r[0]].bytes;
  X86Ins x = X86_INS(X86_xorps_x);
  if (in->op == M_CLEAR && !e->t->vex) { put_rr(e, X86_xorps_x, d, d); return; }
  if (in->op == M_ONES && !e->t->vex) { put_rr(e, X86_pcmpeqd_x, d, d); return; }
  if (in->op == M_CLEAR) x.op = d < 16 ? X86_pxor_vx : X86_pxord_z; /* a VEX write clears the whole register */
  else if (e->t->kmask) x.op = X86_pternlogd_z, x.imm = 0xff;
  else x.op = bytes > 16 ? X86_pcmpeqd_y : X86_pcmpeqd_vx;
  x.r[0] = x.r[1] = x.r[2] = (int8_t)d;
  put(e, &x);
}

static void ins_emit(Emit *e, const MIns *in) {
  int ops[3];
  const MReg *r = in->n_r && in->r[0] >= 0 ? &e->fn->regs[in->r[0]] : NULL;
  switch (in->op) {
    case M_COPY:
      if (phys(e, in->r[0]) != phys(e, in->r[1])) move_simple(e, r->cls, r->bytes, place_of(e, in->r[0]), place_of(e, in->r[1]));
      return;
    case M_RELOAD: case M_SPILL:
      move_ops(e, r->cls, in->op == M_SPILL ? (int)in->imm : r->bytes, ops);
      e->out->n_spills++;
      if (e->depth == e->deepest) e->out->n_loop_spills++;
      put_frame(e, ops[in->op == M_RELOAD ? 1 : 2], in->op == M_RELOAD ? 0 : 1, phys(e, in->r[0]), in->disp);
      return;
    case M_UDIV: case M_UREM: put_div(e, in); return;
    case M_CLEAR: case M_ONES: put_set(e, in); return;
    default: break;
  }
  if (in->tied >= 0) CHECK(phys(e, in->tied) == phys(e, in->r[0]), "a tie of %s is broken", x86_row(in->op)->id);
  X86Ins x = lowered(e, in);
  put(e, &x);
}

/* ---- frame ---- */
static void prologue(Emit *e) {
  for (size_t i = 0; i < COUNT_OF(saved_regs); i++)
    if (e->map->used[M_G] >> saved_regs[i] & 1) put_ri(e, X86_push, saved_regs[i], 0);
  if (e->frame) {
    /* rax is no parameter. */
    put_rr(e, X86_mov64, RAX, RSP);
    put_ri(e, X86_sub64_i, RSP, e->n_frame);
    put_ri(e, X86_and64_i, RSP, -64);
    put_frame(e, X86_mov64_st, 1, RAX, e->save);
  }
  moves_parallel(e, entry_list(e), e->fn->blocks[0].n_params);
}

static void epilogue(Emit *e) {
  if (e->frame) put_frame(e, X86_mov64, 0, RSP, e->save);
  for (size_t i = COUNT_OF(saved_regs); i-- > 0;)
    if (e->map->used[M_G] >> saved_regs[i] & 1) put_ri(e, X86_pop, saved_regs[i], 0);
  if (e->t->vex && e->map->used[M_V]) { X86Ins z = X86_INS(X86_zeroupper); put(e, &z); }
  X86Ins ret = X86_INS(X86_ret);
  put(e, &ret);
}

/* Moves at a place that could form a cycle in a class without a free register. */
static bool needs_scratch(const Emit *e, const Move *m, int n) {
  for (int c = 0; c < M_N_CLASS; c++) {
    int moving = 0;
    for (int i = 0; i < n; i++) moving += m[i].cls == c && !same(m[i].d, m[i].s);
    if (moving > 1 && free_reg(e, c) < 0) return true;
  }
  return false;
}

/* The scratch slots exist when some edge may need them: a function without pressure has no frame at all. */
static void frame_plan(Emit *e) {
  bool needed = e->fn->n_frame > 0;
  Move *m;
  for (int b = 0; b < e->fn->n_blocks && !needed; b++)
    if (e->fn->blocks[b].n_args > 1) needed = edge_list(e, &e->fn->blocks[b], &m) && needs_scratch(e, m, e->fn->blocks[b].n_args);
  if (!needed) needed = needs_scratch(e, entry_list(e), e->fn->blocks[0].n_params);
  e->frame = needed;
  if (!needed) return;
  e->scratch = ROUND_UP(e->fn->n_frame, 64);
  e->save = e->scratch + SCRATCH_BYTES + 16 + 64;
  e->n_frame = ROUND_UP(e->save + 8, 64);
  e->out->n_stack_bytes = e->n_frame;
}

/* ---- blocks ---- */
static bool is_empty(const Emit *e, int b) {
  const MBlock *k = &e->fn->blocks[b];
  if (b == 0 || k->term != M_JMP || !edge_is_free(e, k)) return false;
  for (int i = 0; i < k->n_ins; i++)
    if (k->ins[i].op != M_COPY || phys(e, k->ins[i].r[0]) != phys(e, k->ins[i].r[1])) return false;
  return true;
}
/* Where a jump to each block ends: through blocks that hold nothing but a jump. A block that only spins jumps to itself. */
static void jumps_thread(Emit *e) {
  int n = e->fn->n_blocks, *step = ARENA_ARRAY(e->fn->arena, int, n);
  e->ends = ARENA_ARRAY(e->fn->arena, int, n);
  for (int b = 0; b < n; b++) step[b] = is_empty(e, b) ? e->fn->blocks[b].succ[0] : b;
  for (int b = 0; b < n; b++) {
    int to = b, hops = 0;
    while (step[to] != to && hops++ <= n) to = step[to];
    e->ends[b] = step[to] == to ? to : b;
  }
}
static int follow(const Emit *e, int b) { return e->ends[b]; }
static const uint16_t jcc[16] = {X86_jo, X86_jno, X86_jb, X86_jae, X86_je, X86_jne, X86_jbe, X86_ja, X86_js, X86_jns, X86_jp, X86_jnp, X86_jl, X86_jge, X86_jle, X86_jg};

/* Blocks that `follow` jumps over are not written: nothing jumps to them and nothing falls into them. */
static bool is_written(const Emit *e, int b) { return e->ends[b] == b; }

static void term_emit(Emit *e, int at) {
  const MBlock *b = &e->fn->blocks[at];
  if (b->term == M_RET) { epilogue(e); return; }
  int next = at + 1;
  while (next < e->fn->n_blocks && !is_written(e, next)) next++;
  if (b->term == M_JMP) {
    edge_moves(e, b);
    int to = follow(e, b->succ[0]);
    if (to != next) put_jump(e, X86_jmp, e->label[to]);
    return;
  }
  int yes = follow(e, b->succ[0]), no = follow(e, b->succ[1]);
  if (yes == next) put_jump(e, jcc[b->cc ^ 1], e->label[no]);
  else {
    put_jump(e, jcc[b->cc], e->label[yes]);
    if (no != next) put_jump(e, X86_jmp, e->label[no]);
  }
}

void x86_emit(const MFn *fn, const RegMap *map, bool want_text, GenCode *out) {
  Emit e = {.fn = fn, .map = map, .t = fn->target, .as = x86_asm_new(fn->arena), .want_text = want_text, .out = out};
  *out = (GenCode){0};
  e.label = ARENA_ARRAY(fn->arena, int, fn->n_blocks);
  e.pool = ARENA_ARRAY(fn->arena, int, fn->n_pool);
  for (int i = 0; i < fn->n_pool; i++) e.pool[i] = -1;
  for (int b = 0; b < fn->n_blocks; b++) {
    e.label[b] = x86_asm_label(e.as);
    e.deepest = MAX(e.deepest, fn->blocks[b].depth);
  }
  frame_plan(&e);
  jumps_thread(&e);
  e.depth = -1;
  prologue(&e);
  for (int b = 0; b < fn->n_blocks; b++) {
    if (!is_written(&e, b)) continue;
    e.depth = fn->blocks[b].depth;
    if (e.depth > 0 && e.depth == e.deepest && is_loop_head(&e, b)) x86_asm_align(e.as, LOOP_ALIGN);
    bind(&e, e.label[b]);
    for (int i = 0; i < fn->blocks[b].n_ins; i++) ins_emit(&e, &fn->blocks[b].ins[i]);
    term_emit(&e, b);
  }
  X86Blob blob = x86_asm_finish(e.as);
  out->code = blob.p;
  out->n_bytes = blob.n_bytes;
  if (want_text) out->text = arena_dup(fn->arena, e.text.p ? e.text.p : "");
  str_free(&e.text);
}
