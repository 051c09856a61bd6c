/* recording: when the passes and sends of a stage ran, as a file that `switchyard viz` draws beside
 * a simulated pipeline (docs/reference/formats.md, pp_rank_N.json). */
#ifndef TRAIN_RECORDING_H
#define TRAIN_RECORDING_H

#include "train/engine.h"

/* The engine's last step, into `folder`: this stage's file, and from the first stage config.json.
 * Of several ranks of one stage only the first writes. Nothing without a pipeline over ranks or
 * lanes that are streams: then one action runs at a time. */
Status recording_write(const Engine *e, const char *folder, Arena *scratch);

#endif
