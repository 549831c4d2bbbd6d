/* Keys and values in a format of blocks and as pairs of bfloat16, and attention with everything it may have, against plain C: the bytes that are stored, where they lie,
   and what attention makes of them, in doubles. runtests: machine code */
#include <math.h>
#include <stdlib.h>
#include "kern/kern.h"
#include "test.h"

static Arena *arena;
static Module *module;
static Kerns *set;
static uint32_t rng_state = 1;
static float rng(void) { return (float)(int32_t)(rng_state = rng_state * 1664525u + 1013904223u) * 0x1p-30f; }

/* ---- running an op --------------------------------------------------------------------------------------------------- */
typedef struct Mem { const char *name; void *p; } Mem;

/* The op of the line on the caller's memory: buffers by name, rows without padding between them where that is what tp_row_elems says. */
static const KernSpec *spec_of(const char *line, const char *precision) {
  KernCall call;
  KernSpec *s = NULL;
  Err *e = kern_call_parse(arena, line, &call);
  if (!e) e = kern_call_build(arena, module, &call, precision, &s);
  EXPECT_OK(e);
  return s;
}

static int buf_of(const KernSpec *s, const char *name) {
  for (int i = 0; i < s->tp->n_bufs; i++) if (!strcmp(s->tp->buf[i].name, name) && s->tp->buf[i].role != BUF_TEMP) return i;
  return -1;
}

static void run(const KernSpec *s, const Mem *mem, int n_mem) {
  void **all = ARENA_ARRAY(arena, void *, s->tp->n_bufs);
  for (int b = 0; b < s->tp->n_bufs; b++) {
    if (s->tp->buf[b].local < 0) all[b] = arena_alloc(arena, (size_t)tp_buf_bytes(s->tp, b, s->sym) + 64);
    for (int i = 0; i < n_mem; i++) if (buf_of(s, mem[i].name) == b) all[b] = mem[i].p;
  }
  for (int r = 0; r < s->plan->n_regions; r++) {
    const TpRegion *rg = &s->plan->region[r];
    const Kern *k;
    void **args = ARENA_ARRAY(arena, void *, rg->n_args + 1);
    EXPECT_OK(kern_region(set, s->plan, r, kern_shape(s->sym[0]), &k));
    for (int i = 0; i < rg->n_args; i++) {
      int a = rg->arg[i];
      args[i] = a < 0 ? (void *)(intptr_t)s->sym[~a] : a >= TP_TABLE ? (void *)(uintptr_t)s->tp->table[a - TP_TABLE] : all[a];
    }
    k->entry(args, 0, region_items(s->plan, r, &k->sched, s->sym), arena_alloc(arena, (size_t)k->scratch_bytes + 64));
  }
}

/* Rows of n floats with the padding the buffer has. */
static float *padded(const KernSpec *s, const char *name, int64_t rows, int64_t n, const float *from) {
  int64_t stride = tp_row_elems(s->tp, buf_of(s, name));
  float *p = arena_alloc(arena, (size_t)tp_buf_bytes(s->tp, buf_of(s, name), s->sym) + 64);
  for (int64_t m = 0; from && m < rows; m++) memcpy(p + m * stride, from + m * n, (size_t)n * 4);
  return p;
}

/* ---- q8_0 in plain C --------------------------------------------------------------------------------------------------- */
typedef struct Q8 { uint16_t d; int8_t q[32]; } Q8;

static Q8 q8_of(const float *x) {
  float top = 0;
  Q8 b;
  for (int i = 0; i < 32; i++) top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
  float step = top / 127.0f, inv = step > 0 ? 1.0f / step : 0;
  b.d = f32_to_f16(step);
  for (int i = 0; i < 32; i++) b.q[i] = (int8_t)roundf(x[i] * inv);
  return b;
}

typedef struct Case { int H, G, D, P, n, window; float cap; bool sinks; } Case;

static float rounded(float x) {
  float r = bf16_to_f32(f32_to_bf16(x));
  return fabsf(r) < 0x1p-56f ? 0 : r;
}

