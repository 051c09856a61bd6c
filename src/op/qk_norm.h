/*
 * qk_norm: RMSNorm of each head of queries and keys by itself, before they are rotated:
 *     y = x * rstd * w,  rstd = (mean over the head of x^2 + eps)^-1/2
 * with weights (d) that the heads of q share, and others for those of k (Qwen3, arXiv:2505.09388;
 * Henry et al., arXiv:2010.04245), or without (Llama 4, which scales rotated heads: the same, since
 * a rotation keeps the length). v goes through as it is.
 *
 * A plan knows what it costs and keeps; nothing computes it yet, on any backend.
 */
#ifndef OP_QK_NORM_H
#define OP_QK_NORM_H

#include "base/tensor.h"

typedef struct QkNormDims {
    int64_t heads, kv_heads, head; /* H, G, width d of a head */
} QkNormDims;

typedef struct QkNormFwd {
    Tensor qkv;    /* in  (N, (H+2G)*d) act */
    Tensor wq, wk; /* in  (1, d) f32, both or neither */
    Tensor y;      /* out (N, (H+2G)*d) act */
    Tensor rstd;   /* out (N, H+G) f32 */
    QkNormDims dims;
    float eps;
} QkNormFwd;

typedef struct QkNormBwd {
    Tensor dy;       /* in  (N, (H+2G)*d) act */
    Tensor qkv;      /* in  (N, (H+2G)*d) act, of forward */
    Tensor wq, wk;   /* in  (1, d) f32, as in forward */
    Tensor rstd;     /* in  (N, H+G) f32 */
    Tensor dqkv;     /* out (N, (H+2G)*d) act; may be dy */
    Tensor dwq, dwk; /* add (1, d) f32, with wq and wk */
    QkNormDims dims;
} QkNormBwd;

#endif
