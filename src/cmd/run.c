/* `lumen run MODEL [PROMPT]`: answers one prompt, or chats where there is no prompt and standard input is a terminal. Piped standard input is
   the prompt; beside a PROMPT it comes first, with a blank line between: `lumen run MODEL "Summarize this." < file`. Only the answer goes to
   standard output, always ended by a newline. The first Ctrl-C stops the answer, the second the program. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include "cmd/cmd.h"
#include "cmd/model_opts.h"
#include "model/vocab.h"
#include "run/run.h"

#define RUN_ROWS(X, T)                                                                                                              \
  X(T, system, 's', STR, "TEXT", NULL, 0, 0, "what the model is told before the conversation")                                      \
  X(T, raw, 'r', FLAG, "", NULL, 0, 0, "continue the prompt as it is: no chat template")                                            \
  X(T, max_tokens, 'n', INT, "N", NULL, 0, 1 << 30, "tokens of an answer at most; else until the context is full")                  \
  X(T, stop, 0, LIST, "TEXT", NULL, 0, 0, "end the answer before this text; may be given again")                                    \
  X(T, temperature, 'T', FLOAT, "X", NULL, 0, 100, "0: always the likeliest token; else the model's recommendation or 0.8")         \
  X(T, top_k, 0, INT, "N", NULL, 0, 1 << 30, "draw from the N likeliest tokens, 0: all; else recommended or 40")                    \
  X(T, top_p, 0, FLOAT, "X", NULL, 0, 1, "draw from the likeliest that reach X together, 1: all; else recommended or 0.95")         \
  X(T, min_p, 0, FLOAT, "X", NULL, 0, 1, "draw from those at least X times as likely as the best; else recommended or 0.05")        \
  X(T, repeat_penalty, 0, FLOAT, "X", NULL, 0.001, 1000, "divide the logits of recent tokens by X; else recommended or 1")          \
  X(T, repeat_window, 0, INT, "N", "64", 0, 1 << 30, "how many tokens are recent, prompt included; 0: all")                         \
  X(T, presence_penalty, 0, FLOAT, "X", "0", -1000, 1000, "take X off the logits of tokens in the answer")                          \
  X(T, frequency_penalty, 0, FLOAT, "X", "0", -1000, 1000, "take X off for each time a token is in the answer")                     \
  X(T, logit_bias, 0, LIST, "ID=X", NULL, 0, 0, "add X to the logit of a token; may be given again")                                \
  X(T, seed, 0, INT, "N", NULL, 0, 0, "the same seed gives the same answer; else a new one each time")                              \
  X(T, json, 'j', FLAG, "", NULL, 0, 0, "print an object: text, reason, ids, counts, times, seed")                                  \
  X(T, verbose, 'v', FLAG, "", NULL, 0, 0, "a line of figures on standard error")                                                   \
  MODEL_OPT_ROWS(X, T)
OPT_DEFINE(RunOpts, RUN_ROWS)
enum { MAX_PROMPT_BYTES = 256 << 20 };

/* Everything one call of the command has open. */
typedef struct Run {
  Arena *arena;
  const RunOpts *o;
  const char *name;            /* as the user named it */
  Model *model;
  TextVocab *vocab;
  RunSession *session;
  RunSampling sampling;
  RunStops stops;
  bool raw;
} Run;

static volatile int interrupted;
static void on_interrupt(int sig) {
  (void)sig;
  interrupted = 1;
}

/* ---- what to ask ---- */

/* Standard input to its end, less one newline there. A pipe that says nothing for long is told of: it may have been inherited by mistake. */
static Err *stdin_read(Str *out) {
  struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
  if (poll(&p, 1, 2000) == 0) fprintf(stderr, "lumen run: waiting for the end of standard input (`< /dev/null` if nothing is to come)\n");
  TRY(err_wrap(os_read_all(stdin, MAX_PROMPT_BYTES, out), "standard input"));
  if (out->n && out->p[out->n - 1] == '\n') out->p[--out->n] = 0;
  return NULL;
}

/* The operands behind MODEL, joined by blanks, after what is piped in. *chat: there is nothing to ask yet, and somebody to ask for it. */
static Err *prompt_get(const OptRest *rest, Str *out, bool *chat) {
  struct stat st;
  bool piped = !fstat(STDIN_FILENO, &st) && !isatty(STDIN_FILENO), given = rest->n_args > 1;
  if (piped) TRY(stdin_read(out));
  if (given && out->n) str_add(out, "\n\n");
  for (int i = 1; i < rest->n_args; i++) str_addf(out, "%s%s", i > 1 ? " " : "", rest->arg[i]);
  if (!given && piped && !out->n) return err_new(ERR_USAGE, "no prompt: neither an argument nor anything on standard input");
  if (!given && !piped && !isatty(STDIN_FILENO)) return err_new(ERR_USAGE, "no prompt, and standard input is closed");
  *chat = !given && !piped;
  return NULL;
}

