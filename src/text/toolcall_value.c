/* One value, byte by byte: a pushdown machine over JSON and two relatives (Python literals; braces with marked strings). In: bytes of valid
   UTF-8. Out: strict JSON, appended to out as soon as it is certain, so that what stands there is always the beginning of the final text.
   A word or number ends only at the byte behind it. Depth is bounded; memory is that of out and of one word. */
#include <string.h>
#include "text/priv.h"
#include "text/toolcall.h"

enum { EXPECT_VALUE, EXPECT_VALUE_OR_END, EXPECT_KEY, EXPECT_KEY_OR_END, EXPECT_COLON, EXPECT_NEXT };
enum { LEX_NONE, LEX_STRING, LEX_ESCAPE, LEX_HEX, LEX_NUMBER, LEX_WORD, LEX_BARE, LEX_MARK };
enum { NUM_SIGN, NUM_ZERO, NUM_INT, NUM_DOT, NUM_FRACTION, NUM_E, NUM_E_SIGN, NUM_E_INT };
enum { MAX_WORD = 8 };
static const char mark[] = "<|\"|>";

void tool_value_init(ToolValue *v, ToolDialect d, Str *out) {
  Str bare = v->bare;
  str_clear(&bare);
  *v = (ToolValue){.dialect = d, .out = out, .bare = bare, .expect = EXPECT_VALUE};
}

void tool_value_free(ToolValue *v) { str_free(&v->bare); }

static bool is_space(uint8_t c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }
static bool is_letter(uint8_t c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }

/* One byte of a string's value. */
static void put_byte(Str *out, uint8_t c) {
  static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
  const char *hit = c ? strchr(from, c) : NULL;
  if (hit) str_add_c(out, '\\'), str_add_c(out, to[hit - from]);
  else if (c < 32) str_addf(out, "\\u%04x", c);
  else str_add_c(out, (char)c);
}

void tool_string_add(Str *out, const char *p, size_t n) {
  str_add_c(out, '"');
  for (size_t i = 0; i < n; i++) put_byte(out, (uint8_t)p[i]);
  str_add_c(out, '"');
}

static void put_char(Str *out, uint32_t cp) {
  if (cp < 128) put_byte(out, (uint8_t)cp);
  else text_utf8_add(out, (int32_t)(cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000) ? 0xFFFD : cp));
}

/* A high surrogate whose low one did not come. */
static void lone_surrogate(ToolValue *v) {
  if (v->high) put_char(v->out, 0xFFFD);
  v->high = 0;
}

static void put_escaped_char(ToolValue *v, uint32_t cp) {
  bool is_low = cp >= 0xDC00 && cp < 0xE000;
  if (v->high && is_low) {
    put_char(v->out, 0x10000 + ((v->high - 0xD800) << 10) + (cp - 0xDC00));
    v->high = 0;
    return;
  }
  lone_surrogate(v);
  if (cp >= 0xD800 && cp < 0xDC00) v->high = cp;
  else put_char(v->out, cp);
}

/* A comma that waited for what it separates, and where that begins. */
static void begin_item(ToolValue *v) {
  if (v->has_comma) str_add(v->out, ", ");
  v->has_comma = false;
  v->item_at = v->out->n;
}

static ToolStep end_item(ToolValue *v) {
  v->lex = LEX_NONE;
  bool watched = v->watch && v->depth == v->watch;
  if (v->is_key) {
    v->is_key = false;
    v->key_ended = watched;
    v->expect = EXPECT_COLON;
    return TOOL_MORE;
  }
  if (watched) v->item_ended = true, v->watch_end = v->out->n;
  v->expect = EXPECT_NEXT;
  return v->depth ? TOOL_MORE : TOOL_DONE;
}

static ToolStep end_string(ToolValue *v) {
  lone_surrogate(v);
  str_add_c(v->out, '"');
  return end_item(v);
}

static void begin_string(ToolValue *v, uint8_t quote, uint8_t lex) {
  begin_item(v);
  str_add_c(v->out, '"');
  v->quote = quote;
  v->lex = lex;
}

