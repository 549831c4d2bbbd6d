/* Calls as grammars, for every template of the test sets, which have every row of toolcall.def: what a template writes for calls is what its
   grammar takes, wrong types, unknown and missing arguments are not; and whatever tokens a mask lets through, special ones and plain ones, the
   reader of replies reads as calls whose arguments satisfy the schemas, however the text is cut.
   runtests: timeout 600 */
#include <glob.h>
#include "base/json.h"
#include "test.h"
#include "text/replyparts.h"
#include "text/toolcall.h"

enum { WALKS = 6, STEPS = 320, TEXT_MAX_BYTES = 900 };
static const struct tm now = {.tm_year = 126, .tm_mday = 1, .tm_wday = 4};
static uint64_t seed = 1;

static uint32_t rng(uint32_t n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(seed >> 33) % n;
}

static json_t *parsed(const char *text) {
  json_error_t e;
  json_t *js = json_loads(text, 0, &e);
  CHECK(js, "%s: %s", text, e.text);
  return js;
}

/* Two tools for calls that are known, four for walks: every type in every position, bounded and not. */
static const char *const known_tools =
  "[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"description\":\"Looks\",\"parameters\":{\"type\":\"object\",\"properties\":{\"what\":{\"type\":\"string\"},\"often\":{\"type\":\"integer\"}},"
  "\"required\":[\"what\",\"often\"],\"additionalProperties\":false}}},"
  "{\"type\":\"function\",\"function\":{\"name\":\"stop\",\"description\":\"Stops\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]";
static const char *const walked_tools =
  "[{\"type\":\"function\",\"function\":{\"name\":\"find\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\",\"maxLength\":12},"
  "\"kind\":{\"enum\":[\"red\",\"blue <b>\",\"None\"]},\"n\":{\"type\":\"integer\",\"minimum\":-5,\"maximum\":120},\"x\":{\"type\":\"number\",\"minimum\":0,\"maximum\":1},\"is_on\":{\"type\":\"boolean\"}},"
  "\"required\":[\"text\",\"n\"],\"additionalProperties\":false}}},"
  "{\"type\":\"function\",\"function\":{\"name\":\"book\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"$defs\":{\"tag\":{\"type\":\"string\",\"pattern\":\"^[a-z]{1,4}$\"}},\"properties\":{"
  "\"tags\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/tag\"},\"maxItems\":3},\"place\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":6},\"at\":{\"type\":[\"number\",\"null\"]}},"
  "\"required\":[\"city\"],\"additionalProperties\":false},\"note\":{\"type\":[\"string\",\"null\"],\"maxLength\":8},\"nothing\":{\"type\":\"null\"},\"day\":{\"type\":\"string\",\"format\":\"date\"}},"
  "\"additionalProperties\":false}}},"
  "{\"type\":\"function\",\"function\":{\"name\":\"free\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{\"code\":{\"type\":\"string\"},\"long\":{\"type\":\"string\",\"minLength\":2,\"maxLength\":4000}},"
  "\"required\":[\"code\"],\"additionalProperties\":{\"type\":\"integer\"},\"maxProperties\":3}}},"
  "{\"type\":\"function\",\"function\":{\"name\":\"stop-it.now\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}}}]";

/* ---- what templates write ---- */

/* The text of an answer with these calls, [[name, arguments]..], as the template itself writes it, and its results. */
static bool rendered_calls(const TextChat *c, const json_t *tools, const char *calls_json, Str *out) {
  json_t *given = parsed(calls_json), *calls = json_array(), *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "q"), *one;
  size_t i;
  json_array_foreach(given, i, one) {
    json_t *id = json_sprintf("abcde123%zu", i);
    json_array_append_new(calls, json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function", "name", json_array_get(one, 0), "arguments", json_array_get(one, 1)));
    json_decref(id);
  }
  json_array_append_new(messages, json_pack("{s:s, s:s, s:O}", "role", "assistant", "content", "", "tool_calls", calls));
  json_array_foreach(calls, i, one)
    json_array_append_new(messages, json_pack("{s:s, s:O, s:O, s:s}", "role", "tool", "tool_call_id", json_object_get(one, "id"), "name", json_object_get(json_object_get(one, "function"), "name"), "content", "r"));
  json_t *body = json_pack("{s:o, s:O}", "messages", messages, "tools", tools), *request = NULL, *own = NULL;
  Err *e = text_chat_request(c, TEXT_CHAT_COMPLETIONS, body, &request, &own);
  if (!e) e = text_chat_render(c, request, &now, out, NULL);
  bool ok = !e;
  err_free(e);
  json_decref(request);
  json_decref(own);
  json_decref(body);
  json_decref(calls);
  json_decref(given);
  return ok;
}

