/* run_cmd: what the files of `lumen run` share: its options and what one call has open. run.c answers one prompt, run_setup.c reads the options,
   run_request.c the settings of a request, run_chat.c talks, run_lines.c reads what is typed. */
#ifndef LUMEN_RUN_CMD_H
#define LUMEN_RUN_CMD_H
#include "cmd/cmd.h"
#include "cmd/model_opts.h"
#include "run/run.h"

#define RUN_ROWS(X, T)                                                                                                              \
  X(T, system, 's', STR, "TEXT", NULL, 0, 0, "what the model is told before the conversation")                                      \
  X(T, request, 0, IN, "FILE", NULL, 0, 0, "instead of a prompt a chat request as clients send it: messages, tools, settings, .. as JSON")   \
  X(T, raw, 'r', FLAG, "", NULL, 0, 0, "continue the prompt as it is: no chat template")                                            \
  X(T, chat_template_file, 0, IN, "FILE", NULL, 0, 0, "a Jinja chat template instead of the model's own")                          \
  X(T, chat_template, 0, STR, "TEXT", NULL, 0, 0, "the same, on the command line")                                                  \
  X(T, max_tokens, 'n', INT, "N", NULL, 0, 1 << 30, "tokens of an answer at most; else until the context is full")                  \
  X(T, stop, 0, LIST, "TEXT", NULL, 0, 0, "end the answer before this text; may be given again")                                    \
  X(T, stop_token, 0, LIST, "ID", NULL, 0, 0, "end the answer before this token; may be given again")                               \
  X(T, schema, 0, IN, "FILE", NULL, 0, 0, "hold the answer to a JSON Schema")                                                      \
  X(T, json_object, 0, FLAG, "", NULL, 0, 0, "hold the answer to JSON: any object")                                                 \
  X(T, regex, 0, STR, "RE", NULL, 0, 0, "hold the whole answer to a regular expression")                                            \
  X(T, gbnf, 0, IN, "FILE", NULL, 0, 0, "hold the answer to a GBNF grammar")                                                       \
  X(T, tools, 0, IN, "FILE", NULL, 0, 0, "offer the functions of a JSON array; calls are printed as JSON, a line each")            \
  X(T, tool_choice, 0, STR, "HOW", NULL, 0, 0, "auto, none, required, or the one function that must be called; else auto")                   \
  X(T, one_call, 0, FLAG, "", NULL, 0, 0, "one call at most in an answer, as \"parallel_tool_calls\": false in a request")                    \
  X(T, strict, 0, FLAG, "", NULL, 0, 0, "hold the arguments of calls to their schemas")                                             \
  X(T, think, 0, STR, "HOW", NULL, 0, 0, "on, off, or how hard (low, medium, high): where the template knows of it")                \
  X(T, think_budget, 0, INT, "N", NULL, 0, 1 << 30, "tokens of reasoning at most; then it is closed")                               \
  X(T, show_think, 0, FLAG, "", NULL, 0, 0, "print the reasoning too, on a terminal dimmed")                               \
  X(T, temperature, 'T', FLOAT, "X", NULL, 0, 100, "0: always the likeliest token; else the model's recommendation or 0.8")         \
  X(T, top_k, 0, INT, "N", NULL, 0, 1 << 30, "draw from the N likeliest tokens, 0: all; else recommended or 40")                    \
  X(T, top_p, 0, FLOAT, "X", NULL, 0, 1, "draw from the likeliest that reach X together, 1: all; else recommended or 0.95")         \
  X(T, min_p, 0, FLOAT, "X", NULL, 0, 1, "draw from those at least X times as likely as the best; else recommended or 0.05")        \
  X(T, typical_p, 0, FLOAT, "X", "1", 0, 1, "draw from the most typical that reach X together, 1: all")                             \
  X(T, top_n_sigma, 0, FLOAT, "X", "0", 0, 1000, "draw from those within X standard deviations of the best logit, 0: all")          \
  X(T, xtc_probability, 0, FLOAT, "X", "0", 0, 1, "how often to leave out the likeliest of several good tokens")                    \
  X(T, xtc_threshold, 0, FLOAT, "X", "0.1", 0, 1, "from which probability a token is good for that")                                \
  X(T, repeat_penalty, 0, FLOAT, "X", NULL, 0.001, 1000, "divide the logits of recent tokens by X; else recommended or 1")          \
  X(T, repeat_window, 0, INT, "N", "64", 0, 1 << 30, "how many tokens are recent, prompt included; 0: all")                         \
  X(T, presence_penalty, 0, FLOAT, "X", "0", -1000, 1000, "take X off the logits of tokens in the answer")                          \
  X(T, frequency_penalty, 0, FLOAT, "X", "0", -1000, 1000, "take X off for each time a token is in the answer")                     \
  X(T, dry_multiplier, 0, FLOAT, "X", "0", 0, 1000, "take X * dry_base^(length - dry_allowed_length) off what prolongs a repetition") \
  X(T, dry_base, 0, FLOAT, "X", "1.75", 1, 1000, "see --dry-multiplier")                                                            \
  X(T, dry_allowed_length, 0, INT, "N", "2", 1, 1000000, "shorter repetitions are free")                                            \
  X(T, dry_window, 0, INT, "N", "0", 0, 1 << 30, "how many tokens it looks back at; 0: all")                                        \
  X(T, dry_breaker, 0, LIST, "TEXT", NULL, 0, 0, "no repetition goes through tokens with this text; else newline : \" *")           \
  X(T, logit_bias, 0, LIST, "ID=X", NULL, 0, 0, "add X to the logit of a token; may be given again")                                \
  X(T, seed, 0, INT, "N", NULL, 0, 0, "the same seed gives the same answer; else a new one each time")                              \
  X(T, logprobs, 0, INT, "N", NULL, 0, RUN_TOP_MAX, "the log-probability of each token, and the N likeliest in its place: in --json, else on standard error") \
  X(T, json, 'j', FLAG, "", NULL, 0, 0, "print an object: text, reason, ids, counts, times, seed")                                  \
  X(T, quiet, 'q', FLAG, "", NULL, 0, 0, "no progress on standard error where that is a terminal and a prompt takes long")             \
  X(T, verbose, 'v', FLAG, "", NULL, 0, 0, "a line of figures on standard error")                                                   \
  MODEL_OPT_ROWS(X, T)
