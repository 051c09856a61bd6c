/* none: entries for backends without streams, graphs or asynchronous work. Waits and records succeed at
 * once, and times come from the host's clock. Graphs fail, because a caller must not believe that it
 * captured something. */
#include "engine/backend/backend.h"

#include "engine/base/clock.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* which is what a stub is */
/* NOLINTBEGIN(misc-unused-parameters,readability-non-const-parameter) */

Status backend_sync_nothing(Exec *ex) { return OK; }

static void *no_stream(Exec *ex, Lane lane) { return NULL; }

static Status add_nothing(Exec *ex, void **out)
{
    *out = NULL;
    return OK;
}

static Status event_new(Exec *ex, bool timed, Event *out)
{
    *out = (Event){ 0 };
    return OK;
}

/* Ops run inside their call, so all work before this point is already done. */
static Status record_time(Exec *ex, Event *event, void *stream)
{
    event->ns = (uint64_t)(clock_s() * 1e9);
    return OK;
}

static Status copy_now(Exec *ex, void *dst, const void *src, size_t bytes, void *stream)
{
    return ex->backend->copy(ex, dst, src, bytes);
}

static Status wait_nothing(Exec *ex, const Event *event, void *stream) { return OK; }

static Status elapsed_s(Exec *ex, const Event *from, const Event *to, double *out)
{
    *out = (double)(to->ns - from->ns) / 1e9;
    return OK;
}

static Status stamp_now(Exec *ex, uint64_t *at, void *stream)
{
    *at = (uint64_t)(clock_s() * 1e9);
    return OK;
}

static Status no_delay(Exec *ex, double seconds) { return OK; }

const Streams backend_no_streams = {
    .of_lane = no_stream,
    .add = add_nothing,
    .event_new = event_new,
    .record = record_time,
    .wait = wait_nothing,
    .copy = copy_now,
    .elapsed_s = elapsed_s,
    .delay = no_delay,
    .stamp = stamp_now,
};

/* Callers ask Backend.captures first; this is for those that do not. */
static Status no_graph(void)
{
    return FAIL(ERR_UNSUPPORTED, "ops run one by one on this backend: there are no graphs");
}

static Status no_capture_begin(Exec *ex) { return no_graph(); }
static Status no_capture_end(Exec *ex, Graph *out) { return no_graph(); }
static Status no_graph_launch(Exec *ex, const Graph *g) { return no_graph(); }
static void no_graph_free(Graph *g) { *g = (Graph){ 0 }; }

const Graphs backend_no_graphs = { .begin = no_capture_begin,
                                   .end = no_capture_end,
                                   .launch = no_graph_launch,
                                   .free = no_graph_free };
/* NOLINTEND(misc-unused-parameters,readability-non-const-parameter) */
