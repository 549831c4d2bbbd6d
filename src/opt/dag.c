/* The expression DAG: nodes are hash-consed, so equal expressions are one node and comparing is comparing numbers. Folding happens as nodes
   are made and never changes a bit of a float result. In: constants, axes, loads. Out: node numbers that stay valid as long as the arena. */
#include <math.h>
#include <string.h>
#include "opt/opt.h"

static const struct { const char *name; int n_args; char type; } dxops[DXO_COUNT] = {
  {"none", 0, 'I'},
#define DXOP(name, n_args, type, meaning) {#name, n_args, #type[0]},
#include "opt/dxops.def"
#undef DXOP
};

Dag *dag_new(Arena *a) {
  Dag *d = ARENA_NEW(a, Dag);
  d->arena = a;
  d->n_table = 1 << 12;
  d->table = ARENA_ARRAY(a, Dx, d->n_table);
  PUSH(a, d->node, d->n, d->cap, (DxNode){0});
  return d;
}

static uint64_t node_hash(const DxNode *n) {
  uint32_t f;
  memcpy(&f, &n->fval, sizeof f);
  uint64_t h = (uint64_t)n->kind | (uint64_t)n->op << 8 | (uint64_t)n->type << 16 | (uint64_t)n->n_args << 24 | (uint64_t)f << 32;
  h = (h ^ (uint64_t)n->ival * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
  for (int i = 0; i < n->n_args; i++) h = (h ^ h >> 31 ^ (uint64_t)n->arg[i]) * 0xc4ceb9fe1a85ec53u;
  return h ^ h >> 29;
}

static bool node_same(const DxNode *a, const DxNode *b) {
  if (a->kind != b->kind || a->op != b->op || a->type != b->type || a->n_args != b->n_args || a->ival != b->ival) return false;
  if (f32_to_bits(a->fval) != f32_to_bits(b->fval)) return false;
  return memcmp(a->arg, b->arg, sizeof(Dx) * a->n_args) == 0;
}

static void table_grow(Dag *d) {
  d->n_table *= 2;
  d->table = ARENA_ARRAY(d->arena, Dx, d->n_table);
  for (Dx x = 1; x < d->n; x++) {
    uint64_t i = node_hash(&d->node[x]) & (uint64_t)(d->n_table - 1);
    while (d->table[i]) i = (i + 1) & (uint64_t)(d->n_table - 1);
    d->table[i] = x;
  }
}

static uint32_t axes_of(const Dag *d, const DxNode *n) {
  uint32_t m = n->kind == DX_AXIS ? 1u << n->ival : 0;
  for (int i = 0; i < n->n_args; i++) m |= d->node[n->arg[i]].axes;
  if (n->kind == DX_RED) m = d->node[n->arg[0]].axes | (d->node[n->arg[1]].axes & ~(1u << n->ival));
  return m;
}

static void measure(const Dag *d, DxNode *n) {
  const uint32_t size_max = (1u << 18) - 1, depth_max = (1u << 14) - 1;
  uint32_t size = 1, depth = 0;
  for (int i = 0; i < n->n_args; i++) {
    const DxNode *a = &d->node[n->arg[i]];
    size = MIN(size + a->size, size_max);
    depth = MAX(depth, a->depth);
  }
  n->size = size & size_max;
  n->depth = MIN(depth + 1, depth_max) & depth_max;
}

static Dx intern(Dag *d, DxNode n) {
  if (d->n * 2 > d->n_table) table_grow(d);
  uint64_t i = node_hash(&n) & (uint64_t)(d->n_table - 1);
  for (; d->table[i]; i = (i + 1) & (uint64_t)(d->n_table - 1))
    if (node_same(&d->node[d->table[i]], &n)) return d->table[i];
  n.axes = axes_of(d, &n);
  measure(d, &n);
  d->table[i] = d->n;
  PUSH(d->arena, d->node, d->n, d->cap, n);
  return d->n - 1;
}

void dag_walk_begin(Dag *d) {
  if (d->n_seen < d->n) {
    d->n_seen = d->n * 2;
    d->seen = ARENA_ARRAY(d->arena, uint32_t, d->n_seen);
    d->seen_now = 0;
  }
  d->seen_now++;
}

bool dag_walk_first(Dag *d, Dx x) {
  if (x < d->n_seen && d->seen[x] == d->seen_now) return false;
  if (x < d->n_seen) d->seen[x] = d->seen_now;
  return true;
}

Dx dx_int(Dag *d, int64_t v) { return intern(d, (DxNode){.kind = DX_INT, .type = DT_INT, .ival = v}); }
Dx dx_flt(Dag *d, float v) { return intern(d, (DxNode){.kind = DX_FLT, .type = DT_F32, .fval = v}); }
Dx dx_axis(Dag *d, int axis) { return intern(d, (DxNode){.kind = DX_AXIS, .type = DT_INT, .ival = axis}); }

bool dx_is_int(const Dag *d, Dx x, int64_t *v) {
  if (d->node[x].kind != DX_INT) return false;
  if (v) *v = d->node[x].ival;
  return true;
}

bool dx_is_product(const Dag *d, Dx x, DxKind kind, Dx *of, Dx *other) {
  const DxNode *n = &d->node[x];
  if (n->kind != DX_OP || n->op != DXO_MUL) return false;
  int i = d->node[n->arg[0]].kind == kind ? 0 : 1;
  *of = n->arg[i];
  *other = n->arg[1 - i];
  return d->node[*of].kind == kind;
}

bool dx_too_large(const Dag *d, Dx x) { return d->node[x].size > DX_MAX_SIZE || d->node[x].depth > DX_MAX_DEPTH; }

int64_t dx_gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t r = a % b;
    a = b, b = r;
  }
  return a < 0 ? -a : a;
}

