/* What `lumen bench` tells of its figures: a table, JSON, a roofline plot. In: what bench.c measured. Out: standard output and files. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "cmd/bench.h"
#include "cmd/quiet.h"
#include "cmd/roofline.h"

double cmd_bench_rate(double n, int64_t t_ns) { return t_ns > 0 ? n * 1e9 / (double)t_ns : 0; }
static double ms(int64_t t_ns) { return (double)t_ns * 1e-6; }
static double over(double a, double b) { return b > 0 ? a / b : 0; }

/* ---- a phase against the machine ---- */
typedef struct Against { double ops_per_s, bytes_per_s, percent_of_peak, percent_of_bandwidth; } Against;

static Against against(const Bench *b, int phase) {
  const BenchPhase *p = &b->phase[phase];
  const BenchRound *r = b->of[phase];
  double times = over((double)r->speed[phase].n_tokens, (double)p->n_tokens) * 1e9 / (double)MAX(r->speed[phase].t_ns, 1); /* how often a second the watched work is done */
  Against x = {.ops_per_s = (p->int_ops + p->f32_ops) * times, .bytes_per_s = p->n_bytes * times};
  x.percent_of_peak = 100 * (over(p->int_ops * times, r->peak.int_ops_per_s) + over((p->f32_ops - p->pair_ops / 2) * times, r->peak.f32_ops_per_s));
  x.percent_of_bandwidth = 100 * over(x.bytes_per_s, r->peak.read_bytes_per_s);
  return x;
}

/* Decoding's weights alone: once a step, whatever the batch. */
static double weights_percent(const Bench *b) {
  const BenchRound *r = b->of[BENCH_DECODE];
  return 100 * over(cmd_bench_rate((double)model_bytes_per_token(b->m) * (double)b->o->generate, r->speed[BENCH_DECODE].t_ns), r->peak.read_bytes_per_s);
}

/* Seconds of one call. */
static double call_seconds(const Bench *b, const ModelSpentRow *r) {
  return 1e-9 * (b->o->best ? (double)r->best_ns : over((double)r->t_ns, (double)r->n_calls));
}

/* ---- JSON ---- */
static json_t *kernels_json(const Bench *b, int phase) {
  json_t *all = json_array();
  const BenchPhase *p = &b->phase[phase];
  for (int i = 0; i < p->n; i++) {
    const ModelSpentRow *r = &p->row[i];
    bool memory;
    double t = call_seconds(b, r), n = (double)MAX(r->n_calls, 1), roof = model_peak_seconds(&b->of[phase]->peak, r, &memory) / n;
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:b, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s}", "name", r->name, "where", r->where, "shape", r->shape, "spec", r->spec, "spec_is_part", r->spec_is_part, "calls", (json_int_t)r->n_calls,
                          "seconds", t, "share", over((double)r->t_ns, (double)p->t_ns), "operations", (r->int_ops + r->f32_ops) / n, "bytes", r->n_bytes / n,
                          "operations_per_second", over((r->int_ops + r->f32_ops) / n, t), "bytes_per_second", over(r->n_bytes / n, t), "percent_of_roof", 100 * over(roof, t), "roof", memory ? "memory" : "compute");
    json_array_append_new(all, o ? o : json_null());
  }
  return all;
}

static json_t *phase_json(const Bench *b, int phase) {
  const BenchSpeed *s = &b->of[phase]->speed[phase];
  Against x = against(b, phase);
  json_t *o = json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "tokens", (json_int_t)s->n_tokens, "seconds", (double)s->t_ns * 1e-9, "cpu_seconds", (double)s->cpu_ns * 1e-9,
                        "tokens_per_second", cmd_bench_rate((double)s->n_tokens, s->t_ns), "operations_per_second", x.ops_per_s, "bytes_per_second", x.bytes_per_s,
                        "percent_of_peak", x.percent_of_peak, "percent_of_bandwidth", x.percent_of_bandwidth, "kernels", kernels_json(b, phase));
  CHECK(o, "bench: no JSON");
  json_object_set_new(o, phase == BENCH_PREFILL ? "prompt" : "context", json_integer((json_int_t)(phase == BENCH_PREFILL ? b->o->prompt : b->context)));
  json_t *rounds = json_array();
  for (int i = 0; i < b->o->rounds; i++) json_array_append_new(rounds, json_real(cmd_bench_rate((double)b->round[i].speed[phase].n_tokens, b->round[i].speed[phase].t_ns)));
  json_object_set_new(o, "rounds", rounds);
  return o;
}

