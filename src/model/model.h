/* model: a model declaration bound to a file: hyperparameters evaluated, tensors found and packed, kernels compiled, memory planned; then
   steps over tokens. Knows no family: the family is a text of std/models chosen by what the file says it is. */
#ifndef LUMEN_MODEL_H
#define LUMEN_MODEL_H
#include "base/base.h"
#include "file/file.h"
#include "text/text.h"

enum { MODEL_MAX_CONTEXT = 1 << 24 }; /* tokens of a sequence */

typedef struct ModelOptions {
  const char *precision;   /* "int8", "f32"; NULL: int8 for formats that have it */
  const char *target;      /* a row of gen/targets.def; NULL: the best this machine runs */
  const char *kv;          /* format of keys and values, any that has an encode; NULL: f32 at --precision f32, bf16 at int8, else f16 */
  const char *std_dir;     /* --std: texts added to or overriding the embedded ones; NULL: none */
  int n_threads;           /* 0: what affinity and cgroup allow */
  int64_t context;         /* positions to hold; 0: the model's own, at most 8192 unless asked for */
  int chunk;               /* tokens of a prompt per step; 0: 512 */
  bool perf_map;
} ModelOptions;

typedef struct ModelTimes { int64_t open_ns, compile_ns, pack_ns, pack_cpu_ns; /* cpu: of all threads */ int n_kernels; size_t code_bytes; size_t weight_bytes, packed_bytes, state_bytes, huge_bytes; } ModelTimes;

typedef struct Model Model;
typedef struct Seq Seq;    /* one timeline of tokens with its state */

/* path: a GGUF file or a Hugging Face directory. Fails: ERR_FORMAT (tensor, got, expected), ERR_NOT_FOUND, ERR_UNSUPPORTED, ERR_MEMORY (bytes wanted). */
Err *model_open(const char *path, const ModelOptions *opt, Model **out);
/* The same in halves, so that what else is wrong can be told before: all that files' heads, options and the model's text say, then the weights. A
   prepared model answers every question below but model_plan_text's of memory; a second load does nothing; where it failed the model can only be closed. */
Err *model_prepare(const char *path, const ModelOptions *opt, Model **out);
Err *model_load(Model *m);                        /* model_cancel_by is heeded: ERR_CANCELLED */
void model_close(Model *m);                       /* NULL is fine; sequences must be freed before */
int64_t model_n_vocab(const Model *m);
int64_t model_context(const Model *m);            /* positions a sequence may hold */
int64_t model_made_for(const Model *m);           /* positions that its files say it was made for, 0: they do not */
int model_chunk(const Model *m);                  /* most tokens one step takes */
const Weights *model_weights(const Model *m);
const char *const *model_unused(const Model *m, int *n); /* names of the file's tensors that the model's text does not name, as those that see */
const char *model_precision(const Model *m);
const char *model_kv(const Model *m);              /* format of keys and values */
const char *model_target(const Model *m);
int model_n_threads(const Model *m);
const ModelTimes *model_times(const Model *m);
void model_plan_text(const Model *m, Str *out);   /* what runs where: precision, road and bytes of every tensor, memory */
int64_t model_bytes_per_token(const Model *m);    /* weight bytes one decoded token reads */

/* A FileFormatFind, of the texts' storage formats: by a safetensors dtype in small letters, else by GGUF's number. */
bool model_format_find(void *module, const char *dtype, int64_t gguf_id, FileFormat *out);

/* tensor.c: one tensor of a model's files as floats, row by row, whether blocks or several tensors hold it. *rows, *cols: 0 or what is expected; then
   what they are. Fails: ERR_NOT_FOUND, ERR_UNSUPPORTED, ERR_SHAPE. */
Err *model_tensor_decode(Arena *a, const char *path, const ModelOptions *opt, const char *name, int64_t *rows, int64_t *cols, float **out);

Err *seq_new(Model *m, Seq **out);                /* Fails: ERR_MEMORY */
void seq_free(Seq *s);
int64_t seq_n_tokens(const Seq *s);               /* tokens whose state is held: the next token's position */
void seq_truncate(Seq *s, int64_t n_tokens);      /* forget the tail; n_tokens <= seq_n_tokens */

/* One step: sequence i takes n_tokens[i] >= 1 tokens; logits are made for the last token of each where want[i] is 1, for all its tokens
   where it is 2, for none where it is 0. *logits[row][*stride] f32 in that order, the model's until the next step; columns past the vocabulary
   are padding. Fails: ERR_LIMIT (context full, token id outside the vocabulary, more than model_chunk tokens): nothing has changed then; ERR_CANCELLED:
   sequences hold what they held before. */
typedef struct StepPart { Seq *seq; const int32_t *token; int n_tokens; int want; } StepPart;
Err *model_step(Model *m, const StepPart *part, int n_parts, const float **logits, int64_t *stride);
/* Steps from now on end early, between parts of kernels, once *cancel is not 0; NULL: never. Only what a signal handler may do is done with it. */
void model_cancel_by(Model *m, const volatile int *cancel);

/* spent.c: what steps did and how long it took, per kernel: while watched, or under LUMEN_TRACE=time. */
typedef struct ModelSpentRow {
  const struct Kern *kern; int region; bool layered;
  const char *name, *where, *shape;                  /* ops, lines of the model's text, weights and states */
  const char *spec; bool spec_is_part;               /* what `lumen kern` takes to run it alone, or of several calls in one the heaviest */
  int64_t t_ns, n_calls, n_items, best_ns;           /* first thread's begin to last thread's end; of the fastest call */
  double int_ops, f32_ops, pair_ops;                 /* two for a multiply-add; pair_ops: those of f32_ops that are done two at a time */
  double n_bytes, weight_bytes, state_bytes;         /* touched, once a call */
} ModelSpentRow;
typedef struct ModelSpent { ModelSpentRow *row; int n, cap; int64_t n_steps, n_tokens, t_ns, build_ns; } ModelSpent; /* build_ns: before the threads start */
void model_spent_watch(Model *m, bool on);
void model_spent_forget(Model *m, bool several);
const ModelSpent *model_spent(Model *m, bool several); /* steps of one token a sequence, or of several; the longest first */
/* What the machine gives at best, measured now, by the model's threads for its target; read_bytes of memory were read again and again. */
typedef struct ModelPeak { double int_ops_per_s, f32_ops_per_s, read_bytes_per_s; size_t read_bytes; } ModelPeak;
Err *model_peak(Model *m, ModelPeak *out);
double model_peak_seconds(const ModelPeak *p, const ModelSpentRow *r, bool *memory); /* the least its work can take; memory: reading bounds it */

/* vocab.c: the tokenizer and the template that the file carries. */
Err *model_vocab(Arena *a, const Weights *w, TextVocab **out);
Err *model_template(Arena *a, const Weights *w, const char **source);  /* NULL where it has none */
#endif