/* Wrapping, as what is computed at run time does. */
static int64_t wrap_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t wrap_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static int64_t wrap_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

bool dx_fold_int(DxOp op, int64_t a, int64_t b, int64_t *r) {
  switch (op) {
    case DXO_ADD: *r = wrap_add(a, b); return true;
    case DXO_SUB: *r = wrap_sub(a, b); return true;
    case DXO_MUL: *r = wrap_mul(a, b); return true;
    case DXO_DIV: if (b <= 0 || a < 0) return false; *r = a / b; return true;
    case DXO_MOD: if (b <= 0 || a < 0) return false; *r = a % b; return true;
    case DXO_AND: *r = a & b; return true;
    case DXO_OR: *r = a | b; return true;
    case DXO_XOR: *r = a ^ b; return true;
    case DXO_SHL: if (b < 0 || b > 62) return false; *r = (int64_t)((uint64_t)a << b); return true;
    case DXO_SHR: if (b < 0 || b > 62) return false; *r = a >> b; return true;
    case DXO_MIN: *r = a < b ? a : b; return true;
    case DXO_MAX: *r = a > b ? a : b; return true;
    case DXO_GCD: if (a < 0 || b < 0) return false; *r = dx_gcd(a, b); return true;
    case DXO_EQ: *r = a == b; return true;
    case DXO_NE: *r = a != b; return true;
    case DXO_LT: *r = a < b; return true;
    case DXO_LE: *r = a <= b; return true;
    case DXO_GT: *r = a > b; return true;
    case DXO_GE: *r = a >= b; return true;
    case DXO_LAND: *r = a && b; return true;
    case DXO_LOR: *r = a || b; return true;
    default: return false;
  }
}

