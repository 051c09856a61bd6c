/* posted: when what holds multiprocessors in a simulated step begins to. */
#ifndef HARNESS_POSTED_H
#define HARNESS_POSTED_H

#include "schedule/simulate.h"

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

#endif
