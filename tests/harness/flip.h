/* flip: a decorator that flips one bit of what an op wrote, as a faulty processor would. */
#ifndef TESTS_HARNESS_FLIP_H
#define TESTS_HARNESS_FLIP_H

#include "engine/backend/backend.h"

#include <string.h>

/* Of the n-th call of an op, counted from 1: bit 20 of the first f32 element that it writes, an eighth of it. Later
 * sums may round lower bits away. */
typedef struct Flip {
    Decorator decorator;
    const char *op;
    int left;
} Flip;

static inline Status flip_first(Exec *ex, const OpDesc *op, const void *args)
{
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        const Tensor *t = op_port_tensor(p, args);
        uint32_t bits = 0;
        if (p->dir == PORT_IN || p->dir == PORT_IN_OPT || p->dir == PORT_IN_SCALE ||
            p->dir == PORT_ROWS)
            continue;
        if (t->data == NULL || t->dtype != DTYPE_F32) continue;
        TRY(ex->backend->copy(ex, &bits, t->data, sizeof bits));
        TRY(ex->backend->sync(ex));
        bits ^= 1u << 20;
        TRY(ex->backend->copy(ex, t->data, &bits, sizeof bits));
        return ex->backend->sync(ex);
    }
    return FAIL(ERR_ARG, "flip: %s writes no f32", op->name);
}

static inline Status flip_run(Exec *ex, int level, const OpDesc *op, const void *args)
{
    Flip *f = ex->front[level]->self;
    TRY(op_next(ex, level, op, args));
    if (strcmp(op->name, f->op) != 0 || --f->left != 0) return OK;
    return flip_first(ex, op, args);
}

/* f must outlive the pushed decorator. */
static inline void flip_push(Exec *ex, Flip *f, const char *op, int nth)
{
    *f = (Flip){ .op = op, .left = nth };
    f->decorator = (Decorator){ .run = flip_run, .self = f };
    exec_push(ex, &f->decorator);
}

#endif
