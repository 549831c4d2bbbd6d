/* `lumen convert IN OUT.gguf --quant F`: the tensors of a model in another storage format. Tensors go through memory in pieces, every thread
   decoding and encoding its own; metadata is copied. In: a GGUF file. Out: a GGUF file, under its name only when it is whole. */
#include <fnmatch.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cmd/cmd.h"
#include "cmd/formats.h"

#define CONVERT_ROWS(X, T)                                                                                                  \
  X(T, quant, 0, STR, "F", NULL, 0, 0, "the format of tensors of two or more dimensions, as its text calls it")               \
  X(T, keep, 0, LIST, "GLOB=F", NULL, 0, 0, "tensors whose name fits GLOB get F instead; `GLOB=` leaves them as they are; the first that fits counts") \
  X(T, threads, 't', INT, "N", "0", 0, 1024, "threads; 0: as many as this process may use")                                   \
  X(T, quiet, 'q', FLAG, "", NULL, 0, 0, "no progress bar")                                                                   \
  X(T, std, 0, STR, "DIR", NULL, 0, 0, "texts that add to or override the built-in formats")
OPT_DEFINE(ConvertOpts, CONVERT_ROWS)
enum { PIECE_ELEMS = 1 << 17, MAX_FORMATS = 64 };

typedef struct Recode { const FileTensor *from; FormatForm *in, *out; const Kern *decode, *encode; } Recode; /* in == out: bytes are copied */
typedef struct Convert {
  Arena *a; Module *m; Kerns *kerns; DevPool *pool;
  FormatForm *form[MAX_FORMATS]; int n_forms;
  Recode *tensor; FileOut *file_out;
  int64_t scratch_bytes;          /* of a thread */
  uint8_t *scratch, *buffer;
  int64_t done_bytes, all_bytes; int64_t drawn_ns;
  bool bar;
  /* the window at work */
  const Recode *now; int64_t first, n_pieces, piece, end; DevClaim claim;
} Convert;

static volatile sig_atomic_t interrupted;
static void on_interrupt(int sig) {
  (void)sig;
  interrupted = 1;
}

static Err *form_of(Convert *c, const char *name, FormatForm **out) {
  for (int i = 0; i < c->n_forms; i++) if (!strcmp(c->form[i]->decl->name, name)) { *out = c->form[i]; return NULL; }
  if (c->n_forms == MAX_FORMATS) return err_new(ERR_LIMIT, "more than %d formats", MAX_FORMATS);
  TRY(cmd_format_find(c->a, c->m, name, &c->form[c->n_forms]));
  *out = c->form[c->n_forms++];
  return NULL;
}

/* ---- which tensor becomes what ------------------------------------------------------------------------------------- */
static const char *wanted(const ConvertOpts *o, const FileTensor *t, bool *by_name) {
  *by_name = true;
  for (int i = 0; i < o->keep.n; i++) {
    const char *eq = strrchr(o->keep.p[i], '=');
    char glob[256];
    if (!eq || (size_t)(eq - o->keep.p[i]) >= sizeof glob) continue; /* told before */
    memcpy(glob, o->keep.p[i], (size_t)(eq - o->keep.p[i]));
    glob[eq - o->keep.p[i]] = 0;
    if (!fnmatch(glob, t->name, 0)) return eq[1] ? eq + 1 : t->format;
  }
  *by_name = false;
  return t->n_dims >= 2 ? o->quant : t->format;
}

static Err *check_keeps(const ConvertOpts *o) {
  for (int i = 0; i < o->keep.n; i++) {
    const char *eq = strrchr(o->keep.p[i], '=');
    if (!eq || eq == o->keep.p[i] || eq - o->keep.p[i] > 255) return err_new(ERR_USAGE, "--keep %s: expected GLOB=F", o->keep.p[i]);
  }
  return NULL;
}

