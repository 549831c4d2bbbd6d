/* Shared by the text tests: reading golden files as values. */
#ifndef TEXT_GOLDEN_H
#define TEXT_GOLDEN_H
#include "test.h"
#include "text/priv.h"

__attribute__((unused)) static const char *text_get(Val row, const char *key, size_t *n) {
  Val *v = val_get(row, key);
  if (!v || v->kind != V_STR) return NULL;
  *n = v->u.s->n;
  return v->u.s->p;
}

/* Reads a file; a missing one gives an empty text. */
__attribute__((unused)) static Str read_or_empty(const char *path) {
  Str s = {0};
  Err *e = os_read_file(path, (size_t)1 << 30, &s);
  err_free(e);
  return s;
}

/* The next line of s from *at; false at the end. */
__attribute__((unused)) static bool next_line(const Str *s, size_t *at, const char **p, size_t *n) {
  if (*at >= s->n) return false;
  const char *nl = memchr(s->p + *at, '\n', s->n - *at);
  *p = s->p + *at;
  *n = nl ? (size_t)(nl - *p) : s->n - *at;
  *at += *n + 1;
  return true;
}

/* What a GGUF would say of a tokenizer.json's vocabulary. */
typedef struct Meta { TextVocabSource s; const char **token, **merge; int32_t *type; uint32_t *len; float *score; } Meta;

__attribute__((unused)) static Meta meta_of(Arena *a, const char *path, const char *kind, const char *pre) {
  Str raw = read_or_empty(path);
  Meta m = {0};
  Val root;
  EXPECT_OK(text_json_parse(a, raw.p ? raw.p : "", raw.n, &root));
  Val *model = val_get(root, "model"), *vocab = val_get(*model, "vocab"), *merges = val_get(*model, "merges"), *added = val_get(root, "added_tokens");
  bool scored = vocab->kind == V_LIST;
  int n_vocab = scored ? vocab->u.l->n : vocab->u.d->n, n = n_vocab, n_merges = merges ? merges->u.l->n : 0;
  for (int i = 0; i < n_vocab && !scored; i++) n = MAX(n, (int)vocab->u.d->vals[i].u.i + 1);
  for (int i = 0; i < added->u.l->n; i++) n = MAX(n, (int)val_get(added->u.l->items[i], "id")->u.i + 1);
  m.token = ARENA_ARRAY(a, const char *, (size_t)n);
  m.len = ARENA_ARRAY(a, uint32_t, (size_t)n);
  m.type = ARENA_ARRAY(a, int32_t, (size_t)n);
  m.score = ARENA_ARRAY(a, float, (size_t)n);
  for (int i = 0; i < n; i++) { m.token[i] = "[UNUSED]"; m.len[i] = 8; m.type[i] = TEXT_TOKEN_UNUSED; }
  for (int i = 0; i < n_vocab; i++) {
    Val key = scored ? vocab->u.l->items[i].u.l->items[0] : vocab->u.d->keys[i];
    int id = scored ? i : (int)vocab->u.d->vals[i].u.i;
    m.token[id] = key.u.s->p;
    m.len[id] = (uint32_t)key.u.s->n;
    m.type[id] = key.u.s->n == 6 && !memcmp(key.u.s->p, "<0x", 3) && strcmp(kind, "gpt2") ? TEXT_TOKEN_BYTE : TEXT_TOKEN_NORMAL;
    if (scored) m.score[id] = (float)val_as_float(vocab->u.l->items[i].u.l->items[1]);
  }
  for (int i = 0; i < added->u.l->n; i++) {
    Val x = added->u.l->items[i];
    int id = (int)val_get(x, "id")->u.i;
    m.token[id] = val_get(x, "content")->u.s->p;
    m.len[id] = (uint32_t)val_get(x, "content")->u.s->n;
    m.type[id] = val_get(x, "special")->u.b ? TEXT_TOKEN_CONTROL : TEXT_TOKEN_USER;
  }
  m.merge = ARENA_ARRAY(a, const char *, (size_t)n_merges + 1);
  for (int i = 0; i < n_merges; i++) {
    Val x = merges->u.l->items[i];
    m.merge[i] = x.kind == V_STR ? x.u.s->p : arena_printf(a, "%s %s", x.u.l->items[0].u.s->p, x.u.l->items[1].u.s->p);
  }
  m.s = (TextVocabSource){.kind = kind, .pre = pre, .n_tokens = n, .token = m.token, .token_bytes = m.len, .type = m.type, .score = scored ? m.score : NULL, .n_merges = n_merges, .merge = m.merge,
                          .bos = -1, .eos = -1, .unk = -1, .sep = -1, .add_bos = 0, .add_eos = 0, .add_space_prefix = -1};
  str_free(&raw);
  return m;
}

/* Every text's ids against a golden file's; skip: parts of ids of texts that do not count, NULL-terminated. */
__attribute__((unused)) static void equals_golden(const TextVocab *v, const char *name, const char *key, int first_id, const char *const *skip) {
  Arena *a = arena_new("golden");
  char path[300];
  snprintf(path, sizeof path, "tests/text/tokenizers/%s.jsonl", name);
  Str texts = read_or_empty("tests/text/tokenizers/texts.jsonl"), rows = read_or_empty(path), miss = {0};
  size_t at = 0, rat = 0, n, rn;
  const char *p, *rp;
  int bad = 0, count = 0;
  while (next_line(&texts, &at, &p, &n) && next_line(&rows, &rat, &rp, &rn)) {
    Val t, r;
    EXPECT_OK(text_json_parse(a, p, n, &t));
    EXPECT_OK(text_json_parse(a, rp, rn, &r));
    Val text = *val_get(t, "text"), *want = val_get(r, key);
    const char *id = val_get(t, "id")->u.s->p;
    bool counts = true;
    for (int i = 0; skip && skip[i]; i++) counts &= !strstr(id, skip[i]);
    if (!counts) continue;
    if (!want) want = val_get(r, "ids");
    TextIds ids = {0};
    EXPECT_OK(text_tokenize(v, text.u.s->p, text.u.s->n, strcmp(key, "ids_special") ? 0 : TEXT_ADD_SPECIAL, &ids));
    bool same = (size_t)want->u.l->n == ids.n;
    for (size_t i = 0; i < ids.n && same; i++) same = want->u.l->items[i].u.i == ids.p[i] - first_id;
    if (!same && ++bad < 9) str_addf(&miss, " %s", id);
    count++;
    text_ids_free(&ids);
  }
  EXPECT(count > 250 && !bad, "%s: %d of %d differ:%s", name, bad, count, miss.p ? miss.p : "");
  str_free(&miss);
  str_free(&texts);
  str_free(&rows);
  arena_free(a);
}
#endif
