/* `lumen tokenize`: bytes in, token ids out, by a model's own vocabulary or a tokenizer file. The text is the operand after MODEL, or all of
   standard input. Output: one line of ids, or with --json one array; with --lines one line per input line. */
#include <string.h>
#include "cmd/cmd.h"
#include "model/vocab.h"

#define ROWS(X, T)                                                                                                                     \
  X(T, tokenizer,       0, STR,  "PATH", NULL, 0, 0, "a tokenizer file, a folder that holds one, or a model file, instead of MODEL")                 \
  X(T, special,         0, FLAG, "",     NULL, 0, 0, "add what the model adds around a text, such as its first token, where the text has it not")                 \
  X(T, plain,           0, FLAG, "",     NULL, 0, 0, "take the spelling of a special token in the text as plain text")                 \
  X(T, split_special,   0, FLAG, "",     NULL, 0, 0, "the same for special tokens only; other added tokens are found")                 \
  X(T, lines,           0, FLAG, "",     NULL, 0, 0, "each input line is a JSON string, each output line an array of ids")             \
  X(T, times,           0, INT,  "N",    NULL, 1, 1000000, "tokenize so often and print, in processor time, how long it takes")       \
  X(T, json,            0, FLAG, "",     NULL, 0, 0, "print JSON")
OPT_DEFINE(TokenizeOpts, ROWS)

static Err *tokenize(Arena *a, const TokenizeOpts *o, const OptRest *rest) {
  TextVocab *v = NULL;
  Weights *w = NULL;
  int n_names = o->tokenizer ? 0 : 1;
  const char *text = rest->n_args > n_names ? rest->arg[n_names] : NULL;
  if (rest->n_args < n_names || rest->n_args > n_names + 1)
    return err_new(ERR_USAGE, "takes %s and perhaps a text, got %d operands", n_names ? "a model" : "--tokenizer", rest->n_args);
  FILE *in = text ? text[0] ? fmemopen((char *)text, strlen(text), "r") : fopen("/dev/null", "r") : stdin;
  if (!in) return err_new(ERR_IO, "the text cannot be read");
  Err *e = NULL;
  int64_t start = os_process_cpu_ns();
  if (n_names) {
    e = cmd_weights_open(a, rest->arg[0], &w);
    if (!e) e = model_vocab_open(w, &v);
  } else e = cmd_tokenizer_open(a, o->tokenizer, &w, &v);
  cmd_vocab_tell(v);
  TextTokenizeOptions t = {.vocab = v, .load_ms = (double)(os_process_cpu_ns() - start) * 1e-6, .special = o->special, .plain = o->plain, .json = o->json, .lines = o->lines,
                           .split_special = o->split_special, .times = (int)o->times};
  if (!e) e = text_cmd_tokenize(&t, in, stdout);
  if (text) fclose(in);
  text_vocab_free(v);
  file_weights_close(w);
  return e;
}

int cmd_tokenize(int argc, char **argv) {
  Arena *a = arena_new("command");
  TokenizeOpts o;
  OptRest rest;
  int code = CMD_OK;
  if (cmd_options(a, TokenizeOpts_rows, COUNT_OF(TokenizeOpts_rows), argc, argv, &o, &rest, &code)) {
    Err *e = tokenize(a, &o, &rest);
    if (e) code = cmd_fail("tokenize", e);
  }
  arena_free(a);
  return code;
}
