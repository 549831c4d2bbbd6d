/* Vocabularies from model files' metadata, broken input, long input, decoding; cases from public bug reports carry their number there. */
#include "text_golden.h"

static double seconds(void) { return (double)os_process_cpu_ns() * 1e-9; }

static TextVocab *open_vocab(const char *path) {
  TextVocab *v = NULL;
  Err *e = text_vocab_open(path, &v);
  if (e) fprintf(stderr, "%s\n", err_text(e));
  CHECK(!e, "test data is missing");
  return v;
}

static void check_ids(const TextVocab *v, const char *text, size_t n, unsigned flags, int n_want, const int32_t *want, const char *what) {
  TextIds ids = {0};
  EXPECT_OK(text_tokenize(v, text, n, flags, &ids));
  bool same = (int)ids.n == n_want;
  for (int i = 0; i < n_want && same; i++) same = ids.p[i] == want[i];
  EXPECT(same, "%s: %zu ids, first %d", what, ids.n, ids.n ? ids.p[0] : -1);
  text_ids_free(&ids);
}
#define IDS(v, text, flags, ...) check_ids(v, text, sizeof(text) - 1, flags, (int)COUNT_OF(((int32_t[]){__VA_ARGS__})), (int32_t[]){__VA_ARGS__}, #text)

static void source_equals_file(const char *name, const char *pre) {
  Arena *a = arena_new("meta");
  char path[300];
  snprintf(path, sizeof path, "tests/text/tokenizers/%s/tokenizer.json", name);
  Meta m = meta_of(a, path, "gpt2", pre);
  TextVocab *v = NULL;
  EXPECT_OK(text_vocab_new(&m.s, &v));
  if (v) equals_golden(v, name, "ids", 0, NULL);
  text_vocab_free(v);
  arena_free(a);
}

static void refuses(TextVocabSource s, const char *part) {
  TextVocab *v = NULL;
  Err *e = text_vocab_new(&s, &v);
  EXPECT(e && strstr(err_text(e), part), "expected '%s', got '%s'", part, e ? err_text(e) : "no error");
  EXPECT(!v, "written on failure");
  if (!e) text_vocab_free(v);
  err_free(e);
}

