/* Private to opt: the state of turning expressions into IR (emit.c) inside the loops of a region (lower.c). */
#ifndef LUMEN_TP_EMIT_H
#define LUMEN_TP_EMIT_H
#include "opt/opt.h"

enum { LIN_TERMS = 10, MAX_TILE_ROWS = 32, SUMS_BYTES = 4096 }; /* SUMS_BYTES: four matrix tiles of sums on their way through scratch */

/* An integer as a sum: coef * value + .. + k + lane * (number of the lane). */
typedef struct Lin { int n; struct { IrRef v; int64_t c; } t[LIN_TERMS]; int64_t k, lane; } Lin;

/* Values of one expression: one for all rows of the tile or one per row; scalars or vectors of the current lanes. */
typedef struct Vals { int n; bool vec; IrRef *v; } Vals;

typedef enum LocalKind { LOCAL_NONE, LOCAL_VALUE, LOCAL_SCRATCH } LocalKind;
typedef struct Local { LocalKind kind; Vals val; bool by_blocks; int64_t off, row_bytes; } Local; /* of a tile of rows: one value (by_blocks: for each block of lanes) or stretch of scratch per row */
/* Weights unpacked for the current tile of 16 rows: codes, or values as `expr` makes them of one weight (0: as they are). steps: codes times their
   step, as the form says. kept: by WgtAttr, 1 + where floats of groups stand that take operations to make, 0: they are not kept. */
typedef struct Panel { bool code, value, steps; Dx expr; int64_t off, kept[WA_UNIT + 1]; } Panel;

/* Values already made in an IR block, by what they are. */
typedef struct Made { struct { uint64_t key; IrRef v; } at[256]; int n, block; } Made;

typedef struct Emit {
  Arena *a; IrFn *fn; IrBuild b;
  const TpPlan *plan; Tp *p; Dag *d; const TpRegion *r; int region; Sched s;
  IrRef scratch;
  IrRef *arg;                     /* loaded argument table, as TpRegion.arg; pack and decode: the format's tables */
  IrRef newest;             /* of the loads of packed weights */
  Lin axis[DX_MAX_AXES];
  int lane_axis, lanes;           /* -1: scalars; lanes are consecutive values of that axis */
  /* Rows in lockstep: `blocks` neighbouring blocks of lanes for each row of the tile, n_rows of both together. Row r stands for the tile's row
     r / blocks, whose row_axis is axis[row_axis] + r / blocks, and for the lanes after the first r % blocks blocks. */
  int n_rows, row, row_axis, blocks;
  bool matrix; int n_sums;        /* rows in matrix tiles; sums made so far, which take turns in the tiles */
  int64_t sums_off;               /* of the tiles' sums in scratch */
  int tile_row;                   /* rows one after another: which of the item's tile, whose locals it uses */
  IrRef tile, sub;                /* contraction: tile of 16 weight rows and block of lanes in it */
  Local *local; Panel *panel;
  int64_t scratch_bytes;
  Vals **memo; Dx *stack; int n_stack, cap_stack;
  Made load, div;                 /* loads, and what is made of several; divisions: loads with equal addresses are told by their terms */
  const Lin *fill;                /* a panel is being made: the weight's position along K, whatever its index says */
  struct { const FormatForm *f; uint64_t at; IrRef *v; int n; } field; /* values over one block's fields, made in this IR block */
  IrRef part[LAYOUT_MAX_PARTS + 2], part_block; /* packing a layout: addresses of its tensors, the block's number */
  IrRef part_row;                /* the number of a tile's first row; 0: no tensor needs it */
  int64_t n_steps;                /* of emitting, bounded: loops in loops are unrolled */
  Err *err;
} Emit;

