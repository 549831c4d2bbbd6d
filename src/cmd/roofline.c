/* The roofline plot: operations per byte across, operations per second up, both logarithmic. The slope is what reading memory allows, the flat
   lines what the arithmetic units give. Every kernel is a numbered mark; the list beside the plot says which is which. In: numbers and texts.
   Out: SVG 1.1 that needs no script and no font of its own. */
#include <math.h>
#include <string.h>
#include "cmd/roofline.h"

enum { LEFT = 72, TOP = 84, PLOT_W = 560, LIST_X = 664, WIDTH = 1240, ROW_H = 15, LEAST_H = 440, MOST_LISTED = 22, N_PLACES = 8 };

typedef struct Box { double x, y, w, h; } Box;
typedef struct Plot {
  const Roofline *r;
  Str *out;
  double x0, x1, y0, y1, h;        /* decades; height of the plot in pixels */
  Box taken[2 * ROOFLINE_SERIES * MOST_LISTED]; int n_taken;
} Plot;

static const char style[] =
    "<style>\n"
    "svg { color-scheme: light dark; font: 12px system-ui, 'DejaVu Sans', sans-serif }\n"
    ".ground { fill: #ffffff } text { fill: #1c2024 } .faint { fill: #60646c }\n"
    ".grid { stroke: #e0e2e6; stroke-width: 1 } .frame { fill: none; stroke: #8b8d98 }\n"
    ".roof { fill: none; stroke: #1c2024; stroke-width: 2 }\n"
    ".s0 { fill: #0a6cbd; stroke: #ffffff } .s1 { fill: #c2410c; stroke: #ffffff }\n"
    ".tag { font-size: 11px; font-weight: 600 } .head { font-size: 16px; font-weight: 600 } .small { font-size: 11px } .end { text-anchor: end } .mid { text-anchor: middle }\n"
    "@media (prefers-color-scheme: dark) {\n"
    ".ground { fill: #15171a } text { fill: #edeef0 } .faint { fill: #a7abb3 }\n"
    ".grid { stroke: #2e3135 } .frame { stroke: #696e77 } .roof { stroke: #edeef0 }\n"
    ".s0 { fill: #70b8ff; stroke: #15171a } .s1 { fill: #ffa057; stroke: #15171a }\n"
    "}\n"
    "</style>\n";

/* ---- text ---------------------------------------------------------------------------------------------------------- */
/* Bytes of the well-formed UTF-8 character at p, which XML allows; 0: none is there. */
static int char_length(const unsigned char *p) {
  if (*p < 0x80) return *p >= 0x20 && *p != 0x7f;
  int n = *p >= 0xf0 && *p < 0xf5 ? 4 : *p >= 0xe0 && *p < 0xf0 ? 3 : *p >= 0xc2 && *p < 0xe0 ? 2 : 0;
  for (int i = 1; i < n; i++) if ((p[i] & 0xc0) != 0x80) return 0;
  if (n < 3) return n;
  unsigned c = n == 3 ? (p[0] & 15u) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u) : (p[0] & 7u) << 18 | (p[1] & 63u) << 12 | (p[2] & 63u) << 6 | (p[3] & 63u);
  bool fine = n == 3 ? c >= 0x800 && (c < 0xd800 || c > 0xdfff) && c < 0xfffe : c >= 0x10000 && c <= 0x10ffff;
  return fine ? n : 0;
}

static void escaped(const char *text, Str *out) {
  for (const unsigned char *p = (const unsigned char *)text; *p;) {
    int n = char_length(p);
    if (!n) str_add(out, "\xef\xbf\xbd");
    else if (*p == '&') str_add(out, "&amp;");
    else if (*p == '<') str_add(out, "&lt;");
    else if (*p == '>') str_add(out, "&gt;");
    else if (*p == '"') str_add(out, "&quot;");
    else str_add_n(out, p, (size_t)n);
    p += n ? n : 1;
  }
}

