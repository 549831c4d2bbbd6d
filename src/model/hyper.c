/* Hyperparameters: expressions over the file's metadata, evaluated once at load in double precision (or 64-bit integers where all operands
   are integers; / of integers drops the remainder). In: the declaration and the file. Out: numbers and f32 arrays. */
#include <math.h>
#include <string.h>
#include "model/priv.h"

double num_float(Num n) { return n.is_int ? (double)n.i : n.f; }
static Num num_i(int64_t i) { return (Num){true, i, 0}; }
static Num num_f(double f) { return (Num){false, 0, f}; }

const Hyper *hyper_find(const HyperEnv *env, const char *name) {
  for (int i = 0; i < env->n; i++) if (!strcmp(env->item[i].name, name)) return &env->item[i];
  return NULL;
}

static Err *call_key(HyperEnv *env, const Expr *e, Num *out) {
  if (e->n_args < 1 || e->n_args > 2 || e->arg[0]->kind != EX_STR) return err_new(ERR_SYNTAX, "key takes a name and perhaps a default");
  const char *key = arena_printf(env->arena, "%s.%s", env->arch, e->arg[0]->name);
  const FileKv *kv = file_kv_find(env->w, key);
  if (!kv && e->n_args == 2) return hyper_eval(env, e->arg[1], out);
  if (!kv) return err_new(ERR_NOT_FOUND, "metadata %s: missing, and the model needs it", key);
  if (kv->is_array) return err_new(ERR_UNSUPPORTED, "metadata %s: an array, expected one number for all layers", key);
  if (kv->type == FILE_F32 || kv->type == FILE_F64) {
    double f;
    TRY(file_kv_float(env->w, key, &f));
    if (!isfinite(f)) return err_new(ERR_FORMAT, "metadata %s: %g, expected a finite number", key, f);
    *out = num_f(f);
    return NULL;
  }
  int64_t i;
  TRY(file_kv_int(env->w, key, 0, (int64_t)1 << 32, &i));
  *out = num_i(i);
  return NULL;
}

static Err *call_dim(HyperEnv *env, const Expr *e, Num *out) {
  Num axis;
  const FileTensor *t;
  if (e->n_args != 2 || e->arg[0]->kind != EX_STR) return err_new(ERR_SYNTAX, "dim takes a tensor's name and an axis");
  TRY(hyper_eval(env, e->arg[1], &axis));
  TRY(file_tensor_get(env->w, e->arg[0]->name, &t));
  if (axis.i < 0 || axis.i >= t->n_dims) return err_new(ERR_SHAPE, "tensor %s: has %d dimensions, axis %lld was asked for", t->name, t->n_dims, (long long)axis.i);
  *out = num_i(t->dim[axis.i]);
  return NULL;
}

static Err *call_value(HyperEnv *env, const Expr *e, Num *out) {
  Num i;
  if (e->n_args != 3 || e->arg[0]->kind != EX_STR) return err_new(ERR_SYNTAX, "value takes a tensor's name, an index and a default");
  const FileTensor *t = file_tensor_find(env->w, e->arg[0]->name);
  if (!t) return hyper_eval(env, e->arg[2], out);
  TRY(hyper_eval(env, e->arg[1], &i));
  if (t->n_bytes != (size_t)t->n_elems * 4) return err_new(ERR_FORMAT, "tensor %s: %s, expected 32-bit floats", t->name, t->type);
  if (i.i < 0 || i.i >= t->n_elems) return err_new(ERR_SHAPE, "tensor %s: has %lld elements, element %lld was asked for", t->name, (long long)t->n_elems, (long long)i.i);
  float f;
  memcpy(&f, t->p + 4 * i.i, 4);
  *out = num_f((double)f);
  return NULL;
}

static Err *call(HyperEnv *env, const Expr *e, Num *out) {
  if (!strcmp(e->name, "key")) return call_key(env, e, out);
  if (!strcmp(e->name, "dim")) return call_dim(env, e, out);
  if (!strcmp(e->name, "value")) return call_value(env, e, out);
  Num a = num_i(0), b = num_i(0);
  if (e->n_args < 1 || e->n_args > 2) return err_new(ERR_SYNTAX, "%s: got %d arguments", e->name, e->n_args);
  TRY(hyper_eval(env, e->arg[0], &a));
  if (e->n_args == 2) TRY(hyper_eval(env, e->arg[1], &b));
  bool ints = a.is_int && b.is_int;
  double x = num_float(a), y = num_float(b);
  if (!strcmp(e->name, "pow")) *out = num_f(pow(x, y));
  else if (!strcmp(e->name, "sqrt")) *out = num_f(sqrt(x));
  else if (!strcmp(e->name, "exp")) *out = num_f(exp(x));
  else if (!strcmp(e->name, "log")) *out = num_f(log(x));
  else if (!strcmp(e->name, "floor")) *out = num_f(floor(x));
  else if (!strcmp(e->name, "min")) *out = ints ? num_i(MIN(a.i, b.i)) : num_f(MIN(x, y));
  else if (!strcmp(e->name, "max")) *out = ints ? num_i(MAX(a.i, b.i)) : num_f(MAX(x, y));
  else return err_new(ERR_NOT_FOUND, "function '%s' is not known among hyperparameters", e->name);
  return NULL;
}

