/* GGUF versions 2 and 3, read in place. A mapped file in, a Weights out. Written from the GGUF specification (ggml, docs/gguf.md).

     "GGUF" | version u32 | n_tensors u64 | n_kv u64
     n_kv      times: key string | type u32 | value           string: length u64, bytes; array: element type u32, count u64, elements
     n_tensors times: name string | n_dims u32 | dims u64[] fastest first | type u32 | offset u64 from the data's start
     padding to general.alignment (32 where absent), then the data

   Rule of this file: nothing read from the file is used as a size, count, index or offset before it was compared with the bytes that are left.
   Stricter than some readers: alignment is a power of two up to 1 MiB, bools are 0 or 1, tensors do not overlap, names are unique and printable. */
#include <stdlib.h>
#include <string.h>
#include "file/priv.h"

enum { KV_BYTES_MIN = 8 + 1 + 4 + 1, TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8, DEPTH_MAX = 4, DIMS_MAX = 4 };
static const uint32_t ALIGNMENT_MAX = 1u << 20;

typedef struct Cursor { const uint8_t *p; size_t n, at, n_elems; } Cursor; /* n_elems: of the arrays so far, in all files */
static size_t left(const Cursor *c) { return c->n - c->at; }

static Err *truncated(const Cursor *c, const char *what, uint64_t want) {
  return err_new(ERR_FORMAT, "%s at byte %zu: %llu bytes needed, %zu left in the file: it is truncated or damaged", what, c->at, (unsigned long long)want, left(c));
}

static Err *take(Cursor *c, const char *what, uint64_t n, const uint8_t **out) {
  if (n > left(c)) return truncated(c, what, n);
  *out = c->p + c->at;
  c->at += (size_t)n;
  return NULL;
}

static Err *take_u32(Cursor *c, const char *what, uint32_t *out) {
  const uint8_t *p;
  TRY(take(c, what, sizeof *out, &p));
  memcpy(out, p, sizeof *out);
  return NULL;
}

static Err *take_u64(Cursor *c, const char *what, uint64_t *out) {
  const uint8_t *p;
  TRY(take(c, what, sizeof *out, &p));
  memcpy(out, p, sizeof *out);
  return NULL;
}

static Err *take_str(Cursor *c, const char *what, FileStr *out) {
  uint64_t n;
  const uint8_t *p;
  TRY(take_u64(c, what, &n));
  if (n > left(c)) return err_new(ERR_FORMAT, "%s at byte %zu: length %llu, expected at most the %zu bytes left in the file", what, c->at - 8, (unsigned long long)n, left(c));
  TRY(take(c, what, n, &p));
  *out = (FileStr){(const char *)p, (size_t)n};
  return NULL;
}

static Err *take_name(Arena *a, Cursor *c, const char *what, const char **out) {
  FileStr s;
  TRY(take_str(c, what, &s));
  const char *fault = file_name_fault((const uint8_t *)s.p, s.n);
  if (fault) return err_new(ERR_FORMAT, "%s at byte %zu: %s, expected printable UTF-8 of 1 to 65535 bytes", what, c->at - s.n, fault);
  *out = arena_dup_n(a, s.p, s.n);
  return NULL;
}

/* ---- metadata ---- */

static Err *take_type(Cursor *c, const char *what, FileType *out) {
  uint32_t t;
  TRY(take_u32(c, what, &t));
  if (t >= FILE_TYPE_COUNT) return err_new(ERR_FORMAT, "%s is %u, expected 0 to %d", what, t, FILE_TYPE_COUNT - 1);
  *out = (FileType)t;
  return NULL;
}

/* Count of an array whose elements take at least min bytes each. */
static Err *take_count(Cursor *c, size_t min, size_t *out) {
  uint64_t n;
  TRY(take_u64(c, "array length", &n));
  if (n > left(c) / min) return err_new(ERR_FORMAT, "array length %llu, expected at most %zu: the file ends there", (unsigned long long)n, left(c) / min);
  if (n > FILE_ELEMS_MAX - c->n_elems) return err_new(ERR_LIMIT, "array length %llu, expected at most %d elements in all arrays, %zu were before", (unsigned long long)n, FILE_ELEMS_MAX, c->n_elems);
  c->n_elems += (size_t)n;
  *out = (size_t)n;
  return NULL;
}