/* kept[n][G][D] as it comes back out of a cache, or as it is. scale: of every 32, or NULL. */
static void keep(float *x, int64_t n, bool q8, bool bf16, double *scale) {
  for (int64_t i = 0; bf16 && i < n; i++) x[i] = rounded(x[i]);
  for (int64_t i = 0; q8 && i < n; i += 32) {
    Q8 b = q8_of(x + i);
    if (scale) scale[i / 32] = (double)f16_to_f32(b.d);
    for (int k = 0; k < 32; k++) x[i + k] = f16_to_f32(b.d) * b.q[k];
  }
}

static double bent(double s, float cap) { return cap > 0 ? cap * tanh(s / cap) : s; }

/* Weights of keys as integer products see them: with the scale of the key's values, 32 keys by 32 in steps of the largest / 127. */
static double quantized(const Case *c, const double *e, const double *scale, int m, int from, int g, int p, int d) {
  int groups = c->D / 32;
  double top = 0;
  for (int i = MAX(p / 32 * 32, from); i < MIN(p / 32 * 32 + 32, m + 1); i++)
    for (int j = 0; j < groups; j++) top = fmax(top, e[i] * scale[(i * c->G + g) * groups + j]);
  double s = scale[(p * c->G + g) * groups + d / 32];
  return top > 0 && s > 0 ? rint(e[p] * (127 / top) * s) * (top / 127) / s : 0;
}

/* Weights of keys in bfloat16: of the largest of their 256 keys. */
static void round_weights(double *s, int from, int m, double top) {
  for (int seg = from / 256 * 256; seg <= m; seg += 256) {
    double own = -1e300;
    for (int p = MAX(seg, from); p <= MIN(seg + 255, m); p++) own = fmax(own, s[p]);
    for (int p = MAX(seg, from); p <= MIN(seg + 255, m); p++) s[p] = (double)rounded((float)exp(s[p] - own)) * exp(own - top);
  }
}

/* scale: of the values' groups, where weights are quantized; else NULL. */
static void attention(const Case *c, int m, const float *q, const float *k, const float *v, const double *scale, bool bf16, const float *sink, double *y) {
  for (int h = 0; h < c->H; h++, q += c->D, y += c->D) {
    int g = h / (c->H / c->G), from = c->window && m - c->window + 1 > 0 ? m - c->window + 1 : 0;
    double top = c->sinks ? (double)sink[h] : -1e300, den = 0, *s = calloc((size_t)m + 1, sizeof *s);
    for (int p = from; p <= m; p++) {
      for (int d = 0; d < c->D; d++) s[p] += (double)q[d] * (double)k[(p * c->G + g) * c->D + d];
      s[p] = bent(s[p] * 0.125, c->cap);
      top = fmax(top, s[p]);
    }
    for (int d = 0; d < c->D; d++) y[d] = 0;
    if (bf16) round_weights(s, from, m, top);
    for (int p = from; p <= m; p++) {
      if (!bf16) s[p] = exp(s[p] - top);
      den += s[p];
    }
    for (int d = 0; d < c->D; d++) {
      for (int p = from; p <= m; p++) {
        double e = scale ? quantized(c, s, scale, m, from, g, p, d) : s[p];
        y[d] += e * (double)v[(p * c->G + g) * c->D + d];
      }
    }
    if (c->sinks) den += exp((double)sink[h] - top);
    for (int d = 0; d < c->D; d++) y[d] /= den;
    free(s);
  }
}

/* ---- both ------------------------------------------------------------------------------------------------------------ */
/* Where q8_0's numbers lie: those of 32 positions number by number; of keys four bytes of a position together, of values one byte of four positions. */
static void stored_bytes(const Case *c, const KernSpec *ks, const KernSpec *vs, const uint8_t *keys, const uint8_t *values, const float *k, const float *v) {
  int64_t krow = tp_row_elems(ks->tp, buf_of(ks, "k")), vrow = tp_row_elems(vs->tp, buf_of(vs, "v"));
  int blocks = c->D / 32, wrong = 0;
  for (int p = 0; p < c->n; p++)
    for (int g = 0; g < c->G; g++)
      for (int b = 0; b < blocks; b++) {
        Q8 want_k = q8_of(k + (p * c->G + g) * c->D + b * 32), want_v = q8_of(v + (p * c->G + g) * c->D + b * 32);
        const uint8_t *kb = keys + p / 256 * krow + (int64_t)((g * 8 + p / 32 % 8) * blocks + b) * 34 * 32, *vb = values + p / 256 * vrow + (int64_t)((g * 8 + p / 32 % 8) * blocks + b) * 34 * 32;
        wrong += memcmp(kb + p % 32 * 2, &want_k.d, 2) != 0 || memcmp(vb + p % 32 * 2, &want_v.d, 2) != 0;
        for (int i = 0; i < 32; i++) wrong += (int8_t)kb[64 + i / 4 * 128 + p % 32 * 4 + i % 4] != want_k.q[i] || (int8_t)vb[64 + p % 32 / 4 * 128 + i * 4 + p % 4] != want_v.q[i];
      }
  EXPECT(wrong == 0, "%d numbers are not plain C's", wrong);
}

