/* `lumen run MODEL [PROMPT]`: answers one prompt, or chats where there is no prompt and standard input is a terminal. Piped standard input is
   the prompt; beside a PROMPT it comes first, with a blank line between: `lumen run MODEL "Summarize this." < file`. Only the answer goes to
   standard output, always ended by a newline. The first Ctrl-C stops the answer, the second the program. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cmd/run_cmd.h"

static const OptRow RunOpts_rows[] = {RUN_ROWS(OPT_ROW_, RunOpts)};
enum { MAX_PROMPT_BYTES = 256 << 20 };

static volatile int interrupted;
static void on_interrupt(int sig) {
  (void)sig;
  interrupted = 1;
}

/* ---- what to ask ---- */

/* Standard input to its end, less one newline there. A pipe that says nothing for long is told of: it may have been inherited by mistake. */
static Err *stdin_read(Str *out) {
  struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
  if (poll(&p, 1, 2000) == 0) cmd_tell("waiting for the end of standard input (`< /dev/null` if nothing is to come)");
  TRY(err_wrap(os_read_all(stdin, MAX_PROMPT_BYTES, out), "standard input"));
  if (out->n && out->p[out->n - 1] == '\n') out->p[--out->n] = 0;
  return NULL;
}

/* What standard input is for: a prompt, unless an option reads a file of it. */
static bool is_piped(const OptRest *rest) {
  struct stat st;
  return !rest->stdin_by && !fstat(STDIN_FILENO, &st) && !isatty(STDIN_FILENO);
}

/* *chat: there is nothing to ask yet, and somebody to ask for it. */
static Err *prompt_find(const OptRest *rest, bool *chat) {
  *chat = rest->n_args < 2 && !is_piped(rest);
  if (!*chat) return NULL;
  if (rest->stdin_by) return err_new(ERR_USAGE, "no prompt: standard input is what %s reads", rest->stdin_by);
  return isatty(STDIN_FILENO) ? NULL : err_new(ERR_USAGE, "no prompt, and standard input is closed");
}

/* The operands behind MODEL, joined by blanks, after what is piped in. */
static Err *prompt_get(const OptRest *rest, Str *out, size_t *n_piped) {
  bool piped = is_piped(rest), given = rest->n_args > 1;
  if (piped) TRY(stdin_read(out));
  *n_piped = out->n;
  if (given && out->n) str_add(out, "\n\n");
  for (int i = 1; i < rest->n_args; i++) str_addf(out, "%s%s", i > 1 ? " " : "", rest->arg[i]);
  return given || out->n ? NULL : err_new(ERR_USAGE, "no prompt: neither an argument nor anything on standard input");
}

/* ---- asking ---- */

void cmd_run_outcome_free(RunOutcome *o) {
  run_result_free(&o->result);
  text_collect_free(&o->collect);
  *o = (RunOutcome){0};
}

/* Where an answer is being printed. */
typedef struct Printing { const Run *run; TextCollect *collect; bool is_dim, shows, has_shown; char last; int64_t t_ns; bool bar; } Printing;

static bool print(Printing *p, const char *text, size_t n) {
  if (n) p->last = text[n - 1];
  return fwrite(text, 1, n, stdout) == n && cmd_flush();
}

static void end_reasoning(Printing *p) {
  if (!p->has_shown) return;
  if (p->is_dim) fputs("\033[0m", stdout);
  fputs("\n\n", stdout);
  p->last = '\n';
  p->has_shown = p->is_dim = false;
}

static bool on_text(void *ctx, const char *text, size_t n) {
  Printing *p = ctx;
  if (p->run->o->json) return true;
  end_reasoning(p);
  return print(p, text, n);
}

