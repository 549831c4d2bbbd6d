/* Layouts: weights whose elements several tensors of a checkpoint hold together. Which text fits the tensors at hand, and what it means:
   x(n, k) is evaluated for every column of a block with the row and the block left open, and what comes out goes the way of every format.
   In: a checked layout, elements and extents of the tensors found. Out: FormatForm, whose leaves are over elements of those tensors. */
#include <stdlib.h>
#include <string.h>
#include "opt/fmteval.h"

enum { MAX_TERMS = 8, ROW_AXIS = 0, BLOCK_AXIS = 1, BLOCK_MAX = 256 };

/* ---- division ------------------------------------------------------------------------------------------------------ */
typedef struct Terms { Dx of[MAX_TERMS]; int64_t by[MAX_TERMS], k; int n; bool less, over; } Terms; /* less: differences are taken apart too */

static void add_term(Terms *t, Dx x, int64_t by) {
  int i = 0;
  while (i < t->n && t->of[i] != x) i++;
  if (i == MAX_TERMS) t->over = true;
  else if (i == t->n) t->of[t->n] = x, t->by[t->n++] = by;
  else if (__builtin_add_overflow(t->by[i], by, &t->by[i])) t->over = true;
}

static void terms_of(const Dag *d, Dx x, int64_t by, Terms *t) {
  const DxNode *n = &d->node[x];
  int64_t v;
  if (n->kind == DX_INT) t->over |= __builtin_mul_overflow(n->ival, by, &v) || __builtin_add_overflow(t->k, v, &t->k);
  else if (n->kind == DX_OP && (n->op == DXO_ADD || (n->op == DXO_SUB && t->less && by > INT64_MIN))) {
    Dx a = n->arg[0], b = n->arg[1];
    terms_of(d, a, by, t);
    terms_of(d, b, n->op == DXO_SUB ? -by : by, t);
  } else if (n->kind == DX_OP && n->op == DXO_MUL && (dx_is_int(d, n->arg[1], &v) || dx_is_int(d, n->arg[0], &v))) {
    if (__builtin_mul_overflow(by, v, &v)) t->over = true;
    else terms_of(d, n->arg[dx_is_int(d, n->arg[1], NULL) ? 0 : 1], v, t);
  } else add_term(t, x, by);
}

/* The constant comes last, so that what differs by a constant shares all else. */
static Dx sum_of(Dag *d, const Terms *t) {
  Dx sum = dx_int(d, 0);
  for (int i = 0; i < t->n; i++) if (t->by[i]) sum = dx_op2(d, DXO_ADD, sum, dx_op2(d, DXO_MUL, t->of[i], dx_int(d, t->by[i])));
  return dx_op2(d, DXO_ADD, sum, dx_int(d, t->k));
}

/* What D divides leaves the division; of the rest a common factor goes, and with it the part of the constant that is below it. */
Dx fmt_divide(FmtEval *s, bool mod, Dx a, int64_t by) {
  Dag *d = s->d;
  Terms all = {0}, whole = {0}, rest = {0};
  DxOp op = mod ? DXO_MOD : DXO_DIV;
  terms_of(d, a, 1, &all);
  for (int i = 0; i < all.n; i++) if (all.by[i] < 0) all.over = true;
  if (by < 1 || all.over || all.k < 0 || dx_range(d, a, s->axis_max).lo < 0) return dx_op2(d, op, a, dx_int(d, by));
  int64_t g = by;
  for (int i = 0; i < all.n; i++) {
    if (all.by[i] % by == 0) add_term(&whole, all.of[i], all.by[i] / by);
    else add_term(&rest, all.of[i], all.by[i]), g = dx_gcd(g, all.by[i]);
  }
  whole.k = all.k / by;
  rest.k = all.k % by;
  if (!rest.n) return mod ? dx_int(d, rest.k) : sum_of(d, &whole);
  int64_t low = rest.k % g;
  for (int i = 0; i < rest.n; i++) rest.by[i] /= g;
  rest.k /= g;
  Dx q = dx_op2(d, op, sum_of(d, &rest), dx_int(d, by / g));
  if (!mod) return dx_op2(d, DXO_ADD, sum_of(d, &whole), q);
  return dx_op2(d, DXO_ADD, dx_op2(d, DXO_MUL, q, dx_int(d, g)), dx_int(d, low));
}

