/* posted: when what holds multiprocessors in a simulated step begins to, and what the step's compute
 * lane waits for. */
#ifndef HARNESS_POSTED_H
#define HARNESS_POSTED_H

#include "harness/test.h"

#include "bench/idle.h"
#include "engine/schedule/simulate.h"

#include <math.h>

/* An end of a transfer is posted when the one before it in its queue has ended and its events have
 * come, whenever the other end is; all else when it starts. */
static inline double posted(const Program *p, const SimSpan *span, int action)
{
    const Action *a = &p->at[action];
    double at = 0;
    if (!action_is_transfer(a->kind)) return span[action].start;
    for (int i = 0; i < p->n; i++) {
        bool before = i < action && queue_of(p, &p->at[i]) == queue_of(p, a);
        for (int k = 0; k < ACTION_WAITS; k++)
            before |= a->wait[k] >= 0 && a->wait[k] == p->at[i].signal;
        if (before) at = fmax(at, span[i].end);
    }
    return at;
}

/* What rank r's compute lane does and what it waits for are the whole of its step: simulated lanes have
 * no other gaps. */
static inline void idle_in(const Pipeline *p, const Simulation *sim, int r, Arena *a,
                           double idle_s[TRAFFICS])
{
    const Program *x = &p->rank[r];
    ActionSpan *span = NULL;
    double end = 0, sum = sim->rank[r].busy;
    CHECK_OK(ARENA_NEW(a, x->n, &span));
    for (int i = 0; i < x->n; i++) {
        const SimSpan *s = sim->rank[r].span;
        span[i] = (ActionSpan){ posted(x, s, i), s[i].end };
        end = fmax(end, s[i].end);
    }
    idle_of(x, span, true, idle_s);
    for (int k = 0; k < TRAFFICS; k++) sum += idle_s[k];
    CHECK_NEAR(sum, end, 1e-9 * end);
}

#endif
