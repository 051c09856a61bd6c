/*
 * engine: runs a Program over a model.
 *
 * Once: spec, parameter table, the programs of a step and of an evaluation; then both run on the
 * counting backend over arenas without memory, which gives the peak of every arena (engine_plan);
 * then the real arenas are made with exactly these sizes. From the first step on nothing is
 * allocated.
 *
 * Layers take their memory where layer.h says; the engine takes it back: scratch after each phase
 * function, ring after each layer, the slot layer by layer as backward goes down. Where a schedule
 * runs the weights' gradients apart, what waits for them lies in an arena of a pool, from the input
 * gradients to the weights'. Where it takes passes apart into phases, a forward and a backward are
 * under way at once and each has a ring of its own; a block is then taken back as a whole.
 */
#ifndef TRAIN_ENGINE_H
#define TRAIN_ENGINE_H

#include "train/engine_memory.h"
#include "train/engine_weights.h"

/* Bytes of ENGINE_STEP alone. */
Status engine_step_bytes(const ModelSpec *s, const EngineShape *shape, size_t *out);

/* The sizes of all arenas, without taking any memory worth speaking of. */
Status engine_plan(const Config *c, EngineUse use, const EngineShape *shape, EnginePlan *out);

/* Where rows can be without room in a training of this shape: the plan of the second way into
 * `retry`, which shape->retry then names; what it takes more is added to plan's scratch. */
Status engine_plan_retry(const Config *c, EngineShape *shape, EnginePlan *plan, EnginePlan *retry);

/* Arenas of the plan's sizes; weights are not set (engine_init_weights or a checkpoint). */
Status engine_open(Engine *e, const Config *c, EngineUse use, const EngineShape *shape,
                   const EnginePlan *plan);
void engine_close(Engine *e); /* safe on { 0 } */

/* On a GPU, before weights are set: one step over random ones, so that every kernel is loaded and
 * an algorithm for every product chosen (those of `products`, a checkpoint's text, or NULL, stay as
 * they are; op/choices.h); then the step is recorded as a graph. Without it steps are launched op
 * by op. On the CPU nothing happens. */
Status engine_prepare(Engine *e, const char *products);

/* Other room for rows between two steps: new arenas for what a step takes, and a new graph. Weights and
 * all else stay. `shape` and `plan` are those that the engine was opened with, planned with other
 * room; both ways are there. */
Status engine_resize(Engine *e, const EngineShape *shape, const EnginePlan *plan);

/* One optimizer step on a global batch. A result that is not finite changed nothing. */
Status engine_step(Engine *e, const Batch *batch, double lr, int64_t step, StepResult *out);

/* Did the update before leave what is not finite? Else run the same step again under guard, without
 * update: the error names layer and op. Returns ERR_NUMERIC in any case. Collective. */
Status engine_explain_nan(Engine *e, const Batch *batch, int64_t step);

/* Record every action, phase and op of the next steps (NULL: stop), and look at every op's outputs
 * for a NaN from now on. */
void engine_guard(Engine *e);

/* Forward without training on up to micro_batch sequences, by all stages together: the losses (N)
 * of all targets, in host memory until the next call; NULL on a stage without the head. */
Status engine_losses(Engine *e, const Batch *batch, const float **losses);

/* Tokens by (MoE layer, domain, expert) of the last step or evaluation. */
const int32_t *engine_load(const Engine *e);

/* Forward of n new tokens of one sequence behind the cache's; logits (rows, V) of the last
 * min(n, logit_rows), in host memory until the next call. */
Status engine_next_logits(Engine *e, const int32_t *id, int64_t n, const float **logits);

#endif
