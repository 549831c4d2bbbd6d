/* The model's graph into sections: every call of an op is instantiated into the program of its section, variables that cross sections become
   inputs and outputs, layers with the same tensor formats share one plan. In: declaration, hyperparameters, bound tensors. Out: sections. */
#include <string.h>
#include "model/priv.h"

enum { MAX_RESULTS = 8, MAX_VARS = 250 }; /* of one statement, of a graph: after each statement at most MAX_VARS + MAX_RESULTS */
typedef struct Build {
  Model *m; Section *s; Tp *tp;
  Arena *a;
  int layer;                    /* -1 outside the loop */
  const char *layer_var;
  VarBuf *vb;                   /* by variable: its buffer in this section, -1 */
  int cap_bind;
} Build;

static int var_index(Model *m, const char *name) {
  for (int i = 0; i < m->n_vars; i++) if (!strcmp(m->var[i].name, name)) return i;
  PUSH(m->arena, m->var, m->n_vars, m->cap_vars, (Var){.name = name, .mem = IR_M_none});
  return m->n_vars - 1;
}

static void set_bind(Build *b, int buf, Bind bind) {
  if (buf >= b->cap_bind) {
    int cap = MAX(b->cap_bind * 2, buf + 64);
    Bind *more = ARENA_ARRAY(b->a, Bind, cap);
    if (b->cap_bind) memcpy(more, b->s->bind, sizeof(Bind) * (size_t)b->cap_bind);
    b->s->bind = more;
    b->cap_bind = cap;
  }
  b->s->bind[buf] = bind;
}

/* Buffers are made once per thing bound; TpBuf.tag tells which. */
static int bound_buf(Build *b, Bind bind, TpBuf t) {
  int tag = (int)bind.kind * 100000 + bind.index;
  for (int i = 0; i < b->tp->n_bufs; i++) if (b->tp->buf[i].tag == tag && !b->tp->buf[i].raw && b->tp->buf[i].alias == i) return i;
  t.tag = tag;
  int buf = tp_buf(b->tp, t);
  set_bind(b, buf, bind);
  return buf;
}

static Err *dim_value(Build *b, const Expr *e, Dx *out) {
  if (e->kind == EX_NAME) {
    for (int i = 0; i < b->m->decl->n_params; i++) {
      const Param *p = &b->m->decl->param[i];
      for (int k = 0; k < p->type.n_dims; k++)
        if (p->type.dim[k]->kind == EX_NAME && !strcmp(p->type.dim[k]->name, e->name)) {
          *out = dx_node(b->tp->dag, (DxNode){.kind = DX_SYM, .type = DT_INT, .ival = tp_sym(b->tp, e->name)});
          return NULL;
        }
    }
  }
  Num n;
  TRY(hyper_eval(&b->m->env, e, &n));
  if (!n.is_int || n.i < 0) return err_new(ERR_SHAPE, "a dimension is %g, expected a whole number", num_float(n));
  *out = dx_int(b->tp->dag, n.i);
  return NULL;
}

static Err *type_dims(Build *b, const TypeExpr *t, TpBuf *out) {
  if (t->n_dims > IR_MAX_DIMS) return err_new(ERR_LIMIT, "more than %d dimensions", IR_MAX_DIMS);
  out->n_dims = t->n_dims;
  for (int i = 0; i < t->n_dims; i++) TRY(dim_value(b, t->dim[i], &out->dim[i]));
  return NULL;
}

static Err *tensor_buf(Build *b, BindKind kind, int index, const ModelTensor *t, int *out) {
  if (t->absent) return err_new(ERR_NOT_FOUND, "tensor %s: the file has none, and the graph uses it; a graph asks with has(..)", t->decl->name);
  TpBuf buf = {.name = t->decl->name, .role = t->values ? BUF_INPUT : BUF_WEIGHT, .n_dims = t->n_dims, .mem = t->values ? IR_M_f32 : IR_M_none, .fmt = t->values ? NULL : t->form};
  buf.bf16 = buf.fmt && buf.fmt->plain && buf.fmt->mem == IR_M_bf16; /* until it is seen, when it is packed */
  for (int i = 0; i < t->n_dims; i++) buf.dim[i] = dx_int(b->tp->dag, t->dim[i]);
  if (t->parts && t->parts->order && !t->values) {
    TpBuf order = {.name = "order", .role = BUF_INPUT, .mem = IR_M_i32, .n_dims = 1, .dim = {buf.dim[1]}};
    buf.order = 1 + bound_buf(b, (Bind){.kind = kind == BIND_TENSOR ? BIND_ORDER : BIND_LAYER_ORDER, .index = t->order_of}, order);
  }
  *out = bound_buf(b, (Bind){.kind = kind, .index = index}, buf);
  return NULL;
}

