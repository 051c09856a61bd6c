/* attention_sink: checks, costs and CPU versions of sinks (attention.h). The op runs after
 * attention_fwd and before attention_bwd, so attention's kernels need not know sinks. */
#include "kernels/attention/attention.h"
#include "kernels/core/cpu_math.h"
#include "kernels/core/op.h"

enum { PIECE = 256 }; /* elements of a row on the stack at a time */

/* Checks the tensors that both directions have. */
static Status sink_check(const char *op, const Tensor *sinks, const Tensor *o, const Tensor *lse)
{
    char shape[96];
    if (o->rank != 4)
        return FAIL(ERR_SHAPE, "%s: o is %s, wanted (B, T, H, dv)", op,
                    tensor_shape_text(o, shape, sizeof shape));
    TRY(op_expect_act(op, "o", o, -1, o->dim[3]));
    TRY(op_expect(op, "lse", lse, o->dim[0] * o->dim[2], o->dim[1], DTYPE_F32));
    return op_expect(op, "sinks", sinks, 1, o->dim[2], DTYPE_F32);
}

Status attention_sink_fwd_check(const AttentionSinkFwd *a)
{
    return sink_check("attention_sink_fwd", &a->sinks, &a->o, &a->lse);
}

Status attention_sink_bwd_check(const AttentionSinkBwd *a)
{
    const char *op = "attention_sink_bwd";
    TRY(sink_check(op, &a->sinks, &a->o, &a->lse));
    TRY(op_expect(op, "d_o", &a->d_o, tensor_elems(&a->o) / a->o.dim[3], a->o.dim[3], a->o.dtype));
    return op_expect(op, "dsinks", &a->dsinks, 1, a->o.dim[2], DTYPE_F32);
}

/* The logarithm and two exponentials of a row are not counted: a row has many more columns. */
OpCost attention_sink_fwd_cost(const AttentionSinkFwd *a)
{
    return (OpCost){ .flops = (double)tensor_elems(&a->o),
                     .bytes = op_port_bytes(OP_ATTENTION_SINK_FWD, a) };
}

OpCost attention_sink_bwd_cost(const AttentionSinkBwd *a)
{
    return (OpCost){ .flops = 2 * (double)tensor_elems(&a->o),
                     .bytes = op_port_bytes(OP_ATTENTION_SINK_BWD, a) };
}

/* lse' = log(e^lse + e^s),  o' = o e^(lse - lse') */
static void sink_row(const AttentionSinkFwd *a, int64_t at, float *lse, float sink)
{
    AttentionMerge m = attention_merge(*lse, sink);
    float buffer[PIECE], out[PIECE];
    int64_t width = a->o.dim[3];
    for (int64_t d = 0; d < width; d += PIECE) {
        int64_t n = width - d < PIECE ? width - d : PIECE;
        const float *from = row_load(&a->o, at + d, n, buffer);
        float *to = row_open(&a->o, at + d, out);
        for (int64_t i = 0; i < n; i++) to[i] = from[i] * m.before;
        row_store(&a->o, at + d, n, to);
    }
    *lse = m.lse;
}

/* A row is (sequence, token, head) in o, but (sequence, head, token) in lse. */
Status attention_sink_fwd_cpu(Exec *ex, const AttentionSinkFwd *a)
{
    int64_t T = a->o.dim[1], H = a->o.dim[2], width = a->o.dim[3];
    const float *sinks = a->sinks.data;
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t row = 0; row < a->o.dim[0] * T * H; row++) {
        int64_t h = row % H, lse = (row / H / T * H + h) * T + row / H % T;
        sink_row(a, row * width, (float *)a->lse.data + lse, sinks[h]);
    }
    return OK;
}

/* do . o' of a row, in double, because the sum over a head's rows follows. */
static double row_dot(const AttentionSinkBwd *a, int64_t at)
{
    float buffer[PIECE], buffer2[PIECE];
    double sum = 0;
    int64_t width = a->o.dim[3];
    for (int64_t d = 0; d < width; d += PIECE) {
        int64_t n = width - d < PIECE ? width - d : PIECE;
        const float *o = row_load(&a->o, at + d, n, buffer);
        const float *d_o = row_load(&a->d_o, at + d, n, buffer2);
        for (int64_t i = 0; i < n; i++) sum += (double)o[i] * (double)d_o[i];
    }
    return sum;
}

/* o' = (sum of e^s_j v_j) / (sum of e^s_j + e^s)
 * ds = do . d o' / d s = - e^(s - lse') (do . o'); one thread sums a head, in one order. */
Status attention_sink_bwd_cpu(Exec *ex, const AttentionSinkBwd *a)
{
    int64_t T = a->o.dim[1], H = a->o.dim[2], width = a->o.dim[3];
    const float *sinks = a->sinks.data;
    float *dsinks = a->dsinks.data;
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t h = 0; h < H; h++) {
        double sum = 0;
        for (int64_t row = 0; row < a->o.dim[0] * T; row++) {
            float lse = ((const float *)a->lse.data)[(row / T * H + h) * T + row % T];
            sum += (double)expf(sinks[h] - lse) * row_dot(a, (row * H + h) * width);
        }
        dsinks[h] -= (float)sum;
    }
    return OK;
}

OP_PORTS(attention_sink_fwd, IN(AttentionSinkFwd, sinks), ADD(AttentionSinkFwd, o),
         ADD(AttentionSinkFwd, lse));

OP_PORTS(attention_sink_bwd, IN(AttentionSinkBwd, d_o), IN(AttentionSinkBwd, o),
         IN(AttentionSinkBwd, lse), IN(AttentionSinkBwd, sinks), ADD_OPT(AttentionSinkBwd, dsinks));
