/* Of which weights the metadata of a checkpoint speaks: `rules` lines of layouts. In: texts of the metadata (names, regular expressions, globs), the name
   of a weight. Out: which of the names that a key's * stands for say something of it, or an Err that names the text that leaves it out.
   Whoever made the file wrote the expressions: all work with them is bounded, whatever they are, by the limits below. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>
#include "model/priv.h"

/* At most: texts of one key; bytes of one; bytes that PCRE2 takes for all; steps of one comparison, and of all that a model's weights need; times that PCRE2
   goes back in one comparison. A step takes some 10 ns, at worst 25: all are a few seconds. */
enum { RULES_MAX = 8192, RULE_BYTES_MAX = 4096, CODE_BYTES_MAX = 64 << 20, STEPS_MAX = 100000, ALL_STEPS_MAX = 200000000, BACKS_MAX = 20000 };

typedef struct Rule {
  const char *text;              /* as it stands in the metadata */
  const char *rest;              /* behind the form's prefix */
  const char *stem;              /* what the key's * stands for; NULL: it has none */
  const RuleForm *form;
  pcre2_code *code;              /* NULL: no expression */
  int64_t each;                  /* steps of one item of the expression */
} Rule;

typedef struct RuleList {
  const RulesDecl *decl;         /* the first of those that ask for the same */
  Rule *rule; int n, cap;
  bool said;                     /* the metadata has such texts */
} RuleList;

typedef struct RuleBook {
  Arena *arena;
  RuleList *list; int n, cap;
  pcre2_match_data *data;
  pcre2_match_context *match;
  pcre2_compile_context *compile;
  size_t n_bytes;                /* that PCRE2 has taken */
  int64_t n_steps, stop;         /* spent, and where the comparison at hand is given up */
  int64_t each;                  /* its rule's */
} RuleBook;

/* ---- reading ------------------------------------------------------------------------------------------------------- */
static void *take(size_t n, void *ctx) {
  RuleBook *b = ctx;
  if (n > CODE_BYTES_MAX - b->n_bytes) return NULL;
  b->n_bytes += n;
  return arena_alloc(b->arena, n);
}
static void give_back(void *p, void *ctx) { (void)p, (void)ctx; } /* with the arena */

static Err *spend(RuleBook *b, const RulesDecl *d, int64_t n) {
  b->n_steps += n;
  return b->n_steps > ALL_STEPS_MAX ? err_new(ERR_LIMIT, "metadata %s: its texts take too long to compare", d->key) : NULL;
}

/* PCRE2's own limit is of the times it goes back, between which it may go through all of the expression. It calls this before every item, whose work grows
   with what is left of the text and, where it is a set of characters, with its length. */
static int count_item(pcre2_callout_block *item, void *ctx) {
  RuleBook *b = ctx;
  b->n_steps += b->each + (int64_t)(item->next_item_length * (item->subject_length - item->current_position) / 32);
  return b->n_steps > b->stop ? PCRE2_ERROR_CALLOUT : 0;
}

static RuleBook *book_of(HyperEnv *env) {
  if (env->rules) return env->rules;
  RuleBook *b = env->rules = ARENA_NEW(env->arena, RuleBook);
  b->arena = env->arena;
  pcre2_general_context *g = pcre2_general_context_create(take, give_back, b);
  b->data = pcre2_match_data_create(1, g);
  b->match = pcre2_match_context_create(g);
  b->compile = pcre2_compile_context_create(g);
  CHECK(g && b->data && b->match && b->compile, "out of memory");
  pcre2_set_heap_limit(b->match, 1024);
  pcre2_set_match_limit(b->match, BACKS_MAX);
  pcre2_set_callout(b->match, count_item, b);
  pcre2_set_max_pattern_length(b->compile, RULE_BYTES_MAX);
  pcre2_set_parens_nest_limit(b->compile, 100);
  return b;
}

/* An item may go past all alternatives, and going back copies what all groups hold. */
static int64_t steps_of_item(const Rule *r) {
  uint32_t n_groups = 0;
  int64_t n = 0;
  pcre2_pattern_info(r->code, PCRE2_INFO_CAPTURECOUNT, &n_groups);
  for (const char *s = r->rest; *s; s++) n += *s == '|';
  return 1 + (n_groups + n) / 16;
}

