/* jitter against base/rng's numbers in double: a function of seed, layer, step, token and expert. */
#include "harness/optest.h"
#include "op/jitter.h"

#include "base/rng.h"

enum { B = 3, T = 7, POSITIONS = 20 };

static Jitter args(OpTest *t, int64_t experts)
{
    Jitter a = { .x = optest_normal(t, DTYPE_F32, DIMS(B * T, experts)),
                 .sequence = optest_poisoned(t, DTYPE_I32, DIMS(B)),
                 .pos = optest_poisoned(t, DTYPE_I32, DIMS(B * T)),
                 .step = optest_poisoned(t, DTYPE_I32, DIMS(1)),
                 .positions = POSITIONS,
                 .layer = 2,
                 .seed = 0x123456789abcdefULL,
                 .size = 0.25f };
    for (int i = 0; i < B; i++) optest_set(&a.sequence, i, 5 + 2 * i);
    for (int i = 0; i < B * T; i++) optest_set(&a.pos, i, i % T < 3 ? i % T : 10 + i % T);
    optest_set(&a.step, 0, 1000003);
    return a;
}

static double factor(const Jitter *a, int64_t sequence, int64_t pos, int64_t expert)
{
    uint64_t stream =
        rng_stream("moe.jitter") + ((uint64_t)a->layer << 32) + (uint64_t)optest_get(&a->step, 0);
    uint64_t token = (uint64_t)(sequence * a->positions + pos);
    uint64_t i = token * (uint64_t)tensor_cols(&a->x) + (uint64_t)expert;
    return 1 + (double)a->size * (2 * rng_uniform(a->seed, stream, i) - 1);
}

static void every_logit_has_a_number_of_its_own(void **state)
{
    OpTest *t = *state;
    static const int64_t experts[] = { 1, 5, 8, 257 };
    for (int k = 0; k < 4; k++) {
        Jitter a = args(t, experts[k]);
        double *want = optest_read(t, &a.x);
        for (int64_t i = 0; i < B * T; i++) {
            int64_t s = (int64_t)optest_get(&a.sequence, i / T), p = (int64_t)optest_get(&a.pos, i);
            for (int64_t e = 0; e < experts[k]; e++)
                want[i * experts[k] + e] *= factor(&a, s, p, e);
        }
        CHECK_OK(jitter(&t->ex, a));
        CHECK_TENSOR(&a.x, want);
    }
}

/* Ones become factors: within their bounds, 1 in the mean, others in another step or layer. */
static void numbers_are_even_and_change_with_the_step(void **state)
{
    OpTest *t = *state;
    Jitter a = args(t, 257), step = a, layer = a;
    for (int64_t i = 0; i < tensor_elems(&a.x); i++) optest_set(&a.x, i, 1);
    step.x = optest_copy(t, &a.x), layer.x = optest_copy(t, &a.x);
    step.step = optest_copy(t, &a.step), layer.layer = 3;
    optest_set(&step.step, 0, 1000004);
    CHECK_OK(jitter(&t->ex, a));
    CHECK_OK(jitter(&t->ex, step));
    CHECK_OK(jitter(&t->ex, layer));
    double sum = 0;
    int64_t n = tensor_elems(&a.x), same = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = optest_get(&a.x, i);
        CHECK(x >= 0.75 && x <= 1.25);
        sum += x;
        same += x == optest_get(&step.x, i) || x == optest_get(&layer.x, i);
    }
    CHECK_NEAR(sum / (double)n, 1, 0.01);
    CHECK(same < n / 100);
}

static void a_size_or_a_shape_that_is_none_is_an_error(void **state)
{
    OpTest *t = *state;
    Jitter a = args(t, 8), bad = a;
    bad.size = 1.5f;
    CHECK_FAILS(jitter(&t->ex, bad), ERR_ARG, "jitter: size 1.5");
    bad = a, bad.sequence = optest_poisoned(t, DTYPE_I32, DIMS(4));
    CHECK_FAILS(jitter(&t->ex, bad), ERR_ARG, "of 4 sequences");
    bad = a, bad.x = optest_poisoned(t, DTYPE_F32, DIMS(20, 8));
    CHECK_FAILS(jitter(&t->ex, bad), ERR_SHAPE, "jitter: x is (20, 8)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(every_logit_has_a_number_of_its_own, 2),
        OP_TEST(numbers_are_even_and_change_with_the_step, 2),
        OP_TEST(a_size_or_a_shape_that_is_none_is_an_error, 1),
    };
    return TEST_RUN(tests);
}
