#include "schedule/check.h"

#include "schedule/simulate.h"

#include <string.h>

enum { ACTIVATIONS, GRADIENTS };

/* What an entry holds: the activations or gradients between hop `after` of a micro-batch and the
 * next. micro -1: nothing that anybody still wants. */
typedef struct Content {
    int payload, micro, after;
} Content;

/* A slot or an entry. touched[q]: how many actions of queue q there had been when one of them last
 * used it. */
typedef struct Resource {
    Content content;
    int place; /* of a slot: (micro, chunk) number that is in it, -1 free */
    int *touched;
} Resource;

/* How many phases of a micro-batch's passes on a chunk have been, and where the last one of forward
 * and input gradients is: the count-th action of its queue. */
typedef struct Progress {
    int forward, input, weight;
    int queue, count;
} Progress;

typedef struct Check {
    const Program *p;
    int queues, phases, at; /* phases: of a pass, at least 1; at: the action looked at */
    Progress *progress;     /* by (micro, chunk) */
    Resource *slot, *entry;
    int *known;   /* by (queue, queue): what each queue knows to be done of each */
    int *carried; /* by (event, queue): what a wait for the event makes known; [0] -1: not yet */
    int *now;     /* what the action looked at knows when it starts */
    bool zeroed, reduced, updated;
} Check;

#define PASS             "%s of micro-batch %d"
#define OF(a)            action_name((a)->kind), (a)->micro
#define BAD(s, fmt, ...) FAIL(ERR_ARG, "program action %d: " fmt, (s)->at, __VA_ARGS__)

static const char *payload_name(int payload)
{
    return payload == ACTIVATIONS ? "activations" : "gradients";
}

static int *carried_by(const Check *s, int event)
{
    return s->carried + (size_t)event * (size_t)s->queues;
}

static int count_of(const Check *s, int queue) { return s->known[queue * s->queues + queue] + 1; }

static void touch(Check *s, Resource *r)
{
    int mine = queue_of(s->p, &s->p->at[s->at]);
    r->touched[mine] = count_of(s, mine);
}

/* Whether all who used the resource are done when this action starts; then it is in use by this. */
static bool take_turn(Check *s, Resource *r)
{
    for (int q = 0; q < s->queues; q++) {
        if (r->touched[q] > s->now[q]) return false;
    }
    touch(s, r);
    return true;
}

/* A reader finds what it wants and leaves nothing; a writer finds nothing that is still wanted. */
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

static int phase_of(const Action *a) { return a->phase < 0 ? 0 : a->phase; }

static Status at_phase(const Check *s, const Action *a, int want)
{
    if (phase_of(a) == want) return OK;
    return BAD(s, PASS " is at phase %d, next is %d", OF(a), phase_of(a), want);
}

/* The next phase of forward or of the input gradients: after the one before it. */
static Status follow(Check *s, const Action *a, Progress *g, int want)
{
    int queue = queue_of(s->p, a);
    TRY(at_phase(s, a, want));
    if (g->count > s->now[g->queue])
        return BAD(s, "does not wait for the phase of micro-batch %d before it", a->micro);
    g->queue = queue;
    g->count = count_of(s, queue);
    return OK;
}

static Status enter_slot(Check *s, const Action *a, int place)
{
    Resource *slot = &s->slot[a->slot];
    if (slot->place >= 0)
        return BAD(s, "slot %d still holds micro-batch %d", a->slot, slot->place / s->p->chunks);
    if (!take_turn(s, slot)) return BAD(s, "does not wait for the last use of slot %d", a->slot);
    slot->place = place;
    return OK;
}

static Status check_slot(Check *s, const Action *a, int place)
{
    Resource *slot = &s->slot[a->slot];
    if (slot->place != place)
        return BAD(s, "slot %d does not hold micro-batch %d, chunk %d", a->slot, a->micro,
                   a->chunk);
    touch(s, slot);
    return OK;
}

