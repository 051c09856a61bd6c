/* The calls of comm are the same for both backends; what lies between them is a table of three
 * functions, of which the CPU's are here. */
#include "op/exchange.h"

#include "op/cpu_math.h"
#include "op/index_check.h"
#include "op/moe_tiles.h"

enum {
    PIECE = 512,      /* columns that a thread holds on the stack */
    COUNT_MAX = 1024, /* ranks whose counts a host holds on the stack */
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

static double bytes_of(const Tensor *t) { return t->data == NULL ? 0 : (double)tensor_bytes(t); }

static double row_bytes(const Tensor *t)
{
    return t->data == NULL ? 0 : (double)(tensor_cols(t) * (int64_t)dtype_bytes(t->dtype));
}

/* All but a rank's own share crosses links; memory sees the rows on both sides. */
static OpCost exchange_cost(const Rows *received, int64_t ranks, double row, double home)
{
    double rows = moe_rows_expected(received);
    return (OpCost){ .bytes = home + 2 * rows * row,
                     .comm_bytes = rows * row * (double)(ranks - 1) / (double)ranks,
                     .axis = AXIS_EP,
                     .work = WORK_COMM,
                     .comm = COMM_EXCHANGE,
                     .size = row };
}

static Status count_check(const char *op, const Tensor *count, int64_t ranks)
{
    if (count->data == NULL) return OK;
    if (ranks <= COUNT_MAX) return op_expect(op, "count", count, 1, ranks, DTYPE_I32);
    return FAIL(ERR_UNSUPPORTED,
                "%s: rows are counted for at most %d ranks, here are %lld: set moe.buffers=worst",
                op, COUNT_MAX, (long long)ranks);
}

Status exchange_place_check(const void *args)
{
    const ExchangePlace *a = args;
    int64_t n = a->index.dim[0], k = tensor_cols(&a->index);
    TRY(op_expect("exchange_place", "index", &a->index, n, k, DTYPE_I32));
    TRY(op_expect("exchange_place", "place", &a->place, n, k, DTYPE_I32));
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

OpCost exchange_place_cost(const void *args)
{
    const ExchangePlace *a = args;
    return (OpCost){ .bytes = bytes_of(&a->index) + bytes_of(&a->place) };
}

/* M rows are N from each rank, or blocks of one size; then each token has places in them. */
static Status rows_check(const char *op, ExchangeKind kind, int64_t m, int64_t n, int64_t ranks,
                         const Tensor *place)
{
    bool fits = kind == EXCHANGE_ALLGATHER ? m == n * ranks : m % ranks == 0;
    if (!fits) {
        return FAIL(ERR_SHAPE, "%s: %lld rows for %lld tokens over %lld ranks: wanted %s", op,
                    (long long)m, (long long)n, (long long)ranks,
                    kind == EXCHANGE_ALLGATHER ? "all tokens" : "as many of each rank");
    }
    return kind == EXCHANGE_ALLGATHER ? OK : op_expect(op, "place", place, n, -1, DTYPE_I32);
}

Status exchange_dispatch_check(const void *args)
{
    const ExchangeDispatch *a = args;
    int64_t n = a->x.dim[0], m = a->rows.dim[0], d = tensor_cols(&a->x);
    TRY(op_expect_act("exchange_dispatch", "x", &a->x, n, d));
    TRY(op_expect("exchange_dispatch", "rows", &a->rows, m, d, a->x.dtype));
    TRY(rows_check("exchange_dispatch", a->kind, m, n, a->ranks, &a->place));
    TRY(count_check("exchange_dispatch", &a->count, a->ranks));
    if (a->index.data == NULL) return OK;
    int64_t k = tensor_cols(&a->index);
    TRY(op_expect("exchange_dispatch", "index", &a->index, n, k, DTYPE_I32));
    TRY(op_expect("exchange_dispatch", "weight", &a->weight, n, k, DTYPE_F32));
    TRY(op_expect("exchange_dispatch", "rows_index", &a->rows_index, m, k, DTYPE_I32));
    return op_expect("exchange_dispatch", "rows_weight", &a->rows_weight, m, k, DTYPE_F32);
}

OpCost exchange_dispatch_cost(const void *args)
{
    const ExchangeDispatch *a = args;
    double row = row_bytes(&a->x) + row_bytes(&a->index) + row_bytes(&a->weight);
    return exchange_cost(&a->received, a->ranks, row, bytes_of(&a->x));
}

Status exchange_combine_check(const void *args)
{
    const ExchangeCombine *a = args;
    int64_t n = a->y.dim[0], d = tensor_cols(&a->y);
    int64_t m = a->x.dim[0];
    TRY(op_expect_act("exchange_combine", "y", &a->y, n, d));
    TRY(op_expect("exchange_combine", "x", &a->x, m, d, a->y.dtype));
    TRY(rows_check("exchange_combine", a->kind, m, n, a->ranks, &a->place));
    TRY(count_check("exchange_combine", &a->count, a->ranks));
    if (a->rows_weight.data == NULL) return OK;
    int64_t k = tensor_cols(&a->rows_weight);
    TRY(op_expect("exchange_combine", "rows_weight", &a->rows_weight, m, k, DTYPE_F32));
    return op_expect("exchange_combine", "weight", &a->weight, n, k, DTYPE_F32);
}

OpCost exchange_combine_cost(const void *args)
{
    const ExchangeCombine *a = args;
    double home = bytes_of(&a->y) + bytes_of(&a->shared) + bytes_of(&a->residual);
    double row = row_bytes(&a->x) + row_bytes(&a->rows_weight);
    return exchange_cost(&a->received, a->ranks, row, home);
}

Status exchange_collective_check(const void *args)
{
    const Collective *a = args;
    int64_t in = a->in.dim[0], want = in;
    if (a->kind == COMM_ALL_GATHER) want = in * a->ranks;
    if (a->kind == COMM_REDUCE_SCATTER) want = in / a->ranks;
    if (a->kind != COMM_ALL_REDUCE || a->in.dtype != DTYPE_I32)
        TRY(op_expect_act("exchange_collective", "in", &a->in, in, -1));
    if (a->kind == COMM_ALL_REDUCE && a->in.data != a->out.data)
        return FAIL(ERR_ARG, "exchange_collective: an all-reduce is in place, but in is not out");
    return op_expect("exchange_collective", "out", &a->out, want, tensor_cols(&a->in), a->in.dtype);
}

/* size: the whole, which is what formulas of collectives count in. */
OpCost exchange_collective_cost(const void *args)
{
    const Collective *a = args;
    double in = bytes_of(&a->in), out = bytes_of(&a->out), whole = in > out ? in : out;
    double others = (double)(a->ranks - 1) / (double)a->ranks;
    return (OpCost){ .bytes = in + out,
                     .comm_bytes = a->kind == COMM_SHIFT        ? in
                                   : a->kind == COMM_ALL_REDUCE ? 2 * whole * others
                                                                : whole * others,
                     .axis = a->axis,
                     .work = WORK_COMM,
                     .comm = a->kind,
                     .size = whole };
}

/* Places */

/* The ranks of a token's experts by number, each once. Returns how many. */
static int64_t token_ranks(const int32_t *index, int64_t k, int64_t here, int32_t *rank)
{
    int64_t n = 0;
    for (int64_t i = 0; i < k; i++) {
        int32_t r = (int32_t)(index[i] / here);
        int64_t at = n;
        while (at > 0 && rank[at - 1] > r) at--;
        if (at > 0 && rank[at - 1] == r) continue;
        memmove(rank + at + 1, rank + at, (size_t)(n - at) * sizeof *rank);
        rank[at] = r, n++;
    }
    return n;
}

Status exchange_place_cpu(Exec *ex, const void *args)
{
    const ExchangePlace *a = args;
    TRY(index_check("exchange_place", "index", &a->index, a->experts));
    int64_t N = a->index.dim[0], K = tensor_cols(&a->index);
    int32_t *used = ex->workspace, *place = a->place.data;
    const int32_t *index = a->index.data;
    bool full = false;
    memset(used, 0, (size_t)a->ranks * sizeof *used);
    for (int64_t n = 0; n < N; n++, place += K, index += K) {
        int64_t ranks = token_ranks(index, K, a->experts / a->ranks, place);
        for (int64_t i = 0; i < ranks; i++) {
            int32_t r = place[i];
            bool fits = used[r] < a->room;
            place[i] = fits ? (int32_t)(r * a->room) + used[r]++ : -1;
            full |= !fits;
        }
        for (int64_t i = ranks; i < K; i++) place[i] = -1;
    }
    if (a->count.data != NULL) memcpy(a->count.data, used, (size_t)a->ranks * sizeof *used);
    if (full && a->overflow.data != NULL) *(float *)a->overflow.data = 1;
    return OK;
}

size_t exchange_place_workspace(const Exec *ex, const void *args)
{
    const ExchangePlace *a = args;
    (void)ex;
    return (size_t)a->ranks * sizeof(int32_t);
}

/* Between the calls of comm */

/* The number of an expert on the rank that has [first, first + here); -1: elsewhere. */
static int32_t local_expert(int64_t expert, int64_t first, int64_t here)
{
    int64_t e = expert - first;
    return e >= 0 && e < here ? (int32_t)e : -1;
}

static Status pack_cpu(Exec *ex, const ExchangeDispatch *a, const ExchangeRows *out)
{
    int64_t N = a->x.dim[0], D = tensor_cols(&a->x), K = tensor_cols(&a->place);
    int64_t room = out->x.dim[0] / a->ranks, here = a->experts / a->ranks;
    size_t row = (size_t)D * dtype_bytes(a->x.dtype);
    const int32_t *place = a->place.data, *index = a->index.data;
    if (index != NULL) {
        memset(out->index.data, 0xFF, tensor_bytes(&out->index)); /* -1 */
        memset(out->weight.data, 0, tensor_bytes(&out->weight));
    }
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
        for (int64_t k = 0; k < K; k++) local[k] = local_expert(index[n * K + k], first, here);
    }
    return OK;
}

static Status keep_own_cpu(Exec *ex, const Tensor *index, int64_t first, int64_t here)
{
    (void)ex;
    int32_t *at = index->data;
    for (int64_t i = 0; i < tensor_elems(index); i++) at[i] = local_expert(at[i], first, here);
    return OK;
}

static void add_row(const Tensor *t, int64_t first, int64_t n, float *sum)
{
    if (t->data == NULL) return;
    float buffer[PIECE];
    const float *row = row_load(t, first, n, buffer);
#pragma omp simd
    for (int64_t d = 0; d < n; d++) sum[d] += row[d];
}

/* Columns [d0, d0 + n) of one token. Of allgather, its row is the token's. */
static void unpack_piece(const ExchangeCombine *a, const Tensor *back, int64_t token, int64_t d0,
                         int64_t n)
{
    int64_t D = tensor_cols(&a->y), K = a->kind == EXCHANGE_ALLGATHER ? 1 : tensor_cols(&a->place);
    const int32_t *place = a->kind == EXCHANGE_ALLGATHER ? NULL : a->place.data;
    float sum[PIECE];
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t k = token * K; k < (token + 1) * K; k++) {
        int64_t row = place == NULL ? token : place[k];
        if (row >= 0) add_row(back, row * D + d0, n, sum);
    }
    add_row(&a->shared, token * D + d0, n, sum);
    add_row(&a->residual, token * D + d0, n, sum);
    row_store(&a->y, token * D + d0, n, sum);
}

