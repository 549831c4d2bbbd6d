/* opt: from checked texts to scheduled IR. Ops are instantiated into a flat program of statements in index notation over buffers;
   equal statements are merged; statements are grouped into regions that run in parallel; each region becomes one IR function.

     op text --inst.c--> TpStmt (expression DAG) --region.c--> TpRegion --lower.c/emit.c--> IrFn
     format text --format.c--> canonical form and packing --lower.c--> packing and decoding functions

   Nothing here knows an op, a format or a model by name: contractions, reductions and layouts are found in the structure of the text. */
#ifndef LUMEN_TP_H
#define LUMEN_TP_H
#include "ir/ir.h"
#include "lang/lang.h"

/* ---- dag.c: hash-consed expressions ---------------------------------------------------------------------------------- */
typedef int32_t Dx; /* a node; 0 is none */
typedef enum DxKind { DX_NONE, DX_INT, DX_FLT, DX_AXIS, DX_SYM, DX_LOAD, DX_WGT, DX_FIELD, DX_PART, DX_LEAF, DX_TAB, DX_OP, DX_RED } DxKind;
typedef enum DxOp {
  DXO_NONE,
#define DXOP(name, n_args, type, meaning) DXO_##name,
#include "opt/dxops.def"
#undef DXOP
  DXO_COUNT
} DxOp;
typedef enum DxType { DT_INT, DT_F32, DT_BOOL } DxType;
typedef enum WgtAttr { WA_VALUE, WA_CODE, WA_SCALE, WA_OFFSET, WA_STEP, WA_UNIT } WgtAttr;
enum { DX_MAX_ARGS = 6, DX_BINDER = 16, DX_MAX_AXES = 32 }; /* axes of a statement are 0.., binders of its reductions DX_BINDER + depth */

typedef struct DxNode {
  uint8_t kind, op, type, n_args; /* op: DxOp; for DX_RED the ExprOp RED_*; for DX_WGT a WgtAttr; for DX_FIELD, DX_PART and DX_TAB an IrMem */
  uint32_t axes;                  /* axes it depends on, one bit each; binders it binds itself excluded */
  Dx arg[DX_MAX_ARGS];            /* DX_LOAD: indices; DX_WGT: row, k; DX_PART: byte, without its constant; DX_TAB: index; DX_FIELD: none, or the
                                     element counted from there, which the data chooses; DX_RED: extent, body */
  int64_t ival;                   /* DX_INT; DX_AXIS number; DX_SYM number; DX_LOAD, DX_WGT buffer; DX_FIELD byte offset; DX_PART a DxPart; DX_LEAF slot; DX_TAB table; DX_RED axis number */
  float fval;                     /* DX_FLT; DX_FIELD, DX_PART: 1 where 32 bits are an unsigned int */
  uint32_t size : 18, depth : 14; /* nodes of the expression written out, and its height; they saturate */
} DxNode;
/* A tensor's element in a layout: number of the tensor, constant part of the byte, and where the loader has checked it the number of values, from 0. */
typedef struct DxPart { int part; int64_t byte, most; } DxPart;
enum { DX_MAX_SIZE = 1 << 15, DX_MAX_DEPTH = 1000 }; /* of what a text may say: walks take time by the one, stack by the other */

/* A table of the texts as it lies in memory. */
typedef struct DxTable { const TableDecl *decl; IrMem mem; const void *data; double lo, hi; int n_distinct; double distinct[64]; } DxTable; /* n_distinct 65: more than are listed */
enum { DX_MAX_TABLES = 8 };

