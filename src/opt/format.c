/* What a storage format's text means. x(i) is evaluated symbolically for every element of a block; what comes out is compared across
   elements to find the canonical form

     x = scale[g] * (code - bias) + offset[g]

   with an integer code per element and scales shared by groups, and from it how weights are packed: 16 rows side by side, codes split
   into planes of 8, 4, 3, 2 or 1 bits so that a 64-byte vector holds four consecutive codes (a quad) of each of 16 rows, and scales as
   arrays of 16. Formats that have no such form are kept as f32. In: a format declaration. Out: FormatForm. */
#include <string.h>
#include "opt/fmteval.h"

/* ---- canonical form ------------------------------------------------------------------------------------------------ */
enum { MAX_BOOK = 16 };
typedef struct Leafs { Dag *d; Dx at[MAX_LEAVES], leaf[MAX_LEAVES]; int n; bool over, books; const uint8_t *users; int n_users; } Leafs;

/* Ints under a comparison or made into a float's bits are cheap to compute from fewer or smaller ones, ints that become numbers or pick
   from a table are what is kept: `bare` says which. users: how many operations of the element read a node, where a small int that several
   read is to be kept; NULL: it is not. */
static bool is_leaf(const Leafs *l, const DxNode *n, Dx x, bool bare) {
  const Dag *d = l->d;
  if (n->kind == DX_FIELD || n->kind == DX_PART) return true;
  if (n->type != DT_INT || n->kind == DX_INT) return false;
  if (!bare || n->kind != DX_OP) return true;
  DxRange r = dx_range(d, x, NULL);
  int constants = 0;
  if (x < l->n_users && l->users[x] > 1 && r.lo >= 0 && r.hi < 256) return true;
  for (int i = 0; i < n->n_args; i++) constants += d->node[n->arg[i]].kind == DX_INT;
  return constants + 1 != n->n_args && r.lo >= -32768 && r.hi < 65536;
}

static Dx leafify(Leafs *l, Dx x, bool bare);

/* Entries from .. from + n - 1 of the block's own book, chosen by the bits of a code. */
static Dx choose(Dag *d, Dx code, const Dx *entry, int from, int n) {
  int half = 1;
  if (n == 1) return entry[from];
  while (half * 2 < n) half *= 2;
  Dx set = dx_op2(d, DXO_NE, dx_op2(d, DXO_AND, code, dx_int(d, half)), dx_int(d, 0));
  Dx above = choose(d, code, entry, from + half, n - half);
  return dx_op3(d, DXO_COND, set, above, choose(d, code, entry, from, half));
}

/* A float of the block's own book: the book's floats and the code are what is kept. 0: too many for that. */
static Dx from_book(Leafs *l, DxNode n) {
  Dx entry[MAX_BOOK];
  DxRange r = dx_range(l->d, n.arg[0], NULL);
  if (r.hi >= MAX_BOOK) return 0;
  Dx code = leafify(l, n.arg[0], false);
  int64_t first = n.ival;
  n.n_args = 0;
  n.arg[0] = 0;
  for (int i = 0; i <= r.hi; i++) {
    n.ival = first + i * ir_mem_bytes[n.op];
    entry[i] = leafify(l, dx_node(l->d, n), false);
  }
  return choose(l->d, code, entry, 0, (int)r.hi + 1);
}

static Dx leafify(Leafs *l, Dx x, bool bare) {
  DxNode n = l->d->node[x];
  if (l->books && n.kind == DX_FIELD && n.n_args && n.type == DT_F32) {
    Dx chosen = from_book(l, n);
    if (chosen) return chosen;
  }
  if (is_leaf(l, &n, x, bare)) {
    for (int i = 0; i < l->n; i++) if (l->at[i] == x) return l->leaf[i];
    if (l->n == MAX_LEAVES) { l->over = true; return x; }
    l->at[l->n] = x;
    l->leaf[l->n] = dx_node(l->d, (DxNode){.kind = DX_LEAF, .type = n.type, .ival = l->n});
    return l->leaf[l->n++];
  }
  bare = n.type == DT_INT || n.type == DT_BOOL || (n.kind == DX_OP && n.op == DXO_BITF);
  for (int i = 0; i < n.n_args; i++) n.arg[i] = leafify(l, l->d->node[x].arg[i], bare);
  return n.n_args ? dx_node(l->d, n) : x;
}

static int granularity(const Dx *at, int block) {
  for (int g = block; g > 1; g--) {
    if (block % g) continue;
    bool same = true;
    for (int i = 0; i < block && same; i++) same = at[i] == at[i / g * g];
    if (same) return g;
  }
  return 1;
}

/* ---- codes with few values ----------------------------------------------------------------------------------------- */
enum { MAX_VALUES = 16 };

static bool set_add(ValueSet *s, int64_t v) {
  for (int i = 0; i < s->n; i++) if (s->v[i] == v) return true;
  if (s->n == (int)COUNT_OF(s->v)) return false;
  s->v[s->n++] = v;
  return true;
}

