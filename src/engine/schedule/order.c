/* order: writes orders in the letters of order_play, runs them once, and counts the entries that their
 * transfers need. */
#include "engine/schedule/order.h"

#include <math.h>
#include <string.h>

/* ---- written by hand ---- */

/* The pass that a letter and a chunk stand for. 'w' with chunk '.' takes the oldest input gradients
 * whose weight gradients have not run. Other kinds with '.' count micro-batches in groups of p for
 * each chunk. */
static Pass next_pass(Hand *h, char letter, char chunk)
{
    static const char letters[] = "fFbiw";
    static const ActionKind kinds[] = { ACTION_FORWARD, ACTION_FORWARD, ACTION_BACKWARD,
                                        ACTION_BACKWARD_INPUT, ACTION_BACKWARD_WEIGHT };
    int p = h->shape->stages, v = h->shape->chunks, c = chunk == '1' ? !h->first : h->first;
    Pass x = { .kind = kinds[strchr(letters, letter) - letters], .paired = letter == 'F' };
    bool forward = x.kind == ACTION_FORWARD, weight = x.kind == ACTION_BACKWARD_WEIGHT;
    if (weight && chunk == '.') {
        while (h->order->at[h->put_off].kind != ACTION_BACKWARD_INPUT) h->put_off++;
        x = h->order->at[h->put_off++];
        x.kind = ACTION_BACKWARD_WEIGHT;
        return x;
    }
    int i = h->next[forward ? 0 : weight ? 2 : 1][c]++;
    x.chunk = (short)c;
    x.micro = h->two_ways ? 2 * i + c : i;
    if (chunk == '.') {
        x.chunk = (short)(forward ? i % (p * v) / p : v - 1 - i % (p * v) / p);
        x.micro = i / (p * v) * p + i % p;
    }
    return x;
}

void order_play(Hand *h, int times, const char *passes)
{
    for (int i = 0; i < times; i++) {
        for (const char *at = passes; *at != '\0'; at += 2) {
            Pass p = next_pass(h, at[0], at[1]);
            if (p.micro < h->shape->micros) h->order->at[h->order->n++] = p;
        }
    }
}

void order_by_hand(const ScheduleShape *s, HandOrder *write, Order *ranks)
{
    for (int r = 0; r < s->stages; r++) {
        ranks[r].n = 0;
        write(s, r, &(Hand){ .shape = s, .order = &ranks[r] });
    }
}

/* ---- run ---- */

/* Index of (rank, chunk, micro) in OrderTimes.forward and .input. */
static int index_of(const Program *like, StageAt at, int micro)
{
    return (at.rank * like->chunks + at.chunk) * like->micros + micro;
}

/* The stage `by` hops further in the direction of the pass; rank -1 if there is none. Weight
 * gradients have neither source nor target. */
static StageAt neighbour_hop(const Program *like, StageAt at, const Pass *p, int by)
{
    Program here = *like;
    here.rank = at.rank;
    int hop = hop_of(&here, at.chunk, p->micro) + (p->kind == ACTION_FORWARD ? by : -by);
    if (p->kind == ACTION_BACKWARD_WEIGHT || hop < 0 || hop >= hop_count(&here))
        return (StageAt){ -1, -1 };
    return hop_stage(&here, p->micro, hop);
}

StageAt order_source(const Program *like, StageAt at, const Pass *p)
{
    return neighbour_hop(like, at, p, -1);
}

StageAt order_target(const Program *like, StageAt at, const Pass *p)
{
    return neighbour_hop(like, at, p, 1);
}

/* A whole backward takes as long as both of its parts. */
static double pass_duration(const ScheduleShape *s, ActionKind kind)
{
    switch (kind) {
    case ACTION_FORWARD: return s->forward;
    case ACTION_BACKWARD_INPUT: return s->input;
    case ACTION_BACKWARD_WEIGHT: return s->weight;
    default: return s->input + s->weight;
    }
}

/* When the input of a forward or backward exists; NaN: not made yet. */
static double arrives(const OrderTimes *t, StageAt at, const Pass *p)
{
    int back = p->kind != ACTION_FORWARD;
    int source = t->source[2 * (at.rank * t->like->chunks + at.chunk) + back];
    return source < 0 || p->kind == ACTION_BACKWARD_WEIGHT ? 0 : t->forward[source + p->micro];
}

/* Runs the next pass of a rank if its input exists, or a pair if both inputs exist. Returns the number of passes
 * that ran. */
static int run_next(const ScheduleShape *s, const Order *o, OrderTimes *t, int rank, int i,
                    double *now)
{
    int n = o->at[i].paired ? 2 : 1;
    double when = *now;
    for (const Pass *p = &o->at[i]; p < &o->at[i + n]; p++) {
        double there = arrives(t, (StageAt){ rank, p->chunk }, p);
        if (isnan(there)) return 0;
        when = there > when ? there : when;
    }
    for (int k = i; k < i + n; k++) when += pass_duration(s, o->at[k].kind);
    for (const Pass *p = &o->at[i]; p < &o->at[i + n]; p++) {
        int at = index_of(t->like, (StageAt){ rank, p->chunk }, p->micro);
        if (p->kind == ACTION_FORWARD)
            t->forward[at] = when;
        else if (p->kind != ACTION_BACKWARD_WEIGHT)
            t->input[at] = when;
    }
    t->step = when > t->step ? when : t->step;
    *now = when;
    return n;
}

