/* trace: notes each op's time and cost in ex->trace. */
#include "backend/backend.h"

#include "base/clock.h"
#include "trace/trace.h"

static Status run(Exec *ex, int level, const OpDesc *op, const void *args)
{
    if (ex->trace == NULL) return op_next(ex, level, op, args);
    TRY(ex->backend->sync(ex)); /* so that the clock sees this op alone */
    double start = clock_s();
    TRY(op_next(ex, level, op, args));
    TRY(ex->backend->sync(ex));
    OpCost c = op->cost(args);
    trace_event(ex->trace, (TraceEvent){ .name = op->name,
                                         .start_s = start,
                                         .duration_s = clock_s() - start,
                                         .flops = c.flops,
                                         .bytes = c.bytes,
                                         .step = ex->step,
                                         .layer = ex->layer,
                                         .depth = 2 });
    return OK;
}

const Decorator backend_trace = { .run = run };
