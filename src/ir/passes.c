/* Rewriting in place: folding, common subexpressions, dead code. Goes in: a legal function; a legal function with the same effects comes
   out, bit for bit (a NaN that arithmetic makes is some NaN: which one is the machine's own affair). Values keep their numbers; those
   removed have block -1. Everything is near-linear: a whole model's kernels compile in well under 150 ms. */
#include <string.h>
#include "ir/priv.h"

static IrRef now(const IrRef *to, int n_to, IrRef v) { return v < n_to && to[v] ? to[v] : v; }

static void rewrite_ins(IrIns *x, const IrRef *to, int n_to) {
  for (int k = 0; k < ir_op_n_args[x->op]; k++) x->arg[k] = now(to, n_to, x->arg[k]);
}

static void rewrite_term(IrBlock *b, const IrRef *to, int n_to) {
  if (b->term == IR_BR) b->cond = now(to, n_to, b->cond);
  for (int e = 0; e < ir_n_edges(b); e++)
    for (int i = 0; i < b->edge[e].n_args; i++) b->edge[e].args[i] = now(to, n_to, b->edge[e].args[i]);
}

static void rewrite_all(IrFn *fn, const IrRef *to, int n_to) {
  for (int i = 0; i < fn->n_blocks; i++) {
    IrBlock *b = &fn->blocks[i];
    for (int k = 0; k < b->n_ins; k++) rewrite_ins(&fn->ins[b->ins[k]], to, n_to);
    rewrite_term(b, to, n_to);
  }
}

/* fold */

/* The one value that every edge gives parameter i of block b, apart from the parameter itself; 0 when there are several. Folding may have
   cut the edges into a loop, whose own values then are all there is: only what dominates the block counts. */
static IrRef only_value(const IrFn *fn, const IrOrder *o, int b, int i, const IrRef *to, int n_to) {
  IrRef self = fn->blocks[b].params[i], one = 0;
  for (int k = o->pred_at[b]; k < o->pred_at[b + 1]; k++) {
    const IrBlock *p = &fn->blocks[o->pred[k]];
    for (int e = 0; e < ir_n_edges(p); e++) {
      if (p->edge[e].block != b) continue;
      IrRef v = now(to, n_to, p->edge[e].args[i]);
      if (v == self || v == one) continue;
      if (one) return 0;
      one = v;
    }
  }
  int at = one ? fn->ins[one].block : -1;
  return one && at != b && ir_dominates(o, at, b) ? one : 0;
}

static bool same_edges(const IrEdge *a, const IrEdge *b) {
  if (a->block != b->block) return false;
  for (int i = 0; i < a->n_args; i++) if (a->args[i] != b->args[i]) return false;
  return true;
}

static void fold_term(const IrFn *fn, IrBlock *b) {
  int64_t c;
  if (b->term != IR_BR) return;
  bool known = ir_is_const(fn, b->cond, &c);
  if (!known && !same_edges(&b->edge[0], &b->edge[1])) return;
  if (known && !c) b->edge[0] = b->edge[1];
  b->edge[1] = (IrEdge){0};
  b->term = IR_JMP;
  b->cond = 0;
}

/* The block's list is built anew, so that constants that simplify needs land before their use. */
static void fold_block(IrBuild *b, IrRef *to, int n_to) {
  IrFn *fn = b->fn;
  IrBlock *blk = &fn->blocks[b->at];
  IrRef *old = blk->ins;
  int n_old = blk->n_ins;
  IrTermKind term = blk->term;
  blk->ins = ARENA_ARRAY(fn->arena, IrRef, n_old);
  blk->n_ins = 0, blk->cap_ins = n_old, blk->term = IR_NO_TERM;
  for (int i = 0; i < n_old; i++) {
    IrRef v = old[i];
    IrIns x = fn->ins[v];
    rewrite_ins(&x, to, n_to);
    IrRef same = ir_simplify(b, &x, true);
    fn->ins[v] = x;
    if (same) to[v] = same, fn->ins[v].block = -1;
    else PUSH(fn->arena, blk->ins, blk->n_ins, blk->cap_ins, v);
  }
  blk->term = term;
  rewrite_term(blk, to, n_to);
  fold_term(fn, blk);
}

