/* Weights that several tensors of a checkpoint hold together: which layout of the texts the tensors at hand fit, their addresses and what packing
   needs besides, and decoding. In: the name a model gives a weight, its extents. Out: TensorParts, or what lies there and fits nothing. */
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "model/priv.h"

enum { JSON_MAX = 1 << 20 };

/* ---- names --------------------------------------------------------------------------------------------------------- */
/* What * stands for in a name of this pattern; NULL: the name is another. */
static const char *stem_of(Arena *a, const char *pattern, const char *name) {
  const char *star = strchr(pattern, '*');
  size_t n = strlen(name), before = (size_t)(star - pattern), after = strlen(star + 1);
  if (n <= before + after || strncmp(name, pattern, before) || strcmp(name + n - after, star + 1)) return NULL;
  return arena_dup_n(a, name + before, n - before - after);
}

const char *model_with_stem(Arena *a, const char *pattern, const char *stem) {
  const char *star = strchr(pattern, '*');
  return arena_printf(a, "%.*s%s%s", (int)(star - pattern), pattern, stem, star + 1);
}

static const FileTensor *find_named(HyperEnv *env, const char *const *pattern, int n, const char *stem) {
  const FileTensor *t = NULL;
  for (int i = 0; i < n && !t; i++) t = file_tensor_find(env->w, model_with_stem(env->arena, pattern[i], stem));
  return t;
}

