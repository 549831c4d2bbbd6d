/* `lumen cc`: a text and any stage of its way to machine code. In: a file of declarations, a file of IR, an op's name, or a kernel spec.
   Out: the stage, one function after another; declarations as text that reads back, IR likewise. */
#include <stdlib.h>
#include <string.h>
#include "cmd/cmd.h"
#include "kern/kern.h"

#define CC_ROWS(X, T)                                                                                                           \
  X(T, emit, 'e', STR, "STAGE", "asm", 0, 0, "ast, ir, opt, mach, asm or bin")                                                  \
  X(T, target, 0, STR, "NAME", NULL, 0, 0, "x86-amx, x86-avx512-bf16, x86-avx512, x86-avx512-base, x86-avx2 or x86-sse4, whatever this machine runs; else its best")       \
  X(T, precision, 0, STR, "NAME", "int8", 0, 0, "int8 (activations in 8 bits where the format allows), bf16 or f32")                  \
  X(T, std, 0, STR, "DIR", NULL, 0, 0, "texts that add to or override the built-in formats and ops")
OPT_DEFINE(CcOpts, CC_ROWS)

typedef enum Stage { STAGE_AST, STAGE_IR, STAGE_OPT, STAGE_MACH, STAGE_ASM, STAGE_BIN, N_STAGES } Stage;
static const char *const stage_name[N_STAGES] = {"ast", "ir", "opt", "mach", "asm", "bin"};
enum { DEFAULT_DIM = 64, MAX_IR_BYTES = 64 << 20, PACK_BLOCKS = 2 };

typedef struct Cc { Arena *arena; const CcOpts *o; Stage stage; const Target *target; Module *module; int n_fns; } Cc;

/* ---- one function -------------------------------------------------------------------------------------------------- */
static void print_bytes(const GenCode *c) {
  for (size_t i = 0; i < c->n_bytes; i++) printf(i % 32 == 31 || i + 1 == c->n_bytes ? "%02x\n" : "%02x ", c->code[i]);
}

static Err *emit_fn(Cc *c, IrFn *fn, bool optimized) {
  Str s = {0};
  if (c->n_fns++) putchar('\n');
  TRY(ir_fn_verify(fn));
  if (c->stage >= STAGE_OPT && !optimized) TRY(opt_pipeline(fn));
  if (c->stage <= STAGE_OPT) {
    ir_fn_print(fn, &s);
    fputs(s.p, stdout);
    str_free(&s);
    return NULL;
  }
  GenCode code;
  GenOptions opt = {.want_text = c->stage == STAGE_ASM, .mach = c->stage == STAGE_MACH ? &s : NULL};
  Err *e = gen_compile(c->arena, fn, c->target, &opt, &code);
  if (e) {
    str_free(&s);
    return err_wrap(e, "fn @%s", fn->name);
  }
  printf("; %s for %s: %zu bytes, %d instructions, %d spills\n", fn->name, c->target->name, code.n_bytes, code.n_ins, code.n_spills);
  if (c->stage == STAGE_BIN) print_bytes(&code);
  else fputs(c->stage == STAGE_MACH ? s.p ? s.p : "" : code.text ? code.text : "", stdout);
  str_free(&s);
  return NULL;
}

/* ---- what to compile ----------------------------------------------------------------------------------------------- */
static Err *emit_spec(Cc *c, const KernCall *call) {
  KernSpec *s;
  TRY(kern_call_build(c->arena, c->module, call, c->o->precision, &s));
  KernShape shape = s->tp->n_syms == 0 ? KERN_ONE : s->sym[0] < 1 ? KERN_MANY : kern_shape(s->sym[0]);
  DevCpu cpu;
  dev_cpu_detect(&cpu);
  printf("; %s\n", s->text);
  for (int i = 0; i < s->plan->n_regions; i++) {
    const TpRegion *r = &s->plan->region[i];
    Sched sched = kern_sched(c->target, cpu.l2_bytes ? cpu.l2_bytes : 512 << 10, s->plan, i, shape);
    IrFn *fn;
    int64_t scratch_bytes;
    TRY(lower_region(c->arena, s->plan, i, &sched, r->name, &fn, &scratch_bytes));
    TRY(emit_fn(c, fn, false));
  }
  return NULL;
}

