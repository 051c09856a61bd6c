/* Slots of a mode whose steps have several sizes (train.batch_ramp): each is large enough for the list of any
 * size, and a few micro-batches may ask more of a slot than many do. */
#include "engine/schedule/pipelines.h"
#include "engine/step/slots.h"

enum { STAGES = 4, MANY = 16, FEW = 4 };

static Arena room, temporary;

/* What chunks keep differs, and so does what a pass leaves for its weight gradients. */
static EnginePlan plan_of_chunks(void)
{
    EnginePlan p = { .eval_bytes = 1 };
    for (int c = 0; c < SCHEDULE_CHUNKS_MAX; c++) {
        p.chunk_bytes[SLOT_KEEP][c] = 1000 + 100 * (size_t)c;
        p.chunk_bytes[SLOT_GRADS][c] = 10 + 5 * (size_t)c;
        p.split_keep[c] = 2000 - 7 * (size_t)c;
        p.pool_of_chunk[c] = 50 + (size_t)c;
    }
    return p;
}

/* Do the slots fit this list? Both are by number. */
static bool fits(const SlotSizes *all, const Program *p, const EnginePlan *plan)
{
    SlotSizes one;
    CHECK_OK(slot_sizes(p, plan, &room, &one));
    for (int part = 0; part < SLOT_PARTS; part++) {
        if (all->n[part] < one.n[part]) return false;
        for (int i = 0; i < one.n[part]; i++)
            if (all->bytes[part][i] < one.bytes[part][i]) return false;
    }
    for (int i = 0; i < one.n[SLOT_KEEP]; i++)
        if (all->pool[i] < one.pool[i]) return false;
    return true;
}

/* Adds the ranks on which the slots of the larger step do not fit the smaller one. */
static void check_schedule(const ScheduleDesc *d, int *more)
{
    const EnginePlan plan = plan_of_chunks();
    const int micros[] = { MANY, FEW };
    for (int rank = 0; rank < STAGES; rank++) {
        EngineList list[2];
        SlotSizes all, large;
        ArenaMark mark = arena_mark(&room);
        for (int m = 0; m < 2; m++) {
            const ScheduleShape s = { .stages = STAGES,
                                      .chunks = d->chunks_least,
                                      .micros = micros[m] * (d->micros_least > 1 ? 2 : 1),
                                      .forward = 1,
                                      .input = 1,
                                      .weight = 1,
                                      .blocks = d->phases };
            Pipeline p;
            CHECK_OK(schedule_make(d, &s, &room, &temporary, &p));
            list[m].program = p.rank[rank];
        }
        CHECK_OK(slot_sizes_all(&(EngineMode){ .step = list, .n_steps = 2 }, &plan, &room, &all));
        CHECK_OK(slot_sizes(&list[0].program, &plan, &room, &large));
        for (int m = 0; m < 2; m++) CHECK(fits(&all, &list[m].program, &plan));
        *more += !fits(&large, &list[1].program, &plan);
        arena_release(&room, mark);
    }
}

static void slots_fit_the_lists_of_all_sizes(void **state)
{
    (void)state;
    int more = 0;
    CHECK_OK(arena_init(&room, "slots", MEM_HOST, (size_t)1 << 32));
    CHECK_OK(arena_init(&temporary, "temporary", MEM_HOST, (size_t)1 << 32));
    for (int i = 0; i < schedule_table_n; i++) check_schedule(&schedule_table[i], &more);
    CHECK(more > 0);
    arena_free(&room);
    arena_free(&temporary);
}

int main(void)
{
    const struct CMUnitTest tests[] = { TEST(slots_fit_the_lists_of_all_sizes) };
    return TEST_RUN(tests);
}
