/* question: a planner for a model on a cluster under a stack, as `switchyard plan` opens one. */
#ifndef HARNESS_QUESTION_H
#define HARNESS_QUESTION_H

#include "harness/test.h"

#include "planner/plan.h"
#include "planner/stack/stack.h"

typedef struct Question {
    Arena arena;
    Config config;
    Hardware hardware;
    PlanStack stack;
    PlanRequest request;
    PlanLayout layout; /* the configuration's; no partition unless that says one */
    Planner *planner;
} Question;

/* What is asked; a test may change any of it before question_open. */
static inline void question_load(Question *q, const char *model, const char *hardware, int64_t gpus,
                                 const char *stack, const char *const *set, int n)
{
    *q = (Question){ 0 };
    CHECK_OK(arena_init(&q->arena, "test", MEM_HOST, (size_t)4 << 30));
    CHECK_OK(config_load(&q->config, &q->arena, model, set, n));
    CHECK_OK(hardware_load(&q->hardware, &q->arena, hardware));
    CHECK_OK(stack_load(&q->stack, &q->arena, stack));
    q->request = (PlanRequest){ &q->config, &q->hardware, &q->stack, gpus };
}

static inline void question_open(Question *q)
{
    CHECK_OK(plan_layout_of(&q->config, q->request.gpus, &q->arena, &q->layout));
    CHECK_OK(planner_make(&q->request, &q->planner));
}

static inline void question_close(Question *q)
{
    planner_free(q->planner);
    arena_free(&q->arena);
}

#endif
