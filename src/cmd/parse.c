/* `lumen parse`: what a model wrote, taken apart as its chat template says. */
#include "cmd/cmd.h"
#include "text/reply.h"

#define ROWS(X, T)                                                                                                            \
  X(T, template,        0, IN,   "FILE", NULL, 0, 0,       "the model's chat template: it decides on the syntax")             \
  X(T, tools,           0, IN,   "FILE", NULL, 0, 0,       "JSON: the array of tools that were offered")                      \
  X(T, prefix,          0, STR,  "TEXT", NULL, 0, 0,       "the beginning of the reply that the prompt already holds")       \
  X(T, json,            0, FLAG, "",     NULL, 0, 0,       "print the whole message, not its events")                         \
  X(T, eager,           0, FLAG, "",     NULL, 0, 0,       "arguments leave as they come, not once the call is whole")        \
  X(T, keep_unknown,    0, FLAG, "",     NULL, 0, 0,       "calls of tools that were not offered are calls, not text")        \
  X(T, cut,             0, INT,  "N",    "0",  0, 1 << 28, "read N bytes at a time, 0: all at once")
OPT_DEFINE(ParseOpts, ROWS)

int cmd_parse(int argc, char **argv) {
  Arena *a = arena_new("command");
  ParseOpts o;
  OptRest rest;
  int code = CMD_OK;
  if (cmd_options(a, ParseOpts_rows, COUNT_OF(ParseOpts_rows), argc, argv, &o, &rest, &code)) {
    if (!o.template || rest.n_args) code = cmd_misused("parse", !o.template ? "takes --template FILE" : "takes no operands");
    else if (rest.stdin_by) code = cmd_misused("parse", "%s -: standard input holds the reply", rest.stdin_by);
    else {
      TextParseOptions t = {.template_path = o.template, .tools_path = o.tools, .prefix = o.prefix, .message = o.json, .eager = o.eager, .keep_unknown = o.keep_unknown, .cut = o.cut};
      Err *e = text_cmd_parse(&t, stdin, stdout);
      if (e) cmd_fail("parse", e), code = CMD_FAILED;
    }
  }
  arena_free(a);
  return code;
}
