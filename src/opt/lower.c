/* Regions to IR functions: loops over items, loops inside an item, lanes, register tiles. Packing and decoding functions of a format.
   Every function has the kernel signature of opt.h. In: a plan and a schedule. Out: an IR function, not yet optimized. */
#include <string.h>
#include "opt/emit.h"

static IrRef zero64(Emit *e) { return ir_const_i(&e->b, IR_T_i64, 0); }

static IrType shape_of(Emit *e, int buf) {
  const TpBuf *b = buf < TP_TABLE ? &e->p->buf[buf] : NULL;
  IrPtr p = {.mem = IR_M_u8, .space = IR_S_global, .n_dims = 1, .dim = {-1}};
  if (b && b->mem != IR_M_none && !b->fmt) {
    p.mem = (uint8_t)b->mem;
    p.n_dims = (uint8_t)b->n_dims;
    for (int i = 0; i < b->n_dims; i++) p.dim[i] = dx_is_int(e->d, b->dim[i], NULL) ? tp_dim_elems(e->p, b, i, NULL) : -1;
  }
  return ir_ptr_type(e->fn, p);
}

Emit *emit_new(Arena *a, const char *name, IrRef *args, IrRef *first, IrRef *last) {
  Emit *e = ARENA_NEW(a, Emit);
  e->a = a;
  e->fn = ir_fn_new(a, name);
  e->lane_axis = -1;
  e->lanes = 1;
  e->n_rows = 1;
  e->blocks = 1;
  e->load.block = e->div.block = -1;
  e->b = (IrBuild){e->fn, ir_block_add(e->fn)};
  *args = ir_param(e->fn, 0, ir_ptr_type(e->fn, (IrPtr){.mem = IR_M_ptr, .space = IR_S_args, .n_dims = 1, .dim = {-1}}));
  *first = ir_param(e->fn, 0, IR_T_i64);
  *last = ir_param(e->fn, 0, IR_T_i64);
  e->scratch = ir_param(e->fn, 0, ir_ptr_type(e->fn, (IrPtr){.mem = IR_M_u8, .space = IR_S_scratch, .n_dims = 1, .dim = {-1}}));
  return e;
}

static Emit *emit_region(Arena *a, const TpPlan *plan, int region, const Sched *s, const char *name, IrRef *first, IrRef *last) {
  IrRef args;
  Emit *e = emit_new(a, name, &args, first, last);
  e->plan = plan;
  e->p = plan->tp;
  e->d = plan->tp->dag;
  e->r = &plan->region[region];
  e->region = region;
  e->s = *s;
  e->memo = ARENA_ARRAY(a, Vals *, e->d->n + 4096);
  e->local = ARENA_ARRAY(a, Local, e->p->n_bufs);
  e->scratch_bytes = 4 * FULL_LANES; /* room for one vector of small floats on their way, as lookups need */
  e->panel = ARENA_ARRAY(a, Panel, e->p->n_bufs);
  e->arg = ARENA_ARRAY(a, IrRef, e->r->n_args + 1);
  for (int i = 0; i < e->r->n_args; i++) {
    bool sym = e->r->arg[i] < 0;
    e->arg[i] = ir_load(&e->b, sym ? IR_M_i64 : IR_M_ptr, sym ? IR_T_i64 : shape_of(e, e->r->arg[i]), args, 0, 1, 8 * i);
  }
  return e;
}

/* ---- which rows share ---------------------------------------------------------------------------------------------- */
/* Depends on the axis only through axis / R: the same for R neighbours that start at a multiple of R. */
static bool only_by_groups(const Dag *d, Dx x, int axis, int R) {
  const DxNode *n = &d->node[x];
  int64_t by;
  if (!(n->axes >> axis & 1)) return true;
  if (n->kind == DX_OP && n->op == DXO_DIV && d->node[n->arg[0]].kind == DX_AXIS && dx_is_int(d, n->arg[1], &by)) return by % R == 0;
  if (n->kind == DX_AXIS) return false;
  for (int i = 0; i < n->n_args; i++) if (!only_by_groups(d, n->arg[i], axis, R)) return false;
  return true;
}

static bool reads_apart(const Tp *p, Dx x, bool in_chain, int axis, int R) {
  Dag *d = p->dag;
  const DxNode *n = &d->node[x];
  if (!dag_walk_first(d, x)) return false;
  bool dear = n->kind == DX_LOAD ? in_chain || p->buf[n->ival].blocks : n->kind == DX_WGT && in_chain; /* what a block says takes more than a load */
  if (dear && only_by_groups(d, x, axis, R)) return true;
  for (int i = 0; i < n->n_args; i++) if (reads_apart(p, n->arg[i], in_chain || (n->kind == DX_RED && n->op == RED_CHAIN && i == 1), axis, R)) return true;
  return false;
}

bool lower_shares_rows(const Tp *p, const TpStmt *t, int axis, int n_rows) {
  dag_walk_begin(p->dag);
  return axis < t->n_axes && reads_apart(p, t->rhs, false, axis, n_rows);
}

/* ---- statements ---------------------------------------------------------------------------------------------------- */
static void place_locals(Emit *e, int n_rows) {
  for (int b = 0; b < e->p->n_bufs; b++) {
    const TpBuf *t = &e->p->buf[b];
    if (t->local != e->region || t->n_dims <= e->r->n_par) continue;
    int64_t n = 1, d;
    for (int i = t->n_dims - 1; i >= e->r->n_par; i--) {
      if (i == e->r->n_par && i < t->n_dims - 1) n = ROUND_UP(n, 16);
      if (!dx_is_int(e->d, t->dim[i], &d)) emit_fail(e, err_new(ERR_SHAPE, "%s: a temporary inside an item needs known dimensions", t->name));
      else n *= d;
    }
    int64_t row_bytes = ROUND_UP(tp_row_pad(n, t->mem) * ir_mem_bytes[t->mem], 64);
    e->local[b] = (Local){.kind = LOCAL_SCRATCH, .off = e->scratch_bytes, .row_bytes = row_bytes};
    e->scratch_bytes += row_bytes * n_rows + 64;
  }
}

