/* The parts of a reply by hand: stop texts, budgets, template variables, values, bounds, broken bytes, mutations. */
#include "reply_cases.h"
#include "text/toolcall.h"

/* ---- stop texts ---- */

static void expect_stops(const char *name, const char *const *stop, int n_stops, const char *text, const char *want, int hit, const char *after_first) {
  TEST(name) {
    for (size_t step = 1; step <= strlen(text); step++) {
      TextStops s;
      Str out = {0};
      bool stopped = false;
      EXPECT_OK(text_stops_init(&s, stop, n_stops));
      for (size_t at = 0; at < strlen(text) && !stopped; at += step) {
        stopped = text_stops_take(&s, text + at, MIN(step, strlen(text) - at), &out);
        if (!at && step == 1 && after_first) EXPECT(!strcmp(out.p ? out.p : "", after_first), "after one byte: '%s'", out.p);
      }
      if (!stopped) text_stops_end(&s, &out);
      EXPECT(!strcmp(out.p ? out.p : "", want), "steps of %zu: '%s', expected '%s'", step, out.p, want);
      EXPECT(s.hit == hit, "steps of %zu: hit %d, expected %d", step, s.hit, hit);
      str_free(&out);
      text_stops_free(&s);
    }
  }
}
#define STOPS(...) (const char *const[]){__VA_ARGS__}, (int)COUNT_OF(((const char *const[]){__VA_ARGS__}))

static void test_stops(void) {
  expect_stops("a stop text over several tokens", STOPS("DEFGHIJ"), "ABCDEFGHIJK", "ABC", 0, "A");
  expect_stops("one of letters and spaces", STOPS("O P Q"), "M N O P Q R", "M N ", 0, "M");
  expect_stops("one that never completes", STOPS("DEFGHIJ"), "ABCDEFGHIK DEF", "ABCDEFGHIK DEF", -1, "A");
  expect_stops("one that begins again in itself", STOPS("aab"), "xaaaabz", "xaa", 0, "x");
  expect_stops("the earliest end counts", STOPS("bcdef", "cd"), "abcdef", "ab", 1, "a");
  expect_stops("of two at the same byte the longer", STOPS("d", "bcd"), "abcdef", "a", 1, "a");
  expect_stops("beside a tag", STOPS("<|x", "k>Y"), "</thin </think>Yes", "</thin </thin", 1, "");
  expect_stops("characters of several bytes", STOPS("다."), "합니다. 네", "합니", 0, NULL);
  expect_stops("no stop text", NULL, 0, "abc", "abc", -1, "a");
  TEST("stop texts that are refused") {
    TextStops s;
    const char *many[TEXT_STOP_MAX + 1];
    char long_text[TEXT_STOP_MAX_BYTES + 2];
    for (size_t i = 0; i < COUNT_OF(many); i++) many[i] = "x";
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    Err *e[] = {text_stops_init(&s, (const char *const[]){"a", ""}, 2), text_stops_init(&s, many, COUNT_OF(many)), text_stops_init(&s, (const char *const[]){long_text}, 1)};
    EXPECT(e[0] && err_kind(e[0]) == ERR_USAGE && strstr(err_text(e[0]), "stop text 2"), "%s", e[0] ? err_text(e[0]) : "taken");
    EXPECT(e[1] && err_kind(e[1]) == ERR_LIMIT, "%s", e[1] ? err_text(e[1]) : "taken");
    EXPECT(e[2] && err_kind(e[2]) == ERR_LIMIT, "%s", e[2] ? err_text(e[2]) : "taken");
    for (size_t i = 0; i < COUNT_OF(e); i++) err_free(e[i]);
  }
}

/* ---- reasoning ---- */

