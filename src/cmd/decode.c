/* `lumen decode --format NAME < BLOCKS > FLOATS`: blocks of a storage format to f32, by the machine code that the format's text compiles to.
   `lumen decode MODEL TENSOR > FLOATS`: a tensor of a model's files. In: whole blocks on standard input, or files. Out: raw little-endian f32 on
   standard output, row by row. */
#include <stdlib.h>
#include <string.h>
#include "cmd/cmd.h"
#include "cmd/formats.h"

#define DECODE_ROWS(X, T)                                                                                       \
  X(T, format, 'f', STR, "NAME", NULL, 0, 0, "the format of the blocks, as its text calls it")            \
  X(T, shape, 0, STR, "ROWS,COLS", NULL, 0, 0, "of the tensor, where its files do not tell")                    \
  X(T, target, 0, STR, "NAME", NULL, 0, 0, "a target of `lumen doctor`; else the best of this machine")         \
  X(T, std, 0, STR, "DIR", NULL, 0, 0, "texts that add to or override the built-in formats")
OPT_DEFINE(DecodeOpts, DECODE_ROWS)
enum { MAX_INPUT_BYTES = 1 << 30, CHUNK_BLOCKS = 1024 };
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "floats are written as they lie in memory");

static Err *write_floats(const FormatForm *f, const Kern *k, const Str *in) {
  int64_t n = (int64_t)in->n / f->decl->n_bytes;
  float *out = malloc(sizeof *out * (size_t)(CHUNK_BLOCKS * f->decl->block));
  uint8_t scratch[256];
  if (!out) return err_new(ERR_MEMORY, "no memory for %d blocks", CHUNK_BLOCKS);
  for (int64_t b = 0; b < n; b += CHUNK_BLOCKS) {
    int64_t now = MIN(n - b, (int64_t)CHUNK_BLOCKS);
    void *args[FORMAT_MAX_ARGS] = {in->p + b * f->decl->n_bytes, out};
    format_table_args(f, args);
    k->entry(args, 0, now, scratch);
    fwrite(out, sizeof *out, (size_t)(now * f->decl->block), stdout); /* main looks at ferror */
  }
  free(out);
  return NULL;
}

static Err *decode(Arena *a, const DecodeOpts *o, Str *in) {
  Module *m;
  FormatForm *f;
  Kerns *ks;
  const Kern *k;
  const Target *t = o->target ? gen_target_find(o->target) : NULL;
  if (o->target && !t) return err_new(ERR_USAGE, "--target %s: no such target", o->target);
  TRY(lang_std_load(a, o->std, &m));
  TRY(err_retype(cmd_format_find(a, m, o->format, &f), ERR_NOT_FOUND, ERR_USAGE));
  TRY(err_wrap(os_read_all(stdin, MAX_INPUT_BYTES, in), "standard input"));
  if (in->n % (size_t)f->decl->n_bytes) return err_new(ERR_FORMAT, "standard input: %zu bytes, expected whole blocks of %lld", in->n, (long long)f->decl->n_bytes);
  TRY(kern_set_new(t, false, &ks));
  Err *e = kern_decode(ks, f, &k);
  if (!e) e = write_floats(f, k, in);
  kern_set_free(ks);
  return e;
}

static Err *decode_tensor(Arena *a, const DecodeOpts *o, const char *model, const char *name) {
  long long rows = 0, cols = 0;
  char end = 0;
  int64_t n_rows, n_cols;
  const char *path;
  float *v;
  if (o->shape && (sscanf(o->shape, "%lld,%lld%c", &rows, &cols, &end) != 2 || rows < 1 || cols < 1)) return err_new(ERR_USAGE, "--shape %s: expected two numbers with a comma", o->shape);
  n_rows = rows;
  n_cols = cols;
  TRY(cmd_model_locate(a, model, &path));
  TRY(model_tensor_decode(a, path, &(ModelOptions){.target = o->target, .std_dir = o->std}, name, &n_rows, &n_cols, &v));
  fwrite(v, sizeof *v, (size_t)(n_rows * n_cols), stdout); /* main looks at ferror */
  return NULL;
}

int cmd_decode(int argc, char **argv) {
  Arena *a = arena_new("decode");
  DecodeOpts o;
  OptRest rest;
  int code = CMD_OK;
  if (cmd_options(a, DecodeOpts_rows, COUNT_OF(DecodeOpts_rows), argc, argv, &o, &rest, &code)) {
    if (rest.n_args == 2 && !o.format) {
      Err *e = decode_tensor(a, &o, rest.arg[0], rest.arg[1]);
      if (e) code = cmd_fail(argv[0], e);
    } else if (rest.n_args && o.format) code = cmd_misused(argv[0], "--format is for blocks on standard input; '%s' has formats of its own: expected one of the two", rest.arg[0]);
    else if (rest.n_args) code = cmd_misused(argv[0], "expected a model and a tensor, got %d word%s", rest.n_args, rest.n_args == 1 ? "" : "s");
    else if (!o.format) code = cmd_misused(argv[0], "--format is missing");
    else {
      Str in = {0};
      Err *e = decode(a, &o, &in);
      if (e) code = cmd_fail(argv[0], e);
      str_free(&in);
    }
  }
  arena_free(a);
  return code;
}
