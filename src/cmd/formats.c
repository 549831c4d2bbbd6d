/* What the commands on storage formats share: formats by name, with the nearest where there is none. */
#include "cmd/formats.h"

Err *cmd_format_find(Arena *a, const Module *m, const char *name, FormatForm **out) {
  const FormatDecl *f = lang_format(m, name);
  if (f) return format_analyze(a, m, f, out);
  const char **names = ARENA_ARRAY(a, const char *, m->n_formats + 1);
  for (int i = 0; i < m->n_formats; i++) names[i] = m->format[i]->name;
  const char *near = lang_nearest(name, names, m->n_formats);
  if (near) return err_new(ERR_NOT_FOUND, "format '%s': no such format; did you mean '%s'?", name, near);
  Str known = {0};
  for (int i = 0; i < m->n_formats; i++) str_addf(&known, i ? ", %s" : "%s", names[i]);
  Err *e = err_new(ERR_NOT_FOUND, "format '%s': no such format; known are %s (add a text with --std DIR)", name, known.n ? known.p : "none");
  str_free(&known);
  return e;
}
