/* shards: gathers, reductions and sums of buckets, and the ranges that a rank updates or counts. */
#include "train/shards.h"

#include "op/elementwise.h"
#include "train/engine_memory.h"

#include <assert.h>
#include <string.h>

ParamShards shards_of(const Config *c, const Mesh *m)
{
    const MeshShape *s = &m->shape;
    int64_t ranks = (int64_t)s->shard * s->cp;
    return (ParamShards){ .zero = (int)c->mesh_zero,
                          .dense = ranks,
                          .expert = ranks / s->ep,
                          .dense_rank = m->at.inner,
                          .expert_rank = m->at.expert_shard,
                          .low_reduce = c->mesh_reduce == REDUCE_BF16 };
}

ScheduleShards shards_schedule(const ParamShards *s, bool sums)
{
    bool ranks = s->dense > 1 || s->expert > 1, gradients = ranks && s->zero >= 2;
    return (ScheduleShards){ .weights = ranks && s->zero >= 3,
                             .gradients = gradients,
                             .reduce = ranks,
                             .sums = sums || gradients,
                             .update = ranks && (s->zero == 1 || s->zero == 2) };
}

/* Is this the only rank? */
static bool alone(const Engine *e) { return e->ex.mesh == NULL; }

static MeshGroup group_of(const ParamBucket *k)
{
    return k->hold == HOLD_EXPERT ? GROUP_EXPERT_SHARD : GROUP_SHARD;
}

/* The number of members of a group. A counting run has no groups: there the shape says it. */
static int64_t members(const Engine *e, MeshGroup g)
{
    const Comm *c = e->mesh.group[g];
    if (c != NULL) return c->size;
    return e->shape.mesh == NULL ? 1 : mesh_group_size(&e->shape.mesh->shape, g);
}

/* Does each member of the group hold the sum of the bucket's gradients whole? */
static bool replicated(const Engine *e, const ParamBucket *k)
{
    return e->params.shards.zero == 0 || k->hold == HOLD_WHOLE;
}

/* Where the sum of a bucket's gradients over the ranks lies. */
static Tensor reduced(const Engine *e, const ParamBucket *k)
{
    if (replicated(e, k)) return bucket_whole(&e->params, &e->memory, k, BUF_GRAD);
    return bucket_own(&e->params, &e->memory, k, BUF_GRAD);
}

/* Does another stage hold the same bucket? In DualPipe two ranks hold the same two stages; with a
 * tied table both ends of a pipeline hold the table. Each has the gradients of its own passes, and
 * both get the sum. */
static bool mirrored(const Engine *e, const ParamBucket *k)
{
    if (e->mesh.group[GROUP_MIRROR] == NULL) return false;
    return e->mode->step.program.placement == PLACE_BOTH ||
           layer_desc(e->spec.layers[k->layer].kind)->begins;
}

/* Set-up. */

static bool follows(const Tensor *a, const Tensor *b)
{
    return a->data == NULL ? b->data == NULL : tensor_at(a, tensor_elems(a)) == b->data;
}

/* A range's tensors; some may be without data. */
enum { RANGE_TENSORS = 3 + OPTIMIZER_STATES };
static void tensors_of(UpdateRange *r, Tensor *out[RANGE_TENSORS])
{
    out[0] = &r->w, out[1] = &r->g, out[2] = &r->low;
    for (int i = 0; i < OPTIMIZER_STATES; i++) out[3 + i] = &r->state[i];
}

/* Joins ranges that follow each other in every buffer. */
static void add_range(Engine *e, UpdateRange r)
{
    assert(e->ranges != NULL);
    UpdateRange *last = e->n_ranges > 0 ? &e->ranges[e->n_ranges - 1] : NULL;
    Tensor *grown[RANGE_TENSORS], *more[RANGE_TENSORS];
    tensors_of(&r, more);
    bool joined = last != NULL && last->rule == r.rule && !r.rule->whole_matrices &&
                  last->decay == r.decay && last->age == r.age;
    if (joined) tensors_of(last, grown);
    for (int i = 0; i < RANGE_TENSORS && joined; i++) joined = follows(grown[i], more[i]);
    if (!joined) {
        e->ranges[e->n_ranges++] = r;
        return;
    }
    for (int i = 0; i < RANGE_TENSORS; i++) {
        if (grown[i]->data != NULL) grown[i]->dim[0] += more[i]->dim[0];
    }
}

