/* trace: the writer. A viewer nests the slices of a thread by containment in time, so rounding must
 * never let a child stick out of its parent: start and end (not start and duration) are rounded to
 * whole nanoseconds from one origin, which is monotone. Parents come before children that begin
 * with them. */
#include "trace/trace.h"

#include "base/file.h"
#include "base/lane.h"
#include "base/log.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const CATEGORY[] = { "action", "phase", "op" };

enum { CATEGORIES = sizeof CATEGORY / sizeof CATEGORY[0] };

typedef struct Place {
    int64_t start_ns, end_ns, index;
    int depth;
} Place;

typedef struct Writer {
    File file;
    Text text; /* of one event, then used again */
    Json json;
    bool any;
} Writer;

Status trace_init(Trace *t, Arena *a, int64_t cap)
{
    if (cap < 0) return FAIL(ERR_ARG, "trace: a buffer for %lld events", (long long)cap);
    void *events = NULL;
    TRY(arena_alloc(a, (size_t)cap * sizeof(TraceEvent), &events));
    *t = (Trace){ .events = events, .cap = cap };
    return OK;
}

void trace_event(Trace *t, TraceEvent e)
{
    if (t->used == t->cap) {
        t->dropped++;
        return;
    }
    t->events[t->used++] = e;
}

/* ---- order ---- */

static int compare_places(const void *a, const void *b)
{
    const Place *p = a, *q = b;
    if (p->start_ns != q->start_ns) return p->start_ns < q->start_ns ? -1 : 1;
    if (p->depth != q->depth) return p->depth < q->depth ? -1 : 1;
    return (p->index > q->index) - (p->index < q->index);
}

static Status order_events(const Trace *t, Arena *scratch, Place **out)
{
    void *at = NULL;
    TRY(arena_alloc(scratch, (size_t)t->used * sizeof(Place), &at));
    Place *place = at;
    double origin = t->used > 0 ? t->events[0].start_s : 0;
    for (int64_t i = 1; i < t->used; i++) origin = fmin(origin, t->events[i].start_s);
    for (int64_t i = 0; i < t->used; i++) {
        const TraceEvent *e = &t->events[i];
        double start = e->start_s - origin;
        place[i] = (Place){ .start_ns = llround(start * 1e9),
                            .end_ns = llround((start + e->duration_s) * 1e9),
                            .index = i,
                            .depth = e->depth };
    }
    if (t->used > 0) qsort(place, (size_t)t->used, sizeof *place, compare_places);
    *out = place;
    return OK;
}

/* ---- events ---- */

static Status begin_event(Writer *w, const char *phase, const char *name, int tid)
{
    w->text.used = 0;
    w->json = json_begin(&w->text);
    Json *j = &w->json;
    TRY(json_object(j));
    TRY(json_key(j, "ph"));
    TRY(json_string(j, phase));
    TRY(json_key(j, "pid"));
    TRY(json_int(j, 0));
    TRY(json_key(j, "tid"));
    TRY(json_int(j, tid));
    TRY(json_key(j, "name"));
    return json_string(j, name);
}

/* Closes the event, which stands inside its "args", and writes it on a line of its own. */
static Status end_event(Writer *w)
{
    TRY(json_object_end(&w->json));
    TRY(json_object_end(&w->json));
    const char *separator = w->any ? ",\n" : "\n";
    TRY(file_write(&w->file, separator, w->any ? 2 : 1));
    w->any = true;
    return file_write(&w->file, w->text.data, w->text.used);
}

static Status write_name(Writer *w, const char *what, int tid, const char *name)
{
    TRY(begin_event(w, "M", what, tid));
    TRY(json_key(&w->json, "args"));
    TRY(json_object(&w->json));
    TRY(json_key(&w->json, "name"));
    TRY(json_string(&w->json, name));
    return end_event(w);
}

static Status write_names(Writer *w, const Trace *t)
{
    static const char *const LANE_NAME[LANE_COUNT] = { "compute", "comm" };
    int lanes = 1;
    for (int64_t i = 0; i < t->used; i++) {
        if (t->events[i].lane >= lanes) lanes = t->events[i].lane + 1;
    }
    TRY(write_name(w, "process_name", 0, "switchyard"));
    for (int lane = 0; lane < lanes; lane++) {
        char other[32];
        (void)snprintf(other, sizeof other, "lane %d", lane);
        TRY(write_name(w, "thread_name", lane, lane < LANE_COUNT ? LANE_NAME[lane] : other));
    }
    return OK;
}

static Status write_number(Writer *w, const char *key, double v)
{
    TRY(json_key(&w->json, key));
    return json_double(&w->json, v);
}

static Status write_event(Writer *w, const TraceEvent *e, const Place *at)
{
    int category = e->depth < CATEGORIES ? e->depth : CATEGORIES - 1;
    TRY(begin_event(w, "X", e->name, e->lane));
    TRY(json_key(&w->json, "cat"));
    TRY(json_string(&w->json, CATEGORY[category]));
    TRY(write_number(w, "ts", (double)at->start_ns / 1000));
    TRY(write_number(w, "dur", (double)(at->end_ns - at->start_ns) / 1000));
    TRY(json_key(&w->json, "args"));
    TRY(json_object(&w->json));
    TRY(write_number(w, "step", (double)e->step));
    if (e->layer >= 0) TRY(write_number(w, "layer", e->layer));
    if (e->flops > 0) TRY(write_number(w, "flops", e->flops));
    if (e->bytes > 0) TRY(write_number(w, "bytes", e->bytes));
    return end_event(w);
}

static Status write_all(Writer *w, const Trace *t, const Place *place)
{
    TRY(file_printf(&w->file,
                    "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_events\":%lld},"
                    "\"traceEvents\":[",
                    (long long)t->dropped));
    TRY(write_names(w, t));
    for (int64_t i = 0; i < t->used; i++) {
        TRY(write_event(w, &t->events[place[i].index], &place[i]));
    }
    TRY(file_printf(&w->file, "\n]}\n"));
    return file_commit(&w->file);
}

static Status write_in(const Trace *t, const char *path, Arena *scratch)
{
    Writer w = { 0 };
    Place *place = NULL;
    TRY(order_events(t, scratch, &place));
    TRY(file_create_temp(&w.file, path, scratch));
    Status s = text_init(&w.text, scratch);
    if (s == OK) s = write_all(&w, t, place);
    file_close(&w.file);
    return s;
}

Status trace_write(const Trace *t, const char *path, Arena *scratch)
{
    if (t->dropped > 0) {
        log_warn("trace %s: the buffer of %lld events was full, %lld later ones are missing", path,
                 (long long)t->cap, (long long)t->dropped);
    }
    ArenaMark mark = arena_mark(scratch);
    Status s = write_in(t, path, scratch);
    arena_release(scratch, mark);
    return s;
}
