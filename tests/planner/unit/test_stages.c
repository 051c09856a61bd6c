/* Partitions that a plan makes itself (price_stages.c), of DeepSeek-V2-Lite's 27 blocks. */
#include "harness/question.h"

#include "planner/price/price_private.h"

enum { RANKS = 3, BLOCKS = 27 };

/* The partition of a layout with three pipeline ranks, as text in q->arena. */
static const char *partition_of(Question *q, int vpp, const char *schedule, int zero)
{
    const char *text = NULL;
    PlanLayout l = q->layout;
    l.pp = RANKS, l.vpp = vpp, l.dp = 4, l.zero = zero, l.recompute = 0;
    CHECK_OK(schedule_find(schedule, &l.schedule));
    CHECK_OK(planner_partition(q->planner, &l, &q->arena, &text));
    return text;
}

static void open_question(Question *q, const char *stack)
{
    const char *set[] = { "train.batch=96", "run.compute=bf16", "train.micro_batch=1" };
    question_load(q, "deepseek-v2-lite", "h200", 12, stack, set, 3);
    question_open(q);
}

/* Blocks of the fullest rank. */
static int fullest(Question *q, const char *text, int vpp, Placement placement)
{
    Layout l;
    int most = 0;
    Program like = { .stages = RANKS, .chunks = vpp, .placement = placement };
    CHECK_OK(layout_parse(text, RANKS * vpp, BLOCKS, &q->arena, &l));
    for (like.rank = 0; like.rank < RANKS; like.rank++) {
        int blocks = 0;
        for (int c = 0; c < vpp; c++) blocks += l.stage[hop_of(&like, c, c)].layers;
        if (blocks > most) most = blocks;
    }
    return most;
}

static void a_stack_without_balance_keeps_equal_numbers(void **state)
{
    (void)state;
    Question q;
    open_question(&q, "primus");
    CHECK_TEXT(partition_of(&q, 2, "interleaved", 1), "Et*5|t*5|t*5|t*4|t*4|t*4L");
    CHECK_TEXT(partition_of(&q, 1, "1f1b", 2), "Et*9|t*9|t*9L");
    question_close(&q);
}

/* Where parameters move in every micro-batch, each rank has nine of the 27 blocks. */
static void sharded_parameters_are_spread_evenly_over_ranks(void **state)
{
    (void)state;
    Question q;
    open_question(&q, "switchyard,list=0");
    for (int vpp = 1; vpp <= 6; vpp++) {
        const char *schedule = vpp == 1 ? "1f1b" : "interleaved";
        CHECK_INT(fullest(&q, partition_of(&q, vpp, schedule, 2), vpp, PLACE_LOOP), 9);
    }
    CHECK_INT(fullest(&q, partition_of(&q, 2, "zbv", 3), 2, PLACE_V), 9);
    question_close(&q);
}

/* The head takes longer than a block, so its rank has fewer blocks, whichever of its chunks they lie on. */
static void the_rank_of_the_head_has_fewer_blocks(void **state)
{
    (void)state;
    Question q;
    open_question(&q, "switchyard,list=0");
    static const char *const schedules[] = { "interleaved", "zbv" };
    for (int i = 0; i < 2; i++) {
        Layout l;
        Program like = { .stages = RANKS, .chunks = 2, .placement = i == 0 ? PLACE_LOOP : PLACE_V };
        like.rank = hop_stage(&like, 0, 5).rank;
        CHECK_OK(layout_parse(partition_of(&q, 2, schedules[i], 1), 6, BLOCKS, &q.arena, &l));
        CHECK(l.stage[hop_of(&like, 0, 0)].layers + l.stage[5].layers < 9);
        CHECK(fullest(&q, partition_of(&q, 2, schedules[i], 1), 2, like.placement) <= 10);
    }
    question_close(&q);
}

static void partitions_do_not_depend_on_what_was_asked_before(void **state)
{
    (void)state;
    const char *text[2][4];
    Question q[2];
    for (int i = 0; i < 2; i++) {
        open_question(&q[i], "switchyard,list=0");
        for (int k = 0; k < 4; k++) {
            int at = i == 0 ? k : 3 - k;
            text[i][at] = partition_of(&q[i], 2, at < 2 ? "interleaved" : "zbv", 1 + at % 2);
        }
    }
    for (int k = 0; k < 4; k++) CHECK_TEXT(text[0][k], text[1][k]);
    for (int i = 0; i < 2; i++) question_close(&q[i]);
}

/* A planner that keeps as many as it may drops them, and bounds and prices stay bit by bit. */
static void partitions_that_are_dropped_are_made_again(void **state)
{
    (void)state;
    Question q;
    double bytes[2], step_s[2];
    PlanPrice price[2];
    open_question(&q, "switchyard");
    q.layout.pp = RANKS, q.layout.dp = 4;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(planner_bound(q.planner, &q.layout, &bytes[i], &step_s[i]));
        CHECK_OK(planner_price(q.planner, &q.layout, &price[i]));
        CHECK_INT(q.planner->partitions, 1);
        q.planner->partitions = PRICE_PARTITIONS; /* as if there were so many */
    }
    CHECK_NEAR(bytes[0], bytes[1], 0);
    CHECK_NEAR(step_s[0], step_s[1], 0);
    CHECK_NEAR(price[0].step_s, price[1].step_s, 0);
    CHECK_NEAR(price[0].peak_bytes, price[1].peak_bytes, 0);
    question_close(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_stack_without_balance_keeps_equal_numbers),
        TEST(sharded_parameters_are_spread_evenly_over_ranks),
        TEST(the_rank_of_the_head_has_fewer_blocks),
        TEST(partitions_that_are_dropped_are_made_again),
        TEST(partitions_do_not_depend_on_what_was_asked_before),
    };
    return TEST_RUN(tests);
}
