/* A folder's model as GGUF: keys by the text's `write` lines, tensors by the first of their names, the tokenizer, the template, the advice on
   sampling. In: a folder. Out: arrays for the writer. At the end the model's numbers are worked out again from what was made and compared. */
#include <stdlib.h>
#include <string.h>
#include "model/export.h"
#include "model/priv.h"
#include "model/vocab.h"

typedef struct Export { ModelExport x; Model *m; const char *arch; int cap_kvs, cap_tensors; } Export;

/* ---- keys ---------------------------------------------------------------------------------------------------------- */
static bool put(Export *e, const char *key, FileType type, bool is_array, size_t n, const void *data, const FileStr *str) {
  for (int i = 0; i < e->x.n_kvs; i++) if (!strcmp(e->x.kv[i].key, key)) return false;
  PUSH(e->m->arena, e->x.kv, e->x.n_kvs, e->cap_kvs, (FileKv){.key = key, .type = type, .is_array = is_array, .n = n, .data = data, .str = str});
  return true;
}

static void put_text(Export *e, const char *key, const char *text) {
  FileStr *s = ARENA_NEW(e->m->arena, FileStr);
  *s = (FileStr){text, strlen(text)};
  put(e, key, FILE_STR, false, 1, NULL, s);
}

static void put_u32(Export *e, const char *key, uint32_t value) {
  uint32_t *v = ARENA_NEW(e->m->arena, uint32_t);
  *v = value;
  put(e, key, FILE_U32, false, 1, v, NULL);
}

static void put_f32(Export *e, const char *key, float value) {
  float *v = ARENA_NEW(e->m->arena, float);
  *v = value;
  put(e, key, FILE_F32, false, 1, v, NULL);
}

static void put_bool(Export *e, const char *key, bool value) {
  uint8_t *v = ARENA_NEW(e->m->arena, uint8_t);
  *v = value;
  put(e, key, FILE_BOOL, false, 1, v, NULL);
}

static void put_texts(Export *e, const char *key, const char *const *text, const uint32_t *n_bytes, int n) {
  FileStr *s = ARENA_ARRAY(e->m->arena, FileStr, (size_t)n);
  for (int i = 0; i < n; i++) s[i] = (FileStr){text[i], n_bytes[i]};
  put(e, key, FILE_STR, true, (size_t)n, NULL, s);
}

static Err *put_number(Export *e, const char *key, Num v) {
  if (!v.is_int) put_f32(e, key, (float)v.f);
  else if (v.i < 0 || v.i > UINT32_MAX) return err_new(ERR_FORMAT, "key %s: %lld, expected at least 0 and 32 bits", key, (long long)v.i);
  else put_u32(e, key, (uint32_t)v.i);
  return NULL;
}

static void put_tensor(Export *e, ExportTensor t) { PUSH(e->m->arena, e->x.tensor, e->x.n_tensors, e->cap_tensors, t); }

/* A row of floats that the text makes of numbers. */
static Err *write_tensor(Export *e, const WriteDecl *w) {
  Model *m = e->m;
  HyperDecl d = {.name = w->key, .loc = w->loc, .axis = w->axis, .value = w->value};
  Hyper h = {.name = w->key};
  TRY(hyper_load_array(&m->env, &d, &h));
  put_tensor(e, (ExportTensor){.fixed = true, .t = {.name = w->key, .format = "f32", .type = "F32", .n_dims = 1, .dim = {h.n}, .n_elems = h.n, .p = (const uint8_t *)h.array, .n_bytes = (size_t)h.n * 4}});
  return NULL;
}

