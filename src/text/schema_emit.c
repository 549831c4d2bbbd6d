/* Conditions to rules. In: the branches of schema.c. Out: rules of the grammar, one for each set of conditions that meets somewhere, one for
   each distinct text or number, one for each array and object.

   What JSON looks like here: tokens are separated by nothing, one space, or (after [ { and , and before ] and }) a line's end with at most
   64 spaces or 16 tabs; before , and : at most one space. Never more, so white space ends. */
#include <string.h>
#include "text/schema_priv.h"

enum { SPACES_MAX = 64, TABS_MAX = 16, STEPS_MAX = 256, PATTERNS_MAX = 20, LEAF_STRING = 1, LEAF_NUMBER };
typedef struct Way { uint8_t byte; GrAct act; int32_t arg; uint32_t to; } Way;           /* an edge to be, of one byte */
typedef struct Ways { Way edge[4]; int n; GrCall call[2]; int n_calls; } Ways;          /* what may come at a place */

static void ways_add(Schema *s, uint32_t state, const Ways *w) {
  for (int i = 0; i < w->n; i++) grammar_edge_add(s->g, state, w->edge[i].byte, w->edge[i].byte, w->edge[i].act, w->edge[i].arg, w->edge[i].to);
}
static void ways_call(Schema *s, uint32_t state, const Ways *w) {
  for (int i = 0; i < w->n_calls; i++) grammar_call_add(s->g, state, w->call[i].rule, (GrAct)w->call[i].act, w->call[i].ret);
}

/* Fills a state: the ways of `w`, also after one space or, with `lines`, after a line's end and its indentation, where `late` says what may
   follow then (NULL: the same); first_act guards the line's end. */
static void fill_spaced(Schema *s, uint32_t state, const Ways *w, bool lines, const Ways *late, GrAct line_act) {
  Grammar *g = s->g;
  uint32_t rule = g->st[state].rule;
  if ((s->flags & GRAMMAR_COMPACT) || s->values == GR_VALUES_BRACES) {
    ways_add(s, state, w);
    ways_call(s, state, w);
    return;
  }
  uint32_t spaced = grammar_state_new(g, rule), line = lines ? grammar_state_new(g, rule) : 0, after = spaced;
  if (lines && late) after = grammar_state_new(g, rule);
  ways_add(s, state, w);
  if (lines) grammar_edge_add(g, state, '\n', '\n', line_act, 0, line);
  grammar_edge_add(g, state, ' ', ' ', GR_PLAIN, 0, spaced);
  ways_call(s, state, w);
  ways_add(s, spaced, w);
  ways_call(s, spaced, w);
  if (!lines) return;
  grammar_call_add(g, line, s->ws, GR_PLAIN, after);
  if (late) { ways_add(s, after, late); ways_call(s, after, late); }
}

static uint32_t counted_byte(Grammar *g, uint8_t byte, int max) {
  uint32_t r = grammar_rule_new(g, GR_COUNTED, "white space"), q = grammar_state_new(g, r);
  g->rule[r].start = g->rule[r].loop = q;
  g->rule[r].max = max;
  g->st[q].accept = g->st[q].between = true;
  grammar_edge_add(g, q, byte, byte, GR_COUNT, 0, q);
  return r;
}

/* One word, or one of two. */
static uint32_t word_rule(Grammar *g, const char *word, const char *other) {
  uint32_t r = grammar_rule_new(g, GR_AUTOMATON, word), start = grammar_state_new(g, r), end = grammar_end_new(g, r);
  const char *all[] = {word, other};
  uint32_t first[2] = {0};
  g->rule[r].start = start;
  for (int i = 0; i < 2 && all[i]; i++) {
    uint32_t to = end;
    for (size_t k = strlen(all[i]); k-- > 1;) {
      uint32_t q = grammar_state_new(g, r);
      grammar_edge_add(g, q, (uint8_t)all[i][k], (uint8_t)all[i][k], GR_PLAIN, 0, to);
      to = q;
    }
    first[i] = to;
  }
  for (int i = 0; i < 2 && all[i]; i++) grammar_edge_add(g, start, (uint8_t)*all[i], (uint8_t)*all[i], GR_PLAIN, 0, first[i]);
  return r;
}

static void common_rules(Schema *s) {
  Grammar *g = s->g;
  uint32_t spaces = counted_byte(g, ' ', SPACES_MAX), tabs = counted_byte(g, '\t', TABS_MAX);
  s->ws = grammar_rule_new(g, GR_AUTOMATON, "white space");
  uint32_t q = grammar_state_new(g, s->ws), end = grammar_end_new(g, s->ws);
  g->rule[s->ws].start = q;
  grammar_call_add(g, q, spaces, GR_PLAIN, end);
  grammar_call_add(g, q, tabs, GR_PLAIN, end);
  static const char *const words[][2] = {{"null", "None"}, {"true", "True"}, {"false", "False"}}; /* outside of JSON some templates write Python's */
  for (int i = 0; i < 3; i++) s->word[i] = word_rule(g, words[i][0], s->args ? words[i][1] : NULL);
}

