/* Structured output: the published tests of JSON Schema, our own cases, hostile inputs, mutations, and masks against trying every token.
   runtests: timeout 300 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <math.h>
#include <pcre2.h>
#include "base/json.h"
#include "test.h"
#include "text/grammar.h"
#include "text/priv.h"

static bool accepts(const Grammar *g, const char *p, size_t n) {
  if (!g) return false;
  GrammarMatcher *m = grammar_matcher_new(g, NULL);
  GrammarState *s = grammar_state_start(m), *next = NULL;
  EXPECT_OK(grammar_state_accept(s, p, n, &next));
  bool ok = next && grammar_state_may_end(next);
  grammar_state_unref(next);
  grammar_state_unref(s);
  grammar_matcher_free(m);
  return ok;
}

static Err *from_text(const char *p, size_t n, unsigned flags, Grammar **out) {
  json_t *js;
  TRY(json_parse_text(p, n, 1 << 20, "schema", &js));
  Err *e = grammar_from_schema(js, flags, out);
  json_decref(js);
  return e;
}

typedef struct Lines { Str text; size_t at; } Lines;
static void lines_open(Lines *l, const char *path) {
  *l = (Lines){0};
  EXPECT_OK(os_read_file(path, 1 << 24, &l->text));
}
static json_t *lines_next(Lines *l) {
  if (l->at >= l->text.n) { str_free(&l->text); return NULL; }
  char *p = l->text.p + l->at, *nl = strchr(p, '\n');
  size_t n = nl ? (size_t)(nl - p) : strlen(p);
  l->at += n + 1;
  json_error_t at;
  json_t *row = json_loadb(p, n, JSON_ALLOW_NUL, &at);
  EXPECT(row, "line %.60s: %s", p, at.text);
  return row;
}
static const char *text_at(const json_t *row, size_t i) { return json_string_value(json_array_get(row, i)); }
static size_t length_at(const json_t *row, size_t i) { return json_string_length(json_array_get(row, i)); }

/* The table in docs/grammar.md says for each file of the suite: tests, right, refused, stricter. */
static char *doc_find(const char *doc, const char *name) {
  static char row[200];
  Str key = {0};
  str_addf(&key, "\n| %s | ", name);
  const char *p = strstr(doc, key.p);
  size_t k = key.n;
  str_free(&key);
  snprintf(row, sizeof row, "%.*s", p ? (int)strcspn(p + k, "\n") : 0, p ? p + k : "");
  return row;
}

static void run_suite(const char *name, const char *doc) {
  char path[200], want[100];
  int n = 0, right = 0, refused = 0, stricter = 0;
  Lines l;
  snprintf(path, sizeof path, "tests/grammar/suite/%s.jsonl", name);
  lines_open(&l, path);
  for (json_t *row; (row = lines_next(&l)); json_decref(row)) {
    Grammar *g = NULL;
    const json_t *tests = json_array_get(row, 2), *t;
    size_t i;
    Err *e = from_text(text_at(row, 1), length_at(row, 1), GRAMMAR_ANY_ORDER, &g);
    json_array_foreach(tests, i, t) {
      n++;
      if (e) { refused++; continue; }
      bool valid = json_is_true(json_array_get(t, 1)), ok = accepts(g, text_at(t, 0), length_at(t, 0));
      EXPECT(valid || !ok, "%s / %s: %s accepted", text_at(row, 0), text_at(t, 2), text_at(t, 0));
      right += ok == valid;
      stricter += valid && !ok;
    }
    if (e) EXPECT(err_kind(e) == ERR_UNSUPPORTED || err_kind(e) == ERR_LIMIT || strstr(err_text(e), "too big"), "%s: %s", text_at(row, 0), err_text(e));
    err_free(e);
    grammar_free(g);
  }
  snprintf(want, sizeof want, "%d | %d | %d | %d |", n, right, refused, stricter);
  EXPECT(!strcmp(doc_find(doc, name), want), "docs/grammar.md says \"%s\", this run: | %s | %s", doc_find(doc, name), name, want);
}

