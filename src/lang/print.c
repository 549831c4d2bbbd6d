/* Declarations back to text. Loading what is printed gives the same tree: ranges the checker worked out are written out, parentheses
   stand exactly where precedence asks for them, floats keep every bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "lang/priv.h"

static void print_prec(const Expr *e, int min_prec, Str *out);

static void print_list(Expr *const *e, int n, Str *out) {
  for (int i = 0; i < n; i++) {
    if (i) str_add(out, ", ");
    print_prec(e[i], 0, out);
  }
}

/* Shortest digits that read back as the same double, with a point or exponent so that it stays a float. */
static void print_float(double v, Str *out) {
  char buf[40];
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(buf, sizeof buf, "%.*g", digits, v);
    if (strtod(buf, NULL) == v) break;
  }
  str_add(out, buf);
  if (!strpbrk(buf, ".e")) str_add(out, ".0");
}

static void print_string(const char *s, Str *out) {
  str_add_c(out, '"');
  for (; *s; s++) {
    if (*s == '\n') str_add(out, "\\n");
    else if (*s == '\t') str_add(out, "\\t");
    else if (*s == '"' || *s == '\\') str_addf(out, "\\%c", *s);
    else str_add_c(out, *s);
  }
  str_add_c(out, '"');
}

static void print_binders(const Binder *b, int n, Str *out) {
  for (int i = 0; i < n; i++) {
    str_addf(out, "%s%s", i ? ", " : "", b[i].name);
    if (!b[i].extent) continue;
    str_add(out, " < ");
    print_prec(b[i].extent, lang_op_prec(OP_BOR), out);
  }
}

enum { PREC_PREFIX = 100, PREC_POSTFIX = 101, PREC_ATOM = 102 };

static int prec_of(const Expr *e) {
  switch (e->kind) {
    case EX_COND: return 0;
    case EX_BINARY: return lang_op_prec(e->op);
    case EX_UNARY: return PREC_PREFIX;
    case EX_INDEX: case EX_FIELD: case EX_AS: return PREC_POSTFIX;
    default: return PREC_ATOM;
  }
}

static void print_bare(const Expr *e, Str *out) {
  int prec = prec_of(e);
  switch (e->kind) {
    case EX_INT: str_addf(out, "%lld", (long long)e->ival); break;
    case EX_FLOAT: print_float(e->fval, out); break;
    case EX_STR: print_string(e->name, out); break;
    case EX_NAME: str_add(out, e->name); break;
    case EX_FIELD:
      print_prec(e->arg[0], PREC_POSTFIX, out);
      str_addf(out, ".%s", e->name);
      break;
    case EX_INDEX: case EX_AS:
      print_prec(e->arg[0], PREC_POSTFIX, out);
      str_add(out, e->kind == EX_AS ? " as [" : "[");
      print_list(e->arg + 1, e->n_args - 1, out);
      str_add_c(out, ']');
      break;
    case EX_CALL:
      str_addf(out, "%s(", e->name);
      print_list(e->arg, e->n_args, out);
      str_add_c(out, ')');
      break;
    case EX_UNARY:
      str_add(out, lang_op_text(e->op));
      print_prec(e->arg[0], PREC_PREFIX, out);
      break;
    case EX_BINARY:
      print_prec(e->arg[0], prec, out);
      str_addf(out, " %s ", lang_op_text(e->op));
      print_prec(e->arg[1], prec + 1, out);
      break;
    case EX_COND:
      print_prec(e->arg[0], 1, out);
      str_add(out, " ? ");
      print_prec(e->arg[1], 0, out);
      str_add(out, " : ");
      print_prec(e->arg[2], 0, out);
      break;
    case EX_REDUCE:
      str_addf(out, "%s(", lang_op_text(e->op));
      print_binders(e->binder, e->n_binders, out);
      str_add(out, ": ");
      print_prec(e->arg[0], 0, out);
      str_add_c(out, ')');
      break;
  }
}

static void print_prec(const Expr *e, int min_prec, Str *out) {
  bool paren = prec_of(e) < min_prec;
  if (paren) str_add_c(out, '(');
  print_bare(e, out);
  if (paren) str_add_c(out, ')');
}

void lang_print_expr(const Expr *e, Str *out) { print_prec(e, 0, out); }

