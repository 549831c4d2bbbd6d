/* A vocabulary as a GGUF file says it: the inverse of text_vocab_new. In: an immutable vocabulary, from whatever file. Out: the plain struct of
   text.h, in an arena. Kinds that GGUF's readers know only: byte-level BPE with merges and a split rule that has a name, and SentencePiece's
   BPE, whose merges are ordered by the scores of what they make. Whether the result reads texts alike, the caller tries. */
#include <stdlib.h>
#include <string.h>
#include "text/priv.h"

/* Texts that tell split rules apart: what every rule of splits.def treats in its own way stands in them. */
static const char *const probes[] = {
  "Hello, World! It's we'll I'M they'RE don't CAN'T", "1 12 123 1234 12345678 3.14 1,000,000 0x1F v2.0", "a  b   c\t\td\n\ne\r\n  f \n g   ", "こんにちは世界 カタカナ 中文字符、标点。 한국어 문장입니다.",
  "e\xCC\x81 n\xCC\x83o \xE0\xB8\x99\xE0\xB9\x89\xE0\xB8\xB3 \xE0\xA4\xB9\xE0\xA4\xBF\xE0\xA4\x82\xE0\xA4\xA6\xE0\xA5\x80 \xD8\xA7\xD9\x84\xD8\xB3\xD9\x84\xD8\xA7\xD9\x85", "!? ... -- (x) [y] {z} <tag/> a_b $5 +6 =7 ^8 ~9 |0 `q` #!/bin/sh\n\t//c\n\n\n#x",
  "CamelCase HTMLParser iPhone ABCdef \xC3\x80\xC3\xA9 \xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 \xCE\x93\xCE\xB5\xCE\xB9\xCE\xAC", "\xF0\x9F\x98\x80\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD \xE2\x82\xAC\x35 \xC2\xBD \xE2\x85\xA3 \xD9\xA3\xD9\xA4 \xC2\xA0x \xE3\x80\x80y  ", "'s 'S 're 123abc abc123 a1b2 ,x .y\n.\r\n\r\n \n",
};

static void put_piece(void *to, const char *p, size_t n) { str_add_n(to, p, n); }
static void put_ended(void *to, const char *p, size_t n) {
  str_add_n(to, p, n);
  str_add_c(to, 0);
}

/* The pieces of all probes under some steps, each ended by a zero byte. */
static Err *cut_probes(const TextVocab *v, Str *out) {
  Arena *a = arena_new("probes");
  Err *e = NULL;
  for (size_t i = 0; i < COUNT_OF(probes) && !e; i++) {
    Str s = {0};
    e = text_steps_normalize(v, v->norm, v->n_norm, probes[i], strlen(probes[i]), &s);
    if (!e) text_steps_split(v, a, s.p ? s.p : "", s.n, true, put_ended, out);
    str_free(&s);
  }
  arena_free(a);
  return e;
}

/* Does the rule cut the probes into these pieces? *whole: it takes pieces that are tokens whole. */
static Err *try_rule(const char *name, const Str *want, bool *same, bool *whole) {
  Str got = {0};
  TextVocab *t = text_vocab_alloc(1);
  Err *e = text_split_rule(t, name);
  if (!e) e = cut_probes(t, &got);
  *same = !e && got.n == want->n && !memcmp(got.p, want->p, got.n);
  *whole = t->ignore_merges;
  text_vocab_free(t);
  str_free(&got);
  return e;
}

/* The name of the first rule that cuts the probes alike, best one that takes whole pieces alike too. */
static Err *find_rule(const TextVocab *v, const char **out) {
  Str want = {0};
  Err *e = cut_probes(v, &want);
  bool same, whole, alike = false;
  *out = NULL;
  for (int i = 0; !e && !alike && text_split_rule_name(i); i++) {
    e = try_rule(text_split_rule_name(i), &want, &same, &whole);
    alike = !e && same && whole == v->ignore_merges;
    if (!e && same && (alike || !*out)) *out = text_split_rule_name(i);
  }
  str_free(&want);
  return e || *out ? e : err_new(ERR_UNSUPPORTED, "tokenizer: cuts words as no named rule of GGUF does");
}

