/*
 * rmsnorm: kernels of both directions. They are bound by memory: each row is read once. It stays in registers, in its
 * own type, between the sum over it and the use of that sum. Sums are f32, in an order that depends on the shape alone.
 *
 * forward: 8 to 256 threads share a row, and each has 8 packs of it (2 if the row is short). So
 * 2048 columns of bf16 are handled by one warp without a barrier, and 7168 columns by four warps. A
 * multiprocessor holds 1024 threads with 128 bytes each.
 *
 * backward: a thread has PER packs of a row and always the same columns. So their weights and their shares of dw stay
 * in registers for all rows of the block. The data of its next AHEAD rows is being copied to shared memory that only
 * this thread reads. So loads never pause, though each row waits for a sum over its threads. A row of a block waits
 * only for its own threads. A thread with few packs spends its time on the fixed cost of a row: the sum, addresses,
 * the loop. With one pack for each thread, a row of 7168 columns took 2.3 us; its bytes need 1.35 us. Threads of one
 * column add up their shares in shared memory. A block's sum goes to the workspace, and a second kernel adds up the
 * blocks. The number of blocks is a constant, not the GPU's size, so that bits are the same everywhere: two for each
 * of the 132 multiprocessors of an H200. Every GPU since sm_80 has the 96 KB of a block.
 *
 * A row that is too wide for its threads (16384 columns forward, 8192 backward, in bf16) is read twice. In backward so
 * is a row that is not aligned, and dw is then kept in the workspace. Both are correct, and slower.
 */
#include "kernels/norm/rows_add.cuh"
#include "kernels/quant/quant_made.cuh"

#include "kernels/norm/rmsnorm.h"

enum {
    FEW = 2,                      /* packs of a row that a thread holds, forward: of a short row */
    MANY = 8,                     /* of others */
    PER = 4,                      /* backward: packs of a row that a thread holds */
    AHEAD = COPIES_ASYNC ? 2 : 1, /* rows on their way for each thread */
    PACK_THREADS = 256,           /* of a block, the most */
    PACK_BLOCKS = 264,            /* two for each multiprocessor */
    SPAN_BLOCKS = 528,            /* of rows that are read twice: four */
};

/* Where the rows of a window of x lie: row i is head i % heads of token i / heads. */
struct Window {
    int64_t rows, heads, d;
    int64_t width, step; /* from token to token, from head to head */
};

static __device__ __forceinline__ int64_t x_at(const Window &w, int64_t row)
{
    return w.heads == 1 ? row * w.width : row / w.heads * w.width + row % w.heads * w.step;
}

/* step: from head to head; 0: heads lie side by side. */
static Window window_of(const Tensor &x, const Tensor &y, const Tensor &rstd, int64_t step)
{
    int64_t heads = tensor_row_elems(&rstd), d = tensor_row_elems(&y) / heads;
    return Window{ x.dim[0] * heads, heads, d, tensor_row_elems(&x), step > 0 ? step : d };
}

/* w NULL: ones. */
template <bool WIDE, int P>
static __device__ __forceinline__ void load_weight(const float *w, int64_t i, float (&out)[P])
{
    if (w != NULL) {
        load_const<WIDE>(w + i, out);
        return;
    }
#pragma unroll
    for (int k = 0; k < P; k++) out[k] = 1;
}

/* Loads the V packs of a row that a thread holds: from column `first` on, every blockDim.x-th pack. */
template <typename T, bool WIDE, int V>
static __device__ __forceinline__ void span_fetch(Packed<T, WIDE> (&v)[V], const T *row,
                                                  int64_t first, int64_t end)
{
    constexpr int P = Packed<T, WIDE>::P;
#pragma unroll
    for (int k = 0; k < V; k++) {
        int64_t col = first + (int64_t)(k * blockDim.x + threadIdx.x) * P;
        clear(v[k]);
        if (col < end) fetch_once(v[k], row + col);
    }
}

/* forward   y = x rstd w,  rstd = (mean(x^2) + eps)^-1/2 */

template <typename T> struct Forward {
    const T *x; /* first column of the window */
    const float *w;
    T *y; /* NULL: only rstd is wanted */
    float *rstd;
    Window window;
    float eps;
};

static __device__ __forceinline__ float normed(float x, float rstd, float w)
{
    return x * (rstd * w);
}

