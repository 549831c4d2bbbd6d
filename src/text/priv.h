/* What the files of src/text share and nobody else sees: characters, values, the vocabulary's inside, the template's inside. */
#ifndef LUMEN_TEXT_PRIV_H
#define LUMEN_TEXT_PRIV_H
#include "text/text.h"

/* utf8.c: characters. A code point is an int32_t; -1 stands for a broken byte. */
int text_utf8_next_any(const char *p, const char *end, int32_t *cp);
/* Bytes read, at least 1; broken: 1 and cp -1. The two commonest lengths are decided here. */
static inline int text_utf8_next(const char *p, const char *end, int32_t *cp) {
  uint8_t a = (uint8_t)p[0];
  if (a < 0x80) { *cp = a; return 1; }
  if (a > 0xE0 && a < 0xF0 && a != 0xED && end - p > 2) {
    uint8_t b = (uint8_t)p[1] ^ 0x80, c = (uint8_t)p[2] ^ 0x80;
    if ((b | c) < 0x40) { *cp = (a & 15) << 12 | b << 6 | c; return 3; }
  }
  return text_utf8_next_any(p, end, cp);
}
/* What a digit stands for in bases up to 36; 99: it is none. */
static inline int text_digit(int c) { return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10 : 99; }
int64_t text_hex(const char *p, const char *end, int n);           /* the number of n hexadecimal digits, at most 8; -1: they are not all there */
int text_utf8_put(int32_t cp, char out[4]);                       /* bytes written */
void text_utf8_add(Str *s, int32_t cp);
size_t text_utf8_count(const char *p, size_t n);                  /* characters; a broken byte counts as one */
int text_utf8_seq_len(const char *p, size_t n, bool *complete);   /* what to emit next: a whole character, or a maximal broken part */
typedef enum CharClass { CHAR_LETTER = 1, CHAR_MARK = 2, CHAR_NUMBER = 4, CHAR_PUNCT = 8, CHAR_SYMBOL = 16, CHAR_SEPARATOR = 32, CHAR_OTHER = 64 } CharClass;
int text_char_class(int32_t cp);                                  /* one CharClass */
int text_char_category(int32_t cp);                               /* UTF8PROC_CATEGORY_* */
bool text_char_is_space(int32_t cp);                              /* White_Space */
bool text_char_is_pyspace(int32_t cp);                            /* Python's str.isspace */
bool text_char_is_word(int32_t cp);                               /* \w */
bool text_char_is_printable(int32_t cp);                          /* Python's str.isprintable */
typedef enum CaseMode { CASE_LOWER, CASE_UPPER, CASE_TITLE } CaseMode;
int text_char_case(int32_t cp, CaseMode mode, int32_t out[3]);    /* full case mapping; characters written */
typedef enum NormalForm { FORM_NFC, FORM_NFD, FORM_NFKC, FORM_NFKD } NormalForm;
bool text_char_is_still(int32_t cp, NormalForm form);             /* its own normal form, and nothing before it changes that */
void text_normal_form(const char *p, size_t n, NormalForm form, Str *out); /* broken bytes pass through */

/* json.c, value.c: values. Lists and dictionaries keep order. A value is good as long as its arena. */
__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 UInt128;
typedef enum ValKind {
  V_ERROR, V_UNDEF, V_NONE, V_BOOL, V_INT, V_BIG, V_FLOAT, V_STR, V_LIST, V_DICT, V_RANGE, V_ITER, V_VIEW, V_NAMESPACE, V_LOOP, V_FUNC, V_OBJECT
} ValKind;
typedef struct Val Val;
/* n_chars -1: not counted yet. Whose bytes they are: ours: the template's, but for those with user[i] != 0; else all the conversation's. */
typedef struct VStr { const char *p; size_t n; int64_t n_chars; bool safe, bytes, ours; const uint8_t *user; } VStr;
typedef struct VList { Val *items; int n, cap; bool tuple, group; } VList;                    /* group: groupby's pair, with names */
typedef struct VDict VDict;
typedef struct VUndef { const char *hint, *name, *owner; bool unsafe; } VUndef;                  /* why it is undefined, for the message */
typedef struct VRange { int64_t start, stop, step; } VRange;
typedef struct VIter { Val *items; int n, at; const char *type; Err *late; } VIter;           /* late: raised when first read */
typedef struct VView { VDict *dict; int what; } VView;                                        /* 0 keys, 1 values, 2 items */
typedef struct VLoop VLoop;
typedef struct VFunc VFunc;
typedef struct VObject VObject;
struct Val {
  uint8_t kind;
  union {
    bool b; int64_t i; const Int128 *big; double f; const VStr *s; VList *l; VDict *d; const VRange *r; VIter *it; const VView *view;
    VLoop *loop; const VFunc *fn; VObject *o; const VUndef *u;
  } u;
};
struct VDict { Val *keys, *vals; int n, cap; int32_t *slot; uint32_t n_slots; };

