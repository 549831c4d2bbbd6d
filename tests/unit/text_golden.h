/* Shared by the text tests: reading golden files as values. */
#ifndef TEXT_GOLDEN_H
#define TEXT_GOLDEN_H
#include "test.h"
#include "text/priv.h"

__attribute__((unused)) static const char *text_get(Val row, const char *key, size_t *n) {
  Val *v = val_get(row, key);
  if (!v || v->kind != V_STR) return NULL;
  *n = v->u.s->n;
  return v->u.s->p;
}

/* Reads a file; a missing one gives an empty text. */
__attribute__((unused)) static Str read_or_empty(const char *path) {
  Str s = {0};
  Err *e = os_read_file(path, (size_t)1 << 30, &s);
  err_free(e);
  return s;
}

/* The next line of s from *at; false at the end. */
__attribute__((unused)) static bool next_line(const Str *s, size_t *at, const char **p, size_t *n) {
  if (*at >= s->n) return false;
  const char *nl = memchr(s->p + *at, '\n', s->n - *at);
  *p = s->p + *at;
  *n = nl ? (size_t)(nl - *p) : s->n - *at;
  *at += *n + 1;
  return true;
}
#endif
