/* What the processor can do, from CPUID and XCR0. In: the machine; out: DevCpu. A feature counts only when the system also saves its
   registers on a switch, which XCR0 tells. XGETBV has no portable spelling in C, so it runs from a page of dev_code like any of our
   code; should that fail, features that need it count as absent. */
#include <string.h>
#include "dev/dev.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t read_xcr0(void) {
  /* xor ecx, ecx; xgetbv; shl rdx, 32; or rax, rdx; ret */
  static const uint8_t code[] = {0x31, 0xC9, 0x0F, 0x01, 0xD0, 0x48, 0xC1, 0xE2, 0x20, 0x48, 0x09, 0xD0, 0xC3};
  unsigned a, b, c, d;
  bool osxsave = __get_cpuid(1, &a, &b, &c, &d) && c >> 27 & 1;
  if (!osxsave) return 0;
  DevCode *pages = dev_code_new(false);
  const void *entry;
  uint64_t xcr0 = 0;
  Err *e = dev_code_add(pages, "xgetbv", code, sizeof code, &entry);
  if (!e) {
    uint64_t (*fn)(void);
    memcpy(&fn, &entry, sizeof fn); /* ISO C has no cast from an object to a function */
    xcr0 = fn();
  }
  err_free(e);
  dev_code_free(pages);
  return xcr0;
}

static bool cpuid_bit(unsigned leaf, unsigned subleaf, int reg, int bit) {
  unsigned r[4];
  if (!__get_cpuid_count(leaf, subleaf, &r[0], &r[1], &r[2], &r[3])) return false;
  if (subleaf) { /* a leaf says in eax of subleaf 0 how many it has */
    unsigned top[4];
    __cpuid_count(leaf, 0, top[0], top[1], top[2], top[3]);
    if (subleaf > top[0]) return false;
  }
  return r[reg] >> bit & 1;
}

/* Intel describes its caches in leaf 4, AMD in 8000001D, in one format. */
static void detect_caches(DevCpu *out) {
  unsigned a, b, c, d, leaf = 4;
  if (__get_cpuid_count(0x8000001D, 0, &a, &b, &c, &d) && (a & 31)) leaf = 0x8000001D;
  for (unsigned i = 0; i < 16; i++) {
    if (!__get_cpuid_count(leaf, i, &a, &b, &c, &d) || !(a & 31)) return;
    unsigned type = a & 31, level = a >> 5 & 7; /* type 1 data, 2 instructions, 3 both */
    size_t n = (size_t)((b >> 22) + 1) * ((b >> 12 & 0x3FF) + 1) * ((b & 0xFFF) + 1) * ((size_t)c + 1);
    if (level == 1 && type == 1) out->l1d_bytes = n;
    if (level == 2 && type != 2) out->l2_bytes = n;
    if (level == 3 && type != 2) out->l3_bytes = n, out->l3_sharing = (int)(a >> 14 & 0xFFF) + 1;
  }
}

static void detect_brand(DevCpu *out) {
  unsigned r[12];
  if (__get_cpuid_max(0x80000000, NULL) < 0x80000004) return;
  for (unsigned i = 0; i < 3; i++) __cpuid(0x80000002 + i, r[i * 4], r[i * 4 + 1], r[i * 4 + 2], r[i * 4 + 3]);
  memcpy(out->brand, r, 48);
}

/* Registers of 8 KiB a thread are given on request only (Linux, arch_prctl); threads made later inherit the leave. */
bool dev_tiles_ask(void) {
#if defined(__linux__) && defined(SYS_arch_prctl)
  enum { REQ_XCOMP_PERM = 0x1023, XFEATURE_TILE_DATA = 18 };
  return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XFEATURE_TILE_DATA) == 0;
#else
  return false;
#endif
}

void dev_cpu_detect(DevCpu *out) {
  DevCpu c = {0};
  uint64_t xcr0 = read_xcr0();
#define FEATURE(name, leaf, subleaf, reg, bit, state, meaning) c.name = (xcr0 & (state)) == (state) && cpuid_bit(leaf, subleaf, reg, bit);
#include "dev/cpu.def"
#undef FEATURE
  detect_caches(&c);
  detect_brand(&c);
  *out = c;
}

#else
bool dev_tiles_ask(void) { return false; }
/* None of our targets is for another processor yet, so nothing asks for its features. */
#if defined(__aarch64__)
void dev_cpu_detect(DevCpu *out) { *out = (DevCpu){.brand = "an AArch64 processor"}; }
#else
void dev_cpu_detect(DevCpu *out) { *out = (DevCpu){.brand = "not an x86-64 processor"}; }
#endif
#endif

void dev_cpu_text(const DevCpu *c, Str *out) {
  str_addf(out, "%s:", c->brand[0] ? c->brand : "unknown processor");
#define FEATURE(name, ...) if (c->name) str_add(out, " " #name);
#include "dev/cpu.def"
#undef FEATURE
  str_addf(out, "; L1d %zu KiB, L2 %zu KiB, L3 %zu KiB", c->l1d_bytes >> 10, c->l2_bytes >> 10, c->l3_bytes >> 10);
  if (c->l3_sharing) str_addf(out, " for %d threads", c->l3_sharing);
}

bool dev_cpu_has(const DevCpu *c, const char *feature) {
#define FEATURE(name, ...) if (!strcmp(feature, #name)) return c->name;
#include "dev/cpu.def"
#undef FEATURE
  return false;
}
