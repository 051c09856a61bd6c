/* The helpers of kernels/core/cpu_math.h that ops build on. */
#include "harness/optest.h"

#include "kernels/core/cpu_math.h"

/* Units in the last place of an f32 near v; below the normal range they no longer shrink. */
static double ulp(double v)
{
    int exponent;
    (void)frexp(v, &exponent);
    return exponent < -125 ? 0x1p-149 : ldexp(1, exponent - 24);
}

/* Every 4,001st of all floats: all signs, exponents, infinities and NaNs. */
static void exp_is_within_two_ulp_everywhere(void **state)
{
    (void)state;
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += 4001) {
        float x = f32_from_bits((uint32_t)bits), got = exp_f32(x);
        double want = exp((double)x);
        if (isnan(x)) {
            CHECK(isnan(got));
        } else if (isinf((float)want)) {
            CHECK(isinf(got) && got > 0);
        } else {
            CHECK_NEAR(got, want, 2 * ulp(want));
        }
    }
}

static void exp_of_infinities_is_exact(void **state)
{
    (void)state;
    CHECK(exp_f32(-INFINITY) == 0);
    CHECK(isinf(exp_f32(INFINITY)));
    CHECK(exp_f32(0) == 1 && exp_f32(-0.0f) == 1);
    CHECK(exp_f32(-103) > 0); /* the last subnormals are not flushed */
}

static void max_finds_the_largest_wherever_it_stands(void **state)
{
    (void)state;
    float x[131];
    CHECK(max_f32(x, 0) == -INFINITY);
    for (int64_t n = 1; n <= 131; n += 13) {
        for (int64_t at = 0; at < n; at++) {
            for (int64_t i = 0; i < n; i++) x[i] = -5 - (float)i;
            x[at] = -1;
            CHECK(max_f32(x, n) == -1);
        }
    }
}

static void max_passes_nan_over(void **state)
{
    (void)state;
    float x[40];
    for (int i = 0; i < 40; i++) x[i] = i % 3 == 0 ? NAN : (float)i;
    CHECK(max_f32(x, 40) == 38);
}

static void f32_rows_are_used_where_they_are(void **state)
{
    (void)state;
    float data[6] = { 1, 2, 3, 4, 5, 6 }, buffer[2] = { -1, -1 };
    Tensor t = { .data = data, .dtype = DTYPE_F32, .rank = 1, .dim = { 6 } };
    CHECK(row_load(&t, 2, 2, buffer) == data + 2);
    float *row = row_open(&t, 4, buffer);
    row[0] = 50;
    row_store(&t, 4, 2, row);
    CHECK(data[4] == 50 && data[5] == 6 && buffer[0] == -1);
    row_store(&t, 0, 2, buffer);
    CHECK(data[0] == -1 && data[1] == -1 && data[2] == 3);
}

static void bf16_rows_pass_through_the_buffer(void **state)
{
    (void)state;
    uint16_t data[4];
    float buffer[2];
    Tensor t = { .data = data, .dtype = DTYPE_BF16, .rank = 1, .dim = { 4 } };
    for (int i = 0; i < 4; i++) data[i] = bf16_from_f32((float)i + 0.5f);
    CHECK(row_load(&t, 2, 2, buffer) == buffer && buffer[0] == 2.5f && buffer[1] == 3.5f);
    float *row = row_open(&t, 1, buffer);
    row[0] = 8.015625f, row[1] = -4; /* 8 + 2^-6: a quarter of the way to the next bf16 */
    row_store(&t, 1, 2, row);
    CHECK(f32_from_bf16(data[0]) == 0.5f && f32_from_bf16(data[1]) == 8);
    CHECK(f32_from_bf16(data[2]) == -4 && f32_from_bf16(data[3]) == 3.5f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(exp_is_within_two_ulp_everywhere),         TEST(exp_of_infinities_is_exact),
        TEST(max_finds_the_largest_wherever_it_stands), TEST(max_passes_nan_over),
        TEST(f32_rows_are_used_where_they_are),         TEST(bf16_rows_pass_through_the_buffer),
    };
    return TEST_RUN(tests);
}
