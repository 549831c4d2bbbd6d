/* The language: texts that load print and load again to the same; texts that do not say exactly what their .err file says; the manual's
   examples; bounds; and ten thousand mutations of the standard texts. Cases are tests/lang (README there). */
#include <dirent.h>
#include <time.h>
#include "lang/lang.h"
#include "test.h"

extern const Source std_embedded[];

enum { MAX_SRC = 4096 };

/* Loads the standard texts and one more. */
static Err *load_with_std(Arena *a, const char *file, const char *text, Module **out) {
  Source src[MAX_SRC];
  int n = 0;
  for (const Source *s = std_embedded; s->file && n < MAX_SRC - 1; s++) src[n++] = *s;
  src[n++] = (Source){file, text};
  return lang_load(a, src, n, out);
}

static bool prints_to_itself(const Module *m, Str *why) {
  Str once = {0}, twice = {0};
  lang_print_module(m, &once);
  str_add(&once, "");
  Arena *a = arena_new("test");
  Module *again;
  Err *e = lang_load(a, &(Source){"printed", once.p}, 1, &again);
  if (e) {
    str_add(why, err_text(e));
  } else {
    lang_print_module(again, &twice);
    str_add(&twice, "");
    if (strcmp(once.p, twice.p)) str_addf(why, "prints differently the second time: %s", twice.p);
  }
  bool same = !e && !strcmp(once.p, twice.p);
  err_free(e);
  arena_free(a);
  str_free(&once);
  str_free(&twice);
  return same;
}

/* "" when the text loads and its print is a fixpoint, else why not. */
static void run_ok(const char *file, const char *text, Str *why) {
  Arena *a = arena_new("test");
  Module *m;
  Err *e = load_with_std(a, file, text, &m);
  if (e) str_add(why, err_text(e));
  else prints_to_itself(m, why);
  err_free(e);
  arena_free(a);
}

static void run_error(const char *file, const char *text, Str *got) {
  Arena *a = arena_new("test");
  Module *m = NULL;
  Err *e = load_with_std(a, file, text, &m);
  str_add(got, e ? err_text(e) : "");
  EXPECT(!e || (err_kind(e) == ERR_SYNTAX && !m), "kind");
  err_free(e);
  arena_free(a);
}

/* ---- files of cases ---- */
typedef struct Case { char name[200]; Str text; } Case;
enum { MAX_CASES = 500 };

/* Text after each "#--- name" line. */
static int split_cases(const char *text, Case *out) {
  int n = 0;
  while (*text) {
    size_t len = strcspn(text, "\n"), whole = len + (text[len] == '\n');
    if (!strncmp(text, "#--- ", 5) && n < MAX_CASES) snprintf(out[n++].name, sizeof out->name, "%.*s", (int)len - 5, text + 5);
    else if (n) str_add_n(&out[n - 1].text, text, whole);
    text += whole;
  }
  return n;
}

static void free_cases(Case *c, int n) {
  for (int i = 0; i < n; i++) str_free(&c[i].text);
  free(c);
}

static const char *case_text(const Case *c) { return c->text.p ? c->text.p : ""; }

/* Without the blank line that may separate it from the next. */
static bool same_text(const char *a, const char *b) {
  size_t na = strlen(a), nb = strlen(b);
  while (na && a[na - 1] == '\n') na--;
  while (nb && b[nb - 1] == '\n') nb--;
  return na == nb && !memcmp(a, b, na);
}

