/* Matching and masks. In: a grammar, a vocabulary, bytes. Out: states, and for each which tokens may come next.

   A state is a set of threads. A thread is a position in a rule and a stack of returns; stacks are shared nodes (`Frame`), interned, so a
   thread is two numbers and a state is a short sorted array, interned too: the pushdown automaton is made deterministic as far as it is
   walked, and each state's row of successors is filled when first asked for. Forking costs nothing; what is reached again is found again.

   A mask is the union over the threads. What a thread may read inside its rule does not depend on the stack, so it is found once for each
   position (`Entry`): the tokens that end inside, and for those that leave the rule half way, what is left of them, as a trie of rests.
   Only these rests are walked with the stack at hand. Positions that behave alike for MASK_BYTES_MAX bytes share an entry; longer tokens,
   few, are walked each time. Where every plain text passes (most of the time inside strings) whole buckets of tokens are taken unseen.

   States live in one pool; when it is large, it is compacted to what handles still hold. One lock guards everything. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "text/mask_priv.h"

enum { BOTTOM = 0, UNKNOWN = 0, DEAD = 1, THREADS_MAX = 4096, POOL_MAX = 1 << 25 /* bytes, then compaction */, POOL_HARD = 1 << 28, CACHE_MAX = 1 << 26 };
typedef struct Frame { uint32_t parent, ret; uint64_t aux; } Frame;
typedef struct Thread { uint32_t frame, q; uint64_t aux; } Thread;
typedef struct Set { uint32_t at, n; bool ends; } Set;       /* threads; ends: a whole text (of the rule at the bottom) is over */
typedef struct Index { uint32_t *slot; uint32_t mask, n; } Index;
typedef struct Entry {
  uint32_t q;
  uint64_t aux;
  uint64_t *dense;         /* tokens that end inside: a mask, or a list when there are few */
  int32_t *few;
  uint32_t n_few;
  MaskTrie rest;
} Entry;
typedef struct Rounds { uint32_t rule; uint64_t *mask; } Rounds; /* [MASK_BYTES_MAX + 1][n_words] plain tokens of at most so many rounds; NULL: not to be told */
struct GrammarMatcher {
  const Grammar *g;
  const GrammarVocab *v;
  pthread_mutex_t lock;
  Frame *frame; uint32_t n_frames, cap_frames; Index frames;
  Thread *thread; uint32_t n_threads, cap_threads;
  Set *set; uint32_t n_sets, cap_sets; Index sets;
  uint32_t *next;          /* [cap_sets][n_byte_classes] */
  Thread *todo; uint32_t n_todo, cap_todo;
  Thread *seen; uint32_t n_seen, cap_seen; Index visited;
  Thread *fresh; uint32_t n_fresh, cap_fresh;
  bool fresh_ends, overflow;
  Entry **entry; uint32_t n_entries, cap_entries; Index entries;
  Rounds *rounds; uint32_t n_rounds, cap_rounds;
  size_t cache_bytes;
  GrammarState *live;
  uint8_t byte_of[256];    /* one byte of each class */
};
struct GrammarState { GrammarMatcher *m; uint32_t set; int n_refs; GrammarState *prev, *next; };

static void *need(void *p) {
  CHECK(p);
  return p;
}

#define ADD(items, n, cap, ...)                                                        \
  do {                                                                                 \
    if ((n) == (cap)) {                                                                \
      (cap) = (cap) ? (cap) * 2 : 64;                                                  \
      (items) = need(realloc((items), (size_t)(cap) * sizeof *(items)));               \
    }                                                                                  \
    (items)[(n)++] = (__VA_ARGS__);                                                    \
  } while (0)

static uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t h = (a ^ b * 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
  return h ^ h >> 32;
}
static bool index_is_full(const Index *x) { return 2 * (x->n + 1) > x->mask; }
static void index_reset(Index *x, uint32_t mask) {
  free(x->slot);
  x->slot = need(calloc((size_t)mask + 1, sizeof *x->slot));
  x->mask = mask;
  x->n = 0;
}
static void index_put(Index *x, uint64_t hash, uint32_t id) { /* id is not in it */
  uint32_t k = (uint32_t)hash & x->mask;
  while (x->slot[k]) k = (k + 1) & x->mask;
  x->slot[k] = id + 1;
  x->n++;
}

static uint64_t frame_hash(Frame f) { return mix(mix(f.parent, f.ret), f.aux); }
static uint64_t thread_hash(Thread t) { return mix(mix(t.frame, t.q), t.aux); }
static uint64_t set_hash(const Thread *t, uint32_t n, bool ends) {
  uint64_t h = ends;
  for (uint32_t i = 0; i < n; i++) h = mix(h, thread_hash(t[i]));
  return h;
}

static uint32_t frame_intern(GrammarMatcher *m, Frame f) {
  uint64_t h = frame_hash(f);
  if (index_is_full(&m->frames)) {
    index_reset(&m->frames, m->frames.mask * 2 + 1);
    for (uint32_t i = 1; i < m->n_frames; i++) index_put(&m->frames, frame_hash(m->frame[i]), i);
  }
  for (uint32_t k = (uint32_t)h & m->frames.mask; m->frames.slot[k]; k = (k + 1) & m->frames.mask) {
    const Frame *o = &m->frame[m->frames.slot[k] - 1];
    if (o->parent == f.parent && o->ret == f.ret && o->aux == f.aux) return m->frames.slot[k] - 1;
  }
  ADD(m->frame, m->n_frames, m->cap_frames, f);
  index_put(&m->frames, h, m->n_frames - 1);
  return m->n_frames - 1;
}

