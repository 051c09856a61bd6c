/* simulate: runs the Programs of all ranks over simulated time. Each queue of a rank (action.h) runs its
 * actions in order. An action starts when its queue is free and its events are signalled. A transfer starts
 * when both ends have reached it, and occupies both.
 *
 * Actions of one rank that run at the same time share the device and its links (SimUse). While others hold
 * a share h of the multiprocessors (at most 0.9 together), the part of a compute action that multiprocessors
 * bound takes 1 / (1 - h) times as long. That holds for kernels of many blocks, and for persistent ones whose
 * blocks take tiles in turn: a block that cannot start leaves its tiles to the others. Measured factors scale
 * the part (hardware/hardware.h). A transfer holds multiprocessors from when this end is posted, also while it
 * waits for the other end; any other action holds them while it runs.
 *
 * Two actions that fill a link get half of it each: an action that alone uses a link for a share u of its time
 * takes 1 + u v times as long beside others that use it for shares v together. Into and out of a rank are
 * links of their own; the busier one decides, and for a transfer the busier end. The result is
 * deterministic, and independent of the order in which ranks are processed.
 *
 * With equal passes and free communication the bubble of 1F1B and interleaved 1F1B is
 * (p-1)/(p-1+m*v) exactly (arXiv:2104.04473); tests/engine/schedule holds it and the zero-bubble family to
 * their theory. */
#ifndef ENGINE_SCHEDULE_SIMULATE_H
#define ENGINE_SCHEDULE_SIMULATE_H

#include "engine/schedule/schedule.h"

/* Bytes that a slot holds of one micro-batch on one chunk. A split backward keeps more than theory counts: the
 * gradients of outputs wait for the weight gradients. */
typedef struct SlotBytes {
    double input;     /* from forward to the end of the input gradients */
    double weight;    /* from forward to the end of the weight gradients */
    double gradients; /* from the start of input gradients done apart to that of weight gradients */
    double pool;      /* the part of these that is rows in a pool */
    double whole;     /* more, of a slot whose backward is not split */
} SlotBytes;

/* Within a scale-up domain, and between domains. */
typedef enum SimLink { SIM_UP, SIM_OUT, SIM_LINKS } SimLink;

/* What an action uses of its rank. */
typedef struct SimUse {
    double bound;  /* the share of its time that multiprocessors bound, times how much that part
                      needs them (hardware_contention), which may exceed 1 */
    double blocks; /* below 1: the share of the multiprocessors that its kernel holds */
    double into[SIM_LINKS], out[SIM_LINKS]; /* the share of its time in which it fills a link */
} SimUse;

/* What the simulator asks of its caller. It knows neither layers nor hardware. */
typedef struct SimCost {
    void *ctx;
    /* Seconds, at least 0. For a transfer it is called for the send only. Of an action that waits for an early
     * event (Action.early) without what of it runs beside the action that signals it. */
    double (*duration)(void *ctx, int rank, const Action *a);
    SimUse (*use)(void *ctx, int rank, const Action *a); /* NULL: nothing is shared */
    SlotBytes (*slot)(void *ctx, int rank, int chunk);   /* NULL: memory is not followed */
    double entry_bytes; /* of the ring of transfers, always there */
} SimCost;

/* An action's time, and the action that it waited for last; -1: the start of the step. */
typedef struct SimSpan {
    double start, end;
    double slowed; /* the part of it that is due to others that share the device and its links */
    int cause_rank, cause;
} SimSpan;

/* One point of a rank's memory over time. */
typedef struct MemoryPoint {
    double at, bytes; /* the bytes from this moment on */
} MemoryPoint;

typedef struct SimRank {
    SimSpan *span;         /* by action */
    double busy, transfer; /* seconds of the compute lane; of sends */
    double slowed;         /* the part of busy as in SimSpan: of the compute lane */
    double bubble;         /* the share of the step in which the compute lane does nothing */
    MemoryPoint *memory;
    int n_memory;
    double peak_bytes, peak_at;
} SimRank;

typedef struct SimStep {
    int rank, action;
} SimStep;

/* Arrays lie in the arena of simulate_run. Times are in seconds, as those of SimCost. */
typedef struct Simulation {
    double step;
    SimRank *rank;
    SimStep *path; /* the critical path, first action first */
    int n_path;
} Simulation;

/* Computes only the spans; simulate_run and check.h use it. ERR_ARG names a rank that waits for ever and what it
 * waits for, or two ends of a transfer that belong to different micro-batches. */
Status simulate_spans(const Pipeline *p, const SimCost *cost, Arena *a, SimSpan **out);

/* Computes everything, in `a`. */
Status simulate_run(const Pipeline *p, const SimCost *cost, Arena *a, Simulation *out);

/* Transfers and everything else take no time. */
extern const SimCost simulate_free;

#endif
