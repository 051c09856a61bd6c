/*
 * quant_run: makes a job for blocks of quant_tile.cuh from the arguments of quantize. For quant.cu,
 * and for launchers of kernels that quantise what they make.
 */
#ifndef OP_QUANT_RUN_CUH
#define OP_QUANT_RUN_CUH

#include "op/quant_tile.cuh"

extern "C" {
#include "op/quant.h"
}

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

static inline quant::Side side_of(const Operand *q, int64_t groups, void *amax)
{
    if (!given(q)) return quant::Side{};
    OperandGrid g = groups > 0 ? operand_grid_groups(q, groups) : operand_grid_of(q);
    bool tile = q->kind == OPERAND_TENSOR || q->kind == OPERAND_128X128;
    return quant::Side{ (uint8_t *)q->data.data,
                        (float *)q->scale.data,
                        covers_tiles(q) ? (uint32_t *)amax : NULL,
                        q->kind,
                        g.rows,
                        g.cols,
                        !tile,
                        tile };
}

static inline int64_t tiles_of(int64_t n) { return operand_whole_blocks(n) / OPERAND_BLOCK; }

static inline int64_t matrices_of(const Tensor *t) { return t->rank == 3 ? t->dim[0] : 1; }

/* The job of one or both operands of a call, in blocks of shape S. */
template <typename S>
static quant::Job job_of(const Quantize *a, bool rows, bool columns, void *workspace)
{
    const Operand none = {}, *q = rows ? &a->quant : &none, *t = columns ? &a->transposed : &none;
    bool groups = columns && a->offsets.data != NULL;
    quant::Job job = {};
    job.matrices = matrices_of(columns ? &a->x.data : &q->data);
    job.row_token = (const int32_t *)a->row_token.data;
    job.device = a->rows.device;
    job.first = a->rows.first;
    job.d = tensor_cols(&a->x.data);
    job.n = a->rows.bound > 0 ? a->rows.bound
            : job.d == 0      ? 0
                              : tensor_elems(&a->x.data) / job.d / job.matrices;
    job.offsets = groups ? (const int32_t *)a->offsets.data : NULL;
    job.groups = groups ? tensor_elems(&a->offsets) - 1 : 0;
    job.width = columns ? tensor_cols(&t->data) : 0;
    /* Rows after the last group may fill one more strip than columns do. */
    job.strips = groups ? tiles_of(job.width) + rows : (job.n + S::HIGH - 1) / S::HIGH;
    job.across = (uint32_t)((job.d + S::COLS - 1) / S::COLS);
    job.down = (uint32_t)((job.strips + S::STRIPS - 1) / S::STRIPS);
    job.rows = side_of(q, 0, workspace);
    job.columns = side_of(t, job.groups, (char *)workspace + amax_bytes(&a->quant));
    job.pow2 = a->pow2;
    return job;
}

static inline int64_t blocks_of(const quant::Job &job)
{
    return job.matrices * job.down * job.across;
}

#endif