typedef struct DxRange { int64_t lo, hi; } DxRange;
typedef struct Dag {
  Arena *arena;
  DxTable tab[DX_MAX_TABLES]; int n_tabs;
  DxNode *node; int n, cap;
  Dx *table; int n_table;
  DxPart *part; int n_parts, cap_parts;            /* interned: DxNode.ival of DX_PART */
  uint32_t far; int64_t reach;                     /* a layout's tensors of more than 31 bits of bytes, one bit each; so many rows may one tile of them span, 0: any */
  DxRange *load_range; int n_load_range, cap_load_range; /* by buffer: the integers it holds; hi 0: not known */
  const int64_t *data_max; int n_data_max;         /* by buffer, only during tp_data_check: it holds 0 .. this; -1 unknown */
  uint32_t *seen, seen_now; int n_seen;            /* marks of the walk under way: expressions share nodes, a walk visits each once */
} Dag;
void dag_walk_begin(Dag *d);
bool dag_walk_first(Dag *d, Dx x);         /* the first visit of this walk; walks do not nest */
Dag *dag_new(Arena *a);
Dx dx_int(Dag *d, int64_t v);
Dx dx_flt(Dag *d, float v);
Dx dx_axis(Dag *d, int axis);
Dx dx_node(Dag *d, DxNode n);              /* hash-consed, after folding and identities that keep every bit */
Dx dx_op1(Dag *d, DxOp op, Dx a);
Dx dx_op2(Dag *d, DxOp op, Dx a, Dx b);    /* converts an int argument to float where the other is float */
Dx dx_op3(Dag *d, DxOp op, Dx a, Dx b, Dx c);
Dx dx_to_f32(Dag *d, Dx a);
Dx dx_truth(Dag *d, Dx a);                 /* a condition as it is, an int as != 0 */
bool dx_is_int(const Dag *d, Dx x, int64_t *v);
bool dx_is_product(const Dag *d, Dx x, DxKind kind, Dx *of, Dx *other); /* of a node of that kind and another */
int64_t dx_coef(const Dag *d, Dx x, int axis, bool *ok); /* d x / d axis when constant */
bool dx_too_large(const Dag *d, Dx x);     /* beyond DX_MAX_SIZE or DX_MAX_DEPTH */
IrMem dx_mem(const char *elt);             /* of a kind of element in a text; IR_M_none: no kind, so a format */
Dx dx_part(Dag *d, IrMem m, bool is_unsigned, int part, Dx byte, int64_t most);
int dx_table(Dag *d, const TableDecl *t);  /* its number, the same for the same declaration; -1: too many */
Dx dx_lookup(Dag *d, int table, Dx index); /* an index that is constant is in range */
DxRange dx_range(const Dag *d, Dx x, const int64_t *axis_max); /* of an integer node; axis_max may be NULL */
typedef Dx (*DxMap)(void *ctx, Dx x);      /* returns the replacement of a leaf-ward node, or 0 to descend */
Dx dx_rewrite(Dag *d, Dx x, DxMap map, void *ctx);
void dx_print(const Dag *d, Dx x, Str *out);
int64_t dx_gcd(int64_t a, int64_t b);
bool dx_fold_int(DxOp op, int64_t a, int64_t b, int64_t *r); /* of constants; false: it has no value, or op is not of two integers */
extern const DxOp dx_infix[OP_COUNT];        /* by the language's infix operators */
DxOp dx_builtin(const char *name, int *n_args); /* of the language's functions; DXO_NONE: none of that name */
Dx dx_call(Dag *d, DxOp op, const Dx *arg);  /* one of them; 0: a gcd that is not known, or of what is below 0 */

/* ---- format.c: what a format's text means ---------------------------------------------------------------------------- */
/* One value that the packed form keeps: an integer of `bits` bits (stored minus lo) or a raw float, the same for `gran` elements. */
typedef struct PackLeaf {
  bool is_int;
  IrMem mem;                /* float: f16 bf16 f32; int with gran > 1: u8 or u16 or i32; int with gran 1: unused (planes) */
  int64_t lo, hi;           /* int: range; what is stored is value - lo, or the value where that fits as well */
  bool as_is;
  int gran;                 /* elements that share it */
  Dx *at;                   /* by element of a block: expression over DX_FIELD */
  int n_planes, plane_bits[4], plane_shift[4]; /* int with gran 1: bits of what is stored, split into planes of 8, 4, 3, 2, 1 bits; 3 stand alone */
  Dx *index; int map;       /* few values: stored is index[i], 0..15, and the form's table `map` (16 bytes, four times) gives value - lo; index NULL: none */
} PackLeaf;