/* Collecting a state: add threads, then set_intern. */
static void threads_begin(GrammarMatcher *m) {
  if (m->n_seen > 16) memset(m->visited.slot, 0, ((size_t)m->visited.mask + 1) * sizeof *m->visited.slot);
  m->visited.n = m->n_seen = m->n_todo = m->n_fresh = 0;
  m->fresh_ends = false;
}

static bool thread_is_new(GrammarMatcher *m, Thread t) {
  if (m->n_seen < 16) {
    for (uint32_t i = 0; i < m->n_seen; i++) if (m->seen[i].q == t.q && m->seen[i].frame == t.frame && m->seen[i].aux == t.aux) return false;
    ADD(m->seen, m->n_seen, m->cap_seen, t);
    return true;
  }
  if (m->n_seen == 16 && !m->visited.n) for (uint32_t i = 0; i < 16; i++) index_put(&m->visited, thread_hash(m->seen[i]), i);
  uint64_t h = thread_hash(t);
  for (uint32_t k = (uint32_t)h & m->visited.mask; m->visited.slot[k]; k = (k + 1) & m->visited.mask) {
    const Thread *o = &m->seen[m->visited.slot[k] - 1];
    if (o->q == t.q && o->frame == t.frame && o->aux == t.aux) return false;
  }
  if (m->n_seen >= THREADS_MAX) { m->overflow = true; return false; }
  ADD(m->seen, m->n_seen, m->cap_seen, t);
  index_put(&m->visited, h, m->n_seen - 1);
  return true;
}

/* Adds a thread and all it reaches without reading: returns and calls. */
static void thread_add(GrammarMatcher *m, Thread first) {
  const Grammar *g = m->g;
  ADD(m->todo, m->n_todo, m->cap_todo, first);
  while (m->n_todo) {
    Thread t = m->todo[--m->n_todo];
    if (!thread_is_new(m, t)) continue;
    const GrState *s = &g->st[t.q];
    GrPos p = {t.q, t.aux};
    if (s->n_edges) ADD(m->fresh, m->n_fresh, m->cap_fresh, t);
    if (grammar_pos_accepts(g, p)) {
      if (t.frame == BOTTOM) m->fresh_ends = true;
      else {
        const Frame *f = &m->frame[t.frame];
        ADD(m->todo, m->n_todo, m->cap_todo, (Thread){f->parent, f->ret, f->aux});
      }
    }
    for (int i = 0; i < s->n_calls; i++) {
      const GrCall *c = &g->call[s->call + (uint32_t)i];
      uint64_t aux;
      if (!grammar_call_allowed(g, p, c, &aux)) continue;
      uint32_t frame = g->st[c->ret].tail ? t.frame : frame_intern(m, (Frame){t.frame, c->ret, aux});
      ADD(m->todo, m->n_todo, m->cap_todo, (Thread){frame, g->rule[c->rule].start, 0});
    }
  }
}

static int thread_order(const void *x, const void *y) {
  const Thread *a = x, *b = y;
  if (a->frame != b->frame) return a->frame < b->frame ? -1 : 1;
  if (a->q != b->q) return a->q < b->q ? -1 : 1;
  return a->aux < b->aux ? -1 : a->aux > b->aux;
}

static size_t pool_bytes(const GrammarMatcher *m) {
  return m->n_sets * (sizeof(Set) + (size_t)m->g->n_byte_classes * 4 + 8) + m->n_threads * sizeof(Thread) + m->n_frames * (sizeof(Frame) + 8);
}

static uint32_t set_intern(GrammarMatcher *m) {
  Thread *t = m->fresh;
  uint32_t n = m->n_fresh;
  bool ends = m->fresh_ends;
  if ((!n && !ends) || m->overflow) return DEAD;
  if (pool_bytes(m) > POOL_HARD) { m->overflow = true; return DEAD; }
  if (n > 1) qsort(t, n, sizeof *t, thread_order);
  uint64_t h = set_hash(t, n, ends);
  if (index_is_full(&m->sets)) {
    index_reset(&m->sets, m->sets.mask * 2 + 1);
    for (uint32_t i = 2; i < m->n_sets; i++) index_put(&m->sets, set_hash(m->thread + m->set[i].at, m->set[i].n, m->set[i].ends), i);
  }
  for (uint32_t k = (uint32_t)h & m->sets.mask; m->sets.slot[k]; k = (k + 1) & m->sets.mask) {
    const Set *s = &m->set[m->sets.slot[k] - 1];
    if (s->n == n && s->ends == ends && (!n || !memcmp(m->thread + s->at, t, n * sizeof *t))) return m->sets.slot[k] - 1;
  }
  uint32_t at = m->n_threads, cap = m->cap_sets;
  for (uint32_t i = 0; i < n; i++) ADD(m->thread, m->n_threads, m->cap_threads, t[i]);
  ADD(m->set, m->n_sets, m->cap_sets, (Set){at, n, ends});
  size_t row = (size_t)m->g->n_byte_classes;
  if (m->cap_sets != cap) m->next = need(realloc(m->next, m->cap_sets * row * sizeof *m->next));
  memset(m->next + (m->n_sets - 1) * row, 0, row * sizeof *m->next);
  index_put(&m->sets, h, m->n_sets - 1);
  return m->n_sets - 1;
}

