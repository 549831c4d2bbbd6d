/* Facts and bytes of x86-64 instructions, all driven by insts.def.
   In: an X86Ins whose registers and memory fit its row (CHECKed: only our own code makes them). Out: the bytes an assembler would choose:
   the shortest of immediate, displacement, accumulator and VEX forms, so that every row can be compared with one.
   Source: Intel SDM volume 2, chapters 2.1 (legacy, REX), 2.3 (VEX), 2.7 (EVEX). */
#include <string.h>
#include "gen/x86/encpriv.h"

static const X86Row x86_rows[] = {
    {.id = "none", .name = "", .ops = "", .ext = -1},
#define INS(id, name, enc, pp, map, w, op, ext, ops, vl, mem_bytes, flags) {#id, name, ops, enc, pp, map, w, op, ext, vl, mem_bytes, flags},
#include "gen/x86/insts.def"
#undef INS
};

const X86Row *x86_row(int op) {
  CHECK(op >= 0 && op < X86_N_OPS, "instruction %d of %d", op, X86_N_OPS);
  return &x86_rows[op];
}

int x86_op_find(const char *id) {
  for (int i = 1; i < X86_N_OPS; i++)
    if (!strcmp(x86_rows[i].id, id)) return i;
  return X86_none;
}

static bool place_is_reg(char place) { return place != 'i' && place != 'j' && place != '0'; }

int x86_n_regs(int op) {
  int n = 0;
  for (const char *o = x86_row(op)->ops; *o; o += 2) n += place_is_reg(o[0]);
  return n;
}

char x86_reg_class(int op, int slot) {
  int n = 0;
  for (const char *o = x86_row(op)->ops; *o; o += 2) {
    if (!place_is_reg(o[0]) || n++ != slot) continue;
    return strchr("xyz", o[1]) ? 'v' : strchr("bwdq", o[1]) ? 'r' : o[1] == 'k' || o[1] == 't' ? o[1] : 'm';
  }
  CHECK(false, "%s has no register slot %d", x86_row(op)->id, slot);
}

int x86_mem_slot(int op) {
  int n = 0;
  const X86Row *row = x86_row(op);
  for (const char *o = row->ops; *o && row->mem_bytes; o += 2) {
    if (o[0] == 'm') return n;
    n += place_is_reg(o[0]);
  }
  return -1;
}

static char imm_class(const X86Row *row) {
  for (const char *o = row->ops; *o; o += 2)
    if (o[0] == 'i') return o[1];
  return 0;
}

int x86_imm_bytes(int op) {
  char c = imm_class(x86_row(op));
  return c == 'b' ? 1 : c == 'd' ? 4 : c == 'q' ? 8 : 0;
}

bool x86_imm_fits(int op, int64_t imm) {
  const X86Row *row = x86_row(op);
  char c = imm_class(row);
  if (c == 'b') return imm >= -128 && imm <= 255;
  if (c == 'd') return imm >= INT32_MIN && imm <= (row->w ? (int64_t)INT32_MAX : (int64_t)UINT32_MAX);
  return c == 'q' || imm == 0;
}

/* The operands of one instruction sorted by the field they go to. */
typedef struct Fields {
  const X86Ins *in;
  const X86Row *row;
  int reg, vvvv, rm, is4, opreg;   /* 0 where absent; rm is -1 for memory */
  char reg_class, rm_class;
  bool has_rm, has_opreg, has_is4, byte_rex;
  char imm;                        /* 'b' 'd' 'q' or 0 */
  uint8_t opcode, pp;
  bool short_acc;                  /* accumulator form: opcode and immediate, no ModRM */
} Fields;

static void check_reg(const X86Row *row, char class, int r) {
  int n = class == 'k' || class == 't' ? 8 : strchr("xyz", class) && row->enc == X86_EVX ? 32 : 16;
  CHECK(r >= 0 && r < n, "%s: register %d of class %c", row->id, r, class);
}

static void fields_read(const X86Ins *in, Fields *f) {
  const X86Row *row = x86_row(in->op);
  *f = (Fields){.in = in, .row = row, .opcode = row->opcode, .pp = row->pp};
  int slot = 0;
  for (const char *o = row->ops; *o; o += 2) {
    if (o[0] == 'i') f->imm = o[1];
    if (!place_is_reg(o[0])) continue;
    int r = in->r[slot++];
    if (o[0] == 'm') f->has_rm = true, f->rm_class = o[1];
    if (o[0] == 'm' && in->mem) {
      CHECK(r == -1 && row->mem_bytes, "%s: memory where a register is", row->id);
      f->rm = -1;
      continue;
    }
    CHECK(o[1] != '*', "%s needs memory", row->id);
    check_reg(row, o[1], r);
    if (o[1] == 'b' && r >= 4 && r < 8) f->byte_rex = true;
    if (o[0] == 'r') f->reg = r, f->reg_class = o[1];
    if (o[0] == 'v') f->vvvv = r;
    if (o[0] == 'm') f->rm = r;
    if (o[0] == 'o') f->opreg = r, f->has_opreg = true;
    if (o[0] == '4') f->is4 = r, f->has_is4 = true;
  }
  if (row->ext >= 0) f->reg = row->ext;
  CHECK(x86_imm_fits(in->op, in->imm), "%s: immediate %lld", row->id, (long long)in->imm);
}

