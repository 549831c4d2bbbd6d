/* Scripts of Unicode, from the tables of PCRE2: which characters are Hangul, Greek, Han. In: a script's name, long or of four letters, as Unicode's property files
   spell it. Out: ranges of code points, in order. Every code point is matched once, a plane at a time: some milliseconds in all, so regex.c keeps
   what a compile has asked for. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include "text/grammar_priv.h"
#include "text/priv.h"

enum { PLANE = 1 << 16, N_PLANES = 17 };

/* Letters and single low lines with a capital in front: PCRE2 also takes other spellings, and names of what is no script. */
static bool is_name(const char *s) {
  size_t n = strlen(s);
  if (n < 2 || n > 40 || s[0] < 'A' || s[0] > 'Z') return false;
  for (size_t i = 1; i < n; i++)
    if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z' && s[i - 1] == '_') || (s[i] == '_' && s[i - 1] != '_'))) return false;
  return true;
}

static void match_plane(const pcre2_code *re, pcre2_match_data *data, int plane, char *text, GrWork *w, SymSet *set) {
  size_t n = 0, at = 0;
  int32_t lo, hi;
  for (int32_t cp = plane * PLANE; cp < (plane + 1) * PLANE; cp++)
    if (cp < 0xD800 || cp > 0xDFFF) n += (size_t)text_utf8_put(cp, text + n); /* surrogates are no characters */
  while (at < n && pcre2_match(re, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, data, NULL) >= 0) {
    const PCRE2_SIZE *o = pcre2_get_ovector_pointer(data);
    const char *last = text + o[1] - 1;
    while (((uint8_t)*last & 0xC0) == 0x80) last--;
    text_utf8_next(text + o[0], text + n, &lo);
    text_utf8_next(last, text + n, &hi);
    grammar_set_add(w, set, (uint32_t)lo, (uint32_t)hi);
    at = o[1];
  }
}

bool grammar_script(GrWork *w, const char *name, bool extensions, SymSet *set) {
  char pattern[64];
  int code;
  PCRE2_SIZE at;
  if (!is_name(name)) return false;
  snprintf(pattern, sizeof pattern, "\\p{%s:%s}+", extensions ? "scx" : "sc", name);
  pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &at, NULL);
  if (!re) return false;
  pcre2_jit_compile(re, PCRE2_JIT_COMPLETE); /* without JIT the interpreter does the same */
  pcre2_match_data *data = pcre2_match_data_create(1, NULL);
  char *text = malloc(4 * PLANE);
  CHECK(data && text, "out of memory");
  for (int plane = 0; plane < N_PLANES; plane++) match_plane(re, data, plane, text, w, set);
  free(text);
  pcre2_match_data_free(data);
  pcre2_code_free(re);
  return true;
}
