/* Inputs on which the fuzz target tokenizer once failed. */
#include "../fuzz/fuzz_tokenizer.c"
#include "fuzz_found.h"

int main(void) { return fuzz_found("tokenizer"); }
