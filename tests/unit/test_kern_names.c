/* Names mean nothing: the standard texts are loaded as they are and with every op and every format renamed, and whole models and single
   kernels must compile to the same machine code, byte for byte, on every target. This program embeds its own texts: it defines the table
   that the build otherwise makes, and fills it from std/. runtests: machine code */
#include <ctype.h>
#include <ftw.h>
#include <unistd.h>
#include "kern/kern.h"
#include "model/model.h"
#include "test.h"

enum { MAX_TEXTS = 200, MAX_NAMES = 500 };
Source std_embedded[MAX_TEXTS + 1]; /* NOLINT: src/lang/std.c reads it */
extern const char std_registry[];
const char std_registry[] = "{}";

static Arena *forever;
static Source original[MAX_TEXTS + 1];
static int n_texts;
static struct { const char *old, *new; bool is_format; } name[MAX_NAMES];
static int n_names;

static int take_text(const char *path, const struct stat *st, int kind, struct FTW *at) {
  Str s = {0};
  (void)st, (void)at;
  if (kind != FTW_F || strlen(path) < 4 || strcmp(path + strlen(path) - 4, ".lum")) return 0;
  Err *e = os_read_file(path, 1 << 24, &s);
  if (e || n_texts == MAX_TEXTS) return 1;
  original[n_texts++] = (Source){arena_dup(forever, path), arena_dup_n(forever, s.p, s.n)};
  str_free(&s);
  return 0;
}

static int by_file(const void *a, const void *b) { return strcmp(((const Source *)a)->file, ((const Source *)b)->file); }