/* What encode says of one number of a block: its kind, its byte, its value over the floats to store (DX_FIELD of f32: one after another). */
typedef struct StoredNumber { IrMem mem; int64_t at; Dx value; } StoredNumber;

typedef struct FormatForm {
  const FormatDecl *decl;
  Dag *dag;
  bool plain;               /* one element a block, its value a stored number: memory of kind `mem` */
  IrMem mem;
  int block, n_bytes;       /* the declaration's, or as many small blocks as make 32 elements */
  Dx *x;                    /* [block] value of element i over DX_FIELD */
  Dx value;                 /* the same over DX_LEAF, one expression for all elements; 0: no canonical form (value is kept as f32) */
  PackLeaf *leaf; int n_leaves;
  int code;                 /* leaf that varies per element, -1 none */
  bool integer;             /* value = scale * (code - bias) + offset with unsigned 8-bit codes */
  int64_t bias;             /* code = leaf - lo, so bias = -lo */
  int code_max;             /* largest unsigned code */
  Dx scale, offset;         /* over DX_LEAF */
  int group;                /* elements that share scale and offset */
  Dx step, unit; int span;  /* scale = unit * step: an integer of the group's (a leaf) and a float that `span` elements share. step 0: there is none.
                               (code - bias) * step may fit a byte as (code * step + bias * (times - step)) / by, at most `most`; by 0: it does not */
  int times, by, most;
  int chunk;                /* elements laid out together in the planes */
  const char *facts;        /* of a layout: what the form was made for; NULL: of a format */
  const LayoutDecl *layout; /* elements come from several tensors: x and leaves are over DX_PART, axis 0 the row, axis 1 the block */
  const Expr **number; int n_numbers; /* of a layout: json(..) calls, whose values packing gets as floats */
  bool sorted;              /* columns are packed in the order of their groups */
  struct FormatForm *rows;  /* the form in which rows are picked one by one; NULL: this */
  StoredNumber *stored; int n_stored; /* format_stored */
} FormatForm;
enum { FORMAT_ARG_TABLES = 4, FORMAT_MAX_ARGS = FORMAT_ARG_TABLES + DX_MAX_TABLES }; /* pack and decode functions: args from here on are the tables */
void format_table_args(const FormatForm *f, void **args);
/* encode.c: what encode says, evaluated once; adds the tables it uses to the form's. ERR_UNSUPPORTED: the text has no encode. */
Err *format_stored(Arena *a, const Module *m, FormatForm *f);
/* What is stored as encode says is scale * (code - bias) with a scale that is never below 0. */
bool format_scaled(Arena *a, const Module *m, FormatForm *f);
Err *format_analyze(Arena *a, const Module *m, const FormatDecl *f, FormatForm **out);
void format_print(const FormatForm *f, Str *out);

