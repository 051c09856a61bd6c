/* check: walks the list of a rank, follows what every slot, entry, gathered layer and gradient holds, and
 * refuses the first action that breaks a rule of check.h. All ranks together are run once without costs.
 *
 * A resource remembers, for each queue, how many actions the queue had run when it last used the resource.
 * An action may use it if all these are done by what the action knows (take_turn). Not here: times
 * (simulate.h). */
#include "engine/schedule/check.h"

#include "engine/schedule/simulate.h"

#include <string.h>

enum { ACTIVATIONS, GRADIENTS };

/* What an entry holds: the activations or gradients between hop `after` of a micro-batch and the next one.
 * micro -1: nothing that will be read. */
typedef struct Content {
    int payload, micro, after;
} Content;

/* Memory that several actions use. touched[q]: the number of actions of queue q up to the last one that used
 * it. */
typedef struct Resource {
    Content content; /* of an entry */
    int holds;       /* of a slot: the (micro, chunk) number that is in it; of a place: a layer; of
                        the memory between phases: the micro-batch that used it last. -1: none */
    int *touched;
} Resource;

/* How many phases of a micro-batch's passes on a chunk are done. comm, comm_before: the last two actions of
 * its input gradients on the comm lane, by their number in that queue; comm_first: first phase of the
 * last. */
typedef struct Progress {
    int forward, input, weight;
    int comm, comm_before, comm_first;
    int opening_queue, opening; /* the first action of its last pass, by its number in that queue */
} Progress;

typedef struct Check {
    const Program *p;
    int queues, layers, at;                         /* at: the action that is checked */
    Progress *progress;                             /* by (micro, chunk) */
    Resource *slot, *entry, *ring, *weights, *room; /* ring: by direction, where they differ */
    Resource *grads; /* by layer of the model; holds: the state of its gradients (GRADS_) */
    Resource *meeting;
    int *known;   /* vector clock of each queue: by (queue, queue) */
    int *carried; /* vector clock of each event: by (event, queue); [0] -1: not signalled yet */
    int *now;     /* vector clock of the action that is checked, when it starts */
    bool zeroed, updated;
} Check;

/* States of a layer's gradients. GATHERED: all ranks have the updated weights. */
enum { GRADS_SOME = 1, GRADS_REDUCED, GRADS_SUMMED, GRADS_GATHERED };

#define PASS             "%s of micro-batch %d"
#define OF(a)            action_name((a)->kind), (a)->micro
#define BAD(s, fmt, ...) FAIL(ERR_ARG, "program action %d: " fmt, (s)->at, __VA_ARGS__)

static const char *payload_name(int payload)
{
    return payload == ACTIVATIONS ? "activations" : "gradients";
}

/* The clock that an event carries from the action that signalled it to those that wait for it. */
static int *carried_by(const Check *s, int event)
{
    return s->carried + (size_t)event * (size_t)s->queues;
}

/* The number that the action under check has in its queue, from 1. */
static int count_of(const Check *s, int queue) { return s->known[queue * s->queues + queue] + 1; }

/* Records a use without asking whether earlier ones are done. */
static void note_use(Check *s, Resource *r)
{
    int mine = queue_of(s->p, &s->p->at[s->at]);
    r->touched[mine] = count_of(s, mine);
}

/* Are all earlier users of the resource done when this action starts? If so, this action uses it now. */
static bool take_turn(Check *s, Resource *r)
{
    for (int q = 0; q < s->queues; q++) {
        if (r->touched[q] > s->now[q]) return false;
    }
    note_use(s, r);
    return true;
}

/* A reader must find its content, and empties the entry. A writer must find the entry empty. */
static Status use_entry(Check *s, bool reads, int entry, Content what)
{
    if (entry < 0 || entry >= s->p->entries)
        return BAD(s, "%s entry %d of %d", reads ? "reads" : "writes", entry, s->p->entries);
    Resource *e = &s->entry[entry];
    if (reads ? memcmp(&e->content, &what, sizeof what) != 0 : e->content.micro >= 0) {
        if (!reads) what = e->content;
        return BAD(s, "entry %d %s the %s of micro-batch %d", entry,
                   reads ? "does not hold" : "still holds", payload_name(what.payload), what.micro);
    }
    if (!take_turn(s, e)) {
        return BAD(s, "does not wait %s entry %d%s", reads ? "until" : "for the last reader of",
                   entry, reads ? " is written" : "");
    }
    e->content = what;
    if (reads) e->content.micro = -1;
    return OK;
}

