/* lower: makes the passes and transfers of a rank's Program from the order of its passes: it splits passes into
 * actions by lane, assigns slots and entries, and adds the events. Gathers and reductions of parameters
 * are added by lower_shards.c. */
#include "engine/schedule/lower.h"

#include "engine/schedule/order.h"

#include <assert.h>

enum { ACTIVATIONS, GRADIENTS, PAYLOADS };

/* The entries that one link (payload, chunk) uses one after the other. user[i]: the event of the last action that read
 * entry i; the next writer waits for it. */
typedef struct Ring {
    int first, n, count;
    int *user;
} Ring;

/* The last two actions, by lane, whose phases took memory from one arena between phases; -1: none. A program
 * that is not phased has one such arena, a phased one has one for either direction. */
typedef struct RingUse {
    int last[LANE_COUNT], before[LANE_COUNT];
} RingUse;

typedef struct Lowering {
    const Order *order;
    const OrderTimes *times;
    Program *p;
    Ring *in, *out; /* by (payload, chunk) */
    SlotTable slots;
    int *slot_last; /* by slot and lane: the last action whose phases used it, -1: none */
    RingUse use[CHUNK_ROWS];
    int seen[LANE_COUNT]; /* the last action of the other lane that a lane has waited for */
    int *left;            /* by chunk: passes with weight gradients that are still to come */
} Lowering;

/* Activations of all chunks, then gradients of all chunks. */
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

/* A chunk has up to four rings: in and out, for activations and for gradients. Ends of the pipeline
 * have fewer. */
static Status chunk_rings(Lowering *l, int chunk, Arena *scratch)
{
    static const ActionKind kind[PAYLOADS] = { ACTION_FORWARD, ACTION_BACKWARD };
    for (int payload = 0; payload < PAYLOADS; payload++) {
        OrderRings n =
            order_rings(l->times, l->order, (StageAt){ l->p->rank, chunk }, kind[payload]);
        int at = ring_index(l->p, payload, chunk);
        if (n.in > 0) TRY(ring_make(l, &l->in[at], n.in, scratch));
        if (n.out > 0) TRY(ring_make(l, &l->out[at], n.out, scratch));
    }
    return OK;
}

/* Adds an event once. ACTION_WAITS is enough for all waits that lowering can produce, hence the
 * assert. */
void lower_wait(Action *a, int event)
{
    int i = 0;
    while (i < ACTION_WAITS && a->wait[i] >= 0 && a->wait[i] != event) i++;
    assert(i < ACTION_WAITS);
    a->wait[i] = event;
}

/* An action gets an event when something first waits for it. */
int lower_event(Program *p, int action)
{
    Action *a = &p->at[action];
    if (a->signal < 0) a->signal = p->events++;
    return a->signal;
}

static int append_action(Program *p, Action a)
{
    p->at[p->n] = a;
    return p->n++;
}

Status slots_make(const ScheduleShape *s, Arena *scratch, SlotTable *out)
{
    *out = (SlotTable){ .most = s->chunks * s->micros, .micros = s->micros };
    TRY(ARENA_NEW(scratch, out->most, &out->of));
    TRY(ARENA_NEW(scratch, out->most, &out->free));
    return ARENA_ZEROED(scratch, out->most, &out->had);
}

/* Prefers a free slot that has held this chunk and few others, as a slot is as large as the largest of its
 * chunks. Breaks ties by index. */
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

/* A whole or weight pass frees the slot: its input and weight gradients are then done. An input
 * pass keeps it. */
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

/* A pass while its actions are appended. */
typedef struct Part {
    const Pass *pass; /* NULL: there is none */
    const ChunkRow *row;
    StageAt from, to;
    Ring *in, *out; /* NULL: it has no input, or no output, of another chunk */
    int in_entry, out_entry, slot;
    int next, next_weight; /* the first phase without an action yet */
    int opening;           /* its first action, which takes its input from the entry */
    bool apart; /* one action for each layer, because each layer then reduces its gradients */
} Part;

/* Chooses the slot and both entries, which go round their rings. Two chunks on one rank share the
 * reader's ring. */
static Part begin_part(Lowering *l, const Pass *pass)
{
    Program *p = l->p;
    StageAt at = { p->rank, pass->chunk };
    int payload = payload_of(pass->kind);
    bool forward = pass->kind == ACTION_FORWARD;
    Part t = { .pass = pass,
               .row = &p->chunk[pass->chunk].row[forward ? ROW_FORWARD : ROW_BACKWARD],
               .from = order_source(p, at, pass),
               .to = order_target(p, at, pass),
               .in_entry = -1,
               .out_entry = -1,
               .slot = p->evaluates ? 0 : slots_pass(&l->slots, pass) };
    if (!forward && pass->kind != ACTION_BACKWARD_INPUT)
        t.apart = --l->left[pass->chunk] == 0 && t.to.rank < 0 &&
                  (l->p->shards.reduce || l->p->shards.sums);
    if (t.from.rank >= 0) {
        t.in = &l->in[ring_index(p, payload, pass->chunk)];
        t.in_entry = t.in->first + t.in->count++ % t.in->n;
    }
    if (t.to.rank < 0) return t;
    Ring *mine = &l->out[ring_index(p, payload, pass->chunk)];
    bool here = t.to.rank == p->rank;
    t.out = here ? &l->in[ring_index(p, payload, t.to.chunk)] : mine;
    t.out_entry = t.out->first + mine->count++ % t.out->n;
    return t;
}

