/* engine_batch: the inputs and the record of a step, in the host's view of the step arena. engine_copy_in
 * brings inputs to the device. */
#ifndef ENGINE_STEP_ENGINE_BATCH_H
#define ENGINE_STEP_ENGINE_BATCH_H

#include "engine/step/engine_parts.h"

/* Writes a tensor that lies in the step arena. */
void engine_write(const EngineArenas *m, const Tensor *t, const void *from);
/* Writes this rank's part of the sequences of a batch, which every rank of a group of cp and tp is given
 * whole; and its number of the step and the scales of its losses. */
void engine_write_batch(Engine *e, const Batch *b);

/* Makes the host's copies of figures by layer (StepTensors.host). */
Status engine_host_figures(Arena *a, StepTensors *io);
/* Reads what the step that has ended wrote into its record. */
void engine_read_record(const EngineArenas *m, const ModelSpec *s, const StepTensors *io,
                        double loss_scale, StepResult *out);
/* Number i of a figure of the result; NaN: it has none. */
double step_figure(const StepResult *r, Figure f, int i);

#endif
