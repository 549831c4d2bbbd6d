/* message: what message.c and message_chat.c share. */
#ifndef LUMEN_TEXT_MESSAGE_H
#define LUMEN_TEXT_MESSAGE_H
#include "text/reply.h"

/* For templates that show no calls: each assistant's calls become part of its content, as the model would have written them. */
void text_chat_write_calls(const TextChat *c, json_t *messages);
#endif
