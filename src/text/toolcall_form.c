/* The forms of a template's calls. In: a chat template. Out: what stands around names and arguments. The template's own form is found by
   rendering calls through it, so that it has the very white space that the model was trained on; other openings that the reader of replies
   knows get a form from their pattern in toolcall.def. No form is taken that the reader does not read back as the calls it was made from. */
#include <stdlib.h>
#include <string.h>
#include "text/toolcall_form.h"
#include "text/message.h"
#include "text/replyparts.h"
#include "text/toolcall.h"

#define NAME "qzwordfn"
#define KEY_A "qzwordka"
#define KEY_B "qzwordkb"
#define VALUE_A "qzwordva"
#define VALUE_B "qzwordvb"
#define JSON_ARGS "{\"" KEY_A "\": \"" VALUE_A "\", \"" KEY_B "\": \"" VALUE_B "\"}"
#define ID_1 "call00001"
#define ID_2 "call00002"
#define ID_LONG "call_0000-0003"
enum { MAX_BEHIND = 128, MAX_OPENING = 128 };
static const struct tm probe_time = {.tm_year = 126, .tm_mday = 1, .tm_wday = 4};

/* What stands in front of an answer; calls as they are shown: one, one without arguments, two; answer: where the text behind the prompt begins, in
   all of them. Empty: not shown. */
typedef struct Shown { Str prompt, one, bare, two; size_t answer; } Shown;

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* ---- showing ---- */

static json_t *probe_call_of(const TextChat *c, json_t *args, const char *id) { /* args: stolen */
  if (c->wants_text_arguments) {
    char *s = json_dumps(args, 0);
    json_decref(args);
    args = json_string(s);
    free(s);
  }
  return json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type", "function", "function", "name", NAME, "arguments", args);
}

static json_t *probe_call(const TextChat *c, int i, bool has_args, bool names_id) {
  const char *id = names_id ? (i ? "functions." NAME ":1" : "functions." NAME ":0") : i ? ID_2 : ID_1;
  return probe_call_of(c, has_args ? json_pack("{s:s, s:s}", KEY_A, VALUE_A, KEY_B, VALUE_B) : json_object(), id);
}

static json_t *conversation_of(const TextChat *c, json_t *calls) { /* calls: stolen */
  json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "a"), *one;
  size_t i;
  json_array_append_new(messages, json_pack("{s:s, s:o, s:O}", "role", "assistant", "content", c->wants_null_content ? json_null() : json_string(""), "tool_calls", calls));
  json_array_foreach(calls, i, one)
    json_array_append_new(messages, json_pack("{s:s, s:s, s:O, s:s}", "role", "tool", "content", "qzwordresult", "tool_call_id", json_object_get(one, "id"), "name", NAME));
  json_decref(calls);
  return messages;
}

static json_t *probe_conversation(const TextChat *c, int n_calls, bool has_args, bool names_id) {
  json_t *calls = json_array();
  for (int i = 0; i < n_calls; i++) json_array_append_new(calls, probe_call(c, i, has_args, names_id));
  return conversation_of(c, calls);
}

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

/* Calls through the template. What it refuses stays empty. */
static void show_rendered(const TextChat *c, bool names_id, Shown *out) {
  err_free(render_probe(c, json_pack("[{s:s, s:s}]", "role", "user", "content", "a"), true, &out->prompt));
  err_free(render_probe(c, probe_conversation(c, 1, true, names_id), false, &out->one));
  err_free(render_probe(c, probe_conversation(c, 1, false, names_id), false, &out->bare));
  err_free(render_probe(c, probe_conversation(c, 2, true, names_id), false, &out->two));
  while (out->answer < out->prompt.n && out->answer < out->one.n && out->prompt.p[out->answer] == out->one.p[out->answer]) out->answer++;
}