static void print_type(const TypeExpr *t, Str *out) {
  str_add(out, t->elt);
  if (!t->n_dims) return;
  str_add_c(out, '[');
  print_list(t->dim, t->n_dims, out);
  str_add_c(out, ']');
}

static void print_params(const Param *p, int n, Str *out) {
  for (int i = 0; i < n; i++) {
    str_addf(out, "%s%s: ", i ? ", " : "", p[i].name);
    print_type(&p[i].type, out);
    if (!p[i].deflt) continue;
    str_add(out, " = ");
    print_prec(p[i].deflt, 0, out);
  }
}

static void print_format_fn(const FormatFn *f, const char *indent, Str *out) {
  str_addf(out, "%s%s", indent, f->name);
  if (f->arg) str_addf(out, f->arg2 ? "(%s, %s)" : "(%s)", f->arg, f->arg2);
  str_add(out, " = ");
  print_prec(f->value, 0, out);
  str_add_c(out, '\n');
}

static void print_format(const FormatDecl *f, Str *out) {
  str_addf(out, "format %s ", f->name);
  if (f->gguf_id >= 0) str_addf(out, ": gguf %lld ", (long long)f->gguf_id);
  str_addf(out, "{\n  block %lld\n  bytes %lld\n", (long long)f->block, (long long)f->n_bytes);
  for (int i = 0; i < f->n_fields; i++) {
    const Field *d = &f->field[i];
    str_addf(out, "  %s : %s", d->name, d->elt);
    if (d->is_array) str_addf(out, "[%lld]", (long long)d->count);
    str_addf(out, " @%lld\n", (long long)d->offset);
  }
  for (int i = 0; i < f->n_fns; i++) print_format_fn(&f->fn[i], "  ", out);
  if (f->n_encodes) {
    str_add(out, "  encode {\n");
    for (int i = 0; i < f->n_encodes; i++) print_format_fn(&f->encode[i], "    ", out);
    str_add(out, "  }\n");
  }
  str_add(out, "}\n");
}

static void print_texts(const char *const *text, int n, Str *out) {
  for (int i = 0; i < n; i++) {
    if (i) str_add(out, " | ");
    print_string(text[i], out);
  }
}

static void print_layout(const LayoutDecl *l, Str *out) {
  str_addf(out, "layout %s [%s, %s] = ", l->name, l->rows, l->cols);
  print_string(l->of, out);
  str_add(out, " {\n");
  for (int i = 0; i < l->n_parts; i++) {
    const PartDecl *t = &l->part[i];
    str_addf(out, "  tensor %s : ", t->name);
    for (int k = 0; k < t->n_elts; k++) str_addf(out, k ? " | %s" : "%s", t->elt[k]);
    str_add_c(out, '[');
    print_list(t->dim, t->n_dims, out);
    str_add_c(out, ']');
    if (t->groups) {
      str_add(out, " groups ");
      print_prec(t->groups, PREC_PREFIX, out);
    }
    if (t->is) str_addf(out, " is %s", t->is);
    str_add(out, " = ");
    print_texts(t->file, t->n_files, out);
    str_add(out, t->optional ? " else none\n" : "\n");
  }
  const struct { const char *word, *const *text; int n; } lists[] = {{"extents", l->extents, l->n_extents}, {"beside", l->beside, l->n_besides}, {"apart", l->apart, l->n_aparts}};
  for (size_t i = 0; i < COUNT_OF(lists); i++) {
    if (!lists[i].n) continue;
    str_addf(out, "  %s ", lists[i].word);
    print_texts(lists[i].text, lists[i].n, out);
    str_add_c(out, '\n');
  }
  for (int i = 0; i < l->n_fns; i++) print_format_fn(&l->fn[i], "  ", out);
  if (l->when) {
    str_add(out, "  when ");
    print_prec(l->when, 0, out);
    str_add_c(out, '\n');
  }
  for (int i = 0; i < l->n_rules; i++) {
    str_add(out, "  rules ");
    print_string(l->rule[i].key, out);
    str_add(out, " =");
    for (int k = 0; k < l->rule[i].n_forms; k++) {
      const RuleForm *f = &l->rule[i].form[k];
      str_addf(out, "%s%s %s ", k ? " |" : "", f->spares ? " not" : "", lang_rules[f->kind].name);
      print_string(f->prefix, out);
    }
    str_add_c(out, '\n');
  }
  for (int i = 0; i < l->n_says; i++) {
    const SaysDecl *s = &l->says[i];
    str_add(out, "  says ");
    print_texts(s->key, s->n_keys, out);
    str_add(out, " = ");
    print_texts(s->text, s->n_texts, out);
    for (int k = 0; k < s->n_values; k++) {
      if (k) str_add(out, " or ");
      print_prec(s->value[k], 0, out);
    }
    str_add_c(out, '\n');
  }
  str_add(out, "}\n");
}

