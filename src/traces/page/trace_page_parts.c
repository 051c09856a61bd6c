/* trace_page_parts: tables of a page, pages of tables only, and the roofline plot. Its numbers come
 * from the sheets of traces/sheets/; nothing is computed from events here. */
#include "engine/base/file.h"
#include "pages/charts/page.h"
#include "traces/page/trace_page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS_MOST = 200, CELL_CHARS = 80, POINT_CHARS = 100, TITLE_CHARS = 2000 };

/* ---- names ---- */

/* Bytes of UTF-8 that continue a character are not where a text is cut. */
static bool continues(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

const char *trace_page_name(char out[TRACE_PAGE_NAME], const char *name, int most)
{
    const size_t n = strlen(name), room = (size_t)most;
    size_t head = room * 3 / 5, tail = n - (room - 1 - head);
    if (n <= room) return name;
    while (head > 0 && continues(name[head])) head--;
    while (tail < n && continues(name[tail])) tail++;
    (void)snprintf(out, TRACE_PAGE_NAME, "%.*s…%s", (int)head, name, name + tail);
    return out;
}

/* ---- tables ---- */

/* One cell. most > 0: a heat map, whose largest number is `most`. Long texts are cut; the whole
 * text is shown at the pointer. */
static Status write_cell(Text *out, const Cell *c, double most)
{
    char cut[TRACE_PAGE_NAME];
    switch (c->type) {
    case CELL_NONE: return text_printf(out, "<td></td>");
    case CELL_TEXT:
        return text_markup(out, "<td title=\"%.*s\">%s</td>", TRACE_PAGE_CUT(c->text, TITLE_CHARS),
                           trace_page_name(cut, c->text, CELL_CHARS));
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
    char name[TRACE_PAGE_NAME];
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
        char cut[TRACE_PAGE_NAME];
        (void)snprintf(x.name, sizeof x.name, "%s", trace_page_name(cut, name->text, POINT_CHARS));
        TRY(text_append(&p->points.text, (const char *)&x, sizeof x));
    }
    return OK;
}

/* What the pointer shows. */
static Status point_label(const Point *x, Arena *a, const char **out)
{
    char label[TRACE_PAGE_NAME + 160], share[48] = "";
    if (x->roof_share > 0)
        (void)snprintf(share, sizeof share, ", %.1f %% of the roofline", x->roof_share);
    int n = snprintf(label, sizeof label, "%s: %.4g FLOP/byte, %.4g TFLOP/s%s, %.4g us in all",
                     x->name, x->intensity, x->rate, share, x->time);
    return arena_text(a, label, (size_t)n, out);
}

/* Operators whose kernels took at least this share of the time of all; shorter ones would stretch the axes over many
 * decades. */
static const double POINT_LEAST = 1e-3;

/* Takes the points that are drawn to the front, and returns how many there are. */
static int64_t take_long(Point *at, int64_t n)
{
    double all = 0;
    int64_t taken = 0;
    for (int64_t i = 0; i < n; i++) all += at[i].time > 0 ? at[i].time : 0;
    for (int64_t i = 0; i < n; i++)
        if (!(at[i].time < POINT_LEAST * all)) at[taken++] = at[i];
    return taken;
}

/* A roof: memory's slope up to the peak, and flat from there on. */
typedef struct Roof {
    double x[3], y[3];
    char name[64];
} Roof;

enum { ROOFS = 3 };

/* Rates in FLOP/s over [lo, hi] FLOP a byte. The ridge is where both limits are equal. */
static void make_roof(const char *what, double tflops, double gb_s, double lo, double hi, Roof *out)
{
    const double ridge = tflops * 1e3 / gb_s, x[3] = { lo, fmin(fmax(ridge, lo), hi), hi };
    for (int i = 0; i < 3; i++) {
        out->x[i] = x[i];
        out->y[i] = 1e12 * fmin(tflops, x[i] * gb_s / 1e3);
    }
    (void)snprintf(out->name, sizeof out->name, "%s: %.4g TFLOP/s, %.4g TB/s", what, tflops,
                   gb_s / 1e3);
}

/* The roofs of the data sheet, as lines. That of 8 bits only if a point lies above that of bf16. */
static int make_roofs(const PerfPeaks *p, const Point *at, int64_t n, Roof roof[ROOFS],
                      SvgSeries *series)
{
    double lo = INFINITY, hi = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        lo = fmin(lo, at[i].intensity);
        hi = fmax(hi, at[i].intensity);
        most = fmax(most, at[i].rate);
    }
    const struct {
        const char *name;
        double tflops;
    } x[ROOFS] = { { "peak in bf16", p->bf16 },
                   { "peak in f32", p->f32 },
                   { "peak in fp8", most > p->bf16 ? p->fp8 : 0 } };
    int roofs = 0;
    for (int i = 0; i < ROOFS; i++) {
        if (!(x[i].tflops > 0 && p->gb_s > 0)) continue;
        Roof *r = &roof[roofs];
        make_roof(x[i].name, x[i].tflops, p->gb_s, lo, hi, r);
        series[roofs] = (SvgSeries){
            .name = r->name, .x = r->x, .y = r->y, .n = 3, .color = 1 + roofs, .mark = SVG_LINE
        };
        roofs++;
    }
    return roofs;
}

