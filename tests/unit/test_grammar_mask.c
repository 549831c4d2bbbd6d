/* Token masks: against trying every token, along instances and random walks; forks; compaction; partial characters; forced bytes; speed.
   runtests: timeout 300 */
#include "base/json.h"
#include "test.h"
#include "text/grammar.h"
#include "text/reply.h"

static GrammarVocab *vocab_open(const char *path, TextVocab **text) {
  GrammarVocab *v = NULL;
  EXPECT_OK(text_vocab_open(path, text));
  EXPECT_OK(grammar_vocab_new(*text, &v));
  return v;
}

static Grammar *schema_of(const char *text, unsigned flags) {
  Grammar *g = NULL;
  json_t *js;
  EXPECT_OK(json_parse_text(text, strlen(text), 1 << 20, "schema", &js));
  EXPECT_OK(grammar_from_schema(js, flags, &g));
  json_decref(js);
  return g;
}

static uint64_t rng_state = 7;
static uint32_t rng(uint32_t n) {
  rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(rng_state >> 33) % n;
}

/* Every token by itself, from this state: the mask says the same. */
static void check_mask(GrammarState *s, const GrammarVocab *v, const uint64_t *mask, const char *what) {
  for (int i = 0; i < grammar_vocab_n_tokens(v); i++) {
    GrammarState *next = NULL;
    size_t n = 0;
    EXPECT_OK(grammar_state_accept_token(s, i, &next));
    bool in = mask[i / 64] >> (i % 64) & 1;
    const uint8_t *p = grammar_vocab_bytes(v, i, &n);
    EXPECT(in == (next != NULL), "%s: token %d \"%.*s\" %s", what, i, (int)n, p ? (const char *)p : "", in ? "in the mask, not accepted" : "accepted, not in the mask");
    grammar_state_unref(next);
  }
}

/* Along a text, cut into tokens. */
static void along(const Grammar *g, const TextVocab *tv, const GrammarVocab *v, const char *text) {
  TextIds ids = {0};
  uint64_t *mask = calloc(grammar_vocab_mask_words(v) + 1, sizeof *mask);
  GrammarMatcher *m = grammar_matcher_new(g, v);
  GrammarState *s = grammar_state_start(m), *next = NULL;
  EXPECT_OK(text_tokenize(tv, text, strlen(text), TEXT_PLAIN, &ids));
  for (size_t i = 0; i <= ids.n && s; i++) {
    EXPECT_OK(grammar_state_mask(s, mask));
    check_mask(s, v, mask, text);
    if (i == ids.n) break;
    EXPECT(mask[ids.p[i] / 64] >> (ids.p[i] % 64) & 1, "%s: token %zu is not in its mask", text, i);
    EXPECT_OK(grammar_state_accept_token(s, ids.p[i], &next));
    grammar_state_unref(s);
    s = next;
  }
  EXPECT(s && grammar_state_may_end(s), "%s", text);
  grammar_state_unref(s);
  grammar_matcher_free(m);
  text_ids_free(&ids);
  free(mask);
}

static const struct { const char *schema, *text; } pairs[] = {
  {"{\"type\":\"object\"}", "{\"a\": [1, 2.5e3, true, null, \"x\\n\\u00e9 한국어 \"], \"b\": {\"c\": {}}}"},
  {"{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":30},\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},\"tags\":{\"type\":\"array\",\"items\":"
   "{\"enum\":[\"red\",\"green\",\"blue\"]},\"maxItems\":3}},\"required\":[\"name\",\"age\"],\"additionalProperties\":false}", "{\"name\":\"Ludwig van Beethoven\",\"age\":56,\"tags\":[\"red\",\"blue\"]}"},
  {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":9}", "\"한국어 ok\""},
  {"{\"type\":\"string\",\"pattern\":\"^[a-z0-9_]{2,20}$\"}", "\"snake_case_1\""},
  {"{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[a-z0-9_]{2,20}$\"}}", "[\"snake_case_name_1\",\"x1\",\"hello_world_hello_wo\"]"},
  {"{\"type\":\"string\",\"pattern\":\"^[가-힣 ]{2,12}$\"}", "\"김철수 입니다 안녕하\""},
  {"{\"type\":\"string\",\"format\":\"date-time\"}", "\"2024-02-29T12:34:56Z\""},
  {"{\"type\":\"array\",\"items\":{\"type\":\"number\"},\"minItems\":2,\"maxItems\":50}", "[1, -2.5, 300]"},
};

