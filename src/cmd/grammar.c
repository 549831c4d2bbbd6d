/* `lumen grammar`: a JSON Schema, a GBNF grammar, a regular expression, or the calls of a chat template, compiled as structured output would, and
   tried on texts, one a line of standard input (of calls each a JSON string). --test prints accept or reject for each; --mask-bench takes the accepted ones token by token and times the masks.
   Without either it says how large the grammar is and how long it took. */
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "cmd/cmd.h"
#include "text/reply.h"

#define ROWS(X, T)                                                                                                                        \
  X(T, schema,       0, IN,   "FILE", NULL, 0, 0, "a JSON Schema")                                                                        \
  X(T, gbnf,         0, IN,   "FILE", NULL, 0, 0, "a GBNF grammar")                                                        \
  X(T, regex,        0, STR,  "RE",   NULL, 0, 0, "a regular expression for the whole text")                                              \
  X(T, template,     0, IN,   "FILE", NULL, 0, 0, "with --tools: calls as this chat template writes them; texts are JSON strings") \
  X(T, tools,        0, IN,   "FILE", NULL, 0, 0, "a JSON array of functions")                                                           \
  X(T, answer,       0, FLAG, "",     NULL, 0, 0, "text and calls; else calls only")                                                      \
  X(T, one_call,     0, FLAG, "",     NULL, 0, 0, "one call at most")                                                                     \
  X(T, test,         0, FLAG, "",     NULL, 0, 0, "print accept or reject for each line")                                                 \
  X(T, as_generated, 0, FLAG, "",     NULL, 0, 0, "accept only what would be generated: properties in the schema's order, names in one spelling, integers without a point") \
  X(T, compact,      0, FLAG, "",     NULL, 0, 0, "no white space between JSON tokens")                                                   \
  X(T, relax,        0, FLAG, "",     NULL, 0, 0, "leave out what cannot be enforced, with a warning")                                    \
  X(T, mask_bench,   0, FLAG, "",     NULL, 0, 0, "time compiling and the masks along the accepted texts, in processor time")                                \
  X(T, tokenizer,    0, STR,  "PATH", NULL, 0, 0, "a tokenizer file, a folder that holds one, or a model file")
OPT_DEFINE(GrammarOpts, ROWS)

enum { INPUT_MAX = 64 << 20 };

bool cmd_keeps_marker(void *reply, const char *spelling, size_t n) { return text_reply_has_marker(reply, spelling, n); }

/* The calls of a template's tools; reply: NULL, or one that knows their markers. */
static Err *calls_compile(Arena *a, const GrammarOpts *o, Grammar **out, TextReply **reply) {
  Str text = {0};
  TextChat *chat;
  json_t *js = NULL, *tools = NULL;
  Err *e = os_read_input(o->template, INPUT_MAX, &text);
  if (!e) e = err_wrap(text_chat_new(a, text.n ? text.p : "", text.n, NULL, &chat), "%s", os_input_name(o->template));
  if (!e) e = json_parse_input(o->tools, INPUT_MAX, &js);
  if (!e) e = text_tools_normalise(js, "tools", &tools);
  if (!e && !tools) e = err_new(ERR_USAGE, "%s: no function is offered", os_input_name(o->tools));
  Str told = {0};
  if (!e) e = text_chat_calls_relaxed(chat, &(TextCallsOptions){.tools = tools, .many = !o->one_call, .may_answer = o->answer, .flags = (o->compact ? GRAMMAR_COMPACT : 0) | (o->relax ? GRAMMAR_RELAX : 0)}, out, &told);
  cmd_relaxed_tell(told.p);
  str_free(&told);
  if (!e) *reply = text_reply_new(chat->syntax, chat->reason, &(TextReplyOptions){.tools = tools}); /* asked for its markers only */
  str_free(&text);
  json_decref(js);
  json_decref(tools);
  return e;
}

Err *cmd_gbnf_read(const char *path, Grammar **out) {
  Str s = {0};
  Err *e = os_read_input(path, INPUT_MAX, &s);
  if (!e) e = err_wrap(grammar_from_gbnf(s.n ? s.p : "", s.n, out), "%s", os_input_name(path));
  str_free(&s);
  return e;
}

