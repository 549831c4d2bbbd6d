/* Tries over byte strings, made once from all their keys and walked a byte at a time: a double array, so a step is an addition and one load.
   In: keys with values of 0 or more; of equal keys the first counts. Out: an immutable Trie; the node TRIE_ROOT stands before the first byte.
   Aoe 1989. A node's children lie at base + byte, each with its parent's number in `check`; 0 is no node, so free cells have no parent. A place
   for a node with several children is sought among the first free cells only: past those it is put at the end, so making a trie takes time
   and memory in proportion to the keys' bytes whatever they are. */
#include <stdlib.h>
#include <string.h>
#include "text/priv.h"

enum { SPAN = 256, TRIES = 64, FEW = 12 };
typedef struct Range { uint32_t node; int lo, hi; uint32_t depth; } Range;
typedef struct Build {
  TrieUnit *unit;
  uint32_t cap, n, from;   /* cells that there are, that are used or may be by a base, below which none is free */
  uint64_t *used;          /* a bit a cell */
  TrieKey *key, *tmp;
  Range *todo;
  size_t n_todo, cap_todo;
} Build;

void text_trie_free(Trie *t) {
  free(t->unit);
  *t = (Trie){0};
}

static void room_for(Build *b, uint32_t n) {
  if (n + SPAN <= b->cap) return;
  uint32_t cap = MAX(b->cap * 2, ROUND_UP(n + SPAN, 1024u));
  b->unit = realloc(b->unit, cap * sizeof *b->unit);
  b->used = realloc(b->used, cap / 8);
  CHECK(b->unit && b->used, "out of memory for a trie of %u nodes", cap);
  memset(b->unit + b->cap, 0, (cap - b->cap) * sizeof *b->unit);
  memset((char *)b->used + b->cap / 8, 0, (cap - b->cap) / 8);
  b->cap = cap;
}

static bool is_free(const Build *b, uint32_t i) { return !(b->used[i / 64] >> (i % 64) & 1); }

static uint32_t next_free(const Build *b, uint32_t i) {
  uint64_t w = ~b->used[i / 64] >> (i % 64);
  if (w) return i + (uint32_t)__builtin_ctzll(w);
  for (i = i / 64 + 1; !~b->used[i]; i++) {}
  return i * 64 + (uint32_t)__builtin_ctzll(~b->used[i]);
}

/* A base under which every child's cell is free. */
static uint32_t base_for(Build *b, const uint8_t *child, int n) {
  b->from = next_free(b, b->from);
  uint32_t at = b->from;
  for (int k = 0; k < TRIES && at < b->n; k++, at = next_free(b, at + 1)) {
    uint32_t base = at - child[0];
    int i = 1;
    while (i < n && is_free(b, base + child[i])) i++;
    if (i == n) return base;
  }
  return b->n;
}

/* key[lo..hi) in the order of their bytes at this depth, those that end first; stable. What bytes there are goes to child. */
static int sort_range(Build *b, const Range *r, uint8_t child[256], int end[256]) {
  int n = 0, m = r->hi - r->lo;
  TrieKey *k = b->key + r->lo;
#define BYTE(x) ((x).n > r->depth ? 1 + (uint8_t)(x).p[r->depth] : 0)
  if (m <= FEW) {
    for (int i = 1; i < m; i++) {
      TrieKey x = k[i];
      int j = i, v = BYTE(x);
      for (; j && BYTE(k[j - 1]) > v; j--) k[j] = k[j - 1];
      k[j] = x;
    }
  } else {
    int at[257] = {0};
    for (int i = 0; i < m; i++) at[BYTE(k[i])]++;
    for (int i = 0, sum = 0; i < 257; i++) { int c = at[i]; at[i] = sum; sum += c; }
    for (int i = 0; i < m; i++) b->tmp[at[BYTE(k[i])]++] = k[i];
    memcpy(k, b->tmp, (size_t)m * sizeof *k);
  }
  for (int i = 0; i < m; i++) {
    int v = BYTE(k[i]);
    if (v && (!n || child[n - 1] != v - 1)) child[n++] = (uint8_t)(v - 1);
    if (v) end[n - 1] = r->lo + i + 1;
  }
#undef BYTE
  return n;
}

static void push(Build *b, Range r) {
  if (b->n_todo == b->cap_todo) {
    b->cap_todo = MAX((size_t)256, b->cap_todo * 2);
    b->todo = realloc(b->todo, b->cap_todo * sizeof *b->todo);
    CHECK(b->todo, "out of memory");
  }
  b->todo[b->n_todo++] = r;
}

static void place(Build *b, Range r) {
  uint8_t child[256];
  int end[256], n = sort_range(b, &r, child, end), lo = r.lo;
  if (b->key[lo].n == r.depth) {
    b->unit[r.node].value = b->key[lo].value;
    while (lo < r.hi && b->key[lo].n == r.depth) lo++;
  }
  if (!n) return;
  uint32_t base = base_for(b, child, n);
  room_for(b, base + SPAN);
  b->unit[r.node].base = base;
  for (int i = 0; i < n; i++) {
    uint32_t at = base + child[i];
    b->used[at / 64] |= (uint64_t)1 << (at % 64);
    b->unit[at] = (TrieUnit){.check = r.node, .value = -1};
    b->n = MAX(b->n, at + 1);
  }
  for (int i = n - 1; i >= 0; i--) push(b, (Range){base + child[i], i ? end[i - 1] : lo, end[i], r.depth + 1});
}

void text_trie_make(Trie *t, TrieKey *key, int n) {
  *t = (Trie){0};
  if (n <= 0) return;
  Build b = {.n = SPAN, .from = SPAN, .key = key};
  b.tmp = malloc((size_t)n * sizeof *b.tmp);
  CHECK(b.tmp, "out of memory");
  room_for(&b, 4 * SPAN);
  memset(b.used, 0xFF, SPAN / 8); /* so that no base is below 1, and a leaf, whose base is 0, finds none of its own */
  b.unit[TRIE_ROOT].value = -1;
  push(&b, (Range){TRIE_ROOT, 0, n, 0});
  while (b.n_todo) place(&b, b.todo[--b.n_todo]);
  for (int i = 0; i < n; i++)
    if (key[i].n) t->first[(uint8_t)key[i].p[0]] = true;
  t->unit = b.unit;
  free(b.used);
  free(b.tmp);
  free(b.todo);
}
