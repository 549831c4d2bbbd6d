/* The interpreter: the oracle every kernel is compared with. Runs a legal function (ir_fn_verify) in the order the text gives, with
   eval.c's arithmetic. The function is first decoded: each value gets a place among 8-byte slots, constants are written once, and each
   instruction becomes a record with the places of its arguments; then records are run. Memory is the process's own. With spans, each
   access must lie inside one, stores inside a writable one. A step is an instruction (not a constant) or a terminator.
   Fails: ERR_USAGE (arguments do not fit the parameters), ERR_LIMIT (too many steps, an access outside, a division by zero). */
#include <math.h>
#include <string.h>
#include "ir/priv.h"

typedef struct Rec { IrEval e; uint8_t mem, scale, n; IrRef v; int64_t disp; uint32_t dst, arg[3]; } Rec; /* n: lanes in memory */
typedef struct Move { uint32_t dst, src, n_words; } Move;
typedef struct Jump { int block; Move *moves; int n_moves; bool overlap; } Jump; /* overlap: a move reads what an earlier one wrote */
typedef struct Body { Rec *recs; int n_recs; IrTermKind term; uint32_t cond; Jump jump[2]; } Body;

typedef struct Run {
  const IrFn *fn;
  Arena *arena;
  uint64_t *slots, *spare;   /* spare: block arguments on their way */
  uint32_t *place;           /* slot of a value; slot 0 stands for an absent index and stays 0 */
  Body *bodies;
  const IrSpan *spans;
  int n_spans, hint;         /* hint: the span of the last access */
  uint8_t tile[8][16][64];
  int tile_bytes;            /* of an operand along the sum; 0 outside tbegin .. tend */
} Run;

static IrVal *val(const Run *r, uint32_t slot) { return (IrVal *)(void *)(r->slots + slot); }

static uint32_t n_words(const IrFn *fn, IrRef v) {
  int n = ir_type_lanes(fn, fn->ins[v].type);
  return n > 2 ? (uint32_t)n / 2 : 1;
}

/* decoding */
static void give_places(Run *r) {
  const IrFn *fn = r->fn;
  uint32_t next = 1, n_spare = 0;
  r->place = ARENA_ARRAY(r->arena, uint32_t, fn->n_ins);
  for (int b = 0; b < fn->n_blocks; b++) {
    const IrBlock *blk = &fn->blocks[b];
    uint32_t first = next;
    for (int i = 0; i < blk->n_params; i++) r->place[blk->params[i]] = next, next += n_words(fn, blk->params[i]);
    n_spare = MAX(n_spare, next - first);
    for (int i = 0; i < blk->n_ins; i++) r->place[blk->ins[i]] = next, next += n_words(fn, blk->ins[i]);
  }
  r->slots = ARENA_ARRAY(r->arena, uint64_t, (size_t)next + sizeof(IrVal) / 8);
  r->spare = ARENA_ARRAY(r->arena, uint64_t, n_spare);
}

static Rec record(const Run *r, IrRef v) {
  const IrFn *fn = r->fn;
  const IrIns *x = &fn->ins[v];
  Rec d = {.mem = x->mem, .scale = x->scale, .v = v, .disp = x->imm, .dst = r->place[v]};
  IrOp op = (IrOp)x->op;
  if (ir_is_addr(op) || op == IR_gather || ir_is_tile(op)) d.e = (IrEval){.op = x->op, .imm = x->imm};
  if (ir_is_tile(op)) d.n = (uint8_t)x->n_lanes;
  else d.e = ir_eval_of(fn, x);
  if (op == IR_load || op == IR_gather) d.n = (uint8_t)ir_type_lanes(fn, x->type);
  if (op == IR_store) d.n = (uint8_t)(x->n_lanes ? x->n_lanes : ir_type_lanes(fn, ir_type_of(fn, x->arg[2])));
  for (int k = 0; k < ir_op_n_args[op]; k++) d.arg[k] = x->arg[k] ? r->place[x->arg[k]] : 0;
  return d;
}

static Jump jump_of(const Run *r, const IrEdge *e) {
  const IrBlock *to = &r->fn->blocks[e->block];
  Jump j = {.block = e->block, .moves = ARENA_ARRAY(r->arena, Move, e->n_args)};
  for (int i = 0; i < e->n_args; i++) {
    Move m = {r->place[to->params[i]], r->place[e->args[i]], n_words(r->fn, e->args[i])};
    if (m.dst != m.src) j.moves[j.n_moves++] = m;
    if (r->fn->ins[e->args[i]].op == IR_param && r->fn->ins[e->args[i]].block == e->block && m.dst != m.src) j.overlap = true;
  }
  return j;
}