/* Index in OrderTimes.forward of the pass that gives the input of micro-batch 0; -1: none. */
static int source_of(const Program *like, StageAt at, ActionKind kind)
{
    Pass first = { .kind = kind, .chunk = (short)at.chunk, .micro = at.chunk };
    StageAt from = order_source(like, at, &first);
    int n = like->stages * like->chunks * like->micros;
    if (kind == ACTION_FORWARD) return from.rank < 0 ? -1 : index_of(like, from, 0);
    return from.rank < 0 ? index_of(like, at, 0) : n + index_of(like, from, 0);
}

/* Allocates times in which nothing has run yet. One array holds the ends of forwards and then those of input
 * gradients. So one index names a pass of either kind, and `source` needs no kind. */
static Status times_make(const Program *like, Arena *scratch, OrderTimes *out)
{
    int places = like->stages * like->chunks;
    size_t n = (size_t)places * (size_t)like->micros;
    *out = (OrderTimes){ .like = like };
    TRY(ARENA_NEW(scratch, 2 * n, &out->forward));
    TRY(ARENA_NEW(scratch, 2 * places, &out->source));
    out->input = out->forward + n;
    for (size_t i = 0; i < 2 * n; i++) out->forward[i] = NAN;
    for (int i = 0; i < 2 * places; i++) {
        StageAt at = { i / 2 / like->chunks, i / 2 % like->chunks };
        out->source[i] = source_of(like, at, i % 2 == 0 ? ACTION_FORWARD : ACTION_BACKWARD);
    }
    return OK;
}

/* Runs each rank as far as its inputs allow, round by round, until no rank moves. A rank that has
 * passes left then waits for an input that nobody can make: the orders deadlock. */
Status order_run(const Program *like, const ScheduleShape *s, const Order *ranks, Arena *scratch,
                 OrderTimes *out)
{
    OrderTimes t;
    double *now = NULL;
    int *next = NULL, passes = 0;
    for (int r = 0; r < s->stages; r++) passes += ranks[r].n;
    TRY(times_make(like, scratch, &t));
    TRY(ARENA_NEW(scratch, passes, &t.rank));
    TRY(ARENA_ZEROED(scratch, s->stages, &now));
    TRY(ARENA_ZEROED(scratch, s->stages, &next));
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->stages; r++) {
            for (int ran = 1; ran > 0 && next[r] < ranks[r].n; next[r] += ran) {
                ran = run_next(s, &ranks[r], &t, r, next[r], &now[r]);
                moved = moved || ran > 0;
                for (int i = 0; i < ran; i++) t.rank[t.ran++] = r;
            }
        }
    }
    for (int r = 0; r < s->stages; r++) {
        if (next[r] == ranks[r].n) continue;
        const Pass *p = &ranks[r].at[next[r]];
        return FAIL(ERR_ARG,
                    "schedule: rank %d waits forever before %s of micro-batch %d, chunk %d", r,
                    action_name(p->kind), p->micro, p->chunk);
    }
    *out = t;
    return OK;
}

/* ---- rings ---- */

/* Does the pass read what arrives over this link: activations (forward) or gradients of this
 * chunk? */
static bool uses_link(const Pass *p, StageAt at, bool forward)
{
    return p->chunk == at.chunk && p->kind != ACTION_BACKWARD_WEIGHT &&
           (p->kind == ACTION_FORWARD) == forward;
}

/* The most inputs of one link that have been made but not yet used at one moment. They are made and used in the
 * same order, so the oldest one only moves forward, and one walk is enough. */
static int most_in_flight(const OrderTimes *t, const Order *o, StageAt at, bool forward)
{
    int most = 0, n = 0, oldest = 0;
    const double *ended = (forward ? t->forward : t->input) + index_of(t->like, at, 0);
    for (int i = 0; i < o->n; i++) {
        const Pass *p = &o->at[i];
        if (!uses_link(p, at, forward)) continue;
        double made = arrives(t, at, p);
        for (; oldest < i; oldest++) {
            const Pass *q = &o->at[oldest];
            if (!uses_link(q, at, forward)) continue;
            if (ended[q->micro] > made) break;
            n--;
        }
        if (++n > most) most = n;
    }
    return most;
}

/* One entry more than are ever in flight: a receive can begin while a pass still reads the oldest.
 * A sender needs SEND_ENTRIES. Neighbours on one rank share the reader's entries. */
OrderRings order_rings(const OrderTimes *t, const Order *o, StageAt at, ActionKind kind)
{
    Pass p = { .kind = kind, .chunk = (short)at.chunk, .micro = at.chunk };
    StageAt from = order_source(t->like, at, &p), to = order_target(t->like, at, &p);
    OrderRings n = { 0 };
    if (from.rank >= 0)
        n.in = most_in_flight(t, o, at, kind == ACTION_FORWARD) + (from.rank != at.rank);
    if (to.rank >= 0 && to.rank != at.rank) n.out = SEND_ENTRIES;
    return n;
}