void ir_pass_fold(IrFn *fn) {
  Arena *tmp = arena_new("fold");
  const IrOrder *o = ir_order(tmp, fn);
  int n_to = fn->n_ins;
  IrRef *to = ARENA_ARRAY(tmp, IrRef, n_to);
  for (int i = 0; i < o->n; i++) {
    IrBuild b = {fn, o->block[i]};
    for (int k = 0; b.at && k < fn->blocks[b.at].n_params; k++) {
      IrRef v = only_value(fn, o, b.at, k, to, n_to);
      if (v) to[fn->blocks[b.at].params[k]] = v;
    }
    fold_block(&b, to, n_to);
  }
  rewrite_all(fn, to, n_to);
  arena_free(tmp);
}

/* cse */
typedef struct Table { IrRef *head, *next; uint32_t mask; IrRef *made; uint32_t *made_at; int n_made; uint8_t written; } Table;

static uint32_t hash_ins(const IrIns *x) {
  uint64_t h = x->op | (uint64_t)x->pred << 8 | (uint64_t)x->mem << 16 | (uint64_t)x->scale << 24 | (uint64_t)x->type << 32;
  for (int k = 0; k < 3; k++) h = (h ^ (uint64_t)x->arg[k]) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
  h = (h ^ (uint64_t)x->imm) * 0x9e3779b97f4a7c15u;
  return (uint32_t)(h >> 32);
}

static bool same_ins(const IrIns *a, const IrIns *b) {
  return a->op == b->op && a->pred == b->pred && a->mem == b->mem && a->scale == b->scale && a->type == b->type && a->imm == b->imm && a->arg[0] == b->arg[0] &&
         a->arg[1] == b->arg[1] && a->arg[2] == b->arg[2];
}

static uint8_t space_bit(const IrFn *fn, IrRef ptr) { return (uint8_t)(1u << fn->ptrs[fn->ins[ptr].type - IR_N_BASIC].space); }

static uint8_t spaces_written(const IrFn *fn) {
  uint8_t set = 0;
  for (int v = 1; v < fn->n_ins; v++)
    if ((fn->ins[v].op == IR_store || fn->ins[v].op == IR_tstore) && fn->ins[v].block >= 0) set |= space_bit(fn, fn->ins[v].arg[0]);
  return set;
}

/* Pure operations, and loads from a space that the whole function never writes. */
static bool may_merge(const IrFn *fn, const Table *t, const IrIns *x) {
  if (ir_flag((IrOp)x->op, 'm')) return !(t->written & space_bit(fn, x->arg[0]));
  return ir_flag((IrOp)x->op, 'p');
}

static void order_args(const IrFn *fn, IrIns *x) {
  char rule = ir_op_rule[x->op];
  if ((rule != RULE_S && rule != RULE_B) || !ir_flag((IrOp)x->op, 'c') || x->arg[0] < x->arg[1] || ir_is_const(fn, x->arg[1], NULL)) return;
  IrRef a = x->arg[0];
  x->arg[0] = x->arg[1], x->arg[1] = a;
}

static void cse_block(IrFn *fn, Table *t, int at, IrRef *to, int n_to) {
  IrBlock *b = &fn->blocks[at];
  int kept = 0;
  for (int i = 0; i < b->n_ins; i++) {
    IrRef v = b->ins[i], same = 0;
    IrIns *x = &fn->ins[v];
    rewrite_ins(x, to, n_to);
    if (may_merge(fn, t, x)) {
      order_args(fn, x);
      uint32_t h = hash_ins(x) & t->mask;
      for (same = t->head[h]; same && !same_ins(&fn->ins[same], x);) same = t->next[same];
      if (!same) t->next[v] = t->head[h], t->head[h] = v, t->made[t->n_made] = v, t->made_at[t->n_made++] = h;
    }
    if (same) to[v] = same, x->block = -1;
    else b->ins[kept++] = v;
  }
  b->n_ins = kept;
  rewrite_term(b, to, n_to);
}

