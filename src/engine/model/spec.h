/*
 * spec: the network as data: a list of layers from the embedding to the head. Its parameters are in
 * params.h, what a layer computes in layer.h.
 *
 * A block of the literature ("layer 7") is a range of layers here, attention and MLP or MoE,
 * because a layer is the unit that a schedule moves and a recompute set names. Layers read the
 * residual stream h (N, D) and write the next one; the first only writes one, the last only reads
 * one.
 */
#ifndef ENGINE_MODEL_SPEC_H
#define ENGINE_MODEL_SPEC_H

#include "engine/comm/mesh.h"
#include "engine/model/matrix.h"
#include "engine/model/rotary.h"
#include "kernels/core/kinds.h"
#include "kernels/delta/delta.h"
#include "kernels/moe/glu.h"
#include "kernels/route/route.h"

typedef enum LayerKind {
#define LAYER(KIND, name) LAYER_##KIND,
#include "engine/model/layer.def"
#undef LAYER
    LAYER_KINDS
} LayerKind;

struct ExchangeShape; /* kernels/exchange/exchange.h */

/* What a layer recomputes in backward instead of keeping it. Routing and counts are always kept. */
typedef enum RecomputePiece {
    RECOMPUTE_NORM = 1,      /* normalised rows */
    RECOMPUTE_ATTN_UP = 2,   /* q, k, v from the latents (gqa: from the normalised rows) */
    RECOMPUTE_ACT = 4,       /* SwiGLU outputs of dense and shared MLPs (of experts: never kept) */
    RECOMPUTE_SHARED = 8,    /* the shared experts' pre-activations */
    RECOMPUTE_EXCHANGE = 16, /* rows received from other ranks, by exchanging again */
    RECOMPUTE_LAYER = 32,    /* all but the layer's input */
    /* of other trainers, for plans: attention between its projections, dense MLPs whole, MoE layers whole */
    RECOMPUTE_CORE_ATTN = 64,
    RECOMPUTE_MLP = 128,
    RECOMPUTE_MOE = 256
} RecomputePiece;

typedef struct AttentionSpec {
    int kind; /* ATTENTION_MLA or ATTENTION_GQA */
    /* heads, kv_heads: those of one rank of tp. head: a head's width (gqa); mla: kv_heads == heads */
    int64_t heads, kv_heads, head;
    int64_t q_rank, kv_rank; /* mla: widths of the latents; q_rank 0: queries have none */
    int64_t nope, rope, v;   /* mla: a head's columns without position, rotated, of values */
    int64_t rotary;          /* gqa: columns of a head that are rotated, from the first on */
    int64_t temper_floor;    /* gqa: RopeGqaDims; 0: queries keep their length */
    float temper_scale;
    int qk_norm;    /* gqa: norm of q and k: QK_NORM_NONE, _RMS, _L2 of each head, _WIDTH of all */
    float norm_eps; /* of mla's latents, of gqa's heads */
    float scale;    /* on scores */
    bool bias, out_bias; /* of the projections before (mla: down) and after attention */
    /* A token sees its own key and those before it: `window` in all, of its chunk of `chunk` tokens
     * alone; 0: without such a limit. */
    int64_t window, chunk;
    bool sinks;                      /* each head has a trained logit in its softmax */
    bool gated;                      /* gqa: of each head's output (kernels/attention/gate.h) */
    bool interleaved, document_mask; /* rope rotates neighbouring columns; documents are separate */
    AttentionKernel kernel;
} AttentionSpec;

typedef struct MoeSpec {
    int64_t experts, ffn, shared_ffn; /* ffn: of one rank of etp; shared_ffn 0: no shared expert */
    RouteRule rule;                   /* aux_scale is set for the run's batch: spec_build */
    bool aux_global; /* each group of the auxiliary loss has tokens of all data-parallel ranks */
    bool bias;       /* the expert bias, which steers the choice and is not trained */
    bool shift, shared_gate; /* logits have a trained bias; shared experts have a gate */
    bool score_input;        /* the routing weight multiplies an expert's input */
    float bias_rate;         /* how far the expert bias moves a step */
    bool expert_bias;        /* both products of a routed expert add a trained bias */
    Glu glu;                 /* of routed and shared experts */
    int bias_rule;           /* BIAS_SIGN, _CENTRED or _QUANTILE */
    double capacity;         /* a factor on the mean of an expert's tokens; 0: none is dropped */
    bool forced_balance;     /* for benchmarks: positions choose experts */
} MoeSpec;

