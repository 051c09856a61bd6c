/* shards: gathers, reductions and sums of buckets, and the ranges that a rank updates or counts in the norm.
 * All communication goes through ops (exchange_collective), so tracing and costs see it. */
#include "engine/step/shards.h"

#include "engine/model/recipe.h"
#include "engine/step/checks.h"
#include "engine/step/engine_memory.h"
#include "kernels/exchange/exchange.h"
#include "kernels/norm/elementwise.h"

#include <assert.h>
#include <string.h>

ParamShards shards_of(const Config *c, const Mesh *m)
{
    const MeshShape *s = &m->shape;
    int64_t part = (int64_t)s->shard * s->cp, ranks = part * mesh_tp(s);
    return (ParamShards){ .zero = (int)c->mesh_zero,
                          .dense = ranks,
                          .part = part,
                          .expert = ranks / s->ep,
                          .dense_rank = m->at.inner,
                          .part_rank = m->at.inner / mesh_tp(s),
                          .expert_rank = m->at.expert_shard,
                          .low_reduce = c->mesh_reduce == REDUCE_BF16 };
}

/* No mesh: no group to reduce over. */
static bool is_alone(const EngineParams *w) { return w->ex->mesh == NULL; }

MeshGroup shards_group(const ParamBucket *k)
{
    if (k->shard_group == SHARD_EXPERT) return GROUP_EXPERT_SHARD;
    return shard_group_part(k->shard_group) ? GROUP_SPLIT_SHARD : GROUP_SHARD;
}

/* The number of members of a group. A counting run has no groups: there the shape says it. */
static int64_t group_members(const EngineParams *w, MeshGroup g)
{
    const Comm *c = w->groups->group[g];
    if (c != NULL) return c->size;
    return w->shape->mesh == NULL ? 1 : mesh_group_size(&w->shape->mesh->shape, g);
}

/* Does each member of the group hold the sum of the bucket's gradients whole? */
static bool replicated(const EngineParams *w, const ParamBucket *k)
{
    return w->table.shards.zero == 0 || shard_group_whole(k->shard_group);
}

/* Where the sum of a bucket's gradients over the ranks lies. */
static Tensor reduced_sum(const EngineParams *w, const ParamBucket *k)
{
    if (replicated(w, k)) return bucket_whole(&w->table, &w->memory, k, BUF_GRAD);
    return bucket_own(&w->table, &w->memory, k, BUF_GRAD);
}

/* Does another stage hold the same bucket? In DualPipe two ranks hold the same two stages; with a tied table both ends
 * of a pipeline hold the table. Each has the gradients of its own passes, and both get the sum. */
static bool on_two_stages(const EngineParams *w, const ParamBucket *k)
{
    if (w->groups->group[GROUP_REPLICA_STAGE] == NULL) return false;
    return w->both_ways || layer_desc(w->spec->layers[k->layer].kind)->begins;
}

/* Set-up. */

/* Does b begin where a ends? Buffers that both lack count as adjacent. */
static bool lies_behind(const Tensor *a, const Tensor *b)
{
    return a->data == NULL ? b->data == NULL : tensor_at(a, tensor_elems(a)) == b->data;
}

/* Lists the tensors of a range; some may have no data. */
enum { RANGE_TENSORS = 4 + OPTIMIZER_STATES };
static void tensors_of(UpdateRange *r, Tensor *out[RANGE_TENSORS])
{
    out[0] = &r->w, out[1] = &r->g, out[2] = &r->low, out[3] = &r->average;
    for (int i = 0; i < OPTIMIZER_STATES; i++) out[4 + i] = &r->state[i];
}

/* Adds a range, or extends the last one if both are adjacent in every buffer and follow the same rule. Fewer
 * ranges are fewer launches. */
