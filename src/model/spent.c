/* Where the time of steps goes, and what was done in it: per kernel, under LUMEN_TRACE=time and for `lumen bench`. A kernel's time is from
   when a thread begins with it until the last is done; kernels of one phase may overlap. Work is counted from the statements and the step's positions. Steps of one token a sequence and steps of more are told apart, for they
   use other kernels and are bound by other limits. In: jobs with times. Out: two tables. */
#include <stdlib.h>
#include <string.h>
#include "model/priv.h"

/* ---- who a kernel is ----------------------------------------------------------------------------------------------- */
static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* Lines of the model's text that its statements come from: FILE.lum:60,62 */
static const char *where_text(const Model *m, const Section *s, int region) {
  const TpRegion *r = &s->plan->region[region];
  const char *file = strrchr(m->decl->loc.file, '/');
  int *line = ARENA_ARRAY(m->arena, int, r->n_stmts + 1), n = 0;
  Str t = {0};
  for (int i = 0; i < r->n_stmts; i++) if (s->tp->stmt[r->stmt[i]].line) line[n++] = s->tp->stmt[r->stmt[i]].line;
  qsort(line, (size_t)n, sizeof *line, by_number);
  str_add(&t, file ? file + 1 : m->decl->loc.file);
  for (int i = 0, last = 0; i < n; last = line[i++]) if (line[i] != last) str_addf(&t, "%c%d", last ? ',' : ':', line[i]);
  const char *text = arena_dup(m->arena, t.p);
  str_free(&t);
  return text;
}

static const char *elt_name(const TpBuf *t) { return t->fmt ? t->fmt->decl->name : t->blocks ? t->blocks->decl->name : ir_mem_name[t->mem]; }

static void shape_add(const Tp *tp, int b, Str *out) {
  const TpBuf *t = &tp->buf[b];
  str_addf(out, "%s%s[", out->n ? " " : "", elt_name(t));
  for (int i = 0; i < t->n_dims; i++) {
    const DxNode *n = &tp->dag->node[t->dim[i]];
    if (n->kind == DX_INT) str_addf(out, i ? ",%lld" : "%lld", (long long)n->ival);
    else str_addf(out, i ? ",%s" : "%s", n->kind == DX_SYM && n->ival < tp->n_syms ? tp->sym[n->ival].name : "?");
  }
  str_add_c(out, ']');
}

/* Weights and states with format and dimensions; of a kernel without any, its largest operand. */
static const char *shape_text(const Model *m, const Section *s, int region) {
  const TpRegion *r = &s->plan->region[region];
  Str t = {0};
  int largest = -1;
  int64_t most = -1;
  for (int i = 0; i < r->n_args; i++) {
    int b = r->arg[i];
    if (b < 0 || b >= TP_TABLE) continue;
    const TpBuf *x = &s->tp->buf[b];
    int64_t n = x->fmt ? 0 : tp_row_elems(s->tp, b);
    if (x->fmt || x->role == BUF_STATE) shape_add(s->tp, b, &t);
    else if (n > most && x->n_dims > 1) most = n, largest = b;
  }
  if (!t.n && largest >= 0) shape_add(s->tp, largest, &t);
  const char *text = arena_dup(m->arena, t.p ? t.p : "");
  str_free(&t);
  return text;
}

static bool holds(const Dag *d, Dx x, DxKind kind) {
  const DxNode *n = &d->node[x];
  for (int i = 0; i < n->n_args; i++) if (holds(d, n->arg[i], kind)) return true;
  return n->kind == kind;
}

/* The call that most of a kernel's time goes to: one with weights, else one that sums. *part: the kernel holds statements of others too. */
static const TpCall *main_call(const Section *s, int region, bool *part) {
  const TpRegion *r = &s->plan->region[region];
  int best = -1, best_rank = -1;
  for (int i = 0; i < r->n_stmts; i++) {
    const TpStmt *t = &s->tp->stmt[r->stmt[i]];
    int rank = holds(s->tp->dag, t->rhs, DX_WGT) ? 2 : holds(s->tp->dag, t->rhs, DX_RED);
    if (rank > best_rank) best_rank = rank, best = t->call;
  }
  *part = false;
  for (int i = 0; i < r->n_stmts; i++) *part |= s->tp->stmt[r->stmt[i]].call != best;
  return best >= 0 && best < s->tp->n_calls ? &s->tp->call[best] : NULL;
}

