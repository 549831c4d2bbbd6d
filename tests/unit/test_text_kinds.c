/* Kinds of vocabularies against one another: a model file's metadata, tiktoken and tekken files and tokenizer.json say the same in other words and give
   the same ids; merging against the rule said plainly; what files may ask for. */
#include "base/json.h"
#include "text_golden.h"

static TextVocab *open_json(const char *name) {
  char path[300];
  TextVocab *v = NULL;
  snprintf(path, sizeof path, "tests/text/tokenizers/%s", name);
  EXPECT_OK(text_vocab_open(path, &v));
  CHECK(v, "test data is missing");
  return v;
}

/* The rule itself: of all neighbours that may merge those of the lowest rank do, the first of them first. */
static void plain_merge(const TextVocab *v, const char *p, size_t n, TextIds *out) {
  typedef struct Part { int32_t id; size_t off; } Part;
  Part *x = calloc(n + 1, sizeof *x);
  size_t m = 0;
  for (size_t at = 0; at < n; m++) {
    int32_t cp;
    size_t k = v->byte_level ? 1 : (size_t)text_utf8_next(p + at, p + n, &cp);
    x[m] = (Part){v->byte_level ? v->byte_id[(uint8_t)p[at]] : text_piece_find(v, p + at, k), at};
    at += k;
  }
  x[m].off = n;
  for (;;) {
    size_t best = m;
    MergeTo to = {0, -1};
    for (size_t i = 0; i + 1 < m; i++) {
      MergeTo one = text_pair_find(v, p + x[i].off, x[i + 2].off - x[i].off, x[i].id, x[i + 1].id);
      if (one.id >= 0 && (best == m || one.rank < to.rank)) { best = i; to = one; }
    }
    if (best == m) break;
    x[best].id = to.id;
    for (size_t i = best + 1; i < m; i++) x[i] = x[i + 1];
    m--;
  }
  for (size_t i = 0; i < m; i++) text_ids_add(out, x[i].id);
  free(x);
}

static uint32_t seed = 1;
static uint32_t rnd(uint32_t n) {
  seed = seed * 1664525 + 1013904223;
  return (seed >> 8) % n;
}

/* bits NULL: tokens that hold a mark of v's inside, and pieces of them. */
static void merges_as_the_rule_says(const char *name, const char *const *bits, uint32_t n_bits) {
  TextVocab *v = open_json(name);
  Arena *a = arena_new("bits");
  const char **own = ARENA_ARRAY(a, const char *, (size_t)v->n_tokens * 3);
  for (int i = 0; i < v->n_tokens && !bits; i++) {
    const Tok *t = &v->tok[i];
    const char *hit = t->in_model && t->n_piece > 1 && v->cuts.mark ? memmem(t->piece + 1, t->n_piece - 1, v->cuts.mark, v->cuts.n_mark) : NULL;
    if (!hit) continue;
    own[n_bits++] = arena_dup_n(a, t->piece, t->n_piece);
    own[n_bits++] = arena_dup_n(a, t->piece, (size_t)(hit - t->piece));
    own[n_bits++] = arena_dup_n(a, hit, t->n_piece - (size_t)(hit - t->piece));
  }
  if (!bits) { EXPECT(n_bits > 30, "%s: %u tokens with a mark inside", name, n_bits / 3); bits = own; }
  v->ignore_merges = false;
  int bad = 0;
  for (int round = 0; round < 400; round++) {
    Str s = {0};
    uint32_t n = 1 + rnd(round % 4 ? 30 : 250), kinds = 1 + rnd(n_bits);
    for (uint32_t i = 0; i < n; i++) str_add(&s, bits[rnd(kinds)]);
    TextIds want = {0}, got = {0};
    ModelScratch *scratch = text_model_scratch_new(s.n, false);
    plain_merge(v, s.p, s.n, &want);
    for (int twice = 0; twice < 2; twice++) { /* the second time from the table of words */
      got.n = 0;
      text_model_piece(v, scratch, s.p, s.n, &got);
      bad += got.n != want.n || memcmp(got.p, want.p, want.n * sizeof *want.p);
    }
    text_model_scratch_free(scratch);
    text_ids_free(&want);
    text_ids_free(&got);
    str_free(&s);
  }
  EXPECT(!bad, "%s: %d of 800 differ", name, bad);
  arena_free(a);
  text_vocab_free(v);
}

