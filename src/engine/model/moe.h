/* moe: the tensors of a MoE layer for one micro-batch, grouped by purpose, for moe.c and
 * moe_experts.c; and its parameters (moe_params.c). Private to these files: no other layer and no
 * engine reads this state.
 *
 * N tokens, K experts a token, E experts, R routed rows, D and F widths (docs/glossary.md). "Always
 * kept" means in `keep` even under RECOMPUTE_LAYER. */
#ifndef ENGINE_MODEL_MOE_H
#define ENGINE_MODEL_MOE_H

#include "engine/model/mlp.h"
#include "kernels/exchange/exchange.h"

/* The choice of experts. All but score_sum is always kept: a second decision could differ, because
 * recomputed logits may round differently. */
typedef struct MoeRouting {
    Tensor logits, index, weight; /* (N, E) f32, (N, K) i32, (N, K) f32 */
    Tensor seq_count;             /* (B, E) i32: tokens by sequence, for the auxiliary loss */
    Tensor score;     /* with score_input: (N, K) routing weights, while `weight` is 1 */
    Tensor score_sum; /* (B, E), ring: from route to dispatch, where ranks add up their counts */
} MoeRouting;

/* The shared experts, and their gate if they have one. */
typedef struct MoeShared {
    MlpState mlp;
    Tensor gate, gated;   /* logits of the gate (N, 1); the MLP's output before the gate (N, D) */
    Tensor out;           /* ring: (N, D) */
    Tensor dgate, dgated; /* backward: gradients of gate and gated */
    Tensor dy;            /* ring, backward */
    Operand y;            /* ring, backward: columns of y */
} MoeShared;

/* The order of the routed rows: always kept. */
typedef struct MoeOrder {
    Tensor offsets; /* (1, E of this rank + 1): first row of each expert; last: all rows */
    Tensor row_token,
        row_slot;    /* (R): a row's token; its slot, token * K + k (kernels/moe/moe.h) */
    Tensor slot_row; /* (tokens, K): the inverse; -1: no row here */
    Tensor begin;    /* (1) i32: in a pool the layer's first row */
} MoeOrder;

/* How tokens reach the ranks of their experts. */
typedef struct MoeTravel {
    Tensor index,
        weight; /* the choice in parts of experts (kernels/moe/expert_parts.h): (N, K etp), scratch;
                           * without parts the choice itself */
    Operand sent;        /* what goes to experts: y, or y scaled by its weight; 8-bit in ring or, if
                          * it travels, in scratch */
    Tensor offset;       /* each token's row in the block for each rank or host: always kept */
    Tensor count;        /* tokens that go to each rank, in compact exchanges: always kept */
    Tensor first;        /* compact: their first row at each receiver, then how many rows this
                          * rank received: always kept */
    ExchangeRelay relay; /* hierarchical: `offset` of rows that this rank passes on: always kept */
    Tensor dy, dweight;  /* ring, backward: gradients that came back to the tokens' rank */
} MoeTravel;

/* The routed experts of this rank. */
typedef struct MoeExperts {
    Operand x;            /* the rows they read: this rank's tokens if there is one EP rank, else
                               * received ones */
    Tensor index, weight; /* their routing */
    Operand pre;          /* (R, 2F) pre-activations; with a pool: the whole pool */
    Tensor out;           /* ring: (R, D) */
    Operand dout;         /* backward: the gradient of h_out for each row of x */
    Operand wact, dpre;   /* ring, backward: for weight gradients; 8-bit ones are columns */
    Tensor dweight, dx;   /* ring, backward */
} MoeExperts;

typedef struct MoeState {
    NormState norm;
    MoeRouting route;
    MoeTravel travel;
    MoeOrder order;
    MoeExperts experts;
    MoeShared shared;
} MoeState;

/* moe.c, for moe_experts.c. Are the experts spread over ranks? Does the layer keep its pre-activations in
 * the pool of its slot? The routed rows of this rank's experts. */
bool moe_spread(const LayerRun *r);
bool moe_pooled(const LayerRun *r);
Rows moe_routed_rows(const LayerRun *r);
/* Parts of experts that a token takes: K on each rank of etp. */
int64_t moe_parts_taken(const LayerRun *r);
PhaseFn moe_experts_forward, moe_experts_backward_input, moe_experts_backward_weight;

/* LayerDesc.params of a MoE layer. */
Status moe_params(const ModelSpec *s, const LayerSpec *l, ParamList *out);

#endif
