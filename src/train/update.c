/* update: launches the ops at the end of a step, in the order that the header gives. */
#include "train/update.h"

#include "op/exchange.h"
#include "op/optimizer.h"
#include "train/checks.h"
#include "train/offload.h"
#include "train/shards.h"

#include <float.h>
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
    out[UPDATE_LIMIT] = norm_limit(w->config, &w->means);
    out[UPDATE_AVERAGE] = (float)average_rate(w->config, &w->means);
}

/* Ranges of rules on whole matrices have their shapes. */
static Tensor flat(const Tensor *t)
{
    Tensor row = tensor_as2(t, 1, tensor_elems(t));
    row.rank = 1, row.dim[0] = row.dim[1];
    return row;
}

/* Runs the rule of one range with the scalars of its age. A model has at most two rules, so the
 * index of the rule is 0 or 1. */
static Status update_range(EngineParams *w, const StepTensors *io, const UpdateRange *r)
{
    int rule = r->rule == w->spec->optimizer.rule[0] ? 0 : 1;
    Tensor scalars = tensor_rows(&io->hyper, scalars_at(rule, (int)r->age), OPTIMIZER_SCALARS);
    return r->rule->run(w->ex, w->config, r, io->record.clip, scalars);
}

/* QK-clip of this rank's part of a matrix, by the largest logits over all ranks. */
static Status clip_matrix(EngineParams *w, const Matrix *m, const Record *r)
{
    const LayerSpec *l = &w->spec->layers[m->layer];
    const LayerDesc *desc = layer_desc(l->kind);
    QkClip a = { .clip = r->clip, .above = w->spec->optimizer.qk_clip };
    if (desc->clips == NULL) return OK;
    a.rows = desc->clips(l, m->role);
    a.rows.all_heads = a.rows.heads * w->spec->ranks.tp;
    a.rows.key_parts = w->spec->ranks.key_parts;
    a.rows.first_head = a.rows.heads * w->spec->ranks.tp_rank;
    a.cols = m->dim[0] == 1 ? 1 : m->dim[1]; /* biases are one row */
    if (a.rows.queries + a.rows.keys == 0 || !shards_updated(w, m, &a.w, &a.low, &a.first))
        return OK;
    a.max = tensor_rows(&r->logits, l->block, 1);
    w->ex->layer = l->block;
    return qk_clip(w->ex, a);
}

static Status average_range(EngineParams *w, const StepTensors *io, const UpdateRange *r)
{
    if (r->average.data == NULL) return OK;
    return weight_average(w->ex,
                          (WeightAverage){ .e = flat(&r->average),
                                           .w = flat(&r->w),
                                           .clip = io->record.clip,
                                           .rate = tensor_rows(&io->hyper, UPDATE_AVERAGE, 1) });
}

