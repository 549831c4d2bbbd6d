/* Automata over symbols: from expressions by Thompson's and the subset construction, and their Boolean algebra by products. In: Re trees,
   automata. Out: deterministic automata whose every state leads to acceptance (dfa_trim). Every loop spends from the budget, so a hostile
   expression ends with ERR_LIMIT in bounded time and memory. Nothing recurses deeper than the expression, which its parser bounds. */
#include <stdlib.h>
#include <string.h>
#include "text/grammar_priv.h"

Err *grammar_work_spend(GrWork *w, int64_t n) {
  w->left -= n;
  if (w->left < 0) return err_new(ERR_LIMIT, "too large: compiling it takes more than %d steps", GR_BUDGET);
  return NULL;
}

void grammar_set_add(GrWork *w, SymSet *s, uint32_t lo, uint32_t hi) { PUSH(w->a, s->r, s->n, s->cap, (SymRange){lo, hi}); }

static int range_order(const void *x, const void *y) {
  uint32_t a = ((const SymRange *)x)->lo, b = ((const SymRange *)y)->lo;
  return a < b ? -1 : a > b;
}

void grammar_set_normalize(SymSet *s) {
  if (!s->n) return;
  qsort(s->r, (size_t)s->n, sizeof *s->r, range_order);
  int n = 0;
  for (int i = 1; i < s->n; i++) {
    if (s->r[i].lo <= s->r[n].hi || s->r[i].lo == s->r[n].hi + 1) s->r[n].hi = MAX(s->r[n].hi, s->r[i].hi);
    else s->r[++n] = s->r[i];
  }
  s->n = n + 1;
}

void grammar_set_invert(GrWork *w, SymSet *s) {
  SymSet out = {0};
  grammar_set_add(w, s, 0xD800, 0xDFFF);
  grammar_set_normalize(s);
  uint32_t at = 0;
  for (int i = 0; i < s->n; i++) {
    if (s->r[i].lo > at) grammar_set_add(w, &out, at, s->r[i].lo - 1);
    at = s->r[i].hi + 1;
  }
  if (at <= SYM_MAX_CHAR) grammar_set_add(w, &out, at, SYM_MAX_CHAR);
  *s = out;
}

/* The nondeterministic automaton: a node either reads one symbol of a set and goes on, or splits without reading. */
typedef struct NfaNode { const SymSet *set; int to, alt; } NfaNode;       /* set NULL: goes to `to` and `alt` (-1: not) */
typedef struct Nfa { GrWork *w; NfaNode *node; int n, cap, final; } Nfa;

static int node_new(Nfa *f, const SymSet *set, int to, int alt) {
  PUSH(f->w->a, f->node, f->n, f->cap, (NfaNode){set, to, alt});
  return f->n - 1;
}

/* Builds re so that it goes on to node `to`; *out is where it starts. */
static Err *nfa_build(Nfa *f, const Re *re, int to, int *out) {
  TRY(grammar_work_spend(f->w, 4));
  if (f->n > GR_NFA_MAX) return err_new(ERR_LIMIT, "too large: more than %d positions once repetitions are written out", GR_NFA_MAX);
  if (re->kind == RE_NONE) { *out = node_new(f, NULL, -1, -1); return NULL; }
  if (re->kind == RE_EMPTY) { *out = to; return NULL; }
  if (re->kind == RE_SET) { *out = node_new(f, re->set, to, -1); return NULL; }
  if (re->kind == RE_CAT) {
    for (int i = re->n_kids; i-- > 0;) TRY(nfa_build(f, re->kid[i], to, &to));
    *out = to;
    return NULL;
  }
  if (re->kind == RE_ALT) {
    int at = -1;
    for (int i = re->n_kids; i-- > 0;) {
      int k;
      TRY(nfa_build(f, re->kid[i], to, &k));
      at = at < 0 ? k : node_new(f, NULL, k, at);
    }
    *out = at < 0 ? node_new(f, NULL, -1, -1) : at;
    return NULL;
  }
  int at = to;
  if (re->max < 0) {
    int loop = node_new(f, NULL, -1, to), k;
    TRY(nfa_build(f, re->kid[0], loop, &k));
    f->node[loop].to = k;
    at = loop;
  } else {
    for (int i = re->min; i < re->max; i++) {
      int k;
      TRY(nfa_build(f, re->kid[0], at, &k));
      at = node_new(f, NULL, k, to);
    }
  }
  for (int i = 0; i < re->min; i++) TRY(nfa_build(f, re->kid[0], at, &at));
  *out = at;
  return NULL;
}

