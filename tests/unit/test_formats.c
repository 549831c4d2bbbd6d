/* What the compiler finds in the standard formats' texts, against tests/formats/forms.cases: every block format has codes, a group and as few
   bits a code as written there. A text or an analysis that loses the integer road fails here, not as a slow model. */
#include "lang/lang.h"
#include "opt/opt.h"
#include "test.h"

static void form_text(const FormatForm *f, Str *out) {
  str_addf(out, "%s", f->decl->name);
  if (f->code < 0) { str_add(out, f->plain ? " plain" : " values"); return; }
  if (f->integer) str_addf(out, " group %d", f->group);
  if (f->step) str_addf(out, " of %d, ", f->span);
  if (f->step && f->by) str_addf(out, "steps to %d", f->most);
  else if (f->step) str_add(out, "steps apart");
  str_add(out, " planes");
  for (int i = 0; i < f->leaf[f->code].n_planes; i++) str_addf(out, " %d", f->leaf[f->code].plane_bits[i]);
  if (f->leaf[f->code].index) str_add(out, " numbered");
  for (int s = 0; s < f->n_leaves; s++)
    if (s != f->code) str_addf(out, ", %s / %d", f->leaf[s].mem ? ir_mem_name[f->leaf[s].mem] : "?", f->leaf[s].gran);
}

int main(void) {
  Arena *a = arena_new("test");
  Module *m;
  EXPECT_OK(lang_std_load(a, NULL, &m));
  Str want = {0};
  EXPECT_OK(os_read_file("tests/formats/forms.cases", 1 << 20, &want));
  if (!want.p) return 1;
  for (int i = 0; i < m->n_formats; i++) {
    FormatForm *f;
    Str line = {0};
    TEST(m->format[i]->name) {
      EXPECT_OK(format_analyze(a, m, m->format[i], &f));
      str_add(&line, "\n");
      form_text(f, &line);
      str_add(&line, "\n");
      EXPECT(strstr(want.p, line.p), "tests/formats/forms.cases has no line%s", line.p);
    }
    str_free(&line);
  }
  str_free(&want);
  arena_free(a);
  TEST_MAIN_END();
}
