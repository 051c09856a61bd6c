/* moe: what a MoE layer keeps of one micro-batch, in groups of one purpose, for moe.c; and its
 * parameters (moe_params.c). No other layer and no engine looks in here. */
#ifndef MODEL_MOE_H
#define MODEL_MOE_H

#include "model/layer.h"
#include "op/exchange.h"

/* The choice of experts. All but score_sum is always kept: a second decision could differ. */
typedef struct MoeRouting {
    Tensor logits, index, weight, seq_count;
    Tensor score;     /* with score_input: routing weights, while `weight` is 1 */
    Tensor score_sum; /* ring, from route to dispatch, if ranks add up their counts */
} MoeRouting;

/* The shared experts, and their gate if they have one. */
typedef struct MoeShared {
    MlpState mlp;
    Tensor gate, gated;   /* logits of the gate (N, 1), and what they weigh (N, D) */
    Tensor out;           /* ring: (N, D) */
    Tensor dgate, dgated; /* backward: gradients of gate and gated */
    Tensor dy;            /* ring, backward */
} MoeShared;

/* The order of the routed rows: always kept. */
typedef struct MoeOrder {
    Tensor offsets, row_token, row_slot, slot_row;
    Tensor begin; /* (1) i32: in a pool the layer's first row */
} MoeOrder;

/* How tokens reach the ranks of their experts. */
typedef struct MoeTravel {
    Tensor sent;         /* ring: what goes to experts: y, or y scaled by its weight */
    Tensor place;        /* each token's row in what goes to each rank or host: always kept */
    Tensor count;        /* tokens that go to each rank, if anybody reads it: always kept */
    Tensor first;        /* where they lie there, if without gaps; how many came: always kept */
    ExchangeRelay relay; /* the same of the rows that this rank passes on: always kept */
    Tensor dy, dweight;  /* ring, backward: gradients that came back to the tokens' rank */
} MoeTravel;

/* The routed experts of this rank. */
typedef struct MoeExperts {
    Tensor x, index, weight;  /* rows that they read, with their routing: y's own on one rank,
                                 received ones if experts are spread */
    Tensor pre;               /* (R, 2F) pre-activations; in a pool all of it */
    Tensor out;               /* ring: (R, D) */
    Tensor dout;              /* backward: the gradient of h_out for each row of x */
    Tensor wact, dweight, dx; /* ring, backward */
} MoeExperts;

typedef struct MoeState {
    NormState norm;
    MoeRouting route;
    MoeTravel travel;
    MoeOrder order;
    MoeExperts experts;
    MoeShared shared;
} MoeState;

/* LayerDesc.params of a MoE layer. */
Status moe_params(const ModelSpec *s, const LayerSpec *l, ParamList *out);

#endif
