/* run: a model's answer. Samplers choose tokens, a guide says which may come, an answer turns them into text, reasoning and calls and knows
   when to stop, a session keeps what the model has read so that the next prompt costs only its new part. No families, no formats. */
#ifndef LUMEN_RUN_H
#define LUMEN_RUN_H
#include <jansson.h>
#include "base/base.h"
#include "file/file.h"
#include "model/model.h"
#include "text/grammar.h"
#include "text/reply.h"
#include "text/text.h"

/* ---- sampler.c: logits to a token, by the rows of samplers.def ---- */
typedef struct RunBias { int32_t id; float add; } RunBias;
typedef struct RunSampling {
  double temperature;                /* 0: the largest logit */
  int64_t top_k;                     /* 0: off */
  double top_p;                      /* 1: off */
  double min_p;                      /* 0: off */
  double typical_p;                  /* 0 or 1: off */
  double top_n_sigma;                /* 0: off */
  double xtc_probability, xtc_threshold; /* probability 0 or threshold above 0.5: off */
  double repeat_penalty;             /* 1: off; above 0 */
  int64_t repeat_window;             /* tokens of prompt and answer it looks back at; 0: all */
  double presence_penalty, frequency_penalty;  /* 0: off */
  double dry_multiplier, dry_base;   /* multiplier 0: off */
  int64_t dry_allowed_length, dry_window; /* window: tokens of prompt and answer it looks back at; 0: all */
  const uint8_t *dry_breaks;         /* [n_vocab] not 0: no repetition goes through the token (run_dry_breaks); borrowed, or NULL */
  uint64_t seed;
  const RunBias *bias; int n_biases; /* borrowed */
} RunSampling;
/* What holds where neither the user nor the model's files say. */
#define RUN_TEMPERATURE 0.8
#define RUN_TOP_K 40
#define RUN_TOP_P 0.95
#define RUN_MIN_P 0.05
#define RUN_REPEAT_PENALTY 1.0
#define RUN_REPEAT_WINDOW 64
#define RUN_XTC_THRESHOLD 0.1
#define RUN_DRY_BASE 1.75
#define RUN_DRY_ALLOWED_LENGTH 2
#define RUN_SAMPLING_GREEDY ((RunSampling){.top_p = 1, .repeat_penalty = 1})

/* The 64 random bits of a position: they depend on the seed and the position alone. */
uint64_t run_random(uint64_t seed, int64_t position);

typedef struct RunSampler RunSampler;
Err *run_sampling_check(const RunSampling *p, int64_t n_vocab); /* Fails: ERR_USAGE (a setting outside its range, named) */
/* Fails: as that; ERR_MEMORY. p is copied, its bias is borrowed. */
Err *run_sampler_new(const RunSampling *p, int64_t n_vocab, RunSampler **out);
void run_sampler_free(RunSampler *s);        /* NULL is fine */
/* logits[n_vocab] of the token at position n_context; context[n_context] are the ids before it, of which those from n_prompt on are the
   answer's. allowed: bit i of word i / 64 says that token i may come, of n_vocab bits; NULL: all may. The choice depends on these and the
   settings alone. Fails: ERR_FORMAT (a logit is NaN or +inf, or all that may come are -inf). */
Err *run_sampler_pick(RunSampler *s, const float *logits, const uint64_t *allowed, const int32_t *context, int64_t n_context, int64_t n_prompt, int32_t *out);
/* In plain arithmetic, relative errors under 1e-15: the C library's results may depend on the processor. */
double run_exp_negative(double x);           /* exp of x <= 0; 0 below -700 */
double run_log_positive(double x);           /* ln of x > 0 */
/* For dry_breaks: which tokens of v hold one of the texts. In the arena, n_vocab bytes, tokens past v's 0. */
uint8_t *run_dry_breaks(Arena *a, const TextVocab *v, int64_t n_vocab, const char *const *text, int n);
void run_sampler_help(FILE *f);              /* the order, a line each */

/* ---- logprobs.c: how likely the model itself found a token ---- */
enum { RUN_TOP_MAX = 20 };                   /* as many as OpenAI gives */
#define RUN_LOGPROB_MIN (-9999.0)            /* of what cannot come: JSON has no infinity */
typedef struct RunLikely { int32_t id; double logprob; } RunLikely;
/* Natural logarithms of the probabilities of id and of the n_top likeliest tokens, in descending order, ties by id, from the logits as they are.
   Where n_vocab is less than n_top the rest have id -1. */