/* A line for a call that is whole: its name and its arguments. */
static void call_print(Printing *p, const json_t *call) {
  const json_t *f = json_object_get(call, "function");
  json_t *args = json_loads(json_string_value(json_object_get(f, "arguments")), JSON_DECODE_ANY, NULL);
  json_t *line = json_pack("{s:O, s:O, s:o}", "id", json_object_get(call, "id"), "name", json_object_get(f, "name"), "arguments", args ? args : json_incref(json_object_get(f, "arguments")));
  char *text = json_dumps(line, 0);
  end_reasoning(p);
  if (p->last && p->last != '\n') putchar('\n');
  print(p, text, strlen(text));
  print(p, "\n", 1);
  free(text);
  json_decref(line);
}

/* Reasoning is printed where it is wanted, a call where it stands among the texts. */
static void on_event(void *ctx, const TextEvent *e) {
  Printing *p = ctx;
  text_collect_event(p->collect, e);
  if (e->kind == TEXT_EVENT_CALL_END && !e->is_broken && !p->run->o->json) call_print(p, json_array_get(p->collect->calls, json_array_size(p->collect->calls) - 1));
  if (e->kind != TEXT_EVENT_REASONING || !p->shows) return;
  if (!p->has_shown && p->run->dims) fputs("\033[2m", stdout), p->is_dim = true;
  p->has_shown = true;
  print(p, e->text, e->n);
}

static int32_t opener_of(const Run *r, const RunPrompt *p, const TextReply *reply) {
  const char *open = r->chat && r->chat->reason ? text_reason_opening(r->chat->reason) : "";
  size_t n = strcspn(open, "\n"), tail = MIN(p->text.n, (size_t)64);
  bool is_off = r->o->think && !strcmp(r->o->think, "off");
  if (!n || is_off || text_reply_is_reasoning(reply)) return -1;
  bool is_closed = memmem(p->text.p + p->text.n - tail, tail, open, n) != NULL; /* the template has written an empty block */
  return is_closed ? -1 : text_vocab_find(r->vocab, open, n);
}

/* End tokens that do not close reasoning. */
static int32_t *bars_of(const Run *r, int *n) {
  int32_t *bar = ARENA_ARRAY(r->arena, int32_t, (size_t)r->stops.n_ends + 1);
  const char *closing = r->chat && r->chat->reason ? text_reason_closing(r->chat->reason) : "";
  *n = 0;
  for (int i = 0; i < r->stops.n_ends; i++) {
    size_t k = 0;
    const char *p = text_vocab_spelling(r->vocab, r->stops.end[i], &k);
    if (r->stops.end[i] < model_n_vocab(r->model) && !(p && k && memmem(closing, strlen(closing), p, k))) bar[(*n)++] = r->stops.end[i];
  }
  return bar;
}

/* What closes an open block once the budget is spent. */
static Err *budget_make(const Run *r, TextIds *close, TextBudget *out) {
  bool is_off = r->o->think && !strcmp(r->o->think, "off");
  *out = (TextBudget){.max = r->o->think_budget != OPT_INT_NONE ? r->o->think_budget : is_off ? 0 : -1};
  if (out->max < 0 || !r->chat || !r->chat->reason) return NULL;
  const char *text = text_reason_closing(r->chat->reason);
  TRY(text_tokenize(r->vocab, text, strlen(text), 0, close));
  out->close = close->p;
  out->n_close = (int)close->n;
  return NULL;
}

/* How much of a long prompt is read: somebody looks at a still terminal. The line is gone before the answer begins. */
static void on_read(void *ctx, int64_t n_read, int64_t n) {
  enum { PATIENCE_NS = 500000000 };
  Printing *p = ctx;
  bool now = n_read < n && os_now_ns() - p->t_ns > PATIENCE_NS;
  if (now) cmd_progress("reading the prompt: %lld of %lld tokens", (long long)n_read, (long long)n);
  else if (p->bar) fputs("\r\033[K", stderr);
  p->bar = now;
}

