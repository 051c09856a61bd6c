#include "train/update.h"

#include "op/exchange.h"
#include "op/optimizer.h"
#include "train/shards.h"

#include <math.h>
#include <string.h>

/* First number of a rule's scalars for parameters of an age. */
static int scalars_at(int rule, int age) { return (rule * AGE_COUNT + age) * OPTIMIZER_SCALARS; }

void update_scalars(const Engine *e, double lr, int64_t step, float out[UPDATE_SCALARS])
{
    memset(out, 0, UPDATE_SCALARS * sizeof *out);
    for (int i = 0; i < OPTIMIZER_RULES && e->spec.optimizer.rule[i] != NULL; i++) {
        for (int age = 0; age < AGE_COUNT; age++) {
            const double updates = (double)(step + e->params.moment_steps[age]);
            e->spec.optimizer.rule[i]->scalars(e->config, lr, updates, out + scalars_at(i, age));
        }
    }
}

static Status update_range(Engine *e, const UpdateRange *r)
{
    int rule = r->rule == e->spec.optimizer.rule[0] ? 0 : 1;
    Tensor scalars = tensor_rows(&e->io.hyper, scalars_at(rule, (int)r->age), OPTIMIZER_SCALARS);
    return r->rule->run(&e->ex, e->config, r, e->io.record.clip, scalars);
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
    for (int i = 0; i < e->params.n_norms; i++) {
        TRY(square_sum(&e->ex, (SquareSum){ e->params.norms[i], r->square_sum }));
    }
    TRY(update_add_records(e));
    TRY(clip_scale(&e->ex, (ClipScale){ .sum = r->square_sum,
                                        .norm = r->norm,
                                        .clip = r->clip,
                                        .overflow = r->overflow,
                                        .max_norm = (float)e->config->train_clip_norm }));
    for (int i = 0; i < e->params.n_ranges; i++) TRY(update_range(e, &e->params.ranges[i]));
    for (int i = 0; i < e->spec.n_layers; i++) {
        const LayerSpec *l = &e->spec.layers[i];
        const LayerDesc *desc = layer_desc(l->kind);
        if (desc->after_step == NULL || !layer_on(l, e->shape.pp_rank)) continue;
        if (role_frozen(l, ROLE_ROUTER_BIAS)) continue;
        e->ex.layer = l->block;
        TRY(desc->after_step(&e->ex, l, &e->params.layer[i], r));
    }
    return OK;
}

double update_bytes(const ModelSpec *s)
{
    const Tensor one = { .dtype = DTYPE_F32, .rank = 1, .dim = { 1 } };
    return optimizer_update_bytes(&s->optimizer, copies_type(&s->weights)) +
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
