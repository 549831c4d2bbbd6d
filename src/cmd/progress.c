/* Lines on a terminal that are written over while work goes on. In: what to say. Out: one line on standard error, never longer than the terminal is
   wide: what wraps stays behind at every update. A byte takes one column at most, so bytes are counted; a character is not cut. */
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "cmd/cmd.h"

enum { DEFAULT_COLUMNS = 80, CELLS_MOST = 30, CELLS_LEAST = 5 };

static size_t columns(void) {
  struct winsize w;
  return !ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_col ? w.ws_col : DEFAULT_COLUMNS;
}

void cmd_progress(const char *fmt, ...) {
  Str s = {0};
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&s, fmt, ap);
  va_end(ap);
  size_t n = MIN(s.n, columns() - 1); /* the last column wraps on some terminals */
  while (n && n < s.n && ((unsigned char)s.p[n] & 0xc0) == 0x80) n--;
  fprintf(stderr, "\r\033[K%.*s", (int)n, n ? s.p : "");
  str_free(&s);
}

void cmd_progress_bar(const char *what, uint64_t n_done, uint64_t n_total, const char *more) {
  char cells[CELLS_MOST + 4] = "";
  Str tail = {0};
  double part = n_total ? (double)n_done / (double)n_total : 0;
  str_addf(&tail, "%3.0f%% of %.1f MB%s", part * 100, (double)n_total * 1e-6, more);
  size_t rest = strlen(what) + tail.n + 5, room = columns(); /* a blank, brackets, a blank, the last column */
  int n = room > rest ? (int)MIN(room - rest, (size_t)CELLS_MOST) : 0, full = (int)(MIN(part, 1.0) * n);
  if (n >= CELLS_LEAST) {
    cells[0] = '[';
    memset(cells + 1, '.', (size_t)n);
    memset(cells + 1, '#', (size_t)full);
    memcpy(cells + 1 + n, "] ", 3);
  }
  cmd_progress("%s %s%s", what, cells, tail.p);
  str_free(&tail);
}
