/* attention_case: the pieces of a sequence that context ranks have; calls of backward. */
#ifndef KERNELS_OP_ATTENTION_CASE_H
#define KERNELS_OP_ATTENTION_CASE_H

#include "harness/optest.h"
#include "kernels/attention/attention.h"

/* Two pieces each of a sequence that `ranks` share, as the ranks of q and k have them. */
static inline AttentionPieces pieces_of(int64_t length, int64_t ranks, int64_t q, int64_t k)
{
    int64_t last = 2 * ranks - 1;
    return (AttentionPieces){ length,
                              { q * length, (last - q) * length },
                              { k * length, (last - k) * length } };
}

/* Where row i of two pieces that begin at `first` stands in the sequence. */
static inline int64_t piece_position(const AttentionPieces *p, const int64_t first[2], int64_t i)
{
    return first[i / p->length] + i % p->length;
}

#define DIMS4(x) DIMS((x)->dim[0], (x)->dim[1], (x)->dim[2], (x)->dim[3])

static inline Tensor poisoned_like(OpTest *t, const Tensor *x)
{
    return optest_poisoned(t, x->dtype, DIMS4(x));
}

/* Backward of f, on the whole sequence, for a random d_o. */
static inline AttentionBwd make_bwd(OpTest *t, const AttentionFwd *f)
{
    return (AttentionBwd){ .d_o = optest_normal(t, f->o.dtype, DIMS4(&f->o)),
                           .q = f->q,
                           .k = f->k,
                           .v = f->v,
                           .doc = f->doc,
                           .o = f->o,
                           .lse = f->lse,
                           .dq = poisoned_like(t, &f->q),
                           .dk = poisoned_like(t, &f->k),
                           .dv = poisoned_like(t, &f->v),
                           .scale = f->scale,
                           .window = f->window,
                           .chunk = f->chunk,
                           .kernel = f->kernel };
}

#endif
