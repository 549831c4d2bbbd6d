/* Pre-tokenizers: they cut a text into the pieces that the model sees. Regular expressions, for normalizers too (normal.c).
   In: any bytes; regular expressions see only the valid UTF-8 runs, broken bytes become pieces of their own. Out: pieces, one by one, that
   point into the text or the call's arena. A pattern that runs out of stack or steps is tried again on a shorter window, so every text
   ends in pieces and the time stays near linear. Rules by name: splits.def. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include "text/priv.h"

struct Regex { pcre2_code *code; };

/* Oniguruma's and Rust's \s is White_Space; PCRE2's adds U+180E. Outside a class \s is spelled out, inside it the ranges are. */
static void add_portable(Str *out, const char *p, size_t n) {
  static const char spaces[] = "\\x{9}-\\x{d}\\x{20}\\x{85}\\p{Z}";
  int depth = 0;
  for (size_t i = 0; i < n; i++) {
    if (p[i] == '\\' && i + 1 < n) {
      if (p[i + 1] == 's') {
        if (!depth) str_add_c(out, '[');
        str_add(out, spaces);
        if (!depth) str_add_c(out, ']');
      } else if (p[i + 1] == 'S' && !depth) {
        str_addf(out, "[^%s]", spaces);
      } else {
        str_add_n(out, p + i, 2);
      }
      i++;
      continue;
    }
    if (p[i] == '[' && !depth) depth = 1;
    else if (p[i] == ']' && depth && p[i - 1] != '[') depth = 0;
    str_add_c(out, p[i]);
  }
}

Err *text_regex_new(TextVocab *v, const char *pattern, size_t n, Regex **out) {
  Str s = {0};
  add_portable(&s, pattern, n);
  int code;
  PCRE2_SIZE at;
  pcre2_code *re = pcre2_compile((PCRE2_SPTR)s.p, s.n, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
  str_free(&s);
  if (!re) {
    PCRE2_UCHAR why[200] = "";
    pcre2_get_error_message(code, why, sizeof why);
    return err_new(ERR_FORMAT, "tokenizer pattern '%.*s': %s", (int)MIN(n, (size_t)200), pattern, (const char *)why);
  }
  pcre2_jit_compile(re, PCRE2_JIT_COMPLETE); /* without JIT the interpreter does the same */
  *out = ARENA_NEW(v->arena, Regex);
  (*out)->code = re;
  PUSH(v->arena, v->regexes, v->n_regexes, v->cap_regexes, *out);
  return NULL;
}

void text_regex_free(Regex *re) {
  if (re) pcre2_code_free(re->code);
}

enum {
#define RULE(id, pattern) RULE_##id,
#include "text/splits.def"
#undef RULE
  N_RULES
};
static const char *const rule_pattern[N_RULES] = {
#define RULE(id, pattern) pattern,
#include "text/splits.def"
#undef RULE
};
#define MAX_RULES 6
static const struct SplitRow { const char *name; bool ignore_merges, form; int n; int rule[MAX_RULES]; } split_rows[] = {
#define SPLIT(name, ignore, form, ...) {name, ignore, form, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), {__VA_ARGS__}},
#include "text/splits.def"
#undef SPLIT
};

static const struct { const char *part, *rule; enum { RANKS_NAME, RANKS_OTHER, RANKS_GUESS } how; } rank_rows[] = {
#define RANKS(part, name, how) {part, name, RANKS_##how},
#include "text/splits.def"
#undef RANKS
};

const char *text_split_rule_of_ranks(const char *file, bool *is_guess) {
  size_t i = 0;
  while (!strcasestr(file, rank_rows[i].part)) i++; /* the last row is in every name */
  *is_guess = rank_rows[i].how == RANKS_GUESS;
  return rank_rows[i].rule;
}

const char *text_split_rank_name(int i) {
  for (size_t k = 0; k < COUNT_OF(rank_rows); k++)
    if (rank_rows[k].how == RANKS_NAME && !i--) return rank_rows[k].part;
  return NULL;
}

const char *text_split_rule_name(int i) { return i < (int)COUNT_OF(split_rows) ? split_rows[i].name : NULL; }

Err *text_split_rule(TextVocab *v, const char *name) {
  const struct SplitRow *row = NULL;
  for (size_t i = 0; i < COUNT_OF(split_rows) && !row; i++)
    if (!strcmp(split_rows[i].name, name)) row = &split_rows[i];
  if (!row) return err_new(ERR_UNSUPPORTED, "tokenizer: unknown pre-tokenizer '%s'", name);
  v->pre = ARENA_ARRAY(v->arena, Step, MAX_RULES);
  for (v->n_pre = 0; v->n_pre < row->n; v->n_pre++) {
    Step *s = &v->pre[v->n_pre];
    *s = (Step){.kind = STEP_SPLIT, .mode = SPLIT_ISOLATED};
    const char *p = rule_pattern[row->rule[v->n_pre]];
    TRY(text_regex_new(v, p, strlen(p), &s->re));
  }
  if (row->form) {
    v->norm = ARENA_NEW(v->arena, Step);
    v->norm[0] = (Step){.kind = STEP_FORM, .mode = FORM_NFC};
    v->n_norm = 1;
  }
  v->ignore_merges = row->ignore_merges;
  return NULL;
}

/* One matcher per call: its stack grows only when a pattern asks for it. */
typedef struct Matcher { pcre2_match_data *data; pcre2_match_context *cx; pcre2_jit_stack *stack; } Matcher;

static void matcher_close(Matcher *m) {
  pcre2_match_data_free(m->data);
  pcre2_match_context_free(m->cx);
  pcre2_jit_stack_free(m->stack);
  *m = (Matcher){0};
}

/* p[n] valid UTF-8. Finds the next match from `at`. */
static bool match_next(Matcher *m, const Regex *re, const char *p, size_t n, size_t at, size_t *from, size_t *to) {
  if (!m->data) {
    m->data = pcre2_match_data_create(1, NULL);
    m->cx = pcre2_match_context_create(NULL);
    CHECK(m->data && m->cx, "out of memory");
    pcre2_set_match_limit(m->cx, 2000000);
    pcre2_set_heap_limit(m->cx, 64 * 1024);
  }
  for (size_t end = n;;) {
    int rc = pcre2_match(re->code, (PCRE2_SPTR)p, end, at, PCRE2_NO_UTF_CHECK, m->data, m->cx);
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc >= 0) {
      const PCRE2_SIZE *o = pcre2_get_ovector_pointer(m->data);
      *from = o[0];
      *to = o[1];
      return true;
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !m->stack) {
      m->stack = pcre2_jit_stack_create(64 * 1024, 8 << 20, NULL);
      if (m->stack) { pcre2_jit_stack_assign(m->cx, NULL, m->stack); continue; }
    }
    if (end - at <= 64) return false;
    end = at + (end - at) / 2; /* a piece may be cut here; only monstrous pieces are */
    while (end > at + 1 && ((uint8_t)p[end] & 0xC0) == 0x80) end--;
  }
}

