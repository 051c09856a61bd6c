/* init: a training that begins with the weights of a checkpoint (continued pre-training): finds the
 * checkpoint, and checks that its configuration fits the one that is asked for. Loading is checkpoint.h's;
 * random initial weights are engine_weights.h's. */
#ifndef ENGINE_CHECKPOINT_INIT_H
#define ENGINE_CHECKPOINT_INIT_H

#include "engine/checkpoint/checkpoint.h"
#include "engine/config/config.h"

/* Is it a folder in Hugging Face's format, and not a checkpoint? */
bool init_is_hf(const char *path);

/* Finds the checkpoint that --init names: a checkpoint's folder, or a run's (its newest one). ERR_ARG: a
 * folder in Hugging Face's format; it must be converted first. */
Status init_resolve(const char *path, Arena *scratch, char out[]);

/* Checks a checkpoint's configuration. Rank 0 logs each setting that differs, a line each. ERR_ARG: settings
 * that give parameters other names or shapes; the sentence lists all of them. Settings that only change
 * the mathematics (the base of rotary positions, top_k, the balancing loss) may differ. So may the number
 * of modules of multi-token prediction: rank 0 logs how many parameters are left out or begin at random,
 * and info->modules becomes the checkpoint's number. ERR_ARG: with init.moments, some modules have
 * moments and others would be new. */
Status init_check(const Config *now, const char *path, CheckpointInfo *info, bool is_rank0,
                  Arena *a);

/* Logs each change, a line each: "WHO: train.steps is 20, was 10". */
void init_log_changes(const char *who, const ConfigChange *changes, int n);

#endif