static Err *check_bools(const uint8_t *p, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (p[i] > 1) return err_new(ERR_FORMAT, "bool %zu is %u, expected 0 or 1", i, p[i]);
  return NULL;
}

/* Passes over the elements of an array inside arrays. Real files are flat, so a small depth is kept and nothing of it shown. */
static Err *skip_array(Cursor *c, int depth) {
  FileType t;
  size_t n;
  const uint8_t *p;
  FileStr s;
  if (depth > DEPTH_MAX) return err_new(ERR_FORMAT, "arrays nested more than %d deep", DEPTH_MAX);
  TRY(take_type(c, "element type", &t));
  if (t == FILE_ARRAY) {
    TRY(take_count(c, 12, &n));
    for (size_t i = 0; i < n; i++) TRY(skip_array(c, depth + 1));
  } else if (t == FILE_STR) {
    TRY(take_count(c, 8, &n));
    for (size_t i = 0; i < n; i++) TRY(take_str(c, "string", &s));
  } else {
    TRY(take_count(c, file_types[t].size, &n));
    TRY(take(c, "array", n * file_types[t].size, &p));
  }
  return NULL;
}

static Err *take_strs(Arena *a, Cursor *c, FileKv *kv) {
  FileStr *s = ARENA_ARRAY(a, FileStr, kv->n);
  for (size_t i = 0; i < kv->n; i++) TRY(err_wrap(take_str(c, "string", &s[i]), "element %zu", i));
  kv->str = s;
  return NULL;
}

static Err *take_value(Arena *a, Cursor *c, FileKv *kv) {
  TRY(take_type(c, "value type", &kv->type));
  kv->n = 1;
  if (kv->type == FILE_ARRAY) {
    kv->is_array = true;
    TRY(take_type(c, "element type", &kv->type));
    size_t size = file_types[kv->type].size;
    TRY(take_count(c, size ? size : kv->type == FILE_STR ? 8 : 12, &kv->n));
  }
  if (kv->type == FILE_STR) return take_strs(a, c, kv);
  if (kv->type == FILE_ARRAY) {
    for (size_t i = 0; i < kv->n; i++) TRY(skip_array(c, 2));
    return NULL;
  }
  const uint8_t *p;
  TRY(take(c, "value", kv->n * file_types[kv->type].size, &p));
  kv->data = p;
  return kv->type == FILE_BOOL ? check_bools(p, kv->n) : NULL;
}

static Err *take_kvs(Arena *a, Cursor *c, uint64_t n, Weights *w) {
  w->kv = ARENA_ARRAY(a, FileKv, (size_t)n);
  for (uint64_t i = 0; i < n; i++) {
    FileKv *kv = &w->kv[i];
    TRY(err_wrap(take_name(a, c, "key", &kv->key), "metadata entry %llu", (unsigned long long)i + 1));
    TRY(err_wrap(take_value(a, c, kv), "metadata '%s'", kv->key));
    w->n_kvs++;
  }
  return NULL;
}

static Err *find_alignment(const Weights *w, uint32_t *out) {
  uint32_t v = 32;
  for (int i = 0; i < w->n_kvs; i++) {
    const FileKv *kv = &w->kv[i];
    if (strcmp(kv->key, "general.alignment")) continue;
    if (kv->is_array || kv->type != FILE_U32)
      return err_new(ERR_FORMAT, "metadata 'general.alignment': is %s%s, expected uint32", kv->is_array ? "an array of " : "", file_types[kv->type].text);
    memcpy(&v, kv->data, sizeof v);
    if (!v || v & (v - 1) || v > ALIGNMENT_MAX)
      return err_new(ERR_FORMAT, "metadata 'general.alignment': %u, expected a power of two from 1 to %u", v, ALIGNMENT_MAX);
  }
  *out = v;
  return NULL;
}

/* ---- tensors ---- */

static Err *take_dims(Cursor *c, FileTensor *t) {
  uint32_t n;
  TRY(take_u32(c, "number of dimensions", &n));
  if (n < 1 || n > DIMS_MAX) return err_new(ERR_FORMAT, "%u dimensions, expected 1 to %d", n, DIMS_MAX);
  t->n_dims = (int)n;
  for (int i = t->n_dims - 1; i >= 0; i--) {
    uint64_t d;
    TRY(take_u64(c, "dimension", &d));
    if (d < 1 || d > INT64_MAX) return err_new(ERR_FORMAT, "dimension %d is %lld, expected at least 1", i, (long long)d);
    t->dim[i] = (int64_t)d;
  }
  return NULL;
}

