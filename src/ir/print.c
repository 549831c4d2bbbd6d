/* Functions as text (the form ir.h shows). Value numbers are the function's own, so that messages and dumps agree; types are written
   where arguments do not decide them. Prints anything, legal or not: a broken function is what one most wants to see. */
#include <math.h>
#include <stdlib.h>
#include "ir/priv.h"

void ir_type_print(const IrFn *fn, IrType t, Str *out) {
  if (!ir_is_ptr(t)) { str_add(out, ir_type_name[t]); return; }
  if (t - IR_N_BASIC >= fn->n_ptrs) { str_add(out, "ptr<?>"); return; }
  const IrPtr *p = &fn->ptrs[t - IR_N_BASIC];
  str_addf(out, "ptr<%s", ir_mem_name[p->mem]);
  for (int i = 0; i < p->n_dims; i++) {
    str_add_c(out, i ? ',' : '[');
    if (p->dim[i] < 0) str_add_c(out, '?');
    else str_addf(out, "%lld", (long long)p->dim[i]);
  }
  str_addf(out, "%s, %s>", p->n_dims ? "]" : "", ir_space_name[p->space]);
}

/* The shortest decimal that reads back to the same bits; NaNs and infinities as bits. */
static void print_f32(uint32_t bits, Str *out) {
  float f = f32_from_bits(bits);
  if (!isfinite(f)) { str_addf(out, "0x%08x", bits); return; }
  char buf[64];
  for (int digits = 6; digits <= 9; digits++) {
    snprintf(buf, sizeof buf, "%.*g", digits, (double)f);
    if (f32_to_bits(strtof(buf, NULL)) == bits) break;
  }
  str_add(out, buf);
}

static void print_address(const IrIns *x, Str *out) {
  str_addf(out, " %%%d", x->arg[0]);
  if (x->arg[1]) str_addf(out, ", %%%d*%d", x->arg[1], x->scale);
  str_addf(out, x->imm < 0 ? " - %llu" : " + %llu", x->imm < 0 ? 0 - (unsigned long long)x->imm : (unsigned long long)x->imm);
}

static void print_args(const IrIns *x, Str *out) {
  for (int i = 0; i < ir_op_n_args[x->op]; i++) str_addf(out, "%s%%%d", i ? ", " : " ", x->arg[i]);
  if (ir_op_rule[x->op] == RULE_I || x->op == IR_extract || x->op == IR_insert || x->op == IR_dot4) str_addf(out, ", %lld", (long long)x->imm);
}

void ir_ins_print(const IrFn *fn, IrRef v, Str *out) {
  const IrIns *x = &fn->ins[v];
  if (ir_has_result((IrOp)x->op)) str_addf(out, "%%%d = ", v);
  str_add(out, ir_op_name[x->op]);
  if (x->mem) str_addf(out, ".%s", ir_mem_name[x->mem]);
  if (x->pred) str_addf(out, ".%s", ir_pred_name[x->pred]);
  if (x->op == IR_const || x->op == IR_iota || x->op == IR_load || x->op == IR_gather || x->op == IR_splat || x->op == IR_param) {
    str_add_c(out, ' ');
    ir_type_print(fn, x->type, out);
  }
  if (x->op == IR_const) {
    str_add_c(out, ' ');
    if (ir_type_elt(fn, x->type) == IR_E_F32) print_f32((uint32_t)x->imm, out);
    else str_addf(out, "%lld", (long long)x->imm);
  } else if (ir_is_addr((IrOp)x->op)) {
    print_address(x, out);
    if (x->op == IR_store || ir_is_tile((IrOp)x->op)) str_addf(out, ", %%%d", x->arg[2]);
    if (ir_is_tile((IrOp)x->op)) str_addf(out, " tile %d", x->n_lanes);
    else if (x->n_lanes) str_addf(out, " lanes %d", x->n_lanes);
  } else if (ir_is_tile((IrOp)x->op)) {
    if (x->op != IR_tend) str_addf(out, " %lld", (long long)x->imm);
  } else {
    print_args(x, out);
    if (x->op == IR_gather) str_addf(out, x->imm < 0 ? " - %llu" : " + %llu", x->imm < 0 ? 0 - (unsigned long long)x->imm : (unsigned long long)x->imm);
  }
}

static void print_params(const IrFn *fn, const IrBlock *b, bool types, Str *out) {
  for (int i = 0; i < b->n_params; i++) {
    str_addf(out, "%s%%%d", i ? ", " : "", b->params[i]);
    if (!types) continue;
    str_add(out, ": ");
    ir_type_print(fn, fn->ins[b->params[i]].type, out);
  }
}

static void print_edge(const IrEdge *e, Str *out) {
  str_addf(out, "b%d", e->block);
  for (int i = 0; i < e->n_args; i++) str_addf(out, "%s%%%d", i ? ", " : "(", e->args[i]);
  if (e->n_args) str_add_c(out, ')');
}

static void print_term(const IrBlock *b, Str *out) {
  if (b->term == IR_NO_TERM) return;
  if (b->term == IR_RET) { str_add(out, "  ret\n"); return; }
  if (b->term == IR_BR) str_addf(out, "  br %%%d, ", b->cond);
  else str_add(out, "  jmp ");
  print_edge(&b->edge[0], out);
  if (b->term == IR_BR) { str_add(out, ", "); print_edge(&b->edge[1], out); }
  str_add_c(out, '\n');
}

void ir_fn_print(const IrFn *fn, Str *out) {
  str_addf(out, "fn @%s(", fn->name);
  if (fn->n_blocks) print_params(fn, &fn->blocks[0], true, out);
  str_add(out, ") {\n");
  for (int i = 0; i < fn->n_blocks; i++) {
    const IrBlock *b = &fn->blocks[i];
    str_addf(out, "b%d", i);
    if (b->n_params) { str_add_c(out, '('); print_params(fn, b, i != 0, out); str_add_c(out, ')'); }
    str_add(out, ":\n");
    for (int k = 0; k < b->n_ins; k++) {
      str_add(out, "  ");
      ir_ins_print(fn, b->ins[k], out);
      str_add_c(out, '\n');
    }
    print_term(b, out);
  }
  str_add(out, "}\n");
}
