/* params: the table of parameters, their buckets and shards, and the views that layers, checkpoints
 * and the optimizer take of them. */
#include "model/layer.h"

#include "base/rng.h"

#include <assert.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ParamList {
    ParamTable *table;
    Arena *arena;
    int layer;
    const ModelSpec *model;
    const LayerSpec *spec;
    int rank;                 /* of the pipeline */
    unsigned frozen, trained; /* without a table: roles that have such parameters */
};

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

static bool matches(const char *pattern, const Param *p)
{
    return fnmatch(pattern, p->name, 0) == 0;
}

static bool is_frozen(const ModelSpec *s, const Param *p)
{
    for (int i = 0; s->frozen != NULL && i < s->frozen->n; i++) {
        if (matches(s->frozen->at[i], p)) return true;
    }
    return false;
}

Status params_check_frozen(const ModelSpec *s, const ParamTable *t)
{
    for (int i = 0; s->frozen != NULL && i < s->frozen->n; i++) {
        int at = 0;
        while (at < t->n && !matches(s->frozen->at[i], &t->at[at])) at++;
        if (at < t->n) continue;
        return FAIL(ERR_ARG, "init.frozen: %s is the name of no parameter; the first of %d is %s",
                    s->frozen->at[i], t->n, t->at[0].name);
    }
    if (t->frozen < t->total) return OK;
    return FAIL(ERR_ARG, "init.frozen names all parameters, nothing is left to train");
}

static void count(ParamTable *t, const LayerSpec *l, const Param *p)
{
    int64_t n = param_elems(p);
    t->total += n;
    if (p->frozen) t->frozen += n;
    /* Experts are alike: the first top_k stand for those that a token takes. */
    if (p->expert >= 0 && p->expert >= l->as.moe.rule.top_k) return;
    t->active += n;
    if (p->rank == 2 && p->role != ROLE_TABLE) t->active_matrix += n;
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
    p.bucket = -1;
    p.frozen = is_frozen(l->model, &p);
    for (int b = 0; b < BUF_COUNT; b++) p.first[b] = -1;
    if (t == NULL) {
        if (p.frozen || !add.state) *(p.frozen ? &l->frozen : &l->trained) |= 1U << p.role;
        return OK;
    }
    TRY(table_grow(t, l->arena));
    if (add.state) {
        p.first[BUF_STATE] = aligned(t->elems[BUF_STATE]);
        t->elems[BUF_STATE] = p.first[BUF_STATE] + param_elems(&p);
    } else {
        count(t, l->spec, &p);
    }
    t->at[t->n++] = p;
    return OK;
}