static uint8_t rev_opcode(uint8_t op) { return (uint8_t)(op == 0x6F ? 0x7F : op == 0x7E ? 0xD6 : op + 1); }

static void swap_int(int *a, int *b) { int t = *a; *a = *b; *b = t; }

/* Choose among equivalent encodings. */
static void fields_shorten(Fields *f) {
  const X86Row *row = f->row;
  uint32_t fl = row->flags;
  int32_t imm32 = (int32_t)f->in->imm; /* 32-bit operations take it modulo 2^32 */
  if (fl & X86F_SWAP && f->rm >= 0) { swap_int(&f->reg, &f->rm); f->opcode = (uint8_t)(f->opcode - 2); }
  if (fl & X86F_ALU) {
    bool group1 = row->ext >= 0;
    if (imm32 >= -128 && imm32 <= 127) f->imm = 'b', f->opcode = (uint8_t)(f->opcode + 2);
    else if (group1 && f->rm == RAX) f->short_acc = true, f->opcode = (uint8_t)(row->ext * 8 + 5);
  }
  if (fl & X86F_SHIFT && f->in->imm == 1) f->imm = 0, f->opcode = (uint8_t)(f->opcode + 0x10);
  if (fl & X86F_TEST && f->rm == RAX) f->short_acc = true, f->opcode = 0xA9;
  if (row->enc != X86_VEX || row->map != 1 || row->w || f->rm < 8) return;
  bool comm = fl & X86F_COMM || (fl & X86F_CMPI && (f->in->imm & 3) % 3 == 0);
  if (comm && f->vvvv < 8) swap_int(&f->vvvv, &f->rm);
  if (fl & X86F_REV && f->reg < 8) {
    swap_int(&f->reg, &f->rm);
    f->pp = f->opcode == 0x7E ? 1 : f->pp;
    f->opcode = rev_opcode(f->opcode);
  }
}

typedef struct Out { uint8_t *p; int n; } Out;
static void put(Out *o, unsigned byte) { o->p[o->n++] = (uint8_t)byte; }
static void put_le(Out *o, uint64_t v, int n) { for (int i = 0; i < n; i++) put(o, (unsigned)(v >> (8 * i)) & 255); }

/* High bits of the base, index or register of the r/m operand, as prefixes hold them. */
static int rm_b(const Fields *f) { return f->rm >= 0 ? f->rm >> 3 & 1 : f->in->base >= 0 ? f->in->base >> 3 : 0; }
static int rm_x(const Fields *f) { return f->rm >= 0 ? f->rm >> 4 & 1 : f->in->index >= 0 ? f->in->index >> 3 : 0; }

static void put_legacy(Out *o, const Fields *f) {
  static const uint8_t pps[] = {0, 0x66, 0xF3, 0xF2};
  const X86Row *row = f->row;
  if (f->pp) put(o, pps[f->pp]);
  int b = f->has_opreg ? f->opreg >> 3 : f->has_rm ? rm_b(f) : 0, x = f->has_rm && f->rm < 0 ? rm_x(f) : 0;
  int rex = row->w << 3 | (f->reg >> 3 & 1) << 2 | x << 1 | b;
  if (rex || f->byte_rex) put(o, 0x40u | (unsigned)rex);
  if (row->map) put(o, 0x0F);
  if (row->map == 2) put(o, 0x38);
  if (row->map == 3) put(o, 0x3A);
  put(o, f->opcode + (f->has_opreg ? (unsigned)f->opreg & 7 : 0));
}

static void put_vex(Out *o, const Fields *f) {
  const X86Row *row = f->row;
  unsigned r = ~(unsigned)(f->reg >> 3) & 1, x = 1, b = 1;
  if (f->has_rm) b = ~(unsigned)rm_b(f) & 1, x = f->rm < 0 ? ~(unsigned)rm_x(f) & 1 : 1;
  unsigned low = (~(unsigned)f->vvvv & 15) << 3 | (unsigned)row->vl << 2 | f->pp;
  if (row->map == 1 && !row->w && x && b) {
    put(o, 0xC5);
    put(o, r << 7 | low);
  } else {
    put(o, 0xC4);
    put(o, r << 7 | x << 6 | b << 5 | row->map);
    put(o, (unsigned)row->w << 7 | low);
  }
  put(o, f->opcode);
}

