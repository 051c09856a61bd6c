/* op_table: the table of ops, made from ops.def. It needs all headers of ops, and op.c none. */
#include "kernels/attention/rope_parts.h"
#include "kernels/core/cpu_set.h"
#include "kernels/core/kernels.h"
#include "kernels/core/ops.h"
#include "kernels/dense/product.h"
#include "kernels/moe/moe_product.h"

/* The table holds wrappers of an op's functions that take untyped arguments; for an op of a family they first make the
 * view of its arguments. The compiler drops wrappers that the table does not name. CPU functions are those of the
 * Exec's instruction set. A GPU's Exec has no set: for ops that run on the host there, it uses the base set. */
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
#include "kernels/core/ops.def"

/* The words of ops.def for workspaces: its own, the same as the CPU's, or none. */
#define SPACE(own, cpu)  own
#define SAME(own, cpu)   cpu
#define NONE(own, cpu)   NULL

static const OpDesc table[OP_ID_COUNT] = {
#define OP(ID, Args, stem, space, gpu_space)                                                       \
    { #stem, sizeof(Args), stem##_ports, stem##_check_any, stem##_cost_any,                        \
      space(stem##_workspace_any, NULL), stem##_cpu_any, GPU_OP(stem##_gpu),                       \
      GPU_OP(gpu_space(stem##_gpu_workspace, stem##_workspace_any)) },
#include "kernels/core/ops.def"
};
/* clang-format on */

const OpDesc *op_desc(OpId id) { return &table[id]; }