static bool values_of(const Dag *d, Dx x, ValueSet *out);

static bool op_values(const Dag *d, const DxNode *n, ValueSet *out) {
  ValueSet a = {0}, b = {0};
  bool cond = n->op == DXO_COND, ok = true;
  if (n->op != DXO_ADD && n->op != DXO_SUB && n->op != DXO_MUL && !cond) return false;
  if (!values_of(d, n->arg[cond], &a) || !values_of(d, n->arg[cond + 1], &b)) return false;
  for (int i = 0; cond && i < a.n; i++) ok = ok && set_add(out, a.v[i]);
  for (int k = 0; cond && k < b.n; k++) ok = ok && set_add(out, b.v[k]);
  for (int i = 0; !cond && i < a.n; i++)
    for (int k = 0; k < b.n; k++) {
      int64_t v = 0;
      bool over = n->op == DXO_MUL ? __builtin_mul_overflow(a.v[i], b.v[k], &v) : n->op == DXO_ADD ? __builtin_add_overflow(a.v[i], b.v[k], &v) : __builtin_sub_overflow(a.v[i], b.v[k], &v);
      ok = ok && !over && set_add(out, v);
    }
  return ok;
}

/* Every value an int may have, perhaps some more; false: too many to tell. */
static bool values_of(const Dag *d, Dx x, ValueSet *out) {
  const DxNode *n = &d->node[x];
  ValueSet s = *out;
  DxRange r = dx_range(d, x, NULL);
  if (n->kind == DX_TAB) {
    const TableDecl *t = d->tab[n->ival].decl;
    const DxTable *whole = &d->tab[n->ival];
    DxRange at = dx_range(d, n->arg[0], NULL);
    if (at.hi - at.lo > 256) {
      for (int i = 0; i < MIN(whole->n_distinct, 64); i++) if (!set_add(out, (int64_t)whole->distinct[i])) return false;
      return whole->n_distinct <= 64;
    }
    for (int64_t i = at.lo; i <= at.hi; i++) if (!set_add(out, (int64_t)t->value[i])) return false;
    return true;
  }
  if (n->kind == DX_OP && op_values(d, n, &s)) {
    *out = s;
    return true;
  }
  if (r.hi - r.lo >= (int64_t)COUNT_OF(out->v)) return false;
  for (int64_t v = r.lo; v <= r.hi; v++) if (!set_add(out, v)) return false;
  return true;
}

bool format_values(const FormatForm *f, int leaf, ValueSet *out) {
  ValueSet s = {0};
  for (int i = 0; i < f->block; i++) if (!values_of(f->dag, f->leaf[leaf].at[i], &s)) return false;
  *out = s;
  return true;
}

static int bits_of(int64_t most) {
  int bits = 1;
  while (most >> bits) bits++;
  return bits;
}

static int byte_table(FormatForm *f, const char *what, const double *value, int n) {
  Arena *a = f->dag->arena;
  TableDecl *t = ARENA_NEW(a, TableDecl);
  *t = (TableDecl){.name = arena_printf(a, "%s.%s", f->decl->name, what), .elt = "u8", .value = ARENA_ARRAY(a, double, n), .n_values = n};
  memcpy(t->value, value, sizeof *value * (size_t)n);
  return dx_table(f->dag, t);
}

/* All codes are the same small table's: what is stored is the index the text has. */
static bool own_index(FormatForm *f, PackLeaf *l, double *value) {
  const DxNode *first = &f->dag->node[l->at[0]];
  if (first->kind != DX_TAB) return false;
  const TableDecl *t = f->dag->tab[first->ival].decl;
  for (int i = 0; i < f->block; i++) {
    const DxNode *n = &f->dag->node[l->at[i]];
    if (n->kind != DX_TAB || n->ival != first->ival || dx_range(f->dag, n->arg[0], NULL).hi >= MAX_VALUES) return false;
    l->index[i] = n->arg[0];
  }
  for (int i = 0; i < MAX_VALUES; i++) value[i] = i < t->n_values ? t->value[i] - (double)l->lo : 0;
  return true;
}

/* Else the values are numbered, and packing looks the number up. */
static bool numbered(FormatForm *f, PackLeaf *l, double *value, const ValueSet *s) {
  double number[256] = {0};
  int n = 0;
  for (int64_t v = l->lo; v <= l->hi; v++)
    for (int i = 0; i < s->n; i++) if (s->v[i] == v) number[v - l->lo] = n, value[n++] = (double)(v - l->lo);
  int table = byte_table(f, "number", number, (int)(l->hi - l->lo + 1));
  for (int i = 0; table >= 0 && i < f->block; i++) l->index[i] = dx_lookup(f->dag, table, dx_op2(f->dag, DXO_SUB, l->at[i], dx_int(f->dag, l->lo)));
  return table >= 0;
}

