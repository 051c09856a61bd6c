/* report_trace: trace.json read back: the last traced step as a timeline, and where the time of all
 * traced steps went. It draws one rank's steps; `trace report` has all ranks. */
#include "base/file.h"
#include "base/lane.h"
#include "base/scan.h"
#include "trace/record.h"
#include "viz/report_parts.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
    DRAWN_MOST = 2500, /* 230 bytes each in the page */
    LANES_MOST = 8,
    OP_DEPTH = TRACE_DEPTHS - 1,
    TABLE_ROWS = 20,
    ROW_HEIGHT = 22,
    LANE_GAP = 14,
    LEFT = 120,
    AXIS_HEIGHT = 34,
};

static const char *const depth_name[TRACE_DEPTHS] = { "action", "phase", "op" };

/* ---- reading ---- */

static int depth_of(const char *category)
{
    int depth = 0;
    while (depth < TRACE_DEPTHS - 1 && strcmp(category, depth_name[depth]) != 0) depth++;
    return depth;
}

typedef struct FileEvent { /* as it stands in the file */
    const char *phase, *name, *category;
    char *args;
    int64_t lane, step, layer;
    double ts, dur, flops, bytes;
} FileEvent;

#define AT(member) offsetof(FileEvent, member)

static const ScanField event_fields[] = {
    { "ph", SCAN_TEXT, AT(phase) },     { "name", SCAN_TEXT, AT(name) },
    { "cat", SCAN_TEXT, AT(category) }, { "tid", SCAN_WHOLE, AT(lane) },
    { "ts", SCAN_NUMBER, AT(ts) },      { "dur", SCAN_NUMBER, AT(dur) },
    { "args", SCAN_RAW, AT(args) },
};

static const ScanField argument_fields[] = {
    { "step", SCAN_WHOLE, AT(step) },
    { "layer", SCAN_WHOLE, AT(layer) },
    { "flops", SCAN_NUMBER, AT(flops) },
    { "bytes", SCAN_NUMBER, AT(bytes) },
};

#define COUNT_OF(array) (int)(sizeof(array) / sizeof *(array))

/* Reads an event. False if it is no complete event ("X"): metadata have other arguments. */
static bool read_event(Scan *s, TraceEvent *out)
{
    FileEvent e = { .phase = "", .name = "", .layer = -1, .ts = (double)NAN, .dur = (double)NAN };
    scan_fields(s, event_fields, COUNT_OF(event_fields), &e);
    if (strcmp(e.phase, "X") != 0 || !isfinite(e.ts) || !isfinite(e.dur)) return false;
    Scan args = scan_begin(e.args);
    if (e.args != NULL && !s->bad)
        scan_fields(&args, argument_fields, COUNT_OF(argument_fields), &e);
    s->bad |= args.bad;
    *out = (TraceEvent){ .name = e.name,
                         .start_s = e.ts * 1e-6,
                         .duration_s = e.dur * 1e-6,
                         .flops = e.flops,
                         .bytes = e.bytes,
                         .step = e.step,
                         .lane = e.lane == (int)e.lane ? (int)e.lane : 0,
                         .layer = e.layer == (int)e.layer ? (int)e.layer : -1,
                         .depth = e.category == NULL ? 0 : depth_of(e.category) };
    return true;
}

static void read_events(Scan *s, TraceView *v)
{
    scan_array(s);
    while (scan_item(s)) v->events += read_event(s, &v->event[v->events]) && !s->bad;
}

static Status read_trace(const char *path, Arena *a, TraceView *v)
{
    static const ScanField dropped = { "dropped_events", SCAN_WHOLE, 0 };
    char *text = NULL;
    size_t bytes = 0;
    TRY(file_read_all(path, a, &text, &bytes));
    int64_t braces = 1; /* at least one an event */
    for (size_t i = 0; i < bytes; i++) braces += text[i] == '{';
    TRY(ARENA_NEW(a, braces, &v->event));
    Scan s = scan_begin(text);
    scan_object(&s);
    for (char *key = scan_key(&s); key != NULL; key = scan_key(&s)) {
        if (strcmp(key, "traceEvents") == 0)
            read_events(&s, v);
        else if (strcmp(key, "otherData") == 0)
            scan_fields(&s, &dropped, 1, &v->dropped);
        else
            scan_skip(&s);
    }
    if (scan_end(&s)) return OK;
    return FAIL(ERR_FORMAT, "%s is not a trace: no valid JSON at byte %lld of %zu", path,
                (long long)(s.at - text), bytes);
}

