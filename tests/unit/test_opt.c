/* The lowering against itself: every op of std over every format, scheduled forms (lanes, register tiles, panels, packed weights) against
   the plain scalar form over raw blocks, both run by the interpreter, bit for bit. Decoding against an independent decoder's goldens. */
#include <math.h>
#include "lang/lang.h"
#include "opt/opt.h"
#include "test.h"

static uint64_t rng_state = 88172645463325252ull;
static uint32_t rng(void) {
  rng_state ^= rng_state << 13;
  rng_state ^= rng_state >> 7;
  rng_state ^= rng_state << 17;
  return (uint32_t)(rng_state >> 16);
}
static float rng_f(void) { return (float)((int)(rng() % 2001) - 1000) / 500.0f; }

typedef struct Mem { uint8_t *p; int64_t n; } Mem;
typedef struct Run { TpPlan *plan; Mem *mem; Mem *packed; int64_t sym[8]; } Run;

static float fill_scale = 1; /* of the floats that plans are filled with; else than 1: they spread over 16 powers of two below it */

static void *alloc(int64_t n) {
  void *p = calloc(1, (size_t)n + 256);
  if (!p) abort();
  return p;
}

static float filled(void) {
  float v = rng_f() * fill_scale;
  return fill_scale < 1 ? ldexpf(v, -(int)(rng() % 16)) : v;
}

/* Blocks of any format with sane small floats: random bytes, exponents of f16 fields pulled into range. */
static void fill_blocks(const FormatForm *f, uint8_t *p, int64_t n_blocks) {
  for (int64_t b = 0; b < n_blocks; b++) {
    uint8_t *q = p + b * f->n_bytes;
    for (int i = 0; i < f->n_bytes; i++) q[i] = (uint8_t)rng();
    for (int k = 0; k < f->decl->n_fields; k++) {
      const Field *fl = &f->decl->field[k];
      for (int64_t i = 0; i < fl->count; i++) {
        float v = filled();
        uint16_t h = !strcmp(fl->elt, "f16") ? f32_to_f16(v / 8) : f32_to_bf16(v);
        if (!strcmp(fl->elt, "f16") || !strcmp(fl->elt, "bf16")) memcpy(q + fl->offset + 2 * i, &h, 2);
        if (!strcmp(fl->elt, "f32")) memcpy(q + fl->offset + 4 * i, &v, 4);
      }
    }
  }
}

static void pack(Arena *a, const FormatForm *f, int64_t K, int64_t N, const uint8_t *raw, Mem *out) {
  IrFn *fn;
  Err *err = lower_pack(a, f, K, "pack", &fn);
  EXPECT_OK(err);
  if (err) return;
  EXPECT_OK(ir_fn_verify(fn));
  EXPECT_OK(opt_pipeline(fn));
  PackLayout l = format_layout(f, K);
  int64_t tiles = (N + 15) / 16, row = K / f->block * f->n_bytes;
  *out = (Mem){alloc(tiles * l.tile_bytes), tiles * l.tile_bytes};
  const void **base = alloc(tiles * 8);
  int32_t *offs = alloc(tiles * 64);
  for (int64_t t = 0; t < tiles; t++) {
    base[t] = raw + t * 16 * row;
    for (int64_t r = 0; r < 16; r++) offs[t * 16 + r] = (int32_t)((MIN(t * 16 + r, N - 1) - t * 16) * row);
  }
  void *args[FORMAT_MAX_ARGS] = {base, offs, out->p};
  format_table_args(f, args);
  uint8_t scratch[256];
  uint64_t in[4] = {(uint64_t)(uintptr_t)args, 0, (uint64_t)tiles, (uint64_t)(uintptr_t)scratch};
  EXPECT_OK(ir_interp(fn, in, 4, NULL, 0, (int64_t)1 << 40));
  free(base);
  free(offs);
}

static int n_in_tiles; /* regions that ran in matrix tiles */

