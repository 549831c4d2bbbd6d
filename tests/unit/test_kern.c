/* The differential harness: machine code of every target this machine runs against the interpreter's naive form, bit for bit, between guard
   bands and with NaN in every padding. Ops that take weights are found by their declarations and crossed with every format; other ops have
   their dimensions in tests/kern/ops.specs. Specs, their errors, the counting of work, and that the harness itself can fail.
   Under a sanitizer, which is slow, each format has one size.
   runtests: timeout 600 runtests: machine code */
#include <signal.h>
#include <unistd.h>
#include "kern/kern.h"
#include "test.h"

#if defined __SANITIZE_ADDRESS__
enum { N_SIZES = 1 };
#else
enum { N_SIZES = 2 };
#endif
static Module *module;
static const Target *target[16];
static Kerns *set[16];     /* by target; made anew for every case */
static int n_targets;
static DevPool *pool;
static char running[1000];

/* Machine code that leaves its buffers dies here, by name. */
static void on_fault(int sig) {
  const char *head = "not ok - ", *tail = sig == SIGSEGV ? ": an access outside every buffer\n" : ": a signal while it ran\n";
  ssize_t n = write(1, head, strlen(head));
  n += write(1, running, strlen(running));
  n += write(1, tail, strlen(tail));
  _exit(n > 0 ? 1 : 2);
}

static void sets_new(void) {
  for (int i = 0; i < n_targets; i++) {
    kern_set_free(set[i]);
    set[i] = NULL;
    EXPECT_OK(kern_set_new(target[i], false, &set[i]));
  }
}

static void check_text(Arena *a, const char *text, const char *precision, uint64_t seed) {
  KernCall call;
  KernSpec *s;
  snprintf(running, sizeof running, "%s (%s, seed %d)", text, precision, (int)seed);
  Err *e = kern_call_parse(a, text, &call);
  if (!e) e = kern_call_build(a, module, &call, precision, &s);
  if (!e) e = kern_check(s, set, n_targets, seed, pool, NULL);
  EXPECT_OK(err_wrap(e, "%s, seed %d", precision, (int)seed));
}

/* ---- ops that take weights ----------------------------------------------------------------------------------------- */
static bool takes_weights(const OpDecl *op) {
  for (int i = 0; i < op->n_params; i++) if (kern_type_is_weight(&op->param[i].type)) return true;
  return false;
}

static void add_tensor(Str *s, const Param *p, const char *format, const KernDim *dim, int n_dims, int64_t M, int64_t N, int64_t K) {
  str_addf(s, " %s=%s[", p->name, kern_type_is_format(&p->type) ? format : p->type.elt);
  for (int k = 0; k < p->type.n_dims; k++) {
    int64_t v = 24;
    for (int d = 0; p->type.dim[k]->kind == EX_NAME && d < n_dims; d++)
      if (!strcmp(dim[d].name, p->type.dim[k]->name)) v = dim[d].is_weight_k ? K : dim[d].is_weight_row ? N : dim[d].is_rows ? M : v;
    if (p->type.dim[k]->kind == EX_INT) v = p->type.dim[k]->ival;
    str_addf(s, k ? ",%lld" : "%lld", (long long)v);
  }
  str_add_c(s, ']');
}

static void spec_text(const OpDecl *op, const char *format, int64_t M, int64_t N, int64_t K, Str *s) {
  KernDim dim[32];
  int n = kern_op_dims(op, dim, 32);
  str_add(s, op->name);
  for (int i = 0; i < op->n_params; i++) {
    const Param *p = &op->param[i];
    if (p->type.n_dims) add_tensor(s, p, format, dim, n, M, N, K);
    else if (!p->deflt) str_addf(s, " %s=1", p->name);
  }
}

/* Kernels do not know the number of rows: two sizes of weights, all row counts among them. Which sizes, and which precision at the
   second: turned on from format to format. */
static void cross(const OpDecl *op, const FormatDecl *f, const char *const *precision, int n_precisions, int turn) {
  static const int M[2][3] = {{1, 5, 0}, {2, 3, 13}}, N[] = {31, 1, 15, 16, 17};
  char name[200];
  snprintf(name, sizeof name, "%s over %s", op->name, f->name);
  TEST(name) {
    Arena *a = arena_new("compile");
    FormatForm *form = NULL;
    sets_new();
    EXPECT_OK(format_analyze(a, module, f, &form));
    int block = form ? form->block : 1;
    for (int size = 0; size < N_SIZES; size++) {
      int64_t K = block == 1 ? 13 + 32 * (2 - size) : block * (2 - size); /* blocks of one element: odd sums */
      for (int r = 0; r < 3 && M[size][r]; r++) {
        Str s = {0};
        spec_text(op, f->name, M[size][r], N[(turn + 2 * size) % (int)COUNT_OF(N)], K, &s);
        for (int p = 0; p < n_precisions; p++) if (size == 0 || p == turn % n_precisions) check_text(a, s.p, precision[p], (uint64_t)turn);
        str_free(&s);
        arena_reset(a);
      }
    }
    arena_free(a);
  }
}