/* BERT's normalizer does plain characters in a loop of its own: here its parts are steps that do not. */
static void test_bert_steps(void) {
  static const char *const bits[] = {"a", "Z", " ", "\n", "\t", "\x01", "\xEA\xB0\x80", "\xED\x95\x9C", "\xE4\xB8\x80", "\xC3\xA9", "\xC3\x80", "e\xCC\x81", "\xCC\xA3\xCC\x81", "\xCC\x88",
    "\xE1\x84\x80\xE1\x85\xA1", "\xE1\x86\xA8", "\xEF\xA4\x80", "\xC4\xB0", "\xE2\x80\x8B", "\xC2\xA0", "\xEF\xBF\xBD", "\xFF", "\xE0\xA4\x95\xE0\xA4\xBC", "\xF0\xA0\x80\x80"};
  TEST("BERT's normalizer is its parts one after another") {
    int bad = 0;
    for (int round = 0; round < 4000; round++) {
      bool lower = round & 1, accents = round & 2, clean = round & 4, han = round & 8;
      const Step whole = {.kind = STEP_BERT, .clean = clean, .han = han, .accents = accents, .lower = lower};
      Step part[4] = {{.kind = STEP_BERT, .clean = clean, .han = han}};
      int n_parts = 1;
      if (accents) part[n_parts++] = (Step){.kind = STEP_FORM, .mode = FORM_NFD}, part[n_parts++] = (Step){.kind = STEP_STRIP_ACCENTS};
      if (lower) part[n_parts++] = (Step){.kind = STEP_LOWER};
      Str s = {0}, one = {0}, other = {0};
      for (uint32_t i = 0, n = 1 + rnd(round % 50 ? 12 : 3000); i < n; i++) str_add(&s, bits[rnd(COUNT_OF(bits))]);
      EXPECT_OK(text_steps_normalize(NULL, &whole, 1, s.p, s.n, &one));
      EXPECT_OK(text_steps_normalize(NULL, part, n_parts, s.p, s.n, &other));
      bad += one.n != other.n || (one.n && memcmp(one.p, other.p, one.n));
      str_free(&s);
      str_free(&one);
      str_free(&other);
    }
    EXPECT(!bad, "%d of 4000 differ", bad);
  }
}

/* What the longest key of keys[n] is that p[m] begins with, said plainly. */
static int longest_key(const TrieKey *key, int n, const char *p, uint32_t m) {
  int best = -1;
  for (int i = 0; i < n; i++)
    if (key[i].n <= m && !memcmp(key[i].p, p, key[i].n) && (best < 0 || key[i].n > key[best].n)) best = i;
  return best < 0 ? -1 : key[best].value;
}

static void test_tries(void) {
  TEST("a trie finds what looking at every key does, the first of equal ones") {
    int bad = 0;
    for (int round = 0; round < 200; round++) {
      Arena *a = arena_new("keys");
      int n = 1 + (int)rnd(round % 5 ? 20 : 2000);
      uint32_t spread = round % 3 ? 3 : 256, most = 1 + rnd(8);
      TrieKey *key = ARENA_ARRAY(a, TrieKey, (size_t)n), *same = ARENA_ARRAY(a, TrieKey, (size_t)n);
      for (int i = 0; i < n; i++) {
        uint32_t len = 1 + rnd(most);
        char *p = arena_alloc(a, len);
        for (uint32_t k = 0; k < len; k++) p[k] = (char)rnd(spread);
        key[i] = same[i] = (TrieKey){p, len, i};
      }
      Trie t;
      text_trie_make(&t, same, n);
      for (int i = 0; i < 300; i++) {
        char p[12];
        for (size_t k = 0; k < sizeof p; k++) p[k] = (char)rnd(spread);
        if (i % 2) memcpy(p, key[rnd((uint32_t)n)].p, 1);
        int found = -1;
        uint32_t node = TRIE_ROOT;
        for (size_t k = 0; k < sizeof p && (node = text_trie_step(&t, node, (uint8_t)p[k])) != 0; k++)
          if (t.unit[node].value >= 0) found = t.unit[node].value;
        bad += found != longest_key(key, n, p, sizeof p);
      }
      text_trie_free(&t);
      arena_free(a);
    }
    EXPECT(!bad, "%d of 60000 differ", bad);
  }
}