/* A schedule with n_matrix asks for matrix tiles where the region's sums fit them. */
static void run_region(Arena *a, Run *r, int i, const Sched *asked, bool through_passes) {
  Sched sched = *asked, *s = &sched;
  if (s->n_matrix && !lower_matrix(r->plan, i, s)) s->n_matrix = 0;
  n_in_tiles += s->n_matrix > 0;
  IrFn *fn;
  int64_t scratch_bytes;
  Err *err = lower_region(a, r->plan, i, s, r->plan->region[i].name, &fn, &scratch_bytes);
  EXPECT_OK(err);
  if (err) return;
  EXPECT_OK(ir_fn_verify(fn));
  if (through_passes) {
    EXPECT_OK(opt_pipeline(fn));
    EXPECT_OK(ir_fn_verify(fn));
  }
  const TpRegion *rg = &r->plan->region[i];
  uint64_t *args = alloc(8 * (rg->n_args + 1));
  for (int k = 0; k < rg->n_args; k++) {
    int w = rg->arg[k];
    if (w < 0) args[k] = (uint64_t)r->sym[~w];
    else if (w >= TP_TABLE) args[k] = (uint64_t)(uintptr_t)r->plan->tp->table[w - TP_TABLE];
    else args[k] = (uint64_t)(uintptr_t)(r->plan->tp->buf[w].fmt && !r->plan->tp->buf[w].raw && !s->naive ? r->packed[w].p : r->mem[w].p);
  }
  void *scratch = alloc(scratch_bytes);
  uint64_t in[4] = {(uint64_t)(uintptr_t)args, 0, (uint64_t)region_items(r->plan, i, s, r->sym), (uint64_t)(uintptr_t)scratch};
  EXPECT_OK(ir_interp(fn, in, 4, NULL, 0, (int64_t)1 << 40));
  free(args);
  free(scratch);
}

/* Bit for bit; which NaN it is, the texts leave open, and compilers of interp differ in it. */
static bool same_number(IrMem mem, const uint8_t *a, const uint8_t *b) {
  float x, y;
  if (!memcmp(a, b, (size_t)ir_mem_bytes[mem])) return true;
  if (mem != IR_M_f32) return false;
  memcpy(&x, a, sizeof x), memcpy(&y, b, sizeof y);
  return isnan(x) && isnan(y);
}

/* Called with the plan's memory after the plain form has run. */
typedef void Seen(Tp *tp, const Mem *mem, const int64_t *sym);

/* Fills inputs and weights of a plan, runs it in the plain form and with schedule s, compares buffer `out`; seen may be NULL. */
static bool same_bits(Arena *a, Tp *tp, int out, const int64_t *sym, const int32_t *ints, const Sched *scheds, int n_scheds, Seen *seen, const char *what) {
  Run r = {0};
  EXPECT_OK(tp_plan(tp, &r.plan));
  if (!r.plan) return false;
  memcpy(r.sym, sym, sizeof r.sym);
  r.mem = alloc((int64_t)sizeof(Mem) * tp->n_bufs);
  r.packed = alloc((int64_t)sizeof(Mem) * tp->n_bufs);
  for (int b = 0; b < tp->n_bufs; b++) {
    TpBuf *t = &tp->buf[b];
    if (t->alias != b) continue;
    int64_t K = 0, N = 0;
    if (t->fmt) {
      dx_is_int(tp->dag, t->dim[0], &N);
      dx_is_int(tp->dag, t->dim[1], &K);
      r.mem[b] = (Mem){alloc(N * K / t->fmt->block * t->fmt->n_bytes), 0};
      fill_blocks(t->fmt, r.mem[b].p, N * K / t->fmt->block);
      if (!t->raw) pack(a, t->fmt, K, N, r.mem[b].p, &r.packed[b]);
      continue;
    }
    r.mem[b] = (Mem){alloc(tp_buf_bytes(tp, b, sym)), tp_buf_bytes(tp, b, sym)};
    if (t->role == BUF_TEMP) continue;
    for (int64_t i = 0; i < r.mem[b].n / ir_mem_bytes[t->mem]; i++) {
      float v = filled();
      uint16_t h = f32_to_f16(v);
      if (t->mem == IR_M_f32) memcpy(r.mem[b].p + 4 * i, &v, 4);
      if (t->mem == IR_M_f16) memcpy(r.mem[b].p + 2 * i, &h, 2);
      if (t->mem == IR_M_i32) memcpy(r.mem[b].p + 4 * i, &ints[i % 64], 4);
    }
  }
  Sched naive = {.naive = true, .lanes = 1, .tile = {1}, .n_tiles = 1};
  uint8_t *want = NULL;
  int64_t n = r.mem[out].n;
  bool ok = true;
  for (int k = -1; k < n_scheds; k++) {
    if (tp->buf[out].role != BUF_STATE) memset(r.mem[out].p, 0, (size_t)n);
    for (int i = 0; i < r.plan->n_regions; i++) run_region(a, &r, i, k < 0 ? &naive : &scheds[k], k >= 0);
    if (k < 0) {
      want = alloc(n);
      memcpy(want, r.mem[out].p, (size_t)n);
      if (seen) seen(tp, r.mem, sym);
      continue;
    }
    /* rows are padded: compare what has a meaning */
    int64_t rows = tp_buf_rows(tp, out, sym), stride = tp_row_elems(tp, out), len = 1, d;
    for (int i = 1; i < tp->buf[out].n_dims; i++) if (dx_is_int(tp->dag, tp->buf[out].dim[i], &d)) len *= d;
    int es = ir_mem_bytes[tp->buf[out].mem];
    for (int64_t m = 0; m < rows && ok; m++)
      for (int64_t i = 0; i < len && ok; i++)
        if (!same_number(tp->buf[out].mem, want + (m * stride + i) * es, r.mem[out].p + (m * stride + i) * es)) {
          ok = false;
          EXPECT(false, "%s: schedule %d differs at [%lld][%lld]: %g, expected %g", what, k, (long long)m, (long long)i, (double)((float *)r.mem[out].p)[m * stride + i], (double)((float *)want)[m * stride + i]);
        }
  }
  for (int b = 0; b < tp->n_bufs; b++) free(r.mem[b].p), free(r.packed[b].p);
  free(want);
  free(r.mem);
  free(r.packed);
  return ok;
}