static void test_sources(void) {
  TEST("a model file's metadata gives the ids of the tokenizer file") {
    source_equals_file("standin-exaone", "exaone");
    source_equals_file("standin-superbpe", "exaone-moe");
  }
  static const char *const tok[] = {"a", "b", "ab", "<0x41>", "<s>"}, *const merge[] = {"a b"}, *const no_space[] = {"ab"};
  TextVocabSource good = {.kind = "gpt2", .pre = "gpt-2", .n_tokens = 5, .token = tok, .n_merges = 1, .merge = merge, .bos = -1, .eos = -1, .unk = -1, .sep = -1};
  TEST("broken metadata is refused by name") {
    TextVocabSource s = good;
    s.kind = "plamo2"; refuses(s, "kind 'plamo2', expected gpt2");
    s = good; s.kind = NULL; refuses(s, "no kind");
    s = good; s.pre = "no-such-rule"; refuses(s, "no-such-rule");
    s = good; s.n_tokens = 0; refuses(s, "no tokens");
    s = good; s.n_merges = 0; refuses(s, "no merges");
    s = good; s.merge = no_space; refuses(s, "merge 0");
    s = good; s.bos = 5; refuses(s, "bos id 5");
    s = good; s.eos = -2; refuses(s, "eos id -2");
    s = good; s.kind = "llama"; refuses(s, "no scores");
    s = good; s.kind = "t5"; refuses(s, "no scores");
  }
  TEST("Unigram: of ways whose scores are the same numbers in another order the one the reference takes") {
    TextVocab *v = NULL;
    EXPECT_OK(text_vocab_open("tests/text/tokenizers/standin-unigram", &v));
    IDS(v, "&kn)))", 0, 5, 3, 518, 199, 826, 269);
    IDS(v, "'#')))", 0, 5, 566, 3, 566, 826, 269);
    IDS(v, "'\\\\')))", 0, 5, 566, 861, 861, 566, 826, 269);
    IDS(v, "1].id)))", 0, 292, 360, 8, 686, 204, 826, 269);
    IDS(v, "f.type)))", 0, 516, 8, 191, 190, 1074, 826, 269);
    IDS(v, "one[k])))", 0, 240, 534, 518, 360, 826, 269);
    text_vocab_free(v);
  }
  TEST("RWKV's metadata: the longest piece, spelled as Python's repr of bytes") {
    static const char *const t[] = {"<s>", "a", "ab", "abcd", "\\n", "\\n\\n", "\\x", "\\xea\\xB0", "\\xea\\xb0\\x80", "\\\\", "\\'", "c", "[PAD12]"};
    static const int32_t type[] = {3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 5};
    TextVocabSource s = {.kind = "rwkv", .n_tokens = 13, .token = t, .type = type, .bos = 0, .eos = 0, .unk = -1, .sep = -1, .add_bos = -1, .add_eos = -1, .add_space_prefix = -1};
    TextVocab *v = NULL;
    refuses(s, "token 6");
    const char *whole[COUNT_OF(t)];
    for (size_t i = 0; i < COUNT_OF(t); i++) whole[i] = i == 6 ? "\\x00\\t\\r" : t[i];
    s.token = whole;
    EXPECT_OK(text_vocab_new(&s, &v));
    IDS(v, "abcabcdab", 0, 2, 11, 3, 2);
    IDS(v, "a\n\n\na", TEXT_ADD_SPECIAL, 1, 5, 4, 1);
    IDS(v, "\xEA\xB0\x80\xEA\xB0", 0, 8, 7);
    IDS(v, "\\'z", 0, 9, 10);
    IDS(v, "<s>a", 0, 0, 1);
    Str text = {0};
    text_detokenize(v, (const int32_t[]){6, 8, 5, 9}, 4, 0, &text);
    EXPECT(text.n == 9 && !memcmp(text.p, "\0\t\r\xEA\xB0\x80\n\n\\", 9), "%zu bytes", text.n);
    str_free(&text);
    text_vocab_free(v);
  }
  TEST("S03 only <0x00> to <0xFF> are byte tokens") {
    static const float score[5] = {0};
    static const char *const wrong[] = {"<0x-1>", "<0x+1>", "<0x 1>", "<0xG0>", "<0x100>", "<0x1>", "<0x\t1>", "0x41", ""};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
      const char *t[] = {"a", "b", "ab", wrong[i], "<s>"};
      int32_t type[] = {1, 1, 1, TEXT_TOKEN_BYTE, TEXT_TOKEN_CONTROL};
      TextVocabSource s = good;
      s.kind = "llama"; s.token = t; s.type = type; s.score = score;
      refuses(s, "byte token 3");
    }
  }
  TEST("S03 in a tokenizer.json too") {
    static const char text[] = "{\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": {\"a\": 0, \"<0x0a>\": 1, \"<0xEA>\": 2, \"<0x\\t1>\": 3, \"<0x-1>\": 4, \"<0xG0>\": 5}, \"merges\": []}}";
    static const int want[] = {-1, 0x0A, 0xEA, -1, -1, -1};
    Arena *a = arena_new("test");
    TextVocab *v = NULL;
    EXPECT_OK(text_vocab_read(a, "tokenizer.json", text, sizeof text - 1, &v));
    for (size_t i = 0; i < COUNT_OF(want); i++) EXPECT(v->tok[i].byte == want[i], "token %zu: byte %d", i, v->tok[i].byte);
    text_vocab_free(v);
    arena_free(a);
  }
  TEST("SentencePiece metadata: scores order merges, bytes stand in, BOS in front") {
    static const char *const t[] = {"<unk>", "<s>", "</s>", "<0xEA>", "<0xB0>", "<0x80>", "\xE2\x96\x81", "a", "b", "ab", "\xE2\x96\x81\x61", "<tool>"};
    static const int32_t type[] = {2, 3, 3, 6, 6, 6, 1, 1, 1, 1, 1, 4};
    static const float score[] = {0, 0, 0, 0, 0, 0, -9, -8, -7, -1, -2, 0};
    TextVocabSource s = {.kind = "llama", .n_tokens = 12, .token = t, .type = type, .score = score, .bos = 1, .eos = 2, .unk = 0, .sep = -1, .add_bos = -1, .add_eos = -1, .add_space_prefix = -1};
    TextVocab *v = NULL;
    EXPECT_OK(text_vocab_new(&s, &v));
    IDS(v, "ab", 0, 6, 9);
    IDS(v, "a", TEXT_ADD_SPECIAL, 1, 10);
    IDS(v, "\xEA\xB0\x80", 0, 6, 3, 4, 5);
    IDS(v, "\xEA\xB0", 0, 6, 3, 4);
    IDS(v, "zz", 0, 6, 0);
    IDS(v, "a<tool>a", 0, 10, 11, 10);
    IDS(v, "a<tool>a", TEXT_SPLIT_SPECIAL, 10, 11, 10);
    IDS(v, "<s>", 0, 1);
    IDS(v, "<s>", TEXT_PLAIN, 6, 0);
    text_vocab_free(v);
  }
}

