/* `lumen version`: what this program is and was built with. */
#include <jansson.h>
#include <string.h>
#include "cmd/cmd.h"

#define VERSION "0.1.0"

static int print_version(bool json) {
  if (!json) {
    printf("lumen %s (built with gcc %s)\n", VERSION, __VERSION__);
    return CMD_OK;
  }
  json_t *o = json_pack("{s:s, s:s, s:s}", "name", "lumen", "version", VERSION, "compiler", __VERSION__);
  CHECK(o, "out of memory for a version");
  json_dumpf(o, stdout, JSON_INDENT(2));
  putchar('\n');
  json_decref(o);
  return CMD_OK;
}

#define ROWS(X, T) X(T, json, 0, FLAG, "", NULL, 0, 0, "print JSON")
OPT_DEFINE(VersionOpts, ROWS)

int cmd_version(int argc, char **argv) {
  Arena *a = arena_new("command");
  VersionOpts o;
  OptRest rest;
  int code;
  bool go = cmd_options(a, VersionOpts_rows, COUNT_OF(VersionOpts_rows), argc, argv, &o, &rest, &code);
  if (go && rest.n_args) code = cmd_misused("version", "unknown argument `%s`", rest.arg[0]), go = false;
  if (go) code = print_version(o.json);
  arena_free(a);
  return code;
}
