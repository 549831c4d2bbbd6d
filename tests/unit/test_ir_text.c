/* ir as text: every op prints as it is written and reads back; what is malformed or illegal is refused with the message its case
   names. Cases: tests/ir/ops.ir (one good function), the .cases files beside it (a line `; error: MESSAGE` before each function; the error must
   contain MESSAGE). */
#include "ir/ir.h"
#include "test.h"

static Arena *A;

static char *read_text(const char *path) {
  Str s = {0};
  Err *e = os_read_file(path, 1 << 22, &s);
  if (e) { printf("not ok - %s: %s\n", path, err_text(e)); exit(1); }
  char *text = arena_dup(A, s.p);
  str_free(&s);
  return text;
}

static void test_every_op(void) {
  const char *text = strstr(read_text("tests/ir/ops.ir"), "fn @");
  IrFn *fn = NULL;
  EXPECT_OK(ir_fn_parse(A, text, &fn));
  if (!fn) return;
  EXPECT_OK(ir_fn_verify(fn));
  Str s = {0};
  ir_fn_print(fn, &s);
  for (const char *a = s.p, *b = text; *a || *b; a++, b++)
    if (*a != *b) { EXPECT(false, "differs at: %.60s | expected: %.60s", a, b); break; }
  str_free(&s);
  bool seen[IR_N_OPS] = {false};
  for (int v = 1; v < fn->n_ins; v++) if (fn->ins[v].block >= 0) seen[fn->ins[v].op] = true;
  for (int op = 0; op < IR_N_OPS; op++) EXPECT(seen[op], "tests/ir/ops.ir has no %s", ir_op_name[op]);
}

/* Each case's own TEST is named by the message it expects. */
static void test_cases(const char *path, bool in_parser) {
  static const char mark[] = "; error: ";
  char *c = strstr(read_text(path), mark);
  for (int i = 1; c; i++) {
    char *message = c + strlen(mark), *end = strchr(message, '\n');
    CHECK(end, "%s: a case without a function", path);
    *end = 0;
    char *next = strstr(end + 1, mark), *name = arena_printf(A, "%s %d: %s", path, i, message);
    if (next) next[-1] = 0;
    TEST(name) {
      IrFn *fn = NULL;
      Err *e = ir_fn_parse(A, end + 1, &fn);
      EXPECT(in_parser == (e != NULL), "%s", e ? err_text(e) : "the parser took it");
      EXPECT(!e || !fn, "written on failure");
      if (!e) e = ir_fn_verify(fn);
      EXPECT(e && strstr(err_text(e), message), "got: %s", e ? err_text(e) : "no error");
      err_free(e);
    }
    c = next;
  }
}

/* Any prefix and any single changed byte of a good text is taken or refused, never a crash. */
static void test_mutations(void) {
  char *text = read_text("tests/ir/ops.ir");
  size_t n = strlen(text);
  uint64_t seed = 1;
  int n_ok = 0;
  for (int round = 0; round < 3000; round++) {
    Arena *a = arena_new("mutant");
    char *m = arena_dup(a, text);
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    size_t at = (size_t)(seed >> 33) % n;
    static const char bytes[] = "%0123456789b(),:.*+-<>[]?x \n;efirs";
    if (round % 3 == 0) m[at] = 0;
    else if (round % 3 == 1) m[at] = bytes[(seed >> 20) % (sizeof bytes - 1)];
    else memmove(m + at, m + at + 1, n - at);
    IrFn *fn = NULL;
    Err *e = ir_fn_parse(a, m, &fn);
    if (!e) e = ir_fn_verify(fn);
    n_ok += !e;
    err_free(e);
    arena_free(a);
  }
  EXPECT(n_ok > 50 && n_ok < 2900, "%d of 3000 legal", n_ok);
}

int main(void) {
  A = arena_new("test");
  TEST("ir/text: every op") test_every_op();
  test_cases("tests/ir/parse.cases", true);
  test_cases("tests/ir/verify.cases", false);
  TEST("ir/text: mutations") test_mutations();
  arena_free(A);
  TEST_MAIN_END();
}
