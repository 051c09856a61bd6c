/* slots: walks a program to find the slots, and hands out arenas of a pool. */
#include "engine/step/slots.h"

bool program_splits(const Program *p)
{
    for (int i = 0; i < p->n; i++) {
        if (p->at[i].apart) return true;
    }
    return false;
}

Arena *pool_take(ArenaPool *p)
{
    int i = 0;
    while (p->taken[i]) i++;
    p->taken[i] = true;
    return &p->at[i];
}

void pool_give(ArenaPool *p, Arena *a)
{
    arena_release(a, (ArenaMark){ 0 });
    p->taken[a - p->at] = false;
}

static void raise_bytes(size_t *bytes, size_t need)
{
    if (need > *bytes) *bytes = need;
}

/* Walks the program as the engine will. An arena must fit the largest chunk that it is used for. Slot 0 also
 * serves evaluations. */
Status slot_sizes(const Program *p, const EnginePlan *plan, Arena *a, SlotSizes *out)
{
    SlotSizes s = { .n = { p->slots, 0 } };
    ArenaPool pool = { 0 };
    Arena **mine = NULL;
    for (int part = 0; part < SLOT_PARTS; part++) TRY(ARENA_ZEROED(a, p->slots, &s.bytes[part]));
    TRY(ARENA_ZEROED(a, p->slots, &s.pool));
    TRY(ARENA_ZEROED(a, p->slots, &pool.at));
    TRY(ARENA_ZEROED(a, p->slots, &pool.taken));
    TRY(ARENA_NEW(a, p->slots, &mine));
    s.bytes[SLOT_KEEP][0] = plan->eval_bytes;
    for (int i = 0; i < p->n; i++) {
        const Action *at = &p->at[i];
        if (at->slot < 0) continue;
        if (at->kind != ACTION_FORWARD)
            raise_bytes(&s.bytes[SLOT_KEEP][at->slot],
                        at->apart ? plan->split_keep[at->chunk]
                                  : plan->chunk_bytes[SLOT_KEEP][at->chunk]);
        raise_bytes(&s.pool[at->slot], plan->pool_of_chunk[at->chunk]);
        /* The same take and give as run_layers.c does, so the numbers of arenas are the same. */
        if (at->apart && at->kind == ACTION_BACKWARD_INPUT && at->first == 0) {
            mine[at->slot] = pool_take(&pool);
            int taken = (int)(mine[at->slot] - pool.at);
            if (taken >= s.n[SLOT_GRADS]) s.n[SLOT_GRADS] = taken + 1;
            raise_bytes(&s.bytes[SLOT_GRADS][taken], plan->chunk_bytes[SLOT_GRADS][at->chunk]);
        }
        if (at->apart && at->kind == ACTION_BACKWARD_WEIGHT && at->end == action_row(p, at)->n)
            pool_give(&pool, mine[at->slot]);
    }
    *out = s;
    return OK;
}

/* A slot gets the most that any list asks of its number. */
Status slot_sizes_all(const EngineMode *w, const EnginePlan *plan, Arena *a, SlotSizes *out)
{
    SlotSizes all = { .n = { 0 } }, one;
    int slots = 0;
    for (int l = 0; l < w->n_steps; l++)
        if (w->step[l].program.slots > slots) slots = w->step[l].program.slots;
    for (int part = 0; part < SLOT_PARTS; part++) TRY(ARENA_ZEROED(a, slots, &all.bytes[part]));
    TRY(ARENA_ZEROED(a, slots, &all.pool));
    for (int l = 0; l < w->n_steps; l++) {
        TRY(slot_sizes(&w->step[l].program, plan, a, &one));
        for (int part = 0; part < SLOT_PARTS; part++) {
            if (one.n[part] > all.n[part]) all.n[part] = one.n[part];
            for (int i = 0; i < one.n[part]; i++)
                raise_bytes(&all.bytes[part][i], one.bytes[part][i]);
        }
        for (int i = 0; i < one.n[SLOT_KEEP]; i++) raise_bytes(&all.pool[i], one.pool[i]);
    }
    *out = all;
    return OK;
}
