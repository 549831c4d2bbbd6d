/* Tensors: found in the file by the declaration's names, checked against its dimensions, decoded to f32 where the declaration says so,
   packed into tiles of 16 rows where a plan reads them so. In: declaration and file. Out: ModelTensor with its bytes. */
#include <string.h>
#include "model/priv.h"

static Err *check_dims(Model *m, const TensorDecl *d, ModelTensor *t) {
  const FileTensor *f = t->file;
  if (d->type.n_dims < 1 || d->type.n_dims > 4) return err_new(ERR_LIMIT, "tensor %s: %d dimensions, expected 1 to 4", d->name, d->type.n_dims);
  int64_t left = (int64_t)1 << 62;                            /* elements of all dimensions together */
  t->n_dims = d->type.n_dims;
  for (int i = 0; i < t->n_dims; i++) {
    Num n;
    TRY(err_wrap(hyper_eval(&m->env, d->type.dim[i], &n), "tensor %s", d->name));
    if (!n.is_int || n.i < 1) return err_new(ERR_SHAPE, "tensor %s: dimension %d is %g by the model's numbers, expected a positive whole number", d->name, i, num_float(n));
    if (n.i > INT32_MAX || n.i > left) return err_new(ERR_LIMIT, "tensor %s: dimension %d is %lld by the model's numbers, expected at most %d", d->name, i, (long long)n.i, INT32_MAX);
    left /= n.i;
    t->dim[i] = n.i;
  }
  if (!f) return NULL;
  bool ok = f->n_dims == t->n_dims;
  for (int i = 0; ok && i < t->n_dims; i++) ok = f->dim[i] == t->dim[i];
  if (ok) return NULL;
  Str s = {0}, w = {0};
  file_tensor_shape(f, &s);
  for (int i = 0; i < t->n_dims; i++) str_addf(&w, i ? ", %lld" : "[%lld", (long long)t->dim[i]);
  Err *e = err_new(ERR_SHAPE, "tensor %s: shape %s, expected %s]", f->name, s.p, w.p ? w.p : "[");
  str_free(&s);
  str_free(&w);
  return e;
}

static int global_index(const Model *m, const char *name) {
  for (int i = 0; i < m->n_tensors; i++) if (!strcmp(m->tensor[i].decl->name, name)) return i;
  return -1;
}

enum { VALUES_MAX = 1 << 28 }; /* of a tensor that is kept as floats */

/* Floats as a kernel reads them: rows that are padded, as of every buffer. */
static Err *make_values(Model *m, const ModelTensor *t, int64_t *in_row, int64_t *stride, float **out) {
  int64_t n = 1, left = VALUES_MAX;
  for (int i = 0; i < t->n_dims; i++) {
    if (t->dim[i] > left) return err_new(ERR_LIMIT, "tensor %s: more than %d floats", t->decl->name, VALUES_MAX);
    left /= t->dim[i];
    if (i > 0) n *= t->dim[i];
  }
  *in_row = n;
  *stride = t->n_dims > 1 ? tp_row_pad(n, IR_M_f32) : 1;
  void *p;
  TRY(arena_alloc_large(m->arena, (size_t)(t->dim[0] * *stride + 32), sizeof **out, t->decl->name, &p));
  *out = p;
  return NULL;
}

static Err *fill_values(Model *m, ModelTensor *t) {
  Num n;
  int64_t in_row, stride;
  TRY(hyper_eval(&m->env, t->decl->otherwise, &n));
  TRY(make_values(m, t, &in_row, &stride, &t->values));
  for (int64_t r = 0; r < t->dim[0]; r++)
    for (int64_t i = 0; i < in_row; i++) t->values[r * stride + i] = (float)num_float(n);
  return NULL;
}

/* each x -> expr, in place. */
static Err *map_elements(Model *m, const TensorSource *s, float *v, int64_t n) {
  HyperEnv *env = &m->env;
  int at = env->n_local++;
  Err *e = NULL;
  env->local[at].name = s->each_name;
  for (int64_t i = 0; i < n && !e; i++) {
    Num r;
    env->local[at].num = (Num){.f = (double)v[i]};
    e = hyper_eval(env, s->each, &r);
    if (!e) v[i] = (float)num_float(r);
  }
  env->n_local--;
  return e;
}

