/* rule_spikes: optimizer.skip_spikes, the guard against steps of a large gradient norm. */
#include "engine/step/step_rule.h"

#include <float.h>
#include <math.h>

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

static float scalar(const EngineParams *w) { return norm_limit(w->config, &w->kept.means); }

static void follow(EngineParams *w, StepResult *out)
{
    if (!norm_follow(w->config, &w->kept.means, out->grad_norm)) return;
    out->skipped = true;
    w->kept.loss_scale.skipped++;
}

const StepRule step_rule_spikes = {
    .limits = true,
    .scalar = scalar,
    .follow = follow,
    .saved = { { "norm_mean", SCAN_NUMBER, offsetof(RuleState, means.norms.mean) },
               { "norm_steps", SCAN_WHOLE, offsetof(RuleState, means.norms.steps) } },
};