static Err *state_buf(Build *b, int i, int *out) {
  const StateDecl *d = &b->m->layer->state[i];
  TpBuf t = {.name = d->name, .role = BUF_STATE, .mem = IR_M_f32};
  TRY(type_dims(b, &d->type, &t));
  if (strcmp(d->type.elt, "f32")) TRY(err_wrap(tp_buf_format(b->tp, &t, &d->type, b->m->kv_form), "state"));
  for (int k = 0; k < t.n_dims; k++) if (!dx_is_int(b->tp->dag, t.dim[k], NULL)) return err_new(ERR_UNSUPPORTED, "state %s: dimension %d is a step's number of rows; a state is as long as a sequence may be", d->name, k);
  TRY(tp_dims_check(b->tp, d->name, &t));
  *out = bound_buf(b, (Bind){.kind = BIND_STATE, .index = i}, t);
  return NULL;
}

static Err *var_read(Build *b, int v, int *out) {
  if (b->vb[v].buf >= 0) { *out = b->vb[v].buf; return NULL; }
  Var *var = &b->m->var[v];
  if (var->mem == IR_M_none) return err_new(ERR_SYNTAX, "%s is read before anything is stored in it", var->name);
  TpBuf t = {.name = var->name, .role = BUF_INPUT, .mem = var->mem, .n_dims = 2};
  t.dim[0] = var->is_sym_rows ? dx_node(b->tp->dag, (DxNode){.kind = DX_SYM, .type = DT_INT, .ival = var->sym}) : dx_int(b->tp->dag, var->dim0);
  t.dim[1] = dx_int(b->tp->dag, var->row_bytes / ir_mem_bytes[var->mem]);
  *out = bound_buf(b, (Bind){.kind = BIND_VAR, .index = v}, t);
  b->vb[v] = (VarBuf){*out, false};
  return NULL;
}

static Err *eval_arg(Build *b, const Expr *e, TpArg *out);

static Err *eval_call(Build *b, const Expr *e, int *results, int n_results) {
  TpArg arg[16];
  if (e->n_args > 16) return err_new(ERR_LIMIT, "%s: more than 16 arguments", e->name);
  for (int i = 0; i < e->n_args; i++) TRY(eval_arg(b, e->arg[i], &arg[i]));
  return tp_call(b->tp, e->name, arg, e->n_args, results, n_results, NULL);
}

static TpArg number_arg(Num n) { return n.is_int ? (TpArg){.kind = TA_INT, .ival = n.i} : (TpArg){.kind = TA_FLT, .fval = n.f}; }

static Err *eval_name(Build *b, const Expr *e, TpArg *out) {
  Model *m = b->m;
  out->kind = TA_BUF;
  for (int i = 0; i < m->decl->n_params; i++) {
    if (strcmp(m->decl->param[i].name, e->name)) continue;
    TpBuf t = {.name = e->name, .role = BUF_INPUT, .mem = IR_M_i32};
    TRY(type_dims(b, &m->decl->param[i].type, &t));
    out->buf = bound_buf(b, (Bind){.kind = BIND_RUNTIME, .index = i}, t);
    return NULL;
  }
  for (int i = 0; i < m->n_tensors; i++)
    if (!strcmp(m->tensor[i].decl->name, e->name)) return tensor_buf(b, BIND_TENSOR, i, &m->tensor[i], &out->buf);
  for (int i = 0; i < m->env.n; i++) {
    const Hyper *h = &m->env.item[i];
    if (strcmp(h->name, e->name)) continue;
    if (!h->is_array) {
      *out = number_arg(h->num);
      return NULL;
    }
    TpBuf t = {.name = h->name, .role = BUF_INPUT, .mem = IR_M_f32, .n_dims = 1, .dim = {dx_int(b->tp->dag, h->n)}};
    out->buf = bound_buf(b, (Bind){.kind = BIND_ARRAY, .index = i}, t);
    return NULL;
  }
  for (int i = 0; i < m->n_vars; i++) if (!strcmp(m->var[i].name, e->name)) return var_read(b, i, &out->buf);
  return err_new(ERR_NOT_FOUND, "name '%s' is not known in the graph", e->name);
}

