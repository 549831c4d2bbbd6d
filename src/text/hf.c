/* Vocabularies from tokenizer files: Hugging Face's tokenizer.json, SentencePiece's tokenizer.model, Mistral's tekken.json, tiktoken
   rank files; each may be gzipped, and a folder stands for the one it holds.
   In: a path; everything in the file is untrusted. Out: a TextVocab, or an Err that names the file and the field.
   A part we do not know is an error, never skipped: a half-understood tokenizer gives wrong ids silently. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "text/priv.h"

enum { MAX_FILE = 512 << 20, MAX_TOKENS = 1 << 23, MAX_MERGES = 1 << 25 };

static const char *str_of(Val *v) { return v && v->kind == V_STR ? v->u.s->p : NULL; }
static bool flag_of(Val dict, const char *key, bool otherwise) {
  Val *v = val_get(dict, key);
  return v && v->kind == V_BOOL ? v->u.b : otherwise;
}
static int64_t int_of(Val dict, const char *key, int64_t otherwise) {
  Val *v = val_get(dict, key);
  return v && v->kind == V_INT ? v->u.i : otherwise;
}

static Err *inflate_all(const uint8_t *p, size_t n, Str *out) {
  z_stream z = {.next_in = (Bytef *)(uintptr_t)p, .avail_in = (uInt)n};
  int rc = inflateInit2(&z, 15 + 32);
  char *buf = malloc(1 << 18);
  CHECK(rc == Z_OK && buf, "out of memory");
  do {
    z.next_out = (Bytef *)buf;
    z.avail_out = 1 << 18;
    rc = inflate(&z, Z_NO_FLUSH);
    if (rc == Z_OK || rc == Z_STREAM_END) str_add_n(out, buf, (1 << 18) - z.avail_out);
  } while (rc == Z_OK && out->n <= MAX_FILE);
  inflateEnd(&z);
  free(buf);
  return rc == Z_STREAM_END && out->n <= MAX_FILE ? NULL : err_new(ERR_FORMAT, "broken or too large gzip data");
}

/* A file's text: the file itself; what was inflated lies in own. */
static Err *open_text(const char *path, FileMap *map, Str *own, FileMap *text) {
  TRY(os_map_file(path, map));
  if (map->n_bytes > MAX_FILE) return err_new(ERR_LIMIT, "%s: more than %d bytes", path, MAX_FILE);
  *text = *map;
  if (text->n_bytes < 2 || text->p[0] != 0x1F || text->p[1] != 0x8B) return NULL;
  Str plain = {0};
  Err *e = err_wrap(inflate_all(text->p, text->n_bytes, &plain), "%s", path);
  str_free(own);
  *own = plain;
  *text = (FileMap){(const uint8_t *)own->p, own->n};
  return e;
}

/* tokenizer.json: normalizers and pre-tokenizers. */
typedef struct Steps { Step *p; int n, cap; } Steps;
typedef struct Entry { const char *p; size_t n; int64_t id; double score; } Entry; /* of model.vocab */
typedef struct Load { TextVocab *v; Arena *tmp; Steps norm, pre; int depth; const Entry *entry; int n_entries; } Load;

static const char *keep(Load *l, Val *s, size_t *n) {
  if (!s || s->kind != V_STR) { *n = 0; return ""; }
  *n = s->u.s->n;
  return arena_dup_n(l->v->arena, s->u.s->p, s->u.s->n);
}

static void add_step(Load *l, Steps *to, Step s) { PUSH(l->v->arena, to->p, to->n, to->cap, s); }

static Err *pattern_of(Load *l, Val obj, Step *s) {
  Val *p = val_get(obj, "pattern"), *re = p ? val_get(*p, "Regex") : NULL, *lit = p ? val_get(*p, "String") : NULL;
  if (p && p->kind == V_STR) lit = p;
  if (re && re->kind == V_STR) return text_regex_new(l->v, re->u.s->p, re->u.s->n, &s->re);
  if (!lit || lit->kind != V_STR) return err_new(ERR_FORMAT, "pattern: expected a Regex or a String");
  s->text = keep(l, lit, &s->n_text);
  return NULL;
}

static Err *regex_step(Load *l, Steps *to, const char *pattern, SplitMode mode, bool invert) {
  Step s = {.kind = STEP_SPLIT, .mode = mode, .invert = invert};
  TRY(text_regex_new(l->v, pattern, strlen(pattern), &s.re));
  add_step(l, to, s);
  return NULL;
}

static int base64_digit(char c) { return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : c >= '0' && c <= '9' ? c - '0' + 52 : c == '+' ? 62 : c == '/' ? 63 : -1; }

static bool base64(Arena *a, const char *p, size_t n, uint8_t **out, size_t *n_out) {
  uint8_t *b = arena_alloc(a, n / 4 * 3 + 4);
  size_t m = 0;
  uint32_t acc = 0;
  int bits = 0;
  while (n && p[n - 1] == '=') n--;
  for (size_t i = 0; i < n; i++) {
    int d = base64_digit(p[i]);
    if (d < 0) return false;
    acc = acc << 6 | (uint32_t)d;
    bits += 6;
    if (bits >= 8) b[m++] = (uint8_t)(acc >> (bits -= 8));
  }
  *out = b;
  *n_out = m;
  return true;
}

static Err *charsmap_step(Load *l, Val obj) {
  Val *m = val_get(obj, "precompiled_charsmap");
  uint8_t *b;
  size_t n;
  if (!m || m->kind != V_STR || !base64(l->v->arena, m->u.s->p, m->u.s->n, &b, &n)) return err_new(ERR_FORMAT, "precompiled_charsmap: expected base64 text");
  l->v->charsmap = b;
  l->v->n_charsmap = n;
  add_step(l, &l->norm, (Step){.kind = STEP_CHARSMAP});
  return NULL;
}

static Err *load_normalizer(Load *l, Val obj);
static Err *load_pre(Load *l, Val obj);

