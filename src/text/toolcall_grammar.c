/* Calls of offered tools as a grammar. In: the forms calls have (toolcall_form.c); tools. Out: a grammar whose calls satisfy the tools' schemas:
   of the whole answer, which then is calls; or of an answer that may be text and calls. Where that is allowed, what cannot be enforced is left out.

     required   [lead] before NAME ARGS { link NAME ARGS } behind [trail]
     may call   text in which each opening of a call is followed by the rest of one. Text is followed by an automaton that looks for the
                openings as the reader of the reply does, so that both see the same calls whatever the tokens are cut into */
#include <stdlib.h>
#include <string.h>
#include "text/grammar_priv.h"
#include "text/replyparts.h"
#include "text/toolcall.h"
#include "text/toolcall_form.h"

enum { NAME_MAX_BYTES = 128, COUNTER_DIGITS = 3, ID_BYTES = 9, ID_BYTES_MAX = 40, NODES_MAX = 512 };

typedef struct Calls {
  Grammar *g;
  GrWork *w;
  const TextCallsOptions *o;
  const ToolForms *forms;
  bool many;
  const json_t **tool; int n_tools;
  struct { const ToolForm *form; uint32_t *rule; } made[TOOL_FORMS_MAX]; int n_made; /* arguments of all tools in a form's spelling */
} Calls;

/* ---- texts with marks ---- */

/* What may stand for a mark: n bytes of these ranges, or from 1 to n. */
typedef struct Marked { const char *ranges; int n; bool is_exact; } Marked;
static const Marked counter = {"09", COUNTER_DIGITS, false}, short_id = {"09AZaz", ID_BYTES, true}, any_id = {"09--AZ__az", ID_BYTES_MAX, false};

/* A state from which one byte of these ranges leads on, to one or two states. */
static uint32_t class_to(Grammar *g, uint32_t rule, const char *ranges, uint32_t to, uint32_t or_to) {
  uint32_t q = grammar_state_new(g, rule);
  for (int k = 0; k < (or_to == to ? 1 : 2); k++)
    for (const char *r = ranges; *r; r += 2) grammar_edge_add(g, q, (uint8_t)r[0], (uint8_t)r[1], GR_PLAIN, 0, k ? or_to : to);
  return q;
}

/* A state from which a form's text leads to `to`; its marks stand for ids and counters. */
static uint32_t marked_to(const Calls *c, uint32_t rule, const char *text, size_t n, uint32_t to) {
  Grammar *g = c->g;
  while (n) {
    size_t k = 0;
    while (k < n && text[n - 1 - k] != TOOL_FORM_ID && text[n - 1 - k] != TOOL_FORM_COUNTER) k++;
    to = grammar_text_to(g, rule, text + n - k, k, GR_PLAIN, to);
    n -= k;
    if (!n) break;
    const Marked *mark = text[--n] == TOOL_FORM_COUNTER ? &counter : c->forms->ids_vary ? &any_id : &short_id;
    uint32_t over = to;
    for (int i = 0; i < mark->n; i++) to = class_to(g, rule, mark->ranges, to, mark->is_exact ? to : over);
  }
  return to;
}

static uint32_t text_rule(const Calls *c, const char *text, size_t n) {
  Grammar *g = c->g;
  uint32_t r = grammar_rule_new(g, GR_AUTOMATON, "marker");
  g->rule[r].start = marked_to(c, r, text, n, grammar_end_new(g, r));
  return r;
}

/* ---- calls ---- */

static bool name_fits(const char *name, bool python) {
  size_t n = strlen(name);
  for (size_t i = 0; i < n; i++)
    if (!(python ? tool_is_word_byte : tool_is_name_byte)((uint8_t)name[i])) return false;
  return n > 0 && n <= NAME_MAX_BYTES;
}