/* A model that thinks for ever in tokens "x" (id 0) until it is forced; ids 1.. spell the closing text. */
static void test_budget(int64_t max, bool opens_itself, const char *want_reasoning, const char *name) {
  static const char *const spelled[] = {"x", "\n", "</thi", "nk>", "\n\n"};
  static const int32_t close[] = {1, 2, 3, 4};
  const char *template = "<think>";
  TextReplyOptions o = {0};
  TextReply *r = text_reply_new(text_syntax_find(template, 7), text_reason_find(template, 7), &o);
  TextCollect c = {0};
  TextBudget b = {.max = max, .close = close, .n_close = 4};
  TEST(name) {
    int n_forced = 0;
    if (!opens_itself) text_reply_prompt(r, "..<|im_start|>assistant\n<think>\n", 31);
    for (int i = 0; i < 20; i++) {
      int32_t id = text_budget_force(&b, r);
      bool was = text_reply_is_reasoning(r);
      n_forced += id >= 0;
      const char *text = opens_itself && !i ? "<think>" : spelled[id < 0 ? 0 : id];
      text_reply_feed(r, text, strlen(text), text_collect_event, &c);
      text_budget_take(&b, was, id < 0 ? 0 : id);
    }
    text_reply_end(r, text_collect_event, &c);
    EXPECT(!strcmp(c.reasoning.p ? c.reasoning.p : "", want_reasoning), "reasoning '%s', expected '%s'", c.reasoning.p, want_reasoning);
    EXPECT(n_forced == (max < 0 ? 0 : 4), "%d tokens were forced", n_forced);
    EXPECT(max < 0 || (c.content.n && strspn(c.content.p, "x") == c.content.n), "content '%s'", c.content.p);
  }
  text_collect_free(&c);
  text_reply_free(r);
}

static void expect_kwargs(const char *name, const char *template, TextThinking t, const char *given, const char *want) {
  TEST(name) {
    json_t *kwargs = json_loads(given, 0, NULL), *expect = json_loads(want, 0, NULL);
    text_reason_kwargs(template, strlen(template), &t, kwargs);
    char *got = json_dumps(kwargs, 0);
    EXPECT(json_equal(kwargs, expect), "%s, expected %s", got, want);
    free(got);
    json_decref(kwargs);
    json_decref(expect);
  }
}

static void test_reasoning(void) {
  test_budget(3, false, "xxx", "a budget closes a block that the template opened");
  test_budget(3, true, "xxx", "a budget closes a block that the model opened");
  test_budget(0, false, "", "a budget of nothing closes it at once");
  test_budget(-1, false, "xxxxxxxxxxxxxxxxxxxx", "no budget, no end");
  expect_kwargs("on", "{% if enable_thinking %}", (TextThinking){.mode = TEXT_THINK_ON}, "{}", "{\"enable_thinking\": true}");
  expect_kwargs("off, where the template skips", "{% if skip_think %}{% if skip_thinking_x %}", (TextThinking){.mode = TEXT_THINK_OFF}, "{}", "{\"skip_think\": true}");
  expect_kwargs("effort", "{{ reasoning_effort }} {{ thinking }}", (TextThinking){.effort = "high"}, "{}", "{\"reasoning_effort\": \"high\", \"thinking\": true}");
  expect_kwargs("effort none is off", "{{ enable_thinking }}", (TextThinking){.effort = "none"}, "{}", "{\"enable_thinking\": false}");
  expect_kwargs("what the request sets itself stays", "{{ enable_thinking }}", (TextThinking){.mode = TEXT_THINK_ON}, "{\"enable_thinking\": false}", "{\"enable_thinking\": false}");
  expect_kwargs("nothing asked, nothing set", "{{ enable_thinking }}", (TextThinking){0}, "{}", "{}");
}

/* ---- values ---- */

static void expect_value(ToolDialect d, const char *text, const char *want) {
  Str out = {0};
  char first = tool_value_of_text(d, text, strlen(text), &out);
  EXPECT(first ? want && !strcmp(out.p, want) : !want, "%s -> %s, expected %s", text, first ? out.p : "(nothing)", want ? want : "(nothing)");
  str_free(&out);
}

