/* base: arena, strings, errors, small floats, trace specs, the operating system. */
#include <fcntl.h>
#include <fenv.h>
#include <math.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>
#include "test.h"

/* ---- small floats: an independent reference, by doubles and scalbn ---- */

static double f16_value(unsigned h) {
  int e = h >> 10 & 31, m = h & 1023;
  double v = e ? scalbn(1024 + m, e - 25) : scalbn(m, -24);
  return h & 0x8000 ? -v : v;
}

/* A finite float to the nearest multiple of the type's spacing there, ties to even; bits of the mantissa without the hidden one, smallest exponent. */
static double rounded(double x, int bits, int e_min) {
  int e;
  frexp(x, &e);
  int step = (e - 1 < e_min ? e_min : e - 1) - bits;
  return scalbn(nearbyint(scalbn(x, -step)), step);
}

static void check_f16(float f) {
  double want = rounded((double)f, 10, -14);
  uint16_t h = f32_to_f16(f);
  if (fabs(want) > 65504) EXPECT((h & 0x7fff) == 0x7c00, "f16 of %a is %04x, expected inf", (double)f, h);
  else EXPECT(f16_value(h) == want, "f16 of %a is %a, expected %a", (double)f, f16_value(h), want);
  EXPECT((h >> 15) == (signbit(f) != 0));
}

static void check_bf16(float f) {
  double want = rounded((double)f, 7, -126);
  uint16_t h = f32_to_bf16(f);
  float got = bf16_to_f32(h);
  if (fabs(want) > 0x1.fep127) EXPECT(isinf(got), "bf16 of %a is %a", (double)f, (double)got);
  else EXPECT((double)got == want, "bf16 of %a is %a, expected %a", (double)f, (double)got, want);
  EXPECT((h >> 15) == (signbit(f) != 0));
}

static void test_f16(void) {
  TEST("f16 to f32, all") {
    for (unsigned h = 0; h < 65536; h++) {
      float f = f16_to_f32((uint16_t)h);
      if ((h & 0x7c00) != 0x7c00) EXPECT((double)f == f16_value(h) && (signbit(f) != 0) == (h >> 15), "%04x gives %a", h, (double)f);
      else if (h & 1023) EXPECT(isnan(f));
      else EXPECT(isinf(f) && (f < 0) == (h >> 15 != 0));
    }
  }
  TEST("f32 to f16 and back, all") {
    for (unsigned h = 0; h < 65536; h++) {
      uint16_t back = f32_to_f16(f16_to_f32((uint16_t)h));
      if ((h & 0x7fff) <= 0x7c00) EXPECT(back == h, "%04x came back as %04x", h, back);
      else EXPECT((back & 0x7fff) > 0x7c00, "NaN %04x came back as %04x", h, back);
    }
  }
  TEST("f32 to f16: every midpoint and its neighbours") {
    for (unsigned h = 0; h < 0x7c00; h++) {
      float mid = (float)((f16_value(h) + (h == 0x7bff ? 65536 : f16_value(h + 1))) / 2);
      for (int sign = 0; sign < 2; sign++) {
        float f = sign ? -mid : mid;
        check_f16(f);
        check_f16(nextafterf(f, INFINITY));
        check_f16(nextafterf(f, -INFINITY));
      }
    }
  }
}

static void test_bf16(void) {
  TEST("bf16: every value, midpoint and its neighbours") {
    for (uint32_t h = 0; h < 0x7f80; h++) {
      float v = f32_from_bits(h << 16), mid = f32_from_bits(h << 16 | 0x8000);
      EXPECT(bf16_to_f32((uint16_t)h) == v && f32_to_bf16(v) == h);
      for (uint32_t sign = 0; sign < 2; sign++)
        for (int d = -1; d <= 1; d++) check_bf16(f32_from_bits((f32_to_bits(mid) + (uint32_t)d) | sign << 31));
    }
  }
  TEST("bf16: NaN stays NaN, also where its high bits are zero") {
    EXPECT(isnan(bf16_to_f32(f32_to_bf16(f32_from_bits(0x7f800001)))));
    EXPECT(isnan(bf16_to_f32(f32_to_bf16(f32_from_bits(0xffffffff)))));
    EXPECT(f32_to_bf16(f32_from_bits(0xff800000)) == 0xff80);
  }
}

