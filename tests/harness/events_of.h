/* events_of: a trace in memory from a list of events, for tests of what is read from it. */
#ifndef TESTS_HARNESS_EVENTS_OF_H
#define TESTS_HARNESS_EVENTS_OF_H

#include "harness/test.h"
#include "traces/read/events.h"

enum { EVENTS_OF_MOST = 512 };

typedef struct EventOf {
    EventKind kind;
    const char *name;
    uint32_t track;
    double ts, dur;
    int64_t link; /* 0: none */
    const char *dims;
} EventOf;

typedef struct EventsOf {
    Events e;
    double ts[EVENTS_OF_MOST], dur[EVENTS_OF_MOST];
    uint32_t name[EVENTS_OF_MOST], index[EVENTS_OF_MOST], track[EVENTS_OF_MOST],
        detail[EVENTS_OF_MOST];
    int64_t link[EVENTS_OF_MOST], external[EVENTS_OF_MOST];
    uint8_t kind[EVENTS_OF_MOST];
    Track tracks[8];
    Flow flows[EVENTS_OF_MOST];
    OpArgs args[EVENTS_OF_MOST];
    OpDetail ops[EVENTS_OF_MOST];
    GpuDetail gpu[EVENTS_OF_MOST];
    MemoryPoint memory[EVENTS_OF_MOST];
} EventsOf;

/* Tracks 0 to 3 are threads of a host, 4 to 7 streams of device 0. */
static inline void events_of(EventsOf *o, const EventOf *list, int n)
{
    memset(o, 0, sizeof *o);
    Events *e = &o->e;
    CHECK_OK(strings_init(&e->strings));
    *e = (Events){ .path = "test",
                   .strings = e->strings,
                   .n = n,
                   .ts = o->ts,
                   .dur = o->dur,
                   .name = o->name,
                   .index = o->index,
                   .track = o->track,
                   .detail = o->detail,
                   .link = o->link,
                   .external = o->external,
                   .kind = o->kind,
                   .tracks = o->tracks,
                   .flows = o->flows,
                   .args = o->args,
                   .ops = o->ops,
                   .gpu = o->gpu,
                   .memory = o->memory,
                   .n_tracks = 8,
                   .rank = -1,
                   .world = -1 };
    for (int i = 0; i < 8; i++) {
        char number[4] = { (char)('0' + i), '\0' };
        CHECK_OK(strings_id(&e->strings, i < 4 ? "host" : "0", i < 4 ? 4 : 1, &o->tracks[i].pid));
        CHECK_OK(strings_id(&e->strings, number, 1, &o->tracks[i].tid));
    }
    for (int i = 0; i < n; i++) {
        const EventOf *x = &list[i];
        o->kind[i] = (uint8_t)x->kind;
        o->ts[i] = x->ts, o->dur[i] = x->dur;
        o->track[i] = x->track, o->index[i] = (uint32_t)i;
        o->link[i] = x->link == 0 ? -1 : x->link;
        o->external[i] = -1;
        o->detail[i] = EVENT_NONE;
        CHECK_OK(strings_id(&e->strings, x->name, strlen(x->name), &o->name[i]));
        if (event_on_gpu(o->kind[i])) {
            o->detail[i] = (uint32_t)e->n_gpu;
            o->gpu[e->n_gpu++] =
                (GpuDetail){ .stream = (int32_t)x->track, .collective = EVENT_NONE };
        } else if (x->kind == EVENT_CPU_OP) {
            o->detail[i] = (uint32_t)e->n_ops;
            if (x->dims != NULL)
                CHECK_OK(
                    strings_id(&e->strings, x->dims, strlen(x->dims), &o->args[e->n_args].dims));
            o->ops[e->n_ops++] =
                (OpDetail){ .args = x->dims == NULL ? EVENT_NONE : (uint32_t)e->n_args,
                            .collective = EVENT_NONE,
                            .sequence = -1 };
            e->n_args += x->dims != NULL;
        }
    }
}

static inline void events_of_arrow(EventsOf *o, int64_t id, uint32_t from, uint32_t to)
{
    o->flows[o->e.n_flows++] = (Flow){ .id = id, .track = from, .from = true };
    o->flows[o->e.n_flows++] = (Flow){ .id = id, .track = to };
}

static inline void events_of_free(EventsOf *o) { strings_free(&o->e.strings); }

#endif
