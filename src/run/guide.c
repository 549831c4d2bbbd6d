/* Which tokens may come next: a grammar over the answer's text, behind its reasoning. In: the tokens taken, and whether they stood in a
   reasoning block. Out: a mask for the next one, made on a thread of its own while the model works out the logits that it is for. The mask
   is a function of the tokens alone, so when it is made changes nothing.

     outside   nothing is held to the grammar: reasoning, or text before a trigger
     inside    each token's bytes go to the grammar; end tokens may come when what was written is whole */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "run/run.h"

enum { TAIL_BYTES = 512 };
typedef enum Ahead { AHEAD_NONE, AHEAD_ASKED, AHEAD_DONE, AHEAD_QUIT } Ahead;

struct RunGuide {
  RunGuideOptions o;
  GrammarMatcher *matcher;
  GrammarState *state;     /* NULL outside */
  bool is_over, has_begun;
  Str tail;                /* the last bytes before a trigger */
  uint64_t *mask;
  size_t n_words;
  bool has_thread;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  Ahead ahead;             /* under lock, as is what follows */
  bool is_masked;
  Err *err;
};

static void allow(RunGuide *g, int32_t id) {
  if (id >= 0 && id < g->o.n_vocab) g->mask[id / 64] |= (uint64_t)1 << (id % 64);
}

/* The mask of the present state. */
static Err *mask_make(RunGuide *g) {
  memset(g->mask, 0, g->n_words * sizeof *g->mask);
  TRY(grammar_state_mask(g->state, g->mask));
  for (size_t i = (size_t)g->o.n_vocab; i < g->n_words * 64; i++) g->mask[i / 64] &= ~((uint64_t)1 << (i % 64));
  if (grammar_state_may_end(g->state) && !g->o.trigger)
    for (int i = 0; i < g->o.n_ends; i++) allow(g, g->o.end[i]);
  if (!g->has_begun) allow(g, g->o.opener);
  uint64_t any = 0;
  for (size_t i = 0; i < g->n_words; i++) any |= g->mask[i];
  return any ? NULL : err_new(ERR_UNSUPPORTED, "structured output: no token of this vocabulary writes what must come next");
}

static void *thread_main(void *guide) {
  RunGuide *g = guide;
  pthread_mutex_lock(&g->lock);
  for (;;) {
    while (g->ahead == AHEAD_NONE || g->ahead == AHEAD_DONE) pthread_cond_wait(&g->changed, &g->lock);
    if (g->ahead == AHEAD_QUIT) break;
    pthread_mutex_unlock(&g->lock);
    Err *e = mask_make(g); /* nobody else touches state and mask meanwhile */
    pthread_mutex_lock(&g->lock);
    g->err = e;
    if (g->ahead == AHEAD_ASKED) g->ahead = AHEAD_DONE;
    pthread_cond_broadcast(&g->changed);
  }
  pthread_mutex_unlock(&g->lock);
  return NULL;
}

Err *run_guide_new(const RunGuideOptions *o, RunGuide **out) {
  if (grammar_is_empty(o->grammar)) return err_new(ERR_USAGE, "structured output: no text satisfies what is asked for");
  RunGuide *g = calloc(1, sizeof *g);
  size_t n_words = MAX(grammar_vocab_mask_words(o->vocab), ((size_t)o->n_vocab + 63) / 64);
  uint64_t *mask = calloc(n_words, sizeof *mask);
  if (!g || !mask) {
    free(g);
    free(mask);
    return err_new(ERR_MEMORY, "guide: %zu bytes", sizeof *g + n_words * sizeof *mask);
  }
  *g = (RunGuide){.o = *o, .n_words = n_words, .mask = mask};
  g->matcher = grammar_matcher_new(o->grammar, o->vocab);
  if (!o->trigger) g->state = grammar_state_start(g->matcher);
  pthread_mutex_init(&g->lock, NULL);
  pthread_cond_init(&g->changed, NULL);
  g->has_thread = !pthread_create(&g->thread, NULL, thread_main, g); /* without it masks are made when they are wanted */
  *out = g;
  return NULL;
}

