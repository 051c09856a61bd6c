/* count: nothing runs; costs add up. Copies and fills succeed without touching memory. */
#include "backend/backend.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* which is what a stub is */
/* NOLINTBEGIN(misc-unused-parameters) */

static Status run(Exec *ex, const OpDesc *op, const void *args)
{
    OpCost c = op->cost(args);
    ex->totals.flops += c.flops;
    ex->totals.bytes += c.bytes;
    ex->totals.comm_bytes += c.comm_bytes;
    ex->totals.ops++;
    return OK;
}

static Status alloc(Exec *ex, MemKind kind, size_t bytes, void **out)
{
    return FAIL(ERR_UNSUPPORTED, "count: %zu bytes wanted of a backend without memory", bytes);
}

static void release(Exec *ex, MemKind kind, void *at, size_t bytes) {}
static Status copy(Exec *ex, void *dst, const void *src, size_t bytes) { return OK; }
static Status fill(Exec *ex, void *dst, int byte, size_t bytes) { return OK; }

static Status find_bad(Exec *ex, const Tensor *t, int64_t *index, double *value)
{
    *index = -1, *value = 0;
    return OK;
}

const Backend backend_count = {
    .run = run,
    .alloc = alloc,
    .free = release,
    .copy = copy,
    .read = copy,
    .fill = fill,
    .find_bad = find_bad,
    BACKEND_WITHOUT_DEVICE,
};
/* NOLINTEND(misc-unused-parameters) */
