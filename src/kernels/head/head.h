/*
 * head_loss: the output projection, the cross-entropy and the gradients of both, chunk by chunk.
 *
 *   for each chunk of `chunk` tokens:
 *     logits = x W^T                                          loss = lse(logits) - logits[target]
 *     dlogits = (softmax(logits) - onehot(target)) * scale    dx = dlogits W,   dW += dlogits^T x
 *   loss_sum += scale * sum of loss
 *
 * Only one chunk of logits exists at a time, and none survives the op. The gradient is computed at
 * once, so nothing is kept for backward or recomputed: logits of 16384 tokens over a vocabulary of
 * 102400 would take 3.4 GB in bf16. Without dx and dw the op is an evaluation: loss only.
 *
 * Logits are summed in f32 and rounded to x's type; dlogits replace them in the same type. Maximum,
 * sum and loss are computed in f32 or better from the rounded logits, so training and evaluation
 * see the same softmax. In bf16 a logit is off by up to 2^-9 of itself.
 *
 * Ranks of tensor parallelism may split the vocabulary: w then holds V rows of V ranks, those from
 * vocab_first on, while x, target and scale are the same on all of them. The softmax of a row needs
 * two small all-reduces a chunk, of 1 and of 2 numbers a token:
 *
 *     m_r = max of rank r's logits         m = max over ranks of m_r
 *     s_r = sum of e^(logit - m_r)         s = sum over ranks of s_r e^(m_r - m)
 *     t_r = logit of the target, if rank r has it, else 0        t = sum over ranks of t_r
 *     loss = m + log(s) - t                softmax(logit) = e^(logit - m) / s
 *
 * The loss has the same bits on all ranks. dx is this rank's part of the sum over the vocabulary:
 * the caller adds the ranks' parts. dw is complete. All ranks must have the same chunk.
 *
 * With scales in w all three products are 8-bit (kernels/core/operand.h). Rows of x and of dlogits have scales of
 * 1 x 128, and so have their columns, over which dw sums. All are made chunk by chunk, from x and from dlogits in
 * x's type. If chunks are multiples of 128 tokens, no scale depends on the chunk.
 *
 * A target of -1 is ignored: loss 0, gradient 0. scale is 1 / the number of targets of the global
 * batch, so gradients of micro-batches and ranks simply add up. It changes, so it is device memory.
 */
#ifndef KERNELS_HEAD_HEAD_H
#define KERNELS_HEAD_HEAD_H

#include "kernels/core/operand.h"

#include <stdbool.h>

typedef struct HeadLoss {
    Tensor x;            /* in  (N, D) act */
    Operand w;           /* in  (V, D) act, x's type; or 8-bit with scales of 128 x 128 */
    Operand turned;      /* in  (D, V): w transposed, for dx; if w has scales, else absent */
    Tensor target;       /* in  (N) i32, numbers in the whole vocabulary */
    Tensor scale;        /* in  (1) f32 */
    Tensor loss;         /* out (N) f32, nats */
    Tensor loss_sum;     /* add (1) f32 */
    Tensor dx;           /* out (N, D) act, optional */
    Tensor dw;           /* add (V, D) f32, with dx only */
    int64_t chunk;       /* tokens a chunk, >= 1 */
    int64_t vocab_first; /* number of w's first row in the vocabulary */
    int64_t ranks; /* ranks of AXIS_TP that have the parts of the vocabulary; 0 or 1: w is whole */
    bool silent;   /* adds nothing to loss_sum: another rank of AXIS_TP does */
    /* If w has scales: those of dlogits and x are powers of two; dw is a product in x's type; and dlogits' 8-bit type. */
    bool pow2, plain_dw;
    Dtype gradient;
} HeadLoss;

/* Tokens in a chunk: `chosen` (model.loss_chunk), if it is not 0. Else 512 on a CPU; on a GPU the
 * largest power of two whose logits take at most 1 GiB, but at least 4096: products of few rows are
 * slow, and dW is read and written once a chunk. It depends neither on free memory nor on the
 * tokens of a call, so that a plan, its run and a resumed run agree. */
int64_t head_chunk(int64_t chosen, bool gpu, int64_t vocab, Dtype act);

#define OPS_HEAD
#include "kernels/core/declare.h"
#undef OPS_HEAD

#endif
