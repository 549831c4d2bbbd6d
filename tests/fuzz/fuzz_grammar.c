/* libFuzzer targets of structured output: one for each language (LANGUAGE 0 regular expressions, 1 GBNF, 2 schemas; without it the first byte
   picks). The first byte picks flags; up to a zero byte stands the grammar, behind it a text that is followed byte by byte with masks of a small
   vocabulary. Anything is refused or followed; a mask and accepting agree. tests/fuzz/run builds and runs it. */
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "text/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static GrammarVocab *bytes_vocab(void) {
  static uint8_t byte[256];
  static const char *const more[] = {"{\"", "\":", "\",\"", "}]", "true", "\xED\x95\x9C", "\xED\x95", "aaaa", "  ", "a<b", "END\n", "x E", "<\xED\x95\x9C", "aE", "b</"};
  const uint8_t *p[256 + COUNT_OF(more)];
  uint32_t len[256 + COUNT_OF(more)];
  GrammarVocab *v = NULL;
  for (int i = 0; i < 256; i++) { byte[i] = (uint8_t)i; p[i] = &byte[i]; len[i] = 1; }
  for (size_t i = 0; i < COUNT_OF(more); i++) { p[256 + i] = (const uint8_t *)more[i]; len[256 + i] = (uint32_t)strlen(more[i]); }
  if (grammar_vocab_from_bytes(p, len, 256 + COUNT_OF(more), &v)) abort();
  return v;
}

static Err *compile(int how, const char *p, size_t n, Grammar **out) {
  json_t *js;
#ifdef LANGUAGE
  how = how / 3 * 3 + LANGUAGE;
#endif
  if (how % 3 == 0) return grammar_from_regex(p, n, out);
  if (how % 3 == 1) return grammar_from_gbnf(p, n, out);
  TRY(json_parse_text(p, n, 1 << 16, "schema", &js));
  Err *e = grammar_from_schema(js, (unsigned)how / 3 & 7, out);
  json_decref(js);
  return e;
}

static void follow(const Grammar *g, const GrammarVocab *v, const uint8_t *p, size_t n) {
  GrammarMatcher *m = grammar_matcher_new(g, v);
  GrammarState *s = grammar_state_start(m), *next = NULL;
  uint64_t mask[8];
  for (size_t i = 0; i < n && i < 64; i++) {
    Err *e = grammar_state_mask(s, mask);
    bool told = !e;
    err_free(e);
    next = NULL;
    e = grammar_state_accept(s, p + i, 1, &next);
    if (!e && told && (next != NULL) != (mask[p[i] / 64] >> (p[i] % 64) & 1)) abort();
    err_free(e);
    for (int k = 256; told && k < grammar_vocab_n_tokens(v); k++) {
      GrammarState *to = NULL;
      e = grammar_state_accept_token(s, k, &to);
      if (!e && (to != NULL) != (mask[k / 64] >> (k % 64) & 1)) abort();
      err_free(e);
      grammar_state_unref(to);
    }
    if (!next) break;
    grammar_state_unref(s);
    s = next;
  }
  grammar_state_unref(s);
  grammar_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static GrammarVocab *v;
  if (!v) v = bytes_vocab();
  if (!n) return 0;
  const uint8_t *zero = memchr(data + 1, 0, n - 1);
  size_t k = zero ? (size_t)(zero - data) - 1 : n - 1;
  Grammar *g = NULL;
  Err *e = compile(data[0], (const char *)data + 1, k, &g);
  if (!e) follow(g, v, data + 1 + k + (zero != NULL), n - 1 - k - (zero != NULL));
  err_free(e);
  grammar_free(g);
  return 0;
}
