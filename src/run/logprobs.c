/* The model's own probabilities of a token and of the likeliest ones: the softmax of its logits as they are, before any bias, penalty, cut, mask or
   temperature. Sums run in id order in double, with our own exp and ln, so a figure does not change with the machine or the thread count. */
#include <math.h>
#include "run/run.h"

static bool likelier(float x, int32_t id, float than, int32_t than_id) { return x > than || (x == than && id < than_id); }

void run_logprobs(const float *logits, int64_t n_vocab, int32_t id, int n_top, double *own, RunLikely *top) {
  float max = -INFINITY;
  double sum = 0;
  int n = 0;
  for (int64_t i = 0; i < n_vocab; i++)
    if (logits[i] > max) max = logits[i];
  for (int64_t i = 0; i < n_vocab; i++) {
    sum += run_exp_negative((double)logits[i] - (double)max);
    if (n == n_top && (!n || !likelier(logits[i], (int32_t)i, logits[top[n - 1].id], top[n - 1].id))) continue;
    int at = n < n_top ? n++ : n - 1;
    for (; at > 0 && likelier(logits[i], (int32_t)i, logits[top[at - 1].id], top[at - 1].id); at--) top[at] = top[at - 1];
    top[at].id = (int32_t)i;
  }
  double log_sum = run_log_positive(sum) + (double)max;
  for (int i = 0; i < n_top; i++) {
    if (i >= n) top[i].id = -1;
    top[i].logprob = i < n ? MAX((double)logits[top[i].id] - log_sum, RUN_LOGPROB_MIN) : RUN_LOGPROB_MIN;
  }
  *own = MAX((double)logits[id] - log_sum, RUN_LOGPROB_MIN);
}
