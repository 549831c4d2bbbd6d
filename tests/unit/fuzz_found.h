/* Runs a fuzz target over what it once found: tests/fuzz/found/FOLDER. A target that dies fails. Include the target's .c first. */
#ifndef FUZZ_FOUND_H
#define FUZZ_FOUND_H
#include <dirent.h>
#include "test.h"

static int fuzz_found(const char *folder) {
  char path[600];
  struct dirent **names;
  int n = 0, n_files = 0;
  snprintf(path, sizeof path, "tests/fuzz/found/%s", folder);
  setenv("LUMEN_FUZZ_TOKENIZERS", "tests/text/tokenizers", 1);
  TEST("what fuzzing found stays fixed") {
    n = scandir(path, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
      Str s = {0};
      if (names[i]->d_name[0] != '.') {
        snprintf(path, sizeof path, "tests/fuzz/found/%s/%s", folder, names[i]->d_name);
        EXPECT_OK(os_read_file(path, 1 << 24, &s));
        LLVMFuzzerTestOneInput((const uint8_t *)s.p, s.n);
        n_files++;
      }
      str_free(&s);
      free(names[i]);
    }
    EXPECT(n_files > 0, "%s is empty", folder);
  }
  if (n > 0) free(names);
  TEST_MAIN_END();
}
#endif
