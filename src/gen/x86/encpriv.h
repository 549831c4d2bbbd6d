/* gen/x86, private to the encoder: one instruction with a place to patch. */
#ifndef LUMEN_GEN_X86_ENCPRIV_H
#define LUMEN_GEN_X86_ENCPRIV_H
#include "gen/x86/enc.h"

int x86_encode_fix(const X86Ins *in, uint8_t *out, int *rip_at); /* rip_at: offset of a 4-byte rip-relative displacement, -1 none */
#endif