static Err *eval_layer_field(Build *b, const Expr *e, TpArg *out) {
  Model *m = b->m;
  out->kind = TA_BUF;
  for (int i = 0; i < m->layer->n_hypers; i++) {
    const Hyper *h = &m->lhyper[b->layer * m->layer->n_hypers + i];
    if (strcmp(h->name, e->name)) continue;
    *out = number_arg(h->num);
    return NULL;
  }
  for (int i = 0; i < m->layer->n_tensors; i++)
    if (!strcmp(m->layer->tensor[i].name, e->name)) return tensor_buf(b, BIND_LAYER_TENSOR, i, &m->ltensor[b->layer * m->n_ltensors + i], &out->buf);
  for (int i = 0; i < m->layer->n_states; i++) if (!strcmp(m->layer->state[i].name, e->name)) return state_buf(b, i, &out->buf);
  return err_new(ERR_NOT_FOUND, "a layer has no '%s'", e->name);
}

/* c ? x : y is decided here: only the side taken is built. */
static Err *taken_side(Build *b, const Expr *e, const Expr **out) {
  while (e->kind == EX_COND) {
    Num c;
    TRY(hyper_eval(&b->m->env, e->arg[0], &c));
    e = e->arg[num_float(c) != 0 ? 1 : 2];
  }
  *out = e;
  return NULL;
}

/* Rows keep their place, which is padded, so that what is in a row may be cut otherwise and nothing else. */
static Err *eval_as(Build *b, const Expr *e, TpArg *out) {
  TpArg x;
  TpBuf view = {.n_dims = e->n_args - 1};
  TRY(eval_arg(b, e->arg[0], &x));
  if (view.n_dims > IR_MAX_DIMS) return err_new(ERR_LIMIT, "more than %d dimensions", IR_MAX_DIMS);
  for (int i = 0; i < view.n_dims; i++) TRY(dim_value(b, e->arg[i + 1], &view.dim[i]));
  const TpBuf *t = &b->tp->buf[x.kind == TA_BUF ? x.buf : 0];
  if (x.kind != TA_BUF || t->fmt || t->n_dims < 2 || view.n_dims < 2) return err_new(ERR_UNSUPPORTED, "as [..] is for tensors that ops give, with 2 dimensions or more before and after");
  view.mem = t->mem;
  TRY(tp_dims_check(b->tp, t->name, &view));
  int64_t have = 1, want = 1, v = 0;
  for (int i = 1; i < t->n_dims; i++) if (dx_is_int(b->tp->dag, t->dim[i], &v)) have *= v;
  for (int i = 1; i < view.n_dims; i++) if (dx_is_int(b->tp->dag, view.dim[i], &v)) want *= v;
  if (t->dim[0] != view.dim[0] || have != want) return err_new(ERR_SHAPE, "%s as [..]: rows hold %lld elements, the new dimensions %lld", t->name, (long long)have, (long long)want);
  *out = (TpArg){.kind = TA_BUF, .buf = tp_view(b->tp, x.buf, view.dim, view.n_dims)};
  set_bind(b, out->buf, (Bind){0});
  return NULL;
}