/* Integer identities: x+0, x-0, x*1, x*0, x/1, x%1, x&~0 are left out where they would need ranges. */
static Dx simplify_int2(Dag *d, DxOp op, Dx a, Dx b) {
  int64_t v;
  if (dx_is_int(d, a, &v)) {
    if (v == 0 && (op == DXO_ADD || op == DXO_OR || op == DXO_XOR)) return b;
    if (v == 0 && (op == DXO_MUL || op == DXO_AND || op == DXO_DIV || op == DXO_MOD || op == DXO_SHL || op == DXO_SHR)) return a;
    if (v == 1 && op == DXO_MUL) return b;
  }
  if (dx_is_int(d, b, &v)) {
    if (v == 0 && (op == DXO_ADD || op == DXO_SUB || op == DXO_OR || op == DXO_XOR || op == DXO_SHL || op == DXO_SHR)) return a;
    if (v == 0 && (op == DXO_MUL || op == DXO_AND)) return b;
    if (v == 1 && (op == DXO_MUL || op == DXO_DIV)) return a;
    if (v == 1 && op == DXO_MOD) return dx_int(d, 0);
    const DxNode n = d->node[a]; /* constants one after another are one */
    int64_t w;
    if ((op == DXO_ADD || op == DXO_SUB) && n.kind == DX_OP && (n.op == DXO_ADD || n.op == DXO_SUB) && dx_is_int(d, n.arg[1], &w)) {
      int64_t sum = (op == DXO_ADD ? v : -v) + (n.op == DXO_ADD ? w : -w);
      return sum < 0 ? dx_op2(d, DXO_SUB, n.arg[0], dx_int(d, -sum)) : dx_op2(d, DXO_ADD, n.arg[0], dx_int(d, sum));
    }
    if (v < 0 && v > -((int64_t)1 << 40) && (op == DXO_ADD || op == DXO_SUB)) return dx_op2(d, op == DXO_ADD ? DXO_SUB : DXO_ADD, a, dx_int(d, -v));
  }
  return 0;
}

static DxType op_type(const Dag *d, const DxNode *n) {
  char t = dxops[n->op].type;
  if (t == 'S') return (DxType)d->node[n->arg[n->op == DXO_COND ? 1 : 0]].type;
  return t == 'F' ? DT_F32 : t == 'B' ? DT_BOOL : DT_INT;
}

static bool all_int(const Dag *d, const DxNode *n) {
  for (int i = 0; i < n->n_args; i++) if (d->node[n->arg[i]].kind != DX_INT) return false;
  return true;
}

static bool fold_compare(DxOp op, float a, float b, bool *r) {
  switch (op) {
    case DXO_LT: *r = a < b; return true;
    case DXO_LE: *r = a <= b; return true;
    case DXO_GT: *r = a > b; return true;
    case DXO_GE: *r = a >= b; return true;
    default: return false;
  }
}

static Dx fold(Dag *d, DxNode *n) {
  const DxNode *a = &d->node[n->arg[0]];
  int64_t r;
  if (n->op == DXO_COND && a->kind == DX_INT) return a->ival ? n->arg[1] : n->arg[2];
  if (n->op == DXO_COND && n->arg[1] == n->arg[2]) return n->arg[1];
  if (n->n_args == 2 && all_int(d, n) && dx_fold_int((DxOp)n->op, a->ival, d->node[n->arg[1]].ival, &r)) {
    Dx x = dx_int(d, r);
    if (op_type(d, n) == DT_BOOL) x = intern(d, (DxNode){.kind = DX_INT, .type = DT_BOOL, .ival = r});
    return x;
  }
  if (n->n_args == 2 && (n->op == DXO_LOR || n->op == DXO_LAND)) { /* a constant side decides, or leaves the other */
    for (int i = 0; i < 2; i++) {
      const DxNode *c = &d->node[n->arg[i]];
      if (c->kind == DX_INT) return (c->ival != 0) == (n->op == DXO_LOR) ? n->arg[i] : n->arg[1 - i];
    }
  }
  if (n->op == DXO_TOF && a->kind == DX_INT) return dx_flt(d, (float)a->ival);
  if (n->op == DXO_NEG && a->kind == DX_INT) return dx_int(d, wrap_sub(0, a->ival));
  if (n->op == DXO_NEG && a->kind == DX_FLT) return dx_flt(d, -a->fval);
  if (n->op == DXO_LNOT && a->kind == DX_INT) return intern(d, (DxNode){.kind = DX_INT, .type = DT_BOOL, .ival = !a->ival});
  if (n->op == DXO_SQRT && a->kind == DX_FLT) return dx_flt(d, sqrtf(a->fval));
  bool is;
  const DxNode *b = &d->node[n->arg[n->n_args > 1 ? 1 : 0]];
  if (n->n_args == 2 && a->kind == DX_FLT && b->kind == DX_FLT && fold_compare((DxOp)n->op, a->fval, b->fval, &is))
    return intern(d, (DxNode){.kind = DX_INT, .type = DT_BOOL, .ival = is});
  if (n->op == DXO_DIV && a->kind == DX_FLT && d->node[n->arg[1]].kind == DX_FLT) return dx_flt(d, a->fval / d->node[n->arg[1]].fval);
  if (n->n_args == 2 && a->type == DT_INT) return simplify_int2(d, (DxOp)n->op, n->arg[0], n->arg[1]);
  return 0;
}

