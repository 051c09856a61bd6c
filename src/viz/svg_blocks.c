/* svg_blocks: what is made of rectangles: heat map, stacked bars, timeline. */
#include "viz/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    CHAR = 7,
    HEAT_LEFT = 34,
    HEAT_TOP = 22,
    HEAT_WIDTH = 480, /* of all columns, if their cells come out between the two limits */
    CELL_LEAST = 4,
    CELL_MOST = 37,
    BAR_HEIGHT = 26,
    BAR_GAP = 12,
    LINE_HEIGHT = 18,
    SLICE_HEIGHT = 22,
    LANE_GAP = 14,
    LANE_LEFT = 120,
    AXIS_HEIGHT = 34,
};

static Status open_svg(Text *out, const char *class, double width, double height, const char *title)
{
    return text_markup(out,
                       "<svg class=\"%s\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
                       "role=\"img\" aria-label=\"%s\">\n",
                       class, width, height, width, height, title);
}

/* ---- heat map ---- */

typedef struct HeatGrid {
    int group, columns; /* columns a cell, cells a row */
    double width, height;
} HeatGrid;

static double distance(double v) { return v > 0 ? fabs(log2(v)) : HUGE_VAL; }

static HeatGrid heat_grid(const SvgHeat *h)
{
    HeatGrid g = { .group = 1, .columns = h->columns };
    int64_t limit = SVG_HEAT_CELLS / h->share;
    while (g.columns > 1 && (int64_t)g.columns * h->rows > limit) {
        g.group *= 2;
        g.columns = (h->columns + g.group - 1) / g.group;
    }
    g.width = fmin(fmax(floor((double)HEAT_WIDTH / g.columns), CELL_LEAST), CELL_MOST);
    g.height = fmin(fmax(g.width, 14), 26);
    if (h->rows > 24) g.height = 12;
    return g;
}

int svg_heat_group(const SvgHeat *h) { return heat_grid(h).group; }

/* The column of cell `cell` whose value is farthest from 1; -1 if the cell has no value. */
static int heat_column(const SvgHeat *h, const HeatGrid *g, int row, int cell)
{
    const double *value = h->value + (int64_t)row * h->columns;
    int most = -1;
    for (int c = cell * g->group; c < h->columns && c < (cell + 1) * g->group; c++) {
        if (isnan(value[c])) continue;
        if (most < 0 || distance(value[c]) > distance(value[most])) most = c;
    }
    return most;
}

static Status heat_cell(Text *out, const SvgHeat *h, const HeatGrid *g, int row, int cell)
{
    int column = heat_column(h, g, row, cell);
    if (column < 0) return OK;
    double v = h->value[(int64_t)row * h->columns + column], x = HEAT_LEFT + cell * g->width;
    double depth = fmin(distance(v) / 2, 1);
    TRY(text_markup(out,
                    "<rect class=\"%s\" x=\"%.0f\" fill-opacity=\"%.2f\"><title>%s %lld, %s %d: "
                    "%.2f × 1/%d = %.2f %%</title></rect>",
                    v < 1 ? "lo" : "hi", x, 0.05 + 0.9 * depth, h->row_word,
                    (long long)h->row_name[row], h->column_word, column, v, h->columns,
                    100 * v / h->columns));
    if (g->width < 34) return OK;
    return text_printf(out, "<text class=\"mid%s\" x=\"%.0f\" y=\"%.0f\">%.2f</text>",
                       depth > 0.6 ? " over" : "", x + g->width / 2, g->height / 2 + 4, v);
}

static Status heat_columns(Text *out, const HeatGrid *g)
{
    int every = 1;
    while (every * g->width < 26) every *= 2;
    for (int cell = 0; cell < g->columns; cell += every)
        TRY(text_printf(out, "<text class=\"mid dim\" x=\"%.1f\" y=\"%d\">%d</text>",
                        HEAT_LEFT + (cell + 0.5) * g->width, HEAT_TOP - 8, cell * g->group));
    return OK;
}

