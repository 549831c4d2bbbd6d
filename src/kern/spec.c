/* Kernel specs: one call of an op as a line of text, kern.h says how it reads. In: text and a checked module. Out: a program of that one call,
   planned, as a model would have it: rows are symbols, weights are weights, everything else is an input, an output or a state. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "kern/kern.h"

/* ---- text ---------------------------------------------------------------------------------------------------------- */
typedef struct Scan { Arena *a; const char *text, *p; } Scan;

static bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || (unsigned char)c >= 0x80; }

static Err *bad(const Scan *s, const char *what) {
  return err_new(ERR_USAGE, "kernel spec: at byte %d, '%.20s': expected %s", (int)(s->p - s->text), s->p, what);
}

static const char *word(Scan *s) {
  const char *b = s->p;
  while (is_word(*s->p)) s->p++;
  return s->p > b ? arena_dup_n(s->a, b, (size_t)(s->p - b)) : NULL;
}

static bool take(Scan *s, char c) {
  if (*s->p != c) return false;
  s->p++;
  return true;
}

static bool whole_number(const char *w, int64_t *v) {
  *v = 0;
  for (; *w; w++) {
    if (*w < '0' || *w > '9' || *v > (int64_t)1 << 40) return false;
    *v = *v * 10 + (*w - '0');
  }
  return true;
}

static Err *scan_tensor(Scan *s, KernItem *it) {
  do {
    if (it->n_dims == IR_MAX_DIMS) return bad(s, "at most 6 dimensions");
    const char *at = s->p, *w = word(s);
    int64_t v;
    if (!w) return bad(s, "a dimension: a number, or a name for one that is known at run time");
    bool number = whole_number(w, &v);
    if (!number && *w >= '0' && *w <= '9') return s->p = at, bad(s, "a number below 2^40 or a name");
    if (number && v < 1) return s->p = at, bad(s, "a dimension of at least 1");
    it->dim[it->n_dims] = number ? v : -1;
    it->dim_name[it->n_dims++] = number ? NULL : w;
  } while (take(s, ','));
  if (!take(s, ']')) return bad(s, "',' or ']'");
  if (!take(s, '=')) return NULL;
  const char *at = s->p, *w = word(s);
  if (!w || !whole_number(w, &it->last) || it->last > INT32_MAX) return s->p = at, bad(s, "the last element's value, a number below 2^31");
  return NULL;
}

static Err *scan_number(Scan *s, KernItem *it) {
  char *end, *end_int;
  it->fval = strtod(s->p, &end);
  errno = 0;
  it->ival = strtoll(s->p, &end_int, 10);
  it->is_int = end_int == end;
  if (it->is_int && errno) return bad(s, "a whole number of 64 bits");
  if (end == s->p || is_word(*end)) return bad(s, "a number, or a type with dimensions like f32[1,64]");
  s->p = end;
  return NULL;
}

static Err *scan_item(Scan *s, KernItem *it) {
  *it = (KernItem){.last = -1};
  if (!(it->name = word(s))) return bad(s, "the name of a parameter");
  if (!take(s, '=')) return bad(s, "'=' and a type with dimensions or a number");
  const char *at = s->p;
  it->elt = word(s);
  if (it->elt && take(s, '[')) return scan_tensor(s, it);
  it->elt = NULL;
  s->p = at;
  return scan_number(s, it);
}

Err *kern_call_parse(Arena *a, const char *text, KernCall *out) {
  Scan s = {a, text, text};
  KernCall c = {0};
  while (take(&s, ' ')) {}
  if (!(c.op = word(&s))) return bad(&s, "the name of an op");
  while (*s.p) {
    if (!take(&s, ' ')) return bad(&s, "a blank before the next parameter");
    while (take(&s, ' ')) {}
    if (!*s.p) break;
    if (c.n_items == KERN_MAX_ITEMS) return bad(&s, "at most 16 parameters");
    TRY(scan_item(&s, &c.item[c.n_items]));
    for (int i = 0; i < c.n_items; i++)
      if (!strcmp(c.item[i].name, c.item[c.n_items].name)) return err_new(ERR_USAGE, "kernel spec: parameter %s is given twice", c.item[i].name);
    c.n_items++;
  }
  *out = c;
  return NULL;
}

static void print_float(double v, Str *out) { /* the shortest digits that read back */
  char buf[40];
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(buf, sizeof buf, "%.*g", digits, v);
    if (strtod(buf, NULL) == v) break;
  }
  str_add(out, buf);
}

