/* Calls that carry their own names: JSON objects {name, arguments} or lists of them, and calls as Python writes them. In: bytes. Out: one call
   after the other, in the byte that completes it. A call of a tool that was not offered fails as soon as its name is whole, so that plain JSON
   in an answer is not held for long. */
#include <string.h>
#include "text/toolcall.h"

enum { LIST_START, LIST_OBJECT, LIST_AFTER, LIST_NEXT, PY_NAME, PY_KEY_OR_END, PY_KEY, PY_VALUE, PY_AFTER_VALUE, MAX_NAME = 256, MIN_ID = 6 };
enum { KEY_OTHER, KEY_NAME, KEY_ARGS, KEY_ID, KEY_FUNCTION, KEY_KNOWN };

void tool_list_init(ToolList *l, bool is_python, bool is_bare) {
  l->is_python = is_python;
  l->is_bare = is_bare;
  l->is_list = l->has_call = false;
  l->state = LIST_START;
  l->key = KEY_OTHER;
  str_clear(&l->call.name);
}

static void call_clear(ToolCall *c) {
  str_clear(&c->name);
  str_clear(&c->id);
  str_clear(&c->args);
  c->has_args = false;
}

void tool_list_free(ToolList *l) {
  tool_value_free(&l->value);
  str_free(&l->object);
  str_free(&l->call.name);
  str_free(&l->call.id);
  str_free(&l->call.args);
}

