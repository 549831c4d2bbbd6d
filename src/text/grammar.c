/* The compiled grammar: building it, and what one edge means. In: automata over symbols from the three front ends. Out: rules over bytes.

   A rule is a deterministic automaton whose edges read bytes and whose calls read what another rule derives. Where a rule stands is a
   state and one number, `aux`. It lets one small automaton stand for a large one that is never written out:
     counted   the automaton is one round; aux is how many rounds are over. "at most 100000 characters" costs one character's states.
     object    one automaton of all keys; aux says which names are taken (or which is the next in order) and how many. Optional
               properties cost nothing but their names.
   grammar_finish cuts everything that cannot lead to a whole text, so a matcher never walks into a dead end. */
#include <stdlib.h>
#include <string.h>
#include "text/grammar_priv.h"

Grammar *grammar_new(void) {
  Arena *a = arena_new("grammar");
  Grammar *g = ARENA_NEW(a, Grammar);
  g->a = a;
  return g;
}

void grammar_free(Grammar *g) {
  if (!g) return;
  str_free(&g->warnings);
  arena_free(g->a);
}

bool grammar_is_empty(const Grammar *g) { return !g->rule[g->root].productive; }
const char *grammar_warnings(const Grammar *g) { return g->warnings.p ? g->warnings.p : ""; }
GrammarSize grammar_size(const Grammar *g) { return (GrammarSize){g->n_rules, g->n_st, g->n_edges + g->n_calls}; }

uint32_t grammar_rule_new(Grammar *g, GrRuleKind kind, const char *name) {
  PUSH(g->a, g->rule, g->n_rules, g->cap_rules, (GrRule){.kind = kind, .name = name ? arena_dup(g->a, name) : NULL, .max = -1});
  return (uint32_t)g->n_rules - 1;
}

uint32_t grammar_state_new(Grammar *g, uint32_t rule) {
  PUSH(g->a, g->st, g->n_st, g->cap_st, (GrState){.rule = rule});
  return (uint32_t)g->n_st - 1;
}

uint32_t grammar_end_new(Grammar *g, uint32_t rule) {
  uint32_t q = grammar_state_new(g, rule);
  g->st[q].accept = true;
  return q;
}

void grammar_edge_add(Grammar *g, uint32_t from, uint8_t lo, uint8_t hi, GrAct act, int32_t arg, uint32_t to) {
  GrState *s = &g->st[from];
  if (!s->n_edges) s->edge = (uint32_t)g->n_edges;
  CHECK(s->edge + s->n_edges == (uint32_t)g->n_edges);
  if (s->n_edges) {
    GrEdge *last = &g->edge[g->n_edges - 1];
    if (last->to == to && last->act == (uint8_t)act && last->arg == arg && last->hi + 1 == lo) { last->hi = hi; return; }
  }
  s->n_edges++;
  PUSH(g->a, g->edge, g->n_edges, g->cap_edges, (GrEdge){lo, hi, (uint8_t)act, to, arg});
}

void grammar_call_add(Grammar *g, uint32_t from, uint32_t rule, GrAct act, uint32_t ret) {
  GrState *s = &g->st[from];
  if (!s->n_calls) s->call = (uint32_t)g->n_calls;
  CHECK(s->call + s->n_calls == (uint32_t)g->n_calls);
  s->n_calls++;
  PUSH(g->a, g->call, g->n_calls, g->cap_calls, (GrCall){rule, ret, (uint8_t)act});
}

/* ---- texts ---- */

uint32_t grammar_text_to(Grammar *g, uint32_t rule, const char *text, size_t n, GrAct last, uint32_t to) {
  for (size_t i = n; i-- > 0;) {
    uint32_t q = grammar_state_new(g, rule), special = grammar_state_new(g, rule);
    uint8_t c = (uint8_t)text[i];
    GrAct act = i + 1 == n ? last : GR_PLAIN;
    grammar_edge_add(g, q, c, c, act, 0, to);
    grammar_edge_add(g, q, GR_SPECIAL, GR_SPECIAL, GR_PLAIN, 0, special);
    grammar_edge_add(g, special, c, c, act, 0, to);
    to = q;
  }
  return to;
}

static void fork_edge(GrFork *f, uint8_t byte, GrAct act, uint32_t to) {
  CHECK((size_t)f->n < COUNT_OF(f->e), "a fork of more than %zu ways", COUNT_OF(f->e));
  f->e[f->n++] = (GrEdge){byte, byte, (uint8_t)act, to, 0};
}

void grammar_fork_text(Grammar *g, uint32_t rule, GrFork *f, const char *text, GrAct first, GrAct last, uint32_t to) {
  size_t n = strlen(text);
  CHECK(n, "a fork's text is empty");
  uint32_t next = grammar_text_to(g, rule, text + 1, n - 1, last, to), special = grammar_state_new(g, rule);
  grammar_edge_add(g, special, (uint8_t)*text, (uint8_t)*text, n == 1 ? last : GR_PLAIN, 0, next);
  fork_edge(f, (uint8_t)*text, n == 1 ? last : first, next);
  fork_edge(f, GR_SPECIAL, first, special);
}

void grammar_fork_put(Grammar *g, uint32_t state, const GrFork *f) {
  for (int i = 0; i < f->n; i++) grammar_edge_add(g, state, f->e[i].lo, f->e[i].hi, (GrAct)f->e[i].act, f->e[i].arg, f->e[i].to);
}

