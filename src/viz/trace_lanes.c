/*
 * trace_lanes: the lanes of a page of traces: a rank's device streams, its steps, calls of the
 * host, and ops of our own recordings. They are boxes in JSON, which page/trace.js draws. Annotated
 * ranges on the device have no lane, since the kernels inside them have one.
 *
 * A trace may have millions of events. If there are more boxes than allowed, short neighbouring
 * events share a box; the limit for "short" doubles until the boxes fit.
 */
#include "analyze/recording.h"
#include "base/lane.h"
#include "viz/trace_page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANE_STEPS, LANE_HOST, LANE_DEVICE, LANE_OPS };
/* Kinds of boxes: indices into the colours of page/trace.js. */
enum { BOX_OF_BUCKET, BOX_HOST = BUCKETS, BOX_STEP, BOX_MANY };

typedef struct LaneEvent {
    int64_t start, end; /* ns from the page's origin */
    uint32_t lane, event;
} LaneEvent;

typedef struct Lanes {
    LaneEvent *at;
    int64_t n, room;
    Arena arena;
} Lanes;

static int64_t ns_of(const Events *e, double us) { return e->base_ns + (int64_t)llround(us * 1e3); }

/* The name of the lane in a recording of our own; NULL: another program made the trace. */
static const char *recorded_lane(const Events *e, const char *tid, int sort,
                                 char out[RECORD_LANE_BYTES])
{
    if (e->recording == NULL) return NULL;
    if (sort == LANE_OPS) return "ops";
    const Recorded *r = &e->recording->file;
    int lane = (int)strtol(tid, NULL, 10);
    if (lane == RECORD_STEPS_LANE) return "steps";
    bool transfer = lane >= LANE_COUNT && lane - LANE_COUNT < (int)r->names;
    return transfer ? r->name[lane - LANE_COUNT] : record_lane_name(out, lane);
}

/* Adds an event to its lane. A lane's name begins with sort and file number, by which the page
 * orders lanes: "2003 GPU 0 stream 7" is a device stream of file 3. */
static Status add_event(Lanes *l, TracePage *p, const Report *r, int sort, uint32_t event)
{
    const Events *e = r->e;
    const Track *t = &e->tracks[e->track[event]];
    const Strings *s = &e->strings;
    char name[160], other[RECORD_LANE_BYTES];
    const char *own = recorded_lane(e, strings_text(s, t->tid), sort, other);
    int64_t start = ns_of(e, e->ts[event]), end = ns_of(e, event_end(e, event));
    uint32_t lane = 0;
    if (own != NULL)
        (void)snprintf(name, sizeof name, "%d%03d %.64s", sort, p->added, own);
    else if (sort == LANE_DEVICE)
        (void)snprintf(name, sizeof name, "%d%03d GPU %.32s stream %.32s", sort, p->added,
                       strings_text(s, t->pid), strings_text(s, t->tid));
    else
        (void)snprintf(name, sizeof name, "%d%03d %s %.32s", sort, p->added,
                       sort == LANE_STEPS ? "steps" : "thread", strings_text(s, t->tid));
    TRY(strings_id(&p->lane_names, name, strlen(name), &lane));
    TRY(ARENA_GROW(&l->arena, l->n + 1, &l->room, &l->at));
    if (p->origin_ns == INT64_MIN) p->origin_ns = start;
    l->at[l->n++] = (LaneEvent){ start - p->origin_ns, end - p->origin_ns, lane, event };
    return OK;
}

static int compare_lane(const void *a, const void *b)
{
    const LaneEvent *x = a, *y = b;
    if (x->lane != y->lane) return x->lane < y->lane ? -1 : 1;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return x->event < y->event ? -1 : x->event > y->event;
}

/* Device work comes from the report, steps and own ops from the events, calls of the host from the
 * tree's roots within the report's time. */