/* Where bfloat16 lie: of keys elements 2i and 2i + 1 together, for 16 positions side by side; of values positions 2i and 2i + 1, for all elements. */
static void stored_pairs(const Case *c, const KernSpec *ks, const KernSpec *vs, const uint8_t *keys, const uint8_t *values, const float *k, const float *v) {
  int64_t krow = tp_row_elems(ks->tp, buf_of(ks, "k")), vrow = tp_row_elems(vs->tp, buf_of(vs, "v"));
  const uint16_t *kp = (const uint16_t *)(const void *)keys, *vp = (const uint16_t *)(const void *)values;
  int wrong = 0;
  for (int p = 0; p < c->n; p++)
    for (int g = 0; g < c->G; g++)
      for (int d = 0; d < c->D; d++) {
        int64_t at = (int64_t)(g * 8 + p / 32 % 8) * 32 * c->D, from = ((int64_t)p * c->G + g) * c->D + d;
        wrong += kp[p / 256 * krow + at + d / 2 * 64 + p % 32 * 2 + d % 2] != f32_to_bf16(rounded(k[from]));
        wrong += vp[p / 256 * vrow + at + (int64_t)(p % 32 / 2) * 2 * c->D + d * 2 + p % 2] != f32_to_bf16(rounded(v[from]));
      }
  EXPECT(wrong == 0, "%d numbers are not plain C's", wrong);
}

static float *random_rows(int64_t n) {
  float *x = ARENA_ARRAY(arena, float, n);
  for (int64_t i = 0; i < n; i++) x[i] = rng();
  return x;
}

/* A query as integer products see it: 32 numbers as one scale and 8 bits each. */
static void quantize(float *q, int64_t n) {
  for (int64_t i = 0; i < n; i += 32) {
    float top = 0;
    for (int k = 0; k < 32; k++) top = fabsf(q[i + k]) > top ? fabsf(q[i + k]) : top;
    for (int k = 0; k < 32; k++) q[i + k] = top > 0 ? rintf(q[i + k] * (127.0f / top)) * (top / 127.0f) : 0;
  }
}

