/* Memory and steps. A step is a list of jobs in phases: (kernel, arguments, number of items); threads claim items, a barrier stands between
   phases, phases of one item are done by whoever arrives last, unless they are several sequences'. Regions that touch a sequence's state run once per sequence, on its rows.
   In: tokens of one or more sequences. Out: logits. */
#include <stdlib.h>
#include <string.h>
#include "model/priv.h"

typedef struct Job Job;
struct Job { const Kern *k; void **args; int64_t n_items; bool last_of_phase, serial; Section *section; int region; int64_t first_row, n_rows; };
typedef struct Span { int64_t begin, end; } Span; /* when a thread worked on a job; 0: not at all */
typedef struct Step { Model *m; Job *job; int n_jobs, cap_jobs; int64_t sym[16]; ModelSpent *spent; _Atomic bool is_cut; } Step; /* spent: NULL unless traced; is_cut: some work was left undone */

/* ---- memory -------------------------------------------------------------------------------------------------------- */
static void max_syms(const Model *m, int64_t *sym) {
  for (int i = 0; i < 16; i++) sym[i] = m->chunk;
}

static void plan_temps(Model *m, Section *s) {
  int64_t sym[16];
  max_syms(m, sym);
  s->temp_off = ARENA_ARRAY(m->arena, int64_t, s->tp->n_bufs);
  for (int b = 0; b < s->tp->n_bufs; b++) {
    const TpBuf *t = &s->tp->buf[b];
    if (t->role != BUF_TEMP || t->local >= 0 || t->alias != b || t->mem == IR_M_none) continue;
    s->temp_off[b] = s->temp_bytes;
    s->temp_bytes += ROUND_UP(tp_buf_bytes(s->tp, b, sym) + 64, 64);
  }
  s->kern = (const Kern *(*)[KERN_N_SHAPES])arena_alloc_array(m->arena, (size_t)s->plan->n_regions + 1, sizeof *s->kern);
  s->per_seq = ARENA_ARRAY(m->arena, bool, s->plan->n_regions + 1);
  for (int r = 0; r < s->plan->n_regions; r++)
    for (int k = 0; k < s->plan->region[r].n_args; k++) {
      int w = s->plan->region[r].arg[k];
      if (w >= 0 && w < TP_TABLE && s->bind[w].kind == BIND_STATE) s->per_seq[r] = true;
    }
}

static const int64_t STATE_MAX = (int64_t)1 << 46;

/* The buffer of state i in a layer, or -1. */
static int state_buf(const Section *s, int i) {
  for (int b = 0; b < s->tp->n_bufs; b++) if (s->bind[b].kind == BIND_STATE && s->bind[b].index == i && s->tp->buf[b].alias == b) return b;
  return -1;
}

static int64_t state_rows(const Section *s, int buf) {
  int64_t n = 1;
  CHECK(dx_is_int(s->tp->dag, s->tp->buf[buf].dim[0], &n), "a state of unknown size");
  return n;
}

/* A state that is also seen under another first dimension must be dense. */
static bool seen_otherwise(const Section *s, int buf) {
  for (int b = 0; b < s->tp->n_bufs; b++) if (tp_root(s->tp, b) == buf && s->tp->buf[b].dim[0] != s->tp->buf[buf].dim[0]) return true;
  return false;
}

static void set_pitch(Section *s, int buf, int64_t bytes) {
  for (int b = 0; b < s->tp->n_bufs; b++) if (tp_root(s->tp, b) == buf) s->tp->buf[b].pitch = bytes / ir_mem_bytes[s->tp->buf[b].mem];
}

typedef struct StateRows { Section *s; int buf; int64_t n, bytes; bool dense; } StateRows; /* of one layer's state */

/* Lays a state, and with it those behind it of as many rows: row r of all lies together, row r + 1 behind it, so that a sequence touches memory
   only as far as it has come, in one piece. */
