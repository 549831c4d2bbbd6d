/* Reasoning: which markers a template uses, which of its variables rule it, and the budget that closes a block. In: a template's text, a
   request's wish, tokens as they come. Out: a row, variables, tokens to force. */
#include <string.h>
#include "text/replyparts.h"

#define UNPACK(...) __VA_ARGS__
static const TextReason rows[] = {
#define REASON(name, detect, open, close, closing, where, noise) {#name, {UNPACK detect}, open, close, closing, REASON_##where, {UNPACK noise}},
#include "text/reason.def"
#undef REASON
};

const TextReason *text_reason_find(const char *template_text, size_t n) {
  for (size_t i = 0; i < COUNT_OF(rows); i++)
    if (text_detects(template_text, n, rows[i].detect)) return &rows[i];
  return NULL;
}

const char *text_reason_name(const TextReason *r) { return r ? r->name : "none"; }
const char *text_reason_opening(const TextReason *r) { return r ? r->open : ""; }
const char *text_reason_closing(const TextReason *r) { return r ? r->closing : ""; }

/* Whether the text holds the word on its own. */
static bool has_word(const char *text, size_t n, const char *word) {
  size_t k = strlen(word);
  for (const char *p = text, *end = text + n; (p = memmem(p, (size_t)(end - p), word, k)); p++) {
    bool before = p > text && (p[-1] == '_' || (p[-1] | 32) >= 'a'), after = p + k < end && (p[k] == '_' || ((p[k] | 32) >= 'a' && (p[k] | 32) <= 'z'));
    if (!before && !after) return true;
  }
  return false;
}

static void set_unless_there(json_t *kwargs, const char *name, json_t *value) {
  if (json_object_get(kwargs, name)) json_decref(value);
  else json_object_set_new(kwargs, name, value);
}

void text_reason_kwargs(const char *template_text, size_t n, const TextThinking *t, json_t *kwargs) {
  static const struct { const char *name; bool on, off; } switches[] = {
#define THINKING_SWITCH(name, on, off) {#name, on, off},
#include "text/reason.def"
#undef THINKING_SWITCH
  };
  static const char *const efforts[] = {
#define THINKING_EFFORT(name) #name,
#include "text/reason.def"
#undef THINKING_EFFORT
  };
  bool is_off = t->mode == TEXT_THINK_OFF || (t->effort && !strcmp(t->effort, "none")), is_on = !is_off && (t->mode == TEXT_THINK_ON || t->effort);
  for (size_t i = 0; i < COUNT_OF(switches); i++)
    if ((is_on || is_off) && has_word(template_text, n, switches[i].name)) set_unless_there(kwargs, switches[i].name, json_boolean(is_on ? switches[i].on : switches[i].off));
  for (size_t i = 0; i < COUNT_OF(efforts); i++)
    if (t->effort && has_word(template_text, n, efforts[i])) set_unless_there(kwargs, efforts[i], json_string(t->effort));
}

int32_t text_budget_force(const TextBudget *b, const TextReply *r) {
  if (b->max < 0 || !b->n_close) return -1;
  if (b->n_forced > 0 && b->n_forced < b->n_close) return b->close[b->n_forced]; /* all of it, though the block may be closed before its end */
  return text_reply_is_reasoning(r) && b->n_used >= b->max ? b->close[0] : -1;
}

void text_budget_take(TextBudget *b, bool was_reasoning, int32_t id) {
  bool is_spent = b->max >= 0 && b->n_used >= b->max;
  if (was_reasoning) b->n_used++;
  if (is_spent && b->n_forced < b->n_close && (was_reasoning || b->n_forced) && id == b->close[b->n_forced]) b->n_forced++;
  else if (is_spent) b->n_forced = 0;
  if (b->n_forced == b->n_close) b->n_forced = 0;
}
