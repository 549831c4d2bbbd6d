/* Opening a model: which declaration, its numbers, tensors, plans, memory. In: a path and options. Out: a Model ready to step. */
#include <stdlib.h>
#include <string.h>
#include "model/priv.h"

bool model_format_find(void *module, const char *dtype, int64_t gguf_id, FileFormat *out) {
  const Module *m = module;
  const FormatDecl *f = NULL;
  if (dtype) {
    char name[32];
    size_t n = strlen(dtype);
    if (n >= sizeof name) return false;
    for (size_t i = 0; i <= n; i++) name[i] = (char)(dtype[i] >= 'A' && dtype[i] <= 'Z' ? dtype[i] + 32 : dtype[i]);
    f = lang_format(m, name);
  } else f = lang_format_gguf(m, gguf_id);
  if (!f) return false;
  *out = (FileFormat){f->name, f->block, f->n_bytes};
  return true;
}

/* What the files say they are: one text in GGUF, the first of a list in config.json. */
static Err *read_architecture(const Weights *w, const char **key, FileStr *arch) {
  const FileStr *all;
  size_t n;
  *key = "general.architecture";
  if (file_kv_find(w, *key)) return file_kv_str(w, *key, arch);
  *key = "architectures";
  if (!file_kv_find(w, *key))
    return err_new(ERR_FORMAT, "says nowhere what model it is: neither general.architecture nor %s (a Hugging Face model is named by its folder)", *key);
  TRY(file_kv_strs(w, *key, &all, &n));
  if (!n) return err_new(ERR_FORMAT, "%s: an empty list, expected the model's class", *key);
  *arch = all[0];
  return NULL;
}

Err *model_declaration(const Module *m, const Weights *w, const ModelDecl **decl, const char **arch) {
  const ModelDecl *found = NULL;
  const char *key, *name_there = NULL;
  FileStr it;
  TRY(read_architecture(w, &key, &it));
  bool gguf = !strcmp(key, "general.architecture");
  Str known = {0};
  for (int i = 0; i < m->n_models; i++) {
    const ModelDecl *d = m->model[i];
    const char *const *name = gguf ? d->gguf_arch : d->hf_arch;
    for (int k = 0; k < (gguf ? d->n_gguf_archs : d->n_hf_archs); k++) {
      str_addf(&known, known.n ? ", %s" : "%s", name[k]);
      if (strlen(name[k]) != it.n || memcmp(name[k], it.p, it.n)) continue;
      found = d;
      if (gguf) name_there = name[k];
    }
  }
  Str said = {0};
  file_quote(it.p, it.n, &said);
  Err *e = found ? NULL : err_new(ERR_UNSUPPORTED, "%s is %s; models known: %s (add a text with --std DIR)", key, said.p, known.p ? known.p : "none");
  str_free(&known);
  str_free(&said);
  if (!e) *decl = found, *arch = name_there;
  return e;
}

static Err *choose_declaration(Model *m) {
  TRY(model_declaration(m->module, m->weights, &m->decl, &m->env.arch));
  m->env.decl = m->decl;
  return NULL;
}

enum { DEFAULT_CONTEXT = 8192, DEFAULT_CHUNK = 512, MAX_LAYERS = 4096 };

static Err *choose_context(Model *m) {
  const FileKv *kv = hyper_kv(&m->env, m->env.arch ? "context_length" : "max_position_embeddings");
  if (kv) TRY(file_kv_int(m->weights, kv->key, 1, (int64_t)1 << 31, &m->made_for));
  m->context = m->opt.context ? m->opt.context : m->made_for ? MIN(m->made_for, DEFAULT_CONTEXT) : DEFAULT_CONTEXT;
  if (m->context < 1 || m->context > MODEL_MAX_CONTEXT) return err_new(ERR_LIMIT, "context %lld: expected 1 to %d", (long long)m->context, MODEL_MAX_CONTEXT);
  m->env.context = m->context;
  m->chunk = m->opt.chunk ? m->opt.chunk : DEFAULT_CHUNK;
  if (m->chunk < 1 || m->chunk > 65536) return err_new(ERR_LIMIT, "chunk %d: expected 1 to 65536", m->chunk);
  return NULL;
}

