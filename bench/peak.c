/* What this machine can do at most, as JSON: bytes read per second, and operations per second of the instructions that matrix products are made
   of, each from registers, with nothing else in the loop. Everything in bench/ is held against these numbers, measured in the same run.
   usage: peak [THREADS [cpu]]  cpu: the threads' processor time instead of the clock, for a machine that others use.
       Source of the loops: the project's shared yardstick, which printed the same numbers for AVX-512 alone.
   A processor without an instruction gets `null`. Not part of the product: intrinsics are fine here. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 256, CHAINS = 12, N_TIMES = 8 };
static const size_t n_bytes = (size_t)1 << 30; /* more than most caches hold */
static const long n_loops = 5000000; /* short enough that on a busy machine one of N_TIMES is undisturbed */
static unsigned char *memory;
static int n_threads;
static pthread_barrier_t barrier;
static double spent[MAX_THREADS];

static clockid_t which_clock = CLOCK_MONOTONIC;

static double now(void) {
  struct timespec t;
  clock_gettime(which_clock, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Twelve independent chains: enough to hide a latency of 4 on two ports, few enough to stay in 16 registers. */
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define CHAIN_LOOP(type, init, step, add, sum_type)                                  \
  type a[CHAINS];                                                                    \
  for (int i = 0; i < CHAINS; i++) a[i] = init;                                      \
  type a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3], a4 = a[4], a5 = a[5], a6 = a[6], a7 = a[7], a8 = a[8], a9 = a[9], a10 = a[10], a11 = a[11]; \
  for (long k = 0; k < n_loops; k++) {                                               \
    EACH(step)                                                                       \
    __asm__ volatile("" ::: "memory");                                               \
  }                                                                                  \
  a0 = add(add(add(add(a0, a1), add(a2, a3)), add(add(a4, a5), add(a6, a7))), add(add(a8, a9), add(a10, a11))); \
  sum_type one_sum;                                                                  \
  memcpy(&one_sum, &a0, sizeof one_sum);                                             \
  volatile sum_type keep = one_sum;                                                  \
  (void)keep;

__attribute__((target("avx512f,avx512bw,avx512vnni"))) static void vnni(int id) {
  __m512i x = _mm512_set1_epi8(1), y = _mm512_set1_epi8(2);
#define STEP(i) a##i = _mm512_dpbusd_epi32(a##i, x, y);
  CHAIN_LOOP(__m512i, _mm512_set1_epi32(id), STEP, _mm512_add_epi32, int)
#undef STEP
}
__attribute__((target("avx512f"))) static void fma512(int id) {
  __m512 x = _mm512_set1_ps(1.0000001f), y = _mm512_set1_ps(1e-9f);
#define STEP(i) a##i = _mm512_fmadd_ps(a##i, x, y);
  CHAIN_LOOP(__m512, _mm512_set1_ps((float)id), STEP, _mm512_add_ps, float)
#undef STEP
}
__attribute__((target("avx512f,avx512bf16"))) static void bf16(int id) {
  __m512bh x, y;
  memset(&x, 0x3f, sizeof x);
  memset(&y, 0x11, sizeof y);
#define STEP(i) a##i = _mm512_dpbf16_ps(a##i, x, y);
  CHAIN_LOOP(__m512, _mm512_set1_ps((float)id), STEP, _mm512_add_ps, float)
#undef STEP
}
__attribute__((target("avx2,fma"))) static void fma256(int id) {
  __m256 x = _mm256_set1_ps(1.0000001f), y = _mm256_set1_ps(1e-9f);
#define STEP(i) a##i = _mm256_fmadd_ps(a##i, x, y);
  CHAIN_LOOP(__m256, _mm256_set1_ps((float)id), STEP, _mm256_add_ps, float)
#undef STEP
}
/* AVX2 has no integer dot product of four: pairs, pairs of pairs, a sum. */
__attribute__((target("avx2"))) static void int8_256(int id) {
  __m256i x = _mm256_set1_epi8(1), y = _mm256_set1_epi8(2), one = _mm256_set1_epi16(1);
#define STEP(i)                                                                             \
  __asm__ volatile("" : "+x"(x));                                                           \
  a##i = _mm256_add_epi32(a##i, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), one));
  CHAIN_LOOP(__m256i, _mm256_set1_epi32(id), STEP, _mm256_add_epi32, int)
#undef STEP
}

/* AMX: one tile product is 16 x 16 x 64 bytes; six accumulators, two operands. The kernel must be asked for the tiles' state first. */
typedef struct TileConfig { unsigned char palette, start_row, pad[14]; unsigned short n_bytes[16]; unsigned char n_rows[16]; } TileConfig;
static int amx_usable(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
  return __builtin_cpu_supports("amx-int8") && __builtin_cpu_supports("amx-bf16") && !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
}
#define AMX_LOOP(product)                                                                            \
  static unsigned char operand[1024];                                                                \
  (void)id;                                                                                          \
  TileConfig c = {.palette = 1};                                                                     \
  for (int i = 0; i < 8; i++) c.n_rows[i] = 16, c.n_bytes[i] = 64;                                   \
  _tile_loadconfig(&c);                                                                              \
  _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3); _tile_zero(4); _tile_zero(5);          \
  _tile_loadd(6, operand, 64);                                                                       \
  _tile_loadd(7, operand, 64);                                                                       \
  for (long k = 0; k < n_loops / 5; k++) {                                                          \
    product(0, 6, 7); product(1, 6, 7); product(2, 6, 7); product(3, 6, 7); product(4, 6, 7); product(5, 6, 7); \
    __asm__ volatile("" ::: "memory");                                                               \
  }                                                                                                  \
  _tile_release();
