/* What the files of structured output share: symbol sets, regular expressions, automata over symbols, and the compiled grammar's inside. */
#ifndef LUMEN_GRAMMAR_PRIV_H
#define LUMEN_GRAMMAR_PRIV_H
#include "text/grammar.h"

/* A symbol is a code point, one of two marks for the ends of a text, or the call of a rule. */
enum { SYM_MAX_CHAR = 0x10FFFF, SYM_BEGIN = 0x110000, SYM_END = 0x110001, SYM_CALL = 0x200000 };

/* Everything one compile allocates and spends. The budget bounds time and memory together: every state, edge and step costs. */
typedef struct GrProperty GrProperty;                        /* regex.c */
typedef struct GrWork { Arena *a; int64_t left; GrProperty *properties; } GrWork; /* properties: of Unicode, those that were made so far */
enum { GR_BUDGET = 40000000, GR_NEST_MAX = 200, GR_NFA_MAX = 400000, GR_DFA_MAX = 60000 };
Err *grammar_work_spend(GrWork *w, int64_t n);               /* ERR_LIMIT when the budget is gone */

typedef struct SymRange { uint32_t lo, hi; } SymRange;       /* both inclusive */
typedef struct SymSet { SymRange *r; int n, cap; } SymSet;   /* sorted, disjoint, not adjacent once normalized */
void grammar_set_add(GrWork *w, SymSet *s, uint32_t lo, uint32_t hi);
void grammar_set_normalize(SymSet *s);
void grammar_set_invert(GrWork *w, SymSet *s);               /* within the code points, surrogates left out */

typedef enum ReKind { RE_NONE, RE_EMPTY, RE_SET, RE_CAT, RE_ALT, RE_REPEAT } ReKind;
typedef struct Re Re;
struct Re {
  ReKind kind;
  int min, max;            /* RE_REPEAT; max -1: no bound */
  int n_kids, cap;
  Re **kid;
  const SymSet *set;       /* RE_SET */
};
/* regex.c */
Re *grammar_re_new(GrWork *w, ReKind kind);
Re *grammar_re_add(GrWork *w, Re *parent, Re *kid);          /* returns parent */
Re *grammar_re_repeat(GrWork *w, Re *kid, int min, int max);
Re *grammar_re_range(GrWork *w, uint32_t lo, uint32_t hi);
Re *grammar_re_text(GrWork *w, const char *utf8, size_t n);
/* scripts.c: adds the characters of a script, or of its extensions too; false: there is no such script. */
bool grammar_script(GrWork *w, const char *name, bool extensions, SymSet *set);
/* The expression with its anchors as marks. */
Err *grammar_re_parse(GrWork *w, const char *re, size_t n, Re **out);
typedef struct Dfa Dfa;
Err *grammar_regex_dfa(GrWork *w, const char *re, size_t n, bool search, Dfa **out); /* search: anywhere in the text, as `pattern` means it */

/* regex_dfa.c: automata over symbols. State 0 is the start. Edges are sorted and disjoint; a missing edge is death. Trimmed: from every
   state but an empty automaton's start some accepting state can be reached. */
typedef struct DfaEdge { uint32_t lo, hi; int32_t to; } DfaEdge;
typedef struct DfaState { DfaEdge *edge; int n_edges, cap; int32_t tag; } DfaState;  /* tag -1: not accepting */
struct Dfa { DfaState *st; int n, cap; };
Err *grammar_dfa_from_re(GrWork *w, const Re *re, Dfa **out);                 /* accepting states have tag 0 */
typedef int32_t (*DfaCombine)(void *ctx, int32_t a, int32_t b);               /* tags of both (-1 also where one is dead) -> tag */
Err *grammar_dfa_product(GrWork *w, const Dfa *a, const Dfa *b, DfaCombine f, void *ctx, Dfa **out);
Err *grammar_dfa_and(GrWork *w, const Dfa *a, const Dfa *b, Dfa **out);
Err *grammar_dfa_or(GrWork *w, const Dfa *a, const Dfa *b, Dfa **out);
Err *grammar_dfa_minus(GrWork *w, const Dfa *a, const Dfa *b, Dfa **out);
Dfa *grammar_dfa_any(GrWork *w);                                              /* every text */
Dfa *grammar_dfa_empty(GrWork *w);
bool grammar_dfa_is_empty(const Dfa *d);
typedef struct DfaWord { const char *p; size_t n; } DfaWord;                  /* UTF-8 */
Err *grammar_dfa_words(GrWork *w, const DfaWord *word, int n, bool total, Dfa **out); /* tag: index of the word; total: others have tag n */
Err *grammar_dfa_length(GrWork *w, int64_t min, int64_t max, Dfa **out);      /* code points; max -1: no bound */
typedef struct DfaMachine {                                                   /* a hand-written automaton, explored */
  uint64_t start;
  const char *alphabet;
  uint64_t (*step)(const void *ctx, uint64_t state, char c);                  /* UINT64_MAX: death */
  int32_t (*tag)(const void *ctx, uint64_t state);
  const void *ctx;
} DfaMachine;
Err *grammar_dfa_machine(GrWork *w, const DfaMachine *m, Dfa **out);
Err *grammar_dfa_minimize(GrWork *w, Dfa *d);                                 /* merges equal states where that is cheap, drops dead ones */
bool grammar_dfa_equal(const Dfa *a, const Dfa *b);

