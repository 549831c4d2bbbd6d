/* What is known of the data in a checkpoint's tensors, put to use: a condition on a byte that is one and the same for every byte that occurs is decided,
   and a power of two that brings a byte's float to its size goes to the scale it is multiplied with, where neither can overflow. A float of 8 bits
   then is a few bits moved and one product. In: an element's value over DX_PART, facts of the parts. Out: a value equal bit for bit on such data. */
#include <math.h>
#include <string.h>
#include "opt/fmteval.h"

/* ---- an expression over one byte ------------------------------------------------------------------------------------- */
typedef struct Num { bool ok; int32_t i; float f; } Num;
static Num num_i(int64_t v) { return (Num){true, (int32_t)(uint32_t)(uint64_t)v, 0}; }
static Num num_f(float v) { return (Num){true, 0, v}; }

/* In 32 bits, as at run time. */
static Num int_op(DxOp op, int64_t a, int64_t b) {
  int64_t r;
  bool sure = op == DXO_SHL ? b < 32 : op == DXO_SHR ? b < 32 && a >= 0 : true;
  return sure && dx_fold_int(op, a, b, &r) ? num_i(r) : (Num){0};
}

/* The value where the byte `of` is `code`; not ok: it depends on more, or on an operation not known here. */
static Num value_at(const Dag *d, Dx x, Dx of, int code) {
  const DxNode *n = &d->node[x];
  Num a[3] = {{0}};
  if (n->kind == DX_INT) return num_i(n->ival);
  if (n->kind == DX_FLT) return num_f(n->fval);
  if (x == of) return num_i(code);
  if (n->kind != DX_OP || n->n_args > 3) return (Num){0};
  for (int i = 0; i < n->n_args; i++) {
    a[i] = value_at(d, n->arg[i], of, code);
    if (!a[i].ok) return a[i];
  }
  bool flt = d->node[n->arg[0]].type == DT_F32;
  if (n->op == DXO_COND) return a[0].i ? a[1] : a[2];
  if (n->op == DXO_BITF) return num_f(f32_from_bits((uint32_t)a[0].i));
  if (n->op == DXO_TOF) return flt ? a[0] : num_f((float)a[0].i);
  if (n->op == DXO_MUL && flt) return num_f(a[0].f * a[1].f);
  return n->n_args == 2 && !flt ? int_op((DxOp)n->op, a[0].i, a[1].i) : (Num){0};
}

/* The only byte that x depends on, whatever its place; 0: none yet, -1: there are more, or other things. */
static Dx only_byte(const Dag *d, Dx x, Dx found) {
  const DxNode *n = &d->node[x];
  if (n->kind == DX_INT || n->kind == DX_FLT) return found;
  if (n->kind == DX_PART || n->kind == DX_FIELD) return n->op == IR_M_u8 && (!found || found == x) ? x : -1;
  if (n->kind != DX_OP) return -1;
  for (int i = 0; i < n->n_args && found >= 0; i++) found = only_byte(d, n->arg[i], found);
  return found;
}

/* ---- floats of one byte ---------------------------------------------------------------------------------------------- */
int format_unfinite(Arena *a, const Module *m, const char *elt, uint8_t code[256]) {
  const FormatDecl *f = dx_mem(elt) ? NULL : lang_format(m, elt);
  const FormatFn *fn = NULL;
  int n = 0;
  if (!f || f->block != 1 || f->n_bytes != 1) return 0;
  for (int i = 0; i < f->n_fns; i++) if (!strcmp(f->fn[i].name, "x") && f->fn[i].arg) fn = &f->fn[i];
  FmtEval *s = ARENA_NEW(a, FmtEval);
  fmt_begin(s, dag_new(a), m, f, false);
  Dx x = fn ? dx_to_f32(s->d, fmt_call(s, fn, dx_int(s->d, 0), 0)) : 0;
  Dx of = x && !s->err ? only_byte(s->d, x, 0) : 0;
  err_free(s->err);
  for (int c = 0; of > 0 && c < 256; c++) {
    Num v = value_at(s->d, x, of, c);
    if (!v.ok) return 0;
    if (!isfinite(v.f)) code[n++] = (uint8_t)c;
  }
  return n;
}

/* ---- values ------------------------------------------------------------------------------------------------------------ */
typedef struct Facts { Dag *d; const FormatParts *p; } Facts;

static bool occurs(const Facts *f, Dx byte, int code) {
  const DxNode *n = &f->d->node[byte];
  const FormatPart *p = &f->p->part[f->d->part[n->ival].part];
  for (int i = 0; i < p->n_never; i++) if (p->never[i] == code) return false;
  return true;
}

static bool is_numbers_part(const Facts *f, const DxNode *n) { return f->d->part[n->ival].part < f->p->decl->n_parts; }

/* 1, 0, or -1 where it is not the same for all bytes that occur. */
static int decided(const Facts *f, Dx cond) {
  Dx of = only_byte(f->d, cond, 0);
  int all = -1;
  if (of <= 0 || f->d->node[of].kind != DX_PART || !is_numbers_part(f, &f->d->node[of])) return -1;
  for (int c = 0; c < 256; c++) {
    if (!occurs(f, of, c)) continue;
    Num v = value_at(f->d, cond, of, c);
    if (!v.ok || (all >= 0 && all != (v.i != 0))) return -1;
    all = v.i != 0;
  }
  return all;
}

/* v is a byte's float that `by`, a power of two, enlarges exactly. */
static bool grows_exactly(const Facts *f, Dx v, float by) {
  Dx of = only_byte(f->d, v, 0);
  int exp;
  if (of <= 0 || by < 1 || frexpf(by, &exp) != 0.5f || exp > 121) return false;
  for (int c = 0; c < 256; c++) {
    Num n = value_at(f->d, v, of, c);
    if (!n.ok || !isfinite(n.f * by)) return false;
  }
  return true;
}

static bool is_small(const Facts *f, Dx x) {
  const DxNode *n = &f->d->node[x];
  return n->kind == DX_PART && n->type == DT_F32 && is_numbers_part(f, n) && f->p->part[f->d->part[n->ival].part].small;
}

static Dx simpler(void *ctx, Dx x) {
  Facts *f = ctx;
  const DxNode n = f->d->node[x];
  if (n.kind != DX_OP) return 0;
  if (n.op == DXO_COND && n.type == DT_F32) {
    int which = decided(f, n.arg[0]);
    return which < 0 ? 0 : dx_rewrite(f->d, n.arg[which ? 1 : 2], simpler, f);
  }
  if (n.op != DXO_MUL || n.type != DT_F32) return 0;
  Dx arg[2] = {dx_rewrite(f->d, n.arg[0], simpler, f), dx_rewrite(f->d, n.arg[1], simpler, f)};
  for (int i = 0; i < 2; i++) { /* (v * by) * scale as v * (scale * by) */
    const DxNode v = f->d->node[arg[i]];
    if (!is_small(f, arg[1 - i]) || v.kind != DX_OP || v.op != DXO_MUL || f->d->node[v.arg[1]].kind != DX_FLT) continue;
    if (grows_exactly(f, v.arg[0], f->d->node[v.arg[1]].fval)) return dx_op2(f->d, DXO_MUL, v.arg[0], dx_op2(f->d, DXO_MUL, arg[1 - i], v.arg[1]));
  }
  return dx_op2(f->d, DXO_MUL, arg[0], arg[1]);
}

Dx format_with_facts(Dag *d, const FormatParts *p, Dx x) {
  Facts f = {d, p};
  return dx_rewrite(d, x, simpler, &f);
}
