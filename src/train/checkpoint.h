/* checkpoint: the whole state of a training, written so that a crash can only cost the newest one.
 *
 *   RUN/checkpoints/step-0000000040/rank-00000.bin    raw f32 elements, each entry 64-byte aligned
 *                                   manifest.jsonl    written last
 *
 * The manifest is one JSON object a line (docs/formats.md): a header, one line an entry, and an end
 * line with the number of entries and the XXH3-128 of all lines before it, without which the folder
 * is not a checkpoint. All is written into step-N.tmp, each file fsynced, the manifest last, then
 * the folder is renamed. Coordinates are parameter names and element ranges of the canonical
 * unsharded tensor: how buffers are fused, padded or sharded is decided at load. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "train/engine.h"

typedef struct CheckpointInfo {
    int64_t step;
    uint64_t position;    /* training sequences read */
    const char *config;   /* YAML */
    const char *products; /* a GPU's algorithms (op/choices.h); "": none */
} CheckpointInfo;

/* Saves into one run's folder and keeps the newest `keep`. All its memory is taken at open, so that
 * saving allocates nothing. */
typedef struct Checkpointer {
    const char *folder; /* RUN/checkpoints */
    const char *config; /* YAML of this run */
    int64_t *steps;     /* of the checkpoints there, rising */
    int n_steps, keep;
    char *buffer; /* of the file being written */
    Arena arena;
} Checkpointer;

Status checkpointer_open(Checkpointer *k, const Config *c, Arena *a);
void checkpointer_close(Checkpointer *k); /* safe on { 0 } */

/* ERR_DISK if it cannot be written whole; older checkpoints stay as they are. */
Status checkpoint_save(Checkpointer *k, Engine *e, int64_t step, uint64_t position);

/* Header only; texts in `a`. `path` is a checkpoint's folder. */
Status checkpoint_info(const char *path, Arena *a, CheckpointInfo *out);

/* Every parameter of the engine from the folder `path`; moments too if the engine trains. Sums are
 * verified. ERR_FORMAT or ERR_IO: the checkpoint is damaged (what, where); ERR_ARG: it is of
 * another model, the first differing parameter is named. */
Status checkpoint_load(Engine *e, const char *path, Arena *scratch, CheckpointInfo *info);

/* Load the newest whole checkpoint of a run's folder; damaged ones are warned about and passed
 * over. ERR_IO if there is none. */
Status checkpoint_load_newest(Engine *e, const char *run_dir, Arena *scratch, CheckpointInfo *info);

/* A path given by a user: a checkpoint's folder, or a run's folder (its newest checkpoint with a
 * whole manifest). */
Status checkpoint_resolve(const char *path, Arena *scratch, char out[]);

#endif
