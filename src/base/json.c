/* JSON in, Jansson values out. Depth is counted here before Jansson recurses, so its stack use is bounded by our number. */
#include <string.h>
#include "base/json.h"

enum { DEPTH_MAX = 512 };

/* The deepest nesting of brackets outside strings; needs no valid JSON. */
static int nesting(const char *p, size_t n) {
  int depth = 0, most = 0;
  bool in_string = false;
  for (size_t i = 0; i < n; i++) {
    if (in_string) {
      if (p[i] == '\\') i++;
      else if (p[i] == '"') in_string = false;
    } else if (p[i] == '"') in_string = true;
    else if (p[i] == '[' || p[i] == '{') depth++;
    else if (p[i] == ']' || p[i] == '}') depth -= depth > 0;
    most = MAX(most, depth);
  }
  return most;
}

/* Whether the n digits at p, of a number below 0 or not, are no int64. */
static bool too_big(const char *p, size_t n, bool negative) {
  const char *most = negative ? "9223372036854775808" : "9223372036854775807";
  return n > 19 || (n == 19 && memcmp(p, most, 19) > 0);
}

/* Files in the wild write 10^30 for "no limit" (model_max_length of tokenizer_config.json), which Jansson refuses: `.0` behind makes it a real.
   *out has text only where there is such a number. Needs no valid JSON. */
static void widen_integers(const char *p, size_t n, Str *out) {
  bool in_string = false;
  size_t done = 0;
  for (size_t i = 0; i < n; i++) {
    if (in_string && p[i] == '\\') i++;
    else if (p[i] == '"') in_string = !in_string;
    else if (!in_string && p[i] >= '0' && p[i] <= '9') {
      size_t start = i, end = i;
      while (end < n && p[end] >= '0' && p[end] <= '9') end++;
      size_t whole = end;
      while (end < n && memchr(".eE+-0123456789", p[end], 15)) end++; /* a fraction or an exponent: already a real */
      i = end - 1;
      if (whole < end || !too_big(p + start, whole - start, start && p[start - 1] == '-')) continue;
      str_add_n(out, p + done, end - done);
      str_add(out, ".0");
      done = end;
    }
  }
  if (done) str_add_n(out, p + done, n - done);
}

Err *json_parse_text(const char *text, size_t n, size_t max_bytes, const char *what, json_t **out) {
  if (n > max_bytes) return err_new(ERR_LIMIT, "%s: %zu bytes of JSON, expected at most %zu", what, n, max_bytes);
  int depth = nesting(text, n);
  if (depth > DEPTH_MAX) return err_new(ERR_LIMIT, "%s: JSON nested %d deep, expected at most %d", what, depth, DEPTH_MAX);
  json_error_t at;
  Str wide = {0};
  widen_integers(text, n, &wide);
  json_t *v = json_loadb(wide.n ? wide.p : text, wide.n ? wide.n : n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &at);
  str_free(&wide);
  if (!v) return err_new(ERR_SYNTAX, "%s: line %d, column %d: %s, expected JSON", what, at.line, at.column, at.text);
  *out = v;
  return NULL;
}

static Err *parse_and_free(Err *e, Str *s, size_t max_bytes, const char *what, json_t **out) {
  if (!e) e = json_parse_text(s->n ? s->p : "", s->n, max_bytes, what, out);
  str_free(s);
  return e;
}

Err *json_parse_file(const char *path, size_t max_bytes, json_t **out) {
  Str s = {0};
  Err *e = os_read_text(path, max_bytes, &s);
  return parse_and_free(e, &s, max_bytes, path, out);
}

Err *json_parse_input(const char *path, size_t max_bytes, json_t **out) {
  Str s = {0};
  Err *e = os_read_input(path, max_bytes, &s);
  return parse_and_free(e, &s, max_bytes, os_input_name(path), out);
}
