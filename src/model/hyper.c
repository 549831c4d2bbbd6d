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

const char *hyper_name(HyperEnv *env, const char *pattern) {
  const char *open = strchr(pattern, '{'), *close = open ? strchr(open, '}') : NULL;
  if (!close) return pattern;
  for (int i = env->n_local - 1; i >= 0; i--)
    if (strlen(env->local[i].name) == (size_t)(close - open - 1) && !strncmp(env->local[i].name, open + 1, (size_t)(close - open - 1)))
      return arena_printf(env->arena, "%.*s%lld%s", (int)(open - pattern), pattern, (long long)env->local[i].num.i, close + 1);
  return pattern;
}

/* GGUF writes the architecture's name before a model's own keys; config.json has keys as they are, or below one that the declaration names. */
const FileKv *hyper_kv(HyperEnv *env, const char *name) {
  if (env->arch) return file_kv_find(env->w, arena_printf(env->arena, "%s.%s", env->arch, name));
  const FileKv *kv = env->decl && env->decl->below ? file_kv_find(env->w, arena_printf(env->arena, "%s.%s", env->decl->below, name)) : NULL;
  return kv ? kv : file_kv_find(env->w, name);
}

/* Of names in quotes, `"a" | "b"`, the first that the file has. */
static const FileKv *find_key(HyperEnv *env, const Expr *e) {
  if (e->kind == EX_STR) return hyper_kv(env, e->name);
  const FileKv *kv = NULL;
  for (int i = 0; i < e->n_args && !kv; i++) kv = find_key(env, e->arg[i]);
  return kv;
}

const FileTensor *hyper_tensor(HyperEnv *env, const char *pattern) {
  const char *name = hyper_name(env, pattern);
  const FileTensor *t = file_tensor_find(env->w, name);
  for (int i = 0; !t && !env->arch && env->decl && i < env->decl->n_moves; i++) {
    const NameMove *v = &env->decl->move[i];
    if (!strncmp(name, v->from, strlen(v->from))) t = file_tensor_find(env->w, arena_printf(env->arena, "%s%s", v->to, name + strlen(v->from)));
  }
  return t;
}

static const FileTensor *find_tensor(HyperEnv *env, const Expr *e) {
  if (e->kind == EX_STR) return hyper_tensor(env, e->name);
  const FileTensor *t = NULL;
  for (int i = 0; i < e->n_args && !t; i++) t = find_tensor(env, e->arg[i]);
  return t;
}

/* The name that an error shows: of several the first, which is GGUF's, or the last. */
static const char *shown(HyperEnv *env, const Expr *e, bool key) {
  while (e->kind != EX_STR && e->n_args) e = e->arg[env->arch ? 0 : e->n_args - 1];
  return key && env->arch ? arena_printf(env->arena, "%s.%s", env->arch, e->name) : e->name;
}

static Err *list_place(const FileKv *kv, int64_t i) {
  return i >= 0 && (size_t)i < kv->n ? NULL : err_new(ERR_FORMAT, "metadata %s: %zu items, item %lld was asked for", kv->key, kv->n, (long long)i);
}

/* Of lists of floats f32, which is what GGUF would keep. */
Err *hyper_kv_number(HyperEnv *env, const FileKv *kv, int64_t i, Num *out) {
  int64_t v = 0;
  double f = 0;
  bool is_int;
  TRY(list_place(kv, i));
  TRY(file_kv_number(env->w, kv, i, &is_int, &v, &f));
  if (kv->is_array) f = (double)(float)f;
  if (!isfinite(f)) return err_new(ERR_FORMAT, "metadata %s: %g, expected a finite number", kv->key, f);
  if (v < -((int64_t)1 << 32) || v > (int64_t)1 << 32) return err_new(ERR_FORMAT, "metadata %s: %lld, expected a number of at most 32 bits", kv->key, (long long)v);
  *out = is_int ? num_i(v) : num_f(f);
  return NULL;
}

/* What counts items, axes and elements is whole. */
static Err *eval_index(HyperEnv *env, const Expr *e, int64_t *out) {
  Num n;
  TRY(hyper_eval(env, e, &n));
  if (!n.is_int) return err_new(ERR_FORMAT, "number %g among items, expected a whole one", n.f);
  *out = n.i;
  return NULL;
}

static Err *call_key(HyperEnv *env, const Expr *e, Num *out) {
  const FileKv *kv = find_key(env, e->arg[0]);
  if (!kv && e->n_args == 2) return hyper_eval(env, e->arg[1], out);
  if (!kv) return err_new(ERR_NOT_FOUND, "metadata %s: missing, and the model needs it", shown(env, e->arg[0], true));
  if (kv->is_array) return err_new(ERR_UNSUPPORTED, "metadata %s: a list, expected one number for all layers", kv->key);
  return hyper_kv_number(env, kv, 0, out);
}

