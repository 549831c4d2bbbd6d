/* json: JSON text to Jansson values, with limits and errors that say where. Writing goes through Jansson's own json_dumps. */
#ifndef LUMEN_JSON_H
#define LUMEN_JSON_H
#include <jansson.h>
#include "base/base.h"

/* Any value at the top; duplicate keys are refused; whole numbers that do not fit in 64 bits become reals; nesting at most 512 deep.
   `what` names the text in errors. Fails: ERR_LIMIT above max_bytes or the depth, ERR_SYNTAX with line and column. *out: json_decref it. */
Err *json_parse_text(const char *text, size_t n, size_t max_bytes, const char *what, json_t **out);
Err *json_parse_file(const char *path, size_t max_bytes, json_t **out);  /* a regular file */
Err *json_parse_input(const char *path, size_t max_bytes, json_t **out); /* what the user names, as os_read_input */
#endif
