/* checkpoint_folder: names and folders of checkpoints, and which buffers they have, for saving and
 * loading. What is in the files is manifest.h's. */
#ifndef ENGINE_CHECKPOINT_CHECKPOINT_FOLDER_H
#define ENGINE_CHECKPOINT_CHECKPOINT_FOLDER_H

#include "engine/base/file.h"
#include "engine/step/engine_parts.h"

/* Main weights, the optimizer's buffers, and what is not trained are saved, in this order. */
enum { CHECKPOINT_STEPS_MAX = 4096, CHECKPOINT_BUFFERS = BUF_COUNT - BUF_MAIN };
static inline ParamBuffer checkpoint_buffer(int i) { return (ParamBuffer)(BUF_MAIN + i); }

#define CHECKPOINT_TEMP ".tmp"

/* The group of all ranks over host memory; NULL: this rank is alone. */
static inline Comm *host_of(const EngineParams *w)
{
    return w->shape->mesh == NULL ? NULL : w->shape->mesh->group[GROUP_WORLD];
}
static inline int rank_of(const EngineParams *w)
{
    return w->shape->mesh == NULL ? 0 : host_of(w)->rank;
}
static inline int ranks_of(const EngineParams *w)
{
    return w->shape->mesh == NULL ? 1 : host_of(w)->size;
}

/* The step that a path says, whose last part is step-NUMBER; false: it is another name. */
bool folder_step(const char *path, int64_t *out);
/* Name FOLDER/step-N with the suffix, and rank-R.bin. */
Status folder_of_step(char out[FILE_PATH_MAX], const char *folder, int64_t step,
                      const char *suffix);
void folder_shard_name(char out[32], int rank);
/* The number in the name rank-NUMBER with this suffix; false: it is another name. */
bool folder_rank(const char *name, const char *suffix, int *out);

/* Removes what a killed run was writing: folders step-N.tmp. */
Status folder_remove_unfinished(const char *folder, Arena *a);

/* Steps of all finished checkpoints in a folder, rising; a missing folder has none. `steps` has
 * room for CHECKPOINT_STEPS_MAX. */
Status folder_steps(const char *folder, Arena *a, int64_t *steps, int *n);

/* Removes a checkpoint that `ranks` ranks wrote. It names the files itself, because a walk through the
 * folder would allocate while training runs. */
Status folder_remove(const char *folder, int ranks);

#endif
