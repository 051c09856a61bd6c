/*
 * The call: what is checked, what it costs, who runs it. The CPU's passes stand in attention_fwd.c
 * and attention_bwd.c.
 */
#include "op/attention_cpu.h"

static Status expect4(const char *op, const char *port, const Tensor *t, const int64_t dim[4],
                      Dtype dtype)
{
    bool fits = t->rank == 4 && t->dtype == dtype;
    for (int i = 0; fits && i < 4; i++) fits = t->dim[i] == dim[i];
    if (fits) return OK;
    char shape[96];
    return FAIL(ERR_SHAPE, "%s: %s is %s, wanted (%lld, %lld, %lld, %lld) %s", op, port,
                tensor_shape_text(t, shape, sizeof shape), (long long)dim[0], (long long)dim[1],
                (long long)dim[2], (long long)dim[3], dtype_name(dtype));
}

static Status check_shape(const char *op, const Tensor *q, const Tensor *k, const Tensor *v,
                          const Tensor *doc)
{
    char shape[96];
    if (q->rank != 4 || (q->dtype != DTYPE_F32 && q->dtype != DTYPE_BF16)) {
        return FAIL(ERR_SHAPE, "%s: q is %s, wanted (B, Tq, H, dk) f32 or bf16", op,
                    tensor_shape_text(q, shape, sizeof shape));
    }
    if (k->rank != 4 || v->rank != 4) {
        return FAIL(ERR_SHAPE, "%s: k has rank %d and v has rank %d, wanted 4", op, k->rank,
                    v->rank);
    }
    Shape s = attention_shape(q, k, v, doc, 1);
    TRY(expect4(op, "k", k, (const int64_t[4]){ s.B, s.Tk, s.G, s.dk }, s.act));
    TRY(expect4(op, "v", v, (const int64_t[4]){ s.B, s.Tk, s.G, s.dv }, s.act));
    if (s.dk < 1 || s.dv < 1 || s.H < 1 || s.G < 1 || s.H % s.G != 0) {
        return FAIL(ERR_SHAPE, "%s: %lld heads of %lld do not share %lld key/value heads of %lld",
                    op, (long long)s.H, (long long)s.dk, (long long)s.G, (long long)s.dv);
    }
    if (s.Tk < s.Tq) {
        return FAIL(ERR_SHAPE, "%s: %lld queries but only %lld keys", op, (long long)s.Tq,
                    (long long)s.Tk);
    }
    if (doc->data == NULL) return OK;
    return op_expect(op, "doc", doc, s.B, s.Tq, DTYPE_I32);
}

/* The softmax takes the largest score before it is scaled. */
static Status check_scale(const char *op, float scale)
{
    if (scale > 0) return OK;
    return FAIL(ERR_ARG, "%s: scale is %g, wanted a number above 0", op, (double)scale);
}

Status attention_fwd_check(const void *args)
{
    const AttentionFwd *a = args;
    const char *op = "attention_fwd";
    TRY(check_shape(op, &a->q, &a->k, &a->v, &a->doc));
    TRY(check_scale(op, a->scale));
    Shape s = attention_fwd_shape(a);
    TRY(expect4(op, "o", &a->o, (const int64_t[4]){ s.B, s.Tq, s.H, s.dv }, s.act));
    return op_expect(op, "lse", &a->lse, s.B * s.H, s.Tq, DTYPE_F32);
}

Status attention_bwd_check(const void *args)
{
    const AttentionBwd *a = args;
    const char *op = "attention_bwd";
    TRY(check_shape(op, &a->q, &a->k, &a->v, &a->doc));
    TRY(check_scale(op, a->scale));
    Shape s = attention_bwd_shape(a);
    if (s.Tk != s.Tq) {
        return FAIL(ERR_SHAPE, "%s: %lld queries and %lld keys, wanted as many", op,
                    (long long)s.Tq, (long long)s.Tk);
    }
    const int64_t like_o[4] = { s.B, s.Tq, s.H, s.dv };
    TRY(expect4(op, "d_o", &a->d_o, like_o, s.act));
    TRY(expect4(op, "o", &a->o, like_o, s.act));
    TRY(op_expect(op, "lse", &a->lse, s.B * s.H, s.Tq, DTYPE_F32));
    TRY(expect4(op, "dq", &a->dq, a->q.dim, s.act));
    TRY(expect4(op, "dk", &a->dk, a->k.dim, s.act));
    return expect4(op, "dv", &a->dv, a->v.dim, s.act);
}

/*
 * Products only, over the pairs of a query and a key at or before it (the causal half), in its
 * chunk if there are chunks. Documents hide more, but a cost reads no data, so with doc this is an
 * upper bound. Forward does two products a pair; backward five: the scores again, dp, dv, dk and
 * dq. Bytes: every tensor once.
 */
static double pairs_of(const Shape *s, int64_t chunk)
{
    double Tq = (double)s->Tq, Tk = (double)s->Tk, heads = (double)(s->B * s->H);
    if (chunk == 0 || chunk >= s->Tk) return heads * (Tq * (Tk - Tq) + Tq * (Tq + 1) / 2);
    /* Whole chunks and the rest, less those of the keys that have no query. */
    int64_t all = 0;
    const int64_t ends[2] = { s->Tk, s->Tk - s->Tq };
    for (int i = 0; i < 2; i++) {
        int64_t whole = ends[i] / chunk, rest = ends[i] % chunk;
        int64_t pairs = whole * (chunk * (chunk + 1) / 2) + rest * (rest + 1) / 2;
        all += i == 0 ? pairs : -pairs;
    }
    return heads * (double)all;
}

OpCost attention_fwd_cost(const void *args)
{
    const AttentionFwd *a = args;
    Shape s = attention_fwd_shape(a);
    return (OpCost){ .flops = 2 * pairs_of(&s, a->chunk) * (double)(s.dk + s.dv),
                     .bytes = op_port_bytes(OP_ATTENTION_FWD, a),
                     .work = WORK_ATTENTION,
                     .dtype = s.act,
                     .size = (double)(a->chunk > 0 ? a->chunk : s.Tk) };
}

OpCost attention_bwd_cost(const void *args)
{
    const AttentionBwd *a = args;
    Shape s = attention_bwd_shape(a);
    return (OpCost){ .flops = 2 * pairs_of(&s, a->chunk) * (double)(3 * s.dk + 2 * s.dv),
                     .bytes = op_port_bytes(OP_ATTENTION_BWD, a),
                     .work = WORK_ATTENTION_BACKWARD,
                     .dtype = s.act,
                     .size = (double)(a->chunk > 0 ? a->chunk : s.Tk) };
}

OP_PORTS(attention_fwd, IN(AttentionFwd, q), IN(AttentionFwd, k), IN(AttentionFwd, v),
         IN_OPT(AttentionFwd, doc), OUT(AttentionFwd, o), OUT(AttentionFwd, lse));

OP_PORTS(attention_bwd, IN(AttentionBwd, d_o), IN(AttentionBwd, q), IN(AttentionBwd, k),
         IN(AttentionBwd, v), IN_OPT(AttentionBwd, doc), IN(AttentionBwd, o), IN(AttentionBwd, lse),
         OUT(AttentionBwd, dq), OUT(AttentionBwd, dk), OUT(AttentionBwd, dv));
