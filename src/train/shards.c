#include "train/shards.h"

#include <assert.h>
#include <string.h>

ParamShards shards_of(const Config *c, const Mesh *m)
{
    const MeshShape *s = &m->shape;
    int64_t ranks = (int64_t)s->shard * s->cp;
    return (ParamShards){ .stage = (int)c->mesh_zero,
                          .dense = ranks,
                          .expert = ranks / s->ep,
                          .dense_rank = m->at.inner,
                          .expert_rank = m->at.expert_shard,
                          .low_reduce = c->mesh_reduce == REDUCE_BF16 };
}

/* Are there others to talk to? */
static bool alone(const Engine *e) { return e->ex.mesh == NULL; }

static Comm *group_of(const Engine *e, const ParamBucket *k)
{
    return e->ex.mesh->group[k->hold == HOLD_EXPERT ? GROUP_EXPERT_SHARD : GROUP_SHARD];
}

/* Do all of its group hold the bucket's gradients whole, after they were added? */
static bool replicated(const Engine *e, const ParamBucket *k)
{
    return e->params.shards.stage == 0 || k->hold == HOLD_WHOLE;
}

/* Where a bucket's sums over the ranks end up. */
static Tensor reduced(const Engine *e, const ParamBucket *k)
{
    if (replicated(e, k)) return bucket_whole(&e->params, &e->memory, k, BUF_GRAD);
    return bucket_own(&e->params, &e->memory, k, BUF_GRAD);
}

/* Does another stage hold the bucket, too? DualPipe's ranks hold the same stages in pairs, the ends
 * of a pipeline one table. Each has the gradients of its own passes; both get the sum. */
static bool mirrored(const Engine *e, const ParamBucket *k)
{
    if (e->mirror == NULL) return false;
    return e->program.placement == PLACE_BOTH || e->spec.layers[k->layer].kind == LAYER_EMBED;
}

/* Set-up. */

static bool follows(const Tensor *a, const Tensor *b)
{
    return a->data == NULL ? b->data == NULL : tensor_at(a, tensor_elems(a)) == b->data;
}

/* Runs that lie one behind the other in every buffer are one. */
static void add_range(Engine *e, UpdateRange r)
{
    assert(e->ranges != NULL);
    UpdateRange *last = e->n_ranges > 0 ? &e->ranges[e->n_ranges - 1] : NULL;
    bool joined = last != NULL && last->decay == r.decay && follows(&last->w, &r.w) &&
                  follows(&last->g, &r.g) && follows(&last->m, &r.m) && follows(&last->v, &r.v) &&
                  follows(&last->w_low, &r.w_low);
    if (!joined) {
        e->ranges[e->n_ranges++] = r;
        return;
    }
    Tensor *grown[] = { &last->w, &last->g, &last->m, &last->v, &last->w_low };
    for (size_t i = 0; i < sizeof grown / sizeof *grown; i++) {
        if (grown[i]->data != NULL) grown[i]->dim[0] += r.w.dim[0];
    }
}

/* What this rank updates of a bucket: its own part, or all of it where all do. */
static UpdateRange update_of(const Engine *e, const ParamBucket *k)
{
    const ParamTable *t = &e->params;
    Tensor part[BUF_STATE] = { 0 };
    for (int b = 0; b < BUF_STATE; b++) {
        if (e->memory.buffer[b].data == NULL) continue;
        bool whole = replicated(e, k);
        part[b] = whole ? bucket_whole(t, &e->memory, k, (ParamBuffer)b)
                        : bucket_own(t, &e->memory, k, (ParamBuffer)b);
    }
    UpdateRange r = { .w = part[BUF_MAIN],
                      .g = part[BUF_GRAD],
                      .m = part[BUF_MOMENT1],
                      .v = part[BUF_MOMENT2],
                      .decay = k->decay };
    if (e->spec.act != DTYPE_F32) r.w_low = part[BUF_WEIGHT];
    return r;
}

static UpdateRange part_of(UpdateRange r, int64_t first, int64_t n)
{
    Tensor *all[] = { &r.w, &r.g, &r.m, &r.v, &r.w_low };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i]->data != NULL) *all[i] = tensor_rows(all[i], first, n);
    }
    return r;
}

/* A bucket in which some decay and others do not: parameter by parameter. The padding behind one
 * belongs to its range: it stays zero under either rule. */
static void add_mixed(Engine *e, const ParamBucket *k, int bucket)
{
    UpdateRange whole = update_of(e, k);
    int64_t at = 0;
    bool decay = true;
    for (int i = 0; i < e->params.n; i++) {
        const Param *p = &e->params.at[i];
        if (p->bucket != bucket) continue;
        int64_t first = p->first[BUF_MAIN] - k->first;
        if (first > at && p->decay != decay) {
            whole.decay = decay;
            add_range(e, part_of(whole, at, first - at));
            at = first;
        }
        decay = p->decay;
    }
    whole.decay = decay;
    add_range(e, part_of(whole, at, whole.w.dim[0] - at));
}

