/*
 * moe_bias: kernels of the gradient of the experts' biases. They are bound by memory: dy is read
 * once. A block sums a tile of rows of one expert, each of its warps every BIAS_WARPS-th row. A
 * second launch adds the tiles of an expert in order. So bits depend on the groups alone.
 */
#include "kernels/moe/grouped.cuh"
#include "kernels/norm/rows.cuh"

using namespace grouped;

enum { BIAS_THREADS = 256, BIAS_WARPS = BIAS_THREADS / WARP, BIAS_EACH = 8 };

static_assert(BIAS_THREADS % WARP == 0, "a row has a whole warp");

static int64_t tiles_most(const MoeBiasBwd *a)
{
    return a->rows.bound / TILE + tensor_elems(&a->offsets) - 1;
}

/* share[tile] = the sum of its rows, each with its weight. */
template <typename T, bool WIDE>
static __global__ __launch_bounds__(BIAS_THREADS) void moe_bias_share_kernel(
    Groups groups, const T *dy, const int32_t *row_token, const int32_t *row_slot,
    const float *weight, float *share, int64_t o)
{
    constexpr int P = Packed<T, WIDE>::P, WIDTH = WARP * P;
    __shared__ float room[BIAS_WARPS][WIDTH];
    GroupTile t;
    if (!find_rows(groups, blockIdx.x, &t)) return;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int64_t first = (int64_t)blockIdx.y * WIDTH, col = first + lane * P;
    float sum[P] = {};
    for (int64_t i = warp; col < o && i < t.rows; i += BIAS_WARPS * BIAS_EACH) {
        Packed<T, WIDE> in[BIAS_EACH];
        float w[BIAS_EACH];
#pragma unroll
        for (int j = 0; j < BIAS_EACH; j++) {
            int64_t at = i + j * BIAS_WARPS, r = t.first + at;
            if (at >= t.rows) break;
            fetch(in[j], dy + (row_token != NULL ? row_token[r] : t.pooled + at) * o + col);
            w[j] = weight == NULL ? 1 : weight[row_slot != NULL ? row_slot[r] : r];
        }
#pragma unroll
        for (int j = 0; j < BIAS_EACH; j++) {
            float v[P];
            if (i + j * BIAS_WARPS >= t.rows) break;
            widen(in[j], v);
#pragma unroll
            for (int k = 0; k < P; k++) sum[k] += w[j] * v[k];
        }
    }
#pragma unroll
    for (int k = 0; k < P; k++) room[warp][lane * P + k] = sum[k];
    __syncthreads();
    for (int c = (int)threadIdx.x; c < WIDTH && first + c < o; c += BIAS_THREADS) {
        float all = 0;
#pragma unroll
        for (int w = 0; w < BIAS_WARPS; w++) all += room[w][c];
        share[blockIdx.x * o + first + c] = all;
    }
}

/* A block handles BIAS_THREADS columns of one expert. */
static __global__ void moe_bias_add_kernel(Groups groups, const float *share, float *db, int64_t o,
                                           bool overwrite)
{
    int64_t e = blockIdx.x, col = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
    if (col >= o) return;
    int64_t begin = groups.first(e), end = groups.first(e + 1);
    const float *from = share + (begin / TILE + e) * o + col;
    float sum = 0;
#pragma unroll 8
    for (int64_t first = begin; first < end; first += TILE, from += o) sum += *from;
    float *to = db + e * o + col;
    *to = overwrite ? sum : *to + sum;
}

extern "C" size_t moe_bias_bwd_gpu_workspace(const struct Exec *, const void *args)
{
    const MoeBiasBwd *a = (const MoeBiasBwd *)args;
    return (size_t)(tiles_most(a) * tensor_cols(&a->dy)) * sizeof(float);
}

extern "C" Status moe_bias_bwd_gpu(struct Exec *ex, const void *args)
{
    static const char op[] = "moe_bias_bwd";
    const MoeBiasBwd *a = (const MoeBiasBwd *)args;
    Groups groups = groups_of(&a->offsets, &a->rows, a->rows.first);
    int64_t o = tensor_cols(&a->dy);
    float *share = (float *)exec_workspace(ex);
    TRY(launch_packed(ex, op, a->dy.dtype, { a->dy.data }, { o }, [&](auto t, auto wide) {
        typedef decltype(t) T;
        dim3 grid((unsigned)tiles_most(a), grid_of(o, WARP * Packed<T, wide>::P));
        moe_bias_share_kernel<T, wide><<<grid, BIAS_THREADS, 0, exec_stream(ex)>>>(
            groups, (const T *)a->dy.data, (const int32_t *)a->row_token.data,
            (const int32_t *)a->row_slot.data, (const float *)a->weight.data, share, o);
    }));
    dim3 grid((unsigned)groups.experts, grid_of(o, BIAS_THREADS));
    moe_bias_add_kernel<<<grid, BIAS_THREADS, 0, exec_stream(ex)>>>(
        groups, share, (float *)a->db.data, o, a->overwrite);
    return kernel_status(op);
}