static void test_merges(void) {
  static const char *const bits[] = {"a", "e", "t", "th", "ing", "1", "\xEA\xB0\x80", "\xEB\x82\x98", "\xEC\x9D\x84", "_", "\xED\x95\x9C\xEA\xB5\xAD", "-", "\n", "S", "=", "\xF0\x9F\xA6\x99"};
  static const char *const spm[] = {"a", "\xE2\x96\x81", "e", "t", "th", "ing", "1", "\xEA\xB0\x80", "\xEB\x82\x98", "_", ">", "-", "s", "="};
  TEST("merging is the rule, in short words and long ones") {
    merges_as_the_rule_says("qwen3/tokenizer.json.gz", bits, COUNT_OF(bits));
    merges_as_the_rule_says("smollm2/tokenizer.json.gz", bits, COUNT_OF(bits));
    merges_as_the_rule_says("standin-superbpe/tokenizer.json", bits, COUNT_OF(bits));
  }
  TEST("words cut at the mark merge as the whole text does") {
    merges_as_the_rule_says("llama2/tokenizer.json.gz", spm, COUNT_OF(spm));
    merges_as_the_rule_says("mistral_v1/tokenizer.model", spm, COUNT_OF(spm));
    merges_as_the_rule_says("standin-superbpe/tokenizer.json", NULL, 0);
  }
}

/* A vocabulary in which one token goes on from '>' into the next word. */
static void test_uncut(void) {
  static const char *const tok[] = {"<unk>", "\xE2\x96\x81", "a", ">", ">\xE2\x96\x81", ">\xE2\x96\x81" "a", "\xE2\x96\x81" "a"}, *const merge[] = {"> \xE2\x96\x81", ">\xE2\x96\x81 a", "\xE2\x96\x81 a"};
  static const int32_t type[] = {2, 1, 1, 1, 1, 1, 1};
  TextVocabSource s = {.kind = "gemma4", .n_tokens = 7, .token = tok, .type = type, .n_merges = 3, .merge = merge, .bos = -1, .eos = -1, .unk = 0, .sep = -1, .add_bos = 0};
  TEST("a token across the mark keeps its words together") {
    TextVocab *v = NULL;
    TextIds ids = {0};
    EXPECT_OK(text_vocab_new(&s, &v));
    EXPECT_OK(text_tokenize(v, "a a> a a", 8, 0, &ids));
    static const int32_t want[] = {2, 6, 5, 6};
    EXPECT(ids.n == 4 && !memcmp(ids.p, want, sizeof want), "%zu ids", ids.n);
    text_ids_free(&ids);
    text_vocab_free(v);
  }
}

/* As llama.cpp's GGUF files of GPT-2's kind say it: their unknown token is the one that ends a text. */
static void test_lacking(void) {
  TEST("a byte that a vocabulary lacks gives no control token") {
    Arena *a = arena_new("source");
    TextVocab *json = open_json("smollm2/tokenizer.json.gz"), *v = NULL;
    TextVocabSource s;
    EXPECT_OK(text_vocab_source(a, json, 0, &s));
    s.unk = s.bos = 0;
    EXPECT_OK(text_vocab_new(&s, &v));
    EXPECT(v && text_vocab_is_special(v, 0), "0 is special");
    static const char *const bytes[] = {"a\xFF" "b\xF5\xC0 \xF1", "a\x04\x06" "b", "\xF1\x80\x80\x80", "\x80\xED\xA0\x80"}, *const text[] = {"a\xEF\xBF\xBD" "b\xEF\xBF\xBD\xEF\xBF\xBD \xEF\xBF\xBD", "ab", NULL, NULL};
    for (size_t i = 0; v && i < COUNT_OF(bytes); i++) {
      TextIds got = {0};
      Str back = {0};
      EXPECT_OK(text_tokenize(v, bytes[i], strlen(bytes[i]), 0, &got));
      for (size_t k = 0; k < got.n; k++) EXPECT(!text_vocab_is_special(v, got.p[k]), "text %zu: id %d", i, got.p[k]);
      text_detokenize(v, got.p, got.n, 0, &back);
      if (text[i]) EXPECT(back.p && !strcmp(back.p, text[i]), "text %zu: '%s'", i, back.p ? back.p : "");
      str_free(&back);
      text_ids_free(&got);
    }
    text_vocab_free(v);
    text_vocab_free(json);
    arena_free(a);
  }
}

