/* init: a training that begins with a checkpoint's weights (continued pre-training). Where the
 * weights lie, and whether the checkpoint's configuration fits the one that is asked for. */
#ifndef TRAIN_INIT_H
#define TRAIN_INIT_H

#include "config/config.h"
#include "train/checkpoint.h"

/* Is it a folder in Hugging Face's form, and no checkpoint? */
bool init_is_hf(const char *path);

/* What --init names: a checkpoint's folder, a run's folder (its newest checkpoint). ERR_ARG: a folder
 * in Hugging Face's form, which is converted first. */
Status init_resolve(const char *path, Arena *scratch, char out[]);

/* Says each setting that differs from the checkpoint's, a line each (`speaks`). ERR_ARG: settings
 * that give parameters other names or shapes; the sentence has all of them. Of other mathematics (the
 * base of rotary positions, top_k, the balancing loss) a training may go on with more than it began
 * with, so these are only said. So is another number of modules of multi-token prediction: how many
 * parameters are left out, or begin at random; info->modules becomes the checkpoint's. ERR_ARG: with
 * init.moments only some of several modules would be new. */
Status init_check(const Config *now, const char *path, CheckpointInfo *info, bool speaks, Arena *a);

/* Says each change, a line each: "WHO: train.steps is 20, was 10". */
void init_say(const char *who, const ConfigChange *changes, int n);

#endif