static void suite(void) {
  Str doc = {0};
  static const char *const names[] = {
#define SUITE(name) name,
#include "../grammar/suite.def"
#undef SUITE
  };
  EXPECT_OK(os_read_file("docs/grammar.md", 1 << 20, &doc));
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    char title[100];
    snprintf(title, sizeof title, "JSON Schema suite: %s", names[i]);
    TEST(title) run_suite(names[i], doc.p);
  }
  TEST("docs/grammar.md names every keyword and format") {
    static const char *const words[] = {
#define KEYWORD(name, class) name,
#include "text/schema_keywords.def"
#undef KEYWORD
#define FORMAT(name, max_length, re, or_else) name,
#include "text/schema_formats.def"
#undef FORMAT
    };
    for (size_t i = 0; i < COUNT_OF(words); i++) {
      char quoted[100];
      snprintf(quoted, sizeof quoted, "`%s`", words[i]);
      EXPECT(strstr(doc.p, quoted), "%s", words[i]);
    }
  }
  str_free(&doc);
}

static void check_texts(const Grammar *g, const json_t *row, size_t at, const char *what) {
  for (size_t k = 0; k < 2; k++) {
    const json_t *v;
    size_t i;
    json_array_foreach(json_array_get(row, at + k), i, v)
      EXPECT(accepts(g, json_string_value(v), json_string_length(v)) == !k, "%s: %s %s", what, json_string_value(v), k ? "accepted" : "rejected");
  }
}

static void cases(const char *path, const char *title, Err *(*compile)(const json_t *row, Grammar **out), size_t at) {
  Lines l;
  TEST(title) {
    lines_open(&l, path);
    for (json_t *row; (row = lines_next(&l)); json_decref(row)) {
      Grammar *g = NULL;
      const char *words = text_at(row, at);
      Err *e = compile(row, &g);
      if (words) {
        EXPECT(e && strstr(err_text(e), words), "%s: expected an error with \"%s\", got %s", text_at(row, 0), words, e ? err_text(e) : "none");
      } else if (e) {
        EXPECT(!e, "%s: %s", text_at(row, 0), err_text(e));
      } else {
        check_texts(g, row, at, text_at(row, 0));
      }
      err_free(e);
      grammar_free(g);
    }
  }
}
/* Every code point, asked of PCRE2 one at a time. */
static void script(const char *name, bool extensions) {
  static char title[200];
  char ours[100], theirs[100], text[4];
  int code, n_bad = 0, n_in = 0;
  PCRE2_SIZE at;
  Grammar *g = NULL;
  snprintf(ours, sizeof ours, "\\p{%s=%s}", extensions ? "scx" : "Script", name);
  snprintf(theirs, sizeof theirs, "\\p{%s:%s}", extensions ? "scx" : "sc", name);
  snprintf(title, sizeof title, "%s: every code point as PCRE2 has it", ours);
  TEST(title) {
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)theirs, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &at, NULL);
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    EXPECT_OK(grammar_from_regex(ours, strlen(ours), &g));
    EXPECT(re && data && g, "compiled");
    for (int32_t cp = 0; cp < 0x110000 && re && data && g; cp++) {
      if (cp >= 0xD800 && cp < 0xE000) continue;
      int n = text_utf8_put(cp, text);
      bool want = pcre2_match(re, (PCRE2_SPTR)text, (size_t)n, 0, PCRE2_NO_UTF_CHECK, data, NULL) >= 0;
      n_in += want;
      n_bad += accepts(g, text, (size_t)n) != want;
    }
    EXPECT(!n_bad && n_in > 10, "%d code points are in it, %d are decided wrongly", n_in, n_bad);
    pcre2_match_data_free(data);
    pcre2_code_free(re);
    grammar_free(g);
  }
}