static void add_range(EngineParams *w, UpdateRange r)
{
    assert(w->ranges != NULL);
    UpdateRange *last = w->n_ranges > 0 ? &w->ranges[w->n_ranges - 1] : NULL;
    Tensor *grown[RANGE_TENSORS], *more[RANGE_TENSORS];
    tensors_of(&r, more);
    bool joined = last != NULL && last->rule == r.rule && !r.rule->whole_matrices &&
                  last->decay == r.decay && last->age == r.age &&
                  !quant_out_wanted(&last->scaled) && !quant_out_wanted(&r.scaled);
    if (joined) tensors_of(last, grown);
    for (int i = 0; i < RANGE_TENSORS && joined; i++) joined = lies_behind(grown[i], more[i]);
    if (!joined) {
        w->ranges[w->n_ranges++] = r;
        return;
    }
    for (int i = 0; i < RANGE_TENSORS; i++) {
        if (grown[i]->data != NULL) grown[i]->dim[0] += more[i]->dim[0];
    }
}

/* The part of a bucket that this rank updates: its shard, or all of it if gradients are replicated. */
static UpdateRange update_of(const EngineParams *w, const ParamBucket *k)
{
    const ParamTable *t = &w->table;
    Tensor part[BUF_STATE] = { 0 };
    for (int b = 0; b < BUF_STATE; b++) {
        bool state = buffer_is_optimizers((ParamBuffer)b);
        bool there = !state || buffer_state((ParamBuffer)b) < k->rule->n_states;
        if (!there || w->memory.buffer[b].data == NULL) continue;
        bool whole = replicated(w, k);
        part[b] = whole ? bucket_whole(t, &w->memory, k, (ParamBuffer)b)
                        : bucket_own(t, &w->memory, k, (ParamBuffer)b);
    }
    UpdateRange r = {
        .rule = k->rule, .w = part[BUF_MAIN], .g = part[BUF_GRAD], .average = part[BUF_AVERAGE]
    };
    for (int i = 0; i < OPTIMIZER_STATES; i++) r.state[i] = part[BUF_OPTIMIZER + i];
    if (w->spec->weights.n > 0 && k->weight >= 0) r.low = part[BUF_WEIGHT];
    return r;
}

/* Elements [first, first + n) of each tensor of a range. */
static UpdateRange part_of(UpdateRange r, int64_t first, int64_t n)
{
    Tensor *all[RANGE_TENSORS];
    tensors_of(&r, all);
    for (int i = 0; i < RANGE_TENSORS; i++) {
        if (all[i]->data != NULL) *all[i] = tensor_rows(all[i], first, n);
    }
    return r;
}

bool shards_updated(const EngineParams *w, const Matrix *m, Tensor *main, Tensor *low,
                    int64_t *first)
{
    const ParamBucket *k = m->bucket < 0 ? NULL : &w->table.bucket[m->bucket];
    if (k == NULL || k->rule == NULL) return false;
    UpdateRange r = update_of(w, k);
    int64_t own = replicated(w, k) ? 0 : bucket_cut(k, k->own), n = r.w.dim[0];
    int64_t begin = m->first > own ? m->first : own, end = m->first + matrix_elems(m);
    if (end > own + n) end = own + n;
    if (begin >= end) return false;
    r = part_of(r, begin - own, end - begin);
    *main = r.w, *low = r.low, *first = begin - m->first;
    return true;
}

/* Is the bucket on this rank a part of the norm? Over all ranks each parameter is in the norm once:
 * of copies (replicas, two stages, a whole group) only the first rank's. */
static bool in_norm(const EngineParams *w, const ParamBucket *k)
{
    if (is_alone(w)) return true;
    const Mesh *m = w->ex->mesh;
    if (m->at.replica > 0 || (on_two_stages(w, k) && m->group[GROUP_REPLICA_STAGE]->rank > 0))
        return false;
    return !replicated(w, k) || m->group[shards_group(k)]->rank == 0;
}

/* Adds a run to the last norm, unless it goes on with the group of the run before. */
static void add_group(EngineParams *w, SquareSum *norm, int64_t first, GradGroup group)
{
    SquareRun *next = &w->norm.runs[norm->run - w->norm.runs + norm->runs];
    if (norm->runs > 0 && next[-1].group == (int)group) return;
    if (norm->runs > 0 && next[-1].first == first) {
        next[-1].group = (int)group;
        return;
    }
    *next = (SquareRun){ first, (int)group };
    norm->runs++;
}

