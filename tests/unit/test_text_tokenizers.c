/* Tokenizers against reference ids: tests/text/tokenizers always, and the whole golden set where LUMEN_GOLDEN names its folder. */
#include <dirent.h>
#include <time.h>
#include "text_golden.h"

static bool same_ids(const TextIds *ids, Val want) {
  if (want.kind != V_LIST || (size_t)want.u.l->n != ids->n) return false;
  for (size_t i = 0; i < ids->n; i++)
    if (want.u.l->items[i].u.i != ids->p[i]) return false;
  return true;
}

static void print_ids(char *buf, size_t cap, const TextIds *ids) {
  size_t n = 0;
  for (size_t i = 0; i < ids->n && n + 16 < cap; i++) n += (size_t)snprintf(buf + n, cap - n, "%d ", ids->p[i]);
  buf[n] = 0;
}

static int check_row(const TextVocab *v, Val text, Val row, const char *key, unsigned flags, const char *otherwise) {
  Val *want = val_get(row, key);
  if (!want && otherwise) want = val_get(row, otherwise);
  if (!want) return 0;
  TextIds ids = {0};
  EXPECT_OK(text_tokenize(v, text.u.s->p, text.u.s->n, flags, &ids));
  int bad = !same_ids(&ids, *want);
  if (bad && getenv("LUMEN_SHOW")) {
    char got[600];
    Str s = {0};
    print_ids(got, sizeof got, &ids);
    val_repr(&s, *want);
    fprintf(stderr, "%s %s: got %s want %.600s\n", val_get(row, "id")->u.s->p, key, got, s.p);
    str_free(&s);
  }
  text_ids_free(&ids);
  return bad;
}

/* Decoding, with the ids fed in one by one as a stream. */
static int check_decode(const TextVocab *v, Val text, Val row) {
  Val *ids = val_get(row, "ids"), *want = val_get(row, "decoded");
  if (!want) want = &text;
  TextDecoder d;
  Str out = {0};
  text_decoder_init(&d, v, 0);
  int bad = 0;
  for (int i = 0; i < ids->u.l->n; i++) {
    text_decode(&d, (int32_t)ids->u.l->items[i].u.i, &out);
    bad |= text_utf8_valid(out.p ? out.p : "", out.n) != out.n;
  }
  text_decode_end(&d, &out);
  bad |= out.n != want->u.s->n || memcmp(out.p ? out.p : "", want->u.s->p, out.n);
  if (bad && getenv("LUMEN_SHOW")) fprintf(stderr, "%s decoded: got %s want %s\n", val_get(row, "id")->u.s->p, out.p ? out.p : "", want->u.s->p);
  str_free(&out);
  return bad;
}

/* As a GGUF file says it, a vocabulary reads every text alike. NULL: of a kind that GGUF has no words for. */
static int n_said;
static TextVocab *said_again(Arena *a, const TextVocab *v) {
  TextVocab *again = NULL;
  TextVocabSource s;
  Err *e = text_vocab_source(a, v, 0, &s);
  if (!e) EXPECT_OK(text_vocab_new(&s, &again));
  else EXPECT(err_kind(e) == ERR_UNSUPPORTED, "%s", err_text(e));
  err_free(e);
  n_said += again != NULL;
  return again;
}

static int check_again(const TextVocab *v, const TextVocab *again, Val text) {
  int bad = 0;
  for (int special = 0; again && special < 2; special++) {
    TextIds x = {0}, y = {0};
    EXPECT_OK(text_tokenize(v, text.u.s->p, text.u.s->n, special ? TEXT_ADD_SPECIAL : 0, &x));
    EXPECT_OK(text_tokenize(again, text.u.s->p, text.u.s->n, special ? TEXT_ADD_SPECIAL : 0, &y));
    bad |= x.n != y.n || (x.n && memcmp(x.p, y.p, x.n * sizeof *x.p));
    if (bad && getenv("LUMEN_SHOW")) fprintf(stderr, "as a GGUF file says it, otherwise: %.*s\n", (int)text.u.s->n, text.u.s->p);
    text_ids_free(&x);
    text_ids_free(&y);
  }
  return bad;
}