static Err *compile_schema(const json_t *row, Grammar **out) {
  return from_text(text_at(row, 1), length_at(row, 1), strchr(text_at(row, 2), 'g') ? 0 : GRAMMAR_ANY_ORDER, out);
}
static Err *compile_refused(const json_t *row, Grammar **out) { return from_text(text_at(row, 1), length_at(row, 1), 0, out); }
static Err *compile_regex(const json_t *row, Grammar **out) { return grammar_from_regex(text_at(row, 1), length_at(row, 1), out); }
static Err *compile_gbnf(const json_t *row, Grammar **out) { return grammar_from_gbnf(text_at(row, 1), length_at(row, 1), out); }

static double cpu_ms(void) { return (double)os_thread_cpu_ns() * 1e-6; }
static void repeat(Str *s, const char *text, int n) { for (int i = 0; i < n; i++) str_add(s, text); }

static void expect_refused(const char *what, Err *e, Grammar **g, double start) {
  double ms = cpu_ms() - start;
  EXPECT(e && (err_kind(e) == ERR_LIMIT || err_kind(e) == ERR_UNSUPPORTED || err_kind(e) == ERR_FORMAT || err_kind(e) == ERR_SYNTAX), "%s: %s", what, e ? err_text(e) : "compiled");
  EXPECT(ms < 5000, "%s took %.0f ms", what, ms);
  err_free(e);
  if (!e) grammar_free(*g);
}

