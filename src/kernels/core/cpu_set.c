/* cpu_set: the table of one set of CPU ops. The Makefile compiles this file once for each set, with
 * the set's name in OP_SET. Which set a run takes is decided in cpu_sets.c. */
#include "kernels/core/cpu_set.h"

#include "kernels/attention/rope_parts.h"
#include "kernels/core/ops.h"
#include "kernels/dense/product.h"
#include "kernels/moe/moe_product.h"

/* Wrappers that take untyped arguments. For an op of a family they first make the view of its
 * arguments. The compiler drops wrappers that the table does not name. */
/* clang-format off */
#define UNTYPED(stem, of, typed)                                                                   \
    static inline size_t stem##_bytes_of(const Exec *ex, const void *args)                         \
    { typed; return of##_workspace(ex, a); }                                                       \
    static inline Status stem##_run_on(Exec *ex, const void *args) { typed; return of##_cpu(ex, a); }
#define OP(ID, Args, stem, space, gpu_space) UNTYPED(stem, stem, const Args *a = args)
#define VIEWED(View, stem) View view = stem##_view(args); const View *a = &view
#define OP_OF(family, View, ID, Args, stem, space, gpu_space)                                      \
    UNTYPED(stem, family, VIEWED(View, stem))
#include "kernels/core/ops.def"

#define SPACE(stem) stem##_bytes_of
#define NONE(stem)  NULL
static const OpCpu table[OP_ID_COUNT] = {
#define OP(ID, Args, stem, space, gpu_space) { space(stem), stem##_run_on },
#include "kernels/core/ops.def"
};
/* clang-format on */

#if defined(__AVX512VL__) && defined(__AVX512DQ__)
#define ISA CPU_V4
#elif defined(__AVX2__) && defined(__FMA__)
#define ISA CPU_V3
#elif defined(__ARM_FEATURE_ATOMICS) && defined(__ARM_FEATURE_QRDMX)
#define ISA CPU_ARMV8_2
#else
#define ISA CPU_AUTO
#endif

#ifndef OP_SET /* the Makefile defines it for all sets but the base */
#define OP_SET op_set_base
#endif
const OpSet OP_SET = { ISA, table, gemm_make, gemm_workspace, gemm_run };
