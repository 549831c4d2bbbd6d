/* The view over weights in files: what all containers share. Readers fill a Weights, file_weights_index closes it, getters look things up.
   Lookups are binary searches over sorted names: their cost does not depend on what a hostile file chose as names. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "file/priv.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "metadata is read in place");

const FileTypeRow file_types[FILE_TYPE_COUNT] = {
#define FILE_TYPE(id, n, text, size, class) [n] = {text, size, class},
#include "file/types.def"
#undef FILE_TYPE
};

/* ---- building ---- */

Weights *file_weights_new(Arena *a, const char *path, const char *container) {
  Weights *w = ARENA_NEW(a, Weights);
  w->path = arena_dup(a, path);
  w->container = container;
  return w;
}

Err *file_weights_map(Arena *a, Weights *w, const char *path) {
  FileMap m;
  TRY(os_map_file(path, &m));
  const char **names = ARENA_ARRAY(a, const char *, (size_t)w->n_files + 1);
  FileMap *maps = ARENA_ARRAY(a, FileMap, (size_t)w->n_files + 1);
  if (w->n_files) {
    memcpy(names, w->file, (size_t)w->n_files * sizeof *names);
    memcpy(maps, w->map, (size_t)w->n_files * sizeof *maps);
  }
  names[w->n_files] = arena_dup(a, path);
  maps[w->n_files++] = m;
  w->file = names;
  w->map = maps;
  return NULL;
}

void file_weights_close(Weights *w) {
  if (!w) return;
  for (int i = 0; i < w->n_files; i++) os_unmap_file(&w->map[i]);
}

Err *file_weights_failed(const Weights *w) {
  for (int i = 0; i < w->n_files; i++) if (os_map_failed(&w->map[i])) return os_map_check(&w->map[i], w->file[i]);
  return NULL;
}

Err *file_weights_check(const Weights *w) {
  for (int i = 0; i < w->n_files; i++) TRY(os_map_check(&w->map[i], w->file[i]));
  return NULL;
}

Err *file_weights_explain(const Weights *w, Err *e) {
  Err *why = file_weights_check(w);
  if (why) err_free(e);
  return why ? why : e;
}

const char *file_name_fault(const uint8_t *p, size_t n) {
  if (n == 0) return "is empty";
  if (n > 65535) return "is longer than 65535 bytes";
  for (size_t at = 0; at < n;) {
    utf8proc_int32_t c;
    utf8proc_ssize_t step = utf8proc_iterate(p + at, (utf8proc_ssize_t)MIN(n - at, (size_t)4), &c);
    if (step <= 0) return "is not UTF-8";
    if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return "holds a control character";
    at += (size_t)step;
  }
  return NULL;
}

Err *file_tensors_fit(const Weights *w, uint64_t n_more) {
  if (n_more <= (uint64_t)(FILE_TENSORS_MAX - w->n_tensors)) return NULL;
  return err_new(ERR_LIMIT, "%llu tensors more than the %d before, expected at most %d in all", (unsigned long long)n_more, w->n_tensors, FILE_TENSORS_MAX);
}

Err *file_tensor_measure(FileTensor *t, const FileFormat *f) {
  int64_t n = 1;
  for (int i = 0; i < t->n_dims; i++) {
    if (t->dim[i] < 0 || (t->dim[i] && n > INT64_MAX / 8 / t->dim[i]))
      return err_new(ERR_FORMAT, "dimension %d is %lld: the number of elements does not fit in 60 bits", i, (long long)t->dim[i]);
    n *= t->dim[i];
  }
  t->n_elems = n;
  if (!f || !f->block) return NULL;
  CHECK(f->block > 0 && f->n_bytes > 0, "format %s: block of %lld elements, %lld bytes", f->name, (long long)f->block, (long long)f->n_bytes);
  int64_t row = t->n_dims ? t->dim[t->n_dims - 1] : 1;
  if (row % f->block)
    return err_new(ERR_FORMAT, "rows of %lld elements, expected a multiple of %lld, the block of %s", (long long)row, (long long)f->block, f->name);
  int64_t blocks = n / f->block;
  if (blocks > INT64_MAX / f->n_bytes) return err_new(ERR_FORMAT, "%lld blocks of %lld bytes: too large", (long long)blocks, (long long)f->n_bytes);
  t->n_bytes = (size_t)(blocks * f->n_bytes);
  return NULL;
}

