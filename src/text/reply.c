/* A reply taken apart, byte by byte. In: what a model wrote, in any pieces. Out: events.

       bytes -> whole characters -> [ content | reasoning ] -> texts, white space beside markers dropped
                                       |  a call's opening
                                       v
                                    [ call ]  its patterns are followed side by side; raw keeps its bytes
                                       |        certain: the call leaves, raw is forgotten
                                       +------ none goes on: the opening is text, what came behind it is read again

   Every decision falls at a byte and depends on the bytes before it alone; feeding in pieces only decides how many bytes one text event
   has. What is read again is bounded by a multiple of what was fed, so time is linear; memory is bounded by max_held. */
#include <stdlib.h>
#include <string.h>
#include "text/priv.h"
#include "text/replyparts.h"
#include "text/toolcall.h"

enum { MAX_MARKERS = 24, MAX_SPACE = 4096, MAX_CALLS = 256, AGAIN_FACTOR = 8, AGAIN_FREE = 4096 };
typedef enum Mode { MODE_CONTENT, MODE_REASON, MODE_CALL } Mode;
typedef enum Act { ACT_NOISE, ACT_STRAY, ACT_OPEN, ACT_CLOSE, ACT_CALL } Act;
typedef struct Marker { const char *text; size_t n; Act act; } Marker;
typedef struct Markers { int n; Marker m[MAX_MARKERS]; bool first[256]; } Markers;

struct TextReply {
  const TextSyntax *syntax;
  const TextReason *reason;
  TextReplyOptions o;
  ToolSet set;
  ToolPattern pattern[REPLY_MAX_PATTERNS];
  int n_patterns;
  bool has_bare, is_prefix;                /* what is fed is the prompt's */
  bool has_begun, drops_space;             /* content other than white space was told; white space to come is beside a marker */
  Markers in_content, in_reason;
  Mode mode, outer;                        /* outer: what a call stands in */
  Str held, space;                         /* the beginning of a marker; white space that may stand beside one */
  uint8_t part[4]; int n_part;             /* of a character */
  /* the present call */
  ToolRun run[REPLY_MAX_PATTERNS];
  bool is_alive[REPLY_MAX_PATTERNS];
  int only, n_opening;                     /* the run that got certain, or -1; bytes of the opening */
  Str raw;
  bool was_told;                           /* eager: BEGIN has left */
  size_t n_args_told;
  /* what is read again */
  Str again;
  size_t again_at, n_again, n_fed;
  int n_calls;
  /* the text that has not left yet */
  Str pending;
  TextEventKind pending_kind;
  TextOnEvent *on_event;
  void *ctx;
};

