/* The law of meshes for drawn models and meshes: each is one rank's training and evaluation, in the
 * memory that was planned, or is refused. */
#include "harness/draw_mesh.h"

static void drawn_models_on_drawn_meshes_are_one_rank_s(void **state)
{
    (void)state;
    run_drawn(RUNS(40, 5), RANKS_MOST, (Many){ .steps = 2, .alike = 1, .limit = 1e-5 });
}

/* Gradients of sinks whose terms cancel (harness/sink_terms.h), among others. */
static void cases_that_failed_once_are_one_rank_s(void **state)
{
    (void)state;
    const int cases[] = { 38, 1165, 1437 };
    DrawnRuns runs = { 0 };
    for (int i = 0; i < 3; i++)
        run_drawn_case(cases[i], RANKS_MOST, (Many){ .steps = 2, .alike = 1, .limit = 1e-5 },
                       &runs);
    CHECK_INT(runs.ran, 3);
    CHECK_INT(runs.wrong, 0);
}

/* A rounding may send a token to another expert, and an expert has few tokens here. */
static void in_bf16_their_gradients_point_the_same_way(void **state)
{
    (void)state;
    run_drawn(RUNS(12, 3), RANKS_MOST,
              (Many){ .steps = 1, .limit = 0.1, .cosine = 0.5, .also = TINY("run.compute=bf16") });
}

/* What a mesh rounds otherwise is test_recipe's: here only what no mesh may lose. */
static void in_8_bits_their_gradients_point_the_same_way(void **state)
{
    (void)state;
    run_drawn(RUNS(12, 4), RANKS_MOST,
              (Many){ .steps = 1, .limit = 0.1, .cosine = 0.5, .also = TINY("fp8.recipe=block") });
}

int main(void)
{
    const struct CMUnitTest tests[] = { TEST(drawn_models_on_drawn_meshes_are_one_rank_s),
                                        TEST(cases_that_failed_once_are_one_rank_s),
                                        TEST(in_bf16_their_gradients_point_the_same_way),
                                        TEST(in_8_bits_their_gradients_point_the_same_way) };
    return TEST_RUN(tests);
}
