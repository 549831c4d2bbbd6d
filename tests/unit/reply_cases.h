/* Reading the case files of tests/reply and turning events into one text that two ways of feeding can be compared by. */
#ifndef REPLY_CASES_H
#define REPLY_CASES_H
#include "base/json.h"
#include "test.h"
#include "text/reply.h"

/* Events as text, neighbouring texts of one kind joined. */
/* Whether the text is not whole UTF-8. */
static bool text_broken(const char *p, size_t n) {
  json_t *s = json_stringn(p, n);
  json_decref(s);
  return !s;
}

typedef struct Heard { Str text; int last; TextCollect collect; size_t n_peak; const TextReply *reply; } Heard;
static void hear(void *ctx, const TextEvent *e) {
  static const char *const names[] = {"reasoning", "content", "call", "arguments", "end"};
  Heard *h = ctx;
  bool is_text = e->kind <= TEXT_EVENT_CONTENT || e->kind == TEXT_EVENT_CALL_ARGS;
  if (!is_text || h->last != (int)e->kind) str_addf(&h->text, "\n%s %d ", names[e->kind], e->index * (e->kind >= TEXT_EVENT_CALL_BEGIN));
  if (is_text) str_add_n(&h->text, e->text, e->n);
  if (e->kind == TEXT_EVENT_CALL_BEGIN) str_addf(&h->text, "%s %s", e->id, e->name);
  if (e->kind == TEXT_EVENT_CALL_END) str_addf(&h->text, "%d", e->is_broken);
  h->last = (int)e->kind;
  if (is_text && text_broken(e->text, e->n)) str_add(&h->text, "[HALF A CHARACTER]");
  text_collect_event(&h->collect, e);
  h->n_peak = MAX(h->n_peak, text_reply_memory(h->reply));
}
__attribute__((unused)) static void heard_free(Heard *h) {
  str_free(&h->text);
  text_collect_free(&h->collect);
}

typedef struct ReplyCase {
  char name[200];
  Str template, output, prefix, expect;
  json_t *tools;
  bool keeps_unknown, keeps_reasoning;
} ReplyCase;

/* Pieces end at cut (0: none) and at every step bytes (0: none). */
__attribute__((unused)) static Heard listen(const ReplyCase *c, size_t cut, size_t step, bool is_eager) {
  TextReplyOptions o = {.tools = c->tools, .keeps_unknown = c->keeps_unknown, .keeps_reasoning = c->keeps_reasoning, .is_eager = is_eager, .id_seed = 7};
  TextReply *r = text_reply_new(text_syntax_find(c->template.p, c->template.n), text_reason_find(c->template.p, c->template.n), &o);
  Heard h = {.last = -1, .reply = r};
  if (c->prefix.n) text_reply_prefix(r, c->prefix.p, c->prefix.n);
  for (size_t at = 0; at < c->output.n;) {
    size_t n = c->output.n - at;
    if (step) n = MIN(n, step);
    if (cut > at) n = MIN(n, cut - at);
    text_reply_feed(r, c->output.p + at, n, hear, &h);
    h.n_peak = MAX(h.n_peak, text_reply_memory(r));
    at += n;
  }
  text_reply_end(r, hear, &h);
  text_reply_free(r);
  return h;
}
#endif