/* Symbols that no set of the expression tells apart are one class. */
typedef struct Classes {
  uint32_t *bound; int n_bounds;      /* interval i is bound[i] .. bound[i+1] - 1 */
  int *of;                            /* [n_bounds] class, -1: in no set */
  int n;
  const SymSet **set; int n_sets;
  int **members; int *n_members;      /* [n_sets] classes in the set */
} Classes;

static int u32_order(const void *x, const void *y) {
  uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
  return a < b ? -1 : a > b;
}
static int int_order(const void *x, const void *y) {
  int a = *(const int *)x, b = *(const int *)y;
  return a < b ? -1 : a > b;
}
static int set_order(const void *x, const void *y) {
  const SymSet *a = *(const SymSet *const *)x, *b = *(const SymSet *const *)y;
  return a < b ? -1 : a > b;
}
static int bound_find(const Classes *c, uint32_t v) { /* interval that begins at v */
  int lo = 0, hi = c->n_bounds - 1;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (c->bound[mid] < v) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

static Err *classes_number(GrWork *w, Classes *c, const uint64_t *sig) {
  uint32_t mask = 15;
  while (mask < 2u * (uint32_t)c->n_bounds + 2) mask = mask * 2 + 1;
  int *slot = ARENA_ARRAY(w->a, int, mask + 1);
  TRY(grammar_work_spend(w, c->n_bounds));
  for (int i = 0; i < c->n_bounds; i++) {
    c->of[i] = -1;
    if (!sig[i]) continue;
    uint32_t h = (uint32_t)(sig[i] ^ sig[i] >> 32) & mask;
    while (slot[h] && sig[slot[h] - 1] != sig[i]) h = (h + 1) & mask;
    if (!slot[h]) { slot[h] = i + 1; c->of[i] = c->n++; }
    else c->of[i] = c->of[slot[h] - 1];
  }
  return NULL;
}

static Err *classes_make(Nfa *f, Classes *c) {
  GrWork *w = f->w;
  Arena *a = w->a;
  const SymSet **all = ARENA_ARRAY(a, const SymSet *, f->n + 1);
  int n = 0;
  for (int i = 0; i < f->n; i++) if (f->node[i].set) all[n++] = f->node[i].set;
  qsort(all, (size_t)n, sizeof *all, set_order);
  c->set = all;
  size_t n_bounds = 0;
  for (int i = 0; i < n; i++)
    if (!i || all[i] != all[i - 1]) { c->set[c->n_sets++] = all[i]; n_bounds += 2 * (size_t)all[i]->n; }
  TRY(grammar_work_spend(w, (int64_t)n_bounds * 4));
  c->bound = ARENA_ARRAY(a, uint32_t, n_bounds + 1);
  for (int i = 0; i < c->n_sets; i++)
    for (int k = 0; k < c->set[i]->n; k++) {
      c->bound[c->n_bounds++] = c->set[i]->r[k].lo;
      c->bound[c->n_bounds++] = c->set[i]->r[k].hi + 1;
    }
  qsort(c->bound, (size_t)c->n_bounds, sizeof *c->bound, u32_order);
  int m = 0;
  for (int i = 0; i < c->n_bounds; i++) if (!i || c->bound[i] != c->bound[i - 1]) c->bound[m++] = c->bound[i];
  c->n_bounds = m;
  uint64_t *sig = ARENA_ARRAY(a, uint64_t, m + 1);
  c->of = ARENA_ARRAY(a, int, m + 1);
  for (int i = 0; i < c->n_sets; i++)
    for (int k = 0; k < c->set[i]->n; k++)
      for (int j = bound_find(c, c->set[i]->r[k].lo); j < m && c->bound[j] <= c->set[i]->r[k].hi; j++) {
        sig[j] = hash_bytes(&i, sizeof i, sig[j] + 1) | 1;
        TRY(grammar_work_spend(w, 2));
      }
  TRY(classes_number(w, c, sig));
  c->members = ARENA_ARRAY(a, int *, c->n_sets + 1);
  c->n_members = ARENA_ARRAY(a, int, c->n_sets + 1);
  int *seen = ARENA_ARRAY(a, int, c->n + 1);
  for (int i = 0; i < c->n_sets; i++) {
    int cap = 0;
    for (int k = 0; k < c->set[i]->n; k++)
      for (int j = bound_find(c, c->set[i]->r[k].lo); j < m && c->bound[j] <= c->set[i]->r[k].hi; j++)
        if (seen[c->of[j]] != i + 1) {
          seen[c->of[j]] = i + 1;
          PUSH(a, c->members[i], c->n_members[i], cap, c->of[j]);
          TRY(grammar_work_spend(w, 2));
        }
  }
  return NULL;
}
static int set_index(const Classes *c, const SymSet *s) {
  int lo = 0, hi = c->n_sets - 1;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (c->set[mid] < s) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

/* Sets of nodes, interned: a state of the deterministic automaton. */
typedef struct Subset { int *node; int n; uint64_t hash; } Subset;
typedef struct Subsets { Subset *s; int n, cap; int *slot; uint32_t mask; } Subsets;

static Err *subset_intern(GrWork *w, Subsets *t, const int *node, int n, int *out) {
  uint64_t h = hash_bytes(node, (size_t)n * sizeof *node, 1);
  if (2u * (uint32_t)t->n >= t->mask) {
    t->mask = t->mask ? t->mask * 2 + 1 : 63;
    t->slot = ARENA_ARRAY(w->a, int, t->mask + 1);
    for (int i = 0; i < t->n; i++) {
      uint32_t k = (uint32_t)t->s[i].hash & t->mask;
      while (t->slot[k]) k = (k + 1) & t->mask;
      t->slot[k] = i + 1;
    }
  }
  uint32_t k = (uint32_t)h & t->mask;
  for (; t->slot[k]; k = (k + 1) & t->mask) {
    const Subset *s = &t->s[t->slot[k] - 1];
    if (s->hash == h && s->n == n && !memcmp(s->node, node, (size_t)n * sizeof *node)) { *out = t->slot[k] - 1; return NULL; }
  }
  if (t->n >= GR_DFA_MAX) return err_new(ERR_LIMIT, "too large: more than %d states", GR_DFA_MAX);
  int *copy = ARENA_ARRAY(w->a, int, n + 1);
  if (n) memcpy(copy, node, (size_t)n * sizeof *node);
  PUSH(w->a, t->s, t->n, t->cap, (Subset){copy, n, h});
  t->slot[k] = t->n;
  *out = t->n - 1;
  return NULL;
}

typedef struct NodeList { int *p; int n, cap; } NodeList;

/* Adds what is reached from node i without reading. mark[i] == stamp: already there. */
static Err *closure_add(Nfa *f, int i, int *mark, int stamp, NodeList *todo, NodeList *out) {
  todo->n = 0;
  PUSH(f->w->a, todo->p, todo->n, todo->cap, i);
  while (todo->n) {
    int k = todo->p[--todo->n];
    if (k < 0 || mark[k] == stamp) continue;
    mark[k] = stamp;
    TRY(grammar_work_spend(f->w, 1));
    if (k == f->final || f->node[k].set) { PUSH(f->w->a, out->p, out->n, out->cap, k); continue; }
    PUSH(f->w->a, todo->p, todo->n, todo->cap, f->node[k].to);
    PUSH(f->w->a, todo->p, todo->n, todo->cap, f->node[k].alt);
  }
  return NULL;
}

static void dfa_edge(GrWork *w, DfaState *s, uint32_t lo, uint32_t hi, int32_t to) {
  if (s->n_edges && s->edge[s->n_edges - 1].to == to && s->edge[s->n_edges - 1].hi + 1 == lo) s->edge[s->n_edges - 1].hi = hi;
  else PUSH(w->a, s->edge, s->n_edges, s->cap, (DfaEdge){lo, hi, to});
}

static int dfa_state(GrWork *w, Dfa *d, int32_t tag) {
  PUSH(w->a, d->st, d->n, d->cap, (DfaState){.tag = tag});
  return d->n - 1;
}

static Err *determinize(Nfa *f, const Classes *c, int start, Dfa *d) {
  GrWork *w = f->w;
  Subsets t = {0};
  int *mark = ARENA_ARRAY(w->a, int, f->n + 1), stamp = 0, first;
  int *target = ARENA_ARRAY(w->a, int, c->n + 1);
  NodeList *bucket = ARENA_ARRAY(w->a, NodeList, c->n + 1), todo = {0}, list = {0};
  TRY(closure_add(f, start, mark, ++stamp, &todo, &list));
  if (list.n) qsort(list.p, (size_t)list.n, sizeof *list.p, int_order);
  TRY(subset_intern(w, &t, list.p, list.n, &first));
  for (int i = 0; i < t.n; i++) {
    int s = dfa_state(w, d, -1);
    for (int k = 0; k < c->n; k++) bucket[k].n = 0, target[k] = -1;
    for (int k = 0; k < t.s[i].n; k++) {
      int node = t.s[i].node[k];
      if (node == f->final) { d->st[s].tag = 0; continue; }
      int set = set_index(c, f->node[node].set);
      TRY(grammar_work_spend(w, 1 + c->n_members[set]));
      for (int j = 0; j < c->n_members[set]; j++) {
        NodeList *b = &bucket[c->members[set][j]];
        PUSH(w->a, b->p, b->n, b->cap, f->node[node].to);
      }
    }
    for (int k = 0; k < c->n; k++) {
      if (!bucket[k].n) continue;
      list.n = 0;
      stamp++;
      for (int j = 0; j < bucket[k].n; j++) TRY(closure_add(f, bucket[k].p[j], mark, stamp, &todo, &list));
      if (list.n) qsort(list.p, (size_t)list.n, sizeof *list.p, int_order);
      TRY(grammar_work_spend(w, 2 * list.n));
      TRY(subset_intern(w, &t, list.p, list.n, &target[k]));
    }
    TRY(grammar_work_spend(w, c->n_bounds));
    for (int k = 0; k + 1 < c->n_bounds; k++)
      if (c->of[k] >= 0 && target[c->of[k]] >= 0) dfa_edge(w, &d->st[s], c->bound[k], c->bound[k + 1] - 1, target[c->of[k]]);
  }
  return NULL;
}

/* Drops the edges into states from which nothing is accepted, then the states nobody reaches. */
static Err *dfa_trim(GrWork *w, Dfa *d) {
  int n = d->n, n_edges = 0;
  for (int i = 0; i < n; i++) n_edges += d->st[i].n_edges;
  TRY(grammar_work_spend(w, n + n_edges));
  int *head = ARENA_ARRAY(w->a, int, n + 1), *next = ARENA_ARRAY(w->a, int, n_edges + 1), *from = ARENA_ARRAY(w->a, int, n_edges + 1), k = 0;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < d->st[i].n_edges; j++) {
      int to = d->st[i].edge[j].to;
      from[k] = i;
      next[k] = head[to];
      head[to] = ++k;
    }
  bool *alive = ARENA_ARRAY(w->a, bool, n + 1);
  int *todo = ARENA_ARRAY(w->a, int, n + 1), n_todo = 0;
  for (int i = 0; i < n; i++) if (d->st[i].tag >= 0) { alive[i] = true; todo[n_todo++] = i; }
  while (n_todo) {
    int at = todo[--n_todo];
    for (int e = head[at]; e; e = next[e - 1])
      if (!alive[from[e - 1]]) { alive[from[e - 1]] = true; todo[n_todo++] = from[e - 1]; }
  }
  int *map = ARENA_ARRAY(w->a, int, n + 1), m = 0;
  for (int i = 0; i < n; i++) map[i] = -1;
  map[0] = 0;
  int *order = ARENA_ARRAY(w->a, int, n + 1);
  order[m++] = 0;
  for (int i = 0; i < m; i++)
    for (int j = 0; j < d->st[order[i]].n_edges; j++) {
      int to = d->st[order[i]].edge[j].to;
      if (alive[to] && map[to] < 0) { map[to] = m; order[m++] = to; }
    }
  Dfa out = {0};
  for (int i = 0; i < m; i++) {
    const DfaState *s = &d->st[order[i]];
    int q = dfa_state(w, &out, s->tag);
    for (int j = 0; j < s->n_edges; j++)
      if (alive[s->edge[j].to]) dfa_edge(w, &out.st[q], s->edge[j].lo, s->edge[j].hi, map[s->edge[j].to]);
  }
  *d = out;
  return NULL;
}

/* Moore's refinement. A long chain takes as many rounds as it has states, so large automata are only trimmed. */
enum { MINIMIZE_MAX = 600 };
Err *grammar_dfa_minimize(GrWork *w, Dfa *d) {
  TRY(dfa_trim(w, d));
  int n = d->n, n_class = 0;
  if (n > MINIMIZE_MAX || n < 2) return NULL;
  int *cls = ARENA_ARRAY(w->a, int, n), *fresh = ARENA_ARRAY(w->a, int, n), *slot = ARENA_ARRAY(w->a, int, 2048);
  uint64_t *sig = ARENA_ARRAY(w->a, uint64_t, n);
  for (;;) {
    memset(slot, 0, 2048 * sizeof *slot);
    int m = 0;
    for (int i = 0; i < n; i++) {
      const DfaState *s = &d->st[i];
      int32_t own[2] = {s->tag, cls[i]};
      uint64_t h = hash_bytes(own, sizeof own, 17);
      for (int j = 0; j < s->n_edges;) { /* neighbours with targets of one class are one edge */
        int k = j + 1, to = cls[s->edge[j].to];
        while (k < s->n_edges && s->edge[k].lo == s->edge[k - 1].hi + 1 && cls[s->edge[k].to] == to) k++;
        uint32_t key[3] = {s->edge[j].lo, s->edge[k - 1].hi, (uint32_t)to};
        h = hash_bytes(key, sizeof key, h);
        j = k;
      }
      TRY(grammar_work_spend(w, 1 + s->n_edges));
      sig[i] = h;
      uint32_t k = (uint32_t)(h ^ h >> 32) & 2047;
      while (slot[k] && sig[slot[k] - 1] != h) k = (k + 1) & 2047;
      if (!slot[k]) { slot[k] = i + 1; fresh[i] = m++; }
      else fresh[i] = fresh[slot[k] - 1];
    }
    int *swap = cls;
    cls = fresh;
    fresh = swap;
    if (m == n_class) break;
    n_class = m;
  }
  if (n_class == n) return NULL;
  Dfa out = {0};
  for (int c = 0; c < n_class; c++)
    for (int i = 0; i < n; i++)
      if (cls[i] == c) {
        int q = dfa_state(w, &out, d->st[i].tag);
        for (int j = 0; j < d->st[i].n_edges; j++)
          dfa_edge(w, &out.st[q], d->st[i].edge[j].lo, d->st[i].edge[j].hi, cls[d->st[i].edge[j].to]);
        break;
      }
  *d = out;
  return NULL;
}

Err *grammar_dfa_from_re(GrWork *w, const Re *re, Dfa **out) {
  Nfa f = {.w = w};
  Classes c = {0};
  Dfa *d = ARENA_NEW(w->a, Dfa);
  int start;
  f.final = node_new(&f, NULL, -1, -1);
  TRY(nfa_build(&f, re, f.final, &start));
  TRY(classes_make(&f, &c));
  TRY(determinize(&f, &c, start, d));
  TRY(grammar_dfa_minimize(w, d));
  *out = d;
  return NULL;
}

typedef struct Pairs { GrWork *w; int (*pair)[2]; int n, cap; int *slot; uint32_t mask; } Pairs;

static Err *pair_intern(Pairs *t, int p, int q, int *out) {
  if (2u * (uint32_t)t->n >= t->mask) {
    t->mask = t->mask ? t->mask * 2 + 1 : 63;
    t->slot = ARENA_ARRAY(t->w->a, int, t->mask + 1);
    for (int i = 0; i < t->n; i++) {
      uint32_t k = (uint32_t)hash_bytes(t->pair[i], sizeof t->pair[i], 7) & t->mask;
      while (t->slot[k]) k = (k + 1) & t->mask;
      t->slot[k] = i + 1;
    }
  }
  int key[2] = {p, q};
  uint32_t k = (uint32_t)hash_bytes(key, sizeof key, 7) & t->mask;
  for (; t->slot[k]; k = (k + 1) & t->mask)
    if (t->pair[t->slot[k] - 1][0] == p && t->pair[t->slot[k] - 1][1] == q) { *out = t->slot[k] - 1; return NULL; }
  if (t->n >= GR_DFA_MAX) return err_new(ERR_LIMIT, "too large: more than %d states", GR_DFA_MAX);
  if (t->n == t->cap) t->pair = arena_grow(t->w->a, t->pair, sizeof *t->pair, (size_t)t->n, &t->cap);
  t->pair[t->n][0] = p;
  t->pair[t->n++][1] = q;
  t->slot[k] = t->n;
  *out = t->n - 1;
  return NULL;
}

/* Sweeps both states' edges; a side that is dead (-1) has none. */
static Err *product_state(Pairs *t, const Dfa *a, const Dfa *b, int p, int q, DfaState *s) {
  static const DfaState dead = {.tag = -1};
  const DfaState *x = p < 0 ? &dead : &a->st[p], *y = q < 0 ? &dead : &b->st[q];
  uint32_t at = 0;
  for (int i = 0, j = 0; i < x->n_edges || j < y->n_edges;) {
    uint32_t lo = UINT32_MAX, hi = UINT32_MAX;
    int to_x = -1, to_y = -1;
    if (i < x->n_edges) lo = MAX(x->edge[i].lo, at);
    if (j < y->n_edges) lo = MIN(lo, MAX(y->edge[j].lo, at));
    if (i < x->n_edges) {
      if (x->edge[i].lo <= lo) { to_x = x->edge[i].to; hi = MIN(hi, x->edge[i].hi); }
      else hi = MIN(hi, x->edge[i].lo - 1);
    }
    if (j < y->n_edges) {
      if (y->edge[j].lo <= lo) { to_y = y->edge[j].to; hi = MIN(hi, y->edge[j].hi); }
      else hi = MIN(hi, y->edge[j].lo - 1);
    }
    int to;
    TRY(pair_intern(t, to_x, to_y, &to));
    TRY(grammar_work_spend(t->w, 3));
    dfa_edge(t->w, s, lo, hi, to);
    at = hi + 1;
    if (i < x->n_edges && x->edge[i].hi <= hi) i++;
    if (j < y->n_edges && y->edge[j].hi <= hi) j++;
  }
  return NULL;
}

Err *grammar_dfa_product(GrWork *w, const Dfa *a, const Dfa *b, DfaCombine f, void *ctx, Dfa **out) {
  Pairs t = {.w = w};
  Dfa *d = ARENA_NEW(w->a, Dfa);
  int first;
  TRY(pair_intern(&t, 0, 0, &first));
  for (int i = 0; i < t.n; i++) {
    int p = t.pair[i][0], q = t.pair[i][1];
    int s = dfa_state(w, d, p < 0 && q < 0 ? -1 : f(ctx, p < 0 ? -1 : a->st[p].tag, q < 0 ? -1 : b->st[q].tag));
    if (p >= 0 || q >= 0) TRY(product_state(&t, a, b, p, q, &d->st[s]));
  }
  TRY(grammar_dfa_minimize(w, d));
  *out = d;
  return NULL;
}

static int32_t tag_and(void *ctx, int32_t a, int32_t b) { (void)ctx; return a >= 0 && b >= 0 ? a : -1; }
static int32_t tag_or(void *ctx, int32_t a, int32_t b) { (void)ctx; return a >= 0 ? a : b; }
static int32_t tag_minus(void *ctx, int32_t a, int32_t b) { (void)ctx; return b < 0 ? a : -1; }
Err *grammar_dfa_and(GrWork *w, const Dfa *a, const Dfa *b, Dfa **out) { return grammar_dfa_product(w, a, b, tag_and, NULL, out); }
Err *grammar_dfa_or(GrWork *w, const Dfa *a, const Dfa *b, Dfa **out) { return grammar_dfa_product(w, a, b, tag_or, NULL, out); }
Err *grammar_dfa_minus(GrWork *w, const Dfa *a, const Dfa *b, Dfa **out) { return grammar_dfa_product(w, a, b, tag_minus, NULL, out); }

static void edge_any(GrWork *w, Dfa *d, int from, int32_t to) {
  dfa_edge(w, &d->st[from], 0, 0xD7FF, to);
  dfa_edge(w, &d->st[from], 0xE000, SYM_MAX_CHAR, to);
}

Dfa *grammar_dfa_any(GrWork *w) {
  Dfa *d = ARENA_NEW(w->a, Dfa);
  edge_any(w, d, dfa_state(w, d, 0), 0);
  return d;
}

Dfa *grammar_dfa_empty(GrWork *w) {
  Dfa *d = ARENA_NEW(w->a, Dfa);
  dfa_state(w, d, -1);
  return d;
}

bool grammar_dfa_is_empty(const Dfa *d) { return d->n == 1 && d->st[0].tag < 0 && !d->st[0].n_edges; }

Err *grammar_dfa_length(GrWork *w, int64_t min, int64_t max, Dfa **out) {
  int64_t n = max < 0 ? min : max;
  if (n >= GR_DFA_MAX) return err_new(ERR_LIMIT, "a length of %lld together with another condition on the text, expected at most %d", (long long)n, GR_DFA_MAX - 1);
  Dfa *d = ARENA_NEW(w->a, Dfa);
  TRY(grammar_work_spend(w, n + 1));
  for (int64_t i = 0; i <= n; i++) dfa_state(w, d, i >= min ? 0 : -1);
  for (int64_t i = 0; i < n; i++) edge_any(w, d, (int)i, (int32_t)i + 1);
  if (max < 0) edge_any(w, d, (int)n, (int32_t)n);
  TRY(dfa_trim(w, d));
  *out = d;
  return NULL;
}

typedef struct TrieEdge { uint32_t cp; int to, next; } TrieEdge;

/* A trie; with total every text that is no word ends in one more state, or inside the trie where no word ends. */
Err *grammar_dfa_words(GrWork *w, const DfaWord *word, int n, bool total, Dfa **out) {
  Dfa *d = ARENA_NEW(w->a, Dfa);
  int *head = NULL, n_head = 0, cap_head = 0, n_edges = 0, cap_edges = 0;
  TrieEdge *edge = NULL;
  dfa_state(w, d, -1);
  PUSH(w->a, head, n_head, cap_head, 0);
  for (int i = 0; i < n; i++) {
    int at = 0;
    const char *p = word[i].p, *end = p + word[i].n;
    while (p < end) {
      int k = 1;
      uint32_t cp = (uint8_t)*p;
      if (cp >= 0xC0) { k = cp >= 0xF0 ? 4 : cp >= 0xE0 ? 3 : 2; cp &= 0x3Fu >> (k - 1); }
      for (int j = 1; j < k; j++) cp = cp << 6 | ((uint8_t)p[j] & 0x3F);
      p += k;
      int e = head[at];
      TRY(grammar_work_spend(w, 4));
      while (e && edge[e - 1].cp != cp) { e = edge[e - 1].next; TRY(grammar_work_spend(w, 1)); }
      if (!e) {
        int to = dfa_state(w, d, -1);
        if (d->n >= GR_DFA_MAX * 4) return err_new(ERR_LIMIT, "too large: words of more than %d letters together", GR_DFA_MAX * 4);
        PUSH(w->a, head, n_head, cap_head, 0);
        PUSH(w->a, edge, n_edges, cap_edges, (TrieEdge){cp, to, head[at]});
        head[at] = e = n_edges;
      }
      at = edge[e - 1].to;
    }
    if (d->st[at].tag < 0) d->st[at].tag = i;
  }
  int n_trie = d->n, other = total ? dfa_state(w, d, n) : -1;
  for (int i = 0; i < n_trie; i++) {
    SymRange *r = NULL;
    int n_r = 0, cap_r = 0;
    for (int e = head[i]; e; e = edge[e - 1].next) PUSH(w->a, r, n_r, cap_r, (SymRange){edge[e - 1].cp, (uint32_t)edge[e - 1].to});
    if (n_r) qsort(r, (size_t)n_r, sizeof *r, range_order);
    uint32_t at = 0;
    for (int k = 0; k <= n_r; k++) {
      uint32_t stop = k < n_r ? r[k].lo : SYM_MAX_CHAR + 1;
      if (total && stop > at) {
        if (at < 0xD800) dfa_edge(w, &d->st[i], at, MIN(stop - 1, 0xD7FF), other);
        if (stop > 0xE000) dfa_edge(w, &d->st[i], MAX(at, 0xE000), stop - 1, other);
      }
      if (k < n_r) dfa_edge(w, &d->st[i], r[k].lo, r[k].lo, (int32_t)r[k].hi);
      at = stop + 1;
    }
    if (total && d->st[i].tag < 0) d->st[i].tag = n;
  }
  if (total) edge_any(w, d, other, other);
  TRY(total ? NULL : dfa_trim(w, d));
  *out = d;
  return NULL;
}

Err *grammar_dfa_machine(GrWork *w, const DfaMachine *m, Dfa **out) {
  Dfa *d = ARENA_NEW(w->a, Dfa);
  Pairs t = {.w = w};
  int first;
  TRY(pair_intern(&t, (int)(uint32_t)m->start, (int)(m->start >> 32), &first));
  for (int i = 0; i < t.n; i++) {
    uint64_t state = (uint64_t)(uint32_t)t.pair[i][1] << 32 | (uint32_t)t.pair[i][0];
    int s = dfa_state(w, d, m->tag(m->ctx, state));
    for (const char *c = m->alphabet; *c; c++) {
      uint64_t next = m->step(m->ctx, state, *c);
      TRY(grammar_work_spend(w, 2));
      if (next == UINT64_MAX) continue;
      int to;
      TRY(pair_intern(&t, (int)(uint32_t)next, (int)(next >> 32), &to));
      dfa_edge(w, &d->st[s], (uint8_t)*c, (uint8_t)*c, to);
    }
  }
  TRY(grammar_dfa_minimize(w, d));
  *out = d;
  return NULL;
}

bool grammar_dfa_equal(const Dfa *a, const Dfa *b) {
  if (a->n != b->n) return false;
  for (int i = 0; i < a->n; i++) {
    const DfaState *x = &a->st[i], *y = &b->st[i];
    if (x->tag != y->tag || x->n_edges != y->n_edges) return false;
    if (x->n_edges && memcmp(x->edge, y->edge, sizeof(DfaEdge) * (size_t)x->n_edges)) return false;
  }
  return true;
}
