#include "schedule/action.h"

static void add(Program *p, ActionKind kind, int micro)
{
    Action a = action_make(kind);
    a.micro = micro;
    if (micro >= 0) a.chunk = 0, a.slot = 0;
    p->at[p->n++] = a;
}

Status schedule_accumulate(int micros, Arena *a, Program *out)
{
    Program p = { .micros = micros, .chunks = 1, .slots = 1, .stages = 1 };
    TRY(ARENA_NEW(a, 2 * micros + 3, &p.at));
    add(&p, ACTION_ZERO_GRADS, -1);
    for (int m = 0; m < micros; m++) {
        add(&p, ACTION_FORWARD, m);
        add(&p, ACTION_BACKWARD, m);
    }
    add(&p, ACTION_REDUCE_GRADS, -1);
    add(&p, ACTION_UPDATE, -1);
    *out = p;
    return OK;
}
