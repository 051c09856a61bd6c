/* idle: attributes gaps of the compute lane to the traffic that they waited for (idle.h). It needs only spans,
 * so it serves measured steps and simulated ones. */
#include "bench/idle.h"

#include <math.h>
#include <string.h>

/* Odd parts of a block are dispatch and combine. A sum of gradients is traffic between stages only if no ranks
 * share layers otherwise. */
static Traffic traffic_of(const Program *p, const Action *a)
{
    if (action_is_transfer(a->kind)) return TRAFFIC_PP;
    if (action_is_pass(a->kind)) {
        const ChunkPhase *x = &action_row(p, a)->at[a->first];
        if (x->tensor) return TRAFFIC_TP;
        return x->part % 2 == 1 ? TRAFFIC_EP : TRAFFIC_CP;
    }
    bool stages = a->kind == ACTION_SUM_GRADS && !p->shards.reduce && p->stages > 1;
    return stages ? TRAFFIC_PP : TRAFFIC_ZERO;
}

static bool same_queue(const Program *p, const Action *a, const Action *b, bool lanes)
{
    if (!lanes && !action_is_transfer(a->kind)) return !action_is_transfer(b->kind);
    return queue_of(p, a) == queue_of(p, b);
}

/* Of all actions that `action` waited for, the one that ended last; -1: none. action n is the end of the step. */
static int last_awaited(const Program *p, const ActionSpan *span, int action, bool lanes)
{
    const Action *a = action < p->n ? &p->at[action] : NULL;
    bool queue = false;
    int last = -1;
    for (int i = action - 1; i >= 0; i--) {
        bool next = a == NULL || (!queue && same_queue(p, a, &p->at[i], lanes));
        queue |= next;
        for (int k = 0; a != NULL && k < ACTION_WAITS; k++)
            next |=
                a->wait[k] >= 0 && (a->wait[k] == p->at[i].signal || a->wait[k] == p->at[i].early);
        if (next && (last < 0 || span[i].end_s > span[last].end_s)) last = i;
    }
    return last;
}

void idle_of(const Program *p, const ActionSpan *span, bool lanes, double idle_s[TRAFFICS])
{
    double done = INFINITY; /* the compute lane's last action before this one */
    memset(idle_s, 0, TRAFFICS * sizeof *idle_s);
    for (int i = 0; i <= p->n; i++) {
        if (i < p->n && p->at[i].lane != LANE_COMPUTE) continue;
        double until = i < p->n ? span[i].start_s : (double)INFINITY;
        int at = until > done ? last_awaited(p, span, i, lanes) : -1;
        for (; at >= 0 && p->at[at].lane != LANE_COMPUTE && until > done;
             at = last_awaited(p, span, at, lanes)) {
            double from = fmax(done, span[at].start_s);
            idle_s[traffic_of(p, &p->at[at])] += fmax(0, fmin(until, span[at].end_s) - from);
            until = from;
        }
        if (i < p->n) done = span[i].end_s;
    }
}
