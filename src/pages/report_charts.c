/* report_charts: the report's charts over the steps (loss, rates, throughput), and memory. Expert
 * load is in report_load.c; axes and lines are svg_chart.c's. */
#include "pages/report_parts.h"

#include <math.h>
#include <stdio.h>

enum { FULL_HEIGHT = 340, HALF_HEIGHT = 230, THIRD_HEIGHT = 190 };

static bool has_points(const Curve *c) { return c->finite > 0; }

/* A curve's arrays are used as they are: the chart must be written before they go away. */
static SvgSeries series_of(const char *name, const Curve *c, int color, SvgMark mark)
{
    return (
        SvgSeries){ .name = name, .x = c->x, .y = c->y, .n = c->n, .color = color, .mark = mark };
}

/* ---- loss ---- */

bool loss_has(const Report *r)
{
    return has_points(&r->data.curve[RUN_LOSS]) || has_points(&r->data.curve[RUN_EVAL_LOSS]);
}

/* Training loss faint, its smoothed curve over it, held-out losses as dots. */
static Status loss_chart(Text *out, const RunData *d)
{
    SvgSeries s[3];
    int n = 0;
    bool smooth = d->curve[RUN_LOSS].n >= 20; /* fewer points need no smoothing */
    if (has_points(&d->curve[RUN_LOSS]))
        s[n++] = series_of("train", &d->curve[RUN_LOSS], 0, smooth ? SVG_FAINT : SVG_LINE);
    if (smooth) s[n++] = series_of("train, smoothed", &d->smooth_loss, 0, SVG_LINE);
    if (has_points(&d->curve[RUN_EVAL_LOSS]))
        s[n++] = series_of("held out", &d->curve[RUN_EVAL_LOSS], 1, SVG_DOTS);
    const SvgChart chart = { "Loss over the steps", "step",      "nats a token",     s, n,
                             REPORT_FULL,           FULL_HEIGHT, .y_unit = SVG_PLAIN };
    return part_broad(out, &chart, NULL);
}

/* Bits per byte of all held-out text, and of each domain that has some. */
static Status bits_chart(Text *out, const RunData *d)
{
    SvgSeries s[RUN_NAMES + 1];
    int n = 0;
    s[n++] = series_of("all domains", &d->curve[RUN_EVAL_BITS], 0, SVG_DOTS);
    for (int i = 0; i < d->domains.n; i++) {
        if (!has_points(&d->domain_bits[i])) continue;
        s[n++] = series_of(d->domains.name[i], &d->domain_bits[i], i + 1, SVG_DOTS);
    }
    const SvgChart chart = {
        "Held-out bits per byte", "step", "bits a byte", s, n, REPORT_HALF, HALF_HEIGHT,
        .y_unit = SVG_PLAIN
    };
    return part_figure(out, &chart);
}

/* The shares of right answers to eval.choices. */
static Status choices_chart(Text *out, const RunData *d)
{
    const SvgSeries s[] = {
        series_of("acc", &d->curve[RUN_CHOICES_ACC], 0, SVG_DOTS),
        series_of("acc_norm", &d->curve[RUN_CHOICES_NORM], 1, SVG_DOTS),
        series_of("acc_bytes", &d->curve[RUN_CHOICES_BYTES], 2, SVG_DOTS),
    };
    const SvgChart chart = { "Right answers to eval.choices",
                             "step",
                             "",
                             s,
                             3,
                             REPORT_HALF,
                             HALF_HEIGHT,
                             .y_unit = SVG_PERCENT };
    return part_figure(out, &chart);
}

/* A row of the table of evaluations: [0] is the first, [1] the last one; `n` of them are shown. */
static Status eval_row(Text *out, const char *name, int n, const double loss[2],
                       const double bits[2])
{
    TRY(text_markup(out, "<tr><td>%s</td>", name));
    for (int i = 0; i < 2 * n; i++) {
        const double value = i < n ? loss[i] : bits[i - n];
        TRY(isfinite(value) ? text_printf(out, "<td>%.3f</td>", value)
                            : text_printf(out, "<td>-</td>"));
    }
    if (n == 1) return text_printf(out, "</tr>\n");
    bool change = isfinite(bits[0]) && isfinite(bits[1]) && bits[0] > 0;
    if (!change) return text_printf(out, "<td>-</td></tr>\n");
    return text_printf(out, "<td>%+.1f %%</td></tr>\n", 100 * (bits[1] / bits[0] - 1));
}

