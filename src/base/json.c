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

Err *json_parse_text(const char *text, size_t n, size_t max_bytes, const char *what, json_t **out) {
  if (n > max_bytes) return err_new(ERR_LIMIT, "%s: %zu bytes of JSON, expected at most %zu", what, n, max_bytes);
  int depth = nesting(text, n);
  if (depth > DEPTH_MAX) return err_new(ERR_LIMIT, "%s: JSON nested %d deep, expected at most %d", what, depth, DEPTH_MAX);
  json_error_t at;
  json_t *v = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &at);
  if (!v) return err_new(ERR_SYNTAX, "%s: line %d, column %d: %s, expected JSON", what, at.line, at.column, at.text);
  *out = v;
  return NULL;
}

Err *json_parse_file(const char *path, size_t max_bytes, json_t **out) {
  Str s = {0};
  Err *e = os_read_file(path, max_bytes, &s);
  if (!e) e = json_parse_text(s.n ? s.p : "", s.n, max_bytes, path, out);
  str_free(&s);
  return e;
}
