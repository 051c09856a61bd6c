/*
 * delta: the gated delta rule with what stands around it (Gated DeltaNet, Yang, Kautz and Hatamizadeh,
 * arXiv:2412.06464, as Qwen3-Next has it): a short causal convolution, the recurrence, a gated norm.
 *
 * One projection makes x, a row for each token. For each key head, one after the other, a row has q (Dk), k (Dk), and
 * for the R = H / G value heads that share it v (R Dv) and z (R Dv). Behind those of all key heads it has for each key
 * head b (R) and a (R).
 *
 *   delta_conv   [q | k | v] = silu(conv(q, k, v of x)), channel by channel over the last `taps` tokens:
 *                u_t = sum over i of w_i x_(t - taps + 1 + i)
 *   delta_rule   with q and k of length 1, q scaled by Dk^-1/2, the state S (Dk, Dv) of each value head:
 *                beta = sigmoid(b),  alpha = exp(-exp(A) softplus(a + dt))
 *                S' = alpha S,  e = v - S'^T k,  S = S' + k (beta e)^T,  o = S^T q
 *   delta_norm   y = o (mean(o^2) + eps)^-1/2 w silu(z), head by head
 *
 * Each document begins with S = 0, and its first tokens convolve no tokens before it.
 *
 * Rows may be runs of sequences that ranks share (first, before, state): of R ranks rank c has runs c and 2 R - 1 - c of
 * each sequence. What a run does to the state before it is linear, so that ranks need not wait for each other:
 *
 *   delta_span   S_end = M S_begin + B, M (Dk, Dk) and B (Dk, Dv) of each run and head. Backward: C in place of B,
 *                dS_begin = M^T dS_end + C
 *   delta_join   of all runs' M and B: the state before each run of this rank. back: of M and C, the gradient of the
 *                state behind it
 *
 *   backward of the rule, dS from the tokens behind:
 *                dq = S do,  dS += q do^T,  du = dS^T k,  dbeta = du . e,  dv = beta du
 *                dk = dS (beta e) - S' dv,  dS' = dS - k dv^T,  d log(alpha) = <dS', S'>,  dS = alpha dS'
 *
 * Gradients of x are written by three ops: each writes the columns that its forward reads.
 */
#ifndef KERNELS_DELTA_DELTA_H
#define KERNELS_DELTA_DELTA_H

#include "engine/base/tensor.h"

/* The most tokens that a convolution joins, and the widest head. */
enum { DELTA_TAPS_MAX = 8, DELTA_WIDTH_MAX = 256 };

typedef struct DeltaDims {
    int64_t key_heads, heads; /* G divides H */
    int64_t key, value;       /* Dk, Dv: widths of a head */
} DeltaDims;

/* Value heads that share a key head. */
static inline int64_t delta_shared(const DeltaDims *d) { return d->heads / d->key_heads; }
/* Columns of x, and of q, k and v behind the convolution. */
static inline int64_t delta_x_cols(const DeltaDims *d)
{
    return 2 * (d->key_heads * d->key + d->heads * (d->value + 1));
}
static inline int64_t delta_qkv_cols(const DeltaDims *d)
{
    return 2 * d->key_heads * d->key + d->heads * d->value;
}
/* The first column of x of a key head's q, of a value head's z, and of its b; a lies delta_shared behind b. */
static inline int64_t delta_q_at(const DeltaDims *d, int64_t key_head)
{
    return key_head * 2 * (d->key + delta_shared(d) * d->value);
}
static inline int64_t delta_z_at(const DeltaDims *d, int64_t head)
{
    const int64_t shared = delta_shared(d);
    return delta_q_at(d, head / shared) + 2 * d->key + (shared + head % shared) * d->value;
}
static inline int64_t delta_b_at(const DeltaDims *d, int64_t head)
{
    const int64_t shared = delta_shared(d);
    return delta_q_at(d, d->key_heads) + head / shared * 2 * shared + head % shared;
}

typedef struct DeltaConvFwd {
    Tensor x; /* in  (N, columns of x) act */
    Tensor w; /* in  (columns of y, taps) f32 */
    Tensor
        doc;  /* in  (B, T) i32, optional: the position of a document's first token (attention.h) */
    Tensor y; /* out (N, q | k | v) act */
    DeltaDims dims;
    int64_t sequence; /* T, or the tokens of a run */
    int64_t first[2]; /* the positions at which runs of even and of odd number begin */
    Tensor before; /* in  (runs (taps - 1), columns of x) act, optional: the rows before each run */
} DeltaConvFwd;

/* Backward ops have the arguments of forward, but for its output: there they read the gradient of that. */
typedef struct DeltaConvBwd {
    DeltaConvFwd of; /* in  y: dy */
    Tensor dx;       /* out (N, columns of x) act: q, k and v of each head */
    Tensor dw;       /* add (columns of y, taps) f32, optional */
    Tensor dbefore;  /* out (like before), with it: q, k and v of each head */
} DeltaConvBwd;

typedef struct DeltaRuleFwd {
    Tensor qkv;   /* in  (N, q | k | v) act */
    Tensor x;     /* in  (N, columns of x) act: b and a of each head */
    Tensor decay; /* in  (1, 2 H) f32: A of each head, then dt */
    Tensor doc;   /* in  (B, T) i32, optional */
    Tensor o;     /* out (N, H Dv) act */
    DeltaDims dims;
    int64_t sequence;
    Tensor
        state; /* add (runs, H Dk Dv) f32, optional: S, which goes on from it. Backward: in, S before each run */
    int64_t first[2];
} DeltaRuleFwd;

typedef struct DeltaRuleBwd {
    DeltaRuleFwd of; /* in  o: do */
    Tensor dqkv;     /* out (N, q | k | v) act */
    Tensor dx;       /* out (N, columns of x) act: b and a of each head */
    Tensor ddecay;   /* add (1, 2 H) f32, optional */
    Tensor
        dstate; /* add (like state) f32, optional: the gradient of S behind each run, then of S before it */
} DeltaRuleBwd;

typedef struct DeltaSpanFwd {
    DeltaRuleFwd of; /* in  without o and state */
    Tensor
        span; /* out (runs, H Dk (Dv + Dk)) f32: for each head a row of B, one of M, the next of B ... */
} DeltaSpanFwd;

typedef struct DeltaSpanBwd {
    DeltaRuleFwd of; /* in  o: do */
    Tensor span;     /* out as forward left it: C in place of B */
} DeltaSpanBwd;

typedef struct DeltaJoin {
    Tensor span;  /* in  (R runs, H Dk (Dv + Dk)) f32: of all ranks, one behind the other */
    Tensor state; /* out (runs, H Dk Dv) f32 */
    DeltaDims dims;
    int64_t ranks, rank;
    bool back;
} DeltaJoin;

typedef struct DeltaNormFwd {
    Tensor o; /* in  (N, H Dv) act */
    Tensor x; /* in  (N, columns of x) act: z of each head */
    Tensor w; /* in  (1, Dv) f32 */
    Tensor y; /* out (N, H Dv) act */
    DeltaDims dims;
    float eps;
} DeltaNormFwd;

typedef struct DeltaNormBwd {
    DeltaNormFwd of; /* in  y: dy */
    Tensor d_o;      /* out (N, H Dv) act; may be dy */
    Tensor dx;       /* out (N, columns of x) act: z of each head */
    Tensor dw;       /* add (1, Dv) f32, optional */
} DeltaNormBwd;

#define OPS_DELTA
#include "kernels/core/declare.h"
#undef OPS_DELTA

#endif
