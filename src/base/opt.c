/* Options from argv into a struct, by the rows of opt.h. Every value is checked here once, so commands read plain fields. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/opt.h"

/* Field n_lines against the spelled name n-lines, of length n. */
static bool name_is(const char *field, const char *name, size_t n) {
  if (strlen(field) != n) return false;
  for (size_t i = 0; i < n; i++)
    if ((field[i] == '_' ? '-' : field[i]) != name[i]) return false;
  return true;
}

const char *opt_name(Arena *a, const OptRow *r) {
  char *s = arena_printf(a, "--%s", r->field);
  for (char *c = s; *c; c++) if (*c == '_') *c = '-';
  return s;
}

static Err *parse_int(const char *name, const OptRow *r, const char *text, int64_t *out) {
  char *end;
  errno = 0;
  long long v = strtoll(text, &end, 10);
  bool fine = end != text, fits = errno == 0, ranged = r->lo < r->hi || r->lo > r->hi;
  int shift = *end == 'k' || *end == 'K' ? 10 : *end == 'm' || *end == 'M' ? 20 : *end == 'g' || *end == 'G' ? 30 : 0;
  if (shift) end++;
  if (*end || !fine) return err_new(ERR_USAGE, "%s: '%s', expected a whole number", name, text);
  fits = fits && v <= INT64_MAX >> shift && v >= INT64_MIN >> shift;
  if (!fits && ranged) return err_new(ERR_USAGE, "%s: %s, expected %.0f to %.0f", name, text, r->lo, r->hi);
  if (!fits) return err_new(ERR_USAGE, "%s: %s, expected a whole number of 64 bits with a sign", name, text);
  v *= (int64_t)1 << shift;
  if (ranged && ((double)v < r->lo || (double)v > r->hi))
    return err_new(ERR_USAGE, "%s: %lld, expected %.0f to %.0f", name, v, r->lo, r->hi);
  *out = v;
  return NULL;
}

static Err *parse_float(const char *name, const OptRow *r, const char *text, double *out) {
  char *end;
  double v = strtod(text, &end);
  if (end == text || *end || !isfinite(v)) return err_new(ERR_USAGE, "%s: '%s', expected a number", name, text);
  bool ranged = r->lo < r->hi || r->lo > r->hi;
  if (ranged && (v < r->lo || v > r->hi)) return err_new(ERR_USAGE, "%s: %g, expected %g to %g", name, v, r->lo, r->hi);
  *out = v;
  return NULL;
}

static Err *store(Arena *a, const OptRow *r, const char *name, const char *text, void *out) {
  void *at = (char *)out + r->offset;
  switch (r->kind) {
  case OPT_FLAG: *(bool *)at = true; return NULL;
  case OPT_INT: return parse_int(name, r, text, at);
  case OPT_FLOAT: return parse_float(name, r, text, at);
  case OPT_STR: case OPT_IN: case OPT_OUT: *(const char **)at = text; return NULL;
  case OPT_LIST: {
    OptList *l = at;
    PUSH(a, l->p, l->n, l->cap, text);
    return NULL;
  }
  }
  return NULL;
}

static void fill_defaults(Arena *a, const OptRow *rows, size_t n_rows, void *out) {
  for (size_t i = 0; i < n_rows; i++) {
    const OptRow *r = &rows[i];
    void *at = (char *)out + r->offset;
    if (r->kind == OPT_FLAG) *(bool *)at = false;
    if (r->kind == OPT_INT) *(int64_t *)at = OPT_INT_NONE;
    if (r->kind == OPT_FLOAT) *(double *)at = NAN;
    if (r->kind == OPT_STR || r->kind == OPT_IN || r->kind == OPT_OUT) *(const char **)at = NULL;
    if (r->kind == OPT_LIST) *(OptList *)at = (OptList){0};
    if (!r->deflt) continue;
    Err *e = store(a, r, r->field, r->deflt, out);
    CHECK(!e, "default of option %s: %s", r->field, err_text(e));
  }
}

const char *opt_nearest(const char *name, const char *const *names, size_t n) {
  const char *best = NULL;
  int best_d = 3; /* two slips at most, and fewer than half of the letters */
  for (size_t i = 0; i < n; i++) {
    int d = str_edit_distance(name, names[i]);
    if (d < best_d && 2 * d <= (int)strlen(names[i])) {
      best = names[i];
      best_d = d;
    }
  }
  return best;
}

static Err *unknown(Arena *a, const OptRow *rows, size_t n_rows, const char *arg, size_t n) {
  const char **names = ARENA_ARRAY(a, const char *, n_rows + 1);
  for (size_t i = 0; i < n_rows; i++) names[i] = opt_name(a, &rows[i]) + 2;
  names[n_rows] = "help";
  const char *word = arena_dup_n(a, arg, n), *near = opt_nearest(word[0] == '-' && word[1] == '-' ? word + 2 : word, names, n_rows + 1);
  if (near) return err_new(ERR_USAGE, "unknown option %s; did you mean --%s?", word, near);
  return err_new(ERR_USAGE, "unknown option %s; --help lists them", word);
}

static const OptRow *find_long(const OptRow *rows, size_t n_rows, const char *name, size_t n) {
  for (size_t i = 0; i < n_rows; i++)
    if (name_is(rows[i].field, name, n)) return &rows[i];
  return NULL;
}

/* The value of an option that may stand alone: the next argument where it is - or ends as the row says, so that an operand is not taken for it. */
static const char *out_value(const OptRow *r, int argc, char **argv, int *i) {
  const char *end = strrchr(r->arg, '.'), *next = *i + 1 < argc ? argv[*i + 1] : NULL;
  size_t n = next ? strlen(next) : 0;
  if (next && !strcmp(next, "-")) return argv[++*i];
  return end && n >= strlen(end) && !strcmp(next + n - strlen(end), end) ? argv[++*i] : "-";
}