static Err *lay_states(Model *m, StateRows *x, int k, int n_all) {
  m->state_bytes = ROUND_UP(m->state_bytes, 64);
  int64_t pitch = 0, n_rows = x[k].n;
  int last = x[k].dense ? k + 1 : n_all;
  for (int j = k; j < last; j++) {
    if (x[j].n != n_rows || (x[j].dense && j != k)) continue;
    m->state_off[j] = m->state_bytes + pitch;
    pitch += x[j].bytes;
  }
  if (pitch > STATE_MAX / n_rows || (m->state_bytes += pitch * n_rows) > STATE_MAX)
    return err_new(ERR_LIMIT, "the state of a sequence of %lld positions takes more than %lld bytes", (long long)m->context, (long long)STATE_MAX);
  for (int j = k; j < last; j++) {
    if (x[j].n != n_rows || (x[j].dense && j != k)) continue;
    x[j].n = 0;
    if (!x[j].dense) set_pitch(x[j].s, x[j].buf, pitch);
  }
  return NULL;
}

static Err *plan_states(Model *m) {
  if (!m->layer) return NULL;
  int n = m->layer->n_states, n_all = m->n_layers * n;
  m->state_off = ARENA_ARRAY(m->arena, int64_t, n_all + 1);
  StateRows *x = ARENA_ARRAY(m->arena, StateRows, n_all + 1);
  for (int k = 0; k < n_all; k++) {
    Section *s = m->by_layer[k / n];
    int buf = state_buf(s, k % n);
    if (buf < 0) continue;
    x[k] = (StateRows){s, buf, state_rows(s, buf), 0, seen_otherwise(s, buf)};
    int64_t bytes = tp_row_elems(s->tp, buf) * ir_mem_bytes[s->tp->buf[buf].mem];
    m->state_slack = MAX(m->state_slack, tp_buf_slack(s->tp, &s->tp->buf[buf]));
    x[k].bytes = x[k].dense ? bytes : ROUND_UP(bytes, 64);
  }
  for (int k = 0; k < n_all; k++) if (x[k].n) TRY(lay_states(m, x, k, n_all));
  return NULL;
}

static Err *plan_vars(Model *m) {
  int64_t total = 0;
  for (int pass = 0; pass < 2; pass++) {
    total = 0;
    for (int v = 0; v < m->n_vars; v++) {
      Var *x = &m->var[v];
      if (x->mem == IR_M_none) continue;
      int64_t rows = x->is_sym_rows ? m->chunk : x->dim0, cols = tp_row_pad(x->row_bytes / ir_mem_bytes[x->mem], x->mem);
      bool once = v == m->post->result; /* nobody reads it in a later section */
      for (int i = 0; i < 2; i++) {
        x->mem_at[i] = i && once ? x->mem_at[0] : m->var_mem.p + total;
        total += i && once ? 0 : ROUND_UP(rows * cols * ir_mem_bytes[x->mem] + 128, 64);
      }
    }
    if (pass == 0) TRY(err_wrap(os_pages_alloc((size_t)total + 4096, &m->var_mem), "activations"));
  }
  return NULL;
}

static void *bound_address(Model *m, const Section *s, int layer, int b) {
  if (b >= TP_TABLE) return (void *)(uintptr_t)s->tp->table[b - TP_TABLE];
  const Bind *bd = &s->bind[b];
  const TpBuf *t = &s->tp->buf[b];
  switch (bd->kind) {
    case BIND_VAR: return m->var[bd->index].mem_at[bd->out ? 1 - m->var[bd->index].now : m->var[bd->index].now];
    case BIND_TENSOR: case BIND_LAYER_TENSOR: {
      const ModelTensor *x = bd->kind == BIND_TENSOR ? &m->tensor[bd->index] : &m->ltensor[layer * m->n_ltensors + bd->index];
      return x->values ? (void *)x->values : t->raw ? (void *)(uintptr_t)x->raw : (void *)x->packed;
    }
    case BIND_ORDER: return m->tensor[bd->index].parts->order;
    case BIND_LAYER_ORDER: return m->ltensor[layer * m->n_ltensors + bd->index].parts->order;
    case BIND_ARRAY: return m->env.item[bd->index].array;
    case BIND_RUNTIME: return bd->index == 0 ? m->tokens : bd->index == 1 ? m->pos : m->rows;
    case BIND_STATE: return NULL;
    default: return m->temp.p + s->temp_off[b];
  }
}

