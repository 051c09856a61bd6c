/*
 * delta_norm: kernels of the gated norm of each head, bound by memory. Up to LANES threads share a head of a row. They
 * read it twice, the second time from the cache. Backward: a block sums its heads' parts of dw, a thread always the same
 * columns; a second kernel adds blocks up.
 */
#include "kernels/norm/rows_add.cuh"

#include "kernels/delta/delta_call.cuh"

#include "engine/gpu/fast_math.cuh"

enum {
    LANES = 32,
    THREADS = 256,
    HEADS = 128 /* heads of rows whose parts of dw one block sums */
};

template <typename T> struct Norm {
    DeltaShape s;
    const T *o, *x;
    const float *w;
    T *y; /* backward: read as dy */
    T *d_o, *dx;
    float *part;
    float eps;
};

/* The first element of z in x, of head i % H of row i / H. */
static __device__ __forceinline__ int64_t z_of(const DeltaShape &s, int64_t i)
{
    int64_t head = i % s.heads;
    return i / s.heads * s.x_cols + head / s.shared * s.head_cols + 2 * s.key +
           (s.shared + head % s.shared) * s.value;
}

/* 1 / the root mean square of a head, in all its threads. */
template <bool WIDE, typename T>
static __device__ __forceinline__ float inverse_rms(const Norm<T> &a, const T *o, bool there,
                                                    float *room)
{
    constexpr int P = Packed<T, WIDE>::P;
    float sum = 0;
    for (int c = (int)threadIdx.x * P; there && c < a.s.value; c += (int)blockDim.x * P) {
        float v[P];
        load_const<WIDE>(o + c, v);
#pragma unroll
        for (int p = 0; p < P; p++) sum += v[p] * v[p];
    }
    return 1 / sqrtf(row_sum(sum, room) / (float)a.s.value + a.eps);
}

template <typename T, bool WIDE>
static __global__ __launch_bounds__(THREADS) void delta_norm_fwd_kernel(Norm<T> a)
{
    constexpr int P = Packed<T, WIDE>::P;
    __shared__ float room[BLOCK_WARPS];
    int64_t i = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    bool there = i < a.s.rows * a.s.heads;
    const T *o = a.o + i * a.s.value, *z = a.x + (there ? z_of(a.s, i) : 0);
    float rstd = inverse_rms<WIDE>(a, o, there, room);
    for (int c = (int)threadIdx.x * P; there && c < a.s.value; c += (int)blockDim.x * P) {
        float v[P], gate[P], w[P];
        load_const<WIDE>(o + c, v);
        load_const<WIDE>(z + c, gate);
        load_const<WIDE>(a.w + c, w);
#pragma unroll
        for (int p = 0; p < P; p++) v[p] *= rstd * w[p] * gate[p] * sigmoid_for<T>(gate[p]);
        store<WIDE>(a.y + i * a.s.value + c, v);
    }
}

/* With n = o rstd and s = sigmoid(z): dw += dy n z s, dz = dy n w s (1 + z (1 - s)), g = dy w z s,
 * do = rstd (g - n mean(g n)). V packs of a head for each thread; d_o may be dy, so both are read first. */
template <typename T, bool WIDE, int V>
static __device__ __forceinline__ void pull_head(const Norm<T> &a, int64_t i, bool there,
                                                 float (&dw)[V][Packed<T, WIDE>::P], float *room)
{
    constexpr int P = Packed<T, WIDE>::P;
    const T *o = a.o + i * a.s.value, *dy = a.y + i * a.s.value;
    int64_t z = there ? z_of(a.s, i) : 0;
    float rstd = inverse_rms<WIDE>(a, o, there, room), g[V][P] = {}, n[V][P] = {}, mean = 0;
#pragma unroll
    for (int k = 0; k < V; k++) {
        int c = (int)(k * blockDim.x + threadIdx.x) * P;
        float gate[P], w[P], d[P], dz[P];
        if (!there || c >= a.s.value) continue;
        load_const<WIDE>(o + c, n[k]);
        load<WIDE>(dy + c, d);
        load_const<WIDE>(a.x + z + c, gate);
        load_const<WIDE>(a.w + c, w);
#pragma unroll
        for (int p = 0; p < P; p++) {
            float s = sigmoid_for<T>(gate[p]);
            n[k][p] *= rstd;
            dw[k][p] += d[p] * n[k][p] * gate[p] * s;
            dz[p] = d[p] * n[k][p] * w[p] * s * (1 + gate[p] * (1 - s));
            g[k][p] = d[p] * w[p] * gate[p] * s;
            mean += g[k][p] * n[k][p];
        }
        store<WIDE>(a.dx + z + c, dz);
    }
    mean = row_sum(mean, room + BLOCK_WARPS) / (float)a.s.value;
#pragma unroll
    for (int k = 0; k < V; k++) {
        int c = (int)(k * blockDim.x + threadIdx.x) * P;
        if (!there || c >= a.s.value) continue;
#pragma unroll
        for (int p = 0; p < P; p++) g[k][p] = rstd * (g[k][p] - n[k][p] * mean);
        store<WIDE>(a.d_o + i * a.s.value + c, g[k]);
    }
}