/* Encoding. A sequence is a way to write the symbols of a range: at each place a few ranges of bytes. */
typedef struct SeqByte { uint8_t n; uint8_t lo[3], hi[3]; } SeqByte;
typedef struct Seq { int n; SeqByte b[12]; int32_t to; } Seq;
typedef struct Tail { const Seq *s; int at; } Tail;
typedef struct Encoder {
  Grammar *g;
  GrWork *w;
  const GrEncode *e;
  const Dfa *d;
  const uint32_t *map;
  Seq *seq; int n_seqs, cap_seqs;
  struct Memo { uint64_t h1, h2; uint32_t state; } *memo; int n_memo, cap_memo; int *slot; uint32_t mask;
} Encoder;

static void seq_add(Encoder *en, const SeqByte *b, int n, int32_t to) {
  Seq s = {.n = n, .to = to};
  memcpy(s.b, b, (size_t)n * sizeof *b);
  PUSH(en->w->a, en->seq, en->n_seqs, en->cap_seqs, s);
}

static SeqByte one_byte(uint8_t lo, uint8_t hi) { return (SeqByte){.n = 1, .lo = {lo}, .hi = {hi}}; }
static SeqByte hex_byte(int lo, int hi) { /* digits lo..hi, letters in both cases */
  SeqByte b = {0};
  if (lo <= 9) { b.lo[0] = (uint8_t)('0' + lo); b.hi[0] = (uint8_t)('0' + MIN(hi, 9)); b.n = 1; }
  if (hi >= 10)
    for (int k = 0; k < 2; k++) {
      b.lo[b.n] = (uint8_t)((k ? 'a' : 'A') + MAX(lo, 10) - 10);
      b.hi[b.n++] = (uint8_t)((k ? 'a' : 'A') + hi - 10);
    }
  return b;
}

/* Splits lo..hi into products of digit ranges in base 2^bits with n digits and hands each to put. */
static void split_digits(Encoder *en, uint32_t lo, uint32_t hi, int bits, int n, void (*put)(Encoder *, uint32_t, uint32_t, int32_t, const void *), int32_t to, const void *ctx) {
  for (int i = 1; i < n; i++) {
    uint32_t m = (1u << (bits * i)) - 1;
    if ((lo & ~m) == (hi & ~m)) continue;
    if (lo & m) { split_digits(en, lo, lo | m, bits, n, put, to, ctx); lo = (lo | m) + 1; i = 0; continue; }
    if ((hi & m) != m) { split_digits(en, lo, (hi & ~m) - 1, bits, n, put, to, ctx); lo = hi & ~m; i = 0; continue; }
  }
  put(en, lo, hi, to, ctx);
}

static void put_utf8(Encoder *en, uint32_t lo, uint32_t hi, int32_t to, const void *ctx) {
  (void)ctx;
  int n = lo < 0x80 ? 1 : lo < 0x800 ? 2 : lo < 0x10000 ? 3 : 4;
  SeqByte b[4];
  for (int i = n - 1; i >= 0; i--, lo >>= 6, hi >>= 6) {
    uint8_t top = n == 1 ? 0 : i ? 0x80 : (uint8_t)(0xF00u >> n);
    uint8_t mask = i ? 0x3F : 0x7F;
    b[i] = one_byte((uint8_t)(top | (lo & mask)), (uint8_t)(top | (hi & mask)));
  }
  seq_add(en, b, n, to);
}

