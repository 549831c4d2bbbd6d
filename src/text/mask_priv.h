/* What vocabularies of masks and matchers share. */
#ifndef LUMEN_MASK_PRIV_H
#define LUMEN_MASK_PRIV_H
#include "text/grammar_priv.h"

/* A trie in the order of a walk: a node's subtree is the nodes up to skip; depth counts bytes from 1. Tokens of a node: tok .. tok + n_tok. */
typedef struct MaskNode { uint32_t skip, tok, n_tok; uint16_t depth; uint8_t byte; } MaskNode;
typedef struct MaskTrie { MaskNode *node; uint32_t n; int32_t *token; uint32_t n_tokens; } MaskTrie;
typedef struct MaskWord { const uint8_t *p; uint32_t n; int32_t token; } MaskWord;
void grammar_trie_build(MaskWord *word, size_t n, MaskTrie *out); /* sorts word; empty words are left out; heap, trie_free */
void grammar_trie_free(MaskTrie *t);

/* Plain tokens are whole characters that a JSON string holds as they are. They lie in buckets by length, so that a state which lets every
   plain text pass for so many bytes takes a bucket's tokens without looking at them. Long tokens are walked apart: what holds for
   MASK_BYTES_MAX bytes holds for all others. */
enum { MASK_BUCKETS = 4, MASK_OTHER = MASK_BUCKETS, MASK_LONG, MASK_TRIES, MASK_BYTES_MAX = 24 };
enum { MASK_PAIRS = 256 * 256 }; /* two neighbours in a token: the first times 256 and the second */
struct GrammarVocab {
  int n_tokens;
  size_t n_words;
  uint8_t *bytes;
  uint32_t *off;           /* [n_tokens + 1] */
  bool *usable;
  MaskTrie trie[MASK_TRIES];
  uint64_t *bucket_mask[MASK_BUCKETS];
  uint64_t *short_mask;    /* [n_words] all but those of MASK_LONG */
  uint64_t *torn_mask;     /* [n_words] of these, those that are no whole characters */
  uint64_t *byte_mask;     /* [256][n_words] of these, those with this byte in them */
  uint64_t *chars_mask;    /* [MASK_BYTES_MAX + 1][n_words] plain tokens of at most so many characters, long ones left out */
  uint32_t *pair_at;       /* [MASK_PAIRS + 1] for each two neighbours, where pair_token has the tokens with them, long ones left out */
  int32_t *pair_token;
};
extern const int grammar_bucket_bytes[MASK_BUCKETS];         /* the longest tokens of each */
int grammar_plain_next(int state, int byte);                 /* UTF-8 of plain characters: 0 between characters; -1: not plain */
#endif
