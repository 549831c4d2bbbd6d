/* Builds kernels and keeps them by key: (structure of the region, formats, shapes, schedule). In: plans. Out: entry points that stay valid as
   long as the set. One thread at a time. */
#include <stdlib.h>
#include <string.h>
#include "kern/kern.h"

/* A key is everything that the code depends on, compared whole: two kernels never run each other by a hash that happens to agree. */
typedef struct KernKey { uint64_t hash; const char *key; size_t n_key; Kern kern; } KernKey;
typedef enum KeyOf { KEY_REGION, KEY_FORMAT, KEY_ENCODE, KEY_FN } KeyOf;
struct Kerns {
  Arena *arena;
  const Target *target;
  DevCode *code;
  KernKey **built; int n_built, cap_built;
  int64_t compile_ns;
  size_t code_bytes, l2_bytes;
};

KernShape kern_shape(int64_t n_rows) { return n_rows == 1 ? KERN_ONE : n_rows <= 12 ? KERN_FEW : KERN_MANY; }

GenCpu kern_cpu(void) {
  DevCpu d;
  dev_cpu_detect(&d);
  bool avx512 = d.avx512f && d.avx512bw && d.avx512dq && d.avx512vl;
  bool tiles = avx512 && d.amx_tile && d.amx_int8 && d.amx_bf16 && dev_tiles_ask();
  return (GenCpu){.sse41 = d.sse41 && d.ssse3, .avx2 = d.avx2, .fma = d.fma, .f16c = d.f16c, .avx512 = avx512, .vnni = avx512 && d.avx512vnni, .dot2 = avx512 && d.avx512bf16, .tiles = tiles};
}

const char *kern_tiles_missing(void) {
  DevCpu d;
  if (kern_cpu().tiles) return NULL;
  dev_cpu_detect(&d);
  if (d.amx_tile && d.amx_int8 && d.amx_bf16) return "the system does not let this process use matrix tiles, or AVX-512 with VNNI and BF16 is missing beside them";
  return "this processor has no matrix tiles (AMX-TILE, AMX-INT8, AMX-BF16)";
}

Err *kern_target_host(const Target **out) {
  const Target *t = gen_target_host(kern_cpu());
  if (t) { *out = t; return NULL; }
  DevCpu d;
  dev_cpu_detect(&d);
  return err_new(ERR_UNSUPPORTED, "no target is for this processor yet: got %s, expected x86-64 with SSE4.1", d.brand[0] ? d.brand : "an unknown one");
}

Err *kern_set_new(const Target *t, bool perf_map, Kerns **out) {
  if (!t) TRY(kern_target_host(&t));
  GenCpu cpu = kern_cpu();
  if (t->tiles && !cpu.tiles) return err_new(ERR_UNSUPPORTED, "target %s: %s; `lumen cc` shows its code all the same", t->name, kern_tiles_missing());
  if (!gen_target_runs(t, cpu)) return err_new(ERR_UNSUPPORTED, "target %s: this processor cannot run it", t->name);
  Kerns *k = calloc(1, sizeof *k);
  CHECK(k);
  *k = (Kerns){.arena = arena_new("model"), .target = t, .code = dev_code_new(perf_map)};
  DevCpu dev;
  dev_cpu_detect(&dev);
  k->l2_bytes = dev.l2_bytes ? dev.l2_bytes : 512 << 10;
  *out = k;
  return NULL;
}

void kern_set_free(Kerns *k) {
  if (!k) return;
  dev_code_free(k->code);
  arena_free(k->arena);
  free(k);
}

const Target *kern_target(const Kerns *k) { return k->target; }
int kern_n_built(const Kerns *k) { return k->n_built; }
int64_t kern_compile_ns(const Kerns *k) { return k->compile_ns; }
size_t kern_code_bytes(const Kerns *k) { return k->code_bytes; }

static uint64_t key_hash(const Str *key) { return hash_bytes(key->p, key->n, 0); }

static const Kern *find(const Kerns *k, const Str *key) {
  uint64_t h = key_hash(key);
  for (int i = 0; i < k->n_built; i++) {
    const KernKey *b = k->built[i];
    if (b->hash == h && b->n_key == key->n && !memcmp(b->key, key->p, key->n)) return &b->kern;
  }
  return NULL;
}

static void key_int(Str *key, int64_t v) { str_add_n(key, &v, sizeof v); }

static void trace_code(const GenCode *c, const char *name) {
  if (trace_on(TRACE_asm, name) && c->text) trace_text(TRACE_asm, name, c->text);
  if (!trace_on(TRACE_bin, name)) return;
  Str s = {0};
  for (size_t i = 0; i < c->n_bytes; i++) str_addf(&s, i % 32 == 31 ? "%02x\n" : "%02x ", c->code[i]);
  trace_text(TRACE_bin, name, s.p ? s.p : "");
  str_free(&s);
}

