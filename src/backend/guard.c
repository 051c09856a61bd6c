/* guard: after each op, every floating-point output is searched for a value that is not finite, so
 * a NaN is named where it is born: step, layer, op, port and place. A port of which an op writes a
 * window only (PORT_OUT_PART) is passed over: its other columns may not be written yet, and what is
 * wrong shows in the next op. */
#include "backend/backend.h"

static bool floating(Dtype t)
{
    return t == DTYPE_F32 || t == DTYPE_BF16 || t == DTYPE_F16 || t == DTYPE_E4M3 ||
           t == DTYPE_E5M2;
}

/* Is this a port whose every element the op has written? */
static bool written_whole(const OpPort *p)
{
    return p->dir == PORT_OUT || p->dir == PORT_OUT_OPT || p->dir == PORT_ADD ||
           p->dir == PORT_ADD_OPT;
}

static Status run(Exec *ex, int level, const OpDesc *op, const void *args)
{
    TRY(op_next(ex, level, op, args));
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        const Tensor *t = op_port_tensor(p, args);
        if (!written_whole(p) || t->data == NULL || !floating(t->dtype)) continue;
        double value = 0;
        int64_t i = -1;
        TRY(exec_bottom(ex)->find_bad(ex, t, &i, &value));
        if (i < 0) continue;
        char shape[96];
        return FAIL(ERR_NUMERIC, "step %lld, layer %d: %s wrote %g into %s[%lld] of %s",
                    (long long)ex->step, ex->layer, op->name, value, p->name, (long long)i,
                    tensor_shape_text(t, shape, sizeof shape));
    }
    return OK;
}

const Backend backend_guard = BACKEND_DECORATOR("guard", run);
