/*
 * exchange: the table of kinds of exchange, and what they share: checks, costs, offsets of tokens,
 * opening of peer memory, collectives. How rows travel is in exchange_NAME.c, one file a kind.
 */
#include "kernels/exchange/exchange.h"

#include "kernels/core/index_check.h"
#include "kernels/moe/moe_tiles.h"

#include <math.h>
#include <string.h>

const ExchangeDesc *const exchange_kinds[EXCHANGE_KINDS] = {
#define EXCHANGE(KIND, name) &exchange_##name,
#include "kernels/exchange/exchange.def"
#undef EXCHANGE
};

double exchange_distinct(int64_t experts, int64_t top_k, int64_t groups)
{
    int64_t each = experts / groups;
    double none = 1; /* no chosen expert lies in one given group */
    for (int64_t i = 0; i < top_k; i++) {
        int64_t left = experts - each - i;
        none *= left > 0 ? (double)left / (double)(experts - i) : 0;
    }
    return (double)groups * (1 - none);
}

/* A rank is as likely a target as any other, so volumes follow from their numbers. */
ExchangeVolume exchange_straight(const ExchangeShape *s)
{
    double each = exchange_distinct(s->experts, s->top_k, s->ranks) / (double)s->ranks;
    return (ExchangeVolume){ .between = each * (double)(s->ranks - s->inside),
                             .inside = each * (double)(s->inside - 1) };
}

bool exchange_reaches(ExchangeKind kind, const ExchangeShape *s)
{
    return exchange_kinds[kind]->header_bytes == 0 || s->inside == s->ranks;
}

ExchangeKind exchange_choose(const ExchangeShape *s)
{
    ExchangeKind best = (ExchangeKind)0;
    double least = INFINITY;
    bool alone =
        s->inside == 1 || s->inside == s->ranks; /* one rank a host, or one host: no relay */
    for (int kind = 0; kind < EXCHANGE_KINDS; kind++) {
        const ExchangeVolume v = exchange_kinds[kind]->volume(s);
        double takes = EXCHANGE_BETWEEN * v.between + v.inside;
        bool idle = exchange_kinds[kind]->hierarchical && alone;
        if (idle || !exchange_reaches((ExchangeKind)kind, s) || !(takes < least)) continue;
        least = takes, best = (ExchangeKind)kind;
    }
    return best;
}

static double bytes_of(const Tensor *t) { return t->data == NULL ? 0 : (double)tensor_bytes(t); }

/* A fraction (ranks - 1) / ranks of the rows crosses links. Memory traffic counts rows on both sides. */
OpCost exchange_copied(const ExchangeLoad *load)
{
    double rows = load->received, ranks = (double)load->ranks;
    return (OpCost){ .bytes = load->home + 2 * rows * load->row,
                     .comm_bytes = rows * load->row * (ranks - 1) / ranks,
                     .axis = AXIS_EP,
                     .work = WORK_COMM,
                     .comm = COMM_EXCHANGE,
                     .size = load->row };
}

static Status count_check(const char *op, const Tensor *count, int64_t ranks)
{
    return count->data == NULL ? OK : op_expect(op, "count", count, 1, ranks, DTYPE_I32);
}

Status exchange_place_check(const ExchangePlace *a)
{
    int64_t n = a->index.dim[0], k = tensor_cols(&a->index);
    TRY(op_expect("exchange_place", "index", &a->index, n, k, DTYPE_I32));
    TRY(op_expect("exchange_place", "offset", &a->offset, n, k, DTYPE_I32));
    if (a->ranks < 1 || a->experts % a->ranks != 0 || a->room * a->ranks > INT32_MAX) {
        return FAIL(ERR_ARG,
                    "exchange_place: %lld experts over %lld ranks with room for %lld rows each: "
                    "ranks must divide experts, and all rows be at most %d",
                    (long long)a->experts, (long long)a->ranks, (long long)a->room, INT32_MAX);
    }
    TRY(count_check("exchange_place", &a->count, a->ranks));
    if (a->overflow.data == NULL) return OK;
    return op_expect("exchange_place", "overflow", &a->overflow, 1, 1, DTYPE_F32);
}

