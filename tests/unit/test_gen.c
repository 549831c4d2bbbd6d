/* Code generation against the interpreter, bit for bit (any NaN equals any NaN): every op, type and target that this machine runs, on
   random operands with the edge values among them; whole random functions with loops and more live values than registers; the
   integer micro-kernel, whose inner loop must have neither spills nor moves. runtests: machine code */
#include <inttypes.h>
#include <math.h>
#include "dev/dev.h"
#include "kern/kern.h"
#include "test.h"

enum { IN_BYTES = 4096, OUT_BYTES = 4096, N_TRIES = 12 };
static uint64_t seed = 88172645463325252ull;
static uint32_t rnd(void) {
  seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
  return (uint32_t)(seed >> 16);
}
static uint32_t rnd_edge(void) {
  static const uint32_t edges[] = {0, 0x80000000, 1, 0x80000001, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x7f800001, 0x7fffffff, 0xffffffff,
                                   0x3f800000, 0xbf800000, 0x3f000000, 0x3fc00000, 0x40200000, 0x007fffff, 0x00800000, 0x4effffff, 0x4f000000,
                                   0xcf000000, 0x4b800000, 0x33000000, 0x387fc000, 0x38800000, 0x477ff000, 0x477fefff, 0x7f7fffff, 0x3f800001, 0xc0600000};
  uint32_t r = rnd();
  if (r % 4 == 0) return edges[rnd() % COUNT_OF(edges)];
  if (r % 4 == 1) return f32_to_bits((float)((int)(rnd() % 2001) - 1000) / 8);
  if (r % 4 == 2) return rnd() % 64;
  return rnd();
}

static Arena *arena;
static DevCode *code;
static const char *only;   /* a target, when named on the command line */

typedef void Entry(const void *in, void *out);
static bool same_bits(uint32_t a, uint32_t b, bool flt) {
  if (a == b) return true;
  return flt && (a & 0x7fffffff) > 0x7f800000 && (b & 0x7fffffff) > 0x7f800000;
}

static void fill(uint8_t *p, uint32_t (*next)(void)) {
  for (int i = 0; i < IN_BYTES; i += 4) { uint32_t v = next(); memcpy(p + i, &v, 4); }
}

static void fail_text(const IrFn *fn, const char *label, const Target *t, const char *why, const char *text) {
  Str s = {0};
  ir_fn_print(fn, &s);
  test_fail(__FILE__, __LINE__, "%s on %s: %s", label, t->name, why);
  if (getenv("GEN_SHOW")) fprintf(stderr, "%s on %s: %s\n%s\n%s\n", label, t->name, why, s.p, text ? text : "");
  str_free(&s);
}

/* Runs fn(in, out) on every target and in the interpreter; the output is words, floats when flt. */
static void check_fn_with(const IrFn *fn, const char *label, bool flt, int n_tries, uint32_t (*next)(void)) {
  static _Alignas(64) uint8_t in[IN_BYTES], want[OUT_BYTES], got[OUT_BYTES], in2[IN_BYTES];
  Err *e = ir_fn_verify(fn);
  if (e) { test_fail(__FILE__, __LINE__, "%s: %s", label, err_text(e)); err_free(e); return; }
  GenCpu cpu = kern_cpu();
  for (int k = 0; k < gen_target_count(); k++) {
    const Target *t = gen_target_get(k);
    if (!gen_target_runs(t, cpu) || (only && strcmp(only, t->name))) continue;
    Arena *a = arena_new("case");
    GenCode c = {0};
    const void *entry = NULL;
    e = gen_compile(a, fn, t, &(GenOptions){.want_text = getenv("GEN_SHOW") != NULL}, &c);
    if (!e) e = dev_code_add(code, fn->name, c.code, c.n_bytes, &entry);
    if (e) { fail_text(fn, label, t, err_text(e), NULL); err_free(e); arena_free(a); return; }
    IrFn *legal = gen_legalize(a, fn, t);
    e = ir_fn_verify(legal);
    if (e) { fail_text(legal, label, t, err_text(e), NULL); err_free(e); }
    Entry *run;
    memcpy(&run, &entry, sizeof run);
    bool bad = false;
    for (int i = 0; i < n_tries && !bad; i++) {
      fill(in, next);
      memcpy(in2, in, sizeof in);
      for (int j = 0; j < OUT_BYTES; j++) want[j] = got[j] = (uint8_t)(j * 7 + 13);
      IrSpan spans[2] = {{in, IN_BYTES, false}, {want, OUT_BYTES, true}};
      e = ir_interp(fn, (uint64_t[]){(uint64_t)(uintptr_t)in, (uint64_t)(uintptr_t)want}, 2, spans, 2, 10000000);
      if (e) { fail_text(fn, label, t, err_text(e), NULL); err_free(e); bad = true; break; }
      run(in, got);
      if (memcmp(in, in2, sizeof in)) { fail_text(fn, label, t, "wrote its input", c.text); bad = true; break; }
      for (int w = 0; w < OUT_BYTES && !bad; w += 4) {
        uint32_t x, y;
        memcpy(&x, want + w, 4), memcpy(&y, got + w, 4);
        if (same_bits(x, y, flt)) continue;
        bad = true;
        char why[200];
        snprintf(why, sizeof why, "word %d: got %08x, want %08x; inputs of this lane %08x %08x %08x", w / 4, y, x, *(uint32_t *)(void *)(in + (w & 63)),
                 *(uint32_t *)(void *)(in + 64 + (w & 63)), *(uint32_t *)(void *)(in + 128 + (w & 63)));
        fail_text(fn, label, t, why, c.text);
      }
    }
    arena_free(a);
    if (bad) return;
  }
}
static void check_fn(const IrFn *fn, const char *label, bool flt) { check_fn_with(fn, label, flt, N_TRIES, rnd_edge); }

