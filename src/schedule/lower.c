#include "schedule/lower.h"

#include "schedule/order.h"

enum { ACTIVATIONS, GRADIENTS, PAYLOADS };

/* A row of entries that one way (payload, chunk) uses in turn. user[i]: the event of the last
 * action that read entry i, for who writes it next. */
typedef struct Ring {
    int first, n, count;
    int *user;
} Ring;

typedef struct Lowering {
    const Order *order;
    const OrderTimes *times;
    Program *p;
    Ring *in, *out; /* by (payload, chunk) */
    SlotTable slots;
} Lowering;

static int ring_index(const Program *p, int payload, int chunk)
{
    return payload * p->chunks + chunk;
}

static int payload_of(ActionKind kind) { return kind == ACTION_FORWARD ? ACTIVATIONS : GRADIENTS; }

static Status ring_make(Lowering *l, Ring *r, int n, Arena *scratch)
{
    void *memory = NULL;
    TRY(arena_alloc(scratch, (size_t)n * sizeof(int), &memory));
    *r = (Ring){ .first = l->p->entries, .n = n, .user = memory };
    for (int i = 0; i < n; i++) r->user[i] = -1;
    l->p->entries += n;
    return OK;
}

static Status chunk_rings(Lowering *l, int chunk, Arena *scratch)
{
    static const ActionKind kind[PAYLOADS] = { ACTION_FORWARD, ACTION_BACKWARD };
    for (int payload = 0; payload < PAYLOADS; payload++) {
        OrderRings n = order_rings(l->times, l->order, (Place){ l->p->rank, chunk }, kind[payload]);
        int at = ring_index(l->p, payload, chunk);
        if (n.in > 0) TRY(ring_make(l, &l->in[at], n.in, scratch));
        if (n.out > 0) TRY(ring_make(l, &l->out[at], n.out, scratch));
    }
    return OK;
}

static void wait_for(Action *a, int event)
{
    if (event < 0) return;
    int i = 0;
    while (a->wait[i] >= 0) i++;
    a->wait[i] = event;
}

static Action *emit(Program *p, Action a)
{
    p->at[p->n] = a;
    return &p->at[p->n++];
}

static Action transfer(Program *p, ActionKind kind, const Pass *pass, int peer)
{
    Action a = action_make(kind);
    a.chunk = (short)pass->chunk;
    a.micro = pass->micro;
    a.peer = (short)peer;
    a.signal = p->events++;
    return a;
}

/* The entry that a pass reads, received just before it if it comes from another rank. */
static void take_input(Lowering *l, const Pass *pass, Place from, Action *a)
{
    Program *p = l->p;
    int payload = payload_of(pass->kind);
    Ring *r = &l->in[ring_index(p, payload, pass->chunk)];
    int i = r->count++ % r->n;
    a->in = r->first + i;
    if (from.rank == p->rank) return;
    ActionKind kind = payload == ACTIVATIONS ? ACTION_RECV_ACTIVATIONS : ACTION_RECV_GRADIENTS;
    Action recv = transfer(p, kind, pass, from.rank);
    recv.out = a->in;
    wait_for(&recv, r->user[i]);
    wait_for(a, recv.signal);
    a->signal = r->user[i] = p->events++;
    (void)emit(p, recv);
}

/* Emits the pass itself and the send of what it makes. */
static void give_output(Lowering *l, const Pass *pass, Place to, Action *a)
{
    Program *p = l->p;
    int payload = payload_of(pass->kind);
    if (to.rank == p->rank) {
        Ring *next = &l->in[ring_index(p, payload, to.chunk)];
        Ring *mine = &l->out[ring_index(p, payload, pass->chunk)];
        a->out = next->first + mine->count++ % next->n;
    }
    if (to.rank < 0 || to.rank == p->rank) {
        (void)emit(p, *a);
        return;
    }
    Ring *r = &l->out[ring_index(p, payload, pass->chunk)];
    int i = r->count++ % r->n;
    a->out = r->first + i;
    wait_for(a, r->user[i]);
    if (a->signal < 0) a->signal = p->events++;
    (void)emit(p, *a);
    ActionKind kind = payload == ACTIVATIONS ? ACTION_SEND_ACTIVATIONS : ACTION_SEND_GRADIENTS;
    Action send = transfer(p, kind, pass, to.rank);
    send.in = a->out;
    wait_for(&send, a->signal);
    r->user[i] = send.signal;
    (void)emit(p, send);
}