/* Of compiling. A range of characters whatever their case is gone through one by one, up to a million; only these ways name one past the first 512. */
static int64_t steps_of_text(const char *s) {
  enum { EACH = 1000, BYTE = 16, WIDE_RANGE = 400000 };
  int64_t n = EACH + BYTE * (int64_t)strlen(s), n_ranges = 0;
  bool wide = false;
  for (; *s; s++) {
    wide |= (unsigned char)*s >= 0x80 || !strncmp(s, "\\x{", 3) || !strncmp(s, "\\o{", 3) || !strncmp(s, "\\N{", 3);
    n_ranges += *s == '-';
  }
  return n + (wide ? n_ranges * WIDE_RANGE : 0);
}

/* Why PCRE2 could not compile an expression, or compare it with a name; NULL: compile. Its codes of the one are not those of the other. */
static Err *fault_of(const RulesDecl *d, const Rule *r, const char *name, int code) {
  PCRE2_UCHAR why[200] = "";
  if (code == PCRE2_ERROR_HEAP_FAILED || code == PCRE2_ERROR_NOMEMORY) return err_new(ERR_LIMIT, "metadata %s: its regular expressions take more than %d MiB", d->key, CODE_BYTES_MAX >> 20);
  pcre2_get_error_message(code, why, sizeof why);
  return err_new(ERR_FORMAT, "metadata %s: regular expression '%.200s'%s%s: %s", d->key, r->text, name ? " and " : "", name ? name : "", (const char *)why);
}

static Err *compile(RuleBook *b, const RulesDecl *d, Rule *r) {
  int code;
  PCRE2_SIZE at;
  TRY(spend(b, d, steps_of_text(r->rest)));
  r->code = pcre2_compile((PCRE2_SPTR)r->rest, strlen(r->rest), PCRE2_ANCHORED | PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT, &code, &at, b->compile);
  if (!r->code) return fault_of(d, r, NULL, code);
  r->each = steps_of_item(r);
  return NULL;
}

/* The forms of the longest prefix that the text has. None: it is not about weights. */
static Err *add_rule(HyperEnv *env, RuleList *l, const char *text, const char *stem) {
  size_t longest = 0;
  l->said = true;
  for (int i = 0; i < l->decl->n_forms; i++) {
    size_t n = strlen(l->decl->form[i].prefix);
    if (n > longest && !strncmp(text, l->decl->form[i].prefix, n)) longest = n;
  }
  if (strlen(text) > RULE_BYTES_MAX) return err_new(ERR_LIMIT, "metadata %s: '%.60s..': %zu bytes, expected at most %d", l->decl->key, text, strlen(text), RULE_BYTES_MAX);
  for (int i = 0; i < l->decl->n_forms; i++) {
    const RuleForm *f = &l->decl->form[i];
    Rule r = {.text = text, .rest = text + longest, .stem = stem, .form = f};
    if (strlen(f->prefix) != longest || strncmp(text, f->prefix, longest)) continue;
    if (l->n == RULES_MAX) return err_new(ERR_LIMIT, "metadata %s: more than %d texts", l->decl->key, RULES_MAX);
    if (f->kind == RULE_regex) TRY(compile(book_of(env), l->decl, &r));
    PUSH(env->arena, l->rule, l->n, l->cap, r);
  }
  return NULL;
}

/* As hyper_kv finds values. */
static const FileObject *object_of(HyperEnv *env, const char *key) {
  const char *below = env->decl ? env->decl->below : NULL;
  const FileObject *o = below ? file_object_find(env->w, arena_printf(env->arena, "%s.%s", below, key)) : NULL;
  return o ? o : file_object_find(env->w, key);
}

static Err *no_texts(const char *key, const FileObject *o) { return err_new(ERR_FORMAT, "metadata %s: %s, expected texts", key, o->is_list ? "a list of values of several kinds" : "an object"); }

