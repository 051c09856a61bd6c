/*
 * exchange_allgather: every token goes to every rank by all-gather, and sums of rows come back by reduce-scatter. A
 * rank ignores experts that it does not have (-1). So no size depends on the routing: there are no offsets, and no
 * bound that rows could exceed. It moves the most bytes of all kinds, unless a token has experts on nearly every rank.
 */
#include "kernels/exchange/exchange.h"

#include "kernels/core/op.h"

static double allgather_rows(int64_t experts, int64_t top_k, int64_t ranks)
{
    (void)experts;
    (void)top_k;
    return (double)ranks;
}

static ExchangeVolume allgather_volume(const ExchangeShape *s)
{
    return (ExchangeVolume){ .between = (double)(s->ranks - s->inside),
                             .inside = (double)(s->inside - 1) };
}

/* Reduced rows go straight into y, unless something has to be added to them. */
static bool combine_adds(const ExchangeCombine *a)
{
    return a->shared.data != NULL || a->residual.data != NULL;
}

static size_t allgather_dispatch_workspace(const ExchangeDispatch *a) { return (void)a, 0; }

static size_t allgather_combine_workspace(const ExchangeCombine *a)
{
    return combine_adds(a) ? exchange_rows_bytes(&a->x, a->y.dim[0]) : 0;
}

/* Turns indices among all experts into indices among this rank's. */
static Status keep_own_cpu(Exec *ex, const ExchangeDispatch *a, const ExchangeRows *rows)
{
    (void)ex;
    int32_t *at = a->rows_index.data;
    int64_t here = a->experts / a->ranks, first = rows->all->rank * here;
    for (int64_t i = 0; i < tensor_elems(&a->rows_index); i++)
        at[i] = exchange_local_expert(at[i], first, here);
    return OK;
}

static Status allgather_dispatch(Exec *ex, const ExchangeGroups *g, const ExchangeDispatch *a,
                                 const ExchangeLocal *l)
{
    Comm *c = g->all;
    TRY(comm_all_gather(c, &a->x.data, &a->rows.data));
    if (a->x.scale.data != NULL) TRY(comm_all_gather(c, &a->x.scale, &a->rows.scale));
    if (a->index.data == NULL) return OK;
    TRY(comm_all_gather(c, &a->weight, &a->rows_weight));
    TRY(comm_all_gather(c, &a->index, &a->rows_index));
    return l->dispatch_rows(ex, a, &(ExchangeRows){ .all = c });
}

static Status allgather_combine(Exec *ex, const ExchangeGroups *g, const ExchangeCombine *a,
                                const ExchangeLocal *l)
{
    Comm *c = g->all;
    if (a->rows_weight.data != NULL) TRY(comm_reduce_scatter(c, &a->rows_weight, &a->weight));
    if (!combine_adds(a)) return comm_reduce_scatter(c, &a->x, &a->y);
    char *at = ex->workspace;
    ExchangeRows back = { .x.data = exchange_rows_at(&a->x, a->y.dim[0], &at) };
    TRY(comm_reduce_scatter(c, &a->x, &back.x.data));
    return l->combine_rows(ex, a, &back);
}

const ExchangeDesc exchange_allgather = {
    .name = "allgather",
    .rows = allgather_rows,
    .volume = allgather_volume,
    .cost = exchange_copied,
    .dispatch_workspace = allgather_dispatch_workspace,
    .combine_workspace = allgather_combine_workspace,
    .dispatch = allgather_dispatch,
    .combine = allgather_combine,
    .cpu = { keep_own_cpu, exchange_unpack },
};