static void decode(Run *r) {
  const IrFn *fn = r->fn;
  r->bodies = ARENA_ARRAY(r->arena, Body, fn->n_blocks);
  for (int b = 0; b < fn->n_blocks; b++) {
    const IrBlock *blk = &fn->blocks[b];
    Body *d = &r->bodies[b];
    d->recs = ARENA_ARRAY(r->arena, Rec, blk->n_ins);
    for (int i = 0; i < blk->n_ins; i++) {
      Rec rec = record(r, blk->ins[i]);
      if (rec.e.op == IR_const || rec.e.op == IR_iota) ir_eval(&rec.e, NULL, NULL, NULL, val(r, rec.dst));
      else d->recs[d->n_recs++] = rec;
    }
    d->term = blk->term;
    if (blk->term == IR_BR) d->cond = r->place[blk->cond], d->jump[1] = jump_of(r, &blk->edge[1]);
    if (blk->term != IR_RET) d->jump[0] = jump_of(r, &blk->edge[0]);
  }
}

/* memory */
static Err *fault(const Run *r, IrRef v, ErrKind kind, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static Err *fault(const Run *r, IrRef v, ErrKind kind, const char *fmt, ...) {
  Str s = {0};
  str_addf(&s, "fn @%s: b%d: ", r->fn->name, r->fn->ins[v].block);
  ir_ins_print(r->fn, v, &s);
  str_add(&s, ": ");
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&s, fmt, ap);
  va_end(ap);
  Err *e = err_new(kind, "%s", s.p);
  str_free(&s);
  return e;
}

static bool inside(const IrSpan *s, uintptr_t p, size_t n, bool write) {
  uintptr_t lo = (uintptr_t)s->p;
  return p >= lo && n <= s->n_bytes && p - lo <= s->n_bytes - n && (s->writable || !write);
}

static Err *outside(const Run *r, IrRef v, uintptr_t p, size_t n, bool write) {
  int near = -1;
  for (int i = 0; i < r->n_spans; i++)
    if ((uintptr_t)r->spans[i].p <= p && (near < 0 || (uintptr_t)r->spans[i].p >= (uintptr_t)r->spans[near].p)) near = i;
  if (near < 0) return fault(r, v, ERR_LIMIT, "%s %zu bytes below every span", write ? "writes" : "reads", n);
  const IrSpan *s = &r->spans[near];
  return fault(r, v, ERR_LIMIT, "%s %zu bytes at offset %zu of span %d, which has %zu%s", write ? "writes" : "reads", n, (size_t)(p - (uintptr_t)s->p), near,
               s->n_bytes, s->writable || !write ? "" : " and is read-only");
}

static Err *check_access(Run *r, IrRef v, uintptr_t p, size_t n, bool write) {
  if (r->n_spans == 0 || inside(&r->spans[r->hint], p, n, write)) return NULL;
  for (int i = 0; i < r->n_spans; i++)
    if (inside(&r->spans[i], p, n, write)) { r->hint = i; return NULL; }
  return outside(r, v, p, n, write);
}

static uint16_t u16_at(const uint8_t *p) { uint16_t h; memcpy(&h, p, sizeof h); return h; }
static void u16_put(uint8_t *p, uint16_t h) { memcpy(p, &h, sizeof h); }

static void load_lanes(IrMem m, const uint8_t *p, int n, IrVal *out) {
  switch (m) {
    case IR_M_u8: for (int l = 0; l < n; l++) out->u[l] = p[l]; break;
    case IR_M_i8: for (int l = 0; l < n; l++) out->i[l] = (int8_t)p[l]; break;
    case IR_M_u16: for (int l = 0; l < n; l++) out->u[l] = u16_at(p + 2 * l); break;
    case IR_M_i16: for (int l = 0; l < n; l++) out->i[l] = (int16_t)u16_at(p + 2 * l); break;
    case IR_M_f16: for (int l = 0; l < n; l++) out->f[l] = f16_to_f32(u16_at(p + 2 * l)); break;
    case IR_M_bf16: for (int l = 0; l < n; l++) out->f[l] = bf16_to_f32(u16_at(p + 2 * l)); break;
    default: memcpy(out, p, (size_t)n * (size_t)ir_mem_bytes[m]); break;
  }
}

static void store_lanes(IrMem m, uint8_t *p, int n, const IrVal *v) {
  switch (m) {
    case IR_M_u8: for (int l = 0; l < n; l++) p[l] = (uint8_t)v->u[l]; break;
    case IR_M_u16: for (int l = 0; l < n; l++) u16_put(p + 2 * l, (uint16_t)v->u[l]); break;
    case IR_M_f16: for (int l = 0; l < n; l++) u16_put(p + 2 * l, f32_to_f16(v->f[l])); break;
    case IR_M_bf16: for (int l = 0; l < n; l++) u16_put(p + 2 * l, f32_to_bf16(v->f[l])); break;
    default: memcpy(p, v, (size_t)n * (size_t)ir_mem_bytes[m]); break;
  }
}

