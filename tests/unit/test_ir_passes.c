/* Passes keep results: random functions (nested loops, branches, every kind of op, loads and stores) are interpreted before and after
   each pass and must leave the same bytes. And they do their work: named small functions, before and after, and a bound on time. */
#include "ir/ir.h"
#include "test.h"

static Arena *A;
static uint64_t seed;

static uint32_t rnd(uint32_t n) {
  seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
  return (uint32_t)(seed >> 20) % n;
}

/* The generator: pools of values by type that dominate the point being built. */
enum { POOL = 400, BUF = 512 };
typedef struct Gen {
  IrBuild b;
  int n_lanes, n_stmts, n_left;
  IrRef pool[7][POOL];
  int n[7];
  IrRef ptr[3];
  int n_ptr;
} Gen;
enum { I32, I64, F32, I1, VI, VF, V1 };

static IrType type_of_pool(const Gen *g, int p) {
  const IrElt e[] = {IR_E_I32, IR_E_I64, IR_E_F32, IR_E_I1, IR_E_I32, IR_E_F32, IR_E_I1};
  return ir_vec_type(e[p], p >= VI ? g->n_lanes : 1);
}
static void add(Gen *g, int p, IrRef v) { if (g->n[p] < POOL) g->pool[p][g->n[p]++] = v; }

static IrRef constant(Gen *g, int p) {
  static const int64_t ints[] = {0, 1, -1, 2, 7, 255, INT32_MAX, INT32_MIN, 16};
  static const float floats[] = {0, -0.0f, 1, -1, 0.5f, 3e38f, 1e-40f, 2.75f};
  IrType t = type_of_pool(g, p);
  if (p == F32 || p == VF) return ir_const_f(&g->b, t, floats[rnd(COUNT_OF(floats))]);
  if (p == I1 || p == V1) return ir_const_i(&g->b, t, rnd(2));
  return ir_const_i(&g->b, t, ints[rnd(COUNT_OF(ints))]);
}

static IrRef pick(Gen *g, int p) {
  if (g->n[p] == 0 || rnd(8) == 0) return constant(g, p);
  int back = rnd(3) ? (int)rnd((uint32_t)MIN(g->n[p], 12)) : (int)rnd((uint32_t)g->n[p]);
  return g->pool[p][g->n[p] - 1 - back];
}

/* An index below BUF / 2 from any i64. */
static IrRef index_of(Gen *g) { return ir_op2(&g->b, IR_and, pick(g, I64), ir_const_i(&g->b, IR_T_i64, BUF / 2 - 1)); }

/* The block's last load, or any last instruction, once more: food for cse. */
static bool gen_again(Gen *g) {
  IrFn *fn = g->b.fn;
  const IrBlock *b = &fn->blocks[g->b.at];
  bool any = rnd(2);
  for (int i = b->n_ins - 1; i >= 0 && i > b->n_ins - 12; i--) {
    IrIns x = fn->ins[b->ins[i]];
    if (x.op != IR_load && (!any || x.op == IR_store)) continue;
    IrRef v = ir_emit(&g->b, x);
    for (int p = 0; p < 7; p++) if (type_of_pool(g, p) == x.type) add(g, p, v);
    return true;
  }
  return false;
}

static void gen_load(Gen *g) {
  if (rnd(3) == 0 && gen_again(g)) return;
  static const struct { uint8_t mem, scalar, vector; } rows[] = {
      {IR_M_u8, I32, VI}, {IR_M_i8, I32, VI}, {IR_M_i16, I32, VI}, {IR_M_i32, I32, VI}, {IR_M_f16, F32, VF}, {IR_M_bf16, F32, VF}, {IR_M_f32, F32, VF}};
  uint32_t r = rnd(COUNT_OF(rows));
  int p = rnd(2) ? rows[r].vector : rows[r].scalar;
  IrRef ptr = g->ptr[rnd((uint32_t)g->n_ptr)], idx = index_of(g);
  if (rnd(3) == 0) ptr = ir_padd(&g->b, ptr, ir_const_i(&g->b, IR_T_i64, rnd(32)));
  if (rnd(3) == 0) idx = 0;
  else if (rnd(4) == 0) idx = ir_op2(&g->b, IR_add, idx, ir_const_i(&g->b, IR_T_i64, 5));
  add(g, p, ir_load(&g->b, (IrMem)rows[r].mem, type_of_pool(g, p), ptr, idx, 1 << rnd(2), rnd(64)));
}

