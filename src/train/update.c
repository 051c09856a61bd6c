/* update: launches the ops at the end of a step, in the order that the header gives. */
#include "train/update.h"

#include "op/exchange.h"
#include "op/optimizer.h"
#include "train/shards.h"

#include <math.h>
#include <string.h>

/* Index of a rule's first scalar for parameters of an age. */
static int scalars_at(int rule, int age) { return (rule * AGE_COUNT + age) * OPTIMIZER_SCALARS; }

void update_scalars(const EngineParams *w, double lr, int64_t step, float out[UPDATE_SCALARS])
{
    memset(out, 0, UPDATE_SCALARS * sizeof *out);
    for (int i = 0; i < OPTIMIZER_RULES && w->spec->optimizer.rule[i] != NULL; i++) {
        for (int age = 0; age < AGE_COUNT; age++) {
            const double updates = (double)(step + w->moment_steps[age] - w->loss_scale.skipped);
            w->spec->optimizer.rule[i]->scalars(w->config, lr, updates, out + scalars_at(i, age));
        }
    }
}

/* Runs the rule of one range with the scalars of its age. A model has at most two rules, so the
 * index of the rule is 0 or 1. */
static Status update_range(EngineParams *w, const StepTensors *io, const UpdateRange *r)
{
    int rule = r->rule == w->spec->optimizer.rule[0] ? 0 : 1;
    Tensor scalars = tensor_rows(&io->hyper, scalars_at(rule, (int)r->age), OPTIMIZER_SCALARS);
    return r->rule->run(w->ex, w->config, r, io->record.clip, scalars);
}

/* Takes and releases the scratch that the owner of the largest matrices needs (EngineParams). */
static Status touch_scratch(EngineParams *w)
{
    ArenaMark mark = arena_mark(w->ex->scratch);
    void *most = NULL;
    TRY(arena_alloc(w->ex->scratch, w->update_scratch, &most));
    arena_release(w->ex->scratch, mark);
    return OK;
}

/* One message a tensor, in place. Counts exist only for MoE layers. Every rank needs the sums: each
 * computes the same clipping factor from them and skips or runs the same update. */
Status update_add_records(EngineParams *w, const Record *r)
{
    const Mesh *m = w->shape->mesh;
    if (m == NULL || m->ranks == 1) return OK;
    const Tensor *const sums[] = { &r->sums, &r->counts };
    for (int i = 0; i < (w->spec->n_moe > 0 ? 2 : 1); i++) {
        Tensor row = tensor_as2(sums[i], 1, tensor_elems(sums[i]));
        TRY(exchange_collective(w->ex, (Collective){ .in = row,
                                                     .out = row,
                                                     .kind = COMM_ALL_REDUCE,
                                                     .axis = AXIS_DP,
                                                     .group = GROUP_WORLD,
                                                     .ranks = m->ranks }));
    }
    return OK;
}

/* The order is fixed by data: the norm needs all squares, clipping needs the sums of all ranks, and
 * the rules need the clipping factor. The expert biases are nudged last, from loads that are now of
 * all ranks. */
Status update_run(EngineParams *w, const StepTensors *io)
{
    const Record *r = &io->record;
    for (int i = 0; i < w->n_norms; i++) {
        TRY(square_sum(w->ex, (SquareSum){ w->norms[i], r->square_sum }));
    }
    TRY(update_add_records(w, r));
    TRY(clip_scale(w->ex, (ClipScale){ .sum = r->square_sum,
                                       .norm = r->norm,
                                       .clip = r->clip,
                                       .overflow = r->overflow,
                                       .scale = io->grad_scale,
                                       .max_norm = (float)w->config->train_clip_norm }));
    TRY(touch_scratch(w));
    for (int i = 0; i < w->n_ranges; i++) TRY(update_range(w, io, &w->ranges[i]));
    for (int i = 0; i < w->spec->n_layers; i++) {
        const LayerSpec *l = &w->spec->layers[i];
        const LayerDesc *desc = layer_desc(l->kind);
        if (desc->after_step == NULL || !layer_on(l, w->shape->pp_rank)) continue;
        if (role_frozen(l, ROLE_ROUTER_BIAS)) continue;
        w->ex->layer = l->block;
        TRY(desc->after_step(w->ex, l, &w->layer[i], r));
    }
    return OK;
}

/* With 2^16 the gradients of most models overflow in a few first steps and fit from then on. 2^24 is
 * far above what helps, and keeps squares of gradients far below f32's largest number. */
static const double SCALE_START = 65536, SCALE_MOST = 1 << 24;
enum { SCALE_GROWS = 2000 };

LossScale loss_scale_start(const Config *c)
{
    if (c->run_compute != COMPUTE_F16) return (LossScale){ .now = 1 };
    return (LossScale){ .now = c->run_loss_scale > 0 ? c->run_loss_scale : SCALE_START };
}

LossScale loss_scale_resume(const Config *c, const LossScale *saved)
{
    LossScale s = loss_scale_start(c);
    if (c->run_compute == COMPUTE_F16 && c->run_loss_scale == 0 && saved->now > 0) s = *saved;
    s.skipped = saved->skipped;
    return s;
}

bool loss_scale_follow(const Config *c, LossScale *s, bool finite)
{
    if (c->run_compute != COMPUTE_F16 || c->run_loss_scale > 0 || (!finite && s->now <= 1))
        return finite;
    if (!finite) {
        s->now /= 2;
        s->good = 0;
        s->skipped++;
    } else if (++s->good == SCALE_GROWS) {
        s->now = fmin(2 * s->now, SCALE_MOST);
        s->good = 0;
    }
    return true;
}

/* The cost is linear in the number of elements, so a tensor of one element gives the bytes for one
 * parameter. */
double update_bytes(const ModelSpec *s)
{
    const Tensor one = { .dtype = DTYPE_F32, .rank = 1, .dim = { 1 } };
    return optimizer_update_bytes(&s->optimizer, copies_type(&s->weights)) +
           op_desc(OP_SQUARE_SUM)->cost(&(SquareSum){ .x = one }).bytes;
}

/* warm-up:  lr s / warm
 * then      min_lr + (lr - min_lr) (1 + cos(pi at)) / 2,   at = (s - warm) / (end - warm) <= 1 */
double learning_rate(const Config *c, int64_t step)
{
    double warm = (double)c->optimizer_warmup_steps, s = (double)step;
    if (s <= warm) return c->optimizer_lr * s / warm;
    double end = (double)(c->optimizer_decay_steps > 0 ? c->optimizer_decay_steps : c->train_steps);
    double at = end > warm ? fmin(1, (s - warm) / (end - warm)) : 1;
    double span = c->optimizer_lr - c->optimizer_min_lr;
    return c->optimizer_min_lr + span * (1 + cos(3.14159265358979323846 * at)) / 2;
}
