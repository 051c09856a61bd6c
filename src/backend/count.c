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

static Status copy(Exec *ex, void *dst, const void *src, size_t bytes) { return OK; }
static Status fill(Exec *ex, void *dst, int byte, size_t bytes) { return OK; }

const Backend backend_count = {
    .name = "count",
    .run = run,
    .alloc = backend_no_alloc,
    .free = backend_no_free,
    .copy = copy,
    .read = copy,
    .fill = fill,
    .sync = backend_sync_nothing,
    .find_bad = backend_find_nothing,
    .close = backend_close_nothing,
    .streams = &backend_no_streams,
    .graphs = &backend_no_graphs,
    .device = &backend_no_device,
};
/* NOLINTEND(misc-unused-parameters) */
