/* A model of every storage format, made here from the blocks of the decoding goldens: the logits of a prompt are the same bits on every target,
   with 1 to 4 threads, in any chunks, alone and as one of 2, 3, 8 and 17 sequences in a step. The weights mean nothing; every kind of kernel
   runs. runtests: timeout 300 runtests: machine code */
#include <ctype.h>
#include <math.h>
#include <unistd.h>
#include "kern/kern.h"
#include "model/model.h"
#include "test.h"

enum { E = 256, F = 256, V = 80, HEADS = 4, KV_HEADS = 2, LAYERS = 2, N_SANE_BLOCKS = 48, PROMPT = 18, STEPS = 3, MAX_BATCH = 17 };

/* ---- a GGUF file (version 3, little-endian) -------------------------------------------------------------------------- */
typedef struct Gguf { Str meta, info, data; uint64_t n_meta, n_tensors; } Gguf;

static void put(Str *s, uint64_t v, size_t n) { str_add_n(s, &v, n); }
static void put_text(Str *s, const char *t) { put(s, strlen(t), 8), str_add(s, t); }

static void meta_int(Gguf *g, const char *key, uint32_t v) {
  put_text(&g->meta, key), put(&g->meta, 4, 4), put(&g->meta, v, 4);
  g->n_meta++;
}

static void meta_float(Gguf *g, const char *key, float v) {
  put_text(&g->meta, key), put(&g->meta, 6, 4), put(&g->meta, f32_to_bits(v), 4);
  g->n_meta++;
}

static void meta_text(Gguf *g, const char *key, const char *v) {
  put_text(&g->meta, key), put(&g->meta, 8, 4), put_text(&g->meta, v);
  g->n_meta++;
}

static void tensor_begin(Gguf *g, const char *name, int64_t rows, int64_t cols, int64_t type) {
  while (g->data.n % 32) str_add_c(&g->data, 0);
  put_text(&g->info, name);
  put(&g->info, rows ? 2 : 1, 4);
  put(&g->info, (uint64_t)cols, 8);
  if (rows) put(&g->info, (uint64_t)rows, 8);
  put(&g->info, (uint64_t)type, 4);
  put(&g->info, g->data.n, 8);
  g->n_tensors++;
}

static void gguf_write(Gguf *g, const char *path) {
  Str s = {0};
  str_add(&s, "GGUF");
  put(&s, 3, 4), put(&s, g->n_tensors, 8), put(&s, g->n_meta, 8);
  str_add_n(&s, g->meta.p, g->meta.n);
  str_add_n(&s, g->info.p, g->info.n);
  while (s.n % 32) str_add_c(&s, 0);
  str_add_n(&s, g->data.p, g->data.n);
  EXPECT_OK(os_write_file(path, s.p, s.n));
  str_free(&s), str_free(&g->meta), str_free(&g->info), str_free(&g->data);
}

/* ---- the model ------------------------------------------------------------------------------------------------------- */
static uint32_t rng_state = 7;
static uint32_t rng(void) { return (rng_state = rng_state * 1664525u + 1013904223u) >> 8; }

static void matrix(Gguf *g, const char *name, int64_t rows, int64_t cols, const FormatDecl *f, const Str *blocks) {
  int64_t n = MIN((int64_t)blocks->n / f->n_bytes, f->block == 1 ? 1 << 20 : N_SANE_BLOCKS);
  tensor_begin(g, name, rows, cols, f->gguf_id);
  for (int64_t i = 0; i < rows * cols / f->block; i++) str_add_n(&g->data, blocks->p + rng() % n * f->n_bytes, (size_t)f->n_bytes);
}

/* Small, so that keys and values fit f16 whatever the scales of the blocks. */
static void norm(Gguf *g, const char *name) {
  tensor_begin(g, name, 0, E, 0);
  for (int i = 0; i < E; i++) put(&g->data, f32_to_bits((0.5f + (float)(rng() % 1000) / 1000) / 1024), 4);
}

static void model_write(const char *path, const FormatDecl *f, const Str *blocks) {
  static const struct { const char *name; int rows, cols; } layer[] = {
    {"attn_q", E, E}, {"attn_k", E / HEADS * KV_HEADS, E}, {"attn_v", E / HEADS * KV_HEADS, E}, {"attn_output", E, E}, {"ffn_gate", F, E}, {"ffn_up", F, E}, {"ffn_down", E, F},
  };
  Gguf g = {0};
  char name[80];
  meta_text(&g, "general.architecture", "llama");
  meta_int(&g, "llama.block_count", LAYERS), meta_int(&g, "llama.embedding_length", E), meta_int(&g, "llama.feed_forward_length", F);
  meta_int(&g, "llama.attention.head_count", HEADS), meta_int(&g, "llama.attention.head_count_kv", KV_HEADS), meta_int(&g, "llama.context_length", 128);
  meta_float(&g, "llama.attention.layer_norm_rms_epsilon", 1e-5f), meta_float(&g, "llama.rope.freq_base", 10000);
  matrix(&g, "token_embd.weight", V, E, f, blocks);
  norm(&g, "output_norm.weight");
  for (int l = 0; l < LAYERS; l++) {
    snprintf(name, sizeof name, "blk.%d.attn_norm.weight", l), norm(&g, name);
    snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", l), norm(&g, name);
    for (size_t i = 0; i < COUNT_OF(layer); i++) snprintf(name, sizeof name, "blk.%d.%s.weight", l, layer[i].name), matrix(&g, name, layer[i].rows, layer[i].cols, f, blocks);
  }
  gguf_write(&g, path);
}