static void add_name(const char *old, bool is_format) {
  for (int i = 0; i < n_names; i++) if (!strcmp(name[i].old, old)) return;
  if (n_names == MAX_NAMES) abort();
  char back[64];
  size_t n = strlen(old);
  for (size_t i = 0; i < n && i < 60; i++) back[i] = old[n - 1 - i], back[i + 1] = 0;
  name[n_names].old = old;
  name[n_names].is_format = is_format;
  name[n_names].new = arena_printf(forever, "n%dx%s", n_names, back);
  n_names++;
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* f32 is a format and an element type: only what stands behind `format` is the format's name. */
static bool is_type(const char *w) {
  static const char *const types[] = {"f32", "f16", "bf16", "i32", "i16", "i8", "u8", "u16", "u32"};
  for (size_t i = 0; i < COUNT_OF(types); i++) if (!strcmp(types[i], w)) return true;
  return false;
}

static const char *new_name(const char *w) {
  for (int i = 0; i < n_names; i++) if (!strcmp(name[i].old, w)) return name[i].new;
  return NULL;
}

/* Words of the text, strings and remarks left alone. */
static char *renamed(const char *text) {
  Str out = {0};
  bool after_format = false;
  for (const char *p = text; *p;) {
    char word[64];
    size_t n = 0;
    if (*p == '"' || *p == '#') {
      char end = *p == '"' ? '"' : '\n';
      do str_add_c(&out, *p++); while (*p && *p != end);
      if (*p) str_add_c(&out, *p++);
      continue;
    }
    while (is_word(p[n]) && n + 1 < sizeof word) word[n] = p[n], n++;
    if (n == 0) {
      str_add_c(&out, *p++);
      continue;
    }
    word[n] = 0;
    const char *to = new_name(word);
    str_add(&out, to && (after_format || !is_type(word)) ? to : word);
    after_format = !strcmp(word, "format");
    p += n;
  }
  char *copy = arena_dup_n(forever, out.p, out.n);
  str_free(&out);
  return copy;
}

static void use_texts(bool other_names) {
  for (int i = 0; i <= n_texts; i++) std_embedded[i] = i < n_texts && other_names ? (Source){original[i].file, renamed(original[i].text)} : original[i];
}

/* ---- machine code -------------------------------------------------------------------------------------------------- */
static void code_of(const Module *m, const char *text, const char *precision, const Target *t, Str *out) {
  Arena *a = arena_new("compile");
  KernCall call;
  KernSpec *s;
  EXPECT_OK(kern_call_parse(a, text, &call));
  Err *e = kern_call_build(a, m, &call, precision, &s);
  EXPECT_OK(err_wrap(e, "%s", text));
  for (int r = 0; !e && r < s->plan->n_regions; r++) {
    Sched sched = kern_sched(t, 1 << 20, s->plan, r, KERN_MANY);
    IrFn *fn;
    int64_t scratch;
    GenCode code = {0};
    EXPECT_OK(lower_region(a, s->plan, r, &sched, "k", &fn, &scratch));
    EXPECT_OK(opt_pipeline(fn));
    EXPECT_OK(gen_compile(a, fn, t, NULL, &code));
    str_add_n(out, code.code, code.n_bytes);
  }
  arena_free(a);
}

/* One format's kernels: a product, and rows picked. */
static void kernels_of(const Module *m, bool other_names, const char *format, Str *out) {
  static const char *const op[] = {"linear", "embed"};
  const FormatDecl *f = lang_format(m, other_names ? new_name(format) : format);
  EXPECT(f != NULL, "format %s", format);
  if (!f) return;
  int K = (int)(f->block >= 64 ? f->block : 64);
  for (size_t i = 0; i < COUNT_OF(op); i++) {
    Str s = {0};
    str_addf(&s, "%s ", other_names ? new_name(op[i]) : op[i]);
    if (i == 0) str_addf(&s, "w=%s[48,%d] x=f32[M,%d]", f->name, K, K);
    else str_addf(&s, "w=%s[48,%d] t=i32[M]", f->name, K);
    for (int t = 0; t < gen_target_count(); t += 2) code_of(m, s.p, t ? "f32" : "int8", gen_target_get(t), out);
    str_free(&s);
  }
}

static void formats(void) {
  Module *m[2] = {0};
  TEST("the texts by other names are texts") {
    for (int i = 0; i < 2; i++) {
      use_texts(i == 1);
      EXPECT_OK(lang_std_load(forever, NULL, &m[i]));
    }
  }
  if (!m[0] || !m[1]) return;
  for (int i = 0; i < n_names; i++) {
    if (!name[i].is_format) continue;
    char title[128];
    snprintf(title, sizeof title, "%s by another name: the same machine code", name[i].old);
    TEST(title) {
      Str code[2] = {0};
      for (int k = 0; k < 2; k++) kernels_of(m[k], k == 1, name[i].old, &code[k]);
      EXPECT(code[0].n > 1000 && code[0].n == code[1].n && !memcmp(code[0].p, code[1].p, code[0].n), "%zu and %zu bytes", code[0].n, code[1].n);
      str_free(&code[0]);
      str_free(&code[1]);
    }
  }
}

/* ---- whole models -------------------------------------------------------------------------------------------------- */
/* Hexadecimal of every kernel a model builds for prefill and decode, without the titles, which name ops; and its logits. */
static void model_code(const char *path, const char *target, const char *trace, Str *code, Str *logits) {
  char spec[320];
  Model *m = NULL;
  Seq *seq = NULL;
  int32_t ids[20];
  const float *out;
  int64_t stride;
  snprintf(spec, sizeof spec, "bin>%s", trace);
  EXPECT_OK(trace_open(spec));
  Err *e = model_open(path, &(ModelOptions){.target = target, .n_threads = 1, .context = 64, .chunk = 20}, &m);
  EXPECT_OK(e);
  if (e) return;
  EXPECT_OK(seq_new(m, &seq));
  for (int i = 0; i < 20; i++) ids[i] = (i * 37 + 11) % (int)model_n_vocab(m);
  EXPECT_OK(model_step(m, &(StepPart){seq, ids, 19, 1}, 1, NULL, NULL));
  EXPECT_OK(model_step(m, &(StepPart){seq, ids + 19, 1, 1}, 1, &out, &stride));
  str_add_n(logits, out, (size_t)model_n_vocab(m) * sizeof *out);
  seq_free(seq);
  model_close(m);
  fflush(NULL);
  Str text = {0};
  EXPECT_OK(os_read_file(trace, 1 << 28, &text));
  for (char *line = strtok(text.p, "\n"); line; line = strtok(NULL, "\n")) if (*line != '[') str_add(code, line);
  str_free(&text);
  unlink(trace);
}

static void models(const char *path, const char *what) {
  const char *tmp = getenv("TEST_TMP");
  for (int t = 0; t < gen_target_count(); t++) {
    const Target *target = gen_target_get(t);
    char title[200], trace[300];
    if (!gen_target_runs(target, kern_cpu())) continue;
    snprintf(title, sizeof title, "%s on %s by other names: the same machine code, the same logits", what, target->name);
    snprintf(trace, sizeof trace, "%s/lumen-names-%d", tmp ? tmp : "/tmp", (int)getpid());
    TEST(title) {
      Str code[2] = {0}, logits[2] = {0};
      for (int k = 0; k < 2; k++) {
        use_texts(k == 1);
        model_code(path, target->name, trace, &code[k], &logits[k]);
      }
      EXPECT(code[0].n > 10000 && code[0].n == code[1].n && !memcmp(code[0].p, code[1].p, code[0].n), "%zu and %zu digits", code[0].n, code[1].n);
      EXPECT(logits[0].n > 100 && logits[0].n == logits[1].n && !memcmp(logits[0].p, logits[1].p, logits[0].n));
      for (int k = 0; k < 2; k++) str_free(&code[k]), str_free(&logits[k]);
    }
  }
}

int main(void) {
  Module *m = NULL;
  forever = arena_new("forever");
  nftw("std", take_text, 16, FTW_PHYS);
  qsort(original, (size_t)n_texts, sizeof *original, by_file);
  TEST("std is read") EXPECT(n_texts >= 3, "%d texts", n_texts);
  use_texts(false);
  EXPECT_OK(lang_std_load(forever, NULL, &m));
  if (!m) return 1;
  for (int i = 0; i < m->n_ops; i++) add_name(m->op[i]->name, false);
  for (int i = 0; i < m->n_formats; i++) add_name(m->format[i]->name, true);
  formats();
  models("tests/models/llama/model.gguf", "a tiny model");
  char *home = os_cache_dir(forever), *big = arena_printf(forever, "%s/models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf", home);
  if (os_exists(big)) models(big, "the default model");
  else TEST_SKIP("the default model by other names", "not in the cache");
  arena_free(forever);
  TEST_MAIN_END();
}
