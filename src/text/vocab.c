/* Vocabularies: the maps from spellings to ids, added tokens, and the walk over a text.
   In: a TextVocabSource (a model file's metadata) or a vocabulary filled by hf.c. Out: an immutable TextVocab.
   Tokenizing: added tokens that are cut out of the raw text, then normalizers, added tokens of the normalized text, pre-tokenizers,
   the model (model.c), and the tokens the vocabulary puts around it all. */
#include <stdlib.h>
#include <string.h>
#include "text/priv.h"

void text_ids_free(TextIds *ids) {
  free(ids->p);
  *ids = (TextIds){0};
}

void text_ids_reserve(TextIds *ids, size_t n) {
  if (n <= ids->cap - ids->n) return;
  ids->cap = MAX(ids->n + n, MAX((size_t)64, ids->cap * 2));
  ids->p = realloc(ids->p, ids->cap * sizeof *ids->p);
  CHECK(ids->p, "out of memory for %zu ids", ids->cap);
}

void text_ids_add(TextIds *ids, int32_t id) {
  text_ids_reserve(ids, 1);
  ids->p[ids->n++] = id;
}

/* Zeroed memory as long as v; what is large lies in huge pages where there are any, for it is read here and there. */
static void *table_alloc(TextVocab *v, size_t n, size_t each) {
  CHECK(n < SIZE_MAX / 64 / each, "a table of %zu entries", n);
  if (n * each < (size_t)2 << 20 || v->n_pages == (int)COUNT_OF(v->pages)) return arena_alloc(v->arena, n * each);
  Pages *p = &v->pages[v->n_pages];
  Err *e = os_pages_alloc(n * each, p);
  CHECK(!e, "%s", err_text(e));
  v->n_pages++;
  return p->p;
}

TextVocab *text_vocab_alloc(int n_tokens) {
  Arena *a = arena_new("vocabulary");
  TextVocab *v = ARENA_NEW(a, TextVocab);
  v->arena = a;
  v->n_tokens = n_tokens;
  v->tok = table_alloc(v, (size_t)n_tokens + 1, sizeof *v->tok);
  for (int i = 0; i < n_tokens; i++) v->tok[i] = (Tok){.text = "", .piece = "", .type = TEXT_TOKEN_UNUSED, .byte = -1};
  for (int i = 0; i < 256; i++) v->byte_id[i] = -1;
  v->unk = v->bos = v->eos = -1;
  v->word_prefix = v->cont_prefix = "";
  v->max_word_chars = 100;
  return v;
}

void text_vocab_free(TextVocab *v) {
  if (!v) return;
  for (int i = 0; i < v->n_regexes; i++) text_regex_free(v->regexes[i]);
  text_trie_free(&v->trie);
  text_trie_free(&v->added_raw);
  text_trie_free(&v->added_norm);
  for (int i = 0; i < v->n_pages; i++) os_pages_free(&v->pages[i]);
  arena_free(v->arena);
}

int text_vocab_n_tokens(const TextVocab *v) { return v->n_tokens; }
const char *text_vocab_warning(const TextVocab *v) { return v->warning; }
int text_vocab_bos(const TextVocab *v) { return v->bos; }
int text_vocab_eos(const TextVocab *v) { return v->eos; }
bool text_vocab_is_special(const TextVocab *v, int32_t id) { return id >= 0 && id < v->n_tokens && v->tok[id].special; }
const char *text_vocab_spelling(const TextVocab *v, int32_t id, size_t *n) {
  if (id < 0 || id >= v->n_tokens) return NULL;
  *n = v->tok[id].n_text;
  return v->tok[id].text;
}

/* Eight bytes at a time, multiplied and folded. */
static uint64_t fold(uint64_t a, uint64_t b) {
  UInt128 m = (UInt128)a * b;
  return (uint64_t)m ^ (uint64_t)(m >> 64);
}

/* The first 8 bytes as a number, or all of them; which ones stand where depends on the machine, and nothing else does. */
static uint64_t head_of(const char *p, size_t n) {
  uint64_t w = 0;
  uint32_t a, b;
  if (n >= 8) {
    memcpy(&w, p, 8);
  } else if (n >= 4) { /* two halves that may overlap */
    memcpy(&a, p, 4);
    memcpy(&b, p + n - 4, 4);
    w = (uint64_t)a << 32 | b;
  } else if (n) {
    w = (uint64_t)(uint8_t)p[0] << 16 | (uint64_t)(uint8_t)p[n / 2] << 8 | (uint8_t)p[n - 1];
  }
  return w;
}

uint64_t text_hash(const char *p, size_t n) {
  uint64_t h = n * 0x9E3779B97F4A7C15u;
  for (; n > 8; p += 8, n -= 8) h = fold(h ^ head_of(p, 8), 0xD6E8FEB86659FD93u);
  return fold(h ^ head_of(p, n) ^ 0xA0761D6478BD642Fu, 0xE7037ED1A0B428DBu);
}

/* Maps: open addressing, at most half full. A slot alone decides on spellings of up to 8 bytes, which most are. */
static bool is_spelled(const TextVocab *v, const IdSlot *s, bool piece, uint64_t head, const char *p, size_t n) {
  if (s->head != head || (s->n & ~(uint32_t)NOT_MODEL) != n) return false;
  if (n <= 8) return true;
  const Tok *t = &v->tok[s->id];
  return !memcmp((piece ? t->piece : t->text) + 8, p + 8, n - 8);
}

