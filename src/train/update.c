#include "train/update.h"

#include "op/optimizer.h"
#include "train/shards.h"

#include <math.h>

static Status update_range(Engine *e, const UpdateRange *r)
{
    const Config *c = e->config;
    return adamw(&e->ex, (Adamw){ .w = r->w,
                                  .g = r->g,
                                  .m = r->m,
                                  .v = r->v,
                                  .w_low = r->w_low,
                                  .clip = e->io.record.clip,
                                  .hyper = tensor_rows(&e->io.hyper, (int64_t)r->age * 3, 3),
                                  .beta1 = (float)c->optimizer_beta1,
                                  .beta2 = (float)c->optimizer_beta2,
                                  .eps = (float)c->optimizer_eps,
                                  .decay = r->decay ? (float)c->optimizer_weight_decay : 0 });
}

Status update_add_records(Engine *e)
{
    const Mesh *m = e->shape.mesh;
    if (m == NULL || m->ranks == 1) return OK;
    Tensor *const sums[] = { &e->io.record.sums, &e->io.record.counts };
    for (int i = 0; i < (e->spec.n_moe > 0 ? 2 : 1); i++) {
        Tensor row = tensor_as2(sums[i], 1, tensor_elems(sums[i]));
        TRY(exchange_collective(&e->ex, (Collective){ .in = row,
                                                      .out = row,
                                                      .kind = COMM_ALL_REDUCE,
                                                      .axis = AXIS_DP,
                                                      .group = GROUP_WORLD,
                                                      .ranks = m->ranks }));
    }
    return OK;
}

Status update_run(Engine *e)
{
    const Record *r = &e->io.record;
    for (int i = 0; i < e->n_norms; i++) {
        TRY(square_sum(&e->ex, (SquareSum){ e->norms[i], r->square_sum }));
    }
    TRY(update_add_records(e));
    TRY(clip_scale(&e->ex, (ClipScale){ .sum = r->square_sum,
                                        .norm = r->norm,
                                        .clip = r->clip,
                                        .overflow = r->overflow,
                                        .max_norm = (float)e->config->train_clip_norm }));
    for (int i = 0; i < e->n_ranges; i++) TRY(update_range(e, &e->ranges[i]));
    for (int i = 0; i < e->spec.n_layers; i++) {
        const LayerSpec *l = &e->spec.layers[i];
        const LayerDesc *desc = layer_desc(l->kind);
        if (desc->after_step == NULL || !layer_on(l, e->shape.pp_rank)) continue;
        if (role_frozen(l, ROLE_ROUTER_BIAS)) continue;
        e->ex.layer = l->block;
        TRY(desc->after_step(&e->ex, l, &e->weights[i], r));
    }
    return OK;
}

double update_bytes(const ModelSpec *s)
{
    float at = 0;
    const Tensor one = { .data = &at, .dtype = DTYPE_F32, .rank = 1, .dim = { 1 } };
    const Adamw adamw = { .w = one,
                          .m = { .dtype = s->moment },
                          .w_low = s->act == DTYPE_F32 ? (Tensor){ 0 } : one };
    return op_desc(OP_ADAMW)->cost(&adamw).bytes +
           op_desc(OP_SQUARE_SUM)->cost(&(SquareSum){ .x = one }).bytes;
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