static Err *call_item(HyperEnv *env, const Expr *e, Num *out) {
  int64_t i;
  const FileKv *kv = find_key(env, e->arg[0]);
  if (!kv && e->n_args == 3) return hyper_eval(env, e->arg[2], out);
  if (!kv) return err_new(ERR_NOT_FOUND, "metadata %s: missing, and the model needs it", shown(env, e->arg[0], true));
  TRY(eval_index(env, e->arg[1], &i));
  return hyper_kv_number(env, kv, kv->is_array ? i : 0, out);
}

/* 1 for the first text of `"a" | "b"`, which leans to the left; 0: none of them. Lists them for a message. */
static int text_index(const Expr *e, const FileStr *s, Str *list) {
  int before = 0, n = 1;
  if (e->kind != EX_STR) {
    before = text_index(e->arg[0], s, list);
    for (const Expr *w = e->arg[0]; w->kind != EX_STR; w = w->arg[0]) n++;
    n++;
    e = e->arg[1];
  }
  str_addf(list, list->n ? ", %s" : "%s", e->name);
  return before ? before : strlen(e->name) == s->n && !memcmp(e->name, s->p, s->n) ? n : 0;
}

static Err *call_which(HyperEnv *env, const Expr *e, Num *out) {
  int64_t i = 0;
  const FileKv *kv = find_key(env, e->arg[0]);
  *out = num_i(0);
  if (!kv) return NULL;
  if (kv->type != FILE_STR || !kv->str) return err_new(ERR_FORMAT, "metadata %s: expected text", kv->key);
  if (e->n_args == 3) TRY(eval_index(env, e->arg[2], &i));
  TRY(list_place(kv, i));
  Str known = {0}, got = {0};
  file_quote(kv->str[i].p, kv->str[i].n, &got);
  *out = num_i(text_index(e->arg[1], &kv->str[i], &known));
  Err *err = out->i ? NULL : err_new(ERR_UNSUPPORTED, "metadata %s: %s, expected one of %s", kv->key, got.p, known.p);
  str_free(&known);
  str_free(&got);
  return err;
}

static Err *call_has(HyperEnv *env, const Expr *e, Num *out) {
  const Expr *arg = e->arg[0];
  bool declared = arg->kind == EX_NAME || arg->kind == EX_FIELD;
  *out = num_i(declared ? model_has_tensor(env->model, env->layer, arg->name, arg->kind == EX_FIELD) : find_tensor(env, arg) != NULL);
  return NULL;
}

static Err *call_dim(HyperEnv *env, const Expr *e, Num *out) {
  int64_t axis;
  const FileTensor *t = find_tensor(env, e->arg[0]);
  TRY(eval_index(env, e->arg[1], &axis));
  if (!t) return err_new(ERR_NOT_FOUND, "tensor %s: missing from the file", shown(env, e->arg[0], false));
  if (axis < 0 || axis >= t->n_dims) return err_new(ERR_SHAPE, "tensor %s: has %d dimensions, axis %lld was asked for", t->name, t->n_dims, (long long)axis);
  *out = num_i(t->dim[axis]);
  return NULL;
}

static bool is_f32(const HyperEnv *env, const FileTensor *t) {
  const FormatDecl *f = t->format ? lang_format(env->module, t->format) : NULL;
  return f && f->block == 1 && f->n_fields == 1 && !strcmp(f->field[0].elt, "f32") && t->p;
}

static Err *call_value(HyperEnv *env, const Expr *e, Num *out) {
  int64_t i;
  const FileTensor *t = find_tensor(env, e->arg[0]);
  if (!t && e->n_args == 3) return hyper_eval(env, e->arg[2], out);
  if (!t) return err_new(ERR_NOT_FOUND, "tensor %s: missing from the file", shown(env, e->arg[0], false));
  TRY(eval_index(env, e->arg[1], &i));
  if (!is_f32(env, t)) return err_new(ERR_FORMAT, "tensor %s: %s, expected 32-bit floats", t->name, t->type);
  if (i < 0 || i >= t->n_elems) return err_new(ERR_SHAPE, "tensor %s: has %lld elements, element %lld was asked for", t->name, (long long)t->n_elems, (long long)i);
  float f;
  memcpy(&f, t->p + 4 * i, 4);
  *out = num_f((double)f);
  return NULL;
}