/* The first one keeps a spelling, and the first of the model's beside it. */
static void map_put(TextVocab *v, IdMap *m, bool piece, int32_t id, uint32_t hash) {
  const Tok *t = &v->tok[id];
  const char *p = piece ? t->piece : t->text;
  uint32_t n = piece ? t->n_piece : t->n_text, i = hash & m->mask;
  uint64_t head = head_of(p, n);
  for (; m->slot[i].n; i = (i + 1) & m->mask) {
    if (!is_spelled(v, &m->slot[i], piece, head, p, n)) continue;
    v->alike = true;
    if (!t->in_model || !(m->slot[i].n & NOT_MODEL)) return;
  }
  m->slot[i] = (IdSlot){head, n | (t->in_model ? 0 : (uint32_t)NOT_MODEL), id};
}

static uint32_t slots_for(uint32_t n) {
  uint32_t cap = 16;
  while (cap < 2 * n) cap *= 2;
  return cap;
}

/* All tokens, or the model's pieces. */
static void map_fill(TextVocab *v, IdMap *m, bool piece) {
  uint32_t cap = slots_for((uint32_t)v->n_tokens), hash[BATCH];
  *m = (IdMap){table_alloc(v, cap, sizeof *m->slot), cap - 1};
  for (int at = 0; at < v->n_tokens; at += BATCH) {
    int n = MIN((int)BATCH, v->n_tokens - at);
    for (int i = 0; i < n; i++) {
      const Tok *t = &v->tok[at + i];
      hash[i] = (uint32_t)text_hash(piece ? t->piece : t->text, piece ? t->n_piece : t->n_text);
      __builtin_prefetch(&m->slot[hash[i] & m->mask]);
    }
    for (int i = 0; i < n; i++) {
      const Tok *t = &v->tok[at + i];
      if (piece ? t->in_model && t->n_piece : t->n_text) map_put(v, m, piece, at + i, hash[i]);
    }
  }
}

/* piece: of the model's tokens only. */
static inline int map_find(const TextVocab *v, const IdMap *m, bool piece, uint32_t hash, const char *p, size_t n) {
  if (!m->slot || !n) return -1;
  uint64_t head = head_of(p, n);
  for (uint32_t i = hash & m->mask; m->slot[i].n; i = (i + 1) & m->mask)
    if (!(piece && (m->slot[i].n & NOT_MODEL)) && is_spelled(v, &m->slot[i], piece, head, p, n)) return m->slot[i].id;
  return -1;
}

int text_vocab_find(const TextVocab *v, const char *text, size_t n) { return map_find(v, &v->by_text, false, (uint32_t)text_hash(text, n), text, n); }

int text_piece_find(const TextVocab *v, const char *p, size_t n) {
  return map_find(v, v->leveled ? &v->by_piece : &v->by_text, true, (uint32_t)text_hash(p, n), p, n);
}

void text_vocab_index_text(TextVocab *v) { map_fill(v, &v->by_text, false); }
void text_vocab_index_more(TextVocab *v, int32_t id) {
  const Tok *t = &v->tok[id];
  if (t->n_text) map_put(v, &v->by_text, false, id, (uint32_t)text_hash(t->text, t->n_text));
}

/* GPT-2 spells a byte as a printable character: itself where that prints, else U+0100 and on. */
static int level_byte(int32_t cp) {
  static const uint8_t gap[] = {0, 32, 127, 160, 173, 173}; /* the bytes that do not print: 0..32, 127..160, 173 */
  if (cp < 0x100) return (cp > 32 && cp < 127) || (cp > 160 && cp != 173 && cp >= 0) ? (int)cp : -1;
  int i = (int)cp - 0x100;
  for (size_t g = 0; g < COUNT_OF(gap); g += 2) {
    int n = gap[g + 1] - gap[g] + 1;
    if (i < n) return gap[g] + i;
    i -= n;
  }
  return -1;
}

bool text_bytes_from_level(const char *p, size_t n, char *out, uint32_t *n_out) {
  uint32_t m = 0;
  for (const char *q = p, *end = p + n; q < end;) {
    int32_t cp;
    if (*q > ' ' && *q < 0x7F) { out[m++] = *q++; continue; }
    q += text_utf8_next(q, end, &cp);
    int byte = cp < 0 ? -1 : level_byte(cp);
    if (byte < 0) return false;
    out[m++] = (char)byte;
  }
  *n_out = m;
  return true;
}

static uint64_t merge_key(int32_t left, int32_t right) { return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1; }
static uint64_t merge_hash(uint64_t key) { return key * 0x9E3779B97F4A7C15u; }

static void merge_put(MergeMap *m, uint64_t key, MergeTo to) {
  uint64_t h = merge_hash(key);
  uint32_t i = (uint32_t)(h >> 32) & m->mask, bit = (uint32_t)(h >> 24) & m->maybe_mask;
  for (; m->slot[i].key; i = (i + 1) & m->mask)
    if (m->slot[i].key == key) return;
  m->maybe[bit / 64] |= (uint64_t)1 << (bit % 64);
  m->slot[i] = (MergeSlot){key, to};
  m->n++;
}

