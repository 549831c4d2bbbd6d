/* Chat templates against Jinja2 as transformers sets it up: every real template with every conversation, every snippet; then the
   budgets and cases of our own. LUMEN_GOLDEN adds the golden set's own folder. */
#include "text_golden.h"

static const char *group = "";
static int n_cases, n_bad;

static void complain(const char *what, const char *id, const Str *got, Err *e, Val row) {
  n_bad++;
  if (!getenv("LUMEN_SHOW")) return;
  Str want = {0};
  Val *w = val_get(row, "output");
  if (!w) w = val_get(row, "error");
  val_repr(&want, *w);
  fprintf(stderr, "%s %s: got %s%.300s\n   want %.400s\n", what, id, e ? "error " : "", e ? err_text(e) : got->p ? got->p : "", want.p);
  str_free(&want);
}

/* One result against its row: ok and output, or an error whose kind and (for raise_exception) text must be right. */
static void check(const char *id, Err *parse_error, Err *e, const Str *got, Val row) {
  bool ok = val_get(row, "ok")->u.b;
  Err *any = parse_error ? parse_error : e;
  n_cases++;
  if (ok) {
    const VStr *want = val_get(row, "output")->u.s;
    if (any || want->n != got->n || memcmp(want->p, got->p ? got->p : "", want->n)) complain("wrong", id, got, any, row);
    return;
  }
  Val error = *val_get(row, "error");
  bool at_load = val_is_str(*val_get(error, "kind"), "jinja:TemplateSyntaxError") || val_is_str(*val_get(error, "kind"), "jinja:TemplateAssertionError");
  bool raised = val_is_str(*val_get(error, "kind"), "raise_exception");
  if (!any || (at_load && !parse_error)) complain(any ? "late error" : "no error", id, got, any, row);
  else if (raised && (err_kind(any) != ERR_USAGE || strcmp(err_text(any), val_get(error, "message")->u.s->p))) complain("other message", id, got, any, row);
}

static void run_snippets(const char *folder) {
  char path[600];
  snprintf(path, sizeof path, "%s/jinja-conformance.jsonl", folder);
  Str rows = read_or_empty(path);
  snprintf(path, sizeof path, "%s/conformance-context.json", folder);
  Str context = read_or_empty(path);
  const char *p;
  size_t at = 0, n;
  struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 30, .tm_hour = 9, .tm_min = 5, .tm_sec = 7, .tm_wday = 1, .tm_yday = 333};
  while (next_line(&rows, &at, &p, &n)) {
    Arena *a = arena_new("case");
    Val row;
    EXPECT_OK(text_json_parse(a, p, n, &row));
    const VStr *src = val_get(row, "template")->u.s;
    TextTemplate *t = NULL;
    Str out = {0};
    Err *e1 = text_template_parse(a, src->p, src->n, &t), *e2 = e1 ? NULL : text_template_render_text(t, context.p ? context.p : "", context.n, &now, &out);
    check(val_get(row, "id")->u.s->p, e1, e2, &out, row);
    err_free(e1);
    err_free(e2);
    str_free(&out);
    arena_free(a);
  }
  str_free(&rows);
  str_free(&context);
}

static Str request_text(Val conversation, Val special) {
  Str s = {0};
  Arena *a = arena_new("request");
  Val q = val_dict(a);
  for (int i = 0; i < conversation.u.d->n; i++) val_put(a, q.u.d, conversation.u.d->keys[i], conversation.u.d->vals[i]);
  val_put(a, q.u.d, val_str(a, "special_tokens", 14), special);
  val_put(a, q.u.d, val_str(a, "now", 3), val_str(a, "2026-11-30T09:05:07", 19));
  Render r = {.arena = a};
  Val json = text_to_json(&r, q, false, val_none(), val_none(), false);
  str_add_n(&s, json.u.s->p, json.u.s->n);
  arena_free(a);
  return s;
}

