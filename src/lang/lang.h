/* lang: the language of the texts under std. Text in, checked declarations out. Knows nothing of any particular format, op or model.

   One file holds declarations: format, table, fn, op, model. docs/language.md is the manual. The tree below is what lowering reads. */
#ifndef LUMEN_LANG_H
#define LUMEN_LANG_H
#include "base/base.h"

typedef struct Loc { const char *file; int line, col; } Loc;      /* 1-based; columns count code points */

typedef enum ExprKind {
  EX_INT,     /* ival */
  EX_FLOAT,   /* fval */
  EX_STR,     /* name */
  EX_NAME,    /* name */
  EX_FIELD,   /* arg[0] . name */
  EX_INDEX,   /* arg[0] [ arg[1..] ] */
  EX_CALL,    /* name ( arg[..] ): fn, op, format's own function, conversion f32 i32 i8, built-in */
  EX_UNARY,   /* op arg[0]: NEG, NOT, INV */
  EX_BINARY,  /* arg[0] op arg[1] */
  EX_COND,    /* arg[0] ? arg[1] : arg[2] */
  EX_REDUCE,  /* op (binder: arg[0]) */
  EX_AS       /* arg[0] as [ arg[1..] ]: the same memory with other dimensions */
} ExprKind;

/* Operators, precedence, spelling: rows of operators.def, loosest first. Reductions likewise. */
typedef enum ExprOp {
  OP_NONE,
#define INFIX(id, text, prec) OP_##id,
#define PREFIX(id, text) OP_##id,
#define REDUCTION(id, text, meaning) RED_##id,
#include "lang/operators.def"
#undef INFIX
#undef PREFIX
#undef REDUCTION
  OP_COUNT
} ExprOp;

typedef struct Expr Expr;
typedef struct Binder { const char *name; Expr *extent; Loc loc; } Binder; /* name runs over 0 <= name < extent; the checker fills an omitted extent */
struct Expr {
  ExprKind kind; ExprOp op; Loc loc;
  const char *name;
  int64_t ival; double fval;
  Expr **arg; int n_args;
  Binder *binder; int n_binders;
};

typedef struct TypeExpr { const char *elt; Expr **dim; int n_dims; Loc loc; } TypeExpr; /* elt: f32 i32 i8 f16 .., a format's name, or a capital letter standing for any format; n_dims 0: a scalar */
typedef struct Param { const char *name; TypeExpr type; Loc loc; Expr *deflt; } Param; /* deflt: a number used where a call leaves the argument out, of a tensor for every element; NULL: it must be given */

/* name[index..] = rhs for axis < extent, ..   index expressions use the axes; a scalar has none. */
typedef struct Stmt {
  const char *name; Loc loc;
  Expr **index; int n_index;
  Binder *axis; int n_axes;     /* every name free in index or rhs that is not a parameter, dimension or earlier statement; in order of first use in index; extents filled by the checker */
  Expr *rhs;
} Stmt;

typedef struct FnDecl { const char *name; Loc loc; Param *param; int n_params; TypeExpr result; Stmt *let; int n_lets; Expr *value; } FnDecl;
typedef struct TableDecl { const char *name; Loc loc; const char *elt; double *value; int n_values; } TableDecl;

typedef struct Field { const char *name; const char *elt; int64_t count; int64_t offset; Loc loc; bool is_array; } Field; /* elt: u8 i8 u16 i16 u32 i32 f16 bf16 f32 or another scalar kind; offset in bytes */
typedef struct FormatFn { const char *name; const char *arg, *arg2; Expr *value; Loc loc; } FormatFn; /* q(i) = ..; arg NULL: a plain name, as in `m = ..`; arg2: a second index or NULL */
typedef struct FormatDecl {
  const char *name; Loc loc;
  int64_t gguf_id;              /* -1: none */
  int64_t block;                /* elements in a block */
  int64_t n_bytes;              /* of a block: the end of the last field, or what `bytes N` says */
  Field *field; int n_fields;
  FormatFn *fn; int n_fns;      /* x(i) is the element's value */
  FormatFn *encode; int n_encodes; /* encode { field-name(index) = expression over x(i) }: how floats become the block; 0: none */
} FormatDecl;