/* Cell sizes stand in a style of the element, not at each of thousands of cells. */
Status svg_heat(Text *out, const SvgHeat *h)
{
    HeatGrid g = heat_grid(h);
    double gap = g.width > 10 ? 2 : 0;
    TRY(open_svg(out, "heat", HEAT_LEFT + g.columns * g.width + 2, HEAT_TOP + h->rows * g.height,
                 h->title));
    TRY(heat_columns(out, &g));
    for (int row = 0; row < h->rows; row++) {
        TRY(text_printf(out,
                        "<g transform=\"translate(0 %.0f)\" style=\"--w:%.0fpx;--h:%.0fpx\"><text "
                        "class=\"end dim\" x=\"%d\" y=\"%.0f\">%lld</text>",
                        HEAT_TOP + row * g.height, g.width - gap, g.height - (gap > 0 ? 2 : 1),
                        HEAT_LEFT - 8, g.height / 2 + 4, (long long)h->row_name[row]));
        for (int cell = 0; cell < g.columns; cell++) TRY(heat_cell(out, h, &g, row, cell));
        TRY(text_printf(out, "</g>\n"));
    }
    return text_printf(out, "</svg>\n");
}

Status svg_heat_key(Text *out)
{
    static const char *const NAME[] = { "1/4", "1/2", "1", "2", "4" };
    TRY(open_svg(out, "heat", 330, 34, "colour scale"));
    TRY(text_printf(out, "<g style=\"--w:32px;--h:12px\">"));
    for (int i = 0; i < 9; i++) {
        double depth = fabs(i - 4.0) / 4;
        TRY(text_printf(out, "<rect class=\"%s\" x=\"%d\" fill-opacity=\"%.2f\"/>",
                        i < 4 ? "lo" : "hi", 10 + i * 34, 0.05 + 0.9 * depth));
    }
    for (int i = 0; i < 5; i++)
        TRY(text_printf(out, "<text class=\"mid dim\" x=\"%d\" y=\"28\">%s</text>",
                        10 + i * 68 + 16, NAME[i]));
    return text_printf(out, "</g></svg>\n");
}

/* ---- stacked bars ---- */

static double bars_total(const SvgBars *b, int row)
{
    double sum = 0;
    for (int p = 0; p < b->parts; p++) {
        double v = b->value[(int64_t)row * b->parts + p];
        if (v > 0) sum += v;
    }
    return sum;
}

static double widest(const char *const *name, int n)
{
    size_t most = 1;
    for (int i = 0; i < n; i++) {
        if (strlen(name[i]) > most) most = strlen(name[i]);
    }
    return (double)most * CHAR;
}

static Status bars_row(Text *out, const SvgBars *b, int row, double left, double scale)
{
    double x = left, y = row * (BAR_HEIGHT + BAR_GAP);
    char number[32];
    TRY(text_markup(out, "<text class=\"end\" x=\"%.0f\" y=\"%.0f\">%s</text>", left - 8, y + 17,
                    b->row[row]));
    for (int p = 0; p < b->parts; p++) {
        double v = b->value[(int64_t)row * b->parts + p];
        if (!(v > 0)) continue;
        TRY(text_markup(out,
                        "<rect class=\"f%c edge\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" "
                        "height=\"%d\"><title>%s: %s</title></rect>",
                        svg_color(p), x, y, v * scale, BAR_HEIGHT, b->part[p],
                        svg_value_text(number, v, b->unit)));
        x += v * scale;
    }
    return text_printf(out, "<text x=\"%.1f\" y=\"%.0f\">%s</text>\n", x + 8, y + 17,
                       svg_value_text(number, bars_total(b, row), b->unit));
}

/* With out == NULL only the height is wanted. */
static Status bars_legend(Text *out, const SvgBars *b, double top, double left, double *height)
{
    double x = left, y = top;
    for (int p = 0; p < b->parts; p++) {
        double w = (double)strlen(b->part[p]) * CHAR + 34;
        if (x + w > b->width && x > left) {
            x = left;
            y += LINE_HEIGHT;
        }
        if (out != NULL)
            TRY(text_markup(out,
                            "<rect class=\"f%c\" x=\"%.0f\" y=\"%.0f\" width=\"12\" "
                            "height=\"12\"/><text x=\"%.0f\" y=\"%.0f\">%s</text>",
                            svg_color(p), x, y, x + 18, y + 10, b->part[p]));
        x += w;
    }
    *height = y + LINE_HEIGHT - top;
    return OK;
}

