/* trace_page_parts: tables of a page, pages of tables only, and the roofline plot. Its numbers come
 * from the sheets of traces/sheets/; nothing is computed from events here. */
#include "engine/base/file.h"
#include "pages/charts/page.h"
#include "traces/page/trace_page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS_MOST = 200, CELL_CHARS = 80 };

/* ---- tables ---- */

/* One cell. most > 0: a heat map, whose largest number is `most`. Long texts are cut; the whole
 * text is shown at the pointer. */
static Status write_cell(Text *out, const Cell *c, double most)
{
    const char *cut = NULL;
    switch (c->type) {
    case CELL_NONE: return text_printf(out, "<td></td>");
    case CELL_TEXT:
        cut = c->text;
        return text_markup(out, "<td title=\"%.*s\">%.*s</td>", TRACE_PAGE_CUT(cut, 400),
                           TRACE_PAGE_CUT(cut, CELL_CHARS));
    case CELL_NUMBER:
        if (isnan(c->number)) return text_printf(out, "<td></td>");
        if (most > 0)
            return text_printf(out, "<td style=\"--heat:%.2f\">%.6g</td>", c->number / most,
                               c->number);
        return text_printf(out, "<td>%.6g</td>", c->number);
    case CELL_WHOLE: return text_printf(out, "<td>%lld</td>", (long long)c->whole);
    case CELL_BOOL: return text_printf(out, "<td>%s</td>", c->truth ? "yes" : "no");
    }
    return OK;
}

/* The table is folded (<details>), so that a page of many tables stays readable. Heat is relative
 * to its largest number. */
Status trace_part_table(Text *out, const Table *t, bool heat, bool open)
{
    int64_t rows = t->rows < ROWS_MOST ? t->rows : ROWS_MOST;
    double most = 0;
    for (int64_t i = 0; heat && i < t->rows * t->columns; i++) {
        if (t->cell[i].type == CELL_NUMBER && t->cell[i].number > most) most = t->cell[i].number;
    }
    TRY(text_printf(out, "<details%s>", open ? " open=\"open\"" : ""));
    TRY(text_markup(out, "<summary>%s</summary><div class=\"wide\">", t->name));
    TRY(text_printf(out, "<table%s>\n<tr>", heat ? " class=\"heat\"" : ""));
    for (int i = 0; i < t->columns; i++) TRY(text_markup(out, "<th>%s</th>", t->column[i]));
    TRY(text_printf(out, "</tr>\n"));
    for (int64_t r = 0; r < rows; r++) {
        TRY(text_printf(out, "<tr>"));
        for (int i = 0; i < t->columns; i++)
            TRY(write_cell(out, &t->cell[r * t->columns + i], most));
        TRY(text_printf(out, "</tr>\n"));
    }
    TRY(text_printf(out, "</table></div>"));
    if (rows < t->rows)
        TRY(text_printf(out,
                        "<p class=\"note\">The first %lld of %lld rows; --format csv has all.</p>",
                        (long long)rows, (long long)t->rows));
    return text_printf(out, "</details>\n");
}

static bool is_heatmap(const char *name) { return text_ends(name, "heatmap"); }

static Status tables_text(const char *title, const Table *table, int n, Text *out)
{
    TRY(page_begin(out, title));
    TRY(text_markup(out, "<header><h1>%s</h1></header>\n<section>\n", title));
    for (int i = 0; i < n; i++)
        TRY(trace_part_table(out, &table[i], is_heatmap(table[i].name), false));
    TRY(text_printf(out, "</section>\n"));
    return page_end(out, NULL);
}

/* A page without timeline and script, for commands that only make tables. */
Status trace_page_tables(const char *title, const Table *table, int n, const char *path)
{
    Arena room = { 0 };
    Text page = { 0 };
    TRY(arena_reserve(&room, "page", (size_t)8 << 30));
    Status s = text_init(&page, &room);
    if (s == OK) s = tables_text(title, table, n, &page);
    if (s == OK) s = file_write_whole(path, page.data, page.used);
    arena_free(&room);
    return s;
}

/* ---- roofline ---- */

/* An operator of a sheet. */
typedef struct Point {
    double intensity;  /* FLOP a byte */
    double rate;       /* TFLOP/s */
    double time;       /* us of its kernels */
    double roof_share; /* percent of the rate that the GPU's peaks allow */
    char name[48];
} Point;