static uint32_t step_slow(GrammarMatcher *m, uint32_t set, int class) {
  const Grammar *g = m->g;
  uint8_t b = m->byte_of[class];
  threads_begin(m);
  for (uint32_t i = 0; i < m->set[set].n; i++) {
    Thread t = m->thread[m->set[set].at + i];
    const GrState *s = &g->st[t.q];
    for (int k = 0; k < s->n_edges; k++) {
      const GrEdge *e = &g->edge[s->edge + (uint32_t)k];
      uint64_t aux;
      if (e->lo > b) break;
      if (e->hi >= b && grammar_edge_allowed(g, (GrPos){t.q, t.aux}, e, &aux)) thread_add(m, (Thread){t.frame, e->to, aux});
    }
  }
  uint32_t to = set_intern(m);
  if (!m->overflow) m->next[(size_t)set * (size_t)g->n_byte_classes + (size_t)class] = to;
  return to;
}

static inline uint32_t step(GrammarMatcher *m, uint32_t set, uint8_t byte) {
  int class = m->g->byte_class[byte];
  uint32_t to = m->next[(size_t)set * (size_t)m->g->n_byte_classes + (size_t)class];
  return to != UNKNOWN ? to : step_slow(m, set, class);
}

/* The set of one thread, not closed: what it reads inside its rule. */
static uint32_t set_alone(GrammarMatcher *m, uint32_t q, uint64_t aux) {
  threads_begin(m);
  ADD(m->fresh, m->n_fresh, m->cap_fresh, (Thread){BOTTOM, q, aux});
  return set_intern(m);
}

/* How many bytes of any plain text pass from here; MASK_BYTES_MAX: no end in sight. Inside a counted rule the rounds are left out of what
   tells places apart and set against the bytes afterwards: each round reads one byte at least. *by_char: from here, at the beginning of a
   round, every plain character is one round. */
typedef struct Front { uint32_t set, key; int utf8, depth; } Front;
static uint32_t front_key(const GrammarMatcher *m, uint32_t set) {
  const Set *s = &m->set[set];
  if (s->n != 1) return set;
  const Thread *t = &m->thread[s->at];
  return t->frame == BOTTOM && m->g->rule[m->g->st[t->q].rule].kind == GR_COUNTED ? t->q | 1u << 31 : set;
}
static int plain_bytes(GrammarMatcher *m, uint32_t from, GrPos p, bool *by_char) {
  enum { FRONT_MAX = 100 };
  static const uint8_t probe[] = {'a', 'Z', '0', ' ', '.', 0xC3, 0xE4, 0xF0};
  const GrRule *r = &m->g->rule[m->g->st[p.q].rule];
  Front f[FRONT_MAX];
  int n = 0, most = MASK_BYTES_MAX;
  *by_char = false;
  if (r->kind == GR_COUNTED && r->max >= 0) most = (int)MIN((int64_t)most, r->max - (int64_t)p.aux);
  for (size_t i = 0; i < COUNT_OF(probe); i++) if (step(m, from, probe[i]) == DEAD) return 0;
  f[n++] = (Front){from, front_key(m, from), 0, 0};
  bool one_place = r->kind == GR_COUNTED && p.q == r->loop;
  for (int i = 0; i < n && f[i].depth < MASK_BYTES_MAX; i++) {
    uint32_t last_to = UNKNOWN;
    int last_utf8 = -1;
    for (int b = 0; b < 256; b++) {
      int u = grammar_plain_next(f[i].utf8, b), k = 0;
      if (u < 0) continue;
      uint32_t to = step(m, f[i].set, (uint8_t)b);
      if (to == DEAD) return MIN(f[i].depth, most);
      if (to == last_to && u == last_utf8) continue;
      last_to = to;
      last_utf8 = u;
      uint32_t key = front_key(m, to);
      while (k < n && (f[k].key != key || f[k].utf8 != u)) k++;
      if (k < n) continue;
      if (n == FRONT_MAX) return MIN(f[i].depth, most);
      one_place &= u != 0; /* between characters there is only the beginning, which stands first */
      f[n++] = (Front){to, key, u, f[i].depth + 1};
    }
  }
  *by_char = one_place;
  return most;
}

typedef struct Rests { MaskWord *word; size_t n, cap; } Rests;

static inline void bits_add(uint64_t *mask, const int32_t *id, uint32_t n) {
  for (uint32_t k = 0; k < n; k++) mask[(uint32_t)id[k] / 64] |= 1ull << (id[k] % 64);
}
static inline void set_bits(uint64_t *mask, const MaskTrie *t, const MaskNode *node) { bits_add(mask, t->token + node->tok, node->n_tok); }
static uint32_t tokens_end(const MaskTrie *t, const MaskNode *node) { return node->skip < t->n ? t->node[node->skip].tok : t->n_tokens; } /* of the node and all below it */

