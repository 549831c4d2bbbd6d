/* `lumen logits MODEL --ids FILE --out FILE`: the logits of every position of a text given as ids, as raw little-endian f32
   [tokens][vocabulary], row by row without padding. What programs compare engines with. The file appears when it is whole. */
#include <string.h>
#include "cmd/cmd.h"
#include "cmd/model_opts.h"

#define LOGITS_ROWS(X, T)                                                                                     \
  X(T, ids, 'i', IN, "FILE", NULL, 0, 0, "token ids as text, separated by blanks, commas or brackets")         \
  X(T, out, 'o', STR, "FILE", NULL, 0, 0, "where the logits go; - is standard output")                        \
  MODEL_OPT_ROWS(X, T)
OPT_DEFINE(LogitsOpts, LOGITS_ROWS)
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "floats are written as they lie in memory");
enum { MAX_IDS_BYTES = 256 << 20 };

/* Whole numbers between separators; anything else is an error that says where. */
static Err *ids_parse(const char *text, size_t n, const char *path, TextIds *out) {
  for (size_t i = 0; i < n;) {
    if (text[i] && strchr(" \t\r\n,[]", text[i])) {
      i++;
      continue;
    }
    size_t start = i;
    int64_t id = 0;
    while (i < n && text[i] >= '0' && text[i] <= '9' && id <= INT32_MAX) id = id * 10 + (text[i++] - '0');
    if (i == start) return err_new(ERR_FORMAT, "%s: byte %zu is 0x%02x, expected token ids in digits", path, i, (unsigned char)text[i]);
    if (id > INT32_MAX) return err_new(ERR_FORMAT, "%s: a number at byte %zu is above %d", path, start, INT32_MAX);
    text_ids_add(out, (int32_t)id);
  }
  return out->n ? NULL : err_new(ERR_FORMAT, "%s: no token ids in it", path);
}

static Err *ids_read(const char *path, TextIds *out) {
  Str s = {0};
  Err *e = os_read_input(path, MAX_IDS_BYTES, &s);
  if (!e) e = ids_parse(s.n ? s.p : "", s.n, os_input_name(path), out);
  str_free(&s);
  return e;
}

/* Row after row, as the steps make them. */
static Err *logits_write(Model *m, Seq *seq, const TextIds *ids, OutFile *out) {
  size_t row_bytes = (size_t)model_n_vocab(m) * sizeof(float);
  for (size_t at = 0; at < ids->n;) {
    int n = (int)MIN(ids->n - at, (size_t)model_chunk(m));
    const float *logits;
    int64_t stride;
    TRY(model_step(m, &(StepPart){seq, ids->p + at, n, 2}, 1, &logits, &stride));
    for (int i = 0; i < n; i++) TRY(os_out_write(out, logits + i * stride, row_bytes));
    if (cmd_interrupted()) return err_new(ERR_CANCELLED, "interrupted");
    at += (size_t)n;
  }
  return NULL;
}

static Err *logits_to(Model *m, const TextIds *ids, const char *path) {
  OutFile out;
  Seq *seq;
  TRY(seq_new(m, &seq));
  cmd_interrupts_catch();
  Err *e = os_out_open(path, &out);
  if (!e) {
    e = logits_write(m, seq, ids, &out);
    if (e) os_out_drop(&out);
    else e = os_out_finish(&out);
  }
  cmd_interrupts_leave();
  seq_free(seq);
  return e;
}

static Err *logits(Arena *a, const LogitsOpts *o, const char *name) {
  TextIds ids = {0};
  Model *m = NULL;
  ModelOptions options = MODEL_OPTIONS(o);
  Err *e = cmd_output_check(o->out);
  if (!e) e = ids_read(o->ids, &ids);
  if (!e) e = cmd_model_prepare(a, name, &options, &m);
  if (!e) e = cmd_output_check(o->out);
  if (!e && (int64_t)ids.n > model_context(m))
    e = err_new(ERR_LIMIT, "the text has %zu tokens, the context holds %lld (--context)", ids.n, (long long)model_context(m));
  for (size_t i = 0; i < ids.n && !e; i++)
    if (ids.p[i] >= model_n_vocab(m)) e = err_new(ERR_LIMIT, "token %d at %zu: expected 0 to %lld", ids.p[i], i, (long long)model_n_vocab(m) - 1);
  if (!e) e = model_load(m);
  if (!e) e = logits_to(m, &ids, o->out);
  model_close(m);
  text_ids_free(&ids);
  return e;
}

int cmd_logits(int argc, char **argv) {
  Arena *a = arena_new("logits");
  LogitsOpts o;
  OptRest rest;
  int code = CMD_OK;
  if (cmd_options(a, LogitsOpts_rows, COUNT_OF(LogitsOpts_rows), argc, argv, &o, &rest, &code)) {
    if (rest.n_args != 1) code = cmd_misused(argv[0], "%d models named, expected one", rest.n_args);
    else if (!o.ids || !o.out) code = cmd_misused(argv[0], "--%s is missing", o.ids ? "out" : "ids");
    else {
      Err *e = logits(a, &o, rest.arg[0]);
      if (e) code = cmd_fail(argv[0], e);
    }
  }
  arena_free(a);
  return code;
}
