/* Ids to text, one at a time. In: ids of a vocabulary. Out: whole characters only: the bytes of a character that is split over
   tokens are held back (at most three), and what can never become a character prints as U+FFFD, one for each maximal broken part.
   Cutting the ids anywhere gives the same text. */
#include <string.h>
#include "text/priv.h"

void text_decoder_init(TextDecoder *d, const TextVocab *v, unsigned flags) { *d = (TextDecoder){.vocab = v, .flags = flags}; }

static void emit(TextDecoder *d, const char *p, size_t n, Str *out) {
  while (n) {
    if (!d->n_held) {
      size_t ok = text_utf8_valid(p, n);
      str_add_n(out, p, ok);
      p += ok;
      n -= ok;
      if (!n) return;
    }
    while (n && d->n_held < 4) {
      d->held[d->n_held++] = (uint8_t)*p++;
      n--;
      bool complete;
      int32_t cp;
      int k = text_utf8_seq_len((const char *)d->held, (size_t)d->n_held, &complete);
      if (!complete) continue;
      text_utf8_next((const char *)d->held, (const char *)d->held + d->n_held, &cp);
      if (cp >= 0) str_add_n(out, d->held, (size_t)k);
      else str_add(out, "\xEF\xBF\xBD");
      int left = d->n_held - k; /* 0 or 1: the byte that broke the sequence is looked at again */
      d->n_held = 0;
      p -= left;
      n += (size_t)left;
      break;
    }
  }
}

static void add_marked(Str *s, const char *p, size_t n, bool drop, bool only_first) {
  for (size_t i = 0; i < n;) {
    if (n - i >= 3 && !memcmp(p + i, "\xE2\x96\x81", 3)) {
      if (!drop || (only_first && i)) str_add_c(s, ' ');
      i += 3;
    } else {
      str_add_c(s, p[i++]);
    }
  }
}

/* BERT's tidying: no space before these. */
static const char *const tidy[][2] = {{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

static void replace_all(Str *s, const char *old, const char *with) {
  Str r = {0};
  size_t k = strlen(old);
  for (size_t i = 0; i < s->n;) {
    if (s->n - i >= k && !memcmp(s->p + i, old, k)) { str_add(&r, with); i += k; }
    else str_add_c(&r, s->p[i++]);
  }
  str_free(s);
  *s = r;
}

static void wordpiece_text(const TextDecoder *d, const Tok *t, Str *s) {
  const TextVocab *v = d->vocab;
  size_t k = strlen(v->cont_prefix);
  if (!d->started) str_add_n(s, t->text, t->n_text);
  else if (k && t->n_text >= k && !memcmp(t->text, v->cont_prefix, k)) str_add_n(s, t->text + k, t->n_text - k);
  else { str_add_c(s, ' '); str_add_n(s, t->text, t->n_text); }
  if (v->cleanup)
    for (size_t i = 0; i < COUNT_OF(tidy); i++) replace_all(s, tidy[i][0], tidy[i][1]);
}

void text_decode(TextDecoder *d, int32_t id, Str *out) {
  const TextVocab *v = d->vocab;
  if (id < 0 || id >= v->n_tokens) return;
  const Tok *t = &v->tok[id];
  if ((d->flags & TEXT_SKIP_SPECIAL) && t->special) return;
  Str s = {0};
  if (v->decode == DECODE_BYTES) str_add_n(&s, t->piece, t->n_piece);
  else if (t->byte >= 0) str_add_c(&s, (char)t->byte);
  else if (v->decode == DECODE_SPM) add_marked(&s, t->text, t->n_text, v->strip_first && !d->started, true);
  else if (v->decode == DECODE_METASPACE) add_marked(&s, t->text, t->n_text, v->strip_first && !d->started, false);
  else wordpiece_text(d, t, &s);
  d->started = true;
  emit(d, s.p ? s.p : "", s.n, out);
  str_free(&s);
}

void text_decode_end(TextDecoder *d, Str *out) {
  if (d->n_held) str_add(out, "\xEF\xBF\xBD");
  d->n_held = 0;
  d->started = false;
}

void text_detokenize(const TextVocab *v, const int32_t *ids, size_t n, unsigned flags, Str *out) {
  TextDecoder d;
  text_decoder_init(&d, v, flags);
  for (size_t i = 0; i < n; i++) text_decode(&d, ids[i], out);
  text_decode_end(&d, out);
}
