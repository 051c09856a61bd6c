/*
 * exchange_hier: a token travels once to each host that holds some of its experts, however many ranks these lie on;
 * between hosts links are slow, inside one they are fast (DeepSeek-V3, arXiv:2412.19437 §3.2.2).
 *
 *   dispatch   rank (host h, number i) -> relay (h', i) -> rank (h', j) of an expert
 *   combine    the same route back: the relay sums its host's rows in the order of j, the token's
 *              rank sums the hosts' rows in the order of h'; each sum in f32, rounded to the rows' type
 *
 * Let g of n ranks share a host. Each stage is an alltoall of rows in blocks: n / g blocks across hosts by `offset`,
 * then g blocks inside a host by `relay.offset`. A relay knows of a row only what came with it. So it computes
 * relay.offset itself, from the experts of all rows that came, and raises the overflow flag if a row has no room.
 * relay.offset is kept, because gradients come without routing and travel the same way.
 *
 * With k of E experts chosen uniformly, a token sends distinct(E, k, n / g) rows to hosts, where
 * alltoall sends distinct(E, k, n). Each rank receives the same number of rows as with alltoall. A
 * relay starts to pass rows on when all have come: the two stages do not overlap.
 */
#include "kernels/exchange/exchange.h"

#include "kernels/core/op.h"

/* Each of a token's hosts is this rank's own with probability 1 / hosts, and such a row does not
 * leave the host. The same holds for ranks inside a host. */
static ExchangeVolume hier_volume(const ExchangeShape *s)
{
    double hosts = (double)exchange_hosts(s), inside = (double)s->inside;
    return (ExchangeVolume){
        .between = exchange_distinct(s->experts, s->top_k, exchange_hosts(s)) * (hosts - 1) / hosts,
        .inside = exchange_distinct(s->experts, s->top_k, s->ranks) * (inside - 1) / inside,
    };
}