struct Tp;
/* ---- parts.c: a weight that several tensors of a checkpoint hold, as a layout's text says ----------------------------- */
typedef enum PartGroups { GROUPS_ANY, GROUPS_IN_ORDER, GROUPS_SORTED } PartGroups; /* IN_ORDER: column k is of group k / (K / n). SORTED: so it is once the columns are sorted */
typedef struct FormatPart {
  const char *elt;                /* of the file; NULL: none that the texts describe */
  bool absent;
  int64_t dim[LAYOUT_MAX_DIMS]; int n_dims;
  int64_t most;                   /* groups: their number, once bound */
  PartGroups groups;
  uint8_t never[16]; int n_never; /* bytes that do not occur in it, of those that format_unfinite names */
  bool small;                     /* floats, none above 128 or NaN */
} FormatPart;
typedef struct FormatParts {
  const LayoutDecl *decl;
  FormatPart part[LAYOUT_MAX_PARTS]; /* as the declaration lists them */
  int64_t rows, cols;             /* 0: not known, to be found */
  struct { const char *name; int64_t value; } dim[LAYOUT_MAX_NAMES]; int n_dims; /* found: rows and cols first */
  Err *(*number)(void *ctx, const Expr *call, int64_t *i, double *f, bool *is_int); /* key, which, ..: numbers of the checkpoint's metadata */
  void *ctx;
} FormatParts;
/* facts.c: the bytes that are infinite or NaN in a format of one byte an element; 0: none, or it is no such format. */
int format_unfinite(Arena *a, const Module *m, const char *elt, uint8_t code[256]);
/* Whether elements, extents and the condition are as the declaration says; then part dims are as declared, and the extents' names known. */
Err *format_parts_fit(const Module *m, FormatParts *p, bool *fits);
Err *format_parts_number(const Module *m, FormatParts *p, const Expr *e, int64_t *out); /* of one that fits: an int of its text, its extents known */
/* Its form. In pack functions args[0] is the addresses of the tensors [n_parts], of FormatForm.number's values, and of the order of columns i32[K];
   args[1] the numbers of rows. as_value: kept as f32, which decodes. */
Err *tp_parts_form(struct Tp *p, const FormatParts *f, bool as_value, FormatForm **out); /* made once */

/* Packed tensor: tiles of 16 rows, one behind the other. */
enum { FULL_LANES = 16, PACK_ROWS = 16, MAX_LEAVES = 20 };
/* A tile is one ascending stream, which is what the processor's prefetchers follow: units along K, each a header with what many elements
   share (a super-block's scales), then subunits of the groups' scales with their codes behind them. */
typedef struct PackLayout {
  int64_t K, unit, unit_bytes, tile_bytes;    /* unit, sub: elements */
  int64_t sub, sub_bytes, header_bytes;
  bool in_header[MAX_LEAVES];
  int64_t leaf_off[MAX_LEAVES];               /* within the header or a subunit */
  int64_t leaf_stride[MAX_LEAVES];            /* bytes per gran, of codes per chunk */
} PackLayout;
PackLayout format_layout(const FormatForm *f, int64_t K);
/* Where a quad, four consecutive codes of each of 16 rows, lies among the vectors of its chunk: bits to .. to + bits - 1 of each code stand from bit `at`
   of their bytes on. A plane of 1, 2, 4 or 8 bits keeps quads above each other; of eight quads of 3 bits three vectors keep two each, the last two lie in what
   is left of them. -> pieces */
typedef struct PackPiece { int vec, at, bits, to; } PackPiece;
enum { PACK_PIECES = 4 };
int format_pieces(const FormatForm *f, int quad, PackPiece piece[PACK_PIECES]);
int format_vectors(const FormatForm *f); /* of a chunk's codes */

/* ---- inst.c: a program of statements --------------------------------------------------------------------------------- */
typedef enum BufRole { BUF_INPUT, BUF_OUTPUT, BUF_TEMP, BUF_WEIGHT, BUF_STATE } BufRole;
typedef struct TpBuf {
  const char *name;
  BufRole role;
  IrMem mem;                /* f32 i32 i8 f16 bf16; weights in a non-plain format: IR_M_none */
  FormatForm *fmt;          /* weights */
  int order;                /* weights whose columns are sorted: 1 + the buffer of which column each is, i32[K] */
  FormatForm *blocks; int block_dim; /* states: memory of u8 holds blocks of this format along dimension block_dim; NULL: plain numbers */
  int side_dim;             /* blocks: rows along this dimension, next to block_dim, lie side by side, number by number; -1: block by block */
  bool raw;                 /* weights: read as in the file (rows picked one by one) rather than packed */
  int n_dims; Dx dim[IR_MAX_DIMS]; /* DX_INT or DX_SYM; axis 0 slowest. Rows (all but axis 0) are padded to 16 elements */
  int64_t pitch;            /* elements from one index of axis 0 to the next, where rows of several buffers lie between each other; 0: rows are dense */
  int alias;                /* buffer whose memory this is under other dimensions, or itself */
  bool bf16;                /* holds bfloat16 values that are 0 or at least 2^-56, and nothing else; of other than temporaries where the caller says so, or the program shows it; a weight: what is packed, and the caller may take it back before kernels are built */
  int local;                /* region that keeps it to itself, in registers or scratch; -1: memory */
  int tag;                  /* the caller's */
} TpBuf;

