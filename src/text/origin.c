/* Whose bytes a rendered text has: the template's own, or the conversation's. In: strings that know it of themselves, in the making. Out: the
   same of what is made of them. Only the template's bytes may become control tokens, so the rule where an operation does not follow single
   bytes is: what is made with anything of the conversation's is the conversation's. A string nobody has said anything of is, too. */
#include <string.h>
#include "text/priv.h"

enum { MAX_LOOK = 300, MAX_LOOKS = 1000000 };

void text_weave_free(Weave *w) {
  str_free(&w->text);
  str_free(&w->user);
}

/* The next n bytes are the conversation's. */
static void mark(Weave *w, size_t n) {
  static const char ones[64] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, zeros[64];
  for (size_t k; (k = MIN(w->text.n - w->user.n, sizeof zeros)) > 0;) str_add_n(&w->user, zeros, k);
  for (size_t k; (k = MIN(n, sizeof ones)) > 0; n -= k) str_add_n(&w->user, ones, k);
}

void text_weave_own(Weave *w, const char *p, size_t n) { str_add_n(&w->text, p, n); }

void text_weave_foreign(Weave *w, const char *p, size_t n) {
  mark(w, n);
  str_add_n(&w->text, p, n);
}

void text_weave_part(Weave *w, const VStr *s, const char *p, size_t n) {
  if (!s->ours) mark(w, n);
  else if (s->user && n && memchr(s->user + (p - s->p), 1, n)) {
    mark(w, 0);
    str_add_n(&w->user, s->user + (p - s->p), n);
  }
  str_add_n(&w->text, p, n);
}

void text_weave_add(Weave *w, const Weave *more) {
  if (more->user.n) {
    mark(w, 0);
    str_add_n(&w->user, more->user.p, more->user.n);
  }
  if (more->text.n) str_add_n(&w->text, more->text.p, more->text.n);
}

void text_weave_print(Weave *w, Val v) {
  if (v.kind == V_STR && !v.u.s->bytes) {
    text_weave_part(w, v.u.s, v.u.s->p, v.u.s->n);
    return;
  }
  Str one = {0};
  val_print(&one, v);
  (text_is_foreign(v) ? text_weave_foreign : text_weave_own)(w, one.p ? one.p : "", one.n);
  str_free(&one);
}

void text_weave_escape(Weave *w, Val v) {
  Weave plain = {0};
  Str one = {0};
  text_weave_print(&plain, v);
  for (size_t i = 0; i < plain.text.n; i++) {
    str_clear(&one);
    text_escape(&one, plain.text.p + i, 1);
    (i < plain.user.n && plain.user.p[i] ? text_weave_foreign : text_weave_own)(w, one.p, one.n);
  }
  text_weave_free(&plain);
  str_free(&one);
}

/* Lists may share parts without end: past the bounds the answer is yes. */
static bool is_foreign(Val v, int depth, int *looks) {
  const Val *items = NULL, *more = NULL;
  int n = 0;
  if (depth > MAX_LOOK || --*looks < 0) return true;
  switch (v.kind) {
    case V_STR: return v.u.s->n && (!v.u.s->ours || (v.u.s->user && memchr(v.u.s->user, 1, v.u.s->n)));
    case V_LIST: items = v.u.l->items, n = v.u.l->n; break;
    case V_ITER: items = v.u.it->items, n = v.u.it->n; break;
    case V_OBJECT: items = v.u.o->items, n = v.u.o->n; break;
    case V_DICT: case V_NAMESPACE: items = v.u.d->keys, more = v.u.d->vals, n = v.u.d->n; break;
    case V_VIEW: items = v.u.view->dict->keys, more = v.u.view->dict->vals, n = v.u.view->dict->n; break;
    case V_FUNC: return v.u.fn->row && is_foreign(v.u.fn->self, depth + 1, looks);
    default: return false;
  }
  for (int i = 0; i < n; i++)
    if (is_foreign(items[i], depth + 1, looks) || (more && is_foreign(more[i], depth + 1, looks))) return true;
  return false;
}

bool text_is_foreign(Val v) {
  int looks = MAX_LOOKS;
  return is_foreign(v, 0, &looks);
}

static bool any_foreign(const Val *v, int n) {
  for (int i = 0; i < n; i++)
    if (text_is_foreign(v[i])) return true;
  return false;
}

void text_origin_settle(Val result, Val self, const Val *a, int n, const Val *b, int n_b) {
  if (result.kind != V_STR || result.u.s->ours || text_is_foreign(self) || any_foreign(a, n) || any_foreign(b, n_b)) return;
  ((VStr *)(uintptr_t)result.u.s)->ours = true;
}

Val val_own(Arena *a, Val s) {
  VStr *own = ARENA_NEW(a, VStr);
  *own = *s.u.s;
  own->ours = true;
  own->user = NULL;
  return (Val){.kind = V_STR, .u.s = own};
}

Val val_part(Arena *a, const VStr *s, const char *p, size_t n) {
  Val v = val_str(a, p, n);
  VStr *own = (VStr *)(uintptr_t)v.u.s;
  own->ours = s->ours;
  if (!s->user || !n || !memchr(s->user + (p - s->p), 1, n)) return v;
  own->user = (const uint8_t *)arena_dup_n(a, (const char *)s->user + (p - s->p), n);
  return v;
}