/* Calls in an answer that may also be text: where free text may turn into a call at nearly every byte. */
static Grammar *calls_of(const char *template) {
  static const char tools_text[] = "[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"}},\"required\":[\"city\"]}}}]";
  char path[256];
  Arena *a = arena_new("test");
  Grammar *g = NULL;
  Str text = {0};
  TextChat *chat;
  json_t *tools;
  snprintf(path, sizeof path, "tests/text/templates/templates/%s.jinja", template);
  EXPECT_OK(os_read_file(path, 1 << 20, &text));
  EXPECT_OK(text_chat_new(a, text.p, text.n, NULL, &chat));
  EXPECT_OK(json_parse_text(tools_text, sizeof tools_text - 1, 1 << 20, "tools", &tools));
  EXPECT_OK(text_chat_calls(chat, &(TextCallsOptions){.tools = tools, .many = true, .may_answer = true}, &g));
  json_decref(tools);
  str_free(&text);
  arena_free(a);
  return g;
}
static const struct { const char *template, *text; } answers[] = {
  {"openai-gpt-oss-120b", "So to=5, 안녕 to<|channel|>commentary to=functions.get <|constrain|>json<|message|>{\"city\":\"Seoul\"}<|call|>"},
  {"GLM-4.6", "a < b <tool<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>서울 </arg</arg_value>\n</tool_call>"},
  {"Qwen3-Coder", "<<tool_call>\n<function=get>\n<parameter=city>\nSeoul </p\n</parameter>\n</function>\n</tool_call> 끝"},
  {"deepseek-ai-DeepSeek-V3.1", "x <｜tool <｜tool▁call▁begin｜>get<｜tool▁sep｜>{\"city\":\"Seoul\"}<｜tool▁call▁end｜>"},
  {"google-gemma-4-31B-it", "say <|tool_call>call:get{city:<|\"|>Seoul < |<|\"|>}<tool_call|>"},
};

static const struct { const char *title; Err *(*compile)(const char *text, size_t n, Grammar **out); const char *grammar, *text; } grammars[] = {
  {"free text whose end is a rule's", grammar_from_gbnf, "root ::= (line \"END\\n\")+\nline ::= ([^E] | \"E\" [^N] | \"EN\" [^D])*\n", "Eh, EEn 한국 ENd. END\nOne moreEND\n"},
  {"GBNF whose rules end inside tokens", grammar_from_gbnf, "root ::= list\nlist ::= item (\", \" item)* \".\"?\nitem ::= word+ | \"(\" list \")\"\nword ::= [a-zA-Z가-힣]+ \" \"?\n",
   "red green, (blue 파랑, (x)), y."},
  {"an expression", grammar_from_regex, "(\\w+[ ,]+)*\\w+[.!?]", "Hello world, this is it!"},
};

static void against_every_token(void) {
  TextVocab *tv = NULL;
  GrammarVocab *v = vocab_open("tests/text/tokenizers/smollm2", &tv);
  for (size_t i = 0; i < COUNT_OF(pairs); i++) {
    char title[160];
    snprintf(title, sizeof title, "masks against every token: %.50s", pairs[i].schema);
    TEST(title) {
      Grammar *g = schema_of(pairs[i].schema, 0);
      along(g, tv, v, pairs[i].text);
      grammar_free(g);
    }
  }
  for (size_t i = 0; i < COUNT_OF(answers); i++) {
    char title[160];
    snprintf(title, sizeof title, "masks against every token: answers of %s", answers[i].template);
    TEST(title) {
      Grammar *g = calls_of(answers[i].template);
      along(g, tv, v, answers[i].text);
      grammar_free(g);
    }
  }
  for (size_t i = 0; i < COUNT_OF(grammars); i++) {
    char title[160];
    snprintf(title, sizeof title, "masks against every token: %s", grammars[i].title);
    TEST(title) {
      Grammar *g = NULL;
      EXPECT_OK(grammars[i].compile(grammars[i].grammar, strlen(grammars[i].grammar), &g));
      along(g, tv, v, grammars[i].text);
      grammar_free(g);
    }
  }
  grammar_vocab_free(v);
  text_vocab_free(tv);
}

