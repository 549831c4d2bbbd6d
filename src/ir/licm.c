/* Loop-invariant code motion. An instruction whose arguments are defined outside a loop moves to the loop's preheader, and on outwards as
   far as it may. Goes in: a legal function. What may move:
     - pure operations, except constants (the code generator makes them anew where they are used; a moved instruction takes copies of
       its constants along) and scalar i1 (a compare belongs with its branch); divisions only by a constant that is not 0;
     - loads, gathers and other divisions, where no store in the loop may alias and the loop is sure to reach them: they stand in the
       header, or dominate every latch and every exit and the header is seen to enter the loop the first time (bottom-tested, or its
       test folds with the first values). Loads at a fixed place of an argument table need not be reached: the table is always there.
   Two pointers do not alias when their spaces differ, or when both roots (through padd) are seen and differ: different parameters of the
   function, a parameter and a pointer loaded from memory, or pointers loaded from different places of one table. Callers promise that
   such buffers do not overlap within a loop, or that only equal elements meet.
   Registers: per loop at most MAX_VECTORS and MAX_SCALARS moved values stay live into it; more would only be spilled. Numbers that are loaded for
   all lanes alike cost nothing where they are used: of more than MAX_SPLATS in a loop none moves.
   Loops without a block of their own before the header get one; ir_pass_dce merges it again when it stayed empty. */
#include <string.h>
#include "ir/priv.h"

enum { MAX_VECTORS = 16, MAX_SCALARS = 10, MAX_SPLATS = 8, MAX_STORES = 16, MAX_EVAL_DEPTH = 4 };

/* Where a pointer comes from. ROOT_LOADED: load.ptr from [base + idx * scale + disp]. */
typedef enum RootKind { ROOT_UNKNOWN, ROOT_PARAM, ROOT_LOADED } RootKind;
typedef struct Root { RootKind kind; uint8_t space, scale; IrRef ref, idx; int64_t disp; } Root; /* ref: the parameter; the table's root parameter */

typedef struct Loop {
  int head, up, before;       /* up: index of the loop around, -1; before: the preheader block */
  Root stores[MAX_STORES];
  int n_stores;
  bool stores_anywhere;       /* more kinds of stores than fit */
  int *ends, n_ends, cap_ends; /* latches and exiting blocks but the header */
  bool enters;                /* once at the preheader, the first iteration goes past the header */
  int n_live[2];              /* moved values live into it: scalars, vectors */
  int n_splats;               /* loads in it, not in one inside, of numbers for all lanes */
} Loop;

typedef struct Licm {
  IrFn *fn;
  Arena *arena;
  const IrOrder *o;
  Loop *loops;
  int n_loops, *loop_of;      /* per block: innermost loop's index or -1 */
  int n_values;               /* values that were there at the start; copies of constants come above */
  int *uses, *splats, *from, *to;      /* uses left inside the loop; of all uses those by splats; a moved value's innermost and outermost loop left, -1 if not moved */
  IrRef *copy;                /* of a constant, and the block it stands in */
  int *copy_at;
  int8_t *reached;            /* per block, in its innermost loop: 0 not known yet, 1 sure, 2 not sure */
} Licm;

/* preheaders */

/* Edges from outside the loop go to block `to`; without_args: the only one leaves its arguments to the new block's own jump. */
static void redirect(IrFn *fn, const IrOrder *o, int head, int to, bool without_args) {
  for (int k = o->pred_at[head]; k < o->pred_at[head + 1]; k++) {
    IrBlock *p = &fn->blocks[o->pred[k]];
    if (ir_dominates(o, head, o->pred[k])) continue;
    for (int e = 0; e < ir_n_edges(p); e++) {
      IrEdge *edge = &p->edge[e];
      if (edge->block != head) continue;
      if (without_args) fn->blocks[to].edge[0] = *edge, *edge = (IrEdge){.block = to};
      else edge->block = to;
    }
  }
}