/* ---- one op at a time ---- */
typedef struct Case { IrBuild b; IrRef in, out; } Case;
static Case case_new(const char *name) {
  Case c = {.b = {ir_fn_new(arena, name), 0}};
  if (!c.b.fn->n_blocks) ir_block_add(c.b.fn);
  c.in = ir_param(c.b.fn, 0, ir_ptr_type(c.b.fn, (IrPtr){.mem = IR_M_f32, .space = IR_S_global, .n_dims = 1, .dim = {-1}}));
  c.out = ir_param(c.b.fn, 0, ir_ptr_type(c.b.fn, (IrPtr){.mem = IR_M_f32, .space = IR_S_global, .n_dims = 1, .dim = {-1}}));
  return c;
}
static IrMem mem_of(IrElt e) { return e == IR_E_F32 ? IR_M_f32 : e == IR_E_I64 ? IR_M_i64 : IR_M_i32; }
static IrRef arg_load(Case *c, IrElt e, int lanes, int k) {
  if (e == IR_E_I1) {
    IrRef x = ir_load(&c->b, IR_M_i32, ir_vec_type(IR_E_I32, lanes), c->in, 0, 1, k * 64);
    return ir_cmp(&c->b, IR_icmp, IR_P_lt, x, ir_const_i(&c->b, ir_vec_type(IR_E_I32, lanes), 20));
  }
  return ir_load(&c->b, mem_of(e), ir_vec_type(e, lanes), c->in, 0, 1, k * 64);
}
static void result_store(Case *c, IrRef v, int at) {
  IrFn *fn = c->b.fn;
  IrElt e = ir_type_elt(fn, ir_type_of(fn, v));
  int lanes = ir_type_lanes(fn, ir_type_of(fn, v));
  if (e == IR_E_I1) {
    IrType t = ir_vec_type(IR_E_I32, lanes);
    v = ir_op3(&c->b, IR_select, v, ir_const_i(&c->b, t, 111), ir_const_i(&c->b, t, 222));
    e = IR_E_I32;
  }
  ir_store(&c->b, mem_of(e), c->out, 0, 1, at, v, 0);
}
static void result_check(Case *c, IrRef v, const char *label, bool flt) {
  result_store(c, v, 0);
  ir_ret(&c->b);
  check_fn(c->b.fn, label, flt);
}
static const int all_lanes[] = {1, 4, 8, 16};

static void test_lanewise(IrOp op, IrElt e, int n_args) {
  for (size_t i = 0; i < COUNT_OF(all_lanes); i++) {
    if (e == IR_E_I64 && all_lanes[i] > 1) continue;
    for (int form = 0; form < (n_args > 1 ? 5 : 1); form++) { /* plain; same operand twice; one used again; a constant */
      Case c = case_new(ir_op_name[op]);
      IrRef a[3] = {0};
      for (int k = 0; k < n_args; k++) a[k] = arg_load(&c, e, all_lanes[i], k);
      if (form == 1) a[1] = a[0];
      if (form >= 3 && e != IR_E_I1) {
        IrType t = ir_type_of(c.b.fn, a[0]);
        a[form - 3] = e == IR_E_F32 ? ir_const_f(&c.b, t, 1.25f) : ir_const_i(&c.b, t, -7);
      }
      IrRef v = n_args == 1 ? ir_op1(&c.b, op, a[0]) : n_args == 2 ? ir_op2(&c.b, op, a[0], a[1]) : ir_op3(&c.b, op, a[0], a[1], a[2]);
      if (form == 2) for (int k = 0; k < n_args; k++) result_store(&c, a[k], 256 + 64 * k);
      result_check(&c, v, arena_printf(arena, "%s.%d x%d form %d", ir_op_name[op], e, all_lanes[i], form), e == IR_E_F32);
    }
  }
}

static void test_shuf(int lanes) {
  for (int form = 0; form < 3; form++) { /* any bytes; the same operand twice; a table that is used again */
    Case c = case_new("shuf");
    IrRef t = arg_load(&c, IR_E_I32, lanes, 0), by = form == 1 ? t : arg_load(&c, IR_E_I32, lanes, 1);
    IrRef v = ir_op2(&c.b, IR_shuf, t, by);
    if (form == 2) result_store(&c, t, 256);
    result_check(&c, v, arena_printf(arena, "shuf x%d form %d", lanes, form), false);
  }
}

static void test_pick(int lanes) {
  for (int form = 0; form < 3; form++) { /* any numbers; masked, which changes nothing; a table that is used again */
    Case c = case_new("pick");
    IrRef at = arg_load(&c, IR_E_I32, lanes, 0), from = arg_load(&c, IR_E_F32, lanes, 1);
    if (form == 1) at = ir_op2(&c.b, IR_and, at, ir_const_i(&c.b, ir_type_of(c.b.fn, at), lanes - 1));
    IrRef v = ir_op2(&c.b, IR_pick, at, from);
    if (form == 2) result_store(&c, from, 256);
    result_check(&c, v, arena_printf(arena, "pick x%d form %d", lanes, form), true);
  }
}

static void test_compare(IrOp op, IrElt e) {
  for (size_t i = 0; i < COUNT_OF(all_lanes); i++)
    for (int p = IR_P_eq; p <= IR_P_ge; p++)
      for (int form = 0; form < 3; form++) { /* as a value; choosing floats; choosing integers */
        if (e == IR_E_I64 && all_lanes[i] > 1) continue;
        Case c = case_new(ir_op_name[op]);
        IrRef a = arg_load(&c, e, all_lanes[i], 0), b = arg_load(&c, e, all_lanes[i], 1);
        IrRef v = ir_cmp(&c.b, op, (IrPred)p, a, b);
        if (form) v = ir_op3(&c.b, IR_select, v, arg_load(&c, form == 1 ? IR_E_F32 : IR_E_I32, all_lanes[i], 2), arg_load(&c, form == 1 ? IR_E_F32 : IR_E_I32, all_lanes[i], 3));
        result_check(&c, v, arena_printf(arena, "%s.%s.%d x%d form %d", ir_op_name[op], ir_pred_name[p], e, all_lanes[i], form), form == 1);
      }
}

