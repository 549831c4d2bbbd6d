/* `lumen convert IN OUT.gguf --quant F`: a model as a GGUF file, its tensors in another storage format. Tensors go through memory in pieces, every thread
   decoding and encoding its own; what was read of the input is let go of. In: a GGUF file, whose metadata is copied, or a Hugging Face folder, of which
   model/export.h says what a GGUF file would. Out: a GGUF file, under its name only when it is whole. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cmd/cmd.h"
#include "cmd/formats.h"
#include "model/export.h"

#define CONVERT_ROWS(X, T)                                                                                                  \
  X(T, quant, 0, STR, "F", NULL, 0, 0, "the format of tensors of two or more dimensions, as its text calls it; without it they stay as they are")               \
  X(T, keep, 0, LIST, "GLOB=F", NULL, 0, 0, "tensors of two or more dimensions whose name fits GLOB get F instead; `GLOB=` leaves them as they are; the first that fits counts") \
  X(T, threads, 't', INT, "N", "0", 0, 1024, "threads; 0: as many as this process may use")                                   \
  X(T, quiet, 'q', FLAG, "", NULL, 0, 0, "no progress bar")                                                                   \
  X(T, std, 0, STR, "DIR", NULL, 0, 0, "texts that add to or override the built-in formats")
OPT_DEFINE(ConvertOpts, CONVERT_ROWS)
enum { PIECE_ELEMS = 1 << 17, MAX_FORMATS = 64, LOOK_ELEMS = 4096 };

/* row: row r of what is written is row row[r] of what is read; NULL: as they come. in == out: bytes are copied. fixed: stays as it is, whatever is asked.
   look: decodes what was written. parts: several tensors of the folder hold it, and rows are asked for; else NULL. */
typedef struct Recode { const FileTensor *from; const int32_t *row; bool fixed; const ExportTensor *parts; FormatForm *in, *out; const Kern *decode, *encode, *look; } Recode;
typedef struct Convert {
  Arena *a; Module *m; Kerns *kerns; DevPool *pool;
  FormatForm *form[MAX_FORMATS]; int n_forms;
  Recode *tensor; FileOut *file_out; int n_tensors;
  const Weights *in; ModelExport *folder;   /* folder: NULL where the input is a GGUF file */
  int n_whole;                    /* tensors whose rows are not whole blocks of --quant */
  bool *keep_used;                /* of each --keep: a tensor got its format by it */
  int64_t scratch_bytes, tile_bytes, look_bytes; /* of a thread: to encode, to decode what several tensors hold and what was written */
  uint8_t *scratch, *buffer;
  int64_t done_bytes, all_bytes; int64_t drawn_ns;
  bool bar;
  /* the window at work */
  const Recode *now; int64_t first, n_pieces, piece, end; DevClaim claim;
  _Atomic int64_t n_odd, n_lost, first_lost; /* weights that are not finite; finite ones that became so, and where the first is */
  const Recode *odd, *odd_last; int64_t n_odds; int n_odd_tensors; /* in all: the first tensor and the last, weights, tensors */
} Convert;

static Err *form_of(Convert *c, const char *name, FormatForm **out) {
  for (int i = 0; i < c->n_forms; i++) if (!strcmp(c->form[i]->decl->name, name)) { *out = c->form[i]; return NULL; }
  if (c->n_forms == MAX_FORMATS) return err_new(ERR_LIMIT, "more than %d formats", MAX_FORMATS);
  TRY(cmd_format_find(c->a, c->m, name, &c->form[c->n_forms]));
  *out = c->form[c->n_forms++];
  return NULL;
}

/* ---- which tensor becomes what ------------------------------------------------------------------------------------- */
static const char *wanted(Convert *c, const ConvertOpts *o, const Recode *r, bool *by_name) {
  const FileTensor *t = r->from;
  *by_name = false;
  if (!r->parts && (t->n_dims < 2 || r->fixed)) return t->format; /* norms and biases, which everybody reads as the floats they are */
  *by_name = true;
  for (int i = 0; i < o->keep.n; i++) {
    const char *eq = strrchr(o->keep.p[i], '=');
    char glob[256];
    memcpy(glob, o->keep.p[i], (size_t)(eq - o->keep.p[i]));
    glob[eq - o->keep.p[i]] = 0;
    if (fnmatch(glob, t->name, 0)) continue;
    c->keep_used[i] = true;
    return eq[1] ? eq + 1 : r->parts ? NULL : t->format;
  }
  *by_name = false;
  if (r->parts) return o->quant;
  return o->quant ? o->quant : t->format;
}