static Err *run_access(Run *r, const Rec *d) {
  size_t n_bytes = (size_t)d->n * (size_t)ir_mem_bytes[d->mem];
  uint64_t a = val(r, d->arg[0])->uq + val(r, d->arg[1])->uq * d->scale + (uint64_t)d->disp;
  TRY(check_access(r, d->v, (uintptr_t)a, n_bytes, d->e.op == IR_store));
  uint8_t *p = (uint8_t *)(uintptr_t)a;
  if (d->e.op == IR_load) load_lanes((IrMem)d->mem, p, d->n, val(r, d->dst));
  else store_lanes((IrMem)d->mem, p, d->n, val(r, d->arg[2]));
  return NULL;
}

static Err *run_gather(Run *r, const Rec *d) {
  size_t n_bytes = (size_t)ir_mem_bytes[d->mem];
  for (int l = 0; l < d->n; l++) {
    int32_t off = val(r, d->arg[1])->i[l];
    if (off < 0) return fault(r, d->v, ERR_LIMIT, "offset %d of lane %d is negative", off, l);
    uint64_t a = val(r, d->arg[0])->uq + (uint64_t)off + (uint64_t)d->disp;
    TRY(check_access(r, d->v, (uintptr_t)a, n_bytes, false));
    IrVal one;
    load_lanes((IrMem)d->mem, (const uint8_t *)(uintptr_t)a, 1, &one);
    val(r, d->dst)->u[l] = one.u[0];
  }
  return NULL;
}

static Err *run_divide(Run *r, const Rec *d) {
  const IrVal *by = val(r, d->arg[1]);
  if (d->e.elt == IR_E_I64 ? by->q == 0 : by->u[0] == 0) return fault(r, d->v, ERR_LIMIT, "division by zero");
  ir_eval(&d->e, val(r, d->arg[0]), by, NULL, val(r, d->dst));
  return NULL;
}

/* tiles */
static float flushed(float f) { return f > -0x1p-126f && f < 0x1p-126f ? f32_from_bits(f32_to_bits(f) & 0x80000000u) : f; }
static float bf16_operand(const uint8_t *p) { return flushed(bf16_to_f32(u16_at(p))); }

static void tile_dot4(uint8_t a[16][64], uint8_t b[16][64], int k_bytes, uint8_t c[16][64]) {
  for (int m = 0; m < 16; m++)
    for (int n = 0; n < 16; n++) {
      uint32_t sum;
      memcpy(&sum, &c[m][4 * n], 4);
      for (int k = 0; k < k_bytes; k++) sum += (uint32_t)((int8_t)a[m][k] * (int32_t)b[k / 4][4 * n + k % 4]);
      memcpy(&c[m][4 * n], &sum, 4);
    }
}

static void tile_dot2(uint8_t a[16][64], uint8_t b[16][64], int k_bytes, uint8_t c[16][64]) {
  for (int m = 0; m < 16; m++)
    for (int n = 0; n < 16; n++) {
      float sum, half[2] = {0, 0};
      memcpy(&sum, &c[m][4 * n], 4);
      for (int k = 0; k < k_bytes / 2; k++) half[k % 2] = flushed(fmaf(bf16_operand(&a[m][2 * k]), bf16_operand(&b[k / 2][4 * n + 2 * (k % 2)]), half[k % 2]));
      float both = flushed(half[0] + half[1]), f = flushed(flushed(sum) + both);
      memcpy(&c[m][4 * n], &f, 4);
    }
}

/* Rows and bytes of a row that a tile has. */
static int tile_rows(const Run *r, int t) { return t >= 6 ? r->tile_bytes / 4 : 16; }
static size_t tile_row_bytes(const Run *r, int t) { return t == 4 || t == 5 ? (size_t)r->tile_bytes : 64; }

static Err *run_tile_access(Run *r, const Rec *d) {
  uint64_t a = val(r, d->arg[0])->uq + val(r, d->arg[1])->uq * d->scale + (uint64_t)d->disp;
  size_t n = tile_row_bytes(r, d->n);
  for (int i = 0; i < tile_rows(r, d->n); i++, a += val(r, d->arg[2])->uq) {
    TRY(check_access(r, d->v, (uintptr_t)a, n, d->e.op == IR_tstore));
    if (d->e.op == IR_tload) memcpy(r->tile[d->n][i], (const uint8_t *)(uintptr_t)a, n);
    else memcpy((uint8_t *)(uintptr_t)a, r->tile[d->n][i], n);
  }
  return NULL;
}

