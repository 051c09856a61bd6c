/* exchange_blocks: rows to the members of a group and back, each member's in a block of its own: all
 * that alltoall does, and each stage of hier. */
#include "op/exchange.h"

#include "op/op.h"

#include <string.h>

size_t exchange_blocks_out_bytes(const ExchangeDispatch *a)
{
    int64_t m = a->rows.dim[0];
    return exchange_rows_bytes(&a->x, m) + exchange_rows_bytes(&a->index, m) +
           exchange_rows_bytes(&a->weight, m) + exchange_rows_bytes(&a->count, 1);
}

size_t exchange_blocks_back_bytes(const ExchangeCombine *a)
{
    int64_t m = a->x.dim[0];
    return exchange_rows_bytes(&a->x, m) + exchange_rows_bytes(&a->rows_weight, m) +
           exchange_rows_bytes(&a->count, 1);
}

Status exchange_pack(Exec *ex, const ExchangeDispatch *a, const ExchangeRows *out)
{
    int64_t N = a->x.dim[0], D = tensor_cols(&a->x), K = tensor_cols(&a->place);
    int64_t room = out->x.dim[0] / a->ranks, here = a->experts / a->ranks;
    size_t row = (size_t)D * dtype_bytes(a->x.dtype);
    const int32_t *place = a->place.data, *index = a->index.data;
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t at = 0; at < N * K; at++) {
        int64_t p = place[at], n = at / K;
        if (p < 0) continue;
        memcpy(tensor_at(&out->x, p * D), tensor_at(&a->x, n * D), row);
        if (index == NULL) continue;
        int32_t *local = (int32_t *)out->index.data + p * K;
        int64_t first = p / room * here;
        memcpy(tensor_at(&out->weight, p * K), tensor_at(&a->weight, n * K),
               (size_t)K * sizeof(float));
        for (int64_t k = 0; k < K; k++)
            local[k] = exchange_local_expert(index[n * K + k], first, here);
    }
    return OK;
}

/* How many rows of each block travel, if the host knows. */
typedef struct Counts {
    bool known;
    int32_t to[EXCHANGE_COUNT_MAX], from[EXCHANGE_COUNT_MAX];
} Counts;

/* here: how many rows of this rank's tokens go to each rank. there: how many rows come from each
 * rank, which that rank tells. The host waits. */
static Status counts_read(Exec *ex, Comm *c, const Tensor *count, char *at, int32_t *here,
                          int32_t *there)
{
    const Backend *b = ex->backend;
    const Tensor told = exchange_rows_at(count, 1, &at);
    TRY(comm_all_to_all(c, count, &told));
    TRY(b->read(ex, here, count->data, tensor_bytes(count)));
    return b->read(ex, there, told.data, tensor_bytes(&told));
}

static Status swap_rows(Comm *c, const Tensor *to, int next, const Tensor *from, int before)
{
    CommRequest going = { 0 }, coming = { 0 };
    if (from->dim[0] > 0) TRY(comm_recv(c, from, before, 0, &coming));
    if (to->dim[0] > 0) TRY(comm_send(c, to, next, 0, &going));
    TRY(comm_wait(c, &coming));
    return comm_wait(c, &going);
}

/* Sends block r of in, or its filled rows, to rank r, where it becomes block `rank` of out. */
static Status swap_blocks(Exec *ex, Comm *c, const Tensor *in, const Tensor *out, const Counts *n)
{
    if (!n->known || comm_real(c) != c) return comm_all_to_all(c, in, out);
    int64_t room = in->dim[0] / c->size;
    Status s = OK;
    TRY(comm_batch_begin(c));
    for (int i = 1; s == OK && i < c->size; i++) {
        int next = (c->rank + i) % c->size, before = (c->rank + c->size - i) % c->size;
        const Tensor to = tensor_rows(in, next * room, n->to[next]);
        const Tensor from = tensor_rows(out, before * room, n->from[before]);
        s = swap_rows(c, &to, next, &from, before);
    }
    Status end = comm_batch_end(c); /* after a failure, too */
    TRY(s);
    TRY(end);
    const Tensor own = tensor_rows(in, c->rank * room, n->to[c->rank]);
    return ex->backend->copy(ex, tensor_rows(out, c->rank * room, own.dim[0]).data, own.data,
                             tensor_bytes(&own));
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
    int64_t m = a->rows.dim[0];
    ExchangeRows out = { .x = exchange_rows_at(&a->x, m, &at) };
    out.index = exchange_rows_at(&a->index, m, &at);
    out.weight = exchange_rows_at(&a->weight, m, &at);
    TRY(exchange_no_rows(ex, &out.index, &out.weight));
    TRY(l->dispatch_rows(ex, a, &out));
    Counts n;
    n.known = a->count.data != NULL;
    if (n.known) TRY(counts_read(ex, c, &a->count, at, n.to, n.from));
    TRY(swap_blocks(ex, c, &out.x, &a->rows, &n));
    if (a->index.data == NULL) return OK;
    if (n.known) TRY(exchange_no_rows(ex, &a->rows_index, &a->rows_weight));
    TRY(swap_blocks(ex, c, &out.index, &a->rows_index, &n));
    return swap_blocks(ex, c, &out.weight, &a->rows_weight, &n);
}

Status exchange_blocks_back(Exec *ex, Comm *c, const ExchangeCombine *a, const ExchangeLocal *l,
                            void *workspace)
{
    char *at = workspace;
    ExchangeRows back = { .x = exchange_rows_at(&a->x, a->x.dim[0], &at) };
    back.weight = exchange_rows_at(&a->rows_weight, a->x.dim[0], &at);
    Counts n;
    n.known = a->count.data != NULL;
    if (n.known) TRY(counts_read(ex, c, &a->count, at, n.from, n.to));
    TRY(swap_blocks(ex, c, &a->x, &back.x, &n));
    if (back.weight.data != NULL) TRY(swap_blocks(ex, c, &a->rows_weight, &back.weight, &n));
    return l->combine_rows(ex, a, &back);
}
