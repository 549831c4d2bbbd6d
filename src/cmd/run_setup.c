/* The options of `lumen run` to settings: sampling, stops, grammar, tools, thinking. In: parsed options. Out: a Run with all of it open. What is
   wrong is told as early as it can be: the options, the files they name, what the model's files say, and only then its weights. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "base/json.h"
#include "cmd/run_cmd.h"
#include "model/vocab.h"

enum { MAX_FILE_BYTES = 64 << 20 };

static uint64_t seed_new(void) {
  uint32_t seed;
  if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) seed = (uint32_t)run_random((uint64_t)os_now_ns(), getpid());
  return seed;
}

static bool id_parse(const char *text, char **end, int32_t *out) {
  errno = 0;
  long id = strtol(text, end, 10);
  if (*end == text || errno || id < 0 || id > INT32_MAX) return false;
  *out = (int32_t)id;
  return true;
}

static Err *biases_read(Run *r) {
  const OptList *list = &r->o->logit_bias;
  RunBias *bias = ARENA_ARRAY(r->arena, RunBias, (size_t)list->n);
  for (int i = 0; i < list->n; i++) {
    char *eq, *end;
    bool ok = id_parse(list->p[i], &eq, &bias[i].id) && *eq == '=';
    if (ok) bias[i].add = strtof(eq + 1, &end), ok = end > eq + 1 && !*end;
    if (!ok) return err_new(ERR_USAGE, "--logit-bias: '%s', expected ID=X, a token id and a number", list->p[i]);
  }
  r->sampling.bias = bias;
  r->sampling.n_biases = list->n;
  return NULL;
}

static Err *stops_read(Run *r) {
  const OptList *list = &r->o->stop_token;
  int32_t *ids = ARENA_ARRAY(r->arena, int32_t, (size_t)list->n);
  for (int i = 0; i < list->n; i++) {
    char *end;
    if (!id_parse(list->p[i], &end, &ids[i]) || *end) return err_new(ERR_USAGE, "--stop-token: '%s', expected a token id", list->p[i]);
  }
  r->stops = (RunStops){.stop = r->o->stop.p, .n_stops = r->o->stop.n, .stop_id = ids, .n_stop_ids = list->n, .max_tokens = r->o->max_tokens == OPT_INT_NONE ? -1 : r->o->max_tokens};
  TextStops t;
  TRY(cmd_fault_of_usage(text_stops_init(&t, r->stops.stop, r->stops.n_stops))); /* so that a wrong one is told now; a request's own are known to be right */
  text_stops_free(&t);
  return NULL;
}

static Err *ends_get(Run *r) {
  int32_t *ends;
  TRY(run_ends(r->arena, model_weights(r->model), r->vocab, r->template, &ends, &r->stops.n_ends));
  r->stops.end = ends;
  for (int i = 0; i < r->stops.n_stop_ids; i++)
    if (r->stops.stop_id[i] >= model_n_vocab(r->model)) return err_new(ERR_USAGE, "--stop-token: %d, expected 0 to %d", r->stops.stop_id[i], (int)model_n_vocab(r->model) - 1);
  return NULL;
}

static Err *sampling_get(Run *r) {
  static const char *const breakers[] = {"\n", ":", "\"", "*"};
  const RunOpts *o = r->o;
  RunSampling p = run_sampling_default(model_weights(r->model));
  if (!isnan(o->temperature)) p.temperature = o->temperature;
  if (o->top_k != OPT_INT_NONE) p.top_k = o->top_k;
  if (!isnan(o->top_p)) p.top_p = o->top_p;
  if (!isnan(o->min_p)) p.min_p = o->min_p;
  if (!isnan(o->repeat_penalty)) p.repeat_penalty = o->repeat_penalty;
  p.typical_p = o->typical_p;
  p.top_n_sigma = o->top_n_sigma;
  p.xtc_probability = o->xtc_probability;
  p.xtc_threshold = o->xtc_threshold;
  p.repeat_window = o->repeat_window;
  p.presence_penalty = o->presence_penalty;
  p.frequency_penalty = o->frequency_penalty;
  p.dry_multiplier = o->dry_multiplier;
  p.dry_base = o->dry_base;
  p.dry_allowed_length = o->dry_allowed_length;
  p.dry_window = o->dry_window;
  if (p.dry_multiplier > 0)
    p.dry_breaks = run_dry_breaks(r->arena, r->vocab, model_n_vocab(r->model), o->dry_breaker.n ? o->dry_breaker.p : breakers, o->dry_breaker.n ? o->dry_breaker.n : (int)COUNT_OF(breakers));
  p.seed = o->seed == OPT_INT_NONE ? seed_new() : (uint64_t)o->seed;
  p.bias = r->sampling.bias;
  p.n_biases = r->sampling.n_biases;
  r->sampling = p;
  return run_sampling_check(&p, model_n_vocab(r->model));
}