static bool stores_upper(const Emit *e, const TpStmt *t) { return buf_mem(e, t->buf) == IR_M_bf16 && e->p->buf[t->buf].bf16; } /* bfloat16 already: nothing to round */

/* v: the statement's values; halves: of those that it stores upper halves of, these alone. */
static void store_target(Emit *e, const TpStmt *t, Vals v, int n_lanes, bool halves) {
  IrMem m = buf_mem(e, t->buf);
  bool upper = stores_upper(e, t);
  int bytes = ir_mem_bytes[m];
  if (upper) m = IR_M_u16;
  for (int k = 0; k < (e->n_rows > 1 ? e->n_rows : 1); k++) {
    e->row = k;
    int64_t off = e->local[t->buf].kind == LOCAL_SCRATCH ? e->local[t->buf].off + e->local[t->buf].row_bytes * (e->tile_row + k / e->blocks) : 0;
    Lin at = lin_scale(buf_index(e, t->buf, t->index, t->n_index), bytes);
    at.lane = 0;
    at.k += off;
    IrRef x = emit_pick(e, v, k, e->lane_axis >= 0);
    if (upper && !halves) x = ir_shift(&e->b, IR_shr, ir_op1(&e->b, IR_bits, x), 16);
    emit_store_at(e, m, buf_base(e, t->buf), at, x, n_lanes);
  }
  e->row = 0;
}

/* The last target index moves with exactly this axis, one element a step, and nothing else of the target does. */
static int lane_axis_of(Emit *e, const TpStmt *t, int n_par) {
  if (e->s.naive || t->n_index == 0 || t->block_axis) return -1;
  for (int a = t->n_axes - 1; a >= n_par; a--) {
    int64_t ext;
    bool ok = e->p->buf[t->buf].local == e->region || dx_is_int(e->d, t->extent[a], &ext); /* a vector past an end that data decides would fall on others' elements */
    for (int i = 0; i < t->n_index; i++) if (dx_coef(e->d, t->index[i], a, &ok) != (i == t->n_index - 1)) ok = false;
    if (ok && emit_lanes_fit(e, t->rhs, a, FULL_LANES)) return a;
  }
  return -1;
}

static void lane_step(Emit *e, const TpStmt *t, int axis, Lin first, int n_lanes) {
  int mark = emit_mark(e);
  e->axis[axis] = first;
  e->axis[axis].lane = 1;
  store_target(e, t, emit(e, t->rhs), n_lanes, false);
  emit_forget_axis(e, mark, axis);
}

static void lane_rest(Emit *e, const TpStmt *t, int axis, int64_t first, int64_t end) {
  if (!emit_reads_raw(e, t->rhs)) {
    lane_step(e, t, axis, lin_const(first), (int)(end - first));
    return;
  }
  e->lane_axis = -1;
  e->lanes = 1;
  for (int64_t i = first; i < end; i++) {
    int mark = emit_mark(e);
    e->axis[axis] = lin_const(i);
    store_target(e, t, emit(e, t->rhs), 0, false);
    emit_forget_axis(e, mark, axis);
  }
}

/* Blocks of lanes from number `from` on, `count` times `blocks` of them side by side. */
static void lane_blocks(Emit *e, const TpStmt *t, int axis, IrRef from, IrRef count, int blocks) {
  Loop l;
  int rows = e->n_rows;
  loop_begin(e, &l, count, false, NULL, 0);
  Lin first = lin_ref(l.iv, (int64_t)FULL_LANES * blocks);
  if (from) first = lin_add(e, first, lin_ref(from, FULL_LANES));
  e->blocks = blocks;
  e->n_rows = rows * blocks;
  lane_step(e, t, axis, first, 0);
  e->blocks = 1;
  e->n_rows = rows;
  loop_end(e, &l, NULL);
}

/* What a chain reads for all rows lies in runs of vectors along the chain: how many in a run; 0: it does not. */
static int64_t reads_along_chain(Emit *e, Dx x, int lanes, int chain) {
  const DxNode *n = &e->d->node[x];
  if (!dag_walk_first(e->d, x)) return 0;
  if (n->kind == DX_RED && n->op == RED_CHAIN) chain = (int)n->ival;
  const TpBuf *b = n->kind == DX_LOAD && chain >= 0 && n->axes >> chain & 1 ? &e->p->buf[n->ival] : NULL;
  if (b && b->blocks) {
    if (b->side_dim > b->block_dim && e->d->node[n->arg[b->block_dim]].axes >> chain & 1) return 1;
  } else if (b && only_by_groups(e->d, x, e->row_axis, e->s.tile[0])) {
    int64_t stride[IR_MAX_DIMS], step = 0, lane = 0;
    bool ok = true;
    emit_buf_strides(e, (int)n->ival, stride);
    for (int i = 0; i < n->n_args; i++) {
      step += dx_coef(e->d, n->arg[i], chain, &ok) * stride[i];
      lane += emit_lane_coef(e->d, n->arg[i], lanes, FULL_LANES, &ok) * stride[i];
    }
    if (lane > 1) step /= lane; /* every second one: pairs */
    if (ok && step >= FULL_LANES && step <= 4 * FULL_LANES) return step / FULL_LANES;
  }
  int64_t run = 0;
  for (int i = 0; i < n->n_args; i++) {
    int64_t r = reads_along_chain(e, n->arg[i], lanes, chain);
    run = MAX(run, r);
  }
  return run;
}