static KernItem item_of(const Model *m, const SpentJob *j, const char *name, int b) {
  const Tp *tp = j->section->tp;
  const TpBuf *t = &tp->buf[b];
  KernItem it = {.name = name, .elt = elt_name(t), .n_dims = t->n_dims, .last = -1};
  for (int i = 0; i < t->n_dims; i++) {
    const DxNode *n = &tp->dag->node[t->dim[i]];
    it.dim[i] = n->kind == DX_SYM ? j->sym[n->ival == 1] : n->ival;
  }
  int root = tp_root(tp, b);
  if (j->section->bind[root].kind == BIND_RUNTIME && j->section->bind[root].index == 1) it.last = m->pos[j->first_row + j->sym[0] - 1];
  return it;
}

/* What `lumen kern` takes to run that call alone. */
static const char *spec_text(const Model *m, const SpentJob *j, bool *part) {
  const TpCall *c = main_call(j->section, j->region, part);
  KernCall k = {.op = c ? c->op->name : NULL};
  if (!c || c->n_args + c->n_results > KERN_MAX_ITEMS) return "";
  for (int i = 0; i < c->n_args; i++) {
    const TpArg *a = &c->arg[i];
    k.item[k.n_items++] = a->kind == TA_BUF ? item_of(m, j, c->op->param[i].name, a->buf)
                                            : (KernItem){.name = c->op->param[i].name, .last = -1, .is_int = a->kind == TA_INT, .ival = a->ival, .fval = a->fval};
  }
  for (int i = 0; i < c->n_results; i++) if (kern_type_is_format(&c->op->result[i].type)) k.item[k.n_items++] = item_of(m, j, c->op->result[i].name, c->result[i]);
  Str t = {0};
  kern_call_print(&k, &t);
  const char *text = arena_dup(m->arena, t.p);
  str_free(&t);
  return text;
}

static ModelSpentRow *row_of(Model *m, ModelSpent *s, const SpentJob *j) {
  bool layered = j->section != m->pre && j->section != m->post;
  for (int i = 0; i < s->n; i++) if (s->row[i].kern == j->k && s->row[i].region == j->region && s->row[i].layered == layered) return &s->row[i];
  ModelSpentRow row = {.kern = j->k, .region = j->region, .layered = layered, .name = j->k->name};
  row.where = where_text(m, j->section, j->region);
  row.shape = shape_text(m, j->section, j->region);
  row.spec = spec_text(m, j, &row.spec_is_part);
  PUSH(m->arena, s->row, s->n, s->cap, row);
  return &s->row[s->n - 1];
}

/* ---- what it did --------------------------------------------------------------------------------------------------- */
typedef struct SpentWork { int64_t sym[2], pos; KernWork w; bool known; } SpentWork; /* of a region's last run: every layer's is the same */

static void count(Model *m, const SpentJob *j, KernWork *out) {
  Section *s = j->section;
  if (!s->spent) s->spent = ARENA_ARRAY(m->arena, SpentWork, s->plan->n_regions + 1);
  SpentWork *have = &s->spent[j->region];
  int64_t pos = m->pos[j->first_row];
  if (!have->known || have->sym[0] != j->sym[0] || have->sym[1] != j->sym[1] || have->pos != pos) {
    Arena *tmp = arena_new("compile");
    const int32_t **ints = ARENA_ARRAY(tmp, const int32_t *, s->tp->n_bufs + 1), *given[3] = {m->tokens + j->first_row, m->pos + j->first_row, m->rows};
    int64_t sym[16] = {j->sym[0], j->sym[1]};
    for (int b = 0; b < s->tp->n_bufs; b++) if (s->bind[b].kind == BIND_RUNTIME) ints[b] = given[s->bind[b].index];
    KernEval e = {.tp = s->tp, .sym = sym, .ints = ints};
    *have = (SpentWork){.sym = {j->sym[0], j->sym[1]}, .pos = pos, .known = true};
    kern_work(s->plan, j->region, j->region + 1, &e, true, &have->w);
    arena_free(tmp);
  }
  *out = have->w;
}

void model_spent_add(Model *m, ModelSpent *s, const SpentJob *j) {
  ModelSpentRow *r = row_of(m, s, j);
  KernWork w;
  count(m, j, &w);
  if (j->n_items && (!r->best_ns || j->t_ns < r->best_ns)) r->best_ns = MAX(j->t_ns, 1);
  r->t_ns += j->t_ns;
  r->n_items += j->n_items;
  r->n_calls++;
  r->int_ops += 2 * w.int_madds;
  r->f32_ops += 2 * w.f32_madds;
  r->pair_ops += 2 * w.pair_madds;
  r->n_bytes += w.n_bytes;
  r->weight_bytes += w.weight_bytes;
  r->state_bytes += w.state_bytes;
}

void model_spent_watch(Model *m, bool on) { m->watched = on; }

void model_spent_forget(Model *m, bool several) { memset(&m->spent[several], 0, sizeof m->spent[several]); }