/* Adds elements [first, first + n) of the bucket, which g holds, to the norm, or extends the last tensor if it is
 * adjacent. */
static void add_norm(EngineParams *w, const ParamBucket *k, Tensor g, int64_t first)
{
    SquareSum *last = w->norm.n > 0 ? &w->norm.at[w->norm.n - 1] : NULL;
    const int64_t n = g.dim[0];
    int64_t before = 0;
    assert(w->norm.at != NULL);
    if (last != NULL && lies_behind(&last->x, &g)) {
        before = last->x.dim[0];
        last->x.dim[0] += n;
    } else {
        const SquareRun *run = last != NULL ? last->run + last->runs : w->norm.runs;
        last = &w->norm.at[w->norm.n++];
        *last = (SquareSum){ .x = g, .run = run };
    }
    for (int i = k->begin; i < k->end; i++) {
        const Param *p = &w->table.at[i];
        const int64_t at = p->first[BUF_MAIN] - k->first - first; /* in g */
        if (p->bucket < 0 || &w->table.bucket[p->bucket] != k || at >= n) continue;
        add_group(w, last, before + (at > 0 ? at : 0), grad_group(p->role));
    }
}

/* Modules of multi-token prediction may be younger than the model (init.moments). */
static MomentAge age_of(const EngineParams *w, const Param *p)
{
    return param_block(p->name) < w->config->model_layers ? AGE_MODEL : AGE_MODULES;
}

/* The range as matrices of p's size: one (rows, cols), or several side by side. Ranks of tp that split them hold
 * equal buckets, which are cut alike: they own parts of the same matrices, in the same ranges. */
static UpdateRange matrices_of(UpdateRange r, const Param *p)
{
    Tensor *all[RANGE_TENSORS];
    tensors_of(&r, all);
    const int64_t count = r.w.dim[0] / param_elems(p);
    param_split_range(p, &r);
    for (int i = 0; i < RANGE_TENSORS; i++) {
        if (all[i]->data == NULL) continue;
        *all[i] = tensor_as4(all[i], count, p->dim[0], p->dim[1], 1);
        all[i]->rank = 3;
        if (count == 1) *all[i] = tensor_as2(all[i], p->dim[0], p->dim[1]);
    }
    return r;
}

/* Other ranks map this rank's scratch (exchange direct), so it has one size on all ranks: that which the
 * owner of a whole run would need. */
static void need_scratch(EngineParams *w, const Param *p, int64_t count)
{
    UpdateRange r = { .rule = p->rule, .w = { .rank = 3, .dim = { count, p->dim[0], p->dim[1] } } };
    param_split_range(p, &r);
    const size_t bytes = p->rule->scratch(w->ex, &w->spec->optimizer, &r);
    if (bytes > w->update_scratch) w->update_scratch = bytes;
}

/* Is this rank the first of those of tp that hold the same part? */
static bool holds_first(const EngineParams *w, const Param *p)
{
    return p->copies == 1 || w->ex->mesh == NULL || w->ex->mesh->at.tp % p->copies == 0;
}

/* Does p begin a new run after the parameter before it? Runs continue while rule, decay, copies and age are the same,
 * and of rules on whole matrices while they are equal parts of one fused matrix, split alike. */
static bool begins_run(const EngineParams *w, const Param *before, const Param *p)
{
    const bool whole = p->rule != NULL && p->rule->whole_matrices;
    return p->decay != before->decay || p->rule != before->rule || p->copies != before->copies ||
           age_of(w, p) != age_of(w, before) ||
           (whole && (p->role != before->role || p->split != before->split ||
                      p->dim[0] != before->dim[0] || p->dim[1] != before->dim[1]));
}

/* Do all parameters of a matrix follow one rule, so that a range can have it whole? With more ranks of tp than heads of
 * keys, q has other copies than k and v. */
