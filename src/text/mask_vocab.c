/* A vocabulary as masks need it: what each token writes, in tries. In: a TextVocab or plain byte strings. Out: an immutable GrammarVocab. */
#include <stdlib.h>
#include <string.h>
#include "text/mask_priv.h"
#include "text/priv.h"

const int grammar_bucket_bytes[MASK_BUCKETS] = {3, 6, 12, MASK_BYTES_MAX};

static void *need(void *p) {
  CHECK(p);
  return p;
}

static int word_order(const void *x, const void *y) {
  const MaskWord *a = x, *b = y;
  int c = memcmp(a->p, b->p, MIN(a->n, b->n));
  return c ? c : a->n != b->n ? (a->n < b->n ? -1 : 1) : a->token < b->token ? -1 : a->token > b->token;
}

void grammar_trie_build(MaskWord *word, size_t n, MaskTrie *out) {
  MaskTrie t = {0};
  size_t n_nodes = 0, m = 0, depth = 0;
  for (size_t i = 0; i < n; i++) if (word[i].n) { word[m++] = word[i]; n_nodes += word[i].n; }
  if (!m) { *out = t; return; }
  qsort(word, m, sizeof *word, word_order);
  t.node = need(malloc(n_nodes * sizeof *t.node));
  t.token = need(malloc(m * sizeof *t.token));
  uint32_t *path = need(malloc((n_nodes + 1) * sizeof *path));
  for (size_t i = 0; i < m; i++) {
    size_t same = 0;
    if (i) while (same < word[i].n && same < word[i - 1].n && word[i].p[same] == word[i - 1].p[same]) same++;
    while (depth > same) t.node[path[--depth]].skip = t.n;
    while (depth < word[i].n) {
      path[depth] = t.n;
      t.node[t.n++] = (MaskNode){.byte = word[i].p[depth], .depth = (uint16_t)(depth + 1), .tok = t.n_tokens};
      depth++;
    }
    t.node[path[depth - 1]].n_tok++;
    t.token[t.n_tokens++] = word[i].token;
  }
  while (depth) t.node[path[--depth]].skip = t.n;
  free(path);
  *out = t;
}

void grammar_trie_free(MaskTrie *t) {
  free(t->node);
  free(t->token);
}

int grammar_plain_next(int state, int b) {
  static const struct { uint8_t lo, hi, next; } cont[] = {{0, 0, 0}, {0x80, 0xBF, 0}, {0x80, 0xBF, 1}, {0x80, 0xBF, 2}, {0xA0, 0xBF, 1}, {0x80, 0x9F, 1}, {0x90, 0xBF, 2}, {0x80, 0x8F, 2}};
  if (state) return b >= cont[state].lo && b <= cont[state].hi ? cont[state].next : -1;
  if (b < 0x80) return b >= 0x20 && b != '"' && b != '\\' ? 0 : -1;
  if (b < 0xC2 || b > 0xF4) return -1;
  if (b < 0xE0) return 1;
  if (b < 0xF0) return b == 0xE0 ? 4 : b == 0xED ? 5 : 2;
  return b == 0xF0 ? 6 : b == 0xF4 ? 7 : 3;
}

static int trie_of(const uint8_t *p, uint32_t n) {
  if (n > MASK_BYTES_MAX) return MASK_LONG;
  int state = 0;
  for (uint32_t i = 0; i < n; i++) if ((state = grammar_plain_next(state, p[i])) < 0) return MASK_OTHER;
  if (state) return MASK_OTHER;
  int k = 0;
  while ((int)n > grammar_bucket_bytes[k]) k++;
  return k;
}

/* Which bytes a token has. */
static void note_bytes(GrammarVocab *v, size_t i, int kind) {
  uint64_t bit = 1ull << (i % 64);
  const uint8_t *p = v->bytes + v->off[i];
  size_t n = v->off[i + 1] - v->off[i];
  if (kind >= MASK_LONG) return;
  v->short_mask[i / 64] |= bit;
  for (size_t k = 0; k < n; k++) v->byte_mask[p[k] * v->n_words + i / 64] |= bit;
  if (text_utf8_valid((const char *)p, n) < n) v->torn_mask[i / 64] |= bit;
}

