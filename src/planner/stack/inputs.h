/* inputs: the numbers that memory formulas and stacks are computed from: settings, layers of pipeline
 * rank 0, and for stacks a micro-batch and the GPU.
 *
 * Stage i of mesh.layout is on rank i mod pp. Without a layout all stages have equally many layers, and the
 * first ones take the remainder. This is Primus' rule; `train` has its own (engine_program.h). */
#ifndef PLANNER_STACK_INPUTS_H
#define PLANNER_STACK_INPUTS_H

#include "engine/config/config.h"
#include "hardware/hardware.h"

typedef struct PlanInputs {
#define INPUT(name, value, source) double name;
#include "planner/stack/inputs.def"
#undef INPUT
} PlanInputs;

/* A micro-batch on one rank, of mesh.tp, too. Rows are averages times plan.imbalance. */
typedef struct InputTokens {
    double tokens;   /* on one rank */
    double routed;   /* rows of a rank's experts */
    double received; /* tokens that these rows come from */
    unsigned again;  /* what the layer recomputes, a set of RecomputePiece */
    const Hardware *hardware;
} InputTokens;

/* Fills all inputs. `micro` is { 0 } for formulas, which have no micro-batch of their own. ERR_ARG:
 * mesh.layout does not fit mesh.pp x mesh.vpp stages or model.layers. */
Status plan_inputs(const Config *c, int64_t gpus, InputTokens micro, Arena *a, PlanInputs *out);

#endif
