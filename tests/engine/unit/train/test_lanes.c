/* The streams of a GPU that a pipeline's transfers take, without a GPU: there are never more than
 * QUEUES_MAX, and none waits for ever. */
#include "engine/schedule/pipelines.h"
#include "harness/lanes.h"

enum { FAR = 1 << 28, NEAR = 1, SHAPES = RUNS(200, 60) };

static void run_lanes(const char *name, const ScheduleShape *s, LaneNeeds *needs)
{
    static const int ahead[] = { NEAR, FAR };
    Pipeline p = pipeline_of(name, s);
    for (int i = 0; i < 2; i++) {
        if (lanes_of(&p, true, ahead[i], &made, needs) == OK) continue;
        fail_msg("%s, %d stages, %d chunks, %d micro-batches: %s", name, s->stages, s->chunks,
                 s->micros, status_message());
    }
    pipeline_forget();
}

static ScheduleShape shape_with(const ScheduleDesc *d, int stages, int chunks, int groups)
{
    int micros = stages * groups + (d->chunks_most == 1 ? groups % 3 : 0);
    return (ScheduleShape){ .stages = stages,
                            .chunks = chunks,
                            .micros = micros,
                            .forward = 1,
                            .input = 1,
                            .weight = 1,
                            .blocks = d->phases ? 1 + groups % 2 : 0 };
}

static void chunks_add_no_streams(void **state)
{
    (void)state;
    LaneNeeds two, many;
    static const char *const names[] = { "interleaved", "1f1b-overlap" };
    for (int i = 0; i < 2; i++) {
        const ScheduleDesc *d = NULL;
        CHECK_OK(schedule_find(names[i], &d));
        ScheduleShape s = shape_with(d, 2, 2, 4);
        run_lanes(names[i], &s, &two);
        for (int chunks = 3; chunks <= SCHEDULE_CHUNKS_MAX; chunks += chunks < 9 ? 1 : 11) {
            s = shape_with(d, 2, chunks, 4);
            run_lanes(names[i], &s, &many);
            CHECK_INT(many.streams, two.streams);
            CHECK_INT(many.groups, two.groups);
        }
        CHECK_INT(two.streams, LANE_COUNT + 4);
    }
}

static void streams_of_every_schedule_come_to_their_end(void **state)
{
    (void)state;
    for (int k = 0; k < schedule_table_n; k++) {
        const ScheduleDesc *d = &schedule_table[k];
        int ran = 0;
        for (int i = 0; i < SHAPES; i++) {
            int most = d->chunks_most < 8 ? d->chunks_most : 8;
            int chunks = d->chunks_least + i % (most - d->chunks_least + 1);
            ScheduleShape s = shape_with(d, 1 + i * 7 % 12, chunks, 1 + i * 5 % 6);
            LaneNeeds needs;
            if (schedule_legal(d, &s) != OK) continue;
            run_lanes(d->name, &s, &needs);
            CHECK(needs.streams <= QUEUES_MAX);
            ran++;
        }
        CHECK(ran >= SHAPES / 8);
    }
}

static void evaluations_come_to_their_end(void **state)
{
    (void)state;
    for (int k = 0; k < schedule_table_n; k++) {
        const ScheduleDesc *d = &schedule_table[k];
        for (int stages = 2; stages <= 6; stages += 2) {
            ScheduleShape s = shape_with(d, stages, d->chunks_least > 1 ? 2 : 1, 4);
            Pipeline p;
            LaneNeeds needs;
            CHECK_OK(schedule_evaluation(d, &s, &made, &scratch, &p));
            CHECK_OK(lanes_of(&p, true, NEAR, &made, &needs));
            pipeline_forget();
        }
    }
}

/* Two transfers of different chunks that one end has in another order. */
static void an_order_that_only_one_end_has_is_found(void **state)
{
    (void)state;
    ScheduleShape s = { .stages = 2, .chunks = 2, .micros = 2, 1, 1, 1 };
    Pipeline p = pipeline_of("interleaved", &s);
    LaneNeeds needs;
    Program *x = &p.rank[1];
    int first = -1, second = -1;
    for (int i = 0; i < x->n; i++) {
        if (x->at[i].kind != ACTION_RECV_ACTIVATIONS) continue;
        if (x->at[i].chunk == 0 && x->at[i].micro == 0) first = i;
        if (x->at[i].chunk == 1 && x->at[i].micro == 0) second = i;
    }
    CHECK(first >= 0 && second > first);
    short chunk = x->at[first].chunk;
    x->at[first].chunk = x->at[second].chunk;
    x->at[second].chunk = chunk;
    CHECK_FAILS(lanes_of(&p, true, FAR, &made, &needs), ERR_ARG, "mean different transfers");
    SimSpan *spans[2];
    CHECK_FAILS(simulate_spans(&p, &simulate_free, &scratch, spans), ERR_ARG,
                "the other end of the first is chunk");
    pipeline_forget();
}

/* A schedule that asks for more streams than there are is refused before anything starts. */
static void too_many_streams_are_refused(void **state)
{
    (void)state;
    const ScheduleDesc *zbv = NULL;
    CHECK_OK(schedule_find("zbv", &zbv));
    ScheduleDesc wide = *zbv;
    wide.chunks_most = 3;
    ScheduleShape s = { .stages = 2, .chunks = 2, .micros = 4, 1, 1, 1 };
    CHECK_OK(schedule_legal(&wide, &s));
    s.chunks = 3;
    CHECK_FAILS(schedule_legal(&wide, &s), ERR_ARG,
                "3 chunks a rank need 14 streams, a GPU has 10");
}

static const struct CMUnitTest tests[] = {
    TEST(chunks_add_no_streams),         TEST(streams_of_every_schedule_come_to_their_end),
    TEST(evaluations_come_to_their_end), TEST(an_order_that_only_one_end_has_is_found),
    TEST(too_many_streams_are_refused),
};

PIPELINE_TESTS(tests)
