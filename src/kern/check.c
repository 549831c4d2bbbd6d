/* Memory, data and runs of one kernel spec: what tests, `lumen kern --check` and --time stand on. The oracle is the naive form of every region
   (scalar loops in the text's order over blocks as they are in a file), run by the interpreter; machine code reads packed weights and must
   give the same bits. In: a spec whose numbers of rows are known, and a seed. Out: results, differences, counts of work.

   A buffer's memory:   pattern ... | data, paddings NaN | inaccessible page
   so a read or write behind its end dies at once, one in front of it is found afterwards, and a padding that matters shows as NaN. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "kern/kern.h"

enum { PAGE = 4096, FRONT = 4096, PATTERN = 0xa5, HUGE_BYTES = 2 << 20 };
typedef struct Band { uint8_t *map, *p; size_t n_map, n; } Band;
typedef struct Job { const Kern *k; void **args; int64_t n_items; int phase; } Job;
struct KernData {
  Arena *arena;
  const KernSpec *spec;
  const TpPlan *plan; const Tp *tp; const Dag *dag;
  int64_t sym[KERN_MAX_SYMS];
  uint64_t rng;
  const int32_t **ints;        /* by buffer, for KernEval */
  Band *buf, *packed;          /* by buffer; a raw weight's twin has the same blocks */
  Band *scratch; int n_scratch; size_t scratch_bytes;
  Job *job; int n_jobs;
  DevClaim *claim;
  DevPool *pool;               /* of the run under way; NULL: the caller alone */
};

