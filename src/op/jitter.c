/* jitter: check, cost and CPU version. */
#include "op/jitter.h"

#include "base/rng.h"
#include "op/op.h"

Status jitter_check(const Jitter *a)
{
    int64_t n = tensor_elems(&a->pos), b = tensor_elems(&a->sequence);
    TRY(op_expect("jitter", "x", &a->x, n, tensor_cols(&a->x), DTYPE_F32));
    TRY(op_expect("jitter", "pos", &a->pos, -1, -1, DTYPE_I32));
    TRY(op_expect("jitter", "sequence", &a->sequence, -1, -1, DTYPE_I32));
    TRY(op_expect("jitter", "step", &a->step, 1, -1, DTYPE_I32));
    if (b > 0 && n % b == 0 && a->size > 0 && a->size <= 1) return OK;
    return FAIL(
        ERR_ARG,
        "jitter: size %g, %lld tokens of %lld sequences: size must be above 0 and at most 1, and "
        "all sequences must have one length",
        (double)a->size, (long long)n, (long long)b);
}

/* Random numbers are integer work and count as no FLOPs. */
OpCost jitter_cost(const Jitter *a)
{
    return (OpCost){ .flops = (double)tensor_elems(&a->x),
                     .bytes = 2.0 * (double)tensor_bytes(&a->x) };
}

/* The layer's number is above the 32 bits to which the step is added, so no two layers ever share a
 * stream. */
uint64_t jitter_stream(const Jitter *a)
{
    return rng_stream("moe.jitter") + ((uint64_t)a->layer << 32);
}

/* Threads may take any tokens, because a factor depends on numbers of the token and not on what was
 * drawn before. */
Status jitter_cpu(Exec *ex, const Jitter *a)
{
    const int32_t *sequence = a->sequence.data, *pos = a->pos.data;
    int64_t n = tensor_elems(&a->pos), e = tensor_cols(&a->x), t = n / tensor_elems(&a->sequence);
    uint64_t stream = jitter_stream(a) + (uint32_t) * (const int32_t *)a->step.data;
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        uint64_t token = (uint64_t)sequence[i / t] * (uint64_t)a->positions + (uint64_t)pos[i];
        float *x = (float *)a->x.data + i * e;
        for (int64_t j = 0; j < e; j++) {
            float u = (float)rng_uniform(a->seed, stream, token * (uint64_t)e + (uint64_t)j);
            x[j] *= 1 + a->size * (2 * u - 1);
        }
    }
    return OK;
}

OP_PORTS(jitter, ADD(Jitter, x), IN(Jitter, sequence), IN(Jitter, pos), IN(Jitter, step));