static void unpack_weight(const ExchangeCombine *a, const Tensor *back, int64_t token)
{
    int64_t K = tensor_cols(&a->place);
    const int32_t *place = (const int32_t *)a->place.data + token * K;
    float *weight = (float *)a->weight.data + token * K;
    memset(weight, 0, (size_t)K * sizeof *weight);
    for (int64_t i = 0; i < K; i++) {
        const float *from = place[i] < 0 ? NULL : (const float *)back->data + place[i] * K;
        for (int64_t k = 0; from != NULL && k < K; k++) weight[k] += from[k];
    }
}

static Status unpack_cpu(Exec *ex, const ExchangeCombine *a, const ExchangeRows *back)
{
    int64_t N = a->y.dim[0], D = tensor_cols(&a->y);
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t n = 0; n < N; n++) {
        for (int64_t d = 0; d < D; d += PIECE)
            unpack_piece(a, &back->x, n, d, D - d < PIECE ? D - d : PIECE);
        if (back->weight.data != NULL) unpack_weight(a, &back->weight, n);
    }
    return OK;
}

/* To other ranks and back */

static Status peers(const Exec *ex, const char *op, int64_t ranks, Comm *c)
{
    if (c != NULL && c->size == ranks) return OK;
    return FAIL(ERR_ARG, "%s: %lld ranks, but rank %d of the mesh has %d here", op,
                (long long)ranks, ex->mesh == NULL ? 0 : ex->mesh->rank, c == NULL ? 0 : c->size);
}

