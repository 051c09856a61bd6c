/*
 * quant: kernels that make 8-bit operands and convert them back. Bytes and scales are those of the CPU, NaNs included.
 * The device cannot report an infinity: the scale of its block and all bytes of the block become NaN.
 *
 * Scales of 1 x 128 and 128 x 128 need no more of x than a block of threads holds (quant_tile.cuh), so x is read once,
 * also for both operands. A scale for a whole row or tensor needs a pass before, which finds the largest magnitudes,
 * so x is read twice. That pass uses atomic maxima of integers: magnitudes have the order of their bits, and a maximum
 * is the same in any order.
 */
#include "kernels/quant/quant_codes.cuh"
#include "kernels/quant/quant_run.cuh"

extern "C" {
#include "kernels/quant/quant.h"
}

/* ---- quantize ---- */

using quant::amax_bytes;
using quant::covers_tiles;

extern "C" size_t quantize_gpu_workspace(const struct Exec *, const void *args)
{
    const Quantize *a = (const Quantize *)args;
    return amax_bytes(&a->quant) + amax_bytes(&a->transposed);
}

static int64_t matrices_of(const Tensor *t) { return t->rank == 3 ? t->dim[0] : 1; }

/* The job of one or both operands of a call, in blocks of shape S. `space` begins with the amax of quant. */
template <typename S>
static quant::Job job_of(const Quantize *a, bool rows, bool columns, void *space)
{
    const Operand none = {}, *q = rows ? &a->quant : &none, *t = columns ? &a->transposed : &none;
    bool groups = columns && a->offsets.data != NULL;
    quant::Job job = {};
    job.matrices = matrices_of(columns ? &a->x.data : &q->data);
    job.row_token = (const int32_t *)a->row_token.data;
    job.device = a->rows.device;
    job.first = a->rows.first;
    job.to = rows ? a->to : NULL;
    job.d = tensor_cols(&a->x.data);
    job.n = a->rows.bound > 0 ? a->rows.bound
            : job.d == 0      ? 0
                              : tensor_elems(&a->x.data) / job.d / job.matrices;
    job.offsets = groups ? (const int32_t *)a->offsets.data : NULL;
    job.groups = groups ? tensor_elems(&a->offsets) - 1 : 0;
    job.pow2 = a->pow2;
    return quant::job_for<S>(job, q, t, rows ? space : (char *)space + amax_bytes(&a->quant));
}

/* One thread for each scale. */
static __global__ void scale_kernel(const uint32_t *amax, int64_t n, float largest, bool pow2,
                                    float *scale)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) scale[i] = quant::scale_of(amax[i], largest, pow2);
}

static Status scales_run(struct Exec *ex, const Operand *q, const void *amax, bool pow2)
{
    if (!covers_tiles(q)) return OK;
    int64_t n = tensor_elems(&q->scale);
    float largest = q->data.dtype == DTYPE_E4M3 ? 448.0f : 57344.0f;
    scale_kernel<<<grid_of(n, 256), 256, 0, exec_stream(ex)>>>((const uint32_t *)amax, n, largest,
                                                               pow2, (float *)q->scale.data);
    return kernel_status("quantize");
}

/* The pass before, for scales that cover several blocks. */
template <typename S, bool ROWS, bool COLUMNS, typename X>
static Status amax_run(struct Exec *ex, const Quantize *a, const quant::Job &job, const X &x)
{
    const Operand none = {};
    const Operand *q = ROWS ? &a->quant : &none, *t = COLUMNS ? &a->transposed : &none;
    if (!covers_tiles(q) && !covers_tiles(t)) return OK;
    if (covers_tiles(q)) TRY(gpu_fill(job.rows.amax, 0, amax_bytes(q), exec_stream(ex)));
    if (covers_tiles(t)) TRY(gpu_fill(job.columns.amax, 0, amax_bytes(t), exec_stream(ex)));
    quant::amax_kernel<X, S, ROWS, COLUMNS>
        <<<(unsigned)quant::blocks_of(job), S::THREADS, 0, exec_stream(ex)>>>(job, x);
    TRY(kernel_status("quantize"));
    TRY(scales_run(ex, q, job.rows.amax, a->pow2));
    return scales_run(ex, t, job.columns.amax, a->pow2);
}