MergeTo text_pair_find(const TextVocab *v, const char *p, size_t n, int32_t left, int32_t right) {
  MergeTo none = {0, -1};
  if (v->by_rank) {
    int id = n <= v->max_piece ? text_piece_find(v, p, n) : -1;
    return id < 0 ? none : (MergeTo){v->tok[id].rank, id};
  }
  const MergeMap *m = &v->merges;
  if (left < 0 || right < 0 || !m->slot) return none;
  uint64_t key = merge_key(left, right), h = merge_hash(key);
  uint32_t i = (uint32_t)(h >> 32) & m->mask, bit = (uint32_t)(h >> 24) & m->maybe_mask;
  if (!(m->maybe[bit / 64] >> (bit % 64) & 1)) return none;
  while (m->slot[i].key && m->slot[i].key != key) i = (i + 1) & m->mask;
  return m->slot[i].key ? m->slot[i].to : none;
}

void text_vocab_merges_reserve(TextVocab *v, int n) {
  uint32_t cap = slots_for((uint32_t)MAX(n, 16));
  v->merges = (MergeMap){.mask = cap - 1, .maybe_mask = 4 * cap - 1};
  v->merges.slot = table_alloc(v, cap, sizeof *v->merges.slot);
  v->merges.maybe = table_alloc(v, cap * 4 / 64, sizeof(uint64_t)); /* 4 bits a slot */
}

static bool is_join(const TextVocab *v, int id, const MergeText *m) {
  if (id < 0 || id >= v->n_tokens || v->tok[id].n_text != m->n_left + m->n_right) return false;
  const char *p = v->tok[id].text;
  return !memcmp(p, m->left, m->n_left) && !memcmp(p + m->n_left, m->right, m->n_right);
}

/* Merges are listed in the order in which they were learned, and so are the tokens: the next one is the guess. */
static int find_join(const TextVocab *v, const MergeText *m, int32_t last) {
  for (int32_t id = last; id <= last + 1; id++)
    if (!v->alike && is_join(v, id, m)) return id;
  char small[512], *join = m->n_left + m->n_right <= sizeof small ? small : malloc(m->n_left + m->n_right);
  CHECK(join, "out of memory");
  memcpy(join, m->left, m->n_left);
  memcpy(join + m->n_left, m->right, m->n_right);
  int id = text_vocab_find(v, join, m->n_left + m->n_right);
  if (join != small) free(join);
  return id;
}

/* A merge whose parts or join are no tokens can never happen: it is left out, as everywhere else. */
void text_vocab_merges_add(TextVocab *v, const MergeText *m, int n) {
  uint32_t hash[BATCH][2];
  int32_t part[BATCH][2];
  MergeMap *map = &v->merges;
  CHECK(n <= BATCH && map->slot, "%d merges at a time", n);
  for (int i = 0; i < n; i++) {
    hash[i][0] = (uint32_t)text_hash(m[i].left, m[i].n_left);
    hash[i][1] = (uint32_t)text_hash(m[i].right, m[i].n_right);
    for (int k = 0; k < 2; k++) __builtin_prefetch(&v->by_text.slot[hash[i][k] & v->by_text.mask]);
  }
  for (int i = 0; i < n; i++) {
    part[i][0] = map_find(v, &v->by_text, false, hash[i][0], m[i].left, m[i].n_left);
    part[i][1] = map_find(v, &v->by_text, false, hash[i][1], m[i].right, m[i].n_right);
    __builtin_prefetch(&map->slot[(uint32_t)(merge_hash(merge_key(part[i][0], part[i][1])) >> 32) & map->mask]);
  }
  for (int i = 0; i < n; i++) {
    if (part[i][0] < 0 || part[i][1] < 0) continue;
    int join = find_join(v, &m[i], map->last);
    if (join < 0) continue;
    map->last = join;
    CHECK(map->n <= map->mask / 2, "more merges than were told");
    merge_put(map, merge_key(part[i][0], part[i][1]), (MergeTo){m[i].rank, join});
  }
}

/* Scores order the merges of SentencePiece vocabularies: the highest first. Equal scores get equal ranks. */
typedef struct Scored { double score; int32_t id; } Scored;
static int by_score(const void *a, const void *b) {
  const Scored *x = a, *y = b;
  return (x->score < y->score) - (x->score > y->score);
}

static void rank_by_score(TextVocab *v) {
  Scored *s = malloc(((size_t)v->n_tokens + 1) * sizeof *s);
  CHECK(s, "out of memory");
  for (int i = 0; i < v->n_tokens; i++) s[i] = (Scored){v->tok[i].score, i};
  qsort(s, (size_t)v->n_tokens, sizeof *s, by_score);
  uint32_t rank = 0;
  for (int i = 0; i < v->n_tokens; i++) {
    if (i && s[i].score != s[i - 1].score) rank++;
    v->tok[s[i].id].rank = rank;
  }
  free(s);
}

int text_byte_spelled(const char *p, size_t n) { return n == 6 && !memcmp(p, "<0x", 3) && p[5] == '>' ? (int)text_hex(p + 3, p + 5, 2) : -1; }

static bool looks_like_markup(const char *p, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (strchr("<>[]|", p[i]) && p[i]) return true;
  return memmem(p, n, "\xEF\xBD\x9C", 3) != NULL; /* the full-width bar of some chat formats */
}

