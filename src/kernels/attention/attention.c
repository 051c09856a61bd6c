/*
 * attention: sizes, checks and ports of attention_fwd and attention_bwd. Costs are in
 * attention_cost.c, the CPU implementations in attention_fwd.c and attention_bwd.c, the choice of a
 * GPU's kernel in attention_kernels.c. Sinks are ops of their own (attention_sink.c).
 */
#include "kernels/attention/attention_private.h"
#include "kernels/core/op.h"

Shape attention_fwd_shape(const AttentionFwd *a)
{
    return (Shape){ .B = a->q.dim[0],
                    .H = a->q.dim[2],
                    .G = a->k.dim[2],
                    .Tq = a->q.dim[1],
                    .Tk = a->k.dim[1],
                    .dk = a->q.dim[3],
                    .dv = a->v.dim[3],
                    .act = a->q.dtype,
                    .scale = a->scale,
                    .doc = a->doc.data,
                    .pieces = a->pieces,
                    .window = a->window,
                    .chunk = a->chunk };
}

/* Both directions have the same sizes, so there is one place that reads them from tensors. */
static AttentionFwd forward_of(const AttentionBwd *a)
{
    return (AttentionFwd){ .q = a->q,
                           .k = a->k,
                           .v = a->v,
                           .doc = a->doc,
                           .scale = a->scale,
                           .pieces = a->pieces,
                           .window = a->window,
                           .chunk = a->chunk };
}

Shape attention_bwd_shape(const AttentionBwd *a)
{
    AttentionFwd as = forward_of(a);
    return attention_fwd_shape(&as);
}

