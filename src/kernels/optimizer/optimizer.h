/*
 * optimizer: global-norm clipping and AdamW over flat buffers.
 *
 * square_sum: sum += sum of x_i^2. Blocks of fixed size are summed in double, then the blocks in order, so bits depend
 * on neither threads nor alignment. Clear sum first, then call it once for each buffer. With `groups` it also adds the
 * squares of each run of x to the sum of the run's group. Blocks inside a run serve both sums; only a block that a run
 * begins or ends in is read again, in the same launch. So `sum` has the same bits with and without groups.
 *
 * clip_scale: norm = sqrt(sum), clip = min(1, max_norm / (norm + 1e-6)); clip = 1 if max_norm is 0.
 * Gradients may have been multiplied by a scale: norm and clip are then divided by it.
 * clip is NaN if norm is not finite or above limit, or if an overflow flag is set (kernels/exchange/exchange.h).
 * Then the step is skipped: adamw and moe_bias_update change nothing.
 *
 * adamw (Loshchilov & Hutter, arXiv:1711.05101), with g' = clip * g:
 *   w -= lr * decay * w;  m = b1 m + (1-b1) g';  v = b2 v + (1-b2) g'^2
 *   w -= lr * (m / c1) / (sqrt(v / c2) + eps),   c = 1 - b^t
 * lr, clip and t change every step and are in device memory, because a captured step reads them there.
 *
 * m and v may be bf16 (DeepSeek-V3, arXiv:2412.19437, section 3.3). They are widened, updated in
 * f32 and rounded to nearest, ties to even. The update of w uses the values before rounding. A bf16
 * v does not move if it would change by less than 1/512 of itself, so b2 must be at most 0.99.
 *
 * With `copies` w is one matrix, or several of one shape, and their 8-bit operands are made of the new w. Their bits
 * are those of quantize (kernels/quant/quant.h). A skipped step leaves them as they are.
 *
 * weight_average: e = (1 - r) e + r w, with r = rate. Nothing changes if clip is not finite.
 */
#ifndef KERNELS_OPTIMIZER_OPTIMIZER_H
#define KERNELS_OPTIMIZER_OPTIMIZER_H

#include "kernels/quant/quant.h"

#if defined(__CUDACC__) || defined(__HIP__)
#define SQUARE_SHARED static inline __host__ __device__
#else
#define SQUARE_SHARED static inline
#endif

/* Elements from `first` up to the next run's are of one group. */
typedef struct SquareRun {
    int64_t first;
    int group;
} SquareRun;

typedef struct SquareSum {
    Tensor x;             /* in  (n) f32 */
    Tensor sum;           /* add (1) f32 */
    Tensor groups;        /* add (G) f32, optional */
    const SquareRun *run; /* (runs) in host memory, by rising first; the first run begins at 0 */
    int64_t runs;
} SquareSum;

/* A run [first, end) in blocks of `block` elements: blocks [first_block, end_block) lie inside, and the edges
 * [first, head_end) and [tail, end) in blocks that it shares. */
typedef struct SquareEdges {
    int64_t head_end, tail, first_block, end_block;
} SquareEdges;
SQUARE_SHARED SquareEdges square_edges(int64_t first, int64_t end, int64_t block)
{
    SquareEdges e;
    e.first_block = (first + block - 1) / block;
    e.end_block = end / block;
    e.head_end = e.first_block * block < end ? e.first_block * block : end;
    e.tail = e.end_block * block > e.head_end ? e.end_block * block : e.head_end;
    return e;
}

/* Where run i ends. */
static inline int64_t square_run_end(const SquareSum *a, int64_t i)
{
    return i + 1 < a->runs ? a->run[i + 1].first : tensor_elems(&a->x);
}

typedef struct ClipScale {
    Tensor sum;      /* in  (1) f32 */
    Tensor norm;     /* out (1) f32 */
    Tensor clip;     /* out (1) f32 */
    Tensor overflow; /* in (n) f32, optional */
    Tensor scale;    /* in  (1) f32, optional: of the gradients; a CPU takes it */
    Tensor limit;    /* in  (1) f32, optional */
    float max_norm;
} ClipScale;

typedef struct Adamw {
    Tensor w;        /* add (n) f32 */
    Tensor g;        /* in  (n) f32 */
    Tensor m, v;     /* add (n) f32, or both bf16 */
    Tensor w_low;    /* out (n) bf16 or f16, optional: the rounded weights that compute reads */
    QuantOut copies; /* out, optional; copies.rows has the shape of the matrices */
    Tensor clip;     /* in  (1) f32 */
    Tensor hyper;    /* in  (3) f32: lr, 1/c1, 1/c2 */
    float beta1, beta2, eps, decay;
} Adamw;

#ifdef __cplusplus
extern "C" {
#endif
/* w in the shape of its matrices, where there are copies. */
Tensor adamw_matrices(const Adamw *a);
#ifdef __cplusplus
}
#endif

typedef struct WeightAverage {
    Tensor e;    /* add (n) f32 */
    Tensor w;    /* in  (n) f32 */
    Tensor clip; /* in  (1) f32 */
    Tensor rate; /* in  (1) f32 */
} WeightAverage;

#define OPS_OPTIMIZER
#include "kernels/core/declare.h"
#undef OPS_OPTIMIZER

#endif
