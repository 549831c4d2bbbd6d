/* Texts that mean no kernel are refused in words, whatever they say: nothing a user writes ends the process or keeps it for years.
   And statements run in the text's order, also where they change what others read. */
#include "cases.h"
#include "kern/kern.h"

/* Everything up to machine code for every target and shape, and the oracle's form. */
static Err *compile_all(Arena *a, const KernSpec *s) {
  static const Sched naive = {.naive = true, .lanes = 1, .tile = {1}, .n_tiles = 1};
  for (int i = 0; i < s->plan->n_regions; i++) {
    int64_t scratch_bytes;
    IrFn *fn;
    TRY(lower_region(a, s->plan, i, &naive, "t", &fn, &scratch_bytes));
    TRY(ir_fn_verify(fn));
    for (int t = 0; t < gen_target_count(); t++) {
      for (int shape = 0; shape < KERN_N_SHAPES; shape++) {
        Sched sched = kern_sched(gen_target_get(t), 512 << 10, s->plan, i, (KernShape)shape);
        GenCode code;
        TRY(lower_region(a, s->plan, i, &sched, "t", &fn, &scratch_bytes));
        TRY(ir_fn_verify(fn));
        TRY(opt_pipeline(fn));
        TRY(gen_compile(a, fn, gen_target_get(t), NULL, &code));
      }
    }
  }
  return NULL;
}

static Err *compile_fn(Arena *a, IrFn *fn) {
  GenCode code;
  TRY(ir_fn_verify(fn));
  TRY(opt_pipeline(fn));
  return gen_compile(a, fn, gen_target_get(0), NULL, &code);
}

static Err *compile_form(Arena *a, FormatForm *f) {
  IrFn *fn;
  TRY(lower_decode(a, f, "decode", &fn));
  TRY(compile_fn(a, fn));
  TRY(lower_pack(a, f, f->block * (int64_t)2, "pack", &fn));
  return compile_fn(a, fn);
}

static Err *compile_encode(Arena *a, const Module *m, const FormatDecl *d) {
  FormatForm *f;
  IrFn *fn;
  int64_t scratch_bytes;
  TRY(format_analyze(a, m, d, &f));
  TRY(lower_encode(a, m, f, "encode", &fn, &scratch_bytes));
  return compile_fn(a, fn);
}

static Err *compile_spec(Arena *a, const char *text, const char *spec, const char *precision) {
  Module *m;
  KernCall call;
  KernSpec *s;
  TRY(cases_load(a, text, &m));
  if (!strncmp(spec, "encode ", 7)) return compile_encode(a, m, lang_format(m, spec + 7));
  TRY(kern_call_parse(a, spec, &call));
  TRY(kern_call_build(a, m, &call, precision, &s));
  for (int i = 0; i < s->tp->n_forms; i++) TRY(compile_form(a, s->tp->form[i]));
  return compile_all(a, s);
}

/* rest: "> SPEC", then a line of what is said. */
static void refused(char *text, char *rest) {
  Arena *a = arena_new("compile");
  char *spec = rest + 2, *want = strchr(spec, '\n'), *end = want ? strchr(want + 1, '\n') : NULL;
  EXPECT(want, "a case says what is said");
  if (want) *want++ = 0;
  if (end) *end = 0;
  int64_t t = os_now_ns();
  Err *e = compile_spec(a, text, spec, "int8");
  EXPECT(e && want && strstr(err_text(e), want), "%s: said '%s', expected '%s'", spec, e ? err_text(e) : "nothing", want ? want : "");
  EXPECT(os_now_ns() - t < 60 * (int64_t)(1000000000 * test_patience()), "%s: took %.1f s", spec, (double)(os_now_ns() - t) * 1e-9);
  err_free(e);
  arena_free(a);
}

/* ---- the text's order ---------------------------------------------------------------------------------------------- */
enum { ROWS = 3, COLS = 33 };