static void add_utf8(Encoder *en, uint32_t lo, uint32_t hi, int32_t to) {
  static const uint32_t last[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
  for (int k = 0; k < 4 && lo <= hi; k++) {
    if (lo > last[k]) continue;
    uint32_t stop = MIN(hi, last[k]);
    split_digits(en, lo, stop, 6, k + 1, put_utf8, to, NULL);
    lo = stop + 1;
  }
}

/* ctx: a prefix of six places (the first half of a pair), or NULL. */
static void put_hex(Encoder *en, uint32_t lo, uint32_t hi, int32_t to, const void *ctx) {
  SeqByte b[12];
  int n = 0;
  if (ctx) { memcpy(b, ctx, 6 * sizeof *b); n = 6; }
  b[n++] = one_byte('\\', '\\');
  b[n++] = one_byte('u', 'u');
  for (int i = 3; i >= 0; i--) b[n++] = hex_byte((int)(lo >> (4 * i) & 15), (int)(hi >> (4 * i) & 15));
  seq_add(en, b, n, to);
}

/* The second half once the first is fixed to hs_lo..hs_hi. */
typedef struct LowHalf { uint32_t lo, hi; } LowHalf;
static void put_high_half(Encoder *en, uint32_t lo, uint32_t hi, int32_t to, const void *ctx) {
  const LowHalf *l = ctx;
  SeqByte b[6] = {one_byte('\\', '\\'), one_byte('u', 'u')};
  for (int i = 3; i >= 0; i--) b[5 - i] = hex_byte((int)(lo >> (4 * i) & 15), (int)(hi >> (4 * i) & 15));
  split_digits(en, l->lo, l->hi, 4, 4, put_hex, to, b);
}

static void add_hex(Encoder *en, uint32_t lo, uint32_t hi, int32_t to) {
  if (lo <= 0xFFFF) split_digits(en, lo, MIN(hi, 0xFFFF), 4, 4, put_hex, to, NULL);
  lo = MAX(lo, 0x10000);
  while (lo <= hi) { /* one row of 1024 that is cut, or all whole rows together */
    uint32_t row = (lo - 0x10000) >> 10, row_hi = (hi - 0x10000) >> 10, first = lo & 0x3FF, last = 0x3FF;
    if (first || row == row_hi) { last = row == row_hi ? hi & 0x3FF : 0x3FF; row_hi = row; }
    else if ((hi & 0x3FF) != 0x3FF) row_hi--;
    LowHalf l = {0xDC00 + first, 0xDC00 + last};
    split_digits(en, 0xD800 + row, 0xD800 + row_hi, 4, 4, put_high_half, to, &l);
    lo = 0x10000 + (row_hi << 10) + last + 1;
  }
}

static void add_short_escape(Encoder *en, char c, int32_t to) {
  SeqByte b[2] = {one_byte('\\', '\\'), one_byte((uint8_t)c, (uint8_t)c)};
  seq_add(en, b, 2, to);
}

/* The one escape of a control character that has no short one, as JSON writers write it. */
static void add_control(Encoder *en, uint8_t c, int32_t to) {
  const char *digit = "0123456789abcdef", text[] = {'\\', 'u', '0', '0', digit[c >> 4], digit[c & 15]};
  SeqByte b[6];
  for (int i = 0; i < 6; i++) b[i] = one_byte((uint8_t)text[i], (uint8_t)text[i]);
  seq_add(en, b, 6, to);
}

static void add_json(Encoder *en, uint32_t lo, uint32_t hi, int32_t to) {
  static const struct { char c, e; } brief[] = {{'"', '"'}, {'\\', '\\'}, {8, 'b'}, {9, 't'}, {10, 'n'}, {12, 'f'}, {13, 'r'}, {'/', '/'}};
  static const SymRange raw[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0xD7FF}, {0xE000, SYM_MAX_CHAR}};
  static const SymRange some[] = {{0, 0x1F}, {0x80, 0xD7FF}, {0xE000, SYM_MAX_CHAR}}, all[] = {{0, 0xD7FF}, {0xE000, SYM_MAX_CHAR}};
  bool plain = en->e->mode == GR_ENC_JSON_PLAIN;
  for (size_t i = 0; i < COUNT_OF(brief) - plain; i++) if ((uint32_t)brief[i].c >= lo && (uint32_t)brief[i].c <= hi) add_short_escape(en, brief[i].e, to);
  for (size_t i = 0; i < COUNT_OF(raw); i++) if (MAX(lo, raw[i].lo) <= MIN(hi, raw[i].hi)) add_utf8(en, MAX(lo, raw[i].lo), MIN(hi, raw[i].hi), to);
  for (uint32_t c = lo; plain && c <= MIN(hi, 0x1Fu); c++) if (!memchr("\b\t\n\f\r", (int)c, 5)) add_control(en, (uint8_t)c, to);
  if (plain) return;
  const SymRange *hex = en->e->mode == GR_ENC_JSON_FREE ? all : some;
  size_t n_hex = en->e->mode == GR_ENC_JSON_FREE ? COUNT_OF(all) : COUNT_OF(some);
  for (size_t i = 0; i < n_hex; i++) if (MAX(lo, hex[i].lo) <= MIN(hi, hex[i].hi)) add_hex(en, MAX(lo, hex[i].lo), MIN(hi, hex[i].hi), to);
}

/* What Python's repr would escape is escaped, and the other quote may be. */
static void add_python(Encoder *en, uint32_t lo, uint32_t hi, int32_t to) {
  bool single = en->e->mode == GR_ENC_PYTHON_SINGLE;
  static const struct { char c, e; } brief[] = {{'\\', '\\'}, {'\'', '\''}, {'"', '"'}, {9, 't'}, {10, 'n'}, {13, 'r'}};
  const SymRange raw[] = {{0x20, single ? 0x26 : 0x21}, {single ? 0x28 : 0x23, 0x5B}, {0x5D, 0xD7FF}, {0xE000, SYM_MAX_CHAR}};
  for (size_t i = 0; i < COUNT_OF(brief); i++) if ((uint32_t)brief[i].c >= lo && (uint32_t)brief[i].c <= hi) add_short_escape(en, brief[i].e, to);
  for (size_t i = 0; i < COUNT_OF(raw); i++) if (MAX(lo, raw[i].lo) <= MIN(hi, raw[i].hi)) add_utf8(en, MAX(lo, raw[i].lo), MIN(hi, raw[i].hi), to);
  for (uint32_t c = lo; c <= MIN(hi, 0x1Fu); c++) {
    SeqByte b[4] = {one_byte('\\', '\\'), one_byte('x', 'x'), hex_byte((int)c >> 4, (int)c >> 4), hex_byte((int)c & 15, (int)c & 15)};
    if (c == 9 || c == 10 || c == 13) continue;
    seq_add(en, b, 4, to);
    add_control(en, (uint8_t)c, to); /* of templates that write texts as JSON does */
  }
}

