/* ir: the builder and its folding, types, printing, cloning, order. */
#include "ir/ir.h"
#include "test.h"

static Arena *A;

static bool is(const IrFn *fn, IrRef v, int64_t imm) { int64_t got; return ir_is_const(fn, v, &got) && got == imm; }

static void test_print_sample(void) {
  IrFn *fn = ir_fn_new(A, "name");
  IrBuild b = {fn, ir_block_add(fn)};
  IrRef p = ir_param(fn, 0, ir_ptr_type(fn, (IrPtr){IR_M_f32, IR_S_global, 2, {-1, 576}}));
  IrRef n = ir_param(fn, 0, IR_T_i64);
  int loop = ir_block_add(fn), done = ir_block_add(fn);
  IrRef x = ir_load(&b, IR_M_f32, IR_T_f32x16, p, n, 4, 64);
  IrRef c = ir_const_i(&b, IR_T_i64, 16);
  ir_br(&b, ir_cmp(&b, IR_icmp, IR_P_lt, n, c), loop, &n, 1, done, NULL, 0);
  b.at = loop;
  IrRef i = ir_param(fn, loop, IR_T_i64);
  ir_store(&b, IR_M_f32, p, i, 4, -8, x, 7);
  ir_jmp(&b, done, NULL, 0);
  b.at = done;
  ir_ret(&b);
  EXPECT_OK(ir_fn_verify(fn));
  Str s = {0}, s2 = {0};
  ir_fn_print(fn, &s);
  const char *want =
      "fn @name(%1: ptr<f32[?,576], global>, %2: i64) {\n"
      "b0(%1, %2):\n"
      "  %3 = load.f32 f32x16 %1, %2*4 + 64\n"
      "  %4 = const i64 16\n"
      "  %5 = icmp.lt %2, %4\n"
      "  br %5, b1(%2), b2\n"
      "b1(%6: i64):\n"
      "  store.f32 %1, %6*4 - 8, %3 lanes 7\n"
      "  jmp b2\n"
      "b2:\n"
      "  ret\n"
      "}\n";
  EXPECT(strcmp(s.p, want) == 0, "got:\n%s", s.p);
  Arena *other = arena_new("clone");
  IrFn *copy = ir_fn_clone(other, fn);
  EXPECT_OK(ir_fn_verify(copy));
  ir_fn_print(copy, &s2);
  EXPECT(strcmp(s2.p, want) == 0);
  copy->blocks[0].edge[0].args[0] = 1;
  EXPECT(fn->blocks[0].edge[0].args[0] == 2, "a clone shares nothing");
  arena_free(other);
  str_free(&s), str_free(&s2);
}

