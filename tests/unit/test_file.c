/* file: GGUF. The cases of tests/file/gguf.cases, the getters, a file written by another program, split files, and mutations. */
#include <sys/stat.h>
#include "file_cases.h"

static Weights *open_bytes(Arena *a, const void *p, size_t n) {
  char path[40];
  Weights *w = NULL;
  int fd = cases_memfd(p, n, path);
  EXPECT_OK(file_gguf_open(a, path, cases_find_format, NULL, &w));
  close(fd);
  return w;
}

static void test_getters(const Str *bytes) {
  Arena *a = arena_new("test");
  Weights *w = open_bytes(a, bytes->p, bytes->n);
  if (!w) return;
  TEST("getters: integers of any width, in range or refused") {
    static const struct { const char *key; int64_t value; } ints[] = {{"t.a", 255}, {"t.b", -128}, {"t.c", 65535}, {"t.d", -32768}, {"t.e", 4294967295}, {"t.f", -7}, {"t.l", -9}};
    for (size_t i = 0; i < COUNT_OF(ints); i++) {
      int64_t v = 0;
      double d = 0;
      EXPECT_OK(file_kv_int(w, ints[i].key, INT64_MIN, INT64_MAX, &v));
      EXPECT(v == ints[i].value, "%s is %lld", ints[i].key, (long long)v);
      EXPECT_OK(file_kv_float(w, ints[i].key, &d));
      EXPECT(d == (double)ints[i].value);
    }
    int64_t v = 42;
    EXPECT_ERR(file_kv_int(w, "t.a", 1, 254, &v), ERR_FORMAT, "metadata 't.a': 255, expected 1 to 254");
    EXPECT_ERR(file_kv_int(w, "t.k", 0, INT64_MAX, &v), ERR_FORMAT, "'t.k': 18446744073709551615, expected 0 to 9223372036854775807");
    EXPECT_ERR(file_kv_int(w, "t.i", 0, 9, &v), ERR_FORMAT, "'t.i': is string, expected an integer");
    EXPECT_ERR(file_kv_int(w, "t.g", 0, 9, &v), ERR_FORMAT, "'t.g': is float32, expected an integer");
    EXPECT_ERR(file_kv_int(w, "t.h", 0, 9, &v), ERR_FORMAT, "'t.h': is bool, expected an integer");
    EXPECT_ERR(file_kv_int(w, "t.j", 0, 9, &v), ERR_FORMAT, "'t.j': is an array of int32, expected an integer");
    EXPECT_ERR(file_kv_int(w, "t", 0, 9, &v), ERR_NOT_FOUND, "metadata 't': missing, expected an integer");
    EXPECT(v == 42, "written on failure");
  }
  TEST("getters: floats, bools, strings, arrays") {
    double d;
    bool b = false;
    const char *s = "";
    int64_t *v = NULL;
    float *f = NULL;
    const FileStr *strs = NULL;
    size_t n = 0;
    EXPECT_OK(file_kv_float(w, "t.g", &d));
    EXPECT(d == 0.5);
    EXPECT_OK(file_kv_float(w, "t.m", &d));
    EXPECT(d == 0.25);
    EXPECT_OK(file_kv_float(w, "t.k", &d));
    EXPECT(d == 0x1p64);
    EXPECT_OK(file_kv_bool(w, "t.h", &b));
    EXPECT(b);
    EXPECT_ERR(file_kv_bool(w, "t.a", &b), ERR_FORMAT, "is uint8, expected a bool");
    EXPECT_OK(file_kv_text(a, w, "t.i", &s));
    EXPECT(!strcmp(s, "text"));
    EXPECT_OK(file_kv_ints(a, w, "t.j", &v, &n));
    EXPECT(n == 3 && v[0] == -1 && v[2] == 1);
    EXPECT_OK(file_kv_ints(a, w, "t.f", &v, &n));
    EXPECT(n == 1 && v[0] == -7);
    EXPECT_OK(file_kv_floats(a, w, "t.g", &f, &n));
    EXPECT(n == 1 && f[0] == 0.5f);
    EXPECT_ERR(file_kv_floats(a, w, "t.j", &f, &n), ERR_FORMAT, "is an array of int32, expected an array of floats"); /* S02: scores of another type */
    EXPECT_ERR(file_kv_ints(a, w, "t.k", &v, &n), ERR_FORMAT, "element 0 exceeds 63 bits");
    EXPECT_OK(file_kv_strs(w, "t.i", &strs, &n));
    EXPECT(n == 1 && strs[0].n == 4);
    EXPECT_ERR(file_kv_strs(w, "t.j", &strs, &n), ERR_FORMAT, "expected an array of strings");
  }
  TEST("print: as JSON text, cut") {
    Str s = {0};
    static const struct { const char *key; size_t max; const char *text; } rows[] = {
        {"t.b", 9, "-128"}, {"t.g", 9, "0.5"}, {"t.h", 9, "true"}, {"t.i", 9, "\"text\""}, {"t.j", 9, "[-1, 0, 1]"}, {"t.j", 2, "[-1, 0, \"...\"]"}, {"t.k", 9, "18446744073709551615"}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
      str_clear(&s);
      file_kv_print(file_kv_find(w, rows[i].key), rows[i].max, &s);
      EXPECT(!strcmp(s.p, rows[i].text), "%s prints as %s", rows[i].key, s.p);
    }
    str_clear(&s);
    file_quote("a\"\\\n\x1b\xff\xc3\xa9", 8, &s);
    EXPECT(!strcmp(s.p, "\"a\\\"\\\\\\n\\u001b\\ufffd\xc3\xa9\""), "%s", s.p);
    str_free(&s);
  }
  file_weights_close(w);
  arena_free(a);
}