static bool make_preheader(IrFn *fn, const IrOrder *o, int head) {
  int n_outside = 0, last = -1;
  for (int k = o->pred_at[head]; k < o->pred_at[head + 1]; k++)
    if (!ir_dominates(o, head, o->pred[k])) n_outside++, last = o->pred[k];
  if (n_outside == 1 && fn->blocks[last].term == IR_JMP) return false;
  int at = ir_block_add(fn), n = n_outside == 1 ? 0 : fn->blocks[head].n_params;
  IrRef *args = ARENA_ARRAY(fn->arena, IrRef, n);
  for (int k = 0; k < n; k++) args[k] = ir_param(fn, at, fn->ins[fn->blocks[head].params[k]].type);
  fn->blocks[at].term = IR_JMP;
  fn->blocks[at].edge[0] = (IrEdge){head, args, n};
  redirect(fn, o, head, at, n_outside == 1);
  return true;
}

static bool make_preheaders(IrFn *fn, const IrOrder *o) {
  bool changed = false;
  for (int i = 0; i < o->n; i++)
    if (o->loop_head[o->block[i]] == o->block[i]) changed |= make_preheader(fn, o, o->block[i]);
  return changed;
}

/* aliasing */
static Root root_of(const IrFn *fn, IrRef p) {
  Root r = {.space = fn->ptrs[fn->ins[p].type - IR_N_BASIC].space};
  while (fn->ins[p].op == IR_padd) p = fn->ins[p].arg[0];
  const IrIns *x = &fn->ins[p];
  if (x->op == IR_param && x->block == 0) {
    r.kind = ROOT_PARAM, r.ref = p;
  } else if (x->op == IR_load) {
    int64_t c, disp = x->imm;
    IrRef base = x->arg[0];
    while (fn->ins[base].op == IR_padd && ir_is_const(fn, fn->ins[base].arg[1], &c)) disp = (int64_t)((uint64_t)disp + (uint64_t)c), base = fn->ins[base].arg[0];
    if (fn->ins[base].op == IR_param && fn->ins[base].block == 0) r.kind = ROOT_LOADED, r.ref = base, r.idx = x->arg[1], r.scale = x->arg[1] ? x->scale : 1, r.disp = disp;
  }
  return r;
}

static bool same_root(const Root *a, const Root *b) {
  return a->kind == b->kind && a->space == b->space && a->ref == b->ref && a->idx == b->idx && a->scale == b->scale && a->disp == b->disp;
}

static bool may_alias(const Root *a, const Root *b) {
  if (a->space != b->space) return false;
  if (a->kind == ROOT_UNKNOWN || b->kind == ROOT_UNKNOWN) return true;
  if (a->kind != b->kind) return false;
  if (a->kind == ROOT_PARAM) return a->ref == b->ref;
  if (a->ref != b->ref) return a->idx || b->idx; /* two tables; at an index unknown here they might hold one buffer */
  return a->idx != b->idx || a->scale != b->scale || a->disp == b->disp;
}

static bool stores_alias(const Loop *l, const Root *r) {
  if (l->stores_anywhere) return true;
  for (int i = 0; i < l->n_stores; i++) if (may_alias(&l->stores[i], r)) return true;
  return false;
}

static void add_store(Loop *l, const Root *r) {
  for (int i = 0; i < l->n_stores; i++) if (same_root(&l->stores[i], r)) return;
  if (l->n_stores < MAX_STORES) l->stores[l->n_stores++] = *r;
  else l->stores_anywhere = true;
}

/* gathering what is known of the loops */
static void find_loops(Licm *m) {
  const IrOrder *o = m->o;
  for (int i = 0; i < m->fn->n_blocks; i++) m->loop_of[i] = -1;
  for (int i = 0; i < o->n; i++) {
    int b = o->block[i], h = o->loop_head[b];
    if (h != b) { m->loop_of[b] = h < 0 ? -1 : m->loop_of[h]; continue; }
    Loop *l = &m->loops[m->n_loops];
    l->head = b, l->up = o->loop_up[b] < 0 ? -1 : m->loop_of[o->loop_up[b]];
    for (int k = o->pred_at[b]; k < o->pred_at[b + 1]; k++) if (!ir_dominates(o, b, o->pred[k])) l->before = o->pred[k];
    m->loop_of[b] = m->n_loops++;
  }
}