static Status check_forward(Check *s, const Action *a)
{
    int place = a->micro * s->p->chunks + a->chunk, hop = place_hop(s->p, a->chunk, a->micro);
    Progress *g = &s->progress[place];
    if (g->forward > phase_of(a))
        return BAD(s, "micro-batch %d goes forward twice on chunk %d", a->micro, a->chunk);
    TRY(g->forward == 0 ? enter_slot(s, a, place) : check_slot(s, a, place));
    TRY(follow(s, a, g, g->forward++));
    if (g->forward == 1 && hop > 0) {
        TRY(use_entry(s, true, a->in, (Content){ ACTIVATIONS, a->micro, hop - 1 }));
    }
    if (g->forward == s->phases && hop + 1 < place_hops(s->p)) {
        TRY(use_entry(s, false, a->out, (Content){ ACTIVATIONS, a->micro, hop }));
    }
    return OK;
}

/* The gradient of a chunk's output comes in, that of its input goes out. */
static Status check_input(Check *s, const Action *a, Progress *g)
{
    int hop = place_hop(s->p, a->chunk, a->micro);
    if (g->input == s->phases) return BAD(s, PASS " after its input gradients", OF(a));
    TRY(follow(s, a, g, s->phases - 1 - g->input++));
    if (g->input == 1 && hop + 1 < place_hops(s->p)) {
        TRY(use_entry(s, true, a->in, (Content){ GRADIENTS, a->micro, hop }));
    }
    if (g->input == s->phases && hop > 0) {
        TRY(use_entry(s, false, a->out, (Content){ GRADIENTS, a->micro, hop - 1 }));
    }
    return OK;
}

/* Weight gradients are of the phases that compute, behind the input gradients on the same lane. */
static Status check_weight(Check *s, const Action *a, Progress *g)
{
    int want = s->phases == 1 ? 0 : s->phases - 2 - 2 * g->weight;
    if (g->input < s->phases - phase_of(a))
        return BAD(s, PASS " before its input gradients", OF(a));
    g->weight++;
    return at_phase(s, a, want);
}

static Status check_backward(Check *s, const Action *a)
{
    int place = a->micro * s->p->chunks + a->chunk;
    Progress *g = &s->progress[place];
    bool weight = a->kind == ACTION_BACKWARD_WEIGHT, input = a->kind == ACTION_BACKWARD_INPUT;
    if (!s->zeroed || s->reduced) return BAD(s, PASS " outside of zero and reduce", OF(a));
    TRY(check_slot(s, a, place));
    if (!weight) TRY(check_input(s, a, g));
    if (!input) TRY(check_weight(s, a, g));
    if (!input && phase_of(a) == 0) s->slot[a->slot].place = -1;
    return OK;
}

