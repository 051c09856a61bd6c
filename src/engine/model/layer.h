/*
 * layer: what one layer does, phase by phase.
 *
 * A layer is a row of phases. A phase is what a schedule can move. It has forward, backward_input (gradients of what it
 * read) and backward_weight (gradients of its parameters), straight-line C over ops. The engine runs phases forwards,
 * then backwards (engine/step/run_layers.c). A layer allocates by lifetime:
 *
 *   keep     the slot: from the first forward to the last backward of this micro-batch
 *   ring     across the phases of this layer, in one direction: released when its forward (or
 *            backward) is over
 *   scratch  within one phase function: the engine releases it after each
 *
 * With RECOMPUTE_LAYER the engine gives back all of `keep` after forward. Before backward it calls the forward phases a
 * second time, with `recomputing` set. Then routing is neither decided nor counted, and h_out is not wanted.
 */
#ifndef ENGINE_MODEL_LAYER_H
#define ENGINE_MODEL_LAYER_H

#include "engine/base/lane.h"
#include "engine/model/figure.h"
#include "engine/model/params.h"
#include "kernels/optimizer/qk_clip.h"

/* One micro-batch as ops see it; tensors live in the step arena. */
typedef struct MicroBatch {
    int64_t b, t;           /* sequences, tokens a sequence */
    Tensor id, target, pos; /* (N) i32 */
    Tensor doc;             /* (B, T) i32 */
    Tensor domain;          /* (B) i32 */
    struct {
        Tensor id, target;     /* (N) i32: the token `depth` further on, and the one after it */
    } next[CONFIG_DEPTHS_MAX]; /* by depth of multi-token prediction, from 1 */
    int depths;
    /* (rows) i32: pos, and by depth targets, of the rows of the stream that this rank holds */
    Tensor row_pos, row_target[1 + CONFIG_DEPTHS_MAX];
} MicroBatch;

/* The targets of depth `depth` of multi-token prediction; 0: of the model proper. */
static inline Tensor batch_target(const MicroBatch *m, int depth)
{
    return depth == 0 ? m->target : m->next[depth - 1].target;
}

/* Sums of one step, on the device; the host reads them once a step. The members are those rows of figure.def
 * that the record holds; what a model lacks has no data. */
typedef struct Record {
    Tensor sums, counts; /* f32, i32: the figures that ranks add up are views of these */
#define HOST_FIGURE(...)
#define FIGURE(NAME, name, ...) Tensor name;
#include "engine/model/figure.def"
} Record;
enum { OVERFLOW_BLOCKS, OVERFLOW_ROWS, OVERFLOW_DIFFERS };

/* Where gradients are summed up: this rank's own, before they are added over the ranks of their group;
 * before they are added over replicas; and those that the update reads. */
typedef enum VerifyPoint { VERIFY_OWN, VERIFY_GROUP, VERIFY_SUM, VERIFY_POINTS } VerifyPoint;

Status batch_make(Arena *a, const ModelSpec *s, int64_t b, int64_t t, MicroBatch *out);
Status record_make(Arena *a, const ModelSpec *s, int64_t domains, Record *out);
/* A figure of the record; without data if that has none. */
Tensor record_figure(const Record *r, Figure f);

/* n new tokens of one cached sequence, behind `used` tokens that it has. */
typedef struct CachePart {
    int64_t sequence, used, n;
} CachePart;

/* Keys and values of the tokens so far. */
typedef struct KvCache {
    Tensor *k,
        *v; /* by layer of the spec: (sequences * capacity, LayerDesc.cache) act; of a layer with a
                       * state (sequences, LayerDesc.cache) act and f32 */
    int64_t capacity; /* tokens of a sequence */
    int64_t used;     /* tokens of the first sequence, for engine_next_logits */
    int64_t *stated; /* by sequence: tokens that its states have seen; NULL: no layer has a state */
    const CachePart
        *part; /* of this call: the batch has their new tokens, one part behind the other */
    int parts;
} KvCache;

/* Routed rows that all layers of a slot keep, one layer's after the other. */
typedef struct RowPool {
    Operand rows; /* (pool rows, columns of a layer); no data: there is no pool */
    Tensor top;   /* (1) i32, on the device: rows that are taken */
} RowPool;

/* What layers need of a pool: the balanced rows, the most rows that can come, and what a row is. */
typedef struct PoolNeed {
    double balanced, most;
    int64_t cols;
    OperandKind kind;
    Dtype type;
} PoolNeed;

/* Cosines and sines of the rotary positions: (P, d/2) f32. */
typedef struct RopeTable {
    Tensor cos, sin;
} RopeTable;