/* What this rank updates of a bucket: its shard, or all of it if gradients are replicated. */
static UpdateRange update_of(const Engine *e, const ParamBucket *k)
{
    const ParamTable *t = &e->params;
    Tensor part[BUF_STATE] = { 0 };
    for (int b = 0; b < BUF_STATE; b++) {
        bool there = b < BUF_OPTIMIZER || buffer_state((ParamBuffer)b) < k->rule->n_states;
        if (!there || e->memory.buffer[b].data == NULL) continue;
        bool whole = replicated(e, k);
        part[b] = whole ? bucket_whole(t, &e->memory, k, (ParamBuffer)b)
                        : bucket_own(t, &e->memory, k, (ParamBuffer)b);
    }
    UpdateRange r = { .rule = k->rule, .w = part[BUF_MAIN], .g = part[BUF_GRAD] };
    for (int i = 0; i < OPTIMIZER_STATES; i++) r.state[i] = part[BUF_OPTIMIZER + i];
    if (e->spec.weights.n > 0) r.low = part[BUF_WEIGHT];
    return r;
}

static UpdateRange part_of(UpdateRange r, int64_t first, int64_t n)
{
    Tensor *all[RANGE_TENSORS];
    tensors_of(&r, all);
    for (int i = 0; i < RANGE_TENSORS; i++) {
        if (all[i]->data != NULL) *all[i] = tensor_rows(all[i], first, n);
    }
    return r;
}

/* Is the bucket on this rank a part of the norm? Over all ranks each parameter is in the norm once:
 * of copies (replicas, two stages, a whole group) only the first rank's. */
static bool in_norm(const Engine *e, const ParamBucket *k)
{
    if (alone(e)) return true;
    const Mesh *m = e->ex.mesh;
    if (m->at.replica > 0 || (mirrored(e, k) && m->group[GROUP_MIRROR]->rank > 0)) return false;
    return !replicated(e, k) || m->group[group_of(k)]->rank == 0;
}

static void add_norm(Engine *e, Tensor g)
{
    Tensor *last = e->n_norms > 0 ? &e->norms[e->n_norms - 1] : NULL;
    assert(e->norms != NULL);
    if (last != NULL && follows(last, &g))
        last->dim[0] += g.dim[0];
    else
        e->norms[e->n_norms++] = g;
}

static MomentAge age_of(const Engine *e, const Param *p)
{
    return param_block(p->name) < e->config->model_layers ? AGE_MODEL : AGE_MODULES;
}

/* The one matrix that a range has, without the padding behind it. */
static UpdateRange matrix_of(UpdateRange r, const Param *p)
{
    Tensor *all[RANGE_TENSORS];
    tensors_of(&r, all);
    for (int i = 0; i < RANGE_TENSORS; i++) {
        if (all[i]->data == NULL) continue;
        all[i]->rank = p->rank;
        for (int d = 0; d < p->rank; d++) all[i]->dim[d] = p->dim[d];
    }
    return r;
}

/* Elements [first, end) of the bucket, which follow one rule: what of them this rank updates, and
 * counts in the norm. */
static void add_run(Engine *e, const ParamBucket *k, const Param *rule, int64_t first, int64_t end)
{
    UpdateRange all = update_of(e, k);
    Tensor g = reduced(e, k);
    int64_t n = g.dim[0], own = replicated(e, k) ? 0 : bucket_cut(k, k->own);
    first = first > own ? first - own : 0;
    end = end - own < n ? end - own : n;
    if (rule->rule == NULL || first >= end) return;
    all = part_of(all, first, end - first);
    all.decay = rule->decay;
    all.age = age_of(e, rule);
    add_range(e, rule->rule->whole_matrices ? matrix_of(all, rule) : all);
    if (in_norm(e, k)) add_norm(e, tensor_rows(&g, first, end - first));
}

/* Does an update of p and the parameter before it begin anew? Rules that need whole matrices take one
 * at a time; others go on as long as rule, decay and age are the same. */
static bool begins_run(const Engine *e, const Param *before, const Param *p)
{
    return p->decay != before->decay || p->rule != before->rule ||
           age_of(e, p) != age_of(e, before) || (p->rule != NULL && p->rule->whole_matrices);
}

/* Divides a bucket into runs. The padding behind a parameter belongs to its run: it stays zero under
 * any rule. */
static void add_bucket(Engine *e, int bucket)
{
    const ParamBucket *k = &e->params.bucket[bucket];
    const Param *rule = NULL;
    int64_t at = 0;
    for (int i = 0; i < e->params.n; i++) {
        const Param *p = &e->params.at[i];
        if (p->bucket != bucket) continue;
        int64_t first = p->first[BUF_MAIN] - k->first;
        if (rule != NULL && begins_run(e, rule, p)) {
            add_run(e, k, rule, at, first);
            at = first;
        }
        rule = p;
    }
    assert(rule != NULL); /* no bucket is empty */
    add_run(e, k, rule, at, k->n);
}

