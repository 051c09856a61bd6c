/* What the check of all ranks says of pipelines that are broken in one place. */
#include "schedule/pipelines.h"

/* GPipe over two stages, two micro-batches:
 * rank 0: zero F0 send F1 send recv B0 recv B1 reduce update
 * rank 1: zero recv F0 recv F1 B0 send B1 send reduce update */
enum { F0 = 1, SEND0 = 2, F1 = 3, SEND1 = 4, RECV0 = 5, B0 = 6, RECV1 = 7 };

static Pipeline two_stages(void)
{
    ScheduleShape s = { 2, 1, 2, 1, 1, 1, 0 };
    pipeline_forget();
    return pipeline_of("gpipe", &s);
}

static Pipeline long_1f1b(void)
{
    ScheduleShape s = { 2, 1, 16, 1, 1, 1, 0 };
    pipeline_forget();
    return pipeline_of("1f1b", &s);
}

/* The n-th action of this kind on a rank. */
static Action *nth(Pipeline *p, int rank, ActionKind kind, int n)
{
    Program *x = &p->rank[rank];
    for (int i = 0; i < x->n; i++) {
        if (x->at[i].kind == kind && n-- == 0) return &x->at[i];
    }
    fail_msg("rank %d has too few of %s", rank, action_name(kind));
    return NULL;
}

static void forget_waits(Action *a) { a->wait[0] = a->wait[1] = a->wait[2] = -1; }

static void a_missing_wait_is_found(void **state)
{
    (void)state;
    Pipeline p = two_stages();
    forget_waits(nth(&p, 1, ACTION_FORWARD, 0));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "does not wait until entry 0 is written");
    p = two_stages();
    forget_waits(nth(&p, 0, ACTION_SEND_ACTIVATIONS, 1));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "does not wait until entry");
    p = long_1f1b();
    forget_waits(nth(&p, 1, ACTION_RECV_ACTIVATIONS, 9));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "does not wait for the last reader of entry");
    p = long_1f1b();
    forget_waits(nth(&p, 0, ACTION_FORWARD, 9)); /* its output would overwrite what is being sent */
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "does not wait for the last reader of entry");
}

static void a_wrong_number_is_found(void **state)
{
    (void)state;
    Pipeline p = two_stages();
    p.rank[0].at[F1].slot = p.rank[0].at[F0].slot;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "slot 0 still holds micro-batch 0");
    p = two_stages();
    p.rank[0].at[F1].slot = 2;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "slot 2 of 2, 1, 2");
    p = two_stages();
    p.rank[0].at[SEND0].peer = 0;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "with rank 0, the other end is rank 1");
    p = two_stages();
    p.rank[0].at[F1].out = p.rank[0].at[F0].out;
    p.rank[0].at[F1].wait[0] = -1;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "does not wait for the last reader");
    p = two_stages();
    p.rank[0].at[B0].in = 99;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "reads entry 99 of");
    p = two_stages();
    p.rank[0].at[SEND1].micro = 0;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "does not hold the activations of micro-batch 0");
    p = two_stages();
    p.rank[0].at[F0].wait[2] = 1000;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "event 1000 of");
    p = two_stages();
    p.rank[0].at[F0].wait[2] = p.rank[0].at[RECV1].signal;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "which nobody signals before");
    p = two_stages();
    p.rank[0].at[F1].signal = p.rank[0].at[F0].signal;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "a second time");
    p = two_stages();
    p.rank[1].rank = 0;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "rank 1 is of another pipeline");
}

static void a_backward_that_is_not_whole_is_found(void **state)
{
    (void)state;
    Pipeline p = two_stages();
    p.rank[0].at[B0].kind = ACTION_BACKWARD_INPUT;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "never goes backward on chunk 0");
    p = two_stages();
    p.rank[0].at[B0].kind = ACTION_BACKWARD_WEIGHT;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "before its input gradients");
    p = two_stages();
    p.rank[0].at[SEND1] = action_make(ACTION_ZERO_GRADS);
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "nobody reads the activations of micro-batch 1");
}

