/* Inputs on which the fuzz target reply once failed. */
#include "../fuzz/fuzz_reply.c"
#include "fuzz_found.h"

int main(void) { return fuzz_found("reply"); }
