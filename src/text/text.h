/* text: between bytes and token ids, and between chat requests and prompts. It knows nothing of model files: a vocabulary comes in
   through a plain struct or from a tokenizer file of its own. Vocabularies and templates are immutable once made and may be shared
   between threads. */
#ifndef LUMEN_TEXT_H
#define LUMEN_TEXT_H
#include <jansson.h>
#include <time.h>
#include "base/base.h"

/* vocab.c: vocabularies and tokenizing. */
typedef struct TextVocab TextVocab;

/* The types of tokenizer.ggml.token_type. Control and unknown tokens are special; user-defined ones are found in any text. */
typedef enum TextTokenType {
  TEXT_TOKEN_NORMAL = 1, TEXT_TOKEN_UNKNOWN, TEXT_TOKEN_CONTROL, TEXT_TOKEN_USER, TEXT_TOKEN_UNUSED, TEXT_TOKEN_BYTE
} TextTokenType;

/* What a model file says of its vocabulary. Everything is borrowed during the call only. Ids that are absent are -1; the three
   switches are -1 when the file does not say, and then the kind's habit holds. */
typedef struct TextVocabSource {
  const char *kind;                /* "gpt2" byte-level BPE, "llama" SentencePiece BPE, "bert" WordPiece, "t5" Unigram, "gemma4" */
  const char *pre;                 /* name of a split rule (splits.def), NULL when absent; only kind "gpt2" reads it */
  int n_tokens;
  const char *const *token;        /* [n_tokens] as spelled in the file */
  const uint32_t *token_bytes;     /* [n_tokens] lengths, or NULL: NUL-terminated */
  const int32_t *type;             /* [n_tokens] TextTokenType, or NULL: all normal */
  const float *score;              /* [n_tokens] or NULL */
  int n_merges;
  const char *const *merge;        /* [n_merges] "left right", best first */
  const uint32_t *merge_bytes;     /* lengths or NULL */
  int bos, eos, unk, sep;
  int add_bos, add_eos, add_space_prefix;
  bool keep_spaces;                /* kind "t5": spaces at the ends and beside others count */
  const uint8_t *charsmap;         /* SentencePiece's precompiled_charsmap, or NULL */
  size_t n_charsmap;
} TextVocabSource;

/* Fails: ERR_FORMAT (the message names the field), ERR_UNSUPPORTED (unknown kind or split rule). */
Err *text_vocab_new(const TextVocabSource *src, TextVocab **out);
/* export.c: the inverse: what a GGUF file would say, all of it in the arena. n_tokens: as many as the model has rows for; the vocabulary is
   cut or padded to it; 0: its own. Reads texts as v does, or fails: ERR_UNSUPPORTED. */
Err *text_vocab_source(Arena *a, const TextVocab *v, int n_tokens, TextVocabSource *out);
void text_vocab_free(TextVocab *v);                          /* NULL is fine */
int text_vocab_n_tokens(const TextVocab *v);
int text_vocab_bos(const TextVocab *v);                      /* -1 when there is none; likewise eos */
int text_vocab_eos(const TextVocab *v);
int text_vocab_find(const TextVocab *v, const char *text, size_t n); /* id of the token spelled so, or -1 */
const char *text_vocab_spelling(const TextVocab *v, int32_t id, size_t *n); /* NULL for an id outside the vocabulary */
bool text_vocab_is_special(const TextVocab *v, int32_t id);
/* Appends the bytes that a token writes in the middle of a text, maybe part of a character; of a special one its spelling. */
void text_vocab_bytes(const TextVocab *v, int32_t id, Str *out);

/* Growable ids on the heap. Zero-initialise; text_ids_free releases. */
typedef struct TextIds { int32_t *p; size_t n, cap; } TextIds;
void text_ids_free(TextIds *ids);
void text_ids_add(TextIds *ids, int32_t id);
void text_ids_reserve(TextIds *ids, size_t n);               /* room for n more */

enum {
  TEXT_ADD_SPECIAL = 1,    /* the tokens the vocabulary puts around a text (BOS, EOS, CLS, SEP) */
  TEXT_SPLIT_SPECIAL = 2,  /* special tokens in the text are plain text; other added tokens are still found (Hugging Face's switch) */
  TEXT_PLAIN = 4,          /* for text from users: no added token that looks like markup is found, special or not */
  TEXT_SKIP_SPECIAL = 8,   /* decoding: special tokens print nothing */
  TEXT_ONCE = 16           /* with TEXT_ADD_SPECIAL: what the text itself begins or ends with is not put there a second time */
};
/* Appends the ids of any n bytes: valid UTF-8 by the vocabulary's rules; bytes of broken sequences go through byte tokens where there
   are any, else count as U+FFFD. A byte-level vocabulary that lacks a byte gives nothing for it, never its unknown token where that is a
   special one. Time n log n. On failure out is unchanged. Fails: ERR_LIMIT (more than 1 GiB). */
