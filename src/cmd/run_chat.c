/* Talking with a model in a terminal: messages in, answers out, calls of tools answered by whoever sits there. In: an open Run. What the model has
   read is kept, so a turn costs its own tokens. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "cmd/run_cmd.h"

/* Three quotes as the first of these lines, with the end of the line, or as the last: how many bytes they are, 0: there are none. */
static size_t quotes_before(const char *lines, size_t n) {
  if (n < 3 || memcmp(lines, "\"\"\"", 3)) return 0;
  return n == 3 ? 3 : lines[3] == '\n' ? 4 : 0;
}

static size_t quotes_after(const char *lines, size_t n) {
  return n < 3 || memcmp(lines + n - 3, "\"\"\"", 3) || (n > 3 && lines[n - 4] != '\n') ? 0 : 3;
}

/* One message: a line, a paste, or lines between two lines of three quotes, pasted or not (in the middle of a paste they are text); the end of input ends
   those too. What comes of its last line. */
static CmdLine message_read(const char *prompt, Str *out) {
  Str lines = {0};
  bool block = false, whole = false;
  CmdLine got = LINE_READ;
  for (; !whole && (got = cmd_lines_read(block ? ". " : prompt, &lines)) == LINE_READ; str_clear(&lines)) {
    const char *at = lines.n ? lines.p : "";
    size_t before = block ? 0 : quotes_before(at, lines.n), n = lines.n - before;
    block |= before > 0;
    size_t after = block ? quotes_after(at + before, n) : 0;
    whole = !block || after > 0;
    str_add_n(out, at + before, n - after);
    if (!whole && before != 3) str_add_c(out, '\n'); /* 3: no line came behind the quotes yet */
  }
  str_free(&lines);
  if (got != LINE_READ) fputc('\n', stderr);
  if (got == LINE_INTERRUPTED && block) return LINE_DROPPED;
  return got == LINE_END && out->n ? LINE_READ : got;
}

/* The answer to the conversation, added to it. A message the model cannot take is taken back, and the conversation goes on. */
static Err *turn(const Run *r, json_t *messages, json_t *message) {
  RunOutcome a = {0};
  json_array_append_new(messages, message);
  json_t *body = cmd_run_body(r, messages);
  Err *e = cmd_run_ask(r, body, &a);
  if (!e) {
    cmd_run_tell(r, &a);
    json_t *answer = text_collect_message(&a.collect);
    json_object_set_new(answer, "content", json_stringn(a.result.text.n ? a.result.text.p : "", a.result.text.n));
    json_array_append_new(messages, answer);
  } else json_array_remove(messages, json_array_size(messages) - 1);
  if (e && (err_kind(e) == ERR_LIMIT || err_kind(e) == ERR_USAGE)) {
    fprintf(stderr, "%s; /clear starts afresh\n", err_text(e));
    err_free(e);
    e = NULL;
  }
  json_decref(body);
  cmd_run_outcome_free(&a);
  return e;
}

/* The first call of the last answer that has no result yet, or NULL. */
static const json_t *open_call(const json_t *messages) {
  size_t n = json_array_size(messages), n_results = 0;
  while (n && !strcmp(json_string_value(json_object_get(json_array_get(messages, n - 1), "role")), "tool")) n--, n_results++;
  return n ? json_array_get(json_object_get(json_array_get(messages, n - 1), "tool_calls"), n_results) : NULL;
}

typedef enum ChatWord { WORD_NONE, WORD_EXIT, WORD_CLEAR, WORD_UNKNOWN } ChatWord;

/* A slash and one word of letters, with blanks around it, looks like a command: it was not meant for the model. A path or a sentence is. */
static ChatWord word_find(const char *line, size_t *start, size_t *n) {
  static const struct { const char *word; ChatWord what; } words[] = {{"/exit", WORD_EXIT}, {"/bye", WORD_EXIT}, {"/quit", WORD_EXIT}, {"/clear", WORD_CLEAR}};
  const char *at = line + strspn(line, " \t\n");
  *start = (size_t)(at - line);
  if (*at != '/') return WORD_NONE;
  *n = 1 + strspn(at + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ?");
  if (*n == 1 || at[*n + strspn(at + *n, " \t\n")]) return WORD_NONE;
  for (size_t i = 0; i < COUNT_OF(words); i++) if (strlen(words[i].word) == *n && !strncasecmp(words[i].word, at, *n)) return words[i].what;
  return WORD_UNKNOWN;
}

/* One line of the person: a message, or the result of a call; the model answers when nothing is open any more. */
static Err *line_take(const Run *r, json_t *messages, const Str *text) {
  const json_t *call = open_call(messages), *id = json_object_get(call, "id");
  json_t *content = json_stringn(text->p, text->n);
  if (!content) {
    fputs("the text is no UTF-8\n", stderr);
    return NULL;
  }
  json_t *message = call ? json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", content) : json_pack("{s:s, s:o}", "role", "user", "content", content);
  json_array_append(messages, message);
  bool waits = call && open_call(messages);
  if (!waits) json_array_remove(messages, json_array_size(messages) - 1);
  if (!waits) return turn(r, messages, message);
  json_decref(message);
  return NULL;
}

static Err *system_add(const Run *r, json_t *messages) {
  return r->o->system ? cmd_run_message_add(messages, "system", r->o->system, strlen(r->o->system)) : NULL;
}

/* What is asked for: a message, or the result of a call. */
static CmdLine prompted_read(const json_t *call, Str *out) {
  Str prompt = {0};
  if (call) str_addf(&prompt, "result of %s", json_string_value(json_object_get(json_object_get(call, "function"), "name")));
  str_add(&prompt, "> ");
  str_clear(out);
  CmdLine got = message_read(prompt.p, out);
  str_free(&prompt);
  return got;
}

/* A message, or a word that is a command. */
static Err *text_take(const Run *r, json_t *messages, Str *text, bool *ends) {
  size_t start, n;
  if (!text->n) str_add(text, "");
  ChatWord word = word_find(text->p, &start, &n);
  *ends = word == WORD_EXIT;
  if (word == WORD_NONE) return line_take(r, messages, text);
  if (word == WORD_UNKNOWN) fprintf(stderr, "no command %.*s; /exit ends, /clear starts afresh\n", (int)n, text->p + start);
  if (word != WORD_CLEAR) return NULL;
  json_array_clear(messages);
  return system_add(r, messages);
}

/* Ctrl-C drops what is being typed. With nothing there it ends the chat, the second time: the first may have been meant for an answer that just ended. */
Err *cmd_run_talk(const Run *r) {
  TRY(run_session_ready(r->session, NULL)); /* while nobody waits for an answer */
  json_t *messages = json_array();
  Str text = {0};
  fprintf(stderr, "%s; /exit ends, /clear starts afresh, \"\"\" begins and ends a message of several lines\n", r->name);
  Err *e = system_add(r, messages);
  if (!e) e = cmd_lines_open();
  for (bool ends = false, warned = false; !e && !ends;) {
    const json_t *call = open_call(messages);
    CmdLine got = prompted_read(call, &text);
    if (got == LINE_READ && (text.n || call)) e = text_take(r, messages, &text, &ends);
    if (got == LINE_INTERRUPTED && warned) e = err_new(ERR_CANCELLED, "interrupted");
    else if (got == LINE_INTERRUPTED) fputs("Ctrl-C once more, Ctrl-D or /exit ends\n", stderr);
    warned = got == LINE_INTERRUPTED;
    ends |= got == LINE_END;
  }
  cmd_lines_close();
  str_free(&text);
  json_decref(messages);
  return e;
}
