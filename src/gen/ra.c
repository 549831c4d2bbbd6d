/* Register allocation: linear scan over live ranges with holes, after coalescing, in rounds.

   In: machine IR in SSA form. Out: a register for each virtual register, or a stack slot; the code then holds the reloads and spills.

   Positions grow by 4 per instruction in layout order. An instruction at p reads until p+1, destroys its fixed registers in p..p+2, and
   its result lives from p+2: so a result may take the place of an operand that dies. Edge arguments are read until their block's end;
   parameters live from their block's start.

     1  liveness      per virtual register, walking from its uses up to its definition: time grows with the length of the result
     2  coalescing    ties first (they must), then edge arguments with parameters and copies, deepest loops first, where ranges do
                      not meet: a loop-carried accumulator becomes one class, so one register, and its moves vanish
     3  scan          classes by start; when no register is free the cheapest class in the way (uses weighted by 10^depth, over
                      length) goes to memory, whole: constants are made anew at each use instead
     4  rewriting     uses and definitions in memory get tiny ranges of their own, and the rounds begin again until nothing spills */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "gen/mir.h"

typedef struct Seg { int from, to; } Seg;           /* half-open */
typedef struct Range { Seg *s; int n; } Range;
enum { N_HINTS = 4, MAX_ROUNDS = 24 };

/* One class of virtual registers that share a register; held by its root. */
typedef struct Class {
  Range range;
  double weight;               /* infinite: must not spill */
  int hint[N_HINTS], n_hints;  /* members of classes it is copied from or to */
  int cur;                     /* first segment that may still matter to the scan */
  int8_t phys, want;           /* -1: none */
  uint8_t cls, bytes;
  bool low16, spilled;
  int n_members;
} Class;

typedef struct Pair { int a, b, depth; bool copy; } Pair;
typedef struct Ra {
  MFn *fn;
  Arena *a;                    /* this round's */
  const RegSet *set;
  int *start, *end;            /* positions of blocks */
  int *parent;                 /* union-find over virtual registers */
  Class *cl;                   /* by virtual register; valid at roots */
  int **preds, *n_preds;
  int *held[M_N_CLASS][M_MAX_REGS], n_held[M_N_CLASS][M_MAX_REGS], cap_held[M_N_CLASS][M_MAX_REGS]; /* classes given each register, not yet ended */
  Seg *fixed[8]; int n_fixed[8], cap_fixed[8];      /* general registers destroyed by instructions */
  bool any_spill;
} Ra;

int mir_reg_new(MFn *fn, MClass cls, int bytes) {
  MReg r = {.cls = (uint8_t)cls, .bytes = (uint8_t)bytes, .slot = M_NONE, .def_block = -1};
  PUSH(fn->arena, fn->regs, fn->n_regs, fn->cap_regs, r);
  return fn->n_regs - 1;
}

int mir_pool_add(MFn *fn, const void *p, int n_bytes) {
  for (int i = 0; i < fn->n_pool; i++)
    if (fn->pool[i].n_bytes == n_bytes && !memcmp(fn->pool[i].p, p, (size_t)n_bytes)) return i;
  MConst c = {.n_bytes = n_bytes};
  memcpy(c.p, p, (size_t)n_bytes);
  PUSH(fn->arena, fn->pool, fn->n_pool, fn->cap_pool, c);
  return fn->n_pool - 1;
}

/* The registers that an instruction reads; at most 8. */
static int reads_of(const MIns *in, int32_t out[8]) {
  int n = 0;
  for (int i = in->flags & M_DEF ? 1 : 0; i < in->n_r; i++) if (in->r[i] >= 0) out[n++] = in->r[i];
  if (in->tied >= 0) out[n++] = in->tied;
  if (in->base >= 0) out[n++] = in->base;
  if (in->index >= 0) out[n++] = in->index;
  if (in->mask >= 0) out[n++] = in->mask;
  return n;
}