typedef struct DeltaSpec {
    DeltaDims dims;
    int64_t taps; /* tokens that the convolution joins */
    bool document_mask;
} DeltaSpec;

enum {
    BLOCK_LAYERS_MAX = 3
}; /* layers of a block at most, and buffers for gradients of the stream */

typedef struct LayerSpec {
    LayerKind kind;
    int block;        /* transformer layer number; -1 for embedding and head */
    int rank;         /* the pipeline rank that holds it */
    int chunk;        /* which chunk of that rank it is in */
    int replica_rank; /* the other pipeline rank that holds it (DualPipe); else the same as rank */
    unsigned recompute; /* a set of RecomputePiece */
    bool eight_bit;     /* its products follow the model's recipe (fp8.layers) */
    unsigned frozen;    /* bits of ParamRole: no gradients of these are made (params_freeze) */
    bool no_backward;   /* nothing is trained from the first layer to this one */
    int depth;          /* its depth of multi-token prediction; 0: of the model proper */
    bool trains;        /* it runs only in training: evaluations skip it */
    int load; /* its row in Record.load, counted over layers with experts; -1: it has none */
    union {
        AttentionSpec attention;
        DeltaSpec delta;
        MoeSpec moe;
        int64_t ffn; /* of one rank of tp */
    } as;
} LayerSpec;

/* How ranks share the layers, and the numbers of this rank. */
typedef struct SpecRanks {
    int64_t ep, cp; /* ranks of an EP group, which share the experts; of a CP group: a sequence */
    int64_t etp;    /* ranks that share each expert, neighbours in their EP group; divides ep */
    int64_t tp;     /* ranks of a TP group, which share matrices and rows of the stream */
    int64_t
        key_parts; /* ranks of tp with different heads of keys; fewer than tp: there are fewer heads */
    int64_t ep_rank; /* this rank's number in its EP group (spec_experts_here, spec_first_expert) */
    int64_t tp_rank; /* this rank has part tp_rank of tp of each matrix that is split */
    int64_t ep_inside; /* ranks of an EP group on each host, where they lie evenly; else 1 */
    int64_t stage;     /* ranks with the same layers: dp x cp x tp */
    bool own_first; /* products of gathered rows begin with this rank's (engine/model/stream.h) */
    ExchangeKind exchange;
    double imbalance; /* received rows to expect, as a multiple of the mean */
} SpecRanks;

/* What fp8.* says; engine/model/recipe.h has the table. */
typedef struct RecipeSpec {
    RecipeKind kind;
    bool pow2;               /* scales are powers of two */
    Dtype forward, gradient; /* of rows and weights; of gradients */
    bool weight_gradients;   /* products of weight gradients are 8-bit, too */
    bool attention;          /* attention's forward is 8-bit; also without a recipe */
    bool dispatch;           /* rows go to routed experts in 8 bits */
    bool keep;               /* activations that wait for backward may have 8 bits */
    bool some_layers;        /* not all layers follow the recipe */
    bool dense, grouped;     /* which products: all but routed experts'; routed experts' */
    bool head;               /* those of the head, too */
    bool per_use;            /* planning: weights are quantised for each product (ZeRO-3) */
    bool packed;             /* planning: memory as hardware would hold operands (operand_bytes) */
} RecipeSpec;

/* Memory for received rows, as multiples of the rows that balanced routing brings; 0: enough for
 * the most that can come. */
typedef struct RowCapacity {
    double pool;   /* one pool for the kept rows of all layers; 0: each layer has its own memory */
    double rows;   /* a layer's rows that are not kept */
    double blocks; /* the blocks of equal size in which tokens travel */
    int fetching;  /* this many first MoE layers fetch received rows again (RECOMPUTE_EXCHANGE) */
} RowCapacity;

typedef struct LossSpec {
    int64_t chunk;      /* what head_chunk is given */
    float depth_weight; /* weight of each depth's mean loss */
} LossSpec;

enum { COUNT_DROPPED = 1, COUNT_MARGINS = 2 }; /* of moe.capacity; of moe.bias_rule=quantile */

