/* lane: names that the schedule, the engine, the planner and the backends share. A rank's lanes can
 * overlap on a GPU, where each is a stream; on a CPU they run one after the other. The parts of a
 * transformer block are what schedules move between lanes and what plans have times for. */
#ifndef ENGINE_BASE_LANE_H
#define ENGINE_BASE_LANE_H

typedef enum Lane { LANE_COMPUTE, LANE_COMM, LANE_COUNT } Lane;

/* The most queues that a rank can have: its lanes and the queues of its transfers (engine/schedule/action.h).
 * On a GPU each queue is a stream. schedule_legal() refuses schedules that need more, in every use: a
 * search, a plan, a dry run, and the start of a run. */
enum { QUEUES_MAX = LANE_COUNT + 8 };
/* Two more copy optimizer state from the host and back (engine/step/offload.h). */
enum { STREAMS_MAX = QUEUES_MAX + 2 };

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