/* The longest part of the text that the grammar takes as a whole. */
static size_t longest(GrammarMatcher *m, const Str *text, size_t *at) {
  size_t best = 0;
  for (size_t i = 0; i < text->n; i++) {
    GrammarState *s = grammar_state_start(m), *next = NULL;
    for (size_t k = i; s && k < text->n; k++) {
      EXPECT_OK(grammar_state_accept(s, text->p + k, 1, &next));
      if (next && k + 1 - i > best && grammar_state_may_end(next)) best = k + 1 - i, *at = i;
      grammar_state_unref(s);
      s = next;
    }
    grammar_state_unref(s);
  }
  return best;
}

static bool takes(GrammarMatcher *m, const char *p, size_t n) {
  GrammarState *s = grammar_state_start(m), *next = NULL;
  Err *e = grammar_state_accept(s, p, n, &next);
  bool ok = !e && next && grammar_state_may_end(next);
  err_free(e);
  grammar_state_unref(s);
  grammar_state_unref(next);
  return ok;
}

/* ---- what replies are read as ---- */

static json_t *message_of(const TextChat *c, const json_t *tools, const char *p, size_t n, size_t cut, size_t step) {
  TextReplyOptions o = {.tools = tools, .id_seed = 7};
  TextReply *r = text_reply_new(c->syntax, c->reason, &o);
  TextCollect collect = {0};
  for (size_t at = 0; at < n;) {
    size_t k = MIN(n - at, step);
    if (cut > at) k = MIN(k, cut - at);
    text_reply_feed(r, p + at, k, text_collect_event, &collect);
    at += k;
  }
  text_reply_end(r, text_collect_event, &collect);
  json_t *message = text_collect_message(&collect);
  text_collect_free(&collect);
  text_reply_free(r);
  return message;
}

static void check_call(const char *label, const json_t *message, size_t i, const char *name, const char *args, const char *text) {
  const json_t *f = json_object_get(json_array_get(json_object_get(message, "tool_calls"), i), "function");
  const char *own = json_string_value(json_object_get(f, "name")), *own_args = json_string_value(json_object_get(f, "arguments"));
  EXPECT(own && !strcmp(own, name) && own_args && !strcmp(own_args, args), "%s: %s is read as %s(%s)", label, text, own ? own : "none", own_args ? own_args : "");
}

static Grammar *calls_of(const char *label, const TextChat *c, const json_t *tools, bool many, bool may_answer) {
  TextCallsOptions o = {.tools = tools, .many = many, .may_answer = may_answer};
  Grammar *g = NULL;
  Err *e = text_chat_calls(c, &o, &g);
  EXPECT(!e, "%s: %s", label, e ? err_text(e) : "");
  err_free(e);
  return g;
}

/* A reply may be cut anywhere. Then what stands behind a call that is whole is what came of the next one, the separator of a list in front
   of it or not, and nothing of what closes the first. */
static void check_cuts(const char *label, const TextChat *c, const json_t *tools, const char *p, size_t n, int *n_rests) {
  for (size_t cut = 1; cut < n; cut++) {
    json_t *message = message_of(c, tools, p, cut, 0, cut);
    const char *content = json_string_value(json_object_get(message, "content"));
    if (json_array_size(json_object_get(message, "tool_calls")) == 1 && content) {
      const char *rest = content + (*content == ','), *torn = strstr(content, "\xEF\xBF\xBD");
      while (*rest == ' ' || *rest == '\n') rest++;
      size_t k = torn && !torn[3] ? (size_t)(torn - rest) : strlen(rest);
      bool ok = *rest == '{';
      for (int i = 0; i < REPLY_MAX_PATTERNS && c->syntax->pattern[i]; i++) {
        ToolPattern one;
        tool_pattern_compile(c->syntax->pattern[i], &one);
        size_t n_open = one.is_bare ? 0 : MIN((size_t)one.part[0].n, k);
        ok |= n_open && !memcmp(one.part[0].text, rest, n_open);
      }
      EXPECT(ok, "%s: behind a call that was whole: %s", label, content);
      (*n_rests)++;
    }
    json_decref(message);
  }
}

