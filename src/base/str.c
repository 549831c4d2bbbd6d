/* Growable strings and a few functions over bytes. */
#include <stdlib.h>
#include <string.h>
#include "base/base.h"

static void reserve(Str *s, size_t more) {
  CHECK(more < SIZE_MAX / 4 && s->n < SIZE_MAX / 4, "string too long");
  if (s->n + more + 1 <= s->cap) return;
  size_t cap = MAX(s->cap * 2, s->n + more + 1);
  char *p = realloc(s->p, MAX(cap, (size_t)64));
  CHECK(p, "out of memory for a string of %zu bytes", cap);
  s->p = p;
  s->cap = MAX(cap, (size_t)64);
}

void str_free(Str *s) {
  free(s->p);
  *s = (Str){0};
}

void str_clear(Str *s) {
  s->n = 0;
  if (s->p) s->p[0] = 0;
}

void str_add_n(Str *s, const void *p, size_t n) {
  reserve(s, n);
  if (n) memcpy(s->p + s->n, p, n);
  s->n += n;
  s->p[s->n] = 0;
}

void str_add(Str *s, const char *text) { str_add_n(s, text, strlen(text)); }
void str_add_c(Str *s, char c) { str_add_n(s, &c, 1); }

void str_vaddf(Str *s, const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  CHECK(n >= 0, "bad format");
  reserve(s, (size_t)n);
  vsnprintf(s->p + s->n, (size_t)n + 1, fmt, again);
  va_end(again);
  s->n += (size_t)n;
}

void str_addf(Str *s, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(s, fmt, ap);
  va_end(ap);
}

void str_add_float(Str *s, double v, bool is_f32) {
  char text[40];
  int most = is_f32 ? 9 : 17, digits = 1, whole = 1;
  for (;; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, v);
    if (digits == most || (is_f32 ? strtof(text, NULL) == (float)v : strtod(text, NULL) == v)) break;
  }
  for (double at = 10; v < 1e16 && v > -1e16 && (v >= at || v <= -at); at *= 10) whole++;
  str_addf(s, "%.*g", MAX(digits, whole), v); /* 10000, not 1e+04 */
}

/* Levenshtein distance, names cut at 63 bytes. */
int str_edit_distance(const char *a, const char *b) {
  int row[64], na = (int)MIN(strlen(a), (size_t)63), nb = (int)MIN(strlen(b), (size_t)63);
  for (int j = 0; j <= nb; j++) row[j] = j;
  for (int i = 1; i <= na; i++) {
    int diag = row[0];
    row[0] = i;
    for (int j = 1; j <= nb; j++) {
      int up = row[j], best = diag + (a[i - 1] != b[j - 1]);
      best = MIN(best, MIN(up + 1, row[j - 1] + 1));
      diag = up;
      row[j] = best;
    }
  }
  return row[nb];
}

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed) {
  const uint8_t *b = p;
  uint64_t h = seed ^ 0xcbf29ce484222325u;
  for (size_t i = 0; i < n; i++) h = (h ^ b[i]) * 0x100000001b3u;
  return h ^ h >> 29;
}
