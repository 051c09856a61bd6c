/*
 * svg: plots as inline SVG: line charts and stacked bars, and the parts of every plot.
 *
 * A plot is a struct that says what to show; each function appends one <svg> element to a Text.
 * Elements have classes and no colours: page/page.css defines those, so that one copy of a plot
 * serves the light and the dark theme. s0 .. s7 and f0 .. f7 are stroke and fill of the series, sx
 * and fx those of anything less important. Names may hold any text; they are escaped here. A value
 * that is not finite (in a log plot: not positive) is a gap, never a 0. All sizes are pixels.
 */
#ifndef PAGES_CHARTS_SVG_H
#define PAGES_CHARTS_SVG_H

#include "engine/base/text.h"

enum { SVG_COLORS = 8, SVG_TICKS_MAX = 24 };

typedef enum SvgUnit { SVG_PLAIN, SVG_BYTES, SVG_SECONDS, SVG_PERCENT } SvgUnit;

typedef enum SvgMark {
    SVG_LINE,
    SVG_FAINT,  /* a thin line behind the others, in its own colour */
    SVG_DOTS,   /* a line with a dot at each point */
    SVG_AREA,   /* filled down to the axis; the highest first, as the next one is drawn over it */
    SVG_POINTS, /* discs of the size that the series gives, each with its label */
    SVG_BOX,    /* only in a legend */
} SvgMark;

/* One curve or set of points. Arrays are the caller's and are read while the plot is written. */
typedef struct SvgSeries {
    const char *name;
    const char *legend;  /* NULL: the name; "": none */
    const double *x, *y; /* x rises */
    int n, color;        /* color -1: grey */
    SvgMark mark;
    const double *radius;     /* of SVG_POINTS, pixels */
    const char *const *label; /* of SVG_POINTS: what the pointer shows */
    const char *const *link;  /* of SVG_POINTS: where a click leads, as "#row3"; NULL: nowhere */
} SvgSeries;

/* A dashed line across a plot at this value, with its name. */
typedef struct SvgGuide {
    double at;
    const char *label; /* "": none */
} SvgGuide;

/* A line chart. Ranges of both axes follow from the series. */
typedef struct SvgChart {
    const char *title, *x_label, *y_label;
    const SvgSeries *series;
    int n_series;
    int width, height;
    SvgUnit y_unit;
    bool log_x; /* all x are positive */
    const double
        *x_tick; /* rising whole numbers at which the x axis has its ticks; NULL: round ones */
    int x_ticks;
    bool log_y;            /* ignored if no value is positive */
    bool from_zero;        /* the y axis begins at 0 */
    const SvgGuide *guide; /* at these y */
    int guides;
    bool real_x; /* x are no whole numbers: times */
    bool snug;   /* the y axis ends at its values, not at the next tick */
    double room; /* log axes extend by this factor beyond the values; 0: not at all */
} SvgChart;

/* Horizontal bars, one for each row, stacked of parts. The legend names the parts that occur. The sum of a row
 * above the first guide is red. */
typedef struct SvgBars {
    const char *title;
    const char *const *row, *const *part;
    const double *value; /* (rows, parts) */
    int rows, parts;
    int width;
    SvgUnit unit;
    const SvgGuide *guide;
    int guides;
} SvgBars;

/* The last letter of a colour's classes: '0' to '7', 'x' for grey. */
char svg_color(int color);

/* Append one <svg>. A chart without any value says "no data". */
Status svg_chart(Text *out, const SvgChart *c);
Status svg_bars(Text *out, const SvgBars *b);

/* <svg ...> without its >, so that attributes can follow. */
Status svg_open(Text *out, const char *class, double width, double height, const char *title);
/* Grid and labels of `span_s` seconds from `from_s` on over [left, right], lines from `top` to `bottom`. */
Status svg_time_axis(Text *out, double from_s, double span_s, double left, double right, double top,
                     double bottom);

/* A legend: entries in rows from `left` to `right`, the next one at (x, y). */
typedef struct SvgLegend {
    double x, y, left, right;
} SvgLegend;

enum {
    SVG_CHAR = 7,
    SVG_LINE_HEIGHT = 18
}; /* pixels of a character (rather too many) and a line */

/* Appends an entry and moves the legend's position on; out NULL: only moves it. mark: SVG_BOX for
 * rectangles. */
Status svg_legend_entry(Text *out, SvgLegend *l, const char *name, int color, SvgMark mark);

/* Finds about `want` round numbers in [lo, hi]. Their step is 1, 2, 2.5 or 5 times a power of ten,
 * and at least `least_step`. Returns how many there are. */
int svg_ticks(double lo, double hi, int want, double least_step, double tick[SVG_TICKS_MAX],
              double *step);
/* Finds 1, 2 and 5 times powers of ten in [lo, hi]; only powers of ten over three decades or more,
 * and not all of them if these are still too many. */
int svg_log_ticks(double lo, double hi, double tick[SVG_TICKS_MAX]);
/* The text of a tick, with as many decimals as the step needs: "2.5", "20k", "4e-4", "1.50 GiB", "3
 * ms", "40 %". */
const char *svg_tick_text(char out[32], double v, double step, SvgUnit unit);
/* The text of a single value, to four digits; "-" if it is not finite. */
/* Would a linear axis of all these series show only the largest values? Only positive ones count: a log axis shows no
 * others. */
bool svg_has_wide_range(const SvgSeries *s, int n);
const char *svg_value_text(char out[32], double v, SvgUnit unit);

#endif