Dx dx_node(Dag *d, DxNode n) {
  if (n.kind == DX_OP) {
    Dx f = fold(d, &n);
    if (f) return f;
    n.type = (uint8_t)op_type(d, &n);
  }
  return intern(d, n);
}

Dx dx_truth(Dag *d, Dx a) { return d->node[a].type == DT_INT ? dx_op2(d, DXO_NE, a, dx_int(d, 0)) : a; }
Dx dx_to_f32(Dag *d, Dx a) { return d->node[a].type == DT_F32 ? a : dx_op1(d, DXO_TOF, a); }

Dx dx_op1(Dag *d, DxOp op, Dx a) {
  if (op == DXO_TOF && d->node[a].type == DT_F32) return a;
  if (op == DXO_TOI && d->node[a].type != DT_F32) return a;
  return dx_node(d, (DxNode){.kind = DX_OP, .op = (uint8_t)op, .n_args = 1, .arg = {a}});
}

static bool mixes(DxOp op) { return dxops[op].type == 'S' || (dxops[op].type == 'B' && op != DXO_LAND && op != DXO_LOR); }

/* Comparing conditions is comparing 0 or 1. */
static Dx as_int(Dag *d, Dx a) { return d->node[a].type == DT_BOOL ? dx_op3(d, DXO_COND, a, dx_int(d, 1), dx_int(d, 0)) : a; }

Dx dx_op2(Dag *d, DxOp op, Dx a, Dx b) {
  if (op == DXO_EQ || op == DXO_NE) a = as_int(d, a), b = as_int(d, b);
  if (mixes(op) && d->node[a].type != d->node[b].type) {
    a = dx_to_f32(d, a);
    b = dx_to_f32(d, b);
  }
  return dx_node(d, (DxNode){.kind = DX_OP, .op = (uint8_t)op, .n_args = 2, .arg = {a, b}});
}

Dx dx_op3(Dag *d, DxOp op, Dx a, Dx b, Dx c) {
  if (op == DXO_COND && d->node[b].type != d->node[c].type) {
    b = dx_to_f32(d, b);
    c = dx_to_f32(d, c);
  }
  if (op == DXO_FMA) {
    a = dx_to_f32(d, a);
    b = dx_to_f32(d, b);
    c = dx_to_f32(d, c);
  }
  return dx_node(d, (DxNode){.kind = DX_OP, .op = (uint8_t)op, .n_args = 3, .arg = {a, b, c}});
}

/* ---- tables -------------------------------------------------------------------------------------------------------- */
static void table_store(IrMem m, uint8_t *to, double v) {
  float f = (float)v;
  uint16_t h = m == IR_M_f16 ? f32_to_f16(f) : f32_to_bf16(f);
  if (m == IR_M_f32) memcpy(to, &f, 4);
  else if (m == IR_M_f16 || m == IR_M_bf16) memcpy(to, &h, 2);
  else for (int k = 0; k < ir_mem_bytes[m]; k++) to[k] = (uint8_t)((int64_t)v >> 8 * k); /* the checker has seen that it fits */
}

