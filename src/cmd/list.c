/* `lumen list [--all] [--json]`: the models in the cache folder; with --all also those the registry can fetch. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "cmd/cmd.h"
#include "file/file.h"

#define LIST_ROWS(X, T)                                                            \
  X(T, all, 'a', FLAG, "", NULL, 0, 0, "also the names that can be fetched")       \
  X(T, json, 'j', FLAG, "", NULL, 0, 0, "print JSON")
OPT_DEFINE(ListOpts, LIST_ROWS)

typedef struct Line { const char *name, *path, *about; uint64_t n_bytes; bool cut; } Line; /* path NULL: not here; cut: of another size than it should have */

static Err *collect(Arena *a, bool all, Line **out, int *n_out) {
  FileCached *here;
  FileModel *known;
  int n_here, n_known, n = 0, cap = 0;
  Line *line = NULL;
  TRY(file_models_cached(a, &here, &n_here));
  TRY(file_registry_load(a, &known, &n_known));
  for (int i = 0; i < n_here; i++) {
    Line l = {here[i].name, here[i].path, "", here[i].n_bytes, false};
    for (int k = 0; k < n_known; k++) if (!strcmp(known[k].name, here[i].name)) l.about = known[k].about, l.cut = !file_model_here(&known[k]);
    PUSH(a, line, n, cap, l);
  }
  for (int k = 0; all && k < n_known; k++)
    if (!os_exists(known[k].path)) PUSH(a, line, n, cap, (Line){known[k].name, NULL, known[k].about, known[k].n_bytes, false});
  *out = line;
  *n_out = n;
  return NULL;
}

static json_t *any_string(const char *s) { /* a file's name may be any bytes */
  json_t *o = s ? json_string(s) : json_null();
  return o ? o : json_string("(not UTF-8)");
}

static void print_json(const Line *line, int n) {
  json_t *all = json_array();
  for (int i = 0; i < n; i++)
    json_array_append_new(all, json_pack("{s:o, s:b, s:I, s:o, s:o}", "name", any_string(line[i].name), "here", line[i].path && !line[i].cut, "bytes",
                                         (json_int_t)line[i].n_bytes, "path", any_string(line[i].path), "about", any_string(line[i].about)));
  char *text = json_dumps(all, JSON_INDENT(2));
  puts(text ? text : "[]");
  free(text);
  json_decref(all);
}

int cmd_list(int argc, char **argv) {
  Arena *a = arena_new("list");
  ListOpts o;
  OptRest rest;
  Line *line;
  int code = CMD_OK, n, width = 4;
  if (!cmd_options(a, ListOpts_rows, COUNT_OF(ListOpts_rows), argc, argv, &o, &rest, &code)) goto done;
  if (rest.n_args) {
    code = cmd_misused(argv[0], "takes no operand, got '%s'", rest.arg[0]);
    goto done;
  }
  Err *e = collect(a, o.all, &line, &n);
  if (e) code = cmd_fail(argv[0], e);
  else if (o.json) print_json(line, n);
  else {
    for (int i = 0; i < n; i++) line[i].name = cmd_tame(a, line[i].name);
    for (int i = 0; i < n; i++) width = MAX(width, (int)strlen(line[i].name));
    for (int i = 0; i < n; i++)
      printf("%-*s  %9.1f MB  %-9s  %s\n", width, line[i].name, (double)line[i].n_bytes * 1e-6, line[i].cut ? "damaged" : line[i].path ? "here" : "to fetch", line[i].about);
    if (!n) fprintf(stderr, "no models here yet; `lumen list --all` shows what `lumen pull` knows\n");
  }
done:
  arena_free(a);
  return code;
}
