/* `lumen detokenize`: token ids on standard input, text out, by a model's own vocabulary or a tokenizer file. Ids are separated by anything
   but digits; with --lines each input line is an array of ids and each output line a JSON string. */
#include "cmd/cmd.h"
#include "model/vocab.h"

#define ROWS(X, T)                                                                                                                     \
  X(T, tokenizer,       0, STR,  "PATH", NULL, 0, 0, "a tokenizer file, a folder that holds one, or a model file, instead of MODEL")                 \
  X(T, skip_special,    0, FLAG, "",     NULL, 0, 0, "special tokens print nothing")                                                   \
  X(T, lines,           0, FLAG, "",     NULL, 0, 0, "each input line is an array of ids, each output line a JSON string")             \
  X(T, json,            0, FLAG, "",     NULL, 0, 0, "print JSON")
OPT_DEFINE(DetokenizeOpts, ROWS)

static Err *detokenize(Arena *a, const DetokenizeOpts *o, const OptRest *rest) {
  TextVocab *v = NULL;
  Weights *w = NULL;
  int n_names = o->tokenizer ? 0 : 1;
  if (rest->n_args != n_names) return err_new(ERR_USAGE, "takes a model or --tokenizer, got %d operands", rest->n_args);
  Err *e = NULL;
  if (n_names) {
    e = cmd_weights_open(a, rest->arg[0], &w);
    if (!e) e = model_vocab_open(w, &v);
  } else e = cmd_tokenizer_open(a, o->tokenizer, &w, &v);
  cmd_vocab_tell(v);
  TextTokenizeOptions t = {.vocab = v, .json = o->json, .lines = o->lines, .skip_special = o->skip_special};
  if (!e) e = text_cmd_detokenize(&t, stdin, stdout);
  text_vocab_free(v);
  file_weights_close(w);
  return e;
}

int cmd_detokenize(int argc, char **argv) {
  Arena *a = arena_new("command");
  DetokenizeOpts o;
  OptRest rest;
  int code = CMD_OK;
  if (cmd_options(a, DetokenizeOpts_rows, COUNT_OF(DetokenizeOpts_rows), argc, argv, &o, &rest, &code)) {
    Err *e = detokenize(a, &o, &rest);
    if (e) code = cmd_fail("detokenize", e);
  }
  arena_free(a);
  return code;
}
