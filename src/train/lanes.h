/*
 * lanes: on GPUs what goes between ranks runs beside what is computed: a stream for each lane.
 *
 * The comm lane begins behind all that compute was given so far; compute goes on and waits for it
 * when it needs the result: the next phase does, unless it says that it runs beside (shared
 * experts, while tokens travel); a layer waits for its own weights and for the place of its own
 * gradients (shards.h). Each lane has scratch of its own. On the CPU, and on one GPU, there is one
 * lane and all of this is nothing.
 */
#ifndef TRAIN_LANES_H
#define TRAIN_LANES_H

#include "model/layer.h"

typedef struct Engine Engine;

/* What can be waited for by itself. */
typedef enum LaneMark {
    MARK_EXCHANGE,     /* of the last phase on the comm lane */
    MARK_EVEN_WEIGHTS, /* layers' weights are there: even ones', odd ones' */
    MARK_ODD_WEIGHTS,
    MARK_EVEN_GRADIENTS, /* layers' gradients are gone */
    MARK_ODD_GRADIENTS,
    MARK_ALL,
    MARK_ENTER,
    LANE_MARKS
} LaneMark;

typedef struct Lanes {
    bool on;
    Arena scratch; /* of the comm lane */
    Event event[LANE_MARKS];
    bool due[LANE_MARKS]; /* compute has not waited for it yet */
} Lanes;

/* Events; behind the Exec and the mesh. */
Status lanes_make(Engine *e);

/* Launches go to the comm lane from here to lanes_leave, after which `mark` is due. */
Status lanes_enter(Engine *e);
Status lanes_leave(Engine *e, LaneMark mark);
/* Compute waits for it, if it is due. */
Status lanes_wait(Engine *e, LaneMark mark);

/* Before a phase and after it. */
Status lanes_begin_phase(Engine *e, LayerRun *r, const Phase *f);
Status lanes_end_phase(Engine *e, const Phase *f);

#endif