Err *text_tokenize(const TextVocab *v, const void *bytes, size_t n, unsigned flags, TextIds *out);

/* The same where user[i] != 0 says which bytes are not to be trusted: no added token that looks like markup, and no special one, is found
   that has one of them. Of texts without such spellings the ids are the same. user NULL: all are trusted. */
Err *text_tokenize_marked(const TextVocab *v, const void *bytes, const uint8_t *user, size_t n, unsigned flags, TextIds *out);

size_t text_utf8_valid(const char *p, size_t n);             /* utf8.c: length of the valid prefix */
/* For what is typed character by character. */
int32_t text_char_read(const char *p, size_t n);             /* the character that n bytes of UTF-8 are, -1: they are not one */
int32_t text_char_join(int32_t a, int32_t b);                /* the one character that both make in NFC (a syllable of its letters), -1: there is none */

/* decode.c: ids to text. A decoder never emits part of a character: it holds incomplete bytes back. Broken bytes print as U+FFFD. */
typedef struct TextDecoder {
  const TextVocab *vocab;
  unsigned flags;
  bool started;            /* a token has been printed: leading-space rules are over */
  int n_held;
  uint8_t held[4];         /* start of an incomplete character */
} TextDecoder;
void text_decoder_init(TextDecoder *d, const TextVocab *v, unsigned flags);
void text_decode(TextDecoder *d, int32_t id, Str *out);      /* an id outside the vocabulary prints nothing */
void text_decode_end(TextDecoder *d, Str *out);              /* what is still held prints as U+FFFD */
void text_detokenize(const TextVocab *v, const int32_t *ids, size_t n, unsigned flags, Str *out);

/* hf.c: vocabularies from a tokenizer.json, tokenizer.model, tekken.json or tiktoken file (or its .gz), or a folder that holds one. */
Err *text_vocab_open(const char *path, TextVocab **out);
const char *text_vocab_warning(const TextVocab *v);          /* what was guessed of the file, a line without its end; NULL: nothing */

/* template.c: Jinja chat templates as transformers sets them up. Everything lives in the arena. */
typedef struct TextTemplate TextTemplate;
Err *text_template_parse(Arena *arena, const char *src, size_t n, TextTemplate **out); /* ERR_SYNTAX, with the line */
/* context: an object; its keys are the template's variables, in order. now: what strftime_now reads (UTC fields are taken as they
   are). Appends to out; on failure out is unchanged. A template's own raise_exception gives ERR_USAGE with exactly its message;
   everything else ERR_FORMAT with the line. Time, memory and output are bounded: ERR_LIMIT. */
Err *text_template_render(const TextTemplate *t, const json_t *context, const struct tm *now, Str *out);
/* The same with the context as JSON text: integers past 64 bits and NUL characters are kept. */
Err *text_template_render_text(const TextTemplate *t, const char *json, size_t n, const struct tm *now, Str *out);
/* request: {messages, tools?, documents?, kwargs?, special_tokens?, now?}: prepared as transformers prepares it (null keys dropped,
   reasoning aliases filled, continue_final_message), then rendered. `now` in the request (ISO 8601) wins over the argument. */
Err *text_template_chat(const TextTemplate *t, const json_t *request, const struct tm *now, Str *out);
Err *text_template_chat_text(const TextTemplate *t, const char *json, size_t n, const struct tm *now, Str *out);
/* The same, and for each byte of out one of user: 1 where it came in with the conversation (contents, names, arguments, results, tools and
   other variables), 0 where it is the template's own (or a special token's, or a usual role's). NULL: nobody asks. */
Err *text_template_chat_marked(const TextTemplate *t, const json_t *request, const struct tm *now, Str *out, Str *user);

/* cmd.c: bodies of `lumen tokenize`, `detokenize` and `render`. */
typedef struct TextTokenizeOptions {
  const char *tokenizer;   /* file or folder; NULL when vocab is given */
  const TextVocab *vocab;  /* borrowed */
  double load_ms;          /* with vocab: what opening it cost */
  bool special, plain, json, lines, split_special, skip_special;
  int times;               /* above 0: so often, and figures instead of ids */
} TextTokenizeOptions;
/* Whole input is one text, ids on one line; lines: each input line is a JSON string and each output line a JSON array of ids. */
Err *text_cmd_tokenize(const TextTokenizeOptions *o, FILE *in, FILE *out);
/* Ids separated by anything but digits; lines: each input line is an array of ids and each output line a JSON string. */
Err *text_cmd_detokenize(const TextTokenizeOptions *o, FILE *in, FILE *out);
typedef struct TextRenderOptions { const char *template_path, *request_path, *context_path; } TextRenderOptions;
Err *text_cmd_render(const TextRenderOptions *o, FILE *out);
#endif