static Err *finish(Kerns *k, Arena *tmp, IrFn *fn, const Str *key, int64_t scratch_bytes, Sched sched, int64_t t0, const Kern **out) {
  GenCode code = {0};
  Str mach = {0};
  GenOptions opt = {.want_text = trace_on(TRACE_asm, fn->name), .mach = trace_on(TRACE_mach, fn->name) ? &mach : NULL};
  if (trace_on(TRACE_ir, fn->name)) {
    Str s = {0};
    ir_fn_print(fn, &s);
    trace_text(TRACE_ir, fn->name, s.p);
    str_free(&s);
  }
  TRY(err_wrap(ir_fn_verify(fn), "kernel %s", fn->name));
  TRY(opt_pipeline(fn));
  Err *e = gen_compile(tmp, fn, k->target, &opt, &code);
  if (mach.p) trace_text(TRACE_mach, fn->name, mach.p);
  str_free(&mach);
  TRY(err_wrap(e, "kernel %s", fn->name));
  trace_code(&code, fn->name);
  KernKey *kk = ARENA_NEW(k->arena, KernKey);
  const void *entry;
  TRY(dev_code_add(k->code, fn->name, code.code, code.n_bytes, &entry));
  kk->hash = key_hash(key);
  kk->key = arena_dup_n(k->arena, key->p, key->n);
  kk->n_key = key->n;
  kk->kern = (Kern){.name = arena_dup(k->arena, fn->name), .scratch_bytes = scratch_bytes, .code_bytes = code.n_bytes, .sched = sched, .compile_ns = os_now_ns() - t0};
  memcpy(&kk->kern.entry, &entry, sizeof entry);
  PUSH(k->arena, k->built, k->n_built, k->cap_built, kk);
  k->compile_ns += kk->kern.compile_ns;
  k->code_bytes += code.n_bytes;
  trace_printf(TRACE_kern, "%s: %zu bytes, %d instructions, %d spills (%d in inner loops), %.2f ms", fn->name, code.n_bytes, code.n_ins, code.n_spills, code.n_loop_spills, (double)kk->kern.compile_ns * 1e-6);
  *out = &kk->kern;
  return NULL;
}

static void sched_key(const Sched *s, Str *key) {
  int v[20] = {s->steps, s->ahead, s->side, s->short_dots, s->n_matrix, s->matrix[0], s->matrix[1], s->matrix_bytes, s->pairs, s->row_axis, s->chains, s->block_rows, s->lanes, s->n_tiles, s->tile[0], s->tile[1], s->tile[2], s->tile[3], s->stage, s->naive};
  str_add_n(key, v, sizeof v);
}

Err *kern_region(Kerns *k, const TpPlan *p, int region, KernShape shape, const Kern **out) {
  Sched s = kern_sched(k->target, k->l2_bytes, p, region, shape);
  const TpRegion *r = &p->region[region];
  Str key = {0};
  key_int(&key, KEY_REGION);
  sched_key(&s, &key);
  key_int(&key, r->n_args);
  for (int i = 0; i < r->n_args; i++) key_int(&key, r->arg[i] >= 0 && r->arg[i] < TP_TABLE ? 2 * p->tp->buf[r->arg[i]].pitch + p->tp->buf[r->arg[i]].bf16 : -1);
  str_add_n(&key, r->form, r->n_form);
  Err *e = NULL;
  if (!(*out = find(k, &key))) {
    int64_t t0 = os_now_ns(), scratch_bytes;
    Arena *tmp = arena_new("compile");
    IrFn *fn;
    e = lower_region(tmp, p, region, &s, p->region[region].name, &fn, &scratch_bytes);
    if (!e) e = finish(k, tmp, fn, &key, scratch_bytes, s, t0, out);
    arena_free(tmp);
  }
  str_free(&key);
  return e;
}

/* A kernel that is known by a name and a number: a form's packing for rows of K (0: its decoding), what encodes in it, or a function that is made already. */
typedef struct Named { KeyOf of; const char *what; int64_t K; const FormatForm *form; const Module *module; FormatForm *encoded; IrFn *fn; } Named;

static Err *named_kernel(Kerns *k, Named n, const Kern **out) {
  char name[100]; /* of a long name the beginning; the key is of all */
  Str key = {0};
  key_int(&key, n.of);
  key_int(&key, n.K);
  str_add(&key, n.what);
  Err *e = NULL;
  if (!(*out = find(k, &key))) {
    int64_t t0 = os_now_ns(), scratch_bytes = n.of == KEY_FN ? 4096 : n.of == KEY_FORMAT ? 256 : 0;
    Arena *tmp = arena_new("compile");
    snprintf(name, sizeof name, n.of == KEY_ENCODE ? "encode.%.60s" : n.K ? "pack.%.60s.%lld" : "decode.%.60s", n.what, (long long)n.K);
    if (n.of == KEY_ENCODE) e = lower_encode(tmp, n.module, n.encoded, name, &n.fn, &scratch_bytes);
    else if (n.of == KEY_FORMAT) e = n.K ? lower_pack(tmp, n.form, n.K, name, &n.fn) : lower_decode(tmp, n.form, name, &n.fn);
    if (!e) e = finish(k, tmp, n.fn, &key, scratch_bytes, (Sched){0}, t0, out);
    arena_free(tmp);
  }
  str_free(&key);
  return e;
}

Err *kern_fn(Kerns *k, IrFn *fn, const Kern **out) { return named_kernel(k, (Named){.of = KEY_FN, .what = fn->name, .fn = fn}, out); }
Err *kern_pack(Kerns *k, const FormatForm *f, int64_t K, const Kern **out) { return named_kernel(k, (Named){.of = KEY_FORMAT, .what = f->decl->name, .K = K, .form = f}, out); }
Err *kern_decode(Kerns *k, const FormatForm *f, const Kern **out) { return kern_pack(k, f, 0, out); }
Err *kern_encode(Kerns *k, const Module *m, FormatForm *f, const Kern **out) { return named_kernel(k, (Named){.of = KEY_ENCODE, .what = f->decl->name, .module = m, .encoded = f}, out); }