/* ---- elements of tensors ------------------------------------------------------------------------------------------- */
static Dx format_element(FmtEval *s, int part, const FormatDecl *f, Dx byte, int64_t most) {
  FmtEval *one = ARENA_NEW(s->d->arena, FmtEval);
  fmt_begin(one, s->d, s->m, f, false);
  memcpy(one->axis_max, s->axis_max, sizeof one->axis_max);
  one->via = part + 1;
  one->via_byte = byte;
  one->via_most = most;
  for (int i = 0; i < f->n_fns; i++) {
    if (strcmp(f->fn[i].name, "x") || !f->fn[i].arg) continue;
    Dx v = fmt_call(one, &f->fn[i], dx_int(s->d, 0), 0);
    if (one->err && !s->err) return s->err = one->err, dx_int(s->d, 0);
    return one->err ? fmt_fail(s, one->err) : dx_to_f32(s->d, v);
  }
  return fmt_fail(s, err_new(ERR_SYNTAX, "format %s: no x(i)", f->name));
}

/* A tensor whose bytes 31 bits do not count: packing counts from the first row of a tile, so the rows of one must lie within FAR_BYTES. What depends on the
   row is a row, a row divided, or small, and may count down. */
enum { FAR_BYTES = 1 << 30, FAR_SMALL = 1 << 24 };
static bool note_far(FmtEval *s, int part, const Terms *at) {
  Dag *d = s->d;
  int64_t each = 1, slack = 0, c = 1;
  for (int i = 0; i < at->n; i++) {
    const DxNode *n = &d->node[at->of[i]];
    int64_t by = llabs(MAX(at->by[i], -INT64_MAX));
    if (!(n->axes >> ROW_AXIS & 1)) continue;
    bool cut = n->kind == DX_OP && n->op == DXO_DIV && dx_is_int(d, n->arg[1], &c), row = d->node[cut ? n->arg[0] : at->of[i]].kind == DX_AXIS;
    DxRange r = dx_range(d, at->of[i], s->axis_max);
    if (r.lo >= 0 && r.hi <= FAR_SMALL && by <= FAR_SMALL && r.hi * by <= FAR_SMALL) continue;
    if (!row || c < 1 || by > FAR_BYTES) return false;
    each += (by + (cut ? c : 1) - 1) / (cut ? c : 1);
    slack += cut ? by : 0;
  }
  int64_t reach = (FAR_BYTES - MAX_TERMS * FAR_SMALL - slack) / each;
  if (reach < 1) return false;
  d->reach = d->reach ? MIN(d->reach, reach) : reach;
  d->far |= 1u << part;
  return true;
}

Dx fmt_part(FmtEval *s, int part, const Dx *index, int n_index) {
  const FormatPart *p = &s->parts->part[part];
  const char *name = s->parts->decl->part[part].name;
  if (p->absent) return fmt_fail(s, err_new(ERR_NOT_FOUND, "layout %s: the checkpoint has no %s here, and the text reads it; a text asks with has(%s)", s->f->name, name, name));
  if (p->n_dims != n_index) return fmt_fail(s, err_new(ERR_SHAPE, "layout %s: %s has %d dimensions, got %d indices", s->f->name, name, p->n_dims, n_index));
  const FormatDecl *f = dx_mem(p->elt) ? NULL : lang_format(s->m, p->elt);
  int64_t n_bytes = f ? f->n_bytes : ir_mem_bytes[dx_mem(p->elt)], stride = n_bytes;
  Terms at = {.less = true};
  for (int i = n_index - 1; i >= 0; i--) {
    DxRange r = dx_range(s->d, index[i], s->axis_max);
    if (r.lo < 0 || r.hi >= p->dim[i])
      return fmt_fail(s, err_new(ERR_SHAPE, "layout %s: index %d of %s runs from %lld to %lld, expected 0 to %lld", s->f->name, i + 1, name, (long long)r.lo, (long long)r.hi, (long long)p->dim[i] - 1));
    terms_of(s->d, index[i], stride, &at);
    stride *= p->dim[i];
  }
  if (at.over) return fmt_fail(s, err_new(ERR_LIMIT, "layout %s: an index of %s is a sum of more than %d terms, or of numbers that 64 bits do not hold", s->f->name, name, MAX_TERMS));
  if (stride > INT32_MAX && !note_far(s, part, &at)) return fmt_fail(s, err_new(ERR_LIMIT, "layout %s: %s holds %lld bytes, and its rows lie too far apart", s->f->name, name, (long long)stride));
  if (p->groups != GROUPS_ANY && n_index == 1 && p->most > 0 && (p->groups == GROUPS_IN_ORDER || index[0] == s->sorted)) {
    Dx k = p->groups == GROUPS_IN_ORDER ? index[0] : s->d->node[s->sorted].arg[1];
    return fmt_divide(s, false, k, s->parts->cols / p->most);
  }
  Dx byte = sum_of(s->d, &at);
  return f ? format_element(s, part, f, byte, p->most) : dx_part(s->d, dx_mem(p->elt), !strcmp(p->elt, "u32"), part, byte, p->most);
}