Lin lin_const(int64_t k);
Lin lin_ref(IrRef v, int64_t coef);
Lin lin_add(Emit *e, Lin a, Lin b);
Lin lin_scale(Lin a, int64_t c);
Lin lin_divmod(Emit *e, Lin l, int64_t D, bool mod); /* of a form that is never negative; lanes may not cross a multiple of D */
Lin lin_of(Emit *e, Dx x);                     /* integer expression under the current bindings */
IrRef lin_value(Emit *e, Lin l);               /* i64 */
uint64_t lin_hash(const Lin *l, uint64_t h);   /* of all but the lanes */
IrRef emit_made(const Emit *e, Made *m, uint64_t key); /* 0: not in the present block */
IrRef emit_keep(Made *m, uint64_t key, IrRef v); /* after emit_made found none -> v */
IrRef emit_load_at(Emit *e, IrMem m, int lanes, IrRef ptr, Lin byte);
bool emit_is_word(const Emit *e, Dx x);        /* a load of a float that lies in memory, the same for all lanes; then */
Vals emit_load_upper(Emit *e, Dx x);           /* its upper 16 bits */
void emit_prefetch_at(Emit *e, IrRef ptr, Lin byte); /* a hint */
void emit_store_at(Emit *e, IrMem m, IrRef ptr, Lin byte, IrRef v, int n_lanes);

Vals emit(Emit *e, Dx x);
IrRef emit_pick(Emit *e, Vals v, int row, bool vec);
bool emit_in_rows(const Emit *e, Dx x);        /* rows in lockstep each have their own value of x */
int emit_mark(Emit *e);
void emit_forget(Emit *e, int mark);           /* what was emitted since does not dominate what follows */
void emit_forget_axis(Emit *e, int mark, int axis);
void emit_fail(Emit *e, Err *err);
IrRef emit_row_bound(Emit *e, Dx x, IrOp op);  /* op: smin or smax over the rows of the tile */
bool emit_reads_raw(const Emit *e, Dx x);      /* rows of a file, which end where they end: no vector may reach past them */
bool emit_lanes_fit(Emit *e, Dx x, int axis, int lanes); /* every load contiguous or the same over `lanes` values of axis */
Lin buf_index(Emit *e, int buf, const Dx *index, int n_index); /* element offset of an access, in elements of the (possibly local) buffer */
void emit_buf_strides(const Emit *e, int buf, int64_t *stride);
IrRef buf_base(Emit *e, int buf);
IrMem buf_mem(const Emit *e, int buf);

int64_t emit_lane_coef(const Dag *d, Dx x, int axis, int lanes, bool *ok); /* the same over `lanes` values that start at a multiple of as many */

/* pair.c: a chain's term of two products of bfloat16 that lie together, added to the sums; false: it is none, or the target has no such product. */
bool emit_pair(Emit *e, Dx term, Vals *acc);
Vals emit_load_pairs(Emit *e, Dx x);           /* what a load of bfloat16 reads and the element behind it, as 32 bits */
Vals emit_weight_pairs(Emit *e, Dx x);         /* weight.c: the same of a packed weight */

/* Loops: body runs for iv = 0 .. n-1; carried values in and out. */
typedef struct Loop { int body, exit; IrRef iv, n; IrRef carried[2 * MAX_TILE_ROWS]; int n_carried; int mark; } Loop;
void loop_begin(Emit *e, Loop *l, IrRef n, bool never_empty, const IrRef *init, int n_init);
void loop_end(Emit *e, Loop *l, const IrRef *next);  /* afterwards l->carried holds the final values */

/* lower.c */
Emit *emit_new(Arena *a, const char *name, IrRef *args, IrRef *first, IrRef *last);
void emit_tables(Emit *e, const FormatForm *f, IrRef args, IrType ptr); /* loads the addresses of the form's tables */

