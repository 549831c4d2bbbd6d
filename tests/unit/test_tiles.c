/* Matrix tiles: machine code of a target with tiles against the interpreter's plain form, bit for bit, every format in both precisions that tiles
   serve, and the tile operations alone. Where the processor has none, tile_emu.h does its instructions one by one, if it has the rest of the target;
   there also: that the target is refused with what is missing. The schedule itself is interpreted on any machine by test_opt.

   A whole machine emulated by Bochs 3.0 is no judge of this: that version extends the signed bytes of products with zeros, and gets
   int8 over q4_k wrong in plain AVX-512 as well, to the same bits, where a processor is right. */
#include <math.h>
#include <string.h>
#include "kern/kern.h"
#include "test.h"
#include "tile_emu.h"

static Module *module;
static DevPool *pool;
static const char *how = ""; /* the tiles' instructions are done */

static const Target *with_tiles(void) {
  for (int i = 0; i < gen_target_count(); i++) if (gen_target_get(i)->tiles) return gen_target_get(i);
  return NULL;
}

/* ---- the operations alone ---------------------------------------------------------------------------------------------- */
typedef struct Mem { uint8_t a[16][64], b[16][64], c[16][64], out[16][64]; } Mem;
static uint64_t rng_state = 88172645463325252ull;
static uint32_t rng(void) {
  rng_state ^= rng_state << 13, rng_state ^= rng_state >> 7, rng_state ^= rng_state << 17;
  return (uint32_t)(rng_state >> 32);
}

static IrFn *ops_fn(Arena *a, bool pairs, int bytes) {
  Str s = {0};
  IrFn *fn = NULL;
  str_addf(&s, "fn @tiles.%s.%d(%%1: ptr<ptr[1], args>, %%2: i64, %%3: i64, %%4: ptr<u8, scratch>) {\nb0(%%1, %%2, %%3, %%4):\n"
               "  %%5 = load.ptr ptr<u8, global> %%1 + 0\n  %%6 = const i64 64\n  tbegin %d\n"
               "  tload %%5 + 0, %%6 tile 4\n  tload %%5, %%6*8 + 512, %%6 tile 7\n  tload %%5 + 2048, %%6 tile 2\n  tzero 1\n"
               "  %s 1858\n  %s 1857\n  %s 1858\n  tstore %%5 + 3072, %%6 tile 2\n  tend\n  ret\n}\n",
           pairs ? "pairs" : "bytes", bytes, bytes, pairs ? "tdot2" : "tdot4", pairs ? "tdot2" : "tdot4", pairs ? "tdot2" : "tdot4");
  EXPECT_OK(ir_fn_parse(a, s.p, &fn));
  str_free(&s);
  if (fn) EXPECT_OK(ir_fn_verify(fn));
  return fn;
}

/* bf16 of all magnitudes that no sum of products makes infinite; denormals among them, operands and sums, which tiles take as 0. */
static void fill(Mem *m, bool pairs, bool positive) {
  for (size_t i = 0; i < sizeof *m; i += 2) {
    uint16_t h = (uint16_t)rng();
    if (pairs && i < offsetof(Mem, c)) h = (uint16_t)((h & 0x807f) | (rng() % 8 ? 0x3f00 + (rng() % 16 << 7) : rng() % 0x20 << 7));
    memcpy((uint8_t *)m + i, &h, 2);
  }
  for (size_t i = 0; i < sizeof m->a && positive; i++) ((uint8_t *)m->a)[i] &= 127;
  for (int r = 0; r < 16 && pairs; r++)
    for (int n = 0; n < 16; n++) {
      float f = rng() % 4 ? (float)(int32_t)rng() * 0x1p-30f : (float)(rng() % 5) * 0x1p-127f;
      memcpy(&m->c[r][4 * n], &f, 4);
    }
}

static float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