static void test_fold(void) {
  IrFn *fn = ir_fn_new(A, "fold");
  IrBuild b = {fn, ir_block_add(fn)};
  IrRef x = ir_param(fn, 0, IR_T_i32), q = ir_param(fn, 0, IR_T_i64), f = ir_param(fn, 0, IR_T_f32);
  IrRef p = ir_param(fn, 0, ir_ptr_type(fn, (IrPtr){.mem = IR_M_u8}));
  IrRef zero = ir_const_i(&b, IR_T_i32, 0), one = ir_const_i(&b, IR_T_i32, 1), big = ir_const_i(&b, IR_T_i32, INT32_MAX), neg = ir_const_i(&b, IR_T_i32, -7);
  IrRef four = ir_const_i(&b, IR_T_i64, 4);
  EXPECT(ir_op2(&b, IR_add, x, zero) == x && ir_op2(&b, IR_add, zero, x) == x && ir_op2(&b, IR_sub, x, zero) == x);
  EXPECT(ir_op2(&b, IR_mul, one, x) == x && ir_op2(&b, IR_mul, x, zero) == zero && ir_op2(&b, IR_udiv, x, one) == x);
  EXPECT(is(fn, ir_op2(&b, IR_urem, x, one), 0) && is(fn, ir_op2(&b, IR_sub, x, x), 0));
  EXPECT(is(fn, ir_op2(&b, IR_add, big, one), INT32_MIN), "wraps");
  EXPECT(is(fn, ir_op2(&b, IR_mul, big, big), 1) && is(fn, ir_op2(&b, IR_smin, neg, one), -7) && is(fn, ir_op2(&b, IR_smax, neg, one), 1));
  EXPECT(is(fn, ir_op2(&b, IR_udiv, neg, one), -7) && is(fn, ir_op2(&b, IR_udiv, neg, ir_const_i(&b, IR_T_i32, 2)), 0x7ffffffc));
  EXPECT(!ir_is_const(fn, ir_op2(&b, IR_udiv, one, zero), NULL), "division by zero is left alone");
  EXPECT(is(fn, ir_shift(&b, IR_shl, one, 31), INT32_MIN) && is(fn, ir_shift(&b, IR_sar, neg, 1), -4) && is(fn, ir_shift(&b, IR_shr, neg, 28), 15));
  EXPECT(ir_shift(&b, IR_shl, x, 0) == x);
  EXPECT(is(fn, ir_op1(&b, IR_sext, neg), -7) && is(fn, ir_op1(&b, IR_zext, neg), 0xfffffff9) && is(fn, ir_op1(&b, IR_trunc, ir_const_i(&b, IR_T_i64, 0x1ffffffff)), -1));
  EXPECT(ir_op1(&b, IR_trunc, ir_op1(&b, IR_sext, x)) == x);
  IrRef s = ir_op2(&b, IR_add, one, x);
  EXPECT(fn->ins[s].arg[0] == x && fn->ins[s].arg[1] == one, "constants go second");
  IrRef v = ir_splat(&b, neg, 8);
  EXPECT(is(fn, v, -7) && ir_type_of(fn, v) == IR_T_i32x8 && is(fn, ir_extract(&b, v, 3), -7));
  EXPECT(is(fn, ir_cmp(&b, IR_icmp, IR_P_lt, neg, one), 1));
  IrRef t = ir_cmp(&b, IR_icmp, IR_P_eq, neg, one);
  EXPECT(ir_op3(&b, IR_select, t, x, one) == one);
  IrRef nan = ir_const_f(&b, IR_T_f32, f32_from_bits(0x7fc00000)), fz = ir_const_f(&b, IR_T_f32, 0), f2 = ir_const_f(&b, IR_T_f32, 2);
  EXPECT(ir_op2(&b, IR_fadd, f, fz) != f, "-0 + 0 is +0");
  EXPECT(!ir_is_const(fn, ir_op2(&b, IR_fadd, nan, f2), NULL));
  EXPECT(is(fn, ir_op2(&b, IR_fmul, f2, f2), f32_to_bits(4)));
  IrRef m = ir_op2(&b, IR_fmul, f2, f);
  EXPECT(fn->ins[m].arg[1] == f2);
  IrRef ld = ir_load(&b, IR_M_u8, IR_T_i32, p, four, 2, 1);
  EXPECT(fn->ins[ld].arg[1] == 0 && fn->ins[ld].imm == 9);
  ld = ir_load(&b, IR_M_u8, IR_T_i32, p, q, 2, 1);
  EXPECT(fn->ins[ld].arg[1] == q && fn->ins[ld].imm == 1);
  ir_ret(&b);
  EXPECT_OK(ir_fn_verify(fn));
}

/* b0 -> b1 (head) -> b2 (inner head) -> b2 | b3 -> b1 | b4; b5 unreachable */
static void test_order(void) {
  IrFn *fn = ir_fn_new(A, "order");
  for (int i = 0; i < 6; i++) ir_block_add(fn);
  IrBuild b = {fn, 0};
  IrRef c = ir_param(fn, 0, IR_T_i1);
  ir_jmp(&b, 1, NULL, 0);
  b.at = 1; ir_jmp(&b, 2, NULL, 0);
  b.at = 2; ir_br(&b, c, 2, NULL, 0, 3, NULL, 0);
  b.at = 3; ir_br(&b, c, 1, NULL, 0, 4, NULL, 0);
  b.at = 4; ir_ret(&b);
  b.at = 5; ir_jmp(&b, 4, NULL, 0);
  EXPECT_OK(ir_fn_verify(fn));
  IrOrder *o = ir_order(A, fn);
  EXPECT(o->n == 5 && o->block[0] == 0 && o->pos[5] == -1);
  EXPECT(o->idom[0] == -1 && o->idom[1] == 0 && o->idom[2] == 1 && o->idom[3] == 2 && o->idom[4] == 3);
  EXPECT(o->loop_head[0] == -1 && o->loop_head[1] == 1 && o->loop_head[2] == 2 && o->loop_head[3] == 1 && o->loop_head[4] == -1);
  EXPECT(o->loop_up[2] == 1 && o->loop_up[1] == -1 && o->depth[2] == 2 && o->depth[3] == 1 && o->depth[4] == 0);
  EXPECT(ir_dominates(o, 1, 4) && !ir_dominates(o, 4, 1) && ir_dominates(o, 3, 3) && ir_in_loop(o, 1, 2) && !ir_in_loop(o, 2, 3));
}

int main(void) {
  A = arena_new("test");
  TEST("ir/print") test_print_sample();
  TEST("ir/builder folds") test_fold();
  TEST("ir/order") test_order();
  arena_free(A);
  TEST_MAIN_END();
}
