/* toolcall: the machines below a reply. Each takes one byte at a time and may be left at any byte. */
#ifndef LUMEN_TEXT_TOOLCALL_H
#define LUMEN_TEXT_TOOLCALL_H
#include "text/reply.h"

typedef enum ToolStep {
  TOOL_MORE,         /* the byte was taken */
  TOOL_DONE,         /* it was the last */
  TOOL_DONE_BEFORE,  /* the value ended before it; it was not taken */
  TOOL_BAD
} ToolStep;

/* toolcall_value.c: one value in JSON or a relative of it, rewritten as JSON with ", " and ": ". */
typedef enum ToolDialect {
  TOOL_JSON,         /* also takes raw control characters in strings, unknown escapes as two characters, True, False and None */
  TOOL_PYTHON,       /* '..' and "..", tuples, commas before a closer */
  TOOL_BRACES        /* strings between <|"|>, keys and texts without quotes */
} ToolDialect;
enum { TOOL_MAX_DEPTH = 128 };
typedef struct ToolValue {
  ToolDialect dialect;
  uint8_t expect, lex, quote, n_hex, n_hex_all, number, n_mark;
  bool is_key, has_comma;      /* the string is a key; a comma waits for what it separates */
  uint32_t hex, high;          /* of an escape; a high surrogate that waits for its low one */
  int depth;
  char closer[TOOL_MAX_DEPTH];
  Str *out;                    /* borrowed */
  Str bare;                    /* a word, or a text without quotes */
  int watch;                   /* a depth, 0 for none: keys and values there are told */
  size_t item_at, value_at;    /* where in out the last item began, the last value at the watched depth */
  size_t watch_end;
  bool key_ended, item_ended;  /* by this byte, at the watched depth: the key out[item_at..], the value out[value_at..watch_end] */
} ToolValue;
void tool_value_init(ToolValue *v, ToolDialect d, Str *out);
void tool_value_free(ToolValue *v);
ToolStep tool_value_step(ToolValue *v, uint8_t c);
/* A whole text as one value: appends its JSON to out and returns its first byte, or 0 with out unchanged. */
char tool_value_of_text(ToolDialect d, const char *p, size_t n, Str *out);
void tool_string_add(Str *out, const char *p, size_t n);     /* as a JSON string */

/* toolcall_schema.c: the offered tools and the types of their parameters. */
typedef struct ToolSet { const json_t *tools; bool keeps_unknown; } ToolSet;
/* The offered tool that is meant by a name with what models put around it (functions.NAME:0, NAME.call, NAME<|channel|>..); NULL when there is
   none. clean gets its name, or what it would be. */
const json_t *tool_set_find(const ToolSet *s, const char *name, size_t n, Str *clean);
enum { TOOL_TYPE_STRING = 1, TOOL_TYPE_NUMBER = 2, TOOL_TYPE_INTEGER = 4, TOOL_TYPE_BOOLEAN = 8, TOOL_TYPE_OBJECT = 16, TOOL_TYPE_ARRAY = 32, TOOL_TYPE_NULL = 64 };
/* The types that the tool's schema lets a parameter have, as far as is seen at a glance; 0: it does not say. key NULL: one that is not declared. */
unsigned tool_param_types(const json_t *tool, const char *key, size_t n_key);
/* Appends a parameter's text as the JSON value its schema asks for. Text that does not fit, or of a parameter without a type, is a string. */
void tool_param_add(const json_t *tool, const char *key, size_t n_key, const char *text, size_t n, Str *out);

/* toolcall_list.c: calls as objects (%o) and as Python (%p). A step that says so has a whole call in name, id and args. */
bool tool_is_word_byte(uint8_t c);                           /* of names of tools and parameters where no quotes are around them */
bool tool_is_name_byte(uint8_t c);                           /* of a tool's name where it is no word of Python's */
typedef struct ToolCall { Str name, id, args; bool has_args; } ToolCall;
typedef struct ToolList {
  bool is_python, is_list, is_bare, has_call;
  uint8_t state, key;          /* key: what the present key stands for */
  Str object;                  /* the present object, or a Python name */
  ToolValue value;
  ToolCall call;
} ToolList;
void tool_list_init(ToolList *l, bool is_python, bool is_bare);
void tool_list_free(ToolList *l);
/* has_call: the byte completed a call. Fails early where what came so far cannot be a call of an offered tool. */
ToolStep tool_list_step(ToolList *l, const ToolSet *set, uint8_t c);
bool tool_list_coming(const ToolList *l, const char **args, size_t *n); /* inside a call whose name is known: its arguments so far */

bool tool_list_is_between(const ToolList *l);  /* behind a call, and nothing of another has come */

/* toolcall_pattern.c: patterns of toolcall.def, compiled and followed. */
typedef enum ToolPartKind { TOOL_LITERAL, TOOL_SPACE, TOOL_CAPTURE, TOOL_OBJECT, TOOL_LIST, TOOL_LOOP, TOOL_BACK, TOOL_CERTAIN, TOOL_WRITTEN, TOOL_END } ToolPartKind;
typedef struct ToolPart { ToolPartKind kind; char what; const char *text; int n; int to; } ToolPart; /* to: of a loop the part behind its end, of its end the loop */
enum { TOOL_MAX_PARTS = 32 };
typedef struct ToolPattern ToolPattern;
struct ToolPattern { bool is_bare; int n_parts; ToolPart part[TOOL_MAX_PARTS]; };
void tool_pattern_compile(const char *text, ToolPattern *out); /* CHECKs: a row of the table is ours */
const ToolPart *tool_pattern_closing(const ToolPattern *p);  /* the literal at its end, or NULL */

typedef enum ToolState { TOOL_GOING, TOOL_FAILED, TOOL_FINISHED } ToolState;
typedef struct ToolRun {
  const ToolPattern *pattern;
  const ToolSet *set;
  int at, value_part;          /* the present part; that of the last %v */
  bool is_certain;             /* behind "!": it cannot fail, only end */
  bool has_call;               /* by this byte: a call is whole, take it from tool_run_call */
  bool in_back;                /* the value in captured may still go on */
  uint8_t text_mark;           /* %s: 0 not said, 1 text, 2 JSON */
  int n_lit;                   /* bytes of the literal matched; in a choice, of both */
  bool may_repeat, may_leave;  /* a choice: the loop's first literal, the one behind it */
  Str captured, key, name, id, args;
  Str back; size_t n_closing;  /* bytes since a value's closing literal began, which may have been part of the value; and its length */
  const json_t *tool;
  ToolValue value;
  ToolList list;
} ToolRun;
void tool_run_init(ToolRun *r, const ToolPattern *p, const ToolSet *set); /* behind the opening literal; tool_run_free it */
void tool_run_free(ToolRun *r);
/* TOOL_FINISHED: the pattern is at its end; the last n_untaken bytes, this one included, do not belong to it. */
ToolState tool_run_step(ToolRun *r, uint8_t c, size_t *n_untaken);
/* The text ends: true where it does inside the marker behind the last argument, so that the call is whole all the same. */
bool tool_run_end(ToolRun *r);
bool tool_run_is_between(const ToolRun *r);                  /* in a list, behind a call, and nothing of another has come */
const ToolCall *tool_run_call(ToolRun *r, ToolCall *view);   /* borrowed strings of the call that is whole */
/* The call that is coming, once its name is certain to be an offered tool's: its name and arguments as far as they came. */
bool tool_run_coming(const ToolRun *r, const Str **name, const Str **id, const char **args, size_t *n_args);
size_t tool_run_memory(const ToolRun *r);
#endif