static Status roofline_note(Text *out, const TracePage *p, int64_t drawn, int64_t all, int roofs)
{
    TRY(text_printf(out,
                    "<p class=\"note\">%lld of %lld operators, those of at least %g %% of the "
                    "time: FLOP/s over FLOP a byte, each as large as the time it took.",
                    (long long)drawn, (long long)all, 100 * POINT_LEAST));
    if (roofs > 0)
        return text_printf(out, " Lines: what the data sheet allows, by memory and by products."
                                "</p>\n");
    return text_markup(out,
                       " There is no roofline, because no data sheet is known for %s: --gpu NAME "
                       "names one.</p>\n",
                       p->device == 0 ? "the GPU, which the trace does not name"
                                      : strings_text(&p->rank_names, p->device));
}

/* Draws each operator as a disc whose area grows with its time, below the roofs of the GPU. */
Status trace_part_roofline(Text *out, const TracePage *p, Arena *a)
{
    Point *at = (void *)p->points.text.data;
    const int64_t all = (int64_t)(p->points.text.used / sizeof *at), n = take_long(at, all);
    double longest = 0, *v = NULL; /* intensity, rate, radius */
    const char **label = NULL;
    Roof roof[ROOFS];
    SvgSeries series[ROOFS + 1];
    if (n == 0) return OK;
    TRY(ARENA_NEW(a, 3 * n, &v));
    TRY(ARENA_NEW(a, n, &label));
    for (int64_t i = 0; i < n; i++) longest = fmax(longest, at[i].time);
    for (int64_t i = 0; i < n; i++) {
        bool timed = at[i].time > 0 && longest > 0;
        v[i] = at[i].intensity;
        v[n + i] = 1e12 * at[i].rate;
        v[2 * n + i] = 3 + 9 * sqrt(timed ? at[i].time / longest : 0);
        TRY(point_label(&at[i], a, &label[i]));
    }
    const int roofs = make_roofs(&p->peaks, at, n, roof, series);
    series[roofs] = (SvgSeries){ .legend = "",
                                 .x = v,
                                 .y = v + n,
                                 .n = (int)n,
                                 .mark = SVG_POINTS,
                                 .radius = v + 2 * n,
                                 .label = label };
    TRY(text_printf(out, "<section id=\"roofline\"><h2>Roofline</h2>\n"));
    TRY(roofline_note(out, p, n, all, roofs));
    TRY(svg_chart(out, &(SvgChart){ .title = "Roofline",
                                    .x_label = "FLOP/byte",
                                    .y_label = "FLOP/s",
                                    .series = series,
                                    .n_series = roofs + 1,
                                    .width = 1080,
                                    .height = 416,
                                    .log_x = true,
                                    .log_y = true,
                                    .room = 2 }));
    return text_printf(out, "</section>\n");
}