static Err *eval_arg(Build *b, const Expr *e, TpArg *out) {
  *out = (TpArg){.kind = TA_BUF};
  TRY(taken_side(b, e, &e));
  switch (e->kind) {
    case EX_INT: *out = (TpArg){.kind = TA_INT, .ival = e->ival}; return NULL;
    case EX_FLOAT: *out = (TpArg){.kind = TA_FLT, .fval = e->fval}; return NULL;
    case EX_NAME: return eval_name(b, e, out);
    case EX_FIELD: return eval_layer_field(b, e, out);
    case EX_CALL: {
      int r = -1;
      TRY(eval_call(b, e, &r, 1));
      out->buf = r;
      return NULL;
    }
    case EX_AS: return eval_as(b, e, out);
    default: {
      Num n;
      TRY(hyper_eval(&b->m->env, e, &n));
      *out = number_arg(n);
      return NULL;
    }
  }
}

static Err *assign(Build *b, const GraphStmt *g) {
  int r[MAX_RESULTS];
  if (g->n_targets > MAX_RESULTS) return err_new(ERR_LIMIT, "more than %d results", MAX_RESULTS);
  for (int i = 0; i < g->n_targets; i++) {
    r[i] = -1;
    TpArg t;
    if (g->target[i]->kind != EX_FIELD) continue;
    TRY(eval_layer_field(b, g->target[i], &t));
    r[i] = t.buf;
  }
  const Expr *rhs;
  TRY(taken_side(b, g->rhs, &rhs));
  if (rhs->kind == EX_CALL) TRY(eval_call(b, rhs, r, g->n_targets));
  else {
    TpArg t;
    TRY(eval_arg(b, rhs, &t));
    if (t.kind != TA_BUF || g->n_targets != 1 || r[0] >= 0) return err_new(ERR_SYNTAX, "an assignment takes one tensor");
    r[0] = t.buf;
  }
  for (int i = 0; i < g->n_targets; i++)
    if (g->target[i]->kind == EX_NAME) b->vb[var_index(b->m, g->target[i]->name)] = (VarBuf){r[i], true};
  return NULL;
}

/* ---- what crosses sections ----------------------------------------------------------------------------------------- */
static bool reads(const Expr *e, const char *name) {
  if (e->kind == EX_NAME && !strcmp(e->name, name)) return true;
  for (int i = 0; i < e->n_args; i++) if (reads(e->arg[i], name)) return true;
  return false;
}

static bool body_reads(const GraphStmt *g, int n, const char *name) {
  for (int i = 0; i < n; i++) if (reads(g[i].rhs, name)) return true;
  return false;
}

static Err *export_var(Build *b, int v) {
  Var *var = &b->m->var[v];
  int buf = b->vb[v].buf;
  TpBuf *t = &b->tp->buf[buf];
  while (t->alias != buf) buf = t->alias, t = &b->tp->buf[buf];
  if (t->role != BUF_TEMP) return err_new(ERR_UNSUPPORTED, "%s: a variable that crosses the loop must be an op's result", var->name);
  const DxNode *d0 = &b->tp->dag->node[t->dim[0]];
  if (t->n_dims != 2) return err_new(ERR_UNSUPPORTED, "%s: a variable that crosses the loop must have 2 dimensions, has %d", var->name, t->n_dims);
  int64_t cols = 0;
  CHECK(dx_is_int(b->tp->dag, t->dim[1], &cols), "%s: tp_dims_check let it through", var->name);
  bool sym = d0->kind == DX_SYM;
  if (var->mem != IR_M_none && (var->row_bytes != cols * ir_mem_bytes[t->mem] || var->is_sym_rows != sym)) return err_new(ERR_SHAPE, "%s changes its shape in the loop", var->name);
  var->mem = t->mem;
  var->row_bytes = cols * ir_mem_bytes[t->mem];
  var->is_sym_rows = sym;
  var->sym = (int)d0->ival;
  var->dim0 = (Dx)d0->ival;
  t->role = BUF_OUTPUT;
  set_bind(b, buf, (Bind){.kind = BIND_VAR, .index = v, .out = true});
  return NULL;
}