/* A list of none is nothing said, but where each name of a * has one: then that name is of no weight. */
static Err *add_texts(HyperEnv *env, RuleList *l, const char *key, const char *stem) {
  const FileKv *kv = hyper_kv(env, key);
  const FileObject *o = kv ? NULL : object_of(env, key);
  if (o) return no_texts(o->key, o);
  if (kv && kv->is_array && !kv->n) l->said |= stem != NULL;
  if (!kv || (kv->is_array && !kv->n)) return NULL;
  if (kv->type != FILE_STR) return err_new(ERR_FORMAT, "metadata %s: expected texts", kv->key);
  for (size_t i = 0; i < kv->n; i++) {
    if (memchr(kv->str[i].p, 0, kv->str[i].n)) return err_new(ERR_FORMAT, "metadata %s: text %zu has a NUL", kv->key, i + 1);
    TRY(add_rule(env, l, arena_dup_n(env->arena, kv->str[i].p, kv->str[i].n), stem));
  }
  return NULL;
}

static Err *read_rules(HyperEnv *env, RuleList *l) {
  const char *key = l->decl->key, *star = strchr(key, '*');
  if (!star) return add_texts(env, l, key, NULL);
  const char *above = arena_dup_n(env->arena, key, (size_t)(star - key) - 1);
  const FileKv *kv = hyper_kv(env, above);
  const FileObject *o = kv ? NULL : object_of(env, above);
  if ((kv && (!kv->is_array || kv->n)) || (o && o->is_list)) return err_new(ERR_FORMAT, "metadata %s: expected an object", kv ? kv->key : o->key);
  for (int i = 0; o && i < o->n; i++) {
    if (star[1]) TRY(add_texts(env, l, model_with_stem(env->arena, key, o->name[i]), o->name[i]));
    else TRY(add_rule(env, l, o->name[i], o->name[i]));
  }
  return NULL;
}

static bool asks_alike(const RulesDecl *a, const RulesDecl *b) {
  bool alike = !strcmp(a->key, b->key) && a->n_forms == b->n_forms;
  for (int i = 0; i < a->n_forms && alike; i++) alike = a->form[i].kind == b->form[i].kind && a->form[i].spares == b->form[i].spares && !strcmp(a->form[i].prefix, b->form[i].prefix);
  return alike;
}

/* Many layouts ask for the same. */
static Err *list_of(HyperEnv *env, const RulesDecl *d, const RuleList **out) {
  RuleBook *b = book_of(env);
  RuleList l = {.decl = d};
  for (int i = 0; i < b->n; i++) if (asks_alike(b->list[i].decl, d)) { *out = &b->list[i]; return NULL; }
  TRY(read_rules(env, &l));
  PUSH(env->arena, b->list, b->n, b->cap, l);
  *out = &b->list[b->n - 1];
  return NULL;
}

Err *model_rules_said(HyperEnv *env, const RulesDecl *d, bool *out) {
  const RuleList *l;
  TRY(list_of(env, d, &l));
  *out = l->said;
  return NULL;
}

/* ---- comparing ----------------------------------------------------------------------------------------------------- */
static Err *fits_name(RuleBook *b, const RulesDecl *d, const Rule *r, const char *name, bool *fits) {
  (void)b, (void)d;
  *fits = !strcmp(r->rest, name);
  return NULL;
}

static Err *fits_regex(RuleBook *b, const RulesDecl *d, const Rule *r, const char *name, bool *fits) {
  TRY(spend(b, d, 8 * r->each + (int64_t)strlen(name) / 16));
  b->stop = MIN(b->n_steps + STEPS_MAX, ALL_STEPS_MAX);
  b->each = r->each;
  int rc = pcre2_match(r->code, (PCRE2_SPTR)name, strlen(name), 0, 0, b->data, b->match);
  TRY(spend(b, d, 0));
  if (rc == PCRE2_ERROR_CALLOUT || rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_HEAPLIMIT)
    return err_new(ERR_LIMIT, "metadata %s: regular expression '%.200s' takes too long to compare with %s", d->key, r->text, name);
  if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) return fault_of(d, r, name, rc);
  *fits = rc >= 0;
  return NULL;
}

