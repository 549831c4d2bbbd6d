/* A model's vocabulary, end tokens and chat template out of its files. In: an open view, whose metadata is checked for shape but not for
   sense. Out: a TextVocab, ids, the rendered prompt. Ids from outside are bounded here; the rest is text's to check.
   Keys: the GGUF specification's tokenizer.*; tokenizer_config.json and chat_template.jinja as transformers writes them. */
#include <string.h>
#include <time.h>
#include "base/json.h"
#include "model/vocab.h"

enum { MAX_TEMPLATE_BYTES = 4 << 20, MAX_CONFIG_BYTES = 64 << 20 };

static bool missing(Err *e) {
  bool is = e && err_kind(e) == ERR_NOT_FOUND;
  if (is) err_free(e);
  return is;
}

/* An id at a key, -1 where the key is absent. GGUF writes 32-bit -1 for "none" in some files. */
static Err *id_at(const Weights *w, const char *key, int *out) {
  int64_t id = -1;
  Err *e = file_kv_int(w, key, -1, INT32_MAX, &id);
  if (missing(e)) e = NULL, id = -1;
  if (!e) *out = (int)id;
  return e;
}

/* A switch at a key, -1 where the file does not say. */
static Err *switch_at(const Weights *w, const char *key, int *out) {
  bool on = false;
  Err *e = file_kv_bool(w, key, &on);
  if (missing(e)) {
    *out = -1;
    return NULL;
  }
  if (!e) *out = on;
  return e;
}

/* A list of texts at a key as two arrays; n 0 where the key is absent. */
static Err *texts_at(Arena *a, const Weights *w, const char *key, const char *const **text, const uint32_t **n_bytes, int *n) {
  const FileStr *s = NULL;
  size_t count = 0;
  Err *e = file_kv_strs(w, key, &s, &count);
  if (missing(e)) return NULL;
  TRY(e);
  if (count > INT32_MAX) return err_new(ERR_LIMIT, "%s: %zu texts, at most %d", key, count, INT32_MAX);
  const char **p = ARENA_ARRAY(a, const char *, count);
  uint32_t *len = ARENA_ARRAY(a, uint32_t, count);
  for (size_t i = 0; i < count; i++) {
    if (s[i].n > UINT32_MAX) return err_new(ERR_LIMIT, "%s: text %zu has %zu bytes, at most %u", key, i, s[i].n, UINT32_MAX);
    p[i] = s[i].p, len[i] = (uint32_t)s[i].n;
  }
  *text = p, *n_bytes = len, *n = (int)count;
  return NULL;
}

/* Numbers that go with the tokens one by one. */
static Err *same_length(const char *key, size_t n, int n_tokens) {
  return n == (size_t)n_tokens ? NULL : err_new(ERR_FORMAT, "%s: %zu values, expected one for each of the %d tokens", key, n, n_tokens);
}

static Err *types_and_scores(Arena *a, const Weights *w, TextVocabSource *src) {
  int64_t *type;
  float *score;
  size_t n;
  Err *e = file_kv_ints(a, w, "tokenizer.ggml.token_type", &type, &n);
  if (!missing(e)) {
    TRY(e);
    TRY(same_length("tokenizer.ggml.token_type", n, src->n_tokens));
    int32_t *t = ARENA_ARRAY(a, int32_t, n);
    for (size_t i = 0; i < n; i++) {
      if (type[i] < 0 || type[i] > TEXT_TOKEN_BYTE)
        return err_new(ERR_FORMAT, "tokenizer.ggml.token_type: token %zu has type %lld, expected 0 to %d", i, (long long)type[i], TEXT_TOKEN_BYTE);
      t[i] = type[i] ? (int32_t)type[i] : TEXT_TOKEN_NORMAL;
    }
    src->type = t;
  }
  e = file_kv_floats(a, w, "tokenizer.ggml.scores", &score, &n);
  if (missing(e)) return NULL;
  TRY(e);
  src->score = score;
  return same_length("tokenizer.ggml.scores", n, src->n_tokens);
}