/* tests/file/rounding: made with torch and numpy, see its README. */
static void test_rounding_golden(void) {
  Str in = {0}, f16 = {0}, bf16 = {0};
  TEST("rounding as torch and numpy do") {
    EXPECT_OK(os_read_file("tests/file/rounding/inputs.f32", 1 << 20, &in));
    EXPECT_OK(os_read_file("tests/file/rounding/f16.u16", 1 << 20, &f16));
    EXPECT_OK(os_read_file("tests/file/rounding/bf16.u16", 1 << 20, &bf16));
    EXPECT(in.n == 4096 * 4 && f16.n == 4096 * 2 && bf16.n == 4096 * 2);
    for (size_t i = 0; i < in.n / 4 && f16.n == in.n / 2 && bf16.n == f16.n; i++) {
      float f;
      uint16_t h, b;
      memcpy(&f, in.p + 4 * i, 4);
      memcpy(&h, f16.p + 2 * i, 2);
      memcpy(&b, bf16.p + 2 * i, 2);
      if (isnan(f)) EXPECT(isnan(f16_to_f32(f32_to_f16(f))) && isnan(bf16_to_f32(f32_to_bf16(f))));
      else EXPECT(f32_to_f16(f) == h && f32_to_bf16(f) == b, "input %zu = %a: %04x %04x, expected %04x %04x", i, (double)f, f32_to_f16(f), f32_to_bf16(f), h, b);
    }
  }
  str_free(&in), str_free(&f16), str_free(&bf16);
}

/* ---- arena, strings, errors ---- */

static void test_arena(void) {
  Arena *a = arena_new("test");
  TEST("arena: aligned, zeroed, apart, stable") {
    uint8_t *p[2000];
    for (int i = 0; i < 2000; i++) {
      size_t n = (size_t)(i * 37 % 300);
      p[i] = arena_alloc(a, n);
      EXPECT((uintptr_t)p[i] % 16 == 0);
      for (size_t k = 0; k < n; k++) EXPECT(p[i][k] == 0);
      memset(p[i], i & 255, n);
    }
    for (int i = 0; i < 2000; i++)
      for (size_t k = 0; k < (size_t)(i * 37 % 300); k++) EXPECT(p[i][k] == (i & 255), "allocation %d was written over", i);
  }
  TEST("arena: what there is no room for is an error") {
    void *p = a;
    Err *e = arena_alloc_large(a, SIZE_MAX / 8, 16, "weights", &p);
    EXPECT(e && err_kind(e) == ERR_MEMORY && strstr(err_text(e), "weights: no memory for") && p == a, "%s", e ? err_text(e) : "none");
    err_free(e);
    EXPECT_OK(arena_alloc_large(a, 1000, 1000, "weights", &p));
    memset(p, 1, 1000 * 1000);
  }
  TEST("arena: larger than a block, growing arrays, text") {
    uint8_t *big = arena_alloc(a, 1 << 20);
    EXPECT(big[0] == 0 && big[(1 << 20) - 1] == 0);
    int *items = NULL, n = 0, cap = 0;
    for (int i = 0; i < 1000; i++) PUSH(a, items, n, cap, i * i);
    for (int i = 0; i < n; i++) EXPECT(items[i] == i * i);
    EXPECT(!strcmp(arena_printf(a, "%d-%s", 7, "x"), "7-x") && !strcmp(arena_dup_n(a, "abcdef", 3), "abc"));
    EXPECT(a->n_bytes > 1 << 20);
    arena_reset(a);
    EXPECT(a->n_bytes == 0 && a->head == NULL);
  }
  arena_free(a);
}

