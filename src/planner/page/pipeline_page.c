/* pipeline_page: timelines and scaling curves as one page, or as one SVG. It arranges parts that
 * others draw: timelines are timeline_svg.c's, curves scaling.c's. */
#include "planner/page/pipeline_page.h"

#include "engine/base/file.h"
#include "pages/charts/page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    PAGE_WIDTH = 1080,
    STILL_WIDTH = 1000, /* pixels, as the other sizes */
    STILL_GAP = 18,
    STILL_EDGE = 10,
    PANELS = 6,                /* ranks whose memory is drawn at first */
    BUBBLE = TIMELINE_EXCHANGE /* the bubble's index behind the kinds of the compute lane */
};

/* The style of a still. It uses no CSS variables, because many programs that draw SVG lack them. */
static const char STILL_STYLE[] =
    "text{font:11px Helvetica,Arial,sans-serif;fill:#111}\n"
    ".end{text-anchor:end}.mid{text-anchor:middle}.dim,.grid text{fill:#555}\n"
    ".grid path{stroke:#ddd;fill:none}.axis{stroke:#555}.pipe .idle{fill:#e3e6ea}\n"
    ".line{fill:none;stroke-width:1.8}\n";

/* All timelines of a page share this time axis, so that their lengths compare. */
static double longest_step_s(const PipelineView *v)
{
    double most = 0;
    for (int i = 0; i < v->timelines; i++) most = fmax(most, v->timeline[i].step_s);
    return most;
}

/* ---- the comparison ---- */

/* One row for each timeline; the step is compared with the first timeline's. */
static Status comparison_part(Text *out, const PipelineView *v)
{
    TRY(text_printf(
        out,
        "<section><div class=\"wide\"><table class=\"fit\"><thead><tr><th></th><th>ranks, p</th>"
        "<th>chunks, v</th><th>micro-batches, m</th><th>step</th>"
        "<th>against the first</th><th>bubble</th><th>(p-1)/(p-1+m·v)</th>"
        "<th>peak memory</th></tr></thead><tbody>\n"));
    for (int i = 0; i < v->timelines; i++) {
        const Timeline *t = &v->timeline[i];
        char step[32], memory[32] = "-", iteration[48] = "";
        if (t->peak_rank >= 0) (void)text_bytes(memory, t->rank[t->peak_rank].peak_bytes);
        if (t->iteration > 0)
            (void)snprintf(iteration, sizeof iteration, ", iteration %lld",
                           (long long)t->iteration);
        TRY(text_markup(
            out,
            "<tr><td>%s%s</td><td>%d</td><td>%d</td><td>%d</td><td>%s</td><td>%+.1f %%</td>"
            "<td>%.2f %%</td><td>%.2f %%</td><td>%s</td></tr>\n",
            t->title, iteration, t->ranks, t->chunks, t->micros,
            svg_value_text(step, t->step_s, SVG_SECONDS),
            100 * (t->step_s / v->timeline->step_s - 1), 100 * t->bubble, 100 * t->theory, memory));
    }
    TRY(text_printf(out, "</tbody></table></div>\n"));
    TRY(part_note(out, "Bubbles are the mean of all ranks, compared with that of 1F1B with equal "
                       "passes and free communication. Timelines share one time axis."));
    return text_printf(out, "</section>\n");
}

/* ---- one timeline ---- */