static void test_memory(void) {
  static const IrMem loads[] = {IR_M_u8, IR_M_i8, IR_M_u16, IR_M_i16, IR_M_i32, IR_M_f16, IR_M_bf16, IR_M_f32};
  for (size_t m = 0; m < COUNT_OF(loads); m++)
    for (size_t i = 0; i < COUNT_OF(all_lanes); i++) {
      bool f = loads[m] == IR_M_f16 || loads[m] == IR_M_bf16 || loads[m] == IR_M_f32;
      IrType t = ir_vec_type(f ? IR_E_F32 : IR_E_I32, all_lanes[i]);
      Case c = case_new("load");
      IrRef idx = ir_op1(&c.b, IR_sext, ir_op2(&c.b, IR_and, ir_load(&c.b, IR_M_i32, IR_T_i32, c.in, 0, 1, 8), ir_const_i(&c.b, IR_T_i32, 31)));
      result_store(&c, ir_load(&c.b, loads[m], t, c.in, 0, 1, 3), 0);
      result_store(&c, ir_load(&c.b, loads[m], t, c.in, idx, ir_mem_bytes[loads[m]], -0), 128);
      result_store(&c, ir_load(&c.b, loads[m], t, ir_padd(&c.b, c.in, ir_shift(&c.b, IR_shl, idx, 2)), ir_op2(&c.b, IR_add, idx, ir_const_i(&c.b, IR_T_i64, 5)), 2, 1), 256);
      ir_ret(&c.b);
      check_fn(c.b.fn, arena_printf(arena, "load.%s x%d", ir_mem_name[loads[m]], all_lanes[i]), f);
    }
  static const IrMem stores[] = {IR_M_u8, IR_M_u16, IR_M_i32, IR_M_f16, IR_M_bf16, IR_M_f32};
  for (size_t m = 0; m < COUNT_OF(stores); m++)
    for (size_t i = 0; i < COUNT_OF(all_lanes); i++)
      for (int n = 0; n < all_lanes[i]; n++) {
        bool f = stores[m] == IR_M_f16 || stores[m] == IR_M_bf16 || stores[m] == IR_M_f32;
        Case c = case_new("store");
        IrRef v = arg_load(&c, f ? IR_E_F32 : IR_E_I32, all_lanes[i], 0);
        ir_store(&c.b, stores[m], c.out, 0, 1, 5, v, n);
        ir_ret(&c.b);
        check_fn(c.b.fn, arena_printf(arena, "store.%s x%d lanes %d", ir_mem_name[stores[m]], all_lanes[i], n), stores[m] == IR_M_f32);
      }
}

static uint32_t rnd_offset(void) { return rnd() % 2000; }
static void test_gather(void) {
  static const IrMem mems[] = {IR_M_u8, IR_M_i8, IR_M_u16, IR_M_i16, IR_M_i32, IR_M_f32};
  for (size_t m = 0; m < COUNT_OF(mems); m++)
    for (int lanes = 4; lanes <= 16; lanes *= 2) {
      Case c = case_new("gather");
      IrRef offs = arg_load(&c, IR_E_I32, lanes, 0);
      IrRef v = ir_gather(&c.b, mems[m], ir_vec_type(mems[m] == IR_M_f32 ? IR_E_F32 : IR_E_I32, lanes), c.in, offs, 40);
      result_store(&c, v, 0);
      ir_ret(&c.b);
      check_fn_with(c.b.fn, arena_printf(arena, "gather.%s x%d", ir_mem_name[mems[m]], lanes), mems[m] == IR_M_f32, N_TRIES, rnd_offset);
    }
}

/* Displacements beyond 32 bits, products of indices, pointers built in steps: every way an address can fold. */
static void test_addresses(void) {
  Case c = case_new("address");
  IrBuild *b = &c.b;
  int64_t far = (int64_t)1 << 33;
  IrRef low = ir_padd(b, c.in, ir_const_i(b, IR_T_i64, -far)), out = ir_padd(b, c.out, ir_const_i(b, IR_T_i64, -far));
  IrRef i = ir_op2(b, IR_and, arg_load(&c, IR_E_I64, 1, 3), ir_const_i(b, IR_T_i64, 31));
  ir_store(b, IR_M_i32, out, 0, 1, far, ir_load(b, IR_M_i32, IR_T_i32, low, 0, 1, far + 8), 0);
  ir_store(b, IR_M_i32, c.out, ir_const_i(b, IR_T_i64, 3), 8, 4, ir_load(b, IR_M_i32, IR_T_i32, low, i, 4, far), 0);
  ir_store(b, IR_M_i32, ir_padd(b, c.out, ir_op2(b, IR_mul, i, ir_const_i(b, IR_T_i64, 4))), 0, 1, 64, ir_load(b, IR_M_i32, IR_T_i32, c.in, ir_op2(b, IR_mul, i, ir_const_i(b, IR_T_i64, 2)), 4, 12), 0);
  IrRef p = ir_padd(b, ir_padd(b, c.in, ir_shift(b, IR_shl, i, 3)), i);
  result_store(&c, ir_load(b, IR_M_f32, IR_T_f32x16, p, ir_shift(b, IR_shl, ir_op2(b, IR_add, i, ir_const_i(b, IR_T_i64, 7)), 1), 4, -20), 512);
  IrRef offs = ir_op2(b, IR_and, arg_load(&c, IR_E_I32, 16, 5), ir_const_i(b, IR_T_i32x16, 255));
  result_store(&c, ir_gather(b, IR_M_u16, IR_T_i32x16, ir_padd(b, low, i), offs, far + 64), 1024);
  ir_prefetch(b, p, i, 8, 64);
  ir_ret(b);
  check_fn(b->fn, "addresses", false);
}