static Err *plan_tensor(Convert *c, const ConvertOpts *o, const FileTensor *t, Recode *r, FileOut *w, int *n_whole) {
  bool by_name;
  if (!t->format || !t->p) return err_new(ERR_UNSUPPORTED, "tensor %s: %s: no format text has this number", t->name, t->type);
  if (t->n_dims < 1 || t->n_dims > 4) return err_new(ERR_UNSUPPORTED, "tensor %s: %d dimensions, expected 1 to 4", t->name, t->n_dims);
  const char *name = wanted(o, t, &by_name);
  *r = (Recode){.from = t};
  TRY(form_of(c, t->format, &r->in));
  TRY(form_of(c, name, &r->out));
  if (t->dim[t->n_dims - 1] % r->out->decl->block) {
    if (by_name) return err_new(ERR_SHAPE, "tensor %s: rows of %lld are not whole blocks of %lld, which %s has", t->name, (long long)t->dim[t->n_dims - 1], (long long)r->out->decl->block, name);
    r->out = r->in;
    ++*n_whole;
  }
  if (r->out->decl->gguf_id < 0) return err_new(ERR_UNSUPPORTED, "format %s: its text gives no number for GGUF files (: gguf N)", r->out->decl->name);
  if (r->in != r->out) {
    TRY(kern_decode(c->kerns, r->in, &r->decode));
    TRY(kern_encode(c->kerns, c->m, r->out, &r->encode));
    c->scratch_bytes = MAX(c->scratch_bytes, r->encode->scratch_bytes + 64 + (int64_t)kern_blocks_bytes(r->out));
  }
  *w = (FileOut){.name = t->name, .n_dims = t->n_dims, .gguf_id = r->out->decl->gguf_id, .n_bytes = (uint64_t)(t->n_elems / r->out->decl->block * r->out->decl->n_bytes)};
  memcpy(w->dim, t->dim, sizeof w->dim);
  c->all_bytes += (int64_t)t->n_bytes;
  return NULL;
}

/* Keys that say how the old file was made do not hold for the new one. */
static FileKv *metadata(Convert *c, const Weights *w, int *n) {
  static const char *const gone[] = {"general.alignment", "general.file_type", "split.no", "split.count", "split.tensors.count", "general.quantization_version"};
  static const uint32_t version = 2; /* of the layouts of blocks, by the GGUF specification */
  FileKv *kv = ARENA_ARRAY(c->a, FileKv, w->n_kvs + 1);
  *n = 0;
  for (int i = 0; i < w->n_kvs; i++) {
    bool drop = false;
    for (size_t k = 0; k < COUNT_OF(gone); k++) drop = drop || !strcmp(w->kv[i].key, gone[k]);
    if (!drop) kv[(*n)++] = w->kv[i];
  }
  kv[(*n)++] = (FileKv){.key = "general.quantization_version", .type = FILE_U32, .n = 1, .data = &version};
  return kv;
}

/* ---- work ---------------------------------------------------------------------------------------------------------- */
static void recode_thread(void *ctx, int thread, int n_threads) {
  Convert *c = ctx;
  const Recode *r = c->now;
  int64_t a, b, in_block = r->in->decl->block, out_block = r->out->decl->block, out_bytes = r->out->decl->n_bytes;
  uint8_t *scratch = c->scratch + thread * (c->scratch_bytes + c->piece * 4);
  float *x = (float *)(void *)(scratch + c->scratch_bytes);
  (void)n_threads;
  while (dev_claim(&c->claim, 1, c->n_pieces, &a, &b)) {
    int64_t first = c->first + a * c->piece, n = MIN(c->piece, c->end - first);
    kern_decode_blocks(r->decode, r->in, r->from->p + first / in_block * r->in->decl->n_bytes, n / in_block, x);
    kern_encode_blocks(r->encode, r->out, x, n / out_block, c->buffer + a * (c->piece / out_block * out_bytes), scratch);
  }
}

static void draw(Convert *c, bool last) {
  int64_t now = os_now_ns();
  if (!c->bar || (!last && now - c->drawn_ns < 100000000)) return;
  c->drawn_ns = now;
  char cells[31];
  int full = (int)(c->done_bytes * 30 / MAX(c->all_bytes, 1));
  for (int i = 0; i < 30; i++) cells[i] = i < full ? '#' : '.';
  cells[30] = 0;
  fprintf(stderr, "\r\033[Kconverting [%s] %3d%% of %.1f MB", cells, (int)(c->done_bytes * 100 / MAX(c->all_bytes, 1)), (double)c->all_bytes * 1e-6);
}

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