static void run_cases(const char *folder) {
  char path[600];
  Arena *a = arena_new("cases");
  Val templates, conversations;
  snprintf(path, sizeof path, "%s/templates.json", folder);
  Str t_text = read_or_empty(path);
  snprintf(path, sizeof path, "%s/conversations.json", folder);
  Str c_text = read_or_empty(path);
  snprintf(path, sizeof path, "%s/cases.jsonl", folder);
  Str rows = read_or_empty(path);
  EXPECT_OK(text_json_parse(a, t_text.p ? t_text.p : "", t_text.n, &templates));
  EXPECT_OK(text_json_parse(a, c_text.p ? c_text.p : "", c_text.n, &conversations));
  const char *p;
  size_t at = 0, n;
  struct tm now = {.tm_year = 100};
  while (next_line(&rows, &at, &p, &n)) {
    Arena *b = arena_new("case");
    Val row;
    EXPECT_OK(text_json_parse(b, p, n, &row));
    const char *name = val_get(row, "template")->u.s->p, *conversation = val_get(row, "conversation")->u.s->p;
    snprintf(path, sizeof path, "%s/templates/%s.jinja", folder, name);
    Str src = read_or_empty(path), out = {0};
    TextTemplate *t = NULL;
    Err *e1 = text_template_parse(b, src.p ? src.p : "", src.n, &t), *e2 = NULL;
    Str request = request_text(*val_get(conversations, conversation), *val_get(*val_get(templates, name), "special_tokens"));
    if (!e1) e2 = text_template_chat_text(t, request.p, request.n, &now, &out);
    snprintf(path, sizeof path, "%s/%s", name, conversation);
    check(path, e1, e2, &out, row);
    err_free(e1);
    err_free(e2);
    str_free(&src);
    str_free(&out);
    str_free(&request);
    arena_free(b);
  }
  str_free(&t_text);
  str_free(&c_text);
  str_free(&rows);
  arena_free(a);
}

static void run_folder(const char *folder, const char *label) {
  char title[200];
  group = label;
  snprintf(title, sizeof title, "%s: Jinja snippets", label);
  TEST(title) {
    n_cases = n_bad = 0;
    run_snippets(folder);
    EXPECT(n_cases >= 300 && !n_bad, "%d of %d wrong", n_bad, n_cases);
  }
  snprintf(title, sizeof title, "%s: real templates", label);
  TEST(title) {
    n_cases = n_bad = 0;
    run_cases(folder);
    EXPECT(n_cases >= 2000 && !n_bad, "%d of %d wrong", n_bad, n_cases);
  }
}

/* Renders one template with a context given as JSON text. */
static Err *render(const char *src, const char *json, Str *out) {
  Arena *a = arena_new("case");
  TextTemplate *t = NULL;
  struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 30, .tm_hour = 9, .tm_min = 5, .tm_sec = 7, .tm_wday = 1, .tm_yday = 333};
  Err *e = text_template_parse(a, src, strlen(src), &t);
  if (!e) e = text_template_render_text(t, json, strlen(json), &now, out);
  arena_free(a);
  return e;
}

static void gives(const char *src, const char *json, const char *want) {
  Str out = {0};
  Err *e = render(src, json, &out);
  EXPECT(!e && !strcmp(out.p ? out.p : "", want), "%s: got '%s', expected '%s'", src, e ? err_text(e) : out.p ? out.p : "", want);
  err_free(e);
  str_free(&out);
}

static void fails(const char *src, const char *json, ErrKind kind, const char *part) {
  Str out = {0};
  str_add(&out, "before");
  Err *e = render(src, json, &out);
  EXPECT(e && err_kind(e) == kind && strstr(err_text(e), part), "%.60s: got '%s'", src, e ? err_text(e) : "no error");
  EXPECT(!strcmp(out.p, "before"), "output written on failure");
  err_free(e);
  str_free(&out);
}

static char *repeated(const char *before, const char *part, int n, const char *after) {
  Str s = {0};
  str_add(&s, before);
  for (int i = 0; i < n; i++) str_add(&s, part);
  str_add(&s, after);
  return s.p;
}

static void test_reports(void) {
  TEST("D07 slice bound from a negated variable") gives("{{ items[:-n] | string }}", "{\"items\": [\"a\", \"b\", \"c\"], \"n\": 1}", "['a', 'b']");
  TEST("D08 trim_blocks and lstrip_blocks") {
    gives("a\n  {% if true %}\nb\n  {% endif %}\nc", "{}", "a\nb\nc");
    gives("a\n  {{ 1 }}\nb", "{}", "a\n  1\nb");
  }
  TEST("D09 giant ranges and texts are refused") {
    fails("{% for i in range(10**9) %}{% endfor %}", "{}", ERR_LIMIT, "range");
    fails("{{ '-' * n }}", "{\"n\": 100000000}", ERR_LIMIT, "MiB");
    fails("{{ '-' * 10**18 }}", "{}", ERR_LIMIT, "MiB");
  }
  TEST("S07 every strftime code") gives("{{ strftime_now('%Y-%m-%d %H:%M:%S') }}", "{}", "2026-11-30 09:05:07");
}

