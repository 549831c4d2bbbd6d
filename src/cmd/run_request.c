/* The settings of a request, as clients send it, become options of `lumen run`. In: the request and the command line. Out: options, in which what
   the command line says comes last and so holds; lists (stop texts, biases) have both. What a request asks for is done, refused by its place, or told of. */
#include <stdlib.h>
#include <string.h>
#include "cmd/run_cmd.h"

static const struct { const char *member, *option; } settings[] = {
#define REQUEST_SETTING(member, option) {#member, #option},
#include "cmd/run_request.def"
#undef REQUEST_SETTING
};
static const char *const read_elsewhere[] = {
#define REQUEST_READ(member) #member,
#include "cmd/run_request.def"
#undef REQUEST_READ
};

typedef struct Argv { Arena *a; const char *path; const OptRow *rows; size_t n_rows; char **arg; int n, cap; } Argv;

/* What is wrong with the value is told by the member's name: whoever wrote the request knows no option. */
static Err *add(Argv *v, const char *member, const char *option, const char *value) {
  char *arg = arena_printf(v->a, "--%s=%s", option, value);
  for (char *c = arg + 2; *c && *c != '='; c++) if (*c == '_') *c = '-';
  PUSH(v->a, v->arg, v->n, v->cap, arg);
  RunOpts o;
  OptRest rest;
  Err *e = opt_parse(v->a, v->rows, v->n_rows, 2, (char *[]){v->arg[0], arg, NULL}, &o, &rest);
  if (!e) return NULL;
  size_t n_name = strlen(option) + 2; /* opt.h: an error about a value begins with the option */
  Err *told = err_new(ERR_FORMAT, "%s: %s%s", v->path, member, err_text(e) + MIN(n_name, strlen(err_text(e))));
  err_free(e);
  return told;
}

static const char *number_text(Arena *a, const json_t *v) {
  return json_is_integer(v) ? arena_printf(a, "%lld", (long long)json_integer_value(v)) : arena_printf(a, "%.17g", json_real_value(v));
}

static Err *numbers_take(Argv *v, const json_t *request) {
  for (size_t i = 0; i < COUNT_OF(settings); i++) {
    const json_t *value = json_object_get(request, settings[i].member);
    if (!value || json_is_null(value)) continue;
    if (!json_is_number(value)) return err_new(ERR_FORMAT, "%s: %s: expected a number", v->path, settings[i].member);
    TRY(add(v, settings[i].member, settings[i].option, number_text(v->a, value)));
  }
  return NULL;
}

/* One text or an array of them; nothing of either is none. */
static Err *stops_take(Argv *v, const json_t *request, const char *member) {
  const json_t *stop = json_object_get(request, member);
  bool one = json_is_string(stop);
  if (!stop || json_is_null(stop)) return NULL;
  if (!one && !json_is_array(stop)) return err_new(ERR_FORMAT, "%s: %s: expected a text or an array of texts", v->path, member);
  for (size_t i = 0; i < (one ? 1 : json_array_size(stop)); i++) {
    const json_t *text = one ? stop : json_array_get(stop, i);
    if (!json_is_string(text) || strlen(json_string_value(text)) != json_string_length(text)) return err_new(ERR_FORMAT, "%s: %s[%zu]: expected a text without NUL", v->path, member, i);
    if (json_string_length(text)) TRY(add(v, member, "stop", json_string_value(text)));
  }
  return NULL;
}

static Err *stop_ids_take(Argv *v, const json_t *request) {
  const json_t *ids = json_object_get(request, "stop_token_ids"), *id;
  size_t i;
  if (!ids || json_is_null(ids)) return NULL;
  if (!json_is_array(ids)) return err_new(ERR_FORMAT, "%s: stop_token_ids: expected an array of token ids", v->path);
  json_array_foreach(ids, i, id) {
    if (!json_is_integer(id)) return err_new(ERR_FORMAT, "%s: stop_token_ids[%zu]: expected a token id", v->path, i);
    TRY(add(v, "stop_token_ids", "stop_token", number_text(v->a, id)));
  }
  return NULL;
}

