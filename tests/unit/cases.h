/* Files of cases: remarks, then after each line "#--- NAME" a text of the language and lines that begin with "> ". Texts are loaded together
   with the standard ones. */
#ifndef LUMEN_TEST_CASES_H
#define LUMEN_TEST_CASES_H
#include "lang/lang.h"
#include "test.h"

extern const Source std_embedded[];

static Err *cases_load(Arena *a, const char *text, Module **out) {
  enum { MAX_SRC = 64 };
  Source src[MAX_SRC];
  int n = 0;
  for (const Source *s = std_embedded; s->file && n < MAX_SRC - 1; s++) src[n++] = *s;
  src[n++] = (Source){"case.lum", text};
  return lang_load(a, src, n, out);
}

/* fn gets the text, which may be empty, and what follows from the first "> " on, both to be written to. */
__attribute__((unused)) static void cases_each(const char *path, void (*fn)(char *text, char *rest)) {
  Str file = {0};
  EXPECT_OK(os_read_file(path, 1 << 20, &file));
  char *next = file.p ? strstr(file.p, "\n#--- ") : NULL;
  while (next) {
    char *name = next + 6, *text = strchr(name, '\n'), none[] = "";
    next = strstr(name, "\n#--- ");
    if (next) *next = 0;
    char *rest = strstr(text, "\n> ");
    if (rest) *rest++ = 0;
    if (rest != text + 1) *text = 0, text++;
    else text = none;
    TEST(name) {
      EXPECT(rest, "a case has a line that begins with '> '");
      if (rest) fn(text, rest);
    }
  }
  str_free(&file);
}
#endif