static void gen_store(Gen *g) {
  static const struct { uint8_t mem, pool; } rows[] = {{IR_M_u8, VI}, {IR_M_i32, I32}, {IR_M_i32, VI}, {IR_M_f32, F32}, {IR_M_f32, VF}, {IR_M_f16, VF}, {IR_M_i64, I64}, {IR_M_bf16, F32}};
  uint32_t r = rnd(COUNT_OF(rows));
  int lanes = rows[r].pool >= VI && rnd(2) ? 1 + (int)rnd((uint32_t)g->n_lanes) : 0;
  ir_store(&g->b, (IrMem)rows[r].mem, g->ptr[1 + rnd(2)], rnd(2) ? index_of(g) : 0, 1 << rnd(2), rnd(64), pick(g, rows[r].pool), lanes);
}

static void gen_op(Gen *g) {
  static const uint8_t ints[] = {IR_add, IR_sub, IR_mul, IR_and, IR_or, IR_xor, IR_smin, IR_smax}, floats[] = {IR_fadd, IR_fsub, IR_fmul, IR_fdiv, IR_fmin, IR_fmax};
  static const uint8_t ones[] = {IR_fsqrt, IR_fneg, IR_fabs, IR_frint, IR_ffloor}, bools[] = {IR_band, IR_bor, IR_bxor}, shifts[] = {IR_shl, IR_shr, IR_sar};
  IrBuild *b = &g->b;
  int p = (int[]){I32, I64, VI}[rnd(3)], f = rnd(2) ? F32 : VF, q = rnd(2) ? I1 : V1;
  switch (rnd(20)) {
    case 0: case 1: case 2: add(g, p, ir_op2(b, (IrOp)ints[rnd(COUNT_OF(ints))], pick(g, p), pick(g, p))); break;
    case 3: case 4: add(g, f, ir_op2(b, (IrOp)floats[rnd(COUNT_OF(floats))], pick(g, f), pick(g, f))); break;
    case 5: add(g, f, ir_op1(b, (IrOp)ones[rnd(COUNT_OF(ones))], pick(g, f))); break;
    case 6: add(g, q, ir_op2(b, (IrOp)bools[rnd(COUNT_OF(bools))], pick(g, q), pick(g, q))); break;
    case 7: add(g, p, ir_shift(b, (IrOp)shifts[rnd(3)], pick(g, p), (int)rnd(32))); break;
    case 8: add(g, p == VI ? V1 : I1, ir_cmp(b, IR_icmp, (IrPred)(1 + rnd(6)), pick(g, p), pick(g, p))); break;
    case 9: add(g, f == VF ? V1 : I1, ir_cmp(b, IR_fcmp, (IrPred)(1 + rnd(6)), pick(g, f), pick(g, f))); break;
    case 10: add(g, p, ir_op3(b, IR_select, pick(g, p == VI && rnd(2) ? V1 : I1), pick(g, p), pick(g, p))); break;
    case 11: add(g, f, ir_op3(b, IR_select, pick(g, f == VF && rnd(2) ? V1 : I1), pick(g, f), pick(g, f))); break;
    case 12: add(g, I64, ir_op1(b, rnd(2) ? IR_sext : IR_zext, pick(g, I32))); add(g, I32, ir_op1(b, IR_trunc, pick(g, I64))); break;
    case 13: add(g, f, ir_op1(b, rnd(2) ? IR_i2f : IR_bits, pick(g, f == VF ? VI : I32))); break;
    case 14: add(g, f == VF ? VI : I32, ir_op1(b, rnd(2) ? IR_f2i : IR_bits, pick(g, f))); break;
    case 15: add(g, VF, ir_splat(b, pick(g, F32), g->n_lanes)); add(g, VI, ir_splat(b, pick(g, I32), g->n_lanes)); break;
    case 16: add(g, F32, ir_extract(b, pick(g, VF), (int)rnd((uint32_t)g->n_lanes))); add(g, VI, ir_insert(b, pick(g, VI), pick(g, I32), (int)rnd((uint32_t)g->n_lanes))); break;
    case 17: add(g, F32, ir_op1(b, (IrOp)(IR_radd + rnd(3)), pick(g, VF))); add(g, I32, ir_op1(b, (IrOp)(IR_radd + rnd(3)), pick(g, VI))); break;
    case 18: add(g, VI, ir_dot4(b, pick(g, VI), pick(g, VI), pick(g, VI), 255)); add(g, VF, ir_op3(b, IR_fma, pick(g, VF), pick(g, VF), pick(g, VF))); add(g, VF, ir_op3(b, IR_dot2, pick(g, VF), pick(g, VI), pick(g, VI))); break;
    default: { /* a divisor that is never 0 */
      IrRef d = ir_const_i(b, IR_T_i64, (int64_t)(UINT64_C(1) << rnd(64)));
      if (rnd(2)) d = ir_op2(b, IR_or, pick(g, I64), ir_const_i(b, IR_T_i64, 1));
      add(g, I64, ir_op2(b, rnd(2) ? IR_udiv : IR_urem, pick(g, I64), d));
      add(g, VI, ir_iota(b, g->n_lanes));
    }
  }
}