/* A bar for each rank: time by kind of the compute lane, then the bubble. Together they are a step. */
static Status time_bars(Text *out, const Timeline *t)
{
    enum { ROWS = 64, PARTS = BUBBLE + 1 };
    const char *part[PARTS] = { [BUBBLE] = "idle" }, *row[ROWS];
    char name[ROWS][16];
    double value[ROWS][PARTS];
    for (int p = 0; p < BUBBLE; p++) part[p] = timeline_kind[p].name;
    for (int i = 0; i < t->shown; i++) {
        int rank = timeline_shown_rank(t, i);
        const TimelineRank *r = &t->rank[rank];
        (void)snprintf(name[i], sizeof name[i], "rank %d", rank);
        row[i] = name[i];
        memcpy(value[i], r->sum_s, BUBBLE * sizeof(double));
        value[i][BUBBLE] = fmax(t->step_s - r->busy_s, 0);
    }
    const SvgBars bars = { .title = "Time by rank",
                           .row = row,
                           .part = part,
                           .value = *value,
                           .rows = t->shown,
                           .parts = PARTS,
                           .width = PAGE_WIDTH,
                           .unit = SVG_SECONDS };
    TRY(text_printf(out,
                    "<details%s><summary>Where each rank's time goes</summary>"
                    "<div class=\"wide full kinds\">\n",
                    t->shown <= 16 ? " open=\"open\"" : ""));
    TRY(svg_bars(out, &bars));
    return text_printf(out, "</div></details>\n");
}

enum { MEMORY_STEPS = 200 }; /* intervals of a panel */

/* One kind of memory over time, as the sum of it and the kinds below it. */
typedef struct MemoryCurve {
    double x[2 * MEMORY_STEPS], y[2 * MEMORY_STEPS];
    int n;
    bool adds; /* this kind has bytes at some moment: its curve is not the one below it */
} MemoryCurve;

/* Adds bytes from x on. Points inside of a flat stretch are left out. */
static void curve_step(MemoryCurve *c, double x, double y)
{
    bool flat = c->n >= 2 && c->y[c->n - 1] == y && c->y[c->n - 2] == y;
    if (flat) c->n--;
    c->x[c->n] = x;
    c->y[c->n++] = y;
}

/* The time axis of the panels has the unit of the timeline above them: seconds, or of a short step ms. */
typedef struct TimeUnit {
    double scale;
    const char *name;
} TimeUnit;
static TimeUnit memory_time(const Timeline *t)
{
    return t->step_s >= 1 ? (TimeUnit){ 1, "s" } : (TimeUnit){ 1e3, "ms" };
}

/* Each interval shows the moment with the most bytes in it, so that the peak is exact. Kinds are
 * stacked: curve k is the sum of kinds 0 to k. */
static void memory_curves(const Timeline *t, const TimelineRank *r, MemoryCurve *curve)
{
    int kinds = t->memory_kinds, n = r->points < MEMORY_STEPS ? r->points : MEMORY_STEPS;
    for (int64_t i = 0; i < n; i++) {
        int64_t first = i * r->points / n, end = (i + 1) * r->points / n, most_at = first;
        const double scale = memory_time(t).scale;
        double most = -1, from = scale * r->at_s[first],
               until = scale * (end < r->points ? r->at_s[end] : t->step_s), sum = 0;
        for (int64_t at = first; at < end; at++) {
            double all = 0;
            for (int k = 0; k < kinds; k++) all += r->bytes[at * kinds + k];
            if (all > most) most = all, most_at = at;
        }
        for (int k = 0; k < kinds; k++) {
            sum += r->bytes[most_at * kinds + k];
            curve[k].adds |= r->bytes[most_at * kinds + k] > 0;
            curve_step(&curve[k], from, sum / TIMELINE_GIB);
            curve_step(&curve[k], until, sum / TIMELINE_GIB);
        }
    }
}

/* Draws memory over time. The highest area comes first because later ones are drawn over it. The
 * line is what may be used, where that is known, else the peak of all ranks. */
