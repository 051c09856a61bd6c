/* svg_blocks: what is made of rectangles: heat map and stacked bars. */
#include "viz/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    HEAT_LEFT = 34,
    HEAT_TOP = 22,
    HEAT_WIDTH = 480, /* of all columns, if their cells come out between the two limits */
    CELL_LEAST = 4,
    CELL_MOST = 37,
    BAR_HEIGHT = 26,
    BAR_GAP = 12,
};

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
    TRY(svg_open(out, "heat", HEAT_LEFT + g.columns * g.width + 2, HEAT_TOP + h->rows * g.height,
                 h->title));
    TRY(text_printf(out, ">\n"));
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
    TRY(svg_open(out, "heat", 330, 34, "colour scale"));
    TRY(text_printf(out, "><g style=\"--w:32px;--h:12px\">"));
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
    return (double)most * SVG_CHAR;
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

Status svg_bars(Text *out, const SvgBars *b)
{
    double left = widest(b->row, b->rows) + 12, most = 0, top = b->rows * (BAR_HEIGHT + BAR_GAP);
    for (int r = 0; r < b->rows; r++) most = fmax(most, bars_total(b, r));
    double scale = most > 0 ? (b->width - left - 90) / most : 0;
    SvgLegend l = { left, top + 10, left, b->width }, measured = l;
    for (int p = 0; p < b->parts; p++)
        TRY(svg_legend_entry(NULL, &measured, b->part[p], p, SVG_BOX));
    TRY(svg_open(out, "bars", b->width, measured.y - 10 + SVG_LINE_HEIGHT, b->title));
    TRY(text_printf(out, ">\n"));
    for (int r = 0; r < b->rows; r++) TRY(bars_row(out, b, r, left, scale));
    for (int p = 0; p < b->parts; p++) TRY(svg_legend_entry(out, &l, b->part[p], p, SVG_BOX));
    return text_printf(out, "</svg>\n");
}
