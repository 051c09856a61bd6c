/*
 * elementwise: the kernel of add and cast. A thread handles GROUPS groups of eight elements,
 * THREADS x 8 apart, and fetches all of them before it uses any. Five types on either side would
 * need 25 kernels. Instead the kernel switches on the type at run time, once for all groups. All
 * threads take the same branch, and memory is the bound, so the switch costs nothing.
 */
#include "kernels/core/dtype.cuh"

#include "kernels/norm/elementwise.h"

enum { THREADS = 256, EACH = 8, GROUPS = 2 };

/* G groups of N elements, `step` elements apart. */
template <typename F, bool WIDE, int G, int N>
static __device__ __forceinline__ void groups_load(const void *t, int64_t i, int64_t step,
                                                   float (&v)[G][N])
{
    typename F::Code c[G][N];
#pragma unroll
    for (int g = 0; g < G; g++)
        elements_get<false, WIDE>((const typename F::Code *)t + i + g * step, c[g]);
#pragma unroll
    for (int g = 0; g < G; g++) {
#pragma unroll
        for (int k = 0; k < N; k++) v[g][k] = F::widen(c[g][k]);
    }
}

template <bool WIDE, int G, int N>
static __device__ __forceinline__ void any_load(const void *t, Dtype type, int64_t i, int64_t step,
                                                float (&v)[G][N])
{
    switch (type) {
    case DTYPE_F32: groups_load<F32, WIDE>(t, i, step, v); return;
    case DTYPE_BF16: groups_load<BF16, WIDE>(t, i, step, v); return;
    case DTYPE_F16: groups_load<F16, WIDE>(t, i, step, v); return;
    case DTYPE_E4M3: groups_load<E4M3, WIDE>(t, i, step, v); return;
    default: groups_load<E5M2, WIDE>(t, i, step, v);
    }
}

template <bool WIDE, int N>
static __device__ __forceinline__ void any_store(void *t, Dtype type, int64_t i,
                                                 const float (&v)[N])
{
    switch (type) {
    case DTYPE_F32: codes_store<F32, WIDE>(t, i, v); return;
    case DTYPE_BF16: codes_store<BF16, WIDE>(t, i, v); return;
    case DTYPE_F16: codes_store<F16, WIDE>(t, i, v); return;
    case DTYPE_E4M3: codes_store<E4M3, WIDE>(t, i, v); return;
    default: codes_store<E5M2, WIDE>(t, i, v);
    }
}

typedef struct Pair {
    const void *x;
    void *y;
    Dtype x_type, y_type;
    int64_t n;
    bool wide; /* both begin at a multiple of 16 bytes */
} Pair;

/* y = x, or y += x, for G groups of N elements. */
template <bool ADD, bool WIDE, int G, int N>
static __device__ __forceinline__ void pair_run(const Pair &p, int64_t i)
{
    const int64_t step = THREADS * EACH;
    float v[G][N];
    any_load<WIDE>(p.x, p.x_type, i, step, v);
    if (ADD) {
        float y[G][N];
        any_load<WIDE>(p.y, p.y_type, i, step, y);
#pragma unroll
        for (int g = 0; g < G; g++) {
#pragma unroll
            for (int k = 0; k < N; k++) v[g][k] = y[g][k] + v[g][k];
        }
    }
#pragma unroll
    for (int g = 0; g < G; g++) any_store<WIDE>(p.y, p.y_type, i + g * step, v[g]);
}

/* A full block moves packs. The last block, and unaligned tensors, move single elements. */
template <bool ADD> static __global__ __launch_bounds__(THREADS) void elementwise_kernel(Pair p)
{
    const int64_t block = THREADS * EACH * GROUPS, first = blockIdx.x * block;
    if (p.wide && first + block <= p.n) {
        pair_run<ADD, true, GROUPS, EACH>(p, first + threadIdx.x * EACH);
        return;
    }
    for (int64_t i = first + threadIdx.x; i < min(first + block, p.n); i += THREADS)
        pair_run<ADD, false, 1, 1>(p, i);
}

/* One flag for both sides, tested with the alignment that f32 needs. */
static Pair pair_of(const Tensor *x, const Tensor *y)
{
    Pair p = { x->data, y->data, x->dtype, y->dtype, tensor_elems(x), false };
    p.wide = packs_fit<float>({ x->data, y->data }, {});
    return p;
}

extern "C" Status elementwise_gpu(struct Exec *ex, const Elementwise *e)
{
    Pair p = pair_of(e->x, e->y);
    unsigned grid = grid_of(p.n, THREADS * EACH * GROUPS);
    if (e->adds)
        elementwise_kernel<true><<<grid, THREADS, 0, exec_stream(ex)>>>(p);
    else
        elementwise_kernel<false><<<grid, THREADS, 0, exec_stream(ex)>>>(p);
    return kernel_status(e->op);
}