/* ---- totals ---- */

static int by_name(const void *a, const void *b)
{
    const TraceEvent *p = *(const TraceEvent *const *)a, *q = *(const TraceEvent *const *)b;
    if (p->depth != q->depth) return p->depth < q->depth ? -1 : 1;
    int order = strcmp(p->name, q->name);
    if (order != 0) return order;
    return (p > q) - (p < q); /* one order of events gives one rounding of the sums */
}

static int by_time(const void *a, const void *b)
{
    const TraceTotal *p = a, *q = b;
    if (p->depth != q->depth) return p->depth < q->depth ? -1 : 1;
    if (p->seconds != q->seconds) return p->seconds > q->seconds ? -1 : 1;
    return strcmp(p->name, q->name);
}

/* One total for each name at each depth: by depth, the longest first. */
static Status add_totals(TraceView *v, Arena *a)
{
    const TraceEvent **event = NULL;
    TRY(ARENA_NEW(a, v->events, &event));
    TRY(ARENA_NEW(a, v->events, &v->total));
    for (int64_t i = 0; i < v->events; i++) event[i] = &v->event[i];
    if (v->events > 0) qsort(event, (size_t)v->events, sizeof *event, by_name);
    for (int64_t i = 0; i < v->events; i++) {
        const TraceEvent *e = event[i];
        TraceTotal *sum = &v->total[v->totals - 1];
        bool same = v->totals > 0 && sum->depth == e->depth && strcmp(sum->name, e->name) == 0;
        if (!same) *(sum = &v->total[v->totals++]) = (TraceTotal){ e->name, e->depth, 0, 0, 0, 0 };
        sum->calls++;
        sum->seconds += e->duration_s;
        sum->flops += e->flops;
        sum->bytes += e->bytes;
    }
    if (v->totals > 0) qsort(v->total, (size_t)v->totals, sizeof *v->total, by_time);
    return OK;
}

/* ---- made ready ---- */

static bool is_drawn(const TraceView *v, const TraceEvent *e)
{
    bool fits = e->lane >= 0 && e->lane < LANES_MOST && e->depth >= 0 && e->depth < TRACE_DEPTHS;
    return fits && e->step == v->step;
}

