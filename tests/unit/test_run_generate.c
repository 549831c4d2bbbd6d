/* The token loop over a tiny model: the reference's greedy continuation, every end, what a session keeps, seeds.
   runtests: machine code */
#include <math.h>
#include <pthread.h>
#include <unistd.h>
#include "model/vocab.h"
#include "run/run.h"
#include "test.h"

/* From transformers: the prompt's ids and the 32 that follow greedily; the two best logits are never closer than 0.005. */
static const int32_t prompt[] = {504, 163, 115, 264, 231, 63, 183, 446, 33, 344, 285, 13, 199, 128, 157, 487, 419, 10, 216, 498, 83, 424, 96, 507, 104, 348, 402, 483, 107, 288, 389, 34};
static const int32_t greedy[] = {368, 448, 363, 142, 293, 427, 419, 376, 216, 427, 173, 358, 348, 81, 73, 442, 293, 427, 245, 62, 294, 204, 399, 306, 143, 136, 170, 433, 419, 71, 98, 163};
enum { N_PROMPT = COUNT_OF(prompt), N_GREEDY = COUNT_OF(greedy) };

static Model *model;
static TextVocab *vocab;
static RunSession *session;

static void open_all(int64_t context, int chunk) {
  ModelOptions o = {.precision = "f32", .n_threads = 1, .context = context, .chunk = chunk};
  EXPECT_OK(model_open("tests/run/tiny.gguf", &o, &model));
  EXPECT_OK(model_vocab_open(model_weights(model), &vocab));
  EXPECT_OK(run_session_new(model, &session));
}

static void close_all(void) {
  run_session_free(session);
  text_vocab_free(vocab);
  model_close(model);
}

static RunRequest request(int64_t n_prompt, int64_t max_tokens) {
  return (RunRequest){.vocab = vocab, .prompt = prompt, .n_prompt = n_prompt, .sampling = RUN_SAMPLING_GREEDY, .stops = {.max_tokens = max_tokens}};
}

static bool same_ids(const RunResult *r, const int32_t *ids, size_t n) { return r->ids.n == n && !memcmp(r->ids.p, ids, n * sizeof *ids); }

typedef struct Listener { Str text; int n_calls, n_until; } Listener;
static bool listen(void *ctx, const char *text, size_t n) {
  Listener *l = ctx;
  str_add_n(&l->text, text, n);
  return ++l->n_calls != l->n_until;
}

typedef struct Alarm { volatile int *flag; useconds_t us; } Alarm;
static void *ring(void *ctx) {
  Alarm *a = ctx;
  usleep(a->us);
  *a->flag = 1;
  return NULL;
}

static void cut_after(Model *m, useconds_t us, int *n_cut) {
  volatile int flag = 0;
  Alarm alarm = {&flag, us};
  pthread_t thread;
  RunSession *fresh;
  RunResult r = {0};
  EXPECT_OK(run_session_new(m, &fresh));
  RunRequest q = request(N_PROMPT, N_GREEDY);
  q.cancel = &flag;
  CHECK(!pthread_create(&thread, NULL, ring, &alarm), "no thread");
  EXPECT_OK(run_generate(fresh, &q, &r));
  pthread_join(thread, NULL);
  *n_cut += r.reason == RUN_CANCELLED && !r.ids.n;
  EXPECT(!r.ids.n || !memcmp(r.ids.p, greedy, r.ids.n * sizeof *greedy), "after %d us", (int)us);
  run_result_free(&r);
  flag = 0;
  EXPECT_OK(run_generate(fresh, &q, &r));
  EXPECT(same_ids(&r, greedy, N_GREEDY), "after %d us", (int)us);
  run_result_free(&r);
  run_session_free(fresh);
}

static void test_cut(int n_threads) {
  ModelOptions o = {.precision = "f32", .n_threads = n_threads, .context = 128};
  Model *m;
  EXPECT_OK(model_open("tests/run/tiny.gguf", &o, &m));
  EXPECT_OK(model_vocab_open(model_weights(m), &vocab));
  TEST("cancelled amid the prompt, at any moment: the session answers as ever") {
    int n_cut = 0;
    for (useconds_t us = 0; us < 4000; us += 100) cut_after(m, us, &n_cut);
    EXPECT(n_cut > 0, "%d threads: none was cut", n_threads);
  }
  TEST("a step that is given up changes nothing") {
    volatile int flag = 1;
    Seq *seq;
    const float *logits;
    int64_t stride;
    EXPECT_OK(seq_new(m, &seq));
    model_cancel_by(m, &flag);
    Err *e = model_step(m, &(StepPart){seq, prompt, N_PROMPT, 1}, 1, &logits, &stride);
    EXPECT(e && err_kind(e) == ERR_CANCELLED);
    err_free(e);
    EXPECT(seq_n_tokens(seq) == 0);
    model_cancel_by(m, NULL);
    EXPECT_OK(model_step(m, &(StepPart){seq, prompt, N_PROMPT, 1}, 1, &logits, &stride));
    EXPECT(seq_n_tokens(seq) == N_PROMPT);
    seq_free(seq);
  }
  text_vocab_free(vocab);
  model_close(m);
}