template <typename F, typename S, bool ROWS, bool COLUMNS, typename X>
static Status blocks_run(struct Exec *ex, const Quantize *a, void *space, const X &x)
{
    quant::Job job = job_of<S>(a, ROWS, COLUMNS, space);
    if (quant::blocks_of(job) == 0) return OK;
    TRY((amax_run<S, ROWS, COLUMNS>(ex, a, job, x)));
    /* What that pass measured is known now. */
    if (job.rows.amax != NULL) job.rows.lines = job.rows.whole = false;
    if (job.columns.amax != NULL) job.columns.lines = job.columns.whole = false;
    quant::quantize_kernel<X, F, S, ROWS, COLUMNS>
        <<<(unsigned)quant::blocks_of(job), S::THREADS, 0, exec_stream(ex)>>>(job, x);
    return kernel_status("quantize");
}

template <typename F, bool ROWS, bool COLUMNS>
static Status format_run(struct Exec *ex, const Quantize *a, void *space)
{
    typedef typename std::conditional<ROWS, quant::Flat, quant::Tall>::type Line;
    typedef typename std::conditional<ROWS && COLUMNS, quant::Large, Line>::type Long;
    const void *x = a->x.data.data;
    const void *rows = ROWS ? a->quant.data.data : NULL;
    const void *columns = COLUMNS ? a->transposed.data.data : NULL;
    int64_t d = tensor_cols(&a->x.data), width = COLUMNS ? tensor_cols(&a->transposed.data) : 0;
    /* Rows behind the last group do not count for the one scale of all columns. */
    bool apart = ROWS && a->offsets.data != NULL && a->transposed.kind == OPERAND_TENSOR;
    bool square = apart || (ROWS && a->quant.kind == OPERAND_128X128) ||
                  (COLUMNS && a->transposed.kind == OPERAND_128X128);
    bool packed = packs_fit<Bf16>({ x, rows, columns }, { d }) && width % 16 == 0;
    bool wide = a->x.data.dtype == DTYPE_F32, rounded = wide && a->round == DTYPE_BF16;
    const auto squares = [&](const auto &from) {
        return blocks_run<F, quant::Square, ROWS, COLUMNS>(ex, a, space, from);
    };
    if (wide && !rounded) return squares(quant::Values<float, false>{ (const float *)x });
    if (!packed && d >= OPERAND_BLOCK) exec_note_once(ex, "quantize", UNPACKED);
    if (rounded && packed) return squares(quant::Values<Rounded, true>{ (const Rounded *)x });
    if (rounded) return squares(quant::Values<Rounded, false>{ (const Rounded *)x });
    if (!packed) return squares(quant::Values<Bf16, false>{ (const Bf16 *)x });
    const quant::Values<Bf16, true> packs = { (const Bf16 *)x };
    if (square) return squares(packs);
    return blocks_run<F, Long, ROWS, COLUMNS>(ex, a, space, packs);
}

/* Columns of 8-bit rows in format C. */
template <typename F, typename C>
static Status codes_run(struct Exec *ex, const Quantize *a, void *space)
{
    const uint8_t *x = (const uint8_t *)a->x.data.data;
    const float *scale = (const float *)a->x.scale.data;
    int64_t d = tensor_cols(&a->x.data), cols = tensor_cols(&a->x.scale);
    bool packed = packs_fit<Bf16>({ x, a->transposed.data.data }, { d }) &&
                  tensor_cols(&a->transposed.data) % 16 == 0;
    if (!packed && d >= OPERAND_BLOCK) exec_note_once(ex, "quantize", UNPACKED);
    if (!packed || a->transposed.kind == OPERAND_128X128)
        return blocks_run<F, quant::Square, false, true>(ex, a, space,
                                                         quant::Codes<C, false>{ x, scale, cols });
    return blocks_run<F, quant::Tall, false, true>(ex, a, space,
                                                   quant::Codes<C, true>{ x, scale, cols });
}

