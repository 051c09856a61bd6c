/* params: sizes and memory of the buffers, and views of them for layers, checkpoints and the
 * optimizer. The table itself is made in params_build.c. */
#include "engine/model/params.h"

#include "engine/base/rng.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t param_elems(const Param *p)
{
    int64_t n = 1;
    for (int i = 0; i < p->rank; i++) n *= p->dim[i];
    return n;
}

int64_t param_block(const char *name)
{
    static const char layers[] = "model.layers.";
    if (strncmp(name, layers, sizeof layers - 1) != 0) return -1;
    return strtoll(name + sizeof layers - 1, NULL, 10);
}

/* Rules and buffers. */

BufferDesc buffer_desc(const OptimizerDesc *rule, ParamBuffer b)
{
    static const BufferDesc fixed[BUF_COUNT] = { [BUF_WEIGHT] = { "weight", -FLT_MAX },
                                                 [BUF_GRAD] = { "grad", -FLT_MAX },
                                                 [BUF_MAIN] = { "main", -FLT_MAX },
                                                 [BUF_AVERAGE] = { "average", -FLT_MAX },
                                                 [BUF_STATE] = { "state", -FLT_MAX } };
    if (!buffer_is_optimizers(b)) return fixed[b];
    assert(rule != NULL && buffer_state(b) < rule->n_states);
    return rule->state[buffer_state(b)];
}

/* Weights 3, gradients 2, all else 1. BUF_STATE gets 4, which no setting reaches: every rank holds it whole. */
int params_zero_stage(const ModelSpec *s, ParamBuffer b)
{
    if (b == BUF_MAIN && s->weights.n == 0) b = BUF_WEIGHT;
    return b == BUF_WEIGHT ? 3 : b == BUF_GRAD ? 2 : b == BUF_STATE ? 4 : 1;
}

/* Elements on one rank: whole buckets, and its part of dense and of expert ones, rounded up. */
static int64_t shard_size(const ParamSizes *z, const ParamShards *shards)
{
    int64_t dense = shards->dense > 1 ? shards->dense : 1;
    int64_t part = shards->part > 1 ? shards->part : 1;
    int64_t expert = shards->expert > 1 ? shards->expert : 1;
    int64_t rest = z->flat - z->part - z->expert - z->whole;
    return z->whole + (rest + dense - 1) / dense + (z->part + part - 1) / part +
           (z->expert + expert - 1) / expert;
}

int64_t params_shard_elems(const ModelSpec *s, const ParamTable *t, ParamBuffer b,
                           const ParamShards *shards)
{
    if (b == BUF_STATE) return t->elems[b];
    const ParamSizes *z = &t->spaces.of[b];
    return shards->zero < params_zero_stage(s, b) ? z->flat : shard_size(z, shards);
}

int64_t params_copy_bytes(const ModelSpec *s, const ParamTable *t, const ParamShards *shards)
{
    const ParamSizes *z = &t->spaces.copies;
    if (shards->zero < params_zero_stage(s, BUF_WEIGHT)) return z->flat + t->spaces.scaled;
    return shard_size(z, shards);
}

/* The largest bucket that is staged. With ZeRO-3 all buckets have a place in BUF_WEIGHT. */
static int64_t stage_elems(const ParamTable *t, const ParamShards *shards)
{
    const int64_t *n = t->spaces.unread;
    const int64_t all[] = { shards->dense > 1 ? n[SHARD_DENSE] : 0,
                            shards->part > 1 ? n[SHARD_PART] : 0,
                            shards->expert > 1 ? n[SHARD_EXPERT] : 0 };
    int64_t most = 0;
    for (int i = 0; i < 3 && shards->zero > 0; i++) most = all[i] > most ? all[i] : most;
    return most;
}

/* Does each bucket have one rank? So it is on a stage of parts alone, if one rank has each part. */
static bool each_alone(const ParamTable *t, const ParamShards *shards)
{
    const ParamSizes *all = &t->spaces.of[BUF_MAIN];
    return shard_size(all, shards) == all->flat;
}

