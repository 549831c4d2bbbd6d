/* The entry of `lumen`: takes the options that every command shares, finds the subcommand, runs it, and turns what happened into an exit code.
   In: the command line and LUMEN_TRACE. Out: the exit code of CmdExit. Standard output must have been written in full for CMD_OK. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cmd/cmd.h"

const Command cmd_table[] = {
#define CMD(name, args, help, more) {#name, cmd_##name, args, help, more},
#include "cmd/commands.def"
#undef CMD
};
const int cmd_n = COUNT_OF(cmd_table);

const Command *cmd_find(const char *name) {
  for (int i = 0; i < cmd_n; i++)
    if (!strcmp(cmd_table[i].name, name)) return &cmd_table[i];
  return NULL;
}

/* What a file or a request says may be in an error: its control characters shall not steer the terminal. */
static void print_tame(const char *text, size_t n) {
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)text[i];
    bool c1 = c == 0xc2 && i + 1 < n && (unsigned char)text[i + 1] < 0xa0; /* U+0080 to U+009F */
    if ((c < ' ' && c != '\n' && c != '\t') || c == 0x7f) fprintf(stderr, "\\x%02x", c);
    else if (c1) fprintf(stderr, "\\x%02x", (unsigned char)text[++i]);
    else fputc(c, stderr);
  }
}

int cmd_fail(const char *command, Err *e) {
  ErrKind kind = err_kind(e);
  fflush(stdout);
  const char *text = err_text(e);
  size_t n = strlen(text);
  while (n && text[n - 1] == '\n') n--; /* a text's mistakes end their last line themselves */
  fprintf(stderr, "lumen %s: ", command);
  print_tame(text, n);
  fputc('\n', stderr);
  err_free(e);
  return kind == ERR_USAGE ? CMD_USAGE : kind == ERR_CANCELLED ? CMD_INTERRUPTED : CMD_FAILED;
}

Err *cmd_fault_of_data(Err *e) { return err_retype(e, ERR_USAGE, ERR_FORMAT); }

Err *cmd_fault_of_usage(Err *e) { return err_retype(e, 0, ERR_USAGE); }

int cmd_misused(const char *command, const char *fmt, ...) {
  fprintf(stderr, "lumen %s: ", command);
  va_list ap;
  va_start(ap, fmt);
  vfprintf(stderr, fmt, ap);
  va_end(ap);
  fprintf(stderr, "\nusage: lumen %s %s\n", command, cmd_find(command)->args);
  return CMD_USAGE;
}

bool cmd_is_path(const char *word) {
  size_t n = strcspn(word, " \t\n=[");
  return memchr(word, '/', n) || (strchr(word, '.') && os_exists(word)); /* no op has such a name; a file may be called as one */
}

Err *cmd_output_check(const char *path) {
  char folder[4096];
  if (!path || !strcmp(path, "-")) return NULL;
  if (os_is_dir(path)) return err_new(ERR_USAGE, "%s: is a folder, expected the file to write", path);
  if (os_exists(path)) return access(path, W_OK) ? err_new(ERR_IO, "%s: cannot be written: %s", path, strerror(errno)) : NULL;
  const char *slash = strrchr(path, '/');
  if (slash && (size_t)(slash - path) >= sizeof folder) return NULL;
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)MAX(slash - path, 1) : 1, slash ? path : ".");
  return access(folder, W_OK | X_OK) ? err_new(ERR_IO, "%s: cannot be written: %s: %s", path, folder, strerror(errno)) : NULL;
}

bool cmd_options(Arena *a, const OptRow *rows, size_t n_rows, int argc, char **argv, void *out, OptRest *rest, int *code) {
  const Command *c = cmd_find(argv[0]);
  Err *e = opt_parse(a, rows, n_rows, argc, argv, out, rest);
  if (e) {
    *code = cmd_misused(c->name, "%s", err_text(e));
    err_free(e);
    return false;
  }
  if (rest->help) {
    opt_help(stdout, arena_printf(a, "%s%s%s", c->name, c->args[0] ? " " : "", c->args), c->help, rows, n_rows);
    fputs(c->more, stdout);
    *code = CMD_OK;
  }
  return !rest->help;
}

/* Takes `--trace SPEC` and `--trace=SPEC` out of argv wherever they stand before a `--`, and opens the trace. argv stays NULL-terminated.
   *helped: the stages were listed, which is an answer by itself. */
static Err *take_trace(int *argc, char **argv, bool *helped) {
  int n = 1;
  bool options = true;
  const char *spec = getenv("LUMEN_TRACE");
  for (int i = 1; i < *argc; i++) {
    if (!strcmp(argv[i], "--")) options = false;
    if (options && !strncmp(argv[i], "--trace=", 8)) spec = argv[i] + 8;
    else if (options && !strcmp(argv[i], "--trace")) {
      if (i + 1 == *argc) return err_new(ERR_USAGE, "--trace needs a list of stages; `--trace help` prints them");
      spec = argv[++i];
    } else argv[n++] = argv[i];
  }
  argv[*argc = n] = NULL;
  *helped = spec && !strcmp(spec, "help");
  return spec && spec[0] ? trace_open(spec) : NULL;
}

static int run_command(int argc, char **argv) {
  if (argc < 2) {
    cmd_help(1, (char *[]){(char *)"help", NULL});
    return CMD_USAGE;
  }
  const char *name = argv[1];
  if (!strcmp(name, "--help") || !strcmp(name, "-h")) name = "help";
  if (!strcmp(name, "--version") || !strcmp(name, "-V")) name = "version";
  const Command *c = cmd_find(name);
  if (c) {
    argv[1] = (char *)c->name;
    return c->run(argc - 1, argv + 1);
  }
  const char *names[COUNT_OF(cmd_table)], *near;
  for (int i = 0; i < cmd_n; i++) names[i] = cmd_table[i].name;
  fprintf(stderr, "lumen: no command `%s`", name);
  if ((near = opt_nearest(name, names, (size_t)cmd_n))) fprintf(stderr, "; did you mean `%s`?", near);
  fprintf(stderr, "\n`lumen help` lists the commands.\n");
  return CMD_USAGE;
}

int main(int argc, char **argv) {
  bool helped;
  Err *e = take_trace(&argc, argv, &helped);
  if (e) {
    bool misused = err_kind(e) == ERR_USAGE; /* else the file for it cannot be opened */
    fprintf(stderr, "lumen: %s\n", err_text(e));
    err_free(e);
    return misused ? CMD_USAGE : CMD_FAILED;
  }
  int code = helped && argc < 2 ? CMD_OK : run_command(argc, argv);
  if (fflush(stdout) || ferror(stdout)) {
    fprintf(stderr, "lumen: standard output cannot be written: %s\n", strerror(errno));
    if (code == CMD_OK) code = CMD_FAILED;
  }
  return code;
}