/* Passes. */

/* An action must wait for all that used the same memory between phases on the other lane, unless its first
 * phase may overlap with the phase before it. */
static Status use_ring(Check *s, const Action *a)
{
    const ChunkPhase *phase = &action_row(s->p, a)->at[a->first];
    bool weight = a->kind == ACTION_BACKWARD_WEIGHT;
    Resource *ring = &s->ring[s->p->phased && a->kind != ACTION_FORWARD];
    bool beside = weight ? s->p->phased : phase->overlap_ok && a->first > 0;
    int last = ring->holds;
    ring->holds = a->micro;
    if (take_turn(s, ring) || beside) {
        note_use(s, ring);
        return OK;
    }
    if (last == a->micro)
        return BAD(s, "does not wait for the phase of micro-batch %d before it", a->micro);
    return BAD(s, "does not wait until micro-batch %d has left the memory between phases", last);
}

/* The first action of a pass copies the pass's input from its entry. Phases may overlap with one
 * another, but each of them reads what that action brings, or memory that it begins anew. */
static Status check_opening(const Check *s, const Action *a, Progress *g)
{
    if (a->first == 0) {
        g->opening_queue = queue_of(s->p, a);
        g->opening = count_of(s, g->opening_queue);
        return OK;
    }
    if (g->opening <= s->now[g->opening_queue]) return OK;
    return BAD(s, PASS " does not wait for its first action, which brings its input", OF(a));
}

/* The actions of a pass must cover its row from the first phase to the last, without gaps or
 * repetitions. */
static Status check_next_phases(const Check *s, const Action *a, int *done)
{
    if (a->first != *done)
        return BAD(s, PASS " begins with phase %d, next is %d", OF(a), a->first, *done);
    *done = a->end;
    return OK;
}

/* The first action of a forward takes the slot: nothing may be in it, and its last user must be
 * done. */
static Status enter_slot(Check *s, const Action *a, int place)
{
    Resource *slot = &s->slot[a->slot];
    if (slot->holds >= 0)
        return BAD(s, "slot %d still holds micro-batch %d", a->slot, slot->holds / s->p->chunks);
    if (!take_turn(s, slot)) return BAD(s, "does not wait for the last use of slot %d", a->slot);
    slot->holds = place;
    return OK;
}

/* Later actions must find their own micro-batch in the slot. Progress and use_ring check their
 * order, so here the use is only noted. */
static Status check_slot(Check *s, const Action *a, int place)
{
    Resource *slot = &s->slot[a->slot];
    if (slot->holds != place)
        return BAD(s, "slot %d does not hold micro-batch %d, chunk %d", a->slot, a->micro,
                   a->chunk);
    note_use(s, slot);
    return OK;
}

/* What runs beside an exchange reads what the exchange does. Over ranks of tp the comm lane makes it: then it is made
 * by an action before that of the exchange. */
static Status check_beside(const Check *s, const Action *a, const Progress *g)
{
    const ChunkPhase *at = action_row(s->p, a)->at + a->first;
    const int64_t seen = s->now[LANE_COMM];
    if (!at->overlap_ok || g->comm <= seen) return OK;
    const bool alone = !at[-1].tensor || g->comm_first + 1 == a->first;
    if (alone && g->comm_before <= seen) return OK;
    return BAD(s, PASS " does not wait for what runs before the exchange at its side", OF(a));
}

static void note_comm(const Check *s, const Action *a, Progress *g)
{
    if (a->first == 0) g->comm = g->comm_before = 0; /* backward needs no end of forward here */
    if (a->lane != LANE_COMM) return;
    g->comm_before = g->comm;
    g->comm = count_of(s, LANE_COMM);
    g->comm_first = a->first;
}

