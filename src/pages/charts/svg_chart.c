/* svg_chart: the line chart, with dots, areas and points. The box of the plot, both ranges and the
 * scale are data- attributes of the <svg>, so that the page's script can turn the pointer's
 * position back into values (page/page.js). Ticks and legends are svg.c's. */
#include "pages/charts/svg.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    FONT = 12,
    X_TICK_SPACE = 90, /* pixels between ticks, about: labels must not touch */
    Y_TICK_SPACE = 44,
};

typedef struct Axis {
    double lo, hi, step, from, to; /* [lo, hi] maps to pixels from .. to; step 0: a log axis */
    bool log;
    int n;
    double tick[SVG_TICKS_MAX];
} Axis;

typedef struct Frame {
    Axis x, y;
    double left, top, right, bottom;
} Frame;

/* The pixel of a value: linear, or linear in its logarithm. */
static double to_pixel(const Axis *a, double v)
{
    double t = a->log ? log(v / a->lo) / log(a->hi / a->lo) : (v - a->lo) / (a->hi - a->lo);
    return a->from + t * (a->to - a->from);
}

static bool is_shown(const SvgSeries *s, int i, bool log_y)
{
    return isfinite(s->x[i]) && isfinite(s->y[i]) && (!log_y || s->y[i] > 0);
}

/* "98,304" */
static const char *whole_text(char out[32], double v) { return text_thousands(out, (int64_t)v); }

/* ---- ranges ---- */

static void range_add(double *lo, double *hi, double v)
{
    *lo = fmin(*lo, v);
    *hi = fmax(*hi, v);
}

/* Finds the ranges of all shown values. False: there are none. */
static bool find_ranges(const SvgChart *c, bool log_y, Axis *x, Axis *y)
{
    *x = *y = (Axis){ .lo = DBL_MAX, .hi = -DBL_MAX };
    for (int s = 0; s < c->n_series; s++) {
        const SvgSeries *series = &c->series[s];
        for (int i = 0; i < series->n; i++) {
            if (!is_shown(series, i, log_y)) continue;
            range_add(&x->lo, &x->hi, series->x[i]);
            range_add(&y->lo, &y->hi, series->y[i]);
        }
    }
    x->log = c->log_x;
    y->log = log_y;
    if (c->room > 0) {
        x->lo /= c->room, x->hi *= c->room;
        y->lo /= c->room, y->hi *= c->room;
    }
    return x->lo <= x->hi;
}

/* Widens a range of one value, so that the scale does not divide by 0. */
static void separate_ends(Axis *a)
{
    if (a->lo < a->hi) return;
    double room = fmax(fabs(a->lo) * 0.1, a->log ? 0 : 1e-12);
    if (a->lo == 0) room = 1;
    a->lo -= room;
    a->hi += room;
}

/* Takes the caller's ticks, but those whose label would touch the one before. */
static void given_ticks(Axis *x, const SvgChart *c)
{
    double until = -DBL_MAX;
    char label[32];
    for (int i = 0; i < c->x_ticks && x->n < SVG_TICKS_MAX; i++) {
        const double half = 0.5 * SVG_CHAR * (double)strlen(whole_text(label, c->x_tick[i]));
        const double at = to_pixel(x, c->x_tick[i]);
        if (at - half < until) continue;
        x->tick[x->n++] = c->x_tick[i];
        until = at + half + SVG_CHAR;
    }
}

/* A single x gets a range of its own. Ticks of a linear x axis are whole numbers, as steps and GPUs are, unless x are
 * real. */
static void finish_x(Axis *x, const SvgChart *c)
{
    if (x->lo == x->hi) {
        x->lo = x->log ? x->lo / 2 : x->lo > 0 ? x->lo - 1 : x->lo;
        x->hi = x->log ? x->hi * 2 : x->hi + 1;
    }
    if (c->x_tick != NULL) {
        given_ticks(x, c);
        return;
    }
    int want = (int)fmax(2, (x->to - x->from) / X_TICK_SPACE);
    x->n = x->log ? svg_log_ticks(x->lo, x->hi, x->tick)
                  : svg_ticks(x->lo, x->hi, want, c->real_x ? 0 : 1, x->tick, &x->step);
}