static uint32_t rnd_codes(void) {
  uint32_t r = rnd();
  for (int i = 0; i < 4; i++) if ((r >> 8 * i & 255) == 128) r ^= 1u << 8 * i;
  return r;
}
static void test_dot4(void) {
  static const int bounds[] = {15, 127, 128, 255};
  for (size_t k = 0; k < COUNT_OF(bounds); k++)
    for (int lanes = 4; lanes <= 16; lanes *= 2) {
      Case c = case_new("dot4");
      int mask = bounds[k] == 128 ? 127 : bounds[k];
      IrRef acc = arg_load(&c, IR_E_I32, lanes, 0), u = arg_load(&c, IR_E_I32, lanes, 1), s = arg_load(&c, IR_E_I32, lanes, 2);
      u = ir_op2(&c.b, IR_and, u, ir_const_i(&c.b, ir_type_of(c.b.fn, u), (int32_t)(0x01010101u * (uint32_t)mask)));
      IrRef one = ir_splat(&c.b, ir_load(&c.b, IR_M_i32, IR_T_i32, c.in, 0, 1, 200), lanes);
      IrRef v = ir_dot4(&c.b, acc, u, s, bounds[k]);
      v = ir_dot4(&c.b, v, u, one, bounds[k]);
      result_store(&c, ir_dot4(&c.b, ir_const_i(&c.b, ir_type_of(c.b.fn, u), 0), u, s, bounds[k]), 64);
      result_store(&c, v, 0);
      ir_ret(&c.b);
      check_fn_with(c.b.fn, arena_printf(arena, "dot4 bound %d x%d", bounds[k], lanes), false, N_TRIES, rnd_codes);
    }
  /* Chains from zero: they may stay narrow up to a sum of bounds, and the codes here reach every bound. */
  static const int chain[][2] = {{15, 8}, {15, 9}, {15, 20}, {64, 2}, {65, 2}, {127, 3}};
  for (size_t k = 0; k < COUNT_OF(chain); k++)
    for (int shared = 0; shared < 2; shared++) {
      Case c = case_new("dot4 chain");
      IrRef u = ir_const_i(&c.b, IR_T_i32x16, (int32_t)(0x01010101u * (uint32_t)chain[k][0])), acc = ir_const_i(&c.b, IR_T_i32x16, 0);
      for (int i = 0; i < chain[k][1]; i++) {
        IrRef s = i % 2 ? arg_load(&c, IR_E_I32, 16, i) : ir_const_i(&c.b, IR_T_i32x16, i % 4 ? 0x7f7f7f7f : (int32_t)0x81818181);
        if (!shared) s = ir_const_i(&c.b, IR_T_i32x16, 0x7f7f7f7f);
        acc = ir_dot4(&c.b, acc, u, s, chain[k][0]);
        if (shared && i == 1) result_store(&c, acc, 64);
      }
      result_store(&c, acc, 0);
      ir_ret(&c.b);
      check_fn_with(c.b.fn, arena_printf(arena, "chain of %d dot4, bound %d", chain[k][1], chain[k][0]), false, 3, rnd_codes);
    }
}

/* Two bfloat16 near 1, or 0: of their products, and of floats that look like them, no sum is denormal. */
static uint32_t rnd_pair(void) {
  uint32_t r = rnd(), w = 0;
  for (int i = 0; i < 32; i += 16) if (r >> i & 7) w |= (0x3b00u + (r >> i & 0x8fff) % 0x900) << i | (r >> i & 8) << (12 + i);
  return w >> 16 ? w : 0;
}
static void test_dot2(void) {
  for (int lanes = 4; lanes <= 16; lanes *= 2) {
    Case c = case_new("dot2");
    IrRef acc = arg_load(&c, IR_E_F32, lanes, 0), a = arg_load(&c, IR_E_I32, lanes, 1), b = arg_load(&c, IR_E_I32, lanes, 2);
    IrRef same = ir_splat(&c.b, ir_load(&c.b, IR_M_i32, IR_T_i32, c.in, 0, 1, 200), lanes);
    IrRef v = ir_op3(&c.b, IR_dot2, acc, a, b);
    result_store(&c, ir_op3(&c.b, IR_dot2, v, b, same), 0);
    result_store(&c, ir_op3(&c.b, IR_dot2, ir_op3(&c.b, IR_dot2, ir_const_f(&c.b, ir_type_of(c.b.fn, acc), 0), a, same), a, a), 64);
    result_store(&c, ir_op3(&c.b, IR_dot2, acc, ir_const_i(&c.b, ir_type_of(c.b.fn, a), 0x3f80c000), b), 128);
    ir_ret(&c.b);
    check_fn_with(c.b.fn, arena_printf(arena, "dot2 x%d", lanes), true, N_TRIES, rnd_pair);
  }
}

static void test_lane_ops(void) {
  for (int lanes = 4; lanes <= 16; lanes *= 2)
    for (int f = 0; f < 2; f++) {
      IrElt e = f ? IR_E_F32 : IR_E_I32;
      for (int lane = 0; lane < lanes; lane++) {
        Case c = case_new("lane");
        IrRef v = arg_load(&c, e, lanes, 0), x = arg_load(&c, e, 1, 1);
        result_store(&c, ir_extract(&c.b, v, lane), 128);
        result_check(&c, ir_insert(&c.b, v, x, lane), arena_printf(arena, "lane %d of x%d.%d", lane, lanes, e), f);
      }
      static const IrOp red[] = {IR_radd, IR_rmax, IR_rmin};
      for (int k = 0; k < 3; k++) {
        Case c = case_new(ir_op_name[red[k]]);
        result_check(&c, ir_op1(&c.b, red[k], arg_load(&c, e, lanes, 0)), arena_printf(arena, "%s x%d.%d", ir_op_name[red[k]], lanes, e), f);
      }
      Case c = case_new("splat");
      IrRef x = arg_load(&c, e, 1, 0);
      result_store(&c, ir_splat(&c.b, f ? ir_op2(&c.b, IR_fadd, x, x) : ir_op2(&c.b, IR_add, x, x), lanes), 64);
      if (!f) result_store(&c, ir_iota(&c.b, lanes), 128);
      result_check(&c, ir_splat(&c.b, x, lanes), arena_printf(arena, "splat x%d.%d", lanes, e), f);
      Case d = case_new("choose");
      IrRef cond = arg_load(&d, IR_E_I1, 1, 0), m = ir_splat(&d.b, cond, lanes), y = arg_load(&d, e, lanes, 1), z = arg_load(&d, e, lanes, 2);
      result_store(&d, ir_op3(&d.b, IR_select, cond, y, z), 64);
      result_store(&d, ir_op3(&d.b, IR_select, ir_op2(&d.b, IR_bxor, m, arg_load(&d, IR_E_I1, lanes, 3)), y, z), 128);
      result_check(&d, ir_op3(&d.b, IR_select, m, z, y), arena_printf(arena, "choose x%d.%d", lanes, e), f);
    }
}

static void test_conversions(void) {
  for (size_t i = 0; i < COUNT_OF(all_lanes); i++) {
    struct { IrOp op; IrElt from; bool flt; } k[] = {{IR_i2f, IR_E_I32, true}, {IR_f2i, IR_E_F32, false}, {IR_bits, IR_E_F32, true}, {IR_bits, IR_E_I32, true}};
    for (size_t j = 0; j < COUNT_OF(k); j++) {
      Case c = case_new(ir_op_name[k[j].op]);
      IrRef x = arg_load(&c, k[j].from, all_lanes[i], 0);
      result_store(&c, ir_op1(&c.b, k[j].op, k[j].from == IR_E_F32 ? ir_op1(&c.b, IR_fneg, x) : ir_op2(&c.b, IR_add, x, x)), 64);
      result_check(&c, ir_op1(&c.b, k[j].op, x), arena_printf(arena, "%s.%d x%d", ir_op_name[k[j].op], k[j].from, all_lanes[i]), k[j].flt);
    }
  }
  Case c = case_new("widen");
  IrRef x = arg_load(&c, IR_E_I32, 1, 0), w = arg_load(&c, IR_E_I64, 1, 1);
  result_store(&c, ir_op1(&c.b, IR_sext, x), 0);
  result_store(&c, ir_op1(&c.b, IR_zext, ir_op2(&c.b, IR_sub, x, ir_op1(&c.b, IR_trunc, w))), 8);
  result_store(&c, ir_op1(&c.b, IR_sext, ir_op1(&c.b, IR_trunc, w)), 16);
  result_check(&c, ir_op1(&c.b, IR_trunc, w), "widen", false);
}

