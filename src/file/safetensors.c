/* safetensors files and Hugging Face directories. Mapped files and JSON in, a Weights out. Written from the safetensors README.

     header length N u64 | N bytes of JSON | data
     JSON: {"NAME": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, .., "__metadata__": {"k": "v"}}

   Offsets count from the data's start. The tensors of a file must tile its data: no gap, no overlap, nothing after the last.
   A directory: config.json, then model.safetensors or the parts that model.safetensors.index.json names. JSON becomes metadata, nested keys joined with dots. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "file/priv.h"

enum { HEADER_MAX = 100000000, CONFIG_MAX = 4 << 20, INDEX_MAX = 64 << 20, KVS_MAX = 1 << 16, PARTS_MAX = 4096 };
enum { KEY_MAX = 4096 + 512, ALL_KEYS_MAX = 64 << 20 }; /* bytes of one key, which may be an expression that tells of weights, below others; of all of a file */

/* ---- JSON as metadata ---- */

typedef struct Flat { Arena *a; Weights *w; int cap, cap_objects; Str key; size_t n_bytes; /* of keys so far */ } Flat;

static FileStr dup_str(Arena *a, const json_t *v) {
  return (FileStr){arena_dup_n(a, json_string_value(v), json_string_length(v)), json_string_length(v)};
}

/* What an array's elements have in common; 'm': nothing. */
static char class_of(const json_t *v) {
  return json_is_string(v) ? 's' : json_is_boolean(v) ? 'b' : json_is_integer(v) ? 'i' : json_is_real(v) ? 'f' : 'm';
}
static char class_of_array(const json_t *v) {
  char all = json_array_size(v) ? class_of(json_array_get(v, 0)) : 'i';
  for (size_t i = 1; i < json_array_size(v); i++) {
    char c = class_of(json_array_get(v, i));
    if (c == all) continue;
    all = (c == 'i' || c == 'f') && (all == 'i' || all == 'f') ? 'f' : 'm';
  }
  return all;
}

static void put_value(Arena *a, FileKv *kv, char class, size_t i, const json_t *v) {
  if (class == 's') ((FileStr *)(uintptr_t)kv->str)[i] = dup_str(a, v);
  if (class == 'b') ((uint8_t *)(uintptr_t)kv->data)[i] = json_is_true(v);
  if (class == 'i') ((int64_t *)(uintptr_t)kv->data)[i] = json_integer_value(v);
  if (class == 'f') ((double *)(uintptr_t)kv->data)[i] = json_number_value(v);
}

static Err *take_key(Flat *f, const char **out) {
  f->n_bytes += f->key.n + 1;
  if (f->n_bytes > ALL_KEYS_MAX) return err_new(ERR_LIMIT, "keys with those around them: more than %d MiB", ALL_KEYS_MAX >> 20);
  *out = arena_dup_n(f->a, f->key.n ? f->key.p : "", f->key.n);
  return NULL;
}

static Err *flat_add(Flat *f, const json_t *v, char class, bool is_array) {
  size_t n = is_array ? json_array_size(v) : 1;
  if (f->w->n_kvs >= KVS_MAX) return err_new(ERR_LIMIT, "more than %d values", KVS_MAX);
  FileKv kv = {.is_array = is_array, .n = n};
  TRY(take_key(f, &kv.key));
  kv.type = class == 's' ? FILE_STR : class == 'b' ? FILE_BOOL : class == 'i' ? FILE_I64 : FILE_F64;
  if (class == 's') kv.str = ARENA_ARRAY(f->a, FileStr, n);
  else kv.data = arena_alloc_array(f->a, n, file_types[kv.type].size);
  for (size_t i = 0; i < n; i++) put_value(f->a, &kv, class, i, is_array ? json_array_get(v, i) : v);
  PUSH(f->a, f->w->kv, f->w->n_kvs, f->cap, kv);
  return NULL;
}

static Err *flat_value(Flat *f, const json_t *v);