/* ---- 1: liveness ---- */
typedef struct Use { int block, pos; } Use;
typedef struct Live {
  int *first, *n;              /* uses of v: list[first[v] .. + n[v]] */
  Use *list;
  int *in_mark, *touch_mark, *to;  /* by block: stamps of v, and the end of v's range in it */
  int *stack, *touched;
} Live;

static void blocks_number(Ra *ra) {
  MFn *fn = ra->fn;
  ra->start = ARENA_ARRAY(ra->a, int, fn->n_blocks);
  ra->end = ARENA_ARRAY(ra->a, int, fn->n_blocks);
  ra->preds = ARENA_ARRAY(ra->a, int *, fn->n_blocks);
  ra->n_preds = ARENA_ARRAY(ra->a, int, fn->n_blocks);
  int pos = 0, *fill = ARENA_ARRAY(ra->a, int, fn->n_blocks);
  for (int b = 0; b < fn->n_blocks; b++) {
    MBlock *k = &fn->blocks[b];
    ra->start[b] = pos;
    pos += 4 * (k->n_ins + 2);
    ra->end[b] = pos;
    for (int i = 0; i < (k->term == M_JCC ? 2 : k->term == M_JMP); i++) ra->n_preds[k->succ[i]]++;
  }
  for (int b = 0; b < fn->n_blocks; b++) ra->preds[b] = ARENA_ARRAY(ra->a, int, ra->n_preds[b]);
  for (int b = 0; b < fn->n_blocks; b++) {
    MBlock *k = &fn->blocks[b];
    for (int i = 0; i < (k->term == M_JCC ? 2 : k->term == M_JMP); i++) ra->preds[k->succ[i]][fill[k->succ[i]]++] = b;
  }
}
static int ins_pos(const Ra *ra, int b, int i) { return ra->start[b] + 4 * (i + 1); }

/* Two passes over the code: count, then place. */
static void uses_collect(Ra *ra, Live *lv) {
  MFn *fn = ra->fn;
  int32_t rd[8];
  lv->first = ARENA_ARRAY(ra->a, int, fn->n_regs);
  lv->n = ARENA_ARRAY(ra->a, int, fn->n_regs);
  for (int pass = 0; pass < 2; pass++) {
    for (int b = 0; b < fn->n_blocks; b++) {
      MBlock *k = &fn->blocks[b];
      for (int i = 0; i < k->n_ins; i++) {
        if (k->ins[i].flags & M_DEF) fn->regs[k->ins[i].r[0]].def_block = b, fn->regs[k->ins[i].r[0]].def_ins = i;
        int n = reads_of(&k->ins[i], rd);
        for (int j = 0; j < n; j++) {
          if (pass) lv->list[lv->first[rd[j]] + lv->n[rd[j]]] = (Use){b, ins_pos(ra, b, i) + 1};
          lv->n[rd[j]]++;
        }
      }
      for (int i = 0; i < k->n_args; i++) {
        if (pass) lv->list[lv->first[k->args[i]] + lv->n[k->args[i]]] = (Use){b, ra->end[b]};
        lv->n[k->args[i]]++;
      }
      for (int i = 0; i < k->n_params; i++) fn->regs[k->params[i]].def_block = b, fn->regs[k->params[i]].def_ins = -1;
    }
    if (pass) break;
    int total = 0;
    for (int v = 0; v < fn->n_regs; v++) { lv->first[v] = total; total += lv->n[v]; lv->n[v] = 0; }
    lv->list = ARENA_ARRAY(ra->a, Use, total);
  }
}

static int int_order(const void *a, const void *b) { return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b); }

static void touch(Live *lv, int v, int b, int to, int *n_touched) {
  if (lv->touch_mark[b] != v + 1) { lv->touch_mark[b] = v + 1; lv->to[b] = 0; lv->touched[(*n_touched)++] = b; }
  if (to > lv->to[b]) lv->to[b] = to;
}