static void run_file(const char *name) {
  char path[300], err_path[300];
  snprintf(path, sizeof path, "tests/lang/%s.lum", name);
  snprintf(err_path, sizeof err_path, "tests/lang/%s.err", name);
  Str text = {0}, expected = {0};
  EXPECT_OK(os_read_file(path, 1 << 20, &text));
  bool fails = os_exists(err_path);
  if (fails) EXPECT_OK(os_read_file(err_path, 1 << 20, &expected));
  Case *in = calloc(MAX_CASES, sizeof *in), *want = calloc(MAX_CASES, sizeof *want);
  int n = split_cases(text.p ? text.p : "", in), n_want = split_cases(expected.p ? expected.p : "", want);
  TEST(path) EXPECT(n > 0 && (!fails || n == n_want), "%d cases, %d expectations", n, n_want);
  for (int i = 0; i < n; i++) {
    char title[600];
    snprintf(title, sizeof title, "%s: %s", path, in[i].name);
    Str got = {0};
    str_add(&got, "");
    TEST(title) {
      if (!fails) {
        run_ok(name, case_text(&in[i]), &got);
        EXPECT(!got.n, "%s", got.p);
      } else {
        run_error(name, case_text(&in[i]), &got);
        bool listed = i < n_want && !strcmp(in[i].name, want[i].name);
        EXPECT(got.n, "loads");
        EXPECT(listed && same_text(got.p, case_text(&want[i])), "got %s, expected %s", got.p, listed ? case_text(&want[i]) : "no such case");
      }
    }
    if (getenv("SHOW_DIAGNOSTICS")) printf("#--- %s\n%s", in[i].name, got.p);
    str_free(&got);
  }
  free_cases(in, n);
  free_cases(want, n_want);
  str_free(&text);
  str_free(&expected);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void run_files(void) {
  char *name[64];
  int n = 0;
  DIR *d = opendir("tests/lang");
  EXPECT(d, "tests/lang");
  for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
    size_t len = strlen(e->d_name);
    if (len > 4 && len < 100 && !strcmp(e->d_name + len - 4, ".lum") && n < 64) name[n++] = strndup(e->d_name, len - 4);
  }
  if (d) closedir(d);
  qsort(name, (size_t)n, sizeof name[0], by_name);
  for (int i = 0; i < n; i++) {
    run_file(name[i]);
    free(name[i]);
  }
}

/* ---- the manual: ```lum blocks load, ```lum error blocks say what the next ```text block shows ---- */
static const char *block_end(const char *p) {
  const char *end = strstr(p, "\n```");
  return end ? end + 1 : p + strlen(p);
}

static void run_manual(void) {
  Str text = {0};
  int n_ok = 0, n_errors = 0;
  EXPECT_OK(os_read_file("docs/language.md", 1 << 20, &text));
  for (const char *p = text.p; p && (p = strstr(p, "```lum")); ) {
    bool fails = !strncmp(p, "```lum error", 12);
    const char *start = strchr(p, '\n') + 1, *end = block_end(start);
    int line = 1;
    for (const char *q = text.p; q < start; q++) line += *q == '\n';
    char title[100], *example = strndup(start, (size_t)(end - start));
    snprintf(title, sizeof title, "docs/language.md: example in line %d", line);
    Str got = {0};
    str_add(&got, "");
    TEST(title) {
      if (!fails) run_ok("example.lum", example, &got);
      else run_error("example.lum", example, &got);
      const char *shown = fails ? strstr(end, "```text\n") : NULL;
      char *want = shown ? strndup(shown + 8, (size_t)(block_end(shown + 8) - shown - 8)) : strdup("");
      EXPECT(same_text(got.p, want), "got %s, expected %s", got.p, want);
      free(want);
    }
    n_ok += !fails;
    n_errors += fails;
    free(example);
    str_free(&got);
    p = end + 4 < text.p + text.n ? end + 4 : NULL;
  }
  TEST("docs/language.md: has examples") EXPECT(n_ok >= 8 && n_errors >= 4, "%d ok, %d errors", n_ok, n_errors);
  int n_lines = 0;
  for (const char *q = text.p; q && *q; q++) n_lines += *q == '\n';
  TEST("docs/language.md: at most 400 lines") EXPECT(n_lines > 0 && n_lines <= 400, "%d lines", n_lines);
  str_free(&text);
}

/* Every row of the language's tables is in the manual. */
static void run_tables(void) {
  static const char *const names[] = {
#define BUILTIN(name, args, result, hyper_only, meaning) #name,
#include "lang/builtins.def"
#undef BUILTIN
#define SCALAR(name, bytes, is_float, too_large) #name,
#include "lang/scalars.def"
#undef SCALAR
#define ATTR(name, kind, indexed, meaning) "w." #name,
#include "lang/attrs.def"
#undef ATTR
#define INFIX(id, text, prec)
#define PREFIX(id, text) text,
#define REDUCTION(id, text, meaning) text,
#include "lang/operators.def"
#undef INFIX
#undef PREFIX
#undef REDUCTION
  };
  Str text = {0};
  EXPECT_OK(os_read_file("docs/language.md", 1 << 20, &text));
  TEST("docs/language.md: names every built-in, scalar kind, attribute, prefix and reduction") {
    for (size_t i = 0; i < COUNT_OF(names); i++) {
      char quoted[100], indexed[100];
      snprintf(quoted, sizeof quoted, "`%s`", names[i]);
      snprintf(indexed, sizeof indexed, "`%s[", names[i]);
      EXPECT(text.p && (strstr(text.p, quoted) || strstr(text.p, indexed)), "%s", names[i]);
    }
  }
  str_free(&text);
}