Val val_none(void);
Val val_bool(bool b);
Val val_int(Arena *a, Int128 i);
Val val_float(double f);
Val val_str(Arena *a, const char *p, size_t n);                   /* copies */
Val val_str_view(Arena *a, const char *p, size_t n);              /* p must outlive the arena's use */
Val val_list(Arena *a, int cap);
Val val_tuple(Arena *a, int cap);
Val val_dict(Arena *a);
void val_push(Arena *a, Val list, Val item);
void val_put(Arena *a, VDict *d, Val key, Val value);             /* key must be hashable */
Val *val_find(const VDict *d, Val key);                           /* NULL when absent or unhashable */
Val *val_get(Val dict, const char *key);                          /* NULL when absent or no dictionary */
bool val_is_str(Val v, const char *text);
bool val_hashable(Val v);
bool val_equal(Val a, Val b);
bool val_truth(Val v);
Int128 val_as_int(Val v);                                         /* bool, int, big */
bool val_is_int(Val v);
bool val_is_number(Val v);
double val_as_float(Val v);
const char *val_type_name(Val v);                                 /* Python's */
size_t val_n_chars(Val s);
void val_repr(Str *out, Val v);
void val_print(Str *out, Val v);                                  /* str() */
void val_repr_float(Str *out, double f);
void val_print_int(Str *out, Int128 i);
Val val_from_json(Arena *a, const json_t *j);

/* origin.c: text that knows which of its bytes the template wrote and which the conversation brought. Zero-initialise. */
typedef struct Weave { Str text, user; } Weave;                   /* user[i] != 0: the conversation's; past user.n: the template's */
void text_weave_free(Weave *w);
void text_weave_own(Weave *w, const char *p, size_t n);           /* the template's */
void text_weave_foreign(Weave *w, const char *p, size_t n);       /* the conversation's */
void text_weave_part(Weave *w, const VStr *s, const char *p, size_t n); /* bytes inside s, as they are there */
void text_weave_print(Weave *w, Val v);                           /* str(): a string's bytes as they are there, else all of one origin */
void text_weave_escape(Weave *w, Val v);                          /* the same with HTML escapes */
void text_weave_add(Weave *w, const Weave *more);
bool text_is_foreign(Val v);                                      /* something in it is the conversation's */
Val val_own(Arena *a, Val s);                                     /* the string as the template's */
Val val_part(Arena *a, const VStr *s, const char *p, size_t n);   /* a copy of bytes inside s */
void text_origin_settle(Val result, Val self, const Val *a, int n, const Val *b, int n_b); /* a new string made of the template's alone is the template's */

/* JSON text to a value. depth and size are bounded. Fails: ERR_SYNTAX with the byte's offset. */
Err *text_json_parse(Arena *a, const char *p, size_t n, Val *out);
/* Lists and objects of hundreds of thousands are walked, not made into values: those under the keys "vocab" and "merges" stay unread, as a byte
   string of their text that begins with its bracket. p[n] outlives what comes of it. */
typedef struct JsonWalk { Arena *a; const char *p, *end, *start; int depth; bool late; } JsonWalk;
Err *text_json_parse_late(Arena *a, const char *p, size_t n, Val *out);
char text_json_late(const Val *v);                                /* the bracket, or 0: v is NULL or has been read */
int64_t text_json_late_n(Val late);                               /* at least as many items as there are */
JsonWalk text_json_walk(Arena *a, Val late);                      /* stands before the bracket */
Err *text_json_enter(JsonWalk *w, char bracket);                  /* takes '[' or '{' */
Err *text_json_next(JsonWalk *w, char bracket, bool *first, bool *more); /* before each item, first true: takes the comma, or the end (more false) */
Err *text_json_string(JsonWalk *w, const char **p, size_t *n);    /* a view of the text where nothing is escaped */
Err *text_json_key(JsonWalk *w, const char **p, size_t *n);       /* and the colon */
Err *text_json_value(JsonWalk *w, Val *out);