/* ---- order and duplicates ---- */

typedef struct Entry { const char *name; int at; } Entry;
static int entry_order(const void *x, const void *y) {
  const Entry *a = x, *b = y;
  int c = strcmp(a->name, b->name);
  return c ? c : (a->at > b->at) - (a->at < b->at);
}

static Err *sort_entries(const char *path, const char *what, Entry *e, int n) {
  qsort(e, (size_t)n, sizeof *e, entry_order);
  for (int i = 1; i < n; i++)
    if (!strcmp(e[i - 1].name, e[i].name))
      return err_new(ERR_FORMAT, "%s: %s '%s' is there twice, as number %d and number %d, expected once", path, what, e[i].name, e[i - 1].at + 1, e[i].at + 1);
  return NULL;
}

static int object_order(const void *x, const void *y) { return strcmp(((const FileObject *)x)->key, ((const FileObject *)y)->key); }

Err *file_weights_index(Arena *a, Weights *w) {
  Arena *scratch = arena_new("index");
  int n_max = MAX(w->n_kvs, w->n_tensors);
  Entry *e = ARENA_ARRAY(scratch, Entry, (size_t)MAX(n_max, 1));
  for (int i = 0; i < w->n_kvs; i++) e[i] = (Entry){w->kv[i].key, i};
  Err *err = sort_entries(w->path, "key", e, w->n_kvs);
  if (!err) {
    FileKv *sorted = ARENA_ARRAY(a, FileKv, (size_t)MAX(w->n_kvs, 1));
    for (int i = 0; i < w->n_kvs; i++) sorted[i] = w->kv[e[i].at];
    w->kv = sorted;
    for (int i = 0; i < w->n_tensors; i++) e[i] = (Entry){w->tensor[i].name, i};
    err = sort_entries(w->path, "tensor", e, w->n_tensors);
  }
  if (!err) {
    w->by_name = ARENA_ARRAY(a, int, (size_t)MAX(w->n_tensors, 1));
    for (int i = 0; i < w->n_tensors; i++) w->by_name[i] = e[i].at;
  }
  if (!err && w->n_objects) qsort(w->object, (size_t)w->n_objects, sizeof *w->object, object_order);
  arena_free(scratch);
  return err;
}

Err *file_weights_finish(Arena *a, Weights *w, Err *e, Weights **out) {
  if (!e) e = file_weights_index(a, w);
  e = file_weights_explain(w, e);
  if (e) file_weights_close(w);
  else *out = w;
  return e;
}

Err *file_weights_of(Arena *a, const char *path, const char *container, const FileKv *kv, int n_kvs, const FileTensor *tensor, int n_tensors, Weights **out) {
  Weights *w = file_weights_new(a, path, container);
  w->kv = ARENA_ARRAY(a, FileKv, (size_t)n_kvs + 1);
  w->tensor = ARENA_ARRAY(a, FileTensor, (size_t)n_tensors + 1);
  if (n_kvs) memcpy(w->kv, kv, (size_t)n_kvs * sizeof *kv);
  if (n_tensors) memcpy(w->tensor, tensor, (size_t)n_tensors * sizeof *tensor);
  w->n_kvs = n_kvs;
  w->n_tensors = n_tensors;
  return file_weights_finish(a, w, NULL, out);
}

typedef struct Span { const FileTensor *t; } Span;
static int span_order(const void *x, const void *y) {
  const FileTensor *a = ((const Span *)x)->t, *b = ((const Span *)y)->t;
  if (a->p != b->p) return (uintptr_t)a->p < (uintptr_t)b->p ? -1 : 1;
  return (a->n_bytes > b->n_bytes) - (a->n_bytes < b->n_bytes);
}

Err *file_tensors_overlap(Arena *a, const Weights *w, int first) {
  Span *s = ARENA_ARRAY(a, Span, (size_t)(w->n_tensors - first + 1));
  size_t n = 0;
  for (int i = first; i < w->n_tensors; i++)
    if (w->tensor[i].p && w->tensor[i].n_bytes) s[n++].t = &w->tensor[i];
  qsort(s, n, sizeof *s, span_order);
  for (size_t i = 1; i < n; i++)
    if (s[i - 1].t->p + s[i - 1].t->n_bytes > s[i].t->p)
      return err_new(ERR_FORMAT, "tensors '%s' and '%s' share bytes, expected each to have its own", s[i - 1].t->name, s[i].t->name);
  return NULL;
}

