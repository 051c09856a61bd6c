/* lane: what may run side by side on one rank (a stream each on a GPU, in order on a CPU), and the
 * parts of a block of the model that schedules move and that plans have times for. */
#ifndef BASE_LANE_H
#define BASE_LANE_H

typedef enum Lane { LANE_COMPUTE, LANE_COMM, LANE_COUNT } Lane;

/* In forward's order: the even ones compute, the odd ones move tokens between the ranks of the
 * experts. */
typedef enum BlockPart {
    PHASE_ATTENTION,
    PHASE_DISPATCH,
    PHASE_EXPERTS,
    PHASE_COMBINE,
    PHASES
} BlockPart;

#endif