/* How the template spells what is not ASCII, and whether it shows ids of another length. */
static void ways_find(const TextChat *c, ToolForms *out) {
  static const char *const ids[] = {ID_LONG, ID_1}; /* some templates refuse ids of other lengths than theirs */
  Str shown = {0};
  for (size_t i = 0; i < COUNT_OF(ids) && !shown.n; i++) {
    json_t *call = probe_call_of(c, json_pack("{s:s}", KEY_A, "\uAC00"), ids[i]);
    err_free(render_probe(c, conversation_of(c, json_pack("[o]", call)), false, &shown));
  }
  out->ids_vary = shown.n && strstr(shown.p, ID_LONG);
  out->escapes = shown.n && strstr(shown.p, "\\u" "ac00");
  str_free(&shown);
}

/* Calls as the pattern has them: what the prompt says of calls where the template says nothing. */
static void show_written(const ToolPattern *p, const TextChat *c, bool names_id, Shown *out) {
  const struct { Str *to; int n; bool has_args; } rows[] = {{&out->one, 1, true}, {&out->bare, 1, false}, {&out->two, 2, true}};
  for (size_t i = 0; i < COUNT_OF(rows); i++)
    for (int k = 0; k < rows[i].n; k++) {
      json_t *call = probe_call(c, k, rows[i].has_args, names_id), *f = json_object_get(call, "function"), *args = json_object_get(f, "arguments");
      if (json_is_string(args)) json_object_set_new(f, "arguments", json_loads(json_string_value(args), 0, NULL));
      if (k) str_add_c(rows[i].to, '\n');
      text_chat_write_call(c, rows[i].to, p, call, k);
      json_decref(call);
    }
}

static void shown_free(Shown *s) {
  str_free(&s->prompt);
  str_free(&s->one);
  str_free(&s->bare);
  str_free(&s->two);
}

/* ---- finding ---- */

/* The last place of a word in s[0..n). */
static const char *last_of(const char *s, size_t n, const char *word) {
  const char *hit = NULL;
  for (const char *p = s, *end = s + n; (p = memmem(p, (size_t)(end - p), word, strlen(word))); p++) hit = p;
  return hit;
}

static const char *last_before(const char *s, const char *end, const char *word) { return end ? last_of(s, (size_t)(end - s), word) : NULL; }

/* Which of the signs for arguments a pattern has. */
static char sign_of(const ToolPattern *p) {
  for (int i = 0; i < p->n_parts; i++) {
    if (p->part[i].kind == TOOL_LOOP) return '{';
    if (p->part[i].kind == TOOL_OBJECT || p->part[i].kind == TOOL_LIST) return p->part[i].what;
  }
  return 0;
}

/* Whether a pattern's text up to the name is what stands from p on to the name. */
static bool leads_to(const ToolPattern *pattern, const char *p, const char *name) {
  for (int i = 0; i < pattern->n_parts && p <= name; i++) {
    const ToolPart *part = &pattern->part[i];
    if (part->kind == TOOL_LIST) return true;
    if (part->kind == TOOL_CAPTURE && strchr("nf", part->what)) return p == name || (part->what == 'f' && !strncmp(p, "functions.", 10) && p + 10 == name);
    if (part->kind == TOOL_SPACE) while (is_space(*p)) p++;
    else if (part->kind == TOOL_LITERAL && !strncmp(p, part->text, (size_t)part->n)) p += part->n;
    else if (part->kind == TOOL_CAPTURE && part[1].kind == TOOL_LITERAL) p = memmem(p, (size_t)(name - p), part[1].text, (size_t)part[1].n);
    else return false;
    if (!p) return false;
  }
  return false;
}

/* Where the call that names its tool at `name` begins: at the first opening of a pattern that leads to it, else where the answer does. The prompt
   and the answer may begin with the same bytes, so it is looked for in front of the answer too. */
