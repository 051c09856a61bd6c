/*
 * exchange_blocks: sends rows to the members of a group and brings them back, each member's rows in
 * a block of its own. It is all of alltoall and each of the two stages of hier. The workspace holds
 * the packed rows before they are sent, or the rows that came back before they are summed.
 */
#include "kernels/exchange/exchange.h"

#include "kernels/core/op.h"

#include <string.h>

size_t exchange_blocks_out_bytes(const ExchangeDispatch *a)
{
    int64_t m = a->rows.data.dim[0];
    return exchange_operand_bytes(&a->x, m) + exchange_rows_bytes(&a->index, m) +
           exchange_rows_bytes(&a->weight, m);
}

size_t exchange_blocks_back_bytes(const ExchangeCombine *a)
{
    int64_t m = a->x.dim[0];
    return exchange_rows_bytes(&a->x, m) + exchange_rows_bytes(&a->rows_weight, m);
}

/* Copies row `from` of x to row `to`, unless there are no such rows. */
static void copy_row(const Tensor *rows, int64_t to, const Tensor *x, int64_t from)
{
    size_t row = exchange_row_bytes(x);
    if (row > 0)
        memcpy((char *)rows->data + (size_t)to * row, (const char *)x->data + (size_t)from * row,
               row);
}

/* Block r of the packed rows has the tokens for rank r; `first` is the first expert of that rank. */
Status exchange_pack(Exec *ex, const ExchangeDispatch *a, const ExchangeRows *out)
{
    int64_t N = a->x.data.dim[0], K = tensor_cols(&a->offset);
    int64_t room = out->x.data.dim[0] / a->ranks, here = a->experts / a->ranks;
    const int32_t *offset = a->offset.data, *index = a->index.data;
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t at = 0; at < N * K; at++) {
        int64_t p = offset[at], n = at / K;
        if (p < 0) continue;
        copy_row(&out->x.data, p, &a->x.data, n);
        copy_row(&out->x.scale, p, &a->x.scale, n);
        copy_row(&out->weight, p, &a->weight, n);
        if (index == NULL) continue;
        int32_t *local = (int32_t *)out->index.data + p * K;
        int64_t first = p / room * here;
        for (int64_t k = 0; k < K; k++)
            local[k] = exchange_local_expert(index[n * K + k], first, here);
    }
    return OK;
}

Status exchange_no_rows(Exec *ex, const Tensor *index, const Tensor *weight)
{
    const Backend *b = ex->backend;
    if (index->data == NULL) return OK;
    TRY(b->fill(ex, index->data, 0xFF, tensor_bytes(index))); /* -1 */
    return b->fill(ex, weight->data, 0, tensor_bytes(weight));
}

Status exchange_blocks_out(Exec *ex, Comm *c, const ExchangeDispatch *a, const ExchangeLocal *l,
                           void *workspace)
{
    char *at = workspace;
    int64_t m = a->rows.data.dim[0];
    ExchangeRows out = { .x = exchange_operand_at(&a->x, m, &at) };
    out.index = exchange_rows_at(&a->index, m, &at);
    out.weight = exchange_rows_at(&a->weight, m, &at);
    TRY(exchange_no_rows(ex, &out.index, &out.weight));
    TRY(l->dispatch_rows(ex, a, &out));
    TRY(comm_all_to_all(c, &out.x.data, &a->rows.data));
    if (out.x.scale.data != NULL) TRY(comm_all_to_all(c, &out.x.scale, &a->rows.scale));
    if (a->index.data == NULL) return OK;
    TRY(comm_all_to_all(c, &out.index, &a->rows_index));
    return comm_all_to_all(c, &out.weight, &a->rows_weight);
}

/* The gradients of weights travel in the same way, as K numbers a row. */
Status exchange_blocks_back(Exec *ex, Comm *c, const ExchangeCombine *a, const ExchangeLocal *l,
                            void *workspace)
{
    char *at = workspace;
    ExchangeRows back = { .x.data = exchange_rows_at(&a->x, a->x.dim[0], &at) };
    back.weight = exchange_rows_at(&a->rows_weight, a->x.dim[0], &at);
    TRY(comm_all_to_all(c, &a->x, &back.x.data));
    if (back.weight.data != NULL) TRY(comm_all_to_all(c, &a->rows_weight, &back.weight));
    return l->combine_rows(ex, a, &back);
}