void kern_call_print(const KernCall *c, Str *out) {
  str_add(out, c->op);
  for (int i = 0; i < c->n_items; i++) {
    const KernItem *it = &c->item[i];
    str_addf(out, " %s=", it->name);
    if (!it->elt && it->is_int) str_addf(out, "%lld", (long long)it->ival);
    else if (!it->elt) print_float(it->fval, out);
    else str_addf(out, "%s[", it->elt);
    for (int k = 0; k < it->n_dims; k++) {
      if (k) str_add_c(out, ',');
      if (it->dim_name[k]) str_add(out, it->dim_name[k]);
      else str_addf(out, "%lld", (long long)it->dim[k]);
    }
    if (it->elt) str_add_c(out, ']');
    if (it->last >= 0) str_addf(out, "=%lld", (long long)it->last);
  }
}

/* ---- an op's dimensions -------------------------------------------------------------------------------------------- */
bool kern_type_is_format(const TypeExpr *t) { return t->n_dims > 0 && t->elt[0] >= 'A' && t->elt[0] <= 'Z'; }
bool kern_type_is_weight(const TypeExpr *t) { return kern_type_is_format(t) && t->n_dims == 2; }

static void note_dims(const TypeExpr *t, bool is_param, KernDim *out, int max, int *n) {
  for (int k = 0; k < t->n_dims; k++) {
    if (t->dim[k]->kind != EX_NAME) continue;
    int i = 0;
    while (i < *n && strcmp(out[i].name, t->dim[k]->name)) i++;
    if (i == max) return;
    if (i == *n) out[(*n)++] = (KernDim){.name = t->dim[k]->name, .is_rows = true};
    if (k > 0 || kern_type_is_format(t)) out[i].is_rows = false;
    if (is_param && kern_type_is_weight(t)) *(k ? &out[i].is_weight_k : &out[i].is_weight_row) = true;
  }
}

int kern_op_dims(const OpDecl *op, KernDim *out, int max) {
  int n = 0;
  for (int i = 0; i < op->n_params; i++) note_dims(&op->param[i].type, true, out, max, &n);
  for (int i = 0; i < op->n_results; i++) note_dims(&op->result[i].type, false, out, max, &n);
  return n;
}

static const Param *find_param(const OpDecl *op, const char *name) {
  for (int i = 0; i < op->n_params; i++) if (!strcmp(op->param[i].name, name)) return &op->param[i];
  for (int i = 0; i < op->n_results; i++) if (!strcmp(op->result[i].name, name)) return &op->result[i];
  return NULL;
}

bool kern_call_resize(const Module *m, KernCall *c, const char *var, int64_t size) {
  const OpDecl *op = lang_op(m, c->op, 0);
  bool found = false;
  for (int i = 0; op && i < c->n_items; i++) {
    const Param *p = find_param(op, c->item[i].name);
    for (int k = 0; p && k < p->type.n_dims && k < c->item[i].n_dims; k++) {
      if (p->type.dim[k]->kind != EX_NAME || strcmp(p->type.dim[k]->name, var)) continue;
      c->item[i].dim[k] = size;
      c->item[i].dim_name[k] = NULL;
      found = true;
    }
  }
  return found;
}

/* ---- the program --------------------------------------------------------------------------------------------------- */
enum { MAX_DIMS = 32 };
typedef struct Build {
  Arena *a; const Module *m; const OpDecl *op; const KernCall *c;
  KernSpec *spec;
  KernDim dim[MAX_DIMS]; int n_dims;
  int cap_last;
} Build;