static Err *flat_member(Flat *f, const char *name, const json_t *v) {
  size_t n = f->key.n;
  const char *fault = file_name_fault((const uint8_t *)name, strlen(name));
  if (fault && name[0]) return err_new(ERR_FORMAT, "a key below '%s' %s", f->key.p ? f->key.p : "", fault);
  if (n + strlen(name) + 1 > KEY_MAX) return err_new(ERR_LIMIT, "key '%.60s..': longer than %d bytes with those around it", name, KEY_MAX);
  str_addf(&f->key, "%s%s", n ? "." : "", name);
  Err *e = flat_value(f, v);
  f->key.n = n;
  f->key.p[n] = 0;
  return e;
}

static Err *note_object(Flat *f, const json_t *v) {
  FileObject o = {.name = ARENA_ARRAY(f->a, const char *, json_object_size(v)), .is_list = json_is_array(v)};
  const char *key;
  json_t *member;
  TRY(take_key(f, &o.key));
  json_object_foreach((json_t *)(uintptr_t)v, key, member) o.name[o.n++] = arena_dup(f->a, key);
  PUSH(f->a, f->w->object, f->w->n_objects, f->cap_objects, o);
  return NULL;
}

/* Recursion is bounded by the parser's depth and by KEY_MAX. */
static Err *flat_value(Flat *f, const json_t *v) {
  char class = json_is_array(v) ? class_of_array(v) : class_of(v);
  if (class != 'm') return flat_add(f, v, class, json_is_array(v));
  if (json_is_null(v)) return NULL; /* as if it were not there */
  const char *key;
  json_t *member;
  TRY(note_object(f, v));
  json_object_foreach((json_t *)(uintptr_t)v, key, member) TRY(flat_member(f, key, member));
  for (size_t i = 0; i < json_array_size(v); i++) {
    char number[24];
    snprintf(number, sizeof number, "%zu", i);
    TRY(flat_member(f, number, json_array_get(v, i)));
  }
  return NULL;
}

/* Adds the values of a JSON object to the view's metadata. Fails: the view has some of them. */
static Err *add_json(Arena *a, Weights *w, const char *prefix, const json_t *v) {
  Flat f = {.a = a, .w = w, .cap = w->n_kvs, .cap_objects = w->n_objects};
  if (!json_is_object(v)) return err_new(ERR_FORMAT, "is no JSON object");
  str_add(&f.key, prefix);
  Err *e = flat_value(&f, v);
  str_free(&f.key);
  return e;
}

/* ---- one file ---- */

static Err *read_shape(const json_t *v, FileTensor *t) {
  size_t n = json_array_size(v);
  if (!json_is_array(v) || n > FILE_DIMS_MAX) return err_new(ERR_FORMAT, "shape: expected an array of at most %d numbers", FILE_DIMS_MAX);
  for (size_t i = 0; i < n; i++) {
    const json_t *d = json_array_get(v, i);
    if (!json_is_integer(d) || json_integer_value(d) < 0) return err_new(ERR_FORMAT, "shape: element %zu, expected an integer of at least 0", i);
    t->dim[i] = json_integer_value(d);
  }
  t->n_dims = (int)n;
  return NULL;
}

static Err *read_offsets(const json_t *v, size_t n_data, size_t *begin, size_t *end) {
  const json_t *b = json_array_get(v, 0), *e = json_array_get(v, 1);
  if (json_array_size(v) != 2 || !json_is_integer(b) || !json_is_integer(e)) return err_new(ERR_FORMAT, "data_offsets: expected [begin, end]");
  json_int_t lo = json_integer_value(b), hi = json_integer_value(e);
  if (lo < 0 || hi < lo || (uint64_t)hi > n_data)
    return err_new(ERR_FORMAT, "data_offsets: [%lld, %lld], expected within the %zu bytes of data the file holds", (long long)lo, (long long)hi, n_data);
  *begin = (size_t)lo;
  *end = (size_t)hi;
  return NULL;
}

typedef struct Reader { Arena *a; FileFormatFind find; void *ctx; const uint8_t *data; size_t n_data; } Reader;

