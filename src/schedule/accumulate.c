#include "schedule/action.h"

static Action of_micro(ActionKind kind, int micro)
{
    Action a = action_make(kind);
    a.micro = micro;
    a.chunk = 0;
    a.slot = 0;
    return a;
}

Status schedule_accumulate(int micros, Arena *a, Program *out)
{
    void *memory = NULL;
    TRY(arena_alloc(a, (size_t)(2 * micros + 3) * sizeof(Action), &memory));
    Program p = { .at = memory, .micros = micros, .chunks = 1, .slots = 1, .stages = 1 };
    p.at[p.n++] = action_make(ACTION_ZERO_GRADS);
    for (int m = 0; m < micros; m++) {
        p.at[p.n++] = of_micro(ACTION_FORWARD, m);
        p.at[p.n++] = of_micro(ACTION_BACKWARD, m);
    }
    p.at[p.n++] = action_make(ACTION_REDUCE_GRADS);
    p.at[p.n++] = action_make(ACTION_UPDATE);
    *out = p;
    return OK;
}