/* What the head reads and writes in addition to the stream. */
typedef struct HeadRun {
    Tensor scale;  /* (1 + depths) f32: weight / targets of the global batch */
    Tensor loss;   /* out (N) f32 nats a token */
    Tensor logits; /* if set, out (rows, V) f32 of the last tokens, and no loss */
} HeadRun;

/* One layer over one micro-batch. `tokens` is the number of tokens that the rank's part of a
 * sequence has: attention and the products of a layer work on all of them. `rows` is the number of
 * rows of the residual stream that this rank holds: norms, routing and shared experts work on these.
 * Ranks of tp split the stream: each holds an equal run of each sequence (engine/model/stream.h). */
typedef struct LayerRun {
    Exec *ex;
    const ModelSpec *spec;
    const LayerSpec *layer;
    const LayerWeights *weights;
    const MicroBatch *batch;
    int64_t tokens, rows;
    const Record *record;
    RopeTable rope;
    HeadRun head;
    KvCache *cache; /* NULL in training and evaluation */
    Arena *keep, *ring, *scratch;
    RowPool *pool; /* the slot's; NULL: a layer's rows are allocated in keep like everything else */
    void *state;   /* of this layer and micro-batch: LayerDesc.state_bytes in keep, zeroed */
    Tensor h;      /* in  (rows, D): the residual stream; none if the layer begins it */
    Tensor h_out;  /* out (rows, D), allocated by the engine; none if the layer ends it */
    Tensor dh_out; /* backward: in  (rows, D): gradient of h_out; none if the layer ends it */
    Tensor dh;     /* backward: out (rows, D): gradient of h; none if the layer begins it */
    Tensor grad_scale; /* in  (1) f32: what gradients are multiplied by; not set: nothing */
    bool *written; /* Do the experts' weight gradients hold sums? If not, backward overwrites them
                    * instead of adding, and sets it: they need no zeroing. NULL: they do. */
    bool training; /* gradients are wanted */
    bool recomputing; /* a second forward, before backward (RECOMPUTE_LAYER) */
} LayerRun;

enum { LAYER_PHASES_MAX = 9 };

typedef Status PhaseFn(LayerRun *r);

/* Whose large weights a phase reads, and to whose gradients it adds: its own layer's, the
 * embedding's or the head's. A tied head uses the embedding's. */
typedef enum PhaseWeights { WEIGHTS_OWN, WEIGHTS_TABLE, WEIGHTS_HEAD } PhaseWeights;

typedef struct Phase {
    const char *name;
    Lane lane;
    PhaseFn *forward, *backward_input, *backward_weight; /* NULL: nothing to do */
    /* Needs no result of the exchange before it and may run in parallel; not if the norm is
     * recomputed in that exchange's phase (RECOMPUTE_NORM). */
    bool overlap_ok;
    BlockPart part; /* of a block that a schedule takes apart */
    PhaseWeights weights;
    bool forward_gradients; /* forward already adds to the gradients of these weights */
    bool input_gradients;   /* so does backward_input, where context ranks share sequences */
    bool split;             /* it is there only where ranks of tp split the stream */
    bool own_first;         /* it is there only with SpecRanks.own_first */
    /* It sends nothing, and is on the comm lane because phases that do stand around it. */
    bool local;
} Phase;

/* All that the rest of the program knows of a kind of layer: nothing else asks which kind it is. */
typedef struct LayerDesc {
    const char *name;  /* in traces, and what a stack's sheet calls it (planner/stack/stack.def) */
    const char *title; /* for people */
    bool begins, ends; /* the residual stream: it has no h; it has no h_out */
    size_t state_bytes;
    Status (*params)(const ModelSpec *s, const LayerSpec *l, ParamList *out);
    /* Allocates in keep what even RECOMPUTE_LAYER keeps (routing). NULL: nothing. */
    Status (*prepare)(LayerRun *r);
    /* What a layer of `rows` rows of the stream needs of the pool. NULL: nothing. */
    PoolNeed (*pooled)(const ModelSpec *s, const LayerSpec *l, int64_t rows);
    const Phase *phases;
    int n_phases;
    const int *backward; /* the order in which backward takes the phases; NULL: last to first */
    /* Does a phase communicate with other ranks, forward or backward? Only then it runs on its own
     * lane; else on the compute lane. Not asked for phases that are there with ranks of tp alone
     * (layer_communicates). NULL: no other does. */
    bool (*communicates)(const ModelSpec *s, const LayerSpec *l, int phase, bool forward);
    bool once; /* its forward cannot run again: it is never recomputed */
    /* Do two layers of this kind compute the same? NULL: any two do. */
    bool (*alike)(const LayerSpec *a, const LayerSpec *b);
    /* Widths of the keys and values that a token leaves in a KvCache. NULL: it leaves none. */
    void (*cache)(const LayerSpec *l, int64_t *k, int64_t *v);
    bool
        stateful; /* they are of a sequence, not of a token, and only go on behind its last token */
    /* The layer's heads, and which rows of a matrix QK-clip scales (kernels/optimizer/qk_clip.h). NULL: none. */
    QkRows (*clips)(const LayerSpec *l, ParamRole role);
    /* Runs after the optimizer, once a step, on the ranks that hold the layer. NULL: nothing. */
    Status (*after_step)(Exec *ex, const LayerSpec *l, const LayerWeights *w, const Record *sum);
} LayerDesc;

