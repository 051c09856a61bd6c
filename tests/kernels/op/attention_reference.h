/* attention_reference: attention and its gradients as a softmax over the whole row of scores, in
 * double, with every mask and with sinks. */
#ifndef KERNELS_OP_ATTENTION_REFERENCE_H
#define KERNELS_OP_ATTENTION_REFERENCE_H

#include "harness/optest.h"
#include "kernels/attention/attention.h"
#include "kernels/op/attention_case.h"

/* The call in double, and what it must give. Backward reads o and lse as the op does: in bf16 they
 * were rounded by the forward pass, which is no error of the backward one. */
typedef struct Problem {
    const AttentionFwd *a;
    const double *q, *k, *v, *d_o, *given_o, *given_lse; /* the last three for backward only */
    const double *o_before, *lse_before;                 /* of keys in earlier calls, or NULL */
    const double *sinks;                                 /* a head's, or NULL */
    double *p, *o, *lse, *dq, *dk, *dv, *dsinks;
    double *dq_size, *dk_size; /* sums of the absolute terms behind dq and dk */
} Problem;

static inline double *zeros(OpTest *t, int64_t n)
{
    double *x = optest_doubles(t, n);
    for (int64_t i = 0; i < n; i++) x[i] = 0;
    return x;
}

static inline Problem problem_of(OpTest *t, const AttentionFwd *a)
{
    return (Problem){ .a = a,
                      .q = optest_read(t, &a->q),
                      .k = optest_read(t, &a->k),
                      .v = optest_read(t, &a->v),
                      .p = optest_doubles(t, a->k.dim[1]),
                      .o = zeros(t, tensor_elems(&a->o)),
                      .lse = optest_doubles(t, tensor_elems(&a->lse)),
                      .dq = zeros(t, tensor_elems(&a->q)),
                      .dk = zeros(t, tensor_elems(&a->k)),
                      .dv = zeros(t, tensor_elems(&a->v)),
                      .dq_size = zeros(t, tensor_elems(&a->q)),
                      .dk_size = zeros(t, tensor_elems(&a->k)) };
}

/* First element of a head's row in a (B, T, heads, width) tensor. */
static inline int64_t row_of(const Tensor *x, int64_t b, int64_t i, int64_t h)
{
    return ((b * x->dim[1] + i) * x->dim[2] + h) * x->dim[3];
}

static inline double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t d = 0; d < n; d++) sum += x[d] * y[d];
    return sum;
}

static inline double dot_of_sizes(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t d = 0; d < n; d++) sum += fabs(x[d] * y[d]);
    return sum;
}

static inline void add_sizes(double *to, double factor, const double *x, int64_t n)
{
    for (int64_t d = 0; d < n; d++) to[d] += factor * fabs(x[d]);
}

static inline void add_scaled(double *to, double factor, const double *x, int64_t n)
{
    for (int64_t d = 0; d < n; d++) to[d] += factor * x[d];
}

/* One query of one head: where its rows begin, and the keys [first, end) that it sees. */
typedef struct Query {
    int64_t b, h, g, q, o, lse, first, end;
} Query;

/* first and end: in the sequence; then among a rank's keys. */
static inline void find_keys(const AttentionFwd *a, Query *x)
{
    const AttentionPieces *p = &a->pieces;
    int64_t from = x->first, to = x->end - 1;
    x->first = x->end = 0;
    for (int64_t j = a->k.dim[1] - 1; j >= 0; j--) {
        int64_t at = piece_position(p, p->k, j);
        if (at < from || at > to) continue;
        if (x->end == 0) x->end = j + 1;
        x->first = j;
    }
}

static inline Query query_of(const AttentionFwd *a, int64_t b, int64_t h, int64_t i)
{
    int64_t Tq = a->q.dim[1];
    const AttentionPieces *p = &a->pieces;
    int64_t at = p->length > 0 ? piece_position(p, p->q, i) : i + a->k.dim[1] - Tq;
    Query x = { .b = b, .h = h, .g = h / (a->q.dim[2] / a->k.dim[2]), .end = at + 1 };
    x.q = row_of(&a->q, b, i, h), x.o = row_of(&a->o, b, i, h);
    x.lse = (b * a->q.dim[2] + h) * Tq + i;
    if (a->doc.data != NULL) x.first = (int64_t)optest_get(&a->doc, b * Tq + i);
    while (a->window > 0 && at - x.first >= a->window) x.first++;
    while (a->chunk > 0 && x.first / a->chunk < at / a->chunk) x.first++;
    if (p->length > 0) find_keys(a, &x);
    return x;
}

