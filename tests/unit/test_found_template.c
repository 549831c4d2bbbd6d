/* Inputs on which the fuzz target template once failed. */
#include "../fuzz/fuzz_template.c"
#include "fuzz_found.h"

int main(void) { return fuzz_found("template"); }