Status params_freeze(ModelSpec *s, const ModelSpec *like)
{
    ModelSpec whole = *s;
    bool none = true;
    whole.ep = 1;
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

/* Places. */

static int64_t at_least_one(int64_t n) { return n > 0 ? n : 1; }

/* Puts those of a layer's parameters [first, end) that have this hold into one bucket. Each role
 * starts at an aligned element. */
static void fill_bucket(ParamTable *t, const LayerSpec *l, int first, int end, ParamBucket k,
                        ParamSizes *layer)
{
    const ParamShards *s = &t->shards;
    const int64_t ranks[] = { 1, at_least_one(s->dense), at_least_one(s->expert) };
    const int64_t own[] = { 0, s->dense_rank, s->expert_rank };
    if (s->zero > 0) k.ranks = ranks[k.hold], k.own = own[k.hold];
    int64_t at = 0;
    int role = -1;
    for (int i = first; i < end; i++) {
        Param *p = &t->at[i];
        ParamHold hold = p->keep_f32 ? HOLD_WHOLE : p->expert >= 0 ? HOLD_EXPERT : HOLD_DENSE;
        bool other = hold != k.hold || role_frozen(l, p->role) != k.frozen;
        if (p->first[BUF_STATE] >= 0 || other) continue;
        if (p->role != (ParamRole)role) at = aligned(at);
        p->first[BUF_MAIN] = at;
        p->bucket = t->n_buckets;
        role = (int)p->role;
        at += param_elems(p);
    }
    if (at == 0) return;
    int64_t unit = k.ranks * PARAM_ALIGN;
    k.n = (at + unit - 1) / unit * unit;
    t->bucket[t->n_buckets++] = k;
    layer->flat += k.n;
    *(k.hold == HOLD_WHOLE ? &layer->whole : &layer->layer) += k.n;
    if (k.hold == HOLD_EXPERT) layer->expert += k.n;
}

void params_add_sizes(ParamSizes *sum, const ParamSizes *more)
{
    sum->flat += more->flat, sum->expert += more->expert, sum->whole += more->whole;
    if (more->layer > sum->layer) sum->layer = more->layer;
}

static Status place(ParamTable *t, const ModelSpec *s, Arena *a)
{
    TRY(ARENA_NEW(a, s->n_layers * 2 * HOLD_COUNT, &t->bucket));
    for (int i = 0, end = 0; i < t->n; i = end) {
        ParamBucket k = { .layer = t->at[i].layer, .ranks = 1 };
        ParamSizes one = { 0 };
        while (end < t->n && t->at[end].layer == k.layer) end++;
        for (int j = 0; j < 2 * HOLD_COUNT; j++) {
            if (j == HOLD_COUNT) params_add_sizes(&t->trained, &one);
            k.hold = (ParamHold)(j % HOLD_COUNT), k.frozen = j >= HOLD_COUNT;
            fill_bucket(t, &s->layers[k.layer], i, end, k, &one);
        }
        params_add_sizes(&t->all, &one);
    }
    return OK;
}

/* Frozen weights have no gradients and no moments. */
static const ParamSizes *sizes_of(const ParamTable *t, ParamBuffer b)
{
    return b == BUF_WEIGHT || b == BUF_MAIN ? &t->all : &t->trained;
}

/* The ZeRO stage from which on a buffer is sharded. In f32 the main weights are the weights. */
static int zero_of(const ModelSpec *s, ParamBuffer b)
{
    static const int zero[BUF_COUNT] = { [BUF_WEIGHT] = 3,  [BUF_GRAD] = 2,    [BUF_MAIN] = 1,
                                         [BUF_MOMENT1] = 1, [BUF_MOMENT2] = 1, [BUF_STATE] = 4 };
    return b == BUF_MAIN && s->act == DTYPE_F32 ? zero[BUF_WEIGHT] : zero[b];
}

/* Sets where buckets begin, trained ones first. */
static void shard_buffers(const ModelSpec *s, ParamTable *t)
{
    int64_t flat = 0, shard[2] = { 0 };
    for (int i = 0; i < 2 * t->n_buckets; i++) {
        ParamBucket *k = &t->bucket[i % t->n_buckets];
        if (k->frozen != (i >= t->n_buckets)) continue;
        k->first = flat, k->shard = shard[1];
        flat += k->n, shard[1] += k->n / k->ranks;
        if (!k->frozen) shard[0] = shard[1];
    }
    for (int b = 0; b < BUF_STATE; b++) {
        bool all = sizes_of(t, (ParamBuffer)b) == &t->all;
        t->sharded[b] = shard[1] < flat && t->shards.zero >= zero_of(s, (ParamBuffer)b);
        t->elems[b] = t->sharded[b] ? shard[all] : sizes_of(t, (ParamBuffer)b)->flat;
    }
    for (int i = 0; i < t->n; i++) {
        Param *p = &t->at[i];
        if (p->bucket < 0) continue;
        const ParamBucket *k = &t->bucket[p->bucket];
        int64_t at = k->first + p->first[BUF_MAIN];
        for (int b = 0; b < BUF_STATE; b++)
            p->first[b] = k->frozen && sizes_of(t, (ParamBuffer)b) == &t->trained ? -1 : at;
    }
    t->elems[BUF_STATE] = aligned(t->elems[BUF_STATE]);
}

static bool holds(const ModelSpec *s, int layer, int rank)
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
        if (!holds(s, i, rank)) continue;
        list.layer = i;
        list.spec = &s->layers[i];
        TRY(layer_desc(s->layers[i].kind)->params(s, &s->layers[i], &list));
    }
    for (int i = 0; i < out->n; i++) {
        out->at[i].init_std = out->at[i].init == INIT_NORMAL ? (float)s->init_std : 0;
    }
    TRY(place(out, s, a));
    shard_buffers(s, out);
    bool head = layer_on(&s->layers[s->n_layers - 1], rank);
    /* The table multiplies as the head, the head once more for each depth. */
    if (head) out->active_matrix += (s->tied + s->depths) * s->vocab * s->hidden;
    return OK;
}

int64_t params_shard_elems(const ModelSpec *s, const ParamTable *t, ParamBuffer b,
                           const ParamShards *shards)
{
    if (b == BUF_STATE) return t->elems[b];
    const ParamSizes *z = sizes_of(t, b);
    if (shards->zero < zero_of(s, b)) return z->flat;
    int64_t dense = at_least_one(shards->dense), expert = at_least_one(shards->expert);
    int64_t rest = z->flat - z->expert - z->whole;
    return z->whole + (rest + dense - 1) / dense + (z->expert + expert - 1) / expert;
}

