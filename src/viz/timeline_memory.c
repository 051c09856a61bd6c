/* timeline_memory: bytes of one rank over the step as areas, the first kind lowest. Each is drawn
 * down to the bottom and the next one over it. Of many points the one with the most bytes of each
 * stretch is drawn, so that the peak stays where it is. */
#include "viz/pipeline_page.h"

#include "viz/svg.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 342, HEIGHT = 170, LEFT = 70, TOP = 24, BOTTOM = 148, POINTS = 300 };

static double total_at(const Timeline *t, const TimelineRank *r, int point, int kinds)
{
    double sum = 0;
    for (int k = 0; k < kinds; k++) sum += r->bytes[(int64_t)point * t->memory_kinds + k];
    return sum;
}

static int choose(const Timeline *t, const TimelineRank *r, int chosen[POINTS])
{
    int n = r->points < POINTS ? r->points : POINTS;
    for (int i = 0; i < n; i++) {
        int first = (int)((int64_t)i * r->points / n), end = (int)((i + 1LL) * r->points / n);
        chosen[i] = first;
        for (int at = first + 1; at < end; at++) {
            bool more =
                total_at(t, r, at, t->memory_kinds) > total_at(t, r, chosen[i], t->memory_kinds);
            if (more) chosen[i] = at;
        }
    }
    return n;
}

static Status axes(Text *out, double step_s, double most_bytes)
{
    static const double GIB = 1073741824;
    double tick[SVG_TICKS_MAX], step = 0, unit = most_bytes >= GIB ? GIB : GIB / 1024;
    char label[32];
    int n = svg_ticks(0, most_bytes / unit, 4, 0, tick, &step);
    TRY(text_printf(out, "<g class=\"grid\">"));
    for (int i = 0; i < n; i++) {
        double y = BOTTOM - tick[i] * unit / most_bytes * (BOTTOM - TOP);
        TRY(text_printf(out,
                        "<path d=\"M%d %.1fH%d\"/><text class=\"end\" x=\"%d\" "
                        "y=\"%.1f\">%g %s</text>",
                        LEFT, y, WIDTH, LEFT - 6, y + 4, tick[i], unit == GIB ? "GiB" : "MiB"));
    }
    n = svg_ticks(0, step_s, 3, 0, tick, &step);
    for (int i = 0; i < n; i++) {
        TRY(text_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%d\">%s</text>",
                        tick[i] > 0.9 * step_s ? "end" : "mid",
                        LEFT + tick[i] / step_s * (WIDTH - LEFT), BOTTOM + 17,
                        svg_tick_text(label, tick[i], step, SVG_SECONDS)));
    }
    return text_printf(out, "</g>\n");
}

Status timeline_memory_svg(Text *out, const Timeline *t, int rank, double most_bytes)
{
    const TimelineRank *r = &t->rank[rank];
    int chosen[POINTS], n = choose(t, r, chosen);
    char peak[32];
    TRY(text_printf(out,
                    "<svg class=\"memory\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                    "role=\"img\" aria-label=\"memory of rank %d\"><text x=\"%d\" y=\"14\">rank "
                    "%d, peak %s</text>\n",
                    WIDTH, HEIGHT, WIDTH, HEIGHT, rank, LEFT, rank,
                    text_bytes(peak, r->peak_bytes)));
    for (int k = t->memory_kinds; k > 0; k--) {
        TRY(text_printf(out, "<path class=\"f%c\" d=\"M%d %d", svg_color(k - 1), LEFT, BOTTOM));
        for (int i = 0; i < n; i++) {
            double bytes = total_at(t, r, chosen[i], k);
            TRY(text_printf(out, "H%.1fV%.1f",
                            LEFT + fmin(r->at_s[chosen[i]] / t->step_s, 1) * (WIDTH - LEFT),
                            BOTTOM - bytes / most_bytes * (BOTTOM - TOP)));
        }
        TRY(text_printf(out, "H%dV%dZ\"/>\n", WIDTH, BOTTOM));
    }
    TRY(axes(out, t->step_s, most_bytes));
    return text_printf(out, "</svg>\n");
}

Status timeline_memory_key(Text *out, const Timeline *t)
{
    TRY(text_printf(out, "<p class=\"note\">"));
    for (int k = 0; k < t->memory_kinds; k++) {
        TRY(text_printf(out, "<span class=\"swatch\" style=\"background:var(--c%c)\"></span>",
                        svg_color(k)));
        TRY(svg_escape(out, t->memory_kind[k]));
        TRY(text_printf(out, k + 1 < t->memory_kinds ? ", " : ""));
    }
    return text_printf(out, "</p>\n");
}
