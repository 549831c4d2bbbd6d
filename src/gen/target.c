/* The table of targets, and which of them this machine runs. Features are asked for, names of CPUs never. */
#include <string.h>
#include "gen/gen.h"

static const Target targets[] = {
#define TARGET(name, lanes, regs, vex, fma, vnni, f16c, kmask) {name, lanes, regs, vex, fma, vnni, f16c, kmask},
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

/* The compiler's own probe looks at CPUID and at the register state the system saves. */
GenCpu gen_cpu_get(void) {
  GenCpu c = {0};
#if defined(__x86_64__)
  __builtin_cpu_init();
  c.sse41 = __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("ssse3");
  c.avx2 = __builtin_cpu_supports("avx2");
  c.fma = __builtin_cpu_supports("fma");
  c.f16c = __builtin_cpu_supports("f16c");
  c.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
  c.vnni = c.avx512 && __builtin_cpu_supports("avx512vnni");
#endif
  return c;
}

bool gen_target_runs(const Target *t, GenCpu cpu) {
  if (t->kmask && !cpu.avx512) return false;
  if (t->vnni && !cpu.vnni) return false;
  if (t->fma && !cpu.fma) return false;
  if (t->f16c && !cpu.f16c) return false;
  return t->vex ? cpu.avx2 : cpu.sse41;
}

const Target *gen_target_host(GenCpu cpu) {
  for (size_t i = 0; i < COUNT_OF(targets); i++)
    if (gen_target_runs(&targets[i], cpu)) return &targets[i];
  return NULL;
}