static void gen_stmts(Gen *g, int n, int depth);

static void gen_if(Gen *g, int depth) {
  IrFn *fn = g->b.fn;
  int yes = ir_block_add(fn), no = ir_block_add(fn), join = ir_block_add(fn), p = (int)rnd(7), n[7];
  IrRef c = pick(g, I1), a = pick(g, p);
  ir_br(&g->b, c, yes, NULL, 0, no, NULL, 0);
  memcpy(n, g->n, sizeof n);
  for (int side = 0; side < 2; side++) {
    g->b.at = side ? no : yes;
    gen_stmts(g, 1 + (int)rnd(4), depth + 1);
    IrRef v = rnd(4) ? pick(g, p) : a;
    ir_jmp(&g->b, join, &v, 1);
    memcpy(g->n, n, sizeof n);
  }
  g->b.at = join;
  add(g, p, ir_param(fn, join, type_of_pool(g, p)));
}

/* Top-tested or bottom-tested, 0 to 3 rounds by a constant or by a value; carries two values. */
static void gen_loop(Gen *g, int depth) {
  IrFn *fn = g->b.fn;
  bool top = rnd(2);
  int head = ir_block_add(fn), body = top ? ir_block_add(fn) : head, done = ir_block_add(fn), p = (int)rnd(7), n[7];
  IrRef limit = rnd(2) ? ir_const_i(&g->b, IR_T_i64, rnd(4)) : ir_op2(&g->b, IR_and, pick(g, I64), ir_const_i(&g->b, IR_T_i64, 3));
  IrRef first[] = {ir_const_i(&g->b, IR_T_i64, 0), pick(g, p)};
  if (rnd(3)) ir_jmp(&g->b, head, first, 2);
  else ir_br(&g->b, pick(g, I1), head, first, 2, done, NULL, 0);
  memcpy(n, g->n, sizeof n);
  g->b.at = head;
  IrRef i = ir_param(fn, head, IR_T_i64), carried = ir_param(fn, head, type_of_pool(g, p));
  add(g, I64, i), add(g, p, carried);
  if (top) {
    gen_stmts(g, (int)rnd(3), 9);
    ir_br(&g->b, ir_cmp(&g->b, IR_icmp, IR_P_lt, i, limit), body, NULL, 0, done, NULL, 0);
    g->b.at = body;
  }
  gen_stmts(g, 1 + (int)rnd(6), depth + 1);
  IrRef next[] = {ir_op2(&g->b, IR_add, i, ir_const_i(&g->b, IR_T_i64, 1)), rnd(4) ? pick(g, p) : carried};
  if (top) ir_jmp(&g->b, head, next, 2);
  else ir_br(&g->b, ir_cmp(&g->b, IR_icmp, IR_P_lt, next[0], limit), head, next, 2, done, NULL, 0);
  g->b.at = done;
  memcpy(g->n, n, sizeof n); /* the loop may have been jumped over */
}