static Err *read_tensor(const Reader *r, const json_t *v, FileTensor *t) {
  if (!json_is_object(v)) return err_new(ERR_FORMAT, "expected an object of dtype, shape and data_offsets");
  const json_t *word = json_object_get(v, "dtype");
  const char *dtype = json_string_value(word);
  FileFormat f = {0};
  size_t begin, end;
  if (!dtype || file_name_fault((const uint8_t *)dtype, json_string_length(word))) return err_new(ERR_FORMAT, "dtype: expected a string");
  TRY(read_shape(json_object_get(v, "shape"), t));
  TRY(read_offsets(json_object_get(v, "data_offsets"), r->n_data, &begin, &end));
  bool known = r->find(r->ctx, dtype, -1, &f);
  TRY(file_tensor_measure(t, known ? &f : NULL));
  if (known && t->n_bytes != end - begin)
    return err_new(ERR_FORMAT, "data_offsets: %zu bytes, expected %zu for its shape in %s", end - begin, t->n_bytes, dtype);
  if (!known && (t->n_elems == 0 ? end > begin : (end - begin) * 8 % (uint64_t)t->n_elems))
    return err_new(ERR_FORMAT, "data_offsets: %zu bytes, no whole number of bits for each of %lld elements", end - begin, (long long)t->n_elems);
  t->type = arena_dup(r->a, dtype);
  t->format = known ? f.name : NULL;
  t->p = r->data + begin;
  t->n_bytes = end - begin;
  return NULL;
}

static int place_order(const void *x, const void *y) {
  const FileTensor *a = *(const FileTensor *const *)x, *b = *(const FileTensor *const *)y;
  if (a->p != b->p) return (uintptr_t)a->p < (uintptr_t)b->p ? -1 : 1;
  return (a->n_bytes > b->n_bytes) - (a->n_bytes < b->n_bytes);
}

/* Texts by name, and nothing else. */
static Err *read_metadata(const Reader *r, Weights *w, const json_t *v) {
  const char *key;
  json_t *text;
  if (!json_is_object(v)) return err_new(ERR_FORMAT, "__metadata__: expected an object of texts");
  json_object_foreach((json_t *)(uintptr_t)v, key, text)
    if (!json_is_string(text)) return err_new(ERR_FORMAT, "__metadata__: '%.60s' is no text", key);
  return w->n_files == 1 ? err_wrap(add_json(r->a, w, "__metadata__", v), "__metadata__") : NULL; /* of the first part: the others repeat it */
}

/* The n tensors at t cover the data exactly once. */
static Err *check_tiling(const Reader *r, const FileTensor *t, size_t n) {
  const FileTensor **s = ARENA_ARRAY(r->a, const FileTensor *, n);
  const uint8_t *at = r->data;
  for (size_t i = 0; i < n; i++) s[i] = &t[i];
  qsort(s, n, sizeof *s, place_order);
  for (size_t i = 0; i < n; at = s[i]->p + s[i]->n_bytes, i++)
    if (s[i]->p != at)
      return err_new(ERR_FORMAT, "tensor '%s': begins at data byte %zu, expected %zu, where the one before it ends: tensors %s", s[i]->name,
                     (size_t)(s[i]->p - r->data), (size_t)(at - r->data), s[i]->p < at ? "overlap" : "leave a gap");
  if (at != r->data + r->n_data)
    return err_new(ERR_FORMAT, "the tensors end at data byte %zu, the file's data at %zu, expected the same", (size_t)(at - r->data), r->n_data);
  return NULL;
}

static Err *read_tensors(Reader *r, Weights *w, const json_t *header) {
  size_t n = 0, n_all = json_object_size(header);
  const char *name;
  json_t *v;
  TRY(file_tensors_fit(w, n_all));
  FileTensor *all = ARENA_ARRAY(r->a, FileTensor, (size_t)w->n_tensors + n_all), *mine = all + w->n_tensors;
  if (w->n_tensors) memcpy(all, w->tensor, (size_t)w->n_tensors * sizeof *all);
  json_object_foreach((json_t *)(uintptr_t)header, name, v) {
    if (!strcmp(name, "__metadata__")) {
      TRY(read_metadata(r, w, v));
      continue;
    }
    const char *fault = file_name_fault((const uint8_t *)name, strlen(name));
    if (fault) return err_new(ERR_FORMAT, "the name of tensor %zu %s", n + 1, fault);
    FileTensor *t = &mine[n++];
    t->name = arena_dup(r->a, name);
    t->file = w->n_files - 1;
    TRY(err_wrap(read_tensor(r, v, t), "tensor '%s'", name));
  }
  TRY(check_tiling(r, mine, n));
  w->tensor = all;
  w->n_tensors += (int)n;
  return NULL;
}