static void add_call(Model *m, Section *s, int layer) {
  Call *c = &m->call[m->n_calls++];
  c->section = s;
  c->layer = layer;
  c->args = ARENA_ARRAY(m->arena, void **, s->plan->n_regions + 1);
  c->seq = ARENA_ARRAY(m->arena, SeqArgs, s->plan->n_regions + 1);
  for (int r = 0; r < s->plan->n_regions; r++) {
    const TpRegion *rg = &s->plan->region[r];
    c->args[r] = ARENA_ARRAY(m->arena, void *, rg->n_args + 1);
    for (int k = 0; k < rg->n_args; k++) if (rg->arg[k] >= 0) c->args[r][k] = bound_address(m, s, layer, rg->arg[k]);
  }
  for (int b = 0; b < s->tp->n_bufs; b++) if (s->bind[b].kind == BIND_VAR && s->bind[b].out) m->var[s->bind[b].index].now ^= 1;
}

/* What tokens, positions and rows index must hold all of them. */
static Err *check_data(Model *m, const Section *s) {
  int64_t *most = ARENA_ARRAY(m->arena, int64_t, s->tp->n_bufs + 1);
  for (int b = 0; b < s->tp->n_bufs; b++) {
    most[b] = -1;
    int64_t n = 0;
    if ((s->bind[b].kind == BIND_ORDER || s->bind[b].kind == BIND_LAYER_ORDER) && dx_is_int(s->tp->dag, s->tp->buf[b].dim[0], &n)) most[b] = n - 1;
    if (s->bind[b].kind == BIND_RUNTIME) most[b] = s->bind[b].index == 0 ? m->n_vocab - 1 : s->bind[b].index == 1 ? m->context - 1 : m->chunk - 1;
  }
  return err_wrap(tp_data_check(s->tp, most), "model %s", m->decl->name);
}

Err *model_plan_memory(Model *m) {
  int64_t temp = 0;
  Section *ends[2] = {m->pre, m->post};
  for (int i = 0; i < 2 + m->n_bodies; i++) {
    Section *s = i < 2 ? ends[i] : m->body[i - 2];
    plan_temps(m, s);
    temp = MAX(temp, s->temp_bytes);
  }
  TRY(plan_states(m));
  TRY(plan_vars(m));
  TRY(err_wrap(os_pages_alloc_small((size_t)temp + 4096, &m->temp), "work memory"));
  m->tokens = ARENA_ARRAY(m->arena, int32_t, m->chunk + 64);
  m->pos = ARENA_ARRAY(m->arena, int32_t, m->chunk + 64);
  m->rows = ARENA_ARRAY(m->arena, int32_t, m->chunk + 64);
  m->call = ARENA_ARRAY(m->arena, Call, m->n_layers + 2);
  add_call(m, m->pre, -1);
  for (int l = 0; l < m->n_layers; l++) add_call(m, m->by_layer[l], l);
  add_call(m, m->post, -1);
  const Var *r = &m->var[m->post->result];
  m->logits = (const float *)(const void *)r->mem_at[r->now];
  m->logits_stride = tp_row_pad(m->n_vocab, IR_M_f32);
  for (int i = 0; i < 2 + m->n_bodies; i++) TRY(check_data(m, i < 2 ? ends[i] : m->body[i - 2]));
  trace_printf(TRACE_mem, "work: %zu bytes for what lives in a section, %zu for what crosses them; state: %lld bytes a sequence", m->temp.n_bytes,
               m->var_mem.n_bytes, (long long)m->state_bytes);
  return NULL;
}