/* Preorder of the dominator tree: by dom_in, which numbers it. A block's entries go when the walk leaves its subtree. */
static void cse_walk(IrFn *fn, const IrOrder *o, Arena *tmp, Table *t, IrRef *to, int n_to) {
  int *at = ARENA_ARRAY(tmp, int, o->n), *open = ARENA_ARRAY(tmp, int, o->n), *mark = ARENA_ARRAY(tmp, int, o->n), depth = 0;
  for (int i = 0; i < o->n; i++) at[o->dom_in[o->block[i]]] = o->block[i];
  for (int i = 0; i < o->n; i++) {
    while (depth && !ir_dominates(o, open[depth - 1], at[i]))
      for (depth--; t->n_made > mark[depth];) {
        t->n_made--;
        t->head[t->made_at[t->n_made]] = t->next[t->made[t->n_made]];
      }
    open[depth] = at[i], mark[depth++] = t->n_made;
    cse_block(fn, t, at[i], to, n_to);
  }
}

void ir_pass_cse(IrFn *fn) {
  Arena *tmp = arena_new("cse");
  const IrOrder *o = ir_order(tmp, fn);
  int n = fn->n_ins;
  uint32_t size = 64;
  while (size < (uint32_t)n) size *= 2;
  Table t = {.head = ARENA_ARRAY(tmp, IrRef, size), .next = ARENA_ARRAY(tmp, IrRef, n), .mask = size - 1, .made = ARENA_ARRAY(tmp, IrRef, n),
             .made_at = ARENA_ARRAY(tmp, uint32_t, n), .written = spaces_written(fn)};
  IrRef *to = ARENA_ARRAY(tmp, IrRef, n);
  cse_walk(fn, o, tmp, &t, to, n);
  rewrite_all(fn, to, n);
  arena_free(tmp);
}

/* dce */

/* Edges to a block that only jumps on go where it goes. Its arguments dominate it without standing in it, hence dominate the edge. */
static void thread_edges(IrFn *fn) {
  for (int i = 0; i < fn->n_blocks; i++)
    for (int e = 0; e < ir_n_edges(&fn->blocks[i]); e++)
      for (int hops = 0; hops < 16; hops++) {
        IrEdge *edge = &fn->blocks[i].edge[e];
        const IrBlock *to = &fn->blocks[edge->block];
        if (to->n_params || to->n_ins || to->term != IR_JMP || to->edge[0].block == edge->block) break;
        IrEdge next = to->edge[0];
        if (next.n_args) next.args = memcpy(ARENA_ARRAY(fn->arena, IrRef, next.n_args), next.args, (size_t)next.n_args * sizeof *next.args);
        *edge = next;
      }
}

/* A block entered only by one jmp joins the block that jumps. */
static void merge_chains(IrFn *fn, Arena *tmp) {
  const IrOrder *o = ir_order(tmp, fn);
  int *joined = ARENA_ARRAY(tmp, int, fn->n_blocks), n_to = fn->n_ins;
  IrRef *to = ARENA_ARRAY(tmp, IrRef, n_to);
  for (int i = 0; i < o->n; i++) {
    int at = o->block[i];
    joined[at] = at;
    if (o->pred_at[at + 1] - o->pred_at[at] != 1) continue;
    int p = joined[o->pred[o->pred_at[at]]];
    IrBlock *b = &fn->blocks[at], *into = &fn->blocks[p];
    if (into->term != IR_JMP || into->edge[0].block != at || p == at) continue;
    for (int k = 0; k < b->n_params; k++) to[b->params[k]] = now(to, n_to, into->edge[0].args[k]), fn->ins[b->params[k]].block = -1;
    for (int k = 0; k < b->n_ins; k++) {
      fn->ins[b->ins[k]].block = p;
      PUSH(fn->arena, into->ins, into->n_ins, into->cap_ins, b->ins[k]);
    }
    into->term = b->term, into->cond = b->cond, into->edge[0] = b->edge[0], into->edge[1] = b->edge[1];
    *b = (IrBlock){.term = IR_RET};
    joined[at] = p;
  }
  rewrite_all(fn, to, n_to);
}

typedef struct Live { const IrFn *fn; const IrOrder *o; bool *live; int *param_at; IrRef *work; int n_work; } Live;