/* The compiled grammar. Edges of a state are sorted by byte; overlapping edges are allowed (alternatives). An act is what else taking an
   edge means; it is what lets one small automaton stand for a counter or for "each property once, in order". */
typedef enum GrAct {
  GR_PLAIN,
  GR_COUNT,                /* one more round of a counted rule */
  GR_KEY,                  /* into a state of the key automaton: some name reachable from there must still be allowed */
  GR_COMMIT,               /* the key is whole: its class (arg) must be allowed and is now taken */
  GR_CLOSE,                /* the object, or the rounds, may end here */
  GR_MORE,                 /* another property may follow */
  GR_GO_ON                 /* either of both */
} GrAct;
typedef struct GrEdge { uint8_t lo, hi, act; uint32_t to; int32_t arg; } GrEdge;
typedef struct GrCall { uint32_t rule, ret; uint8_t act; } GrCall;
typedef struct GrState { uint32_t edge, call, rule; uint16_t n_edges, n_calls; bool accept, tail, between; } GrState; /* tail: accepts, leads nowhere; between: of a counted rule, where a round is over */
typedef enum GrRuleKind { GR_AUTOMATON, GR_COUNTED, GR_OBJECT } GrRuleKind;
typedef struct GrObject {
  int n_names, n_classes;  /* classes: the names in their order, then kinds of other properties */
  bool any_order, extras;  /* extras: some class above n_names is open */
  const bool *required;    /* [n_names] */
  const int32_t *next_required; /* [n_names + 1] first required name at or after, n_names if none */
  const int32_t *n_required_from; /* [n_names + 1] required names at or after */
  int32_t *n_open_from;    /* [n_names + 1] open names at or after */
  bool *open;              /* [n_classes] some value exists */
  uint32_t key_base;       /* first state of the key automaton */
  int n_keys, n_words;
  uint64_t *reach;         /* [n_keys][n_words] classes whose names can still be completed from the state */
  const uint32_t *value;   /* [n_classes] the value's rule */
} GrObject;
typedef struct GrRule {
  GrRuleKind kind;
  uint32_t start, loop;    /* loop: of a counted rule, where the first round begins. The rule may end where a round is over */
  const char *name;        /* in messages; may be NULL */
  int64_t min, max;        /* rounds or properties; max -1: no bound */
  GrObject *object;
  bool productive, nullable, cycle;
} GrRule;
struct Grammar {
  Arena *a;
  GrRule *rule; int n_rules, cap_rules;
  GrState *st; int n_st, cap_st;
  GrEdge *edge; int n_edges, cap_edges;
  GrCall *call; int n_calls, cap_calls;
  uint32_t root;
  uint8_t byte_class[256];
  int n_byte_classes;
  Str warnings;
};
/* Where a rule stands: a state and what the rule's kind adds: rounds so far (signed: matchers also try rounds that start below zero); or position or taken set, and the number of properties. */
typedef struct GrPos { uint32_t q; uint64_t aux; } GrPos;

/* grammar.c: building and stepping. */
Grammar *grammar_new(void);
uint32_t grammar_rule_new(Grammar *g, GrRuleKind kind, const char *name);
uint32_t grammar_state_new(Grammar *g, uint32_t rule);
uint32_t grammar_end_new(Grammar *g, uint32_t rule);                          /* a state that accepts */
/* All edges of a state are added before those of another one, and likewise its calls. */
void grammar_edge_add(Grammar *g, uint32_t from, uint8_t lo, uint8_t hi, GrAct act, int32_t arg, uint32_t to);
void grammar_call_add(Grammar *g, uint32_t from, uint32_t rule, GrAct act, uint32_t ret);
/* UTF-8; inside a JSON string, escapes where a writer uses them; any escape; only those a writer must use; inside a text of Python's in either quotes */
enum { GR_ENC_RAW, GR_ENC_JSON, GR_ENC_JSON_FREE, GR_ENC_JSON_PLAIN, GR_ENC_PYTHON, GR_ENC_PYTHON_SINGLE };
enum { GR_SPECIAL = 0xFF };                                 /* in front of the bytes of a special token: no text has it */
/* A state of the rule from which the text leads to `to`; special tokens that spell a part of it may stand for that part. last: the act of its
   last byte. */
