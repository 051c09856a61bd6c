/*
 * params: the only list of weights. Initialisation, the optimizer, checkpoints, conversion and the
 * planner are loops over it.
 *
 * Names and shapes are those of Hugging Face's files (DeepSeek's for MLA and MoE), (out, in). All parameters lie one
 * after the other in a flat space, at the same offset in each buffer: weights as products read them, f32 gradients, f32
 * main weights, and the optimizer's state buffers (f32 or bf16). With f32 compute the weight buffer *is* the main
 * buffer. With an 8-bit recipe it lacks the buckets that products read in 8 bits alone (ParamBucket.weight). Parameters
 * of one role in one layer (gate and up; q_a and kv_a; the experts) lie without a gap, so that a layer sees them as one
 * fused matrix. Each role starts at a multiple of PARAM_ALIGN elements, and the padding stays zero.
 *
 * A layer has up to five buckets: parameters that every rank holds whole (small ones, which stay
 * in f32), dense ones, of either those that ranks of tp split, and experts. It has these for each rule of
 * the optimizer, and for frozen roles.
 * In the flat space the buckets of the rule with the most state buffers come first, and frozen ones
 * last. So gradients and state buffers need only the beginning of the flat space.
 *
 * ZeRO (arXiv:1910.02054) cuts each bucket into a part for each rank of the sharding group, so that one collective
 * serves a whole bucket. Parts are equal, or, where a rule needs whole matrices, they end between matrices. A sharded
 * buffer holds only this rank's parts, one after the other: the shard space.
 *
 * Buffers without gradient (the router's bias) are in the table too, in a state buffer of their
 * own, and count in no total.
 */
#ifndef ENGINE_MODEL_PARAMS_H
#define ENGINE_MODEL_PARAMS_H

#include "engine/comm/mesh.h"
#include "engine/model/matrix.h"
#include "engine/model/piece.h"
#include "engine/model/spec.h"
#include "kernels/core/op.h"

enum { PARAM_ALIGN = 64, PARAM_NAME_MAX = 96 };

typedef enum ParamBuffer {
    BUF_WEIGHT,
    BUF_GRAD,
    BUF_MAIN,
    BUF_OPTIMIZER, /* the first state buffer of the optimizer's rule; the others follow */
    BUF_AVERAGE = BUF_OPTIMIZER + OPTIMIZER_STATES, /* of main weights, with optimizer.ema */
    BUF_STATE,                                      /* f32, not trained */
    BUF_COUNT
} ParamBuffer;

static inline bool buffer_is_optimizers(ParamBuffer b)
{
    return b >= BUF_OPTIMIZER && b < BUF_AVERAGE;
}
/* Which of the rule's state buffers it is. */
static inline int buffer_state(ParamBuffer b) { return (int)b - (int)BUF_OPTIMIZER; }
/* The name and the limits of what a buffer holds for parameters of this rule. */
BufferDesc buffer_desc(const OptimizerDesc *rule, ParamBuffer b);

/* Which group shards a parameter: none (all ranks hold it whole), the sharding group of dense
 * layers, that of parts, or that of experts. A layer's buckets are in this order. */
typedef enum ShardGroup {
    SHARD_WHOLE,
    SHARD_WHOLE_PART, /* the same of parameters that ranks of tp split */
    SHARD_DENSE,
    SHARD_PART, /* dense parameters that ranks of tp split: ranks with the same part share it */
    SHARD_EXPERT,
    SHARD_GROUPS
} ShardGroup;
static inline bool shard_group_whole(ShardGroup g) { return g <= SHARD_WHOLE_PART; }
static inline bool shard_group_part(ShardGroup g)
{
    return g == SHARD_WHOLE_PART || g == SHARD_PART;
}

/* Where ZeRO divides a bucket among ranks. CUT_ELEMENTS: into equal parts, anywhere. CUT_MATRICES: between parameters,
 * so that each matrix has one owner. Those parts cost about the same to update, and differ in length. */
typedef enum ParamCut { CUT_ELEMENTS, CUT_MATRICES } ParamCut;

/* How data-parallel ranks shard buffers. ZeRO's stage 1 shards main weights and the optimizer's
 * state, stage 2 gradients too, stage 3 weights too. Experts are sharded over fewer ranks. */