static void test_budgets(void) {
  TEST("endless work ends") {
    fails("{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}", "{}", ERR_LIMIT, "");
    fails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}", ERR_LIMIT, "deep");
    fails("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "{}", ERR_LIMIT, "deep");
    fails("{% set ns = namespace(l=[0]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", "{}", ERR_LIMIT, "MiB");
    fails("{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "{}", ERR_LIMIT, "");
    fails("{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s | replace('x', 'xxxxxxxx') %}{% endfor %}", "{}", ERR_LIMIT, "");
    fails("{% set ns = namespace(l=[]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}", "{}", ERR_LIMIT, "");
    fails("{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l | tojson }}", "{}", ERR_LIMIT, "");
    fails("{{ 'x' | center(10**9) }}", "{}", ERR_LIMIT, "MiB");
    fails("{{ '%999999999d' % 1 }}", "{}", ERR_LIMIT, "width");
    fails("{{ '{:999999999}'.format(1) }}", "{}", ERR_LIMIT, "width");
    fails("{{ 10 ** 100 }}", "{}", ERR_LIMIT, "127 bits");
  }
  TEST("what contains itself or is very deep still prints") {
    Str out = {0};
    EXPECT_OK(render("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "{}", &out));
    EXPECT(strstr(out.p, "..."), "cut");
    str_clear(&out);
    EXPECT_OK(render("{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l == [ns.l] }}", "{}", &out));
    EXPECT(!strcmp(out.p, "False"), "deep equality");
    str_free(&out);
  }
  TEST("deeply nested templates are refused at load") {
    static const struct { const char *part, *before, *after; } forms[] = {{"(", "{{ ", " }}"}, {"[", "{{ ", " }}"}, {"{% if 1 %}", "", ""}, {"not ", "{{ ", "1 }}"}, {"- ", "{{ ", "1 }}"}, {".a", "{{ x", " }}"}, {"|e", "{{ x", " }}"}, {" if 1 else 1", "{{ 1", " }}"}, {"+1", "{{ 1", " }}"}};
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
      char *s = repeated(forms[i].before, forms[i].part, 50000, forms[i].after);
      fails(s, "{\"x\": 1}", ERR_SYNTAX, "");
      free(s);
    }
  }
  TEST("long but flat templates are fine") {
    char *s = repeated("", "{{ 1 }}{% if x %}a{% elif y %}b{% endif %}", 5000, ""), *elifs = repeated("{% if x %}", "{% elif x %}", 5000, "{% else %}e{% endif %}");
    Str out = {0};
    EXPECT_OK(render(s, "{}", &out));
    EXPECT(out.n == 5000, "%zu", out.n);
    str_free(&out);
    gives(elifs, "{}", "e");
    free(s);
    free(elifs);
  }
}

static void test_python(void) {
  TEST("numbers") {
    gives("{{ 170141183460469231731687303715884105727 }}", "{}", "170141183460469231731687303715884105727");
    gives("{{ 1e400 }} {{ -0.0 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }}", "{}", "inf -0.0 5e-324 1.7976931348623157e+308");
    gives("{{ x }} {{ x | tojson }}", "{\"x\": [1, 1.0, 1e2, -0, 12345678901234567890123]}", "[1, 1.0, 100.0, 0, 12345678901234567890123] [1, 1.0, 100.0, 0, 12345678901234567890123]");
    gives("{{ -7 // 2 }} {{ 7 // -2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }}", "{}", "-4 -4 2 -2 -4.0 0.5");
  }
  TEST("texts with NUL, surrogates and broken bytes") {
    gives("{{ s | length }}{{ s | tojson }}", "{\"s\": \"a\\u0000b\"}", "3\"a\\u0000b\"");
    gives("{{ s }}", "{\"s\": \"\\ud83d\\ude00 \\ud83d\"}", "\xF0\x9F\x98\x80 \xEF\xBF\xBD");
  }
  TEST("an error in a lazy filter shows when it is read") {
    gives("{% set x = [1] | map('nosuch') %}ok", "{}", "ok");
    fails("{% set x = [1] | map('nosuch') %}{{ x | list }}", "{}", ERR_FORMAT, "nosuch");
    gives("{% set x = [1, 2] | map('string') %}{{ x | list }}{{ x | list }}", "{}", "['1', '2'][]");
  }
  TEST("else of a loop, and the rest of an iterator") {
    gives("{% for i in [1, 2] %}{% break %}{% else %}e{% endfor %}", "{}", "e");
    gives("{% for i in [1, 2] %}{% if i == 2 %}{% break %}{% endif %}{% else %}e{% endfor %}", "{}", "");
    gives("{% set g = [1, 2, 3] | map('string') %}{{ '2' in g }}{{ g | list }}", "{}", "True['3']");
  }
  TEST("errors name the line") {
    fails("a\nb\n{{ x.y.z }}", "{}", ERR_FORMAT, "line 3");
    fails("a\n{% if %}", "{}", ERR_SYNTAX, "line 2");
  }
}

int main(void) {
  test_reports();
  test_budgets();
  test_python();
  run_folder("tests/text/templates", "templates");
  const char *golden = getenv("LUMEN_GOLDEN");
  if (golden) {
    char path[600];
    snprintf(path, sizeof path, "%s/templates", golden);
    run_folder(path, "golden templates");
  } else {
    TEST_SKIP("golden templates", "LUMEN_GOLDEN names no folder with the whole set");
  }
  TEST_MAIN_END();
}