/* The rule of a set of conditions; its states are made later (schema_emit's loop), so recursion is a loop there. */
static bool same_set(const CondSet *a, const CondSet *b) { return a->n == b->n && (!a->n || !memcmp(a->c, b->c, sizeof *a->c * (size_t)a->n)); }
Err *schema_rule_of(Schema *s, const CondSet *set, unsigned types, uint32_t *out) {
  TRY(grammar_work_spend(&s->w, 1 + s->n_wants / 16));
  for (int i = 0; i < s->n_wants; i++) if (s->want[i].types == types && same_set(&s->want[i].set, set)) { *out = s->want[i].rule; return NULL; }
  if (s->n_wants == s->cap_wants) s->want = arena_grow(s->w.a, s->want, sizeof *s->want, (size_t)s->n_wants, &s->cap_wants);
  s->want[s->n_wants].set = *set;
  s->want[s->n_wants].types = types;
  *out = s->want[s->n_wants++].rule = grammar_rule_new(s->g, GR_AUTOMATON, set->n ? set->c[0]->path : "any value");
  return NULL;
}

static Err *rule_of(Schema *s, const CondSet *set, uint32_t *out) { return schema_rule_of(s, set, T_ALL, out); }

static Err *number_fill(Schema *s, uint32_t r, const Dfa *d) {
  Dfa *any;
  TRY(grammar_num_any(&s->w, &any));
  const Dfa *use = d ? d : any;
  uint32_t *map = ARENA_ARRAY(s->w.a, uint32_t, use->n);
  GrEncode e = {.mode = GR_ENC_RAW, .rule = r};
  TRY(grammar_encode_dfa(s->g, &s->w, use, &e, map));
  s->g->rule[r].start = map[0];
  return NULL;
}

/* What a schema spells is generated in one spelling and taken in any. */
static int spelled(const Schema *s) { return s->escapes || (s->flags & GRAMMAR_ANY_ORDER) ? GR_ENC_JSON : GR_ENC_JSON_PLAIN; }

/* How a text begins and ends here, and what stands between: up to two ways. */
typedef struct Quote { const char *open, *close; int mode; } Quote;
static int quotes_of(const Schema *s, bool exact, Quote out[2]) {
  if (s->values == GR_VALUES_BRACES) {
    out[0] = (Quote){GR_BRACES_QUOTE, GR_BRACES_QUOTE, GR_ENC_RAW};
    return 1;
  }
  bool python = s->values == GR_VALUES_PYTHON;
  out[0] = (Quote){"\"", "\"", python ? GR_ENC_PYTHON : exact ? spelled(s) : GR_ENC_JSON_FREE};
  out[1] = (Quote){"'", "'", GR_ENC_PYTHON_SINGLE};
  return python ? 2 : 1;
}

/* A rule of texts: those of the automaton (NULL: any) that this spelling can hold; counted: their symbols are its rounds. */
static Err *texts_fill(Schema *s, uint32_t r, const Dfa *d, bool exact, GrCounting counted) {
  Grammar *g = s->g;
  Quote quote[2];
  GrFork f = {0};
  uint32_t start = grammar_state_new(g, r), end = grammar_end_new(g, r);
  Dfa *both;
  if (!d) d = s->texts ? s->texts : grammar_dfa_any(&s->w);
  else if (s->texts && counted != GR_ROUND) {
    TRY(grammar_dfa_and(&s->w, d, s->texts, &both));
    d = both;
  }
  g->rule[r].start = start;
  for (int i = 0, n = quotes_of(s, exact, quote); i < n; i++) {
    const Quote *q = &quote[i];
    uint32_t *map = ARENA_ARRAY(s->w.a, uint32_t, d->n), close = grammar_text_to(g, r, q->close + 1, strlen(q->close) - 1, GR_PLAIN, end), special = 0;
    GrEncode e = {.mode = q->mode, .rule = r, .counted = counted, .close = &close, .n_close = 1, .close_byte = (uint8_t)*q->close};
    if (q->close[1]) {
      special = grammar_state_new(g, r);
      grammar_edge_add(g, special, e.close_byte, e.close_byte, GR_PLAIN, 0, close);
      e.special = &special;
    }
    TRY(grammar_encode_dfa(g, &s->w, d, &e, map));
    if (counted && !i) g->rule[r].loop = map[0];
    if (q->open[1]) grammar_fork_text(g, r, &f, q->open, GR_PLAIN, GR_PLAIN, map[0]);
    else f.e[f.n++] = (GrEdge){(uint8_t)*q->open, (uint8_t)*q->open, GR_PLAIN, map[0], 0};
  }
  grammar_fork_put(g, start, &f);
  return NULL;
}

