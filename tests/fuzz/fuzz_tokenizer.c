/* libFuzzer target of tokenizers. Four ways, by the first byte: metadata as a GGUF file has it, a line for each token or merge (the line's first
   byte its type, or 'm'), that tokenizes a fixed text; a broken tokenizer file (tokenizer.json, tokenizer.model, tekken.json, tiktoken: the
   text decides) that tokenizes a fixed text; a whole tokenizer file up to a zero byte and the text behind it; a text alone for vocabularies that are
   kept. Anything is refused or tokenized: ids are in the vocabulary, twice the same, what they say is UTF-8, and a text may be cut
   at a decoder's every id. tests/fuzz/run builds and runs it; LUMEN_FUZZ_TOKENIZERS is the folder of the vocabularies that are kept. */
#include <stdlib.h>
#include <string.h>
#include "text/priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static const char sample[] = "Hello  \xEA\xB0\x80\xEB\x82\x98\xEB\x8B\xA4 <s> [BOS] 1234567 \xFF don't\n\n\t<mask> api \xE1\x84\x80\xE1\x85\xA1 e\xCC\x81 \xF0\x9F\xA6\x99 aaaaaaaaaaaaaaaa";

static void check(const TextVocab *v, const char *p, size_t n, unsigned flags) {
  TextIds a = {0}, b = {0};
  Str text = {0}, whole = {0};
  Err *e = text_tokenize(v, p, n, flags, &a), *again = text_tokenize(v, p, n, flags, &b);
  if (!e != !again || a.n != b.n || (a.n && memcmp(a.p, b.p, a.n * sizeof *a.p))) abort();
  TextDecoder d;
  text_decoder_init(&d, v, flags);
  for (size_t i = 0; i < a.n; i++) {
    size_t was = text.n;
    if (a.p[i] < 0 || a.p[i] >= text_vocab_n_tokens(v)) abort();
    text_decode(&d, a.p[i], &text);
    if (text.n > was && text_utf8_valid(text.p + was, text.n - was) != text.n - was) abort();
  }
  text_decode_end(&d, &text);
  text_detokenize(v, a.p, a.n, flags, &whole);
  if (text.n != whole.n || (text.n && memcmp(text.p, whole.p, text.n)) || (text.n && text_utf8_valid(text.p, text.n) != text.n)) abort();
  err_free(e);
  err_free(again);
  text_ids_free(&a);
  text_ids_free(&b);
  str_free(&text);
  str_free(&whole);
}

static void broken_file(const char *p, size_t n, const char *text, size_t n_text, unsigned flags) {
  Arena *a = arena_new("file");
  Str s = {0};
  str_add_n(&s, p, n);
  TextVocab *v = NULL;
  Err *e = text_vocab_read(a, flags & TEXT_PLAIN ? "o200k.tiktoken" : "tiktoken.model", s.p, s.n, &v);
  if (!e) check(v, text, n_text, flags);
  err_free(e);
  text_vocab_free(v);
  str_free(&s);
  arena_free(a);
}

static void metadata(const char *p, size_t n, const char *text, size_t n_text, unsigned flags) {
  enum { LINES_MAX = 400 };
  static const char *const kinds[] = {"gpt2", "rwkv", "llama", "bert", "t5", "gemma4"};
  const char *token[LINES_MAX], *merge[LINES_MAX];
  uint32_t token_bytes[LINES_MAX], merge_bytes[LINES_MAX];
  int32_t type[LINES_MAX];
  float score[LINES_MAX];
  TextVocabSource s = {.kind = n ? kinds[(uint8_t)p[0] % COUNT_OF(kinds)] : "rwkv", .token = token, .token_bytes = token_bytes, .type = type, .score = score, .merge = merge,
                       .merge_bytes = merge_bytes, .bos = -1, .eos = -1, .unk = -1, .sep = -1, .add_bos = -1, .add_eos = -1, .add_space_prefix = -1};
  for (size_t at = n > 0; at < n && s.n_tokens < LINES_MAX && s.n_merges < LINES_MAX;) {
    const char *line = p + at, *nl = memchr(line, '\n', n - at);
    size_t k = nl ? (size_t)(nl - line) : n - at;
    at += k + 1;
    if (!k) continue;
    if (*line == 'm') {
      merge[s.n_merges] = line + 1;
      merge_bytes[s.n_merges++] = (uint32_t)(k - 1);
      continue;
    }
    token[s.n_tokens] = line + 1;
    token_bytes[s.n_tokens] = (uint32_t)(k - 1);
    type[s.n_tokens] = *line - '0';
    score[s.n_tokens] = -(float)(s.n_tokens % 7) / 3;
    s.n_tokens++;
  }
  s.unk = s.n_tokens ? 0 : -1;
  TextVocab *v = NULL;
  Err *e = text_vocab_new(&s, &v);
  if (!e) check(v, text, n_text, flags);
  err_free(e);
  text_vocab_free(v);
}

enum { N_KEPT = 8 };
static TextVocab *kept[N_KEPT];
static int n_kept = -1;

static int open_kept(void) {
  static const char *const names[N_KEPT] = {"qwen3/tokenizer.json.gz", "smollm2/tokenizer.json.gz", "mistral_v1/tokenizer.model", "pegasus/tokenizer.json.gz", "minilm/tokenizer.json",
    "standin-superbpe/tokenizer.json", "standin-flags/tokenizer.json", "standin-unigram/tokenizer.json"};
  const char *dir = getenv("LUMEN_FUZZ_TOKENIZERS");
  char path[1000];
  int n = 0;
  for (int i = 0; dir && i < N_KEPT; i++) {
    snprintf(path, sizeof path, "%s/%s", dir, names[i]);
    Err *e = text_vocab_open(path, &kept[n]);
    n += !e;
    err_free(e);
  }
  return n;
}

/* Opened before an input's time is taken. */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  n_kept = open_kept();
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (n_kept < 0) n_kept = open_kept();
  if (!n) return 0;
  const char *p = (const char *)data + 1;
  unsigned flags = data[0] >> 2 & 31;
  if (data[0] % 4 == 3) {
    if (n_kept > 0) check(kept[data[0] / 64 + (n > 1 && data[1] & 1 ? 4 : 0) < n_kept ? data[0] / 64 + (n > 1 && data[1] & 1 ? 4 : 0) : 0], p, n - 1, flags);
    return 0;
  }
  if (data[0] % 4 == 1) {
    metadata(p, n - 1, sample, sizeof sample - 1, flags);
    return 0;
  }
  const char *zero = data[0] % 4 == 2 ? memchr(p, 0, n - 1) : NULL;
  if (zero) broken_file(p, (size_t)(zero - p), zero + 1, n - 2 - (size_t)(zero - p), flags);
  else broken_file(p, n - 1, sample, sizeof sample - 1, flags);
  return 0;
}
