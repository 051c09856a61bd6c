/* infer: opens the model of a checkpoint on one rank without training it: to generate text, to evaluate. */
#ifndef ENGINE_TRAIN_INFER_H
#define ENGINE_TRAIN_INFER_H

#include "engine/checkpoint/checkpoint.h"

/* `checkpoint` is a run's folder or a checkpoint's. Sets `path` to the checkpoint's folder, and *out to its
 * configuration, changed to one rank. */
Status infer_config(const char *checkpoint, Arena *a, char path[], Config *out);

/* Opens an engine with the weights of the checkpoint `path`, or with their average. ERR_ARG: the host
 * has too little memory, or the checkpoint no average. */
Status infer_open(Engine *e, const Config *c, const EngineShape *shape, const char *path,
                  bool average, Arena *a, CheckpointInfo *info);

#endif
