/* Private to opt: symbolic evaluation of a format's text (fmteval.c). */
#ifndef LUMEN_OPT_FMTEVAL_H
#define LUMEN_OPT_FMTEVAL_H
#include "opt/opt.h"

enum { FMT_MAX_NAMES = 120, FMT_MAX_DEPTH = 40, FMT_MAX_HEIGHT = 8000, FMT_MAX_TERMS = 4096, FMT_UNROLL = 16, FMT_MAX_SEARCH = 1 << 16 };
typedef struct FmtEval {
  Dag *d; const Module *m; const FormatDecl *f;
  const char *arg[FMT_MAX_NAMES]; Dx val[FMT_MAX_NAMES]; int n, base; /* names in scope: base .. n-1 */
  int64_t axis_max[DX_MAX_AXES]; int loops, n_loops, loop_id; /* indices of loops around: DX_BINDER .. DX_BINDER + loops - 1 */
  int depth;
  int64_t left;             /* expressions that may still be evaluated */
  struct FmtMemo *memo; int n_memo, cap_memo;
  const FormatFn *fn; int n_fns; /* functions that names mean: the format's or its encode's */
  bool encode;              /* x(k) is the float to store; a field's name is what is stored there */
  Err *err;                 /* the first mistake; nodes made after it mean nothing */
} FmtEval;
Dx fmt_fail(FmtEval *s, Err *e);
Dx fmt_eval(FmtEval *s, const Expr *e);
void fmt_begin(FmtEval *s, Dag *d, const Module *m, const FormatDecl *f, bool encode);
Dx fmt_call(FmtEval *s, const FormatFn *fn, Dx arg, Dx arg2); /* the format's own function */
void fmt_name(FmtEval *s, const char *name, Dx value);
const Field *fmt_field(const FormatDecl *f, const char *name);
#endif