static Err *leaf_rule(Schema *s, const Dfa *d, int kind, uint32_t *out) {
  Grammar *g = s->g;
  TRY(grammar_work_spend(&s->w, 1 + s->n_leaves));
  for (int i = 0; i < s->n_leaves; i++)
    if (s->leaf[i].kind == kind && (s->leaf[i].dfa == d || (s->leaf[i].dfa && d && grammar_dfa_equal(s->leaf[i].dfa, d)))) { *out = s->leaf[i].rule; return NULL; }
  uint32_t r = grammar_rule_new(g, GR_AUTOMATON, kind == LEAF_STRING ? "string" : "number");
  if (kind == LEAF_STRING) TRY(texts_fill(s, r, d, d != NULL, GR_NO_COUNT));
  else TRY(number_fill(s, r, d));
  if (s->n_leaves == s->cap_leaves) s->leaf = arena_grow(s->w.a, s->leaf, sizeof *s->leaf, (size_t)s->n_leaves, &s->cap_leaves);
  s->leaf[s->n_leaves].dfa = d;
  s->leaf[s->n_leaves].kind = kind;
  s->leaf[s->n_leaves++].rule = *out = r;
  return NULL;
}

/* Any text of min to max characters; chars: of these only, or NULL. Where texts may not hold something the place in that is a state. */
static Err *counted_string(Schema *s, const DfaState *chars, int64_t min, int64_t max, uint32_t *out) {
  Grammar *g = s->g;
  uint32_t r = grammar_rule_new(g, GR_COUNTED, "string");
  Dfa *any = grammar_dfa_any(&s->w), *d = ARENA_NEW(s->w.a, Dfa);
  const DfaState *from = chars ? chars : &any->st[0];
  bool one = !s->texts;
  d->n = d->cap = one ? 2 : 1;
  d->st = ARENA_ARRAY(s->w.a, DfaState, 2);
  d->st[0] = (DfaState){.edge = ARENA_ARRAY(s->w.a, DfaEdge, from->n_edges + 1), .n_edges = from->n_edges, .cap = from->n_edges, .tag = one ? -1 : 0};
  for (int i = 0; i < from->n_edges; i++) d->st[0].edge[i] = (DfaEdge){from->edge[i].lo, from->edge[i].hi, one};
  g->rule[r].min = min;
  g->rule[r].max = max;
  *out = r;
  return texts_fill(s, r, d, chars != NULL, one ? GR_ROUND : GR_SYMBOLS);
}

/* An automaton that only counts characters of one class: then counting needs no states. */
static bool is_one_class(const Dfa *d, int64_t *min, int64_t *max, const DfaState **chars) {
  int64_t n = 0;
  int at = 0;
  *min = -1;
  *chars = d->st[0].n_edges ? &d->st[0] : NULL;
  if (!*chars) return false;
  for (;; n++) {
    const DfaState *q = &d->st[at];
    if (*min < 0 && q->tag >= 0) *min = n;
    if (*min >= 0 && q->tag < 0) return false;
    if (!q->n_edges) { *max = n; return true; }
    if (q->n_edges != (*chars)->n_edges) return false;
    for (int i = 0; i < q->n_edges; i++)
      if (q->edge[i].lo != (*chars)->edge[i].lo || q->edge[i].hi != (*chars)->edge[i].hi || q->edge[i].to != q->edge[0].to) return false;
    if (q->edge[0].to == at) { *max = -1; return *min >= 0; }
    if (q->edge[0].to <= at) return false; /* trimmed automata number a chain upwards */
    at = q->edge[0].to;
  }
}

static Err *string_rule(Schema *s, const Branch *b, uint32_t *out) {
  int64_t min, max;
  const DfaState *chars;
  const Dfa *d;
  if (!b->str && !b->min_len && b->max_len < 0) return leaf_rule(s, NULL, LEAF_STRING, out);
  if (!b->str) return counted_string(s, NULL, b->min_len, b->max_len, out);
  if (is_one_class(b->str, &min, &max, &chars)) {
    min = MAX(min, b->min_len);
    max = max < 0 ? b->max_len : b->max_len < 0 ? max : MIN(max, b->max_len);
    if (max >= 0 && max < min) return leaf_rule(s, grammar_dfa_empty(&s->w), LEAF_STRING, out);
    if (max < 0 || max > 8) return counted_string(s, chars, min, max, out);
  }
  TRY(schema_string_dfa(s, b, &d));
  return leaf_rule(s, d, LEAF_STRING, out);
}

static CondSet item_set(Schema *s, const Branch *b, int64_t i, Cond *also) {
  CondSet set = {0};
  for (int k = 0; k < b->n_arr; k++) schema_set_add(s, &set, i < b->arr[k].n_prefix ? b->arr[k].prefix[i] : b->arr[k].items);
  schema_set_add(s, &set, also);
  return set;
}

static Ways close_way(uint8_t byte, GrAct act, uint32_t to) {
  Ways w = {.n = 1};
  w.edge[0] = (Way){byte, act, 0, to};
  return w;
}