/* Every precision that some variant of an op is for, and the plain one. */
static int precisions_of(const char *op, const char **out, int max) {
  int n = 0;
  out[n++] = "f32";
  for (int v = 0; lang_op(module, op, v); v++) {
    const char *p = lang_op(module, op, v)->precision;
    bool known = !p;
    for (int i = 0; i < n; i++) known = known || !strcmp(out[i], p);
    if (!known && n < max) out[n++] = p;
  }
  return n;
}

/* One row of weights with one code among them that is no number would make every result no number, and equal whatever is wrong. */
static void one_row(void) {
  const OpDecl *op = NULL;
  for (int i = 0; i < module->n_ops && !op; i++) if (takes_weights(module->op[i])) op = module->op[i];
  TEST("weights drawn in any format are numbers") {
    for (int i = 0; op && i < module->n_formats; i++) {
      Arena *a = arena_new("compile");
      const FormatDecl *f = module->format[i];
      KernData *d = NULL;
      KernSpec *s = NULL;
      KernCall call;
      Str text = {0};
      spec_text(op, f->name, 2, 1, f->block == 1 ? 64 : 2 * f->block, &text);
      Err *e = kern_call_parse(a, text.p, &call);
      if (!e) e = kern_call_build(a, module, &call, NULL, &s);
      for (uint64_t seed = 0; seed < 4 && !e; seed++) {
        e = kern_data_new(s, seed, &d);
        if (!e) e = kern_data_interp(d);
        if (!e) e = kern_data_compare(d, d);
        kern_data_free(d);
        d = NULL;
      }
      EXPECT_OK(e);
      str_free(&text);
      arena_free(a);
    }
  }
}

static void cross_all(void) {
  int n_found = 0;
  for (int i = 0; i < module->n_ops; i++) {
    const OpDecl *op = module->op[i];
    const char *precision[8];
    if (lang_op(module, op->name, 0) != op || !takes_weights(op)) continue;
    int n = precisions_of(op->name, precision, 8);
    for (int f = 0; f < module->n_formats; f++) cross(op, module->format[f], precision, n, f + n_found);
    n_found++;
  }
  TEST("ops that take weights are found") EXPECT(n_found >= 2, "found %d", n_found);
}

/* ---- the others ---------------------------------------------------------------------------------------------------- */
static void replace(const char *text, const char *word, const char *by, Str *out) { /* whole words */
  size_t n = strlen(word);
  for (const char *p = text; *p;) {
    bool starts = p == text || !((p[-1] >= 'a' && p[-1] <= 'z') || (p[-1] >= 'A' && p[-1] <= 'Z'));
    if (starts && !strncmp(p, word, n) && (p[n] == '[' || p[n] == ',' || p[n] == ']')) str_add(out, by), p += n;
    else str_add_c(out, *p++);
  }
}

static void check_line(const char *line) {
  static const char *const rows[] = {"1", "2", "3", "5", "13"}, *const kv[] = {"f32", "f16", "bf16"};
  int n_kv = strstr(line, "KV") ? 3 : 1;
  TEST(line) {
    Arena *a = arena_new("compile");
    sets_new();
    for (int k = 0; k < n_kv; k++) {
      for (size_t r = 0; r < COUNT_OF(rows); r++) {
        Str one = {0}, two = {0};
        replace(line, "M", rows[r], &one);
        replace(one.p, "KV", kv[k], &two);
        check_text(a, two.p, r % 2 ? "f32" : "int8", r + 1); /* where an op has no text for int8 it is the same one */
        str_free(&one);
        str_free(&two);
        arena_reset(a);
      }
    }
    arena_free(a);
  }
}

