/* mma: products of 16 x 8 x 16 in bf16 by a warp, for sm_80 and later, and how their operands leave shared memory. */
#ifndef KERNELS_CORE_NV_MMA_CUH
#define KERNELS_CORE_NV_MMA_CUH

#include "engine/gpu/lane.cuh"

namespace mma
{

/* Four 8 x 8 squares; lane l gives the address of row l % 8 of square l / 8. TURN: each square is
 * transposed on the way. */
template <bool TURN>
static __device__ __forceinline__ void squares_load(uint32_t at, uint32_t &a, uint32_t &b,
                                                    uint32_t &c, uint32_t &d)
{
    if constexpr (TURN)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "r"(at)
                     : "memory");
}

/* c += A (16 x 16) B (16 x 8). Lane l has of c rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next. */
static __device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4],
                                                    uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

} // namespace mma

#endif