static bool in_one_run(const EngineParams *w, const ParamBucket *k, const Matrix *m)
{
    const Param *before = NULL;
    for (int i = k->begin; i < k->end; i++) {
        const Param *p = &w->table.at[i];
        const int64_t at = p->first[BUF_MAIN] - k->first - m->first;
        if (p->bucket != m->bucket || at < 0 || at >= matrix_elems(m)) continue;
        if (before != NULL && begins_run(w, before, p)) return false;
        before = p;
    }
    return true;
}

bool shards_update_copies(const EngineParams *w, const Matrix *m)
{
    const ParamBucket *k = m->bucket < 0 ? NULL : &w->table.bucket[m->bucket];
    const LayerDesc *desc = layer_desc(w->spec->layers[m->layer].kind);
    const QuantOut copies = recipe_copies(w->spec, &w->layer[m->layer], m->role);
    const bool later = w->spec->optimizer.qk_clip > 0 && desc->clips != NULL;
    if (k == NULL || k->rule == NULL || !k->rule->writes_copies || !quant_out_wanted(&copies))
        return false;
    return w->training && (replicated(w, k) || k->ranks == 1) && !later &&
           !w->config->optimizer_offload && in_one_run(w, k, m);
}

/* Adds the range of elements that begin at `first` of the bucket. A matrix whose copies the update writes is a range of
 * its own. */
static void add_ranges(EngineParams *w, const ParamBucket *k, UpdateRange all, int64_t first)
{
    const int64_t end = first + all.w.dim[0];
    int64_t at = first;
    for (int i = 0; i < w->table.n_matrices; i++) {
        const Matrix *m = &w->table.matrix[i];
        const int64_t n = matrix_elems(m);
        if (m->bucket != k - w->table.bucket || m->first < at || m->first + n > end) continue;
        if (!shards_update_copies(w, m)) continue;
        if (m->first > at) add_range(w, part_of(all, at - first, m->first - at));
        UpdateRange whole = part_of(all, m->first - first, n);
        whole.scaled = recipe_copies(w->spec, &w->layer[m->layer], m->role);
        whole.block = w->spec->layers[m->layer].block;
        add_range(w, whole);
        at = m->first + n;
    }
    if (end > at) add_range(w, part_of(all, at - first, end - at));
}

/* Adds elements [first, end) of the bucket, which follow one rule: the part that this rank updates, and the
 * part that it counts in the norm. last: the last parameter there. */
static void add_run(EngineParams *w, const ParamBucket *k, const Param *last, int64_t first,
                    int64_t end)
{
    UpdateRange all = update_of(w, k);
    Tensor g = reduced_sum(w, k);
    const bool whole = last->rule != NULL && last->rule->whole_matrices;
    const int64_t padded = last->first[BUF_MAIN] - k->first + param_elems(last);
    if (whole) need_scratch(w, last, (padded - first) / param_elems(last));
    int64_t n = g.dim[0], own = replicated(w, k) ? 0 : bucket_cut(k, k->own);
    first = first > own ? first - own : 0;
    end = end - own < n ? end - own : n;
    if (last->rule == NULL || first >= end) return;
    /* Without the padding, which lies behind the last matrix. */
    all = part_of(all, first, (whole && padded - own < end ? padded - own : end) - first);
    all.decay = last->decay;
    all.age = age_of(w, last);
    if (whole)
        add_range(w, matrices_of(all, last));
    else
        add_ranges(w, k, all, own + first);
    if (in_norm(w, k) && holds_first(w, last))
        add_norm(w, k, tensor_rows(&g, first, end - first), own + first);
}

/* Divides a bucket into runs. The padding behind a parameter belongs to its run: it stays zero under any rule. */
static void add_bucket(EngineParams *w, int bucket)
{
    const ParamBucket *k = &w->table.bucket[bucket];
    const Param *rule = NULL;
    int64_t at = 0;
    for (int i = k->begin; i < k->end; i++) {
        const Param *p = &w->table.at[i];
        if (p->bucket != bucket) continue;
        int64_t first = p->first[BUF_MAIN] - k->first;
        if (rule != NULL && begins_run(w, rule, p)) {
            add_run(w, k, rule, at, first);
            at = first;
        }
        rule = p;
    }
    assert(rule != NULL); /* no bucket is empty */
    add_run(w, k, rule, at, k->n);
}