/* Sets the bits of the tokens that pass. rests: notes the nodes after which the rule is over, in `left`. */
typedef struct Left { uint32_t *node; uint32_t n, cap; } Left;
static void trie_walk(GrammarMatcher *m, const MaskTrie *t, uint32_t from, uint64_t *mask, Left *left) {
  uint32_t small[MASK_BYTES_MAX + 1], *path = small, cap = COUNT_OF(small);
  path[0] = from;
  for (uint32_t i = 0; i < t->n;) {
    const MaskNode *node = &t->node[i];
    uint32_t to = step(m, path[node->depth - 1], node->byte);
    if (to == DEAD) { i = node->skip; continue; }
    if (node->depth >= cap) {
      uint32_t *more = need(malloc(2 * (size_t)cap * sizeof *more));
      memcpy(more, path, cap * sizeof *more);
      if (path != small) free(path);
      path = more;
      cap *= 2;
    }
    path[node->depth] = to;
    set_bits(mask, t, node);
    if (left && m->set[to].ends && node->skip > i + 1) ADD(left->node, left->n, left->cap, i);
    if (!m->set[to].n) { i = node->skip; continue; }
    i++;
  }
  if (path != small) free(path);
}

/* Of the tokens below the noted nodes, those not in the mask yet: what is left of them. A token's place in the vocabulary gives its bytes. */
static void rests_add(const GrammarVocab *v, const MaskTrie *t, const Left *left, const uint64_t *mask, Rests *r) {
  for (uint32_t i = 0; i < left->n; i++) {
    const MaskNode *top = &t->node[left->node[i]];
    for (uint32_t k = top->tok + top->n_tok, to = tokens_end(t, top); k < to; k++) {
      int32_t id = t->token[k];
      if (mask[id / 64] >> (id % 64) & 1) continue;
      ADD(r->word, r->n, r->cap, (MaskWord){v->bytes + v->off[id] + top->depth, v->off[id + 1] - v->off[id] - top->depth, id});
    }
  }
}

/* Near its bound every place of a counted rule lets other tokens pass. But a plain token takes the same rounds from all of them, so one walk,
   begun MASK_BYTES_MAX rounds and more below the bound, tells for each token how many. False: the rule is not of that kind. */
static bool rounds_walk(GrammarMatcher *m, const GrRule *r, const MaskTrie *t, uint64_t *mask) {
  uint32_t path[MASK_BYTES_MAX + 1];
  uint64_t start = (uint64_t)(r->max - MASK_BYTES_MAX - 1);
  path[0] = set_alone(m, r->loop, start);
  for (uint32_t i = 0; i < t->n;) {
    const MaskNode *node = &t->node[i];
    uint32_t to = step(m, path[node->depth - 1], node->byte);
    if (to == DEAD) { i = node->skip; continue; }
    if (m->set[to].n != 1 || m->set[to].ends) return false;
    path[node->depth] = to;
    Thread at = m->thread[m->set[to].at];
    if (at.frame != BOTTOM || (node->n_tok && at.q != r->loop)) return false;
    if (node->n_tok) set_bits(mask + (size_t)(at.aux - start) * m->v->n_words, t, node);
    i++;
  }
  return true;
}

static const uint64_t *rounds_get(GrammarMatcher *m, uint32_t rule) {
  const GrRule *r = &m->g->rule[rule];
  const GrState *loop = &m->g->st[r->loop];
  size_t n_words = m->v->n_words;
  for (uint32_t i = 0; i < m->n_rounds; i++) if (m->rounds[i].rule == rule) return m->rounds[i].mask;
  bool ok = !loop->accept && !loop->n_calls;
  for (int i = 0; i < loop->n_edges; i++) {
    const GrEdge *e = &m->g->edge[loop->edge + (uint32_t)i];
    ok &= e->act != GR_CLOSE || (e->lo == '"' && e->hi == '"'); /* no plain token leaves the rule */
  }
  uint64_t *mask = ok ? need(calloc((MASK_BYTES_MAX + 1) * n_words + 1, sizeof *mask)) : NULL;
  for (int t = 0; t < MASK_BUCKETS && ok; t++) ok = rounds_walk(m, r, &m->v->trie[t], mask);
  if (!ok || m->overflow) { free(mask); mask = NULL; }
  for (size_t k = 1; mask && k <= MASK_BYTES_MAX; k++)
    for (size_t i = 0; i < n_words; i++) mask[k * n_words + i] |= mask[(k - 1) * n_words + i];
  if (mask) m->cache_bytes += (MASK_BYTES_MAX + 1) * n_words * 8;
  ADD(m->rounds, m->n_rounds, m->cap_rounds, (Rounds){rule, mask});
  return mask;
}

/* Every whole character that is not ASCII leads back home. */
static bool home_of_utf8(GrammarMatcher *m, uint32_t home) {
  enum { FRONT_MAX = 32 };
  Front f[FRONT_MAX] = {{.set = home}};
  for (int i = 0, n = 1; i < n; i++)
    for (int b = 0x80; b < 0xF5; b++) {
      int u = grammar_plain_next(f[i].utf8, b), k = 0;
      if (u < 0) continue;
      uint32_t to = step(m, f[i].set, (uint8_t)b);
      if (to == DEAD || (!u && to != home)) return false;
      if (!u) continue;
      while (k < n && (f[k].set != to || f[k].utf8 != u)) k++;
      if (k < n) continue;
      if (n == FRONT_MAX) return false;
      f[n++] = (Front){.set = to, .utf8 = u};
    }
  return true;
}