static Comm *axis_of(const Exec *ex, Axis axis)
{
    return ex->mesh == NULL ? NULL : mesh_axis(ex->mesh, axis);
}

/* Of `rows` rows like those of t, if there are any. */
static size_t rows_bytes(const Tensor *t, int64_t rows)
{
    if (t->data == NULL) return 0;
    return arena_rounded((size_t)(rows * tensor_cols(t)) * dtype_bytes(t->dtype));
}

/* They themselves, at *at, which goes on behind them. */
static Tensor rows_at(const Tensor *t, int64_t rows, char **at)
{
    Tensor out = { NULL, t->dtype, 2, { rows, tensor_cols(t) } };
    if (t->data == NULL) return *t;
    out.data = *at;
    *at += rows_bytes(t, rows);
    return out;
}

/* Of allgather, only rows to which something is added need a place of their own. */
static bool adds(const ExchangeCombine *a)
{
    return a->shared.data != NULL || a->residual.data != NULL;
}

size_t exchange_dispatch_workspace(const Exec *ex, const void *args)
{
    const ExchangeDispatch *a = args;
    int64_t m = a->rows.dim[0];
    (void)ex;
    if (a->kind == EXCHANGE_ALLGATHER) return 0;
    return rows_bytes(&a->x, m) + rows_bytes(&a->index, m) + rows_bytes(&a->weight, m) +
           rows_bytes(&a->count, 1);
}