Err *cmd_schema_read(const char *path, unsigned flags, Grammar **out) {
  json_t *js;
  TRY(json_parse_input(path, INPUT_MAX, &js));
  Err *e = grammar_from_schema(js, flags, out);
  json_decref(js);
  return err_wrap(e, "%s", os_input_name(path));
}

static Err *compile(const GrammarOpts *o, Grammar **out) {
  if (o->regex) return cmd_fault_of_usage(err_wrap(grammar_from_regex(o->regex, strlen(o->regex), out), "--regex"));
  if (o->gbnf) return cmd_gbnf_read(o->gbnf, out);
  return cmd_schema_read(o->schema, (o->as_generated ? 0 : GRAMMAR_ANY_ORDER) | (o->compact ? GRAMMAR_COMPACT : 0) | (o->relax ? GRAMMAR_RELAX : 0), out);
}

typedef struct Times { double *us; int n, cap; } Times;

static Err *test_text(GrammarMatcher *m, const char *p, size_t n, bool *ok) {
  GrammarState *s = grammar_state_start(m), *next;
  Err *e = grammar_state_accept(s, p, n, &next);
  if (!e) {
    *ok = next && grammar_state_may_end(next);
    grammar_state_unref(next);
  }
  grammar_state_unref(s);
  return e;
}

/* Along one text: the mask before each token, which must hold the token. Times are this thread's: others on the machine do not count. Asking for
   one costs some 0.3 microseconds, which the figures hold. */
static Err *bench_text(Arena *a, GrammarMatcher *m, const TextVocab *v, const GrammarVocab *gv, unsigned flags, const char *p, size_t n, Times *t) {
  TextIds ids = {0};
  uint64_t *mask = arena_alloc_array(a, grammar_vocab_mask_words(gv) + 1, sizeof *mask);
  GrammarState *s = grammar_state_start(m), *next = NULL;
  Err *e = text_tokenize(v, p, n, flags, &ids);
  for (size_t i = 0; !e && i < ids.n; i++) {
    int64_t start = os_thread_cpu_ns();
    e = grammar_state_mask(s, mask);
    PUSH(a, t->us, t->n, t->cap, (double)(os_thread_cpu_ns() - start) / 1e3);
    if (!e && !(mask[ids.p[i] / 64] >> (ids.p[i] % 64) & 1)) e = err_new(ERR_FORMAT, "token %zu of the text, id %d, is not in its mask", i, ids.p[i]);
    if (!e) e = grammar_state_accept_token(s, ids.p[i], &next);
    if (!e && !next) e = err_new(ERR_FORMAT, "token %zu of the text, id %d, is in the mask but not accepted", i, ids.p[i]);
    if (!e) {
      grammar_state_unref(s);
      s = next;
    }
  }
  grammar_state_unref(s);
  text_ids_free(&ids);
  return e;
}

static int double_order(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return a < b ? -1 : a > b;
}

static void size_print(double compile_ms, GrammarSize size) { printf("compile_ms %.3f\nrules %d\nstates %d\nedges %d\n", compile_ms, size.n_rules, size.n_states, size.n_edges); }

static void bench_print(Times *t, double vocab_ms) {
  double sum = 0;
  for (int i = 0; i < t->n; i++) sum += t->us[i];
  if (t->n) qsort(t->us, (size_t)t->n, sizeof *t->us, double_order);
  printf("vocab_ms %.1f\nmasks %d\n", vocab_ms, t->n);
  if (t->n) printf("mask_mean_us %.2f\nmask_median_us %.2f\nmask_p99_us %.2f\nmask_max_us %.2f\n", sum / t->n, t->us[t->n / 2], t->us[t->n * 99 / 100], t->us[t->n - 1]);
}

