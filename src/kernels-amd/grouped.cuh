/* grouped: the grouped products of AMD's GPUs (grouped_vendor.cuh): on matrix cores in bf16 and 8 bits,
 * else by the plain kernel. */
#ifndef KERNELS_AMD_GROUPED_CUH
#define KERNELS_AMD_GROUPED_CUH

#include "kernels-amd/grouped_matrix.cuh"

namespace grouped
{

constexpr Kernel KERNEL_MATRIX = KERNEL_VENDOR_1;

template <typename P> static Status launch(struct Exec *ex, const char *op, const P &p)
{
    if (p.groups.bound == 0) return OK;
    if constexpr (P::KERNEL == KERNEL_MATRIX)
        return matrix_launch(ex, op, p);
    else
        return plain_launch(ex, op, p);
}

template <typename P> static int64_t dot_parts(const P &p)
{
    static_assert((int)MATRIX_PARTS == PARTS<PLAIN_THREADS>, "both kernels leave as many parts");
    return (p.n + TILE - 1) / TILE * PARTS<PLAIN_THREADS>;
}

template <Kernel KERNEL, bool INDEXES, typename F>
static inline Status by_types(bool f32, bool indexed, F run)
{
    if constexpr (KERNEL == KERNEL_PLAIN) {
        if (f32) return run(KernelTypes<float, float, float, KERNEL, true>());
    }
    if constexpr (KERNEL == KERNEL_MATRIX) {
        if (!INDEXES || !indexed) return run(KernelTypes<Bf16, Bf16, Bf16, KERNEL, false>());
    }
    if constexpr (KERNEL == KERNEL_PLAIN || INDEXES)
        return run(KernelTypes<Bf16, Bf16, Bf16, KERNEL, true>());
}

/* The same for 8-bit operands. A is e5m2 only if it is a gradient, not with FORWARD; B is e4m3. */
template <Kernel KERNEL, bool INDEXES, bool FORWARD, typename F>
static inline Status scaled_types(bool e5m2, bool f32, bool, F run)
{
    if constexpr (KERNEL == KERNEL_PLAIN) {
        if (f32) return run(KernelTypes<EightBit, EightBit, float, KERNEL, true>());
        return run(KernelTypes<EightBit, EightBit, Bf16, KERNEL, true>());
    } else {
        if constexpr (!FORWARD) {
            if (e5m2) return run(KernelTypes<E5M2Bits, E4M3Bits, Bf16, KERNEL, true>());
        }
        return run(KernelTypes<E4M3Bits, E4M3Bits, Bf16, KERNEL, true>());
    }
}

#define GROUPED_VENDOR_SCALED_KERNELS(ENTRY) ENTRY(matrix, KERNEL_MATRIX)
#define GROUPED_VENDOR_NARROW_KERNELS(ENTRY)
#define GROUPED_VENDOR_KERNELS(ENTRY) ENTRY(matrix, KERNEL_MATRIX)

} // namespace grouped

#endif