/* For each pair of neighbours its tokens: counted, then placed. */
static void note_pairs(GrammarVocab *v, const uint8_t *kind) {
  v->pair_at = need(calloc(MASK_PAIRS + 1, sizeof *v->pair_at));
  for (int places = 0; places < 2; places++) {
    for (size_t i = 0; i < (size_t)v->n_tokens; i++) {
      if (kind[i] >= MASK_LONG) continue;
      for (uint32_t k = v->off[i]; k + 1 < v->off[i + 1]; k++) {
        uint32_t *at = &v->pair_at[v->bytes[k] * 256 + v->bytes[k + 1]];
        if (places) v->pair_token[--*at] = (int32_t)i;
        else ++*at;
      }
    }
    if (places) break;
    for (int p = 1; p <= MASK_PAIRS; p++) v->pair_at[p] += v->pair_at[p - 1]; /* ends; placing makes them beginnings */
    v->pair_token = need(malloc((v->pair_at[MASK_PAIRS] + 1) * sizeof *v->pair_token));
  }
}

Err *grammar_vocab_from_bytes(const uint8_t *const *bytes, const uint32_t *n_bytes, int n_tokens, GrammarVocab **out) {
  size_t total = 0;
  for (int i = 0; i < n_tokens; i++) {
    if (bytes[i] && n_bytes[i] > UINT16_MAX) return err_new(ERR_LIMIT, "token %d writes %u bytes, expected at most %d", i, n_bytes[i], UINT16_MAX);
    total += bytes[i] ? n_bytes[i] : 0;
  }
  if (total > UINT32_MAX) return err_new(ERR_LIMIT, "a vocabulary of %zu bytes, expected less than 4 GiB", total);
  GrammarVocab *v = need(calloc(1, sizeof *v));
  size_t n = (size_t)n_tokens;
  v->n_tokens = n_tokens;
  v->n_words = (n + 63) / 64;
  v->bytes = need(malloc(total + 1));
  v->off = need(calloc(n + 1, sizeof *v->off));
  v->usable = need(calloc(n + 1, 1));
  for (size_t i = 0; i < n; i++) {
    uint32_t k = bytes[i] ? n_bytes[i] : 0;
    if (k) memcpy(v->bytes + v->off[i], bytes[i], k);
    v->off[i + 1] = v->off[i] + k;
    v->usable[i] = k > 0;
  }
  MaskWord *word = need(malloc((n + 1) * sizeof *word));
  uint8_t *kind = need(malloc(n + 1));
  for (size_t i = 0; i < n; i++) kind[i] = (uint8_t)(v->usable[i] ? trie_of(v->bytes + v->off[i], v->off[i + 1] - v->off[i]) : MASK_TRIES);
  for (int t = 0; t < MASK_TRIES; t++) {
    size_t m = 0;
    if (t < MASK_BUCKETS) v->bucket_mask[t] = need(calloc(v->n_words + 1, sizeof(uint64_t)));
    for (size_t i = 0; i < n; i++) {
      if (kind[i] != t) continue;
      word[m++] = (MaskWord){v->bytes + v->off[i], v->off[i + 1] - v->off[i], (int32_t)i};
      if (t < MASK_BUCKETS) v->bucket_mask[t][i / 64] |= 1ull << (i % 64);
    }
    grammar_trie_build(word, m, &v->trie[t]);
  }
  v->short_mask = need(calloc(v->n_words + 1, sizeof(uint64_t)));
  v->torn_mask = need(calloc(v->n_words + 1, sizeof(uint64_t)));
  v->byte_mask = need(calloc(256 * v->n_words + 1, sizeof(uint64_t)));
  for (size_t i = 0; i < n; i++) note_bytes(v, i, kind[i]);
  note_pairs(v, kind);
  v->chars_mask = need(calloc((MASK_BYTES_MAX + 1) * v->n_words + 1, sizeof(uint64_t)));
  for (size_t i = 0; i < n; i++) {
    if (kind[i] >= MASK_BUCKETS) continue;
    size_t chars = 0;
    for (uint32_t k = v->off[i]; k < v->off[i + 1]; k++) chars += (v->bytes[k] & 0xC0) != 0x80;
    for (; chars <= MASK_BYTES_MAX; chars++) v->chars_mask[chars * v->n_words + i / 64] |= 1ull << (i % 64);
  }
  free(word);
  free(kind);
  *out = v;
  return NULL;
}