/* ---- metadata ---- */

static int kv_order(const void *key, const void *kv) { return strcmp(key, ((const FileKv *)kv)->key); }
const FileKv *file_kv_find(const Weights *w, const char *key) {
  return w->n_kvs ? bsearch(key, w->kv, (size_t)w->n_kvs, sizeof *w->kv, kv_order) : NULL;
}

static int object_key_order(const void *key, const void *o) { return strcmp(key, ((const FileObject *)o)->key); }
const FileObject *file_object_find(const Weights *w, const char *key) {
  return w->n_objects ? bsearch(key, w->object, (size_t)w->n_objects, sizeof *w->object, object_key_order) : NULL;
}

/* Only for integers and bools. False: an unsigned value above INT64_MAX. */
static bool kv_int_at(const FileKv *kv, size_t i, int64_t *out) {
  const FileTypeRow *row = &file_types[kv->type];
  uint64_t u = 0;
  memcpy(&u, (const uint8_t *)kv->data + i * row->size, row->size);
  if (row->class == 'i' && row->size < 8) {
    uint64_t sign = (uint64_t)1 << (row->size * 8 - 1);
    u = (u ^ sign) - sign;
  }
  if (row->class == 'u' && u > INT64_MAX) return false;
  memcpy(out, &u, sizeof u);
  return true;
}

static double kv_float_at(const FileKv *kv, size_t i) {
  float f;
  double d;
  uint64_t u = 0;
  int64_t n;
  const FileTypeRow *row = &file_types[kv->type];
  const uint8_t *at = (const uint8_t *)kv->data + i * row->size;
  if (kv->type == FILE_F32) return memcpy(&f, at, sizeof f), (double)f;
  if (kv->type == FILE_F64) return memcpy(&d, at, sizeof d), d;
  if (kv_int_at(kv, i, &n)) return (double)n;
  memcpy(&u, at, row->size);
  return (double)u;
}

static Err *kv_wrong(const Weights *w, const FileKv *kv, const char *expected) {
  return err_new(ERR_FORMAT, "%s: metadata '%s': is %s%s, expected %s", w->path, kv->key, kv->is_array ? "an array of " : "", file_types[kv->type].text, expected);
}

/* The key's entry, of one of the classes. */
static Err *kv_get(const Weights *w, const char *key, const char *classes, bool array, const char *expected, const FileKv **out) {
  const FileKv *kv = file_kv_find(w, key);
  if (!kv) return err_new(ERR_NOT_FOUND, "%s: metadata '%s': missing, expected %s", w->path, key, expected);
  bool empty = array && kv->is_array && kv->n == 0; /* of any type */
  if ((kv->is_array && !array) || (!empty && !strchr(classes, file_types[kv->type].class))) return kv_wrong(w, kv, expected);
  *out = kv;
  return NULL;
}

Err *file_kv_int(const Weights *w, const char *key, int64_t lo, int64_t hi, int64_t *out) {
  const FileKv *kv;
  int64_t v;
  TRY(kv_get(w, key, "ui", false, "an integer", &kv));
  bool fits = kv_int_at(kv, 0, &v);
  if (fits && v >= lo && v <= hi) {
    *out = v;
    return NULL;
  }
  uint64_t u;
  memcpy(&u, kv->data, fits ? 0 : sizeof u);
  if (!fits) return err_new(ERR_FORMAT, "%s: metadata '%s': %llu, expected %lld to %lld", w->path, key, (unsigned long long)u, (long long)lo, (long long)hi);
  return err_new(ERR_FORMAT, "%s: metadata '%s': %lld, expected %lld to %lld", w->path, key, (long long)v, (long long)lo, (long long)hi);
}

Err *file_kv_float(const Weights *w, const char *key, double *out) {
  const FileKv *kv;
  TRY(kv_get(w, key, "uif", false, "a number", &kv));
  *out = kv_float_at(kv, 0);
  return NULL;
}