static void test_str_err(void) {
  TEST("str: grows, holds NUL, always terminated") {
    Str s = {0};
    for (int i = 0; i < 1000; i++) str_addf(&s, "%d,", i);
    EXPECT(s.n == 3890 && s.p[s.n] == 0 && !strncmp(s.p, "0,1,2,", 6));
    str_clear(&s);
    str_add_n(&s, "a\0b", 3);
    str_add_n(&s, "", 0);
    EXPECT(s.n == 3 && s.p[1] == 0 && s.p[3] == 0);
    str_free(&s);
    EXPECT(s.p == NULL && s.n == 0);
    str_add_n(&s, "", 0);
    EXPECT(s.p && s.p[0] == 0);
    str_free(&s);
  }
  TEST("str: floats in the fewest digits that read back") {
    static const struct { double v; bool f32; const char *text; } rows[] = {
      {0.1, false, "0.1"}, {0.1f, true, "0.1"}, {0.1f, false, "0.10000000149011612"}, {10000, true, "10000"}, {1e-6, false, "1e-06"}, {1.0 / 3, true, "0.33333333"},
      {1.0 / 3, false, "0.3333333333333333"}, {-250, false, "-250"}, {1e22, false, "1e+22"}, {0, false, "0"}, {123456789, false, "123456789"}, {3.4028234663852886e38, true, "3.4028235e+38"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
      Str s = {0};
      str_add_float(&s, rows[i].v, rows[i].f32);
      EXPECT(!strcmp(s.p, rows[i].text), "%s, expected %s", s.p, rows[i].text);
      str_free(&s);
    }
  }
  TEST("edit distance") {
    EXPECT(str_edit_distance("kitten", "sitting") == 3 && str_edit_distance("", "abc") == 3 && str_edit_distance("a", "a") == 0);
    EXPECT(str_edit_distance("list", "lsit") == 2);
  }
  TEST("hash: differs by bytes, length and seed") {
    EXPECT(hash_bytes("ab", 2, 0) != hash_bytes("ba", 2, 0) && hash_bytes("a", 1, 0) != hash_bytes("a\0", 2, 0) && hash_bytes("a", 1, 0) != hash_bytes("a", 1, 1));
  }
  TEST("err: context gathers in front, kind stays") {
    Err *e = err_new(ERR_LIMIT, "rows %d, expected > %d", -1, 0);
    e = err_wrap(err_wrap(e, "tensor %s", "q"), "file");
    EXPECT(!strcmp(err_text(e), "file: tensor q: rows -1, expected > 0") && err_kind(e) == ERR_LIMIT);
    err_free(e);
    err_free(NULL);
    EXPECT(err_wrap(NULL, "nothing") == NULL);
  }
}

static void test_trace(void) {
  char path[] = "/tmp/lumen-trace-XXXXXX", spec[100];
  close(mkstemp(path));
  TEST("trace: a spec switches stages, a glob and a file") {
    EXPECT(!trace_on(TRACE_ir, NULL));
    Err *e = trace_open("ir,nosuch");
    EXPECT(e && err_kind(e) == ERR_USAGE && strstr(err_text(e), "nosuch"));
    err_free(e);
    snprintf(spec, sizeof spec, "ir,time@lin*>%s", path);
    EXPECT_OK(trace_open(spec));
    EXPECT(trace_on(TRACE_ir, NULL) && trace_on(TRACE_time, "linear") && !trace_on(TRACE_time, "norm") && !trace_on(TRACE_kv, NULL));
    trace_printf(TRACE_ir, "seen %d", 5);
    trace_printf(TRACE_kv, "unseen");
    trace_text(TRACE_ir, "title", "body");
    EXPECT_OK(trace_open("")); /* nothing more; the file stays open until the end */
    fflush(NULL);
    Str s = {0};
    EXPECT_OK(os_read_file(path, 1 << 16, &s));
    EXPECT(s.p && strstr(s.p, "[ir] seen 5\n") && strstr(s.p, "title\nbody\n") && !strstr(s.p, "unseen"), "%s", s.p);
    str_free(&s);
  }
  unlink(path);
}

/* ---- the operating system ---- */

static void test_files(void) {
  char dir[] = "/tmp/lumen-os-XXXXXX";
  Arena *a = arena_new("test");
  if (!mkdtemp(dir)) return;
  const char *deep = arena_printf(a, "%s/a/b//c/", dir), *file = arena_printf(a, "%s/a/b/c/f", dir), *empty = arena_printf(a, "%s/e", dir);
  TEST("os: texts with a byte order mark") {
    static const struct { const char *bytes; size_t n; const char *text; } rows[] = {
      {"\xEF\xBB\xBFone", 6, "one"}, {"one", 3, "one"}, {"\xEF\xBB\xBF", 3, ""}, {"", 0, ""}, {"\xEF\xBB", 2, "\xEF\xBB"}, {"\xFF\xFEo\0", 4, NULL}, {"\xFE\xFF\0o", 4, NULL},
    };
    EXPECT_OK(os_make_dirs(deep));
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
      Str s = {0};
      EXPECT_OK(os_write_file(file, rows[i].bytes, rows[i].n));
      Err *e = os_read_text(file, 100, &s);
      EXPECT(rows[i].text ? !e && s.n == strlen(rows[i].text) && (!s.n || !memcmp(s.p, rows[i].text, s.n)) : e && err_kind(e) == ERR_FORMAT && !s.n, "row %zu: %s", i, e ? err_text(e) : "");
      err_free(e);
      str_free(&s);
    }
    EXPECT(!unlink(file));
  }
  TEST("os: folders, files, maps") {
    EXPECT_OK(os_make_dirs(deep));
    EXPECT_OK(os_make_dirs(deep));
    EXPECT(os_is_dir(deep) && os_exists(deep) && !os_exists(file));
    EXPECT_OK(os_write_file(file, "one\0two", 7));
    EXPECT_OK(os_write_file(file, "three\0four", 10));
    Str s = {0};
    EXPECT_OK(os_read_file(file, 10, &s));
    EXPECT(s.n == 10 && !memcmp(s.p, "three\0four", 10));
    Err *e = os_read_file(file, 9, &s);
    EXPECT(e && err_kind(e) == ERR_LIMIT && s.n == 10);
    err_free(e);
    FileMap m = {0};
    EXPECT_OK(os_map_file(file, &m));
    EXPECT(m.n_bytes == 10 && !memcmp(m.p, "three\0four", 10));
    os_unmap_file(&m);
    EXPECT_OK(os_write_file(empty, "", 0));
    EXPECT_OK(os_map_file(empty, &m));
    EXPECT(m.n_bytes == 0);
    os_unmap_file(&m);
    str_free(&s);
  }
  TEST("os: a pipe is written into, not replaced") {
    const char *pipe_path = arena_printf(a, "%s/p", dir);
    char got[8] = {0};
    EXPECT(mkfifo(pipe_path, 0600) == 0);
    int fd = open(pipe_path, O_RDWR | O_NONBLOCK);
    EXPECT(os_is_device(pipe_path) && !os_is_device(file) && !os_is_device(dir));
    EXPECT_OK(os_write_file(pipe_path, "abc", 3));
    EXPECT(fd >= 0 && read(fd, got, sizeof got) == 3 && !strcmp(got, "abc") && os_is_device(pipe_path));
    if (fd >= 0) close(fd);
    unlink(pipe_path);
  }
  TEST("os: what is wrong with a path is said") {
    FileMap m = {0};
    Err *e = os_map_file(arena_printf(a, "%s/none", dir), &m);
    EXPECT(e && err_kind(e) == ERR_NOT_FOUND && strstr(err_text(e), "/none"));
    err_free(e);
    e = os_map_file(dir, &m);
    EXPECT(e && strstr(err_text(e), "a directory") && m.p == NULL);
    err_free(e);
    char *lone = arena_printf(a, "%s/lone", dir); /* a pipe that nobody writes to */
    EXPECT(!mkfifo(lone, 0600));
    e = os_map_file(lone, &m);
    EXPECT(e && strstr(err_text(e), "a device or pipe"));
    err_free(e);
    unlink(lone);
    e = os_make_dirs(arena_printf(a, "%s/x", file));
    EXPECT(e && err_kind(e) != 0, "a folder below a file");
    err_free(e);
    e = os_write_file(arena_printf(a, "%s/none/f", dir), "x", 1);
    EXPECT(e && err_kind(e) == ERR_NOT_FOUND);
    err_free(e);
  }
  unlink(file), unlink(empty);
  rmdir(arena_printf(a, "%s/a/b/c", dir)), rmdir(arena_printf(a, "%s/a/b", dir)), rmdir(arena_printf(a, "%s/a", dir));
  EXPECT(rmdir(dir) == 0, "a temporary file was left behind");
  arena_free(a);
}

