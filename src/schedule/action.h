/* action: a training step as data: one flat list of actions for each rank. The engine runs it,
 * simulate.h prices it, check.h proves things about it.
 *
 * peer is a pipeline rank, slot the activation arena that a micro-batch uses on a chunk, wait and
 * signal are events of the same rank, sms how many multiprocessors its kernels may take (0: all).
 * phase -1: all phases of the chunk's layers; else PHASES * block + one of the four below, each on
 * its lane, and backward goes from the last one to the first.
 *
 * What passes between chunks lies in the ring of transfers: `in` is the entry that an action reads,
 * `out` the one that it writes. A forward writes its output into an entry, a send reads it; a
 * receive writes an entry of its own rank, the next chunk's forward reads it. Where both chunks are
 * on one rank the second reads what the first wrote.
 *
 * Actions of one queue run one after the other, in the order of the list; nothing but events orders
 * different queues. A rank has a queue for each lane, and one for each (kind of transfer, chunk): a
 * transfer waits for those before it on its own way, never for another way's. */
#ifndef SCHEDULE_ACTION_H
#define SCHEDULE_ACTION_H

#include "base/arena.h"
#include "base/lane.h"

#include <stdbool.h>

typedef enum ActionKind {
    ACTION_ZERO_GRADS,       /* gradients and the step's sums become zero */
    ACTION_FORWARD,          /* one micro-batch through one chunk, into its slot */
    ACTION_BACKWARD,         /* input and weight gradients of the same, out of its slot */
    ACTION_BACKWARD_INPUT,   /* only the input gradients: the slot stays for the weights' */
    ACTION_BACKWARD_WEIGHT,  /* only the weight gradients, out of its slot */
    ACTION_SEND_ACTIVATIONS, /* a chunk's output to the rank of the next chunk */
    ACTION_RECV_ACTIVATIONS,
    ACTION_SEND_GRADIENTS, /* the gradient of a chunk's input to the rank of the chunk before */
    ACTION_RECV_GRADIENTS,
    ACTION_REDUCE_GRADS, /* over the ranks that share parameters; nothing to do on one */
    ACTION_UPDATE,       /* norm, clipping, optimizer, router bias */
    ACTION_KIND_COUNT
} ActionKind;

/* A block taken apart for a schedule that runs its exchanges beside another micro-batch's compute:
 * the even ones compute, the odd ones move tokens between the ranks of the experts. */
enum { PHASE_ATTENTION, PHASE_DISPATCH, PHASE_EXPERTS, PHASE_COMBINE, PHASES };

typedef struct Action {
    ActionKind kind;
    Lane lane;
    short chunk, phase, peer, sms;
    int micro, slot, in, out; /* -1: none */
    int wait[3], signal;
} Action;

/* Which chunk follows which. Hop h of a micro-batch's way is
 * LOOP: chunk h / stages of rank h mod stages;
 * V:    chunk 0 of rank h on the way down, chunk 1 of the same ranks on the way up;
 * BOTH: each rank holds a stage of two copies of the model; even micro-batches go down through
 *       chunk 0, odd ones up through chunk 1 (DualPipe). */
typedef enum Placement { PLACE_LOOP, PLACE_V, PLACE_BOTH } Placement;

typedef struct Program {
    Action *at; /* in the arena of the generator */
    int n, micros, chunks, slots;
    int rank, stages; /* of `stages` pipeline ranks this one's list */
    Placement placement;
    int entries, events; /* of the ring of transfers; event numbers are below `events` */
    int phases;          /* of a chunk, where passes are taken apart; else 0 */
} Program;

/* How a Program goes back over a chunk; a set. */
enum { CHUNK_WHOLE = 1, CHUNK_SPLIT = 2, CHUNK_PHASED = 4 };

typedef struct Place {
    int rank, chunk;
} Place;

/* Length of a micro-batch's way; the place of a hop; the hop of a micro-batch on a chunk of this
 * rank, -1 if it does not come there. */
int place_hops(const Program *p);
Place place_at(const Program *p, int micro, int hop);
int place_hop(const Program *p, int chunk, int micro);
/* The other end of a transfer; rank -1: there is none. */
Place place_across(const Program *p, const Action *a);

/* Which queue of its rank an action is in, below queue_count(). */
int queue_of(const Program *p, const Action *a);
int queue_count(const Program *p);

bool action_is_transfer(ActionKind kind);
bool action_is_send(ActionKind kind);
bool action_is_forward(ActionKind kind); /* a forward, a transfer of activations */
const char *action_name(ActionKind kind);

/* No chunk, micro-batch, peer, slot, entry or event yet. */
Action action_make(ActionKind kind);

/* Gradient accumulation on one rank: each micro-batch forward, then backward, in one slot. */
Status schedule_accumulate(int micros, Arena *a, Program *out);

#endif
