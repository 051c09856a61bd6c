/* Every allocation of a small model's life fails once: each time the error comes back as a value,
 * and nothing is left behind. Only the hostile build can refuse on purpose. */
#include "harness/tiny.h"

#ifdef ARENA_FAIL_NTH
extern long arena_fail_countdown;

/* Plan, open, one step, close: OK or ERR_MEMORY, never a crash. */
static Status life(const Config *c, const EngineShape *shape, const Batch *batch)
{
    EnginePlan plan;
    Engine e = { 0 };
    StepResult r;
    Status s = engine_plan(c, ENGINE_TRAIN, shape, &plan);
    if (s == OK) s = engine_open(&e, c, ENGINE_TRAIN, shape, &plan);
    if (s == OK) {
        s = engine_init_weights(&e.params, 1);
        s = engine_step(&e, batch, 1e-2, 1, &r);
    }
    engine_close(&e);
    return s;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    Tiny t;
    tiny_open(&t, TINY("moe.bias_rate=0.01", "recompute.layers=[1]", "model.layers=2",
                       "data.sequence=8"));
    bool passed = false;
    for (long n = 0; n < 5000 && !passed; n++) {
        arena_fail_countdown = n;
        Status s = life(&t.config, &t.shape, &t.batch);
        passed = arena_fail_countdown >= 0; /* nothing was left to refuse */
        arena_fail_countdown = -1;
        CHECK(passed ? s == OK : s == ERR_MEMORY);
    }
    CHECK(passed);
    tiny_close(&t);
}
#else
static void every_allocation_may_fail(void **state)
{
    (void)state;
    printf("skip: allocations fail on purpose in the hostile build only\n");
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = { TEST(every_allocation_may_fail) };
    return TEST_RUN(tests);
}
