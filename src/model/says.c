/* What a checkpoint's metadata says of its quantized weights, against what their tensors' extents say: `says` lines of layouts. Neither is believed
   over the other: where they differ, both are named. In: a layout that fits the tensors, the metadata. Out: NULL, or who says what. */
#include <string.h>
#include "model/priv.h"

/* ---- keys ---------------------------------------------------------------------------------------------------------- */
/* The names that * stands for in some key of the metadata, one more than MODEL_STEMS_MAX at most: model_says_known has refused more. */
static void add_stems(HyperEnv *env, const char *key, ModelNames *out) {
  const char *star = strchr(key, '*'), *below = env->decl && env->decl->below ? arena_printf(env->arena, "%s.", env->decl->below) : "";
  size_t before = star ? (size_t)(star - key) : 0, after = star ? strlen(star + 1) : 0;
  for (int i = 0; star && i < env->w->n_kvs && out->n <= MODEL_STEMS_MAX; i++) {
    const char *k = env->w->kv[i].key;
    if (strncmp(k, key, before) && !strncmp(k, below, strlen(below))) k += strlen(below);
    size_t n = strlen(k);
    if (n <= before + after || strncmp(k, key, before) || strcmp(k + n - after, star + 1)) continue;
    char *stem = arena_dup_n(env->arena, k + before, n - before - after);
    bool known = false;
    for (int s = 0; s < out->n; s++) known = known || !strcmp(out->name[s], stem);
    if (!known) PUSH(env->arena, out->name, out->n, out->cap, stem);
  }
}

/* What a key names, a star being any name. */
typedef struct KvList { const FileKv **kv; int n, cap; } KvList;

static KvList named(HyperEnv *env, const char *key) {
  KvList all = {0};
  ModelNames stems = {0};
  const FileKv *kv = strchr(key, '*') ? NULL : hyper_kv(env, key);
  if (kv) PUSH(env->arena, all.kv, all.n, all.cap, kv);
  add_stems(env, key, &stems);
  for (int i = 0; i < stems.n; i++) {
    kv = hyper_kv(env, model_with_stem(env->arena, key, stems.name[i]));
    if (kv) PUSH(env->arena, all.kv, all.n, all.cap, kv);
  }
  return all;
}

static bool is_among(const FileStr *s, const char *const *text, int n) {
  for (int i = 0; i < n; i++) if (strlen(text[i]) == s->n && !memcmp(text[i], s->p, s->n)) return true;
  return false;
}

static Err *not_among(const FileKv *kv, const char *const *text, int n) {
  Str got = {0}, known = {0};
  file_kv_print(kv, 4, &got);
  for (int i = 0; i < n; i++) str_addf(&known, i ? ", %s" : "%s", text[i]);
  Err *e = err_new(ERR_UNSUPPORTED, "metadata %s: %s, expected %s%s", kv->key, got.p, n > 1 ? "one of " : "", known.p);
  str_free(&got);
  str_free(&known);
  return e;
}

/* ---- one weight ---------------------------------------------------------------------------------------------------- */
static Err *check_key(HyperEnv *env, const SaysDecl *s, const FileKv *kv, FormatParts *fit) {
  Num said;
  int64_t found = 0, first = 0;
  if (s->n_texts) return kv->type == FILE_STR && !kv->is_array && is_among(kv->str, s->text, s->n_texts) ? NULL : not_among(kv, s->text, s->n_texts);
  if (kv->is_array) return err_new(ERR_FORMAT, "metadata %s: a list, expected a number", kv->key);
  TRY(hyper_kv_number(env, kv, 0, &said));
  for (int i = 0; i < s->n_values; i++) {
    TRY(format_parts_number(env->module, fit, s->value[i], &found));
    if (num_float(said) == (double)found) return NULL;
    if (!i) first = found;
  }
  return err_new(ERR_FORMAT, "metadata %s: %.9g, but the tensors say %lld", kv->key, num_float(said), (long long)first);
}