Err *file_kv_bool(const Weights *w, const char *key, bool *out) {
  const FileKv *kv;
  TRY(kv_get(w, key, "b", false, "a bool", &kv));
  *out = *(const uint8_t *)kv->data != 0;
  return NULL;
}

Err *file_kv_str(const Weights *w, const char *key, FileStr *out) {
  const FileKv *kv;
  TRY(kv_get(w, key, "s", false, "a string", &kv));
  *out = kv->str[0];
  return NULL;
}

Err *file_kv_text(Arena *a, const Weights *w, const char *key, const char **out) {
  FileStr s;
  TRY(file_kv_str(w, key, &s));
  if (s.n && memchr(s.p, 0, s.n)) return err_new(ERR_FORMAT, "%s: metadata '%s': holds a NUL byte, expected text", w->path, key);
  *out = arena_dup_n(a, s.n ? s.p : "", s.n);
  return NULL;
}

Err *file_kv_ints(Arena *a, const Weights *w, const char *key, int64_t **out, size_t *n) {
  const FileKv *kv;
  TRY(kv_get(w, key, "uib", true, "an array of integers", &kv));
  int64_t *v = ARENA_ARRAY(a, int64_t, kv->n);
  for (size_t i = 0; i < kv->n; i++)
    if (!kv_int_at(kv, i, &v[i])) return err_new(ERR_FORMAT, "%s: metadata '%s': element %zu exceeds 63 bits", w->path, key, i);
  *out = v;
  *n = kv->n;
  return NULL;
}

Err *file_kv_floats(Arena *a, const Weights *w, const char *key, float **out, size_t *n) {
  const FileKv *kv;
  TRY(kv_get(w, key, "ifu", true, "an array of floats", &kv));
  /* An array of narrow integers where floats belong is a broken writer; JSON's 1 is an I64 and a float as well. */
  if (kv->n && file_types[kv->type].class != 'f' && (kv->type != FILE_I64 || w->container[0] == 'G')) return kv_wrong(w, kv, "an array of floats");
  float *v = ARENA_ARRAY(a, float, kv->n);
  for (size_t i = 0; i < kv->n; i++) v[i] = (float)kv_float_at(kv, i);
  *out = v;
  *n = kv->n;
  return NULL;
}

Err *file_kv_strs(const Weights *w, const char *key, const FileStr **out, size_t *n) {
  const FileKv *kv;
  TRY(kv_get(w, key, "s", true, "an array of strings", &kv));
  *out = kv->str;
  *n = kv->n;
  return NULL;
}

Err *file_kv_number(const Weights *w, const FileKv *kv, int64_t i, bool *is_int, int64_t *v, double *f) {
  int64_t n = 0;
  bool whole = file_types[kv->type].class != 'f';
  if (i < 0 || (uint64_t)i >= kv->n) return err_new(ERR_FORMAT, "%s: metadata '%s': %zu items, item %lld was asked for", w->path, kv->key, kv->n, (long long)i);
  if (!strchr("uibf", file_types[kv->type].class)) return kv_wrong(w, kv, "a number");
  if (whole && !kv_int_at(kv, (size_t)i, &n)) return err_new(ERR_FORMAT, "%s: metadata '%s': item %lld exceeds 63 bits", w->path, kv->key, (long long)i);
  if (whole) *v = n;
  else *f = kv_float_at(kv, (size_t)i);
  *is_int = whole;
  return NULL;
}

void file_quote(const void *bytes, size_t n, Str *out) {
  const uint8_t *p = bytes;
  str_add_c(out, '"');
  for (size_t at = 0; at < n;) {
    utf8proc_int32_t c;
    utf8proc_ssize_t step = utf8proc_iterate(p + at, (utf8proc_ssize_t)MIN(n - at, (size_t)4), &c);
    if (step <= 0) str_add(out, "\\ufffd");
    else if (c == '"' || c == '\\') str_addf(out, "\\%c", (char)c);
    else if (c == '\n') str_add(out, "\\n");
    else if (c < 0x20 || (c >= 0x7f && c < 0xa0)) str_addf(out, "\\u%04x", (unsigned)c);
    else str_add_n(out, p + at, (size_t)step);
    at += step > 0 ? (size_t)step : 1;
  }
  str_add_c(out, '"');
}