size_t params_gathered_bytes(const ModelSpec *s, const ParamTable *t, const ParamShards *shards)
{
    size_t bytes = 0, trained = (size_t)t->trained.layer, all = (size_t)t->all.layer;
    if (shards->dense <= 1 && shards->expert <= 1) return 0;
    if (shards->low_reduce) bytes += trained * dtype_bytes(DTYPE_BF16);
    if (shards->zero >= 3) bytes += 2 * all * dtype_bytes(s->act);
    if (shards->zero >= 2) bytes += 2 * trained * sizeof(float);
    return bytes;
}

/* While a layer computes, the next layer's weights are prefetched into the other half, and the
 * gradients of the layer before leave from it. */
static Status alloc_gathered(const ModelSpec *s, const ParamTable *t, bool training, Arena *run,
                             ParamMemory *out)
{
    const Dtype type[2] = { s->act, DTYPE_F32 };
    const bool wanted[2] = { t->sharded[BUF_WEIGHT], training && t->sharded[BUF_GRAD] };
    for (int b = 0; b < 2; b++) {
        int64_t elems = sizes_of(t, (ParamBuffer)b)->layer;
        if (wanted[b]) TRY(tensor_new1(run, type[b], 2 * elems, &out->gathered[b]));
    }
    bool alone = t->shards.dense <= 1 && t->shards.expert <= 1;
    if (!training || alone || !t->shards.low_reduce) return OK;
    return tensor_new1(run, DTYPE_BF16, t->trained.layer, &out->low);
}

Status params_alloc(const ModelSpec *s, const ParamTable *t, Arena *run, bool training,
                    ParamMemory *out)
{
    *out = (ParamMemory){ 0 };
    for (int b = BUF_GRAD; b < BUF_COUNT; b++) {
        bool wanted = training || b == BUF_MAIN || b == BUF_STATE;
        if (!wanted || t->elems[b] == 0) continue;
        Dtype type = b == BUF_MOMENT1 || b == BUF_MOMENT2 ? s->moment : DTYPE_F32;
        TRY(tensor_new1(run, type, t->elems[b], &out->buffer[b]));
    }
    out->buffer[BUF_WEIGHT] = out->buffer[BUF_MAIN];
    if (s->act != DTYPE_F32) {
        TRY(tensor_new1(run, s->act, t->elems[BUF_WEIGHT], &out->buffer[BUF_WEIGHT]));
    }
    return alloc_gathered(s, t, training, run, out);
}

/* Buckets. */

int params_layer(const ParamTable *t, int layer, int *first)
{
    int i = 0;
    while (i < t->n_buckets && t->bucket[i].layer < layer) i++;
    *first = i;
    while (i < t->n_buckets && t->bucket[i].layer == layer) i++;
    return i;
}

/* A bucket in its layer's half of `gathered`, behind those before it. */
static Tensor gathered(const ParamTable *t, const ParamMemory *m, const ParamBucket *k,
                       ParamBuffer b)
{
    int64_t at = params_half(k->layer) * sizes_of(t, b)->layer;
    for (const ParamBucket *j = k; j > t->bucket && j[-1].layer == k->layer; j--)
        at += j[-1].hold == HOLD_WHOLE ? 0 : j[-1].n;
    return tensor_rows(&m->gathered[b], at, k->n);
}

Tensor bucket_whole(const ParamTable *t, const ParamMemory *m, const ParamBucket *k, ParamBuffer b)
{
    if (!t->sharded[b]) return tensor_rows(&m->buffer[b], k->first, k->n);
    if (k->ranks == 1) return tensor_rows(&m->buffer[b], k->shard, k->n);
    return gathered(t, m, k, b);
}

Tensor bucket_part(const ParamBucket *k, Tensor whole)
{
    int64_t part = k->n / k->ranks;
    return tensor_rows(&whole, k->own * part, part);
}

Tensor bucket_own(const ParamTable *t, const ParamMemory *m, const ParamBucket *k, ParamBuffer b)
{
    if (t->sharded[b]) return tensor_rows(&m->buffer[b], k->shard, k->n / k->ranks);
    return bucket_part(k, tensor_rows(&m->buffer[b], k->first, k->n));
}

