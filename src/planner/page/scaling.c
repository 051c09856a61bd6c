/* scaling: draws how a training scales over the number of GPUs. It computes none; `plan --scale` does
 * (planner/answer.h). */
#include "pages/charts/page.h"
#include "planner/page/pipeline_page.h"

#include <math.h>
#include <string.h>

/* The numbers of GPUs of all curves, rising, each once. */
static int all_gpus(const Scaling *s, int n, double tick[SVG_TICKS_MAX])
{
    int ticks = 0;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < s[i].points && ticks < SVG_TICKS_MAX; k++) {
            const double gpus = s[i].gpus[k];
            int at = ticks;
            while (at > 0 && tick[at - 1] > gpus) at--;
            if (at > 0 && tick[at - 1] == gpus) continue;
            memmove(&tick[at + 1], &tick[at], (size_t)(ticks++ - at) * sizeof *tick);
            tick[at] = gpus;
        }
    }
    return ticks;
}

/* The axis of GPUs is logarithmic, because numbers of GPUs double from point to point. Its ticks are the numbers that
 * were asked. One curve needs no legend. */
Status scaling_svg(Text *out, const Scaling *s, int n, int width, bool tokens)
{
    SvgSeries series[SCALING_CURVES];
    double tick[SVG_TICKS_MAX];
    for (int i = 0; i < n; i++)
        series[i] = (SvgSeries){ .name = s[i].title,
                                 .legend = n == 1 ? "" : NULL,
                                 .x = s[i].gpus,
                                 .y = tokens ? s[i].tokens_per_s_per_gpu : s[i].efficiency,
                                 .n = s[i].points,
                                 .color = i,
                                 .mark = SVG_DOTS };
    const SvgChart chart = { .title = tokens ? "Speed by GPUs" : "Efficiency by GPUs",
                             .x_label = "GPUs",
                             .y_label = tokens ? "tokens/s/GPU" : "efficiency",
                             .series = series,
                             .n_series = n,
                             .width = width,
                             .height = SCALING_HEIGHT,
                             .y_unit = tokens ? SVG_PLAIN : SVG_PERCENT,
                             .x_tick = tick,
                             .x_ticks = all_gpus(s, n, tick),
                             .log_x = true,
                             .from_zero = true };
    return svg_chart(out, &chart);
}

/* Columns that only some curves have. */
typedef struct Columns {
    bool curve, days, layout; /* curve: there are several */
} Columns;

/* A point that does not fit says so. */
static Status point_row(Text *out, const Scaling *s, int i, const Columns *has)
{
    char gpus[32], rate[32], efficiency[32];
    const char *lost = s->reason[i] != NULL ? s->reason[i] : "";
    TRY(text_printf(out, "<tr>"));
    if (has->curve) TRY(text_markup(out, "<td>%s</td>", s->title));
    TRY(text_markup(out, "<td>%s</td><td>%s</td><td>%s</td>",
                    text_thousands(gpus, (int64_t)s->gpus[i]),
                    svg_value_text(rate, s->tokens_per_s_per_gpu[i], SVG_PLAIN),
                    svg_value_text(efficiency, s->efficiency[i], SVG_PERCENT)));
    if (has->days)
        TRY(text_markup(out, "<td class=\"words\">%s</td>", s->days[i] != NULL ? s->days[i] : ""));
    TRY(text_markup(out, "<td class=\"%s\">%s</td>", s->unfit[i] ? "words bad" : "words",
                    s->unfit[i] ? "does not fit" : lost));
    if (has->layout)
        TRY(text_markup(out, "<td class=\"words\">%s</td>",
                        s->layout[i] != NULL ? s->layout[i] : ""));
    return text_printf(out, "</tr>\n");
}

static Status points_table(Text *out, const Scaling *s, int n)
{
    Columns has = { .curve = n > 1 };
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < s[i].points; k++) {
            has.layout |= s[i].layout[k] != NULL;
            has.days |= s[i].days[k] != NULL;
        }
    }
    TRY(text_printf(out,
                    "<div class=\"wide\"><table class=\"fit\"><thead><tr>%s"
                    "<th>GPUs</th><th>tokens/s/GPU</th><th>efficiency</th>%s"
                    "<th class=\"words\">lost to</th>%s</tr></thead><tbody>\n",
                    has.curve ? "<th>curve</th>" : "",
                    has.days ? "<th class=\"words\">days of the training</th>" : "",
                    has.layout ? "<th class=\"words\">layout</th>" : ""));
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < s[i].points; k++) TRY(point_row(out, &s[i], k, &has));
    }
    return text_printf(out, "</tbody></table></div>\n");
}

Status scaling_section(Text *out, const Scaling *s, int n)
{
    TRY(text_markup(out, "<section><h2>Scaling%s%s</h2><div class=\"two\"><figure>\n",
                    n == 1 ? " of " : "", n == 1 ? s->title : ""));
    TRY(scaling_svg(out, s, n, 526, false));
    TRY(text_printf(out, "</figure><figure>\n"));
    TRY(scaling_svg(out, s, n, 526, true));
    TRY(text_printf(out, "</figure></div>\n"));
    TRY(points_table(out, s, n));
    return text_printf(out, "</section>\n");
}