static Err *choose_numbers(Model *m) {
  m->precision = m->opt.precision ? m->opt.precision : "int8";
  bool exact = !strcmp(m->precision, "f32"), fast = !strcmp(m->precision, "int8"); /* whose text of attention multiplies pairs of bf16 */
  m->kv = m->opt.kv ? m->opt.kv : exact ? "f32" : fast ? "bf16" : "f16";
  return kern_precision_check(m->arena, m->module, m->precision);
}

/* A kind of number, whatever the format that is no more than it is called. */
static Err *plain_kv(Model *m) {
  IrMem mem = dx_mem(m->kv);
  for (int i = 0; i < m->module->n_formats && mem != IR_M_none && !m->kv_form; i++) {
    FormatForm *f;
    if (m->module->format[i]->block > 1 || m->module->format[i]->n_fields != 1) continue;
    TRY(tp_form(m->forms, m->module->format[i]->name, &f));
    if (f->plain && f->mem == mem) m->kv_form = f;
  }
  return NULL;
}

/* Any format that floats can be stored in: a number, or blocks with an encode. */
static Err *choose_kv(Model *m) {
  const FormatDecl *f = lang_format(m->module, m->kv);
  if (!f) TRY(plain_kv(m));
  if (m->kv_form) return NULL;
  const char *near = "", *names = "";
  int best = 3;
  if (f) {
    TRY(tp_form(m->forms, m->kv, &m->kv_form));
    return m->kv_form->plain || f->n_encodes ? NULL : err_new(ERR_USAGE, "KV format %s: its text has no encode, which says how floats become blocks", m->kv);
  }
  for (int i = 0; i < m->module->n_formats; i++) {
    const FormatDecl *d = m->module->format[i];
    int far = str_edit_distance(m->kv, d->name);
    if (!d->n_encodes && d->block > 1) continue;
    if (far < best) best = far, near = arena_printf(m->arena, "; did you mean %s?", d->name);
    names = arena_printf(m->arena, "%s%s%s", names, *names ? ", " : "", d->name);
  }
  return err_new(ERR_USAGE, "KV format '%s': expected one of %s%s", m->kv, names, near);
}

static Err *load_numbers(Model *m) {
  const ModelDecl *d = m->decl;
  TRY(hyper_load(&m->env, d));
  if (d->n_layers > 1) return err_new(ERR_UNSUPPORTED, "model %s: more than one kind of layer", d->name);
  if (d->n_layers == 0) return NULL;
  Num n;
  m->layer = &d->layer[0];
  TRY(hyper_eval(&m->env, m->layer->count, &n));
  if (!n.is_int || n.i < 1 || n.i > MAX_LAYERS) return err_new(ERR_FORMAT, "model %s: %.17g layers, expected 1 to %d", d->name, num_float(n), MAX_LAYERS);
  m->n_layers = n.i;
  m->lhyper = ARENA_ARRAY(m->arena, Hyper, m->n_layers * m->layer->n_hypers + 1);
  for (int l = 0; l < m->n_layers; l++) TRY(err_wrap(hyper_load_layer(&m->env, m->layer, l, m->lhyper + l * m->layer->n_hypers), "model %s", d->name));
  hyper_layer(&m->env, NULL, -1, NULL);
  return NULL;
}

static Err *start_engine(Model *m) {
  const Target *t = m->opt.target ? gen_target_find(m->opt.target) : NULL;
  if (m->opt.target && !t) {
    Str s = {0};
    for (int i = 0; i < gen_target_count(); i++) str_addf(&s, i ? ", %s" : "%s", gen_target_get(i)->name);
    Err *e = err_new(ERR_USAGE, "target '%s': expected one of %s", m->opt.target, s.p);
    str_free(&s);
    return e;
  }
  TRY(kern_set_new(t, m->opt.perf_map, &m->kerns));
  m->n_threads = m->opt.n_threads ? m->opt.n_threads : os_n_cpus();
  return dev_pool_new(m->n_threads, &m->pool);
}

static void mark_packed(Model *m, const Section *s) {
  for (int i = 0; i < s->tp->n_bufs; i++) {
    const TpBuf *t = &s->tp->buf[i];
    if (t->fmt && t->raw && s->bind[i].kind == BIND_TENSOR) m->tensor[s->bind[i].index].want_rows = true;
    for (int l = 0; t->fmt && t->raw && s->bind[i].kind == BIND_LAYER_TENSOR && l < m->n_layers; l++)
      if (m->by_layer[l] == s) m->ltensor[l * m->n_ltensors + s->bind[i].index].want_rows = true;
    if (!t->fmt || t->raw || t->role != BUF_WEIGHT || t->alias != i) continue;
    if (s->bind[i].kind == BIND_TENSOR) m->tensor[s->bind[i].index].want_packed = true;
    for (int l = 0; s->bind[i].kind == BIND_LAYER_TENSOR && l < m->n_layers; l++)
      if (m->by_layer[l] == s) m->ltensor[l * m->n_ltensors + s->bind[i].index].want_packed = true;
  }
}

