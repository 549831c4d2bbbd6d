/* Assembly text of one instruction, Intel syntax as the LLVM assembler reads it. In: a well-formed X86Ins; out: appended text. */
#include <string.h>
#include "gen/x86/enc.h"

static void add_reg(Str *out, char class, int r) {
  static const char *const low[] = {"ax", "cx", "dx", "bx", "sp", "bp", "si", "di"};
  static const char *const byte[] = {"al", "cl", "dl", "bl", "spl", "bpl", "sil", "dil"};
  if (strchr("xyz", class)) str_addf(out, "%cmm%d", class, r);
  else if (class == 'k') str_addf(out, "k%d", r);
  else if (class == 't') str_addf(out, "tmm%d", r);
  else if (r >= 8) str_addf(out, "r%d%s", r, class == 'q' ? "" : class == 'd' ? "d" : class == 'w' ? "w" : "b");
  else if (class == 'b') str_add(out, byte[r]);
  else str_addf(out, "%s%s", class == 'q' ? "r" : class == 'd' ? "e" : "", low[r]);
}

static void add_mem(Str *out, const X86Ins *in, const X86Row *row) {
  int elem = row->w ? 8 : 4, n = in->bcast ? elem : row->mem_bytes;
  const char *size = n == 1 ? "byte" : n == 2 ? "word" : n == 4 ? "dword" : n == 8 ? "qword" : n == 16 ? "xmmword" : n == 32 ? "ymmword" : "zmmword";
  if (!(row->flags & X86F_NOSIZE)) str_addf(out, "%s ptr ", size);
  str_add(out, "[");
  const char *plus = "";
  if (in->base < 0 && in->index < 0 && in->label >= 0) str_addf(out, "rip + .L%d", (int)in->label), plus = " + ";
  if (in->base >= 0) add_reg(out, 'q', in->base), plus = " + ";
  if (in->index >= 0) {
    str_addf(out, "%s%d*", plus, in->scale);
    add_reg(out, 'q', in->index);
    plus = " + ";
  }
  if (in->disp < 0 && *plus) str_addf(out, " - %lld", -(long long)in->disp);
  else if (in->disp || !*plus) str_addf(out, "%s%d", plus, (int)in->disp);
  str_add(out, "]");
  if (in->bcast) str_addf(out, "{1to%d}", row->mem_bytes / elem);
}

void x86_ins_text(const X86Ins *in, Str *out) {
  const X86Row *row = x86_row(in->op);
  /* Without a 512-bit operand the assembler would prefer VEX. */
  if (row->enc == X86_EVX && row->vl != 2) str_add(out, "{evex} ");
  str_add(out, row->name);
  int slot = 0;
  for (const char *o = row->ops; *o; o += 2) {
    str_add(out, o == row->ops ? " " : ", ");
    if (o[0] == 'i') str_addf(out, "%lld", (long long)in->imm);
    else if (o[0] == 'j') str_addf(out, ".L%d", (int)in->label);
    else if (o[0] == '0') str_add(out, "xmm0");
    else if (o[0] == 'm' && in->mem) add_mem(out, in, row), slot++;
    else add_reg(out, o[1], in->r[slot++]);
    if (o == row->ops && in->mask) str_addf(out, " {k%d}%s", in->mask, in->zero ? " {z}" : "");
  }
}