void run_logprobs(const float *logits, int64_t n_vocab, int32_t id, int n_top, double *own, RunLikely *top);

/* ---- answer.c: tokens to text, and the end of it ---- */
#define RUN_REASONS(X)                                                                 \
  X(END, "end", "the model ended its answer")                                          \
  X(STOP, "stop", "a stop text came up")                                               \
  X(LENGTH, "length", "the answer has as many tokens as it may")                       \
  X(CONTEXT, "context", "the context is full")                                         \
  X(CANCELLED, "cancelled", "it was interrupted")
typedef enum RunReason {
  RUN_GOING = 0,
#define RUN_REASON_(id, name, meaning) RUN_##id,
  RUN_REASONS(RUN_REASON_)
#undef RUN_REASON_
} RunReason;
const char *run_reason_name(RunReason r);
const char *run_reason_meaning(RunReason r);

typedef struct RunStops {
  const int32_t *end; int n_ends;            /* tokens that end the answer and print nothing */
  const char *const *stop; int n_stops;      /* texts that end it, not printed themselves */
  const int32_t *stop_id; int n_stop_ids;    /* tokens that end it as a stop text does */
  int64_t max_tokens;                        /* below 0: no limit */
} RunStops;

/* What is printed is always whole characters and never the beginning of a stop text that may still come true. With a reply only its content is
   printed and looked through for stop texts; reasoning and calls leave as events. */
typedef struct RunAnswer {
  RunStops stops;                            /* borrowed */
  const TextVocab *vocab;
  TextReply *reply;                          /* NULL, or borrowed: set behind init */
  TextOnEvent *on_event; void *ctx;          /* of the reply: all but content; NULL is fine */
  Str *out;                                  /* during a call */
  bool is_stopped;
  TextDecoder decoder;
  TextStops texts;
  Str decoded;                               /* of the last token */
  int64_t n_tokens;
} RunAnswer;
Err *run_answer_init(RunAnswer *a, const TextVocab *v, const RunStops *stops); /* fails as text_stops_init; run_answer_free it */
void run_answer_free(RunAnswer *a);
/* Takes the next token and appends the text that is now certain. END and STOP leave nothing held. */
RunReason run_answer_take(RunAnswer *a, int32_t id, Str *out);
void run_answer_end(RunAnswer *a, Str *out); /* appends what is still held: the answer ended for another reason */

/* ---- prompt.c: what the model's files say about answering ---- */
/* Tokens that end an answer: those the files name and, where there is a chat template, the special token it writes behind an assistant's
   message. template: instead of the model's own; NULL: none. In the arena. */
Err *run_ends(Arena *a, const Weights *w, const TextVocab *v, const char *template, int32_t **out, int *n);
/* A request's prompt. Spellings of control tokens in it are tokens where the template wrote them, else plain text. */
typedef struct RunPrompt {
  TextIds ids;
  Str text;                                  /* as rendered */
  Str prefix;                                /* of the answer, where the last message is to be continued */
  json_t *tools;                             /* offered, as a reply wants them; NULL: none */
} RunPrompt;
/* body: {messages, ..} as text_chat_request takes it. Fails as that and text_chat_render do. */
Err *run_prompt_make(const TextChat *c, const TextVocab *v, TextDialect d, const json_t *body, RunPrompt *out);
void run_prompt_free(RunPrompt *p);
/* A reply that knows the prompt and its tools, to be fed with the answer. */
TextReply *run_prompt_reply(const TextChat *c, const RunPrompt *p, const TextReplyOptions *o);
/* Appends the ids of a text to be continued: with BOS where the model's vocabulary wants it and the text does not begin with it. */
Err *run_raw_ids(const TextVocab *v, const char *text, size_t n, TextIds *out);
/* The settings the model's files recommend (generation_config.json, general.sampling.*), ours where they are silent. Seed 0. */
RunSampling run_sampling_default(const Weights *w);

