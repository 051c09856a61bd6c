/* update: launches the ops at the end of a step, in the order that the header gives. */
#include "engine/step/update.h"

#include "engine/step/offload.h"
#include "kernels/exchange/exchange.h"
#include "kernels/optimizer/optimizer.h"

#include <math.h>
#include <string.h>

/* Index of a rule's first scalar for parameters of an age. */
static int scalars_at(int rule, int age) { return (rule * AGE_COUNT + age) * OPTIMIZER_SCALARS; }

void update_scalars(const EngineParams *w, double lr, int64_t step, float out[UPDATE_SCALARS])
{
    memset(out, 0, UPDATE_SCALARS * sizeof *out);
    for (int i = 0; i < OPTIMIZER_RULES && w->spec->optimizer.rule[i] != NULL; i++) {
        for (int age = 0; age < AGE_COUNT; age++) {
            const double updates =
                (double)(step + w->moment_steps[age] - w->kept.loss_scale.skipped);
            w->spec->optimizer.rule[i]->scalars(w->config, lr, updates, out + scalars_at(i, age));
        }
    }
    for (int i = 0; i < STEP_RULES; i++)
        if (step_rules[i]->scalar != NULL) out[UPDATE_RULES + i] = step_rules[i]->scalar(w);
}

/* Runs the rule of one range with the scalars of its age. A model has at most two rules, so the
 * index of the rule is 0 or 1. */
static Status update_range(EngineParams *w, const StepTensors *io, const UpdateRange *r)
{
    int rule = r->rule == w->spec->optimizer.rule[0] ? 0 : 1;
    Tensor scalars = tensor_rows(&io->hyper, scalars_at(rule, (int)r->age), OPTIMIZER_SCALARS);
    w->ex->layer = quant_out_wanted(&r->scaled) ? r->block : -1;
    return r->rule->run(w->ex, w->config, r, io->record.clip, scalars);
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

/* Adds a tensor of the record over all ranks, or takes the largest of all, in place. */
static Status join_ranks(EngineParams *w, Tensor of, bool largest)
{
    const Mesh *m = w->shape->mesh;
    if (of.data == NULL || m == NULL || m->ranks == 1) return OK;
    Tensor row = tensor_as2(&of, 1, tensor_elems(&of));
    return exchange_collective(w->ex, (Collective){ .in = row,
                                                    .out = row,
                                                    .kind = COMM_ALL_REDUCE,
                                                    .axis = AXIS_DP,
                                                    .group = GROUP_WORLD,
                                                    .largest = largest,
                                                    .ranks = m->ranks });
}

/* Every rank knows the largest numbers then: those of layers that it does not hold are 0 before. */
static Status join_largest(EngineParams *w, const Record *r)
{
    for (int f = 0; f < FIGURES; f++) {
        if (figure_rows[f].record == RECORD_MAX)
            TRY(join_ranks(w, record_figure(r, (Figure)f), true));
    }
    return OK;
}

/* One message a tensor. Counts exist only for MoE layers. Every rank needs the sums: each computes the
 * same clipping factor from them and skips or runs the same update. */
Status update_add_records(EngineParams *w, const Record *r)
{
    TRY(join_ranks(w, r->sums, false));
    return join_ranks(w, r->counts, false);
}

/* Enqueues what the rules do that the model follows, in one of the update's phases. */
static Status run_rules(EngineParams *w, const StepTensors *io, RulePhase phase)
{
    const StepRule *rule;
    for (int i = 0; (rule = rules_next(w->spec, &i)) != NULL;)
        if (rule->run[phase] != NULL) TRY(rule->run[phase](w, io));
    return OK;
}

/* Does a rule skip steps of a large norm? */
static bool limits(const ModelSpec *s)
{
    bool any = false;
    const StepRule *rule;
    for (int i = 0; (rule = rules_next(s, &i)) != NULL;) any |= rule->limits;
    return any;
}

/* The order is fixed by data: the norm needs all squares, clipping needs the sums of all ranks, and
 * the optimizer needs the clipping factor. */
Status update_run(EngineParams *w, const StepTensors *io)
{
    const Record *r = &io->record;
    TRY(offload_begin(w));
    for (int i = 0; i < w->norm.n; i++) {
        SquareSum norm = w->norm.at[i];
        norm.sum = r->square_sum, norm.groups = r->group_norm;
        TRY(square_sum(w->ex, norm));
    }
    TRY(run_rules(w, io, RULE_BEFORE_SUMS));
    TRY(update_add_records(w, r));
    TRY(join_largest(w, r));
    TRY(clip_scale(w->ex,
                   (ClipScale){ .sum = r->square_sum,
                                .norm = r->grad_norm,
                                .clip = r->clip,
                                .overflow = r->overflow,
                                .scale = io->grad_scale,
                                .limit = limits(w->spec) ? tensor_rows(&io->hyper, UPDATE_LIMIT, 1)
                                                         : (Tensor){ 0 },
                                .max_norm = (float)w->config->train_clip_norm }));
    TRY(touch_scratch(w));
    TRY(update_ranges(w, io));
    return run_rules(w, io, RULE_AFTER_UPDATE);
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