static Range range_of(Ra *ra, Live *lv, int v) {
  MReg *r = &ra->fn->regs[v];
  int n_touched = 0, sp = 0, def = r->def_ins < 0 ? ra->start[r->def_block] : ins_pos(ra, r->def_block, r->def_ins) + 2;
  touch(lv, v, r->def_block, def + 1, &n_touched);
  for (int i = 0; i < lv->n[v]; i++) {
    Use u = lv->list[lv->first[v] + i];
    touch(lv, v, u.block, u.pos, &n_touched);
    if (u.block != r->def_block && lv->in_mark[u.block] != v + 1) { lv->in_mark[u.block] = v + 1; lv->stack[sp++] = u.block; }
  }
  while (sp) {
    int b = lv->stack[--sp];
    for (int i = 0; i < ra->n_preds[b]; i++) {
      int p = ra->preds[b][i];
      touch(lv, v, p, ra->end[p], &n_touched);
      if (p != r->def_block && lv->in_mark[p] != v + 1) { lv->in_mark[p] = v + 1; lv->stack[sp++] = p; }
    }
  }
  if (n_touched > 1) qsort(lv->touched, (size_t)n_touched, sizeof(int), int_order);
  Range out = {ARENA_ARRAY(ra->a, Seg, n_touched), 0};
  for (int i = 0; i < n_touched; i++) {
    int b = lv->touched[i];
    Seg s = {b == r->def_block ? def : ra->start[b], lv->to[b]};
    if (out.n && out.s[out.n - 1].to == s.from) out.s[out.n - 1].to = s.to;
    else out.s[out.n++] = s;
  }
  return out;
}

static double freq(int depth) {
  static const double f[] = {1, 10, 100, 1000, 10000, 100000};
  return f[MIN(depth, 5)];
}

static void liveness(Ra *ra) {
  MFn *fn = ra->fn;
  Live lv = {0};
  uses_collect(ra, &lv);
  lv.in_mark = ARENA_ARRAY(ra->a, int, fn->n_blocks);
  lv.touch_mark = ARENA_ARRAY(ra->a, int, fn->n_blocks);
  lv.to = ARENA_ARRAY(ra->a, int, fn->n_blocks);
  lv.stack = ARENA_ARRAY(ra->a, int, fn->n_blocks);
  lv.touched = ARENA_ARRAY(ra->a, int, fn->n_blocks);
  for (int v = 0; v < fn->n_regs; v++) {
    MReg *r = &fn->regs[v];
    if (r->slot != M_NONE || r->def_block < 0) continue;
    Class *c = &ra->cl[v];
    c->range = range_of(ra, &lv, v);
    c->cls = r->cls, c->bytes = r->bytes, c->low16 = r->low16, c->n_members = 1;
    c->weight = freq(fn->blocks[r->def_block].depth);
    for (int i = 0; i < lv.n[v]; i++) c->weight += freq(fn->blocks[lv.list[lv.first[v] + i].block].depth);
    if (r->remat) c->weight *= 0.5;
    if (r->no_spill) c->weight = 1e300;
  }
}

/* ---- 2: coalescing ---- */
static int root(Ra *ra, int v) {
  while (ra->parent[v] != v) v = ra->parent[v] = ra->parent[ra->parent[v]];
  return v;
}
static bool ranges_meet(const Range *x, int i, const Range *y, int j) {
  while (i < x->n && j < y->n) {
    if (x->s[i].to <= y->s[j].from) i++;
    else if (y->s[j].to <= x->s[i].from) j++;
    else return true;
  }
  return false;
}
static Range range_merge(Arena *a, const Range *x, const Range *y) {
  Range out = {ARENA_ARRAY(a, Seg, x->n + y->n), 0};
  for (int i = 0, j = 0; i < x->n || j < y->n;) {
    Seg s = j == y->n || (i < x->n && x->s[i].from < y->s[j].from) ? x->s[i++] : y->s[j++];
    /* A gap of one position is the step from an operand to the result in its place. */
    if (out.n && s.from - out.s[out.n - 1].to <= 1) out.s[out.n - 1].to = s.to;
    else out.s[out.n++] = s;
  }
  return out;
}
static void hint_add(Class *c, int v) { if (c->n_hints < N_HINTS) c->hint[c->n_hints++] = v; }