OpCost exchange_place_cost(const ExchangePlace *a)
{
    return (OpCost){ .bytes = bytes_of(&a->index) + bytes_of(&a->offset) };
}

int64_t exchange_blocks(ExchangeKind kind, int64_t ranks, int64_t inside)
{
    return exchange_kinds[kind]->hierarchical ? ranks / inside : ranks;
}

/* Checks a relay's tensors. Kinds without relays must not have them. */
static Status relay_check(const char *op, ExchangeKind kind, int64_t ranks, const ExchangeRelay *r)
{
    const Tensor *offset = &r->offset;
    if (!exchange_kinds[kind]->hierarchical) {
        if (r->offset.data == NULL) return OK;
        return FAIL(ERR_ARG, "%s: relay is set, but with %s nothing is passed on", op,
                    exchange_kinds[kind]->name);
    }
    if (r->inside < 1 || ranks % r->inside != 0 || offset->dim[0] % (ranks / r->inside) != 0) {
        return FAIL(ERR_ARG,
                    "%s: %lld ranks, %lld on each host, with %lld rows to pass on: all hosts must "
                    "have equally many ranks and rows",
                    op, (long long)ranks, (long long)r->inside, (long long)offset->dim[0]);
    }
    return op_expect(op, "relay.offset", offset, offset->dim[0], -1, DTYPE_I32);
}

/* Checks M, the number of received rows. Compact kinds: any number. Other kinds with offsets: a
 * multiple of ranks (equal blocks). Kinds without offsets: N rows from each rank. */
static Status rows_check(const char *op, ExchangeKind kind, int64_t m, int64_t n, int64_t ranks,
                         const Tensor *offset, const Tensor *first)
{
    bool offsets = exchange_kinds[kind]->offsets, compact = exchange_kinds[kind]->compact;
    if (compact) TRY(op_expect(op, "first", first, 1, ranks + 1, DTYPE_I32));
    if (offsets ? !compact && m % ranks != 0 : m != n * ranks) {
        return FAIL(ERR_SHAPE, "%s: %lld rows for %lld tokens over %lld ranks: wanted %s", op,
                    (long long)m, (long long)n, (long long)ranks,
                    offsets ? "equal numbers from each rank" : "all tokens");
    }
    if (offsets) return op_expect(op, "offset", offset, n, -1, DTYPE_I32);
    if (offset->data == NULL) return OK;
    return FAIL(ERR_ARG, "%s: offset is set, but with %s every rank gets all tokens, in order", op,
                exchange_kinds[kind]->name);
}

Status exchange_dispatch_check(const ExchangeDispatch *a)
{
    const unsigned travel = OPERANDS_PLAIN | 1 << OPERAND_ROW | 1 << OPERAND_1X128;
    const Tensor *x = &a->x.data;
    int64_t n = x->dim[0], m = a->rows.data.dim[0], d = tensor_cols(x);
    if (a->x.transposed || a->rows.transposed)
        return FAIL(ERR_ARG, "exchange_dispatch: x and rows must not be transposed");
    TRY(operand_expect("exchange_dispatch", "x", &a->x, n, d, travel));
    TRY(operand_expect("exchange_dispatch", "rows", &a->rows, m, d, 1U << a->x.kind));
    TRY(op_expect("exchange_dispatch", "rows", &a->rows.data, m, d, x->dtype));
    TRY(rows_check("exchange_dispatch", a->kind, m, n, a->ranks, &a->offset, &a->first));
    TRY(relay_check("exchange_dispatch", a->kind, a->ranks, &a->relay));
    TRY(count_check("exchange_dispatch", &a->count, a->ranks));
    if (a->index.data == NULL) return OK;
    int64_t k = tensor_cols(&a->index);
    TRY(op_expect("exchange_dispatch", "index", &a->index, n, k, DTYPE_I32));
    TRY(op_expect("exchange_dispatch", "weight", &a->weight, n, k, DTYPE_F32));
    TRY(op_expect("exchange_dispatch", "rows_index", &a->rows_index, m, k, DTYPE_I32));
    return op_expect("exchange_dispatch", "rows_weight", &a->rows_weight, m, k, DTYPE_F32);
}

