/* How a command that runs a model opens it. In: MODEL as the user names it. Out: an open model. A model of the registry that is not here is
   fetched first: "the first answer" needs one command. */
#include <string.h>
#include "cmd/cmd.h"

static Err *locate(Arena *a, const char *model, const char **path) {
  FileModel known;
  Err *e = file_model_path(a, model, path);
  if (!e || err_kind(e) != ERR_NOT_FOUND) return e;
  Err *unknown = file_model_find(a, model, &known);
  if (unknown) {
    err_free(unknown);
    return e;
  }
  err_free(e);
  return cmd_model_fetch(a, model, false, path);
}

Err *cmd_model_locate(Arena *a, const char *model, const char **path) {
  TRY(locate(a, model, path));
  cmd_model_note(*path);
  return NULL;
}

void cmd_unused_tell(const char *model, const char *const *name, int n) {
  if (n) cmd_tell("%s: %d tensor%s not used, as the model's text does not name %s: %s%s", model, n, n == 1 ? " is" : "s are", n == 1 ? "it" : "them", name[0], n == 1 ? "" : ", ..");
}

void cmd_relaxed_tell(const char *lines) {
  for (size_t n; lines && *lines; lines += n + (lines[n] != 0)) {
    n = strcspn(lines, "\n");
    if (n) cmd_tell("not enforced: %.*s", (int)n, lines);
  }
}

Err *cmd_model_prepare(Arena *a, const char *model, const ModelOptions *options, Model **out) {
  const char *path;
  TRY(cmd_model_locate(a, model, &path));
  TRY(model_prepare(path, options, out));
  int64_t own = model_made_for(*out);
  if (own && options->context > own)
    cmd_tell("--context %lld is more than the %lld positions that %s was made for: answers beyond them may be nonsense", (long long)options->context, (long long)own, model);
  return NULL;
}

Err *cmd_model_open(Arena *a, const char *model, const ModelOptions *options, Model **out) {
  Model *m;
  TRY(cmd_model_prepare(a, model, options, &m));
  Err *e = model_load(m);
  if (e) model_close(m);
  else *out = m;
  return e;
}