/* The likeliest tokens that are wanted, by the option or the request: "logprobs": true, "top_logprobs": N. */
static Err *logprobs_get(Run *r) {
  const json_t *wants = json_object_get(r->request, "logprobs"), *top = json_object_get(r->request, "top_logprobs");
  r->n_top = r->o->logprobs != OPT_INT_NONE ? (int)r->o->logprobs : -1;
  if (r->n_top >= 0 || !json_is_true(wants)) return NULL;
  json_int_t n = top && !json_is_null(top) ? json_is_integer(top) ? json_integer_value(top) : -1 : 0;
  if (n < 0 || n > RUN_TOP_MAX) return err_new(ERR_FORMAT, "top_logprobs: expected a number from 0 to %d", RUN_TOP_MAX);
  r->n_top = (int)n;
  return NULL;
}

/* The template that the options give. Broken ones are refused before a model is loaded. */
static Err *template_read(Run *r) {
  const RunOpts *o = r->o;
  const char *name = o->chat_template_file ? os_input_name(o->chat_template_file) : "--chat-template";
  Str s = {0};
  TextTemplate *t;
  if (!o->chat_template && !o->chat_template_file) return NULL;
  if (o->chat_template && o->chat_template_file) return err_new(ERR_USAGE, "--chat-template and --chat-template-file: one of them");
  if (o->raw) return err_new(ERR_USAGE, "--chat-template%s: --raw leaves the chat template out", o->chat_template ? "" : "-file");
  if (o->chat_template && !strchr(o->chat_template, '{')) return err_new(ERR_USAGE, "--chat-template: '%s', expected the text of a Jinja template (--chat-template-file FILE reads one)", o->chat_template);
  if (o->chat_template) str_add(&s, o->chat_template);
  else TRY(os_read_input(o->chat_template_file, MAX_FILE_BYTES, &s));
  r->template = arena_dup_n(r->arena, s.n ? s.p : "", s.n);
  Err *e = s.n && memchr(s.p, 0, s.n) ? err_new(ERR_FORMAT, "a NUL byte in a template") : text_template_parse(r->arena, r->template, s.n, &t);
  str_free(&s);
  if (!e && !r->template[strspn(r->template, " \t\r\n")]) e = err_new(ERR_FORMAT, "is empty, expected the text of a Jinja template");
  return err_wrap(e, "%s", name);
}

/* A base model has no template: its prompts are continued as they are. */
static Err *template_open(Run *r, bool is_chat) {
  const RunOpts *o = r->o;
  r->raw = o->raw;
  if (r->raw) return NULL;
  Err *e = model_chat_open(r->arena, model_weights(r->model), r->template, &r->chat, &r->special);
  if (!e || err_kind(e) != ERR_NOT_FOUND) return e;
  const char *wants = is_chat ? "a chat" : o->system ? "--system" : o->request ? "--request" : o->tools ? "--tools" : NULL;
  if (wants) {
    err_free(e);
    return err_new(ERR_USAGE, "%s wants a chat template, and %s has none: it continues a prompt as it is (--chat-template-file FILE gives it one)", wants, r->name);
  }
  cmd_tell("%s has no chat template; the prompt is continued as it is", r->name);
  err_free(e);
  r->raw = true;
  return NULL;
}

static Err *think_word(const char *how) {
  static const char *const words[] = {"on", "off", "low", "medium", "high", "none", "minimal", "xhigh", "max"}; /* the last four: efforts that some templates know */
  for (size_t i = 0; i < COUNT_OF(words); i++) if (!how || !strcmp(how, words[i])) return NULL;
  return err_new(ERR_USAGE, "--think: '%s', expected on, off, low, medium or high (none, minimal, xhigh, max where a template knows them)", how);
}