static void spec_file(void) {
  Str text = {0};
  Err *e = os_read_file("tests/kern/ops.specs", 1 << 20, &text);
  if (e) { TEST("tests/kern/ops.specs") EXPECT_OK(e); return; }
  bool *seen = calloc((size_t)module->n_ops, sizeof *seen);
  if (!seen) abort();
  for (char *line = strtok(text.p, "\n"); line; line = strtok(NULL, "\n")) {
    if (*line == '#') continue;
    for (int i = 0; i < module->n_ops; i++) {
      size_t n = strlen(module->op[i]->name);
      seen[i] |= !strncmp(line, module->op[i]->name, n) && line[n] == ' ';
    }
    check_line(line);
  }
  for (int i = 0; i < module->n_ops; i++)
    if (!seen[i] && !takes_weights(module->op[i]) && lang_op(module, module->op[i]->name, 0) == module->op[i]) TEST_SKIP(module->op[i]->name, "no line in tests/kern/ops.specs gives it dimensions");
  free(seen);
  str_free(&text);
}

/* ---- the harness itself -------------------------------------------------------------------------------------------- */
static KernSpec *build(Arena *a, const char *text, const char *precision) {
  KernCall call;
  KernSpec *s = NULL;
  Err *e = kern_call_parse(a, text, &call);
  if (!e) e = kern_call_build(a, module, &call, precision, &s);
  EXPECT_OK(e);
  return s;
}

static void can_fail(void) {
  Arena *a = arena_new("compile");
  TEST("other data gives other results") {
    KernSpec *s = build(a, "linear w=q4_0[20,64] x=f32[3,64]", "int8");
    KernData *one = NULL, *two = NULL;
    EXPECT_OK(kern_data_new(s, 1, &one));
    EXPECT_OK(kern_data_new(s, 2, &two));
    EXPECT_OK(kern_data_interp(one));
    EXPECT_OK(kern_data_interp(two));
    Err *e = kern_data_compare(one, two);
    EXPECT(e != NULL);
    err_free(e);
    kern_data_free(one);
    kern_data_free(two);
  }
  TEST("results that nobody made are found") {
    KernSpec *s = build(a, "add a=f32[3,20] b=f32[3,20]", "f32");
    KernData *one = NULL, *two = NULL;
    EXPECT_OK(kern_data_new(s, 1, &one));
    EXPECT_OK(kern_data_new(s, 1, &two));
    EXPECT_OK(kern_data_interp(one));
    Err *e = kern_data_compare(one, two);
    EXPECT(e && strstr(err_text(e), "y[0][0]"));
    err_free(e);
    e = kern_data_compare(two, two);
    EXPECT(e && strstr(err_text(e), "no number"));
    err_free(e);
    kern_data_free(one);
    kern_data_free(two);
  }
  TEST("positions outside the state are refused") {
    KernData *d = NULL;
    KernSpec *s = build(a, "keep_values x=f32[2,2,24] pos=i32[2]=256 v=f16[1,2,8,32,24]", "f32");
    Err *e = kern_data_new(s, 1, &d);
    EXPECT(e && strstr(err_text(e), "indexed outside"));
    err_free(e);
  }
  TEST("rows left open need a number to run") {
    KernData *d = NULL;
    Err *e = kern_data_new(build(a, "add a=f32[M,20] b=f32[M,20]", "f32"), 1, &d);
    EXPECT(e && strstr(err_text(e), "must be known"));
    err_free(e);
  }
  arena_free(a);
}

static void work(void) {
  static const struct { const char *text, *precision; double ints, floats; } row[] = {
    {"linear w=f32[7,64] x=f32[3,64]", "f32", 0, 3 * 7 * 64},
    {"linear w=q4_k[7,512] x=f32[3,512]", "int8", 3 * 7 * 512, 3 * 16}, /* the offsets meet sums of activations */
    {"linear w=q4_k[7,512] x=f32[3,512]", "f32", 0, 3 * 7 * 512},
    {"embed w=f16[7,64] t=i32[3]", "f32", 0, 0},
    {"rms_norm x=f32[3,64] w=f32[64] eps=1e-5", "f32", 0, 3 * 64},
    {"attention q=f32[2,4,24] k=f16[1,2,8,24,32] v=f16[1,2,8,32,24] pos=i32[2]=10 scale=1", "f32", 0, 4 * (10 + 11) * 24 * 2 + 2 * 4 * (1 + 24)},
  };
  TEST("work is counted from the statements") {
    for (size_t i = 0; i < COUNT_OF(row); i++) {
      Arena *a = arena_new("compile");
      KernSpec *s = build(a, row[i].text, row[i].precision);
      KernData *d = NULL;
      EXPECT_OK(kern_data_new(s, 1, &d));
      KernWork w = kern_data_work(d);
      EXPECT(w.int_madds == row[i].ints && w.f32_madds == row[i].floats, "%s: %g of ints, %g of floats, expected %g and %g", row[i].text, w.int_madds, w.f32_madds, row[i].ints, row[i].floats);
      kern_data_free(d);
      arena_free(a);
    }
  }
}