static void gen_stmts(Gen *g, int n, int depth) {
  for (int i = 0; i < n && g->n_left > 0; i++, g->n_left--) {
    uint32_t r = rnd(16);
    if (r == 0 && depth < 3) gen_if(g, depth);
    else if (r <= 2 && depth < 3) gen_loop(g, depth);
    else if (r <= 5) gen_load(g);
    else if (r <= 7) gen_store(g);
    else gen_op(g);
  }
}

static IrFn *generate(Arena *a, int n_stmts) {
  static const int widths[] = {4, 8, 16};
  Gen *g = ARENA_NEW(a, Gen);
  IrFn *fn = ir_fn_new(a, "random");
  g->b = (IrBuild){fn, ir_block_add(fn)};
  g->n_lanes = widths[rnd(3)], g->n_left = n_stmts;
  for (int i = 0; i < 2; i++) g->ptr[g->n_ptr++] = ir_param(fn, 0, ir_ptr_type(fn, (IrPtr){.mem = IR_M_u8, .space = IR_S_global}));
  IrRef table = ir_param(fn, 0, ir_ptr_type(fn, (IrPtr){.mem = IR_M_ptr, .space = IR_S_args}));
  add(g, I64, ir_param(fn, 0, IR_T_i64)), add(g, I32, ir_param(fn, 0, IR_T_i32)), add(g, F32, ir_param(fn, 0, IR_T_f32));
  g->ptr[g->n_ptr++] = ir_load(&g->b, IR_M_ptr, ir_ptr_type(fn, (IrPtr){.mem = IR_M_u8, .space = rnd(2) ? IR_S_scratch : IR_S_global}), table, 0, 1, 8);
  while (g->n_left > 0) gen_stmts(g, 20, 0);
  for (int p = 0; p < 7; p++) if (p != I1 && p != V1) gen_store(g);
  ir_ret(&g->b);
  return fn;
}

static void run_random(const IrFn *fn, uint8_t out[2][4 * BUF]) {
  static uint8_t in[4 * BUF];
  for (size_t i = 0; i < sizeof in; i++) in[i] = (uint8_t)(i * 37 ^ i >> 3);
  for (size_t i = 0; i < sizeof out[0]; i++) out[0][i] = (uint8_t)(i * 11), out[1][i] = (uint8_t)(i * 3);
  void *table[2] = {NULL, out[1]};
  IrSpan spans[] = {{in, sizeof in, false}, {out[0], 4 * BUF, true}, {out[1], 4 * BUF, true}, {table, sizeof table, false}};
  EXPECT_OK(ir_interp(fn, (uint64_t[]){(uintptr_t)in, (uintptr_t)out[0], (uintptr_t)table, 12345, (uint32_t)-3, f32_to_bits(1.5f)}, 6, spans, 4, 20000000));
}

static const struct { const char *name; void (*run)(IrFn *fn); } passes[] = {{"fold", ir_pass_fold}, {"cse", ir_pass_cse}, {"licm", ir_pass_licm}, {"dce", ir_pass_dce}};

