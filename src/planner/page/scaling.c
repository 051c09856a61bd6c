/* scaling: how a training scales over the number of GPUs: reads curves from files and draws them.
 * It computes none; `plan --scale` does (planner/answer.h). */
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "pages/charts/page.h"
#include "planner/page/pipeline_page.h"

#include <math.h>
#include <string.h>

/* ---- file ---- */

/* A number from 0 to 1e18; NaN if the key is missing or holds something else: not known. */
static double read_number(const Json *object, const char *key)
{
    const Json *v = json_get(object, key);
    return json_is(v, JSON_NUMBER) && v->number >= 0 && v->number < 1e18 ? v->number : (double)NAN;
}

/* Reads a point. GPUs must rise from point to point, because a curve's x rises. */
static Status read_point(const char *path, const Json *item, Scaling *s)
{
    int n = s->points++;
    double gpus = read_number(item, "gpus");
    if (n == SCALING_POINTS || !(gpus >= 1 && (n == 0 || gpus > s->gpus[n - 1])))
        return FAIL(ERR_FORMAT,
                    "%s: point %d of \"scaling\": \"gpus\" must be a number of at least 1 that "
                    "rises from point to point, of at most %d",
                    path, n + 1, SCALING_POINTS);
    s->gpus[n] = gpus;
    s->tokens_per_s_per_gpu[n] = read_number(item, "tokens_per_s_per_gpu");
    s->efficiency[n] = read_number(item, "efficiency");
    s->reason[n] = json_string(json_get(item, "reason"));
    return OK;
}

/* The format is what `plan --scale --json` prints, with a title (docs/reference/formats.md). */
Status scaling_read(const char *path, Arena *a, Scaling *out)
{
    char *text = NULL;
    Json *root = NULL;
    size_t bytes = 0, bad = 0;
    *out = (Scaling){ 0 };
    TRY(file_read_input(path, a, &text, &bytes));
    TRY(json_parse(text, bytes, a, &root, &bad));
    if (root == NULL) return FAIL(ERR_FORMAT, "%s is not a JSON object", path);
    const Json *list = json_get(root, "scaling");
    for (const Json *v = json_is(list, JSON_ARRAY) ? list->child : NULL; v != NULL; v = v->next)
        TRY(read_point(path, v, out));
    out->title = json_string(json_get(root, "title"));
    if (out->title == NULL) return FAIL(ERR_FORMAT, "%s: \"title\" is missing or not a text", path);
    if (out->points > 0) return OK;
    return FAIL(ERR_FORMAT, "%s: \"scaling\" is missing or not a list of points", path);
}

/* ---- drawing ---- */

/* The axis of GPUs is logarithmic, because numbers of GPUs double from point to point. */
Status scaling_svg(Text *out, const Scaling *s, int n, int width, bool tokens)
{
    SvgSeries series[SCALING_CURVES];
    for (int i = 0; i < n; i++)
        series[i] = (SvgSeries){ .name = s[i].title,
                                 .x = s[i].gpus,
                                 .y = tokens ? s[i].tokens_per_s_per_gpu : s[i].efficiency,
                                 .n = s[i].points,
                                 .color = i,
                                 .mark = SVG_DOTS };
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

/* A point that does not fit says so. `layouts`: the table has that column. */
static Status point_row(Text *out, const Scaling *s, int i, bool layouts)
{
    char gpus[32], rate[32], efficiency[32];
    TRY(text_markup(out, "<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td class=\"%s\">%s</td>",
                    s->title, text_thousands(gpus, (int64_t)s->gpus[i]),
                    svg_value_text(rate, s->tokens_per_s_per_gpu[i], SVG_PLAIN),
                    svg_value_text(efficiency, s->efficiency[i], SVG_PERCENT),
                    s->unfit[i] ? "words bad" : "words",
                    s->unfit[i]            ? "does not fit"
                    : s->reason[i] != NULL ? s->reason[i]
                                           : ""));
    if (layouts)
        TRY(text_markup(out, "<td class=\"words\">%s</td>",
                        s->layout[i] != NULL ? s->layout[i] : ""));
    return text_printf(out, "</tr>\n");
}

Status scaling_section(Text *out, const Scaling *s, int n)
{
    bool layouts = false;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < s[i].points; k++) layouts |= s[i].layout[k] != NULL;
    }
    TRY(text_printf(out, "<section><h2>Scaling</h2><div class=\"two\"><figure>\n"));
    TRY(scaling_svg(out, s, n, 526, false));
    TRY(text_printf(out, "</figure><figure>\n"));
    TRY(scaling_svg(out, s, n, 526, true));
    TRY(text_printf(out,
                    "</figure></div><div class=\"wide\"><table class=\"fit\"><thead><tr><th></th>"
                    "<th>GPUs</th><th>tokens/s/GPU</th><th>efficiency</th>"
                    "<th class=\"words\">lost to</th>%s</tr></thead><tbody>\n",
                    layouts ? "<th class=\"words\">layout</th>" : ""));
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < s[i].points; k++) TRY(point_row(out, &s[i], k, layouts));
    }
    return text_printf(out, "</tbody></table></div></section>\n");
}
