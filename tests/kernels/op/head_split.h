/* head_split: head_loss over ranks that have equal parts of a vocabulary (op_ranks.h). */
#ifndef KERNELS_OP_HEAD_SPLIT_H
#define KERNELS_OP_HEAD_SPLIT_H

#include "kernels/head/head.h"
#include "op_ranks.h"

typedef struct HeadPart {
    Part p;
    HeadLoss a; /* in host memory */
} HeadPart;

typedef struct Split {
    int ranks;
    bool on_gpu;
    HeadPart part[PARTS_MOST];
} Split;

static inline void split_open(Split *s, int ranks, bool on_gpu)
{
    *s = (Split){ .ranks = ranks, .on_gpu = on_gpu };
    for (int r = 0; r < ranks; r++) part_open(&s->part[r].p, r, OP_HEAD_LOSS, &s->part[r].a);
}

static inline void split_close(Split *s)
{
    for (int r = 0; r < s->ranks; r++) optest_close(&s->part[r].p.t);
}

/* Cuts `whole` into parts. The last rank adds the loss. */
static inline void split_cut(Split *s, const HeadLoss *whole)
{
    int64_t V = whole->w.data.dim[0] / s->ranks;
    for (int r = 0; r < s->ranks; r++) {
        OpTest *t = &s->part[r].p.t;
        HeadLoss *a = &s->part[r].a;
        Tensor w = tensor_rows(&whole->w.data, r * V, V);
        *a = *whole;
        a->w = operand_plain(optest_copy(t, &w));
        a->loss = optest_poisoned(t, DTYPE_F32, whole->loss.dim);
        a->loss_sum = optest_copy(t, &whole->loss_sum);
        if (a->dx.data != NULL) a->dx = optest_poisoned(t, whole->dx.dtype, whole->dx.dim);
        if (a->dw.data != NULL) {
            Tensor dw = tensor_rows(&whole->dw, r * V, V);
            a->dw = optest_copy(t, &dw);
        }
        a->vocab_first = r * V, a->ranks = s->ranks;
        a->silent = r < s->ranks - 1;
    }
}

static inline Status split_run(Split *s)
{
    Ranks of = { .n = s->ranks, .on_gpu = s->on_gpu };
    for (int r = 0; r < s->ranks; r++) of.part[r] = &s->part[r].p;
    return ranks_run(&of);
}

#endif