static void plain_ops(const Mem *m, bool pairs, int bytes, uint8_t out[16][64]) {
  memcpy(out, m->c, 1024);
  for (int time = 0; time < 2; time++)
    for (int r = 0; r < 16; r++)
      for (int n = 0; n < 16; n++) {
        uint32_t sum;
        memcpy(&sum, &out[r][4 * n], 4);
        if (!pairs) {
          for (int k = 0; k < bytes; k++) sum += (uint32_t)((int8_t)m->a[r][k] * (int32_t)m->b[k / 4][4 * n + k % 4]);
        } else {
          float f = f32_from_bits(sum), half[2] = {0, 0};
          for (int k = 0; k < bytes / 2; k++) {
            uint16_t p, q;
            memcpy(&p, &m->a[r][2 * k], 2);
            memcpy(&q, &m->b[k / 2][4 * n + 2 * (k % 2)], 2);
            float x = flushed(bf16_to_f32(p)), y = flushed(bf16_to_f32(q)), z = fmaf(x, y, half[k % 2]);
            half[k % 2] = flushed(z);
          }
          float both = half[0] + half[1];
          both = flushed(both);
          f = flushed(f) + both;
          sum = f32_to_bits(flushed(f));
        }
        memcpy(&out[r][4 * n], &sum, 4);
      }
}

static void ops(Kerns *set) {
  static const struct { bool pairs; int bytes; bool positive; } row[] = {
      {false, 64, false}, {false, 32, false}, {false, 16, false}, {false, 20, false}, {true, 64, false}, {true, 32, false},
      {false, 64, true}}; /* some emulators extend signed bytes with zeros: this one row tells that from a wrong layout */
  for (size_t i = 0; i < COUNT_OF(row); i++) {
    char name[80];
    snprintf(name, sizeof name, "%s of %d bytes%s: %s%s", row[i].pairs ? "tdot2" : "tdot4", row[i].bytes, row[i].positive ? ", none negative" : "", set ? "interpreted and run" : "interpreted", set ? how : "");
    TEST(name) {
      Arena *a = arena_new("compile");
      IrFn *fn = ops_fn(a, row[i].pairs, row[i].bytes);
      const Kern *k = NULL;
      if (set && fn) EXPECT_OK(kern_fn(set, ir_fn_clone(a, fn), &k));
      for (int trial = 0; trial < 20 && fn; trial++) {
        static Mem m, run;
        uint8_t want[16][64];
        fill(&m, row[i].pairs, row[i].positive);
        run = m;
        void *args[1] = {&m}, *run_args[1] = {&run};
        uint64_t in[4] = {(uint64_t)(uintptr_t)args, 0, 1, 0};
        EXPECT_OK(ir_interp(fn, in, 4, NULL, 0, 1 << 20));
        plain_ops(&m, row[i].pairs, row[i].bytes, want);
        EXPECT(!memcmp(want, m.out, 1024), "interpreted: not what its meaning says");
        if (!k) continue;
        k->entry(run_args, 0, 1, NULL);
        EXPECT(!memcmp(want, run.out, 1024), "run: differs from its meaning");
      }
      arena_free(a);
    }
  }
}

/* ---- products ----------------------------------------------------------------------------------------------------------- */
typedef struct Shape { int M, N; int64_t blocks; } Shape; /* blocks: K, in blocks of 256, or of 96 where the format's blocks divide that */

static void product(Arena *a, const char *format, const char *precision, int64_t K, Shape shape, Kerns *set) {
  KernCall call;
  KernSpec *s;
  char text[200];
  snprintf(text, sizeof text, "linear w=%s[%d,%lld] x=f32[%d,%lld]", format, shape.N, (long long)K, shape.M, (long long)K);
  Err *e = kern_call_parse(a, text, &call);
  call.narrow = true;
  if (!e) e = kern_call_build(a, module, &call, precision, &s);
  if (!e) e = kern_check(s, &set, 1, 1, pool, NULL);
  EXPECT_OK(err_wrap(e, "%s", precision));
}

/* only: formats to try, by name; none: all. */
static void products(Kerns *set, char **only) {
  static const Shape shape[] = {{51, 19, 1}, {17, 19, 2}}; /* rows: a pair of tiles, one more and some left over; one and one left over */
  for (int i = 0; i < module->n_formats; i++) {
    const FormatDecl *f = module->format[i];
    char name[80];
    bool wanted = !*only;
    for (char **o = only; *o; o++) wanted |= !strcmp(*o, f->name);
    if (!wanted) continue;
    snprintf(name, sizeof name, "linear over %s, run in tiles%s", f->name, how);
    TEST(name) {
      Arena *a = arena_new("compile");
      FormatForm *form = NULL;
      EXPECT_OK(format_analyze(a, module, f, &form));
      int64_t block = !form || 96 % form->block ? 256 : 96;
      for (size_t k = 0; k < COUNT_OF(shape); k++) {
        int64_t K = f->block == 1 ? block : shape[k].blocks * block; /* random bytes as numbers: a longer row always has one that is none */
        if (form && form->integer) product(a, f->name, "int8", K, shape[k], set);
        product(a, f->name, "bf16", K, shape[k], set);
      }
      arena_free(a);
    }
  }
}