Status svg_bars(Text *out, const SvgBars *b)
{
    double left = widest(b->row, b->rows) + 12, most = 0, legend = 0;
    double top = b->rows * (BAR_HEIGHT + BAR_GAP);
    for (int r = 0; r < b->rows; r++) most = fmax(most, bars_total(b, r));
    double scale = most > 0 ? (b->width - left - 90) / most : 0;
    TRY(bars_legend(NULL, b, top, left, &legend));
    TRY(open_svg(out, "bars", b->width, top + legend, b->title));
    for (int r = 0; r < b->rows; r++) TRY(bars_row(out, b, r, left, scale));
    TRY(bars_legend(out, b, top, left, &legend));
    return text_printf(out, "</svg>\n");
}

/* ---- timeline ---- */

static double lane_top(const SvgTimeline *t, int lane)
{
    return lane * (t->rows * SLICE_HEIGHT + LANE_GAP);
}

static Status lane_names(Text *out, const SvgTimeline *t)
{
    for (int lane = 0; lane < t->lanes; lane++) {
        for (int row = 0; row < t->rows; row++) {
            double y = lane_top(t, lane) + row * SLICE_HEIGHT;
            TRY(text_markup(out,
                            "<path class=\"track\" d=\"M%d %.0fH%d\"/><text class=\"end dim\" "
                            "x=\"%d\" y=\"%.0f\">%s</text>",
                            LANE_LEFT, y + SLICE_HEIGHT, t->width, LANE_LEFT - 8, y + 15,
                            t->row[row]));
        }
        TRY(text_markup(out, "<text x=\"0\" y=\"%.0f\">%s</text>\n", lane_top(t, lane) + 15,
                        t->lane[lane]));
    }
    return OK;
}

static Status slice_text(Text *out, const SvgSlice *s, double x, double y, double width)
{
    double room = width / CHAR;
    size_t n = strlen(s->name);
    if (room < (double)n + 1) return OK;
    return text_markup(out, "<text class=\"over\" x=\"%.1f\" y=\"%.0f\">%.*s</text>", x + 4, y + 15,
                       (int)n, s->name);
}

static Status slice(Text *out, const SvgTimeline *t, const SvgSlice *s)
{
    double scale = (t->width - LANE_LEFT) / t->duration_s;
    double x = LANE_LEFT + s->start_s * scale, width = s->duration_s * scale;
    double y = lane_top(t, s->lane) + s->row * SLICE_HEIGHT;
    TRY(text_markup(out,
                    "<rect class=\"f%c\" x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" "
                    "height=\"%d\"><title>%s</title></rect>",
                    svg_color(s->color), x, y + 1, fmax(width - (width > 4 ? 0.6 : 0), 0.3),
                    SLICE_HEIGHT - 2, s->hover));
    TRY(slice_text(out, s, x, y, width));
    return text_append(out, "\n", 1);
}

static Status time_axis(Text *out, const SvgTimeline *t, double y)
{
    double tick[SVG_TICKS_MAX], step = 0, scale = (t->width - LANE_LEFT) / t->duration_s;
    int n = svg_ticks(0, t->duration_s, 8, 0, tick, &step);
    char label[32];
    TRY(text_printf(out, "<g class=\"grid\">"));
    for (int i = 0; i < n; i++) {
        double x = LANE_LEFT + tick[i] * scale;
        TRY(text_printf(out, "<path d=\"M%.1f 0V%.0f\"/>", x, y + 4));
        bool last = x > t->width - 4.0 * CHAR;
        TRY(text_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.0f\">%s</text>",
                        last ? "end" : "mid", x, y + 18,
                        svg_tick_text(label, tick[i], step, SVG_SECONDS)));
    }
    return text_printf(out, "</g>\n");
}

Status svg_timeline(Text *out, const SvgTimeline *t)
{
    double bottom = lane_top(t, t->lanes) - LANE_GAP + 4;
    TRY(open_svg(out, "timeline", t->width, bottom + AXIS_HEIGHT, t->title));
    if (t->duration_s > 0) TRY(time_axis(out, t, bottom));
    TRY(lane_names(out, t));
    for (int64_t i = 0; i < t->slices && t->duration_s > 0; i++) TRY(slice(out, t, &t->slice[i]));
    return text_printf(out, "</svg>\n");
}