/* One token that is not known to pass. */
static void token_walk(GrammarMatcher *m, uint32_t from, uint32_t id, uint64_t *mask, Rests *r) {
  const GrammarVocab *v = m->v;
  const uint8_t *p = v->bytes + v->off[id];
  uint32_t n = v->off[id + 1] - v->off[id], at = from, left[MASK_BYTES_MAX], n_left = 0;
  for (uint32_t i = 0; i < n && at != DEAD; i++) {
    at = step(m, at, p[i]);
    if (i + 1 == n) break;
    if (m->set[at].ends) left[n_left++] = i + 1;
    if (!m->set[at].n) at = DEAD;
  }
  if (at != DEAD) mask[id / 64] |= 1ull << (id % 64);
  else for (uint32_t k = 0; k < n_left; k++) ADD(r->word, r->n, r->cap, (MaskWord){p + left[k], n - left[k], (int32_t)id});
}

static void tokens_walk(GrammarMatcher *m, uint32_t from, const uint64_t *set, uint64_t *mask, Rests *r) {
  for (size_t k = 0; k < m->v->n_words; k++)
    for (uint64_t bits = set[k]; bits; bits &= bits - 1) token_walk(m, from, (uint32_t)(k * 64 + (size_t)__builtin_ctzll(bits)), mask, r);
}

/* The bytes that lead elsewhere from one place than from the other; -1: more than UNLIKE_MAX. */
enum { UNLIKE_MAX = 64 };
static int unlike_bytes(GrammarMatcher *m, uint32_t here, uint32_t there, uint8_t *out) {
  int n = 0;
  for (int b = 0; b < GR_SPECIAL; b++) {
    if (step(m, here, (uint8_t)b) == step(m, there, (uint8_t)b)) continue;
    if (n == UNLIKE_MAX) return -1;
    out[n++] = (uint8_t)b;
  }
  return n;
}

/* Text that goes on and on has a home: nearly every character leads back to it, at once or after one that may begin a marker. */
static bool is_home(GrammarMatcher *m, uint32_t home, bool *high) {
  enum { ASCII_MIN = 100 };
  int n_plain = 0;
  *high = true;
  for (int b = 0; b < 128; b++) n_plain += step(m, home, (uint8_t)b) == home;
  for (int b = 128; b < GR_SPECIAL; b++) *high &= step(m, home, (uint8_t)b) == home;
  return n_plain >= ASCII_MIN && (*high || home_of_utf8(m, home));
}

static void or_byte(const GrammarVocab *v, int b, uint64_t *rest) {
  for (size_t k = 0; k < v->n_words; k++) rest[k] |= v->byte_mask[(size_t)b * v->n_words + k];
}

/* The tokens from home, or from a place that differs from it in these bytes. Where the places after a character that does not lead home
   differ from home in a few bytes only, a token without those neighbours passes unseen; the others are walked. */
static void home_walk(GrammarMatcher *m, uint32_t from, uint32_t home, bool high, const uint8_t *odd, int n_odd, uint64_t *mask, Rests *rests) {
  const GrammarVocab *v = m->v;
  uint64_t *rest = need(calloc(v->n_words + 1, sizeof *rest));
  or_byte(v, GR_SPECIAL, rest);
  for (int i = 0; i < n_odd; i++) or_byte(v, odd[i], rest);
  for (int b = 0; b < (high ? GR_SPECIAL : 128); b++) {
    uint8_t unlike[UNLIKE_MAX];
    uint32_t to = step(m, home, (uint8_t)b);
    int n = to == home ? 0 : to == DEAD ? -1 : unlike_bytes(m, to, home, unlike);
    if (n < 0) or_byte(v, b, rest);
    for (int i = 0; i < n; i++) {
      const uint32_t *at = &v->pair_at[b * 256 + unlike[i]];
      bits_add(rest, v->pair_token + at[0], at[1] - at[0]);
    }
  }
  for (size_t k = 0; k < v->n_words; k++) {
    if (!high) rest[k] |= v->torn_mask[k];
    mask[k] |= v->short_mask[k] & ~rest[k];
  }
  tokens_walk(m, from, rest, mask, rests);
  free(rest);
}

/* mask: what passes from `home`; made what passes from `from`. Only where the two are in different places a token has to be looked at. */
static void trie_walk_beside(GrammarMatcher *m, const MaskTrie *t, uint32_t from, uint32_t home, uint64_t *mask, Left *left) {
  struct { uint32_t here, there; } path[MASK_BYTES_MAX + 1] = {{from, home}};
  for (uint32_t i = 0; i < t->n;) {
    const MaskNode *node = &t->node[i];
    uint32_t here = path[node->depth - 1].here, there = path[node->depth - 1].there;
    here = m->set[here].n ? step(m, here, node->byte) : DEAD;
    there = m->set[there].n ? step(m, there, node->byte) : DEAD;
    if (here == there) { i = node->skip; continue; }
    if (here == DEAD) {
      for (uint32_t k = node->tok, to = tokens_end(t, node); k < to; k++) mask[t->token[k] / 64] &= ~(1ull << (t->token[k] % 64));
      i = node->skip;
      continue;
    }
    path[node->depth].here = here;
    path[node->depth].there = there;
    set_bits(mask, t, node);
    if (m->set[here].ends && node->skip > i + 1) ADD(left->node, left->n, left->cap, i);
    i++;
  }
}

static const Entry *entry_get(GrammarMatcher *m, const Thread *t);
static void entry_mask(const Entry *e, size_t n_words, uint64_t *mask) { /* added to mask */
  if (e->dense) for (size_t k = 0; k < n_words; k++) mask[k] |= e->dense[k];
  bits_add(mask, e->few, e->n_few);
}

