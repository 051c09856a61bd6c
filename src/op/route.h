/*
 * route: which K of E experts a token goes to, with which weights, and the load-balancing loss.
 *
 *   p = softmax(logits)  or  p = sigmoid(logits)
 *   choice: the K largest of p + bias (bias steers load and never touches a weight or a gradient:
 *     arXiv:2408.15664, DeepSeek-V3 arXiv:2412.19437); ties go to the lower expert. With groups > 1
 *     only experts of the `top_groups` best groups may be chosen. A group's score is the sum of its
 *     `group_score_top` largest p + bias (1 in DeepSeek-V2, 2 in V3).
 *   weight_k = scaling * p_k / (sum of the K chosen p + 1e-20)   if normalise
 *   weight_k = scaling * p_k                                     if not
 *
 * Auxiliary loss over groups of tokens g (each sequence, or all of them if aux_per_batch):
 *   aux_loss += aux_scale * sum over g of  E / (K * T_g) * sum over e of  n_ge * P_ge
 * n_ge = tokens of g sent to e, P_ge = mean over g of q_e, q = p / sum(p) (= p for softmax). n_ge
 * is a constant in backward. aux_scale = coefficient / number of groups in the global batch.
 * (DeepSeek-V2 §2.1.4 is the expert-level balance loss per sequence; Switch arXiv:2101.03961 the
 * batch-wise one. Megatron-LM divides by K as we do, Hugging Face's load_balancing_loss_func does
 * not: the same coefficient weighs K times as much there.)
 *
 *   backward: dp from dweight through the chosen entries (and their normalisation) and from the
 *   auxiliary loss through q; then dlogits = J^T dp of softmax or sigmoid.
 */
#ifndef OP_ROUTE_H
#define OP_ROUTE_H

#include "base/tensor.h"

#include <stdbool.h>

typedef enum RouteScore { ROUTE_SOFTMAX, ROUTE_SIGMOID } RouteScore;

typedef struct RouteRule {
    RouteScore score;
    int64_t top_k, groups, top_groups, group_score_top;
    bool normalise;
    float scaling;
    float aux_scale; /* 0: no auxiliary loss */
    bool aux_per_batch;
} RouteRule;

typedef struct RouteFwd {
    Tensor logits;    /* in  (N, E) f32 */
    Tensor bias;      /* in  (1, E) f32, optional */
    Tensor domain;    /* in  (B) i32: which row of load a sequence counts in */
    Tensor target;    /* in  (N) i32, optional: a token below 0 is padding and not counted */
    Tensor index;     /* out (N, K) i32, by falling score + bias */
    Tensor weight;    /* out (N, K) f32 */
    Tensor score;     /* out (N, K) f32, optional: the weights, while `weight` is 1 everywhere */
    Tensor seq_count; /* out (B, E) i32 */
    Tensor load;      /* add (domains, E) i32 */
    Tensor aux_loss;  /* add (1) f32; left alone if score_sum is given */
    Tensor score_sum; /* out (B, E) f32, optional: sum of q over the tokens of a sequence */
    RouteRule rule;
} RouteFwd;

/* The auxiliary loss alone, where the tokens of a group lie on `parts` ranks with as many each: of
 * n_ge summed over them, and of this rank's part of P_ge. */
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
    Tensor dlogits;   /* out (N, E) f32 */
    int64_t parts;    /* as RouteAux has it; 0: 1 */
    RouteRule rule;
} RouteBwd;

#endif