static int longest_first(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Finds the size of the step's timeline, and the least duration with which at most DRAWN_MOST
 * events are drawn. */
static Status measure_step(TraceView *v, Arena *a)
{
    double *duration = NULL, end_s = 0;
    int64_t n = 0;
    TRY(ARENA_NEW(a, v->events, &duration));
    for (int64_t i = 0; i < v->events; i++) {
        const TraceEvent *e = &v->event[i];
        if (!is_drawn(v, e)) continue;
        v->start_s = n == 0 ? e->start_s : fmin(v->start_s, e->start_s);
        duration[n++] = e->duration_s;
        end_s = fmax(end_s, e->start_s + e->duration_s);
        if (e->lane >= v->lanes) v->lanes = e->lane + 1;
        if (e->depth >= v->rows) v->rows = e->depth + 1;
    }
    qsort(duration, (size_t)n, sizeof *duration, longest_first);
    v->duration_s = end_s - v->start_s;
    v->least_s = n > DRAWN_MOST ? duration[DRAWN_MOST - 1] : 0;
    v->hidden = n > DRAWN_MOST ? n - DRAWN_MOST : 0;
    return OK;
}

static void count_steps(TraceView *v)
{
    v->step = -1; /* steps follow one another in a trace */
    for (int64_t i = 0; i < v->events; i++) {
        const TraceEvent *e = &v->event[i];
        if (e->depth == 0) v->action_s += e->duration_s;
        v->steps += e->step != v->step;
        v->step = e->step;
    }
}

Status trace_view_load(TraceView *v, const char *path, Arena *a)
{
    *v = (TraceView){ .present = file_exists(path) };
    if (!v->present) return OK;
    Status s = read_trace(path, a, v);
    if (s == ERR_FORMAT) {
        status_sentence(v->problem, sizeof v->problem);
        status_clear();
        return OK;
    }
    TRY(s);
    count_steps(v);
    TRY(add_totals(v, a));
    return measure_step(v, a);
}

/* ---- the timeline ---- */

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

static double lane_top(const TraceView *v, int lane)
{
    return lane * (v->rows * ROW_HEIGHT + LANE_GAP);
}

static Status lane_names(Text *out, const TraceView *v)
{
    for (int lane = 0; lane < v->lanes; lane++) {
        double y = lane_top(v, lane);
        char other[RECORD_LANE_BYTES];
        TRY(text_printf(out, "<text x=\"0\" y=\"%.0f\">%s</text>\n", y + 15,
                        record_lane_name(other, lane)));
        for (int row = 0; row < v->rows; row++) {
            TRY(text_printf(out,
                            "<path class=\"track\" d=\"M%d %.0fH%d\"/><text class=\"end dim\" "
                            "x=\"%d\" y=\"%.0f\">%s</text>",
                            LEFT, y + ROW_HEIGHT, REPORT_FULL, LEFT - 8, y + 15, depth_name[row]));
            y += ROW_HEIGHT;
        }
    }
    return OK;
}

/* The text beside the pointer. */
static Status event_title(Text *out, const TraceEvent *e)
{
    char text[32];
    bool timed = e->duration_s > 0;
    TRY(text_markup(out, "<title>%.80s", e->name));
    if (e->layer >= 0) TRY(text_printf(out, ", layer %d", e->layer));
    TRY(text_printf(out, ": %s", svg_value_text(text, e->duration_s, SVG_SECONDS)));
    if (e->flops > 0 && timed)
        TRY(text_printf(out, ", %sFLOP/s", text_si(text, e->flops / e->duration_s)));
    if (e->bytes > 0 && timed)
        TRY(text_printf(out, ", at least %sB/s", text_si(text, e->bytes / e->duration_s)));
    return text_printf(out, "</title>");
}

static Status put_event(Text *out, const TraceView *v, const TraceEvent *e)
{
    double scale = (REPORT_FULL - LEFT) / v->duration_s, width = e->duration_s * scale;
    double x = LEFT + (e->start_s - v->start_s) * scale;
    double y = lane_top(v, e->lane) + e->depth * ROW_HEIGHT;
    TRY(text_printf(out, "<rect class=\"f%c\" x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\">",
                    svg_color(color_of(v, e->depth, e->name)), x, y + 1,
                    fmax(width - (width > 4 ? 0.6 : 0), 0.3), ROW_HEIGHT - 2));
    TRY(event_title(out, e));
    TRY(text_printf(out, "</rect>"));
    if (width < SVG_CHAR * ((double)strlen(e->name) + 1)) return text_printf(out, "\n");
    return text_markup(out, "<text class=\"over\" x=\"%.1f\" y=\"%.0f\">%s</text>\n", x + 4, y + 15,
                       e->name);
}

static Status put_timeline(Text *out, const TraceView *v)
{
    double bottom = lane_top(v, v->lanes) - LANE_GAP + 4;
    int64_t drawn = 0;
    TRY(svg_open(out, "timeline", REPORT_FULL, bottom + AXIS_HEIGHT, "Timeline of one step"));
    TRY(text_printf(out, ">\n"));
    if (v->duration_s > 0) TRY(svg_time_axis(out, v->duration_s, LEFT, REPORT_FULL, 0, bottom + 4));
    TRY(lane_names(out, v));
    for (int64_t i = 0; i < v->events && drawn < DRAWN_MOST && v->duration_s > 0; i++) {
        const TraceEvent *e = &v->event[i];
        if (!is_drawn(v, e) || e->duration_s < v->least_s) continue;
        TRY(put_event(out, v, e));
        drawn++;
    }
    return text_printf(out, "</svg>\n");
}

/* ---- the tables ---- */

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
                    depth_name[depth],
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

Status trace_view_write(Text *out, const Report *r)
{
    const TraceView *v = &r->trace;
    if (v->problem[0] != '\0') return text_markup(out, "<p class=\"note\">%s</p>\n", v->problem);
    if (v->events == 0) return part_note(out, "trace.json holds no events.");
    TRY(notes(out, v));
    TRY(text_printf(out, "<div class=\"wide\">\n"));
    TRY(put_timeline(out, v));
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