/* ---- settings ---- */

static uint64_t seed_new(void) {
  uint32_t seed;
  if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) seed = (uint32_t)run_random((uint64_t)os_now_ns(), getpid());
  return seed;
}

static Err *biases_parse(Arena *a, const OptList *list, RunSampling *p) {
  RunBias *bias = ARENA_ARRAY(a, RunBias, (size_t)list->n);
  for (int i = 0; i < list->n; i++) {
    char *eq, *end;
    errno = 0;
    long id = strtol(list->p[i], &eq, 10);
    float add = *eq == '=' ? strtof(eq + 1, &end) : 0;
    if (eq == list->p[i] || *eq != '=' || end == eq + 1 || *end || errno || id < 0 || id > INT32_MAX)
      return err_new(ERR_USAGE, "--logit-bias: '%s', expected ID=X, a token id and a number", list->p[i]);
    bias[i] = (RunBias){(int32_t)id, add};
  }
  p->bias = bias;
  p->n_biases = list->n;
  return NULL;
}

static Err *sampling_get(Run *r) {
  const RunOpts *o = r->o;
  RunSampling p = run_sampling_default(model_weights(r->model));
  if (!isnan(o->temperature)) p.temperature = o->temperature;
  if (o->top_k != OPT_INT_NONE) p.top_k = o->top_k;
  if (!isnan(o->top_p)) p.top_p = o->top_p;
  if (!isnan(o->min_p)) p.min_p = o->min_p;
  if (!isnan(o->repeat_penalty)) p.repeat_penalty = o->repeat_penalty;
  p.repeat_window = o->repeat_window;
  p.presence_penalty = o->presence_penalty;
  p.frequency_penalty = o->frequency_penalty;
  p.seed = o->seed == OPT_INT_NONE ? seed_new() : (uint64_t)o->seed;
  TRY(biases_parse(r->arena, &o->logit_bias, &p));
  r->sampling = p;
  return NULL;
}

/* A base model has no template: its prompts are continued as they are. */
static Err *template_check(Run *r, bool chat) {
  const char *text;
  r->raw = r->o->raw;
  if (r->raw) return NULL;
  Err *e = model_chat_template(r->arena, model_weights(r->model), &text);
  if (!e || err_kind(e) != ERR_NOT_FOUND || chat || r->o->system) return e;
  fprintf(stderr, "lumen run: %s has no chat template; the prompt is continued as it is\n", r->name);
  err_free(e);
  r->raw = true;
  return NULL;
}

static Err *run_open(Run *r, bool chat) {
  ModelOptions options = MODEL_OPTIONS(r->o);
  int32_t *ends;
  int n_unused;
  TRY(cmd_model_open(r->arena, r->name, &options, &r->model));
  const char *const *unused = model_unused(r->model, &n_unused);
  cmd_unused_tell("run", r->name, unused, n_unused);
  const Weights *w = model_weights(r->model);
  TRY(model_vocab_open(w, &r->vocab));
  TRY(template_check(r, chat));
  TRY(sampling_get(r));
  TRY(run_ends(r->arena, w, r->vocab, &ends, &r->stops.n_ends));
  r->stops.end = ends;
  r->stops.stop = r->o->stop.p;
  r->stops.n_stops = r->o->stop.n;
  r->stops.max_tokens = r->o->max_tokens == OPT_INT_NONE ? -1 : r->o->max_tokens;
  return run_session_new(r->model, &r->session);
}

static void run_close(Run *r) {
  run_session_free(r->session);
  text_vocab_free(r->vocab);
  model_close(r->model);
}

/* ---- asking ---- */

static bool on_text(void *ctx, const char *text, size_t n) {
  (void)ctx;
  return fwrite(text, 1, n, stdout) == n && !fflush(stdout);
}

/* Ids to an answer, streamed unless it goes into JSON. The handler stands only meanwhile, and once: a second Ctrl-C ends the program. */
static Err *ask(const Run *r, const TextIds *ids, RunResult *out) {
  RunRequest q = {.vocab = r->vocab, .prompt = ids->p, .n_prompt = (int64_t)ids->n, .sampling = r->sampling, .stops = r->stops,
                  .on_text = r->o->json ? NULL : on_text, .cancel = &interrupted};
  struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND}, old;
  interrupted = 0;
  sigaction(SIGINT, &act, &old);
  Err *e = run_generate(r->session, &q, out);
  sigaction(SIGINT, &old, NULL);
  if (!e && !r->o->json && (!out->text.n || out->text.p[out->text.n - 1] != '\n' || out->reason == RUN_CANCELLED)) {
    putchar('\n');
    fflush(stdout);
  }
  return e;
}

