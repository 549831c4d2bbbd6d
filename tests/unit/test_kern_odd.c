/* Odd shapes and formats, from tests/kern/odd.cases: machine code of every target that runs here against the interpreter, bit for bit.
   And one format whose values are written down here, since what both would get wrong no comparison finds. */
#include "cases.h"
#include "kern/kern.h"

enum { MAX_SETS = 8 };
static Kerns *set[MAX_SETS];
static int n_sets;

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

static void run_case(char *text, char *specs) {
  Arena *a = arena_new("compile");
  Module *m = NULL;
  EXPECT_OK(cases_load(a, text, &m));
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

/* i32 has a sign that >> keeps, u32 is shifted as it is. */
static void decode_signs(void) {
  static const char text[] = "format fx {\n  block 4\n  a : i32[2] @0\n  b : u32[2] @8\n  x(i) = i < 2 ? a[i] >> 4 : (b[i - 2] >> 28) + 0.5\n}\n";
  static const int32_t blocks[4] = {-1600, 1600, (int32_t)0xf0000000u, 0x30000000};
  static const float want[4] = {-100, 100, 15.5f, 3.5f};
  Arena *a = arena_new("compile");
  Module *m = NULL;
  FormatForm *f = NULL;
  EXPECT_OK(cases_load(a, text, &m));
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
  cases_each("tests/kern/odd.cases", run_case);
  TEST("32 bits with a sign and without") decode_signs();
  TEST_MAIN_END();
}
