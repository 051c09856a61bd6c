/*
 * engine: runs a Program over a model.
 *
 * Once: spec, parameter table, the programs of a step and of an evaluation; then both run on the
 * counting backend over arenas without memory, which gives the peak of every arena (engine_plan);
 * then the real arenas are made with exactly these sizes. From the first step on nothing is
 * allocated.
 *
 * Layers allocate where layer.h says, and the engine releases it: scratch after each phase function,
 * the ring after each layer, the slot layer by layer as backward goes down. A schedule may split weight
 * gradients from input gradients. What they need then lies in an arena of a pool, from the input
 * gradients to the weight gradients. A schedule may also run passes phase by phase. Then a forward and a
 * backward are under way at once, each has a ring of its own, and a block is released as a whole.
 *
 * Not here: the data (corpus/shard/loader.h), the state of a run (run_parts.h), its recording (recorder.h).
 */
#ifndef ENGINE_STEP_ENGINE_H
#define ENGINE_STEP_ENGINE_H

#include "engine/step/engine_memory.h"
#include "engine/step/engine_weights.h"

/* The sizes of all arenas, from a counting run. It takes memory for its tables only. */
Status engine_plan(const Config *c, EngineUse use, const EngineShape *shape, EnginePlan *out);

/* If received rows can exceed their capacity in a training of this shape, plans the second mode
 * (EngineMode) into `retry` and points shape->retry at it. The modes share memory: what the second needs
 * beyond the first is added to plan's scratch. */
Status engine_plan_retry(const Config *c, EngineShape *shape, EnginePlan *plan, EnginePlan *retry);

/* Allocates arenas of the plan's sizes. Weights are not set: engine_init_weights or a checkpoint does
 * that. `c`, the shape's pointers and `plan` must outlive the engine. */
Status engine_open(Engine *e, const Config *c, EngineUse use, const EngineShape *shape,
                   const EnginePlan *plan);
void engine_close(Engine *e); /* safe on { 0 } */

/* On a GPU, before weights are set: runs one step over random weights. It loads every kernel and chooses an algorithm
 * for every product. Those in `products` (a checkpoint's text, or NULL) are taken from it (kernels/core/choices.h).
 * Then the step is captured as a graph. Without this call steps are launched op by op. On the CPU nothing happens. */
Status engine_prepare(Engine *e, const char *products);

/* Changes the capacity for rows between two steps: new arenas for the work of a step, and a new graph. Weights and all
 * else stay. `shape` and `plan` are those of engine_open with another capacity; the engine must have both modes. */
Status engine_resize(Engine *e, const EngineShape *shape, const EnginePlan *plan);

/* One optimizer step on a global batch. If the result is not finite, the step was skipped: weights and
 * moments are as before. */
Status engine_step(Engine *e, const Batch *batch, double lr, int64_t step, StepResult *out);

/* Finds where a step first became not finite. Looks at the weights and moments that the update before
 * left, then runs the same step again under guard; the error names the layer and the op. Always returns
 * an error, ERR_NUMERIC unless the search itself fails. Collective. */
Status engine_explain_nan(Engine *e, const Batch *batch, int64_t step);

/* From now on looks at the outputs of every op for a value that is not finite (backend_guard). */
void engine_guard(Engine *e);

/* Forward without training on up to micro_batch sequences, by all stages together: the losses (N)
 * of all targets, in host memory until the next call; NULL on a stage without the head. */
Status engine_losses(Engine *e, const Batch *batch, const float **losses);

/* Tokens by (MoE layer, domain, expert) of the last step or evaluation, in the engine's memory. */
const int32_t *engine_load(const Engine *e);

/* Forward of the new tokens of `parts` sequences of the cache, at most EngineShape.sequence in all: `id` has those of
 * one part behind those of the other. A sequence is begun, or taken up at any earlier token, by the part's `used`.
 * Logits (rows, V) of the last min(new tokens, logit_rows), in host memory until the next call. A token's logits do
 * not depend on other parts, but for the order of sums in products of other sizes. ERR_ARG: too many tokens. */
Status engine_cached_logits(Engine *e, const CachePart *part, int parts, const int32_t *id,
                            const float **logits);

/* The same for n new tokens of one sequence behind those before; logits (rows, V) of the last
 * min(n, logit_rows), in host memory until the next call. */
Status engine_next_logits(Engine *e, const int32_t *id, int64_t n, const float **logits);

#endif