__attribute__((target("amx-tile,amx-int8"))) static void amx_int8(int id) { AMX_LOOP(_tile_dpbusd) }
__attribute__((target("amx-tile,amx-bf16"))) static void amx_bf16(int id) { AMX_LOOP(_tile_dpbf16ps) }

/* The widest loads the processor has; the sums are returned so that nothing is left out. */
__attribute__((target("avx512f"))) static void read512(int id) {
  const __m512i *p = (const void *)(memory + (size_t)id * (n_bytes / (size_t)n_threads));
  __m512i s[4] = {{0}, {0}, {0}, {0}};
  for (size_t i = 0; i + 4 <= n_bytes / (size_t)n_threads / 64; i += 4)
    for (size_t k = 0; k < 4; k++) s[k] = _mm512_xor_si512(s[k], _mm512_loadu_si512(p + i + k));
  volatile long long keep = _mm512_reduce_add_epi64(_mm512_xor_si512(_mm512_xor_si512(s[0], s[1]), _mm512_xor_si512(s[2], s[3])));
  (void)keep;
}
__attribute__((target("avx2"))) static void read256(int id) {
  const __m256i *p = (const void *)(memory + (size_t)id * (n_bytes / (size_t)n_threads));
  __m256i s[4] = {{0}, {0}, {0}, {0}};
  for (size_t i = 0; i + 4 <= n_bytes / (size_t)n_threads / 32; i += 4)
    for (size_t k = 0; k < 4; k++) s[k] = _mm256_xor_si256(s[k], _mm256_loadu_si256(p + i + k));
  s[0] = _mm256_xor_si256(_mm256_xor_si256(s[0], s[1]), _mm256_xor_si256(s[2], s[3]));
  volatile long long keep = _mm256_extract_epi64(s[0], 0) ^ _mm256_extract_epi64(s[0], 3);
  (void)keep;
}

static void (*work)(int);
static void *thread_main(void *id) {
  pthread_barrier_wait(&barrier);
  double t = now();
  work((int)(long)id);
  spent[(long)id] = now() - t;
  return NULL;
}

/* The slowest thread's seconds, the best of several times. */
static double seconds(void (*f)(int)) {
  double best = 1e9;
  for (int r = 0; r < N_TIMES; r++) {
    pthread_t t[MAX_THREADS];
    double slowest = 0;
    work = f;
    pthread_barrier_init(&barrier, NULL, (unsigned)n_threads);
    for (long i = 0; i < n_threads; i++) pthread_create(&t[i], NULL, thread_main, (void *)i);
    for (int i = 0; i < n_threads; i++) {
      pthread_join(t[i], NULL);
      if (spent[i] > slowest) slowest = spent[i];
    }
    pthread_barrier_destroy(&barrier);
    if (slowest < best) best = slowest;
  }
  return best;
}

static void rate(const char *name, int usable, void (*f)(int), double per_thread) {
  if (usable) printf(", \"%s\": %.4g", name, per_thread * n_threads / seconds(f));
  else printf(", \"%s\": null", name);
}

int main(int argc, char **argv) {
  n_threads = argc > 1 ? atoi(argv[1]) : 1;
  if (argc > 2 && !strcmp(argv[2], "cpu")) which_clock = CLOCK_THREAD_CPUTIME_ID;
  if (n_threads < 1 || n_threads > MAX_THREADS) {
    fprintf(stderr, "usage: peak [THREADS]: 1 to %d\n", MAX_THREADS);
    return 2;
  }
  memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return perror("peak: no memory"), 1;
  madvise(memory, n_bytes, MADV_HUGEPAGE);
  memset(memory, 1, n_bytes);
  int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"), avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  int amx = amx_usable();
  double loops = (double)n_loops * CHAINS * 2;
  printf("{\"threads\": %d", n_threads);
  rate("read_bytes_per_second", avx512 || avx2, avx512 ? read512 : read256, (double)n_bytes / n_threads);
  rate("vnni_ops_per_second", avx512 && __builtin_cpu_supports("avx512vnni"), vnni, loops * 64);
  rate("fma_flops_per_second", avx512, fma512, loops * 16);
  rate("bf16_flops_per_second", avx512 && __builtin_cpu_supports("avx512bf16"), bf16, loops * 32);
  rate("avx2_int8_ops_per_second", avx2, int8_256, loops * 32);
  rate("avx2_fma_flops_per_second", avx2, fma256, loops * 8);
  rate("amx_int8_ops_per_second", amx, amx_int8, (double)(n_loops / 5) * 6 * 2 * 16 * 16 * 64);
  rate("amx_bf16_flops_per_second", amx, amx_bf16, (double)(n_loops / 5) * 6 * 2 * 16 * 16 * 32);
  printf("}\n");
  return 0;
}