static OpCost exchange_cost(ExchangeKind kind, const Rows *received, const ExchangeRelay *relay,
                            int64_t ranks, double row, double home)
{
    const ExchangeLoad load = { .received = moe_rows_expected(received),
                                .relayed = relay->expected,
                                .row = row,
                                .home = home,
                                .ranks = ranks,
                                .inside = relay->inside };
    /* cppcheck-suppress returnDanglingLifetime ; a cost holds numbers alone */
    return exchange_kinds[kind]->cost(&load);
}

OpCost exchange_dispatch_cost(const ExchangeDispatch *a)
{
    size_t row = exchange_row_bytes(&a->x.data) + exchange_row_bytes(&a->x.scale) +
                 exchange_row_bytes(&a->index) + exchange_row_bytes(&a->weight);
    return exchange_cost(a->kind, &a->received, &a->relay, a->ranks, (double)row,
                         operand_bytes(&a->x));
}

Status exchange_combine_check(const ExchangeCombine *a)
{
    int64_t n = a->y.dim[0], d = tensor_cols(&a->y);
    int64_t m = a->x.dim[0];
    TRY(op_expect_act("exchange_combine", "y", &a->y, n, d));
    TRY(op_expect("exchange_combine", "x", &a->x, m, d, a->y.dtype));
    TRY(rows_check("exchange_combine", a->kind, m, n, a->ranks, &a->offset, &a->first));
    TRY(relay_check("exchange_combine", a->kind, a->ranks, &a->relay));
    if (a->rows_weight.data == NULL) return OK;
    int64_t k = tensor_cols(&a->rows_weight);
    TRY(op_expect("exchange_combine", "rows_weight", &a->rows_weight, m, k, DTYPE_F32));
    return op_expect("exchange_combine", "weight", &a->weight, n, k, DTYPE_F32);
}

OpCost exchange_combine_cost(const ExchangeCombine *a)
{
    double home = bytes_of(&a->y) + bytes_of(&a->shared) + bytes_of(&a->residual);
    size_t row = exchange_row_bytes(&a->x) + exchange_row_bytes(&a->rows_weight);
    return exchange_cost(a->kind, &a->received, &a->relay, a->ranks, (double)row, home);
}

Status exchange_collective_check(const Collective *a)
{
    int64_t in = a->in.dim[0], want = in;
    if (a->kind == COMM_ALL_GATHER) want = in * a->ranks;
    if (a->kind == COMM_REDUCE_SCATTER) want = in / a->ranks;
    if (a->in.dtype != DTYPE_I32) TRY(op_expect_act("exchange_collective", "in", &a->in, in, -1));
    const int64_t parts = a->parts > 1 ? a->parts : 1, least = in < want ? in : want;
    if (least % parts != 0)
        return FAIL(ERR_SHAPE, "exchange_collective: %lld rows do not divide into %lld parts",
                    (long long)least, (long long)parts);
    bool in_place = a->kind == COMM_ALL_REDUCE || a->kind == COMM_BROADCAST;
    if (in_place && a->in.data != a->out.data)
        return FAIL(ERR_ARG, "exchange_collective: an all-reduce and a broadcast are in place, but "
                             "in is not out");
    return op_expect("exchange_collective", "out", &a->out, want, tensor_cols(&a->in), a->in.dtype);
}