/* A forward reads the entry of the hop before with its first action and writes the next hop's with
 * its last. In an evaluation the slot is free after that. */
static Status check_forward(Check *s, const Action *a)
{
    int place = a->micro * s->p->chunks + a->chunk, hop = hop_of(s->p, a->chunk, a->micro);
    Progress *g = &s->progress[place];
    if (g->forward > a->first)
        return BAD(s, "micro-batch %d goes forward twice on chunk %d", a->micro, a->chunk);
    TRY(g->forward == 0 ? enter_slot(s, a, place) : check_slot(s, a, place));
    TRY(check_next_phases(s, a, &g->forward));
    if (a->first == 0 && hop > 0) {
        TRY(use_entry(s, true, a->in, (Content){ ACTIVATIONS, a->micro, hop - 1 }));
    }
    if (a->end == action_row(s->p, a)->n && hop + 1 < hop_count(s->p)) {
        TRY(use_entry(s, false, a->out, (Content){ ACTIVATIONS, a->micro, hop }));
    }
    if (s->p->evaluates && a->end == action_row(s->p, a)->n) s->slot[a->slot].holds = -1;
    TRY(use_ring(s, a));
    TRY(check_beside(s, a, g));
    note_comm(s, a, g);
    return check_opening(s, a, g);
}

/* An input gradient reads the gradient of the chunk's output and writes that of its input. */
static Status check_input(Check *s, const Action *a, Progress *g)
{
    int hop = hop_of(s->p, a->chunk, a->micro), all = action_row(s->p, a)->n;
    if (g->forward < s->p->chunk[a->chunk].row[ROW_FORWARD].n)
        return BAD(s, PASS " before the end of its forward", OF(a));
    if (g->input == all) return BAD(s, PASS " after its input gradients", OF(a));
    TRY(check_next_phases(s, a, &g->input));
    if (a->first == 0 && hop + 1 < hop_count(s->p)) {
        TRY(use_entry(s, true, a->in, (Content){ GRADIENTS, a->micro, hop }));
    }
    if (a->end == all && hop > 0) {
        TRY(use_entry(s, false, a->out, (Content){ GRADIENTS, a->micro, hop - 1 }));
    }
    note_comm(s, a, g);
    return OK;
}

/* Weight gradients wait for the input gradients of the same phases, on whichever lane those ran. Input
 * gradients of later phases may run at the same time. Phases on the comm lane have no weight gradients. */
static Status check_weight(Check *s, const Action *a, Progress *g)
{
    if (g->input < a->end) return BAD(s, PASS " before its input gradients", OF(a));
    int end = a->end;
    while (end > a->first && action_row(s->p, a)->at[end - 1].lane == LANE_COMM) end--;
    int needs = g->comm_first < end ? g->comm : g->comm_before;
    if (a->kind == ACTION_BACKWARD_WEIGHT && needs > s->now[LANE_COMM])
        return BAD(s, "does not wait for the phase of micro-batch %d before it", a->micro);
    return check_next_phases(s, a, &g->weight);
}

/* BACKWARD is both an input and a weight gradient. The slot is free once the weight gradients of
 * all phases ran. */
static Status check_backward(Check *s, const Action *a)
{
    int place = a->micro * s->p->chunks + a->chunk;
    Progress *g = &s->progress[place];
    bool weight = a->kind == ACTION_BACKWARD_WEIGHT, input = a->kind == ACTION_BACKWARD_INPUT;
    TRY(check_slot(s, a, place));
    if (!weight) TRY(check_beside(s, a, g));
    if (!weight) TRY(check_input(s, a, g));
    if (!input) TRY(check_weight(s, a, g));
    if (g->weight == action_row(s->p, a)->n) s->slot[a->slot].holds = -1;
    TRY(use_ring(s, a));
    return weight ? OK : check_opening(s, a, g);
}

/* Weights and gradients that ranks share. */

/* A phase on the compute lane must find its layer's weights in their half, gathered by an action it
 * waits for. */
