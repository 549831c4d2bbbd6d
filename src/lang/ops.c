/* The language's tables as arrays: operators, reductions, scalar kinds, built-ins, kinds of rules. Names in, rows out. */
#include <math.h>
#include <string.h>
#include <utf8proc.h>
#include "lang/priv.h"

static const LangInfix infixes[] = {
#define INFIX(id, text, prec) {OP_##id, LANG_SYM((text)[0], (text)[1]), prec},
#define PREFIX(id, text)
#define REDUCTION(id, text, meaning)
#include "lang/operators.def"
#undef INFIX
#undef PREFIX
#undef REDUCTION
};
static const struct { ExprOp op; const char *text; bool is_prefix, is_reduction; } texts[] = {
#define INFIX(id, text, prec) {OP_##id, text, false, false},
#define PREFIX(id, text) {OP_##id, text, true, false},
#define REDUCTION(id, text, meaning) {RED_##id, text, false, true},
#include "lang/operators.def"
#undef INFIX
#undef PREFIX
#undef REDUCTION
};

const LangInfix *lang_infix(uint16_t sym) {
  for (size_t i = 0; i < COUNT_OF(infixes); i++) if (infixes[i].sym == sym) return &infixes[i];
  return NULL;
}

ExprOp lang_prefix(uint16_t sym) {
  for (size_t i = 0; i < COUNT_OF(texts); i++)
    if (texts[i].is_prefix && LANG_SYM(texts[i].text[0], texts[i].text[1]) == sym) return texts[i].op;
  return OP_NONE;
}

ExprOp lang_reduction(const char *name) {
  for (size_t i = 0; i < COUNT_OF(texts); i++) if (texts[i].is_reduction && !strcmp(texts[i].text, name)) return texts[i].op;
  return OP_NONE;
}

const char *lang_op_text(ExprOp op) {
  for (size_t i = 0; i < COUNT_OF(texts); i++) if (texts[i].op == op) return texts[i].text;
  return "?";
}

int lang_op_prec(ExprOp op) {
  for (size_t i = 0; i < COUNT_OF(infixes); i++) if (infixes[i].op == op) return infixes[i].prec;
  return 0;
}

static const LangScalar scalars[] = {
#define SCALAR(name, bytes, is_float, too_large) {#name, bytes, is_float, too_large},
#include "lang/scalars.def"
#undef SCALAR
};
const char *const lang_scalar_names[] = {
#define SCALAR(name, bytes, is_float, too_large) #name,
#include "lang/scalars.def"
#undef SCALAR
};
const int lang_n_scalars = COUNT_OF(scalars);

const LangScalar *lang_scalar(const char *name) {
  for (int i = 0; i < lang_n_scalars; i++) if (!strcmp(scalars[i].name, name)) return &scalars[i];
  return NULL;
}

bool lang_scalar_holds(const LangScalar *s, double v) {
  if (s->is_float) return fabs((double)(float)v) < s->too_large;
  bool is_signed = s->name[0] == 'i';
  double most = ldexp(1, 8 * s->n_bytes - is_signed);
  return v >= (is_signed ? -most : 0) && v < most && v == (double)(int64_t)v;
}

const LangBuiltin lang_builtins[] = {
#define BUILTIN(name, args, result, hyper_only, meaning) {#name, args, result, hyper_only},
#include "lang/builtins.def"
#undef BUILTIN
};
const int lang_n_builtins = COUNT_OF(lang_builtins);

const LangBuiltin *lang_builtin(const char *name, bool in_hyper) {
  for (int i = 0; i < lang_n_builtins; i++)
    if (!strcmp(lang_builtins[i].name, name) && (in_hyper || !lang_builtins[i].hyper_only)) return &lang_builtins[i];
  return NULL;
}

const LangRule lang_rules[] = {
#define RULE(id, rank) {#id, rank},
#include "lang/rules.def"
#undef RULE
};

bool lang_is_variable_elt(const char *elt) {
  int32_t c = 0;
  if (!lang_utf8_next(elt, strlen(elt), &c)) return false;
  return utf8proc_category(c) == UTF8PROC_CATEGORY_LU;
}