/* Index of the state that reads these tails; *found: it exists. */
static int memo_find(Encoder *en, const Tail *t, int n, bool *found) {
  uint64_t h1 = 1, h2 = 2;
  for (int i = 0; i < n; i++) {
    size_t left = (size_t)(t[i].s->n - t[i].at) * sizeof(SeqByte);
    h1 = hash_bytes(&t[i].s->b[t[i].at], left, h1) * 0x9E3779B97F4A7C15u + (uint32_t)t[i].s->to;
    h2 = hash_bytes(&t[i].s->b[t[i].at], left, h2 ^ h1 >> 7) + (uint32_t)t[i].s->to * 0xC2B2AE3D27D4EB4Fu;
  }
  if (2u * (uint32_t)en->n_memo >= en->mask) {
    en->mask = en->mask ? en->mask * 2 + 1 : 255;
    en->slot = ARENA_ARRAY(en->w->a, int, en->mask + 1);
    for (int i = 0; i < en->n_memo; i++) {
      uint32_t k = (uint32_t)en->memo[i].h1 & en->mask;
      while (en->slot[k]) k = (k + 1) & en->mask;
      en->slot[k] = i + 1;
    }
  }
  uint32_t k = (uint32_t)h1 & en->mask;
  for (; en->slot[k]; k = (k + 1) & en->mask) {
    struct Memo *m = &en->memo[en->slot[k] - 1];
    if (m->h1 == h1 && m->h2 == h2) { *found = true; return en->slot[k] - 1; }
  }
  PUSH(en->w->a, en->memo, en->n_memo, en->cap_memo, (struct Memo){h1, h2, 0});
  en->slot[k] = en->n_memo;
  *found = false;
  return en->n_memo - 1;
}

typedef struct Cut { uint8_t lo, hi; uint32_t to; GrAct act; } Cut;

/* Cuts what may come next into disjoint edges: *cut, *n. Recursion: one level for each byte of a sequence. */
static Err *encode_cuts(Encoder *en, const Tail *t, int n, Cut **cut, int *n_cut) {
  GrWork *w = en->w;
  bool starts[257] = {0};
  for (int i = 0; i < n; i++) {
    const SeqByte *b = &t[i].s->b[t[i].at];
    for (int k = 0; k < b->n; k++) starts[b->lo[k]] = starts[b->hi[k] + 1] = true;
  }
  int cap = 0;
  for (int lo = 0, hi; lo < 256; lo = hi) {
    for (hi = lo + 1; hi < 256 && !starts[hi]; hi++) {}
    Tail *sub = NULL;
    int n_sub = 0, cap_sub = 0, done = -1;
    TRY(grammar_work_spend(w, n / 4 + 1));
    for (int i = 0; i < n; i++) {
      const SeqByte *b = &t[i].s->b[t[i].at];
      bool in = false;
      for (int k = 0; k < b->n; k++) in |= b->lo[k] <= lo && b->hi[k] >= hi - 1;
      if (!in) continue;
      if (t[i].at + 1 == t[i].s->n) done = t[i].s->to;
      else PUSH(w->a, sub, n_sub, cap_sub, (Tail){t[i].s, t[i].at + 1});
    }
    Cut c = {(uint8_t)lo, (uint8_t)(hi - 1), 0, en->e->act};
    if (done >= 0) {
      bool round = en->e->counted == GR_ROUND && en->d->st[done].tag >= 0;
      c.to = en->map[round ? 0 : done];
      if (round || en->e->counted == GR_SYMBOLS) c.act = GR_COUNT;
    } else if (n_sub) {
      bool found;
      int at = memo_find(en, sub, n_sub, &found);
      if (found) c.to = en->memo[at].state;
      else {
        Cut *inner = NULL;
        int n_inner = 0;
        TRY(encode_cuts(en, sub, n_sub, &inner, &n_inner));
        c.to = en->memo[at].state = grammar_state_new(en->g, en->e->rule);
        for (int i = 0; i < n_inner; i++) grammar_edge_add(en->g, c.to, inner[i].lo, inner[i].hi, inner[i].act, 0, inner[i].to);
      }
    } else continue;
    PUSH(w->a, *cut, *n_cut, cap, c);
  }
  return NULL;
}

Err *grammar_encode_dfa(Grammar *g, GrWork *w, const Dfa *d, const GrEncode *e, uint32_t *map) {
  Encoder en = {.g = g, .w = w, .e = e, .d = d, .map = map};
  for (int i = 0; i < d->n; i++) {
    map[i] = grammar_state_new(g, e->rule);
    g->st[map[i]].between = e->counted == GR_SYMBOLS || (e->counted == GR_ROUND && !i);
  }
  for (int i = 0; i < d->n; i++) {
    const DfaState *s = &d->st[i];
    if (e->counted == GR_ROUND && s->tag >= 0) continue;
    int first = en.n_seqs;
    for (int k = 0; k < s->n_edges; k++) {
      DfaEdge x = s->edge[k];
      if (x.lo > SYM_MAX_CHAR) continue;
      if (e->mode == GR_ENC_RAW) add_utf8(&en, x.lo, x.hi, x.to);
      else if (e->mode >= GR_ENC_PYTHON) add_python(&en, x.lo, MIN(x.hi, (uint32_t)SYM_MAX_CHAR), x.to);
      else add_json(&en, x.lo, x.hi, x.to);
    }
    TRY(grammar_work_spend(w, 4 * (en.n_seqs - first) + 1));
    Tail *t = ARENA_ARRAY(w->a, Tail, en.n_seqs - first + 1);
    Seq *own = ARENA_ARRAY(w->a, Seq, en.n_seqs - first + 1); /* en.seq may move */
    for (int k = first; k < en.n_seqs; k++) {
      own[k - first] = en.seq[k];
      t[k - first] = (Tail){&own[k - first], 0};
    }
    int n = en.n_seqs - first;
    en.n_seqs = first;
    Cut *cut = NULL;
    int n_cut = 0;
    TRY(encode_cuts(&en, t, n, &cut, &n_cut));
    for (int k = 0; k < n_cut; k++) grammar_edge_add(g, map[i], cut[k].lo, cut[k].hi, cut[k].act, 0, cut[k].to);
    if (e->counted == GR_ROUND && !i && e->n_close) grammar_edge_add(g, map[0], e->close_byte, e->close_byte, GR_CLOSE, 0, e->close[0]);
    if (s->tag >= 0) {
      if (!e->n_close) g->st[map[i]].accept = true;
      else {
        GrAct act = e->act == GR_KEY ? GR_COMMIT : e->counted ? GR_CLOSE : GR_PLAIN;
        grammar_edge_add(g, map[i], e->close_byte, e->close_byte, act, s->tag, e->close[MIN(s->tag, e->n_close - 1)]);
        if (e->special) grammar_edge_add(g, map[i], GR_SPECIAL, GR_SPECIAL, act, s->tag, e->special[MIN(s->tag, e->n_close - 1)]);
      }
    }
    for (int k = 0; k < s->n_edges; k++) {
      DfaEdge x = s->edge[k];
      for (uint32_t sym = MAX(x.lo, SYM_CALL); sym <= x.hi && x.hi >= SYM_CALL; sym++) grammar_call_add(g, map[i], sym - SYM_CALL, GR_PLAIN, map[x.to]);
    }
  }
  return NULL;
}

