/*
 * params: the only list of weights. Initialisation, the optimizer, checkpoints, conversion and the
 * planner are loops over it.
 *
 * Names and shapes are those of Hugging Face's files (DeepSeek's for MLA and MoE), (out, in). All
 * trained parameters lie one after the other in a flat space, at the same place for each buffer:
 * weights as compute reads them, f32 gradients, f32 main weights, first and second moments.
 * Parameters of one role in one layer (gate and up; q_a and kv_a; the experts) lie without a gap,
 * so that a layer sees them as one fused matrix; each role starts at a multiple of PARAM_ALIGN
 * elements, and the padding stays zero. With f32 compute the weight buffer *is* the main buffer.
 *
 * A layer's parameters lie in up to three buckets: those that every rank holds whole (what is kept
 * in f32 whatever the compute type: small), dense ones, experts. Ranks that share out (ZeRO,
 * arXiv:1910.02054) cut each bucket in equal parts, so that one collective serves a whole bucket;
 * a buffer that is shared out has only the own parts, one after the other: the shard space.
 *
 * Buffers without gradient (the router's bias) are in the table too, in a state buffer of their
 * own, and count in no total.
 */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include "comm/mesh.h"
#include "model/piece.h"
#include "model/spec.h"
#include "op/op.h"

enum { PARAM_ALIGN = 64, PARAM_NAME_MAX = 96 };

typedef enum ParamBuffer {
    BUF_WEIGHT,
    BUF_GRAD,
    BUF_MAIN,
    BUF_MOMENT1,
    BUF_MOMENT2,
    BUF_STATE, /* f32, not trained */
    BUF_COUNT
} ParamBuffer;

/* Who holds a parameter; the order of the buckets of a layer. */
typedef enum ParamHold { HOLD_WHOLE, HOLD_DENSE, HOLD_EXPERT, HOLD_COUNT } ParamHold;

/* Data-parallel ranks that share out buffers: from stage 1 on main weights and moments, from 2
 * gradients, from 3 weights. Experts are shared out by fewer ranks. */
typedef struct ParamShards {
    int stage;
    int64_t dense, expert;           /* ranks; 0 is 1 */
    int64_t dense_rank, expert_rank; /* this one's places among them */
    bool low_reduce;                 /* gradients are added over ranks in bf16 */
} ParamShards;

/* One layer's parameters of one hold. */
typedef struct ParamBucket {
    int layer;
    ParamHold hold;
    int64_t first, n;   /* in the flat space */
    int64_t ranks, own; /* in so many equal parts, of which this rank has this one */
    int64_t shard;      /* first element of the own part in the shard space */
    bool decay;         /* of all its parameters */
} ParamBucket;

/* What a layer uses a weight for; parameters of one role form one fused matrix. */
typedef enum ParamRole {
    ROLE_TABLE, /* embedding (V, D) */
    ROLE_NORM,
    ROLE_Q,      /* mla without q rank: (H*dqk, D) */
    ROLE_A,      /* mla: [q_a |] kv_a down-projections; gqa: q, k, v */
    ROLE_Q_NORM, /* mla: of the latent; gqa: of each head */
    ROLE_KV_NORM,
    ROLE_Q_B,
    ROLE_KV_B,
    ROLE_O,
    ROLE_GATE_UP, /* (2F, D) */
    ROLE_DOWN,    /* (D, F) */
    ROLE_ROUTER,
    ROLE_ROUTER_BIAS,
    ROLE_EXPERT_GATE_UP, /* (E, 2F, D) */
    ROLE_EXPERT_DOWN,    /* (E, D, F) */
    ROLE_HEAD,
    ROLE_COUNT
} ParamRole;

typedef enum ParamInit { INIT_NORMAL, INIT_ONE, INIT_ZERO } ParamInit;

typedef struct Param {
    char name[PARAM_NAME_MAX];
    int layer, expert, rank; /* index into spec->layers; expert -1: none */
    int64_t dim[4];
    int64_t first[BUF_COUNT]; /* first element in the flat space, -1: not in that buffer */
    int bucket;               /* -1: state */
    ParamRole role;
    ParamInit init;
    float init_std;
    bool decay;    /* weight decay applies */
    bool keep_f32; /* computed with in f32 whatever the compute type: norms, router */
    bool second;   /* another stage holds it, too, and is the layer's own (LayerSpec.rank) */
} Param;

