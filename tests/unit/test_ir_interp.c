/* The interpreter against values worked out by hand (tests/ir/eval.cases), also after each pass; control flow, bounds and limits. */
#include "ir/ir.h"
#include "test.h"

static Arena *A;

static char *read_text(const char *path) {
  Str s = {0};
  Err *e = os_read_file(path, 1 << 22, &s);
  if (e) { printf("not ok - %s: %s\n", path, err_text(e)); exit(1); }
  char *text = arena_dup(A, s.p);
  str_free(&s);
  return text;
}

static IrFn *parse(const char *text) {
  IrFn *fn = NULL;
  Err *e = ir_fn_parse(A, text, &fn);
  if (!e) e = ir_fn_verify(fn);
  if (e) test_fail(__FILE__, __LINE__, "%s", err_text(e));
  err_free(e);
  return fn;
}

/* "i32 1 -2 0x3" as bytes; the count of values comes back, *mem says their type. */
static int read_values(const char *line, const char *end, IrMem *mem, uint8_t *out) {
  char word[64];
  int n = 0, used;
  for (bool first = true; line < end && sscanf(line, " %63s%n", word, &used) == 1 && line + used <= end; first = false, line += used) {
    if (first) {
      *mem = IR_M_none;
      for (int m = 0; m < IR_N_MEM; m++) if (strcmp(ir_mem_name[m], word) == 0) *mem = (IrMem)m;
      CHECK(*mem != IR_M_none, "%s", word);
      continue;
    }
    size_t size = (size_t)ir_mem_bytes[*mem];
    long long v = word[0] == '-' ? strtoll(word, NULL, 0) : (long long)strtoull(word, NULL, 0);
    if (*mem == IR_M_f32 && strncmp(word, "0x", 2) != 0) v = f32_to_bits(strtof(word, NULL));
    memcpy(out + (size_t)n++ * size, &v, size);
  }
  return n;
}

static const struct { const char *name; void (*run)(IrFn *fn); } passes[] = {
    {"as written", NULL}, {"fold", ir_pass_fold}, {"cse", ir_pass_cse}, {"licm", ir_pass_licm}, {"dce", ir_pass_dce}};

static void run_case(const char *body, IrMem mem, int n, const uint8_t *in, const uint8_t *want) {
  IrMem as = mem == IR_M_u16 ? IR_M_f16 : mem; /* halves are compared as bits, stored as f16 */
  const char *text = arena_printf(A, "fn @case(%%1: ptr<u8, global>, %%2: ptr<u8, global>) {\nb0(%%1, %%2):\n%s\n  store.%s %%1 + 0, %%99\n  ret\n}\n", body, ir_mem_name[as]);
  IrFn *fn = parse(text);
  if (!fn) return;
  size_t n_bytes = (size_t)n * (size_t)ir_mem_bytes[mem];
  for (size_t p = 0; p < COUNT_OF(passes); p++) {
    uint8_t out[128] = {0};
    if (passes[p].run) passes[p].run(fn);
    EXPECT_OK(ir_fn_verify(fn));
    IrSpan spans[] = {{in, 64, false}, {out, n_bytes, true}};
    EXPECT_OK(ir_interp(fn, (uint64_t[]){(uintptr_t)out, (uintptr_t)in}, 2, spans, 2, 1000));
    for (size_t i = 0; i < n_bytes; i++)
      if (out[i] != want[i]) { EXPECT(false, "%s: byte %zu is 0x%02x, expected 0x%02x", passes[p].name, i, out[i], want[i]); break; }
  }
}

static void test_eval_cases(void) {
  char *c = strstr(read_text("tests/ir/eval.cases"), "\n\n");
  while (c && c[2]) {
    char *name = c + 2, *next = strstr(name, "\n\n"), *line = strchr(name, '\n');
    *line++ = 0;
    if (next) *next = 0;
    uint8_t in[128] = {0}, want[128] = {0};
    IrMem mem = IR_M_none;
    int n = 0;
    for (; *line == 'i' || *line == 'o'; line = strchr(line, '\n') + 1) {
      if (*line == 'i') read_values(line + 2, strchr(line, '\n'), &mem, in);
      else n = read_values(line + 3, strchr(line, '\n'), &mem, want);
    }
    TEST(arena_printf(A, "ir/eval: %s", name)) run_case(line, mem, n, in, want);
    c = next;
  }
}

static const char loop_text[] =
    "fn @sum(%1: ptr<f32[?], global>, %2: i64, %3: ptr<f32[1], global>) {\n"
    "b0(%1, %2, %3):\n"
    "  %4 = const i64 0\n"
    "  %5 = const f32 0\n"
    "  jmp b1(%4, %5)\n"
    "b1(%6: i64, %7: f32):\n"
    "  %8 = icmp.lt %6, %2\n"
    "  br %8, b2, b3\n"
    "b2:\n"
    "  %9 = load.f32 f32 %1, %6*4 + 0\n"
    "  %10 = fadd %7, %9\n"
    "  %11 = const i64 1\n"
    "  %12 = add %6, %11\n"
    "  jmp b1(%12, %10)\n"
    "b3:\n"
    "  store.f32 %3 + 0, %7\n"
    "  ret\n"
    "}\n";

