/*
 * trace_lanes: the lanes of a page of traces: a rank's device streams, its steps, calls of the
 * host, and ops of our own recordings. They are boxes in JSON, which page/trace.js draws. Annotated
 * ranges on the device have no lane, since the kernels inside them have one.
 *
 * A trace may have millions of events. If there are more boxes than allowed, short neighbouring
 * events share boxes, one for each kind (merge.h); the limit for "short" doubles until the boxes fit.
 */
#include "engine/base/lane.h"
#include "pages/charts/merge.h"
#include "traces/page/trace_page.h"
#include "traces/read/recording.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANE_STEPS, LANE_HOST, LANE_DEVICE, LANE_OPS };
/* Kinds of boxes: indices into the colours of page/trace.js, which adds SHARED for a box of several events. */
enum { BOX_OF_BUCKET, BOX_HOST = BUCKETS, BOX_STEP, BOX_KINDS, SHARED = 8 };

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

static int box_kind(const Report *r, const LaneEvent *x)
{
    uint8_t kind = r->e->kind[x->event];
    if (event_on_gpu(kind)) return BOX_OF_BUCKET + (int)report_bucket(r, x->event);
    return kind == EVENT_ANNOTATION ? BOX_STEP : BOX_HOST;
}

/* Where boxes go; text NULL: they are only counted. */
typedef struct Boxes {
    Text *text;
    int64_t n, last; /* last: the start of the box before */
    bool first;      /* of its lane */
} Boxes;

/* Writes four numbers: ns since the previous box's start, length in ns, name (or for a shared box its number
 * of events), kind. Differences keep the numbers short. */
static Status put_box(Boxes *b, int64_t start, int64_t length, uint32_t name, int kind)
{
    b->n++;
    if (b->text == NULL) return OK;
    TRY(text_printf(b->text, "%s%lld,%lld,%u,%d", b->first ? "" : ",", (long long)(start - b->last),
                    (long long)length, name, kind));
    b->last = start;
    b->first = false;
    return OK;
}

/* The box of one event has its name. */
static Status put_event(TracePage *p, const Report *r, const LaneEvent *x, Boxes *b)
{
    const char *name = event_name(r->e, x->event);
    uint32_t id = 0;
    if (b->text != NULL) TRY(strings_id(&p->names, name, strlen(name), &id));
    return put_box(b, x->start, x->end - x->start, id, box_kind(r, x));
}

/* Writes the boxes of a group. A group of one is that event, `last`. */
static Status put_merged(TracePage *p, const Report *r, const LaneEvent *last, Merge *group,
                         Boxes *b)
{
    MergeBox box[MERGE_KINDS];
    bool one = group->spans == 1;
    int n = merge_boxes(group, box);
    if (one) return put_event(p, r, last, b);
    for (int i = 0; i < n; i++)
        TRY(put_box(b, llround(box[i].start), llround(box[i].length), (uint32_t)box[i].spans,
                    box[i].kind + SHARED));
    return OK;
}

/* Ends the lane before, and begins the one of an event. */
static Status begin_lane(Boxes *b, const LaneEvent *x)
{
    if (b->text == NULL) return OK;
    TRY(text_printf(b->text, "%s%s{\"lane\":%u,\"box\":[", b->n > 0 ? "]}" : "",
                    b->text->used > 0 ? "," : "", x->lane));
    b->first = true;
    b->last = 0;
    return OK;
}

/* Events come by lane and start. */
static Status put_lanes(TracePage *p, const Report *r, const Lanes *l, int64_t short_ns, Boxes *b)
{
    Merge group = { 0 };
    double grain = (double)short_ns;
    for (int64_t i = 0; i < l->n; i++) {
        const LaneEvent *x = &l->at[i];
        double start = (double)x->start, end = (double)x->end;
        bool begins = i == 0 || x->lane != x[-1].lane, brief = end - start < grain;
        bool ends = begins || !brief || !merge_takes(&group, start, end, grain);
        if (i > 0 && ends) TRY(put_merged(p, r, x - 1, &group, b));
        if (begins) TRY(begin_lane(b, x));
        if (brief)
            merge_add(&group, box_kind(r, x), start, end);
        else
            TRY(put_event(p, r, x, b));
    }
    if (l->n == 0) return OK;
    TRY(put_merged(p, r, &l->at[l->n - 1], &group, b));
    return b->text != NULL ? text_printf(b->text, "]}") : OK;
}

Status trace_lanes(TracePage *p, const Report *r, int64_t most)
{
    Lanes l = { 0 };
    int64_t short_ns = 0;
    Boxes counted, written = { .text = &p->lanes.text };
    TRY(arena_reserve(&l.arena, "lanes of a page", (size_t)16 << 30));
    Status s = collect_events(p, r, &l);
    do {
        counted = (Boxes){ 0 };
        if (s == OK) s = put_lanes(p, r, &l, short_ns, &counted);
        if (counted.n > most) short_ns = short_ns == 0 ? 1000 : 2 * short_ns;
    } while (s == OK && counted.n > most && short_ns < INT64_MAX / 4);
    if (s == OK) s = put_lanes(p, r, &l, short_ns, &written);
    p->drawn[p->added] += written.n;
    arena_free(&l.arena);
    return s;
}