template <typename T, bool WIDE, int V>
static __global__ __launch_bounds__(ROWS_THREADS, 4) void rmsnorm_fwd_kernel(Forward<T> a)
{
    constexpr int P = Packed<T, WIDE>::P;
    __shared__ float room[BLOCK_WARPS];
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y, d = a.window.d;
    int64_t end = row < a.window.rows ? d : 0, span = (int64_t)blockDim.x * V * P;
    const T *x = a.x + x_at(a.window, row);
    Packed<T, WIDE> held[V];
    float sum = 0;
    for (int64_t first = 0; first < d; first += span) {
        span_fetch(held, x, first, end);
#pragma unroll
        for (int k = 0; k < V; k++) {
            float v[P];
            widen(held[k], v);
#pragma unroll
            for (int p = 0; p < P; p++) sum += v[p] * v[p];
        }
    }
    float rstd = 1 / sqrtf(row_sum(sum, room) / (float)d + a.eps);
    if (end > 0 && threadIdx.x == 0) a.rstd[row] = rstd;
    if (a.y == NULL) return;
    for (int64_t first = 0; first < end; first += span) {
        /* A row that its threads hold as a whole is still in their registers. */
        if (span < d) span_fetch(held, x, first, end);
#pragma unroll
        for (int k = 0; k < V; k++) {
            int64_t col = first + (int64_t)(k * blockDim.x + threadIdx.x) * P;
            if (col >= end) break;
            float v[P], w[P];
            widen(held[k], v);
            load_weight<WIDE>(a.w, col, w);
#pragma unroll
            for (int p = 0; p < P; p++) v[p] = normed(v[p], rstd, w[p]);
            store<WIDE>(a.y + row * d + col, v);
        }
    }
}

/* The smallest lanes * 2^k that is at least n, but at most ROWS_THREADS. */
static unsigned lanes_for(int64_t n, unsigned lanes)
{
    while (lanes < ROWS_THREADS && lanes < n) lanes *= 2;
    return lanes;
}

template <typename T, bool WIDE>
static void forward_launch(LaunchStream stream, const Forward<T> &f)
{
    int64_t packs = f.window.d / Packed<T, WIDE>::P;
    bool narrow = packs < 8 * MANY; /* 8 lanes of a row read a line of 128 bytes */
    unsigned lanes = lanes_for(grid_of(packs, narrow ? FEW : MANY), 8);
    dim3 block(lanes, ROWS_THREADS / lanes);
    unsigned grid = grid_of(f.window.rows, block.y);
    if (narrow)
        rmsnorm_fwd_kernel<T, WIDE, FEW><<<grid, block, 0, stream>>>(f);
    else
        rmsnorm_fwd_kernel<T, WIDE, MANY><<<grid, block, 0, stream>>>(f);
}

/* A maker of y (quant_made.cuh), for which rstd is known. */
struct MakeNormed {
    static constexpr int EACH = 4;
    const Bf16 *x; /* first column of the window */
    const float *w, *rstd;
    Window window;

    template <bool WIDE> struct Rest {
    };

    template <int P> struct Place {
        const Bf16 *x;
        const float *rstd;
        float w[P];
    };

    template <bool WIDE>
    __device__ __forceinline__ Place<Packed<Bf16, WIDE>::P> place(int64_t col) const
    {
        Place<Packed<Bf16, WIDE>::P> at;
        int64_t head = window.heads == 1 ? 0 : col / window.d;
        at.x = x + col;
        at.rstd = rstd + head;
        load_weight<WIDE>(w, col - head * window.d, at.w);
        return at;
    }

    template <int P>
    __device__ __forceinline__ const Bf16 *first(const Place<P> &at, int64_t row) const
    {
        return at.x + row * window.width;
    }
    template <int P> __device__ __forceinline__ float note(const Place<P> &at, int64_t row) const
    {
        return at.rstd[row * window.heads];
    }

    template <bool WIDE, int P>
    __device__ __forceinline__ void fetch(Rest<WIDE> &, float, const Place<P> &, int64_t) const
    {
    }

    template <bool WIDE, int P>
    __device__ __forceinline__ void compute(float (&v)[P], const Rest<WIDE> &, float rstd_of,
                                            const Place<P> &at) const
    {
#pragma unroll
        for (int k = 0; k < P; k++) v[k] = normed(v[k], rstd_of, at.w[k]);
    }
};

/* x is read again for it, which is what an absent y saves. */
static bool forward_made(const RmsnormFwd *a)
{
    Window w = window_of(a->x, a->y, a->rstd, a->x_step);
    return a->y.data == NULL && quant::made_fits(a->quant, &a->y) &&
           packs_fit<Bf16>({ tensor_at(&a->x, a->x_col), a->w.data }, { w.d, w.width });
}

