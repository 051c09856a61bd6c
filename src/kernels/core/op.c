/* op: op_run with its checks, and the checks of shapes that ops share. The table of ops is in op_table.c. */
#include "kernels/core/op.h"

#include "engine/base/log.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* For these ports data NULL means: not given, or not wanted. */
static bool port_is_optional(PortDir dir)
{
    return dir == PORT_IN_OPT || dir == PORT_OUT_OPT || dir == PORT_ADD_OPT ||
           dir == PORT_OUT_PART_OPT || dir == PORT_IN_SCALE;
}

static bool port_is_input(PortDir dir)
{
    return dir == PORT_IN || dir == PORT_IN_OPT || dir == PORT_IN_SCALE || dir == PORT_ROWS;
}

/* Checks come before anything is allocated. The workspace is at the top of scratch and is given
 * back at once: on a GPU later launches of the lane come after this one. */
Status op_run(Exec *ex, OpId id, const void *args)
{
    const OpDesc *op = op_desc(id);
    bool wanted = false;
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        bool given = p->dir != PORT_ROWS && op_port_tensor(p, args)->data != NULL;
        if (!given && p->dir != PORT_ROWS && !port_is_optional(p->dir))
            return FAIL(ERR_ARG, "%s: %s is not set", op->name, p->name);
        wanted |= given && !port_is_input(p->dir);
    }
    if (!wanted)
        return OK; /* no output is given: the op would only make gradients of frozen weights */
    TRY(op->check(args));

    ArenaMark mark = arena_mark(ex->scratch);
    void *outer = ex->workspace; /* a fused op may run other ops, on the CPU */
    OpSpace *workspace = ex->gpu != NULL ? op->gpu_workspace : op->workspace;
    if (workspace != NULL) {
        TRY(arena_alloc(ex->scratch, workspace(ex, args), &ex->workspace));
    }
    Status s = op_next(ex, -1, op, args);
    ex->workspace = outer;
    arena_release(ex->scratch, mark);
    if (s != OK) return status_frame(__FILE__, __LINE__, s);
    return OK;
}

double op_port_bytes(OpId id, const void *args)
{
    double bytes = 0;
    for (const OpPort *p = op_desc(id)->ports; p->dir != PORT_END; p++) {
        if (p->dir == PORT_ROWS || op_port_tensor(p, args)->data == NULL) continue;
        bool added = p->dir == PORT_ADD || p->dir == PORT_ADD_OPT;
        bytes += (added ? 2 : 1) * (double)tensor_bytes(op_port_tensor(p, args));
    }
    return bytes;
}

/* level -1 starts at the outermost decorator. */
Status op_next(Exec *ex, int level, const OpDesc *op, const void *args)
{
    if (++level == ex->depth) return ex->backend->run(ex, op, args);
    return ex->front[level]->run(ex, level, op, args);
}

void exec_note_once(Exec *ex, const char *op, const char *what)
{
    ExecNotes *notes = &ex->notes;
    for (int i = 0; i < notes->n; i++) {
        if (strcmp(notes->op[i], op) == 0) return;
    }
    assert(notes->n < OP_ID_COUNT);
    notes->op[notes->n] = op;
    (void)snprintf(notes->what[notes->n], EXEC_NOTE_BYTES, "%s", what);
    log_info("%s: %s", op, notes->what[notes->n++]);
}

static Status fail_shape(const char *op, const char *port, const Tensor *t, int64_t rows,
                         int64_t cols, const char *type)
{
    char shape[96];
    return FAIL(ERR_SHAPE, "%s: %s is %s, wanted (%lld, %lld) %s (-1 is any)", op, port,
                tensor_shape_text(t, shape, sizeof shape), (long long)rows, (long long)cols, type);
}

/* A tensor of any rank passes as (rows, cols) if its first dims multiply to rows and the others to
 * cols. A vector also passes as one row. */
static bool shape_fits(const Tensor *t, int64_t rows, int64_t cols)
{
    if (rows >= 0 && cols >= 0 && tensor_elems(t) != rows * cols) return false;
    int64_t head = 1;
    for (int split = 1; split <= t->rank; split++) {
        head *= t->dim[split - 1];
        int64_t tail = 1;
        for (int i = split; i < t->rank; i++) tail *= t->dim[i];
        if ((rows < 0 || head == rows) && (cols < 0 || tail == cols)) return true;
    }
    return t->rank == 1 && rows == 1 && (cols < 0 || t->dim[0] == cols);
}

Status op_expect(const char *op, const char *port, const Tensor *t, int64_t rows, int64_t cols,
                 Dtype dtype)
{
    if (t->dtype != dtype || !shape_fits(t, rows, cols)) {
        return fail_shape(op, port, t, rows, cols, dtype_name(dtype));
    }
    return OK;
}

Status op_expect_act(const char *op, const char *port, const Tensor *t, int64_t rows, int64_t cols)
{
    if (t->dtype > DTYPE_F16 || !shape_fits(t, rows, cols)) {
        return fail_shape(op, port, t, rows, cols, "f32, bf16 or f16");
    }
    return OK;
}

/* The caller has checked the rows; a window limits columns alone. */
Status op_expect_window(const char *op, const char *port, const Tensor *t, int64_t col, int64_t n)
{
    if (col >= 0 && col + n <= tensor_row_elems(t)) return OK;
    return FAIL(ERR_SHAPE, "%s: columns %lld to %lld of %s, which has %lld", op, (long long)col,
                (long long)(col + n), port, (long long)tensor_row_elems(t));
}
