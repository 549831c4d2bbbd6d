/* replyparts: the rows of toolcall.def and reason.def as reply.c reads them. */
#ifndef LUMEN_TEXT_REPLYPARTS_H
#define LUMEN_TEXT_REPLYPARTS_H
#include "text/reply.h"

enum { REPLY_MAX_DETECT = 3, REPLY_MAX_PATTERNS = 4, REPLY_MAX_NOISE = 6 };
struct TextSyntax {
  const char *name;
  const char *detect[REPLY_MAX_DETECT], *pattern[REPLY_MAX_PATTERNS], *noise[REPLY_MAX_NOISE];
};
typedef enum ReasonWhere { REASON_FIRST, REASON_ANY } ReasonWhere;
struct TextReason {
  const char *name, *detect[REPLY_MAX_DETECT], *open, *close, *closing;
  ReasonWhere where;
  const char *noise[REPLY_MAX_NOISE];
};
bool text_detects(const char *text, size_t n, const char *const *detect);
#endif
