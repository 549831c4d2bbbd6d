/* Assembler object: instructions, labels, alignment and constants in; one position-independent blob out.
   Code is kept as fixed bytes with items between them whose size is not known yet (branches, padding). Finishing starts with every
   branch short and lengthens those that do not reach until nothing changes; lengths only grow, so it ends. The pool follows the code,
   largest constants first, so each is aligned to its own size. */
#include <string.h>
#include "gen/x86/encpriv.h"

typedef enum ItemKind { ITEM_BRANCH, ITEM_RIP, ITEM_ALIGN } ItemKind;
typedef struct Item {
  ItemKind kind;
  int at;              /* offset in the fixed bytes; a rip displacement's own place */
  int end;             /* rip: fixed offset of the next instruction */
  int op, label;
  int32_t disp;
  int size;            /* bytes this item adds: the branch or the padding */
  int align;           /* multiple that padding reaches */
} Item;
typedef struct Label { int at, n_items; int64_t pos; bool bound; } Label;
typedef struct Const { int label, n_bytes; uint8_t p[64]; } Const;

struct X86Asm {
  Arena *a;
  uint8_t *code;
  Item *items;
  Label *labels;
  Const *consts;
  int n_code, cap_code, n_items, cap_items, n_labels, cap_labels, n_consts, cap_consts;
  bool finished;
};

X86Asm *x86_asm_new(Arena *a) {
  X86Asm *s = ARENA_NEW(a, X86Asm);
  s->a = a;
  return s;
}

int x86_asm_label(X86Asm *s) {
  PUSH(s->a, s->labels, s->n_labels, s->cap_labels, (Label){.pos = -1});
  return s->n_labels - 1;
}

void x86_asm_bind(X86Asm *s, int label) {
  CHECK(label >= 0 && label < s->n_labels && !s->labels[label].bound, "label %d", label);
  s->labels[label] = (Label){.at = s->n_code, .n_items = s->n_items, .pos = -1, .bound = true};
}

void x86_asm_align(X86Asm *s, int n_bytes) {
  CHECK(n_bytes >= 1 && n_bytes <= 64 && !(n_bytes & (n_bytes - 1)), "alignment %d", n_bytes);
  PUSH(s->a, s->items, s->n_items, s->cap_items, (Item){.kind = ITEM_ALIGN, .at = s->n_code, .align = n_bytes});
}

void x86_asm_emit(X86Asm *s, const X86Ins *in) {
  CHECK(!s->finished, "the assembler is spent");
  uint32_t flags = x86_row(in->op)->flags;
  if (flags & X86F_BRANCH) {
    CHECK(in->label >= 0 && in->label < s->n_labels, "%s to label %d", x86_row(in->op)->id, in->label);
    PUSH(s->a, s->items, s->n_items, s->cap_items,
         (Item){.kind = ITEM_BRANCH, .at = s->n_code, .op = in->op, .label = in->label, .size = flags & X86F_REL8 ? 2 : 5});
    return;
  }
  uint8_t buf[16];
  int rip_at, n = x86_encode_fix(in, buf, &rip_at);
  CHECK(n <= 15, "%s takes %d bytes", x86_row(in->op)->id, n);
  if (rip_at >= 0) {
    CHECK(in->label < s->n_labels, "label %d", in->label);
    PUSH(s->a, s->items, s->n_items, s->cap_items,
         (Item){.kind = ITEM_RIP, .at = s->n_code + rip_at, .end = s->n_code + n, .label = in->label, .disp = in->disp});
  }
  for (int i = 0; i < n; i++) PUSH(s->a, s->code, s->n_code, s->cap_code, buf[i]);
}

int x86_asm_const(X86Asm *s, const void *p, int n_bytes) {
  CHECK(n_bytes >= 4 && n_bytes <= 64 && !(n_bytes & (n_bytes - 1)), "constant of %d bytes", n_bytes);
  for (int i = 0; i < s->n_consts; i++)
    if (s->consts[i].n_bytes == n_bytes && !memcmp(s->consts[i].p, p, (size_t)n_bytes)) return s->consts[i].label;
  Const c = {.label = x86_asm_label(s), .n_bytes = n_bytes};
  memcpy(c.p, p, (size_t)n_bytes);
  PUSH(s->a, s->consts, s->n_consts, s->cap_consts, c);
  s->labels[c.label].bound = true;
  s->labels[c.label].at = -1; /* placed after the code is sized */
  return c.label;
}

/* Positions of labels and sizes of padding for the present branch sizes; returns the size of the code. */
static int64_t place(X86Asm *s, int64_t *item_pos) {
  int64_t grown = 0;
  for (int i = 0; i < s->n_items; i++) {
    Item *it = &s->items[i];
    item_pos[i] = it->at + grown;
    if (it->kind == ITEM_ALIGN) it->size = (int)(-item_pos[i] & (it->align - 1));
    grown += it->size;
  }
  for (int i = 0; i < s->n_labels; i++) {
    Label *l = &s->labels[i];
    if (!l->bound || l->at < 0) continue;
    int k = l->n_items - 1;
    /* All items before the label are counted by the last of them, whose own bytes end at its position + size. */
    l->pos = k < 0 ? l->at : item_pos[k] + s->items[k].size + (l->at - s->items[k].at);
  }
  return s->n_code + grown;
}