/* What every two byte tokens merge into: the first and most frequent question of a byte-level model. */
static void index_byte_pairs(TextVocab *v) {
  v->byte_pair = ARENA_ARRAY(v->arena, MergeTo, 65536);
  for (int a = 0; a < 256; a++)
    for (int b = 0; b < 256; b++) {
      char p[2] = {(char)a, (char)b};
      v->byte_pair[a << 8 | b] = v->byte_id[a] < 0 || v->byte_id[b] < 0 ? (MergeTo){0, -1} : text_pair_find(v, p, 2, v->byte_id[a], v->byte_id[b]);
    }
}

static Err *index_added(TextVocab *v) {
  Arena *a = arena_new("added tokens");
  TrieKey *raw = ARENA_ARRAY(a, TrieKey, (size_t)v->n_added + 1), *norm = ARENA_ARRAY(a, TrieKey, (size_t)v->n_added + 1);
  int n_raw = 0, n_norm = 0;
  Err *e = NULL;
  for (int i = 0; i < v->n_added && !e; i++) {
    Added *x = &v->added[i];
    Tok *t = &v->tok[x->id];
    t->special |= x->special;
    x->markup = looks_like_markup(t->text, t->n_text);
    TrieKey key = {t->text, t->n_text, i};
    Str s = {0};
    if (t->n_text && x->normalized && v->n_norm) {
      e = text_steps_normalize(v, v->norm, v->n_norm, t->text, t->n_text, &s);
      if (s.n > UINT32_MAX / 4) e = e ? e : err_new(ERR_LIMIT, "tokenizer: an added token of %zu bytes when normalized", s.n);
      if (!e) key.p = arena_dup_n(a, s.p ? s.p : "", s.n), key.n = (uint32_t)s.n;
    }
    if (key.n && x->normalized) norm[n_norm++] = key;
    else if (key.n) raw[n_raw++] = key;
    str_free(&s);
  }
  text_trie_make(&v->added_raw, raw, n_raw);
  text_trie_make(&v->added_norm, norm, n_norm);
  arena_free(a);
  return e;
}

/* Where a piece holds marks inside: Cuts. Returns how many; put: they are noted. */
static uint32_t note_cuts(Cuts *c, const char *p, uint32_t n, bool put) {
  uint32_t found = 0, k = c->n_mark;
  for (uint32_t i = 1; i + k <= n; i++) {
    if (memcmp(p + i, c->mark, k) || (i >= k && !memcmp(p + i - k, c->mark, k))) continue;
    uint32_t a = MIN(i, 3u), b = MIN(n - i - k, 3u);
    found++;
    if (!put) continue;
    uint32_t h = text_cut_hash(p + i - a, a, p + i + k, b) & c->ctx_mask;
    c->ctx[h / 64] |= (uint64_t)1 << (h % 64);
    c->shape |= 1u << (a * 4 + b);
  }
  return found;
}

static void index_cuts(TextVocab *v) {
  Cuts c = {.mark = v->byte_level ? " " : "\xE2\x96\x81", .n_mark = v->byte_level ? 1 : 3, .ctx_mask = 1023};
  if (v->model != MODEL_BPE || v->ignore_merges || (v->byte_level ? v->byte_id[' '] : text_piece_find(v, c.mark, c.n_mark)) < 0) return;
  uint32_t found = 0;
  for (int put = 0; put < 2; put++) {
    while (put && c.ctx_mask < 32 * found && c.ctx_mask < (1u << 24) - 1) c.ctx_mask = 2 * c.ctx_mask + 1;
    if (put) c.ctx = ARENA_ARRAY(v->arena, uint64_t, (c.ctx_mask + 1) / 64);
    for (int i = 0; i < v->n_tokens; i++)
      if (v->tok[i].in_model) found += note_cuts(&c, v->tok[i].piece, v->tok[i].n_piece, put);
  }
  v->cuts = c;
}

static uint32_t trie_walk(const Trie *t, const char *prefix) {
  uint32_t node = t->unit ? TRIE_ROOT : 0;
  for (; *prefix && node; prefix++) node = text_trie_step(t, node, (uint8_t)*prefix);
  return node;
}

static void index_pieces(TextVocab *v) {
  if (v->model == MODEL_BPE) return;
  TrieKey *key = malloc(((size_t)v->n_tokens + 1) * sizeof *key);
  CHECK(key, "out of memory");
  int n = 0;
  for (int i = 0; i < v->n_tokens; i++)
    if (v->tok[i].in_model && v->tok[i].n_piece) key[n++] = (TrieKey){v->tok[i].piece, v->tok[i].n_piece, i};
  text_trie_make(&v->trie, key, n);
  free(key);
  v->word_root = trie_walk(&v->trie, v->word_prefix);
  v->cont_root = trie_walk(&v->trie, v->cont_prefix);
}

