/* The step that `plan --program` prints is the one that `train` runs: the planner's Programs and
 * those of running engines, action by action, for every mesh of the same-loss list and every
 * schedule. */
#include "hardware/hardware.h"
#include "harness/mesh_cases.h"
#include "planner/command/program_print.h"
#include "planner/plan.h"
#include "planner/stack/stack.h"

typedef struct Planned {
    Arena arena;
    PlanStep step;
} Planned;

/* As `switchyard plan CONFIG --program` does. */
static Status plan_of(const Config *c, int ranks, Planned *out)
{
    Arena *a = &out->arena;
    Hardware hardware;
    PlanStack stack;
    PlanLayout l;
    Planner *planner = NULL;
    TRY(arena_init(a, "planned", MEM_HOST, (size_t)1 << 32));
    TRY(hardware_load(&hardware, a, "h200"));
    TRY(stack_load(&stack, a, "switchyard"));
    TRY(plan_layout_of(c, ranks, a, &l));
    TRY(plan_spread_evenly(c, a, &l));
    PlanRequest q = { c, &hardware, &stack, ranks };
    TRY(planner_make(&q, &planner));
    Status s = planner_simulate(planner, &l, true, a, &out->step);
    planner_free(planner);
    return s;
}

static Status same_program(const Program *want, const Program *have, Arena *a)
{
    Text text[2] = { { 0 } };
    const Program *p[] = { want, have };
    for (int i = 0; i < 2; i++) {
        TRY(text_init(&text[i], a));
        TRY(program_print(p[i], NULL, &text[i]));
    }
    if (want->n == have->n && memcmp(want->at, have->at, (size_t)want->n * sizeof *want->at) == 0 &&
        strcmp(text[0].data, text[1].data) == 0)
        return OK;
    int line = 0;
    while (text[0].data[line] != '\0' && text[0].data[line] == text[1].data[line]) line++;
    return FAIL(ERR_NUMERIC, "the engine runs \"%.60s\" where the plan has \"%.60s\"",
                text[0].data + line, text[1].data + line);
}

static Status compare(void *state, Comm *world)
{
    const ManyCase *c = state;
    ManyRank r = { .device = world->rank };
    Planned p = { 0 };
    Status s = many_open(&r, c, world);
    if (s == OK) s = plan_of(&r.t.config, c->ranks, &p);
    if (s == OK) {
        const Program *have = &p.step.pipeline.rank[r.t.engine.shape.pp_rank];
        s = same_program(&r.t.engine.modes[0].step->program, have, &p.arena);
    }
    if (s == OK && !(p.step.sim.step > 0))
        s = FAIL(ERR_NUMERIC, "the step takes %g s", p.step.sim.step);
    arena_free(&p.arena);
    many_close(&r);
    return s;
}

static void the_plan_prints_what_every_mesh_runs(void **state)
{
    (void)state;
    int n = 0;
    for (int i = 0; i < MESH_CASES; i += MANY_EVERY) n += case_wrong(&mesh_cases[i], compare);
    CHECK_INT(n, 0);
}

static void the_plan_prints_what_every_schedule_runs(void **state)
{
    (void)state;
    CHECK_INT(schedules_wrong(compare), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_plan_prints_what_every_mesh_runs),
        TEST(the_plan_prints_what_every_schedule_runs),
    };
    return TEST_RUN(tests);
}