/* ---- bounds: a text that repeats open n times, then mid, then close n times ---- */
static void expect_says(const char *text, const char *part) {
  Arena *a = arena_new("test");
  Module *m;
  Err *e = lang_load(a, &(Source){"bound.lum", text}, 1, &m);
  EXPECT(e && strstr(err_text(e), part), "got %.300s, expected %s", e ? err_text(e) : "success", part);
  err_free(e);
  arena_free(a);
}

static void repeat(Str *s, const char *what, int n) {
  for (int i = 0; i < n; i++) str_add(s, what);
}

static void expect_nested(const char *head, const char *open, const char *mid, const char *close, const char *tail, int n, const char *part) {
  Str s = {0};
  str_add(&s, head);
  repeat(&s, open, n);
  str_add(&s, mid);
  repeat(&s, close, n);
  str_add(&s, tail);
  if (part) {
    expect_says(s.p, part);
  } else {
    Arena *a = arena_new("test");
    Module *m;
    EXPECT_OK(lang_load(a, &(Source){"bound.lum", s.p}, 1, &m));
    arena_free(a);
  }
  str_free(&s);
}

static void run_bounds(void) {
  const char *fn = "fn a(x: f32) -> f32 = ", *deep = "at most 200 levels";
  const int huge = 60000;
  TEST("depth: parentheses") { expect_nested(fn, "(", "x", ")", "\n", huge, deep); expect_nested(fn, "(", "x", ")", "\n", 150, NULL); }
  TEST("depth: prefix operators") expect_nested(fn, "-", "x", "", "\n", huge, deep);
  TEST("depth: a long sum") { expect_nested(fn, "", "x", " + x", "\n", huge, deep); expect_nested(fn, "", "x", " + x", "\n", 150, NULL); }
  TEST("depth: calls") expect_nested(fn, "sqrt(", "x", ")", "\n", huge, deep);
  TEST("depth: ? :") expect_nested(fn, "x > 0.0 ? x : ", "x", "", "\n", huge, deep);
  TEST("depth: ? ?") expect_nested(fn, "x > 0.0 ? ", "x", " : x", "\n", huge, deep);
  TEST("depth: indices") expect_nested("op a(x: i32[M]) -> y: i32[M] { y[m] = ", "x[", "m", "]", " }\n", huge, deep);
  TEST("depth: indices after indices") expect_nested("op a(x: i32[M]) -> y: i32[M] { y[m] = x", "[m]", "", "", " }\n", huge, deep);
  TEST("depth: fields") expect_nested("op a(x: i32[M]) -> y: i32[M] { y[m] = x", ".a", "", "", " }\n", huge, deep);
  TEST("depth: reductions") expect_nested("op a(x: i32[M]) -> y: i32[M] { y[m] = ", "sum(k < 2: ", "1.0", ")", " }\n", huge, deep);
  TEST("depth: ranges of reductions") expect_nested("op a(x: i32[M]) -> y: i32[M] { y[m] = ", "isum(k < ", "3", ": 1)", " }\n", huge, deep);
  TEST("depth: max that may be reductions") expect_nested(fn, "max(x, ", "x", ")", "\n", 20000, deep);
  TEST("depth: as") expect_nested("model a { file gguf \"a\" graph(t: i32[M]) { return t", " as [M]", "", "", " } }\n", huge, deep);
  TEST("depth: loops") expect_nested("model a { file gguf \"a\" graph(t: i32[M]) { ", "for a in b { ", "", "} ", "return t } }\n", huge, deep);
  TEST("length: statements") expect_nested("fn a(x: f32) -> f32 { ", "y = x ", "return y }", "", "\n", huge, "too long");
  TEST("length: parameters") expect_nested("fn a(x: f32", ", x: f32", "", "", ") -> f32 = x\n", huge, "too long");
  TEST("length: declarations") expect_nested("", "fn a()->f32=1.0 ", "", "", "\n", 30000, "at most 20000");
  TEST("length: a text") expect_nested("", "# nothing\n", "", "", "", 110000, "at most 1048576");
  TEST("length: digits") expect_nested(fn, "1", "", "", "\n", huge, "too many digits");
  TEST("length: fn through fn") {
    Str s = {0};
    str_add(&s, "fn g0(x: f32) -> f32 = x\n");
    for (int i = 1; i < 1000; i++) str_addf(&s, "fn g%d(x: f32) -> f32 = g%d(x)\n", i, i - 1);
    Arena *a = arena_new("test");
    Module *m;
    EXPECT_OK(lang_load(a, &(Source){"bound.lum", s.p}, 1, &m));
    arena_free(a);
    str_clear(&s);
    for (int i = 0; i < 1000; i++) str_addf(&s, "fn g%d(x: f32) -> f32 = g%d(x)\n", i, i + 1);
    str_add(&s, "fn g1000(x: f32) -> f32 = x\n");
    expect_says(s.p, "through more than 200 functions");
    str_free(&s);
  }
  TEST("length: a range that doubles with every statement") {
    Str s = {0};
    str_add(&s, "op a(n: i32[M,M], x: f32[M,M]) -> y: f32[M,M] {\n  t0[i,j] = x[i,j] for i < M, j < n[i,i]\n");
    for (int i = 1; i < 40; i++) str_addf(&s, "  t%d[i,j] = t%d[n[i,i],j] for i < M\n", i, i - 1);
    str_add(&s, "  y[i,j] = t39[i,j]\n}\n");
    expect_says(s.p, "comes out too long");
    str_free(&s);
  }
  TEST("at most 20 diagnostics") {
    Str s = {0};
    for (int i = 0; i < 50; i++) str_addf(&s, "fn g%d(x: f32) -> f32 = y\n", i);
    Arena *a = arena_new("test");
    Module *m;
    Err *e = lang_load(a, &(Source){"many.lum", s.p}, 1, &m);
    int n = 0;
    for (const char *p = e ? err_text(e) : ""; (p = strstr(p, "many.lum:")); p++) n++;
    EXPECT(n == 20, "%d", n);
    EXPECT(e && strstr(err_text(e), "and 30 more"), "%s", e ? err_text(e) : "");
    err_free(e);
    arena_free(a);
    str_free(&s);
  }
}

