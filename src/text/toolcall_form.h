/* toolcall_form: the forms in which a chat template's calls are written, as grammars need them. */
#ifndef LUMEN_TEXT_TOOLCALL_FORM_H
#define LUMEN_TEXT_TOOLCALL_FORM_H
#include "text/grammar_priv.h"
#include "text/reply.h"

/* Marks in a form's texts: an id, a number that counts the calls. */
enum { TOOL_FORM_ID = 1, TOOL_FORM_COUNTER = 2, TOOL_FORMS_MAX = 8 };
/* before NAME between ARGUMENTS { link NAME between ARGUMENTS } behind */
typedef struct ToolForm {
  const char *opening;       /* what `before` begins with and a reader knows the call by; "": it begins the answer */
  const char *before, *between, *behind;
  const char *link;          /* NULL: one call only */
  const char *lead, *trail;  /* what may stand in front of the first call and behind the last, where the answer is calls */
  bool is_json;              /* the arguments are a JSON object; else as args says */
  bool is_quoted;            /* the name stands in a JSON string */
  bool may_lead;             /* where the answer is calls it may be one of these */
  GrArgs args;
} ToolForm;
/* The first is the template's own. */
typedef struct ToolForms {
  ToolForm f[TOOL_FORMS_MAX]; int n;
  bool is_single;            /* the template shows one call in a turn and no more */
  bool escapes;              /* the template writes what is not ASCII as \u escapes */
  bool ids_vary;             /* it shows ids of any length; else they have nine letters and digits */
  const TextReason *reason;
  const char *think, *resume; /* NULL, or how reasoning may be opened in front of calls, and what stands behind its end */
} ToolForms;
/* All in the arena. Fails: ERR_UNSUPPORTED: calls whose arguments stand in a form that is not known. */
Err *tool_forms_find(Arena *a, const TextChat *c, ToolForms *out);
#endif