static Err *unknown(const char *what, const char *got, const char *const *names, int n) {
  const char *near = lang_nearest(got, names, n);
  return err_new(ERR_NOT_FOUND, "%s '%s': no such %s%s%s%s", what, got, what, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static Err *find_op(Build *b) {
  const Module *m = b->m;
  if ((b->op = lang_op(m, b->c->op, 0))) return NULL;
  const char **names = ARENA_ARRAY(b->a, const char *, m->n_ops + 1);
  for (int i = 0; i < m->n_ops; i++) names[i] = m->op[i]->name;
  return unknown("op", b->c->op, names, m->n_ops);
}

static Err *check_names(Build *b) {
  const char *names[2 * KERN_MAX_ITEMS + 2];
  int n = 0;
  for (int i = 0; i < b->op->n_params && n < KERN_MAX_ITEMS; i++) names[n++] = b->op->param[i].name;
  for (int i = 0; i < b->op->n_results && n < 2 * KERN_MAX_ITEMS; i++) names[n++] = b->op->result[i].name;
  for (int i = 0; i < b->c->n_items; i++)
    if (!find_param(b->op, b->c->item[i].name)) return err_wrap(unknown("parameter", b->c->item[i].name, names, n), "op %s", b->op->name);
  return NULL;
}

static const KernItem *item_of(const Build *b, const char *name) {
  for (int i = 0; i < b->c->n_items; i++) if (!strcmp(b->c->item[i].name, name)) return &b->c->item[i];
  return NULL;
}

static Err *format_of(Build *b, const KernItem *it, FormatForm **out) {
  if (lang_format(b->m, it->elt)) return tp_form(b->spec->tp, it->elt, out);
  const char **names = ARENA_ARRAY(b->a, const char *, b->m->n_formats + 1);
  for (int i = 0; i < b->m->n_formats; i++) names[i] = b->m->format[i]->name;
  return err_wrap(unknown("format", it->elt, names, b->m->n_formats), "%s", it->name);
}

static Err *dim_of(Build *b, const Param *p, const KernItem *it, int k, Dx *out) {
  Tp *tp = b->spec->tp;
  const Expr *e = p->type.dim[k];
  bool rows = false;
  for (int i = 0; e->kind == EX_NAME && i < b->n_dims; i++) rows |= b->dim[i].is_rows && !strcmp(b->dim[i].name, e->name);
  if (!rows && it->dim_name[k]) return err_new(ERR_USAGE, "op %s: %s: dimension %d is %s, expected a number: only a number of rows may be left open", b->op->name, it->name, k, it->dim_name[k]);
  *out = dx_int(tp->dag, it->dim[k]);
  if (!rows) return NULL;
  bool known = false;
  for (int i = 0; i < tp->n_syms; i++) known |= !strcmp(tp->sym[i].name, e->name);
  if (!known && tp->n_syms == KERN_MAX_SYMS) return err_new(ERR_LIMIT, "op %s: more than %d numbers of rows", b->op->name, KERN_MAX_SYMS);
  int s = tp_sym(tp, e->name);
  int64_t *v = &b->spec->sym[s];
  if (known && *v != it->dim[k])
    return err_new(ERR_SHAPE, "op %s: %s: dimension %d (%s) is %lld, elsewhere it is %lld (-1: left open)", b->op->name, it->name, k, e->name, (long long)it->dim[k], (long long)*v);
  *v = it->dim[k];
  *out = dx_node(tp->dag, (DxNode){.kind = DX_SYM, .type = DT_INT, .ival = s});
  return NULL;
}

/* A tensor of the call as a buffer. Blocks of weights come as in a file; a format that is no weight is a state's. */
static Err *make_buf(Build *b, const Param *p, const KernItem *it, bool is_result, int *out) {
  const TypeExpr *t = &p->type;
  FormatForm *state = NULL;
  TpBuf f = {.name = p->name, .role = is_result ? BUF_OUTPUT : BUF_INPUT, .tag = -1, .n_dims = it->n_dims};
  if (!it->elt) return err_new(ERR_USAGE, "op %s: %s: got a number, expected a type with %d dimension%s", b->op->name, it->name, t->n_dims, t->n_dims == 1 ? "" : "s");
  if (it->n_dims != t->n_dims) return err_new(ERR_SHAPE, "op %s: %s: got %d dimensions, expected %d", b->op->name, it->name, it->n_dims, t->n_dims);
  if (kern_type_is_format(t)) {
    TRY(format_of(b, it, &f.fmt));
    f.mem = f.fmt->plain ? f.fmt->mem : IR_M_none;
    state = !kern_type_is_weight(t) || is_result ? f.fmt : NULL;
    if (state) {
      f.fmt = NULL;
      f.role = BUF_STATE;
    } else {
      f.role = BUF_WEIGHT;
      if (it->dim[1] % f.fmt->block) return err_new(ERR_SHAPE, "op %s: %s: rows of %lld are not whole blocks of %d", b->op->name, it->name, (long long)it->dim[1], f.fmt->block);
    }
  } else {
    f.mem = dx_mem(t->elt);
    if (f.mem == IR_M_none) return err_new(ERR_UNSUPPORTED, "op %s: %s: a tensor of format %s by name; a capital letter in the op's text stands for any format", b->op->name, it->name, t->elt);
    if (strcmp(it->elt, t->elt)) return err_new(ERR_USAGE, "op %s: %s: type %s, expected %s", b->op->name, it->name, it->elt, t->elt);
  }
  for (int k = 0; k < it->n_dims; k++) TRY(dim_of(b, p, it, k, &f.dim[k]));
  f.bf16 = (f.role == BUF_STATE || f.role == BUF_WEIGHT) && f.mem == IR_M_bf16 && !is_result; /* what it is filled with */
  if (state) TRY(err_wrap(tp_buf_format(b->spec->tp, &f, t, state), "op %s", b->op->name));
  TRY(err_wrap(tp_dims_check(b->spec->tp, it->name, &f), "op %s", b->op->name));
  if (f.role == BUF_WEIGHT) f.tag = b->spec->tp->n_bufs + 1; /* its twin that is read raw finds it by the tag */
  *out = tp_buf(b->spec->tp, f);
  return NULL;
}

static Err *make_arg(Build *b, const Param *p, TpArg *out, bool *left_out) {
  const KernItem *it = item_of(b, p->name);
  *left_out = !it && p->deflt;
  if (*left_out) return NULL;
  if (!it) {
    Str s = {0};
    for (int i = 0; i < b->op->n_params; i++) str_addf(&s, "%s%s", i ? ", " : "", b->op->param[i].name);
    Err *e = err_new(ERR_USAGE, "op %s: parameter %s is missing; it takes %s", b->op->name, p->name, s.p);
    str_free(&s);
    return e;
  }
  if (p->type.n_dims) {
    *out = (TpArg){.kind = TA_BUF};
    return make_buf(b, p, it, false, &out->buf);
  }
  if (it->elt) return err_new(ERR_USAGE, "op %s: %s: got a tensor, expected a number", b->op->name, p->name);
  *out = it->is_int ? (TpArg){.kind = TA_INT, .ival = it->ival} : (TpArg){.kind = TA_FLT, .fval = it->fval};
  if (!it->is_int && strcmp(p->type.elt, "f32")) return err_new(ERR_USAGE, "op %s: %s: got %g, expected a whole number", b->op->name, p->name, it->fval);
  return NULL;
}

static Err *call(Build *b) {
  KernSpec *s = b->spec;
  TpArg arg[KERN_MAX_ITEMS];
  int result[KERN_MAX_ITEMS], n_args = 0;
  if (b->op->n_params > KERN_MAX_ITEMS || b->op->n_results > KERN_MAX_ITEMS) return err_new(ERR_LIMIT, "op %s: more than %d parameters", b->op->name, KERN_MAX_ITEMS);
  for (int i = 0; i < b->op->n_params; i++) {
    bool left_out;
    TRY(make_arg(b, &b->op->param[i], &arg[n_args], &left_out));
    if (left_out && i + 1 < b->op->n_params && item_of(b, b->op->param[i + 1].name))
      return err_new(ERR_USAGE, "op %s: %s is given, so %s before it must be too", b->op->name, b->op->param[i + 1].name, b->op->param[i].name);
    n_args += !left_out;
  }
  for (int i = 0; i < b->op->n_results; i++) {
    const Param *p = &b->op->result[i];
    const KernItem *it = item_of(b, p->name);
    result[i] = -1;
    if (!it && kern_type_is_format(&p->type)) return err_new(ERR_USAGE, "op %s: result %s needs a format and dimensions", b->op->name, p->name);
    if (it) TRY(make_buf(b, p, it, true, &result[i]));
  }
  TRY(tp_call(s->tp, b->op->name, arg, n_args, result, b->op->n_results, &s->variant));
  for (int i = 0; i < b->op->n_results; i++) if (s->tp->buf[result[i]].role == BUF_TEMP) s->tp->buf[result[i]].role = BUF_OUTPUT;
  return NULL;
}

Err *kern_precision_check(Arena *a, const Module *m, const char *precision) {
  const char *others = "";
  bool known = !precision || !strcmp(precision, "f32");
  for (int i = 0; i < m->n_ops && !known; i++) {
    const char *p = m->op[i]->precision;
    known = p && !strcmp(p, precision);
    if (p && strcmp(p, "f32") && !strstr(others, arena_printf(a, ", %s", p))) others = arena_printf(a, "%s, %s", others, p);
  }
  return known ? NULL : err_new(ERR_USAGE, "precision '%s': expected f32%s", precision, others);
}

Err *kern_call_build(Arena *a, const Module *m, const KernCall *c, const char *precision, KernSpec **out) {
  KernSpec *s = ARENA_NEW(a, KernSpec);
  Build *b = ARENA_NEW(a, Build);
  Str text = {0};
  *b = (Build){.a = a, .m = m, .c = c, .spec = s};
  kern_call_print(c, &text);
  s->text = arena_dup(a, text.p);
  str_free(&text);
  TRY(kern_precision_check(a, m, precision));
  s->tp = tp_new(a, m, precision);
  s->tp->narrow = c->narrow;
  s->tp->dot2 = c->dot2;
  TRY(find_op(b));
  TRY(check_names(b));
  s->op = b->op;
  b->n_dims = kern_op_dims(b->op, b->dim, MAX_DIMS);
  TRY(call(b));
  TRY(err_wrap(tp_plan(s->tp, &s->plan), "op %s", b->op->name));
  s->last = ARENA_ARRAY(a, int64_t, s->tp->n_bufs);
  for (int i = 0; i < s->tp->n_bufs; i++) {
    const KernItem *it = s->tp->buf[i].role == BUF_INPUT ? item_of(b, s->tp->buf[i].name) : NULL;
    s->last[i] = it ? it->last : -1;
  }
  *out = s;
  return NULL;
}
