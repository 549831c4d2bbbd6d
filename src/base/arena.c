/* Arenas: a list of blocks, bumped. Zeroed memory in, pointers with one lifetime out. Not thread-safe: one arena, one owner. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"

struct ArenaBlock { ArenaBlock *next; size_t used, cap; _Alignas(16) uint8_t data[]; };
enum { BLOCK_BYTES = 64 * 1024, ALIGN = 16 };

Arena *arena_new(const char *name) {
  Arena *a = calloc(1, sizeof *a);
  CHECK(a, "out of memory for an arena");
  a->name = name;
  return a;
}

void arena_reset(Arena *a) {
  for (ArenaBlock *b = a->head, *next; b; b = next) {
    next = b->next;
    if (trace_on(TRACE_poison, NULL)) memset(b->data, 0xdb, b->cap);
    free(b);
  }
  a->head = NULL;
  a->n_bytes = 0;
}

void arena_free(Arena *a) {
  if (!a) return;
  arena_reset(a);
  free(a);
}

/* NULL: there is no memory. */
static void *try_alloc(Arena *a, size_t n_bytes) {
  n_bytes = ROUND_UP(n_bytes ? n_bytes : 1, ALIGN);
  if (!a->head || a->head->cap - a->head->used < n_bytes) {
    size_t cap = MAX((size_t)BLOCK_BYTES, n_bytes);
    ArenaBlock *b = calloc(1, sizeof *b + cap);
    if (!b) return NULL;
    b->cap = cap;
    b->next = a->head;
    a->head = b;
  }
  void *p = a->head->data + a->head->used;
  a->head->used += n_bytes;
  a->n_bytes += n_bytes;
  return p;
}

void *arena_alloc(Arena *a, size_t n_bytes) {
  CHECK(n_bytes < SIZE_MAX / 2, "arena %s: absurd size", a->name);
  void *p = try_alloc(a, n_bytes);
  CHECK(p, "out of memory: arena %s wanted %zu bytes", a->name, n_bytes);
  return p;
}

Err *arena_alloc_large(Arena *a, size_t n, size_t n_bytes, const char *what, void **out) {
  void *p = n_bytes && n > SIZE_MAX / 4 / n_bytes ? NULL : try_alloc(a, n * n_bytes);
  if (!p) return err_new(ERR_MEMORY, "%s: no memory for %zu times %zu bytes", what, n, n_bytes);
  *out = p;
  return NULL;
}

void *arena_alloc_array(Arena *a, size_t n, size_t n_bytes) {
  CHECK(n_bytes == 0 || n < SIZE_MAX / 2 / n_bytes, "arena %s: absurd count %zu", a->name, n);
  return arena_alloc(a, n * n_bytes);
}

void *arena_grow(Arena *a, const void *items, size_t n_bytes_each, size_t n, int *cap) {
  CHECK(*cap <= INT_MAX / 2, "arena %s: a list of more than %d", a->name, *cap);
  int next = *cap ? *cap * 2 : 8;
  void *p = arena_alloc_array(a, (size_t)next, n_bytes_each);
  if (n) memcpy(p, items, n * n_bytes_each);
  *cap = next;
  return p;
}

char *arena_dup_n(Arena *a, const char *s, size_t n) {
  char *p = arena_alloc(a, n + 1);
  memcpy(p, s, n);
  p[n] = 0;
  return p;
}

char *arena_dup(Arena *a, const char *s) { return arena_dup_n(a, s, strlen(s)); }

char *arena_printf(Arena *a, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  CHECK(n >= 0, "bad format");
  char *p = arena_alloc(a, (size_t)n + 1);
  va_start(ap, fmt);
  vsnprintf(p, (size_t)n + 1, fmt, ap);
  va_end(ap);
  return p;
}