static void unite(Ra *ra, int a, int b) {
  Class *x = &ra->cl[a], *y = &ra->cl[b];
  x->range = range_merge(ra->a, &x->range, &y->range);
  x->weight += y->weight;
  x->bytes = MAX(x->bytes, y->bytes);
  x->low16 = x->low16 || y->low16;
  x->n_members += y->n_members;
  if (x->want < 0) x->want = y->want;
  for (int i = 0; i < y->n_hints; i++) hint_add(x, y->hint[i]);
  ra->parent[b] = a;
}
static bool try_unite(Ra *ra, int a, int b) {
  if (ra->fn->regs[a].slot != M_NONE || ra->fn->regs[b].slot != M_NONE) return false;
  bool fixed = ra->fn->regs[a].remat || ra->fn->regs[b].remat;
  a = root(ra, a), b = root(ra, b);
  if (a == b) return true;
  Class *x = &ra->cl[a], *y = &ra->cl[b];
  if (x->cls != y->cls) return false;
  if (!fixed && !ranges_meet(&x->range, 0, &y->range, 0)) { unite(ra, a, b); return true; }
  hint_add(x, b);
  hint_add(y, a);
  return false;
}

static int pair_order(const void *a, const void *b) {
  const Pair *x = a, *y = b;
  if (x->depth != y->depth) return y->depth - x->depth;
  if (x->copy != y->copy) return x->copy - y->copy;
  return x->a - y->a;
}

static void coalesce(Ra *ra) {
  MFn *fn = ra->fn;
  Pair *pairs = NULL;
  int n = 0, cap = 0;
  for (int b = 0; b < fn->n_blocks; b++) {
    MBlock *k = &fn->blocks[b];
    for (int i = 0; i < k->n_ins; i++) {
      MIns *in = &k->ins[i];
      if (in->tied >= 0) unite(ra, root(ra, in->r[0]), root(ra, in->tied));
      if (in->op == M_COPY) PUSH(ra->a, pairs, n, cap, (Pair){in->r[0], in->r[1], k->depth, true});
    }
    for (int i = 0; i < k->n_args; i++) PUSH(ra->a, pairs, n, cap, (Pair){fn->blocks[k->succ[0]].params[i], k->args[i], k->depth, false});
  }
  if (n) qsort(pairs, (size_t)n, sizeof *pairs, pair_order);
  for (int i = 0; i < n; i++) try_unite(ra, pairs[i].a, pairs[i].b);
}

/* ---- 3: scan ---- */
typedef struct ClassRef { int from, v; } ClassRef;
static int class_order(const void *a, const void *b) {
  const ClassRef *x = a, *y = b;
  return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : x->v - y->v;
}

/* What giving register p to class c would cost: the weights of those in the way. */
static double reg_cost(Ra *ra, Class *c, int p) {
  int now = c->range.s[0].from, *held = ra->held[c->cls][p], n = 0;
  double cost = 0;
  for (int i = 0; i < ra->n_held[c->cls][p]; i++) {
    Class *h = &ra->cl[held[i]];
    while (h->cur < h->range.n && h->range.s[h->cur].to <= now) h->cur++;
    if (h->cur == h->range.n) continue;
    held[n++] = held[i];
    if (ranges_meet(&h->range, h->cur, &c->range, 0)) cost += h->weight;
  }
  ra->n_held[c->cls][p] = n;
  if (c->cls == M_G && p < 8 && ra->n_fixed[p]) {
    Range f = {ra->fixed[p], ra->n_fixed[p]};
    if (ranges_meet(&f, 0, &c->range, 0)) cost = HUGE_VAL;
  }
  return cost;
}

static void reg_evict(Ra *ra, Class *c, int p) {
  int n = 0, *held = ra->held[c->cls][p];
  for (int i = 0; i < ra->n_held[c->cls][p]; i++) {
    Class *h = &ra->cl[held[i]];
    if (ranges_meet(&h->range, h->cur, &c->range, 0)) { h->spilled = true; h->phys = -1; ra->any_spill = true; }
    else held[n++] = held[i];
  }
  ra->n_held[c->cls][p] = n;
}