/* rows r -> expr: out[r] is the file's row. */
Err *model_map_rows(Model *m, const TensorSource *s, int64_t n, int32_t *out) {
  HyperEnv *env = &m->env;
  int at = env->n_local++;
  Err *e = NULL;
  env->local[at].name = s->row_name;
  for (int64_t r = 0; r < n && !e; r++) {
    Num v;
    env->local[at].num = (Num){true, r, 0};
    e = hyper_eval(env, s->row, &v);
    if (!e && (!v.is_int || v.i < 0 || v.i >= n)) e = err_new(ERR_SHAPE, "row %lld would come from row %g of %lld", (long long)r, num_float(v), (long long)n);
    if (!e) out[r] = (int32_t)v.i;
  }
  env->n_local--;
  return e;
}

static Err *decode_blocks(Model *m, const ModelTensor *t, float *out) {
  const FileTensor *f = t->file;
  if (t->parts) return model_parts_decode(m->arena, m->kerns, m->forms, t->parts, out);
  if (t->form->plain && t->form->mem == IR_M_f32) {
    memcpy(out, f->p, (size_t)f->n_elems * 4);
    return NULL;
  }
  const Kern *k;
  TRY(kern_decode(m->kerns, t->form, &k));
  void *args[FORMAT_MAX_ARGS] = {(void *)(uintptr_t)f->p, out};
  format_table_args(t->form, args);
  uint8_t scratch[256];
  k->entry(args, 0, f->n_elems / t->form->decl->block, scratch);
  return NULL;
}

static Err *decode_values(Model *m, ModelTensor *t) {
  int64_t n = t->file->n_elems, n_rows = t->dim[0], in_row, stride;
  float *values;
  int32_t *row = NULL;
  TRY(make_values(m, t, &in_row, &stride, &values));
  void *room = values;
  if (t->source->row || stride != in_row) TRY(arena_alloc_large(m->arena, (size_t)n + 32, sizeof *values, t->file->name, &room));
  float *v = room;
  TRY(decode_blocks(m, t, v));
  if (t->source->each) TRY(map_elements(m, t->source, v, n));
  if (t->source->row) {
    row = ARENA_ARRAY(m->arena, int32_t, n_rows);
    TRY(model_map_rows(m, t->source, n_rows, row));
  }
  for (int64_t r = 0; v != values && r < n_rows; r++) memcpy(values + r * stride, v + (row ? row[r] : r) * in_row, (size_t)in_row * sizeof *v);
  t->values = values;
  return NULL;
}

bool model_has_tensor(const Model *m, int layer, const char *name, bool of_layer) {
  const ModelTensor *t = of_layer ? &m->ltensor[layer * m->n_ltensors] : m->tensor;
  for (int i = 0; i < (of_layer ? m->n_ltensors : m->n_tensors); i++) if (!strcmp(t[i].decl->name, name)) return !t[i].absent;
  return false;
}

/* Another tensor stands in, or nothing does. */
static Err *bind_other(Model *m, const TensorDecl *d, ModelTensor *all, ModelTensor *t) {
  int at = global_index(m, d->otherwise->name);
  const ModelTensor *o = at < 0 ? NULL : &m->tensor[at];
  t->absent = !o || o->absent;
  if (!o && strcmp(d->otherwise->name, "none")) return err_new(ERR_UNSUPPORTED, "tensor %s: only a tensor outside the layers, declared above it, can stand in", d->name);
  if (t->absent) return NULL;
  t->same_as = o->same_as >= 0 ? o->same_as : at;              /* whose bytes they are in the end */
  if (memcmp(o->dim, t->dim, sizeof t->dim)) return err_new(ERR_SHAPE, "tensor %s: missing, and %s, which would stand in, has another shape", d->name, o->decl->name);
  t->form = o->form;
  t->file = o->file;
  t->source = o->source;
  t->values = o->values;
  t->raw = o->raw;
  t->parts = o->parts;
  t->order_of = (int)(t - all);
  return NULL;
}

