/* The models that turn one piece of text into ids: byte-pair merging, Unigram, WordPiece, the longest match.
   In: a piece (bytes), the immutable vocabulary, scratch memory of the caller. Out: ids appended. Nothing fails.

   A short piece is merged in arrays: the best pair is searched, then the arrays close up. A long one is a doubly linked list of symbols
   and a heap of adjacent pairs that may merge, ordered by (rank, position); a popped pair whose symbol has another pair by now is stale and
   dropped. n symbols make at most n-1 merges and 3n heap entries, so the time is n log n whatever the text. Words come again and again:
   a table of bounded size says where in the ids of this text a word was answered before. Sennrich et al. 2016 (BPE); Kudo 2018 (Unigram: the best path by Viterbi). */
#include <stdlib.h>
#include <string.h>
#include "text/priv.h"

typedef struct Sym { int32_t id, prev, next; uint32_t off; MergeTo pair; } Sym; /* pair: what it and the next one merge into; gone: pair.id -1 */
typedef struct Word { const char *p; uint32_t tag, ids_at; uint16_t n, n_ids; } Word;
typedef struct Best { double score; int32_t from, id; } Best;
enum { SMALL = 48, WORD_MAX = 64, WORDS_MAX = 1 << 15, CUT_MIN = 12 }; /* bytes, bytes, slots, bytes */
struct ModelScratch {
  Word *word;
  uint32_t word_mask;
  Sym *sym;
  uint64_t *heap;          /* rank << 32 | symbol */
  Best *node;
  int32_t *path;
  size_t cap_sym, n_heap, cap_heap, cap_node, cap_path;
  bool plain;              /* no special token, though some vocabularies have them among the model's pieces */
};

ModelScratch *text_model_scratch_new(size_t n_text, bool plain) {
  ModelScratch *s = calloc(1, sizeof *s);
  CHECK(s, "out of memory");
  uint32_t n = 32;
  while (n < n_text / 4 && n < WORDS_MAX) n *= 2;
  s->word = calloc(n, sizeof *s->word);
  CHECK(s->word, "out of memory");
  s->word_mask = n - 1;
  s->plain = plain;
  return s;
}

void text_model_scratch_free(ModelScratch *s) {
  if (!s) return;
  free(s->word);
  free(s->sym);
  free(s->heap);
  free(s->node);
  free(s->path);
  free(s);
}

static void *grow(void *p, size_t *cap, size_t want, size_t each) {
  if (want <= *cap) return p;
  *cap = MAX(want, *cap * 2);
  p = realloc(p, *cap * each);
  CHECK(p, "out of memory for a text of %zu symbols", want);
  return p;
}

static void heap_down(uint64_t *heap, size_t n, size_t i) {
  uint64_t x = heap[i];
  for (size_t c; (c = 2 * i + 1) < n; i = c) {
    if (c + 1 < n && heap[c + 1] < heap[c]) c++;
    if (heap[c] >= x) break;
    heap[i] = heap[c];
  }
  heap[i] = x;
}

