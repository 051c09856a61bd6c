#include "op/op.h"

static int64_t columns(const QkNormDims *d) { return (d->heads + 2 * d->kv_heads) * d->head; }

static Status check_weight(const char *op, const char *port, const Tensor *w, const QkNormDims *d)
{
    return w->data == NULL ? OK : op_expect(op, port, w, 1, d->head, DTYPE_F32);
}

static Status check_fwd(const void *args)
{
    const QkNormFwd *a = args;
    const char *op = "qk_norm_fwd";
    int64_t n = a->qkv.dim[0], cols = columns(&a->dims);
    TRY(op_expect_act(op, "qkv", &a->qkv, n, cols));
    TRY(check_weight(op, "wq", &a->wq, &a->dims));
    TRY(check_weight(op, "wk", &a->wk, &a->dims));
    TRY(op_expect(op, "y", &a->y, n, cols, a->qkv.dtype));
    return op_expect(op, "rstd", &a->rstd, n, a->dims.heads + a->dims.kv_heads, DTYPE_F32);
}

static Status check_bwd(const void *args)
{
    const QkNormBwd *a = args;
    const char *op = "qk_norm_bwd";
    int64_t n = a->qkv.dim[0], cols = columns(&a->dims);
    TRY(op_expect_act(op, "qkv", &a->qkv, n, cols));
    TRY(op_expect(op, "dy", &a->dy, n, cols, a->qkv.dtype));
    TRY(check_weight(op, "wq", &a->wq, &a->dims));
    TRY(check_weight(op, "wk", &a->wk, &a->dims));
    TRY(op_expect(op, "rstd", &a->rstd, n, a->dims.heads + a->dims.kv_heads, DTYPE_F32));
    TRY(op_expect(op, "dqkv", &a->dqkv, n, cols, a->qkv.dtype));
    TRY(check_weight(op, "dwq", &a->dwq, &a->dims));
    return check_weight(op, "dwk", &a->dwk, &a->dims);
}

/* Elements of the heads that are normalised: those of q and k. */
static double normed(const Tensor *qkv, const QkNormDims *d)
{
    return (double)(qkv->dim[0] * (d->heads + d->kv_heads) * d->head);
}

/* As rmsnorm: four operations an element forward, ten backward. v is copied. */
static OpCost cost_fwd(const void *args)
{
    const QkNormFwd *a = args;
    return (OpCost){ .flops = 4 * normed(&a->qkv, &a->dims),
                     .bytes = 2 * (double)tensor_bytes(&a->qkv) + (double)tensor_bytes(&a->rstd) };
}

/* v's gradient passes in place: only heads of q and k are read (dy and x) and written. */
static OpCost cost_bwd(const void *args)
{
    const QkNormBwd *a = args;
    double elems = normed(&a->qkv, &a->dims), size = (double)dtype_bytes(a->qkv.dtype);
    return (OpCost){ .flops = 10 * elems,
                     .bytes = 3 * size * elems + (double)tensor_bytes(&a->rstd) };
}

static Status unsupported(Exec *ex, const void *args)
{
    (void)args;
    return FAIL(ERR_UNSUPPORTED, "qk_norm: %s has no such op, it can only be planned",
                exec_bottom(ex)->name);
}

static const OpPort ports_fwd[] = {
    PORT(QkNormFwd, qkv, PORT_IN),    PORT(QkNormFwd, wq, PORT_IN_OPT),
    PORT(QkNormFwd, wk, PORT_IN_OPT), PORT(QkNormFwd, y, PORT_OUT),
    PORT(QkNormFwd, rstd, PORT_OUT),  PORTS_END,
};

static const OpPort ports_bwd[] = {
    PORT(QkNormBwd, dy, PORT_IN),
    PORT(QkNormBwd, qkv, PORT_IN),
    PORT(QkNormBwd, wq, PORT_IN_OPT),
    PORT(QkNormBwd, wk, PORT_IN_OPT),
    PORT(QkNormBwd, rstd, PORT_IN),
    PORT(QkNormBwd, dqkv, PORT_OUT),
    PORT(QkNormBwd, dwq, PORT_ADD_OPT),
    PORT(QkNormBwd, dwk, PORT_ADD_OPT),
    PORTS_END,
};

extern const OpDesc qk_norm_fwd_desc, qk_norm_bwd_desc;

const OpDesc qk_norm_fwd_desc = {
    .name = "qk_norm_fwd",
    .args_bytes = sizeof(QkNormFwd),
    .ports = ports_fwd,
    .check = check_fwd,
    .cost = cost_fwd,
    .cpu = unsupported,
    .cuda = unsupported,
};

const OpDesc qk_norm_bwd_desc = {
    .name = "qk_norm_bwd",
    .args_bytes = sizeof(QkNormBwd),
    .ports = ports_bwd,
    .check = check_bwd,
    .cost = cost_bwd,
    .cpu = unsupported,
    .cuda = unsupported,
};
