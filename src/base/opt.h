/* opt: command line options as rows. A command lists its rows once and gets a struct, a parser and a help text.

     #define SHOW_ROWS(X, T)                                                                   \
       X(T, json,    'j', FLAG, "",     NULL,  0, 0,       "print JSON")                         \
       X(T, n_lines,   0, INT,  "N",    "40",  1, 1000000, "lines to print at most")
     OPT_DEFINE(ShowOpts, SHOW_ROWS)          -> typedef struct ShowOpts {..} and static const OptRow ShowOpts_rows[]
     ShowOpts o; OptRest rest;
     TRY(opt_parse(arena, ShowOpts_rows, COUNT_OF(ShowOpts_rows), argc, argv, &o, &rest));

   A field n_lines is the option --n-lines. Forms: --name value, --name=value, -x value, -xvalue, --flag, --no-flag, "--" ends options, "-" alone is an operand. */
#ifndef LUMEN_OPT_H
#define LUMEN_OPT_H
#include "base/base.h"

typedef enum OptKind {
  OPT_FLAG,   /* bool */
  OPT_INT,    /* int64_t; 4k, 2m, 1g count in 1024s; lo <= value <= hi unless both are 0 */
  OPT_FLOAT,  /* double; lo <= value <= hi unless both are 0 */
  OPT_STR,    /* const char *, borrowed from argv */
  OPT_IN,     /* const char *: a file that is read whole; "-" is standard input, which one of them may be */
  OPT_LIST,   /* OptList: given again, it adds */
  OPT_OUT     /* const char *: "-" where it stands alone; --name=FILE, --name -, and --name FILE where FILE ends as the row's arg does (FILE.json) */
} OptKind;
typedef struct OptList { const char **p; int n, cap; } OptList;
typedef struct OptRow { const char *field; char letter; OptKind kind; const char *arg, *deflt; double lo, hi; const char *help; size_t offset; } OptRow;

/* What a row without a default holds until the user says something. */
#define OPT_INT_NONE INT64_MIN     /* INT; FLOAT holds NaN, STR, IN and OUT NULL, FLAG false, LIST nothing */

#define OPT_TYPE_FLAG  bool
#define OPT_TYPE_INT   int64_t
#define OPT_TYPE_FLOAT double
#define OPT_TYPE_STR   const char *
#define OPT_TYPE_IN    const char *
#define OPT_TYPE_LIST  OptList
#define OPT_TYPE_OUT   const char *
#define OPT_FIELD_(T, field, letter, kind, arg, deflt, lo, hi, help) OPT_TYPE_##kind field;
#define OPT_ROW_(T, field, letter, kind, arg, deflt, lo, hi, help) {#field, letter, OPT_##kind, arg, deflt, lo, hi, help, offsetof(T, field)},
#define OPT_DEFINE(T, ROWS)                         \
  typedef struct T { ROWS(OPT_FIELD_, T) } T;       \
  static const OptRow T##_rows[] = {ROWS(OPT_ROW_, T)};

/* Operands in order; given: by row, whether it was there; help: --help or -h was there; stdin_by: the option whose file is standard input, as it is spelled, NULL: none. */
typedef struct OptRest { const char **arg; int n_args, cap; bool *given, help; const char *stdin_by; } OptRest;

/* argv[0] is skipped. Fails: ERR_USAGE, naming the option, what it got and what it takes; a near name is suggested. */
Err *opt_parse(Arena *a, const OptRow *rows, size_t n_rows, int argc, char **argv, void *out, OptRest *rest);
const char *opt_name(Arena *a, const OptRow *r); /* as it is spelled: --n-lines */
/* "usage: lumen USAGE", the text about it, one line per row with its default. */
void opt_help(FILE *f, const char *usage, const char *about, const OptRow *rows, size_t n_rows);
/* "did you mean" among names; NULL when nothing is near. */
const char *opt_nearest(const char *name, const char *const *names, size_t n);
#endif