/* A random pass each time, up to six in a row; after each, legal, the same bytes, and the same text again after parsing. */
static bool check_random(uint64_t s) {
  seed = s * 0x9e3779b97f4a7c15u | 1;
  Arena *a = arena_new("random");
  IrFn *fn = generate(a, 60 + (int)rnd(200));
  static uint8_t want[2][4 * BUF], got[2][4 * BUF];
  Err *e = ir_fn_verify(fn);
  bool ok = !e;
  if (e) EXPECT(false, "seed %llu: generated: %s", (unsigned long long)s, err_text(e));
  if (ok) run_random(fn, want);
  char trail[100] = "";
  for (int i = 0; ok && i < 6; i++) {
    uint32_t p = rnd(COUNT_OF(passes));
    strcat(strcat(trail, " "), passes[p].name);
    passes[p].run(fn);
    e = ir_fn_verify(fn);
    if (e) EXPECT(false, "seed %llu:%s: %s", (unsigned long long)s, trail, err_text(e));
    ok = !e;
    if (ok) run_random(fn, got);
    if (ok && memcmp(want, got, sizeof want) != 0) { EXPECT(false, "seed %llu:%s: other bytes", (unsigned long long)s, trail); ok = false; }
  }
  Str one = {0}, two = {0};
  ir_fn_print(fn, &one);
  IrFn *again = NULL;
  EXPECT_OK(ir_fn_parse(a, one.p, &again));
  if (again) ir_fn_print(again, &two);
  EXPECT(again && strcmp(one.p, two.p) == 0, "seed %llu: other text", (unsigned long long)s);
  str_free(&one), str_free(&two);
  err_free(e);
  arena_free(a);
  return ok && !test_failed_here;
}

static void test_random(void) {
  for (uint64_t s = 1; s <= 400; s++) if (!check_random(s)) return;
}

/* One function before and after. */
static void after(void (*pass)(IrFn *), const char *before, const char *want) {
  IrFn *fn = NULL;
  Err *e = ir_fn_parse(A, before, &fn);
  if (!e) e = ir_fn_verify(fn);
  if (!e) { pass(fn); e = ir_fn_verify(fn); }
  if (e) { EXPECT(false, "%s", err_text(e)); err_free(e); return; }
  Str s = {0};
  ir_fn_print(fn, &s);
  const char *body = strchr(s.p, '\n') + 1;
  EXPECT(strcmp(body, want) == 0, "got: %s", body);
  str_free(&s);
}

static void test_fold(void) {
  after(ir_pass_fold, "fn @f(%1: ptr<i32, global>, %2: i64, %3: i32) {\nb0:\n  %4 = const i64 3\n  %5 = add %2, %4\n  %6 = add %5, %4\n  %7 = shl %6, 1\n"
                      "  %8 = padd %1, %4\n  store.i32 %8, %7*4 + 1, %3\n  %9 = const i1 0\n  br %9, b1, b2(%3)\nb1:\n  jmp b2(%3)\nb2(%10: i32):\n  store.i32 %1 + 0, %10\n  ret\n}",
        "b0(%1, %2, %3):\n  %4 = const i64 3\n  %5 = add %2, %4\n  %13 = const i64 6\n  %6 = add %2, %13\n  %7 = shl %6, 1\n  %8 = padd %1, %4\n  store.i32 %1, %2*8 + 52, %3\n"
        "  %9 = const i1 0\n  jmp b2(%3)\nb1:\n  jmp b2(%3)\nb2(%10: i32):\n  store.i32 %1 + 0, %3\n  ret\n}\n");
}

static void test_fold_powers(void) {
  after(ir_pass_fold, "fn @f(%1: ptr<i32, global>, %2: i32, %3: i64) {\nb0:\n  %4 = const i32 -2147483648\n  %5 = mul %2, %4\n  %6 = const i64 16\n  %7 = udiv %3, %6\n"
                      "  %8 = urem %3, %6\n  %9 = const i64 4\n  %10 = mul %9, %3\n  store.i64 %1, %10*2 + 0, %8\n  store.i64 %1 + 0, %7\n  store.i32 %1 + 0, %5\n  ret\n}",
        "b0(%1, %2, %3):\n  %4 = const i32 -2147483648\n  %5 = shl %2, 31\n  %6 = const i64 16\n  %7 = shr %3, 4\n  %14 = const i64 15\n  %8 = and %3, %14\n  %9 = const i64 4\n"
        "  %10 = shl %3, 2\n  store.i64 %1, %3*8 + 0, %8\n  store.i64 %1 + 0, %7\n  store.i32 %1 + 0, %5\n  ret\n}\n");
}

