/* Any number of blocks through the decoding and encoding functions of a format. Encoding works on tiles of 16 blocks: what is left at the
   end goes through copies. In: floats or blocks. Out: blocks or floats. */
#include <string.h>
#include "kern/kern.h"

size_t kern_blocks_bytes(const FormatForm *f) { return (size_t)ENCODE_TILE * (size_t)(f->decl->block * 4 + f->decl->n_bytes) + 256; }

void kern_encode_blocks(const Kern *k, const FormatForm *f, const float *x, int64_t n_blocks, uint8_t *out, void *scratch) {
  int64_t block = f->decl->block, bytes = f->decl->n_bytes, whole = n_blocks / ENCODE_TILE, rest = n_blocks % ENCODE_TILE;
  void *args[FORMAT_MAX_ARGS] = {(void *)(uintptr_t)x, out};
  format_table_args(f, args);
  memset(out, 0, (size_t)(n_blocks * bytes));
  if (whole) k->entry(args, 0, whole, scratch);
  if (!rest) return;
  float *in = (float *)(void *)((uint8_t *)scratch + ROUND_UP(k->scratch_bytes, 64));
  uint8_t *to = (uint8_t *)(in + ENCODE_TILE * block);
  memset(in, 0, sizeof *in * (size_t)(ENCODE_TILE * block));
  memset(to, 0, (size_t)(ENCODE_TILE * bytes));
  memcpy(in, x + whole * ENCODE_TILE * block, sizeof *in * (size_t)(rest * block));
  args[0] = in;
  args[1] = to;
  k->entry(args, 0, 1, scratch);
  memcpy(out + whole * ENCODE_TILE * bytes, to, (size_t)(rest * bytes));
}

void kern_decode_blocks(const Kern *k, const FormatForm *f, const uint8_t *blocks, int64_t n_blocks, float *out) {
  _Alignas(64) uint8_t scratch[256];
  void *args[FORMAT_MAX_ARGS] = {(void *)(uintptr_t)blocks, out};
  format_table_args(f, args);
  k->entry(args, 0, n_blocks, scratch);
}