uint32_t grammar_text_to(Grammar *g, uint32_t rule, const char *text, size_t n, GrAct last, uint32_t to);
/* Several texts that may follow one state: its edges, to be put all at once. */
typedef struct GrFork { GrEdge e[16]; int n; } GrFork;
void grammar_fork_text(Grammar *g, uint32_t rule, GrFork *f, const char *text, GrAct first, GrAct last, uint32_t to); /* text is not empty */
void grammar_fork_put(Grammar *g, uint32_t state, const GrFork *f);
/* Turns an automaton over symbols into states of a rule, one for each of the DFA's and more between bytes. map[i]: the state of DFA state i;
   these are made first, in order. n_close: close_byte
   after an accepting state leads to close[tag], with the tag as arg; 0: the state accepts. GR_ROUND: an accepting state is a round's end, and
   close_byte at its beginning the end of the rounds. GR_SYMBOLS: each symbol is a round. special: NULL, or likewise where GR_SPECIAL leads. */
typedef enum GrCounting { GR_NO_COUNT, GR_ROUND, GR_SYMBOLS } GrCounting;
typedef struct GrEncode { int mode; uint32_t rule; GrCounting counted; const uint32_t *close, *special; int n_close; uint8_t close_byte; GrAct act; } GrEncode;
Err *grammar_encode_dfa(Grammar *g, GrWork *w, const Dfa *d, const GrEncode *e, uint32_t *map);
Err *grammar_finish(Grammar *g, GrWork *w);                                   /* checks left recursion, cuts what leads nowhere */
bool grammar_pos_accepts(const Grammar *g, GrPos p);
bool grammar_edge_allowed(const Grammar *g, GrPos p, const GrEdge *e, uint64_t *aux); /* *aux: what it becomes */
bool grammar_call_allowed(const Grammar *g, GrPos p, const GrCall *c, uint64_t *aux);
GrPos grammar_pos_canonical(const Grammar *g, GrPos p, int n_bytes);          /* one that behaves the same for that many bytes */

/* schema.c: a schema's rule beside what the grammar has already. */
Err *grammar_schema_rule(Grammar *g, GrWork *w, const json_t *schema, unsigned flags, uint32_t *rule);
/* How the arguments of a call are written: open KEY is VALUE sep KEY is VALUE close; open NULL: as a JSON object. */
typedef enum GrValues { GR_VALUES_JSON, GR_VALUES_PYTHON, GR_VALUES_BRACES } GrValues;
#define GR_BRACES_QUOTE "<|\"|>"   /* around texts, which hold anything else */
typedef struct GrArgs {
  GrValues values;
  const char *open, *empty;  /* in front of the first key; what stands instead of it all where there are no arguments */
  const char *is, *is_json;  /* behind a key; is_json: where that says that the value is JSON, else NULL */
  const char *end, *closing; /* behind a value, and the part of it by which its reader finds the end: no value holds that. "": values end by themselves */
  const char *sep, *close;   /* then: another argument follows, none does */
  uint32_t *any_text;        /* [2] rules of texts that are not bounded, shared by all tools: 0, or made before; [1]: where null is read and allowed */
  const json_t *tool;        /* whose parameters: what their reader takes for text is text */
  bool escapes;              /* the template writes what is not ASCII as \u escapes */
} GrArgs;
Err *grammar_args_rule(Grammar *g, GrWork *w, const json_t *schema, unsigned flags, const GrArgs *args, uint32_t *rule);

/* schema_number.c: numbers as texts. A Dec is an exact decimal: sign, digits without leading zeros, exponent of ten. */
typedef struct Dec { bool neg; const char *digits; int n, exp; } Dec;         /* value = 0.DIGITS * 10^exp; n 0: zero */
Err *grammar_dec_from_json(GrWork *w, const json_t *v, Dec *out);
typedef enum NumRelation { NUM_LT = 1, NUM_EQ = 2, NUM_GT = 4 } NumRelation;
Err *grammar_num_compare(GrWork *w, Dec bound, int relations, Dfa **out);     /* plain decimals that stand so to the bound */
Err *grammar_num_multiple(GrWork *w, Dec of, Dfa **out);                      /* ERR_UNSUPPORTED when it would be too large */
Err *grammar_num_any(GrWork *w, Dfa **out);                                   /* JSON's numbers, exponents too */
Err *grammar_num_plain(GrWork *w, Dfa **out);                                 /* without exponents */
Err *grammar_num_integer(GrWork *w, bool point_zero, Dfa **out);              /* point_zero: 1.0 too */
#endif