/* Ctrl-C while an answer is made. The handler stands only meanwhile, and once: a second Ctrl-C ends the program. One that a chat put off counts at once. */
static Err *answer(const Run *r, const RunRequest *q, RunResult *out) {
  struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)}, old; /* text that is being written gets out */
  sigset_t set, mask;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  interrupted = 0;
  sigaction(SIGINT, &act, &old);
  pthread_sigmask(SIG_UNBLOCK, &set, &mask);
  Err *e = run_generate(r->session, q, out);
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  sigaction(SIGINT, &old, NULL);
  return e;
}

/* A prompt to an answer, streamed unless it goes into JSON. */
static Err *generate(const Run *r, const RunPrompt *p, RunOutcome *out) {
  Printing printing = {.run = r, .collect = &out->collect, .shows = !r->o->json && r->o->show_think};
  TextReplyOptions options = {.id_seed = run_random(r->sampling.seed, (int64_t)p->ids.n)}; /* the prompt grows: no two turns make one id */
  TextReply *reply = r->chat ? run_prompt_reply(r->chat, p, &options) : NULL;
  TextIds close = {0};
  TextBudget budget = {.max = -1};
  RunGuide *guide = NULL;
  RunGuideOptions guided = {.grammar = r->grammar, .vocab = r->grammar_vocab, .end = r->stops.end, .n_ends = r->stops.n_ends, .n_vocab = model_n_vocab(r->model),
                            .opener = reply ? opener_of(r, p, reply) : -1, .has_text = r->has_text};
  guided.bar = bars_of(r, &guided.n_bars);
  Err *e = r->grammar ? run_guide_new(&guided, &guide) : NULL;
  if (!e && reply) e = budget_make(r, &close, &budget);
  RunRequest q = {.vocab = r->vocab, .prompt = p->ids.p, .n_prompt = (int64_t)p->ids.n, .sampling = r->sampling, .stops = r->stops, .on_text = on_text, .ctx = &printing,
                  .guide = guide, .reply = reply, .on_event = on_event, .budget = reply ? &budget : NULL, .has_logprobs = r->n_top >= 0, .n_top = MAX(r->n_top, 0), .cancel = &interrupted};
  printing.t_ns = os_now_ns();
  if (!r->o->quiet && isatty(STDERR_FILENO)) q.on_read = on_read;
  if (!e) e = answer(r, &q, &out->result);
  if (printing.bar) fputs("\r\033[K", stderr);
  out->n_prompt = p->ids.n;
  if (!e && !r->o->json) {
    end_reasoning(&printing);
    if (printing.last != '\n' || out->result.reason == RUN_CANCELLED) putchar('\n');
    (void)cmd_flush();
  } else if (e) end_reasoning(&printing); /* nothing stays dimmed */
  run_guide_free(guide);
  text_reply_free(reply);
  text_ids_free(&close);
  return e;
}

Err *cmd_run_ask(const Run *r, const json_t *body, RunOutcome *out) {
  RunPrompt p;
  TRY(run_prompt_make(r->chat, r->vocab, TEXT_CHAT_COMPLETIONS, body, &p));
  Err *e = p.ids.n ? generate(r, &p, out) : err_new(ERR_FORMAT, "%s: the chat template makes an empty prompt of this", r->o->chat_template_file ? os_input_name(r->o->chat_template_file) : r->o->chat_template ? "--chat-template" : r->name);
  run_prompt_free(&p);
  return e;
}

static double per_second(int64_t n, int64_t t_ns) { return t_ns > 0 ? (double)n * 1e9 / (double)t_ns : 0; }

static void figures_print(const Run *r, const RunOutcome *o) {
  const RunResult *a = &o->result;
  const ModelTimes *t = model_times(r->model);
  int64_t n_read = (int64_t)o->n_prompt - a->n_reused, n_more = (int64_t)a->ids.n - 1; /* the first token comes with the prompt's logits */
  fprintf(stderr, "%zu prompt tokens (%lld held) in %.3f s, %.1f/s; %zu answer tokens in %.3f s, %.1f/s; ended because %s; seed %llu; %s, %s, %d thread%s, %d kernels in %.0f ms\n",
          o->n_prompt, (long long)a->n_reused, (double)a->prefill_ns * 1e-9, per_second(n_read, a->prefill_ns), a->ids.n, (double)a->decode_ns * 1e-9,
          per_second(MAX(n_more, (int64_t)0), a->decode_ns), run_reason_meaning(a->reason), (unsigned long long)r->sampling.seed, model_target(r->model),
          model_precision(r->model), model_n_threads(r->model), model_n_threads(r->model) == 1 ? "" : "s", t->n_kernels, (double)t->compile_ns * 1e-6);
}

