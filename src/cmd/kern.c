/* `lumen kern SPEC`: one kernel, no model. Prints how it is planned and what it compiles to; --check compares the machine code of each target
   with the interpreter bit for bit; --time holds it against a peak measured beside it in this process. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "cmd/cmd.h"
#include "cmd/quiet.h"
#include "kern/kern.h"

#define KERN_ROWS(X, T)                                                                                                         \
  X(T, precision, 0, STR, "NAME", "int8", 0, 0, "int8 (activations in 8 bits where the format allows), bf16 or f32")                  \
  X(T, target, 0, STR, "NAME", NULL, 0, 0, "a target of `lumen doctor`, or all that run here; else the best of this machine")   \
  X(T, check, 0, FLAG, "", NULL, 0, 0, "compare machine code with the interpreter, bit for bit")                                \
  X(T, time, 0, FLAG, "", NULL, 0, 0, "time it, beside this machine's peak")                                                    \
  X(T, threads, 't', INT, "N", "0", 0, 1024, "threads; 0: as many as this process may use")                                     \
  X(T, json, 'j', FLAG, "", NULL, 0, 0, "print JSON")                                                                           \
  X(T, std, 0, STR, "DIR", NULL, 0, 0, "texts that add to or override the built-in formats and ops")
OPT_DEFINE(KernOpts, KERN_ROWS)

enum { CHECK_MADDS = 6 << 20, N_SEEDS = 2 }; /* the interpreter takes about 50 ns for one */
typedef struct Job {
  const KernOpts *o;
  Arena *arena;
  const Module *module;
  KernCall call;
  KernSpec *spec;
  const Target *target[16]; int n_targets;
  DevPool *pool;
  json_t *json;                     /* array, one object a target; NULL: text */
} Job;

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