/* One tensor of the file, or several that hold it together. */
static Err *find_source(Model *m, const TensorDecl *d, const TensorSource *s, ModelTensor *t) {
  Num wanted = {.is_int = true, .i = 1};
  t->source = s;
  if (s->when) TRY(hyper_eval(&m->env, s->when, &wanted));
  if (num_float(wanted) == 0) return NULL;
  t->file = hyper_tensor(&m->env, s->name);
  if (m->env.arch || d->type.n_dims < 2) return NULL;        /* GGUF has them in one */
  const FileTensor *alone = t->file;
  int64_t rows = 1;
  t->file = NULL;
  TRY(check_dims(m, d, t));
  for (int i = 0; i < t->n_dims - 1; i++) rows *= t->dim[i];
  const char *name = hyper_name(&m->env, s->name);
  TRY(model_parts_find(&m->env, m->forms, name, rows, t->dim[t->n_dims - 1], &t->parts));
  for (int i = 0; i < m->decl->n_moves && !t->parts; i++) {
    const NameMove *v = &m->decl->move[i];
    if (!strncmp(name, v->from, strlen(v->from)))
      TRY(model_parts_find(&m->env, m->forms, arena_printf(m->arena, "%s%s", v->to, name + strlen(v->from)), rows, t->dim[t->n_dims - 1], &t->parts));
  }
  t->file = t->parts ? t->parts->file : alone;
  return NULL;
}

/* Neighbours that sort their columns alike read what they share in one order. */
static void find_order(const ModelTensor *all, ModelTensor *t) {
  t->order_of = (int)(t - all);
  for (int i = t->order_of - 1; t->parts->order && i >= 0; i--) {
    const ModelTensor *o = &all[i];
    if (o->parts && o->parts->order && o->parts->fit.cols == t->parts->fit.cols && !memcmp(o->parts->order, t->parts->order, sizeof(int32_t) * (size_t)t->parts->fit.cols)) t->order_of = i;
  }
}

static Err *bind_parts(Model *m, ModelTensor *all, ModelTensor *t, bool as_f32) {
  t->form = t->parts->form;
  find_order(all, t);
  return as_f32 ? decode_values(m, t) : NULL;
}

static Err *bind_tensor(Model *m, const TensorDecl *d, ModelTensor *all, ModelTensor *t) {
  *t = (ModelTensor){.decl = d, .same_as = -1};
  for (int i = 0; i < d->n_sources && !t->file; i++) TRY(find_source(m, d, &d->source[i], t));
  if (!t->file && !d->otherwise) {
    bool gguf = m->env.arch != NULL;                          /* name what this container would have: the texts list GGUF's names first */
    char *name = arena_dup(m->arena, hyper_name(&m->env, d->source[gguf ? 0 : d->n_sources - 1].name));
    PUSH(m->arena, m->missing.name, m->missing.n, m->missing.cap, name);
    return NULL;
  }
  if (!t->parts) TRY(check_dims(m, d, t));
  bool as_f32 = !strcmp(d->type.elt, "f32");
  if (!t->file && d->otherwise->kind == EX_NAME) return bind_other(m, d, all, t);
  if (!t->file) return as_f32 ? fill_values(m, t) : err_new(ERR_UNSUPPORTED, "tensor %s: only f32 tensors can be filled with a number", d->name);
  if (t->parts) return bind_parts(m, all, t, as_f32);
  const FileTensor *checked;
  TRY(file_tensor_get(m->weights, t->file->name, &checked));
  TRY(tp_form(m->forms, t->file->format, &t->form));
  t->raw = t->file->p;
  if (t->dim[t->n_dims - 1] % t->form->block) return err_new(ERR_SHAPE, "tensor %s: rows of %lld are not whole blocks of %d", t->file->name, (long long)t->dim[t->n_dims - 1], t->form->block);
  return as_f32 ? decode_values(m, t) : NULL;
}

static ModelTensor *tensor_at(Model *m, int i) {
  return i < m->n_tensors ? &m->tensor[i] : &m->ltensor[i - m->n_tensors];
}

/* The file's tensors that no declaration took. */
static void list_unused(Model *m) {
  const Weights *w = m->weights;
  int cap = 0;
  bool *used = ARENA_ARRAY(m->arena, bool, w->n_tensors + 1);
  for (int64_t i = 0; i < m->n_tensors + m->n_layers * m->n_ltensors; i++) {
    const ModelTensor *t = tensor_at(m, (int)i);
    if (t->parts) model_parts_used(w, t->parts, used);
    else if (t->file) used[t->file - w->tensor] = true;
  }
  for (int i = 0; i < w->n_tensors; i++) if (!used[i]) PUSH(m->arena, m->unused, m->n_unused, cap, w->tensor[i].name);
}

