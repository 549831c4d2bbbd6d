/* file: safetensors. The cases of tests/file/safetensors.cases, and Hugging Face directories made here. */
#include <sys/stat.h>
#include "file_cases.h"

static Arena *a;
static char dir[] = "/tmp/lumen-hf-XXXXXX";

static const char *at(const char *name) { return arena_printf(a, "%s/%s", dir, name); }
static void put(const char *name, const char *text) { EXPECT_OK(os_write_file(at(name), text, strlen(text))); }

/* A part with one F32 tensor of one element. */
static void put_part(const char *name, const char *tensor, float value) {
  Str s = {0};
  const char *json = arena_printf(a, "{\"%s\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", tensor);
  uint64_t n = strlen(json);
  str_add_n(&s, &n, 8);
  str_add(&s, json);
  str_add_n(&s, &value, 4);
  EXPECT_OK(os_write_file(at(name), s.p, s.n));
  str_free(&s);
}

static void fails(const char *text) {
  Weights *w = NULL;
  Err *e = file_weights_open(a, dir, cases_find_format, NULL, &w);
  EXPECT(e && strstr(err_text(e), text) && !w, "says '%s', expected '%s'", e ? err_text(e) : "(it opens)", text);
  err_free(e);
  file_weights_close(w);
}

static void test_config(void) {
  TEST("directory: config.json as metadata") {
    put("config.json", "{\"a\": 1, \"b\": {\"c\": [1, 2.5], \"d\": {\"e\": \"x\\u0000y\"}}, \"n\": null, \"l\": [true, false], \"s\": [\"p\", \"q\"], \"o\": [{\"k\": 3}, null], \"z\": [], \"big\": 9007199254740993}");
    put("generation_config.json", "{\"eos_token_id\": [1, 2]}");
    put_part("model.safetensors", "w", 7);
    Weights *w = NULL;
    EXPECT_OK(file_weights_open(a, dir, cases_find_format, NULL, &w));
    if (!w) break;
    int64_t v = 0, *ints = NULL;
    float *f = NULL;
    size_t n = 0;
    FileStr s = {0};
    const char *text;
    EXPECT_OK(file_kv_int(w, "big", 0, INT64_MAX, &v));
    EXPECT(v == 9007199254740993);
    EXPECT_OK(file_kv_floats(a, w, "b.c", &f, &n));
    EXPECT(n == 2 && f[1] == 2.5f);
    EXPECT_OK(file_kv_floats(a, w, "a", &f, &n));
    EXPECT(n == 1 && f[0] == 1, "a JSON integer where a float may stand");
    EXPECT_OK(file_kv_str(w, "b.d.e", &s));
    EXPECT(s.n == 3);
    Err *e = file_kv_text(a, w, "b.d.e", &text);
    EXPECT(e && strstr(err_text(e), "NUL"));
    err_free(e);
    EXPECT_OK(file_kv_int(w, "o.0.k", 0, 9, &v));
    EXPECT(v == 3 && !file_kv_find(w, "n") && !file_kv_find(w, "o.1"));
    EXPECT_OK(file_kv_ints(a, w, "generation_config.eos_token_id", &ints, &n));
    EXPECT(n == 2 && ints[1] == 2);
    EXPECT_OK(file_kv_ints(a, w, "l", &ints, &n));
    EXPECT(n == 2 && ints[0] == 1 && ints[1] == 0);
    const FileStr *none = NULL;
    EXPECT_OK(file_kv_strs(w, "z", &none, &n));
    EXPECT(n == 0, "an empty array is an array of anything");
    file_weights_close(w);
  }
  TEST("directory: faults of config.json") {
    put("config.json", "{\"a.b\": 1, \"a\": {\"b\": 2}}");
    fails("key 'a.b' is there twice");
    put("config.json", "[]");
    fails("config.json: is no JSON object");
    put("config.json", "{\"a\": NaN}");
    fails("config.json: line 1");
    Str s = {0};
    for (int i = 0; i < 200; i++) str_add(&s, "{\"abcabcabcabcabcabcabcabc\":");
    str_add(&s, "1");
    for (int i = 0; i < 200; i++) str_add(&s, "}");
    put("config.json", s.p);
    fails("longer than 4608 bytes");
    s.n = 0; /* as many short keys and objects below a long one as take more memory than their text is worth */
    str_add(&s, "{\"");
    for (int i = 0; i < 4500; i++) str_add_c(&s, 'k');
    str_add(&s, "\": [0");
    for (int i = 0; i < 30000; i++) str_add(&s, ",{}");
    str_add(&s, "]}");
    put("config.json", s.p);
    str_free(&s);
    fails("keys with those around them: more than 64 MiB");
    put("config.json", "{\"o\": {\"b\": 1, \"a\": {}}, \"l\": [\"x\", 3], \"n\": [null], \"s\": [\"x\"]}");
    Weights *w = NULL;
    EXPECT_OK(file_weights_open(a, dir, cases_find_format, NULL, &w));
    if (!w) break;
    const FileObject *o = file_object_find(w, "o"), *l = file_object_find(w, "l"), *n = file_object_find(w, "n");
    EXPECT(o && !o->is_list && o->n == 2 && !strcmp(o->name[0], "b") && !strcmp(o->name[1], "a") && file_object_find(w, "o.a"));
    EXPECT(l && l->is_list && !l->n && n && n->is_list && !file_object_find(w, "s"), "a list of several kinds, or of none, is told");
    file_weights_close(w);
    put("config.json", "{}");
    unlink(at("model.safetensors"));
    fails("holds neither model.safetensors nor model.safetensors.index.json");
  }
}