/* Bytes and pieces of characters and of JSON: every way to cut. */
static GrammarVocab *small_vocab(void) {
  static const char *const more[] = {"{\"", "\":", "\",", "\"}", "\"},", "],", "]}", ", \"", "true", "null", "12", "ab", "abc\"", "é", "한", "\xED\x95", "\x9C\"", "\xF0\x9F\x98", "\x80", "\\u", "\\ud83d", "\\n\"", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"", "  ", "\n    "};
  static uint8_t byte[256];
  const uint8_t *p[256 + COUNT_OF(more)];
  uint32_t n[256 + COUNT_OF(more)];
  GrammarVocab *v = NULL;
  for (int i = 0; i < 256; i++) { byte[i] = (uint8_t)i; p[i] = &byte[i]; n[i] = 1; }
  for (size_t i = 0; i < COUNT_OF(more); i++) { p[256 + i] = (const uint8_t *)more[i]; n[256 + i] = (uint32_t)strlen(more[i]); }
  EXPECT_OK(grammar_vocab_from_bytes(p, n, 256 + COUNT_OF(more), &v));
  return v;
}

/* Random walks by the mask: never a dead end; what is whole is valid (in any order too). */
static int walk(const Grammar *g, const Grammar *wide, const GrammarVocab *v, int n_steps, bool check, const char *what) {
  Str text = {0};
  uint64_t *mask = calloc(grammar_vocab_mask_words(v) + 1, sizeof *mask);
  GrammarMatcher *m = grammar_matcher_new(g, v), *w = grammar_matcher_new(wide, NULL);
  GrammarState *s = grammar_state_start(m), *next = NULL;
  int n_whole = 0;
  for (int i = 0; i < n_steps; i++) {
    int choice = -1, n = 0;
    EXPECT_OK(grammar_state_mask(s, mask));
    if (check) check_mask(s, v, mask, what);
    for (int k = 0; k < grammar_vocab_n_tokens(v); k++)
      if (mask[k / 64] >> (k % 64) & 1 && !rng((uint32_t)++n)) choice = k;
    EXPECT(n || grammar_state_may_end(s), "%s: a dead end after %s", what, text.p ? text.p : "");
    EXPECT(!grammar_state_must_end(s) || !n, "%s", what);
    if (grammar_state_may_end(s)) {
      GrammarState *from = grammar_state_start(w), *end = NULL;
      EXPECT_OK(grammar_state_accept(from, text.p ? text.p : "", text.n, &end));
      EXPECT(end && grammar_state_may_end(end), "%s: generated, not valid: %s", what, text.p ? text.p : "");
      grammar_state_unref(end);
      grammar_state_unref(from);
      n_whole++;
    }
    if (choice < 0) break;
    size_t k;
    const uint8_t *p = grammar_vocab_bytes(v, choice, &k);
    str_add_n(&text, p, k);
    EXPECT_OK(grammar_state_accept_token(s, choice, &next));
    EXPECT(next, "%s: token %d is in the mask but not accepted", what, choice);
    grammar_state_unref(s);
    s = next;
    if (!s) break;
  }
  grammar_state_unref(s);
  grammar_matcher_free(m);
  grammar_matcher_free(w);
  str_free(&text);
  free(mask);
  return n_whole;
}

