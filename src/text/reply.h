/* reply: what a model wrote back, taken apart: reasoning, content, tool calls; where it stops; and the messages that go in. Everything is
   chosen by the text of the chat template, never by a model's name. A TextChat is immutable once made and may be shared between threads;
   a TextReply, a TextBudget and TextStops belong to one answer. */
#ifndef LUMEN_TEXT_REPLY_H
#define LUMEN_TEXT_REPLY_H
#include <jansson.h>
#include <time.h>
#include "base/base.h"
#include "text/grammar.h"
#include "text/text.h"

/* ---- reply.c: bytes in, events out ---- */
typedef enum TextEventKind {
  TEXT_EVENT_REASONING,   /* text */
  TEXT_EVENT_CONTENT,     /* text */
  TEXT_EVENT_CALL_BEGIN,  /* index, id, name */
  TEXT_EVENT_CALL_ARGS,   /* index, text: the next part of the arguments' JSON text */
  TEXT_EVENT_CALL_END     /* index, is_broken */
} TextEventKind;
typedef struct TextEvent {
  TextEventKind kind;
  int index;               /* of the call: 0, 1, .. */
  const char *id, *name;   /* of the call, in BEGIN */
  const char *text;        /* n bytes of whole characters, NUL-terminated, valid during the call */
  size_t n;
  bool is_broken;          /* only with is_eager: the call turned out to be malformed; its text follows as content */
} TextEvent;

typedef struct TextReplyOptions {
  const json_t *tools;     /* borrowed: array of {type:"function", function:{name, parameters}}; NULL or empty: calls are not looked for */
  bool is_eager;           /* arguments leave while they come in. Else a call leaves when it is whole, so that a malformed one never began */
  bool keeps_unknown;      /* a call of a tool that was not offered is a call; else it is text */
  bool keeps_reasoning;    /* reasoning stays where it stands in the content, with its markers */
  uint64_t id_seed;        /* calls whose text carries no id get one of 9 letters and digits made from this and the index */
  size_t max_held;         /* bytes of one call's text, 4 MiB if 0; a longer one is text */
} TextReplyOptions;

typedef struct TextSyntax TextSyntax;        /* a row of toolcall.def */
typedef struct TextReason TextReason;        /* a row of reason.def */
const TextSyntax *text_syntax_find(const char *template_text, size_t n); /* never NULL: the last row takes all */
const TextReason *text_reason_find(const char *template_text, size_t n); /* NULL: the template knows no reasoning */
const char *text_syntax_name(const TextSyntax *s);
const char *text_reason_name(const TextReason *r);                       /* "none" for NULL */
const char *text_reason_opening(const TextReason *r);                    /* what a model opens one with */
const char *text_reason_closing(const TextReason *r);                    /* what closes an open block, as templates write it */

typedef struct TextReply TextReply;
/* Never fails. The events of a reply, with neighbouring texts of one kind joined, depend on its bytes alone, not on how they were cut. Texts
   are whole characters; broken bytes become U+FFFD. No byte of content or reasoning is lost or told twice, with these exceptions: markers,
   also one behind a call that the end of the reply cut, and the white space beside them. What was begun like a call and turns out not to
   be one, or is cut before it is whole, comes out as the text it was. */
TextReply *text_reply_new(const TextSyntax *s, const TextReason *r, const TextReplyOptions *o);
void text_reply_free(TextReply *r);          /* NULL is fine */
typedef void TextOnEvent(void *ctx, const TextEvent *e);
/* What the prompt already holds of the reply: the text the template wrote behind the last message, an open block or the beginning of a call
   included. It makes no events. */