static void add_base64(Str *out, const char *p, size_t n) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < n; i += 3) {
    uint32_t w = 0;
    for (size_t k = 0; k < 3; k++) w = w << 8 | (i + k < n ? (uint8_t)p[i + k] : 0);
    for (size_t k = 0; k < 4; k++) str_add_c(out, i + k > n ? '=' : digits[w >> (18 - 6 * k) & 63]);
  }
}

static TextVocab *read_as(const char *path, const Str *text) {
  Arena *a = arena_new("file");
  TextVocab *v = NULL;
  EXPECT_OK(text_vocab_read(a, path, text->p, text->n, &v));
  arena_free(a);
  return v;
}

/* Texts that hold the vocabulary's added tokens: files of ranks know none. */
static const char *const with_added[] = {"special", "added", "chat", NULL};

static void test_rank_files(void) {
  TextVocab *json = open_json("qwen3/tokenizer.json.gz");
  TEST("a tiktoken file of the same ranks gives the ids of the tokenizer.json") {
    Str text = {0};
    for (int i = 0; i < json->n_tokens; i++) {
      const Tok *t = &json->tok[i];
      if (!t->in_model || t->special) continue;
      add_base64(&text, t->piece, t->n_piece);
      str_addf(&text, " %d\n", i);
    }
    TextVocab *v = read_as("some/qwen.tiktoken", &text);
    if (v) equals_golden(v, "qwen3", "ids", 0, with_added);
    text_vocab_free(v);
    str_free(&text);
  }
  TEST("and a tekken file, a thousand higher") {
    Str text = {0};
    str_add(&text, "{\"config\": {\"pattern\": \"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, \"vocab\": [");
    int n = 0;
    for (int i = 0; i < json->n_tokens && json->tok[i].in_model; i++, n++) {
      str_addf(&text, "%s{\"rank\": %d, \"token_bytes\": \"", i ? ", " : "", i);
      add_base64(&text, json->tok[i].piece, json->tok[i].n_piece);
      str_add(&text, "\", \"token_str\": null}");
    }
    str_add(&text, "]}");
    static const char *const skip[] = {"special", "added", "chat", "marks", "kojamo", "ja-05", "eu-12", NULL}; /* it has no normal form either */
    TextVocab *v = read_as("tekken.json", &text);
    if (v) {
      equals_golden(v, "qwen3", "ids", 1000, skip);
      EXPECT(text_vocab_bos(v) == 1 && text_vocab_eos(v) == 2 && text_vocab_find(v, "[INST]", 6) == 3, "special tokens");
    }
    text_vocab_free(v);
    str_free(&text);
  }
  text_vocab_free(json);
}

static TextVocab *from_meta(Meta *m) {
  TextVocab *v = NULL;
  EXPECT_OK(text_vocab_new(&m->s, &v));
  return v;
}

static int find_token(const Meta *m, const char *text) {
  for (int i = 0; i < m->s.n_tokens; i++)
    if (!strcmp(m->token[i], text)) return i;
  return -1;
}

static void test_sources(void) {
  Arena *a = arena_new("meta");
  TEST("SentencePiece with merges (gemma4) from a model file's metadata") {
    TextVocab *json = open_json("llama2/tokenizer.json.gz");
    int n = json->n_tokens, n_merges = (int)json->merges.n, k = 0;
    const char **token = ARENA_ARRAY(a, const char *, (size_t)n), **merge = ARENA_ARRAY(a, const char *, (size_t)n_merges);
    int32_t *type = ARENA_ARRAY(a, int32_t, (size_t)n);
    for (int i = 0; i < n; i++) { token[i] = json->tok[i].text; type[i] = json->tok[i].type; }
    uint32_t top = 0;
    int32_t l, r;
    for (uint32_t i = 0; i <= json->merges.mask; i++)
      if (text_merge_at(&json->merges, i, &l, &r)) top = MAX(top, json->merges.slot[i].to.rank);
    uint64_t *by_rank = ARENA_ARRAY(a, uint64_t, (size_t)top + 1);
    for (uint32_t i = 0; i <= json->merges.mask; i++)
      if (text_merge_at(&json->merges, i, &l, &r)) by_rank[json->merges.slot[i].to.rank] = (uint64_t)(uint32_t)l << 32 | (uint32_t)r;
    for (uint32_t i = 0; i <= top; i++)
      if (by_rank[i]) merge[k++] = arena_printf(a, "%s %s", token[by_rank[i] >> 32], token[(uint32_t)by_rank[i]]);
    TextVocabSource s = {.kind = "gemma4", .n_tokens = n, .token = token, .type = type, .n_merges = k, .merge = merge, .bos = 1, .eos = 2, .unk = 0, .sep = -1, .add_bos = -1, .add_eos = 0, .add_space_prefix = 1};
    TextVocab *v = NULL;
    EXPECT_OK(text_vocab_new(&s, &v));
    if (v) equals_golden(v, "llama2", "ids_special", 0, NULL);
    text_vocab_free(v);
    text_vocab_free(json);
  }
  TEST("WordPiece (bert) from a model file's metadata") {
    Meta m = meta_of(a, "tests/text/tokenizers/minilm/tokenizer.json", "bert", NULL);
    for (int i = 0; i < m.s.n_tokens; i++) { /* model files spell the beginning of a word, tokenizer.json what goes on */
      if (m.type[i] != TEXT_TOKEN_NORMAL) continue;
      bool goes_on = !strncmp(m.token[i], "##", 2) && m.len[i] > 2;
      m.token[i] = goes_on ? m.token[i] + 2 : arena_printf(a, "\xE2\x96\x81%s", m.token[i]);
      m.len[i] = (uint32_t)strlen(m.token[i]);
    }
    m.s.bos = find_token(&m, "[CLS]");
    m.s.sep = find_token(&m, "[SEP]");
    m.s.unk = find_token(&m, "[UNK]");
    m.s.add_bos = -1;
    TextVocab *v = from_meta(&m);
    if (v) equals_golden(v, "minilm", "ids_special", 0, NULL);
    text_vocab_free(v);
  }
  arena_free(a);
}

