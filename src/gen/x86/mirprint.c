/* Machine IR as text, with virtual registers or, after allocation, physical ones. For the reader: it does not read back. */
#include "gen/mir.h"
#include "gen/x86/enc.h"

static void reg_print(const MFn *fn, const RegMap *map, int v, Str *out) {
  static const char cls[] = "gvk";
  if (v == M_NONE) { str_add_c(out, '-'); return; }
  if (v == M_POOL || v == M_FRAME) { str_add(out, v == M_POOL ? "pool" : "frame"); return; }
  str_addf(out, "%c%d", cls[fn->regs[v].cls], v);
  if (fn->regs[v].slot != M_NONE) str_addf(out, "@%d", fn->regs[v].slot);
  else if (map) str_addf(out, ":%d", map->phys[v]);
}

static void ins_print(const MFn *fn, const RegMap *map, const MIns *in, Str *out) {
  static const char *const pseudo[] = {"copy", "reload", "spill", "udiv", "urem", "clear", "ones"};
  str_addf(out, "  %s", in->op >= M_FIRST_PSEUDO ? pseudo[in->op - M_FIRST_PSEUDO] : x86_row(in->op)->id);
  for (int i = 0; i < in->n_r; i++) {
    str_add(out, i ? ", " : " ");
    if (in->r[i] >= 0) { reg_print(fn, map, in->r[i], out); continue; }
    str_add_c(out, '[');
    reg_print(fn, map, in->base, out);
    if (in->index >= 0) { str_add_c(out, '+'); reg_print(fn, map, in->index, out); str_addf(out, "*%d", in->scale); }
    str_addf(out, "%+d]%s", in->disp, in->flags & M_BCAST ? "{bcast}" : "");
  }
  if (in->mask >= 0) { str_add(out, " {"); reg_print(fn, map, in->mask, out); str_add_c(out, '}'); }
  if (in->tied >= 0) { str_add(out, " tied "); reg_print(fn, map, in->tied, out); }
  if (in->imm) str_addf(out, " #%lld", (long long)in->imm);
  str_add_c(out, '\n');
}

void x86_mir_print(const MFn *fn, const RegMap *map, Str *out) {
  for (int b = 0; b < fn->n_blocks; b++) {
    const MBlock *k = &fn->blocks[b];
    str_addf(out, "m%d(", b);
    for (int i = 0; i < k->n_params; i++) { if (i) str_add(out, ", "); reg_print(fn, map, k->params[i], out); }
    str_addf(out, "): depth %d\n", k->depth);
    for (int i = 0; i < k->n_ins; i++) ins_print(fn, map, &k->ins[i], out);
    if (k->term == M_RET) str_add(out, "  ret\n");
    else if (k->term == M_JCC) str_addf(out, "  j%d m%d else m%d\n", k->cc, k->succ[0], k->succ[1]);
    else {
      str_addf(out, "  jmp m%d(", k->succ[0]);
      for (int i = 0; i < k->n_args; i++) { if (i) str_add(out, ", "); reg_print(fn, map, k->args[i], out); }
      str_add(out, ")\n");
    }
  }
}
