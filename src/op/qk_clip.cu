/*
 * qk_clip: kernels of qk_max and qk_clip. Both are launched every step and have nothing to do in most:
 * a block looks at the lse of its rows, or at the maxima of its row's heads, and ends.
 *
 * qk_max: a block owns ROWS queries of one head. It walks the keys that any of them sees, ROWS at a
 * time, and multiplies pieces of DEPTH columns in shared memory: by multiply-adds in f32 for all types,
 * since tensor cores are not worth their code in what is rare. The maximum over blocks is one of
 * integers: numbers above 0 have the order of their bits, and a maximum is the same in any order.
 */
#include "op/pack.cuh"

extern "C" {
#include "op/attention.h"
#include "op/qk_clip.h"
}

static const int ROWS = 64, DEPTH = 32, SIDE = 16, EACH = ROWS / SIDE, THREADS = SIDE * SIDE;

template <typename T> struct Scan {
    const T *q, *k;
    const int32_t *doc; /* NULL: every row sees the first key */
    const float *lse;
    float *max;
    AttentionPieces pieces;
    int64_t Tq, Tk, window, chunk, blocks; /* blocks: of a head */
    int H, G, d;
    float scale, above;
};

/* A piece of both operands, turned: columns of a row stand ROWS + 1 floats apart, so that neither the
 * threads that load a row nor those that read a column meet in a bank. first, last: keys that a row sees. */
struct Room {
    float q[DEPTH][ROWS + 1], k[DEPTH][ROWS + 1];
    int64_t first[ROWS], last[ROWS];
};

/* Columns [col, col + DEPTH) of rows [first, first + ROWS) of a head; zeros behind the ends. */
template <typename T>
static __device__ __forceinline__ void load_piece(float (*to)[ROWS + 1], const T *at, int64_t ld,
                                                  int64_t first, int64_t rows, int col, int d)
{
    for (int i = (int)threadIdx.x; i < ROWS * DEPTH; i += THREADS) {
        int r = i / DEPTH, c = i % DEPTH;
        bool there = first + r < rows && col + c < d;
        to[c][r] = there ? to_f32(at[(first + r) * ld + col + c]) : 0.0f;
    }
}

/* The keys that each row of the block sees; rows behind the last query see none. */
template <typename T>
static __device__ __forceinline__ void rows_see(const Scan<T> &x, Room *room, int64_t b, int64_t i0)
{
    int r = (int)threadIdx.x;
    if (r >= ROWS) return;
    int64_t i = i0 + r, stands = attention_position(&x.pieces, x.Tq, x.Tk, i);
    bool exists = i < x.Tq;
    int64_t doc = exists && x.doc != NULL ? x.doc[b * x.Tq + i] : 0;
    int64_t seen = attention_first_seen(x.window, x.chunk, doc, stands);
    room->first[r] = exists ? attention_keys_before(&x.pieces, x.Tk, seen) : x.Tk;
    room->last[r] = exists ? attention_keys_before(&x.pieces, x.Tk, stands + 1) - 1 : -1;
}

/* The largest product that this thread's EACH x EACH pairs of a tile have, of those that see. */
static __device__ __forceinline__ float largest_seen(const Room *room,
                                                     const float (&sum)[EACH][EACH], int64_t j0)
{
    float most = -INFINITY;
    int row = (int)threadIdx.x / SIDE, col = (int)threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int r = row + i * SIDE;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            int64_t key = j0 + col + j * SIDE;
            bool sees = key >= room->first[r] && key <= room->last[r];
            if (sees) most = fmaxf(most, sum[i][j]);
        }
    }
    return most;
}

/* sum = rows of q times rows of k, whole tiles: q and k are where the head's first rows begin. */
template <typename T>
static __device__ __forceinline__ void multiply(const Scan<T> &x, Room *room, const T *q,
                                                const T *k, int64_t i0, int64_t j0,
                                                float (&sum)[EACH][EACH])
{
    int row = (int)threadIdx.x / SIDE, col = (int)threadIdx.x % SIDE;
    memset(sum, 0, sizeof sum);
    for (int d = 0; d < x.d; d += DEPTH) {
        __syncthreads(); /* all have read the piece before */
        load_piece(room->q, q, (int64_t)x.H * x.d, i0, x.Tq, d, x.d);
        load_piece(room->k, k, (int64_t)x.G * x.d, j0, x.Tk, d, x.d);
        __syncthreads();
#pragma unroll 4
        for (int c = 0; c < DEPTH; c++) {
            float a[EACH], b[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++) a[i] = room->q[c][row + i * SIDE];
#pragma unroll
            for (int j = 0; j < EACH; j++) b[j] = room->k[c][col + j * SIDE];
#pragma unroll
            for (int i = 0; i < EACH; i++) {
#pragma unroll
                for (int j = 0; j < EACH; j++) sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
            }
        }
    }
}

