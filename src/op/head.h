/*
 * head_loss: the output projection, cross-entropy and both their gradients, chunk by chunk.
 *
 * For each chunk of `chunk` tokens: logits = x W^T, loss = lse(logits) - logits[target],
 * dlogits = (softmax(logits) - onehot(target)) * scale, dx = dlogits W, dW += dlogits^T x. Only one
 * chunk of logits exists at a time, and none survives the op: with the gradient computed on the
 * spot there is nothing to keep and nothing to compute again (the logits of 16384 tokens over a
 * vocabulary of 102400 would be 3.4 GB in bf16). dx and dw not given: evaluation, loss only.
 *
 * Logits are sums in f32, rounded to x's type, and dlogits take their place in the same type.
 * Maximum, sum and loss are computed in f32 or better from the rounded logits: softmax is that of
 * what is stored, in training and in evaluation. In bf16 a logit is off by up to 2^-9 of itself.
 *
 * A target of -1 is ignored: loss 0, gradient 0. scale (device memory, since it changes) is 1 / the
 * number of targets of the global batch, so gradients of micro-batches and ranks just add up.
 * loss_sum += scale * sum of loss.
 */
#ifndef OP_HEAD_H
#define OP_HEAD_H

#include "op/operand.h"

#include <stdbool.h>

typedef struct HeadLoss {
    Tensor x;        /* in  (N, D) act */
    Operand w;       /* in  (V, D) act, x's type; one with scales is refused so far */
    Tensor target;   /* in  (N) i32 */
    Tensor scale;    /* in  (1) f32 */
    Tensor loss;     /* out (N) f32, nats */
    Tensor loss_sum; /* add (1) f32 */
    Tensor dx;       /* out (N, D) act, optional */
    Tensor dw;       /* add (V, D) f32, with dx only */
    int64_t chunk;   /* tokens a chunk, >= 1 */
} HeadLoss;

/* Tokens a chunk: as many as model.loss_chunk says. 0: 512 on a CPU; on a GPU the largest power of
 * two whose logits take at most 1 GiB, but at least 4096, because products of few rows are slow and
 * dW is read and written once a chunk. Neither the memory that is free nor the tokens of a call
 * matter: a plan, its run and a resumed run agree. */
int64_t head_chunk(int64_t chosen, bool gpu, int64_t vocab, Dtype act);

#define OPS_HEAD
#include "op/declare.h"
#undef OPS_HEAD

#endif