IrMem dx_mem(const char *elt) {
  if (!strcmp(elt, "u32")) return IR_M_i32;
  for (int m = 1; m < IR_N_MEM; m++) if (m != IR_M_i64 && m != IR_M_ptr && !strcmp(ir_mem_name[m], elt)) return (IrMem)m;
  return IR_M_none;
}

Dx dx_part(Dag *d, IrMem m, bool is_unsigned, int part, Dx byte, int64_t most) {
  DxPart p = {.part = part, .most = most};
  DxNode n = d->node[byte];
  bool flt = m == IR_M_f16 || m == IR_M_bf16 || m == IR_M_f32;
  int i = 0;
  if (n.kind == DX_INT) p.byte = n.ival, byte = dx_int(d, 0);
  else if (n.kind == DX_OP && n.op == DXO_ADD && dx_is_int(d, n.arg[1], &p.byte)) byte = n.arg[0];
  while (i < d->n_parts && (d->part[i].part != p.part || d->part[i].byte != p.byte || d->part[i].most != p.most)) i++;
  if (i == d->n_parts) PUSH(d->arena, d->part, d->n_parts, d->cap_parts, p);
  return dx_node(d, (DxNode){.kind = DX_PART, .op = (uint8_t)m, .type = flt ? DT_F32 : DT_INT, .n_args = 1, .arg = {byte}, .ival = i, .fval = is_unsigned});
}

int dx_table(Dag *d, const TableDecl *t) {
  for (int i = 0; i < d->n_tabs; i++) if (d->tab[i].decl == t) return i;
  if (d->n_tabs == DX_MAX_TABLES) return -1;
  DxTable *x = &d->tab[d->n_tabs];
  *x = (DxTable){.decl = t, .mem = dx_mem(t->elt)};
  CHECK(x->mem != IR_M_none, "table %s: kind %s", t->name, t->elt);
  uint8_t *p = ARENA_ARRAY(d->arena, uint8_t, (int64_t)t->n_values * ir_mem_bytes[x->mem] + 64);
  for (int i = 0; i < t->n_values; i++) table_store(x->mem, p + (int64_t)i * ir_mem_bytes[x->mem], t->value[i]);
  x->data = p;
  x->lo = x->hi = t->n_values ? t->value[0] : 0;
  for (int i = 0; i < t->n_values; i++) {
    int k = 0;
    x->lo = MIN(x->lo, t->value[i]);
    x->hi = MAX(x->hi, t->value[i]);
    while (k < MIN(x->n_distinct, 64) && (x->distinct[k] < t->value[i] || x->distinct[k] > t->value[i])) k++;
    if (k < MIN(x->n_distinct, 64)) continue;
    if (x->n_distinct < 64) x->distinct[x->n_distinct] = t->value[i];
    x->n_distinct = MIN(x->n_distinct + 1, 65);
  }
  return d->n_tabs++;
}

static bool mem_is_float(IrMem m) { return m == IR_M_f16 || m == IR_M_bf16 || m == IR_M_f32; }

Dx dx_lookup(Dag *d, int table, Dx index) {
  const DxTable *t = &d->tab[table];
  bool flt = mem_is_float(t->mem);
  int64_t i;
  if (dx_is_int(d, index, &i)) {
    float f = (float)t->decl->value[i];
    if (t->mem == IR_M_f16) f = f16_to_f32(f32_to_f16(f));
    if (t->mem == IR_M_bf16) f = bf16_to_f32(f32_to_bf16(f));
    return flt ? dx_flt(d, f) : dx_int(d, (int64_t)t->decl->value[i]);
  }
  return intern(d, (DxNode){.kind = DX_TAB, .op = (uint8_t)t->mem, .type = flt ? DT_F32 : DT_INT, .n_args = 1, .arg = {index}, .ival = table});
}

static const DxRange RANGE_ANY = {-((int64_t)1 << 40), (int64_t)1 << 40};

static int64_t ones_above(int64_t v) {
  int64_t m = 1;
  while (m <= v) m <<= 1;
  return m - 1;
}