/* Every transfer signals: its end is what the pass or the next writer of the entry waits for. */
static Action make_transfer(Program *p, ActionKind kind, const Pass *pass, int peer)
{
    Action a = action_make(kind);
    a.chunk = (short)pass->chunk;
    a.micro = pass->micro;
    a.peer = (short)peer;
    a.signal = p->events++;
    return a;
}

/* The first action of a pass reads the entry. If the input comes from another rank, a receive is put right
 * before it. */
static void read_input(Lowering *l, const Part *t, Action *a)
{
    a->in = t->in_entry;
    if (t->from.rank < 0 || t->from.rank == l->p->rank) return;
    bool forward = t->pass->kind == ACTION_FORWARD;
    ActionKind kind = forward ? ACTION_RECV_ACTIVATIONS : ACTION_RECV_GRADIENTS;
    Action recv = make_transfer(l->p, kind, t->pass, t->from.rank);
    int *user = &t->in->user[t->in_entry - t->in->first];
    recv.out = t->in_entry;
    lower_wait(&recv, *user);
    lower_wait(a, recv.signal);
    a->signal = *user = l->p->events++;
    (void)append_action(l->p, recv);
}

/* Puts the send after the last action of a pass, which is at `index`. */
static void send_output(Lowering *l, const Part *t, int index)
{
    bool forward = t->pass->kind == ACTION_FORWARD;
    ActionKind kind = forward ? ACTION_SEND_ACTIVATIONS : ACTION_SEND_GRADIENTS;
    Action send = make_transfer(l->p, kind, t->pass, t->to.rank);
    send.in = t->out_entry;
    lower_wait(&send, lower_event(l->p, index));
    t->out->user[t->out_entry - t->out->first] = send.signal;
    (void)append_action(l->p, send);
}

/* Makes the action wait for `other`, the last action of the other lane that used the same arena. Then its
 * results exist, and the memory that it read may be written. A lane that has waited for a later action
 * need not wait again. */
static void wait_for_lane(Lowering *l, Action *a, int other)
{
    if (other <= l->seen[a->lane]) return;
    lower_wait(a, lower_event(l->p, other));
    l->seen[a->lane] = other;
}

/* Rows that ranks of tp add up, norm and gather need the input gradients alone: so this runs beside the weight gradients
 * of the products before it. It makes nothing that these read. It takes memory of its own, as the layers of such a
 * backward alternate between two rings (run_layers.c); those of a phased one do not. */
static bool needs_inputs_alone(const Program *p, const Action *before, const Action *a)
{
    if (before->kind != ACTION_BACKWARD || a->kind != ACTION_BACKWARD) return false;
    if (before->micro != a->micro || before->chunk != a->chunk || a->lane != LANE_COMM)
        return false;
    if (p->phased && before->end != a->first) return false;
    const ChunkPhase *at = action_row(p, a)->at;
    for (int i = before->end; i < a->end; i++) {
        if (!at[i].tensor || at[i].recompute) return false;
    }
    return true;
}

/* Waits for the last action of the other lane. */
static void wait_for_other(Lowering *l, Action *a, int last)
{
    Program *p = l->p;
    if (last < 0 || !needs_inputs_alone(p, &p->at[last], a)) {
        wait_for_lane(l, a, last);
        return;
    }
    if (p->at[last].early < 0) p->at[last].early = p->events++;
    lower_wait(a, p->at[last].early);
}

static int *slot_last(const Lowering *l, int slot, int lane)
{
    return &l->slot_last[slot * LANE_COUNT + lane];
}

static void wait_beside(Lowering *l, const Part *t, Action *a, int before)
{
    if (l->p->at[t->opening].lane != a->lane) wait_for_lane(l, a, t->opening);
    wait_for_lane(l, a, before);
}

/* Appends phases [first, end) of the part, all on one lane, as one action. A phase that may overlap with the
 * exchange before it still waits for the first action of its pass: that brings the input, and takes memory
 * that the other lane may have used until then. And it waits for what that lane ran before the exchange: over
 * ranks of tp this makes the gradient that both read. */
