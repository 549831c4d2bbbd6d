/* libFuzzer target of the GGUF reader: any bytes are refused or give a view whose every part can be read. tests/fuzz/run builds and runs it. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "file/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool find_format(void *ctx, const char *dtype, int64_t gguf_id, FileFormat *out) {
  (void)ctx, (void)dtype;
  if (gguf_id != 0 && gguf_id != 2) return false;
  *out = gguf_id ? (FileFormat){"blocks", 32, 18} : (FileFormat){"f32", 1, 4};
  return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static int fd = -1;
  static char path[40];
  static volatile unsigned sum;
  if (fd < 0) fd = memfd_create("fuzz", 0);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (ftruncate(fd, 0) || pwrite(fd, data, n, 0) != (ssize_t)n) abort();
  Arena *a = arena_new("fuzz");
  Weights *w = NULL;
  Err *e = file_gguf_open(a, path, find_format, NULL, &w);
  if (!e) {
    Str s = {0};
    for (int i = 0; i < w->n_kvs; i++) file_kv_print(&w->kv[i], 100, &s);
    for (int i = 0; i < w->n_tensors; i++)
      for (size_t k = 0; w->tensor[i].p && k < w->tensor[i].n_bytes; k++) sum += w->tensor[i].p[k];
    str_free(&s);
  }
  err_free(e);
  file_weights_close(w);
  arena_free(a);
  return 0;
}