/* The rules of the layout that tell which of the names of a key's * speak of a weight: theirs is the same up to it. NULL: any may. */
static const RulesDecl *rules_of(const LayoutDecl *l, const char *key) {
  const char *star = strchr(key, '*');
  for (int i = 0; star && i < l->n_rules; i++) if (!strncmp(key, l->rule[i].key, (size_t)(star - key) + 1)) return &l->rule[i];
  return NULL;
}

/* One of these agrees; of none, what the first says. */
static Err *check_any(HyperEnv *env, const SaysDecl *s, const KvList *all, FormatParts *fit) {
  Err *first = NULL;
  for (int i = 0; i < all->n; i++) {
    Err *e = check_key(env, s, all->kv[i], fit);
    if (!e) {
      err_free(first);
      return NULL;
    }
    if (first) err_free(e);
    else first = e;
  }
  return first;
}

/* What rules say of this weight outdoes what is said of all. */
static Err *check_line(HyperEnv *env, const LayoutDecl *l, const SaysDecl *s, const Picked *picked, FormatParts *fit) {
  KvList own = {0}, all = {0};
  for (int k = 0; k < s->n_keys; k++) {
    const RulesDecl *r = rules_of(l, s->key[k]);
    const Picked *p = r ? &picked[r - l->rule] : NULL;
    for (int i = 0; p && i < p->names.n; i++) {
      const FileKv *kv = hyper_kv(env, model_with_stem(env->arena, s->key[k], p->names.name[i]));
      if (kv) PUSH(env->arena, own.kv, own.n, own.cap, kv);
    }
    const KvList some = p ? (KvList){0} : named(env, s->key[k]);
    for (int i = 0; i < some.n; i++) PUSH(env->arena, all.kv, all.n, all.cap, some.kv[i]);
  }
  return check_any(env, s, own.n ? &own : &all, fit);
}

static bool is_joint(const SaysDecl *s) { return strchr(s->key[0], '*') != NULL; }

static Err *check_joint(HyperEnv *env, const LayoutDecl *l, const char *stem, FormatParts *fit) {
  for (int i = 0; i < l->n_says; i++) {
    const SaysDecl *s = &l->says[i];
    const FileKv *kv = is_joint(s) ? hyper_kv(env, model_with_stem(env->arena, s->key[0], stem)) : NULL;
    if (kv) TRY(check_key(env, s, kv, fit));
  }
  return NULL;
}

/* What the metadata's rules pick for the weight. Those it needs a word of and has none of are an error: it is told of others only. */
static Err *pick_rules(HyperEnv *env, const LayoutDecl *l, const char *weight, Picked *picked) {
  for (int i = 0; i < l->n_rules; i++) TRY(err_wrap(model_rules_pick(env, &l->rule[i], weight, &picked[i]), "layout %s", l->name));
  for (int i = 0; i < l->n_says; i++) {
    const RulesDecl *r = rules_of(l, l->says[i].key[0]);
    const Picked *p = r ? &picked[r - l->rule] : NULL;
    if (p && p->said && !p->names.n) return err_new(ERR_FORMAT, "layout %s: metadata %s: nothing there speaks of %s, whose tensors lie here", l->name, r->key, weight);
  }
  return NULL;
}

Err *model_says_check(HyperEnv *env, const LayoutDecl *l, const char *stem, FormatParts *fit) {
  ModelNames all = {0};
  Str told = {0};
  bool agreed = false;
  Picked *picked = ARENA_ARRAY(env->arena, Picked, l->n_rules + 1);
  TRY(pick_rules(env, l, stem, picked));
  for (int i = 0; i < l->n_says; i++) {
    const RulesDecl *r = rules_of(l, l->says[i].key[0]);
    if (r && picked[r - l->rule].said) all = picked[r - l->rule].names;
    else if (is_joint(&l->says[i])) add_stems(env, l->says[i].key[0], &all);
    else TRY(err_wrap(check_line(env, l, &l->says[i], picked, fit), "layout %s", l->name));
  }
  for (int k = 0; k < all.n && !agreed; k++) {
    Err *e = check_joint(env, l, all.name[k], fit);
    agreed = !e;
    if (e) str_addf(&told, told.n ? "; %s" : "%s", err_text(e));
    err_free(e);
  }
  Err *e = all.n && !agreed ? err_new(ERR_FORMAT, "layout %s: %s", l->name, told.p) : NULL;
  str_free(&told);
  return e;
}