static void append_range(Lowering *l, Part *t, ActionKind kind, int first, int end)
{
    Program *p = l->p;
    const ChunkPhase *phase = &t->row->at[first];
    bool weight = kind == ACTION_BACKWARD_WEIGHT, sends = t->to.rank >= 0 && t->to.rank != p->rank;
    Action a = action_make(kind);
    a.chunk = (short)t->pass->chunk;
    a.micro = t->pass->micro;
    a.slot = t->slot;
    a.apart = t->pass->kind != ACTION_FORWARD && t->pass->kind != ACTION_BACKWARD;
    a.first = (short)first;
    a.end = (short)end;
    a.lane = weight ? LANE_COMPUTE : (Lane)phase->lane;
    if (!weight) a.out = t->out_entry;
    int other = a.lane == LANE_COMPUTE ? LANE_COMM : LANE_COMPUTE;
    RingUse *use = &l->use[p->phased && kind != ACTION_FORWARD ? ROW_BACKWARD : ROW_FORWARD];
    bool beside = weight ? p->phased : phase->overlap_ok && first > 0;
    if (!beside)
        wait_for_other(l, &a, use->last[other]);
    else if (!weight)
        wait_beside(l, t, &a, use->before[other]);
    if (first == 0 && kind == ACTION_FORWARD) wait_for_lane(l, &a, *slot_last(l, t->slot, other));
    if (first == 0 && !weight) read_input(l, t, &a);
    bool ends = end == t->row->n && !weight;
    if (ends && sends) lower_wait(&a, t->out->user[t->out_entry - t->out->first]);
    int index = append_action(p, a);
    if (first == 0 && !weight) t->opening = index;
    use->before[a.lane] = use->last[a.lane];
    use->last[a.lane] = *slot_last(l, t->slot, a.lane) = index;
    if (ends && sends) send_output(l, t, index);
}

/* Does phase i gather rows over ranks of tp beside phase i + 1, which needs phase i - 1? That is then an action of its
 * own, to wait for. */
static bool runs_beside_next(const Part *t, int i)
{
    const ChunkPhase *at = t->row->at;
    return i + 1 < t->row->n && at[i].tensor && at[i + 1].overlap_ok;
}

/* Do phases i - 1 and i of a pass belong to different actions?
 * A split is needed where the lane changes, where rows of tp begin or end on the comm lane (needs_inputs_alone), where
 * only one of the phases may overlap or communicates, before an exchange that another phase overlaps, and where
 * another layer's weights begin if ranks share them. */
static bool splits_at(const Lowering *l, const Part *t, ActionKind kind, int i)
{
    const ChunkPhase *a = &t->row->at[i - 1], *b = &t->row->at[i];
    bool weight = kind == ACTION_BACKWARD_WEIGHT;
    bool rows = b->lane == LANE_COMM && (a->tensor != b->tensor || a->recompute != b->recompute);
    bool other = a->own != b->own || a->weights != b->weights;
    if ((l->p->shards.weights || l->p->shards.gradients) && other) return true;
    if (t->apart && a->own != b->own) return true;
    return !weight && (rows || a->lane != b->lane || a->communicates != b->communicates ||
                       a->overlap_ok != b->overlap_ok || runs_beside_next(t, i));
}

/* Joins neighbouring phases into one action as long as nothing separates them: fewer actions, fewer
 * events. */
static void append_phases(Lowering *l, Part *t, ActionKind kind, int first, int end)
{
    for (int i = first, begin = first; i < end; i++) {
        if (i + 1 < end && !splits_at(l, t, kind, i + 1)) continue;
        append_range(l, t, kind, begin, i + 1);
        begin = i + 1;
    }
}

/* Phases of this kind: forward, input or weight gradients. A whole backward has the last two. */
static bool pass_has(const Pass *p, ActionKind kind)
{
    return p != NULL && (p->kind == kind || (p->kind == ACTION_BACKWARD && kind != ACTION_FORWARD));
}

/* Appends the phases of one part of one block, from where the pass is. Weight gradients also take the parts
 * before it, which have none of their own. */
static void append_part(Lowering *l, Part *t, ActionKind kind, int block, int part)
{
    bool weight = kind == ACTION_BACKWARD_WEIGHT;
    int *next = weight ? &t->next_weight : &t->next, first = *next, end = first;
    const ChunkPhase *at = t->row->at;
    for (int i = first; i < t->row->n && at[i].block == block; i++) {
        bool before = weight && at[i].part > part;
        if (at[i].part != part && !before) break;
        end = i + 1;
    }
    *next = end;
    append_phases(l, t, kind, first, end);
}