static Err *load_sequence(Load *l, Val obj, const char *key, Err *(*each)(Load *, Val)) {
  Val *list = val_get(obj, key);
  if (!list || list->kind != V_LIST || l->depth > 8) return err_new(ERR_FORMAT, "Sequence: expected a list '%s', not nested deep", key);
  l->depth++;
  for (int i = 0; i < list->u.l->n; i++) TRY(each(l, list->u.l->items[i]));
  l->depth--;
  return NULL;
}

static Err *replace_step(Load *l, Val obj) {
  Step s = {.kind = STEP_REPLACE};
  TRY(pattern_of(l, obj, &s));
  if (s.re) s.kind = STEP_REPLACE_REGEX;
  s.with = keep(l, val_get(obj, "content"), &s.n_with);
  add_step(l, &l->norm, s);
  return NULL;
}

static Err *bert_step(Load *l, Val obj) {
  bool lower = flag_of(obj, "lowercase", true);
  add_step(l, &l->norm, (Step){.kind = STEP_BERT, .clean = flag_of(obj, "clean_text", true), .han = flag_of(obj, "handle_chinese_chars", true),
                               .accents = flag_of(obj, "strip_accents", lower), .lower = lower});
  return NULL;
}

static Err *load_normalizer(Load *l, Val obj) {
  const char *type = str_of(val_get(obj, "type"));
  if (obj.kind == V_NONE) return NULL;
  if (!type) return err_new(ERR_FORMAT, "normalizer: no type");
  static const struct { const char *name; Step s; } plain[] = {
    {"NFC", {.kind = STEP_FORM, .mode = FORM_NFC}}, {"NFD", {.kind = STEP_FORM, .mode = FORM_NFD}}, {"NFKC", {.kind = STEP_FORM, .mode = FORM_NFKC}},
    {"NFKD", {.kind = STEP_FORM, .mode = FORM_NFKD}}, {"Lowercase", {.kind = STEP_LOWER}}, {"StripAccents", {.kind = STEP_STRIP_ACCENTS}}, {"Nmt", {.kind = STEP_NMT}}};
  for (size_t i = 0; i < COUNT_OF(plain); i++)
    if (!strcmp(type, plain[i].name)) { add_step(l, &l->norm, plain[i].s); return NULL; }
  if (!strcmp(type, "Sequence")) return load_sequence(l, obj, "normalizers", load_normalizer);
  if (!strcmp(type, "Precompiled")) return charsmap_step(l, obj);
  if (!strcmp(type, "Replace")) return replace_step(l, obj);
  if (!strcmp(type, "BertNormalizer")) return bert_step(l, obj);
  if (!strcmp(type, "Strip")) {
    add_step(l, &l->norm, (Step){.kind = STEP_STRIP, .left = flag_of(obj, "strip_left", true), .right = flag_of(obj, "strip_right", true)});
    return NULL;
  }
  if (!strcmp(type, "Prepend")) {
    Step s = {.kind = STEP_PREPEND};
    s.text = keep(l, val_get(obj, "prepend"), &s.n_text);
    add_step(l, &l->norm, s);
    return NULL;
  }
  return err_new(ERR_UNSUPPORTED, "normalizer '%s'", type);
}

static SplitMode split_mode(Val obj) {
  static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  const char *b = str_of(val_get(obj, "behavior"));
  for (int i = 0; b && i < (int)COUNT_OF(names); i++)
    if (!strcmp(b, names[i])) return (SplitMode)i;
  return SPLIT_ISOLATED;
}

static int prepend_mode(Val obj) {
  const char *s = str_of(val_get(obj, "prepend_scheme"));
  if (!s) return flag_of(obj, "add_prefix_space", true) ? PREPEND_ALWAYS : PREPEND_NEVER;
  return !strcmp(s, "always") ? PREPEND_ALWAYS : !strcmp(s, "first") ? PREPEND_FIRST : PREPEND_NEVER;
}

static Err *load_split(Load *l, Val obj) {
  Step s = {.kind = STEP_SPLIT, .mode = split_mode(obj), .invert = flag_of(obj, "invert", false)};
  TRY(pattern_of(l, obj, &s));
  add_step(l, &l->pre, s);
  return NULL;
}

static Err *load_metaspace(Load *l, Val obj) {
  Step s = {.kind = STEP_METASPACE, .mode = prepend_mode(obj), .left = flag_of(obj, "split", true)};
  s.text = keep(l, val_get(obj, "replacement"), &s.n_text);
  if (!s.n_text) return err_new(ERR_FORMAT, "Metaspace: no replacement");
  add_step(l, &l->pre, s);
  return NULL;
}

static Err *load_pre(Load *l, Val obj) {
  static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
  const Step spaces = {.kind = STEP_SPLIT, .mode = SPLIT_REMOVED, .scan = SCAN_SPACES}, punct = {.kind = STEP_SPLIT, .mode = SPLIT_ISOLATED, .scan = SCAN_PUNCT};
  const char *type = str_of(val_get(obj, "type"));
  if (obj.kind == V_NONE) return NULL;
  if (!type) return err_new(ERR_FORMAT, "pre_tokenizer: no type");
  if (!strcmp(type, "Sequence")) return load_sequence(l, obj, "pretokenizers", load_pre);
  if (!strcmp(type, "Split")) return load_split(l, obj);
  if (!strcmp(type, "Metaspace")) return load_metaspace(l, obj);
  if (!strcmp(type, "Whitespace")) return regex_step(l, &l->pre, "\\w+|[^\\w\\s]+", SPLIT_REMOVED, true);
  if (!strcmp(type, "Punctuation")) { add_step(l, &l->pre, punct); l->pre.p[l->pre.n - 1].mode = split_mode(obj); return NULL; }
  if (!strcmp(type, "Digits")) return regex_step(l, &l->pre, flag_of(obj, "individual_digits", false) ? "\\p{N}" : "\\p{N}+", SPLIT_ISOLATED, false);
  if (!strcmp(type, "WhitespaceSplit") || !strcmp(type, "BertPreTokenizer")) {
    add_step(l, &l->pre, spaces);
    if (type[0] == 'B') add_step(l, &l->pre, punct);
    return NULL;
  }
  if (!strcmp(type, "CharDelimiterSplit")) {
    Step s = {.kind = STEP_SPLIT, .mode = SPLIT_REMOVED};
    s.text = keep(l, val_get(obj, "delimiter"), &s.n_text);
    add_step(l, &l->pre, s);
    return NULL;
  }
  if (!strcmp(type, "ByteLevel")) {
    l->v->byte_level = true;
    if (flag_of(obj, "add_prefix_space", true)) add_step(l, &l->pre, (Step){.kind = STEP_PREFIX_SPACE});
    return flag_of(obj, "use_regex", true) ? regex_step(l, &l->pre, gpt2, SPLIT_ISOLATED, false) : NULL;
  }
  return err_new(ERR_UNSUPPORTED, "pre_tokenizer '%s'", type);
}