/* One piece goes through all steps before the next one is cut, so nothing is kept but what the modes join: the piece in `held`. */
typedef struct Cut { const TextVocab *v; Arena *a; Matcher m; PieceSink sink; void *to; bool *begun; } Cut; /* begun[k]: a piece has come to step k */
typedef struct Join { Cut *c; const Step *s; const char *p; int k; bool any, last; Piece held; Str *out; } Join; /* out: matches are replaced into it */

static void cut(Cut *c, int k, Piece x);

static void span(Join *j, size_t from, size_t to, bool match) {
  match ^= j->s->invert;
  if (j->out) { match ? str_add_n(j->out, j->s->with, j->s->n_with) : str_add_n(j->out, j->p + from, to - from); return; }
  bool glue = j->any && ((j->s->mode == SPLIT_PREVIOUS && match && !j->last) || (j->s->mode == SPLIT_CONTIGUOUS && match == j->last) ||
                         (j->s->mode == SPLIT_NEXT && !match && j->last));
  j->last = match;
  if (j->s->mode == SPLIT_REMOVED && match) return;
  if (glue) { j->held.n += to - from; return; }
  if (j->any) cut(j->c, j->k, j->held);
  j->held = (Piece){j->p + from, to - from};
  j->any = true;
}

static void spans_regex(Join *j, const char *p, size_t base, size_t n) {
  size_t prev = 0, at = 0, from, to;
  while (at <= n && match_next(&j->c->m, j->s->re, p + base, n, at, &from, &to)) {
    if (from > prev) span(j, base + prev, base + from, false);
    if (to > from) span(j, base + from, base + to, true);
    prev = to;
    at = to;
    if (to == from) {
      if (at >= n) break;
      do at++; while (at < n && ((uint8_t)p[base + at] & 0xC0) == 0x80);
    }
  }
  if (prev < n) span(j, base + prev, base + n, false);
}

static void spans_literal(Join *j, const char *text, size_t n_text, const char *p, size_t n) {
  size_t prev = 0;
  for (size_t at = 0; n_text && at + n_text <= n;) {
    const char *hit = n_text == 1 ? memchr(p + at, text[0], n - at) : memmem(p + at, n - at, text, n_text);
    if (!hit) break;
    at = (size_t)(hit - p);
    if (at > prev) span(j, prev, at, false);
    span(j, at, at + n_text, true);
    prev = at += n_text;
  }
  if (prev < n) span(j, prev, n, false);
}

