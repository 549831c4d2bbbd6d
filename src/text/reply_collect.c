/* The whole message from its events: what a server answers that does not stream. In: events in order. Out: a message of chat completions. */
#include <string.h>
#include "text/reply.h"

void text_collect_event(void *collect, const TextEvent *e) {
  TextCollect *c = collect;
  if (!c->calls) c->calls = json_array();
  switch (e->kind) {
    case TEXT_EVENT_REASONING: str_add_n(&c->reasoning, e->text, e->n); return;
    case TEXT_EVENT_CONTENT: str_add_n(&c->content, e->text, e->n); return;
    case TEXT_EVENT_CALL_ARGS: str_add_n(&c->args, e->text, e->n); return;
    case TEXT_EVENT_CALL_BEGIN:
      str_clear(&c->args);
      json_array_append_new(c->calls, json_pack("{s:s, s:s, s:{s:s}}", "id", e->id, "type", "function", "function", "name", e->name));
      return;
    case TEXT_EVENT_CALL_END: {
      size_t last = json_array_size(c->calls) - 1;
      json_t *f = json_object_get(json_array_get(c->calls, last), "function");
      if (e->is_broken) json_array_remove(c->calls, last);
      else json_object_set_new(f, "arguments", json_stringn(c->args.p, c->args.n));
      return;
    }
  }
}

static json_t *text_or_null(const Str *s) { return s->n ? json_stringn(s->p, s->n) : json_null(); }

json_t *text_collect_message(const TextCollect *c) {
  bool has_calls = json_array_size(c->calls) > 0;
  json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content", c->content.n || has_calls ? text_or_null(&c->content) : json_string(""));
  if (c->reasoning.n) json_object_set_new(m, "reasoning_content", text_or_null(&c->reasoning));
  if (has_calls) json_object_set(m, "tool_calls", c->calls);
  return m;
}

void text_collect_free(TextCollect *c) {
  str_free(&c->content);
  str_free(&c->reasoning);
  str_free(&c->args);
  json_decref(c->calls);
  *c = (TextCollect){0};
}