Err *text_vocab_finish(TextVocab *v) {
  if (!v->by_text.slot) text_vocab_index_text(v);
  if (v->leveled && v->ignore_merges) map_fill(v, &v->by_piece, true);
  v->max_piece = 0;
  double worst = 0;
  for (int i = 0; i < v->n_tokens; i++) {
    Tok *t = &v->tok[i];
    if (t->byte >= 0 && !v->byte_level && v->byte_id[t->byte] < 0) v->byte_id[t->byte] = i;
    if (!t->in_model || !t->n_piece) continue;
    if (v->byte_level && t->n_piece == 1 && v->byte_id[(uint8_t)t->piece[0]] < 0) v->byte_id[(uint8_t)t->piece[0]] = i;
    v->max_piece = MAX(v->max_piece, t->n_piece);
    worst = MIN(worst, t->score);
  }
  v->unk_score = worst - 10;
  index_pieces(v);
  index_cuts(v);
  if (v->byte_level && v->model == MODEL_BPE) index_byte_pairs(v);
  return index_added(v);
}

/* From a model file's metadata. */
static void add_around(TextVocab *v, int first, int last) {
  v->prefix = ARENA_ARRAY(v->arena, int32_t, 1);
  v->suffix = ARENA_ARRAY(v->arena, int32_t, 1);
  if (first >= 0) v->prefix[v->n_prefix++] = first;
  if (last >= 0) v->suffix[v->n_suffix++] = last;
}

/* How a file spells the bytes of its tokens: as they are, in GPT-2's printable ones, or as Python's repr of bytes does. */
typedef enum Spelling { SPELL_BYTES, SPELL_LEVEL, SPELL_REPR } Spelling;

/* Without its escapes; false: one is not whole. */
static bool bytes_from_repr(const char *p, size_t n, char *out, uint32_t *n_out) {
  uint32_t k = 0;
  for (size_t i = 0; i < n; i++) {
    char c = p[i];
    if (c == '\\') {
      if (++i == n) return false;
      c = p[i] == 't' ? '\t' : p[i] == 'n' ? '\n' : p[i] == 'r' ? '\r' : p[i];
      if (p[i] == 'x') {
        int byte = (int)text_hex(p + i + 1, p + n, 2);
        if (byte < 0) return false;
        c = (char)byte;
        i += 2;
      }
    }
    out[k++] = c;
  }
  *n_out = k;
  return true;
}

/* One token as the file has it; *room is where its text is kept, and its bytes behind it. */
static Err *source_token(TextVocab *v, const TextVocabSource *src, int i, Spelling spelling, char **room) {
  bool level = spelling != SPELL_BYTES;
  Tok *t = &v->tok[i];
  size_t n = src->token_bytes ? src->token_bytes[i] : strlen(src->token[i]);
  int type = src->type ? src->type[i] : TEXT_TOKEN_NORMAL;
  if (type < TEXT_TOKEN_NORMAL || type > TEXT_TOKEN_BYTE) type = TEXT_TOKEN_NORMAL;
  float score = src->score ? src->score[i] : 0;
  memcpy(*room, src->token[i], n);
  *t = (Tok){.text = *room, .n_text = (uint32_t)n, .score = score == score ? score : 0, .type = (uint8_t)type, .byte = -1, .rank = (uint32_t)i};
  t->piece = t->text;
  t->n_piece = t->n_text;
  t->special = type == TEXT_TOKEN_CONTROL || type == TEXT_TOKEN_UNKNOWN;
  t->in_model = type == TEXT_TOKEN_NORMAL || type == TEXT_TOKEN_UNUSED || (level && type == TEXT_TOKEN_USER);
  *room += n + 1;
  if (type == TEXT_TOKEN_BYTE) {
    t->byte = (int16_t)text_byte_spelled(t->text, n);
    if (t->byte < 0) return err_new(ERR_FORMAT, "tokenizer: byte token %d is spelled '%.*s', expected <0x00> to <0xFF>", i, (int)MIN(n, (size_t)40), t->text);
  }
  if (level && type == TEXT_TOKEN_NORMAL) {
    t->piece = *room;
    t->in_model = spelling == SPELL_LEVEL ? text_bytes_from_level(t->text, n, *room, &t->n_piece) : bytes_from_repr(t->text, n, *room, &t->n_piece);
    if (!t->in_model && spelling == SPELL_REPR) return err_new(ERR_FORMAT, "tokenizer: token %d is spelled '%.*s', whose last escape is not whole", i, (int)MIN(n, (size_t)40), t->text);
    if (!t->in_model) t->piece = t->text;
    *room += n;
  }
  if (t->special || type == TEXT_TOKEN_USER) v->added[v->n_added++] = (Added){.id = i, .special = t->special};
  return NULL;
}

static Err *source_tokens(TextVocab *v, const TextVocabSource *src, Spelling spelling) {
  bool level = spelling != SPELL_BYTES;
  size_t n = 0;
  v->added = ARENA_ARRAY(v->arena, Added, (size_t)src->n_tokens + 1);
  v->leveled = level;
  for (int i = 0; i < src->n_tokens; i++) {
    if (!src->token[i]) return err_new(ERR_FORMAT, "tokenizer: token %d has no text", i);
    size_t one = src->token_bytes ? src->token_bytes[i] : strlen(src->token[i]);
    if (one > UINT32_MAX / 4) return err_new(ERR_FORMAT, "tokenizer: token %d has %zu bytes", i, one);
    n += one + 1;
  }
  char *room = arena_alloc(v->arena, level ? 2 * n : n);
  for (int i = 0; i < src->n_tokens; i++) TRY(source_token(v, src, i, spelling, &room));
  return NULL;
}

