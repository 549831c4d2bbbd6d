/* Whether a measurement had the machine to itself. */
#ifndef LUMEN_CMD_QUIET_H
#define LUMEN_CMD_QUIET_H
#include "base/base.h"

enum { CMD_QUIET_PERCENT = 5 };    /* of all processors: above it figures say little */
typedef struct CmdQuiet { double busy, own; int64_t t; bool known; } CmdQuiet;
CmdQuiet cmd_quiet_now(void);
double cmd_others_percent(const CmdQuiet *since);   /* what other processes used of all processors since then; below 0: not known */
void cmd_others_text(double percent, Str *out);     /* a sentence: NOT QUIET where it is too much */
#endif
