/* Inside lang: tokens, diagnostics, and what the files of the folder share. */
#ifndef LUMEN_LANG_PRIV_H
#define LUMEN_LANG_PRIV_H
#include "lang/lang.h"

enum {
  LANG_MAX_DIAGS = 20,             /* told in one run; the rest are only counted */
  LANG_MAX_DEPTH = 200,            /* height of an expression's tree, blocks in blocks, fn calling fn */
  LANG_MAX_TEXT_BYTES = 1 << 20,   /* one source */
  LANG_MAX_ITEMS = 20000,          /* statements, parameters, arguments of one declaration; declarations of one source */
  LANG_MAX_DIMS = 16,
  LANG_MAX_INLINE = 100000,        /* expressions in a fn with everything it calls */
  LANG_MAX_EXTENT = 500            /* expressions in a range the checker works out */
};

typedef struct LangCtx {
  Arena *arena;
  Source *src; int n_src;          /* file names are the pointers Loc.file holds */
  Str text;                        /* of the diagnostics so far */
  int n_diags;
  int quiet;                       /* > 0: diagnostics are dropped */
} LangCtx;

/* diag.c */
void lang_diag(LangCtx *x, Loc at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void lang_diag_near(LangCtx *x, Loc at, const char *name, const char *const *names, int n, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
int lang_utf8_next(const char *s, size_t n, int32_t *out);   /* bytes of the code point at s, or 0 when they are not UTF-8 */

/* lex.c. A symbol is its one or two characters packed. The last token is TOK_EOF. */
#define LANG_SYM(a, b) ((uint16_t)((unsigned char)(a) | (unsigned)(unsigned char)(b) << 8))
typedef enum TokKind { TOK_EOF, TOK_NAME, TOK_INT, TOK_FLOAT, TOK_STR, TOK_SYM } TokKind;
typedef struct Tok {
  TokKind kind;
  bool first;                      /* on its line */
  uint16_t sym;
  int line, col;
  const char *text;                /* TOK_NAME, TOK_STR: the name or the unescaped bytes */
  int64_t ival; double fval;
  const char *at; int n;           /* the token's bytes in the source */
} Tok;
int lang_lex(LangCtx *x, const Source *src, Tok **out);      /* number of tokens */

/* ops.c: rows of operators.def */
typedef struct LangInfix { ExprOp op; uint16_t sym; int prec; } LangInfix;
const LangInfix *lang_infix(uint16_t sym);                   /* NULL: not an infix operator */
ExprOp lang_prefix(uint16_t sym);                            /* OP_NONE: not a prefix operator */
ExprOp lang_reduction(const char *name);                     /* OP_NONE: not a reduction */
const char *lang_op_text(ExprOp op);
int lang_op_prec(ExprOp op);

typedef struct LangScalar { const char *name; int n_bytes; bool is_float; double too_large; } LangScalar;
const LangScalar *lang_scalar(const char *name);             /* NULL: no such scalar kind */
bool lang_scalar_holds(const LangScalar *s, double v);       /* an int in its range; a float that does not become infinite */
extern const char *const lang_scalar_names[];
extern const int lang_n_scalars;
typedef struct LangBuiltin { const char *name, *args; char result; bool hyper_only; } LangBuiltin;
const LangBuiltin *lang_builtin(const char *name, bool in_hyper);
extern const LangBuiltin lang_builtins[];
extern const int lang_n_builtins;
bool lang_is_variable_elt(const char *elt);                  /* begins with a capital: stands for any format */

/* parse.c */
typedef struct Unit {
  FormatDecl **format; int n_formats, cap_formats;
  LayoutDecl **layout; int n_layouts, cap_layouts;
  TableDecl **table; int n_tables, cap_tables;
  FnDecl **fn; int n_fns, cap_fns;
  OpDecl **op; int n_ops, cap_ops;
  HypersDecl **hypers; int n_hypers, cap_hypers;
  ModelDecl **model; int n_models, cap_models;
} Unit;
void lang_parse(LangCtx *x, const Source *src, Unit *u);
bool lang_expr_same(const Expr *a, const Expr *b);

/* check.c, check_expr.c, check_model.c */
typedef enum Ty { TY_ERR, TY_INT, TY_F32, TY_BOOL, TY_ANY } Ty;  /* ERR: told already. ANY: a number of a file, int or float */
typedef struct Var {
  const char *name, *what;         /* what: "a parameter", "an index" .., for messages */
  Loc loc;
  Ty ty;
  Expr **dim; int n_dims;          /* 0: a scalar */
  const Binder *axis;              /* dims use these names, one for each dimension: a statement's own axes. NULL: dims stand as they are */
  bool any_format;                 /* has the attributes of attrs.def */
  bool callable;                   /* name(index) */
  bool two;                        /* name(index, index) */
  bool part;                       /* a tensor of a layout */
  bool pending;                    /* a result that no statement has given yet */
} Var;
typedef struct Check {
  LangCtx *x;
  Module *m;
  Var *var; int n_vars, cap;       /* innermost last */
  bool in_hyper;                   /* key, dim .. may be called; ints have 64 bits */
  bool in_graph;                   /* has(..) takes a tensor of the model */
  const LayerDecl *loop; const char *loop_var; /* in a loop of the graph: loop_var.name is a number of the layer */
  const FormatFn *own; int n_own;  /* functions of the format or layout that is being checked */
  bool in_layout;                  /* key, has .. may be called as in hyper lines, fns as in kernels */
  int64_t block;                   /* in encode: elements of a block, the range of a callable's index; else 0 */
} Check;
void lang_check(LangCtx *x, Module *m);
void lang_check_model(Check *c, ModelDecl *m);

/* check_expr.c: types of expressions, ranges of indices */
Ty lang_check_expr(Check *c, Expr *e);
void lang_check_int(Check *c, Expr *e, const char *what);    /* e must be an int */
void lang_check_cond(Check *c, Expr *e);                     /* e must be a condition */
void lang_check_f32(Check *c, Loc at, double v);             /* a literal that an f32 must hold */
const Var *lang_var(const Check *c, const char *name);
Var *lang_declare(Check *c, Var v);                          /* tells and still adds when the name is taken */
Expr *lang_int(Check *c, int64_t v, Loc at);
const char *lang_ty_text(Ty t);
bool lang_ty_fits(Ty got, Ty want);                          /* an int may stand where a float is wanted */
void lang_unknown(Check *c, Loc at, const char *name, bool call);
Ty lang_elt_type(Check *c, const TypeExpr *t, bool *any_format);
/* The range of a name that stands alone as an index in one of the expressions; NULL and told when there is none. */
Expr *lang_infer(Check *c, const char *name, Loc at, Expr *const *in, int n_in, const char *example);
int lang_count_nodes(const Expr *e);
bool lang_uses_name(const Expr *e, const char *name);
#endif