/* Long chains of dependent sums: several blocks of lanes at once keep the machine busy where few rows do not. Blocks that are streams of their
   own are kept to two, which the prefetchers can follow; blocks that lie side by side are best read all at once. */
static int blocks_at_once(Emit *e, const TpStmt *t, int axis, int64_t most) {
  int blocks = 1;
  if (e->r->contraction || e->s.naive || !lower_shares_rows(e->p, t, e->row_axis, e->s.tile[0])) return 1;
  dag_walk_begin(e->d);
  int64_t run = reads_along_chain(e, t->rhs, axis, -1);
  if (run) most = MIN(most, MAX(run, 2));
  while (blocks < 8 && blocks * 2 * e->n_rows <= e->s.chains && blocks * 2 <= most) blocks *= 2;
  return blocks;
}

/* Lanes along blocks of a format: which elements of a block a vector holds must be known, so no loop runs over them. */
static void lanes_in_blocks(Emit *e, const TpStmt *t, int axis, int64_t ext, int most) {
  int rows = e->n_rows;
  for (int64_t at = 0, n = ext / FULL_LANES; at < n; at += most) {
    int mark = emit_mark(e);
    while (at + most > n) most /= 2;
    e->blocks = most;
    e->n_rows = rows * most;
    lane_step(e, t, axis, lin_const(at * FULL_LANES), 0);
    emit_forget(e, mark); /* what was made for so many rows is not for others */
  }
  e->blocks = 1;
  e->n_rows = rows;
}

static void lane_loop(Emit *e, const TpStmt *t, int axis) {
  int64_t ext;
  bool fixed = dx_is_int(e->d, t->extent[axis], &ext);
  IrRef n;
  int blocks = blocks_at_once(e, t, axis, fixed ? ext / FULL_LANES : 8);
  if (!fixed) {
    IrRef len = emit_row_bound(e, t->extent[axis], IR_smax);
    n = ir_shift(&e->b, IR_shr, ir_op2(&e->b, IR_add, len, ir_const_i(&e->b, IR_T_i64, FULL_LANES - 1)), 4);
  } else n = ir_const_i(&e->b, IR_T_i64, ext / FULL_LANES);
  e->lane_axis = axis;
  e->lanes = FULL_LANES;
  if (fixed && emit_along_blocks(e, t->rhs, axis)) lanes_in_blocks(e, t, axis, ext, blocks);
  else if (fixed && ext / FULL_LANES == 1) lane_step(e, t, axis, lin_const(0), 0);
  else if (blocks == 1 && (!fixed || ext >= FULL_LANES)) lane_blocks(e, t, axis, 0, n, 1);
  else if (blocks > 1) {
    int sh = blocks == 8 ? 3 : blocks == 4 ? 2 : 1;
    IrRef groups = ir_shift(&e->b, IR_shr, n, sh);
    lane_blocks(e, t, axis, 0, groups, blocks);
    IrRef done = ir_shift(&e->b, IR_shl, groups, sh);
    if (!fixed || ext / FULL_LANES % blocks) lane_blocks(e, t, axis, done, ir_op2(&e->b, IR_sub, n, done), 1);
  }
  if (fixed && ext % FULL_LANES) lane_rest(e, t, axis, ext / FULL_LANES * FULL_LANES, ext);
  e->lane_axis = -1;
  e->lanes = 1;
}

static void nest_steps(Emit *e, const TpStmt *t, int axis, int lane_axis, Lin first, int64_t n);

enum { UNROLL_MOVES = 16, MAX_MOVED_SIZE = 16 };

static bool has_sum(const Dag *d, Dx x) {
  const DxNode *n = &d->node[x];
  bool has = n->kind == DX_RED;
  for (int i = 0; i < n->n_args; i++) has = has || has_sum(d, n->arg[i]);
  return has;
}

/* Elements that go one by one to places apart: over a run of them what is divided and multiplied for a place is the same, and the rest a constant. */
static bool is_move(const Emit *e, const TpStmt *t, int axis, int lane_axis) {
  return !e->s.naive && lane_axis < 0 && axis == t->n_axes - 1 && e->d->node[t->rhs].size <= MAX_MOVED_SIZE && !has_sum(e->d, t->rhs);
}

static void nest(Emit *e, const TpStmt *t, int axis, int lane_axis) {
  if (e->err) return;
  if (t->block_axis && axis == t->n_axes - 1) {
    emit_block_store(e, t);
    return;
  }
  if (axis == t->n_axes) {
    if (lane_axis >= 0) lane_loop(e, t, lane_axis);
    else if (stores_upper(e, t) && emit_is_word(e, t->rhs)) store_target(e, t, emit_load_upper(e, t->rhs), 0, true);
    else store_target(e, t, emit(e, t->rhs), 0, false);
    return;
  }
  if (axis == lane_axis) {
    nest(e, t, axis + 1, lane_axis);
    return;
  }
  int64_t ext, unit = emit_unit(e, t->rhs, axis);
  bool fixed = dx_is_int(e->d, t->extent[axis], &ext);
  if (!fixed && unit > 1) emit_fail(e, err_new(ERR_UNSUPPORTED, "%s: blocks of weights along an axis of unknown length", t->text));
  if (fixed && unit == 1 && ext >= UNROLL_MOVES && is_move(e, t, axis, lane_axis)) unit = UNROLL_MOVES;
  Loop l;
  IrRef n = fixed ? ir_const_i(&e->b, IR_T_i64, ext / unit) : emit_row_bound(e, t->extent[axis], IR_smax);
  loop_begin(e, &l, n, false, NULL, 0);
  nest_steps(e, t, axis, lane_axis, lin_ref(l.iv, unit), unit);
  loop_end(e, &l, NULL);
  if (fixed) nest_steps(e, t, axis, lane_axis, lin_const(ext / unit * unit), ext % unit);
}