static Err *write_lines(Export *e) {
  Model *m = e->m;
  for (int i = 0; i < m->decl->n_writes; i++) {
    const WriteDecl *w = &m->decl->write[i];
    const char *key = arena_printf(m->arena, "%s.%s", e->arch, w->key);
    Num v = {.is_int = true, .i = 1};
    if (w->when) TRY(hyper_eval(&m->env, w->when, &v));
    if (num_float(v) == 0) continue;
    if (w->axis.name) TRY(write_tensor(e, w));
    else if (w->value->kind == EX_STR) put_text(e, key, w->value->name);
    else {
      TRY(err_wrap(hyper_eval(&m->env, w->value, &v), "key %s", key));
      TRY(put_number(e, key, v));
    }
  }
  return NULL;
}

/* Advice on how to draw tokens, under GGUF's keys. */
static void write_sampling(Export *e) {
  static const struct { const char *from, *to; bool is_int; double lo, hi; } rows[] = {
#define SAMPLING(id, folder, gguf, is_int, lo, hi) {folder, gguf, is_int, lo, hi},
#include "model/sampling.def"
#undef SAMPLING
  };
  for (size_t i = 0; i < COUNT_OF(rows); i++) {
    double x;
    Err *err = file_kv_float(e->x.from, rows[i].from, &x);
    if (!err && x >= rows[i].lo && x <= rows[i].hi) {
      if (rows[i].is_int) put_u32(e, rows[i].to, (uint32_t)x);
      else put_f32(e, rows[i].to, (float)x);
    }
    err_free(err);
  }
}

/* ---- the tokenizer ------------------------------------------------------------------------------------------------- */
static void put_id(Export *e, const char *key, int id) {
  if (id >= 0) put_u32(e, key, (uint32_t)id);
}

/* The ends of an answer: one is the end of the text, GGUF has two keys for others. */
static Err *put_ends(Export *e, const TextVocab *v, int eos) {
  static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
  int32_t *ends;
  int n, used = 0;
  TRY(model_vocab_ends(e->m->arena, e->x.from, v, &ends, &n));
  if (eos >= 0) put_id(e, keys[used++], eos);
  for (int i = 0; i < n && used < (int)COUNT_OF(keys); i++) if (ends[i] != eos) put_id(e, keys[used++], ends[i]);
  return NULL;
}

static Err *special_id(Export *e, const char *key, int n_tokens, int *out) {
  const FileKv *kv = file_kv_find(e->x.from, key);
  int64_t id = -1;
  *out = -1;
  if (kv && !kv->is_array) TRY(file_kv_int(e->x.from, key, INT32_MIN, INT32_MAX, &id));
  if (id >= 0 && id < n_tokens) *out = (int)id;
  return NULL;
}

static Err *put_vocab(Export *e, const TextVocab *v, int n_tokens) {
  Arena *a = e->m->arena;
  TextVocabSource s;
  int pad, bos;
  TRY(text_vocab_source(a, v, n_tokens, &s));
  put_text(e, "tokenizer.ggml.model", s.kind);
  if (s.pre) put_text(e, "tokenizer.ggml.pre", s.pre);
  put_texts(e, "tokenizer.ggml.tokens", s.token, s.token_bytes, s.n_tokens);
  put(e, "tokenizer.ggml.token_type", FILE_I32, true, (size_t)s.n_tokens, s.type, NULL);
  if (s.score) put(e, "tokenizer.ggml.scores", FILE_F32, true, (size_t)s.n_tokens, s.score, NULL);
  if (s.n_merges) put_texts(e, "tokenizer.ggml.merges", s.merge, s.merge_bytes, s.n_merges);
  TRY(special_id(e, "bos_token_id", s.n_tokens, &bos));
  TRY(special_id(e, "pad_token_id", s.n_tokens, &pad));
  put_id(e, "tokenizer.ggml.bos_token_id", s.bos >= 0 ? s.bos : bos);
  put_id(e, "tokenizer.ggml.unknown_token_id", s.unk);
  put_id(e, "tokenizer.ggml.padding_token_id", pad);
  put_bool(e, "tokenizer.ggml.add_bos_token", s.add_bos > 0);
  put_bool(e, "tokenizer.ggml.add_eos_token", s.add_eos > 0);
  if (s.add_space_prefix >= 0) put_bool(e, "tokenizer.ggml.add_space_prefix", s.add_space_prefix > 0);
  return put_ends(e, v, s.eos);
}

