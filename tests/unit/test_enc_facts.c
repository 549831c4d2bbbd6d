/* The facts that register allocation trusts, checked by running every row on this processor: whether operand 0 is read, whether it is
   written, whether flags are written or read, and that nothing else changes. One small function per row loads all operands from a
   state, sets the flags, runs the instruction and stores everything back. */
#include "test.h"
#include "dev/dev.h"
#include "gen/x86/enc.h"

enum { N_SLOTS = 5, MEM = 1024, MEM_BYTES = 128 };
static const int8_t gprs[N_SLOTS] = {RCX, RDX, RSI, R8, R10};
static const int conds[] = {X86_seto, X86_setb, X86_sete, X86_sets, X86_setp};

/* Slot s of an instruction is gprs[s], vector s + 1 or mask s + 1; vector 0 is there for rows that read xmm0. */
typedef struct State {
  uint8_t vec[N_SLOTS + 1][64];
  uint64_t mask[N_SLOTS];
  uint64_t gpr[N_SLOTS];
  uint8_t flag[COUNT_OF(conds)];
  uint8_t pad[MEM - (N_SLOTS + 1) * 64 - 2 * 8 * N_SLOTS - COUNT_OF(conds)];
  uint8_t mem[MEM_BYTES];
} State;
_Static_assert(offsetof(State, mem) == MEM && MEM % 64 == 0, "memory operands are aligned");

static void emit_mem(X86Asm *s, int op, int reg, size_t off) {
  X86Ins in = X86_INS(op);
  int slot = x86_n_regs(op) == 2 ? 1 - x86_mem_slot(op) : -1;
  if (slot >= 0) in.r[slot] = (int8_t)reg;
  in.mem = true, in.base = RDI, in.disp = (int32_t)off;
  x86_asm_emit(s, &in);
}

static void emit_state(X86Asm *s, bool store) {
  for (int i = 0; i <= N_SLOTS; i++) emit_mem(s, store ? X86_movups_st_z : X86_movups_z, i, offsetof(State, vec) + (size_t)i * 64);
  for (int i = 0; i < N_SLOTS; i++) emit_mem(s, store ? X86_kmovq_st : X86_kmovq, i + 1, offsetof(State, mask) + (size_t)i * 8);
  for (int i = 0; i < N_SLOTS; i++) emit_mem(s, store ? X86_mov64_st : X86_mov64, gprs[i], offsetof(State, gpr) + (size_t)i * 8);
}

/* What comparing a with b leaves: equal; below, less and negative; overflow; greater. */
static const struct { int32_t a, b; bool o, c, z, s, p; } flag_sets[] = {{1, 1, 0, 0, 1, 0, 1}, {1, 2, 0, 1, 0, 1, 1}, {-0x7FFFFFFF - 1, 2, 1, 0, 0, 0, 0}, {2, 1, 0, 0, 0, 0, 0}};

static X86Blob wrap(Arena *a, const X86Ins *in, int flags) {
  X86Asm *s = x86_asm_new(a);
  X86Ins mov = X86_INS(X86_mov32_i), cmp = X86_INS(X86_cmp32_i), ret = X86_INS(X86_ret);
  emit_state(s, false);
  mov.r[0] = R11, mov.imm = flag_sets[flags].a;
  cmp.r[0] = R11, cmp.imm = flag_sets[flags].b;
  x86_asm_emit(s, &mov), x86_asm_emit(s, &cmp);
  x86_asm_emit(s, in);
  for (size_t i = 0; i < COUNT_OF(conds); i++) emit_mem(s, conds[i], -1, offsetof(State, flag) + i);
  if (in->op != X86_zeroupper) emit_state(s, true);
  x86_asm_emit(s, &ret);
  return x86_asm_finish(s);
}

static uint64_t seed = 12345;
static uint32_t rnd(void) { seed = seed * 6364136223846793005u + 1442695040888963407u; return (uint32_t)(seed >> 33); }