template <typename T, bool WIDE, int V>
static __global__ __launch_bounds__(THREADS) void delta_norm_bwd_kernel(Norm<T> a)
{
    constexpr int P = Packed<T, WIDE>::P;
    __shared__ float room[2 * BLOCK_WARPS], sums[DELTA_WIDTH_MAX];
    float dw[V][P] = {};
    int64_t end = min((int64_t)(blockIdx.x + 1) * HEADS, a.s.rows * a.s.heads);
    for (int64_t first = (int64_t)blockIdx.x * HEADS; first < end; first += blockDim.y)
        pull_head<T, WIDE, V>(a, first + threadIdx.y, first + threadIdx.y < end, dw, room);
    for (unsigned y = 0; y < blockDim.y; y++) { /* one after the other: one order */
        for (int k = 0; k < V * P && threadIdx.y == y; k++) {
            int c = (int)(k / P * blockDim.x + threadIdx.x) * P + k % P;
            if (c < a.s.value) sums[c] = (y == 0 ? 0 : sums[c]) + dw[k / P][k % P];
        }
        __syncthreads();
    }
    int id = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    for (int c = id; c < a.s.value; c += THREADS) a.part[blockIdx.x * a.s.value + c] = sums[c];
}

template <typename T> static Norm<T> norm_of(const DeltaNormFwd *f)
{
    Norm<T> a = {};
    Tensor none = {};
    const int64_t first[2] = {};
    a.s = delta_shape(&f->x, &f->o, &none, &f->dims, 1, first);
    a.o = (const T *)f->o.data, a.x = (const T *)f->x.data, a.w = (const float *)f->w.data;
    a.y = (T *)f->y.data, a.eps = f->eps;
    return a;
}

template <typename F>
static Status launch_norm(struct Exec *ex, const DeltaNormFwd *f, const void *d_o, const void *dx,
                          F run)
{
    const DeltaDims *d = &f->dims;
    return launch_packed(ex, "delta_norm", f->x.dtype,
                         { f->o.data, f->x.data, f->w.data, f->y.data, d_o, dx },
                         { d->key, d->value, delta_x_cols(d) }, run);
}

/* Threads along a head: a power of two, so that row_sum takes them. */
static dim3 block_of(int64_t packs)
{
    unsigned lanes = 1;
    while (lanes < LANES && lanes < packs) lanes *= 2;
    return dim3(lanes, THREADS / lanes);
}

extern "C" Status delta_norm_fwd_gpu(struct Exec *ex, const void *args)
{
    const DeltaNormFwd *f = (const DeltaNormFwd *)args;
    return launch_norm(ex, f, f->o.data, f->o.data, [&](auto t, auto wide) {
        typedef decltype(t) T;
        Norm<T> a = norm_of<T>(f);
        dim3 block = block_of(a.s.value / Packed<T, wide>::P);
        delta_norm_fwd_kernel<T, wide>
            <<<grid_of(a.s.rows * a.s.heads, block.y), block, 0, exec_stream(ex)>>>(a);
    });
}

static int64_t blocks_of(const DeltaNormFwd *f)
{
    return grid_of(f->x.dim[0] * f->dims.heads, HEADS);
}

extern "C" size_t delta_norm_bwd_gpu_workspace(const struct Exec *, const void *args)
{
    const DeltaNormFwd *f = &((const DeltaNormBwd *)args)->of;
    return (size_t)(blocks_of(f) * f->dims.value) * sizeof(float);
}

extern "C" Status delta_norm_bwd_gpu(struct Exec *ex, const void *args)
{
    const DeltaNormBwd *b = (const DeltaNormBwd *)args;
    float *part = (float *)exec_workspace(ex);
    int64_t blocks = blocks_of(&b->of), cols = b->of.dims.value;
    TRY(launch_norm(ex, &b->of, b->d_o.data, b->dx.data, [&](auto t, auto wide) {
        typedef decltype(t) T;
        constexpr int P = Packed<T, wide>::P, MOST = DELTA_WIDTH_MAX / (LANES * P);
        Norm<T> a = norm_of<T>(&b->of);
        dim3 block = block_of(cols / P);
        a.d_o = (T *)b->d_o.data, a.dx = (T *)b->dx.data, a.part = part;
        if (cols <= LANES * P)
            delta_norm_bwd_kernel<T, wide, 1><<<(unsigned)blocks, block, 0, exec_stream(ex)>>>(a);
        else
            delta_norm_bwd_kernel<T, wide, MOST>
                <<<(unsigned)blocks, block, 0, exec_stream(ex)>>>(a);
    }));
    if (b->dw.data == NULL) return OK;
    rows_add_kernel<<<grid_of(cols, ADD_SIDE), dim3(ADD_SIDE, ADD_SIDE), 0, exec_stream(ex)>>>(
        part, (float *)b->dw.data, blocks, cols);
    return kernel_status("delta_norm_bwd");
}