/* Objects. aux in order: next name in the low half, count in the high half; in any order: taken names in 48 bits, count above. */
static int obj_count(const GrObject *o, uint64_t aux) { return (int)(o->any_order ? aux >> 48 : aux >> 32); }

static bool obj_may_take(const GrObject *o, const GrRule *r, uint64_t aux, int c) {
  if (!o->open[c]) return false;
  int count = obj_count(o, aux) + 1, needed = 0;
  if (o->any_order) {
    uint64_t taken = aux & 0xFFFFFFFFFFFF;
    if (c < o->n_names && (taken >> c & 1)) return false;
    if (c < o->n_names) taken |= 1ull << c;
    if (r->max >= 0)
      for (int i = 0; i < o->n_names; i++) needed += o->required[i] && !(taken >> i & 1);
  } else {
    int at = (int)(uint32_t)aux, must = o->next_required[at];
    if (c < o->n_names ? c < at || c > must : must < o->n_names) return false;
    needed = o->n_required_from[c < o->n_names ? c + 1 : o->n_names];
    if (!o->extras && count + o->n_open_from[c < o->n_names ? c + 1 : o->n_names] < r->min) return false;
  }
  return r->max < 0 || count + needed <= r->max;
}

static uint64_t obj_take(const GrObject *o, const GrRule *r, uint64_t aux, int c) {
  int count = obj_count(o, aux);
  if (r->max >= 0 || count < r->min) count++;
  if (!o->any_order) return (uint64_t)count << 32 | (unsigned)(c < o->n_names ? c + 1 : o->n_names);
  return (uint64_t)count << 48 | (aux & 0xFFFFFFFFFFFF) | (c < o->n_names ? 1ull << c : 0);
}

/* Some class of the set (NULL: of all) may be taken. */
static bool obj_may_take_any(const GrObject *o, const GrRule *r, uint64_t aux, const uint64_t *set) {
  int from = 0, to = o->n_names - 1;
  if (!o->any_order) {
    from = (int)(uint32_t)aux;
    to = MIN(o->next_required[from], o->n_names - 1);
  }
  for (int pass = 0; pass < 2; pass++) {
    for (int c = from; c <= to; c++) {
      if (set && !(set[c / 64] >> (c % 64))) { c |= 63; continue; }
      if ((!set || (set[c / 64] >> (c % 64) & 1)) && obj_may_take(o, r, aux, c)) return true;
    }
    from = o->n_names;
    to = o->n_classes - 1;
  }
  return false;
}

static bool obj_may_close(const GrObject *o, const GrRule *r, uint64_t aux) {
  if (obj_count(o, aux) < r->min) return false;
  if (!o->any_order) return o->next_required[(uint32_t)aux] == o->n_names;
  for (int i = 0; i < o->n_names; i++) if (o->required[i] && !(aux >> i & 1)) return false;
  return true;
}

static bool act_allowed(const Grammar *g, GrPos p, int act, int arg, uint32_t to, uint64_t *aux) {
  const GrRule *r = &g->rule[g->st[p.q].rule];
  const GrObject *o = r->object;
  *aux = p.aux;
  if (r->kind == GR_COUNTED) {
    if (act == GR_CLOSE) return (int64_t)p.aux >= r->min;
    if (g->st[p.q].between && r->max >= 0 && (int64_t)p.aux >= r->max) return false;
    if (act == GR_COUNT && (r->max >= 0 || (int64_t)p.aux < r->min)) (*aux)++;
    return true;
  }
  switch ((GrAct)act) {
    case GR_KEY: return obj_may_take_any(o, r, p.aux, &o->reach[(size_t)(to - o->key_base) * (size_t)o->n_words]);
    case GR_COMMIT:
      if (!obj_may_take(o, r, p.aux, arg)) return false;
      *aux = obj_take(o, r, p.aux, arg);
      return true;
    case GR_CLOSE: return obj_may_close(o, r, p.aux);
    case GR_MORE: return obj_may_take_any(o, r, p.aux, NULL);
    case GR_GO_ON: return obj_may_close(o, r, p.aux) || obj_may_take_any(o, r, p.aux, NULL);
    default: return true;
  }
}

bool grammar_edge_allowed(const Grammar *g, GrPos p, const GrEdge *e, uint64_t *aux) { return act_allowed(g, p, e->act, e->arg, e->to, aux); }
bool grammar_call_allowed(const Grammar *g, GrPos p, const GrCall *c, uint64_t *aux) { return act_allowed(g, p, c->act, 0, c->ret, aux); }

