/* lane: what may run side by side on one rank: a stream on a GPU, in order on a CPU. */
#ifndef BASE_LANE_H
#define BASE_LANE_H

typedef enum Lane { LANE_COMPUTE, LANE_COMM, LANE_COUNT } Lane;

#endif
