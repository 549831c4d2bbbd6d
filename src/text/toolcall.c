/* The table of tool-call syntaxes and the choice among them. In: a chat template's text. Out: a row. */
#include <string.h>
#include "text/toolcall.h"
#include "text/replyparts.h"

#define UNPACK(...) __VA_ARGS__
static const TextSyntax rows[] = {
#define SYNTAX(name, detect, pattern, noise) {#name, {UNPACK detect}, {UNPACK pattern}, {UNPACK noise}},
#include "text/toolcall.def"
#undef SYNTAX
};

/* One alternative of a detect column: "A & B" wants both. */
static bool holds(const char *text, size_t n, const char *want) {
  for (;;) {
    const char *amp = strstr(want, " & ");
    size_t k = amp ? (size_t)(amp - want) : strlen(want);
    if (k && !memmem(text, n, want, k)) return false;
    if (!amp) return true;
    want = amp + 3;
  }
}

bool text_detects(const char *text, size_t n, const char *const *detect) {
  for (int i = 0; i < REPLY_MAX_DETECT && detect[i]; i++)
    if (holds(text, n, detect[i])) return true;
  return false;
}

const TextSyntax *text_syntax_find(const char *template_text, size_t n) {
  for (size_t i = 0; i < COUNT_OF(rows); i++)
    if (text_detects(template_text, n, rows[i].detect)) return &rows[i];
  CHECK(false, "the last row of toolcall.def takes every template");
  return NULL;
}

const char *text_syntax_name(const TextSyntax *s) { return s->name; }