/* Of a layout: one of the tensors that hold a weight together. */
typedef struct PartDecl {
  const char *name; Loc loc;
  const char **elt; int n_elts;       /* kinds or formats of one element that it may have; a capital letter: any */
  Expr **dim; int n_dims;             /* names that stand alone take the file's extent, other expressions must equal it */
  const char **file; int n_files;     /* names in the checkpoint, the first that is there; * is the weight's own */
  bool optional;                      /* else none */
  const char *is;                     /* its elements are this table's; NULL: any */
  Expr *groups;                       /* element k is column k's group, 0 .. groups-1; NULL: plain numbers */
} PartDecl;
/* says "KEY" | .. = ..: of the keys that the checkpoint's metadata has, one is among the texts or numbers. Lines whose first key has a * hold together
   for one of the names that it stands for. */
typedef struct SaysDecl { const char **key; int n_keys; Loc loc; const char **text; int n_texts; Expr **value; int n_values; } SaysDecl;
/* rules "KEY" = not regex "-:" | ..: texts of the metadata that say of which weights something is said. Those of KEY, or, where it ends in .*, the names that
   it stands for. A form of the longest prefix that a text begins with tells how the rest of it is compared with a weight's name. */
typedef enum RuleKind {
#define RULE(id, rank) RULE_##id,
#include "lang/rules.def"
#undef RULE
  RULE_N_KINDS
} RuleKind;
typedef struct RuleForm { RuleKind kind; bool spares; const char *prefix; } RuleForm; /* spares: what it fits is not of this layout */
typedef struct RulesDecl { const char *key; Loc loc; RuleForm *form; int n_forms; } RulesDecl;
typedef struct LangRule { const char *name; int rank; } LangRule;
extern const LangRule lang_rules[RULE_N_KINDS];
enum { LAYOUT_MAX_PARTS = 16, LAYOUT_MAX_DIMS = 8, LAYOUT_MAX_NAMES = 16 }; /* tensors, dimensions of one, names of all dimensions */
/* layout NAME [N, K] = "*.weight" { .. }: a weight whose elements several tensors of a checkpoint hold together. */
typedef struct LayoutDecl {
  const char *name; Loc loc;
  const char *rows, *cols;            /* names of the weight's dimensions */
  const char *of;                     /* what models call it; * stands for the part that the tensors' names share */
  PartDecl *part; int n_parts;
  const char **extents; int n_extents; /* tensors of two ints, the weight's rows and columns; they need not be there */
  const char **beside; int n_besides; /* tensors that may lie there and do not matter to the value */
  const char **apart; int n_aparts;   /* tensors that are no part of the weight and matter by themselves: its layer's bias */
  Expr *when;                         /* it applies only where this is true; NULL: always */
  SaysDecl *says; int n_says;
  RulesDecl *rule; int n_rules;
  FormatFn *fn; int n_fns;            /* x(n, k) is the value in row n, column k */
} LayoutDecl;

typedef struct OpDecl {
  const char *name; Loc loc;
  Param *param; int n_params;
  Param *result; int n_results;
  const char *precision;        /* `for NAME`: used when --precision is NAME; NULL: always */
  Expr *when;                   /* `when COND`: applies only where true (w.integer ..); NULL: always */
  Stmt *stmt; int n_stmts;
} OpDecl;

typedef struct TensorSource {
  const char *name; Loc loc;          /* "{l}" is the layer number */
  const char *row_name; Expr *row;    /* rows r -> expr: row r comes from row expr of the file; NULL: r */
  const char *each_name; Expr *each;  /* each x -> expr: element x of the file becomes expr, rounded to f32; NULL: x */
  Expr *when;                         /* when COND: looked for only then; NULL: always */
} TensorSource;
typedef struct TensorDecl {
  const char *name; TypeExpr type; Loc loc;
  TensorSource *source; int n_sources; /* what to look for, in order */
  Expr *otherwise;                    /* else NAME (another tensor, or "none") or a number (filled with it); NULL: the tensor must exist */
} TensorDecl;
typedef struct StateDecl { const char *name; TypeExpr type; Loc loc; } StateDecl;
typedef struct HyperDecl { const char *name; Loc loc; Binder axis; Expr *value; } HyperDecl; /* axis.name NULL: a number; else an array of f32. value NULL: use NAME, gone after loading */
/* write "KEY" = ..: what a GGUF file made of a folder says. axis.name NULL: a key below the architecture's name; else a tensor of f32. value may be EX_STR. when NULL: always */
typedef struct WriteDecl { const char *key; Loc loc; Binder axis; Expr *value, *when; } WriteDecl;
typedef struct HypersDecl { const char *name; Loc loc; HyperDecl *hyper; int n_hypers; WriteDecl *write; int n_writes; } HypersDecl; /* lines that models share */