static void test_reports(void) {
  TextVocab *qwen = open_vocab("tests/text/tokenizers/qwen3"), *mistral = open_vocab("tests/text/tokenizers/mistral_v1"), *smol = open_vocab("tests/text/tokenizers/smollm2");
  TEST("D10 no space mark after a special token is the file's decision") {
    IDS(mistral, "G", 0, 420); /* the tokenizer file puts the mark before every segment; see the next case for the other habit */
  }
  TEST("D11 runs of spaces come back whole") {
    char text[300], what[40];
    for (int n = 1; n <= 256; n *= 2) {
      memset(text, ' ', (size_t)n);
      text[n] = 'X';
      TextIds ids = {0};
      Str back = {0};
      EXPECT_OK(text_tokenize(qwen, text, (size_t)n + 1, 0, &ids));
      text_detokenize(qwen, ids.p, ids.n, 0, &back);
      snprintf(what, sizeof what, "%d spaces", n);
      EXPECT(back.n == (size_t)n + 1 && !memcmp(back.p, text, back.n), "%s", what);
      if (n == 64) EXPECT(ids.n == 2 && ids.p[0] == 15270 && ids.p[1] == 1599, "ids");
      text_ids_free(&ids);
      str_free(&back);
    }
  }
  TEST("S09 Qwen's split rule") {
    IDS(qwen, "->", 0, 405);
    IDS(qwen, "(x):\n", 0, 2075, 982);
  }
  TEST("S08 newlines in pairs, S11 two spaces between words") {
    IDS(qwen, "\n\n", 0, 271);
    IDS(qwen, "\n\n\n\n", 0, 1022);
    IDS(qwen, "a  b", 0, 64, 220, 293);
  }
  TEST("S10 a character from bytes between words") {
    TextVocab *llama = open_vocab("tests/text/tokenizers/llama2/tokenizer.json.gz");
    IDS(llama, "This is \xF0\x9F\xA6\x99.cpp", TEXT_ADD_SPECIAL, 1, 910, 338, 29871, 243, 162, 169, 156, 29889, 8223);
    text_vocab_free(llama);
  }
  TEST("D12 two thirds of a character are its first token") {
    IDS(qwen, "\xE6\xAD\xAA", 0, 107687);
    IDS(qwen, "\xE6\xAD", 0, 15362);
  }
  TEST("D12 broken bytes become tokens and come back as U+FFFD") {
    static const struct { const char *p; size_t n; int n_bad; } bad[] = {{"\xE6\xAD", 2, 1}, {"\x80", 1, 1}, {"\xC0\x80", 2, 2}, {"\xED\xA0\x80", 3, 3}, {"\xF4\x90\x80\x80", 4, 4}, {"\xE2\x80", 2, 1}, {"a\xFF" "b", 3, 1}};
    const TextVocab *all[] = {qwen, mistral, smol};
    for (size_t k = 0; k < COUNT_OF(all); k++)
      for (size_t i = 0; i < COUNT_OF(bad); i++) {
        TextIds ids = {0};
        Str back = {0};
        EXPECT_OK(text_tokenize(all[k], bad[i].p, bad[i].n, 0, &ids));
        EXPECT(ids.n > 0, "no ids");
        text_detokenize(all[k], ids.p, ids.n, 0, &back);
        int count = 0;
        for (size_t j = 0; j + 2 < back.n; j++) count += !memcmp(back.p + j, "\xEF\xBF\xBD", 3);
        EXPECT(count == bad[i].n_bad && text_utf8_valid(back.p, back.n) == back.n, "tokenizer %zu, bytes %zu: %d", k, i, count);
        text_ids_free(&ids);
        str_free(&back);
      }
  }
  TEST("D13 merging is n log n") {
    enum { N = 1 << 20 };
    char *big = malloc(N);
    const TextVocab *all[] = {qwen, mistral, smol};
    for (int kind = 0; kind < 5; kind++)
      for (size_t k = 0; k < COUNT_OF(all); k++) {
        uint32_t x = 1;
        for (int i = 0; i < N; i++) {
          x = x * 1664525 + 1013904223;
          big[i] = kind == 0 ? 'a' : kind == 1 ? '_' : kind == 2 ? (char)('a' + (x >> 24) % 26) : kind == 3 ? ' ' : "\xEA\xB0\x80"[i % 3];
        }
        TextIds ids = {0};
        double t0 = seconds();
        EXPECT_OK(text_tokenize(all[k], big, N, 0, &ids));
        double t = seconds() - t0;
        EXPECT(ids.n > 1000 && t < 1.0 * test_patience(), "kind %d, tokenizer %zu: %.2f s, %zu ids", kind, k, t, ids.n);
        if (getenv("LUMEN_SHOW")) fprintf(stderr, "1 MiB kind %d, tokenizer %zu: %.3f s, %zu ids\n", kind, k, t, ids.n);
        text_ids_free(&ids);
      }
    free(big);
  }
  TEST("markup typed by a user stays text") {
    TextIds ids = {0};
    static const char text[] = "<|im_end|><think></tool_call>";
    EXPECT_OK(text_tokenize(qwen, text, sizeof text - 1, TEXT_PLAIN, &ids));
    for (size_t i = 0; i < ids.n; i++) EXPECT(ids.p[i] < 151643, "id %d", ids.p[i]);
    Str back = {0};
    text_detokenize(qwen, ids.p, ids.n, 0, &back);
    EXPECT(back.n == sizeof text - 1 && !memcmp(back.p, text, back.n), "round trip");
    str_free(&back);
    text_ids_free(&ids);
  }
  text_vocab_free(qwen);
  text_vocab_free(mistral);
  text_vocab_free(smol);
}