typedef struct TpStmt {
  int buf; int n_index; Dx index[IR_MAX_DIMS];
  int n_axes; Dx extent[DX_BINDER];
  int block_axis;           /* a store of blocks: 1 + the axis along them, the last one; rhs loads its floats one behind the other; 0: of numbers */
  Dx rhs;
  const char *op, *text;    /* where it comes from, for traces */
  int line;                 /* of the caller's text that called the op, 0: none */
  int call;                 /* Tp.call it belongs to */
} TpStmt;

enum { TP_TABLE = 1 << 24 };  /* TpRegion.arg from here on: Tp.table[arg - TP_TABLE] */

typedef struct TpSym { const char *name; } TpSym;             /* a dimension known at run time */

/* A call of an op as it was made, for traces. */
enum { TP_CALL_ARGS = 16 };
typedef struct TpArg { enum { TA_BUF, TA_INT, TA_FLT } kind; int buf; int64_t ival; double fval; } TpArg;
typedef struct TpCall { const OpDecl *op; TpArg arg[TP_CALL_ARGS]; int n_args, result[TP_CALL_ARGS], n_results; } TpCall;

typedef struct Tp {
  Arena *arena; Dag *dag; const Module *module;
  const char *precision;
  bool narrow;                                 /* the caller's: temporaries that hold nothing but bfloat16 are kept in 16 bits, as matrix tiles read them */
  bool dot2;                                   /* the caller's: those that products of pairs read are */
  int line;                 /* what statements made from now on get as theirs */
  TpBuf *buf; int n_bufs, cap_bufs;
  TpStmt *stmt; int n_stmts, cap_stmts;
  TpCall *call; int n_calls, cap_calls;
  TpSym *sym; int n_syms, cap_syms;
  FormatForm **form; int n_forms, cap_forms;   /* analyzed formats, shared */
  const void **table; int n_tables, cap_tables; /* of the formats that the program's weights have */
} Tp;
Tp *tp_new(Arena *a, const Module *m, const char *precision);
int tp_sym(Tp *p, const char *name);
int tp_buf(Tp *p, TpBuf b);                    /* alias is set to itself */
int tp_view(Tp *p, int buf, const Dx *dim, int n_dims);
int tp_root(const Tp *p, int buf);             /* whose memory it is */
int tp_table(Tp *p, const void *data);         /* number of a format's table, added where new */
Err *tp_form(Tp *p, const char *format, FormatForm **out);   /* analyzed once */
/* Appends the statements of op `name` (the first variant that fits). results[i] < 0: a new temporary is made and its number stored; else
   results go to that buffer. Fails: ERR_NOT_FOUND, ERR_SHAPE (dimension, got, expected). */