/* Tensors by name, from the first that begins with the stem. */
static int first_of(const Weights *w, const char *stem) {
  int lo = 0, hi = w->n_tensors;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (strcmp(w->tensor[w->by_name[mid]].name, stem) < 0) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

/* Those that are named like the weight and more, one after the other: *at is first_of at the beginning. NULL: no more. */
static const FileTensor *next_sibling(const Weights *w, const char *stem, int *at) {
  size_t n = strlen(stem);
  while (*at < w->n_tensors) {
    const FileTensor *t = &w->tensor[w->by_name[(*at)++]];
    if (strncmp(t->name, stem, n)) return NULL;
    if (t->name[n] == '.' || t->name[n] == '_') return t;
  }
  return NULL;
}

/* model_with_stem, without making the name: a hostile file has many to be asked for. */
static bool is_named(const char *pattern, const char *stem, const char *name) {
  const char *star = strchr(pattern, '*');
  size_t before = (size_t)(star - pattern), n = strlen(stem);
  return !strncmp(name, pattern, before) && !strncmp(name + before, stem, n) && !strcmp(name + before + n, star + 1);
}

static bool named_in(const char *const *pattern, int n, const char *stem, const char *name) {
  for (int i = 0; i < n; i++) if (is_named(pattern[i], stem, name)) return true;
  return false;
}

/* The text knows every tensor that lies there: one it does not know may change the values. */
static bool knows_all(HyperEnv *env, const LayoutDecl *l, const char *stem) {
  const FileTensor *t;
  for (int at = first_of(env->w, stem); (t = next_sibling(env->w, stem, &at));) {
    bool known = named_in(l->beside, l->n_besides, stem, t->name) || named_in(l->apart, l->n_aparts, stem, t->name) || named_in(l->extents, l->n_extents, stem, t->name);
    for (int k = 0; k < l->n_parts && !known; k++) known = named_in(l->part[k].file, l->part[k].n_files, stem, t->name);
    if (!known) return false;
  }
  return true;
}

/* ---- groups of columns --------------------------------------------------------------------------------------------- */
static Err *read_groups(Arena *a, const PartDecl *d, const FileTensor *t, FormatPart *p, int32_t **order) {
  int64_t K = t->n_elems, n = p->most, at = 0;
  int64_t *first = ARENA_ARRAY(a, int64_t, n + 1);
  bool in_order = K % n == 0, even = K % n == 0;
  if (t->n_bytes != (size_t)K * 4) return err_new(ERR_FORMAT, "tensor %s: %s, expected ints of 32 bits", t->name, t->type);
  const uint8_t *v = t->p;
  for (int64_t k = 0; k < K; k++) {
    int32_t g;
    memcpy(&g, v + 4 * k, 4);
    if (g < 0 || g >= n) return err_new(ERR_FORMAT, "tensor %s: column %lld is in group %d, expected 0 to %lld", t->name, (long long)k, g, (long long)n - 1);
    first[g + 1]++;
    in_order = in_order && g == k / (K / n);
  }
  for (int64_t g = 0; g < n; g++) even = even && first[g + 1] == K / n;
  for (int64_t g = 0; g < n; g++) at = first[g + 1] += at;
  p->groups = in_order ? GROUPS_IN_ORDER : even && !*order ? GROUPS_SORTED : GROUPS_ANY;
  if (p->groups != GROUPS_SORTED) return NULL;
  *order = ARENA_ARRAY(a, int32_t, K + 16);
  for (int64_t k = 0; k < K; k++) {
    int32_t g;
    memcpy(&g, v + 4 * k, 4);
    (*order)[first[g]++] = (int32_t)k;
  }
  (void)d;
  return NULL;
}

/* Facts of the elements, as far as looking costs little beside packing: none of a byte's NaN and infinities is there; a scale is of a usual size. */
static void look_at(const Module *m, const FileTensor *t, FormatPart *p) {
  Arena *tmp = arena_new("facts");
  uint8_t code[256];
  int n = format_unfinite(tmp, m, p->elt, code);
  if (n <= (int)COUNT_OF(p->never)) {
    for (p->n_never = 0; p->n_never < n && !memchr(t->p, code[p->n_never], t->n_bytes); p->n_never++) p->never[p->n_never] = code[p->n_never];
    if (p->n_never < n) p->n_never = 0; /* all or none: few forms */
  }
  IrMem k = dx_mem(p->elt);
  p->small = (k == IR_M_f32 || k == IR_M_f16 || k == IR_M_bf16) && t->n_bytes == (size_t)(t->n_elems * ir_mem_bytes[k]);
  for (int64_t i = 0; i < t->n_elems && p->small; i++) {
    uint32_t w = 0;
    memcpy(&w, t->p + i * ir_mem_bytes[k], (size_t)ir_mem_bytes[k]);
    float v = k == IR_M_f32 ? f32_from_bits(w) : k == IR_M_f16 ? f16_to_f32((uint16_t)w) : f32_from_bits(w << 16);
    p->small = v >= -128 && v <= 128;
  }
  arena_free(tmp);
}

/* A table that the text has too: its numbers, or the text would give other values. */
static Err *check_table(const Module *m, const PartDecl *d, const FileTensor *t) {
  const TableDecl *table = lang_table(m, d->is);
  float v;
  if (strcmp(table->elt, ir_mem_name[IR_M_f32])) return err_new(ERR_UNSUPPORTED, "tensor %s: only tables of floats are compared", t->name);
  if (t->n_elems != table->n_values || t->n_bytes != (size_t)t->n_elems * 4) return err_new(ERR_SHAPE, "tensor %s: %lld elements, expected the %d of table %s", t->name, (long long)t->n_elems, table->n_values, table->name);
  for (int i = 0; i < table->n_values; i++) {
    memcpy(&v, t->p + 4 * i, 4);
    if (f32_to_bits(v) != f32_to_bits((float)table->value[i])) return err_new(ERR_UNSUPPORTED, "tensor %s: element %d is %.9g, table %s has %.9g", t->name, i, (double)v, table->name, table->value[i]);
  }
  return NULL;
}

/* ---- finding ------------------------------------------------------------------------------------------------------- */
static Err *number_of_metadata(void *ctx, const Expr *call, int64_t *i, double *f, bool *is_int) {
  Num n;
  TRY(hyper_eval(ctx, call, &n));
  *i = n.i;
  *f = num_float(n);
  *is_int = n.is_int;
  return NULL;
}

/* An element's kind, by the container's word for it. */
static const char *elt_of(HyperEnv *env, const FileTensor *t) {
  char name[16];
  size_t n = strlen(t->type);
  if (t->format || n >= sizeof name) return t->format;
  for (size_t i = 0; i <= n; i++) name[i] = (char)(t->type[i] >= 'A' && t->type[i] <= 'Z' ? t->type[i] + 32 : t->type[i]);
  return dx_mem(name) ? arena_dup(env->arena, name) : NULL;
}

/* Those it reads and those it knows not to matter. */
void model_parts_used(const Weights *w, const TensorParts *p, bool *used) {
  const FileTensor *t;
  for (int i = 0; i < p->layout->n_parts; i++) if (p->tensor[i]) used[p->tensor[i] - w->tensor] = true;
  for (int at = first_of(w, p->stem); (t = next_sibling(w, p->stem, &at));)
    if (named_in(p->layout->beside, p->layout->n_besides, p->stem, t->name) || named_in(p->layout->extents, p->layout->n_extents, p->stem, t->name)) used[t - w->tensor] = true;
}

/* Two ints: rows and columns. Where they are known already, the same. */
static Err *read_extents(HyperEnv *env, const LayoutDecl *l, const char *stem, FormatParts *p) {
  const FileTensor *t = find_named(env, l->extents, l->n_extents, stem);
  int64_t v[2] = {0};
  if (!t) return NULL;
  size_t each = t->n_bytes / 2;
  if (t->n_elems != 2 || (each != 4 && each != 8)) return err_new(ERR_FORMAT, "tensor %s: expected two ints, the weight's rows and columns", t->name);
  for (int i = 0; i < 2; i++) {
    int32_t narrow;
    memcpy(&v[i], t->p + each * (size_t)i, each);
    memcpy(&narrow, t->p + each * (size_t)i, 4);
    if (each == 4) v[i] = narrow;
  }
  if ((p->rows && p->rows != v[0]) || (p->cols && p->cols != v[1]) || v[0] < 1 || v[1] < 1)
    return err_new(ERR_SHAPE, "tensor %s: %lld rows of %lld, expected %lld of %lld", t->name, (long long)v[0], (long long)v[1], (long long)p->rows, (long long)p->cols);
  p->rows = v[0];
  p->cols = v[1];
  return NULL;
}

/* The tensors a layout names, where all it needs are there. */
static bool find_tensors(HyperEnv *env, const LayoutDecl *l, const char *stem, TensorParts *p) {
  for (int i = 0; i < l->n_parts; i++) {
    const FileTensor *t = p->tensor[i] = find_named(env, l->part[i].file, l->part[i].n_files, stem);
    FormatPart *d = &p->fit.part[i];
    if (!t && !l->part[i].optional) return false;
    *d = (FormatPart){.absent = !t, .elt = t ? elt_of(env, t) : NULL, .n_dims = t ? t->n_dims : 0};
    if (t) memcpy(d->dim, t->dim, sizeof d->dim);
  }
  return knows_all(env, l, stem);
}

static Err *read_numbers(Arena *a, TensorParts *p) {
  p->number = ARENA_ARRAY(a, float, p->form->n_numbers + 16);
  for (int i = 0; i < p->form->n_numbers; i++) {
    const Expr *e = p->form->number[i];
    int at = 0;
    json_t *v;
    while (strcmp(p->layout->part[at].name, e->arg[0]->name)) at++;
    const FileTensor *t = p->tensor[at];
    TRY(err_wrap(json_parse_text((const char *)t->p, t->n_bytes, JSON_MAX, "its JSON text", &v), "tensor %s", t->name));
    const json_t *n = json_object_get(v, e->arg[1]->name);
    Err *err = json_is_number(n) ? NULL : err_new(ERR_FORMAT, "tensor %s: expected a number '%s' in its JSON text", t->name, e->arg[1]->name);
    p->number[i] = (float)json_number_value(n);
    json_decref(v);
    TRY(err);
  }
  return NULL;
}

static Err *finish(HyperEnv *env, Tp *forms, const char *name, TensorParts *p) {
  const LayoutDecl *l = p->layout;
  FileTensor *f = ARENA_NEW(env->arena, FileTensor);
  for (int i = 0; i < l->n_parts; i++) {
    const FileTensor *t = p->tensor[i];
    if (t && t->n_bytes && !t->p) return err_new(ERR_UNSUPPORTED, "tensor %s: of a format that no text here describes", t->name);
    if (t && t->n_bytes) look_at(env->module, t, &p->fit.part[i]);
    if (t && l->part[i].is) TRY(check_table(env->module, &l->part[i], t));
    if (t && l->part[i].groups) TRY(read_groups(env->arena, &l->part[i], t, &p->fit.part[i], &p->order));
  }
  TRY(tp_parts_form(forms, &p->fit, false, &p->form));
  TRY(read_numbers(env->arena, p));
  p->at = ARENA_ARRAY(env->arena, const void *, l->n_parts + 2);
  *f = (FileTensor){.name = arena_dup(env->arena, name), .format = l->name, .type = l->name, .n_dims = 2, .dim = {p->fit.rows, p->fit.cols}, .n_elems = p->fit.rows * p->fit.cols};
  for (int i = 0; i < l->n_parts; i++) {
    p->at[i] = p->tensor[i] ? p->tensor[i]->p : NULL;
    f->n_bytes += p->tensor[i] ? p->tensor[i]->n_bytes : 0;
  }
  p->at[l->n_parts] = p->number;
  p->at[l->n_parts + 1] = p->order;
  p->file = f;
  return NULL;
}

/* What lies there beside a plain tensor that a layout would have a meaning for, and what the metadata says of it, in words. */
static Err *nothing_fits(HyperEnv *env, const char *name, const char *stem) {
  const FileTensor *t;
  Str s = {0}, shape = {0}, said = {0};
  ModelNames told = {0};
  for (int i = 0, at = first_of(env->w, stem); i < 12 && (t = next_sibling(env->w, stem, &at)); i++) {
    str_clear(&shape);
    file_tensor_shape(t, &shape);
    str_addf(&s, "%s%s %s %s", i ? ", " : "", t->name, t->type, shape.p);
  }
  for (int i = 0; i < env->module->n_layouts; i++) if (stem_of(env->arena, env->module->layout[i]->of, name)) model_says_tell(env, env->module->layout[i], &told, &said);
  Err *e = err_new(ERR_UNSUPPORTED, "tensor %s: no layout of the texts fits the tensors that hold it: %s%s%s", name, s.p ? s.p : "", said.n ? "; the metadata says " : "", said.n ? said.p : "");
  str_free(&said);
  str_free(&s);
  str_free(&shape);
  return e;
}

/* Whether what lies beside the weight has a meaning for some layout. */
static bool has_parts(HyperEnv *env, const char *weight, const char *shared) {
  for (int i = 0; i < env->module->n_layouts; i++) {
    const LayoutDecl *l = env->module->layout[i];
    const char *stem = stem_of(env->arena, l->of, weight);
    const FileTensor *t;
    for (int at = first_of(env->w, shared); stem && (t = next_sibling(env->w, shared, &at));)
      for (int k = 0; k < l->n_parts; k++) if (strcmp(t->name, weight) && named_in(l->part[k].file, l->part[k].n_files, stem, t->name)) return true;
  }
  return false;
}

/* The last layout that the tensors fit and the metadata does not contradict; of those contradicted only, the first contradiction. */
Err *model_parts_find(HyperEnv *env, Tp *forms, const char *name, int64_t rows, int64_t cols, TensorParts **out) {
  const char *shared = NULL;
  Err *odd = NULL;
  *out = NULL;
  for (int i = env->module->n_layouts - 1; i >= 0; i--) {
    const LayoutDecl *l = env->module->layout[i];
    const char *stem = stem_of(env->arena, l->of, name);
    if (stem && (!shared || strlen(stem) < strlen(shared))) shared = stem;
    if (!stem) continue;
    bool fits = false;
    TensorParts tried = {.layout = l, .stem = stem, .fit = {.decl = l, .rows = rows, .cols = cols, .number = number_of_metadata, .ctx = env}};
    if (!find_tensors(env, l, stem, &tried)) continue;
    Err *e = read_extents(env, l, stem, &tried.fit);
    if (!e) e = err_wrap(format_parts_fit(env->module, &tried.fit, &fits), "tensor %s", name);
    if (!e && !fits) continue;
    Err *said = e ? NULL : err_wrap(model_says_check(env, l, stem, &tried.fit), "tensor %s", name);
    if (said && !odd) odd = said;
    else err_free(said);
    if (said) continue;
    err_free(odd);
    TRY(e);
    TensorParts *p = ARENA_NEW(env->arena, TensorParts);
    *p = tried;
    TRY(err_wrap(finish(env, forms, name, p), "tensor %s", name));
    *out = p;
    return NULL;
  }
  if (odd) return odd;
  return shared && has_parts(env, name, shared) ? nothing_fits(env, name, shared) : NULL;
}

/* ---- decoding ------------------------------------------------------------------------------------------------------ */
Err *model_parts_reader(Kerns *kerns, Tp *forms, const TensorParts *p, PartsReader *out) {
  FormatParts plain = p->fit;
  PartsReader r = {.parts = p};
  for (int i = 0; i < p->layout->n_parts; i++) if (plain.part[i].groups == GROUPS_SORTED) plain.part[i].groups = GROUPS_ANY;
  TRY(tp_parts_form(forms, &plain, true, &r.form));
  TRY(kern_pack(kerns, r.form, p->fit.cols, &r.pack));
  *out = r;
  return NULL;
}

size_t model_parts_tile_bytes(const PartsReader *r) { return (size_t)r->parts->fit.cols * PACK_ROWS * sizeof(float) + 256; }

bool model_parts_near(const FormatForm *f, const int32_t row[PACK_ROWS]) {
  int32_t lo = row[0], hi = row[0];
  for (int i = 1; i < PACK_ROWS; i++) lo = MIN(lo, row[i]), hi = MAX(hi, row[i]);
  return !f->dag->reach || (int64_t)hi - lo <= f->dag->reach;
}

/* Packed as f32, tile by tile, then laid out row by row. */
void model_parts_rows(const PartsReader *r, const int32_t *map, int64_t first, int64_t n, void *tile, float *out) {
  int64_t K = r->parts->fit.cols;
  int32_t row[PACK_ROWS];
  _Alignas(64) uint8_t scratch[256];
  void *args[FORMAT_MAX_ARGS] = {(void *)(uintptr_t)r->parts->at, row, (void *)ROUND_UP((uintptr_t)tile, 64)};
  const float *v = args[2];
  format_table_args(r->form, args);
  for (int64_t at = 0, some; at < n; at += some) {
    some = MIN(PACK_ROWS, n - at);
    for (int i = 0; i < PACK_ROWS; i++) {
      int64_t k = first + at + MIN(i, some - 1);
      row[i] = map ? map[k] : (int32_t)k;
    }
    if (!model_parts_near(r->form, row)) { /* one at a time */
      some = 1;
      for (int i = 1; i < PACK_ROWS; i++) row[i] = row[0];
    }
    r->pack->entry(args, 0, 1, scratch);
    for (int64_t i = 0; i < some; i++)
      for (int64_t c = 0; c < K; c++) out[(at + i) * K + c] = v[c * PACK_ROWS + i];
  }
}

Err *model_parts_decode(Arena *a, Kerns *kerns, Tp *forms, const TensorParts *p, float *out) {
  PartsReader r;
  TRY(model_parts_reader(kerns, forms, p, &r));
  model_parts_rows(&r, NULL, 0, p->fit.rows, arena_alloc(a, model_parts_tile_bytes(&r)), out);
  return NULL;
}

void model_parts_drop_pages(const TensorParts *p) {
  for (int i = 0; i < p->layout->n_parts; i++) if (p->tensor[i]) os_drop_file_pages(p->tensor[i]->p, p->tensor[i]->n_bytes);
}