/* A tool's name and its arguments, up to their end. */
static Err *tool_rule(const Calls *c, const ToolForm *f, uint32_t *any_text, const json_t *tool, uint32_t *out) {
  const char *name = json_string_value(json_object_get(tool, "name"));
  json_t *schema = json_incref(json_object_get(tool, "parameters")), *own = json_string(name);
  if (!schema) schema = json_pack("{s:s}", "type", "object");
  char *quoted = own ? json_dumps(own, JSON_ENCODE_ANY) : NULL;
  CHECK(schema && quoted, "no memory for a tool");
  GrArgs args = f->args;
  args.tool = tool;
  args.any_text = any_text;
  args.escapes = c->forms->escapes;
  uint32_t rule = 0;
  Err *e = NULL;
  if (!f->is_quoted && !name_fits(name, f->args.values == GR_VALUES_PYTHON)) e = err_new(ERR_UNSUPPORTED, "its name cannot be written in calls of this template");
  else e = grammar_args_rule(c->g, c->w, schema, c->o->flags, &args, &rule);
  if (!e) {
    uint32_t r = grammar_rule_new(c->g, GR_AUTOMATON, name), end = grammar_end_new(c->g, r), at = grammar_state_new(c->g, r);
    grammar_call_add(c->g, at, rule, GR_PLAIN, end);
    at = marked_to(c, r, f->between, strlen(f->between), at);
    c->g->rule[r].start = f->is_quoted ? grammar_text_to(c->g, r, quoted + 1, strlen(quoted) - 2, GR_PLAIN, at) : grammar_text_to(c->g, r, name, strlen(name), GR_PLAIN, at);
    *out = r;
  }
  free(quoted);
  json_decref(own);
  json_decref(schema);
  return err_wrap(e, "tool \"%s\"", name);
}

static bool same_spelling(const ToolForm *a, const ToolForm *b) {
  return a->is_json == b->is_json && a->is_quoted == b->is_quoted && !strcmp(a->between, b->between) && (a->is_json || !memcmp(&a->args, &b->args, sizeof a->args));
}

static Err *tools_get(Calls *c, const ToolForm *f, const uint32_t **out) {
  for (int i = 0; i < c->n_made; i++)
    if (same_spelling(c->made[i].form, f)) {
      *out = c->made[i].rule;
      return NULL;
    }
  uint32_t *rule = ARENA_ARRAY(c->w->a, uint32_t, c->n_tools + 1);
  uint32_t any_text[2] = {0};
  for (int i = 0; i < c->n_tools; i++) TRY(tool_rule(c, f, any_text, c->tool[i], &rule[i]));
  c->made[c->n_made].form = f;
  c->made[c->n_made++].rule = rule;
  *out = rule;
  return NULL;
}

/* Calls of one form, from `skip` bytes of what is in front of the first on. links: where another may follow in the same form. */
static Err *form_rule(Calls *c, const ToolForm *f, size_t skip, bool links, bool trails, uint32_t *out) {
  Grammar *g = c->g;
  const uint32_t *tool;
  TRY(tools_get(c, f, &tool));
  uint32_t r = grammar_rule_new(g, GR_AUTOMATON, "call"), name = grammar_state_new(g, r), args_end = grammar_state_new(g, r), end = grammar_end_new(g, r), last = end;
  g->rule[r].start = marked_to(c, r, f->before + skip, strlen(f->before) - skip, name);
  for (int i = 0; i < c->n_tools; i++) grammar_call_add(g, name, tool[i], GR_PLAIN, args_end);
  if (trails && *f->trail) {
    last = grammar_end_new(g, r);
    grammar_call_add(g, last, text_rule(c, f->trail, strlen(f->trail)), GR_PLAIN, end);
  }
  uint32_t behind = *f->behind ? text_rule(c, f->behind, strlen(f->behind)) : 0, link = links && f->link ? text_rule(c, f->link, strlen(f->link)) : 0;
  if (behind) grammar_call_add(g, args_end, behind, GR_PLAIN, last);
  else g->st[args_end].accept = true;
  if (link) grammar_call_add(g, args_end, link, GR_PLAIN, name);
  *out = r;
  return NULL;
}

/* ---- an answer that is calls ---- */

