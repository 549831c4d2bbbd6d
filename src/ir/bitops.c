/* Shifts and masks of vectors of i32: chains of them become one shift and one mask, the mask last, and a sign bit that is moved apart from the bits
   below it comes along by an arithmetic shift. What formats' texts say bit by bit ends as two or three instructions. In: one instruction.
   Out: it in place, or unchanged; needed constants and shifts are appended through b. The same bits for every value. */
#include "ir/priv.h"

/* v = (of shifted left by `by`, right where it is below 0, zeros coming in) & mask */
typedef struct Field { IrRef of; int by; uint32_t mask; int steps; } Field; /* steps: instructions it is now */

static uint32_t moved(uint32_t mask, int by) { return by >= 0 ? mask << by : mask >> -by; }

/* Two shifts are one as long as the bits that the first cuts off are masked in any case. */
static Field field_of(const IrFn *fn, IrRef v) {
  Field f = {v, 0, UINT32_MAX, 0};
  for (;;) {
    const IrIns *x = &fn->ins[f.of];
    int64_t c;
    if (x->op == IR_and && ir_is_const(fn, x->arg[1], &c)) f.mask &= moved((uint32_t)c, f.by);
    else if (x->op == IR_shl || x->op == IR_shr) {
      int by = x->op == IR_shl ? (int)x->imm : -(int)x->imm, sum = f.by + by;
      if (x->imm > 31 || sum < -31 || sum > 31) return f;
      f.mask &= moved(moved(UINT32_MAX, by), f.by);
      f.by = sum;
    } else return f;
    f.of = x->arg[0];
    f.steps++;
  }
}

static IrRef shifted(IrBuild *b, IrRef v, int by) { return by ? ir_shift(b, by > 0 ? IR_shl : IR_shr, v, by > 0 ? by : -by) : v; }

static void become_mask(IrBuild *b, IrIns *x, IrRef v, uint32_t mask) {
  IrRef c = ir_const_i(b, x->type, (int32_t)mask);
  x->op = IR_and;
  x->imm = 0;
  x->arg[0] = v;
  x->arg[1] = c;
}

/* A mask or a shift of something that is shifted and masked already. */
static void merge_field(IrBuild *b, IrIns *x) {
  int64_t c = -1;
  Field f = field_of(b->fn, x->arg[0]);
  uint32_t all = UINT32_MAX;
  int by = x->op == IR_shl ? (int)x->imm : x->op == IR_shr ? -(int)x->imm : 0;
  if (x->op == IR_and && !ir_is_const(b->fn, x->arg[1], &c)) return;
  if (f.steps == 0 || x->imm > 31 || f.by + by < -31 || f.by + by > 31) return;
  if (x->op == IR_and) f.mask &= (uint32_t)c;
  else f.mask = moved(f.mask, by);
  f.by += by;
  all = moved(all, f.by);
  if (f.mask == all && f.by) { /* nothing is masked that the shift does not cut off */
    x->op = f.by > 0 ? IR_shl : IR_shr;
    x->imm = f.by > 0 ? f.by : -f.by;
    x->arg[0] = f.of;
    x->arg[1] = 0;
  } else if (f.steps > 1 || x->op != IR_and || b->fn->ins[x->arg[0]].op == IR_and) become_mask(b, x, shifted(b, f.of, f.by), f.mask);
}

/* Both fields of one value: the top bit from further above, the others where the arithmetic shift of the top puts them. */
static void merge_or(IrBuild *b, IrIns *x) {
  Field s = field_of(b->fn, x->arg[0]), m = field_of(b->fn, x->arg[1]);
  if (s.mask != 1u << 31) {
    Field t = s;
    s = m, m = t;
  }
  if (s.of != m.of) return;
  if (s.by == m.by) {
    become_mask(b, x, shifted(b, s.of, s.by), s.mask | m.mask);
    return;
  }
  int down = s.by - m.by;
  if (s.mask != 1u << 31 || s.by < 0 || down < 1 || down > 31 || m.mask >> (32 - down)) return;
  become_mask(b, x, ir_shift(b, IR_sar, shifted(b, s.of, s.by), down), s.mask | m.mask);
}

/* A lane's number counts by its lowest bits alone: no mask that keeps them matters. */
static void number_of_lane(const IrFn *fn, IrIns *x) {
  const IrIns *m = &fn->ins[x->arg[0]];
  int64_t c, low = ir_type_lanes(fn, x->type) - 1;
  if (m->op == IR_and && ir_is_const(fn, m->arg[1], &c) && (c & low) == low) x->arg[0] = m->arg[0];
}

void ir_simplify_bits(IrBuild *b, IrIns *x) {
  IrType t = x->type;
  if (x->op == IR_pick) number_of_lane(b->fn, x);
  if (t == IR_T_none || ir_type_elt(b->fn, t) != IR_E_I32 || ir_type_lanes(b->fn, t) == 1) return;
  if (x->op == IR_and || x->op == IR_shl || x->op == IR_shr) merge_field(b, x);
  else if (x->op == IR_or) merge_or(b, x);
}