/* ---- kernels ------------------------------------------------------------------------------------------------------- */
static int64_t region_rows(const Section *s, int region, const int64_t *sym) {
  const TpStmt *t = &s->tp->stmt[s->plan->region[region].stmt[0]];
  const DxNode *n = &s->tp->dag->node[t->extent[0]];
  return n->kind == DX_INT ? n->ival : n->kind == DX_SYM ? sym[n->ival] : 2; /* by data: a few */
}

static Err *region_kernel(Model *m, Section *s, int region, const int64_t *sym, const Kern **out) {
  KernShape shape = kern_shape(region_rows(s, region, sym));
  const Kern **k = &s->kern[region][shape];
  if (!*k) TRY(kern_region(m->kerns, s->plan, region, shape, k));
  *out = *k;
  if ((*k)->scratch_bytes > m->scratch_bytes) {
    int64_t each = ROUND_UP((*k)->scratch_bytes, 4096);
    os_pages_free(&m->scratch);
    m->scratch_bytes = 0;
    TRY(err_wrap(os_pages_alloc((size_t)each * (size_t)m->n_threads, &m->scratch), "scratch"));
    m->scratch_bytes = each;
  }
  return NULL;
}

/* ---- running ------------------------------------------------------------------------------------------------------- */
/* Nobody wants the step any more: what is left of it is passed over, and barriers are met as ever. */
static bool is_cut(Step *s) {
  if (!s->m->cancel || !*s->m->cancel) return false;
  atomic_store_explicit(&s->is_cut, true, memory_order_relaxed);
  return true;
}

/* -> whether any of it was this thread's. */
static bool run_job(Step *s, Job *j, int i, int thread) {
  Model *m = s->m;
  void *scratch = m->scratch.p + (int64_t)thread * m->scratch_bytes;
  int64_t a, b, together = MAX(j->k->sched.side * j->k->sched.lanes / PACK_ROWS, 1), least = ROUND_UP(MAX(j->n_items / (m->n_threads * 16), 1), together);
  bool any = false;
  if (j->n_items == 0) return false;
  if (m->n_threads == 1) {
    int64_t piece = m->cancel ? least : j->n_items;
    for (a = 0; a < j->n_items && !is_cut(s); a += piece) j->k->entry(j->args, a, MIN(a + piece, j->n_items), scratch);
    return true;
  }
  for (; !is_cut(s) && dev_claim_part(&m->claim[i], least, j->n_items, m->n_threads, &a, &b); any = true) j->k->entry(j->args, a, b, scratch);
  return any;
}

static int64_t traced_now(const Step *s) { return s->spent ? os_now_ns() : 0; }

static Span *span_of(const Step *s, int thread, int job) { return &s->m->span[(int64_t)thread * s->n_jobs + job]; }

static void step_thread(void *ctx, int thread, int n_threads) {
  Step *s = ctx;
  (void)n_threads;
  bool running = false; /* a parallel phase may still be at work elsewhere */
  for (int i = 0; i < s->n_jobs;) {
    int end = i;
    while (!s->job[end].last_of_phase) end++;
    if (s->job[i].serial) {
      if (dev_barrier_last(s->m->pool, thread)) {
        for (int k = i; k <= end && !is_cut(s); k++) {
          int64_t t = traced_now(s);
          s->job[k].k->entry(s->job[k].args, 0, s->job[k].n_items, s->m->scratch.p + (int64_t)thread * s->m->scratch_bytes);
          if (s->spent) *span_of(s, thread, k) = (Span){t, os_now_ns()};
        }
        dev_barrier_release(s->m->pool);
      }
      running = false;
    } else {
      if (running) dev_barrier(s->m->pool, thread);
      for (int k = i; k <= end; k++) {
        int64_t t = traced_now(s);
        if (run_job(s, &s->job[k], k, thread) && s->spent) *span_of(s, thread, k) = (Span){t, os_now_ns()};
      }
      running = true;
    }
    i = end + 1;
  }
}