/* A relayed row crosses memory three times more: when it is packed, received and passed on. */
static OpCost hier_cost(const ExchangeLoad *load)
{
    double hosts = (double)load->ranks / (double)load->inside, inside = (double)load->inside;
    double across = load->relayed * (hosts - 1) / hosts;
    OpCost c = exchange_copied(load);
    c.bytes += 3 * load->relayed * load->row;
    c.comm_bytes = (across + load->received * (inside - 1) / inside) * load->row;
    return c;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Each function gives one stage as the arguments of an exchange of its own. Rows between the stages
 * lie at *at, which moves past them. */

/* From a token's rank to the relays. A "rank" of this exchange is a host, so the experts of a rank
 * are all experts of a host. */
static ExchangeDispatch to_hosts(const ExchangeDispatch *a, char **at)
{
    int64_t rows = a->relay.offset.dim[0];
    ExchangeDispatch s = *a;
    s.rows = exchange_operand_at(&a->x, rows, at);
    s.rows_index = exchange_rows_at(&a->index, rows, at);
    s.rows_weight = exchange_rows_at(&a->weight, rows, at);
    s.ranks = a->ranks / a->relay.inside;
    return s;
}

/* From a relay to the ranks of its host. index already counts from the host's first expert, so
 * `experts` is the number of experts of a host. */
static ExchangeDispatch to_ranks(const ExchangeDispatch *a, const ExchangeDispatch *hosts)
{
    ExchangeDispatch s = *a;
    s.x = hosts->rows;
    s.index = hosts->rows_index;
    s.weight = hosts->rows_weight;
    s.offset = a->relay.offset;
    s.ranks = a->relay.inside;
    s.experts = a->experts * a->relay.inside / a->ranks;
    return s;
}

/* From the ranks of experts back to the relay, which sums them. shared and residual are left out:
 * the last stage adds them, once. */
static ExchangeCombine from_ranks(const ExchangeCombine *a, char **at)
{
    int64_t rows = a->relay.offset.dim[0];
    ExchangeCombine s = *a;
    s.shared = s.residual = (Tensor){ 0 };
    s.offset = a->relay.offset;
    s.y = exchange_rows_at(&a->x, rows, at);
    s.weight = exchange_rows_at(&a->rows_weight, rows, at);
    s.ranks = a->relay.inside;
    return s;
}

/* From the relays back to the token's rank. offset, shared and residual are the op's own. */
static ExchangeCombine from_hosts(const ExchangeCombine *a, const ExchangeCombine *ranks)
{
    ExchangeCombine s = *a;
    s.x = ranks->y;
    s.rows_weight = ranks->weight;
    s.ranks = a->ranks / a->relay.inside;
    return s;
}

/* The call of exchange_place that computes relay.offset. */
static ExchangePlace relay_offsets(const ExchangeDispatch *a, const ExchangeDispatch *ranks)
{
    return (ExchangePlace){ .index = ranks->index,
                            .offset = a->relay.offset,
                            .overflow = a->overflow,
                            .experts = ranks->experts,
                            .ranks = ranks->ranks,
                            .room = a->rows.data.dim[0] / ranks->ranks,
                            .elsewhere = true };
}

/* Rows between the stages, followed by the scratch of one stage at a time. */
static size_t hier_dispatch_workspace(const ExchangeDispatch *a)
{
    int64_t rows = a->relay.offset.dim[0];
    ExchangeDispatch hosts = *a, ranks = *a;
    hosts.rows.data.dim[0] = rows;
    ranks.ranks = a->relay.inside;
    const ExchangePlace p = relay_offsets(a, &ranks);
    size_t stage = larger(exchange_blocks_out_bytes(&hosts), exchange_blocks_out_bytes(&ranks));
    return exchange_operand_bytes(&a->x, rows) + exchange_rows_bytes(&a->index, rows) +
           exchange_rows_bytes(&a->weight, rows) + larger(stage, exchange_place_bytes(p.ranks));
}

/* As for dispatch: sums at the relay, then the scratch of one stage at a time. */
static size_t hier_combine_workspace(const ExchangeCombine *a)
{
    int64_t rows = a->relay.offset.dim[0];
    ExchangeCombine hosts = *a;
    hosts.x.dim[0] = rows;
    return exchange_rows_bytes(&a->x, rows) + exchange_rows_bytes(&a->rows_weight, rows) +
           larger(exchange_blocks_back_bytes(a), exchange_blocks_back_bytes(&hosts));
}

/* A plan made for other machines may expect other groups than the mesh has: then rows would go to
 * wrong ranks, so the op refuses. */
static Status check_groups(const char *op, const ExchangeGroups *g, int64_t ranks, int64_t inside)
{
    int near = g->inside == NULL ? 0 : g->inside->size,
        far = g->across == NULL ? 0 : g->across->size;
    if (near == inside && far * inside == ranks) return OK;
    return FAIL(ERR_ARG, "%s: %lld ranks, %lld on each host, but the mesh has %d on each of %d", op,
                (long long)ranks, (long long)inside, near, far);
}

/* Runs exchange_place directly on the backend, as exchange_unpack does, with a workspace at `at`. */
static Status make_offsets(Exec *ex, const ExchangePlace *p, void *at)
{
    void *own = ex->workspace;
    ex->workspace = at;
    Status s = ex->backend->run(ex, op_desc(OP_EXCHANGE_PLACE), p);
    ex->workspace = own;
    return s;
}

static Status hier_dispatch(Exec *ex, const ExchangeGroups *g, const ExchangeDispatch *a,
                            const ExchangeLocal *l)
{
    char *at = ex->workspace;
    TRY(check_groups("exchange_dispatch", g, a->ranks, a->relay.inside));
    const ExchangeDispatch hosts = to_hosts(a, &at), ranks = to_ranks(a, &hosts);
    TRY(exchange_blocks_out(ex, g->across, &hosts, l, at));
    const ExchangePlace p = relay_offsets(a, &ranks);
    /* Without an index these are gradients: they use the offsets that their forward pass left. */
    if (a->index.data != NULL) TRY(make_offsets(ex, &p, at));
    return exchange_blocks_out(ex, g->inside, &ranks, l, at);
}

static Status hier_combine(Exec *ex, const ExchangeGroups *g, const ExchangeCombine *a,
                           const ExchangeLocal *l)
{
    char *at = ex->workspace;
    TRY(check_groups("exchange_combine", g, a->ranks, a->relay.inside));
    const ExchangeCombine ranks = from_ranks(a, &at), hosts = from_hosts(a, &ranks);
    TRY(exchange_blocks_back(ex, g->inside, &ranks, l, at));
    return exchange_blocks_back(ex, g->across, &hosts, l, at);
}

const ExchangeDesc exchange_hier = {
    .name = "hier",
    .offsets = true,
    .hierarchical = true,
    .rows = exchange_distinct,
    .volume = hier_volume,
    .cost = hier_cost,
    .dispatch_workspace = hier_dispatch_workspace,
    .combine_workspace = hier_combine_workspace,
    .dispatch = hier_dispatch,
    .combine = hier_combine,
    .cpu = { exchange_pack, exchange_unpack },
};
