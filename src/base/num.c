/* Small floats by integer arithmetic: the same everywhere. */
#include <string.h>
#include "base/base.h"

float f32_from_bits(uint32_t u) { float f; memcpy(&f, &u, sizeof f); return f; }
uint32_t f32_to_bits(float f) { uint32_t u; memcpy(&u, &f, sizeof u); return u; }

float f16_to_f32(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
  if (e == 31) return f32_from_bits(sign | 0x7f800000 | m << 13 | (m ? 0x400000 : 0));
  if (e) return f32_from_bits(sign | (e + 112) << 23 | m << 13);
  float f = (float)m * 0x1p-24f;
  return f32_from_bits(f32_to_bits(f) | sign);
}

uint16_t f32_to_f16(float f) {
  uint32_t u = f32_to_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
  if (a >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
  if (a < 0x38800000) { /* subnormal half: let an f32 addition round to multiples of 2^-24 */
    float r = f32_from_bits(a) + 0.5f;
    return (uint16_t)(sign | (f32_to_bits(r) - 0x3f000000));
  }
  uint32_t odd = a >> 13 & 1;
  return (uint16_t)(sign | ((a - 0x38000000 + 0xfff + odd) >> 13));
}

float bf16_to_f32(uint16_t h) { return f32_from_bits((uint32_t)h << 16); }

uint16_t f32_to_bf16(float f) {
  uint32_t u = f32_to_bits(f);
  if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
