/* Inputs on which the fuzz target calls once failed. */
#include "../fuzz/fuzz_calls.c"
#include "fuzz_found.h"

int main(void) { return fuzz_found("calls"); }