typedef struct RunOpts { RUN_ROWS(OPT_FIELD_, RunOpts) } RunOpts;

/* Everything one call of the command has open. */
typedef struct Run {
  Arena *arena;
  const RunOpts *o;            /* of the command line; with --request also of it */
  const OptRow *rows; size_t n_rows; int argc; char **argv; /* what o was read from */
  const char *name;            /* as the user named it */
  Model *model;
  TextVocab *vocab;
  RunSession *session;
  RunSampling sampling;
  RunStops stops;
  const char *template;        /* given instead of the model's own; NULL: none */
  bool raw;
  bool dims;                   /* what is shown of reasoning is dimmed */
  TextChat *chat;              /* NULL in raw mode */
  json_t *special, *request, *tools, *functions; /* request: --request's or NULL; tools: as the user gave them, NULL: none; functions: what of them can be called */
  TextToolChoice choice;
  bool holds_calls;            /* the grammar is to be one of calls, which the template decides on */
  Grammar *grammar;            /* NULL: any answer */
  GrammarVocab *grammar_vocab;
  int n_top;                   /* log-probabilities of the likeliest tokens; -1: none */
  bool has_text;               /* the grammar is one of text and calls */
} Run;

/* What came of one question. */
typedef struct RunOutcome { RunResult result; TextCollect collect; size_t n_prompt; } RunOutcome;
void cmd_run_outcome_free(RunOutcome *o);

/* run_setup.c: two steps, the second of which reads no weights either: they wait for the first answer. cmd_run_close, after a failure too. */
Err *cmd_run_read(Run *r);                     /* the options' own words and the files they name */
Err *cmd_run_open(Run *r, bool is_chat);       /* the model, and what depends on it */
void cmd_run_close(Run *r);
json_t *cmd_run_body(const Run *r, json_t *messages); /* a new request with the options' tools and thinking; borrows messages, NULL: --request's */

/* run_request.c: r->request is there; its settings come into r->o. */
Err *cmd_run_request_options(Run *r);

/* run.c */
Err *cmd_run_ask(const Run *r, const json_t *body, RunOutcome *out);  /* prints the answer to a request as it comes */
void cmd_run_tell(const Run *r, const RunOutcome *o);                 /* what --json and --verbose want, and warnings */
Err *cmd_run_message_add(json_t *messages, const char *role, const char *text, size_t n);

/* run_logprobs.c */
json_t *cmd_logprobs_json(const Run *r, const RunResult *a);          /* as OpenAI's choices[].logprobs; a new reference */
void cmd_logprobs_print(const Run *r, const RunResult *a, FILE *f);   /* a line for each token */

/* run_lines.c */
Err *cmd_lines_open(void);                                           /* once, before the first line: from here on Ctrl-C waits for a line or an answer */
void cmd_lines_close(void);
typedef enum CmdLine { LINE_READ, LINE_END, LINE_DROPPED, LINE_INTERRUPTED } CmdLine; /* END: Ctrl-D; DROPPED: Ctrl-C with something typed; INTERRUPTED: with nothing, or it is not known */
CmdLine cmd_lines_read(const char *prompt, Str *out);                 /* appends a line, or a paste of several; what out gained is worth nothing but with LINE_READ */

/* run_chat.c */
Err *cmd_run_talk(const Run *r);
#endif
