/* Private to model: from a declaration and a file to plans, memory and arguments.

   The graph is cut into sections: what stands before the loop over layers, the loop's body (one plan per distinct set of tensor formats),
   what stands after. A variable that crosses sections has two buffers of memory, read and written in turn. */
#ifndef LUMEN_MODEL_PRIV_H
#define LUMEN_MODEL_PRIV_H
#include "kern/kern.h"
#include "lang/lang.h"
#include "model/model.h"

/* hyper.c: numbers of the declaration. */
typedef struct Num { bool is_int; int64_t i; double f; } Num;
typedef struct Hyper { const char *name; bool is_array; Num num; float *array; int64_t n; } Hyper;
typedef struct HyperEnv {
  Arena *arena; const Module *module; const Weights *w;
  const ModelDecl *decl;         /* what other names a folder's keys and tensors may have; NULL: none */
  const char *arch;              /* what GGUF writes before keys; NULL: keys are as they are */
  int64_t context;
  Hyper *item; int n, cap;
  struct { const char *name; Num num; } local[4]; int n_local;   /* the layer's number, indices, row numbers */
  const Model *model; int layer;                                 /* has(..) of a declared tensor; layer -1: none */
  Hyper *of_layer; int n_of_layer;                               /* numbers of that layer */
  struct RuleBook *rules;                                        /* of rules.c; NULL at first */
} HyperEnv;
Err *hyper_eval(HyperEnv *env, const Expr *e, Num *out);
const char *hyper_name(HyperEnv *env, const char *pattern); /* a tensor's name: {x} is a number known here, as a layer's */
const FileKv *hyper_kv(HyperEnv *env, const char *name);       /* NULL: the file has none */
Err *hyper_kv_number(HyperEnv *env, const FileKv *kv, int64_t i, Num *out); /* item i; 0 where it is one number */
const FileTensor *hyper_tensor(HyperEnv *env, const char *pattern);
Err *hyper_load_array(HyperEnv *env, const HyperDecl *d, Hyper *h);
Err *hyper_load(HyperEnv *env, const ModelDecl *d);
Err *hyper_load_layer(HyperEnv *env, const LayerDecl *l, int layer, Hyper *out); /* out[l->n_hypers] */
void hyper_layer(HyperEnv *env, const LayerDecl *l, int layer, Hyper *numbers);  /* what a layer's expressions see from now on; l NULL: no layer */
const Hyper *hyper_find(const HyperEnv *env, const char *name);
double num_float(Num n);

/* parts.c: a weight that several tensors hold, as a layout of the texts says. */
typedef struct TensorParts {
  const LayoutDecl *layout;
  const char *stem;              /* what * stands for in the layout's names */
  FormatParts fit;
  const FileTensor *tensor[LAYOUT_MAX_PARTS]; /* as the layout lists them; NULL: none */
  const FileTensor *file;        /* what the weight would be in one tensor: its name, extents, bytes of all */
  FormatForm *form;
  float *number; int32_t *order; /* of the tensors' JSON; columns by group, NULL: as they are */
  const void **at;               /* what packing reads */
} TensorParts;
const char *model_with_stem(Arena *a, const char *pattern, const char *stem); /* the pattern, its * being the stem */
/* *out NULL: no layout's tensors lie there under this name. rows, cols 0: not known. Fails: what lies there fits no layout. */
Err *model_parts_find(HyperEnv *env, Tp *forms, const char *name, int64_t rows, int64_t cols, TensorParts **out);
void model_parts_used(const Weights *w, const TensorParts *p, bool *used); /* by the file's tensors: it knows them */
Err *model_parts_decode(Arena *a, Kerns *kerns, Tp *forms, const TensorParts *p, float *out); /* [rows][cols] */
/* The same a few rows at a time, from any number of threads: out[i] is row map[first + i], or first + i; tile: model_parts_tile_bytes of their own. */
typedef struct PartsReader { const TensorParts *parts; FormatForm *form; const Kern *pack; } PartsReader;
Err *model_parts_reader(Kerns *kerns, Tp *forms, const TensorParts *p, PartsReader *out);
size_t model_parts_tile_bytes(const PartsReader *r);
void model_parts_rows(const PartsReader *r, const int32_t *map, int64_t first, int64_t n, void *tile, float *out);
bool model_parts_near(const FormatForm *f, const int32_t row[PACK_ROWS]); /* rows that packing takes as one tile */
void model_parts_drop_pages(const TensorParts *p); /* of the file, under its tensors */

/* says.c: what the metadata says of weights and what their tensors say. */
enum { MODEL_STEMS_MAX = 256 };                   /* names that a key's * may stand for, where nothing picks from them; that are picked for one weight */
typedef struct ModelNames { char **name; int n, cap; } ModelNames;
Err *model_says_check(HyperEnv *env, const LayoutDecl *l, const char *stem, FormatParts *fit); /* fit: its extents are known; stem: the weight's name in the metadata's rules */
Err *model_says_known(HyperEnv *env);             /* a text of a key that every layout lists texts for, but this text none */
void model_says_tell(HyperEnv *env, const LayoutDecl *l, ModelNames *told, Str *out); /* "key value, .." of the metadata that it asks for and is not told yet */

/* rules.c: of which weights the metadata speaks. */
typedef struct Picked {
  ModelNames names;              /* what the key's * stands for, where the texts there fit; several: one of them */
  bool said;                     /* the metadata has such texts at all */
} Picked;
Err *model_rules_said(HyperEnv *env, const RulesDecl *d, bool *out); /* the metadata has such texts */
Err *model_rules_pick(HyperEnv *env, const RulesDecl *d, const char *weight, Picked *out); /* Fails: a text leaves the weight out, or cannot be compared within bounds */

