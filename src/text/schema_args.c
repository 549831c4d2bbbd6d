/* Arguments of calls that are no JSON object: open KEY is VALUE sep KEY is VALUE close. In: the schema of a tool's parameters, the spelling.
   Out: a rule. What the reader of a reply takes for text (tool_param_types) stands there as it is, up to the marker that closes it, which no
   text holds; all else in the spelling's values. What cannot be written so is refused by its name. */
#include <string.h>
#include "text/schema_priv.h"
#include "text/toolcall.h"

enum { KEY_MAX = 160 };

bool schema_key_fits(const Schema *s, DfaWord key) {
  const char *bad = s->values == GR_VALUES_BRACES ? "{}[],:<>\"" : "<>\"=";
  bool ok = key.n > 0 && key.n <= KEY_MAX && key.p[0] != ' ' && key.p[key.n - 1] != ' ';
  for (size_t i = 0; ok && i < key.n; i++) {
    uint8_t c = (uint8_t)key.p[i];
    ok = s->values == GR_VALUES_PYTHON ? tool_is_word_byte(c) : c >= 0x20 && c != 0x7F && !strchr(bad, c);
  }
  return ok;
}

/* The texts without a word in them. */
static Err *texts_without(GrWork *w, const char *word, const Dfa **out) {
  Re *all = grammar_re_new(w, RE_CAT);
  Dfa *with, *without;
  grammar_re_add(w, all, grammar_re_repeat(w, grammar_re_range(w, 0, SYM_MAX_CHAR), 0, -1));
  grammar_re_add(w, all, grammar_re_text(w, word, strlen(word)));
  grammar_re_add(w, all, grammar_re_repeat(w, grammar_re_range(w, 0, SYM_MAX_CHAR), 0, -1));
  TRY(grammar_dfa_from_re(w, all, &with));
  TRY(grammar_dfa_minus(w, grammar_dfa_any(w), with, &without));
  *out = without;
  return NULL;
}

/* ---- texts without quotes ---- */

/* The texts that some way allows, as an automaton; or, where only lengths bound them, *min and *max and *d NULL. */
static Err *raw_texts(Schema *s, const Branches *b, const Dfa **d, int64_t *min, int64_t *max) {
  int n = 0;
  const Branch *one = NULL;
  *d = NULL;
  *min = 0;
  *max = -1;
  for (int i = 0; i < b->n; i++)
    if (b->b[i].types & T_STR) one = &b->b[i], n++;
  if (n != 1 || one->str) return schema_texts_dfa(s, b, d);
  *min = one->min_len;
  *max = one->max_len;
  return NULL;
}

/* A reader that takes "null" for null reads these so. */
static Err *without_nulls(Schema *s, const Dfa **d) {
  static const char nulls[] = "[ \\t\\n\\r]*(null|None)[ \\t\\n\\r]*";
  Dfa *all, *left;
  TRY(grammar_regex_dfa(&s->w, nulls, sizeof nulls - 1, false, &all));
  TRY(grammar_dfa_minus(&s->w, *d ? *d : grammar_dfa_any(&s->w), all, &left));
  *d = left;
  return NULL;
}

/* The states of a text up to and with its end, the first of them in *start. */
static Err *raw_fill(Schema *s, uint32_t r, const Dfa *d, GrCounting counted, uint32_t *start) {
  Grammar *g = s->g;
  const char *end = s->args->end;
  uint32_t over = grammar_end_new(g, r), special = grammar_state_new(g, r);
  uint32_t close = grammar_text_to(g, r, end + 1, strlen(end) - 1, GR_PLAIN, over), *map = ARENA_ARRAY(s->w.a, uint32_t, d->n);
  grammar_edge_add(g, special, (uint8_t)*end, (uint8_t)*end, GR_PLAIN, 0, close);
  GrEncode e = {.mode = GR_ENC_RAW, .rule = r, .counted = counted, .close = &close, .special = &special, .n_close = 1, .close_byte = (uint8_t)*end};
  TRY(grammar_encode_dfa(g, &s->w, d, &e, map));
  *start = g->rule[r].loop = map[0];
  return NULL;
}

/* A rule that reads what either does. */
static uint32_t one_of(Grammar *g, uint32_t a, uint32_t b) {
  uint32_t r = grammar_rule_new(g, GR_AUTOMATON, "argument"), from = grammar_state_new(g, r), end = grammar_end_new(g, r);
  g->rule[r].start = from;
  grammar_call_add(g, from, a, GR_PLAIN, end);
  grammar_call_add(g, from, b, GR_PLAIN, end);
  return r;
}

