/* `lumen rm MODEL..`: removes fetched models from the cache folder. Names only: a model named by a path is somebody's own file. */
#include "cmd/cmd.h"
#include "file/file.h"

int cmd_rm(int argc, char **argv) {
  Arena *a = arena_new("rm");
  OptRest rest;
  int code = CMD_OK;
  if (cmd_options(a, NULL, 0, argc, argv, NULL, &rest, &code)) {
    if (!rest.n_args) code = cmd_misused(argv[0], "no model named");
    for (int i = 0; i < rest.n_args; i++) {
      uint64_t freed;
      Err *e = file_model_remove(a, rest.arg[i], &freed);
      if (e) code = cmd_fail(argv[0], e);
      else fprintf(stderr, "removed %s, %.1f MB\n", cmd_tame(a, rest.arg[i]), (double)freed * 1e-6);
    }
  }
  arena_free(a);
  return code;
}
