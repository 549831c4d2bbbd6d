/* One tensor of a model's files as floats, without a model, whose text need not be known: blocks by their format's text, what several tensors hold by their layout's.
   In: files, a tensor's name as models give it. Out: rows of f32. */
#include <stdlib.h>
#include <string.h>
#include "model/priv.h"

typedef struct Reader { Arena *arena; Module *module; Weights *weights; const Target *target; Kerns *kerns; } Reader; /* kerns: made when the tensor is known to be there */

static Err *decode_alone(Reader *r, Tp *forms, const FileTensor *t, float **out) {
  FormatForm *f;
  const Kern *k;
  uint8_t scratch[256];
  TRY(file_tensor_get(r->weights, t->name, &t));
  TRY(tp_form(forms, t->format, &f));
  TRY(kern_decode(r->kerns, f, &k));
  void *v;
  TRY(arena_alloc_large(r->arena, (size_t)t->n_elems + 16, sizeof **out, t->name, &v));
  *out = v;
  void *args[FORMAT_MAX_ARGS] = {(void *)(uintptr_t)t->p, *out};
  format_table_args(f, args);
  k->entry(args, 0, t->n_elems / f->decl->block, scratch);
  return NULL;
}

static Err *missing(const Reader *r, const char *name) {
  const char **names = ARENA_ARRAY(r->arena, const char *, r->weights->n_tensors + 1);
  for (size_t i = 0; i < (size_t)r->weights->n_tensors; i++) names[i] = r->weights->tensor[i].name;
  const char *near = lang_nearest(name, names, (int)r->weights->n_tensors);
  return err_new(ERR_NOT_FOUND, "tensor %s: missing from the file; %s%s%s", name, near ? "did you mean " : "`lumen show MODEL` lists what it has", near ? near : "", near ? "?" : "");
}

static Err *decode(Reader *r, const char *name, int64_t *rows, int64_t *cols, float **out) {
  HyperEnv env = {.arena = r->arena, .module = r->module, .w = r->weights, .layer = -1};
  Tp *forms = tp_new(r->arena, r->module, NULL);
  TensorParts *p;
  const FileTensor *t = file_tensor_find(r->weights, name);
  int64_t given_rows = *rows, given_cols = *cols;
  const char *arch = NULL;
  err_free(model_declaration(r->module, r->weights, &env.decl, &arch)); /* where its text is known, metadata is read as loading reads it */
  if (arch) env.decl = NULL;
  TRY(model_says_known(&env));
  TRY(model_parts_find(&env, forms, name, given_rows, given_cols, &p));
  if (!p && !t) return missing(r, name);
  int64_t n_cols = p ? p->fit.cols : t->n_dims ? t->dim[t->n_dims - 1] : 1, n_rows = p ? p->fit.rows : t->n_elems / MAX(n_cols, 1);
  if ((given_rows && given_rows != n_rows) || (given_cols && given_cols != n_cols))
    return err_new(ERR_SHAPE, "tensor %s: %lld rows of %lld, expected %lld of %lld", name, (long long)n_rows, (long long)n_cols, (long long)given_rows, (long long)given_cols);
  TRY(kern_set_new(r->target, false, &r->kerns));
  void *v = NULL;
  if (p) TRY(arena_alloc_large(r->arena, (size_t)(n_rows * n_cols) + 16, sizeof **out, name, &v));
  if (p) *out = v;
  TRY(p ? model_parts_decode(r->arena, r->kerns, forms, p, *out) : decode_alone(r, forms, t, out));
  *rows = n_rows;
  *cols = n_cols;
  return NULL;
}

Err *model_tensor_decode(Arena *a, const char *path, const ModelOptions *opt, const char *name, int64_t *rows, int64_t *cols, float **out) {
  Reader r = {.arena = a};
  const Target *t = opt->target ? gen_target_find(opt->target) : NULL;
  if (opt->target && !t) return err_new(ERR_USAGE, "--target %s: no such target", opt->target);
  TRY(lang_std_load(a, opt->std_dir, &r.module));
  TRY(file_weights_open(a, path, model_format_find, r.module, &r.weights));
  r.target = t;
  Err *e = file_weights_explain(r.weights, decode(&r, name, rows, cols, out));
  kern_set_free(r.kerns);
  file_weights_close(r.weights);
  return e;
}
