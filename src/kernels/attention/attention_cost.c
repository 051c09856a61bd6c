/*
 * attention_cost: costs of attention_fwd and attention_bwd.
 *
 * They count matrix products only, over the pairs (query, key) that the masks leave: causal, window and chunk.
 * Documents hide more pairs. But a cost reads no data, so with doc it is an upper bound. Forward does two products a
 * pair: scores and p v. Backward does five: scores, dp, dv, dk and dq. Bytes: every tensor once.
 */
#include "kernels/attention/attention_kernels.h"
#include "kernels/attention/attention_private.h"

static int64_t triangle(int64_t x) { return x > 0 ? x * (x + 1) / 2 : 0; }

/* Causal pairs of queries [q, q + nq) and keys [k, k + nk): the triangle of all pairs below the
 * diagonal, minus and plus the corners that the ranges cut off (inclusion and exclusion). */
static int64_t pairs_between(int64_t q, int64_t nq, int64_t k, int64_t nk)
{
    int64_t at = q - k;
    return triangle(at + nq) - triangle(at) - triangle(at + nq - nk) + triangle(at - nk);
}

/* Causal pairs that mask->chunk (above 0) and mask->window leave, added up chunk by chunk. With a
 * window, a query loses the keys that a query `window` tokens earlier would see. */
static int64_t pairs_masked(int64_t q, int64_t nq, int64_t k, int64_t nk, const Shape *mask)
{
    int64_t all = 0, chunk = mask->chunk, window = mask->window;
    for (int64_t i = q; i < q + nq;) {
        int64_t first = i / chunk * chunk, end = least(first + chunk, q + nq);
        int64_t key = most(first, k), keys = most(0, least(end, k + nk) - key);
        all += pairs_between(i, end - i, key, keys);
        if (window > 0) all -= pairs_between(i - window, end - i, key, keys);
        i = end;
    }
    return all;
}

/* Pairs of a whole call, over sequences and heads. Two pieces of queries meet two pieces of keys. */
static double pairs_of(Shape s)
{
    const AttentionPieces *p = &s.pieces;
    int64_t all = 0, end = p->length == 0 ? s.Tk : p->q[1] + p->length;
    if (s.chunk == 0) s.chunk = most(1, end);
    if (p->length == 0) all = pairs_masked(s.Tk - s.Tq, s.Tq, 0, s.Tk, &s);
    for (int i = 0; p->length > 0 && i < 4; i++)
        all += pairs_masked(p->q[i / 2], p->length, p->k[i % 2], p->length, &s);
    return (double)(s.B * s.H) * (double)all;
}

/* width: multiply-adds of one pair, over all its products. The rate is that of the kernel that a GPU would run, judged by
 * the call's shapes on a device that has all libraries. Hardware files have one f32 rate for all kernels. */
static OpCost attention_cost(const Shape *s, int64_t width, const KernelTable *t,
                             AttentionKernel kernel, OpId op, const void *args)
{
    const KernelDesc *k = kernels_first(t, &kernel_device_full, (int)kernel, args);
    if (k == NULL) k = &t->row[kernel == ATTENTION_AUTO ? t->n - 1 : (int)kernel - 1];
    int64_t keys = s->chunk > 0 ? s->chunk : s->Tk;
    return (OpCost){ .flops = 2 * pairs_of(*s) * (double)width,
                     .bytes = op_port_bytes(op, args),
                     .work = s->act == DTYPE_BF16 ? k->work : t->row[0].work,
                     .dtype = s->act,
                     .size = (double)(s->window > 0 ? least(s->window, keys) : keys),
                     .kernel = &attention_words[1 + (k - t->row)] };
}

OpCost attention_fwd_cost(const AttentionFwd *a)
{
    Shape s = attention_fwd_shape(a);
    OpCost c =
        attention_cost(&s, s.dk + s.dv, &attention_fwd_kernels, a->kernel, OP_ATTENTION_FWD, a);
    if (!a->e4m3) return c;
    c.dtype = DTYPE_E4M3, c.work = WORK_ATTENTION, c.kernel = &attention_words[ATTENTION_AUTO];
    return c;
}

OpCost attention_bwd_cost(const AttentionBwd *a)
{
    Shape s = attention_bwd_shape(a);
    OpCost c = attention_cost(&s, 3 * s.dk + 2 * s.dv, &attention_bwd_kernels, a->kernel,
                              OP_ATTENTION_BWD, a);
    if (c.work == WORK_ATTENTION_BACKWARD && s.act != DTYPE_F32) c.work = WORK_ATTENTION_ORDERED;
    return c;
}