static Err *source_read(Arena *a, const Weights *w, TextVocabSource *src) {
  TRY(file_kv_text(a, w, "tokenizer.ggml.model", &src->kind));
  Err *e = file_kv_text(a, w, "tokenizer.ggml.pre", &src->pre);
  if (!missing(e)) TRY(e);
  TRY(texts_at(a, w, "tokenizer.ggml.tokens", &src->token, &src->token_bytes, &src->n_tokens));
  if (!src->n_tokens) return err_new(ERR_FORMAT, "tokenizer.ggml.tokens: absent or empty, expected the vocabulary");
  TRY(texts_at(a, w, "tokenizer.ggml.merges", &src->merge, &src->merge_bytes, &src->n_merges));
  TRY(types_and_scores(a, w, src));
  const struct { const char *key; int *out; } ids[] = {
    {"tokenizer.ggml.bos_token_id", &src->bos}, {"tokenizer.ggml.eos_token_id", &src->eos}, {"tokenizer.ggml.unknown_token_id", &src->unk},
    {"tokenizer.ggml.seperator_token_id", &src->sep}};                      /* spelled so in the specification */
  for (size_t i = 0; i < COUNT_OF(ids); i++) {
    TRY(id_at(w, ids[i].key, ids[i].out));
    if (*ids[i].out >= src->n_tokens) return err_new(ERR_FORMAT, "%s: %d, expected under %d, the number of tokens", ids[i].key, *ids[i].out, src->n_tokens);
  }
  TRY(switch_at(w, "tokenizer.ggml.add_bos_token", &src->add_bos));
  TRY(switch_at(w, "tokenizer.ggml.add_eos_token", &src->add_eos));
  TRY(switch_at(w, "tokenizer.ggml.add_space_prefix", &src->add_space_prefix));
  int merge;
  TRY(switch_at(w, "tokenizer.ggml.remove_extra_whitespaces", &merge));
  src->keep_spaces = merge == 0;
  const FileKv *map = file_kv_find(w, "tokenizer.ggml.precompiled_charsmap");
  if (map && map->is_array && (map->type == FILE_U8 || map->type == FILE_I8)) src->charsmap = map->data, src->n_charsmap = map->n;
  return NULL;
}

/* The folder of a Hugging Face model, NULL where the view is a GGUF file that holds everything itself. */
static const char *folder_of(Arena *a, const Weights *w) {
  if (os_is_dir(w->path)) return w->path;
  if (file_kv_find(w, "tokenizer.ggml.model") || !strncmp(w->container, "GGUF", 4)) return NULL;
  const char *slash = strrchr(w->path, '/');
  return slash ? arena_dup_n(a, w->path, (size_t)(slash - w->path)) : ".";
}

Err *model_vocab_open(const Weights *w, TextVocab **out) {
  Arena *a = arena_new("vocabulary");
  const char *folder = folder_of(a, w);
  TextVocab *v = NULL;
  Err *e;
  if (folder) e = text_vocab_open(folder, &v);
  else {
    TextVocabSource src = {.bos = -1, .eos = -1, .unk = -1, .sep = -1, .add_bos = -1, .add_eos = -1, .add_space_prefix = -1};
    e = source_read(a, w, &src);
    if (!e) e = text_vocab_new(&src, &v);
  }
  arena_free(a);
  Err *changed = file_weights_check(w); /* what was read of it is worth nothing then, and is the cause of e */
  if (changed) err_free(e);
  e = changed ? changed : err_wrap(e, "vocabulary of %s", w->path);
  if (e) text_vocab_free(v);
  else *out = v;
  return e;
}

Err *model_vocab_ends(Arena *a, const Weights *w, const TextVocab *v, int32_t **out, int *n) {
  static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id",
                                     "eos_token_id", "text_config.eos_token_id", "generation_config.eos_token_id"};
  int32_t *ends = NULL;
  int n_ends = 0, cap = 0;
  for (size_t i = 0; i <= COUNT_OF(keys); i++) {                            /* the last round: what the vocabulary itself says */
    int64_t own = text_vocab_eos(v), *id = &own;
    size_t n_ids = own >= 0;
    if (i < COUNT_OF(keys)) {
      Err *e = file_kv_ints(a, w, keys[i], &id, &n_ids);
      if (missing(e)) continue;
      TRY(e);
    }
    for (size_t k = 0; k < n_ids; k++) {
      bool known = id[k] < 0 || id[k] >= text_vocab_n_tokens(v);            /* "none", or a row of padding */
      for (int j = 0; j < n_ends; j++) known = known || ends[j] == id[k];
      if (!known) PUSH(a, ends, n_ends, cap, (int32_t)id[k]);
    }
  }
  *out = ends, *n = n_ends;
  return NULL;
}

/* tokenizer_config.json of a folder; NULL where there is none. */
static Err *config_read(Arena *a, const char *folder, json_t **out) {
  const char *path = arena_printf(a, "%s/tokenizer_config.json", folder);
  bool there;
  *out = NULL;
  TRY(os_look(path, &there));
  return there ? json_parse_file(path, MAX_CONFIG_BYTES, out) : NULL;
}

/* chat_template: a text, or a list of {name, template} of which "default" counts. */
static const char *config_template(const json_t *config) {
  const json_t *t = json_object_get(config, "chat_template"), *row;
  size_t i;
  json_array_foreach(t, i, row) {
    const char *name = json_string_value(json_object_get(row, "name"));
    if (name && !strcmp(name, "default")) return json_string_value(json_object_get(row, "template"));
  }
  return json_string_value(t);
}