static void heap_push(ModelScratch *s, uint64_t x) {
  s->heap = grow(s->heap, &s->cap_heap, s->n_heap + 1, sizeof *s->heap);
  size_t i = s->n_heap++;
  for (; i && x < s->heap[(i - 1) / 2]; i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
  s->heap[i] = x;
}

static uint64_t heap_pop(ModelScratch *s) {
  uint64_t top = s->heap[0];
  s->heap[0] = s->heap[--s->n_heap];
  heap_down(s->heap, s->n_heap, 0);
  return top;
}

/* The pair that begins at symbol i, and whether it may merge. */
static bool long_pair(const TextVocab *v, ModelScratch *s, const char *p, size_t n, int32_t i) {
  Sym *a = &s->sym[i];
  a->pair.id = -1;
  if (a->next < 0) return false;
  const Sym *b = &s->sym[a->next];
  size_t end = b->next < 0 ? n : s->sym[b->next].off;
  a->pair = text_pair_find(v, p + a->off, end - a->off, a->id, b->id);
  return a->pair.id >= 0;
}

static uint64_t heap_key(const ModelScratch *s, int32_t i) { return (uint64_t)s->sym[i].pair.rank << 32 | (uint32_t)i; }

static size_t first_symbols(const TextVocab *v, ModelScratch *s, const char *p, size_t n) {
  s->sym = grow(s->sym, &s->cap_sym, n, sizeof *s->sym);
  size_t m = 0;
  for (size_t at = 0; at < n; m++) {
    int32_t cp;
    size_t k = v->byte_level ? 1 : (size_t)text_utf8_next(p + at, p + n, &cp);
    int32_t id = v->byte_level ? v->byte_id[(uint8_t)p[at]] : text_piece_find(v, p + at, k);
    s->sym[m] = (Sym){.id = id, .prev = (int32_t)m - 1, .next = at + k < n ? (int32_t)m + 1 : -1, .off = (uint32_t)at, .pair = {0, -1}};
    at += k;
  }
  return m;
}

/* A symbol that is no token: its bytes where all of them are tokens, else the unknown token, one for neighbours if fuse_unk. */
static void emit_unknown(const TextVocab *v, const char *p, size_t n, const char *end, bool *last_unk, TextIds *out) {
  bool bytes = v->byte_fallback;
  for (size_t i = 0; i < n && bytes; i++) bytes = v->byte_id[(uint8_t)p[i]] >= 0;
  if (bytes) {
    for (size_t i = 0; i < n; i++) text_ids_add(out, v->byte_id[(uint8_t)p[i]]);
    *last_unk = false;
    return;
  }
  bool none = v->unk < 0 || (v->byte_level && v->tok[v->unk].special); /* there an unknown token is a control token of another use */
  int32_t cp = 0;
  if (none && (uint8_t)p[0] >= 0xC0) text_utf8_next(p, end, &cp);
  if (v->byte_level && cp < 0) { /* the byte begins no character, so no text has taught the vocabulary to have it */
    static const uint8_t replacement[] = {0xEF, 0xBF, 0xBD};
    for (size_t i = 0; i < sizeof replacement; i++)
      if (v->byte_id[replacement[i]] >= 0) text_ids_add(out, v->byte_id[replacement[i]]);
  }
  if (!none && !(*last_unk && v->fuse_unk)) text_ids_add(out, v->unk);
  *last_unk = !none;
}

/* The pair that begins at a symbol; a symbol's bytes go on to the next one's. */
typedef struct Small { int32_t id; uint32_t off; MergeTo pair; } Small;

static void small_pair(const TextVocab *v, const char *p, Small *x) { x->pair = text_pair_find(v, p + x->off, x[2].off - x->off, x->id, x[1].id); }

static size_t small_symbols(const TextVocab *v, const char *p, size_t n, Small *x) {
  size_t m = 0;
  if (v->byte_level)
    for (; m < n; m++) {
      x[m] = (Small){.id = v->byte_id[(uint8_t)p[m]], .off = (uint32_t)m, .pair = {0, -1}};
      if (m + 1 < n) x[m].pair = v->byte_pair[(uint8_t)p[m] << 8 | (uint8_t)p[m + 1]];
    }
  else
    for (size_t at = 0, k; at < n; at += k, m++) {
      int32_t cp;
      k = (size_t)text_utf8_next(p + at, p + n, &cp);
      x[m] = (Small){.id = text_piece_find(v, p + at, k), .off = (uint32_t)at, .pair = {0, -1}};
    }
  x[m] = x[m + 1] = (Small){.off = (uint32_t)n, .pair = {0, -1}};
  for (size_t i = 0; !v->byte_level && i + 1 < m; i++) small_pair(v, p, &x[i]);
  return m;
}

static void bpe_small(const TextVocab *v, const char *p, size_t n, TextIds *out) {
  Small x[SMALL + 2];
  size_t m = small_symbols(v, p, n, x);
  for (;;) {
    size_t best = m;
    for (size_t i = 0; i + 1 < m; i++)
      if (x[i].pair.id >= 0 && (best == m || x[i].pair.rank < x[best].pair.rank)) best = i;
    if (best == m) break;
    x[best].id = x[best].pair.id;
    memmove(&x[best + 1], &x[best + 2], (m - best) * sizeof *x);
    m--;
    if (best) small_pair(v, p, &x[best - 1]);
    if (best + 1 < m) small_pair(v, p, &x[best]);
    else x[best].pair.id = -1;
  }
  bool last_unk = false;
  for (size_t i = 0; i < m; i++) {
    if (x[i].id < 0) { emit_unknown(v, p + x[i].off, x[i + 1].off - x[i].off, p + n, &last_unk, out); continue; }
    text_ids_add(out, x[i].id);
    last_unk = false;
  }
}

static void bpe_long(const TextVocab *v, ModelScratch *s, const char *p, size_t n, TextIds *out) {
  size_t m = first_symbols(v, s, p, n);
  s->heap = grow(s->heap, &s->cap_heap, m, sizeof *s->heap);
  s->n_heap = 0;
  for (size_t i = 0; i < m; i++)
    if (long_pair(v, s, p, n, (int32_t)i)) s->heap[s->n_heap++] = heap_key(s, (int32_t)i);
  for (size_t i = s->n_heap / 2; i-- > 0;) heap_down(s->heap, s->n_heap, i);
  while (s->n_heap) {
    uint64_t key = heap_pop(s);
    int32_t i = (int32_t)(key & UINT32_MAX);
    Sym *a = &s->sym[i];
    if (a->pair.id < 0 || a->pair.rank != key >> 32) continue;
    Sym *b = &s->sym[a->next];
    a->id = a->pair.id;
    a->next = b->next;
    b->pair.id = -1;
    if (a->next >= 0) s->sym[a->next].prev = i;
    if (long_pair(v, s, p, n, i)) heap_push(s, heap_key(s, i));
    if (a->prev >= 0 && long_pair(v, s, p, n, a->prev)) heap_push(s, heap_key(s, a->prev));
  }
  bool last_unk = false;
  for (int32_t i = m ? 0 : -1; i >= 0; i = s->sym[i].next) {
    const Sym *y = &s->sym[i];
    if (y->id < 0) { emit_unknown(v, p + y->off, (y->next < 0 ? n : s->sym[y->next].off) - y->off, p + n, &last_unk, out); continue; }
    text_ids_add(out, y->id);
    last_unk = false;
  }
}

static void bpe(const TextVocab *v, ModelScratch *s, const char *p, size_t n, TextIds *out) {
  int id = v->ignore_merges && n <= v->max_piece ? text_piece_find(v, p, n) : -1;
  if (id >= 0 && !(s->plain && v->tok[id].special)) text_ids_add(out, id);
  else if (n <= SMALL) bpe_small(v, p, n, out);
  else bpe_long(v, s, p, n, out);
}

static void relax(Best *to, double score, int32_t from, int32_t id) {
  if (to->from >= 0 && score <= to->score) return;
  *to = (Best){score, from, id};
}

/* Scores are log probabilities; an unknown character costs ten more than the worst token. */
static void unigram(const TextVocab *v, ModelScratch *s, const char *p, size_t n, TextIds *out) {
  s->node = grow(s->node, &s->cap_node, n + 1, sizeof *s->node);
  for (size_t i = 0; i <= n; i++) s->node[i] = (Best){0, -1, -1};
  for (size_t at = 0; at < n;) {
    int32_t cp;
    size_t one = (size_t)text_utf8_next(p + at, p + n, &cp);
    bool single = false;
    uint32_t node = v->trie.unit ? TRIE_ROOT : 0;
    for (size_t i = at; i < n && node && (node = text_trie_step(&v->trie, node, (uint8_t)p[i])) != 0; i++) {
      int32_t id = v->trie.unit[node].value;
      if (id < 0 || (s->plain && v->tok[id].special)) continue;
      relax(&s->node[i + 1], s->node[at].score + v->tok[id].score, (int32_t)at, id);
      single |= i + 1 == at + one;
    }
    if (!single) relax(&s->node[at + one], s->node[at].score + v->unk_score, (int32_t)at, -1);
    at += one;
  }
  size_t m = 0;
  for (size_t at = n; at; at = (size_t)s->node[at].from) {
    s->path = grow(s->path, &s->cap_path, m + 1, sizeof *s->path);
    s->path[m++] = (int32_t)at;
  }
  bool last_unk = false;
  for (size_t i = m; i-- > 0;) {
    const Best *x = &s->node[s->path[i]];
    if (x->id >= 0) { text_ids_add(out, x->id); last_unk = false; }
    else emit_unknown(v, p + x->from, (size_t)(s->path[i] - x->from), p + n, &last_unk, out);
  }
}

/* The longest piece that p[n] begins with, or -1; whole: that does not end inside a character. */
static int longest_piece(const TextVocab *v, uint32_t node, const char *p, size_t n, bool whole, size_t *used) {
  int best = -1;
  for (size_t i = 0; i < n && node && (node = text_trie_step(&v->trie, node, (uint8_t)p[i])) != 0; i++)
    if (v->trie.unit[node].value >= 0 && !(whole && i + 1 < n && ((uint8_t)p[i + 1] & 0xC0) == 0x80)) best = v->trie.unit[node].value, *used = i + 1;
  return best;
}

static void wordpiece(const TextVocab *v, const char *p, size_t n, TextIds *out) {
  size_t start = out->n, used = 0;
  bool bad = text_utf8_count(p, n) > (size_t)v->max_word_chars;
  for (size_t at = 0; at < n && !bad; at += used) {
    int id = longest_piece(v, at ? v->cont_root : v->word_root, p + at, n - at, true, &used);
    bad = id < 0;
    if (!bad) text_ids_add(out, id);
  }
  if (!bad) return;
  out->n = start;
  if (v->unk >= 0) text_ids_add(out, v->unk);
}

/* A byte that begins no piece stands for itself as the unknown token does, where there is one. */
static void longest(const TextVocab *v, const char *p, size_t n, TextIds *out) {
  bool last_unk = false;
  for (size_t at = 0, used = 1; at < n; at += used, used = 1) {
    int id = longest_piece(v, v->trie.unit ? TRIE_ROOT : 0, p + at, n - at, false, &used);
    if (id >= 0) text_ids_add(out, id);
    else emit_unknown(v, p + at, 1, p + n, &last_unk, out);
  }
}

/* Does any token hold a mark with the bytes before and after the one at p[i]? */
static bool is_joined(const Cuts *c, const char *p, size_t n, size_t i) {
  const char *after = p + i + c->n_mark;
  size_t n_after = n - i - c->n_mark;
  for (uint32_t left = c->shape; left; left &= left - 1) {
    uint32_t shape = (uint32_t)__builtin_ctz(left), a = shape / 4, b = shape % 4;
    if (a > i || b > n_after) continue;
    uint32_t h = text_cut_hash(p + i - a, a, after, b) & c->ctx_mask;
    if (c->ctx[h / 64] >> (h % 64) & 1) return true;
  }
  return false;
}

/* Length of the first word of p[n]: up to the next mark that no merge crosses. Marks that follow marks are left alone. */
static size_t word_len(const TextVocab *v, const char *p, size_t n) {
  const Cuts *c = &v->cuts;
  size_t k = c->n_mark;
  for (size_t i = 1; i + k <= n; i++) {
    const char *hit = memchr(p + i, c->mark[0], n - i - k + 1);
    if (!hit) return n;
    i = (size_t)(hit - p);
    if (!memcmp(hit, c->mark, k) && !(i >= k && !memcmp(hit - k, c->mark, k)) && !is_joined(c, p, n, i)) return i;
  }
  return n;
}

static void one_word(const TextVocab *v, ModelScratch *s, const char *p, size_t n, TextIds *out) {
  switch (v->model) {
    case MODEL_BPE: bpe(v, s, p, n, out); return;
    case MODEL_UNIGRAM: unigram(v, s, p, n, out); return;
    case MODEL_WORDPIECE: wordpiece(v, p, n, out); return;
    case MODEL_LONGEST: longest(v, p, n, out); return;
  }
}

/* The ids of a word depend on its bytes only. */
static void word(const TextVocab *v, ModelScratch *s, const char *p, size_t n, TextIds *out) {
  if (n > WORD_MAX || out->n > UINT32_MAX / 2) { one_word(v, s, p, n, out); return; }
  uint64_t h = text_hash(p, n);
  Word *w = &s->word[(uint32_t)h & s->word_mask];
  if (w->tag == (uint32_t)(h >> 32) && w->n == n && !memcmp(w->p, p, n)) {
    text_ids_reserve(out, w->n_ids);
    if (w->n_ids) memcpy(out->p + out->n, out->p + w->ids_at, w->n_ids * sizeof *out->p);
    out->n += w->n_ids;
    return;
  }
  uint32_t at = (uint32_t)out->n;
  one_word(v, s, p, n, out);
  *w = (Word){p, (uint32_t)(h >> 32), at, (uint16_t)n, (uint16_t)(out->n - at)};
}

void text_model_piece(const TextVocab *v, ModelScratch *s, const char *p, size_t n, TextIds *out) {
  for (size_t k; n; p += k, n -= k) {
    k = v->cuts.mark && n > CUT_MIN ? word_len(v, p, n) : n;
    word(v, s, p, k, out);
  }
}