/* Lowers one pass, or a pair of a forward and a backward part by part. Returns the number of passes. */
static int lower_parts(Lowering *l, const Pass *pass)
{
    Part part[2] = { 0 };
    int n = pass->paired ? 2 : 1, blocks = 0, of[2] = { 0 };
    for (int i = 0; i < n; i++) {
        int back = pass[i].kind != ACTION_FORWARD;
        part[back] = begin_part(l, &pass[i]);
        of[back] = l->p->chunk[pass[i].chunk].blocks;
        if (of[back] > blocks) blocks = of[back];
    }
    for (int i = 0; i < blocks; i++) {
        for (int k = 0; k < BLOCK_PHASES; k++) {
            const BlockPhase *x = &block_phases[k];
            int back = x->kind != ACTION_FORWARD;
            if (!pass_has(part[back].pass, x->kind)) continue;
            append_part(l, &part[back], x->kind, back ? of[1] - 1 - i : i, x->phase);
        }
    }
    return n;
}

/* A phased schedule alternates parts of two passes; all others append one pass after the other. */
static void lower_order(Lowering *l)
{
    const Order *o = l->order;
    if (l->p->phased) {
        for (int i = 0; i < o->n;) i += lower_parts(l, &o->at[i]);
        return;
    }
    for (int i = 0; i < o->n; i++) {
        Part t = begin_part(l, &o->at[i]);
        append_phases(l, &t, o->at[i].kind, 0, t.row->n);
    }
}

/* An upper bound of the actions of an order: each phase is one, with a transfer before and after the pass. */
static int actions_most(const Lowering *l)
{
    int n = 0;
    for (int i = 0; i < l->order->n; i++) {
        const Chunk *c = &l->p->chunk[l->order->at[i].chunk];
        n += 2 + c->row[ROW_FORWARD].n + 2 * c->row[ROW_BACKWARD].n;
    }
    return n;
}

static Status lower_make(Lowering *l, const ScheduleShape *s, Arena *scratch)
{
    Program *p = l->p;
    int rings = PAYLOADS * p->chunks;
    TRY(ARENA_NEW(scratch, actions_most(l), &p->at));
    TRY(ARENA_ZEROED(scratch, 2 * rings, &l->in));
    l->out = l->in + rings;
    TRY(slots_make(s, scratch, &l->slots));
    TRY(ARENA_ZEROED(scratch, p->chunks, &l->left));
    for (int i = 0; i < l->order->n; i++) {
        const Pass *x = &l->order->at[i];
        l->left[x->chunk] += x->kind == ACTION_BACKWARD || x->kind == ACTION_BACKWARD_WEIGHT;
    }
    TRY(ARENA_NEW(scratch, l->slots.most * LANE_COUNT, &l->slot_last));
    for (int i = 0; i < l->slots.most * LANE_COUNT; i++) l->slot_last[i] = -1;
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        l->seen[lane] = -1;
        for (int row = 0; row < CHUNK_ROWS; row++)
            l->use[row].last[lane] = l->use[row].before[lane] = -1;
    }
    for (int c = 0; c < p->chunks; c++) TRY(chunk_rings(l, c, scratch));
    return OK;
}

static Status lower_rank(const ScheduleShape *s, const Order *order, const OrderTimes *times,
                         Program *p, Arena *a, Arena *scratch)
{
    ArenaMark mark = arena_mark(scratch);
    Lowering l = { .order = order, .times = times, .p = p };
    TRY(lower_make(&l, s, scratch));
    lower_order(&l);
    p->slots = p->evaluates ? 1 : l.slots.n;
    TRY(lower_shards(p, a, scratch));
    arena_release(scratch, mark);
    return OK;
}

/* The chunks of a rank: those of the stages that it holds, or, without a model, chunks of plain blocks. */
static Status make_chunks(const ScheduleShape *s, Program *p, Arena *a)
{
    Chunk *chunk = NULL;
    TRY(ARENA_NEW(a, p->chunks, &chunk));
    for (int c = 0; c < p->chunks; c++) {
        if (s->chunk != NULL)
            chunk[c] = s->chunk[hop_of(p, c, c)];
        else
            TRY(chunk_of_blocks(p->phased ? s->blocks : 0, a, &chunk[c]));
    }
    p->chunk = chunk;
    return OK;
}

Status schedule_lower(const Program *like, const ScheduleShape *s, const Order *ranks, Arena *a,
                      Arena *scratch, Pipeline *out)
{
    Pipeline pipeline = { .stages = s->stages };
    TRY(ARENA_ZEROED(a, s->stages, &pipeline.rank));
    OrderTimes times = { 0 };
    TRY(order_run(like, s, ranks, scratch, &times));
    for (int r = 0; r < s->stages; r++) {
        Program *p = &pipeline.rank[r];
        *p = *like;
        p->rank = r;
        TRY(make_chunks(s, p, a));
        TRY(lower_rank(s, &ranks[r], &times, p, a, scratch));
    }
    *out = pipeline;
    return OK;
}