static Err *check_keeps(Convert *c, const ConvertOpts *o) {
  FormatForm *form;
  for (int i = 0; i < o->keep.n; i++) {
    const char *eq = strrchr(o->keep.p[i], '=');
    if (!eq || eq == o->keep.p[i] || eq - o->keep.p[i] > 255) return err_new(ERR_USAGE, "--keep %s: expected GLOB=F", o->keep.p[i]);
    if (eq[1]) TRY(err_retype(err_wrap(form_of(c, eq + 1, &form), "--keep %s", o->keep.p[i]), ERR_NOT_FOUND, ERR_USAGE));
  }
  return NULL;
}

/* What reads the one and writes the other, and the room a thread needs for it. */
static Err *plan_kernels(Convert *c, Recode *r) {
  if (r->in == r->out) return NULL;
  if (r->in) TRY(kern_decode(c->kerns, r->in, &r->decode));
  TRY(kern_encode(c->kerns, c->m, r->out, &r->encode));
  TRY(kern_decode(c->kerns, r->out, &r->look));
  c->look_bytes = MAX(c->look_bytes, ROUND_UP(MAX(r->out->decl->block, (int64_t)LOOK_ELEMS) * 4 + 64, 64));
  c->scratch_bytes = MAX(c->scratch_bytes, ROUND_UP(r->encode->scratch_bytes + 64 + (int64_t)kern_blocks_bytes(r->out), 64));
  if (r->parts) c->tile_bytes = MAX(c->tile_bytes, ROUND_UP((int64_t)model_export_tile_bytes(r->parts), 64));
  return NULL;
}