static Err *bind_all(Model *m) {
  const ModelDecl *d = m->decl;
  m->tensor = ARENA_ARRAY(m->arena, ModelTensor, d->n_tensors + 1);
  for (int i = 0; i < d->n_tensors; i++) {
    TRY(bind_tensor(m, &d->tensor[i], m->tensor, &m->tensor[i]));
    m->n_tensors = i + 1;
  }
  if (!m->layer) return NULL;
  m->n_ltensors = m->layer->n_tensors;
  m->ltensor = ARENA_ARRAY(m->arena, ModelTensor, m->n_layers * m->n_ltensors + 1);
  for (int l = 0; l < m->n_layers; l++) {
    hyper_layer(&m->env, m->layer, l, m->lhyper + l * m->layer->n_hypers);
    ModelTensor *all = m->ltensor + l * m->n_ltensors;
    for (int i = 0; i < m->n_ltensors; i++) TRY(bind_tensor(m, &m->layer->tensor[i], all, &all[i]));
  }
  hyper_layer(&m->env, NULL, -1, NULL);
  return NULL;
}

static void add_names(Str *s, const char *const *name, int n) {
  enum { SHOWN = 8 };
  for (int i = 0; i < MIN(n, SHOWN); i++) str_addf(s, i ? ", %s" : "%s", name[i]);
  if (n > SHOWN) str_addf(s, " and %d more", n - SHOWN);
}

/* All of them at once, beside what nobody asked for: names that differ are told apart from a file that is cut. */
static Err *tell_missing(Model *m) {
  const char *const *name = (const char *const *)m->missing.name;
  Str s = {0};
  if (!m->missing.n) return NULL;
  str_addf(&s, "tensor %s: missing from the file", name[0]);
  if (m->missing.n > 1) str_add(&s, ", and so are "), add_names(&s, name + 1, m->missing.n - 1);
  if (m->n_unused) str_add(&s, "; it has others that the model's text does not name: "), add_names(&s, m->unused, m->n_unused);
  Err *e = err_new(ERR_NOT_FOUND, "%s", s.p);
  str_free(&s);
  return e;
}

Err *model_bind_tensors(Model *m) {
  if (!m->env.arch) TRY(model_says_known(&m->env));
  TRY(bind_all(m));
  list_unused(m);
  return tell_missing(m);
}

/* ---- packing ------------------------------------------------------------------------------------------------------- */
typedef struct RowMap { const TensorSource *source; int64_t n; int32_t *row; } RowMap;

/* One map serves all layers. */
static Err *row_map(Model *m, const ModelTensor *t, int64_t n, RowMap *maps, int *n_maps, const int32_t **out) {
  *out = NULL;
  if (!t->source->row) return NULL;
  for (int i = 0; i < *n_maps; i++) if (maps[i].source == t->source && maps[i].n == n) { *out = maps[i].row; return NULL; }
  int32_t *row = ARENA_ARRAY(m->arena, int32_t, n);
  TRY(err_wrap(model_map_rows(m, t->source, n, row), "tensor %s", t->file->name));
  maps[(*n_maps)++] = (RowMap){t->source, n, row};
  *out = row;
  return NULL;
}

typedef struct PackJob { const Kern *k; void *args[FORMAT_MAX_ARGS]; int64_t n_tiles; ModelTensor *tensor; int64_t tile_bytes; } PackJob;
typedef struct PackRun { PackJob *job; int n_jobs; DevClaim *claim; } PackRun;

/* Numbers of bfloat16 below what products of pairs take (TpBuf.bf16), 0 apart. */
static bool any_tiny(const void *p, int64_t n_bytes) {
  enum { LEAST = (127 - 56) << 7 }; /* 2^-56 */
  const uint16_t *v = p;
  unsigned any = 0;
  for (int64_t i = 0; i < n_bytes / 2; i++) {
    unsigned size = v[i] & 0x7fffu;
    any |= size - 1u < LEAST - 1u;
  }
  return any;
}