static int part_named(const FormatParts *p, const Expr *e) {
  for (int i = 0; e->kind == EX_NAME && i < p->decl->n_parts; i++) if (!strcmp(p->decl->part[i].name, e->name)) return i;
  return -1;
}

static bool same_call(const Expr *a, const Expr *b) {
  return a == b || (a->n_args == 2 && b->n_args == 2 && a->arg[0]->name && b->arg[0]->name && !strcmp(a->arg[0]->name, b->arg[0]->name) && a->arg[1]->kind == EX_STR && b->arg[1]->kind == EX_STR && !strcmp(a->arg[1]->name, b->arg[1]->name));
}

static Dx number_of_tensor(FmtEval *s, const Expr *e) {
  int part = part_named(s->parts, e->arg[0]), i = 0;
  if (part < 0 || s->parts->part[part].absent || e->arg[1]->kind != EX_STR) return fmt_fail(s, err_new(ERR_SYNTAX, "layout %s: json wants a tensor that is there and one name in quotes", s->f->name));
  while (i < s->n_numbers && !same_call(s->number[i], e)) i++;
  if (i == s->n_numbers) PUSH(s->d->arena, s->number, s->n_numbers, s->cap_numbers, e);
  return dx_part(s->d, IR_M_f32, false, s->parts->decl->n_parts, dx_int(s->d, 4 * i), 0);
}

Dx fmt_part_call(FmtEval *s, const Expr *e) {
  static const char *const of_metadata[] = {"key", "item", "which"};
  int64_t i = 0;
  double f = 0;
  bool is_int = true;
  if (!strcmp(e->name, "json")) return number_of_tensor(s, e);
  if (!strcmp(e->name, "has")) {
    int part = part_named(s->parts, e->arg[0]);
    if (part < 0) return fmt_fail(s, err_new(ERR_SYNTAX, "layout %s: has wants one of its tensors", s->f->name));
    return dx_node(s->d, (DxNode){.kind = DX_INT, .type = DT_BOOL, .ival = !s->parts->part[part].absent});
  }
  for (size_t k = 0; k < COUNT_OF(of_metadata); k++) {
    if (strcmp(of_metadata[k], e->name)) continue;
    Err *err = s->parts->number(s->parts->ctx, e, &i, &f, &is_int);
    if (err) return fmt_fail(s, err_wrap(err, "layout %s", s->f->name));
    return is_int ? dx_int(s->d, i) : dx_flt(s->d, (float)f);
  }
  return 0;
}

/* ---- does it fit --------------------------------------------------------------------------------------------------- */
/* The layout's functions as those of a format. */
static FmtEval *begin(Arena *a, const Module *m, const FormatParts *p, Dag *d) {
  FormatDecl *f = ARENA_NEW(a, FormatDecl);
  FmtEval *s = ARENA_NEW(a, FmtEval);
  *f = (FormatDecl){.name = p->decl->name, .loc = p->decl->loc, .gguf_id = -1, .fn = p->decl->fn, .n_fns = p->decl->n_fns};
  fmt_begin(s, d, m, f, false);
  s->parts = p;
  for (int i = 0; i < p->n_dims; i++) fmt_name(s, p->dim[i].name, dx_int(d, p->dim[i].value));
  return s;
}

