/* The passes over a kernel's IR, in order. In: IR as lowered. Out: IR for the code generator, in place. */
#include "opt/opt.h"

static Err *after(IrFn *fn, const char *pass) {
  if (trace_on(TRACE_opt, fn->name)) {
    Str s = {0};
    ir_fn_print(fn, &s);
    trace_text(TRACE_opt, pass, s.p);
    str_free(&s);
  }
  return trace_on(TRACE_verify, NULL) ? err_wrap(ir_fn_verify(fn), "kernel %s after %s", fn->name, pass) : NULL;
}

Err *opt_pipeline(IrFn *fn) {
  TRY(after(fn, "lower"));
  ir_pass_fold(fn);
  TRY(after(fn, "fold"));
  ir_pass_cse(fn);
  TRY(after(fn, "cse"));
  ir_pass_licm(fn);
  TRY(after(fn, "licm"));
  ir_pass_dce(fn);
  return after(fn, "dce");
}