void text_reply_prefix(TextReply *r, const char *text, size_t n);
/* The same from a whole prompt: only whether it ends inside an open reasoning block counts. */
void text_reply_prompt(TextReply *r, const char *prompt, size_t n);
void text_reply_feed(TextReply *r, const char *bytes, size_t n, TextOnEvent *on_event, void *ctx);
void text_reply_end(TextReply *r, TextOnEvent *on_event, void *ctx); /* what is still held; nothing may be fed after it */
bool text_reply_is_reasoning(const TextReply *r);            /* the next byte belongs to a reasoning block, not to a call in it */
int text_reply_n_calls(const TextReply *r);
const char *text_reply_call(const TextReply *r, size_t *n);  /* the text of the call that is under way, from its opening on; NULL: none is */
size_t text_reply_memory(const TextReply *r);                /* bytes it holds on the heap */
/* A special token spelled so is part of a marker: feed its spelling. Else a special token prints nothing. */
bool text_reply_has_marker(const TextReply *r, const char *spelling, size_t n);
/* A token that would end the reply, spelled so, closes an open reasoning block instead: feed its spelling and go on. */
bool text_reply_goes_on(const TextReply *r, const char *spelling, size_t n);

/* The whole message, collected from events. */
typedef struct TextCollect { Str content, reasoning; json_t *calls; Str args; } TextCollect; /* zero-initialise; text_collect_free */
void text_collect_event(void *collect, const TextEvent *e);  /* a TextOnEvent */
/* {role, content: text or null, reasoning_content?, tool_calls?}: the form of chat completions. A new reference. */
json_t *text_collect_message(const TextCollect *c);
void text_collect_free(TextCollect *c);

/* ---- reason.c: how much a model may think ---- */
/* Counts the tokens of open reasoning blocks; once max of them are spent it names, one by one, the tokens that close the block. */
typedef struct TextBudget {
  int64_t max, n_used;                       /* max below 0: no limit */
  const int32_t *close; int n_close;         /* borrowed: ids of text_reason_closing */
  int n_forced;
} TextBudget;
/* The token that must come next, or -1. Ask before each token, and call take after it was fed to the reply. */
int32_t text_budget_force(const TextBudget *b, const TextReply *r);
void text_budget_take(TextBudget *b, bool was_reasoning, int32_t id);

/* Reasoning as requests ask for it. effort: NULL or any word; "none" is off. */
typedef struct TextThinking { enum { TEXT_THINK_DEFAULT, TEXT_THINK_ON, TEXT_THINK_OFF } mode; const char *effort; } TextThinking;
/* Sets the template's own variables for it in kwargs, unless they are there: the rows of reason.def whose name the template's text holds. */
void text_reason_kwargs(const char *template_text, size_t n, const TextThinking *t, json_t *kwargs);

/* ---- stop.c: texts that end an answer ---- */
enum { TEXT_STOP_MAX = 16, TEXT_STOP_MAX_BYTES = 1024 };
/* The first stop text that is complete ends the text; of two complete at the same byte the longer. Text is held only while it may still
   become one. The result does not depend on cuts. */
typedef struct TextStops {
  const char *stop[TEXT_STOP_MAX]; int n;    /* borrowed */
  int n_bytes[TEXT_STOP_MAX], n_matched[TEXT_STOP_MAX];
  uint16_t *back[TEXT_STOP_MAX];             /* for each prefix, its longest proper suffix that is a prefix too */
  Str held;
  int hit;                                   /* index of the stop text that ended it, or -1 */
} TextStops;
/* Fails: ERR_USAGE (an empty text), ERR_LIMIT (too many, too long); s is then unchanged. */
Err *text_stops_init(TextStops *s, const char *const *stop, int n);
void text_stops_free(TextStops *s);
/* Appends what is certain; true: a stop text came up, and what follows it is not read. */
bool text_stops_take(TextStops *s, const char *text, size_t n, Str *out);
void text_stops_end(TextStops *s, Str *out); /* what is held */