static Err *int_op(const Expr *e, int64_t a, int64_t b, Num *out) {
  int64_t r = 0;
  bool over = false;
  switch (e->op) {
    case OP_ADD: over = __builtin_add_overflow(a, b, &r); break;
    case OP_SUB: over = __builtin_sub_overflow(a, b, &r); break;
    case OP_MUL: over = __builtin_mul_overflow(a, b, &r); break;
    case OP_DIV: case OP_MOD:
      if (b == 0 || (a == INT64_MIN && b == -1)) return err_new(ERR_FORMAT, "%lld divided by %lld", (long long)a, (long long)b);
      r = e->op == OP_DIV ? a / b : a % b;
      break;
    case OP_EQ: r = a == b; break;
    case OP_NE: r = a != b; break;
    case OP_LT: r = a < b; break;
    case OP_LE: r = a <= b; break;
    case OP_GT: r = a > b; break;
    case OP_GE: r = a >= b; break;
    case OP_AND: r = a && b; break;
    case OP_OR: r = a || b; break;
    default: return err_new(ERR_UNSUPPORTED, "this operator is not known among hyperparameters");
  }
  if (over) return err_new(ERR_LIMIT, "%lld and %lld: the result does not fit 64 bits", (long long)a, (long long)b);
  *out = num_i(r);
  return NULL;
}

static Err *binary(HyperEnv *env, const Expr *e, Num *out) {
  Num a, b;
  TRY(hyper_eval(env, e->arg[0], &a));
  TRY(hyper_eval(env, e->arg[1], &b));
  if (a.is_int && b.is_int) return int_op(e, a.i, b.i, out);
  double x = num_float(a), y = num_float(b);
  switch (e->op) {
    case OP_ADD: *out = num_f(x + y); return NULL;
    case OP_SUB: *out = num_f(x - y); return NULL;
    case OP_MUL: *out = num_f(x * y); return NULL;
    case OP_DIV: *out = num_f(x / y); return NULL;
    case OP_EQ: *out = num_i(x == y); return NULL;
    case OP_NE: *out = num_i(x != y); return NULL;
    case OP_LT: *out = num_i(x < y); return NULL;
    case OP_LE: *out = num_i(x <= y); return NULL;
    case OP_GT: *out = num_i(x > y); return NULL;
    case OP_GE: *out = num_i(x >= y); return NULL;
    default: return err_new(ERR_UNSUPPORTED, "this operator is not known for numbers with fractions");
  }
}

static Err *name(HyperEnv *env, const Expr *e, Num *out) {
  for (int i = env->n_local - 1; i >= 0; i--) if (!strcmp(env->local[i].name, e->name)) { *out = env->local[i].num; return NULL; }
  const Hyper *h = hyper_find(env, e->name);
  if (h && !h->is_array) { *out = h->num; return NULL; }
  if (!strcmp(e->name, "context")) { *out = num_i(env->context); return NULL; }
  return err_new(ERR_NOT_FOUND, "hyperparameter '%s' is not known here", e->name);
}

Err *hyper_eval(HyperEnv *env, const Expr *e, Num *out) {
  Num a;
  switch (e->kind) {
    case EX_INT: *out = num_i(e->ival); return NULL;
    case EX_FLOAT: *out = num_f(e->fval); return NULL;
    case EX_NAME: return name(env, e, out);
    case EX_CALL: return call(env, e, out);
    case EX_BINARY: return binary(env, e, out);
    case EX_UNARY:
      TRY(hyper_eval(env, e->arg[0], &a));
      *out = e->op == OP_NEG ? (a.is_int ? num_i(-a.i) : num_f(-a.f)) : num_i(!num_float(a));
      return NULL;
    case EX_COND:
      TRY(hyper_eval(env, e->arg[0], &a));
      return hyper_eval(env, e->arg[num_float(a) != 0 ? 1 : 2], out);
    default: return err_new(ERR_SYNTAX, "this kind of expression does not belong among hyperparameters");
  }
}

static Err *load_array(HyperEnv *env, const HyperDecl *d, Hyper *h) {
  Num n, v;
  TRY(hyper_eval(env, d->axis.extent, &n));
  if (!n.is_int || n.i < 1 || n.i > 1 << 20) return err_new(ERR_FORMAT, "array %s: length %g, expected 1 to %d", d->name, num_float(n), 1 << 20);
  h->is_array = true;
  h->n = n.i;
  h->array = ARENA_ARRAY(env->arena, float, n.i + 16);
  int at = env->n_local++;
  env->local[at].name = d->axis.name;
  for (int64_t i = 0; i < n.i; i++) {
    env->local[at].num = num_i(i);
    Err *e = hyper_eval(env, d->value, &v);
    if (e) { env->n_local--; return e; }
    h->array[i] = (float)num_float(v);
  }
  env->n_local--;
  return NULL;
}

Err *hyper_load(HyperEnv *env, const ModelDecl *d) {
  for (int i = 0; i < d->n_hypers; i++) {
    Hyper h = {.name = d->hyper[i].name};
    Err *e = d->hyper[i].axis.name ? load_array(env, &d->hyper[i], &h) : hyper_eval(env, d->hyper[i].value, &h.num);
    if (e) return err_wrap(e, "model %s: %s", d->name, h.name);
    PUSH(env->arena, env->item, env->n, env->cap, h);
  }
  return NULL;
}
