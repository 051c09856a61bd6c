/* Programs: the generator's pass, and every broken one is told apart. */
#include "harness/test.h"

#include "engine/schedule/check.h"

static Arena arena, scratch;

/* One rank's list: each micro-batch forward, then backward, in one slot. */
static Program accumulate(int micros)
{
    const ScheduleDesc *d = NULL;
    ScheduleShape s = { 1, 1, micros, 1, 1, 1, .blocks = 0 };
    Pipeline p;
    CHECK_OK(schedule_find("1f1b", &d));
    CHECK_OK(schedule_make(d, &s, &arena, &scratch, &p));
    return p.rank[0];
}

static void accumulation_is_forward_then_backward_of_each_micro_batch(void **state)
{
    (void)state;
    Program p = accumulate(3);
    static const ActionKind want[] = { ACTION_ZERO_GRADS, ACTION_FORWARD,  ACTION_BACKWARD,
                                       ACTION_FORWARD,    ACTION_BACKWARD, ACTION_FORWARD,
                                       ACTION_BACKWARD,   ACTION_UPDATE };
    CHECK_INT(p.n, 8);
    CHECK_INT(p.slots, 1);
    for (int i = 0; i < p.n; i++) CHECK_INT(p.at[i].kind, want[i]);
    CHECK_OK(schedule_check(&p, &scratch));
}

/* One change to a good program of two micro-batches, and what the check says of it. */
static void broken(int at, Action with, const char *says)
{
    Program p = accumulate(2);
    p.at[at] = with;
    CHECK_FAILS(schedule_check(&p, &scratch), ERR_ARG, says);
}

static void every_broken_program_is_named(void **state)
{
    (void)state;
    Program p = accumulate(2);
    Action forward0 = p.at[1], backward1 = p.at[4], update = p.at[5];
    broken(3, forward0, "micro-batch 0 goes forward twice");
    broken(2, p.at[3], "slot 0 still holds micro-batch 0");
    broken(2, backward1, "slot 0 does not hold micro-batch 1");
    broken(0, update, "update before zero gradients");
    broken(0, forward0, "outside of zero and update");
    broken(5, p.at[0], "zero gradients a second time");
    p.n = 5;
    CHECK_FAILS(schedule_check(&p, &scratch), ERR_ARG, "there is no update");
    Action outside = forward0;
    outside.slot = 1;
    broken(1, outside, "slot 1");
    p.n = 3; /* the second micro-batch is missing */
    CHECK_FAILS(schedule_check(&p, &scratch), ERR_ARG, "micro-batch 1 never goes backward");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(accumulation_is_forward_then_backward_of_each_micro_batch),
        TEST(every_broken_program_is_named),
    };
    if (arena_init(&arena, "test", MEM_HOST, 1 << 20) != OK) return 1;
    if (arena_init(&scratch, "scratch", MEM_HOST, 1 << 20) != OK) return 1;
    int failed = TEST_RUN(tests);
    arena_free(&arena);
    arena_free(&scratch);
    return failed;
}