static Err *required_build(Calls *c) {
  Grammar *g = c->g;
  const ToolForms *f = c->forms;
  uint32_t root = grammar_rule_new(g, GR_AUTOMATON, "calls"), start = grammar_state_new(g, root), led = grammar_state_new(g, root), end = grammar_end_new(g, root), think = grammar_state_new(g, root);
  uint32_t rule[TOOL_FORMS_MAX], n = 0;
  g->rule[root].start = start;
  for (int i = 0; i < f->n; i++)
    if (f->f[i].may_lead) TRY(form_rule(c, &f->f[i], 0, c->many, true, &rule[n++]));
  uint32_t lead = *f->f[0].lead ? text_rule(c, f->f[0].lead, strlen(f->f[0].lead)) : 0;
  uint32_t open = f->resume ? text_rule(c, f->think, strlen(f->think)) : 0, resume = f->resume ? text_rule(c, f->resume, strlen(f->resume)) : 0;
  for (uint32_t i = 0; i < n; i++) grammar_call_add(g, start, rule[i], GR_PLAIN, end);
  if (lead) grammar_call_add(g, start, lead, GR_PLAIN, led);
  if (open) grammar_call_add(g, start, open, GR_PLAIN, think);
  for (uint32_t i = 0; i < n; i++) grammar_call_add(g, led, rule[i], GR_PLAIN, end);
  if (open) grammar_call_add(g, think, resume, GR_PLAIN, start);
  g->root = root;
  return NULL;
}

/* ---- an answer that may call ---- */

/* Where text stands: nothing of the content yet (where some calls have no marker of their own), in content, in reasoning. */
enum { AT_BEGIN, AT_CONTENT, AT_REASON, AT_N };
enum { FOUND_NOTHING = -1, FOUND_OPEN = -2, FOUND_CLOSE = -3 };

/* The words that are looked for, as a trie with failure links: Aho and Corasick 1975. */
typedef struct Words {
  int next[NODES_MAX][256];  /* 0: to be followed by fail */
  int fail[NODES_MAX], found[NODES_MAX], n;
} Words;

static void word_add(Words *w, const char *text, size_t n, int what) {
  int at = 0;
  for (size_t i = 0; i < n; i++) {
    int *to = &w->next[at][(uint8_t)text[i]];
    if (!*to) {
      CHECK(w->n < NODES_MAX, "markers of more than %d bytes", NODES_MAX);
      w->found[w->n] = FOUND_NOTHING;
      *to = w->n++;
    }
    at = *to;
  }
  if (w->found[at] == FOUND_NOTHING) w->found[at] = what;
}

static int step_word(const Words *w, int at, int byte) {
  while (at && !w->next[at][byte]) at = w->fail[at];
  return w->next[at][byte];
}

/* Level by level: a node fails to one that is nearer to the root. A word may end inside another. */
static void words_link(Words *w) {
  int level[NODES_MAX] = {0}, n = 1;
  for (int i = 0; i < n; i++)
    for (int at = level[i], b = 0; b < 256; b++) {
      int to = w->next[at][b];
      if (!to) continue;
      w->fail[to] = at ? step_word(w, w->fail[at], b) : 0;
      if (w->found[to] == FOUND_NOTHING) w->found[to] = w->found[w->fail[to]];
      level[n++] = to;
    }
}

typedef struct Free {
  Words words;
  uint32_t st[AT_N][NODES_MAX];
  uint32_t call[AT_N][TOOL_FORMS_MAX]; /* behind the opening of a form */
  bool has_bare;                       /* some calls have no opening */
  const TextReason *reason;
} Free;

/* Where a byte leads from a place in text. */
static uint32_t free_next(const Free *f, int at, int node, int byte) {
  const Words *w = &f->words;
  bool in_word = w->next[node][byte] != 0, is_space = byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
  int to = step_word(w, node, byte), found = w->found[to], then = at;
  if (found >= 0) return f->call[at][found];
  if (at == AT_BEGIN && found == FOUND_NOTHING && !in_word && !(is_space && !node)) then = AT_CONTENT;
  if (found == FOUND_OPEN && at != AT_REASON && (at == AT_BEGIN || f->reason->where == REASON_ANY)) then = AT_REASON, to = 0;
  else if (found == FOUND_OPEN && at == AT_BEGIN) then = AT_CONTENT;
  if (found == FOUND_CLOSE) then = AT_BEGIN, to = 0;
  return f->st[then][to];
}

