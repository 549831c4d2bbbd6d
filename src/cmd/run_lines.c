/* Lines from a terminal, with editing and history by libedit where it is installed; it is loaded when a chat begins, so nothing else needs it. Without
   it the terminal's own line editing serves. In: a prompt, which goes to standard error. Out: a line without its end. A paste of several lines is
   one text: what the terminal holds already when a line is done belongs to it. */
#include <dlfcn.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
#include "cmd/run_cmd.h"

enum { PASTE_WAIT_MS = 30 };
static char *(*edit_line)(const char *prompt);
static int (*edit_remember)(const char *line);

/* Texts are UTF-8: the terminal's backspace shall take whole characters, which not every terminal is told (those of containers). */
static void erase_whole_characters(void) {
  struct termios t;
  if (tcgetattr(STDIN_FILENO, &t) || t.c_iflag & IUTF8) return;
  t.c_iflag |= IUTF8;
  tcsetattr(STDIN_FILENO, TCSANOW, &t);
}

/* Characters count as what they are also where nobody has set a locale. */
static bool speak_utf8(void) {
  setlocale(LC_CTYPE, "");
  return !strcmp(nl_langinfo(CODESET), "UTF-8") || setlocale(LC_CTYPE, "C.UTF-8");
}

void cmd_lines_open(void) {
  const char *term = getenv("TERM");
  erase_whole_characters();
  if (!term || !*term || !strcmp(term, "dumb") || !isatty(STDERR_FILENO) || !speak_utf8()) return;
  void *lib = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
  void *line = lib ? dlsym(lib, "readline") : NULL, *remember = lib ? dlsym(lib, "add_history") : NULL;
  FILE **out = lib ? dlsym(lib, "rl_outstream") : NULL;
  if (!line || !remember || !out) return;
  *out = stderr;
  memcpy(&edit_line, &line, sizeof edit_line); /* POSIX lets dlsym name functions; ISO C has no cast for it */
  memcpy(&edit_remember, &remember, sizeof edit_remember);
}

static bool plain_line(const char *prompt, Str *out) {
  char *line = NULL;
  size_t cap = 0;
  fputs(prompt, stderr);
  ssize_t n = getline(&line, &cap, stdin);
  if (n > 0 && line[n - 1] == '\n') n--;
  if (n >= 0) str_add_n(out, line, (size_t)n);
  free(line);
  return n >= 0;
}

static bool one_line(const char *prompt, Str *out) {
  if (!edit_line) return plain_line(prompt, out);
  char *line = edit_line(prompt);
  if (line) str_add(out, line);
  free(line);
  return line != NULL;
}

static bool more_is_here(void) {
  struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
  return edit_line && poll(&p, 1, PASTE_WAIT_MS) > 0 && p.revents & POLLIN;
}

bool cmd_lines_read(const char *prompt, Str *out) {
  if (!one_line(prompt, out)) return false;
  while (more_is_here()) {
    str_add_c(out, '\n');
    if (!one_line("", out)) break;
  }
  if (edit_line && out->n) edit_remember(out->p);
  return true;
}