/* NaN if the sheet lacks the column or the cell holds no number. */
static double number_in(const Table *t, int64_t row, int column)
{
    return column < 0 ? (double)NAN : cell_value(table_at(t, row, column));
}

/* Columns are found by name, as only some sheets have them. A point without intensity or rate has
 * no place in a log plot. */
Status trace_part_points(TracePage *p, const Table *t)
{
    const int intensity = table_column(t, "FLOPS/Byte_first"),
              rate = table_column(t, "TFLOPS/s_mean"),
              time = table_column(t, "Kernel Time (µs)_sum"),
              share = table_column(t, "Pct Roofline_mean");
    if (intensity < 0 || rate < 0 || table_column(t, "name") != 0) return OK;
    for (int64_t r = 0; r < t->rows; r++) {
        Point x = { .intensity = number_in(t, r, intensity),
                    .rate = number_in(t, r, rate),
                    .time = number_in(t, r, time),
                    .roof_share = number_in(t, r, share) };
        const Cell *name = &t->cell[r * t->columns];
        if (!(x.intensity > 0) || !(x.rate > 0) || name->type != CELL_TEXT) continue;
        size_t n = strnlen(name->text, sizeof x.name - 1);
        memcpy(x.name, name->text, n);
        TRY(text_append(&p->points.text, (const char *)&x, sizeof x));
    }
    return OK;
}

/* The rate that the GPU's peaks allow at this intensity; 0: not known. */
static double roof_of(const Point *x)
{
    return x->roof_share > 0 ? x->rate * 100 / x->roof_share : 0;
}

/* What the pointer shows. Names are cut to 47 bytes, so the label always fits. */
static Status point_label(const Point *x, Arena *a, const char **out)
{
    char label[200], share[48] = "";
    if (x->roof_share > 0)
        (void)snprintf(share, sizeof share, ", %.1f %% of its roof", x->roof_share);
    int n = snprintf(label, sizeof label, "%s: %.4g FLOP/byte, %.4g TFLOP/s%s, %.4g us in all",
                     x->name, x->intensity, x->rate, share, x->time);
    return arena_text(a, label, (size_t)n, out);
}

/* Draws each operator as a disc whose area grows with its time, and a stroke at the rate that its
 * intensity allows. */
Status trace_part_roofline(Text *out, const TracePage *p, Arena *a)
{
    const Point *at = (const void *)p->points.text.data;
    int64_t n = (int64_t)(p->points.text.used / sizeof *at);
    double longest = 0, *v = NULL; /* intensity, rate, roof, radius */
    const char **label = NULL;
    if (n == 0) return OK;
    TRY(ARENA_NEW(a, 4 * n, &v));
    TRY(ARENA_NEW(a, n, &label));
    for (int64_t i = 0; i < n; i++) longest = fmax(longest, at[i].time);
    for (int64_t i = 0; i < n; i++) {
        bool timed = at[i].time > 0 && longest > 0;
        v[i] = at[i].intensity;
        v[n + i] = at[i].rate;
        v[2 * n + i] = roof_of(&at[i]);
        v[3 * n + i] = 3 + 9 * sqrt(timed ? at[i].time / longest : 0);
        TRY(point_label(&at[i], a, &label[i]));
    }
    const SvgSeries series[] = {
        { .legend = "", .x = v, .y = v + 2 * n, .n = (int)n, .color = -1, .mark = SVG_LEVELS },
        { .legend = "",
          .x = v,
          .y = v + n,
          .n = (int)n,
          .mark = SVG_POINTS,
          .radius = v + 3 * n,
          .label = label },
    };
    TRY(text_printf(out,
                    "<section id=\"roofline\"><h2>Roofline</h2>\n<p class=\"note\">Operators by "
                    "FLOP a byte and TFLOP/s, each as large as the time it took; lines: what the "
                    "GPU allows there.</p>\n"));
    TRY(svg_chart(out, &(SvgChart){ .title = "Roofline",
                                    .x_label = "FLOP/byte",
                                    .y_label = "TFLOP/s",
                                    .series = series,
                                    .n_series = 2,
                                    .width = 1080,
                                    .height = 416,
                                    .log_x = true,
                                    .log_y = true,
                                    .room = 2 }));
    return text_printf(out, "</section>\n");
}