static void nest_steps(Emit *e, const TpStmt *t, int axis, int lane_axis, Lin first, int64_t n) {
  for (int64_t u = 0; u < n; u++) {
    int mark = emit_mark(e);
    e->axis[axis] = first;
    e->axis[axis].k += u;
    nest(e, t, axis + 1, lane_axis);
    emit_forget_axis(e, mark, axis);
  }
}

static void one_row(Emit *e, const TpStmt *t, int n_par, Vals *value) {
  if (value) {
    Vals v = emit(e, t->rhs);
    value->vec = v.vec;
    value->v[e->tile_row] = v.v[0];
  } else nest(e, t, n_par, lane_axis_of(e, t, n_par));
}

/* A statement for the item's rows: in lockstep where rows share what they read, else one row after another. */
static void item_statement(Emit *e, const TpStmt *t, int n_par, int n_rows) {
  bool value = t->n_axes == n_par && e->p->buf[t->buf].local == e->region;
  int ra = e->row_axis;
  Lin m = e->axis[ra];
  if (!value && !e->s.naive && lower_shares_rows(e->p, t, ra, n_rows)) {
    int mark = emit_mark(e);
    e->n_rows = n_rows;
    nest(e, t, n_par, lane_axis_of(e, t, n_par));
    e->n_rows = 1;
    emit_forget_axis(e, mark, ra);
    return;
  }
  Vals all = {n_rows, false, value ? ARENA_ARRAY(e->a, IrRef, n_rows) : NULL};
  for (e->tile_row = 0; e->tile_row < n_rows; e->tile_row++) {
    int mark = emit_mark(e);
    e->axis[ra].k = m.k + e->tile_row;
    one_row(e, t, n_par, value ? &all : NULL);
    if (n_rows > 1) emit_forget_axis(e, mark, ra);
    e->axis[ra] = m;
  }
  e->tile_row = 0;
  if (value) e->local[t->buf] = (Local){.kind = LOCAL_VALUE, .val = all};
}

/* ---- rows regions -------------------------------------------------------------------------------------------------- */
static int64_t axis_bound(const Dag *d, const TpRegion *r, int axis) {
  int64_t max[DX_MAX_AXES];
  for (int i = 0; i < DX_MAX_AXES; i++) max[i] = -1;
  for (int i = 0; i < axis; i++) max[i] = dx_range(d, r->par[i], max).hi - 1;
  return dx_range(d, r->par[axis], max).hi;
}

static bool is_data(const Dag *d, Dx x) { return d->node[x].kind != DX_INT && d->node[x].kind != DX_SYM; }

static IrRef axis_length(Emit *e, const TpRegion *r, int axis) {
  return is_data(e->d, r->par[axis]) ? ir_const_i(&e->b, IR_T_i64, axis_bound(e->d, r, axis)) : lin_value(e, lin_of(e, r->par[axis]));
}

/* Tiles of rows share what they read, which is best kept in the second-level cache while they pass. Not blocks of a state: those are so few bytes for
   their work that they come from further away in time, and what each row has for itself would not (the integer road over keys and values: 4% to 9% slower). */
static bool rows_first(const Emit *e, const TpRegion *r) {
  for (int i = 0; i < r->n_args; i++) if (r->arg[i] >= 0 && r->arg[i] < TP_TABLE && e->p->buf[r->arg[i]].blocks) return false;
  return e->row_axis == 0;
}

/* Items run over the parallel axes: axis 0 slowest, then those whose length depends on data, the rest fastest, so that neighbours read the
   same of what such an axis cuts up; or tiles of axis 0 fastest. The tiled axis counts its full tiles first, then the rows left over; its part of the
   item is returned. */
static IrRef bind_item(Emit *e, IrRef item, const TpRegion *r, IrRef tiled_units) {
  IrRef unit = 0;
  int left = r->n_par;
  bool fastest = tiled_units && rows_first(e, r);
  for (int pass = fastest ? -1 : 0; pass < 3; pass++) {
    for (int i = r->n_par - 1; i >= 0; i--) {
      if ((i == 0 ? fastest ? -1 : 2 : is_data(e->d, r->par[i]) ? 1 : 0) != pass) continue;
      IrRef part = item;
      if (--left > 0) {
        IrRef n = i == e->row_axis && tiled_units ? tiled_units : axis_length(e, r, i);
        part = ir_op2(&e->b, IR_urem, item, n);
        item = ir_op2(&e->b, IR_udiv, item, n);
      }
      e->axis[i] = lin_ref(part, 1);
      if (i == e->row_axis) unit = part;
    }
  }
  return unit;
}

static void item_rows(Emit *e, const TpRegion *r, Lin row, int n_rows, int next) {
  int mark = emit_mark(e);
  e->axis[e->row_axis] = row;
  e->n_rows = n_rows;
  for (int i = 0; i < r->n_par; i++) { /* an item past its axis' end, which depends on the data, is empty */
    if (!is_data(e->d, r->par[i])) continue;
    int work = ir_block_add(e->fn);
    IrRef inside = ir_cmp(&e->b, IR_icmp, IR_P_lt, lin_value(e, e->axis[i]), emit_row_bound(e, r->par[i], IR_smax));
    ir_br(&e->b, inside, work, NULL, 0, next, NULL, 0);
    e->b.at = work;
  }
  e->n_rows = 1;
  emit_forget_axis(e, mark, e->row_axis); /* what was made for rows in lockstep is not for one row */
  for (int i = 0; i < r->n_stmts; i++) item_statement(e, &e->p->stmt[r->stmt[i]], r->n_par, n_rows);
  ir_jmp(&e->b, next, NULL, 0);
  emit_forget(e, mark);
}

