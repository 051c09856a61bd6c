/*
 * attention (private to model/): the interface between attention's core and its kinds.
 *
 * A kind (attention_mla.c, attention_gqa.c) makes queries, keys and values of y = norm(h) and takes
 * their gradients back; the core (attention.c) attends, one block of keys at a time. A block is the
 * keys and values of one context rank: block 0 is this rank's own, block 1 the next one's, and so
 * on. Without context ranks there is block 0 alone.
 */
#ifndef MODEL_ATTENTION_H
#define MODEL_ATTENTION_H

#include "model/layer.h"

/* Tensors of forward lie in keep, or in ring if backward makes them again; gradients in ring. */
typedef struct AttentionState {
    NormState norm;
    NormState q_norm, kv_norm; /* mla: of the latents; gqa: of the heads of q and of k */
    Tensor a;                  /* the projection of y by ROLE_A, which both kinds have */
    Tensor q, k, v;    /* (N, heads * width); k, v: block 0's; over ranks mla's current block's */
    Tensor o, lse;     /* lse: (B, H, T, 1) */
    Tensor dq, dk, dv; /* from core to qkv; dk, dv: the current block's */
    Tensor da;         /* gradient of a: from qkv's backward_input to its backward_weight */
    union {
        struct {
            Tensor dq_raw, dkv_raw; /* gradients before rope, like da */
            Tensor kv;              /* over ranks: a block's, before k and v are made of it */
            /* For each context rank (N, kv_rank) normalised latents, then (N, rope) rotated keys.
             * dlatents has the same layout; its own part is the full sum after kv_gather's
             * backward. */
            Tensor latents, dlatents;
        } mla;
        struct {
            /* Over ranks keys and values are one tensor (2N, G*d): kv is this rank's; guest are two
             * places in turn for other ranks'; dkv are the gradients. */
            Tensor kv, guest[2], dkv[2];
        } gqa;
    };
} AttentionState;

/* A kind of attention: how it makes q, k and v of y, and takes their gradients back. */
typedef struct AttentionKindDesc {
    Status (*params)(const ModelSpec *s, const LayerSpec *l, ParamList *out);
    /* Makes q, k and v of s->norm.y. Over ranks mla makes k and v later, block by block. */
    PhaseFn *forward;
    /* In backward: makes what forward did not keep once more, in the ring. */
    PhaseFn *recompute;
    /* Makes da and dy, the gradient of y, of dq, dk and dv. */
    Status (*backward)(LayerRun *r, Tensor dy);
    /* The gradients of all weights but those of ROLE_A. */
    PhaseFn *backward_weight;

    /* The rest is for sequences over ranks. */
    PhaseFn *gather, *gather_backward; /* before the first block; after the last */
    /* Take memory for blocks; backward's for dk and dv, too. */
    PhaseFn *open_forward, *open_backward;
    /* Sets *k and *v to those of a block. */
    Status (*block)(LayerRun *r, int64_t block, Tensor *k, Tensor *v);
    /* Called when a block's dk and dv are complete on this rank; sends or adds them on. */
    Status (*block_backward)(LayerRun *r, int64_t block);
    /* A block's gradients go from rank to rank with it; each adds its part. */
    bool gradients_travel;
} AttentionKindDesc;

extern const AttentionKindDesc attention_mla, attention_gqa;

/* For the entries in which a kind has nothing to do. */
Status attention_nothing(LayerRun *r);

const AttentionSpec *attention_spec(const LayerRun *r);
/* Do other ranks have parts of these sequences? Not with a cache: generation runs on one rank. */
bool attention_over_ranks(const LayerRun *r);

/* Room for keys and values of this rank, or their gradients; in the cache if there is one. */
Status attention_new_kv(LayerRun *r, Arena *arena, Tensor *k, Tensor *v);

/* Adds self_attn.NAME.weight to the table: a matrix, which decays, or with rows 0 a norm's weights.
 * attention_bias adds self_attn.NAME.bias. */
Status attention_param(ParamList *out, const LayerSpec *l, ParamRole role, int64_t rows,
                       int64_t cols, const char *name);
Status attention_bias(ParamList *out, const LayerSpec *l, ParamRole role, int64_t n,
                      const char *name);

/* out = W x + b in `arena`;  dx = W^T dy + residual (optional);  dW += dy^T x, db += dy summed up.
 * b: if the model has one. */
Status attention_project(LayerRun *r, Tensor x, ParamRole role, Arena *arena, Tensor *out);
Status attention_project_backward(LayerRun *r, Tensor dy, ParamRole role, Tensor residual,
                                  Tensor dx);
Status attention_project_weight(LayerRun *r, Tensor dy, Tensor x, ParamRole role);

/* n->y = the norm of a window of s->a that begins at column col, head by head (op/rmsnorm.h). The
 * backward writes the gradient into the same window of s->da. */
Status attention_norm(LayerRun *r, ParamRole role, int64_t col, const NormState *n);
Status attention_norm_backward(LayerRun *r, ParamRole role, int64_t col, const NormState *n,
                               Tensor dy);

#endif