/* ---- look-ups and overriding ---- */
static void run_lookups(void) {
  Arena *a = arena_new("test");
  Module *m = NULL, *o = NULL;
  TEST("lang_std_load: the standard texts") {
    EXPECT_OK(lang_std_load(a, NULL, &m));
    EXPECT(m && lang_format(m, "q4_k") && lang_format(m, "q4_k")->n_bytes == 144 && lang_format(m, "q4_k")->block == 256, "q4_k");
    EXPECT(m && lang_format_gguf(m, 12) == lang_format(m, "q4_k"), "gguf 12");
    EXPECT(m && !lang_format_gguf(m, -1) && !lang_format(m, "q4") && !lang_fn(m, "no") && !lang_table(m, "no") && !lang_op(m, "no", 0), "none");
    EXPECT(m && lang_fn(m, "exp") && lang_fn(m, "exp")->n_lets == 7, "exp");
  }
  TEST("lang_std_load: a folder overrides and adds variants in front") {
    EXPECT_OK(lang_std_load(a, "tests/lang/override", &o));
    Str s = {0};
    const OpDecl *add = o ? lang_op(o, "add", 0) : NULL;
    if (add) lang_print_expr(add->stmt[0].rhs, &s);
    EXPECT(add && !strcmp(s.p, "b[m, e] + a[m, e]") && !lang_op(o, "add", 1), "%s", s.p ? s.p : "");
    const OpDecl *first = o ? lang_op(o, "linear", 0) : NULL;
    EXPECT(first && first->precision && !strcmp(first->precision, "bf16"), "first variant");
    EXPECT(m && o && o->n_ops == m->n_ops + 1, "ops");
    str_free(&s);
  }
  TEST("lang_std_load: a folder that is not there") {
    Module *none = NULL;
    Err *e = lang_std_load(a, "tests/lang/nowhere", &none);
    EXPECT(e && err_kind(e) == ERR_IO && !none, "%s", e ? err_text(e) : "");
    err_free(e);
  }
  TEST("ranges and axes are filled in") {
    const OpDecl *l = m ? lang_op(m, "rms_norm", 0) : NULL;
    EXPECT(l && l->stmt[0].n_axes == 1 && !strcmp(l->stmt[0].axis[0].name, "m") && !strcmp(l->stmt[0].axis[0].extent->name, "M"), "r[m]");
    EXPECT(l && l->stmt[1].n_axes == 2 && !strcmp(l->stmt[1].axis[1].extent->name, "E"), "y[m,e]");
    const OpDecl *k = m ? lang_op(m, "keep_keys", 0) : NULL;
    EXPECT(k && k->stmt[0].n_axes == 3 && !strcmp(k->stmt[0].axis[0].name, "m") && !strcmp(k->stmt[0].axis[0].extent->name, "M"), "keep_keys");
  }
  TEST("lang_nearest") {
    const char *names[] = {"alpha", "beta", "gamma", "m"};
    const char *near = lang_nearest("gama", names, 4);
    EXPECT(near && !strcmp(near, "gamma"), "%s", near ? near : "none");
    EXPECT(!lang_nearest("omega", names, 4) && !lang_nearest("n", names, 4) && !lang_nearest("", names, 4), "none is near");
  }
  arena_free(a);
}