/* Does a layer of this model have the phase? */
static inline bool phase_runs(const ModelSpec *s, const Phase *p)
{
    return (!p->split || s->ranks.tp > 1) && (!p->own_first || s->ranks.own_first);
}

static inline int layer_backward(const LayerDesc *d, int i)
{
    return d->backward != NULL ? d->backward[i] : d->n_phases - 1 - i;
}

const LayerDesc *layer_desc(LayerKind kind);

#define LAYER(KIND, name) extern const LayerDesc layer_##name;
#include "engine/model/layer.def"
#undef LAYER

static inline bool layer_communicates(const ModelSpec *s, const LayerSpec *l, int phase,
                                      bool forward)
{
    const LayerDesc *d = layer_desc(l->kind);
    if (d->phases[phase].split) return d->phases[phase].lane == LANE_COMM;
    return d->communicates != NULL && d->communicates(s, l, phase, forward);
}

/* The layer whose large weights a phase reads (PhaseWeights). */
static inline int layer_weights_of(const ModelSpec *s, int layer, int phase)
{
    PhaseWeights w = layer_desc(s->layers[layer].kind)->phases[phase].weights;
    if (w == WEIGHTS_HEAD && !s->tied) return s->n_layers - 1;
    return w == WEIGHTS_OWN ? layer : 0;
}

/* The part of a set of RecomputePiece that applies to a layer: nothing outside blocks. A layer
 * without backward keeps nothing. */
static inline unsigned layer_recompute(const LayerSpec *l, unsigned set)
{
    if (l->no_backward) return RECOMPUTE_LAYER;
    return l->block < 0 || layer_desc(l->kind)->once ? 0 : set;
}

/* Adds up what layers need. All rows of a pool are of one kind and width. */
void pool_need_add(PoolNeed *sum, const PoolNeed *more);
/* Rows of a pool of `factor` times the balanced rows; 0: no layer needs one. */
int64_t pool_need_rows(const PoolNeed *need, double factor);
/* The bytes of that pool in an arena. */
size_t pool_need_bytes(const PoolNeed *need, double factor);
/* Allocates it in `a`, with no row taken. */
Status pool_make(Exec *ex, Arena *a, const PoolNeed *need, double factor, RowPool *out);

/* The arena for something that backward needs unless `piece` is recomputed: keep or ring. */
Arena *layer_arena(const LayerRun *r, unsigned piece);
/* This rank's number among those with rows of the same sequences. */
int64_t layer_sequence_rank(const LayerRun *r);
/* The number of the context rank `behind` positions after this one, cyclically; 0: this one. */
int64_t layer_rank(const LayerRun *r, int64_t behind);
/* COMM_ALL_GATHER, COMM_REDUCE_SCATTER or COMM_SHIFT over the context ranks. */
Status layer_collect(LayerRun *r, OpComm kind, Tensor in, Tensor out);

/* Is the residual stream split over ranks of tp? */
static inline bool layer_splits(const LayerRun *r) { return r->spec->ranks.tp > 1; }
/* COMM_ALL_GATHER or COMM_REDUCE_SCATTER over the ranks of tp: between the rows of the stream that each
 * holds and all tokens. */
Status layer_collect_rows(LayerRun *r, OpComm kind, Tensor in, Tensor out);

/* h = table[id], of ids in this rank's rows of the table; of others zeros. Its backward adds to the
 * table's gradient. */
Status layer_look_up(LayerRun *r, Tensor id, Tensor h);
Status layer_look_up_backward(LayerRun *r, Tensor id, Tensor dh);
/* The norm before the loss of a depth (0: of the model proper). */
Status layer_last_norm(const ModelSpec *s, int depth, ParamList *out);
/* The loss of the predictions of `depth` from y. In training also dy, in keep, and the head's gradients. */
Status layer_loss(LayerRun *r, int depth, Tensor y, Tensor *dy);

#endif