static void test_loop_and_bounds(void) {
  IrFn *fn = parse(loop_text);
  float x[4] = {1, 2, 3, 4.5f}, y = 0;
  uint64_t args[] = {(uintptr_t)x, 4, (uintptr_t)&y};
  IrSpan spans[] = {{x, sizeof x, false}, {&y, sizeof y, true}};
  EXPECT_OK(ir_interp(fn, args, 3, spans, 2, 1000));
  EXPECT(y == 10.5f);
  y = 0;
  EXPECT_OK(ir_interp(fn, args, 3, NULL, 0, 1 + 5 * 2 + 4 * 4 + 2));
  EXPECT(y == 10.5f);
  struct { uint64_t args[3]; int n_args; int64_t steps; bool writable; const char *want; } bad[] = {
      {{args[0], 5, args[2]}, 3, 1000, true, "reads 4 bytes at offset 16 of span 0, which has 16"},
      {{args[0] + 2, 4, args[2]}, 3, 1000, true, "reads 4 bytes at offset 14 of span 0"},
      {{args[0], 4, args[2]}, 3, 1000, false, "writes 4 bytes at offset 0 of span 1, which has 4 and is read-only"},
      {{16, 1, args[2]}, 3, 1000, true, "reads 4 bytes below every span"},
      {{args[0], 4, args[2]}, 2, 1000, true, "2 arguments, expected 3"},
      {{args[0], 4, args[2]}, 3, 28, true, "more than 28 steps"}};
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    spans[1].writable = bad[i].writable;
    Err *e = ir_interp(fn, bad[i].args, bad[i].n_args, spans, 2, bad[i].steps);
    EXPECT(e && strstr(err_text(e), bad[i].want), "%zu: %s", i, e ? err_text(e) : "no error");
    err_free(e);
  }
}

static void test_swap(void) { /* block arguments move at once: fibonacci by (a, b) <- (b, a + b), and a plain swap */
  IrFn *fn = parse("fn @fib(%1: i64, %2: ptr<i64[2], global>) {\n"
                   "b0(%1, %2):\n  %3 = const i64 0\n  %4 = const i64 1\n  jmp b1(%1, %3, %4)\n"
                   "b1(%5: i64, %6: i64, %7: i64):\n  %8 = icmp.gt %5, %3\n  %9 = sub %5, %4\n  br %8, b1(%9, %7, %6), b2\n"
                   "b2:\n  store.i64 %2 + 0, %6\n  store.i64 %2 + 8, %7\n  ret\n}\n");
  int64_t out[2];
  EXPECT_OK(ir_interp(fn, (uint64_t[]){3, (uintptr_t)out}, 2, NULL, 0, 100));
  EXPECT(out[0] == 1 && out[1] == 0);
  EXPECT_OK(ir_interp(fn, (uint64_t[]){4, (uintptr_t)out}, 2, NULL, 0, 100));
  EXPECT(out[0] == 0 && out[1] == 1);
}

static void test_faults(void) {
  IrFn *fn = parse("fn @d(%1: i32, %2: ptr<i32, global>) {\nb0(%1, %2):\n  %3 = udiv %1, %1\n  store.i32 %2 + 0, %3\n  ret\n}\n");
  int32_t out = 0;
  Err *e = ir_interp(fn, (uint64_t[]){0, (uintptr_t)&out}, 2, NULL, 0, 100);
  EXPECT(e && strstr(err_text(e), ": division by zero"));
  err_free(e);
  EXPECT_OK(ir_interp(fn, (uint64_t[]){0xffffffff00000003, (uintptr_t)&out}, 2, NULL, 0, 100));
  EXPECT(out == 1, "an i32 argument is the low half");
  fn = parse("fn @g(%1: ptr<i32, global>, %2: i32) {\nb0(%1, %2):\n  %3 = splat i32x4 %2\n  %4 = gather.i32 i32x4 %1, %3 + 0\n  ret\n}\n");
  e = ir_interp(fn, (uint64_t[]){(uintptr_t)&out, 0xffffffff}, 2, NULL, 0, 100);
  EXPECT(e && strstr(err_text(e), "offset -1 of lane 0 is negative"));
  err_free(e);
}

/* Lanes beyond those written keep their bytes; pointers go through memory and i1 arguments are one bit. */
static void test_memory_forms(void) {
  IrFn *fn = parse("fn @m(%1: ptr<ptr[2], args>, %2: f32, %3: i1) {\nb0(%1, %2, %3):\n"
                   "  %4 = load.ptr ptr<f32[8], global> %1 + 0\n  %5 = load.ptr ptr<f32[8], global> %1 + 8\n  %6 = select %3, %4, %5\n"
                   "  %7 = splat f32x8 %2\n  store.f32 %6 + 4, %7 lanes 3\n  store.ptr %1 + 0, %5\n  store.bf16 %6 + 20, %2\n  prefetch %6 + 1000000\n  ret\n}\n");
  float x[8] = {0}, y[8] = {0};
  float *table[2] = {x, y};
  IrSpan spans[] = {{x, sizeof x, true}, {y, sizeof y, true}, {table, sizeof table, true}};
  EXPECT_OK(ir_interp(fn, (uint64_t[]){(uintptr_t)table, f32_to_bits(2.5f), 3}, 3, spans, 3, 100));
  uint16_t h;
  memcpy(&h, &x[5], 2);
  EXPECT(x[0] == 0 && x[1] == 2.5f && x[2] == 2.5f && x[3] == 2.5f && x[4] == 0 && h == 0x4020 && y[1] == 0 && table[0] == y);
}

int main(void) {
  A = arena_new("test");
  test_eval_cases();
  TEST("ir/interp: loop, bounds, limits") test_loop_and_bounds();
  TEST("ir/interp: block arguments move at once") test_swap();
  TEST("ir/interp: faults") test_faults();
  TEST("ir/interp: memory forms") test_memory_forms();
  arena_free(A);
  TEST_MAIN_END();
}