/* A place that is soon home: what passes there, and where the ways differ. What leaves the rule half way from home is walked anew. */
static void home_beside(GrammarMatcher *m, uint32_t from, uint32_t home, const Entry *at_home, uint64_t *mask, Rests *rests) {
  size_t n_words = m->v->n_words;
  Left left = {0};
  uint64_t *anew = need(calloc(n_words + 1, sizeof *anew));
  entry_mask(at_home, n_words, mask);
  bits_add(anew, at_home->rest.token, at_home->rest.n_tokens);
  for (int t = 0; t <= MASK_OTHER; t++) {
    left.n = 0;
    trie_walk_beside(m, &m->v->trie[t], from, home, mask, &left);
    for (size_t k = 0; k < n_words && left.n; k++) mask[k] |= anew[k];
    rests_add(m->v, &m->v->trie[t], &left, mask, rests);
  }
  for (size_t k = 0; k < n_words; k++) mask[k] &= ~anew[k];
  tokens_walk(m, from, anew, mask, rests);
  free(anew);
  free(left.node);
}

/* False: it is no place in free text, nor one that is soon there. */
static bool free_text_walk(GrammarMatcher *m, GrPos at, uint32_t from, uint64_t *mask, Rests *rests) {
  enum { WAY_MAX = 3 };
  uint32_t home = from;
  uint8_t odd[UNLIKE_MAX];
  bool high;
  for (int i = 0; i < WAY_MAX && home != DEAD; i++) home = step(m, home, 'a');
  if (home == DEAD || step(m, home, 'a') != home || !is_home(m, home, &high)) return false;
  int n_odd = unlike_bytes(m, from, home, odd);
  if (n_odd < 0) return false;
  const Entry *known = NULL;
  if (n_odd && m->set[home].n == 1) {
    Thread t = m->thread[m->set[home].at];
    GrPos p = grammar_pos_canonical(m->g, (GrPos){t.q, t.aux}, MASK_BYTES_MAX);
    if (t.frame == BOTTOM && p.q == t.q && p.aux == t.aux && (t.q != at.q || t.aux != at.aux)) known = entry_get(m, &t);
  }
  if (known) home_beside(m, from, home, known, mask, rests);
  else home_walk(m, from, home, high, odd, n_odd, mask, rests);
  return true;
}

static void entry_free(Entry *e) {
  free(e->dense);
  free(e->few);
  grammar_trie_free(&e->rest);
  free(e);
}

static Entry *entry_make(GrammarMatcher *m, GrPos p) {
  const GrammarVocab *v = m->v;
  uint64_t *mask = need(calloc(v->n_words + 1, sizeof *mask));
  uint32_t from = set_alone(m, p.q, p.aux), count = 0;
  Rests rests = {0};
  Left left = {0};
  bool by_char;
  int plain = plain_bytes(m, from, p, &by_char);
  if (by_char) {
    const GrRule *r = &m->g->rule[m->g->st[p.q].rule];
    size_t chars = r->max < 0 ? MASK_BYTES_MAX : (size_t)MIN((int64_t)MASK_BYTES_MAX, r->max - (int64_t)p.aux);
    for (size_t k = 0; k < v->n_words; k++) mask[k] |= v->chars_mask[chars * v->n_words + k];
  }
  const GrRule *rule = &m->g->rule[m->g->st[p.q].rule];
  const uint64_t *rounds = !by_char && rule->kind == GR_COUNTED && p.q == rule->loop && rule->max > 0 ? rounds_get(m, m->g->st[p.q].rule) : NULL;
  if (rounds) {
    size_t left_over = (size_t)MIN((int64_t)MASK_BYTES_MAX, MAX(rule->max - (int64_t)p.aux, 0));
    for (size_t k = 0; k < v->n_words; k++) mask[k] |= rounds[left_over * v->n_words + k];
  }
  bool is_free = !by_char && !rounds && free_text_walk(m, p, from, mask, &rests);
  for (int t = 0; t <= MASK_OTHER && !is_free; t++) {
    if (t < MASK_BUCKETS && (by_char || rounds)) continue;
    if (t < MASK_BUCKETS && grammar_bucket_bytes[t] <= plain) {
      for (size_t k = 0; k < v->n_words; k++) mask[k] |= v->bucket_mask[t][k];
      continue;
    }
    left.n = 0;
    trie_walk(m, &v->trie[t], from, mask, &left);
    rests_add(v, &v->trie[t], &left, mask, &rests);
  }
  Entry *e = need(calloc(1, sizeof *e));
  e->q = p.q;
  e->aux = p.aux;
  grammar_trie_build(rests.word, rests.n, &e->rest);
  for (size_t k = 0; k < v->n_words; k++) count += (uint32_t)__builtin_popcountll(mask[k]);
  if (count < v->n_words) {
    e->few = need(malloc((count + 1) * sizeof *e->few));
    for (size_t k = 0; k < v->n_words; k++)
      for (uint64_t bits = mask[k]; bits; bits &= bits - 1) e->few[e->n_few++] = (int32_t)(k * 64 + (size_t)__builtin_ctzll(bits));
    free(mask);
  } else {
    e->dense = mask;
  }
  m->cache_bytes += sizeof *e + (e->dense ? v->n_words * 8 : count * 4) + e->rest.n * sizeof(MaskNode) + e->rest.n_tokens * 4;
  free(rests.word);
  free(left.node);
  return e;
}