/* What a token writes in the middle of a text. */
static void token_bytes(const TextVocab *v, const Tok *t, Str *out) {
  if (t->special || t->type == TEXT_TOKEN_UNUSED) return;
  if (v->decode == DECODE_BYTES) str_add_n(out, t->piece, t->n_piece);
  else if (t->byte >= 0) str_add_c(out, (char)t->byte);
  else
    for (uint32_t i = 0; i < t->n_text;) {
      if (t->n_text - i >= 3 && !memcmp(t->text + i, "\xE2\x96\x81", 3)) { str_add_c(out, ' '); i += 3; }
      else str_add_c(out, t->text[i++]);
    }
}

void text_vocab_bytes(const TextVocab *v, int32_t id, Str *out) {
  const Tok *t = id >= 0 && id < v->n_tokens ? &v->tok[id] : NULL;
  if (t && (t->special || t->type == TEXT_TOKEN_UNUSED)) str_add_n(out, t->text, t->n_text);
  else if (t) token_bytes(v, t, out);
}

Err *grammar_vocab_new(const TextVocab *v, GrammarVocab **out) { return grammar_vocab_new_with(v, NULL, NULL, out); }

Err *grammar_vocab_new_with(const TextVocab *v, bool (*keeps)(void *ctx, const char *spelling, size_t n), void *ctx, GrammarVocab **out) {
  if (v->decode != DECODE_BYTES && v->decode != DECODE_SPM && v->decode != DECODE_METASPACE)
    return err_new(ERR_UNSUPPORTED, "structured output: what this vocabulary's tokens write depends on their neighbours");
  size_t n = (size_t)v->n_tokens;
  Str all = {0};
  size_t *at = need(calloc(n + 1, sizeof *at));
  const uint8_t **p = need(calloc(n + 1, sizeof *p));
  uint32_t *len = need(calloc(n + 1, sizeof *len));
  for (size_t i = 0; i < n; i++) {
    at[i] = all.n;
    const Tok *t = &v->tok[i];
    if (t->special && keeps && keeps(ctx, t->text, t->n_text)) str_add_c(&all, (char)GR_SPECIAL), str_add_n(&all, t->text, t->n_text);
    else token_bytes(v, t, &all);
    if (keeps && !t->special && all.n > at[i] && memchr(all.p + at[i], GR_SPECIAL, all.n - at[i])) all.n = at[i]; /* the lone byte is no text */
    len[i] = (uint32_t)(all.n - at[i]);
  }
  for (size_t i = 0; i < n; i++) p[i] = len[i] ? (const uint8_t *)all.p + at[i] : NULL;
  Err *e = grammar_vocab_from_bytes(p, len, v->n_tokens, out);
  str_free(&all);
  free(at);
  free(p);
  free(len);
  return e;
}

void grammar_vocab_free(GrammarVocab *v) {
  if (!v) return;
  for (int t = 0; t < MASK_TRIES; t++) grammar_trie_free(&v->trie[t]);
  for (int t = 0; t < MASK_BUCKETS; t++) free(v->bucket_mask[t]);
  free(v->chars_mask);
  free(v->short_mask);
  free(v->torn_mask);
  free(v->byte_mask);
  free(v->pair_at);
  free(v->pair_token);
  free(v->bytes);
  free(v->off);
  free(v->usable);
  free(v);
}

int grammar_vocab_n_tokens(const GrammarVocab *v) { return v->n_tokens; }
size_t grammar_vocab_mask_words(const GrammarVocab *v) { return v->n_words; }
const uint8_t *grammar_vocab_bytes(const GrammarVocab *v, int32_t id, size_t *n) {
  if (id < 0 || id >= v->n_tokens || !v->usable[id]) return NULL;
  *n = v->off[id + 1] - v->off[id];
  return v->bytes + v->off[id];
}
