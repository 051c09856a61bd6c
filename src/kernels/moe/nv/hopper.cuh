/*
 * hopper: the instructions of sm_90a that our kernels use, one function each: barriers in shared memory that count
 * bytes (mbarrier), copies of boxes of a tensor (TMA), products of a warpgroup (wgmma), and moving registers between
 * warpgroups. Also the host's description of a tensor for TMA (tensor map).
 *
 * Operands in shared memory are blocks of 64 x 64 elements of 2 bytes, in rows of 128 bytes. In each group of 8 rows
 * (1024 bytes), chunk c (16 bytes) of row i is stored at c ^ i. TMA writes and wgmma reads this "128-byte swizzle",
 * with which 8 rows use different banks. A block begins at a multiple of 1024 bytes. Its rows are rows of the operand,
 * and k runs along them (ALONG); or they are terms of the sum, and wgmma transposes the operand. Blocks of 8-bit
 * operands have 64 x 128 elements, and k always runs along their rows.
 */
#ifndef KERNELS_MOE_NV_HOPPER_CUH
#define KERNELS_MOE_NV_HOPPER_CUH

#include "kernels/moe/grouped.cuh"

#include <cuda.h>

namespace hopper
{

/* Is this pass of the compiler for sm_90a? Kernels for it are empty in others. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
static constexpr bool COMPILED = true;
#else
static constexpr bool COMPILED = false;
#endif

enum {
    BLOCK = 64, /* rows and columns of a block */
    ROW_BYTES = 128,
    BLOCK_BYTES = BLOCK * ROW_BYTES,
    WARPGROUP = 128 /* threads */
};

/* Barriers: a phase ends when the expected number of threads, and all expected bytes, have arrived. */

static __device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

/* After barrier_init and before __syncthreads: makes the barriers known to the copy engine. */
static __device__ __forceinline__ void barriers_publish()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

static __device__ __forceinline__ void arrive_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

/* Arrives when all copies (cp.async) that this thread started before are complete. */
static __device__ __forceinline__ void arrive_after_copies(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* Waits for the end of the phase with this parity: the first phase has parity 0. */
static __device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n.reg .pred p;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again;\n}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Makes ordinary stores and cp.async visible to wgmma and the copy engine. */
static __device__ __forceinline__ void writes_to_products()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Copies a box from (x, y, z) on to shared memory; its bytes arrive at the barrier. */
static __device__ __forceinline__ void box_load(uint32_t to, const CUtensorMap *map, int x, int y,
                                                int z, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
                 : "memory");
}

/* The same in a map of rank 4 (head_map): from column x of a head and row y of a sequence on. */
static __device__ __forceinline__ void head_load(uint32_t to, const CUtensorMap *map, int x,
                                                 int head, int y, int sequence, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
                 "l"(map), "r"(x), "r"(head), "r"(y), "r"(sequence), "r"(barrier)
                 : "memory");
}

/* Copies bytes, a multiple of 16 as both addresses, which arrive at the barrier. */
static __device__ __forceinline__ void bytes_load(uint32_t to, const void *from, int bytes,
                                                  uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* The same in a map of rank 5: from (x, 0, 0, y, z) on. */
static __device__ __forceinline__ void pairs_load(uint32_t to, const CUtensorMap *map, int x, int y,
                                                  int z, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %6, %6, %3, %4}], [%5];" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "r"(0)
                 : "memory");
}

/* Prefetches a box into L2. */
static __device__ __forceinline__ void box_prefetch(const CUtensorMap *map, int x, int y, int z)
{
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map),
                 "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/* Adds a box of f32 in shared memory to the tensor from (x, y, z) on, except elements outside the
 * tensor. The thread that calls it must also wait for it (boxes_wait). */
static __device__ __forceinline__ void box_add(const CUtensorMap *map, uint32_t from, int x, int y,
                                               int z)
{
    asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group "
                 "[%0, {%1, %2, %3}], [%4];\n"
                 "cp.async.bulk.commit_group;" ::"l"(map),
                 "r"(x), "r"(y), "r"(z), "r"(from)
                 : "memory");
}
/* The same, but overwrites the tensor. */
static __device__ __forceinline__ void box_put(const CUtensorMap *map, uint32_t from, int x, int y,
                                               int z)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
                 "[%0, {%1, %2, %3}], [%4];\n"
                 "cp.async.bulk.commit_group;" ::"l"(map),
                 "r"(x), "r"(y), "r"(z), "r"(from)
                 : "memory");
}