/* Texts of these ways, and their end; reads_null: their reader takes "null" for null. */
static Err *raw_rule(Schema *s, const Branches *b, bool reads_null, uint32_t *out) {
  const Dfa *d;
  Dfa *fit;
  int64_t min, max;
  bool allows_null = false;
  for (int i = 0; i < b->n; i++) allows_null |= (b->b[i].types & T_NULL) != 0;
  TRY(raw_texts(s, b, &d, &min, &max));
  bool counts = !d && (min > 0 || max >= 0);
  if (counts && reads_null && !allows_null) { /* a few characters more than the word has tell it apart */
    Branch own = schema_top();
    own.min_len = min;
    own.max_len = max;
    TRY(schema_string_dfa(s, &own, &d));
    counts = false;
  }
  if (reads_null && !allows_null) TRY(without_nulls(s, &d));
  if (d) {
    TRY(grammar_dfa_and(&s->w, d, s->texts, &fit));
    d = fit;
  }
  if (reads_null && allows_null && d) {
    TRY(grammar_dfa_words(&s->w, &(DfaWord){"null", 4}, 1, false, &fit));
    TRY(grammar_dfa_or(&s->w, d, fit, &fit));
    d = fit;
  }
  bool is_any = !d && !counts;
  uint32_t *shared = is_any && s->args->any_text ? &s->args->any_text[reads_null && allows_null] : NULL;
  if (shared && *shared) {
    *out = *shared;
    return NULL;
  }
  uint32_t r = grammar_rule_new(s->g, counts ? GR_COUNTED : GR_AUTOMATON, "text"), start;
  TRY(raw_fill(s, r, d ? d : s->texts, counts ? GR_SYMBOLS : GR_NO_COUNT, &start));
  s->g->rule[r].start = start;
  if (counts) s->g->rule[r].min = min, s->g->rule[r].max = max;
  if (counts && reads_null && allows_null) { /* the word may be shorter than any text */
    uint32_t word = grammar_rule_new(s->g, GR_AUTOMATON, "null");
    s->g->rule[word].start = grammar_text_to(s->g, word, "null", 4, GR_PLAIN, grammar_text_to(s->g, word, s->args->end, strlen(s->args->end), GR_PLAIN, grammar_end_new(s->g, word)));
    r = one_of(s->g, r, word);
  }
  if (shared) *shared = r;
  *out = r;
  return NULL;
}

/* ---- values ---- */

/* A rule that reads the text, then what the other rule reads, then another text. */
static uint32_t framed(Grammar *g, const char *text, uint32_t rule, const char *behind) {
  uint32_t r = grammar_rule_new(g, GR_AUTOMATON, "argument"), end = grammar_end_new(g, r), at = grammar_state_new(g, r);
  uint32_t back = grammar_text_to(g, r, behind, strlen(behind), GR_PLAIN, end);
  grammar_call_add(g, at, rule, GR_PLAIN, back);
  g->rule[r].start = grammar_text_to(g, r, text, strlen(text), GR_PLAIN, at);
  return r;
}

static unsigned types_of_reader(unsigned mask) {
  static const struct { unsigned reader, ours; } rows[] = {{TOOL_TYPE_NUMBER | TOOL_TYPE_INTEGER, T_NUM}, {TOOL_TYPE_BOOLEAN, T_TRUE | T_FALSE}, {TOOL_TYPE_NULL, T_NULL},
                                                           {TOOL_TYPE_OBJECT, T_OBJ}, {TOOL_TYPE_ARRAY, T_ARR}, {TOOL_TYPE_STRING, T_STR}};
  unsigned types = 0;
  for (size_t i = 0; i < COUNT_OF(rows); i++)
    if (mask & rows[i].reader) types |= rows[i].ours;
  return types;
}