/* A multiple of R rows needs no code for rows left over; and only then does a tile of R start at a multiple of R. */
static bool only_full_tiles(const Emit *e, const TpRegion *r, int T) {
  int64_t n;
  return dx_is_int(e->d, r->par[e->row_axis], &n) && n % T == 0;
}

static void lower_rows(Emit *e, const TpRegion *r, IrRef first, IrRef last) {
  Loop l;
  int T = e->s.tile[0];
  IrRef full = 0, units = 0, tile = ir_const_i(&e->b, IR_T_i64, T);
  e->row_axis = e->s.row_axis;
  place_locals(e, T);
  if (T > 1) {
    IrRef n = axis_length(e, r, e->row_axis);
    full = ir_op2(&e->b, IR_udiv, n, tile);
    units = ir_op2(&e->b, IR_add, full, ir_op2(&e->b, IR_urem, n, tile));
  }
  loop_begin(e, &l, ir_op2(&e->b, IR_sub, last, first), false, NULL, 0);
  IrRef unit = bind_item(e, ir_op2(&e->b, IR_add, first, l.iv), r, units);
  int next = ir_block_add(e->fn);
  if (T > 1 && only_full_tiles(e, r, T)) item_rows(e, r, lin_ref(unit, T), T, next);
  else if (T > 1) {
    int many = ir_block_add(e->fn), single = ir_block_add(e->fn);
    ir_br(&e->b, ir_cmp(&e->b, IR_icmp, IR_P_lt, unit, full), many, NULL, 0, single, NULL, 0);
    e->b.at = many;
    item_rows(e, r, lin_ref(unit, T), T, next);
    e->b.at = single;
    unit = ir_op2(&e->b, IR_add, unit, ir_op2(&e->b, IR_mul, full, ir_const_i(&e->b, IR_T_i64, T - 1)));
    item_rows(e, r, lin_ref(unit, 1), 1, next);
  } else item_rows(e, r, lin_ref(unit, 1), 1, next);
  e->b.at = next;
  loop_end(e, &l, NULL);
  ir_ret(&e->b);
}

/* ---- contractions -------------------------------------------------------------------------------------------------- */
static void need_panel(Emit *e, int buf, bool code, Dx expr) {
  Panel *p = &e->panel[buf];
  int64_t K;
  if (!code && p->value && p->expr && (!expr || !panel_same(e->d, expr, p->expr))) p->expr = 0; /* wanted in two forms: as they are, which is enough for both */
  if (p->code || p->value) return;
  CHECK(dx_is_int(e->d, e->p->buf[buf].dim[1], &K));
  p->code = code, p->value = !code, p->expr = expr, p->off = e->scratch_bytes;
  e->scratch_bytes += ROUND_UP(K * panel_bytes(e, code) + 64, 64);
}

static void keep_floats(Emit *e, int buf, WgtAttr attr) {
  int64_t K = 0;
  const FormatForm *f = e->p->buf[buf].fmt;
  const DxNode *n = &f->dag->node[emit_attr_form(f, attr)];
  if (e->panel[buf].kept[attr] || f->code < 0 || (n->kind == DX_LEAF && f->leaf[n->ival].mem == IR_M_f32) || !dx_is_int(e->d, e->p->buf[buf].dim[1], &K)) return;
  e->panel[buf].kept[attr] = 1 + e->scratch_bytes;
  e->scratch_bytes += K / emit_attr_shared(f, attr) * 64;
}

static void find_panels(Emit *e, Dx x) {
  const DxNode n = e->d->node[x];
  if (!dag_walk_first(e->d, x)) return;
  int of = lower_made_of_weight(e->d, x);
  if (of >= 0 && !e->p->buf[of].raw) {
    need_panel(e, of, false, x);
    return;
  }
  StepSum s;
  if (e->s.steps && lower_sum_of_steps(e->p, x, &s)) {
    bool first = !e->panel[s.buf].code && !e->panel[s.buf].value;
    need_panel(e, s.buf, true, 0);
    if (first) e->panel[s.buf].steps = true;
    if (s.add) find_panels(e, s.add);
    return;
  }
  of = e->s.pairs ? lower_weight_of_pair(e->p, x) : -1;
  if (of >= 0) need_panel(e, of, false, 0);
  for (int i = 0; i < n.n_args; i++) find_panels(e, n.arg[i]);
  if (n.kind == DX_WGT && !e->p->buf[n.ival].raw && (n.op == WA_SCALE || n.op == WA_OFFSET || n.op == WA_UNIT)) keep_floats(e, (int)n.ival, (WgtAttr)n.op);
  if (n.kind != DX_WGT || e->p->buf[n.ival].raw || (n.op != WA_CODE && n.op != WA_VALUE)) return;
  if (n.op == WA_CODE) e->panel[n.ival].steps = false; /* wanted as they are, too */
  if (e->p->buf[n.ival].fmt->code >= 0) need_panel(e, (int)n.ival, n.op == WA_CODE, 0);
  else if (e->panel[n.ival].value) e->panel[n.ival].expr = 0;
}

static void ask_rows(Emit *e, int buf, const Dx *index, int n_index) {
  if (e->p->buf[buf].local == e->region || e->p->buf[buf].blocks) return;
  for (e->row = 0; e->row < e->n_rows; e->row++) emit_prefetch_at(e, buf_base(e, buf), lin_scale(buf_index(e, buf, index, n_index), ir_mem_bytes[buf_mem(e, buf)]));
  e->row = 0;
}