/* Twice a layer for weights and for gradients: the two halves of alloc_gathered. */
size_t params_gathered_bytes(const ParamTable *t, const ParamShards *shards)
{
    size_t trained = (size_t)t->spaces.of[BUF_GRAD].layer;
    size_t bytes = (size_t)stage_elems(t, shards) * dtype_bytes(DTYPE_BF16);
    if (shards_alone(shards)) return 0;
    if (shards->low_reduce) bytes += trained * dtype_bytes(DTYPE_BF16);
    if (each_alone(t, shards)) return bytes;
    if (shards->zero >= 3) bytes += 2 * (size_t)t->spaces.copies.layer;
    if (shards->zero >= 2) bytes += 2 * trained * sizeof(float);
    return bytes;
}

/* Two halves: while a layer computes in one, the other receives the next layer's prefetched weights
 * and still holds the previous layer's gradients until they are reduced. */
static Status alloc_gathered(const ModelSpec *s, const ParamTable *t, bool training, Arena *run,
                             ParamMemory *out)
{
    const Dtype type[2] = { copies_type(&s->weights), DTYPE_F32 };
    const bool wanted[2] = { t->sharded[BUF_WEIGHT], training && t->sharded[BUF_GRAD] };
    for (int b = 0; b < 2; b++) {
        int64_t elems = t->spaces.of[b].layer;
        if (wanted[b] && !each_alone(t, &t->shards))
            TRY(tensor_new1(run, type[b], 2 * elems, &out->gathered[b]));
    }
    if (!training || shards_alone(&t->shards) || !t->shards.low_reduce) return OK;
    return tensor_new1(run, DTYPE_BF16, t->spaces.of[BUF_GRAD].layer, &out->low);
}

/* Without copies the weights are the main weights themselves: one buffer under two names. */
Status params_alloc(const ModelSpec *s, const ParamTable *t, Arena *run, Arena *states,
                    bool training, ParamMemory *out)
{
    *out = (ParamMemory){ 0 };
    for (int b = BUF_GRAD; b < BUF_COUNT; b++) {
        bool wanted = training || b == BUF_MAIN || b == BUF_STATE;
        if (!wanted || t->elems[b] == 0) continue;
        bool state = buffer_is_optimizers((ParamBuffer)b);
        TRY(tensor_new1(state ? states : run, state ? s->optimizer.state : DTYPE_F32, t->elems[b],
                        &out->buffer[b]));
    }
    out->buffer[BUF_WEIGHT] = out->buffer[BUF_MAIN];
    if (s->weights.n > 0) {
        Dtype type = copies_type(&s->weights);
        TRY(tensor_new1(run, type, t->elems[BUF_WEIGHT], &out->buffer[BUF_WEIGHT]));
        int64_t stage = stage_elems(t, &t->shards);
        if (stage > 0) TRY(tensor_new1(run, type, stage, &out->stage));
    }
    return alloc_gathered(s, t, training, run, out);
}

/* Buckets. */

/* Buckets stand in the order of layers, so those of a layer are a run. */
int params_layer(const ParamTable *t, int layer, int *first)
{
    int i = 0;
    while (i < t->n_buckets && t->bucket[i].layer < layer) i++;
    *first = i;
    while (i < t->n_buckets && t->bucket[i].layer == layer) i++;
    return i;
}

/* A bucket in its layer's half of `gathered`, after the layer's earlier buckets. */
static Tensor gathered_bucket(const ParamTable *t, const ParamMemory *m, const ParamBucket *k,
                              ParamBuffer b)
{
    int64_t at = params_half(k->layer) * t->spaces.of[b].layer;
    for (const ParamBucket *j = k; j > t->bucket && j[-1].layer == k->layer; j--)
        at += shard_group_whole(j[-1].shard_group) ? 0 : j[-1].n;
    return tensor_rows(&m->gathered[b], at, k->n);
}

/* The bucket's first element in a buffer that is not sharded. */
static int64_t bucket_first(const ParamBucket *k, ParamBuffer b)
{
    return b == BUF_WEIGHT ? k->weight : k->first;
}

/* Three places: a buffer that is not sharded; a bucket of one rank, which is whole in the shard
 * space; else the gathered copy. */