static bool in_loop(const Licm *m, int loop, int block) {
  int l = m->loop_of[block];
  while (l > loop) l = m->loops[l].up; /* inner loops have larger indices */
  return l == loop;
}

static void find_ends(Licm *m, int block) {
  const IrBlock *b = &m->fn->blocks[block];
  for (int l = m->loop_of[block]; l >= 0; l = m->loops[l].up) {
    bool end = false;
    for (int e = 0; e < ir_n_edges(b); e++) {
      bool inside = in_loop(m, l, b->edge[e].block);
      end |= b->edge[e].block == m->loops[l].head || (!inside && block != m->loops[l].head);
    }
    if (b->term == IR_RET) end = true;
    if (end) PUSH(m->arena, m->loops[l].ends, m->loops[l].n_ends, m->loops[l].cap_ends, block);
  }
}

static void find_stores(Licm *m, int block) {
  const IrBlock *b = &m->fn->blocks[block];
  for (int i = 0; i < b->n_ins; i++) {
    if (m->fn->ins[b->ins[i]].op != IR_store && m->fn->ins[b->ins[i]].op != IR_tstore) continue;
    Root r = root_of(m->fn, m->fn->ins[b->ins[i]].arg[0]);
    for (int l = m->loop_of[block]; l >= 0; l = m->loops[l].up) add_store(&m->loops[l], &r);
  }
}

static void count_uses(Licm *m) {
  const IrFn *fn = m->fn;
  for (int i = 0; i < m->o->n; i++) {
    const IrBlock *b = &fn->blocks[m->o->block[i]];
    for (int k = 0; k < b->n_ins; k++) {
      const IrIns *x = &fn->ins[b->ins[k]];
      for (int j = 0; j < ir_op_n_args[x->op]; j++) m->uses[x->arg[j]]++, m->splats[x->arg[j]] += x->op == IR_splat;
    }
    if (b->term == IR_BR) m->uses[b->cond]++;
    for (int e = 0; e < ir_n_edges(b); e++) for (int k = 0; k < b->edge[e].n_args; k++) m->uses[b->edge[e].args[k]]++;
  }
}

/* Its number goes to all lanes of what uses it. */
static bool is_splat_load(const Licm *m, IrRef v) { return m->fn->ins[v].op == IR_load && m->splats[v] && m->uses[v] == m->splats[v]; }

static void count_splats(Licm *m) {
  for (int i = 0; i < m->o->n; i++) {
    const IrBlock *b = &m->fn->blocks[m->o->block[i]];
    int l = m->loop_of[m->o->block[i]];
    for (int k = 0; l >= 0 && k < b->n_ins; k++) m->loops[l].n_splats += is_splat_load(m, b->ins[k]);
  }
}

/* A scalar's value in the loop's first iteration, when it is a constant then. */
static bool first_value(const Licm *m, const Loop *l, IrRef v, int depth, int64_t *out) {
  const IrFn *fn = m->fn;
  const IrIns *x = &fn->ins[v];
  if (ir_is_const(fn, v, out)) return ir_type_lanes(fn, x->type) == 1;
  if (x->op == IR_param && x->block == l->head) {
    const IrBlock *head = &fn->blocks[l->head];
    for (int k = 0; k < head->n_params; k++)
      if (head->params[k] == v) return ir_is_const(fn, fn->blocks[l->before].edge[0].args[k], out);
  }
  if (depth == 0 || !ir_flag((IrOp)x->op, 'p') || x->op == IR_udiv || x->op == IR_urem || x->op == IR_padd || ir_op_n_args[x->op] == 0) return false;
  IrVal val[3], r;
  for (int k = 0; k < ir_op_n_args[x->op]; k++) {
    int64_t c;
    IrType t = ir_type_of(fn, x->arg[k]);
    if (ir_type_lanes(fn, t) != 1 || !first_value(m, l, x->arg[k], depth - 1, &c)) return false;
    ir_val_set(&val[k], ir_type_elt(fn, t), 1, c);
  }
  if (ir_type_lanes(fn, x->type) != 1 || ir_is_ptr(x->type)) return false;
  IrEval e = ir_eval_of(fn, x);
  ir_eval(&e, &val[0], &val[1], &val[2], &r);
  *out = ir_val_imm(&r, ir_type_elt(fn, x->type));
  return true;
}

