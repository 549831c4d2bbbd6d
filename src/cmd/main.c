/* The entry of `lumen`: takes the options that every command shares, finds the subcommand, runs it, and turns what happened into an exit code.
   In: the command line and LUMEN_TRACE. Out: the exit code of CmdExit. Standard output must have been written in full for CMD_OK. */
#include <errno.h>
#include <signal.h>
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

static const char *command = "";   /* that runs, for what is told; "": none yet */
static int n_told;                 /* faults */
static int flush_errno;            /* of the first flush of standard output that failed */

bool cmd_flush(void) {
  if (!fflush(stdout)) return true;
  if (!flush_errno) flush_errno = errno;
  return false;
}

/* What a file, a request or a name says may be in a text: its control characters shall not steer the terminal. */
static void add_tame(Str *s, const char *text, size_t n, bool one_line) {
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)text[i];
    bool c1 = c == 0xc2 && i + 1 < n && (unsigned char)text[i + 1] < 0xa0; /* U+0080 to U+009F */
    if ((c < ' ' && (one_line || (c != '\n' && c != '\t'))) || c == 0x7f) str_addf(s, "\\x%02x", c);
    else if (c1) str_addf(s, "\\x%02x", (unsigned char)text[++i]);
    else str_add_c(s, (char)c);
  }
}

const char *cmd_tame(Arena *a, const char *text) {
  Str s = {0};
  add_tame(&s, text, strlen(text), true);
  const char *tame = arena_dup_n(a, s.p ? s.p : "", s.n);
  str_free(&s);
  return tame;
}

/* "lumen COMMAND: text" */
static void tell(const char *name, const char *text) {
  size_t n = strlen(text);
  Str s = {0};
  while (n && text[n - 1] == '\n') n--; /* a text's mistakes end their last line themselves */
  str_addf(&s, "lumen%s%s: ", name[0] ? " " : "", name);
  add_tame(&s, text, n, false);
  str_add_c(&s, '\n');
  (void)cmd_flush();
  fwrite(s.p, 1, s.n, stderr);
  str_free(&s);
}

void cmd_tell(const char *fmt, ...) {
  Str s = {0};
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&s, fmt, ap);
  va_end(ap);
  tell(command, s.p ? s.p : "");
  str_free(&s);
}

int cmd_fail(const char *name, Err *e) {
  ErrKind kind = err_kind(e);
  tell(name, err_text(e));
  n_told++;
  err_free(e);
  return kind == ERR_USAGE ? CMD_USAGE : kind == ERR_CANCELLED ? CMD_INTERRUPTED : CMD_FAILED;
}

Err *cmd_fault_of_data(Err *e) { return err_retype(e, ERR_USAGE, ERR_FORMAT); }

Err *cmd_fault_of_usage(Err *e) { return err_retype(e, 0, ERR_USAGE); }

int cmd_misused(const char *name, const char *fmt, ...) {
  Str s = {0};
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&s, fmt, ap);
  va_end(ap);
  str_addf(&s, "\nusage: lumen %s %s", name, cmd_find(name)->args);
  tell(name, s.p);
  n_told++;
  str_free(&s);
  return CMD_USAGE;
}

bool cmd_is_path(const char *word) {
  size_t n = strcspn(word, " \t\n=[");
  return memchr(word, '/', n) || (strchr(word, '.') && os_exists(word)); /* no op has such a name; a file may be called as one */
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
  if (*helped) trace_help(*argc < 2 ? stdout : stderr); /* beside a command's own answer it is none */
  return spec && spec[0] && !*helped ? trace_open(spec) : NULL;
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
    command = c->name;
    return c->run(argc - 1, argv + 1);
  }
  const char *names[COUNT_OF(cmd_table)], *near;
  for (int i = 0; i < cmd_n; i++) names[i] = cmd_table[i].name;
  near = opt_nearest(name, names, (size_t)cmd_n);
  cmd_tell("no command `%s`%s%s%s\n`lumen help` lists the commands.", name, near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "");
  return CMD_USAGE;
}

int main(int argc, char **argv) {
  signal(SIGXFSZ, SIG_IGN); /* a limit on files' sizes is an error of the write */
  bool helped;
  Err *e = take_trace(&argc, argv, &helped);
  int code = e ? cmd_fail(command, e) : helped && argc < 2 ? CMD_OK : run_command(argc, argv), bad;
  if ((!cmd_flush() || ferror(stdout)) && !n_told) { /* a command that found it out has said so */
    cmd_tell("standard output: cannot be written%s%s", flush_errno ? ": " : "", flush_errno ? strerror(flush_errno) : "");
    if (code == CMD_OK) code = CMD_FAILED;
  }
  if ((e = trace_finish()) && (bad = cmd_fail(command, e)) && code == CMD_OK) code = bad;
  return code;
}