/* Codes that have few values but far apart are stored as the value's number. What is left in l->hi - l->lo planes otherwise. */
static int64_t find_map(FormatForm *f, PackLeaf *l) {
  ValueSet s = {0};
  double value[4 * MAX_VALUES] = {0};
  if (l->hi - l->lo > 255) return l->hi - l->lo;
  for (int i = 0; i < f->block; i++) if (!values_of(f->dag, l->at[i], &s) || s.n > MAX_VALUES) return l->hi - l->lo;
  for (int i = 0; i < s.n; i++) if (s.v[i] < l->lo || s.v[i] > l->hi) return l->hi - l->lo;
  if (bits_of(l->hi - l->lo) <= (s.n > 4 ? 4 : bits_of(s.n - 1))) return l->hi - l->lo;
  l->index = ARENA_ARRAY(f->dag->arena, Dx, f->block);
  bool ok = own_index(f, l, value) || numbered(f, l, value, &s);
  for (int i = MAX_VALUES; i < 4 * MAX_VALUES; i++) value[i] = value[i - MAX_VALUES];
  l->map = ok ? byte_table(f, "values", value, 4 * MAX_VALUES) : -1;
  if (l->map < 0) {
    l->index = NULL;
    return l->hi - l->lo;
  }
  int64_t most = 0;
  for (int i = 0; i < f->block; i++) most = MAX(most, dx_range(f->dag, l->index[i], NULL).hi);
  return most >= 4 && f->block % 32 ? MAX_VALUES - 1 : most; /* one plane of 4 bits beats planes of 2 and 1: putting those together costs more than the bit */
}

static void planes(const FormatForm *f, PackLeaf *l, int64_t most) {
  static const uint8_t split[9][2] = {{0}, {1}, {2}, {2, 1}, {4}, {4, 1}, {4, 2}, {8}, {8}};
  int bits = bits_of(most);
  if (bits == 3 && f->block % 32 == 0) {
    l->n_planes = 1;
    l->plane_bits[0] = 3;
    return;
  }
  for (int i = 0, shift = 0; bits <= 8 && i < 2 && split[bits][i]; i++) {
    l->plane_bits[l->n_planes] = split[bits][i];
    l->plane_shift[l->n_planes++] = shift;
    shift += split[bits][i];
  }
}

static void leaf_finish(FormatForm *f, PackLeaf *l) {
  const DxNode *n = &f->dag->node[l->at[0]];
  l->is_int = n->type == DT_INT;
  l->gran = granularity(l->at, f->block);
  if (l->gran < 4) l->gran = 1;
  if (!l->is_int) {
    l->mem = n->kind == DX_FIELD || n->kind == DX_PART ? (IrMem)n->op : IR_M_f32;
    for (int i = 0; i < f->block; i++) if (f->dag->node[l->at[i]].kind != n->kind || f->dag->node[l->at[i]].op != n->op) l->mem = IR_M_f32;
    return;
  }
  l->lo = INT64_MAX, l->hi = INT64_MIN;
  for (int i = 0; i < f->block; i++) {
    DxRange r = dx_range(f->dag, l->at[i], NULL);
    l->lo = MIN(l->lo, r.lo);
    l->hi = MAX(l->hi, r.hi);
  }
  if (l->gran == 1) planes(f, l, find_map(f, l));
  else if (l->lo >= 0 && l->hi < 256) l->mem = IR_M_u8, l->as_is = true;
  else if (l->lo >= -128 && l->hi < 128) l->mem = IR_M_i8, l->as_is = true;
  else l->mem = l->hi - l->lo < 256 ? IR_M_u8 : l->hi - l->lo < 65536 ? IR_M_u16 : IR_M_i32;
}

/* The form every format has: the value itself, kept as f32. */
static void keep_value(FormatForm *f) {
  f->n_leaves = 1;
  f->code = -1;
  f->leaf[0] = (PackLeaf){.mem = IR_M_f32, .gran = 1, .at = f->x};
  f->value = dx_node(f->dag, (DxNode){.kind = DX_LEAF, .type = DT_F32});
  f->chunk = 1;
}

/* f32(a + b) as f32(a) + f32(b), the same value while all three fit in 24 bits: a code beside a shared integer (a zero point) becomes two leaves. */
static Dx split_sum(void *ctx, Dx x) {
  Dag *d = ctx;
  const DxNode n = d->node[x];
  if (n.kind != DX_OP || n.op != DXO_TOF) return 0;
  const DxNode sum = d->node[n.arg[0]];
  if (sum.kind != DX_OP || (sum.op != DXO_ADD && sum.op != DXO_SUB) || d->node[sum.arg[0]].kind == DX_INT || d->node[sum.arg[1]].kind == DX_INT) return 0;
  for (int i = 0; i < 2; i++) {
    DxRange r = dx_range(d, sum.arg[i], NULL);
    if (r.lo < -(1 << 22) || r.hi > 1 << 22) return 0;
  }
  Dx a = dx_rewrite(d, dx_op1(d, DXO_TOF, sum.arg[0]), split_sum, d);
  return dx_op2(d, (DxOp)sum.op, a, dx_rewrite(d, dx_op1(d, DXO_TOF, sum.arg[1]), split_sum, d));
}

