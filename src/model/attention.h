/*
 * attention (private to model/): what the kinds of attention share with their core.
 *
 * A kind (attention_mla.c, attention_gqa.c) makes queries, keys and values of y = norm(h) and takes
 * their gradients back; the core (attention.c) attends, one block of keys at a time. A block is what
 * one rank of a sequence has: block 0 this rank's own, block 1 the next rank's, and so on. Without
 * context ranks there is block 0 alone.
 */
#ifndef MODEL_ATTENTION_H
#define MODEL_ATTENTION_H

#include "model/layer.h"

/* What forward keeps lies in keep or, if backward makes it again, in ring; gradients in ring. */
typedef struct AttentionState {
    NormState norm;
    NormState q_norm, kv_norm; /* mla: of the latents; gqa: of the heads of q and of k */
    Tensor a;                  /* the projection of y by ROLE_A, which both kinds have */
    Tensor q, k, v;            /* rows (N, heads * width); k, v: of block 0, or mla's of any */
    Tensor o, lse;             /* lse: (B, H, T, 1) */
    Tensor dq, dk, dv;         /* from core to qkv; dk, dv: of the block whose turn it is */
    Tensor da;                 /* gradient of a: from qkv's backward_input to its backward_weight */
    union {
        struct {
            Tensor dq_raw, dkv_raw; /* gradients before rope, like da */
            Tensor kv;              /* over ranks: a block's, before k and v are made of it */
            /* Of each context rank (N, kv_rank) latents, normalised, then (N, rope) keys, turned;
             * dlatents alike: this rank's part is whole after kv_gather. */
            Tensor latents, dlatents;
        } mla;
        struct {
            /* Over ranks keys and values are one tensor, (2N, G*d): own, guests that take turns, and
             * gradients likewise. */
            Tensor kv, guest[2], dkv[2];
        } gqa;
    };
} AttentionState;

/* A kind of attention: how q, k and v come out of y, and their gradients go back. */
typedef struct AttentionKindDesc {
    Status (*params)(const ModelSpec *s, const LayerSpec *l, ParamList *out);
    /* q, k and v of s->norm.y; over ranks mla's k and v come later, by block. */
    PhaseFn *forward;
    /* In backward: what forward did not keep once more, into the ring. */
    PhaseFn *again;
    /* From dq, dk and dv: da and dy, the gradient of y. */
    Status (*backward)(LayerRun *r, Tensor dy);
    /* Gradients of all weights but those of ROLE_A. */
    PhaseFn *backward_weight;

    /* The rest is for sequences over ranks. */
    PhaseFn *gather, *gather_backward; /* before the first block, and after the last in backward */
    PhaseFn *open_forward, *open_backward; /* room for blocks; in backward for dk and dv, too */
    /* Sets *k and *v to those of a block. */
    Status (*block)(LayerRun *r, int64_t block, Tensor *k, Tensor *v);
    /* A block's dk and dv are there: they go where they belong. */
    Status (*block_backward)(LayerRun *r, int64_t block);
    bool gradients_travel; /* with their block from rank to rank, and each rank adds to them */
} AttentionKindDesc;

extern const AttentionKindDesc attention_mla, attention_gqa;

/* For what a kind has nothing to do in. */
Status attention_nothing(LayerRun *r);

const AttentionSpec *attention_spec(const LayerRun *r);
/* Do other ranks have parts of these sequences? With a cache one rank generates. */
bool attention_over_ranks(const LayerRun *r);
/* The context rank whose block it is. */
int64_t attention_rank(const LayerRun *r, int64_t block);
/* COMM_ALL_GATHER, COMM_REDUCE_SCATTER or COMM_SHIFT over the context ranks. */
Status attention_collect(LayerRun *r, OpComm kind, Tensor in, Tensor out);

/* Room for keys and values of this rank's tokens, or their gradients; in the cache if there is one. */
Status attention_new_kv(LayerRun *r, Arena *arena, Tensor *k, Tensor *v);

/* A matrix (decays) or, with rows 0, a norm's weights: self_attn.NAME.weight. */
Status attention_param(ParamList *out, const LayerSpec *l, ParamRole role, int64_t rows,
                       int64_t cols, const char *name);

/* out = W x in `arena`;  dx = W^T dy + residual (optional);  dW += dy^T x. */
Status attention_project(LayerRun *r, Tensor x, ParamRole role, Arena *arena, Tensor *out);
Status attention_project_backward(LayerRun *r, Tensor dy, ParamRole role, Tensor residual,
                                  Tensor dx);
Status attention_project_weight(LayerRun *r, Tensor dy, Tensor x, ParamRole role);

/* n->y = norm of the window of s->a at col, head by head (op/rmsnorm.h); back into that window of
 * s->da. */
Status attention_norm(LayerRun *r, ParamRole role, int64_t col, const NormState *n);
Status attention_norm_backward(LayerRun *r, ParamRole role, int64_t col, const NormState *n,
                               Tensor dy);

#endif
