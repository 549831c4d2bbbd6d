/* The table of targets, and which of them a processor runs. Features decide, names of CPUs never; who asks the processor is the caller. */
#include <string.h>
#include "gen/gen.h"

static const Target targets[] = {
#define TARGET(name, lanes, regs, vex, fma, vnni, f16c, kmask, dot2, tiles) {name, lanes, regs, vex, fma, vnni, f16c, kmask, dot2, tiles},
#include "gen/targets.def"
#undef TARGET
};

int gen_target_count(void) { return (int)COUNT_OF(targets); }
const Target *gen_target_get(int i) { return &targets[i]; }

const Target *gen_target_find(const char *name) {
  for (size_t i = 0; i < COUNT_OF(targets); i++)
    if (!strcmp(targets[i].name, name)) return &targets[i];
  return NULL;
}

bool gen_target_runs(const Target *t, GenCpu cpu) {
  if (t->kmask && !cpu.avx512) return false;
  if (t->tiles && !cpu.tiles) return false;
  if (t->vnni && !cpu.vnni) return false;
  if (t->dot2 && !cpu.dot2) return false;
  if (t->fma && !cpu.fma) return false;
  if (t->f16c && !cpu.f16c) return false;
  return t->vex ? cpu.avx2 : cpu.sse41;
}

const Target *gen_target_host(GenCpu cpu) {
  for (size_t i = 0; i < COUNT_OF(targets); i++)
    if (!targets[i].tiles && gen_target_runs(&targets[i], cpu)) return &targets[i]; /* tiles: where asked for, until timed on a real machine */
  return NULL;
}
