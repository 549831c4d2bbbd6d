/* The options of every command that runs a model, as rows for its own table, and how they open one. A command's struct O has them as fields:
   MODEL_OPTIONS(o) makes the ModelOptions of them. */
#ifndef LUMEN_CMD_MODEL_OPTS_H
#define LUMEN_CMD_MODEL_OPTS_H
#include "base/opt.h"
#include "model/model.h"

#define MODEL_OPT_ROWS_LESS_CONTEXT(X, T)                                                                                                    \
  X(T, threads, 't', INT, "N", "0", 0, 1024, "threads; 0: as many as this process may use")                                     \
  X(T, target, 0, STR, "NAME", NULL, 0, 0, "a target of `lumen doctor`; else the best of this machine")                          \
  X(T, precision, 0, STR, "NAME", NULL, 0, 0, "int8 (activations in 8 bits where the format allows), bf16 or f32; else int8")         \
  X(T, chunk, 0, INT, "N", "0", 0, 1 << 16, "tokens of a prompt read in one step; 0: 512")                                      \
  X(T, kv, 0, STR, "NAME", NULL, 0, 0, "format of keys and values, any that has an encode; else bf16 at int8, f16 at bf16, f32 at f32")       \
  X(T, std, 0, STR, "DIR", NULL, 0, 0, "texts that add to or override the built-in formats, ops and models")                    \
  X(T, perf_map, 0, FLAG, "", NULL, 0, 0, "write /tmp/perf-PID.map, which perf reads")
#define MODEL_OPT_ROWS(X, T)                                                                                                    \
  X(T, context, 'c', INT, "N", "0", 0, 1 << 24, "tokens of prompt and answer to hold; 0: the model's own, at most 8192")        \
  MODEL_OPT_ROWS_LESS_CONTEXT(X, T)

#define MODEL_OPTIONS(o)                                                                                                        \
  ((ModelOptions){.precision = (o)->precision, .target = (o)->target, .kv = (o)->kv, .std_dir = (o)->std,                       \
                  .n_threads = (int)(o)->threads, .context = (o)->context, .chunk = (int)(o)->chunk, .perf_map = (o)->perf_map})
#endif
