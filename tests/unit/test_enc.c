/* Every row of insts.def over registers, addresses, masks and broadcasts against the LLVM assembler: our text goes in, its bytes must be
   ours. Also a program of random branches and constants. Needs llvm-mc (or llvm-mc-22) on PATH. */
#include "test.h"
#include <unistd.h>
#include "gen/x86/enc.h"

static const char *mc_path(void) {
  static const char *const names[] = {"llvm-mc-22", "llvm-mc"};
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    char cmd[100];
    snprintf(cmd, sizeof cmd, "command -v %s >/dev/null 2>&1", names[i]);
    if (system(cmd) == 0) return names[i];
  }
  return NULL;
}

/* The bytes of .text of a little-endian ELF64 object. */
static bool elf_text(const Str *elf, const uint8_t **p, size_t *n) {
  const uint8_t *e = (const uint8_t *)elf->p;
  if (elf->n < 64 || memcmp(e, "\177ELF", 4)) return false;
  uint64_t shoff;
  uint16_t shnum, shstr;
  memcpy(&shoff, e + 40, 8), memcpy(&shnum, e + 60, 2), memcpy(&shstr, e + 62, 2);
  uint64_t names, off, size;
  memcpy(&names, e + shoff + shstr * 64u + 24, 8);
  for (unsigned i = 0; i < shnum; i++) {
    uint32_t name;
    memcpy(&name, e + shoff + i * 64u, 4), memcpy(&off, e + shoff + i * 64u + 24, 8), memcpy(&size, e + shoff + i * 64u + 32, 8);
    if (strcmp((const char *)e + names + name, ".text")) continue;
    *p = e + off, *n = (size_t)size;
    return true;
  }
  return false;
}

/* Assemble the text; the object's bytes land in elf. */
static bool assemble(const char *mc, const Str *text, Str *elf) {
  char dir[] = "/tmp/lumen-enc-XXXXXX", path[100], cmd[500];
  if (!mkdtemp(dir)) return false;
  snprintf(path, sizeof path, "%s/t.s", dir);
  EXPECT_OK(os_write_file(path, text->p, text->n));
  snprintf(cmd, sizeof cmd, "%s -triple=x86_64-linux-gnu -mcpu=sapphirerapids -filetype=obj -o %s/t.o %s/t.s 2>%s/err", mc, dir, dir, dir);
  bool ok = system(cmd) == 0;
  snprintf(path, sizeof path, "%s/%s", dir, ok ? "t.o" : "err");
  EXPECT_OK(os_read_file(path, (size_t)1 << 30, elf));
  snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
  EXPECT(system(cmd) == 0);
  if (!ok) EXPECT(false, "%s: %.1500s", mc, elf->p);
  return ok;
}

typedef struct Case { X86Ins in; uint8_t n, p[15]; } Case;
static Case *cases;
static int n_cases, cap_cases;
static Arena *arena;

static void add_case(const X86Ins *in) {
  Case c = {.in = *in};
  uint8_t buf[32];
  int n = x86_encode(in, buf);
  CHECK(n > 0 && n <= 15);
  c.n = (uint8_t)n;
  memcpy(c.p, buf, (size_t)n);
  PUSH(arena, cases, n_cases, cap_cases, c);
}

static bool reg_is_legal(int op, int slot, int r) {
  char c = x86_reg_class(op, slot);
  if (c == 'k' || c == 't') return r < 8;
  return r < (c == 'v' && x86_row(op)->enc == X86_EVX ? 32 : 16);
}

static X86Ins base_case(int op, int reg, bool mem) {
  X86Ins in = X86_INS(op);
  in.mem = mem;
  if (mem) in.base = RCX;
  if (mem && x86_row(op)->flags & X86F_SIB) in.index = RDX;
  if (x86_imm_bytes(op)) in.imm = 3;
  for (int s = 0; s < x86_n_regs(op); s++)
    if (!mem || s != x86_mem_slot(op)) in.r[s] = (int8_t)(x86_row(op)->flags & X86F_TILE ? (reg + s) & 7 : reg_is_legal(op, s, reg) ? reg : reg & 7);
  return in;
}

/* A product's three tiles must differ, or the assembler warns and the processor faults. */
static bool tiles_apart(const X86Ins *in) { return in->r[0] != in->r[1] && in->r[0] != in->r[2] && in->r[1] != in->r[2]; }

static const int reg_list[] = {0, 1, 4, 7, 8, 15, 16, 31};