/* How many tokens of reasoning, as two kinds of clients say it beside whether there shall be any. */
static Err *budget_take(Argv *v, const json_t *request, const char *member, const char *key) {
  const json_t *n = json_object_get(json_object_get(request, member), key);
  if (!n || json_is_null(n)) return NULL;
  if (!json_is_integer(n) || json_integer_value(n) < 0) return err_new(ERR_FORMAT, "%s: %s.%s: expected a number of tokens", v->path, member, key);
  return add(v, arena_printf(v->a, "%s.%s", member, key), "think_budget", number_text(v->a, n));
}

static Err *biases_take(Argv *v, const json_t *biases) {
  const char *id;
  json_t *x;
  if (!biases || json_is_null(biases)) return NULL;
  if (!json_is_object(biases)) return err_new(ERR_FORMAT, "%s: logit_bias: expected an object of token ids and numbers", v->path);
  json_object_foreach((json_t *)(uintptr_t)biases, id, x) {
    if (!json_is_number(x)) return err_new(ERR_FORMAT, "%s: logit_bias.%s: expected a number", v->path, id);
    TRY(add(v, "logit_bias", "logit_bias", arena_printf(v->a, "%s=%s", id, number_text(v->a, x))));
  }
  return NULL;
}

static bool is_heeded(const char *member, const json_t *value) {
  if (json_is_null(value) || json_is_false(value) || (!strcmp(member, "n") && json_is_integer(value) && json_integer_value(value) == 1)) return true; /* asks for nothing */
  for (size_t i = 0; i < COUNT_OF(settings); i++) if (!strcmp(member, settings[i].member)) return true;
  for (size_t i = 0; i < COUNT_OF(read_elsewhere); i++) if (!strcmp(member, read_elsewhere[i])) return true;
  return false;
}

static void unheeded_tell(const char *path, const json_t *request) {
  Str s = {0};
  const char *member;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)request, member, value)
    if (!is_heeded(member, value)) str_addf(&s, "%s%s", s.n ? ", " : "", member);
  if (s.n) cmd_tell("%s: not heeded: %s", path, s.p);
  str_free(&s);
}

/* Stop texts and biases are lists: they are looked at before those of the command line join them. */
static Err *lists_check(const Argv *v, const RunOpts *o) {
  TextStops t;
  Err *e = text_stops_init(&t, o->stop.p, o->stop.n);
  if (e) return err_retype(err_wrap(e, "%s", v->path), 0, ERR_FORMAT);
  text_stops_free(&t);
  return NULL;
}

Err *cmd_run_request_options(Run *r) {
  Argv v = {.a = r->arena, .path = os_input_name(r->o->request), .rows = r->rows, .n_rows = r->n_rows};
  RunOpts *o = ARENA_NEW(r->arena, RunOpts);
  OptRest rest;
  PUSH(v.a, v.arg, v.n, v.cap, r->argv[0]);
  TRY(numbers_take(&v, r->request));
  TRY(stops_take(&v, r->request, "stop"));
  TRY(stops_take(&v, r->request, "stop_sequences"));
  TRY(stop_ids_take(&v, r->request));
  TRY(budget_take(&v, r->request, "thinking", "budget_tokens"));
  TRY(budget_take(&v, r->request, "reasoning", "max_tokens"));
  TRY(biases_take(&v, json_object_get(r->request, "logit_bias")));
  unheeded_tell(v.path, r->request);
  TRY(err_wrap(opt_parse(r->arena, r->rows, r->n_rows, v.n, v.arg, o, &rest), "%s", v.path));
  TRY(lists_check(&v, o));
  for (int i = 1; i < r->argc; i++) PUSH(v.a, v.arg, v.n, v.cap, r->argv[i]);
  TRY(opt_parse(r->arena, r->rows, r->n_rows, v.n, v.arg, o, &rest));
  r->o = o;
  return NULL;
}