/* Of an f32 or bf16 tensor. */
static float value_at(const FileTensor *t, int64_t i) {
  float f;
  uint16_t h;
  if (!strcmp(t->format, "f32")) return memcpy(&f, t->p + 4 * i, 4), f;
  return memcpy(&h, t->p + 2 * i, 2), bf16_to_f32(h);
}

/* A file by the gguf package, next to the same weights by transformers. */
static void test_golden(void) {
  Arena *a = arena_new("test");
  Weights *g = NULL, *s = NULL;
  TEST("golden: the same tensor in GGUF and in three safetensors parts") {
    EXPECT_OK(file_weights_open(a, "tests/file/golden/model.gguf", cases_find_format, NULL, &g));
    EXPECT_OK(file_weights_open(a, "tests/file/golden", cases_find_format, NULL, &s));
    if (!g || !s) break;
    EXPECT(!strcmp(g->container, "GGUF version 3") && !strcmp(s->container, "safetensors") && s->n_files == 3 && g->n_tensors == s->n_tensors + 1, "GGUF adds the rope factors: %d and %d tensors", g->n_tensors, s->n_tensors);
    static const char *const pairs[][2] = {{"token_embd.weight", "model.embed_tokens.weight"}, {"blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight"},
                                           {"blk.1.ffn_norm.weight", "model.layers.1.post_attention_layernorm.weight"}, {"output_norm.weight", "model.norm.weight"}};
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
      const FileTensor *x = NULL, *y = NULL;
      Err *e = file_tensor_get(g, pairs[i][0], &x);
      EXPECT_OK(e ? e : file_tensor_get(s, pairs[i][1], &y));
      if (!x || !y) continue;
      EXPECT(x->n_dims == y->n_dims && !memcmp(x->dim, y->dim, sizeof x->dim) && x->n_elems == y->n_elems, "%s", pairs[i][0]);
      for (int64_t k = 0; k < x->n_elems; k++) EXPECT(value_at(x, k) == value_at(y, k), "%s, element %lld", pairs[i][0], (long long)k);
    }
    const FileTensor *down = file_tensor_find(g, "blk.0.ffn_down.weight");
    EXPECT(down && down->n_dims == 2 && down->dim[0] < down->dim[1], "rows by columns, the file's order reversed");
  }
  TEST("golden: metadata of both containers") {
    int64_t v = 0, u = 0;
    const FileStr *t = NULL;
    size_t n = 0;
    double theta = 0;
    if (!g || !s) break;
    EXPECT_OK(file_kv_int(g, "llama.embedding_length", 1, 1 << 20, &v));
    EXPECT_OK(file_kv_int(s, "hidden_size", 1, 1 << 20, &u));
    EXPECT(v == u && v > 0);
    EXPECT_OK(file_kv_strs(g, "tokenizer.ggml.tokens", &t, &n));
    EXPECT(n > 100 && t[0].n > 0);
    EXPECT_OK(file_kv_float(s, "rope_scaling.factor", &theta));
    EXPECT(theta > 1, "nested keys with dots");
    EXPECT_OK(file_kv_strs(s, "architectures", &t, &n));
    EXPECT(n == 1 && t[0].n == strlen("LlamaForCausalLM") && !memcmp(t[0].p, "LlamaForCausalLM", t[0].n));
    EXPECT_OK(file_kv_int(s, "generation_config.bos_token_id", 0, 1000, &v));
    EXPECT(!file_kv_find(s, "no.such") && !file_tensor_find(s, "no.such"));
    EXPECT_ERR(file_tensor_get(s, "no.such", &(const FileTensor *){0}), ERR_NOT_FOUND, "tensor 'no.such': missing");
  }
  file_weights_close(g);
  file_weights_close(s);
  arena_free(a);
}

