/* Families against reference logits, both containers, all targets, chunks and threads: tests/models (README there).
   runtests: machine code */
#include <unistd.h>
#include "kern/kern.h"
#include "model/model.h"
#include "test.h"

enum { N = 96, V = 512 };
static int32_t ids[N];
static Arena *a;

typedef struct Case { const char *name; bool gguf; } Case;
static const Case cases[] = {
  {"llama", true},          /* the plain family, f32 weights */
  {"llama-rope3", true},    /* Llama 3 scaling, three safetensors files, older config, bf16 */
  {"llama-linear", false},  /* linear scaling, tied embeddings */
  {"llama-yarn", false},    /* yarn, head_dim x heads is not hidden */
  {"llama-bias", false},    /* biases everywhere, f16, as many key heads as heads */
  {"qwen2", true},          /* biases of q, k, v */
  {"qwen2-window", false},  /* windows of 16 in the upper layers */
  {"qwen3", true},          /* norms of q and k, head_dim 48 */
  {"mistral", false},       /* windows in all layers */
  {"gemma2", false},        /* soft caps, windows in every other layer */
  {"gemma3", false},        /* windows, two rope bases, linear scaling of one, 1 + w norms, scaled embeddings, geglu */
};

/* Every logit of the text, in steps of `chunk` tokens. Returns heap memory, NULL and told where it cannot be run. */
static float *logits_of(const char *path, ModelOptions o, int chunk) {
  Model *m = NULL;
  Seq *s = NULL;
  float *out = NULL;
  o.context = 128;
  o.chunk = N;
  Err *e = model_open(path, &o, &m);
  if (!e) e = seq_new(m, &s);
  if (!e) out = calloc((size_t)N * V, sizeof *out);
  for (int at = 0; at < N && !e; at += chunk) {
    const float *p;
    int64_t stride;
    int n = MIN(chunk, N - at);
    e = model_step(m, &(StepPart){s, ids + at, n, 2}, 1, &p, &stride);
    for (int i = 0; i < n && !e; i++) memcpy(out + (at + i) * V, p + i * stride, V * sizeof *out);
  }
  EXPECT(!e, "%s: %s", path, e ? err_text(e) : "");
  if (e) free(out), out = NULL;
  err_free(e);
  seq_free(s);
  model_close(m);
  return out;
}

static bool same_bits(const float *x, const float *y) { return x && y && !memcmp(x, y, sizeof(float) * N * V); }

/* Reference logits: of every position, or of positions 3, 7, .. */
static float want[N * V];
static int n_rows;

/* The largest difference over the largest value. */
static double distance(const float *got) {
  double top = 0, worst = 0;
  int step = N / n_rows;
  for (int r = 0; r < n_rows; r++)
    for (int i = 0; i < V; i++) {
      double w = (double)want[r * V + i], d = (double)got[(step * r + step - 1) * V + i] - w;
      top = MAX(top, w < 0 ? -w : w);
      worst = d == d ? MAX(worst, d < 0 ? -d : d) : 1e9;
    }
  return worst / top;
}

static bool read_case(const char *name) {
  Str text = {0}, logits = {0};
  EXPECT_OK(os_read_file(arena_printf(a, "tests/models/%s/tokens.txt", name), 1 << 16, &text));
  EXPECT_OK(os_read_file(arena_printf(a, "tests/models/%s/logits.f32", name), 1 << 20, &logits));
  char *p = text.p;
  int n = 0;
  for (char *end; p && n < N; p = end, n++) ids[n] = (int32_t)strtol(p, &end, 10);
  n_rows = (int)(logits.n / (sizeof(float) * V));
  bool ok = n == N && (n_rows == N || n_rows == N / 4) && logits.n == sizeof(float) * (size_t)n_rows * V;
  EXPECT(ok, "%d ids, %zu bytes of logits", n, logits.n);
  if (ok) memcpy(want, logits.p, logits.n);
  str_free(&text);
  str_free(&logits);
  return ok;
}