static Module *std_module;

static int f32_buf(Tp *tp, const char *name, BufRole role, Dx d0, Dx d1, Dx d2) {
  TpBuf b = {.name = name, .role = role, .mem = IR_M_f32, .tag = -1};
  Dx d[3] = {d0, d1, d2};
  for (int i = 0; i < 3 && d[i]; i++) b.dim[b.n_dims++] = d[i];
  return tp_buf(tp, b);
}

static void linear_with(const char *format, const char *precision, int M, int N, int K, const Sched *s, int n_scheds, bool narrow, Seen *seen) {
  Arena *a = arena_new("compile");
  Tp *tp = tp_new(a, std_module, precision);
  tp->narrow = narrow;
  FormatForm *f;
  EXPECT_OK(tp_form(tp, format, &f));
  Dx m = dx_node(tp->dag, (DxNode){.kind = DX_SYM, .type = DT_INT, .ival = tp_sym(tp, "M")});
  int x = f32_buf(tp, "x", BUF_INPUT, m, dx_int(tp->dag, K), 0);
  int w = tp_buf(tp, (TpBuf){.name = "w", .role = BUF_WEIGHT, .fmt = f, .n_dims = 2, .dim = {dx_int(tp->dag, N), dx_int(tp->dag, K)}, .tag = 1});
  int y = f32_buf(tp, "y", BUF_OUTPUT, m, dx_int(tp->dag, N), 0);
  TpArg args[2] = {{.kind = TA_BUF, .buf = x}, {.kind = TA_BUF, .buf = w}};
  EXPECT_OK(tp_call(tp, "linear", args, 2, &y, 1, NULL));
  int64_t sym[8] = {M};
  int32_t ints[64] = {0};
  char what[128];
  snprintf(what, sizeof what, "%s %s M=%d N=%d K=%d", format, precision ? precision : "f32", M, N, K);
  same_bits(a, tp, y, sym, ints, s, n_scheds, seen, what);
  arena_free(a);
}

static void linear_case(const char *format, const char *precision, int M, int N, int K, Seen *seen) {
  Sched s[5] = {{.lanes = 16, .tile = {4, 1}, .n_tiles = 2}, {.lanes = 8, .tile = {3, 1}, .n_tiles = 2, .stage = true}, {.lanes = 4, .tile = {1}, .n_tiles = 1}, {.lanes = 16, .tile = {2, 1}, .n_tiles = 2, .stage = true}, {.lanes = 16, .tile = {2, 1}, .n_tiles = 2, .stage = true, .steps = true}};
  linear_with(format, precision, M, N, K, s, COUNT_OF(s), false, seen);
}

/* The interpreted tiles against the plain form: what a machine with them runs, checked on any. Rows: full tiles and some left over. */
static void tiles_case(const char *format, const char *precision, int M, int N, int K) {
  Sched s[1] = {{.lanes = 16, .tile = {3, 1}, .n_tiles = 2, .stage = true, .n_matrix = 1}};
  linear_with(format, precision, M, N, K, s, 1, true, NULL);
}

/* ---- the definition of linear, once more, in C: q8_0 and bf16 weights, in every precision ------------------------------ */
enum { REF_M = 3, REF_N = 7, REF_K = 128, REF_G = 32 };
static const char *ref_precision;
static bool ref_flush;
static uint64_t ref_sum; /* FNV-1a of the plain form's bits */

static float q8_0(const uint8_t *row, int k, float *scale, int *code) {
  uint16_t d;
  memcpy(&d, row + k / 32 * 34, 2);
  *scale = f16_to_f32(d);
  *code = (int8_t)row[k / 32 * 34 + 2 + k % 32];
  return *scale * (float)*code;
}

