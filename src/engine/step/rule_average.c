/* rule_average: optimizer.ema, the average of weights. */
#include "engine/step/step_rule.h"

#include "kernels/optimizer/optimizer.h"

#include <math.h>

double average_rate(const Config *c, const StepMeans *m)
{
    return fmax(1 - c->optimizer_ema, 1 / (double)(m->weights + 1));
}

/* Ranges of the optimizer's rules on whole matrices have their shapes. */
static Tensor flat(const Tensor *t)
{
    Tensor row = tensor_as2(t, 1, tensor_elems(t));
    row.rank = 1, row.dim[0] = row.dim[1];
    return row;
}

static Status average_ranges(EngineParams *w, const StepTensors *io)
{
    for (int i = 0; i < w->n_ranges; i++) {
        const UpdateRange *r = &w->ranges[i];
        if (r->average.data == NULL) continue;
        TRY(weight_average(
            w->ex,
            (WeightAverage){ .e = flat(&r->average),
                             .w = flat(&r->w),
                             .clip = io->record.clip,
                             .rate = tensor_rows(&io->hyper, UPDATE_RULES + RULE_AVERAGE, 1) }));
    }
    return OK;
}

static float scalar(const EngineParams *w)
{
    return (float)average_rate(w->config, &w->kept.means);
}

static void follow(EngineParams *w, StepResult *out) { w->kept.means.weights += !out->skipped; }

const StepRule step_rule_average = {
    .run = { [RULE_AFTER_UPDATE] = average_ranges },
    .scalar = scalar,
    .follow = follow,
    .saved = { { "averaged", SCAN_WHOLE, offsetof(RuleState, means.weights) } },
};