/* The argument table of one sequence's run of a region: made when a step first has that many sequences, kept for good. */
static void **seq_args(Step *st, const Call *c, int region, int part) {
  const TpRegion *rg = &c->section->plan->region[region];
  SeqArgs *s = &c->seq[region];
  while (s->n <= part) PUSH(st->m->arena, s->part, s->n, s->cap, ARENA_ARRAY(st->m->arena, void *, rg->n_args + 1));
  memcpy(s->part[part], c->args[region], sizeof(void *) * (size_t)rg->n_args);
  return s->part[part];
}

static void set_syms(const TpRegion *rg, void **args, const int64_t *sym) {
  for (int k = 0; k < rg->n_args; k++) if (rg->arg[k] < 0) args[k] = (void *)(intptr_t)sym[~rg->arg[k]];
}

static void add_job(Step *st, Section *s, int region, const Kern *k, void **args, const int64_t *sym, int64_t first_row) {
  Job j = {.k = k, .args = args, .n_items = region_items(s->plan, region, &k->sched, sym), .section = s, .region = region, .first_row = first_row, .n_rows = sym[0]};
  PUSH(st->m->arena, st->job, st->n_jobs, st->cap_jobs, j);
}

/* The same region on the rows of one sequence: row buffers start at its first row, the symbol counts its rows. */
static Err *add_seq_job(Step *st, const Call *c, int region, const StepPart *part, int nth, int64_t first_row) {
  Section *s = c->section;
  const Kern *k;
  const TpRegion *rg = &s->plan->region[region];
  void **args = seq_args(st, c, region, nth);
  int64_t sym[16];
  memcpy(sym, st->sym, sizeof sym);
  sym[0] = part->n_tokens;
  TRY(region_kernel(st->m, s, region, sym, &k));
  for (int i = 0; i < rg->n_args; i++) {
    int b = rg->arg[i];
    if (b < 0 || b >= TP_TABLE) continue;
    const TpBuf *t = &s->tp->buf[b];
    if (s->bind[b].kind == BIND_STATE) args[i] = part->seq->state.p + st->m->state_off[c->layer * st->m->layer->n_states + s->bind[b].index];
    else if (t->n_dims && s->tp->dag->node[t->dim[0]].kind == DX_SYM && s->tp->dag->node[t->dim[0]].ival == 0)
      args[i] = (uint8_t *)args[i] + first_row * tp_row_elems(s->tp, b) * ir_mem_bytes[t->mem];
  }
  set_syms(rg, args, sym);
  add_job(st, s, region, k, args, sym, first_row);
  return NULL;
}

static Err *add_jobs(Step *st, const Call *c, const StepPart *part, int n_parts) {
  Section *s = c->section;
  for (int r = 0; r < s->plan->n_regions; r++) {
    const TpRegion *rg = &s->plan->region[r];
    const Kern *k;
    int first_job = st->n_jobs;
    if (s->per_seq[r]) {
      int64_t row = 0;
      for (int i = 0; i < n_parts; row += part[i].n_tokens, i++) TRY(add_seq_job(st, c, r, &part[i], i, row));
    } else {
      TRY(region_kernel(st->m, s, r, st->sym, &k));
      set_syms(rg, c->args[r], st->sym);
      add_job(st, s, r, k, c->args[r], st->sym, 0);
    }
    if (r + 1 == s->plan->n_regions || s->plan->region[r + 1].phase != rg->phase) {
      st->job[st->n_jobs - 1].last_of_phase = true;
      for (first_job = st->n_jobs - 1; first_job > 0 && !st->job[first_job - 1].last_of_phase; first_job--) {}
      bool serial = n_parts == 1 || !s->per_seq[r]; /* those of several sequences are shared out, each of one item as they may be */
      for (int i = first_job; i < st->n_jobs; i++) serial = serial && st->job[i].n_items <= 1;
      for (int i = first_job; i < st->n_jobs; i++) st->job[i].serial = serial;
    }
  }
  return NULL;
}