static float ref_int8(const float *x, const uint8_t *w) {
  float y = 0, scale = 0;
  for (int g = 0; g < REF_K; g += REF_G) {
    float t = 0;
    for (int k = 0; k < REF_G; k++) t = fmaxf(t, fabsf(x[g + k]));
    float s = t / 127.0f, r = t > 0 ? 127.0f / t : 0;
    int dot = 0, code;
    for (int k = 0; k < REF_G; k++) {
      q8_0(w, g + k, &scale, &code);
      dot += (int)rintf(x[g + k] * r) * code;
    }
    y = fmaf((float)dot * s, scale, y);
  }
  return y;
}

static float flushed(float v, bool flush) { return flush && fabsf(v) < 0x1p-126f ? copysignf(0, v) : v; }
static float ref_to_bf16(float v) {
  float r = bf16_to_f32(f32_to_bf16(v));
  return fabsf(r) < 0x1p-56f ? 0 : r;
}

/* As matrix tiles do it: every operand and result below 2^-126 is zero to them. The text sees to it that there are none. */
static float ref_bf16(const float *x, const uint16_t *w, bool flush) {
  float y = 0;
  for (int b = 0; b < REF_K; b += 32) {
    float half[2] = {0, 0};
    for (int i = 0; i < 32; i++) half[i % 2] = flushed(fmaf(flushed(ref_to_bf16(x[b + i]), flush), flushed(ref_to_bf16(bf16_to_f32(w[b + i])), flush), half[i % 2]), flush);
    float both = flushed(half[0] + half[1], flush);
    y = flushed(y + both, flush);
  }
  return y;
}

static float ref_f32(const float *x, const uint8_t *w) {
  float y = 0, scale;
  int code;
  for (int k = 0; k < REF_K; k++) y = fmaf(x[k], q8_0(w, k, &scale, &code), y);
  return y;
}

static void compare_reference(Tp *tp, const Mem *mem, const int64_t *sym) {
  int64_t stride_x = tp_row_elems(tp, 0), stride_y = tp_row_elems(tp, 2);
  bool bf16 = !strcmp(ref_precision, "bf16");
  ref_sum = 14695981039346656037ull;
  for (int m = 0; m < sym[0]; m++)
    for (int n = 0; n < REF_N; n++) {
      const float *x = (const float *)(const void *)mem[0].p + m * stride_x;
      const uint8_t *w = mem[1].p + (int64_t)n * (bf16 ? REF_K * 2 : REF_K / 32 * 34);
      float want = bf16 ? ref_bf16(x, (const uint16_t *)(const void *)w, ref_flush) : strcmp(ref_precision, "f32") ? ref_int8(x, w) : ref_f32(x, w);
      const uint8_t *y = mem[2].p + (m * stride_y + n) * 4;
      float got;
      memcpy(&got, y, 4);
      EXPECT(!memcmp(&got, &want, 4), "y[%d][%d] is %a, expected %a", m, n, (double)got, (double)want);
      for (int i = 0; i < 4; i++) ref_sum = (ref_sum ^ y[i]) * 1099511628211ull;
    }
}

/* The sums are the same on every processor that this program runs on: the interpreter means one thing. */
static void run_reference(void) {
  static const struct { const char *precision, *format; float scale; bool flush; const char *how; uint64_t sum; } row[] = {
      {"f32", "q8_0", 1, false, "", 0x244cb8d59df39c92ull},
      {"int8", "q8_0", 1, false, "", 0xeaafb5f988621fccull},
      {"bf16", "bf16", 1, false, "", 0x2ff1ef6c447138b5ull},
      {"bf16", "bf16", 0x1p-53f, false, ", products near the smallest float", 0},
      {"bf16", "bf16", 0x1p-53f, true, ", the same where denormals are flushed", 0}};
  for (size_t i = 0; i < COUNT_OF(row); i++) {
    char name[120];
    snprintf(name, sizeof name, "linear in %s: the bits of its definition in C, on every processor%s", row[i].precision, row[i].how);
    TEST(name) {
      rng_state = 88172645463325252ull;
      ref_precision = row[i].precision;
      ref_flush = row[i].flush;
      fill_scale = row[i].scale;
      ref_sum = 0;
      linear_case(row[i].format, row[i].precision, REF_M, REF_N, REF_K, compare_reference);
      EXPECT(!row[i].sum || ref_sum == row[i].sum, "sum %#llx, expected %#llx", (unsigned long long)ref_sum, (unsigned long long)row[i].sum);
      fill_scale = 1;
    }
  }
}