static void test_shifts(void) {
  static const IrOp ops[] = {IR_shl, IR_shr, IR_sar};
  for (int k = 0; k < 3; k++)
    for (size_t i = 0; i < COUNT_OF(all_lanes); i++)
      for (int by = 0; by < 32; by += 5) {
        Case c = case_new("shift");
        IrRef v = ir_shift(&c.b, ops[k], arg_load(&c, IR_E_I32, all_lanes[i], 0), by);
        if (all_lanes[i] == 1) result_store(&c, ir_shift(&c.b, ops[k], arg_load(&c, IR_E_I64, 1, 1), by * 2), 64);
        result_check(&c, v, arena_printf(arena, "%s x%d by %d", ir_op_name[ops[k]], all_lanes[i], by), false);
      }
}

static void test_divide(void) {
  for (int wide = 0; wide < 2; wide++)
    for (int form = 0; form < 4; form++) {
      IrElt e = wide ? IR_E_I64 : IR_E_I32;
      Case c = case_new("divide");
      IrRef a = arg_load(&c, e, 1, 0), b = ir_op2(&c.b, IR_or, arg_load(&c, e, 1, 1), ir_const_i(&c.b, ir_vec_type(e, 1), 1));
      if (form == 1) b = ir_const_i(&c.b, ir_vec_type(e, 1), 64);
      if (form == 2) b = ir_const_i(&c.b, ir_vec_type(e, 1), 7);
      if (form == 3) a = b;
      result_store(&c, ir_op2(&c.b, IR_urem, a, b), 64);
      result_store(&c, a, 72);
      result_check(&c, ir_op2(&c.b, IR_udiv, a, b), arena_printf(arena, "divide wide %d form %d", wide, form), false);
    }
}

/* ---- whole functions ---- */
/* n values live around a loop of `trips` turns; each turn mixes them, permutes them and stores one. */
static void random_fn(int n, int trips, bool flt, int inner) {
  Case c = case_new("random");
  IrFn *fn = c.b.fn;
  IrRef init[64], p[64], q[64];
  int lanes = 16;
  for (int i = 0; i < n; i++) init[i] = i % 5 == 4 ? ir_load(&c.b, IR_M_i32, IR_T_i32, c.in, 0, 1, i * 60) : ir_load(&c.b, flt ? IR_M_f32 : IR_M_i32, ir_vec_type(flt ? IR_E_F32 : IR_E_I32, lanes), c.in, 0, 1, i * 60);
  init[n] = ir_const_i(&c.b, IR_T_i64, 0);
  int head = ir_block_add(fn), body = ir_block_add(fn), done = ir_block_add(fn), in_head = inner ? ir_block_add(fn) : 0;
  for (int i = 0; i <= n; i++) p[i] = ir_param(fn, head, ir_type_of(fn, init[i]));
  ir_jmp(&c.b, head, init, n + 1);
  c.b.at = head;
  ir_br(&c.b, ir_cmp(&c.b, IR_icmp, IR_P_lt, p[n], ir_const_i(&c.b, IR_T_i64, trips)), body, NULL, 0, done, NULL, 0);
  c.b.at = body;
  if (inner) {
    IrRef j0 = ir_const_i(&c.b, IR_T_i64, 0), args[2] = {j0, p[0]};
    ir_jmp(&c.b, in_head, args, 2);
    IrRef j = ir_param(fn, in_head, IR_T_i64), acc = ir_param(fn, in_head, ir_type_of(fn, p[0]));
    c.b.at = in_head;
    acc = ir_op2(&c.b, flt ? IR_fadd : IR_add, acc, ir_load(&c.b, flt ? IR_M_f32 : IR_M_i32, ir_type_of(fn, acc), c.in, j, 4, 0));
    IrRef j2 = ir_op2(&c.b, IR_add, j, ir_const_i(&c.b, IR_T_i64, 1));
    int after = ir_block_add(fn);
    IrRef back[2] = {j2, acc};
    ir_br(&c.b, ir_cmp(&c.b, IR_icmp, IR_P_lt, j2, ir_const_i(&c.b, IR_T_i64, 3)), in_head, back, 2, after, &acc, 1);
    c.b.at = after;
    q[0] = ir_param(fn, after, ir_type_of(fn, acc));
  } else q[0] = p[0];
  for (int i = 1; i < n; i++) q[i] = p[i];
  for (int step = 0; step < n; step++) {
    int i = (int)(rnd() % (unsigned)n), k = (int)(rnd() % (unsigned)n), r = (int)(rnd() % 3);
    if ((i % 5 == 4) != (k % 5 == 4)) {
      if (i % 5 == 4) continue;
      IrRef w = ir_splat(&c.b, q[k], lanes);
      q[i] = ir_op2(&c.b, flt ? IR_fadd : IR_add, q[i], flt ? ir_op1(&c.b, IR_i2f, w) : w);
      continue;
    }
    if (i % 5 == 4) q[i] = ir_op2(&c.b, r == 0 ? IR_add : r == 1 ? IR_xor : IR_sub, q[i], q[k]);
    else if (flt) q[i] = r == 0 ? ir_op3(&c.b, IR_fma, q[i], q[k], q[k - k % 5]) : ir_op2(&c.b, r == 1 ? IR_fadd : IR_fmax, q[i], q[k]);
    else q[i] = ir_op2(&c.b, r == 0 ? IR_add : r == 1 ? IR_xor : IR_smax, q[i], q[k]);
  }
  /* Permute the vectors among themselves: cycles on the back edge. */
  IrRef first = q[0], scalar = n > 4 ? q[4] : 0;
  for (int i = 0; i + 1 < n && i < 3; i++) q[i] = q[i + 1];
  if (n > 3) q[3] = first;
  if (n > 9) { q[4] = q[9]; q[9] = scalar; }
  IrRef at = ir_op2(&c.b, IR_and, p[n], ir_const_i(&c.b, IR_T_i64, 15));
  ir_store(&c.b, flt ? IR_M_f32 : IR_M_i32, c.out, ir_shift(&c.b, IR_shl, at, 6), 1, 0, q[0], 0);
  q[n] = ir_op2(&c.b, IR_add, p[n], ir_const_i(&c.b, IR_T_i64, 1));
  ir_jmp(&c.b, head, q, n + 1);
  c.b.at = done;
  for (int i = 0; i < n; i++) ir_store(&c.b, i % 5 == 4 ? IR_M_i32 : flt ? IR_M_f32 : IR_M_i32, c.out, 0, 1, 1024 + 64 * (i % 40), p[i], 0);
  ir_ret(&c.b);
  check_fn_with(fn, arena_printf(arena, "random function, %d values, %d turns, float %d, inner %d", n, trips, flt, inner), flt, 2, rnd_edge);
}

