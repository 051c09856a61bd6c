/* inputs: counts the layers of pipeline rank 0, and computes the numbers of inputs.def. */
#include "planner/stack/inputs.h"

#include "engine/schedule/layout.h"
#include "kernels/core/kinds.h"

/* Numbers of layers: of the model, of rank 0, and of rank 0's that are recomputed; [0] dense, [1] MoE. */
typedef struct Layers {
    int64_t all[2], rank[2], recomputed[2];
} Layers;

static bool is_recomputed(const Config *c, int64_t layer)
{
    return config_has_text(&c->recompute_pieces, "layer") &&
           config_has_int(&c->recompute_layers, layer);
}

/* Rank 0 has stages 0, pp, 2 pp, ...: one for each chunk. */
static Status count_layers(const Config *c, Arena *a, Layers *n)
{
    Layout layout;
    int stages = (int)(c->mesh_pp * c->mesh_vpp), layers = (int)c->model_layers;
    TRY(*c->mesh_layout == '\0' ? layout_even(stages, layers, a, &layout)
                                : layout_parse(c->mesh_layout, stages, layers, a, &layout));
    int64_t experts = config_moe_layers(c);
    *n = (Layers){ .all = { c->model_layers - experts, experts } };
    for (int64_t i = 0; i < stages; i += c->mesh_pp) {
        const LayoutStage *stage = &layout.stage[i];
        for (int l = stage->first; l < stage->first + stage->layers; l++) {
            int moe = config_has_experts(c, l);
            n->rank[moe]++;
            n->recomputed[moe] += is_recomputed(c, l);
        }
    }
    return OK;
}

Status plan_inputs(const Config *c, int64_t gpus, InputTokens micro, Arena *a, PlanInputs *out)
{
    Layers n;
    TRY(count_layers(c, a, &n));
    *out = (PlanInputs){
#define INPUT(name, value, source) .name = (double)(value),
#include "planner/stack/inputs.def"
#undef INPUT
    };
    return OK;
}
