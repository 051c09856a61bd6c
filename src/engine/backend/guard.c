/* guard: a decorator that searches every floating-point output of each op for values that are not
 * finite. So the error names where a NaN arises: step, layer, op, port and index. It is slow, because
 * it waits for each op (run.guard, or after a step that failed).
 *
 * A port of which an op writes only some columns (PORT_OUT_PART) is skipped: the other columns may not be
 * written yet, and a NaN in it shows in the next op. In a MoE buffer only the rows in use are
 * searched. */
#include "engine/backend/backend.h"
#include "kernels/moe/moe.h"

#include <string.h>

/* Has the op written every element of this port? Not the columns past the last group of a
 * transposed operand. */
static bool written_whole(const OpPort *p, const Tensor *t)
{
    bool operand = p[1].dir != PORT_END && strstr(p[1].name, ".scale") != NULL;
    if (operand && ((const Operand *)(const void *)t)->transposed) return false;
    return p->dir == PORT_OUT || p->dir == PORT_OUT_POOL || p->dir == PORT_OUT_OPT ||
           p->dir == PORT_ADD || p->dir == PORT_ADD_OPT;
}

Status live_rows_read(Exec *ex, const OpDesc *op, const void *args, LiveRows *out)
{
    *out = (LiveRows){ 0 };
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        const Rows *rows = (const Rows *)(const void *)op_port_tensor(p, args);
        if (p->dir != PORT_ROWS || (rows->device == NULL && rows->first == NULL)) continue;
        *out = (LiveRows){ .rows = rows, .n = (int32_t)rows->bound };
        if (rows->device != NULL) TRY(ex->backend->copy(ex, &out->n, rows->device, sizeof out->n));
        if (rows->first != NULL)
            TRY(ex->backend->copy(ex, &out->first, rows->first, sizeof out->first));
        TRY(ex->backend->sync(ex));
    }
    return OK;
}

Tensor live_rows_of(const OpPort *p, const Tensor *t, const LiveRows *live)
{
    if (live->rows == NULL) return *t;
    if (p->dir == PORT_OUT_POOL && live->rows->first != NULL)
        return tensor_rows(t, live->first, live->n);
    bool cut = t->dim[0] == live->rows->bound && live->n < t->dim[0];
    return cut ? tensor_rows(t, 0, live->n) : *t;
}

/* The op runs first. An error of the op itself wins over what its outputs hold. */
static Status guard_run(Exec *ex, int level, const OpDesc *op, const void *args)
{
    TRY(op_next(ex, level, op, args));
    LiveRows live;
    TRY(live_rows_read(ex, op, args, &live));
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        const Tensor *t = op_port_tensor(p, args);
        if (!written_whole(p, t) || t->data == NULL || !dtype_is_float(t->dtype)) continue;
        double value = 0;
        int64_t i = -1;
        const Tensor looked_at = live_rows_of(p, t, &live);
        TRY(ex->backend->find_bad(ex, &looked_at, &i, &value));
        if (i < 0) continue;
        char shape[96];
        return FAIL(ERR_NUMERIC, "step %lld, layer %d: %s wrote %g into %s[%lld] of %s",
                    (long long)ex->step, ex->layer, op->name, value, p->name, (long long)i,
                    tensor_shape_text(t, shape, sizeof shape));
    }
    return OK;
}

const Decorator backend_guard = { .run = guard_run };