/* How many operations below x read each node: 0, 1, 2 for more. */
static void count_users(Dag *d, Dx x, uint8_t *users) {
  const DxNode *n = &d->node[x];
  for (int i = 0; i < n->n_args; i++) {
    if (users[n->arg[i]] < 2) users[n->arg[i]]++;
    if (dag_walk_first(d, n->arg[i])) count_users(d, n->arg[i], users);
  }
}

typedef enum LeafWays { LEAVES_PLAIN, LEAVES_BOOKS, LEAVES_SHARED } LeafWays;
static Leafs leaves_begin(FormatForm *f, Dx x, LeafWays ways, uint8_t *users, int n_users) {
  Leafs l = {.d = f->dag, .books = ways == LEAVES_BOOKS};
  if (ways != LEAVES_SHARED) return l;
  memset(users, 0, (size_t)n_users);
  dag_walk_begin(f->dag);
  count_users(f->dag, x, users);
  l.users = users;
  l.n_users = n_users;
  return l;
}

static bool find_leaves(FormatForm *f, Arena *a, const Dx *x, LeafWays ways) {
  int n_users = f->dag->n;
  uint8_t *users = ways == LEAVES_SHARED ? ARENA_ARRAY(a, uint8_t, n_users) : NULL;
  Leafs first = leaves_begin(f, x[0], ways, users, n_users);
  f->value = leafify(&first, x[0], false);
  f->n_leaves = first.n;
  for (int s = 0; s < first.n; s++) f->leaf[s] = (PackLeaf){.at = ARENA_ARRAY(a, Dx, f->block)};
  for (int i = 0; i < f->block; i++) {
    Leafs l = leaves_begin(f, x[i], ways, users, n_users);
    if (leafify(&l, x[i], false) != f->value || l.n != first.n || l.over) return false;
    for (int s = 0; s < l.n; s++) f->leaf[s].at[i] = l.at[s];
  }
  f->code = -1;
  for (int s = 0; s < f->n_leaves; s++) {
    PackLeaf *l = &f->leaf[s];
    leaf_finish(f, l);
    if (l->gran > 1 || (!l->is_int && l->gran == 1)) continue;
    if (f->code >= 0 || l->n_planes == 0 || f->chunk % 4) return false; /* two fine-grained integers, or wider than a byte, or not in fours */
    f->code = s;
  }
  return true;
}

/* Every element is a float that the data chooses from the block's own. */
static bool from_books(const FormatForm *f) {
  for (int s = 0; s < f->n_leaves; s++)
    if (!f->leaf[s].is_int && f->leaf[s].gran == 1 && f->dag->node[f->leaf[s].at[0]].kind == DX_FIELD && f->dag->node[f->leaf[s].at[0]].n_args) return true;
  return false;
}

static void find_form(FormatForm *f, Arena *a) {
  bool plain = find_leaves(f, a, f->x, LEAVES_PLAIN);
  if (plain && !from_books(f)) return;
  if (plain) {
    if (find_leaves(f, a, f->x, LEAVES_BOOKS) && f->code >= 0) return;
    CHECK(find_leaves(f, a, f->x, LEAVES_PLAIN));
    return;
  }
  Dx *y = ARENA_ARRAY(a, Dx, f->block);
  for (int i = 0; i < f->block; i++) y[i] = dx_rewrite(f->dag, f->x[i], split_sum, f->dag);
  if (find_leaves(f, a, y, LEAVES_PLAIN) || find_leaves(f, a, f->x, LEAVES_SHARED)) return;
  keep_value(f);
}

bool format_has_leaf(const Dag *d, Dx x, int slot) {
  const DxNode *n = &d->node[x];
  if (n->kind == DX_LEAF) return n->ival == slot;
  for (int i = 0; i < n->n_args; i++) if (format_has_leaf(d, n->arg[i], slot)) return true;
  return false;
}

/* ---- what is better computed once than at every use ---------------------------------------------------------------- */
enum { MANY_OPS = 8, SHARED_BY = 64 };
static int ops_of(const Dag *d, Dx x) {
  const DxNode *n = &d->node[x];
  int ops = n->kind == DX_OP && n->op != DXO_BITF;
  for (int i = 0; i < n->n_args; i++) ops += ops_of(d, n->arg[i]);
  return ops;
}

typedef struct ForElement { const FormatForm *f; int i; } ForElement;
static Dx at_element(void *ctx, Dx x) {
  const ForElement *e = ctx;
  const DxNode *n = &e->f->dag->node[x];
  return n->kind == DX_LEAF ? e->f->leaf[n->ival].at[e->i] : 0;
}

