/* none: entries of a backend that lacks a notion. */
#include "backend/backend.h"

#include "base/clock.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* which is what a stub is */
/* NOLINTBEGIN(misc-unused-parameters,readability-non-const-parameter) */

Status backend_no_alloc(Exec *ex, MemKind kind, size_t bytes, void **out)
{
    return FAIL(ERR_UNSUPPORTED, "%s: %zu bytes wanted of a backend without memory",
                ex->stack[0]->name, bytes);
}

void backend_no_free(Exec *ex, MemKind kind, void *at, size_t bytes) {}

Status backend_no_copy(Exec *ex, void *dst, const void *src, size_t bytes)
{
    return FAIL(ERR_UNSUPPORTED, "%s: copy of %zu bytes: ask the backend below", ex->stack[0]->name,
                bytes);
}

Status backend_no_fill(Exec *ex, void *dst, int byte, size_t bytes)
{
    return FAIL(ERR_UNSUPPORTED, "%s: fill of %zu bytes: ask the backend below", ex->stack[0]->name,
                bytes);
}

Status backend_sync_nothing(Exec *ex) { return OK; }

Status backend_find_nothing(Exec *ex, const Tensor *t, int64_t *index, double *value)
{
    *index = -1, *value = 0;
    return OK;
}

void backend_close_nothing(Exec *ex) {}

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

static Status record_time(Exec *ex, Event *event, void *stream)
{
    event->value = (uint64_t)(clock_s() * 1e9);
    return OK;
}

static Status wait_nothing(Exec *ex, const Event *event, void *stream) { return OK; }

static Status elapsed_s(Exec *ex, const Event *from, const Event *to, double *out)
{
    *out = (double)(to->value - from->value) / 1e9;
    return OK;
}

static Status no_delay(Exec *ex, double seconds) { return OK; }
static int64_t no_waits(const Exec *ex) { return 0; }

const Streams backend_no_streams = {
    .of_lane = no_stream,
    .add = add_nothing,
    .event_new = event_new,
    .record = record_time,
    .wait = wait_nothing,
    .elapsed_s = elapsed_s,
    .delay = no_delay,
    .waits = no_waits,
};

static Status no_graph(const Exec *ex)
{
    return FAIL(ERR_UNSUPPORTED, "%s: ops run one by one, there are no graphs", ex->stack[0]->name);
}

static Status begin(Exec *ex) { return no_graph(ex); }
static Status end(Exec *ex, Graph *out) { return no_graph(ex); }
static Status launch(Exec *ex, const Graph *g) { return no_graph(ex); }
static void drop(Graph *g) { *g = (Graph){ 0 }; }

const Graphs backend_no_graphs = { .begin = begin, .end = end, .launch = launch, .free = drop };

static Status no_bus_id(Exec *ex, char out[BUS_ID_MAX])
{
    out[0] = '\0';
    return OK;
}

static Status no_used_bytes(Exec *ex, size_t *out)
{
    *out = 0;
    return OK;
}

static struct Choices *no_choices(Exec *ex) { return NULL; }
static Status no_tune(Exec *ex, bool on) { return OK; }
static const char *no_why(const Exec *ex) { return ""; }

const Device backend_no_device = {
    .bus_id = no_bus_id,
    .used_bytes = no_used_bytes,
    .choices = no_choices,
    .tune = no_tune,
    .attention_why = no_why,
};
/* NOLINTEND(misc-unused-parameters,readability-non-const-parameter) */