static void refused(const char *json, const char *part) {
  Arena *a = arena_new("file");
  Str s = {0};
  TextVocab *v = NULL;
  str_add(&s, json);
  Err *e = text_vocab_read(a, "x.json", s.p, s.n, &v);
  EXPECT(e && strstr(err_text(e), part), "%.60s: expected '%s', got '%s'", json, part, e ? err_text(e) : "no error");
  err_free(e);
  text_vocab_free(v);
  str_free(&s);
  arena_free(a);
}

static void test_refused(void) {
  TEST("a small file asks for no large vocabulary") {
    refused("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 8388607}, \"merges\": []}}", "expected 1 to 65544");
    refused("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}, \"added_tokens\": [{\"id\": 8000000, \"content\": \"x\"}]}", "by their highest id");
    refused("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 9223372036854775807}, \"merges\": []}}", "by their highest id");
  }
  TEST("what is wrong in a vocabulary is told") {
    refused("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}}", "'a' without a good id");
    refused("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, }, \"merges\": []}}", "expected a key");
    refused("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0 \"b\": 1}, \"merges\": []}}", "expected ',' or '}'");
    refused("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a a\", 7]}}", "merges");
    refused("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]}}", "merges: entry 0,");
    refused("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [[\"a\", \"a\", \"a\"]]}}", "merges: entry 0,");
    refused("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"aa\"]}}", "merges: entry 0,");
#define RANKS(of_two) "{\"config\": {\"pattern\": \"a\", \"default_num_special_tokens\": 3}, \"vocab\": [{\"rank\": 0, \"token_bytes\": \"YQ==\"}, {\"rank\": " of_two ", \"token_bytes\": \"Yg==\"}]}"
    refused(RANKS("0"), "vocab: entry 1: rank 0 is there twice");
    refused(RANKS("-1"), "vocab: entry 1: rank -1, expected 0 to 1");
    refused(RANKS("2"), "vocab: entry 1: rank 2, expected 0 to 1");
    refused(RANKS("1"), "no rank for the byte 0x00");
    refused("{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 0], [\"b\"]]}}", "entry 1, expected [token, score]");
    refused("{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", \"b\"]]}}", "entry 0, expected [token, score]");
    refused("{\"model\": {\"type\": \"Unigram\", \"vocab\": {\"a\": 0}}}", "wrong type for a Unigram model");
    refused("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a \\q\"]}}", "escape");
    refused("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"merges\": []}}", "expected ','");
  }
}