/* By turns floats near 1, any bits, and small counts that are often equal. */
static void fill(State *s, int trial) {
  uint8_t *p = (uint8_t *)s;
  for (size_t i = 0; i < sizeof *s; i += 4) {
    float f = (float)(int)(rnd() % 2000) / 250.0f - 4.0f;
    uint32_t any = rnd() * 2 + (rnd() & 1), small = i & 4 ? 0 : rnd() % 3;
    uint32_t u = trial % 3 == 0 ? f32_to_bits(f) : trial % 3 == 1 ? any : small;
    memcpy(p + i, &u, 4);
  }
}

typedef struct Operand0 { char place, class; size_t off, n_bytes; } Operand0;
static Operand0 operand0(int op, bool mem) {
  const char *o = x86_row(op)->ops;
  Operand0 x = {.place = o[0], .class = o[0] ? o[1] : 0};
  if (!o[0] || (mem && x86_mem_slot(op) == 0)) return (Operand0){0};
  if (o[1] == 'k') x.off = offsetof(State, mask), x.n_bytes = 8;
  else if (strchr("xyz", o[1])) x.off = offsetof(State, vec) + 64, x.n_bytes = o[1] == 'x' ? 16 : o[1] == 'y' ? 32 : 64;
  else x.off = offsetof(State, gpr), x.n_bytes = o[1] == 'b' ? 1 : 8; /* a byte write keeps the rest; 32-bit writes clear it */
  return x;
}

typedef struct Seen { bool changed, reads0, wrote_flags, reads_flags; } Seen;

/* What differs outside operand 0 and the flags; NULL when nothing does. */
static const char *stray_write(const State *before, const State *after, const Operand0 *x, bool stores) {
  State a = *before, b = *after;
  memcpy(a.flag, b.flag, sizeof a.flag);
  /* A vector result may clear the register above its own width. */
  size_t n = x->n_bytes == 0 ? 0 : x->off < sizeof a.vec ? 64 : 8;
  memcpy((uint8_t *)&a + x->off, (uint8_t *)&b + x->off, n);
  if (stores) memcpy(a.mem, b.mem, MEM_BYTES);
  if (memcmp(a.vec, b.vec, sizeof a.vec)) return "another vector";
  if (memcmp(a.mask, b.mask, sizeof a.mask)) return "another mask";
  if (memcmp(a.gpr, b.gpr, sizeof a.gpr)) return "another general register";
  return memcmp(a.mem, b.mem, MEM_BYTES) ? "memory" : NULL;
}

typedef void Fn(State *);
enum { N_TRIALS = 30, N_FLAGS = COUNT_OF(flag_sets) };

/* Always at one address, which lea shows. */
static const State *run(Fn *fn, const State *in) {
  _Alignas(64) static State work;
  work = *in;
  fn(&work);
  return &work;
}

static const char *observe(Fn *const *fns, const Operand0 *x, bool stores, bool zeroupper, Seen *seen) {
  static State in, other, out[N_FLAGS];
  for (int trial = 0; trial < N_TRIALS; trial++) {
    fill(&in, trial), fill(&other, trial);
    uint8_t donor[64];
    memcpy(donor, (uint8_t *)&other + x->off, x->n_bytes);
    other = in;
    memcpy((uint8_t *)&other + x->off, donor, x->n_bytes);
    for (int f = 0; f < (int)N_FLAGS; f++) {
      out[f] = *run(fns[f], &in);
      const uint8_t kept[] = {flag_sets[f].o, flag_sets[f].c, flag_sets[f].z, flag_sets[f].s, flag_sets[f].p};
      seen->wrote_flags |= memcmp(kept, out[f].flag, sizeof kept) != 0;
      const uint8_t *result = (uint8_t *)&out[f] + x->off;
      seen->reads_flags |= memcmp(result, (uint8_t *)&out[0] + x->off, x->n_bytes) != 0;
      seen->changed |= memcmp(result, (uint8_t *)&in + x->off, x->n_bytes) != 0;
      const char *stray = zeroupper ? NULL : stray_write(&in, &out[f], x, stores);
      if (stray) return stray;
      seen->reads0 |= memcmp((const uint8_t *)run(fns[f], &other) + x->off, result, x->n_bytes) != 0;
    }
  }
  return NULL;
}