/* The micro-kernel of a packed integer matrix product: `tokens` tokens times 16 rows, groups of 32 along K. */
static IrFn *micro_kernel(int tokens) {
  Case c = case_new("micro");
  IrBuild *b = &c.b;
  IrFn *fn = b->fn;
  IrType v = IR_T_i32x16, f = IR_T_f32x16;
  int head = ir_block_add(fn), done = ir_block_add(fn);
  int n = tokens + 3;
  IrRef init[32], par[32], next[32], x = ir_padd(b, c.in, ir_const_i(b, IR_T_i64, 2048));
  init[0] = init[tokens + 1] = init[tokens + 2] = ir_const_i(b, IR_T_i64, 0);
  for (int t = 0; t < tokens; t++) init[t + 1] = ir_const_f(b, f, 0);
  par[0] = ir_param(fn, head, IR_T_i64);
  for (int t = 0; t < tokens; t++) par[t + 1] = ir_param(fn, head, f);
  par[tokens + 1] = ir_param(fn, head, IR_T_i64), par[tokens + 2] = ir_param(fn, head, IR_T_i64);
  ir_jmp(b, head, init, n);
  b->at = head;
  IrRef acc[16], w = ir_padd(b, c.in, par[tokens + 1]), xi = par[tokens + 2];
  for (int t = 0; t < tokens; t++) acc[t] = ir_const_i(b, v, 0);
  for (int i = 0; i < 8; i++) {
    IrRef codes = ir_op2(b, IR_and, ir_load(b, IR_M_i32, v, w, 0, 1, i * 64), ir_const_i(b, v, 0x0f0f0f0f));
    for (int t = 0; t < tokens; t++)
      acc[t] = ir_dot4(b, acc[t], codes, ir_splat(b, ir_load(b, IR_M_i32, IR_T_i32, x, xi, 1, t * 64 + i * 4), 16), 15);
  }
  IrRef d = ir_load(b, IR_M_f16, f, c.in, par[0], 8, 0);
  for (int t = 0; t < tokens; t++) {
    IrRef s = ir_splat(b, ir_load(b, IR_M_f32, IR_T_f32, x, par[0], 4, 1024 + t * 8), 16), bias = ir_splat(b, ir_load(b, IR_M_f32, IR_T_f32, x, par[0], 4, 1224 + t * 8), 16);
    next[t + 1] = ir_op3(b, IR_fma, ir_op3(b, IR_fma, ir_op1(b, IR_i2f, acc[t]), s, bias), d, par[t + 1]);
  }
  next[0] = ir_op2(b, IR_add, par[0], ir_const_i(b, IR_T_i64, 1));
  next[tokens + 1] = ir_op2(b, IR_add, par[tokens + 1], ir_const_i(b, IR_T_i64, 512));
  next[tokens + 2] = ir_op2(b, IR_add, par[tokens + 2], ir_const_i(b, IR_T_i64, 32));
  ir_br(b, ir_cmp(b, IR_icmp, IR_P_lt, next[0], ir_const_i(b, IR_T_i64, 2)), head, next, n, done, NULL, 0);
  b->at = done;
  for (int t = 0; t < tokens; t++) ir_store(b, IR_M_f32, c.out, 0, 1, 64 * t, next[t + 1], 0);
  ir_ret(b);
  return fn;
}

static void test_micro(void) {
  IrFn *fn = micro_kernel(12);
  check_fn_with(fn, "micro-kernel", true, 3, rnd_codes);
  for (int k = 0; k < gen_target_count(); k++) {
    const Target *t = gen_target_get(k);
    GenCode c;
    int64_t t0 = os_now_ns();
    EXPECT_OK(gen_compile(arena, fn, t, NULL, &c));
    printf("# %s: %d instructions, %d spills, %d moves; loop: %d, %d, %d; %zu bytes, compiled in %d us\n", t->name, c.n_ins, c.n_spills, c.n_moves,
           c.n_loop_ins, c.n_loop_spills, c.n_loop_moves, c.n_bytes, (int)((os_now_ns() - t0) / 1000));
    if (!t->vnni) continue;
    EXPECT(c.n_loop_spills == 0 && c.n_loop_moves == 0, "%d spills, %d moves in the loop", c.n_loop_spills, c.n_loop_moves);
  }
}