/* tokenizer.json: what stands around a text, and the way back. */
static Err *around_add(TextVocab *v, Val *ids, bool after) {
  if (!ids || ids->kind != V_LIST || ids->u.l->n > 16) return err_new(ERR_FORMAT, "post_processor: special token without ids");
  for (int i = 0; i < ids->u.l->n; i++) {
    Val x = ids->u.l->items[i];
    if (x.kind != V_INT || x.u.i < 0 || x.u.i >= v->n_tokens || v->n_prefix >= 16 || v->n_suffix >= 16) return err_new(ERR_FORMAT, "post_processor: bad special token id");
    if (after) v->suffix[v->n_suffix++] = (int32_t)x.u.i;
    else v->prefix[v->n_prefix++] = (int32_t)x.u.i;
  }
  return NULL;
}

static Err *post_template(TextVocab *v, Val obj) {
  Val *single = val_get(obj, "single"), *special = val_get(obj, "special_tokens");
  bool after = false;
  if (!single || single->kind != V_LIST) return err_new(ERR_FORMAT, "TemplateProcessing: no list 'single'");
  for (int i = 0; i < single->u.l->n; i++) {
    Val *tok = val_get(single->u.l->items[i], "SpecialToken"), *id = tok ? val_get(*tok, "id") : NULL;
    if (!tok) { after = true; continue; }
    Val *entry = id && special && special->kind == V_DICT ? val_find(special->u.d, *id) : NULL;
    if (!entry) return err_new(ERR_FORMAT, "TemplateProcessing: unknown special token");
    TRY(around_add(v, val_get(*entry, "ids"), after));
  }
  return NULL;
}

static Err *load_post(Load *l, Val obj) {
  const char *type = str_of(val_get(obj, "type"));
  if (obj.kind == V_NONE || (type && !strcmp(type, "ByteLevel"))) return NULL;
  if (!type) return err_new(ERR_FORMAT, "post_processor: no type");
  if (!strcmp(type, "Sequence")) return load_sequence(l, obj, "processors", load_post);
  if (!strcmp(type, "TemplateProcessing")) return post_template(l->v, obj);
  if (!strcmp(type, "RobertaProcessing") || !strcmp(type, "BertProcessing")) {
    static const char *const keys[] = {"cls", "sep"};
    for (int i = 0; i < 2; i++) {
      Val *pair = val_get(obj, keys[i]);
      if (!pair || pair->kind != V_LIST || pair->u.l->n != 2) return err_new(ERR_FORMAT, "%s: no pair '%s'", type, keys[i]);
      Val one = val_list(l->tmp, 1);
      val_push(l->tmp, one, pair->u.l->items[1]);
      TRY(around_add(l->v, &one, i == 1));
    }
    return NULL;
  }
  return err_new(ERR_UNSUPPORTED, "post_processor '%s'", type);
}

static Err *load_decoder(Load *l, Val obj) {
  TextVocab *v = l->v;
  const char *type = str_of(val_get(obj, "type"));
  if (obj.kind == V_NONE || !type) return NULL;
  if (!strcmp(type, "Sequence")) return load_sequence(l, obj, "decoders", load_decoder);
  if (!strcmp(type, "ByteLevel")) v->decode = DECODE_BYTES;
  else if (!strcmp(type, "Replace")) v->decode = DECODE_SPM;
  else if (!strcmp(type, "Strip")) v->strip_first = int_of(obj, "start", 0) > 0;
  else if (!strcmp(type, "Metaspace")) { v->decode = DECODE_METASPACE; v->strip_first = prepend_mode(obj) != PREPEND_NEVER; }
  else if (!strcmp(type, "WordPiece")) { v->decode = DECODE_WORDPIECE; v->cleanup = flag_of(obj, "cleanup", true); }
  else if (strcmp(type, "ByteFallback") && strcmp(type, "Fuse")) return err_new(ERR_UNSUPPORTED, "decoder '%s'", type);
  return NULL;
}

/* tokenizer.json: the model and the added tokens.
   p[n] and room[n], where the bytes of byte-level tokens go, live as long as v. */
static Err *set_token(TextVocab *v, int64_t id, const char *p, size_t n, double score, char *room) {
  if (id < 0 || id >= v->n_tokens) return err_new(ERR_FORMAT, "vocab: token with id %lld, expected 0 to %d", (long long)id, v->n_tokens - 1);
  Tok *t = &v->tok[id];
  *t = (Tok){.text = p, .n_text = (uint32_t)n, .score = score == score ? score : 0, .rank = (uint32_t)id, .type = TEXT_TOKEN_NORMAL, .in_model = true, .byte = -1};
  t->piece = t->text;
  t->n_piece = t->n_text;
  if (v->byte_level) {
    t->in_model = text_bytes_from_level(p, n, room, &t->n_piece);
    if (t->in_model) t->piece = room;
  }
  if (v->byte_fallback) t->byte = (int16_t)text_byte_spelled(t->text, t->n_text);
  if (t->byte >= 0) { t->type = TEXT_TOKEN_BYTE; t->in_model = false; }
  return NULL;
}

/* A decimal as the reference library reads it: its digits as one integer, as many as 64 bits hold, then one division by a power of ten. That may
   miss the nearest double by its last bit, which decides between ways to cut a text whose scores are the same numbers in another order. */