/* Over all ranks each parameter counts once in the norm: replicas' and what two stages hold only on
 * the first, what a whole group holds only on its first. */
static bool counts(const Engine *e, const ParamBucket *k)
{
    if (alone(e)) return true;
    const Mesh *m = e->ex.mesh;
    if (m->at.replica > 0 || (mirrored(e, k) && e->mirror->rank > 0)) return false;
    return !replicated(e, k) || group_of(e, k)->rank == 0;
}

static void add_norm(Engine *e, const ParamBucket *k)
{
    Tensor g = reduced(e, k);
    Tensor *last = e->n_norms > 0 ? &e->norms[e->n_norms - 1] : NULL;
    assert(e->norms != NULL);
    if (!counts(e, k)) return;
    if (last != NULL && follows(last, &g))
        last->dim[0] += g.dim[0];
    else
        e->norms[e->n_norms++] = g;
}

Status shards_make(Engine *e)
{
    const ParamTable *t = &e->params;
    TRY(ARENA_NEW(&e->tables, t->n + t->n_buckets, &e->ranges));
    TRY(ARENA_NEW(&e->tables, t->n_buckets, &e->norms));
    TRY(ARENA_ZEROED(&e->tables, e->spec.n_layers, &e->passes));
    shards_begin(e);
    for (int i = 0; i < t->n_buckets && e->use == ENGINE_TRAIN; i++) {
        const ParamBucket *k = &t->bucket[i];
        if (k->decay)
            add_range(e, update_of(e, k));
        else
            add_mixed(e, k, i);
        add_norm(e, k);
    }
    return OK;
}

/* Weights. */

static Status gather(Engine *e, const ParamBucket *k)
{
    if (k->ranks == 1) return OK;
    Tensor own = bucket_own(&e->params, &e->memory, k, BUF_WEIGHT);
    Tensor whole = bucket_whole(&e->params, &e->memory, k, BUF_WEIGHT);
    return comm_all_gather(group_of(e, k), &own, &whole);
}

/* On the comm lane, into its place. */
static Status fetch(Engine *e, int layer)
{
    int place = layer % 2;
    if (e->weights_of[place] == layer) return OK;
    e->weights_of[place] = layer;
    if (alone(e)) return OK;
    int first, end = params_layer(&e->params, layer, &first);
    TRY(lanes_enter(e));
    for (int i = first; i < end; i++) TRY(gather(e, &e->params.bucket[i]));
    return lanes_leave(e, (LaneMark)(MARK_EVEN_WEIGHTS + place));
}

Status shards_gather(Engine *e)
{
    if (alone(e) || e->params.shards.stage == 0 || e->params.shared_out[BUF_WEIGHT]) return OK;
    for (int i = 0; i < e->params.n_buckets; i++) TRY(gather(e, &e->params.bucket[i]));
    return OK;
}

Status shards_refresh(Engine *e)
{
    const ParamTable *t = &e->params;
    bool apart = t->shared_out[BUF_MAIN] && !t->shared_out[BUF_WEIGHT];
    if (e->spec.act != DTYPE_F32 && !apart) {
        TRY(cast(&e->ex, (Cast){ e->memory.buffer[BUF_MAIN], e->memory.buffer[BUF_WEIGHT] }));
    }
    for (int i = 0; i < t->n_buckets && e->spec.act != DTYPE_F32 && apart; i++) {
        const ParamBucket *k = &t->bucket[i];
        TRY(cast(&e->ex, (Cast){ bucket_own(t, &e->memory, k, BUF_MAIN),
                                 bucket_own(t, &e->memory, k, BUF_WEIGHT) }));
    }
    return shards_gather(e);
}

/* Gradients. */

static Status zero(Engine *e, const Tensor *t)
{
    return exec_bottom(&e->ex)->fill(&e->ex, t->data, 0, tensor_bytes(t));
}

/* In the type in which gradients are added: whole becomes the sum, or its own part does. */
static Status add_up(Engine *e, const ParamBucket *k, Tensor whole)
{
    Tensor in = whole, part = bucket_part(k, whole), out = replicated(e, k) ? whole : part;
    bool low = e->memory.low.data != NULL && k->hold != HOLD_WHOLE;
    if (low) {
        in = tensor_rows(&e->memory.low, 0, k->n);
        TRY(cast(&e->ex, (Cast){ whole, in }));
    }
    Tensor sum = replicated(e, k) ? in : bucket_part(k, in);
    if (replicated(e, k))
        TRY(comm_all_reduce(group_of(e, k), &in, REDUCE_SUM));
    else
        TRY(comm_reduce_scatter(group_of(e, k), &in, &sum));
    return low ? cast(&e->ex, (Cast){ sum, out }) : OK;
}