static inline void score(const Problem *p, const Query *x)
{
    int64_t dk = p->a->q.dim[3];
    for (int64_t j = x->first; j < x->end; j++) {
        const double *k = p->k + row_of(&p->a->k, x->b, j, x->g);
        p->p[j] = (double)p->a->scale * dot(p->q + x->q, k, dk);
    }
}

static inline void forward(const Problem *p, const Query *x)
{
    int64_t dv = p->a->v.dim[3];
    double before = p->lse_before == NULL ? -(double)INFINITY : p->lse_before[x->lse];
    double max = before;
    double sink = p->sinks == NULL ? -(double)INFINITY : p->sinks[x->h];
    score(p, x);
    for (int64_t j = x->first; j < x->end; j++) max = fmax(max, p->p[j]);
    max = fmax(max, sink);
    if (isinf(max)) {
        p->lse[x->lse] = max; /* no key at all: o stays 0 */
        return;
    }
    double sum = exp(before - max) + exp(sink - max);
    for (int64_t j = x->first; j < x->end; j++) sum += exp(p->p[j] - max);
    p->lse[x->lse] = max + log(sum);
    if (p->o_before != NULL)
        add_scaled(p->o + x->o, exp(before - max) / sum, p->o_before + x->o, dv);
    for (int64_t j = x->first; j < x->end; j++) {
        double weight = exp(p->p[j] - max) / sum;
        add_scaled(p->o + x->o, weight, p->v + row_of(&p->a->v, x->b, j, x->g), dv);
    }
}

/* A sink has no value: its d is -p do o.
 * p = exp(s - lse), ds = scale * p * (do v - do o): dv += p do, dq += ds k, dk += ds q */
static inline void backward(const Problem *p, const Query *x)
{
    int64_t dk = p->a->q.dim[3], dv = p->a->v.dim[3];
    const double *d_o = p->d_o + x->o, *q = p->q + x->q;
    double delta = dot(d_o, p->given_o + x->o, dv);
    double delta_size = dot_of_sizes(d_o, p->given_o + x->o, dv);
    score(p, x);
    if (p->sinks != NULL) p->dsinks[x->h] -= exp(p->sinks[x->h] - p->given_lse[x->lse]) * delta;
    for (int64_t j = x->first; j < x->end; j++) {
        int64_t k = row_of(&p->a->k, x->b, j, x->g), v = row_of(&p->a->v, x->b, j, x->g);
        double weight = exp(p->p[j] - p->given_lse[x->lse]);
        double factor = (double)p->a->scale * weight;
        double ds = factor * (dot(d_o, p->v + v, dv) - delta);
        double ds_size = factor * (dot_of_sizes(d_o, p->v + v, dv) + delta_size);
        add_scaled(p->dv + v, weight, d_o, dv);
        add_scaled(p->dq + x->q, ds, p->k + k, dk);
        add_scaled(p->dk + k, ds, q, dk);
        add_sizes(p->dq_size + x->q, ds_size, p->k + k, dk);
        add_sizes(p->dk_size + k, ds_size, q, dk);
    }
}

static inline void each_query(const Problem *p, void (*what)(const Problem *, const Query *))
{
    const int64_t *dim = p->a->q.dim;
    for (int64_t row = 0; row < dim[0] * dim[2] * dim[1]; row++) {
        Query x = query_of(p->a, row / dim[1] / dim[2], row / dim[1] % dim[2], row % dim[1]);
        what(p, &x);
    }
}

/* <d_o, o> of other q, k and v, which stand one behind the other. */
static inline double output_of(Problem p, const double *qkv)
{
    p.q = qkv, p.k = p.q + tensor_elems(&p.a->q), p.v = p.k + tensor_elems(&p.a->k);
    int64_t n = tensor_elems(&p.a->o);
    memset(p.o, 0, (size_t)n * sizeof *p.o);
    each_query(&p, forward);
    return dot(p.d_o, p.o, n);
}

#endif
