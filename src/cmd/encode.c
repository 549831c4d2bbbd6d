/* `lumen encode --format NAME < FLOATS > BLOCKS`: f32 to blocks of a storage format, as its text's encode says.
   In: raw little-endian f32 on standard input, whole blocks of them. Out: blocks on standard output. */
#include <stdlib.h>
#include <string.h>
#include "cmd/cmd.h"
#include "cmd/formats.h"

#define ENCODE_ROWS(X, T)                                                                                       \
  X(T, format, 'f', STR, "NAME", NULL, 0, 0, "the format of the blocks, as its text calls it")            \
  X(T, target, 0, STR, "NAME", NULL, 0, 0, "a target of `lumen doctor`; else the best of this machine")         \
  X(T, std, 0, STR, "DIR", NULL, 0, 0, "texts that add to or override the built-in formats")
OPT_DEFINE(EncodeOpts, ENCODE_ROWS)
enum { MAX_INPUT_BYTES = 1 << 30, CHUNK_BLOCKS = 1024 };
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "floats are read as they lie in memory");

static Err *write_blocks(const FormatForm *f, const Kern *k, const Str *in) {
  int64_t block = f->decl->block, bytes = f->decl->n_bytes, n = (int64_t)in->n / 4 / block;
  uint8_t *out = malloc((size_t)(CHUNK_BLOCKS * bytes)), *scratch = malloc((size_t)k->scratch_bytes + 64 + kern_blocks_bytes(f));
  float *x = malloc((size_t)(CHUNK_BLOCKS * block) * sizeof *x);
  CHECK(out && scratch && x);
  for (int64_t b = 0; b < n; b += CHUNK_BLOCKS) {
    int64_t now = MIN(n - b, (int64_t)CHUNK_BLOCKS);
    memcpy(x, in->p + b * block * 4, (size_t)(now * block) * sizeof *x);
    kern_encode_blocks(k, f, x, now, out, scratch);
    fwrite(out, (size_t)bytes, (size_t)now, stdout); /* main looks at ferror */
  }
  free(x);
  free(out);
  free(scratch);
  return NULL;
}

static Err *encode(Arena *a, const EncodeOpts *o, Str *in) {
  Module *m;
  FormatForm *f;
  Kerns *ks;
  const Kern *k;
  const Target *t = o->target ? gen_target_find(o->target) : NULL;
  if (o->target && !t) return err_new(ERR_USAGE, "--target %s: no such target", o->target);
  TRY(lang_std_load(a, o->std, &m));
  TRY(err_retype(cmd_format_find(a, m, o->format, &f), ERR_NOT_FOUND, ERR_USAGE));
  TRY(err_wrap(os_read_all(stdin, MAX_INPUT_BYTES, in), "standard input"));
  if (in->n % (size_t)(4 * f->decl->block)) return err_new(ERR_FORMAT, "standard input: %zu bytes, expected f32 for whole blocks of %lld", in->n, (long long)f->decl->block);
  TRY(kern_set_new(t, false, &ks));
  Err *e = kern_encode(ks, m, f, &k);
  if (!e) e = write_blocks(f, k, in);
  kern_set_free(ks);
  return e;
}

int cmd_encode(int argc, char **argv) {
  Arena *a = arena_new("encode");
  EncodeOpts o;
  OptRest rest;
  int code = CMD_OK;
  if (cmd_options(a, EncodeOpts_rows, COUNT_OF(EncodeOpts_rows), argc, argv, &o, &rest, &code)) {
    if (rest.n_args) code = cmd_misused(argv[0], "'%s' is one word too many", rest.arg[0]);
    else if (!o.format) code = cmd_misused(argv[0], "--format is missing");
    else {
      Str in = {0};
      Err *e = encode(a, &o, &in);
      if (e) code = cmd_fail(argv[0], e);
      str_free(&in);
    }
  }
  arena_free(a);
  return code;
}