static Status check_weights_there(Check *s, const ChunkPhase *x)
{
    if (!s->p->shards.weights || x->half < 0 || x->lane == LANE_COMM) return OK;
    Resource *place = &s->weights[x->half];
    if (place->holds != x->weights)
        return BAD(s, "reads the weights of layer %d, which are not gathered", x->weights);
    if (place->touched[LANE_COMM] > s->now[LANE_COMM])
        return BAD(s, "does not wait for the weights of layer %d", x->weights);
    note_use(s, place);
    return OK;
}

/* A phase that adds to gradients: they must not have been reduced yet, and a shared layer needs its half. */
static Status check_adds(Check *s, const Action *a, const ChunkPhase *x)
{
    bool weight = a->kind == ACTION_BACKWARD || a->kind == ACTION_BACKWARD_WEIGHT;
    if (s->p->evaluates || x->own < 0 || (!x->gradients && !weight)) return OK;
    const int layers[] = { x->own, x->weights };
    for (int i = 0; i < 2; i++) {
        Resource *grads = &s->grads[layers[i]];
        if (grads->holds >= GRADS_REDUCED)
            return BAD(s, "adds to gradients of layer %d, which have been reduced", layers[i]);
        grads->holds = GRADS_SOME;
        note_use(s, grads);
    }
    if (!s->p->shards.gradients || x->half < 0 || x->lane == LANE_COMM) return OK;
    Resource *room = &s->room[x->half];
    if (room->holds != x->weights)
        return BAD(s, "adds to gradients of layer %d, which have no place", x->weights);
    note_use(s, room);
    return OK;
}

/* A half must hold what the action expects (-1: nothing), and all actions that used it must be done. Then it
 * holds `then`. */
static Status check_half(Check *s, const Action *a, Resource *place, int holds, int then)
{
    if (place->holds != holds)
        return BAD(s, "%s of layer %d: place %d has layer %d", action_name(a->kind), a->layer,
                   a->half, place->holds);
    if (!take_turn(s, place))
        return BAD(s, "%s of layer %d does not wait for the last use of place %d",
                   action_name(a->kind), a->layer, a->half);
    place->holds = then;
    return OK;
}

/* A reduction or sum of gradients that are held whole: once each, after all additions, in this order. */
static Status check_reduced(Check *s, const Action *a, int then)
{
    Resource *grads = &s->grads[a->layer];
    if (!take_turn(s, grads))
        return BAD(s, "%s of layer %d does not wait for all that add to them", action_name(a->kind),
                   a->layer);
    bool early = then == GRADS_SUMMED && s->p->shards.reduce && !s->p->shards.gradients &&
                 grads->holds < GRADS_REDUCED;
    if (grads->holds < 0 || grads->holds >= then || early)
        return BAD(s, "%s of layer %d %s", action_name(a->kind), a->layer,
                   grads->holds < 0 ? "which has none"
                   : early          ? "before they are reduced"
                                    : "a second time");
    grads->holds = then;
    return OK;
}

/* Gathers, frees, openings and reductions of one layer. With a half the check follows the half;
 * without one it follows the state of the layer's whole gradients. */
static Status check_shared(Check *s, const Action *a)
{
    if (a->layer < 0 || a->layer >= s->layers || a->half < -1 || a->half >= CHUNK_HALVES)
        return BAD(s, "%s of layer %d of %d, place %d", action_name(a->kind), a->layer, s->layers,
                   a->half);
    bool placed = a->half >= 0;
    switch (a->kind) {
    case ACTION_ZERO_GRADS:
        if (!placed) return BAD(s, "zeroes no place of layer %d", a->layer);
        return check_half(s, a, &s->room[a->half], -1, a->layer);
    case ACTION_FREE_WEIGHTS:
        if (!placed) return BAD(s, "frees no place of layer %d", a->layer);
        return check_half(s, a, &s->weights[a->half], a->layer, -1);
    case ACTION_GATHER_WEIGHTS:
        if (placed) return check_half(s, a, &s->weights[a->half], -1, a->layer);
        if (!s->updated) return BAD(s, "gathers layer %d before the update", a->layer);
        s->grads[a->layer].holds = GRADS_GATHERED;
        return OK;
    case ACTION_REDUCE_GRADS:
        if (placed) return check_half(s, a, &s->room[a->half], a->layer, -1);
        return check_reduced(s, a, GRADS_REDUCED);
    default: return check_reduced(s, a, GRADS_SUMMED);
    }
}