/* Nothing that matters is beyond RANGE_ANY; cut there, ranges of ranges never overflow. */
static DxRange within_any(int64_t lo, int64_t hi) {
  return (DxRange){MIN(MAX(lo, RANGE_ANY.lo), RANGE_ANY.hi), MIN(MAX(hi, RANGE_ANY.lo), RANGE_ANY.hi)};
}

/* Expressions share parts, and a walk visits them once for each use: beyond `left` visits anything may be. */
typedef struct Ranges { const Dag *d; const int64_t *axis_max; int left; } Ranges;
static DxRange range(Ranges *g, Dx x);

static DxRange range_op(Ranges *g, const DxNode *n) {
  if (n->op == DXO_COND) {
    DxRange p = range(g, n->arg[1]), q = range(g, n->arg[2]);
    return (DxRange){MIN(p.lo, q.lo), MAX(p.hi, q.hi)};
  }
  DxRange a = range(g, n->arg[0]), b = n->n_args > 1 ? range(g, n->arg[1]) : a;
  bool nonneg = a.lo >= 0 && b.lo >= 0;
  int64_t p[4];
  switch (n->op) {
    case DXO_ADD: return within_any(a.lo + b.lo, a.hi + b.hi);
    case DXO_SUB: return within_any(a.lo - b.hi, a.hi - b.lo);
    case DXO_NEG: return within_any(-a.hi, -a.lo);
    case DXO_MUL:
      if (a.hi > 1 << 24 || b.hi > 1 << 24 || a.lo < -(1 << 24) || b.lo < -(1 << 24)) return RANGE_ANY;
      p[0] = a.lo * b.lo, p[1] = a.lo * b.hi, p[2] = a.hi * b.lo, p[3] = a.hi * b.hi;
      return within_any(MIN(MIN(p[0], p[1]), MIN(p[2], p[3])), MAX(MAX(p[0], p[1]), MAX(p[2], p[3])));
    case DXO_DIV: return b.lo > 0 ? (DxRange){MAX(a.lo, 0) / b.hi, MAX(a.hi, 0) / b.lo} : RANGE_ANY; /* by definition not negative */
    case DXO_MOD: return b.lo > 0 ? (DxRange){0, MIN(MAX(a.hi, 0), b.hi - 1)} : RANGE_ANY;
    case DXO_AND: return b.lo >= 0 ? (DxRange){0, nonneg ? MIN(a.hi, b.hi) : b.hi} : a.lo >= 0 ? (DxRange){0, a.hi} : RANGE_ANY;
    case DXO_OR: case DXO_XOR: return nonneg ? (DxRange){0, ones_above(MAX(a.hi, b.hi))} : RANGE_ANY;
    case DXO_SHL: return a.lo >= 0 && b.lo >= 0 && b.hi < 24 && a.hi < 1 << 24 ? within_any(a.lo << b.lo, a.hi << b.hi) : RANGE_ANY;
    case DXO_SHR: return b.lo >= 0 && b.hi < 40 && a.lo >= 0 ? (DxRange){a.lo >> b.hi, a.hi >> b.lo} : RANGE_ANY;
    case DXO_MIN: return (DxRange){MIN(a.lo, b.lo), MIN(a.hi, b.hi)};
    case DXO_MAX: return (DxRange){MAX(a.lo, b.lo), MAX(a.hi, b.hi)};
    case DXO_I8: return g->d->node[n->arg[0]].type == DT_INT && a.lo >= -128 && a.hi <= 127 ? a : (DxRange){-128, 127};
    default: return RANGE_ANY;
  }
}

static DxRange range_table(Ranges *g, const DxNode *n) {
  const TableDecl *t = g->d->tab[n->ival].decl;
  DxRange at = range(g, n->arg[0]), r = {INT64_MAX, INT64_MIN};
  if (at.hi - at.lo > 256) return (DxRange){(int64_t)g->d->tab[n->ival].lo, (int64_t)g->d->tab[n->ival].hi}; /* of the whole table: a little wide, and quick */
  for (int64_t i = MAX(at.lo, 0); i <= MIN(at.hi, t->n_values - 1); i++) {
    r.lo = MIN(r.lo, (int64_t)t->value[i]);
    r.hi = MAX(r.hi, (int64_t)t->value[i]);
  }
  return r;
}

