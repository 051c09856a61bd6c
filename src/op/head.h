/*
 * head_loss: the output projection, cross-entropy and both their gradients, chunk by chunk.
 *
 * For each chunk of `chunk` tokens: logits = x W^T (f32), loss = lse(logits) - logits[target],
 * dlogits = (softmax(logits) - onehot(target)) * scale, dx = dlogits W, dW += dlogits^T x. Only one
 * chunk of logits exists at a time, and none survives the op: with the gradient computed on the
 * spot there is nothing to keep and nothing to compute again (the logits of 4096 tokens over a
 * vocabulary of 102400 would be 1.7 GB). dx and dw not given: evaluation, loss only.
 *
 * A target of -1 is ignored: loss 0, gradient 0. scale (device memory, since it changes) is 1 / the
 * number of targets of the global batch, so gradients of micro-batches and ranks just add up.
 * loss_sum += scale * sum of loss.
 */
#ifndef OP_HEAD_H
#define OP_HEAD_H

#include "base/tensor.h"

typedef struct HeadLoss {
    Tensor x;        /* in  (N, D) act */
    Tensor w;        /* in  (V, D) act, x's type */
    Tensor target;   /* in  (N) i32 */
    Tensor scale;    /* in  (1) f32 */
    Tensor loss;     /* out (N) f32, nats */
    Tensor loss_sum; /* add (1) f32 */
    Tensor dx;       /* out (N, D) act, optional */
    Tensor dw;       /* add (V, D) f32, with dx only */
    int64_t chunk;   /* tokens a chunk, >= 1 */
} HeadLoss;

#endif
