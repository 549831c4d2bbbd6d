/* `lumen show [--json] [--all] MODEL`: the metadata and tensors of a model's files, read as the engine reads them. Touches no tensor bytes.
   What a block of each type holds comes from the format texts, so a type they do not describe shows as its number. */
#include <stdlib.h>
#include <string.h>
#include "cmd/cmd.h"
#include "cmd/model_opts.h"
#include "file/file.h"
#include "lang/lang.h"
#include "model/vocab.h"
#include "run/run.h"

#define SHOW_ROWS(X, T)                                                                     \
  X(T, all, 'a', FLAG, "", NULL, 0, 0, "arrays in full")                                    \
  X(T, json, 'j', FLAG, "", NULL, 0, 0, "print JSON")                                       \
  X(T, plan, 'p', FLAG, "", NULL, 0, 0, "load it, and print what runs where: precision, road and bytes of every tensor, memory") \
  MODEL_OPT_ROWS(X, T)
OPT_DEFINE(ShowOpts, SHOW_ROWS)
enum { ARRAY_SHOWN = 6 };

/* How `lumen run` would draw tokens and end answers; ends are left out where the files hold no vocabulary. */
static void answering(Arena *a, const Weights *w, bool json, Str *out) {
  TextVocab *v = NULL;
  int32_t *end = NULL;
  int n = 0;
  RunSampling p = run_sampling_default(w);
  Err *e = model_vocab_open(w, &v);
  if (!e) e = run_ends(a, w, v, NULL, &end, &n);
  str_addf(out, json ? "  \"sampling\": {\"temperature\": %g, \"top_k\": %lld, \"top_p\": %g, \"min_p\": %g, \"repeat_penalty\": %g},\n  \"ends\": ["
                     : "drawn with temperature %g, top-k %lld, top-p %g, min-p %g, repetition penalty %g where the user says nothing\n",
           p.temperature, (long long)p.top_k, p.top_p, p.min_p, p.repeat_penalty);
  if (!json && n) str_add(out, "answers end at");
  for (int i = 0; i < n; i++) {
    size_t len;
    const char *text = text_vocab_spelling(v, end[i], &len);
    str_addf(out, json ? "%s%d" : "%s %d ", i ? "," : "", end[i]);
    if (!json) file_quote(text, text ? len : 0, out);
  }
  if (json || n) str_add(out, json ? "],\n" : "\n");
  err_free(e);
  text_vocab_free(v);
}

static void print_text(Arena *a, const Weights *w, size_t n_shown) {
  uint64_t total = 0, elems = 0;
  int n_unknown = 0;
  Str s = {0};
  printf("%s, %d metadata entries, %d tensors, %d file%s\n\n", w->container, w->n_kvs, w->n_tensors, w->n_files, w->n_files == 1 ? "" : "s");
  for (int i = 0; i < w->n_kvs; i++) {
    str_clear(&s);
    file_kv_print(&w->kv[i], n_shown, &s);
    printf("%s = %s", w->kv[i].key, s.p);
    if (w->kv[i].is_array && w->kv[i].n > n_shown) printf(" (%zu)", w->kv[i].n);
    putchar('\n');
  }
  putchar('\n');
  for (int i = 0; i < w->n_tensors; i++) {
    const FileTensor *t = &w->tensor[i];
    str_clear(&s);
    file_tensor_shape(t, &s);
    if (t->format) printf("%-40s %-8s %-20s %zu\n", t->name, t->format, s.p, t->n_bytes);
    else printf("%-40s %-8s %-20s of a format that no text here describes\n", t->name, t->type, s.p), n_unknown++;
    total += t->n_bytes;
    elems += (uint64_t)t->n_elems;
  }
  printf("\n%llu parameters in %.1f MB", (unsigned long long)elems, (double)total * 1e-6);
  if (n_unknown) printf(" and %d tensors of unknown size (--std DIR)", n_unknown);
  putchar('\n');
  str_clear(&s);
  answering(a, w, false, &s);
  fputs(s.p, stdout);
  str_free(&s);
}