static void test_cse(void) {
  after(ir_pass_cse, "fn @f(%1: ptr<f32, global>, %2: f32, %3: f32, %4: i1, %5: ptr<f32, scratch>) {\nb0:\n  %6 = fmul %2, %3\n  br %4, b1, b2\nb1:\n  %7 = fmul %2, %3\n"
                     "  %8 = fmul %3, %2\n  %9 = fadd %7, %8\n  %20 = load.f32 f32 %5 + 0\n  store.f32 %1 + 0, %9\n  %21 = load.f32 f32 %5 + 0\n  store.f32 %1 + 4, %21\n"
                     "  store.f32 %1 + 0, %20\n  jmp b3\n"
                     "b2:\n  %10 = fsub %2, %3\n  store.f32 %1 + 0, %10\n  jmp b3\nb3:\n  %11 = fsub %2, %3\n  store.f32 %1 + 4, %11\n  ret\n}",
        "b0(%1, %2, %3, %4, %5):\n  %6 = fmul %2, %3\n  br %4, b1, b2\nb1:\n  %8 = fmul %3, %2\n  %9 = fadd %6, %8\n  %20 = load.f32 f32 %5 + 0\n  store.f32 %1 + 0, %9\n"
        "  store.f32 %1 + 4, %20\n  store.f32 %1 + 0, %20\n  jmp b3\nb2:\n  %10 = fsub %2, %3\n  store.f32 %1 + 0, %10\n  jmp b3\nb3:\n  %11 = fsub %2, %3\n  store.f32 %1 + 4, %11\n  ret\n}\n");
}

static void test_cse_loads(void) { /* a store to the space, anywhere, keeps loads apart */
  const char *text = "b0(%1):\n  %2 = load.f32 f32 %1 + 0\n  %3 = load.f32 f32 %1 + 0\n  %4 = fadd %2, %3\n  store.f32 %1 + 4, %4\n  ret\n}\n";
  after(ir_pass_cse, arena_printf(A, "fn @f(%%1: ptr<f32, global>) {\n%s", text), text);
}

static void test_dce(void) {
  after(ir_pass_dce, "fn @f(%1: ptr<i32, global>, %2: i32, %3: i1) {\nb0:\n  %4 = add %2, %2\n  jmp b1(%4, %2)\nb1(%5: i32, %6: i32):\n  %7 = add %5, %5\n  %8 = load.i32 i32 %1 + 0\n"
                     "  br %3, b1(%7, %6), b3\nb2:\n  jmp b3\nb3:\n  jmp b4\nb4:\n  store.i32 %1 + 0, %6\n  ret\n}",
        "b0(%1, %2, %3):\n  jmp b1(%2)\nb1(%6: i32):\n  br %3, b1(%6), b2\nb2:\n  store.i32 %1 + 0, %6\n  ret\n}\n");
}

/* A loop of 4 rounds with one load from %2 and one store to `to`. */
static void loop_case(const char *limit, const char *to, bool hoisted) {
  const char *load = "  %9 = load.f32 f32 %2 + 0\n", *splat = "  %10 = splat f32x4 %9\n";
  const char *fmt = "b0(%%1, %%2, %%3):\n  %%4 = load.ptr ptr<f32, global> %%1 + 0\n  %%5 = load.ptr ptr<f32, global> %%1 + 8\n  %%6 = const i64 0\n%s%s%s  jmp b1(%%6)\n"
                    "b1(%%7: i64):\n%s  %%8 = icmp.lt %%7, %%13\n  br %%8, b2, b3\nb2:\n%s%s  %%11 = const i64 1\n"
                    "  store.f32 %s, %%7*4 + 16, %%10\n  %%12 = add %%7, %%11\n  jmp b1(%%12)\nb3:\n  ret\n}\n";
  const char *head = "fn @f(%1: ptr<ptr, args>, %2: ptr<f32, global>, %3: i64) {\n";
  const char *before = arena_printf(A, fmt, "", "", "", limit, load, splat, to), *want = before;
  if (hoisted) want = arena_printf(A, fmt, load, splat, "", limit, "", "", to);
  after(ir_pass_licm, arena_printf(A, "%s%s", head, before), want);
}

