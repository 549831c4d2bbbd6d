/* What the commands on storage formats share: formats by name, with the nearest where there is none. */
#include "cmd/formats.h"

Err *cmd_format_find(Arena *a, const Module *m, const char *name, FormatForm **out) {
  const FormatDecl *f = lang_format(m, name);
  if (f) return format_analyze(a, m, f, out);
  const char **names = ARENA_ARRAY(a, const char *, m->n_formats + 1);
  for (int i = 0; i < m->n_formats; i++) names[i] = m->format[i]->name;
  const char *near = lang_nearest(name, names, m->n_formats);
  return err_new(ERR_NOT_FOUND, "format '%s': no such format%s%s%s", name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

bool cmd_format_of(void *ctx, const char *dtype, int64_t gguf_id, FileFormat *out) {
  const FormatDecl *f = dtype ? NULL : lang_format_gguf(ctx, gguf_id);
  if (!f) return false;
  *out = (FileFormat){f->name, f->block, f->n_bytes};
  return true;
}