/* OpCost.size is the bytes of the whole (gathered) tensor, as formulas for collectives expect. Links carry (ranks - 1)
 * / ranks of it in a gather or a reduce-scatter, and twice that in an all-reduce. */
OpCost exchange_collective_cost(const Collective *a)
{
    double in = bytes_of(&a->in), out = bytes_of(&a->out), whole = in > out ? in : out;
    double others = (double)(a->ranks - 1) / (double)a->ranks;
    return (OpCost){ .bytes = in + out,
                     .comm_bytes = a->kind == COMM_SHIFT || a->kind == COMM_BROADCAST ? in
                                   : a->kind == COMM_ALL_REDUCE ? 2 * whole * others
                                                                : whole * others,
                     .axis = a->axis,
                     .work = WORK_COMM,
                     .comm = a->kind,
                     .size = whole };
}

/* Offsets of tokens */

/* Lists the ranks of a token's experts in rising order, each once, by insertion. Experts -1 have no
 * rank. Returns the number of ranks. */
static int64_t token_ranks(const int32_t *index, int64_t k, int64_t here, int32_t *rank)
{
    int64_t n = 0;
    for (int64_t i = 0; i < k; i++) {
        int32_t r = (int32_t)(index[i] / here);
        int64_t at = n;
        if (index[i] < 0) continue;
        while (at > 0 && rank[at - 1] > r) at--;
        if (at > 0 && rank[at - 1] == r) continue;
        memmove(rank + at + 1, rank + at, (size_t)(n - at) * sizeof *rank);
        rank[at] = r;
        n++;
    }
    return n;
}

Status exchange_place_cpu(Exec *ex, const ExchangePlace *a)
{
    TRY(index_check_from("exchange_place", "index", &a->index, a->elsewhere ? -1 : 0, a->experts));
    int64_t N = a->index.dim[0], K = tensor_cols(&a->index);
    int32_t *used = ex->workspace, *offset = a->offset.data;
    const int32_t *index = a->index.data;
    bool full = false;
    memset(used, 0, (size_t)a->ranks * sizeof *used);
    for (int64_t n = 0; n < N; n++, offset += K, index += K) {
        int64_t ranks = token_ranks(index, K, a->experts / a->ranks, offset);
        for (int64_t i = 0; i < ranks; i++) {
            int32_t r = offset[i];
            bool fits = used[r] < a->room;
            offset[i] = fits ? (int32_t)(r * a->room) + used[r]++ : -1;
            full |= !fits;
        }
        for (int64_t i = ranks; i < K; i++) offset[i] = -1;
    }
    if (a->count.data != NULL) memcpy(a->count.data, used, (size_t)a->ranks * sizeof *used);
    if (full && a->overflow.data != NULL) *(float *)a->overflow.data = 1;
    return OK;
}

size_t exchange_place_bytes(int64_t ranks) { return (size_t)ranks * sizeof(int32_t); }

size_t exchange_place_workspace(const Exec *ex, const ExchangePlace *a)
{
    (void)ex;
    return exchange_place_bytes(a->ranks);
}

/* To other ranks and back */

/* The group exists and has as many ranks as the op says. */
static Status check_group_size(const Exec *ex, const char *op, int64_t ranks, Comm *c)
{
    if (c != NULL && c->size == ranks) return OK;
    return FAIL(ERR_ARG, "%s: %lld ranks, but rank %d of the mesh has %d here", op,
                (long long)ranks, ex->mesh == NULL ? 0 : ex->mesh->rank, c == NULL ? 0 : c->size);
}

/* Without a mesh all groups are NULL, and check_group_size refuses the call. */
static ExchangeGroups groups_of(const Exec *ex)
{
    if (ex->mesh == NULL) return (ExchangeGroups){ 0 };
    Comm *const *group = ex->mesh->group;
    return (ExchangeGroups){ group[GROUP_EP], group[GROUP_EP_INSIDE], group[GROUP_EP_ACROSS] };
}

