/*
 * warp: a block of CUDA threads on the CPU, so that a kernel's own source runs where there is no GPU. It stands for
 * engine/gpu/lane.cuh, kernels/core/kernel.cuh and pack.cuh, and kernels/core/nv/mma.cuh: a test includes it before
 * the kernel's header.
 *
 * Each thread is a fiber, which goes on to the next where it waits: for its warp at exchanges of lanes, ldmatrix and
 * mma, for its block at __syncthreads. ldmatrix and mma.sync do what PTX says of them, so the layouts of operands are
 * looked at, too. cp.async is a copy: a missing wait for one is not seen. For x86-64.
 */
#ifndef TESTS_KERNELS_WARP_WARP_CUH
#define TESTS_KERNELS_WARP_WARP_CUH

#define ENGINE_GPU_LANE_CUH
#define ENGINE_GPU_FAST_MATH_CUH
#define KERNELS_CORE_KERNEL_CUH
#define KERNELS_CORE_PACK_CUH
#define KERNELS_CORE_NV_MMA_CUH

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

using std::max;
using std::min;

#define __device__
#define __host__
#define __forceinline__ inline
#define __global__
#define __shared__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n)

typedef uint16_t Bf16;
struct uint4 {
    uint32_t x, y, z, w;
};
struct float2 {
    float x, y;
};
struct __nv_bfloat162 {
    Bf16 x, y;
};

static inline Bf16 bf16_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return 0x7FFF;
    return (Bf16)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static inline float bf16_widen(Bf16 h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline Bf16 bf16_narrow(float f) { return bf16_of(f); }

static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
    return { bf16_of(a), bf16_of(b) };
}

/* ---- fibers ---- */

enum { WARP = 32, WARPS_MOST = 16, THREADS_MOST = WARPS_MOST * WARP, STACK_BYTES = 1 << 17 };
enum { SHARED_BYTES = 1 << 18 };

/* Saves what a call keeps, and the stack, at *save; goes on at another stack. */
extern "C" void warp_switch(void **save, void *to);
asm("warp_switch:\n"
    " push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    " mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
    " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");

typedef struct Barrier {
    int count, turn;
} Barrier;

typedef struct Dim {
    unsigned x, y;
} Dim;

static struct Block {
    Dim block;
    int threads, now;
    bool ended[THREADS_MOST];
    void *stack[THREADS_MOST], *caller;
    void (*run)(const void *of);
    const void *of;
    Barrier of_warp[WARPS_MOST], of_block;
    uint32_t box[WARPS_MOST][WARP][6]; /* what lanes show each other */
} block;

alignas(1024) static unsigned char shared_memory[SHARED_BYTES];
alignas(64) static unsigned char fiber_stacks[THREADS_MOST][STACK_BYTES];

#define threadIdx (Dim{ (unsigned)block.now, 0 })
#define blockIdx  block.block

static inline int next_fiber(void)
{
    int n = block.now;
    do n = (n + 1) % block.threads;
    while (block.ended[n] && n != block.now);
    return n;
}

static inline void wait_at(Barrier *b, int threads)
{
    int turn = b->turn;
    if (++b->count == threads) {
        b->count = 0;
        b->turn++;
    }
    while (b->turn == turn) {
        int from = block.now, to = next_fiber();
        block.now = to;
        warp_switch(&block.stack[from], block.stack[to]);
    }
}

static void fiber(void)
{
    void *nowhere;
    block.run(block.of);
    block.ended[block.now] = true;
    int to = next_fiber();
    bool last = block.ended[to];
    block.now = to;
    warp_switch(&nowhere, last ? block.caller : block.stack[to]);
    abort();
}

/* Runs a block of threads: each calls run(of). */
static inline void run_block(Dim at, int threads, void (*run)(const void *of), const void *of)
{
    block.block = at;
    block.threads = threads, block.now = 0;
    block.run = run, block.of = of;
    for (int i = 0; i < threads; i++) {
        void **top = (void **)(fiber_stacks[i] + STACK_BYTES - 64);
        *--top = NULL; /* a call leaves the stack so */
        *--top = (void *)fiber;
        top -= 6;
        block.stack[i] = top;
        block.ended[i] = false;
    }
    warp_switch(&block.caller, block.stack[0]);
}

