/*
 * elementwise: add and cast. Eight elements a thread. Five types on either side would be 25
 * kernels: the type is asked for at run time instead, once per eight elements and the same way by
 * all threads, which costs nothing beside the memory that bounds both ops.
 */
#include "op/dtype.cuh"

#include "op/elementwise.h"

enum { THREADS = 256, EACH = 8 };

template <bool WIDE, int N>
static __device__ __forceinline__ void any_load(const void *t, Dtype type, int64_t i, float (&v)[N])
{
    switch (type) {
    case DTYPE_F32: codes_load<F32, WIDE>(t, i, v); return;
    case DTYPE_BF16: codes_load<BF16, WIDE>(t, i, v); return;
    case DTYPE_F16: codes_load<F16, WIDE>(t, i, v); return;
    case DTYPE_E4M3: codes_load<E4M3, WIDE>(t, i, v); return;
    default: codes_load<E5M2, WIDE>(t, i, v);
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

/* y = x, or y += x, for N elements. */
template <bool ADD, bool WIDE, int N>
static __device__ __forceinline__ void pair_run(const Pair &p, int64_t i)
{
    float v[N];
    any_load<WIDE>(p.x, p.x_type, i, v);
    if (ADD) {
        float y[N];
        any_load<WIDE>(p.y, p.y_type, i, y);
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = y[k] + v[k];
    }
    any_store<WIDE>(p.y, p.y_type, i, v);
}

template <bool ADD> static __global__ void elementwise_kernel(Pair p)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH;
    if (p.wide && i + EACH <= p.n) {
        pair_run<ADD, true, EACH>(p, i);
        return;
    }
    for (int64_t end = min(i + EACH, p.n); i < end; i++) pair_run<ADD, false, 1>(p, i);
}

static Pair pair_of(const Tensor *x, const Tensor *y)
{
    Pair p = { x->data, y->data, x->dtype, y->dtype, tensor_elems(x), false };
    p.wide = packs_fit<float>({ x->data, y->data }, {});
    return p;
}

extern "C" Status elementwise_cuda(struct Exec *ex, const Elementwise *e)
{
    Pair p = pair_of(e->x, e->y);
    unsigned grid = grid_of(p.n, THREADS * EACH);
    if (e->adds)
        elementwise_kernel<true><<<grid, THREADS, 0, exec_stream(ex)>>>(p);
    else
        elementwise_kernel<false><<<grid, THREADS, 0, exec_stream(ex)>>>(p);
    return kernel_status(e->op);
}