/* All members of a group run the same list. They issue its collectives in one order if any two communicating
 * actions have a fixed order under any timing. */
static Status check_meeting(Check *s)
{
    if (!action_communicates(s->p, &s->p->at[s->at]) || take_turn(s, s->meeting)) return OK;
    return BAD(s,
               "%s does not wait for the collectives before it, so that ranks could issue both in "
               "different orders",
               action_name(s->p->at[s->at].kind));
}

/* Both ends compute the other end from the placement. The entry shows that the payload is the right
 * one. */
static Status check_transfer(Check *s, const Action *a)
{
    int hop = hop_of(s->p, a->chunk, a->micro), peer = transfer_other_end(s->p, a).rank;
    bool activations = action_is_forward(a->kind), send = action_is_send(a->kind);
    if (peer < 0) return BAD(s, "%s at the end of the pipeline", action_name(a->kind));
    if (a->peer != peer || peer == s->p->rank) {
        return BAD(s, "%s with rank %d, the other end is rank %d", action_name(a->kind), a->peer,
                   peer);
    }
    Content what = { activations ? ACTIVATIONS : GRADIENTS, a->micro,
                     send == activations ? hop : hop - 1 };
    return use_entry(s, send, send ? a->in : a->out, what);
}

/* `least` is how far gradients must have come: summed if there are replicas, else reduced if ranks
 * share layers, else only added. */
static Status check_update(Check *s, const Action *a)
{
    const ScheduleShards *shards = &s->p->shards;
    if ((a->kind == ACTION_ADD_RECORDS) != s->p->evaluates)
        return BAD(s, "%s in %s", action_name(a->kind),
                   s->p->evaluates ? "an evaluation" : "a step");
    if (!s->zeroed) return BAD(s, "%s before zero gradients", action_name(a->kind));
    if (s->updated) return BAD(s, "%s a second time", action_name(a->kind));
    int least = shards->sums                           ? GRADS_SUMMED
                : shards->reduce && !shards->gradients ? GRADS_REDUCED
                                                       : GRADS_SOME;
    for (int i = 0; i < s->layers; i++) {
        if (s->grads[i].holds >= 0 && s->grads[i].holds < least)
            return BAD(s, "update before the gradients of layer %d are reduced", i);
    }
    for (int i = 0; i < CHUNK_HALVES; i++) {
        if (s->room[i].holds >= 0)
            return BAD(s, "update before the gradients of layer %d are reduced", s->room[i].holds);
    }
    s->updated = true;
    return OK;
}

/* An action must lie inside its row, and all of its phases on its lane. Weight gradients always run
 * on compute. */
static Status check_range(const Check *s, const Action *a)
{
    const ChunkRow *row = action_row(s->p, a);
    if (a->first < 0 || a->end <= a->first || a->end > row->n)
        return BAD(s, "phases %d to %d of %d", a->first, a->end, row->n);
    for (int i = a->first; i < a->end; i++) {
        Lane lane = a->kind == ACTION_BACKWARD_WEIGHT ? LANE_COMPUTE : (Lane)row->at[i].lane;
        if (a->lane != lane)
            return BAD(s, "phase %d (%s) is on the wrong lane", i, row->at[i].name);
    }
    return OK;
}