/* Each bucket gives a range for each run of parameters, joined over buckets where memory is adjacent. */
Status shards_make(EngineParams *w)
{
    const ParamTable *t = &w->table;
    TRY(ARENA_NEW(w->tables, 2 * t->n + t->n_buckets,
                  &w->ranges)); /* matrices, and what is between */
    TRY(ARENA_NEW(w->tables, t->n + t->n_buckets, &w->norm.at));
    TRY(ARENA_NEW(w->tables, t->n + t->n_buckets, &w->norm.runs));
    for (int i = 0; i < t->n_buckets && w->training; i++) {
        if (t->bucket[i].rule != NULL) add_bucket(w, i);
    }
    return OK;
}

/* Collectives, as ops. */

/* root: only for a broadcast. */
static Status run_collective(EngineParams *w, OpComm kind, MeshGroup group, int root, Tensor in,
                             Tensor out)
{
    int64_t ranks = group_members(w, group), n = tensor_elems(&in), m = tensor_elems(&out);
    int64_t least = n < m ? n : m;
    if (ranks == 1 || least == 0) return OK;
    return exchange_collective(w->ex, (Collective){ .in = tensor_as2(&in, n / least, least),
                                                    .out = tensor_as2(&out, m / least, least),
                                                    .kind = kind,
                                                    .axis = AXIS_DP,
                                                    .group = group,
                                                    .root = root,
                                                    .ranks = ranks });
}

/* In place, over all members of the group. */
static Status all_reduce(EngineParams *w, MeshGroup group, Tensor t)
{
    return run_collective(w, COMM_ALL_REDUCE, group, 0, t, t);
}

/* Gathers the parts of all ranks into `whole`. Parts of unequal length are broadcast one by one, because an
 * all-gather needs equal ones. */
static Status gather_parts(EngineParams *w, const ParamBucket *k, Tensor own, Tensor whole)
{
    MeshGroup group = shards_group(k);
    if (k->cuts == NULL) return run_collective(w, COMM_ALL_GATHER, group, 0, own, whole);
    Tensor mine = bucket_part(k, whole);
    if (mine.data != own.data && tensor_elems(&own) > 0)
        TRY(w->ex->backend->copy(w->ex, mine.data, own.data, tensor_bytes(&own)));
    for (int64_t r = 0; r < k->ranks; r++) {
        int64_t first = bucket_cut(k, r);
        Tensor part = tensor_rows(&whole, first, bucket_cut(k, r + 1) - first);
        TRY(run_collective(w, COMM_BROADCAST, group, (int)r, part, part));
    }
    return OK;
}

/* Sums `whole` over the ranks; this rank needs only its part of the sum. Parts of unequal length cannot be
 * reduce-scattered, so they are all-reduced: twice the bytes. */
static Status sum_parts(EngineParams *w, const ParamBucket *k, Tensor whole)
{
    if (k->cuts != NULL) return all_reduce(w, shards_group(k), whole);
    return run_collective(w, COMM_REDUCE_SCATTER, shards_group(k), 0, whole, bucket_part(k, whole));
}

/* Weights. */

/* The buckets of a layer that have gradients. */
static int trained_buckets(const EngineParams *w, int layer, int *first)
{
    int end = params_layer(&w->table, layer, first);
    while (end > *first && w->table.bucket[end - 1].rule == NULL) end--;
    return end;
}

Status shards_quantise(EngineParams *w, int bucket, bool all)
{
    const ParamTable *t = &w->table;
    w->ex->layer = w->spec->layers[t->bucket[bucket].layer].block;
    for (int i = 0; i < t->n_matrices; i++) {
        const Matrix *m = &t->matrix[i];
        if (m->bucket != bucket || (!all && shards_update_copies(w, m))) continue;
        TRY(recipe_refresh(w->ex, w->spec, &w->layer[m->layer], m->role));
    }
    return OK;
}

/* A staged bucket: the update wrote only this rank's main weights, which are cast now. The next bucket
 * overwrites the stage, so this one is quantised at once. */