static void pack_thread(void *ctx, int thread, int n_threads) {
  PackRun *r = ctx;
  (void)thread, (void)n_threads;
  _Alignas(64) uint8_t scratch[256];
  for (int i = 0; i < r->n_jobs; i++) {
    int64_t a, b;
    ModelTensor *t = r->job[i].tensor;
    int64_t tile_bytes = r->job[i].tile_bytes;
    while (dev_claim(&r->claim[i], 8, r->job[i].n_tiles, &a, &b)) {
      r->job[i].k->entry(r->job[i].args, a, b, scratch);
      if (t->form->plain && t->form->mem == IR_M_bf16 && any_tiny(t->packed + a * tile_bytes, (b - a) * tile_bytes)) atomic_store(&t->has_tiny, true);
    }
  }
}

/* Of several tensors: packing is told rows by number, and where the tensors lie. */
static Err *pack_parts_job(Model *m, ModelTensor *t, RowMap *maps, int *n_maps, PackJob *job) {
  int64_t N = t->parts->fit.rows;
  const int32_t *row;
  job->n_tiles = (N + PACK_ROWS - 1) / PACK_ROWS;
  TRY(row_map(m, t, N, maps, n_maps, &row));
  int32_t *rows = ARENA_ARRAY(m->arena, int32_t, job->n_tiles * PACK_ROWS);
  for (int64_t i = 0; i < job->n_tiles * PACK_ROWS; i++) rows[i] = row ? row[MIN(i, N - 1)] : (int32_t)MIN(i, N - 1);
  for (int64_t i = 0; i < job->n_tiles; i++)
    if (!model_parts_near(t->form, rows + i * PACK_ROWS)) return err_new(ERR_LIMIT, "tensor %s: rows of one tile lie more than 1 GiB apart", t->file->name);
  TRY(kern_pack(m->kerns, t->form, t->parts->fit.cols, &job->k));
  job->args[0] = (void *)(uintptr_t)t->parts->at;
  job->args[1] = rows;
  job->args[2] = t->packed;
  format_table_args(t->form, job->args);
  return NULL;
}

static Err *pack_job(Model *m, ModelTensor *t, RowMap *maps, int *n_maps, PackJob *job) {
  if (t->parts) return pack_parts_job(m, t, maps, n_maps, job);
  int64_t N = t->dim[0], row_bytes = t->dim[1] / t->form->block * t->form->n_bytes, tiles = (N + PACK_ROWS - 1) / PACK_ROWS;
  const int32_t *row;
  TRY(row_map(m, t, N, maps, n_maps, &row));
  const uint8_t **base = ARENA_ARRAY(m->arena, const uint8_t *, tiles);
  int32_t *offs = ARENA_ARRAY(m->arena, int32_t, tiles * PACK_ROWS);
  for (int64_t i = 0; i < tiles; i++) {
    int64_t src[PACK_ROWS], lo = INT64_MAX;
    for (int64_t k = 0; k < PACK_ROWS; k++) {
      int64_t r = MIN(i * PACK_ROWS + k, N - 1);
      src[k] = (row ? row[r] : r) * row_bytes;
      lo = MIN(lo, src[k]);
    }
    base[i] = t->raw + lo;
    for (int64_t k = 0; k < PACK_ROWS; k++) {
      if (src[k] - lo > INT32_MAX) return err_new(ERR_LIMIT, "tensor %s: rows of one tile lie more than 2 GiB apart", t->file->name);
      offs[i * PACK_ROWS + k] = (int32_t)(src[k] - lo);
    }
  }
  TRY(kern_pack(m->kerns, t->form, t->dim[1], &job->k));
  job->args[0] = (void *)base;
  job->args[1] = offs;
  job->args[2] = t->packed;
  format_table_args(t->form, job->args);
  job->n_tiles = tiles;
  return NULL;
}

enum { WAVE_BYTES = 64 << 20 };

static void drop_pages(const ModelTensor *t) {
  if (t->parts) model_parts_drop_pages(t->parts);
  else os_drop_file_pages(t->file->p, t->file->n_bytes);
}

/* Rows that are picked one by one are kept as floats where no tensor of the file has them in one piece. */
static Err *keep_rows(Model *m, ModelTensor *t) {
  void *v;
  TRY(arena_alloc_large(m->arena, (size_t)t->file->n_elems + 16, sizeof(float), t->file->name, &v));
  t->raw = v;
  return model_parts_decode(m->arena, m->kerns, m->forms, t->parts, v);
}