static void hostile(void) {
  Grammar *g = NULL;
  Str s = {0};
  double t;
  setvbuf(stdout, NULL, _IOLBF, 0);
  TEST("60,000 nested parentheses are refused") {
    str_add(&s, "root ::= ");
    repeat(&s, "(", 60000);
    str_add(&s, "\"a\"");
    repeat(&s, ")", 60000);
    t = cpu_ms();
    expect_refused("GBNF", grammar_from_gbnf(s.p, s.n, &g), &g, t);
    t = cpu_ms();
    expect_refused("regex", grammar_from_regex(s.p + 9, s.n - 9, &g), &g, t);
  }
  TEST("a chain of 5,000 rules works") {
    str_clear(&s);
    str_add(&s, "root ::= r0\n");
    for (int i = 0; i < 5000; i++) str_addf(&s, "r%d ::= r%d\n", i, i + 1);
    str_add(&s, "r5000 ::= \"a\"\n");
    EXPECT_OK(grammar_from_gbnf(s.p, s.n, &g));
    EXPECT(accepts(g, "a", 1) && !accepts(g, "b", 1));
    grammar_free(g);
  }
  TEST("a schema nested 3,000 deep is refused") {
    str_clear(&s);
    repeat(&s, "{\"items\":", 3000);
    str_add(&s, "true");
    repeat(&s, "}", 3000);
    t = cpu_ms();
    expect_refused("schema", from_text(s.p, s.n, 0, &g), &g, t);
  }
  TEST("expressions that grow without bound are refused in bounded time") {
    static const char *const re[] = {"(a{1000}){1000}", "((a{100}){100}){100}", "(x+x+)+y{1000000}", "(a|b)*a(a|b){24}", "(((a*)*)*){9999999}", "(){1000000000}", "[^a]{1000000}", "(.{0,300}x){0,300}"};
    for (size_t i = 0; i < COUNT_OF(re); i++) {
      t = cpu_ms();
      expect_refused(re[i], grammar_from_regex(re[i], strlen(re[i]), &g), &g, t);
    }
    static const char *const js[] = {
      "{\"pattern\":\"(a|b)*a(a|b){24}\"}", "{\"pattern\":\"^(ab){1000000}$\"}", "{\"pattern\":\"a\",\"maxLength\":1000000000}",
      "{\"allOf\":[{\"pattern\":\"a.{9}$\"},{\"pattern\":\"b.{10}$\"},{\"pattern\":\"c.{11}$\"},{\"pattern\":\"d.{17}$\"}]}",
      "{\"contains\":{\"const\":1},\"minContains\":1000000}"};
    for (size_t i = 0; i < COUNT_OF(js); i++) {
      t = cpu_ms();
      expect_refused(js[i], from_text(js[i], strlen(js[i]), 0, &g), &g, t);
    }
  }
  TEST("a product of alternatives is refused in bounded time") {
    str_clear(&s);
    str_add(&s, "{\"allOf\":[");
    for (int i = 0; i < 20; i++) str_addf(&s, "%s{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}", i ? "," : "", i, i);
    str_add(&s, "]}");
    t = cpu_ms();
    expect_refused("allOf of anyOf", from_text(s.p, s.n, 0, &g), &g, t);
  }
  TEST("large counts cost nothing") {
    static const char js[] = "{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\",\"maxLength\":1000000000},\"a\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":1000000},"
      "\"p\":{\"type\":\"string\",\"pattern\":\"^[a-z]{1,10000}$\"}},\"required\":[\"s\",\"a\"],\"additionalProperties\":false}";
    t = cpu_ms();
    EXPECT_OK(from_text(js, strlen(js), 0, &g));
    EXPECT(cpu_ms() - t < 2000, "%.0f ms", cpu_ms() - t);
    EXPECT(grammar_size(g).n_states < 2000, "%d states", grammar_size(g).n_states);
    const char *yes = "{\"s\":\"x\",\"a\":[1,2,3],\"p\":\"abc\"}", *no = "{\"s\":\"x\",\"a\":[1]}";
    EXPECT(accepts(g, yes, strlen(yes)) && !accepts(g, no, strlen(no)));
    grammar_free(g);
  }
  TEST("a thousand optional properties are linear") {
    str_clear(&s);
    str_add(&s, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 1000; i++) str_addf(&s, "%s\"property%d\":{\"type\":\"integer\"}", i ? "," : "", i);
    str_add(&s, "},\"additionalProperties\":false}");
    t = cpu_ms();
    EXPECT_OK(from_text(s.p, s.n, 0, &g));
    EXPECT(cpu_ms() - t < 2000, "%.0f ms", cpu_ms() - t);
    const char *yes = "{\"property7\":1,\"property999\":2}", *no = "{\"property999\":1,\"property7\":2}";
    EXPECT(accepts(g, yes, strlen(yes)) && !accepts(g, no, strlen(no)));
    grammar_free(g);
  }
  TEST("an ambiguous grammar is followed or refused in bounded time") {
    static const char text[] = "root ::= x*\nx ::= \"a\" | \"a\" x \"b\" | \"a\" x \"c\" | \"aa\" x*\n";
    EXPECT_OK(grammar_from_gbnf(text, strlen(text), &g));
    GrammarMatcher *m = grammar_matcher_new(g, NULL);
    GrammarState *at = grammar_state_start(m), *next;
    t = cpu_ms();
    for (int i = 0; i < 200; i++) {
      Err *e = grammar_state_accept(at, "a", 1, &next);
      if (e) EXPECT(err_kind(e) == ERR_LIMIT, "%s", err_text(e));
      err_free(e);
      if (e || !next) break;
      grammar_state_unref(at);
      at = next;
    }
    EXPECT(cpu_ms() - t < 5000, "%.0f ms", cpu_ms() - t);
    grammar_state_unref(at);
    grammar_matcher_free(m);
    grammar_free(g);
  }
  TEST("white space ends") {
    static const char js[] = "{\"type\":\"array\",\"items\":{\"type\":\"object\"}}";
    EXPECT_OK(from_text(js, strlen(js), 0, &g));
    GrammarMatcher *m = grammar_matcher_new(g, NULL);
    GrammarState *at = grammar_state_start(m), *next;
    EXPECT_OK(grammar_state_accept(at, "[\n", 2, &next));
    int n = 0;
    for (; next && n < 1000; n++) {
      grammar_state_unref(at);
      at = next;
      EXPECT_OK(grammar_state_accept(at, " ", 1, &next));
    }
    EXPECT(n == 65, "%d", n);
    grammar_state_unref(at);
    grammar_matcher_free(m);
    grammar_free(g);
  }
  str_free(&s);
}