size_t exchange_combine_workspace(const Exec *ex, const void *args)
{
    const ExchangeCombine *a = args;
    int64_t m = a->x.dim[0];
    (void)ex;
    if (a->kind == EXCHANGE_ALLGATHER) return adds(a) ? rows_bytes(&a->x, a->y.dim[0]) : 0;
    return rows_bytes(&a->x, m) + rows_bytes(&a->rows_weight, m) + rows_bytes(&a->count, 1);
}

/* Rows of each block that travel, where the host knows. */
typedef struct Counts {
    bool known;
    int32_t to[COUNT_MAX], from[COUNT_MAX];
} Counts;

/* here: rows of this rank's tokens at each rank; there: rows of each rank's tokens here, which that
 * rank says. The host waits. */
static Status counts_read(Exec *ex, Comm *c, const Tensor *count, char *at, int32_t *here,
                          int32_t *there)
{
    const Backend *b = exec_bottom(ex);
    const Tensor told = rows_at(count, 1, &at);
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

/* Block r of in becomes block `rank` of rank r's out, or its first rows do. */
static Status swap_blocks(Exec *ex, Comm *c, const Tensor *in, const Tensor *out, const Counts *n)
{
    if (!n->known) return comm_all_to_all(c, in, out);
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
    return exec_bottom(ex)->copy(ex, tensor_rows(out, c->rank * room, own.dim[0]).data, own.data,
                                 tensor_bytes(&own));
}

static Status dispatch_gathered(Exec *ex, const ExchangeDispatch *a, const ExchangeLocal *l,
                                Comm *c)
{
    TRY(comm_all_gather(c, &a->x, &a->rows));
    if (a->index.data == NULL) return OK;
    TRY(comm_all_gather(c, &a->weight, &a->rows_weight));
    TRY(comm_all_gather(c, &a->index, &a->rows_index));
    int64_t here = a->experts / a->ranks;
    return l->keep_own(ex, &a->rows_index, c->rank * here, here);
}

/* What stands behind the last row of a block. */
static Status no_rows(Exec *ex, const ExchangeDispatch *a)
{
    const Backend *b = exec_bottom(ex);
    TRY(b->fill(ex, a->rows_index.data, 0xFF, tensor_bytes(&a->rows_index))); /* -1 */
    return b->fill(ex, a->rows_weight.data, 0, tensor_bytes(&a->rows_weight));
}

Status exchange_dispatch_run(Exec *ex, const ExchangeDispatch *a, const ExchangeLocal *l)
{
    Comm *c = axis_of(ex, AXIS_EP);
    TRY(peers(ex, "exchange_dispatch", a->ranks, c));
    if (a->kind == EXCHANGE_ALLGATHER) return dispatch_gathered(ex, a, l, c);
    char *at = ex->workspace;
    int64_t m = a->rows.dim[0];
    ExchangeRows out = { .x = rows_at(&a->x, m, &at) };
    out.index = rows_at(&a->index, m, &at), out.weight = rows_at(&a->weight, m, &at);
    TRY(l->pack(ex, a, &out));
    Counts n;
    n.known = a->count.data != NULL;
    if (n.known) TRY(counts_read(ex, c, &a->count, at, n.to, n.from));
    TRY(swap_blocks(ex, c, &out.x, &a->rows, &n));
    if (a->index.data == NULL) return OK;
    if (n.known) TRY(no_rows(ex, a));
    TRY(swap_blocks(ex, c, &out.index, &a->rows_index, &n));
    return swap_blocks(ex, c, &out.weight, &a->rows_weight, &n);
}

static Status combine_scattered(Exec *ex, const ExchangeCombine *a, const ExchangeLocal *l, Comm *c)
{
    if (a->rows_weight.data != NULL) TRY(comm_reduce_scatter(c, &a->rows_weight, &a->weight));
    if (!adds(a)) return comm_reduce_scatter(c, &a->x, &a->y);
    char *at = ex->workspace;
    ExchangeRows back = { .x = rows_at(&a->x, a->y.dim[0], &at) };
    TRY(comm_reduce_scatter(c, &a->x, &back.x));
    return l->unpack(ex, a, &back);
}

Status exchange_combine_run(Exec *ex, const ExchangeCombine *a, const ExchangeLocal *l)
{
    Comm *c = axis_of(ex, AXIS_EP);
    TRY(peers(ex, "exchange_combine", a->ranks, c));
    if (a->kind == EXCHANGE_ALLGATHER) return combine_scattered(ex, a, l, c);
    char *at = ex->workspace;
    ExchangeRows back = { .x = rows_at(&a->x, a->x.dim[0], &at) };
    back.weight = rows_at(&a->rows_weight, a->x.dim[0], &at);
    Counts n;
    n.known = a->count.data != NULL;
    if (n.known) TRY(counts_read(ex, c, &a->count, at, n.from, n.to));
    TRY(swap_blocks(ex, c, &a->x, &back.x, &n));
    if (back.weight.data != NULL) TRY(swap_blocks(ex, c, &a->rows_weight, &back.weight, &n));
    return l->unpack(ex, a, &back);
}

static const ExchangeLocal on_cpu = { pack_cpu, keep_own_cpu, unpack_cpu };

Status exchange_dispatch_cpu(Exec *ex, const void *args)
{
    return exchange_dispatch_run(ex, args, &on_cpu);
}

Status exchange_combine_cpu(Exec *ex, const void *args)
{
    return exchange_combine_run(ex, args, &on_cpu);
}

/* Neighbours take turns at sending first, so that a transfer that waits for its peer finds it. */
static Status shift(Comm *c, const Collective *a)
{
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    CommRequest to = { 0 }, from = { 0 };
    if (a->in.data == a->out.data) return FAIL(ERR_ARG, "exchange_collective: in is out");
    if (c->rank % 2 == 0) TRY(comm_send(c, &a->in, before, 0, &to));
    TRY(comm_recv(c, &a->out, next, 0, &from));
    if (c->rank % 2 != 0) TRY(comm_send(c, &a->in, before, 0, &to));
    TRY(comm_wait(c, &from));
    return comm_wait(c, &to);
}

Status exchange_collective_cpu(Exec *ex, const void *args)
{
    const Collective *a = args;
    Comm *c = a->group != GROUP_WORLD && ex->mesh != NULL ? ex->mesh->group[a->group]
                                                          : axis_of(ex, (Axis)a->axis);
    TRY(peers(ex, "exchange_collective", a->ranks, c));
    if (a->kind == COMM_ALL_GATHER) return comm_all_gather(c, &a->in, &a->out);
    if (a->kind == COMM_REDUCE_SCATTER) return comm_reduce_scatter(c, &a->in, &a->out);
    if (a->kind == COMM_ALL_REDUCE) return comm_all_reduce(c, &a->out, REDUCE_SUM);
    return shift(c, a);
}

OP_PORTS(exchange_place, IN(ExchangePlace, index), OUT(ExchangePlace, place),
         ADD_OPT(ExchangePlace, overflow), OUT_OPT(ExchangePlace, count));

OP_PORTS(exchange_dispatch, IN(ExchangeDispatch, x), IN_OPT(ExchangeDispatch, index),
         IN_OPT(ExchangeDispatch, weight), IN_OPT(ExchangeDispatch, place),
         IN_OPT(ExchangeDispatch, count), OUT_PART(ExchangeDispatch, rows),
         OUT_OPT(ExchangeDispatch, rows_index), OUT_OPT(ExchangeDispatch, rows_weight),
         ROWS(ExchangeDispatch, received));

OP_PORTS(exchange_combine, IN(ExchangeCombine, x), IN_OPT(ExchangeCombine, rows_weight),
         IN_OPT(ExchangeCombine, place), IN_OPT(ExchangeCombine, count),
         IN_OPT(ExchangeCombine, shared), IN_OPT(ExchangeCombine, residual),
         OUT(ExchangeCombine, y), OUT_OPT(ExchangeCombine, weight),
         ROWS(ExchangeCombine, received));

OP_PORTS(exchange_collective, IN(Collective, in), OUT(Collective, out));