/* vocab.c, model.c, split.c: the vocabulary's inside. */
typedef struct Tok {
  const char *text;        /* as spelled in the file */
  const char *piece;       /* what the model matches: raw bytes for byte-level BPE */
  uint32_t n_text, n_piece;
  double score;            /* all of it: sums of scores that are equal but for their order decide between ways to cut a text */
  uint32_t rank;
  int16_t byte;            /* value of a byte token, else -1 */
  uint8_t type;            /* TextTokenType */
  bool special : 1, in_model : 1;
} Tok;
/* Tables are zeroed memory, so making one costs no pass over it. */
typedef struct IdSlot { uint64_t head; uint32_t n; int32_t id; } IdSlot; /* the spelling's first 8 bytes; its length and NOT_MODEL; n 0: free */
typedef struct IdMap { IdSlot *slot; uint32_t mask; } IdMap;      /* text or piece to id */
enum { NOT_MODEL = 1 << 30 };                                     /* a token that the model never makes */
typedef struct MergeTo { uint32_t rank; int32_t id; } MergeTo;    /* id -1: no merge */
typedef struct MergeSlot { uint64_t key; MergeTo to; } MergeSlot;  /* key: left id, right id, and 1 more; 0: free */
typedef struct MergeMap { MergeSlot *slot; uint32_t mask, n; uint64_t *maybe; uint32_t maybe_mask; int32_t last; } MergeMap; /* maybe: a bit a hash, clear where there is surely no merge; last: what the last one made */
static inline bool text_merge_at(const MergeMap *m, uint32_t i, int32_t *left, int32_t *right) { /* is there one in slot i, and of which? */
  uint64_t pair = m->slot[i].key - 1;
  *left = (int32_t)(pair >> 32);
  *right = (int32_t)(uint32_t)pair;
  return m->slot[i].key;
}
typedef struct MergeText { const char *left, *right; uint32_t n_left, n_right, rank; } MergeText;
enum { BATCH = 32 };                                              /* questions that are put to a table together, so that memory is waited for once */
typedef struct TrieUnit { uint32_t base, check; int32_t value; } TrieUnit;
typedef struct Trie { TrieUnit *unit; bool first[256]; } Trie;    /* unit NULL: no keys; first: bytes that keys begin with */
typedef struct TrieKey { const char *p; uint32_t n; int32_t value; } TrieKey;
enum { TRIE_ROOT = 1 };
/* Words begin with a mark: a space, or SentencePiece's. No merge crosses a mark where no token holds the bytes around it, so words there are
   merged one by one. ctx: a bit a hash of up to 3 bytes before a mark inside a token and up to 3 after it; shape: a bit for each pair of
   lengths there is. A token whose part is shorter than 3 ends there. */