static Status update_ranges(EngineParams *w, const StepTensors *io)
{
    for (int i = 0; i < w->n_ranges; i++) {
        UpdateRange r;
        TRY(offload_take(w, i, &r));
        TRY(update_range(w, io, &r));
        TRY(offload_give(w, i));
    }
    return offload_end(w);
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

/* Every rank knows all heads' maxima then: those of layers that it does not hold are 0 before. */
static Status join_logits(EngineParams *w, const Record *r)
{
    const Mesh *m = w->shape->mesh;
    if (r->logits.data == NULL || m == NULL || m->ranks == 1) return OK;
    Tensor row = tensor_as2(&r->logits, 1, tensor_elems(&r->logits));
    return exchange_collective(w->ex, (Collective){ .in = row,
                                                    .out = row,
                                                    .kind = COMM_ALL_REDUCE,
                                                    .axis = AXIS_DP,
                                                    .group = GROUP_WORLD,
                                                    .largest = true,
                                                    .ranks = m->ranks });
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
    const bool limited = w->config->optimizer_skip_spikes > 0 || w->spec->optimizer.verifies;
    TRY(offload_begin(w));
    for (int i = 0; i < w->norm.n; i++) {
        SquareSum norm = w->norm.at[i];
        norm.sum = r->square_sum, norm.groups = r->group_sums;
        TRY(square_sum(w->ex, norm));
    }
    TRY(shards_check(w));
    TRY(checks_compare(w));
    TRY(update_add_records(w, r));
    TRY(join_logits(w, r));
    TRY(clip_scale(w->ex, (ClipScale){ .sum = r->square_sum,
                                       .norm = r->norm,
                                       .clip = r->clip,
                                       .overflow = r->overflow,
                                       .scale = io->grad_scale,
                                       .limit = limited ? tensor_rows(&io->hyper, UPDATE_LIMIT, 1)
                                                        : (Tensor){ 0 },
                                       .max_norm = (float)w->config->train_clip_norm }));
    TRY(touch_scratch(w));
    TRY(update_ranges(w, io));
    for (int i = 0; r->logits.data != NULL && i < w->table.n_matrices; i++)
        TRY(clip_matrix(w, &w->table.matrix[i], r));
    for (int i = 0; i < w->n_ranges; i++) TRY(average_range(w, io, &w->ranges[i]));
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

float norm_limit(const Config *c, const StepMeans *m)
{
    if (c->optimizer_skip_spikes <= 0 || m->norms.steps < BAND_FIRST) return FLT_MAX;
    return (float)fmin(c->optimizer_skip_spikes * m->norms.mean, (double)FLT_MAX);
}

bool norm_follow(const Config *c, StepMeans *m, double norm)
{
    if (c->optimizer_skip_spikes <= 0 || !isfinite(norm)) return false;
    const double limit = (double)norm_limit(c, m);
    band_add(&m->norms, fmin(norm, limit));
    return norm > limit;
}

double average_rate(const Config *c, const StepMeans *m)
{
    return fmax(1 - c->optimizer_ema, 1 / (double)(m->weights + 1));
}

/* The cost is linear in the number of elements, so a tensor of one element gives the bytes for one
 * parameter. */
double update_bytes(const ModelSpec *s)
{
    const Tensor one = { .dtype = DTYPE_F32, .rank = 1, .dim = { 1 } };
    return optimizer_update_bytes(&s->optimizer, copies_type(&s->weights)) +
           op_desc(OP_SQUARE_SUM)->cost(&(SquareSum){ .x = one }).bytes +
           s->optimizer.averages *
               op_desc(OP_WEIGHT_AVERAGE)->cost(&(WeightAverage){ .e = one }).bytes;
}

/* The part of lr - min_lr that is left after `at`, 0 to 1, of a fall. */
static double left_of(int decay, double at)
{
    if (decay == DECAY_LINEAR) return 1 - at;
    if (decay == DECAY_SQRT) return 1 - sqrt(at);
    return (1 + cos(3.14159265358979323846 * at)) / 2;
}

double learning_rate(const Config *c, int64_t step)
{
    double warm = (double)c->optimizer_warmup_steps, s = (double)step, start = warm;
    if (s <= warm) return c->optimizer_lr * s / warm;
    double end = (double)(c->optimizer_decay_steps > 0 ? c->optimizer_decay_steps : c->train_steps);
    int decay = c->optimizer_schedule == RATE_LINEAR ? DECAY_LINEAR : DECAY_COSINE;
    if (c->optimizer_schedule == RATE_WSD) {
        double length = (double)c->optimizer_decay_length;
        start = fmax(warm, end - (length > 0 ? length : floor(end / 10)));
        decay = c->optimizer_decay;
    }
    if (c->optimizer_schedule == RATE_CONSTANT || s <= start) return c->optimizer_lr;
    double at = end > start ? fmin(1, (s - start) / (end - start)) : 1;
    double span = c->optimizer_lr - c->optimizer_min_lr;
    return c->optimizer_min_lr + span * left_of(decay, at);
}
