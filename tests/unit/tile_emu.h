/* Matrix tiles (AMX-TILE, AMX-INT8, AMX-BF16) on an x86-64 Linux machine without them, for tests: there each of their instructions raises SIGILL, whose
   handler decodes what stands at RIP, does it on tiles of this thread and goes on behind it. What it does is written from the processor's manual, apart
   from the IR's interpreter and from the encoder, so that it checks both. An instruction that a processor would refuse (no configuration, shapes that do
   not match, registers not distinct, no SIB byte) is not done: the signal then ends the program. */
#ifndef LUMEN_TILE_EMU_H
#define LUMEN_TILE_EMU_H
#include "base/base.h"

#if defined(__x86_64__) && defined(__linux__)
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <ucontext.h>

typedef struct EmuTiles { bool configured; uint8_t tile[8][16][64]; int row_bytes[8], rows[8]; } EmuTiles;
static _Thread_local EmuTiles emu_tiles;
static _Atomic int64_t emu_n_done; /* instructions done so far, by all threads */

/* One instruction. reg, rm, v: ModRM.reg, ModRM.rm and VEX.vvvv; at: its memory operand; stride: what its index register holds. */
typedef struct EmuIns { int op, pp, reg, rm, v; bool mem, sib; uint8_t *at; int64_t stride; size_t n_bytes; } EmuIns;