Tensor bucket_whole(const ParamTable *t, const ParamMemory *m, const ParamBucket *k, ParamBuffer b)
{
    if (b == BUF_WEIGHT && bucket_staged(k)) return tensor_rows(&m->stage, 0, k->n);
    if (b == BUF_WEIGHT && k->weight < 0) b = BUF_MAIN;
    if (!t->sharded[b]) return tensor_rows(&m->buffer[b], bucket_first(k, b), k->n);
    if (k->ranks == 1) return tensor_rows(&m->buffer[b], k->shard, k->n);
    return gathered_bucket(t, m, k, b);
}

Tensor bucket_part(const ParamBucket *k, Tensor whole)
{
    return tensor_rows(&whole, bucket_cut(k, k->own), bucket_own_elems(k));
}

Tensor bucket_own(const ParamTable *t, const ParamMemory *m, const ParamBucket *k, ParamBuffer b)
{
    if (t->sharded[b]) return tensor_rows(&m->buffer[b], k->shard, bucket_own_elems(k));
    return bucket_part(k, bucket_whole(t, m, k, b));
}

Piece param_part(const Param *p)
{
    const int64_t n = param_elems(p), cols = p->rank == 2 ? p->dim[1] : 1;
    if (p->split != SPLIT_COLS) return piece_range(p->part * n, n);
    return (
        Piece){ .first = p->part * cols, .n = cols, .stride = p->parts * cols, .rows = p->dim[0] };
}

/* Intersects the parameter [at, at + n) with this rank's part [own, own + part), both counted from
 * the bucket's first element. */
ParamPiece param_piece(const ParamTable *t, const Param *p, const ParamMemory *m, ParamBuffer b)
{
    ParamPiece none = { 0 };
    int64_t n = param_elems(p);
    if (p->first[b] < 0 || m->buffer[b].data == NULL) return none;
    const Piece whole = param_part(p);
    if (b == BUF_STATE) return (ParamPiece){ whole, tensor_rows(&m->buffer[b], p->first[b], n) };
    const ParamBucket *k = &t->bucket[p->bucket];
    int64_t part = t->sharded[b] ? bucket_own_elems(k) : k->n;
    int64_t own = t->sharded[b] ? bucket_cut(k, k->own) : 0;
    int64_t at = p->first[BUF_MAIN] - k->first;
    int64_t first = at > own ? at : own, end = at + n < own + part ? at + n : own + part;
    if (first >= end) return none;
    int64_t local = (t->sharded[b] ? k->shard : bucket_first(k, b)) + first - own;
    return (ParamPiece){ piece_part(&whole, first - at, end - first),
                         tensor_rows(&m->buffer[b], local, end - first) };
}

/* Draws have 32 bits; half a step more keeps the logarithm of 0 finite. */
static void fill_decay(const Param *p, uint64_t seed, uint64_t first, int64_t n, float *out)
{
    for (int64_t k = 0; k < n; k++) {
        const double u = rng_uniform(seed, rng_stream(p->name), first + (uint64_t)k) + 0x1p-33;
        const double step = 0.001 * pow(100, u);
        out[k] = (float)(p->init == INIT_DECAY ? log(16 * u) : log(expm1(step)));
    }
}

/* Piece by run, because the elements of a run have neighbouring numbers and one call fills them. */
void param_fill(const Param *p, uint64_t seed, const Piece *in, int64_t i, int64_t n, float *out)
{
    for (int64_t end = i + n, run = 0; i < end; i += run, out += run) {
        run = piece_run(in, i) < end - i ? piece_run(in, i) : end - i;
        if (p->init == INIT_NORMAL) {
            rng_fill_normal(out, run, seed, rng_stream(p->name), (uint64_t)piece_element(in, i),
                            (double)p->init_std);
        } else if (p->init >= INIT_DECAY) {
            fill_decay(p, seed, (uint64_t)piece_element(in, i), run, out);
        } else {
            for (int64_t k = 0; k < run; k++) out[k] = p->init == INIT_ONE ? 1 : 0;
        }
    }
}
