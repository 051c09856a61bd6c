#include "schedule/order.h"

#include <math.h>

void order_add(Order *o, ActionKind kind, int chunk, int micro)
{
    o->at[o->n++] = (Pass){ .kind = kind, .chunk = chunk, .micro = micro };
}

int order_index(const Program *like, Place at, int micro)
{
    return (at.rank * like->chunks + at.chunk) * like->micros + micro;
}

static Place along(const Program *like, Place at, int micro, int by)
{
    Program here = *like;
    here.rank = at.rank;
    int hop = place_hop(&here, at.chunk, micro) + by;
    if (hop < 0 || hop >= place_hops(&here)) return (Place){ -1, -1 };
    return place_at(&here, micro, hop);
}

Place order_source(const Program *like, Place at, const Pass *p)
{
    if (p->kind == ACTION_BACKWARD_WEIGHT) return (Place){ -1, -1 };
    return along(like, at, p->micro, p->kind == ACTION_FORWARD ? -1 : 1);
}

Place order_target(const Program *like, Place at, const Pass *p)
{
    if (p->kind == ACTION_BACKWARD_WEIGHT) return (Place){ -1, -1 };
    return along(like, at, p->micro, p->kind == ACTION_FORWARD ? 1 : -1);
}

static double duration(const ScheduleShape *s, ActionKind kind)
{
    switch (kind) {
    case ACTION_FORWARD: return s->forward;
    case ACTION_BACKWARD_INPUT: return s->input;
    case ACTION_BACKWARD_WEIGHT: return s->weight;
    default: return s->input + s->weight;
    }
}

/* When the input of a pass is there: NaN if nobody has made it yet. */
static double input_at(const OrderTimes *t, Place at, const Pass *p)
{
    Place from = order_source(t->like, at, p);
    if (from.rank < 0) return 0;
    return (p->kind == ACTION_FORWARD ? t->forward
                                      : t->input)[order_index(t->like, from, p->micro)];
}

static void ends(OrderTimes *t, Place at, const Pass *p, double when)
{
    int i = order_index(t->like, at, p->micro);
    if (p->kind == ACTION_FORWARD)
        t->forward[i] = when;
    else if (p->kind != ACTION_BACKWARD_WEIGHT)
        t->input[i] = when;
    if (when > t->step) t->step = when;
}

/* Runs the next pass of a rank if its input is there, or a pair if that of both is. Returns how
 * many. */
static int run_next(const ScheduleShape *s, const Order *o, OrderTimes *t, int rank, int i,
                    double *now)
{
    int n = o->at[i].paired ? 2 : 1;
    double when = *now;
    for (int k = i; k < i + n; k++) {
        double there = input_at(t, (Place){ rank, o->at[k].chunk }, &o->at[k]);
        if (isnan(there)) return 0;
        if (there > when) when = there;
    }
    for (int k = i; k < i + n; k++) when += duration(s, o->at[k].kind);
    for (int k = i; k < i + n; k++) ends(t, (Place){ rank, o->at[k].chunk }, &o->at[k], when);
    *now = when;
    return n;
}

static Status new_times(const Program *like, Arena *a, double **out)
{
    void *memory = NULL;
    size_t n = (size_t)like->stages * (size_t)like->chunks * (size_t)like->micros;
    TRY(arena_alloc(a, n * sizeof(double), &memory));
    *out = memory;
    for (size_t i = 0; i < n; i++) (*out)[i] = NAN;
    return OK;
}

Status order_times(const Program *like, Arena *scratch, OrderTimes *out)
{
    *out = (OrderTimes){ .like = like };
    TRY(new_times(like, scratch, &out->forward));
    return new_times(like, scratch, &out->input);
}

Status order_run(const Program *like, const ScheduleShape *s, const Order *ranks, Arena *scratch,
                 OrderTimes *out)
{
    OrderTimes t;
    void *memory = NULL;
    TRY(order_times(like, scratch, &t));
    TRY(arena_alloc_zero(scratch, (size_t)s->stages * sizeof(double), &memory));
    double *now = memory;
    TRY(arena_alloc_zero(scratch, (size_t)s->stages * sizeof(int), &memory));
    int *next = memory;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->stages; r++) {
            for (int ran = 1; ran > 0 && next[r] < ranks[r].n; next[r] += ran) {
                ran = run_next(s, &ranks[r], &t, r, next[r], &now[r]);
                moved = moved || ran > 0;
            }
        }
    }
    for (int r = 0; r < s->stages; r++) {
        if (next[r] == ranks[r].n) continue;
        const Pass *p = &ranks[r].at[next[r]];
        return FAIL(ERR_ARG,
                    "schedule: rank %d waits for ever before %s of micro-batch %d, chunk %d", r,
                    action_name(p->kind), p->micro, p->chunk);
    }
    *out = t;
    return OK;
}