static void mark(Live *l, IrRef v) {
  if (v && !l->live[v]) l->live[v] = true, l->work[l->n_work++] = v;
}

static void mark_roots(Live *l) {
  for (int i = 0; i < l->o->n; i++) {
    const IrBlock *b = &l->fn->blocks[l->o->block[i]];
    for (int k = 0; k < b->n_params; k++) l->param_at[b->params[k]] = k;
    for (int k = 0; k < b->n_ins; k++) if (ir_flag((IrOp)l->fn->ins[b->ins[k]].op, 'w')) mark(l, b->ins[k]);
    if (b->term == IR_BR) mark(l, b->cond);
  }
  const IrBlock *entry = &l->fn->blocks[0];
  for (int k = 0; k < entry->n_params; k++) mark(l, entry->params[k]);
}

static void mark_all(Live *l) {
  mark_roots(l);
  while (l->n_work) {
    IrRef v = l->work[--l->n_work];
    const IrIns *x = &l->fn->ins[v];
    for (int k = 0; k < ir_op_n_args[x->op]; k++) mark(l, x->arg[k]);
    if (x->op != IR_param) continue;
    for (int k = l->o->pred_at[x->block]; k < l->o->pred_at[x->block + 1]; k++) {
      const IrBlock *p = &l->fn->blocks[l->o->pred[k]];
      for (int e = 0; e < ir_n_edges(p); e++) if (p->edge[e].block == x->block) mark(l, p->edge[e].args[l->param_at[v]]);
    }
  }
}

static int keep_live(IrFn *fn, const bool *live, IrRef *items, int n) {
  int kept = 0;
  for (int k = 0; k < n; k++) {
    if (live[items[k]]) items[kept++] = items[k];
    else fn->ins[items[k]].block = -1;
  }
  return kept;
}

static void sweep(IrFn *fn, const IrOrder *o, const bool *live) {
  for (int i = 0; i < o->n; i++) { /* edges first: they need the parameters as they were */
    IrBlock *b = &fn->blocks[o->block[i]];
    for (int e = 0; e < ir_n_edges(b); e++) {
      const IrBlock *to = &fn->blocks[b->edge[e].block];
      int kept = 0;
      for (int k = 0; k < b->edge[e].n_args; k++) if (live[to->params[k]]) b->edge[e].args[kept++] = b->edge[e].args[k];
      b->edge[e].n_args = kept;
    }
  }
  for (int i = 0; i < fn->n_blocks; i++) {
    IrBlock *b = &fn->blocks[i];
    b->n_params = keep_live(fn, live, b->params, b->n_params);
    b->n_ins = keep_live(fn, live, b->ins, b->n_ins);
  }
}

static void drop_unreachable(IrFn *fn, const IrOrder *o, Arena *tmp) {
  int *number = ARENA_ARRAY(tmp, int, fn->n_blocks), n = 0;
  for (int i = 0; i < fn->n_blocks; i++)
    if (o->pos[i] >= 0) number[i] = n, fn->blocks[n++] = fn->blocks[i];
  if (n == fn->n_blocks) return;
  fn->n_blocks = n;
  for (int i = 0; i < n; i++) {
    IrBlock *b = &fn->blocks[i];
    for (int e = 0; e < ir_n_edges(b); e++) b->edge[e].block = number[b->edge[e].block];
    for (int k = 0; k < b->n_params; k++) fn->ins[b->params[k]].block = i;
    for (int k = 0; k < b->n_ins; k++) fn->ins[b->ins[k]].block = i;
  }
}

void ir_pass_dce(IrFn *fn) {
  Arena *tmp = arena_new("dce");
  thread_edges(fn);
  merge_chains(fn, tmp);
  const IrOrder *o = ir_order(tmp, fn);
  Live l = {.fn = fn, .o = o, .live = ARENA_ARRAY(tmp, bool, fn->n_ins), .param_at = ARENA_ARRAY(tmp, int, fn->n_ins), .work = ARENA_ARRAY(tmp, IrRef, fn->n_ins)};
  mark_all(&l);
  sweep(fn, o, l.live);
  drop_unreachable(fn, o, tmp);
  arena_free(tmp);
}
