/* count: nothing runs; costs add up. Copies and fills succeed without touching memory. */
#include "backend/backend.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* which is what a stub is */
/* NOLINTBEGIN(misc-unused-parameters) */

static Status run(Exec *ex, int level, const OpDesc *op, const void *args)
{
    OpCost c = op->cost(args);
    ex->totals.flops += c.flops;
    ex->totals.bytes += c.bytes;
    ex->totals.comm_bytes += c.comm_bytes;
    ex->totals.ops++;
    return OK;
}

Status backend_no_alloc(Exec *ex, MemKind kind, size_t bytes, void **out)
{
    return FAIL(ERR_UNSUPPORTED, "%s: %zu bytes wanted of a backend without memory",
                ex->stack[0]->name, bytes);
}

void backend_no_free(Exec *ex, MemKind kind, void *at, size_t bytes) {}

static Status copy(Exec *ex, void *dst, const void *src, size_t bytes) { return OK; }
static Status fill(Exec *ex, void *dst, int byte, size_t bytes) { return OK; }

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

Status backend_event_new(Exec *ex, Event *out)
{
    *out = (Event){ 0 };
    return OK;
}

Status backend_event_nothing(Exec *ex, Event event) { return OK; }
Status backend_sync_nothing(Exec *ex) { return OK; }

Status backend_find_nothing(Exec *ex, const Tensor *t, int64_t *index, double *value)
{
    *index = -1, *value = 0;
    return OK;
}

const Backend backend_count = {
    .name = "count",
    .run = run,
    .alloc = backend_no_alloc,
    .free = backend_no_free,
    .copy = copy,
    .read = copy,
    .fill = fill,
    .event_new = backend_event_new,
    .record = backend_event_nothing,
    .wait = backend_event_nothing,
    .sync = backend_sync_nothing,
    .find_bad = backend_find_nothing,
};
/* NOLINTEND(misc-unused-parameters) */