static void add_registers(int op, bool mem) {
  static const int others[] = {1, 9, 27};
  int n = x86_n_regs(op);
  for (size_t o = 0; o < COUNT_OF(others); o++)
    for (int s = 0; s < n; s++)
      for (size_t k = 0; k < COUNT_OF(reg_list); k++) {
        if (mem && s == x86_mem_slot(op)) continue;
        X86Ins in = base_case(op, others[o], mem);
        if (!reg_is_legal(op, s, reg_list[k]) || (others[o] == 27 && x86_row(op)->enc != X86_EVX)) continue;
        in.r[s] = (int8_t)reg_list[k];
        if (x86_row(op)->flags & X86F_TILE && n == 3 && !tiles_apart(&in)) continue;
        add_case(&in);
      }
  if (!n && !mem) { X86Ins in = X86_INS(op); add_case(&in); }
}

/* disp is in units of the compressed displacement when n_units. */
static const struct { int base, index, scale, disp; bool units; } shapes[] = {
    {RAX, -1, 1, 0, false}, {RSP, -1, 1, 0, false}, {R12, -1, 1, 0, false}, {RBP, -1, 1, 0, false}, {R13, -1, 1, 0, false},
    {R15, -1, 1, 1, false}, {RBX, -1, 1, 127, false}, {RBX, -1, 1, 128, false}, {RBX, -1, 1, -128, false}, {RBX, -1, 1, -129, false},
    {RSP, -1, 1, 64, false}, {R12, -1, 1, 4096, false}, {RDI, -1, 1, 127, true}, {RDI, -1, 1, 128, true}, {R8, -1, 1, -128, true}, {R8, -1, 1, -129, true},
    {RAX, RCX, 1, 0, false}, {RBP, RDX, 2, 0, false}, {R13, R8, 4, 0, false}, {RSP, R15, 8, 12, false}, {R12, RBP, 4, 3, true},
    {R9, R12, 8, 100000, false}, {RSI, R13, 1, -4, false}, {-1, R9, 8, 64, false}, {-1, RBP, 4, 0, false}, {-1, -1, 1, 0x1234, false}};

static int unit_of(const X86Ins *in) {
  const X86Row *row = x86_row(in->op);
  return in->bcast ? (row->w ? 8 : 4) : row->mem_bytes;
}

static void add_shapes(X86Ins in, bool few) {
  for (size_t i = 0; i < COUNT_OF(shapes); i++) {
    if (few && i % 3) continue;
    if (x86_row(in.op)->flags & X86F_SIB && (shapes[i].base < 0 || shapes[i].index < 0)) continue;
    in.base = (int8_t)shapes[i].base, in.index = (int8_t)shapes[i].index, in.scale = (uint8_t)shapes[i].scale;
    in.disp = shapes[i].disp * (shapes[i].units ? unit_of(&in) : 1);
    add_case(&in);
  }
}

static void add_immediates(int op) {
  static const int64_t imms[] = {0, 1, 4, 7, 127, 128, -1, -128, -129, 255, 256, 0x7FFFFFFF, -0x7FFFFFFF - 1, 0x80000000, 0xFFFFFFFF, 0x123456789ABCDEF, -5000000000};
  static const int regs[] = {RAX, RCX, R11};
  for (size_t i = 0; i < COUNT_OF(imms); i++)
    for (size_t k = 0; k < COUNT_OF(regs); k++) {
      X86Ins in = base_case(op, regs[k], false);
      if (x86_mem_slot(op) >= 0 && x86_reg_class(op, x86_mem_slot(op)) == 'm') in = base_case(op, regs[k], true);
      in.imm = imms[i];
      /* The assembler is free to shorten movabs. */
      bool same = op != X86_mov64_i64 || imms[i] != (int32_t)imms[i];
      if (x86_imm_fits(op, imms[i]) && same) add_case(&in);
    }
}

static void add_masks(int op, bool mem) {
  const X86Row *row = x86_row(op);
  bool stores = mem && row->ops[0] == 'm';
  for (int zero = 0; zero <= (row->flags & X86F_ZERO && !stores); zero++)
    for (int mask = 1; mask < 8; mask += 3) {
      X86Ins in = base_case(op, mask == 1 ? 2 : 30, mem);
      in.mask = (int8_t)mask, in.zero = zero;
      if (mem) add_shapes(in, true);
      else add_case(&in);
      if (!mem || !(row->flags & X86F_BCAST)) continue;
      in.bcast = true;
      add_shapes(in, true);
    }
}

static void add_row(int op) {
  const X86Row *row = x86_row(op);
  if (row->flags & X86F_BRANCH) return;
  int mem_slot = x86_mem_slot(op);
  bool reg_form = !(row->flags & X86F_NOREG);
  if (reg_form) add_registers(op, false);
  if (x86_imm_bytes(op)) add_immediates(op);
  if (reg_form && row->flags & X86F_MASK) add_masks(op, false);
  if (mem_slot < 0) return;
  add_registers(op, true);
  add_shapes(base_case(op, 6, true), false);
  if (row->flags & X86F_MASK) add_masks(op, true);
  if (!(row->flags & X86F_BCAST)) return;
  X86Ins in = base_case(op, 17, true);
  in.bcast = true;
  add_shapes(in, false);
}