/* A float of many operations on numbers that many elements share, as small as possible; 0: there is none. */
static Dx costly(const FormatForm *f, Dx x) {
  const DxNode *n = &f->dag->node[x];
  if (n->kind != DX_OP || ops_of(f->dag, x) < MANY_OPS) return 0;
  for (int i = 0; i < n->n_args; i++) {
    Dx inner = costly(f, n->arg[i]);
    if (inner) return inner;
  }
  if (n->type != DT_F32) return 0;
  for (int s = 0; s < f->n_leaves; s++) if (format_has_leaf(f->dag, x, s) && (s == f->code || f->leaf[s].gran < SHARED_BY)) return 0;
  return x;
}

typedef struct Renumber { Dag *d; Dx from, to; const int *slot; } Renumber;
static Dx renumber(void *ctx, Dx x) {
  const Renumber *r = ctx;
  DxNode n = r->d->node[x];
  if (x == r->from) return r->to;
  if (n.kind != DX_LEAF || r->from) return 0;
  n.ival = r->slot[n.ival];
  return dx_node(r->d, n);
}

/* Such a float becomes a leaf of its own; leaves that nothing reads any more go. */
static void keep_computed(FormatForm *f, Arena *a) {
  Dx x = f->n_leaves < MAX_LEAVES ? costly(f, f->value) : 0;
  int slot[MAX_LEAVES], n = 0;
  if (!x) return;
  PackLeaf *l = &f->leaf[f->n_leaves];
  *l = (PackLeaf){.at = ARENA_ARRAY(a, Dx, f->block)};
  for (int i = 0; i < f->block; i++) {
    ForElement e = {f, i};
    l->at[i] = dx_rewrite(f->dag, x, at_element, &e);
  }
  Renumber r = {f->dag, x, dx_node(f->dag, (DxNode){.kind = DX_LEAF, .type = DT_F32, .ival = f->n_leaves}), slot};
  l->mem = IR_M_f32;
  l->gran = granularity(l->at, f->block);
  f->n_leaves++;
  f->value = dx_rewrite(f->dag, f->value, renumber, &r);
  int code = -1;
  for (int s = 0; s < f->n_leaves; s++) {
    slot[s] = n;
    if (!format_has_leaf(f->dag, f->value, s)) continue;
    if (s == f->code) code = n;
    f->leaf[n++] = f->leaf[s];
  }
  f->n_leaves = n;
  f->code = code;
  r.from = 0;
  f->value = dx_rewrite(f->dag, f->value, renumber, &r);
}

static Dx mul(Dag *d, Dx a, Dx b) {
  for (int i = 0; i < 2; i++) {
    const DxNode *n = &d->node[i ? b : a];
    if (n->kind == DX_FLT && n->fval == 0.0f) return i ? b : a;
    if (n->kind == DX_FLT && n->fval == 1.0f) return i ? a : b;
  }
  return dx_op2(d, DXO_MUL, a, b);
}

static Dx addsub(Dag *d, DxOp op, Dx a, Dx b) {
  const DxNode *na = &d->node[a], *nb = &d->node[b];
  if (nb->kind == DX_FLT && nb->fval == 0.0f) return a;
  if (na->kind == DX_FLT && na->fval == 0.0f) return op == DXO_ADD ? b : dx_op1(d, DXO_NEG, b);
  return dx_op2(d, op, a, b);
}

/* x = A * code_value + C, or false. */
static bool affine(Dag *d, Dx x, int code, Dx *A, Dx *C) {
  const DxNode n = d->node[x];
  Dx a[2], c[2];
  if (!format_has_leaf(d, x, code)) {
    *A = dx_flt(d, 0);
    *C = x;
    return true;
  }
  if (n.kind != DX_OP) return false;
  if (n.op == DXO_TOF) {
    *A = dx_flt(d, 1);
    *C = dx_flt(d, 0);
    return d->node[n.arg[0]].kind == DX_LEAF;
  }
  for (int i = 0; i < n.n_args; i++) if (i > 1 || !affine(d, n.arg[i], code, &a[i], &c[i])) return false;
  if (n.op == DXO_ADD || n.op == DXO_SUB) {
    *A = addsub(d, (DxOp)n.op, a[0], a[1]);
    *C = addsub(d, (DxOp)n.op, c[0], c[1]);
    return true;
  }
  int other = format_has_leaf(d, n.arg[0], code) ? 1 : 0;
  if (n.op != DXO_MUL || format_has_leaf(d, n.arg[other], code)) return false;
  *A = mul(d, a[1 - other], n.arg[other]);
  *C = mul(d, c[1 - other], n.arg[other]);
  return true;
}

int64_t format_shared_by(const FormatForm *f, Dx x) {
  int64_t n = f->block;
  for (int s = 0; s < f->n_leaves; s++) if (format_has_leaf(f->dag, x, s)) n = MIN(n, f->leaf[s].gran);
  return n;
}

