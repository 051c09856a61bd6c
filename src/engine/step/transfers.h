/*
 * transfers: sends to and receives from other stages, which run in parallel with the lanes, and the
 * events that order transfers and lanes. Collectives are not here: they are ops (kernels/exchange/exchange.h).
 *
 * On the host one thread runs the actions of both lanes in the order of the list. Between them it starts
 * each transfer whose events are signalled and whose queue has no earlier one waiting. All these events
 * come from passes (engine/schedule/lower.c). So when an action waits for a transfer, every transfer that can
 * run has started, and the thread may block on this one.
 *
 * Messages of one link (engine/schedule/action.h) have one tag. Both ends have them in one queue, in the
 * same order, which schedule_check_all() proves.
 *
 * On a GPU (transfers_gpu.c) everything is launched in the order of the list, and queues are streams.
 */
#ifndef ENGINE_STEP_TRANSFERS_H
#define ENGINE_STEP_TRANSFERS_H

#include "engine/backend/backend.h"
#include "engine/schedule/schedule.h"

/* The transfers of one queue; [done, started) are under way. */
typedef struct TransferQueue {
    int *action;
    int n, started, done;
    Comm *comm;
    void *stream; /* on a GPU */
} TransferQueue;

typedef struct TransferEvent {
    bool signalled;
    int action; /* the transfer that has started and signals it; -1: none */
    CommRequest request;
    Event device; /* on a GPU, where the others are not used */
} TransferEvent;

typedef struct Transfers Transfers;

/* The executor's calls: on the host (transfers.c) or on a GPU (transfers_gpu.c). The inline
 * functions below say what each does. */
typedef struct TransferTable {
    Status (*begin)(Transfers *t);
    Status (*reach)(Transfers *t, const Action *a);
    Status (*wait)(Transfers *t, const Action *a);
    Status (*signal)(Transfers *t, int event);
    Status (*end)(Transfers *t);
} TransferTable;

struct Transfers {
    const TransferTable *table;
    Exec *ex;
    const Program *program;
    const Tensor *entries;
    Comm *comm; /* the stages; NULL: this one is alone */
    TransferQueue *queue;
    int n;
    TransferEvent *event; /* by event of the program, and one more for begin and end on a GPU */
    ActionSpan *span;     /* by action, of the last step; on a GPU set by transfers_read_stamps */
    struct TransferLink *link; /* on a GPU: by link and color (transfers_gpu.c) */
    int links;
    bool lanes;      /* the comm lane is a stream of its own */
    uint64_t *stamp; /* by action its begin and end, of a recorded step; NULL: not recorded */
    bool quiet;      /* on a GPU: runs the list without sending or receiving */
};

/* A communicator of the stages with a stream of its own. */
typedef struct TransferLink {
    Comm *comm;
    void *stream;
} TransferLink;

/* Makes the queues and events of a rank's program, in `a`. `entries` must outlive them. */
Status transfers_make(Exec *ex, const Program *p, const Tensor *entries, Comm *comm, Arena *a,
                      Transfers *out);
/* Switches to streams of a GPU. Collective over the stages, unless it takes the links of `like`, the transfers
 * of another program with the same links (NULL: none). lanes: the comm lane is a stream of its own. */
Status transfers_open_gpu(Transfers *t, bool lanes, const Transfers *like, Arena *a);
void transfers_free(Transfers *t); /* safe on { 0 } */

/* A step begins: nothing is signalled. */
static inline Status transfers_begin(Transfers *t) { return t->table->begin(t); }
/* The list has come to this transfer. */
static inline Status transfers_reach(Transfers *t, const Action *a)
{
    return t->table->reach(t, a);
}
/* wait: the Exec's lane waits for all events of an action. signal: the action signals its event. */
static inline Status transfers_wait(Transfers *t, const Action *a) { return t->table->wait(t, a); }
static inline Status transfers_signal(Transfers *t, const Action *a)
{
    return a->signal < 0 ? OK : t->table->signal(t, a->signal);
}
/* The same for its early event. */
static inline Status transfers_signal_early(Transfers *t, const Action *a)
{
    return a->early < 0 ? OK : t->table->signal(t, a->early);
}
/* The compute lane waits for all queues. */
static inline Status transfers_end(Transfers *t) { return t->table->end(t); }

/* Stamps where an action begins (which 0) or ends (1) in a stream, in a recorded step; stream NULL: that of
 * the Exec's lane. Does nothing on the host, whose clock gives the spans. */
Status transfers_mark(Transfers *t, int action, int which, void *stream);
/* Sets the spans of a recorded step from its stamps. Wait for the step first. */
void transfers_read_stamps(Transfers *t);

/* What both executors share. */
/* A send or a receive between `what` and the action's peer. */
Status transfers_post(const Transfers *t, const Action *a, const Tensor *what, CommRequest *out);
const Tensor *transfers_entry(const Transfers *t, const Action *a);
TransferQueue *transfers_queue(const Transfers *t, const Action *a);

#endif