/* States (i, k): i items are over (no more are told apart than `n`), k of them contained what `contains` asks for (at most `most`). */
static Err *array_steps(Schema *s, const Branch *b, uint32_t rule, int64_t n, const Contains *c, uint32_t open, uint32_t end) {
  Grammar *g = s->g;
  int64_t most = c ? MAX(c->min, c->max) : 0, width = most + 1;
  Cond *not_c = c && c->max >= 0 ? schema_cond(s, c->what->js, c->what->kind == COND_NOT ? COND_SCHEMA : COND_NOT, c->what->path, c->what->base) : NULL;
  uint32_t *before = ARENA_ARRAY(s->w.a, uint32_t, (n + 1) * width), *after = ARENA_ARRAY(s->w.a, uint32_t, (n + 1) * width);
  TRY(grammar_work_spend(&s->w, 8 * (n + 1) * width));
  for (int64_t i = 0; i < (n + 1) * width; i++) {
    before[i] = i ? grammar_state_new(g, rule) : open;
    after[i] = grammar_state_new(g, rule);
  }
  for (int64_t i = 0; i <= n; i++)
    for (int64_t k = 0; k < width; k++) {
      bool full = b->max_items >= 0 && i >= b->max_items, closes = i >= b->min_items && (!c || (k >= c->min && (c->max < 0 || k <= c->max)));
      int64_t next = MIN(i + 1, n), at = i * width + k;
      Ways to = {0}, late = close_way(']', GR_PLAIN, end), item = {0};
      if (!full) to.edge[to.n++] = (Way){',', GR_PLAIN, 0, before[at]};
      if (closes) to.edge[to.n++] = late.edge[0];
      fill_spaced(s, after[at], &to, closes, &late, GR_PLAIN);
      if (!i && closes) item.edge[item.n++] = late.edge[0];
      if (!full) {
        CondSet plain = item_set(s, b, i, not_c), hit = item_set(s, b, i, c ? c->what : NULL);
        item.call[0].ret = after[next * width + k];
        TRY(rule_of(s, &plain, &item.call[0].rule));
        item.n_calls = 1;
        if (c && k < most) {
          item.call[1].ret = after[next * width + k + 1];
          TRY(rule_of(s, &hit, &item.call[1].rule));
          item.n_calls = 2;
        }
      }
      fill_spaced(s, before[at], &item, true, NULL, GR_PLAIN);
    }
  return NULL;
}

/* The first items one by one, the others as rounds that are counted. */
static Err *array_rounds(Schema *s, const Branch *b, uint32_t rule, int64_t first, uint32_t open, uint32_t end) {
  Grammar *g = s->g;
  Ways close = close_way(']', GR_PLAIN, end), to, item;
  for (int64_t i = 0; i < first; i++) {
    uint32_t after = grammar_state_new(g, rule), next = grammar_state_new(g, rule);
    CondSet set = item_set(s, b, i, NULL);
    item = (Ways){.n_calls = 1, .call[0].ret = after};
    TRY(rule_of(s, &set, &item.call[0].rule));
    if (!i && !b->min_items) item.edge[item.n++] = close.edge[0];
    fill_spaced(s, open, &item, true, NULL, GR_PLAIN);
    open = next;
    to = (Ways){.n = 1};
    to.edge[0] = (Way){',', GR_PLAIN, 0, next};
    bool closes = i + 1 >= b->min_items;
    if (i + 1 < first) {
      if (closes) to.edge[to.n++] = close.edge[0];
      fill_spaced(s, after, &to, closes, &close, GR_PLAIN);
      continue;
    }
    uint32_t r = grammar_rule_new(g, GR_COUNTED, "items"), loop = grammar_state_new(g, r), comma = grammar_state_new(g, r), rest = grammar_state_new(g, rule);
    g->rule[r].start = g->rule[r].loop = loop;
    g->rule[r].min = MAX(b->min_items - first, 0);
    g->rule[r].max = b->max_items < 0 ? -1 : b->max_items - first;
    g->st[loop].accept = g->st[loop].between = true;
    to = close_way(',', GR_PLAIN, comma);
    fill_spaced(s, loop, &to, false, NULL, GR_PLAIN);
    set = item_set(s, b, first, NULL);
    item = (Ways){.n_calls = 1, .call[0] = {.ret = loop, .act = GR_COUNT}};
    TRY(rule_of(s, &set, &item.call[0].rule));
    fill_spaced(s, comma, &item, true, NULL, GR_PLAIN);
    grammar_call_add(g, after, r, GR_PLAIN, rest);
    fill_spaced(s, rest, &close, true, NULL, GR_PLAIN);
  }
  return NULL;
}

