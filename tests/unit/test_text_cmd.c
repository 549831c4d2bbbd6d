/* The command bodies: their options, their output to the byte, their errors. */
#include "text_golden.h"

typedef Err *(*Body)(const TextTokenizeOptions *, FILE *, FILE *);

static Err *run(Body body, TextTokenizeOptions o, const char *input, size_t n, Str *out) {
  FILE *in = tmpfile(), *f = tmpfile();
  CHECK(in && f, "no temporary file");
  fwrite(input, 1, n, in);
  rewind(in);
  Err *e = body(&o, in, f);
  rewind(f);
  Err *e2 = os_read_all(f, 1 << 20, out);
  CHECK(!e2, "reading back");
  fclose(in);
  fclose(f);
  return e;
}

static void gives(Body body, TextTokenizeOptions o, const char *input, const char *want) {
  Str out = {0};
  Err *e = run(body, o, input, strlen(input), &out);
  EXPECT(!e && !strcmp(out.p ? out.p : "", want), "got '%s', expected '%s'", e ? err_text(e) : out.p, want);
  err_free(e);
  str_free(&out);
}

static void fails(Body body, TextTokenizeOptions o, const char *input, const char *good, const char *part) {
  Str out = {0};
  Err *e = run(body, o, input, strlen(input), &out);
  EXPECT(e && strstr(err_text(e), part), "got '%s', expected '%s'", e ? err_text(e) : "no error", part);
  EXPECT(!strcmp(out.n ? out.p : "", good), "'%s' written before the failure, expected '%s'", out.n ? out.p : "", good);
  err_free(e);
  str_free(&out);
}

static void test_render(void) {
  const char *t = "tests/text/templates/templates/tok-qwen3.jinja";
  TEST("render refuses wrong options and missing files") {
    Err *e = text_cmd_render(&(TextRenderOptions){.template_path = t}, stdout);
    EXPECT(e && err_kind(e) == ERR_USAGE, "usage");
    err_free(e);
    e = text_cmd_render(&(TextRenderOptions){.template_path = "tests/text/none.jinja", .context_path = "tests/text/templates/conformance-context.json"}, stdout);
    EXPECT(e && err_kind(e) == ERR_NOT_FOUND, "not found");
    err_free(e);
  }
}

int main(void) {
  TextTokenizeOptions o = {.tokenizer = "tests/text/tokenizers/mistral_v1"};
  TEST("tokenize: one text, ids on one line") {
    gives(text_cmd_tokenize, o, "G", "420\n");
    o.special = true;
    gives(text_cmd_tokenize, o, "G", "1 420\n");
    o.json = true;
    gives(text_cmd_tokenize, o, "G", "[1, 420]\n");
    gives(text_cmd_tokenize, o, "", "[1]\n");
    gives(text_cmd_tokenize, o, "<s>", "[1, 1]\n");
  }
  TEST("tokenize --lines: a JSON string in, an array out") {
    o = (TextTokenizeOptions){.tokenizer = o.tokenizer, .lines = true};
    gives(text_cmd_tokenize, o, "\"G\"\n\"\"\n\"a\\u0000\\nb\"", "[420]\n[]\n[264, 3, 13, 28726]\n");
    fails(text_cmd_tokenize, o, "\"G\"\n7\n\"G\"\n", "[420]\n", "line 2");
    fails(text_cmd_tokenize, o, "\"G\"\n \n\"G\"\n", "[420]\n", "line 2: is blank");
    fails(text_cmd_tokenize, o, "\"G", "", "line 1");
  }
  TEST("markup in a text from a user") {
    o = (TextTokenizeOptions){.tokenizer = o.tokenizer, .plain = true};
    Str out = {0};
    EXPECT_OK(run(text_cmd_tokenize, o, "<s>", 3, &out));
    EXPECT(out.n && strcmp(out.p, "1\n"), "the special token was found: %s", out.p ? out.p : "");
    str_free(&out);
  }
  TEST("detokenize") {
    o = (TextTokenizeOptions){.tokenizer = o.tokenizer};
    gives(text_cmd_detokenize, o, "[1, 420]", "<s> G");
    o.skip_special = true;
    gives(text_cmd_detokenize, o, "1 420", "G");
    o.lines = true;
    gives(text_cmd_detokenize, o, "[420]\n[264, 3]\n", "\"G\"\n\"a\\u0000\"\n");
    fails(text_cmd_detokenize, o, "[420]\n[32000]", "\"G\"\n", "line 2: id 32000");
    fails(text_cmd_detokenize, o, "[-1]", "", "byte 1 is 0x2d");
    fails(text_cmd_detokenize, o, "[99999999999999999999]", "", "line 1: id 99999999999999999999, expected 0 to");
    static const char *const broken[] = {"", " ", "1", "[1", "[1,]", "[,1]", "[1 2]", "[[1]]", "[1],", "[1] [2]", "[]]", "[1,,2]", "[1.5]", "[\"1\"]"};
    for (size_t i = 0; i < COUNT_OF(broken); i++) {
      Str line = {0};
      str_addf(&line, "[420]\n%s\n[420]", broken[i]);
      fails(text_cmd_detokenize, o, line.p, "\"G\"\n", "line 2: ");
      str_free(&line);
    }
    gives(text_cmd_detokenize, o, " [ 420 ,\t264 ] \r\n[]\n", "\"G a\"\n\"\"\n");
  }
  TEST("what is no tokenizer is refused") {
    static const char *const none[] = {"tests/text", "tests/text/none", "tests/text/README.md", "tests/text/templates/templates.json"};
    for (size_t i = 0; i < COUNT_OF(none); i++) {
      TextVocab *v = NULL;
      Err *e = text_vocab_open(none[i], &v);
      EXPECT(e && !v, "%s", none[i]);
      err_free(e);
    }
  }
  test_render();
  TEST_MAIN_END();
}
