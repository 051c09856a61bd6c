/* rule_loss_scale: run.compute=f16 multiplies the loss, so that its gradients can be held (LossScale). */
#include "engine/step/step_rule.h"

#include <math.h>

/* With 2^16 the gradients of most models overflow in a few first steps and fit from then on. 2^24 is
 * far above what helps, and keeps squares of gradients far below f32's largest number. */
static const double SCALE_START = 65536, SCALE_MOST = 1 << 24;
enum { SCALE_GROWS = 2000 };

LossScale loss_scale_start(const Config *c)
{
    return (LossScale){ .now = c->run_compute == COMPUTE_F16 ? SCALE_START : 1 };
}

LossScale loss_scale_resume(const Config *c, const LossScale *saved)
{
    LossScale s = loss_scale_start(c);
    if (c->run_compute == COMPUTE_F16 && saved->now > 0) s = *saved;
    s.skipped = saved->skipped;
    return s;
}

bool loss_scale_follow(const Config *c, LossScale *s, bool finite)
{
    if (c->run_compute != COMPUTE_F16 || (!finite && s->now <= 1)) return finite;
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

static void follow(EngineParams *w, StepResult *out)
{
    if (!isfinite(out->loss)) return;
    out->skipped = loss_scale_follow(w->config, &w->kept.loss_scale, out->finite) && !out->finite;
}

static void begin(const Config *c, RuleState *s)
{
    s->loss_scale = loss_scale_resume(c, &s->loss_scale);
}

/* Other types have no scale. */
static void save(const ModelSpec *spec, RuleState *s)
{
    if (spec->act != DTYPE_F16) s->loss_scale.now = 0;
}

const StepRule step_rule_loss_scale = {
    .follow = follow,
    .saved = { { "loss_scale", SCAN_NUMBER, offsetof(RuleState, loss_scale.now) },
               { "good_steps", SCAN_WHOLE, offsetof(RuleState, loss_scale.good) },
               { "skipped_steps", SCAN_WHOLE, offsetof(RuleState, loss_scale.skipped) } },
    .begin = begin,
    .save = save,
};