static void test_surrogates(void) {
  static const char *const lone[] = {"{\"content\": \"emoji \\ud83d\"}", "{\"content\": \"x \\ude00 y\"}", "{\"prompt\": \"\\udcf0\"}", "{\"content\": \"\\ud83d\\ud83d\"}"};
  TEST("D20 a lone surrogate in a request's body is refused, a pair is one character") {
    json_t *v = NULL;
    for (size_t i = 0; i < COUNT_OF(lone); i++) {
      Err *e = json_parse_text(lone[i], strlen(lone[i]), 1 << 20, "body", &v);
      EXPECT(e && err_kind(e) == ERR_SYNTAX && strstr(err_text(e), "line 1"), "%s: %s", lone[i], e ? err_text(e) : "taken");
      err_free(e);
    }
    EXPECT_OK(json_parse_text("[\"\\ud83d\\ude00\"]", 16, 1 << 20, "body", &v));
    EXPECT(!strcmp(json_string_value(json_array_get(v, 0)), "\xF0\x9F\x98\x80"), "the pair");
    json_decref(v);
  }
}

/* Second halves of canonical compositions; Hangul's vowels and finals compose by rule. */
static void test_still(void) {
  TEST("still characters are their own normal form and join nothing before them") {
    uint8_t *second = calloc(1, 0x110000);
    int bad = 0, n_still = 0;
    for (int32_t c = 0xA0; c < 0x110000; c++) {
      Str one = {0}, form = {0};
      if (c >= 0xD800 && c < 0xE000) continue;
      text_utf8_add(&one, c);
      text_normal_form(one.p, one.n, FORM_NFD, &form);
      for (size_t at = 0; at < form.n;) {
        int32_t d;
        size_t k = (size_t)text_utf8_next(form.p + at, form.p + form.n, &d);
        if (at && d >= 0) second[d] = 1;
        at += k;
      }
      str_free(&one);
      str_free(&form);
    }
    for (int32_t c = 0xA0; c < 0x110000; c++)
      for (int k = 0; k < 2; k++) {
        NormalForm f = k ? FORM_NFKC : FORM_NFC;
        if ((c >= 0xD800 && c < 0xE000) || !text_char_is_still(c, f)) continue;
        Str one = {0}, apart = {0}, back = {0};
        text_utf8_add(&one, c);
        text_normal_form(one.p, one.n, k ? FORM_NFKD : FORM_NFD, &apart);
        str_add(&apart, "\xCC\x95"); /* U+0315 composes with nothing, but the whole goes the long way */
        text_normal_form(apart.p, apart.n, f, &back);
        bool kept = text_char_class(c) != CHAR_MARK && !second[c] && back.n == one.n + 2 && !memcmp(back.p, one.p, one.n);
        bad += !kept;
        n_still++;
        if (!kept && bad < 5) printf("# U+%04X in %s\n", (unsigned)c, k ? "NFKC" : "NFC");
        str_free(&one);
        str_free(&apart);
        str_free(&back);
      }
    EXPECT(!bad && n_still > 80000, "%d of %d are not", bad, n_still);
    free(second);
  }
}

/* The reference adds its tokens whatever the text begins and ends with; TEXT_ONCE, as a raw prompt is read, does not put them there twice. */
static void once(TextVocab *v, const char *text, unsigned flags, const char *want) {
  TextIds ids = {0};
  Str got = {0};
  EXPECT_OK(text_tokenize(v, text, strlen(text), flags, &ids));
  for (size_t i = 0; i < ids.n; i++) str_addf(&got, "%d ", ids.p[i]);
  EXPECT(!strcmp(got.p ? got.p : "", want), "%s: %s, expected %s", text, got.p ? got.p : "", want);
  str_free(&got);
  free(ids.p);
}

static void test_once(void) {
  TEST("a text that begins or ends with what is added") {
    TextVocab *v = open_json("mistral_v1");
    once(v, "<s>", TEXT_ADD_SPECIAL, "1 1 ");
    once(v, "<s>", TEXT_ADD_SPECIAL | TEXT_ONCE, "1 ");
    once(v, "<s><s>", TEXT_ADD_SPECIAL | TEXT_ONCE, "1 1 ");
    once(v, "", TEXT_ADD_SPECIAL | TEXT_ONCE, "1 ");
    text_vocab_free(v);
    v = open_json("pegasus");
    once(v, "</s>", TEXT_ADD_SPECIAL, "1 1 ");
    once(v, "</s>", TEXT_ADD_SPECIAL | TEXT_ONCE, "1 ");
    text_vocab_free(v);
  }
}

int main(void) {
  test_once();
  test_merges();
  test_uncut();
  test_tries();
  test_lacking();
  test_bert_steps();
  test_rank_files();
  test_sources();
  test_refused();
  test_surrogates();
  test_still();
  TEST_MAIN_END();
}
