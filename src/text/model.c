/* The three models that turn one piece of text into ids: byte-pair merging, Unigram, WordPiece.
   In: a piece (bytes), the immutable vocabulary, scratch memory of the caller. Out: ids appended. Nothing fails.

   Merging keeps the piece as a doubly linked list of symbols and a heap of adjacent pairs that may merge, ordered by (rank, position).
   A popped pair whose symbols have changed since is stale and dropped. n symbols make at most n-1 merges and 3n heap entries, so the
   time is n log n whatever the text. Sennrich et al. 2016 (BPE); Kudo 2018 (Unigram: the best path by Viterbi). */
#include <stdlib.h>
#include <string.h>
#include "text/priv.h"

typedef struct Sym { int32_t id, prev, next; uint32_t off, n; } Sym;
typedef struct Pair { uint32_t rank; int32_t left, right, id; uint32_t n; int32_t left_id, right_id; } Pair;
typedef struct Best { double score; int32_t from, id; } Best;
struct ModelScratch {
  Sym *sym;
  Pair *heap;
  Best *node;
  int32_t *path;
  size_t cap_sym, n_heap, cap_heap, cap_node, cap_path;
  bool plain;              /* no special token, though some vocabularies have them among the model's pieces */
};

ModelScratch *text_model_scratch_new(bool plain) {
  ModelScratch *s = calloc(1, sizeof *s);
  CHECK(s, "out of memory");
  s->plain = plain;
  return s;
}

