/* scaling: curves over the number of GPUs, read and drawn. */
#include "base/file.h"
#include "trace/scan.h"
#include "viz/page.h"
#include "viz/pipeline_page.h"

#include <math.h>
#include <string.h>

/* ---- file ---- */

static double number_of(char *object, const char *key)
{
    double v = scan_number_at(scan_member(object, key));
    return v >= 0 && v < 1e18 ? v : (double)NAN;
}

static Status text_of(char *object, const char *key, Arena *a, const char **out)
{
    const char *text = scan_string_at(scan_member(object, key));
    return text != NULL ? arena_text(a, text, strlen(text), out) : OK;
}

Status scaling_read(const char *path, Arena *a, Scaling *out)
{
    char *text = NULL;
    size_t bytes = 0;
    ScalingPoint *point = NULL;
    Scaling curve = { 0 };
    TRY(file_read_input(path, a, &text, &bytes));
    Scan whole = scan_begin(text);
    char *root = scan_skip(&whole);
    if (!scan_end(&whole)) return FAIL(ERR_FORMAT, "%s: no JSON object", path);
    char *list = scan_member(root, "scaling");
    Scan s = scan_inside(list != NULL ? list : root);
    TRY(ARENA_ZEROED(a, SCALING_POINTS, &point));
    for (; list != NULL && scan_item(&s); curve.points++) {
        char *item = scan_skip(&s);
        int n = curve.points;
        ScalingPoint p = { number_of(item, "gpus"), number_of(item, "tokens_per_s_per_gpu"),
                           number_of(item, "efficiency"), NULL };
        if (n == SCALING_POINTS || !(p.gpus >= 1 && (n == 0 || p.gpus > point[n - 1].gpus)))
            return FAIL(ERR_FORMAT,
                        "%s: point %d of \"scaling\": \"gpus\" must be a number of at least 1 that "
                        "rises from point to point, of at most %d",
                        path, n + 1, SCALING_POINTS);
        TRY(text_of(item, "reason", a, &p.reason));
        point[n] = p;
    }
    TRY(text_of(root, "title", a, &curve.title));
    if (curve.title == NULL) return FAIL(ERR_FORMAT, "%s: \"title\" is missing or no text", path);
    if (curve.points == 0)
        return FAIL(ERR_FORMAT, "%s: \"scaling\" is missing or no list of points", path);
    curve.point = point;
    *out = curve;
    return OK;
}

/* ---- drawn ---- */

Status scaling_svg(Text *out, const Scaling *s, int n, int width, bool tokens)
{
    double x[SCALING_CURVES][SCALING_POINTS], y[SCALING_CURVES][SCALING_POINTS];
    SvgSeries series[SCALING_CURVES];
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < s[i].points; k++) {
            const ScalingPoint *p = &s[i].point[k];
            x[i][k] = p->gpus;
            y[i][k] = tokens ? p->tokens_per_s_per_gpu : p->efficiency;
        }
        series[i] = (SvgSeries){
            .name = s[i].title, .x = x[i], .y = y[i], .n = s[i].points, .color = i, .mark = SVG_DOTS
        };
    }
    const SvgChart chart = { "Scaling",
                             "GPUs",
                             tokens ? "tokens/s/GPU" : "efficiency",
                             series,
                             n,
                             width,
                             SCALING_HEIGHT,
                             .y_unit = tokens ? SVG_PLAIN : SVG_PERCENT,
                             .log_x = true,
                             .from_zero = true };
    return svg_chart(out, &chart);
}

static Status point_row(Text *out, const Scaling *s, const ScalingPoint *p)
{
    char gpus[32], rate[32], efficiency[32];
    return text_markup(out, "<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
                       s->title, text_thousands(gpus, (int64_t)p->gpus),
                       svg_value_text(rate, p->tokens_per_s_per_gpu, SVG_PLAIN),
                       svg_value_text(efficiency, p->efficiency, SVG_PERCENT),
                       p->reason != NULL ? p->reason : "");
}

Status scaling_section(Text *out, const Scaling *s, int n)
{
    TRY(text_printf(out, "<section><h2>Scaling</h2><div class=\"two\"><figure>\n"));
    TRY(scaling_svg(out, s, n, 526, false));
    TRY(text_printf(out, "</figure><figure>\n"));
    TRY(scaling_svg(out, s, n, 526, true));
    TRY(text_printf(out, "</figure></div><div class=\"wide\"><table><thead><tr><th></th>"
                         "<th>GPUs</th><th>tokens/s/GPU</th><th>efficiency</th><th>lost to</th>"
                         "</tr></thead><tbody>\n"));
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < s[i].points; k++) TRY(point_row(out, &s[i], &s[i].point[k]));
    }
    return text_printf(out, "</tbody></table></div></section>\n");
}