/* One argument --name, --name=value, --no-name; *i moves on when the next argument is the value. */
static Err *parse_long(Arena *a, const OptRow *rows, size_t n_rows, int argc, char **argv, int *i, void *out, OptRest *rest) {
  const char *arg = argv[*i], *eq = strchr(arg, '=');
  size_t n = eq ? (size_t)(eq - arg) : strlen(arg);
  const OptRow *r = find_long(rows, n_rows, arg + 2, n - 2);
  const OptRow *negated = !r && !eq && n > 5 && !strncmp(arg, "--no-", 5) ? find_long(rows, n_rows, arg + 5, n - 5) : NULL;
  if (negated && negated->kind == OPT_FLAG) {
    *(bool *)((char *)out + negated->offset) = false;
    rest->given[negated - rows] = true;
    return NULL;
  }
  if (!r && !strcmp(arg, "--help")) {
    rest->help = true;
    return NULL;
  }
  if (!r) return unknown(a, rows, n_rows, arg, n);
  rest->given[r - rows] = true;
  const char *name = opt_name(a, r), *value = eq ? eq + 1 : NULL;
  if (r->kind == OPT_FLAG) return eq ? err_new(ERR_USAGE, "%s: takes no value, got '%s'", name, value) : store(a, r, name, NULL, out);
  if (r->kind == OPT_OUT) return store(a, r, name, value ? value : out_value(r, argc, argv, i), out);
  if (!value && *i + 1 >= argc) return err_new(ERR_USAGE, "%s: expected %s after it", name, r->arg);
  return store(a, r, name, value ? value : argv[++*i], out);
}

/* One argument of letters: flags may be joined (-jv); a letter that takes a value ends the word. */
static Err *parse_short(Arena *a, const OptRow *rows, size_t n_rows, int argc, char **argv, int *i, void *out, OptRest *rest) {
  const char *arg = argv[*i];
  for (const char *c = arg + 1; *c; c++) {
    const OptRow *r = NULL;
    for (size_t k = 0; k < n_rows && !r; k++) if (rows[k].letter == *c) r = &rows[k];
    if (!r && *c == 'h') {
      rest->help = true;
      continue;
    }
    if (!r) return err_new(ERR_USAGE, "unknown option -%c%s%s; --help lists them", *c, arg[2] ? " in " : "", arg[2] ? arg : "");
    const char *name = opt_name(a, r);
    rest->given[r - rows] = true;
    if (r->kind == OPT_FLAG) {
      TRY(store(a, r, name, NULL, out));
      continue;
    }
    if (r->kind == OPT_OUT) {
      TRY(store(a, r, name, c[1] ? "-" : out_value(r, argc, argv, i), out));
      continue;
    }
    if (!c[1] && *i + 1 >= argc) return err_new(ERR_USAGE, "%s: expected %s after it", name, r->arg);
    return store(a, r, name, c[1] ? c + 1 : argv[++*i], out);
  }
  return NULL;
}

/* Standard input can be read once. */
static Err *find_stdin(Arena *a, const OptRow *rows, size_t n_rows, const void *out, OptRest *rest) {
  for (size_t i = 0; i < n_rows; i++) {
    const char *value = rows[i].kind == OPT_IN ? *(const char *const *)((const char *)out + rows[i].offset) : NULL;
    if (!value || strcmp(value, "-")) continue;
    if (rest->stdin_by) return err_new(ERR_USAGE, "%s -: standard input is what %s reads", opt_name(a, &rows[i]), rest->stdin_by);
    rest->stdin_by = opt_name(a, &rows[i]);
  }
  return NULL;
}

Err *opt_parse(Arena *a, const OptRow *rows, size_t n_rows, int argc, char **argv, void *out, OptRest *rest) {
  *rest = (OptRest){0};
  fill_defaults(a, rows, n_rows, out);
  bool ended = false;
  rest->given = ARENA_ARRAY(a, bool, n_rows + 1);
  for (int i = 1; i < argc; i++) {
    const char *arg = argv[i];
    if (ended || arg[0] != '-' || !arg[1]) PUSH(a, rest->arg, rest->n_args, rest->cap, arg);
    else if (!strcmp(arg, "--")) ended = true;
    else if (arg[1] == '-') TRY(parse_long(a, rows, n_rows, argc, argv, &i, out, rest));
    else TRY(parse_short(a, rows, n_rows, argc, argv, &i, out, rest));
  }
  return find_stdin(a, rows, n_rows, out, rest);
}

void opt_help(FILE *f, const char *usage, const char *about, const OptRow *rows, size_t n_rows) {
  Arena *a = arena_new("help");
  fprintf(f, "usage: lumen %s\n", usage);
  if (about && about[0]) fprintf(f, "%s\n", about);
  bool reads = false;
  if (n_rows) fputc('\n', f);
  for (size_t i = 0; i < n_rows; i++) {
    const OptRow *r = &rows[i];
    bool alone = r->kind == OPT_FLAG, may = r->kind == OPT_OUT;
    char *left = arena_printf(a, "%s%s%s%s", opt_name(a, r), alone ? "" : may ? " [" : " ", alone ? "" : r->arg, may ? "]" : "");
    fprintf(f, "  %c%c%c %-26s %s", r->letter ? '-' : ' ', r->letter ? r->letter : ' ', r->letter ? ',' : ' ', left, r->help);
    if (r->deflt) fprintf(f, " (%s)", r->deflt);
    fputc('\n', f);
    reads = reads || r->kind == OPT_IN;
  }
  if (reads) fputs("\nA file to read may be -, which is standard input.\n", f);
  arena_free(a);
}
