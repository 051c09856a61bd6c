#include "op/op.h"

static int64_t columns(const QkNormDims *d) { return (d->heads + 2 * d->kv_heads) * d->head; }

static Status check_weight(const char *op, const char *port, const Tensor *w, const QkNormDims *d)
{
    return w->data == NULL ? OK : op_expect(op, port, w, 1, d->head, DTYPE_F32);
}

Status qk_norm_fwd_check(const void *args)
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

Status qk_norm_bwd_check(const void *args)
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
OpCost qk_norm_fwd_cost(const void *args)
{
    const QkNormFwd *a = args;
    return (OpCost){ .flops = 4 * normed(&a->qkv, &a->dims),
                     .bytes = 2 * (double)tensor_bytes(&a->qkv) + (double)tensor_bytes(&a->rstd) };
}

/* v's gradient passes in place: only heads of q and k are read (dy and x) and written. */
OpCost qk_norm_bwd_cost(const void *args)
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

Status qk_norm_fwd_cpu(Exec *ex, const void *args) { return unsupported(ex, args); }
Status qk_norm_bwd_cpu(Exec *ex, const void *args) { return unsupported(ex, args); }
Status qk_norm_fwd_cuda(Exec *ex, const void *args) { return unsupported(ex, args); }
Status qk_norm_bwd_cuda(Exec *ex, const void *args) { return unsupported(ex, args); }

OP_PORTS(qk_norm_fwd, IN(QkNormFwd, qkv), IN_OPT(QkNormFwd, wq), IN_OPT(QkNormFwd, wk),
         OUT(QkNormFwd, y), OUT(QkNormFwd, rstd));

OP_PORTS(qk_norm_bwd, IN(QkNormBwd, dy), IN(QkNormBwd, qkv), IN_OPT(QkNormBwd, wq),
         IN_OPT(QkNormBwd, wk), IN(QkNormBwd, rstd), OUT(QkNormBwd, dqkv), ADD_OPT(QkNormBwd, dwq),
         ADD_OPT(QkNormBwd, dwk));