static void test_parts(void) {
  static const char index_of[] = "{\"weight_map\": {\"a\": \"one.safetensors\", \"b\": \"two.safetensors\"}}";
  TEST("directory: parts named by the index") {
    put("model.safetensors.index.json", index_of);
    put_part("one.safetensors", "a", 1);
    put_part("two.safetensors", "b", 2);
    Weights *w = NULL;
    EXPECT_OK(file_weights_open(a, dir, cases_find_format, NULL, &w));
    if (!w) break;
    const FileTensor *t = file_tensor_find(w, "b");
    float f = 0;
    if (t) memcpy(&f, t->p, 4);
    EXPECT(w->n_files == 2 && t && t->file == 1 && f == 2);
    file_weights_close(w);
  }
  TEST("directory: faults of the index and the parts") {
    put_part("two.safetensors", "a", 2);
    fails("tensor 'a' is there twice"); /* D05 over two parts */
    put_part("two.safetensors", "c", 2);
    fails("weight_map 'b': no file holds this tensor");
    put("model.safetensors.index.json", "{\"weight_map\": {\"a\": \"two.safetensors\", \"c\": \"one.safetensors\"}}");
    fails("says two.safetensors, but one.safetensors holds it");
    put("model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../one.safetensors\"}}");
    fails("weight_map 'a': expected the name of a file in the directory");
    static const char *const escapes[] = {"/etc/passwd", "sub/one.safetensors", ".", "..", "", ".hidden", "a\\u001bb"};
    for (size_t i = 0; i < COUNT_OF(escapes); i++) {
      put("model.safetensors.index.json", arena_printf(a, "{\"weight_map\": {\"a\": \"%s\"}}", escapes[i]));
      fails("weight_map 'a': expected the name of a file in the directory");
    }
    put("model.safetensors.index.json", "{\"weight_map\": {\"a\": 5}}");
    fails("weight_map 'a': expected the name of a file");
    put("model.safetensors.index.json", "{}");
    fails("no object weight_map");
    put("model.safetensors.index.json", index_of);
    unlink(at("two.safetensors"));
    fails("two.safetensors: cannot be opened");
  }
}

int main(void) {
  a = arena_new("test");
  int n = cases_run("tests/file/safetensors.cases", file_safetensors_open, NULL, NULL);
  TEST("all cases were found") EXPECT(n >= 41, "%d", n);
  if (!mkdtemp(dir)) return 1;
  test_config();
  test_parts();
  static const char *const names[] = {"config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json", "one.safetensors", "two.safetensors"};
  for (size_t i = 0; i < COUNT_OF(names); i++) unlink(at(names[i]));
  rmdir(dir);
  arena_free(a);
  TEST_MAIN_END();
}