/* One star at most is looked back to: at most the product of both lengths. */
static Err *fits_glob(RuleBook *b, const RulesDecl *d, const Rule *r, const char *name, bool *fits) {
  const char *g = r->rest, *s = name, *star = NULL, *from = NULL;
  int64_t n = 0;
  for (; *s; n++) {
    if (*g == '*') star = g++, from = s;
    else if (*g == '?' || *g == *s) g++, s++;
    else if (star) g = star + 1, s = ++from;
    else break;
  }
  while (*g == '*') g++;
  TRY(spend(b, d, 1 + n / 4));
  *fits = !*s && !*g;
  return NULL;
}

static Err *fits_class(RuleBook *b, const RulesDecl *d, const Rule *r, const char *name, bool *fits) {
  (void)b, (void)d, (void)name;
  *fits = r->rest[0] >= 'A' && r->rest[0] <= 'Z' && !strchr(r->rest, '.');
  return NULL;
}

static Err *(*const fits_kind[])(RuleBook *b, const RulesDecl *d, const Rule *r, const char *name, bool *fits) = {
#define RULE(id, rank) fits_##id,
#include "lang/rules.def"
#undef RULE
};

/* A folder's tensors may have moved since its rules were written: the names they have in other folders of this kind. */
typedef struct Aliases { const char *name[16]; int n; } Aliases;

static void add_alias(HyperEnv *env, Aliases *a, const char *begin, const char *rest) {
  const char *name = arena_printf(env->arena, "%s%s", begin, rest);
  for (int i = 0; i < a->n; i++) if (!strcmp(a->name[i], name)) return;
  if (a->n < (int)COUNT_OF(a->name)) a->name[a->n++] = name;
}

static const char *behind(const char *s, const char *begin) { return strncmp(s, begin, strlen(begin)) ? NULL : s + strlen(begin); }

static void add_moved(HyperEnv *env, Aliases *a, const char *from, const char *rest) {
  add_alias(env, a, from, rest);
  for (int i = 0; i < env->decl->n_moves; i++) if (!strcmp(env->decl->move[i].from, from)) add_alias(env, a, env->decl->move[i].to, rest);
}

/* What has one of the other names has moved; what has none is where models say. */
static Aliases aliases_of(HyperEnv *env, const char *weight) {
  Aliases a = {{weight}, 1};
  int n_moves = env->decl && !env->arch ? env->decl->n_moves : 0;
  for (int i = 0; i < n_moves; i++) {
    const char *rest = behind(weight, env->decl->move[i].to);
    if (rest) add_moved(env, &a, env->decl->move[i].from, rest);
  }
  for (int i = 0; i < n_moves && a.n == 1; i++) {
    const char *rest = behind(weight, env->decl->move[i].from);
    if (rest) add_moved(env, &a, env->decl->move[i].from, rest);
  }
  return a;
}

Err *model_rules_pick(HyperEnv *env, const RulesDecl *d, const char *weight, Picked *out) {
  const Aliases a = aliases_of(env, weight);
  const RuleList *l;
  const Rule *best = NULL;
  Picked p = {0};
  int least = INT32_MAX;
  TRY(list_of(env, d, &l));
  p.said = l->said;
  for (int i = 0; i < l->n; i++) {
    const Rule *r = &l->rule[i];
    int rank = lang_rules[r->form->kind].rank;
    bool fits = false;
    if (rank > least || (rank == least && r->form->kind != RULE_class)) continue;
    for (int k = 0; k < a.n && !fits; k++) TRY(fits_kind[r->form->kind](env->rules, d, r, a.name[k], &fits));
    if (!fits) continue;
    if (rank < least) p.names.n = 0;
    least = rank;
    best = r;
    if (p.names.n == MODEL_STEMS_MAX) return err_new(ERR_LIMIT, "metadata %s: more than %d names for * speak of %s", d->key, MODEL_STEMS_MAX, weight);
    if (r->stem) PUSH(env->arena, p.names.name, p.names.n, p.names.cap, arena_dup(env->arena, r->stem));
  }
  if (best && best->form->spares) return err_new(ERR_FORMAT, "metadata %s: '%.200s' leaves %s out, whose tensors lie here", d->key, best->text, weight);
  *out = p;
  return NULL;
}
