/* What commands that write a file share: where it may not go, and the signals that end them. In: the name the user gives. Out: an Err before the work.
   Must hold: cmd_output_check is asked again once all is open that the command reads, and before anything is opened for writing. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cmd/cmd.h"

static struct stat model_folder; /* st_nlink 0: the model is none, or not known yet */

void cmd_model_note(const char *path) {
  struct stat st;
  if (!stat(path, &st) && S_ISDIR(st.st_mode)) model_folder = st;
}

/* A model's folder holds files that this command does not read and another will. A GGUF file in it is another model, mostly a conversion's own result. */
static bool in_model_folder(const char *path) {
  char folder[4096];
  struct stat st;
  const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
  int n = snprintf(folder, sizeof folder, "%.*s", slash ? (int)MAX(slash - path, 1) : 1, slash ? path : ".");
  if (!model_folder.st_nlink || !os_exists(path) || (dot && !strcmp(dot, ".gguf"))) return false;
  return n < (int)sizeof folder && !stat(folder, &st) && st.st_dev == model_folder.st_dev && st.st_ino == model_folder.st_ino;
}

Err *cmd_output_check(const char *path) {
  TRY(os_out_check(path));
  char *real = path ? realpath(path, NULL) : NULL; /* of a link the target is written */
  bool of_model = path && (in_model_folder(path) || (real && in_model_folder(real)));
  free(real);
  if (of_model) return err_new(ERR_USAGE, "%s: is a file of the model to read, expected another file to write", path);
  return NULL;
}

/* ---- signals ---- */
static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
static volatile sig_atomic_t interrupted;
static struct sigaction before[COUNT_OF(ends)];

static void on_interrupt(int sig) {
  (void)sig;
  interrupted = 1;
}

void cmd_interrupts_catch(void) {
  struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
  interrupted = 0;
  for (size_t i = 0; i < COUNT_OF(ends); i++) {
    sigaction(ends[i], NULL, &before[i]);
    if (ends[i] != SIGHUP || before[i].sa_handler != SIG_IGN) sigaction(ends[i], &act, NULL); /* nohup's wish */
  }
}

void cmd_interrupts_leave(void) {
  for (size_t i = 0; i < COUNT_OF(ends); i++) sigaction(ends[i], &before[i], NULL);
}

bool cmd_interrupted(void) { return interrupted; }