static DxRange range_of_mem(const DxNode *n) {
  switch (n->op) {
    case IR_M_u8: return (DxRange){0, 255};
    case IR_M_i8: return (DxRange){-128, 127};
    case IR_M_u16: return (DxRange){0, 65535};
    case IR_M_i16: return (DxRange){-32768, 32767};
    default: return n->fval > 0 ? (DxRange){0, UINT32_MAX} : (DxRange){INT32_MIN, INT32_MAX};
  }
}

static DxRange range(Ranges *g, Dx x) {
  const Dag *d = g->d;
  const DxNode *n = &d->node[x];
  const int64_t *axis_max = g->axis_max;
  if (--g->left < 0) return RANGE_ANY;
  if (n->type != DT_INT && n->kind != DX_INT) return RANGE_ANY;
  switch (n->kind) {
    case DX_INT: return within_any(n->ival, n->ival);
    case DX_AXIS: return axis_max && axis_max[n->ival] >= 0 ? (DxRange){0, axis_max[n->ival]} : (DxRange){0, RANGE_ANY.hi};
    case DX_SYM: return (DxRange){1, RANGE_ANY.hi}; /* without rows nothing runs */
    case DX_LOAD:
      if (n->ival < d->n_data_max && d->data_max[n->ival] >= 0) return (DxRange){0, d->data_max[n->ival]};
      return n->ival < d->n_load_range && d->load_range[n->ival].hi ? d->load_range[n->ival] : RANGE_ANY;
    case DX_PART:
      if (d->part[n->ival].most) return (DxRange){0, d->part[n->ival].most - 1};
      return range_of_mem(n);
    case DX_FIELD: return range_of_mem(n);
    case DX_TAB: return range_table(g, n);
    case DX_RED: return n->op == RED_ARGMIN ? (DxRange){0, range(g, n->arg[0]).hi - 1} : RANGE_ANY;
    case DX_OP: return range_op(g, n);
    default: return RANGE_ANY;
  }
}

DxRange dx_range(const Dag *d, Dx x, const int64_t *axis_max) {
  Ranges g = {d, axis_max, 1 << 16};
  return range(&g, x);
}

static Dx rewrite(Dag *d, Dx x, DxMap map, void *ctx, Dx *memo, int n_memo) {
  if (x < n_memo && memo[x]) return memo[x];
  Dx r = map(ctx, x);
  if (!r) {
    DxNode n = d->node[x];
    for (int i = 0; i < n.n_args; i++) n.arg[i] = rewrite(d, d->node[x].arg[i], map, ctx, memo, n_memo);
    r = n.n_args ? dx_node(d, n) : x;
  }
  if (x < n_memo) memo[x] = r;
  return r;
}

/* A node's arguments have smaller numbers than it: x is the largest met. What is small is walked as it stands, without a memory. */
Dx dx_rewrite(Dag *d, Dx x, DxMap map, void *ctx) {
  enum { SMALL = 256 };
  if (d->node[x].size <= SMALL) return rewrite(d, x, map, ctx, NULL, 0);
  Arena *tmp = arena_new("compile");
  Dx r = rewrite(d, x, map, ctx, ARENA_ARRAY(tmp, Dx, x + 1), x + 1);
  arena_free(tmp);
  return r;
}

