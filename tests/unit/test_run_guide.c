/* What may come next: masks along a text, reasoning in front, triggers; and the loop with all of it over a tiny model of random weights.
   runtests: machine code */
#include "model/vocab.h"
#include "run/run.h"
#include "test.h"

/* 0 end, 1 opens reasoning and 2 closes it (both print nothing), the others write a byte or two. */
static const char *const token[] = {"", "", "", "a", "b", "ab", "<", "c", "<c"};
enum { N_TOKENS = COUNT_OF(token), END = 0, OPEN = 1, CLOSE = 2, A = 3, B = 4, AB = 5, LESS = 6, C = 7, LESS_C = 8 };

static const int32_t ends[] = {END};

static GrammarVocab *vocab_of_test(void) {
  const uint8_t *p[N_TOKENS];
  uint32_t n[N_TOKENS];
  GrammarVocab *v = NULL;
  for (int i = 0; i < N_TOKENS; i++) p[i] = *token[i] ? (const uint8_t *)token[i] : NULL, n[i] = (uint32_t)strlen(token[i]);
  EXPECT_OK(grammar_vocab_from_bytes(p, n, N_TOKENS, &v));
  return v;
}

/* The mask of the next token as a set of bits; -1: everything may come. */
static int mask_of(RunGuide *g, bool is_reasoning) {
  const uint64_t *mask;
  run_guide_ahead(g, is_reasoning);
  EXPECT_OK(run_guide_mask(g, &mask));
  return mask ? (int)mask[0] : -1;
}

static RunGuide *guide_of(const char *re, int32_t opener, bool has_text, Grammar **g, GrammarVocab *v) {
  RunGuide *guide = NULL;
  EXPECT_OK(grammar_from_regex(re, strlen(re), g));
  RunGuideOptions o = {.grammar = *g, .vocab = v, .end = ends, .n_ends = 1, .n_vocab = N_TOKENS, .opener = opener, .has_text = has_text};
  EXPECT_OK(run_guide_new(&o, &guide));
  return guide;
}

static void test_masks(GrammarVocab *v) {
  Grammar *g;
  RunGuide *guide = guide_of("ab?c*", -1, false, &g, v);
  EXPECT(mask_of(guide, false) == (1 << A | 1 << AB), "0x%x", mask_of(guide, false));
  EXPECT_OK(run_guide_take(guide, A, false, NULL, 0, false, false, false));
  EXPECT(mask_of(guide, false) == (1 << B | 1 << C | 1 << END) && run_guide_is_whole(guide) && !run_guide_is_over(guide), "0x%x", mask_of(guide, false));
  EXPECT_OK(run_guide_take(guide, C, false, NULL, 0, false, false, false));
  EXPECT(mask_of(guide, false) == (1 << C | 1 << END), "0x%x", mask_of(guide, false));
  run_guide_free(guide);
  grammar_free(g);
  guide = guide_of("ab", -1, false, &g, v);
  EXPECT_OK(run_guide_take(guide, AB, false, NULL, 0, false, false, false));
  EXPECT(run_guide_is_over(guide) && run_guide_is_whole(guide), "nothing may follow");
  run_guide_free(guide);
  grammar_free(g);
}

static void test_reasoning(GrammarVocab *v) {
  Grammar *g;
  RunGuide *guide = guide_of("ab", OPEN, false, &g, v);
  EXPECT(mask_of(guide, false) == (1 << A | 1 << AB | 1 << OPEN), "reasoning may be opened: 0x%x", mask_of(guide, false));
  EXPECT_OK(run_guide_take(guide, OPEN, false, NULL, 0, false, false, true));
  EXPECT(mask_of(guide, true) == -1, "and is free");
  EXPECT_OK(run_guide_take(guide, C, false, NULL, 0, false, true, true));
  EXPECT_OK(run_guide_take(guide, CLOSE, false, NULL, 0, false, true, false));
  EXPECT(mask_of(guide, false) & 1 << A && !(mask_of(guide, false) & 1 << C), "then the grammar begins: 0x%x", mask_of(guide, false));
  EXPECT_OK(run_guide_take(guide, A, false, NULL, 0, false, false, false));
  EXPECT(mask_of(guide, false) == 1 << B, "and reasoning may not: 0x%x", mask_of(guide, false));
  run_guide_free(guide);
  grammar_free(g);
  guide = guide_of("ab", -1, false, &g, v);
  EXPECT_OK(run_guide_take(guide, LESS, false, "a", 1, false, true, false)); /* a token that closes and writes a */
  EXPECT(mask_of(guide, false) == 1 << B, "what the closing token writes behind counts");
  run_guide_free(guide);
  grammar_free(g);
}