static void print_at(const FileKv *kv, size_t i, Str *out) {
  char class = file_types[kv->type].class;
  int64_t v;
  if (class == 's') file_quote(kv->str[i].p, kv->str[i].n, out);
  else if (class == 'f') {
    double d = kv_float_at(kv, i);
    if (d != d || d - d != 0) str_addf(out, "\"%f\"", d); /* JSON has no word for these */
    else str_add_float(out, d, kv->type == FILE_F32);
  } else if (class == 'b') str_add(out, ((const uint8_t *)kv->data)[i] ? "true" : "false");
  else if (class == 'a') str_add(out, "[\"...\"]");
  else if (kv_int_at(kv, i, &v)) str_addf(out, "%lld", (long long)v);
  else {
    uint64_t u;
    memcpy(&u, (const uint8_t *)kv->data + i * 8, sizeof u);
    str_addf(out, "%llu", (unsigned long long)u);
  }
}

void file_kv_print(const FileKv *kv, size_t n_max, Str *out) {
  if (!kv->is_array) {
    print_at(kv, 0, out);
    return;
  }
  str_add_c(out, '[');
  for (size_t i = 0; i < kv->n; i++) {
    if (i) str_add(out, ", ");
    if (i >= n_max) {
      str_add(out, "\"...\"");
      break;
    }
    print_at(kv, i, out);
  }
  str_add_c(out, ']');
}

/* ---- what it really is ---- */
const char *file_other_kind(const uint8_t *p, size_t n) {
  static const struct { const char *start, *what; } others[] = {
    {"GGUF", "a GGUF file, which its name should say"},
    {"FUGG", "a big-endian GGUF file; convert it on a little-endian machine"},
    {"tjgg", "a GGML file older than GGUF; convert it to GGUF"},
    {"lmgg", "a GGML file older than GGUF; convert it to GGUF"},
    {"fmgg", "a GGML file older than GGUF; convert it to GGUF"},
    {"version https://git-lfs", "a Git LFS pointer, not the file it points to; fetch the file itself"},
    {"<", "a web page or XML; the download went wrong"},
    {"PK", "a zip archive, as PyTorch's files are; convert it to safetensors, or unpack it"},
    {"\x80\x02", "a Python pickle, as old PyTorch's files are; convert it to safetensors"},
  };
  for (size_t i = 0; i < COUNT_OF(others); i++) if (n >= strlen(others[i].start) && !memcmp(p, others[i].start, strlen(others[i].start))) return others[i].what;
  return NULL;
}

/* ---- tensors ---- */

const FileTensor *file_tensor_find(const Weights *w, const char *name) {
  for (int lo = 0, hi = w->n_tensors; lo < hi;) {
    int mid = lo + (hi - lo) / 2, c = strcmp(name, w->tensor[w->by_name[mid]].name);
    if (!c) return &w->tensor[w->by_name[mid]];
    if (c < 0) hi = mid;
    else lo = mid + 1;
  }
  return NULL;
}

Err *file_tensor_get(const Weights *w, const char *name, const FileTensor **out) {
  const FileTensor *t = file_tensor_find(w, name);
  if (!t) return err_new(ERR_NOT_FOUND, "%s: tensor '%s': missing (the file holds %d tensors)", w->path, name, w->n_tensors);
  if (!t->format) return err_new(ERR_UNSUPPORTED, "%s: tensor '%s': stored as %s, a format no text in std/formats describes", w->path, name, t->type);
  *out = t;
  return NULL;
}

void file_tensor_shape(const FileTensor *t, Str *out) {
  str_add_c(out, '[');
  for (int i = 0; i < t->n_dims; i++) str_addf(out, "%s%lld", i ? ", " : "", (long long)t->dim[i]);
  str_add_c(out, ']');
}

/* ---- which container ---- */

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && !strcmp(s + n - m, end);
}

Err *file_weights_open(Arena *a, const char *path, FileFormatFind find, void *ctx, Weights **out) {
  if (os_is_dir(path)) return file_hf_dir_open(a, path, find, ctx, out);
  if (ends_with(path, ".safetensors")) return file_safetensors_open(a, path, find, ctx, out);
  return file_gguf_open(a, path, find, ctx, out);
}
