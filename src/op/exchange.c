#include "op/exchange.h"

#include "comm/mesh.h"
#include "op/moe_tiles.h"

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

Status exchange_dispatch_check(const void *args)
{
    const ExchangeDispatch *a = args;
    int64_t n = a->x.dim[0], m = a->rows.dim[0], d = tensor_cols(&a->x);
    TRY(op_expect_act("exchange_dispatch", "x", &a->x, n, d));
    TRY(op_expect("exchange_dispatch", "rows", &a->rows, m, d, a->x.dtype));
    if (a->index.data == NULL) return OK;
    int64_t k = tensor_cols(&a->index);
    TRY(op_expect("exchange_dispatch", "index", &a->index, n, k, DTYPE_I32));
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
    TRY(op_expect_act("exchange_combine", "y", &a->y, n, d));
    return op_expect("exchange_combine", "x", &a->x, -1, d, a->y.dtype);
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
    TRY(op_expect_act("exchange_collective", "in", &a->in, in, -1));
    return op_expect("exchange_collective", "out", &a->out, want, tensor_cols(&a->in), a->in.dtype);
}

/* size: the whole, which is what formulas of all-gather and reduce-scatter count in. */
OpCost exchange_collective_cost(const void *args)
{
    const Collective *a = args;
    double in = bytes_of(&a->in), out = bytes_of(&a->out), whole = in > out ? in : out;
    double others = (double)(a->ranks - 1) / (double)a->ranks;
    return (OpCost){ .bytes = in + out,
                     .comm_bytes = a->kind == COMM_SHIFT ? in : whole * others,
                     .axis = a->axis,
                     .work = WORK_COMM,
                     .comm = a->kind,
                     .size = whole };
}

static Status no_peers(Exec *ex, const void *args)
{
    (void)ex, (void)args;
    return FAIL(ERR_UNSUPPORTED, "exchange: one rank has no peers; set mesh.ep=1 mesh.cp=1");
}

Status exchange_dispatch_cpu(Exec *ex, const void *args) { return no_peers(ex, args); }
Status exchange_dispatch_cuda(Exec *ex, const void *args) { return no_peers(ex, args); }
Status exchange_combine_cpu(Exec *ex, const void *args) { return no_peers(ex, args); }
Status exchange_combine_cuda(Exec *ex, const void *args) { return no_peers(ex, args); }

static Status shift(Comm *c, const Collective *a)
{
    CommRequest sent = { 0 }, received = { 0 };
    TRY(comm_send(c, &a->in, (c->rank + c->size - 1) % c->size, 0, &sent));
    TRY(comm_recv(c, &a->out, (c->rank + 1) % c->size, 0, &received));
    TRY(comm_wait(c, &received));
    return comm_wait(c, &sent);
}

Status exchange_collective_cpu(Exec *ex, const void *args)
{
    const Collective *a = args;
    if (ex->mesh == NULL) return no_peers(ex, args);
    Comm *c = mesh_axis(ex->mesh, (Axis)a->axis);
    if (a->kind == COMM_SHIFT) return shift(c, a);
    return a->kind == COMM_ALL_GATHER ? comm_all_gather(c, &a->in, &a->out)
                                      : comm_reduce_scatter(c, &a->in, &a->out);
}

Status exchange_collective_cuda(Exec *ex, const void *args)
{
    return exchange_collective_cpu(ex, args);
}

OP_PORTS(exchange_dispatch, IN(ExchangeDispatch, x), IN_OPT(ExchangeDispatch, index),
         IN_OPT(ExchangeDispatch, weight), OUT(ExchangeDispatch, rows),
         OUT_OPT(ExchangeDispatch, rows_index), OUT_OPT(ExchangeDispatch, rows_weight),
         ROWS(ExchangeDispatch, received));

OP_PORTS(exchange_combine, IN(ExchangeCombine, x), IN_OPT(ExchangeCombine, rows_weight),
         IN_OPT(ExchangeCombine, shared), IN_OPT(ExchangeCombine, residual),
         OUT(ExchangeCombine, y), OUT_OPT(ExchangeCombine, weight),
         ROWS(ExchangeCombine, received));

OP_PORTS(exchange_collective, IN(Collective, in), OUT(Collective, out));