/* The last file of w. */
static Err *read_file(Reader *r, Weights *w) {
  const FileMap *m = &w->map[w->n_files - 1];
  uint64_t n = 0;
  json_t *header;
  if (m->n_bytes >= 8) memcpy(&n, m->p, 8);
  const char *other = n > HEADER_MAX || m->n_bytes < 8 || n > m->n_bytes - 8 || m->p[8] != '{' ? file_other_kind(m->p, m->n_bytes) : NULL;
  if (other) return err_new(ERR_FORMAT, "is %s", other);
  if (m->n_bytes < 8) return err_new(ERR_FORMAT, "%zu bytes long, expected at least 8: it is truncated", m->n_bytes);
  if (n > HEADER_MAX) return err_new(ERR_LIMIT, "header length %llu, expected at most %d", (unsigned long long)n, HEADER_MAX);
  if (n > m->n_bytes - 8) return err_new(ERR_FORMAT, "header length %llu, expected at most the %zu bytes that follow: it is truncated or no safetensors file", (unsigned long long)n, m->n_bytes - 8);
  if (n == 0 || m->p[8] != '{') return err_new(ERR_FORMAT, "the header begins with byte %02x, expected '{'", n ? m->p[8] : 0);
  r->data = m->p + 8 + n;
  r->n_data = m->n_bytes - 8 - (size_t)n;
  TRY(json_parse_text((const char *)m->p + 8, (size_t)n, HEADER_MAX, "header", &header));
  Err *e = json_is_object(header) ? read_tensors(r, w, header) : err_new(ERR_FORMAT, "the header is no JSON object");
  json_decref(header);
  return e;
}

static Err *add_file(Reader *r, Weights *w, const char *path) {
  TRY(file_weights_map(r->a, w, path));
  return err_wrap(read_file(r, w), "%s", path);
}

Err *file_safetensors_open(Arena *a, const char *path, FileFormatFind find, void *ctx, Weights **out) {
  Weights *w = file_weights_new(a, path, "safetensors");
  Reader r = {.a = a, .find = find, .ctx = ctx};
  return file_weights_finish(a, w, add_file(&r, w, path), out);
}

/* ---- directories ---- */

static Err *add_json_file(Arena *a, Weights *w, const char *path, const char *prefix) {
  json_t *v;
  TRY(json_parse_file(path, CONFIG_MAX, &v));
  Err *e = err_wrap(add_json(a, w, prefix, v), "%s", path);
  json_decref(v);
  return e;
}

static int text_order(const void *x, const void *y) { return strcmp(*(const char *const *)x, *(const char *const *)y); }

/* The different file names of a weight map, sorted. They stay inside the directory. */
static Err *part_names(Arena *a, const json_t *map, const char ***out, size_t *n_out) {
  size_t n = 0, kept = 0;
  const char *name, **file = ARENA_ARRAY(a, const char *, json_object_size(map));
  json_t *v;
  json_object_foreach((json_t *)(uintptr_t)map, name, v) {
    const char *f = json_string_value(v);
    if (!f || file_name_fault((const uint8_t *)f, json_string_length(v)) || strchr(f, '/') || f[0] == '.')
      return err_new(ERR_FORMAT, "weight_map '%.100s': expected the name of a file in the directory", name);
    file[n++] = arena_dup(a, f);
  }
  qsort(file, n, sizeof *file, text_order);
  for (size_t i = 0; i < n; i++)
    if (!i || strcmp(file[i], file[i - 1])) file[kept++] = file[i];
  if (kept > PARTS_MAX) return err_new(ERR_LIMIT, "weight_map names %zu files, expected at most %d", kept, PARTS_MAX);
  *out = file;
  *n_out = kept;
  return NULL;
}

