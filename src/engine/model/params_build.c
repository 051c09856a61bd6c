/*
 * params_build: makes the table of parameters: which there are, into which buckets they go, and
 * where each lies in the flat space; then binds layers to their weights. Memory and sizes are
 * params.c's.
 *
 * The order: each layer adds its parameters (params_add); place_params groups those of a layer into
 * buckets, with offsets from the bucket's first element; shard_buffers then gives buckets their
 * position in the flat and the shard space, rule by rule, and makes parameters' offsets absolute.
 */
#include "engine/model/recipe.h"

#include <assert.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>

struct ParamList {
    ParamTable *table;
    Arena *arena;
    int layer;
    const ModelSpec *model;
    const LayerSpec *spec;
    int rank;                 /* of the pipeline */
    unsigned frozen, trained; /* only if table is NULL: bits of roles that have such parameters */
};

static int64_t aligned(int64_t n) { return (n + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN; }

/* The table grows in place: nothing else is taken from the arena while it is built. */
static Status table_grow(ParamTable *t, Arena *a)
{
    if (t->n < t->cap) return OK;
    void *more = NULL;
    TRY(arena_alloc(a, 64 * sizeof *t->at, &more));
    if (t->at == NULL) t->at = more;
    assert((char *)more ==
           (char *)(t->at + t->cap)); /* 64 Params are a multiple of the alignment */
    t->cap += 64;
    return OK;
}

/* A shell pattern, as in init.frozen=model.layers.0.*. */
static bool name_matches(const char *pattern, const Param *p)
{
    return fnmatch(pattern, p->name, 0) == 0;
}

static bool is_frozen(const ModelSpec *s, const Param *p)
{
    for (int i = 0; s->frozen != NULL && i < s->frozen->n; i++) {
        if (name_matches(s->frozen->at[i], p)) return true;
    }
    return false;
}

/* A clipped head scales queries and keys by one pair of factors. Layers in which all these weights are
 * frozen are not clipped. */
static Status check_clipped(const ModelSpec *s, const ParamTable *t)
{
    const Param *first = NULL;
    for (int i = 0; i < t->n; i++) {
        const Param *p = &t->at[i];
        const LayerSpec *l = &s->layers[p->layer];
        const LayerDesc *desc = layer_desc(l->kind);
        QkRows rows = { 0 };
        if (desc->clips != NULL) rows = desc->clips(l, p->role);
        if (rows.queries + rows.keys == 0) continue;
        if (first == NULL || first->layer != p->layer) first = p;
        if ((first->rule == NULL) == (p->rule == NULL)) continue;
        return FAIL(ERR_ARG,
                    "optimizer.qk_clip scales %s and %s of a layer together, and init.frozen "
                    "names only one of them: name both or neither",
                    first->name, p->name);
    }
    return OK;
}

Status params_check_frozen(const ModelSpec *s, const ParamTable *t)
{
    for (int i = 0; s->frozen != NULL && i < s->frozen->n; i++) {
        int at = 0;
        while (at < t->n && !name_matches(s->frozen->at[i], &t->at[at])) at++;
        if (at < t->n) continue;
        return FAIL(ERR_ARG, "init.frozen: %s is the name of no parameter; the first of %d is %s",
                    s->frozen->at[i], t->n, t->at[0].name);
    }
    if (t->frozen == t->total)
        return FAIL(ERR_ARG, "init.frozen names all parameters, nothing is left to train");
    return s->optimizer.qk_clip > 0 ? check_clipped(s, t) : OK;
}

static void count_param(ParamTable *t, const LayerSpec *l, const Param *p)
{
    int64_t n = param_whole_elems(p);
    t->total += n;
    if (p->rule == NULL) t->frozen += n;
    /* Experts are alike: the first top_k of them stand for those that a token takes. */
    if (p->expert >= 0 && p->expert >= l->as.moe.rule.top_k) return;
    t->active += n;
    if (p->rank == 2 && p->role != ROLE_TABLE) t->active_matrix += n;
}

/* rule[0] is for matrices of hidden layers; the table, the head, vectors and single rows get
 * rule[1]. rule[1] NULL: rule[0] serves all. */
static const OptimizerDesc *rule_of(const ModelSpec *s, const Param *p)
{
    const OptimizerDesc *const *rule = s->optimizer.rule;
    bool matrix = p->rank == 2 && p->dim[0] > 1 && !p->keep_f32;
    bool inside = p->role != ROLE_TABLE && p->role != ROLE_HEAD;
    return rule[1] == NULL || (matrix && inside) ? rule[0] : rule[1];
}

/* Consecutive ranks of tp hold the same part if there are fewer parts than ranks. Experts have parts on ranks of
 * etp. */
static void split_param(Param *p, const SpecRanks *ranks, int64_t parts)
{
    if ((p->expert >= 0 ? ranks->etp : ranks->tp) == 1) p->split = SPLIT_NONE;
    if (p->split == SPLIT_NONE) return;
    if (p->expert >= 0) {
        p->parts = ranks->etp;
        p->part = ranks->ep_rank % ranks->etp;
    } else {
        p->parts = parts > 0 ? parts : ranks->tp;
        p->copies = ranks->tp / p->parts;
        p->part = ranks->tp_rank / p->copies;
    }
    p->dim[p->split == SPLIT_COLS] /= p->parts;
}

Status params_add(ParamList *l, ParamAdd add, const char *name, ...)
{
    ParamTable *t = l->table;
    Param p = { .layer = l->layer,
                .expert = add.expert,
                .rank = add.rows == 0 ? 1 : 2,
                .role = add.role,
                .init = add.init,
                .decay = add.decay,
                .keep_f32 = add.keep_f32,
                .split = add.split,
                .parts = 1,
                .copies = 1,
                .second = l->spec->rank != l->rank };
    va_list ap;
    va_start(ap, name);
    int length = vsnprintf(p.name, sizeof p.name, name, ap);
    va_end(ap);
    if (length >= (int)sizeof p.name) {
        return FAIL(ERR_ARG, "parameter name %s... is longer than %d", p.name, PARAM_NAME_MAX - 1);
    }
    p.dim[0] = add.rows == 0 ? add.cols : add.rows;
    p.dim[1] = add.cols;
    split_param(&p, &l->model->ranks, add.parts);
    p.bucket = -1;
    bool frozen = is_frozen(l->model, &p);
    p.rule = frozen ? NULL : rule_of(l->model, &p);
    for (int b = 0; b < BUF_COUNT; b++) p.first[b] = -1;
    if (t == NULL) {
        if (frozen || !add.state) *(frozen ? &l->frozen : &l->trained) |= 1U << p.role;
        return OK;
    }
    TRY(table_grow(t, l->arena));
    if (add.state) {
        p.first[BUF_STATE] = aligned(t->elems[BUF_STATE]);
        t->elems[BUF_STATE] = p.first[BUF_STATE] + param_elems(&p);
    } else {
        count_param(t, l->spec, &p);
    }
    t->at[t->n++] = p;
    return OK;
}

/* Needs no table: with ParamList.table NULL, params_add only notes which roles have frozen and
 * trained parameters. ep = etp = 1 in `whole`, so all ranks see all experts. */
Status params_freeze(ModelSpec *s, const ModelSpec *like)
{
    ModelSpec whole = *s;
    bool none = true;
    whole.ranks.ep = whole.ranks.etp = 1;
    for (int i = 0; i < s->n_layers && s->frozen->n > 0; i++) {
        LayerSpec *l = &s->layers[i];
        ParamList list = { .model = s, .spec = l };
        if (like == NULL) TRY(layer_desc(l->kind)->params(&whole, l, &list));
        none &= list.trained == 0;
        l->frozen = like != NULL ? like->layers[i].frozen : list.frozen & ~list.trained;
        l->no_backward = like != NULL ? like->layers[i].no_backward : none;
        l->recompute = layer_recompute(l, l->recompute);
    }
    return OK;
}

/* Are parameters of this rule in the buffer? rule NULL: frozen ones. */
static bool rule_has(const ModelSpec *s, const OptimizerDesc *rule, ParamBuffer b)
{
    if (b == BUF_WEIGHT || b == BUF_MAIN) return true;
    if (b == BUF_GRAD) return rule != NULL;
    if (b == BUF_AVERAGE) return rule != NULL && optimizer_follows(&s->optimizer, RULE_AVERAGE);
    return rule != NULL && buffer_state(b) < rule->n_states;
}

Status spec_like(const Config *c, const ModelSpec *like, Arena *a, ModelSpec *out)
{
    TRY(spec_layers(c, a, out));
    return params_freeze(out, like);
}

Status spec_build(const Config *c, Arena *a, ModelSpec *out) { return spec_like(c, NULL, a, out); }

/* The order of buckets: by falling number of state buffers. So a buffer needs only the beginning of the flat space. */
enum { BUCKET_RULES = OPTIMIZER_RULES + 1, LAYER_BUCKETS = BUCKET_RULES * (SHARD_GROUPS + 1) };
static void rules_in_order(const ModelSpec *s, const OptimizerDesc *out[BUCKET_RULES])
{
    out[0] = s->optimizer.rule[1], out[1] = s->optimizer.rule[0], out[2] = NULL;
    if (out[0] == NULL) out[0] = out[1], out[1] = NULL; /* one rule: the last two are the same */
    assert(out[1] == NULL || out[0]->n_states >= out[1]->n_states);
}

/* Buckets and matrices. */

static void add_size(ParamSizes *z, const ParamBucket *k, int64_t n)
{
    z->flat += n;
    *(shard_group_whole(k->shard_group) ? &z->whole : &z->layer) += n;
    if (k->shard_group == SHARD_EXPERT) z->expert += n;
    if (k->shard_group == SHARD_PART) z->part += n;
}

/* Is the bucket in the buffer? */
static bool bucket_has(const ModelSpec *s, const ParamBucket *k, ParamBuffer b)
{
    return rule_has(s, k->rule, b) && (b != BUF_WEIGHT || k->weight >= 0);
}

/* copies: the bytes that products read of the bucket. */
static void add_bucket_sizes(ParamSpaces *layer, const ModelSpec *s, const ParamBucket *k,
                             int64_t copies)
{
    for (int b = 0; b < BUF_STATE; b++) {
        if (bucket_has(s, k, (ParamBuffer)b)) add_size(&layer->of[b], k, k->n);
    }
    if (k->weight >= 0)
        add_size(&layer->copies, k, copies);
    else if (k->n > layer->unread[k->shard_group])
        layer->unread[k->shard_group] = k->n;
}

/* Do products read nothing of these matrices but 8-bit copies that last? Weights that are gathered
 * for each use are quantised for each. In f32 there is nothing to save: BUF_WEIGHT is the main buffer. */
static bool all_quantised(const ModelSpec *s, const ParamShards *shards, const Matrix *m,
                          const Matrix *end)
{
    bool gathered = shards->zero >= 3 && !shards_alone(shards);
    bool all = s->weights.n > 0 && !gathered && !s->recipe.per_use;
    for (; m < end; m++) all = all && recipe_quantises(s, &s->layers[m->layer], m->role);
    return all;
}

/* Is the parameter in this bucket of its layer? Where only some parameters of a role are frozen, they stay among the
 * others, so that the fused matrix has no gap, and their gradients are not read. */
static bool in_bucket(const ModelSpec *s, const Param *p, const ParamBucket *k)
{
    const bool part = p->split != SPLIT_NONE;
    ShardGroup shard_group = p->keep_f32      ? (part ? SHARD_WHOLE_PART : SHARD_WHOLE)
                             : p->expert >= 0 ? SHARD_EXPERT
                             : part           ? SHARD_PART
                                              : SHARD_DENSE;
    const LayerSpec *layer = &s->layers[k->layer];
    const OptimizerDesc *rule = role_frozen(layer, p->role) ? NULL : rule_of(s, p);
    bool biases = p->expert >= 0 && p->rank == 1 && recipe_quantises(s, layer, ROLE_EXPERT_DOWN);
    return p->first[BUF_STATE] < 0 && shard_group == k->shard_group && rule == k->rule &&
           biases == k->biases;
}

/* Adds a parameter at an element of its bucket (or of BUF_STATE) to the matrix of its role. */
static void add_to_matrix(ParamTable *t, const Param *p, int64_t at)
{
    assert(t->matrix != NULL);
    Matrix *m = &t->matrix[t->n_matrices > 0 ? t->n_matrices - 1 : 0];
    if (t->n_matrices == 0 || m->layer != p->layer || m->role != p->role) {
        m = &t->matrix[t->n_matrices++];
        *m = (Matrix){ .layer = p->layer,
                       .role = p->role,
                       .bucket = p->bucket,
                       .first = at,
                       .keep_f32 = p->keep_f32 };
    }
    matrix_grow(m, p->rank, p->dim, p->expert);
    assert(m->first + matrix_elems(m) >= at + param_elems(p)); /* without a gap */
}

/* The cost of updating the parameter, in any unit; for a frozen one its memory. */
static double update_cost(const ModelSpec *s, const ParamBucket *k, const Param *p)
{
    UpdateRange r = { .rule = k->rule };
    param_split_range(p, &r);
    r.w = r.g = (Tensor){ .rank = p->rank, .dim = { p->dim[0], p->dim[1] } };
    return k->rule == NULL ? (double)param_elems(p) : k->rule->cost(&s->optimizer, &r).flops;
}

/* Cuts a bucket between its parameters, which are among [first, end) of the table. Only `cuts` stays in the arena. */
static Status cut_matrices(const ModelSpec *s, const ParamTable *t, int first, int end,
                           ParamBucket *k, Arena *a)
{
    int64_t *cuts = NULL;
    double *cost = NULL;
    int *of = NULL, *last = NULL, n = 0;
    TRY(ARENA_NEW(a, k->ranks + 1, &cuts));
    ArenaMark mark = arena_mark(a);
    TRY(ARENA_NEW(a, end - first, &cost));
    TRY(ARENA_NEW(a, end - first, &of));
    TRY(ARENA_NEW(a, k->ranks, &last));
    for (int i = first; i < end; i++) {
        if (t->at[i].bucket != t->n_buckets) continue;
        cost[n] = update_cost(s, k, &t->at[i]);
        of[n++] = i;
    }
    matrix_cut(cost, n, k->ranks, last);
    cuts[0] = 0;
    for (int64_t r = 0; r < k->ranks; r++)
        cuts[r + 1] = last[r] < n ? t->at[of[last[r]]].first[BUF_MAIN] : k->n;
    k->cuts = cuts;
    arena_release(a, mark);
    return OK;
}

/* Fills bucket k with those of a layer's parameters [first, end) that belong to it; an empty bucket is not added. Each
 * role starts at an aligned element, and the whole bucket divides into aligned parts. */
static Status fill_bucket(ParamTable *t, const ModelSpec *spec, int first, int end, ParamBucket k,
                          ParamSpaces *layer, Arena *a)
{
    const ParamShards *s = &t->shards;
    const int64_t ranks[] = { 1, 1, s->dense, s->part, s->expert };
    const int64_t own[] = { 0, 0, s->dense_rank, s->part_rank, s->expert_rank };
    if (s->zero > 0 && ranks[k.shard_group] > 1)
        k.ranks = ranks[k.shard_group], k.own = own[k.shard_group];
    int64_t at = 0, bytes = 0;
    int role = -1, matrices = t->n_matrices;
    for (int i = first; i < end; i++) {
        Param *p = &t->at[i];
        if (!in_bucket(spec, p, &k)) continue;
        if (p->role != (ParamRole)role) at = aligned(at);
        p->first[BUF_MAIN] = at;
        p->bucket = t->n_buckets;
        add_to_matrix(t, p, at);
        role = (int)p->role;
        at += param_elems(p);
    }
    if (at == 0) return OK;
    bool whole = s->cut == CUT_MATRICES || (k.rule != NULL && k.rule->whole_matrices);
    int64_t unit = (whole ? 1 : k.ranks) * PARAM_ALIGN;
    k.n = (at + unit - 1) / unit * unit;
    if (whole && k.ranks > 1) TRY(cut_matrices(spec, t, first, end, &k, a));
    at = k.n;
    if (all_quantised(spec, s, &t->matrix[matrices], &t->matrix[t->n_matrices])) k.weight = -1;
    for (; matrices < t->n_matrices; matrices++) {
        const Matrix *m = &t->matrix[matrices];
        int64_t n = matrix_elems(m), cols = m->dim[m->rank - 1];
        bytes += (int64_t)copies_bytes(&spec->weights, n / cols, cols);
        layer->scaled += (int64_t)recipe_bytes(spec, &spec->layers[m->layer], m->role, m);
        at -= n;
    }
    bytes += (int64_t)copies_bytes(&spec->weights, 1, at); /* padding */
    t->bucket[t->n_buckets++] = k;
    add_bucket_sizes(layer, spec, &k, bytes);
    return OK;
}

static void add_sizes(ParamSizes *z, const ParamSizes *more)
{
    z->flat += more->flat, z->part += more->part;
    z->expert += more->expert, z->whole += more->whole;
    if (more->layer > z->layer) z->layer = more->layer;
}

void spaces_add(ParamSpaces *sum, const ParamSpaces *more)
{
    for (int b = 0; b < BUF_STATE; b++) add_sizes(&sum->of[b], &more->of[b]);
    add_sizes(&sum->copies, &more->copies);
    sum->scaled += more->scaled;
    for (int g = 0; g < SHARD_GROUPS; g++) {
        if (more->unread[g] > sum->unread[g]) sum->unread[g] = more->unread[g];
    }
}

/* Makes the buckets of a layer, whose parameters are [first, end) of the table. Experts' biases are no 8-bit operands:
 * in one bucket with their matrices they would keep copies of all in run.compute's type. */
static Status place_layer(ParamTable *t, const ModelSpec *s, int first, int end, Arena *a)
{
    const OptimizerDesc *rules[BUCKET_RULES];
    ParamBucket k = { .layer = t->at[first].layer, .ranks = 1 };
    ParamSpaces layer = { 0 };
    rules_in_order(s, rules);
    for (int i = 0; i < LAYER_BUCKETS; i++) {
        int r = i / (SHARD_GROUPS + 1), group = i % (SHARD_GROUPS + 1);
        if (r > 0 && rules[r] == rules[r - 1]) continue;
        k.rule = rules[r];
        k.biases = group == SHARD_GROUPS;
        k.shard_group = k.biases ? SHARD_EXPERT : (ShardGroup)group;
        TRY(fill_bucket(t, s, first, end, k, &layer, a));
    }
    spaces_add(&t->spaces, &layer);
    for (const Param *p = &t->at[first]; p < &t->at[end]; p++) {
        if (p->first[BUF_STATE] >= 0) add_to_matrix(t, p, p->first[BUF_STATE]);
    }
    return OK;
}

/* The table has the parameters of a layer next to each other, because params_build adds them layer by layer. */
static Status place_params(ParamTable *t, const ModelSpec *s, Arena *a)
{
    TRY(ARENA_NEW(a, s->n_layers * LAYER_BUCKETS, &t->bucket));
    TRY(ARENA_NEW(a, s->n_layers * ROLE_COUNT, &t->matrix));
    for (int i = 0, end = 0; i < t->n; i = end) {
        while (end < t->n && t->at[end].layer == t->at[i].layer) end++;
        const int before = t->n_buckets;
        TRY(place_layer(t, s, i, end, a));
        for (int b = before; b < t->n_buckets; b++) t->bucket[b].begin = i, t->bucket[b].end = end;
    }
    return OK;
}

/* Where the next bucket begins. BUF_WEIGHT has the flat space without the buckets that it lacks. */
typedef struct BucketPlace {
    int64_t flat, weight, shard;
} BucketPlace;

/* Sets the positions of one rule's buckets, after the buckets placed before. */
static void place_buckets(const ModelSpec *s, ParamTable *t, const OptimizerDesc *rule,
                          BucketPlace *at)
{
    for (int i = 0; i < t->n_buckets; i++) {
        ParamBucket *k = &t->bucket[i];
        if (k->rule != rule) continue;
        k->first = at->flat, k->shard = at->shard;
        at->flat += k->n, at->shard += aligned(bucket_own_elems(k));
        if (k->weight < 0) continue;
        k->weight = at->weight;
        at->weight += k->n;
    }
    for (int b = 0; b < BUF_STATE; b++) {
        if (rule_has(s, rule, (ParamBuffer)b)) t->elems[b] = at->shard;
    }
}

/* A rule's buckets lie together. After each rule the sizes so far are the lengths of the buffers
 * that only rules up to here need. Buffers count as sharded also where each bucket has one rank: the
 * Program asks for the same collectives on all stages of a pipeline. */
static void shard_buffers(const ModelSpec *s, ParamTable *t)
{
    const OptimizerDesc *rules[BUCKET_RULES];
    BucketPlace end = { 0 };
    rules_in_order(s, rules);
    for (int r = 0; r < BUCKET_RULES; r++) {
        if (r == 0 || rules[r] != rules[r - 1]) place_buckets(s, t, rules[r], &end);
    }
    for (int b = 0; b < BUF_STATE; b++) {
        t->sharded[b] =
            !shards_alone(&t->shards) && t->shards.zero >= params_zero_stage(s, (ParamBuffer)b);
        if (!t->sharded[b]) t->elems[b] = t->spaces.of[b].flat;
    }
    for (int i = 0; i < t->n; i++) {
        Param *p = &t->at[i];
        if (p->bucket < 0) continue;
        const ParamBucket *k = &t->bucket[p->bucket];
        int64_t at = p->first[BUF_MAIN];
        for (int b = 0; b < BUF_STATE; b++)
            p->first[b] = bucket_has(s, k, (ParamBuffer)b) ? k->first + at : -1;
        if (k->weight >= 0) p->first[BUF_WEIGHT] = k->weight + at;
    }
    t->elems[BUF_STATE] = aligned(t->elems[BUF_STATE]);
}

/* The head's rank also holds the embedding's table if it reads it. */
static bool rank_holds(const ModelSpec *s, int layer, int rank)
{
    bool table = spec_shares_table(s) && layer_desc(s->layers[layer].kind)->begins;
    return layer_on(&s->layers[layer], rank) ||
           (table && layer_on(&s->layers[s->n_layers - 1], rank));
}

Status params_build(const ModelSpec *s, int rank, const ParamShards *shards, Arena *a,
                    ParamTable *out)
{
    *out = (ParamTable){ 0 };
    if (shards != NULL) out->shards = *shards;
    ParamList list = { .table = out, .arena = a, .model = s, .rank = rank };
    for (int i = 0; i < s->n_layers; i++) {
        if (!rank_holds(s, i, rank)) continue;
        list.layer = i;
        list.spec = &s->layers[i];
        TRY(layer_desc(s->layers[i].kind)->params(s, &s->layers[i], &list));
    }
    for (int i = 0; i < out->n; i++) {
        out->at[i].init_std = out->at[i].init == INIT_NORMAL ? (float)s->init_std : 0;
    }
    TRY(place_params(out, s, a));
    shard_buffers(s, out);
    bool head = layer_on(&s->layers[s->n_layers - 1], rank);
    /* The table multiplies as the head, the head once more for each depth. */
    if (head) out->active_matrix += (s->tied + s->depths) * s->vocab * s->hidden;
    return OK;
}

/* The whole matrix, as products read it or add to it. State is never sharded and has no buckets, so
 * its matrices lie in the buffer itself. */
static Tensor matrix_view(const ParamTable *t, const Matrix *x, const ParamMemory *m, ParamBuffer b)
{
    Tensor whole = m->buffer[b];
    if (b != BUF_STATE) whole = bucket_whole(t, m, &t->bucket[x->bucket], b);
    return matrix_at(x, tensor_at(&whole, x->first), whole.dtype);
}

/* Binds the weights of other layers that this layer's phases read, under the role they have here: a
 * tied head reads the embedding's ROLE_TABLE as its ROLE_HEAD. */
static void bind_shared(const ModelSpec *s, int layer, LayerWeights *w)
{
    const LayerDesc *desc = layer_desc(s->layers[layer].kind);
    for (int i = 0; i < desc->n_phases; i++) {
        int of = layer_weights_of(s, layer, i);
        if (of == layer) continue;
        ParamRole from = of == 0 ? ROLE_TABLE : ROLE_HEAD;
        ParamRole role = desc->phases[i].weights == WEIGHTS_HEAD ? ROLE_HEAD : ROLE_TABLE;
        w[layer].w[role] = w[of].w[from];
        w[layer].dw[role] = w[of].dw[from];
    }
}

Status params_bind(const ModelSpec *s, const ParamTable *t, const ParamMemory *m, Arena *a,
                   LayerWeights **out)
{
    LayerWeights *w = NULL;
    TRY(ARENA_ZEROED(a, s->n_layers, &w));
    for (int i = 0; i < t->n_matrices; i++) {
        const Matrix *x = &t->matrix[i];
        LayerWeights *l = &w[x->layer];
        ParamBuffer b = x->bucket < 0 ? BUF_STATE : x->keep_f32 ? BUF_MAIN : BUF_WEIGHT;
        l->w[x->role].data = matrix_view(t, x, m, b);
        if (b == BUF_WEIGHT && s->weights.n > 0)
            l->w[x->role].kind = copy_desc(s->weights.at[0].kind)->operand;
        bool trained = x->bucket >= 0 && t->bucket[x->bucket].rule != NULL;
        if (trained && m->buffer[BUF_GRAD].data != NULL)
            l->dw[x->role] = matrix_view(t, x, m, BUF_GRAD);
    }
    for (int i = 0; i < s->n_layers; i++) bind_shared(s, i, w);
    *out = w;
    return OK;
}