static void write_part(const char *dir, int no, int says_no, int count, const char *tensor) {
  Str s = {0};
  char line[6][80], path[200];
  snprintf(line[0], 80, "magic u32 3 u64 1 u64 2");
  snprintf(line[1], 80, "str split.no");
  snprintf(line[2], 80, "u32 2 u16 %d", says_no);
  snprintf(line[3], 80, "str split.count");
  snprintf(line[4], 80, "u32 2 u16 %d", count);
  snprintf(line[5], 80, "str %s", tensor);
  for (int i = 0; i < 6; i++) cases_line(line[i], &s);
  snprintf(line[0], 80, "u32 1 u64 1 u32 0 u64 0 align 32 f32 %d", no + 1);
  cases_line(line[0], &s);
  snprintf(path, sizeof path, "%s/m-%05d-of-00002.gguf", dir, no + 1);
  EXPECT_OK(os_write_file(path, s.p, s.n));
  str_free(&s);
}

static void test_split(void) {
  Arena *a = arena_new("test");
  char dir[] = "/tmp/lumen-split-XXXXXX";
  if (!mkdtemp(dir)) return;
  const char *one = arena_printf(a, "%s/m-00001-of-00002.gguf", dir), *two = arena_printf(a, "%s/m-00002-of-00002.gguf", dir);
  Weights *w = NULL;
  TEST("split: the parts' tensors in one view") {
    write_part(dir, 0, 0, 2, "a");
    write_part(dir, 1, 1, 2, "b");
    EXPECT_OK(file_gguf_open(a, one, cases_find_format, NULL, &w));
    if (!w) break;
    const FileTensor *t = file_tensor_find(w, "b");
    float f = 0;
    if (t) memcpy(&f, t->p, 4);
    EXPECT(w->n_files == 2 && w->n_tensors == 2 && t && t->file == 1 && f == 2);
    file_weights_close(w);
  }
  w = NULL;
  TEST("split: D05 the same name in two parts, a wrong part, a missing part, not the first") {
    write_part(dir, 1, 1, 2, "a");
    EXPECT_ERR(file_gguf_open(a, one, cases_find_format, NULL, &w), ERR_FORMAT, "tensor 'a' is there twice, as number 1 and number 2");
    write_part(dir, 1, 0, 2, "b");
    EXPECT_ERR(file_gguf_open(a, one, cases_find_format, NULL, &w), ERR_FORMAT, "says split.no 0, split.count 2, expected 1 and 2");
    write_part(dir, 1, 1, 2, "b");
    EXPECT_ERR(file_gguf_open(a, two, cases_find_format, NULL, &w), ERR_FORMAT, "is part 2 of 2 of a split model, expected the first");
    unlink(two);
    EXPECT_ERR(file_gguf_open(a, one, cases_find_format, NULL, &w), ERR_NOT_FOUND, "m-00002-of-00002.gguf");
    EXPECT(w == NULL);
  }
  unlink(one), unlink(two), rmdir(dir);
  arena_free(a);
}