static Status check_numbers(const Check *s, const Action *a)
{
    const Program *p = s->p;
    bool transfer = action_is_transfer(a->kind), pass = action_is_pass(a->kind);
    if (!pass && !transfer) return OK;
    if (a->micro < 0 || a->micro >= p->micros || a->chunk < 0 || a->chunk >= p->chunks ||
        (pass && (a->slot < 0 || a->slot >= p->slots))) {
        return BAD(s, "micro-batch %d, chunk %d, slot %d of %d, %d, %d", a->micro, a->chunk,
                   a->slot, p->micros, p->chunks, p->slots);
    }
    if (pass) TRY(check_range(s, a));
    if (hop_of(p, a->chunk, a->micro) >= 0) return OK;
    return BAD(s, "micro-batch %d does not come to chunk %d", a->micro, a->chunk);
}

/* All of a step's passes lie between the zeroing and the update. */
static Status check_pass(Check *s, const Action *a)
{
    const ChunkRow *row = action_row(s->p, a);
    if (!s->zeroed || s->updated) return BAD(s, PASS " outside of zero and update", OF(a));
    for (int i = a->first; i < a->end; i++) {
        TRY(check_weights_there(s, &row->at[i]));
        TRY(check_adds(s, a, &row->at[i]));
    }
    if (a->kind == ACTION_FORWARD) return check_forward(s, a);
    if (s->p->evaluates) return BAD(s, PASS " in an evaluation", OF(a));
    return check_backward(s, a);
}

static Status check_kind(Check *s, const Action *a)
{
    if (action_is_transfer(a->kind)) return check_transfer(s, a);
    TRY(check_meeting(s));
    if (action_is_pass(a->kind)) return check_pass(s, a);
    if (a->kind == ACTION_UPDATE || a->kind == ACTION_ADD_RECORDS) return check_update(s, a);
    if (a->kind != ACTION_ZERO_GRADS || a->layer >= 0) return check_shared(s, a);
    if (s->zeroed) return BAD(s, "%s a second time", action_name(a->kind));
    s->zeroed = true;
    return OK;
}

/* Waiting joins the event's clock into that of the action: what was done before the signal is done
 * now. */
static Status check_wait(Check *s, int event)
{
    if (event >= s->p->events || event < -1) return BAD(s, "event %d of %d", event, s->p->events);
    const int *carried = carried_by(s, event);
    if (carried[0] < 0) return BAD(s, "waits for event %d, which nobody signals before", event);
    for (int q = 0; q < s->queues; q++) {
        if (carried[q] > s->now[q]) s->now[q] = carried[q];
    }
    return OK;
}

/* An event is signalled once a step. So a wait can only mean one action. */
static Status signal_event(Check *s, int event, const int *mine)
{
    if (event >= s->p->events) return BAD(s, "event %d of %d", event, s->p->events);
    int *carried = carried_by(s, event);
    if (carried[0] >= 0) return BAD(s, "signals event %d a second time", event);
    memcpy(carried, mine, (size_t)s->queues * sizeof(int));
    return OK;
}

/* now = clock of its queue joined with the clocks of its waits. After the check it becomes the
 * queue's clock, one action further. */
static Status check_action(Check *s)
{
    const Action *a = &s->p->at[s->at];
    if (a->kind >= ACTION_KIND_COUNT) return BAD(s, "unknown kind %d", (int)a->kind);
    TRY(check_numbers(s, a));
    int queue = queue_of(s->p, a);
    int *mine = s->known + (size_t)queue * (size_t)s->queues;
    memcpy(s->now, mine, (size_t)s->queues * sizeof(int));
    for (int i = 0; i < ACTION_WAITS; i++) {
        if (a->wait[i] != -1) TRY(check_wait(s, a->wait[i]));
    }
    TRY(check_kind(s, a));
    memcpy(mine, s->now, (size_t)s->queues * sizeof(int));
    mine[queue]++;
    if (a->early >= 0) TRY(signal_event(s, a->early, mine));
    return a->signal >= 0 ? signal_event(s, a->signal, mine) : OK;
}

static Status new_resources(const Check *s, int n, Arena *a, Resource **out)
{
    int *touched = NULL;
    TRY(ARENA_NEW(a, n, out));
    TRY(ARENA_ZEROED(a, n * s->queues, &touched));
    for (int i = 0; i < n; i++, touched += s->queues)
        (*out)[i] = (Resource){ { 0, -1, 0 }, -1, touched };
    return OK;
}