static Err *plan_tensor(Convert *c, const ConvertOpts *o, Recode *r, FileOut *w) {
  const FileTensor *t = r->from;
  bool by_name;
  if (!r->parts && (!t->format || !t->p)) return err_new(ERR_UNSUPPORTED, "tensor %s: %s: no format text has this number", t->name, t->type);
  if (t->n_dims < 1 || t->n_dims > 4) return err_new(ERR_UNSUPPORTED, "tensor %s: %d dimensions, expected 1 to 4", t->name, t->n_dims);
  const char *name = wanted(c, o, r, &by_name);
  if (!name) return err_new(ERR_USAGE, "tensor %s: several tensors hold it (layout %s), which a GGUF file cannot: name a format by --quant F or --keep GLOB=F", t->name, t->format);
  if (!r->parts) TRY(form_of(c, t->format, &r->in));
  TRY(form_of(c, name, &r->out));
  if (t->dim[t->n_dims - 1] % r->out->decl->block) {
    if (by_name || r->parts) return err_new(ERR_SHAPE, "tensor %s: rows of %lld are not whole blocks of %lld, which %s has%s", t->name, (long long)t->dim[t->n_dims - 1], (long long)r->out->decl->block, name, by_name ? "" : "; --keep GLOB=F names another format for it");
    r->out = r->in;
    c->n_whole++;
  }
  if (r->out->decl->gguf_id < 0) return err_new(ERR_UNSUPPORTED, "format %s: its text gives no number for GGUF files (: gguf N)", r->out->decl->name);
  TRY(plan_kernels(c, r));
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
/* Elements [first, first + n) of what is written, as floats. Both bounds are whole blocks; rows are too. */
static void decode_piece(const Recode *r, int64_t first, int64_t n, float *x) {
  int64_t block = r->in->decl->block, bytes = r->in->decl->n_bytes, in_row = r->row ? r->from->dim[r->from->n_dims - 1] : 0;
  if (r->row && r->from->n_dims > 2) in_row = r->from->n_elems / r->from->dim[0];
  for (int64_t at = first, end = first + n, to; at < end; at = to) {
    int64_t from = at;
    to = r->row ? MIN(end, (at / in_row + 1) * in_row) : end;
    if (r->row) from = r->row[at / in_row] * in_row + at % in_row;
    kern_decode_blocks(r->decode, r->in, r->from->p + from / block * bytes, (to - at) / block, x + (at - first));
  }
}

static bool is_odd(float x) { return (f32_to_bits(x) & 0x7f800000) == 0x7f800000; }

/* Fast where there are none, which is nearly everywhere: 64 at a time, in a loop that compilers make of vector instructions. */
static int64_t count_odd(const float *x, int64_t n) {
  enum { LANES = 64 };
  int64_t k = 0, at = 0;
  for (; at + LANES <= n; at += LANES) {
    uint32_t bits[LANES], some = 0;
    memcpy(bits, x + at, sizeof bits);
    for (int i = 0; i < LANES; i++) some |= (bits[i] & 0x7f800000) + 0x00800000; /* the sign's bit, of an exponent of ones alone */
    for (int i = 0; i < LANES && some >> 31; i++) k += is_odd(x[at + i]);
  }
  for (; at < n; at++) k += is_odd(x[at]);
  return k;
}

/* Weights x are written as blocks: what is not finite in them, and what is no longer. at: of x[0] in the tensor; y: room for LOOK_ELEMS, at least a block. */
static void look(Convert *c, const Recode *r, const float *x, int64_t n, const uint8_t *blocks, int64_t at, float *y) {
  int64_t block = r->out->decl->block, step = MAX(LOOK_ELEMS / block, (int64_t)1), n_odd = count_odd(x, n), n_lost = 0, first = INT64_MAX;
  for (int64_t b = 0; b < n / block; b += step) {
    int64_t now = MIN(step, n / block - b);
    kern_decode_blocks(r->look, r->out, blocks + b * r->out->decl->n_bytes, now, y);
    if (!count_odd(y, now * block)) continue;
    for (int64_t i = 0; i < now * block; i++) {
      if (!is_odd(y[i]) || is_odd(x[b * block + i])) continue;
      if (!n_lost++) first = at + b * block + i;
    }
  }
  if (n_odd) atomic_fetch_add(&c->n_odd, n_odd);
  if (!n_lost) return;
  atomic_fetch_add(&c->n_lost, n_lost);
  for (int64_t old = atomic_load(&c->first_lost); first < old && !atomic_compare_exchange_weak(&c->first_lost, &old, first);) continue;
}

static int64_t thread_bytes(const Convert *c) { return c->scratch_bytes + c->tile_bytes + c->look_bytes + ROUND_UP(c->piece * 4, 64); }

static void recode_thread(void *ctx, int thread, int n_threads) {
  Convert *c = ctx;
  const Recode *r = c->now;
  int64_t a, b, out_block = r->out->decl->block, out_bytes = r->out->decl->n_bytes;
  uint8_t *scratch = c->scratch + thread * thread_bytes(c), *tile = scratch + c->scratch_bytes, *to;
  float *y = (float *)(void *)(tile + c->tile_bytes), *x = (float *)(void *)(tile + c->tile_bytes + c->look_bytes);
  (void)n_threads;
  while (dev_claim(&c->claim, 1, c->n_pieces, &a, &b)) {
    int64_t first = c->first + a * c->piece, n = MIN(c->piece, c->end - first);
    int64_t K = r->from->dim[r->from->n_dims - 1];
    if (r->parts) model_export_rows(r->parts, first / K, n / K, tile, x);
    else decode_piece(r, first, n, x);
    to = c->buffer + a * (c->piece / out_block * out_bytes);
    kern_encode_blocks(r->encode, r->out, x, n / out_block, to, scratch);
    look(c, r, x, n, to, first, y);
  }
}

static void draw(Convert *c, bool last) {
  int64_t now = os_now_ns();
  if (!c->bar || (!last && now - c->drawn_ns < 100000000)) return;
  c->drawn_ns = now;
  cmd_progress_bar("converting", (uint64_t)c->done_bytes, (uint64_t)c->all_bytes, "");
}

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

/* The input's pages under what is done are let go of: the model is never in memory as a whole. */
static Err *advance(Convert *c, const Recode *r, size_t at, size_t n_bytes) {
  if (!r->row && !r->fixed && !r->parts) os_drop_file_pages(r->from->p + at, n_bytes);
  c->done_bytes += (int64_t)n_bytes;
  draw(c, false);
  TRY(file_weights_failed(c->in));
  return cmd_interrupted() ? err_new(ERR_CANCELLED, "interrupted") : NULL;
}

static Err *copy_tensor(Convert *c, FileWriter *w, const Recode *r) {
  const FileTensor *t = r->from;
  size_t step = r->row ? t->n_bytes / (size_t)t->dim[0] : (size_t)1 << 24;
  for (size_t at = 0, i = 0; at < t->n_bytes; at += step, i++) {
    size_t n = MIN(t->n_bytes - at, step);
    TRY(file_gguf_append(w, t->p + (r->row ? (size_t)r->row[i] * step : at), n));
    TRY(advance(c, r, at, n));
  }
  return NULL;
}

/* Bytes of the input under the first n elements of a tensor: of several tensors a share, for the bar. */
static size_t bytes_under(const Recode *r, int64_t n) {
  if (r->parts) return (size_t)((double)r->from->n_bytes * ((double)n / (double)r->from->n_elems));
  return (size_t)(n / r->in->decl->block * r->in->decl->n_bytes);
}

/* Of a window: weights that the format cannot hold are an error, others that are no numbers are told at the end. */
static Err *looked(Convert *c, const Recode *r) {
  int64_t n = atomic_exchange(&c->n_odd, 0), at = atomic_load(&c->first_lost);
  if (n && !c->odd) c->odd = r;
  if (n && c->odd_last != r) c->n_odd_tensors++;
  if (n) c->odd_last = r;
  c->n_odds += n;
  if (!atomic_load(&c->n_lost)) return NULL;
  int64_t K = r->from->dim[r->from->n_dims - 1];
  return err_new(ERR_FORMAT, "tensor %s: %lld finite weight%s, first number %lld of row %lld, would be infinite or no number in %s; --keep '%s=F' names another format for it", r->from->name,
                 (long long)c->n_lost, c->n_lost == 1 ? "" : "s", (long long)(at % K), (long long)(at / K), r->out->decl->name, r->from->name);
}

static Err *recode_tensor(Convert *c, FileWriter *w, const Recode *r) {
  const FileTensor *t = r->from;
  int64_t in_block = r->parts ? t->dim[t->n_dims - 1] * PACK_ROWS : r->in->decl->block, out_block = r->out->decl->block;
  int64_t step = in_block / gcd(in_block, out_block * ENCODE_TILE) * out_block * ENCODE_TILE;
  int n_threads = dev_pool_n_threads(c->pool);
  c->now = r;
  c->piece = step >= PIECE_ELEMS ? step : PIECE_ELEMS / step * step;
  int64_t window = c->piece * 4 * n_threads;
  free(c->scratch);
  free(c->buffer);
  c->scratch = aligned_alloc(64, (size_t)(thread_bytes(c) * n_threads));
  c->buffer = malloc((size_t)(window / out_block * r->out->decl->n_bytes));
  if (!c->scratch || !c->buffer) return err_new(ERR_MEMORY, "no memory for %lld weights at a time", (long long)window);
  for (c->first = 0; c->first < t->n_elems; c->first += window) {
    c->end = MIN(c->first + window, t->n_elems);
    c->n_pieces = (c->end - c->first + c->piece - 1) / c->piece;
    atomic_store(&c->claim.next, 0);
    atomic_store(&c->first_lost, INT64_MAX);
    dev_pool_run(c->pool, recode_thread, c);
    TRY(looked(c, r));
    TRY(file_gguf_append(w, c->buffer, (size_t)((c->end - c->first) / out_block * r->out->decl->n_bytes)));
    TRY(advance(c, r, bytes_under(r, c->first), bytes_under(r, c->end) - bytes_under(r, c->first)));
  }
  return NULL;
}

static Err *write_tensor(Convert *c, FileWriter *w, const Recode *r) {
  TRY(r->in == r->out ? copy_tensor(c, w, r) : recode_tensor(c, w, r));
  if (r->parts) model_export_drop_pages(r->parts);
  else if (r->row && !r->fixed) os_drop_file_pages(r->from->p, r->from->n_bytes);
  return NULL;
}

static Err *write_tensors(Convert *c, FileWriter *w) {
  for (int i = 0; i < c->n_tensors; i++) TRY(write_tensor(c, w, &c->tensor[i]));
  draw(c, true);
  return NULL;
}

static Err *write_file(Convert *c, const char *path) {
  FileWriter *w;
  int n_kvs = c->folder ? c->folder->n_kvs : 0;
  const FileKv *kv = c->folder ? c->folder->kv : metadata(c, c->in, &n_kvs);
  TRY(file_gguf_create(path, kv, n_kvs, c->file_out, c->n_tensors, &w));
  Err *e = write_tensors(c, w);
  if (c->bar) fputc('\n', stderr);
  e = file_weights_explain(c->in, e);
  if (!e) return file_gguf_finish(w);
  file_gguf_drop(w);
  return e;
}

/* ---- the input ----------------------------------------------------------------------------------------------------- */
static Err *open_input(Convert *c, const ConvertOpts *o, const char *path, Weights **file) {
  bool folder = os_is_dir(path);
  if (folder) {
    TRY(model_export_open(path, o->std, &c->folder));
    c->in = c->folder->from;
  } else {
    TRY(file_weights_open(c->a, path, model_format_find, c->m, file));
    c->in = *file;
    if (strncmp(c->in->container, "GGUF", 4)) return err_new(ERR_UNSUPPORTED, "%s: is %s, expected a GGUF file or a model's folder with config.json", path, c->in->container);
    if (!o->quant && !o->keep.n) return err_new(ERR_USAGE, "--quant is missing: %s is a GGUF file already", path);
  }
  c->n_tensors = folder ? c->folder->n_tensors : c->in->n_tensors;
  c->tensor = ARENA_ARRAY(c->a, Recode, c->n_tensors + 1);
  c->file_out = ARENA_ARRAY(c->a, FileOut, c->n_tensors + 1);
  for (int i = 0; i < c->n_tensors; i++) {
    const ExportTensor *x = folder ? &c->folder->tensor[i] : NULL;
    c->tensor[i] = x ? (Recode){.from = &x->t, .row = x->row, .fixed = x->fixed, .parts = x->parts ? x : NULL} : (Recode){.from = &c->in->tensor[i]};
  }
  return NULL;
}

/* What is found before hours of work, not after. */
static Err *check_output(const char *to) {
  if (!strcmp(to, "-")) return err_new(ERR_USAGE, "-: a model is written to a file, not to standard output");
  return cmd_output_check(to);
}

static void tell(const Convert *c, const ConvertOpts *o, const char *to, int64_t t_ns) {
  double out_bytes = 0, s = (double)t_ns * 1e-9;
  if (c->odd)
    cmd_tell("%lld weight%s of %d tensor%s, first of %s, %s not finite in %s", (long long)c->n_odds, c->n_odds == 1 ? "" : "s", c->n_odd_tensors,
            c->n_odd_tensors == 1 ? "" : "s", c->odd->from->name, c->n_odds == 1 ? "is" : "are", c->in->path);
  if (o->quiet) return;
  for (int i = 0; i < c->n_tensors; i++) out_bytes += (double)c->file_out[i].n_bytes;
  if (c->folder) cmd_unused_tell(c->in->path, c->folder->left_out, c->folder->n_left_out);
  if (c->n_whole)
    cmd_tell("%d tensor%s stayed as they were: their rows are not whole blocks of %s", c->n_whole, c->n_whole == 1 ? "" : "s", o->quant);
  cmd_tell("%s: %d tensors, %.1f MB of weights from %.1f MB, in %.1f s", to, c->n_tensors, out_bytes * 1e-6, (double)c->all_bytes * 1e-6, s);
}

static Err *convert_open(Convert *c, const ConvertOpts *o, const char *from, const char *to) {
  const char *path;
  Weights *file = NULL;
  FormatForm *quant;
  int64_t t0 = os_now_ns();
  TRY(lang_std_load(c->a, o->std, &c->m));
  TRY(check_output(to));
  TRY(check_keeps(c, o));
  if (o->quant) TRY(err_retype(form_of(c, o->quant, &quant), ERR_NOT_FOUND, ERR_USAGE));
  TRY(cmd_model_locate(c->a, from, &path));
  Err *e = open_input(c, o, path, &file);
  if (!e) e = check_output(to);
  c->keep_used = ARENA_ARRAY(c->a, bool, o->keep.n + 1);
  for (int i = 0; i < c->n_tensors && !e; i++) e = plan_tensor(c, o, &c->tensor[i], &c->file_out[i]);
  for (int i = 0; i < o->keep.n && !e; i++)
    if (!c->keep_used[i]) cmd_tell("--keep %s: decides for no tensor", o->keep.p[i]);
  if (!e) e = write_file(c, to);
  if (!e) tell(c, o, to, os_now_ns() - t0);
  model_export_close(c->folder);
  file_weights_close(file);
  return e;
}

static Err *convert(Arena *a, const ConvertOpts *o, const char *from, const char *to) {
  Convert c = {.a = a, .bar = !o->quiet && isatty(STDERR_FILENO)};
  TRY(kern_set_new(NULL, false, &c.kerns));
  Err *e = dev_pool_new(o->threads ? (int)o->threads : os_n_cpus(), &c.pool);
  cmd_interrupts_catch();
  if (!e) e = convert_open(&c, o, from, to);
  cmd_interrupts_leave();
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
    else {
      Err *e = convert(a, &o, rest.arg[0], rest.arg[1]);
      if (e) code = cmd_fail(argv[0], e);
    }
  }
  arena_free(a);
  return code;
}
