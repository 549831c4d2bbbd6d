/* `lumen doctor [--json]`: what this machine offers, and what is missing and what to do about it. Reads /proc, /sys, the CPU's feature bits
   and the cache folder; opens libcurl and the GPU drivers by name to see whether they are there; changes nothing.
   Exit code 0 also where something optional is missing; CMD_FAILED where nothing could run. */
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <jansson.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "cmd/cmd.h"
#include "dev/dev.h"
#include "kern/kern.h"

static const char *const features[] = {
#define FEATURE(name, leaf, subleaf, reg, bit, state, meaning) #name,
#include "dev/cpu.def"
#undef FEATURE
};

/* The library's names, best first. */
static const struct { const char *key, *names[3], *what, *advice; } libraries[] = {
  {"libcurl", {"libcurl.so.4", "libcurl-gnutls.so.4"}, "downloads", "install Debian's libcurl4 to download models"},
  {"cuda", {"libcuda.so.1"}, "NVIDIA driver", ""},
  {"vulkan", {"libvulkan.so.1"}, "Vulkan loader", ""},
};

/* First line of a small file, without white space at its end; "" if it cannot be read. */
static void read_line(const char *path, char *out, size_t n) {
  out[0] = 0;
  FILE *f = fopen(path, "r");
  if (!f) return;
  if (!fgets(out, (int)n, f)) out[0] = 0;
  fclose(f);
  for (size_t k = strlen(out); k && isspace((unsigned char)out[k - 1]);) out[--k] = 0;
}

/* A value of /proc/meminfo in bytes, -1 if it is not there. */
static long long meminfo(const char *key) {
  char line[256];
  long long kib = -1;
  FILE *f = fopen("/proc/meminfo", "r");
  if (!f) return -1;
  while (kib < 0 && fgets(line, sizeof line, f))
    if (!strncmp(line, key, strlen(key)) && line[strlen(key)] == ':') sscanf(line + strlen(key) + 1, "%lld", &kib);
  fclose(f);
  return kib < 0 ? -1 : kib * 1024;
}

/* JSON holds UTF-8 only; a name from the outside may be anything. */
static json_t *any_string(const char *s) {
  json_t *o = json_string(s);
  return o ? o : json_string("(not UTF-8)");
}

static json_t *cpu_report(void) {
  DevCpu cpu;
  struct utsname u = {0};
  cpu_set_t set;
  dev_cpu_detect(&cpu);
  uname(&u);
  int n_allowed = sched_getaffinity(0, sizeof set, &set) ? 0 : CPU_COUNT(&set);
  json_t *here = json_array(), *usable = json_array();
  for (size_t i = 0; i < COUNT_OF(features); i++)
    if (dev_cpu_has(&cpu, features[i])) json_array_append_new(here, json_string(features[i]));
  GenCpu usable_here = kern_cpu();
  for (int i = 0; i < gen_target_count(); i++)
    if (gen_target_runs(gen_target_get(i), usable_here)) json_array_append_new(usable, json_string(gen_target_get(i)->name));
  const char *missing = kern_tiles_missing();
  return json_pack("{s:o, s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:o, s:o, s:s}", "name", any_string(cpu.brand), "machine", u.machine,
                   "online", (int)sysconf(_SC_NPROCESSORS_ONLN), "allowed", n_allowed, "threads", os_n_cpus(), "l1d_bytes", (json_int_t)cpu.l1d_bytes,
                   "l2_bytes", (json_int_t)cpu.l2_bytes, "l3_bytes", (json_int_t)cpu.l3_bytes, "features", here, "targets", usable, "tiles", missing ? missing : "usable");
}

static json_t *memory_report(void) {
  char huge[200], *open, *close;
  read_line("/sys/kernel/mm/transparent_hugepage/enabled", huge, sizeof huge);
  if ((open = strchr(huge, '[')) && (close = strchr(open, ']'))) {   /* "always [madvise] never": the bracketed word rules */
    *close = 0;
    memmove(huge, open + 1, (size_t)(close - open));
  }
  return json_pack("{s:I, s:I, s:s}", "total_bytes", (json_int_t)meminfo("MemTotal"), "available_bytes", (json_int_t)meminfo("MemAvailable"),
                   "huge_pages", huge[0] ? huge : "unknown");
}

/* Files of the cache down to a few levels, largest part of what is there being models; total in bytes. */
static void cache_add(const char *dir, const char *rel, int depth, json_t *files, json_int_t *n_bytes) {
  DIR *d = opendir(dir);
  if (!d) return;
  for (struct dirent *e; (e = readdir(d));) {
    if (e->d_name[0] == '.') continue;
    char *path = NULL, *name = NULL;
    struct stat st;
    if (asprintf(&path, "%s/%s", dir, e->d_name) < 0 || asprintf(&name, "%s%s%s", rel, rel[0] ? "/" : "", e->d_name) < 0)
      CHECK(0, "out of memory for a path");
    if (!stat(path, &st) && S_ISDIR(st.st_mode) && depth > 0) cache_add(path, name, depth - 1, files, n_bytes);
    else if (!stat(path, &st) && S_ISREG(st.st_mode)) {
      *n_bytes += st.st_size;
      json_array_append_new(files, json_pack("{s:o, s:I}", "name", any_string(name), "bytes", (json_int_t)st.st_size));
    }
    free(path);
    free(name);
  }
  closedir(d);
}

