/* Diagnostics: places in a source become lines of text with the source line, a caret and the nearest name. Bytes of the source that
   would spoil a terminal or are not UTF-8 are shown as '?'; long lines are cut around the caret. */
#include <string.h>
#include "lang/priv.h"

enum { SHOWN_COLS = 120 };

int lang_utf8_next(const char *s, size_t n, int32_t *out) {
  const unsigned char *p = (const unsigned char *)s;
  if (!n) return 0;
  if (p[0] < 0x80) { *out = p[0]; return 1; }
  int len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
  if (p[0] < 0xc2 || p[0] > 0xf4 || (size_t)len > n) return 0;
  int32_t c = p[0] & (0x7f >> len);
  for (int i = 1; i < len; i++) {
    if ((p[i] & 0xc0) != 0x80) return 0;
    c = c << 6 | (p[i] & 0x3f);
  }
  static const int32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
  if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
  *out = c;
  return len;
}

/* The line's code points from column from, at most SHOWN_COLS of them. */
static void add_line(Str *out, const char *line, int from) {
  size_t n = strcspn(line, "\r\n");
  int col = 1;
  for (size_t i = 0; i < n; col++) {
    int32_t c = 0;
    int len = lang_utf8_next(line + i, n - i, &c);
    if (col >= from && col < from + SHOWN_COLS) {
      if (!len || (c < 32 && c != '\t') || (c >= 0x7f && c < 0xa0)) str_add_c(out, '?');
      else if (c == '\t') str_add_c(out, ' ');
      else str_add_n(out, line + i, (size_t)len);
    }
    i += (size_t)MAX(len, 1);
  }
}

static const char *find_line(const LangCtx *x, Loc at) {
  for (int i = 0; i < x->n_src; i++) {
    if (x->src[i].file != at.file) continue;
    const char *p = x->src[i].text;
    for (int line = 1; line < at.line && p; line++) {
      p = strchr(p, '\n');
      if (p) p++;
    }
    return p;
  }
  return NULL;
}

static void diag_end(LangCtx *x, Loc at) {
  const char *line = find_line(x, at);
  if (!line) { str_add_c(&x->text, '\n'); return; }
  int from = at.col > SHOWN_COLS - 20 ? at.col - SHOWN_COLS / 2 : 1;
  str_add(&x->text, "\n  ");
  add_line(&x->text, line, from);
  str_add(&x->text, "\n  ");
  for (int c = from; c < at.col; c++) str_add_c(&x->text, ' ');
  str_add(&x->text, "^\n");
}

static bool diag_begin(LangCtx *x, Loc at) {
  if (x->quiet) return false;
  if (++x->n_diags > LANG_MAX_DIAGS) return false;
  str_addf(&x->text, "%s:%d:%d: ", at.file, at.line, at.col);
  return true;
}

void lang_diag(LangCtx *x, Loc at, const char *fmt, ...) {
  if (!diag_begin(x, at)) return;
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&x->text, fmt, ap);
  va_end(ap);
  diag_end(x, at);
}

Err *lang_err_at(const Module *m, Loc at, Err *e) {
  LangCtx x = {.src = m ? (Source *)(uintptr_t)m->src : NULL, .n_src = m ? m->n_src : 0};
  if (!at.file) return e;
  lang_diag(&x, at, "%s", err_text(e));
  x.text.p[--x.text.n] = 0;                                  /* the last line's end */
  Err *placed = err_new(err_kind(e), "%s", x.text.p);
  err_free(e);
  str_free(&x.text);
  return placed;
}

void lang_diag_near(LangCtx *x, Loc at, const char *name, const char *const *names, int n, const char *fmt, ...) {
  if (!diag_begin(x, at)) return;
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&x->text, fmt, ap);
  va_end(ap);
  const char *near = lang_nearest(name, names, n);
  if (near) str_addf(&x->text, "; did you mean %s?", near);
  diag_end(x, at);
}

/* Near: at most a third of the longer name's bytes differ; one letter never suggests another. */
const char *lang_nearest(const char *name, const char *const *names, int n) {
  const char *best = NULL;
  int best_d = 0;
  for (int i = 0; i < n; i++) {
    int len = (int)MIN(MAX(strlen(name), strlen(names[i])), (size_t)63);
    int d = str_edit_distance(name, names[i]);
    if (d > (len + 1) / 3 || d >= len || !strcmp(name, names[i])) continue;
    if (!best || d < best_d) { best = names[i]; best_d = d; }
  }
  return best;
}