static double per_second(int64_t n, int64_t t_ns) { return t_ns > 0 ? (double)n * 1e9 / (double)t_ns : 0; }

static void figures_print(const Run *r, const TextIds *ids, const RunResult *a) {
  const ModelTimes *t = model_times(r->model);
  int64_t n_read = (int64_t)ids->n - a->n_reused, n_more = (int64_t)a->ids.n - 1; /* the first token comes with the prompt's logits */
  fprintf(stderr, "%zu prompt tokens (%lld held) in %.3f s, %.1f/s; %zu answer tokens in %.3f s, %.1f/s; ended because %s; seed %llu; %s, %s, %d thread%s, %d kernels in %.0f ms\n",
          ids->n, (long long)a->n_reused, (double)a->prefill_ns * 1e-9, per_second(n_read, a->prefill_ns), a->ids.n, (double)a->decode_ns * 1e-9,
          per_second(MAX(n_more, (int64_t)0), a->decode_ns), run_reason_meaning(a->reason), (unsigned long long)r->sampling.seed, model_target(r->model),
          model_precision(r->model), model_n_threads(r->model), model_n_threads(r->model) == 1 ? "" : "s", t->n_kernels, (double)t->compile_ns * 1e-6);
}

static void json_print(const Run *r, const TextIds *ids, const RunResult *a) {
  json_t *list = json_array();
  for (size_t i = 0; i < a->ids.n; i++) json_array_append_new(list, json_integer(a->ids.p[i]));
  json_t *o = json_pack("{s:s, s:o, s:s, s:I, s:I, s:I, s:f, s:f, s:I, s:o}", "model", r->name, "text", json_stringn(a->text.n ? a->text.p : "", a->text.n),
                        "reason", run_reason_name(a->reason), "prompt_tokens", (json_int_t)ids->n, "reused_tokens", (json_int_t)a->n_reused,
                        "tokens", (json_int_t)a->ids.n, "prefill_seconds", (double)a->prefill_ns * 1e-9, "decode_seconds", (double)a->decode_ns * 1e-9,
                        "seed", (json_int_t)r->sampling.seed, "ids", list);
  CHECK(o, "the answer is no JSON");
  json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
  putchar('\n');
  json_decref(o);
}

static void tell(const Run *r, const TextIds *ids, const RunResult *a) {
  if (r->o->json) json_print(r, ids, a);
  if (r->o->verbose) figures_print(r, ids, a);
  else if (a->reason == RUN_CONTEXT)
    fprintf(stderr, "lumen run: stopped: the context is full with %lld tokens (--context)\n", (long long)model_context(r->model));
}

static Err *message_add(json_t *messages, const char *role, const char *text, size_t n) {
  json_t *content = json_stringn(text, n);
  if (!content) return err_new(ERR_USAGE, "the %s text is no UTF-8 (--raw takes any bytes)", role);
  json_array_append_new(messages, json_pack("{s:s, s:o}", "role", role, "content", content));
  return NULL;
}

static Err *system_add(const Run *r, json_t *messages) {
  return r->o->system ? message_add(messages, "system", r->o->system, strlen(r->o->system)) : NULL;
}

static Err *prompt_ids(const Run *r, const Str *prompt, TextIds *ids) {
  const char *text = prompt->n ? prompt->p : "";
  if (r->raw) return run_raw_ids(r->vocab, text, prompt->n, ids);
  json_t *messages = json_array();
  Err *e = system_add(r, messages);
  if (!e) e = message_add(messages, "user", text, prompt->n);
  if (!e) e = run_chat_ids(r->arena, model_weights(r->model), r->vocab, messages, ids);
  json_decref(messages);
  return e;
}

static Err *answer_once(const Run *r, const Str *prompt, int *code) {
  TextIds ids = {0};
  RunResult a = {0};
  Err *e = prompt_ids(r, prompt, &ids);
  if (!e) e = ask(r, &ids, &a);
  if (!e) {
    tell(r, &ids, &a);
    if (a.reason == RUN_CANCELLED) *code = interrupted ? CMD_INTERRUPTED : CMD_FAILED;
  }
  run_result_free(&a);
  text_ids_free(&ids);
  return e;
}

/* ---- chat ---- */

