/* How a command finds the MODEL that the user names, or a tokenizer. In: a name of the registry, a file, or a folder. Out: an open view. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cmd/cmd.h"
#include "model/vocab.h"

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

static bool is_gguf(const char *path) {
  char head[4];
  int fd;
  struct stat st;
  Err *e = os_open_regular(path, &fd, &st);
  bool is = !e && read(fd, head, sizeof head) == sizeof head && !memcmp(head, "GGUF", sizeof head);
  if (!e) close(fd);
  err_free(e);
  return is;
}

void cmd_vocab_tell(const TextVocab *v) {
  if (v && text_vocab_warning(v)) cmd_tell("%s", text_vocab_warning(v));
}

Err *cmd_tokenizer_open(Arena *a, const char *path, Weights **w, TextVocab **out) {
  if (!is_gguf(path)) return text_vocab_open(path, out);
  TRY(file_weights_open(a, path, no_format, NULL, w));
  return model_vocab_open(*w, out);
}