static void reg_give(Ra *ra, int v, int p) {
  Class *c = &ra->cl[v];
  c->phys = (int8_t)p;
  PUSH(ra->a, ra->held[c->cls][p], ra->n_held[c->cls][p], ra->cap_held[c->cls][p], v);
}

static bool allowed(const Class *c, int p) { return !c->low16 || p < 16; }

static void class_place(Ra *ra, int v) {
  Class *c = &ra->cl[v];
  int best = -1;
  double best_cost = HUGE_VAL;
  if (c->want >= 0 && reg_cost(ra, c, c->want) == 0) { reg_give(ra, v, c->want); return; }
  for (int i = 0; i < c->n_hints; i++) {
    Class *h = &ra->cl[root(ra, c->hint[i])];
    if (h->phys >= 0 && h->cls == c->cls && allowed(c, h->phys) && reg_cost(ra, c, h->phys) == 0) { reg_give(ra, v, h->phys); return; }
  }
  for (int i = 0; i < ra->set->n[c->cls]; i++) {
    int p = ra->set->order[c->cls][i];
    if (!allowed(c, p)) continue;
    double cost = reg_cost(ra, c, p);
    if (cost < best_cost) { best = p; best_cost = cost; }
    if (cost == 0) break;
  }
  if (best_cost >= c->weight) {
    CHECK(c->weight < 1e300, "no register for a reload in %s", ra->fn->name);
    c->spilled = ra->any_spill = true;
    return;
  }
  if (best_cost > 0) reg_evict(ra, c, best);
  reg_give(ra, v, best);
}

static void scan(Ra *ra) {
  MFn *fn = ra->fn;
  ClassRef *list = ARENA_ARRAY(ra->a, ClassRef, fn->n_regs);
  int n = 0;
  for (int v = 0; v < fn->n_regs; v++) {
    Class *c = &ra->cl[v];
    if (ra->parent[v] != v || !c->n_members) continue;
    int len = 0;
    for (int i = 0; i < c->range.n; i++) len += c->range.s[i].to - c->range.s[i].from;
    c->weight = c->weight >= 1e300 ? 1e300 : c->weight / (len + 4);
    list[n++] = (ClassRef){c->range.s[0].from, v};
  }
  qsort(list, (size_t)n, sizeof *list, class_order);
  for (int i = 0; i < n; i++) class_place(ra, list[i].v);
}

static void fixed_collect(Ra *ra) {
  for (int b = 0; b < ra->fn->n_blocks; b++)
    for (int i = 0; i < ra->fn->blocks[b].n_ins; i++) {
      int bits = ra->fn->blocks[b].ins[i].fixed, p = ins_pos(ra, b, i);
      for (int r = 0; bits >> r; r++)
        if (bits >> r & 1) PUSH(ra->a, ra->fixed[r], ra->n_fixed[r], ra->cap_fixed[r], (Seg){p, p + 2});
    }
}

/* ---- 4: rewriting ---- */
enum { IN_REG, IN_SLOT, ANEW };
typedef struct Rewrite { Ra *ra; uint8_t *state; MIns *out; int n, cap, *n_spills; } Rewrite;

static void put(Rewrite *w, MIns in) { PUSH(w->ra->fn->arena, w->out, w->n, w->cap, in); }
static const MIns blank = {.r = {M_NONE, M_NONE, M_NONE, M_NONE}, .tied = M_NONE, .base = M_NONE, .index = M_NONE, .mask = M_NONE};