typedef struct Reader { Arena *a; Cursor c; FileFormatFind find; void *ctx; uint32_t alignment; } Reader;

/* One tensor info; its offset waits in *offset until the data's start is known. */
static Err *take_tensor(Reader *r, FileTensor *t, uint64_t *offset) {
  uint32_t type;
  FileFormat f = {0};
  TRY(take_dims(&r->c, t));
  TRY(take_u32(&r->c, "type", &type));
  TRY(take_u64(&r->c, "offset", offset));
  t->type = arena_printf(r->a, "type %u", type);
  bool known = r->find(r->ctx, NULL, type, &f);
  if (known) t->format = f.name;
  TRY(file_tensor_measure(t, known ? &f : NULL));
  if (*offset % r->alignment) return err_new(ERR_FORMAT, "offset %llu, expected a multiple of the alignment %u", (unsigned long long)*offset, r->alignment);
  return NULL;
}

static Err *place_tensor(const Reader *r, FileTensor *t, uint64_t offset, size_t start) {
  size_t room = r->c.n - start;
  if (offset > room && !t->n_bytes) /* of a format nobody named: its size is not known */
    return err_new(ERR_FORMAT, "offset %llu, expected to begin within the %zu bytes of data the file holds: it is truncated or damaged", (unsigned long long)offset, room);
  if (offset > room || t->n_bytes > room - offset)
    return err_new(ERR_FORMAT, "offset %llu and %zu bytes, expected to end within the %zu bytes of data the file holds: it is truncated or damaged",
                   (unsigned long long)offset, t->n_bytes, room);
  if (t->format) t->p = r->c.p + start + offset;
  return NULL;
}

/* Appends the n tensors of file number `file` to the view. */
static Err *take_tensors(Reader *r, uint64_t n, int file, Weights *w) {
  TRY(file_tensors_fit(w, n));
  FileTensor *all = ARENA_ARRAY(r->a, FileTensor, (size_t)w->n_tensors + n);
  uint64_t *offset = ARENA_ARRAY(r->a, uint64_t, (size_t)n);
  if (w->n_tensors) memcpy(all, w->tensor, (size_t)w->n_tensors * sizeof *all);
  FileTensor *mine = all + w->n_tensors;
  for (uint64_t i = 0; i < n; i++) {
    TRY(err_wrap(take_name(r->a, &r->c, "name", &mine[i].name), "tensor %llu", (unsigned long long)i + 1));
    TRY(err_wrap(take_tensor(r, &mine[i], &offset[i]), "tensor '%s'", mine[i].name));
    mine[i].file = file;
  }
  size_t start = ROUND_UP(r->c.at, (size_t)r->alignment);
  if (n && start > r->c.n) return err_new(ERR_FORMAT, "the data would start at byte %zu, the file ends at %zu: it is truncated", start, r->c.n);
  for (uint64_t i = 0; i < n; i++) TRY(err_wrap(place_tensor(r, &mine[i], offset[i], start), "tensor '%s'", mine[i].name));
  int first = w->n_tensors;
  w->tensor = all;
  w->n_tensors += (int)n;
  return file_tensors_overlap(r->a, w, first);
}

/* ---- files ---- */

static Err *take_header(Cursor *c, uint32_t *version, uint64_t *n_tensors, uint64_t *n_kvs) {
  const uint8_t *p;
  if (c->n == 0) return err_new(ERR_FORMAT, "is empty, expected a GGUF file");
  const char *other = c->n >= 4 && memcmp(c->p, "GGUF", 4) ? file_other_kind(c->p, c->n) : NULL;
  if (other) return err_new(ERR_FORMAT, "is %s", other);
  TRY(take(c, "magic", 4, &p));
  if (memcmp(p, "GGUF", 4))
    return err_new(ERR_FORMAT, "starts with bytes %02x %02x %02x %02x, expected \"GGUF\" (or a name that ends in .safetensors, or a directory)", p[0], p[1], p[2], p[3]);
  TRY(take_u32(c, "version", version));
  if (*version && !(*version & 0xffff)) return err_new(ERR_UNSUPPORTED, "is a big-endian GGUF file, expected a little-endian one");
  if (*version < 2 || *version > 3) return err_new(ERR_UNSUPPORTED, "GGUF version %u, expected 2 or 3", *version);
  TRY(take_u64(c, "number of tensors", n_tensors));
  TRY(take_u64(c, "number of metadata entries", n_kvs));
  uint64_t most_t = MIN(left(c) / TENSOR_BYTES_MIN, (size_t)FILE_TENSORS_MAX), most_k = MIN(left(c) / KV_BYTES_MIN, (size_t)FILE_KVS_MAX);
  if (*n_tensors > most_t)
    return err_new(ERR_FORMAT, "number of tensors %llu, expected at most %llu in a file of %zu bytes: it is truncated or damaged", (unsigned long long)*n_tensors, (unsigned long long)most_t, c->n);
  if (*n_kvs > most_k)
    return err_new(ERR_FORMAT, "number of metadata entries %llu, expected at most %llu in a file of %zu bytes: it is truncated or damaged", (unsigned long long)*n_kvs, (unsigned long long)most_k, c->n);
  return NULL;
}