Status shards_make(Engine *e)
{
    const ParamTable *t = &e->params;
    TRY(ARENA_NEW(&e->tables, t->n + t->n_buckets, &e->ranges));
    TRY(ARENA_NEW(&e->tables, t->n + t->n_buckets, &e->norms));
    for (int i = 0; i < t->n_buckets && e->use == ENGINE_TRAIN; i++) {
        if (t->bucket[i].rule != NULL) add_bucket(e, i);
    }
    return OK;
}

/* Collectives, through the op door. */

/* root: of a broadcast alone. */
static Status collective(Engine *e, OpComm kind, MeshGroup group, int root, Tensor in, Tensor out)
{
    int64_t ranks = members(e, group), n = tensor_elems(&in), m = tensor_elems(&out);
    int64_t least = n < m ? n : m;
    if (ranks == 1 || least == 0) return OK;
    return exchange_collective(&e->ex, (Collective){ .in = tensor_as2(&in, n / least, least),
                                                     .out = tensor_as2(&out, m / least, least),
                                                     .kind = kind,
                                                     .axis = AXIS_DP,
                                                     .group = group,
                                                     .root = root,
                                                     .ranks = ranks });
}

static Status all_reduce(Engine *e, MeshGroup group, Tensor t)
{
    return collective(e, COMM_ALL_REDUCE, group, 0, t, t);
}

/* All ranks' parts of a bucket, into `whole`. Parts of unequal length are broadcast one by one. */
static Status gather_parts(Engine *e, const ParamBucket *k, Tensor own, Tensor whole)
{
    MeshGroup group = group_of(k);
    if (k->cuts == NULL) return collective(e, COMM_ALL_GATHER, group, 0, own, whole);
    Tensor mine = bucket_part(k, whole);
    if (mine.data != own.data && tensor_elems(&own) > 0)
        TRY(e->ex.backend->copy(&e->ex, mine.data, own.data, tensor_bytes(&own)));
    for (int64_t r = 0; r < k->ranks; r++) {
        int64_t first = bucket_cut(k, r);
        Tensor part = tensor_rows(&whole, first, bucket_cut(k, r + 1) - first);
        TRY(collective(e, COMM_BROADCAST, group, (int)r, part, part));
    }
    return OK;
}

/* The sum of all ranks' `whole`: of this rank's part of it at least. Parts of unequal length are not
 * scattered, so that the sum of all is made: twice the bytes. */
static Status sum_parts(Engine *e, const ParamBucket *k, Tensor whole)
{
    if (k->cuts != NULL) return all_reduce(e, group_of(k), whole);
    return collective(e, COMM_REDUCE_SCATTER, group_of(k), 0, whole, bucket_part(k, whole));
}

/* Weights. */

/* The buckets of a layer that have gradients. */
static int trained(const Engine *e, int layer, int *first)
{
    int end = params_layer(&e->params, layer, first);
    while (end > *first && e->params.bucket[end - 1].rule == NULL) end--;
    return end;
}

static Status gather(Engine *e, int first, int end)
{
    for (int i = first; i < end; i++) {
        const ParamBucket *k = &e->params.bucket[i];
        if (k->ranks == 1) continue;
        Tensor own = bucket_own(&e->params, &e->memory, k, BUF_WEIGHT);
        Tensor whole = bucket_whole(&e->params, &e->memory, k, BUF_WEIGHT);
        TRY(gather_parts(e, k, own, whole));
    }
    return OK;
}

/* What no update changes stays where every rank has it whole. */
Status shards_gather(Engine *e, int layer)
{
    int first, all = params_layer(&e->params, layer, &first), end = trained(e, layer, &first);
    return gather(e, first, e->params.sharded[BUF_WEIGHT] ? all : end);
}

Status shards_gather_all(Engine *e)
{
    bool whole = e->params.shards.zero > 0 && !e->params.sharded[BUF_WEIGHT];
    return whole ? gather(e, 0, e->params.n_buckets) : OK;
}

/* Gradients. */

static Status fill_zero(Engine *e, float *first, const float *end)
{
    if (first == end) return OK;
    return e->ex.backend->fill(&e->ex, first, 0, (size_t)(end - first) * sizeof *first);
}