static Err *section_finish(Build *b, const GraphStmt *later, int n_later, const GraphStmt *body, int n_body, const Expr *result) {
  for (int v = 0; v < b->m->n_vars; v++) {
    if (!b->vb[v].assigned) continue;
    const char *name = b->m->var[v].name;
    bool crosses = body_reads(later, n_later, name) || body_reads(body, n_body, name) || (result && reads(result, name));
    if (body && b->layer >= 0) { /* inside the loop: only what an earlier section made is carried */
      crosses = b->m->var[v].mem != IR_M_none || body_reads(later, n_later, name) || (result && reads(result, name));
    }
    if (crosses) TRY(export_var(b, v));
  }
  while (b->cap_bind < b->tp->n_bufs) set_bind(b, b->cap_bind, (Bind){0});
  for (int i = 0; i < b->tp->n_bufs; i++) /* twins made for picking rows are bound like the tensor they read */
    if (b->tp->buf[i].raw) b->s->bind[i] = (Bind){.kind = (BindKind)(b->tp->buf[i].tag / 100000), .index = b->tp->buf[i].tag % 100000};
  TRY(tp_plan(b->tp, &b->s->plan));
  if (trace_on(TRACE_src, NULL)) {
    Str s = {0};
    tp_plan_print(b->s->plan, &s);
    trace_text(TRACE_src, b->layer < 0 ? "section outside the layers" : "section of a layer", s.p ? s.p : "");
    str_free(&s);
  }
  return NULL;
}

static Build build_new(Model *m, int layer, const char *var) {
  Build b = {.m = m, .a = m->arena, .layer = layer, .layer_var = var};
  b.s = ARENA_NEW(m->arena, Section);
  b.s->result = -1;
  b.tp = b.s->tp = tp_new(m->arena, m->module, strcmp(m->precision, "f32") ? m->precision : NULL);
  b.tp->narrow = kern_target(m->kerns)->tiles;
  b.tp->dot2 = kern_target(m->kerns)->dot2;
  b.tp->form = m->forms->form;
  b.tp->n_forms = m->forms->n_forms;
  b.tp->cap_forms = m->forms->n_forms;
  for (int i = 0; i < m->decl->n_params; i++) { /* symbols get the same numbers in every section */
    const TypeExpr *t = &m->decl->param[i].type;
    for (int k = 0; k < t->n_dims; k++) if (t->dim[k]->kind == EX_NAME) tp_sym(b.tp, t->dim[k]->name);
  }
  b.vb = ARENA_ARRAY(m->arena, VarBuf, MAX_VARS + 16);
  for (int i = 0; i < MAX_VARS + 16; i++) b.vb[i].buf = -1;
  return b;
}

static Err *run_stmts(Build *b, const GraphStmt *g, int n) {
  for (int i = 0; i < n; i++) {
    b->tp->line = g[i].loc.line;
    Err *e = assign(b, &g[i]);
    if (e) return err_wrap(e, "model %s: %s:%d", b->m->decl->name, g[i].loc.file, g[i].loc.line);
    if (b->m->n_vars > MAX_VARS) return err_new(ERR_LIMIT, "model %s: more than %d variables", b->m->decl->name, MAX_VARS);
  }
  return NULL;
}

/* Layers with the same numbers whose tensors have the same formats and shapes run the same plan. */
static bool same_layer(const Model *m, int a, int b) {
  for (int i = 0, n = m->layer->n_hypers; i < n; i++) {
    Num x = m->lhyper[a * n + i].num, y = m->lhyper[b * n + i].num;
    if (x.is_int != y.is_int || x.i != y.i || memcmp(&x.f, &y.f, sizeof x.f)) return false; /* what is no number too */
  }
  for (int i = 0; i < m->n_ltensors; i++) {
    const ModelTensor *x = &m->ltensor[a * m->n_ltensors + i], *y = &m->ltensor[b * m->n_ltensors + i];
    if (x->absent != y->absent || x->form != y->form || x->order_of != y->order_of || (x->values == NULL) != (y->values == NULL) || memcmp(x->dim, y->dim, sizeof x->dim)) return false;
  }
  return true;
}