static Err *each_line(Arena *a, const GrammarOpts *o, GrammarMatcher *m, const TextVocab *v, const GrammarVocab *gv, Times *t) {
  Str in = {0};
  Err *e = err_wrap(os_read_all(stdin, INPUT_MAX, &in), "standard input");
  int line = 0;
  for (size_t at = 0; !e && at < in.n;) {
    const char *p = in.p + at, *nl = memchr(p, '\n', in.n - at);
    size_t n = nl ? (size_t)(nl - p) : in.n - at;
    bool ok;
    at += n + 1;
    line++;
    while (n && (p[n - 1] == '\r' || (o->schema && (p[n - 1] == ' ' || p[n - 1] == '\t')))) n--;
    while (o->schema && n && (*p == ' ' || *p == '\t')) { p++; n--; }
    json_t *text = NULL;
    if (o->template) e = err_wrap(json_parse_text(p, n, n + 1, "a JSON string", &text), "standard input, line %d", line);
    if (!e && text && !json_is_string(text)) e = err_new(ERR_FORMAT, "standard input, line %d: expected a JSON string", line);
    if (!e && text) p = json_string_value(text), n = json_string_length(text);
    if (!e) e = test_text(m, p, n, &ok);
    if (!e && o->test) puts(ok ? "accept" : "reject");
    if (!e && ok && gv) e = bench_text(a, m, v, gv, o->template ? 0 : TEXT_PLAIN, p, n, t);
    json_decref(text);
  }
  str_free(&in);
  return e;
}

static Err *options_check(const GrammarOpts *o, const OptRest *rest) {
  if (rest->n_args) return err_new(ERR_USAGE, "takes no operand, got \"%s\"", rest->arg[0]);
  if (!!o->schema + !!o->gbnf + !!o->regex + !!o->template != 1) return err_new(ERR_USAGE, "takes one of --schema, --gbnf, --regex and --template");
  if (!o->template != !o->tools) return err_new(ERR_USAGE, "--template and --tools go together");
  if (o->mask_bench != (o->tokenizer != NULL)) return err_new(ERR_USAGE, "--mask-bench and --tokenizer go together");
  if (rest->stdin_by && (o->test || o->mask_bench)) return err_new(ERR_USAGE, "%s -: standard input holds the texts", rest->stdin_by);
  if (o->test && o->mask_bench) return err_new(ERR_USAGE, "--test and --mask-bench: one of them");
  if (!o->template && (o->answer || o->one_call)) return err_new(ERR_USAGE, "--%s goes with --template", o->answer ? "answer" : "one-call");
  if (!o->schema && o->as_generated) return err_new(ERR_USAGE, "--as-generated goes with --schema");
  if ((o->gbnf || o->regex) && (o->compact || o->relax)) return err_new(ERR_USAGE, "--%s goes with --schema and --template", o->compact ? "compact" : "relax");
  return NULL;
}

static Err *grammar(Arena *a, const GrammarOpts *o, const OptRest *rest) {
  TRY(options_check(o, rest));
  Grammar *g = NULL;
  TextVocab *v = NULL;
  GrammarVocab *gv = NULL;
  TextReply *reply = NULL;
  Weights *w = NULL;
  Times t = {0};
  int64_t start = os_thread_cpu_ns();
  TRY(o->template ? cmd_fault_of_data(calls_compile(a, o, &g, &reply)) : compile(o, &g));
  double compile_ms = (double)(os_thread_cpu_ns() - start) / 1e6, vocab_ms = 0;
  cmd_relaxed_tell(grammar_warnings(g));
  if (grammar_is_empty(g)) cmd_tell("nothing satisfies this");
  Err *e = o->tokenizer ? cmd_tokenizer_open(a, o->tokenizer, &w, &v) : NULL;
  cmd_vocab_tell(v);
  if (!e && v) {
    start = os_thread_cpu_ns();
    e = grammar_vocab_new_with(v, reply ? cmd_keeps_marker : NULL, reply, &gv);
    vocab_ms = (double)(os_thread_cpu_ns() - start) / 1e6;
  }
  if (!e) {
    GrammarMatcher *m = grammar_matcher_new(g, gv);
    if (o->test || o->mask_bench) e = each_line(a, o, m, v, gv, &t);
    grammar_matcher_free(m);
  }
  if (!e && !o->test) size_print(compile_ms, grammar_size(g));
  if (!e && o->mask_bench) bench_print(&t, vocab_ms);
  text_reply_free(reply);
  grammar_vocab_free(gv);
  text_vocab_free(v);
  file_weights_close(w);
  grammar_free(g);
  return e;
}

int cmd_grammar(int argc, char **argv) {
  Arena *a = arena_new("command");
  GrammarOpts o;
  OptRest rest;
  int code = CMD_OK;
  if (cmd_options(a, GrammarOpts_rows, COUNT_OF(GrammarOpts_rows), argc, argv, &o, &rest, &code)) {
    Err *e = grammar(a, &o, &rest);
    if (e) code = cmd_fail("grammar", e);
  }
  arena_free(a);
  return code;
}