static void print_table(const TableDecl *t, Str *out) {
  str_addf(out, "table %s : %s = [", t->name, t->elt);
  for (int i = 0; i < t->n_values; i++) {
    str_add(out, i == 0 ? "" : i % 16 ? ", " : ",\n  ");
    double v = t->value[i];
    bool whole = v > -1e15 && v < 1e15 && v == (double)(int64_t)v && !(v == 0 && signbit(v));
    if (whole) str_addf(out, "%lld", (long long)v);
    else print_float(v, out);
  }
  str_add(out, "]\n");
}

static void print_fn(const FnDecl *f, Str *out) {
  str_addf(out, "fn %s(", f->name);
  print_params(f->param, f->n_params, out);
  str_add(out, ") -> ");
  print_type(&f->result, out);
  str_add(out, f->n_lets ? " {\n" : " = ");
  for (int i = 0; i < f->n_lets; i++) {
    str_addf(out, "  %s = ", f->let[i].name);
    print_prec(f->let[i].rhs, 0, out);
    str_add_c(out, '\n');
  }
  if (f->n_lets) str_add(out, "  return ");
  print_prec(f->value, 0, out);
  str_add(out, f->n_lets ? "\n}\n" : "\n");
}

static void print_stmt(const Stmt *s, Str *out) {
  str_addf(out, "  %s", s->name);
  if (s->n_index) {
    str_add_c(out, '[');
    print_list(s->index, s->n_index, out);
    str_add_c(out, ']');
  }
  str_add(out, " = ");
  print_prec(s->rhs, 0, out);
  if (s->n_axes) str_add(out, " for ");
  print_binders(s->axis, s->n_axes, out);
  str_add_c(out, '\n');
}

static void print_op(const OpDecl *o, Str *out) {
  str_addf(out, "op %s(", o->name);
  print_params(o->param, o->n_params, out);
  str_add(out, ") -> ");
  print_params(o->result, o->n_results, out);
  if (o->precision) str_addf(out, " for %s", o->precision);
  if (o->when) {
    str_add(out, " when ");
    print_prec(o->when, 0, out);
  }
  str_add(out, " {\n");
  for (int i = 0; i < o->n_stmts; i++) print_stmt(&o->stmt[i], out);
  str_add(out, "}\n");
}

static void print_strings(const char *const *s, int n, Str *out) {
  for (int i = 0; i < n; i++) {
    if (i) str_add(out, ", ");
    print_string(s[i], out);
  }
}

static void print_hyper(const HyperDecl *h, const char *indent, Str *out) {
  str_addf(out, "%shyper %s", indent, h->name);
  if (h->axis.name) str_addf(out, "[%s]", h->axis.name);
  str_add(out, " = ");
  print_prec(h->value, 0, out);
  if (h->axis.name) str_add(out, " for ");
  if (h->axis.name) print_binders(&h->axis, 1, out);
  str_add_c(out, '\n');
}

static void print_write(const WriteDecl *w, Str *out) {
  str_add(out, "  write ");
  print_string(w->key, out);
  if (w->axis.name) str_addf(out, "[%s]", w->axis.name);
  str_add(out, " = ");
  print_prec(w->value, 0, out);
  if (w->axis.name) str_add(out, " for ");
  if (w->axis.name) print_binders(&w->axis, 1, out);
  if (w->when) str_add(out, " when ");
  if (w->when) print_prec(w->when, 0, out);
  str_add_c(out, '\n');
}

static void print_also(const ModelDecl *m, Str *out) {
  if (m->below) {
    str_add(out, "  also below ");
    print_string(m->below, out);
    str_add_c(out, '\n');
  }
  for (int i = 0; i < m->n_moves; i++) {
    str_add(out, i ? ", " : "  also ");
    print_string(m->move[i].from, out);
    str_add(out, " as ");
    print_string(m->move[i].to, out);
  }
  if (m->n_moves) str_add_c(out, '\n');
}

