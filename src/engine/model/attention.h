/*
 * attention (private to model/): the interface between attention's core and its kinds.
 *
 * A kind (attention_mla.c, attention_gqa.c) makes queries, keys and values of y = norm(h) and takes
 * their gradients back; the core (attention.c) attends, one block of keys at a time. A block is the
 * keys and values of one context rank: block 0 is this rank's own, block 1 the next one's, and so
 * on. Without context ranks there is block 0 alone.
 */
#ifndef ENGINE_MODEL_ATTENTION_H
#define ENGINE_MODEL_ATTENTION_H

#include "engine/model/stream.h"

/* Forward's tensors live in keep, or in ring where backward recomputes them. Gradients live in ring. */
typedef struct AttentionState {
    StreamState stream;
    NormState q_norm, kv_norm; /* mla: norms of the latents; gqa: norms of the heads of q and k */
    Tensor a;                  /* y projected by ROLE_A, which both kinds have */
    Tensor q, k, v; /* (N, heads * width); k, v of block 0, or of mla's current block over ranks */
    Tensor o, lse;  /* lse: (B, H, T, 1) */
    Tensor d_o;     /* in ring if the layer is gated: qkv's backward_input reads it */
    Tensor dq, dk, dv; /* core makes them, qkv reads them; dk, dv of the current block */
    Activation da; /* gradient of a: qkv's backward_input makes it, its backward_weight reads it */
    Operand dout;  /* ring, backward: columns of dh_out */
    union {
        struct {
            Activation dq_raw, dkv_raw; /* gradients before rope, like da */
            Tensor kv; /* over ranks: a block's W_KVB product, before rope splits it */
            /* For each context rank (N, kv_rank) normalised latents, then (N, rope) rotated keys. dlatents has the
             * same layout. After kv_gather's backward this rank's part of it is the sum over all ranks. */
            Tensor latents, dlatents;
        } mla;
        struct {
            /* Over ranks keys and values are one tensor (2N, G*d), so that one message carries
             * both. kv is this rank's. guest holds other ranks' blocks in two buffers that
             * alternate, and dkv their gradients likewise. */
            Tensor kv, guest[2], dkv[2];
        } gqa;
    };
} AttentionState;

/* A kind of attention: how it makes q, k and v from y, and takes their gradients back to y. */
typedef struct AttentionKindDesc {
    ParamRole keys; /* the role of the matrix that makes keys */
    QkRows (*clips)(const AttentionSpec *a, ParamRole role); /* LayerDesc.clips */
    Status (*params)(const ModelSpec *s, const LayerSpec *l, ParamList *out);
    /* Where `a` lies if it is made in two phases (stream_begins). */
    Arena *(*arena_of_a)(const LayerRun *r);
    /* Makes q, k and v from the rows of s->norm.y. Over ranks mla makes k and v later, block by block. */
    PhaseFn *forward;
    /* In backward: makes in the ring what forward did not keep. */
    PhaseFn *recompute;
    /* Makes da and dy (the gradient of y) from dq, dk and dv. */
    Status (*backward)(LayerRun *r, Tensor dy);
    /* Adds to the gradients of all weights except ROLE_A's, which attention.c does. */
    PhaseFn *backward_weight;

    /* The rest is called only where ranks share sequences (mesh.cp). */
    PhaseFn *gather, *gather_backward; /* before the first block; after the last */
    /* Allocate memory for blocks; the one for backward also allocates dk and dv. */
    PhaseFn *open_forward, *open_backward;
    /* Sets *k and *v to those of a block. */
    Status (*block)(LayerRun *r, int64_t block, Tensor *k, Tensor *v);
    /* Called when a block's dk and dv are complete on this rank; sends or adds them on. */
    Status (*block_backward)(LayerRun *r, int64_t block);
    /* A block's gradients travel with it from rank to rank, and each rank adds its part. */
    bool gradients_travel;
} AttentionKindDesc;

extern const AttentionKindDesc attention_mla, attention_gqa;

/* For entries of AttentionKindDesc where a kind has nothing to do. */
Status attention_nothing(LayerRun *r);

const AttentionSpec *attention_spec(const LayerRun *r);
/* gqa: rows of the projection that make queries, and their gates. */
static inline int64_t attention_query_cols(const AttentionSpec *a)
{
    return a->heads * a->head * (a->gated ? 2 : 1);
}
/* Do other ranks have parts of these sequences? Not with a cache: generation runs on one rank. */
bool attention_over_ranks(const LayerRun *r);

/* Allocates keys and values of this rank's tokens, or their gradients. With a cache they are its next rows. */
Status attention_new_kv(LayerRun *r, Arena *arena, Tensor *k, Tensor *v);

/* Adds self_attn.NAME.weight to the table: a matrix, which has weight decay, or with rows 0 the weights of a norm; with
 * cols 0 self_attn.NAME.bias. `parts` ranks of tp have different rows; 0: every rank has all. */
Status attention_param(ParamList *out, const LayerSpec *l, ParamRole role, int64_t rows,
                       int64_t cols, int64_t parts, const char *name);

/* out = W x + b in `arena`, from rows of x;  dW += dy^T x from columns, db += dy summed up. b: if the
 * model has one; only then dy is read. */
Status attention_project(LayerRun *r, Operand x, ParamRole role, Arena *arena, Tensor *out);
/* s->a = W_A y + b of all tokens in `arena`; or where stream_begins has made those of this rank's rows, the others. */
Status attention_make_a(LayerRun *r, Arena *arena);

/* n->y = the norm of a window of s->a that begins at column col, head by head (kernels/norm/rmsnorm.h). The
 * backward writes the gradient into the same window of s->da. */
Status attention_norm(LayerRun *r, ParamRole role, int64_t col, const NormState *n);
Status attention_norm_backward(LayerRun *r, ParamRole role, int64_t col, const NormState *n,
                               Tensor dy);

#endif