static Err *check_parts(Model *m, const StepPart *part, int n_parts, int64_t *n_tokens) {
  *n_tokens = 0;
  if (n_parts < 1) return err_new(ERR_USAGE, "a step needs at least one sequence");
  m->n_checked++;
  for (int i = 0; i < n_parts; i++) {
    CHECK(part[i].seq->m == m, "a sequence of another model");
    if (part[i].seq->in_list == m->n_checked) return err_new(ERR_USAGE, "a step takes each sequence once, number %d is there again", i);
    part[i].seq->in_list = m->n_checked;
    if (part[i].n_tokens < 1) return err_new(ERR_USAGE, "a step needs at least one token of each sequence");
    if (part[i].seq->n_tokens + part[i].n_tokens > m->context)
      return err_new(ERR_LIMIT, "context full: %lld tokens are held, %d more do not fit in %lld", (long long)part[i].seq->n_tokens, part[i].n_tokens, (long long)m->context);
    for (int k = 0; k < part[i].n_tokens; k++)
      if (part[i].token[k] < 0 || part[i].token[k] >= m->n_vocab) return err_new(ERR_LIMIT, "token %d: expected 0 to %lld", part[i].token[k], (long long)m->n_vocab - 1);
    *n_tokens += part[i].n_tokens;
  }
  return *n_tokens <= m->chunk ? NULL : err_new(ERR_LIMIT, "%lld tokens in one step, at most %d fit", (long long)*n_tokens, m->chunk);
}

static int64_t set_inputs(Model *m, const StepPart *part, int n_parts) {
  int64_t at = 0, n_rows = 0;
  for (int i = 0; i < n_parts; i++) {
    for (int k = 0; k < part[i].n_tokens; k++, at++) {
      m->tokens[at] = part[i].token[k];
      m->pos[at] = (int32_t)(part[i].seq->n_tokens + k);
      if (part[i].want == 2 || (part[i].want == 1 && k + 1 == part[i].n_tokens)) m->rows[n_rows++] = (int32_t)at;
    }
  }
  return n_rows;
}

static void clear_spans(Step *st) {
  Model *m = st->m;
  int64_t n = (int64_t)st->n_jobs * m->n_threads;
  if (n > m->n_spans) {
    m->n_spans = n;
    m->span = ARENA_ARRAY(m->arena, Span, n);
  }
  memset(m->span, 0, (size_t)n * sizeof *m->span);
}

/* From its first item's begin to its last item's end, whichever threads did them. */
static int64_t job_ns(const Step *st, int job) {
  Span all = {0};
  for (int t = 0; t < st->m->n_threads; t++) {
    Span s = *span_of(st, t, job);
    if (!s.end) continue;
    if (!all.end || s.begin < all.begin) all.begin = s.begin;
    all.end = MAX(all.end, s.end);
  }
  return all.end - all.begin;
}

static Err *run_step(Step *st, const StepPart *part, int n_parts, int64_t n_rows) {
  Model *m = st->m;
  int64_t t0 = traced_now(st);
  for (int c = 0; c < m->n_calls; c++) {
    if (c + 1 == m->n_calls && n_rows == 0) break;
    TRY(add_jobs(st, &m->call[c], part, n_parts));
  }
  if (st->n_jobs > m->n_claims) {
    m->n_claims = st->n_jobs + 256;
    DevClaim *c = ARENA_ARRAY(m->arena, DevClaim, m->n_claims + 1);
    m->claim = (DevClaim *)(((uintptr_t)c + 63) & ~(uintptr_t)63);
  }
  for (int i = 0; i < st->n_jobs; i++) atomic_store_explicit(&m->claim[i].next, 0, memory_order_relaxed);
  if (st->spent) clear_spans(st);
  if (st->spent) st->spent->build_ns += os_now_ns() - t0;
  dev_pool_run_fit(m->pool, step_thread, st);
  return atomic_load_explicit(&st->is_cut, memory_order_relaxed) ? err_new(ERR_CANCELLED, "the step was given up") : NULL;
}

void model_cancel_by(Model *m, const volatile int *cancel) { m->cancel = cancel; }

