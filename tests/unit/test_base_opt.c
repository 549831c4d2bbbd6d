/* base/opt and base/json. */
#include <math.h>
#include "base/json.h"
#include "base/opt.h"
#include "test.h"

#define ROWS(X, T)                                                  \
  X(T, json, 'j', FLAG, "", NULL, 0, 0, "print JSON")               \
  X(T, verbose, 'v', FLAG, "", NULL, 0, 0, "say more")              \
  X(T, n_lines, 'n', INT, "N", "40", 1, 100000, "lines")            \
  X(T, seed, 0, INT, "N", NULL, 0, 0, "seed")                       \
  X(T, heat, 't', FLOAT, "T", NULL, 0, 2, "temperature")            \
  X(T, out, 'o', STR, "FILE", "-", 0, 0, "where to")                \
  X(T, std, 0, LIST, "DIR", NULL, 0, 0, "folders")                  \
  X(T, to, 'T', OUT, "FILE.json", NULL, 0, 0, "print or write")
OPT_DEFINE(Opts, ROWS)

static Arena *a;
static Opts o;
static OptRest rest;

/* Words separated by spaces, after a program name. */
static Err *parse(const char *line) {
  char *argv[32] = {(char *)"x"}, *copy = arena_dup(a, line);
  int argc = 1;
  for (char *w; (w = strsep(&copy, " "));) if (*w) argv[argc++] = w;
  return opt_parse(a, Opts_rows, COUNT_OF(Opts_rows), argc, argv, &o, &rest);
}

static void fails(const char *line, const char *text) {
  Err *e = parse(line);
  EXPECT(e && err_kind(e) == ERR_USAGE, "'%s' passed", line);
  if (e) EXPECT(strstr(err_text(e), text), "'%s' says '%s', expected '%s'", line, err_text(e), text);
  err_free(e);
}

static void test_forms(void) {
  TEST("opt: defaults") {
    EXPECT_OK(parse(""));
    EXPECT(!o.json && o.n_lines == 40 && o.seed == OPT_INT_NONE && isnan(o.heat) && !strcmp(o.out, "-") && o.std.n == 0 && rest.n_args == 0 && !rest.help);
  }
  TEST("opt: every form") {
    EXPECT_OK(parse("a -jvn5 --heat=1.5 b --seed -1 --std x --std=y -o f - --out= -- --json"));
    EXPECT(o.json && o.verbose && o.n_lines == 5 && o.heat == 1.5 && o.seed == -1 && o.std.n == 2 && !strcmp(o.std.p[1], "y") && !strcmp(o.out, ""));
    EXPECT(rest.n_args == 4 && !strcmp(rest.arg[0], "a") && !strcmp(rest.arg[1], "b") && !strcmp(rest.arg[2], "-") && !strcmp(rest.arg[3], "--json"));
    EXPECT_OK(parse("--json --no-json --n-lines 4k"));
    EXPECT(!o.json && o.n_lines == 4096);
    EXPECT_OK(parse("--help"));
    EXPECT(rest.help);
    EXPECT_OK(parse("-h"));
    EXPECT(rest.help);
  }
  TEST("opt: an option that may stand alone takes no operand for its value") {
    EXPECT_OK(parse("a"));
    EXPECT(!o.to);
    EXPECT_OK(parse("--to a.gguf"));
    EXPECT(!strcmp(o.to, "-") && rest.n_args == 1 && !strcmp(rest.arg[0], "a.gguf"));
    EXPECT_OK(parse("a --to b.json"));
    EXPECT(!strcmp(o.to, "b.json") && rest.n_args == 1);
    EXPECT_OK(parse("-jT b.json"));
    EXPECT(o.json && !strcmp(o.to, "b.json") && rest.n_args == 0);
    EXPECT_OK(parse("-Tj --to=c"));
    EXPECT(o.json && !strcmp(o.to, "c"));
    EXPECT_OK(parse("a -T"));
    EXPECT(!strcmp(o.to, "-") && rest.n_args == 1);
  }
  TEST("opt: faults name the option, what it got and what it takes") {
    fails("--jsn", "did you mean --json?");
    fails("--frobnicate", "unknown option --frobnicate");
    fails("-x", "unknown option -x");
    fails("--n-lines", "--n-lines: expected N after it");
    fails("-n", "--n-lines: expected N after it");
    fails("--n-lines 0", "--n-lines: 0, expected 1 to 100000");
    fails("--n-lines 3x", "'3x', expected a whole number");
    fails("--n-lines 99999999999999999999", "--n-lines: 99999999999999999999, expected 1 to 100000");
    fails("--n-lines 9000000000000000000g", "--n-lines: 9000000000000000000g, expected 1 to 100000");
    fails("--heat nan", "'nan', expected a number");
    fails("--heat 2.1", "--heat: 2.1, expected 0 to 2");
    fails("--json=1", "--json: takes no value");
    fails("--no-out", "unknown option --no-out");
    fails("--no-json=1", "unknown option --no-json");
  }
  TEST("opt: help lists every row with its default") {
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    opt_help(f, "x FILE", "does x", Opts_rows, COUNT_OF(Opts_rows));
    fclose(f);
    EXPECT(strstr(text, "usage: lumen x FILE\ndoes x\n") && strstr(text, "-j, --json ") && strstr(text, "-T, --to [FILE.json] ") && strstr(text, "    --seed N ") && strstr(text, "lines (40)\n"), "%s", text);
    free(text);
  }
  TEST("opt: nearest name") {
    const char *const names[] = {"list", "pull", "rm"};
    EXPECT(!strcmp(opt_nearest("lsit", names, 3), "list") && !strcmp(opt_nearest("pul", names, 3), "pull") && !opt_nearest("xx", names, 3) && !opt_nearest("", names, 3));
  }
}