static X86Ins instruction(int op) {
  X86Ins in = X86_INS(op);
  in.mem = x86_row(op)->flags & X86F_NOREG;
  if (in.mem) in.base = RDI, in.disp = MEM;
  in.imm = x86_imm_bytes(op) ? 5 : 0;
  for (int s = 0; s < x86_n_regs(op); s++) {
    if (in.mem && s == x86_mem_slot(op)) continue;
    in.r[s] = x86_reg_class(op, s) == 'r' ? gprs[s] : (int8_t)(s + 1);
  }
  return in;
}

static void check_row(DevCode *code, int op) {
  const X86Row *row = x86_row(op);
  Arena *a = arena_new("compile");
  X86Ins in = instruction(op);
  Operand0 x = operand0(op, in.mem);
  Fn *fns[N_FLAGS];
  for (int f = 0; f < (int)N_FLAGS; f++) {
    X86Blob b = wrap(a, &in, f);
    const void *entry = NULL;
    EXPECT_OK(dev_code_add(code, row->id, b.p, b.n_bytes, &entry));
    memcpy(&fns[f], &entry, sizeof entry);
  }
  Seen seen = {0};
  const char *stray = observe(fns, &x, in.mem && row->ops[0] == 'm', op == X86_zeroupper, &seen);
  EXPECT(!stray, "%s writes %s", row->id, stray ? stray : "");
  bool tied = row->flags & X86F_TIED, ro = row->flags & X86F_RO;
  if (x.n_bytes && ro) EXPECT(!seen.changed && !tied, "%s writes operand 0", row->id);
  if (x.n_bytes && !ro) EXPECT(seen.reads0 == tied, "%s %s operand 0", row->id, seen.reads0 ? "reads" : "does not read");
  if (x.n_bytes && !ro) EXPECT(seen.changed, "%s does not write operand 0", row->id);
  EXPECT(seen.wrote_flags == !!(row->flags & X86F_WFLAGS), "%s %s flags", row->id, seen.wrote_flags ? "writes" : "does not write");
  EXPECT(seen.reads_flags == !!(row->flags & X86F_RFLAGS), "%s %s flags", row->id, seen.reads_flags ? "reads" : "does not read");
  arena_free(a);
}

static bool row_runs_alone(int op) {
  static const int apart[] = {X86_push, X86_pop, X86_jmp_r, X86_call_r, X86_ret, X86_ud2};
  for (size_t i = 0; i < COUNT_OF(apart); i++) if (op == apart[i]) return false;
  return !(x86_row(op)->flags & (X86F_BRANCH | X86F_DIV | X86F_TILE));
}

int main(void) {
  DevCpu c;
  dev_cpu_detect(&c);
  if (!c.avx512f || !c.avx512bw || !c.avx512dq || !c.avx512vl || !c.avx512vnni || !c.avx512bf16) {
    TEST_SKIP("facts of every row, by running it", "this processor lacks AVX-512 F, BW, DQ, VL, VNNI or BF16");
    TEST_MAIN_END();
  }
  TEST("facts of every row, by running it") {
    DevCode *code = dev_code_new(false);
    int n = 0;
    for (int op = 1; op < X86_N_OPS; op++)
      if (row_runs_alone(op)) check_row(code, op), n++;
    printf("# %d of %d rows run\n", n, X86_N_OPS - 1);
    dev_code_free(code);
  }
  TEST_MAIN_END();
}