static bool elt_fits(const PartDecl *d, const char *elt) {
  for (int i = 0; elt && i < d->n_elts; i++) if (!strcmp(d->elt[i], elt) || (d->elt[i][0] >= 'A' && d->elt[i][0] <= 'Z')) return true;
  return false;
}

/* Extents of 1 may be missing or more at the end. Extents more at the front, which then all tensors have, are rows of rows: *outer of them. */
static bool dims_fit(const PartDecl *d, FormatPart *p, int *outer) {
  while (p->n_dims > d->n_dims && p->dim[p->n_dims - 1] == 1) p->n_dims--;
  int more = MAX(p->n_dims - d->n_dims, 0);
  if (*outer >= 0 && more != *outer) return false;
  *outer = more;
  while (p->n_dims > d->n_dims && d->n_dims > 0) {
    if (__builtin_mul_overflow(p->dim[0], p->dim[1], &p->dim[0])) return false;
    p->n_dims--;
    memmove(p->dim + 1, p->dim + 2, sizeof p->dim[0] * (size_t)(p->n_dims - 1));
  }
  while (p->n_dims < d->n_dims) p->dim[p->n_dims++] = 1;
  return p->n_dims == d->n_dims;
}

static bool find_dim(const FormatParts *p, const char *name, int64_t *v) {
  for (int i = 0; i < p->n_dims; i++) if (!strcmp(p->dim[i].name, name)) { *v = p->dim[i].value; return true; }
  return false;
}

static bool is_fn(const LayoutDecl *l, const char *name) {
  for (int i = 0; i < l->n_fns; i++) if (!strcmp(l->fn[i].name, name)) return true;
  return false;
}

/* Names in e, through constants of the text, that are not known yet. Constants see only those above them, and are of bounded size. */
static int n_unknown(const FormatParts *p, const Expr *e) {
  int64_t v;
  int n = 0;
  if (e->kind == EX_NAME) {
    for (int i = 0; i < p->decl->n_fns; i++) if (!strcmp(p->decl->fn[i].name, e->name)) return n_unknown(p, p->decl->fn[i].value);
    return !find_dim(p, e->name, &v) && part_named(p, e) < 0;
  }
  for (int i = 0; i < e->n_args; i++) n += n_unknown(p, e->arg[i]);
  return n;
}

static void learn(FormatParts *p, const char *name, int64_t v) {
  CHECK(p->n_dims < LAYOUT_MAX_NAMES, "layout %s: more names than its text was checked for", p->decl->name);
  p->dim[p->n_dims].name = name;
  p->dim[p->n_dims++].value = v;
}

/* One extent: a name takes the file's, a name divided or multiplied by a number likewise, anything else must be the same. False: it is not. */
static bool extent_fits(Arena *a, const Module *m, FormatParts *p, const Expr *e, int64_t got, bool *again, Err **err) {
  int64_t v = 0, by = 0;
  int unknown = n_unknown(p, e);
  bool name = e->kind == EX_NAME && !is_fn(p->decl, e->name);
  if (unknown == 1 && name) {
    learn(p, e->name, got);
    *again = true;
    return true;
  }
  bool scaled = e->kind == EX_BINARY && (e->op == OP_DIV || e->op == OP_MUL) && e->arg[0]->kind == EX_NAME && e->arg[1]->kind == EX_INT && !is_fn(p->decl, e->arg[0]->name);
  if (unknown == 1 && scaled) {
    by = e->arg[1]->ival;
    if (by < 1 || (e->op == OP_MUL ? got % by != 0 : __builtin_mul_overflow(got, by, &v))) return false;
    learn(p, e->arg[0]->name, e->op == OP_MUL ? got / by : v);
    *again = true;
    return true;
  }
  if (unknown) return true;                                  /* later, or never: rows and columns that no extent tells */
  FmtEval *s = begin(a, m, p, dag_new(a));
  Dx x = fmt_eval(s, e);
  *err = s->err;
  return !s->err && dx_is_int(s->d, x, &v) && v == got;
}

