/* stats: reads the events of a trace file, and sums them by name. */
#include "trace/stats.h"

#include "base/file.h"
#include "base/scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static int depth_of(const char *category)
{
    int depth = 0;
    while (depth < TRACE_DEPTHS - 1 && strcmp(category, trace_depth_name[depth]) != 0) depth++;
    return depth;
}

typedef struct Event { /* as it stands in the file */
    const char *phase, *name, *category;
    char *args;
    int64_t lane, step, layer;
    double ts, dur, flops, bytes;
} Event;

#define AT(member) offsetof(Event, member)

static const ScanField EVENT[] = {
    { "ph", SCAN_TEXT, AT(phase) },     { "name", SCAN_TEXT, AT(name) },
    { "cat", SCAN_TEXT, AT(category) }, { "tid", SCAN_WHOLE, AT(lane) },
    { "ts", SCAN_NUMBER, AT(ts) },      { "dur", SCAN_NUMBER, AT(dur) },
    { "args", SCAN_RAW, AT(args) },
};

static const ScanField ARGS[] = {
    { "step", SCAN_WHOLE, AT(step) },
    { "layer", SCAN_WHOLE, AT(layer) },
    { "flops", SCAN_NUMBER, AT(flops) },
    { "bytes", SCAN_NUMBER, AT(bytes) },
};

enum { EVENTS = sizeof EVENT / sizeof *EVENT, ARGUMENTS = sizeof ARGS / sizeof *ARGS };

/* Reads an event. False if it is no complete event ("X"): metadata have other arguments. */
static bool read_event(Scan *s, TraceEvent *out)
{
    Event e = { .phase = "", .name = "", .layer = -1, .ts = (double)NAN, .dur = (double)NAN };
    scan_fields(s, EVENT, EVENTS, &e);
    if (strcmp(e.phase, "X") != 0 || !isfinite(e.ts) || !isfinite(e.dur)) return false;
    Scan args = scan_begin(e.args);
    if (e.args != NULL && !s->bad) scan_fields(&args, ARGS, ARGUMENTS, &e);
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

static void read_events(Scan *s, Trace *t)
{
    scan_array(s);
    while (scan_item(s)) {
        TraceEvent e;
        if (read_event(s, &e) && !s->bad) trace_event(t, e);
    }
}

Status trace_read(const char *path, Arena *a, Trace *out)
{
    char *text = NULL;
    size_t bytes = 0;
    Trace t = { 0 };
    TRY(file_read_all(path, a, &text, &bytes));
    int64_t braces = 0; /* at least one an event */
    for (size_t i = 0; i < bytes; i++) braces += text[i] == '{';
    TRY(trace_init(&t, a, braces));
    static const ScanField DROPPED = { "dropped_events", SCAN_WHOLE, 0 };
    Scan s = scan_begin(text);
    int64_t dropped = 0;
    scan_object(&s);
    for (char *key = scan_key(&s); key != NULL; key = scan_key(&s)) {
        if (strcmp(key, "traceEvents") == 0) {
            read_events(&s, &t);
        } else if (strcmp(key, "otherData") == 0) {
            scan_fields(&s, &DROPPED, 1, &dropped);
        } else {
            scan_skip(&s);
        }
    }
    if (!scan_end(&s))
        return FAIL(ERR_FORMAT, "%s is not a trace: no valid JSON at byte %lld of %zu", path,
                    (long long)(s.at - text), bytes);
    t.dropped = dropped;
    *out = t;
    return OK;
}

/* ---- totals ---- */

static int compare_names(const void *a, const void *b)
{
    const TraceEvent *p = *(const TraceEvent *const *)a, *q = *(const TraceEvent *const *)b;
    if (p->depth != q->depth) return p->depth < q->depth ? -1 : 1;
    int order = strcmp(p->name, q->name);
    if (order != 0) return order;
    return (p > q) - (p < q); /* one order of events gives one rounding of the sums */
}

static int compare_totals(const void *a, const void *b)
{
    const TraceTotal *p = a, *q = b;
    if (p->depth != q->depth) return p->depth < q->depth ? -1 : 1;
    if (p->seconds != q->seconds) return p->seconds > q->seconds ? -1 : 1;
    return strcmp(p->name, q->name);
}

static Status sorted_by_name(const Trace *t, Arena *a, const TraceEvent ***out)
{
    const TraceEvent **event = NULL;
    TRY(ARENA_NEW(a, t->used, &event));
    for (int64_t i = 0; i < t->used; i++) event[i] = &t->events[i];
    if (t->used > 0) qsort(event, (size_t)t->used, sizeof *event, compare_names);
    *out = event;
    return OK;
}

Status trace_totals(const Trace *t, Arena *a, TraceTotal **out, int *out_n)
{
    const TraceEvent **event = NULL;
    TRY(sorted_by_name(t, a, &event));
    TraceTotal *total = NULL;
    TRY(ARENA_NEW(a, t->used, &total));
    int n = 0;
    for (int64_t i = 0; i < t->used; i++) {
        const TraceEvent *e = event[i];
        bool same =
            n > 0 && total[n - 1].depth == e->depth && strcmp(total[n - 1].name, e->name) == 0;
        if (!same) total[n++] = (TraceTotal){ .name = e->name, .depth = e->depth };
        TraceTotal *sum = &total[n - 1];
        sum->calls++;
        sum->seconds += e->duration_s;
        sum->flops += e->flops;
        sum->bytes += e->bytes;
    }
    if (n > 0) qsort(total, (size_t)n, sizeof *total, compare_totals);
    *out = total;
    *out_n = n;
    return OK;
}