/* Rounds the range out to whole steps, so that the top and bottom grid lines are ticks. */
static void finish_y(Axis *y, const SvgChart *c)
{
    for (int i = 0; i < c->guides; i++) range_add(&y->lo, &y->hi, c->guide[i].at);
    if (c->from_zero && !y->log) range_add(&y->lo, &y->hi, 0);
    separate_ends(y);
    int want = (int)fmax(2, (y->from - y->to) / Y_TICK_SPACE);
    if (y->log) {
        double room = pow(y->hi / y->lo, 0.04);
        y->lo /= room;
        y->hi *= room;
        y->n = svg_log_ticks(y->lo, y->hi, y->tick);
        if (y->n >= 2) return;
    }
    y->n = svg_ticks(y->lo, y->hi, want, 0, y->tick, &y->step);
    if (y->log) return; /* less than a decade: round numbers, not evenly spaced */
    y->lo = fmin(y->lo, floor(y->lo / y->step + 1e-6) * y->step);
    if (!c->snug) y->hi = fmax(y->hi, ceil(y->hi / y->step - 1e-6) * y->step);
    want = (int)ceil((y->hi - y->lo) / y->step - 1e-6); /* which gives the same step */
    y->n = svg_ticks(y->lo, y->hi, want, 0, y->tick, &y->step);
}

/* On a log axis each tick is its own step: a label needs no more digits than its value. */
static const char *tick_text(char out[32], const Axis *a, int i, SvgUnit unit)
{
    return svg_tick_text(out, a->tick[i], a->step > 0 ? a->step : a->tick[i], unit);
}

/* ---- legend ---- */

/* Writes the legend's entries after the label of the y axis; *height is where they end. out NULL:
 * only finds *height, which the layout needs first. */
static Status chart_legend(Text *out, const SvgChart *c, double *height)
{
    SvgLegend l = { (double)strlen(c->y_label) * SVG_CHAR + 24, FONT + 2, 0, c->width };
    bool empty = c->y_label[0] == '\0';
    for (int i = 0; i < c->n_series; i++) {
        const SvgSeries *s = &c->series[i];
        const char *name = s->legend != NULL ? s->legend : s->name;
        if (*name == '\0') continue;
        TRY(svg_legend_entry(out, &l, name, s->color, s->mark));
        empty = false;
    }
    *height = empty ? FONT : l.y + 10;
    return OK;
}

/* ---- parts ---- */

bool svg_has_wide_range(const SvgSeries *s, int n)
{
    const double WIDE = 30;
    double lo = HUGE_VAL, hi = 0;
    for (int i = 0; i < n; i++) {
        for (int p = 0; p < s[i].n; p++) {
            if (!(s[i].y[p] > 0)) continue;
            lo = fmin(lo, s[i].y[p]);
            hi = fmax(hi, s[i].y[p]);
        }
    }
    return hi > lo * WIDE;
}

/* Horizontal lines over the whole width, but only short marks below the x axis: the eye compares
 * heights. */