typedef struct Merge { uint32_t rank; int32_t left, right, id; } Merge;
static int by_rank(const void *x, const void *y) {
  const Merge *a = x, *b = y;
  return (a->rank > b->rank) - (a->rank < b->rank);
}

static Merge *merges_in_order(Arena *a, const TextVocab *v, int *n) {
  const MergeMap *m = &v->merges;
  Merge *all = ARENA_ARRAY(a, Merge, (size_t)m->n + 1);
  *n = 0;
  for (uint32_t i = 0; m->slot && i <= m->mask; i++) {
    int32_t left, right;
    if (text_merge_at(m, i, &left, &right)) all[(*n)++] = (Merge){m->slot[i].to.rank, left, right, m->slot[i].to.id};
  }
  qsort(all, (size_t)*n, sizeof *all, by_rank);
  return all;
}

static Err *put_merges(Arena *a, const TextVocab *v, TextVocabSource *out) {
  int n;
  const Merge *all = merges_in_order(a, v, &n);
  const char **text = ARENA_ARRAY(a, const char *, (size_t)n + 1);
  uint32_t *n_bytes = ARENA_ARRAY(a, uint32_t, (size_t)n + 1);
  if (!n) return err_new(ERR_UNSUPPORTED, "tokenizer: says no merges, which GGUF files of this kind hold");
  for (int i = 0; i < n; i++) {
    const Tok *l = &v->tok[all[i].left], *r = &v->tok[all[i].right];
    text[i] = arena_printf(a, "%.*s %.*s", (int)l->n_text, l->text, (int)r->n_text, r->text);
    n_bytes[i] = l->n_text + r->n_text + 1;
  }
  out->merge = text;
  out->merge_bytes = n_bytes;
  out->n_merges = n;
  return NULL;
}

/* Scores as they are, or what orders the merges: the first merge that makes a token has rank 0. Tokens that no merge makes come last. */
static void put_scores(Arena *a, const TextVocab *v, TextVocabSource *out) {
  float *score = ARENA_ARRAY(a, float, (size_t)out->n_tokens);
  int n = 0;
  const Merge *all = v->by_rank ? NULL : merges_in_order(a, v, &n);
  for (int i = 0; i < out->n_tokens; i++) score[i] = v->by_rank && i < v->n_tokens ? (float)v->tok[i].score : -1e9f;
  for (int i = n - 1; i >= 0; i--) if (all[i].id < out->n_tokens) score[all[i].id] = -(float)i;
  out->score = score;
}

/* What stands around a text, as switches. */
static Err *put_around(const TextVocab *v, TextVocabSource *out) {
  bool bos = v->n_prefix == 1 && v->prefix[0] == v->bos, eos = v->n_suffix == 1 && v->suffix[0] == v->eos;
  if ((v->n_prefix && !bos) || (v->n_suffix && !eos)) return err_new(ERR_UNSUPPORTED, "tokenizer: puts other tokens than BOS and EOS around a text");
  out->add_bos = bos;
  out->add_eos = eos;
  return NULL;
}

/* SentencePiece's spaces: a mark for every space, and perhaps one in front. Told by what the steps do to a word. */
static Err *put_spaces(const TextVocab *v, TextVocabSource *out) {
  Arena *a = arena_new("spaces");
  Str s = {0}, all = {0};
  Err *e = text_steps_normalize(v, v->norm, v->n_norm, "a b", 3, &s);
  if (!e) text_steps_split(v, a, s.p ? s.p : "", s.n, true, put_piece, &all);
  bool plain = all.p && !strcmp(all.p, "a\xE2\x96\x81" "b"), marked = all.p && !strcmp(all.p, "\xE2\x96\x81" "a\xE2\x96\x81" "b");
  if (!e && !plain && !marked) e = err_new(ERR_UNSUPPORTED, "tokenizer: writes spaces as no kind of GGUF does");
  out->add_space_prefix = marked;
  str_free(&s);
  str_free(&all);
  arena_free(a);
  return e;
}

