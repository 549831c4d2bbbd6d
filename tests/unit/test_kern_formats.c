/* Every golden of tests/formats/decode whose format has a text, decoded by machine code of every target and by the interpreter, bit for bit.
   runtests: machine code */
#include <ctype.h>
#include <dirent.h>
#include "kern/kern.h"
#include "test.h"

static Module *module;

static bool same_float(const float *a, const float *b) {
  return !memcmp(a, b, sizeof *a) || (*a != *a && *b != *b);
}

static void expect_same(const float *got, const float *want, size_t n, const char *what) {
  for (size_t i = 0; i < n; i++) {
    if (same_float(&got[i], &want[i])) continue;
    EXPECT(false, "%s: value %zu is %.9g (%08x), expected %.9g (%08x)", what, i, (double)got[i], f32_to_bits(got[i]), (double)want[i], f32_to_bits(want[i]));
    return;
  }
}

static void decode_everywhere(const FormatForm *f, const Str *in, const float *want, size_t n) {
  Arena *a = arena_new("compile");
  float *out = ARENA_ARRAY(a, float, n + 64);
  void *args[FORMAT_MAX_ARGS] = {in->p, out};
  uint8_t scratch[256];
  int64_t n_blocks = (int64_t)in->n / f->n_bytes;
  format_table_args(f, args);
  for (int t = 0; t < gen_target_count(); t++) {
    const Kern *k;
    Kerns *ks = NULL;
    if (!gen_target_runs(gen_target_get(t), kern_cpu())) continue;
    EXPECT_OK(kern_set_new(gen_target_get(t), false, &ks));
    Err *e = kern_decode(ks, f, &k);
    EXPECT_OK(e);
    memset(out, 0x55, n * sizeof *out);
    if (!e) k->entry(args, 0, n_blocks, scratch);
    expect_same(out, want, n, gen_target_get(t)->name);
    kern_set_free(ks);
  }
  IrFn *fn;
  EXPECT_OK(lower_decode(a, f, "decode", &fn));
  uint64_t slot[4] = {(uint64_t)(uintptr_t)args, 0, (uint64_t)n_blocks, (uint64_t)(uintptr_t)scratch};
  memset(out, 0x55, n * sizeof *out);
  EXPECT_OK(ir_interp(fn, slot, 4, NULL, 0, INT64_MAX));
  expect_same(out, want, n, "interpreter");
  arena_free(a);
}

static void golden(const char *base) {
  char name[64], path[300];
  Str in = {0}, out = {0};
  size_t n = 0;
  for (; base[n] && base[n] != '.' && n + 1 < sizeof name; n++) name[n] = (char)tolower((unsigned char)base[n]);
  name[n] = 0;
  snprintf(path, sizeof path, "%.*s decodes as the golden", (int)(strlen(base) - 4), base);
  const FormatDecl *d = lang_format(module, name);
  if (!d) {
    TEST_SKIP(path, "no text declares this format yet");
    return;
  }
  char title[300];
  snprintf(title, sizeof title, "%s", path);
  TEST(title) {
    Arena *a = arena_new("compile");
    FormatForm *f = NULL;
    EXPECT_OK(format_analyze(a, module, d, &f));
    snprintf(path, sizeof path, "tests/formats/decode/%s", base);
    EXPECT_OK(os_read_file(path, 1 << 24, &in));
    memcpy(path + strlen(path) - 3, "f32", 3);
    EXPECT_OK(os_read_file(path, 1 << 24, &out));
    EXPECT(in.n && in.n % (size_t)f->n_bytes == 0 && out.n == in.n / (size_t)f->n_bytes * (size_t)f->block * 4, "%zu bytes, %zu of values", in.n, out.n);
    if (!test_failed_here) decode_everywhere(f, &in, (const float *)(const void *)out.p, out.n / 4);
    arena_free(a);
  }
  str_free(&in);
  str_free(&out);
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

int main(void) {
  Arena *a = arena_new("forever");
  EXPECT_OK(lang_std_load(a, NULL, &module));
  DIR *dir = opendir("tests/formats/decode");
  const char **base = NULL;
  int n = 0, cap = 0;
  if (!module || !dir) return 1;
  for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
    size_t len = strlen(e->d_name);
    if (len > 4 && !strcmp(e->d_name + len - 4, ".bin")) PUSH(a, base, n, cap, arena_dup(a, e->d_name));
  }
  closedir(dir);
  qsort(base, (size_t)n, sizeof *base, by_name);
  TEST("there are goldens") EXPECT(n >= 20, "%d", n);
  for (int i = 0; i < n; i++) golden(base[i]);
  arena_free(a);
  TEST_MAIN_END();
}
