/* Broken templates, tokenizer files and JSON: any bytes must end in a result or an Err, never in a crash. Mutations are reproducible;
   LUMEN_FUZZ multiplies the rounds. */
#include <dirent.h>
#include "text_golden.h"

static uint32_t state = 12345;
static uint32_t rnd(uint32_t n) {
  state = state * 1664525 + 1013904223;
  return n ? (state >> 8) % n : 0;
}

static void mutate(Str *s, const Str *other) {
  static const char *const bits[] = {"{%", "%}", "{{", "}}", "(", ")", "[", "]", "\"", "'", "|", "-", "{% endif %}", "{% for x in y %}", "{% endfor %}", "null", "0", "99999999999", "-1", ",", ":", "{", "}", "\xFF", "\xED\xA0\x80", "\\u", "\\ud800"};
  for (uint32_t k = 1 + rnd(4); k && s->n > 4; k--) {
    uint32_t at = rnd((uint32_t)s->n - 1), len = 1 + rnd(12), kind = rnd(5);
    len = MIN(len, (uint32_t)s->n - at);
    Str r = {0};
    str_add_n(&r, s->p, at);
    if (kind == 0) str_add_c(&r, (char)rnd(256));
    if (kind == 1) str_add(&r, bits[rnd((uint32_t)COUNT_OF(bits))]);
    if (kind == 2) { str_add_n(&r, s->p + at, len); len = 0; }
    if (kind == 3 && other->n > 64) str_add_n(&r, other->p + rnd((uint32_t)other->n - 60), 1 + rnd(50));
    str_add_n(&r, s->p + at + len, s->n - at - len);
    str_free(s);
    *s = r;
  }
}

static int rounds(int n) {
  const char *more = getenv("LUMEN_FUZZ");
  return more ? n * atoi(more) : n;
}

static void fuzz_templates(void) {
  struct dirent **names;
  int n = scandir("tests/text/templates/templates", &names, NULL, alphasort), parsed = 0, done = 0, total = 0;
  Str conversations = read_or_empty("tests/text/templates/conversations.json");
  Arena *a = arena_new("conversations");
  Val all;
  EXPECT_OK(text_json_parse(a, conversations.p, conversations.n, &all));
  struct tm now = {.tm_year = 126, .tm_mday = 1};
  for (int i = 0; i < rounds(1500); i++) {
    char path[600];
    const char *name = names[2 + rnd((uint32_t)n - 2)]->d_name;
    snprintf(path, sizeof path, "tests/text/templates/templates/%s", name);
    Str src = read_or_empty(path), whole = src, out = {0}, json = {0};
    src = (Str){0};
    str_add_n(&src, whole.p, whole.n);
    mutate(&src, &whole);
    Arena *b = arena_new("case");
    Render r = {.arena = b};
    Val text = text_to_json(&r, all.u.d->vals[rnd((uint32_t)all.u.d->n)], false, val_none(), val_none(), false);
    str_add_n(&json, text.u.s->p, text.u.s->n);
    TextTemplate *t = NULL;
    Err *e = text_template_parse(b, src.p, src.n, &t);
    parsed += !e;
    if (!e) e = text_template_chat_text(t, json.p, json.n, &now, &out);
    done += !e;
    total++;
    err_free(e);
    str_free(&src);
    str_free(&whole);
    str_free(&out);
    str_free(&json);
    arena_free(b);
  }
  EXPECT(parsed > total / 20 && parsed < total && done > 0, "%d of %d parsed, %d rendered", parsed, total, done);
  for (int i = 0; i < n; i++) free(names[i]);
  free(names);
  str_free(&conversations);
  arena_free(a);
}

/* A broken tokenizer file, written where text_vocab_open can read it; what still opens must still tokenize. */
/* in_place: bytes change but none come or go, which keeps a protocol buffer's lengths mostly right. */
static void fuzz_tokenizer(const char *path, bool in_place, int n) {
  Str whole = read_or_empty(path);
  int opened = 0;
  char file[64] = "/tmp/lumen-fuzz-XXXXXX";
  int fd = mkstemp(file);
  CHECK(fd >= 0 && whole.n, "no test data");
  for (int i = 0; i < rounds(n); i++) {
    Str s = {0};
    str_add_n(&s, whole.p, whole.n);
    if (in_place) for (int k = 0; k < 3; k++) s.p[rnd((uint32_t)s.n)] = (char)rnd(256);
    else mutate(&s, &whole);
    EXPECT_OK(os_write_file(file, s.p, s.n));
    TextVocab *v = NULL;
    Err *e = text_vocab_open(file, &v);
    if (!e) {
      static const char sample[] = "Hello  \xEA\xB0\x80\xEB\x82\x98 <s> [BOS] 123 \xFF don't\n\n\t<mask> api";
      TextIds ids = {0};
      Str back = {0};
      e = text_tokenize(v, sample, sizeof sample - 1, TEXT_ADD_SPECIAL, &ids);
      text_detokenize(v, ids.p, ids.n, 0, &back);
      EXPECT(text_utf8_valid(back.p ? back.p : "", back.n) == back.n, "broken text");
      text_ids_free(&ids);
      str_free(&back);
      opened++;
    }
    err_free(e);
    text_vocab_free(v);
    str_free(&s);
  }
  EXPECT(opened > 0, "%s: none of the broken files opened, so nothing was tried", path);
  remove(file);
  str_free(&whole);
}

int main(void) {
  TEST("broken templates") fuzz_templates();
  TEST("broken tokenizer.json") {
    fuzz_tokenizer("tests/text/tokenizers/standin-flags/tokenizer.json", false, 60);
    fuzz_tokenizer("tests/text/tokenizers/standin-unigram/tokenizer.json", false, 100);
  }
  TEST("broken tokenizer.model") fuzz_tokenizer("tests/text/tokenizers/mistral_v1/tokenizer.model", true, 30);
  TEST_MAIN_END();
}
