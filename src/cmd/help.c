/* `lumen help [COMMAND]`: everything from the rows of commands.def, on standard output. */
#include <string.h>
#include "cmd/cmd.h"

int cmd_help(int argc, char **argv) {
  if (argc > 2) return cmd_misused("help", "takes one command, got %d", argc - 1);
  if (argc == 2) {
    const Command *c = cmd_find(strcmp(argv[1], "--help") && strcmp(argv[1], "-h") ? argv[1] : "help");
    if (!c) return cmd_misused("help", "no command `%s`; `lumen help` lists them", argv[1]);
    if (c->run != cmd_help) return c->run(2, (char *[]){(char *)c->name, (char *)"--help", NULL});
    opt_help(stdout, "help [COMMAND]", c->help, NULL, 0);
    return CMD_OK;
  }
  int width = 0;
  for (int i = 0; i < cmd_n; i++) width = MAX(width, (int)strlen(cmd_table[i].name));
  printf("lumen compiles language models for the machine it stands on, and runs them.\n\nusage: lumen COMMAND ...\n\n");
  for (int i = 0; i < cmd_n; i++) printf("  %-*s  %s\n", width, cmd_table[i].name, cmd_table[i].help);
  printf("\nEvery command takes --help, and --trace STAGE[,STAGE..][@KERNEL][>FILE] (`--trace help` lists the stages).\n"
         "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.\n");
  return CMD_OK;
}