/* One message: a line, or lines between two lines of three quotes. False: the input ended. */
static bool message_read(Str *out) {
  char *line = NULL;
  size_t cap = 0;
  ssize_t n;
  bool block = false, whole = false;
  fputs("> ", stderr);
  while (!whole && (n = getline(&line, &cap, stdin)) >= 0) {
    if (n && line[n - 1] == '\n') line[--n] = 0;
    bool quotes = !strcmp(line, "\"\"\"");
    if (quotes) whole = block, block = true;
    else if (block) str_add_n(out, line, (size_t)n), str_add_c(out, '\n');
    else str_add_n(out, line, (size_t)n), whole = true;
    if (!whole) fputs(". ", stderr);
  }
  free(line);
  return whole;
}

/* The answer to the conversation, added to it. A message the model cannot take is taken back, and the conversation goes on. */
static Err *chat_turn(const Run *r, json_t *messages, const Str *text) {
  TextIds ids = {0};
  RunResult a = {0};
  Arena *arena = arena_new("turn");
  Err *e = message_add(messages, "user", text->p, text->n);
  bool added = !e;
  if (!e) e = run_chat_ids(arena, model_weights(r->model), r->vocab, messages, &ids);
  if (!e) e = ask(r, &ids, &a);
  if (!e) tell(r, &ids, &a);
  if (!e) e = message_add(messages, "assistant", a.text.n ? a.text.p : "", a.text.n);
  if (e && added) json_array_remove(messages, json_array_size(messages) - 1);
  if (e && (err_kind(e) == ERR_LIMIT || err_kind(e) == ERR_USAGE)) {
    fprintf(stderr, "%s; /clear starts afresh\n", err_text(e));
    err_free(e);
    e = NULL;
  }
  run_result_free(&a);
  text_ids_free(&ids);
  arena_free(arena);
  return e;
}

/* A slash and one word of letters, which looks like a command: it was not meant for the model. A path or a sentence is. */
static bool no_command(const char *line) {
  if (*line != '/') return false;
  size_t n = strspn(line + 1, "abcdefghijklmnopqrstuvwxyz?");
  return n && !line[1 + n];
}

/* Texts are UTF-8: the terminal's backspace shall take whole characters, which not every terminal is told (those of containers). */
static void erase_whole_characters(void) {
  struct termios t;
  if (tcgetattr(STDIN_FILENO, &t) || t.c_iflag & IUTF8) return;
  t.c_iflag |= IUTF8;
  tcsetattr(STDIN_FILENO, TCSANOW, &t);
}

static Err *chat(const Run *r) {
  json_t *messages = json_array();
  Str text = {0};
  fprintf(stderr, "%s; /exit ends, /clear starts afresh, \"\"\" begins and ends a message of several lines\n", r->name);
  Err *e = system_add(r, messages);
  erase_whole_characters();
  while (!e) {
    str_clear(&text);
    if (!message_read(&text)) {
      fputc('\n', stderr);
      break;
    }
    if (!text.n) continue;
    if (!strcmp(text.p, "/exit") || !strcmp(text.p, "/bye") || !strcmp(text.p, "/quit")) break;
    if (!strcmp(text.p, "/clear")) {
      json_array_clear(messages);
      e = system_add(r, messages);
    } else if (no_command(text.p)) fprintf(stderr, "no command %s; /exit ends, /clear starts afresh\n", text.p);
    else e = chat_turn(r, messages, &text);
  }
  str_free(&text);
  json_decref(messages);
  return e;
}

static Err *run(Arena *a, const RunOpts *o, const OptRest *rest, int *code) {
  Run r = {.arena = a, .o = o, .name = rest->arg[0]};
  Str prompt = {0};
  bool to_chat;
  Err *e = prompt_get(rest, &prompt, &to_chat);
  if (!e && to_chat && (o->raw || o->json)) e = err_new(ERR_USAGE, "--%s wants a prompt", o->raw ? "raw" : "json");
  if (!e && o->raw && o->system) e = err_new(ERR_USAGE, "--system needs the chat template that --raw leaves out");
  if (!e) e = run_open(&r, to_chat);
  if (!e) e = to_chat ? chat(&r) : answer_once(&r, &prompt, code);
  run_close(&r);
  str_free(&prompt);
  return e;
}

int cmd_run(int argc, char **argv) {
  Arena *a = arena_new("run");
  RunOpts o;
  OptRest rest;
  int code = CMD_OK;
  if (cmd_options(a, RunOpts_rows, COUNT_OF(RunOpts_rows), argc, argv, &o, &rest, &code)) {
    if (!rest.n_args) code = cmd_misused(argv[0], "no model named; `lumen list --all` shows names");
    else {
      Err *e = run(a, &o, &rest, &code);
      if (e) code = cmd_fail(argv[0], e);
    }
  } else if (rest.help) {
    puts("\nHow a token is chosen, in this order; then the likeliest wins (--temperature 0) or one is drawn:");
    run_sampler_help(stdout);
  }
  arena_free(a);
  return code;
}