/* A file may be as large as it says and cost nobody anything: what its numbers ask for is bounded all the same. */
static void test_holes(void) {
  static const struct { const char *text, *says; } rows[] = {
    {"u32 8 u64 100000000", "array length 100000000, expected at most 16777216 elements"},
    {"u32 0 u64 100000000", "array length 100000000, expected at most 16777216 elements"},
    {"u32 9 u64 100000000", "array length 100000000, expected at most 16777216 elements"},
    {"u32 9 u64 2 u32 0 u64 16777215", "array length 16777215, expected at most 16777216 elements in all arrays, 2 were before"}};
  TEST("holes: counts that a file of nothing but zeros could hold") {
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
      Arena *a = arena_new("test");
      Str s = {0};
      char path[40];
      Weights *w = NULL;
      cases_line(arena_dup(a, "magic u32 3 u64 0 u64 1 u64 1 hex 61 u32 9"), &s);
      cases_line(arena_dup(a, rows[i].text), &s);
      int fd = cases_memfd(s.p, s.n, path);
      EXPECT(!ftruncate(fd, (off_t)1 << 32));
      EXPECT_ERR(file_gguf_open(a, path, cases_find_format, NULL, &w), ERR_LIMIT, rows[i].says);
      EXPECT(!w);
      close(fd);
      str_free(&s);
      arena_free(a);
    }
  }
}

/* ---- mutations ---- */

static const char seed_text[] =
    "magic u32 3 u64 3 u64 5|str general.alignment|u32 4 u32 32|str a.strings|u32 9 u32 8 u64 3|str one|str |str three|str a.floats|u32 9 u32 6 u64 4 f32 1 f32 2 f32 3 f32 4|"
    "str a.nested|u32 9 u32 9 u64 2 u32 4 u64 1 u32 7 u32 0 u64 2 u8 1 u8 2|str a.name|u32 8|str model|str w.blocks|u32 2 u64 64 u64 2 u32 2 u64 0|str w.floats|u32 1 u64 4 u32 0 u64 96|"
    "str w.unknown|u32 3 u64 2 u64 2 u64 2 u32 77 u64 128|align 32|zeros 144";

static void build_seed(Str *out) {
  char copy[sizeof seed_text], *rest = copy;
  memcpy(copy, seed_text, sizeof copy);
  for (char *line; (line = strsep(&rest, "|"));) cases_line(line, out);
}

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static void mutate(uint64_t *rng, Str *s) {
  static const uint8_t edges[] = {0, 1, 4, 8, 9, 0x7f, 0x80, 0xff};
  for (uint64_t k = next_random(rng) % 3; k < 3; k++) {
    size_t at = next_random(rng) % s->n;
    uint8_t *p = (uint8_t *)s->p + at;
    switch (next_random(rng) % 5) {
    case 0: *p ^= (uint8_t)(1u << next_random(rng) % 8); break;
    case 1: *p = edges[next_random(rng) % sizeof edges]; break;
    case 2: memset(p, 0xff, MIN(s->n - at, (size_t)8)); break;
    case 3: s->n = MAX(at, (size_t)1); break;
    case 4: memmove(p, s->p + next_random(rng) % s->n / 2, MIN((size_t)16, s->n - at) / 2); break;
    }
  }
}

