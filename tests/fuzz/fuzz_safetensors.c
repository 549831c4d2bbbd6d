/* libFuzzer target of the safetensors reader. tests/fuzz/run builds and runs it. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "file/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool find_format(void *ctx, const char *dtype, int64_t gguf_id, FileFormat *out) {
  (void)ctx, (void)gguf_id;
  if (!dtype || strcmp(dtype, "F32")) return false;
  *out = (FileFormat){"f32", 1, 4};
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
  Err *e = file_safetensors_open(a, path, find_format, NULL, &w);
  for (int i = 0; !e && i < w->n_tensors; i++)
    for (size_t k = 0; k < w->tensor[i].n_bytes; k++) sum += w->tensor[i].p[k];
  err_free(e);
  file_weights_close(w);
  arena_free(a);
  return 0;
}