static ToolStep push(ToolValue *v, char closer) {
  if (v->depth == TOOL_MAX_DEPTH) return TOOL_BAD;
  begin_item(v);
  v->closer[v->depth++] = closer;
  str_add_c(v->out, closer == '}' ? '{' : '[');
  v->expect = closer == '}' ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
  return TOOL_MORE;
}

static ToolStep pop(ToolValue *v, uint8_t c) {
  if (!v->depth || v->closer[v->depth - 1] != (char)c) return TOOL_BAD;
  v->has_comma = false;
  str_add_c(v->out, c == '}' ? '}' : ']');
  v->depth--;
  return end_item(v);
}

static ToolStep begin_bare(ToolValue *v, uint8_t c) {
  str_clear(&v->bare);
  str_add_c(&v->bare, (char)c);
  v->lex = LEX_BARE;
  return TOOL_MORE;
}

static ToolStep step_value(ToolValue *v, uint8_t c) {
  if (v->expect == EXPECT_VALUE_OR_END && v->depth && c == (uint8_t)v->closer[v->depth - 1]) return pop(v, c);
  if (c == '{') return push(v, '}');
  if (c == '[') return push(v, ']');
  if (c == '(' && v->dialect == TOOL_PYTHON) return push(v, ')');
  if (v->dialect == TOOL_BRACES && c == '<') {
    v->lex = LEX_MARK;
    v->n_mark = 1;
    return TOOL_MORE;
  }
  if (c == '"' || (c == '\'' && v->dialect == TOOL_PYTHON)) {
    begin_string(v, c, LEX_STRING);
    return TOOL_MORE;
  }
  if (v->dialect == TOOL_BRACES) return strchr("]},:>", c) ? TOOL_BAD : begin_bare(v, c);
  if (c == '-' || is_digit(c)) {
    begin_item(v);
    str_add_c(v->out, (char)c);
    v->lex = LEX_NUMBER;
    v->number = c == '-' ? NUM_SIGN : c == '0' ? NUM_ZERO : NUM_INT;
    return TOOL_MORE;
  }
  if (!is_letter(c)) return TOOL_BAD;
  str_clear(&v->bare);
  str_add_c(&v->bare, (char)c);
  v->lex = LEX_WORD;
  return TOOL_MORE;
}

static ToolStep step_key(ToolValue *v, uint8_t c) {
  if (c == '}' && v->expect == EXPECT_KEY_OR_END) return pop(v, c);
  v->is_key = true;
  if (c == '"' || (c == '\'' && v->dialect == TOOL_PYTHON)) {
    begin_string(v, c, LEX_STRING);
    return TOOL_MORE;
  }
  if (v->dialect != TOOL_BRACES) return TOOL_BAD;
  if (c == '<') {
    v->lex = LEX_MARK;
    v->n_mark = 1;
    return TOOL_MORE;
  }
  return strchr("{}[],:>", c) ? TOOL_BAD : begin_bare(v, c);
}

static ToolStep step_between(ToolValue *v, uint8_t c) {
  if (is_space(c)) return TOOL_MORE;
  switch (v->expect) {
    case EXPECT_VALUE:
    case EXPECT_VALUE_OR_END: return step_value(v, c);
    case EXPECT_KEY:
    case EXPECT_KEY_OR_END: return step_key(v, c);
    case EXPECT_COLON:
      if (c != ':') return TOOL_BAD;
      str_add(v->out, ": ");
      if (v->depth == v->watch) v->value_at = v->out->n;
      v->expect = EXPECT_VALUE;
      return TOOL_MORE;
    default: break;
  }
  CHECK(v->depth, "a value went on behind its end");
  char closer = v->closer[v->depth - 1];
  if (c != ',') return pop(v, c);
  bool may_end = v->dialect != TOOL_JSON;
  v->has_comma = true;
  v->expect = closer == '}' ? (may_end ? EXPECT_KEY_OR_END : EXPECT_KEY) : may_end ? EXPECT_VALUE_OR_END : EXPECT_VALUE;
  return TOOL_MORE;
}