typedef struct Cuts { const char *mark; uint32_t n_mark, shape; uint64_t *ctx; uint32_t ctx_mask; } Cuts; /* mark NULL: never cut */
typedef enum ModelKind { MODEL_BPE, MODEL_UNIGRAM, MODEL_WORDPIECE, MODEL_LONGEST } ModelKind; /* the last: the longest piece, again and again */
typedef enum StepKind {
  STEP_FORM, STEP_LOWER, STEP_STRIP_ACCENTS, STEP_STRIP, STEP_PREPEND, STEP_REPLACE, STEP_REPLACE_REGEX, STEP_CHARSMAP, STEP_NMT, STEP_BERT,
  STEP_SPLIT, STEP_METASPACE, STEP_PREFIX_SPACE
} StepKind;
typedef enum SplitMode { SPLIT_ISOLATED, SPLIT_REMOVED, SPLIT_PREVIOUS, SPLIT_NEXT, SPLIT_CONTIGUOUS } SplitMode;
typedef enum Scan { SCAN_REGEX, SCAN_SPACES, SCAN_PUNCT } Scan;
enum { MAX_PRE_STEPS = 64 };
typedef enum PrependMode { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS } PrependMode;
typedef struct Regex Regex;
typedef struct Step {
  StepKind kind;
  Regex *re;
  const char *text, *with;           /* pattern or prefix; replacement */
  size_t n_text, n_with;
  Scan scan;                         /* split: what is looked for, where it is neither re nor text */
  int mode;                          /* NormalForm, SplitMode or PrependMode */
  bool invert, left, right;          /* split: matches and rests change roles; strip: which sides; metaspace: left = split */
  bool clean, han, accents, lower;   /* STEP_BERT */
} Step;
typedef struct Added { int32_t id; bool lstrip, rstrip, single_word, normalized, special, markup; } Added;
typedef enum DecodeKind { DECODE_BYTES, DECODE_SPM, DECODE_METASPACE, DECODE_WORDPIECE } DecodeKind;
struct TextVocab {
  Arena *arena;
  int n_tokens;
  Tok *tok;
  Pages pages[6];                    /* tables that are too large for the arena */
  int n_pages;
  bool alike;                        /* two tokens are spelled alike */
  IdMap by_text;                     /* spelled in the file; the pieces too, where pieces are the spellings */
  IdMap by_piece;                    /* tokens of the model by their bytes, where they are spelled otherwise and asked for */
  bool leveled;                      /* spelled in GPT-2's printable bytes */
  ModelKind model;
  bool byte_level, byte_fallback, fuse_unk, ignore_merges, by_rank; /* by_rank: a merge is any pair whose join is a token */
  uint32_t max_piece;                /* bytes */
  Cuts cuts;                         /* where a piece may be merged in parts */
  MergeMap merges;
  MergeTo *byte_pair;                /* [65536] what two byte tokens merge into; byte-level vocabularies have it */
  int32_t byte_id[256];
  int unk, bos, eos;
  Trie trie;                         /* pieces of all but BPE */
  uint32_t word_root, cont_root;     /* WordPiece: the node after the prefix of a word's first piece, of the others'; 0: no such piece */
  double unk_score;
  const char *word_prefix, *cont_prefix;
  int max_word_chars;
  Step *norm, *pre;
  int n_norm, n_pre;
  Added *added;
  int n_added;
  Trie added_raw, added_norm;        /* value: index into added */
  int32_t *prefix, *suffix;
  int n_prefix, n_suffix;
  DecodeKind decode;
  bool strip_first, cleanup;
  const char *warning;
  const uint8_t *charsmap;
  size_t n_charsmap;
  Regex **regexes;                   /* to release */
  int n_regexes, cap_regexes;
};
TextVocab *text_vocab_alloc(int n_tokens);
Err *text_vocab_finish(TextVocab *v);                             /* maps, added-token tries; call once everything is filled */
void text_vocab_index_text(TextVocab *v);                         /* by_text only */
void text_vocab_index_more(TextVocab *v, int32_t id);             /* a token that came after it */
void text_vocab_merges_reserve(TextVocab *v, int n);              /* before the first of at most n */
void text_vocab_merges_add(TextVocab *v, const MergeText *m, int n); /* at most BATCH; the texts are spelled as tokens are */
bool text_bytes_from_level(const char *p, size_t n, char *out, uint32_t *n_out); /* GPT-2's printable bytes back to at most n bytes */
uint64_t text_hash(const char *p, size_t n);                      /* of short texts, fast: not kept anywhere, not for untrusted keys alone */
int text_byte_spelled(const char *p, size_t n);                   /* as <0x00> to <0xFF>, or -1 */
int text_piece_find(const TextVocab *v, const char *p, size_t n); /* id of the model's token of these bytes, or -1 */

static inline uint32_t text_cut_hash(const char *p, uint32_t n, const char *q, uint32_t m) { /* of up to 3 bytes and 3 more */
  uint64_t k = n << 2 | m;
  for (uint32_t i = 0; i < n; i++) k = k << 8 | (uint8_t)p[i];
  for (uint32_t i = 0; i < m; i++) k = k << 8 | (uint8_t)q[i];
  return (uint32_t)((k * 0x9E3779B97F4A7C15u) >> 32);
}

/* trie.c: byte strings to values. */
void text_trie_make(Trie *t, TrieKey *key, int n);                /* reorders key; of equal ones the first counts */
void text_trie_free(Trie *t);
static inline uint32_t text_trie_step(const Trie *t, uint32_t node, uint8_t byte) { /* t has keys; 0: no edge */
  uint32_t next = t->unit[node].base + byte;
  return t->unit[next].check == node ? next : 0;
}

/* hf.c: a vocabulary from a file's text; path says what the text does not (a tiktoken file's split rule). tmp lives during the call only. */
Err *text_vocab_read(Arena *tmp, const char *path, const char *text, size_t n, TextVocab **out);

/* model.c: one piece to ids. */
typedef struct ModelScratch ModelScratch;
/* For pieces of one text, which stay where they are until it is freed. plain: special tokens never come out of text. */
ModelScratch *text_model_scratch_new(size_t n_text, bool plain);
void text_model_scratch_free(ModelScratch *s);
MergeTo text_pair_find(const TextVocab *v, const char *p, size_t n, int32_t left, int32_t right); /* p[n]: the bytes of both */
void text_model_piece(const TextVocab *v, ModelScratch *s, const char *p, size_t n, TextIds *out);

