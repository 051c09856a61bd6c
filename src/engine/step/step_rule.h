/* step_rule: the rules of a step as a table. update_run, the engine, checkpoints and plans walk the table; none of them
 * names a rule. A row gives only what it needs, all else is NULL; what it gives is called if the model follows the
 * rule (engine/model/rules.def).
 *
 * On the device, enqueued in this order (a captured graph holds the calls, so they may not depend on the step):
 *   RULE_BEFORE_SUMS    this rank's gradients and losses are complete
 *   RULE_AFTER_UPDATE   the optimizer has updated the weights; unless Record.clip is not finite: the step is skipped
 * On the host: `scalar` before the step, `follow` after it.
 * What a rule reads in a step, and what it costs, is counted in engine/count/engine_count.c, which plans share. */
#ifndef ENGINE_STEP_STEP_RULE_H
#define ENGINE_STEP_STEP_RULE_H

#include "engine/base/scan.h"
#include "engine/step/engine_parts.h"

enum { RULE_SAVED = 3 }; /* numbers that a rule has in a checkpoint, at most */

typedef enum RulePhase { RULE_BEFORE_SUMS, RULE_AFTER_UPDATE, RULE_PHASES } RulePhase;

typedef struct StepRule {
    Status (*run[RULE_PHASES])(EngineParams *w, const StepTensors *io);
    bool limits; /* a step whose norm is above UPDATE_LIMIT is skipped */
    /* The number that the device has at UPDATE_RULES + the rule, with and without the rule. */
    float (*scalar)(const EngineParams *w);
    /* Takes note of the step that ended, and may declare it skipped. */
    void (*follow)(EngineParams *w, StepResult *out);
    /* Members of RuleState in a manifest: SCAN_WHOLE or SCAN_NUMBER, none negative; all 0 are left out. */
    ScanField saved[RULE_SAVED];
    /* Called of every rule: makes the state of a training's beginning, from zeros or what a checkpoint says; and what a
     * checkpoint has of it. */
    void (*begin)(const Config *c, RuleState *s);
    void (*save)(const ModelSpec *spec, RuleState *s);
} StepRule;

#define STEP_RULE(NAME, name, wanted) extern const StepRule step_rule_##name;
#include "engine/model/rules.def"
#undef STEP_RULE

extern const StepRule *const step_rules[STEP_RULES];

/* The next rule from number *i on that the model follows; NULL: there is none. */
const StepRule *rules_next(const ModelSpec *s, int *i);

RuleState rules_begin(const Config *c, const RuleState *saved); /* NULL: nothing was saved */
RuleState rules_save(const EngineParams *w);

/* loss_scale: rule_loss_scale.c. The scale of the loss in the first step of a training. */
LossScale loss_scale_start(const Config *c);

/* The same for a training that goes on from a checkpoint. What is fixed is not taken from there. */
LossScale loss_scale_resume(const Config *c, const LossScale *saved);

/* Takes note of a step whose loss is finite: after one whose gradients are not, the scale is halved;
 * after many good ones it is doubled. False: the scale is fixed, or as small as it may be, and cannot
 * explain the step. */
bool loss_scale_follow(const Config *c, LossScale *s, bool finite);

/* spikes: rule_spikes.c. A step is skipped if its gradient norm is above
 *   limit = optimizer.skip_spikes * mean,   mean += (min(norm, limit) - mean) / min(steps, 100)
 * after each step. The minimum keeps one spike from raising the limit, but norms that stay large end
 * up in the mean, so that a training cannot skip for ever. The host computes the limit from earlier
 * steps alone and the device compares: no step waits, and all ranks have the same sums, so all skip.
 *
 * norm_limit: of the next step; the largest float without a guard and in the first 20 steps.
 * norm_follow: takes note of a step's norm. True: it is a spike. */
float norm_limit(const Config *c, const StepMeans *m);
bool norm_follow(const Config *c, StepMeans *m, double norm);

/* average: rule_average.c. e += r (w - e) after an update, with r = max(1 - optimizer.ema, 1 / n) at the
 * n-th one. So its beginning is a plain mean, and the initial weights do not count. */
double average_rate(const Config *c, const StepMeans *m);

#endif
