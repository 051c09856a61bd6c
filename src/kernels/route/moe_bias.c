/* moe_bias: check, cost and CPU version of the gradient of experts' biases (MoeBiasBwd). Columns
 * are cut into tiles. One thread sums a tile over all rows of its expert, in their order and in
 * double. The router's bias, which steers load, is updated in moe_combine.c. */
#include "kernels/core/cpu_math.h"
#include "kernels/moe/moe_tiles.h"

/* Without an index row r stands for itself. */
static int64_t index_or_row(const Tensor *index, int64_t row)
{
    return index->data == NULL ? row : ((const int32_t *)index->data)[row];
}

/* The row of dy that routed row `row` reads, and its weight. */
static Status bias_row_find(const MoeBiasBwd *a, int64_t row, int64_t *from, float *weight)
{
    int64_t tokens = tensor_elems(&a->dy) / tensor_cols(&a->dy);
    int64_t slots = tensor_elems(&a->weight), slot = index_or_row(&a->row_slot, row);
    *from = index_or_row(&a->row_token, row) + moe_first(a->rows.first);
    *weight = 1;
    if (*from < 0 || *from >= tokens)
        return FAIL(ERR_ARG, "moe_bias_bwd: row %lld reads row %lld of dy, outside 0 .. %lld",
                    (long long)row, (long long)*from, (long long)tokens - 1);
    if (a->weight.data == NULL) return OK;
    if (slot < 0 || slot >= slots)
        return FAIL(ERR_ARG, "moe_bias_bwd: row %lld has the weight %lld, outside 0 .. %lld",
                    (long long)row, (long long)slot, (long long)slots - 1);
    *weight = ((const float *)a->weight.data)[slot];
    return OK;
}

/* Double sums keep an expert of many rows as accurate as one of few. */
static Status bias_tile_run(Exec *ex, const void *args, const MoeTile *tile, char *space)
{
    (void)ex;
    const MoeBiasBwd *a = args;
    int64_t O = tensor_cols(&a->dy), n = tile->cols, from;
    double *sum = (double *)(void *)space;
    float *buffer = (float *)(void *)(sum + n), weight;
    for (int64_t i = 0; i < n; i++) sum[i] = 0;
    for (int64_t r = tile->first; r < tile->first + tile->n; r++) {
        TRY(bias_row_find(a, r, &from, &weight));
        const float *dy = row_load(&a->dy, from * O + tile->col, n, buffer);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) sum[i] += (double)weight * (double)dy[i];
    }
    float *db = tensor_at(&a->db, tile->expert * O + tile->col);
    for (int64_t i = 0; i < n; i++) db[i] += (float)sum[i];
    return OK;
}

/* A sum in double and a widened row in f32, of one tile's columns. */
static size_t bias_space_bytes(const MoeBiasBwd *a)
{
    size_t cols = (size_t)moe_tile_cols(tensor_cols(&a->dy));
    return arena_rounded(cols * (sizeof(double) + sizeof(float)));
}

size_t moe_bias_bwd_workspace(const Exec *ex, const MoeBiasBwd *a)
{
    return (size_t)ex->threads * bias_space_bytes(a);
}

Status moe_bias_bwd_cpu(Exec *ex, const MoeBiasBwd *a)
{
    if (a->overwrite) memset(a->db.data, 0, tensor_bytes(&a->db));
    MoeTiles t = { "moe_bias_bwd",
                   a,
                   &a->offsets,
                   &a->rows,
                   tensor_cols(&a->dy),
                   bias_tile_run,
                   bias_space_bytes(a),
                   a->rows.first,
                   &a->dy };
    return moe_tiles_run(ex, &t);
}

Status moe_bias_bwd_check(const MoeBiasBwd *a)
{
    const char *op = "moe_bias_bwd";
    int64_t E = tensor_elems(&a->offsets) - 1, O = tensor_cols(&a->dy), R = a->rows.bound;
    TRY(moe_dims_check(op, E, O, O));
    TRY(op_expect_act(op, "dy", &a->dy, -1, O));
    TRY(op_expect(op, "db", &a->db, E, O, DTYPE_F32));
    TRY(moe_rows_check(op, &a->offsets, &a->row_token, &a->rows, R,
                       a->rows.first == NULL ? tensor_elems(&a->dy) / O : R));
    if (a->weight.data == NULL) return OK;
    const Tensor *by_row = a->row_slot.data == NULL ? &a->weight : &a->row_slot;
    TRY(op_expect(op, "weight", &a->weight, -1, -1, DTYPE_F32));
    if (a->row_slot.data != NULL) TRY(op_expect(op, "row_slot", by_row, -1, -1, DTYPE_I32));
    if (tensor_elems(by_row) >= R) return OK;
    return FAIL(ERR_SHAPE, "%s: %lld rows, but %s has only %lld", op, (long long)R,
                by_row == &a->weight ? "weight" : "row_slot", (long long)tensor_elems(by_row));
}

/* Bytes: a gathered token counts once, because later reads of it hit the cache. */
OpCost moe_bias_bwd_cost(const MoeBiasBwd *a)
{
    double rows = moe_rows_expected(&a->rows), O = (double)tensor_cols(&a->dy);
    double in =
        a->row_token.data == NULL ? moe_rows_bytes(&a->dy, rows) : (double)tensor_bytes(&a->dy);
    return (OpCost){ .flops = rows * O * (a->weight.data == NULL ? 1 : 2),
                     .bytes = in + (a->overwrite ? 1 : 2) * (double)tensor_bytes(&a->db) };
}

OP_PORTS(moe_bias_bwd, IN(MoeBiasBwd, dy), IN(MoeBiasBwd, offsets), IN_OPT(MoeBiasBwd, row_token),
         IN_OPT(MoeBiasBwd, row_slot), IN_OPT(MoeBiasBwd, weight), ADD_OPT(MoeBiasBwd, db),
         ROWS(MoeBiasBwd, rows));