template <typename F, bool ROWS, bool COLUMNS>
static Status source_run(struct Exec *ex, const Quantize *a, void *space)
{
    if constexpr (!ROWS) {
        if (a->x.data.dtype == DTYPE_E4M3) return codes_run<F, E4M3>(ex, a, space);
        if (a->x.data.dtype == DTYPE_E5M2) return codes_run<F, E5M2>(ex, a, space);
    }
    return format_run<F, ROWS, COLUMNS>(ex, a, space);
}

template <bool ROWS, bool COLUMNS>
static Status sides_run(struct Exec *ex, const Quantize *a, void *space)
{
    const Operand *q = ROWS ? &a->quant : &a->transposed;
    return q->data.dtype == DTYPE_E4M3 ? source_run<E4M3, ROWS, COLUMNS>(ex, a, space)
                                       : source_run<E5M2, ROWS, COLUMNS>(ex, a, space);
}

/* Both operands come from one read unless their types or matrices differ, or blocks of 128 rows do
 * not begin where groups do. */
static Status quantize_run(struct Exec *ex, const Quantize *a, void *space)
{
    bool rows = quant::given(&a->quant), columns = quant::given(&a->transposed);
    if (a->quant.kind == OPERAND_1X32 || a->transposed.kind == OPERAND_1X32)
        return FAIL(ERR_UNSUPPORTED, "quantize: no kernel makes scales of 1 x 32");
    bool together = rows && columns && a->quant.data.dtype == a->transposed.data.dtype &&
                    matrices_of(&a->quant.data) == matrices_of(&a->x.data) &&
                    (a->offsets.data == NULL || a->quant.kind != OPERAND_128X128);
    if (together) return sides_run<true, true>(ex, a, space);
    if (rows) TRY((sides_run<true, false>(ex, a, space)));
    return columns ? sides_run<false, true>(ex, a, space) : OK;
}

extern "C" Status quantize_gpu(struct Exec *ex, const void *args)
{
    return quantize_run(ex, (const Quantize *)args, exec_workspace(ex));
}

/* ---- outputs of other ops ---- */

extern "C" size_t quant_out_gpu_workspace(const struct Exec *ex, const QuantOut *q,
                                          const Tensor *plain)
{
    Quantize a = quant_out_call(q, *plain);
    return quant_out_plain_bytes(q, plain) + quantize_gpu_workspace(ex, &a);
}

extern "C" Status quant_out_gpu(struct Exec *ex, const QuantOut *q, const Tensor *plain,
                                void *space)
{
    Quantize a = quant_out_call(q, *plain);
    char *behind = (char *)space + (plain->data == space ? arena_rounded(tensor_bytes(plain)) : 0);
    return quant_out_wanted(q) ? quantize_run(ex, &a, behind) : OK;
}

/* ---- dequantize ---- */

enum {
    WARPS = 8,           /* rows of a block */
    PIECE = 128,         /* columns that a warp takes: as wide as a block of the scales */
    EACH = PIECE / WARP, /* elements of a lane */
    GRID_Y_MAX = 65535,
};

/* The matrix and its scales. */
typedef struct Blocks {
    int64_t n, d, height; /* n: rows of all matrices; height: rows of a block */
    int64_t each;         /* rows of a matrix */
    int64_t rows, cols;   /* of the scales; a block is one PIECE wide, or as wide as the matrix */
    bool narrow;          /* the former */
    bool wide;            /* rows may be read in packs */
    const int32_t *live, *first; /* rows in use, and the first in a pool; NULL: none */
} Blocks;