bool grammar_pos_accepts(const Grammar *g, GrPos p) {
  const GrState *s = &g->st[p.q];
  return s->accept && (g->rule[s->rule].kind != GR_COUNTED || !s->between || (int64_t)p.aux >= g->rule[s->rule].min);
}

GrPos grammar_pos_canonical(const Grammar *g, GrPos p, int n_bytes) {
  const GrRule *r = &g->rule[g->st[p.q].rule];
  if (r->kind != GR_COUNTED) return p;
  uint64_t n = (uint64_t)n_bytes + 1; /* a round may be under way */
  if (r->max >= 0 && (uint64_t)r->max < p.aux + n) return p;
  if (p.aux >= (uint64_t)r->min) p.aux = (uint64_t)r->min;
  else if ((uint64_t)r->min >= p.aux + n) p.aux = 0;
  return p;
}

/* What leads to a whole text. A round that is over counts as leading somewhere; an object needs values for its required names. */
static bool state_leads_on(const Grammar *g, const bool *good, uint32_t q) {
  const GrState *s = &g->st[q];
  const GrRule *r = &g->rule[s->rule];
  if (r->kind == GR_OBJECT) return r->productive;
  if (s->accept && (r->kind == GR_AUTOMATON || !s->between || !r->min)) return true;
  if (r->kind == GR_COUNTED && s->between && r->min > r->max && r->max >= 0) return false;
  for (int i = 0; i < s->n_edges; i++) if (g->edge[s->edge + (uint32_t)i].act == GR_COUNT || good[g->edge[s->edge + (uint32_t)i].to]) return true;
  for (int i = 0; i < s->n_calls; i++) {
    const GrCall *c = &g->call[s->call + (uint32_t)i];
    if (g->rule[c->rule].productive && (c->act == GR_COUNT || good[c->ret])) return true;
  }
  return false;
}

static bool object_leads_on(const Grammar *g, const GrRule *r) {
  const GrObject *o = r->object;
  int n_open = 0, n_required = 0;
  bool extras = false;
  for (int i = 0; i < o->n_classes; i++) {
    bool open = g->rule[o->value[i]].productive;
    if (i >= o->n_names) { extras |= open; continue; }
    n_open += open;
    n_required += o->required[i];
    if (o->required[i] && !open) return false;
  }
  return (extras || n_open >= r->min) && (r->max < 0 || (n_required <= r->max && r->min <= r->max));
}

/* Who must be looked at again once a state or a rule (numbered behind the states) leads on. */
typedef struct Users { int *head, *next; uint32_t *who; int n; } Users;
static void users_add(Users *u, uint32_t of, uint32_t who) {
  u->who[u->n] = who;
  u->next[u->n] = u->head[of];
  u->head[of] = ++u->n;
}

static Err *users_collect(const Grammar *g, GrWork *w, Users *u) {
  size_t n = (size_t)g->n_edges + 2 * (size_t)g->n_calls + (size_t)g->n_rules + 1;
  uint32_t base = (uint32_t)g->n_st;
  for (int i = 0; i < g->n_rules; i++) n += g->rule[i].object ? (size_t)g->rule[i].object->n_classes : 0;
  TRY(grammar_work_spend(w, (int64_t)n));
  *u = (Users){.head = ARENA_ARRAY(w->a, int, g->n_st + g->n_rules + 1), .next = ARENA_ARRAY(w->a, int, n), .who = ARENA_ARRAY(w->a, uint32_t, n)};
  for (uint32_t q = 0; q < (uint32_t)g->n_st; q++) {
    for (int i = 0; i < g->st[q].n_edges; i++) users_add(u, g->edge[g->st[q].edge + (uint32_t)i].to, q);
    for (int i = 0; i < g->st[q].n_calls; i++) {
      users_add(u, g->call[g->st[q].call + (uint32_t)i].ret, q);
      users_add(u, base + g->call[g->st[q].call + (uint32_t)i].rule, q);
    }
  }
  for (uint32_t r = 0; r < (uint32_t)g->n_rules; r++) {
    const GrRule *rule = &g->rule[r];
    if (!rule->object) users_add(u, rule->start, base + r);
    for (int i = 0; rule->object && i < rule->object->n_classes; i++) users_add(u, base + rule->object->value[i], base + r);
  }
  return NULL;
}

static Err *find_productive(Grammar *g, GrWork *w, bool *good) {
  uint32_t n_st = (uint32_t)g->n_st, n = n_st + (uint32_t)g->n_rules, n_todo = 0, *todo = ARENA_ARRAY(w->a, uint32_t, n + 1);
  bool *waits = ARENA_ARRAY(w->a, bool, n + 1);
  Users u;
  TRY(users_collect(g, w, &u));
  for (uint32_t i = 0; i < n; i++) { todo[n_todo++] = i; waits[i] = true; }
  while (n_todo) {
    uint32_t i = todo[--n_todo];
    waits[i] = false;
    bool now;
    if (i < n_st) {
      TRY(grammar_work_spend(w, 1 + (g->st[i].n_edges + g->st[i].n_calls) / 4));
      now = !good[i] && state_leads_on(g, good, i);
      if (now) good[i] = true;
    } else {
      GrRule *r = &g->rule[i - n_st];
      TRY(grammar_work_spend(w, 1 + (r->object ? r->object->n_classes / 4 : 0)));
      now = !r->productive && (r->object ? object_leads_on(g, r) : good[r->start]);
      if (now) r->productive = true;
    }
    if (!now) continue;
    for (int k = u.head[i]; k; k = u.next[k - 1])
      if (!waits[u.who[k - 1]]) { waits[u.who[k - 1]] = true; todo[n_todo++] = u.who[k - 1]; }
  }
  for (uint32_t q = 0; q < n_st; q++) if (g->rule[g->st[q].rule].object) good[q] = g->rule[g->st[q].rule].productive;
  return NULL;
}