/* Calls that are wrong in one thing each. A text that stands where a number is wanted is "often": 3 in syntaxes that do not say. */
static const char *const wrong_calls[] = {
  "[[\"look\", {\"what\": \"a b\", \"often\": \"x\"}]]", "[[\"look\", {\"what\": \"a b\", \"often\": 3.5}]]", "[[\"look\", {\"what\": \"a b\", \"often\": null}]]",
  "[[\"look\", {\"what\": \"a b\", \"often\": [3]}]]", "[[\"look\", {\"what\": \"a b\"}]]", "[[\"look\", {\"often\": 3}]]", "[[\"look\", {}]]",
  "[[\"look\", {\"what\": \"a b\", \"often\": 3, \"more\": 1}]]", "[[\"look\", {\"what\": \"a b\", \"oftem\": 3}]]", "[[\"lock\", {\"what\": \"a b\", \"often\": 3}]]",
};

static void check_known(const char *label, const TextChat *c, int *n_known, int *n_pairs, int *n_rests) {
  json_t *tools = parsed(known_tools);
  Grammar *one = calls_of(label, c, tools, false, false), *many = calls_of(label, c, tools, true, false), *text = calls_of(label, c, tools, true, true);
  Str shown = {0};
  size_t at = 0, n = 0;
  if (one && many && text && rendered_calls(c, tools, "[[\"look\", {\"what\": \"a b\", \"often\": 3}]]", &shown)) {
    GrammarMatcher *m = grammar_matcher_new(one, NULL), *more = grammar_matcher_new(many, NULL), *free_text = grammar_matcher_new(text, NULL);
    n = longest(m, &shown, &at);
    json_t *message = message_of(c, tools, shown.p + at, n ? n : shown.n, 0, shown.n);
    size_t n_read = json_array_size(json_object_get(message, "tool_calls"));
    EXPECT(n > 0 || !n_read, "%s: nothing of %s is a call", label, shown.p + (shown.n > 300 ? shown.n - 300 : 0));
    if (n) check_call(label, message, 0, "look", strstr(shown.p + at, "often") < strstr(shown.p + at, "what") ? "{\"often\": 3, \"what\": \"a b\"}" : "{\"what\": \"a b\", \"often\": 3}", shown.p + at);
    json_decref(message);
    EXPECT(!n || takes(free_text, shown.p + at, n), "%s: no call of an answer: %.*s", label, (int)n, shown.p + at);
    *n_known += n > 0;
    for (size_t i = 0; i < COUNT_OF(wrong_calls); i++) {
      str_clear(&shown);
      if (!rendered_calls(c, tools, wrong_calls[i], &shown)) continue;
      EXPECT(!longest(m, &shown, &at), "%s: %s is taken", label, wrong_calls[i]);
    }
    str_clear(&shown);
    if (rendered_calls(c, tools, "[[\"look\", {\"what\": \"a b\", \"often\": 3}], [\"stop\", {}]]", &shown)) {
      size_t k = longest(m, &shown, &at);
      n = longest(more, &shown, &at);
      message = message_of(c, tools, shown.p + at, n, 0, n);
      if (json_array_size(json_object_get(message, "tool_calls")) == 2) {
        check_cuts(label, c, tools, shown.p + at, n, n_rests);
        (*n_pairs)++;
        check_call(label, message, 1, "stop", "{}", shown.p + at);
        EXPECT(k < n && takes(free_text, shown.p + at, n), "%s: both calls, not one, where several may come", label);
      }
      json_decref(message);
    }
    grammar_matcher_free(m);
    grammar_matcher_free(more);
    grammar_matcher_free(free_text);
  }
  str_free(&shown);
  grammar_free(one);
  grammar_free(many);
  grammar_free(text);
  json_decref(tools);
}

/* ---- every kind of value as the template writes it ---- */

