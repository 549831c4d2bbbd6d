/* grammar: structured output. A JSON Schema, a regular expression or a GBNF grammar becomes one intermediate: a context-free grammar over
   bytes whose rules are deterministic automata. A matcher runs it over bytes and says which tokens of a vocabulary may come next.

     Grammar *g;         TRY(grammar_from_schema(json, 0, &g));          immutable, shared between threads
     GrammarVocab *v;    TRY(grammar_vocab_new(text_vocab, &v));          immutable, one for each vocabulary
     GrammarMatcher *m = grammar_matcher_new(g, v);                       caches; its functions lock it, so any thread may call them
     GrammarState *s = grammar_state_start(m);
     TRY(grammar_state_mask(s, mask)); sample; TRY(grammar_state_accept_token(s, id, &next)); grammar_state_unref(s); s = next; */
#ifndef LUMEN_GRAMMAR_H
#define LUMEN_GRAMMAR_H
#include <jansson.h>
#include "text/text.h"

typedef struct Grammar Grammar;
enum {
  GRAMMAR_ANY_ORDER = 1,   /* properties in any order (objects of at most 48 names; beyond, in schema order), integers also as 1.0; names and
                              texts that the schema spells (enum, const, pattern, format) also with escapes nobody must use */
  GRAMMAR_COMPACT = 2,     /* no white space at all between JSON tokens */
  GRAMMAR_RELAX = 4        /* what cannot be enforced is left out and told by grammar_warnings, instead of refused */
};
/* The schema is read during the call only. Fails: ERR_UNSUPPORTED (a keyword that cannot be enforced, with its path), ERR_FORMAT (not a
   schema), ERR_LIMIT (too large), ERR_SYNTAX (a pattern). A schema that nothing satisfies is a grammar that is empty, not an error. */
Err *grammar_from_schema(const json_t *schema, unsigned flags, Grammar **out);
/* The whole text must match. ECMA-262 syntax, Unicode; no back references, no look-around. Fails: ERR_SYNTAX, ERR_UNSUPPORTED, ERR_LIMIT. */
Err *grammar_from_regex(const char *re, size_t n, Grammar **out);
/* llama.cpp's GBNF; rule `root` is the start. Fails: ERR_SYNTAX (with the line), ERR_UNSUPPORTED (left recursion, by the rule's name), ERR_LIMIT. */
Err *grammar_from_gbnf(const char *text, size_t n, Grammar **out);
/* Any JSON object (response_format json_object). */
Err *grammar_from_json_object(unsigned flags, Grammar **out);
void grammar_free(Grammar *g);                               /* NULL is fine; after its matchers */
bool grammar_is_empty(const Grammar *g);                     /* nothing satisfies it */
const char *grammar_warnings(const Grammar *g);              /* one line each; "" if there are none */
typedef struct GrammarSize { int n_rules, n_states, n_edges; } GrammarSize;
GrammarSize grammar_size(const Grammar *g);

typedef struct GrammarVocab GrammarVocab;
Err *grammar_vocab_new(const TextVocab *v, GrammarVocab **out); /* special and unused tokens are in no mask */
/* bytes[i], n_bytes[i]: what token i writes; NULL: in no mask. Borrowed during the call only. */
Err *grammar_vocab_from_bytes(const uint8_t *const *bytes, const uint32_t *n_bytes, int n_tokens, GrammarVocab **out);
/* The same where the special tokens that keeps says yes to write their spelling: markers of calls, for one. A byte 0xFF stands in front of it, so
   that no text holds one: grammars of calls have both spellings of a marker. */
Err *grammar_vocab_new_with(const TextVocab *v, bool (*keeps)(void *ctx, const char *spelling, size_t n), void *ctx, GrammarVocab **out);
void grammar_vocab_free(GrammarVocab *v);                    /* NULL is fine */
int grammar_vocab_n_tokens(const GrammarVocab *v);
size_t grammar_vocab_mask_words(const GrammarVocab *v);      /* 64-bit words of a mask */
const uint8_t *grammar_vocab_bytes(const GrammarVocab *v, int32_t id, size_t *n); /* NULL: in no mask */

typedef struct GrammarMatcher GrammarMatcher;
GrammarMatcher *grammar_matcher_new(const Grammar *g, const GrammarVocab *v); /* both outlive it; v may be NULL: then no masks */
void grammar_matcher_free(GrammarMatcher *m);                /* after its states; NULL is fine */

/* Where a text stands in the grammar. Immutable; forking is ref. */
typedef struct GrammarState GrammarState;
GrammarState *grammar_state_start(GrammarMatcher *m);
GrammarState *grammar_state_ref(GrammarState *s);
void grammar_state_unref(GrammarState *s);                   /* NULL is fine */
/* *out: the state after these bytes, or NULL when no text of the grammar goes on so. Fails: ERR_LIMIT (too ambiguous to follow). */
Err *grammar_state_accept(GrammarState *s, const void *bytes, size_t n, GrammarState **out);
Err *grammar_state_accept_token(GrammarState *s, int32_t id, GrammarState **out);
bool grammar_state_may_end(const GrammarState *s);           /* what was read is a whole text of the grammar */
bool grammar_state_must_end(const GrammarState *s);          /* and nothing may follow */
/* Bit i of mask (word i / 64): token i may come next. End tokens are the caller's: allow them when grammar_state_may_end. */
Err *grammar_state_mask(GrammarState *s, uint64_t *mask);
/* Appends the bytes that must come next, as far as there is no choice (at most max_bytes). */
Err *grammar_state_forced(GrammarState *s, size_t max_bytes, Str *out);
#endif