typedef struct ParamShards {
    int zero; /* ZeRO's stage, 0 to 3; 0: nothing is sharded */
    /* Ranks of a sharding group: of dense layers, of their parts, of experts; 0 is 1. */
    int64_t dense, part, expert;
    int64_t dense_rank, part_rank, expert_rank; /* this rank's number in each group */
    bool low_reduce;                            /* gradients are added over ranks in bf16 */
    ParamCut cut; /* of all buckets; a rule may ask for CUT_MATRICES itself */
} ParamShards;

/* Does no other rank share anything of a layer with this one? */
static inline bool shards_alone(const ParamShards *s)
{
    return s->dense <= 1 && s->part <= 1 && s->expert <= 1;
}

/* One layer's parameters of one sharding group and one rule. */
typedef struct ParamBucket {
    int layer;
    ShardGroup shard_group;
    const OptimizerDesc *rule; /* NULL: frozen roles */
    bool biases;               /* of experts whose matrices are read in 8 bits */
    int64_t first, n;          /* in the flat space */
    int begin, end;            /* its parameters are among these of the table, its layer's */
    int64_t weight; /* first element in BUF_WEIGHT; -1: products read lasting 8-bit copies alone */
    int64_t ranks, own;  /* parts of the bucket; the number of this rank's part */
    int64_t shard;       /* first element of this rank's part in the shard space */
    const int64_t *cuts; /* CUT_MATRICES: (ranks + 1) first elements of parts; else NULL */
} ParamBucket;

/* The part of a rank: elements [bucket_cut(k, rank), bucket_cut(k, rank + 1)) of the bucket. */
static inline int64_t bucket_cut(const ParamBucket *k, int64_t rank)
{
    return k->cuts != NULL ? k->cuts[rank] : rank * (k->n / k->ranks);
}
static inline int64_t bucket_own_elems(const ParamBucket *k)
{
    return bucket_cut(k, k->own + 1) - bucket_cut(k, k->own);
}
/* Are the weights gathered in ParamMemory.stage, and only there, before they are quantised? Ranks
 * that hold a bucket's main weights whole quantise those. */
static inline bool bucket_staged(const ParamBucket *k) { return k->weight < 0 && k->ranks > 1; }

/* Of a gated delta net, whose state first decays by e^(-A dt) a token (as Mamba-2, arXiv:2405.21060). INIT_DECAY: log(A),
 * A even between 0 and 16. INIT_STEP: x with softplus(x) = dt, whose logarithm is even between those of 0.001 and 0.1. */
typedef enum ParamInit { INIT_NORMAL, INIT_ONE, INIT_ZERO, INIT_DECAY, INIT_STEP } ParamInit;

/* How ranks of tp split a parameter: not at all, by rows (a vector: by elements), or by columns. */
typedef enum ParamSplit { SPLIT_NONE, SPLIT_ROWS, SPLIT_COLS } ParamSplit;

typedef struct Param {
    char name[PARAM_NAME_MAX];
    int layer, expert; /* layer: index into spec->layers; expert -1: none */
    int rank;          /* number of dimensions */
    int64_t dim[4];    /* of this rank's part */
    ParamSplit split;
    int64_t part, parts; /* this rank has one of `parts` equal parts */
    int64_t copies;      /* ranks of tp that hold the same part, where they split others; else 1 */
    int64_t first[BUF_COUNT]; /* first element in the flat space, -1: not in that buffer */
    int bucket;               /* -1: state */
    ParamRole role;
    ParamInit init;
    float init_std;
    const OptimizerDesc *rule; /* NULL: frozen, not trained */
    bool decay;                /* weight decay applies */
    bool keep_f32; /* products read it in f32 whatever the compute type: norms, router */
    bool second;   /* a copy: the layer belongs to another pipeline rank (LayerSpec.rank) */
} Param;

/* Sums of elements (ParamSpaces.copies: of bytes), padding included. */
typedef struct ParamSizes {
    int64_t flat, part, expert; /* the flat space; the share of SHARD_PART, and of experts */
    int64_t whole;              /* the share of buckets that every rank holds whole */
    int64_t layer;              /* the largest layer, without these */
} ParamSizes;