/* A tensor bound for a product may turn out to be only picked from: then nobody reads its packed buffer. */
static bool buf_in_plan(const Section *s, int buf) {
  for (int r = 0; r < s->plan->n_regions; r++)
    for (int k = 0; k < s->plan->region[r].n_args; k++) if (s->plan->region[r].arg[k] == buf) return true;
  return false;
}

static void drop_unread(const Section *s) {
  for (int i = 0; i < s->tp->n_bufs; i++) if (s->tp->buf[i].fmt && !s->tp->buf[i].raw && !buf_in_plan(s, i)) s->tp->buf[i].role = BUF_TEMP;
}

/* Products of pairs take no weights so small that a sum could be denormal: their kernels multiply one at a time, to the same bits. */
static void heed_tiny(const Model *m, const Section *s) {
  for (int i = 0; i < s->tp->n_bufs; i++) {
    TpBuf *t = &s->tp->buf[i];
    if (!t->fmt || !t->bf16) continue;
    if (s->bind[i].kind == BIND_TENSOR) t->bf16 = !m->tensor[s->bind[i].index].has_tiny;
    for (int l = 0; s->bind[i].kind == BIND_LAYER_TENSOR && l < m->n_layers; l++)
      if (m->by_layer[l] == s && m->ltensor[l * m->n_ltensors + s->bind[i].index].has_tiny) t->bf16 = false;
    if (!t->bf16) trace_printf(TRACE_sched, "%s: weights below 2^-56 are among it: multiplied one at a time, not in pairs", t->name);
  }
}

Err *model_bind(Model *m, const char *path) {
  TRY(lang_std_load(m->arena, m->opt.std_dir, &m->module));
  TRY(file_weights_open(m->arena, path, model_format_find, m->module, &m->weights));
  m->env = (HyperEnv){.arena = m->arena, .module = m->module, .w = m->weights, .model = m, .layer = -1};
  TRY(choose_declaration(m));
  TRY(choose_context(m));
  TRY(choose_numbers(m));
  TRY(start_engine(m));
  TRY(load_numbers(m));
  m->forms = tp_new(m->arena, m->module, NULL);
  TRY(choose_kv(m));
  return model_bind_tensors(m);
}

static Err *load_parts(Model *m) {
  Section *all[2] = {m->pre, m->post};
  for (int i = 0; i < 2 + m->n_bodies; i++) {
    Section *s = i < 2 ? all[i] : m->body[i - 2];
    drop_unread(s);
    mark_packed(m, s);
  }
  TRY(file_weights_explain(m->weights, model_load_weights(m)));
  for (int i = 0; i < 2 + m->n_bodies; i++) heed_tiny(m, i < 2 ? all[i] : m->body[i - 2]);
  TRY(model_plan_memory(m));
  if (trace_on(TRACE_plan, NULL)) {
    Str s = {0};
    model_plan_text(m, &s);
    trace_text(TRACE_plan, "as opened", s.p);
    str_free(&s);
  }
  return NULL;
}

Model *model_new(const ModelOptions *opt) {
  Model *m = calloc(1, sizeof *m);
  CHECK(m);
  m->arena = arena_new("model");
  m->opt = *opt;
  return m;
}

static Err *tell_path(Err *e, const char *path) {
  bool told = e && (err_kind(e) == ERR_USAGE || err_kind(e) == ERR_CANCELLED || !strncmp(err_text(e), path, strlen(path))); /* no fault of it, or named already */
  return told ? e : err_wrap(e, "%s", path);
}

Err *model_prepare(const char *path, const ModelOptions *opt, Model **out) {
  int64_t t0 = os_now_ns();
  Model *m = model_new(opt);
  Err *e = model_bind(m, path);
  if (!e) e = model_build_graph(m);
  if (m->weights) e = file_weights_explain(m->weights, e);
  m->times.open_ns = os_now_ns() - t0;
  if (m->module) e = tell_path(e, path); /* else the texts are at fault, which told theirs */
  if (e) model_close(m);
  else *out = m;
  return e;
}