static void free_states(Grammar *g, Free *f) {
  for (int at = f->has_bare ? AT_BEGIN : AT_CONTENT; at < (f->has_bare ? AT_N : AT_REASON); at++)
    for (int node = 0; node < f->words.n; node++) {
      uint32_t from = f->st[at][node];
      if (f->words.found[node] >= 0) continue;
      g->st[from].accept = true;
      for (int b = 0; b < GR_SPECIAL; b++) {
        if (at == AT_BEGIN && !node && (b == '{' || b == '[')) continue;
        grammar_edge_add(g, from, (uint8_t)b, (uint8_t)b, GR_PLAIN, 0, free_next(f, at, node, b));
      }
      grammar_edge_add(g, from, GR_SPECIAL, GR_SPECIAL, GR_PLAIN, 0, from);
    }
}

static Err *free_fill(Calls *c, Free *f) {
  Grammar *g = c->g;
  const ToolForms *forms = c->forms;
  uint32_t root = grammar_rule_new(g, GR_AUTOMATON, "answer"), rule[TOOL_FORMS_MAX], done = grammar_end_new(g, root);
  f->reason = forms->reason;
  f->words.n = 1;
  f->words.found[0] = FOUND_NOTHING;
  for (int i = 0; i < forms->n; i++) {
    const ToolForm *form = &forms->f[i];
    size_t n = strlen(form->opening);
    f->has_bare |= !n;
    if (n) word_add(&f->words, form->opening, n, i);
    TRY(form_rule(c, form, n, c->many && (!n || !form->link || !strstr(form->link, form->opening)), false, &rule[i]));
  }
  if (f->has_bare && f->reason) {
    word_add(&f->words, f->reason->open, strlen(f->reason->open), FOUND_OPEN);
    word_add(&f->words, f->reason->close, strlen(f->reason->close), FOUND_CLOSE);
  }
  words_link(&f->words);
  for (int at = 0; at < AT_N; at++) {
    for (int node = 0; node < f->words.n; node++) f->st[at][node] = grammar_state_new(g, root);
    for (int i = 0; i < forms->n; i++) f->call[at][i] = grammar_state_new(g, root);
  }
  for (int at = 0; at < AT_N; at++)
    for (int i = 0; i < forms->n; i++) {
      uint32_t back = !c->many ? done : f->st[at == AT_REASON ? AT_REASON : f->has_bare ? AT_BEGIN : AT_CONTENT][0];
      grammar_call_add(g, f->call[at][i], rule[i], GR_PLAIN, back);
    }
  free_states(g, f);
  for (int i = 0; i < forms->n; i++)
    if (!*forms->f[i].opening) grammar_call_add(g, f->st[AT_BEGIN][0], rule[i], GR_PLAIN, c->many ? f->st[AT_BEGIN][0] : done);
  g->rule[root].start = f->st[f->has_bare ? AT_BEGIN : AT_CONTENT][0];
  g->root = root;
  return NULL;
}

static Err *free_build(Calls *c) {
  Free *f = calloc(1, sizeof *f);
  CHECK(f, "no memory for a grammar");
  Err *e = free_fill(c, f);
  free(f);
  return e;
}

/* ---- the whole ---- */

static Err *calls_build(Calls *c) {
  const TextCallsOptions *o = c->o;
  c->tool = (const json_t **)arena_alloc(c->w->a, (json_array_size(o->tools) + 1) * sizeof *c->tool);
  for (size_t i = 0; i < json_array_size(o->tools); i++) {
    const json_t *f = json_object_get(json_array_get(o->tools, i), "function");
    if (!o->only || !strcmp(o->only, json_string_value(json_object_get(f, "name")))) c->tool[c->n_tools++] = f;
  }
  if (!c->n_tools) return err_new(ERR_USAGE, "tool_choice: no tool \"%s\" is offered", o->only ? o->only : "");
  TRY(o->may_answer ? free_build(c) : required_build(c));
  return grammar_finish(c->g, c->w);
}