/* What follows a key's closing byte: the rest of `is`, the value, its end. */
static Err *value_rule(Schema *s, const DfaWord *name, const CondSet *set, uint32_t *out) {
  const GrArgs *a = s->args;
  uint32_t raw, json;
  Branches b;
  if (!*a->end) {
    TRY(schema_rule_of(s, set, T_ALL, &json));
    *out = framed(s->g, a->is + 1, json, "");
    return NULL;
  }
  unsigned mask = tool_param_types(a->tool, name ? name->p : NULL, name ? name->n : 0), types = types_of_reader(mask), can = 0;
  bool is_text = !mask || (mask & TOOL_TYPE_STRING);
  TRY(schema_set_branches(s, set, &b));
  for (int i = 0; i < b.n; i++) can |= b.b[i].types;
  if (a->is_json) {
    TRY(raw_rule(s, &b, false, &raw));
    TRY(schema_rule_of(s, set, T_ALL & ~(unsigned)T_STR, &json));
    *out = one_of(s->g, framed(s->g, a->is + 1, raw, ""), framed(s->g, a->is_json + 1, json, a->end));
    return NULL;
  }
  unsigned left = can & (is_text ? (unsigned)T_STR | (mask & TOOL_TYPE_NULL ? T_NULL : 0u) : types);
  if (can && !left)
    TRY(schema_refuse(s, set->n ? set->c[0]->path : "#", "type", is_text ? "calls of this syntax hold a text here, and the schema takes none" : "calls of this syntax cannot hold a value of these types"));
  if (is_text) {
    TRY(raw_rule(s, &b, mask & TOOL_TYPE_NULL, &raw));
    *out = framed(s->g, a->is + 1, raw, "");
  } else {
    TRY(schema_rule_of(s, set, types, &json));
    *out = framed(s->g, a->is + 1, json, a->end);
  }
  return NULL;
}

/* ---- the whole ---- */

static Err *object_args(Schema *s, const Branch *b, uint32_t *out) {
  Grammar *g = s->g;
  const GrArgs *a = s->args;
  ObjectParts p;
  GrFork first = {0}, next = {0};
  TRY(schema_object(s, b, value_rule, true, &p));
  uint32_t r = p.rule, start = grammar_state_new(g, r), end = grammar_end_new(g, r), after = grammar_state_new(g, r);
  uint32_t *colon = ARENA_ARRAY(s->w.a, uint32_t, p.n + 1), *special = ARENA_ARRAY(s->w.a, uint32_t, p.n + 1), *map = ARENA_ARRAY(s->w.a, uint32_t, p.keys->n);
  g->rule[r].start = start;
  for (int i = 0; i < p.n; i++) {
    colon[i] = grammar_state_new(g, r);
    special[i] = grammar_state_new(g, r);
    grammar_edge_add(g, special[i], (uint8_t)*a->is, (uint8_t)*a->is, GR_PLAIN, 0, colon[i]);
    grammar_call_add(g, colon[i], p.o->value[i], GR_PLAIN, after);
  }
  GrEncode e = {.mode = GR_ENC_RAW, .rule = r, .close = colon, .special = special, .n_close = p.n, .close_byte = (uint8_t)*a->is, .act = GR_KEY};
  p.o->key_base = (uint32_t)g->n_st;
  if (p.n) TRY(grammar_encode_dfa(g, &s->w, p.keys, &e, map));
  p.o->n_keys = (int)((uint32_t)g->n_st - p.o->key_base);
  grammar_fork_text(g, r, &first, a->empty, GR_CLOSE, GR_CLOSE, end);
  grammar_fork_text(g, r, &next, a->close, GR_CLOSE, GR_CLOSE, end);
  if (p.n) {
    grammar_fork_text(g, r, &first, a->open, GR_MORE, GR_KEY, map[0]);
    grammar_fork_text(g, r, &next, a->sep, GR_MORE, GR_KEY, map[0]);
  }
  grammar_fork_put(g, start, &first);
  grammar_fork_put(g, after, &next);
  *out = r;
  return NULL;
}

Err *schema_args(Schema *s, const CondSet *root, uint32_t *out) {
  Branches b;
  TRY(schema_set_branches(s, root, &b));
  uint32_t r = grammar_rule_new(s->g, GR_AUTOMATON, "arguments"), start = grammar_state_new(s->g, r), end = grammar_end_new(s->g, r), one, *alt = NULL;
  int n = 0, cap = 0;
  s->g->rule[r].start = start;
  const char *avoid = s->values == GR_VALUES_BRACES ? GR_BRACES_QUOTE : *s->args->end ? s->args->closing : NULL;
  if (avoid) TRY(texts_without(&s->w, avoid, &s->texts));
  for (int i = 0; i < b.n; i++) {
    if (!(b.b[i].types & T_OBJ)) continue;
    TRY(object_args(s, &b.b[i], &one));
    PUSH(s->w.a, alt, n, cap, one);
  }
  for (int i = 0; i < n; i++) grammar_call_add(s->g, start, alt[i], GR_PLAIN, end);
  *out = r;
  return NULL;
}