/* split.c: regular expressions and what they cut. */
typedef struct Piece { const char *p; size_t n; } Piece;
Err *text_regex_new(TextVocab *v, const char *pattern, size_t n, Regex **out); /* owned by v */
void text_regex_free(Regex *re);
Err *text_split_rule(TextVocab *v, const char *name);             /* appends the named rule's steps; ERR_UNSUPPORTED */
const char *text_split_rule_of_ranks(const char *file, bool *is_guess); /* of a tiktoken file: its name, without folders */
const char *text_split_rank_name(int i);                          /* what such a name says it by; NULL past the end */
const char *text_split_rule_name(int i);                          /* NULL past the end */
/* normal.c */
Err *text_steps_normalize(const TextVocab *v, const Step *steps, int n_steps, const char *p, size_t n, Str *out);
/* Each piece goes to the sink as soon as it is cut; it points into p or the arena. */
typedef void (*PieceSink)(void *to, const char *p, size_t n);
void text_steps_split(const TextVocab *v, Arena *a, const char *p, size_t n, bool at_start, PieceSink sink, void *to);
void text_step_replace(const Step *s, const char *p, size_t n, Str *out);

/* lex.c, parse.c: a template's tokens and tree. Names are interned per template: equal names are equal pointers. */
#ifdef LUMEN_SMALL_BUDGETS /* a fuzz target's: a bound that is never reached in its time is a bound that is never tried */
enum { TEMPLATE_MAX_OUTPUT = 1 << 20, TEMPLATE_MAX_MEMORY = 16 << 20, TEMPLATE_MAX_STEPS = 200000 };
#else
enum { TEMPLATE_MAX_OUTPUT = 64 << 20, TEMPLATE_MAX_MEMORY = 512 << 20, TEMPLATE_MAX_STEPS = 50000000 };
#endif
enum { TEMPLATE_MAX_DEPTH = 1000, TEMPLATE_MAX_RANGE = 100000 };
typedef enum TokenKind {
  TK_EOF, TK_DATA, TK_VAR_BEGIN, TK_VAR_END, TK_BLOCK_BEGIN, TK_BLOCK_END, TK_NAME, TK_STRING, TK_INTEGER, TK_FLOAT,
#define OPERATOR(id, text) TK_##id,
#include "text/jinja_operators.def"
#undef OPERATOR
  TK_COUNT
} TokenKind;
typedef struct Token { TokenKind kind; int line; const char *name; Val value; } Token; /* name: interned; value: data and literals */
typedef struct Names { const char **slot; uint32_t n, mask; } Names;
const char *text_name(Arena *a, Names *names, const char *p, size_t n);
Err *text_template_lex(Arena *a, Names *names, const char *src, size_t n, Token **out, int *n_out);
const char *text_token_name(TokenKind k);

typedef enum NodeKind {
  N_CONST, N_NAME, N_TUPLE, N_LIST, N_DICT, N_GETATTR, N_GETITEM, N_SLICE, N_CALL, N_FILTER, N_TEST, N_COND, N_OR, N_AND, N_NOT, N_NEG, N_POS,
  N_BINARY, N_COMPARE, N_CONCAT, N_NSREF,
  N_DATA, N_PRINT, N_FOR, N_IF, N_SET, N_SETBLOCK, N_MACRO, N_CALLBLOCK, N_FILTERBLOCK, N_WITH, N_AUTOESCAPE, N_BLOCK, N_SCOPE, N_BREAK, N_CONTINUE, N_LOADER
} NodeKind;
typedef struct Node Node;
struct Node {
  uint8_t kind;
  uint8_t op;              /* TokenKind of binary operators and comparisons; 1 marks "not in" among N_COMPARE's operands */
  bool flag;               /* for: recursive; macro: see uses_ */
  bool uses_varargs, uses_kwargs, uses_caller;
  int line, n, n2;
  const char *name;
  Val value;
  Node *a, *b, *c;         /* operands; for: target, iterable, test; call: callee, *args, **kwargs */
  Node **list, **list2;    /* items, arguments, body; keyword values, defaults, else */
  const char **names;      /* keywords [n2], parameters [n] */
};
struct TextTemplate { Node **body; int n; Names names; };
Err *text_template_tree(Arena *a, const char *src, size_t n, TextTemplate **out);