static Status memory_panel(Text *out, const Timeline *t, int rank, bool shown)
{
    MemoryCurve curve[TIMELINE_MEMORY_KINDS] = { { .n = 0 } };
    SvgSeries series[TIMELINE_MEMORY_KINDS];
    char title[32], name[TIMELINE_MEMORY_KINDS][64];
    int areas = 0;
    bool limited = t->room_bytes > 0;
    const SvgGuide line = { (limited ? t->room_bytes : t->rank[t->peak_rank].peak_bytes) /
                                TIMELINE_GIB,
                            limited ? "may be used" : "peak of all ranks" };
    memory_curves(t, &t->rank[rank], curve);
    for (int k = t->memory_kinds - 1; k >= 0; k--) {
        if (!curve[k].adds) continue;
        (void)snprintf(name[k], sizeof name[k], "%s%s", k > 0 ? "+ " : "", t->memory_kind[k]);
        series[areas++] = (SvgSeries){ .name = name[k],
                                       .legend = "", /* one for all panels: memory_legend */
                                       .x = curve[k].x,
                                       .y = curve[k].y,
                                       .n = curve[k].n,
                                       .color = k,
                                       .mark = SVG_AREA };
    }
    (void)snprintf(title, sizeof title, "Memory of rank %d", rank);
    const SvgChart chart = { .title = title,
                             .x_label = memory_time(t).name,
                             .y_label = "GiB",
                             .series = series,
                             .n_series = areas,
                             .width = 342,
                             .height = 206,
                             .from_zero = true,
                             .real_x = true,
                             .snug = true,
                             .guide = &line,
                             .guides = 1 };
    TRY(text_printf(out, "<figure data-rank=\"%d\"%s><h3>%s</h3>\n", rank,
                    shown ? "" : " hidden=\"hidden\"", title));
    TRY(svg_chart(out, &chart));
    return text_printf(out, "</figure>\n");
}

/* The kinds that any rank has at any time, as they are stacked from below. */
static Status memory_legend(Text *out, const Timeline *t)
{
    bool has[TIMELINE_MEMORY_KINDS] = { false };
    SvgLegend l = { 0, 12, 0, PAGE_WIDTH }, end = l;
    for (int i = 0; i < t->shown; i++) {
        const TimelineRank *r = &t->rank[timeline_shown_rank(t, i)];
        for (int64_t k = 0; k < (int64_t)r->points * t->memory_kinds; k++)
            has[k % t->memory_kinds] |= r->bytes[k] > 0;
    }
    for (int k = 0; k < t->memory_kinds; k++)
        if (has[k]) TRY(svg_legend_entry(NULL, &end, t->memory_kind[k], k, SVG_BOX));
    TRY(svg_open(out, "keys", PAGE_WIDTH, end.y + 6, "Kinds of memory, from below"));
    TRY(text_printf(out, ">\n"));
    for (int k = 0; k < t->memory_kinds; k++)
        if (has[k]) TRY(svg_legend_entry(out, &l, t->memory_kind[k], k, SVG_BOX));
    return text_printf(out, "</svg>\n");
}

/* Is the i-th of n ranks one of the PANELS that are drawn at first, evenly chosen? */
static bool drawn_at_first(int i, int n)
{
    for (int k = 0; k < PANELS && n > 1; k++)
        if (i == k * (n - 1) / (PANELS - 1)) return true;
    return n <= PANELS;
}

/* Panels of the ranks that the timeline shows, some of them hidden until their button is pressed. */
static Status memory_panels(Text *out, const Timeline *t)
{
    if (t->memory_kinds == 0 || t->peak_rank < 0) return OK;
    if (t->shown > PANELS) {
        TRY(text_printf(out,
                        "<p class=\"note pick\">Memory of %d of %d ranks is drawn; these buttons "
                        "choose: ",
                        PANELS, t->ranks));
        for (int i = 0; i < t->shown; i++)
            TRY(text_printf(out,
                            "<button type=\"button\" data-rank=\"%d\" "
                            "aria-pressed=\"%s\">%d</button>\n",
                            timeline_shown_rank(t, i),
                            drawn_at_first(i, t->shown) ? "true" : "false",
                            timeline_shown_rank(t, i)));
        TRY(text_printf(out, "</p>\n"));
    }
    TRY(memory_legend(out, t));
    TRY(text_printf(out, "<div class=\"three\">\n"));
    for (int i = 0; i < t->shown; i++) {
        int rank = timeline_shown_rank(t, i);
        if (t->rank[rank].points > 0) TRY(memory_panel(out, t, rank, drawn_at_first(i, t->shown)));
    }
    return text_printf(out, "</div>\n");
}

