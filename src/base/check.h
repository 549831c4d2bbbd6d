/* base: CHECK, on its own because the next line tells the compiler to allow a macro without its optional arguments (-Wpedantic). */
#ifndef LUMEN_CHECK_H
#define LUMEN_CHECK_H
#pragma GCC system_header
#ifdef __clang__ /* which warns at each use instead */
#pragma clang diagnostic ignored "-Wunknown-warning-option"
#pragma clang diagnostic ignored "-Wvariadic-macro-arguments-omitted"
#endif

/* Our own fault ends the process with a message; outside input never reaches a CHECK. CHECK(cond) or CHECK(cond, "format", ..). */
#define CHECK(cond, ...) ((cond) ? (void)0 : base_check_fail(__FILE__, __LINE__, #cond, "" __VA_ARGS__))
_Noreturn void base_check_fail(const char *file, int line, const char *cond, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#endif
