/* What a compute lane waits for, on times that are worked out by hand and on simulated ones: no clock
 * runs here. */
#include "engine/schedule/pipelines.h"
#include "harness/posted.h"

typedef struct Costs {
    double pass, send, exchange, late; /* late: of one send more than of the others */
    int rank, micro;
    ActionKind kind;
} Costs;

static double cost_of(void *ctx, int rank, const Action *a)
{
    const Costs *c = ctx;
    if (action_is_transfer(a->kind))
        return c->send +
               (rank == c->rank && a->micro == c->micro && a->kind == c->kind ? c->late : 0);
    if (!action_is_pass(a->kind)) return 0;
    return a->lane == LANE_COMM ? c->exchange : a->kind == ACTION_BACKWARD ? 2 * c->pass : c->pass;
}

static Simulation run(const Pipeline *p, Costs *c)
{
    Simulation sim;
    CHECK_OK(simulate_run(p, &(SimCost){ .ctx = c, .duration = cost_of }, &made, &sim));
    return sim;
}

/*          0   1   2   3   4   5   6   7   8   9   10
 * rank 0   F0  F1              B0----B0    B1----B1
 * rank 1         F0  B0----B0F1  B1----B1                 (test_simulate.c)
 * Rank 0 stands from 2 to 5 and from 7 to 8, rank 1 until 1.5; it ends at 7.5 and its last send at 8.
 * The activations of micro-batch 0 that come 0.75 later shift all of rank 1, which waits for them alone,
 * and so what rank 0 waits for; those of micro-batch 1 have 2 to spare. */
static void a_late_transfer_is_waited_for(void **state)
{
    (void)state;
    static const struct {
        int micro;
        double late, waits[2];
    } told[] = { { -1, 0, { 4, 2 } },
                 { 0, 0.75, { 4.75, 2.75 } },
                 { 1, 1.5, { 4, 2 } },
                 { 1, 2.25, { 4.25, 2.25 } } };
    ScheduleShape s = { 2, 1, 2, 1, 1, 1, .blocks = 0 };
    Pipeline p = pipeline_of("1f1b", &s);
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        Costs c = { .pass = 1,
                    .send = 0.5,
                    .late = told[i].late,
                    .micro = told[i].micro,
                    .kind = ACTION_SEND_ACTIVATIONS };
        Simulation sim = run(&p, &c);
        for (int r = 0; r < 2; r++) {
            double idle_s[TRAFFICS];
            idle_in(&p, &sim, r, &made, idle_s);
            CHECK_NEAR(idle_s[TRAFFIC_PP], told[i].waits[r], 1e-12);
            CHECK_NEAR(idle_s[TRAFFIC_EP] + idle_s[TRAFFIC_CP] + idle_s[TRAFFIC_ZERO], 0, 0);
        }
    }
    pipeline_forget();
}

/* Whatever the schedule, exchanges or not: every gap belongs to what it waited for. */
static void every_gap_is_some_traffics(void **state)
{
    (void)state;
    for (int d = 0; d < schedule_table_n; d++) {
        const ScheduleDesc *desc = &schedule_table[d];
        ScheduleShape s = { 4, desc->chunks_least, 16, 1, 1, 1, .blocks = desc->phases ? 2 : 0 };
        Pipeline p = pipeline_of(desc->name, &s);
        double pp = 0, ep = 0;
        for (int i = 0; i < 2; i++) {
            Simulation sim = run(&p, &(Costs){ .pass = 1, .send = 0.3, .exchange = i * 3 });
            for (int r = 0; r < 4; r++) {
                double idle_s[TRAFFICS];
                idle_in(&p, &sim, r, &made, idle_s);
                pp += idle_s[TRAFFIC_PP], ep += idle_s[TRAFFIC_EP];
            }
            CHECK(pp > 0 && (ep > 0) == (i == 1 && desc->phases));
        }
        pipeline_forget();
    }
}

/* By hand. Of a list: compute, a gather, a sum over stages, compute that awaits the gather alone, the
 * update; then a gather after it.
 *
 * compute  0-------2           5---6---7
 * comm         1-------3---4           7-------9
 *              gather  sum                gather
 * As lanes: compute that begins at 5 waited from 2 to 3 for the gather; until 5 for nothing that is
 * known. The step's end waits from 7 to 9. As one thread: from 3 to 4 the sum stood before it, too. */
static void what_ended_last_is_blamed(void **state)
{
    (void)state;
    static const struct {
        ActionKind kind;
        int wait, signal;
        ActionSpan span;
    } list[] = {
        { ACTION_ZERO_GRADS, -1, -1, { 0, 2 } }, { ACTION_GATHER_WEIGHTS, -1, 0, { 1, 3 } },
        { ACTION_SUM_GRADS, -1, -1, { 3, 4 } },  { ACTION_FREE_WEIGHTS, 0, -1, { 5, 6 } },
        { ACTION_UPDATE, -1, 1, { 6, 7 } },      { ACTION_GATHER_WEIGHTS, 1, -1, { 7, 9 } },
    };
    enum { N = sizeof list / sizeof *list };
    Action at[N];
    ActionSpan span[N];
    for (int i = 0; i < N; i++) {
        at[i] = action_make(list[i].kind);
        at[i].wait[0] = list[i].wait, at[i].signal = list[i].signal;
        span[i] = list[i].span;
    }
    Program p = { .at = at, .n = N, .stages = 2, .chunks = 1, .events = 2 };
    double idle_s[TRAFFICS];
    for (int lanes = 0; lanes < 2; lanes++) {
        idle_of(&p, span, lanes == 1, idle_s);
        CHECK_NEAR(idle_s[TRAFFIC_ZERO], 3, 0);
        CHECK_NEAR(idle_s[TRAFFIC_PP], 1 - lanes, 0);
        CHECK_NEAR(idle_s[TRAFFIC_EP] + idle_s[TRAFFIC_CP], 0, 0);
    }
}

/* Who gets a sum over stages, which DualPipe's twins make, and one over replicas. */
static void sums_are_of_those_who_hold_the_same(void **state)
{
    (void)state;
    Action at[] = { action_make(ACTION_UPDATE), action_make(ACTION_SUM_GRADS) };
    const ActionSpan span[] = { { 0, 1 }, { 1, 3 } };
    for (int i = 0; i < 4; i++) {
        Program p = { .at = at, .n = 2, .stages = 1 + i % 2, .chunks = 1 };
        p.shards.reduce = i > 1;
        double idle_s[TRAFFICS];
        idle_of(&p, span, true, idle_s);
        CHECK_NEAR(idle_s[i == 1 ? TRAFFIC_PP : TRAFFIC_ZERO], 2, 0);
    }
}

static const struct CMUnitTest tests[] = {
    TEST(a_late_transfer_is_waited_for),
    TEST(every_gap_is_some_traffics),
    TEST(what_ended_last_is_blamed),
    TEST(sums_are_of_those_who_hold_the_same),
};
PIPELINE_TESTS(tests)