/* ---- random programs: ifs and loops over a set of variables of every type, all of which travel through block parameters ---- */
enum { MAX_VARS = 48 };
typedef struct Prog { Case c; IrType type[MAX_VARS]; int n, n_left; } Prog;
static IrRef pick(Prog *p, IrRef *v, IrType t) {
  int at = (int)(rnd() % (unsigned)p->n);
  for (int i = 0; i < p->n; i++) if (p->type[(at + i) % p->n] == t) return v[(at + i) % p->n];
  return 0;
}
static IrRef prog_compare(Prog *p, IrRef *v, int lanes) {
  IrType t = ir_vec_type(rnd() % 2 ? IR_E_F32 : IR_E_I32, lanes);
  IrRef a = pick(p, v, t), b = pick(p, v, t);
  bool f = ir_type_elt(p->c.b.fn, t) == IR_E_F32;
  if (rnd() % 3 == 0) b = f ? ir_const_f(&p->c.b, t, 0.5f) : ir_const_i(&p->c.b, t, 9);
  return ir_cmp(&p->c.b, f ? IR_fcmp : IR_icmp, (IrPred)(IR_P_eq + rnd() % 6), a, b);
}
static IrRef prog_op(Prog *p, IrRef *v, IrType t) {
  static const IrOp fo[] = {IR_fadd, IR_fsub, IR_fmul, IR_fmin, IR_fmax}, io[] = {IR_add, IR_sub, IR_and, IR_or, IR_xor, IR_smin, IR_smax, IR_mul}, bo[] = {IR_band, IR_bor, IR_bxor};
  IrBuild *b = &p->c.b;
  IrElt e = ir_type_elt(b->fn, t);
  int lanes = ir_type_lanes(b->fn, t), r = (int)(rnd() % 8);
  IrRef x = pick(p, v, t), y = pick(p, v, t);
  if (e == IR_E_I1) return r < 4 ? prog_compare(p, v, lanes) : ir_op2(b, bo[r % 3], x, y);
  if (r == 0) y = e == IR_E_F32 ? ir_const_f(b, t, 1.5f) : ir_const_i(b, t, (int)(rnd() % 100) - 50);
  if (r == 1) return ir_op3(b, IR_select, lanes > 1 && rnd() % 2 ? pick(p, v, ir_vec_type(IR_E_I1, lanes)) : rnd() % 2 ? prog_compare(p, v, 1) : pick(p, v, IR_T_i1), x, y);
  if (e == IR_E_F32) {
    if (r == 2) return ir_op3(b, IR_fma, x, y, pick(p, v, t));
    if (r == 3) return lanes > 1 ? ir_splat(b, pick(p, v, IR_T_f32), lanes) : ir_extract(b, pick(p, v, IR_T_f32x16), (int)(rnd() % 16));
    if (r == 4) return ir_op1(b, IR_i2f, pick(p, v, ir_vec_type(IR_E_I32, lanes)));
    if (r == 5) return ir_op1(b, rnd() % 2 ? IR_fneg : IR_fabs, x);
    if (r == 6) return ir_load(b, IR_M_f32, t, p->c.in, ir_op2(b, IR_and, pick(p, v, IR_T_i64), ir_const_i(b, IR_T_i64, 255)), 4, 16);
    return ir_op2(b, fo[rnd() % COUNT_OF(fo)], x, y);
  }
  if (r == 2) return ir_shift(b, rnd() % 2 ? IR_shl : IR_sar, x, (int)(rnd() % 31));
  if (e == IR_E_I32 && r == 3) return lanes > 1 ? ir_splat(b, pick(p, v, IR_T_i32), lanes) : ir_op1(b, IR_f2i, pick(p, v, IR_T_f32));
  if (e == IR_E_I32 && r == 4 && lanes == 1) return ir_op1(b, rnd() % 2 ? IR_radd : IR_rmax, pick(p, v, IR_T_i32x16));
  if (e == IR_E_I64 && r == 3) return ir_op1(b, rnd() % 2 ? IR_sext : IR_zext, pick(p, v, IR_T_i32));
  if (e == IR_E_I64 && r == 4) return ir_op2(b, rnd() % 2 ? IR_udiv : IR_urem, x, ir_op2(b, IR_or, y, ir_const_i(b, t, 1)));
  if (r == 5 && e == IR_E_I32) return ir_load(b, lanes > 1 ? IR_M_u8 : IR_M_i32, t, p->c.in, ir_op2(b, IR_and, pick(p, v, IR_T_i64), ir_const_i(b, IR_T_i64, 255)), 4, 32);
  return ir_op2(b, io[rnd() % COUNT_OF(io)], x, y);
}

static void join_params(Prog *p, int block, IrRef *v) { for (int i = 0; i < p->n; i++) v[i] = ir_param(p->c.b.fn, block, p->type[i]); }

static void prog_stmts(Prog *p, IrRef *v, int depth, int n_stmts);
static void prog_if(Prog *p, IrRef *v, int depth) {
  IrBuild *b = &p->c.b;
  IrRef cond = rnd() % 2 ? prog_compare(p, v, 1) : pick(p, v, IR_T_i1), w[MAX_VARS];
  int yes = ir_block_add(b->fn), no = rnd() % 2 ? ir_block_add(b->fn) : -1, join = ir_block_add(b->fn);
  memcpy(w, v, sizeof w);
  if (no >= 0) ir_br(b, cond, yes, NULL, 0, no, NULL, 0);
  else if (rnd() % 2) ir_br(b, cond, yes, NULL, 0, join, v, p->n);   /* a critical edge */
  else ir_br(b, cond, join, v, p->n, yes, NULL, 0);
  b->at = yes;
  prog_stmts(p, w, depth + 1, 4);
  ir_jmp(b, join, w, p->n);
  if (no >= 0) {
    b->at = no;
    memcpy(w, v, sizeof w);
    prog_stmts(p, w, depth + 1, 3);
    ir_jmp(b, join, w, p->n);
  }
  b->at = join;
  join_params(p, join, v);
}

/* Turns 0 .. 3; tested at the top or at the bottom, sometimes left in the middle. */
static void prog_loop(Prog *p, IrRef *v, int depth) {
  IrBuild *b = &p->c.b;
  IrRef args[MAX_VARS + 1];
  bool top = rnd() % 2;
  memcpy(args, v, sizeof(IrRef) * (size_t)p->n);
  args[p->n] = ir_const_i(b, IR_T_i64, 0);
  int head = ir_block_add(b->fn), body = top ? ir_block_add(b->fn) : -1, out = ir_block_add(b->fn);
  ir_jmp(b, head, args, p->n + 1);
  join_params(p, head, v);
  IrRef i = ir_param(b->fn, head, IR_T_i64), limit;
  b->at = head;
  limit = ir_const_i(b, IR_T_i64, rnd() % 4);
  if (top) {
    ir_br(b, ir_cmp(b, IR_icmp, IR_P_lt, i, limit), body, NULL, 0, out, v, p->n);
    b->at = body;
  }
  prog_stmts(p, v, depth + 1, 6);
  if (rnd() % 3 == 0) {
    int go_on = ir_block_add(b->fn);
    ir_br(b, pick(p, v, IR_T_i1), out, v, p->n, go_on, NULL, 0);
    b->at = go_on;
  }
  memcpy(args, v, sizeof(IrRef) * (size_t)p->n);
  args[p->n] = ir_op2(b, IR_add, i, ir_const_i(b, IR_T_i64, 1));
  if (top) ir_jmp(b, head, args, p->n + 1);
  else ir_br(b, ir_cmp(b, IR_icmp, IR_P_lt, args[p->n], limit), head, args, p->n + 1, out, v, p->n);
  b->at = out;
  join_params(p, out, v);
}