/* ---- bands --------------------------------------------------------------------------------------------------------- */
static Err *band_new(size_t n, Band *out) {
  Band b = {.n = n, .n_map = ROUND_UP(n + FRONT, PAGE) + PAGE};
  b.map = mmap(NULL, b.n_map, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (b.map == MAP_FAILED) return err_new(ERR_MEMORY, "kernel data: no memory for %zu bytes", b.n_map);
  if (n >= HUGE_BYTES) madvise(b.map, b.n_map, MADV_HUGEPAGE);
  b.p = b.map + b.n_map - PAGE - n;
  memset(b.map, PATTERN, (size_t)(b.p - b.map));
  memset(b.p, 0xff, n);
  mprotect(b.p + n, PAGE, PROT_NONE);
  *out = b;
  return NULL;
}

static void band_free(Band *b) {
  if (b->map) munmap(b->map, b->n_map);
}

static bool band_front_ok(const Band *b) {
  for (const uint8_t *p = b->map; p && p < b->p; p++) if (*p != PATTERN) return false;
  return true;
}

/* ---- data ---------------------------------------------------------------------------------------------------------- */
static uint32_t rng(KernData *d) {
  d->rng ^= d->rng << 13;
  d->rng ^= d->rng >> 7;
  d->rng ^= d->rng << 17;
  return (uint32_t)(d->rng >> 24);
}

static float rng_f32(KernData *d) { return (float)((int)(rng(d) % 65537) - 32768) / 16384.0f; }

static int64_t dim_value(const KernData *d, Dx x) {
  const DxNode *n = &d->dag->node[x];
  return n->kind == DX_INT ? n->ival : n->kind == DX_SYM ? d->sym[n->ival] : 0;
}

static int64_t row_len(const KernData *d, int buf) { /* elements that mean something */
  int64_t n = 1;
  for (int i = 1; i < d->tp->buf[buf].n_dims; i++) n *= tp_dim_elems(d->tp, &d->tp->buf[buf], i, d->sym);
  return n;
}

static void put(IrMem m, uint8_t *p, float v) {
  uint16_t h = m == IR_M_f16 ? f32_to_f16(v) : f32_to_bf16(v);
  if (m == IR_M_f32) memcpy(p, &v, 4);
  else if (m == IR_M_f16 || m == IR_M_bf16) memcpy(p, &h, 2);
}

enum { RANDOM_BLOCKS = 1024, LARGEST = 100000, TRIES = 60 };

/* Random bytes; where the format has floats, finite ones of every sign and many sizes, zero and subnormal among them. */
static void random_block(KernData *d, const FormatForm *f, uint8_t *p) {
  for (int i = 0; i < f->n_bytes; i++) p[i] = (uint8_t)rng(d);
  for (int at = 0; at < f->n_bytes; at += (int)f->decl->n_bytes) { /* a small block is several of the text's */
    for (int k = 0; k < f->decl->n_fields; k++) {
      const Field *fl = &f->decl->field[k];
      IrMem m = !strcmp(fl->elt, "f16") ? IR_M_f16 : !strcmp(fl->elt, "bf16") ? IR_M_bf16 : !strcmp(fl->elt, "f32") ? IR_M_f32 : IR_M_none;
      for (int64_t i = 0; m != IR_M_none && i < fl->count; i++) {
        uint32_t pick = rng(d) % 64;
        put(m, p + at + fl->offset + i * ir_mem_bytes[m], pick == 0 ? 0 : pick == 1 ? rng_f32(d) * 1e-7f : pick == 2 ? rng_f32(d) * 60 : rng_f32(d) / 8);
      }
    }
  }
}

static bool is_sane(const float *x, int n) {
  for (int i = 0; i < n; i++) if (!(x[i] >= -LARGEST && x[i] <= LARGEST)) return false;
  return true;
}

/* Blocks whose codes are no numbers, or huge ones, are drawn again: sums of them would be no numbers, and equal whatever is wrong. */
static Err *draw_sane(KernData *d, const FormatForm *f, uint8_t *p, int64_t n) {
  Arena *tmp = arena_new("compile");
  float *x = ARENA_ARRAY(tmp, float, n * f->block + 16);
  void *args[FORMAT_MAX_ARGS] = {p, x};
  uint8_t scratch[256];
  uint64_t in[4] = {(uint64_t)(uintptr_t)args, 0, (uint64_t)(n * f->block / f->decl->block), (uint64_t)(uintptr_t)scratch}; /* decoding counts the text's blocks */
  IrFn *fn;
  format_table_args(f, args);
  Err *e = lower_decode(tmp, f, "decode", &fn);
  bool again = true;
  for (int t = 0; !e && again && t < TRIES; t++) {
    again = false;
    if ((e = ir_interp(fn, in, 4, NULL, 0, INT64_MAX))) break;
    for (int64_t b = 0; b < n; b++) {
      if (is_sane(x + b * f->block, f->block)) continue;
      random_block(d, f, p + b * f->n_bytes);
      again = true;
    }
  }
  arena_free(tmp);
  return e;
}

static Err *fill_blocks(KernData *d, const FormatForm *f, uint8_t *p, int64_t n_blocks) {
  int64_t n = MIN(n_blocks, (int64_t)RANDOM_BLOCKS), n_bytes = n * f->n_bytes;
  for (int64_t b = 0; b < n; b++) random_block(d, f, p + b * f->n_bytes);
  TRY(draw_sane(d, f, p, n));
  for (int64_t at = n_bytes; at < n_blocks * f->n_bytes; at += n_bytes) memcpy(p + at, p, (size_t)MIN(n_bytes, n_blocks * f->n_bytes - at)); /* large ones repeat */
  return NULL;
}

/* Blocks of a state: where rows lie side by side, number by number. */
static Err *fill_state(KernData *d, int buf) {
  const TpBuf *t = &d->tp->buf[buf];
  const FormatForm *f = t->blocks;
  int64_t rows = tp_buf_rows(d->tp, buf, d->sym), stride = tp_row_elems(d->tp, buf), len = row_len(d, buf), n_blocks = rows * len / f->n_bytes;
  TpSide side = tp_buf_side(d->tp, t);
  uint8_t *p = ARENA_ARRAY(d->arena, uint8_t, n_blocks * f->n_bytes + 1);
  TRY(fill_blocks(d, f, p, n_blocks));
  for (int64_t m = 0; m < rows; m++) {
    uint8_t *row = d->buf[buf].p + m * stride;
    for (int64_t g = 0; g < len / f->n_bytes; g++) { /* block g: of row g % side.rows in its group */
      const uint8_t *from = p + (m * (len / f->n_bytes) + g) * f->n_bytes;
      uint8_t *to = row + g / side.rows * side.rows * f->n_bytes;
      for (int64_t at = 0; at < f->n_bytes; at += f->decl->n_bytes)
        for (int k = 0; k < f->decl->n_fields; k++) {
          const Field *fl = &f->decl->field[k];
          int64_t es = ir_mem_bytes[dx_mem(fl->elt)];
          for (int64_t i = 0, o = at + fl->offset; i < fl->count; i++, o += es) memcpy(to + tp_block_byte(f, dx_mem(fl->elt), o, g % side.rows, side), from + o, (size_t)es);
        }
    }
  }
  return NULL;
}

/* Rows of several magnitudes, one of zeros: a group whose largest element is 0 is a case of its own when activations are quantized. */
static void fill_floats(KernData *d, int buf) {
  static const float size[] = {1, 0.01f, 1, 50, 0, 1, 0.3f};
  const TpBuf *t = &d->tp->buf[buf];
  int64_t rows = tp_buf_rows(d->tp, buf, d->sym), stride = tp_row_elems(d->tp, buf), len = row_len(d, buf);
  int es = ir_mem_bytes[t->mem], first = (int)(rng(d) % COUNT_OF(size));
  for (int64_t m = 0; m < rows; m++) {
    float s = rows == 1 || t->n_dims < 2 ? 1 : size[(m + first) % (int)COUNT_OF(size)];
    for (int64_t i = 0; i < len; i++) {
      uint8_t *p = d->buf[buf].p + (m * stride + i) * es;
      if (t->mem == IR_M_i8) *p = (uint8_t)(int8_t)((int)(rng(d) % 255) - 127);
      else put(t->mem, p, s * (rng(d) % 32 ? rng_f32(d) : 0));
    }
  }
}

/* ---- integers that index ------------------------------------------------------------------------------------------- */
/* The integers of a run, by buffer. */
static KernEval eval_of(const KernData *d) {
  for (int b = 0; b < d->tp->n_bufs; b++) d->ints[b] = d->tp->buf[b].mem == IR_M_i32 && d->tp->buf[b].role == BUF_INPUT ? (const int32_t *)(const void *)d->buf[b].p : NULL;
  return (KernEval){.tp = d->tp, .sym = d->sym, .ints = d->ints};
}

static int64_t dim_in(const KernEval *e, Dx x) {
  const DxNode *n = &e->tp->dag->node[x];
  return n->kind == DX_INT ? n->ival : n->kind == DX_SYM ? e->sym[n->ival] : 0;
}

static bool index_ok(KernEval *e, int buf, const Dx *index, int n) {
  const TpBuf *t = &e->tp->buf[buf];
  for (int i = 0; i < n; i++) {
    e->unknown = false;
    int64_t v = kern_eval(e, index[i]);
    if (!e->unknown && (v < 0 || v >= dim_in(e, t->dim[i]))) return false;
  }
  return true;
}

/* Every load below x, at the first and the last value of each reduction's axis; branches not taken are not looked at. */
static bool loads_ok(KernEval *e, Dx x) {
  const DxNode *n = &e->tp->dag->node[x];
  if (n->kind == DX_RED) {
    e->unknown = false;
    int64_t ext = kern_eval(e, n->arg[0]);
    for (int last = 0; !e->unknown && last < 2 && ext > 0; last++) {
      e->axis[n->ival] = last ? ext - 1 : 0;
      if (!loads_ok(e, n->arg[1])) return false;
      e->unknown = false;
    }
    return true;
  }
  if (n->kind == DX_OP && n->op == DXO_COND) {
    e->unknown = false;
    int64_t c = kern_eval(e, n->arg[0]);
    if (!e->unknown) return loads_ok(e, n->arg[c ? 1 : 2]);
  }
  for (int i = 0; i < n->n_args; i++) if (!loads_ok(e, n->arg[i])) return false;
  return (n->kind != DX_LOAD && n->kind != DX_WGT) || index_ok(e, (int)n->ival, n->arg, n->n_args);
}

/* Axis 0 (rows) is walked, the others tried at both ends. */
static bool stmt_ok(KernEval *e, const TpStmt *t, int axis) {
  if (axis == t->n_axes) return index_ok(e, t->buf, t->index, t->n_index) && loads_ok(e, t->rhs);
  e->unknown = false;
  int64_t ext = kern_eval(e, t->extent[axis]), step = axis == 0 && ext <= 4096 ? 1 : MAX(ext - 1, 1);
  for (int64_t i = 0; !e->unknown && i < ext; i += step) {
    e->axis[axis] = i;
    if (!stmt_ok(e, t, axis + 1)) return false;
    e->unknown = false;
  }
  return true;
}

static bool indices_ok(const KernData *d) {
  KernEval e = eval_of(d);
  for (int r = 0; r < d->plan->n_regions; r++)
    for (int i = 0; i < d->plan->region[r].n_stmts; i++)
      if (!stmt_ok(&e, &d->tp->stmt[d->plan->region[r].stmt[i]], 0)) return false;
  return true;
}

static void set_ints(KernData *d, int buf, int64_t first, int64_t step, int64_t bound) {
  int64_t n = tp_buf_rows(d->tp, buf, d->sym) * row_len(d, buf);
  for (int64_t i = 0; i < n; i++) {
    int32_t v = (int32_t)(bound ? (first + i * step) % bound : MAX(first + i, 0));
    memcpy(d->buf[buf].p + 4 * i, &v, 4);
  }
}

/* Distinct values as far as there are enough: the largest bound among the dimensions with which nothing is indexed outside. */
static void fill_ints(KernData *d, int buf) {
  int64_t bound = 1;
  for (int b = 0; b < d->tp->n_bufs; b++) {
    for (int k = 0; k < d->tp->buf[b].n_dims; k++) {
      int64_t v = dim_value(d, d->tp->buf[b].dim[k]);
      if (v <= bound || v > INT32_MAX) continue;
      set_ints(d, buf, v - 1, 0, v);
      if (indices_ok(d)) bound = v;
    }
  }
  int64_t first = rng(d) % bound, step = 1 + rng(d) % bound;
  while (dx_gcd(step, bound) != 1) step++;
  set_ints(d, buf, first, step, bound);
}

static Err *fill(KernData *d, uint64_t seed) {
  for (int b = 0; b < d->tp->n_bufs; b++) {
    const TpBuf *t = &d->tp->buf[b];
    if (t->alias != b || t->raw) continue;
    d->rng = hash_bytes(&b, sizeof b, seed * 2654435761u + 88172645463325252u) | 1;
    if (t->fmt) TRY(fill_blocks(d, t->fmt, d->buf[b].p, dim_value(d, t->dim[0]) * dim_value(d, t->dim[1]) / t->fmt->block));
    else if (t->blocks) TRY(fill_state(d, b));
    else if ((t->role == BUF_INPUT || t->role == BUF_STATE) && t->mem != IR_M_i32) fill_floats(d, b);
    else if (t->role == BUF_INPUT) set_ints(d, b, 0, 0, 1);
  }
  for (int b = 0; b < d->tp->n_bufs; b++) {
    const TpBuf *t = &d->tp->buf[b];
    if (t->alias != b || t->fmt || t->role != BUF_INPUT || t->mem != IR_M_i32) continue;
    int64_t last = d->spec->last[b], n = tp_buf_rows(d->tp, b, d->sym) * row_len(d, b);
    if (last < 0) fill_ints(d, b);
    else set_ints(d, b, last - n + 1, 1, 0);
    if (last >= 0 && !indices_ok(d)) return err_new(ERR_USAGE, "%s: with values up to %lld something is indexed outside its dimensions", t->name, (long long)last);
  }
  return NULL;
}

/* ---- making and freeing -------------------------------------------------------------------------------------------- */
static size_t buf_bytes(const KernData *d, int b) {
  const TpBuf *t = &d->tp->buf[b];
  if (!t->fmt) return (size_t)tp_buf_bytes(d->tp, b, d->sym);
  return (size_t)(dim_value(d, t->dim[0]) * (dim_value(d, t->dim[1]) / t->fmt->block) * t->fmt->n_bytes);
}

static Err *make_bufs(KernData *d) {
  d->buf = ARENA_ARRAY(d->arena, Band, d->tp->n_bufs + 1);
  d->packed = ARENA_ARRAY(d->arena, Band, d->tp->n_bufs + 1);
  d->ints = ARENA_ARRAY(d->arena, const int32_t *, d->tp->n_bufs + 1);
  for (int b = 0; b < d->tp->n_bufs; b++) {
    const TpBuf *t = &d->tp->buf[b];
    if (t->alias != b || t->local >= 0 || t->raw || (t->mem == IR_M_none && !t->fmt)) continue;
    TRY(band_new(buf_bytes(d, b), &d->buf[b]));
  }
  return NULL;
}

Err *kern_data_new(const KernSpec *s, uint64_t seed, KernData **out) {
  for (int i = 0; i < s->tp->n_syms; i++)
    if (s->sym[i] < 1) return err_new(ERR_USAGE, "%s: the number of rows %s must be known here", s->text, s->tp->sym[i].name);
  Arena *a = arena_new("kernel data");
  KernData *d = ARENA_NEW(a, KernData);
  *d = (KernData){.arena = a, .spec = s, .plan = s->plan, .tp = s->tp, .dag = s->tp->dag};
  memcpy(d->sym, s->sym, sizeof d->sym);
  Err *e = make_bufs(d);
  if (!e) e = err_wrap(fill(d, seed), "%s", s->text);
  if (e) kern_data_free(d);
  else *out = d;
  return e;
}

void kern_data_free(KernData *d) {
  if (!d) return;
  for (int b = 0; d->buf && b < d->tp->n_bufs; b++) band_free(&d->buf[b]), band_free(&d->packed[b]);
  for (int i = 0; i < d->n_scratch; i++) band_free(&d->scratch[i]);
  arena_free(d->arena);
}

/* The blocks of a weight: a twin that is read raw shares them. */
static int blocks_of(const Tp *p, int buf) {
  for (int i = 0; p->buf[buf].raw && i < p->n_bufs; i++)
    if (!p->buf[i].raw && p->buf[i].fmt == p->buf[buf].fmt && p->buf[i].tag == p->buf[buf].tag) return i;
  return buf;
}

static void *address(const KernData *d, int what, bool packed) {
  if (what < 0) return (void *)(intptr_t)d->sym[~what];
  if (what >= TP_TABLE) return (void *)(uintptr_t)d->tp->table[what - TP_TABLE];
  const TpBuf *t = &d->tp->buf[what];
  if (!t->fmt) return d->buf[what].p;
  return t->raw || !packed ? d->buf[blocks_of(d->tp, what)].p : d->packed[what].p;
}

static void **args_of(const KernData *d, const TpRegion *r, bool packed) {
  void **args = ARENA_ARRAY(d->arena, void *, r->n_args + 1);
  for (int i = 0; i < r->n_args; i++) args[i] = address(d, r->arg[i], packed);
  return args;
}

/* ---- the oracle ---------------------------------------------------------------------------------------------------- */
static bool is_written(const TpBuf *t) { return t->role == BUF_OUTPUT || t->role == BUF_STATE || t->role == BUF_TEMP; }

static int spans_of(const KernData *d, IrSpan *s) {
  int n = 0;
  for (int b = 0; b < d->tp->n_bufs; b++)
    if (d->buf[b].map) s[n++] = (IrSpan){d->buf[b].p, d->buf[b].n, is_written(&d->tp->buf[b])};
  for (int f = 0; f < d->tp->n_forms; f++)
    for (int i = 0; i < d->tp->form[f]->dag->n_tabs; i++) {
      const DxTable *t = &d->tp->form[f]->dag->tab[i];
      s[n++] = (IrSpan){t->data, (size_t)(t->decl->n_values * ir_mem_bytes[t->mem]), false};
    }
  return n;
}

static Err *interp_region(KernData *d, Arena *tmp, int region, IrSpan *span, int n_spans) {
  static const Sched naive = {.naive = true, .lanes = 1, .tile = {1}, .n_tiles = 1};
  const TpRegion *r = &d->plan->region[region];
  IrFn *fn;
  int64_t scratch_bytes;
  TRY(lower_region(tmp, d->plan, region, &naive, r->name, &fn, &scratch_bytes));
  TRY(err_wrap(ir_fn_verify(fn), "naive form of %s", r->name));
  void **args = args_of(d, r, false), *scratch = calloc(1, (size_t)scratch_bytes + 64);
  CHECK(scratch);
  span[n_spans++] = (IrSpan){args, sizeof *args * (size_t)(r->n_args + 1), false};
  span[n_spans++] = (IrSpan){scratch, (size_t)scratch_bytes + 64, true};
  uint64_t in[4] = {(uint64_t)(uintptr_t)args, 0, (uint64_t)region_items(d->plan, region, &naive, d->sym), (uint64_t)(uintptr_t)scratch};
  Err *e = ir_interp(fn, in, 4, span, n_spans, INT64_MAX);
  free(scratch);
  return err_wrap(e, "naive form of %s", r->name);
}

Err *kern_data_interp(KernData *d) {
  Arena *tmp = arena_new("compile");
  IrSpan *span = ARENA_ARRAY(tmp, IrSpan, d->tp->n_bufs + d->tp->n_forms * DX_MAX_TABLES + 2);
  int n = spans_of(d, span);
  Err *e = NULL;
  for (int i = 0; !e && i < d->plan->n_regions; i++) e = interp_region(d, tmp, i, span, n);
  arena_free(tmp);
  return e;
}

/* ---- machine code -------------------------------------------------------------------------------------------------- */
static Err *pack(KernData *d, Kerns *k, int buf) {
  const TpBuf *t = &d->tp->buf[buf];
  int64_t N = dim_value(d, t->dim[0]), K = dim_value(d, t->dim[1]), tiles = (N + PACK_ROWS - 1) / PACK_ROWS, row = K / t->fmt->block * t->fmt->n_bytes;
  const Kern *kp;
  if (d->packed[buf].map) return NULL;
  if (row * PACK_ROWS > INT32_MAX) return err_new(ERR_LIMIT, "%s: %d rows take more than 2 GiB", t->name, PACK_ROWS);
  TRY(kern_pack(k, t->fmt, K, &kp));
  TRY(band_new((size_t)(tiles * format_layout(t->fmt, K).tile_bytes), &d->packed[buf]));
  Band base, offs, scratch;
  TRY(band_new((size_t)tiles * 8, &base));
  TRY(band_new((size_t)tiles * 4 * PACK_ROWS, &offs));
  TRY(band_new((size_t)kp->scratch_bytes, &scratch));
  for (int64_t i = 0; i < tiles; i++) {
    const uint8_t *p = d->buf[buf].p + i * PACK_ROWS * row;
    memcpy(base.p + 8 * i, &p, 8);
    for (int64_t r = 0; r < PACK_ROWS; r++) {
      int32_t off = (int32_t)((MIN(i * PACK_ROWS + r, N - 1) - i * PACK_ROWS) * row);
      memcpy(offs.p + 4 * (i * PACK_ROWS + r), &off, 4);
    }
  }
  void *args[FORMAT_MAX_ARGS] = {base.p, offs.p, d->packed[buf].p};
  format_table_args(t->fmt, args);
  kp->entry(args, 0, tiles, scratch.p);
  bool ok = band_front_ok(&d->packed[buf]) && band_front_ok(&base) && band_front_ok(&offs);
  band_free(&base);
  band_free(&offs);
  band_free(&scratch);
  return ok ? NULL : err_new(ERR_FORMAT, "%s: packing wrote in front of its buffer", t->name);
}

static int64_t rows_of(const KernData *d, const TpRegion *r) { return dim_value(d, d->tp->stmt[r->stmt[0]].extent[0]); }

Err *kern_data_prepare(KernData *d, Kerns *k, KernShape shape) {
  Job *job = ARENA_ARRAY(d->arena, Job, d->plan->n_regions + 1);
  for (int i = 0; i < d->plan->n_regions; i++) {
    const TpRegion *r = &d->plan->region[i];
    for (int a = 0; a < r->n_args; a++)
      if (r->arg[a] >= 0 && r->arg[a] < TP_TABLE && d->tp->buf[r->arg[a]].fmt && !d->tp->buf[r->arg[a]].raw) TRY(pack(d, k, r->arg[a]));
    KernShape s = shape == KERN_N_SHAPES ? kern_shape(rows_of(d, r)) : shape;
    TRY(kern_region(k, d->plan, i, s, &job[i].k));
    job[i].args = args_of(d, r, true);
    job[i].n_items = region_items(d->plan, i, &job[i].k->sched, d->sym);
    job[i].phase = r->phase;
    d->scratch_bytes = MAX(d->scratch_bytes, (size_t)ROUND_UP(job[i].k->scratch_bytes, 64));
  }
  d->job = job;
  d->n_jobs = d->plan->n_regions;
  void *c = ARENA_ARRAY(d->arena, DevClaim, d->n_jobs + 1);
  d->claim = (DevClaim *)(((uintptr_t)c + 63) & ~(uintptr_t)63);
  return NULL;
}

static void run_thread(void *ctx, int thread, int n_threads) {
  KernData *d = ctx;
  for (int i = 0; i < d->n_jobs; i++) {
    const Job *j = &d->job[i];
    int64_t a, b, chunk = n_threads == 1 ? MAX(j->n_items, 1) : MAX(j->n_items / (n_threads * 4), 1);
    if (i && j[-1].phase != j->phase && d->pool) dev_barrier(d->pool, thread);
    while (dev_claim(&d->claim[i], chunk, j->n_items, &a, &b)) j->k->entry(j->args, a, b, d->scratch[thread].p);
  }
}

static Err *make_scratch(KernData *d, int n_threads) {
  if (d->n_scratch >= n_threads && (d->n_scratch == 0 || d->scratch[0].n >= d->scratch_bytes)) return NULL;
  for (int i = 0; i < d->n_scratch; i++) band_free(&d->scratch[i]);
  d->n_scratch = 0;
  d->scratch = ARENA_ARRAY(d->arena, Band, n_threads);
  for (; d->n_scratch < n_threads; d->n_scratch++) TRY(band_new(d->scratch_bytes, &d->scratch[d->n_scratch]));
  return NULL;
}

Err *kern_data_run(KernData *d, DevPool *pool) {
  CHECK(d->job, "kern_data_run before kern_data_prepare");
  TRY(make_scratch(d, pool ? dev_pool_n_threads(pool) : 1));
  for (int i = 0; i < d->n_jobs; i++) atomic_store_explicit(&d->claim[i].next, 0, memory_order_relaxed);
  d->pool = pool;
  if (pool) dev_pool_run(pool, run_thread, d);
  else run_thread(d, 0, 1);
  return NULL;
}

int kern_data_n_jobs(const KernData *d) { return d->n_jobs; }

const Kern *kern_data_kern(const KernData *d, int job, int64_t *n_items) {
  if (n_items) *n_items = d->job[job].n_items;
  return d->job[job].k;
}

/* ---- comparing ----------------------------------------------------------------------------------------------------- */
static bool is_nan(IrMem m, const uint8_t *p) {
  uint32_t u = 0;
  memcpy(&u, p, (size_t)ir_mem_bytes[m]);
  if (m == IR_M_f32) return (u & 0x7fffffff) > 0x7f800000;
  return m == IR_M_f16 ? (u & 0x7fff) > 0x7c00 : m == IR_M_bf16 && (u & 0x7fff) > 0x7f80;
}

static double number(IrMem m, const uint8_t *p) {
  uint32_t u = 0;
  memcpy(&u, p, (size_t)ir_mem_bytes[m]);
  switch (m) {
    case IR_M_f32: return (double)f32_from_bits(u);
    case IR_M_f16: return (double)f16_to_f32((uint16_t)u);
    case IR_M_bf16: return (double)bf16_to_f32((uint16_t)u);
    case IR_M_i8: return (int8_t)u;
    default: return (int32_t)u;
  }
}

static Err *compare_result(const KernData *want, const KernData *got, int b, int64_t *n_numbers) {
  const TpBuf *t = &want->tp->buf[b];
  int64_t rows = tp_buf_rows(want->tp, b, want->sym), stride = tp_row_elems(want->tp, b), len = row_len(want, b);
  int es = ir_mem_bytes[t->mem];
  for (int64_t m = 0; m < rows; m++) {
    for (int64_t i = 0; i < len; i++) {
      const uint8_t *w = want->buf[b].p + (m * stride + i) * es, *g = got->buf[b].p + (m * stride + i) * es;
      bool nan = is_nan(t->mem, w);
      *n_numbers += !nan;
      if (nan ? is_nan(t->mem, g) : !memcmp(w, g, (size_t)es)) continue;
      return err_new(ERR_FORMAT, "%s: %s[%lld][%lld] is %.9g, expected %.9g", want->spec->text, t->name, (long long)m, (long long)i, number(t->mem, g), number(t->mem, w));
    }
  }
  return NULL;
}

Err *kern_data_compare(const KernData *want, const KernData *got) {
  int64_t n_numbers = 0;
  CHECK(want->tp->n_bufs == got->tp->n_bufs, "data of different specs");
  for (int b = 0; b < want->tp->n_bufs; b++) {
    const TpBuf *t = &want->tp->buf[b];
    if (!want->buf[b].map) continue;
    if (!band_front_ok(&got->buf[b]) || !band_front_ok(&got->packed[b])) return err_new(ERR_FORMAT, "%s: something was written in front of %s", want->spec->text, t->name);
    if (t->role == BUF_OUTPUT || t->role == BUF_STATE) TRY(compare_result(want, got, b, &n_numbers));
    else if (t->role != BUF_TEMP && memcmp(want->buf[b].p, got->buf[b].p, want->buf[b].n)) return err_new(ERR_FORMAT, "%s: the input %s was written to", want->spec->text, t->name);
  }
  for (int i = 0; i < got->n_scratch; i++) if (!band_front_ok(&got->scratch[i])) return err_new(ERR_FORMAT, "%s: something was written in front of scratch", want->spec->text);
  return n_numbers ? NULL : err_new(ERR_FORMAT, "%s: there is no number among the results", want->spec->text);
}

static Err *check_set(const KernSpec *s, Kerns *k, const KernData *want, uint64_t seed, DevPool *pool, int *n_runs) {
  Err *e = NULL;
  for (int shape = 0; !e && shape <= KERN_N_SHAPES; shape++) { /* the last: as a model would run it, on all threads */
    KernData *got = NULL;
    if (shape == KERN_ONE && s->tp->n_syms && s->sym[0] > 1) continue;
    e = kern_data_new(s, seed, &got);
    if (!e) e = kern_data_prepare(got, k, (KernShape)shape);
    if (!e) e = kern_data_run(got, shape == KERN_N_SHAPES ? pool : NULL);
    if (!e) e = kern_data_compare(want, got);
    kern_data_free(got);
    ++*n_runs;
  }
  return err_wrap(e, "%s", kern_target(k)->name);
}

Err *kern_check(const KernSpec *s, Kerns *const *set, int n_sets, uint64_t seed, DevPool *pool, int *n_runs) {
  KernData *want;
  int n = 0;
  TRY(kern_data_new(s, seed, &want));
  Err *e = kern_data_interp(want);
  for (int i = 0; !e && i < n_sets; i++) e = check_set(s, set[i], want, seed, pool, &n);
  kern_data_free(want);
  if (n_runs) *n_runs += n;
  return e;
}

KernWork kern_data_work(const KernData *d) {
  KernWork w;
  KernEval e = eval_of(d);
  kern_work(d->plan, 0, d->plan->n_regions, &e, false, &w);
  return w;
}
