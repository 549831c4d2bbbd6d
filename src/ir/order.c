/* Reverse postorder, dominators (Cooper, Harvey, Kennedy 2001) and natural loops of a function. Goes in: blocks with terminators whose
   edges name existing blocks. A retreating edge whose target does not dominate its source (irreducible control) makes no loop.
   Near-linear: every walk is iterative and visits an edge a bounded number of times. */
#include "ir/priv.h"

int ir_n_edges(const IrBlock *b) { return b->term == IR_BR ? 2 : b->term == IR_JMP ? 1 : 0; }

static void postorder(Arena *a, const IrFn *fn, IrOrder *o) {
  int nb = fn->n_blocks, top = 0, done = 0;
  int *stack = ARENA_ARRAY(a, int, nb), *next = ARENA_ARRAY(a, int, nb), *post = ARENA_ARRAY(a, int, nb);
  bool *seen = ARENA_ARRAY(a, bool, nb);
  for (int b = 0; b < nb; b++) o->pos[b] = -1;
  if (nb) stack[top++] = 0, seen[0] = true;
  while (top) {
    int b = stack[top - 1];
    const IrBlock *blk = &fn->blocks[b];
    if (next[b] == ir_n_edges(blk)) { post[done++] = b; top--; continue; }
    /* Edge 1 first: the then-side comes first in the reversed order. */
    int s = blk->edge[ir_n_edges(blk) - 1 - next[b]++].block;
    if (!seen[s]) seen[s] = true, stack[top++] = s;
  }
  o->n = done;
  for (int i = 0; i < done; i++) o->block[i] = post[done - 1 - i], o->pos[o->block[i]] = i;
}

static void predecessors(Arena *a, const IrFn *fn, IrOrder *o) {
  int nb = fn->n_blocks;
  o->pred_at = ARENA_ARRAY(a, int, nb + 1);
  int *fill = ARENA_ARRAY(a, int, nb + 1), total = 0;
  for (int i = 0; i < o->n; i++) {
    const IrBlock *b = &fn->blocks[o->block[i]];
    for (int e = 0; e < ir_n_edges(b); e++) o->pred_at[b->edge[e].block + 1]++, total++;
  }
  for (int b = 0; b < nb; b++) o->pred_at[b + 1] += o->pred_at[b], fill[b] = o->pred_at[b];
  o->pred = ARENA_ARRAY(a, int, total);
  for (int i = 0; i < o->n; i++) {
    const IrBlock *b = &fn->blocks[o->block[i]];
    for (int e = 0; e < ir_n_edges(b); e++) o->pred[fill[b->edge[e].block]++] = o->block[i];
  }
}

static int meet(const IrOrder *o, int x, int y) {
  while (x != y) {
    while (o->pos[x] > o->pos[y]) x = o->idom[x];
    while (o->pos[y] > o->pos[x]) y = o->idom[y];
  }
  return x;
}

static void dominators(const IrFn *fn, IrOrder *o) {
  for (int b = 0; b < fn->n_blocks; b++) o->idom[b] = -1;
  if (o->n) o->idom[0] = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = 1; i < o->n; i++) {
      int b = o->block[i], d = -1;
      for (int k = o->pred_at[b]; k < o->pred_at[b + 1]; k++) {
        int p = o->pred[k];
        if (o->idom[p] >= 0) d = d < 0 ? p : meet(o, d, p);
      }
      if (d != o->idom[b]) o->idom[b] = d, changed = true;
    }
  }
  if (o->n) o->idom[0] = -1;
}

/* Interval numbers without recursion: subtree sizes bottom-up, then starts top-down. */
static void intervals(Arena *a, IrOrder *o) {
  int *size = ARENA_ARRAY(a, int, o->n), *given = ARENA_ARRAY(a, int, o->n);
  for (int i = o->n - 1; i >= 0; i--) {
    size[i]++;
    if (i) size[o->pos[o->idom[o->block[i]]]] += size[i];
  }
  for (int i = 0; i < o->n; i++) {
    int b = o->block[i];
    if (i) {
      int d = o->pos[o->idom[b]];
      o->dom_in[b] = o->dom_in[o->idom[b]] + 1 + given[d];
      given[d] += size[i];
    }
    o->dom_out[b] = o->dom_in[b] + size[i];
  }
}

bool ir_dominates(const IrOrder *o, int a, int b) { return o->dom_in[a] <= o->dom_in[b] && o->dom_in[b] < o->dom_out[a]; }

/* Inner loops first (a header inside another loop comes later in reverse postorder), so a walk may jump over loops already known. */
static void loop_body(IrOrder *o, int head, int *stack) {
  int top = 0;
  for (int k = o->pred_at[head]; k < o->pred_at[head + 1]; k++)
    if (ir_dominates(o, head, o->pred[k])) stack[top++] = o->pred[k];
  if (!top) return;
  o->loop_head[head] = head;
  while (top) {
    int b = stack[--top];
    if (b == head) continue;
    int l = o->loop_head[b];
    if (l < 0) {
      o->loop_head[b] = head;
    } else {
      while (l != head && o->loop_up[l] >= 0) l = o->loop_up[l];
      if (l == head) continue;
      o->loop_up[l] = head;
      b = l;
    }
    for (int k = o->pred_at[b]; k < o->pred_at[b + 1]; k++)
      if (o->loop_head[o->pred[k]] != head) stack[top++] = o->pred[k];
  }
}

static void loops(Arena *a, const IrFn *fn, IrOrder *o) {
  int *stack = ARENA_ARRAY(a, int, o->pred_at[fn->n_blocks] * 2 + 2);
  for (int b = 0; b < fn->n_blocks; b++) o->loop_head[b] = o->loop_up[b] = -1;
  for (int i = o->n - 1; i >= 0; i--) loop_body(o, o->block[i], stack);
  for (int i = 0; i < o->n; i++) {
    int b = o->block[i], h = o->loop_head[b];
    if (h == b) o->depth[b] = o->loop_up[b] < 0 ? 1 : o->depth[o->loop_up[b]] + 1;
    else o->depth[b] = h < 0 ? 0 : o->depth[h];
  }
}

bool ir_in_loop(const IrOrder *o, int head, int b) {
  int l = o->loop_head[b];
  while (l >= 0 && l != head) l = o->loop_up[l];
  return l == head && l >= 0;
}

IrOrder *ir_order(Arena *a, const IrFn *fn) {
  size_t nb = (size_t)fn->n_blocks;
  IrOrder *o = ARENA_NEW(a, IrOrder);
  int **arrays[] = {&o->block, &o->pos, &o->idom, &o->loop_head, &o->loop_up, &o->depth, &o->dom_in, &o->dom_out};
  for (size_t i = 0; i < COUNT_OF(arrays); i++) *arrays[i] = ARENA_ARRAY(a, int, nb + 1);
  postorder(a, fn, o);
  predecessors(a, fn, o);
  dominators(fn, o);
  intervals(a, o);
  loops(a, fn, o);
  return o;
}
