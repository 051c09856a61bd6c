/* op: the table of ops, op_run with its checks, and the checks of shapes that ops share. */
#include "op/op.h"

#include "base/log.h"
#include "op/cpu_set.h"
#include "op/kernels.h"
#include "op/moe_product.h"
#include "op/ops.h"
#include "op/product.h"
#include "op/rope_parts.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* The table holds wrappers of an op's functions that take untyped arguments; for an op of a family
 * they first make the view of its arguments. The compiler drops wrappers that the table does not
 * name. CPU functions are those of the Exec's instruction set. A GPU's Exec has no set: for ops
 * that run on the host there, it uses the base set. */
static const OpCpu *cpu_op(const Exec *ex, OpId id)
{
    return &(ex->set != NULL ? ex->set : &op_set_base)->op[id];
}

/* clang-format off */
#define UNTYPED(ID, stem, of, typed)                                                               \
    static inline Status stem##_check_any(const void *args) { typed; return of##_check(a); }       \
    static inline OpCost stem##_cost_any(const void *args) { typed; return of##_cost(a); }         \
    static inline size_t stem##_workspace_any(const Exec *ex, const void *args)                    \
    { return cpu_op(ex, OP_##ID)->workspace(ex, args); }                                           \
    static inline Status stem##_cpu_any(Exec *ex, const void *args)                                \
    { return cpu_op(ex, OP_##ID)->run(ex, args); }
#define OP(ID, Args, stem, space, gpu_space) UNTYPED(ID, stem, stem, const Args *a = args)
#define VIEWED(View, stem) View view = stem##_view(args); const View *a = &view
#define OP_OF(family, View, ID, Args, stem, space, gpu_space)                                      \
    UNTYPED(ID, stem, family, VIEWED(View, stem))                                                      \
    static inline size_t stem##_gpu_workspace(const Exec *ex, const void *args)                    \
    { VIEWED(View, stem); return family##_gpu_workspace(ex, a); }                                  \
    static inline Status stem##_gpu(Exec *ex, const void *args)                                    \
    { VIEWED(View, stem); return family##_gpu(ex, a); }
#include "op/ops.def"

/* The words of ops.def for workspaces: its own, the same as the CPU's, or none. */
#define SPACE(own, cpu) own
#define SAME(own, cpu)  cpu
#define NONE(own, cpu)  NULL

static const OpDesc table[OP_ID_COUNT] = {
#define ENTRY(Args, stem, space, gpu, gpu_space)                                                   \
    { #stem, sizeof(Args), stem##_ports, stem##_check_any, stem##_cost_any,                        \
      space(stem##_workspace_any, NULL), stem##_cpu_any, GPU_OP(gpu),                              \
      GPU_OP(gpu_space(stem##_gpu_workspace, stem##_workspace_any)) },
#define OP(ID, Args, stem, space, gpu_space)      ENTRY(Args, stem, space, stem##_gpu, gpu_space)
#define OP_HOST(ID, Args, stem, space, gpu_space) ENTRY(Args, stem, space, stem##_cpu_any, gpu_space)
#include "op/ops.def"
};
/* clang-format on */

const OpDesc *op_desc(OpId id) { return &table[id]; }

static bool port_is_optional(PortDir dir)
{
    return dir == PORT_IN_OPT || dir == PORT_OUT_OPT || dir == PORT_ADD_OPT ||
           dir == PORT_OUT_PART_OPT || dir == PORT_IN_SCALE;
}

static bool port_is_input(PortDir dir)
{
    return dir == PORT_IN || dir == PORT_IN_OPT || dir == PORT_IN_SCALE || dir == PORT_ROWS;
}

Status op_run(Exec *ex, OpId id, const void *args)
{
    const OpDesc *op = &table[id];
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
    for (const OpPort *p = table[id].ports; p->dir != PORT_END; p++) {
        if (p->dir == PORT_ROWS || op_port_tensor(p, args)->data == NULL) continue;
        bool added = p->dir == PORT_ADD || p->dir == PORT_ADD_OPT;
        bytes += (added ? 2 : 1) * (double)tensor_bytes(op_port_tensor(p, args));
    }
    return bytes;
}

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
    if ((t->dtype != DTYPE_F32 && t->dtype != DTYPE_BF16) || !shape_fits(t, rows, cols)) {
        return fail_shape(op, port, t, rows, cols, "f32 or bf16");
    }
    return OK;
}

Status op_expect_window(const char *op, const char *port, const Tensor *t, int64_t col, int64_t n)
{
    if (col >= 0 && col + n <= tensor_row_elems(t)) return OK;
    return FAIL(ERR_SHAPE, "%s: columns %lld to %lld of %s, which has %lld", op, (long long)col,
                (long long)(col + n), port, (long long)tensor_row_elems(t));
}
