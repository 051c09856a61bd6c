/* report_trace: the last traced step as a timeline, and where the time of all traced steps went. */
#include "base/file.h"
#include "viz/report_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLICES_MOST = 2500, /* 230 bytes each in the page */
    LANES_MOST = 8,
    ROWS_MOST = 3, /* action, phase, op */
    OP_DEPTH = 2,
    TABLE_ROWS = 20,
    HOVER_BYTES = 256,
};

static const char *const ROW_NAME[ROWS_MOST] = { "action", "phase", "op" };
static const char *const LANE_NAME[LANES_MOST] = { "compute", "comm",   "lane 2", "lane 3",
                                                   "lane 4",  "lane 5", "lane 6", "lane 7" };

/* ---- made ready ---- */

static bool is_drawn(const TraceView *v, const TraceEvent *e)
{
    bool fits = e->lane >= 0 && e->lane < LANES_MOST && e->depth >= 0 && e->depth < ROWS_MOST;
    return fits && e->step == v->step;
}

static int compare_down(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* The duration from which on a slice is drawn, so that SLICES_MOST are. */
static Status least_duration(const TraceView *v, const Trace *t, Arena *a, double *out)
{
    double *duration = NULL;
    TRY(ARENA_NEW(a, t->used, &duration));
    size_t n = 0;
    for (int64_t i = 0; i < t->used; i++) {
        if (is_drawn(v, &t->events[i])) duration[n++] = t->events[i].duration_s;
    }
    qsort(duration, n, sizeof *duration, compare_down);
    *out = n > SLICES_MOST ? duration[SLICES_MOST - 1] : 0;
    return OK;
}

/* Names that take the most time of their depth have the series colours, the others are grey. */
static int color_of(const TraceView *v, int depth, const char *name)
{
    int rank = 0;
    for (int i = 0; i < v->totals; i++) {
        if (v->total[i].depth != depth) continue;
        if (strcmp(v->total[i].name, name) == 0) break;
        rank++;
    }
    return rank < SVG_COLORS ? rank : -1;
}

static Status hover_text(const TraceEvent *e, Arena *a, const char **out)
{
    char time[32], layer[32] = "", rate[32], flops[64] = "", bytes[64] = "", text[HOVER_BYTES];
    if (e->layer >= 0) (void)snprintf(layer, sizeof layer, ", layer %d", e->layer);
    if (e->flops > 0 && e->duration_s > 0)
        (void)snprintf(flops, sizeof flops, ", %sFLOP/s", text_si(rate, e->flops / e->duration_s));
    if (e->bytes > 0 && e->duration_s > 0)
        (void)snprintf(bytes, sizeof bytes, ", at least %sB/s",
                       text_si(rate, e->bytes / e->duration_s));
    int n = snprintf(text, sizeof text, "%.80s%s: %s%s%s", e->name, layer,
                     svg_value_text(time, e->duration_s, SVG_SECONDS), flops, bytes);
    return arena_text(a, text, (size_t)n, out);
}

static Status add_slice(TraceView *v, const TraceEvent *e, double origin, SvgSlice *s, Arena *a)
{
    *s = (SvgSlice){ .name = e->name,
                     .start_s = e->start_s - origin,
                     .duration_s = e->duration_s,
                     .lane = e->lane,
                     .row = e->depth,
                     .color = color_of(v, e->depth, e->name) };
    v->timeline.duration_s = fmax(v->timeline.duration_s, s->start_s + s->duration_s);
    if (e->lane >= v->timeline.lanes) v->timeline.lanes = e->lane + 1;
    if (e->depth >= v->timeline.rows) v->timeline.rows = e->depth + 1;
    return hover_text(e, a, &s->hover);
}

/* Events come in order of time, so the first one of the step is its origin. */
static Status make_slices(TraceView *v, const Trace *t, Arena *a)
{
    double least = 0, origin = (double)NAN;
    TRY(least_duration(v, t, a, &least));
    SvgSlice *slice = NULL;
    TRY(ARENA_NEW(a, SLICES_MOST, &slice));
    int64_t n = 0;
    for (int64_t i = 0; i < t->used; i++) {
        const TraceEvent *e = &t->events[i];
        if (!is_drawn(v, e)) continue;
        if (isnan(origin)) origin = e->start_s;
        if (e->duration_s < least || n == SLICES_MOST) {
            v->hidden++;
            continue;
        }
        TRY(add_slice(v, e, origin, &slice[n++], a));
    }
    v->timeline.slice = slice;
    v->timeline.slices = n;
    return OK;
}

static void count_steps(TraceView *v, const Trace *t)
{
    int64_t last = -1; /* steps follow one another in a trace */
    for (int64_t i = 0; i < t->used; i++) {
        const TraceEvent *e = &t->events[i];
        if (e->depth == 0) v->action_s += e->duration_s;
        if (e->step == last) continue;
        last = e->step;
        v->steps++;
    }
    v->step = last;
    v->events = t->used;
    v->dropped = t->dropped;
}

static Status make_view(TraceView *v, const Trace *t, Arena *a)
{
    TraceTotal *total = NULL;
    count_steps(v, t);
    TRY(trace_totals(t, a, &total, &v->totals));
    v->total = total;
    v->timeline = (SvgTimeline){
        .title = "Timeline of one step", .lane = LANE_NAME, .row = ROW_NAME, .width = REPORT_FULL
    };
    return make_slices(v, t, a);
}

Status trace_view_load(TraceView *v, const char *path, Arena *a)
{
    Trace t = { 0 };
    *v = (TraceView){ .present = file_exists(path) };
    if (!v->present) return OK;
    Status s = trace_read(path, a, &t);
    if (s == ERR_FORMAT) {
        status_sentence(v->problem, sizeof v->problem);
        status_clear();
        return OK;
    }
    TRY(s);
    return make_view(v, &t, a);
}

/* ---- written ---- */

static Status rate_cell(Text *out, double amount, double seconds)
{
    if (!(amount > 0) || !(seconds > 0)) return text_printf(out, "<td>-</td>");
    return text_printf(out, "<td>%.1f</td>", amount / seconds * 1e-9);
}

static Status time_cells(Text *out, const TraceView *v, int depth, double seconds)
{
    double share = v->action_s > 0 ? seconds / v->action_s : 0;
    TRY(text_printf(out, "<td>%.3f</td><td>%.1f %%</td>", 1e3 * seconds / (double)v->steps,
                    100 * share));
    if (depth != OP_DEPTH) return OK;
    return text_printf(out, "<td><span class=\"share\"><i style=\"width:%.1f%%\"></i></span></td>",
                       100 * fmin(fmax(share, 0), 1));
}

/* Only ops have rates: phases and actions are made of ops. */
static Status total_row(Text *out, const TraceView *v, const TraceTotal *t)
{
    int color = color_of(v, t->depth, t->name);
    TRY(text_markup(out,
                    "<tr><td><span class=\"swatch\" "
                    "style=\"background:var(--c%c)\"></span>%s</td><td>%.4g</td>",
                    svg_color(color), t->name, (double)t->calls / (double)v->steps));
    TRY(time_cells(out, v, t->depth, t->seconds));
    if (t->depth == OP_DEPTH) TRY(rate_cell(out, t->flops, t->seconds));
    if (t->depth == OP_DEPTH) TRY(rate_cell(out, t->bytes, t->seconds));
    return text_printf(out, "</tr>\n");
}

static Status rest_row(Text *out, const TraceView *v, int depth, const char *name, double seconds)
{
    TRY(text_printf(out, "<tr><td>%s</td><td></td>", name));
    TRY(time_cells(out, v, depth, seconds));
    return text_printf(out, "</tr>\n");
}

static Status totals_table(Text *out, const TraceView *v, int depth)
{
    double all = 0, rest = 0;
    int rows = 0;
    TRY(text_printf(out,
                    "<table><thead><tr><th>%s</th><th>calls a step</th><th>ms a step</th>"
                    "<th>share</th>%s</tr></thead><tbody>\n",
                    ROW_NAME[depth],
                    depth == OP_DEPTH ? "<th></th><th>GFLOP/s</th><th>GB/s</th>" : ""));
    for (int i = 0; i < v->totals; i++) {
        const TraceTotal *t = &v->total[i];
        if (t->depth != depth) continue;
        all += t->seconds;
        if (rows++ < TABLE_ROWS) {
            TRY(total_row(out, v, t));
        } else {
            rest += t->seconds;
        }
    }
    TRY(text_printf(out, "</tbody><tfoot>"));
    if (rest > 0) TRY(rest_row(out, v, depth, "all others", rest));
    if (depth > 0 && v->action_s > 0)
        TRY(rest_row(out, v, depth, "outside of these", v->action_s - all));
    return text_printf(out, "</tfoot></table>\n");
}

static bool has_depth(const TraceView *v, int depth)
{
    for (int i = 0; i < v->totals; i++) {
        if (v->total[i].depth == depth) return true;
    }
    return false;
}

static Status notes(Text *out, const TraceView *v)
{
    TRY(text_printf(out, "<p class=\"note\">Step %lld. ", (long long)v->step));
    if (v->hidden > 0)
        TRY(text_printf(out, "The %lld shortest events are not drawn. ", (long long)v->hidden));
    if (v->dropped > 0)
        TRY(text_printf(out, "%lld events did not fit the trace's buffer and are missing. ",
                        (long long)v->dropped));
    return text_printf(out,
                       "All %lld events are in <a href=\"trace.json\">trace.json</a>, which "
                       "Perfetto opens.</p>\n",
                       (long long)v->events);
}

static bool has_trace(const Report *r) { return r->trace.present; }

static Status write_trace(Text *out, const Report *r)
{
    const TraceView *v = &r->trace;
    if (v->problem[0] != '\0') return text_markup(out, "<p class=\"note\">%s</p>\n", v->problem);
    if (v->events == 0) return part_note(out, "trace.json holds no events.");
    TRY(notes(out, v));
    TRY(text_printf(out, "<div class=\"wide\">\n"));
    TRY(svg_timeline(out, &v->timeline));
    TRY(text_printf(out, "</div>\n<h3>Where the time goes: mean of %lld traced step%s</h3>\n",
                    (long long)v->steps, v->steps == 1 ? "" : "s"));
    TRY(part_note(out, "GB/s counts the fewest bytes that an op must move."));
    TRY(text_printf(out, "<div class=\"tables wide\">\n"));
    if (has_depth(v, OP_DEPTH)) TRY(totals_table(out, v, OP_DEPTH));
    TRY(text_printf(out, "<div>\n"));
    for (int depth = 0; depth < OP_DEPTH; depth++) {
        if (has_depth(v, depth)) TRY(totals_table(out, v, depth));
    }
    return text_printf(out, "</div></div>\n");
}

const Section section_timeline = { "timeline", "Timeline of a step", has_trace, write_trace };
