/* Calls of offered tools as a grammar, in the form the template itself writes them. In: a chat; tools. Out: a grammar of calls whose arguments
   satisfy the tools' schemas. The form is found by rendering a call and looking at what stands around its name and its arguments, so it has
   the very white space the model was trained on. Only forms whose arguments are a JSON object can be said; others are refused. */
#include <string.h>
#include "text/grammar_priv.h"
#include "text/message.h"
#include "text/replyparts.h"
#include "text/toolcall.h"

#define NAME "qzwordfn"
#define KEY "\"qzwordkey\""
#define VALUE "\"qzwordvalue\""
#define ID "call00001"
enum { MAX_BEHIND = 128, MAX_OPENING = 128 };
static const struct tm probe_time = {.tm_year = 126, .tm_mday = 1, .tm_wday = 4};

/* A call is before, the name, between, the arguments, behind. */
typedef struct Form { const char *before, *between, *behind; size_t n_opening; } Form;

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static Err *render_probe(const TextChat *c, json_t *messages, bool prompts, Str *out) {
  json_t *tools = text_chat_probe_tools();
  if (!c->shows_calls) text_chat_write_calls(c, messages);
  if (!c->shows_tools) text_chat_write_tools(c, tools, messages);
  json_t *request = json_pack("{s:o, s:{s:b}, s:o, s:O}", "messages", messages, "kwargs", "add_generation_prompt", prompts, "special_tokens", text_chat_special_tokens(c), "tools", tools);
  CHECK(request, "a probe is no JSON");
  if (!c->shows_tools) json_object_del(request, "tools");
  json_decref(tools);
  Err *e = text_chat_render(c, request, &probe_time, out, NULL);
  json_decref(request);
  return e;
}

/* The last place of a word in s[0..n). */
static const char *last_of(const char *s, size_t n, const char *word) {
  const char *hit = NULL;
  for (const char *p = s, *end = s + n; (p = memmem(p, (size_t)(end - p), word, strlen(word))); p++) hit = p;
  return hit;
}

/* Where the call that names its tool at `name` begins: at the nearest opening of a pattern in front of it, else where the answer does. The prompt
   and the answer may begin with the same bytes, so it is looked for in front of the answer too. */
static const char *beginning(const TextSyntax *syntax, const char *text, const char *answer, const char *name, size_t *n_opening) {
  const char *best = NULL, *from = answer - text > MAX_OPENING ? answer - MAX_OPENING : text;
  *n_opening = 0;
  for (int i = 0; i < REPLY_MAX_PATTERNS && syntax->pattern[i]; i++) {
    ToolPattern p;
    tool_pattern_compile(syntax->pattern[i], &p);
    if (p.is_bare) continue;
    char opening[MAX_OPENING];
    size_t n = (size_t)p.part[0].n;
    while (n && is_space(p.part[0].text[n - 1])) n--;
    if (!n || n >= sizeof opening) continue;
    memcpy(opening, p.part[0].text, n);
    opening[n] = 0;
    const char *hit = last_of(from, (size_t)(name - from), opening);
    if (hit && (!best || hit > best)) best = hit, *n_opening = n;
  }
  return best ? best : answer;
}

/* Where the call ends that has its arguments up to p: behind the marker that closes it, else where the lists and objects around them
   close; depth: how many are open. */
static const char *ending(const TextSyntax *syntax, const char *p, int depth) {
  const char *marker = NULL;
  for (int i = 0; i < REPLY_MAX_PATTERNS && syntax->pattern[i]; i++) {
    ToolPattern pattern;
    tool_pattern_compile(syntax->pattern[i], &pattern);
    const ToolPart *last = &pattern.part[pattern.n_parts - 1];
    if (last->kind == TOOL_CERTAIN) continue;
    size_t n = (size_t)last->n, near = strlen(p);
    const char *hit = last->kind == TOOL_LITERAL && pattern.n_parts > 1 ? memmem(p, MIN(near, (size_t)MAX_BEHIND), last->text, n) : NULL;
    if (hit && (!marker || hit + n < marker)) marker = hit + n;
  }
  if (marker) return marker;
  bool in_text = false;
  for (; depth > 0 && *p; p++) {
    if (in_text && *p == '\\' && p[1]) p++;
    else if (*p == '"') in_text = !in_text;
    else if (!in_text) depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
  }
  return p;
}

/* How many lists and objects text[n] opens and leaves open. */
static int depth_of(const char *text, size_t n) {
  int depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < n; i++) {
    if (text[i] == '"') in_text = !in_text;
    else if (!in_text) depth += (text[i] == '{' || text[i] == '[') - (text[i] == '}' || text[i] == ']');
  }
  return MAX(depth, 0);
}

