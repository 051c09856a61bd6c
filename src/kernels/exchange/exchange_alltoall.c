/*
 * exchange_alltoall: a token travels once to each rank that holds some of its experts, however many these are. That
 * rank sums its experts' rows by the routing weights and sends one row back. If k of E experts are chosen uniformly
 * without repetition, n ranks of N tokens send a rank N distinct(E, k, n) rows: fewer than N k.
 *
 * Each rank has room for C rows from every rank. Blocks of C rows are exchanged, filled from the
 * front. Rows after the last filled one are unused: experts -1, weights 0. Blocks travel whole, so
 * the host need not know how full they are. The work is done in exchange_blocks.c.
 */
#include "kernels/exchange/exchange.h"

#include "kernels/core/op.h"

static Status alltoall_dispatch(Exec *ex, const ExchangeGroups *g, const ExchangeDispatch *a,
                                const ExchangeLocal *l)
{
    return exchange_blocks_out(ex, g->all, a, l, ex->workspace);
}

static Status alltoall_combine(Exec *ex, const ExchangeGroups *g, const ExchangeCombine *a,
                               const ExchangeLocal *l)
{
    return exchange_blocks_back(ex, g->all, a, l, ex->workspace);
}

const ExchangeDesc exchange_alltoall = {
    .name = "alltoall",
    .offsets = true,
    .rows = exchange_distinct,
    .volume = exchange_straight,
    .cost = exchange_copied,
    .dispatch_workspace = exchange_blocks_out_bytes,
    .combine_workspace = exchange_blocks_back_bytes,
    .dispatch = alltoall_dispatch,
    .combine = alltoall_combine,
    .cpu = { exchange_pack, exchange_unpack },
};