static void json_print(const Run *r, const RunOutcome *outcome) {
  const RunResult *a = &outcome->result;
  json_t *list = json_array(), *message = text_collect_message(&outcome->collect), *calls = json_object_get(message, "tool_calls"), *reasoning = json_object_get(message, "reasoning_content");
  for (size_t i = 0; i < a->ids.n; i++) json_array_append_new(list, json_integer(a->ids.p[i]));
  json_t *o = json_pack("{s:s, s:o}", "model", r->name, "text", json_stringn(a->text.n ? a->text.p : "", a->text.n));
  if (reasoning) json_object_set(o, "reasoning", reasoning);
  if (calls) json_object_set(o, "tool_calls", calls);
  if (r->grammar) json_object_set_new(o, "whole", json_boolean(a->is_whole));
  if (a->logprob) json_object_set_new(o, "logprobs", cmd_logprobs_json(r, a));
  json_t *more = json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:I, s:o}", "reason", run_reason_name(a->reason), "prompt_tokens", (json_int_t)outcome->n_prompt,
                           "reused_tokens", (json_int_t)a->n_reused, "tokens", (json_int_t)a->ids.n, "prefill_seconds", (double)a->prefill_ns * 1e-9,
                           "decode_seconds", (double)a->decode_ns * 1e-9, "seed", (json_int_t)r->sampling.seed, "ids", list);
  CHECK(o && more, "the answer is no JSON");
  json_object_update(o, more);
  json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
  putchar('\n');
  json_decref(more);
  json_decref(message);
  json_decref(o);
}

void cmd_run_tell(const Run *r, const RunOutcome *o) {
  const RunResult *a = &o->result;
  if (r->o->json) json_print(r, o);
  else if (a->logprob) cmd_logprobs_print(r, a, stderr);
  const TextCollect *c = &o->collect;
  if (!r->o->json && a->reason == RUN_LENGTH && c->reasoning.n && !a->text.n && !json_array_size(c->calls))
    cmd_tell("all %zu tokens went into reasoning (%s--max-tokens gives it more, --think-budget ends it)", a->ids.n, r->o->show_think ? "" : "--show-think prints it, ");
  if (r->o->verbose) figures_print(r, o);
  else if (a->reason == RUN_CONTEXT)
    cmd_tell("stopped: the context is full with %lld tokens (--context)", (long long)model_context(r->model));
  if (r->grammar && !r->o->json && !a->is_whole && a->reason != RUN_CANCELLED)
    cmd_tell("the answer was cut (%s) before it was whole", run_reason_meaning(a->reason));
}

/* Where it is broken: n_piped bytes of it came from standard input, the rest from the command line. */
static Err *text_broken(const char *role, const char *text, size_t n, size_t n_piped) {
  size_t at = text_utf8_valid(text, n);
  bool piped = at < n_piped;
  size_t start = n_piped && !piped ? n_piped + 2 : 0; /* the blank line between */
  return err_new(piped ? ERR_FORMAT : ERR_USAGE, "%s%s text is no UTF-8: byte %zu is 0x%02x (--raw takes any bytes)", piped ? "standard input: the " : "the ", role, at - MIN(start, at), at < n ? (unsigned char)text[at] : 0);
}

static Err *message_add(json_t *messages, const char *role, const char *text, size_t n, size_t n_piped) {
  json_t *content = json_stringn(text, n);
  if (!content) return text_broken(role, text, n, n_piped);
  json_array_append_new(messages, json_pack("{s:s, s:o}", "role", role, "content", content));
  return NULL;
}

