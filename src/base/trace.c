/* Trace switches: set once before threads start, then only read. */
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"

static const struct { const char *name, *meaning; } stages[TRACE_COUNT] = {
#define TRACE(name, meaning) {#name, meaning},
#include "base/trace.def"
#undef TRACE
};
static bool on[TRACE_COUNT];
static char *kernel_glob;
static FILE *out;

Err *trace_open(const char *spec) {
  char *copy = strdup(spec), *rest = copy;
  CHECK(copy, "out of memory for a trace spec");
  char *file = strchr(copy, '>'), *glob = NULL;
  if (file) *file++ = 0;
  if ((glob = strchr(copy, '@'))) *glob++ = 0;
  Err *e = NULL;
  for (char *word; !e && (word = strsep(&rest, ","));) {
    int i = 0;
    while (i < TRACE_COUNT && strcmp(stages[i].name, word)) i++;
    if (i < TRACE_COUNT) on[i] = true;
    else if (!strcmp(word, "help")) trace_help(stderr);
    else if (word[0]) e = err_new(ERR_USAGE, "trace stage '%s': no such stage; 'help' lists them", word);
  }
  if (!e && glob && glob[0]) kernel_glob = strdup(glob);
  if (!e && file && file[0] && !(out = fopen(file, "w"))) e = err_new(ERR_IO, "trace file '%s': cannot be written: %s", file, strerror(errno));
  if (!out) out = stderr;
  free(copy);
  return e;
}

bool trace_on(TraceStage s, const char *kernel) {
  return on[s] && (!kernel || !kernel_glob || fnmatch(kernel_glob, kernel, 0) == 0);
}

void trace_printf(TraceStage s, const char *fmt, ...) {
  if (!on[s]) return;
  fprintf(out, "[%s] ", stages[s].name);
  va_list ap;
  va_start(ap, fmt);
  vfprintf(out, fmt, ap);
  va_end(ap);
  fputc('\n', out);
}

void trace_text(TraceStage s, const char *title, const char *text) {
  if (on[s]) fprintf(out, "[%s] %s\n%s\n", stages[s].name, title, text);
}

void trace_help(FILE *f) {
  for (int i = 0; i < TRACE_COUNT; i++) fprintf(f, "  %-8s %s\n", stages[i].name, stages[i].meaning);
}