static void test_values(void) {
  TEST("values as JSON") {
    expect_value(TOOL_JSON, " {\"a\":[1,-2.5e+3,true,null],\"b\":{}} ", "{\"a\": [1, -2.5e+3, true, null], \"b\": {}}");
    expect_value(TOOL_JSON, "\"\\u0041\\ud83d\\ude00\\ud83dx\\u001f/\\/\"", "\"A😀\xEF\xBF\xBDx\\u001f//\"");
    expect_value(TOOL_JSON, "12", "12");
    expect_value(TOOL_JSON, "True", "true");
    static const char *const bad[] = {"", "01", "1.", "1.e2", "-", "+1", "[1,]", "{\"a\":1,}", "{a:1}", "'a'", "tru", "truee", "nan", "[1", "{\"a\"}", "1 2", "\"a", "]", "[1}", "{\"a\":\"\\u12g4\"}"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) expect_value(TOOL_JSON, bad[i], NULL);
  }
  TEST("values as Python") {
    expect_value(TOOL_PYTHON, "{'a': (1, 2,), \"b\": [None, False,], }", "{\"a\": [1, 2], \"b\": [null, false]}");
    expect_value(TOOL_PYTHON, "'it\\'s \"\\x41\\U0001F600\\q'", "\"it's \\\"A😀\\\\q\"");
    expect_value(TOOL_PYTHON, "()", "[]");
    expect_value(TOOL_PYTHON, "{1: 2}", NULL);
    expect_value(TOOL_PYTHON, "f(1)", NULL);
  }
  TEST("values in braces") {
    expect_value(TOOL_BRACES, "{a:<|\"|>x<|\"y{}<|\"|>,<|\"|>b<|\"|>:[1,2 words,true],c:{}}", "{\"a\": \"x<|\\\"y{}\", \"b\": [1, \"2 words\", true], \"c\": {}}");
    expect_value(TOOL_BRACES, "{a}", NULL);
    expect_value(TOOL_BRACES, "{a:}", NULL);
  }
  TEST("depth is bounded") {
    Str deep = {0}, out = {0};
    for (int i = 0; i < 200; i++) str_add_c(&deep, '[');
    EXPECT(!tool_value_of_text(TOOL_JSON, deep.p, deep.n, &out) && !out.n);
    str_free(&deep);
    str_free(&out);
  }
}

/* ---- bounds ---- */

static ReplyCase case_of(const char *template_path, const char *output, size_t n) {
  ReplyCase c = {0};
  EXPECT_OK(os_read_file(template_path, 1 << 20, &c.template));
  EXPECT_OK(json_parse_file("tests/reply/tools.json", 1 << 20, &c.tools));
  str_add_n(&c.output, output, n);
  return c;
}

static void case_free(ReplyCase *c) {
  str_free(&c->template);
  str_free(&c->output);
  str_free(&c->prefix);
  str_free(&c->expect);
  json_decref(c->tools);
}

#define TEMPLATES "tests/text/templates/templates/"

/* The text of content and reasoning together. */
static size_t told(const Heard *h) { return h->collect.content.n + h->collect.reasoning.n; }