static json_t *bench_json(const Bench *b) {
  const ModelTimes *t = model_times(b->m);
  const ModelPeak *p = &b->of[BENCH_DECODE]->peak;
  json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:I, s:b, s:o, s:o}", "model", b->name, "target", model_target(b->m), "precision", model_precision(b->m), "kv", model_kv(b->m),
                        "threads", model_n_threads(b->m), "batch", (json_int_t)b->o->batch, "rounds", (json_int_t)b->o->rounds, "best", b->o->best,
                        "prefill", phase_json(b, BENCH_PREFILL), "decode", phase_json(b, BENCH_DECODE));
  json_t *more = json_pack("{s:f, s:f, s:f, s:f, s:f, s:I, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:I, s:f, s:{s:f, s:f, s:f}}", "compile_ms", ms(t->compile_ns), "open_ms", ms(t->open_ns), "pack_ms", ms(t->pack_ns), "pack_cpu_ms", ms(t->pack_cpu_ns),
                           "first_token_ms", ms(b->first_token_ns), "peak_rss_bytes", (json_int_t)b->rss_bytes, "kernels", t->n_kernels, "code_bytes", (json_int_t)t->code_bytes,
                           "weight_bytes", (json_int_t)t->weight_bytes, "packed_bytes", (json_int_t)t->packed_bytes, "state_bytes", (json_int_t)t->state_bytes, "huge_bytes", (json_int_t)t->huge_bytes,
                           "context", (json_int_t)model_context(b->m), "chunk", model_chunk(b->m), "bytes_per_token", (json_int_t)model_bytes_per_token(b->m),
                           "read_test_bytes", (json_int_t)p->read_bytes, "read_bytes_per_second", p->read_bytes_per_s, "peak", "int8_operations_per_second", p->int_ops_per_s,
                           "f32_operations_per_second", p->f32_ops_per_s, "read_bytes_per_second", p->read_bytes_per_s);
  CHECK(o && more, "bench: no JSON");
  json_object_set_new(json_object_get(o, "decode"), "read_bandwidth_percent", json_real(weights_percent(b)));
  json_object_set_new(more, "others_percent", b->others < 0 ? json_null() : json_real(b->others));
  json_object_set_new(more, "quiet", b->others < 0 ? json_null() : json_boolean(b->others <= CMD_QUIET_PERCENT));
  json_object_update(o, more);
  json_decref(more);
  return o;
}

static bool is_stdout(const char *path) { return path && !strcmp(path, "-"); }

static Err *tell_json(const Bench *b) {
  json_t *o = bench_json(b);
  char *text = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
  json_decref(o);
  CHECK(text, "bench: no JSON");
  Str s = {0};
  str_addf(&s, "%s\n", text);
  free(text);
  Err *e = os_write_file(b->o->json, s.p, s.n);
  str_free(&s);
  return e;
}

/* ---- the plot ---- */
static void add_points(const Bench *b, Arena *a, int phase, RoofPoint *out, int *n) {
  const BenchPhase *p = &b->phase[phase];
  for (int i = 0; i < p->n; i++) {
    const ModelSpentRow *r = &p->row[i];
    double calls = (double)MAX(r->n_calls, 1);
    out[(*n)++] = (RoofPoint){.series = phase, .name = r->name, .detail = arena_printf(a, "%s  %s", r->where, r->shape), .ops = (r->int_ops + r->f32_ops) / calls, .n_bytes = r->n_bytes / calls,
                              .seconds = call_seconds(b, r), .share = over((double)r->t_ns, (double)p->t_ns), .roof_seconds = model_peak_seconds(&b->of[phase]->peak, r, NULL) / calls};
  }
}

static const char *others_text(Arena *a, double others) {
  Str s = {0};
  cmd_others_text(others, &s);
  const char *text = arena_dup(a, s.p);
  str_free(&s);
  return text;
}

