/* slots: walks a program to find the slots, and hands out arenas of a pool. */
#include "train/slots.h"

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

/* Lists of other sizes number their slots alike, so a slot gets the most that any list asks of its
 * number. */
Status slot_sizes_all(const EngineMode *w, const EnginePlan *plan, Arena *a, SlotSizes *out)
{
    TRY(slot_sizes(&w->step->program, plan, a, out));
    for (int l = 1; l < w->n_steps; l++) {
        SlotSizes most, less = *out;
        TRY(slot_sizes(&w->step[l].program, plan, a, &most));
        if (less.n[SLOT_KEEP] > most.n[SLOT_KEEP]) {
            size_t *pool = most.pool;
            most.pool = less.pool, less.pool = pool;
        }
        for (int part = 0; part < SLOT_PARTS; part++) {
            if (less.n[part] > most.n[part]) {
                size_t *bytes = most.bytes[part];
                int n = most.n[part];
                most.bytes[part] = less.bytes[part], less.bytes[part] = bytes;
                most.n[part] = less.n[part], less.n[part] = n;
            }
            for (int i = 0; i < less.n[part]; i++)
                raise_bytes(&most.bytes[part][i], less.bytes[part][i]);
        }
        for (int i = 0; i < less.n[SLOT_KEEP]; i++) raise_bytes(&most.pool[i], less.pool[i]);
        *out = most;
    }
    return OK;
}
