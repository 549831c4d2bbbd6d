/* `lumen render`: a conversation in, the prompt out that the model's own chat template (or a template file) makes of it, byte for byte. */
#include "base/json.h"
#include "cmd/cmd.h"
#include "model/vocab.h"

enum { MAX_REQUEST_BYTES = 256 << 20 };

#define ROWS(X, T)                                                                                                                     \
  X(T, messages,        0, IN,   "FILE", NULL, 0, 0, "JSON: the array of messages, or an object {messages, tools, documents, kwargs}")  \
  X(T, template,        0, IN,   "FILE", NULL, 0, 0, "a Jinja template instead of MODEL's; then --request or --context")               \
  X(T, request,         0, IN,   "FILE", NULL, 0, 0, "JSON: an object {messages, tools, documents, kwargs, special_tokens, now}")      \
  X(T, context,         0, IN,   "FILE", NULL, 0, 0, "JSON: an object with the template's variables")
OPT_DEFINE(RenderOpts, ROWS)

/* MODEL --messages FILE */
static Err *render_model(Arena *a, const char *model, const char *path) {
  json_t *read, *request;
  Weights *w = NULL;
  Str prompt = {0};
  TRY(json_parse_input(path, MAX_REQUEST_BYTES, &read));
  request = json_is_array(read) ? json_pack("{s:O}", "messages", read) : json_incref(read);
  Err *e = json_is_array(json_object_get(request, "messages")) ? NULL : err_new(ERR_FORMAT, "%s: expected an array of messages, or an object that holds one", os_input_name(path));
  if (!e) e = cmd_weights_open(a, model, &w);
  if (!e) e = model_chat_render(a, w, NULL, request, &prompt, NULL);
  if (!e && prompt.n) fwrite(prompt.p, 1, prompt.n, stdout);
  str_free(&prompt);
  json_decref(request);
  json_decref(read);
  file_weights_close(w);
  return e;
}

/* What is wrong with the arguments, NULL if nothing. */
static const char *fault(const RenderOpts *o, const OptRest *rest) {
  if (!o->template && (rest->n_args != 1 || !o->messages)) return "takes a model and --messages FILE, or --template FILE";
  if (!o->template && (o->request || o->context)) return "--request and --context go with --template";
  if (o->template && (rest->n_args || o->messages || !o->request == !o->context)) return "--template takes either --request FILE or --context FILE";
  return NULL;
}

int cmd_render(int argc, char **argv) {
  Arena *a = arena_new("command");
  RenderOpts o;
  OptRest rest;
  int code = CMD_OK;
  if (cmd_options(a, RenderOpts_rows, COUNT_OF(RenderOpts_rows), argc, argv, &o, &rest, &code)) {
    const char *wrong = fault(&o, &rest);
    if (wrong) code = cmd_misused("render", "%s", wrong);
    else {
      TextRenderOptions t = {.template_path = o.template, .request_path = o.request, .context_path = o.context};
      Err *e = o.template ? text_cmd_render(&t, stdout) : render_model(a, rest.arg[0], o.messages);
      /* A template that refuses the conversation gives ERR_USAGE; the command line was right. */
      if (e) cmd_fail("render", e), code = CMD_FAILED;
    }
  }
  arena_free(a);
  return code;
}
