/* expert_parts against the definition. */
#include "harness/optest.h"
#include "kernels/moe/expert_parts.h"

/* Tokens, entries of a token, parts, experts on a rank, sets of experts. */
static const struct {
    int64_t N, K, P, here, sets;
} sizes[] = { { 1, 1, 1, 1, 1 }, { 7, 2, 2, 4, 1 }, { 257, 3, 4, 2, 3 }, { 65, 8, 3, 5, 7 } };
enum { SIZES = sizeof sizes / sizeof *sizes };

static ExpertPartsFwd forward_args(OpTest *t, int i)
{
    const int64_t n = sizes[i].N, k = sizes[i].K, p = sizes[i].P;
    ExpertPartsFwd a = { .index = optest_poisoned(t, DTYPE_I32, DIMS(n, k)),
                         .weight = optest_normal(t, DTYPE_F32, DIMS(n, k)),
                         .part_index = optest_poisoned(t, DTYPE_I32, DIMS(n, k * p)),
                         .part_weight = optest_poisoned(t, DTYPE_F32, DIMS(n, k * p)),
                         .here = sizes[i].here };
    for (int64_t j = 0; j < n * k; j++)
        optest_set(&a.index, j, (double)(j * 5 % (sizes[i].here * sizes[i].sets)));
    return a;
}

/* Rank q P + p of the group has part p of the experts [q, q + 1) * here, numbered by rank. */
static void each_part_goes_to_the_rank_that_has_it(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < SIZES; i++) {
        ExpertPartsFwd a = forward_args(t, i);
        const int64_t parts = sizes[i].P, here = sizes[i].here;
        CHECK_OK(expert_parts_fwd(&t->ex, a));
        for (int64_t j = 0; j < sizes[i].N * sizes[i].K * parts; j++) {
            int64_t e = (int64_t)optest_get(&a.index, j / parts),
                    number = (int64_t)optest_get(&a.part_index, j);
            CHECK_INT(number / here, e / here * parts + j % parts);
            CHECK_INT(number % here, e % here);
            CHECK(optest_get(&a.part_weight, j) == optest_get(&a.weight, j / parts));
        }
    }
}

static void gradients_of_parts_add_up(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < SIZES; i++) {
        const int64_t n = sizes[i].N, k = sizes[i].K, p = sizes[i].P;
        ExpertPartsBwd a = { .part_dweight = optest_normal(t, DTYPE_F32, DIMS(n, k * p)),
                             .dweight = optest_poisoned(t, DTYPE_F32, DIMS(n, k)) };
        double *part = optest_read(t, &a.part_dweight), *want = optest_read(t, &a.dweight);
        for (int64_t j = 0; j < n * k; j++) {
            want[j] = 0;
            for (int64_t q = 0; q < p; q++) want[j] += part[j * p + q];
        }
        CHECK_OK(expert_parts_bwd(&t->ex, a));
        CHECK_TENSOR(&a.dweight, want);
    }
}

static void wrong_shapes_are_named(void **state)
{
    OpTest *t = *state;
    ExpertPartsFwd a = forward_args(t, 1), none = a;
    a.part_index = optest_poisoned(t, DTYPE_I32, DIMS(7, 3));
    a.part_weight = optest_poisoned(t, DTYPE_F32, DIMS(7, 3));
    CHECK_FAILS(expert_parts_fwd(&t->ex, a), ERR_SHAPE, "3 parts of the 2 experts of a token");
    none.here = 0;
    CHECK_FAILS(expert_parts_fwd(&t->ex, none), ERR_ARG, "parts of 0 experts on a rank");
    ExpertPartsBwd b = { .part_dweight = optest_normal(t, DTYPE_F32, DIMS(7, 5)),
                         .dweight = optest_poisoned(t, DTYPE_F32, DIMS(7, 2)) };
    CHECK_FAILS(expert_parts_bwd(&t->ex, b), ERR_SHAPE, "5 parts of the 2 experts");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(each_part_goes_to_the_rank_that_has_it, 2),
        OP_TEST(gradients_of_parts_add_up, 2),
        OP_TEST(wrong_shapes_are_named, 2),
    };
    return TEST_RUN(tests);
}
