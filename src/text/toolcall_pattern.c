/* Patterns of toolcall.def: compiled once, followed byte by byte. In: a row's text, then the bytes behind the opening literal. Out: calls.
   A run is in exactly one part at a time; parts that take no bytes are passed at once. The one place that looks back is a value whose closing
   literal turns out to be followed by something that may not stand there: then the literal was part of the value. */
#include <stdlib.h>
#include <string.h>
#include "text/toolcall.h"

enum { MAX_CAPTURE = 256 };

static bool is_space(uint8_t c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static ToolPartKind kind_of(char what) {
  if (strchr("ag", what)) return TOOL_OBJECT;
  return strchr("op", what) ? TOOL_LIST : TOOL_CAPTURE;
}

void tool_pattern_compile(const char *text, ToolPattern *out) {
  int loop = -1;
  *out = (ToolPattern){.is_bare = *text == '^'};
  for (const char *p = text + out->is_bare; *p;) {
    CHECK(out->n_parts < TOOL_MAX_PARTS - 1, "pattern %s is too long", text);
    int i = out->n_parts++;
    ToolPart *part = &out->part[i];
    size_t n = strcspn(p, "~%{}!");
    if (n) *part = (ToolPart){.kind = TOOL_LITERAL, .text = p, .n = (int)n};
    else if (!strncmp(p, "%(", 2)) {
      const char *end = strstr(p, "%)");
      CHECK(end, "pattern %s: %%( without %%)", text);
      *part = (ToolPart){.kind = TOOL_WRITTEN, .text = p + 2, .n = (int)(end - p) - 2};
      p = end;
    }
    else if (*p == '%') {
      CHECK(p[1] && strchr("nifxkvwsaopg", p[1]), "pattern %s: unknown sign", text);
      *part = (ToolPart){.kind = kind_of(p[1]), .what = p[1]};
    } else *part = (ToolPart){.kind = *p == '~' ? TOOL_SPACE : *p == '!' ? TOOL_CERTAIN : *p == '{' ? TOOL_LOOP : TOOL_BACK};
    if (part->kind == TOOL_LOOP) loop = i;
    if (part->kind == TOOL_BACK) {
      CHECK(loop >= 0, "pattern %s: } without {", text);
      part->to = loop;
      out->part[loop].to = i + 1;
      loop = -1;
    }
    p += n ? n : *p == '%' ? 2 : 1;
  }
  out->part[out->n_parts].kind = TOOL_END;
  CHECK(out->is_bare || out->part[0].kind == TOOL_LITERAL, "pattern %s has no opening", text);
}

const ToolPart *tool_pattern_closing(const ToolPattern *p) {
  const ToolPart *last = &p->part[p->n_parts - 1];
  while (last > p->part && (last->kind == TOOL_CERTAIN || last->kind == TOOL_SPACE)) last--;
  return last > p->part && last->kind == TOOL_LITERAL ? last : NULL;
}

void tool_run_init(ToolRun *r, const ToolPattern *p, const ToolSet *set) {
  *r = (ToolRun){.pattern = p, .set = set, .at = p->is_bare ? -1 : 0, .value_part = -1};
}

void tool_run_free(ToolRun *r) {
  Str *all[] = {&r->captured, &r->key, &r->name, &r->id, &r->args, &r->back};
  for (size_t i = 0; i < COUNT_OF(all); i++) str_free(all[i]);
  tool_value_free(&r->value);
  tool_list_free(&r->list);
}

size_t tool_run_memory(const ToolRun *r) {
  return r->captured.cap + r->key.cap + r->name.cap + r->id.cap + r->args.cap + r->back.cap + r->value.bare.cap + r->list.object.cap + r->list.value.bare.cap +
         r->list.call.name.cap + r->list.call.id.cap + r->list.call.args.cap;
}

static const ToolPart *part_of(const ToolRun *r) { return &r->pattern->part[r->at]; }

/* The literals that may follow a part, white space aside: of a choice two, else one. */
static void followers(const ToolRun *r, const ToolPart *next[2]) {
  const ToolPart *p = part_of(r) + 1;
  next[1] = NULL;
  while (p->kind == TOOL_SPACE || p->kind == TOOL_CERTAIN || p->kind == TOOL_WRITTEN) p++;
  if (p->kind == TOOL_BACK) p = &r->pattern->part[p->to];
  if (p->kind == TOOL_LOOP) next[1] = &r->pattern->part[p->to], p++;
  next[0] = p;
}

/* Enters the part behind, through those that take no bytes. */
static void enter(ToolRun *r, int at) {
  for (r->at = at;; r->at++) {
    const ToolPart *p = part_of(r);
    r->n_lit = 0;
    if (p->kind == TOOL_WRITTEN) continue;
    if (p->kind == TOOL_BACK) r->at = p->to - 1;
    else if (p->kind == TOOL_CERTAIN) {
      r->has_call = r->has_call || part_of(r)[-1].kind != TOOL_LIST;
      r->is_certain = true;
    } else {
      r->may_repeat = r->may_leave = p->kind == TOOL_LOOP;
      if (p->kind == TOOL_CAPTURE) str_clear(&r->captured);
      if (p->kind == TOOL_OBJECT) str_clear(&r->args), tool_value_init(&r->value, p->what == 'a' ? TOOL_JSON : TOOL_BRACES, &r->args);
      if (p->kind == TOOL_LIST) tool_list_init(&r->list, p->what == 'p', r->pattern->is_bare);
      return;
    }
  }
}

static bool name_is_plain(const Str *s) {
  for (size_t i = 0; i < s->n; i++)
    if (!tool_is_name_byte((uint8_t)s->p[i])) return false;
  return s->n > 0;
}

/* The value in captured, without one newline at each end (%w). */
static void add_param(ToolRun *r) {
  Str *s = &r->captured;
  size_t from = 0, to = s->n;
  if (r->pattern->part[r->value_part].what == 'w') {
    if (from < to && s->p[from] == '\n') from++;
    if (from < to && s->p[to - 1] == '\n') to--;
  }
  str_add(&r->args, r->args.n ? ", " : "{");
  tool_string_add(&r->args, r->key.p, r->key.n);
  str_add(&r->args, ": ");
  if (r->text_mark == 1) tool_string_add(&r->args, s->p + from, to - from);
  else if (r->text_mark == 2) {
    if (!tool_value_of_text(TOOL_JSON, s->p + from, to - from, &r->args)) tool_string_add(&r->args, s->p + from, to - from);
  } else tool_param_add(r->tool, r->key.p, r->key.n, s->p + from, to - from, &r->args);
  r->text_mark = 0;
}

/* A capture is whole. False: it cannot be what it must. */
static bool take_capture(ToolRun *r) {
  const ToolPart *p = part_of(r);
  Str *s = &r->captured;
  switch (p->what) {
    case 'n':
    case 'f':
      r->tool = tool_set_find(r->set, s->p, s->n, &r->name);
      if (p->what == 'f') str_clear(&r->id), str_add_n(&r->id, s->p, s->n);
      return r->tool || (r->set->keeps_unknown && name_is_plain(&r->name));
    case 'i': str_clear(&r->id); str_add_n(&r->id, s->p, s->n); return true;
    case 'k': str_clear(&r->key); str_add_n(&r->key, s->p, s->n); return s->n > 0;
    case 's': r->text_mark = s->n == 4 && !memcmp(s->p, "true", 4) ? 1 : 2; return true;
    default: return true;
  }
}

static bool ends_with(const Str *s, const ToolPart *lit) { return s->n >= (size_t)lit->n && !memcmp(s->p + s->n - lit->n, lit->text, (size_t)lit->n); }

static ToolState step(ToolRun *r, uint8_t c);

static ToolState step_capture(ToolRun *r, uint8_t c) {
  const ToolPart *p = part_of(r), *next[2];
  bool is_value = p->what == 'v' || p->what == 'w';
  followers(r, next);
  if (next[0]->kind == TOOL_OBJECT && c == '{') {
    if (!take_capture(r)) return TOOL_FAILED;
    enter(r, r->at + 1);
    return step(r, c);
  }
  str_add_c(&r->captured, (char)c);
  if (!is_value && r->captured.n > MAX_CAPTURE) return TOOL_FAILED;
  for (int i = 0; i < 2; i++) {
    const ToolPart *lit = next[i];
    if (!lit || lit->kind != TOOL_LITERAL || !ends_with(&r->captured, lit)) continue;
    r->captured.n -= (size_t)lit->n;
    r->captured.p[r->captured.n] = 0;
    if (!take_capture(r)) return TOOL_FAILED;
    int found = (int)(lit - r->pattern->part);
    if (is_value) {
      r->value_part = r->at;
      r->n_closing = (size_t)lit->n;
      r->in_back = true;
      str_clear(&r->back);
      str_add_n(&r->back, lit->text, (size_t)lit->n);
    }
    enter(r, found + 1);
    return TOOL_GOING;
  }
  return TOOL_GOING;
}

/* The value's closing literal was part of it: it goes on. */
static ToolState value_goes_on(ToolRun *r) {
  Str back = r->back;
  ToolState s = TOOL_GOING;
  r->back = (Str){0};
  r->in_back = false;
  r->at = r->value_part;
  str_add_n(&r->captured, back.p, r->n_closing);
  for (size_t i = r->n_closing; i < back.n && s == TOOL_GOING; i++) s = step(r, (uint8_t)back.p[i]);
  str_free(&back);
  return s;
}

static void args_end(ToolRun *r) {
  if (r->in_back) add_param(r);
  r->in_back = false;
  str_add(&r->args, r->args.n ? "}" : "{}");
}

static ToolState step_choice(ToolRun *r, uint8_t c) {
  const ToolPart *again = part_of(r) + 1, *leave = &r->pattern->part[part_of(r)->to];
  r->may_repeat = r->may_repeat && again->text[r->n_lit] == (char)c;
  r->may_leave = r->may_leave && leave->text[r->n_lit] == (char)c;
  r->n_lit++;
  if (!r->may_repeat && !r->may_leave) return r->in_back ? value_goes_on(r) : TOOL_FAILED;
  bool repeats = r->may_repeat && r->n_lit == again->n, leaves = r->may_leave && r->n_lit == leave->n;
  if (!repeats && !leaves) return TOOL_GOING;
  if (leaves) args_end(r);
  else if (r->in_back) add_param(r);
  r->in_back = false;
  enter(r, (int)((leaves ? leave : again) - r->pattern->part) + 1);
  return TOOL_GOING;
}

static ToolState step_part(ToolRun *r, uint8_t c) {
  const ToolPart *p = part_of(r);
  switch (p->kind) {
    case TOOL_LITERAL:
      if (p->text[r->n_lit] != (char)c) return TOOL_FAILED;
      if (++r->n_lit == p->n) enter(r, r->at + 1);
      return TOOL_GOING;
    case TOOL_SPACE: return TOOL_GOING;
    case TOOL_CAPTURE: return step_capture(r, c);
    case TOOL_OBJECT: {
      bool first = !r->value.depth && !r->args.n;
      if (first && c != '{') return TOOL_FAILED;
      ToolStep s = tool_value_step(&r->value, c);
      if (s == TOOL_DONE) enter(r, r->at + 1);
      return s == TOOL_BAD ? TOOL_FAILED : TOOL_GOING;
    }
    case TOOL_LIST: {
      ToolStep s = tool_list_step(&r->list, r->set, c);
      r->has_call = r->list.has_call;
      if (s == TOOL_DONE) enter(r, r->at + 1);
      return s == TOOL_BAD ? TOOL_FAILED : TOOL_GOING;
    }
    case TOOL_LOOP: return step_choice(r, c);
    default: return TOOL_FAILED;
  }
}

static ToolState step(ToolRun *r, uint8_t c) {
  if (r->in_back && part_of(r)->kind != TOOL_CAPTURE) str_add_c(&r->back, (char)c);
  if (part_of(r)->kind == TOOL_SPACE && !is_space(c)) enter(r, r->at + 1);
  return step_part(r, c);
}

ToolState tool_run_step(ToolRun *r, uint8_t c, size_t *n_untaken) {
  r->has_call = false;
  *n_untaken = 0;
  if (r->at < 0) enter(r, 0);
  if (part_of(r)->kind == TOOL_END) {
    *n_untaken = 1;
    return TOOL_FINISHED;
  }
  size_t n_lit = part_of(r)->kind == TOOL_LITERAL ? (size_t)r->n_lit : 0;
  bool was_certain = r->is_certain;
  ToolState s = step(r, c);
  if (s == TOOL_FAILED && was_certain) {
    *n_untaken = n_lit + 1;
    return TOOL_FINISHED;
  }
  return s == TOOL_GOING && part_of(r)->kind == TOOL_END ? TOOL_FINISHED : s;
}

/* A name that the beginning of a closing marker stands behind: of a call without arguments. */
static bool name_before_marker(ToolRun *r) {
  enum { MIN_MARKER = 2 };
  const ToolPart *next[2];
  followers(r, next);
  const ToolPart *lit = next[1] && next[1]->kind == TOOL_LITERAL ? next[1] : NULL; /* behind the loop */
  for (int k = lit ? lit->n - 1 : 0; k >= MIN_MARKER; k--) {
    Str *s = &r->captured;
    if (s->n <= (size_t)k || memcmp(s->p + s->n - k, lit->text, (size_t)k)) continue;
    s->n -= (size_t)k;
    s->p[s->n] = 0;
    return take_capture(r);
  }
  return false;
}

bool tool_run_end(ToolRun *r) {
  if (r->at < 0 || r->is_certain) return false;
  const ToolPart *p = part_of(r);
  bool is_left = p->kind == TOOL_LOOP && r->n_lit && r->may_leave && !r->may_repeat;
  if (!is_left && !(p->kind == TOOL_CAPTURE && p->what == 'n' && name_before_marker(r))) return false;
  args_end(r);
  return true;
}

bool tool_run_is_between(const ToolRun *r) { return r->at >= 0 && part_of(r)->kind == TOOL_LIST && tool_list_is_between(&r->list); }

const ToolCall *tool_run_call(ToolRun *r, ToolCall *view) {
  for (int i = 0; i < r->pattern->n_parts; i++)
    if (r->pattern->part[i].kind == TOOL_LIST) return &r->list.call;
  *view = (ToolCall){.name = r->name, .id = r->id, .args = r->args};
  return view;
}

bool tool_run_coming(const ToolRun *r, const Str **name, const Str **id, const char **args, size_t *n_args) {
  if (r->is_certain || r->at < 0) return false;
  if (part_of(r)->kind == TOOL_LIST) {
    *name = &r->list.call.name;
    *id = &r->list.call.id;
    return tool_list_coming(&r->list, args, n_args);
  }
  if (!r->name.n) return false;
  if (part_of(r)->kind == TOOL_CAPTURE && strchr("nf", part_of(r)->what)) return false;
  *name = &r->name;
  *id = &r->id;
  *args = r->args.p;
  *n_args = r->args.n;
  return true;
}