static Err *array_rule(Schema *s, const Branch *b, uint32_t *out) {
  Grammar *g = s->g;
  const char *path = "array";
  int64_t first = 0, n;
  const Contains *c = NULL;
  for (int k = 0; k < b->n_arr; k++) first = MAX(first, b->arr[k].n_prefix);
  for (int k = 0; k < b->n_contains; k++) {
    if (!b->contains[k].min && b->contains[k].max < 0) continue;
    path = b->contains[k].what->path;
    if (c) TRY(schema_refuse(s, path, "contains", "several of them for one array are not supported"));
    c = &b->contains[k];
  }
  if (b->unique && (b->max_items < 0 || b->max_items > 1)) TRY(schema_refuse(s, b->unique_path, "uniqueItems", "this keyword is not supported"));
  uint32_t r = grammar_rule_new(g, GR_AUTOMATON, path), start = grammar_state_new(g, r), open = grammar_state_new(g, r), end = grammar_end_new(g, r);
  g->rule[r].start = start;
  *out = r;
  grammar_edge_add(g, start, '[', '[', GR_PLAIN, 0, open);
  n = b->max_items >= 0 ? b->max_items : MAX(first, b->min_items);
  if (!n) n = b->max_items == 0 ? 0 : 1;
  if (c && (n > STEPS_MAX || MAX(c->min, c->max) > 64 || (n + 1) * (MAX(c->min, c->max) + 1) > 4 * STEPS_MAX))
    return err_new(ERR_LIMIT, "%s: contains with counts this large", path);
  if (c || n <= MAX(first, 2)) return array_steps(s, b, r, n, c, open, end);
  first = MAX(first, 1);
  if (first > 100000) return err_new(ERR_LIMIT, "%s: more than 100000 prefixItems", path);
  return array_rounds(s, b, r, first, open, end);
}

/* Classes of keys: a name, or the set of patterns that another key matches. */
typedef struct KeyClass { int name; uint32_t patterns; } KeyClass;
typedef struct Keys {
  Schema *s;
  DfaWord *name; int n_names, cap_names;
  KeyClass *class; int n_classes, cap_classes;
  int pattern;             /* being multiplied in */
} Keys;

static int key_class(Keys *k, KeyClass c) {
  for (int i = 0; i < k->n_classes; i++) if (k->class[i].name == c.name && k->class[i].patterns == c.patterns) return i;
  PUSH(k->s->w.a, k->class, k->n_classes, k->cap_classes, c);
  return k->n_classes - 1;
}

/* While patterns are multiplied in, a tag is the number of a class; classes are numbered as they appear. */
static int32_t add_pattern(void *ctx, int32_t a, int32_t b) {
  Keys *k = ctx;
  if (a < 0) return -1;
  KeyClass c = k->class[a];
  if (b >= 0) c.patterns |= 1u << k->pattern;
  return key_class(k, c);
}

static Err *keys_names(Keys *k, const Branch *b) {
  Schema *s = k->s;
  uint32_t mask = 63;
  int total = b->n_required;
  for (int i = 0; i < b->n_obj; i++) total += b->obj[i].n_props;
  while (mask < 4u * (uint32_t)total) mask = mask * 2 + 1;
  int *slot = ARENA_ARRAY(s->w.a, int, mask + 1);
  TRY(grammar_work_spend(&s->w, 4 * total));
  for (int i = 0; i <= b->n_obj; i++) {
    int n = i < b->n_obj ? b->obj[i].n_props : b->n_required;
    for (int j = 0; j < n; j++) {
      DfaWord w = i < b->n_obj ? (DfaWord){b->obj[i].prop[j].name, b->obj[i].prop[j].n_name} : b->required[j];
      uint32_t h = (uint32_t)hash_bytes(w.p, w.n, 5) & mask;
      while (slot[h] && (k->name[slot[h] - 1].n != w.n || memcmp(k->name[slot[h] - 1].p, w.p, w.n))) h = (h + 1) & mask;
      if (slot[h]) continue;
      PUSH(s->w.a, k->name, k->n_names, k->cap_names, w);
      slot[h] = k->n_names;
    }
  }
  return NULL;
}

/* What must hold for the value of a key of this class. */
static CondSet key_set(Schema *s, const Branch *b, const Keys *k, KeyClass c) {
  CondSet set = {0};
  int pattern = 0;
  for (int i = 0; i < b->n_obj; i++) {
    const ObjPart *p = &b->obj[i];
    bool named = false;
    if (c.name >= 0)
      for (int j = 0; j < p->n_props && !named; j++)
        if (p->prop[j].n_name == k->name[c.name].n && !memcmp(p->prop[j].name, k->name[c.name].p, p->prop[j].n_name)) {
          named = true;
          schema_set_add(s, &set, p->prop[j].value);
        }
    for (int j = 0; j < p->n_patterns; j++, pattern++)
      if (c.patterns >> pattern & 1) {
        named = true;
        schema_set_add(s, &set, p->pattern[j].value);
      }
    if (!named) schema_set_add(s, &set, p->additional);
  }
  return set;
}
bool schema_never_holds(const Schema *s, const CondSet *set) {
  for (int i = 0; i < set->n; i++) if (set->c[i] == s->nothing || (set->c[i]->kind == COND_SCHEMA && json_is_false(set->c[i]->js))) return true;
  return false;
}