static Err *build_layers(Model *m, const GraphStmt *loop, const GraphStmt *rest, int n_rest) {
  m->by_layer = ARENA_ARRAY(m->arena, Section *, m->n_layers);
  m->body = ARENA_ARRAY(m->arena, Section *, m->n_layers);
  for (int l = 0; l < m->n_layers; l++) {
    for (int k = 0; k < l && !m->by_layer[l]; k++) if (same_layer(m, k, l)) m->by_layer[l] = m->by_layer[k];
    if (m->by_layer[l]) continue;
    Build b = build_new(m, l, loop->var);
    hyper_layer(&m->env, m->layer, l, m->lhyper + l * m->layer->n_hypers);
    TRY(run_stmts(&b, loop->body, loop->n_body));
    hyper_layer(&m->env, NULL, -1, NULL);
    TRY(section_finish(&b, rest, n_rest, loop->body, loop->n_body, m->decl->result));
    m->by_layer[l] = m->body[m->n_bodies++] = b.s;
  }
  return NULL;
}

/* What a step has to give: tokens and their positions, and the rows whose logits are wanted. */
static Err *check_params(const ModelDecl *d) {
  const Param *p = d->param;
  bool ok = d->n_params == 3;
  for (int i = 0; ok && i < 3; i++) ok = !strcmp(p[i].type.elt, "i32") && p[i].type.n_dims == 1 && p[i].type.dim[0]->kind == EX_NAME;
  ok = ok && !strcmp(p[0].type.dim[0]->name, p[1].type.dim[0]->name) && strcmp(p[0].type.dim[0]->name, p[2].type.dim[0]->name);
  return ok ? NULL : err_new(ERR_UNSUPPORTED, "model %s: a graph is graph(tokens: i32[M], pos: i32[M], rows: i32[O]), whatever the names", d->name);
}

/* Logits: floats, a row for each that is wanted. */
static Err *check_result(const Build *b, const TpArg *r) {
  const TpBuf *t = r->kind == TA_BUF ? &b->tp->buf[r->buf] : NULL;
  if (!t || t->role != BUF_TEMP || t->n_dims != 2 || t->mem != IR_M_f32) return err_new(ERR_UNSUPPORTED, "model %s: the result must be an op's, f32 with 2 dimensions", b->m->decl->name);
  const DxNode *n = &b->tp->dag->node[t->dim[0]], *cols = &b->tp->dag->node[t->dim[1]];
  if (cols->ival > INT32_MAX) return err_new(ERR_LIMIT, "model %s: logits of %lld tokens, expected at most %d", b->m->decl->name, (long long)cols->ival, INT32_MAX);
  return n->kind == DX_SYM && n->ival == 1 ? NULL : err_new(ERR_SHAPE, "model %s: the result's rows must be those that are asked for, %s", b->m->decl->name, b->m->decl->param[2].type.dim[0]->name);
}

Err *model_build_graph(Model *m) {
  const ModelDecl *d = m->decl;
  int at = 0;
  TRY(check_params(d));
  while (at < d->n_graph && d->graph[at].n_targets > 0) at++;
  const GraphStmt *loop = at < d->n_graph ? &d->graph[at] : NULL, *rest = loop ? loop + 1 : NULL;
  int n_rest = loop ? d->n_graph - at - 1 : 0;
  for (int i = 0; i < n_rest; i++) if (rest[i].n_targets == 0) return err_new(ERR_UNSUPPORTED, "model %s: more than one loop over layers", d->name);
  Build b = build_new(m, -1, NULL);
  TRY(run_stmts(&b, d->graph, at));
  TRY(section_finish(&b, rest, n_rest, loop ? loop->body : NULL, loop ? loop->n_body : 0, d->result));
  m->pre = b.s;
  if (loop) TRY(build_layers(m, loop, rest, n_rest));
  b = build_new(m, -1, NULL);
  TRY(run_stmts(&b, rest, n_rest));
  TpArg r;
  b.tp->line = d->result->loc.line;
  TRY(err_wrap(eval_arg(&b, d->result, &r), "model %s: result", d->name));
  TRY(check_result(&b, &r));
  int v = var_index(m, "the result");
  b.vb[v] = (VarBuf){r.buf, true};
  TRY(export_var(&b, v));
  b.vb[v].assigned = false;
  b.s->result = v;
  TRY(section_finish(&b, NULL, 0, NULL, 0, NULL));
  m->post = b.s;
  m->n_vocab = m->var[v].row_bytes / 4;
  return NULL;
}
