/* embed: check, cost and CPU version of the embedding look-up and its gradient. */
#include "kernels/head/embed.h"

#include "kernels/core/cpu_math.h"
#include "kernels/core/index_check.h"
#include "kernels/core/op.h"

/* Rows [first, first + rows) lie in the whole table. */
static Status part_check(const char *op, int64_t rows, int64_t first, int64_t vocab)
{
    int64_t all = vocab > 0 ? vocab : rows;
    if (first >= 0 && first <= all - rows) return OK;
    return FAIL(ERR_ARG, "%s: the table has %lld rows from id %lld on, but the vocabulary %lld", op,
                (long long)rows, (long long)first, (long long)all);
}

/* The expected share of ids that have a row here. */
static double part_of(int64_t rows, int64_t vocab)
{
    return vocab > 0 ? (double)rows / (double)vocab : 1;
}

static int64_t rows_of(const Tensor *table) { return tensor_elems(table) / tensor_cols(table); }

Status embed_fwd_check(const EmbedFwd *a)
{
    int64_t n = tensor_elems(&a->id), d = tensor_cols(&a->table);
    TRY(op_expect("embed_fwd", "id", &a->id, n, 1, DTYPE_I32));
    TRY(op_expect_act("embed_fwd", "table", &a->table, -1, d));
    TRY(part_check("embed_fwd", rows_of(&a->table), a->first, a->vocab));
    return op_expect("embed_fwd", "h", &a->h, n, d, a->table.dtype);
}

/* The row of the table and the row of h, and no arithmetic. */
OpCost embed_fwd_cost(const EmbedFwd *a)
{
    double rows = 1 + part_of(rows_of(&a->table), a->vocab);
    return (OpCost){ .bytes = rows * (double)tensor_bytes(&a->h) + (double)tensor_bytes(&a->id) };
}

Status embed_fwd_cpu(Exec *ex, const EmbedFwd *a)
{
    const int32_t *id = a->id.data;
    int64_t n = tensor_elems(&a->id), d = tensor_cols(&a->table), rows = rows_of(&a->table);
    size_t row_bytes = (size_t)d * dtype_bytes(a->table.dtype);
    TRY(index_check("embed_fwd", "id", &a->id, a->vocab > 0 ? a->vocab : rows));
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        char *h = (char *)a->h.data + (size_t)i * row_bytes;
        int64_t row = id[i] - a->first;
        if (row >= 0 && row < rows)
            memcpy(h, (const char *)a->table.data + (size_t)row * row_bytes, row_bytes);
        else
            memset(h, 0, row_bytes);
    }
    return OK;
}

OP_PORTS(embed_fwd, IN(EmbedFwd, id), IN(EmbedFwd, table), OUT(EmbedFwd, h));

Status embed_bwd_check(const EmbedBwd *a)
{
    int64_t n = tensor_elems(&a->id), d = tensor_cols(&a->dtable);
    TRY(op_expect("embed_bwd", "id", &a->id, n, 1, DTYPE_I32));
    TRY(op_expect_act("embed_bwd", "dh", &a->dh, n, d));
    TRY(op_expect("embed_bwd", "dtable", &a->dtable, -1, d, DTYPE_F32));
    return part_check("embed_bwd", rows_of(&a->dtable), a->first, a->vocab);
}

OpCost embed_bwd_cost(const EmbedBwd *a)
{
    double part = part_of(rows_of(&a->dtable), a->vocab); /* each element of it is read, and a row
                                                             of dtable read and written */
    double elems = part * (double)tensor_elems(&a->dh);
    return (OpCost){ .flops = elems,
                     .bytes = part * (double)tensor_bytes(&a->dh) + (double)tensor_bytes(&a->id) +
                              8 * elems };
}

/* dtable[id[n] - a->first] += dh[n] for columns [first, end), in the order of n. */
static void embed_add_columns(const EmbedBwd *a, int64_t first, int64_t end)
{
    enum { STRIP = 256 };
    const int32_t *id = a->id.data;
    int64_t n = tensor_elems(&a->id), d = tensor_cols(&a->dtable), rows = rows_of(&a->dtable);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = id[i] - a->first;
        if (row < 0 || row >= rows) continue;
        for (int64_t col = first; col < end; col += STRIP) {
            float buffer[STRIP], *to = (float *)a->dtable.data + row * d + col;
            int64_t m = end - col < STRIP ? end - col : STRIP;
            const float *dh = row_load(&a->dh, i * d + col, m, buffer);
#pragma omp simd
            for (int64_t j = 0; j < m; j++) to[j] += dh[j];
        }
    }
}

/* Each thread owns a range of columns and walks all tokens in order. So rows of one id are added in the same order for
 * any number of threads. Ranges are whole cache lines: no two threads write one. */
Status embed_bwd_cpu(Exec *ex, const EmbedBwd *a)
{
    enum { LINE = 16 };
    int64_t d = tensor_cols(&a->dtable), lines = (d + LINE - 1) / LINE;
    int64_t range = (lines + ex->threads - 1) / ex->threads * LINE;
    TRY(index_check("embed_bwd", "id", &a->id, a->vocab > 0 ? a->vocab : rows_of(&a->dtable)));
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t first = 0; first < d; first += range) {
        embed_add_columns(a, first, first + range < d ? first + range : d);
    }
    return OK;
}

OP_PORTS(embed_bwd, IN(EmbedBwd, id), IN(EmbedBwd, dh), ADD_OPT(EmbedBwd, dtable));