/* ---- specs --------------------------------------------------------------------------------------------------------- */
static void errors(void) {
  static const char *const row[][2] = {
    {"", "expected the name of an op"},
    {"linaer w=f32[3,5] x=f32[2,5]", "no such op; did you mean 'linear'?"},
    {"linear w=q4_9[3,32] x=f32[2,32]", "no such format; did you mean"},
    {"linear v=f32[3,5] x=f32[2,5]", "op linear: parameter 'v': no such parameter"},
    {"linear w=f32[3,5]", "parameter x is missing; it takes x, w, most"},
    {"linear w=q4_0[3,5] x=f32[2,5]", "rows of 5 are not whole blocks of 32"},
    {"linear w=q4_0[3,32] x=f32[2,64]", "w: dimension 1 is 32, expected 64"},
    {"linear w=q4_0[3,32] x=f16[2,32]", "type f16, expected f32"},
    {"linear w=q4_0[3,32] x=f32[2,2,32]", "got 3 dimensions, expected 2"},
    {"linear w=q4_0[N,32] x=f32[2,32]", "dimension 0 is N, expected a number"},
    {"linear w=q4_0[3,32] x=1", "got a number, expected a type with 2 dimensions"},
    {"linear w=q4_0[3,32] x=f32[2,32] most=f32[2]", "got a tensor, expected a number"},
    {"linear w=q4_0[3,32] x=f32[2,32] most=1.5", "expected a whole number"},
    {"linear w=q4_0[3,32] x=f32[2,32] x=f32[2,32]", "parameter x is given twice"},
    {"linear w=q4_0[3,0] x=f32[2,32]", "a dimension of at least 1"},
    {"linear w=q4_0[3,99999999999999999999] x=f32[2,32]", "a number below 2^40"},
    {"linear w=q4_0[3,32", "expected ',' or ']'"},
    {"linear w=q4_0[3,32]x=f32[2,32]", "expected a blank"},
    {"linear w", "expected '='"},
    {"linear w=", "expected a number, or a type"},
    {"linear w=q4_0[1,1,1,1,1,1,1] x=f32[2,32]", "at most 6 dimensions"},
    {"add a=f32[2,5] b=f32[3,5]", "b: dimension 0 (M) is 3, elsewhere it is 2"},
    {"keep_values x=f32[2,2,24] pos=i32[2]", "result v needs a format and dimensions"},
{"keep_values x=f32[2,2,24] pos=i32[2] v=q8_0[1,2,8,32,24]", "v: dimension 4 is 24 elements, which are no whole blocks of format q8_0: it has 32 elements a block"},
    {"keep_keys x=f32[2,2,48] pos=i32[2] k=q8_0[1,2,8,48,32]", "k: dimension 3 is 48 elements, which are no whole blocks of format q8_0: it has 32 elements a block"},
    {"keep_values x=f32[2,2,256] pos=i32[2] v=iq2_xs[1,2,8,32,256]", "its text has no encode"},
    {"keep_values x=f32[2,2,64] pos=i32[2] v=q8_9[1,2,8,32,64]", "q8_9"},
    {"rms_norm x=f32[1,5] w=f32[5]", "parameter eps is missing"},
    {"rope_table pos=i32[2]=99999999999 f=f32[3]", "a number below 2^31"},
  };
  Arena *a = arena_new("compile");
  for (size_t i = 0; i < COUNT_OF(row); i++) {
    char name[120];
    snprintf(name, sizeof name, "spec '%s' is refused", row[i][0]);
    TEST(name) {
      KernCall call;
      KernSpec *s;
      Err *e = kern_call_parse(a, row[i][0], &call);
      if (!e) e = kern_call_build(a, module, &call, "int8", &s);
      EXPECT(e && strstr(err_text(e), row[i][1]), "said %s, expected %s", e ? err_text(e) : "nothing", row[i][1]);
      err_free(e);
    }
  }
  TEST("specs print as they were written") {
    static const char *const text[] = {"linear w=q4_k[4096,4096] x=f32[M,4096] most=16", "rms_norm x=f32[8,576] w=f32[576] eps=1e-05", "op p=i32[4]=600 q=-3 r=0.1 s=12345678.5"};
    for (size_t i = 0; i < COUNT_OF(text); i++) {
      KernCall call;
      Str s = {0};
      EXPECT_OK(kern_call_parse(a, text[i], &call));
      kern_call_print(&call, &s);
      EXPECT(!strcmp(s.p, text[i]), "%s from %s", s.p, text[i]);
      str_free(&s);
    }
  }
  arena_free(a);
}

