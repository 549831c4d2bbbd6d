/* Odd shapes and formats, from tests/kern/odd.cases: machine code of every target that runs here against the interpreter, bit for bit.
   And one format whose values are written down here, since what both would get wrong no comparison finds. */
#include "kern/kern.h"
#include "test.h"

extern const Source std_embedded[];
enum { MAX_SRC = 64, MAX_SETS = 8 };
static Kerns *set[MAX_SETS];
static int n_sets;

static Err *load(Arena *a, const char *text, Module **out) {
  Source src[MAX_SRC];
  int n = 0;
  for (const Source *s = std_embedded; s->file && n < MAX_SRC - 1; s++) src[n++] = *s;
  src[n++] = (Source){"case.lum", text};
  return lang_load(a, src, n, out);
}

/* Kernels are kept by the format's name, and every case has its own: the sets are new each time. */
static void sets_open(void) {
  GenCpu cpu = kern_cpu();
  for (int i = 0; i < gen_target_count() && n_sets < MAX_SETS; i++)
    if (gen_target_runs(gen_target_get(i), cpu)) EXPECT_OK(kern_set_new(gen_target_get(i), false, &set[n_sets++]));
}

static void sets_close(void) {
  while (n_sets) kern_set_free(set[--n_sets]);
}

static Err *check(Arena *a, const Module *m, const char *spec, const char *precision) {
  KernCall call;
  KernSpec *s;
  TRY(kern_call_parse(a, spec, &call));
  TRY(kern_call_build(a, m, &call, precision, &s));
  return kern_check(s, set, n_sets, 1, NULL, NULL);
}

static void run_case(const char *text, char *specs) {
  Arena *a = arena_new("compile");
  Module *m = NULL;
  EXPECT_OK(load(a, text, &m));
  EXPECT(specs && specs[0] == '>', "a case has lines '> SPEC'");
  sets_open();
  for (char *line = specs, *next; m && line && line[0] == '>'; line = next) {
    next = strchr(line, '\n');
    if (next) *next++ = 0;
    EXPECT_OK(err_wrap(check(a, m, line + 2, "int8"), "%s, int8", line));
    EXPECT_OK(err_wrap(check(a, m, line + 2, NULL), "%s", line));
  }
  sets_close();
  arena_free(a);
}

static void run_cases(void) {
  Str file = {0};
  EXPECT_OK(os_read_file("tests/kern/odd.cases", 1 << 20, &file));
  char *next = file.p ? strstr(file.p, "\n#--- ") : NULL;
  while (next) {
    char *name = next + 6, *text = strchr(name, '\n');
    next = strstr(name, "\n#--- ");
    if (next) *next = 0;
    char *specs = strstr(text, "\n> ");
    if (specs) *specs++ = 0;
    if (specs > text) *text++ = 0;
    TEST(name) run_case(text < specs ? text : "", specs);
  }
  str_free(&file);
}

/* i32 has a sign that >> keeps, u32 is shifted as it is. */
static void decode_signs(void) {
  static const char text[] = "format fx {\n  block 4\n  a : i32[2] @0\n  b : u32[2] @8\n  x(i) = i < 2 ? a[i] >> 4 : (b[i - 2] >> 28) + 0.5\n}\n";
  static const int32_t blocks[4] = {-1600, 1600, (int32_t)0xf0000000u, 0x30000000};
  static const float want[4] = {-100, 100, 15.5f, 3.5f};
  Arena *a = arena_new("compile");
  Module *m = NULL;
  FormatForm *f = NULL;
  EXPECT_OK(load(a, text, &m));
  if (m) EXPECT_OK(format_analyze(a, m, lang_format(m, "fx"), &f));
  sets_open();
  for (int i = 0; f && i < n_sets; i++) {
    const Kern *k = NULL;
    float got[4] = {0};
    EXPECT_OK(kern_decode(set[i], f, &k));
    if (k) kern_decode_blocks(k, f, (const uint8_t *)blocks, 1, got);
    for (int j = 0; j < 4; j++) EXPECT(!(got[j] < want[j]) && !(got[j] > want[j]), "x(%d) is %g, expected %g", j, (double)got[j], (double)want[j]);
  }
  sets_close();
  arena_free(a);
}

int main(void) {
  run_cases();
  TEST("32 bits with a sign and without") decode_signs();
  TEST_MAIN_END();
}