static Err *write_tensor(Convert *c, FileWriter *w, const Recode *r) {
  const FileTensor *t = r->from;
  int64_t out_block = r->out->decl->block, step = r->in->decl->block / gcd(r->in->decl->block, out_block * ENCODE_TILE) * out_block * ENCODE_TILE;
  int n_threads = dev_pool_n_threads(c->pool);
  if (r->in == r->out) {
    for (size_t at = 0; at < t->n_bytes; at += 1 << 24) {
      TRY(file_gguf_append(w, t->p + at, MIN(t->n_bytes - at, (size_t)1 << 24)));
      c->done_bytes += (int64_t)MIN(t->n_bytes - at, (size_t)1 << 24);
      draw(c, false);
      if (interrupted) return err_new(ERR_CANCELLED, "interrupted");
    }
    return NULL;
  }
  c->now = r;
  c->piece = step >= PIECE_ELEMS ? step : PIECE_ELEMS / step * step;
  int64_t window = c->piece * 4 * n_threads;
  free(c->scratch);
  free(c->buffer);
  c->scratch = malloc((size_t)((c->scratch_bytes + c->piece * 4) * n_threads));
  c->buffer = malloc((size_t)(window / out_block * r->out->decl->n_bytes));
  if (!c->scratch || !c->buffer) return err_new(ERR_MEMORY, "no memory for %lld weights at a time", (long long)window);
  for (c->first = 0; c->first < t->n_elems; c->first += window) {
    c->end = MIN(c->first + window, t->n_elems);
    c->n_pieces = (c->end - c->first + c->piece - 1) / c->piece;
    atomic_store(&c->claim.next, 0);
    dev_pool_run(c->pool, recode_thread, c);
    TRY(file_gguf_append(w, c->buffer, (size_t)((c->end - c->first) / out_block * r->out->decl->n_bytes)));
    c->done_bytes += (int64_t)((double)t->n_bytes * (double)(c->end - c->first) / (double)t->n_elems);
    draw(c, false);
    if (interrupted) return err_new(ERR_CANCELLED, "interrupted");
  }
  return NULL;
}

static Err *write_file(Convert *c, const Weights *in, const char *path) {
  FileWriter *w;
  int n_kvs;
  FileKv *kv = metadata(c, in, &n_kvs);
  TRY(file_gguf_create(path, kv, n_kvs, c->file_out, in->n_tensors, &w));
  for (int i = 0; i < in->n_tensors; i++) {
    Err *e = write_tensor(c, w, &c->tensor[i]);
    if (!e) continue;
    file_gguf_drop(w);
    return e;
  }
  draw(c, true);
  if (c->bar) fputc('\n', stderr);
  return file_gguf_finish(w);
}

static Err *convert_open(Convert *c, const ConvertOpts *o, const char *from, const char *to) {
  const char *path;
  Weights *in;
  int n_whole = 0;
  TRY(check_keeps(o));
  TRY(lang_std_load(c->a, o->std, &c->m));
  FormatForm *quant;
  TRY(form_of(c, o->quant, &quant));
  TRY(cmd_model_locate(c->a, from, &path));
  TRY(file_weights_open(c->a, path, cmd_format_of, c->m, &in));
  Err *e = strncmp(in->container, "GGUF", 4) ? err_new(ERR_UNSUPPORTED, "%s: is %s, expected GGUF", path, in->container) : NULL;
  c->tensor = ARENA_ARRAY(c->a, Recode, in->n_tensors + 1);
  c->file_out = ARENA_ARRAY(c->a, FileOut, in->n_tensors + 1);
  for (int i = 0; i < in->n_tensors && !e; i++) e = plan_tensor(c, o, &in->tensor[i], &c->tensor[i], &c->file_out[i], &n_whole);
  if (!e) e = write_file(c, in, to);
  if (!e && n_whole && !o->quiet)
    fprintf(stderr, "lumen: %d tensor%s stayed as they were: their rows are not whole blocks of %lld, which %s has\n", n_whole, n_whole == 1 ? "" : "s", (long long)quant->decl->block, o->quant);
  file_weights_close(in);
  return e;
}

static Err *convert(Arena *a, const ConvertOpts *o, const char *from, const char *to) {
  Convert c = {.a = a, .bar = !o->quiet && isatty(STDERR_FILENO)};
  struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND}, old;
  TRY(kern_set_new(NULL, false, &c.kerns));
  Err *e = dev_pool_new(o->threads ? (int)o->threads : os_n_cpus(), &c.pool);
  sigaction(SIGINT, &act, &old);
  if (!e) e = convert_open(&c, o, from, to);
  sigaction(SIGINT, &old, NULL);
  free(c.scratch);
  free(c.buffer);
  dev_pool_free(c.pool);
  kern_set_free(c.kerns);
  return e;
}

int cmd_convert(int argc, char **argv) {
  Arena *a = arena_new("convert");
  ConvertOpts o;
  OptRest rest;
  int code = CMD_OK;
  if (cmd_options(a, ConvertOpts_rows, COUNT_OF(ConvertOpts_rows), argc, argv, &o, &rest, &code)) {
    if (rest.n_args != 2) code = cmd_misused(argv[0], "expected a model and the file to write, got %d operand%s", rest.n_args, rest.n_args == 1 ? "" : "s");
    else if (!o.quant) code = cmd_misused(argv[0], "--quant is missing");
    else {
      Err *e = convert(a, &o, rest.arg[0], rest.arg[1]);
      if (e) code = cmd_fail(argv[0], e);
    }
  }
  arena_free(a);
  return code;
}
