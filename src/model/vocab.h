/* model/vocab.h: what a model's files say about text: its vocabulary, the tokens that end an answer, its chat template. GGUF keeps all of
   it in metadata; a Hugging Face folder keeps it in files of their own beside the weights. */
#ifndef LUMEN_MODEL_VOCAB_H
#define LUMEN_MODEL_VOCAB_H
#include <jansson.h>
#include "base/base.h"
#include "file/file.h"
#include "text/reply.h"
#include "text/text.h"

/* Fails: ERR_NOT_FOUND (the files hold no vocabulary), ERR_FORMAT (a field is wrong), ERR_UNSUPPORTED (a kind we do not know). */
Err *model_vocab_open(const Weights *w, TextVocab **out);

/* Ids that end an answer, each once, in the arena; perhaps none. */
Err *model_vocab_ends(Arena *a, const Weights *w, const TextVocab *v, int32_t **out, int *n);

/* The chat template's text, in the arena. Fails: ERR_NOT_FOUND (a base model has none), ERR_FORMAT. */
Err *model_chat_template(Arena *a, const Weights *w, const char **out);

/* What the template can show, with the model's special tokens. given: a template instead of the model's own; NULL: none. In the arena, and as long as *special, a
   new reference. Fails as model_chat_template and text_chat_new do. */
Err *model_chat_open(Arena *a, const Weights *w, const char *given, TextChat **out, json_t **special);

/* Appends the prompt of request {messages, tools?, documents?, kwargs?}: the model's own template with its special tokens. Where kwargs does
   not say, add_generation_prompt is true unless the last message is the assistant's. request is not changed. Fails as model_chat_template
   and text_template_chat do; out is then unchanged. given: a template instead of the model's own; NULL: none. user: NULL, or whose the bytes are (text_template_chat_marked). */
Err *model_chat_render(Arena *a, const Weights *w, const char *given, const json_t *request, Str *out, Str *user);
#endif