/* Names in @text may hold what the IR's text takes for a name. */
static Err *emit_format(Cc *c, const FormatDecl *d) {
  FormatForm *f;
  IrFn *fn;
  TRY(format_analyze(c->arena, c->module, d, &f));
  TRY(lower_decode(c->arena, f, arena_printf(c->arena, "decode.%s", d->name), &fn));
  TRY(emit_fn(c, fn, false));
  TRY(lower_pack(c->arena, f, (int64_t)f->block * PACK_BLOCKS, arena_printf(c->arena, "pack.%s", d->name), &fn));
  return emit_fn(c, fn, false);
}

/* An op without dimensions gets some: every dimension 64 elements, rows left open, formats of weights the first of the module, of states f32, numbers 1. */
static KernCall some_call(Cc *c, const OpDecl *op) {
  KernCall call = {.op = op->name, .narrow = c->target->tiles, .dot2 = c->target->dot2};
  KernDim dim[32];
  int n_dims = kern_op_dims(op, dim, 32);
  for (int i = 0; i < op->n_params + op->n_results && call.n_items < KERN_MAX_ITEMS; i++) {
    const Param *p = i < op->n_params ? &op->param[i] : &op->result[i - op->n_params];
    KernItem it = {.name = p->name, .last = -1, .is_int = true, .ival = 1, .fval = 1, .n_dims = MIN(p->type.n_dims, IR_MAX_DIMS)};
    if ((i >= op->n_params && !kern_type_is_format(&p->type)) || p->deflt) continue;
    if (it.n_dims) it.elt = !kern_type_is_format(&p->type) ? p->type.elt : kern_type_is_weight(&p->type) && c->module->n_formats ? c->module->format[0]->name : "f32";
    for (int k = 0; k < it.n_dims; k++) {
      const Expr *e = p->type.dim[k];
      it.dim[k] = e->kind == EX_INT ? e->ival : DEFAULT_DIM;
      for (int d = 0; e->kind == EX_NAME && d < n_dims; d++) if (dim[d].is_rows && !strcmp(dim[d].name, e->name)) it.dim[k] = -1, it.dim_name[k] = e->name;
    }
    call.item[call.n_items++] = it;
  }
  return call;
}

/* Where its text wants one dimension smaller (half of a head is turned), the first that will do is half as long. */
static void make_fit(Cc *c, const OpDecl *op, KernCall *call) {
  KernDim dim[32];
  int n_dims = kern_op_dims(op, dim, 32);
  for (int i = -1; i < n_dims; i++) {
    KernCall with = *call;
    KernSpec *s;
    if (i >= 0 && (dim[i].is_rows || !kern_call_resize(c->module, &with, dim[i].name, DEFAULT_DIM / 2))) continue;
    Err *e = kern_call_build(c->arena, c->module, &with, c->o->precision, &s);
    bool fits = !e;
    err_free(e);
    if (fits) {
      *call = with;
      return;
    }
  }
}

static Err *emit_op(Cc *c, const OpDecl *op) {
  KernCall call = some_call(c, op);
  make_fit(c, op, &call);
  return err_wrap(emit_spec(c, &call), "op %s, its dimensions being %d (a kernel spec gives it others)", op->name, DEFAULT_DIM);
}

static bool is_from(const char *decl_file, const char *file) { return !file || !strcmp(decl_file, file); }

/* The declarations of one file, or of one op, as a module of their own. */
static void print_ast(const Cc *c, const char *file, const char *op) {
  const Module *m = c->module;
  Module part = {.arena = c->arena};
  Str s = {0};
  int n = m->n_formats + m->n_tables + m->n_fns + m->n_ops + m->n_models + 1;
#define PART(field, count, name_ok)                                                                                   \
  part.field = (void *)arena_alloc_array(c->arena, (size_t)n, sizeof *part.field);                                    \
  for (int i = 0; i < m->count; i++) if (name_ok && is_from(m->field[i]->loc.file, file)) part.field[part.count++] = m->field[i];
  PART(format, n_formats, !op)
  PART(table, n_tables, !op)
  PART(fn, n_fns, !op)
  PART(op, n_ops, (!op || !strcmp(m->op[i]->name, op)))
  PART(model, n_models, !op)
#undef PART
  lang_print_module(&part, &s);
  fputs(s.p ? s.p : "", stdout);
  str_free(&s);
}

static Err *emit_file(Cc *c, const char *file) {
  const Module *m = c->module;
  for (int i = 0; i < m->n_formats; i++) if (is_from(m->format[i]->loc.file, file)) TRY(emit_format(c, m->format[i]));
  for (int i = 0; i < m->n_ops; i++) {
    bool first = is_from(m->op[i]->loc.file, file);
    for (int k = 0; k < i; k++) first = first && strcmp(m->op[k]->name, m->op[i]->name);
    if (first) TRY(emit_op(c, m->op[i]));
  }
  return NULL;
}