static void cache_clear(GrammarMatcher *m) {
  for (uint32_t i = 0; i < m->n_entries; i++) entry_free(m->entry[i]);
  for (uint32_t i = 0; i < m->n_rounds; i++) free(m->rounds[i].mask);
  m->n_entries = m->n_rounds = 0;
  m->cache_bytes = 0;
  index_reset(&m->entries, 255);
}

static const Entry *entry_get(GrammarMatcher *m, const Thread *t) {
  GrPos p = grammar_pos_canonical(m->g, (GrPos){t->q, t->aux}, MASK_BYTES_MAX);
  uint64_t h = mix(p.q, p.aux);
  for (uint32_t k = (uint32_t)h & m->entries.mask; m->entries.slot[k]; k = (k + 1) & m->entries.mask) {
    const Entry *e = m->entry[m->entries.slot[k] - 1];
    if (e->q == p.q && e->aux == p.aux) return e;
  }
  Entry *e = entry_make(m, p);
  if (m->overflow) { entry_free(e); return NULL; }
  ADD(m->entry, m->n_entries, m->cap_entries, e);
  if (index_is_full(&m->entries)) {
    index_reset(&m->entries, m->entries.mask * 2 + 1);
    for (uint32_t i = 0; i + 1 < m->n_entries; i++) index_put(&m->entries, mix(m->entry[i]->q, m->entry[i]->aux), i);
  }
  index_put(&m->entries, h, m->n_entries - 1);
  return e;
}

/* Keeps what handles hold. A frame's parent has a lower number, so renumbering upwards is enough. */
static void pool_compact(GrammarMatcher *m) {
  uint32_t *frame_to = need(calloc(m->n_frames, sizeof *frame_to)), *set_to = need(calloc(m->n_sets, sizeof *set_to));
  uint8_t *keep = need(calloc(m->n_frames, 1));
  for (GrammarState *s = m->live; s; s = s->next) {
    set_to[s->set] = 1;
    for (uint32_t i = 0; i < m->set[s->set].n; i++)
      for (uint32_t f = m->thread[m->set[s->set].at + i].frame; !keep[f]; f = m->frame[f].parent) keep[f] = 1;
  }
  uint32_t n = 1;
  index_reset(&m->frames, m->frames.mask);
  for (uint32_t i = 1; i < m->n_frames; i++) {
    if (!keep[i]) continue;
    Frame f = m->frame[i];
    f.parent = frame_to[f.parent];
    frame_to[i] = n;
    m->frame[n] = f;
    index_put(&m->frames, frame_hash(f), n++);
  }
  m->n_frames = n;
  uint32_t n_sets = 2, n_threads = 0;
  size_t row = (size_t)m->g->n_byte_classes;
  index_reset(&m->sets, m->sets.mask);
  for (uint32_t i = 2; i < m->n_sets; i++) { /* threads of a set lie in the order of the sets */
    if (!set_to[i]) continue;
    Set s = m->set[i];
    for (uint32_t k = 0; k < s.n; k++) {
      Thread t = m->thread[s.at + k];
      t.frame = frame_to[t.frame];
      m->thread[n_threads + k] = t;
    }
    s.at = n_threads;
    n_threads += s.n;
    set_to[i] = n_sets;
    m->set[n_sets] = s;
    memset(m->next + n_sets * row, 0, row * sizeof *m->next);
    index_put(&m->sets, set_hash(m->thread + s.at, s.n, s.ends), n_sets++);
  }
  m->n_sets = n_sets;
  m->n_threads = n_threads;
  for (GrammarState *s = m->live; s; s = s->next) s->set = set_to[s->set];
  free(frame_to);
  free(set_to);
  free(keep);
}

/* Every call that may add to the pool starts here, with the lock held. */
static void enter(GrammarMatcher *m) {
  pthread_mutex_lock(&m->lock);
  m->overflow = false;
  if (pool_bytes(m) > POOL_MAX) pool_compact(m);
}
static Err *leave(GrammarMatcher *m) {
  bool overflow = m->overflow;
  pthread_mutex_unlock(&m->lock);
  return overflow ? err_new(ERR_LIMIT, "the grammar is too ambiguous to follow: more than %d readings of the text at once", THREADS_MAX) : NULL;
}

static GrammarState *handle_new(GrammarMatcher *m, uint32_t set) {
  GrammarState *s = need(calloc(1, sizeof *s));
  s->m = m;
  s->set = set;
  s->n_refs = 1;
  s->next = m->live;
  if (m->live) m->live->prev = s;
  m->live = s;
  return s;
}

GrammarMatcher *grammar_matcher_new(const Grammar *g, const GrammarVocab *v) {
  GrammarMatcher *m = need(calloc(1, sizeof *m));
  m->g = g;
  m->v = v;
  pthread_mutex_init(&m->lock, NULL);
  for (int b = 255; b >= 0; b--) m->byte_of[g->byte_class[b]] = (uint8_t)b;
  index_reset(&m->frames, 255);
  index_reset(&m->sets, 255);
  index_reset(&m->entries, 255);
  index_reset(&m->visited, 4 * THREADS_MAX - 1);
  ADD(m->frame, m->n_frames, m->cap_frames, (Frame){0});
  for (int i = 0; i < 2; i++) ADD(m->set, m->n_sets, m->cap_sets, (Set){0});
  m->next = need(calloc(m->cap_sets * (size_t)g->n_byte_classes, sizeof *m->next));
  for (int c = 0; c < g->n_byte_classes; c++) m->next[g->n_byte_classes + c] = DEAD;
  return m;
}

