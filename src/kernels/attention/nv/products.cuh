/*
 * products: wgmma in bf16 for attention: 64 rows, twice as many columns as a thread has sums, 16 terms. A is in
 * shared memory, or in registers: of rows l / 4 and l / 4 + 8 of lane l's warp, terms 2 (l % 4) and the next, then
 * those of both rows 8 terms later. hopper.cuh has the layout of operands and the order of calls.
 */
#ifndef KERNELS_ATTENTION_NV_PRODUCTS_CUH
#define KERNELS_ATTENTION_NV_PRODUCTS_CUH

#include "kernels/moe/nv/hopper.cuh"

namespace hopper
{

/* An operand whose neighbouring blocks of 64 columns are `apart` bytes from each other. */
static __device__ __forceinline__ uint64_t operand_at(uint32_t address, int apart)
{
    return (uint64_t)(address >> 4 & 0x3FFF) | (uint64_t)(apart >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

/* clang-format off */
#define SUMS_FIRST_32                                                                             \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                      \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SUMS_FIRST_24                                                                             \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                      \
    "%16, %17, %18, %19, %20, %21, %22, %23"
#define SUMS_24(i) SUMS_8(i), SUMS_8((i) + 8), SUMS_8((i) + 16)
#define SUMS_FIRST_40                                                                             \
    SUMS_FIRST_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define SUMS_40(i) SUMS_32(i), SUMS_8((i) + 32)
#define SUMS_FIRST_48                                                                             \
    SUMS_FIRST_32 ", "                                                                            \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define SUMS_FIRST_96                                                                             \
    SUMS_FIRST_64 ", "                                                                            \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "            \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define SUMS_32(i) SUMS_8(i), SUMS_8((i) + 8), SUMS_8((i) + 16), SUMS_8((i) + 24)
#define SUMS_48(i) SUMS_32(i), SUMS_8((i) + 32), SUMS_8((i) + 40)
#define SUMS_96(i) SUMS_64(i), SUMS_32((i) + 64)
/* clang-format on */

/* S sums of a thread, N = 2 S columns. A0 to B5: the numbers of the operands after the sums. */
#define PRODUCTS_OF(S, N, A0, A1, A2, A3, B4, B5)                                                  \
    /* c = A B, or c += A B if `add`; k runs along the rows of A, and of B unless TURN_B. */       \
    template <bool TURN_B>                                                                         \
    static __device__ __forceinline__ void product(float(&c)[S], uint64_t a, uint64_t b, int add)  \
    {                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #A2 ", 0;\n"                             \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 "                   \
                     "{" SUMS_FIRST_##S "}, %" #A0 ", %" #A1 ", p, 1, 1, 0, %" #A3 ";\n}\n"        \
                     : SUMS_##S(0)                                                                 \
                     : "l"(a), "l"(b), "r"(add), "n"(TURN_B));                                     \
    }                                                                                              \
    template <bool TURN_B>                                                                         \
    static __device__ __forceinline__ void product(float(&c)[S], const uint32_t *a, uint64_t b,    \
                                                   int add)                                        \
    {                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #B5 ", 0;\n"                             \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 "                   \
                     "{" SUMS_FIRST_##S "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B4       \
                                        ", p, 1, 1, %" PRODUCTS_TURN_##S ";\n}\n"                  \
                     : SUMS_##S(0)                                                                 \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TURN_B)); \
    }                                                                                              \
    static __device__ __forceinline__ void product_ready(float(&c)[S])                             \
    {                                                                                              \
        asm volatile("" : SUMS_##S(0)::"memory");                                                  \
    }
#define PRODUCTS_TURN_24 "30"
#define PRODUCTS_TURN_32 "38"
#define PRODUCTS_TURN_40 "46"
#define PRODUCTS_TURN_48 "54"
#define PRODUCTS_TURN_64 "70"
#define PRODUCTS_TURN_96 "102"
PRODUCTS_OF(24, 48, 24, 25, 26, 27, 28, 29)
PRODUCTS_OF(32, 64, 32, 33, 34, 35, 36, 37)
PRODUCTS_OF(40, 80, 40, 41, 42, 43, 44, 45)
PRODUCTS_OF(48, 96, 48, 49, 50, 51, 52, 53)
PRODUCTS_OF(64, 128, 64, 65, 66, 67, 68, 69)
PRODUCTS_OF(96, 192, 96, 97, 98, 99, 100, 101)
#undef PRODUCTS_OF

} // namespace hopper

#endif