/* ---- all of them --------------------------------------------------------------------------------------------------- */
static const SaysDecl *line_of(const LayoutDecl *l, const char *key) {
  for (int i = 0; i < l->n_says; i++) if (l->says[i].n_texts && !strcmp(l->says[i].key[0], key)) return &l->says[i];
  return NULL;
}

static Err *check_known(HyperEnv *env, const char *key) {
  KvList all = named(env, key);
  const FileKv *kv = all.n ? all.kv[0] : NULL;
  const char **text = NULL;
  int n = 0, cap = 0;
  bool known = false;
  if (!kv || kv->type != FILE_STR || kv->is_array) return NULL;
  for (int k = 0; k < env->module->n_layouts; k++) {
    const SaysDecl *s = line_of(env->module->layout[k], key);
    if (!s) return NULL;                                     /* a text that wants nothing of it takes all */
    known = known || is_among(kv->str, s->text, s->n_texts);
    for (int t = 0; t < s->n_texts; t++) {
      const FileStr one = {s->text[t], strlen(s->text[t])};
      if (!is_among(&one, text, n)) PUSH(env->arena, text, n, cap, s->text[t]);
    }
  }
  return known ? NULL : not_among(kv, text, n);
}

/* Where rules pick from the names, there may be as many as the metadata has. */
static Err *check_stems(HyperEnv *env, const LayoutDecl *l, const char *key) {
  ModelNames stems = {0};
  bool picks = false;
  add_stems(env, key, &stems);
  if (stems.n <= MODEL_STEMS_MAX) return NULL;
  const RulesDecl *r = rules_of(l, key);
  if (r) TRY(err_wrap(model_rules_said(env, r, &picks), "layout %s", l->name));
  return picks ? NULL : err_new(ERR_LIMIT, "metadata %s: more than %d names for *", key, MODEL_STEMS_MAX);
}

Err *model_says_known(HyperEnv *env) {
  const LayoutDecl *l = env->module->n_layouts ? env->module->layout[0] : NULL;
  for (int i = 0; i < env->module->n_layouts; i++)
    for (int k = 0; k < env->module->layout[i]->n_says; k++)
      for (int j = 0; j < env->module->layout[i]->says[k].n_keys; j++) TRY(check_stems(env, env->module->layout[i], env->module->layout[i]->says[k].key[j]));
  for (int i = 0; l && i < l->n_says; i++) TRY(check_known(env, l->says[i].key[0]));
  return NULL;
}

/* Of metadata that a layout's text asks for, what is there. */
static void tell_key(HyperEnv *env, const char *key, ModelNames *told, Str *out) {
  KvList all = named(env, key);
  for (int i = 0; i < all.n; i++) {
    const FileKv *kv = all.kv[i];
    bool again = told->n == 12;
    for (int k = 0; k < told->n && !again; k++) again = !strcmp(told->name[k], kv->key);
    if (again) continue;
    PUSH(env->arena, told->name, told->n, told->cap, arena_dup(env->arena, kv->key));
    str_addf(out, told->n > 1 ? ", %s " : "%s ", kv->key);
    file_kv_print(kv, 4, out);
  }
}

static void tell_keys_in(HyperEnv *env, const Expr *e, ModelNames *told, Str *out) {
  if (!e) return;
  if (e->kind == EX_STR) tell_key(env, e->name, told, out);
  for (int i = 0; i < e->n_args; i++) tell_keys_in(env, e->arg[i], told, out);
}

void model_says_tell(HyperEnv *env, const LayoutDecl *l, ModelNames *told, Str *out) {
  for (int i = 0; i < l->n_says; i++)
    for (int k = 0; k < l->says[i].n_keys; k++) tell_key(env, l->says[i].key[k], told, out);
  for (int i = 0; i < l->n_fns; i++) tell_keys_in(env, l->fn[i].value, told, out);
}