/* ---- what is compiled ---------------------------------------------------------------------------------------------- */
static Err *targets_find(Job *j) {
  bool all = j->o->target && !strcmp(j->o->target, "all");
  const Target *one = j->o->target ? gen_target_find(j->o->target) : NULL;
  if (!j->o->target || all) TRY(kern_target_host(&one));
  if (!one) {
    const char *names[16];
    int n = 0;
    for (; n < gen_target_count() && n < (int)COUNT_OF(names); n++) names[n] = gen_target_get(n)->name;
    const char *near = lang_nearest(j->o->target, names, n);
    return err_new(ERR_USAGE, "--target %s: no such target%s%s%s", j->o->target, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
  }
  GenCpu cpu = kern_cpu();
  if (!all) j->target[j->n_targets++] = one;
  for (int i = 0; all && i < gen_target_count() && j->n_targets < (int)COUNT_OF(j->target); i++)
    if (gen_target_runs(gen_target_get(i), cpu)) j->target[j->n_targets++] = gen_target_get(i);
  return NULL;
}

static KernShape shape_of(const Job *j) { return j->spec->tp->n_syms == 0 ? KERN_ONE : j->spec->sym[0] < 1 ? KERN_MANY : kern_shape(j->spec->sym[0]); }

static Err *print_plan(Job *j) {
  Str s = {0};
  str_addf(&s, "%s\nprecision %s\n\n", j->spec->text, j->spec->variant);
  tp_plan_print(j->spec->plan, &s);
  for (int i = 0; i < j->spec->tp->n_forms; i++) format_print(j->spec->tp->form[i], &s);
  fputs(s.p, stdout);
  str_free(&s);
  return NULL;
}

static void sched_text(const Sched *s, Str *out) {
  str_addf(out, "%d lanes, tiles of", s->lanes);
  for (int i = 0; i < s->n_tiles; i++) str_addf(out, " %d", s->tile[i]);
  str_add(out, s->stage ? " rows, weights unpacked once per tile" : " rows");
  for (int i = 0; i < s->n_matrix; i++) str_addf(out, i ? " %d" : ", before them matrix tiles of %d", s->matrix[i]);
  if (s->block_rows) str_addf(out, ", blocks of %d rows", s->block_rows);
}

static Err *print_kernels(Job *j, const Target *t) {
  Kerns *k;
  TRY(kern_set_new(t, false, &k));
  Err *e = NULL;
  json_t *list = json_array();
  if (!j->json) printf("\n%s\n", t->name);
  for (int i = 0; !e && i < j->spec->plan->n_regions; i++) {
    const TpRegion *r = &j->spec->plan->region[i];
    const Kern *kn;
    Str s = {0};
    if ((e = kern_region(k, j->spec->plan, i, shape_of(j), &kn))) break;
    sched_text(&kn->sched, &s);
    if (!j->json) printf("  phase %d  %-12s %6zu bytes of code, %7lld of scratch, %6.2f ms  %s\n", r->phase, r->name, kn->code_bytes, (long long)kn->scratch_bytes, (double)kn->compile_ns * 1e-6, s.p ? s.p : "");
    else json_array_append_new(list, json_pack("{s:s, s:i, s:I, s:I, s:f, s:s}", "name", r->name, "phase", r->phase, "code_bytes", (json_int_t)kn->code_bytes, "scratch_bytes",
                                               (json_int_t)kn->scratch_bytes, "compile_ms", (double)kn->compile_ns * 1e-6, "schedule", s.p ? s.p : ""));
    str_free(&s);
  }
  if (j->json && !e) json_array_append_new(j->json, json_pack("{s:s, s:s, s:s, s:O}", "spec", j->spec->text, "target", t->name, "precision", j->spec->variant, "kernels", list));
  json_decref(list);
  kern_set_free(k);
  return e;
}

/* ---- checking ------------------------------------------------------------------------------------------------------ */
typedef struct Check { Kerns *set[16]; int n_shapes, n_runs; Str shapes; } Check;

static Err *check_shape(Job *j, const KernCall *call, bool must_fit, Check *c) {
  KernSpec *spec;
  KernData *d;
  TRY(kern_call_build(j->arena, j->module, call, j->o->precision, &spec));
  TRY(kern_data_new(spec, 1, &d));
  KernWork w = kern_data_work(d);
  kern_data_free(d);
  if (!must_fit && w.f32_madds + w.int_madds > CHECK_MADDS) return NULL;
  for (uint64_t seed = 1; seed <= N_SEEDS; seed++) TRY(kern_check(spec, c->set, j->n_targets, seed, j->pool, &c->n_runs));
  c->n_shapes++;
  str_addf(&c->shapes, "  %s\n", spec->text);
  return NULL;
}

/* Whether something can be indexed by the values that were given, in the shape that a call has now. */
static Err *values_fit(Job *j, const KernCall *call) {
  KernSpec *spec;
  KernData *d;
  TRY(kern_call_build(j->arena, j->module, call, j->o->precision, &spec));
  TRY(kern_data_new(spec, 1, &d));
  kern_data_free(d);
  return NULL;
}

/* A shape of ours: with the values of the given one where they fit into it too, else with those that do. */
static Err *check_resized(Job *j, KernCall *call, Check *c) {
  Err *e = values_fit(j, call);
  if (e && err_kind(e) != ERR_USAGE) return e;
  for (int i = 0; i < call->n_items && e; i++) call->item[i].last = -1;
  err_free(e);
  return check_shape(j, call, true, c);
}

/* The shape as given where the interpreter can run it in time, then small odd numbers of rows, and of rows of weights. */
static Err *check_shapes(Job *j, Check *c) {
  static const int64_t rows[] = {1, 2, 3, 5, 13}, weight_rows[] = {31, 1, 15, 16, 17};
  KernDim dim[32];
  int n = kern_op_dims(j->spec->op, dim, 32);
  bool open = false, resized = false;
  for (int i = 0; i < j->spec->tp->n_syms; i++) open |= j->spec->sym[i] < 1;
  if (!open) TRY(check_shape(j, &j->call, false, c));
  bool fits = !open;
  Err *e = NULL, *why = NULL;
  for (size_t r = 0; r < COUNT_OF(rows) && !e; r++) {
    KernCall call = j->call;
    for (int i = 0; i < n; i++) if (dim[i].is_rows) resized |= kern_call_resize(j->module, &call, dim[i].name, rows[r]);
    for (int i = 0; i < call.n_items; i++) if (call.item[i].last >= 0) call.item[i].last = MAX(call.item[i].last, call.item[i].dim[0] - 1);
    if (!fits) err_free(why), why = values_fit(j, &call), fits = !why;
    for (int i = 0; i < n; i++) if (dim[i].is_weight_row && !dim[i].is_weight_k) resized |= kern_call_resize(j->module, &call, dim[i].name, weight_rows[r]);
    if (resized) e = check_resized(j, &call, c);
  }
  if (!e && !fits) return why;                               /* with no number of rows the given values stay inside */
  err_free(why);
  TRY(e);
  return c->n_shapes ? NULL : err_new(ERR_UNSUPPORTED, "--check: this many multiply-adds would take the interpreter too long");
}

static Err *check(Job *j) {
  Check c = {0};
  Err *e = NULL;
  for (int i = 0; !e && i < j->n_targets; i++) e = kern_set_new(j->target[i], false, &c.set[i]);
  if (!e) e = check_shapes(j, &c);
  for (int i = 0; i < j->n_targets; i++) kern_set_free(c.set[i]);
  if (!e && !j->json) printf("%sbit for bit the interpreter's: %d shape%s, %d seeds, %d targets, %d runs\n", c.shapes.p, c.n_shapes, c.n_shapes == 1 ? "" : "s", N_SEEDS, j->n_targets, c.n_runs);
  str_free(&c.shapes);
  return e;
}

/* ---- timing -------------------------------------------------------------------------------------------------------- */
typedef struct Timing { double seconds, flops, n_bytes, percent; const char *roof; KernPeak peak; int n_runs; double others; } Timing; /* others: percent of the processors */

/* The best of the runs of a second at most, at least three, the first of which warms up. */
static Err *best_run(Job *j, KernData *d, Timing *t) {
  int64_t best = INT64_MAX, start = os_now_ns();
  for (t->n_runs = 0; t->n_runs < 4 || (os_now_ns() - start < 1000000000 && t->n_runs < 20000); t->n_runs++) {
    int64_t t0 = os_now_ns();
    TRY(kern_data_run(d, j->pool));
    if (t->n_runs) best = MIN(best, os_now_ns() - t0);
  }
  t->seconds = (double)MAX(best, 1) * 1e-9;
  return NULL;
}

static Err *time_target(Job *j, const Target *target, Kerns *k, Timing *t) {
  KernData *d;
  TRY(kern_data_new(j->spec, 1, &d));
  Err *e = kern_data_prepare(d, k, KERN_N_SHAPES);
  CmdQuiet q = cmd_quiet_now();
  if (!e) e = best_run(j, d, t);
  KernWork w = {0};
  if (!e) w = kern_data_work(d);
  kern_data_free(d);
  if (!e) e = kern_peak(k, j->pool, (size_t)MIN(MAX(w.n_bytes, 1 << 20), 4e9), &t->peak);
  if (e) return err_wrap(e, "%s", target->name);
  t->others = cmd_others_percent(&q);
  double compute = ratio(w.f32_madds - (target->dot2 ? w.pair_madds / 2 : 0), t->peak.f32_madds_per_s) + ratio(w.int_madds, t->peak.int_madds_per_s), memory = ratio(w.n_bytes, t->peak.read_bytes_per_s);
  t->flops = 2 * (w.f32_madds + w.int_madds);
  t->n_bytes = w.n_bytes;
  t->roof = compute > memory ? "compute" : "memory";
  t->percent = 100 * MAX(compute, memory) / t->seconds;
  return NULL;
}

static void print_timing(const Job *j, const Target *target, const Timing *t) {
  if (j->json) {
    json_t *o = json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:s, s:I, s:I, s:i}", "spec", j->spec->text, "target", target->name, "precision", j->spec->variant, "threads",
                          dev_pool_n_threads(j->pool), "seconds", t->seconds, "flops_per_second", t->flops / t->seconds, "bytes_per_second", t->n_bytes / t->seconds,
                          "percent_of_peak", t->percent, "roof", t->roof, "flops", (json_int_t)t->flops, "bytes", (json_int_t)t->n_bytes, "runs", t->n_runs);
    json_object_set_new(o, "peak", json_pack("{s:f, s:f, s:f}", "f32_flops_per_second", 2 * t->peak.f32_madds_per_s, "int8_flops_per_second", 2 * t->peak.int_madds_per_s,
                                             "read_bytes_per_second", t->peak.read_bytes_per_s));
    json_object_set_new(o, "others_percent", t->others < 0 ? json_null() : json_real(t->others));
    json_array_append_new(j->json, o);
    return;
  }
  printf("%-16s %10.3f us  %9.2f GFLOP/s  %8.2f GB/s  %5.1f%% of the %s peak  (here: %.1f GFLOP/s f32, %.1f int8, reads %.1f GB/s; %d thread%s)\n", target->name, t->seconds * 1e6,
         t->flops / t->seconds * 1e-9, t->n_bytes / t->seconds * 1e-9, t->percent, t->roof, 2e-9 * t->peak.f32_madds_per_s, 2e-9 * t->peak.int_madds_per_s,
         t->peak.read_bytes_per_s * 1e-9, dev_pool_n_threads(j->pool), dev_pool_n_threads(j->pool) == 1 ? "" : "s");
  if (t->others <= CMD_QUIET_PERCENT) return;
  Str s = {0};
  cmd_others_text(t->others, &s);
  printf("%-16s %s\n", "", s.p);
  str_free(&s);
}