/* Metadata values are JSON text already, so the object is written piece by piece. */
static void print_json(Arena *a, const Weights *w, size_t n_shown) {
  Str s = {0};
  str_add(&s, "{\n  \"container\": ");
  file_quote(w->container, strlen(w->container), &s);
  str_add(&s, ",\n  \"metadata\": {");
  for (int i = 0; i < w->n_kvs; i++) {
    str_add(&s, i ? ",\n    " : "\n    ");
    file_quote(w->kv[i].key, strlen(w->kv[i].key), &s);
    str_add(&s, ": ");
    file_kv_print(&w->kv[i], n_shown, &s);
  }
  str_add(&s, "\n  },\n");
  answering(a, w, true, &s);
  str_add(&s, "  \"tensors\": [");
  for (int i = 0; i < w->n_tensors; i++) {
    const FileTensor *t = &w->tensor[i];
    str_add(&s, i ? ",\n    {\"name\": " : "\n    {\"name\": ");
    file_quote(t->name, strlen(t->name), &s);
    str_add(&s, ", \"type\": ");
    file_quote(t->type, strlen(t->type), &s);
    str_add(&s, ", \"format\": ");
    if (t->format) file_quote(t->format, strlen(t->format), &s);
    else str_add(&s, "null");
    str_add(&s, ", \"shape\": ");
    file_tensor_shape(t, &s);
    str_addf(&s, ", \"bytes\": %zu}", t->n_bytes);
  }
  str_add(&s, "\n  ]\n}\n");
  fputs(s.p, stdout);
  str_free(&s);
}

static Err *show_plan(Arena *a, const ShowOpts *o, const char *name) {
  ModelOptions options = MODEL_OPTIONS(o);
  Model *m;
  Str s = {0};
  TRY(cmd_model_open(a, name, &options, &m));
  model_plan_text(m, &s);
  fputs(s.p, stdout);
  str_free(&s);
  model_close(m);
  return NULL;
}

static Err *show(Arena *a, const ShowOpts *o, const char *model) {
  const char *path;
  Module *m;
  Weights *w;
  if (o->plan) return show_plan(a, o, model);
  TRY(file_model_path(a, model, &path));
  TRY(lang_std_load(a, o->std, &m));
  TRY(file_weights_open(a, path, model_format_find, m, &w));
  if (o->json) print_json(a, w, o->all ? SIZE_MAX : ARRAY_SHOWN);
  else print_text(a, w, o->all ? SIZE_MAX : ARRAY_SHOWN);
  Err *e = file_weights_check(w);
  file_weights_close(w);
  return e;
}

/* An option that says how a model is loaded, which only --plan does; NULL: there is none. The texts of --std are read either way. */
static const char *plan_option(Arena *a, const OptRest *rest) {
#define NAME_(T, field, ...) #field,
  static const char *const names[] = {MODEL_OPT_ROWS(NAME_, ShowOpts)};
#undef NAME_
  for (size_t i = 0; i < COUNT_OF(ShowOpts_rows); i++)
    for (size_t k = 0; rest->given[i] && k < COUNT_OF(names); k++)
      if (!strcmp(ShowOpts_rows[i].field, names[k]) && strcmp(names[k], "std")) return opt_name(a, &ShowOpts_rows[i]);
  return NULL;
}

int cmd_show(int argc, char **argv) {
  Arena *a = arena_new("show");
  ShowOpts o;
  OptRest rest;
  int code = CMD_OK;
  if (cmd_options(a, ShowOpts_rows, COUNT_OF(ShowOpts_rows), argc, argv, &o, &rest, &code)) {
    if (rest.n_args != 1) code = cmd_misused(argv[0], "%d models named, expected one", rest.n_args);
    else if (o.plan && (o.json || o.all)) code = cmd_misused(argv[0], "--plan is text and whole: it does not go with --%s", o.json ? "json" : "all");
    else if (!o.plan && plan_option(a, &rest)) code = cmd_misused(argv[0], "%s goes with --plan", plan_option(a, &rest));
    else {
      Err *e = show(a, &o, rest.arg[0]);
      if (e) code = cmd_fail(argv[0], e);
    }
  }
  arena_free(a);
  return code;
}