static Err *tell_svg(const Bench *b) {
  Arena *a = arena_new("plot");
  const ModelPeak *p = &b->of[BENCH_DECODE]->peak;
  RoofPoint *point = ARENA_ARRAY(a, RoofPoint, b->phase[0].n + b->phase[1].n + 1);
  int n = 0, threads = model_n_threads(b->m);
  for (int i = 0; i < 2; i++) add_points(b, a, i, point, &n);
  RoofLine line[] = {{"8-bit integers", p->int_ops_per_s}, {"f32 multiply-adds", p->f32_ops_per_s}};
  const char *base = strrchr(b->name, '/');
  Roofline r = {.bytes_per_s = p->read_bytes_per_s, .line = line, .n_lines = COUNT_OF(line), .point = point, .n_points = n};
  r.title = arena_printf(a, "%s: kernels of one step against the machine", base && base[1] ? base + 1 : b->name);
  r.subtitle = arena_printf(a, "%s, precision %s, keys and values %s, %d thread%s, batch %lld. %s", model_target(b->m), model_precision(b->m), model_kv(b->m), threads, threads == 1 ? "" : "s",
                            (long long)b->o->batch, others_text(a, b->others));
  r.note = "A multiply-add inside a sum counts as two operations; kernels without any are only listed. Bytes: operands, once each; what stays in caches may lie above the slope.";
  r.series[0] = arena_printf(a, "prefill of %lld tokens", (long long)b->o->prompt);
  r.series[1] = arena_printf(a, "decode after %lld tokens", (long long)b->context);
  Str s = {0};
  cmd_roofline_svg(&r, &s);
  Err *e = os_write_file(b->o->svg, s.p, s.n);
  str_free(&s);
  arena_free(a);
  return e;
}

/* ---- the table ---- */
static void phase_text(const Bench *b, int phase, const char *name) {
  const BenchSpeed *s = &b->of[phase]->speed[phase];
  Against x = against(b, phase);
  printf("  %-8s %8lld tokens %9.3f s %9.1f tokens/s  %5.1f%% of peak  %5.1f%% of bandwidth  (%.1f Gop/s, %.1f GB/s of weights and states)\n", name, (long long)s->n_tokens, (double)s->t_ns * 1e-9,
         cmd_bench_rate((double)s->n_tokens, s->t_ns), x.percent_of_peak, x.percent_of_bandwidth, x.ops_per_s * 1e-9, x.bytes_per_s * 1e-9);
}

static void tell_text(const Bench *b) {
  const ModelTimes *t = model_times(b->m);
  const ModelPeak *p = &b->of[BENCH_DECODE]->peak;
  const BenchOpts *o = b->o;
  printf("%s: %s, %s, keys and values %s, %d thread%s, batch %lld, prompt %lld, decode after %lld, %s of %lld round%s\n\n", b->name, model_target(b->m), model_precision(b->m), model_kv(b->m), model_n_threads(b->m),
         model_n_threads(b->m) == 1 ? "" : "s", (long long)o->batch, (long long)o->prompt, (long long)b->context, o->best ? "best" : "median", (long long)o->rounds, o->rounds == 1 ? "" : "s");
  phase_text(b, BENCH_PREFILL, "prefill");
  phase_text(b, BENCH_DECODE, "decode");
  printf("  %-8s 8-bit integers %.1f Gop/s, f32 %.1f Gop/s, reading %.1f GB/s (of %.1f MB), measured in the same round\n", "peaks", p->int_ops_per_s * 1e-9, p->f32_ops_per_s * 1e-9, p->read_bytes_per_s * 1e-9,
         (double)p->read_bytes * 1e-6);
  printf("  %-8s first token after %.0f ms (opening %.0f, %d kernels of %.1f KB %.0f, packing %.0f)\n", "start", ms(b->first_token_ns), ms(t->open_ns), t->n_kernels, (double)t->code_bytes / 1024,
         ms(t->compile_ns), ms(t->pack_ns));
  printf("  %-8s %.1f MB at most (weights %.1f in the file, %.1f packed, %.1f of that on huge pages; keys and values %.1f a sequence)\n", "memory", (double)b->rss_bytes * 1e-6, (double)t->weight_bytes * 1e-6,
         (double)t->packed_bytes * 1e-6, (double)t->huge_bytes * 1e-6, (double)t->state_bytes * 1e-6);
  printf("\n%s\n", others_text(b->arena, b->others));
}

Err *cmd_bench_tell(const Bench *b) {
  if (b->o->svg) TRY(tell_svg(b));
  if (b->o->json) TRY(tell_json(b));
  if (!is_stdout(b->o->json) && !is_stdout(b->o->svg)) tell_text(b);
  return NULL;
}