/* What would end the answer inside reasoning may not come there, unless the answer is whole already. */
static void test_bars(GrammarVocab *v) {
  Grammar *g;
  RunGuide *guide = NULL;
  EXPECT_OK(grammar_from_regex("ab", 2, &g));
  RunGuideOptions o = {.grammar = g, .vocab = v, .end = ends, .n_ends = 1, .bar = ends, .n_bars = 1, .n_vocab = N_TOKENS, .opener = -1};
  EXPECT_OK(run_guide_new(&o, &guide));
  int all = mask_of(guide, true);
  EXPECT(!(all & 1 << END) && (all & 1 << OPEN) && (all & 1 << CLOSE) && (all & 1 << C), "no end in reasoning: 0x%x", all);
  EXPECT_OK(run_guide_take(guide, AB, false, NULL, 0, false, false, false));
  EXPECT(mask_of(guide, true) == -1, "but where it is whole");
  run_guide_free(guide);
  grammar_free(g);
}

/* A token that ends answers may be the last that a call wants. */
static void test_closing_end(GrammarVocab *v) {
  Grammar *g;
  RunGuide *guide = guide_of("ab<", -1, false, &g, v);
  EXPECT_OK(run_guide_take(guide, AB, false, NULL, 0, false, false, false));
  EXPECT_OK(run_guide_end(guide, C));
  EXPECT(!run_guide_is_whole(guide), "another does not make it whole");
  EXPECT_OK(run_guide_end(guide, LESS));
  EXPECT(run_guide_is_whole(guide) && run_guide_is_over(guide));
  EXPECT_OK(run_guide_end(guide, END));
  run_guide_free(guide);
  grammar_free(g);
}

/* Text in which "<" begins a call, "<ab": in reasoning too. */
static void test_text(GrammarVocab *v) {
  Grammar *g;
  RunGuide *guide = guide_of("([abc]|<ab)*", -1, true, &g, v);
  int all = (1 << N_TOKENS) - 1 - (1 << LESS_C);
  EXPECT(mask_of(guide, false) == all && run_guide_is_whole(guide), "in text all may come, but what begins a call that is none: 0x%x", mask_of(guide, false));
  for (int i = 0; i < 600; i++) EXPECT_OK(run_guide_take(guide, C, false, NULL, 0, false, false, false));
  EXPECT_OK(run_guide_take(guide, OPEN, false, NULL, 0, false, false, true));
  EXPECT_OK(run_guide_take(guide, LESS, false, NULL, 0, false, true, true));
  EXPECT(mask_of(guide, true) == (1 << A | 1 << AB) && !run_guide_is_whole(guide), "in a call the grammar holds, ends too: 0x%x", mask_of(guide, true));
  EXPECT_OK(run_guide_take(guide, AB, false, NULL, 0, false, true, true));
  EXPECT(mask_of(guide, true) == all && run_guide_is_whole(guide) && !run_guide_is_over(guide), "then all may come again");
  EXPECT_OK(run_guide_take(guide, CLOSE, true, NULL, 0, false, true, false));
  EXPECT_OK(run_guide_take(guide, LESS, false, NULL, 0, false, false, false));
  EXPECT(mask_of(guide, false) == (1 << A | 1 << AB), "and again");
  run_guide_free(guide);
  grammar_free(g);
}

/* A call in reasoning, where the answer must be calls: its text counts, and so does the next one's. */
static void test_calls_in_reasoning(GrammarVocab *v) {
  Grammar *g;
  RunGuide *guide = guide_of("<ab", -1, false, &g, v);
  EXPECT(mask_of(guide, true) == -1, "reasoning is free");
  EXPECT_OK(run_guide_take(guide, LESS, false, "<", 1, true, true, false));
  EXPECT(mask_of(guide, false) == (1 << A | 1 << AB), "the call is not: 0x%x", mask_of(guide, false));
  EXPECT_OK(run_guide_take(guide, A, false, NULL, 0, false, false, false));
  EXPECT_OK(run_guide_take(guide, LESS, false, "<", 1, true, true, false));
  EXPECT(mask_of(guide, false) == (1 << A | 1 << AB), "nor is another that begins anew: 0x%x", mask_of(guide, false));
  EXPECT_OK(run_guide_take(guide, LESS_C, false, "<c", 2, true, true, false));
  EXPECT(mask_of(guide, false) == 1 << LESS, "and one of another form is broken off: 0x%x", mask_of(guide, false));
  Err *e = run_guide_take(guide, LESS_C, false, "<c", 2, false, true, false);
  EXPECT(e && err_kind(e) == ERR_UNSUPPORTED, "%s", e ? err_text(e) : "accepted");
  err_free(e);
  run_guide_free(guide);
  grammar_free(g);
}

