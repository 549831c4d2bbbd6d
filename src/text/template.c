/* Chat templates for the rest of the program: parse, render, and what transformers does around Jinja before and after.
   In: template text; a context or a chat request as JSON (a value or text). Out: the prompt, or an Err. Nothing is kept: each render
   has an arena of its own. */
#include <string.h>
#include "text/priv.h"

enum { MAX_TEMPLATE = 4 << 20 };

Err *text_template_parse(Arena *arena, const char *src, size_t n, TextTemplate **out) {
  if (n > MAX_TEMPLATE) return err_new(ERR_LIMIT, "template of %zu bytes, expected at most %d", n, MAX_TEMPLATE);
  return text_template_tree(arena, src, n, out);
}

static Err *render(const TextTemplate *t, Arena *a, Val context, const struct tm *now, Weave *out) {
  if (context.kind != V_DICT) return err_new(ERR_FORMAT, "template context: expected an object");
  Weave text = {0};
  Render r = {.arena = a, .t = t, .context = context, .out = &text, .now = *now};
  Err *e = text_render_run(&r);
  for (int i = 0; i < r.n_late; i++) err_free(r.late[i]->late);
  if (!e) text_weave_add(out, &text);
  text_weave_free(&text);
  return e;
}

/* Where nobody asks whose the bytes are. */
static void add_text(const Weave *w, Str *out) { str_add_n(out, w->text.p ? w->text.p : "", w->text.n); }

Err *text_template_render(const TextTemplate *t, const json_t *context, const struct tm *now, Str *out) {
  Arena *a = arena_new("render");
  Weave w = {0};
  Err *e = render(t, a, val_from_json(a, context), now, &w);
  if (!e) add_text(&w, out);
  text_weave_free(&w);
  arena_free(a);
  return e;
}

Err *text_template_render_text(const TextTemplate *t, const char *json, size_t n, const struct tm *now, Str *out) {
  Arena *a = arena_new("render");
  Val context;
  Weave w = {0};
  Err *e = text_json_parse(a, json, n, &context);
  if (!e) e = render(t, a, context, now, &w);
  if (!e) add_text(&w, out);
  text_weave_free(&w);
  arena_free(a);
  return e;
}

/* What transformers does to messages: keys that are null go, and the three spellings of reasoning become one. */
static void put(Arena *a, Val dict, const char *key, Val v) { val_put(a, dict.u.d, val_str(a, key, strlen(key)), v); }

/* A role of the usual ones is a word of the format, not of the conversation: some templates spell control tokens with it. */
static Val own_role(Arena *a, Val key, Val v) {
  static const char *const roles[] = {"system", "user", "assistant", "tool", "developer", "function"};
  for (size_t i = 0; val_is_str(key, "role") && i < COUNT_OF(roles); i++)
    if (val_is_str(v, roles[i])) return val_own(a, v);
  return v;
}

static Val prepare_message(Arena *a, Val m) {
  static const char *const spellings[] = {"reasoning_content", "thinking", "reasoning"};
  if (m.kind != V_DICT) return m;
  Val out = val_dict(a);
  for (int i = 0; i < m.u.d->n; i++)
    if (m.u.d->vals[i].kind != V_NONE) val_put(a, out.u.d, m.u.d->keys[i], own_role(a, m.u.d->keys[i], m.u.d->vals[i]));
  for (size_t i = 0; i < COUNT_OF(spellings); i++) {
    const Val *v = val_get(out, spellings[i]);
    if (!v) continue;
    Val text = *v;
    put(a, out, "reasoning_content", text);
    put(a, out, "thinking", text);
    break;
  }
  return out;
}

static const char continue_tag[] = "CONTINUE_FINAL_MESSAGE_TAG ";

static Val tagged(Arena *a, Val text) {
  Str s = {0};
  val_print(&s, text);
  str_add(&s, continue_tag);
  Val v = val_str(a, s.p, s.n);
  str_free(&s);
  return v;
}

/* Puts the tag after the last message's text, and tells that text. */
static Err *tag_last(Arena *a, Val messages, Val *text) {
  Val last = messages.u.l->n ? messages.u.l->items[messages.u.l->n - 1] : val_none(), *content = val_get(last, "content");
  if (!content) return err_new(ERR_USAGE, "continue_final_message: the last message has no content");
  if (content->kind == V_STR) {
    *text = *content;
    *content = tagged(a, *content);
    return NULL;
  }
  Val parts = val_list(a, 4);
  for (int i = 0; content->kind == V_LIST && i < content->u.l->n; i++) val_push(a, parts, content->u.l->items[i]);
  for (int i = parts.u.l->n - 1; i >= 0; i--) {
    Val *t = val_get(parts.u.l->items[i], "text");
    if (!t || t->kind != V_STR) continue;
    *text = *t;
    Val copy = val_dict(a), old = parts.u.l->items[i];
    for (int k = 0; k < old.u.d->n; k++) val_put(a, copy.u.d, old.u.d->keys[k], old.u.d->vals[k]);
    put(a, copy, "text", tagged(a, *text));
    parts.u.l->items[i] = copy;
    *content = parts;
    return NULL;
  }
  return err_new(ERR_USAGE, "continue_final_message: the last message has no text to continue");
}

static const char *strip(const char *p, const char **end) {
  int32_t c;
  int k;
  while (p < *end && (k = text_utf8_next(p, *end, &c), text_char_is_pyspace(c))) p += k;
  while (*end > p) {
    const char *q = *end - 1;
    while (q > p && ((uint8_t)*q & 0xC0) == 0x80) q--;
    text_utf8_next(q, *end, &c);
    if (!text_char_is_pyspace(c)) break;
    *end = q;
  }
  return p;
}