/* Every tensor of the map is in the file it names. Tensors the map does not list are kept: some writers leave them out. */
static Err *check_map(const Weights *w, const json_t *map, size_t dir_len) {
  const char *name;
  json_t *v;
  json_object_foreach((json_t *)(uintptr_t)map, name, v) {
    const FileTensor *t = file_tensor_find(w, name);
    if (!t) return err_new(ERR_FORMAT, "weight_map '%.100s': no file holds this tensor", name);
    if (strcmp(w->file[t->file] + dir_len + 1, json_string_value(v)))
      return err_new(ERR_FORMAT, "weight_map '%s': says %s, but %s holds it", name, json_string_value(v), w->file[t->file] + dir_len + 1);
  }
  return NULL;
}

static Err *add_parts(Reader *r, Weights *w, const char *dir, const json_t *index) {
  const json_t *map = json_object_get(index, "weight_map");
  const char **file;
  size_t n;
  if (!json_is_object(map)) return err_new(ERR_FORMAT, "no object weight_map, expected tensor names and their files");
  TRY(part_names(r->a, map, &file, &n));
  for (size_t i = 0; i < n; i++) TRY(add_file(r, w, arena_printf(r->a, "%s/%s", dir, file[i])));
  TRY(file_weights_index(r->a, w));
  return check_map(w, map, strlen(dir));
}

/* The first file of a folder, by name, that ends so -> its path; NULL: none. */
static const char *one_like(Arena *a, const char *dir, const char *end) {
  DIR *d = opendir(dir);
  const char *best = NULL;
  for (struct dirent *f; d && (f = readdir(d));) {
    size_t n = strlen(f->d_name), n_end = strlen(end);
    if (n > n_end && !strcmp(f->d_name + n - n_end, end) && (!best || strcmp(f->d_name, best) < 0)) best = arena_dup(a, f->d_name);
  }
  if (d) closedir(d);
  return best ? arena_printf(a, "%s/%s", dir, best) : NULL;
}

static Err *add_weights(Reader *r, Weights *w, const char *dir) {
  bool is_single, is_parts;
  const char *single = arena_printf(r->a, "%s/model.safetensors", dir), *parts = arena_printf(r->a, "%s/model.safetensors.index.json", dir);
  TRY(os_look(single, &is_single));
  if (is_single) return add_file(r, w, single);
  TRY(os_look(parts, &is_parts));
  if (!is_parts) {
    const char *old = one_like(r->a, dir, ".bin"); /* pickles, which run code when they are read */
    return err_new(ERR_NOT_FOUND, "%s: holds neither model.safetensors nor model.safetensors.index.json%s%s%s", dir, old ? "; " : "", old ? old : "", old ? " is not read" : "");
  }
  json_t *index;
  TRY(json_parse_file(parts, INDEX_MAX, &index));
  Err *e = err_wrap(add_parts(r, w, dir, index), "%s", parts);
  json_decref(index);
  return e;
}

Err *file_hf_dir_open(Arena *a, const char *dir, FileFormatFind find, void *ctx, Weights **out) {
  Weights *w = file_weights_new(a, dir, "safetensors");
  Reader r = {.a = a, .find = find, .ctx = ctx};
  const char *config = arena_printf(a, "%s/config.json", dir), *generation = arena_printf(a, "%s/generation_config.json", dir);
  bool has_config, has_generation;
  TRY(os_look(config, &has_config));
  TRY(os_look(generation, &has_generation));
  if (!has_config) {
    const char *gguf = one_like(a, dir, ".gguf");
    return err_new(ERR_NOT_FOUND, "%s: holds no config.json, expected a Hugging Face model directory (a GGUF model is named by its file%s%s)", dir, gguf ? ": " : "", gguf ? gguf : "");
  }
  Err *e = add_json_file(a, w, config, "");
  if (!e && has_generation) e = add_json_file(a, w, generation, "generation_config");
  if (!e) e = add_weights(&r, w, dir);
  return file_weights_finish(a, w, e, out);
}
