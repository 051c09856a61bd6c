/* action: a training step as data: one flat list of actions for each rank. The engine runs it,
 * simulate.h gives it times, check.h proves that it is right. Lists are made by lower.h.
 *
 * Everything that occupies a lane or a link, or that begins or ends the life of memory, is an action:
 * ranges of phases of a pass, transfers between stages, gathers of weights, reductions of gradients, the
 * update.
 *
 * A pass of a micro-batch over a chunk is one action or several: each runs the phases [first, end)
 * of the chunk's row for its direction (chunk.h) on one lane. `slot` is the activation arena that
 * the micro-batch uses on the chunk. `wait` and `signal` are events of the same rank.
 *
 * Data between chunks lies in entries, the buffers of transfers. `in` is the entry that an action
 * reads, `out` the one that its pass writes with its last action. A forward writes its output into an
 * entry and a send reads it. A receive writes an entry of its own rank and the next chunk's forward reads
 * it. Where both chunks are on one rank the second reads what the first wrote.
 *
 * Weights and gradients that ranks share lie whole in one of two halves of a buffer while a layer needs
 * them. A gather fills a half with a layer's weights; a free says that nobody reads them any more. A zero
 * with a layer opens a half for its gradients; a reduce adds them over the ranks.
 *
 * Actions of one queue run one after the other in the order of the list. Only events order different
 * queues. A rank has a queue for each lane, and queues for its transfers. In a loop each kind of transfer
 * has one queue, however many chunks there are: all chunks send to the same rank, which receives in the
 * order in which they send. On a V and in both directions chunks send to different ranks, so each (kind
 * of transfer, chunk) has a queue. A transfer waits only for those before it in its queue. All queues
 * begin together, and the step ends when all have ended. */
#ifndef ENGINE_SCHEDULE_ACTION_H
#define ENGINE_SCHEDULE_ACTION_H

#include "engine/schedule/chunk.h"

typedef enum ActionKind {
    ACTION_ZERO_GRADS, /* zeroes the step's sums and gradients, or one layer's half; of an evaluation
                          its sums */
    ACTION_FORWARD,    /* one micro-batch through one chunk, into its slot */
    ACTION_BACKWARD,   /* input and weight gradients of the same, out of its slot */
    ACTION_BACKWARD_INPUT,   /* only the input gradients: the slot stays for the weights' */
    ACTION_BACKWARD_WEIGHT,  /* only the weight gradients, out of its slot */
    ACTION_SEND_ACTIVATIONS, /* a chunk's output to the rank of the next chunk */
    ACTION_RECV_ACTIVATIONS,
    ACTION_SEND_GRADIENTS, /* the gradient of a chunk's input to the rank of the chunk before */
    ACTION_RECV_GRADIENTS,
    ACTION_GATHER_WEIGHTS, /* a layer's, from the ranks that share it, whole */
    ACTION_FREE_WEIGHTS,   /* a layer's half may be filled again */
    ACTION_REDUCE_GRADS,   /* a layer's, over the ranks that share it */
    ACTION_SUM_GRADS,      /* a layer's sums, over replicas and over stages that hold it, too */
    ACTION_UPDATE,         /* norm, clipping, optimizer, router bias */
    ACTION_ADD_RECORDS,    /* the sums of an evaluation, over all ranks: its end */
    ACTION_KIND_COUNT
} ActionKind;

enum { ACTION_WAITS = 6 }; /* events that one action waits for, at most */

typedef struct Action {
    ActionKind kind : 8;
    Lane lane : 4;
    unsigned apart : 4; /* 1: a backward whose weight gradients are a pass of their own */
    short chunk, first, end, peer; /* -1: none, as in the fields below; peer: a pipeline rank */
    short layer, half;             /* of gathers and reductions: number in the model; its half */
    int micro, slot, in, out;
    int wait[ACTION_WAITS], signal;
    /* Of a backward: an event between the input and the weight gradients of its last layer. Rows that ranks of tp
     * add up, norm and gather need no weight gradients, and so run in parallel with these. -1: none. */
    int early;
} Action;
_Static_assert(sizeof(Action) == 64, "a list is read by cache lines, and compared by bytes");

/* Which chunk follows which. Hop h of a micro-batch's way is
 * LOOP: chunk h / stages of rank h mod stages;
 * V:    chunk 0 of rank h on the way down, chunk 1 of the same ranks on the way up;
 * BOTH: each rank holds a stage of two copies of the model; even micro-batches go down through
 *       chunk 0, odd ones up through chunk 1 (DualPipe). */
typedef enum Placement { PLACE_LOOP, PLACE_V, PLACE_BOTH } Placement;

/* The list of one rank for one step or one evaluation. Ranks of one stage have equal lists. */
typedef struct Program {
    Action *at; /* in the arena of the generator */
    int n, micros, chunks, slots;
    int rank, stages; /* the list of pipeline rank `rank` of `stages` */
    Placement placement;
    int entries, events; /* of the ring of transfers; event numbers are below `events` */
    bool phased;    /* parts of a forward and a backward alternate, each pass in its own memory */
    bool evaluates; /* forward only, which keeps nothing: a slot is free after it */
    const Chunk *chunk; /* by chunk of this rank */
    ScheduleShards shards;
} Program;

/* When an action ran. A transfer runs from when it was posted until this rank saw its end. */
typedef struct ActionSpan {
    double start_s, end_s;
} ActionSpan;

/* How a Program runs backward passes over a chunk; a set. */
enum { CHUNK_WHOLE = 1, CHUNK_SPLIT = 2, CHUNK_PHASED = 4 };

/* A stage: a chunk of a rank. */
typedef struct StageAt {
    int rank, chunk;
} StageAt;

/* hop_count: hops of a micro-batch. hop_stage: where a hop runs. hop_of: the hop of a micro-batch on a
 * chunk of this rank, -1 if it does not come there. */
int hop_count(const Program *p);
StageAt hop_stage(const Program *p, int micro, int hop);
int hop_of(const Program *p, int chunk, int micro);
/* The other end of a transfer; rank -1: there is none. */
StageAt transfer_other_end(const Program *p, const Action *a);

/* The row of phases that an action of a pass belongs to. */
const ChunkRow *action_row(const Program *p, const Action *a);
/* One more than the highest layer of the model that a rank's chunks have. */
int program_layers(const Program *p);
/* Does it run collectives, which all ranks of a group must issue in the same order? */
bool action_communicates(const Program *p, const Action *a);

/* Which queue of its rank an action is in, below queue_count(). */
int queue_of(const Program *p, const Action *a);
int queue_count(const Program *p);

/* A link is a sender's queue and its receiver's, with the same number below transfer_links() at both
 * ends. */
int transfer_link(const Program *p, const Action *a);
int transfer_links(const Program *p);

static inline double later_of(double a, double b) { return a > b ? a : b; } /* fmax is a call */

/* Forward or one of the backwards. */
static inline bool action_is_pass(ActionKind kind)
{
    return kind >= ACTION_FORWARD && kind <= ACTION_BACKWARD_WEIGHT;
}

static inline bool action_is_transfer(ActionKind kind)
{
    return kind >= ACTION_SEND_ACTIVATIONS && kind <= ACTION_RECV_GRADIENTS;
}

static inline bool action_is_send(ActionKind kind)
{
    return kind == ACTION_SEND_ACTIVATIONS || kind == ACTION_SEND_GRADIENTS;
}

bool action_is_forward(ActionKind kind); /* a forward, a transfer of activations */
const char *action_name(ActionKind kind);

/* No chunk, micro-batch, peer, slot, entry or event yet. */
Action action_make(ActionKind kind);

#endif