static Err *parts_fit(Arena *a, const Module *m, FormatParts *p, bool *fits) {
  const LayoutDecl *l = p->decl;
  Err *err = NULL;
  int outer = -1;
  *fits = false;
  p->n_dims = 0;
  if (p->rows) learn(p, l->rows, p->rows);
  if (p->cols) learn(p, l->cols, p->cols);
  for (int i = 0; i < l->n_parts; i++) if (!p->part[i].absent && (!elt_fits(&l->part[i], p->part[i].elt) || !dims_fit(&l->part[i], &p->part[i], &outer))) return NULL;
  for (bool again = true; again;) {
    again = false;
    for (int i = 0; i < l->n_parts; i++)
      for (int k = 0; k < l->part[i].n_dims && !p->part[i].absent; k++)
        if (!extent_fits(a, m, p, l->part[i].dim[k], p->part[i].dim[k], &again, &err)) return err;
  }
  if (!find_dim(p, l->rows, &p->rows) || !find_dim(p, l->cols, &p->cols) || p->rows < 1 || p->cols < 1) return NULL;
  FmtEval *s = begin(a, m, p, dag_new(a));
  for (int i = 0; i < l->n_parts; i++) {
    if (!l->part[i].groups || p->part[i].absent) continue;
    Dx n = fmt_eval(s, l->part[i].groups);
    if (s->err) return s->err;
    if (!dx_is_int(s->d, n, &p->part[i].most) || p->part[i].most < 1) return err_new(ERR_SHAPE, "layout %s: %s: its number of groups is not known", l->name, l->part[i].name);
  }
  int64_t v = 1;
  Dx when = l->when ? dx_truth(s->d, fmt_eval(s, l->when)) : 0;
  if (s->err) return s->err;
  if (when && !dx_is_int(s->d, when, &v)) return err_new(ERR_UNSUPPORTED, "layout %s: its condition depends on the tensors' elements", l->name);
  *fits = v != 0;
  return NULL;
}

/* What is worked out on the way is let go of: a checkpoint has thousands of weights, each tried against every layout. */
Err *format_parts_fit(const Module *m, FormatParts *p, bool *fits) {
  Arena *a = arena_new("layout");
  Err *e = parts_fit(a, m, p, fits);
  arena_free(a);
  return e;
}

Err *format_parts_number(const Module *m, FormatParts *p, const Expr *e, int64_t *out) {
  Arena *a = arena_new("layout");
  FmtEval *s = begin(a, m, p, dag_new(a));
  Dx x = fmt_eval(s, e);
  int64_t v = 0;
  Err *err = s->err;
  if (!err && !dx_is_int(s->d, x, &v)) err = err_new(ERR_UNSUPPORTED, "layout %s: what a key says depends on the tensors' elements", p->decl->name);
  arena_free(a);
  if (!err) *out = v;
  return err;
}

/* ---- its form ------------------------------------------------------------------------------------------------------ */
static int64_t block_of(int64_t K) {
  int64_t b = K & -K;
  if (b >= 32) return MIN(b, BLOCK_MAX);
  for (b = MIN(K, BLOCK_MAX); K % b; b--) {}
  return b;
}

static bool is_sorted(const FormatParts *p) {
  for (int i = 0; i < p->decl->n_parts; i++) if (!p->part[i].absent && p->part[i].groups == GROUPS_SORTED) return true;
  return false;
}

/* All that the meaning depends on, within one checkpoint: what is equal in it is one form. */
static const char *form_facts(Arena *a, const FormatParts *p, bool as_value) {
  Str s = {0};
  str_addf(&s, "%s%s", p->decl->name, as_value ? " as values" : "");
  for (int i = 0; i < p->n_dims; i++) str_addf(&s, " %s=%lld", p->dim[i].name, (long long)p->dim[i].value);
  for (int i = 0; i < p->decl->n_parts; i++) {
    const FormatPart *t = &p->part[i];
    str_addf(&s, "; %s", t->absent ? "none" : t->elt);
    for (int k = 0; k < t->n_dims; k++) str_addf(&s, ",%lld", (long long)t->dim[k]);
    str_addf(&s, " %lld %d %d %d", (long long)t->most, t->groups, t->n_never, t->small);
  }
  const char *facts = arena_dup(a, s.p);
  str_free(&s);
  return facts;
}