/* Can a row of the block have a logit that counts? The head's maximum may be an older one: then the block
 * computes in vain. */
template <typename T>
static __device__ __forceinline__ bool reaches(const Scan<T> &x, int64_t b, int h, int64_t i0,
                                               float *fold)
{
    int64_t i = i0 + threadIdx.x;
    bool there = (int)threadIdx.x < ROWS && i < x.Tq;
    float lse = there ? x.lse[(b * x.H + h) * x.Tq + i] : -INFINITY;
    float limit = fmaxf(x.above, *(const volatile float *)&x.max[h]);
    return block_max(lse > limit * (1 - QK_SLACK) ? 1.0f : 0.0f, fold) > 0;
}

template <typename T>
static __global__ __launch_bounds__(THREADS) void qk_max_kernel(const __grid_constant__ Scan<T> x)
{
    __shared__ Room room;
    __shared__ float fold[BLOCK_WARPS];
    int64_t head = blockIdx.x / x.blocks, i0 = blockIdx.x % x.blocks * ROWS, b = head / x.H;
    int h = (int)(head % x.H), g = (int)((int64_t)h * x.G / x.H);
    if (!reaches(x, b, h, i0, fold)) return;
    rows_see(x, &room, b, i0);
    __syncthreads();
    int64_t first = x.Tk, end = 0;
    for (int r = 0; r < ROWS; r++) {
        first = min(first, room.first[r]);
        end = max(end, room.last[r] + 1);
    }
    const T *q = x.q + (b * x.Tq * x.H + h) * x.d, *k = x.k + (b * x.Tk * x.G + g) * x.d;
    float most = -INFINITY;
    for (int64_t j0 = first; j0 < end; j0 += ROWS) {
        float sum[EACH][EACH];
        multiply(x, &room, q, k, i0, j0, sum);
        most = fmaxf(most, largest_seen(&room, sum, j0));
    }
    most = block_max(most, fold) * x.scale;
    if (threadIdx.x == 0 && most > x.above) atomicMax((unsigned *)x.max + h, __float_as_uint(most));
}

template <typename T> static void max_launch(const QkMax *a, LaunchStream stream)
{
    Scan<T> x = {};
    x.q = (const T *)a->q.data;
    x.k = (const T *)a->k.data;
    x.doc = (const int32_t *)a->doc.data;
    x.lse = (const float *)a->lse.data;
    x.max = (float *)a->max.data;
    x.pieces = a->pieces;
    x.Tq = a->q.dim[1], x.Tk = a->k.dim[1];
    x.window = a->window, x.chunk = a->chunk;
    x.blocks = (x.Tq + ROWS - 1) / ROWS;
    x.H = (int)a->q.dim[2], x.G = (int)a->k.dim[2], x.d = (int)a->q.dim[3];
    x.scale = a->scale, x.above = a->above;
    unsigned blocks = (unsigned)(a->q.dim[0] * x.H * x.blocks);
    if (blocks > 0) qk_max_kernel<T><<<blocks, THREADS, 0, stream>>>(x);
}

extern "C" Status qk_max_gpu(struct Exec *ex, const void *args)
{
    const QkMax *a = (const QkMax *)args;
    return launch_typed("qk_max", a->q.dtype,
                        [&](auto t) { max_launch<decltype(t)>(a, exec_stream(ex)); });
}

/* A block has one row of the matrix. */
static __global__ void qk_clip_kernel(float *w, Bf16 *low, const float *max, const float *clip,
                                      int64_t first, int64_t n, int64_t cols,
                                      const __grid_constant__ QkRows rows, float above)
{
    int64_t row = first / cols + blockIdx.x;
    float factor = qk_factor(&rows, max, above, row);
    if (factor == 1 || !isfinite(*clip)) return; /* not finite: a skipped step */
    for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
        int64_t i = row * cols + c - first;
        if (i < 0 || i >= n) continue;
        w[i] *= factor;
        if (low != NULL) low[i] = from_f32<Bf16>(w[i]);
    }
}

extern "C" Status qk_clip_gpu(struct Exec *ex, const void *args)
{
    const QkClip *a = (const QkClip *)args;
    int64_t n = tensor_elems(&a->w), rows = (a->first + n - 1) / a->cols - a->first / a->cols + 1;
    if (n == 0) return OK;
    qk_clip_kernel<<<(unsigned)rows, THREADS, 0, exec_stream(ex)>>>(
        (float *)a->w.data, (Bf16 *)a->low.data, (const float *)a->max.data,
        (const float *)a->clip.data, a->first, n, a->cols, a->rows, a->above);
    return kernel_status("qk_clip");
}