ParamPiece param_piece(const ParamTable *t, const Param *p, const ParamMemory *m, ParamBuffer b)
{
    ParamPiece none = { 0 };
    int64_t n = param_elems(p);
    if (p->first[b] < 0 || m->buffer[b].data == NULL) return none;
    if (b == BUF_STATE)
        return (ParamPiece){ piece_range(0, n), tensor_rows(&m->buffer[b], p->first[b], n) };
    const ParamBucket *k = &t->bucket[p->bucket];
    int64_t part = t->sharded[b] ? k->n / k->ranks : k->n;
    int64_t own = t->sharded[b] ? k->own * part : 0, at = p->first[b] - k->first;
    int64_t first = at > own ? at : own, end = at + n < own + part ? at + n : own + part;
    if (first >= end) return none;
    int64_t local = (t->sharded[b] ? k->shard : k->first) + first - own;
    return (ParamPiece){ piece_range(first - at, end - first),
                         tensor_rows(&m->buffer[b], local, end - first) };
}

static Tensor shaped(const Param *p, Tensor flat)
{
    Tensor view = { flat.data, flat.dtype, p->rank, { 0 } };
    for (int i = 0; i < p->rank; i++) view.dim[i] = p->dim[i];
    return view;
}

Tensor param_view(const Param *p, const ParamMemory *m, ParamBuffer b)
{
    return shaped(p, tensor_rows(&m->buffer[b], p->first[b], param_elems(p)));
}

/* The whole parameter, as compute reads or adds to it; p->dim gives the shape. */
static Tensor compute_view(const ParamTable *t, const Param *p, const ParamMemory *m, ParamBuffer b)
{
    if (b == BUF_STATE) return param_view(p, m, b);
    const ParamBucket *k = &t->bucket[p->bucket];
    Tensor whole = bucket_whole(t, m, k, b);
    return shaped(p, tensor_rows(&whole, p->first[b] - k->first, param_elems(p)));
}

/* Grows a role's fused view, (rows, cols), (E, rows, cols) or (E, cols), by the parameter right behind it. */
static void extend(Tensor *view, const Param *p, Tensor part)
{
    if (view->data == NULL) {
        *view = part;
        if (p->rank == 1) *view = tensor_as2(&part, 1, p->dim[0]);
        if (p->expert >= 0) {
            *view = (Tensor){ part.data, part.dtype, p->rank + 1, { 1, p->dim[0] } };
            if (p->rank > 1) view->dim[2] = p->dim[1];
        }
        return;
    }
    assert(tensor_at(view, tensor_elems(view)) == part.data);
    if (p->expert < 0)
        view->dim[p->rank == 1] += p->dim[0]; /* vectors are one row */
    else if (p->expert < view->dim[0])
        view->dim[1] += p->dim[0]; /* the up half of gate | up */
    else
        view->dim[0]++;
}

/* Experts lie as gate_0 up_0 gate_1 up_1 ...: the first expert's matrices fix the rows of the view,
 * those of later experts only add to E. */
static void bind_one(Tensor *view, const Param *p, Tensor part)
{
    bool known_rows = view->data != NULL && p->expert > 0 && p->expert < view->dim[0];
    if (!known_rows) extend(view, p, part);
}

/* What phases of a layer read of another one, under the role that it has for them. */
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
    for (int i = 0; i < t->n; i++) {
        const Param *p = &t->at[i];
        LayerWeights *l = &w[p->layer];
        if (p->first[BUF_STATE] >= 0) {
            bind_one(&l->w[p->role], p, compute_view(t, p, m, BUF_STATE));
            continue;
        }
        bind_one(&l->w[p->role], p, compute_view(t, p, m, p->keep_f32 ? BUF_MAIN : BUF_WEIGHT));
        if (m->buffer[BUF_GRAD].data != NULL && p->first[BUF_GRAD] >= 0) {
            bind_one(&l->dw[p->role], p, compute_view(t, p, m, BUF_GRAD));
        }
    }
    for (int i = 0; i < s->n_layers; i++) bind_shared(s, i, w);
    *out = w;
    return OK;
}

void param_fill(const Param *p, uint64_t seed, const Piece *in, int64_t i, int64_t n, float *out)
{
    for (int64_t end = i + n, run = 0; i < end; i += run, out += run) {
        run = piece_run(in, i) < end - i ? piece_run(in, i) : end - i;
        if (p->init == INIT_NORMAL) {
            rng_fill_normal(out, run, seed, rng_stream(p->name), (uint64_t)piece_element(in, i),
                            (double)p->init_std);
        } else {
            for (int64_t k = 0; k < run; k++) out[k] = p->init == INIT_ONE ? 1 : 0;
        }
    }
}
