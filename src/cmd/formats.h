/* formats.c: formats by name, for the commands that work on blocks. */
#ifndef LUMEN_CMD_FORMATS_H
#define LUMEN_CMD_FORMATS_H
#include "file/file.h"
#include "kern/kern.h"

Err *cmd_format_find(Arena *a, const Module *m, const char *name, FormatForm **out); /* analyzed; ERR_NOT_FOUND with a near name */
#endif
