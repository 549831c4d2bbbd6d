/* Which tokens may come next: a grammar over the answer's text. In: the tokens taken, and whether they stood in a reasoning block. Out: a mask
   for the next one, made on a thread of its own while the model works out the logits that it is for. The mask is a function of the tokens
   alone, so when it is made changes nothing. Reasoning is free, but where the grammar is one of text and calls: calls stand there too. Each
   token's bytes go to the grammar; end tokens may come when what was written is whole. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "run/run.h"

typedef enum Ahead { AHEAD_NONE, AHEAD_ASKED, AHEAD_DONE, AHEAD_QUIT } Ahead;

struct RunGuide {
  RunGuideOptions o;
  GrammarMatcher *matcher;
  GrammarState *state;
  bool is_over, has_begun;
  uint64_t *mask;          /* all three in one allocation */
  uint64_t *barred;        /* all but what may not come in reasoning; NULL: all may */
  uint64_t *wordless;      /* tokens that the grammar's vocabulary does not know; NULL: not wanted */
  size_t n_words;
  bool has_thread;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  Ahead ahead;             /* under lock, as is what follows */
  bool is_masked, is_barred;
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
  bool may_end = grammar_state_may_end(g->state);
  for (size_t i = 0; may_end && g->wordless && i < g->n_words; i++) g->mask[i] |= g->wordless[i];
  for (int i = 0; may_end && i < g->o.n_ends; i++) allow(g, g->o.end[i]);
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
  uint64_t *mask = calloc(2 * n_words, sizeof *mask);
  if (!g || !mask) {
    free(g);
    free(mask);
    return err_new(ERR_MEMORY, "guide: %zu bytes", sizeof *g + 2 * n_words * sizeof *mask);
  }
  uint64_t *own = mask + n_words; /* one of the two is wanted */
  *g = (RunGuide){.o = *o, .n_words = n_words, .mask = mask, .wordless = o->has_text ? own : NULL, .barred = o->n_bars && !o->has_text ? own : NULL};
  if (g->barred) memset(g->barred, 0xFF, n_words * sizeof *g->barred);
  for (int i = 0; g->barred && i < o->n_bars; i++) g->barred[o->bar[i] / 64] &= ~((uint64_t)1 << (o->bar[i] % 64));
  size_t n;
  for (int64_t i = 0; g->wordless && i < o->n_vocab; i++)
    if (!grammar_vocab_bytes(o->vocab, (int32_t)i, &n)) g->wordless[i / 64] |= (uint64_t)1 << (i % 64);
  g->matcher = grammar_matcher_new(o->grammar, o->vocab);
  g->state = grammar_state_start(g->matcher);
  pthread_mutex_init(&g->lock, NULL);
  pthread_cond_init(&g->changed, NULL);
  g->has_thread = !os_thread_new(thread_main, g, &g->thread); /* without it masks are made when they are wanted */
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
  free(g->mask);
  free(g);
}

void run_guide_ahead(RunGuide *g, bool is_reasoning) {
  g->is_masked = g->o.has_text || !is_reasoning;
  g->is_barred = !g->is_masked && g->barred && !grammar_state_may_end(g->state);
  if (!g->is_masked || !g->has_thread) return;
  pthread_mutex_lock(&g->lock);
  g->ahead = AHEAD_ASKED;
  pthread_cond_broadcast(&g->changed);
  pthread_mutex_unlock(&g->lock);
}

Err *run_guide_mask(RunGuide *g, const uint64_t **out) {
  *out = g->is_barred ? g->barred : NULL;
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

/* Moves on over bytes, from the present state or another. False in *fits: they are not the grammar's, and nothing has changed. */
static Err *move(RunGuide *g, GrammarState *from, const void *p, size_t n, bool *fits) {
  GrammarState *next;
  TRY(grammar_state_accept(from, p, n, &next));
  *fits = next != NULL;
  if (!next) return NULL;
  grammar_state_unref(g->state);
  g->state = next;
  g->is_over = grammar_state_must_end(next);
  return NULL;
}

/* What a token wrote behind reasoning: the answer's, or a call in the reasoning, which may be the first or another. One that is opened in a
   form that the grammar does not have is none: what must come next breaks it off, and its text stays reasoning. */
static Err *move_out(RunGuide *g, const char *rest, size_t n, bool is_call) {
  bool fits = true;
  if (!n) return NULL;
  TRY(move(g, g->state, rest, n, &fits));
  if (fits) return NULL;
  GrammarState *start = grammar_state_start(g->matcher);
  Err *e = move(g, start, rest, n, &fits);
  if (!e && !fits && is_call) e = move(g, start, "", 0, &fits);
  grammar_state_unref(start);
  if (e) return e;
  return fits ? NULL : err_new(ERR_UNSUPPORTED, "structured output: one token leaves the reasoning and begins with a text that does not fit");
}

static Err *outside_mask(int32_t id) { return err_new(ERR_UNSUPPORTED, "structured output: token %d writes what does not fit, and came all the same", id); }

Err *run_guide_take(RunGuide *g, int32_t id, bool is_forced, const char *rest, size_t n_rest, bool is_call, bool was_reasoning, bool is_reasoning) {
  size_t n = 0;
  bool fits = true;
  const uint8_t *p = grammar_vocab_bytes(g->o.vocab, id, &n);
  if (g->o.has_text) { /* what is forced closes reasoning: it is text wherever that is allowed */
    if (p) TRY(move(g, g->state, p, n, &fits));
    return fits || is_forced ? NULL : outside_mask(id);
  }
  if (is_forced || (was_reasoning && is_reasoning)) return NULL;
  if (was_reasoning) return move_out(g, rest, n_rest, is_call);
  if (!p) return NULL;
  g->has_begun |= !is_reasoning;
  TRY(move(g, g->state, p, n, &fits)); /* what opens reasoning may be a word of the grammar, or the opener */
  return fits || is_reasoning ? NULL : outside_mask(id);
}

Err *run_guide_end(RunGuide *g, int32_t id) {
  size_t n = 0;
  bool fits;
  const uint8_t *p = grammar_vocab_bytes(g->o.vocab, id, &n);
  return p && !g->is_over ? move(g, g->state, p, n, &fits) : NULL;
}

bool run_guide_is_over(const RunGuide *g) { return g->is_over; }
bool run_guide_is_whole(const RunGuide *g) { return g->is_over || grammar_state_may_end(g->state); }
