/* action: names and kinds of actions, the way of a micro-batch through stages, and the queues of a rank. */
#include "engine/schedule/action.h"

#include <string.h>

const char *action_name(ActionKind kind)
{
    static const char *const names[ACTION_KIND_COUNT] = {
        [ACTION_ZERO_GRADS] = "zero gradients",
        [ACTION_FORWARD] = "forward",
        [ACTION_BACKWARD] = "backward",
        [ACTION_BACKWARD_INPUT] = "backward input",
        [ACTION_BACKWARD_WEIGHT] = "backward weight",
        [ACTION_SEND_ACTIVATIONS] = "send activations",
        [ACTION_RECV_ACTIVATIONS] = "receive activations",
        [ACTION_SEND_GRADIENTS] = "send gradients",
        [ACTION_RECV_GRADIENTS] = "receive gradients",
        [ACTION_GATHER_WEIGHTS] = "gather weights",
        [ACTION_FREE_WEIGHTS] = "free weights",
        [ACTION_REDUCE_GRADS] = "reduce gradients",
        [ACTION_SUM_GRADS] = "sum gradients",
        [ACTION_UPDATE] = "update",
        [ACTION_ADD_RECORDS] = "add records",
    };
    return names[kind];
}

bool action_is_forward(ActionKind kind)
{
    return kind == ACTION_FORWARD || kind == ACTION_SEND_ACTIVATIONS ||
           kind == ACTION_RECV_ACTIVATIONS;
}

/* The lane of a transfer is only its default: queue_of puts transfers into queues of their
 * own. */
Action action_make(ActionKind kind)
{
    bool comm = action_is_transfer(kind) || kind == ACTION_GATHER_WEIGHTS ||
                kind == ACTION_REDUCE_GRADS || kind == ACTION_SUM_GRADS;
    Action a;
    memset(&a, -1, sizeof a); /* all numbers are -1 */
    a.kind = kind, a.lane = comm ? LANE_COMM : LANE_COMPUTE, a.apart = 0;
    return a;
}

/* With two copies of the model (PLACE_BOTH) a micro-batch goes through one of them. */
int hop_count(const Program *p)
{
    return p->placement == PLACE_BOTH ? p->stages : p->stages * p->chunks;
}

/* A loop returns behind the switch, so that a new placement without a case is a compiler's
 * warning. */
StageAt hop_stage(const Program *p, int micro, int hop)
{
    int n = p->stages;
    switch (p->placement) {
    case PLACE_LOOP: break;
    case PLACE_V: return hop < n ? (StageAt){ hop, 0 } : (StageAt){ 2 * n - 1 - hop, 1 };
    case PLACE_BOTH: return micro % 2 == 0 ? (StageAt){ hop, 0 } : (StageAt){ n - 1 - hop, 1 };
    }
    return (StageAt){ hop % n, hop / n };
}

/* The inverse of hop_stage for one rank. Only with two copies of the model does the micro-batch
 * matter: chunk 0 has the even ones, chunk 1 the odd ones. */
int hop_of(const Program *p, int chunk, int micro)
{
    int n = p->stages, r = p->rank;
    switch (p->placement) {
    case PLACE_LOOP: break;
    case PLACE_V: return chunk == 0 ? r : 2 * n - 1 - r;
    case PLACE_BOTH:
        if (micro % 2 != chunk) return -1;
        return chunk == 0 ? r : n - 1 - r;
    }
    return chunk * n + r;
}

/* Activations go onward from hop to hop, gradients back. A receive looks the other way. */
StageAt transfer_other_end(const Program *p, const Action *a)
{
    bool onward = action_is_send(a->kind) == action_is_forward(a->kind);
    int hop = hop_of(p, a->chunk, a->micro) + (onward ? 1 : -1);
    return hop < 0 || hop >= hop_count(p) ? (StageAt){ -1, -1 } : hop_stage(p, a->micro, hop);
}

/* The chunks of a loop share queues, because all of them send to the same rank. */
static int queue_chunk(const Program *p, int chunk)
{
    return p->placement == PLACE_LOOP ? 0 : chunk;
}

static int queues_of_kind(const Program *p) { return queue_chunk(p, p->chunks - 1) + 1; }

int queue_of(const Program *p, const Action *a)
{
    if (!action_is_transfer(a->kind)) return (int)a->lane;
    int kind = (int)(a->kind - ACTION_SEND_ACTIVATIONS);
    return LANE_COUNT + kind * queues_of_kind(p) + queue_chunk(p, a->chunk);
}

/* The lanes, then a queue for each of the four kinds of transfer and each chunk that needs its
 * own. */
int queue_count(const Program *p) { return LANE_COUNT + 4 * queues_of_kind(p); }

/* Without a loop both ends of a transfer have the same chunk number, so both compute the same link. */
int transfer_link(const Program *p, const Action *a)
{
    return 2 * queue_chunk(p, a->chunk) + action_is_forward(a->kind);
}

int transfer_links(const Program *p) { return 2 * queues_of_kind(p); }

const ChunkRow *action_row(const Program *p, const Action *a)
{
    return &p->chunk[a->chunk].row[a->kind == ACTION_FORWARD ? ROW_FORWARD : ROW_BACKWARD];
}

/* A weight gradient never communicates. The phases of one action all communicate or none does
 * (lower.c: splits_at), so the first one answers for all. */
bool action_communicates(const Program *p, const Action *a)
{
    if (action_is_transfer(a->kind)) return false;
    if (a->lane == LANE_COMM || a->kind == ACTION_UPDATE || a->kind == ACTION_ADD_RECORDS)
        return true;
    return action_is_pass(a->kind) && a->kind != ACTION_BACKWARD_WEIGHT &&
           action_row(p, a)->at[a->first].communicates;
}

/* A tied head reads the table of layer 0, and multi-token prediction reads the table and the head.
 * So `weights` can be above or below the layers that the rank holds. */
int program_layers(const Program *p)
{
    int n = 0;
    for (int c = 0; c < p->chunks; c++) {
        const ChunkRow *row = &p->chunk[c].row[ROW_FORWARD];
        for (int i = 0; i < row->n; i++) {
            int most = row->at[i].own > row->at[i].weights ? row->at[i].own : row->at[i].weights;
            if (most >= n) n = most + 1;
        }
    }
    return n;
}