/* What is read at the result's own place, outside of sums. */
static void ask_reads(Emit *e, Dx x) {
  const DxNode n = e->d->node[x];
  if (n.kind == DX_RED || !dag_walk_first(e->d, x)) return;
  if (n.kind == DX_LOAD && n.axes >> e->row_axis & 1 && n.axes >> e->lane_axis & 1) ask_rows(e, (int)n.ival, n.arg, n.n_args);
  else for (int i = 0; i < n.n_args; i++) ask_reads(e, n.arg[i]);
}

/* A tile's results are one line of each row, rows apart, which no prefetcher sees coming: asked for before the sums, they are there behind them. */
static void ask_for_results(Emit *e, const TpRegion *r) {
  for (int i = 0; i < r->n_stmts; i++) {
    const TpStmt *t = &e->p->stmt[r->stmt[i]];
    dag_walk_begin(e->d);
    ask_reads(e, t->rhs);
    ask_rows(e, t->buf, t->index, t->n_index);
  }
}

static void tile_rows(Emit *e, const TpRegion *r) {
  int mark = emit_mark(e);
  if (e->s.block_rows) ask_for_results(e, r);
  for (int i = 0; i < r->n_stmts; i++) {
    const TpStmt *t = &e->p->stmt[r->stmt[i]];
    Vals v = emit(e, t->rhs);
    if (e->p->buf[t->buf].local == e->region) e->local[t->buf] = (Local){.kind = LOCAL_VALUE, .val = v, .by_blocks = e->blocks > 1};
    else store_target(e, t, v, 0, false);
  }
  emit_forget(e, mark);
}

/* Rows in tiles of falling size; whatever the tile, each row's arithmetic is the same. */
static void all_rows(Emit *e, const TpRegion *r, IrRef done, IrRef M) {
  e->lane_axis = 1;
  int n_matrix = e->s.n_matrix, n_sizes = n_matrix + e->s.n_tiles;
  for (int i = 0; i < n_sizes; i++) {
    int T = i < n_matrix ? e->s.matrix[i] : e->s.tile[i - n_matrix];
    e->matrix = i < n_matrix;
    IrRef left = ir_op2(&e->b, IR_sub, M, done);
    IrRef n = T == 1 ? left : ir_op2(&e->b, IR_udiv, left, ir_const_i(&e->b, IR_T_i64, T));
    Loop l;
    loop_begin(e, &l, n, false, NULL, 0);
    e->axis[0] = lin_add(e, lin_ref(l.iv, T), lin_ref(done, 1));
    e->n_rows = T * e->blocks;
    tile_rows(e, r);
    e->n_rows = 1;
    loop_end(e, &l, NULL);
    if (i + 1 < n_sizes) done = ir_op2(&e->b, IR_add, done, ir_op2(&e->b, IR_mul, n, ir_const_i(&e->b, IR_T_i64, T)));
  }
  e->lane_axis = -1;
}

static int64_t contraction_tiles(const Dag *d, const TpStmt *t) {
  int64_t n = 0;
  CHECK(dx_is_int(d, t->extent[1], &n), "a contraction's rows are not known");
  return (n + PACK_ROWS - 1) / PACK_ROWS;
}

/* The rows of one tile of weights: a block of lanes after another. */
static void one_tile(Emit *e, const TpRegion *r, IrRef from, IrRef to) {
  Loop subs;
  if (e->lanes < PACK_ROWS) {
    loop_begin(e, &subs, ir_const_i(&e->b, IR_T_i64, PACK_ROWS / e->lanes), true, NULL, 0);
    e->sub = subs.iv;
  }
  e->axis[1] = lin_ref(e->tile, PACK_ROWS);
  if (e->sub) e->axis[1] = lin_add(e, e->axis[1], lin_ref(e->sub, e->lanes));
  e->axis[1].lane = 1;
  all_rows(e, r, from, to);
  if (e->sub) loop_end(e, &subs, NULL);
  e->sub = 0;
}

/* Tiles first .. last - 1 as far as they fill the blocks of lanes side by side: what hides the latency of one row's only sum. Out: the first left over. */
static IrRef tiles_side_by_side(Emit *e, const TpRegion *r, IrRef first, IrRef last, IrRef M) {
  Loop l;
  IrRef tiles = ir_const_i(&e->b, IR_T_i64, e->s.side * e->s.lanes / PACK_ROWS), n = ir_op2(&e->b, IR_udiv, ir_op2(&e->b, IR_sub, last, first), tiles);
  loop_begin(e, &l, n, false, NULL, 0);
  e->tile = ir_op2(&e->b, IR_add, first, ir_op2(&e->b, IR_mul, l.iv, tiles));
  e->lanes = e->s.lanes;
  e->axis[1] = lin_ref(e->tile, PACK_ROWS);
  e->axis[1].lane = 1;
  e->blocks = e->s.side;
  all_rows(e, r, zero64(e), M);
  e->blocks = 1;
  loop_end(e, &l, NULL);
  return ir_op2(&e->b, IR_add, first, ir_op2(&e->b, IR_mul, n, tiles));
}