/* Functions of numbers: one of doubles, and where ints give an int one of those. */
static double f_pow(double a, double b) { return pow(a, b); }
static double f_sqrt(double a, double b) { (void)b; return sqrt(a); }
static double f_log(double a, double b) { (void)b; return log(a); }
static double f_floor(double a, double b) { (void)b; return floor(a); }
static double f_rint(double a, double b) { (void)b; return rint(a); }
static double f_abs(double a, double b) { (void)b; return fabs(a); }
static double f_f32(double a, double b) { (void)b; return (double)(float)a; }
static double f_min(double a, double b) { return MIN(a, b); }
static double f_max(double a, double b) { return MAX(a, b); }
static int64_t negated(int64_t a) { return (int64_t)(0 - (uint64_t)a); } /* the least of all stays as it is */
static int64_t i_abs(int64_t a, int64_t b) { (void)b; return a < 0 ? negated(a) : a; }
static int64_t i_min(int64_t a, int64_t b) { return MIN(a, b); }
static int64_t i_max(int64_t a, int64_t b) { return MAX(a, b); }

static int64_t i_gcd(int64_t a, int64_t b) {
  uint64_t x = (uint64_t)i_abs(a, 0), y = (uint64_t)i_abs(b, 0);
  while (y) {
    uint64_t r = x % y;
    x = y, y = r;
  }
  return (int64_t)x;
}

static const struct { const char *name; double (*of_floats)(double, double); int64_t (*of_ints)(int64_t, int64_t); } functions[] = {
  {"pow", f_pow, NULL}, {"sqrt", f_sqrt, NULL}, {"log", f_log, NULL}, {"floor", f_floor, NULL}, {"rint", f_rint, NULL}, {"f32", f_f32, NULL},
  {"abs", f_abs, i_abs}, {"min", f_min, i_min}, {"max", f_max, i_max}, {"gcd", NULL, i_gcd},
};

static const struct { const char *name; Err *(*fn)(HyperEnv *, const Expr *, Num *); } lookups[] = {
  {"key", call_key}, {"item", call_item}, {"which", call_which}, {"has", call_has}, {"dim", call_dim}, {"value", call_value},
};

/* The checker has seen to the number and kind of arguments. */
static Err *call(HyperEnv *env, const Expr *e, Num *out) {
  for (size_t i = 0; i < COUNT_OF(lookups); i++) if (!strcmp(e->name, lookups[i].name)) return lookups[i].fn(env, e, out);
  Num a, b = num_i(0);
  TRY(hyper_eval(env, e->arg[0], &a));
  if (e->n_args >= 2) TRY(hyper_eval(env, e->arg[1], &b));
  bool ints = a.is_int && b.is_int;
  if (!strcmp(e->name, "i32")) {
    double f = num_float(a);
    if (!(fabs(f) < 0x1p62)) return err_new(ERR_FORMAT, "%g does not fit a whole number", f);
    *out = ints ? a : num_i((int64_t)f);
    return NULL;
  }
  for (size_t i = 0; i < COUNT_OF(functions); i++) {
    if (strcmp(e->name, functions[i].name)) continue;
    *out = ints && functions[i].of_ints ? num_i(functions[i].of_ints(a.i, b.i)) : num_f(functions[i].of_floats(num_float(a), num_float(b)));
    return NULL;
  }
  return err_new(ERR_UNSUPPORTED, "function '%s' is not known among hyperparameters", e->name);
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
  if ((e->op == OP_AND && num_float(a) == 0) || (e->op == OP_OR && num_float(a) != 0)) { /* as in C: what guards, guards */
    *out = num_i(e->op == OP_OR);
    return NULL;
  }
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
  for (int i = 0; i < env->n_of_layer; i++) if (!strcmp(env->of_layer[i].name, e->name)) { *out = env->of_layer[i].num; return NULL; }
  const Hyper *h = hyper_find(env, e->name);
  if (h && !h->is_array) { *out = h->num; return NULL; }
  if (!strcmp(e->name, "context")) { *out = num_i(env->context); return NULL; }
  return err_new(ERR_NOT_FOUND, "hyperparameter '%s' is not known here", e->name);
}

/* b.window: a number of the layer at hand. */
static Err *field(HyperEnv *env, const Expr *e, Num *out) {
  for (int i = 0; i < env->n_of_layer; i++) if (!strcmp(env->of_layer[i].name, e->name)) { *out = env->of_layer[i].num; return NULL; }
  return err_new(ERR_NOT_FOUND, "a layer has no number '%s'", e->name);
}