static const char *beginning(const TextSyntax *syntax, const char *text, const char *answer, const char *name, size_t *n_opening) {
  const char *best = NULL, *from = answer - text > MAX_OPENING ? answer - MAX_OPENING : text;
  *n_opening = 0;
  for (int i = 0; i < REPLY_MAX_PATTERNS && syntax->pattern[i]; i++) {
    ToolPattern p;
    tool_pattern_compile(syntax->pattern[i], &p);
    size_t n = (size_t)p.part[0].n;
    for (const char *hit = p.is_bare ? NULL : from; hit && (hit = memmem(hit, (size_t)(name - hit), p.part[0].text, n)); hit++) {
      if (!leads_to(&p, hit, name)) continue;
      if (sign_of(&p) == 'o' || sign_of(&p) == 'p') { /* the last: nothing says what stands between */
        const char *more = memmem(hit + 1, (size_t)(name - hit) - 1, p.part[0].text, n);
        if (more && leads_to(&p, more, name)) continue;
      }
      if (!best || hit < best || (hit == best && n > *n_opening)) best = hit, *n_opening = n;
      break;
    }
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
    const ToolPart *last = tool_pattern_closing(&pattern);
    if (!last || last->n < 2) continue;
    const char *hit = memmem(p, MIN(strlen(p), (size_t)MAX_BEHIND), last->text, (size_t)last->n);
    if (hit && (!marker || hit + last->n < marker)) marker = hit + last->n;
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

/* ---- spellings ---- */

/* The literal behind a value in a pattern with a loop, and whether the pattern tells texts from JSON. */
static const ToolPart *closing_of(const ToolPattern *p, bool *is_typed) {
  *is_typed = false;
  for (int i = 0; i + 1 < p->n_parts; i++) {
    char what = p->part[i].kind == TOOL_CAPTURE ? p->part[i].what : 0;
    if (what == 's') *is_typed = true;
    if (what == 'v' || what == 'w') return &p->part[i + 1];
  }
  return NULL;
}

/* Arguments between markers: the places of keys and values in the two texts give what stands between. */
static bool spell_tags(Arena *a, const ToolPattern *p, const Shown *s, const char *const at[5], const char *stop, ToolForm *out, const char **args_end) {
  bool typed;
  const ToolPart *lit = closing_of(p, &typed);
  const char *name_end = at[0] + strlen(NAME), *ka_end = at[1] + strlen(KEY_A), *va_end = at[2] + strlen(VALUE_A), *vb_end = at[4] + strlen(VALUE_B);
  const char *name = s->bare.n ? last_of(s->bare.p, s->bare.n, NAME) : NULL;
  /* the one without arguments ends as the other does */
  size_t n_close = (size_t)(stop - vb_end), n_same = 0, n_empty;
  const char *closer = lit ? memmem(va_end, (size_t)(at[3] - va_end), lit->text, (size_t)lit->n) : NULL;
  if (!closer || closer + lit->n >= at[3] || n_close <= (size_t)(closer + lit->n - va_end)) return false;
  size_t n_end = (size_t)(closer + lit->n - va_end);
  if (memcmp(va_end, vb_end, n_end)) return false;
  for (const char *t = s->bare.p, *more = name; more && more >= t + MIN(s->answer, s->bare.n);) { /* the result may name it too */
    name = more;
    more = last_before(t, name, NAME);
  }
  if (!name) return false;
  name += strlen(NAME);
  const char *tail = vb_end + n_end, *empty_stop = memmem(name, strlen(name), stop - 1, 1); /* at least one byte is the same */
  size_t n_tail = (size_t)(stop - tail);
  for (size_t n = n_tail; n > 0 && !n_same; n--) { /* the longest end of it that stands near the name */
    const char *hit = memmem(name, MIN(strlen(name), n_tail + (size_t)MAX_BEHIND), stop - n, n);
    if (hit) n_same = n, empty_stop = hit + n;
  }
  if (!n_same) return false;
  n_empty = (size_t)(empty_stop - name) - n_same;
  if (n_same == n_tail || !n_empty) n_same--, n_empty++; /* the close and what stands instead are no empty texts */
  out->args = (GrArgs){.values = GR_VALUES_JSON, .open = arena_dup_n(a, name_end, (size_t)(at[1] - name_end)), .empty = arena_dup_n(a, name, n_empty),
    .is = arena_dup_n(a, ka_end, (size_t)(at[2] - ka_end)), .end = arena_dup_n(a, va_end, n_end), .closing = arena_dup_n(a, lit->text, (size_t)lit->n),
    .sep = arena_dup_n(a, closer + lit->n, (size_t)(at[3] - closer) - (size_t)lit->n), .close = arena_dup_n(a, tail, n_tail - n_same)};
  const char *yes = typed ? strstr(out->args.is, "true") : NULL;
  if (typed && !yes) return false;
  if (typed) out->args.is_json = arena_printf(a, "%.*sfalse%s", (int)(yes - out->args.is), out->args.is, yes + 4);
  *args_end = stop - n_same;
  return *out->args.open && *out->args.is && *out->args.sep && *out->args.close;
}

static const GrArgs spellings[] = {
  [GR_VALUES_PYTHON] = {.values = GR_VALUES_PYTHON, .open = "(", .empty = "()", .is = "=", .end = "", .sep = ", ", .close = ")"},
  [GR_VALUES_BRACES] = {.values = GR_VALUES_BRACES, .open = "{", .empty = "{}", .is = ":", .end = "", .sep = ",", .close = "}"},
};

/* ---- one form ---- */

/* A copy with marks for the ids, and for digits that differ in `other`, a text of the same length; NULL: none. */
static const char *marked(Arena *a, const char *p, size_t n, const char *other) {
  char *out = arena_alloc(a, n + 1), *to = out;
  for (size_t i = 0; i < n;) {
    bool is_id = n - i >= strlen(ID_1) && (!memcmp(p + i, ID_1, strlen(ID_1)) || !memcmp(p + i, ID_2, strlen(ID_2)));
    bool counts = other && is_digit(p[i]) && is_digit(other[i]) && p[i] != other[i];
    *to++ = is_id ? (char)TOOL_FORM_ID : counts ? (char)TOOL_FORM_COUNTER : p[i];
    i += is_id ? strlen(ID_1) : 1;
  }
  *to = 0;
  return out;
}

/* Where noise of the row stands in front of p, at most down to `from`; or behind p. */
static const char *noise_before(const TextSyntax *syntax, const char *from, const char *p) {
  for (bool more = true; more;) {
    const char *q = p;
    more = false;
    while (q > from && is_space(q[-1])) q--;
    for (int i = 0; i < REPLY_MAX_NOISE && syntax->noise[i] && !more; i++) {
      size_t n = strlen(syntax->noise[i]);
      more = (size_t)(q - from) >= n && !memcmp(q - n, syntax->noise[i], n);
      if (more) p = q - n;
    }
  }
  return p;
}

static const char *noise_behind(const TextSyntax *syntax, const char *p) {
  for (bool more = true; more;) {
    const char *q = p;
    more = false;
    while (is_space(*q)) q++;
    for (int i = 0; i < REPLY_MAX_NOISE && syntax->noise[i] && !more; i++) {
      more = !strncmp(q, syntax->noise[i], strlen(syntax->noise[i]));
      if (more) p = q + strlen(syntax->noise[i]);
    }
  }
  return p;
}

/* The places of the name, the keys and the values of the last call in front of `end`. */
static bool places(const char *text, const char *end, const char *at[5]) {
  at[4] = last_before(text, end, VALUE_B);
  at[3] = last_before(text, at[4], KEY_B);
  at[2] = last_before(text, at[3], VALUE_A);
  at[1] = last_before(text, at[2], KEY_A);
  at[0] = last_before(text, at[1], NAME);
  return at[0] != NULL;
}

/* A JSON object's beginning and end around these places. */
static bool json_around(const char *text, const char *const at[5], const char **begin, const char **end) {
  const char *p = at[1], *q = at[4] + strlen(VALUE_B);
  if (p == text || p[-1] != '"' || *q != '"') return false;
  for (p--; p > at[0] && is_space(p[-1]);) p--;
  for (q++; is_space(*q);) q++;
  *begin = p - 1;
  *end = q + 1;
  return p > at[0] && p[-1] == '{' && *q == '}';
}

/* What stands between the arguments of a call and the name of the next, and the counters beside names. */
static void link_find(Arena *a, const Shown *s, const char *one_begin, const char *const one[5], const char *args_end, ToolForm *f) {
  const char *text = s->two.p, *at[5], *first[5];
  size_t n_value = (size_t)(args_end - one[4]), n_before = (size_t)(one[0] - one_begin), n_between = strlen(f->between);
  f->link = NULL;
  if (!s->two.n || !places(text, text + s->two.n, at) || !places(text, at[0], first) || first[0] < text + MIN(s->answer, s->two.n)) return;
  const char *from = first[4] + n_value;
  if (from > at[0]) return;
  size_t n = (size_t)(at[0] - from), n_same = MIN(n, n_before);
  const char *before = one[0] - n_same, *second = at[0] - n_same;
  f->before = arena_printf(a, "%s%s", marked(a, one_begin, n_before - n_same, NULL), marked(a, before, n_same, second));
  f->link = arena_printf(a, "%s%s", marked(a, from, n - n_same, NULL), marked(a, second, n_same, before));
  f->between = marked(a, one[0] + strlen(NAME), n_between, at[0] + strlen(NAME));
}

/* The form that calls are shown in; pattern: the one that is followed, NULL: any of the row. */
static bool form_read(Arena *a, const TextSyntax *syntax, const ToolPattern *pattern, const Shown *s, ToolForm *out) {
  const char *text = s->one.p, *at[5], *args = NULL, *args_end = NULL;
  size_t n_opening = 0;
  ToolForm f = {.opening = ""};
  if (!s->one.n || !places(text, text + s->one.n, at) || at[0] < text + s->answer) return false;
  const char *begin = pattern ? text : beginning(syntax, text, text + s->answer, at[0], &n_opening), *stop;
  if (pattern && !pattern->is_bare) n_opening = (size_t)pattern->part[0].n;
  f.is_json = json_around(text, at, &args, &args_end);
  f.is_quoted = at[0] > begin && at[0][-1] == '"' && at[0][strlen(NAME)] == '"' && f.is_json;
  bool done = f.is_json;
  int depth = depth_of(begin + n_opening, (size_t)(at[0] - begin) - n_opening);
  if (done) depth += depth_of(at[0] + strlen(NAME), (size_t)(args - at[0]) - strlen(NAME)), f.between = arena_dup_n(a, at[0] + strlen(NAME), (size_t)(args - at[0]) - strlen(NAME));
  else f.between = "";
  stop = ending(syntax, done ? args_end : at[4] + strlen(VALUE_B), depth);
  for (int i = 0; !done && i < (pattern ? 1 : REPLY_MAX_PATTERNS) && syntax->pattern[i]; i++) {
    ToolPattern own;
    tool_pattern_compile(syntax->pattern[i], &own);
    const ToolPattern *p = pattern ? pattern : &own;
    char sign = sign_of(p);
    const char *value_end = at[4] + strlen(VALUE_B);
    if (sign == '{') done = spell_tags(a, p, s, at, stop, &f, &args_end);
    if (sign == 'p' || sign == 'g') {
      f.args = spellings[sign == 'p' ? GR_VALUES_PYTHON : GR_VALUES_BRACES];
      const char *close = memmem(value_end, MIN(strlen(value_end), (size_t)8), f.args.close, 1);
      done = close != NULL;
      if (done) args_end = close + 1;
      if (done && sign == 'p') stop = ending(syntax, args_end, depth);
    }
  }
  if (!done || stop < args_end) return false;
  f.opening = arena_dup_n(a, begin, n_opening);
  f.before = marked(a, begin, (size_t)(at[0] - begin), NULL);
  f.behind = marked(a, args_end, (size_t)(stop - args_end), NULL);
  const char *lead = noise_before(syntax, MIN(text + s->answer, begin), begin), *trail = noise_behind(syntax, stop);
  f.lead = arena_dup_n(a, lead, (size_t)(begin - lead));
  f.trail = arena_dup_n(a, stop, (size_t)(trail - stop));
  link_find(a, s, begin, at, args_end, &f);
  *out = f;
  return true;
}

/* ---- proof ---- */

static void sample_marked(Str *out, const char *text) {
  for (; *text; text++) {
    if (*text == TOOL_FORM_ID) str_add(out, ID_1);
    else if (*text == TOOL_FORM_COUNTER) str_add_c(out, '0');
    else str_add_c(out, *text);
  }
}

static void sample_args(Str *out, const ToolForm *f) {
  static const char *const quotes[] = {[GR_VALUES_JSON] = "", [GR_VALUES_PYTHON] = "\"", [GR_VALUES_BRACES] = GR_BRACES_QUOTE};
  const char *q = quotes[f->args.values];
  sample_marked(out, f->between);
  if (f->is_json) str_add(out, JSON_ARGS);
  else str_addf(out, "%s" KEY_A "%s%s" VALUE_A "%s%s%s" KEY_B "%s%s" VALUE_B "%s%s%s", f->args.open, f->args.is, q, q, f->args.end, f->args.sep, f->args.is, q, q, f->args.end, f->args.close);
}

/* Whether n calls of the form are read as what they are. */
static bool reads(const TextChat *c, const ToolForm *f, int n) {
  Str text = {0};
  TextCollect collect = {0};
  json_t *tools = text_chat_probe_tools();
  TextReplyOptions o = {.tools = tools};
  TextReply *r = text_reply_new(c->syntax, c->reason, &o);
  sample_marked(&text, f->before);
  for (int i = 0; i < n; i++) {
    if (i) sample_marked(&text, f->link);
    str_add(&text, NAME);
    sample_args(&text, f);
  }
  sample_marked(&text, f->behind);
  text_reply_feed(r, text.p, text.n, text_collect_event, &collect);
  text_reply_end(r, text_collect_event, &collect);
  json_t *message = text_collect_message(&collect), *calls = json_object_get(message, "tool_calls");
  bool ok = json_array_size(calls) == (size_t)n && json_is_null(json_object_get(message, "content"));
  for (int i = 0; ok && i < n; i++) {
    const json_t *function = json_object_get(json_array_get(calls, (size_t)i), "function");
    ok = !strcmp(json_string_value(json_object_get(function, "name")), NAME) && !strcmp(json_string_value(json_object_get(function, "arguments")), JSON_ARGS);
  }
  json_decref(message);
  text_collect_free(&collect);
  text_reply_free(r);
  json_decref(tools);
  str_free(&text);
  return ok;
}

/* Another call in the same list; NULL: the call stands in none. */
static const char *link_in_list(Arena *a, const ToolForm *f) {
  size_t n = strlen(f->before);
  while (n && f->before[n - 1] != '[' && f->before[n - 1] != '{') n--;
  if (!f->is_json) return f->args.values == GR_VALUES_PYTHON ? ", " : NULL;
  return n > 1 && f->before[n - 1] == '{' && f->before[n - 2] == '[' && *f->behind == '}' ? arena_printf(a, "}, {%s", f->before + n) : NULL;
}

/* What is not read as calls is no form. is_shown: by the template; else lists of several calls are lists. */
static bool form_proved(Arena *a, const TextChat *c, bool is_shown, ToolForm *f) {
  if (!reads(c, f, 1)) return false;
  const char *shown = f->link, *in_list = link_in_list(a, f);
  if (!shown) return true;
  if (!is_shown && in_list) f->link = in_list;
  if (reads(c, f, 2)) return true;
  f->link = is_shown ? in_list : shown;
  if (f->link && !reads(c, f, 2)) f->link = NULL;
  return true;
}

/* ---- all forms ---- */

static bool opening_is_known(const ToolForms *all, const ToolPattern *p) {
  for (int i = 0; i < all->n; i++) {
    const char *own = all->f[i].opening;
    if (p->is_bare ? !*own && all->f[i].is_json == (sign_of(p) == 'o') : strlen(own) == (size_t)p->part[0].n && !memcmp(own, p->part[0].text, strlen(own))) return true;
  }
  return false;
}

/* The same calls by an opening that stands later in them. */
static bool form_later(Arena *a, const ToolForm *first, const ToolPattern *p, ToolForm *out) {
  char *opening = p->is_bare ? NULL : arena_dup_n(a, p->part[0].text, (size_t)p->part[0].n);
  const char *hit = opening && *first->opening ? strstr(first->before + strlen(first->opening), opening) : NULL;
  if (!hit) return false;
  *out = *first;
  out->opening = opening;
  out->before = hit;
  out->link = NULL;
  return true;
}

/* The template's own bare JSON behind a marker that it does not show, but knows. */
static bool form_marked(Arena *a, const ToolForm *first, const ToolPattern *p, ToolForm *out) {
  if (p->is_bare || *first->opening || !first->is_quoted || sign_of(p) != 'o') return false;
  *out = *first;
  out->opening = arena_dup_n(a, p->part[0].text, (size_t)p->part[0].n);
  out->before = arena_printf(a, "%s%s", out->opening, first->before);
  out->lead = out->trail = "";
  out->link = NULL;
  return true;
}

static void forms_of_row(Arena *a, const TextChat *c, bool names_id, ToolForms *out) {
  for (int i = 0; i < REPLY_MAX_PATTERNS && c->syntax->pattern[i]; i++) {
    ToolPattern p;
    ToolForm f;
    Shown s = {0};
    tool_pattern_compile(c->syntax->pattern[i], &p);
    if (opening_is_known(out, &p)) continue;
    bool ok = out->n && (form_later(a, &out->f[0], &p, &f) || form_marked(a, &out->f[0], &p, &f)) && form_proved(a, c, false, &f);
    if (!ok) {
      show_written(&p, c, names_id, &s);
      ok = form_read(a, c->syntax, &p, &s, &f) && form_proved(a, c, false, &f);
    }
    if (ok && out->n) { /* an opening with more in front of the template's own */
      size_t n = strlen(f.opening), k = strlen(out->f[0].opening);
      f.may_lead = k && n > k && !strcmp(f.opening + n - k, out->f[0].opening);
    }
    if (ok) out->f[out->n++] = f;
    shown_free(&s);
  }
}

static bool has_sign(const TextSyntax *s, const char *sign) {
  for (int i = 0; i < REPLY_MAX_PATTERNS && s->pattern[i]; i++)
    if (strstr(s->pattern[i], sign)) return true;
  return false;
}

/* Replies that are messages: reasoning is one of its own, and another header follows, the one the prompt ends with. */
static void think_find(Arena *a, const TextChat *c, const Str *prompt, ToolForms *out) {
  for (int i = 0; c->reason && i < REPLY_MAX_NOISE && c->reason->noise[i]; i++) {
    size_t n = strlen(c->reason->noise[i]);
    if (prompt->n < n || memcmp(prompt->p + prompt->n - n, c->reason->noise[i], n)) continue;
    out->think = c->reason->open;
    out->resume = arena_dup(a, c->reason->noise[i]);
  }
  out->reason = c->reason;
}

Err *tool_forms_find(Arena *a, const TextChat *c, ToolForms *out) {
  bool names_id = has_sign(c->syntax, "%f");
  ToolForms all = {0};
  Shown s = {0};
  show_rendered(c, names_id, &s);
  if (form_read(a, c->syntax, NULL, &s, &all.f[0]) && form_proved(a, c, c->shows_calls, &all.f[0])) all.n = 1;
  bool is_shown = all.n && c->shows_calls;
  think_find(a, c, &s.prompt, &all);
  ways_find(c, &all);
  shown_free(&s);
  forms_of_row(a, c, names_id, &all);
  if (!all.n) return err_new(ERR_UNSUPPORTED, "tool calls of this template cannot be held to their schemas: no form of its calls (%s) is known that is read back", text_syntax_name(c->syntax));
  all.f[0].may_lead = true;
  all.is_single = is_shown && !all.f[0].link;
  for (int i = 0; all.is_single && i < all.n; i++) all.f[i].link = NULL;
  *out = all;
  return NULL;
}