extern "C" size_t rmsnorm_fwd_gpu_workspace(const struct Exec *ex, const void *args)
{
    const RmsnormFwd *a = (const RmsnormFwd *)args;
    return forward_made(a) ? 0 : quant_out_gpu_workspace(ex, &a->quant, &a->y);
}

static Status forward_run(struct Exec *ex, const RmsnormFwd *a, void *y)
{
    Window window = window_of(a->x, a->y, a->rstd, a->x_step);
    const void *x = tensor_at(&a->x, a->x_col), *w = a->w.data;
    return launch_packed(ex, "rmsnorm_fwd", a->x.dtype, { x, w, y },
                         { window.d, window.width, window.step }, [&](auto t, auto wide) {
                             typedef decltype(t) T;
                             Forward<T> f = {};
                             f.x = (const T *)x;
                             f.w = (const float *)w;
                             f.y = (T *)y;
                             f.rstd = (float *)a->rstd.data;
                             f.window = window;
                             f.eps = a->eps;
                             forward_launch<T, wide>(exec_stream(ex), f);
                         });
}

extern "C" Status rmsnorm_fwd_gpu(struct Exec *ex, const void *args)
{
    const RmsnormFwd *a = (const RmsnormFwd *)args;
    void *space = exec_workspace(ex);
    Tensor y = quant_out_open(&a->quant, a->y, space);
    if (forward_made(a)) {
        TRY(forward_run(ex, a, NULL));
        return quant::made_run(ex, "rmsnorm_fwd", a->quant, &a->y,
                               MakeNormed{ (const Bf16 *)tensor_at(&a->x, a->x_col),
                                           (const float *)a->w.data, (const float *)a->rstd.data,
                                           window_of(a->x, a->y, a->rstd, a->x_step) });
    }
    TRY(forward_run(ex, a, y.data));
    return quant_out_gpu(ex, &a->quant, &y, space);
}

/* backward, g = dy w   dx = dres + rstd (g - x rstd^2 mean(g x)),  dw += sum of dy x rstd */

template <typename T> struct Backward {
    const T *dy, *x; /* x, dx: first column of the window */
    const float *w, *rstd;
    const T *dres; /* or NULL; may be dx */
    T *dx;
    float *part; /* a row of d for each block; NULL: dw is not wanted */
    Window window;
};

/* Where a row of the window begins in dy and dres, and in x and dx; `known`: there is one. */
struct Row {
    int64_t at, x;
    bool known;
};

static __device__ __forceinline__ Row row_of(const Window &w, int64_t row)
{
    return row < w.rows ? Row{ row * w.d, x_at(w, row), true } : Row{ 0, 0, false };
}

/* Layout of shared memory: for each of AHEAD rows, the terms dy, x and dres; for each term PER
 * packs of every thread. */
enum { DY, X, DRES, TERMS, ROW_PACKS = TERMS * PER * PACK_THREADS };

static __device__ __forceinline__ int pack_at(int term, int k)
{
    return (term * PER + k) * PACK_THREADS;
}

/* Starts copies of pack k of a row at column col; zeros if there is none. */
template <typename T>
static __device__ __forceinline__ void pack_ask(const Backward<T> &a, Packed<T, true> *to, int k,
                                                const Row &r, int64_t col)
{
    bool inside = r.known && col < a.window.d;
    int64_t c = inside ? col : 0;
    copy_chunk(shared_address(to + pack_at(DY, k)), a.dy + r.at + c, inside);
    copy_chunk(shared_address(to + pack_at(X, k)), a.x + r.x + c, inside);
    if (a.dres == NULL) return;
    copy_chunk(shared_address(to + pack_at(DRES, k)), a.dres + r.at + c, inside);
}

/* Writes the block's row of the workspace: for each column the sum of the threads' shares, in order. */
template <int P>
static __device__ __forceinline__ void shares_join(float *shares, const float (&dw)[PER][P],
                                                   float *part, int64_t d)
{
    int lanes = (int)blockDim.x, columns = lanes * PER * P;
#pragma unroll
    for (int k = 0; k < PER; k++) {
        int col = (k * lanes + (int)threadIdx.x) * P;
#pragma unroll
        for (int p = 0; p < P; p++) shares[(int)threadIdx.y * columns + col + p] = dw[k][p];
    }
    __syncthreads();
    for (int c = (int)threadIdx.y * lanes + (int)threadIdx.x; c < d; c += lanes * (int)blockDim.y) {
        float sum = 0;
        for (int y = 0; y < (int)blockDim.y; y++) sum += shares[y * columns + c];
        part[c] = sum;
    }
}

