/* simulate: all ranks' Programs over time. Each queue of a rank (action.h) runs its actions in
 * order; an action starts when its queue is free and its events have come; a transfer when both
 * ends have reached it, and occupies both. Links do not share bandwidth: who wants that prices it.
 * Multiprocessors are shared: while actions of the other queues hold a share h of them, at most 0.9
 * together, what multiprocessors bound takes 1 / (1 - h) times as long. They hold it from when they
 * run to when they end; of a transfer each end from when it is posted, though it waits for the other.
 * Nothing is random, nor depends on the order in which ranks are looked at.
 *
 * With equal passes and free communication the bubble of 1F1B and interleaved 1F1B is
 * (p-1)/(p-1+m*v) exactly (arXiv:2104.04473); tests/schedule holds it and the zero-bubble family to
 * their theory. */
#ifndef SCHEDULE_SIMULATE_H
#define SCHEDULE_SIMULATE_H

#include "schedule/schedule.h"

/* What a slot holds of one micro-batch on one chunk. Splitting the backward keeps more alive than
 * theory counts: the gradients of outputs wait for the weights' turn. */
typedef struct SlotBytes {
    double input;     /* from forward to the end of the input gradients */
    double weight;    /* from forward to the end of the weight gradients */
    double gradients; /* from the start of input gradients done apart to that of weight gradients */
    double pool;      /* of these: rows that lie in a pool */
} SlotBytes;

typedef struct SimCost {
    void *ctx;
    /* Seconds, at least 0. Of a transfer, asked for the send only. */
    double (*duration)(void *ctx, int rank, const Action *a);
    /* Below 1. Of an action on the compute lane: the share of its time that multiprocessors bound. Of
     * any other: the share of its device's multiprocessors that its kernel holds. NULL: 0. */
    double (*share)(void *ctx, int rank, const Action *a);
    SlotBytes (*slot)(void *ctx, int rank, int chunk); /* NULL: memory is not followed */
    double entry_bytes;                                /* of the ring of transfers, always there */
} SimCost;

/* An action's time, and what it had to wait for last: -1 for the start of the step. */
typedef struct SimSpan {
    double start, end;
    double slowed; /* of it, because others held multiprocessors */
    int cause_rank, cause;
} SimSpan;

typedef struct MemoryPoint {
    double at, bytes; /* from this moment on */
} MemoryPoint;

typedef struct SimRank {
    SimSpan *span;         /* by action */
    double busy, transfer; /* seconds of the compute lane; of sends */
    double slowed;         /* of busy */
    double bubble;         /* the share of the step in which the compute lane does nothing */
    MemoryPoint *memory;
    int n_memory;
    double peak_bytes, peak_at;
} SimRank;

typedef struct SimStep {
    int rank, action;
} SimStep;

typedef struct Simulation {
    double step;
    SimRank *rank;
    SimStep *path; /* the critical path, first action first */
    int n_path;
} Simulation;

/* Only the spans: the base of simulate_run and of the check. ERR_ARG names the first rank that
 * waits for ever and what for, or two ends of a way that mean different micro-batches. */
Status simulate_spans(const Pipeline *p, const SimCost *cost, Arena *a, SimSpan **out);

/* Everything, in `a`. */
Status simulate_run(const Pipeline *p, const SimCost *cost, Arena *a, Simulation *out);

/* Transfers and everything else take no time. */
extern const SimCost simulate_free;

#endif