/* The last file of w: its metadata into meta (w itself, or a stand-in for the further parts), its tensors into w. */
static Err *read_file(Reader *r, Weights *w, Weights *meta, uint32_t *version) {
  int file = w->n_files - 1;
  uint64_t n_tensors, n_kvs;
  r->c = (Cursor){w->map[file].p, w->map[file].n_bytes, 0, r->c.n_elems};
  TRY(take_header(&r->c, version, &n_tensors, &n_kvs));
  TRY(take_kvs(r->a, &r->c, n_kvs, meta));
  TRY(find_alignment(meta, &r->alignment));
  return take_tensors(r, n_tensors, file, w);
}

/* Metadata before the index exists; absent: the default. */
static Err *early_int(const Weights *meta, const char *key, int64_t deflt, int64_t *out) {
  for (int i = 0; i < meta->n_kvs; i++) {
    if (strcmp(meta->kv[i].key, key)) continue;
    Weights one = {.path = meta->path, .kv = &meta->kv[i], .n_kvs = 1};
    return file_kv_int(&one, key, 0, 65535, out);
  }
  *out = deflt;
  return NULL;
}

/* The further parts of a split model: NAME-00001-of-00003.gguf holds the metadata, each part tensors of its own. */
static Err *read_parts(Reader *r, Weights *w, int64_t count) {
  int64_t no;
  const char *path = w->file[0];
  size_t n = strlen(path);
  char tail[48];
  int n_tail = snprintf(tail, sizeof tail, "-00001-of-%05d.gguf", (int)count);
  TRY(early_int(w, "split.no", 0, &no));
  if (no != 0 || n < (size_t)n_tail || strcmp(path + n - (size_t)n_tail, tail))
    return err_new(ERR_FORMAT, "is part %d of %d of a split model, expected the first, whose name ends in %s", (int)no + 1, (int)count, tail);
  for (int i = 1; i < count; i++) {
    Weights meta = {.path = w->path};
    uint32_t version;
    int64_t its_no, its_count;
    TRY(file_weights_map(r->a, w, arena_printf(r->a, "%.*s-%05d-of-%05d.gguf", (int)(n - (size_t)n_tail), path, i + 1, (int)count)));
    Err *e = read_file(r, w, &meta, &version);
    if (!e) e = early_int(&meta, "split.no", -1, &its_no);
    if (!e) e = early_int(&meta, "split.count", -1, &its_count);
    if (!e && (its_no != i || its_count != count))
      e = err_new(ERR_FORMAT, "says split.no %d, split.count %d, expected %d and %d", (int)its_no, (int)its_count, i, (int)count);
    if (e) return err_wrap(e, "%s", w->file[w->n_files - 1]);
  }
  return NULL;
}

Err *file_gguf_open(Arena *a, const char *path, FileFormatFind find, void *ctx, Weights **out) {
  Weights *w = file_weights_new(a, path, "GGUF");
  Reader r = {.a = a, .find = find, .ctx = ctx};
  uint32_t version;
  int64_t parts;
  TRY(file_weights_map(a, w, path));
  Err *e = read_file(&r, w, w, &version);
  if (!e) e = early_int(w, "split.count", 1, &parts);
  if (!e && parts > 1) e = read_parts(&r, w, parts);
  if (!e) w->container = version == 2 ? "GGUF version 2" : "GGUF version 3";
  return file_weights_finish(a, w, err_wrap(e, "%s", path), out);
}
