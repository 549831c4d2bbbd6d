/* What other processes made of the processors while something was measured: the system's count of busy time, less our own. In: two moments.
   Out: percent of all processors. */
#include <stdio.h>
#include <unistd.h>
#include "cmd/quiet.h"

/* Seconds all processors worked since the system started; false where the system does not say. */
static bool busy_seconds(double *busy) {
  FILE *f = fopen("/proc/stat", "r");
  char line[256];
  long long t[8] = {0};
  bool ok = f && fgets(line, sizeof line, f) && sscanf(line, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) == 8;
  if (f) fclose(f);
  *busy = (double)(t[0] + t[1] + t[2] + t[5] + t[6] + t[7]) / (double)sysconf(_SC_CLK_TCK); /* all but idle and waiting for disks */
  return ok;
}

CmdQuiet cmd_quiet_now(void) {
  CmdQuiet q = {.t = os_now_ns(), .own = (double)os_process_cpu_ns() * 1e-9};
  q.known = busy_seconds(&q.busy);
  return q;
}

double cmd_others_percent(const CmdQuiet *since) {
  CmdQuiet q = cmd_quiet_now();
  double n = (double)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1), seconds = (double)(q.t - since->t) * 1e-9;
  if (!since->known || !q.known || !(seconds > 0)) return -1;
  return MAX(0, 100 * (q.busy - since->busy - (q.own - since->own)) / (seconds * n));
}

void cmd_others_text(double percent, Str *out) {
  if (percent < 0) str_add(out, "How busy other processes kept the machine is not known.");
  else str_addf(out, "Other processes used %.1f%% of the processors%s.", percent, percent <= CMD_QUIET_PERCENT ? "" : ": NOT QUIET, so the figures say little");
}