size_t exchange_rows_bytes(const Tensor *t, int64_t rows)
{
    return arena_rounded((size_t)rows * exchange_row_bytes(t));
}

Tensor exchange_rows_at(const Tensor *t, int64_t rows, char **at)
{
    Tensor out = { NULL, t->dtype, 2, { rows, tensor_cols(t) } };
    if (t->data == NULL) return *t;
    out.data = *at;
    *at += exchange_rows_bytes(t, rows);
    return out;
}

size_t exchange_operand_bytes(const Operand *q, int64_t rows)
{
    return exchange_rows_bytes(&q->data, rows) + exchange_rows_bytes(&q->scale, rows);
}

Operand exchange_operand_at(const Operand *q, int64_t rows, char **at)
{
    Operand out = *q;
    out.data = exchange_rows_at(&q->data, rows, at);
    out.scale = exchange_rows_at(&q->scale, rows, at);
    return out;
}

/* Runs directly on the backend, below all decorators: the guard would look at rows that no rank
 * sent, which are not outputs of this op. */
Status exchange_unpack(Exec *ex, const ExchangeCombine *a, const ExchangeRows *back)
{
    const OpDesc *sum = op_desc(OP_MOE_COMBINE);
    const MoeCombine y = { .out = back->x.data,
                           .slot_row = a->offset,
                           .shared = a->shared,
                           .residual = a->residual,
                           .y = a->y };
    const MoeCombine weight = { .out = back->weight, .slot_row = a->offset, .y = a->weight };
    TRY(ex->backend->run(ex, sum, &y));
    return back->weight.data == NULL ? OK : ex->backend->run(ex, sum, &weight);
}

/* Is t in this rank's window? Then *at is its offset there, in bytes. */
bool exchange_window_offset(const ExchangeRows *r, const Tensor *t, uint64_t *at)
{
    const uintptr_t first = (uintptr_t)t->data, base = (uintptr_t)r->peers->peer[r->all->rank];
    *at = first - base;
    return first >= base && first - base + tensor_bytes(t) <= r->peers->bytes;
}

enum { ROW_PACK_BYTES = 16 }; /* of one load; arenas align tensors to more */

/* On a GPU a barrier is a launch; once it has run, the flag areas of all members are zero. */
static Status clear_flags(Exec *ex, Comm *c, void *flags, size_t bytes)
{
    TRY(ex->backend->fill(ex, flags, 0, bytes));
    TRY(ex->backend->sync(ex));
    TRY(comm_barrier(c));
    return ex->backend->sync(ex);
}

Status exchange_open(Exec *ex, ExchangeKind kind, void *base, size_t bytes, Arena *a)
{
    const ExchangeDesc *desc = exchange_kinds[kind];
    Comm *c = groups_of(ex).all;
    CommWindow *w = NULL;
    if (desc->header_bytes == 0 || c == NULL || c->size == 1) return OK;
    if (c->size > desc->ranks_most || bytes < desc->header_bytes) {
        return FAIL(ERR_UNSUPPORTED,
                    "moe.exchange=%s: %d ranks with %zu bytes of memory; it takes at most %d ranks "
                    "and needs %zu bytes: set moe.exchange=alltoall",
                    desc->name, c->size, bytes, desc->ranks_most, desc->header_bytes);
    }
    TRY(ARENA_ZEROED(a, 1, &w));
    TRY(comm_window(c, base, bytes, a, w));
    ex->peers = w;
    return clear_flags(ex, c, base, desc->header_bytes);
}

Status exchange_rows_map(Exec *ex, void *base, size_t bytes, size_t flags, Arena *a,
                         CommWindow *out)
{
    const ExchangeDesc *direct = exchange_kinds[EXCHANGE_DIRECT];
    Comm *c = mesh_axis(ex->mesh, AXIS_TP);
    if (c->size > direct->ranks_most)
        return FAIL(ERR_UNSUPPORTED, "%d ranks of tp: at most %d load from each other's memory",
                    c->size, direct->ranks_most);
    TRY(comm_window(c, base, bytes, a, out));
    out->flags = flags;
    return OK;
}

