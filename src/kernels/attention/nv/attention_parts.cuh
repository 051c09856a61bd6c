/* attention_parts: what all kernels for attention in bf16 on NVIDIA's GPUs share: results, and delta for backward. */
#ifndef KERNELS_ATTENTION_NV_ATTENTION_PARTS_CUH
#define KERNELS_ATTENTION_NV_ATTENTION_PARTS_CUH

#include "kernels/attention/attention_tiles.cuh"
#include "kernels/core/pack.cuh"

namespace flash
{

static const float log2_e = 1.44269504088896341f, ln_2 = 0.693147180559945309f;

/* Results of a head: (B, rows, heads, width). */
typedef struct Results {
    Bf16 *at;
    int rows, heads, width;
} Results;

typedef struct DeltaArgs {
    const Bf16 *d_o, *o; /* (B, o_rows, H, width) */
    const float *lse;    /* (B, H, o_rows) */
    float *lse_out, *delta;
    int q_at, Tq, rows, o_rows, H, width; /* Tq: of the rectangle; rows: tiles.rows */
} DeltaArgs;

enum { DELTA_THREADS = 256, DELTA_LANES = 16, DELTA_ROWS = 64 };

/* delta = sum of do * o, and lse log2 e. A block has 64 queries of a head, 16 lanes one of them. */
static __global__ __launch_bounds__(DELTA_THREADS) void attention_delta_kernel(const DeltaArgs a)
{
    int lane = (int)threadIdx.x % DELTA_LANES, head = (int)blockIdx.y % a.H;
    int64_t b = (int)blockIdx.y / a.H;
    for (int i = (int)threadIdx.x / DELTA_LANES; i < DELTA_ROWS; i += DELTA_THREADS / DELTA_LANES) {
        int row = (int)blockIdx.x * DELTA_ROWS + i;
        float sum = 0, lse = INFINITY, x[8], y[8];
        for (int column = lane * 8; row < a.Tq && column < a.width; column += DELTA_LANES * 8) {
            int64_t at = ((b * a.o_rows + a.q_at + row) * a.H + head) * a.width + column;
            load_const<true>(a.d_o + at, x);
            load_const<true>(a.o + at, y);
#pragma unroll
            for (int k = 0; k < 8; k++) sum = fmaf(x[k], y[k], sum);
        }
        if (row < a.Tq) lse = a.lse[(int64_t)blockIdx.y * a.o_rows + a.q_at + row] * log2_e;
#pragma unroll
        for (int bits = 1; bits < DELTA_LANES; bits *= 2) sum += lane_get_xor(sum, bits);
        if (lane != 0) continue;
        int64_t to = (int64_t)blockIdx.y * a.rows + row;
        a.lse_out[to] = lse == -INFINITY ? INFINITY : lse;
        a.delta[to] = sum;
    }
}

} // namespace flash

#endif
