/* Trace switches: set once before threads start, then only read. A trace's file grows as it comes, so that what a crash leaves can be read; only a new
   file, an empty one, a device, or an older trace is written over. */
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/base.h"

static const struct { const char *name, *meaning; } stages[TRACE_COUNT] = {
#define TRACE(name, meaning) {#name, meaning},
#include "base/trace.def"
#undef TRACE
};
static bool on[TRACE_COUNT];
static char *kernel_glob;
static FILE *out;

/* Every trace begins with a stage in brackets, which no model and no text that a command reads does. */
static bool is_trace(FILE *f) {
  char head[32] = "";
  size_t n = fread(head, 1, sizeof head - 1, f);
  head[n] = 0;
  for (int i = 0; i < TRACE_COUNT; i++) {
    size_t len = strlen(stages[i].name);
    if (head[0] == '[' && !strncmp(head + 1, stages[i].name, len) && !strncmp(head + 1 + len, "] ", 2)) return true;
  }
  return !n;
}

static Err *open_file(const char *path, FILE **to) {
  struct stat st;
  bool there = !stat(path, &st) && S_ISREG(st.st_mode);
  FILE *f = there ? fopen(path, "re") : NULL;
  bool fine = !there || (f && is_trace(f));
  int code = errno;
  if (f) fclose(f);
  if (there && !f) return err_new(ERR_IO, "trace file '%s': cannot be read: %s", path, strerror(code));
  if (!fine) return err_new(ERR_USAGE, "trace file '%s': holds something else than a trace, expected a new file or an older trace", path);
  if (!(f = fopen(path, "we"))) return err_new(ERR_IO, "trace file '%s': cannot be written: %s", path, strerror(errno));
  os_input_note(fileno(f)); /* nor is it a place for a command's result */
  *to = f;
  return NULL;
}

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
  if (!e && file && !file[0]) e = err_new(ERR_USAGE, "trace file: '' is no name, expected the file to write");
  if (!e && file) e = open_file(file, &out);
  if (!out) out = stderr;
  free(copy);
  return e;
}

Err *trace_finish(void) {
  if (!out || out == stderr || (!fflush(out) && !ferror(out))) return NULL;
  return err_new(ERR_IO, "the trace cannot be written: %s", strerror(errno));
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
