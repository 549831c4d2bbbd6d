/* message: what message.c and message_chat.c share. */
#ifndef LUMEN_TEXT_MESSAGE_H
#define LUMEN_TEXT_MESSAGE_H
#include "text/reply.h"

/* For templates that show no calls: each assistant's calls become part of its content, as the model would have written them. */
void text_chat_write_calls(const TextChat *c, json_t *messages);
/* For templates that show no tools: a system text with their definitions and the form of a call. */
void text_chat_write_tools(const TextChat *c, const json_t *tools, json_t *messages);
/* One call, the index-th of its message, in a pattern's words; its arguments are an object. A marker behind a call that is certain is left out where
   the template has what opens the call and not what closes it: its model was not taught it. */
typedef struct ToolPattern ToolPattern;
void text_chat_write_call(const TextChat *c, Str *out, const ToolPattern *p, const json_t *call, int index);
/* A request's special tokens: the chat's, or empty ones, so that templates that add them to texts render. A new reference. */
json_t *text_chat_special_tokens(const TextChat *c);
/* Definitions with what clients leave out and some templates want: descriptions (empty ones), one type instead of a list. False: they had it all. */
bool text_tools_complete(json_t *tools);
/* An offered tool, qzwordfn, for conversations that show a template's ways. A new reference. */
json_t *text_chat_probe_tools(void);
#endif