/* The automaton of keys, its tags being classes: the names first, in order, then the others that may occur. */
static Err *keys_dfa(Keys *k, const Branch *b, Dfa **out) {
  Schema *s = k->s;
  int n_patterns = 0;
  bool others = false;
  CondSet rest = key_set(s, b, k, (KeyClass){-1, 0});
  for (int i = 0; i < b->n_obj; i++) n_patterns += b->obj[i].n_patterns;
  if (n_patterns > PATTERNS_MAX) return err_new(ERR_LIMIT, "more than %d patternProperties for one object", PATTERNS_MAX);
  others = n_patterns || !schema_never_holds(s, &rest);
  Dfa *d;
  TRY(grammar_dfa_words(&s->w, k->name, k->n_names, others, &d));
  for (int i = 0; i < k->n_names; i++) key_class(k, (KeyClass){i, 0});
  if (others) key_class(k, (KeyClass){-1, 0});
  for (int i = 0; i < b->n_obj; i++)
    for (int j = 0; j < b->obj[i].n_patterns; j++, k->pattern++) TRY(grammar_dfa_product(&s->w, d, b->obj[i].pattern[j].dfa, add_pattern, k, &d));
  CondSet set = {0};
  for (int i = 0; i < b->n_names; i++) schema_set_add(s, &set, b->names[i]);
  if (set.n) {
    Branches ways;
    const Dfa *all;
    TRY(schema_set_branches(s, &set, &ways));
    TRY(schema_texts_dfa(s, &ways, &all));
    TRY(grammar_dfa_and(&s->w, d, all, &d));
  }
  *out = d;
  return NULL;
}

/* Numbers the classes that occur: name i is class i; a name that no key can spell is -2. to[old] is the new class or -1. */
static Err *keys_number(Keys *k, const Branch *b, Dfa *d, KeyClass **class, int *n_class) {
  Schema *s = k->s;
  int *to = ARENA_ARRAY(s->w.a, int, k->n_classes + 1), cap = 0;
  bool *used = ARENA_ARRAY(s->w.a, bool, k->n_classes + 1);
  for (int i = 0; i < d->n; i++) if (d->st[i].tag >= 0) used[d->st[i].tag] = true;
  for (int i = 0; i < k->n_names; i++) PUSH(s->w.a, *class, *n_class, cap, (KeyClass){i, 0});
  for (int i = 0; i < k->n_classes; i++) {
    CondSet set = key_set(s, b, k, k->class[i]);
    TRY(grammar_work_spend(&s->w, 4 + b->n_obj));
    to[i] = -1;
    if (!used[i] || schema_never_holds(s, &set)) continue;
    if (k->class[i].name >= 0) {
      to[i] = k->class[i].name;
      (*class)[to[i]] = k->class[i];
    } else {
      PUSH(s->w.a, *class, *n_class, cap, k->class[i]);
      to[i] = *n_class - 1;
    }
  }
  for (int i = 0; i < k->n_classes; i++) if (to[i] >= 0 && k->class[i].name >= 0) used[k->class[i].name] = true; /* name i's first class is i */
  for (int i = 0; i < k->n_names; i++) if (!used[i]) (*class)[i].name = -2;
  bool cut = false;
  for (int i = 0; i < d->n; i++)
    if (d->st[i].tag >= 0) { d->st[i].tag = to[d->st[i].tag]; cut |= d->st[i].tag < 0; }
  return cut ? grammar_dfa_minimize(&s->w, d) : NULL;
}

static Err *object_tables(Schema *s, const Branch *b, Keys *k, const KeyClass *class, int n, SchemaValue *of, GrObject *o) {
  Arena *a = s->g->a;
  bool *required = ARENA_ARRAY(a, bool, k->n_names + 1);
  int32_t *next = ARENA_ARRAY(a, int32_t, k->n_names + 1), *from = ARENA_ARRAY(a, int32_t, k->n_names + 1);
  uint32_t *value = ARENA_ARRAY(a, uint32_t, n + 1);
  for (int i = 0; i < b->n_required; i++)
    for (int j = 0; j < k->n_names; j++)
      if (k->name[j].n == b->required[i].n && !memcmp(k->name[j].p, b->required[i].p, b->required[i].n)) { required[j] = true; break; }
  TRY(grammar_work_spend(&s->w, (int64_t)b->n_required * k->n_names / 4));
  next[k->n_names] = k->n_names;
  for (int i = k->n_names; i-- > 0;) {
    next[i] = required[i] ? i : next[i + 1];
    from[i] = from[i + 1] + required[i];
  }
  for (int i = 0; i < n; i++) {
    CondSet set = {0};
    if (class[i].name == -2) schema_set_add(s, &set, s->nothing);
    else set = key_set(s, b, k, class[i]);
    TRY(grammar_work_spend(&s->w, 4 + b->n_obj));
    TRY(of(s, class[i].name >= 0 ? &k->name[class[i].name] : NULL, &set, &value[i]));
  }
  *o = (GrObject){.n_names = k->n_names, .n_classes = n, .required = required, .next_required = next, .n_required_from = from, .value = value};
  o->any_order = (s->is_call || (s->flags & GRAMMAR_ANY_ORDER)) && k->n_names <= 48; /* some templates sort arguments, none say how */
  return NULL;
}

static int32_t keep_first(void *ctx, int32_t a, int32_t b) {
  (void)ctx;
  return b < 0 ? -1 : a;
}