/* Reads all that an accepted file offers; every byte must be inside its map. */
static void use_all(Arena *a, const Weights *w) {
  static volatile unsigned sum;
  Str s = {0};
  for (int i = 0; i < w->n_kvs; i++) {
    file_kv_print(&w->kv[i], 1000, &s);
    EXPECT(file_kv_find(w, w->kv[i].key) == &w->kv[i]);
  }
  for (int i = 0; i < w->n_tensors; i++) {
    const FileTensor *t = &w->tensor[i];
    const FileMap *m = &w->map[t->file];
    EXPECT(file_tensor_find(w, t->name) == t);
    if (!t->p) continue;
    EXPECT(t->p >= m->p && t->n_bytes <= m->n_bytes && t->p + t->n_bytes <= m->p + m->n_bytes);
    for (size_t k = 0; k < t->n_bytes; k++) sum += t->p[k];
  }
  str_free(&s);
  (void)a;
}

static void test_mutations(void) {
  Str seed = {0}, bytes = {0};
  build_seed(&seed);
  uint64_t rng = 1;
  int n_accepted = 0, n_refused = 0;
  TEST("20,000 mutations: refused or usable, never more") {
    Arena *a = arena_new("test");
    Weights *w = open_bytes(a, seed.p, seed.n);
    EXPECT(w && w->n_kvs == 5 && w->n_tensors == 3);
    if (w) use_all(a, w);
    file_weights_close(w);
    for (int i = 0; i < 20000; i++) {
      char path[40];
      str_clear(&bytes);
      str_add_n(&bytes, seed.p, seed.n);
      mutate(&rng, &bytes);
      int fd = cases_memfd(bytes.p, bytes.n, path);
      w = NULL;
      arena_reset(a);
      Err *e = file_gguf_open(a, path, cases_find_format, NULL, &w);
      EXPECT((e != NULL) == (w == NULL) && (!e || strlen(err_text(e)) > 20));
      if (w) use_all(a, w);
      n_accepted += !e;
      n_refused += e != NULL;
      err_free(e);
      file_weights_close(w);
      close(fd);
    }
    EXPECT(n_accepted > 1000 && n_refused > 5000, "%d accepted, %d refused: the mutations test nothing", n_accepted, n_refused);
    arena_free(a);
  }
  str_free(&seed), str_free(&bytes);
}

static void test_unknown(void) {
  Arena *a = arena_new("test");
  Str seed = {0};
  build_seed(&seed);
  TEST("an unknown type is told when its tensor is asked for") {
    Weights *w = open_bytes(a, seed.p, seed.n);
    const FileTensor *t = NULL;
    if (!w) break;
    EXPECT_ERR(file_tensor_get(w, "w.unknown", &t), ERR_UNSUPPORTED, "tensor 'w.unknown': stored as type 77, a format no text in std/formats describes");
    EXPECT_OK(file_tensor_get(w, "w.blocks", &t));
    EXPECT(t && t->n_dims == 2 && t->dim[0] == 2 && t->dim[1] == 64 && t->n_bytes == 72);
    Str s = {0};
    file_tensor_shape(t, &s);
    EXPECT(!strcmp(s.p, "[2, 64]"));
    str_free(&s);
    file_weights_close(w);
  }
  str_free(&seed);
  arena_free(a);
}

int main(void) {
  Str types = {0};
  int n = cases_run("tests/file/gguf.cases", file_gguf_open, "every value type", &types);
  TEST("all cases were found") EXPECT(n >= 55, "%d", n);
  test_getters(&types);
  test_golden();
  test_split();
  test_holes();
  test_unknown();
  test_mutations();
  str_free(&types);
  TEST_MAIN_END();
}