static Status check_transfer(Check *s, const Action *a)
{
    int hop = place_hop(s->p, a->chunk, a->micro), peer = place_across(s->p, a).rank;
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

/* Whole passes are all on one lane, and so are the phases that exchange; with what ends the step
 * behind both lanes, a rank's collectives have one order under any timing. */
static Status check_end_of_step(Check *s, const Action *a)
{
    if (a->kind == ACTION_UPDATE && !s->reduced)
        return FAIL(ERR_ARG, "program action %d: update before reduce", s->at);
    for (int q = 0; q < LANE_COUNT; q++) {
        if (s->known[q * s->queues + q] <= s->now[q]) continue;
        return BAD(s,
                   "%s does not wait for all before it, so replicas can issue "
                   "its collectives and those of a pass in different orders",
                   action_name(a->kind));
    }
    s->reduced = true;
    s->updated = a->kind == ACTION_UPDATE;
    return OK;
}

static Status check_numbers(const Check *s, const Action *a)
{
    const Program *p = s->p;
    bool transfer = action_is_transfer(a->kind);
    bool micro = a->kind >= ACTION_FORWARD && a->kind <= ACTION_BACKWARD_WEIGHT;
    if (!micro && !transfer) return OK;
    if (a->micro < 0 || a->micro >= p->micros || a->chunk < 0 || a->chunk >= p->chunks ||
        (micro && (a->slot < 0 || a->slot >= p->slots))) {
        return BAD(s, "micro-batch %d, chunk %d, slot %d of %d, %d, %d", a->micro, a->chunk,
                   a->slot, p->micros, p->chunks, p->slots);
    }
    if (micro && (p->phases > 0 ? a->phase < 0 || a->phase >= p->phases : a->phase != -1))
        return BAD(s, "phase %d of %d", a->phase, p->phases);
    if (micro && a->lane != (phase_of(a) % 2 == 0 ? LANE_COMPUTE : LANE_COMM))
        return BAD(s, "phase %d is on the wrong lane", a->phase);
    if (place_hop(p, a->chunk, a->micro) >= 0) return OK;
    return BAD(s, "micro-batch %d does not come to chunk %d", a->micro, a->chunk);
}

static Status run_action(Check *s, const Action *a)
{
    if (action_is_transfer(a->kind)) return check_transfer(s, a);
    switch (a->kind) {
    case ACTION_ZERO_GRADS: s->zeroed = true; return OK;
    case ACTION_FORWARD: return check_forward(s, a);
    case ACTION_REDUCE_GRADS:
    case ACTION_UPDATE: return check_end_of_step(s, a);
    default: return check_backward(s, a);
    }
}

static Status wait_for(Check *s, int event)
{
    if (event >= s->p->events || event < -1) return BAD(s, "event %d of %d", event, s->p->events);
    const int *carried = carried_by(s, event);
    if (carried[0] < 0) return BAD(s, "waits for event %d, which nobody signals before", event);
    for (int q = 0; q < s->queues; q++) {
        if (carried[q] > s->now[q]) s->now[q] = carried[q];
    }
    return OK;
}

static Status signal_event(Check *s, int event, const int *mine)
{
    if (event >= s->p->events) return BAD(s, "event %d of %d", event, s->p->events);
    int *carried = carried_by(s, event);
    if (carried[0] >= 0) return BAD(s, "signals event %d a second time", event);
    memcpy(carried, mine, (size_t)s->queues * sizeof(int));
    return OK;
}

static Status check_action(Check *s)
{
    const Action *a = &s->p->at[s->at];
    if (a->kind >= ACTION_KIND_COUNT) return BAD(s, "unknown kind %d", (int)a->kind);
    TRY(check_numbers(s, a));
    int queue = queue_of(s->p, a);
    int *mine = s->known + (size_t)queue * (size_t)s->queues;
    memcpy(s->now, mine, (size_t)s->queues * sizeof(int));
    for (int i = 0; i < 3; i++) {
        if (a->wait[i] != -1) TRY(wait_for(s, a->wait[i]));
    }
    TRY(run_action(s, a));
    memcpy(mine, s->now, (size_t)s->queues * sizeof(int));
    mine[queue]++;
    return a->signal >= 0 ? signal_event(s, a->signal, mine) : OK;
}

static Status resources(const Check *s, int n, Arena *a, Resource **out)
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
    *s = (Check){ .p = p, .queues = queue_count(p), .phases = p->phases > 0 ? p->phases : 1 };
    if (p->phases % PHASES != 0)
        return FAIL(ERR_ARG, "program: %d phases, %d a block", p->phases, PHASES);
    TRY(ARENA_ZEROED(a, (size_t)p->micros * (size_t)p->chunks, &s->progress));
    TRY(resources(s, p->slots, a, &s->slot));
    TRY(resources(s, p->entries, a, &s->entry));
    TRY(ARENA_ZEROED(a, s->queues * s->queues, &s->known));
    TRY(ARENA_NEW(a, s->queues, &s->now));
    TRY(ARENA_NEW(a, (size_t)p->events * (size_t)s->queues, &s->carried));
    for (int e = 0; e < p->events; e++) carried_by(s, e)[0] = -1;
    return OK;
}

static Status check_end(const Check *s)
{
    const Program *p = s->p;
    for (int i = 0; i < p->micros * p->chunks; i++) {
        int micro = i / p->chunks, chunk = i % p->chunks;
        int weights = p->phases > 0 ? p->phases / 2 : 1;
        if (place_hop(p, chunk, micro) < 0 || s->progress[i].weight == weights) continue;
        return FAIL(ERR_ARG, "program: micro-batch %d never goes backward on chunk %d", micro,
                    chunk);
    }
    for (int i = 0; i < p->entries; i++) {
        const Content *c = &s->entry[i].content;
        if (c->micro < 0) continue;
        return FAIL(ERR_ARG, "program: nobody reads the %s of micro-batch %d in entry %d",
                    payload_name(c->payload), c->micro, i);
    }
    if (!s->updated) return FAIL(ERR_ARG, "program: there is no update");
    return OK;
}

static Status check_rank(const Program *p, Arena *a)
{
    Check s;
    TRY(check_make(p, a, &s));
    for (s.at = 0; s.at < p->n; s.at++) TRY(check_action(&s));
    return check_end(&s);
}

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
