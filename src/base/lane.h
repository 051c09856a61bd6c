/* lane: the lanes of a rank, which may run side by side (a stream each on a GPU; one after the
 * other on a CPU), and the parts of a block of the model that schedules move and plans have times
 * for. */
#ifndef BASE_LANE_H
#define BASE_LANE_H

typedef enum Lane { LANE_COMPUTE, LANE_COMM, LANE_COUNT } Lane;

/* A rank has at most so many queues: its lanes, and those of its transfers (schedule/action.h). On a
 * GPU each queue is a stream. The engine has so many, and every schedule that asks for more is
 * refused by schedule_legal(): in a search, in a plan, in a dry run and at the start. */
enum { STREAMS_MAX = LANE_COUNT + 8 };

/* The parts of a block in forward's order. Even parts compute, odd parts move tokens between the
 * ranks of the experts. */
typedef enum BlockPart {
    PHASE_ATTENTION,
    PHASE_DISPATCH,
    PHASE_EXPERTS,
    PHASE_COMBINE,
    PHASES
} BlockPart;

#endif