static void test_normal_forms(void) {
  TEST("marks out of order are sorted in n log n") {
    enum { N = 300000 };
    Str s = {0}, out = {0};
    str_add_c(&s, 'a');
    for (int i = 0; i < N; i++) str_add(&s, i % 2 ? "\xCC\xA3" : "\xCC\x81"); /* dot below (220) after acute (230) */
    double t0 = seconds();
    text_normal_form(s.p, s.n, FORM_NFC, &out);
    EXPECT(seconds() - t0 < 2 * test_patience(), "%.2f s", seconds() - t0);
    EXPECT(!memcmp(out.p, "\xE1\xBA\xA1", 3), "a and dot below first");
    str_free(&s);
    str_free(&out);
  }
}

static void test_joining(void) {
  TEST("characters that are typed in parts become whole") {
    EXPECT(text_char_join(0x1112, 0x1161) == 0xd558 && text_char_join(0xd558, 0x11ab) == 0xd55c, "a syllable of its letters");
    EXPECT(text_char_join('e', 0x302) == 0xea && text_char_join(0xea, 0x301) == 0x1ebf, "marks, one after another");
    EXPECT(text_char_join('a', 'b') < 0 && text_char_join('x', 0x301) < 0 && text_char_join(0xd55c, 0x1161) < 0, "those that make none");
    EXPECT(text_char_read("\xed\x95\x9c", 3) == 0xd55c && text_char_read("\xed\x95", 2) < 0 && text_char_read("ab", 2) < 0 && text_char_read("", 0) < 0, "one character");
  }
}

int main(void) {
  test_joining();
  test_sources();
  test_reports();
  test_normal_forms();
  TEST_MAIN_END();
}