static Status check_make(const Program *p, Arena *a, Check *s)
{
    *s = (Check){ .p = p, .queues = queue_count(p), .layers = program_layers(p) };
    TRY(ARENA_ZEROED(a, (size_t)p->micros * (size_t)p->chunks, &s->progress));
    TRY(new_resources(s, p->slots, a, &s->slot));
    TRY(new_resources(s, p->entries, a, &s->entry));
    TRY(new_resources(s, CHUNK_ROWS, a, &s->ring));
    TRY(new_resources(s, CHUNK_HALVES, a, &s->weights));
    TRY(new_resources(s, CHUNK_HALVES, a, &s->room));
    TRY(new_resources(s, s->layers, a, &s->grads));
    TRY(new_resources(s, 1, a, &s->meeting));
    TRY(ARENA_ZEROED(a, s->queues * s->queues, &s->known));
    TRY(ARENA_NEW(a, s->queues, &s->now));
    TRY(ARENA_NEW(a, (size_t)p->events * (size_t)s->queues, &s->carried));
    for (int e = 0; e < p->events; e++) carried_by(s, e)[0] = -1;
    return OK;
}

/* After the last action nothing may be left: a micro-batch under way, an unread entry, a layer not
 * gathered. */
static Status check_end(const Check *s)
{
    const Program *p = s->p;
    for (int i = 0; i < p->micros * p->chunks; i++) {
        int micro = i / p->chunks, chunk = i % p->chunks;
        const ChunkRow *row = p->chunk[chunk].row;
        bool through = p->evaluates ? s->progress[i].forward == row[ROW_FORWARD].n
                                    : s->progress[i].weight == row[ROW_BACKWARD].n;
        if (hop_of(p, chunk, micro) < 0 || through) continue;
        return FAIL(ERR_ARG, "program: micro-batch %d never goes %s on chunk %d", micro,
                    p->evaluates ? "forward" : "backward", chunk);
    }
    for (int i = 0; i < p->entries; i++) {
        const Content *c = &s->entry[i].content;
        if (c->micro < 0) continue;
        return FAIL(ERR_ARG, "program: nobody reads the %s of micro-batch %d in entry %d",
                    payload_name(c->payload), c->micro, i);
    }
    if (!s->updated)
        return FAIL(ERR_ARG, "program: there is no %s", p->evaluates ? "end" : "update");
    for (int i = 0; i < s->layers; i++) {
        int holds = s->grads[i].holds;
        if (p->shards.update && holds > 0 && holds < GRADS_GATHERED)
            return FAIL(ERR_ARG, "program: nobody gathers layer %d after the update", i);
    }
    return OK;
}

static Status check_rank(const Program *p, Arena *a)
{
    Check s;
    TRY(check_make(p, a, &s));
    for (s.at = 0; s.at < p->n; s.at++) TRY(check_action(&s));
    return check_end(&s);
}

/* Deadlocks and mismatched ends: the simulator finds both, with actions that take no time. */
static Status check_together(const Pipeline *p, Arena *a)
{
    SimSpan **spans = NULL;
    TRY(ARENA_NEW(a, p->stages, &spans));
    return simulate_spans(p, &simulate_free, a, spans);
}

Status schedule_check(const Program *p, Arena *scratch)
{
    ArenaMark mark = arena_mark(scratch);
    Status status = check_rank(p, scratch);
    arena_release(scratch, mark);
    return status;
}

Status schedule_check_all(const Pipeline *p, Arena *scratch)
{
    const Program *first = p->rank;
    for (int r = 0; r < p->stages; r++) {
        const Program *x = &p->rank[r];
        if (x->rank != r || x->stages != p->stages || x->micros != first->micros ||
            x->chunks != first->chunks || x->placement != first->placement) {
            return FAIL(ERR_ARG, "pipeline: the program of rank %d is of another pipeline", r);
        }
        TRY(schedule_check(x, scratch));
    }
    ArenaMark mark = arena_mark(scratch);
    Status status = check_together(p, scratch);
    arena_release(scratch, mark);
    return status;
}
