/* The unit tests' harness: each program prints one line per case, "ok - name", "not ok - name: why" or "skip - name: why", and
   tools/runtests adds them up. A program that dies counts as one failure. */
#ifndef LUMEN_TEST_H
#define LUMEN_TEST_H
#pragma GCC system_header /* EXPECT without a message is fine, whatever -Wpedantic thinks of empty variadic arguments */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpragmas"
#pragma clang diagnostic ignored "-Wunknown-warning-option"
#pragma clang diagnostic ignored "-Wvariadic-macro-arguments-omitted"
#endif
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"

static int test_n_failed;
static const char *test_name = "";
static bool test_failed_here;
__attribute__((format(printf, 3, 4), unused)) static void test_fail(const char *file, int line, const char *fmt, ...) {
  char why[2000];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  for (char *c = why; *c; c++) if (*c == '\n') *c = ' ';
  if (!test_failed_here) printf("not ok - %s: %s:%d: %s\n", test_name, file, line, why);
  test_failed_here = true;
  test_n_failed++;
}
/* The condition's text is no format: it may hold a '%'. */
__attribute__((format(printf, 4, 5), unused)) static void test_fail_expect(const char *file, int line, const char *cond, const char *fmt, ...) {
  char why[1500];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  test_fail(file, line, "%s %s", cond, why);
}
#define EXPECT(cond, ...) do { if (!(cond)) test_fail_expect(__FILE__, __LINE__, #cond, "" __VA_ARGS__); } while (0)
#define EXPECT_OK(err) do { Err *e_ = (err); if (e_) { test_fail(__FILE__, __LINE__, "%s", err_text(e_)); err_free(e_); } } while (0)
/* An error of this kind that says this among other things. */
#define EXPECT_ERR(err, kind, text) do { \
    Err *e_ = (err); \
    if (!e_ || err_kind(e_) != (kind) || !strstr(err_text(e_), text)) \
      test_fail(__FILE__, __LINE__, "says '%s' (kind %d), expected '%s'", e_ ? err_text(e_) : "(nothing)", e_ ? (int)err_kind(e_) : 0, text); \
    err_free(e_); \
  } while (0)
/* How much longer than usual all takes here, from tools/runtests --patience: sanitizers, emulators. At least 1. */
__attribute__((unused)) static int test_patience(void) {
  const char *s = getenv("TEST_PATIENCE");
  int n = s ? atoi(s) : 1;
  return n > 1 ? n : 1;
}
__attribute__((unused)) static void test_begin(const char *name) { test_name = name; test_failed_here = false; }
__attribute__((unused)) static void test_end(void) { if (!test_failed_here) printf("ok - %s\n", test_name); fflush(stdout); }
#define TEST(name) for (int once_ = (test_begin(name), 1); once_; once_ = 0, test_end())
#define TEST_SKIP(name, why) printf("skip - %s: %s\n", name, why)
#define TEST_MAIN_END() return test_n_failed ? 1 : 0
#endif