/* Each rank is right alone; together they name different micro-batches. */
static void ends_that_disagree_are_found(void **state)
{
    (void)state;
    Pipeline p = two_stages();
    for (int i = 0; i < p.rank[0].n; i++) {
        Action *a = &p.rank[0].at[i];
        if (a->micro >= 0) a->micro = 1 - a->micro;
    }
    CHECK_OK(schedule_check(&p.rank[0], &scratch));
    CHECK_FAILS(
        schedule_check_all(&p, &scratch), ERR_ARG,
        "rank 0 is to send activations of micro-batch 1 where rank 1 is to receive activations "
        "of 0");
}

/* Rank 0 wants the gradient of micro-batch 0 before it sends 1, rank 1 wants 1 first. */
static void a_deadlock_is_found(void **state)
{
    (void)state;
    Pipeline p = two_stages();
    Action *at = p.rank[0].at, f1 = at[F1], send1 = at[SEND1];
    at[F1] = at[RECV0], at[SEND1] = at[B0];
    at[RECV0] = f1, at[B0] = send1;
    CHECK_OK(schedule_check(&p.rank[0], &scratch));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "rank 0 waits for ever before action 4");
}

static Pipeline by_phases(void)
{
    ScheduleShape s = { 2, 1, 4, 1, 1, 1, .blocks = 2 };
    pipeline_forget();
    return pipeline_of("1f1b-overlap", &s);
}

static void phases_out_of_turn_are_found(void **state)
{
    (void)state;
    Pipeline p = by_phases();
    forget_waits(nth(&p, 0, ACTION_FORWARD, PHASE_DISPATCH));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "does not wait for the phase of micro-batch 0");
    p = by_phases();
    forget_waits(nth(&p, 0, ACTION_BACKWARD_INPUT, 2)); /* dispatch, then attention */
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "does not wait for the phase of micro-batch 0");
    p = by_phases();
    nth(&p, 0, ACTION_FORWARD, PHASE_EXPERTS)->phase = PHASE_ATTENTION + PHASES;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "is at phase 4, next is 2");
    p = by_phases();
    nth(&p, 0, ACTION_FORWARD, PHASE_DISPATCH)->lane = LANE_COMPUTE;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "phase 1 is on the wrong lane");
    p = by_phases();
    nth(&p, 0, ACTION_BACKWARD_WEIGHT, 0)->phase = PHASE_EXPERTS;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "before its input gradients");
    p = by_phases();
    nth(&p, 0, ACTION_FORWARD, 0)->phase = 2 * PHASES;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "phase 8 of 8");
    p = by_phases();
    *nth(&p, 0, ACTION_BACKWARD_WEIGHT, 3) = action_make(ACTION_ZERO_GRADS);
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "micro-batch 0 never goes backward");
    p = by_phases();
    p.rank[0].phases = 3;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "3 phases, 4 a block");
}

/* Each finds all its inputs whenever it runs; only the order of collectives is open. */
static void collectives_without_an_order_are_found(void **state)
{
    (void)state;
    static const char *const names[] = { "gpipe", "1f1b-overlap" };
    ScheduleShape s = { 2, 1, 4, 1, 1, 1, .blocks = 2 };
    for (int i = 0; i < 2; i++) {
        pipeline_forget();
        Pipeline p = pipeline_of(names[i], &s);
        Action *reduce = nth(&p, 1, ACTION_REDUCE_GRADS, 0);
        reduce->lane = LANE_COMM;
        CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                    "reduce gradients does not wait for all before it");
        Action *last = reduce - 1; /* of all passes, whatever send follows it */
        if (action_is_transfer(last->kind)) last--;
        if (last->signal < 0) last->signal = p.rank[1].events++;
        reduce->wait[0] = last->signal;
        CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                    "update does not wait for all before it");
        reduce->signal = p.rank[1].events++;
        nth(&p, 1, ACTION_UPDATE, 0)->wait[0] = reduce->signal;
        CHECK_OK(schedule_check_all(&p, &scratch));
    }
}

static const struct CMUnitTest tests[] = {
    TEST(a_missing_wait_is_found),
    TEST(a_wrong_number_is_found),
    TEST(a_backward_that_is_not_whole_is_found),
    TEST(ends_that_disagree_are_found),
    TEST(a_deadlock_is_found),
    TEST(collectives_without_an_order_are_found),
    TEST(phases_out_of_turn_are_found),
};
PIPELINE_TESTS(tests)
