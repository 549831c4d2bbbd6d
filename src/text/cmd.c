/* Bodies of `lumen tokenize`, `lumen detokenize` and `lumen render`: parsed options and streams in, text out.
   Standard output carries the answer only; everything that goes wrong comes back as an Err. */
#include <errno.h>
#include <string.h>
#include "text/priv.h"

enum { MAX_INPUT = 1 << 30, MAX_SHOWN = 40 };

static void print_ids(Str *out, const TextIds *ids, bool json) {
  if (json) str_add_c(out, '[');
  for (size_t i = 0; i < ids->n; i++) str_addf(out, i ? (json ? ", %d" : " %d") : "%d", ids->p[i]);
  str_add(out, json ? "]\n" : "\n");
}

Err *text_write_out(const Str *s, FILE *out) {
  bool ok = (!s->n || fwrite(s->p, 1, s->n, out) == s->n) && !fflush(out);
  return ok ? NULL : err_new(ERR_IO, "standard output: cannot be written: %s", strerror(errno));
}

/* Lines before a bad one are good: they are written, and then the error is told. */
static Err *write_done(Str *s, FILE *out, Err *e) {
  Err *failed = text_write_out(s, out);
  str_free(s);
  if (!e) return failed;
  err_free(failed);
  return e;
}

static Err *open_vocab(const TextTokenizeOptions *o, const TextVocab **use, TextVocab **own) {
  *own = NULL;
  *use = o->vocab;
  if (*use) return NULL;
  if (!o->tokenizer) return err_new(ERR_USAGE, "no tokenizer given");
  TRY(text_vocab_open(o->tokenizer, own));
  *use = *own;
  return NULL;
}

/* One line at a time from a text in memory; a NUL is a byte like any other. */
static bool line_of(const Str *s, size_t *at, const char **p, size_t *n) {
  if (*at >= s->n) return false;
  const char *nl = memchr(s->p + *at, '\n', s->n - *at);
  *p = s->p + *at;
  *n = nl ? (size_t)(nl - *p) : s->n - *at;
  *at += *n + 1;
  return true;
}

static bool is_blank(const char *p, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (p[i] != ' ' && p[i] != '\t' && p[i] != '\r') return false;
  return true;
}

static unsigned tokenize_flags(const TextTokenizeOptions *o) {
  return (o->special ? TEXT_ADD_SPECIAL : 0) | (o->split_special ? TEXT_SPLIT_SPECIAL : 0) | (o->plain ? TEXT_PLAIN : 0) | (o->skip_special ? TEXT_SKIP_SPECIAL : 0);
}

static Err *tokenize_line(const TextVocab *v, unsigned flags, const char *p, size_t n, int line, Str *out) {
  Arena *a = arena_new("line");
  Val text;
  TextIds ids = {0};
  Err *e = is_blank(p, n) ? err_new(ERR_FORMAT, "is blank, expected a JSON string: an empty text is \"\"") : text_json_parse(a, p, n, &text);
  if (!e && text.kind != V_STR) e = err_new(ERR_FORMAT, "expected a JSON string, got %s", val_type_name(text));
  if (!e) e = text_tokenize(v, text.u.s->p, text.u.s->n, flags, &ids);
  if (!e) print_ids(out, &ids, true);
  text_ids_free(&ids);
  arena_free(a);
  return err_wrap(e, "line %d", line);
}

static double processor_ms(void) { return (double)os_process_cpu_ns() * 1e-6; }

/* Figures a line each: what bench/tokenize reads. */
static Err *time_text(const TextVocab *v, const TextTokenizeOptions *o, const Str *in, double load_ms, Str *out) {
  double first = 0, best = 0;
  TextIds ids = {0};
  for (int i = 0; i < o->times; i++) {
    double t = processor_ms();
    ids.n = 0;
    Err *e = text_tokenize(v, in->p ? in->p : "", in->n, tokenize_flags(o), &ids);
    if (e) { text_ids_free(&ids); return e; }
    t = processor_ms() - t;
    if (!i) first = best = t;
    best = MIN(best, t);
  }
  str_addf(out, "load_ms %.3f\nbytes %zu\nids %zu\nfirst_ms %.4f\nbest_ms %.4f\n", load_ms, in->n, ids.n, first, best);
  text_ids_free(&ids);
  return NULL;
}

Err *text_cmd_tokenize(const TextTokenizeOptions *o, FILE *in, FILE *out) {
  Str input = {0}, result = {0};
  const TextVocab *v;
  TextVocab *own;
  const char *p;
  size_t at = 0, n;
  TextIds ids = {0};
  double before = processor_ms();
  TRY(open_vocab(o, &v, &own));
  double load_ms = own ? processor_ms() - before : o->load_ms;
  Err *e = err_wrap(os_read_all(in, MAX_INPUT, &input), "standard input"); /* an operand is always read */
  if (!e && o->times > 0) {
    e = time_text(v, o, &input, load_ms, &result);
  } else if (!e && o->lines) {
    for (int line = 1; !e && line_of(&input, &at, &p, &n); line++) e = tokenize_line(v, tokenize_flags(o), p, n, line, &result);
  } else if (!e) {
    e = text_tokenize(v, input.p ? input.p : "", input.n, tokenize_flags(o), &ids);
    if (!e) print_ids(&result, &ids, o->json);
  }
  e = write_done(&result, out, e);
  str_free(&input);
  text_ids_free(&ids);
  text_vocab_free(own);
  return e;
}