/* Of experts only what lies behind their weights: biases, and what makes parts equal. */
static Status zero_bucket(Engine *e, const ParamBucket *k, Tensor whole)
{
    static const ParamRole roles[] = { ROLE_EXPERT_GATE_UP, ROLE_EXPERT_DOWN };
    float *at = whole.data, *end = tensor_at(&whole, tensor_elems(&whole));
    for (size_t i = 0; k->hold == HOLD_EXPERT && i < sizeof roles / sizeof *roles; i++) {
        const Tensor *dw = &e->weights[k->layer].dw[roles[i]];
        if (dw->data == NULL) continue; /* frozen */
        TRY(fill_zero(e, at, dw->data));
        at = tensor_at(dw, tensor_elems(dw));
    }
    return fill_zero(e, at, end);
}

/* Are the bucket's gradients made in a place, of which each rank then keeps a part of the sum? */
static bool in_place(const Engine *e, const ParamBucket *k)
{
    return e->params.sharded[BUF_GRAD] && k->ranks > 1;
}

Status shards_begin(Engine *e)
{
    for (int i = 0; i < e->params.n_buckets; i++) {
        const ParamBucket *k = &e->params.bucket[i];
        if (k->rule == NULL) continue;
        bool place = in_place(e, k);
        Tensor sum = place ? bucket_own(&e->params, &e->memory, k, BUF_GRAD)
                           : bucket_whole(&e->params, &e->memory, k, BUF_GRAD);
        TRY(place ? engine_zero(&e->arenas, &sum) : zero_bucket(e, k, sum));
    }
    memset(e->written, 0, (size_t)e->spec.n_layers * sizeof *e->written);
    return OK;
}

Status shards_zero(Engine *e, int layer)
{
    int first, end = trained(e, layer, &first);
    for (int i = first; i < end; i++) {
        const ParamBucket *k = &e->params.bucket[i];
        if (!in_place(e, k)) continue;
        TRY(zero_bucket(e, k, bucket_whole(&e->params, &e->memory, k, BUF_GRAD)));
        if (k->hold == HOLD_EXPERT) e->written[layer] = false;
    }
    return OK;
}

/* Adds gradients over the group, in the type for that (bf16 or f32). The sum replaces `whole` if
 * gradients are replicated, else this rank's part of it. */
static Status add_up(Engine *e, const ParamBucket *k, Tensor whole)
{
    Tensor in = whole, part = bucket_part(k, whole), out = replicated(e, k) ? whole : part;
    bool low = e->memory.low.data != NULL && k->hold != HOLD_WHOLE;
    if (low) {
        in = tensor_rows(&e->memory.low, 0, k->n);
        TRY(cast(&e->ex, (Cast){ whole, in }));
    }
    Tensor sum = replicated(e, k) ? in : bucket_part(k, in);
    TRY(replicated(e, k) ? all_reduce(e, group_of(k), in) : sum_parts(e, k, in));
    return low && tensor_elems(&sum) > 0 ? cast(&e->ex, (Cast){ sum, out }) : OK;
}

/* A place that passes over inputs alone have used still has another layer's gradients of experts. */
Status shards_reduce(Engine *e, int layer)
{
    int first, end = trained(e, layer, &first);
    bool parts = e->params.sharded[BUF_GRAD];
    for (int i = end - 1; i >= first; i--) {
        const ParamBucket *k = &e->params.bucket[i];
        if (parts && (k->ranks == 1 || (k->hold == HOLD_EXPERT && !e->written[layer]))) continue;
        Tensor whole = bucket_whole(&e->params, &e->memory, k, BUF_GRAD);
        TRY(add_up(e, k, whole));
        Tensor part = bucket_part(k, whole);
        if (!parts || tensor_elems(&part) == 0) continue;
        TRY(add(&e->ex, (Add){ part, bucket_own(&e->params, &e->memory, k, BUF_GRAD) }));
    }
    return OK;
}

Status shards_sum(Engine *e, int layer)
{
    int first, end = trained(e, layer, &first);
    for (int i = end - 1; i >= first; i--) {
        const ParamBucket *k = &e->params.bucket[i];
        Tensor sum = reduced(e, k);
        bool whole = k->hold == HOLD_WHOLE && e->params.sharded[BUF_GRAD];
        if (whole) TRY(all_reduce(e, group_of(k), sum));
        TRY(all_reduce(e, GROUP_REPLICA, sum));
        if (mirrored(e, k)) TRY(all_reduce(e, GROUP_MIRROR, sum));
    }
    return OK;
}
