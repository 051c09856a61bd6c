/* live_page: facts and charts of a run that trains. */
#include "pages/live_page.h"

#include "pages/charts/page.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 526, HEIGHT = 230, CURVES = 64 };

static bool is_clock(Figure f) { return f == FIGURE_RUN_S || f == FIGURE_LEFT_S; }

static SvgUnit unit_of(const Series *s)
{
    return figure_rows[s->figure].curve.percent ? SVG_PERCENT : SVG_PLAIN;
}

/* The chart of the n series of one name that begin at `first`; nothing if none was ever set. */
static Status put_chart(Text *out, const LiveView *v, int first, int n)
{
    SvgSeries curve[CURVES];
    const Series *s = &v->series[first];
    const FigureCurve *axis = &figure_rows[s->figure].curve;
    bool one = *s->key == '\0';
    int shown = 0;
    for (int i = 0; i < n && shown < CURVES; i++) {
        if (!s[i].seen) continue;
        curve[shown] = (SvgSeries){ .name = one ? s[i].help : s[i].label,
                                    .legend = n > SVG_COLORS || one ? "" : NULL,
                                    .x = v->x,
                                    .y = v->y + (int64_t)(first + i) * LIVE_POINTS,
                                    .n = v->points,
                                    .color = shown,
                                    .mark = strstr(s->name, "eval") ? SVG_DOTS : SVG_LINE };
        shown++;
    }
    if (shown == 0 || is_clock(s->figure) || s->figure == FIGURE_TOKENS_SEEN) return OK;
    const SvgChart chart = { .title = s->help,
                             .x_label = "step",
                             .y_label = s->key,
                             .series = curve,
                             .n_series = shown,
                             .width = WIDTH,
                             .height = HEIGHT,
                             .y_unit = unit_of(s),
                             .log_y = axis->may_log && svg_has_wide_range(curve, shown),
                             .from_zero = s->total || axis->from_zero };
    return part_figure(out, &chart);
}

/* A figure's help is its name, then after a comma its unit. */
static Status put_fact(Text *out, const Series *s)
{
    char name[96], value[32];
    size_t end = strcspn(s->help, ",");
    const char *unit = s->help[end] == '\0' ? "" : s->help + end + 2;
    (void)snprintf(name, sizeof name, "%.*s", (int)end, s->help);
    if (s->figure == FIGURE_STEP_S || is_clock(s->figure))
        (void)text_duration(value, s->now);
    else
        (void)svg_value_text(value, s->now, unit_of(s));
    return part_fact(out, name, value, "%s", unit);
}

static Status put_facts(Text *out, const LiveView *v)
{
    char value[32], of[32];
    TRY(text_printf(out, "<div class=\"facts\">\n"));
    TRY(part_fact(out, "Step", text_thousands(value, v->step), "of %s",
                  text_thousands(of, v->steps)));
    for (int i = 0; i < v->n; i++)
        if (v->series[i].seen && *v->series[i].key == '\0') TRY(put_fact(out, &v->series[i]));
    return text_printf(out, "</div>\n");
}

Status live_page(const LiveView *v, Text *out)
{
    TRY(page_begin(out, v->model));
    TRY(text_markup(out,
                    "<header><h1>%s</h1><p>Training run %s; step %" PRId64 " of %" PRId64
                    "</p></header>\n",
                    v->model, v->folder, v->step, v->steps));
    TRY(put_facts(out, v));
    TRY(text_printf(out, "<div class=\"two\">\n"));
    for (int first = 0, n = 1; first < v->n; first += n, n = 1) {
        while (first + n < v->n && v->series[first + n].name == v->series[first].name) n++;
        TRY(put_chart(out, v, first, n));
    }
    TRY(text_printf(out, "</div>\n"));
    return page_end(out, NULL);
}