/* Functions one after another; each begins with a line that starts with "fn @". */
static Err *emit_ir(Cc *c, const char *path) {
  Str text = {0};
  if (c->stage == STAGE_AST) return err_new(ERR_USAGE, "--emit ast: %s holds IR, not declarations", path);
  TRY(os_read_file(path, MAX_IR_BYTES, &text));
  Err *e = text.n ? NULL : err_new(ERR_FORMAT, "%s: empty", path);
  for (char *p = text.p; !e && p && *p;) {
    char *next = strstr(p + 1, "\nfn @");
    IrFn *fn;
    char *one = next ? arena_dup_n(c->arena, p, (size_t)(next - p) + 1) : arena_dup(c->arena, p);
    if (strncmp(one, "fn @", 4) && !strstr(one, "\nfn @") && next) { p = next + 1; continue; } /* remarks in front of the first */
    e = err_wrap(ir_fn_parse(c->arena, one, &fn), "%s", path);
    if (!e) e = emit_fn(c, fn, false);
    p = next ? next + 1 : NULL;
  }
  str_free(&text);
  return e;
}

static bool ends_with(const char *s, const char *end) { return strlen(s) >= strlen(end) && !strcmp(s + strlen(s) - strlen(end), end); }

static Err *cc(Cc *c, const char *what) {
  const CcOpts *o = c->o;
  int stage = 0;
  while (stage < N_STAGES && strcmp(stage_name[stage], o->emit)) stage++;
  if (stage == N_STAGES) {
    const char *near = opt_nearest(o->emit, stage_name, N_STAGES);
    return err_new(ERR_USAGE, "--emit %s: expected ast, ir, opt, mach, asm or bin%s%s%s", o->emit, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
  }
  c->stage = (Stage)stage;
  c->target = o->target ? gen_target_find(o->target) : gen_target_host(kern_cpu());
  if (!c->target && !o->target) c->target = gen_target_get(gen_target_count() - 1);
  if (!c->target) return err_new(ERR_USAGE, "--target %s: no such target; `lumen doctor` lists them", o->target);
  if (ends_with(what, ".ir")) return emit_ir(c, what);
  const char *file = ends_with(what, ".lum") ? what : NULL;
  if (os_is_dir(what) && (file || !strchr(what, ' '))) {     /* an op's name may be that of a folder, too */
    TRY(lang_std_load(c->arena, o->std, &c->module));
    if (!lang_op(c->module, what, 0)) return err_new(ERR_USAGE, "%s: a folder, expected a file that ends in .lum or .ir, an op, or a call of one; --std takes a folder of texts", what);
  }
  if (!file && cmd_is_path(what)) return err_new(ERR_USAGE, "%s: a path, expected a file that ends in .lum or .ir, an op, or a call of one", what);
  TRY(lang_std_load_with(c->arena, o->std, file, &c->module));
  TRY(kern_precision_check(c->arena, c->module, o->precision));
  const OpDecl *op = file ? NULL : lang_op(c->module, what, 0);
  if (c->stage == STAGE_AST) {
    KernCall call;
    if (!file && !op) TRY(kern_call_parse(c->arena, what, &call));
    if (!file && !op && !lang_op(c->module, call.op, 0)) { KernSpec *s; return kern_call_build(c->arena, c->module, &call, o->precision, &s); }
    print_ast(c, file, file ? NULL : op ? op->name : call.op);
    return NULL;
  }
  if (file) return emit_file(c, file);
  if (op) return emit_op(c, op);
  KernCall call;
  TRY(kern_call_parse(c->arena, what, &call));
  call.narrow = c->target->tiles;
  call.dot2 = c->target->dot2;
  return emit_spec(c, &call);
}

int cmd_cc(int argc, char **argv) {
  Arena *a = arena_new("cc");
  CcOpts o;
  OptRest rest;
  int code = CMD_OK;
  if (cmd_options(a, CcOpts_rows, COUNT_OF(CcOpts_rows), argc, argv, &o, &rest, &code)) {
    if (rest.n_args == 0) code = cmd_misused(argv[0], "nothing named to compile");
    else {
      Str s = {0};
      for (int i = 0; i < rest.n_args; i++) str_addf(&s, i ? " %s" : "%s", rest.arg[i]);
      Err *e = cc(&(Cc){.arena = a, .o = &o}, s.p);
      if (e) code = cmd_fail(argv[0], e);
      str_free(&s);
    }
  }
  arena_free(a);
  return code;
}
