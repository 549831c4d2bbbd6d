/* Private to opt: symbolic evaluation of a format's text (fmteval.c). */
#ifndef LUMEN_OPT_FMTEVAL_H
#define LUMEN_OPT_FMTEVAL_H
#include "opt/opt.h"

enum { FMT_MAX_NAMES = 120, FMT_MAX_DEPTH = 40 };
typedef struct FmtEval {
  Dag *d; const Module *m; const FormatDecl *f;
  const char *arg[FMT_MAX_NAMES]; Dx val[FMT_MAX_NAMES]; int n, base; /* names in scope: base .. n-1 */
  int depth;
  Err *err;                 /* the first mistake; nodes made after it mean nothing */
} FmtEval;
Dx fmt_fail(FmtEval *s, Err *e);
Dx fmt_eval(FmtEval *s, const Expr *e);
Dx fmt_call(FmtEval *s, const FormatFn *fn, Dx arg); /* the format's own function */
void fmt_name(FmtEval *s, const char *name, Dx value);
const Field *fmt_field(const FormatDecl *f, const char *name);
#endif