/* Rows of up to PER * PACK_THREADS packs.
 *
 * The loop over rows counts the block's first row, so all threads of a block take the same number of
 * turns, as row_sum needs. Those whose row is past the end work on zeros. `turn` alternates two
 * rooms for sums, so that no thread writes a sum that another still reads. */
template <typename T>
static __global__ __launch_bounds__(PACK_THREADS, 2) void rmsnorm_bwd_kernel(Backward<T> a)
{
    constexpr int P = PACK<T>;
    extern __shared__ uint4 pack_room[];
    __shared__ float room[2][BLOCK_WARPS];
    Packed<T, true> *packs = (Packed<T, true> *)pack_room + threadIdx.y * blockDim.x + threadIdx.x;
    int64_t d = a.window.d, col[PER], last = a.window.rows - 1;
    int64_t step = (int64_t)gridDim.x * blockDim.y, top = (int64_t)blockIdx.x * blockDim.y;
    int64_t row = top + threadIdx.y;
    float w[PER][P] = {}, dw[PER][P] = {}, next_rstd = a.rstd[min(row, last)];
#pragma unroll
    for (int k = 0; k < PER; k++) {
        col[k] = (int64_t)(k * blockDim.x + threadIdx.x) * P;
        if (col[k] < d) load_weight<true>(a.w, col[k], w[k]);
    }
    for (int i = 0; i < AHEAD; i++) {
        Row r = row_of(a.window, row + i * step);
        for (int k = 0; k < PER; k++) pack_ask(a, packs + i * ROW_PACKS, k, r, col[k]);
        copies_close();
    }
    for (int turn = 0, place = 0; top < a.window.rows; top += step, row += step, turn ^= 1) {
        Packed<T, true> *mine = packs + place * ROW_PACKS;
        float sum = 0, rstd = next_rstd;
        Row here = row_of(a.window, row), later = row_of(a.window, row + AHEAD * step);
        next_rstd = a.rstd[min(row + step, last)];
        copies_wait<AHEAD - 1>();
#pragma unroll
        for (int k = 0; k < PER; k++) {
            float dy[P], x[P];
            widen(mine[pack_at(DY, k)], dy);
            widen(mine[pack_at(X, k)], x);
#pragma unroll
            for (int p = 0; p < P; p++) {
                float both = dy[p] * x[p];
                sum += w[k][p] * both;
                dw[k][p] += both * rstd;
            }
        }
        float shrink = row_sum<true>(sum, room[turn]) / (float)d * rstd * rstd * rstd;
#pragma unroll
        for (int k = 0; k < PER; k++) {
            float dy[P], x[P], dx[P] = {};
            widen(mine[pack_at(DY, k)], dy);
            widen(mine[pack_at(X, k)], x);
            if (a.dres != NULL) widen(mine[pack_at(DRES, k)], dx);
            /* Values of this pack are in registers now, and no other thread reads its place. */
            pack_ask(a, mine, k, later, col[k]);
#pragma unroll
            for (int p = 0; p < P; p++) dx[p] += rstd * w[k][p] * dy[p] - shrink * x[p];
            if (here.known && col[k] < d) store<true>(a.dx + here.x + col[k], dx);
        }
        copies_close();
        place = place + 1 < AHEAD ? place + 1 : 0;
    }
    if (a.part == NULL) return;
    copies_wait<0>();
    __syncthreads(); /* nothing is on its way to where shares are joined */
    shares_join((float *)pack_room, dw, a.part + blockIdx.x * d, d);
}

/* Rows that rmsnorm_bwd_kernel cannot handle; a block handles one row at a time. */
template <typename T>
static __global__ __launch_bounds__(ROWS_THREADS) void rmsnorm_bwd_span_kernel(Backward<T> a)
{
    __shared__ float room[2][BLOCK_WARPS];
    int64_t d = a.window.d;
    int turn = 0;
    for (int64_t row = blockIdx.x; row < a.window.rows; row += gridDim.x, turn ^= 1) {
        Row r = row_of(a.window, row);
        float rstd = a.rstd[row], sum = 0, dy[1], x[1], w[1], dx[1];
        for (int64_t col = threadIdx.x; col < d; col += blockDim.x) {
            load<false>(a.dy + r.at + col, dy);
            load<false>(a.x + r.x + col, x);
            load_weight<false>(a.w, col, w);
            sum += w[0] * dy[0] * x[0];
        }
        float shrink = row_sum(sum, room[turn]) / (float)d * rstd * rstd * rstd;
        for (int64_t col = threadIdx.x; col < d; col += blockDim.x) {
            load<false>(a.dy + r.at + col, dy);
            load<false>(a.x + r.x + col, x);
            load_weight<false>(a.w, col, w);
            dx[0] = a.dres == NULL ? 0 : to_f32(a.dres[r.at + col]);
            dx[0] += rstd * w[0] * dy[0] - shrink * x[0];
            store<false>(a.dx + r.x + col, dx);
            if (a.part == NULL) continue;
            /* The block's first row overwrites what the workspace held. Each thread meets only its own columns. */
            float *part = a.part + blockIdx.x * d + col;
            *part = (row < gridDim.x ? 0 : *part) + dy[0] * x[0] * rstd;
        }
    }
}