Err *model_load(Model *m) {
  int64_t t0 = os_now_ns();
  if (m->is_loaded) return NULL;
  TRY(tell_path(load_parts(m), m->weights->path));
  m->is_loaded = true;
  m->times.open_ns += os_now_ns() - t0;
  return NULL;
}

Err *model_open(const char *path, const ModelOptions *opt, Model **out) {
  Model *m;
  TRY(model_prepare(path, opt, &m));
  Err *e = model_load(m);
  if (e) model_close(m);
  else *out = m;
  return e;
}

void model_close(Model *m) {
  if (!m) return;
  model_spent_print(m);
  dev_pool_free(m->pool);
  kern_set_free(m->kerns);
  os_pages_free(&m->packed);
  os_pages_free(&m->var_mem);
  os_pages_free(&m->temp);
  os_pages_free(&m->scratch);
  file_weights_close(m->weights);
  arena_free(m->arena);
  free(m);
}

int64_t model_n_vocab(const Model *m) { return m->n_vocab; }
int64_t model_context(const Model *m) { return m->context; }
int64_t model_made_for(const Model *m) { return m->made_for; }
int model_chunk(const Model *m) { return m->chunk; }
const Weights *model_weights(const Model *m) { return m->weights; }
const char *const *model_unused(const Model *m, int *n) {
  *n = m->n_unused;
  return m->unused;
}
const char *model_precision(const Model *m) { return m->precision; }
const char *model_kv(const Model *m) { return m->kv; }
const char *model_target(const Model *m) { return kern_target(m->kerns)->name; }
int model_n_threads(const Model *m) { return m->n_threads; }

const ModelTimes *model_times(const Model *m) {
  Model *w = (Model *)(uintptr_t)m;
  w->times.compile_ns = kern_compile_ns(m->kerns);
  w->times.n_kernels = kern_n_built(m->kerns);
  w->times.code_bytes = kern_code_bytes(m->kerns);
  w->times.state_bytes = (size_t)m->state_bytes;
  return &w->times;
}

int64_t model_bytes_per_token(const Model *m) {
  int64_t n = 0;
  for (int i = 0; i < m->n_tensors; i++) n += m->tensor[i].packed_bytes;
  for (int i = 0; i < m->n_layers * m->n_ltensors; i++) n += m->ltensor[i].packed_bytes;
  return n;
}

static void tensor_line(const Model *m, const ModelTensor *t, Str *out) {
  if (!t->file || t->same_as >= 0) return;
  bool int8 = strcmp(m->precision, "f32") && t->form->integer;
  str_addf(out, "  %-28s %-6s %lldx%lld  %s\n", t->file->name, t->parts ? t->parts->layout->name : t->form->decl->name, (long long)t->dim[0], (long long)(t->n_dims > 1 ? t->dim[1] : 1),
           t->values ? "kept as f32" : !t->want_packed ? "rows read from the file" : int8 ? "integer road" : t->form->code >= 0 ? "decoded to f32 in the product" : "float road");
}

void model_plan_text(const Model *m, Str *out) {
  const ModelTimes *t = model_times(m);
  str_addf(out, "model %s (%s), precision %s, KV %s, target %s, %d threads, context %lld, chunk %d\n", m->decl->name, m->weights->path, m->precision, m->kv,
           kern_target(m->kerns)->name, m->n_threads, (long long)m->context, m->chunk);
  str_addf(out, "weights %.1f MB in the file, %.1f MB packed (%.1f MB in huge pages), state %.1f MB a sequence, work %.1f MB\n", (double)t->weight_bytes * 1e-6, (double)t->packed_bytes * 1e-6,
           (double)t->huge_bytes * 1e-6, (double)t->state_bytes * 1e-6, (double)(m->temp.n_bytes + m->var_mem.n_bytes) * 1e-6);
  for (int i = 0; i < m->n_tensors; i++) tensor_line(m, &m->tensor[i], out);
  for (int i = 0; i < m->n_ltensors; i++) tensor_line(m, &m->ltensor[i], out);
  if (m->n_layers > 1) str_addf(out, "  .. and %lld layers more in %d forms\n", (long long)m->n_layers - 1, m->n_bodies);
}