/* graph statements: results = call, or for v in layer { .. } */
typedef struct GraphStmt GraphStmt;
struct GraphStmt {
  Loc loc;
  Expr **target; int n_targets; /* EX_NAME or EX_FIELD (a state of the layer); n_targets 0: a loop */
  Expr *rhs;
  const char *var, *layer;      /* loop: for var in layer */
  GraphStmt *body; int n_body;
};
typedef struct LayerDecl { const char *name, *var; Loc loc; Expr *count; HyperDecl *hyper; int n_hypers; TensorDecl *tensor; int n_tensors; StateDecl *state; int n_states; } LayerDecl; /* hyper: numbers of each layer */
typedef struct NameMove { const char *from, *to; Loc loc; } NameMove; /* a name that begins with `from` is also looked for with `to` in its place */
typedef struct ModelDecl {
  const char *name; Loc loc;
  const char **gguf_arch; int n_gguf_archs;   /* file gguf "NAME", .. : values of general.architecture */
  const char **hf_arch; int n_hf_archs;       /* file hf "LlamaForCausalLM", .. */
  const char *below;                          /* of a folder: keys are looked for below this one first; NULL: nowhere */
  NameMove *move; int n_moves;                /* of a folder: other names of its tensors */
  HyperDecl *hyper; int n_hypers;
  WriteDecl *write; int n_writes;
  TensorDecl *tensor; int n_tensors;
  LayerDecl *layer; int n_layers;
  Param *param; int n_params;                 /* of the graph */
  GraphStmt *graph; int n_graph;
  Expr *result;
} ModelDecl;

typedef struct Module {
  FormatDecl **format; int n_formats;
  LayoutDecl **layout; int n_layouts;         /* those of later files last */
  TableDecl **table; int n_tables;
  FnDecl **fn; int n_fns;
  OpDecl **op; int n_ops;                     /* several may share a name: variants, in order of declaration, later files (--std) first */
  HypersDecl **hypers; int n_hypers;          /* already part of the models that use them */
  ModelDecl **model; int n_models;
  const struct Source *src; int n_src;        /* what it was made of */
  Arena *arena;
} Module;

/* A set of sources; later ones override declarations of the same kind and name (ops: same name, precision and when). */
typedef struct Source { const char *file, *text; } Source;

/* parse.c + check.c. On failure the Err's text holds every diagnostic of the run (at most 20), each: file:line:col: message, the source
   line, a caret, and "did you mean NAME?" where a near name exists. Fails: ERR_SYNTAX. */
Err *lang_load(Arena *a, const Source *src, int n_src, Module **out);
Err *lang_err_at(const Module *m, Loc at, Err *e);                  /* what shows only when a text is used: the same error with its place and line */
const FormatDecl *lang_format(const Module *m, const char *name);   /* NULL if none */
const FormatDecl *lang_format_gguf(const Module *m, int64_t id);
const OpDecl *lang_op(const Module *m, const char *name, int nth);  /* nth variant of that name, NULL past the end */
const FnDecl *lang_fn(const Module *m, const char *name);
const TableDecl *lang_table(const Module *m, const char *name);
const char *lang_nearest(const char *name, const char *const *names, int n); /* NULL when nothing is near */

/* print.c: back to text (TRACE ast, lumen cc --emit ast); loading the print gives the same tree. */
void lang_print_module(const Module *m, Str *out);
void lang_print_expr(const Expr *e, Str *out);

/* std.c: the texts embedded in the binary (made by the build from std/), then every *.lum of std_dir if not NULL. */
Err *lang_std_load(Arena *a, const char *std_dir, Module **out);
Err *lang_std_load_with(Arena *a, const char *std_dir, const char *file, Module **out); /* and one text more; its name ends in .lum */
#endif
