/* Lines from a terminal, with editing and history by libedit where it is installed; it is loaded when a chat begins, so nothing else needs it. Without
   it the terminal's own line editing serves. In: a prompt, which goes to standard error. Out: a line without its end. A paste of several lines is
   one text: what the terminal holds already when a line is done belongs to it. Ctrl-C waits until it is asked for: none is lost between two reads, and
   none ends what is not a read. The editor gets its characters from here, so that it drops a line and nothing else, and characters that come in parts
   (Korean from some systems) are whole before it draws them: it counts columns of parts wrongly. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>
#include "cmd/run_cmd.h"
#include "text/text.h"

enum { PASTE_WAIT_MS = 30, CHAR_BYTES = 4, ERASE = 0x7f, ESCAPE = 0x1b, REPLACEMENT = 0xfffd, END = 4 };
static char *(*edit_line)(const char *prompt);
static int (*edit_remember)(const char *line);
static int interrupts = -1; /* a signalfd: Ctrl-C */
static int keys = STDIN_FILENO; /* the terminal, opened once more so that a read does not wait: Ctrl-C takes what was typed, and may come behind poll */
static sigset_t mask_before;
static struct sigaction before;
static bool interrupted;
/* What was typed: last: the character in front of the cursor, -1: not known; next: comes before standard input, -1: nothing; is_typed: the line has something;
   begins: nothing was read of it. */
static struct { int32_t last, next; bool is_typed, begins; enum { TYPE_TEXT, TYPE_ESCAPE, TYPE_SEQUENCE } at; } typed;

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

/* The next byte, -1: the input ended, or Ctrl-C. Unbuffered: what has not been read is asked of the terminal (more_is_here). */
static int byte_read(void) {
  struct pollfd p[] = {{.fd = keys, .events = POLLIN}, {.fd = interrupts, .events = POLLIN}};
  struct signalfd_siginfo info;
  for (unsigned char c; !interrupted;) {
    if (poll(p, COUNT_OF(p), -1) < 0 && errno == EINTR) continue; /* the window's size changed */
    interrupted = p[1].revents & POLLIN && read(interrupts, &info, sizeof info) == sizeof info;
    ssize_t n = interrupted ? 0 : read(keys, &c, 1);
    if (n == 1) return c;
    if (n == 0 || (errno != EINTR && errno != EAGAIN)) break;
  }
  return -1;
}

/* One character of UTF-8, U+FFFD for what is none. */
static int32_t char_read(void) {
  char text[CHAR_BYTES];
  int c = byte_read(), n = 0, n_bytes = c < 0xc2 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? CHAR_BYTES : 1;
  if (c < 0x80) return c;
  for (text[n++] = (char)c; n < n_bytes; text[n++] = (char)c) {
    if ((c = byte_read()) < 0) return -1;
    if ((c & 0xc0) == 0x80) continue;
    if (c < 0x80) typed.next = c;
    return REPLACEMENT;
  }
  c = text_char_read(text, (size_t)n);
  return c < 0 ? REPLACEMENT : c;
}

/* Keys that move the cursor come as escape sequences, whose letters are no text. */
static bool is_text(int32_t c) {
  bool was_text = typed.at == TYPE_TEXT;
  if (c == ESCAPE) typed.at = TYPE_ESCAPE;
  else if (typed.at == TYPE_ESCAPE) typed.at = c == '[' || c == 'O' ? TYPE_SEQUENCE : TYPE_TEXT;
  else if (typed.at == TYPE_SEQUENCE && c >= '@') typed.at = TYPE_TEXT;
  return was_text && c >= ' ' && c != ERASE;
}

/* A Ctrl-D that was typed before the editor took the terminal ends a line there, and is handed on as a NUL. One that is typed later comes as itself. */
static int32_t first_read(void) {
  struct pollfd p = {.fd = keys, .events = POLLIN};
  bool was_there = poll(&p, 1, 0) > 0;
  int32_t c = char_read();
  return was_there && c == 0 ? END : c;
}