/* What nothing can come of is said, not passed over in silence. */
static void thinking_check(const Run *r) {
  const char *how = r->o->think;
  if (r->o->think_budget != OPT_INT_NONE && !(r->chat && r->chat->reason))
    cmd_tell("--think-budget changes nothing: %s", r->raw ? "no chat template is used" : "the chat template knows no reasoning");
  if (!how || !strcmp(how, "off")) return;
  bool is_on = !strcmp(how, "on"), has_reason = r->chat && r->chat->reason;
  TextThinking t = {.mode = is_on ? TEXT_THINK_ON : TEXT_THINK_DEFAULT, .effort = is_on ? NULL : how};
  json_t *kwargs = json_object();
  if (r->chat) text_reason_kwargs(r->chat->text, r->chat->n, &t, kwargs);
  if (!json_object_size(kwargs) && !(is_on && has_reason))
    cmd_tell("--think %s changes nothing: %s", how, r->raw ? "no chat template is used" : "the chat template has no variable for it");
  json_decref(kwargs);
}

/* ---- grammar and tools ---- */

/* The option's choice, else the request's. */
static Err *choice_read(const Run *r, TextToolChoice *out) {
  const char *how = r->o->tool_choice;
  bool is_word = !how || !strcmp(how, "auto") || !strcmp(how, "none") || !strcmp(how, "required");
  json_t *body = r->request ? json_copy(r->request) : json_object();
  if (how) json_object_set_new(body, "tool_choice", json_string(is_word ? how : "required"));
  Err *e = cmd_fault_of_data(text_request_tool_choice(body, out)); /* the option's words are right */
  if (!e && !is_word) *out = (TextToolChoice){.mode = TEXT_TOOLS_ONE, .only = how};
  if (!e && r->o->one_call) out->many = false;
  json_decref(body);
  return e;
}

static Err *calls_open(Run *r) {
  const TextToolChoice *choice = &r->choice;
  bool is_auto = choice->mode == TEXT_TOOLS_AUTO;
  TextCallsOptions calls = {.tools = r->functions, .only = choice->only, .many = choice->many, .may_answer = is_auto, .flags = r->o->strict ? 0 : GRAMMAR_RELAX};
  Str told = {0};
  Err *e = text_chat_calls_relaxed(r->chat, &calls, &r->grammar, &told);
  if (!r->o->tool_choice) e = cmd_fault_of_data(e);
  cmd_relaxed_tell(told.p);
  str_free(&told);
  r->has_text = is_auto;
  if (!e) cmd_relaxed_tell(grammar_warnings(r->grammar));
  TextReplyOptions options = {.tools = r->functions};
  TextReply *reply = text_reply_new(r->chat->syntax, r->chat->reason, &options);
  if (!e) e = grammar_vocab_new_with(r->vocab, cmd_keeps_marker, reply, &r->grammar_vocab);
  text_reply_free(reply);
  return e;
}

static Err *tools_read(Run *r) {
  const RunOpts *o = r->o;
  json_t *given = NULL;
  TRY(choice_read(r, &r->choice));
  TextToolMode mode = r->choice.mode;
  if (o->tools) {
    TRY(json_parse_input(o->tools, MAX_FILE_BYTES, &given));
    if (!json_is_array(given)) {
      json_decref(given);
      return err_new(ERR_FORMAT, "--tools %s: expected a JSON array of tools", o->tools);
    }
  } else given = json_incref(json_object_get(r->request, "tools"));
  if (mode == TEXT_TOOLS_NONE || (json_is_array(given) && !json_array_size(given))) json_decref(given), given = NULL;
  r->tools = given;
  if (r->tools && o->raw) return err_new(ERR_USAGE, "tools need the chat template that --raw leaves out");
  bool must_call = mode == TEXT_TOOLS_REQUIRED || mode == TEXT_TOOLS_ONE;
  if (!r->tools && (o->strict || o->one_call || must_call)) {
    const char *option = o->strict ? "--strict" : o->one_call ? "--one-call" : o->tool_choice ? "--tool-choice" : NULL; /* NULL: the request asks for them */
    return err_new(option ? ERR_USAGE : ERR_FORMAT, "%s: no tools are offered", option ? option : "tool_choice");
  }
  if (!r->tools) return NULL;
  const char *path = os_input_name(o->tools ? o->tools : o->request);
  TRY(cmd_fault_of_data(err_wrap(text_tools_normalise(r->tools, "tools", &r->functions), "%s", path)));
  size_t n = json_array_size(r->functions), n_given = json_array_size(r->tools);
  r->holds_calls = n && (mode != TEXT_TOOLS_AUTO || o->strict || !r->choice.many);
  if (!n && must_call) return err_new(ERR_FORMAT, "%s: tool choice: none of the tools is a function", path);
  if (n < n_given) cmd_tell("%s: %zu of %zu tools are no functions and left out", path, n_given - n, n_given);
  return NULL;
}