/* ---- code without running it ---------------------------------------------------------------------------------------------- */
static int count(const char *text, const char *word) {
  int n = 0;
  for (const char *p = text; (p = strstr(p, word)); p++) n++;
  return n;
}

static void code_of(const Target *t, const char *precision, const char *product_ins) {
  Arena *a = arena_new("compile");
  KernCall call;
  KernSpec *s = NULL;
  EXPECT_OK(kern_call_parse(a, "linear w=q4_0[64,256] x=f32[M,256]", &call));
  call.narrow = true;
  EXPECT_OK(kern_call_build(a, module, &call, precision, &s));
  int n_products = 0, n_configs = 0, n_releases = 0;
  for (int i = 0; s && i < s->plan->n_regions; i++) {
    Sched sched = kern_sched(t, 1 << 20, s->plan, i, KERN_MANY);
    IrFn *fn;
    int64_t scratch;
    GenCode code;
    Err *e = lower_region(a, s->plan, i, &sched, "k", &fn, &scratch);
    if (!e) e = ir_fn_verify(fn);
    if (!e) e = opt_pipeline(fn);
    if (!e) e = gen_compile(a, fn, t, &(GenOptions){.want_text = true}, &code);
    EXPECT_OK(e);
    if (e) break;
    n_products += count(code.text, product_ins);
    n_configs += count(code.text, "ldtilecfg");
    n_releases += count(code.text, "tilerelease");
  }
  EXPECT(n_products >= 1 && n_configs == 1 && n_releases == 1, "%d products, %d configurations, %d releases", n_products, n_configs, n_releases);
  arena_free(a);
}

/* The processor has tiles, even if this process may not use them: then not every instruction of theirs raises a signal. */
static bool has_tiles(void) {
  DevCpu d;
  dev_cpu_detect(&d);
  return d.amx_tile;
}

int main(int argc, char **argv) {
  (void)argc;
  Arena *a = arena_new("forever");
  EXPECT_OK(lang_std_load(a, NULL, &module));
  const Target *t = with_tiles();
  if (!module || !t) return 1;
  Kerns *set = NULL;
  const Target *best = NULL;
  Err *e = NULL;
  EXPECT_OK(dev_pool_new(2, &pool));
  TEST("code for tiles is made on any machine") {
    code_of(t, "int8", "tdpbsud");
    code_of(t, "bf16", "tdpbf16ps");
  }
  if (gen_target_runs(t, kern_cpu())) EXPECT_OK(kern_set_new(t, false, &set));
  else if (!(e = kern_target_host(&best))) {
    TEST("a machine without tiles is told so") {
      e = kern_set_new(t, false, &set);
      EXPECT(e && err_kind(e) == ERR_UNSUPPORTED && strstr(err_text(e), t->name) && strstr(err_text(e), "matrix tiles"), "%s", e ? err_text(e) : "no error");
      EXPECT(best && !best->tiles, "tiles were chosen");
    }
  } else printf("skip - a machine without tiles is told so: no target is for this processor yet\n");
  Target plain = *t; /* refused with tiles, and asked for without: what is missing is done by tile_emu.h */
  plain.tiles = false;
  bool emulated = !set && !has_tiles() && gen_target_runs(&plain, kern_cpu()) && emu_begin();
  if (emulated) {
    EXPECT_OK(kern_set_new(&plain, false, &set));
    plain.tiles = true;
    how = ", by emulation";
  }
  ops(set);
  if (set) products(set, argv + 1);
  else TEST_SKIP("linear over every format, run in tiles", e ? err_text(e) : "no tiles");
  if (emulated) TEST("tiles were used") EXPECT(emu_count() > 1000, "%lld instructions emulated", (long long)emu_count());
  err_free(e);
  kern_set_free(set);
  dev_pool_free(pool);
  arena_free(a);
  TEST_MAIN_END();
}