static Status expect_shape4(const char *op, const char *port, const Tensor *t, const int64_t dim[4],
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

/* Checks the type of a sum over blocks of keys: f32, or act if it is over all keys. */
static Status expect_sum(const char *op, const char *port, const Tensor *t, const int64_t dim[4],
                         Dtype act)
{
    return expect_shape4(op, port, t, dim, t->dtype == DTYPE_F32 ? DTYPE_F32 : act);
}

static Status expect_given(const char *op, const char *port, const Tensor *t, const int64_t dim[4],
                           Dtype dtype)
{
    return t->data == NULL ? OK : expect_shape4(op, port, t, dim, dtype);
}

/* Both pieces must have the same length, lie in the sequence in ascending order, and not overlap. */
static Status check_pieces(const char *op, const Shape *s)
{
    const AttentionPieces *p = &s->pieces;
    if (s->Tq != 2 * p->length || s->Tk != 2 * p->length) {
        return FAIL(ERR_SHAPE, "%s: %lld queries and %lld keys are not two pieces of %lld tokens",
                    op, (long long)s->Tq, (long long)s->Tk, (long long)p->length);
    }
    const int64_t *at[] = { p->q, p->k };
    for (int i = 0; i < 2; i++) {
        if (at[i][0] >= 0 && at[i][0] + p->length <= at[i][1]) continue;
        return FAIL(ERR_ARG, "%s: pieces of %lld tokens at %lld and %lld: wanted in order", op,
                    (long long)p->length, (long long)at[i][0], (long long)at[i][1]);
    }
    return OK;
}

Status attention_check_shape(const char *op, const AttentionFwd *a, const Shape *s)
{
    const Tensor *q = &a->q, *k = &a->k, *v = &a->v, *doc = &a->doc;
    char shape[96];
    if (q->rank != 4 || q->dtype > DTYPE_F16) {
        return FAIL(ERR_SHAPE, "%s: q is %s, wanted (B, Tq, H, dk) f32, bf16 or f16", op,
                    tensor_shape_text(q, shape, sizeof shape));
    }
    if (k->rank != 4 || v->rank != 4) {
        return FAIL(ERR_SHAPE, "%s: k has rank %d and v has rank %d, wanted 4", op, k->rank,
                    v->rank);
    }
    TRY(expect_shape4(op, "k", k, (const int64_t[4]){ s->B, s->Tk, s->G, s->dk }, s->act));
    TRY(expect_shape4(op, "v", v, (const int64_t[4]){ s->B, s->Tk, s->G, s->dv }, s->act));
    if (s->dk < 1 || s->dv < 1 || s->H < 1 || s->G < 1 || s->H % s->G != 0) {
        return FAIL(ERR_SHAPE, "%s: %lld heads of %lld do not share %lld key/value heads of %lld",
                    op, (long long)s->H, (long long)s->dk, (long long)s->G, (long long)s->dv);
    }
    if (s->Tk < s->Tq) {
        return FAIL(ERR_SHAPE, "%s: %lld queries but only %lld keys", op, (long long)s->Tq,
                    (long long)s->Tk);
    }
    /* The softmax takes the maximum of unscaled scores, so the scale must be above 0. */
    if (!(s->scale > 0)) {
        return FAIL(ERR_ARG, "%s: scale is %g, wanted a number above 0", op, (double)s->scale);
    }
    if (s->window < 0 || s->chunk < 0) {
        return FAIL(ERR_ARG, "%s: a window of %lld and chunks of %lld tokens: wanted 0 or more", op,
                    (long long)s->window, (long long)s->chunk);
    }
    if (s->pieces.length != 0) TRY(check_pieces(op, s));
    return doc->data == NULL ? OK : op_expect(op, "doc", doc, s->B, s->Tq, DTYPE_I32);
}

Status attention_fwd_check(const AttentionFwd *a)
{
    const char *op = "attention_fwd";
    Shape s = attention_fwd_shape(a);
    TRY(attention_check_shape(op, a, &s));
    const int64_t like_o[4] = { s.B, s.Tq, s.H, s.dv };
    TRY(expect_sum(op, "o", &a->o, like_o, s.act));
    TRY(op_expect(op, "lse", &a->lse, s.B * s.H, s.Tq, DTYPE_F32));
    if (a->o_before.data == NULL) return OK;
    TRY(expect_shape4(op, "o_before", &a->o_before, like_o, DTYPE_F32));
    return op_expect(op, "lse_before", &a->lse_before, s.B * s.H, s.Tq, DTYPE_F32);
}

Status attention_bwd_check(const AttentionBwd *a)
{
    const char *op = "attention_bwd";
    Shape s = attention_bwd_shape(a);
    AttentionFwd as = forward_of(a);
    TRY(attention_check_shape(op, &as, &s));
    if (s.Tk != s.Tq) {
        return FAIL(ERR_SHAPE, "%s: %lld queries and %lld keys, wanted equal numbers", op,
                    (long long)s.Tq, (long long)s.Tk);
    }
    const int64_t like_o[4] = { s.B, s.Tq, s.H, s.dv };
    TRY(expect_shape4(op, "d_o", &a->d_o, like_o, s.act));
    TRY(expect_shape4(op, "o", &a->o, like_o, s.act));
    TRY(op_expect(op, "lse", &a->lse, s.B * s.H, s.Tq, DTYPE_F32));
    TRY(expect_sum(op, "dq", &a->dq, a->q.dim, s.act));
    TRY(expect_shape4(op, "dk", &a->dk, a->k.dim, s.act));
    TRY(expect_shape4(op, "dv", &a->dv, a->v.dim, s.act));
    TRY(expect_given(op, "dq_before", &a->dq_before, a->q.dim, DTYPE_F32));
    TRY(expect_given(op, "dk_before", &a->dk_before, a->k.dim, s.act));
    return expect_given(op, "dv_before", &a->dv_before, a->v.dim, s.act);
}

OP_PORTS(attention_fwd, IN(AttentionFwd, q), IN(AttentionFwd, k), IN(AttentionFwd, v),
         IN_OPT(AttentionFwd, doc), OUT(AttentionFwd, o), OUT(AttentionFwd, lse),
         IN_OPT(AttentionFwd, o_before), IN_OPT(AttentionFwd, lse_before));

OP_PORTS(attention_bwd, IN(AttentionBwd, d_o), IN(AttentionBwd, q), IN(AttentionBwd, k),
         IN(AttentionBwd, v), IN_OPT(AttentionBwd, doc), IN(AttentionBwd, o), IN(AttentionBwd, lse),
         OUT(AttentionBwd, dq), OUT(AttentionBwd, dk), OUT(AttentionBwd, dv),
         IN_OPT(AttentionBwd, dq_before), IN_OPT(AttentionBwd, dk_before),
         IN_OPT(AttentionBwd, dv_before));
