/* checksum: against its definition, for every size of element, and what changes it. */
#include "harness/optest.h"
#include "kernels/optimizer/checksum.h"

static Tensor word(OpTest *t, uint32_t value)
{
    Tensor out = optest_poisoned(t, DTYPE_I32, DIMS(1));
    memcpy(out.data, &value, sizeof value);
    return out;
}

static Tensor scalar(OpTest *t, double value)
{
    Tensor out = optest_poisoned(t, DTYPE_F32, DIMS(1));
    optest_set(&out, 0, value);
    return out;
}

static uint32_t sum_of(OpTest *t, Tensor x, uint32_t before)
{
    uint32_t out = 0;
    Checksum a = { .x = x, .sum = word(t, before) };
    CHECK_OK(checksum(&t->ex, a));
    memcpy(&out, a.sum.data, sizeof out);
    return out;
}

/* The steps of MurmurHash3's finalizer by hand: of 1 it is 0x514E28B7, of 0 it is 0. */
static void one_word_has_the_finalizers_value(void **state)
{
    OpTest *t = *state;
    CHECK_INT(sum_of(t, word(t, 0), 0), 0);
    CHECK_INT(sum_of(t, word(t, 1), 0), 0x514E28B7);
    CHECK_INT(sum_of(t, word(t, 1), 5), 0x514E28BC); /* added to what is there */
}

/* Of the finalizer of bits + i * 0x9E3779B9, in an order of its own. */
static void sums_are_those_of_the_definition(void **state)
{
    OpTest *t = *state;
    static const Dtype types[] = { DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_E4M3, DTYPE_I32 };
    const int64_t counts[] = { 1, 7, 4096, 4097, 100003 };
    for (int k = 0; k < 25; k++) {
        const Dtype type = types[k / 5];
        const int64_t n = counts[k % 5];
        const size_t bytes = dtype_bytes(type);
        ArenaMark mark = arena_mark(&t->arena);
        Tensor x = { 0 };
        uint32_t want = 77;
        CHECK_OK(tensor_new1(&t->arena, type, n, &x));
        for (int64_t i = 0; i < n * (int64_t)bytes; i++)
            ((uint8_t *)x.data)[i] = (uint8_t)(i * 151 >> 3);
        for (int64_t i = n - 1; i >= 0; i--) {
            uint32_t bits = 0;
            memcpy(&bits, (const char *)x.data + (size_t)i * bytes, bytes);
            want += checksum_mix(bits, i);
        }
        CHECK_INT(sum_of(t, x, 77), want);
        t->ex.threads = t->ex.threads % 3 + 1;
        CHECK_INT(sum_of(t, x, 77), want);
        arena_release(&t->arena, mark);
    }
}

static void every_bit_of_every_word_changes_the_sum(void **state)
{
    OpTest *t = *state;
    Tensor x = optest_normal(t, DTYPE_F32, DIMS(9));
    const uint32_t was = sum_of(t, x, 0);
    for (int i = 0; i < 9 * 32; i++) {
        uint32_t *at = (uint32_t *)x.data + i / 32;
        *at ^= 1u << i % 32;
        CHECK(sum_of(t, x, 0) != was);
        *at ^= 1u << i % 32;
    }
}

/* The same numbers elsewhere, and one more of one with one less of another. */
static void places_count(void **state)
{
    OpTest *t = *state;
    Tensor x = optest_poisoned(t, DTYPE_I32, DIMS(4));
    for (int i = 0; i < 4; i++) ((int32_t *)x.data)[i] = 100 + i;
    const uint32_t was = sum_of(t, x, 0);
    ((int32_t *)x.data)[0] = 101, ((int32_t *)x.data)[1] = 100;
    CHECK(sum_of(t, x, 0) != was);
    ((int32_t *)x.data)[0] = 100, ((int32_t *)x.data)[1] = 101;
    CHECK_INT(sum_of(t, x, 0), was);
}

static void a_sum_that_is_off_stays(void **state)
{
    OpTest *t = *state;
    Tensor x = optest_normal(t, DTYPE_F32, DIMS(100));
    for (int on = 0; on <= 2; on++) {
        Checksum a = { .x = x, .sum = word(t, 3), .on = scalar(t, on) };
        CHECK_OK(checksum(&t->ex, a));
        CHECK((*(uint32_t *)a.sum.data == 3) == (on == 0));
    }
}

static void a_comparison_sees_one_word_and_only_where_it_is_on(void **state)
{
    OpTest *t = *state;
    enum { N = 300 };
    for (int i = 0; i < 9; i++) {
        const int place = i % 3 == 0 ? -1 : i % 3 == 1 ? 0 : N - 1, on = i / 3;
        ChecksumCompare a = { .a = optest_poisoned(t, DTYPE_I32, DIMS(N)),
                              .b = optest_poisoned(t, DTYPE_I32, DIMS(N)),
                              .on = scalar(t, on),
                              .differs = scalar(t, 0) };
        for (int k = 0; k < N; k++) ((int32_t *)a.a.data)[k] = ((int32_t *)a.b.data)[k] = k * k;
        if (place >= 0) ((int32_t *)a.a.data)[place] ^= 1;
        CHECK_OK(checksum_compare(&t->ex, a));
        CHECK_NEAR(optest_get(&a.differs, 0), on == 2 && place >= 0, 0);
    }
}

static void words_of_eight_bytes_are_an_error(void **state)
{
    OpTest *t = *state;
    Checksum a = { .x = optest_poisoned(t, DTYPE_I64, DIMS(2)), .sum = word(t, 0) };
    CHECK_FAILS(checksum(&t->ex, a), ERR_SHAPE, "elements of 8 bytes, not of 1, 2 or 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(one_word_has_the_finalizers_value, 1),
        OP_TEST(sums_are_those_of_the_definition, 2),
        OP_TEST(every_bit_of_every_word_changes_the_sum, 1),
        OP_TEST(places_count, 1),
        OP_TEST(a_sum_that_is_off_stays, 2),
        OP_TEST(a_comparison_sees_one_word_and_only_where_it_is_on, 1),
        OP_TEST(words_of_eight_bytes_are_an_error, 1),
    };
    return TEST_RUN(tests);
}