Err *tp_call(Tp *p, const char *op, const TpArg *arg, int n_args, int *results, int n_results, const char **variant);
/* guard.c: both before it is part of the program. Fail: ERR_SHAPE, ERR_LIMIT, ERR_UNSUPPORTED. */
Err *tp_dims_check(const Tp *p, const char *name, const TpBuf *b); /* numbers, of at least 1; the first may be a symbol; a size that can be */
Err *tp_stmt_check(const Tp *p, const TpStmt *t);                  /* no index leaves its dimension, as far as that does not depend on data */
Err *tp_data_check(Tp *p, const int64_t *most);                    /* the same of indices that are data: buffer b holds 0 .. most[b], -1: not known */
bool tp_is_bf16(const Dag *d, Dx x);           /* tile.c: a bfloat16 that is 0 or at least 2^-56, by its form */
bool tp_is_pair(const Tp *p, Dx term, Dx even[2]); /* pair.c: two products of bfloat16 that lie together, as a chain's term; even: the sides of the nearer one */
void tp_keep_bf16(Tp *p);                      /* pair.c: marks what holds nothing but bfloat16, and keeps in 16 bits what is read so */
void tp_print(const Tp *p, Str *out);
int64_t tp_buf_rows(const Tp *p, int buf, const int64_t *sym);      /* axis 0 */
int64_t tp_dim_elems(const Tp *p, const TpBuf *b, int i, const int64_t *sym); /* of its memory: where blocks lie along it, their bytes */
/* Blocks of format f lie along the last dimension, or, where the type `t` writes that as a number, along the one before it. The numbers of
   several rows' blocks lie side by side where one of the two is written as a number: as many. b has its dimensions. Fails: ERR_SHAPE, ERR_UNSUPPORTED. */
Err *tp_buf_format(const Tp *p, TpBuf *b, const TypeExpr *t, FormatForm *f);
/* Where numbers of rows' blocks that lie side by side are: numbers one behind the other, each of all rows. Bytes go by fours along the dimension
   before the last: of an array four of one row, or four rows' of one number. */
typedef struct TpSide { int64_t rows; bool by_rows; } TpSide;       /* rows 1: block by block */
TpSide tp_buf_side(const Tp *p, const TpBuf *b);
/* Byte `at` of a block, where a number of kind m lies in it, in the memory of all those rows' blocks, of row `lane`. */
int64_t tp_block_byte(const FormatForm *f, IrMem m, int64_t at, int64_t lane, TpSide side);
const Field *tp_block_bytes(const FormatForm *f, IrMem m, int64_t at); /* the field of bytes that it is in; NULL: no byte */
int64_t tp_row_elems(const Tp *p, int buf);                         /* padded by tp_row_pad */
/* Elements from one row to the next: whole vectors, and never a multiple of 1 KiB, which would put a tile's rows into one set of the cache. */
int64_t tp_row_pad(int64_t n_elems, IrMem mem);
int64_t tp_buf_bytes(const Tp *p, int buf, const int64_t *sym);     /* with its slack */
int64_t tp_buf_slack(const Tp *p, const TpBuf *b);                  /* behind its last row, for lanes past the end of one: they read what nobody uses, with blocks whole ones */

/* ---- region.c -------------------------------------------------------------------------------------------------------- */
typedef struct TpRegion {
  int *stmt; int n_stmts;
  bool contraction;         /* lanes run over rows of packed weights (axis 1), rows of activations (axis 0) are tiled */
  int n_par;                /* parallel axes: the statements' axes 0 .. n_par-1; a contraction: tiles of axis 1 */
  Dx par[DX_BINDER];        /* their extents; one that depends on data is replaced by its largest value and tested per item */
  int *arg; int n_args;     /* argument table of the function: buffer (alias root), ~symbol, or TP_TABLE + table */
  int phase;                /* regions of one phase do not depend on each other */
  char *name;               /* for traces: the ops its statements come from */
  const uint8_t *form; size_t n_form; /* equal bytes: the same function, whatever addresses and pitches */
} TpRegion;
typedef struct TpPlan { Tp *tp; TpRegion *region; int n_regions, cap_regions; int n_phases; } TpPlan;
/* Merges equal statements, inlines cheap ones, drops unused ones, forms regions, localizes temporaries. */
Err *tp_plan(Tp *p, TpPlan **out);
void tp_plan_print(const TpPlan *p, Str *out);

/* ---- lower.c, emit.c ------------------------------------------------------------------------------------------------- */
/* Kernel signature: void k(void **args, int64_t item_begin, int64_t item_end, void *scratch). args[i]: what TpRegion.arg[i] names, a
   buffer's address or a symbol's value. Items enumerate the parallel axes, last fastest. */
