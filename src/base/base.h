/* base: arenas, errors, strings, trace, OS. Everything else stands on this; it includes nothing of ours. */
#ifndef LUMEN_BASE_H
#define LUMEN_BASE_H
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/check.h"

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define ROUND_UP(n, to) (((n) + (to) - 1) / (to) * (to))

typedef struct Err Err;

/* arena.c: memory with one lifetime. Allocations are zeroed and 16-byte aligned; a pointer stays valid until reset or free. */
typedef struct ArenaBlock ArenaBlock;
typedef struct Arena {
  const char *name;          /* lifetime, in messages: "forever", "model", "compile", "step" */
  ArenaBlock *head;
  size_t n_bytes;            /* handed out since the last reset */
} Arena;
Arena *arena_new(const char *name);
void arena_free(Arena *a);
void arena_reset(Arena *a);                                  /* frees everything but the arena itself */
void *arena_alloc(Arena *a, size_t n_bytes);                 /* never NULL: small metadata only; big buffers use os_pages_alloc or arena_alloc_large */
#define ARENA_NEW(a, T) ((T *)arena_alloc((a), sizeof(T)))
#define ARENA_ARRAY(a, T, n) ((T *)arena_alloc_array((a), (n), sizeof(T)))
void *arena_alloc_array(Arena *a, size_t n, size_t n_bytes); /* CHECKs the product */
/* n things of n_bytes each where a file says how many: ERR_MEMORY, of `what`, where there is no room. */
Err *arena_alloc_large(Arena *a, size_t n, size_t n_bytes, const char *what, void **out);
char *arena_dup(Arena *a, const char *s);
char *arena_dup_n(Arena *a, const char *s, size_t n);        /* adds a NUL */
char *arena_printf(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Growable array inside an arena: PUSH(arena, items, n, cap, value). Old storage is abandoned to the arena. */
#define PUSH(a, items, n, cap, ...)                                                                   \
  do {                                                                                                \
    if ((n) == (cap)) (items) = arena_grow((a), (items), sizeof *(items), (size_t)(n), &(cap));       \
    (items)[(n)++] = (__VA_ARGS__);                                                                   \
  } while (0)
void *arena_grow(Arena *a, const void *items, size_t n_bytes_each, size_t n, int *cap);

/* err.c: what the world did wrong. NULL is success. The text says what, got and expected; callers add context on the way up. */
typedef enum ErrKind {
  ERR_IO = 1, ERR_FORMAT, ERR_LIMIT, ERR_MEMORY, ERR_USAGE, ERR_NOT_FOUND, ERR_UNSUPPORTED, ERR_SYNTAX, ERR_SHAPE, ERR_NETWORK, ERR_CANCELLED
} ErrKind;
Err *err_new(ErrKind kind, const char *fmt, ...) __attribute__((format(printf, 2, 3), returns_nonnull));
Err *err_wrap(Err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* "context: old text"; NULL stays NULL */
Err *err_retype(Err *e, ErrKind from, ErrKind to);           /* from 0: whatever it was; NULL stays NULL */
const char *err_text(const Err *e);
ErrKind err_kind(const Err *e);
void err_free(Err *e);                                       /* NULL is fine */
#define TRY(expr) do { Err *try_e_ = (expr); if (try_e_) return try_e_; } while (0)

/* str.c: growable byte string on the heap, always NUL-terminated. Zero-initialise; str_free releases. */
typedef struct Str { char *p; size_t n, cap; } Str;
void str_free(Str *s);
void str_clear(Str *s);
void str_add(Str *s, const char *text);
void str_add_n(Str *s, const void *p, size_t n);
void str_add_c(Str *s, char c);
void str_addf(Str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void str_vaddf(Str *s, const char *fmt, va_list ap);
void str_add_float(Str *s, double v, bool is_f32);           /* the fewest digits that read back as v; is_f32: as the float v is */
int str_edit_distance(const char *a, const char *b);         /* for "did you mean" */
uint64_t hash_bytes(const void *p, size_t n, uint64_t seed); /* FNV-1a style, 64 bits */

/* num.c: small floats. */
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);                                /* nearest even */
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f);                               /* nearest even; NaN stays NaN */
float f32_from_bits(uint32_t u);
uint32_t f32_to_bits(float f);

/* map.c: files in memory. Bytes of a file that shrank or failed read as 0, and no signal ends the process: whoever made something of them asks. */
typedef struct FileMap { const uint8_t *p; size_t n_bytes; } FileMap;
Err *os_map_file(const char *path, FileMap *out);            /* a regular file, read-only, private */
void os_unmap_file(FileMap *m);
bool os_map_failed(const FileMap *m);                        /* some of it could not be read; costs next to nothing */
Err *os_map_check(const FileMap *m, const char *path);       /* that, or the file was changed since. Fails: ERR_IO */
void os_drop_file_pages(const void *p, size_t n_bytes);      /* they are read again when touched again */

/* os.c: files, memory, time, CPUs. */
struct stat;
Err *os_open_regular(const char *path, int *fd, struct stat *st); /* for reading; a pipe is refused, not waited for */
Err *os_read_file(const char *path, size_t max_bytes, Str *out);   /* a regular file: no pipe is waited for */
Err *os_read_text(const char *path, size_t max_bytes, Str *out);   /* likewise, what somebody wrote: less a byte order mark. Fails: ERR_FORMAT too (UTF-16) */
Err *os_read_input(const char *path, size_t max_bytes, Str *out);  /* the same of what the user names: "-" is standard input, a pipe is read to its end */
const char *os_input_name(const char *path);                       /* for errors: "-" as words */
Err *os_read_all(FILE *f, size_t max_bytes, Str *out);
bool os_exists(const char *path);
Err *os_look(const char *path, bool *there);                 /* where a file may be missing. Fails: it cannot be told (a folder that may not be searched), or a link to nothing */
bool os_is_dir(const char *path);
bool os_is_device(const char *path);                         /* there, and neither a regular file nor a folder */
Err *os_make_dirs(const char *path);
char *os_cache_dir(Arena *a);                                /* LUMEN_HOME, else XDG_CACHE_HOME/lumen, else HOME/.cache/lumen (HOME: else the home of the account) */
int64_t os_now_ns(void);                                     /* monotonic */
int64_t os_thread_cpu_ns(void);                              /* processor time of the calling thread */
int64_t os_process_cpu_ns(void);                             /* of all threads */
int64_t os_process_start_ns(void);                           /* same clock as os_now_ns */
int os_thread_new(void *(*run)(void *), void *arg, pthread_t *out); /* 0, or an errno; signals sent to the process go to other threads */
int os_n_cpus(void);                                         /* affinity and cgroup quota, at least 1 */
size_t os_peak_rss_bytes(void);

/* out.c: a file that is written. It appears when it is whole, through a link in its target's place; a device or a pipe takes bytes as they come; "-" is
   standard output, which is left open. */
typedef struct OutFile { FILE *f; Str name, target, part; } OutFile; /* name: for messages; part: where it grows, "": no file of its own */
Err *os_out_check(const char *path);                         /* before the work whose result goes there, and when all is open that is read, none of which it may be. NULL, "-" are fine. Fails: ERR_USAGE, ERR_IO, ERR_NOT_FOUND */
Err *os_out_open(const char *path, OutFile *out);
Err *os_out_write(OutFile *o, const void *p, size_t n_bytes);
Err *os_out_finish(OutFile *o);                              /* either way o is gone: it is there, and on the disk, or what was there before is */
void os_out_drop(OutFile *o);                                /* what was written is taken back; of a device nothing */
Err *os_write_file(const char *path, const void *p, size_t n_bytes); /* all at once, and not waited for until the disk has it */
void os_input_note(int fd);                                  /* this regular file is read; the readers above say so themselves */

/* Page memory, zeroed; huge pages are asked for when n_bytes >= 2 MiB. */
typedef struct Pages { uint8_t *p; size_t n_bytes; } Pages;
Err *os_pages_alloc(size_t n_bytes, Pages *out);
Err *os_pages_alloc_small(size_t n_bytes, Pages *out);       /* no huge pages: for memory that is touched here and there */
void os_pages_want_huge(const Pages *p);                     /* from now on, and what small pages back already; a wish */
void os_pages_free(Pages *p);
size_t os_pages_huge_bytes(const Pages *p);                  /* how much of it huge pages back now */

/* trace.c: LUMEN_TRACE / --trace. Stages are rows of trace.def. */
typedef enum TraceStage {
#define TRACE(name, meaning) TRACE_##name,
#include "base/trace.def"
#undef TRACE
  TRACE_COUNT
} TraceStage;
Err *trace_open(const char *spec);                           /* "stage[,stage..][@kernel-glob][>file]"; "help" lists */
Err *trace_finish(void);                                     /* all that was traced is in its file */
bool trace_on(TraceStage s, const char *kernel);             /* kernel may be NULL */
void trace_printf(TraceStage s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void trace_text(TraceStage s, const char *title, const char *text);
void trace_help(FILE *out);
#endif