static Blocks grid_blocks(const Dequantize *a)
{
    OperandGrid g = operand_grid_of(&a->quant);
    Blocks b = { g.matrices * g.n, g.d,   g.height,       g.n,          g.rows, g.cols,
                 g.cols > 1,       false, a->rows.device, a->rows.first };
    b.wide = b.d % EACH == 0 && packs_fit<float>({ a->y.data, a->quant.data.data }, {});
    if (a->rows.bound > 0) b.n = a->rows.bound;
    return b;
}

/* x: blocks of WARPS rows. y: more than one if there are too few rows to keep the device busy. */
static dim3 grid_over(const Blocks &b)
{
    int64_t pieces = (b.d + PIECE - 1) / PIECE, strips = 1 + 65536 / (b.n > 0 ? b.n : 1);
    strips = strips < pieces ? strips : pieces;
    strips = strips < GRID_Y_MAX ? strips : (int64_t)GRID_Y_MAX;
    return dim3(grid_of(b.n, WARPS), strips > 0 ? (unsigned)strips : 1);
}

/* The first column of a lane's elements of a piece. scale_of: the index of their scale. */
static __device__ __forceinline__ int64_t first_column(int64_t piece)
{
    return piece * PIECE + threadIdx.x * EACH;
}

static __device__ __forceinline__ int64_t scale_of(const Blocks &b, int64_t row, int64_t piece)
{
    int64_t block = row / b.each * b.rows + row % b.each / b.height;
    return block * b.cols + (b.narrow ? piece : 0);
}

/* EACH elements of format F from column `col` on, 0 after the row's end. */
template <typename F>
static __device__ __forceinline__ void row_load(const Blocks &b, const void *t, int64_t row,
                                                int64_t col, float (&v)[EACH])
{
    if (b.wide && col < b.d) {
        codes_load<F, true>(t, row * b.d + col, v);
        return;
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        float one[1] = { 0 };
        if (col + k < b.d) codes_load<F, false>(t, row * b.d + col + k, one);
        v[k] = one[0];
    }
}

template <typename F>
static __device__ __forceinline__ void row_store(const Blocks &b, void *t, int64_t row, int64_t col,
                                                 const float (&v)[EACH])
{
    if (b.wide && col < b.d) {
        codes_store<F, true>(t, row * b.d + col, v);
        return;
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        float one[1] = { v[k] };
        if (col + k < b.d) codes_store<F, false>(t, row * b.d + col + k, one);
    }
}

template <typename A, typename F>
static __global__ void dequantize_kernel(Blocks b, const void *data, const float *scale, void *y)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.y, pieces = (b.d + PIECE - 1) / PIECE;
    if (row >= (b.live == NULL ? b.n : min(b.n, (int64_t)*b.live))) return;
    int64_t from = row + (b.first == NULL ? 0 : *b.first);
    for (int64_t piece = blockIdx.y; piece < pieces; piece += gridDim.y) {
        int64_t col = first_column(piece);
        float s = scale[scale_of(b, from, piece)], v[EACH];
        row_load<F>(b, data, from, col, v);
#pragma unroll
        for (int k = 0; k < EACH; k++) v[k] = isnan(v[k]) ? v[k] : v[k] * s;
        row_store<A>(b, y, row, col, v);
    }
}

template <typename A, typename F> static Status dequantize_run(struct Exec *ex, const Dequantize *a)
{
    Blocks b = grid_blocks(a);
    dequantize_kernel<A, F><<<grid_over(b), dim3(WARP, WARPS), 0, exec_stream(ex)>>>(
        b, a->quant.data.data, (const float *)a->quant.scale.data, a->y.data);
    return kernel_status("dequantize");
}

extern "C" Status dequantize_gpu(struct Exec *ex, const void *args)
{
    const Dequantize *a = (const Dequantize *)args;
    bool wide = a->y.dtype == DTYPE_F32, e4m3 = a->quant.data.dtype == DTYPE_E4M3;
    if (e4m3) return wide ? dequantize_run<F32, E4M3>(ex, a) : dequantize_run<BF16, E4M3>(ex, a);
    return wide ? dequantize_run<F32, E5M2>(ex, a) : dequantize_run<BF16, E5M2>(ex, a);
}
