#include "model/layer.h"

#include "base/rng.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct ParamList {
    ParamTable *table;
    Arena *arena;
    int layer;
    const LayerSpec *spec;
    ParamRole last_role;
    int last_layer;
};

int64_t param_elems(const Param *p)
{
    int64_t n = 1;
    for (int i = 0; i < p->rank; i++) n *= p->dim[i];
    return n;
}

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

static void count(ParamTable *t, const LayerSpec *l, const Param *p)
{
    int64_t n = param_elems(p);
    t->total += n;
    /* Experts are alike: the first top_k stand for those that a token takes. */
    if (p->expert >= 0 && p->expert >= l->as.moe.rule.top_k) return;
    t->active += n;
    if (p->rank == 2 && p->role != ROLE_TABLE) t->active_matrix += n;
}

Status params_add(ParamList *l, ParamAdd add, const char *name, ...)
{
    ParamTable *t = l->table;
    TRY(table_grow(t, l->arena));
    Param p = { .layer = l->layer,
                .expert = add.expert,
                .rank = add.rows == 0 ? 1 : 2,
                .role = add.role,
                .init = add.init,
                .decay = add.decay,
                .keep_f32 = add.keep_f32 };
    va_list ap;
    va_start(ap, name);
    int length = vsnprintf(p.name, sizeof p.name, name, ap);
    va_end(ap);
    if (length >= (int)sizeof p.name) {
        return FAIL(ERR_ARG, "parameter name %s... is longer than %d", p.name, PARAM_NAME_MAX - 1);
    }
    p.dim[0] = add.rows == 0 ? add.cols : add.rows;
    p.dim[1] = add.cols;
    for (int a = 0; a < AXIS_COUNT; a++) p.cut[a] = -1;
    for (int b = 0; b < BUF_COUNT; b++) p.first[b] = -1;

    bool joined = add.role == l->last_role && l->layer == l->last_layer;
    l->last_role = add.role, l->last_layer = l->layer;
    for (int b = 0; b < BUF_COUNT; b++) {
        if (add.state != (b == BUF_STATE)) continue;
        int64_t at = t->elems[b];
        if (!joined) at = (at + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
        p.first[b] = at;
        t->elems[b] = at + param_elems(&p);
    }
    if (!add.state) count(t, l->spec, &p);
    t->at[t->n++] = p;
    return OK;
}

/* Parameters of a layer lie one after the other. */
static void measure(ParamTable *t)
{
    int64_t elems = 0;
    for (int i = 0; i < t->n; i++) {
        const Param *p = &t->at[i];
        if (p->first[BUF_MAIN] < 0) continue;
        if (i == 0 || p->layer != t->at[i - 1].layer) elems = 0;
        elems += param_elems(p);
        if (p->expert >= 0) t->expert_elems += param_elems(p);
        if (elems > t->layer_elems) t->layer_elems = elems;
    }
}

static bool holds(const ModelSpec *s, int layer, int rank)
{
    bool table = s->tied && s->layers[layer].kind == LAYER_EMBED;
    return layer_on(&s->layers[layer], rank) ||
           (table && layer_on(&s->layers[s->n_layers - 1], rank));
}

Status params_build(const ModelSpec *s, int rank, Arena *a, ParamTable *out)
{
    *out = (ParamTable){ 0 };
    ParamList list = { .table = out, .arena = a, .last_layer = -1 };
    for (int i = 0; i < s->n_layers; i++) {
        if (!holds(s, i, rank)) continue;
        list.layer = i, list.spec = &s->layers[i];
        TRY(layer_desc(s->layers[i].kind)->params(s, &s->layers[i], &list));
    }
    for (int i = 0; i < out->n; i++) {
        out->at[i].init_std = out->at[i].init == INIT_NORMAL ? (float)s->init_std : 0;
    }
    measure(out);
    for (int b = 0; b < BUF_COUNT; b++) {
        out->elems[b] = (out->elems[b] + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
    }
    bool head = layer_on(&s->layers[s->n_layers - 1], rank);
    if (s->tied && head)
        out->active_matrix += s->vocab * s->hidden; /* the table multiplies as the head */
    return OK;
}

int64_t params_shard_elems(const ParamTable *t, ParamBuffer b, const ParamShards *shards)
{
    static const int stage[BUF_COUNT] = { [BUF_WEIGHT] = 3,  [BUF_GRAD] = 2,    [BUF_MAIN] = 1,
                                          [BUF_MOMENT1] = 1, [BUF_MOMENT2] = 1, [BUF_STATE] = 4 };
    if (shards == NULL || shards->stage < stage[b]) return t->elems[b];
    int64_t dense = shards->dense > 0 ? shards->dense : 1;
    int64_t expert = shards->expert > 0 ? shards->expert : 1;
    int64_t rest = t->elems[b] - t->expert_elems;
    return (rest + dense - 1) / dense + (t->expert_elems + expert - 1) / expert;
}

bool params_separate(const ModelSpec *s, const ParamShards *shards)
{
    bool main_shared_out = shards != NULL && (shards->stage == 1 || shards->stage == 2);
    return s->act != DTYPE_F32 || main_shared_out;
}

/* While one layer's are used, the next one's weights come, the last one's gradients go. */
static Status alloc_under_way(const ModelSpec *s, const ParamTable *t, const ParamShards *shards,
                              Arena *run, ParamMemory *out)
{
    if (shards == NULL) return OK;
    Dtype reduce = shards->low_reduce ? DTYPE_BF16 : DTYPE_F32;
    bool bucket = shards->stage >= 2 || shards->low_reduce;
    if (shards->stage >= 3) TRY(tensor_new1(run, s->act, 2 * t->layer_elems, &out->gathered));
    return bucket ? tensor_new1(run, reduce, 2 * t->layer_elems, &out->bucket) : OK;
}

Status params_alloc(const ModelSpec *s, const ParamTable *t, const ParamShards *shards, Arena *run,
                    bool training, ParamMemory *out)
{
    *out = (ParamMemory){ 0 };
    for (int b = BUF_GRAD; b < BUF_COUNT; b++) {
        bool wanted = training || b == BUF_MAIN || b == BUF_STATE;
        if (!wanted || t->elems[b] == 0) continue;
        int64_t elems = params_shard_elems(t, (ParamBuffer)b, shards);
        TRY(tensor_new1(run, DTYPE_F32, elems, &out->buffer[b]));
        out->buffer[b].dim[0] = t->elems[b]; /* a shard, seen as the whole that it stands for */
    }
    out->buffer[BUF_WEIGHT] = out->buffer[BUF_MAIN];
    int64_t elems = params_shard_elems(t, BUF_WEIGHT, shards);
    if (params_separate(s, shards)) TRY(tensor_new1(run, s->act, elems, &out->buffer[BUF_WEIGHT]));
    out->buffer[BUF_WEIGHT].dim[0] = t->elems[BUF_WEIGHT];
    return alloc_under_way(s, t, shards, run, out);
}

Tensor param_view(const Param *p, const ParamMemory *m, ParamBuffer b)
{
    Tensor flat = tensor_rows(&m->buffer[b], p->first[b], param_elems(p));
    Tensor view = { flat.data, flat.dtype, p->rank, { 0 } };
    for (int i = 0; i < p->rank; i++) view.dim[i] = p->dim[i];
    return view;
}

/* Grow the role's view by a parameter that lies right behind it. */
static void extend(Tensor *view, const Param *p, Tensor part)
{
    if (view->data == NULL) {
        *view = part;
        if (p->rank == 1) *view = tensor_as2(&part, 1, p->dim[0]);
        if (p->expert >= 0) {
            *view = (Tensor){ part.data, part.dtype, 3, { 1, p->dim[0], p->dim[1] } };
        }
        return;
    }
    assert(tensor_at(view, tensor_elems(view)) == part.data);
    if (p->expert < 0)
        view->dim[0] += p->dim[0];
    else if (p->expert < view->dim[0])
        view->dim[1] += p->dim[0]; /* the up half of gate | up */
    else
        view->dim[0]++;
}

/* gate_0 up_0 gate_1 up_1 ...: the first expert's parts fix the rows, later ones only count. */
static void bind_one(Tensor *view, const Param *p, Tensor part)
{
    bool known_rows = view->data != NULL && p->expert > 0 && p->expert < view->dim[0];
    if (!known_rows) extend(view, p, part);
}

Status params_bind(const ModelSpec *s, const ParamTable *t, const ParamMemory *m, Arena *a,
                   LayerWeights **out)
{
    void *memory = NULL;
    TRY(arena_alloc_zero(a, (size_t)s->n_layers * sizeof(LayerWeights), &memory));
    LayerWeights *w = memory;
    for (int i = 0; i < t->n; i++) {
        const Param *p = &t->at[i];
        LayerWeights *l = &w[p->layer];
        if (p->first[BUF_STATE] >= 0) {
            bind_one(&l->w[p->role], p, param_view(p, m, BUF_STATE));
            continue;
        }
        bind_one(&l->w[p->role], p, param_view(p, m, p->keep_f32 ? BUF_MAIN : BUF_WEIGHT));
        if (m->buffer[BUF_GRAD].data != NULL) {
            bind_one(&l->dw[p->role], p, param_view(p, m, BUF_GRAD));
        }
    }
    if (s->tied) {
        w[s->n_layers - 1].w[ROLE_HEAD] = w[0].w[ROLE_TABLE];
        w[s->n_layers - 1].dw[ROLE_HEAD] = w[0].dw[ROLE_TABLE];
    }
    *out = w;
    return OK;
}

void param_fill(const Param *p, uint64_t seed, int64_t first, int64_t n, float *out)
{
    if (p->init == INIT_NORMAL) {
        rng_fill_normal(out, n, seed, rng_stream(p->name), (uint64_t)first, (double)p->init_std);
        return;
    }
    for (int64_t i = 0; i < n; i++) out[i] = p->init == INIT_ONE ? 1 : 0;
}