/* Of keys without quotes those that can be written so; others: as programs name things. */
static Err *bare_keys(Keys *k, Dfa **d) {
  static const char others[] = "[A-Za-z0-9_\\u0080-\\uD7FF\\uE000-\\uFFFF]{1,48}";
  Schema *s = k->s;
  DfaWord *fits = ARENA_ARRAY(s->w.a, DfaWord, k->n_names + 1);
  int n = 0;
  Dfa *words, *other, *all;
  for (int i = 0; i < k->n_names; i++) {
    if (schema_key_fits(s, k->name[i])) fits[n++] = k->name[i];
    else TRY(schema_refuse(s, "properties", arena_dup_n(s->w.a, k->name[i].p, k->name[i].n), "a name that calls of this syntax cannot hold"));
  }
  TRY(grammar_dfa_words(&s->w, fits, n, false, &words));
  TRY(grammar_regex_dfa(&s->w, others, sizeof others - 1, false, &other));
  for (int i = 0; i < words->n; i++) words->st[i].tag = MIN(words->st[i].tag, 0);
  TRY(grammar_dfa_or(&s->w, words, other, &all));
  return grammar_dfa_product(&s->w, *d, all, keep_first, NULL, d);
}

Err *schema_object(Schema *s, const Branch *b, SchemaValue *value, bool is_bare, ObjectParts *out) {
  Keys k = {.s = s};
  KeyClass *class = NULL;
  ObjectParts p = {0};
  if (b->min_props > 30000 || (b->max_props > 30000 && b->max_props < INT32_MAX)) return err_new(ERR_LIMIT, "minProperties or maxProperties above 30000");
  TRY(keys_names(&k, b));
  TRY(keys_dfa(&k, b, &p.keys));
  if (is_bare) TRY(bare_keys(&k, &p.keys));
  TRY(keys_number(&k, b, p.keys, &class, &p.n));
  p.rule = grammar_rule_new(s->g, GR_OBJECT, "object");
  p.o = ARENA_NEW(s->g->a, GrObject);
  TRY(object_tables(s, b, &k, class, p.n, value, p.o));
  GrRule *r = &s->g->rule[p.rule];
  r->object = p.o;
  r->min = b->min_props;
  r->max = b->max_props >= INT32_MAX ? -1 : b->max_props;
  *out = p;
  return NULL;
}

static Err *any_value(Schema *s, const DfaWord *name, const CondSet *set, uint32_t *rule) {
  (void)name;
  return rule_of(s, set, rule);
}

/* The states of the keys, once for each way to quote them; map: where to enter them, behind the byte in first. */
static Err *keys_encode(Schema *s, ObjectParts *p, const uint32_t *colon, uint32_t map[2], char first[2], int *n_ways) {
  const struct { int mode; char quote; } ways[] = {{spelled(s), '"'}, {GR_ENC_PYTHON, '"'}, {GR_ENC_PYTHON_SINGLE, '\''}, {GR_ENC_RAW, ':'}};
  int from = s->values == GR_VALUES_JSON ? 0 : s->values == GR_VALUES_PYTHON ? 1 : 3, n = s->values == GR_VALUES_PYTHON ? 2 : 1;
  *n_ways = p->n ? n : 0;
  p->o->key_base = (uint32_t)s->g->n_st;
  for (int i = 0; i < *n_ways; i++) {
    GrEncode e = {.mode = ways[from + i].mode, .rule = p->rule, .close = colon, .n_close = p->n, .close_byte = (uint8_t)ways[from + i].quote, .act = GR_KEY};
    uint32_t *all = ARENA_ARRAY(s->w.a, uint32_t, p->keys->n);
    TRY(grammar_encode_dfa(s->g, &s->w, p->keys, &e, all));
    map[i] = all[0];
    first[i] = ways[from + i].quote;
  }
  p->o->n_keys = (int)((uint32_t)s->g->n_st - p->o->key_base);
  return NULL;
}

/* {key:value,key:value}: keys follow what opens and separates at once. */
static void braces_fill(Schema *s, const ObjectParts *p, const uint32_t *colon, uint32_t keys, uint32_t start, uint32_t end) {
  Grammar *g = s->g;
  uint32_t open = grammar_state_new(g, p->rule), after = grammar_state_new(g, p->rule);
  grammar_edge_add(g, start, '{', '{', GR_PLAIN, 0, open);
  if (p->n) grammar_edge_add(g, start, '{', '{', GR_KEY, 0, keys);
  grammar_edge_add(g, open, '}', '}', GR_CLOSE, 0, end);
  for (int i = 0; i < p->n; i++) grammar_call_add(g, colon[i], p->o->value[i], GR_PLAIN, after);
  if (p->n) grammar_edge_add(g, after, ',', ',', GR_KEY, 0, keys);
  grammar_edge_add(g, after, '}', '}', GR_CLOSE, 0, end);
}

