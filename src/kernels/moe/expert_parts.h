/*
 * expert_parts: what a token's choice of experts means where P ranks share each expert (mesh.etp). A part of an
 * expert has an equal run of its columns between both products. SwiGLU works on each column by itself, and the second
 * product sums over them:
 *
 *   expert_e(x) = sum over parts p of part_(e, p)(x)
 *
 * So each part is a narrower expert with the same weight, and a token that takes K of E experts takes K P of E P. The
 * exchange and the products need not know. Ranks q P + p of an EP group have part p of the experts
 * [q, q + 1) * here, `here` of them, and experts on a rank have consecutive numbers:
 *
 *   number of part_(e, p) = (e / here * P + p) * here + e % here
 *
 *   forward   index_p[n][k P + p] = number of part_(index[n][k], p),   weight_p[n][k P + p] = weight[n][k]
 *   backward  dweight[n][k] = sum over p, ascending, of dweight_p[n][k P + p]
 */
#ifndef KERNELS_MOE_EXPERT_PARTS_H
#define KERNELS_MOE_EXPERT_PARTS_H

#include "engine/base/tensor.h"

typedef struct ExpertPartsFwd {
    Tensor index;       /* in  (N, K) i32 */
    Tensor weight;      /* in  (N, K) f32 */
    Tensor part_index;  /* out (N, K P) i32 */
    Tensor part_weight; /* out (N, K P) f32 */
    int64_t here;       /* experts of which a rank has parts */
} ExpertPartsFwd;

typedef struct ExpertPartsBwd {
    Tensor part_dweight; /* in  (N, K P) f32 */
    Tensor dweight;      /* out (N, K) f32 */
} ExpertPartsBwd;

#define OPS_EXPERT_PARTS
#include "kernels/core/declare.h"
#undef OPS_EXPERT_PARTS

#endif
