/*
 * declare: the functions of the ops of one header. A header of ops ends with
 *
 *   #define OPS_ROPE
 *   #include "kernels/core/declare.h"
 *
 * and so declares what the section OPS_ROPE of ops.def lists. An op is called as
 * rmsnorm_fwd(ex, (RmsnormFwd){ .x = h, .w = w, ... }): named arguments, checked types, no varargs.
 *
 * The functions of an op are named after its stem: stem_ports, stem_check, stem_cost, stem_cpu, stem_gpu, and
 * stem_workspace if ops.def says SPACE. They take the op's own arguments; op_table.c wraps them into the entries of its
 * table. An op of a family has its own ports and stem_view; the other functions exist once, for the family.
 *
 * CUDA files see the argument structs and nothing of this file: their launchers take untyped arguments. There is no
 * include guard, because every header includes this file for its own section.
 */
#ifndef __cplusplus
#include "kernels/core/op.h"

#define OP_CALL(ID, Args, stem)                                                                    \
    extern const OpPort stem##_ports[];                                                            \
    static inline Status stem(Exec *ex, Args args) { return op_run(ex, OP_##ID, &args); }
#define OP(ID, Args, stem, space, gpu_space)                                                       \
    OP_CALL(ID, Args, stem)                                                                        \
    Status stem##_check(const Args *args);                                                         \
    OpCost stem##_cost(const Args *args);                                                          \
    size_t stem##_workspace(const Exec *ex, const Args *args);                                     \
    Status stem##_cpu(Exec *ex, const Args *args);                                                 \
    OpSpace stem##_gpu_workspace;                                                                  \
    OpRun stem##_gpu;
#define OP_OF(family, View, ID, Args, stem, space, gpu_space)                                      \
    OP_CALL(ID, Args, stem)                                                                        \
    typedef struct View View;                                                                      \
    View stem##_view(const Args *args);                                                            \
    Status family##_check(const View *view);                                                       \
    OpCost family##_cost(const View *view);                                                        \
    size_t family##_workspace(const Exec *ex, const View *view);                                   \
    size_t family##_gpu_workspace(const Exec *ex, const View *view);                               \
    Status family##_cpu(Exec *ex, const View *view);                                               \
    Status family##_gpu(Exec *ex, const View *view);
#define OPS_SECTION
#include "kernels/core/ops.def"
#undef OPS_SECTION
#undef OP_CALL
#endif