/* At most n_chars characters of it, then an ellipsis. */
static void text_at(Plot *p, double x, double y, const char *class, const char *text, int n_chars) {
  Str cut = {0};
  const char *c = text;
  for (int i = 0; *c && i < n_chars; i++) {
    int n = char_length((const unsigned char *)c);
    str_add_n(&cut, c, (size_t)(n ? n : 1));
    c += n ? n : 1;
  }
  if (*c) str_add(&cut, "\xe2\x80\xa6");
  str_addf(p->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
  escaped(cut.p ? cut.p : "", p->out);
  str_add(p->out, "</text>\n");
  str_free(&cut);
}

static const char *with_unit(double v, char *buf, size_t n) {
  static const char *const unit[] = {"", "k", "M", "G", "T", "P"};
  int u = 0;
  while (u < 5 && v >= 999.5) v /= 1000, u++;
  snprintf(buf, n, "%.3g %s", v, unit[u]);
  return buf;
}

/* ---- the plot ------------------------------------------------------------------------------------------------------ */
static double at_x(const Plot *p, double intensity) { return LEFT + PLOT_W * (log10(intensity) - p->x0) / (p->x1 - p->x0); }
static double at_y(const Plot *p, double rate) { return TOP + p->h - p->h * (log10(rate) - p->y0) / (p->y1 - p->y0); }
static bool plotted(const RoofPoint *q) { return q->ops > 0 && q->n_bytes > 0 && q->seconds > 0; }

static void widen(double *lo, double *hi, double v) {
  if (!(v > 0) || !isfinite(v)) return;
  *lo = MIN(*lo, floor(log10(v) - 0.05));
  *hi = MAX(*hi, ceil(log10(v) + 0.05));
}

static void find_ranges(Plot *p) {
  const Roofline *r = p->r;
  p->x0 = p->y0 = 300, p->x1 = p->y1 = -300;
  for (int i = 0; i < r->n_lines; i++) {
    widen(&p->y0, &p->y1, r->line[i].ops_per_s);
    widen(&p->x0, &p->x1, r->line[i].ops_per_s / r->bytes_per_s);
  }
  for (int i = 0; i < r->n_points; i++) {
    if (!plotted(&r->point[i])) continue;
    widen(&p->x0, &p->x1, r->point[i].ops / r->point[i].n_bytes);
    widen(&p->y0, &p->y1, r->point[i].ops / r->point[i].seconds);
  }
  if (p->x1 < p->x0) p->x0 = p->y0 = 0, p->x1 = p->y1 = 1;
}

static void axes(Plot *p) {
  char buf[40], label[48];
  for (double d = p->x0; d <= p->x1; d++) {
    double x = at_x(p, pow(10, d));
    str_addf(p->out, "<line class=\"grid\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x, TOP, x, TOP + p->h);
    snprintf(label, sizeof label, "%g", pow(10, d));
    text_at(p, x, TOP + p->h + 18, "mid faint", label, 20);
  }
  for (double d = p->y0; d <= p->y1; d++) {
    double y = at_y(p, pow(10, d));
    str_addf(p->out, "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>\n", LEFT, y, LEFT + PLOT_W, y);
    text_at(p, LEFT - 8, y + 4, "end faint", with_unit(pow(10, d), buf, sizeof buf), 20);
  }
  str_addf(p->out, "<rect class=\"frame\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%.1f\"/>\n", LEFT, TOP, PLOT_W, p->h);
  text_at(p, LEFT + PLOT_W / 2.0, TOP + p->h + 38, "mid", "operations per byte", 40);
  str_addf(p->out, "<text class=\"mid\" transform=\"translate(16 %.1f) rotate(-90)\">operations per second</text>\n", TOP + p->h / 2);
}

static void roofs(Plot *p) {
  const Roofline *r = p->r;
  char buf[40], label[120];
  double right = pow(10, p->x1), left = pow(10, p->x0), most = 0;
  for (int i = 0; i < r->n_lines; i++) {
    double ops = r->line[i].ops_per_s, ridge = MAX(ops / r->bytes_per_s, left);
    most = MAX(most, ops);
    if (!(ops > 0)) continue;
    str_addf(p->out, "<path class=\"roof\" d=\"M%.1f %.1f H%d\"/>\n", at_x(p, ridge), at_y(p, ops), LEFT + PLOT_W);
    snprintf(label, sizeof label, "%s: %sop/s", r->line[i].name, with_unit(ops, buf, sizeof buf));
    text_at(p, LEFT + PLOT_W - 6, at_y(p, ops) - 6, "end small", label, 60);
  }
  if (!(r->bytes_per_s > 0)) return;
  double from = MAX(left, pow(10, p->y0) / r->bytes_per_s), to = MIN(right, (most > 0 ? most : pow(10, p->y1)) / r->bytes_per_s);
  if (from >= to) return;
  str_addf(p->out, "<path class=\"roof\" d=\"M%.1f %.1f L%.1f %.1f\"/>\n", at_x(p, from), at_y(p, from * r->bytes_per_s), at_x(p, to), at_y(p, to * r->bytes_per_s));
  double mid = sqrt(from * to), slope = -180 / 3.14159265358979 * atan2(at_y(p, from * r->bytes_per_s) - at_y(p, to * r->bytes_per_s), at_x(p, to) - at_x(p, from));
  snprintf(label, sizeof label, "reading memory: %sB/s", with_unit(r->bytes_per_s, buf, sizeof buf));
  str_addf(p->out, "<text class=\"mid small\" transform=\"translate(%.1f %.1f) rotate(%.1f)\">%s</text>\n", at_x(p, mid) - 5, at_y(p, mid * r->bytes_per_s) - 8, slope, label);
}

/* ---- marks --------------------------------------------------------------------------------------------------------- */
static void mark(Plot *p, int series, double x, double y, double size) {
  if (series == 0) str_addf(p->out, "<circle class=\"s0\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>\n", x, y, size);
  else str_addf(p->out, "<path class=\"s1\" d=\"M%.1f %.1f l%.1f %.1f l%.1f %.1f l%.1f %.1f z\"/>\n", x, y - 1.25 * size, 1.25 * size, 1.25 * size, -1.25 * size, 1.25 * size, -1.25 * size, -1.25 * size);
}

static bool is_free(const Plot *p, Box b) {
  if (b.x < LEFT || b.x + b.w > LEFT + PLOT_W || b.y < TOP || b.y + b.h > TOP + p->h) return false;
  for (int i = 0; i < p->n_taken; i++) {
    const Box *t = &p->taken[i];
    if (b.x < t->x + t->w && t->x < b.x + b.w && b.y < t->y + t->h && t->y < b.y + b.h) return false;
  }
  return true;
}

static void take(Plot *p, Box b) {
  if (p->n_taken < (int)COUNT_OF(p->taken)) p->taken[p->n_taken++] = b;
}

/* The number beside a mark, where nothing else is; if everything around is full, at its right. */
static void tag(Plot *p, double x, double y, double size, int number) {
  static const double side[N_PLACES][2] = {{1, 0}, {-1, 0}, {0, -1}, {0, 1}, {1, -1}, {-1, -1}, {1, 1}, {-1, 1}};
  char label[16];
  snprintf(label, sizeof label, "%d", number);
  double w = 7.0 * (double)strlen(label), h = 11;
  Box best = {x + size + 3, y - h / 2, w, h};
  for (int far = 1; far <= 3; far++) {
    for (int i = 0; i < N_PLACES; i++) {
      double d = (size + 3) * far;
      Box b = {x + side[i][0] * d - (side[i][0] < 0 ? w : side[i][0] > 0 ? 0 : w / 2), y + side[i][1] * d - h / 2 + side[i][1] * h / 3, w, h};
      if (is_free(p, b)) { best = b; far = 4; break; }
    }
  }
  take(p, best);
  text_at(p, best.x, best.y + h - 2, "tag", label, 8);
}

static double mark_size(const RoofPoint *q) { return 3.5 + 6 * sqrt(MIN(MAX(q->share, 0), 1)); }

static void marks(Plot *p, const int *number) {
  for (int i = 0; i < p->r->n_points; i++) {
    const RoofPoint *q = &p->r->point[i];
    if (!plotted(q) || !number[i]) continue;
    double s = mark_size(q), x = at_x(p, q->ops / q->n_bytes), y = at_y(p, q->ops / q->seconds);
    str_add(p->out, "<g><title>");
    escaped(p->r->series[q->series], p->out);
    str_add(p->out, ": ");
    escaped(q->name, p->out);
    str_add(p->out, " ");
    escaped(q->detail, p->out);
    str_add(p->out, "</title>\n");
    mark(p, q->series, x, y, s);
    str_add(p->out, "</g>\n");
    take(p, (Box){x - s, y - s, 2 * s, 2 * s});
  }
  for (int i = 0; i < p->r->n_points; i++) {
    const RoofPoint *q = &p->r->point[i];
    if (plotted(q) && number[i]) tag(p, at_x(p, q->ops / q->n_bytes), at_y(p, q->ops / q->seconds), mark_size(q), number[i]);
  }
}

/* ---- the list ------------------------------------------------------------------------------------------------------ */
static void list_row(Plot *p, const RoofPoint *q, int number, double y) {
  char text[40], num[16];
  snprintf(num, sizeof num, "%d", number);
  if (plotted(q)) mark(p, q->series, LIST_X + 5, y - 4, 4);
  text_at(p, LIST_X + 30, y, "end tag", num, 8);
  text_at(p, LIST_X + 38, y, "small", q->name, 27);
  text_at(p, LIST_X + 218, y, "small faint", q->detail, 34);
  snprintf(text, sizeof text, "%.1f%%", 100 * q->share);
  text_at(p, WIDTH - 122, y, "end small", text, 12);
  if (q->seconds > 0 && q->ops > 0) text_at(p, WIDTH - 60, y, "end small", with_unit(q->ops / q->seconds, text, sizeof text), 20);
  if (q->seconds > 0) snprintf(text, sizeof text, "%.0f%%", 100 * q->roof_seconds / q->seconds);
  if (q->seconds > 0) text_at(p, WIDTH - 16, y, "end small", text, 12);
}

/* Numbers points as it lists them: of each series those with the largest shares; says what it leaves out. -> where the list ends */
static double list(Plot *p, int *number) {
  double y = TOP + 4;
  int n = 0;
  for (int s = 0; s < ROOFLINE_SERIES; s++) {
    int listed = 0, left = 0;
    double rest = 0;
    text_at(p, LIST_X, y, "tag", p->r->series[s], 60);
    text_at(p, WIDTH - 122, y, "end small faint", "of the time", 20);
    text_at(p, WIDTH - 60, y, "end small faint", "op/s", 20);
    text_at(p, WIDTH - 16, y, "end small faint", "of roof", 20);
    for (int i = 0; i < p->r->n_points; i++) {
      const RoofPoint *q = &p->r->point[i];
      if (q->series != s) continue;
      if (listed == MOST_LISTED) { left++, rest += q->share; continue; }
      listed++;
      number[i] = ++n;
      list_row(p, q, n, y += ROW_H);
    }
    char text[80];
    snprintf(text, sizeof text, "and %d more with %.1f%% of the time", left, 100 * rest);
    if (left) text_at(p, LIST_X + 38, y += ROW_H, "small faint", text, 80);
    y += 2 * ROW_H;
  }
  return y;
}

void cmd_roofline_svg(const Roofline *r, Str *out) {
  Arena *a = arena_new("plot");
  Str body = {0};
  Plot p = {.r = r, .out = &body};
  int *number = ARENA_ARRAY(a, int, r->n_points + 1);
  p.h = MAX(list(&p, number) - TOP, LEAST_H);
  find_ranges(&p);
  axes(&p);
  roofs(&p);
  marks(&p, number);
  int height = TOP + (int)p.h + 76;
  str_addf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n<title>", WIDTH, height, WIDTH, height);
  escaped(r->title, out);
  str_add(out, "</title>\n<desc>");
  escaped(r->subtitle, out);
  str_addf(out, "</desc>\n%s<rect class=\"ground\" width=\"%d\" height=\"%d\"/>\n", style, WIDTH, height);
  p.out = out;
  text_at(&p, LEFT, 30, "head", r->title, 110);
  text_at(&p, LEFT, 50, "faint", r->subtitle, 170);
  text_at(&p, LEFT, height - 12, "small faint", r->note, 220);
  str_add_n(out, body.p, body.n);
  str_add(out, "</svg>\n");
  str_free(&body);
  arena_free(a);
}