static void hex(Str *out, const uint8_t *p, int n) { for (int i = 0; i < n; i++) str_addf(out, "%02x ", p[i]); }

/* One case per 16-byte slot, filled up with CC. */
static void compare_slots(const uint8_t *p, size_t n) {
  EXPECT(n >= (size_t)n_cases * 16, "%zu bytes for %d cases", n, n_cases);
  Str why = {0};
  int n_bad = 0;
  for (int i = 0; i < n_cases && (size_t)i * 16 + 16 <= n; i++) {
    uint8_t want[16];
    memset(want, 0xCC, 16);
    memcpy(want, cases[i].p, cases[i].n);
    if (!memcmp(want, p + (size_t)i * 16, 16)) continue;
    if (n_bad++ >= 5 && !getenv("LUMEN_TEST_VERBOSE")) continue;
    str_addf(&why, "%s: ", x86_row(cases[i].in.op)->id);
    x86_ins_text(&cases[i].in, &why);
    str_add(&why, ": ours "), hex(&why, want, 16), str_add(&why, "theirs "), hex(&why, p + (size_t)i * 16, 16);
    if (getenv("LUMEN_TEST_VERBOSE")) fprintf(stderr, "%s\n", why.p), str_clear(&why);
  }
  EXPECT(!n_bad, "%d of %d differ; %s", n_bad, n_cases, why.p ? why.p : "");
  str_free(&why);
}

static void every_row(const char *mc) {
  for (int op = 1; op < X86_N_OPS; op++) add_row(op);
  Str text = {0}, elf = {0};
  str_add(&text, ".intel_syntax noprefix\n");
  for (int i = 0; i < n_cases; i++) {
    x86_ins_text(&cases[i].in, &text);
    str_add(&text, "\n.balign 16,0xcc\n");
  }
  const uint8_t *p;
  size_t n;
  if (assemble(mc, &text, &elf)) {
    EXPECT(elf_text(&elf, &p, &n));
    if (!test_failed_here) compare_slots(p, n);
  }
  printf("# %d instructions of %d rows compared\n", n_cases, X86_N_OPS - 1);
  str_free(&text), str_free(&elf);
}

static uint32_t rnd(uint32_t *s) { return *s = *s * 1664525u + 1013904223u, *s >> 8; }

/* A random program of labels, branches of all distances and constants; text and object grow together. */
static X86Blob random_program(Arena *a, uint32_t seed, int n_ins, Str *text) {
  X86Asm *s = x86_asm_new(a);
  enum { N_LABELS = 40, N_CONSTS = 12 };
  int labels[N_LABELS], consts[N_CONSTS], n_bound = 0;
  for (int i = 0; i < N_LABELS; i++) labels[i] = x86_asm_label(s);
  for (int i = 0; i < N_CONSTS; i++) {
    uint8_t v[64];
    for (int k = 0; k < 64; k++) v[k] = (uint8_t)(i * 7 + k / 4);
    consts[i] = x86_asm_const(s, v, 4 << (i % 5));
    int again = x86_asm_const(s, v, 4 << (i % 5));
    EXPECT(again == consts[i], "equal constants are shared");
  }
  for (int i = 0; i < n_ins; i++) {
    if (n_bound < N_LABELS && (i % (n_ins / N_LABELS + 1) == 0)) {
      str_addf(text, ".L%d:\n", labels[n_bound]);
      x86_asm_bind(s, labels[n_bound++]);
    }
    X86Ins in = X86_INS(X86_add64);
    in.r[0] = (int8_t)(rnd(&seed) % 16), in.r[1] = (int8_t)(rnd(&seed) % 16);
    unsigned what = rnd(&seed) % 8;
    if (what < 3) in = X86_INS(what == 0 ? X86_jmp : X86_jo + (int)(rnd(&seed) % 16)), in.label = labels[rnd(&seed) % N_LABELS];
    if (what == 3) in = X86_INS(X86_call), in.label = labels[rnd(&seed) % N_LABELS];
    if (what == 4) {
      bool imm = rnd(&seed) & 1;
      in = X86_INS(imm ? X86_pshufd_x : X86_movups_y);
      in.r[0] = 3, in.mem = true, in.imm = imm ? 27 : 0, in.label = consts[rnd(&seed) % N_CONSTS], in.disp = imm ? 8 : 0;
    }
    x86_asm_emit(s, &in);
    x86_ins_text(&in, text), str_add_c(text, '\n');
  }
  for (; n_bound < N_LABELS; n_bound++) str_addf(text, ".L%d:\n", labels[n_bound]), x86_asm_bind(s, labels[n_bound]);
  X86Blob b = x86_asm_finish(s);
  str_add(text, ".balign 64,0\n");
  for (size_t at = ROUND_UP(b.n_code_bytes, 64); at < b.n_bytes; at++) {
    for (int i = 0; i < N_CONSTS; i++) if (x86_asm_label_pos(s, consts[i]) == (int64_t)at) str_addf(text, ".L%d:\n", consts[i]);
    str_addf(text, ".byte %d\n", b.p[at]);
  }
  for (int i = 0; i < N_CONSTS; i++) {
    int64_t off = x86_asm_label_pos(s, consts[i]) % (4 << (i % 5));
    EXPECT(off == 0, "a constant is aligned to its size");
  }
  return b;
}