static void run_case(const Case *c) {
  char title[100];
  const char *dir = arena_printf(a, "tests/models/%s", c->name), *gguf = arena_printf(a, "%s/model.gguf", dir);
  float *f32 = NULL, *base[2];
  static const char *const precision[2] = {"f32", "int8"};
  snprintf(title, sizeof title, "%s: logits in f32", c->name);
  TEST(title) {
    if (!read_case(c->name)) break;
    f32 = logits_of(dir, (ModelOptions){.precision = "f32"}, N);
    if (f32) EXPECT(distance(f32) < 1e-3, "off by %g of the largest, at most 1e-3", distance(f32));
  }
  if (!f32) return;
  base[0] = f32;
  snprintf(title, sizeof title, "%s: logits in int8", c->name);
  TEST(title) {
    base[1] = logits_of(dir, (ModelOptions){.precision = "int8"}, N);
    float *bf16 = logits_of(dir, (ModelOptions){.precision = "bf16"}, N); /* what int8 rounds before weights in bfloat16, these models multiply by up to 15 */
    double most = bf16 ? MAX(0.02, 1.25 * distance(bf16)) : 0;
    if (base[1]) EXPECT(distance(base[1]) < most, "off by %g of the largest, at most %g", distance(base[1]), most);
    free(bf16);
  }
  for (int p = 0; p < 2 && c->gguf; p++) {
    snprintf(title, sizeof title, "%s: the same bits from GGUF, %s", c->name, precision[p]);
    TEST(title) {
      float *x = logits_of(gguf, (ModelOptions){.precision = precision[p]}, N);
      EXPECT(same_bits(x, base[p]));
      free(x);
    }
  }
  snprintf(title, sizeof title, "%s: the same bits in chunks, with threads", c->name);
  TEST(title) {
    static const struct { int chunk, n_threads, p; } ways[] = {{1, 1, 0}, {7, 3, 0}, {29, 2, 1}, {1, 4, 1}};
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
      float *x = logits_of(dir, (ModelOptions){.precision = precision[ways[i].p], .n_threads = ways[i].n_threads}, ways[i].chunk);
      EXPECT(same_bits(x, base[ways[i].p]), "chunks of %d, %d threads, %s", ways[i].chunk, ways[i].n_threads, precision[ways[i].p]);
      free(x);
    }
  }
  for (int t = 0; t < gen_target_count(); t++) {
    const Target *target = gen_target_get(t);
    snprintf(title, sizeof title, "%s: the same bits on %s", c->name, target->name);
    if (!gen_target_runs(target, kern_cpu())) {
      TEST_SKIP(title, "this machine does not run it");
      continue;
    }
    TEST(title) {
      for (int p = 0; p < 2; p++) {
        float *x = logits_of(dir, (ModelOptions){.precision = precision[p], .target = target->name}, N);
        EXPECT(same_bits(x, base[p]), "%s", precision[p]);
        free(x);
      }
    }
  }
  free(base[0]);
  free(base[1]);
}

/* Two texts in one step, of which each gets what it gets alone. */
static void run_batch(const char *name) {
  TEST(arena_printf(a, "%s: sequences side by side", name)) {
    Model *m = NULL;
    Seq *s[2] = {NULL, NULL};
    const char *dir = arena_printf(a, "tests/models/%s", name);
    if (!read_case(name)) break;
    float *alone = logits_of(dir, (ModelOptions){.precision = "f32"}, N);
    EXPECT_OK(model_open(dir, &(ModelOptions){.precision = "f32", .context = 128, .chunk = 2 * N}, &m));
    if (!m || !alone) break;
    for (int i = 0; i < 2; i++) EXPECT_OK(seq_new(m, &s[i]));
    for (int at = 0; at < N; at += 32) { /* the second lags one step behind, so that positions differ */
      const float *p;
      int64_t stride;
      StepPart part[2] = {{s[0], ids + at, 32, 2}, {s[1], ids + at - 32, 32, 2}};
      EXPECT_OK(model_step(m, part, at ? 2 : 1, &p, &stride));
      for (int i = 0; i < 32; i++) {
        EXPECT(!memcmp(p + i * stride, alone + (at + i) * V, V * sizeof *p), "first text, position %d", at + i);
        if (at) EXPECT(!memcmp(p + (32 + i) * stride, alone + (at - 32 + i) * V, V * sizeof *p), "second text, position %d", at - 32 + i);
      }
    }
    for (int i = 0; i < 2; i++) seq_free(s[i]);
    model_close(m);
    free(alone);
  }
}

/* ---- what a config.json may say wrong ---- */
static const struct { const char *title, *name, *from, *to; ErrKind kind; const char *says; } wrongs[] = {
  {"an unknown family", "llama-linear", "LlamaForCausalLM", "LamaForCausalLM", ERR_UNSUPPORTED, "architectures is \"LamaForCausalLM\"; models known: "},
  {"an unknown way of scaling", "llama-linear", "\"rope_type\": \"linear\"", "\"rope_type\": \"dynamic\"", ERR_UNSUPPORTED, "metadata rope_parameters.rope_type: \"dynamic\", expected one of none, default, linear, llama3, yarn"},
  {"more layers than there are", "llama-linear", "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4", ERR_NOT_FOUND, "tensor model.layers.3.input_layernorm.weight: missing from the file"},
  {"another width", "llama-linear", "\"intermediate_size\": 160", "\"intermediate_size\": 161", ERR_SHAPE, "tensor model.layers.0.mlp.gate_proj.weight: shape [160, 64], expected [161, 64]"},
  {"no heads", "llama-linear", "\"num_attention_heads\": 4", "\"num_attention_heads\": 0", ERR_SHAPE, "expected a positive whole number"},
  {"heads missing", "llama-linear", "\"num_attention_heads\": 4", "\"attention_heads\": 4", ERR_NOT_FOUND, "metadata num_attention_heads: missing, and the model needs it"},
  {"text for a number", "llama-linear", "\"num_attention_heads\": 4", "\"num_attention_heads\": \"4\"", ERR_FORMAT, "num_attention_heads"},
  {"too few kinds of layers", "gemma3", "\"layer_types\": [\n    \"sliding_attention\",", "\"layer_types\": [", ERR_FORMAT, "metadata layer_types: 5 items, item 5 was asked for"},
  {"an unknown kind of layer", "gemma3", "    \"full_attention\"", "    \"chunked_attention\"", ERR_UNSUPPORTED, "metadata layer_types: \"chunked_attention\", expected one of full_attention, sliding_attention"},
};

