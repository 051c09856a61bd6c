/* offload: optimizer state in host memory (optimizer.offload), which the update brings to the GPU and
 * takes back, piece by piece. Weights, gradients and the average of weights stay on the GPU.
 *
 * The ranges of the update are cut into pieces. Three buffers on the GPU hold the states of three pieces:
 * of one that comes, one that is updated, and one that goes. Two streams copy, one each way:
 *
 *     in       piece 3 ------> piece 4 ------>
 *     compute           update 2     update 3
 *     out      <------ piece 1 <------ piece 2         piece i lies in buffer i % 3
 *
 * The first three pieces come before the norm is known. The compute lane waits for the last copy, so
 * between steps host memory has all states, and checkpoints read them there. An update is the same op on
 * the same numbers, so the bits are those of an update without copies.
 *
 * On a CPU the states are in host memory anyway: nothing is cut and nothing copied. */
#ifndef ENGINE_STEP_OFFLOAD_H
#define ENGINE_STEP_OFFLOAD_H

#include "engine/step/engine_parts.h"

typedef struct Offload {
    Tensor buffer[OFFLOAD_BUFFERS][OPTIMIZER_STATES]; /* rank 1, on the device; data NULL: none */
    void *in, *out;                                   /* streams */
    Event begun, come[OFFLOAD_BUFFERS], updated[OFFLOAD_BUFFERS], gone[OFFLOAD_BUFFERS];
} Offload;

/* Cuts w->ranges into pieces of at most `most` elements (a multiple of PARAM_ALIGN), and makes the buffers in
 * `device` and the streams: w->offload. Nothing if there are no ranges. */
Status offload_make(EngineParams *w, int64_t most, Arena *device);

/* No-ops without w->offload. begin starts the first copies. take makes the compute lane wait for the states of
 * range i, and sets *out to the range with its states on the device. give starts the copies after the update of
 * range i. end makes the compute lane wait for the last one. */
Status offload_begin(EngineParams *w);
Status offload_take(EngineParams *w, int i, UpdateRange *out);
Status offload_give(EngineParams *w, int i);
Status offload_end(EngineParams *w);

#endif