/* -(a * b) as (-a) * b, the same bits, where more elements share a: its sign is changed less often. */
static Dx sign_inside(const FormatForm *f, Dx x) {
  const DxNode neg = f->dag->node[x], product = f->dag->node[neg.arg[0]];
  if (neg.kind != DX_OP || neg.op != DXO_NEG || product.kind != DX_OP || product.op != DXO_MUL) return x;
  int a = format_shared_by(f, product.arg[0]) >= format_shared_by(f, product.arg[1]) ? 0 : 1;
  return dx_op2(f->dag, DXO_MUL, dx_op1(f->dag, DXO_NEG, product.arg[a]), product.arg[1 - a]);
}

static int64_t lcm(int64_t a, int64_t b) { return a / dx_gcd(a, b) * b; }

enum { MAX_CHUNK = 256, FEWEST_SUMMED = 16 };

/* Codes of one plane: as many to a chunk as let 16 neighbours, the fewest that are summed together, have the same place in their bytes. */
static void place_together(FormatForm *f, const PackLeaf *l) {
  int wide = l->n_planes == 1 && l->plane_bits[0] != 3 ? FEWEST_SUMMED * (8 / l->plane_bits[0]) : 0;
  if (!wide || l->index || wide <= f->chunk || wide > MAX_CHUNK || f->block % wide) return;
  if (wide % f->group == 0 || f->group % wide == 0) f->chunk = wide;
}

static void find_integer(FormatForm *f) {
  if (f->code < 0) return;
  const PackLeaf *l = &f->leaf[f->code];
  if (f->block % 4 || !affine(f->dag, f->value, f->code, &f->scale, &f->offset)) return;
  f->offset = sign_inside(f, f->offset);
  f->group = (int)MIN(format_shared_by(f, f->scale), format_shared_by(f, f->offset));
  f->bias = -l->lo;
  f->code_max = (int)(l->hi - l->lo);
  int both = (int)lcm(f->chunk, f->group); /* a chunk holds whole groups, or a group whole chunks */
  if (f->group % f->chunk) f->chunk = both <= MAX_CHUNK && f->block % both == 0 ? both : f->block <= MAX_CHUNK ? f->block : f->chunk;
  place_together(f, l);
  f->integer = f->group % 4 == 0 && f->chunk % 4 == 0 && (f->chunk % f->group == 0 || f->group % f->chunk == 0);
}

/* Small blocks are taken several at a time, so that 32 elements lie together. */
typedef struct Shift { Dag *d; int64_t by; } Shift;
static Dx shift_field(void *ctx, Dx x) {
  const Shift *s = ctx;
  DxNode n = s->d->node[x];
  if (n.kind != DX_FIELD) return 0;
  n.ival += s->by;
  if (n.n_args) n.arg[0] = dx_rewrite(s->d, n.arg[0], shift_field, ctx);
  return dx_node(s->d, n);
}

static void widen(FormatForm *f, Arena *a) {
  int n = 32 / f->block;
  Dx *x = ARENA_ARRAY(a, Dx, 32);
  for (int k = 0; k < n; k++) {
    Shift s = {f->dag, (int64_t)k * f->n_bytes};
    for (int i = 0; i < f->block; i++) x[k * f->block + i] = dx_rewrite(f->dag, f->x[i], shift_field, &s);
  }
  f->x = x;
  f->n_bytes *= n;
  f->block = 32;
}

/* A table of floats that are small whole numbers of some power of two: that table, of bytes. Zero loses its sign. */
typedef struct WholeTables { Dag *d; int of[DX_MAX_TABLES]; float by[DX_MAX_TABLES]; } WholeTables; /* of: 1 + the table of bytes, -1: there is none */
static int whole_table(WholeTables *w, int table) {
  const TableDecl *t = w->d->tab[table].decl;
  if (w->of[table]) return w->of[table];
  w->of[table] = -1;
  for (float by = 1; by <= 256 && w->of[table] < 0; by *= 2) {
    bool ok = !strcmp(t->elt, ir_mem_name[IR_M_f32]);
    for (int i = 0; i < t->n_values; i++) {
      double v = t->value[i] * (double)by;
      ok = ok && v >= -127 && v <= 127 && !(v < (double)(int)v) && !(v > (double)(int)v);
    }
    if (!ok) continue;
    TableDecl *b = ARENA_NEW(w->d->arena, TableDecl);
    *b = (TableDecl){.name = arena_printf(w->d->arena, "%s.whole", t->name), .elt = ir_mem_name[IR_M_i8], .value = ARENA_ARRAY(w->d->arena, double, t->n_values), .n_values = t->n_values};
    for (int i = 0; i < t->n_values; i++) b->value[i] = t->value[i] * (double)by + 0.0;
    w->by[table] = 1 / by;
    w->of[table] = dx_table(w->d, b) < 0 ? -1 : 1 + dx_table(w->d, b);
  }
  return w->of[table];
}