/* Small changes to real inputs: an error or a grammar, never more. */
static uint64_t rng_state = 42;
static uint32_t rng(uint32_t n) {
  rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(rng_state >> 33) % n;
}
static void mutate(Str *s) {
  static const char pieces[][12] = {"{", "}", "[", "]", "\"", "\\", "(", ")", "*", "{1,9}", "null", "true", "0", "-1", "1e9", "\xff", "::=", "\n", "|", "^", "$", "not", "anyOf", "$ref", "#"};
  for (uint32_t k = 1 + rng(3); k && s->n; k--) {
    size_t at = rng((uint32_t)s->n);
    const char *p = pieces[rng(COUNT_OF(pieces))];
    Str r = {0};
    str_add_n(&r, s->p, at);
    if (rng(2)) str_add(&r, p);
    size_t skip = rng(3);
    skip = MIN(s->n - at, skip);
    str_add_n(&r, s->p + at + skip, s->n - at - skip);
    str_free(s);
    *s = r;
  }
}
static void try_text(Err *e, Grammar **made, const char *text, size_t n) {
  if (!e) {
    Grammar *g = *made;
    GrammarMatcher *m = grammar_matcher_new(g, NULL);
    GrammarState *s = grammar_state_start(m), *next = NULL;
    e = grammar_state_accept(s, text, n, &next);
    grammar_state_unref(next);
    grammar_state_unref(s);
    grammar_matcher_free(m);
    grammar_free(g);
  }
  err_free(e);
}
static void mutations(const char *path, const char *title, Err *(*compile)(const char *p, size_t n, Grammar **out), int times) {
  Lines l;
  TEST(title) {
    double t = cpu_ms(), worst = 0;
    lines_open(&l, path);
    for (json_t *row; (row = lines_next(&l)); json_decref(row))
      for (int k = 0; k < times; k++) {
        Str s = {0};
        Grammar *g = NULL;
        str_add_n(&s, text_at(row, 1), length_at(row, 1));
        mutate(&s);
        double start = cpu_ms();
        try_text(compile(s.p ? s.p : "", s.n, &g), &g, "{\"foo\": [1, \"a\"]}", 17);
        worst = fmax(worst, cpu_ms() - start);
        str_free(&s);
      }
    EXPECT(worst < 5000, "%.0f ms for one, %.0f ms together", worst, cpu_ms() - t);
  }
}
static Err *mutated_schema(const char *p, size_t n, Grammar **out) { return from_text(p, n, 0, out); }

int main(void) {
  suite();
  cases("tests/grammar/schemas.jsonl", "our schemas", compile_schema, 3);
  script("Hangul", false);
  script("Hang", true);
  script("Greek", false);
  script("Han", true);
  cases("tests/grammar/refused.jsonl", "what is refused is named", compile_refused, 2);
  cases("tests/grammar/regex.jsonl", "regular expressions", compile_regex, 2);
  cases("tests/grammar/gbnf.jsonl", "GBNF", compile_gbnf, 2);
  hostile();
  mutations("tests/grammar/schemas.jsonl", "mutated schemas", mutated_schema, 20);
  mutations("tests/grammar/suite/oneOf.jsonl", "mutated schemas of the suite", mutated_schema, 20);
  mutations("tests/grammar/regex.jsonl", "mutated expressions", grammar_from_regex, 40);
  mutations("tests/grammar/gbnf.jsonl", "mutated GBNF", grammar_from_gbnf, 40);
  TEST_MAIN_END();
}