static void json_fails(const char *text, ErrKind kind, const char *says) {
  json_t *v;
  Err *e = json_parse_text(text, strlen(text), 1 << 20, "t", &v);
  EXPECT(e && err_kind(e) == kind && strstr(err_text(e), says), "'%.40s': %s", text, e ? err_text(e) : "passed");
  err_free(e);
}

static void test_json(void) {
  TEST("json: values, NUL, limits") {
    json_t *v = NULL;
    EXPECT_OK(json_parse_text("{\"a\": [1, 2.5, \"x\\u0000y\"]}", 27, 27, "t", &v));
    EXPECT(v && json_string_length(json_array_get(json_object_get(v, "a"), 2)) == 3);
    json_decref(v);
    const char *big = "[\"9223372036854775808 \\\"9\", 1000000000000000019884624838656, -9223372036854775808, -9223372036854775809, 9223372036854775807,9223372036854775808]";
    EXPECT_OK(json_parse_text(big, strlen(big), 1 << 20, "t", &v));
    EXPECT(!strcmp(json_string_value(json_array_get(v, 0)), "9223372036854775808 \"9"));
    EXPECT(json_real_value(json_array_get(v, 1)) == 1e30 && json_integer_value(json_array_get(v, 2)) == INT64_MIN);
    EXPECT(json_real_value(json_array_get(v, 3)) == -0x1p63 && json_integer_value(json_array_get(v, 4)) == INT64_MAX);
    EXPECT(json_real_value(json_array_get(v, 5)) == 0x1p63);
    json_decref(v);
    json_fails("[99999999999999999999 1]", ERR_SYNTAX, "t: line 1");
    Err *e = json_parse_text("[1]", 3, 2, "t", &v);
    EXPECT(e && err_kind(e) == ERR_LIMIT);
    err_free(e);
    json_fails("{\"a\": 1, \"a\": 2}", ERR_SYNTAX, "duplicate");
    json_fails("[1,\n2,]", ERR_SYNTAX, "t: line 2, column 3");
    json_fails("", ERR_SYNTAX, "t: line");
    json_fails("[\"\xff\"]", ERR_SYNTAX, "line 1");
  }
  TEST("json: nesting is bounded, brackets in strings do not count") {
    char deep[4000];
    memset(deep, '[', sizeof deep);
    deep[513] = 0; /* the text ends there */
    json_fails(deep, ERR_LIMIT, "nested 513 deep");
    json_t *v = NULL;
    memset(deep, '[', 600);
    deep[0] = '"', deep[599] = '"';
    EXPECT_OK(json_parse_text(deep, 600, 4000, "t", &v));
    json_decref(v);
    memset(deep, '[', 512), memset(deep + 512, ']', 512);
    EXPECT_OK(json_parse_text(deep, 1024, 4000, "t", &v));
    json_decref(v);
  }
}

int main(void) {
  a = arena_new("test");
  test_forms();
  test_json();
  arena_free(a);
  TEST_MAIN_END();
}
