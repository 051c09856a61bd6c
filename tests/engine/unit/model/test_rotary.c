/* rotary: frequencies worked by hand. theta 16 over 8 columns makes them 1, 1/2, 1/4, 1/8, and
 * `original` 16 pi makes the pairs turn 8, 4, 2 and 1 times. */
#include "harness/test.h"

#include "engine/model/rotary.h"

#include <math.h>
#include <stdlib.h>

enum { PAIRS = 4, POSITIONS = 3 };

static RotarySpec spec_of(int scaling)
{
    return (RotarySpec){ .scaling = scaling,
                         .dim = 2 * PAIRS,
                         .theta = 16,
                         .factor = 4,
                         .original = 16 * acos(-1),
                         .beta_fast = 4,
                         .beta_slow = 1,
                         .low_freq = 1,
                         .high_freq = 4,
                         .truncate = true };
}

/* The table turns by these frequencies, and multiplies by m. */
static void check_table(const RotarySpec *r, const double *frequency, double m)
{
    float c[POSITIONS * PAIRS], s[POSITIONS * PAIRS];
    rotary_table(r, POSITIONS, c, s);
    for (int i = 0; i < POSITIONS * PAIRS; i++) {
        int position = i / PAIRS;
        double angle = position * frequency[i % PAIRS];
        CHECK_NEAR(c[i], m * cos(angle), 1e-6);
        CHECK_NEAR(s[i], m * sin(angle), 1e-6);
    }
}

static void nothing_is_stretched_by_default(void **state)
{
    (void)state;
    RotarySpec r = spec_of(SCALING_NONE);
    r.mscale = r.mscale_all_dim = 1;
    check_table(&r, (double[]){ 1, 0.5, 0.25, 0.125 }, 1);
    CHECK_NEAR(rotary_score_factor(&r), 1, 0);
}

static void linear_stretches_all_alike(void **state)
{
    (void)state;
    RotarySpec r = spec_of(SCALING_LINEAR);
    check_table(&r, (double[]){ 0.25, 0.125, 0.0625, 0.03125 }, 1);
}

/* Pairs that turn 4 times or more keep their frequency, that of 1 turn is divided by 4; that of 2 is
 * a third of the way: 1/4 (1/3 + 2/3 / 4). */
static void llama3_goes_by_turns(void **state)
{
    (void)state;
    RotarySpec r = spec_of(SCALING_LLAMA3);
    check_table(&r, (double[]){ 1, 0.5, 0.125, 0.03125 }, 1);
}

/* 4 turns are pair 1's, 1 turn is pair 3's; pair 2 is half way: 1/4 (1/2 + 1/2 / 4). */
static void yarn_goes_by_pairs(void **state)
{
    (void)state;
    RotarySpec r = spec_of(SCALING_YARN);
    check_table(&r, (double[]){ 1, 0.5, 0.15625, 0.03125 }, 1);
}

/* Bounds at pairs 1/2 and 5/2: from 0 to 3 where they are rounded. */
static void yarn_rounds_its_bounds_outwards(void **state)
{
    (void)state;
    RotarySpec r = spec_of(SCALING_YARN);
    r.beta_fast = 8 / pow(2, 0.5), r.beta_slow = 8 / pow(2, 2.5);
    check_table(&r, (double[]){ 1, 0.5 * 0.75, 0.25 * 0.5, 0.03125 }, 1);
    r.truncate = false;
    check_table(&r, (double[]){ 1, 0.5 * (0.75 + 0.25 / 4), 0.25 * (0.25 + 0.75 / 4), 0.03125 }, 1);
}

/* Bounds at pairs -3 and -1/2 both become pair 0: all but that one are stretched. */
static void yarn_with_bounds_at_one_place_is_a_step(void **state)
{
    (void)state;
    RotarySpec r = spec_of(SCALING_YARN);
    r.beta_fast = 64, r.beta_slow = 8 * sqrt(2);
    check_table(&r, (double[]){ 1, 0.125, 0.0625, 0.03125 }, 1);
}

/* The upper bound is pair 6 of 4: the last pair is half way from pair 0 there. */
static void yarn_may_end_behind_the_last_pair(void **state)
{
    (void)state;
    RotarySpec r = spec_of(SCALING_YARN);
    r.beta_fast = 8, r.beta_slow = 0.125;
    check_table(
        &r, (double[]){ 1, 0.5 * (1 - 0.75 / 6), 0.25 * (1 - 0.75 / 3), 0.125 * (1 - 0.75 / 2) },
        1);
}

/* ln(factor) is 10, so m(s) is 1 + s. */
static void yarn_sharpens_rotated_columns_and_scores(void **state)
{
    (void)state;
    RotarySpec r = spec_of(SCALING_YARN);
    r.factor = exp(10);
    r.beta_fast = 0.25, r.beta_slow = 0.125; /* pairs 5 and 6: nothing is stretched */
    r.mscale = 2, r.mscale_all_dim = 0.5;
    check_table(&r, (double[]){ 1, 0.5, 0.25, 0.125 }, 2);
    CHECK_NEAR(rotary_score_factor(&r), 2.25, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_stretched_by_default),
        TEST(linear_stretches_all_alike),
        TEST(llama3_goes_by_turns),
        TEST(yarn_goes_by_pairs),
        TEST(yarn_rounds_its_bounds_outwards),
        TEST(yarn_with_bounds_at_one_place_is_a_step),
        TEST(yarn_may_end_behind_the_last_pair),
        TEST(yarn_sharpens_rotated_columns_and_scores),
    };
    return TEST_RUN(tests);
}