/* Whether a line is a JSON array of whole numbers and nothing else: a program wrote it, and where it is broken ids are missing. */
static Err *array_check(const char *p, size_t n) {
  char want = '['; /* '1': a number or the end; '0': a number; ',': a comma or the end */
  for (size_t i = 0; i < n; i++) {
    if (strchr(" \t\r", p[i]) && p[i]) continue;
    if (want == '[' && p[i] == '[') want = '1';
    else if ((want == '0' || want == '1') && p[i] >= '0' && p[i] <= '9') {
      while (i + 1 < n && p[i + 1] >= '0' && p[i + 1] <= '9') i++;
      want = ',';
    } else if (want == ',' && p[i] == ',') want = '0';
    else if ((want == ',' || want == '1') && p[i] == ']') want = 'e';
    else return err_new(ERR_FORMAT, "byte %zu is 0x%02x, expected an array of token ids: [1, 2, 3]", i, (unsigned char)p[i]);
  }
  return want == 'e' ? NULL : err_new(ERR_FORMAT, want == '[' ? "is blank, expected an array of token ids: no ids are []" : "ends inside an array of token ids, expected ']'");
}

/* Numbers wherever they stand: brackets, commas and spaces only separate. */
static Err *read_ids(const TextVocab *v, const char *p, size_t n, TextIds *ids) {
  for (size_t i = 0; i < n;) {
    if (p[i] < '0' || p[i] > '9') {
      if (!strchr("[], \t\r\n", p[i]) || !p[i]) return err_new(ERR_FORMAT, "byte %zu is 0x%02x, expected token ids in digits", i, (unsigned char)p[i]);
      i++;
      continue;
    }
    size_t start = i;
    int64_t id = 0;
    for (; i < n && p[i] >= '0' && p[i] <= '9'; i++) if (id <= INT32_MAX) id = id * 10 + (p[i] - '0');
    if (id >= v->n_tokens) return err_new(ERR_FORMAT, "id %.*s%s, expected 0 to %d", (int)MIN(i - start, (size_t)MAX_SHOWN), p + start, i - start > MAX_SHOWN ? ".." : "", v->n_tokens - 1);
    text_ids_add(ids, (int32_t)id);
  }
  return NULL;
}

static Err *detokenize_part(const TextVocab *v, const TextTokenizeOptions *o, const char *p, size_t n, bool json, Str *out) {
  TextIds ids = {0};
  Str text = {0};
  Err *e = o->lines ? array_check(p, n) : NULL;
  if (!e) e = read_ids(v, p, n, &ids);
  if (!e) {
    text_detokenize(v, ids.p, ids.n, o->skip_special ? TEXT_SKIP_SPECIAL : 0, &text);
    if (json) {
      Render r = {.arena = arena_new("line")};
      Val s = text_to_json(&r, val_str(r.arena, text.p ? text.p : "", text.n), false, val_none(), val_none(), false);
      if (s.kind == V_STR) { str_add_n(out, s.u.s->p, s.u.s->n); str_add_c(out, '\n'); }
      e = r.err;
      arena_free(r.arena);
    } else {
      str_add_n(out, text.p, text.n);
    }
  }
  text_ids_free(&ids);
  str_free(&text);
  return e;
}

Err *text_cmd_detokenize(const TextTokenizeOptions *o, FILE *in, FILE *out) {
  Str input = {0}, result = {0};
  const TextVocab *v;
  TextVocab *own;
  const char *p;
  size_t at = 0, n;
  TRY(open_vocab(o, &v, &own));
  Err *e = err_wrap(os_read_all(in, MAX_INPUT, &input), "standard input"); /* an operand is always read */
  if (!e && o->lines) {
    for (int line = 1; !e && line_of(&input, &at, &p, &n); line++) e = err_wrap(detokenize_part(v, o, p, n, true, &result), "line %d", line);
  } else if (!e) {
    e = detokenize_part(v, o, input.p ? input.p : "", input.n, o->json, &result);
  }
  e = write_done(&result, out, e);
  str_free(&input);
  text_vocab_free(own);
  return e;
}

Err *text_cmd_render(const TextRenderOptions *o, FILE *out) {
  const char *json_path = o->request_path ? o->request_path : o->context_path;
  if (!o->template_path || !json_path || (o->request_path && o->context_path)) return err_new(ERR_USAGE, "render needs a template and either a request or a context");
  Arena *a = arena_new("template");
  Str src = {0}, json = {0}, text = {0};
  TextTemplate *t = NULL;
  time_t seconds = time(NULL);
  struct tm now;
  localtime_r(&seconds, &now);
  Err *e = os_read_input(o->template_path, 64 << 20, &src);
  if (!e) e = os_read_input(json_path, MAX_INPUT, &json);
  if (!e) e = text_template_parse(a, src.p ? src.p : "", src.n, &t);
  if (!e) e = (o->request_path ? text_template_chat_text : text_template_render_text)(t, json.p ? json.p : "", json.n, &now, &text);
  if (!e) e = text_write_out(&text, out);
  str_free(&src);
  str_free(&json);
  str_free(&text);
  arena_free(a);
  return e;
}