static ToolStep step_string(ToolValue *v, uint8_t c) {
  if (v->dialect == TOOL_BRACES && !v->quote) { /* up to <|"|>; nothing is escaped */
    if (c == (uint8_t)mark[v->n_mark]) return ++v->n_mark == sizeof mark - 1 ? (v->n_mark = 0, end_string(v)) : TOOL_MORE;
    for (int i = 0; i < v->n_mark; i++) put_byte(v->out, (uint8_t)mark[i]);
    v->n_mark = c == '<';
    if (!v->n_mark) put_byte(v->out, c);
    return TOOL_MORE;
  }
  if (c == v->quote) return end_string(v);
  if (c == '\\') {
    v->lex = LEX_ESCAPE;
    return TOOL_MORE;
  }
  lone_surrogate(v);
  put_byte(v->out, c);
  return TOOL_MORE;
}

static ToolStep step_escape(ToolValue *v, uint8_t c) {
  static const char from[] = "\"\\/'bfnrtav0", to[] = "\"\\/'\b\f\n\r\t\a\v\0";
  bool python = v->dialect == TOOL_PYTHON;
  v->lex = LEX_STRING;
  int n_hex = c == 'u' ? 4 : python && c == 'x' ? 2 : python && c == 'U' ? 8 : 0;
  if (n_hex) {
    v->lex = LEX_HEX;
    v->n_hex = 0;
    v->n_hex_all = (uint8_t)n_hex;
    v->hex = 0;
    return TOOL_MORE;
  }
  lone_surrogate(v);
  if (python && c == '\n') return TOOL_MORE; /* a line that goes on */
  const char *hit = c ? strchr(from, c) : NULL;
  if (hit && (python || hit - from < 9)) put_byte(v->out, (uint8_t)to[hit - from]);
  else put_byte(v->out, '\\'), put_byte(v->out, c); /* what patterns and paths forget to escape */
  return TOOL_MORE;
}

static ToolStep step_hex(ToolValue *v, uint8_t c) {
  int d = text_digit(c);
  if (d >= 16) return TOOL_BAD;
  v->hex = v->hex << 4 | (uint32_t)d;
  if (++v->n_hex < v->n_hex_all) return TOOL_MORE;
  v->lex = LEX_STRING;
  put_escaped_char(v, v->hex);
  return TOOL_MORE;
}

/* Takes a byte of a number; false: it does not belong to it. */
static bool number_takes(uint8_t *state, uint8_t c) {
  bool digit = is_digit(c), e = c == 'e' || c == 'E', sign = c == '-' || c == '+';
  switch (*state) {
    case NUM_SIGN: if (digit) { *state = c == '0' ? NUM_ZERO : NUM_INT; return true; } return false;
    case NUM_ZERO: if (c == '.') { *state = NUM_DOT; return true; } if (e) { *state = NUM_E; return true; } return false;
    case NUM_INT: if (c == '.') { *state = NUM_DOT; return true; } if (e) { *state = NUM_E; return true; } return digit;
    case NUM_DOT: if (digit) { *state = NUM_FRACTION; return true; } return false;
    case NUM_FRACTION: if (e) { *state = NUM_E; return true; } return digit;
    case NUM_E: if (digit || sign) { *state = digit ? NUM_E_INT : NUM_E_SIGN; return true; } return false;
    case NUM_E_SIGN: if (digit) { *state = NUM_E_INT; return true; } return false;
    default: return digit;
  }
}

static bool number_may_end(uint8_t state) { return state == NUM_ZERO || state == NUM_INT || state == NUM_FRACTION || state == NUM_E_INT; }

/* JSON's word for one of a dialect's; NULL: none. */
static const char *word_of(const Str *s) {
  static const char *const words[][2] = {{"true", "true"}, {"false", "false"}, {"null", "null"}, {"True", "true"}, {"False", "false"}, {"None", "null"}};
  for (size_t i = 0; i < COUNT_OF(words); i++)
    if (s->n == strlen(words[i][0]) && !memcmp(s->p, words[i][0], s->n)) return words[i][1];
  return NULL;
}