static void lower_contraction(Emit *e, const TpRegion *r, IrRef first, IrRef last) {
  Loop tiles;
  IrRef M = lin_value(e, lin_of(e, e->p->stmt[r->stmt[0]].extent[0]));
  dag_walk_begin(e->d);
  if (e->s.stage) for (int i = 0; i < r->n_stmts; i++) find_panels(e, e->p->stmt[r->stmt[i]].rhs);
  if (e->s.n_matrix) {
    e->sums_off = e->scratch_bytes;
    e->scratch_bytes += SUMS_BYTES;
    ir_tile(&e->b, IR_tbegin, e->s.matrix_bytes);
  }
  if (e->s.side) first = tiles_side_by_side(e, r, first, last, M);
  loop_begin(e, &tiles, ir_op2(&e->b, IR_sub, last, first), false, NULL, 0);
  e->tile = ir_op2(&e->b, IR_add, first, tiles.iv);
  e->lanes = e->s.lanes;
  IrRef from = zero64(e), to = M;
  if (e->s.block_rows) { /* items run over the tiles of one block of rows, then the next block */
    IrRef n_tiles = ir_const_i(&e->b, IR_T_i64, contraction_tiles(e->d, &e->p->stmt[r->stmt[0]])), rows = ir_const_i(&e->b, IR_T_i64, e->s.block_rows);
    from = ir_op2(&e->b, IR_mul, ir_op2(&e->b, IR_udiv, e->tile, n_tiles), rows);
    to = ir_op2(&e->b, IR_smin, M, ir_op2(&e->b, IR_add, from, rows));
    e->tile = ir_op2(&e->b, IR_urem, e->tile, n_tiles);
  }
  for (int b = 0; b < e->p->n_bufs; b++) if (e->panel[b].code || e->panel[b].value) emit_panel(e, b);
  one_tile(e, r, from, to);
  loop_end(e, &tiles, NULL);
  if (e->s.n_matrix) ir_tile(&e->b, IR_tend, 0);
  ir_ret(&e->b);
}

Err *lower_region(Arena *a, const TpPlan *plan, int region, const Sched *s, const char *name, IrFn **out, int64_t *scratch_bytes) {
  IrRef first, last;
  Emit *e = emit_region(a, plan, region, s, name, &first, &last);
  TpRegion flat = *e->r;
  if (flat.contraction && s->naive) {
    const TpStmt *t = &e->p->stmt[flat.stmt[0]];
    flat.contraction = false;
    flat.n_par = 2;
    memcpy(flat.par, t->extent, sizeof(Dx) * 2);
    e->r = &flat;
  }
  if (flat.contraction) lower_contraction(e, &flat, first, last);
  else lower_rows(e, &flat, first, last);
  if (e->err) return err_wrap(e->err, "kernel %s", name);
  *out = e->fn;
  *scratch_bytes = e->scratch_bytes;
  return NULL;
}

int64_t region_items(const TpPlan *plan, int region, const Sched *s, const int64_t *sym) {
  const TpRegion *r = &plan->region[region];
  const Dag *d = plan->tp->dag;
  const TpStmt *t = &plan->tp->stmt[r->stmt[0]];
  int64_t n = 1, v;
  for (int i = 0; i < (r->contraction ? 2 : r->n_par); i++) {
    Dx x = r->contraction ? t->extent[i] : r->par[i];
    int64_t ext = dx_is_int(d, x, &v) ? v : d->node[x].kind == DX_SYM ? sym[d->node[x].ival] : axis_bound(d, r, i);
    if (r->contraction && !s->naive) n *= i == 0 ? (s->block_rows ? (ext + s->block_rows - 1) / s->block_rows : 1) : (ext + PACK_ROWS - 1) / PACK_ROWS;
    else n *= i == s->row_axis ? ext / s->tile[0] + ext % s->tile[0] : ext;
  }
  return n;
}

/* ---- packing and decoding ------------------------------------------------------------------------------------------ */
static void pack_codes(Emit *e, const FormatForm *f, IrRef base, IrRef offs, IrRef out, Lin to, int chunk) {
  const PackLeaf *lf = &f->leaf[f->code];
  int quads = f->chunk / 4;
  IrRef *word = ARENA_ARRAY(e->a, IrRef, quads);
  IrType t = IR_T_i32x16;
  for (int q = 0; q < quads; q++) {
    Dx code[4];
    for (int k = 0; k < 4; k++) {
      int i = chunk * f->chunk + q * 4 + k;
      code[k] = lf->index ? lf->index[i] : dx_op2(f->dag, DXO_SUB, lf->at[i], dx_int(f->dag, lf->lo));
    }
    word[q] = emit_code_bytes(e, f, code, base, offs);
  }
  for (int v = 0; v < format_vectors(f); v++, to.k += 64) {
    IrRef sum = 0;
    for (int q = 0; q < quads; q++) {
      PackPiece piece[PACK_PIECES];
      int n = format_pieces(f, q, piece);
      for (int i = 0; i < n; i++) {
        if (piece[i].vec != v) continue;
        int bits = piece[i].bits, by = piece[i].at - piece[i].to;
        IrRef x = word[q];
        if (bits < 8) x = ir_op2(&e->b, IR_and, x, ir_const_i(&e->b, t, (int32_t)(0x01010101u * (uint32_t)(((1 << bits) - 1) << piece[i].to))));
        if (by) x = ir_shift(&e->b, by > 0 ? IR_shl : IR_shr, x, by > 0 ? by : -by);
        sum = sum ? ir_op2(&e->b, IR_or, sum, x) : x;
      }
    }
    emit_store_at(e, IR_M_i32, out, to, sum, 0);
  }
}