static Dx whole_codes(void *ctx, Dx x) {
  WholeTables *w = ctx;
  const DxNode n = w->d->node[x];
  int to = n.kind == DX_TAB && n.type == DT_F32 && n.ival < DX_MAX_TABLES ? whole_table(w, (int)n.ival) : -1;
  if (to < 0) return 0;
  Dx v = dx_to_f32(w->d, dx_lookup(w->d, to - 1, n.arg[0]));
  return w->by[n.ival] < 1 ? dx_op2(w->d, DXO_MUL, v, dx_flt(w->d, w->by[n.ival])) : v;
}

/* Zero points beside codes: of a layout's tensors it is tried first whether they part, since a code then stays as small as it is stored. */
static void find_layout_form(FormatForm *f, Arena *a) {
  Dx *x = ARENA_ARRAY(a, Dx, f->block), *y = ARENA_ARRAY(a, Dx, f->block);
  WholeTables w = {.d = f->dag};
  for (int i = 0; i < f->block; i++) x[i] = dx_rewrite(f->dag, f->x[i], whole_codes, &w);
  for (int i = 0; i < f->block; i++) y[i] = dx_rewrite(f->dag, x[i], split_sum, f->dag);
  f->x = x;
  if (!find_leaves(f, a, y, false) && !find_leaves(f, a, x, false)) keep_value(f);
}

/* What the elements have in common, and how it is packed. as_value: nothing, each is kept as f32. */
Err *format_find_form(Arena *a, FormatForm *f, bool as_value) {
  f->leaf = ARENA_ARRAY(a, PackLeaf, MAX_LEAVES);
  f->chunk = f->block % 32 == 0 ? 32 : f->block;
  if (as_value) {
    keep_value(f);
    return NULL;
  }
  if (f->layout) find_layout_form(f, a);
  else find_form(f, a);
  keep_computed(f, a);
  find_integer(f);
  format_find_step(f);
  return NULL;
}

enum { MAX_OPS = 1 << 20 };
Err *format_analyze(Arena *a, const Module *m, const FormatDecl *decl, FormatForm **out) {
  FormatForm *f = ARENA_NEW(a, FormatForm);
  FmtEval *s = ARENA_NEW(a, FmtEval);
  *f = (FormatForm){.decl = decl, .dag = dag_new(a), .block = (int)decl->block, .n_bytes = (int)decl->n_bytes, .code = -1};
  fmt_begin(s, f->dag, m, decl, false);
  const FormatFn *x = NULL;
  for (int i = 0; i < decl->n_fns; i++) if (!strcmp(decl->fn[i].name, "x") && decl->fn[i].arg) x = &decl->fn[i];
  if (!x) return err_new(ERR_SYNTAX, "format %s: x(i), the value of an element, is missing", decl->name);
  if (decl->block < 1 || decl->block > 4096) return err_new(ERR_LIMIT, "format %s: block is %lld elements, expected 1 to 4096", decl->name, (long long)decl->block);
  f->x = ARENA_ARRAY(a, Dx, f->block);
  int64_t left = MAX_OPS;
  for (int i = 0; i < f->block; i++) {
    f->x[i] = dx_to_f32(f->dag, fmt_call(s, x, dx_int(f->dag, i), 0));
    left -= f->dag->node[f->x[i]].size;
    if (left < 0 && !s->err) return err_new(ERR_LIMIT, "format %s: the elements of a block take more than %d operations together", decl->name, MAX_OPS);
  }
  if (s->err) return s->err;
  const DxNode *n = &f->dag->node[f->x[0]];
  f->plain = f->block == 1 && n->kind == DX_FIELD && n->ival == 0 && f->n_bytes == ir_mem_bytes[n->op];
  f->mem = f->plain ? (IrMem)n->op : IR_M_none;
  if (!f->plain && f->block < 32 && 32 % f->block == 0) widen(f, a);
  *out = f;
  return format_find_form(a, f, false);
}

void format_table_args(const FormatForm *f, void **args) {
  for (int i = 0; i < f->dag->n_tabs; i++) args[FORMAT_ARG_TABLES + i] = (void *)(uintptr_t)f->dag->tab[i].data;
}

static int plane_vectors(const FormatForm *f, int bits) {
  int quads = f->chunk / 4, slots = 8 / bits;
  return bits == 3 ? quads / 8 * 3 : (quads + slots - 1) / slots;
}

int format_vectors(const FormatForm *f) {
  const PackLeaf *l = &f->leaf[f->code];
  int n = 0;
  for (int i = 0; i < l->n_planes; i++) n += plane_vectors(f, l->plane_bits[i]);
  return n;
}