static void test_os(void) {
  Arena *a = arena_new("test");
  TEST("os: cache folder") {
    setenv("LUMEN_HOME", "/x", 1);
    EXPECT(!strcmp(os_cache_dir(a), "/x"));
    unsetenv("LUMEN_HOME");
    setenv("XDG_CACHE_HOME", "/c", 1);
    EXPECT(!strcmp(os_cache_dir(a), "/c/lumen"));
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", "/h", 1);
    EXPECT(!strcmp(os_cache_dir(a), "/h/.cache/lumen"));
  }
  TEST("os: time") {
    int64_t now = os_now_ns(), start = os_process_start_ns();
    EXPECT(start <= now + 20000000, "began %lld ns from now", (long long)(start - now));
    EXPECT(now - start < 600000000000, "began %lld ns ago", (long long)(now - start));
    EXPECT(os_now_ns() >= now);
  }
  TEST("os: CPUs follow the affinity mask") {
    cpu_set_t old, one;
    int n = os_n_cpus();
    EXPECT(n >= 1 && n <= 1 << 16);
    EXPECT(sched_getaffinity(0, sizeof old, &old) == 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
      if (CPU_ISSET(i, &old)) {
        CPU_SET(i, &one);
        break;
      }
    EXPECT(sched_setaffinity(0, sizeof one, &one) == 0 && os_n_cpus() == 1);
    sched_setaffinity(0, sizeof old, &old);
    EXPECT(os_n_cpus() == n);
  }
  TEST("os: pages are zero, aligned, counted") {
    Pages p = {0}, small = {0};
    size_t n = ((size_t)6 << 20) + 5;
    EXPECT_OK(os_pages_alloc(n, &p));
    EXPECT((uintptr_t)p.p % (2 << 20) == 0 && p.n_bytes >= n);
    size_t sum = 0;
    for (size_t i = 0; i < p.n_bytes; i += 512) sum += p.p[i];
    EXPECT(sum == 0);
    memset(p.p, 1, p.n_bytes);
    EXPECT(os_pages_huge_bytes(&p) <= p.n_bytes);
    EXPECT(os_peak_rss_bytes() >= (size_t)6 << 20);
    os_pages_free(&p);
    EXPECT(p.p == NULL);
    EXPECT_OK(os_pages_alloc(0, &small));
    EXPECT(small.p && small.n_bytes >= 1);
    os_pages_free(&small);
    Err *e = os_pages_alloc((size_t)1 << 60, &p);
    EXPECT(e && err_kind(e) == ERR_MEMORY && strstr(err_text(e), "1152921504606846976") && p.p == NULL);
    err_free(e);
  }
  TEST("os: small pages become huge with what they hold, where the system has such pages") {
    Pages p = {0}, few = {0}, ref = {0};
    size_t n = (size_t)6 << 20;
    EXPECT_OK(os_pages_alloc_small(n, &p));
    p.p[5] = 7, p.p[(3 << 20) + 1] = 9;
    EXPECT(os_pages_huge_bytes(&p) == 0);
    os_pages_want_huge(&p);
    EXPECT(p.p[5] == 7 && p.p[(3 << 20) + 1] == 9 && p.p[4] == 0 && p.p[n - 1] == 0);
    EXPECT_OK(os_pages_alloc(n, &ref));
    memset(ref.p, 1, n);
    if (os_pages_huge_bytes(&ref) == n) EXPECT(os_pages_huge_bytes(&p) > 0);
    EXPECT_OK(os_pages_alloc_small(100, &few));
    os_pages_want_huge(&few);
    os_pages_free(&few), os_pages_free(&ref), os_pages_free(&p);
  }
  arena_free(a);
}

int main(void) {
  test_f16();
  test_bf16();
  test_rounding_golden();
  test_arena();
  test_str_err();
  test_trace();
  test_files();
  test_os();
  TEST_MAIN_END();
}