/* A shared scale or a raw float: copied bit by bit where it is a field. */
static void pack_leaf(Emit *e, const FormatForm *f, const PackLeaf *lf, IrRef base, IrRef offs, IrRef out, Lin to, int at) {
  const DxNode n = f->dag->node[lf->at[at]];
  int bytes = ir_mem_bytes[lf->mem];
  if (!lf->is_int && n.kind == DX_PART && n.op == lf->mem) {
    IrMem m = bytes == 2 ? IR_M_u16 : IR_M_i32;
    emit_store_at(e, m, out, to, emit_part(e, f, &n, m, emit_block_value(e, f, n.arg[0], base, offs, lin_const(0))), 0);
    return;
  }
  if (!lf->is_int && n.kind == DX_FIELD && n.op == lf->mem && !n.n_args) {
    IrMem m = bytes == 2 ? IR_M_u16 : IR_M_i32;
    emit_store_at(e, m, out, to, ir_gather(&e->b, m, IR_T_i32x16, base, offs, n.ival), 0);
    return;
  }
  IrRef v = emit_block_value(e, f, lf->at[at], base, offs, lin_const(0));
  if (lf->is_int && lf->lo && !lf->as_is) v = ir_op2(&e->b, IR_sub, v, ir_const_i(&e->b, IR_T_i32x16, lf->lo));
  emit_store_at(e, lf->mem, out, to, v, 0);
}

void emit_tables(Emit *e, const FormatForm *f, IrRef args, IrType ptr) {
  e->arg = ARENA_ARRAY(e->a, IrRef, DX_MAX_TABLES);
  for (int i = 0; i < f->dag->n_tabs; i++) e->arg[i] = ir_load(&e->b, IR_M_ptr, ptr, args, 0, 1, 8 * (FORMAT_ARG_TABLES + i));
}

Err *lower_pack(Arena *a, const FormatForm *f, int64_t K, const char *name, IrFn **out_fn) {
  IrRef args, first, last;
  Emit *e = emit_new(a, name, &args, &first, &last);
  PackLayout l = format_layout(f, K);
  IrType ptr = ir_ptr_type(e->fn, (IrPtr){.mem = IR_M_u8, .space = IR_S_global, .n_dims = 1, .dim = {-1}});
  IrRef bases = ir_load(&e->b, IR_M_ptr, ptr, args, 0, 1, 0), offsets = ir_load(&e->b, IR_M_ptr, ptr, args, 0, 1, 8), out = ir_load(&e->b, IR_M_ptr, ptr, args, 0, 1, 16);
  Loop tiles, blocks;
  emit_tables(e, f, args, ptr);
  for (int i = 0; f->layout && i < f->layout->n_parts + 2; i++) e->part[i] = ir_load(&e->b, IR_M_ptr, ptr, bases, 0, 1, 8 * i);
  loop_begin(e, &tiles, ir_op2(&e->b, IR_sub, last, first), false, NULL, 0);
  IrRef tile = ir_op2(&e->b, IR_add, first, tiles.iv);
  IrRef row0 = f->layout ? bases : ir_load(&e->b, IR_M_ptr, ptr, bases, tile, 8, 0);
  IrRef offs = emit_load_at(e, IR_M_i32, FULL_LANES, offsets, lin_ref(tile, 64));
  loop_begin(e, &blocks, ir_const_i(&e->b, IR_T_i64, K / f->block), false, NULL, 0);
  IrRef base = f->layout ? row0 : ir_padd(&e->b, row0, lin_value(e, lin_ref(blocks.iv, f->n_bytes)));
  e->part_block = blocks.iv;
  if (f->dag->far) e->part_row = ir_op1(&e->b, IR_sext, emit_load_at(e, IR_M_i32, 1, offsets, lin_ref(tile, 64)));
  Lin tile_at = lin_ref(tile, l.tile_bytes);
  for (int s = 0; s < f->n_leaves; s++) {
    const PackLeaf *lf = &f->leaf[s];
    int per = s == f->code ? f->chunk : lf->gran;
    for (int g = 0; g < f->block / per; g++) {
      Lin k = lin_ref(blocks.iv, f->block);
      k.k = g * per;
      Lin to = lin_add(e, tile_at, emit_leaf_byte(e, f, &l, s, k));
      if (s == f->code) pack_codes(e, f, base, offs, out, to, g);
      else pack_leaf(e, f, lf, base, offs, out, to, g * per);
    }
  }
  loop_end(e, &blocks, NULL);
  loop_end(e, &tiles, NULL);
  ir_ret(&e->b);
  if (e->err) return err_wrap(e->err, "kernel %s", name);
  *out_fn = e->fn;
  return NULL;
}

Err *lower_decode(Arena *a, const FormatForm *f, const char *name, IrFn **out_fn) {
  IrRef args, first, last;
  Emit *e = emit_new(a, name, &args, &first, &last);
  IrType ptr = ir_ptr_type(e->fn, (IrPtr){.mem = IR_M_u8, .space = IR_S_global, .n_dims = 1, .dim = {-1}});
  IrRef in = ir_load(&e->b, IR_M_ptr, ptr, args, 0, 1, 0), out = ir_load(&e->b, IR_M_ptr, ptr, args, 0, 1, 8);
  Loop l;
  emit_tables(e, f, args, ptr);
  loop_begin(e, &l, ir_op2(&e->b, IR_sub, last, first), false, NULL, 0);
  IrRef block = ir_op2(&e->b, IR_add, first, l.iv);
  IrRef base = ir_padd(&e->b, in, lin_value(e, lin_ref(block, f->decl->n_bytes)));
  for (int i = 0; i < (int)f->decl->block; i++) {
    Lin to = lin_ref(block, 4 * f->decl->block);
    to.k = 4 * i;
    emit_store_at(e, IR_M_f32, out, to, emit_block_value(e, f, f->x[i], base, 0, lin_const(0)), 0);
  }
  loop_end(e, &l, NULL);
  ir_ret(&e->b);
  if (e->err) return err_wrap(e->err, "kernel %s", name);
  *out_fn = e->fn;
  return NULL;
}