void text_model_scratch_free(ModelScratch *s) {
  if (!s) return;
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

static bool before(const Pair *a, const Pair *b) { return a->rank != b->rank ? a->rank < b->rank : a->left < b->left; }

static void heap_push(ModelScratch *s, Pair x) {
  s->heap = grow(s->heap, &s->cap_heap, s->n_heap + 1, sizeof *s->heap);
  size_t i = s->n_heap++;
  for (; i && before(&x, &s->heap[(i - 1) / 2]); i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
  s->heap[i] = x;
}

static Pair heap_pop(ModelScratch *s) {
  Pair top = s->heap[0], x = s->heap[--s->n_heap];
  size_t i = 0;
  for (size_t c; (c = 2 * i + 1) < s->n_heap; i = c) {
    if (c + 1 < s->n_heap && before(&s->heap[c + 1], &s->heap[c])) c++;
    if (!before(&s->heap[c], &x)) break;
    s->heap[i] = s->heap[c];
  }
  s->heap[i] = x;
  return top;
}

static bool merge_find(const MergeMap *m, int32_t left, int32_t right, uint32_t *rank, int32_t *id) {
  if (!m->key) return false;
  uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  for (uint32_t i = (uint32_t)((key * 0x9E3779B97F4A7C15u) >> 32) & m->mask; m->id[i] >= 0; i = (i + 1) & m->mask)
    if (m->key[i] == key) { *rank = m->rank[i]; *id = m->id[i]; return true; }
  return false;
}

static void try_pair(const TextVocab *v, ModelScratch *s, const char *p, int32_t left, int32_t right) {
  if (left < 0 || right < 0) return;
  const Sym *a = &s->sym[left], *b = &s->sym[right];
  Pair x = {.left = left, .right = right, .n = a->n + b->n, .left_id = a->id, .right_id = b->id};
  if (v->by_rank) {
    if (x.n > v->max_piece) return;
    x.id = text_map_find(v, &v->by_piece, true, p + a->off, x.n);
    if (x.id < 0) return;
    x.rank = v->tok[x.id].rank;
  } else if (a->id < 0 || b->id < 0 || !merge_find(&v->merges, a->id, b->id, &x.rank, &x.id)) {
    return;
  }
  heap_push(s, x);
}

static size_t first_symbols(const TextVocab *v, ModelScratch *s, const char *p, size_t n) {
  s->sym = grow(s->sym, &s->cap_sym, n, sizeof *s->sym);
  size_t m = 0;
  for (size_t at = 0; at < n; m++) {
    int32_t cp;
    size_t k = v->byte_level ? 1 : (size_t)text_utf8_next(p + at, p + n, &cp);
    int32_t id = v->byte_level ? v->byte_id[(uint8_t)p[at]] : text_map_find(v, &v->by_piece, true, p + at, k);
    s->sym[m] = (Sym){.id = id, .prev = (int32_t)m - 1, .next = at + k < n ? (int32_t)m + 1 : -1, .off = (uint32_t)at, .n = (uint32_t)k};
    at += k;
  }
  return m;
}

/* A symbol that is no token: its bytes where all of them are tokens, else the unknown token, one for neighbours if fuse_unk. */
static void emit_unknown(const TextVocab *v, const char *p, size_t n, bool *last_unk, TextIds *out) {
  bool bytes = v->byte_fallback;
  for (size_t i = 0; i < n && bytes; i++) bytes = v->byte_id[(uint8_t)p[i]] >= 0;
  if (bytes) {
    for (size_t i = 0; i < n; i++) text_ids_add(out, v->byte_id[(uint8_t)p[i]]);
    *last_unk = false;
    return;
  }
  uint8_t b = (uint8_t)p[0];
  if (v->byte_level && v->unk < 0 && (b == 0xC0 || b == 0xC1 || b >= 0xF5)) { /* a byte no UTF-8 text holds, so the vocabulary may lack it */
    static const uint8_t replacement[] = {0xEF, 0xBF, 0xBD};
    for (size_t i = 0; i < sizeof replacement; i++)
      if (v->byte_id[replacement[i]] >= 0) text_ids_add(out, v->byte_id[replacement[i]]);
  }
  if (v->unk >= 0 && !(*last_unk && v->fuse_unk)) text_ids_add(out, v->unk);
  *last_unk = v->unk >= 0;
}

static void bpe(const TextVocab *v, ModelScratch *s, const char *p, size_t n, TextIds *out) {
  if (v->ignore_merges && n <= v->max_piece) {
    int id = text_map_find(v, &v->by_piece, true, p, n);
    if (id >= 0 && !(s->plain && v->tok[id].special)) { text_ids_add(out, id); return; }
  }
  size_t m = first_symbols(v, s, p, n);
  s->n_heap = 0;
  for (size_t i = 0; i + 1 < m; i++) try_pair(v, s, p, (int32_t)i, (int32_t)i + 1);
  while (s->n_heap) {
    Pair x = heap_pop(s);
    Sym *a = &s->sym[x.left], *b = &s->sym[x.right];
    if (!a->n || !b->n || a->next != x.right || a->id != x.left_id || b->id != x.right_id || a->n + b->n != x.n) continue;
    a->id = x.id;
    a->n += b->n;
    a->next = b->next;
    b->n = 0;
    if (a->next >= 0) s->sym[a->next].prev = x.left;
    try_pair(v, s, p, a->prev, x.left);
    try_pair(v, s, p, x.left, a->next);
  }
  bool last_unk = false;
  for (int32_t i = m ? 0 : -1; i >= 0; i = s->sym[i].next) {
    const Sym *y = &s->sym[i];
    if (y->id < 0) { emit_unknown(v, p + y->off, y->n, &last_unk, out); continue; }
    text_ids_add(out, y->id);
    last_unk = false;
  }
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
    uint32_t node = 0;
    for (size_t i = at; i < n && (node = text_trie_step(&v->trie, node, (uint8_t)p[i])) != 0; i++) {
      int32_t id = v->trie.value[node];
      if (id < 0 || (s->plain && v->tok[id].special)) continue;
      relax(&s->node[i + 1], s->node[at].score + (double)v->tok[id].score, (int32_t)at, id);
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
    else emit_unknown(v, p + x->from, (size_t)(s->path[i] - x->from), &last_unk, out);
  }
}

static int wordpiece_longest(const TextVocab *v, const char *prefix, const char *p, size_t n, size_t *used) {
  char buf[1024];
  size_t k = strlen(prefix), take = MIN(n, (size_t)v->max_piece);
  if (k + take > sizeof buf) take = sizeof buf - k;
  memcpy(buf, prefix, k);
  memcpy(buf + k, p, take);
  for (; take; take--) {
    if (take < n && ((uint8_t)p[take] & 0xC0) == 0x80) continue;
    int id = text_map_find(v, &v->by_piece, true, buf, k + take);
    if (id >= 0) { *used = take; return id; }
  }
  return -1;
}

static void wordpiece(const TextVocab *v, const char *p, size_t n, TextIds *out) {
  size_t start = out->n, used;
  bool bad = text_utf8_count(p, n) > (size_t)v->max_word_chars;
  for (size_t at = 0; at < n && !bad; at += used) {
    int id = wordpiece_longest(v, at ? v->cont_prefix : v->word_prefix, p + at, n - at, &used);
    bad = id < 0;
    if (!bad) text_ids_add(out, id);
  }
  if (!bad) return;
  out->n = start;
  if (v->unk >= 0) text_ids_add(out, v->unk);
}

/* Length of the first word of p[n]: up to the next mark that does not follow a mark. */
static size_t word_len(const char *p, size_t n) {
  static const char mark[] = "\xE2\x96\x81";
  for (size_t i = 1; i + 3 <= n; i++) {
    const char *hit = memchr(p + i, mark[0], n - i - 2);
    if (!hit) return n;
    i = (size_t)(hit - p);
    if (!memcmp(hit, mark, 3) && !(i >= 3 && !memcmp(hit - 3, mark, 3))) return i;
  }
  return n;
}

void text_model_piece(const TextVocab *v, ModelScratch *s, const char *p, size_t n, TextIds *out) {
  if (!n) return;
  switch (v->model) {
    case MODEL_BPE:
      for (size_t k; n; p += k, n -= k) {
        k = v->cut_at_mark ? word_len(p, n) : n;
        bpe(v, s, p, k, out);
      }
      break;
    case MODEL_UNIGRAM: unigram(v, s, p, n, out); break;
    case MODEL_WORDPIECE: wordpiece(v, p, n, out); break;
  }
}
