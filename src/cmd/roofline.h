/* A roofline as an SVG: what a machine gives at best, and how near to it kernels come. */
#ifndef LUMEN_CMD_ROOFLINE_H
#define LUMEN_CMD_ROOFLINE_H
#include "base/base.h"

enum { ROOFLINE_SERIES = 2 };
typedef struct RoofPoint {
  int series;                      /* its mark and colour */
  const char *name, *detail;       /* any bytes: both are escaped */
  double ops, n_bytes, seconds;    /* of one run */
  double share, roof_seconds;      /* of its series' time; the least it could take */
} RoofPoint;
typedef struct RoofLine { const char *name; double ops_per_s; } RoofLine;
typedef struct Roofline {
  const char *title, *subtitle, *note, *series[ROOFLINE_SERIES];
  double bytes_per_s;
  const RoofLine *line; int n_lines;
  const RoofPoint *point; int n_points;  /* of a series, the largest share first */
} Roofline;
/* A whole document, well-formed whatever the texts hold, readable on light and dark. Points without operations are in the list alone. */
void cmd_roofline_svg(const Roofline *r, Str *out);
#endif