static void test_refused(GrammarVocab *v) {
  Grammar *g;
  RunGuide *guide = NULL;
  json_t *no = json_false();
  const uint64_t *mask;
  EXPECT_OK(grammar_from_schema(no, 0, &g));
  RunGuideOptions o = {.grammar = g, .vocab = v, .n_vocab = N_TOKENS, .opener = -1};
  Err *e = run_guide_new(&o, &guide);
  EXPECT(e && err_kind(e) == ERR_USAGE && !guide, "%s", e ? err_text(e) : "accepted");
  err_free(e);
  grammar_free(g);
  guide = guide_of("z", -1, false, &g, v);
  run_guide_ahead(guide, false);
  e = run_guide_mask(guide, &mask);
  EXPECT(e && err_kind(e) == ERR_UNSUPPORTED, "no token writes z: %s", e ? err_text(e) : "accepted");
  err_free(e);
  run_guide_ahead(guide, false); /* and it may be freed while a mask is under way */
  run_guide_free(guide);
  grammar_free(g);
  for (int has_text = 0; has_text < 2; has_text++) { /* from outside the mask */
    guide = guide_of("ab", -1, has_text, &g, v);
    e = run_guide_take(guide, B, false, NULL, 0, false, false, false);
    EXPECT(e && err_kind(e) == ERR_UNSUPPORTED && strstr(err_text(e), "token 4 writes what does not fit"), "%s", e ? err_text(e) : "accepted");
    err_free(e);
    run_guide_free(guide);
    grammar_free(g);
  }
}

/* A reply that stands in open reasoning, a budget of 5, an answer held to a date, on random weights. */
static void test_loop(uint64_t seed) {
  static const char think[] = "{{ '<think>' }}</think>";
  Model *model;
  TextVocab *v;
  RunSession *s;
  Grammar *g;
  GrammarVocab *gv;
  RunGuide *guide = NULL;
  TextIds prompt = {0}, close = {0};
  TextCollect collect = {0};
  RunResult r = {0};
  ModelOptions o = {.precision = "f32", .n_threads = 2};
  EXPECT_OK(model_open("tests/run/tiny.gguf", &o, &model));
  EXPECT_OK(model_vocab_open(model_weights(model), &v));
  EXPECT_OK(run_session_new(model, &s));
  EXPECT_OK(grammar_from_regex("[0-9]{4}-[0-9]{2}", 17, &g));
  EXPECT_OK(grammar_vocab_new(v, &gv));
  EXPECT_OK(text_tokenize(v, "the light", 9, 0, &prompt));
  EXPECT_OK(text_tokenize(v, "\n</think>\n\n", 11, 0, &close));
  RunGuideOptions go = {.grammar = g, .vocab = gv, .end = (int32_t[]){2}, .n_ends = 1, .n_vocab = model_n_vocab(model), .opener = -1};
  EXPECT_OK(run_guide_new(&go, &guide));
  TextReplyOptions ro = {0};
  TextReply *reply = text_reply_new(text_syntax_find(think, sizeof think - 1), text_reason_find(think, sizeof think - 1), &ro);
  text_reply_prompt(reply, "x<think>", 8);
  EXPECT(text_reply_is_reasoning(reply));
  TextBudget budget = {.max = 5, .close = close.p, .n_close = (int)close.n};
  RunRequest q = {.vocab = v, .prompt = prompt.p, .n_prompt = (int64_t)prompt.n, .sampling = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = seed}, .stops = {.end = go.end, .n_ends = 1, .max_tokens = 60},
                  .guide = guide, .reply = reply, .on_event = text_collect_event, .ctx = &collect, .budget = &budget};
  EXPECT_OK(run_generate(s, &q, &r));
  bool is_date = r.text.n == 7 && r.text.p[4] == '-';
  for (size_t i = 0; is_date && i < 7; i++) is_date = i == 4 || (r.text.p[i] >= '0' && r.text.p[i] <= '9');
  EXPECT(is_date && r.is_whole && r.reason == RUN_END, "seed %llu: '%s', %s", (unsigned long long)seed, r.text.n ? r.text.p : "", run_reason_name(r.reason));
  bool closed = r.ids.n >= 5 + close.n && !memcmp(r.ids.p + 5, close.p, close.n * sizeof *close.p);
  EXPECT(closed, "the budget's 5 tokens, then what closes");
  EXPECT(collect.reasoning.n > 0 && !strstr(collect.reasoning.p, "think"), "reasoning: %s", collect.reasoning.n ? collect.reasoning.p : "");
  run_result_free(&r);
  text_collect_free(&collect);
  text_reply_free(reply);
  run_guide_free(guide);
  text_ids_free(&prompt);
  text_ids_free(&close);
  grammar_vocab_free(gv);
  grammar_free(g);
  run_session_free(s);
  text_vocab_free(v);
  model_close(model);
}

int main(void) {
  GrammarVocab *v = NULL;
  TEST("a small vocabulary") v = vocab_of_test();
  TEST("masks along a text, ends where it is whole") test_masks(v);
  TEST("reasoning is free, the grammar begins behind it") test_reasoning(v);
  TEST("an end that closes") test_closing_end(v);
  TEST("no end inside reasoning") test_bars(v);
  TEST("a grammar of text and calls follows reasoning too") test_text(v);
  TEST("calls in reasoning, where the answer must be calls") test_calls_in_reasoning(v);
  TEST("what nothing satisfies and what no token writes is refused") test_refused(v);
  TEST("open reasoning, its budget, then an answer of the grammar") {
    for (uint64_t seed = 1; seed <= 3; seed++) test_loop(seed);
  }
  grammar_vocab_free(v);
  TEST_MAIN_END();
}