/* Brings v into register d. */
static void fetch_into(Rewrite *w, int d, int v) {
  MFn *fn = w->ra->fn;
  MIns in = blank;
  if (w->state[v] == ANEW) {
    in = fn->remats[fn->regs[v].remat - 1];
  } else {
    in.op = M_RELOAD;
    in.flags = M_DEF;
    in.n_r = 1;
    in.disp = fn->regs[v].slot;
  }
  in.r[0] = d;
  put(w, in);
  ++*w->n_spills;
}
static int tiny(Rewrite *w, int v) {
  MFn *fn = w->ra->fn;
  int t = mir_reg_new(fn, fn->regs[v].cls, fn->regs[v].bytes);
  fn->regs[t].no_spill = true;
  fn->regs[t].low16 = fn->regs[v].low16;
  return t;
}
static void store_from(Rewrite *w, int v, int s) {
  MIns in = blank;
  const MReg *regs = w->ra->fn->regs;
  in.op = M_SPILL, in.n_r = 1, in.r[0] = s, in.disp = regs[v].slot;
  in.imm = MIN(regs[s].bytes, regs[v].bytes); /* a scalar's slot takes no more than the low lane of the vector it comes from */
  put(w, in);
  ++*w->n_spills;
}
static bool away(const Rewrite *w, int v) { return v >= 0 && w->state[v] != IN_REG; }

static void rewrite_copy(Rewrite *w, const MIns *in) {
  int d = in->r[0], s = in->r[1];
  if (away(w, d) && away(w, s)) {
    if (w->state[s] == IN_SLOT && w->ra->fn->regs[d].slot == w->ra->fn->regs[s].slot) return;
    int t = tiny(w, d);
    fetch_into(w, t, s);
    store_from(w, d, t);
  } else if (away(w, d)) store_from(w, d, s);
  else fetch_into(w, d, s);
}

/* The last register operand becomes memory when the instruction can read it there. */
static bool fold_last(Rewrite *w, MIns *in) {
  MFn *fn = w->ra->fn;
  int last = in->n_r - 1, v = last >= 1 ? in->r[last] : -1, n = 0;
  int32_t rd[8];
  if (!(in->flags & M_FOLD) || in->flags & M_MEM || !away(w, v)) return false;
  for (int i = 0, k = reads_of(in, rd); i < k; i++) n += rd[i] == v;
  if (n != 1) return false;
  if (w->state[v] == ANEW) {
    const MIns *re = &fn->remats[fn->regs[v].remat - 1];
    if (!(re->flags & M_MEM) || re->base != M_POOL) return false;
    if (re->flags & M_BCAST) {
      if (!(in->flags & M_FOLDB)) return false;
      in->flags |= M_BCAST;
    } else if (in->mem_bytes > re->mem_bytes) return false;
    in->base = re->base, in->disp = re->disp;
  } else {
    if (in->mem_bytes > fn->regs[v].bytes) return false;
    in->base = M_FRAME, in->disp = fn->regs[v].slot;
  }
  in->flags |= M_MEM;
  in->r[last] = M_NONE;
  in->n_r--;
  ++*w->n_spills;
  return true;
}

static void rewrite_ins(Rewrite *w, MIns in) {
  int32_t *field[8];
  int n = 0, from[8], to[8], n_map = 0;
  bool def = in.flags & M_DEF;
  if (def && w->state[in.r[0]] == ANEW) return;
  if (in.op == M_COPY && (away(w, in.r[0]) || away(w, in.r[1]))) { rewrite_copy(w, &in); return; }
  fold_last(w, &in);
  for (int i = def ? 1 : 0; i < in.n_r; i++) field[n++] = &in.r[i];
  field[n++] = &in.tied, field[n++] = &in.base, field[n++] = &in.index, field[n++] = &in.mask;
  for (int i = 0; i < n; i++) {
    int v = *field[i], k = 0;
    if (!away(w, v)) continue;
    while (k < n_map && from[k] != v) k++;
    if (k == n_map) {
      from[n_map] = v, to[n_map++] = tiny(w, v);
      fetch_into(w, to[k], v);
    }
    *field[i] = to[k];
  }
  int d = def ? in.r[0] : -1;
  if (away(w, d)) in.r[0] = tiny(w, d);
  put(w, in);
  if (away(w, d)) store_from(w, d, in.r[0]);
}