static int edge_order(const void *x, const void *y) {
  const GrEdge *a = x, *b = y;
  return a->lo != b->lo ? a->lo - b->lo : a->hi - b->hi;
}

static void cut_dead_ends(Grammar *g, const bool *good) {
  for (int i = 0; i < g->n_st; i++) {
    GrState *s = &g->st[i];
    int n = 0;
    for (int k = 0; k < s->n_edges; k++) {
      GrEdge e = g->edge[s->edge + (uint32_t)k];
      if (e.act == GR_COUNT || good[e.to]) g->edge[s->edge + (uint32_t)n++] = e;
    }
    s->n_edges = (uint16_t)n;
    if (n) qsort(&g->edge[s->edge], (size_t)n, sizeof(GrEdge), edge_order);
    n = 0;
    for (int k = 0; k < s->n_calls; k++) {
      GrCall c = g->call[s->call + (uint32_t)k];
      if (g->rule[c.rule].productive && (c.act == GR_COUNT || good[c.ret])) g->call[s->call + (uint32_t)n++] = c;
    }
    s->n_calls = (uint16_t)n;
    s->tail = s->accept && !s->n_edges && !s->n_calls && g->rule[s->rule].kind == GR_AUTOMATON;
  }
}

/* Which names can still be completed from each state of the key automaton. */
static Err *object_reach(Grammar *g, GrWork *w, GrRule *r) {
  GrObject *o = r->object;
  o->open = ARENA_ARRAY(g->a, bool, o->n_classes + 1);
  o->n_open_from = ARENA_ARRAY(g->a, int32_t, o->n_names + 1);
  o->extras = false;
  for (int i = 0; i < o->n_classes; i++) {
    o->open[i] = g->rule[o->value[i]].productive;
    if (i >= o->n_names) o->extras |= o->open[i];
  }
  for (int i = o->n_names; i-- > 0;) o->n_open_from[i] = o->n_open_from[i + 1] + o->open[i];
  o->n_words = o->n_classes / 64 + 1;
  size_t n = (size_t)o->n_words;
  TRY(grammar_work_spend(w, (int64_t)n * o->n_keys));
  o->reach = ARENA_ARRAY(g->a, uint64_t, n * (size_t)o->n_keys + 1);
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = o->n_keys; i-- > 0;) {
      const GrState *s = &g->st[o->key_base + (uint32_t)i];
      uint64_t *set = &o->reach[(size_t)i * n];
      TRY(grammar_work_spend(w, (int64_t)n * s->n_edges / 4 + 1));
      for (int k = 0; k < s->n_edges; k++) {
        const GrEdge *e = &g->edge[s->edge + (uint32_t)k];
        if (e->act == GR_COMMIT) {
          uint64_t bit = 1ull << (e->arg % 64);
          if (o->open[e->arg] && !(set[e->arg / 64] & bit)) { set[e->arg / 64] |= bit; changed = true; }
          continue;
        }
        const uint64_t *other = &o->reach[(size_t)(e->to - o->key_base) * n];
        for (size_t j = 0; j < n; j++) if (other[j] & ~set[j]) { set[j] |= other[j]; changed = true; }
      }
    }
  }
  return NULL;
}

/* Nullable rules, then a cycle of rules that call each other before anything is read: left recursion. */
static bool rule_derives_nothing(const Grammar *g, const GrRule *r, uint32_t *todo, uint32_t *mark, uint32_t stamp) {
  int n = 0;
  if (r->kind == GR_OBJECT) return false;
  todo[n++] = r->start;
  mark[r->start] = stamp;
  while (n) {
    const GrState *s = &g->st[todo[--n]];
    if (s->accept && (r->kind == GR_AUTOMATON || !s->between || !r->min)) return true;
    for (int i = 0; i < s->n_calls; i++) {
      const GrCall *c = &g->call[s->call + (uint32_t)i];
      if (!g->rule[c->rule].nullable) continue;
      if (c->act == GR_COUNT) return true; /* every round may derive nothing */
      if (mark[c->ret] != stamp) { mark[c->ret] = stamp; todo[n++] = c->ret; }
    }
  }
  return false;
}

static Err *find_nullable(Grammar *g, GrWork *w, uint32_t *todo, uint32_t *mark, uint32_t *stamp) {
  for (bool changed = true; changed;) {
    changed = false;
    TRY(grammar_work_spend(w, g->n_rules));
    for (int i = g->n_rules; i-- > 0;)
      if (!g->rule[i].nullable && rule_derives_nothing(g, &g->rule[i], todo, mark, ++*stamp)) changed = g->rule[i].nullable = true;
  }
  return NULL;
}