static Status collect_events(TracePage *p, const Report *r, Lanes *l)
{
    const Events *e = r->e;
    for (int64_t i = 0; i < r->gpus; i++) TRY(add_event(l, p, r, LANE_DEVICE, r->gpu[i]));
    for (int64_t i = 0; i < e->n; i++) {
        if (e->kind[i] == EVENT_ANNOTATION && strncmp(event_name(e, i), "ProfilerStep", 12) == 0)
            TRY(add_event(l, p, r, LANE_STEPS, (uint32_t)i));
        if (e->recording != NULL && e->kind[i] == EVENT_OTHER) /* an op of a traced step */
            TRY(add_event(l, p, r, LANE_OPS, (uint32_t)i));
    }
    for (int64_t i = 0; i < r->tree->roots; i++) {
        uint32_t root = r->tree->root[i];
        if (e->ts[root] >= r->host_start && e->ts[root] <= r->host_end)
            TRY(add_event(l, p, r, LANE_HOST, root));
    }
    qsort(l->at, (size_t)l->n, sizeof *l->at, compare_lane);
    return OK;
}

/* The number of events from `first` on that share a box: one, or as many short neighbours as have
 * gaps below `short_ns`. A shared box is at most 64 * short_ns long, so that the picture keeps its
 * shape. */
static int64_t events_in_box(const Lanes *l, int64_t first, int64_t short_ns)
{
    const LaneEvent *a = &l->at[first];
    int64_t n = 1;
    if (a->end - a->start >= short_ns) return 1;
    for (; first + n < l->n && a[n].lane == a->lane; n++) {
        if (a[n].end - a[n].start >= short_ns || a[n].start - a[n - 1].end >= short_ns) break;
        if (a[n].end - a->start >= 64 * short_ns) break;
    }
    return n;
}

static int64_t count_boxes(const Lanes *l, int64_t short_ns)
{
    int64_t count = 0;
    for (int64_t i = 0; i < l->n; i += events_in_box(l, i, short_ns)) count++;
    return count;
}

static int box_kind(const Report *r, const LaneEvent *x)
{
    uint8_t kind = r->e->kind[x->event];
    if (event_on_gpu(kind)) return BOX_OF_BUCKET + (int)report_bucket(r, x->event);
    return kind == EVENT_ANNOTATION ? BOX_STEP : BOX_HOST;
}

/* Writes four numbers for each box: ns since the previous box's start, length in ns, name (or for a
 * shared box its number of events), kind. Differences keep the numbers short. */
static Status write_lanes(TracePage *p, const Report *r, const Lanes *l, int64_t short_ns)
{
    Text *out = &p->lanes.text;
    int64_t last = 0;
    for (int64_t i = 0, n = 0; i < l->n; i += n) {
        const LaneEvent *x = &l->at[i];
        const char *name = event_name(r->e, x->event);
        uint32_t id = 0;
        n = events_in_box(l, i, short_ns);
        if (i == 0 || x->lane != x[-1].lane) {
            if (i > 0) TRY(text_printf(out, "]}"));
            TRY(text_printf(out, "%s{\"lane\":%u,\"box\":[", out->used > 0 ? "," : "", x->lane));
            last = 0;
        } else
            TRY(text_printf(out, ","));
        TRY(strings_id(&p->names, name, strlen(name), &id));
        int64_t end = x[n - 1].end;
        TRY(text_printf(out, "%lld,%lld,%u,%d", (long long)(x->start - last),
                        (long long)(end - x->start), n > 1 ? (unsigned)n : id,
                        n > 1 ? BOX_MANY : box_kind(r, x)));
        last = x->start;
        p->drawn[p->added]++;
    }
    return l->n > 0 ? text_printf(out, "]}") : OK;
}

Status trace_lanes(TracePage *p, const Report *r, int64_t most)
{
    Lanes l = { 0 };
    int64_t short_ns = 0;
    TRY(arena_init(&l.arena, "lanes of a page", MEM_HOST, (size_t)16 << 30));
    Status s = collect_events(p, r, &l);
    while (s == OK && count_boxes(&l, short_ns) > most)
        short_ns = short_ns == 0 ? 1000 : 2 * short_ns;
    if (s == OK) s = write_lanes(p, r, &l, short_ns);
    arena_free(&l.arena);
    return s;
}
