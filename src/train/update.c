#include "train/update.h"

#include <assert.h>
#include <math.h>

/* The padding behind a parameter belongs to its range: it stays zero under either rule. */
Status update_make_ranges(Engine *e)
{
    const ParamTable *t = &e->params;
    void *memory = NULL;
    TRY(arena_alloc(&e->tables, (size_t)t->n * sizeof *e->ranges, &memory));
    e->ranges = memory;
    assert(e->ranges != NULL);
    if (e->shape.shards != NULL) { /* counted only: this rank's share, wherever it begins */
        int64_t mine = params_shard_elems(t, BUF_MAIN, e->shape.shards);
        e->ranges[e->n_ranges++] = (DecayRange){ 0, mine, true };
        return OK;
    }
    for (int i = 0; i < t->n; i++) {
        const Param *p = &t->at[i];
        if (p->first[BUF_MAIN] < 0) continue;
        DecayRange *last = e->n_ranges > 0 ? &e->ranges[e->n_ranges - 1] : NULL;
        if (last == NULL || last->decay != p->decay) {
            if (last != NULL) last->n = p->first[BUF_MAIN] - last->first;
            e->ranges[e->n_ranges++] = (DecayRange){ p->first[BUF_MAIN], 0, p->decay };
        }
    }
    DecayRange *last = &e->ranges[e->n_ranges - 1];
    last->n = t->elems[BUF_MAIN] - last->first;
    return OK;
}

static Status update_range(Engine *e, const DecayRange *r)
{
    const Config *c = e->config;
    Tensor *buffer = e->memory.buffer;
    bool low = e->spec.act != DTYPE_F32;
    return adamw(&e->ex, (Adamw){ .w = tensor_rows(&buffer[BUF_MAIN], r->first, r->n),
                                  .g = tensor_rows(&buffer[BUF_GRAD], r->first, r->n),
                                  .m = tensor_rows(&buffer[BUF_MOMENT1], r->first, r->n),
                                  .v = tensor_rows(&buffer[BUF_MOMENT2], r->first, r->n),
                                  .w_low = low ? tensor_rows(&buffer[BUF_WEIGHT], r->first, r->n)
                                               : (Tensor){ 0 },
                                  .clip = e->record.clip,
                                  .hyper = e->hyper,
                                  .beta1 = (float)c->optimizer_beta1,
                                  .beta2 = (float)c->optimizer_beta2,
                                  .eps = (float)c->optimizer_eps,
                                  .decay = r->decay ? (float)c->optimizer_weight_decay : 0 });
}

static Status update_bias(Engine *e, int layer)
{
    const MoeSpec *m = &e->spec.layers[layer].as.moe;
    e->ex.layer = e->spec.layers[layer].block;
    Tensor load = tensor_rows(&e->record.load, m->index, 1);
    return moe_bias_update(&e->ex, (MoeBiasUpdate){ .load = load,
                                                    .gate = e->record.clip,
                                                    .bias = e->weights[layer].w[ROLE_ROUTER_BIAS],
                                                    .rate = m->bias_rate });
}

Status update_run(Engine *e)
{
    const Record *r = &e->record;
    TRY(square_sum(&e->ex, (SquareSum){ e->memory.buffer[BUF_GRAD], r->square_sum }));
    TRY(clip_scale(&e->ex, (ClipScale){ .sum = r->square_sum,
                                        .norm = r->norm,
                                        .clip = r->clip,
                                        .max_norm = (float)e->config->train_clip_norm }));
    for (int i = 0; i < e->n_ranges; i++) TRY(update_range(e, &e->ranges[i]));
    for (int i = 0; i < e->spec.n_layers; i++) {
        const LayerSpec *l = &e->spec.layers[i];
        bool here = layer_on(l, e->shape.pp_rank);
        if (here && l->kind == LAYER_MOE && l->as.moe.bias) TRY(update_bias(e, i));
    }
    return OK;
}

double learning_rate(const Config *c, int64_t step)
{
    double warm = (double)c->optimizer_warmup_steps, s = (double)step;
    if (s <= warm) return c->optimizer_lr * s / warm;
    double end = (double)(c->optimizer_decay_steps > 0 ? c->optimizer_decay_steps : c->train_steps);
    double at = end > warm ? fmin(1, (s - warm) / (end - warm)) : 1;
    double span = c->optimizer_lr - c->optimizer_min_lr;
    return c->optimizer_min_lr + span * (1 + cos(3.14159265358979323846 * at)) / 2;
}
