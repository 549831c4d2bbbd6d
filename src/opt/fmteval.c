/* Symbolic evaluation of a format's text: an expression, with the element's number known, becomes a node over the block's fields. Functions
   are expanded, what is known is folded, the branch not taken is never looked at. In: expressions of a checked format. Out: DAG nodes. */
#include <string.h>
#include "opt/fmteval.h"

Dx fmt_fail(FmtEval *s, Err *e) {
  if (s->err) err_free(e);
  else s->err = e;
  return dx_int(s->d, 0);
}

static IrMem field_mem(const char *elt) {
  if (!strcmp(elt, "u32")) return IR_M_i32;
  for (int m = 1; m < IR_N_MEM; m++) if (!strcmp(ir_mem_name[m], elt)) return (IrMem)m;
  return IR_M_none;
}

const Field *fmt_field(const FormatDecl *f, const char *name) {
  for (int k = 0; k < f->n_fields; k++) if (!strcmp(f->field[k].name, name)) return &f->field[k];
  return NULL;
}

static Dx field(FmtEval *s, const Field *fl, int64_t i) {
  IrMem m = field_mem(fl->elt);
  if (m == IR_M_none) return fmt_fail(s, err_new(ERR_UNSUPPORTED, "format %s: field %s: kind %s is not known", s->f->name, fl->name, fl->elt));
  if (i < 0 || i >= fl->count) return fmt_fail(s, err_new(ERR_SHAPE, "format %s: %s[%lld] is outside its %lld elements", s->f->name, fl->name, (long long)i, (long long)fl->count));
  bool flt = m == IR_M_f16 || m == IR_M_bf16 || m == IR_M_f32;
  return dx_node(s->d, (DxNode){.kind = DX_FIELD, .op = (uint8_t)m, .type = flt ? DT_F32 : DT_INT, .ival = fl->offset + i * ir_mem_bytes[m]});
}

void fmt_name(FmtEval *s, const char *name, Dx value) {
  CHECK(s->n < FMT_MAX_NAMES);
  s->arg[s->n] = name;
  s->val[s->n++] = value;
}

Dx fmt_call(FmtEval *s, const FormatFn *fn, Dx arg) {
  if (++s->depth > FMT_MAX_DEPTH || s->n == FMT_MAX_NAMES) return fmt_fail(s, err_new(ERR_LIMIT, "format %s: %s: calls nest deeper than %d", s->f->name, fn->name, FMT_MAX_DEPTH));
  int mark = s->n;
  if (fn->arg) fmt_name(s, fn->arg, arg);
  Dx v = fmt_eval(s, fn->value);
  s->n = mark;
  s->depth--;
  return v;
}

static Dx eval_name(FmtEval *s, const Expr *e) {
  for (int i = s->n - 1; i >= s->base; i--) if (!strcmp(s->arg[i], e->name)) return s->val[i];
  for (int i = 0; i < s->f->n_fns; i++) if (!s->f->fn[i].arg && !strcmp(s->f->fn[i].name, e->name)) return fmt_call(s, &s->f->fn[i], 0);
  const Field *f = fmt_field(s->f, e->name);
  return f ? field(s, f, 0) : fmt_fail(s, err_new(ERR_NOT_FOUND, "format %s: name '%s' has no value here", s->f->name, e->name));
}

static const struct { const char *name; int n_args; DxOp op; } builtins[] = {
  {"fma", 3, DXO_FMA}, {"abs", 1, DXO_ABS}, {"min", 2, DXO_MIN}, {"max", 2, DXO_MAX}, {"sqrt", 1, DXO_SQRT}, {"rint", 1, DXO_RINT},
  {"floor", 1, DXO_FLOOR}, {"f32", 1, DXO_TOF}, {"i32", 1, DXO_TOI}, {"i8", 1, DXO_I8}, {"bits_f32", 1, DXO_BITF}, {"bits_i32", 1, DXO_BITI},
  {"gcd", 2, DXO_GCD},
};

static Dx eval_builtin(FmtEval *s, const Expr *e, DxOp op) {
  Dx a = fmt_eval(s, e->arg[0]);
  if (op == DXO_SQRT || op == DXO_RINT || op == DXO_FLOOR || op == DXO_BITI) a = dx_to_f32(s->d, a);
  if (e->n_args == 1) return dx_op1(s->d, op, a);
  Dx b = fmt_eval(s, e->arg[1]);
  return e->n_args == 2 ? dx_op2(s->d, op, a, b) : dx_op3(s->d, op, a, b, fmt_eval(s, e->arg[2]));
}

/* A fn sees its parameters and what it names itself, nothing of the format. */
static Dx eval_fn(FmtEval *s, const Expr *e, const FnDecl *f) {
  Dx arg[8];
  int base = s->base, mark = s->n;
  if (f->n_params > (int)COUNT_OF(arg) || s->n + f->n_params + f->n_lets > FMT_MAX_NAMES || s->depth > FMT_MAX_DEPTH)
    return fmt_fail(s, err_new(ERR_LIMIT, "format %s: %s: too many names or calls inside one another", s->f->name, f->name));
  for (int i = 0; i < f->n_params; i++) {
    arg[i] = fmt_eval(s, e->arg[i]);
    if (!strcmp(f->param[i].type.elt, "f32")) arg[i] = dx_to_f32(s->d, arg[i]);
  }
  s->base = s->n;
  s->depth++;
  for (int i = 0; i < f->n_params; i++) fmt_name(s, f->param[i].name, arg[i]);
  for (int i = 0; i < f->n_lets; i++) {
    Dx v = fmt_eval(s, f->let[i].rhs);
    fmt_name(s, f->let[i].name, v);
  }
  Dx v = fmt_eval(s, f->value);
  if (!strcmp(f->result.elt, "f32")) v = dx_to_f32(s->d, v);
  s->depth--;
  s->base = base;
  s->n = mark;
  return v;
}

