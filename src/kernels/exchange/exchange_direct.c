/*
 * exchange_direct: a token travels once to each rank that holds some of its experts, as with
 * alltoall, but its rank stores it into that rank's memory itself. There are no blocks by source.
 * The tokens that rank s sends to rank d begin at row
 *     first[d] = sum over ranks s' < s of count[s'][d].
 * So a rank's rows are contiguous, in the order (source rank, token), which is alltoall's order. Only their total is
 * bounded. Rows beyond the bound are neither stored nor loaded by any rank, and the receiver raises its overflow flag.
 *
 * An exchange has two barriers. At each, every rank waits for every other.
 *   enter   A rank posts the offsets of its buffers, and with routing the number of tokens that it
 *           sends to each rank. From now on its peers may access these buffers. Every rank has all
 *           counts, computes its own offsets from them, and keeps `first` for combine.
 *   leave   A rank has stored, or loaded, all its rows. Its received rows are complete, and no peer
 *           accesses its memory any more.
 * One barrier is not enough: a rank would not know when its buffers may be reused.
 *
 * Dispatch stores rows between the barriers. Combine loads: a token's rank fetches the rows from the ranks that hold
 * them and sums them in f32, in the order of ranks. So no rank needs memory for rows that come back.
 *
 * Buffers may lie anywhere in the one block that a rank has opened to its peers (exchange_open).
 * Their offsets travel with the counts, so ranks need not have the same layout. On a GPU an
 * exchange is one launch and a few fills (exchange_direct.cu).
 */
#include "kernels/exchange/exchange_peers.h"

#include "kernels/core/op.h"
#include "kernels/exchange/exchange.h"

#include <string.h>

enum { PIECE = 64 }; /* tokens whose rows combine fetches at a time */

/* Offset of t in this rank's window, in bytes; 0 without data. */
static Status window_offset(const char *op, const char *port, const ExchangeRows *r,
                            const Tensor *t, uint64_t *at)
{
    *at = 0;
    if (t->data == NULL || (r->peers != NULL && exchange_window_offset(r, t, at))) return OK;
    return FAIL(ERR_ARG, "%s: %s does not lie in the memory that ranks have opened (exchange_open)",
                op, port);
}

/* Barriers */

static DirectHeader *header_of(const ExchangeRows *r, int rank)
{
    return (DirectHeader *)(void *)((char *)r->peers->peer[rank] + r->peers->flags);
}

/* Posts this rank's offsets and counts in every peer's header, then waits for all ranks. */
static Status barrier_enter(const ExchangeRows *r, const int32_t *count)
{
    for (int to = 0; to < r->all->size; to++) {
        DirectPost *post = &header_of(r, to)->post[r->all->rank];
        memcpy(post->at, r->at, sizeof post->at);
        if (count != NULL) memcpy(post->count, count, (size_t)r->all->size * sizeof *count);
    }
    return comm_barrier(r->all);
}

/* The i-th buffer that rank `rank` posted, as this rank sees it. */
static char *peer_buffer(const ExchangeRows *r, int rank, int i)
{
    return (char *)r->peers->peer[rank] + header_of(r, r->all->rank)->post[rank].at[i];
}

/* Computes from the posted counts where this rank's tokens begin at each rank (a->first), and how
 * many rows come here. Raises the overflow flag if these do not fit. */
static void compute_first(const ExchangeDispatch *a, const ExchangeRows *r)
{
    int me = r->all->rank, ranks = r->all->size;
    const DirectPost *post = header_of(r, me)->post;
    int32_t *first = a->first.data, m = (int32_t)a->rows.data.dim[0], all = 0;
    memset(first, 0, (size_t)ranks * sizeof *first);
    for (int from = 0; from < ranks; from++) {
        for (int to = 0; to < ranks && from < me; to++) first[to] += post[from].count[to];
        all += post[from].count[me];
    }
    first[ranks] = all < m ? all : m;
    if (all > m && a->overflow.data != NULL) *(float *)a->overflow.data = 1;
}

/* A row in a peer's memory; rank -1: none. */
typedef struct PeerRow {
    int rank;
    int64_t row;
} PeerRow;

/* offset = rank * N + number among this rank's tokens for that rank. Rows from m on had no room. */
static PeerRow peer_row_of(const Tensor *offset, const Tensor *first, int64_t slot, int64_t m)
{
    int64_t p = ((const int32_t *)offset->data)[slot], n = offset->dim[0];
    if (p < 0) return (PeerRow){ .rank = -1 };
    PeerRow f = { (int)(p / n), ((const int32_t *)first->data)[p / n] + p % n };
    if (f.row >= m) f.rank = -1;
    return f;
}

/* Stores row n of x into row f of the peers' i-th buffer, if such rows travel. */
static void store_row(const ExchangeRows *r, PeerRow f, int i, const Tensor *x, int64_t n)
{
    size_t row = exchange_row_bytes(x);
    if (row > 0)
        memcpy(peer_buffer(r, f.rank, i) + (size_t)f.row * row,
               (const char *)x->data + (size_t)n * row, row);
}

static Status store_rows(Exec *ex, const ExchangeDispatch *a, const ExchangeRows *r)
{
    int64_t N = a->x.data.dim[0], K = tensor_cols(&a->offset), here = a->experts / a->ranks;
    const int32_t *index = a->index.data;
    TRY(barrier_enter(r, index == NULL ? NULL : a->count.data));
    if (index != NULL) compute_first(a, r);
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t slot = 0; slot < N * K; slot++) {
        const PeerRow f = peer_row_of(&a->offset, &a->first, slot, a->rows.data.dim[0]);
        int64_t n = slot / K;
        if (f.rank < 0) continue;
        store_row(r, f, PEER_ROWS, &a->x.data, n);
        store_row(r, f, PEER_SCALES, &a->x.scale, n);
        store_row(r, f, PEER_WEIGHTS, &a->weight, n);
        if (index == NULL) continue;
        int32_t *local = (int32_t *)(void *)peer_buffer(r, f.rank, PEER_EXPERTS) + f.row * K;
        for (int64_t k = 0; k < K; k++)
            local[k] = exchange_local_expert(index[n * K + k], f.rank * here, here);
    }
    return comm_barrier(r->all);
}

