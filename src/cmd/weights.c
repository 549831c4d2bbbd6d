/* How a command finds the MODEL that the user names. In: a name of the registry, a file, or a folder. Out: an open view. */
#include "cmd/cmd.h"

/* Commands that read metadata only know no format. */
static bool no_format(void *ctx, const char *dtype, int64_t gguf_id, FileFormat *out) {
  (void)ctx, (void)dtype, (void)gguf_id, (void)out;
  return false;
}

Err *cmd_weights_open(Arena *a, const char *model, Weights **out) {
  const char *path;
  TRY(cmd_model_locate(a, model, &path));
  return file_weights_open(a, path, no_format, NULL, out);
}
