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
  const FormatParts *parts;  /* of a layout: tensors take the place of fields */
  int via; Dx via_byte; int64_t via_most; /* fields are of this element of tensor via-1; 0: of the block */
  Dx sorted;                /* the column, where columns are sorted by their groups */
  const Expr **number; int n_numbers, cap_numbers; /* json(..) met so far */
  bool encode;              /* x(k) is the float to store; a field's name is what is stored there */
  Loc at;                   /* of the expression at hand */
  Err *err;                 /* the first mistake; nodes made after it mean nothing */
} FmtEval;
Dx fmt_fail(FmtEval *s, Err *e);
Dx fmt_eval(FmtEval *s, const Expr *e);
void fmt_begin(FmtEval *s, Dag *d, const Module *m, const FormatDecl *f, bool encode);
Dx fmt_call(FmtEval *s, const FormatFn *fn, Dx arg, Dx arg2); /* the format's own function */
void fmt_name(FmtEval *s, const char *name, Dx value);
Dx fmt_part(FmtEval *s, int part, const Dx *index, int n_index); /* parts.c: an element of a layout's tensor */
Dx fmt_part_call(FmtEval *s, const Expr *e); /* has, json, key, ..; 0: none of them */
Err *format_find_form(Arena *a, FormatForm *f, bool as_value); /* format.c: leaves and layout from x */
typedef struct ValueSet { int n; int64_t v[64]; } ValueSet;
bool format_values(const FormatForm *f, int leaf, ValueSet *out); /* those an integer leaf has, or more; false: too many to tell */
bool format_has_leaf(const Dag *d, Dx x, int leaf);
int64_t format_shared_by(const FormatForm *f, Dx x); /* so many elements have the leaves of x in common */
void format_find_step(FormatForm *f);   /* step.c: once the form is known */
Dx fmt_divide(FmtEval *s, bool mod, Dx a, int64_t by); /* of what is never negative, as simple as it gets */
const Field *fmt_field(const FormatDecl *f, const char *name);
/* facts.c: the same value, given what is known of the parts */
Dx format_with_facts(Dag *d, const FormatParts *p, Dx x);
#endif