/* Letters in most texts: no table is asked. */
static bool is_plain_letter(int32_t c) { return (c >= 'a' && c <= 'z') || (c >= 0xAC00 && c <= 0xD7A3) || (c >= 'A' && c <= 'Z') || (c >= 0x4E00 && c <= 0x9FFF); }
static bool is_punct(int32_t c) { return c < 0x80 ? c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') : text_char_class(c) == CHAR_PUNCT; }

/* Runs of white space, or each punctuation mark alone: what WordPiece is cut at. Broken bytes stand apart. */
static void spans_chars(Join *j, const char *p, size_t n) {
  size_t from = 0;
  enum { NONE, REST, BAD, HIT } what, last = NONE;
  for (size_t at = 0, k; at < n; at += k) {
    int32_t c;
    k = (size_t)text_utf8_next(p + at, p + n, &c);
    what = c < 0 ? BAD : is_plain_letter(c) ? REST : (j->s->scan == SCAN_SPACES ? text_char_is_space(c) : is_punct(c)) ? HIT : REST;
    if (last != NONE && (what != last || (what == HIT && j->s->scan == SCAN_PUNCT))) span(j, from, at, last == HIT), from = at;
    last = what;
  }
  if (from < n) span(j, from, n, last == HIT);
}

/* Valid runs go to the pattern, runs of broken bytes are spans without a match. */
static void spans_valid(Join *j, const char *p, size_t n) {
  for (size_t at = 0; at < n;) {
    size_t ok = text_utf8_valid(p + at, n - at);
    if (ok) { spans_regex(j, p, at, ok); at += ok; continue; }
    size_t bad = at;
    while (at < n && !text_utf8_valid(p + at, MIN(n - at, (size_t)4))) at++;
    span(j, bad, at, false);
  }
}

static void spans(Join *j, const char *p, size_t n) {
  if (j->s->scan != SCAN_REGEX) spans_chars(j, p, n);
  else if (j->s->re) spans_valid(j, p, n);
  else spans_literal(j, j->s->text, j->s->n_text, p, n);
}

/* Spaces become the replacement; it is put in front where the mode says so; then every replacement begins a piece. */
static void metaspace(Cut *c, int k, const Step *s, Piece x, bool first) {
  bool front = (s->mode == PREPEND_ALWAYS || (s->mode == PREPEND_FIRST && first)) && !(x.n && x.p[0] == ' ') && !(x.n >= s->n_text && !memcmp(x.p, s->text, s->n_text));
  size_t n_spaces = front, n = 0;
  for (size_t i = 0; i < x.n; i++) n_spaces += x.p[i] == ' ';
  char *p = arena_alloc(c->a, x.n + n_spaces * s->n_text + 1);
  if (front) memcpy(p, s->text, n = s->n_text);
  for (size_t i = 0; i < x.n; i++) {
    if (x.p[i] == ' ') memcpy(p + n, s->text, s->n_text), n += s->n_text;
    else p[n++] = x.p[i];
  }
  if (!s->left) { cut(c, k + 1, (Piece){p, n}); return; }
  Step next = {.mode = SPLIT_NEXT};
  Join j = {.c = c, .s = &next, .p = p, .k = k + 1};
  spans_literal(&j, s->text, s->n_text, p, n);
  if (j.any) cut(c, k + 1, j.held);
}

static Piece prefix_space(Arena *a, Piece x) {
  int32_t cp = -1;
  if (x.n) text_utf8_next(x.p, x.p + x.n, &cp);
  if (!x.n || text_char_is_space(cp)) return x;
  char *p = arena_alloc(a, x.n + 1);
  p[0] = ' ';
  memcpy(p + 1, x.p, x.n);
  return (Piece){p, x.n + 1};
}

static void cut(Cut *c, int k, Piece x) {
  if (k == c->v->n_pre) { c->sink(c->to, x.p, x.n); return; }
  const Step *s = &c->v->pre[k];
  bool first = !c->begun[k];
  c->begun[k] = true;
  if (s->kind == STEP_METASPACE) metaspace(c, k, s, x, first);
  else if (s->kind == STEP_PREFIX_SPACE) cut(c, k + 1, prefix_space(c->a, x));
  else {
    Join j = {.c = c, .s = s, .p = x.p, .k = k + 1};
    spans(&j, x.p, x.n);
    if (j.any) cut(c, k + 1, j.held);
  }
}

void text_steps_split(const TextVocab *v, Arena *a, const char *p, size_t n, bool at_start, PieceSink sink, void *to) {
  bool begun[MAX_PRE_STEPS];
  CHECK(v->n_pre <= MAX_PRE_STEPS, "%d pre-tokenizers", v->n_pre);
  memset(begun, !at_start, sizeof begun); /* what does not stand at the start is as what comes later */
  Cut c = {.v = v, .a = a, .sink = sink, .to = to, .begun = begun};
  if (n) cut(&c, 0, (Piece){p, n});
  matcher_close(&c.m);
}

void text_step_replace(const Step *s, const char *p, size_t n, Str *out) {
  Cut c = {0};
  Join j = {.c = &c, .s = s, .p = p, .out = out};
  spans(&j, p, n);
  matcher_close(&c.m);
}