/* The value ended before c. */
static ToolStep end_before(ToolValue *v, uint8_t c) {
  return end_item(v) == TOOL_DONE ? TOOL_DONE_BEFORE : step_between(v, c);
}

static ToolStep step_word(ToolValue *v, uint8_t c) {
  if (is_letter(c) || is_digit(c) || c == '_') {
    str_add_c(&v->bare, (char)c);
    return v->bare.n > MAX_WORD ? TOOL_BAD : TOOL_MORE;
  }
  const char *word = word_of(&v->bare);
  if (!word) return TOOL_BAD;
  begin_item(v);
  str_add(v->out, word);
  return end_before(v, c);
}

/* A text without quotes: a number, a word, else a string. */
static void put_bare(ToolValue *v) {
  Str *s = &v->bare;
  while (s->n && is_space((uint8_t)s->p[s->n - 1])) s->n--;
  uint8_t state = s->p[0] == '-' ? NUM_SIGN : s->p[0] == '0' ? NUM_ZERO : NUM_INT;
  bool number = !v->is_key && s->n && (s->p[0] == '-' || is_digit((uint8_t)s->p[0]));
  for (size_t i = 1; number && i < s->n; i++) number = number_takes(&state, (uint8_t)s->p[i]);
  const char *word = v->is_key ? NULL : word_of(s);
  begin_item(v);
  if (number && number_may_end(state)) str_add_n(v->out, s->p, s->n);
  else if (word) str_add(v->out, word);
  else tool_string_add(v->out, s->p, s->n);
}

static ToolStep step_bare(ToolValue *v, uint8_t c) {
  bool ends = v->is_key ? c == ':' : c == ',' || c == '}' || c == ']';
  if (!ends) {
    if (v->is_key && strchr("{}[],", c)) return TOOL_BAD;
    str_add_c(&v->bare, (char)c);
    return TOOL_MORE;
  }
  put_bare(v);
  return end_before(v, c);
}

/* The bytes of <|"|> that opens a string. */
static ToolStep step_mark(ToolValue *v, uint8_t c) {
  if (c != (uint8_t)mark[v->n_mark]) return TOOL_BAD;
  if (++v->n_mark < sizeof mark - 1) return TOOL_MORE;
  v->n_mark = 0;
  begin_string(v, 0, LEX_STRING);
  return TOOL_MORE;
}

ToolStep tool_value_step(ToolValue *v, uint8_t c) {
  v->key_ended = v->item_ended = false;
  switch (v->lex) {
    case LEX_STRING: return step_string(v, c);
    case LEX_ESCAPE: return step_escape(v, c);
    case LEX_HEX: return step_hex(v, c);
    case LEX_WORD: return step_word(v, c);
    case LEX_BARE: return step_bare(v, c);
    case LEX_MARK: return step_mark(v, c);
    case LEX_NUMBER:
      if (number_takes(&v->number, c)) {
        str_add_c(v->out, (char)c);
        return TOOL_MORE;
      }
      return number_may_end(v->number) && !is_digit(c) ? end_before(v, c) : TOOL_BAD;
    default: return step_between(v, c);
  }
}

char tool_value_of_text(ToolDialect d, const char *p, size_t n, Str *out) {
  ToolValue v = {0};
  size_t n_before = out->n, i = 0;
  ToolStep s = TOOL_MORE;
  tool_value_init(&v, d, out);
  while (i < n && s == TOOL_MORE) s = tool_value_step(&v, (uint8_t)p[i++]);
  if (s == TOOL_DONE_BEFORE) i--;
  if (s == TOOL_MORE && !v.depth) { /* a number or a word that ends with the text */
    s = tool_value_step(&v, ' ');
    if (s == TOOL_DONE_BEFORE) s = TOOL_DONE;
  }
  while (i < n && is_space((uint8_t)p[i])) i++;
  bool ok = (s == TOOL_DONE || s == TOOL_DONE_BEFORE) && i == n;
  if (!ok && out->p) out->n = n_before, out->p[n_before] = 0;
  tool_value_free(&v);
  return ok ? out->p[n_before] : 0;
}