/* By buffer; BUF_STATE has none. */
typedef struct ParamSpaces {
    ParamSizes of[BUF_STATE];
    ParamSizes copies; /* in bytes: what products read (copies_bytes), padding included */
    int64_t scaled;    /* bytes of 8-bit copies, which only weights that are not sharded have */
    int64_t unread[SHARD_GROUPS]; /* elements of the largest bucket without a place in BUF_WEIGHT */
} ParamSpaces;

typedef struct ParamTable {
    Param *at; /* in the arena of params_build */
    int n, cap;
    ParamBucket *bucket; /* by rising layer */
    int n_buckets;
    Matrix *matrix; /* of all layers */
    int n_matrices;
    ParamShards shards;
    bool sharded[BUF_COUNT];  /* this rank holds the shard space of the buffer alone */
    int64_t elems[BUF_COUNT]; /* what this rank holds of each buffer, padding included */
    ParamSpaces spaces;
    int64_t frozen;        /* share of total that is not trained; parts count as whole parameters */
    int64_t total, active; /* active: those that one token uses, embedding and head included */
    int64_t active_matrix; /* active ones that are in a matrix product (no embedding, no norms) */
} ParamTable;

/* Views of one layer's weights and gradients by role; data NULL where the layer has none, and for
 * gradients of frozen roles. */
typedef struct LayerWeights {
    Operand w[ROLE_COUNT];
    Tensor dw[ROLE_COUNT];
    /* 8-bit copies of w, made once a step: as stored, and transposed (engine/model/recipe.h). No data:
     * each product makes its own. */
    Operand scaled[2][ROLE_COUNT];
} LayerWeights;

/* Buffers, in arenas of the engine. `gathered` holds the whole buckets (all but SHARD_WHOLE) of two layers of a
 * sharded buffer: weights gathered from all ranks, gradients not yet reduced. Even layers use its first half, odd ones
 * the second. `low` holds a layer's gradients in the type in which they are reduced. */
typedef struct ParamMemory {
    Tensor buffer[BUF_COUNT]; /* rank 1; BUF_WEIGHT has the type of the copies, the optimizer's
                                 buffers have ModelSpec.optimizer.state, all others f32 */
    Tensor gathered[2];       /* BUF_WEIGHT, BUF_GRAD; data NULL: not sharded */
    Tensor low;
    Tensor stage; /* one bucket, while it is gathered and quantised (bucket_staged) */
} ParamMemory;

/* Makes the table of the layers that pipeline rank `rank` holds. The head's rank holds the
 * embedding's table, too, if it reads it (spec_shares_table). shards NULL: nothing is sharded. */
Status params_build(const ModelSpec *s, int rank, const ParamShards *shards, Arena *a,
                    ParamTable *out);
int64_t param_elems(const Param *p); /* of this rank's part */
/* Of the whole parameter: a dimension, and its elements. */
static inline int64_t param_whole_dim(const Param *p, int i)
{
    const bool split = p->split != SPLIT_NONE && i == (p->split == SPLIT_COLS);
    return p->dim[i] * (split ? p->parts : 1);
}
static inline int64_t param_whole_elems(const Param *p)
{
    return param_elems(p) * (p->split != SPLIT_NONE ? p->parts : 1);
}
/* This rank's part, of the canonical, unsharded tensor. */
Piece param_part(const Param *p);
/* Says in *out how ranks split matrices of this size and role. */
static inline void param_split_range(const Param *p, UpdateRange *out)
{
    out->ranks = p->split == SPLIT_NONE ? 1 : p->parts * p->copies;
    out->copies = p->copies;
    out->cols_split = p->split == SPLIT_COLS;
    out->of_experts = p->expert >= 0;
}
/* The block in a parameter's name ("model.layers.7..."); -1: there is none. */
int64_t param_block(const char *name);

/* ERR_ARG: a pattern of spec->frozen matches no parameter in a table of the whole model, nothing is
 * left to train, or QK-clip would find a layer that is frozen in part. */
Status params_check_frozen(const ModelSpec *s, const ParamTable *t);

