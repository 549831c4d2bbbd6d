/* Files that shrink or change under a program that has them in memory, and names that are no files: errors, never a signal and never a wait. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/json.h"
#include "file/file.h"
#include "kern/kern.h"
#include "model/model.h"
#include "model/vocab.h"
#include "text/text.h"
#include "test.h"

enum { PAGE = 4096, N_PAGES = 64 };
static char dir[] = "/tmp/lumen-map-XXXXXX";
static Arena *A;

static const char *in_dir(const char *name) { return arena_printf(A, "%s/%s", dir, name); }

static const char *made(const char *name, const void *p, size_t n) {
  const char *path = in_dir(name);
  EXPECT_OK(os_write_file(path, p, n));
  return path;
}

static const char *copy_of(const char *from, const char *name) {
  Str s = {0};
  EXPECT_OK(os_read_file(from, (size_t)1 << 28, &s));
  const char *path = made(name, s.p, s.n);
  str_free(&s);
  return path;
}

static int sum(const FileMap *m) {
  int n = 0;
  for (size_t i = 0; i < m->n_bytes; i++) n += m->p[i];
  return n;
}

/* A mapping that is not ours ends the process as ever, and does not turn in a circle. */
static void foreign(void) {
  uint8_t page[PAGE] = {0};
  const char *path = made("foreign", page, sizeof page);
  TEST("faults elsewhere are not ours") {
    pid_t child = fork();
    if (child == 0) {
      int fd = open(path, O_RDWR | O_CLOEXEC);
      volatile uint8_t *p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
      alarm(20);
      if (ftruncate(fd, 0)) _exit(3);
      _exit(p[0]);
    }
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child);
    bool reported = getenv("TEST_SANITIZED") && WIFEXITED(status) && WEXITSTATUS(status) == 1; /* a sanitizer's handler was there before ours: it tells and ends */
    EXPECT(reported || (WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS), "status %x", status);
  }
}

static void shrinking(void) {
  uint8_t ones[PAGE * N_PAGES];
  memset(ones, 1, sizeof ones);
  FileMap m = {0}, other = {0};
  const char *path = made("shrinks", ones, sizeof ones), *whole = made("stays", ones, sizeof ones);
  TEST("a file that shrank reads as zeros and is told of") {
    EXPECT_OK(os_map_file(path, &m));
    EXPECT_OK(os_map_file(whole, &other));
    EXPECT(sum(&m) == PAGE * N_PAGES && !os_map_failed(&m));
    EXPECT_OK(os_map_check(&m, path));
    os_drop_file_pages(m.p, m.n_bytes);
    EXPECT(truncate(path, 3 * PAGE) == 0);
    EXPECT(sum(&m) == 3 * PAGE && os_map_failed(&m));
    EXPECT_ERR(os_map_check(&m, path), ERR_IO, "was changed while it was read: 12288 bytes, 262144 before");
  }
  TEST("another one is not blamed") EXPECT(sum(&other) == PAGE * N_PAGES && !os_map_failed(&other));
  os_unmap_file(&m);
  os_unmap_file(&other);
  TEST("a new mapping in its place begins afresh") {
    EXPECT_OK(os_map_file(whole, &m));
    EXPECT(!os_map_failed(&m));
    EXPECT_OK(os_map_check(&m, whole));
    os_unmap_file(&m);
  }
  TEST("a file that was written over is told of") {
    EXPECT_OK(os_map_file(whole, &m));
    usleep(20000);
    int fd = open(whole, O_WRONLY | O_CLOEXEC);
    EXPECT(fd >= 0 && write(fd, "x", 1) == 1);
    close(fd);
    EXPECT_ERR(os_map_check(&m, whole), ERR_IO, "was changed");
    os_unmap_file(&m);
  }
  TEST("one that was replaced is still the old one") {
    EXPECT_OK(os_map_file(whole, &m));
    EXPECT_OK(os_write_file(whole, "new", 3));
    EXPECT_OK(os_map_check(&m, whole));
    EXPECT(m.n_bytes == sizeof ones);
    os_unmap_file(&m);
  }
}

static bool no_format(void *ctx, const char *type, int64_t gguf_id, FileFormat *out) {
  (void)ctx, (void)type, (void)gguf_id, (void)out;
  return false;
}