Status slots_make(const ScheduleShape *s, Arena *scratch, SlotTable *out)
{
    *out = (SlotTable){ .most = s->chunks * s->micros, .micros = s->micros };
    TRY(ARENA_NEW(scratch, out->most, &out->of));
    TRY(ARENA_NEW(scratch, out->most, &out->free));
    return ARENA_ZEROED(scratch, out->most, &out->had);
}

/* Of the free slots the one that had this chunk and the fewest others, as a slot is as large as the
 * largest of its chunks; else the one that had the fewest. The first of several. */
static int take_slot(SlotTable *t, int chunk)
{
    int best = 0, least = 0;
    if (t->n_free == 0) return t->n++;
    for (int i = 0; i < t->n_free; i++) {
        uint64_t had = t->had[t->free[i]];
        int others =
            __builtin_popcountll(had) + ((had >> chunk & 1) == 0 ? SCHEDULE_CHUNKS_MAX : 0);
        if (i > 0 && (others > least || (others == least && t->free[i] > t->free[best]))) continue;
        best = i;
        least = others;
    }
    int slot = t->free[best];
    t->free[best] = t->free[--t->n_free];
    return slot;
}

int slots_pass(SlotTable *t, const Pass *p)
{
    int *mine = &t->of[p->chunk * t->micros + p->micro];
    if (p->kind == ACTION_FORWARD) {
        *mine = take_slot(t, p->chunk);
        t->had[*mine] |= 1ULL << p->chunk;
    } else if (p->kind != ACTION_BACKWARD_INPUT) {
        t->free[t->n_free++] = *mine;
    }
    return *mine;
}

static Action of_pass(const Pass *pass, ActionKind kind, int slot)
{
    Action a = action_make(kind);
    a.chunk = (short)pass->chunk;
    a.micro = pass->micro;
    a.slot = slot;
    return a;
}

static void lower_pass(Lowering *l, const Pass *pass)
{
    Place at = { l->p->rank, pass->chunk };
    Place from = order_source(l->p, at, pass), to = order_target(l->p, at, pass);
    Action a = of_pass(pass, pass->kind, slots_pass(&l->slots, pass));
    if (from.rank >= 0) take_input(l, pass, from, &a);
    give_output(l, pass, to, &a);
}

/* A pass while it is emitted phase by phase; what it reads and writes always changes ranks, so
 * events of transfers order the lanes. last: the event of the phase before, -1 at the start.
 */
typedef struct Part {
    const Pass *pass; /* NULL: there is none */
    Place from, to;
    int slot, last;
} Part;

static Part part_of(Lowering *l, const Pass *pass)
{
    Place at = { l->p->rank, pass->chunk };
    return (Part){ .pass = pass,
                   .from = order_source(l->p, at, pass),
                   .to = order_target(l->p, at, pass),
                   .slot = slots_pass(&l->slots, pass),
                   .last = -1 };
}

static void emit_phase(Lowering *l, Part *t, ActionKind kind, int phase)
{
    if (t->pass == NULL) return;
    int end = l->p->phases - 1, first = kind == ACTION_FORWARD ? 0 : end;
    Action a = of_pass(t->pass, kind, t->slot);
    a.phase = (short)phase;
    a.lane = phase % 2 == 0 ? LANE_COMPUTE : LANE_COMM;
    if (kind == ACTION_BACKWARD_WEIGHT) { /* behind its input gradients on the same lane */
        (void)emit(l->p, a);
        return;
    }
    wait_for(&a, t->last);
    if (phase == first && t->from.rank >= 0) take_input(l, t->pass, t->from, &a);
    if (a.signal < 0) a.signal = l->p->events++;
    t->last = a.signal;
    if (phase == end - first)
        give_output(l, t->pass, t->to, &a);
    else
        (void)emit(l->p, a);
}

