/* Text to function: reads what print.c writes. White space and line ends only separate; `;` starts a comment to the end of the line.
   Value numbers are kept (a function printed, read and printed again is the same text), so a first glance over the text finds the
   largest; instructions without a result get numbers above it. Values may be used before the line that defines them. The result is
   whole but not yet verified. Errors name line, column, what was expected and, for names, the nearest. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "ir/priv.h"

enum { MAX_VALUE = 1 << 20, MAX_BLOCK = 1 << 20, MAX_NAME = 64 };

typedef struct Parse {
  const char *text, *at;
  IrFn *fn;
  const char **used_at;       /* per value: where it is first used, until the end shows whether it is defined */
  bool *defined;
  int n_named;                /* values below this may be named */
  int max_block;              /* largest block an edge names, and where */
  const char *max_block_at;
} Parse;

static void skip(Parse *p) {
  while (*p->at && (isspace((unsigned char)*p->at) || *p->at == ';')) {
    if (*p->at == ';') while (*p->at && *p->at != '\n') p->at++;
    else p->at++;
  }
}

static Err *error_at(const Parse *p, const char *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static Err *error_at(const Parse *p, const char *at, const char *fmt, ...) {
  int line = 1, column = 1;
  for (const char *c = p->text; c < at; c++) if (*c == '\n') line++, column = 1; else column++;
  Str s = {0};
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&s, fmt, ap);
  va_end(ap);
  Err *e = err_new(ERR_SYNTAX, "line %d, column %d: %s", line, column, s.p);
  str_free(&s);
  return e;
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static Err *expected(Parse *p, const char *what) {
  skip(p);
  if (!*p->at) return error_at(p, p->at, "expected %s, got the end of the text", what);
  int n = 1;
  while (is_word(*p->at) && is_word(p->at[n]) && n < MAX_NAME) n++;
  return error_at(p, p->at, "expected %s, got '%.*s'", what, n, p->at);
}

static bool eat(Parse *p, const char *token) {
  skip(p);
  size_t n = strlen(token);
  if (strncmp(p->at, token, n) != 0 || (is_word(token[0]) && is_word(p->at[n]))) return false;
  p->at += n;
  return true;
}

static Err *need(Parse *p, const char *token) {
  if (eat(p, token)) return NULL;
  char what[MAX_NAME];
  snprintf(what, sizeof what, "'%s'", token);
  return expected(p, what);
}

/* A name of letters, digits and _, into buf; its place for messages into *where. */
static Err *word(Parse *p, const char *what, char buf[MAX_NAME], const char **where) {
  skip(p);
  int n = 0;
  while (is_word(p->at[n]) && n < MAX_NAME - 1) n++;
  if (n == 0 || is_word(p->at[n])) return expected(p, what);
  memcpy(buf, p->at, (size_t)n);
  buf[n] = 0;
  *where = p->at;
  p->at += n;
  return NULL;
}

static bool same_letters(const char *a, const char *b) {
  int n[256] = {0};
  for (; *a; a++) n[(uint8_t)*a]++;
  for (; *b; b++) n[(uint8_t)*b]--;
  for (int i = 0; i < 256; i++) if (n[i]) return false;
  return true;
}

/* The row of a name; -1 when there is none. The nearest name within 2 edits goes to *near, else NULL; exchanged letters are nearer
   than other edits. */
static int find(const char *name, const char *const *names, int first, int n, const char **near) {
  int best = 5;
  *near = NULL;
  for (int i = first; i < n; i++) {
    if (strcmp(names[i], name) == 0) return i;
    int d = 2 * str_edit_distance(names[i], name) - same_letters(names[i], name);
    if (d < best) best = d, *near = names[i];
  }
  return -1;
}

static Err *unknown(const Parse *p, const char *at, const char *kind, const char *name, const char *near) {
  if (near) return error_at(p, at, "unknown %s '%s'; did you mean '%s'?", kind, name, near);
  return error_at(p, at, "unknown %s '%s'", kind, name);
}

static Err *name_of(Parse *p, const char *kind, const char *const *names, int first, int n, int *out) {
  char buf[MAX_NAME];
  const char *where, *near;
  TRY(word(p, kind, buf, &where));
  int i = find(buf, names, first, n, &near);
  if (i < 0) return unknown(p, where, kind, buf, near);
  *out = i;
  return NULL;
}

/* numbers */
static Err *integer(Parse *p, const char *what, int64_t lo, uint64_t hi, int64_t *out) {
  skip(p);
  bool neg = *p->at == '-';
  const char *digits = p->at + neg;
  if (!isdigit((unsigned char)*digits)) return expected(p, what);
  char *end;
  errno = 0;
  unsigned long long u = strtoull(digits, &end, digits[0] == '0' && (digits[1] | 32) == 'x' ? 16 : 10);
  bool fits = errno == 0 && (neg ? u <= (uint64_t)INT64_MAX + 1 && (int64_t)(0 - (uint64_t)u) >= lo : u <= hi && (lo <= 0 || u >= (uint64_t)lo));
  if (!fits || is_word(*end)) return error_at(p, p->at, "'%.*s' is not %s", (int)MIN(end - p->at + is_word(*end), 40), p->at, what);
  p->at = end;
  *out = neg ? (int64_t)(0 - (uint64_t)u) : (int64_t)u;
  return NULL;
}

static Err *small(Parse *p, const char *what, int64_t lo, int64_t hi, int *out) {
  int64_t v;
  TRY(integer(p, what, lo, (uint64_t)hi, &v));
  *out = (int)v;
  return NULL;
}

static Err *literal(Parse *p, IrElt e, int64_t *out) {
  int64_t v = 0;
  skip(p);
  if (e == IR_E_F32 && !(p->at[0] == '0' && p->at[1] == 'x')) {
    char *end;
    if (!isdigit((unsigned char)*p->at) && *p->at != '-' && *p->at != '.') return expected(p, "a number");
    float f = strtof(p->at, &end);
    if (end == p->at || is_word(*end) || *end == '.') return expected(p, "a number");
    p->at = end;
    *out = f32_to_bits(f);
    return NULL;
  }
  if (e == IR_E_I1) TRY(integer(p, "an i1: 0 or 1", 0, 1, &v));
  else if (e == IR_E_I64) TRY(integer(p, "an integer of 64 bits", INT64_MIN, UINT64_MAX, &v));
  else TRY(integer(p, e == IR_E_F32 ? "the bits of an f32" : "an integer of 32 bits", INT32_MIN, UINT32_MAX, &v));
  *out = e == IR_E_I32 ? (int32_t)(uint32_t)(uint64_t)v : v;
  return NULL;
}

/* ` + 12` or ` - 12` */
static Err *displacement(Parse *p, int64_t *out) {
  bool neg = eat(p, "-");
  if (!neg && !eat(p, "+")) return expected(p, "'+' or '-' and a displacement");
  int64_t v;
  TRY(integer(p, "a displacement", 0, neg ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX, &v));
  *out = neg ? (int64_t)(0 - (uint64_t)v) : v;
  return NULL;
}

/* values and types */
static Err *value(Parse *p, IrRef *out) {
  skip(p);
  const char *where = p->at;
  if (!eat(p, "%")) return expected(p, "a value like %1");
  int v;
  TRY(small(p, "a value's number", 1, MAX_VALUE - 1, &v));
  if (v >= p->n_named) return error_at(p, where, "expected a value like %%1");
  if (!p->used_at[v]) p->used_at[v] = where;
  *out = v;
  return NULL;
}

static Err *define(Parse *p, IrRef *out) {
  skip(p);
  const char *where = p->at;
  IrRef v;
  TRY(value(p, &v));
  if (p->defined[v]) return error_at(p, where, "%%%d is defined twice", v);
  p->defined[v] = true;
  *out = v;
  return NULL;
}

static Err *pointer_type(Parse *p, IrType *out) {
  IrPtr t = {0};
  int mem, space;
  TRY(need(p, "<"));
  TRY(name_of(p, "memory type", ir_mem_name, 1, IR_N_MEM, &mem));
  if (eat(p, "[")) {
    do {
      if (t.n_dims == IR_MAX_DIMS) return error_at(p, p->at, "more than %d dimensions", IR_MAX_DIMS);
      int64_t d = -1;
      if (!eat(p, "?")) TRY(integer(p, "a dimension or ?", 0, INT64_MAX, &d));
      t.dim[t.n_dims++] = d;
    } while (eat(p, ","));
    TRY(need(p, "]"));
  }
  TRY(need(p, ","));
  TRY(name_of(p, "address space", ir_space_name, 0, IR_N_SPACE, &space));
  TRY(need(p, ">"));
  t.mem = (uint8_t)mem, t.space = (uint8_t)space;
  if (p->fn->n_ptrs > 60000) return error_at(p, p->at, "too many pointer types");
  *out = ir_ptr_type(p->fn, t);
  return NULL;
}

static Err *type(Parse *p, IrType *out) {
  int t;
  if (eat(p, "ptr")) return pointer_type(p, out);
  TRY(name_of(p, "type", ir_type_name, 1, IR_N_BASIC, &t));
  *out = (IrType)t;
  return NULL;
}

/* instructions */
static Err *address(Parse *p, IrIns *x) {
  int scale = 1;
  TRY(value(p, &x->arg[0]));
  if (eat(p, ",")) {
    TRY(value(p, &x->arg[1]));
    TRY(need(p, "*"));
    TRY(small(p, "a scale: 1, 2, 4 or 8", 1, 8, &scale));
  }
  x->scale = (uint8_t)scale;
  return displacement(p, &x->imm);
}

static Err *plain_args(Parse *p, IrIns *x) {
  for (int i = 0; i < ir_op_n_args[x->op]; i++) {
    if (i) TRY(need(p, ","));
    TRY(value(p, &x->arg[i]));
  }
  if (ir_op_rule[x->op] == RULE_I || x->op == IR_extract || x->op == IR_insert || x->op == IR_dot4) {
    TRY(need(p, ","));
    return integer(p, "an integer", INT64_MIN, INT64_MAX, &x->imm);
  }
  return x->op == IR_gather ? displacement(p, &x->imm) : NULL;
}

static Err *operands(Parse *p, IrIns *x) {
  if (x->op == IR_const || x->op == IR_iota || x->op == IR_load || x->op == IR_gather || x->op == IR_splat) TRY(type(p, &x->type));
  if (x->op == IR_const) return literal(p, ir_type_elt(p->fn, x->type), &x->imm);
  bool tile = ir_is_tile((IrOp)x->op);
  if (tile && !ir_is_addr((IrOp)x->op)) return x->op == IR_tend ? NULL : integer(p, "an integer", INT64_MIN, INT64_MAX, &x->imm);
  if (!ir_is_addr((IrOp)x->op)) return plain_args(p, x);
  TRY(address(p, x));
  if (x->op != IR_store && !tile) return NULL;
  TRY(need(p, ","));
  TRY(value(p, &x->arg[2]));
  int n = 0;
  if (tile) {
    TRY(need(p, "tile"));
    TRY(small(p, "a tile", 0, 7, &n));
  } else if (eat(p, "lanes")) TRY(small(p, "a count of lanes", 1, 16, &n));
  x->n_lanes = (int16_t)n;
  return NULL;
}

static Err *instruction(Parse *p, int block, IrRef result) {
  int op, mem = 0, pred = 0;
  skip(p);
  const char *where = p->at;
  TRY(name_of(p, "op", ir_op_name, 0, IR_N_OPS, &op));
  if (op == IR_param) return error_at(p, where, "param is no instruction; parameters stand behind the block's name");
  bool has_result = ir_has_result((IrOp)op);
  if (has_result && !result) return error_at(p, where, "%s has a result; expected '%%N = %s ..'", ir_op_name[op], ir_op_name[op]);
  if (!has_result && result) return error_at(p, where, "%s has no result to name", ir_op_name[op]);
  if (op == IR_load || op == IR_store || op == IR_gather) {
    TRY(need(p, "."));
    TRY(name_of(p, "memory type", ir_mem_name, 1, IR_N_MEM, &mem));
  } else if (ir_op_rule[op] == RULE_Q) {
    TRY(need(p, "."));
    TRY(name_of(p, "predicate", ir_pred_name, 1, IR_N_PRED, &pred));
  }
  IrIns x = {.op = (uint8_t)op, .mem = (uint8_t)mem, .pred = (uint8_t)pred, .block = block};
  TRY(operands(p, &x));
  IrBuild b = {p->fn, block};
  if (!result) { ir_emit(&b, x); return NULL; }
  IrBlock *blk = &p->fn->blocks[block];
  p->fn->ins[result] = x;
  PUSH(p->fn->arena, blk->ins, blk->n_ins, blk->cap_ins, result);
  return NULL;
}

/* blocks */
static Err *block_name(Parse *p, int *out) {
  char buf[MAX_NAME];
  const char *where;
  TRY(word(p, "a block like b1", buf, &where));
  size_t n = strlen(buf);
  if (buf[0] != 'b' || n < 2 || n > 8 || strspn(buf + 1, "0123456789") != n - 1) return error_at(p, where, "expected a block like b1, got '%s'", buf);
  *out = atoi(buf + 1);
  return *out < MAX_BLOCK ? NULL : error_at(p, where, "block number too large");
}

static Err *edge(Parse *p, IrEdge *e) {
  int cap = 0;
  skip(p);
  const char *where = p->at;
  TRY(block_name(p, &e->block));
  if (e->block > p->max_block) p->max_block = e->block, p->max_block_at = where;
  if (!eat(p, "(")) return NULL;
  do {
    IrRef v;
    TRY(value(p, &v));
    PUSH(p->fn->arena, e->args, e->n_args, cap, v);
  } while (eat(p, ","));
  return need(p, ")");
}

static Err *terminator(Parse *p, int block, bool *found) {
  IrBlock *b = &p->fn->blocks[block];
  *found = true;
  if (eat(p, "ret")) { b->term = IR_RET; return NULL; }
  if (eat(p, "jmp")) { b->term = IR_JMP; return edge(p, &b->edge[0]); }
  if (!eat(p, "br")) { *found = false; return NULL; }
  b->term = IR_BR;
  TRY(value(p, &b->cond));
  TRY(need(p, ","));
  TRY(edge(p, &b->edge[0]));
  TRY(need(p, ","));
  return edge(p, &b->edge[1]);
}

static Err *params(Parse *p, int block) {
  IrBlock *b = &p->fn->blocks[block];
  if (eat(p, ")")) return NULL;
  do {
    IrRef v;
    IrType t;
    TRY(define(p, &v));
    TRY(need(p, ":"));
    TRY(type(p, &t));
    p->fn->ins[v] = (IrIns){.op = IR_param, .type = t, .block = block};
    PUSH(p->fn->arena, b->params, b->n_params, b->cap_params, v);
  } while (eat(p, ","));
  return need(p, ")");
}

static Err *entry_params(Parse *p) { /* names again, as the function has them */
  const IrBlock *b = &p->fn->blocks[0];
  for (int i = 0; i < b->n_params; i++) {
    IrRef v;
    if (i) TRY(need(p, ","));
    skip(p);
    const char *where = p->at;
    TRY(value(p, &v));
    if (v != b->params[i]) return error_at(p, where, "expected %%%d, the function's parameter %d", b->params[i], i + 1);
  }
  return need(p, ")");
}

static Err *block_body(Parse *p, int block) {
  int got;
  skip(p);
  const char *where = p->at;
  TRY(block_name(p, &got));
  if (got != block) return error_at(p, where, "expected block b%d, got b%d", block, got);
  if (eat(p, "(")) TRY(block ? params(p, block) : entry_params(p));
  TRY(need(p, ":"));
  for (;;) {
    bool found;
    TRY(terminator(p, block, &found));
    if (found) return NULL;
    IrRef v = 0;
    skip(p);
    if (*p->at == '%') {
      TRY(define(p, &v));
      TRY(need(p, "="));
    } else if (!is_word(*p->at)) {
      return expected(p, "an instruction, jmp, br or ret");
    }
    TRY(instruction(p, block, v));
  }
}

/* Types that follow from the arguments: in reverse postorder definitions come first; unreachable blocks after, as they stand. */
static void derive_types(Parse *p, Arena *tmp) {
  IrFn *fn = p->fn;
  const IrOrder *o = ir_order(tmp, fn);
  for (int i = 0; i < o->n + fn->n_blocks; i++) {
    int at = i < o->n ? o->block[i] : i - o->n;
    if (i >= o->n && o->pos[at] >= 0) continue;
    const IrBlock *b = &fn->blocks[at];
    for (int k = 0; k < b->n_ins; k++) {
      IrIns *x = &fn->ins[b->ins[k]];
      if (x->type == IR_T_none) x->type = ir_result_type(fn, (IrOp)x->op, x->arg);
    }
  }
}

static Err *function(Parse *p, Arena *tmp) {
  TRY(need(p, "fn"));
  TRY(need(p, "@"));
  size_t n = 0;
  while (p->at[n] && p->at[n] != '(' && !isspace((unsigned char)p->at[n])) n++;
  if (n == 0) return expected(p, "the function's name");
  p->fn->name = arena_dup_n(p->fn->arena, p->at, n);
  p->at += n;
  TRY(need(p, "("));
  ir_block_add(p->fn);
  TRY(params(p, 0));
  TRY(need(p, "{"));
  TRY(block_body(p, 0));
  while (!eat(p, "}")) {
    int b = ir_block_add(p->fn);
    TRY(block_body(p, b));
  }
  skip(p);
  if (*p->at) return expected(p, "the end of the text");
  if (p->max_block >= p->fn->n_blocks) return error_at(p, p->max_block_at, "there is no block b%d", p->max_block);
  for (int v = 1; v < p->n_named; v++)
    if (p->used_at[v] && !p->defined[v]) return error_at(p, p->used_at[v], "%%%d is not defined", v);
  derive_types(p, tmp);
  return NULL;
}

/* Largest %N of the text; numbers beyond the bound are left for value() to refuse. */
static int largest_value(const char *text) {
  int top = 0;
  for (const char *c = text; (c = strchr(c, '%')) != NULL; ) {
    c++;
    while (isspace((unsigned char)*c)) c++;
    unsigned long v = strtoul(c, NULL, 10);
    if (v < MAX_VALUE && (int)v > top) top = (int)v;
  }
  return top;
}

Err *ir_fn_parse(Arena *a, const char *text, IrFn **out) {
  Parse p = {.text = text, .at = text, .fn = ir_fn_new(a, ""), .max_block = -1, .n_named = largest_value(text) + 1};
  Arena *tmp = arena_new("parse");
  p.used_at = ARENA_ARRAY(tmp, const char *, p.n_named);
  p.defined = ARENA_ARRAY(tmp, bool, p.n_named);
  for (int v = 1; v < p.n_named; v++) PUSH(a, p.fn->ins, p.fn->n_ins, p.fn->cap_ins, (IrIns){.block = -1});
  Err *e = function(&p, tmp);
  arena_free(tmp);
  if (!e) *out = p.fn;
  return e;
}