void dx_print(const Dag *d, Dx x, Str *out) {
  static const char *const wgt[] = {"", ".code", ".scale", ".offset", ".step", ".unit"};
  const DxNode *n = &d->node[x];
  switch (n->kind) {
    case DX_INT: str_addf(out, "%lld", (long long)n->ival); return;
    case DX_FLT: str_addf(out, "%.9g", (double)n->fval); return;
    case DX_AXIS: str_addf(out, n->ival < DX_BINDER ? "i%d" : "k%d", (int)(n->ival % DX_BINDER)); return;
    case DX_SYM: str_addf(out, "S%d", (int)n->ival); return;
    case DX_FIELD:
      str_addf(out, "%s@%d", ir_mem_name[n->op], (int)n->ival);
      if (!n->n_args) return;
      str_add(out, "[");
      break;
    case DX_LEAF: str_addf(out, "leaf%d", (int)n->ival); return;
    case DX_PART: str_addf(out, "%s:part%d+%lld[", ir_mem_name[n->op], d->part[n->ival].part, (long long)d->part[n->ival].byte); break;
    case DX_TAB: str_addf(out, "%s[", d->tab[n->ival].decl->name); break;
    case DX_LOAD: case DX_WGT: str_addf(out, "b%d%s[", (int)n->ival, wgt[n->op]); break;
    case DX_RED: str_addf(out, "red%d(k%d < ", n->op, (int)(n->ival % DX_BINDER)); break;
    default: str_addf(out, "%s(", dxops[n->op].name); break;
  }
  for (int i = 0; i < n->n_args; i++) {
    if (i) str_add(out, n->kind == DX_RED ? ": " : ", ");
    dx_print(d, n->arg[i], out);
  }
  str_add(out, n->kind == DX_LOAD || n->kind == DX_WGT || n->kind == DX_TAB || n->kind == DX_FIELD || n->kind == DX_PART ? "]" : ")");
}

/* ---- the language's operators and functions --------------------------------------------------------------------------- */
const DxOp dx_infix[OP_COUNT] = {
  [OP_OR] = DXO_LOR, [OP_AND] = DXO_LAND, [OP_EQ] = DXO_EQ, [OP_NE] = DXO_NE, [OP_LE] = DXO_LE, [OP_GE] = DXO_GE, [OP_LT] = DXO_LT,
  [OP_GT] = DXO_GT, [OP_BOR] = DXO_OR, [OP_BXOR] = DXO_XOR, [OP_BAND] = DXO_AND, [OP_SHL] = DXO_SHL, [OP_SHR] = DXO_SHR,
  [OP_ADD] = DXO_ADD, [OP_SUB] = DXO_SUB, [OP_MUL] = DXO_MUL, [OP_DIV] = DXO_DIV, [OP_MOD] = DXO_MOD,
};

static const struct { const char *name; DxOp op; bool of_floats; } builtins[] = {
  {"fma", DXO_FMA, true}, {"abs", DXO_ABS, false}, {"min", DXO_MIN, false}, {"max", DXO_MAX, false}, {"sqrt", DXO_SQRT, true}, {"rint", DXO_RINT, true},
  {"floor", DXO_FLOOR, true}, {"f32", DXO_TOF, false}, {"i32", DXO_TOI, false}, {"i8", DXO_I8, false}, {"bits_f32", DXO_BITF, false},
  {"bits_i32", DXO_BITI, true}, {"gcd", DXO_GCD, false},
};

DxOp dx_builtin(const char *name, int *n_args) {
  for (size_t i = 0; i < COUNT_OF(builtins); i++) {
    if (strcmp(builtins[i].name, name)) continue;
    *n_args = dxops[builtins[i].op].n_args;
    return builtins[i].op;
  }
  return DXO_NONE;
}

Dx dx_call(Dag *d, DxOp op, const Dx *arg) {
  Dx a = arg[0];
  for (size_t i = 0; i < COUNT_OF(builtins); i++) if (builtins[i].op == op && builtins[i].of_floats) a = dx_to_f32(d, a);
  Dx x = dxops[op].n_args == 1 ? dx_op1(d, op, a) : dxops[op].n_args == 2 ? dx_op2(d, op, a, arg[1]) : dx_op3(d, op, a, arg[1], arg[2]);
  return op == DXO_GCD && !dx_is_int(d, x, NULL) ? 0 : x;
}