Status exchange_rows_start(Exec *ex, CommWindow *w)
{
    Comm *c = mesh_axis(ex->mesh, AXIS_TP);
    ex->row_peers = w;
    return clear_flags(ex, c, (char *)w->peer[c->rank] + w->flags,
                       exchange_kinds[EXCHANGE_DIRECT]->header_bytes);
}

/* Peers store a gather's result, and load the parts of a sum. These lie in arenas of the program, so they are in
 * the window on all ranks or on none. */
bool exchange_rows_direct(const Exec *ex, const Collective *a, ExchangeRows *out)
{
    const bool gather = a->kind == COMM_ALL_GATHER;
    if (ex->row_peers == NULL || a->axis != AXIS_TP || a->group != GROUP_WORLD) return false;
    if (!gather && a->kind != COMM_REDUCE_SCATTER) return false;
    if (a->in.dtype != DTYPE_F32 && a->in.dtype != DTYPE_BF16) return false;
    const size_t least = tensor_bytes(gather ? &a->in : &a->out);
    if (least / (size_t)(a->parts > 1 ? a->parts : 1) % ROW_PACK_BYTES != 0) return false;
    *out = (ExchangeRows){ .all = mesh_axis(ex->mesh, AXIS_TP), .peers = ex->row_peers };
    return exchange_window_offset(out, gather ? &a->out : &a->in, &out->at[PEER_ROWS]);
}

void exchange_close(Exec *ex)
{
    if (ex->peers != NULL) comm_window_close(groups_of(ex).all, ex->peers);
    if (ex->row_peers != NULL) comm_window_close(mesh_axis(ex->mesh, AXIS_TP), ex->row_peers);
    ex->peers = ex->row_peers = NULL;
}

size_t exchange_dispatch_workspace(const Exec *ex, const ExchangeDispatch *a)
{
    (void)ex;
    return exchange_kinds[a->kind]->dispatch_workspace(a);
}

size_t exchange_combine_workspace(const Exec *ex, const ExchangeCombine *a)
{
    (void)ex;
    return exchange_kinds[a->kind]->combine_workspace(a);
}

Status exchange_dispatch_run(Exec *ex, const ExchangeDispatch *a, const ExchangeLocal *l)
{
    const ExchangeGroups g = groups_of(ex);
    TRY(check_group_size(ex, "exchange_dispatch", a->ranks, g.all));
    return exchange_kinds[a->kind]->dispatch(ex, &g, a, l);
}

Status exchange_combine_run(Exec *ex, const ExchangeCombine *a, const ExchangeLocal *l)
{
    const ExchangeGroups g = groups_of(ex);
    TRY(check_group_size(ex, "exchange_combine", a->ranks, g.all));
    return exchange_kinds[a->kind]->combine(ex, &g, a, l);
}

Status exchange_dispatch_cpu(Exec *ex, const ExchangeDispatch *a)
{
    return exchange_dispatch_run(ex, a, &exchange_kinds[a->kind]->cpu);
}

Status exchange_combine_cpu(Exec *ex, const ExchangeCombine *a)
{
    return exchange_combine_run(ex, a, &exchange_kinds[a->kind]->cpu);
}

/* Sends to the previous rank of the ring and receives from the next. Even ranks send first and odd
 * ranks receive first, so transports whose send waits for the receiver do not deadlock. */