int format_pieces(const FormatForm *f, int quad, PackPiece piece[PACK_PIECES]) {
  static const PackPiece threes[8][2] = {{{0, 0, 3, 0}}, {{0, 3, 3, 0}}, {{1, 0, 3, 0}}, {{1, 3, 3, 0}}, {{2, 0, 3, 0}}, {{2, 3, 3, 0}}, {{0, 6, 2, 1}, {1, 6, 1, 0}}, {{2, 6, 2, 1}, {1, 7, 1, 0}}};
  const PackLeaf *l = &f->leaf[f->code];
  int first = 0, n = 0;
  if (l->plane_bits[0] == 3) {
    for (; n < 2 && threes[quad % 8][n].bits; n++) {
      piece[n] = threes[quad % 8][n];
      piece[n].vec += quad / 8 * 3;
    }
    return n;
  }
  for (; n < l->n_planes; n++) {
    int bits = l->plane_bits[n], n_vec = plane_vectors(f, bits);
    piece[n] = (PackPiece){first + quad % n_vec, bits * (quad / n_vec), bits, l->plane_shift[n]};
    first += n_vec;
  }
  return n;
}

static int64_t leaf_per(const FormatForm *f, int s) { return s == f->code ? f->chunk : f->leaf[s].gran; }

/* Bytes of the header's or the subunit's scales over n elements, and where each stands. */
static int64_t place_scales(const FormatForm *f, bool header, int64_t n, PackLayout *l) {
  int64_t at = 0;
  for (int s = 0; s < f->n_leaves; s++) {
    if (s == f->code || l->in_header[s] != header) continue;
    l->leaf_off[s] = at;
    l->leaf_stride[s] = PACK_ROWS * ir_mem_bytes[f->leaf[s].mem];
    at += n / f->leaf[s].gran * l->leaf_stride[s];
  }
  return at;
}

PackLayout format_layout(const FormatForm *f, int64_t K) {
  PackLayout l = {.K = K, .unit = 1, .sub = f->code >= 0 ? f->chunk : 1};
  int64_t codes = 0, scales, pad, least = f->block;
  for (int s = 0; s < f->n_leaves; s++) {
    l.unit = lcm(l.unit, leaf_per(f, s));
    if (s != f->code) least = MIN(least, f->leaf[s].gran);
  }
  l.sub = f->code >= 0 ? lcm(l.sub, least) : l.unit;
  for (int s = 0; s < f->n_leaves; s++) l.in_header[s] = leaf_per(f, s) > l.sub;
  if (f->code >= 0) codes = format_vectors(f) * 64;
  for (int doubled = 0;; doubled++, l.sub *= 2) { /* vectors of codes stand on 64 bytes; at most a thirtieth is lost to that */
    scales = place_scales(f, false, l.sub, &l);
    pad = f->code >= 0 ? ROUND_UP(scales, 64) - scales : 0;
    l.sub_bytes = scales + pad + (f->code >= 0 ? l.sub / f->chunk * codes : 0);
    if (pad * 30 <= l.sub_bytes || doubled == 2) break;
  }
  if (f->code >= 0) {
    l.leaf_off[f->code] = scales + pad;
    l.leaf_stride[f->code] = codes;
  }
  l.unit = lcm(l.unit, l.sub);
  l.header_bytes = place_scales(f, true, l.unit, &l);
  if (f->code >= 0) l.header_bytes = ROUND_UP(l.header_bytes, 64);
  l.unit_bytes = l.header_bytes + l.unit / l.sub * l.sub_bytes;
  l.tile_bytes = ROUND_UP((K + l.unit - 1) / l.unit * l.unit_bytes, 64);
  return l;
}

void format_print(const FormatForm *f, Str *out) {
  str_addf(out, "format %s: block %d in %d bytes%s\n  value = ", f->decl->name, f->block, f->n_bytes, f->plain ? ", plain" : "");
  dx_print(f->dag, f->value, out);
  str_add(out, "\n");
  for (int s = 0; s < f->n_leaves; s++) {
    const PackLeaf *l = &f->leaf[s];
    if (l->is_int) str_addf(out, "  leaf%d: integer %lld..%lld, shared by %d", s, (long long)l->lo, (long long)l->hi, l->gran);
    else str_addf(out, "  leaf%d: %s, shared by %d", s, ir_mem_name[l->mem], l->gran);
    if (l->index) str_add(out, "; as a number");
    for (int i = 0; i < l->n_planes; i++) str_addf(out, "%s%d-bit plane", i ? ", " : "; ", l->plane_bits[i]);
    str_add(out, "\n");
  }
  if (!f->integer) return;
  str_addf(out, "  integer road: group %d, bias %lld, codes 0..%d\n    scale = ", f->group, (long long)f->bias, f->code_max);
  dx_print(f->dag, f->scale, out);
  str_add(out, "\n    offset = ");
  dx_print(f->dag, f->offset, out);
  str_add(out, "\n");
  if (!f->step) return;
  str_add(out, "    step = ");
  dx_print(f->dag, f->step, out);
  if (f->by) str_addf(out, ", codes times it: 0..%d", f->most);
  str_addf(out, "; unit, shared by %d = ", f->span);
  dx_print(f->dag, f->unit, out);
  str_add(out, "\n");
}