typedef struct ParamTable {
    Param *at; /* in the arena of params_build */
    int n, cap;
    ParamBucket *bucket; /* by rising layer */
    int n_buckets;
    ParamShards shards;
    bool shared_out[BUF_COUNT]; /* only the shard space is held of it */
    int64_t elems[BUF_COUNT];   /* held of each buffer, padding included */
    int64_t flat_elems;         /* of the flat space */
    int64_t expert_elems;       /* of the flat space: experts' */
    int64_t whole_elems;        /* and those that every rank holds */
    int64_t layer_elems;        /* of the largest layer, all but those */
    int64_t total, active; /* parameters; active: without the experts a token does not take, with
                              embedding and head */
    int64_t active_matrix; /* active ones that are multiplied with (no embedding, no norms) */
} ParamTable;

/* Views of one layer's weights and gradients by role; data NULL where the layer has none. */
typedef struct LayerWeights {
    Tensor w[ROLE_COUNT], dw[ROLE_COUNT];
} LayerWeights;

/* Buffers, in arenas of the engine. `under_way`: of weights and gradients that are shared out, two
 * layers' whole buckets (all but HOLD_WHOLE): even layers in the first half, odd ones in the
 * second. `low`: a layer's gradients in the type in which they are added. */
typedef struct ParamMemory {
    Tensor buffer[BUF_COUNT]; /* rank 1; BUF_WEIGHT has the compute type, all others f32 */
    Tensor under_way[2];      /* BUF_WEIGHT, BUF_GRAD; data NULL: not shared out */
    Tensor low;
} ParamMemory;

/* Of the layers that pipeline rank `rank` holds; a tied table also where the head is. shards NULL:
 * this rank has all. */
Status params_build(const ModelSpec *s, int rank, const ParamShards *shards, Arena *a,
                    ParamTable *out);
int64_t param_elems(const Param *p);

/* Elements of a buffer on one rank, had `t` been built with these shards: exact but for the padding
 * of buckets, which makes it at most PARAM_ALIGN elements a bucket more. */
int64_t params_shard_elems(const ModelSpec *s, const ParamTable *t, ParamBuffer b,
                           const ParamShards *shards);
/* Bytes under way for each element of the largest layer. */
size_t params_under_way_bytes(const ModelSpec *s, const ParamShards *shards);
/* Buffers in `run`, all of them if `training`, else weights and state only. */
Status params_alloc(const ModelSpec *s, const ParamTable *t, Arena *run, bool training,
                    ParamMemory *out);
/* One LayerWeights a layer, in `a`. The tied head's weight is the embedding's. */
Status params_bind(const ModelSpec *s, const ParamTable *t, const ParamMemory *m, Arena *a,
                   LayerWeights **out);

/* Which of the two places under way a layer's buckets lie in. */
static inline int params_place(int layer) { return layer % 2; }

/* The buckets of a layer: [*first, return value). */
int params_layer(const ParamTable *t, int layer, int *first);
/* A bucket in a buffer that is not shared out, or the own part of one wherever it is; and whole
 * under way (b: BUF_WEIGHT or BUF_GRAD). */
Tensor bucket_whole(const ParamTable *t, const ParamMemory *m, const ParamBucket *k, ParamBuffer b);
Tensor bucket_own(const ParamTable *t, const ParamMemory *m, const ParamBucket *k, ParamBuffer b);
/* The own part of a whole bucket. */
Tensor bucket_part(const ParamBucket *k, Tensor whole);

/* What this rank holds of a parameter in a buffer. */
typedef struct ParamPiece {
    Piece in;  /* of the canonical, unsharded tensor */
    Tensor at; /* (piece_elems) */
} ParamPiece;
ParamPiece param_piece(const ParamTable *t, const Param *p, const ParamMemory *m, ParamBuffer b);

/* Initial main weights of a parameter: the n from place i on in a piece of it. Each is a function
 * of the seed, the name and the element alone. */
void param_fill(const Param *p, uint64_t seed, const Piece *in, int64_t i, int64_t n, float *out);

/* The elements of a parameter in a buffer that is not shared out. */
Tensor param_view(const Param *p, const ParamMemory *m, ParamBuffer b);

/* Layers add their parameters with this while params_build runs (layer.h: LayerDesc.params). */
typedef struct ParamAdd {
    ParamRole role;
    int expert;         /* -1: none */
    int64_t rows, cols; /* rows 0: a vector of cols */
    ParamInit init;
    bool decay, keep_f32, state;
} ParamAdd;
typedef struct ParamList ParamList;
Status params_add(ParamList *l, ParamAdd add, const char *name, ...)
    __attribute__((format(printf, 3, 4)));

#endif
