/*
 * transfers: what a rank sends to and receives from other stages, beside its passes.
 *
 * Passes run in the order of the list; a transfer starts as soon as the events that it waits for
 * are signalled, whenever the thread comes by, behind those of its own queue alone. All these
 * events come from passes (schedule/lower.c). So when a pass waits for a transfer, all that can be
 * under way is, and nothing else could start meanwhile: the thread may wait for that one. Two lanes
 * in one thread keep the order of the list; a pass that is taken apart gives its output with its
 * last phase, so nobody elsewhere waits for what stands behind it.
 *
 * Messages from one rank to another on one way (payload, chunk of the receiver) bear one tag, and
 * both ends have them in one queue, in the same order.
 */
#ifndef TRAIN_TRANSFERS_H
#define TRAIN_TRANSFERS_H

#include "op/op.h"
#include "schedule/schedule.h"

/* When an action ran in the last step; of a transfer, from its start until this rank saw its end.
 */
typedef struct ActionSpan {
    double start_s, end_s;
} ActionSpan;

/* The transfers of one queue; [done, started) are under way. */
typedef struct TransferQueue {
    int *action;
    int n, started, done;
} TransferQueue;

typedef struct TransferEvent {
    bool signalled;
    int action; /* the transfer that has started and signals it; -1: none */
    CommRequest request;
} TransferEvent;

typedef struct Transfers {
    Exec *ex;
    const Program *program;
    const Tensor *entries;
    Comm *comm; /* the stages; NULL: nobody else is there */
    TransferQueue *queue;
    int n;
    TransferEvent *event;
    ActionSpan *span; /* by action */
} Transfers;

/* Of a rank's program; tables in `a`. */
Status transfers_make(Exec *ex, const Program *p, const Tensor *entries, Comm *comm, Arena *a,
                      Transfers *out);

/* A step begins: nothing is signalled. */
void transfers_begin(Transfers *t);
/* Starts all that may start, and sees what has ended. */
Status transfers_start(Transfers *t);
/* Until all that the action waits for has been signalled. */
Status transfers_wait(Transfers *t, const Action *a);
void transfers_signal(Transfers *t, const Action *a);
/* Until all are done. */
Status transfers_end(Transfers *t);

/* Outside of a step, with the one that comes before or after a chunk on micro-batch 0's way; waits.
 * Nothing happens if that is this rank, or nobody is there. */
Status transfers_move(Transfers *t, ActionKind kind, int chunk, const Tensor *what);

#endif