static void slots_assign(Ra *ra, uint8_t *state) {
  MFn *fn = ra->fn;
  int *slot = ARENA_ARRAY(ra->a, int, fn->n_regs);
  for (int v = 0; v < fn->n_regs; v++) {
    if (fn->regs[v].slot != M_NONE) { state[v] = IN_SLOT; continue; }
    int r = root(ra, v);
    if (!ra->cl[r].spilled) continue;
    if (fn->regs[v].remat) { state[v] = ANEW; continue; }
    if (!slot[r]) {
      int bytes = MAX(ra->cl[r].bytes, 8);
      fn->n_frame = ROUND_UP(fn->n_frame, bytes);
      slot[r] = fn->n_frame + 1;
      fn->n_frame += bytes;
      if (bytes > 8) fn->has_wide_slots = true;
    }
    fn->regs[v].slot = slot[r] - 1;
    state[v] = IN_SLOT;
  }
}

static void rewrite(Ra *ra, int *n_spills) {
  MFn *fn = ra->fn;
  int n_old = fn->n_regs;
  Rewrite w = {.ra = ra, .state = ARENA_ARRAY(ra->a, uint8_t, n_old), .n_spills = n_spills};
  slots_assign(ra, w.state);
  for (int b = 0; b < fn->n_blocks; b++) {
    MBlock *k = &fn->blocks[b];
    w.out = NULL, w.n = w.cap = 0;
    for (int i = 0; i < k->n_ins; i++) rewrite_ins(&w, k->ins[i]);
    for (int i = 0; i < k->n_args; i++)
      if (w.state[k->args[i]] == ANEW) {
        int t = tiny(&w, k->args[i]);
        fetch_into(&w, t, k->args[i]);
        k->args[i] = t;
      }
    fn->blocks[b].ins = w.out, fn->blocks[b].n_ins = w.n, fn->blocks[b].cap_ins = w.cap;
  }
}

static bool round_run(Ra *ra, RegMap *map) {
  MFn *fn = ra->fn;
  ra->parent = ARENA_ARRAY(ra->a, int, fn->n_regs);
  ra->cl = ARENA_ARRAY(ra->a, Class, fn->n_regs);
  for (int v = 0; v < fn->n_regs; v++) ra->parent[v] = v, ra->cl[v].phys = ra->cl[v].want = -1;
  for (int i = 0; i < fn->blocks[0].n_params; i++) ra->cl[fn->blocks[0].params[i]].want = (int8_t)ra->set->params[i];
  blocks_number(ra);
  for (int v = 0; v < fn->n_regs; v++) fn->regs[v].def_block = -1;
  liveness(ra);
  coalesce(ra);
  fixed_collect(ra);
  scan(ra);
  if (ra->any_spill) { rewrite(ra, &map->n_spills); return false; }
  map->phys = ARENA_ARRAY(fn->arena, int8_t, fn->n_regs);
  for (int v = 0; v < fn->n_regs; v++) {
    Class *c = &ra->cl[root(ra, v)];
    map->phys[v] = fn->regs[v].slot != M_NONE || !c->n_members ? -1 : c->phys;
    if (map->phys[v] >= 0) map->used[c->cls] |= 1u << map->phys[v];
  }
  return true;
}

RegMap *ra_run(MFn *fn, const RegSet *set) {
  RegMap *map = ARENA_NEW(fn->arena, RegMap);
  for (int round = 0; round < MAX_ROUNDS; round++) {
    Arena *a = arena_new("round");
    Ra *ra = ARENA_NEW(a, Ra);
    ra->fn = fn, ra->a = a, ra->set = set;
    bool done = round_run(ra, map);
    trace_printf(TRACE_ra, "%s round %d: %d registers, %d spills, %d frame bytes", fn->name, round, fn->n_regs, map->n_spills, fn->n_frame);
    arena_free(a);
    if (done) return map;
  }
  CHECK(false, "registers of %s did not settle", fn->name);
  return map;
}
