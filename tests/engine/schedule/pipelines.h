/* pipelines: a pipeline made, checked and simulated, for the tests of schedules. */
#ifndef ENGINE_SCHEDULE_PIPELINES_H
#define ENGINE_SCHEDULE_PIPELINES_H

#include "harness/test.h"

#include "engine/base/rng.h"
#include "engine/schedule/check.h"
#include "engine/schedule/simulate.h"

/* Both arenas are emptied by pipeline_forget(). */
static Arena made, scratch;

/* Of an action whose phases are one part of a block of chunk_of_blocks(). */
static inline int part_of(const Action *a)
{
    int last = (a->end - 1) % PHASES;
    return a->kind == ACTION_FORWARD ? last : PHASES - 1 - last;
}

/* The durations that a pipeline was made with; of each part that computes an equal share. */
typedef struct PassCost {
    ScheduleShape shape;
    bool phased;
} PassCost;

static double pass_cost(void *ctx, int rank, const Action *a)
{
    const PassCost *c = ctx;
    const ScheduleShape *s = &c->shape;
    (void)rank;
    if (a->lane == LANE_COMM) return 0;
    double part = c->phased ? 1.0 / (2 * s->blocks) : 1;
    switch (a->kind) {
    case ACTION_FORWARD: return part * s->forward;
    case ACTION_BACKWARD_INPUT: return part * s->input;
    case ACTION_BACKWARD_WEIGHT: return part * s->weight;
    case ACTION_BACKWARD: return part * (s->input + s->weight);
    default: return 0;
    }
}

/* A slot counts one, whatever part of it is still needed. */
static SlotBytes one_slot(void *ctx, int rank, int chunk)
{
    (void)ctx;
    (void)rank;
    (void)chunk;
    return (SlotBytes){ .weight = 1 };
}

static inline Pipeline pipeline_of(const char *name, const ScheduleShape *s)
{
    const ScheduleDesc *d = NULL;
    Pipeline p;
    CHECK_OK(schedule_find(name, &d));
    CHECK_OK(schedule_make(d, s, &made, &scratch, &p));
    CHECK_OK(schedule_check_all(&p, &scratch));
    return p;
}

/* With the costs that the schedule was made for, and free communication. */
static inline Simulation pipeline_simulate(const Pipeline *p, ScheduleShape s)
{
    Simulation sim;
    PassCost pass = { s, p->rank[0].phased };
    SimCost cost = { .ctx = &pass, .duration = pass_cost, .slot = one_slot };
    CHECK_OK(simulate_run(p, &cost, &made, &sim));
    return sim;
}

static inline void pipeline_forget(void)
{
    arena_release(&made, (ArenaMark){ 0 });
    arena_release(&scratch, (ArenaMark){ 0 });
}

/* main() of a test file. */
#define PIPELINE_TESTS(tests)                                                                      \
    int main(void)                                                                                 \
    {                                                                                              \
        if (arena_init(&made, "made", MEM_HOST, (size_t)1 << 30) != OK) return 1;                  \
        if (arena_init(&scratch, "scratch", MEM_HOST, (size_t)1 << 30) != OK) return 1;            \
        int failed = TEST_RUN(tests);                                                              \
        arena_free(&made);                                                                         \
        arena_free(&scratch);                                                                      \
        return failed;                                                                             \
    }

#endif