/* ---- one sequence beside others -------------------------------------------------------------------------------------- */
static int32_t token(int seq, int i) { return (int32_t)((uint32_t)(seq * 31 + i) * 2654435761u >> 8) % V; }

/* Sequence `mine` of n reads PROMPT tokens in pieces and then one by one; the others beside it read other texts in other pieces.
   out: logits of all its PROMPT + STEPS positions. */
static Err *beside(Model *m, int n, int mine, int piece, float *out) {
  Seq *seq[MAX_BATCH] = {0};
  StepPart part[MAX_BATCH];
  int32_t ids[MAX_BATCH][PROMPT];
  int at[MAX_BATCH] = {0};
  Err *e = NULL;
  for (int i = 0; !e && i < n; i++) e = seq_new(m, &seq[i]);
  for (int step = 0; !e && at[mine] < PROMPT + STEPS; step++) {
    const float *logits;
    int64_t stride, row = 0, my_row = 0;
    for (int i = 0; i < n; i++) {
      int take = at[mine] < PROMPT ? MIN(piece, PROMPT - at[mine]) : 1;
      if (i != mine) take = 1 + (i * 5 + step * 3) % (step % 2 ? 4 : 2);
      for (int k = 0; k < take; k++) ids[i][k] = token(i == mine ? 0 : i + 1, at[i] + k);
      part[i] = (StepPart){seq[i], ids[i], take, i == mine ? 2 : (i + step) % 3};
      if (i == mine) my_row = row;
      row += part[i].want == 2 ? take : part[i].want;
    }
    e = model_step(m, part, n, &logits, &stride);
    for (int k = 0; !e && k < part[mine].n_tokens; k++) memcpy(out + (int64_t)(at[mine] + k) * V, logits + (my_row + k) * stride, V * sizeof *out);
    for (int i = 0; i < n; i++) at[i] += part[i].n_tokens;
  }
  for (int i = 0; i < n; i++) seq_free(seq[i]);
  return e;
}

static void same_bits(const char *path, const char *precision, const char *kv, int turn) {
  static const struct { int batch, piece; } way[] = {{1, PROMPT}, {1, 1}, {1, 7}, {2, 13}, {3, PROMPT}, {8, 5}, {17, 11}};
  static float want[(PROMPT + STEPS) * V], got[(PROMPT + STEPS) * V];
  bool have = false;
  int n_run = 0;
  for (int t = 0; t < gen_target_count(); t++) {
    const Target *target = gen_target_get(t);
    Model *m = NULL;
    if (!gen_target_runs(target, kern_cpu()) || (target->dot2 && strcmp(kv, "bf16"))) continue; /* without pairs its code is another target's */
    ModelOptions o = {.precision = precision, .kv = kv, .target = target->name, .n_threads = 1 + (n_run++ + turn) % 4, .context = 100, .chunk = 128};
    EXPECT_OK(model_open(path, &o, &m));
    for (size_t w = 0; m && w < COUNT_OF(way); w++) {
      memset(got, 0xff, sizeof got);
      EXPECT_OK(beside(m, way[w].batch, way[w].batch / 2, way[w].piece, got));
      if (!have) memcpy(want, got, sizeof got);
      have = true;
      EXPECT(!memcmp(want, got, sizeof got), "%s, %s, KV %s, %d threads, one of %d, in pieces of %d", target->name, precision, kv, o.n_threads, way[w].batch, way[w].piece);
    }
    model_close(m);
  }
  for (size_t i = 0; i < COUNT_OF(want); i++) EXPECT(isfinite(want[i]), "logit %zu is %g", i, (double)want[i]);
}

int main(void) {
  static const char *const kv[] = {"f16", "q8_0", "f32", "q5_1", "bf16", "f8_e4m3", "iq4_nl"};
  Arena *a = arena_new("forever");
  Module *m = NULL;
  const char *tmp = getenv("TEST_TMP");
  char path[300], golden[300], name[200];
  EXPECT_OK(lang_std_load(a, NULL, &m));
  snprintf(path, sizeof path, "%s/lumen-batch-%d.gguf", tmp ? tmp : "/tmp", (int)getpid());
  for (int i = 0; m && i < m->n_formats; i++) { /* keys and values in formats of numbers and of blocks in turn */
    const FormatDecl *f = m->format[i];
    Str blocks = {0};
    char upper[64] = {0};
    for (size_t k = 0; f->name[k] && k + 1 < sizeof upper; k++) upper[k] = (char)toupper((unsigned char)f->name[k]);
    snprintf(golden, sizeof golden, "tests/formats/decode/%s.bin", upper);
    snprintf(name, sizeof name, "a model in %s: the same bits on every target, with 1 to 4 threads, in any pieces, alone and beside others", f->name);
    if (f->gguf_id < 0 || !os_exists(golden) || E % f->block) {
      TEST_SKIP(name, !os_exists(golden) ? "no golden has blocks of it" : "not a format of these files");
      continue;
    }
    TEST(name) {
      EXPECT_OK(os_read_file(golden, 1 << 24, &blocks));
      model_write(path, f, &blocks);
      same_bits(path, "int8", kv[i % COUNT_OF(kv)], i);
      if (i % 5 == 0) same_bits(path, "f32", kv[(i + 1) % COUNT_OF(kv)], i);
    }
    unlink(path);
    str_free(&blocks);
  }
  arena_free(a);
  TEST_MAIN_END();
}
