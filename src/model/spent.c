/* Where the time of steps goes, under LUMEN_TRACE=time: per kernel, as thread 0 sees it. What thread 0 does not spend in a kernel it waits
   for the other threads; a phase that one thread does alone counts as its kernel's, whoever does it. Steps of one token a sequence and steps
   of more are told apart, for they use other kernels and are bound by other limits. In: jobs with times. Out: two tables when the model closes. */
#include <stdlib.h>
#include "model/priv.h"

void model_spent_add(Model *m, Spent *s, const Kern *k, int64_t n_items, int64_t t_ns) {
  int i = 0;
  while (i < s->n && s->row[i].k != k) i++;
  if (i == s->n) PUSH(m->arena, s->row, s->n, s->cap, (SpentRow){.k = k});
  s->row[i].t_ns += t_ns;
  s->row[i].n_items += n_items;
  s->row[i].n_calls++;
}

static int by_time(const void *a, const void *b) {
  int64_t x = ((const SpentRow *)a)->t_ns, y = ((const SpentRow *)b)->t_ns;
  return x < y ? 1 : x > y ? -1 : 0;
}

static void line(const Spent *s, const char *name, int64_t n_calls, int64_t n_items, int64_t t_ns) {
  double steps = (double)s->n_steps, share = 100 * (double)t_ns / (double)s->t_ns;
  trace_printf(TRACE_time, "  %9.1f us %5.1f%%  %6.1f calls %9.1f items  %s", (double)t_ns * 1e-3 / steps, share, (double)n_calls / steps, (double)n_items / steps, name);
}

static void table(const Spent *s, const char *kind) {
  int64_t known = s->build_ns;
  trace_printf(TRACE_time, "%lld steps of %s, %.1f tokens and %.1f us each; per step:", (long long)s->n_steps, kind, (double)s->n_tokens / (double)s->n_steps, (double)s->t_ns * 1e-3 / (double)s->n_steps);
  for (int i = 0; i < s->n; known += s->row[i++].t_ns) line(s, s->row[i].k->name, s->row[i].n_calls, s->row[i].n_items, s->row[i].t_ns);
  line(s, "(listing the jobs, and building kernels not met before)", s->n_steps, 0, s->build_ns);
  line(s, "(waiting for the other threads)", s->n_steps, 0, s->t_ns - known);
}

void model_spent_print(Model *m) {
  static const char *const kind[2] = {"one token a sequence", "several tokens a sequence"};
  for (int i = 0; i < 2; i++) {
    Spent *s = &m->spent[i];
    if (!s->n_steps) continue;
    qsort(s->row, (size_t)s->n, sizeof *s->row, by_time);
    table(s, kind[i]);
  }
}
