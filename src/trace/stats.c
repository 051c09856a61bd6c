#include "trace/stats.h"

#include "base/file.h"
#include "trace/scan.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

/* A cast of a double that does not fit is undefined. */
static int64_t whole(double v, int64_t otherwise)
{
    return fabs(v) <= 9007199254740992.0 ? (int64_t)v : otherwise;
}

static int small(double v, int otherwise)
{
    int64_t n = whole(v, otherwise);
    return n >= INT_MIN && n <= INT_MAX ? (int)n : otherwise;
}

static int depth_of(const char *category)
{
    if (strcmp(category, "action") == 0) return 0;
    return strcmp(category, "phase") == 0 ? 1 : 2;
}

static void read_args(Scan *s, TraceEvent *e)
{
    scan_object(s);
    for (char *key = scan_key(s); key != NULL; key = scan_key(s)) {
        if (strcmp(key, "step") == 0) {
            e->step = whole(scan_number(s), 0);
        } else if (strcmp(key, "layer") == 0) {
            e->layer = small(scan_number(s), -1);
        } else if (strcmp(key, "flops") == 0) {
            e->flops = scan_number(s);
        } else if (strcmp(key, "bytes") == 0) {
            e->bytes = scan_number(s);
        } else {
            scan_skip(s);
        }
    }
}

/* False for an event that is no complete one. */
static bool read_event(Scan *s, TraceEvent *out)
{
    TraceEvent e = { .name = "", .layer = -1, .start_s = (double)NAN, .duration_s = (double)NAN };
    bool complete = false;
    scan_object(s);
    for (char *key = scan_key(s); key != NULL; key = scan_key(s)) {
        if (strcmp(key, "ph") == 0) {
            complete = strcmp(scan_string(s), "X") == 0;
        } else if (strcmp(key, "name") == 0) {
            e.name = scan_string(s);
        } else if (strcmp(key, "cat") == 0) {
            e.depth = depth_of(scan_string(s));
        } else if (strcmp(key, "tid") == 0) {
            e.lane = small(scan_number(s), 0);
        } else if (strcmp(key, "ts") == 0) {
            e.start_s = scan_number(s) * 1e-6;
        } else if (strcmp(key, "dur") == 0) {
            e.duration_s = scan_number(s) * 1e-6;
        } else if (strcmp(key, "args") == 0 && complete) {
            read_args(s, &e); /* those of metadata are other things */
        } else {
            scan_skip(s);
        }
    }
    *out = e;
    return complete && isfinite(e.start_s) && isfinite(e.duration_s);
}

static void read_events(Scan *s, Trace *t)
{
    scan_array(s);
    while (scan_item(s)) {
        TraceEvent e;
        if (read_event(s, &e) && !s->bad) trace_event(t, e);
    }
}

static void read_other(Scan *s, int64_t *dropped)
{
    scan_object(s);
    for (char *key = scan_key(s); key != NULL; key = scan_key(s)) {
        if (strcmp(key, "dropped_events") == 0) {
            *dropped = whole(scan_number(s), 0);
        } else {
            scan_skip(s);
        }
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
    Scan s = scan_begin(text);
    int64_t dropped = 0;
    scan_object(&s);
    for (char *key = scan_key(&s); key != NULL; key = scan_key(&s)) {
        if (strcmp(key, "traceEvents") == 0) {
            read_events(&s, &t);
        } else if (strcmp(key, "otherData") == 0) {
            read_other(&s, &dropped);
        } else {
            scan_skip(&s);
        }
    }
    if (!scan_end(&s)) {
        return FAIL(ERR_FORMAT, "%s is not a trace: no valid JSON at byte %lld of %zu", path,
                    (long long)(s.at - text), bytes);
    }
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
    return (p > q) - (p < q); /* one order, so one rounding of the sums */
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
    void *at = NULL;
    TRY(arena_alloc(a, (size_t)t->used * sizeof(TraceEvent *), &at));
    const TraceEvent **event = at;
    for (int64_t i = 0; i < t->used; i++) event[i] = &t->events[i];
    if (t->used > 0) qsort(at, (size_t)t->used, sizeof *event, compare_names);
    *out = event;
    return OK;
}

Status trace_totals(const Trace *t, Arena *a, TraceTotal **out, int *out_n)
{
    const TraceEvent **event = NULL;
    void *at = NULL;
    TRY(sorted_by_name(t, a, &event));
    TRY(arena_alloc(a, (size_t)t->used * sizeof(TraceTotal), &at));
    TraceTotal *total = at;
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