static Status chart_grid(Text *out, const Frame *f, const SvgChart *c)
{
    char label[32];
    TRY(text_printf(out, "<g class=\"grid\">"));
    for (int i = 0; i < f->y.n; i++) {
        double y = to_pixel(&f->y, f->y.tick[i]);
        TRY(text_printf(out, "<path d=\"M%.1f %.1fH%.1f\"/>", f->left, y, f->right));
        TRY(text_printf(out, "<text class=\"end\" x=\"%.1f\" y=\"%.1f\">%s</text>", f->left - 8,
                        y + 4, tick_text(label, &f->y, i, c->y_unit)));
    }
    for (int i = 0; i < f->x.n; i++) {
        double x = to_pixel(&f->x, f->x.tick[i]);
        TRY(text_printf(out, "<path d=\"M%.1f %.1fv5\"/>", x, f->bottom));
        TRY(text_printf(out, "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">%s</text>", x,
                        f->bottom + 18,
                        c->x_tick != NULL ? whole_text(label, f->x.tick[i])
                                          : tick_text(label, &f->x, i, SVG_PLAIN)));
    }
    return text_printf(out, "</g>\n<path class=\"axis\" d=\"M%.1f %.1fH%.1f\"/>\n", f->left,
                       f->bottom, f->right);
}

/* Names stand above their lines, at the right. */
static Status chart_guides(Text *out, const Frame *f, const SvgChart *c)
{
    for (int i = 0; i < c->guides; i++) {
        double y = to_pixel(&f->y, c->guide[i].at);
        TRY(text_printf(out, "<path class=\"guide\" d=\"M%.1f %.1fH%.1f\"/>\n", f->left, y,
                        f->right));
        TRY(text_markup(out, "<text class=\"end dim\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", f->right,
                        y - 4, c->guide[i].label));
    }
    return OK;
}

/* The pen lifts at a gap: the next shown point starts a new line. */
static Status series_path(Text *out, const Frame *f, const SvgSeries *s)
{
    bool pen_down = false;
    for (int i = 0; i < s->n; i++) {
        bool draw = is_shown(s, i, f->y.log);
        if (draw)
            TRY(text_printf(out, "%c%.2f %.2f", pen_down ? 'L' : 'M', to_pixel(&f->x, s->x[i]),
                            to_pixel(&f->y, s->y[i])));
        pen_down = draw;
    }
    return OK;
}

/* Draws a dot at every point of SVG_DOTS. Other marks get a dot only at points between two gaps,
 * which no line reaches. */
static Status series_dots(Text *out, const Frame *f, const SvgSeries *s, char color)
{
    for (int i = 0; i < s->n; i++) {
        if (!is_shown(s, i, f->y.log)) continue;
        bool alone = (i == 0 || !is_shown(s, i - 1, f->y.log)) &&
                     (i + 1 == s->n || !is_shown(s, i + 1, f->y.log));
        if (s->mark != SVG_DOTS && !alone) continue;
        TRY(text_printf(out, "<circle class=\"f%c\" cx=\"%.2f\" cy=\"%.2f\" r=\"%s\"/>", color,
                        to_pixel(&f->x, s->x[i]), to_pixel(&f->y, s->y[i]),
                        s->mark == SVG_DOTS && s->n > 60 ? "2" : "3"));
    }
    return OK;
}

/* A link may have no target of its own (""). */
static Status series_disc(Text *out, const SvgSeries *s, int i, double x, double y, char color)
{
    bool linked = s->link != NULL && *s->link[i] != '\0';
    if (linked) TRY(text_markup(out, "<a href=\"%s\">", s->link[i]));
    TRY(text_markup(out,
                    "<circle class=\"f%c\" fill-opacity=\".55\" cx=\"%.1f\" cy=\"%.1f\" "
                    "r=\"%.1f\"><title>%s</title></circle>\n",
                    color, x, y, s->radius[i], s->label[i]));
    return linked ? text_printf(out, "</a>\n") : OK;
}

/* Discs with tooltips. */
static Status series_points(Text *out, const Frame *f, const SvgSeries *s, char color)
{
    for (int i = 0; i < s->n; i++) {
        if (!is_shown(s, i, f->y.log)) continue;
        double x = to_pixel(&f->x, s->x[i]), y = to_pixel(&f->y, s->y[i]);
        TRY(series_disc(out, s, i, x, y, color));
    }
    return OK;
}

