/* bfloat16 in programs: which buffers hold nothing else, which of them are kept in 16 bits, and chains that take two products at a time.
   A pair is x[.., k + 1] * y[.., l + 1] + x[.., k] * y[.., l], the odd position first, of values that are 0 or at least 2^-56: no sum of their products is
   denormal, so a machine's product of pairs (dot2), which flushes denormals, gives the bits of two fused multiply-adds.
   One side may be a weight kept as bfloat16, of whose values the caller says so (TpBuf.bf16).
   In: a program before it is planned; a chain's term. Out: marks and kinds of memory of buffers; sums. */
#include "opt/emit.h"

static bool is_bf16(const Tp *p, Dx x) {
  const DxNode *n = &p->dag->node[x];
  return (n->kind == DX_LOAD && !p->buf[n->ival].blocks && p->buf[n->ival].bf16) || (n->kind == DX_FLT && f32_to_bits(n->fval) == 0) ||
         (n->kind == DX_OP && n->op == DXO_COND && is_bf16(p, n->arg[1]) && is_bf16(p, n->arg[2])) || tp_is_bf16(p->dag, x);
}

/* The program stores to it, and bfloat16 only. Nobody else writes to temporaries, and to a state only the program's own other steps. */
static bool holds_bf16(const Tp *p, int buf) {
  const TpBuf *t = &p->buf[buf];
  bool any = false, all = (t->role == BUF_TEMP && t->mem == IR_M_f32) || (t->role == BUF_STATE && t->mem == IR_M_bf16);
  for (int i = 0; i < p->n_bufs && all; i++) all = p->buf[i].alias == i || (i != buf && p->buf[i].alias != buf);
  for (int i = 0; i < p->n_stmts && all; i++) {
    if (p->stmt[i].buf != buf) continue;
    any = true;
    all = is_bf16(p, p->stmt[i].rhs);
  }
  return all && any;
}

/* x = y + 1 */
static bool is_next(const Dag *d, Dx x, Dx y) {
  const DxNode *n = &d->node[x], *m = &d->node[y];
  int64_t a, b = 0;
  if (n->kind != DX_OP || n->op != DXO_ADD || !dx_is_int(d, n->arg[1], &a)) return false;
  if (m->kind == DX_OP && m->op == DXO_ADD && dx_is_int(d, m->arg[1], &b)) y = m->arg[0];
  else b = 0;
  return n->arg[0] == y && a == b + 1;
}

/* Numbers of memory, the first one further than the second. */
static bool lie_together(const Tp *p, Dx odd, Dx even) {
  const DxNode *a = &p->dag->node[odd], *b = &p->dag->node[even];
  int n = b->n_args - 1;
  if (a->kind != DX_LOAD || b->kind != DX_LOAD || a->ival != b->ival || n < 0 || p->buf[a->ival].blocks || p->buf[a->ival].fmt || !p->buf[a->ival].bf16) return false;
  for (int i = 0; i < n; i++) if (a->arg[i] != b->arg[i]) return false;
  return is_next(p->dag, a->arg[n], b->arg[n]);
}

/* Values of a weight that is bfloat16 as it is stored, the first one further along K than the second. */
static bool weights_together(const Tp *p, Dx odd, Dx even) {
  const DxNode *a = &p->dag->node[odd], *b = &p->dag->node[even];
  if (a->kind != DX_WGT || b->kind != DX_WGT || a->op != WA_VALUE || b->op != WA_VALUE || a->ival != b->ival || a->arg[0] != b->arg[0]) return false;
  const TpBuf *t = &p->buf[a->ival];
  return t->bf16 && !t->raw && is_next(p->dag, a->arg[1], b->arg[1]);
}

/* A chain's term that is a pair; even: what is of even position. One side at most is of a weight. */
bool tp_is_pair(const Tp *p, Dx term, Dx even[2]) {
  const DxNode *n = &p->dag->node[term];
  if (n->kind != DX_OP || n->op != DXO_ADD || n->type != DT_F32) return false;
  const DxNode *a = &p->dag->node[n->arg[0]], *b = &p->dag->node[n->arg[1]];
  if (a->kind != DX_OP || a->op != DXO_MUL || b->kind != DX_OP || b->op != DXO_MUL) return false;
  int n_weights = 0;
  for (int i = 0; i < 2; i++) {
    even[i] = b->arg[i];
    bool weight = weights_together(p, a->arg[i], b->arg[i]);
    n_weights += weight;
    if (!weight && !lie_together(p, a->arg[i], b->arg[i])) return false;
  }
  return n_weights < 2;
}

int lower_weight_of_pair(const Tp *p, Dx red) {
  const DxNode *n = &p->dag->node[red];
  Dx even[2];
  if (n->kind != DX_RED || n->op != RED_CHAIN || !tp_is_pair(p, n->arg[1], even)) return -1;
  for (int i = 0; i < 2; i++) if (p->dag->node[even[i]].kind == DX_WGT) return (int)p->dag->node[even[i]].ival;
  return -1;
}

static void mark_pairs(Tp *p, Dx x, bool *read) {
  const DxNode *n = &p->dag->node[x];
  Dx even[2];
  if (!dag_walk_first(p->dag, x)) return;
  if (n->kind == DX_RED && n->op == RED_CHAIN && tp_is_pair(p, n->arg[1], even))
    for (int i = 0; i < 2; i++) read[p->dag->node[even[i]].ival] = true;
  for (int i = 0; i < n->n_args; i++) mark_pairs(p, n->arg[i], read);
}

void tp_keep_bf16(Tp *p) {
  bool *read = ARENA_ARRAY(p->arena, bool, p->n_bufs + 1), more = true;
  while (more) {
    more = false;
    for (int b = 0; b < p->n_bufs; b++) if (!p->buf[b].bf16 && holds_bf16(p, b)) p->buf[b].bf16 = more = true;
  }
  dag_walk_begin(p->dag);
  for (int i = 0; p->dot2 && i < p->n_stmts; i++) mark_pairs(p, p->stmt[i].rhs, read);
  for (int b = 0; b < p->n_bufs; b++) if (p->buf[b].role == BUF_TEMP && p->buf[b].bf16 && (p->narrow || read[b])) p->buf[b].mem = IR_M_bf16;
}

static Vals emit_pairs(Emit *e, Dx even) { return e->d->node[even].kind == DX_WGT ? emit_weight_pairs(e, even) : emit_load_pairs(e, even); }

bool emit_pair(Emit *e, Dx term, Vals *acc) {
  Dx even[2];
  if (!e->s.dot2 || !acc->vec || !tp_is_pair(e->p, term, even)) return false;
  for (int i = 0; i < 2; i++) if (e->d->node[even[i]].kind == DX_LOAD && buf_mem(e, (int)e->d->node[even[i]].ival) != IR_M_bf16) return false;
  Vals a = emit_pairs(e, even[0]), b = emit_pairs(e, even[1]);
  bool first = a.vec && !b.vec; /* what is the same for all lanes comes last, where it may be read in place */
  for (int k = 0; k < acc->n; k++) acc->v[k] = ir_op3(&e->b, IR_dot2, acc->v[k], emit_pick(e, first ? a : b, k, true), emit_pick(e, first ? b : a, k, true));
  return true;
}
