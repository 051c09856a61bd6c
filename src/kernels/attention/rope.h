/*
 * rope: rotary position embedding (Su et al., arXiv:2104.09864) together with the assembly of q, k
 * and v for attention. They are one op because both only move the same bytes.
 *
 * A pair (a, b) at position p and frequency i becomes (a cos - b sin, a sin + b cos). cos and sin
 * of p * theta_i are read from tables (P, d/2) f32. So frequency scaling (YaRN), and a factor on
 * both, are up to the code that fills the tables (engine/model/rotary.h). Pairs are neighbours (2i, 2i+1)
 * if `interleaved` (DeepSeek), else (i, i + d/2) (Llama, Qwen).
 *
 * MLA (DeepSeek-V2, arXiv:2405.04434): a query head is [nope | rope]. The part of a key without
 * position comes from kv, which is [k_nope | v] for each head. The rotated part is one vector a
 * token that all heads share. q may be a window [q_col, q_col + H*(dn+dr)) of a wider projection,
 * and the shared key a window [k_col, k_col + dr) of another (or the same).
 *   q_out[h] = [q_nope[h] | rot(q_rope[h])]
 *   k_out[h] = [k_nope[h] | rot(k_rope)]
 *   v_out[h] = v[h]
 * Backward rotates by the opposite angle and sums the shared key's gradient over the heads. Either q and q_out, or all
 * other tensors, may be left out. Without pos nothing is rotated, and no table is read.
 *
 * GQA (arXiv:2305.13245): qkv = [q heads | k heads | v heads] of one fused projection. q and k may
 * be given as tensors of their own instead (heads that were normalised). Then their columns of qkv
 * are not read, and those of dqkv not written. A gated head has d more columns (kernels/attention/gate.h). The first `rotary` columns of a head are rotated,
 * the others are copied. If none is rotated, queries may be scaled by position instead, so that
 * attention over many keys stays sharp (Llama 4; Nakanishi, arXiv:2501.19399):
 *   q_out = q (1 + temper_scale ln(1 + floor((p + 1) / temper_floor)))
 */
#ifndef KERNELS_ATTENTION_ROPE_H
#define KERNELS_ATTENTION_ROPE_H

#include "kernels/attention/rope_dims.h"
#include "kernels/quant/quant.h"

typedef struct RopeMlaFwd {
    Tensor q;        /* in  (N, Wq) act, optional: window of H*(dn+dr) at q_col */
    Tensor kv;       /* in  (N, H*(dn+dv)) act, optional */
    Tensor k_rope;   /* in  (N, Wk) act, window of dr at k_col */
    Tensor pos;      /* in  (N) i32, each < P, optional */
    Tensor cos, sin; /* in  (P, dr/2) f32 */
    Tensor q_out;    /* out (N, H*(dn+dr)) act */
    Tensor k_out;    /* out (N, H*(dn+dr)) act */
    Tensor v_out;    /* out (N, H*dv) act */
    RopeMlaDims dims;
} RopeMlaFwd;

typedef struct RopeMlaBwd {
    Tensor dq_out, dk_out, dv_out; /* in, as above */
    Tensor pos, cos, sin;          /* in */
    Tensor dq;                     /* out (N, Wq) act: only the window is written */
    Tensor dkv;                    /* out (N, H*(dn+dv)) act */
    Tensor dk_rope;                /* out (N, Wk) act: only the window is written; may be dq */
    QuantOut dq_quant, dkv_quant;  /* of dq, if its window is all of it, and of dkv */
    RopeMlaDims dims;
} RopeMlaBwd;

typedef struct RopeGqaFwd {
    Tensor qkv;      /* in  (N, (H+2G)*d) act */
    Tensor q, k;     /* in  (N, H*d), (N, G*d) act, each optional */
    Tensor pos;      /* in  (N) i32 */
    Tensor cos, sin; /* in  (P, dr/2) f32; with dr = 0 of any width */
    Tensor q_out;    /* out (N, H*d) act */
    Tensor k_out;    /* out (N, G*d) act */
    Tensor v_out;    /* out (N, G*d) act */
    RopeGqaDims dims;
} RopeGqaFwd;

typedef struct RopeGqaBwd {
    Tensor dq_out, dk_out, dv_out; /* in, as above */
    Tensor pos, cos, sin;          /* in */
    Tensor dqkv;                   /* out (N, (H+2G)*d) act */
    Tensor dq, dk;                 /* out (N, H*d), (N, G*d) act, each optional */
    QuantOut quant;                /* of dqkv; only without dq and dk */
    RopeGqaDims dims;
} RopeGqaBwd;

#define OPS_ROPE
#include "kernels/core/declare.h"
#undef OPS_ROPE

#endif