static int by_time(const void *a, const void *b) {
  int64_t x = ((const ModelSpentRow *)a)->t_ns, y = ((const ModelSpentRow *)b)->t_ns;
  return x < y ? 1 : x > y ? -1 : 0;
}

const ModelSpent *model_spent(Model *m, bool several) {
  ModelSpent *s = &m->spent[several];
  if (s->n) qsort(s->row, (size_t)s->n, sizeof *s->row, by_time);
  return s;
}

/* ---- against the machine ------------------------------------------------------------------------------------------- */
enum { PEAK_LEAST = 16 << 20, PEAK_MOST = 1 << 30 };

Err *model_peak(Model *m, ModelPeak *out) {
  KernPeak p;
  size_t n = (size_t)MIN(MAX(model_bytes_per_token(m), (int64_t)PEAK_LEAST), (int64_t)PEAK_MOST);
  TRY(kern_peak(m->kerns, m->pool, n, &p));
  *out = (ModelPeak){2 * p.int_madds_per_s, 2 * p.f32_madds_per_s, p.read_bytes_per_s, n};
  return NULL;
}

double model_peak_seconds(const ModelPeak *p, const ModelSpentRow *r, bool *memory) {
  double compute = (p->int_ops_per_s > 0 ? r->int_ops / p->int_ops_per_s : 0) + (p->f32_ops_per_s > 0 ? (r->f32_ops - r->pair_ops / 2) / p->f32_ops_per_s : 0);
  double read = p->read_bytes_per_s > 0 ? r->n_bytes / p->read_bytes_per_s : 0;
  if (memory) *memory = read >= compute;
  return MAX(compute, read);
}

static void other(const ModelSpent *s, const char *name, int64_t t_ns) {
  trace_printf(TRACE_time, "  %9.1f us %5.1f%%  %s", (double)t_ns * 1e-3 / (double)s->n_steps, 100 * (double)t_ns / (double)s->t_ns, name);
}

#define LEAST_SHARE 0.01 /* of the time, from which a command is worth a line */
static void line(const Model *m, const ModelSpent *s, const ModelSpentRow *r, const ModelPeak *p) {
  double steps = (double)s->n_steps, t = (double)MAX(r->t_ns, 1);
  bool memory;
  double roof = model_peak_seconds(p, r, &memory);
  trace_printf(TRACE_time, "  %9.1f us %5.1f%% %5.1f calls  %7.1f Gop/s %6.1f GB/s %4.0f%% of %s  %s  %s  %s", t * 1e-3 / steps, 100 * t / (double)s->t_ns, (double)r->n_calls / steps,
               (r->int_ops + r->f32_ops) / t, r->n_bytes / t, 100e9 * roof / t, memory ? "reading  " : "computing", r->name, r->shape, r->where);
  if (r->spec[0] && t >= LEAST_SHARE * (double)s->t_ns) trace_printf(TRACE_time, "%18s lumen kern '%s' --time --threads %d --precision %s", r->spec_is_part ? "in part:" : "alone:", r->spec, m->n_threads, m->precision);
}

static void table(const Model *m, const ModelSpent *s, const char *kind, const ModelPeak *p) {
  int64_t known = s->build_ns;
  trace_printf(TRACE_time, "%lld steps of %s, %.1f tokens and %.1f us each; per step:", (long long)s->n_steps, kind, (double)s->n_tokens / (double)s->n_steps, (double)s->t_ns * 1e-3 / (double)s->n_steps);
  for (int i = 0; i < s->n; known += s->row[i++].t_ns) line(m, s, &s->row[i], p);
  other(s, "(listing the jobs, and building kernels not met before)", s->build_ns);
  other(s, "(between kernels: threads waking, waiting for each other)", MAX(s->t_ns - known, 0));
}

void model_spent_print(Model *m) {
  static const char *const kind[2] = {"one token a sequence", "several tokens a sequence"};
  ModelPeak p = {0};
  if (!trace_on(TRACE_time, NULL) || !(m->spent[0].n_steps + m->spent[1].n_steps)) return;
  err_free(model_peak(m, &p)); /* without peaks the rates still say something */
  trace_printf(TRACE_time, "peaks of %d thread%s, measured now: %.1f Gop/s of 8-bit integers, %.1f of f32, reading %.1f GB/s", m->n_threads, m->n_threads == 1 ? "" : "s", p.int_ops_per_s * 1e-9,
               p.f32_ops_per_s * 1e-9, p.read_bytes_per_s * 1e-9);
  for (int i = 0; i < 2; i++) if (m->spent[i].n_steps) table(m, model_spent(m, i), kind[i], &p);
}