/* load.c: tensors. */
typedef struct ModelTensor {
  const TensorDecl *decl;
  const TensorSource *source;    /* the one that the file has */
  const FileTensor *file;        /* NULL: filled with a number, or another tensor's */
  TensorParts *parts;            /* NULL: one tensor of the file holds it */
  FormatForm *form;
  int64_t dim[4]; int n_dims;
  const uint8_t *raw;            /* blocks as in the file, rows in file order */
  float *values;                 /* decoded, where the declaration says f32 */
  uint8_t *packed; int64_t packed_bytes;
  atomic_bool has_tiny;          /* packed bfloat16 that is not 0 and below 2^-56 */
  int order_of;                  /* the first tensor, here or in its layer, with this order of columns; its own index where there is none before */
  bool absent;                   /* the file has none, and the declaration allows it */
  int same_as;                   /* index of the tensor whose bytes it shares, -1 */
  bool want_packed, want_rows;   /* rows: picked one by one, as they lie */
} ModelTensor;

/* graph.c: sections. */
typedef enum BindKind { BIND_TEMP, BIND_VAR, BIND_TENSOR, BIND_LAYER_TENSOR, BIND_STATE, BIND_ARRAY, BIND_RUNTIME, BIND_ORDER, BIND_LAYER_ORDER } BindKind;
typedef struct Bind { BindKind kind; int index; bool out; } Bind;  /* TEMP: unused; VAR: variable; RUNTIME: graph parameter; ORDER: which column of the tensor each is; out: written */
typedef struct Var { const char *name; int64_t row_bytes; Dx dim0; bool is_sym_rows; int sym; IrMem mem; int64_t max_bytes; uint8_t *mem_at[2]; int now; } Var;
typedef struct VarBuf { int buf; bool assigned; } VarBuf;
typedef struct Section {
  Tp *tp; TpPlan *plan;
  Bind *bind;                    /* by buffer */
  int result;                    /* buffer of the graph's result; -1 */
  int64_t *temp_off; int64_t temp_bytes;
  const Kern *(*kern)[KERN_N_SHAPES]; /* by region */
  bool *per_seq;                 /* by region: touches state, runs once per sequence */
  struct SpentWork *spent;       /* of spent.c, by region */
} Section;

/* One run of a section's plan for one layer. */
typedef struct SeqArgs { void ***part; int n, cap; } SeqArgs;
typedef struct Call { Section *section; int layer; void ***args; SeqArgs *seq; } Call; /* args[region][i]; seq[region].part[nth sequence][i] */

/* spent.c: one kernel of a step, done. */
typedef struct SpentJob { const Kern *k; Section *section; int region; int64_t first_row, sym[2], n_items, t_ns; } SpentJob;

struct Model {
  Arena *arena; Arena *forms_arena;
  Module *module; const ModelDecl *decl;
  Weights *weights;
  HyperEnv env;
  ModelOptions opt;
  bool is_loaded;
  const char *precision, *kv; FormatForm *kv_form;
  Kerns *kerns; DevPool *pool;
  int n_threads;
  int64_t context, made_for; int chunk; int64_t n_vocab, n_layers;
  const LayerDecl *layer; Hyper *lhyper;        /* [layer][n_hypers] */
  Tp *forms;                     /* formats analyzed once, shared by all sections */
  ModelTensor *tensor; int n_tensors;           /* global */
  ModelTensor *ltensor; int n_ltensors;         /* [layer][n_ltensors] */
  const char **unused; int n_unused;            /* the file's tensors that the declaration does not name */
  ModelNames missing;                           /* those it names and the file lacks */
  Section *pre, *post; Section **by_layer;      /* by_layer[l]: the plan of layer l */
  Section **body; int n_bodies;
  Var *var; int n_vars, cap_vars;
  Call *call; int n_calls;
  int64_t state_bytes, state_slack; int64_t *state_off;  /* of the states, [layer][n_states]: bytes to the first row */
  Pages packed, var_mem, temp, scratch;
  bool temp_is_huge;                /* a step of many rows has asked for huge pages */
  int64_t scratch_bytes;
  int32_t *tokens, *pos, *rows;
  DevClaim *claim; int n_claims;
  struct Job *job; int cap_jobs;  /* of step.c */
  struct Span *span; int64_t n_spans; /* of step.c, [thread][job], while steps are watched */
  const float *logits; int64_t logits_stride;
  ModelTimes times;
  ModelSpent spent[2];           /* steps of one token a sequence, of several */
  bool watched;
  uint64_t n_checked;            /* lists of sequences for a step so far */
  const volatile int *cancel;    /* not 0: steps are given up; NULL: never */
};
struct Seq { Model *m; Pages state; int64_t n_tokens; uint64_t in_list; }; /* in_list: Model.n_checked of the last it was in */

Model *model_new(const ModelOptions *opt);
Err *model_bind(Model *m, const char *path);      /* up to tensors: no graph, no kernels but those that decode what the text wants as floats */
/* *decl is the text of what the files say they are; *arch: what GGUF calls it, NULL: a folder. */
Err *model_declaration(const Module *m, const Weights *w, const ModelDecl **decl, const char **arch);
Err *model_bind_tensors(Model *m);
Err *model_map_rows(Model *m, const TensorSource *s, int64_t n, int32_t *out); /* out[r]: the file's row that is row r */
bool model_has_tensor(const Model *m, int layer, const char *name, bool of_layer); /* a declared one */
Err *model_build_graph(Model *m);
Err *model_load_weights(Model *m);
Err *model_plan_memory(Model *m);
void model_spent_add(Model *m, ModelSpent *s, const SpentJob *j);
void model_spent_print(Model *m);
Err *model_kernels(Model *m, Section *s, KernShape shape);
#endif