void run_guide_free(RunGuide *g) {
  if (!g) return;
  pthread_mutex_lock(&g->lock);
  g->ahead = AHEAD_QUIT;
  pthread_cond_broadcast(&g->changed);
  pthread_mutex_unlock(&g->lock);
  if (g->has_thread) pthread_join(g->thread, NULL);
  pthread_mutex_destroy(&g->lock);
  pthread_cond_destroy(&g->changed);
  err_free(g->err);
  grammar_state_unref(g->state);
  grammar_matcher_free(g->matcher);
  str_free(&g->tail);
  free(g->mask);
  free(g);
}

void run_guide_ahead(RunGuide *g, bool is_reasoning) {
  g->is_masked = g->state && !is_reasoning;
  if (!g->is_masked || !g->has_thread) return;
  pthread_mutex_lock(&g->lock);
  g->ahead = AHEAD_ASKED;
  pthread_cond_broadcast(&g->changed);
  pthread_mutex_unlock(&g->lock);
}

Err *run_guide_mask(RunGuide *g, const uint64_t **out) {
  *out = NULL;
  if (!g->is_masked) return NULL;
  *out = g->mask;
  if (!g->has_thread) return mask_make(g);
  pthread_mutex_lock(&g->lock);
  while (g->ahead == AHEAD_ASKED) pthread_cond_wait(&g->changed, &g->lock);
  g->ahead = AHEAD_NONE;
  Err *e = g->err;
  g->err = NULL;
  pthread_mutex_unlock(&g->lock);
  return e;
}

/* Moves on over bytes. False in *fits: they are not the grammar's, and nothing has changed. */
static Err *move(RunGuide *g, const void *p, size_t n, bool *fits) {
  GrammarState *next;
  TRY(grammar_state_accept(g->state, p, n, &next));
  *fits = next != NULL;
  if (!next) return NULL;
  grammar_state_unref(g->state);
  g->state = next;
  if (!grammar_state_must_end(next)) return NULL;
  if (!g->o.trigger) g->is_over = true;
  else grammar_state_unref(next), g->state = NULL;
  return NULL;
}

/* Outside: looks for the trigger in what came so far; what came behind it in the same token is the grammar's. */
static Err *look_for_trigger(RunGuide *g, const uint8_t *p, size_t n) {
  size_t k = strlen(g->o.trigger);
  bool fits;
  str_add_n(&g->tail, p, n);
  const char *hit = memmem(g->tail.p, g->tail.n, g->o.trigger, k);
  if (hit) {
    size_t rest = (size_t)(g->tail.p + g->tail.n - hit) - k;
    g->state = grammar_state_start(g->matcher);
    TRY(move(g, hit + k, rest, &fits));
    if (!fits) return err_new(ERR_UNSUPPORTED, "structured output: one token ends %s and begins with a text that does not fit", g->o.trigger);
    str_clear(&g->tail);
  } else if (g->tail.n > TAIL_BYTES) {
    size_t keep = MIN(g->tail.n, k);
    memmove(g->tail.p, g->tail.p + g->tail.n - keep, keep);
    g->tail.p[g->tail.n = keep] = 0;
  }
  return NULL;
}

Err *run_guide_take(RunGuide *g, int32_t id, const char *rest, size_t n_rest, bool was_reasoning, bool is_reasoning) {
  size_t n = 0;
  bool fits = true;
  if (is_reasoning) return NULL;
  if (was_reasoning) {                        /* the block's end: what the token writes behind it is the answer's */
    if (!g->state || !n_rest) return NULL;
    TRY(move(g, rest, n_rest, &fits));
    return fits ? NULL : err_new(ERR_UNSUPPORTED, "structured output: one token closes the reasoning and begins with a text that does not fit");
  }
  const uint8_t *p = grammar_vocab_bytes(g->o.vocab, id, &n);
  if (!p) return NULL;
  g->has_begun = true;
  if (!g->state) return look_for_trigger(g, p, n);
  TRY(move(g, p, n, &fits));
  return fits ? NULL : err_new(ERR_UNSUPPORTED, "structured output: token %d writes what does not fit, and came all the same", id);
}

bool run_guide_is_over(const RunGuide *g) { return g->is_over; }
bool run_guide_is_whole(const RunGuide *g) { return g->o.trigger ? !g->state : g->is_over || grammar_state_may_end(g->state); }