/* What the editor reads. A character that makes one with that in front of it takes its place. */
static int edit_getc(FILE *f) {
  (void)f;
  int32_t c = typed.next, whole;
  typed.next = -1;
  if (c < 0) c = typed.begins ? first_read() : char_read();
  typed.begins = false;
  if (c < 0) return -1;
  typed.is_typed |= c != '\n' && c != '\r';
  bool text = is_text(c);
  if (text && typed.last >= 0 && (whole = text_char_join(typed.last, c)) >= 0) {
    typed.next = whole;
    typed.last = -1;
    return ERASE;
  }
  typed.last = text ? c : -1;
  return c;
}

/* A tab is text, not a wish for file names. */
static void editor_open(void) {
  void *lib = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
  void *line = lib ? dlsym(lib, "readline") : NULL, *remember = lib ? dlsym(lib, "add_history") : NULL, *insert = lib ? dlsym(lib, "rl_insert") : NULL;
  void *bind = lib ? dlsym(lib, "rl_bind_key") : NULL;
  FILE **out = lib ? dlsym(lib, "rl_outstream") : NULL;
  int (**get)(FILE *) = lib ? dlsym(lib, "rl_getc_function") : NULL;
  int (*bind_key)(int key, int (*what)(int, int)), (*rl_insert)(int, int);
  if (!line || !remember || !out || !insert || !bind || !get) return;
  *out = stderr;
  *get = edit_getc;
  memcpy(&edit_line, &line, sizeof edit_line); /* POSIX lets dlsym name functions; ISO C has no cast for it */
  memcpy(&edit_remember, &remember, sizeof edit_remember);
  memcpy(&bind_key, &bind, sizeof bind_key);
  memcpy(&rl_insert, &insert, sizeof rl_insert);
  bind_key('\t', rl_insert);
}

Err *cmd_lines_open(void) {
  const char *term = getenv("TERM");
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  interrupts = signalfd(-1, &set, SFD_CLOEXEC);
  if (interrupts < 0) return err_new(ERR_IO, "Ctrl-C cannot be waited for: %s", strerror(errno));
  keys = open("/proc/self/fd/0", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (keys < 0) keys = STDIN_FILENO;
  pthread_sigmask(SIG_BLOCK, &set, &mask_before);
  sigaction(SIGINT, &(struct sigaction){.sa_handler = SIG_DFL}, &before); /* who began us may ignore it; somebody at a terminal does not */
  erase_whole_characters();
  if (term && *term && strcmp(term, "dumb") && isatty(STDERR_FILENO) && speak_utf8()) editor_open();
  return NULL;
}

void cmd_lines_close(void) {
  if (interrupts < 0) return;
  sigaction(SIGINT, &before, NULL);
  pthread_sigmask(SIG_SETMASK, &mask_before, NULL);
  close(interrupts);
  if (keys != STDIN_FILENO) close(keys);
  interrupts = -1;
  keys = STDIN_FILENO;
}

/* Ctrl-D ends a message, and the next is read. */
static bool plain_line(const char *prompt, Str *out) {
  fputs(prompt, stderr);
  int c;
  bool got = false;
  while ((c = byte_read()) >= 0 && c != '\n') {
    str_add_c(out, (char)c);
    got = true;
  }
  return got || c >= 0;
}

static bool one_line(const char *prompt, Str *out) {
  if (!edit_line) return plain_line(prompt, out);
  typed.last = typed.next = -1;
  typed.begins = true;
  typed.at = TYPE_TEXT;
  char *line = edit_line(prompt);
  if (line && !interrupted) str_add(out, line);
  free(line);
  return line != NULL;
}

static bool more_is_here(void) {
  struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
  return edit_line && !interrupted && poll(&p, 1, PASTE_WAIT_MS) > 0 && p.revents & POLLIN;
}

CmdLine cmd_lines_read(const char *prompt, Str *out) {
  interrupted = typed.is_typed = false;
  bool read = one_line(prompt, out);
  while (read && more_is_here()) {
    str_add_c(out, '\n');
    if (!one_line("", out)) break;
  }
  if (interrupted) return typed.is_typed ? LINE_DROPPED : LINE_INTERRUPTED;
  if (read && edit_line && out->n) edit_remember(out->p);
  return read ? LINE_READ : LINE_END;
}