static double score_of(const char *p, const char *end, double nearest) {
  static const double ten[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  uint64_t digits = 0;
  int power = 0, e = 0;
  bool negative = p < end && *p == '-', is_fraction = false, is_full = false;
  for (p += negative; p < end && (*p == '.' || (*p >= '0' && *p <= '9')); p++) {
    uint64_t next;
    if (*p == '.') { is_fraction = true; continue; }
    is_full = is_full || __builtin_mul_overflow(digits, 10u, &next) || __builtin_add_overflow(next, (uint64_t)(*p - '0'), &next);
    if (is_full && !is_fraction) return nearest;
    if (is_full) continue;
    digits = next;
    power -= is_fraction;
  }
  if (p < end) { /* an exponent */
    bool below = p + 1 < end && p[1] == '-';
    for (p += p + 1 < end && (p[1] == '-' || p[1] == '+') ? 2 : 1; p < end && e < 1000; p++) e = 10 * e + (*p - '0');
    power += below ? -e : e;
  }
  if (power >= (int)COUNT_OF(ten) || -power >= (int)COUNT_OF(ten)) return nearest;
  double f = power < 0 ? (double)digits / ten[-power] : (double)digits * ten[power];
  return negative ? -f : f;
}

static Err *read_score(JsonWalk *w, int at, Entry *e) {
  Val score;
  bool first = true, more;
  TRY(text_json_enter(w, '['));
  TRY(text_json_next(w, '[', &first, &more));
  if (more) TRY(text_json_string(w, &e->p, &e->n));
  if (more) TRY(text_json_next(w, '[', &first, &more));
  if (!more) return err_new(ERR_FORMAT, "vocab: entry %d, expected [token, score]", at);
  const char *from = w->p;               /* behind the comma and white space */
  TRY(text_json_value(w, &score));
  const char *to = w->p;
  TRY(text_json_next(w, '[', &first, &more));
  if (more || !val_is_number(score)) return err_new(ERR_FORMAT, "vocab: entry %d, expected [token, score]", at);
  e->score = score_of(from, to, val_as_float(score));
  e->id = at;
  return NULL;
}

/* model.vocab, an object of ids or a list of scores. */
static Err *read_vocab(Load *l, Val late) {
  char bracket = text_json_late(&late);
  JsonWalk w = text_json_walk(l->tmp, late);
  int n = 0, cap = (int)MIN(text_json_late_n(late), (int64_t)MAX_TOKENS);
  Entry *entry = ARENA_ARRAY(l->tmp, Entry, (size_t)cap);
  TRY(text_json_enter(&w, bracket));
  for (bool first = true, more;;) {
    Entry e = {0};
    Val id;
    TRY(text_json_next(&w, bracket, &first, &more));
    if (!more) break;
    if (n >= MAX_TOKENS) return err_new(ERR_LIMIT, "more than %d tokens", MAX_TOKENS);
    if (bracket == '[') {
      TRY(read_score(&w, n, &e));
    } else {
      TRY(text_json_key(&w, &e.p, &e.n));
      TRY(text_json_value(&w, &id));
      if (id.kind != V_INT || id.u.i < 0) return err_new(ERR_FORMAT, "vocab: '%.*s' without a good id", (int)MIN(e.n, (size_t)40), e.p);
      e.id = id.u.i;
    }
    PUSH(l->tmp, entry, n, cap, e);
  }
  l->entry = entry;
  l->n_entries = n;
  return NULL;
}

static Err *load_vocab(Load *l) {
  size_t n = 0;
  for (int i = 0; i < l->n_entries; i++) n += l->entry[i].n + 1;
  char *pool = arena_alloc(l->v->arena, n + 1), *room = arena_alloc(l->v->arena, l->v->byte_level ? n + 1 : 1);
  l->v->leveled = l->v->byte_level;
  for (int i = 0; i < l->n_entries; i++) {
    const Entry *e = &l->entry[i];
    if (e->n > UINT32_MAX / 4) return err_new(ERR_FORMAT, "vocab: entry %d has %zu bytes", i, e->n);
    memcpy(pool, e->p, e->n);
    TRY(set_token(l->v, e->id, pool, e->n, e->score, room));
    pool += e->n + 1;
    if (l->v->byte_level) room += e->n + 1;
  }
  return NULL;
}

/* "left right" or ["left", "right"] */
static Err *read_merge(JsonWalk *w, int at, MergeText *out) {
  const char *p, *q;
  size_t n, m;
  if (w->p < w->end && *w->p == '"') {
    TRY(text_json_string(w, &p, &n));
    const char *sp = n > 1 ? memchr(p + 1, ' ', n - 1) : NULL;
    if (!sp) return err_new(ERR_FORMAT, "entry %d, expected two parts", at);
    q = sp + 1;
    m = n - (size_t)(q - p);
    n = (size_t)(sp - p);
  } else {
    bool first = true, one, two, three = true;
    TRY(text_json_enter(w, '['));
    TRY(text_json_next(w, '[', &first, &one));
    if (one) TRY(text_json_string(w, &p, &n));
    two = one;
    if (one) TRY(text_json_next(w, '[', &first, &two));
    if (two) {
      TRY(text_json_string(w, &q, &m));
      TRY(text_json_next(w, '[', &first, &three));
    }
    if (three) return err_new(ERR_FORMAT, "entry %d, expected two parts", at);
  }
  if (n + m > UINT32_MAX / 4) return err_new(ERR_FORMAT, "entry %d has %zu bytes", at, n + m);
  *out = (MergeText){p, q, (uint32_t)n, (uint32_t)m, (uint32_t)at};
  return NULL;
}

static Err *load_merges(Load *l, Val *merges) {
  if (text_json_late(merges) != '[') return err_new(ERR_FORMAT, "model: no list 'merges'");
  text_vocab_index_text(l->v);
  text_vocab_merges_reserve(l->v, (int)MIN(text_json_late_n(*merges), (int64_t)MAX_MERGES));
  JsonWalk w = text_json_walk(l->tmp, *merges);
  MergeText batch[BATCH];
  TRY(text_json_enter(&w, '['));
  bool first = true, more = true;
  for (int i = 0, n = 0; more; i++) {
    TRY(text_json_next(&w, '[', &first, &more));
    if (i >= MAX_MERGES) return err_new(ERR_LIMIT, "more than %d merges", MAX_MERGES);
    if (more) TRY(err_wrap(read_merge(&w, i, &batch[n++]), "merges"));
    if (n == BATCH || !more) text_vocab_merges_add(l->v, batch, n), n = 0;
  }
  return NULL;
}

static Err *load_added(Load *l, Val *added) {
  TextVocab *v = l->v;
  int n = added && added->kind == V_LIST ? added->u.l->n : 0;
  v->added = ARENA_ARRAY(v->arena, Added, (size_t)n + 1);
  for (int i = 0; i < n; i++) {
    Val x = added->u.l->items[i], *text = val_get(x, "content");
    int64_t id = int_of(x, "id", -1);
    if (!text || text->kind != V_STR || id < 0 || id >= v->n_tokens) return err_new(ERR_FORMAT, "added_tokens: entry %d without content or a good id", i);
    if (!v->tok[id].in_model && v->tok[id].byte < 0) {
      size_t len = text->u.s->n;
      TRY(set_token(v, id, arena_dup_n(v->arena, text->u.s->p, len), len, 0, arena_alloc(v->arena, len)));
      v->tok[id].in_model = false;
      if (v->by_text.slot) text_vocab_index_more(v, (int32_t)id);
    }
    bool special = flag_of(x, "special", false);
    v->tok[id].type = special ? TEXT_TOKEN_CONTROL : TEXT_TOKEN_USER;
    v->added[v->n_added++] = (Added){.id = (int32_t)id, .special = special, .lstrip = flag_of(x, "lstrip", false), .rstrip = flag_of(x, "rstrip", false),
                                     .single_word = flag_of(x, "single_word", false), .normalized = flag_of(x, "normalized", !special)};
  }
  return NULL;
}

static int64_t after(int64_t id) { return MIN(id, (int64_t)MAX_TOKENS) + 1; } /* a file's number may be any */

/* Ids may have gaps, but a small file does not ask for a large vocabulary. */
static Err *count_tokens(const Load *l, Val *added, int *out) {
  int64_t n = 0, n_added = added && added->kind == V_LIST ? added->u.l->n : 0;
  for (int i = 0; i < l->n_entries; i++) n = MAX(n, after(l->entry[i].id));
  for (int i = 0; i < n_added; i++) n = MAX(n, after(int_of(added->u.l->items[i], "id", -1)));
  int64_t most = MIN((int64_t)MAX_TOKENS, 8 * (l->n_entries + n_added) + 65536);
  if (n <= 0 || n > most) return err_new(ERR_LIMIT, "%lld tokens by their highest id, expected 1 to %lld", (long long)n, (long long)most);
  *out = (int)n;
  return NULL;
}

static Err *load_model(Load *l, Val root, Val model) {
  TextVocab *v = l->v;
  const char *type = str_of(val_get(model, "type"));
  Val *unk = val_get(model, "unk_token");
  bool unigram = v->model == MODEL_UNIGRAM;
  v->byte_fallback = flag_of(model, "byte_fallback", false);
  v->fuse_unk = unigram || flag_of(model, "fuse_unk", false);
  v->ignore_merges = flag_of(model, "ignore_merges", false);
  const char *affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  for (int i = 0; i < 2 && v->model == MODEL_BPE; i++) {
    const char *s = str_of(val_get(model, affixes[i]));
    if (s && *s) return err_new(ERR_UNSUPPORTED, "%s model with %s '%s'", type, affixes[i], s);
  }
  TRY(load_vocab(l));
  if (v->model == MODEL_BPE) TRY(load_merges(l, val_get(model, "merges")));
  if (v->model == MODEL_WORDPIECE) {
    size_t n;
    Val *prefix = val_get(model, "continuing_subword_prefix");
    v->cont_prefix = prefix && prefix->kind == V_STR ? keep(l, prefix, &n) : "##";
    if (strlen(v->cont_prefix) > 64) return err_new(ERR_FORMAT, "continuing_subword_prefix: more than 64 bytes");
    v->max_word_chars = (int)MIN(MAX(int_of(model, "max_input_chars_per_word", 100), 1), 100000);
  }
  TRY(load_added(l, val_get(root, "added_tokens")));
  if (!v->by_text.slot) text_vocab_index_text(v);
  if (unigram) v->unk = (int)int_of(model, "unk_id", -1);
  else if (unk && unk->kind == V_STR) v->unk = text_vocab_find(v, unk->u.s->p, unk->u.s->n);
  if (v->unk < -1 || v->unk >= v->n_tokens) return err_new(ERR_FORMAT, "unk_id %d, expected below %d", v->unk, v->n_tokens);
  return NULL;
}

static Err *load_parts(Load *l, Val root, Val model) {
  static const struct { const char *key; Err *(*load)(Load *, Val); } parts[] = {{"normalizer", load_normalizer}, {"pre_tokenizer", load_pre}, {"decoder", load_decoder}, {"post_processor", load_post}};
  TextVocab *v = l->v;
  v->prefix = ARENA_ARRAY(v->arena, int32_t, 16);
  v->suffix = ARENA_ARRAY(v->arena, int32_t, 16);
  for (size_t i = 0; i < COUNT_OF(parts); i++) {
    Val *p = val_get(root, parts[i].key);
    if (p) TRY(err_wrap(parts[i].load(l, *p), "%s", parts[i].key));
  }
  v->norm = l->norm.p;
  v->n_norm = l->norm.n;
  v->pre = l->pre.p;
  v->n_pre = l->pre.n;
  if (v->n_pre > MAX_PRE_STEPS) return err_new(ERR_LIMIT, "pre_tokenizer: %d steps, at most %d", v->n_pre, MAX_PRE_STEPS);
  TRY(load_model(l, root, model));
  return text_vocab_finish(v);
}

static Err *open_json(Arena *tmp, Val root, TextVocab **out) {
  static const char *const kinds[] = {"BPE", "Unigram", "WordPiece"};
  Val *model = val_get(root, "model"), *vocab = model ? val_get(*model, "vocab") : NULL;
  const char *type = model ? str_of(val_get(*model, "type")) : NULL;
  if (!vocab) return err_new(ERR_FORMAT, "no model.vocab");
  if (!type) type = text_json_late(vocab) == '[' ? "Unigram" : val_get(*model, "merges") ? "BPE" : "WordPiece";
  int kind = 0;
  while (kind < 3 && strcmp(type, kinds[kind])) kind++;
  if (kind == 3) return err_new(ERR_UNSUPPORTED, "model '%s', expected BPE, Unigram or WordPiece", type);
  if (text_json_late(vocab) != (kind == MODEL_UNIGRAM ? '[' : '{')) return err_new(ERR_FORMAT, "model.vocab: wrong type for a %s model", type);
  Load l = {.tmp = tmp};
  int n;
  TRY(read_vocab(&l, *vocab));
  TRY(count_tokens(&l, val_get(root, "added_tokens"), &n));
  TextVocab *v = l.v = text_vocab_alloc(n);
  v->model = (ModelKind)kind;
  Err *e = load_parts(&l, root, *model);
  if (e) { text_vocab_free(v); return e; }
  *out = v;
  return NULL;
}

/* tokenizer.model: a protocol buffer. Field numbers: sentencepiece_model.proto. */
typedef struct Pb { const uint8_t *p, *end; } Pb;
typedef struct PbField { int number, wire; uint64_t v; Pb bytes; } PbField;

static bool pb_varint(Pb *b, uint64_t *out) {
  uint64_t v = 0;
  for (int shift = 0; shift < 64 && b->p < b->end; shift += 7) {
    uint8_t c = *b->p++;
    v |= (uint64_t)(c & 127) << shift;
    if (c < 128) { *out = v; return true; }
  }
  return false;
}

static bool pb_next(Pb *b, PbField *f) {
  uint64_t tag;
  if (b->p >= b->end || !pb_varint(b, &tag)) return false;
  *f = (PbField){.number = (int)(tag >> 3 & 0xFFFF), .wire = (int)(tag & 7)};
  size_t left = (size_t)(b->end - b->p), fixed = f->wire == 1 ? 8 : f->wire == 5 ? 4 : 0;
  if (f->wire == 0) return pb_varint(b, &f->v);
  if (fixed) {
    if (left < fixed) return false;
    for (size_t i = 0; i < fixed; i++) f->v |= (uint64_t)b->p[i] << (8 * i);
    b->p += fixed;
    return true;
  }
  uint64_t n;
  if (f->wire != 2 || !pb_varint(b, &n) || n > (size_t)(b->end - b->p)) return false;
  f->bytes = (Pb){b->p, b->p + n};
  b->p += n;
  return true;
}

typedef struct Pieces3 { const char **text; uint32_t *n; float *score; int32_t *type; int count, cap_a, cap_b, cap_c, cap_d; } Pieces3;

static Err *spm_piece(Arena *a, Pb b, Pieces3 *s) {
  PbField f;
  const char *text = "";
  uint32_t n = 0;
  float score = 0;
  int32_t type = TEXT_TOKEN_NORMAL;
  while (b.p < b.end) {
    if (!pb_next(&b, &f)) return err_new(ERR_FORMAT, "piece %d is broken", s->count);
    if (f.number == 1 && f.wire == 2) { text = (const char *)f.bytes.p; n = (uint32_t)(f.bytes.end - f.bytes.p); }
    if (f.number == 2 && f.wire == 5) score = f32_from_bits((uint32_t)f.v);
    if (f.number == 3 && f.wire == 0) type = (int32_t)MIN(f.v, (uint64_t)99);
  }
  int c = s->count, cb = c, cc = c, cd = c;
  if (c >= MAX_TOKENS) return err_new(ERR_LIMIT, "more than %d pieces", MAX_TOKENS);
  PUSH(a, s->text, c, s->cap_a, text);
  PUSH(a, s->n, cb, s->cap_b, n);
  PUSH(a, s->score, cc, s->cap_c, score);
  PUSH(a, s->type, cd, s->cap_d, type);
  s->count = c;
  return NULL;
}

static Err *open_spm(Arena *tmp, const char *text, size_t n_text, TextVocab **out) {
  Pb b = {(const uint8_t *)text, (const uint8_t *)text + n_text}, sub;
  PbField f;
  Pieces3 s = {0};
  int kind = 1;
  TextVocabSource src = {.unk = 0, .bos = 1, .eos = 2, .sep = -1, .add_bos = -1, .add_eos = -1, .add_space_prefix = 1};
  while (b.p < b.end) {
    if (!pb_next(&b, &f)) return err_new(ERR_FORMAT, "broken protocol buffer");
    if (f.wire != 2) continue;
    sub = f.bytes;
    if (f.number == 1) TRY(spm_piece(tmp, sub, &s));
    for (PbField g; f.number == 2 && sub.p < sub.end;) {
      if (!pb_next(&sub, &g)) return err_new(ERR_FORMAT, "broken trainer_spec");
      if (g.number == 3) kind = (int)MIN(g.v, (uint64_t)9);
      if (g.number == 40) src.unk = (int)(int64_t)g.v;
      if (g.number == 41) src.bos = (int)(int64_t)g.v;
      if (g.number == 42) src.eos = (int)(int64_t)g.v;
    }
    for (PbField g; f.number == 3 && sub.p < sub.end;) {
      if (!pb_next(&sub, &g)) return err_new(ERR_FORMAT, "broken normalizer_spec");
      if (g.number == 2 && g.wire == 2) { src.charsmap = g.bytes.p; src.n_charsmap = (size_t)(g.bytes.end - g.bytes.p); }
      if (g.number == 3) src.add_space_prefix = g.v != 0;
      if (g.number == 4) src.keep_spaces = g.v == 0;
    }
  }
  if (kind != 1 && kind != 2) return err_new(ERR_UNSUPPORTED, "SentencePiece model type %d, expected 1 (Unigram) or 2 (BPE)", kind);
  src.kind = kind == 1 ? "t5" : "llama";
  src.n_tokens = s.count;
  src.token = s.text;
  src.token_bytes = s.n;
  src.score = s.score;
  src.type = s.type;
  if (src.bos >= s.count) src.bos = -1;
  if (src.eos >= s.count) src.eos = -1;
  return text_vocab_new(&src, out);
}

/* Byte ranks: a merge happens where the join is a token, the lowest rank first. first: the id of rank 0. */
static Err *rank_token(TextVocab *v, int first, int64_t rank, const uint8_t *p, size_t n) {
  int last = v->n_tokens - 1 - first;
  if (rank < 0 || rank > last) return err_new(ERR_FORMAT, "rank %lld, expected 0 to %d", (long long)rank, last);
  Tok *t = &v->tok[first + rank];
  if (t->in_model) return err_new(ERR_FORMAT, "rank %lld is there twice", (long long)rank);
  *t = (Tok){.text = arena_dup_n(v->arena, (const char *)p, n), .n_text = (uint32_t)n, .rank = (uint32_t)rank, .type = TEXT_TOKEN_NORMAL, .in_model = true, .byte = -1};
  t->piece = t->text;
  t->n_piece = t->n_text;
  return NULL;
}

static Err *finish_ranks(TextVocab *v) {
  TRY(text_vocab_finish(v));
  for (int b = 0; b < 256; b++) /* else text would be lost without a word */
    if (v->byte_id[b] < 0) return err_new(ERR_FORMAT, "no rank for the byte 0x%02x, so not every text has ids: expected all 256 bytes", (unsigned)b);
  return NULL;
}

static void special_token(TextVocab *v, int id, const char *text, size_t n) {
  v->tok[id] = (Tok){.text = arena_dup_n(v->arena, text, n), .n_text = (uint32_t)n, .type = TEXT_TOKEN_CONTROL, .special = true, .byte = -1};
  v->tok[id].piece = v->tok[id].text;
  v->tok[id].n_piece = v->tok[id].n_text;
  v->added[v->n_added++] = (Added){.id = id, .special = true};
}

static Err *fill_tekken(TextVocab *v, Arena *tmp, Val root, int n_special) {
  Val *config = val_get(root, "config"), *pattern = config ? val_get(*config, "pattern") : NULL, *vocab = val_get(root, "vocab"), *special = val_get(root, "special_tokens");
  if (!pattern || pattern->kind != V_STR) return err_new(ERR_FORMAT, "no config.pattern");
  v->byte_level = v->by_rank = v->ignore_merges = true;
  v->pre = ARENA_NEW(v->arena, Step);
  v->pre[0] = (Step){.kind = STEP_SPLIT, .mode = SPLIT_ISOLATED};
  v->n_pre = 1;
  TRY(text_regex_new(v, pattern->u.s->p, pattern->u.s->n, &v->pre[0].re));
  static const char *const usual[] = {"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]",
    "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"};
  const char **name = ARENA_ARRAY(tmp, const char *, (size_t)n_special + 1);
  for (int i = 0; special && special->kind == V_LIST && i < special->u.l->n; i++) {
    int64_t rank = int_of(special->u.l->items[i], "rank", i);
    if (rank >= 0 && rank < n_special) name[rank] = str_of(val_get(special->u.l->items[i], "token_str"));
  }
  bool listed = special && special->kind == V_LIST;
  v->added = ARENA_ARRAY(v->arena, Added, (size_t)n_special + 1);
  for (int i = 0; i < n_special; i++) {
    char other[32];
    snprintf(other, sizeof other, "<SPECIAL_%d>", i);
    const char *s = name[i] ? name[i] : !listed && i < (int)COUNT_OF(usual) ? usual[i] : other;
    special_token(v, i, s, strlen(s));
  }
  for (int i = 0; i < v->n_tokens - n_special; i++) {
    Val *b64 = i < vocab->u.l->n ? val_get(vocab->u.l->items[i], "token_bytes") : NULL;
    uint8_t *b;
    size_t n;
    if (!b64 || b64->kind != V_STR || !base64(tmp, b64->u.s->p, b64->u.s->n, &b, &n)) return err_new(ERR_FORMAT, "vocab: entry %d without token_bytes", i);
    TRY(err_wrap(rank_token(v, n_special, int_of(vocab->u.l->items[i], "rank", i), b, n), "vocab: entry %d", i));
  }
  v->unk = -1;
  v->bos = n_special > 1 ? 1 : -1;
  v->eos = n_special > 2 ? 2 : -1;
  v->prefix = ARENA_ARRAY(v->arena, int32_t, 1);
  if (v->bos >= 0) v->prefix[v->n_prefix++] = v->bos;
  return finish_ranks(v);
}

static Err *open_tekken(Arena *tmp, Val root, TextVocab **out) {
  Val *config = val_get(root, "config"), *vocab = val_get(root, "vocab");
  if (vocab && text_json_late(vocab)) TRY(text_json_parse(tmp, vocab->u.s->p, vocab->u.s->n, vocab));
  if (!config || !vocab || vocab->kind != V_LIST) return err_new(ERR_FORMAT, "no config or no list 'vocab'");
  int64_t n_special = int_of(*config, "default_num_special_tokens", 1000), n = int_of(*config, "default_vocab_size", n_special + vocab->u.l->n);
  n = MIN(n, n_special + vocab->u.l->n);
  if (n_special < 0 || n_special > 100000 || n <= n_special || n > MAX_TOKENS) return err_new(ERR_FORMAT, "default_vocab_size %lld, default_num_special_tokens %lld", (long long)n, (long long)n_special);
  TextVocab *v = text_vocab_alloc((int)n);
  Err *e = fill_tekken(v, tmp, root, (int)n_special);
  if (e) { text_vocab_free(v); return e; }
  *out = v;
  return NULL;
}

static bool rank_of(const char *p, const char *end, int64_t *out) {
  int64_t n = 0;
  while (end > p && (end[-1] == '\r' || end[-1] == ' ')) end--;
  while (p < end && *p == ' ') p++;
  if (p == end || end - p > 12) return false;
  for (; p < end; p++) {
    if (*p < '0' || *p > '9') return false;
    n = n * 10 + (*p - '0');
  }
  *out = n;
  return true;
}

/* "a, b or c"; name: NULL past the end. */
static const char *choice_of(Arena *a, const char *(*name)(int i)) {
  const char *s = name(0);
  for (int i = 1; name(i); i++) s = arena_printf(a, "%s%s%s", s, name(i + 1) ? ", " : " or ", name(i));
  return s;
}

/* Lines of "base64 rank". */
static Err *fill_tiktoken(TextVocab *v, Arena *tmp, const char *path, const char *text, size_t n_text) {
  v->byte_level = v->by_rank = true;
  const char *slash = strrchr(path, '/');
  bool is_guess;
  const char *rule = text_split_rule_of_ranks(slash ? slash + 1 : path, &is_guess);
  TRY(text_split_rule(v, rule));
  if (is_guess) v->warning = arena_printf(v->arena, "%s: ranks only, and its name does not say how text is split: taken as %s; a name with %s in it chooses", path, rule, choice_of(tmp, text_split_rank_name));
  v->ignore_merges = true;
  v->added = ARENA_NEW(v->arena, Added);
  int line = 0;
  for (const char *p = text, *end = p + n_text; p < end; line++) {
    const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end, *sp = memchr(p, ' ', (size_t)(stop - p));
    uint8_t *b;
    size_t n;
    if (stop > p) {
      int64_t rank;
      if (!sp || !base64(tmp, p, (size_t)(sp - p), &b, &n) || !rank_of(sp, stop, &rank)) return err_new(ERR_FORMAT, "line %d: expected base64 and a rank", line + 1);
      TRY(err_wrap(rank_token(v, 0, rank, b, n), "line %d", line + 1));
    }
    p = stop + 1;
  }
  return finish_ranks(v);
}

static Err *open_tiktoken(Arena *tmp, const char *path, const char *text, size_t n_text, TextVocab **out) {
  int n = 1;
  for (size_t i = 0; i < n_text; i++) n += text[i] == '\n';
  if (n > MAX_TOKENS) return err_new(ERR_LIMIT, "%d lines", n);
  TextVocab *v = text_vocab_alloc(n);
  Err *e = fill_tiktoken(v, tmp, path, text, n_text);
  if (e) { text_vocab_free(v); return e; }
  *out = v;
  return NULL;
}

static int token_named(const TextVocab *v, Val *t) {
  if (t && t->kind == V_DICT) t = val_get(*t, "content");
  return t && t->kind == V_STR ? text_vocab_find(v, t->u.s->p, t->u.s->n) : -1;
}

/* bos and eos are named beside the tokenizer, in tokenizer_config.json. */
static void read_config(Arena *tmp, const char *path, TextVocab *v) {
  const char *slash = strrchr(path, '/');
  char *config = arena_printf(tmp, "%.*stokenizer_config.json", slash ? (int)(slash + 1 - path) : 0, path);
  Str text = {0};
  Val root;
  if (!os_exists(config)) return;
  Err *e = os_read_text(config, 16 << 20, &text);
  if (!e) e = text_json_parse(tmp, text.p ? text.p : "", text.n, &root);
  if (!e) {
    int bos = token_named(v, val_get(root, "bos_token")), eos = token_named(v, val_get(root, "eos_token"));
    if (bos >= 0) v->bos = bos;
    if (eos >= 0) v->eos = eos;
  }
  err_free(e); /* the tokenizer itself is whole without it */
  str_free(&text);
}

static const char *file_name(int i) {
  static const char *const names[] = {
#define TOKENIZER_FILE(name) name,
#include "text/tokenizer_files.def"
#undef TOKENIZER_FILE
  };
  return i < (int)COUNT_OF(names) ? names[i] : NULL;
}

static Err *find_in_folder(Arena *tmp, const char *dir, const char **out) {
  for (int i = 0; file_name(i); i++) {
    const char *path = arena_printf(tmp, "%s/%s", dir, file_name(i));
    bool there;
    TRY(os_look(path, &there));
    if (!there) continue;
    *out = path;
    return NULL;
  }
  return err_new(ERR_NOT_FOUND, "%s: no %s", dir, choice_of(tmp, file_name));
}

/* The whole of a file's text, whichever of the four it is. */
Err *text_vocab_read(Arena *tmp, const char *path, const char *text, size_t n, TextVocab **out) {
  size_t at = 0;
  while (at < n && strchr(" \t\r\n", text[at]) && text[at]) at++;
  if (at < n && text[at] == '{') {
    Val root;
    TRY(text_json_parse_late(tmp, text, n, &root));
    return val_get(root, "config") && val_get(root, "vocab") ? open_tekken(tmp, root, out) : open_json(tmp, root, out);
  }
  if (at < n && base64_digit(text[at]) >= 0) return open_tiktoken(tmp, path, text, n, out);
  if (n) return err_wrap(open_spm(tmp, text, n, out), "no tokenizer: neither JSON, nor ranks of tiktoken, nor a SentencePiece model");
  return err_new(ERR_FORMAT, "empty file");
}

Err *text_vocab_open(const char *path, TextVocab **out) {
  Arena *tmp = arena_new("tokenizer file");
  FileMap map = {0}, text = {0};
  Str own = {0};
  TextVocab *v = NULL;
  Err *e = os_is_dir(path) ? find_in_folder(tmp, path, &path) : NULL;
  if (!e) e = open_text(path, &map, &own, &text);
  if (!e) e = err_wrap(text_vocab_read(tmp, path, text.p ? (const char *)text.p : "", text.n_bytes, &v), "%s", path);
  if (!e) read_config(tmp, path, v);
  Err *changed = os_map_check(&map, path);
  if (changed) {
    err_free(e);
    text_vocab_free(v);
    e = changed;
  }
  str_free(&own);
  os_unmap_file(&map);
  arena_free(tmp);
  if (e) return e;
  *out = v;
  return NULL;
}