static bool is_space(uint8_t c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static uint8_t key_of(const char *p, size_t n) {
  static const struct { const char *name; uint8_t key; } keys[] = {{"name", KEY_NAME}, {"tool_name", KEY_NAME}, {"arguments", KEY_ARGS},
    {"parameters", KEY_ARGS}, {"id", KEY_ID}, {"tool_call_id", KEY_ID}, {"function", KEY_FUNCTION}, {"type", KEY_KNOWN}, {"index", KEY_KNOWN}};
  for (size_t i = 0; i < COUNT_OF(keys); i++)
    if (n == strlen(keys[i].name) + 2 && !memcmp(p + 1, keys[i].name, n - 2)) return keys[i].key;
  return KEY_OTHER;
}

/* The string that a JSON text is; false: it is none. */
static bool string_of(const char *p, size_t n, Str *out) {
  json_t *s = json_loadb(p, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
  bool ok = json_is_string(s);
  str_clear(out);
  if (ok) str_add_n(out, json_string_value(s), json_string_length(s));
  json_decref(s);
  return ok;
}

/* The arguments: an object, or one as JSON text in a string, or nothing. */
static bool take_args(ToolCall *c, const char *p, size_t n) {
  if (c->has_args) return false;
  c->has_args = true;
  str_clear(&c->args);
  if (*p == '{') str_add_n(&c->args, p, n);
  else if (*p == '"') {
    Str text = {0};
    bool ok = string_of(p, n, &text);
    if (ok && !text.n) str_add(&c->args, "{}");
    else ok = ok && tool_value_of_text(TOOL_JSON, text.p, text.n, &c->args) == '{';
    str_free(&text);
    return ok;
  } else if (*p == 'n') str_add(&c->args, "{}");
  else return false;
  return true;
}

static bool take_name(ToolList *l, const ToolSet *set, const Str *name) {
  Str clean = {0};
  bool ok = !l->call.name.n && name->n && name->n <= MAX_NAME && (tool_set_find(set, name->p, name->n, &clean) || set->keeps_unknown);
  if (ok) str_add_n(&l->call.name, clean.p, clean.n);
  str_free(&clean);
  return ok;
}

static bool take_item(ToolList *l, const ToolSet *set) {
  const char *p = l->object.p + l->value.value_at;
  size_t n = l->value.watch_end - l->value.value_at;
  Str s = {0};
  bool ok = true;
  if (l->key == KEY_ARGS) ok = take_args(&l->call, p, n);
  else if (l->key == KEY_NAME || (l->key == KEY_FUNCTION && *p == '"')) ok = string_of(p, n, &s) && take_name(l, set, &s);
  else if (l->key == KEY_ID && string_of(p, n, &s) && s.n >= MIN_ID) str_clear(&l->call.id), str_add_n(&l->call.id, s.p, s.n);
  str_free(&s);
  l->key = KEY_OTHER;
  return ok;
}

static ToolStep begin_object(ToolList *l, uint8_t c) {
  if (c != '{') return TOOL_BAD;
  call_clear(&l->call);
  str_clear(&l->object);
  tool_value_init(&l->value, TOOL_JSON, &l->object);
  l->value.watch = 1;
  l->state = LIST_OBJECT;
  return tool_value_step(&l->value, c);
}

static ToolStep end_object(ToolList *l) {
  if (!l->call.name.n || (l->is_bare && !l->call.has_args)) return TOOL_BAD;
  if (!l->call.has_args) str_add(&l->call.args, "{}");
  l->has_call = true;
  l->state = LIST_AFTER;
  return l->is_list ? TOOL_MORE : TOOL_DONE;
}

static ToolStep step_object(ToolList *l, const ToolSet *set, uint8_t c) {
  ToolValue *v = &l->value;
  ToolStep s = tool_value_step(v, c);
  if (s == TOOL_BAD) return s;
  if (v->item_ended && !take_item(l, set)) return TOOL_BAD;
  if (v->key_ended) {
    v->value_at = SIZE_MAX; /* until it begins; the one before is not this key's */
    l->key = key_of(l->object.p + v->item_at, l->object.n - v->item_at);
    if (l->is_bare && l->key == KEY_OTHER) return TOOL_BAD;
  }
  if (l->key == KEY_FUNCTION && v->watch == 1 && v->depth == 2) v->watch = 2, l->key = KEY_OTHER; /* {"type":"function","function":{..}} */
  if (v->depth < v->watch) v->watch = v->depth;
  return s == TOOL_DONE ? end_object(l) : TOOL_MORE;
}

static ToolStep begin_python(ToolList *l) {
  call_clear(&l->call);
  str_clear(&l->object);
  l->state = PY_NAME;
  return TOOL_MORE;
}

bool tool_is_word_byte(uint8_t c) { return c >= 0x80 || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '-' || c == '.' || c == '_'; }
bool tool_is_name_byte(uint8_t c) { return tool_is_word_byte(c) || c == ':' || c == '/'; }

static ToolStep python_name(ToolList *l, const ToolSet *set, uint8_t c) {
  if (is_space(c) && !l->object.n) return TOOL_MORE;
  if (tool_is_word_byte(c)) {
    str_add_c(&l->object, (char)c);
    return l->object.n > MAX_NAME ? TOOL_BAD : TOOL_MORE;
  }
  if (c != '(' || !l->object.n || !take_name(l, set, &l->object)) return TOOL_BAD;
  str_add_c(&l->call.args, '{');
  str_clear(&l->object);
  l->state = PY_KEY_OR_END;
  return TOOL_MORE;
}

static ToolStep python_end(ToolList *l) {
  str_add_c(&l->call.args, '}');
  l->call.has_args = l->has_call = true;
  l->state = LIST_AFTER;
  return l->is_list ? TOOL_MORE : TOOL_DONE;
}

static ToolStep python_key(ToolList *l, uint8_t c) {
  if (is_space(c)) return TOOL_MORE;
  if (c == ')' && l->state == PY_KEY_OR_END && !l->object.n) return python_end(l);
  if (tool_is_word_byte(c)) {
    str_add_c(&l->object, (char)c);
    return l->object.n > MAX_NAME ? TOOL_BAD : TOOL_MORE;
  }
  if (c != '=' || !l->object.n) return TOOL_BAD;
  if (l->call.args.n > 1) str_add(&l->call.args, ", ");
  tool_string_add(&l->call.args, l->object.p, l->object.n);
  str_add(&l->call.args, ": ");
  str_clear(&l->object);
  tool_value_init(&l->value, TOOL_PYTHON, &l->call.args);
  l->state = PY_VALUE;
  return TOOL_MORE;
}

static ToolStep python_after_value(ToolList *l, uint8_t c) {
  if (is_space(c)) return TOOL_MORE;
  if (c == ')') return python_end(l);
  if (c != ',') return TOOL_BAD;
  l->state = PY_KEY_OR_END; /* Python lets a comma stand before ")" */
  return TOOL_MORE;
}

static ToolStep python_value(ToolList *l, uint8_t c) {
  ToolStep s = tool_value_step(&l->value, c);
  if (s == TOOL_BAD || s == TOOL_MORE) return s;
  l->state = PY_AFTER_VALUE;
  return s == TOOL_DONE ? TOOL_MORE : python_after_value(l, c);
}

/* Between calls of a list, and before the first. */
static ToolStep step_outside(ToolList *l, const ToolSet *set, uint8_t c) {
  if (is_space(c)) return TOOL_MORE;
  if (l->state == LIST_AFTER) {
    if (c == ']') return TOOL_DONE;
    if (c != ',') return TOOL_BAD;
    l->state = LIST_NEXT;
    return TOOL_MORE;
  }
  if (l->state == LIST_START && c == '[') {
    l->is_list = true;
    l->state = LIST_NEXT;
    return TOOL_MORE;
  }
  if (!l->is_python) return begin_object(l, c);
  if (l->is_bare && !l->is_list) return TOOL_BAD;
  begin_python(l);
  return python_name(l, set, c);
}

ToolStep tool_list_step(ToolList *l, const ToolSet *set, uint8_t c) {
  l->has_call = false;
  switch (l->state) {
    case LIST_OBJECT: return step_object(l, set, c);
    case PY_NAME: return python_name(l, set, c);
    case PY_KEY:
    case PY_KEY_OR_END: return python_key(l, c);
    case PY_VALUE: return python_value(l, c);
    case PY_AFTER_VALUE: return python_after_value(l, c);
    default: return step_outside(l, set, c);
  }
}

bool tool_list_coming(const ToolList *l, const char **args, size_t *n) {
  bool object = l->state == LIST_OBJECT, in_args = object && l->key == KEY_ARGS && l->value.value_at < l->object.n && l->object.p[l->value.value_at] == '{';
  if (!l->call.name.n || l->state == LIST_AFTER || l->state == LIST_NEXT) return false;
  *args = in_args ? l->object.p + l->value.value_at : l->call.args.p;
  *n = in_args ? l->object.n - l->value.value_at : l->call.args.n;
  return true;
}

bool tool_list_is_between(const ToolList *l) { return l->state == LIST_AFTER || l->state == LIST_NEXT; }
