/* What commands that write a file share: where it may not go, and the signals that end them. In: the name the user gives. Out: an Err before the work.
   Must hold: cmd_output_check is asked again once all is open that the command reads, and before anything is opened for writing. */
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cmd/cmd.h"

static char *model_folder; /* NULL: the model is none, or not known yet */

void cmd_model_note(const char *path) {
  free(model_folder);
  model_folder = os_is_dir(path) ? realpath(path, NULL) : NULL;
}

/* A model's folder holds files that this command does not read and another will, or links to them. A GGUF file in it is another model, mostly a conversion's
   own result. */
static bool in_model_folder(const char *path) {
  struct stat want, st;
  DIR *dir = model_folder && !stat(path, &want) ? opendir(model_folder) : NULL;
  bool found = false;
  for (struct dirent *d; dir && !found && (d = readdir(dir));) {
    const char *dot = strrchr(d->d_name, '.');
    found = (!dot || strcmp(dot, ".gguf")) && !fstatat(dirfd(dir), d->d_name, &st, 0) && st.st_dev == want.st_dev && st.st_ino == want.st_ino;
  }
  if (dir) closedir(dir);
  return found;
}

Err *cmd_output_check(const char *path) {
  TRY(os_out_check(path));
  if (path && strcmp(path, "-") && in_model_folder(path)) return err_new(ERR_USAGE, "%s: is a file of the model to read, expected another file to write", path);
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
