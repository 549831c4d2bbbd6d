/* Talking with a model in a terminal: messages in, answers out, calls of tools answered by whoever sits there. In: an open Run. What the model has
   read is kept, so a turn costs its own tokens. */
#include <stdlib.h>
#include <string.h>
#include "cmd/run_cmd.h"

/* One message: a line, a paste, or lines between two lines of three quotes. False: the input ended. */
static bool message_read(const char *prompt, Str *out) {
  Str line = {0};
  bool block = false, whole = false;
  for (; !whole && cmd_lines_read(block ? ". " : prompt, &line); str_clear(&line)) {
    bool quotes = line.n && !strcmp(line.p, "\"\"\"");
    if (quotes) whole = block, block = true;
    else str_add_n(out, line.n ? line.p : "", line.n), whole = !block;
    if (block && !quotes) str_add_c(out, '\n');
  }
  str_free(&line);
  return whole;
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

/* A slash and one word of letters, which looks like a command: it was not meant for the model. A path or a sentence is. */
static bool no_command(const char *line) {
  if (*line != '/') return false;
  size_t n = strspn(line + 1, "abcdefghijklmnopqrstuvwxyz?");
  return n && !line[1 + n];
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

Err *cmd_run_talk(const Run *r) {
  TRY(run_session_ready(r->session, NULL)); /* while nobody waits for an answer */
  json_t *messages = json_array();
  Str text = {0}, prompt = {0};
  fprintf(stderr, "%s; /exit ends, /clear starts afresh, \"\"\" begins and ends a message of several lines\n", r->name);
  Err *e = system_add(r, messages);
  cmd_lines_open();
  while (!e) {
    const json_t *call = open_call(messages);
    str_clear(&text);
    str_clear(&prompt);
    if (call) str_addf(&prompt, "result of %s", json_string_value(json_object_get(json_object_get(call, "function"), "name")));
    str_add(&prompt, "> ");
    if (!message_read(prompt.p, &text)) {
      fputc('\n', stderr);
      break;
    }
    if (!text.n && !call) continue;
    if (!text.n) str_add(&text, "");
    if (!strcmp(text.p, "/exit") || !strcmp(text.p, "/bye") || !strcmp(text.p, "/quit")) break;
    if (!strcmp(text.p, "/clear")) {
      json_array_clear(messages);
      e = system_add(r, messages);
    } else if (no_command(text.p)) fprintf(stderr, "no command %s; /exit ends, /clear starts afresh\n", text.p);
    else e = line_take(r, messages, &text);
  }
  str_free(&text);
  str_free(&prompt);
  json_decref(messages);
  return e;
}