static void models(void) {
  Model *m = NULL;
  Seq *s = NULL;
  const float *logits;
  int64_t stride;
  ModelOptions o = {.n_threads = 2, .context = 64};
  const char *path = copy_of("tests/run/tiny.gguf", "tiny.gguf");
  TEST("weights that shrank before they were packed") {
    EXPECT_OK(model_prepare(path, &o, &m));
    EXPECT(truncate(path, 200000) == 0);
    EXPECT_ERR(model_load(m), ERR_IO, "was changed while it was read");
    model_close(m);
  }
  TEST("a vocabulary whose file shrank before it was read") {
    Weights *w;
    TextVocab *vocab;
    path = copy_of("tests/run/tiny.gguf", "tiny.gguf");
    EXPECT_OK(file_weights_open(A, path, no_format, NULL, &w));
    os_drop_file_pages(w->map[0].p, w->map[0].n_bytes);
    EXPECT(truncate(path, PAGE) == 0);
    EXPECT_ERR(model_vocab_open(w, &vocab), ERR_IO, "was changed while it was read");
    file_weights_close(w);
  }
  TEST("embeddings that shrank while the model ran") {
    path = copy_of("tests/run/tiny.gguf", "tiny.gguf");
    int32_t *ids = ARENA_ARRAY(A, int32_t, 60);
    Err *e = NULL;
    for (int i = 0; i < 60; i++) ids[i] = i * 8;
    EXPECT_OK(model_open(path, &o, &m));
    EXPECT_OK(seq_new(m, &s));
    EXPECT_OK(model_step(m, &(StepPart){s, ids, 1, 1}, 1, &logits, &stride));
    const Weights *w = model_weights(m);
    const FileTensor *t = file_tensor_find(w, "token_embd.weight");
    EXPECT(t != NULL);
    os_drop_file_pages(w->map[0].p, w->map[0].n_bytes);
    EXPECT(truncate(path, PAGE) == 0);
    e = model_step(m, &(StepPart){s, ids, 60, 1}, 1, &logits, &stride);
    EXPECT(e && err_kind(e) == ERR_IO && seq_n_tokens(s) == 1, "%s, %d tokens", e ? err_text(e) : "no error", (int)seq_n_tokens(s));
    err_free(e);
    seq_free(s);
    model_close(m);
  }
}

static void no_files(void) {
  Str s = {0};
  json_t *v = NULL;
  FileMap m;
  Weights *w;
  TextVocab *vocab;
  const char *fifo = in_dir("fifo"), *folder = in_dir("folder"), *config = in_dir("folder/config.json"), *tokens = in_dir("folder/tokenizer.json");
  EXPECT(mkfifo(fifo, 0600) == 0 && mkdir(folder, 0700) == 0 && mkfifo(config, 0600) == 0 && mkfifo(tokens, 0600) == 0);
  const char *none[] = {fifo, dir, "/dev/zero"};
  alarm(20);
  for (size_t i = 0; i < COUNT_OF(none); i++) TEST(none[i]) {
    EXPECT_ERR(os_read_file(none[i], 100, &s), ERR_IO, "expected a regular file");
    EXPECT_ERR(os_map_file(none[i], &m), ERR_IO, "expected a regular file");
    EXPECT_ERR(json_parse_file(none[i], 100, &v), ERR_IO, "expected a regular file");
  }
  TEST("pipes in a model's folder are not waited for") {
    EXPECT_ERR(file_weights_open(A, folder, NULL, NULL, &w), ERR_IO, "config.json: is a device or pipe, expected a regular file");
    EXPECT_ERR(text_vocab_open(folder, &vocab), ERR_IO, "tokenizer.json: is a device or pipe, expected a regular file");
  }
  alarm(0);
  str_free(&s);
}

int main(void) {
  A = arena_new("forever");
  EXPECT(mkdtemp(dir) != NULL);
  shrinking();
  foreign();
  const Target *target;
  Err *none = kern_target_host(&target);
  if (none) TEST_SKIP("weights and embeddings that shrank", err_text(none));
  else models();
  err_free(none);
  no_files();
  char *clean = arena_printf(A, "rm -r '%s'", dir);
  EXPECT(system(clean) == 0);
  arena_free(A);
  TEST_MAIN_END();
}