static Err *source_bpe(TextVocab *v, const TextVocabSource *src) {
  if (!src->n_merges) return err_new(ERR_FORMAT, "tokenizer: no merges (tokenizer.ggml.merges), which kind '%s' needs", src->kind);
  text_vocab_index_text(v);
  text_vocab_merges_reserve(v, src->n_merges);
  MergeText batch[BATCH];
  for (int i = 0, n = 0; i < src->n_merges; i++) {
    size_t len = src->merge_bytes ? src->merge_bytes[i] : strlen(src->merge[i]);
    const char *p = src->merge[i], *sp = len > 1 ? memchr(p + 1, ' ', len - 1) : NULL;
    if (!sp || len > UINT32_MAX / 4) return err_new(ERR_FORMAT, "tokenizer: merge %d is '%.*s', expected two parts with a space between", i, (int)MIN(len, (size_t)40), p);
    batch[n++] = (MergeText){p, sp + 1, (uint32_t)(sp - p), (uint32_t)(len - 1) - (uint32_t)(sp - p), (uint32_t)i};
    if (n == BATCH || i + 1 == src->n_merges) text_vocab_merges_add(v, batch, n), n = 0;
  }
  return NULL;
}

static void source_spaces(TextVocab *v, bool prefix) {
  static const char mark[] = "\xE2\x96\x81";
  v->norm = ARENA_ARRAY(v->arena, Step, 2);
  if (prefix) v->norm[v->n_norm++] = (Step){.kind = STEP_PREPEND, .text = mark, .n_text = 3};
  v->norm[v->n_norm++] = (Step){.kind = STEP_REPLACE, .text = " ", .n_text = 1, .with = mark, .n_with = 3};
  v->decode = DECODE_SPM;
  v->strip_first = prefix;
}

static void source_bert(TextVocab *v) {
  v->model = MODEL_WORDPIECE;
  v->word_prefix = "\xE2\x96\x81";
  v->norm = ARENA_NEW(v->arena, Step);
  v->norm[v->n_norm++] = (Step){.kind = STEP_BERT, .clean = true, .han = true, .accents = true, .lower = true};
  v->pre = ARENA_ARRAY(v->arena, Step, 2);
  v->pre[v->n_pre++] = (Step){.kind = STEP_SPLIT, .mode = SPLIT_REMOVED, .scan = SCAN_SPACES};
  v->pre[v->n_pre++] = (Step){.kind = STEP_SPLIT, .mode = SPLIT_ISOLATED, .scan = SCAN_PUNCT};
  v->decode = DECODE_SPM;
  v->strip_first = true;
}

static Err *source_unigram(TextVocab *v, const TextVocabSource *src) {
  static const char mark[] = "\xE2\x96\x81";
  v->model = MODEL_UNIGRAM;
  v->norm = ARENA_ARRAY(v->arena, Step, 3);
  if (src->n_charsmap) {
    uint8_t *m = arena_alloc(v->arena, src->n_charsmap);
    memcpy(m, src->charsmap, src->n_charsmap);
    v->charsmap = m;
    v->n_charsmap = src->n_charsmap;
    v->norm[v->n_norm++] = (Step){.kind = STEP_CHARSMAP};
  }
  if (!src->keep_spaces) {
    v->norm[v->n_norm] = (Step){.kind = STEP_REPLACE_REGEX, .with = " ", .n_with = 1};
    TRY(text_regex_new(v, " {2,}", 5, &v->norm[v->n_norm++].re));
    v->norm[v->n_norm++] = (Step){.kind = STEP_STRIP, .left = true, .right = true};
  }
  v->pre = ARENA_NEW(v->arena, Step);
  v->pre[v->n_pre++] = (Step){.kind = STEP_METASPACE, .text = mark, .n_text = 3, .mode = src->add_space_prefix ? PREPEND_ALWAYS : PREPEND_NEVER, .left = true};
  v->decode = DECODE_SPM;
  v->strip_first = src->add_space_prefix != 0;
  return NULL;
}

static Err *source_kind(TextVocab *v, const TextVocabSource *src) {
  v->unk = src->unk;
  v->bos = src->bos;
  v->eos = src->eos;
  bool add_bos = src->add_bos > 0, add_eos = src->add_eos > 0;
  if (!strcmp(src->kind, "gpt2")) {
    v->byte_level = true;
    TRY(source_tokens(v, src, SPELL_LEVEL));
    TRY(text_split_rule(v, src->pre && *src->pre ? src->pre : "default"));
    if (src->add_bos < 0) add_bos = v->ignore_merges; /* the families that take whole pieces are those that begin with BOS */
    TRY(source_bpe(v, src));
  } else if (!strcmp(src->kind, "llama")) {
    if (!src->score) return err_new(ERR_FORMAT, "tokenizer: no scores (tokenizer.ggml.scores), which kind 'llama' needs");
    v->byte_fallback = v->fuse_unk = v->by_rank = true;
    TRY(source_tokens(v, src, SPELL_BYTES));
    rank_by_score(v);
    source_spaces(v, src->add_space_prefix != 0);
    if (src->add_bos < 0) add_bos = true;
  } else if (!strcmp(src->kind, "gemma4")) {
    v->byte_fallback = v->fuse_unk = true;
    TRY(source_tokens(v, src, SPELL_BYTES));
    source_spaces(v, src->add_space_prefix > 0);
    TRY(source_bpe(v, src));
    if (src->add_bos < 0) add_bos = true;
  } else if (!strcmp(src->kind, "bert")) {
    TRY(source_tokens(v, src, SPELL_BYTES));
    source_bert(v);
    if (src->add_bos < 0) add_bos = true;
    add_around(v, add_bos ? v->bos : -1, src->sep);
    return NULL;
  } else if (!strcmp(src->kind, "t5")) {
    if (!src->score) return err_new(ERR_FORMAT, "tokenizer: no scores (tokenizer.ggml.scores), which kind 't5' needs");
    v->byte_fallback = v->fuse_unk = true;
    TRY(source_tokens(v, src, SPELL_BYTES));
    TRY(source_unigram(v, src));
    if (src->add_eos < 0) add_eos = true;
  } else if (!strcmp(src->kind, "rwkv")) {
    v->byte_level = true;
    v->model = MODEL_LONGEST;
    TRY(source_tokens(v, src, SPELL_REPR));
  } else {
    return err_new(ERR_UNSUPPORTED, "tokenizer: kind '%s', expected gpt2, llama, gemma4, bert, t5 or rwkv", src->kind);
  }
  add_around(v, add_bos ? v->bos : -1, add_eos ? v->eos : -1);
  return NULL;
}