/* Of all of a layer's buckets that are held whole, once no pass will add to them. */
static Status reduce_layer(Engine *e, int layer)
{
    int first, end = params_layer(&e->params, layer, &first);
    if (alone(e) || e->params.shared_out[BUF_GRAD] || first == end) return OK;
    TRY(lanes_enter(e));
    for (int i = end - 1; i >= first; i--) {
        const ParamBucket *k = &e->params.bucket[i];
        TRY(add_up(e, k, bucket_whole(&e->params, &e->memory, k, BUF_GRAD)));
    }
    return lanes_leave(e, MARK_ALL);
}

/* What a layer left under way is added over the ranks and into the own part. */
static Status flush(Engine *e, int place)
{
    int layer = e->grads_of[place], first, end;
    e->grads_of[place] = -1;
    if (layer < 0) return OK;
    end = params_layer(&e->params, layer, &first);
    TRY(lanes_enter(e));
    for (int i = first; i < end; i++) {
        const ParamBucket *k = &e->params.bucket[i];
        if (k->ranks == 1) continue;
        Tensor whole = bucket_whole(&e->params, &e->memory, k, BUF_GRAD);
        if (!alone(e)) TRY(add_up(e, k, whole));
        TRY(add(&e->ex,
                (Add){ bucket_part(k, whole), bucket_own(&e->params, &e->memory, k, BUF_GRAD) }));
    }
    return lanes_leave(e, (LaneMark)(MARK_EVEN_GRADIENTS + place));
}

static Status make_room(Engine *e, int layer)
{
    int place = layer % 2, first, end = params_layer(&e->params, layer, &first);
    if (e->grads_of[place] == layer) return OK;
    TRY(flush(e, place));
    TRY(lanes_wait(e, (LaneMark)(MARK_EVEN_GRADIENTS + place)));
    e->grads_of[place] = layer;
    for (int i = first; i < end; i++) {
        const ParamBucket *k = &e->params.bucket[i];
        if (k->ranks == 1) continue;
        Tensor whole = bucket_whole(&e->params, &e->memory, k, BUF_GRAD);
        TRY(zero(e, &whole));
    }
    return OK;
}

void shards_begin(Engine *e)
{
    e->weights_of[0] = e->weights_of[1] = e->grads_of[0] = e->grads_of[1] = -1;
    memset(e->passes, 0, (size_t)e->spec.n_layers * sizeof *e->passes);
}

/* A tied head reads and adds to the embedding's table. */
static bool takes_table(const Engine *e, int layer)
{
    return e->spec.tied && e->spec.layers[layer].kind == LAYER_HEAD;
}

Status shards_open(Engine *e, int layer, int ahead, bool gradients)
{
    if (takes_table(e, layer)) TRY(shards_open(e, 0, 0, gradients));
    if (e->params.shared_out[BUF_WEIGHT]) {
        TRY(fetch(e, layer));
        TRY(lanes_wait(e, (LaneMark)(MARK_EVEN_WEIGHTS + layer % 2)));
        if (ahead != 0 && !takes_table(e, layer)) TRY(fetch(e, layer + ahead));
    }
    return gradients && e->params.shared_out[BUF_GRAD] ? make_room(e, layer) : OK;
}

Status shards_close(Engine *e, int layer)
{
    if (e->params.shared_out[BUF_GRAD]) return flush(e, layer % 2);
    return ++e->passes[layer] == e->program.micros ? reduce_layer(e, layer) : OK;
}

Status shards_reduce(Engine *e)
{
    for (int i = 0; i < 2 && e->params.shared_out[BUF_GRAD]; i++) TRY(flush(e, i));
    if (alone(e)) return OK;
    Comm *replicas = e->ex.mesh->group[GROUP_REPLICA];
    for (int layer = e->spec.n_layers - 1; layer >= 0; layer--) {
        if (e->passes[layer] < e->program.micros) TRY(reduce_layer(e, layer));
    }
    TRY(lanes_wait(e, MARK_ALL));
    for (int i = e->params.n_buckets - 1; i >= 0; i--) {
        const ParamBucket *k = &e->params.bucket[i];
        Tensor sum = reduced(e, k);
        bool whole = k->hold == HOLD_WHOLE && e->params.shared_out[BUF_GRAD];
        if (whole) TRY(comm_all_reduce(group_of(e, k), &sum, REDUCE_SUM));
        TRY(comm_all_reduce(replicas, &sum, REDUCE_SUM));
        if (mirrored(e, k)) TRY(comm_all_reduce(e->mirror, &sum, REDUCE_SUM));
    }
    return OK;
}