static Err *form_find(Arena *a, const TextChat *c, Form *out) {
  static const char why[] = "tool calls of this template cannot be held to their schemas: their arguments are no JSON object";
  Str prompt = {0}, with = {0};
  Err *e = render_probe(c, json_pack("[{s:s, s:s}]", "role", "user", "content", "a"), true, &prompt);
  if (!e) e = render_probe(c, text_chat_probe(c), false, &with);
  if (e) { /* a template that refuses so small a conversation shows no form */
    Err *why_not = err_new(ERR_UNSUPPORTED, "%s (%s)", why, err_text(e));
    err_free(e);
    e = why_not;
  } else {
    size_t same = 0;
    while (same < prompt.n && same < with.n && prompt.p[same] == with.p[same]) same++;
    const char *text = with.p ? with.p : "", *answer = text + same, *key = last_of(text, with.n, KEY), *value = key ? strstr(key, VALUE) : NULL, *args = key, *end = value;
    const char *name = key ? last_of(text, (size_t)(key - text), NAME) : NULL;
    while (args && args > text && *args != '{') args--;
    if (end) end += strlen(VALUE), end += strspn(end, " \n");
    bool json = name && name >= answer && args && args > name && end && *end == '}' && strspn(args + 1, " \n") == (size_t)(key - args - 1);
    if (json) {
      end++;
      const char *begin = beginning(c->syntax, text, answer, name, &out->n_opening);
      const char *stop = ending(c->syntax, end, depth_of(begin + out->n_opening, (size_t)(name - begin) - out->n_opening) + depth_of(name + strlen(NAME), (size_t)(args - name) - strlen(NAME)));
      out->before = arena_dup_n(a, begin, (size_t)(name - begin));
      out->between = arena_dup_n(a, name + strlen(NAME), (size_t)(args - name) - strlen(NAME));
      out->behind = arena_dup_n(a, end, (size_t)(stop - end));
    } else e = err_new(ERR_UNSUPPORTED, "%s", why);
  }
  str_free(&prompt);
  str_free(&with);
  return e;
}

/* ---- rules ---- */

/* A chain of bytes from a state on; an id of nine letters and digits where the probe's stands. Returns the last state. */
static uint32_t chain(Grammar *g, uint32_t from, const char *text) {
  uint32_t rule = g->st[from].rule;
  for (const char *p = text; *p;) {
    bool is_id = !strncmp(p, ID, sizeof ID - 1);
    for (size_t k = 0; k < (is_id ? sizeof ID - 1 : 1); k++) {
      uint32_t to = grammar_state_new(g, rule);
      if (is_id) {
        grammar_edge_add(g, from, '0', '9', GR_PLAIN, 0, to);
        grammar_edge_add(g, from, 'A', 'Z', GR_PLAIN, 0, to);
        grammar_edge_add(g, from, 'a', 'z', GR_PLAIN, 0, to);
      } else grammar_edge_add(g, from, (uint8_t)*p, (uint8_t)*p, GR_PLAIN, 0, to);
      from = to;
      p++;
    }
  }
  return from;
}

static Err *call_rule(Grammar *g, GrWork *w, const Form *f, size_t skip, const json_t *tool, unsigned flags, uint32_t *rule) {
  const json_t *function = json_object_get(tool, "function"), *schema = json_object_get(function, "parameters");
  const char *name = json_string_value(json_object_get(function, "name"));
  uint32_t args;
  json_t *any = schema ? NULL : json_pack("{s:s}", "type", "object");
  Err *e = grammar_schema_rule(g, w, schema ? schema : any, flags, &args);
  json_decref(any);
  if (e) return err_wrap(e, "tool %s", name);
  uint32_t r = grammar_rule_new(g, GR_AUTOMATON, name), q = grammar_state_new(g, r);
  g->rule[r].start = q;
  q = chain(g, chain(g, chain(g, q, f->before + skip), name), f->between);
  uint32_t after = grammar_state_new(g, r);
  grammar_call_add(g, q, args, GR_PLAIN, after);
  uint32_t last = chain(g, after, f->behind);
  g->st[last].accept = true;
  *rule = r;
  return NULL;
}

/* One call of any of the tools, or with `many` several, a line each or side by side. */
static Err *calls_build(Grammar *g, GrWork *w, const Form *f, const TextCallsOptions *o, bool is_behind) {
  uint32_t *rule = ARENA_ARRAY(w->a, uint32_t, json_array_size(o->tools) + 1);
  int n = 0;
  for (size_t i = 0; i < json_array_size(o->tools); i++) {
    const json_t *tool = json_array_get(o->tools, i);
    const char *name = json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
    if (!o->only || !strcmp(o->only, name)) TRY(call_rule(g, w, f, is_behind ? f->n_opening : 0, tool, o->flags, &rule[n++]));
  }
  if (!n) return err_new(ERR_USAGE, "tool_choice: no tool \"%s\" is offered", o->only ? o->only : "");
  uint32_t root = grammar_rule_new(g, GR_AUTOMATON, "calls"), start = grammar_state_new(g, root), end = grammar_state_new(g, root), line = grammar_state_new(g, root);
  bool many = o->many && !is_behind;
  g->rule[root].start = start;
  g->st[end].accept = true;
  if (many) grammar_edge_add(g, end, '\n', '\n', GR_PLAIN, 0, line);
  for (int i = 0; i < n; i++) grammar_call_add(g, start, rule[i], GR_PLAIN, end);
  for (int i = 0; many && i < n; i++) grammar_call_add(g, end, rule[i], GR_PLAIN, end);
  for (int i = 0; many && i < n; i++) grammar_call_add(g, line, rule[i], GR_PLAIN, end);
  g->root = root;
  return grammar_finish(g, w);
}

Err *text_chat_calls(Arena *a, const TextChat *c, const TextCallsOptions *o, Grammar **out, const char **trigger) {
  Form f = {0};
  TRY(form_find(a, c, &f));
  bool is_behind = trigger != NULL;
  if (is_behind && !f.n_opening) return err_new(ERR_UNSUPPORTED, "calls of this template have no marker in front: they can be required, not told from a text");
  GrWork w = {arena_new("compile"), GR_BUDGET};
  Grammar *g = grammar_new();
  Err *e = calls_build(g, &w, &f, o, is_behind);
  arena_free(w.a);
  if (e) grammar_free(g);
  else {
    *out = g;
    if (is_behind) *trigger = arena_dup_n(a, f.before, f.n_opening);
  }
  return e;
}
