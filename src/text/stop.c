/* Stop texts. In: text in pieces of any size. Out: the text before the first stop text, and what was not one. Each text is followed with the
   table of its borders, so a byte costs the number of texts, not their lengths. */
#include <stdlib.h>
#include <string.h>
#include "text/reply.h"

/* The next number of matched bytes of stop text i after n of them and byte c. */
static int matched(const TextStops *s, int i, int n, char c) {
  while (n && s->stop[i][n] != c) n = s->back[i][n - 1];
  return s->stop[i][n] == c ? n + 1 : 0;
}

Err *text_stops_init(TextStops *s, const char *const *stop, int n) {
  if (n > TEXT_STOP_MAX) return err_new(ERR_LIMIT, "%d stop texts, at most %d are taken", n, TEXT_STOP_MAX);
  for (int i = 0; i < n; i++) {
    size_t k = strlen(stop[i]), valid = text_utf8_valid(stop[i], k);
    if (!k) return err_new(ERR_USAGE, "stop text %d is empty", i + 1);
    if (valid != k) return err_new(ERR_USAGE, "stop text %d is no UTF-8, so no answer can have it: byte %zu is 0x%02x", i + 1, valid, (unsigned char)stop[i][valid]);
    if (k > TEXT_STOP_MAX_BYTES) return err_new(ERR_LIMIT, "stop text %d has %zu bytes, at most %d are taken", i + 1, k, TEXT_STOP_MAX_BYTES);
  }
  *s = (TextStops){.n = n, .hit = -1};
  for (int i = 0; i < n; i++) {
    int k = (int)strlen(stop[i]);
    s->stop[i] = stop[i];
    s->n_bytes[i] = k;
    s->back[i] = calloc((size_t)k, sizeof *s->back[i]);
    CHECK(s->back[i], "no memory for a stop text");
    for (int j = 1; j < k; j++) s->back[i][j] = (uint16_t)matched(s, i, s->back[i][j - 1], stop[i][j]);
  }
  return NULL;
}

void text_stops_free(TextStops *s) {
  for (int i = 0; i < s->n; i++) free(s->back[i]);
  str_free(&s->held);
  *s = (TextStops){0};
}

bool text_stops_take(TextStops *s, const char *text, size_t n, Str *out) {
  if (s->hit >= 0) return true;
  if (!s->n) {
    str_add_n(out, text, n);
    return false;
  }
  for (size_t k = 0; k < n; k++) {
    int longest = 0;
    str_add_c(&s->held, text[k]);
    for (int i = 0; i < s->n; i++) {
      s->n_matched[i] = matched(s, i, s->n_matched[i], text[k]);
      longest = MAX(longest, s->n_matched[i]);
      if (s->n_matched[i] == s->n_bytes[i] && (s->hit < 0 || s->n_bytes[i] > s->n_bytes[s->hit])) s->hit = i;
    }
    size_t keep = s->hit >= 0 ? (size_t)s->n_bytes[s->hit] : (size_t)longest, certain = s->held.n - keep;
    if (certain && (s->hit >= 0 || !keep || certain > TEXT_STOP_MAX_BYTES)) {
      str_add_n(out, s->held.p, certain);
      memmove(s->held.p, s->held.p + certain, keep + 1);
      s->held.n = keep;
    }
    if (s->hit >= 0) {
      str_clear(&s->held);
      return true;
    }
  }
  int longest = 0;
  for (int i = 0; i < s->n; i++) longest = MAX(longest, s->n_matched[i]);
  size_t certain = s->held.n - (size_t)longest;
  str_add_n(out, s->held.p ? s->held.p : "", certain);
  if (certain) memmove(s->held.p, s->held.p + certain, (size_t)longest + 1);
  s->held.n = (size_t)longest;
  return false;
}

void text_stops_end(TextStops *s, Str *out) {
  str_add_n(out, s->held.p ? s->held.p : "", s->held.n);
  str_clear(&s->held);
}