/* Runs the op over x[m][k] = 100 m + k, every region's plain form in the plan's order; out: result `name`. */
static Err *run_rows(Arena *a, const char *text, const char *name, float out[ROWS][COLS]) {
  static const Sched naive = {.naive = true, .lanes = 1, .tile = {1}, .n_tiles = 1};
  Module *m;
  KernCall call;
  KernSpec *s;
  char spec[64];
  snprintf(spec, sizeof spec, "t x=f32[%d,%d]", ROWS, COLS);
  TRY(cases_load(a, text, &m));
  TRY(kern_call_parse(a, spec, &call));
  TRY(kern_call_build(a, m, &call, NULL, &s));
  uint8_t **mem = ARENA_ARRAY(a, uint8_t *, s->tp->n_bufs);
  int64_t row = 0;
  for (int b = 0; b < s->tp->n_bufs; b++) {
    mem[b] = ARENA_ARRAY(a, uint8_t, tp_buf_bytes(s->tp, b, s->sym));
    row = tp_row_elems(s->tp, b);
    for (int r = 0; r < ROWS && s->tp->buf[b].role == BUF_INPUT; r++)
      for (int k = 0; k < COLS; k++) memcpy(mem[b] + 4 * (r * row + k), &(float){(float)(100 * r + k)}, 4);
  }
  for (int i = 0; i < s->plan->n_regions; i++) {
    const TpRegion *r = &s->plan->region[i];
    IrFn *fn;
    int64_t n;
    TRY(lower_region(a, s->plan, i, &naive, "t", &fn, &n));
    void **args = ARENA_ARRAY(a, void *, r->n_args + 1), *scratch = ARENA_ARRAY(a, uint8_t, n + 64);
    for (int k = 0; k < r->n_args; k++) args[k] = r->arg[k] < 0 ? (void *)(intptr_t)s->sym[~r->arg[k]] : mem[r->arg[k]];
    uint64_t in[4] = {(uint64_t)(uintptr_t)args, 0, (uint64_t)region_items(s->plan, i, &naive, s->sym), (uint64_t)(uintptr_t)scratch};
    TRY(ir_interp(fn, in, 4, NULL, 0, INT64_MAX));
  }
  for (int b = 0; b < s->tp->n_bufs; b++)
    if (s->tp->buf[b].role == BUF_OUTPUT && !strcmp(s->tp->buf[b].name, name))
      for (int r = 0; r < ROWS; r++) memcpy(out[r], mem[b] + 4 * r * tp_row_elems(s->tp, b), sizeof out[r]);
  return NULL;
}

static void expect_rows(const char *text, const char *name, float (*want)(int m, int k)) {
  Arena *a = arena_new("compile");
  float got[ROWS][COLS] = {{0}};
  EXPECT_OK(run_rows(a, text, name, got));
  for (int m = 0; m < ROWS; m++)
    for (int k = 0; k < COLS; k++) EXPECT(!(got[m][k] < want(m, k)) && !(got[m][k] > want(m, k)), "%s[%d][%d] is %g, expected %g", name, m, k, (double)got[m][k], (double)want(m, k));
  arena_free(a);
}

static float five(int m, int k) { (void)m, (void)k; return 5; }
static float doubled(int m, int k) { return (float)(2 * (100 * m + k)); }
static float mirrored(int m, int k) { return (float)(2 * (100 * m + COLS - 1 - k)); }
static float plus_one(int m, int k) { return (float)(100 * m + k + 1); }
static float plus_six(int m, int k) { (void)m, (void)k; return 6; }

static void order_cases(void) {
  TEST("what is read before a tensor changes is what it was") {
    const char *text = "op t(x: f32[M,K]) -> y: f32[M,K], z: f32[M,K] {\n  y[m,k] = x[m,k]\n  z[m,k] = y[m,k] * 2.0\n  y[m,k] = 5.0 + 0.0 * x[m,k]\n}\n";
    expect_rows(text, "z", doubled);
    expect_rows(text, "y", five);
  }
  TEST("also where other elements are read") {
    const char *text = "op t(x: f32[M,K]) -> y: f32[M,K], z: f32[M,K] {\n  y[m,k] = x[m,k]\n  z[m,k] = y[m,K-1-k] * 2.0\n  y[m,k] = 5.0 + 0.0 * x[m,k]\n}\n";
    expect_rows(text, "z", mirrored);
    expect_rows(text, "y", five);
  }
  TEST("equal statements of what has changed between them are two") {
    const char *text = "op t(x: f32[M,K]) -> y: f32[M,K], z: f32[M,K], u: f32[M,K] {\n  y[m,k] = x[m,k]\n  a[m,k] = y[m,k] + 1.0\n  z[m,k] = a[m,k]\n"
                       "  y[m,k] = 5.0 + 0.0 * x[m,k]\n  b[m,k] = y[m,k] + 1.0\n  u[m,k] = b[m,k]\n}\n";
    expect_rows(text, "z", plus_one);
    expect_rows(text, "u", plus_six);
  }
  TEST("a statement may change what an earlier one gave") {
    expect_rows("op t(x: f32[M,K]) -> y: f32[M,K] {\n  y[m,k] = x[m,k]\n  y[m,k] = y[m,k] + 1.0\n}\n", "y", plus_one);
  }
}

static float many(int m, int k) { return (float)(100 * m + k + 1999); }

static void many_cases(void) {
  TEST("two thousand statements over one tensor take seconds at most") {
    Str text = {0};
    str_add(&text, "op t(x: f32[M,K]) -> y: f32[M,K] {\n  y[m,k] = x[m,k]\n");
    for (int i = 1; i < 2000; i++) str_add(&text, "  y[m,k] = y[m,k] + 1.0\n");
    str_add(&text, "}\n");
    int64_t t = os_now_ns();
    expect_rows(text.p, "y", many);
    EXPECT(os_now_ns() - t < 60 * (int64_t)(1000000000 * test_patience()), "took %.1f s", (double)(os_now_ns() - t) * 1e-9);
    str_free(&text);
  }
}

int main(void) {
  cases_each("tests/kern/refused.cases", refused);
  order_cases();
  many_cases();
  TEST_MAIN_END();
}
