/* guard: after each op, every floating-point output is searched for a value that is not finite, so
 * a NaN is named where it is born: step, layer, op, port and place. A port of which an op writes a
 * window only (PORT_OUT_PART) is passed over: its other columns may not be written yet, and what is
 * wrong shows in the next op. Of a MoE buffer only the rows that count are searched. */
#include "backend/backend.h"

/* Is this a port whose every element the op has written? */
static bool written_whole(const OpPort *p)
{
    return p->dir == PORT_OUT || p->dir == PORT_OUT_OPT || p->dir == PORT_ADD ||
           p->dir == PORT_ADD_OPT;
}

/* Of how many rows how many count; `bound` -1: there is no such buffer. */
static Status count_rows(Exec *ex, const OpDesc *op, const void *args, int64_t *bound,
                         int32_t *live)
{
    *bound = -1;
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        const Rows *rows = (const Rows *)(const void *)op_port_tensor(p, args);
        if (p->dir != PORT_ROWS || rows->device == NULL) continue;
        *bound = rows->bound;
        TRY(ex->backend->copy(ex, live, rows->device, sizeof *live));
        TRY(ex->backend->sync(ex));
    }
    return OK;
}

static Status run(Exec *ex, int level, const OpDesc *op, const void *args)
{
    TRY(op_next(ex, level, op, args));
    int64_t bound;
    int32_t live = 0;
    TRY(count_rows(ex, op, args, &bound, &live));
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        const Tensor *t = op_port_tensor(p, args);
        if (!written_whole(p) || t->data == NULL || !dtype_is_float(t->dtype)) continue;
        double value = 0;
        int64_t i = -1;
        Tensor searched = t->dim[0] == bound && live < bound ? tensor_rows(t, 0, live) : *t;
        TRY(ex->backend->find_bad(ex, &searched, &i, &value));
        if (i < 0) continue;
        char shape[96];
        return FAIL(ERR_NUMERIC, "step %lld, layer %d: %s wrote %g into %s[%lld] of %s",
                    (long long)ex->step, ex->layer, op->name, value, p->name, (long long)i,
                    tensor_shape_text(t, shape, sizeof shape));
    }
    return OK;
}

const Decorator backend_guard = { .run = run };