static void test_greedy(void) {
  TEST("greedy continuation as the reference has it") {
    RunResult r = {0};
    Listener l = {0};
    RunRequest q = request(N_PROMPT, N_GREEDY);
    q.on_text = listen, q.ctx = &l;
    EXPECT_OK(run_generate(session, &q, &r));
    EXPECT(same_ids(&r, greedy, N_GREEDY));
    EXPECT(r.reason == RUN_LENGTH && r.n_reused == 0);
    Str whole = {0};
    text_detokenize(vocab, greedy, N_GREEDY, TEXT_SKIP_SPECIAL, &whole);
    EXPECT(r.text.n == whole.n && !strcmp(r.text.p, whole.p), "the text is its ids'");
    EXPECT(l.text.n == whole.n && !strcmp(l.text.p, whole.p), "and what was streamed");
    EXPECT(l.n_calls > 8, "in %d pieces", l.n_calls);
    str_free(&whole);
    str_free(&l.text);
    run_result_free(&r);
  }
  TEST("what a session holds is not read again, and changes nothing") {
    int32_t longer[N_PROMPT + 10];
    memcpy(longer, prompt, sizeof prompt);
    memcpy(longer + N_PROMPT, greedy, 10 * sizeof *greedy);
    RunResult r = {0};
    RunRequest q = request(N_PROMPT + 10, 22);
    q.prompt = longer;
    EXPECT_OK(run_generate(session, &q, &r));
    EXPECT(r.n_reused == N_PROMPT + 9, "%lld held", (long long)r.n_reused);
    EXPECT(same_ids(&r, greedy + 10, 22));
    run_result_free(&r);
    q = request(20, 1);
    EXPECT_OK(run_generate(session, &q, &r));
    EXPECT(r.n_reused == 19, "a shorter prompt: all but its last token");
    run_result_free(&r);
    longer[5]++;
    q = request(N_PROMPT, 1);
    q.prompt = longer;
    EXPECT_OK(run_generate(session, &q, &r));
    EXPECT(r.n_reused == 5, "a prompt that differs: up to there");
    run_result_free(&r);
    q = request(N_PROMPT, N_GREEDY);
    EXPECT_OK(run_generate(session, &q, &r));
    EXPECT(same_ids(&r, greedy, N_GREEDY), "and back");
    run_result_free(&r);
  }
}

static void test_ends(void) {
  RunResult r = {0};
  TEST("no token at all") {
    RunRequest q = request(N_PROMPT, 0);
    EXPECT_OK(run_generate(session, &q, &r));
    EXPECT(r.reason == RUN_LENGTH && !r.ids.n && !r.text.n);
    run_result_free(&r);
  }
  TEST("an end token") {
    RunRequest q = request(N_PROMPT, -1);
    q.stops.end = &greedy[7], q.stops.n_ends = 1;
    EXPECT_OK(run_generate(session, &q, &r));
    EXPECT(r.reason == RUN_END && same_ids(&r, greedy, 8), "%zu tokens", r.ids.n);
    run_result_free(&r);
  }
  TEST("a stop text over two tokens") {
    Str text = {0}, stop = {0};
    text_detokenize(vocab, greedy, 16, TEXT_SKIP_SPECIAL, &text);
    text_detokenize(vocab, greedy + 13, 2, TEXT_SKIP_SPECIAL, &stop);
    const char *first = strstr(text.p, stop.p), *stops[] = {stop.p};
    EXPECT(first, "the test's text '%s' holds '%s'", text.p, stop.p);
    RunRequest q = request(N_PROMPT, -1);
    q.stops.stop = stops, q.stops.n_stops = 1;
    EXPECT_OK(run_generate(session, &q, &r));
    EXPECT(r.reason == RUN_STOP && r.ids.n == 15, "%zu tokens", r.ids.n);
    EXPECT(first && r.text.n == (size_t)(first - text.p) && !memcmp(r.text.p, text.p, r.text.n), "'%s'", r.text.p);
    run_result_free(&r);
    str_free(&text);
    str_free(&stop);
  }
  TEST("cancelled by the flag before it begins, the session stays") {
    volatile int flag = 1;
    RunRequest q = request(N_PROMPT, N_GREEDY);
    q.cancel = &flag;
    EXPECT_OK(run_generate(session, &q, &r));
    EXPECT(r.reason == RUN_CANCELLED && !r.ids.n);
    run_result_free(&r);
    flag = 0;
    EXPECT_OK(run_generate(session, &q, &r));
    EXPECT(same_ids(&r, greedy, N_GREEDY));
    run_result_free(&r);
  }
  TEST("cancelled by the listener") {
    Listener l = {.n_until = 3};
    RunRequest q = request(N_PROMPT, N_GREEDY);
    q.on_text = listen, q.ctx = &l;
    EXPECT_OK(run_generate(session, &q, &r));
    EXPECT(r.reason == RUN_CANCELLED && l.n_calls == 3, "%d calls", l.n_calls);
    EXPECT(r.ids.n >= 3 && r.ids.n < N_GREEDY && !memcmp(r.ids.p, greedy, r.ids.n * sizeof *greedy));
    run_result_free(&r);
    str_free(&l.text);
  }
}