/* Cuts the text at the tag; where the template trimmed the message, the cut text is trimmed too. */
static Err *cut_at_tag(Str *s, Val text) {
  size_t tag = sizeof continue_tag - 1;
  const char *p = text.u.s->p, *end = p + text.u.s->n, *at = NULL;
  p = strip(p, &end);
  for (const char *q = s->p, *stop = s->p + s->n; s->n && (q = memmem(q, (size_t)(stop - q), continue_tag, tag - 1)) != NULL; q++) at = q;
  if (!at || (end > p && !memmem(s->p, s->n, p, (size_t)(end - p))))
    return err_new(ERR_USAGE, "continue_final_message: the last message does not appear in the chat after the template, so there is nothing to continue");
  size_t n = (size_t)(at - s->p);
  bool kept = s->n - n >= tag && s->p[n + tag - 1] == ' ';
  const char *stop = s->p + n;
  if (!kept) {
    const char *from = s->p;
    strip(from, &stop);
    n = (size_t)(stop - s->p);
  }
  s->n = n;
  s->p[n] = 0;
  return NULL;
}

static bool parse_now(Val request, struct tm *now) {
  const Val *v = val_get(request, "now");
  struct tm t = {0};
  if (!v || v->kind != V_STR || sscanf(v->u.s->p, "%4d-%2d-%2d%*[T ]%2d:%2d:%2d", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour, &t.tm_min, &t.tm_sec) < 3) return false;
  if (t.tm_year < 1 || t.tm_year > 9999 || t.tm_mon < 1 || t.tm_mon > 12 || t.tm_mday < 1 || t.tm_mday > 31) return false;
  t.tm_year -= 1900;
  t.tm_mon--;
  timegm(&t); /* fills the days of week and year */
  *now = t;
  return true;
}

static Val value_or(Val request, const char *key, Val otherwise) {
  const Val *v = val_get(request, key);
  return v ? *v : otherwise;
}

static Val special_value(Arena *a, Val v) { return v.kind == V_STR ? val_own(a, v) : v; }

static Err *chat(const TextTemplate *t, Arena *a, Val request, const struct tm *now, Weave *out) {
  if (request.kind != V_DICT) return err_new(ERR_USAGE, "request: expected an object");
  Val messages = value_or(request, "messages", val_none()), kwargs = value_or(request, "kwargs", val_none()), special = value_or(request, "special_tokens", val_none());
  if (messages.kind != V_LIST) return err_new(ERR_USAGE, "messages: expected a list, got %s", val_type_name(messages));
  if (kwargs.kind != V_DICT) kwargs = val_dict(a);
  Val list = val_list(a, messages.u.l->n), text = val_none(), context = val_dict(a);
  for (int i = 0; i < messages.u.l->n; i++) val_push(a, list, prepare_message(a, messages.u.l->items[i]));
  bool go_on = val_truth(value_or(kwargs, "continue_final_message", val_none())), prompt = val_truth(value_or(kwargs, "add_generation_prompt", val_none()));
  if (go_on && prompt) return err_new(ERR_USAGE, "continue_final_message and add_generation_prompt are not compatible");
  if (go_on) TRY(tag_last(a, list, &text));
  put(a, context, "messages", list);
  put(a, context, "tools", value_or(request, "tools", val_none()));
  put(a, context, "documents", value_or(request, "documents", val_none()));
  put(a, context, "add_generation_prompt", val_bool(prompt));
  for (int i = 0; special.kind == V_DICT && i < special.u.d->n; i++)
    if (special.u.d->vals[i].kind != V_NONE) val_put(a, context.u.d, special.u.d->keys[i], special_value(a, special.u.d->vals[i]));
  for (int i = 0; i < kwargs.u.d->n; i++)
    if (!val_is_str(kwargs.u.d->keys[i], "continue_final_message") && !val_is_str(kwargs.u.d->keys[i], "add_generation_prompt")) val_put(a, context.u.d, kwargs.u.d->keys[i], kwargs.u.d->vals[i]);
  struct tm clock = *now;
  parse_now(request, &clock);
  Weave s = {0};
  Err *e = render(t, a, context, &clock, &s);
  if (!e && go_on) e = cut_at_tag(&s.text, text);
  s.user.n = MIN(s.user.n, s.text.n);
  if (!e) text_weave_add(out, &s);
  text_weave_free(&s);
  return e;
}

/* Appends both parts of a prompt, the marks as long as the text. */
static void add_marked(const Weave *w, Str *out, Str *user) {
  add_text(w, out);
  if (!user) return;
  str_add_n(user, w->user.p ? w->user.p : "", w->user.n);
  for (size_t i = w->user.n; i < w->text.n; i++) str_add_c(user, 0);
}

Err *text_template_chat_marked(const TextTemplate *t, const json_t *request, const struct tm *now, Str *out, Str *user) {
  Arena *a = arena_new("render");
  Weave w = {0};
  Err *e = chat(t, a, val_from_json(a, request), now, &w);
  if (!e) add_marked(&w, out, user);
  text_weave_free(&w);
  arena_free(a);
  return e;
}

Err *text_template_chat(const TextTemplate *t, const json_t *request, const struct tm *now, Str *out) {
  return text_template_chat_marked(t, request, now, out, NULL);
}

Err *text_template_chat_text(const TextTemplate *t, const char *json, size_t n, const struct tm *now, Str *out) {
  Arena *a = arena_new("render");
  Val request;
  Weave w = {0};
  Err *e = text_json_parse(a, json, n, &request);
  if (!e) e = chat(t, a, request, now, &w);
  if (!e) add_text(&w, out);
  text_weave_free(&w);
  arena_free(a);
  return e;
}