static int64_t relax(X86Asm *s, int64_t *item_pos) {
  for (;;) {
    int64_t n_code = place(s, item_pos);
    bool grew = false;
    for (int i = 0; i < s->n_items; i++) {
      Item *it = &s->items[i];
      if (it->kind != ITEM_BRANCH) continue;
      CHECK(s->labels[it->label].bound, "branch to label %d, which is bound nowhere", it->label);
      int64_t rel = s->labels[it->label].pos - (item_pos[i] + it->size);
      if (it->size != 2 || (rel >= -128 && rel <= 127)) continue;
      it->size = it->op == X86_jmp ? 5 : 6;
      grew = true;
    }
    if (!grew) return n_code;
  }
}

static void put32(uint8_t *p, int64_t v) {
  CHECK(v >= INT32_MIN && v <= INT32_MAX, "displacement %lld", (long long)v);
  for (int i = 0; i < 4; i++) p[i] = (uint8_t)((uint64_t)v >> (8 * i));
}

static void put_branch(uint8_t *p, const Item *it, int64_t rel) {
  const X86Row *row = x86_row(it->op);
  if (it->size == 2) {
    p[0] = (uint8_t)(row->map ? row->opcode - 0x10 : 0xEB);
    p[1] = (uint8_t)rel;
    return;
  }
  if (row->map) *p++ = 0x0F;
  *p++ = row->opcode;
  put32(p, rel);
}

static void put_nops(uint8_t *p, int n) {
  static const uint8_t nops[9][9] = {
      {0x90}, {0x66, 0x90}, {0x0F, 0x1F, 0x00}, {0x0F, 0x1F, 0x40, 0}, {0x0F, 0x1F, 0x44, 0, 0}, {0x66, 0x0F, 0x1F, 0x44, 0, 0},
      {0x0F, 0x1F, 0x80, 0, 0, 0, 0}, {0x0F, 0x1F, 0x84, 0, 0, 0, 0, 0}, {0x66, 0x0F, 0x1F, 0x84, 0, 0, 0, 0, 0}};
  while (n > 0) {
    int k = MIN(n, 9);
    memcpy(p, nops[k - 1], (size_t)k);
    p += k, n -= k;
  }
}

/* Give every constant its position, largest first; returns the end of the pool. */
static int64_t place_pool(X86Asm *s, int64_t n_code) {
  int64_t pos = s->n_consts ? ROUND_UP(n_code, 64) : n_code;
  for (int size = 64; size >= 4; size /= 2)
    for (int i = 0; i < s->n_consts; i++)
      if (s->consts[i].n_bytes == size) s->labels[s->consts[i].label].pos = pos, pos += size;
  return pos;
}

X86Blob x86_asm_finish(X86Asm *s) {
  CHECK(!s->finished, "finished twice");
  s->finished = true;
  int64_t *item_pos = ARENA_ARRAY(s->a, int64_t, (size_t)s->n_items + 1);
  int64_t n_code = relax(s, item_pos), n = place_pool(s, n_code);
  uint8_t *out = arena_alloc(s->a, (size_t)n + 1);
  int64_t o = 0;
  int from = 0;
  for (int i = 0; i <= s->n_items; i++) {
    int to = i < s->n_items ? s->items[i].at : s->n_code;
    if (to > from) memcpy(out + o, s->code + from, (size_t)(to - from));
    o += to - from, from = to;
    if (i == s->n_items) break;
    const Item *it = &s->items[i];
    CHECK(o == item_pos[i], "item %d", i);
    if (it->kind == ITEM_BRANCH) put_branch(out + o, it, s->labels[it->label].pos - (o + it->size));
    if (it->kind == ITEM_ALIGN) put_nops(out + o, it->size);
    o += it->size;
  }
  for (int i = 0; i < s->n_items; i++) {
    const Item *it = &s->items[i];
    if (it->kind != ITEM_RIP) continue;
    CHECK(s->labels[it->label].bound, "address of label %d, which is bound nowhere", it->label);
    put32(out + item_pos[i], s->labels[it->label].pos + it->disp - (item_pos[i] + it->end - it->at));
  }
  for (int i = 0; i < s->n_consts; i++) memcpy(out + s->labels[s->consts[i].label].pos, s->consts[i].p, (size_t)s->consts[i].n_bytes);
  return (X86Blob){.p = out, .n_bytes = (size_t)n, .n_code_bytes = (size_t)n_code};
}

int64_t x86_asm_label_pos(const X86Asm *s, int label) {
  CHECK(s->finished && label >= 0 && label < s->n_labels, "label %d", label);
  return s->labels[label].pos;
}