static void print_tensor(const TensorDecl *t, const char *indent, Str *out) {
  str_addf(out, "%stensor %s : ", indent, t->name);
  print_type(&t->type, out);
  str_add(out, " = ");
  for (int i = 0; i < t->n_sources; i++) {
    const TensorSource *s = &t->source[i];
    if (i) str_add(out, " | ");
    print_string(s->name, out);
    if (s->row) str_addf(out, " rows %s -> ", s->row_name);
    if (s->row) print_prec(s->row, 0, out);
    if (s->each) str_addf(out, " each %s -> ", s->each_name);
    if (s->each) print_prec(s->each, 0, out);
    if (s->when) str_add(out, " when ");
    if (s->when) print_prec(s->when, 0, out);
  }
  if (t->otherwise) {
    str_add(out, " else ");
    print_prec(t->otherwise, PREC_PREFIX, out);
  }
  str_add_c(out, '\n');
}

static void print_layer(const LayerDecl *l, Str *out) {
  str_addf(out, "  layer %s(%s < ", l->name, l->var);
  print_prec(l->count, lang_op_prec(OP_BOR), out);
  str_add(out, ") {\n");
  for (int i = 0; i < l->n_hypers; i++) print_hyper(&l->hyper[i], "    ", out);
  for (int i = 0; i < l->n_tensors; i++) print_tensor(&l->tensor[i], "    ", out);
  for (int i = 0; i < l->n_states; i++) {
    str_addf(out, "    state %s : ", l->state[i].name);
    print_type(&l->state[i].type, out);
    str_add_c(out, '\n');
  }
  str_add(out, "  }\n");
}

static void print_graph(const GraphStmt *s, int n, int depth, Str *out) {
  for (int i = 0; i < n; i++) {
    str_addf(out, "%*s", 2 * depth, "");
    if (!s[i].n_targets) {
      str_addf(out, "for %s in %s {\n", s[i].var, s[i].layer);
      print_graph(s[i].body, s[i].n_body, depth + 1, out);
      str_addf(out, "%*s}\n", 2 * depth, "");
      continue;
    }
    print_list(s[i].target, s[i].n_targets, out);
    str_add(out, " = ");
    print_prec(s[i].rhs, 0, out);
    str_add_c(out, '\n');
  }
}

static void print_model(const ModelDecl *m, Str *out) {
  str_addf(out, "model %s {\n", m->name);
  if (m->n_gguf_archs) str_add(out, "  file gguf ");
  print_strings(m->gguf_arch, m->n_gguf_archs, out);
  str_add(out, m->n_gguf_archs ? "\n" : "");
  if (m->n_hf_archs) str_add(out, "  file hf ");
  print_strings(m->hf_arch, m->n_hf_archs, out);
  str_add(out, m->n_hf_archs ? "\n" : "");
  print_also(m, out);
  for (int i = 0; i < m->n_hypers; i++) print_hyper(&m->hyper[i], "  ", out);
  for (int i = 0; i < m->n_writes; i++) print_write(&m->write[i], out);
  for (int i = 0; i < m->n_tensors; i++) print_tensor(&m->tensor[i], "  ", out);
  for (int i = 0; i < m->n_layers; i++) print_layer(&m->layer[i], out);
  str_add(out, "  graph(");
  print_params(m->param, m->n_params, out);
  str_add(out, ") {\n");
  print_graph(m->graph, m->n_graph, 2, out);
  str_add(out, "    return ");
  print_prec(m->result, 0, out);
  str_add(out, "\n  }\n}\n");
}

void lang_print_module(const Module *m, Str *out) {
  for (int i = 0; i < m->n_tables; i++) print_table(m->table[i], out);
  for (int i = 0; i < m->n_formats; i++) print_format(m->format[i], out);
  for (int i = 0; i < m->n_layouts; i++) print_layout(m->layout[i], out);
  for (int i = 0; i < m->n_fns; i++) print_fn(m->fn[i], out);
  for (int i = 0; i < m->n_ops; i++) print_op(m->op[i], out);
  for (int i = 0; i < m->n_models; i++) print_model(m->model[i], out);
}