Err *text_vocab_new(const TextVocabSource *src, TextVocab **out) {
  if (!src->kind) return err_new(ERR_FORMAT, "tokenizer: no kind (tokenizer.ggml.model)");
  if (src->n_tokens <= 0 || !src->token) return err_new(ERR_FORMAT, "tokenizer: no tokens (tokenizer.ggml.tokens)");
  const struct { const char *name; int id; } ids[] = {{"bos", src->bos}, {"eos", src->eos}, {"unk", src->unk}, {"sep", src->sep}};
  for (size_t i = 0; i < COUNT_OF(ids); i++)
    if (ids[i].id < -1 || ids[i].id >= src->n_tokens) return err_new(ERR_FORMAT, "tokenizer: %s id %d, expected 0 to %d", ids[i].name, ids[i].id, src->n_tokens - 1);
  TextVocab *v = text_vocab_alloc(src->n_tokens);
  Err *e = source_kind(v, src);
  if (!e) e = text_vocab_finish(v);
  if (e) { text_vocab_free(v); return e; }
  *out = v;
  return NULL;
}

/* The walk over a text. */
typedef struct Walk {
  const TextVocab *v;
  unsigned flags;
  Arena *arena;
  ModelScratch *scratch;
  TextIds *out;
  bool mixed;              /* the normalized text has untrusted bytes whose place is known only by markup's characters */
} Walk;

static bool ends_in_word(const char *p, size_t n) {
  if (!n) return false;
  const char *q = p + n - 1;
  while (q > p && ((uint8_t)*q & 0xC0) == 0x80) q--;
  int32_t cp;
  text_utf8_next(q, p + n, &cp);
  return text_char_is_word(cp);
}

static bool starts_with_word(const char *p, size_t n) {
  int32_t cp = -1;
  if (n) text_utf8_next(p, p + n, &cp);
  return text_char_is_word(cp);
}

static size_t spaces_before(const char *p, size_t n) {
  size_t k = n;
  while (k) {
    size_t q = k - 1;
    while (q && ((uint8_t)p[q] & 0xC0) == 0x80) q--;
    int32_t cp;
    text_utf8_next(p + q, p + k, &cp);
    if (!text_char_is_space(cp)) break;
    k = q;
  }
  return n - k;
}

static size_t spaces_after(const char *p, size_t n) {
  size_t k = 0;
  while (k < n) {
    int32_t cp;
    int m = text_utf8_next(p + k, p + n, &cp);
    if (!text_char_is_space(cp)) break;
    k += (size_t)m;
  }
  return k;
}

static bool is_markup(const Added *x) { return x->special || x->markup; }

/* The longest added token at p[at], or none. user: which bytes no markup may have. */
static int added_at(const TextVocab *v, const Trie *t, const char *p, const uint8_t *user, size_t n, size_t at, size_t *len) {
  uint32_t node = TRIE_ROOT;
  int best = -1;
  bool foreign = false;
  for (size_t i = at; i < n && (node = text_trie_step(t, node, (uint8_t)p[i])) != 0; i++) {
    foreign = foreign || (user && user[i]);
    int k = t->unit[node].value;
    if (k >= 0 && !(foreign && is_markup(&v->added[k]))) best = k, *len = i + 1 - at;
  }
  return best;
}

static bool added_wanted(const Walk *w, const Added *x) {
  if ((w->flags & TEXT_SPLIT_SPECIAL) && x->special) return false;
  return !((w->flags & TEXT_PLAIN) && is_markup(x)) && !(w->mixed && x->normalized && is_markup(x) && !x->markup);
}

typedef Err *(*Rest)(Walk *w, const char *p, const uint8_t *user, size_t n, bool at_start);

