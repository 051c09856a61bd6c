#include "corpus/shard/mix.h"
#include "harness/test.h"

/* After each of n slots, every source is less than one sequence away from its share. */
static void check_within_one(const double *weight, int n_sources, int n)
{
    Mix m;
    double sum = 0;
    for (int i = 0; i < n_sources; i++) sum += weight[i];
    CHECK_OK(mix_init(&m, weight, n_sources));
    for (int slot = 1; slot <= n; slot++) {
        int chosen = mix_next(&m);
        CHECK(chosen >= 0 && chosen < n_sources);
        int64_t all = 0;
        for (int i = 0; i < n_sources; i++) {
            CHECK_NEAR((double)mix_taken(&m, i), weight[i] / sum * slot, 1.001);
            all += mix_taken(&m, i);
        }
        CHECK_INT(all, slot);
    }
}

static void every_source_is_always_within_one_of_its_share(void **state)
{
    (void)state;
    const double even[] = { 1, 1, 1 }, skewed[] = { 0.7, 0.2, 0.1 }, one[] = { 5 };
    /* taking the source that is furthest behind leaves one of these 1.08 behind at slot 1076 */
    const double hard[] = { 0.00042515424578539596, 0.09191232581626789, 0.4471023470064869,
                            0.4601442759858924, 0.0004158969455673867 };
    double many[MIX_MAX];
    for (int i = 0; i < MIX_MAX; i++) many[i] = 1.0 / ((i + 1) * (i % 7 + 1));
    check_within_one(even, 3, 1000);
    check_within_one(skewed, 3, 1000);
    check_within_one(one, 1, 10);
    check_within_one(hard, 5, 5000);
    check_within_one(many, MIX_MAX, 5000);
}

static void seeking_continues_where_walking_would(void **state)
{
    (void)state;
    const double weight[] = { 3, 1.5, 0.25 };
    Mix walked, sought;
    CHECK_OK(mix_init(&walked, weight, 3));
    CHECK_OK(mix_init(&sought, weight, 3));
    for (uint64_t slot = 0; slot < 300; slot++) {
        mix_seek(&sought, slot);
        for (int i = 0; i < 3; i++) CHECK_INT(mix_taken(&sought, i), mix_taken(&walked, i));
        CHECK_INT(mix_next(&sought), mix_next(&walked));
    }
}

static void seeking_far_gives_the_share_exactly(void **state)
{
    (void)state;
    const double weight[] = { 3, 1 };
    Mix m;
    CHECK_OK(mix_init(&m, weight, 2));
    mix_seek(&m, (uint64_t)4 << 50);
    CHECK_INT(mix_taken(&m, 0), (int64_t)3 << 50);
    CHECK_INT(mix_taken(&m, 1), (int64_t)1 << 50);
    CHECK_INT(4 * m.task[0].rate, 3 * m.total);
}

static void a_source_of_weight_0_never_comes(void **state)
{
    (void)state;
    const double weight[] = { 0, 2, 0, 1 };
    Mix m;
    CHECK_OK(mix_init(&m, weight, 4));
    for (int slot = 1; slot <= 300; slot++) CHECK(mix_next(&m) % 2 == 1);
    mix_seek(&m, 3000);
    CHECK_INT(mix_taken(&m, 0) + mix_taken(&m, 2), 0);
    CHECK_INT(mix_taken(&m, 1), 2000);
}

static void weights_that_give_no_share_are_refused(void **state)
{
    (void)state;
    const double zero[] = { 0, 0 }, negative[] = { 1, -1 }, nan_[] = { 1, (double)NAN },
                 infinite[] = { 1, (double)INFINITY }, tiny[] = { 1, 1e-9 };
    Mix m;
    CHECK_FAILS(mix_init(&m, zero, 2), ERR_ARG, "all 2 sources have weight 0");
    CHECK_FAILS(mix_init(&m, negative, 2), ERR_ARG, "weight -1");
    CHECK_FAILS(mix_init(&m, nan_, 2), ERR_ARG, "nan");
    CHECK_FAILS(mix_init(&m, infinite, 2), ERR_ARG, "inf");
    CHECK_FAILS(mix_init(&m, tiny, 2), ERR_ARG, "the smallest kept is 1.49e-08");
    CHECK_FAILS(mix_init(&m, zero, 0), ERR_ARG, "0 sources, 1 to 64");
    CHECK_FAILS(mix_init(&m, zero, MIX_MAX + 1), ERR_ARG, "65 sources, 1 to 64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_source_is_always_within_one_of_its_share),
        TEST(seeking_continues_where_walking_would),
        TEST(seeking_far_gives_the_share_exactly),
        TEST(a_source_of_weight_0_never_comes),
        TEST(weights_that_give_no_share_are_refused),
    };
    return TEST_RUN(tests);
}
