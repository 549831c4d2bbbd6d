/* The standard texts: those the build has put into the binary, then every *.lum under a folder the user names. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "lang/priv.h"

extern const Source std_embedded[];   /* build/std_embed.c; a NULL row ends it */

enum { MAX_FILES = 4096, MAX_FOLDERS_DEEP = 16 };

typedef struct Found { Arena *arena; Source *src; int n, cap; } Found;

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static Err *find_texts(Found *f, const char *dir, int depth);

static Err *take_entry(Found *f, const char *path, int depth) {
  struct stat st;
  if (stat(path, &st)) return errno == ENOENT || errno == ENOTDIR ? NULL : err_new(ERR_IO, "%s: cannot be looked up: %s", path, strerror(errno)); /* gone meanwhile, a link to nothing */
  size_t n = strlen(path);
  if (S_ISDIR(st.st_mode)) return find_texts(f, path, depth + 1);
  if (!S_ISREG(st.st_mode) || n < 4 || strcmp(path + n - 4, ".lum")) return NULL;
  if (f->n >= MAX_FILES) return err_new(ERR_LIMIT, "more than %d texts; the next is %s", MAX_FILES, path);
  Str text = {0};
  TRY(os_read_text(path, LANG_MAX_TEXT_BYTES, &text));
  Err *e = NULL;
  if (text.n && memchr(text.p, 0, text.n)) e = err_new(ERR_SYNTAX, "%s: a zero byte at %zu: not a text", path, strlen(text.p));
  else PUSH(f->arena, f->src, f->n, f->cap, (Source){path, arena_dup_n(f->arena, text.n ? text.p : "", text.n)});
  str_free(&text);
  return e;
}

/* Appends the texts under dir in order of their names. */
static Err *find_texts(Found *f, const char *dir, int depth) {
  if (depth > MAX_FOLDERS_DEEP) return err_new(ERR_LIMIT, "%s: folders nest more than %d deep", dir, MAX_FOLDERS_DEEP);
  DIR *d = opendir(dir);
  if (!d) return err_new(ERR_IO, "%s: cannot open this folder of texts: %s", dir, strerror(errno));
  char **path = NULL;
  int n = 0, cap = 0;
  for (struct dirent *e = readdir(d); e; e = readdir(d))
    if (e->d_name[0] != '.') PUSH(f->arena, path, n, cap, arena_printf(f->arena, "%s/%s", dir, e->d_name));
  closedir(d);
  if (n) qsort(path, (size_t)n, sizeof *path, by_name);
  for (int i = 0; i < n; i++) TRY(take_entry(f, path[i], depth));
  return NULL;
}

/* One that is named, and so must be there and a text. */
static Err *take_file(Found *f, const char *path) {
  struct stat st;
  bool there;
  TRY(os_look(path, &there));
  if (!there || stat(path, &st)) return err_new(ERR_IO, "%s: no such file", path);
  if (!S_ISREG(st.st_mode)) return err_new(ERR_IO, "%s: %s, expected a file", path, S_ISDIR(st.st_mode) ? "a folder" : "no regular file");
  return take_entry(f, path, 0);
}

Err *lang_std_load_with(Arena *a, const char *std_dir, const char *file, Module **out) {
  Found f = {.arena = a};
  for (const Source *s = std_embedded; s->file; s++) PUSH(a, f.src, f.n, f.cap, *s);
  int n_own = f.n;
  if (std_dir) TRY(find_texts(&f, std_dir, 0));
  if (std_dir && f.n == n_own) return err_new(ERR_NOT_FOUND, "%s: no text (NAME.lum) in this folder or below it", std_dir);
  if (file) TRY(take_file(&f, file));
  return lang_load(a, f.src, f.n, out);
}

Err *lang_std_load(Arena *a, const char *std_dir, Module **out) { return lang_std_load_with(a, std_dir, NULL, out); }