static Err *grammar_read(Run *r) {
  const RunOpts *o = r->o;
  int n = !!o->schema + !!o->regex + !!o->gbnf + o->json_object;
  if (n > 1) return err_new(ERR_USAGE, "--schema, --json-object, --regex and --gbnf: one of them");
  if (n && r->holds_calls) return err_new(ERR_USAGE, "--schema, --json-object, --regex and --gbnf do not go with calls that are enforced (--strict, --tool-choice)");
  if (o->schema) return cmd_schema_read(o->schema, 0, &r->grammar);
  if (o->gbnf) return cmd_gbnf_read(o->gbnf, &r->grammar);
  if (o->regex) return cmd_fault_of_usage(err_wrap(grammar_from_regex(o->regex, strlen(o->regex), &r->grammar), "--regex"));
  if (o->json_object) return grammar_from_json_object(0, &r->grammar);
  return r->request && !r->holds_calls ? cmd_fault_of_data(err_wrap(text_request_grammar(r->request, &r->grammar), "%s", os_input_name(o->request))) : NULL;
}

static Err *request_read(Run *r) {
  if (!r->o->request) return NULL;
  TRY(json_parse_input(r->o->request, MAX_FILE_BYTES, &r->request));
  if (json_is_array(r->request)) r->request = json_pack("{s:o}", "messages", r->request);
  if (!json_is_object(r->request)) return err_new(ERR_FORMAT, "%s: expected a request, or an array of messages", os_input_name(r->o->request));
  return cmd_run_request_options(r);
}

/* ---- the whole ---- */

Err *cmd_run_read(Run *r) {
  TRY(think_word(r->o->think));
  TRY(request_read(r));
  TRY(template_read(r));
  TRY(logprobs_get(r));
  TRY(stops_read(r));
  TRY(biases_read(r));
  TRY(tools_read(r));
  TRY(grammar_read(r));
  return r->grammar && grammar_is_empty(r->grammar) ? err_new(r->o->regex ? ERR_USAGE : ERR_FORMAT, "structured output: no text satisfies what is asked for") : NULL;
}

Err *cmd_run_open(Run *r, bool is_chat) {
  ModelOptions options = MODEL_OPTIONS(r->o);
  int n_unused;
  TRY(cmd_model_prepare(r->arena, r->name, &options, &r->model));
  const char *const *unused = model_unused(r->model, &n_unused);
  cmd_unused_tell(r->name, unused, n_unused);
  const Weights *w = model_weights(r->model);
  TRY(model_vocab_open(w, &r->vocab));
  cmd_vocab_tell(r->vocab);
  TRY(template_open(r, is_chat));
  thinking_check(r);
  TRY(sampling_get(r));
  TRY(ends_get(r));
  if (r->holds_calls) TRY(calls_open(r));
  else if (r->grammar) TRY(grammar_vocab_new(r->vocab, &r->grammar_vocab));
  r->dims = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
  return run_session_new(r->model, &r->session);
}

void cmd_run_close(Run *r) {
  run_session_free(r->session);
  grammar_free(r->grammar);
  grammar_vocab_free(r->grammar_vocab);
  json_decref(r->request);
  json_decref(r->tools);
  json_decref(r->functions);
  json_decref(r->special);
  text_vocab_free(r->vocab);
  model_close(r->model);
}

static void thinking_set(const char *how, json_t *body) {
  bool on = !strcmp(how, "on"), off = !strcmp(how, "off");
  if (on || off) json_object_set_new(body, "enable_thinking", json_boolean(on));
  else json_object_set_new(body, "reasoning_effort", json_string(how));
}

json_t *cmd_run_body(const Run *r, json_t *messages) {
  json_t *body = r->request ? json_copy(r->request) : json_object();
  if (messages) json_object_set(body, "messages", messages);
  json_object_del(body, "tools");
  if (r->tools) json_object_set(body, "tools", r->tools);
  if (r->o->think) thinking_set(r->o->think, body);
  return body;
}
