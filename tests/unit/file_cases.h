/* Files spelled in text (tests/file/..cases), and a path to bytes in memory. For the tests of src/file. */
#ifndef LUMEN_FILE_CASES_H
#define LUMEN_FILE_CASES_H
#include <ctype.h>
#include <sys/mman.h>
#include <unistd.h>
#include "file/file.h"
#include "test.h"

static bool cases_find_format(void *ctx, const char *dtype, int64_t gguf_id, FileFormat *out) {
  (void)ctx;
  if (dtype ? !strcmp(dtype, "F32") : gguf_id == 0) return *out = (FileFormat){"f32", 1, 4}, true;
  if (dtype && !strcmp(dtype, "F16")) return *out = (FileFormat){"f16", 1, 2}, true;
  if (dtype ? !strcmp(dtype, "BF16") : gguf_id == 30) return *out = (FileFormat){"bf16", 1, 2}, true;
  if (!dtype && gguf_id == 2) return *out = (FileFormat){"blocks", 32, 18}, true;
  return false;
}

/* A file without a name: bytes in, a descriptor out; its path is /proc/self/fd/N. */
static int cases_memfd(const void *p, size_t n, char path[40]) {
  int fd = memfd_create("case", MFD_CLOEXEC);
  if (fd < 0 || (n && write(fd, p, n) != (ssize_t)n)) {
    perror("memfd");
    exit(1);
  }
  snprintf(path, 40, "/proc/self/fd/%d", fd);
  return fd;
}

static void cases_number(const char *kind, const char *text, Str *out) {
  float f = strtof(text, NULL);
  uint64_t u = text[0] == '-' ? (uint64_t)strtoll(text, NULL, 0) : strtoull(text, NULL, 0);
  if (kind[0] == 'f') str_add_n(out, &f, 4);
  else str_add_n(out, &u, (size_t)atoi(kind + 1) / 8);
}

/* One line of bytes; unknown words fail the test. */
static void cases_line(char *line, Str *out) {
  static const char *const numbers[] = {"u8", "u16", "u32", "u64", "i32", "i64", "f32"};
  char *rest = line;
  for (char *w; (w = strsep(&rest, " "));) {
    if (!*w) continue;
    if (!strcmp(w, "str") || !strcmp(w, "json")) {
      uint64_t n = rest ? strlen(rest) : 0;
      str_add_n(out, &n, 8);
      str_add_n(out, rest ? rest : "", n);
      return;
    }
    if (!strcmp(w, "magic")) str_add(out, "GGUF");
    else if (isxdigit((unsigned char)w[0]) && isxdigit((unsigned char)w[1]) && !w[2]) str_add_c(out, (char)strtol(w, NULL, 16));
    else if (!strcmp(w, "zeros")) for (long n = strtol(strsep(&rest, " "), NULL, 0); n > 0; n--) str_add_c(out, 0);
    else if (!strcmp(w, "align")) for (long n = strtol(strsep(&rest, " "), NULL, 0); out->n % (size_t)n;) str_add_c(out, 0);
    else if (!strcmp(w, "repeat")) {
      for (long n = strtol(strsep(&rest, " "), NULL, 0); n > 0; n--) {
        char copy[200];
        snprintf(copy, sizeof copy, "%s", rest);
        cases_line(copy, out);
      }
      return;
    } else if (strcmp(w, "hex")) {
      size_t i = 0;
      while (i < COUNT_OF(numbers) && strcmp(numbers[i], w)) i++;
      if (i < COUNT_OF(numbers) && rest) cases_number(w, strsep(&rest, " "), out);
      else test_fail(__FILE__, __LINE__, "case word '%s'", w);
    }
  }
}

typedef Err *(*CasesOpen)(Arena *a, const char *path, FileFormatFind find, void *ctx, Weights **out);

static void cases_check(CasesOpen open_fn, const Str *bytes, const char *expect) {
  Arena *a = arena_new("case");
  char path[40];
  int fd = cases_memfd(bytes->p, bytes->n, path), n_kvs = -1, n_tensors = -1;
  Weights *w = NULL;
  Err *e = open_fn(a, path, cases_find_format, NULL, &w);
  if (!strncmp(expect, "fails ", 6)) {
    EXPECT(e && strstr(err_text(e), expect + 6), "says '%s', expected '%s'", e ? err_text(e) : "(it opens)", expect + 6);
    EXPECT(w == NULL && (!e || strstr(err_text(e), path)), "the path is missing in '%s'", e ? err_text(e) : "");
  } else if (sscanf(expect, "ok %d %d", &n_kvs, &n_tensors) == 2)
    EXPECT(!e && w && w->n_kvs == n_kvs && w->n_tensors == n_tensors, "%s, %d and %d", e ? err_text(e) : "opens", w ? w->n_kvs : -1, w ? w->n_tensors : -1);
  else EXPECT(false, "result line '%s'", expect);
  err_free(e);
  file_weights_close(w);
  close(fd);
  arena_free(a);
}

/* Runs every case of a file; hands the bytes of the one named `keep` back. -> number of cases. */
static int cases_run(const char *file, CasesOpen open_fn, const char *keep, Str *kept) {
  Str text = {0}, bytes = {0};
  char name[200] = "";
  int n = 0;
  Err *e = os_read_file(file, 1 << 20, &text);
  test_begin(file);
  EXPECT_OK(e);
  char *rest = text.p;
  for (char *line; rest && (line = strsep(&rest, "\n"));) {
    if (!line[0] || line[0] == '#') continue;
    if (!strncmp(line, "case ", 5)) {
      snprintf(name, sizeof name, "%s: %s", strrchr(file, '/') + 1, line + 5);
      str_clear(&bytes);
      test_begin(name);
    } else if (!strncmp(line, "ok", 2) || !strncmp(line, "fails", 5)) {
      cases_check(open_fn, &bytes, line);
      if (keep && strstr(name, keep)) str_add_n(kept, bytes.p, bytes.n);
      test_end();
      n++;
    } else cases_line(line, &bytes);
  }
  str_free(&text);
  str_free(&bytes);
  return n;
}
#endif
