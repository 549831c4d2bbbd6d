/* cmd: the program `lumen`. main.c finds the subcommand, a row of commands.def; each has a file of its own with `int cmd_NAME(argc, argv)`,
   argv[0] being its name and --help among what it takes. Only the answer goes to standard output; everything else to standard error. */
#ifndef LUMEN_CMD_H
#define LUMEN_CMD_H
#include "base/base.h"
#include "base/opt.h"
#include "file/file.h"
#include "model/model.h"
#include "text/grammar.h"

/* The exit codes, documented in docs/commands.md. */
typedef enum CmdExit { CMD_OK = 0, CMD_FAILED = 1, CMD_USAGE = 2, CMD_INTERRUPTED = 130 } CmdExit;

typedef struct Command {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *args, *help;     /* one line each */
  const char *more;            /* remarks below the options in `lumen help NAME`, lines ended by \n; "" if there is nothing to add */
} Command;
extern const Command cmd_table[];
extern const int cmd_n;
#define CMD(name, args, help, more) int cmd_##name(int argc, char **argv);
#include "cmd/commands.def"
#undef CMD

/* main.c */
const Command *cmd_find(const char *name);                   /* NULL if there is none */
int cmd_fail(const char *command, Err *e);                   /* prints "lumen COMMAND: text", frees e -> the exit code its kind has */
Err *cmd_fault_of_data(Err *e);                              /* the command line is right, what a file or standard input holds is not: CMD_FAILED */
Err *cmd_fault_of_usage(Err *e);                             /* a word of the command line is wrong: CMD_USAGE */
int cmd_misused(const char *command, const char *fmt, ...)   /* prints the fault and the usage line -> CMD_USAGE */
    __attribute__((format(printf, 2, 3)));
void cmd_tell(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* a line on standard error that begins as cmd_fail's */
const char *cmd_tame(Arena *a, const char *text);            /* a name on one line, its control characters as \xNN; the calls above do so themselves */
bool cmd_flush(void);                                        /* standard output; main tells at the end why it could not be */
/* Parses argv by the rows (NULL, 0: no options) and says what was wrong. True: go on. False: return *code, --help was printed or a fault told. */
bool cmd_options(Arena *a, const OptRow *rows, size_t n_rows, int argc, char **argv, void *out, OptRest *rest, int *code);

bool cmd_is_path(const char *word);                          /* no op and no call of one */

/* output.c */
Err *cmd_output_check(const char *path);                     /* as os_out_check; nor may it be a file of the model's folder */
void cmd_model_note(const char *path);                       /* the model's file or folder is this one */
/* Ctrl-C, and to be told to end: between the two calls the first is noted only, so that what was begun is taken back; the second ends the program. */
void cmd_interrupts_catch(void);
void cmd_interrupts_leave(void);
bool cmd_interrupted(void);

/* progress.c: a line of a terminal, written over the one before; the caller asks whether standard error is one. more: behind the numbers. */
void cmd_progress(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void cmd_progress_bar(const char *what, uint64_t n_done, uint64_t n_total, const char *more);

/* pull.c: fetches a model. A bar on standard error where that is a terminal, else one line; nothing where quiet. Ctrl-C: ERR_CANCELLED. */
Err *cmd_model_fetch(Arena *a, const char *model, bool quiet, const char **path);
/* models.c: MODEL as the user names it, fetched where it is a name that is known but not here. */
Err *cmd_model_locate(Arena *a, const char *model, const char **path);
void cmd_unused_tell(const char *model, const char *const *name, int n); /* a line on standard error, where there are any */
Err *cmd_model_open(Arena *a, const char *model, const ModelOptions *options, Model **out); /* model_close it */
Err *cmd_model_prepare(Arena *a, const char *model, const ModelOptions *options, Model **out); /* the same, but its weights: model_load */
/* weights.c: MODEL as the user names it, opened for its metadata; tensors have no format. file_weights_close it. */
Err *cmd_weights_open(Arena *a, const char *model, Weights **out);
void cmd_vocab_tell(const TextVocab *v);  /* a line on standard error where something of it is a guess; NULL is fine */
/* What --tokenizer names: a tokenizer file, a folder with one, or a model file; of that *w is the view, to be closed after the vocabulary. */
Err *cmd_tokenizer_open(Arena *a, const char *path, Weights **w, TextVocab **out);
void cmd_relaxed_tell(const char *lines); /* what GRAMMAR_RELAX left out, a line each; NULL is fine */
/* grammar.c: from files that the user names, as os_read_input. */
Err *cmd_gbnf_read(const char *path, Grammar **out);
Err *cmd_schema_read(const char *path, unsigned flags, Grammar **out);
bool cmd_keeps_marker(void *reply, const char *spelling, size_t n); /* for grammar_vocab_new_with: special tokens that stand in calls write their spelling */
#endif