/* An upper bound of the number of blocks of a launch, for any alignment. */
static int64_t most_blocks(int64_t rows)
{
    return rows < SPAN_BLOCKS ? rows : (int64_t)SPAN_BLOCKS;
}

extern "C" size_t rmsnorm_bwd_gpu_workspace(const struct Exec *, const void *args)
{
    const RmsnormBwd *a = (const RmsnormBwd *)args;
    if (a->dw.data == NULL) return 0;
    Window w = window_of(a->x, a->dy, a->rstd, a->x_step);
    return (size_t)(most_blocks(w.rows) * w.d) * sizeof(float);
}

/* Launches the kernel and sets *blocks to the number of its blocks. */
template <typename T>
static Status packs_launch(LaunchStream stream, const Backward<T> &b, unsigned *blocks)
{
    unsigned threads = grid_of(b.window.d / PACK<T>, PER);
    dim3 block(threads <= WARP ? lanes_for(threads, 4) : grid_of(threads, WARP) * WARP);
    block.y = PACK_THREADS / block.x; /* 4 at most of whole warps: row_sum has barriers for 15 */
    *blocks = grid_of(b.window.rows, block.y);
    if (*blocks > PACK_BLOCKS) *blocks = PACK_BLOCKS;
    size_t bytes = AHEAD * ROW_PACKS * sizeof(Packed<T, true>);
    TRY(kernel_shared("rmsnorm_bwd", rmsnorm_bwd_kernel<T>, bytes));
    rmsnorm_bwd_kernel<T><<<*blocks, block, bytes, stream>>>(b);
    return OK;
}

template <typename T, bool WIDE>
static Status backward_launch(LaunchStream stream, const Backward<T> &b, unsigned *blocks)
{
    if constexpr (WIDE) {
        if (b.window.d / PACK<T> <= PER * PACK_THREADS) return packs_launch(stream, b, blocks);
    }
    *blocks = (unsigned)most_blocks(b.window.rows);
    rmsnorm_bwd_span_kernel<T><<<*blocks, lanes_for(b.window.d, WARP), 0, stream>>>(b);
    return OK;
}

extern "C" Status rmsnorm_bwd_gpu(struct Exec *ex, const void *args)
{
    const RmsnormBwd *a = (const RmsnormBwd *)args;
    Window window = window_of(a->x, a->dy, a->rstd, a->x_step);
    const void *dy = a->dy.data, *x = tensor_at(&a->x, a->x_col), *w = a->w.data;
    const void *dres = a->dres.data;
    void *dx = tensor_at(&a->dx, a->x_col);
    float *part = a->dw.data != NULL ? (float *)exec_workspace(ex) : NULL;
    Status launched = OK;
    unsigned blocks = 0;
    /* A grid without blocks is an error in CUDA, and dw gets nothing from no rows. */
    if (window.rows == 0) return OK;
    Status s = launch_packed(ex, "rmsnorm_bwd", a->x.dtype, { dy, x, w, dres, dx, part },
                             { window.d, window.width, window.step }, [&](auto t, auto wide) {
                                 typedef decltype(t) T;
                                 Backward<T> b = {};
                                 b.dy = (const T *)dy;
                                 b.x = (const T *)x;
                                 b.w = (const float *)w;
                                 b.dres = (const T *)dres;
                                 b.rstd = (const float *)a->rstd.data;
                                 b.dx = (T *)dx;
                                 b.part = part;
                                 b.window = window;
                                 launched = backward_launch<T, wide>(exec_stream(ex), b, &blocks);
                             });
    TRY(launched);
    TRY(s);
    if (part == NULL) return OK;
    rows_add_kernel<<<grid_of(window.d, ADD_SIDE), dim3(ADD_SIDE, ADD_SIDE), 0, exec_stream(ex)>>>(
        part, (float *)a->dw.data, blocks, window.d);
    return kernel_status("rmsnorm_bwd");
}