/* Every format: bytes where it has codes, pairs of bfloat16 in any case. */
static void run_tiles(void) {
  for (int i = 0; i < std_module->n_formats; i++) {
    const FormatDecl *f = std_module->format[i];
    Arena *a = arena_new("compile");
    FormatForm *form;
    EXPECT_OK(format_analyze(a, std_module, f, &form));
    char name[100];
    snprintf(name, sizeof name, "linear over %s in matrix tiles equals plain", f->name);
    TEST(name) {
      int K = 96 % f->block == 0 ? 96 : 256;
      n_in_tiles = 0;
      if (form->integer) tiles_case(f->name, "int8", 51, 21, K);
      EXPECT(!form->integer || n_in_tiles == 1, "no sums of bytes in tiles");
      n_in_tiles = 0;
      tiles_case(f->name, "bf16", 51, 18, K);
      EXPECT(n_in_tiles == 1 || !form->value, "no sums of pairs in tiles");
    }
    arena_free(a);
  }
}

int main(void) {
  Arena *a = arena_new("forever");
  EXPECT_OK(lang_std_load(a, NULL, &std_module));
  if (!std_module) return 1;
  for (int i = 0; i < std_module->n_formats; i++) {
    const FormatDecl *f = std_module->format[i];
    char name[80];
    snprintf(name, sizeof name, "linear over %s: scheduled equals plain", f->name);
    TEST(name) {
      int K = (int)MAX(f->block, 32) * 2;
      linear_case(f->name, NULL, 5, 19, K, NULL);
      linear_case(f->name, "int8", 5, 19, K, NULL);
      linear_case(f->name, "int8", 1, 16, K, NULL);
    }
  }
  run_reference();
  run_tiles();
  TEST("attention and rope: scheduled equals plain") {
    Arena *t = arena_new("compile");
    Tp *tp = tp_new(t, std_module, NULL);
    Dag *d = tp->dag;
    Dx m = dx_node(d, (DxNode){.kind = DX_SYM, .type = DT_INT, .ival = tp_sym(tp, "M")});
    int q = f32_buf(tp, "q", BUF_INPUT, m, dx_int(d, 4), dx_int(d, 24));
    int pos = tp_buf(tp, (TpBuf){.name = "pos", .role = BUF_INPUT, .mem = IR_M_i32, .n_dims = 1, .dim = {m}, .tag = -1});
    int k = tp_buf(tp, (TpBuf){.name = "k", .role = BUF_STATE, .mem = IR_M_f16, .n_dims = 5, .dim = {dx_int(d, 3), dx_int(d, 2), dx_int(d, 8), dx_int(d, 24), dx_int(d, 32)}, .tag = -1});
    int v = tp_buf(tp, (TpBuf){.name = "v", .role = BUF_STATE, .mem = IR_M_f32, .n_dims = 5, .dim = {dx_int(d, 3), dx_int(d, 2), dx_int(d, 8), dx_int(d, 32), dx_int(d, 24)}, .tag = -1});
    int freq = f32_buf(tp, "f", BUF_INPUT, dx_int(d, 10), 0, 0);
    int cs[2] = {-1, -1}, qr = -1, y = f32_buf(tp, "y", BUF_OUTPUT, m, dx_int(d, 4), dx_int(d, 24));
    TpArg ta[2] = {{.kind = TA_BUF, .buf = pos}, {.kind = TA_BUF, .buf = freq}};
    EXPECT_OK(tp_call(tp, "rope_table", ta, 2, cs, 2, NULL));
    TpArg ra[3] = {{.kind = TA_BUF, .buf = q}, {.kind = TA_BUF, .buf = cs[0]}, {.kind = TA_BUF, .buf = cs[1]}};
    EXPECT_OK(tp_call(tp, "rope", ra, 3, &qr, 1, NULL));
    TpArg aa[5] = {{.kind = TA_BUF, .buf = qr}, {.kind = TA_BUF, .buf = k}, {.kind = TA_BUF, .buf = v}, {.kind = TA_BUF, .buf = pos}, {.kind = TA_FLT, .fval = 0.2}};
    EXPECT_OK(tp_call(tp, "attention", aa, 5, &y, 1, NULL));
    Sched s[1] = {{.lanes = 16, .tile = {4, 1}, .n_tiles = 2}};
    int64_t sym[8] = {4};
    int32_t ints[64] = {0, 17, 530, 600};
    same_bits(t, tp, y, sym, ints, s, 1, NULL, "attention");
    arena_free(t);
  }
  arena_free(a);
  TEST_MAIN_END();
}