Err *cmd_run_message_add(json_t *messages, const char *role, const char *text, size_t n) { return message_add(messages, role, text, n, 0); }

static Err *ask_raw(const Run *r, const Str *prompt, RunOutcome *out) {
  RunPrompt p = {0};
  Err *e = run_raw_ids(r->vocab, prompt->n ? prompt->p : "", prompt->n, &p.ids);
  if (!e) e = generate(r, &p, out);
  run_prompt_free(&p);
  return e;
}

/* The messages of the options and the prompt; with --request NULL, where its own are all. */
static Err *messages_make(const Run *r, const Str *prompt, size_t n_piped, json_t **out) {
  json_t *messages = r->request ? NULL : json_array();
  Err *e = messages && r->o->system ? cmd_run_message_add(messages, "system", r->o->system, strlen(r->o->system)) : NULL;
  if (!e && messages) e = message_add(messages, "user", prompt->n ? prompt->p : "", prompt->n, n_piped);
  if (e) json_decref(messages);
  else *out = messages;
  return e;
}

static Err *answer_once(const Run *r, const Str *prompt, size_t n_piped, int *code) {
  RunOutcome a = {0};
  json_t *messages = NULL, *body = NULL;
  Err *e = r->raw ? ask_raw(r, prompt, &a) : messages_make(r, prompt, n_piped, &messages);
  if (!e && !r->raw) {
    body = cmd_run_body(r, messages);
    e = cmd_run_ask(r, body, &a);
    if (r->request) e = cmd_fault_of_data(err_wrap(e, "%s", os_input_name(r->o->request)));
  }
  if (!e) {
    cmd_run_tell(r, &a);
    if (a.result.reason == RUN_CANCELLED) *code = interrupted ? CMD_INTERRUPTED : CMD_FAILED;
  }
  json_decref(body);
  json_decref(messages);
  cmd_run_outcome_free(&a);
  return e;
}

/* What does not go together. */
static Err *options_check(const RunOpts *o, bool to_chat) {
  if (to_chat && (o->raw || o->json)) return err_new(ERR_USAGE, "--%s wants a prompt", o->raw ? "raw" : "json");
  if (o->raw && o->system) return err_new(ERR_USAGE, "--system needs the chat template that --raw leaves out");
  if (o->raw && o->request) return err_new(ERR_USAGE, "--request needs the chat template that --raw leaves out");
  if (o->request && o->system) return err_new(ERR_USAGE, "--system: the messages of --request may have one");
  return NULL;
}

static Err *run(Arena *a, const RunOpts *o, const OptRest *rest, int argc, char **argv, int *code) {
  Run r = {.arena = a, .o = o, .name = rest->arg[0], .rows = RunOpts_rows, .n_rows = COUNT_OF(RunOpts_rows), .argc = argc, .argv = argv};
  Str prompt = {0};
  size_t n_piped = 0;
  bool to_chat = false;
  Err *e = o->request && rest->n_args > 1 ? err_new(ERR_USAGE, "a prompt and --request: one of them") : NULL;
  if (!e && !o->request) e = prompt_find(rest, &to_chat);
  if (!e) e = options_check(o, to_chat);
  if (!e) e = cmd_run_read(&r);
  if (!e && !o->request && !to_chat) e = prompt_get(rest, &prompt, &n_piped);
  if (!e) e = cmd_run_open(&r, to_chat);
  if (!e) e = to_chat ? cmd_run_talk(&r) : answer_once(&r, &prompt, n_piped, code);
  cmd_run_close(&r);
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
      Err *e = run(a, &o, &rest, argc, argv, &code);
      if (e) code = cmd_fail(argv[0], e);
    }
  } else if (rest.help) {
    puts("\nHow a token is chosen, in this order; then the likeliest wins (--temperature 0) or one is drawn:");
    run_sampler_help(stdout);
  }
  arena_free(a);
  return code;
}