/* ---- message.c: requests in all shapes clients send to the one templates get ---- */
typedef enum TextDialect { TEXT_CHAT_COMPLETIONS, TEXT_MESSAGES } TextDialect; /* OpenAI's and Anthropic's */
/* What a chat template can show, found by rendering small conversations. */
typedef struct TextChat {
  const TextTemplate *template;
  const TextSyntax *syntax;
  const TextReason *reason;
  const char *text; size_t n;                /* the template's, in the arena */
  const json_t *special_tokens;              /* NULL or an object {bos_token, ..}: variables of every rendering. Borrowed */
  bool shows_system, shows_late_system, shows_tools, shows_calls, shows_images, shows_results;
  bool wants_tools;                          /* fails without the variable tools: an empty list stands for none */
  bool wants_null_content;                   /* beside tool calls, content "" hides them and null does not */
  bool wants_text_arguments;                 /* arguments as JSON text, not as objects */
} TextChat;
Err *text_chat_new(Arena *a, const char *template_text, size_t n, const json_t *special_tokens, TextChat **out); /* fails as text_template_parse does */
/* body: a request's {messages, system?, tools?, chat_template_kwargs?, thinking and effort fields}. *out: an object for text_template_chat
   {messages, tools?, kwargs, special_tokens?}, a new reference; *tools_out: the tools as a reply wants them, NULL for none, a new reference.
   Tools and calls that the template cannot show are told in the system text and in the assistants' texts, in the template's syntax.
   Fails: ERR_USAGE, naming the place ("messages[3].tool_call_id: ..."): what a server answers with 400. */
Err *text_chat_request(const TextChat *c, TextDialect d, const json_t *body, json_t **out, json_t **tools_out);
/* A request's tools in any client's form -> array of {type:"function", function:{name, description?, parameters}}, a new reference; NULL for
   none. place names them in errors. Fails: ERR_USAGE. */
Err *text_tools_normalise(const json_t *tools, const char *place, json_t **out);
/* ---- structure.c: the form a request asks of its answer ---- */
/* response_format, text.format, output_config.format, output_format, format, json_schema, guided_json, guided_regex, regex, grammar, guided_grammar, guided_choice, structured_outputs.
   *out: NULL where nothing is asked for. Fails: ERR_USAGE (not understood), and as the grammars do: what is asked for is never passed over. */
Err *text_request_grammar(const json_t *body, Grammar **out);
typedef enum TextToolMode { TEXT_TOOLS_AUTO, TEXT_TOOLS_NONE, TEXT_TOOLS_REQUIRED, TEXT_TOOLS_ONE } TextToolMode;
typedef struct TextToolChoice { TextToolMode mode; const char *only; bool many; } TextToolChoice; /* only: the body's, of ONE; many: calls side by side */
Err *text_request_tool_choice(const json_t *body, TextToolChoice *out); /* fails: ERR_USAGE */

/* Calls as a grammar for the answer, in the template's own form: found by rendering one. */
typedef struct TextCallsOptions {
  const json_t *tools;                       /* as text_tools_normalise gives them; borrowed */
  const char *only;                          /* the one tool that may be called, or NULL */
  bool many;                                 /* more than one call */
  bool may_answer;                           /* text and calls; else the whole answer is calls, at least one */
  unsigned flags;                            /* of grammar_from_schema, for the arguments */
} TextCallsOptions;
/* Fails: ERR_UNSUPPORTED (naming what calls of this template cannot hold), ERR_USAGE (no such tool), and as schemas do. */
Err *text_chat_calls(const TextChat *c, const TextCallsOptions *o, Grammar **out);
/* The same where flags have GRAMMAR_RELAX: of tools whose schema is too large or no schema, the parameters that are not at fault are enforced. told: a
   line for each tool; NULL: tools are taken as they are. */
Err *text_chat_calls_relaxed(const TextChat *c, const TextCallsOptions *o, Grammar **out, Str *told);
/* The prompt. A conversation the template refuses is tried again in milder forms: tools with empty descriptions where they have none, late system texts as user texts, then all system texts
   in front of the first user text, then neighbours of one role joined. user: NULL, or whose the bytes are, as text_template_chat_marked says:
   for text_tokenize_marked. Fails: with what the template said of the first form. */
Err *text_chat_render(const TextChat *c, const json_t *request, const struct tm *now, Str *out, Str *user);

/* Body of `lumen parse`. */
typedef struct TextParseOptions {
  const char *template_path, *tools_path, *prefix;
  bool message;                              /* one JSON message, else an event a line */
  bool eager, keep_unknown;
  int64_t cut;                               /* bytes at a time; 0: all at once */
} TextParseOptions;
Err *text_cmd_parse(const TextParseOptions *o, FILE *in, FILE *out);
#endif
