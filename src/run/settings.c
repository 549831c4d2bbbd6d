/* What a client's request says of how its answer is made: samplers, seed, stop texts, how long. In: its JSON object. Out: settings that hold where it says
   something, or which key is wrong, what it says and what was expected. What cannot be done is refused, never passed over. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "run/run.h"

static Err *wrong(const char *key, const json_t *v, const char *expected) {
  char *text = json_dumps(v, JSON_ENCODE_ANY);
  Err *e = err_new(ERR_USAGE, "%s: %.60s, expected %s", key, text ? text : "", expected);
  free(text);
  return e;
}

/* *there: the key is there, and not null. */
static Err *number_get(const json_t *body, const char *key, bool is_int, double lo, double hi, double *out, bool *there) {
  const json_t *v = json_object_get(body, key);
  char *end, expected[80];
  double x = NAN;
  *there = v && !json_is_null(v);
  if (!*there) return NULL;
  if (json_is_number(v)) x = json_number_value(v);
  else if (json_is_string(v) && *json_string_value(v)) {
    x = strtod(json_string_value(v), &end);
    if (*end) x = NAN;
  }
  if (x >= lo && x <= hi && (!is_int || x == floor(x))) { *out = x; return NULL; }
  snprintf(expected, sizeof expected, "a %snumber from %g to %g", is_int ? "whole " : "", lo, hi);
  return wrong(key, v, expected);
}

static Err *samplers_get(const json_t *body, RunSampling *p) {
  static const struct { const char *key; size_t at; bool is_int; double lo, hi; } rows[] = {
#define SETTING(key, field, is_int, lo, hi) {key, offsetof(RunSampling, field), is_int, lo, hi},
#include "run/settings.def"
#undef SETTING
  };
  for (size_t i = 0; i < COUNT_OF(rows); i++) {
    double x;
    bool there;
    TRY(number_get(body, rows[i].key, rows[i].is_int, rows[i].lo, rows[i].hi, &x, &there));
    if (!there) continue;
    char *field = (char *)p + rows[i].at;
    int64_t whole = (int64_t)x;
    if (rows[i].is_int) memcpy(field, &whole, sizeof whole);
    else memcpy(field, &x, sizeof x);
  }
  return NULL;
}

static Err *biases_get(Arena *a, const json_t *body, RunSampling *p) {
  json_t *all = json_object_get(body, "logit_bias"), *v;
  const char *key;
  int cap = 0, n = 0;
  RunBias *bias = NULL;
  if (!all || json_is_null(all)) return NULL;
  if (!json_is_object(all)) return wrong("logit_bias", all, "an object of token ids and numbers");
  json_object_foreach(all, key, v) {
    char *end;
    long id = strtol(key, &end, 10);
    if (!*key || *end || id < 0 || id > INT32_MAX || !json_is_number(v)) return err_new(ERR_USAGE, "logit_bias: \"%.40s\", expected a token id and a number", key);
    PUSH(a, bias, n, cap, (RunBias){(int32_t)id, (float)json_number_value(v)});
  }
  if (n) p->bias = bias, p->n_biases = n;
  return NULL;
}

static Err *stops_get(Arena *a, const json_t *body, RunStops *s) {
  const json_t *v = json_object_get(body, "stop");
  size_t n = json_is_array(v) ? json_array_size(v) : 1;
  if (!v || json_is_null(v) || !n) return NULL;
  const char **text = ARENA_ARRAY(a, const char *, n);
  for (size_t i = 0; i < n; i++) {
    const json_t *one = json_is_array(v) ? json_array_get(v, i) : v;
    if (!json_is_string(one) || !json_string_length(one) || strlen(json_string_value(one)) != json_string_length(one))
      return wrong("stop", one, "a text, or an array of texts, none of them empty, without NUL bytes");
    text[i] = arena_dup(a, json_string_value(one));
  }
  s->stop = text;
  s->n_stops = (int)n;
  return NULL;
}

Err *run_settings_take(Arena *a, const json_t *body, RunSampling *p, RunStops *s) {
  static const char *const limits[] = {"max_tokens", "max_completion_tokens", "max_output_tokens"}; /* the last that is there */
  RunSampling sampling = *p;
  RunStops stops = *s;
  double x;
  bool there;
  TRY(samplers_get(body, &sampling));
  TRY(biases_get(a, body, &sampling));
  TRY(stops_get(a, body, &stops));
  for (size_t i = 0; i < COUNT_OF(limits); i++) {
    TRY(number_get(body, limits[i], true, 0, 1 << 30, &x, &there));
    if (there) stops.max_tokens = (int64_t)x;
  }
  TRY(number_get(body, "seed", true, -0x1p53, 0x1p53, &x, &there));
  if (there) sampling.seed = (uint64_t)(int64_t)x;
  TRY(number_get(body, "n", true, 1, 1, &x, &there));
  *p = sampling;
  *s = stops;
  return NULL;
}