static void branches(const char *mc, uint32_t seed, int n_ins) {
  Arena *a = arena_new("compile");
  Str text = {0}, elf = {0};
  str_add(&text, ".intel_syntax noprefix\n");
  X86Blob b = random_program(a, seed, n_ins, &text);
  const uint8_t *p = NULL;
  size_t n = 0;
  if (assemble(mc, &text, &elf)) {
    EXPECT(elf_text(&elf, &p, &n));
    EXPECT(n == b.n_bytes, "%zu bytes, theirs %zu", b.n_bytes, n);
    size_t at = 0;
    while (at < n && at < b.n_bytes && p[at] == b.p[at]) at++;
    EXPECT(at == n, "first difference at byte %zu of %zu, code ends at %zu", at, n, b.n_code_bytes);
  }
  str_free(&text), str_free(&elf), arena_free(a);
}

static void facts(void) {
  EXPECT(x86_op_find("addps_z") == X86_addps_z && x86_op_find("no such") == X86_none);
  EXPECT(x86_n_regs(X86_addps_z) == 3 && x86_mem_slot(X86_addps_z) == 2 && x86_reg_class(X86_addps_z, 0) == 'v');
  EXPECT(x86_mem_slot(X86_movups_st_z) == 0 && x86_reg_class(X86_movups_st_z, 0) == 'm');
  EXPECT(x86_n_regs(X86_blendvps_x) == 2 && x86_n_regs(X86_blendvps_y) == 4);
  EXPECT(x86_imm_bytes(X86_add64_i) == 4 && x86_imm_fits(X86_add32_i, 0xFFFFFFFF) && !x86_imm_fits(X86_add64_i, 0xFFFFFFFF));
  for (int op = 1; op < X86_N_OPS; op++) {
    EXPECT(x86_op_find(x86_row(op)->id) == op, "%s is defined twice", x86_row(op)->id);
    EXPECT(x86_n_regs(op) <= 4, "%s", x86_row(op)->id);
  }
}

/* Padding: every start lands where asked, and the padding bytes are whole nops. */
static void alignment(void) {
  Arena *a = arena_new("compile");
  X86Asm *s = x86_asm_new(a);
  int top = x86_asm_label(s), aligned[6], end = x86_asm_label(s);
  x86_asm_bind(s, top);
  X86Ins push = X86_INS(X86_push), jump = X86_INS(X86_jmp);
  push.r[0] = RBX, jump.label = end;
  for (int i = 0; i < 6; i++) {
    for (int k = 0; k < 5 * i + 1; k++) x86_asm_emit(s, &push);
    x86_asm_emit(s, &jump);
    x86_asm_align(s, 2 << i);
    aligned[i] = x86_asm_label(s);
    x86_asm_bind(s, aligned[i]);
  }
  for (int k = 0; k < 150; k++) x86_asm_emit(s, &push);
  x86_asm_bind(s, end);
  X86Ins ret = X86_INS(X86_ret);
  x86_asm_emit(s, &ret);
  X86Blob b = x86_asm_finish(s);
  for (int i = 0; i < 6; i++) EXPECT((x86_asm_label_pos(s, aligned[i]) & ((2 << i) - 1)) == 0, "aligned to %d", 2 << i);
  EXPECT(b.p[x86_asm_label_pos(s, end)] == 0xC3 && b.n_bytes == b.n_code_bytes);
  arena_free(a);
}

int main(void) {
  const char *mc = mc_path();
  arena = arena_new("forever");
  TEST("facts of rows") facts();
  TEST("alignment") alignment();
  if (!mc) {
    TEST_SKIP("every row against llvm-mc", "no llvm-mc on PATH");
    TEST_SKIP("branches and constants against llvm-mc", "no llvm-mc on PATH");
  } else {
    TEST("every row against llvm-mc") every_row(mc);
    TEST("branches and constants against llvm-mc, small") branches(mc, 1, 60);
    TEST("branches and constants against llvm-mc, near the limit") branches(mc, 2, 400);
    TEST("branches and constants against llvm-mc, large") branches(mc, 3, 3000);
  }
  arena_free(arena);
  TEST_MAIN_END();
}