/* The change is of bits per byte, which do not depend on the tokenizer. A run that measured once has none. */
static Status eval_table(Text *out, const RunData *d)
{
    const RunEval *a = &d->first_eval, *b = &d->last_eval;
    const int n = a->step == b->step ? 1 : 2;
    TRY(text_printf(out, "<figure><h3>Held out, step %lld", (long long)a->step));
    if (n == 2) TRY(text_printf(out, " and step %lld", (long long)b->step));
    TRY(text_printf(out,
                    "%s</h3><div class=\"wide\"><table><thead><tr><th>domain</th>%s"
                    "</tr></thead><tbody>\n",
                    d->sum.since,
                    n == 1 ? "<th>loss</th><th>bits a byte</th>"
                           : "<th>loss, first</th><th>last</th><th>bits a byte, first</th>"
                             "<th>last</th><th>change</th>"));
    TRY(eval_row(out, "all", n, (double[]){ a->loss, b->loss },
                 (double[]){ a->bits_per_byte, b->bits_per_byte }));
    for (int i = 0; i < d->domains.n; i++)
        TRY(eval_row(out, d->domains.name[i], n, (double[]){ a->domain_loss[i], b->domain_loss[i] },
                     (double[]){ a->domain_bits[i], b->domain_bits[i] }));
    return text_printf(out, "</tbody></table></div></figure>\n");
}

Status loss_write(Text *out, const Report *r)
{
    const RunData *d = &r->data;
    TRY(loss_chart(out, d));
    if (d->evals == 0) return OK;
    TRY(text_printf(out, "<div class=\"two\">\n"));
    if (has_points(&d->curve[RUN_EVAL_BITS])) TRY(bits_chart(out, d));
    TRY(eval_table(out, d));
    if (has_points(&d->curve[RUN_CHOICES_ACC])) TRY(choices_chart(out, d));
    return text_printf(out, "</div>\n");
}

/* ---- a row of small charts ---- */

/* Adds the charts of a figure, one for each group of parameters. */
static int add_charts(int figure, bool compared, SmallChart *out)
{
    static const char *const what[] = {
#define GRAD_GROUP(NAME, name, what, roles) what,
#include "engine/model/grad_group.def"
#undef GRAD_GROUP
    };
    const int first = run_spans[figure].first, n = (int)run_spans[figure].last - first + 1;
    const FigureCurve *of = &figure_rows[figure].curve;
    const char *form = n == 1 ? "%s" : compared ? "%s: %s" : "%.0sOf the %s";
    for (int i = 0; i < n; i++) {
        out[i] = (SmallChart){ .curve = (RunCurve)(first + i), .of = of };
        (void)snprintf(out[i].title, sizeof out[i].title, form, of->title, what[i]);
    }
    return n;
}

int charts_of(FigureSection section, SmallChart out[RUN_CURVES])
{
    const bool compared = section == SECTION_COMPARED;
    int n = 0;
    for (int i = 0; i < FIGURE_PLACES * FIGURES; i++) {
        const FigureRow *row = &figure_rows[i % FIGURES];
        const bool here = compared ? !row->alone : row->curve.section == section;
        if (row->curve.place == i / FIGURES + 1 && here)
            n += add_charts(i % FIGURES, compared, out + n);
    }
    return n;
}

static bool has_chart(const RunSet *r, const SmallChart *chart)
{
    bool any = false;
    for (int i = 0; i < r->n; i++) any |= has_points(&r->run[i]->curve[chart->curve]);
    return any;
}

/* Charts of a group that have data. */
int charts_count(const RunSet *r, const SmallChart *chart, int n)
{
    int shown = 0;
    for (int i = 0; i < n; i++) shown += has_chart(r, &chart[i]);
    return shown;
}