/* Short, and no other form's: kernels are known by it. */
static const char *form_name(const Tp *t, const FormatParts *p, const char *facts) {
  uint64_t h = hash_bytes(facts, strlen(facts), 0);
  for (;; h++) {
    bool taken = false;
    const char *name = arena_printf(t->arena, "%s.%08llx", p->decl->name, (unsigned long long)(h >> 32 ^ h) & 0xffffffffull);
    for (int i = 0; i < t->n_forms; i++) taken |= !strcmp(t->form[i]->decl->name, name);
    if (!taken) return name;
  }
}

static Err *make_form(Arena *a, const Module *m, const FormatParts *p, bool as_value, const char *name, FormatForm **out) {
  FormatForm *f = ARENA_NEW(a, FormatForm);
  FmtEval *s = begin(a, m, p, dag_new(a));
  FormatDecl *decl = ARENA_NEW(a, FormatDecl);
  const FormatFn *x = NULL;
  *decl = *s->f;
  decl->name = name;
  decl->block = block_of(p->cols);
  *f = (FormatForm){.decl = decl, .dag = s->d, .layout = p->decl, .block = (int)decl->block, .code = -1, .sorted = is_sorted(p)};
  for (int i = 0; i < p->decl->n_fns; i++) if (!strcmp(p->decl->fn[i].name, "x")) x = &p->decl->fn[i];
  s->axis_max[ROW_AXIS] = p->rows - 1;
  s->axis_max[BLOCK_AXIS] = p->cols / f->block - 1;
  Dx row = dx_axis(s->d, ROW_AXIS), first = dx_op2(s->d, DXO_MUL, dx_axis(s->d, BLOCK_AXIS), dx_int(s->d, f->block));
  f->x = ARENA_ARRAY(a, Dx, f->block);
  for (int i = 0; i < f->block && !s->err; i++) {
    Dx k = dx_op2(s->d, DXO_ADD, first, dx_int(s->d, i));
    if (f->sorted) { /* two arguments: where it lies, and which column it stands for */
      Dx byte = dx_op2(s->d, DXO_ADD, dx_op2(s->d, DXO_MUL, dx_axis(s->d, BLOCK_AXIS), dx_int(s->d, 4 * f->block)), dx_int(s->d, 4 * i));
      Dx at = dx_part(s->d, IR_M_i32, false, p->decl->n_parts + 1, byte, p->cols);
      DxNode n = s->d->node[at];
      n.arg[1] = k;
      n.n_args = 2;
      k = s->sorted = dx_node(s->d, n);
    }
    f->x[i] = format_with_facts(s->d, p, dx_to_f32(s->d, fmt_call(s, x, row, k)));
  }
  if (s->err) return s->err;
  f->number = s->number;
  f->n_numbers = s->n_numbers;
  *out = f;
  return format_find_form(a, f, as_value);
}

Err *tp_parts_form(Tp *t, const FormatParts *p, bool as_value, FormatForm **out) {
  const char *facts = form_facts(t->arena, p, as_value);
  for (int i = 0; i < t->n_forms; i++) {
    if (t->form[i]->facts && !strcmp(t->form[i]->facts, facts)) { *out = t->form[i]; return NULL; }
  }
  const char *name = form_name(t, p, facts);
  TRY(make_form(t->arena, t->module, p, as_value, name, out));
  (*out)->facts = facts;
  TRY(tp_form(t, ir_mem_name[IR_M_f32], &(*out)->rows));
  if (trace_on(TRACE_src, name)) {
    Str s = {0};
    format_print(*out, &s);
    trace_text(TRACE_src, "a layout's form", s.p ? s.p : "");
    str_free(&s);
  }
  PUSH(t->arena, t->form, t->n_forms, t->cap_forms, *out);
  return NULL;
}