static Status gather_bucket(EngineParams *w, int bucket)
{
    const ParamBucket *k = &w->table.bucket[bucket];
    Tensor own = bucket_own(&w->table, &w->memory, k, BUF_WEIGHT);
    Tensor whole = bucket_whole(&w->table, &w->memory, k, BUF_WEIGHT);
    Tensor main = bucket_own(&w->table, &w->memory, k, BUF_MAIN);
    if (bucket_staged(k) && tensor_elems(&own) > 0) TRY(cast(w->ex, (Cast){ main, own }));
    TRY(gather_parts(w, k, own, whole));
    return bucket_staged(k) ? shards_quantise(w, bucket, true) : OK;
}

static Status gather_buckets(EngineParams *w, int first, int end)
{
    for (int i = first; i < end; i++) {
        if (w->table.bucket[i].ranks > 1) TRY(gather_bucket(w, i));
    }
    return OK;
}

/* Frozen weights that are replicated need no gather: no update changes them. */
Status shards_gather(EngineParams *w, int layer)
{
    int first, all = params_layer(&w->table, layer, &first),
               end = trained_buckets(w, layer, &first);
    return gather_buckets(w, first, w->table.sharded[BUF_WEIGHT] ? all : end);
}

/* After a load or an init: later the Program gathers what an update changed. */
Status shards_gather_all(EngineParams *w)
{
    bool whole = w->table.shards.zero > 0 && !w->table.sharded[BUF_WEIGHT];
    return whole ? gather_buckets(w, 0, w->table.n_buckets) : OK;
}

/* Gradients. */

static Status fill_zero(EngineParams *w, float *first, const float *end)
{
    if (first == end) return OK;
    return w->ex->backend->fill(w->ex, first, 0, (size_t)(end - first) * sizeof *first);
}

/* For expert buckets, zeroes only biases and padding: their weight gradients are overwritten. Biases
 * under a rule of their own are another bucket, which has no weight gradients. */
static Status zero_bucket(EngineParams *w, const ParamBucket *k, Tensor whole)
{
    static const ParamRole roles[] = { ROLE_EXPERT_GATE_UP, ROLE_EXPERT_DOWN };
    float *at = whole.data, *end = tensor_at(&whole, tensor_elems(&whole));
    for (size_t i = 0; k->shard_group == SHARD_EXPERT && i < sizeof roles / sizeof *roles; i++) {
        const Tensor *dw = &w->layer[k->layer].dw[roles[i]];
        const float *first = dw->data; /* NULL: frozen */
        if (first == NULL || first < at || first >= end) continue;
        TRY(fill_zero(w, at, dw->data));
        at = tensor_at(dw, tensor_elems(dw));
    }
    return fill_zero(w, at, end);
}

/* Are the bucket's gradients made in a half of the gather buffer, and then reduced to shards? */
static bool in_place(const EngineParams *w, const ParamBucket *k)
{
    return w->table.sharded[BUF_GRAD] && k->ranks > 1;
}

Status shards_begin(EngineParams *w)
{
    for (int i = 0; i < w->table.n_buckets; i++) {
        const ParamBucket *k = &w->table.bucket[i];
        if (k->rule == NULL) continue;
        bool place = in_place(w, k);
        Tensor sum = place ? bucket_own(&w->table, &w->memory, k, BUF_GRAD)
                           : bucket_whole(&w->table, &w->memory, k, BUF_GRAD);
        TRY(place ? engine_zero(w->arenas, &sum) : zero_bucket(w, k, sum));
    }
    memset(w->written, 0, (size_t)w->spec->n_layers * sizeof *w->written);
    return OK;
}

/* An expert layer's half begins anew in each pass, so its first gradients overwrite it again. */
Status shards_zero(EngineParams *w, int layer)
{
    int first, end = trained_buckets(w, layer, &first);
    for (int i = first; i < end; i++) {
        const ParamBucket *k = &w->table.bucket[i];
        if (!in_place(w, k)) continue;
        TRY(zero_bucket(w, k, bucket_whole(&w->table, &w->memory, k, BUF_GRAD)));
        if (k->shard_group == SHARD_EXPERT) w->written[layer] = false;
    }
    return OK;
}