static void put_evex(Out *o, const Fields *f) {
  const X86Row *row = f->row;
  const X86Ins *in = f->in;
  CHECK(!in->mask || row->flags & X86F_MASK, "%s takes no mask", row->id);
  bool stores = row->ops[0] == 'm' && in->mem;
  CHECK(!in->zero || (in->mask && row->flags & X86F_ZERO && !stores), "%s takes no {z} here", row->id);
  CHECK(!in->bcast || (in->mem && row->flags & X86F_BCAST), "%s takes no broadcast here", row->id);
  unsigned not_r = ~(unsigned)(f->reg >> 3) & 1, not_r2 = ~(unsigned)(f->reg >> 4) & 1;
  unsigned not_x = ~(unsigned)rm_x(f) & 1, not_b = ~(unsigned)rm_b(f) & 1;
  put(o, 0x62);
  put(o, not_r << 7 | not_x << 6 | not_b << 5 | not_r2 << 4 | row->map);
  put(o, (unsigned)row->w << 7 | (~(unsigned)f->vvvv & 15) << 3 | 4 | f->pp);
  put(o, (unsigned)in->zero << 7 | (unsigned)row->vl << 5 | (unsigned)in->bcast << 4 | (~(unsigned)(f->vvvv >> 4) & 1) << 3 | (unsigned)in->mask);
  put(o, f->opcode);
}

/* ModRM, SIB and displacement. `at` gets the place of a rip-relative displacement. */
static void put_rm(Out *o, const Fields *f, int *at) {
  const X86Ins *in = f->in;
  unsigned reg = ((unsigned)f->reg & 7) << 3;
  if (f->rm >= 0) { put(o, 0xC0 | reg | ((unsigned)f->rm & 7)); return; }
  CHECK(in->index != RSP && in->index < 16 && in->base < 16, "%s: base %d index %d", f->row->id, in->base, in->index);
  if (in->base < 0 && in->index < 0 && in->label >= 0) {
    put(o, reg | 5);
    *at = o->n;
    put_le(o, 0, 4);
    return;
  }
  CHECK(in->label < 0, "%s: a label and registers in one address", f->row->id);
  CHECK(!(f->row->flags & X86F_SIB) || (in->base >= 0 && in->index >= 0), "%s needs a base and an index", f->row->id);
  int unit = f->row->enc != X86_EVX ? 1 : in->bcast ? (f->row->w ? 8 : 4) : f->row->mem_bytes;
  bool fits8 = in->disp % unit == 0 && in->disp / unit >= -128 && in->disp / unit <= 127;
  unsigned mod = in->base < 0 ? 0 : in->disp == 0 && (in->base & 7) != RBP ? 0 : fits8 ? 1 : 2;
  bool sib = in->base < 0 || in->index >= 0 || (in->base & 7) == RSP;
  put(o, mod << 6 | reg | (sib ? 4 : (unsigned)in->base & 7));
  if (sib) {
    unsigned ss = in->scale == 8 ? 3 : in->scale == 4 ? 2 : in->scale == 2 ? 1 : 0;
    CHECK(in->index < 0 || 1 << ss == in->scale, "%s: scale %d", f->row->id, in->scale);
    put(o, (in->index >= 0 ? ss : 0) << 6 | (in->index >= 0 ? (unsigned)in->index & 7 : 4) << 3 | (in->base >= 0 ? (unsigned)in->base & 7 : 5));
  }
  if (in->base < 0 || mod == 2) put_le(o, (uint32_t)in->disp, 4);
  else if (mod == 1) put(o, (unsigned)(in->disp / unit) & 255);
}

int x86_encode_fix(const X86Ins *in, uint8_t *out, int *rip_at) {
  Fields f;
  Out o = {out, 0};
  *rip_at = -1;
  fields_read(in, &f);
  CHECK(!(f.row->flags & X86F_BRANCH), "%s is encoded by the assembler", f.row->id);
  CHECK(f.row->enc == X86_EVX || (!in->mask && !in->zero && !in->bcast), "%s: mask or broadcast outside EVEX", f.row->id);
  CHECK(!in->mem || f.has_rm, "%s has no memory operand", f.row->id);
  fields_shorten(&f);
  if (f.row->enc == X86_LEG) put_legacy(&o, &f);
  else if (f.row->enc == X86_VEX) put_vex(&o, &f);
  else put_evex(&o, &f);
  if (f.has_rm && !f.short_acc) put_rm(&o, &f, rip_at);
  if (f.row->flags & X86F_MODRM) put(&o, 0xC0 | ((unsigned)f.reg & 7) << 3);
  if (f.has_is4) put(&o, (unsigned)f.is4 << 4);
  if (f.imm) put_le(&o, (uint64_t)in->imm, f.imm == 'b' ? 1 : f.imm == 'd' ? 4 : 8);
  return o.n;
}

int x86_encode(const X86Ins *in, uint8_t *out) {
  int rip_at;
  int n = x86_encode_fix(in, out, &rip_at);
  CHECK(rip_at < 0, "%s: a label outside an assembler", x86_row(in->op)->id);
  return n;
}