static void test_licm(void) {
  const char *known = "  %13 = const i64 4\n";
  loop_case(known, "%4", true);
  loop_case(known, "%2", false);
  loop_case("  %13 = const i64 0\n", "%4", false);
  loop_case("  %13 = add %7, %3\n", "%4", false);
  after(ir_pass_licm, "fn @f(%1: ptr<f32, scratch>, %2: ptr<f32, global>, %3: i64, %4: f32) {\nb0:\n  %5 = const i64 0\n  %6 = icmp.gt %3, %5\n  br %6, b1(%5), b2\n"
                      "b1(%7: i64):\n  %8 = const f32 2\n  %9 = fmul %4, %8\n  %10 = load.f32 f32 %2 + 8\n  %11 = fmul %9, %10\n  store.f32 %1, %7*4 + 0, %11\n  %12 = const i64 1\n"
                      "  %13 = add %7, %12\n  %14 = icmp.lt %13, %3\n  br %14, b1(%13), b2\nb2:\n  ret\n}",
        "b0(%1, %2, %3, %4):\n  %5 = const i64 0\n  %6 = icmp.gt %3, %5\n  br %6, b3, b2\nb1(%7: i64):\n  %8 = const f32 2\n  store.f32 %1, %7*4 + 0, %11\n  %12 = const i64 1\n"
        "  %13 = add %7, %12\n  %14 = icmp.lt %13, %3\n  br %14, b1(%13), b2\nb2:\n  ret\nb3:\n  %16 = const f32 2\n  %9 = fmul %4, %16\n  %10 = load.f32 f32 %2 + 8\n  %11 = fmul %9, %10\n  jmp b1(%5)\n}\n");
}

/* A long straight function and a deep one: no pass may be quadratic. The bound is generous: about ten times what it takes. */
static void test_time(void) {
  seed = 12345;
  Arena *a = arena_new("big");
  IrFn *fn = generate(a, 20000);
  int n = fn->n_ins, n_blocks = fn->n_blocks;
  int64_t t0 = os_now_ns();
  for (size_t p = 0; p < COUNT_OF(passes); p++) passes[p].run(fn);
  EXPECT_OK(ir_fn_verify(fn));
  double ms = (double)(os_now_ns() - t0) / 1e6;
  printf("# %d values, %d blocks: passes and verifier %.1f ms\n", n, n_blocks, ms);
  EXPECT(ms < 500 * test_patience(), "%f ms", ms);
  arena_free(a);
}

int main(int argc, char **argv) {
  A = arena_new("test");
  if (argc > 1) { /* more seeds by hand: FIRST COUNT */
    TEST("ir/passes: given seeds") for (uint64_t s = strtoull(argv[1], NULL, 0), end = s + (argc > 2 ? strtoull(argv[2], NULL, 0) : 1); s < end && check_random(s); s++) {}
    TEST_MAIN_END();
  }
  TEST("ir/passes: fold") test_fold();
  TEST("ir/passes: fold powers of two") test_fold_powers();
  TEST("ir/passes: cse") test_cse();
  TEST("ir/passes: cse and loads") test_cse_loads();
  TEST("ir/passes: licm") test_licm();
  TEST("ir/passes: dce") test_dce();
  TEST("ir/passes: random functions keep their results") test_random();
  TEST("ir/passes: time") test_time();
  arena_free(A);
  TEST_MAIN_END();
}
