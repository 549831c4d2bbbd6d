/* Body of `lumen parse`: a reply on a stream in, its events or the whole message out, one JSON text a line. */
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "text/priv.h"
#include "text/reply.h"

enum { MAX_INPUT = 1 << 28 };
typedef struct Print { Str out; TextCollect collect; bool message; } Print;

static void print_json(Str *out, json_t *v) {
  char *s = json_dumps(v, 0);
  CHECK(s, "an event is no JSON");
  str_add(out, s);
  str_add_c(out, '\n');
  free(s);
  json_decref(v);
}

static void on_event(void *ctx, const TextEvent *e) {
  Print *p = ctx;
  if (p->message) {
    text_collect_event(&p->collect, e);
    return;
  }
  switch (e->kind) {
    case TEXT_EVENT_REASONING: print_json(&p->out, json_pack("{s:s, s:o}", "event", "reasoning", "text", json_stringn(e->text, e->n))); return;
    case TEXT_EVENT_CONTENT: print_json(&p->out, json_pack("{s:s, s:o}", "event", "content", "text", json_stringn(e->text, e->n))); return;
    case TEXT_EVENT_CALL_BEGIN:
      print_json(&p->out, json_pack("{s:s, s:i, s:s, s:s}", "event", "call", "index", e->index, "id", e->id, "name", e->name));
      return;
    case TEXT_EVENT_CALL_ARGS:
      print_json(&p->out, json_pack("{s:s, s:i, s:o}", "event", "arguments", "index", e->index, "text", json_stringn(e->text, e->n)));
      return;
    case TEXT_EVENT_CALL_END: print_json(&p->out, json_pack("{s:s, s:i, s:b}", "event", "end", "index", e->index, "broken", e->is_broken)); return;
  }
}

/* What no model could be asked with says nothing of its replies. */
static Err *check_template(const char *path, const Str *template) {
  Arena *a = arena_new("template");
  TextTemplate *t;
  Err *e = text_template_parse(a, template->n ? template->p : "", template->n, &t);
  arena_free(a);
  return err_wrap(e, "%s", path);
}

static Err *read_tools(const char *path, json_t **out) {
  json_t *read;
  *out = NULL;
  if (!path) return NULL;
  TRY(json_parse_input(path, MAX_INPUT, &read));
  Err *e = text_tools_normalise(read, "tools", out);
  json_decref(read);
  return err_wrap(e, "%s", path);
}

static void parse(const TextParseOptions *o, const Str *template, const json_t *tools, const Str *in, Print *p) {
  TextReplyOptions ro = {.tools = tools, .is_eager = o->eager, .keeps_unknown = o->keep_unknown};
  TextReply *r = text_reply_new(text_syntax_find(template->p, template->n), text_reason_find(template->p, template->n), &ro);
  size_t cut = o->cut > 0 ? (size_t)o->cut : MAX(in->n, (size_t)1);
  if (o->prefix) text_reply_prefix(r, o->prefix, strlen(o->prefix));
  for (size_t at = 0; at < in->n; at += cut) text_reply_feed(r, in->p + at, MIN(cut, in->n - at), on_event, p);
  text_reply_end(r, on_event, p);
  text_reply_free(r);
  if (p->message) print_json(&p->out, text_collect_message(&p->collect));
}

Err *text_cmd_parse(const TextParseOptions *o, FILE *in, FILE *out) {
  Str template = {0}, input = {0};
  json_t *tools = NULL;
  Print p = {.message = o->message};
  Err *e = os_read_input(o->template_path, MAX_INPUT, &template);
  if (!e) e = check_template(o->template_path, &template);
  if (!e) e = read_tools(o->tools_path, &tools);
  if (!e) e = err_wrap(os_read_all(in, MAX_INPUT, &input), "standard input");
  if (!e) {
    if (!template.p) str_add(&template, "");
    parse(o, &template, tools, &input, &p);
    e = text_write_out(&p.out, out);
  }
  text_collect_free(&p.collect);
  str_free(&p.out);
  str_free(&template);
  str_free(&input);
  json_decref(tools);
  return e;
}
