/* libFuzzer target of Hugging Face folders: config.json, generation_config.json, the index and one part, each ended by a byte ff, which JSON cannot
   hold; an empty one but the first is not written. tests/fuzz/run builds and runs it. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "file/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
static char dir[64];

static bool find_format(void *ctx, const char *dtype, int64_t gguf_id, FileFormat *out) {
  (void)ctx, (void)gguf_id;
  if (!dtype || strcmp(dtype, "F32")) return false;
  *out = (FileFormat){"f32", 1, 4};
  return true;
}

static void path_of(const char *name, char *out, size_t n) { snprintf(out, n, "%s/%s", dir, name); }

static const char *const names[] = {"config.json", "generation_config.json", "model.safetensors.index.json", "a.safetensors"};
static void remove_all(void) {
  char path[128];
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    path_of(names[i], path, sizeof path);
    unlink(path);
  }
  rmdir(dir);
}

static void put(const char *name, const uint8_t *p, size_t n) {
  char path[128];
  path_of(name, path, sizeof path);
  unlink(path);
  if (!n && strcmp(name, "config.json")) return;
  int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
  if (fd < 0 || write(fd, p, n) != (ssize_t)n) abort();
  close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static volatile unsigned sum;
  if (!dir[0]) {
    snprintf(dir, sizeof dir, "%s/fuzz-folder-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(dir)) abort();
    atexit(remove_all);
  }
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    const uint8_t *end = i + 1 < COUNT_OF(names) && n ? memchr(data, 0xff, n) : NULL;
    size_t len = end ? (size_t)(end - data) : n;
    put(names[i], data, len);
    data += end ? len + 1 : len;
    n -= end ? len + 1 : len;
  }
  Arena *a = arena_new("fuzz");
  Weights *w = NULL;
  Err *e = file_weights_open(a, dir, find_format, NULL, &w);
  for (int i = 0; !e && i < w->n_tensors; i++)
    for (size_t k = 0; k < w->tensor[i].n_bytes; k++) sum += w->tensor[i].p[k];
  for (int i = 0; !e && i < w->n_kvs; i++) {
    Str s = {0};
    file_kv_print(&w->kv[i], 8, &s);
    sum += (unsigned)s.n;
    str_free(&s);
  }
  err_free(e);
  file_weights_close(w);
  arena_free(a);
  return 0;
}