/* Sets LayerSpec.frozen and no_backward, or copies them from `like`. A role is frozen if all of its
 * parameters are, including other ranks' experts: so all ranks agree on it. */
Status params_freeze(ModelSpec *s, const ModelSpec *like);
static inline bool role_frozen(const LayerSpec *l, ParamRole role)
{
    return (l->frozen >> role & 1) != 0;
}

/* The ZeRO stage from which on a buffer is sharded. Without copies products read the main weights. */
int params_zero_stage(const ModelSpec *s, ParamBuffer b);

/* Elements of a buffer on one rank if `t` had been built with these shards. Exact but for the
 * padding of buckets, at most PARAM_ALIGN elements more each. CUT_MATRICES: the mean over ranks. */
int64_t params_shard_elems(const ModelSpec *s, const ParamTable *t, ParamBuffer b,
                           const ParamShards *shards);
/* The same for the bytes of the weights that products read, 8-bit copies included. */
int64_t params_copy_bytes(const ModelSpec *s, const ParamTable *t, const ParamShards *shards);
/* Bytes of ParamMemory.gathered, .low and .stage. */
size_t params_gathered_bytes(const ParamTable *t, const ParamShards *shards);
void spaces_add(ParamSpaces *sum, const ParamSpaces *more);
/* Allocates buffers in `run`, those of the optimizer in `states`: all of them if `training`, else weights and
 * state only. */
Status params_alloc(const ModelSpec *s, const ParamTable *t, Arena *run, Arena *states,
                    bool training, ParamMemory *out);
/* Makes one LayerWeights for each layer, in `a`, including weights of other layers that its phases
 * read (layer_weights_of). The views point into `m`. */
Status params_bind(const ModelSpec *s, const ParamTable *t, const ParamMemory *m, Arena *a,
                   LayerWeights **out);

/* Which half of ParamMemory.gathered a layer's buckets lie in. */
static inline int params_half(int layer) { return layer % 2; }

/* The buckets of a layer: [*first, return value), frozen ones last. */
int params_layer(const ParamTable *t, int layer, int *first);
/* bucket_whole: all of a bucket; for a sharded buffer (BUF_WEIGHT or BUF_GRAD) it lies in `gathered`. Weights that
 * only 8-bit copies are made of are the main weights, or the stage. bucket_own: this rank's part, in either layout. */
Tensor bucket_whole(const ParamTable *t, const ParamMemory *m, const ParamBucket *k, ParamBuffer b);
Tensor bucket_own(const ParamTable *t, const ParamMemory *m, const ParamBucket *k, ParamBuffer b);
/* This rank's part of a whole bucket. */
Tensor bucket_part(const ParamBucket *k, Tensor whole);

/* What this rank holds of a parameter in a buffer. */
typedef struct ParamPiece {
    Piece in;  /* of the canonical, unsharded tensor */
    Tensor at; /* (piece_elems) */
} ParamPiece;
/* The rule of a parameter's bucket; NULL: frozen, or not trained. Where only some parameters of a
 * role are frozen, all of them lie in one trained bucket. */
static inline const OptimizerDesc *param_bucket_rule(const ParamTable *t, const Param *p)
{
    return p->bucket < 0 ? NULL : t->bucket[p->bucket].rule;
}
ParamPiece param_piece(const ParamTable *t, const Param *p, const ParamMemory *m, ParamBuffer b);

/* Writes initial main weights of a parameter: n elements from offset i of a piece of it. Each element depends only on
 * the seed, the name and its index, so all meshes start from the same weights. */
void param_fill(const Param *p, uint64_t seed, const Piece *in, int64_t i, int64_t n, float *out);

/* Layers add their parameters with this while params_build runs (layer.h: LayerDesc.params). */
typedef struct ParamAdd {
    ParamRole role;
    int expert;         /* -1: none */
    int64_t rows, cols; /* of the whole parameter; rows 0: a vector of cols */
    ParamInit init;
    bool decay, keep_f32, state;
    ParamSplit split;
    int64_t parts; /* with a split: how many ranks of tp have different parts; 0: all */
} ParamAdd;
typedef struct ParamList ParamList;
Status params_add(ParamList *l, ParamAdd add, const char *name, ...)
    __attribute__((format(printf, 3, 4)));

#endif