static void add_spent(Step *st, int64_t t_ns, int64_t n_tokens) {
  ModelSpent *s = st->spent;
  s->n_steps++;
  s->n_tokens += n_tokens;
  s->t_ns += t_ns;
  for (int i = 0; i < st->n_jobs; i++) {
    const Job *j = &st->job[i];
    model_spent_add(st->m, s, &(SpentJob){j->k, j->section, j->region, j->first_row, {j->n_rows, st->sym[1]}, j->n_items, job_ns(st, i)});
  }
}

static void trace_parts(const StepPart *part, int n_parts, int64_t n_tokens, int64_t n_rows) {
  Str s = {0};
  for (int i = 0; i < n_parts; i++) str_addf(&s, "%s %p +%d at %lld", i ? "," : "", (void *)part[i].seq, part[i].n_tokens, (long long)part[i].seq->n_tokens);
  trace_printf(TRACE_batch, "step of %lld token%s, %lld row%s of logits; sequences:%s", (long long)n_tokens, n_tokens == 1 ? "" : "s", (long long)n_rows, n_rows == 1 ? "" : "s", s.p);
  str_free(&s);
}

Err *model_step(Model *m, const StepPart *part, int n_parts, const float **logits, int64_t *stride) {
  int64_t n_tokens;
  TRY(check_parts(m, part, n_parts, &n_tokens));
  Step st = {.m = m, .job = m->job, .cap_jobs = m->cap_jobs}; /* the list's memory is kept from step to step: a warm step allocates nothing */
  int64_t n_rows = set_inputs(m, part, n_parts);
  st.sym[0] = n_tokens;
  st.sym[1] = n_rows;
  if (trace_on(TRACE_batch, NULL)) trace_parts(part, n_parts, n_tokens, n_rows);
  if (m->watched || trace_on(TRACE_time, NULL)) st.spent = &m->spent[n_tokens > n_parts];
  if (!m->temp_is_huge && n_tokens * 2 >= m->chunk) { /* it will touch most of it; a step of few rows here and there, where small pages cost less */
    m->temp_is_huge = true;
    os_pages_want_huge(&m->temp);
  }
  int64_t t0 = traced_now(&st);
  Err *e = run_step(&st, part, n_parts, n_rows);
  if (!e && st.spent) add_spent(&st, os_now_ns() - t0, n_tokens);
  m->job = st.job;
  m->cap_jobs = st.cap_jobs;
  TRY(e);
  TRY(file_weights_failed(m->weights)); /* rows of embeddings are read where they lie */
  for (int i = 0; i < n_parts; i++) part[i].seq->n_tokens += part[i].n_tokens;
  if (logits) *logits = m->logits;
  if (stride) *stride = m->logits_stride;
  return NULL;
}

/* ---- sequences ----------------------------------------------------------------------------------------------------- */
Err *seq_new(Model *m, Seq **out) {
  CHECK(m->is_loaded, "a sequence of a model that is prepared only");
  Seq *s = calloc(1, sizeof *s);
  CHECK(s);
  s->m = m;
  Err *e = os_pages_alloc((size_t)(m->state_bytes + m->state_slack) + 4096, &s->state);
  if (e) {
    free(s);
    return err_wrap(e, "state of a sequence");
  }
  trace_printf(TRACE_kv, "%p: new sequence, %lld bytes for %lld tokens as %s", (void *)s, (long long)m->state_bytes, (long long)m->context, m->kv);
  *out = s;
  return NULL;
}

void seq_free(Seq *s) {
  if (!s) return;
  trace_printf(TRACE_kv, "%p: gone, with %lld tokens", (void *)s, (long long)s->n_tokens);
  os_pages_free(&s->state);
  free(s);
}

int64_t seq_n_tokens(const Seq *s) { return s->n_tokens; }

void seq_truncate(Seq *s, int64_t n_tokens) {
  CHECK(n_tokens >= 0 && n_tokens <= s->n_tokens, "cannot keep %lld tokens", (long long)n_tokens);
  if (n_tokens < s->n_tokens) trace_printf(TRACE_kv, "%p: cut from %lld to %lld tokens", (void *)s, (long long)s->n_tokens, (long long)n_tokens);
  s->n_tokens = n_tokens;
}