static void prog_stmts(Prog *p, IrRef *v, int depth, int n_stmts) {
  for (int k = 0; k < n_stmts && p->n_left > 0; k++, p->n_left--) {
    int r = (int)(rnd() % 12), i = (int)(rnd() % (unsigned)p->n);
    if (r == 0 && depth < 4) prog_if(p, v, depth);
    else if (r == 1 && depth < 3) prog_loop(p, v, depth);
    else if (r == 2) { int j = (int)(rnd() % (unsigned)p->n); if (p->type[i] == p->type[j]) { IrRef t = v[i]; v[i] = v[j], v[j] = t; } }
    else v[i] = prog_op(p, v, p->type[i]);
  }
}

static IrFn *random_program(int n_vars, int n_stmts) {
  static const IrType must[] = {IR_T_i1, IR_T_i32, IR_T_i64, IR_T_f32, IR_T_i32x16, IR_T_f32x16, IR_T_i1x16};
  Prog p = {.c = case_new("program"), .n = n_vars, .n_left = n_stmts};
  IrRef v[MAX_VARS + 1] = {0};
  for (int i = 0; i < n_vars; i++) {
    p.type[i] = must[i < (int)COUNT_OF(must) ? (unsigned)i : rnd() % COUNT_OF(must)];
    v[i] = arg_load(&p.c, ir_type_elt(p.c.b.fn, p.type[i]), ir_type_lanes(p.c.b.fn, p.type[i]), i);
  }
  prog_stmts(&p, v, 0, n_stmts);
  for (int i = 0; i < n_vars; i++) result_store(&p.c, v[i], 64 * i);
  ir_ret(&p.c.b);
  return p.c.b.fn;
}

static void test_programs(int n) {
  for (int k = 0; k < n; k++) {
    uint64_t s0 = seed;
    IrFn *fn = random_program(7 + (int)(rnd() % 41), 20 + (int)(rnd() % 150));
    check_fn_with(fn, arena_printf(arena, "program %d, seed %llu", k, (unsigned long long)s0), true, 2, rnd_edge);
    if (test_failed_here) return;
  }
}

/* Time to compile must grow with the size, about linearly. */
static void test_compile_time(void) {
  for (int n = 500; n <= 8000; n *= 4) {
    IrFn *fn = random_program(24, n);
    for (int k = 0; k < gen_target_count(); k++) {
      Arena *a = arena_new("time");
      GenCode c;
      int64_t t0 = os_now_ns();
      EXPECT_OK(gen_compile(a, fn, gen_target_get(k), NULL, &c));
      double us = (double)(os_now_ns() - t0) / 1000;
      printf("# %s: %d IR values, %d blocks, %d instructions, %d spills, %d moves: %.0f us, %.2f us each\n", gen_target_get(k)->name, fn->n_ins, fn->n_blocks, c.n_ins, c.n_spills,
             c.n_moves, us, us / c.n_ins);
      EXPECT(us / c.n_ins < 100 * test_patience(), "%.1f us per instruction", us / c.n_ins);
      arena_free(a);
    }
  }
}

int main(int argc, char **argv) {
  if (argc > 1) only = argv[1];
  if (getenv("LUMEN_TRACE")) { Err *e = trace_open(getenv("LUMEN_TRACE")); if (e) { fprintf(stderr, "%s\n", err_text(e)); return 1; } }
  arena = arena_new("test");
  code = dev_code_new(false);
  static const IrOp f2[] = {IR_fadd, IR_fsub, IR_fmul, IR_fdiv, IR_fmin, IR_fmax}, f1[] = {IR_fsqrt, IR_fneg, IR_fabs, IR_frint, IR_ffloor};
  static const IrOp i2[] = {IR_add, IR_sub, IR_mul, IR_and, IR_or, IR_xor, IR_smin, IR_smax}, b2[] = {IR_band, IR_bor, IR_bxor};
  for (size_t i = 0; i < COUNT_OF(f2); i++) TEST(ir_op_name[f2[i]]) test_lanewise(f2[i], IR_E_F32, 2);
  for (size_t i = 0; i < COUNT_OF(f1); i++) TEST(ir_op_name[f1[i]]) test_lanewise(f1[i], IR_E_F32, 1);
  for (size_t i = 0; i < COUNT_OF(i2); i++) TEST(ir_op_name[i2[i]]) { test_lanewise(i2[i], IR_E_I32, 2); test_lanewise(i2[i], IR_E_I64, 2); }
  for (size_t i = 0; i < COUNT_OF(b2); i++) TEST(ir_op_name[b2[i]]) test_lanewise(b2[i], IR_E_I1, 2);
  TEST("fma") test_lanewise(IR_fma, IR_E_F32, 3);
  TEST("icmp") { test_compare(IR_icmp, IR_E_I32); test_compare(IR_icmp, IR_E_I64); }
  TEST("fcmp") test_compare(IR_fcmp, IR_E_F32);
  TEST("shifts") test_shifts();
  TEST("divide") test_divide();
  TEST("conversions") test_conversions();
  TEST("lanes") test_lane_ops();
  TEST("pick") for (int n = 4; n <= 16; n *= 2) test_pick(n);
  TEST("shuf") for (int n = 4; n <= 16; n *= 2) test_shuf(n);
  TEST("dot4") test_dot4();
  TEST("dot2") test_dot2();
  TEST("memory") test_memory();
  TEST("gather") test_gather();
  TEST("addresses") test_addresses();
  TEST("micro-kernel") test_micro();
  TEST("random functions")
    for (int n = 3; n < 60; n += 4) for (int k = 0; k < 4; k++) random_fn(n, 5, k & 1, k >> 1);
  TEST("random programs") test_programs(getenv("GEN_MANY") ? atoi(getenv("GEN_MANY")) : 150);
  TEST("compile time") test_compile_time();
  dev_code_free(code);
  arena_free(arena);
  TEST_MAIN_END();
}