/* The begin and the end of a step whose passes are too narrow in the whole. */
static Status timeline_parts(Text *out, const Timeline *t, double part_s)
{
    const double passes_s = t->pipeline_s > 0 ? t->pipeline_s : t->step_s;
    char title[96], length[32], all[32];
    (void)svg_value_text(length, part_s, SVG_SECONDS);
    (void)svg_value_text(all, t->step_s, SVG_SECONDS);
    (void)snprintf(title, sizeof title, "The first %s of the %s", length, all);
    TRY(timeline_part_svg(out, t, PAGE_WIDTH, 0, part_s, title));
    (void)snprintf(title, sizeof title, "The last %s of passes", length);
    return timeline_part_svg(out, t, PAGE_WIDTH, passes_s - part_s, part_s, title);
}

Status pipeline_timeline(Text *out, const Timeline *t, double axis_s)
{
    char grain[32];
    Timeline whole = *t;
    const double part_s = timeline_part_s(t, PAGE_WIDTH, axis_s);
    if (part_s > 0) timeline_limit(&whole, 0); /* as few boxes as there can be: no hatch */
    TRY(text_printf(out, "<div class=\"wide\">\n"));
    TRY(timeline_svg(out, &whole, PAGE_WIDTH, axis_s));
    if (part_s > 0) TRY(timeline_parts(out, t, part_s));
    TRY(text_printf(out, "</div>\n<p class=\"note\">"));
    if (t->shown < t->ranks)
        TRY(text_printf(out,
                        "%d of %d ranks are shown, evenly chosen from the first to the last; means "
                        "and peaks are of all. ",
                        t->shown, t->ranks));
    return text_printf(
        out,
        "Bubble: the mean share of %s in which compute lanes run nothing; waits for exchanges "
        "count. Neighbours shorter than %s share boxes, a box for each "
        "kind, as long as they ran. Ctrl and the wheel zoom, dragging pans, a double click shows "
        "everything.</p>\n",
        t->pipeline_s > 0 ? "the pipeline's time" : "the step",
        svg_value_text(grain, whole.step_s / whole.grain, SVG_SECONDS));
}

Status pipeline_ranks(Text *out, const Timeline *t)
{
    TRY(memory_panels(out, t));
    return time_bars(out, t);
}

Status pipeline_style(Text *out)
{
    TRY(text_printf(out, "<style>.pipe{min-width:900px;width:100%%;margin-bottom:18px}.pipe "
                         ".idle{fill:var(--line)}\n"));
    TRY(timeline_colors(out));
    return text_printf(out, ".kinds .f%d{fill:var(--line)}</style>\n", BUBBLE);
}

/* A heading of the view's own, else the names of what is drawn. */
static Status view_header(Text *out, const PipelineView *v)
{
    if (v->title != NULL)
        return text_markup(out, "<header><h1>%s</h1><p>%s</p></header>\n", v->title, v->about);
    TRY(text_printf(out, "<header><h1>%s", v->timelines > 0 ? "Pipelines: " : "Scaling: "));
    for (int i = 0; i < v->timelines; i++)
        TRY(text_markup(out, i == 0 ? "%s" : ", %s", v->timeline[i].title));
    for (int i = 0; i < v->scalings; i++)
        TRY(text_markup(out, v->timelines + i == 0 ? "%s" : ", %s", v->scaling[i].title));
    return text_printf(out, "</h1></header>\n");
}