/* The rules called from r before it reads anything, each once. */
static int first_calls(const Grammar *g, const GrRule *r, uint32_t *todo, uint32_t *mark, uint32_t stamp, GrWork *w, uint32_t **out) {
  int n = 0, n_out = 0, cap = 0;
  *out = NULL;
  todo[n++] = r->start;
  mark[r->start] = stamp;
  while (n) {
    const GrState *s = &g->st[todo[--n]];
    for (int i = 0; i < s->n_calls; i++) {
      const GrCall *c = &g->call[s->call + (uint32_t)i];
      PUSH(w->a, *out, n_out, cap, c->rule);
      uint32_t next = c->act == GR_COUNT ? r->loop : c->ret;
      if (g->rule[c->rule].nullable && mark[next] != stamp) { mark[next] = stamp; todo[n++] = next; }
    }
  }
  return n_out;
}

static Err *refuse_left_recursion(Grammar *g, GrWork *w) {
  uint32_t *todo = ARENA_ARRAY(w->a, uint32_t, g->n_st + 1), *mark = ARENA_ARRAY(w->a, uint32_t, g->n_st + 1), stamp = 0;
  TRY(find_nullable(g, w, todo, mark, &stamp));
  struct Visit { uint32_t rule; uint32_t *kid; int n, at; } *stack = ARENA_ARRAY(w->a, struct Visit, g->n_rules + 1);
  uint8_t *seen = ARENA_ARRAY(w->a, uint8_t, g->n_rules + 1); /* 1: on the stack, 2: done */
  for (uint32_t i = 0; i < (uint32_t)g->n_rules; i++) {
    int depth = 0;
    if (seen[i]) continue;
    seen[i] = 1;
    stack[depth++] = (struct Visit){.rule = i, .at = -1};
    while (depth) {
      struct Visit *v = &stack[depth - 1];
      if (v->at < 0) {
        v->n = first_calls(g, &g->rule[v->rule], todo, mark, ++stamp, w, &v->kid);
        v->at = 0;
        TRY(grammar_work_spend(w, v->n + 1));
      }
      if (v->at == v->n) { seen[v->rule] = 2; depth--; continue; }
      uint32_t k = v->kid[v->at++];
      if (seen[k] == 1)
        return err_new(ERR_UNSUPPORTED, "rule `%s` is left-recursive: it calls itself before it reads anything", g->rule[k].name ? g->rule[k].name : "?");
      if (!seen[k]) { seen[k] = 1; stack[depth++] = (struct Visit){.rule = k, .at = -1}; }
    }
  }
  return NULL;
}

/* A rule that is only the call of another one is called by that one's name. Left recursion is refused before: no chain is a ring. */
static uint32_t called(const Grammar *g, uint32_t rule) {
  const GrRule *r = &g->rule[rule];
  const GrState *s = &g->st[r->start];
  if (r->kind != GR_AUTOMATON || s->accept || s->n_edges || s->n_calls != 1) return rule;
  const GrCall *c = &g->call[s->call];
  return c->act == GR_PLAIN && g->st[c->ret].tail ? c->rule : rule;
}
static Err *skip_aliases(Grammar *g, GrWork *w) {
  uint32_t *to = ARENA_ARRAY(w->a, uint32_t, g->n_rules + 1);
  for (int i = 0; i < g->n_rules; i++) to[i] = called(g, (uint32_t)i);
  for (bool changed = true; changed;) { /* each round halves the longest chain */
    changed = false;
    TRY(grammar_work_spend(w, g->n_rules));
    for (int i = 0; i < g->n_rules; i++)
      if (to[i] != to[to[i]]) { to[i] = to[to[i]]; changed = true; }
  }
  for (int i = 0; i < g->n_calls; i++) g->call[i].rule = to[g->call[i].rule];
  g->root = to[g->root];
  return NULL;
}

static void number_byte_classes(Grammar *g) {
  bool starts[257] = {true};
  for (int i = 0; i < g->n_st; i++)
    for (int k = 0; k < g->st[i].n_edges; k++) {
      const GrEdge *e = &g->edge[g->st[i].edge + (uint32_t)k];
      starts[e->lo] = starts[e->hi + 1] = true;
    }
  int n = -1;
  for (int b = 0; b < 256; b++) g->byte_class[b] = (uint8_t)(n += starts[b]);
  g->n_byte_classes = n + 1;
}

Err *grammar_finish(Grammar *g, GrWork *w) {
  bool *good = ARENA_ARRAY(w->a, bool, g->n_st + 1);
  TRY(find_productive(g, w, good));
  cut_dead_ends(g, good);
  for (int i = 0; i < g->n_rules; i++)
    if (g->rule[i].kind == GR_OBJECT && g->rule[i].productive) TRY(object_reach(g, w, &g->rule[i]));
  TRY(refuse_left_recursion(g, w));
  TRY(skip_aliases(g, w));
  number_byte_classes(g);
  return NULL;
}

static Err *regex_rule(Grammar *g, GrWork *w, const char *re, size_t n) {
  Dfa *d;
  TRY(grammar_regex_dfa(w, re, n, false, &d));
  uint32_t rule = grammar_rule_new(g, GR_AUTOMATON, "root");
  uint32_t *map = ARENA_ARRAY(w->a, uint32_t, d->n);
  GrEncode e = {.mode = GR_ENC_RAW, .rule = rule};
  TRY(grammar_encode_dfa(g, w, d, &e, map));
  g->rule[rule].start = map[0];
  g->root = rule;
  return grammar_finish(g, w);
}

Err *grammar_from_regex(const char *re, size_t n, Grammar **out) {
  GrWork w = {.a = arena_new("compile"), .left = GR_BUDGET};
  Grammar *g = grammar_new();
  Err *e = regex_rule(g, &w, re, n);
  arena_free(w.a);
  if (e) grammar_free(g);
  else *out = g;
  return e;
}