static void expect_error(const char *name, const RunRequest *q, ErrKind kind, const char *part) {
  TEST(name) {
    RunResult r = {.n_reused = 77};
    Err *e = run_generate(session, q, &r);
    EXPECT(e && err_kind(e) == kind && strstr(err_text(e), part), "%s", e ? err_text(e) : "no error");
    EXPECT(e ? r.n_reused == 77 : true, "nothing is written on failure");
    if (!e) run_result_free(&r);
    err_free(e);
  }
}

static void test_errors(void) {
  RunRequest q = request(0, 1);
  expect_error("an empty prompt", &q, ERR_USAGE, "no token");
  q = request(N_PROMPT, 1);
  q.stops.stop = (const char *const[]){""}, q.stops.n_stops = 1;
  expect_error("an empty stop text", &q, ERR_USAGE, "stop text");
  q = request(2, 1);
  q.prompt = (const int32_t[]){1, 512};
  expect_error("a token outside the vocabulary", &q, ERR_LIMIT, "token 512");
  q = request(N_PROMPT, 1);
  q.sampling.top_p = 2;
  expect_error("a setting out of range", &q, ERR_USAGE, "top-p");
}

static void test_context(void) {
  RunResult r = {0};
  open_all(N_PROMPT + 8, 7);
  TEST("the context's end: one token more than it can read, chunks of 7") {
    RunRequest q = request(N_PROMPT, -1);
    EXPECT_OK(run_generate(session, &q, &r));
    EXPECT(r.reason == RUN_CONTEXT, "%s", run_reason_name(r.reason));
    EXPECT(same_ids(&r, greedy, 9), "%zu tokens", r.ids.n);
    run_result_free(&r);
  }
  int32_t longer[N_PROMPT + 9] = {0};
  RunRequest q = request(N_PROMPT + 9, 1);
  q.prompt = longer;
  expect_error("a prompt longer than the context", &q, ERR_LIMIT, "41 tokens, the context holds 40");
  TEST("a prompt as long as the context gives one token") {
    q.n_prompt = N_PROMPT + 8, q.stops.max_tokens = -1;
    EXPECT_OK(run_generate(session, &q, &r));
    EXPECT(r.reason == RUN_CONTEXT && r.ids.n == 1);
    run_result_free(&r);
  }
  close_all();
}

static void test_seeds(void) {
  RunResult r[4] = {{0}};
  TEST("a seed fixes the answer, whatever the session did before and however the prompt is cut") {
    for (int i = 0; i < 4; i++) {
      open_all(0, i == 1 ? 5 : 0);
      RunRequest q = request(N_PROMPT, 24), other = request(9, 6);
      q.sampling = (RunSampling){.temperature = 1.5, .top_p = 0.99, .repeat_penalty = 1.1, .repeat_window = 64, .seed = i == 3 ? 6 : 5};
      if (i == 2) EXPECT_OK(run_generate(session, &other, &r[i]));
      run_result_free(&r[i]);
      EXPECT_OK(run_generate(session, &q, &r[i]));
      close_all();
    }
    EXPECT(same_ids(&r[1], r[0].ids.p, r[0].ids.n));
    EXPECT(same_ids(&r[2], r[0].ids.p, r[0].ids.n));
    EXPECT(!same_ids(&r[3], r[0].ids.p, r[0].ids.n), "another seed, another answer");
    EXPECT(!same_ids(&r[0], greedy, 24), "which is not the greedy one");
    for (int i = 0; i < 4; i++) run_result_free(&r[i]);
  }
}

int main(void) {
  TEST("a tiny model opens") open_all(0, 0);
  if (!test_n_failed) {
    test_greedy();
    test_ends();
    test_errors();
    close_all();
    test_context();
    test_seeds();
    test_cut(1);
    test_cut(3);
  }
  TEST_MAIN_END();
}