static void check_tokenizer(const char *folder, const char *name) {
  char path[600];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  TextVocab *v = NULL;
  struct timespec t0, t1;
  clock_gettime(CLOCK_MONOTONIC, &t0);
  Err *e = text_vocab_open(path, &v);
  if (e) { test_fail(__FILE__, __LINE__, "%s", err_text(e)); err_free(e); return; }
  clock_gettime(CLOCK_MONOTONIC, &t1);
  if (getenv("LUMEN_SHOW")) fprintf(stderr, "%s loaded in %.0f ms\n", name, (double)(t1.tv_sec - t0.tv_sec) * 1e3 + (double)(t1.tv_nsec - t0.tv_nsec) / 1e6);
  snprintf(path, sizeof path, "%s/texts.jsonl", folder);
  Str texts = read_or_empty(path);
  snprintf(path, sizeof path, "%s/%s.jsonl", folder, name);
  Str rows = read_or_empty(path);
  size_t at = 0, rat = 0, n, rn;
  const char *p, *rp;
  int n_rows = 0, bad[5] = {0};
  Arena *a = arena_new("rows");
  TextVocab *again = said_again(a, v);
  while (next_line(&texts, &at, &p, &n) && next_line(&rows, &rat, &rp, &rn)) {
    Val t, r;
    EXPECT_OK(text_json_parse(a, p, n, &t));
    EXPECT_OK(text_json_parse(a, rp, rn, &r));
    Val text = *val_get(t, "text");
    EXPECT(val_equal(*val_get(t, "id"), *val_get(r, "id")), "rows out of step");
    bad[0] += check_row(v, text, r, "ids", 0, NULL);
    bad[1] += check_row(v, text, r, "ids_special", TEXT_ADD_SPECIAL, NULL);
    bad[2] += check_row(v, text, r, "ids_split_special", TEXT_SPLIT_SPECIAL, "ids");
    bad[3] += check_decode(v, text, r);
    bad[4] += check_again(v, again, text);
    n_rows++;
  }
  EXPECT(n_rows >= 300, "%s: %d rows", name, n_rows);
  EXPECT(!bad[4], "%s: of %d texts %d are read otherwise as a GGUF file says it", name, n_rows, bad[4]);
  EXPECT(!bad[0] && !bad[1] && !bad[2] && !bad[3], "%s: of %d texts wrong: %d ids, %d with special, %d split, %d decoded", name, n_rows, bad[0], bad[1], bad[2], bad[3]);
  text_vocab_free(again);
  arena_free(a);
  str_free(&texts);
  str_free(&rows);
  text_vocab_free(v);
}

static int check_folder(const char *folder, const char *label) {
  int n = 0;
  struct dirent **names;
  int n_names = scandir(folder, &names, NULL, alphasort);
  for (int i = 0; i < n_names; i++) {
    char path[600], title[400];
    snprintf(path, sizeof path, "%s/%s.jsonl", folder, names[i]->d_name);
    if (names[i]->d_name[0] != '.' && os_exists(path)) {
      snprintf(title, sizeof title, "%s %s", label, names[i]->d_name);
      TEST(title) check_tokenizer(folder, names[i]->d_name);
      n++;
    }
    free(names[i]);
  }
  if (n_names >= 0) free(names);
  return n;
}

int main(void) {
  int n = check_folder("tests/text/tokenizers", "tokenizer");
  TEST("tokenizers present") EXPECT(n >= 10 && n_said >= 6, "%d, of which GGUF can say %d", n, n_said);
  const char *golden = getenv("LUMEN_GOLDEN");
  if (golden) {
    char path[600];
    snprintf(path, sizeof path, "%s/tokenizers", golden);
    n = check_folder(path, "golden tokenizer");
    TEST("golden tokenizers present") EXPECT(n >= 18, "%d", n);
  } else {
    TEST_SKIP("golden tokenizers", "LUMEN_GOLDEN names no folder with the whole set");
  }
  TEST_MAIN_END();
}