/* eval.c: rendering. A value of kind V_ERROR means render->err says why. */
typedef struct Scope Scope;
typedef struct Render Render;
typedef struct Args { Val *pos, *kw; const char *const *kw_names; int n, n_kw; } Args;
typedef Val (*Builtin)(Render *r, Val self, Val *arg, const Args *all); /* arg: by the row's parameter list; V_ERROR where not given */
typedef struct BuiltinRow { const char *name, *params; int n_required; Builtin fn; } BuiltinRow; /* params "*": anything, see all */
struct VFunc { const char *name; const BuiltinRow *row; Val self; const Node *macro; Scope *closure; };
struct VLoop { Val *items; int n, at, depth; Val last; bool has_last; const Node *node; Scope *scope; };
struct VObject { const char *type; Val *items; int n, at; };
struct Render {
  Arena *arena;
  const TextTemplate *t;
  Val context;
  Scope *root;
  Weave *out;
  Err *err;
  struct tm now;
  int64_t steps;
  int depth, line;
  bool autoescape;
  VIter **late;            /* iterators that hold an error back: freed with the render */
  int n_late, cap_late;
};
Err *text_render_run(Render *r);
Val val_fail(Render *r, ErrKind kind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool text_render_room(Render *r, size_t n_bytes, int64_t n_steps); /* false: the budget is gone and the error set */
Val text_render_take(Render *r, Str *s, bool safe);               /* s becomes a string value and is freed; too long: an error */
Val text_weave_take(Render *r, Weave *w, bool safe);              /* the same, keeping whose bytes they are */
Val text_undefined(Render *r, const char *hint, const char *name, const char *owner);
Val text_undefined_error(Render *r, Val undef);
Val text_getattr(Render *r, Val obj, const char *name, size_t n);
Val text_getitem(Render *r, Val obj, Val key);
Val text_call(Render *r, Val fn, const Args *args);
Val text_call_row(Render *r, const BuiltinRow *row, Val self, const Args *args);
Val text_filter(Render *r, const char *name, Val v, const Args *args);
Val text_test(Render *r, const char *name, Val v, const Args *args);
bool text_iterate(Render *r, Val v, Val **items, int *n);         /* any iterable to an array; false: error set */
bool text_length(Render *r, Val v, int64_t *n);
Val text_binary(Render *r, TokenKind op, Val a, Val b);
int text_compare(Render *r, Val a, Val b, bool *ok);              /* order of two values; ok false: error set */
bool text_contains(Render *r, Val container, Val item, bool *ok);
Val text_func(Render *r, const BuiltinRow *row, Val self);
void text_escape(Str *out, const char *p, size_t n);

/* filters.c, sequences.c, methods.c, globals.c, format.c, tojson.c: what templates call. Rows: filters.def, tests.def, methods.def, globals.def. */
const BuiltinRow *text_filter_row(const char *name);
#define FILTER(name, params, required, fn) Val fn(Render *r, Val v, Val *arg, const Args *all);
#include "text/filters.def"
#undef FILTER
const BuiltinRow *text_test_row(const char *name);
const BuiltinRow *text_global_row(const char *name);
const BuiltinRow *text_method_row(Val v, const char *name, size_t n);
bool text_method_mutates(Val v, const char *name, size_t n);
Val text_percent(Render *r, Val fmt, Val args, const Args *named);
Val text_format(Render *r, Val fmt, const Args *args, Val mapping);
Val text_to_json(Render *r, Val v, bool ascii, Val indent, Val separators, bool sort);
Val text_str_case(Render *r, Val s, int how);                      /* 0 lower 1 upper 2 title 3 capitalize 4 swapcase */
Val text_str_strip(Render *r, Val s, Val chars, int sides);        /* 1 left 2 right */
Val text_str_replace(Render *r, Val s, Val old, Val with, int64_t count);
Val text_str_splitlines(Render *r, Val s, bool keep);
Val text_str_slice(Render *r, Val s, int64_t start, int64_t stop, int64_t step, int64_t count);
Val text_lower_if_str(Render *r, Val v);
Val text_attr_path(Render *r, Val item, Val path, const Val *otherwise); /* the attribute of map, sort, groupby: "a.b.0" */
Val text_to_str(Render *r, Val v);                                 /* str() */
Val text_soft_str(Render *r, Val v);                               /* str() that keeps Markup */
/* cmd.c */
Err *text_write_out(const Str *s, FILE *out);                  /* all of a command's answer: standard output */
#endif