static Status ring_shift(Exec *ex, Comm *c, const Collective *a)
{
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    CommRequest to = { 0 }, from = { 0 };
    if (a->in.data == a->out.data) return FAIL(ERR_ARG, "exchange_collective: in is out");
    if (c->mirror) /* a rank receives what it sent */
        return ex->backend->copy(ex, a->out.data, a->in.data, tensor_bytes(&a->in));
    if (c->rank % 2 == 0) TRY(comm_send(c, &a->in, before, 0, &to));
    TRY(comm_recv(c, &a->out, next, 0, &from));
    if (c->rank % 2 != 0) TRY(comm_send(c, &a->in, before, 0, &to));
    TRY(comm_wait(c, &from));
    return comm_wait(c, &to);
}

static Status gather_or_scatter(Comm *c, const Collective *a)
{
    const int64_t parts = a->parts > 1 ? a->parts : 1;
    const int64_t in = a->in.dim[0] / parts, out = a->out.dim[0] / parts;
    if (parts > 1) TRY(comm_batch_begin(c));
    for (int64_t i = 0; i < parts; i++) {
        const Tensor from = tensor_rows(&a->in, i * in, in),
                     to = tensor_rows(&a->out, i * out, out);
        TRY(a->kind == COMM_ALL_GATHER ? comm_all_gather(c, &from, &to)
                                       : comm_reduce_scatter(c, &from, &to));
    }
    return parts > 1 ? comm_batch_end(c) : OK;
}

/* `group` decides, but GROUP_WORLD with an axis other than dp means the group of that axis. */
Status exchange_collective_comm(Exec *ex, const Collective *a)
{
    bool by_axis = a->group == GROUP_WORLD && a->axis != AXIS_DP;
    Comm *c = ex->mesh == NULL ? NULL
              : by_axis        ? mesh_axis(ex->mesh, (Axis)a->axis)
                               : ex->mesh->group[a->group];
    TRY(check_group_size(ex, "exchange_collective", a->ranks, c));
    if (a->kind == COMM_ALL_GATHER || a->kind == COMM_REDUCE_SCATTER)
        return gather_or_scatter(c, a);
    if (a->kind == COMM_ALL_REDUCE)
        return comm_all_reduce(c, &a->out, a->largest ? REDUCE_MAX : REDUCE_SUM);
    if (a->kind == COMM_BROADCAST) return comm_broadcast(c, &a->out, a->root);
    return ring_shift(ex, c, a);
}

Status exchange_collective_cpu(Exec *ex, const Collective *a)
{
    return exchange_collective_comm(ex, a);
}

OP_PORTS(exchange_place, IN(ExchangePlace, index), OUT(ExchangePlace, offset),
         ADD_OPT(ExchangePlace, overflow), OUT_OPT(ExchangePlace, count));

OP_PORTS(exchange_dispatch, IN_OPERAND(ExchangeDispatch, x), IN_OPT(ExchangeDispatch, index),
         IN_OPT(ExchangeDispatch, weight), IN_OPT(ExchangeDispatch, offset),
         IN_OPT(ExchangeDispatch, count), ADD_OPT(ExchangeDispatch, first),
         ADD_OPT(ExchangeDispatch, relay.offset), ADD_OPT(ExchangeDispatch, overflow),
         OPERAND(ExchangeDispatch, rows, PORT_OUT_PART, PORT_OUT_PART_OPT),
         OUT_OPT(ExchangeDispatch, rows_index), OUT_OPT(ExchangeDispatch, rows_weight),
         ROWS(ExchangeDispatch, received));

OP_PORTS(exchange_combine, IN(ExchangeCombine, x), IN_OPT(ExchangeCombine, rows_weight),
         IN_OPT(ExchangeCombine, offset), IN_OPT(ExchangeCombine, first),
         IN_OPT(ExchangeCombine, relay.offset), IN_OPT(ExchangeCombine, shared),
         IN_OPT(ExchangeCombine, residual), OUT(ExchangeCombine, y),
         OUT_OPT(ExchangeCombine, weight), ROWS(ExchangeCombine, received));

OP_PORTS(exchange_collective, IN(Collective, in), OUT(Collective, out));
