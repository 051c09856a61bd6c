/* new_checkpoint: writes a model of another format as a checkpoint of one rank, with its config.yaml. The caller
 * reads the elements; memory holds one entry of at most 16 Mi of them. */
#ifndef CONVERT_NEW_CHECKPOINT_H
#define CONVERT_NEW_CHECKPOINT_H

#include "engine/base/out_folder.h"
#include "engine/checkpoint/manifest.h"

/* Rows of a parameter in a buffer: main weights, state, or one of the optimizer's buffers. A vector has rows of
 * one element. */
typedef struct NewPart {
    int param; /* index in the table of parameters */
    ParamBuffer buffer;
    const OptimizerDesc *rule; /* whose state the buffer is; NULL: no rule's */
    int64_t row, rows, cols;
} NewPart;

typedef struct NewCheckpoint {
    OutFolder out;
    const char *from; /* what is converted, for the progress */
    const Config *config;
    const ParamTable *params;
    CheckpointInfo info; /* step, and what goes with moments; `config` is set here */
    bool moments;        /* the optimizer's buffers are written, too */
    Status (*read)(void *self, const NewPart *part, float *out); /* as f32 */
    Status (*files)(void *self); /* writes other files into out.temp */
    void *self;
    Arena *arena;
} NewCheckpoint;

/* Writes all of it, or nothing. out_folder has set w->out. */
Status new_checkpoint_write(NewCheckpoint *w);

/* ERR_FORMAT: elements of a part, which `tensor` in `file` holds, are not finite, or less than their buffer may
 * hold. */
Status new_checkpoint_numbers(const char *file, const char *tensor, const NewPart *part,
                              const float *x);

#endif