static void check_case(const Case *c, const char *format, const char *precision) {
  bool q8 = !strcmp(format, "q8_0"), bf16 = !strcmp(format, "bf16");
  char line[300], name[300];
  snprintf(name, sizeof name, "attention over %s, %s: %d query and %d key heads of %d, %d positions, window %d, cap %g%s, is plain C's", format, precision, c->H, c->G, c->D, c->n, c->window, (double)c->cap, c->sinks ? ", sinks" : "");
  TEST(name) {
    int64_t row = (int64_t)c->G * c->D, qrow = (int64_t)c->H * c->D;
    float *k = random_rows(c->n * row), *v = random_rows(c->n * row), *q = random_rows(c->n * qrow), *sink = random_rows(c->H);
    int32_t *pos = ARENA_ARRAY(arena, int32_t, c->n + 16);
    for (int i = 0; i < c->n; i++) pos[i] = i;
    snprintf(line, sizeof line, "keep_keys x=f32[%d,%d,%d] pos=i32[%d] k=%s[%d,%d,8,%d,32]", c->n, c->G, c->D, c->n, format, (c->P + 255) / 256, c->G, c->D);
    const KernSpec *ks = spec_of(line, precision);
    snprintf(line, sizeof line, "keep_values x=f32[%d,%d,%d] pos=i32[%d] v=%s[%d,%d,8,32,%d]", c->n, c->G, c->D, c->n, format, (c->P + 255) / 256, c->G, c->D);
    const KernSpec *vs = spec_of(line, precision);
    snprintf(line, sizeof line, "attention q=f32[%d,%d,%d] k=%s[%d,%d,8,%d,32] v=%s[%d,%d,8,32,%d] pos=i32[%d]=%d scale=0.125 window=%d cap=%.1f%s", c->n, c->H, c->D, format, (c->P + 255) / 256, c->G, c->D,
             format, (c->P + 255) / 256, c->G, c->D, c->n, c->n - 1, c->window, (double)c->cap, c->sinks ? arena_printf(arena, " sink=f32[%d]", c->H) : "");
    const KernSpec *as = spec_of(line, precision);
    if (!ks || !vs || !as) continue;
    uint8_t *keys = arena_alloc(arena, (size_t)tp_buf_bytes(ks->tp, buf_of(ks, "k"), ks->sym) + 64), *values = arena_alloc(arena, (size_t)tp_buf_bytes(vs->tp, buf_of(vs, "v"), vs->sym) + 64);
    run(ks, (Mem[]){{"x", padded(ks, "x", c->n, row, k)}, {"pos", pos}, {"k", keys}}, 3);
    run(vs, (Mem[]){{"x", padded(vs, "x", c->n, row, v)}, {"pos", pos}, {"v", values}}, 3);
    if (q8) stored_bytes(c, ks, vs, keys, values, k, v);
    if (bf16) stored_pairs(c, ks, vs, keys, values, k, v);
    float *y = padded(as, "y", c->n, qrow, NULL);
    run(as, (Mem[]){{"q", padded(as, "q", c->n, qrow, q)}, {"k", keys}, {"v", values}, {"pos", pos}, {"sink", sink}, {"y", y}}, 6);
    bool codes = q8 && !strcmp(precision, "int8");
    double *scale = ARENA_ARRAY(arena, double, c->n * row / 32 + 1);
    keep(k, c->n * row, q8, bf16, NULL), keep(v, c->n * row, q8, bf16, scale);
    for (int64_t i = 0; bf16 && i < c->n * qrow; i++) q[i] = rounded(q[i]);
    if (codes) quantize(q, c->n * qrow);
    double *want = ARENA_ARRAY(arena, double, qrow), worst = 0, all = 0;
    for (int m = 0; m < c->n; m++) {
      attention(c, m, q + m * qrow, k, v, codes ? scale : NULL, bf16, sink, want);
      for (int64_t i = 0; i < qrow; i++) {
        double d = fabs((double)y[m * tp_row_elems(as->tp, buf_of(as, "y")) + i] - want[i]);
        worst = d <= worst ? worst : d; /* NaN counts */
        all += d;
      }
    }
    EXPECT(worst < (codes || bf16 ? 2e-2 : 2e-5) && all < 2e-5 * (double)(c->n * qrow), "differs by %g, %g in the mean", worst, all / (double)(c->n * qrow)); /* a weight may lie between two steps */
  }
  arena_reset(arena);
}

int main(void) {
  static const Case row[] = {
    {4, 2, 64, 48, 40, 0, 0, false}, {3, 1, 96, 64, 50, 0, 0, true}, {8, 8, 32, 640, 300, 0, 0, false}, {6, 2, 32, 640, 290, 70, 0, true}, {2, 2, 128, 64, 33, 7, 30, true}, {2, 1, 64, 16, 1, 0, 0, true},
  };
  Arena *a = arena_new("forever");
  arena = arena_new("compile");
  EXPECT_OK(lang_std_load(a, NULL, &module));
  for (size_t i = 0; module && i < 4 * COUNT_OF(row); i++) {
    EXPECT_OK(kern_set_new(NULL, false, &set));
    check_case(&row[i / 4], i % 4 == 1 ? "f32" : i % 4 == 3 ? "bf16" : "q8_0", i % 4 >= 2 ? "int8" : "f32");
    kern_set_free(set);
  }
  arena_free(arena);
  arena_free(a);
  TEST_MAIN_END();
}
