/*
 * exchange_alltoall: a token travels once to each rank that holds some of its experts, however
 * many; there the routing weights sum the experts' rows up before one row goes back. So with k of E
 * experts chosen uniformly without repetition, a rank gets N distinct(E, k, n) rows from n ranks of
 * N tokens: less than N k.
 *
 * Each rank has room for C rows of every rank. Blocks of C rows, filled from the front, are
 * exchanged. Rows behind a block's last filled one are no data: their experts are -1, their weights
 * 0. Blocks travel whole, so that no host needs to know how full they are.
 */
#include "op/exchange.h"

#include "op/op.h"

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
    .places = true,
    .rows = exchange_distinct,
    .volume = exchange_straight,
    .cost = exchange_copied,
    .dispatch_workspace = exchange_blocks_out_bytes,
    .combine_workspace = exchange_blocks_back_bytes,
    .dispatch = alltoall_dispatch,
    .combine = alltoall_combine,
    .cpu = { exchange_pack, exchange_unpack },
};