/* Cuts p[n] at the added tokens of a trie; what lies between goes to `rest`. */
static Err *cut_added(Walk *w, const Trie *t, const char *p, const uint8_t *user, size_t n, bool at_start, Rest rest) {
  size_t done = 0;
  for (size_t at = 0; t->unit && at < n;) {
    while (at < n && !t->first[(uint8_t)p[at]]) at++;
    if (at >= n) break;
    size_t len;
    int k = added_at(w->v, t, p, user, n, at, &len);
    if (k < 0) { at++; continue; }
    const Added *x = &w->v->added[k];
    size_t from = at, to = at + len;
    at = to;
    if (!added_wanted(w, x)) continue;
    if (x->single_word && (ends_in_word(p, from) || starts_with_word(p + to, n - to))) continue;
    if (x->lstrip) from = MAX(from - spaces_before(p, from), done);
    if (x->rstrip) to += spaces_after(p + to, n - to);
    if (from > done) TRY(rest(w, p + done, user ? user + done : NULL, from - done, at_start && !done));
    text_ids_add(w->out, x->id);
    done = at = to;
  }
  if (done < n) TRY(rest(w, p + done, user ? user + done : NULL, n - done, at_start && !done));
  return NULL;
}

static void walk_piece(void *to, const char *p, size_t n) {
  Walk *w = to;
  text_model_piece(w->v, w->scratch, p, n, w->out);
}

static Err *walk_model(Walk *w, const char *p, const uint8_t *user, size_t n, bool at_start) {
  (void)user;
  text_steps_split(w->v, w->arena, p, n, at_start, walk_piece, w);
  return NULL;
}

/* Which bytes of the normalized text q[n] no markup may have: the text is normalized again with letters where the untrusted bytes spell markup,
   and what differs is theirs. Where the two do not lie side by side, and of tokens that do not look like markup, all are. */
static Err *marks_normalize(Walk *w, const char *p, const uint8_t *user, size_t n_raw, const char *q, size_t n, const uint8_t **out) {
  char *twin = arena_dup_n(w->arena, p, n_raw);
  uint8_t *marks = arena_alloc(w->arena, n + 1);
  for (size_t i = 0; i < n_raw; i++) {
    if (!user[i]) continue;
    if (strchr("<>[]|", twin[i]) && twin[i]) twin[i] = 'x';
    else if (n_raw - i >= 3 && !memcmp(twin + i, "\xEF\xBD\x9C", 3)) memcpy(twin + i, "\xE4\xB8\x80", 3);
  }
  Str s = {0};
  Err *e = text_steps_normalize(w->v, w->v->norm, w->v->n_norm, twin, n_raw, &s);
  for (size_t i = 0; !e && i < n; i++) marks[i] = s.n != n || s.p[i] != q[i];
  str_free(&s);
  if (!e) *out = marks;
  return e;
}

static Err *walk_normalize(Walk *w, const char *p, const uint8_t *user, size_t n, bool at_start) {
  if (!w->v->n_norm) return cut_added(w, &w->v->added_norm, p, user, n, at_start, walk_model);
  Str s = {0};
  Err *e = text_steps_normalize(w->v, w->v->norm, w->v->n_norm, p, n, &s);
  if (!e && s.n) {
    const char *q = arena_dup_n(w->arena, s.p, s.n);
    w->mixed = user && memchr(user, 1, n);
    if (w->mixed) e = marks_normalize(w, p, user, n, q, s.n, &user);
    else user = NULL;
    if (!e) e = cut_added(w, &w->v->added_norm, q, user, s.n, at_start, walk_model);
    w->mixed = false;
  }
  str_free(&s);
  return e;
}

static bool same_ids(const int32_t *a, const int32_t *b, int n) { return n && !memcmp(a, b, (size_t)n * sizeof *a); }

/* The tokens behind a text whose own ids begin at body; and those before it go where it has them itself. */
static void add_ends(const TextVocab *v, unsigned flags, size_t start, size_t body, TextIds *out) {
  bool once = flags & TEXT_ONCE;
  size_t n = out->n - body, k = (size_t)v->n_prefix;
  if (!(once && n >= (size_t)v->n_suffix && same_ids(out->p + out->n - v->n_suffix, v->suffix, v->n_suffix)))
    for (int i = 0; i < v->n_suffix; i++) text_ids_add(out, v->suffix[i]);
  if (!once || n < k || !same_ids(out->p + body, v->prefix, v->n_prefix)) return;
  memmove(out->p + start, out->p + body, (out->n - body) * sizeof *out->p);
  out->n -= k;
}

Err *text_tokenize(const TextVocab *v, const void *bytes, size_t n, unsigned flags, TextIds *out) {
  return text_tokenize_marked(v, bytes, NULL, n, flags, out);
}

Err *text_tokenize_marked(const TextVocab *v, const void *bytes, const uint8_t *user, size_t n, unsigned flags, TextIds *out) {
  if (n > 1u << 30) return err_new(ERR_LIMIT, "text of %zu bytes, expected at most %u", n, 1u << 30);
  Walk w = {v, flags, arena_new("tokenize"), text_model_scratch_new(n, user || (flags & TEXT_PLAIN)), out, false};
  size_t start = out->n, body = start;
  if (flags & TEXT_ADD_SPECIAL)
    for (int i = 0; i < v->n_prefix; i++) text_ids_add(out, v->prefix[i]);
  body = out->n;
  Err *e = cut_added(&w, &v->added_raw, bytes, user, n, true, walk_normalize);
  if (flags & TEXT_ADD_SPECIAL) add_ends(v, flags, start, body, out);
  if (e) out->n = start;
  text_model_scratch_free(w.scratch);
  arena_free(w.arena);
  return e;
}