static Err *time_all(Job *j) {
  for (int i = 0; i < j->n_targets; i++) {
    Kerns *k;
    Timing t = {0};
    TRY(kern_set_new(j->target[i], false, &k));
    Err *e = time_target(j, j->target[i], k, &t);
    kern_set_free(k);
    TRY(e);
    print_timing(j, j->target[i], &t);
  }
  return NULL;
}

/* ---- the command --------------------------------------------------------------------------------------------------- */
static Err *work(Job *j) {
  const KernOpts *o = j->o;
  if (o->check) TRY(check(j));
  if (o->time) return time_all(j);
  if (o->check) {
    for (int i = 0; j->json && i < j->n_targets; i++) json_array_append_new(j->json, json_pack("{s:s, s:s, s:s, s:b}", "spec", j->spec->text, "target", j->target[i]->name, "precision", j->spec->variant, "same_bits", 1));
    return NULL;
  }
  if (!j->json) TRY(print_plan(j));
  for (int i = 0; i < j->n_targets; i++) TRY(print_kernels(j, j->target[i]));
  return NULL;
}

static Err *kern(Arena *a, const KernOpts *o, const char *text) {
  Job j = {.o = o, .arena = a};
  Module *m;
  TRY(lang_std_load(a, o->std, &m));
  j.module = m;
  if (cmd_is_path(text)) return err_new(ERR_USAGE, "%s: a path, expected a call of an op (`lumen cc` compiles files that end in .lum or .ir)", text);
  TRY(kern_call_parse(a, text, &j.call));
  TRY(kern_precision_check(a, m, o->precision));
  TRY(targets_find(&j));
  for (int i = 0; i < j.n_targets; i++) j.call.narrow |= j.target[i]->tiles, j.call.dot2 |= j.target[i]->dot2;
  TRY(kern_call_build(a, m, &j.call, o->precision, &j.spec));
  TRY(dev_pool_new(o->threads ? (int)o->threads : os_n_cpus(), &j.pool));
  if (o->json) j.json = json_array();
  Err *e = work(&j);
  if (!e && j.json) {
    json_dumpf(json_array_size(j.json) == 1 ? json_array_get(j.json, 0) : j.json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    putchar('\n');
  }
  json_decref(j.json);
  dev_pool_free(j.pool);
  return e;
}

int cmd_kern(int argc, char **argv) {
  Arena *a = arena_new("kern");
  KernOpts o;
  OptRest rest;
  int code = CMD_OK;
  if (cmd_options(a, KernOpts_rows, COUNT_OF(KernOpts_rows), argc, argv, &o, &rest, &code)) {
    if (rest.n_args == 0) code = cmd_misused(argv[0], "no kernel named");
    else {
      Str s = {0}; /* a spec may come as one word or as several */
      for (int i = 0; i < rest.n_args; i++) str_addf(&s, i ? " %s" : "%s", rest.arg[i]);
      Err *e = kern(a, &o, s.p);
      if (e) code = cmd_fail(argv[0], e);
      str_free(&s);
    }
  }
  arena_free(a);
  return code;
}
