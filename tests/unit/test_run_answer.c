/* Tokens to text: whole characters, stop texts across tokens, every way an answer ends. */
#include "run/run.h"
#include "test.h"

/* A byte-level vocabulary: ids by name. The euro sign is bytes e2 82 ac, which such files spell \u00e2 \u0124 \u00ac. */
enum { A, B, C, AB, BC, SPACE, X, E2, E82, EAC, END, OTHER, N };
static const char *const tokens[N] = {"a", "b", "c", "ab", "bc", "\u0120", "x", "\u00e2", "\u0124", "\u00ac", "<end>", "<other>"};
static TextVocab *vocab;

static void vocab_make(void) {
  int32_t type[N];
  for (int i = 0; i < N; i++) type[i] = i >= END ? TEXT_TOKEN_CONTROL : TEXT_TOKEN_NORMAL;
  TextVocabSource s = {.kind = "gpt2", .pre = "gpt-2", .n_tokens = N, .token = tokens, .type = type, .merge = (const char *const[]){"a b", "b c"}, .n_merges = 2, .bos = -1, .eos = END, .unk = -1, .sep = -1, .add_bos = -1, .add_eos = -1, .add_space_prefix = -1};
  EXPECT_OK(text_vocab_new(&s, &vocab));
}

typedef struct Told { Str all, pieces; RunReason reason; int n; } Told; /* pieces: with a | behind what each token released */

/* Feeds ids until one ends the answer; what is held after the last comes out behind it. */
static Told tell(const RunStops *stops, const int32_t *ids, int n) {
  RunAnswer a;
  Told t = {0};
  EXPECT_OK(run_answer_init(&a, vocab, stops));
  while (t.n < n && !t.reason) {
    size_t before = t.all.n;
    t.reason = run_answer_take(&a, ids[t.n++], &t.all);
    str_add_n(&t.pieces, t.all.n > before ? t.all.p + before : "", t.all.n - before);
    str_add_c(&t.pieces, '|');
  }
  if (t.reason != RUN_STOP && t.reason != RUN_END) {
    size_t before = t.all.n;
    run_answer_end(&a, &t.all);
    str_add_n(&t.pieces, t.all.n > before ? t.all.p + before : "", t.all.n - before);
  }
  run_answer_free(&a);
  return t;
}

#define IDS(...) (int32_t[]){__VA_ARGS__}, (int)COUNT_OF(((int32_t[]){__VA_ARGS__}))
static void expect_told(const char *name, const RunStops *stops, const int32_t *ids, int n, const char *pieces, RunReason reason) {
  TEST(name) {
    Told t = tell(stops, ids, n);
    EXPECT(!strcmp(t.pieces.p ? t.pieces.p : "", pieces), "'%s', expected '%s'", t.pieces.p, pieces);
    EXPECT(t.reason == reason, "%s, expected %s", run_reason_name(t.reason), run_reason_name(reason));
    str_free(&t.all);
    str_free(&t.pieces);
  }
}

int main(void) {
  TEST("a vocabulary for the test") vocab_make();
  static const int32_t ends[] = {END};
  RunStops plain = {.end = ends, .n_ends = 1, .max_tokens = -1};
  expect_told("text comes as it is made", &plain, IDS(A, BC, SPACE, X), "a|bc| |x|", RUN_GOING);
  expect_told("a character split over tokens comes whole", &plain, IDS(A, E2, E82, EAC, B), "a|||\u20ac|b|", RUN_GOING);
  expect_told("a character never completed comes as U+FFFD at the end", &plain, IDS(A, E2, E82), "a|||\uFFFD", RUN_GOING);
  expect_told("an end token prints nothing and ends", &plain, IDS(A, END, B), "a||", RUN_END);
  expect_told("a special token that ends nothing prints nothing", &plain, IDS(A, OTHER, B), "a||b|", RUN_GOING);
  expect_told("an end token releases half a character", &plain, IDS(E2, END), "|\uFFFD|", RUN_END);

  RunStops abc = {.end = ends, .n_ends = 1, .stop = (const char *const[]){"abc"}, .n_stops = 1, .max_tokens = -1};
  expect_told("a stop text inside its tokens", &abc, IDS(X, A, B, C, X), "x||||", RUN_STOP);
  expect_told("a stop text across tokens, text before it kept", &abc, IDS(X, AB, BC, AB, C), "x||abbc|||", RUN_STOP);
  expect_told("what turns out not to be a stop text comes out", &abc, IDS(AB, X), "|abx|", RUN_GOING);
  expect_told("half of it is kept where it may begin again", &abc, IDS(AB, AB, A, BC), "|ab|ab||", RUN_STOP);
  expect_told("held text comes out at the end", &abc, IDS(X, AB), "x||ab", RUN_GOING);
  expect_told("and before an end token", &abc, IDS(X, AB, END), "x||ab|", RUN_END);

  RunStops two = {.stop = (const char *const[]){"bx", "abc", "\u20ac"}, .n_stops = 3, .max_tokens = -1};
  expect_told("the first of several stop texts counts", &two, IDS(A, BC, X), "||", RUN_STOP);
  expect_told("the shorter one", &two, IDS(C, AB, X), "c||a|", RUN_STOP);
  expect_told("a stop text of split characters", &two, IDS(C, E2, E82, EAC), "c||||", RUN_STOP);

  RunStops three = {.end = ends, .n_ends = 1, .stop = (const char *const[]){"ab"}, .n_stops = 1, .max_tokens = 3};
  expect_told("the length counts tokens", &three, IDS(X, X, X, X), "x|x|x|", RUN_LENGTH);
  expect_told("held text comes out at the length", &three, IDS(X, X, A, B), "x|x||a", RUN_LENGTH);
  expect_told("a stop text at the last token is a stop text", &three, IDS(X, A, B), "x|||", RUN_STOP);
  expect_told("an end token at the last token is the end", &three, IDS(X, X, END), "x|x||", RUN_END);

  TEST("every reason has a name and a meaning") {
    for (int r = RUN_END; r <= RUN_CANCELLED; r++) EXPECT(run_reason_name((RunReason)r)[0] && run_reason_meaning((RunReason)r)[0]);
    EXPECT(!strcmp(run_reason_name(RUN_CONTEXT), "context"));
  }
  text_vocab_free(vocab);
  TEST_MAIN_END();
}