static Err *write_text(Export *e) {
  TextVocab *v;
  const char *template;
  int64_t n = 0;
  char *key = arena_printf(e->m->arena, "%s.vocab_size", e->arch);
  for (int i = 0; i < e->x.n_kvs; i++) if (!strcmp(e->x.kv[i].key, key)) n = *(const uint32_t *)e->x.kv[i].data;
  Err *err = model_vocab_open(e->x.from, &v);
  if (err && err_kind(err) == ERR_NOT_FOUND) return err_wrap(err, "a GGUF file holds its tokenizer");
  TRY(err);
  err = put_vocab(e, v, (int)n);
  text_vocab_free(v);
  TRY(err_wrap(err, "%s", e->x.from->path));
  err = model_chat_template(e->m->arena, e->x.from, &template);
  if (err && err_kind(err) == ERR_NOT_FOUND) err_free(err); /* a base model */
  else {
    TRY(err);
    put_text(e, "tokenizer.chat_template", template);
  }
  return NULL;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------- */
/* What to write where: row `to[r]` of the file is row r of the model, which is row `from[r]` of the folder. */
static Err *compose_rows(Model *m, const TensorSource *to, const TensorSource *from, int64_t n, const int32_t **out) {
  *out = NULL;
  if (!to->row && !from->row) return NULL;
  int32_t *a = ARENA_ARRAY(m->arena, int32_t, n), *b = ARENA_ARRAY(m->arena, int32_t, n), *row = ARENA_ARRAY(m->arena, int32_t, n);
  for (int64_t r = 0; r < n; r++) a[r] = b[r] = (int32_t)r, row[r] = -1;
  if (to->row) TRY(model_map_rows(m, to, n, a));
  if (from->row) TRY(model_map_rows(m, from, n, b));
  for (int64_t r = 0; r < n; r++) row[a[r]] = b[r];
  for (int64_t r = 0; r < n; r++) if (row[r] < 0) return err_new(ERR_UNSUPPORTED, "rows of \"%s\": none is row %lld of the file", to->name, (long long)r);
  *out = row;
  return NULL;
}

/* Rows of floats without the padding that kernels want, in the file's order. */
static Err *dense_values(Model *m, const ModelTensor *t, const TensorSource *to, const uint8_t **out) {
  static const TensorSource as_is;
  int64_t n = t->dim[0], in_row = 1;
  const int32_t *row;
  for (int i = 1; i < t->n_dims; i++) in_row *= t->dim[i];
  int64_t stride = t->n_dims > 1 ? tp_row_pad(in_row, IR_M_f32) : 1;
  float *v = ARENA_ARRAY(m->arena, float, n * in_row + 32);
  TRY(compose_rows(m, to, &as_is, n, &row));
  for (int64_t r = 0; r < n; r++) memcpy(v + r * in_row, t->values + (row ? row[r] : r) * stride, (size_t)in_row * sizeof *v);
  *out = (const uint8_t *)v;
  return NULL;
}

static Err *export_parts(Model *m, const ModelTensor *t, const TensorSource *to, ExportTensor *x) {
  PartsReader *r = ARENA_NEW(m->arena, PartsReader);
  x->t.n_dims = t->n_dims;
  memcpy(x->t.dim, t->dim, sizeof t->dim);
  TRY(err_wrap(model_parts_reader(m->kerns, m->forms, t->parts, r), "tensor %s", t->file->name));
  x->parts = r;
  return compose_rows(m, to, t->source, t->parts->fit.rows, &x->row);
}

static Err *export_tensor(Export *e, const ModelTensor *t) {
  Model *m = e->m;
  const TensorSource *to = &t->decl->source[0];
  if (!t->file || t->same_as >= 0) return NULL; /* none, or another's bytes: the reader's text says the same of the file made here */
  if (to->each) return err_new(ERR_UNSUPPORTED, "tensor \"%s\": what `each` makes of its elements cannot be undone", to->name);
  ExportTensor x = {.t = *t->file, .fixed = t->values != NULL};
  x.t.name = arena_dup(m->arena, hyper_name(&m->env, to->name));
  if (t->values) {
    x.t.format = "f32";
    x.t.type = "F32";
    x.t.n_bytes = (size_t)x.t.n_elems * 4;
    TRY(dense_values(m, t, to, &x.t.p));
  } else if (t->parts) TRY(export_parts(m, t, to, &x));
  else TRY(compose_rows(m, to, t->source, t->dim[0], &x.row));
  put_tensor(e, x);
  return NULL;
}

static Err *export_tensors(Export *e) {
  Model *m = e->m;
  for (int i = 0; i < m->n_tensors; i++) TRY(export_tensor(e, &m->tensor[i]));
  for (int l = 0; l < m->n_layers; l++) {
    hyper_layer(&m->env, m->layer, l, m->lhyper + l * m->layer->n_hypers);
    for (int i = 0; i < m->n_ltensors; i++) TRY(export_tensor(e, &m->ltensor[l * m->n_ltensors + i]));
  }
  hyper_layer(&m->env, NULL, -1, NULL);
  e->x.left_out = m->unused;
  e->x.n_left_out = m->n_unused;
  return NULL;
}

/* ---- the same numbers? --------------------------------------------------------------------------------------------- */
static bool expr_names(const Expr *e, const char *name, ExprKind kind) {
  if (!e) return false;
  if (e->kind == kind && !strcmp(e->name, name)) return true;
  for (int i = 0; i < e->n_args; i++) if (expr_names(e->arg[i], name, kind)) return true;
  return false;
}

static bool graph_names(const GraphStmt *s, int n, const char *name, ExprKind kind) {
  for (int i = 0; i < n; i++) if (expr_names(s[i].rhs, name, kind) || graph_names(s[i].body, s[i].n_body, name, kind)) return true;
  return false;
}

static bool used_in_graph(const ModelDecl *d, const char *name, ExprKind kind) {
  return graph_names(d->graph, d->n_graph, name, kind) || expr_names(d->result, name, kind);
}

static Err *differ(const char *name, double a, double b) {
  return err_new(ERR_UNSUPPORTED, "%s is %.9g, and would be %.9g by what a GGUF file says: the model's text has no key for it (write \"..\" = ..)", name, a, b);
}

static Err *same_number(const Hyper *a, const Hyper *b) {
  if (!a->is_array) return (float)num_float(a->num) == (float)num_float(b->num) ? NULL : differ(a->name, num_float(a->num), num_float(b->num));
  if (a->n != b->n) return differ(a->name, (double)a->n, (double)b->n);
  for (int64_t i = 0; i < a->n; i++) if (a->array[i] != b->array[i]) return differ(a->name, (double)a->array[i], (double)b->array[i]);
  return NULL;
}

static Err *same_layers(Export *e, HyperEnv *env) {
  Model *m = e->m;
  const LayerDecl *d = m->layer;
  Hyper *h = ARENA_ARRAY(m->arena, Hyper, d->n_hypers + 1);
  for (int l = 0; l < m->n_layers; l++) {
    TRY(hyper_load_layer(env, d, l, h));
    for (int i = 0; i < d->n_hypers; i++)
      if (used_in_graph(m->decl, h[i].name, EX_FIELD)) TRY(err_wrap(same_number(&m->lhyper[l * d->n_hypers + i], &h[i]), "layer %d", l));
  }
  return NULL;
}

static Err *check_numbers(Export *e) {
  Model *m = e->m;
  Weights *w;
  FileTensor *t = ARENA_ARRAY(m->arena, FileTensor, e->x.n_tensors + 1);
  for (int i = 0; i < e->x.n_tensors; i++) t[i] = e->x.tensor[i].t;
  TRY(file_weights_of(m->arena, e->x.from->path, "GGUF", e->x.kv, e->x.n_kvs, t, e->x.n_tensors, &w));
  HyperEnv env = {.arena = m->arena, .module = m->module, .w = w, .decl = m->decl, .arch = e->arch, .context = m->context, .model = m, .layer = -1};
  TRY(hyper_load(&env, m->decl));
  for (int i = 0; i < m->env.n; i++)
    if (used_in_graph(m->decl, m->env.item[i].name, EX_NAME)) TRY(same_number(&m->env.item[i], &env.item[i]));
  return m->layer ? same_layers(e, &env) : NULL;
}

/* ---- all ----------------------------------------------------------------------------------------------------------- */
/* The n-th class of config.json is the n-th architecture of GGUF, those past it the last. */
static Err *choose_arch(Export *e) {
  const ModelDecl *d = e->m->decl;
  const FileStr *all;
  size_t n;
  int at = 0;
  if (e->m->env.arch) return err_new(ERR_USAGE, "is a GGUF file already");
  if (!d->n_gguf_archs || !d->n_writes) return err_new(ERR_UNSUPPORTED, "model %s: its text does not say what a GGUF file of it holds (file gguf, write)", d->name);
  TRY(file_kv_strs(e->x.from, "architectures", &all, &n));
  for (int i = 0; i < d->n_hf_archs; i++) if (n && strlen(d->hf_arch[i]) == all[0].n && !memcmp(d->hf_arch[i], all[0].p, all[0].n)) at = i;
  e->arch = d->gguf_arch[MIN(at, d->n_gguf_archs - 1)];
  return NULL;
}

static const char *folder_name(Arena *a, const char *path) {
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;
  size_t at = n;
  while (at && path[at - 1] != '/') at--;
  return arena_dup_n(a, path + at, n - at);
}

static Err *export_all(Export *e, const char *path) {
  static const uint32_t version = 2; /* of the layouts of blocks, by the GGUF specification */
  TRY(model_bind(e->m, path));
  e->x.from = e->m->weights;
  TRY(choose_arch(e));
  put_text(e, "general.architecture", e->arch);
  put_text(e, "general.type", "model");
  put_text(e, "general.name", folder_name(e->m->arena, path));
  put(e, "general.quantization_version", FILE_U32, false, 1, &version, NULL);
  TRY(write_lines(e));
  write_sampling(e);
  TRY(export_tensors(e));
  TRY(check_numbers(e));
  return write_text(e);
}

Err *model_export_open(const char *path, const char *std_dir, ModelExport **out) {
  Export *e = calloc(1, sizeof *e);
  CHECK(e);
  e->m = model_new(&(ModelOptions){.std_dir = std_dir, .precision = "f32", .n_threads = 1});
  Err *err = export_all(e, path);
  if (err) {
    bool of_texts = !e->m->module;
    model_export_close(&e->x);
    return of_texts || !strncmp(err_text(err), path, strlen(path)) ? err : err_wrap(err, "%s", path);
  }
  *out = &e->x;
  return NULL;
}

size_t model_export_tile_bytes(const ExportTensor *t) { return model_parts_tile_bytes(t->parts); }

void model_export_rows(const ExportTensor *t, int64_t first, int64_t n, void *tile, float *out) { model_parts_rows(t->parts, t->row, first, n, tile, out); }

void model_export_drop_pages(const ExportTensor *t) { model_parts_drop_pages(t->parts->parts); }

void model_export_close(ModelExport *x) {
  if (!x) return;
  Export *e = (Export *)(void *)x;
  model_close(e->m);
  free(e);
}