/* Waits until at most LEFT of this thread's boxes have yet to be read from shared memory. */
template <int LEFT> static __device__ __forceinline__ void boxes_wait()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}

static __device__ __forceinline__ uint4 shared_get(uint32_t at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}
static __device__ __forceinline__ float shared_float(uint32_t at)
{
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
    return v;
}
static __device__ __forceinline__ float2 shared_floats(uint32_t at)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory");
    return v;
}
static __device__ __forceinline__ uint32_t shared_word(uint32_t at)
{
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}
static __device__ __forceinline__ uint32_t shared_short(uint32_t at)
{
    uint16_t v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at) : "memory");
    return v;
}
static __device__ __forceinline__ void word_put(uint32_t at, uint32_t v)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory");
}
static __device__ __forceinline__ void float_put(uint32_t at, float v)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
}
static __device__ __forceinline__ void shared_put(uint32_t at, float x, float y)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(x), "f"(y) : "memory");
}
static __device__ __forceinline__ void shared_put(uint32_t at, uint2 v)
{
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(at), "r"(v.x), "r"(v.y) : "memory");
}

/* Writes 16 rows x 16 results of a product, as bf16, to columns from 16 k on of a warp's buffer of 16 rows x 128
 * bytes, swizzled as above. left: this lane's results of two rows in the first 8 columns, right: in the other 8. */
static __device__ __forceinline__ void results_put(uint32_t room, int k, const float *left,
                                                   const float *right)
{
    int lane = (int)threadIdx.x % 32, row = lane % 16, chunk = k * 2 + lane / 16;
    uint32_t v[4];
    const float *from[4] = { left, left + 2, right, right + 2 };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        __nv_bfloat162 two = __floats2bfloat162_rn(from[i][0], from[i][1]);
        memcpy(&v[i], &two, sizeof two);
    }
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     room + row * ROW_BYTES + ((chunk ^ (row & 7)) << 4)),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

/* Transposes four matrices of 8 x 8 words of 16 bits: lane l has words 2 (l % 4) and the next of row
 * l / 4 of each. Lane l gives the address of the 16 bytes for column l % 8 of matrix l / 8. */