static Err *run_tile(Run *r, const Rec *d) {
  int64_t c = d->e.imm & 15, a = d->e.imm >> 4 & 15, b = d->e.imm >> 8;
  bool begins = d->e.op == IR_tbegin;
  if (!begins && !r->tile_bytes) return fault(r, d->v, ERR_LIMIT, "outside tbegin and tend");
  switch (d->e.op) {
    case IR_tbegin: case IR_tend:
      memset(r->tile, 0, sizeof r->tile);
      r->tile_bytes = begins ? (int)d->e.imm : 0;
      return NULL;
    case IR_tzero: memset(r->tile[d->e.imm], 0, sizeof r->tile[0]); return NULL;
    case IR_tdot4: tile_dot4(r->tile[a], r->tile[b], r->tile_bytes, r->tile[c]); return NULL;
    case IR_tdot2: tile_dot2(r->tile[a], r->tile[b], r->tile_bytes, r->tile[c]); return NULL;
    default: return run_tile_access(r, d);
  }
}

/* running */
static void run_moves(Run *r, const Jump *j) {
  if (j->overlap) {
    uint64_t *to = r->spare;
    for (int i = 0; i < j->n_moves; to += j->moves[i++].n_words) memcpy(to, r->slots + j->moves[i].src, j->moves[i].n_words * 8);
    to = r->spare;
    for (int i = 0; i < j->n_moves; to += j->moves[i++].n_words) memcpy(r->slots + j->moves[i].dst, to, j->moves[i].n_words * 8);
    return;
  }
  for (int i = 0; i < j->n_moves; i++) {
    const Move *m = &j->moves[i];
    for (uint32_t w = 0; w < m->n_words; w++) r->slots[m->dst + w] = r->slots[m->src + w];
  }
}

static Err *run_body(Run *r, const Body *b) {
  for (const Rec *d = b->recs, *end = d + b->n_recs; d < end; d++) {
    switch (d->e.op) {
      case IR_load: case IR_store: TRY(run_access(r, d)); break;
      case IR_gather: TRY(run_gather(r, d)); break;
      case IR_prefetch: break;
      case IR_tbegin: case IR_tend: case IR_tzero: case IR_tload: case IR_tstore: case IR_tdot4: case IR_tdot2: TRY(run_tile(r, d)); break;
      case IR_udiv: case IR_urem: TRY(run_divide(r, d)); break;
      default: ir_eval(&d->e, val(r, d->arg[0]), val(r, d->arg[1]), val(r, d->arg[2]), val(r, d->dst));
    }
  }
  return NULL;
}

static Err *run(Run *r, int64_t max_steps) {
  const Body *b = &r->bodies[0];
  for (int64_t left = max_steps;;) {
    if (left <= b->n_recs) return err_new(ERR_LIMIT, "fn @%s: b%d: more than %lld steps", r->fn->name, (int)(b - r->bodies), (long long)max_steps);
    left -= b->n_recs + 1;
    TRY(run_body(r, b));
    if (b->term == IR_RET) return NULL;
    const Jump *j = &b->jump[b->term == IR_BR && !val(r, b->cond)->i[0]];
    run_moves(r, j);
    b = &r->bodies[j->block];
  }
}

static Err *take_args(Run *r, const uint64_t *args, int n_args) {
  const IrFn *fn = r->fn;
  const IrBlock *entry = &fn->blocks[0];
  if (n_args != entry->n_params) return err_new(ERR_USAGE, "fn @%s: %d arguments, expected %d", fn->name, n_args, entry->n_params);
  for (int i = 0; i < n_args; i++) {
    IrType t = fn->ins[entry->params[i]].type;
    IrElt e = ir_type_elt(fn, t);
    if (ir_type_lanes(fn, t) != 1) return err_new(ERR_USAGE, "fn @%s: parameter %d is a vector", fn->name, i);
    ir_val_set(val(r, r->place[entry->params[i]]), e == IR_E_PTR ? IR_E_I64 : e, 1, (int64_t)(e == IR_E_I1 ? args[i] & 1 : args[i]));
  }
  return NULL;
}

Err *ir_interp(const IrFn *fn, const uint64_t *args, int n_args, const IrSpan *spans, int n_spans, int64_t max_steps) {
  Run r = {.fn = fn, .arena = arena_new("interp"), .spans = spans, .n_spans = spans ? n_spans : 0};
  give_places(&r);
  decode(&r);
  Err *e = take_args(&r, args, n_args);
  if (!e) e = run(&r, max_steps);
  arena_free(r.arena);
  return e;
}