/* Timelines first, each with its own section, then one section for all scaling curves. */
Status pipeline_html(Text *out, const PipelineView *v)
{
    TRY(page_begin(out, v->title != NULL ? v->title : v->timelines > 0 ? "Pipelines" : "Scaling"));
    TRY(pipeline_style(out));
    TRY(view_header(out, v));
    if (v->timelines > 0) TRY(comparison_part(out, v));
    for (int i = 0; i < v->timelines; i++) {
        TRY(text_printf(out, "<section>\n"));
        if (v->timeline[i].iteration > 0) {
            TRY(text_markup(out, "<h2>%s</h2>\n<p>This is ", v->timeline[i].title));
            TRY(timeline_which(out, &v->timeline[i]));
            TRY(text_printf(out, ".</p>\n"));
        }
        TRY(pipeline_timeline(out, &v->timeline[i], longest_step_s(v)));
        TRY(pipeline_ranks(out, &v->timeline[i]));
        TRY(text_printf(out, "</section>\n"));
    }
    if (v->scalings > 0) TRY(scaling_section(out, v->scaling, v->scalings));
    return page_end(out, "pipeline.js");
}

/* The colours of page.css's light theme, written out. */
static Status still_style(Text *out)
{
    static const char *const COLOR[] = { "#0b62b8", "#c8450c", "#0a7f5a", "#8a4fbf",
                                         "#9a6a00", "#0e7f93", "#c2337f", "#4d5965" };
    TRY(text_append(out, STILL_STYLE, sizeof STILL_STYLE - 1));
    for (int i = 0; i < SVG_COLORS; i++)
        TRY(text_printf(out, ".s%d{stroke:%s}.f%d{fill:%s}\n", i, COLOR[i], i, COLOR[i]));
    return timeline_colors(out);
}

/* Stacks the timelines, then the curve, as groups of one <svg>. Heights must be known before it opens. */
Status pipeline_still(Text *out, const PipelineView *v)
{
    double height = STILL_GAP, y = 0.5 * STILL_GAP;
    for (int i = 0; i < v->timelines; i++)
        height += timeline_svg_height(&v->timeline[i]) + STILL_GAP;
    if (v->scalings > 0) height += SCALING_HEIGHT;
    TRY(text_printf(out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" "
                    "width=\"%d\" height=\"%.0f\">\n<style>\n",
                    STILL_WIDTH, height, STILL_WIDTH, height));
    TRY(still_style(out));
    TRY(text_printf(out, "</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"));
    for (int i = 0; i < v->timelines; i++) {
        TRY(text_printf(out, "<g transform=\"translate(%d %.0f)\">\n", STILL_EDGE, y));
        TRY(timeline_svg(out, &v->timeline[i], STILL_WIDTH - 2 * STILL_EDGE, longest_step_s(v)));
        TRY(text_printf(out, "</g>\n"));
        y += timeline_svg_height(&v->timeline[i]) + STILL_GAP;
    }
    if (v->scalings > 0) {
        TRY(text_printf(out, "<svg x=\"%d\" y=\"%.0f\" width=\"%d\" height=\"%d\">\n", STILL_EDGE,
                        y, STILL_WIDTH - 2 * STILL_EDGE, SCALING_HEIGHT));
        TRY(scaling_svg(out, v->scaling, v->scalings, STILL_WIDTH - 2 * STILL_EDGE, false));
        TRY(text_printf(out, "</svg>\n"));
    }
    return text_printf(out, "</svg>\n");
}

Status pipeline_check_path(const char *option, const char *path)
{
    if (text_ends(path, ".html") || text_ends(path, ".svg")) return OK;
    return FAIL(ERR_ARG, "%s %.200s: the name must end in .html or .svg", option, path);
}

/* `out` is only borrowed: its text is written to the file and then cut back. */
Status pipeline_put(const char *path, Text *out, size_t before)
{
    TRY(file_write_whole(path, out->data + before, out->used - before));
    out->used = before;
    out->data[before] = '\0';
    return OK;
}

Status pipeline_write(const char *path, const PipelineView *v, Text *out)
{
    size_t before = out->used;
    TRY(text_ends(path, ".svg") ? pipeline_still(out, v) : pipeline_html(out, v));
    return pipeline_put(path, out, before);
}