static bool sure_to_enter(const Licm *m, int loop) {
  const Loop *l = &m->loops[loop];
  const IrBlock *h = &m->fn->blocks[l->head];
  int64_t c;
  bool in0 = in_loop(m, loop, h->edge[0].block), in1 = h->term == IR_BR && in_loop(m, loop, h->edge[1].block);
  if (h->term == IR_JMP || (in0 && in1)) return true;
  return h->term == IR_BR && first_value(m, l, h->cond, MAX_EVAL_DEPTH, &c) && (c ? in0 : in1);
}

/* may it move? */
static bool sure_to_reach(Licm *m, int block) {
  const Loop *l = &m->loops[m->loop_of[block]];
  if (block == l->head) return true;
  if (m->reached[block]) return m->reached[block] == 1;
  bool sure = l->enters;
  for (int i = 0; sure && i < l->n_ends; i++) sure = ir_dominates(m->o, block, l->ends[i]);
  m->reached[block] = sure ? 1 : 2;
  return sure;
}

static bool fixed_argument(const IrFn *fn, const IrIns *x) {
  const IrIns *p = &fn->ins[x->arg[0]];
  return x->op == IR_load && !x->arg[1] && p->op == IR_param && p->block == 0 && fn->ptrs[p->type - IR_N_BASIC].space == IR_S_args;
}

static bool movable(const IrIns *x) {
  if (x->op == IR_const || x->op == IR_param || x->type == IR_T_i1) return false;
  return ir_flag((IrOp)x->op, 'p') || ir_flag((IrOp)x->op, 'm');
}

/* Out of this loop, the instruction standing in block (of the loop itself, not of one inside). */
static bool may_leave(Licm *m, const IrIns *x, int loop, int block) {
  const IrFn *fn = m->fn;
  int64_t c;
  for (int k = 0; k < ir_op_n_args[x->op]; k++)
    if (x->arg[k] && !ir_is_const(fn, x->arg[k], NULL) && in_loop(m, loop, fn->ins[x->arg[k]].block)) return false;
  if (x->op == IR_udiv || x->op == IR_urem) return (ir_is_const(fn, x->arg[1], &c) && c != 0) || sure_to_reach(m, block);
  if (!ir_flag((IrOp)x->op, 'm')) return true;
  Root r = root_of(fn, x->arg[0]);
  return !stores_alias(&m->loops[loop], &r) && (fixed_argument(fn, x) || sure_to_reach(m, block));
}

/* moving */
static int class_of(const IrFn *fn, IrType t) { return ir_type_lanes(fn, t) > 1 || ir_type_elt(fn, t) == IR_E_F32; }

static bool has_room(const Loop *l, int class) { return l->n_live[class] < (class ? MAX_VECTORS : MAX_SCALARS); }

static IrRef const_copy(Licm *m, IrRef c, int block) {
  IrFn *fn = m->fn;
  if (m->copy_at[c] == block) return m->copy[c];
  IrIns x = fn->ins[c];
  x.block = block;
  IrBlock *b = &fn->blocks[block];
  IrRef v = fn->n_ins;
  PUSH(fn->arena, fn->ins, fn->n_ins, fn->cap_ins, x);
  PUSH(fn->arena, b->ins, b->n_ins, b->cap_ins, v);
  m->copy[c] = v, m->copy_at[c] = block;
  return v;
}

