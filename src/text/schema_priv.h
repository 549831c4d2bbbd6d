/* What the files that read JSON Schemas share. */
#ifndef LUMEN_SCHEMA_PRIV_H
#define LUMEN_SCHEMA_PRIV_H
#include "text/grammar_priv.h"

/* A condition on a value: a schema, a schema's negation, or being equal to a constant. Interned, so sets of them can be compared. */
typedef enum CondKind { COND_SCHEMA, COND_NOT, COND_VALUE } CondKind;
typedef struct Branches Branches;
typedef struct Cond {
  const json_t *js;
  CondKind kind;
  int id;
  const char *path, *base; /* of the schema in its document; base: the URI that its references are relative to */
  Branches *done;
  bool busy;
} Cond;
typedef struct CondSet { Cond **c; int n, cap; } CondSet;    /* sorted by id: all of them hold */

enum { T_NULL = 1, T_TRUE = 2, T_FALSE = 4, T_NUM = 8, T_STR = 16, T_ARR = 32, T_OBJ = 64, T_ALL = 127 };
typedef struct PropRow { const char *name; size_t n_name; Cond *value; } PropRow;         /* value NULL: anything */
typedef struct PatternRow { const char *text; const Dfa *dfa; Cond *value; } PatternRow;
typedef struct ObjPart { PropRow *prop; int n_props, cap_props; PatternRow *pattern; int n_patterns, cap_patterns; Cond *additional; bool covers, unseen; } ObjPart;
typedef struct ArrPart { Cond **prefix; int n_prefix; Cond *items; bool covers, unseen; } ArrPart;
/* covers: every item or property counts as evaluated; unseen: nothing here does (it comes from a negation) */
typedef struct Contains { Cond *what; int64_t min, max; } Contains;
/* One way to satisfy a condition: for each type still allowed, what holds for it. */
typedef struct Branch {
  unsigned types;
  const Dfa *num, *str;    /* NULL: any */
  int64_t min_len, max_len, min_items, max_items, min_props, max_props; /* max -1: no bound */
  bool unique;
  const char *unique_path;
  ArrPart *arr; int n_arr, cap_arr;
  Contains *contains; int n_contains, cap_contains;
  ObjPart *obj; int n_obj, cap_obj;
  DfaWord *required; int n_required, cap_required;
  Cond **names; int n_names, cap_names;  /* propertyNames */
} Branch;
struct Branches { Branch *b; int n, cap; };
typedef struct Schema Schema;
typedef struct Place { const json_t *js; const char *path, *base; } Place; /* a schema by its URI, or URI#anchor; base: outside of its own $id */
struct Schema {
  GrWork w;
  Grammar *g;
  unsigned flags;
  const json_t *root;
  Cond **cond; int n_conds, cap_conds; int *slot; uint32_t mask;
  struct { const char *uri; Place at; bool dynamic; } *place; int n_places, cap_places;
  Cond *anything, *nothing;
  bool has_unevaluated;    /* somewhere in the document: then it matters which alternatives hold together */
  int depth;               /* of conditions under way */
  /* schema_emit.c */
  const GrArgs *args;      /* NULL: all is JSON */
  bool is_call, escapes;   /* arguments of a call: in any order, as models do; with escapes that its template writes */
  unsigned types;          /* of the whole */
  GrValues values;
  const Dfa *texts;        /* those without args' closing; NULL: any */
  struct { CondSet set; unsigned types; uint32_t rule; } *want; int n_wants, cap_wants;
  struct { const Dfa *dfa; int kind; uint32_t rule; } *leaf; int n_leaves, cap_leaves;
  uint32_t ws, ws_spaces, word[3];
};

/* schema.c */
Cond *schema_cond(Schema *s, const json_t *js, CondKind kind, const char *path, const char *base);
Err *schema_branches(Schema *s, Cond *c, const Branches **out);
Err *schema_set_branches(Schema *s, const CondSet *set, Branches *out);       /* all hold; those that nothing satisfies left out */
void schema_set_add(Schema *s, CondSet *set, Cond *c);                       /* NULL and what always holds add nothing */
Err *schema_string_dfa(Schema *s, const Branch *b, const Dfa **out);          /* with the lengths */
Err *schema_texts_dfa(Schema *s, const Branches *b, const Dfa **out);         /* the texts that some way allows */
Err *schema_refuse(Schema *s, const char *path, const char *key, const char *why); /* ERR_UNSUPPORTED, or a warning with GRAMMAR_RELAX */
Err *schema_cross(Schema *s, const Branch *a, const Branch *b, Branch *out);
Branch schema_top(void);
/* schema_local.c: the keywords of one schema that look at the value itself. */
Err *schema_local(Schema *s, const Cond *c, Branch *out);
Err *schema_local_not(Schema *s, const Cond *c, Branches *out);               /* the ways to break one of them */
Err *schema_value(Schema *s, const Cond *c, Branch *out);                     /* being equal to a constant */
Err *schema_values(Schema *s, const Cond *c, const json_t *list, Branches *out); /* being one of these */
Err *schema_count(const Cond *c, const char *key, int64_t deflt, int64_t *out);
Err *schema_fault(const Cond *c, const char *key, const char *expected);
/* schema_emit.c */
Err *schema_emit(Schema *s, Cond *root);
Err *schema_rule_of(Schema *s, const CondSet *set, unsigned types, uint32_t *out); /* of the values of these types; its states are made later */
/* The value of a key, a word of the keys' names; NULL: of any other key. */
typedef Err *SchemaValue(Schema *s, const DfaWord *name, const CondSet *set, uint32_t *rule);
typedef struct ObjectParts { uint32_t rule; GrObject *o; Dfa *keys; int n; } ObjectParts; /* keys: tags are the n classes */
/* An object's rule without states, its tables and the automaton of its keys. is_bare: keys stand without quotes. */
Err *schema_object(Schema *s, const Branch *b, SchemaValue *value, bool is_bare, ObjectParts *out);
bool schema_never_holds(const Schema *s, const CondSet *set);
/* schema_args.c: arguments of calls that are no JSON object, and texts without quotes. */
Err *schema_args(Schema *s, const CondSet *root, uint32_t *out);
bool schema_key_fits(const Schema *s, DfaWord key);                          /* it can be written without quotes */
#endif
