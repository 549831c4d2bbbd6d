/* Writes GGUF version 3: metadata and tensors' descriptions first, then their bytes as they come, in the order of the descriptions. The file
   appears under its name only when it is whole. In: keys as a view holds them, tensors with known sizes. Out: a file our reader, and any other, takes. */
#include <stdlib.h>
#include <string.h>
#include "file/priv.h"

enum { ALIGNMENT = 32 };
struct FileWriter { OutFile o; const FileOut *tensor; int n, at; uint64_t left, written; };

static Err *put(FileWriter *w, const void *p, size_t n) {
  TRY(os_out_write(&w->o, p, n));
  w->written += n;
  return NULL;
}

static Err *put_u32(FileWriter *w, uint32_t v) { return put(w, &v, sizeof v); }
static Err *put_u64(FileWriter *w, uint64_t v) { return put(w, &v, sizeof v); }

static Err *put_str(FileWriter *w, const char *p, size_t n) {
  TRY(put_u64(w, n));
  return put(w, p, n);
}

static Err *pad(FileWriter *w) {
  static const char zero[ALIGNMENT];
  return put(w, zero, (size_t)(ROUND_UP(w->written, ALIGNMENT) - w->written));
}

static Err *put_kv(FileWriter *w, const FileKv *kv) {
  TRY(put_str(w, kv->key, strlen(kv->key)));
  if (kv->type == FILE_ARRAY) return err_new(ERR_UNSUPPORTED, "key %s: an array of arrays cannot be written", kv->key);
  TRY(put_u32(w, kv->is_array ? FILE_ARRAY : (uint32_t)kv->type));
  if (kv->is_array) TRY(put_u32(w, (uint32_t)kv->type));
  if (kv->is_array) TRY(put_u64(w, kv->n));
  if (kv->type != FILE_STR) return put(w, kv->data, kv->n * file_types[kv->type].size);
  for (size_t i = 0; i < kv->n; i++) TRY(put_str(w, kv->str[i].p, kv->str[i].n));
  return NULL;
}

static Err *put_head(FileWriter *w, const FileKv *kv, int n_kvs) {
  TRY(put(w, "GGUF", 4));
  TRY(put_u32(w, 3));
  TRY(put_u64(w, (uint64_t)w->n));
  TRY(put_u64(w, (uint64_t)n_kvs));
  for (int i = 0; i < n_kvs; i++) TRY(put_kv(w, &kv[i]));
  uint64_t at = 0;
  for (int i = 0; i < w->n; i++) {
    const FileOut *t = &w->tensor[i];
    TRY(put_str(w, t->name, strlen(t->name)));
    TRY(put_u32(w, (uint32_t)t->n_dims));
    for (int k = t->n_dims - 1; k >= 0; k--) TRY(put_u64(w, (uint64_t)t->dim[k]));
    TRY(put_u32(w, (uint32_t)t->gguf_id));
    TRY(put_u64(w, at));
    at += ROUND_UP(t->n_bytes, ALIGNMENT);
  }
  return pad(w);
}

Err *file_gguf_create(const char *path, const FileKv *kv, int n_kvs, const FileOut *tensor, int n_tensors, FileWriter **out) {
  FileWriter *w = calloc(1, sizeof *w);
  CHECK(w);
  w->tensor = tensor;
  w->n = n_tensors;
  w->left = n_tensors ? tensor[0].n_bytes : 0;
  Err *e = os_out_open(path, &w->o);
  if (!e) e = put_head(w, kv, n_kvs);
  if (e) {
    file_gguf_drop(w);
    return e;
  }
  *out = w;
  return NULL;
}

Err *file_gguf_append(FileWriter *w, const void *p, size_t n_bytes) {
  CHECK(w->at < w->n && n_bytes <= w->left, "%zu bytes more than tensor %d has", n_bytes, w->at);
  TRY(put(w, p, n_bytes));
  w->left -= n_bytes;
  if (w->left) return NULL;
  w->at++;
  w->left = w->at < w->n ? w->tensor[w->at].n_bytes : 0;
  return pad(w);
}

void file_gguf_drop(FileWriter *w) {
  if (!w) return;
  os_out_drop(&w->o);
  free(w);
}

Err *file_gguf_finish(FileWriter *w) {
  CHECK(w->at == w->n, "tensor %d of %d was not written", w->at, w->n);
  Err *e = os_out_finish(&w->o);
  file_gguf_drop(w);
  return e;
}