void grammar_matcher_free(GrammarMatcher *m) {
  if (!m) return;
  CHECK(!m->live);
  cache_clear(m);
  free(m->entry);
  free(m->rounds);
  free(m->entries.slot);
  free(m->frames.slot);
  free(m->sets.slot);
  free(m->visited.slot);
  free(m->frame);
  free(m->thread);
  free(m->set);
  free(m->next);
  free(m->todo);
  free(m->seen);
  free(m->fresh);
  pthread_mutex_destroy(&m->lock);
  free(m);
}

GrammarState *grammar_state_start(GrammarMatcher *m) {
  enter(m);
  threads_begin(m);
  if (m->g->rule[m->g->root].productive) thread_add(m, (Thread){BOTTOM, m->g->rule[m->g->root].start, 0});
  GrammarState *s = handle_new(m, set_intern(m));
  err_free(leave(m)); /* a start too ambiguous to follow is dead; the next call on a live one tells */
  return s;
}

GrammarState *grammar_state_ref(GrammarState *s) {
  pthread_mutex_lock(&s->m->lock);
  s->n_refs++;
  pthread_mutex_unlock(&s->m->lock);
  return s;
}

void grammar_state_unref(GrammarState *s) {
  if (!s) return;
  GrammarMatcher *m = s->m;
  pthread_mutex_lock(&m->lock);
  bool last = !--s->n_refs;
  if (last) {
    if (s->prev) s->prev->next = s->next;
    else m->live = s->next;
    if (s->next) s->next->prev = s->prev;
  }
  pthread_mutex_unlock(&m->lock);
  if (last) free(s);
}

Err *grammar_state_accept(GrammarState *s, const void *bytes, size_t n, GrammarState **out) {
  GrammarMatcher *m = s->m;
  const uint8_t *p = bytes;
  enter(m);
  uint32_t set = s->set;
  GrammarState *next = NULL;
  for (size_t i = 0; i < n && set != DEAD; i++) {
    set = step(m, set, p[i]);
    if (pool_bytes(m) <= POOL_MAX || set == DEAD || m->overflow || i + 1 == n) continue;
    GrammarState *here = handle_new(m, set); /* a long text: compact with this place held */
    pool_compact(m);
    set = here->set;
    m->live = here->next;
    if (m->live) m->live->prev = NULL;
    free(here);
  }
  if (set != DEAD && !m->overflow) next = handle_new(m, set);
  TRY(leave(m));
  *out = next;
  return NULL;
}

Err *grammar_state_accept_token(GrammarState *s, int32_t id, GrammarState **out) {
  size_t n;
  CHECK(s->m->v);
  const uint8_t *p = grammar_vocab_bytes(s->m->v, id, &n);
  if (!p) { *out = NULL; return NULL; }
  return grammar_state_accept(s, p, n, out);
}

bool grammar_state_may_end(const GrammarState *s) {
  pthread_mutex_lock(&s->m->lock);
  bool ends = s->m->set[s->set].ends;
  pthread_mutex_unlock(&s->m->lock);
  return ends;
}

bool grammar_state_must_end(const GrammarState *s) {
  pthread_mutex_lock(&s->m->lock);
  bool ends = s->m->set[s->set].ends && !s->m->set[s->set].n;
  pthread_mutex_unlock(&s->m->lock);
  return ends;
}

static void mask_add(GrammarMatcher *m, uint32_t set, uint32_t i, uint64_t *mask) {
  Thread t = m->thread[m->set[set].at + i];
  const Entry *e = entry_get(m, &t);
  if (!e) return;
  entry_mask(e, m->v->n_words, mask);
  if (t.frame == BOTTOM || !e->rest.n) return;
  Frame f = m->frame[t.frame];
  threads_begin(m);
  thread_add(m, (Thread){f.parent, f.ret, f.aux});
  uint32_t after = set_intern(m);
  if (after != DEAD) trie_walk(m, &e->rest, after, mask, NULL);
}

Err *grammar_state_mask(GrammarState *s, uint64_t *mask) {
  GrammarMatcher *m = s->m;
  CHECK(m->v);
  enter(m);
  if (m->cache_bytes > CACHE_MAX) cache_clear(m);
  memset(mask, 0, m->v->n_words * sizeof *mask);
  for (uint32_t i = 0; i < m->set[s->set].n && !m->overflow; i++) mask_add(m, s->set, i, mask);
  if (!m->overflow) trie_walk(m, &m->v->trie[MASK_LONG], s->set, mask, NULL);
  return leave(m);
}

Err *grammar_state_forced(GrammarState *s, size_t max_bytes, Str *out) {
  GrammarMatcher *m = s->m;
  enter(m);
  uint32_t set = s->set;
  for (size_t i = 0; i < max_bytes && !m->set[set].ends; i++) {
    int only = -1, n = 0;
    for (int b = 0; b < 256 && n < 2; b++)
      if (step(m, set, (uint8_t)b) != DEAD) { only = b; n++; }
    if (n != 1 || m->overflow) break;
    str_add_c(out, (char)only);
    set = step(m, set, (uint8_t)only);
  }
  return leave(m);
}