static const char *const typed_tools =
  "[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{"
  "\"s\":{\"type\":\"string\",\"description\":\"d\"},\"i\":{\"type\":\"integer\",\"description\":\"d\"},\"n\":{\"type\":\"number\",\"description\":\"d\"},\"b\":{\"type\":\"boolean\",\"description\":\"d\"},"
  "\"z\":{\"type\":[\"string\",\"null\"],\"description\":\"d\"},\"e\":{\"type\":\"string\",\"enum\":[\"서울\",\"b c\"],\"description\":\"d\"},\"t\":{\"type\":\"array\",\"description\":\"d\",\"items\":{\"type\":\"string\"}},"
  "\"o\":{\"type\":\"object\",\"description\":\"d\",\"properties\":{\"lat\":{\"type\":\"number\"},\"open\":{\"type\":\"boolean\"},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},\"no\":{\"type\":\"null\"}},\"additionalProperties\":false},"
  "\"a\":{\"type\":\"array\",\"description\":\"d\",\"items\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":[\"integer\",\"null\"]}}}}}}}}]";
static const char *const typed_args[] = {
  "{}", "{\"s\": \"a\"}", "{\"s\": \"\"}", "{\"s\": \"한국어 \\\"q\\\" \\\\ / 'x'\"}", "{\"s\": \"line 1\\nline 2\\n\"}", "{\"s\": \" <b> & </x> \"}", "{\"s\": \"0042\"}", "{\"s\": \"true\"}", "{\"s\": \"null\"}",
  "{\"s\": \"{\\\"a\\\": 1}\"}", "{\"s\": \"\\t\\u0001\"}", "{\"i\": 3}", "{\"i\": -3}", "{\"i\": 0}", "{\"i\": 12345678901}", "{\"n\": 1.5}", "{\"n\": -0.25}", "{\"n\": 1e-07}", "{\"n\": 2}", "{\"n\": 1e+22}",
  "{\"b\": true}", "{\"b\": false}", "{\"z\": null}", "{\"z\": \"x\"}", "{\"e\": \"서울\"}", "{\"e\": \"b c\"}", "{\"t\": [\"x\", \"y\\\"z\"]}", "{\"t\": []}", "{\"o\": {}}",
  "{\"o\": {\"lat\": 37.5, \"open\": true, \"tags\": [\"a\", \"한\"], \"no\": null}}", "{\"a\": [{\"name\": \"K \\\"J\\\"\", \"age\": null}, {\"name\": \"\", \"age\": 3}]}", "{\"a\": []}",
  "{\"s\": \"a\", \"i\": 1, \"b\": true, \"e\": \"b c\"}", "{\"b\": false, \"s\": \"x y\", \"n\": 3.5}",
};

enum { PROMPT_TAIL = 24 }; /* of a prompt, bytes that a call may begin with */

/* Where the answer's own bytes begin: behind what a prompt and a conversation share. */
static size_t answer_at(const TextChat *c, const json_t *tools, const Str *shown) {
  json_t *body = json_pack("{s:[{s:s, s:s}], s:O}", "messages", "role", "user", "content", "q", "tools", tools), *request = NULL, *own = NULL;
  Str prompt = {0};
  size_t n = 0;
  Err *e = text_chat_request(c, TEXT_CHAT_COMPLETIONS, body, &request, &own);
  if (!e) e = text_chat_render(c, request, &now, &prompt, NULL);
  while (!e && n < prompt.n && n < shown->n && prompt.p[n] == shown->p[n]) n++;
  err_free(e);
  str_free(&prompt);
  json_decref(request);
  json_decref(own);
  json_decref(body);
  return n;
}

/* The one call in the text, from some place in front of it on, is `want`. */
static bool reads_as(const TextChat *c, const json_t *tools, const Str *text, const json_t *want) {
  bool same = false;
  for (size_t k = 0; k < text->n && k <= PROMPT_TAIL && !same; k++) {
    json_t *message = message_of(c, tools, text->p + k, text->n - k, 0, text->n), *calls = json_object_get(message, "tool_calls");
    json_t *got = json_array_size(calls) == 1 ? parsed(json_string_value(json_object_get(json_object_get(json_array_get(calls, 0), "function"), "arguments"))) : NULL;
    same = json_equal(got, want);
    json_decref(got);
    json_decref(message);
  }
  return same;
}

/* What the template writes for a call is read back as that call, and its grammar takes it, also where it is one of text and calls. */
static void check_typed(const char *label, const TextChat *c, int *n_typed) {
  json_t *tools = parsed(typed_tools);
  Grammar *g = calls_of(label, c, tools, false, false), *t = calls_of(label, c, tools, true, true);
  GrammarMatcher *m = g ? grammar_matcher_new(g, NULL) : NULL, *free_text = t ? grammar_matcher_new(t, NULL) : NULL;
  for (size_t i = 0; m && free_text && i < COUNT_OF(typed_args); i++) {
    Str shown = {0}, call = {0};
    str_addf(&call, "[[\"look\", %s]]", typed_args[i]);
    if (rendered_calls(c, tools, call.p, &shown)) {
      size_t start = answer_at(c, tools, &shown), at = 0;
      start -= MIN(start, (size_t)PROMPT_TAIL);
      Str answer = {.p = shown.p + start, .n = shown.n - start};
      json_t *want = parsed(typed_args[i]);
      size_t n = longest(m, &answer, &at);
      EXPECT(reads_as(c, tools, &answer, want), "%s: %s is not read back from %s", label, typed_args[i], answer.p);
      EXPECT(n > 0 && takes(free_text, answer.p + at, n), "%s: %s is not taken: %s", label, typed_args[i], answer.p);
      json_decref(want);
      (*n_typed)++;
    }
    str_free(&shown);
    str_free(&call);
  }
  grammar_matcher_free(m);
  grammar_matcher_free(free_text);
  grammar_free(g);
  grammar_free(t);
  json_decref(tools);
}

/* ---- walks ---- */

/* A real vocabulary, and the markers of the syntax twice: as special tokens and as plain ones. */
typedef struct Tokens { const GrammarVocab *base; GrammarVocab *all; Str text; size_t at[64]; int n; } Tokens;

static void marker_add(Tokens *t, const char *p, size_t n) {
  while (n && strchr(" \n", p[n - 1])) n--;
  while (n && strchr(" \n", *p)) p++, n--;
  if (n < 2 || t->n + 2 > 62) return;
  for (int special = 0; special < 2; special++) {
    t->at[t->n++] = t->text.n;
    if (special) str_add_c(&t->text, (char)0xFF);
    str_add_n(&t->text, p, n);
  }
}

static void tokens_open(Tokens *t, const GrammarVocab *base, const TextSyntax *syntax) {
  *t = (Tokens){.base = base};
  for (int i = 0; i < REPLY_MAX_PATTERNS && syntax->pattern[i]; i++) {
    ToolPattern p;
    tool_pattern_compile(syntax->pattern[i], &p);
    for (int k = 0; k < p.n_parts; k++)
      if (p.part[k].kind == TOOL_LITERAL) marker_add(t, p.part[k].text, (size_t)p.part[k].n);
  }
  for (int i = 0; i < REPLY_MAX_NOISE && syntax->noise[i]; i++) marker_add(t, syntax->noise[i], strlen(syntax->noise[i]));
  marker_add(t, "<|\"|>", 5);
  marker_add(t, "<|channel|>", 11);
  t->at[t->n] = t->text.n;
  int n_base = grammar_vocab_n_tokens(base), n = n_base + t->n;
  const uint8_t **p = calloc((size_t)n, sizeof *p);
  uint32_t *len = calloc((size_t)n, sizeof *len);
  CHECK(p && len);
  for (int i = 0; i < n; i++) {
    size_t k = 0;
    if (i < n_base) p[i] = grammar_vocab_bytes(base, i, &k);
    else p[i] = (const uint8_t *)t->text.p + t->at[i - n_base], k = t->at[i - n_base + 1] - t->at[i - n_base];
    if (i < n_base && p[i] && memchr(p[i], 0xFF, k)) p[i] = NULL, k = 0;
    len[i] = (uint32_t)k;
  }
  EXPECT_OK(grammar_vocab_from_bytes(p, len, n, &t->all));
  free(p);
  free(len);
}

static void tokens_close(Tokens *t) {
  grammar_vocab_free(t->all);
  str_free(&t->text);
}

/* One of the tokens that may come; every other time one that ends or marks something, if there is one. */
static int choose(const Tokens *t, const uint64_t *mask, bool ends) {
  int any = -1, n = 0, mark = -1, n_marks = 0;
  for (int k = 0; k < grammar_vocab_n_tokens(t->all); k++) {
    size_t len;
    if (!(mask[k / 64] >> (k % 64) & 1)) continue;
    if (!rng((uint32_t)++n)) any = k;
    const uint8_t *p = grammar_vocab_bytes(t->all, k, &len);
    bool is_mark = strchr("<\"')]}>", *p) || *p == 0xFF || (len == 1 && strchr(",\n", *p));
    if (is_mark && !rng((uint32_t)++n_marks)) mark = k;
  }
  return mark >= 0 && (ends || rng(2)) ? mark : any;
}

static void check_arguments(const char *label, const json_t *tools, const json_t *message, const char *text) {
  const json_t *calls = json_object_get(message, "tool_calls"), *call;
  size_t i, k;
  json_array_foreach((json_t *)calls, i, call) {
    const json_t *f = json_object_get(call, "function"), *tool;
    const char *name = json_string_value(json_object_get(f, "name")), *args = json_string_value(json_object_get(f, "arguments"));
    bool ok = false;
    json_array_foreach((json_t *)tools, k, tool) {
      const json_t *own = json_object_get(tool, "function");
      Grammar *g = NULL;
      if (strcmp(json_string_value(json_object_get(own, "name")), name)) continue;
      EXPECT_OK(grammar_from_schema(json_object_get(own, "parameters"), GRAMMAR_ANY_ORDER, &g));
      GrammarMatcher *m = grammar_matcher_new(g, NULL);
      ok = takes(m, args, strlen(args));
      grammar_matcher_free(m);
      grammar_free(g);
    }
    EXPECT(ok, "%s: %s(%s) of %s does not satisfy the schema", label, name, args, text);
  }
}

/* The whole, and cut in two at every byte: the same message. */
static void check_walk(const char *label, const TextChat *c, const json_t *tools, const Str *text, bool is_required) {
  json_t *whole = message_of(c, tools, text->p, text->n, 0, text->n), *content = json_object_get(whole, "content");
  size_t n_calls = json_array_size(json_object_get(whole, "tool_calls"));
  EXPECT(n_calls > 0 || !is_required, "%s: %s is no call", label, text->p);
  EXPECT(!is_required || json_is_null(content), "%s: content %s of %s", label, json_string_value(content), text->p);
  check_arguments(label, tools, whole, text->p);
  for (size_t cut = 1; cut <= text->n; cut++) {
    json_t *split = message_of(c, tools, text->p, text->n, cut, cut == text->n ? 1 : text->n);
    EXPECT(json_equal(whole, split), "%s: cut at %zu of %s", label, cut, text->p);
    json_decref(split);
  }
  json_decref(whole);
}

/* The mask is what accepting says, for tokens by chance and the markers. */
static void check_mask(const char *label, GrammarState *s, const Tokens *t, const uint64_t *mask) {
  int n = grammar_vocab_n_tokens(t->all), n_base = grammar_vocab_n_tokens(t->base);
  for (int i = 0; i < 300 + n - n_base; i++) {
    int k = i < 300 ? (int)rng((uint32_t)n_base) : n_base + i - 300;
    size_t len;
    GrammarState *next = NULL;
    if (!grammar_vocab_bytes(t->all, k, &len)) continue;
    EXPECT_OK(grammar_state_accept_token(s, k, &next));
    EXPECT((next != NULL) == (mask[k / 64] >> (k % 64) & 1), "%s: token %d is %s, the mask says else", label, k, next ? "accepted" : "refused");
    grammar_state_unref(next);
  }
}

/* True: it came to an end. */
static bool walk(const char *label, const TextChat *c, const json_t *tools, GrammarMatcher *m, const Tokens *t, uint64_t *mask, bool is_required) {
  GrammarState *s = grammar_state_start(m), *next = NULL;
  Str text = {0};
  bool over = false;
  for (int i = 0; i < STEPS && !over && text.n < TEXT_MAX_BYTES; i++) {
    EXPECT_OK(grammar_state_mask(s, mask));
    if (!rng(4)) check_mask(label, s, t, mask);
    int k = choose(t, mask, i > STEPS / 3);
    over = k < 0 || (grammar_state_may_end(s) && (is_required ? !rng(3) : i > 30));
    EXPECT(k >= 0 || grammar_state_may_end(s), "%s: a dead end after %s", label, text.p ? text.p : "");
    if (over) break;
    size_t n;
    const uint8_t *p = grammar_vocab_bytes(t->all, k, &n);
    str_add_n(&text, p + (*p == 0xFF), n - (*p == 0xFF));
    EXPECT_OK(grammar_state_accept_token(s, k, &next));
    EXPECT(next != NULL, "%s: token %d is in the mask but not accepted", label, k);
    grammar_state_unref(s);
    s = next;
  }
  if (over && text.n) check_walk(label, c, tools, &text, is_required);
  grammar_state_unref(s);
  str_free(&text);
  return over;
}

static void check_walks(const char *label, const TextChat *c, const GrammarVocab *base, int *n_walks, int *n_over) {
  json_t *tools = parsed(walked_tools);
  Tokens t;
  tokens_open(&t, base, c->syntax);
  uint64_t *mask = calloc(grammar_vocab_mask_words(t.all) + 1, sizeof *mask);
  for (int how = 0; how < 2; how++) {
    Grammar *g = calls_of(label, c, tools, true, how == 1);
    if (!g) continue;
    GrammarMatcher *m = grammar_matcher_new(g, t.all);
    for (int i = 0; i < WALKS; i++) (*n_walks)++, *n_over += walk(label, c, tools, m, &t, mask, !how);
    grammar_matcher_free(m);
    grammar_free(g);
  }
  free(mask);
  tokens_close(&t);
  json_decref(tools);
}

/* ---- tools whose schemas cannot be enforced ---- */

static bool relaxed_takes(const TextChat *c, const json_t *tools, const char *call, const char *part_of_told) {
  Grammar *g = NULL;
  Str told = {0};
  TextCallsOptions o = {.tools = tools, .many = true, .flags = GRAMMAR_RELAX};
  EXPECT_OK(text_chat_calls_relaxed(c, &o, &g, &told));
  EXPECT(part_of_told ? told.n && strstr(told.p, part_of_told) : !told.n, "told: %s", told.n ? told.p : "nothing");
  GrammarMatcher *m = grammar_matcher_new(g, NULL);
  bool ok = takes(m, call, strlen(call));
  grammar_matcher_free(m);
  grammar_free(g);
  str_free(&told);
  return ok;
}

static void check_relaxed(void) {
  static const char form[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"x\":%s,\"n\":{\"type\":\"integer\"}},\"required\":[\"x\",\"n\"]%s}}}]";
  static const struct { const char *x, *more, *told; } rows[] = {
    {"{\"type\":\"string\",\"pattern\":\"\\\\d\",\"maxLength\":100000}", "", "tool \"f\": #/properties/x: a length of 100000"},
    {"{\"type\":\"string\",\"pattern\":\"[\"}", "", "#/properties/x/pattern"}, {"{\"type\":\"strin\"}", "", "#/properties/x/type"},
    {"{\"$ref\":\"#/nope\"}", "", "nothing stands at"}, {"{\"type\":\"string\"}", ",\"minProperties\":40000", "minProperties"},
  };
  Arena *a = arena_new("template");
  Str src = {0};
  TextChat *c;
  EXPECT_OK(os_read_file("tests/text/templates/templates/Qwen-Qwen3-0.6B.jinja", 1 << 20, &src));
  EXPECT_OK(text_chat_new(a, src.p, src.n, NULL, &c));
  for (size_t i = 0; i < COUNT_OF(rows); i++) {
    char text[600];
    Grammar *g = NULL;
    bool all = *rows[i].more;            /* then nothing of the tool can be enforced */
    snprintf(text, sizeof text, form, rows[i].x, rows[i].more);
    json_t *tools = parsed(text);
    EXPECT(relaxed_takes(c, tools, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"1\", \"n\": 1}}\n</tool_call>", rows[i].told), "%s", text);
    EXPECT(relaxed_takes(c, tools, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"1\", \"n\": \"a\"}}\n</tool_call>", rows[i].told) == all, "%s: what can be enforced is", text);
    Err *e = text_chat_calls_relaxed(c, &(TextCallsOptions){.tools = tools}, &g, &src);
    EXPECT(e != NULL && !g, "%s is refused where nothing may be relaxed", text);
    err_free(e);
    json_decref(tools);
  }
  str_free(&src);
  arena_free(a);
}

/* ---- all templates ---- */

typedef struct Sums { int n_templates, n_known, n_pairs, n_rests, n_typed, n_walks, n_over; char seen[64][40]; int n_seen; } Sums;

static void note_syntax(Sums *s, const char *name) {
  for (int i = 0; i < s->n_seen; i++)
    if (!strcmp(s->seen[i], name)) return;
  snprintf(s->seen[s->n_seen++], sizeof s->seen[0], "%s", name);
}

static void check_file(const char *path, const json_t *special, const GrammarVocab *v, Sums *sums) {
  Arena *a = arena_new("template");
  Str src = {0};
  TextChat *c = NULL;
  const char *label = strrchr(path, '/') + 1;
  EXPECT_OK(os_read_file(path, 1 << 22, &src));
  EXPECT_OK(text_chat_new(a, src.p, src.n, special, &c));
  if (c) {
    note_syntax(sums, text_syntax_name(c->syntax));
    sums->n_templates++;
    check_known(label, c, &sums->n_known, &sums->n_pairs, &sums->n_rests);
    check_typed(label, c, &sums->n_typed);
    check_walks(label, c, v, &sums->n_walks, &sums->n_over);
  }
  str_free(&src);
  arena_free(a);
}

static void check_all(const GrammarVocab *v, Sums *sums) {
  static const char *const globs[] = {"tests/text/templates/templates/*.jinja", "tests/reply/templates/*.jinja"};
  json_t *about = json_load_file("tests/text/templates/templates.json", 0, NULL);
  for (size_t k = 0; k < COUNT_OF(globs); k++) {
    glob_t files;
    EXPECT(!glob(globs[k], 0, NULL, &files), "no templates");
    for (size_t i = 0; i < files.gl_pathc; i++) {
      char name[200];
      snprintf(name, sizeof name, "%s", strrchr(files.gl_pathv[i], '/') + 1);
      *strstr(name, ".jinja") = 0;
      TEST(name) check_file(files.gl_pathv[i], json_object_get(json_object_get(about, name), "special_tokens"), v, sums);
    }
    globfree(&files);
  }
  json_decref(about);
}

int main(void) {
  Sums sums = {0};
  TextVocab *tv = NULL;
  GrammarVocab *v = NULL;
  TEST("a vocabulary") {
    EXPECT_OK(text_vocab_open("tests/text/tokenizers/smollm2", &tv));
    EXPECT_OK(grammar_vocab_new(tv, &v));
  }
  check_all(v, &sums);
  TEST("a tool whose schema cannot be enforced, where that is allowed") check_relaxed();
  TEST("every row of toolcall.def was there") {
#define SYNTAX(name, detect, pattern, noise) note_syntax(&sums, #name), n_rows++;
    int n_rows = 0, n = sums.n_seen;
#include "text/toolcall.def"
#undef SYNTAX
    EXPECT(sums.n_seen == n && n == n_rows, "%d of %d rows, the first missing: %s", n, n_rows, sums.seen[n]);
  }
  TEST("pairs and walks that came to an end") {
    EXPECT(sums.n_templates >= 58 && sums.n_known >= 55 && sums.n_pairs >= 36 && sums.n_rests > 1000 && sums.n_typed >= 55 * (int)COUNT_OF(typed_args), "%d templates, %d that show calls, %d two of them, %d cut texts, %d kinds of values",
           sums.n_templates, sums.n_known, sums.n_pairs, sums.n_rests, sums.n_typed);
    EXPECT(sums.n_over * 10 >= sums.n_walks * 9, "%d of %d walks", sums.n_over, sums.n_walks);
  }
  if (getenv("LUMEN_SHOW")) fprintf(stderr, "%d templates, %d known, %d pairs, %d walks, %d over\n", sums.n_templates, sums.n_known, sums.n_pairs, sums.n_walks, sums.n_over);
  grammar_vocab_free(v);
  text_vocab_free(tv);
  TEST_MAIN_END();
}
