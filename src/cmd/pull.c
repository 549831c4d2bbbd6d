/* `lumen pull MODEL`: brings a model into the cache folder and prints its path. A bar on standard error, on a terminal only.
   The first Ctrl-C (or TERM, HUP) stops between two chunks and keeps the part; the next pull goes on from there. */
#include <string.h>
#include <unistd.h>
#include "cmd/cmd.h"
#include "file/file.h"

#define PULL_ROWS(X, T) X(T, quiet, 'q', FLAG, "", NULL, 0, 0, "no progress bar")
OPT_DEFINE(PullOpts, PULL_ROWS)

typedef struct Bar { bool shown; int64_t t_start_ns, t_drawn_ns; uint64_t n_start; const char *what; } Bar;

static void draw(const Bar *b, uint64_t n_done, uint64_t n_total, int64_t t_ns) {
  double seconds = (double)(t_ns - b->t_start_ns) * 1e-9, mb_s = seconds > 0.5 ? (double)(n_done - b->n_start) / seconds * 1e-6 : 0;
  char speed[64] = "";
  if (mb_s > 0) snprintf(speed, sizeof speed, ", %.1f MB/s", mb_s);
  if (n_total) cmd_progress_bar(b->what, n_done, n_total, speed);
  else cmd_progress("%s  %.0f s", b->what, seconds);
}

static bool on_progress(void *ctx, const char *what, uint64_t n_done, uint64_t n_total) {
  Bar *b = ctx;
  int64_t now = os_now_ns();
  if (!b->what || strcmp(b->what, what)) {
    b->what = what;
    b->t_start_ns = now;
    b->n_start = n_done;
  }
  if (b->shown && now - b->t_drawn_ns > 100000000) {
    b->t_drawn_ns = now;
    draw(b, n_done, n_total, now);
  }
  return !cmd_interrupted();
}

Err *cmd_model_fetch(Arena *a, const char *model, bool quiet, const char **path) {
  Bar bar = {.shown = !quiet && isatty(STDERR_FILENO)};
  FileModel m;
  TRY(file_model_find(a, model, &m));
  if (!quiet && !bar.shown && !file_model_here(&m)) {
    if (m.n_bytes) cmd_tell("fetching %s (%.1f MB)", m.name, (double)m.n_bytes * 1e-6);
    else cmd_tell("fetching %s", m.name);
  }
  cmd_interrupts_catch();
  Err *e = file_model_pull(a, model, (FileProgress){on_progress, &bar}, path);
  cmd_interrupts_leave();
  if (bar.shown && bar.t_drawn_ns) fputs("\r\033[K", stderr);
  return e;
}

int cmd_pull(int argc, char **argv) {
  Arena *a = arena_new("pull");
  PullOpts o;
  OptRest rest;
  int code = CMD_OK;
  if (cmd_options(a, PullOpts_rows, COUNT_OF(PullOpts_rows), argc, argv, &o, &rest, &code)) {
    const char *path;
    Err *e = NULL;
    if (rest.n_args != 1) code = cmd_misused(argv[0], "%d models named, expected one", rest.n_args);
    else if ((e = cmd_model_fetch(a, rest.arg[0], o.quiet, &path))) code = cmd_fail(argv[0], e);
    else puts(path);
  }
  arena_free(a);
  return code;
}