/* Adds gradients over the group, in the type for that (bf16 or f32). The sum replaces `whole` if
 * gradients are replicated, else this rank's part of it. */
static Status reduce_bucket(EngineParams *w, const ParamBucket *k, Tensor whole)
{
    Tensor in = whole, part = bucket_part(k, whole), out = replicated(w, k) ? whole : part;
    bool low = w->memory.low.data != NULL && !shard_group_whole(k->shard_group);
    if (low) {
        in = tensor_rows(&w->memory.low, 0, k->n);
        TRY(cast(w->ex, (Cast){ whole, in }));
    }
    Tensor sum = replicated(w, k) ? in : bucket_part(k, in);
    TRY(replicated(w, k) ? all_reduce(w, shards_group(k), in) : sum_parts(w, k, in));
    return low && tensor_elems(&sum) > 0 ? cast(w->ex, (Cast){ sum, out }) : OK;
}

/* Expert gradients that no pass has written yet (EngineParams.written) are skipped: after a pass of input
 * gradients only, the half of `gathered` still has those of another layer. */
Status shards_reduce(EngineParams *w, int layer)
{
    int first, end = trained_buckets(w, layer, &first);
    bool parts = w->table.sharded[BUF_GRAD];
    for (int i = end - 1; i >= first; i--) {
        const ParamBucket *k = &w->table.bucket[i];
        if (parts && (k->ranks == 1 || (k->shard_group == SHARD_EXPERT && !w->written[layer])))
            continue;
        Tensor whole = bucket_whole(&w->table, &w->memory, k, BUF_GRAD);
        TRY(checks_add(w, layer, VERIFY_OWN, whole));
        TRY(reduce_bucket(w, k, whole));
        Tensor part = bucket_part(k, whole);
        if (!parts || tensor_elems(&part) == 0) continue;
        TRY(add(w->ex, (Add){ part, bucket_own(&w->table, &w->memory, k, BUF_GRAD) }));
    }
    return OK;
}

/* Ranks of tp that hold the same heads of keys and values have the gradients of their own queries. All members
 * hold the same range of the bucket. */
static Status sum_copies(EngineParams *w, int bucket, Tensor sum)
{
    const ParamBucket *k = &w->table.bucket[bucket];
    const int64_t own = replicated(w, k) ? 0 : bucket_cut(k, k->own), end = own + sum.dim[0];
    for (int i = 0; i < w->table.n && group_members(w, GROUP_KEYS) > 1; i++) {
        const Param *p = &w->table.at[i];
        if (p->bucket != bucket || p->copies == 1) continue;
        int64_t first = p->first[BUF_MAIN] - k->first, last = first + param_elems(p);
        if (first < own) first = own;
        if (last > end) last = end;
        if (first < last)
            TRY(all_reduce(w, GROUP_KEYS, tensor_rows(&sum, first - own, last - first)));
    }
    return OK;
}

Status shards_sum(EngineParams *w, int layer)
{
    int first, end = trained_buckets(w, layer, &first);
    for (int i = end - 1; i >= first; i--) {
        const ParamBucket *k = &w->table.bucket[i];
        Tensor sum = reduced_sum(w, k);
        bool whole = shard_group_whole(k->shard_group) && w->table.sharded[BUF_GRAD];
        TRY(checks_add(w, layer, whole ? VERIFY_OWN : VERIFY_GROUP, sum));
        if (whole) TRY(all_reduce(w, shards_group(k), sum));
        TRY(all_reduce(w, GROUP_REPLICA, sum));
        if (on_two_stages(w, k)) TRY(all_reduce(w, GROUP_REPLICA_STAGE, sum));
        TRY(sum_copies(w, i, sum));
    }
    return OK;
}

Status shards_check(EngineParams *w)
{
    for (int i = 0; i < w->table.n_buckets; i++) {
        const ParamBucket *k = &w->table.bucket[i];
        if (k->rule != NULL) TRY(checks_add(w, k->layer, VERIFY_SUM, reduced_sum(w, k)));
    }
    return OK;
}