/* A folder with a case's weights and its config.json with `from` replaced, the first or every one. NULL and told where that fails. */
static const char *changed_copy(const char *name, const char *from, const char *to, bool every) {
  char *dir = arena_dup(a, "/tmp/lumen-models-XXXXXX"), cwd[4096];
  Str config = {0}, out = {0};
  EXPECT_OK(os_read_file(arena_printf(a, "tests/models/%s/config.json", name), 1 << 16, &config));
  const char *p = config.p ? config.p : "", *at = strstr(p, from);
  EXPECT(at && mkdtemp(dir) && getcwd(cwd, sizeof cwd), "%s is not there", from);
  for (int n = 0; at && (every || !n); at = strstr(p, from), n++) {
    str_add_n(&out, p, (size_t)(at - p));
    str_add(&out, to);
    p = at + strlen(from);
  }
  str_add(&out, p);
  EXPECT_OK(os_write_file(arena_printf(a, "%s/config.json", dir), out.p, out.n));
  EXPECT(!symlink(arena_printf(a, "%s/tests/models/%s/model.safetensors", cwd, name), arena_printf(a, "%s/model.safetensors", dir)), "symlink");
  str_free(&config);
  str_free(&out);
  return dir;
}

static void remove_copy(const char *dir) {
  unlink(arena_printf(a, "%s/config.json", dir));
  unlink(arena_printf(a, "%s/model.safetensors", dir));
  rmdir(dir);
}

static void run_wrong(size_t i) {
  Model *m = NULL;
  TEST(arena_printf(a, "config.json: %s", wrongs[i].title)) {
    const char *dir = changed_copy(wrongs[i].name, wrongs[i].from, wrongs[i].to, false);
    Err *e = model_open(dir, &(ModelOptions){.context = 64}, &m);
    EXPECT(e && !m && err_kind(e) == wrongs[i].kind && strstr(err_text(e), wrongs[i].says), "says '%s', expected '%s'", e ? err_text(e) : "(nothing)", wrongs[i].says);
    err_free(e);
    model_close(m);
    remove_copy(dir);
  }
}

/* Four layers that all see 16 positions carry a token 60 positions far and no further, over the borders of key segments. */
enum { REACH_N = 600, REACH_CHANGED = 200, REACH = 4 * 15 };
static void run_reach(void) {
  TEST("windows: how far a token reaches") {
    const char *dir = changed_copy("qwen2-window", "\"full_attention\"", "\"sliding_attention\"", true);
    float *row[2] = {calloc((size_t)REACH_N * V, sizeof(float)), calloc((size_t)REACH_N * V, sizeof(float))};
    Model *m = NULL;
    EXPECT_OK(model_open(dir, &(ModelOptions){.precision = "f32", .context = REACH_N, .chunk = REACH_N}, &m));
    for (int k = 0; k < 2 && m; k++) {
      int32_t text[REACH_N];
      Seq *s = NULL;
      const float *p;
      int64_t stride;
      for (int i = 0; i < REACH_N; i++) text[i] = (int32_t)((i * 37 + (k && i < REACH_CHANGED ? 100 + i % 7 : 0)) % V);
      EXPECT_OK(seq_new(m, &s));
      EXPECT_OK(model_step(m, &(StepPart){s, text, REACH_N, 2}, 1, &p, &stride));
      for (int i = 0; i < REACH_N; i++) memcpy(row[k] + i * V, p + i * stride, V * sizeof *p);
      seq_free(s);
    }
    for (int i = 0; i < REACH_N; i++) {
      bool same = !memcmp(row[0] + i * V, row[1] + i * V, V * sizeof(float));
      EXPECT(same == (i > REACH_CHANGED - 1 + REACH), "position %d is %s", i, same ? "the same" : "another");
    }
    free(row[0]);
    free(row[1]);
    model_close(m);
    remove_copy(dir);
  }
}

int main(void) {
  a = arena_new("test");
  for (size_t i = 0; i < COUNT_OF(cases); i++) run_case(&cases[i]);
  run_batch("gemma3");
  run_batch("gemma2");
  run_batch("qwen2-window");
  run_reach();
  for (size_t i = 0; i < COUNT_OF(wrongs); i++) run_wrong(i);
  arena_free(a);
  TEST_MAIN_END();
}