static __device__ __forceinline__ void matrices_turn(uint32_t to, const uint32_t (&v)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

/* N threads of a block wait for each other. */
template <int BARRIER, int N> static __device__ __forceinline__ void threads_meet()
{
    asm volatile("bar.sync %0, %1;" ::"n"(BARRIER), "n"(N) : "memory");
}

/* A warpgroup releases registers or gets more, so that a thread has N. */
template <int N> static __device__ __forceinline__ void registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> static __device__ __forceinline__ void registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* Products: begin, any number of multiply_add, close; then wait. Between begin and the end of the
 * wait nothing may touch the sums. */

static __device__ __forceinline__ void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void products_close()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most LEFT of the groups closed so far are unfinished. */
template <int LEFT> static __device__ __forceinline__ void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/* The descriptor with which wgmma finds an operand whose first block is at this address in shared
 * memory. Groups of 8 rows are 1024 bytes apart, neighbouring blocks BLOCK_BYTES. */
static __device__ __forceinline__ uint64_t operand_at(uint32_t address)
{
    return (uint64_t)(address >> 4 & 0x3FFF) | (uint64_t)(BLOCK_BYTES >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

/* The operands of an asm statement that are sums: their numbers, and the registers c[i] on. */
/* clang-format off */
#define SUMS_FIRST_64                                                                             \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                      \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "            \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "            \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SUMS_LAST_64                                                                              \
    "%64, %65, %66, %67, %68, %69, %70, %71, "                                                    \
    "%72, %73, %74, %75, %76, %77, %78, %79, "                                                    \
    "%80, %81, %82, %83, %84, %85, %86, %87, "                                                    \
    "%88, %89, %90, %91, %92, %93, %94, %95, "                                                    \
    "%96, %97, %98, %99, %100, %101, %102, %103, "                                                \
    "%104, %105, %106, %107, %108, %109, %110, %111, "                                            \
    "%112, %113, %114, %115, %116, %117, %118, %119, "                                            \
    "%120, %121, %122, %123, %124, %125, %126, %127"
#define SUMS_8(i)                                                                                 \
    "+f"(c[i]), "+f"(c[(i) + 1]), "+f"(c[(i) + 2]), "+f"(c[(i) + 3]), "+f"(c[(i) + 4]),           \
        "+f"(c[(i) + 5]), "+f"(c[(i) + 6]), "+f"(c[(i) + 7])
#define SUMS_64(i)                                                                                \
    SUMS_8(i), SUMS_8((i) + 8), SUMS_8((i) + 16), SUMS_8((i) + 24), SUMS_8((i) + 32),             \
        SUMS_8((i) + 40), SUMS_8((i) + 48), SUMS_8((i) + 56)
/* clang-format on */

/* c += A B for 64 rows, 128 columns, 16 terms. */
template <bool TURN_A, bool TURN_B>
static __device__ __forceinline__ void multiply_add(float (&c)[64], uint64_t a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{" SUMS_FIRST_64 "}, "
                 "%64, %65, p, 1, 1, %67, %68;\n}\n"
                 : SUMS_64(0)
                 : "l"(a), "l"(b), "r"(add), "n"(TURN_A), "n"(TURN_B));
}

/* c += A B for 64 rows, 256 columns, 16 terms. */
template <bool TURN_A, bool TURN_B>
static __device__ __forceinline__ void multiply_add(float (&c)[128], uint64_t a, uint64_t b,
                                                    int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
                 "{" SUMS_FIRST_64 ", " SUMS_LAST_64 "}, "
                 "%128, %129, p, 1, 1, %131, %132;\n}\n"
                 : SUMS_64(0), SUMS_64(64)
                 : "l"(a), "l"(b), "r"(add), "n"(TURN_A), "n"(TURN_B));
}

/* c = A B, or c += A B if `add`, for 64 rows, 128 columns, 32 terms of 8 bits; B is e4m3. */
template <bool A_E5M2>
static __device__ __forceinline__ void multiply_add_8(float (&c)[64], uint64_t a, uint64_t b,
                                                      int add)
{
    if constexpr (A_E5M2)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n128k32.f32.e5m2.e4m3 "
                     "{" SUMS_FIRST_64 "}, %64, %65, p, 1, 1;\n}\n"
                     : SUMS_64(0)
                     : "l"(a), "l"(b), "r"(add));
    else
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
                     "{" SUMS_FIRST_64 "}, %64, %65, p, 1, 1;\n}\n"
                     : SUMS_64(0)
                     : "l"(a), "l"(b), "r"(add));
}

/* The same in e4m3 with A in registers: of rows l / 4 and l / 4 + 8 of lane l's warp, terms 4 (l % 4)
 * to 4 (l % 4) + 3, then those of both rows 16 terms later. */
static __device__ __forceinline__ void multiply_add_8(float (&c)[64], const uint32_t *a, uint64_t b,
                                                      int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
                 "{" SUMS_FIRST_64 "}, {%64, %65, %66, %67}, %68, p, 1, 1;\n}\n"
                 : SUMS_64(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

/* After a wait: keeps the compiler from reading sums before it. */
static __device__ __forceinline__ void sums_ready(float (&c)[64])
{
    asm volatile("" : SUMS_64(0)::"memory");
}

} // namespace hopper

/* Host */

extern "C" {
/* Grid for a persistent kernel: min(number of multiprocessors, number of tiles). */
unsigned hopper_blocks(const struct Exec *ex, int64_t tiles);
}
/* Makes the tensor map for boxes of box_rows x 128 bytes of a tensor. pairs: rows are read in
 * groups of 8, alternately from the first and the second half of a matrix (gate and up); rows / 2
 * must be a multiple of 8. ERR_DEVICE: the driver refuses such a tensor. */
Status tensor_map(const char *op, const grouped::TensorShape &t, int box_rows, bool pairs,
                  CUtensorMap *out);
/* The same for boxes of box_rows rows x 64 columns of one head of a (B, T, heads, d) tensor in bf16.
 * Columns after the head's d are zeros; d is a multiple of 8. */
Status head_map(const char *op, const Tensor *t, int box_rows, CUtensorMap *out);

#endif
