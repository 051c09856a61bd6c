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

const char *const trace_depth_name[TRACE_DEPTHS] = { "action", "phase", "op" };

const char *trace_lane_name(char out[32], int lane)
{
    static const char *const NAME[LANE_COUNT] = { "compute", "comm" };
    if (lane < LANE_COUNT) return NAME[lane];
    (void)snprintf(out, 32, "lane %d", lane);
    return out;
}

typedef struct Place {
    int64_t start_ns, end_ns, index;
    int depth;
} Place;

typedef struct Writer {
    File file;
    Text text; /* of one event, then used again */
} Writer;

Status trace_init(Trace *t, Arena *a, int64_t cap)
{
    if (cap < 0) return FAIL(ERR_ARG, "trace: a buffer for %lld events", (long long)cap);
    *t = (Trace){ .cap = cap };
    return ARENA_NEW(a, cap, &t->events);
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
    Place *place = NULL;
    TRY(ARENA_NEW(scratch, t->used, &place));
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

static Status write_text(Writer *w)
{
    TRY(file_write(&w->file, w->text.data, w->text.used));
    w->text.used = 0;
    return OK;
}

static Status write_names(Writer *w, const Trace *t)
{
    int lanes = 1;
    for (int64_t i = 0; i < t->used; i++) {
        if (t->events[i].lane >= lanes) lanes = t->events[i].lane + 1;
    }
    TRY(text_printf(&w->text, "\n{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"process_name\","
                              "\"args\":{\"name\":\"switchyard\"}}"));
    for (int lane = 0; lane < lanes; lane++) {
        char other[32];
        TRY(text_json(&w->text,
                      ",\n{\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"name\":\"thread_name\","
                      "\"args\":{\"name\":%s}}",
                      lane, trace_lane_name(other, lane)));
    }
    return write_text(w);
}

static Status write_event(Writer *w, const TraceEvent *e, const Place *at)
{
    int depth = e->depth < TRACE_DEPTHS ? e->depth : TRACE_DEPTHS - 1;
    TRY(text_json(&w->text,
                  ",\n{\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"name\":%s,\"cat\":%s,\"ts\":%g,"
                  "\"dur\":%g,\"args\":{\"step\":%lld",
                  e->lane, e->name, trace_depth_name[depth], (double)at->start_ns / 1000,
                  (double)(at->end_ns - at->start_ns) / 1000, (long long)e->step));
    if (e->layer >= 0) TRY(text_json(&w->text, ",\"layer\":%d", e->layer));
    if (e->flops > 0) TRY(text_json(&w->text, ",\"flops\":%g", e->flops));
    if (e->bytes > 0) TRY(text_json(&w->text, ",\"bytes\":%g", e->bytes));
    TRY(text_append(&w->text, "}}", 2));
    return write_text(w);
}

static Status write_all(Writer *w, const Trace *t, const Place *place)
{
    TRY(file_printf(&w->file,
                    "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_events\":%lld},"
                    "\"traceEvents\":[",
                    (long long)t->dropped));
    TRY(write_names(w, t));
    for (int64_t i = 0; i < t->used; i++)
        TRY(write_event(w, &t->events[place[i].index], &place[i]));
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
    if (t->dropped > 0)
        log_warn("trace %s: the buffer of %lld events was full, %lld later ones are missing", path,
                 (long long)t->cap, (long long)t->dropped);
    ArenaMark mark = arena_mark(scratch);
    Status s = write_in(t, path, scratch);
    arena_release(scratch, mark);
    return s;
}