typedef struct Sched {
  int lanes;                /* of a lane block in contractions: the target's 32-bit lanes */
  int tile[4]; int n_tiles; /* rows of activations per register tile, largest first, last is 1 */
  int row_axis;             /* other regions: the axis whose neighbours run in lockstep, tile[0] of them */
  int chains;               /* other regions: sums kept going at once, over rows and blocks of lanes */
  int block_rows;           /* contractions: an item is a tile of weights and this many rows, so that their activations stay in the second-level cache; 0: all rows */
  int side;                 /* contractions, without a panel: blocks of lanes (weight rows) side by side, a multiple of those of a tile; 0: one after another */
  int ahead;                /* contractions: bytes of packed weights asked for ahead of those read; 0: none */
  int matrix[2], n_matrix;  /* contractions: rows at once in matrix tiles, multiples of 16, before the register tiles take what is left */
  int matrix_bytes;         /* of a tile's operand along the sum */
  bool pairs;               /* the panel keeps two bfloat16 in 32 bits, even position low */
  bool dot2;                /* the target multiplies pairs of bfloat16 */
  bool short_dots;          /* the target multiplies bytes into sums of 16 bits */
  bool stage;               /* unpack weights of a lane tile into scratch once, before the row tiles */
  bool steps;               /* what is unpacked are codes times their step, where it is asked for in no other way */
  bool naive;               /* scalar loops in text order over plain arrays: the oracle's form */
} Sched;
Err *lower_region(Arena *a, const TpPlan *p, int region, const Sched *s, const char *name, IrFn **out, int64_t *scratch_bytes);
/* It reads of a state's blocks, or in a chain, what is the same for n_rows neighbours along the axis: in lockstep they read it once. */
bool lower_shares_rows(const Tp *p, const TpStmt *t, int axis, int n_rows);
/* A float made of one weight's value, constants and nothing else (not the value itself, nor a product or sum): its buffer; -1: something else. */
int lower_made_of_weight(const Dag *d, Dx x);
/* step.c: w.step * (isum(a * w.code) - w.bias * isum(a)), of a weight with steps. Makes new nodes: pointers to nodes are old after it. */
typedef struct StepSum { int buf; Dx inner, add; } StepSum; /* the isum with codes; what is added to it, 0: nothing */
bool lower_sum_of_steps(Tp *p, Dx x, StepSum *out);
/* pair.c: the weight whose values a chain multiplies in pairs; -1: it is no such chain. */
int lower_weight_of_pair(const Tp *p, Dx red);
/* tile.c: the sums of a contraction fit matrix tiles: sets matrix, n_matrix, matrix_bytes and pairs. Weights must be staged. */
bool lower_matrix(const TpPlan *p, int region, Sched *s);
int64_t region_items(const TpPlan *p, int region, const Sched *s, const int64_t *sym);
/* pack: args[0] source of the tile's lowest row by tile [n]ptr, args[1] i32[n][16] byte offsets of rows, args[2] packed; items: tiles.
   Both: tables as format_table_args lays them. */
Err *lower_pack(Arena *a, const FormatForm *f, int64_t K, const char *name, IrFn **out);
/* decode: args[0] blocks, args[1] f32 out; items: blocks as declared. Values exactly as the text says. */
Err *lower_decode(Arena *a, const FormatForm *f, const char *name, IrFn **out);
/* encode: args[0] f32, args[1] blocks as declared (zero where no field lies), tables as above; items: tiles of ENCODE_TILE blocks. As the
   format's encode says; ERR_UNSUPPORTED when it says nothing. Adds the tables it uses to the form's. */
enum { ENCODE_TILE = 16 };
Err *lower_encode(Arena *a, const Module *m, FormatForm *f, const char *name, IrFn **out, int64_t *scratch_bytes);

/* ---- pipeline.c: the passes, in order ---------------------------------------------------------------------------------- */
Err *opt_pipeline(IrFn *fn);
#endif
