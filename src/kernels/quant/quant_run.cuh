/*
 * quant_run: makes the jobs of blocks of quant_tile.cuh, for quantize and for launchers of ops that
 * quantise what they make.
 */
#ifndef KERNELS_QUANT_QUANT_RUN_CUH
#define KERNELS_QUANT_QUANT_RUN_CUH

#include "kernels/quant/quant_tile.cuh"

namespace quant
{

static inline bool given(const Operand *q) { return q->data.data != NULL; }

/* Do the scales of an operand cover more than a tile? */
static inline bool covers_tiles(const Operand *q)
{
    return given(q) && (q->kind == OPERAND_TENSOR || q->kind == OPERAND_ROW);
}

static inline size_t amax_bytes(const Operand *q)
{
    return covers_tiles(q) ? arena_rounded((size_t)tensor_elems(&q->scale) * sizeof(uint32_t)) : 0;
}

static inline Side side_of(const Operand *q, int64_t groups, void *amax)
{
    if (!given(q)) return Side{};
    OperandGrid g = groups > 0 ? operand_grid_groups(q, groups) : operand_grid_of(q);
    bool tile = q->kind == OPERAND_TENSOR || q->kind == OPERAND_128X128;
    return Side{ (uint8_t *)q->data.data,
                 (float *)q->scale.data,
                 covers_tiles(q) ? (uint32_t *)amax : NULL,
                 q->kind,
                 g.rows,
                 g.cols,
                 !tile,
                 tile };
}

static inline int64_t tiles_of(int64_t n) { return operand_whole_blocks(n) / OPERAND_BLOCK; }

/* A job over a tensor of one or several matrices, to be completed by job_for. */
static inline Job job_over(const Tensor *x, bool pow2)
{
    Job job = {};
    job.matrices = x->rank == 3 ? x->dim[0] : 1;
    job.d = tensor_cols(x);
    job.n = job.d == 0 ? 0 : tensor_elems(x) / job.d / job.matrices;
    job.pow2 = pow2;
    return job;
}

/* Completes a job for its operands, in blocks of shape S: matrices, n, d, groups are known. Without
 * data an operand is not asked for. */
template <typename S>
static Job job_for(Job job, const Operand *rows, const Operand *columns, void *workspace)
{
    job.width = given(columns) ? tensor_cols(&columns->data) : 0;
    /* Rows after the last group may fill one more strip than columns do. */
    job.strips =
        job.groups > 0 ? tiles_of(job.width) + given(rows) : (job.n + S::HIGH - 1) / S::HIGH;
    job.across = (uint32_t)(S::FOLDED ? job.fold / TILE : (job.d + S::COLS - 1) / S::COLS);
    job.down = (uint32_t)((job.strips + S::STRIPS - 1) / S::STRIPS);
    job.rows = side_of(rows, 0, workspace);
    job.columns = side_of(columns, job.groups, (char *)workspace + amax_bytes(rows));
    return job;
}

static inline int64_t blocks_of(const Job &job) { return job.matrices * job.down * job.across; }

} // namespace quant

#endif