/* ---- guide.c: which tokens may come next ---- */
typedef struct RunGuideOptions {
  const Grammar *grammar;                    /* all of them borrowed */
  const GrammarVocab *vocab;
  const int32_t *end; int n_ends;            /* may come when the text is whole */
  const int32_t *bar; int n_bars;            /* may not come in reasoning: they would end the answer before it has begun */
  int64_t n_vocab;                           /* of the logits */
  int32_t opener;                            /* a token that may open a reasoning block in front of the text; -1: none */
  bool has_text;                             /* the grammar knows of free text and calls in it: it follows reasoning too, and where it may end all
                                                special tokens may come */
} RunGuideOptions;
typedef struct RunGuide RunGuide;            /* of one answer */
/* Fails: ERR_USAGE (nothing satisfies the grammar), ERR_MEMORY. */
Err *run_guide_new(const RunGuideOptions *o, RunGuide **out);
void run_guide_free(RunGuide *g);            /* NULL is fine */
void run_guide_ahead(RunGuide *g, bool is_reasoning);           /* begins to make the mask of the next token */
/* The mask for run_sampler_pick, once it is made; NULL: everything may come. Fails: ERR_UNSUPPORTED (no token can go on), ERR_LIMIT. */
Err *run_guide_mask(RunGuide *g, const uint64_t **out);
/* The token that came, chosen by a mask or forced. rest: of one that left the reasoning, what it wrote of the answer, or (is_call) the call it
   opened. Fails: ERR_UNSUPPORTED (what it wrote does not fit: no mask was kept to, or it began elsewhere), ERR_LIMIT. */
Err *run_guide_take(RunGuide *g, int32_t id, bool is_forced, const char *rest, size_t n_rest, bool is_call, bool was_reasoning, bool is_reasoning);
Err *run_guide_end(RunGuide *g, int32_t id);  /* the token that ended the answer may also be what closes a call */
bool run_guide_is_over(const RunGuide *g);   /* the text is whole and nothing may follow: the answer ends without another token */
bool run_guide_is_whole(const RunGuide *g);  /* it may end here */

/* ---- generate.c: the loop ---- */
typedef struct RunSession RunSession;        /* a sequence and the ids whose state it holds */
Err *run_session_new(Model *m, RunSession **out); /* the model may be prepared only: its weights are read before the first step */
Err *run_session_ready(RunSession *s, const volatile int *cancel); /* now rather than then. Fails: as model_load; ERR_MEMORY */
void run_session_free(RunSession *s);        /* NULL is fine */

typedef struct RunRequest {
  const TextVocab *vocab;
  const int32_t *prompt; int64_t n_prompt;   /* the whole timeline: what the session holds of it already is not read again */
  RunSampling sampling;
  RunStops stops;
  bool (*on_text)(void *ctx, const char *text, size_t n); /* n > 0 bytes, whole characters; false: stop. NULL is fine */
  void *ctx;
  RunGuide *guide;                           /* borrowed, fresh; NULL: any text */
  TextReply *reply;                          /* borrowed, knowing the prompt: takes reasoning and calls apart; NULL: all is text */
  TextOnEvent *on_event;                     /* of the reply, with ctx: all events but content. NULL is fine */
  TextBudget *budget;                        /* borrowed; NULL: no limit of reasoning. Wants reply */
  bool has_logprobs;                         /* probabilities of the tokens, and at each place */
  int n_top;                                 /* so many of the likeliest, at most RUN_TOP_MAX */
  void (*on_read)(void *ctx, int64_t n_read, int64_t n); /* so many of n prompt tokens are read, in between and at the end; NULL is fine */
  const volatile int *cancel;                /* not 0: stop, at once even amid a chunk of the prompt; NULL is fine */
} RunRequest;
typedef struct RunResult {
  RunReason reason;
  Str text;                                  /* all of it; with a reply its content */
  bool is_whole;                             /* with a guide: the text is one of the grammar's */
  TextIds ids;                               /* all tokens, the end token included */
  double *logprob;                           /* [ids.n] where they are wanted, else NULL: of the tokens; NAN of one that had to come */
  RunLikely *top;                            /* [ids.n][n_top] */
  int64_t n_reused;                          /* of the prompt, held before */
  int64_t prefill_ns, decode_ns;             /* until the first logits; from there to the last token */
} RunResult;
void run_result_free(RunResult *r);
/* Fails: ERR_LIMIT (the prompt does not fit), ERR_USAGE (empty prompt or stop text, bad settings), ERR_FORMAT (broken logits), and as steps do.
   Whatever happens, the session stays usable. */
Err *run_generate(RunSession *s, const RunRequest *q, RunResult *out);
#endif