/* Packs some tensors, then lets go of the file's pages under them: the file and its packed form are never both in memory. */
static Err *pack_in_waves(Model *m, PackRun *all, const ModelTensor **from, int n_jobs) {
  for (int i = 0; i < n_jobs;) {
    if (m->cancel && *m->cancel) return err_new(ERR_CANCELLED, "interrupted");
    size_t n_bytes = 0;
    int end = i;
    while (end < n_jobs && (end == i || n_bytes < WAVE_BYTES)) n_bytes += from[end++]->file->n_bytes;
    PackRun wave = {.job = all->job + i, .n_jobs = end - i, .claim = all->claim + i};
    dev_pool_run(m->pool, pack_thread, &wave);
    for (int k = i; k < end; k++) drop_pages(from[k]);
    i = end;
  }
  return NULL;
}

Err *model_load_weights(Model *m) {
  int n = m->n_tensors + (int)m->n_layers * m->n_ltensors, n_jobs = 0, n_maps = 0;
  size_t total = 0;
  for (int i = 0; i < n; i++) if (tensor_at(m, i)->want_packed && tensor_at(m, i)->same_as >= 0) m->tensor[tensor_at(m, i)->same_as].want_packed = true;
  for (int i = 0; i < n; i++) {
    ModelTensor *t = tensor_at(m, i);
    if (t->file) m->times.weight_bytes += t->same_as < 0 ? t->file->n_bytes : 0;
    if (!t->want_packed || t->same_as >= 0) continue;
    t->packed_bytes = format_layout(t->form, t->dim[1]).tile_bytes * ((t->dim[0] + PACK_ROWS - 1) / PACK_ROWS);
    total += (size_t)t->packed_bytes;
    n_jobs++;
  }
  m->times.packed_bytes = total;
  TRY(err_wrap(os_pages_alloc(total + 4096, &m->packed), "packed weights"));
  PackRun run = {.job = ARENA_ARRAY(m->arena, PackJob, n_jobs + 1), .claim = ARENA_ARRAY(m->arena, DevClaim, n_jobs + 2)};
  run.claim = (DevClaim *)(((uintptr_t)run.claim + 63) & ~(uintptr_t)63);
  RowMap *maps = ARENA_ARRAY(m->arena, RowMap, n + 1);
  const ModelTensor **from = ARENA_ARRAY(m->arena, const ModelTensor *, n_jobs + 1);
  size_t off = 0;
  for (int i = 0; i < n; i++) {
    ModelTensor *t = tensor_at(m, i);
    if (!t->want_packed || t->same_as >= 0) continue;
    t->packed = m->packed.p + off;
    off += (size_t)t->packed_bytes;
    from[run.n_jobs] = t;
    run.job[run.n_jobs] = (PackJob){.tensor = t, .tile_bytes = format_layout(t->form, t->dim[1]).tile_bytes};
    TRY(pack_job(m, t, maps, &n_maps, &run.job[run.n_jobs++]));
  }
  for (int i = 0; i < n; i++) {
    ModelTensor *t = tensor_at(m, i);
    ModelTensor *own = t->same_as >= 0 ? &m->tensor[t->same_as] : t;
    if (t->want_rows && t->parts && !own->raw) TRY(keep_rows(m, own));
    t->raw = own->raw;
  }
  int64_t t0 = os_now_ns(), cpu = os_process_cpu_ns();
  TRY(pack_in_waves(m, &run, from, n_jobs));
  m->times.pack_ns = os_now_ns() - t0;
  m->times.pack_cpu_ns = os_process_cpu_ns() - cpu;
  m->times.huge_bytes = os_pages_huge_bytes(&m->packed);
  for (int i = 0; i < n; i++) {
    ModelTensor *t = tensor_at(m, i), *own = t->same_as >= 0 ? &m->tensor[t->same_as] : t;
    t->packed = own->packed;
    t->has_tiny = own->has_tiny;
  }
  trace_printf(TRACE_mem, "packed weights: %zu bytes, %zu in huge pages, %.1f ms", total, m->times.huge_bytes, (double)m->times.pack_ns * 1e-6);
  return NULL;
}