static void walks(void) {
  Str in = {0};
  GrammarVocab *v = small_vocab();
  int n_whole = 0;
  TEST("random walks by the mask have no dead ends and every token is right") {
    EXPECT_OK(os_read_file("tests/grammar/schemas.jsonl", 1 << 20, &in));
    for (char *p = in.p, *nl; p && (nl = strchr(p, '\n')); p = nl + 1) {
      json_t *row = json_loadb(p, (size_t)(nl - p), 0, NULL);
      const char *what = json_string_value(json_array_get(row, 0)), *text = json_string_value(json_array_get(row, 1));
      Grammar *g = schema_of(text, 0), *wide = schema_of(text, GRAMMAR_ANY_ORDER);
      if (!grammar_is_empty(g)) for (int k = 0; k < 4; k++) n_whole += walk(g, wide, v, 60, true, what);
      if (!grammar_is_empty(wide)) walk(wide, wide, v, 60, true, what);
      grammar_free(g);
      grammar_free(wide);
      json_decref(row);
    }
    EXPECT(n_whole > 100, "%d whole texts", n_whole);
  }
  str_free(&in);
  TEST("a long text is followed in bounded memory, forks stay good") {
    Grammar *g = schema_of("{\"type\":\"array\",\"items\":{\"type\":[\"array\",\"integer\"]}}", 0);
    GrammarMatcher *m = grammar_matcher_new(g, v);
    GrammarState *s = grammar_state_start(m), *fork = NULL, *next = NULL;
    Str deep = {0};
    for (int i = 0; i < 300000; i++) str_add(&deep, "[");
    EXPECT_OK(grammar_state_accept(s, deep.p, 1000, &fork));
    EXPECT_OK(grammar_state_accept(s, deep.p, deep.n, &next));
    EXPECT(next);
    for (size_t i = 0; i < deep.n; i++) deep.p[i] = ']';
    GrammarState *end = NULL;
    EXPECT_OK(grammar_state_accept(next, deep.p, deep.n, &end));
    EXPECT(end && grammar_state_must_end(end));
    grammar_state_unref(end);
    end = NULL;
    EXPECT_OK(grammar_state_accept(fork, deep.p, 1000, &end));
    EXPECT(end && grammar_state_must_end(end));
    grammar_state_unref(end);
    EXPECT_OK(grammar_state_accept(fork, deep.p, 1001, &end));
    EXPECT(!end);
    grammar_state_unref(next);
    grammar_state_unref(fork);
    grammar_state_unref(s);
    str_free(&deep);
    grammar_matcher_free(m);
    grammar_free(g);
    EXPECT(os_peak_rss_bytes() < 1500u << 20, "%zu MiB", os_peak_rss_bytes() >> 20);
  }
  TEST("forced bytes") {
    Grammar *g = schema_of("{\"type\":\"object\",\"properties\":{\"answer\":{\"enum\":[\"yes\",\"year\"]}},\"required\":[\"answer\"],\"additionalProperties\":false}", GRAMMAR_COMPACT);
    GrammarMatcher *m = grammar_matcher_new(g, v);
    GrammarState *s = grammar_state_start(m), *next = NULL;
    Str out = {0};
    EXPECT_OK(grammar_state_forced(s, 100, &out));
    EXPECT(out.p && !strcmp(out.p, "{\"answer\":\"ye"), "%s", out.p ? out.p : "");
    EXPECT_OK(grammar_state_accept(s, "{\"answer\":\"yea", 14, &next));
    str_clear(&out);
    EXPECT_OK(grammar_state_forced(next, 100, &out));
    EXPECT(!strcmp(out.p, "r\"}"), "%s", out.p);
    str_free(&out);
    grammar_state_unref(next);
    grammar_state_unref(s);
    grammar_matcher_free(m);
    grammar_free(g);
  }
  grammar_vocab_free(v);
}

static double cpu_us(void) { return (double)os_thread_cpu_ns() * 1e-3; }

static void speed(void) {
  enum { N_SCHEMAS = 5 };
  TextVocab *tv = NULL;
  GrammarVocab *v = vocab_open("tests/text/tokenizers/qwen3", &tv);
  uint64_t *mask = calloc(grammar_vocab_mask_words(v) + 1, sizeof *mask);
  for (size_t i = 0; i < N_SCHEMAS + COUNT_OF(answers); i++) {
    bool is_answer = i >= N_SCHEMAS;
    const char *text = is_answer ? answers[i - N_SCHEMAS].text : pairs[i].text, *what = is_answer ? answers[i - N_SCHEMAS].template : pairs[i].schema;
    char title[160];
    snprintf(title, sizeof title, "masks of a 150k vocabulary on average under 200 microseconds: %.20s", what);
    TEST(title) {
      TextIds ids = {0};
      EXPECT_OK(text_tokenize(tv, text, strlen(text), TEXT_PLAIN, &ids));
      double start = cpu_us(), sum = 0;
      Grammar *g = is_answer ? calls_of(what) : schema_of(what, 0);
      double compile = cpu_us() - start;
      GrammarMatcher *m = grammar_matcher_new(g, v);
      GrammarState *s = grammar_state_start(m), *next = NULL;
      for (size_t k = 0; k < ids.n && s; k++) {
        start = cpu_us();
        EXPECT_OK(grammar_state_mask(s, mask));
        sum += cpu_us() - start;
        EXPECT_OK(grammar_state_accept_token(s, ids.p[k], &next));
        grammar_state_unref(s);
        s = next;
      }
      EXPECT(s && grammar_state_may_end(s));
#ifndef __SANITIZE_ADDRESS__
      EXPECT(sum / (double)ids.n < 200 * test_patience(), "%.0f us", sum / (double)ids.n); /* cold: the first masks of a fresh matcher; docs/grammar.md has the measured ones */
      EXPECT(compile < 50000 * test_patience(), "%.0f us", compile);
#else
      (void)compile;
#endif
      grammar_state_unref(s);
      grammar_matcher_free(m);
      grammar_free(g);
      text_ids_free(&ids);
    }
  }
  free(mask);
  grammar_vocab_free(v);
  text_vocab_free(tv);
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  walks();
  against_every_token();
  speed();
  TEST_MAIN_END();
}