static uint64_t emu_reg(const ucontext_t *u, int r) {
  static const int greg[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return (uint64_t)u->uc_mcontext.gregs[greg[r]];
}

static bool emu_decode(const ucontext_t *u, EmuIns *out) {
  const uint8_t *start = (const uint8_t *)(uintptr_t)u->uc_mcontext.gregs[REG_RIP], *p = start;
  if (p[0] != 0xC4 || (p[1] & 31) != 2 || p[2] & 0x84) return false; /* VEX of three bytes, map 0F38, W 0, L 0 */
  bool x = !(p[1] & 0x40), b = !(p[1] & 0x20);
  uint8_t m = p[4];
  int mod = m >> 6, rm = m & 7;
  EmuIns in = {.op = p[3], .pp = p[2] & 3, .reg = (m >> 3 & 7) + (p[1] & 0x80 ? 0 : 8), .rm = rm + 8 * b, .v = ~p[2] >> 3 & 15, .mem = mod != 3};
  uint64_t at = 0;
  p += 5;
  if (in.mem) {
    bool next = mod == 0 && rm == 5, no_base = false;
    if (rm == 4) {
      int index = (p[0] >> 3 & 7) + 8 * x, base = p[0] & 7;
      in.sib = true;
      in.stride = index == 4 ? 0 : (int64_t)(emu_reg(u, index) << (p[0] >> 6));
      no_base = mod == 0 && base == 5;
      if (!no_base) at = emu_reg(u, base + 8 * b);
      p++;
    } else if (!next) at = emu_reg(u, in.rm);
    int32_t d = 0;
    if (mod == 1) d = (int8_t)*p++;
    if (mod == 2 || next || no_base) memcpy(&d, p, 4), p += 4;
    at += (uint64_t)(int64_t)d + (next ? (uint64_t)(uintptr_t)p : 0);
  }
  in.at = (uint8_t *)(uintptr_t)at;
  in.n_bytes = (size_t)(p - start);
  *out = in;
  return true;
}

static bool emu_config(EmuTiles *t, const uint8_t *p) {
  memset(t, 0, sizeof *t);
  if (p[0] != 1 || p[1]) return false;
  for (int i = 0; i < 8; i++) {
    t->row_bytes[i] = p[16 + 2 * i] | p[17 + 2 * i] << 8;
    t->rows[i] = p[48 + i];
    if (t->row_bytes[i] > 64 || t->rows[i] > 16 || !t->row_bytes[i] != !t->rows[i]) return false;
  }
  t->configured = true;
  return true;
}

static float emu_flush(float f) { return fabsf(f) < 0x1p-126f ? copysignf(0, f) : f; }

static float emu_bf16(const uint8_t *p) {
  uint32_t bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
  float f;
  memcpy(&f, &bits, 4);
  return emu_flush(f);
}

static void emu_pairs(EmuTiles *t, int c, int a, int b) {
  for (int m = 0; m < t->rows[c]; m++)
    for (int n = 0; n < t->row_bytes[c] / 4; n++) {
      float even = 0, odd = 0, sum;
      for (int k = 0; k < t->row_bytes[a] / 4; k++) {
        even = emu_flush(fmaf(emu_bf16(&t->tile[a][m][4 * k]), emu_bf16(&t->tile[b][k][4 * n]), even));
        odd = emu_flush(fmaf(emu_bf16(&t->tile[a][m][4 * k + 2]), emu_bf16(&t->tile[b][k][4 * n + 2]), odd));
      }
      memcpy(&sum, &t->tile[c][m][4 * n], 4);
      sum = emu_flush(emu_flush(sum) + emu_flush(even + odd));
      memcpy(&t->tile[c][m][4 * n], &sum, 4);
    }
}

static void emu_bytes(EmuTiles *t, int c, int a, int b, bool a_signed, bool b_signed) {
  for (int m = 0; m < t->rows[c]; m++)
    for (int n = 0; n < t->row_bytes[c] / 4; n++) {
      uint32_t sum;
      memcpy(&sum, &t->tile[c][m][4 * n], 4);
      for (int k = 0; k < t->row_bytes[a]; k++) {
        int x = t->tile[a][m][k], y = t->tile[b][k / 4][4 * n + k % 4];
        if (a_signed && x > 127) x -= 256;
        if (b_signed && y > 127) y -= 256;
        sum += (uint32_t)(x * y);
      }
      memcpy(&t->tile[c][m][4 * n], &sum, 4);
    }
}

static bool emu_product(EmuTiles *t, const EmuIns *in) {
  int c = in->reg, a = in->rm, b = in->v;
  if (in->mem || !t->configured || c > 7 || a > 7 || b > 7 || c == a || c == b || a == b) return false;
  if (t->rows[c] != t->rows[a] || t->row_bytes[c] != t->row_bytes[b] || t->row_bytes[a] != 4 * t->rows[b] || !t->rows[c] || !t->rows[b]) return false;
  if (in->op == 0x5E) emu_bytes(t, c, a, b, in->pp >= 2, in->pp & 1);
  else if (in->pp == 2) emu_pairs(t, c, a, b);
  else return false;
  return true;
}

static bool emu_move(EmuTiles *t, const EmuIns *in) {
  int r = in->reg;
  if (!in->sib || !t->configured || r > 7 || in->v || !t->rows[r] || in->pp < 2) return false;
  if (in->pp == 3) memset(t->tile[r], 0, sizeof t->tile[r]);
  for (int i = 0; i < t->rows[r]; i++) {
    uint8_t *row = in->at + i * in->stride;
    if (in->pp == 3) memcpy(t->tile[r][i], row, (size_t)t->row_bytes[r]);
    else memcpy(row, t->tile[r][i], (size_t)t->row_bytes[r]);
  }
  return true;
}

static bool emu_do(EmuTiles *t, const EmuIns *in) {
  if (in->op == 0x5E || in->op == 0x5C) return emu_product(t, in);
  if (in->op == 0x4B) return emu_move(t, in);
  if (in->op != 0x49 || in->v) return false;
  if (in->pp == 0 && in->mem && in->reg == 0) return emu_config(t, in->at);
  if (in->mem || in->rm) return false;
  if (in->pp == 0 && in->reg == 0) memset(t, 0, sizeof *t); /* tilerelease */
  else if (in->pp == 3 && t->configured && in->reg < 8 && t->rows[in->reg]) memset(t->tile[in->reg], 0, sizeof t->tile[0]);
  else return false;
  return true;
}

static void emu_signal(int sig, siginfo_t *info, void *context) {
  (void)info;
  ucontext_t *u = context;
  EmuIns in;
  if (emu_decode(u, &in) && emu_do(&emu_tiles, &in)) {
    u->uc_mcontext.gregs[REG_RIP] += (greg_t)in.n_bytes;
    atomic_fetch_add(&emu_n_done, 1);
  } else signal(sig, SIG_DFL); /* the instruction is tried again, and ends the program */
}

static bool emu_begin(void) {
  struct sigaction s = {.sa_sigaction = emu_signal, .sa_flags = SA_SIGINFO};
  return !sigaction(SIGILL, &s, NULL);
}
static int64_t emu_count(void) { return atomic_load(&emu_n_done); }
#else
static bool emu_begin(void) { return false; }
static int64_t emu_count(void) { return 0; }
#endif
#endif
