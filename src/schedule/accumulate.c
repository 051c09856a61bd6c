#include "schedule/action.h"

static Action action(ActionKind kind, int micro)
{
    return (Action){ .kind = kind,
                     .lane = LANE_COMPUTE,
                     .phase = -1,
                     .peer = -1,
                     .micro = micro,
                     .wait = { -1, -1, -1 },
                     .signal = -1 };
}

Status schedule_accumulate(int micros, Arena *a, Program *out)
{
    void *memory = NULL;
    TRY(arena_alloc(a, (size_t)(2 * micros + 3) * sizeof(Action), &memory));
    Program p = { .at = memory, .micros = micros, .chunks = 1, .slots = 1 };
    p.at[p.n++] = action(ACTION_ZERO_GRADS, -1);
    for (int m = 0; m < micros; m++) {
        p.at[p.n++] = action(ACTION_FORWARD, m);
        p.at[p.n++] = action(ACTION_BACKWARD, m);
    }
    p.at[p.n++] = action(ACTION_REDUCE_GRADS, -1);
    p.at[p.n++] = action(ACTION_UPDATE, -1);
    *out = p;
    return OK;
}