/* weight.c */
Vals emit_weight(Emit *e, Dx x);
bool emit_dot4(Emit *e, Dx red, Vals *init, Vals *out); /* an integer contraction of packed codes; false: not of that shape */
bool emit_on_fours(Emit *e, Dx position, int axis); /* where axis is 0 a multiple of four, for every row: four codes lie in one word */
int64_t emit_unit(Emit *e, Dx body, int axis); /* steps of axis after which positions inside packed chunks repeat */
void emit_field_memo(Emit *e, const FormatForm *f, uint64_t at); /* e->field is of what lies at `at` from here on */
Dx emit_attr(const FormatForm *f, WgtAttr attr, int64_t i); /* of element i of a block, over its fields */
Dx emit_attr_form(const FormatForm *f, WgtAttr attr); /* over leaves: of a group's attributes */
int64_t emit_attr_shared(const FormatForm *f, WgtAttr attr); /* by so many elements */
/* blocks.c */
bool emit_block_dot4(Emit *e, const DxNode *code, const DxNode *a, int axis, int64_t len, Vals *init, Vals *out); /* emit_dot4 of codes of a state */
/* The same where the sum runs over rows and lanes along the blocks; less: subtracted from the codes, then a's bytes are 0 .. a_max. */
bool emit_rows_dot4(Emit *e, const DxNode *code, const DxNode *a, int64_t less, int a_max, int axis, int64_t len, Vals *init, Vals *out);
IrRef emit_block_element(Emit *e, const DxNode *load, bool vec);
bool emit_blocks_fit(Emit *e, const DxNode *load, int axis, int lanes);
bool emit_along_blocks(Emit *e, Dx x, int axis); /* something in x lies in blocks along the axis */
void emit_block_store(Emit *e, const TpStmt *t);
/* encode.c: the numbers of 16 blocks, each as 16 lanes of its kind in scratch from `at` on, 64 bytes a number. x: floats; offs: bytes to each block's
   first. Scratch it takes: emit_encode_bytes. */
void emit_encode(Emit *e, const FormatForm *f, IrRef x, IrRef offs, int64_t at);
int64_t emit_encode_bytes(const FormatForm *f);
void emit_encoded(Emit *e, const FormatForm *f, int i, int64_t at, IrRef lane, IrRef to, Lin byte); /* one number of one lane: to memory */
/* quad.c: four codes of each row while packing, one a byte. */
IrRef emit_code_bytes(Emit *e, const FormatForm *f, const Dx *x, IrRef base, IrRef offs);
/* The same of blocks wherever they lie: word gives four bytes that begin at a field's, 0: they do not lie so; value one expression (NULL: it cannot);
   same: x[0] of four blocks, whose bytes are the word's. 0: a code may not fit. */
typedef struct QuadFrom { void *ctx; IrRef (*word)(void *ctx, const DxNode *field); IrRef (*value)(void *ctx, Dx x); bool same; } QuadFrom;
IrRef emit_quad(Emit *e, const FormatForm *f, const Dx *x, const QuadFrom *from);
Lin emit_leaf_byte(Emit *e, const FormatForm *f, const PackLayout *l, int s, Lin k);
IrRef emit_form(Emit *e, const FormatForm *f, Dx x, int buf, Lin k); /* template over leaves, current lanes */
IrRef emit_block_value(Emit *e, const FormatForm *f, Dx x, IrRef base, IrRef offs, Lin byte); /* over fields; offs: gather lanes or 0 */
IrRef emit_part(Emit *e, const FormatForm *f, const DxNode *n, IrMem m, IrRef at); /* of a layout's tensor; at: DX_PART's byte, by row */
IrRef emit_op(Emit *e, DxOp op, DxType type, const IrRef *arg, int n_args, bool logical); /* what the lanes have an instruction for */
/* intop.c: any operation, x a DX_OP; axis_max as dx_range has it; may change arg. */
IrRef emit_node_op(Emit *e, const Dag *d, Dx x, const int64_t *axis_max, IrRef *arg);
IrRef emit_lookup(Emit *e, const FormatForm *f, const DxNode *n, IrRef index, int lanes); /* of a table */
void emit_panel(Emit *e, int buf);             /* unpack codes or values of the current tile into scratch */
bool emit_from_panel(Emit *e, Dx x, Vals *out); /* a panel keeps what x says of its weight */
/* step.c: a sum over a panel of codes times their step (false: not of that shape, or there is no such panel), and what the panel keeps of four codes. */
bool emit_steps(Emit *e, Dx x, const Vals *onto, Vals *out);
IrRef emit_stepped(Emit *e, int buf, Lin k, IrRef codes);
bool emit_tile_bytes(Emit *e, Dx red, Vals *out); /* tile.c: both false: not in tiles */
bool emit_tile_pairs(Emit *e, Dx red, Vals *out);
Dx panel_weight(const Dag *d, Dx x);           /* the only weight of an expression over constants; at most 0: there is none, or more */
int64_t panel_bytes(const Emit *e, bool code); /* of an element, for 16 rows */
bool panel_same(const Dag *d, Dx a, Dx b);     /* equal but for which element of the weight they are of */
#endif
