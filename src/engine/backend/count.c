/* count: the backend of plans and dry runs. No op runs; their costs are added up in ex->totals. Copies
 * and fills succeed without touching memory, because counting arenas (engine/base/arena.h) have none. */
#include "engine/backend/backend.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* which is what a stub is */
/* NOLINTBEGIN(misc-unused-parameters) */

/* The arguments were checked by op_run, so a plan finds wrong shapes like a run does. */
static Status count_op(Exec *ex, const OpDesc *op, const void *args)
{
    OpCost c = op->cost(args);
    ex->totals.flops += c.flops;
    ex->totals.bytes += c.bytes;
    ex->totals.comm_bytes += c.comm_bytes;
    ex->totals.ops++;
    return OK;
}

/* Counting arenas reserve nothing, so nobody should ask for real memory. */
static Status count_alloc(Exec *ex, MemKind kind, size_t bytes, void **out)
{
    return FAIL(ERR_UNSUPPORTED, "count: %zu bytes wanted of a backend without memory", bytes);
}

static void count_free(Exec *ex, MemKind kind, void *at, size_t bytes) {}
static Status count_copy(Exec *ex, void *dst, const void *src, size_t bytes) { return OK; }
static Status count_fill(Exec *ex, void *dst, int byte, size_t bytes) { return OK; }

static Status count_find_bad(Exec *ex, const Tensor *t, int64_t *index, double *value)
{
    *index = -1, *value = 0;
    return OK;
}

const Backend backend_count = {
    .run = count_op,
    .alloc = count_alloc,
    .free = count_free,
    .copy = count_copy,
    .read = count_copy,
    .fill = count_fill,
    .find_bad = count_find_bad,
    BACKEND_WITHOUT_DEVICE,
};
/* NOLINTEND(misc-unused-parameters) */
