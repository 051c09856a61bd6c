#include "schedule/action.h"

#include <stdbool.h>

const char *action_name(ActionKind kind)
{
    static const char *const names[ACTION_KIND_COUNT] = {
        [ACTION_ZERO_GRADS] = "zero gradients",
        [ACTION_FORWARD] = "forward",
        [ACTION_BACKWARD] = "backward",
        [ACTION_REDUCE_GRADS] = "reduce gradients",
        [ACTION_UPDATE] = "update",
    };
    return names[kind];
}

enum { NOT_RUN, RAN_FORWARD, RAN_BACKWARD };

typedef struct Progress {
    char *done;  /* by (micro, chunk) */
    int *holder; /* by slot: (micro, chunk) number that is in it, -1 free */
    bool zeroed, reduced, updated;
} Progress;

static Status check_forward(const Program *p, Progress *s, const Action *a, int i)
{
    int place = a->micro * p->chunks + a->chunk;
    if (s->done[place] != NOT_RUN) {
        return FAIL(ERR_ARG, "program action %d: micro-batch %d goes forward twice on chunk %d", i,
                    a->micro, a->chunk);
    }
    if (a->chunk > 0 && s->done[place - 1] == NOT_RUN) {
        return FAIL(ERR_ARG, "program action %d: micro-batch %d is on chunk %d before chunk %d", i,
                    a->micro, a->chunk, a->chunk - 1);
    }
    if (s->holder[a->slot] >= 0) {
        return FAIL(ERR_ARG, "program action %d: slot %d still holds micro-batch %d", i, a->slot,
                    s->holder[a->slot] / p->chunks);
    }
    s->done[place] = RAN_FORWARD;
    s->holder[a->slot] = place;
    return OK;
}

static Status check_backward(const Program *p, Progress *s, const Action *a, int i)
{
    int place = a->micro * p->chunks + a->chunk;
    if (!s->zeroed || s->reduced) {
        return FAIL(ERR_ARG,
                    "program action %d: backward of micro-batch %d outside of zero and "
                    "reduce",
                    i, a->micro);
    }
    if (s->done[place] != RAN_FORWARD || s->holder[a->slot] != place) {
        return FAIL(ERR_ARG, "program action %d: slot %d does not hold micro-batch %d, chunk %d", i,
                    a->slot, a->micro, a->chunk);
    }
    s->done[place] = RAN_BACKWARD;
    s->holder[a->slot] = -1;
    return OK;
}

static Status check_action(const Program *p, Progress *s, int i)
{
    const Action *a = &p->at[i];
    bool micro = a->kind == ACTION_FORWARD || a->kind == ACTION_BACKWARD;
    if (micro && (a->micro < 0 || a->micro >= p->micros || a->chunk < 0 || a->chunk >= p->chunks ||
                  a->slot < 0 || a->slot >= p->slots)) {
        return FAIL(ERR_ARG, "program action %d: micro-batch %d, chunk %d, slot %d of %d, %d, %d",
                    i, a->micro, a->chunk, a->slot, p->micros, p->chunks, p->slots);
    }
    switch (a->kind) {
    case ACTION_ZERO_GRADS: s->zeroed = true; return OK;
    case ACTION_FORWARD: return check_forward(p, s, a, i);
    case ACTION_BACKWARD: return check_backward(p, s, a, i);
    case ACTION_REDUCE_GRADS: s->reduced = true; return OK;
    case ACTION_UPDATE:
        if (!s->reduced) return FAIL(ERR_ARG, "program action %d: update before reduce", i);
        s->updated = true;
        return OK;
    case ACTION_KIND_COUNT: break;
    }
    return FAIL(ERR_ARG, "program action %d: unknown kind %d", i, (int)a->kind);
}

Status schedule_check(const Program *p, Arena *scratch)
{
    int places = p->micros * p->chunks;
    Progress s = { 0 };
    void *memory = NULL;
    TRY(arena_alloc_zero(scratch, (size_t)places, &memory));
    s.done = memory;
    TRY(arena_alloc(scratch, (size_t)p->slots * sizeof(int), &memory));
    s.holder = memory;
    for (int i = 0; i < p->slots; i++) s.holder[i] = -1;

    for (int i = 0; i < p->n; i++) TRY(check_action(p, &s, i));
    for (int i = 0; i < places; i++) {
        if (s.done[i] != RAN_BACKWARD) {
            return FAIL(ERR_ARG, "program: micro-batch %d never goes backward on chunk %d",
                        i / p->chunks, i % p->chunks);
        }
    }
    if (!s.updated) return FAIL(ERR_ARG, "program: there is no update");
    return OK;
}