typedef struct ModelSpec {
    const char *name;
    int64_t vocab, hidden, blocks;
    float eps;
    bool tied;
    double init_std;
    RotarySpec rotary;
    LossSpec loss;
    /* patterns of parameters that are not trained */
    const ConfigTexts *frozen;
    Dtype act; /* type of activations: f32, bf16 or f16 */
    RecipeSpec recipe;
    CopySet weights; /* what products read of the weights */
    OptimizerSpec optimizer;
    LayerSpec *layers; /* in the arena of spec_build */
    /* By block, with those of depths: its first layer. The entry after the last block is that
     * block's end, so block i has layers [block_first[i], block_first[i + 1]). */
    int *block_first;
    int n_layers, n_moe;
    int block_layers; /* layers of the largest block */
    int depths;       /* modules of multi-token prediction */
    int64_t experts;  /* routed experts of a MoE layer; 0: no such layers */
    SpecRanks ranks;
    RowCapacity capacity; /* with ranks.ep > 1 */
    unsigned counts;      /* what MoE layers count beside loads: bits of COUNT_ */
} ModelSpec;

/* The kind of exchange that a configuration asks for, or that moe.exchange=auto chooses, and how
 * the ranks of the experts lie. */
ExchangeKind spec_exchange(const Config *c, struct ExchangeShape *shape);

/* Makes only the list of layers; params_freeze then sets which parameters are frozen. For spec_build. */
Status spec_layers(const Config *c, Arena *a, ModelSpec *out);
/* Puts all layers on rank 0; schedule/ places them later. config_check must have passed. aux_scale
 * is the coefficient over the number of groups in the batch. */
Status spec_build(const Config *c, Arena *a, ModelSpec *out);
/* Like spec_build, for a model that differs from `like` only in execution settings. It looks up no
 * names of parameters, of which a model may have a hundred thousand. */
Status spec_like(const Config *c, const ModelSpec *like, Arena *a, ModelSpec *out);

/* Ranks that have rows of the same sequences. */
static inline int64_t spec_sequence_ranks(const ModelSpec *s) { return s->ranks.cp * s->ranks.tp; }
/* Routed experts of which this rank has a part, and the first of them. Consecutive ranks have parts of the same
 * experts. */
static inline int64_t spec_experts_here(const SpecRanks *r, int64_t experts)
{
    return experts * r->etp / r->ep;
}
static inline int64_t spec_first_expert(const SpecRanks *r, int64_t experts)
{
    return r->ep_rank / r->etp * spec_experts_here(r, experts);
}
/* Rows of the vocabulary on one rank of tp. */
static inline int64_t spec_vocab_rows(const ModelSpec *s) { return s->vocab / s->ranks.tp; }

/* Sets this rank's position in a mesh: its EP and TP rank, and the sizes of its groups. */
void spec_place(ModelSpec *s, const Mesh *m);

/* The largest moe.pool_factor that is chosen if the setting is not given. */
#define SPEC_POOL_MOST 2.0

/* Applies `capacity`. pool and blocks 0 leave what the configuration says; `rows` is always taken. */
void spec_set_capacity(ModelSpec *s, const RowCapacity *capacity);

/* Sets the scales of the auxiliary losses for steps of `batch` sequences (train.batch_ramp). */
void spec_set_batch(ModelSpec *s, const Config *c, int64_t batch);

/* Layers [first, end). */
typedef struct LayerRange {
    int first, end;
} LayerRange;

static inline LayerRange block_layers(const ModelSpec *s, int block)
{
    return (LayerRange){ s->block_first[block], s->block_first[block + 1] };
}

/* Is a layer the first of its block? */
static inline bool spec_opens(const ModelSpec *s, int layer)
{
    int block = s->layers[layer].block;
    return block >= 0 && s->block_first[block] == layer;
}

/* Does the stage of the head read the embedding's table? */
static inline bool spec_shares_table(const ModelSpec *s) { return s->tied || s->depths > 0; }

/* Does a pipeline rank hold this layer? */
static inline bool layer_on(const LayerSpec *l, int rank)
{
    return l->rank == rank || l->replica_rank == rank;
}

/* The words of a set of RecomputePiece, as in recompute.pieces. */
void spec_recompute_names(unsigned set, ConfigTexts *out);

/* Widths of one head of q/k and of v. */
int64_t attention_qk_dim(const AttentionSpec *a);
int64_t attention_v_dim(const AttentionSpec *a);
/* The sum over attention layers of this rank's query heads x (width of q/k + width of v): half the FLOPs of a
 * pair of a query and a key, forward. */
int64_t spec_attention_width(const ModelSpec *s);

#endif