const BlockPhase block_phases[BLOCK_PHASES] = {
    { ACTION_BACKWARD_INPUT, PHASE_COMBINE },   { ACTION_FORWARD, PHASE_ATTENTION },
    { ACTION_FORWARD, PHASE_DISPATCH },         { ACTION_BACKWARD_INPUT, PHASE_EXPERTS },
    { ACTION_BACKWARD_INPUT, PHASE_DISPATCH },  { ACTION_BACKWARD_WEIGHT, PHASE_EXPERTS },
    { ACTION_FORWARD, PHASE_EXPERTS },          { ACTION_FORWARD, PHASE_COMBINE },
    { ACTION_BACKWARD_INPUT, PHASE_ATTENTION }, { ACTION_BACKWARD_WEIGHT, PHASE_ATTENTION },
};

static void emit_block(Lowering *l, Part part[2], int i)
{
    int first[2] = { PHASES * i, l->p->phases - PHASES * (i + 1) };
    for (int k = 0; k < BLOCK_PHASES; k++) {
        const BlockPhase *x = &block_phases[k];
        int back = x->kind != ACTION_FORWARD;
        emit_phase(l, &part[back], x->kind, first[back] + x->phase);
    }
}

/* One pass, or a pair of a forward and a backward. Returns how many. */
static int lower_phases(Lowering *l, const Pass *pass)
{
    Part part[2] = { 0 };
    int n = pass->paired ? 2 : 1;
    for (int i = 0; i < n; i++) part[pass[i].kind != ACTION_FORWARD] = part_of(l, &pass[i]);
    for (int i = 0; i < l->p->phases / PHASES; i++) emit_block(l, part, i);
    return n;
}

static void lower_order(Lowering *l)
{
    const Order *o = l->order;
    if (l->p->phases > 0) {
        for (int i = 0; i < o->n;) i += lower_phases(l, &o->at[i]);
        return;
    }
    for (int i = 0; i < o->n; i++) lower_pass(l, &o->at[i]);
}

static Status lower_rank(Lowering *l, const ScheduleShape *s, Arena *a, Arena *scratch)
{
    Program *p = l->p;
    void *memory = NULL;
    int rings = PAYLOADS * p->chunks;
    /* backward has two transfers and two weight gradients for each block's four phases */
    size_t each = (size_t)(p->phases > 0 ? p->phases / PHASES * (PHASES + 2) : 1) + 2;
    TRY(arena_alloc(a, ((size_t)l->order->n * each + 3) * sizeof(Action), &memory));
    p->at = memory;
    TRY(arena_alloc_zero(scratch, (size_t)(2 * rings) * sizeof(Ring), &memory));
    l->in = memory;
    l->out = l->in + rings;
    TRY(slots_make(s, scratch, &l->slots));
    for (int c = 0; c < p->chunks; c++) TRY(chunk_rings(l, c, scratch));
    (void)emit(p, action_make(ACTION_ZERO_GRADS));
    lower_order(l);
    p->slots = l->slots.n;
    (void)emit(p, action_make(ACTION_REDUCE_GRADS));
    (void)emit(p, action_make(ACTION_UPDATE));
    return OK;
}

Status schedule_lower(const ScheduleDesc *d, const ScheduleShape *s, const Order *ranks, Arena *a,
                      Arena *scratch, Pipeline *out)
{
    void *memory = NULL;
    TRY(arena_alloc_zero(a, (size_t)s->stages * sizeof(Program), &memory));
    Pipeline pipeline = { .stages = s->stages, .rank = memory };
    Program like = { .micros = s->micros,
                     .chunks = s->chunks,
                     .stages = s->stages,
                     .placement = d->placement,
                     .phases = d->phases ? PHASES * s->blocks : 0 };
    OrderTimes times = { 0 };
    TRY(order_run(&like, s, ranks, scratch, &times));
    for (int r = 0; r < s->stages; r++) {
        pipeline.rank[r] = like;
        pipeline.rank[r].rank = r;
        Lowering l = { .order = &ranks[r], .times = &times, .p = &pipeline.rank[r] };
        TRY(lower_rank(&l, s, a, scratch));
    }
    *out = pipeline;
    return OK;
}