static void run_speed(void) {
  TEST("the standard texts load in a few milliseconds") {
    int64_t best = INT64_MAX;
    for (int i = 0; i < 5; i++) {
      Arena *a = arena_new("test");
      Module *m;
      int64_t t0 = os_now_ns();
      EXPECT_OK(lang_std_load(a, NULL, &m));
      best = MIN(best, os_now_ns() - t0);
      arena_free(a);
    }
    EXPECT(best < 50000000 * test_patience(), "%lld ns", (long long)best);  /* generous: busy machines run this too */
  }
}

/* ---- mutations ---- */
static uint64_t random_next(uint64_t *s) {
  *s ^= *s << 13;
  *s ^= *s >> 7;
  *s ^= *s << 17;
  return *s;
}

static void mutate(Str *s, uint64_t *seed) {
  static const char *const bits[] = {"(", ")", "[", "]", "{", "}", ",", ":", "=", "@", "?", "->", "for ", " as [", "sum(", "max(", "0", "1e9", "9999999999", "x", "m", "W[", "\"", "#", "\n",
                                     "-", "/", "<", ".", "\xff", "é", "return ", "op a", "format b {", " else ", " rows r -> "};
  size_t at = s->n ? random_next(seed) % s->n : 0, len = random_next(seed) % 20, from = s->n ? random_next(seed) % s->n : 0;
  len = MIN(len, s->n - at);
  Str out = {0};
  str_add_n(&out, s->p, at);
  switch (random_next(seed) % 5) {
    case 0: str_add(&out, bits[random_next(seed) % COUNT_OF(bits)]); len = 0; break;               /* insert */
    case 1: break;                                                                                 /* delete */
    case 2: str_add(&out, bits[random_next(seed) % COUNT_OF(bits)]); break;                        /* replace */
    case 3: str_add_n(&out, s->p + from, MIN((size_t)40, s->n - from)); len = 0; break;            /* copy from elsewhere */
    default: str_add_c(&out, (char)(1 + random_next(seed) % 255)); len = MIN(len, (size_t)1); break; /* a byte */
  }
  str_add_n(&out, s->p + at + len, s->n - at - len);
  str_free(s);
  *s = out;
}

static void run_mutations(int n) {
  TEST("mutations of the standard texts") {
    int n_std = 0, n_loaded = 0;
    while (std_embedded[n_std].file) n_std++;
    uint64_t seed = 88172645463325252u;
    for (int i = 0; i < n; i++) {
      Source src[MAX_SRC];
      int k = (int)(random_next(&seed) % (uint64_t)n_std);
      bool all = i % 8 == 0;   /* with the other texts, the mutated one overriding itself; else alone, which is quicker */
      int n_src = 0;
      for (int j = 0; j < n_std && all; j++) if (j != k) src[n_src++] = std_embedded[j];
      Str s = {0};
      str_add(&s, std_embedded[k].text);
      for (int j = 0, times = 1 + (int)(random_next(&seed) % 4); j < times; j++) mutate(&s, &seed);
      src[n_src++] = (Source){"mutated", s.p};
      Arena *a = arena_new("test");
      Module *m = NULL;
      Err *e = lang_load(a, src, n_src, &m);
      EXPECT((e != NULL) == (m == NULL), "either fails or loads");
      EXPECT(!e || strstr(err_text(e), ":"), "says where");
      Str why = {0};
      if (m && !prints_to_itself(m, &why)) EXPECT(false, "round %d: %s", i, why.p ? why.p : "");
      n_loaded += m != NULL;
      str_free(&why);
      err_free(e);
      arena_free(a);
      str_free(&s);
    }
    EXPECT(n_loaded >= n / 100, "%d of %d loaded: the mutations are too rough to test the checker", n_loaded, n);
  }
}

int main(int argc, char **argv) {
  run_files();
  run_manual();
  run_tables();
  run_bounds();
  run_lookups();
  run_speed();
  run_mutations(argc > 1 ? atoi(argv[1]) : 10000);
  TEST_MAIN_END();
}