static Dx eval_call(FmtEval *s, const Expr *e) {
  if (s->err) return dx_int(s->d, 0);
  for (int i = 0; i < s->f->n_fns; i++)
    if (s->f->fn[i].arg && e->n_args == 1 && !strcmp(s->f->fn[i].name, e->name)) return fmt_call(s, &s->f->fn[i], fmt_eval(s, e->arg[0]));
  for (size_t i = 0; i < COUNT_OF(builtins); i++) if (!strcmp(builtins[i].name, e->name) && builtins[i].n_args == e->n_args) return eval_builtin(s, e, builtins[i].op);
  const FnDecl *f = lang_fn(s->m, e->name);
  if (f) return eval_fn(s, e, f);
  return fmt_fail(s, err_new(ERR_NOT_FOUND, "format %s: function '%s': no such function", s->f->name, e->name));
}

static const DxOp infix[OP_COUNT] = {
  [OP_OR] = DXO_LOR, [OP_AND] = DXO_LAND, [OP_EQ] = DXO_EQ, [OP_NE] = DXO_NE, [OP_LE] = DXO_LE, [OP_GE] = DXO_GE, [OP_LT] = DXO_LT,
  [OP_GT] = DXO_GT, [OP_BOR] = DXO_OR, [OP_BXOR] = DXO_XOR, [OP_BAND] = DXO_AND, [OP_SHL] = DXO_SHL, [OP_SHR] = DXO_SHR,
  [OP_ADD] = DXO_ADD, [OP_SUB] = DXO_SUB, [OP_MUL] = DXO_MUL, [OP_DIV] = DXO_DIV, [OP_MOD] = DXO_MOD,
};

/* Of a field by a known index, of a table by any that cannot leave it. */
static Dx eval_index(FmtEval *s, const Expr *e) {
  const char *name = e->arg[0]->name;
  int64_t i;
  Dx x = fmt_eval(s, e->arg[1]);
  if (s->err) return x;
  const Field *f = fmt_field(s->f, name);
  const TableDecl *t = f ? NULL : lang_table(s->m, name);
  if (t) {
    DxRange r = dx_range(s->d, x, NULL);
    int k = dx_table(s->d, t);
    if (k < 0) return fmt_fail(s, err_new(ERR_LIMIT, "format %s: more than %d tables", s->f->name, DX_MAX_TABLES));
    if (r.lo >= 0 && r.hi < t->n_values) return dx_lookup(s->d, k, x);
    return fmt_fail(s, err_new(ERR_SHAPE, "format %s: an index of table %s runs from %lld to %lld, expected 0 to %d; mask it with &", s->f->name, name, (long long)r.lo, (long long)r.hi, t->n_values - 1));
  }
  if (!f) return fmt_fail(s, err_new(ERR_NOT_FOUND, "format %s: no field or table '%s'", s->f->name, name));
  if (!dx_is_int(s->d, x, &i)) return fmt_fail(s, err_new(ERR_SHAPE, "format %s: the index of field %s depends on the data", s->f->name, name));
  return field(s, f, i);
}

Dx fmt_eval(FmtEval *s, const Expr *e) {
  if (s->err) return dx_int(s->d, 0);
  switch (e->kind) {
    case EX_INT: return dx_int(s->d, e->ival);
    case EX_FLOAT: return dx_flt(s->d, (float)e->fval);
    case EX_NAME: return eval_name(s, e);
    case EX_CALL: return eval_call(s, e);
    case EX_INDEX: return eval_index(s, e);
    case EX_UNARY: {
      Dx a = fmt_eval(s, e->arg[0]);
      return e->op == OP_INV ? dx_op2(s->d, DXO_XOR, a, dx_int(s->d, -1)) : dx_op1(s->d, e->op == OP_NEG ? DXO_NEG : DXO_LNOT, a);
    }
    case EX_BINARY: {
      Dx a = fmt_eval(s, e->arg[0]);
      return dx_op2(s->d, infix[e->op], a, fmt_eval(s, e->arg[1]));
    }
    case EX_COND: { /* the branch not taken is not evaluated: it may index outside its field */
      Dx c = fmt_eval(s, e->arg[0]);
      int64_t v;
      if (dx_is_int(s->d, c, &v)) return fmt_eval(s, e->arg[v ? 1 : 2]);
      Dx a = fmt_eval(s, e->arg[1]);
      return dx_op3(s->d, DXO_COND, c, a, fmt_eval(s, e->arg[2]));
    }
    default: return fmt_fail(s, err_new(ERR_SYNTAX, "format %s: this kind of expression does not belong here", s->f->name));
  }
}