static Err *calls_of(const ToolForms *forms, const TextCallsOptions *o, Grammar **out) {
  GrWork w = {.a = arena_new("compile"), .left = GR_BUDGET};
  Grammar *g = grammar_new();
  Calls calls = {.g = g, .w = &w, .o = o, .forms = forms, .many = o->many && !forms->is_single};
  Err *e = calls_build(&calls);
  arena_free(w.a);
  if (e) grammar_free(g);
  else *out = g;
  return e;
}

/* ---- tools whose schemas cannot be enforced ---- */

static Err *compile_alone(const ToolForms *forms, const TextCallsOptions *o, json_t *tool) {
  TextCallsOptions one = *o;
  Grammar *g = NULL;
  json_t *tools = json_pack("[O]", tool);
  one.tools = tools;
  one.only = NULL;
  Err *e = calls_of(forms, &one, &g);
  grammar_free(g);
  json_decref(tools);
  return e;
}

static bool compiles(const ToolForms *forms, const TextCallsOptions *o, json_t *tool) {
  Err *e = compile_alone(forms, o, tool);
  err_free(e);
  return !e;
}

/* The tool with one of its parameters only. A new reference. */
static json_t *tool_with(const json_t *tool, const char *key, json_t *schema) {
  json_t *f = json_copy(json_object_get(tool, "function")), *parameters = json_copy(json_object_get(f, "parameters")), *properties = json_object();
  json_object_set(properties, key, schema);
  json_object_set_new(parameters, "properties", properties);
  json_object_del(parameters, "required");
  json_object_set_new(f, "parameters", parameters);
  return json_pack("{s:o}", "function", f);
}

/* Parameters that cannot be enforced even alone, or all of them, may be anything. False: that was not what is wrong. */
static bool tool_relax(const ToolForms *forms, const TextCallsOptions *o, json_t *tool) {
  json_t *f = json_object_get(tool, "function"), *properties = json_object_get(json_object_get(f, "parameters"), "properties"), *schema;
  const char *key;
  void *next;
  json_object_foreach_safe(properties, next, key, schema) {
    json_t *alone = tool_with(tool, key, schema);
    if (!compiles(forms, o, alone)) json_object_set_new(properties, key, json_object());
    json_decref(alone);
  }
  if (compiles(forms, o, tool)) return true;
  json_object_set_new(f, "parameters", json_pack("{s:s}", "type", "object"));
  return compiles(forms, o, tool);
}

/* first: what is wrong with the tools as they are; freed where they can be relaxed. */
static Err *calls_relaxed(const ToolForms *forms, const TextCallsOptions *o, Err *first, Grammar **out, Str *told) {
  json_t *tools = json_deep_copy(o->tools), *tool;
  TextCallsOptions mild = *o;
  Str lines = {0};
  bool ok = true;
  size_t i;
  json_array_foreach(tools, i, tool) {
    Err *why = ok ? compile_alone(forms, o, tool) : NULL;
    if (why) str_addf(&lines, "%s\n", err_text(why)), ok = tool_relax(forms, o, tool);
    err_free(why);
  }
  mild.tools = tools;
  Err *e = ok ? calls_of(forms, &mild, out) : first;
  if (!e) str_add_n(told, lines.n ? lines.p : "", lines.n);
  if (e != first) err_free(e ? e : first);
  str_free(&lines);
  json_decref(tools);
  return e ? first : NULL;
}

Err *text_chat_calls_relaxed(const TextChat *c, const TextCallsOptions *o, Grammar **out, Str *told) {
  Arena *a = arena_new("forms of calls");
  ToolForms forms = {0};
  Err *e = tool_forms_find(a, c, &forms);
  if (!e) {
    e = calls_of(&forms, o, out);
    if (e && told && o->flags & GRAMMAR_RELAX) e = calls_relaxed(&forms, o, e, out, told);
  }
  arena_free(a);
  return e;
}

Err *text_chat_calls(const TextChat *c, const TextCallsOptions *o, Grammar **out) { return text_chat_calls_relaxed(c, o, out, NULL); }