static Err *folder_template(Arena *a, const char *folder, const char **out) {
  const char *path = arena_printf(a, "%s/chat_template.jinja", folder), *text = NULL;
  bool there;
  TRY(os_look(path, &there));
  if (there) {
    Str s = {0};
    Err *e = os_read_text(path, MAX_TEMPLATE_BYTES, &s);
    if (!e) *out = arena_dup_n(a, s.n ? s.p : "", s.n);
    str_free(&s);
    return e;
  }
  json_t *config;
  TRY(config_read(a, folder, &config));
  if ((text = config_template(config))) *out = arena_dup(a, text);
  json_decref(config);
  return text ? NULL : err_new(ERR_NOT_FOUND, "%s: no chat template (chat_template.jinja, or chat_template in tokenizer_config.json)", folder);
}

Err *model_chat_template(Arena *a, const Weights *w, const char **out) {
  const char *folder = folder_of(a, w);
  if (folder) return folder_template(a, folder, out);
  Err *e = file_kv_text(a, w, "tokenizer.chat_template", out);
  if (missing(e)) return err_new(ERR_NOT_FOUND, "%s: no chat template (tokenizer.chat_template): a base model, which continues plain text", w->path);
  return e;
}

/* The variables bos_token, eos_token and the like, as a new object. */
static Err *special_tokens(Arena *a, const Weights *w, json_t **out) {
  static const char *const names[][2] = {{"bos_token", "tokenizer.ggml.bos_token_id"}, {"eos_token", "tokenizer.ggml.eos_token_id"},
    {"unk_token", "tokenizer.ggml.unknown_token_id"}, {"pad_token", "tokenizer.ggml.padding_token_id"}};
  const char *folder = folder_of(a, w);
  json_t *o = json_object(), *config = NULL;
  const FileStr *token = NULL;
  size_t n = 0;
  Err *e = folder ? config_read(a, folder, &config) : file_kv_strs(w, "tokenizer.ggml.tokens", &token, &n);
  for (size_t i = 0; !e && i < COUNT_OF(names); i++) {
    int id = -1;
    const json_t *t = json_object_get(config, names[i][0]);
    if (json_is_object(t)) t = json_object_get(t, "content");
    if (json_is_string(t)) json_object_set_new(o, names[i][0], json_string(json_string_value(t)));
    else if (!folder && !(e = id_at(w, names[i][1], &id)) && id >= 0 && (size_t)id < n)
      json_object_set_new(o, names[i][0], json_stringn(token[id].p, token[id].n));
  }
  json_decref(config);
  if (e) json_decref(o);
  else *out = o;
  return e;
}

/* A copy of the request with what the template expects besides. Takes special. */
static json_t *request_complete(const json_t *request, json_t *special) {
  json_t *r = json_copy((json_t *)request), *kwargs = json_deep_copy(json_object_get(request, "kwargs"));
  const json_t *messages = json_object_get(request, "messages");
  const json_t *last = json_array_size(messages) ? json_array_get(messages, json_array_size(messages) - 1) : NULL;
  const char *role = json_string_value(json_object_get(last, "role"));
  if (!json_is_object(kwargs)) json_decref(kwargs), kwargs = json_object();
  if (!json_object_get(kwargs, "add_generation_prompt") && !json_object_get(kwargs, "continue_final_message"))
    json_object_set_new(kwargs, "add_generation_prompt", json_boolean(!role || strcmp(role, "assistant")));
  json_object_set_new(r, "kwargs", kwargs);
  json_object_set_new(r, "special_tokens", special);
  return r;
}

Err *model_chat_render(Arena *a, const Weights *w, const char *given, const json_t *request, Str *out, Str *user) {
  const char *text = given;
  TextTemplate *t;
  json_t *special;
  if (!given) TRY(model_chat_template(a, w, &text));
  TRY(err_wrap(text_template_parse(a, text, strlen(text), &t), "chat template %s%s", given ? "given" : "of ", given ? "" : w->path));
  TRY(special_tokens(a, w, &special));
  time_t seconds = time(NULL);
  struct tm now;
  localtime_r(&seconds, &now);
  json_t *r = request_complete(request, special);
  Err *e = text_template_chat_marked(t, r, &now, out, user);
  json_decref(r);
  return e;
}

Err *model_chat_open(Arena *a, const Weights *w, const char *given, TextChat **out, json_t **special) {
  const char *text = given;
  json_t *tokens;
  if (!given) TRY(model_chat_template(a, w, &text));
  TRY(special_tokens(a, w, &tokens));
  Err *e = text_chat_new(a, text, strlen(text), tokens, out);
  if (e) json_decref(tokens);
  else *special = tokens;
  trace_printf(TRACE_chat, "chat template: %zu bytes, %s", strlen(text), given ? "given instead of the model's own" : "the model's own");
  return err_wrap(e, "chat template %s%s", given ? "given" : "of ", given ? "" : w->path);
}