static Err *object_rule(Schema *s, const Branch *b, uint32_t *out) {
  Grammar *g = s->g;
  ObjectParts p;
  char quote[2] = {0};
  int n_ways;
  TRY(schema_object(s, b, any_value, s->values == GR_VALUES_BRACES, &p));
  uint32_t r = p.rule, start = grammar_state_new(g, r), open = grammar_state_new(g, r), end = grammar_end_new(g, r), map[2] = {0};
  uint32_t after = grammar_state_new(g, r), comma = grammar_state_new(g, r), *colon = ARENA_ARRAY(s->w.a, uint32_t, p.n + 1);
  for (int i = 0; i < p.n; i++) colon[i] = grammar_state_new(g, r);
  TRY(keys_encode(s, &p, colon, map, quote, &n_ways));
  g->rule[r].start = start;
  *out = r;
  if (s->values == GR_VALUES_BRACES) {
    braces_fill(s, &p, colon, map[0], start, end);
    return NULL;
  }
  for (int i = 0; i < p.n; i++) {
    uint32_t value = grammar_state_new(g, r);
    Ways sep = close_way(':', GR_PLAIN, value), call = {.n_calls = 1, .call[0] = {.rule = p.o->value[i], .ret = after}};
    fill_spaced(s, colon[i], &sep, false, NULL, GR_PLAIN);
    fill_spaced(s, value, &call, false, NULL, GR_PLAIN);
  }
  Ways first = {0}, key = {0}, close = close_way('}', GR_CLOSE, end), next = close_way(',', GR_MORE, comma);
  for (int i = 0; i < n_ways; i++) key.edge[key.n++] = first.edge[first.n++] = (Way){(uint8_t)quote[i], GR_KEY, 0, map[i]};
  first.edge[first.n++] = next.edge[next.n++] = close.edge[0];
  grammar_edge_add(g, start, '{', '{', GR_PLAIN, 0, open);
  fill_spaced(s, open, &first, true, NULL, GR_PLAIN);
  fill_spaced(s, comma, &key, true, NULL, GR_PLAIN);
  fill_spaced(s, after, &next, true, &close, GR_CLOSE);
  return NULL;
}

static Err *emit_set(Schema *s, const CondSet *set, unsigned types, uint32_t rule) {
  Grammar *g = s->g;
  Branches b;
  TRY(schema_set_branches(s, set, &b));
  if (types != T_ALL) {
    Branch *own = ARENA_ARRAY(s->w.a, Branch, b.n + 1);
    for (int i = 0; i < b.n; i++) own[i] = b.b[i], own[i].types &= types;
    b.b = own;
  }
  uint32_t start = grammar_state_new(g, rule), end = grammar_end_new(g, rule), *alt = NULL, one;
  int n = 0, cap = 0;
  unsigned words = 0;
  const Dfa *num = NULL, *str = NULL;
  bool any_num = false, any_str = false, some_num = false;
  int n_str = 0;
  g->rule[rule].start = start;
  for (int i = 0; i < b.n; i++) { /* texts of several ways are one automaton; so are numbers */
    const Branch *x = &b.b[i];
    words |= x->types;
    if (x->types & T_STR) { n_str++; any_str |= !x->str && !x->min_len && x->max_len < 0; }
    if (x->types & T_NUM) { some_num = true; any_num |= !x->num; }
  }
  if (n_str > 1 && !any_str) TRY(schema_texts_dfa(s, &b, &str));
  for (int i = 0; i < b.n; i++) {
    const Branch *x = &b.b[i];
    Dfa *d;
    if ((x->types & T_STR) && n_str == 1 && !any_str) {
      TRY(string_rule(s, x, &one));
      PUSH(s->w.a, alt, n, cap, one);
    }
    if ((x->types & T_NUM) && !any_num) {
      if (num) { TRY(grammar_dfa_or(&s->w, num, x->num, &d)); num = d; }
      else num = x->num;
    }
  }
  if (any_str || str) { TRY(leaf_rule(s, any_str ? NULL : str, LEAF_STRING, &one)); PUSH(s->w.a, alt, n, cap, one); }
  if (some_num) { TRY(leaf_rule(s, any_num ? NULL : num, LEAF_NUMBER, &one)); PUSH(s->w.a, alt, n, cap, one); }
  for (int i = 0; i < 3; i++) if (words >> i & 1) PUSH(s->w.a, alt, n, cap, s->word[i]);
  for (int i = 0; i < b.n; i++) {
    if (b.b[i].types & T_ARR) { TRY(array_rule(s, &b.b[i], &one)); PUSH(s->w.a, alt, n, cap, one); }
    if (b.b[i].types & T_OBJ) { TRY(object_rule(s, &b.b[i], &one)); PUSH(s->w.a, alt, n, cap, one); }
  }
  for (int i = 0; i < n; i++) grammar_call_add(g, start, alt[i], GR_PLAIN, end);
  return NULL;
}

Err *schema_emit(Schema *s, Cond *root) {
  CondSet set = {0};
  common_rules(s);
  schema_set_add(s, &set, root);
  TRY(s->args ? schema_args(s, &set, &s->g->root) : schema_rule_of(s, &set, s->types, &s->g->root));
  for (int i = 0; i < s->n_wants; i++) {
    CondSet next = s->want[i].set;
    TRY(grammar_work_spend(&s->w, 50));
    Err *e = emit_set(s, &next, s->want[i].types, s->want[i].rule);
    if (e) return err_kind(e) == ERR_LIMIT && next.n ? err_wrap(e, "%s", next.c[0]->path) : e;
  }
  return NULL;
}