static json_t *cache_report(void) {
  Arena *a = arena_new("command");
  const char *dir = os_cache_dir(a);
  json_t *files = json_array();
  json_int_t n_bytes = 0;
  cache_add(dir, "", 3, files, &n_bytes);
  json_t *o = json_pack("{s:o, s:b, s:b, s:I, s:o}", "path", any_string(dir), "exists", os_is_dir(dir), "writable", !access(dir, W_OK), "bytes", n_bytes,
                        "files", files);
  arena_free(a);
  return o;
}

static json_t *library_report(void) {
  json_t *o = json_object();
  for (size_t i = 0; i < COUNT_OF(libraries); i++) {
    const char *found = NULL;
    for (int k = 0; !found && libraries[i].names[k]; k++) {
      void *h = dlopen(libraries[i].names[k], RTLD_LAZY | RTLD_LOCAL);
      if (!h) continue;
      found = libraries[i].names[k];
      dlclose(h);
    }
    json_object_set_new(o, libraries[i].key, found ? json_string(found) : json_null());
  }
  return o;
}

static const char *text(const json_t *o, const char *key) { return json_string_value(json_object_get(o, key)); }
static long long number(const json_t *o, const char *key) { return (long long)json_integer_value(json_object_get(o, key)); }

static void print_list(const char *title, const json_t *words) {
  printf("%s", title);
  for (size_t i = 0; i < json_array_size(words); i++) printf(" %s", json_string_value(json_array_get(words, i)));
  printf("%s\n", json_array_size(words) ? "" : " none");
}

static void print_report(Arena *a, const json_t *o) {
  const json_t *cpu = json_object_get(o, "cpu"), *mem = json_object_get(o, "memory"), *cache = json_object_get(o, "cache"), *f;
  printf("CPU        %s (%s)\n", text(cpu, "name"), text(cpu, "machine"));
  printf("caches     L1 %lld KiB, L2 %lld KiB, L3 %lld KiB\n", number(cpu, "l1d_bytes") >> 10, number(cpu, "l2_bytes") >> 10, number(cpu, "l3_bytes") >> 10);
  print_list("features  ", json_object_get(cpu, "features"));
  print_list("targets   ", json_object_get(cpu, "targets"));
  printf("tiles      %s\n", text(cpu, "tiles"));
  printf("threads    %lld used; %lld CPUs online, affinity allows %lld%s\n", number(cpu, "threads"), number(cpu, "online"), number(cpu, "allowed"),
         number(cpu, "threads") < number(cpu, "allowed") ? ", a quota allows fewer" : "");
  printf("memory     %.1f GiB, %.1f GiB available\n", (double)number(mem, "total_bytes") / (1 << 30), (double)number(mem, "available_bytes") / (1 << 30));
  const char *huge = text(mem, "huge_pages");
  printf("huge pages %s%s\n", huge, !strcmp(huge, "never") ? ": weights are read through small pages, which is slower" : "");
  printf("cache      %s: %s, %zu files, %.1f MiB\n", cmd_tame(a, text(cache, "path")),
         !json_is_true(json_object_get(cache, "exists")) ? "not made yet" : json_is_true(json_object_get(cache, "writable")) ? "writable" : "NOT WRITABLE",
         json_array_size(json_object_get(cache, "files")), (double)number(cache, "bytes") / (1 << 20));
  size_t k;
  json_array_foreach(json_object_get(cache, "files"), k, f) printf("           %10.1f MiB  %s\n", (double)number(f, "bytes") / (1 << 20), cmd_tame(a, text(f, "name")));
  for (size_t i = 0; i < COUNT_OF(libraries); i++) {
    const char *found = text(json_object_get(o, "libraries"), libraries[i].key);
    printf("%-10s %s (%s)%s%s\n", libraries[i].key, found ? found : "not found", libraries[i].what, !found && libraries[i].advice[0] ? ": " : "",
           found ? "" : libraries[i].advice);
  }
}

static int report(Arena *a, bool json) {
  json_t *o = json_pack("{s:o, s:o, s:o, s:o}", "cpu", cpu_report(), "memory", memory_report(), "cache", cache_report(), "libraries", library_report());
  CHECK(o, "out of memory for a report");
  bool runs = json_array_size(json_object_get(json_object_get(o, "cpu"), "targets")) > 0;
  if (json) {
    json_dumpf(o, stdout, JSON_INDENT(2));
    putchar('\n');
  } else print_report(a, o);
  json_decref(o);
  if (!runs) cmd_tell("no target runs here: an x86-64 CPU with SSE4.1 is needed");
  return runs ? CMD_OK : CMD_FAILED;
}

#define ROWS(X, T) X(T, json, 0, FLAG, "", NULL, 0, 0, "print JSON")
OPT_DEFINE(DoctorOpts, ROWS)

int cmd_doctor(int argc, char **argv) {
  Arena *a = arena_new("command");
  DoctorOpts o;
  OptRest rest;
  int code;
  bool go = cmd_options(a, DoctorOpts_rows, COUNT_OF(DoctorOpts_rows), argc, argv, &o, &rest, &code);
  if (go && rest.n_args) code = cmd_misused("doctor", "unknown argument `%s`", rest.arg[0]), go = false;
  if (go) code = report(a, o.json);
  arena_free(a);
  return code;
}
