/* The vector arithmetic of attention's tiles against libm and plain loops. */
#include "harness/test.h"

#include "kernels/attention/attention_tile.h"

#include <math.h>

static void powers_of_two_are_within_two_ulp(void **state)
{
    (void)state;
    for (int i = -125 * 997; i < 125 * 997; i++) {
        float x = (float)i / 997;
        double want = exp2((double)x), ulp = exp2(floor((double)x) - 23);
        CHECK_NEAR(vector_exp2(vector_of(x))[0], want, 2 * ulp);
    }
}

static void hidden_scores_weigh_nothing_and_nan_stays(void **state)
{
    (void)state;
    CHECK(vector_exp2(vector_of(-INFINITY))[0] == 0);
    CHECK(vector_exp2(vector_of(-126.5f))[0] == 0);
    CHECK(vector_exp2(vector_of(-3e38f))[0] == 0);
    CHECK(vector_exp2(vector_of(0))[0] == 1);
    CHECK(isnan(vector_exp2(vector_of(NAN))[0]));
}

static void folding_gives_every_row_its_own_lane(void **state)
{
    (void)state;
    Vector v[STRIP], w[STRIP];
    for (int r = 0; r < STRIP; r++) {
        for (int l = 0; l < LANES; l++) v[r][l] = (float)((r + 1) * (l + 1) % 13 - 20);
        w[r] = v[r];
    }
    Vector sums = rows_fold(v, true);
    for (int r = 0; r < STRIP; r++) v[r] = w[r];
    Vector largest = rows_fold(v, false);
    for (int r = 0; r < STRIP; r++) {
        float sum = 0, max = -INFINITY;
        for (int l = 0; l < LANES; l++) sum += w[r][l], max = fmaxf(max, w[r][l]);
        CHECK_NEAR(sums[r * ROW_LANES], sum, 0);
        CHECK_NEAR(largest[r * ROW_LANES], max, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(powers_of_two_are_within_two_ulp),
        TEST(hidden_scores_weigh_nothing_and_nan_stays),
        TEST(folding_gives_every_row_its_own_lane),
    };
    return TEST_RUN(tests);
}