/* SentencePiece's runs of marks are listed as added tokens, too; but texts hold spaces there, so that only merges ever make them. */
static bool only_merged(const TextVocab *v, const Tok *t) {
  return !v->byte_level && t->in_model && !t->special && t->type == TEXT_TOKEN_USER && memmem(t->text, t->n_text, "\xE2\x96\x81", 3);
}

static void put_tokens(Arena *a, const TextVocab *v, int n_tokens, TextVocabSource *out) {
  const char **text = ARENA_ARRAY(a, const char *, (size_t)n_tokens);
  uint32_t *n_bytes = ARENA_ARRAY(a, uint32_t, (size_t)n_tokens);
  int32_t *type = ARENA_ARRAY(a, int32_t, (size_t)n_tokens);
  for (int i = 0; i < n_tokens; i++) {
    const Tok *t = i < v->n_tokens ? &v->tok[i] : NULL;
    bool none = !t || !t->text || !t->n_text;
    text[i] = none ? arena_printf(a, "[PAD%d]", i) : arena_dup_n(a, t->text, t->n_text);
    n_bytes[i] = none ? (uint32_t)strlen(text[i]) : t->n_text;
    type[i] = none ? TEXT_TOKEN_UNUSED : i == v->unk && !v->byte_level ? TEXT_TOKEN_UNKNOWN : only_merged(v, t) ? TEXT_TOKEN_NORMAL : t->type;
  }
  out->n_tokens = n_tokens;
  out->token = text;
  out->token_bytes = n_bytes;
  out->type = type;
}

/* The two must read the probes alike: what GGUF cannot say of a tokenizer is refused, not lost. */
static Err *check_alike(const TextVocab *v, const TextVocabSource *s) {
  TextVocab *again;
  TRY(text_vocab_new(s, &again));
  Err *e = NULL;
  for (size_t i = 0; i < COUNT_OF(probes) && !e; i++) {
    TextIds a = {0}, b = {0};
    e = text_tokenize(v, probes[i], strlen(probes[i]), TEXT_ADD_SPECIAL, &a);
    if (!e) e = text_tokenize(again, probes[i], strlen(probes[i]), TEXT_ADD_SPECIAL, &b);
    if (!e && (a.n != b.n || (a.n && memcmp(a.p, b.p, a.n * sizeof *a.p))))
      e = err_new(ERR_UNSUPPORTED, "tokenizer: as a GGUF file could say it, of kind %s, it would read \"%.20s..\" in another way", s->kind, probes[i]);
    text_ids_free(&a);
    text_ids_free(&b);
  }
  text_vocab_free(again);
  return e;
}

Err *text_vocab_source(Arena *a, const TextVocab *v, int n_tokens, TextVocabSource *out) {
  TextVocabSource s = {.bos = v->bos, .eos = v->eos, .unk = v->unk, .sep = -1, .add_bos = -1, .add_eos = -1, .add_space_prefix = -1};
  if (v->model != MODEL_BPE || (v->byte_level && v->by_rank) || (!v->byte_level && !v->byte_fallback))
    return err_new(ERR_UNSUPPORTED, "tokenizer: of a kind that cannot be written to a GGUF file, expected byte-level BPE or SentencePiece's BPE, each with its merges");
  s.kind = v->byte_level ? "gpt2" : "llama";
  TRY(put_around(v, &s));
  if (v->byte_level) TRY(find_rule(v, &s.pre));
  if (v->byte_level) TRY(put_merges(a, v, &s));
  else TRY(put_spaces(v, &s));
  put_tokens(a, v, n_tokens ? n_tokens : v->n_tokens, &s);
  if (!v->byte_level) put_scores(a, v, &s);
  if (s.bos >= s.n_tokens || s.eos >= s.n_tokens || s.unk >= s.n_tokens) return err_new(ERR_FORMAT, "tokenizer: special tokens past the %d tokens that the model knows", s.n_tokens);
  TRY(check_alike(v, &s));
  *out = s;
  return NULL;
}
