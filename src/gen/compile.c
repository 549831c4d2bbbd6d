/* The way from an IR function to bytes: the list of stages, and what each of them shows when asked. */
#include "gen/mir.h"

enum { MAX_PARAMS = 6 };

static Err *params_check(const IrFn *fn) {
  const IrBlock *b = &fn->blocks[0];
  if (b->n_params > MAX_PARAMS) return err_new(ERR_UNSUPPORTED, "%s: %d parameters, at most %d can be passed", fn->name, b->n_params, MAX_PARAMS);
  for (int i = 0; i < b->n_params; i++) {
    IrElt e = ir_type_elt(fn, ir_type_of(fn, b->params[i]));
    if ((e != IR_E_I64 && e != IR_E_PTR) || ir_type_lanes(fn, ir_type_of(fn, b->params[i])) != 1)
      return err_new(ERR_UNSUPPORTED, "%s: parameter %d is neither i64 nor a pointer", fn->name, i);
  }
  return NULL;
}

static void show(TraceStage stage, const MFn *m, const RegMap *map) {
  if (!trace_on(stage, m->name)) return;
  Str s = {0};
  x86_mir_print(m, map, &s);
  trace_text(stage, m->name, s.p ? s.p : "");
  str_free(&s);
}

static void show_code(const MFn *m, const GenCode *c) {
  if (c->text && trace_on(TRACE_asm, m->name)) trace_text(TRACE_asm, m->name, c->text);
  if (!trace_on(TRACE_bin, m->name)) return;
  Str s = {0};
  for (size_t i = 0; i < c->n_bytes; i++) str_addf(&s, "%02x%s", c->code[i], i % 32 == 31 ? "\n" : " ");
  trace_text(TRACE_bin, m->name, s.p ? s.p : "");
  str_free(&s);
}

Err *gen_compile(Arena *a, const IrFn *fn, const Target *t, const GenOptions *opt, GenCode *out) {
  TRY(params_check(fn));
  IrFn *legal = gen_legalize(a, fn, t);
  if (trace_on(TRACE_verify, fn->name)) {
    Err *e = ir_fn_verify(legal);
    CHECK(!e, "legalized %s: %s", fn->name, err_text(e));
  }
  if (trace_on(TRACE_opt, fn->name)) {
    Str s = {0};
    ir_fn_print(legal, &s);
    trace_text(TRACE_opt, arena_printf(a, "legal for %s", t->name), s.p);
    str_free(&s);
  }
  MFn *m = x86_select(a, legal, t);
  if (opt && opt->mach) x86_mir_print(m, NULL, opt->mach);
  show(TRACE_mach, m, NULL);
  RegMap *map = ra_run(m, x86_reg_set(t));
  show(TRACE_ra, m, map);
  x86_emit(m, map, (opt && opt->want_text) || trace_on(TRACE_asm, fn->name), out);
  show_code(m, out);
  return NULL;
}
