/* rule_expert_bias: moe.bias_rate nudges the bias of each expert, from loads that are now of all ranks
 * (LayerDesc.after_step). */
#include "engine/step/step_rule.h"

static Status nudge_layers(EngineParams *w, const StepTensors *io)
{
    for (int i = 0; i < w->spec->n_layers; i++) {
        const LayerSpec *l = &w->spec->layers[i];
        const LayerDesc *desc = layer_desc(l->kind);
        if (desc->after_step == NULL || !layer_on(l, w->shape->pp_rank)) continue;
        if (role_frozen(l, ROLE_ROUTER_BIAS)) continue;
        w->ex->layer = l->block;
        TRY(desc->after_step(w->ex, l, &w->layer[i], &io->record));
    }
    return OK;
}

const StepRule step_rule_expert_bias = { .run = { [RULE_AFTER_UPDATE] = nudge_layers } };
