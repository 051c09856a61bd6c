/*
 * route: chooses K of E experts for each token, with their weights, and computes the load-balancing
 * losses. The logits come from a linear op; sorting of tokens by expert is in moe.h.
 *
 *   p = softmax(logits)  or  p = sigmoid(logits)
 *   choice: the K largest p + bias; of equal ones the lower expert. bias steers load and never enters a
 *     weight or a gradient (arXiv:2408.15664, DeepSeek-V3 arXiv:2412.19437). With groups > 1 only
 *     experts of the `top_groups` best groups may be chosen. A group's score is the sum of its
 *     `group_score_top` largest p + bias (1 in DeepSeek-V2, 2 in V3).
 *   weight_k = scaling * p_k / (sum of the K chosen p + 1e-20)   if normalise
 *   weight_k = scaling * p_k                                     if not
 *
 * Auxiliary loss over groups of tokens g (each sequence, or all of them if aux_per_batch):
 *   aux_loss += aux_scale * sum over g of  E / (K * T_g) * sum over e of  n_ge * P_ge
 * n_ge = tokens of g sent to e, P_ge = mean over g of q_e, q = p / sum(p) (= p for softmax). n_ge is a constant in
 * backward. aux_scale = coefficient / number of groups in the global batch. DeepSeek-V2 §2.1.4 has the loss per
 * sequence, Switch (arXiv:2101.03961) per batch. Megatron-LM divides by K as we do. Hugging Face's
 * load_balancing_loss_func does not: there the same coefficient weighs K times as much.
 *
 * z-loss (ST-MoE, arXiv:2202.08906) over all tokens, to keep logits small:
 *   aux_loss += z_scale * sum over n of z_n^2,  z_n = log(sum over e of e^logit_ne)
 * z_scale = coefficient / tokens of the global batch. It is the same for sigmoid scores.
 *
 * Forced balance, for benchmarks: with `pos`, the token at position t takes the experts
 *   (t + k s) mod E,  k = 0 .. K-1,  s = 1 + (t / E) mod (E / K),
 * whatever its logits, bias and groups are, with the weights of those experts. Each E consecutive
 * positions give each expert K tokens. The stride s grows from 1, where experts are neighbours and
 * share a rank, to E / K, where they are as far apart as possible.
 *
 *   backward: dp from dweight through the chosen entries (and their normalisation) and from the
 *   auxiliary loss through q; then dlogits = J^T dp of softmax or sigmoid, and from the z-loss
 *   2 z_scale z softmax(logits).
 */
#ifndef KERNELS_ROUTE_ROUTE_H
#define KERNELS_ROUTE_ROUTE_H

#include "engine/base/tensor.h"

#include <stdbool.h>

typedef enum RouteScore { ROUTE_SOFTMAX, ROUTE_SIGMOID } RouteScore;

typedef struct RouteRule {
    RouteScore score;
    int64_t top_k, groups, top_groups, group_score_top;
    bool normalise;
    float scaling;
    float aux_scale; /* 0: no auxiliary loss */
    bool aux_per_batch;
    float z_scale; /* 0: no z-loss */
} RouteRule;

typedef struct RouteFwd {
    Tensor logits; /* in  (N, E) f32 */
    Tensor bias;   /* in  (1, E) f32, optional */
    Tensor domain; /* in  (B) i32: the row of load in which a sequence is counted */
    Tensor target; /* in  (N) i32, optional: a token below 0 is padding and not counted */
    Tensor pos;    /* in  (N) i32, optional: positions >= 0; if given, balance is forced */
    Tensor index;  /* out (N, K) i32, by falling score + bias */
    Tensor weight; /* out (N, K) f32 */
    Tensor score;  /* out (N, K) f32, optional: gets the weights; `weight` is then 1 everywhere */
    Tensor seq_count; /* out (B, E) i32 */
    Tensor load;      /* add (domains, E) i32 */
    Tensor aux_loss;  /* add (1) f32; of the z-loss alone if score_sum is given */
    Tensor score_sum; /* out (B, E) f32, optional: sum of q over the tokens of a sequence */
    Tensor
        router_z; /* add (1) f32, optional: sum of z_n^2, for metrics; with or without a z-loss */
    RouteRule rule;
} RouteFwd;

/* The auxiliary loss alone, if the tokens of a group are spread evenly over `parts` ranks. It uses
 * n_ge summed over these ranks, and this rank's part of P_ge. */
typedef struct RouteAux {
    Tensor seq_count; /* in  (B, E) i32 */
    Tensor score_sum; /* in  (B, E) f32 */
    Tensor aux_loss;  /* add (1) f32 */
    int64_t tokens;   /* N */
    int64_t parts;
    RouteRule rule;
} RouteAux;

typedef struct RouteBwd {
    Tensor logits;    /* in  (N, E) f32 */
    Tensor index;     /* in  (N, K) i32 */
    Tensor seq_count; /* in  (B, E) i32 */
    Tensor dweight;   /* in  (N, K) f32 */
    Tensor weight;    /* in  (N, K) f32, optional: where it is 0, dweight counts as 0 (dropped) */
    Tensor scale;   /* in  (1) f32, optional: of the auxiliary losses' gradients; a CPU takes it */
    Tensor dlogits; /* out (N, E) f32 */
    int64_t parts;  /* as in RouteAux; 0 means 1 */
    RouteRule rule;
} RouteBwd;

#define OPS_ROUTE
#include "kernels/core/declare.h"
#undef OPS_ROUTE

#ifndef __cplusplus
/* CPU: p (E) = softmax or sigmoid of one token's logits (E). */
void route_scores(RouteScore kind, const float *logits, int64_t E, float *p);
#endif

#endif