/* Fetches the rows of tokens [first, first + n) from peers into `to`; to->index says which rows of
 * it belong to which slot. */
static void fetch_rows(Exec *ex, const ExchangeCombine *a, const ExchangeRows *r, int64_t first,
                       int64_t n, const ExchangeRows *to)
{
    int64_t K = tensor_cols(&a->offset), M = a->x.dim[0];
    size_t row = (size_t)tensor_cols(&a->x) * dtype_bytes(a->x.dtype);
    size_t weights = to->weight.data == NULL ? 0 : (size_t)K * sizeof(float);
    int32_t *at = to->index.data;
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < n * K; i++) {
        const PeerRow f = peer_row_of(&a->offset, &a->first, first * K + i, M);
        at[i] = f.rank < 0 ? -1 : (int32_t)i;
        if (f.rank < 0) continue;
        memcpy((char *)to->x.data.data + (size_t)i * row,
               peer_buffer(r, f.rank, PEER_ROWS) + (size_t)f.row * row, row);
        if (weights > 0)
            memcpy(tensor_at(&to->weight, i * K),
                   peer_buffer(r, f.rank, PEER_WEIGHTS) + (size_t)f.row * weights, weights);
    }
}

static Tensor rows_or_none(const Tensor *t, int64_t first, int64_t n)
{
    return t->data == NULL ? *t : tensor_rows(t, first, n);
}

static Status load_rows(Exec *ex, const ExchangeCombine *a, const ExchangeRows *r)
{
    int64_t N = a->y.dim[0], K = tensor_cols(&a->offset);
    char *at = ex->workspace;
    ExchangeRows back = { .x.data = exchange_rows_at(&a->x, PIECE * K, &at) };
    back.index = exchange_rows_at(&a->offset, PIECE, &at);
    back.weight = exchange_rows_at(&a->rows_weight, PIECE * K, &at);
    TRY(barrier_enter(r, NULL));
    for (int64_t first = 0; first < N; first += PIECE) {
        int64_t n = N - first < PIECE ? N - first : PIECE;
        ExchangeCombine some = *a;
        fetch_rows(ex, a, r, first, n, &back);
        some.offset = tensor_rows(&back.index, 0, n);
        some.shared = rows_or_none(&a->shared, first, n);
        some.residual = rows_or_none(&a->residual, first, n);
        some.y = rows_or_none(&a->y, first, n);
        some.weight = rows_or_none(&a->weight, first, n);
        TRY(exchange_unpack(ex, &some, &back));
    }
    return comm_barrier(r->all);
}

/* Steps */

static size_t direct_dispatch_workspace(const ExchangeDispatch *a) { return (void)a, 0; }

static size_t direct_combine_workspace(const ExchangeCombine *a)
{
    int64_t K = tensor_cols(&a->offset);
    return exchange_rows_bytes(&a->x, PIECE * K) + exchange_rows_bytes(&a->offset, PIECE) +
           exchange_rows_bytes(&a->rows_weight, PIECE * K);
}

static Status direct_dispatch(Exec *ex, const ExchangeGroups *g, const ExchangeDispatch *a,
                              const ExchangeLocal *l)
{
    static const char op[] = "exchange_dispatch";
    ExchangeRows r = { .all = g->all, .peers = ex->peers };
    bool routed = a->index.data != NULL;
    if (routed && a->count.data == NULL)
        return FAIL(ERR_ARG, "%s: count is not set, but direct needs it with index", op);
    TRY(window_offset(op, "rows", &r, &a->rows.data, &r.at[PEER_ROWS]));
    TRY(window_offset(op, "rows.scale", &r, &a->rows.scale, &r.at[PEER_SCALES]));
    TRY(window_offset(op, "rows_index", &r, &a->rows_index, &r.at[PEER_EXPERTS]));
    TRY(window_offset(op, "rows_weight", &r, &a->rows_weight, &r.at[PEER_WEIGHTS]));
    if (routed) TRY(exchange_no_rows(ex, &a->rows_index, &a->rows_weight));
    return l->dispatch_rows(ex, a, &r);
}

static Status direct_combine(Exec *ex, const ExchangeGroups *g, const ExchangeCombine *a,
                             const ExchangeLocal *l)
{
    static const char op[] = "exchange_combine";
    ExchangeRows r = { .all = g->all, .peers = ex->peers };
    TRY(window_offset(op, "x", &r, &a->x, &r.at[PEER_ROWS]));
    TRY(window_offset(op, "rows_weight", &r, &a->rows_weight, &r.at[PEER_WEIGHTS]));
    return l->combine_rows(ex, a, &r);
}

const ExchangeDesc exchange_direct = {
    .name = "direct",
    .offsets = true,
    .compact = true,
    .header_bytes = sizeof(DirectHeader),
    .ranks_most = DIRECT_RANKS,
    .rows = exchange_distinct,
    .volume = exchange_straight,
    .cost = exchange_copied,
    .dispatch_workspace = direct_dispatch_workspace,
    .combine_workspace = direct_combine_workspace,
    .dispatch = direct_dispatch,
    .combine = direct_combine,
    .cpu = { store_rows, load_rows },
};