static Err *element(HyperEnv *env, const Expr *e, Num *out) {
  int64_t i;
  const Hyper *h = e->arg[0]->kind == EX_NAME ? hyper_find(env, e->arg[0]->name) : NULL;
  if (!h || !h->is_array) return err_new(ERR_SYNTAX, "only an array of numbers has elements");
  TRY(eval_index(env, e->arg[1], &i));
  if (i < 0 || i >= h->n) return err_new(ERR_FORMAT, "%s has %lld elements, element %lld was asked for", h->name, (long long)h->n, (long long)i);
  *out = num_f((double)h->array[i]);
  return NULL;
}

/* Over one index: the sum, the least or largest, or its first place. */
static Err *reduce(HyperEnv *env, const Expr *e, Num *out) {
  const Binder *b = e->binder;
  Num n, v, best = num_i(0);
  if (e->n_binders != 1 || env->n_local == (int)COUNT_OF(env->local)) return err_new(ERR_SYNTAX, "a reduction among hyperparameters has one index, and no other in it");
  TRY(hyper_eval(env, b->extent, &n));
  if (!n.is_int || n.i < 1 || n.i > 1 << 20) return err_new(ERR_FORMAT, "%s < %g: expected a range of 1 to %d", b->name, num_float(n), 1 << 20);
  bool sum = e->op == RED_SUM || e->op == RED_CHAIN || e->op == RED_ISUM, most = e->op == RED_MAX;
  int at = env->n_local++;
  int64_t place = 0;
  Err *err = NULL;
  env->local[at].name = b->name;
  for (int64_t i = 0; i < n.i && !err; i++) {
    env->local[at].num = num_i(i);
    err = hyper_eval(env, e->arg[0], &v);
    if (err) break;
    if (i && sum) best = v.is_int && best.is_int ? num_i((int64_t)((uint64_t)best.i + (uint64_t)v.i)) : num_f(num_float(best) + num_float(v));
    else if (!i || (most ? num_float(v) > num_float(best) : num_float(v) < num_float(best))) best = v, place = i;
  }
  env->n_local--;
  if (!err) *out = e->op == RED_ARGMIN ? num_i(place) : best;
  return err;
}

Err *hyper_eval(HyperEnv *env, const Expr *e, Num *out) {
  Num a;
  switch (e->kind) {
    case EX_INT: *out = num_i(e->ival); return NULL;
    case EX_FLOAT: *out = num_f(e->fval); return NULL;
    case EX_NAME: return name(env, e, out);
    case EX_CALL: return call(env, e, out);
    case EX_FIELD: return field(env, e, out);
    case EX_INDEX: return element(env, e, out);
    case EX_REDUCE: return reduce(env, e, out);
    case EX_BINARY: return binary(env, e, out);
    case EX_UNARY:
      TRY(hyper_eval(env, e->arg[0], &a));
      *out = e->op == OP_NEG ? (a.is_int ? num_i(negated(a.i)) : num_f(-a.f)) : num_i(!num_float(a));
      return NULL;
    case EX_COND:
      TRY(hyper_eval(env, e->arg[0], &a));
      return hyper_eval(env, e->arg[num_float(a) != 0 ? 1 : 2], out);
    default: return err_new(ERR_SYNTAX, "this kind of expression does not belong among hyperparameters");
  }
}

Err *hyper_load_array(HyperEnv *env, const HyperDecl *d, Hyper *h) {
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
    Err *e = d->hyper[i].axis.name ? hyper_load_array(env, &d->hyper[i], &h) : hyper_eval(env, d->hyper[i].value, &h.num);
    if (e) return err_wrap(e, "model %s: %s", d->name, h.name);
    PUSH(env->arena, env->item, env->n, env->cap, h);
  }
  return NULL;
}

void hyper_layer(HyperEnv *env, const LayerDecl *l, int layer, Hyper *numbers) {
  env->layer = layer;
  env->n_local = l ? 1 : 0;
  env->of_layer = numbers;
  env->n_of_layer = l && numbers ? l->n_hypers : 0;
  if (l) env->local[0].name = l->var, env->local[0].num = num_i(layer);
}

Err *hyper_load_layer(HyperEnv *env, const LayerDecl *l, int layer, Hyper *out) {
  hyper_layer(env, l, layer, NULL);
  env->of_layer = out;
  for (int i = 0; i < l->n_hypers; i++) {
    out[i].name = l->hyper[i].name;
    TRY(err_wrap(hyper_eval(env, l->hyper[i].value, &out[i].num), "layer %d: %s", layer, out[i].name));
    env->n_of_layer = i + 1;
  }
  return NULL;
}