static void test_bounds(void) {
  TEST("a long answer is not kept") {
    Str s = {0};
    while (s.n < 1 << 20) str_add(&s, "A sentence of words with spaces, < and { and [.\n\n");
    ReplyCase c = case_of(TEMPLATES "Qwen-Qwen3-0.6B.jinja", s.p, s.n);
    Heard h = listen(&c, 0, 7, false);
    EXPECT(h.n_peak < 65536, "%zu bytes at the peak", h.n_peak);
    EXPECT(h.collect.content.n == s.n, "%zu of %zu bytes", h.collect.content.n, s.n);
    heard_free(&h);
    case_free(&c);
    str_free(&s);
  }
  TEST("a call without end is text beyond the bound, and memory is bounded") {
    static const char *const openings[] = {"<tool_call>\n{\"name\": \"write-file.v2\", \"arguments\": {\"text\": \"", "<tool_call>\n<function=write-file.v2>\n<parameter=text>\n"};
    static const char *const templates[] = {TEMPLATES "Qwen-Qwen3-0.6B.jinja", TEMPLATES "Qwen3-Coder.jinja"};
    for (int i = 0; i < 2; i++) {
      Str s = {0};
      str_add(&s, openings[i]);
      while (s.n < 6 << 20) str_add(&s, "0123456789abcde ");
      ReplyCase c = case_of(templates[i], s.p, s.n);
      Heard h = listen(&c, 0, 1000, false);
      EXPECT(h.n_peak < 64 << 20, "%zu bytes at the peak", h.n_peak);
      EXPECT(h.collect.content.n + 1 >= s.n, "%zu of %zu bytes", h.collect.content.n, s.n);
      EXPECT(!json_array_size(h.collect.calls));
      heard_free(&h);
      case_free(&c);
      str_free(&s);
    }
  }
  TEST("openings without end take linear time") {
    static const char *const inner[] = {"<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"", "<tool_call>", "{\"name\":\"now\",\"parameters\":[[", "</parameter>\n"};
    static const char *const templates[] = {TEMPLATES "Qwen-Qwen3-0.6B.jinja", TEMPLATES "Qwen3-Coder.jinja", TEMPLATES "meta-llama-Llama-3.1-8B-Instruct.jinja", TEMPLATES "Qwen3-Coder.jinja"};
    for (int i = 0; i < 4; i++) {
      Str s = {0};
      if (i == 3) str_add(&s, "<function=write-file.v2><parameter=text>");
      while (s.n < 1 << 20) str_add(&s, inner[i]);
      ReplyCase c = case_of(templates[i], s.p, s.n);
      int64_t start = os_now_ns();
      Heard h = listen(&c, 0, 0, false);
      EXPECT(os_now_ns() - start < 20000000000, "%lld ms", (long long)(os_now_ns() - start) / 1000000);
      EXPECT(told(&h) + 64 > s.n, "%zu of %zu bytes", told(&h), s.n);
      heard_free(&h);
      case_free(&c);
      str_free(&s);
    }
  }
  TEST("white space without end is bounded") {
    Str s = {0};
    str_add(&s, "a");
    while (s.n < 1 << 20) str_add(&s, " \n");
    ReplyCase c = case_of(TEMPLATES "Qwen-Qwen3-0.6B.jinja", s.p, s.n);
    Heard h = listen(&c, 0, 5, false);
    EXPECT(h.n_peak < 65536 && h.collect.content.n == s.n, "%zu bytes at the peak, %zu of %zu told", h.n_peak, h.collect.content.n, s.n);
    heard_free(&h);
    case_free(&c);
    str_free(&s);
  }
  TEST("calls without number are bounded") {
    Str s = {0};
    for (int i = 0; i < 400; i++) str_add(&s, "<tool_call>{\"name\": \"now\"}</tool_call>\n");
    ReplyCase c = case_of(TEMPLATES "Qwen-Qwen3-0.6B.jinja", s.p, s.n);
    Heard h = listen(&c, 0, 0, false);
    EXPECT(json_array_size(h.collect.calls) == 256 && h.collect.content.n > 100 * 30, "%zu calls", json_array_size(h.collect.calls));
    heard_free(&h);
    case_free(&c);
    str_free(&s);
  }
}

/* ---- the tables ---- */

#define UNPACK(...) __VA_ARGS__
static const struct { const char *name, *pattern[6], *noise[6]; } syntaxes[] = {
#define SYNTAX(name, detect, pattern, noise) {#name, {UNPACK pattern}, {UNPACK noise}},
#include "text/toolcall.def"
#undef SYNTAX
};
static const struct { const char *name, *marker[8]; } reasons[] = {
#define REASON(name, detect, open, close, closing, where, noise) {#name, {open, close, UNPACK noise}},
#include "text/reason.def"
#undef REASON
};

static void expect_apart(const char *a, const char *b, const char *row) {
  size_t n = MIN(strlen(a), strlen(b));
  EXPECT(strlen(a) == strlen(b) || memcmp(a, b, n), "%s: \"%s\" begins \"%s\"", row, a, b);
}

static void test_tables(void) {
  TEST("no marker begins another") {
    for (size_t i = 0; i < COUNT_OF(syntaxes); i++) {
      char opening[6][100];
      int n = 0;
      for (; n < 6 && syntaxes[i].pattern[n]; n++) {
        ToolPattern p;
        tool_pattern_compile(syntaxes[i].pattern[n], &p);
        snprintf(opening[n], sizeof opening[n], "%.*s", p.is_bare ? 0 : p.part[0].n, p.is_bare ? "" : p.part[0].text);
        for (int k = 0; k < n; k++) if (*opening[n] && *opening[k]) expect_apart(opening[n], opening[k], syntaxes[i].name);
        for (int k = 0; k < 6 && syntaxes[i].noise[k] && *opening[n]; k++) expect_apart(opening[n], syntaxes[i].noise[k], syntaxes[i].name);
        for (size_t r = 0; r < COUNT_OF(reasons) && *opening[n]; r++)
          for (int k = 0; k < 8 && reasons[r].marker[k]; k++) expect_apart(opening[n], reasons[r].marker[k], reasons[r].name);
      }
    }
  }
}

/* ---- bytes that are no text, and mutations ---- */

static void expect_bytes(const char *bytes, size_t n, const char *want) {
  ReplyCase c = case_of(TEMPLATES "Qwen-Qwen3-0.6B.jinja", bytes, n);
  for (size_t step = 1; step <= n; step++) {
    Heard h = listen(&c, 0, step, false);
    EXPECT(!strcmp(h.collect.content.p ? h.collect.content.p : "", want), "steps of %zu: '%s', expected '%s'", step, h.collect.content.p, want);
    heard_free(&h);
  }
  case_free(&c);
}
#define BAD_CHAR "\xEF\xBF\xBD"

static uint32_t random_state = 12345;
static uint32_t rnd(uint32_t n) {
  random_state = random_state * 1664525 + 1013904223;
  return (random_state >> 8) % n;
}

static size_t at_most(size_t n, size_t most) { return MIN(n, most); }

static void mutate(Str *s, const Str *donor) {
  static const char *const pieces[] = {"<tool_call>", "</tool_call>", "<think>", "</think>", "{", "}", "[", "]", "\"", "\\", "<function=now>", "</function>", "<parameter=a>", "</parameter>",
    "<|", "|>", "\n", ",", ":", "now", "\xF0\x9F", "</", "functions.", "<|\"|>", "1e", "tru", "()", "="};
  size_t at = rnd((uint32_t)s->n + 1);
  Str out = {0};
  str_add_n(&out, s->p ? s->p : "", at);
  switch (rnd(5)) {
    case 0: str_add(&out, pieces[rnd(COUNT_OF(pieces))]); break;
    case 1: at = at_most(s->n, at + rnd(12)); break;
    case 2: str_add_c(&out, (char)rnd(256)); at = MIN(s->n, at + 1); break; /* a byte of any value */
    case 3: { size_t from = rnd((uint32_t)donor->n), n = at_most(donor->n - from, rnd(40)); str_add_n(&out, donor->p + from, n); break; }
    default: { size_t from = rnd((uint32_t)s->n + 1), n = at_most(s->n - from, rnd(40)); str_add_n(&out, s->p ? s->p + from : "", n); break; }
  }
  str_add_n(&out, s->p ? s->p + at : "", s->n - at);
  str_free(s);
  *s = out;
}

/* Arguments are always JSON objects, and every way of cutting tells the same. */
static void check_mutant(ReplyCase *c) {
  for (int eager = 0; eager < 2; eager++) {
    Heard whole = listen(c, 0, 0, eager);
    for (int i = 0; i < 3; i++) {
      Heard h = listen(c, i ? 1 + rnd((uint32_t)c->output.n) : 0, i == 1 ? 0 : 1 + rnd(9), eager);
      const char *got = h.text.p ? h.text.p : "", *want = whole.text.p ? whole.text.p : "";
      EXPECT(h.text.n == whole.text.n && !memcmp(got, want, h.text.n), "%s differs: %s and %s", c->output.p ? c->output.p : "", got, want);
      heard_free(&h);
    }
    json_t *m = text_collect_message(&whole.collect), *calls = json_object_get(m, "tool_calls");
    for (size_t i = 0; i < json_array_size(calls); i++) {
      const char *args = json_string_value(json_object_get(json_object_get(json_array_get(calls, i), "function"), "arguments"));
      json_error_t why = {0};
      json_t *v = json_loads(args ? args : "", JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
      bool unread = !v && (json_error_code(&why) == json_error_numeric_overflow || json_error_code(&why) == json_error_null_byte_in_key); /* JSON, but not for Jansson */
      EXPECT(json_is_object(v) || unread, "arguments %s", args ? args : "(none)");
      json_decref(v);
    }
    json_decref(m);
    heard_free(&whole);
  }
}

static void test_mutations(void) {
  static const char *const seeds[][2] = {
    {TEMPLATES "Qwen-Qwen3-0.6B.jinja", "<think>\nhm\n</think>\n\na\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"\xEC\x84\x9C\\n\", \"days\": [1.5, null]}}\n</tool_call>\n<tool_call>[{\"name\": \"now\"}, {\"name\": \"now\"}]</tool_call> b"},
    {TEMPLATES "Qwen3-Coder.jinja", "a\n<tool_call>\n<function=get_weather>\n<parameter=city>\nx </parameter> y\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call><function=now>\n</function>"},
    {TEMPLATES "meta-llama-Llama-3.2-3B-Instruct.jinja", "[get_weather(city='a', days=3), now()]"},
    {TEMPLATES "meta-llama-Llama-3.1-8B-Instruct.jinja", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"a\"}}; {\"name\": \"now\", \"parameters\": {}}"},
    {TEMPLATES "openai-gpt-oss-120b.jinja", "<|channel|>analysis<|message|>t<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"a\"}<|call|><|start|>assistant<|channel|>final<|message|>x"},
    {TEMPLATES "google-gemma-4-31B-it.jinja", "<|channel>thought\nx\n<channel|><|tool_call>call:get_weather{city:<|\"|>a<|\"|>,days:3}<tool_call|>b"},
    {TEMPLATES "GLM-4.6.jinja", "<think>t</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>a</arg_value>\n</tool_call>"},
    {TEMPLATES "deepseek-ai-DeepSeek-V4.jinja", "t</think>\n<\xEF\xBD\x9C" "DSML\xEF\xBD\x9Cinvoke name=\"get_weather\">\n<\xEF\xBD\x9C" "DSML\xEF\xBD\x9Cparameter name=\"city\" string=\"true\">a</\xEF\xBD\x9C" "DSML\xEF\xBD\x9Cparameter>\n</\xEF\xBD\x9C" "DSML\xEF\xBD\x9Cinvoke>"},
    {TEMPLATES "Mistral-Small-3.2-24B-Instruct-2506.jinja", "a[TOOL_CALLS]get_weather[CALL_ID]call00001[ARGS]{\"city\": \"a\"}[TOOL_CALLS][{\"name\": \"now\"}]"},
    {TEMPLATES "LFM2-8B-A1B.jinja", "<|tool_call_start|>[get_weather(city=\"a\"), now()]<|tool_call_end|>b"},
  };
  TEST("mutated replies") {
    for (size_t k = 0; k < COUNT_OF(seeds); k++) {
      ReplyCase c = case_of(seeds[k][0], seeds[k][1], strlen(seeds[k][1]));
      Str seed = {0}, donor = {0};
      str_add(&seed, seeds[k][1]);
      str_add(&donor, seeds[(k + 1) % COUNT_OF(seeds)][1]);
      for (int i = 0; i < 1500 && !test_failed_here; i++) {
        str_clear(&c.output);
        str_add_n(&c.output, seed.p, seed.n);
        for (uint32_t n = 1 + rnd(6); n--;) mutate(&c.output, &donor);
        check_mutant(&c);
      }
      str_free(&seed);
      str_free(&donor);
      case_free(&c);
    }
  }
}

static void test_bytes(void) {
  TEST("bytes that are no text") {
    expect_bytes("a\xC0\x80" "b", 4, "a" BAD_CHAR BAD_CHAR "b");
    expect_bytes("\xED\xA0\x80", 3, BAD_CHAR BAD_CHAR BAD_CHAR);
    expect_bytes("\x80x", 2, BAD_CHAR "x");
    expect_bytes("x\xEC\x84", 3, "x" BAD_CHAR);
    expect_bytes("\xEC\x84\x9C\xF0\x9F\x98\x80", 7, "\xEC\x84\x9C\xF0\x9F\x98\x80");
  }
  TEST("an end token that closes reasoning") {
    const char *template = "<|think|> <|begin|>";
    TextReplyOptions o = {0};
    TextReply *r = text_reply_new(text_syntax_find(template, strlen(template)), text_reason_find(template, strlen(template)), &o);
    EXPECT(!text_reply_goes_on(r, "<|end|>", 7));
    text_reply_feed(r, "<|think|>hm", 11, NULL, NULL);
    EXPECT(text_reply_goes_on(r, "<|end|>", 7) && !text_reply_goes_on(r, "<|endoftext|>", 13));
    text_reply_feed(r, "<|end|><|begin|>assistant<|content|>a", 37, NULL, NULL);
    EXPECT(!text_reply_goes_on(r, "<|end|>", 7));
    text_reply_free(r);
  }
  TEST("markers and special tokens") {
    ReplyCase c = case_of(TEMPLATES "openai-gpt-oss-120b.jinja", "", 0);
    TextReplyOptions o = {.tools = c.tools};
    TextReply *r = text_reply_new(text_syntax_find(c.template.p, c.template.n), text_reason_find(c.template.p, c.template.n), &o);
    EXPECT(text_reply_has_marker(r, "<|channel|>", 11) && text_reply_has_marker(r, "<|call|>", 8) && text_reply_has_marker(r, "<|constrain|>", 13));
    EXPECT(!text_reply_has_marker(r, "<|endoftext|>", 13) && !text_reply_has_marker(r, "", 0));
    text_reply_free(r);
    case_free(&c);
  }
}

int main(void) {
  test_stops();
  test_reasoning();
  test_values();
  test_tables();
  test_bounds();
  test_bytes();
  test_mutations();
  TEST_MAIN_END();
}
