/* Log-probabilities: against a plain sum in long double, ties, vocabularies smaller than what is asked for; and along an answer, where no sampler
   and no mask changes them.
   runtests: machine code */
#include <math.h>
#include "model/vocab.h"
#include "run/run.h"
#include "test.h"

enum { N = 1000, TOP = 20 };

static void test_sums(void) {
  float *x = malloc(N * sizeof *x);
  uint64_t seed = 3;
  CHECK(x);
  for (int i = 0; i < N; i++) seed = seed * 6364136223846793005u + 1442695040888963407u, x[i] = (float)((double)(seed >> 40) / (1 << 20) - 8);
  x[77] = -INFINITY;
  long double sum = 0;
  for (int i = 0; i < N; i++) sum += expl((long double)x[i]);
  RunLikely top[TOP];
  double own, best = 1, again;
  for (int id = 0; id < N; id += 7) {
    run_logprobs(x, N, id, TOP, &own, top);
    double want = id == 77 ? RUN_LOGPROB_MIN : (double)((long double)x[id] - logl(sum));
    EXPECT(fabs(own - want) < 1e-12, "%d: %.17g, expected %.17g", id, own, want);
  }
  for (int i = 0; i < TOP; i++) {
    run_logprobs(x, N, top[i].id, 0, &again, NULL);
    EXPECT(top[i].logprob <= best && top[i].logprob == again, "%d: %g after %g", i, top[i].logprob, best);
    best = top[i].logprob;
  }
  int n_above = 0;
  for (int i = 0; i < N; i++) n_above += x[i] > x[top[TOP - 1].id];
  EXPECT(n_above <= TOP - 1, "%d are likelier than the last one told", n_above);
  free(x);
}

static void test_few(void) {
  const float x[] = {1, 3, 3, -INFINITY};
  RunLikely top[6];
  double own;
  run_logprobs(x, 4, 0, 6, &own, top);
  EXPECT(top[0].id == 1 && top[1].id == 2 && top[2].id == 0 && top[3].id == 3 && top[4].id == -1 && top[5].id == -1, "%d %d %d %d", top[0].id, top[1].id, top[2].id, top[3].id);
  EXPECT(top[0].logprob == top[1].logprob && top[3].logprob == RUN_LOGPROB_MIN && top[4].logprob == RUN_LOGPROB_MIN);
}

/* The probabilities of an answer are those of its logits, whatever chose the tokens. */
static void test_answer(Model *model, const RunSampling *sampling, const char *re, int n_top) {
  TextVocab *v;
  RunSession *s;
  Grammar *g = NULL;
  GrammarVocab *gv;
  RunGuide *guide = NULL;
  TextIds prompt = {0};
  RunResult r = {0}, again = {0};
  EXPECT_OK(model_vocab_open(model_weights(model), &v));
  EXPECT_OK(run_session_new(model, &s));
  EXPECT_OK(text_tokenize(v, "the light", 9, 0, &prompt));
  EXPECT_OK(grammar_vocab_new(v, &gv));
  if (re) EXPECT_OK(grammar_from_regex(re, strlen(re), &g));
  RunGuideOptions go = {.grammar = g, .vocab = gv, .n_vocab = model_n_vocab(model), .opener = -1};
  if (g) EXPECT_OK(run_guide_new(&go, &guide));
  RunRequest q = {.vocab = v, .prompt = prompt.p, .n_prompt = (int64_t)prompt.n, .sampling = *sampling, .stops = {.max_tokens = 9}, .guide = guide, .has_logprobs = true, .n_top = n_top};
  EXPECT_OK(run_generate(s, &q, &r));
  Seq *seq;
  const float *l = NULL;
  int64_t stride;
  EXPECT_OK(seq_new(model, &seq));
  for (size_t i = 0; i < prompt.n; i++) EXPECT_OK(model_step(model, &(StepPart){seq, &prompt.p[i], 1, true}, 1, &l, &stride));
  for (size_t i = 0; i < r.ids.n; i++) {
    RunLikely top[RUN_TOP_MAX];
    double own;
    run_logprobs(l, model_n_vocab(model), r.ids.p[i], n_top, &own, top);
    EXPECT(own == r.logprob[i], "token %zu: %.17g, expected %.17g", i, r.logprob[i], own);
    for (int k = 0; k < n_top; k++) EXPECT(top[k].id == r.top[i * (size_t)n_top + (size_t)k].id, "token %zu, %d", i, k);
    EXPECT_OK(model_step(model, &(StepPart){seq, &r.ids.p[i], 1, true}, 1, &l, &stride));
  }
  q.has_logprobs = false;
  q.guide = NULL;
  EXPECT_OK(run_generate(s, &q, &again));
  EXPECT(!again.logprob && !again.top, "none were asked for");
  seq_free(seq);
  run_result_free(&r);
  run_result_free(&again);
  run_guide_free(guide);
  grammar_free(g);
  grammar_vocab_free(gv);
  run_session_free(s);
  text_ids_free(&prompt);
  text_vocab_free(v);
}

int main(void) {
  Model *model = NULL;
  ModelOptions o = {.precision = "f32", .n_threads = 2};
  RunSampling cold = RUN_SAMPLING_GREEDY, hot = {.temperature = 2, .top_k = 5, .top_p = 0.9, .repeat_penalty = 1.3, .presence_penalty = 1, .seed = 4};
  TEST("sums against long double") test_sums();
  TEST("ties, and fewer tokens than wanted") test_few();
  TEST("a model") EXPECT_OK(model_open("tests/run/tiny.gguf", &o, &model));
  TEST("the likeliest tokens") test_answer(model, &cold, NULL, 3);
  TEST("samplers change nothing") test_answer(model, &hot, NULL, 5);
  TEST("nor does a grammar") test_answer(model, &hot, "[0-9]{12}", 0);
  model_close(model);
  TEST_MAIN_END();
}