static bool is_space(uint8_t c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* ---- markers ---- */

static void marker_add(Markers *m, const char *text, size_t n, Act act) {
  for (int i = 0; i < m->n; i++)
    if (m->m[i].n == n && !memcmp(m->m[i].text, text, n)) return; /* the first meaning counts */
  CHECK(m->n < MAX_MARKERS, "too many markers");
  m->m[m->n++] = (Marker){text, n, act};
  m->first[(uint8_t)text[0]] = true;
}

static void markers_make(TextReply *r) {
  const TextReason *reason = r->o.keeps_reasoning ? NULL : r->reason;
  for (int i = 0; i < r->n_patterns; i++) {
    const ToolPattern *p = &r->pattern[i];
    if (p->is_bare) continue;
    marker_add(&r->in_content, p->part[0].text, (size_t)p->part[0].n, ACT_CALL);
    marker_add(&r->in_reason, p->part[0].text, (size_t)p->part[0].n, ACT_CALL);
  }
  if (reason) {
    marker_add(&r->in_content, reason->open, strlen(reason->open), ACT_OPEN);
    marker_add(&r->in_content, reason->close, strlen(reason->close), ACT_CLOSE);
    marker_add(&r->in_reason, reason->close, strlen(reason->close), ACT_CLOSE);
  }
  for (int i = 0; reason && i < REPLY_MAX_NOISE && reason->noise[i]; i++) marker_add(&r->in_content, reason->noise[i], strlen(reason->noise[i]), ACT_NOISE);
  for (int i = 0; r->n_patterns && i < REPLY_MAX_NOISE && r->syntax->noise[i]; i++) {
    marker_add(&r->in_content, r->syntax->noise[i], strlen(r->syntax->noise[i]), ACT_NOISE);
    marker_add(&r->in_reason, r->syntax->noise[i], strlen(r->syntax->noise[i]), ACT_NOISE);
  }
  for (int i = 0; i < r->n_patterns; i++) { /* closing ones that nothing opened */
    const ToolPart *last = tool_pattern_closing(&r->pattern[i]);
    if (!last || *last->text != '<' || last->text[last->n - 1] != '>') continue;
    marker_add(&r->in_content, last->text, (size_t)last->n, ACT_STRAY);
    marker_add(&r->in_reason, last->text, (size_t)last->n, ACT_STRAY);
  }
}

TextReply *text_reply_new(const TextSyntax *s, const TextReason *reason, const TextReplyOptions *o) {
  TextReply *r = calloc(1, sizeof *r);
  CHECK(r, "no memory for a reply");
  r->syntax = s;
  r->reason = reason;
  r->o = *o;
  if (!r->o.max_held) r->o.max_held = (size_t)4 << 20;
  r->set = (ToolSet){o->tools, o->keeps_unknown};
  for (int i = 0; json_array_size(o->tools) && i < REPLY_MAX_PATTERNS && s->pattern[i]; i++) {
    tool_pattern_compile(s->pattern[i], &r->pattern[i]);
    r->has_bare |= r->pattern[i].is_bare;
    r->n_patterns++;
  }
  markers_make(r);
  return r;
}

static void runs_end(TextReply *r) {
  for (int i = 0; i < r->n_patterns; i++) {
    tool_run_free(&r->run[i]);
    r->is_alive[i] = false;
  }
}

void text_reply_free(TextReply *r) {
  if (!r) return;
  runs_end(r);
  Str *all[] = {&r->held, &r->space, &r->raw, &r->again, &r->pending};
  for (size_t i = 0; i < COUNT_OF(all); i++) str_free(all[i]);
  free(r);
}

size_t text_reply_memory(const TextReply *r) {
  size_t n = sizeof *r + r->held.cap + r->space.cap + r->raw.cap + r->again.cap + r->pending.cap;
  for (int i = 0; i < r->n_patterns; i++) n += tool_run_memory(&r->run[i]);
  return n;
}

/* ---- events ---- */

static void tell(TextReply *r, const TextEvent *e) {
  if (r->on_event) r->on_event(r->ctx, e);
}

static void flush_pending(TextReply *r) {
  if (r->pending.n) tell(r, &(TextEvent){.kind = r->pending_kind, .index = r->n_calls, .text = r->pending.p, .n = r->pending.n});
  str_clear(&r->pending);
}

static void tell_text(TextReply *r, TextEventKind kind, const char *p, size_t n) {
  if (!n) return;
  if (r->pending_kind != kind) flush_pending(r);
  r->pending_kind = kind;
  str_add_n(&r->pending, p, n);
}

static void tell_begin(TextReply *r, const Str *name, const Str *id) {
  char made[10];
  flush_pending(r);
  const char *given = id->n ? id->p : NULL;
  if (!given) { /* nine letters and digits: the form that the strictest templates want */
    uint64_t x = hash_bytes(&r->n_calls, sizeof r->n_calls, r->o.id_seed);
    for (int i = 0; i < 9; i++, x /= 36) made[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[x % 36];
    made[9] = 0;
  }
  tell(r, &(TextEvent){.kind = TEXT_EVENT_CALL_BEGIN, .index = r->n_calls, .id = given ? given : made, .name = name->p});
}

static void tell_end(TextReply *r, bool is_broken) {
  flush_pending(r);
  tell(r, &(TextEvent){.kind = TEXT_EVENT_CALL_END, .index = r->n_calls, .is_broken = is_broken});
  r->n_calls++;
  r->was_told = false;
  r->n_args_told = 0;
}

/* ---- content and reasoning ---- */

static TextEventKind kind_of(Mode m) { return m == MODE_REASON ? TEXT_EVENT_REASONING : TEXT_EVENT_CONTENT; }

static void put_text(TextReply *r, const char *p, size_t n) {
  const Markers *m = r->mode == MODE_REASON ? &r->in_reason : &r->in_content;
  for (size_t i = 0; i < n; i++) {
    if (is_space((uint8_t)p[i]) && (m->n || r->has_bare || r->drops_space) && r->space.n < MAX_SPACE) {
      str_add_c(&r->space, p[i]);
      continue;
    }
    if (!r->drops_space) tell_text(r, kind_of(r->mode), r->space.p, r->space.n);
    str_clear(&r->space);
    r->drops_space = false;
    if (r->mode == MODE_CONTENT) r->has_begun = true;
    tell_text(r, kind_of(r->mode), p + i, 1);
  }
}

/* White space before and behind is beside a marker. */
static void forget_space(TextReply *r) {
  str_clear(&r->space);
  r->drops_space = true;
}

static void enter_call(TextReply *r, bool is_bare, const char *opening, size_t n) {
  r->outer = r->mode;
  r->mode = MODE_CALL;
  r->only = -1;
  r->n_opening = (int)n;
  r->was_told = false;
  r->n_args_told = 0;
  str_clear(&r->raw);
  str_add_n(&r->raw, opening, n);
  for (int i = 0; i < r->n_patterns; i++) {
    const ToolPattern *p = &r->pattern[i];
    r->is_alive[i] = p->is_bare == is_bare && (is_bare || ((size_t)p->part[0].n == n && !memcmp(p->part[0].text, opening, n)));
    if (!r->is_alive[i]) continue;
    tool_run_init(&r->run[i], p, &r->set);
    if (!is_bare) r->run[i].at = 0, r->run[i].n_lit = (int)n - 1;
  }
}

static void step_call(TextReply *r, uint8_t c);

static void act(TextReply *r, const Marker *m) {
  bool is_content = r->mode == MODE_CONTENT;
  switch (m->act) {
    case ACT_NOISE:
      if (!r->has_begun || !is_content) forget_space(r);
      return;
    case ACT_STRAY: /* beside a call or in front of everything it is no text */
      if (is_content ? r->has_begun : !r->drops_space) break;
      forget_space(r);
      return;
    case ACT_OPEN:
      if (r->reason->where == REASON_FIRST && r->has_begun && !r->is_prefix) break;
      forget_space(r);
      r->mode = MODE_REASON;
      return;
    case ACT_CLOSE: /* in content: of a block that the template or nobody opened */
      if (is_content && r->has_begun && r->reason->where == REASON_FIRST) break;
      if (is_content && r->has_begun) return;
      forget_space(r);
      r->mode = MODE_CONTENT;
      r->has_begun = false;
      return;
    case ACT_CALL:
      if (r->n_calls == MAX_CALLS) break;
      enter_call(r, false, m->text, m->n);
      r->raw.n--; /* the opening's last byte is what the runs are given first */
      step_call(r, (uint8_t)m->text[m->n - 1]);
      return;
  }
  put_text(r, m->text, m->n);
}

/* The text in held up to where it may still be a marker, or the marker. */
static void step_text(TextReply *r, uint8_t c) {
  const Markers *m = r->mode == MODE_REASON ? &r->in_reason : &r->in_content;
  if (!r->held.n && !m->first[c]) {
    put_text(r, (const char *)&c, 1);
    return;
  }
  str_add_c(&r->held, (char)c);
  while (r->held.n) {
    bool is_prefix = false;
    for (int i = 0; i < m->n; i++) {
      if (m->m[i].n < r->held.n || memcmp(m->m[i].text, r->held.p, r->held.n)) continue;
      if (m->m[i].n == r->held.n) {
        str_clear(&r->held);
        act(r, &m->m[i]);
        return;
      }
      is_prefix = true;
    }
    if (is_prefix) return;
    char out = r->held.p[0];
    memmove(r->held.p, r->held.p + 1, r->held.n--);
    put_text(r, &out, 1);
  }
}

/* ---- calls ---- */

/* The last n bytes of what was stepped over are read again. */
static void read_again(TextReply *r, const char *p, size_t n) {
  r->n_again += n;
  if (r->again_at < r->again.n) {
    CHECK(n <= r->again_at, "what is read again was not read");
    r->again_at -= n;
    return;
  }
  str_clear(&r->again);
  str_add_n(&r->again, p, n);
  r->again_at = 0;
}

static void leave_call(TextReply *r) {
  runs_end(r);
  r->mode = r->outer;
}

/* It was no call: the opening is text, the rest is read again, unless that was done too often. */
static void fail_call(TextReply *r) {
  Str raw = r->raw;
  r->raw = (Str){0};
  if (r->was_told) tell_end(r, true);
  leave_call(r);
  size_t n = MIN((size_t)r->n_opening, raw.n);
  if (r->n_again > AGAIN_FACTOR * r->n_fed + AGAIN_FREE) n = raw.n;
  put_text(r, raw.p, n);
  read_again(r, raw.p + n, raw.n - n);
  str_free(&raw);
}

/* Eager: the call's beginning and its arguments as far as they came, once only one run is left. */
static void tell_coming(TextReply *r) {
  const Str *name, *id;
  const char *args;
  size_t n;
  int n_alive = 0, one = 0;
  for (int i = 0; i < r->n_patterns; i++)
    if (r->is_alive[i]) n_alive++, one = i;
  if (n_alive != 1 || !tool_run_coming(&r->run[one], &name, &id, &args, &n)) return;
  if (!r->was_told) {
    if (!n) return; /* an id may still come behind the name */
    tell_begin(r, name, id);
  }
  r->was_told = true;
  if (n > r->n_args_told) tell_text(r, TEXT_EVENT_CALL_ARGS, args + r->n_args_told, n - r->n_args_told);
  r->n_args_told = MAX(r->n_args_told, n);
}

static void take_call(TextReply *r, ToolRun *run) {
  ToolCall view;
  const ToolCall *c = tool_run_call(run, &view);
  size_t told = r->was_told ? r->n_args_told : 0;
  forget_space(r);
  if (!r->was_told) tell_begin(r, &c->name, &c->id);
  if (c->args.n > told) tell_text(r, TEXT_EVENT_CALL_ARGS, c->args.p + told, c->args.n - told);
  else if (!c->args.n) tell_text(r, TEXT_EVENT_CALL_ARGS, "{}", 2);
  tell_end(r, false);
  r->n_opening = 0;
  str_clear(&r->raw);
  if (r->outer == MODE_CONTENT) r->has_begun = false;
}

/* The pattern is at its end; the last n_untaken bytes of raw are not its. */
static void finish_call(TextReply *r, size_t n_untaken) {
  Str raw = r->raw;
  r->raw = (Str){0};
  leave_call(r);
  r->drops_space = true;
  size_t n = MIN(n_untaken, raw.n);
  if (n) read_again(r, raw.p + raw.n - n, n);
  str_free(&raw);
}

static void step_call(TextReply *r, uint8_t c) {
  int n_alive = 0;
  str_add_c(&r->raw, (char)c);
  for (int i = 0; i < r->n_patterns; i++) {
    if (!r->is_alive[i]) continue;
    size_t n_untaken = 0;
    bool was_certain = r->run[i].is_certain;
    ToolState s = tool_run_step(&r->run[i], c, &n_untaken);
    if (r->run[i].has_call && r->only < 0) {
      r->only = i;
      for (int k = 0; k < r->n_patterns; k++) r->is_alive[k] = k == i;
    }
    if (r->run[i].has_call) take_call(r, &r->run[i]);
    if (r->run[i].is_certain && !was_certain) str_clear(&r->raw);
    if (s == TOOL_FINISHED) {
      finish_call(r, n_untaken);
      return;
    }
    if (s == TOOL_FAILED) r->is_alive[i] = false;
    n_alive += r->is_alive[i];
  }
  if (!n_alive || r->raw.n > r->o.max_held || r->n_calls >= MAX_CALLS) fail_call(r);
  else if (r->o.is_eager && !r->is_prefix) tell_coming(r);
}

/* ---- feeding ---- */

static void step(TextReply *r, uint8_t c) {
  if (r->mode == MODE_CALL) {
    step_call(r, c);
    return;
  }
  bool may_be_bare = r->has_bare && r->mode == MODE_CONTENT && !r->has_begun && !r->held.n && (c == '{' || c == '[') && r->n_calls < MAX_CALLS;
  if (!may_be_bare) {
    step_text(r, c);
    return;
  }
  enter_call(r, true, "", 0);
  r->n_opening = 1;
  step_call(r, c);
}

static void step_all(TextReply *r, uint8_t c) {
  step(r, c);
  while (r->again_at < r->again.n) step(r, (uint8_t)r->again.p[r->again_at++]);
  if (r->again.cap > 65536) str_free(&r->again);
  else str_clear(&r->again);
  r->again_at = 0;
}

static void feed_char(TextReply *r, const char *p, int n, bool is_broken) {
  if (is_broken) p = "\xEF\xBF\xBD", n = 3;
  for (int i = 0; i < n; i++) step_all(r, (uint8_t)p[i]);
}

/* Whole characters go on, the beginning of one is kept. */
static void feed(TextReply *r, const char *p, size_t n) {
  for (size_t i = 0; i < n; i++) {
    r->n_fed++; /* byte by byte: what is given up must not depend on cuts */
    if (!r->n_part && (uint8_t)p[i] < 0x80) {
      step_all(r, (uint8_t)p[i]);
      continue;
    }
    r->part[r->n_part++] = (uint8_t)p[i];
    while (r->n_part) {
      bool complete;
      int32_t cp;
      int k = text_utf8_seq_len((const char *)r->part, (size_t)r->n_part, &complete);
      if (!complete) break;
      text_utf8_next((const char *)r->part, (const char *)r->part + r->n_part, &cp);
      feed_char(r, (const char *)r->part, k, cp < 0);
      memmove(r->part, r->part + k, (size_t)(r->n_part - k));
      r->n_part -= k;
    }
  }
}

void text_reply_prefix(TextReply *r, const char *text, size_t n) {
  r->on_event = NULL;
  r->is_prefix = true;
  feed(r, text, n);
  r->is_prefix = r->has_begun = false; /* a header is no content */
  str_clear(&r->pending);
  str_clear(&r->held);
  str_clear(&r->space);
}

void text_reply_prompt(TextReply *r, const char *prompt, size_t n) {
  if (!r->reason || r->o.keeps_reasoning) return;
  size_t k = strlen(r->reason->open);
  while (n && is_space((uint8_t)prompt[n - 1])) n--;
  while (k && is_space((uint8_t)r->reason->open[k - 1])) k--;
  if (n < k || memcmp(prompt + n - k, r->reason->open, k)) return;
  r->mode = MODE_REASON;
  r->drops_space = true;
}

void text_reply_feed(TextReply *r, const char *bytes, size_t n, TextOnEvent *on_event, void *ctx) {
  r->on_event = on_event;
  r->ctx = ctx;
  feed(r, bytes, n);
  flush_pending(r);
}

/* The text ended inside a marker that stands behind a call and would have been passed over when whole: there is nothing of it to tell. */
static bool is_cut_noise(const TextReply *r) {
  const Markers *m = r->mode == MODE_REASON ? &r->in_reason : &r->in_content;
  const ToolRun *run = r->mode == MODE_CALL && r->only >= 0 && r->run[r->only].is_certain && r->run[r->only].at >= 0 ? &r->run[r->only] : NULL;
  if (run) { /* what closes the call, torn inside a character */
    const ToolPart *p = &run->pattern->part[run->at];
    return p->kind == TOOL_LITERAL && p->n >= run->n_lit + r->n_part && !memcmp(p->text + run->n_lit, r->part, (size_t)r->n_part);
  }
  if (!r->n_calls || !r->drops_space || r->mode == MODE_CALL || !r->held.n) return false;
  for (int i = 0; i < m->n; i++) {
    bool passes = m->m[i].act == ACT_NOISE || m->m[i].act == ACT_STRAY;
    size_t n = r->held.n + (size_t)r->n_part;
    if (passes && m->m[i].n >= n && !memcmp(m->m[i].text, r->held.p, r->held.n) && !memcmp(m->m[i].text + r->held.n, r->part, (size_t)r->n_part)) return true;
  }
  return false;
}

void text_reply_end(TextReply *r, TextOnEvent *on_event, void *ctx) {
  r->on_event = on_event;
  r->ctx = ctx;
  if (is_cut_noise(r)) {
    str_clear(&r->held);
    r->n_part = 0;
  }
  if (r->n_part) feed_char(r, NULL, 0, true);
  r->n_part = 0;
  while (r->mode == MODE_CALL) { /* what is read again may begin a call again; each time it is shorter */
    bool is_whole = false; /* what is left is the beginning of what closes a call, or of its list */
    for (int i = 0; i < r->n_patterns && !is_whole; i++) {
      if (!r->is_alive[i]) continue;
      is_whole = r->run[i].is_certain || (r->only == i && tool_run_is_between(&r->run[i]));
      if (is_whole || !tool_run_end(&r->run[i])) continue;
      take_call(r, &r->run[i]);
      is_whole = true;
    }
    if (is_whole) finish_call(r, 0);
    else fail_call(r);
    while (r->again_at < r->again.n) step(r, (uint8_t)r->again.p[r->again_at++]);
  }
  Str held = r->held;
  r->held = (Str){0};
  put_text(r, held.p, held.n);
  str_free(&held);
  if (!r->drops_space) tell_text(r, kind_of(r->mode), r->space.p, r->space.n);
  str_clear(&r->space);
  flush_pending(r);
}

bool text_reply_is_reasoning(const TextReply *r) { return r->mode == MODE_REASON; }
int text_reply_n_calls(const TextReply *r) { return r->n_calls; }

const char *text_reply_call(const TextReply *r, size_t *n) {
  *n = r->raw.n;
  return r->mode == MODE_CALL && r->raw.n ? r->raw.p : NULL;
}

bool text_reply_has_marker(const TextReply *r, const char *spelling, size_t n) {
  const Markers *all[] = {&r->in_content, &r->in_reason};
  if (!n) return false;
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < all[k]->n; i++)
      if (memmem(all[k]->m[i].text, all[k]->m[i].n, spelling, n)) return true;
  for (int i = 0; i < r->n_patterns; i++)
    for (int j = 0; j < r->pattern[i].n_parts; j++) {
      const ToolPart *p = &r->pattern[i].part[j];
      if (p->kind == TOOL_LITERAL && memmem(p->text, (size_t)p->n, spelling, n)) return true;
      if (p->kind == TOOL_OBJECT && p->what == 'g' && n == 5 && !memcmp(spelling, "<|\"|>", 5)) return true;
    }
  return false;
}

bool text_reply_goes_on(const TextReply *r, const char *spelling, size_t n) {
  return n && r->reason && text_reply_is_reasoning(r) && memmem(r->reason->close, strlen(r->reason->close), spelling, n);
}