/* A moved value that only moved values use is not live inside any more. */
static void release(Licm *m, IrRef arg, int outermost) {
  if (--m->uses[arg] > 0 || m->from[arg] < 0 || m->to[arg] != outermost) return;
  int class = class_of(m->fn, m->fn->ins[arg].type);
  for (int l = m->from[arg];; l = m->loops[l].up) {
    m->loops[l].n_live[class]--;
    if (l == m->to[arg]) return;
  }
}

static void move(Licm *m, IrRef v, int from, int outermost) {
  IrFn *fn = m->fn;
  int to = m->loops[outermost].before, class = class_of(fn, fn->ins[v].type);
  for (int k = 0; k < ir_op_n_args[fn->ins[v].op]; k++) {
    IrRef a = fn->ins[v].arg[k];
    if (!a || a >= m->n_values) continue;
    release(m, a, outermost);
    if (ir_is_const(fn, a, NULL) && in_loop(m, outermost, fn->ins[a].block)) {
      IrRef c = const_copy(m, a, to);
      fn->ins[v].arg[k] = c;
    }
  }
  for (int l = from;; l = m->loops[l].up) {
    m->loops[l].n_live[class]++;
    if (l == outermost) break;
  }
  m->from[v] = from, m->to[v] = outermost;
  fn->ins[v].block = to;
  IrBlock *b = &fn->blocks[to];
  PUSH(fn->arena, b->ins, b->n_ins, b->cap_ins, v);
}

static int outermost_left(Licm *m, IrRef v, int block) {
  const IrIns *x = &m->fn->ins[v];
  int class = class_of(m->fn, x->type), last = -1;
  if (!movable(x) || (is_splat_load(m, v) && m->loops[m->loop_of[block]].n_splats > MAX_SPLATS)) return -1;
  for (int l = m->loop_of[block]; l >= 0; l = m->loops[l].up) {
    if (!has_room(&m->loops[l], class) || !may_leave(m, x, l, block)) break;
    last = l;
    block = m->loops[l].before;
  }
  return last;
}

static void hoist_block(Licm *m, int block) {
  IrBlock *b = &m->fn->blocks[block];
  int from = m->loop_of[block], kept = 0;
  if (from < 0) return;
  for (int i = 0; i < b->n_ins; i++) {
    IrRef v = b->ins[i];
    int l = outermost_left(m, v, block);
    if (l < 0) b->ins[kept++] = v;
    else move(m, v, from, l);
  }
  b->n_ins = kept;
}

static void licm(Licm *m) {
  IrFn *fn = m->fn;
  int n = m->n_values = fn->n_ins, nb = fn->n_blocks;
  m->loops = ARENA_ARRAY(m->arena, Loop, nb);
  m->loop_of = ARENA_ARRAY(m->arena, int, nb);
  m->reached = ARENA_ARRAY(m->arena, int8_t, nb);
  m->uses = ARENA_ARRAY(m->arena, int, n), m->splats = ARENA_ARRAY(m->arena, int, n), m->from = ARENA_ARRAY(m->arena, int, n), m->to = ARENA_ARRAY(m->arena, int, n);
  m->copy = ARENA_ARRAY(m->arena, IrRef, n), m->copy_at = ARENA_ARRAY(m->arena, int, n);
  for (int v = 0; v < n; v++) m->from[v] = m->copy_at[v] = -1;
  find_loops(m);
  if (m->n_loops == 0) return;
  for (int i = 0; i < m->o->n; i++) find_ends(m, m->o->block[i]), find_stores(m, m->o->block[i]);
  for (int l = 0; l < m->n_loops; l++) m->loops[l].enters = sure_to_enter(m, l);
  count_uses(m);
  count_splats(m);
  for (int i = 0; i < m->o->n; i++) hoist_block(m, m->o->block[i]);
}

void ir_pass_licm(IrFn *fn) {
  Licm m = {.fn = fn, .arena = arena_new("licm")};
  m.o = ir_order(m.arena, fn);
  if (make_preheaders(fn, m.o)) m.o = ir_order(m.arena, fn);
  licm(&m);
  arena_free(m.arena);
}