/* Two functions whose keys have one hash: hash_bytes is quick, not hard to fool, and texts are from outside. */
static void keys(void) {
  static const char *const twin[] = {"aZEaAs2m9vTK3R6CX0", "aZEaLU1Bh89p4WLBN7"};
  Arena *a = arena_new("keys");
  Kerns *k = NULL;
  int64_t front[2] = {3, 0}; /* what kern/build.c writes before a function's name */
  Str key[2] = {{0}, {0}};
  for (int i = 0; i < 2; i++) str_add_n(&key[i], front, sizeof front), str_add(&key[i], twin[i]);
  TEST("two keys have one hash") EXPECT(hash_bytes(key[0].p, key[0].n, 0) == hash_bytes(key[1].p, key[1].n, 0), "find others: the hash is another now");
  TEST("and are two kernels") {
    EXPECT_OK(kern_set_new(NULL, false, &k));
    for (int i = 0; i < 4; i++) {
      IrFn *fn;
      const Kern *kern;
      uint8_t scratch[64] = {0};
      void *args[1] = {NULL};
      EXPECT_OK(ir_fn_parse(a, arena_printf(a, "fn @%s(%%1: ptr<ptr[?], args>, %%2: i64, %%3: i64, %%4: ptr<u8[?], scratch>) {\nb0(%%1, %%2, %%3, %%4):\n  %%5 = const i32 %d\n  store.i32 %%4 + 0, %%5\n  ret\n}\n", twin[i % 2], 7 + i % 2), &fn));
      EXPECT_OK(kern_fn(k, fn, &kern));
      kern->entry(args, 0, 1, scratch);
      EXPECT(scratch[0] == 7 + i % 2 && kern_n_built(k) == MIN(i + 1, 2), "call %d stored %d, %d kernels", i, scratch[0], kern_n_built(k));
    }
    kern_set_free(k);
  }
  for (int i = 0; i < 2; i++) str_free(&key[i]);
  arena_free(a);
}

static void peak(void) {
  TEST("peaks are measured") {
    for (int i = 0; i < n_targets; i++) {
      Kerns *k = NULL;
      KernPeak p = {0};
      EXPECT_OK(kern_set_new(target[i], false, &k));
      EXPECT_OK(kern_peak(k, pool, 1 << 20, &p));
      EXPECT(p.f32_madds_per_s > 1e7 && p.int_madds_per_s > 1e7 && p.read_bytes_per_s > 1e7, "%s: %g %g %g", target[i]->name, p.f32_madds_per_s, p.int_madds_per_s, p.read_bytes_per_s);
      kern_set_free(k);
    }
  }
  TEST("threads beyond the processors raise no peak") {
    DevPool *few = NULL, *many = NULL;
    Kerns *k = NULL;
    KernPeak p = {0}, q = {0};
    EXPECT_OK(dev_pool_new(os_n_cpus(), &few));
    EXPECT_OK(dev_pool_new(MIN(16 * os_n_cpus(), 1024), &many));
    EXPECT_OK(kern_set_new(NULL, false, &k));
    EXPECT_OK(kern_peak(k, few, 1 << 20, &p));
    EXPECT_OK(kern_peak(k, many, 1 << 20, &q));
    EXPECT(q.f32_madds_per_s < 4 * p.f32_madds_per_s, "%g of few, %g of many", p.f32_madds_per_s, q.f32_madds_per_s);
    kern_set_free(k);
    dev_pool_free(few);
    dev_pool_free(many);
  }
}

int main(void) {
  Arena *a = arena_new("forever");
  Err *e = lang_std_load(a, NULL, &module);
  EXPECT_OK(e);
  if (!module) return 1;
  for (int i = 0; i < gen_target_count(); i++) if (gen_target_runs(gen_target_get(i), kern_cpu())) target[n_targets++] = gen_target_get(i);
  EXPECT_OK(dev_pool_new(3, &pool));
  signal(SIGSEGV, on_fault);
  signal(SIGBUS, on_fault);
  signal(SIGILL, on_fault);
  errors();
  can_fail();
  work();
  keys();
  one_row();
  peak();
  spec_file();
  cross_all();
  for (int i = 0; i < n_targets; i++) kern_set_free(set[i]);
  dev_pool_free(pool);
  arena_free(a);
  TEST_MAIN_END();
}
