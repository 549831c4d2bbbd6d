/* Errors as values: a kind and a text, on the heap, owned by whoever holds the pointer. */
#include <stdlib.h>
#include "base/base.h"

struct Err { ErrKind kind; Str text; };

void base_check_fail(const char *file, int line, const char *cond, const char *fmt, ...) {
  fprintf(stderr, "lumen: internal error at %s:%d: %s does not hold", file, line, cond);
  if (fmt[0]) {
    va_list ap;
    va_start(ap, fmt);
    fputs(": ", stderr);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
  }
  fputc('\n', stderr);
  abort();
}

Err *err_new(ErrKind kind, const char *fmt, ...) {
  Err *e = calloc(1, sizeof *e);
  CHECK(e, "out of memory for an error");
  e->kind = kind;
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&e->text, fmt, ap);
  va_end(ap);
  return e;
}

Err *err_wrap(Err *e, const char *fmt, ...) {
  if (!e) return NULL;
  Str s = {0};
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&s, fmt, ap);
  va_end(ap);
  str_add(&s, ": ");
  str_add(&s, e->text.p);
  str_free(&e->text);
  e->text = s;
  return e;
}

Err *err_retype(Err *e, ErrKind from, ErrKind to) {
  if (e && (!from || e->kind == from)) e->kind = to;
  return e;
}

const char *err_text(const Err *e) { return e->text.p ? e->text.p : ""; }
ErrKind err_kind(const Err *e) { return e->kind; }

void err_free(Err *e) {
  if (!e) return;
  str_free(&e->text);
  free(e);
}
