/* train.batch_ramp: what an entry may be, and sequences by step. */
#include "engine/config/ramp.h"
#include "harness/arena.h"

static Config config_with(const char *ramp)
{
    const char *const set[] = { "train.batch=12", "train.micro_batch=2", ramp };
    Config c;
    CHECK_OK(config_default(&c, &arena));
    for (int i = 0; i < 3; i++) CHECK_OK(config_override(&c, &arena, set[i]));
    return c;
}

static void sequences_are_counted_by_step(void **state)
{
    (void)state;
    const Config c = config_with("train.batch_ramp=[\"3: 4\", \"5: 6\"]");
    CHECK_OK(config_check(&c));
    const BatchRamp r = ramp_of(&c);
    static const int64_t batch[] = { 4, 4, 4, 6, 6, 12, 12 };
    uint64_t sum = 0;
    for (int64_t step = 1; step <= 7; step++) {
        CHECK_INT(ramp_batch(&r, step), batch[step - 1]);
        for (uint64_t more = 0; more < (uint64_t)batch[step - 1]; more++)
            CHECK_INT(ramp_steps(&r, sum + more), step - 1);
        sum += (uint64_t)batch[step - 1];
        CHECK_INT(ramp_sequences(&r, step), sum);
    }
    CHECK_INT(ramp_sequences(&r, 1000000000), 24 + 12ULL * 999999995);
    CHECK_INT(ramp_unit(&c), 2);
    const Config plain = config_with("train.batch_ramp=[]");
    CHECK_INT(ramp_unit(&plain), 12);
    CHECK_INT(ramp_batch(&(BatchRamp){ 1, { { INT64_MAX, 12 } } }, 1), 12);
}

static void wrong_entries_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "[\"4\"]", "train.batch_ramp[0] is \"4\", must be \"STEP: SEQUENCES\"" },
        { "[\"x: 4\"]", "train.batch_ramp[0] is \"x: 4\"" },
        { "[\"4:\"]", "train.batch_ramp[0] is \"4:\"" },
        { "[\"4: 4x\"]", "train.batch_ramp[0] is \"4: 4x\"" },
        { "[\"0: 4\"]", "both at least 1" },
        { "[\"4: 0\"]", "both at least 1" },
        { "[\"4: 4\", \"4: 6\"]", "train.batch_ramp[1] ends at step 4, the one before at 4" },
        { "[\"4: 6\", \"5: 6\"]", "train.batch_ramp[1] has 6 sequences, must be above 6" },
        { "[\"4: 12\"]",
          "train.batch_ramp[0] has 12 sequences, must be above 0, which come before, "
          "and below train.batch 12" },
        { "[\"4: 3\"]", "train.batch_ramp[0], sequences 3 does not divide into passes of "
                        "train.micro_batch 2: 2 or 4 "
                        "would" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char set[96];
        (void)snprintf(set, sizeof set, "train.batch_ramp=%s", cases[i][0]);
        const Config c = config_with(set);
        CHECK_FAILS(config_check(&c), ERR_ARG, cases[i][1]);
    }
}

static void the_nearest_size_that_divides_is_named(void **state)
{
    (void)state;
    const Config c = config_with("train.batch_ramp=[\"3: 4\"]");
    CHECK_OK(ramp_divides(&c, 2, 2));
    CHECK_FAILS(ramp_divides(&c, 3, 1), ERR_ARG,
                "train.batch_ramp[0], sequences 4 does not divide over 3 data-parallel ranks with "
                "train.micro_batch 1: 3 would");
    CHECK_FAILS(ramp_divides(&c, 4, 2), ERR_ARG,
                "train.batch 12 does not divide over 4 "
                "data-parallel ranks with train.micro_batch 2: 8 or 16 would");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sequences_are_counted_by_step),
        TEST(wrong_entries_are_refused),
        TEST(the_nearest_size_that_divides_is_named),
    };
    return ARENA_RUN(tests);
}
