/* Files that are written. One appears under its name only when it is whole: it grows in NAME.part beside it, which is locked while it is written and
   renamed at the end; what was there before stays until then. A link is followed: its target is replaced. A device or a pipe takes the bytes as they come,
   "-" is standard output. And the files that this process has read, so that a command can refuse to write over one of them.

   In: names as the user gives them. Out: a stream. Must hold: whoever writes for a user asks os_out_check first; nothing else here looks at what was read. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/base.h"

enum { MAX_LINKS = 40 }; /* as many as the system follows */

/* ---- what was read: a process's own, as its open files are ---- */

typedef struct Input { dev_t dev; ino_t ino; } Input;
static pthread_mutex_t inputs_lock = PTHREAD_MUTEX_INITIALIZER;
static Input *input;
static size_t n_inputs, cap_inputs;

static bool has_input(const struct stat *st) {
  for (size_t i = 0; i < n_inputs; i++) if (input[i].ino == st->st_ino && input[i].dev == st->st_dev) return true;
  return false;
}

void os_input_note(int fd) {
  struct stat st;
  if (fstat(fd, &st) || !S_ISREG(st.st_mode)) return;
  pthread_mutex_lock(&inputs_lock);
  if (!has_input(&st)) {
    if (n_inputs == cap_inputs) {
      cap_inputs = MAX(2 * cap_inputs, (size_t)16);
      input = realloc(input, cap_inputs * sizeof *input);
      CHECK(input, "out of memory");
    }
    input[n_inputs++] = (Input){st.st_dev, st.st_ino};
  }
  pthread_mutex_unlock(&inputs_lock);
}

/* This process has read it, under whatever name. */
static bool is_input(const char *path) {
  struct stat st;
  if (stat(path, &st)) return false;
  pthread_mutex_lock(&inputs_lock);
  bool is = has_input(&st);
  pthread_mutex_unlock(&inputs_lock);
  return is;
}

/* ---- where the bytes go ---- */

static Err *cannot(const char *path, const char *what) {
  int code = errno;
  return err_new(code == ENOENT || code == ENOTDIR ? ERR_NOT_FOUND : ERR_IO, "%s: cannot be written: %s%s%s", path, what, what[0] ? ": " : "", strerror(code));
}

static void add_folder(Str *s, const char *path) {
  const char *slash = strrchr(path, '/');
  if (slash) str_add_n(s, path, (size_t)MAX(slash - path, 1));
  else str_add(s, ".");
}

/* The file behind links, there or not. */
static Err *add_target(const char *path, Str *out) {
  char link[4096];
  ssize_t n;
  str_add(out, path);
  for (int i = 0; (n = readlink(out->p, link, sizeof link - 1)) >= 0; i++) {
    link[n] = 0;
    if (i == MAX_LINKS) {
      errno = ELOOP;
      return cannot(path, "");
    }
    Str next = {0};
    if (link[0] != '/') add_folder(&next, out->p), str_add_c(&next, '/');
    str_add(&next, link);
    str_free(out);
    *out = next;
  }
  return NULL;
}

/* A file or nothing stands there, and no link. */
static Err *check_target(const char *path, const char *target) {
  Str part = {0}, folder = {0};
  Err *e = NULL;
  str_addf(&part, "%s.part", target);
  add_folder(&folder, target);
  if (is_input(target)) e = err_new(ERR_USAGE, "%s: is a file to read, expected another file to write", path);
  else if (is_input(part.p)) e = err_new(ERR_USAGE, "%s: is a file to read, and where %s would grow, expected another file to write", part.p, path);
  else if (os_exists(target) && access(target, W_OK)) e = cannot(path, "");
  else if (access(folder.p, W_OK | X_OK)) e = cannot(path, folder.p);
  str_free(&part);
  str_free(&folder);
  return e;
}

Err *os_out_check(const char *path) {
  Str target = {0};
  if (!path || !strcmp(path, "-")) return NULL;
  if (!path[0]) return err_new(ERR_USAGE, "'' is no name, expected the file to write");
  if (os_is_dir(path)) return err_new(ERR_USAGE, "%s: is a folder, expected the file to write", path);
  if (os_is_device(path)) return access(path, W_OK) ? cannot(path, "") : NULL;
  Err *e = add_target(path, &target);
  if (!e) e = check_target(path, target.p);
  str_free(&target);
  return e;
}

/* The file behind fd is the one that has the name: another writer may have renamed it while we waited for its lock. */
static bool still_named(int fd, const char *path) {
  struct stat own, named;
  return !fstat(fd, &own) && !lstat(path, &named) && own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

/* One writer at a time: a second would write into the first's file. A part that nobody writes any more is written anew. */
static Err *open_part(OutFile *o, int *out) {
  int fd = open(o->part.p, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (fd < 0) return cannot(o->name.p, o->part.p);
  bool mine = !flock(fd, LOCK_EX | LOCK_NB), gone = mine && !still_named(fd, o->part.p);
  Err *e = NULL;
  if (gone || (!mine && errno == EWOULDBLOCK)) e = err_new(ERR_IO, "%s: is being written by another process", o->name.p);
  else if (!mine || ftruncate(fd, 0)) e = cannot(o->name.p, o->part.p);
  if (e) close(fd);
  else *out = fd;
  return e;
}

static Err *open_named(OutFile *o, const char *path) {
  int fd = -1;
  TRY(add_target(path, &o->target));
  str_addf(&o->part, "%s.part", o->target.p);
  TRY(open_part(o, &fd));
  o->f = fdopen(fd, "wb");
  CHECK(o->f, "out of memory");
  return NULL;
}

Err *os_out_open(const char *path, OutFile *out) {
  OutFile o = {0};
  Err *e = NULL;
  bool to_stdout = !strcmp(path, "-");
  str_add(&o.name, to_stdout ? "standard output" : path);
  if (to_stdout) o.f = stdout;
  else if (!os_is_device(path)) e = open_named(&o, path);
  else if (!(o.f = fopen(path, "wbe"))) e = cannot(path, "");
  if (e) os_out_drop(&o);
  else *out = o;
  return e;
}

Err *os_out_write(OutFile *o, const void *p, size_t n_bytes) {
  return n_bytes && fwrite(p, 1, n_bytes, o->f) != n_bytes ? cannot(o->name.p, "") : NULL;
}

void os_out_drop(OutFile *o) {
  if (o->f && o->part.n) unlink(o->part.p);
  if (o->f && o->f != stdout) fclose(o->f);
  str_free(&o->part);
  str_free(&o->target);
  str_free(&o->name);
  *o = (OutFile){0};
}

/* While the lock is held: nobody else opens the part in between. */
Err *os_out_finish(OutFile *o) {
  bool named = o->part.n > 0, bad = fflush(o->f) || (named && (fsync(fileno(o->f)) || rename(o->part.p, o->target.p)));
  Err *e = bad ? cannot(o->name.p, "") : NULL;
  if (!bad) str_clear(&o->part);
  os_out_drop(o);
  return e;
}

Err *os_write_file(const char *path, const void *p, size_t n_bytes) {
  OutFile o;
  TRY(os_out_open(path, &o));
  Err *e = os_out_write(&o, p, n_bytes);
  if (!e) return os_out_finish(&o);
  os_out_drop(&o);
  return e;
}