/* The curves of one chart; runs without it have none. Colours follow the run. */
static Status small_chart(Text *out, const RunSet *r, const SmallChart *small, bool three)
{
    SvgSeries series[RUNS_MOST];
    const bool eval = run_curve_held_out(small->curve);
    bool log_y = false;
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        const Curve *c = &r->run[i]->curve[small->curve];
        if (!has_points(c)) continue;
        series[n] =
            series_of(r->n == 1 ? small->title : r->name[i], c, i, eval ? SVG_DOTS : SVG_LINE);
        if (r->n == 1) series[n].legend = "";
        log_y |= small->of->may_log && svg_has_wide_range(&series[n], 1);
        n++;
    }
    const SvgChart plot = { small->title,
                            r->x_label,
                            log_y ? "log scale" : "",
                            series,
                            n,
                            three ? REPORT_THIRD : REPORT_HALF,
                            three ? THIRD_HEIGHT : HALF_HEIGHT,
                            .y_unit = small->of->percent ? SVG_PERCENT : SVG_PLAIN,
                            .log_y = log_y,
                            .from_zero = small->of->from_zero };
    return part_figure(out, &plot);
}

/* Writes the charts that have data: three in a row if there are three, else two in a row. */
Status charts_write(Text *out, const RunSet *r, const SmallChart *chart, int n)
{
    bool three = charts_count(r, chart, n) == 3;
    TRY(text_printf(out, "<div class=\"%s\">\n", three ? "three" : "two"));
    for (const SmallChart *small = chart; small < chart + n; small++) {
        if (has_chart(r, small)) TRY(small_chart(out, r, small, three));
    }
    return text_printf(out, "</div>\n");
}

/* ---- memory ---- */

static bool any_finite(const double *v, int n)
{
    for (int i = 0; i < n; i++) {
        if (isfinite(v[i])) return true;
    }
    return false;
}

static Status memory_row(Text *out, const char *name, double planned, double used)
{
    char text[2][32];
    TRY(text_markup(out, "<tr><td>%s</td><td>%s</td><td>%s</td>", name,
                    svg_value_text(text[0], planned, SVG_BYTES),
                    svg_value_text(text[1], used, SVG_BYTES)));
    if (!(planned > 0) || !isfinite(used)) return text_printf(out, "<td>-</td></tr>\n");
    return text_printf(out, "<td>%.1f %%</td></tr>\n", 100 * used / planned);
}

/* The sum of the known values; NaN if none is known. */
static double total_of(const double *v, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += isfinite(v[i]) ? v[i] : 0;
    return any_finite(v, n) ? sum : (double)NAN;
}

/* Arenas without a plan or without a measured peak get a dash, not a 0. */
static Status memory_table(Text *out, const RunData *d)
{
    int n = d->arenas.n;
    TRY(text_printf(out, "<div class=\"wide\"><table><thead><tr><th>arena</th><th>planned</th>"
                         "<th>used</th><th>used of planned</th></tr></thead><tbody>\n"));
    for (int i = 0; i < n; i++)
        TRY(memory_row(out, d->arenas.name[i], d->planned_bytes[i], d->used_bytes[i]));
    TRY(text_printf(out, "</tbody><tfoot>"));
    TRY(memory_row(out, "total", total_of(d->planned_bytes, n), total_of(d->used_bytes, n)));
    return text_printf(out, "</tfoot></table></div>\n");
}

/* A bar of what the plan expects and a bar of what steps used, by arena; only those that are
 * known. */
Status memory_write(Text *out, const Report *r)
{
    static const char *const ROW[] = { "planned", "used" };
    const RunData *d = &r->data;
    double value[2 * RUN_NAMES];
    int n = d->arenas.n;
    bool planned = any_finite(d->planned_bytes, n), used = any_finite(d->used_bytes, n);
    int rows = 0, first = planned ? 0 : 1;
    for (int row = 0; row < 2; row++) {
        if (!(row == 0 ? planned : used)) continue;
        for (int i = 0; i < n; i++)
            value[rows * n + i] = row == 0 ? d->planned_bytes[i] : d->used_bytes[i];
        rows++;
    }
    const SvgBars bars = { .title = "Memory by arena",
                           .row = ROW + first,
                           .part = d->arenas.name,
                           .value = value,
                           .rows = rows,
                           .parts = n,
                           .width = REPORT_FULL,
                           .unit = SVG_BYTES };
    TRY(part_broad(out, NULL, &bars));
    return memory_table(out, d);
}