/* data-name and the class `data` let page.js find the curve under the pointer. */
static Status chart_series(Text *out, const Frame *f, const SvgSeries *s)
{
    char color = svg_color(s->color);
    if (s->mark == SVG_POINTS) return series_points(out, f, s, color);
    bool area = s->mark == SVG_AREA;
    TRY(text_markup(out, "<g><title>%s</title><path class=\"%s data %c%c%s\" data-name=\"%s\" d=\"",
                    s->name, area ? "area" : "line", area ? 'f' : 's', color,
                    s->mark == SVG_FAINT ? " faint" : "", s->name));
    TRY(series_path(out, f, s));
    if (area && s->n > 0)
        TRY(text_printf(out, "L%.2f %.2fL%.2f %.2f", to_pixel(&f->x, s->x[s->n - 1]), f->bottom,
                        to_pixel(&f->x, s->x[0]), f->bottom));
    TRY(text_printf(out, "\"/>"));
    TRY(series_dots(out, f, s, color));
    return text_printf(out, "</g>\n");
}

static Status chart_labels(Text *out, const SvgChart *c, const Frame *f)
{
    double unused = 0;
    TRY(text_markup(out,
                    "<text class=\"dim\" x=\"0\" y=\"%d\">%s</text>"
                    "<text class=\"end dim\" x=\"%.1f\" y=\"%d\">%s</text>\n",
                    FONT + 2, c->y_label, f->right, c->height - 3, c->x_label));
    return chart_legend(out, c, &unused);
}

/* Pixels of the widest label of the y axis. */
static double widest_tick(const Axis *y, SvgUnit unit)
{
    size_t most = 1;
    char label[32];
    for (int i = 0; i < y->n; i++) {
        size_t n = strlen(tick_text(label, y, i, unit));
        if (n > most) most = n;
    }
    return (double)most * SVG_CHAR;
}

/* The y axis comes first: the width of its labels decides where the x axis begins. */
static void chart_layout(const SvgChart *c, double legend_height, Frame *f)
{
    f->top = legend_height;
    f->bottom = c->height - 38;
    f->right = c->width - 20; /* room for half of the last label */
    f->y.from = f->bottom;
    f->y.to = f->top;
    finish_y(&f->y, c);
    f->left = widest_tick(&f->y, c->y_unit) + 10;
    f->x.from = f->left;
    f->x.to = f->right;
    finish_x(&f->x, c);
}

/* Layout first (ranges, legend, axes), then drawing from back to front: grid, then curves in the
 * order given. */
Status svg_chart(Text *out, const SvgChart *c)
{
    Frame f = { 0 };
    double legend_height = 0;
    /* Without a positive value a log axis has nothing to show; the linear one may. */
    bool any = find_ranges(c, c->log_y, &f.x, &f.y) || find_ranges(c, false, &f.x, &f.y);
    TRY(svg_open(out, "plot", c->width, c->height, c->title));
    if (!any)
        return text_printf(out, "><text class=\"mid dim\" x=\"%d\" y=\"%d\">no data</text></svg>\n",
                           c->width / 2, c->height / 2);
    TRY(chart_legend(NULL, c, &legend_height));
    chart_layout(c, legend_height, &f);
    TRY(text_markup(
        out,
        " data-box=\"%.1f %.1f %.1f %.1f\" data-x=\"%.9g %.9g\" data-y=\"%.9g %.9g\" "
        "data-log=\"%d\" data-logx=\"%d\" data-unit=\"%d\" data-real=\"%d\" data-word=\"%s\">\n",
        f.left, f.top, f.right, f.bottom, f.x.lo, f.x.hi, f.y.lo, f.y.hi, f.y.log, f.x.log,
        (int)c->y_unit, c->real_x, c->x_label));
    TRY(chart_labels(out, c, &f));
    TRY(chart_grid(out, &f, c));
    for (int i = 0; i < c->n_series; i++) TRY(chart_series(out, &f, &c->series[i]));
    TRY(chart_guides(out, &f, c));
    return text_printf(out, "</svg>\n");
}