/* ---- lanes ---- */

#define ALL_LANES 0xFFFFFFFFu

static inline int lane_here(void) { return block.now % WARP; }
static inline uint32_t (&boxes(void))[WARP][6] { return block.box[block.now / WARP]; }
static inline void __syncwarp(void) { wait_at(&block.of_warp[block.now / WARP], WARP); }
static inline void __syncthreads(void) { wait_at(&block.of_block, block.threads); }

static inline float lane_get_xor(float v, int bits)
{
    float got;
    memcpy(boxes()[lane_here()], &v, sizeof v);
    __syncwarp();
    memcpy(&got, boxes()[lane_here() ^ bits], sizeof got);
    __syncwarp();
    return got;
}

enum { BLOCK_WARPS = 32 };

/* That of kernel.cuh. */
static inline float block_sum(float v, float *room)
{
    for (int bits = WARP / 2; bits > 0; bits /= 2) v += lane_get_xor(v, bits);
    if (lane_here() == 0) room[block.now / WARP] = v;
    __syncthreads();
    v = 0;
    for (int i = 0; i < block.threads / WARP; i++) v += room[i];
    __syncthreads();
    return v;
}

static inline int lanes_fold(int v, bool most)
{
    boxes()[lane_here()][0] = (uint32_t)v;
    __syncwarp();
    for (int i = 0; i < WARP; i++) {
        int other = (int)boxes()[i][0];
        v = most ? max(v, other) : min(v, other);
    }
    __syncwarp();
    return v;
}

static inline int __reduce_max_sync(unsigned, int v) { return lanes_fold(v, true); }
static inline int __reduce_min_sync(unsigned, int v) { return lanes_fold(v, false); }

static inline uint32_t shared_address(const void *at)
{
    return (uint32_t)((const unsigned char *)at - shared_memory);
}

static inline void copy_chunk(uint32_t to, const void *from, bool inside)
{
    memset(shared_memory + to, 0, 16);
    if (inside) memcpy(shared_memory + to, from, 16);
}
static inline void copies_close(void) {}
template <int LEFT> static inline void copies_wait(void) {}

static inline float fast_exp2(float x) { return exp2f(x); }

template <bool WIDE, int N> static inline void load_const(const Bf16 *from, float (&out)[N])
{
    for (int i = 0; i < N; i++) out[i] = bf16_widen(from[i]);
}

/* ---- matrix units ---- */

namespace mma
{

/* ldmatrix.x4: square m is made of the rows at the addresses of lanes 8 m to 8 m + 7. */
template <bool TURN>
static inline void squares_load(uint32_t at, uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d)
{
    uint32_t *out[] = { &a, &b, &c, &d };
    int across = lane_here() / 4, along = lane_here() % 4 * 2;
    boxes()[lane_here()][0] = at;
    __syncwarp();
    for (int m = 0; m < 4; m++) {
        Bf16 two[2];
        for (int i = 0; i < 2; i++) {
            int row = TURN ? along + i : across, column = TURN ? across : along + i;
            memcpy(&two[i], shared_memory + boxes()[8 * m + row][0] + 2 * column, sizeof *two);
        }
        memcpy(out[m], two, sizeof two);
    }
    __syncwarp();
}

static inline float half_of(uint32_t pair, int i) { return bf16_widen((Bf16)(pair >> 16 * i)); }

/* mma.m16n8k16: register r of A has rows 8 (r % 2), terms 8 (r / 2); of B terms 8 r. */
static inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    uint32_t *own = boxes()[lane_here()];
    memcpy(own, a, sizeof a);
    own[4] = b0, own[5] = b1;
    __syncwarp();
    for (int i = 0; i < 4; i++) {
        int row = lane_here() / 4 + i / 2 * 8, column = lane_here() % 4 * 2 + i % 2;
        for (int k = 0; k < 16; k++) {
            uint32_t left = boxes()[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
            uint32_t right = boxes()[column * 4 + k % 8 / 2][4 + k / 8];
            c[i] += half_of(left, k % 2) * half_of(right, k % 2);
        }
    }
    __syncwarp();
}

} // namespace mma

#endif
