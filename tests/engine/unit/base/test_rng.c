#include "harness/test.h"

#include "engine/base/philox.h"
#include "engine/base/rng.h"

#include <stdbool.h>
#include <stdlib.h>

enum { N_NORMAL = 100003 };

static const double TAIL = 0.0013498980316300945; /* P(Z < -3) */

static float normal[N_NORMAL], other[N_NORMAL];

static void check_philox(const uint32_t key[2], const uint32_t counter[4], const uint32_t want[4])
{
    uint32_t got[4] = { 0 };
    philox(key, counter, got);
    for (int i = 0; i < 4; i++) CHECK_INT(got[i], want[i]);
}

/* The three vectors of Random123's known-answer file for philox4x32 with 10 rounds. */
static void philox_gives_the_known_answers(void **state)
{
    (void)state;
    check_philox((uint32_t[]){ 0, 0 }, (uint32_t[]){ 0, 0, 0, 0 },
                 (uint32_t[]){ 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 });
    check_philox((uint32_t[]){ ~0u, ~0u }, (uint32_t[]){ ~0u, ~0u, ~0u, ~0u },
                 (uint32_t[]){ 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd });
    check_philox((uint32_t[]){ 0xa4093822, 0x299f31d0 },
                 (uint32_t[]){ 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
                 (uint32_t[]){ 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 });
}

/* The counter's layout is part of what a checkpoint relies on. */
static void element_i_is_word_i_of_its_block(void **state)
{
    (void)state;
    uint64_t seed = 0x299f31d0a4093822, stream = 0x0370734413198a2e, block = 0x05a308d3243f6a88;
    uint32_t want[4];
    philox((uint32_t[]){ 0xa4093822, 0x299f31d0 },
           (uint32_t[]){ 0x243f6a88, 0x05a308d3, 0x13198a2e, 0x03707344 }, want);
    for (uint64_t i = 0; i < 4; i++) CHECK_INT(rng_u32(seed, stream, 4 * block + i), want[i]);
}

/* XXH3-64 with seed 0, from xxHash's own `xxhsum -H3`. */
static void a_stream_is_the_hash_of_its_name(void **state)
{
    (void)state;
    CHECK_INT(rng_stream(""), 0x2D06800538D394C2);
    CHECK_INT(rng_stream("abc"), 0x78AF5F94892F3950);
}

static void seed_stream_and_index_all_matter(void **state)
{
    (void)state;
    uint32_t v = rng_u32(1, 2, 3);
    CHECK(v != rng_u32(2, 2, 3) && v != rng_u32(1, 3, 3) && v != rng_u32(1, 2, 4));
    CHECK(v != rng_u32(1 + (1ull << 32), 2, 3) && v != rng_u32(1, 2 + (1ull << 32), 3));
}

/* Chi square with 99 degrees of freedom is below 149 with probability 0.999. */
static void uniform_values_spread_evenly(void **state)
{
    (void)state;
    int count[100] = { 0 };
    for (uint64_t i = 0; i < 100000; i++) {
        double u = rng_uniform(5, 6, i);
        CHECK(u >= 0 && u < 1);
        count[(int)(u * 100)]++;
    }
    double chi2 = 0;
    for (int b = 0; b < 100; b++) chi2 += (count[b] - 1000.0) * (count[b] - 1000.0) / 1000;
    CHECK(chi2 < 149);
    CHECK(chi2 > 50);
}

/* 6 degrees of freedom: below 22.5 with probability 0.999. */
static void below_n_every_value_is_as_likely(void **state)
{
    (void)state;
    int count[7] = { 0 };
    for (uint64_t i = 0; i < 70000; i++) {
        uint64_t v = rng_below(7, 8, i, 7);
        CHECK(v < 7);
        count[v]++;
    }
    double chi2 = 0;
    for (int b = 0; b < 7; b++) chi2 += (count[b] - 10000.0) * (count[b] - 10000.0) / 10000;
    CHECK(chi2 < 22.5);
}

static void below_a_large_n_all_64_bits_are_random(void **state)
{
    (void)state;
    uint64_t n = (3ull << 62) + 12345, ones = 0, zeros = 0;
    for (uint64_t i = 0; i < 200; i++) {
        uint64_t v = rng_below(9, 10, i, n);
        CHECK(v < n);
        ones |= v;
        zeros |= ~v;
    }
    CHECK_INT(ones, -1);
    CHECK_INT(zeros, -1);
}

static void below_one_is_zero(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100; i++) CHECK_INT(rng_below(1, 1, i, 1), 0);
}

/* The distribution function, by erfc, must lead back from the value to the draw it was made of. */
static void normal_values_are_the_inverse_of_the_distribution_function(void **state)
{
    (void)state;
    uint64_t first = 17;
    rng_fill_normal(normal, N_NORMAL, 11, 12, first, 1.0);
    for (uint64_t i = 0; i < N_NORMAL; i++) {
        double p = erfc(-(double)normal[i] / sqrt(2)) / 2;
        double u = (rng_u32(11, 12, first + i) + 0.5) / 4294967296.0;
        CHECK_NEAR((p - TAIL) / (1 - 2 * TAIL), u, 1e-7); /* f32: 3 * 2^-24 * 0.4 */
    }
}

static void normal_values_stay_within_three_deviations(void **state)
{
    (void)state;
    rng_fill_normal(normal, N_NORMAL, 13, 14, 0, 0.006);
    float largest = 0;
    for (int i = 0; i < N_NORMAL; i++) largest = fmaxf(largest, fabsf(normal[i]));
    CHECK(largest <= 0.018f);
    CHECK(largest > 0.0175f);
}

/* Var = 1 - 6 phi(3) / (1 - 2 Phi(-3)) = 0.97334; standard error of both at this n: under 0.005 */
static void normal_values_have_their_mean_and_deviation(void **state)
{
    (void)state;
    double sum = 0, sum2 = 0;
    rng_fill_normal(normal, N_NORMAL, 15, 16, 0, 2.0);
    for (int i = 0; i < N_NORMAL; i++) {
        sum += (double)normal[i] / 2;
        sum2 += (double)normal[i] * (double)normal[i] / 4;
    }
    CHECK_NEAR(sum / N_NORMAL, 0, 0.01);
    CHECK_NEAR(sum2 / N_NORMAL, 0.97334, 0.015);
}

static void a_tensor_filled_in_pieces_has_the_same_bits(void **state)
{
    (void)state;
    rng_fill_normal(normal, N_NORMAL, 17, 18, 5, 0.02);
    memset(other, 0xFF, sizeof other);
    for (int64_t at = 0, n = 1; at < N_NORMAL; at += n, n = n * 3 % 1009 + 1) {
        int64_t piece = n < N_NORMAL - at ? n : N_NORMAL - at;
        rng_fill_normal(other + at, piece, 17, 18, 5 + (uint64_t)at, 0.02);
    }
    for (int i = 0; i < N_NORMAL; i++) CHECK_NEAR(other[i], normal[i], 0);
}

static void filling_writes_nothing_beside_its_range(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 10; n++) {
        float out[16];
        memset(out, 0xFF, sizeof out);
        rng_fill_normal(out + 3, n, 19, 20, 6, 1);
        for (int i = 0; i < 16; i++) CHECK(isnan(out[i]) == (i < 3 || i >= 3 + n));
    }
}

static void check_bijection(uint64_t seed, uint64_t n)
{
    static unsigned char seen[1 << 17];
    memset(seen, 0, n);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t to = rng_permute(seed, 21, i, n);
        if (to >= n) fail_msg("n %d: %d goes to %lld", (int)n, (int)i, (long long)to);
        if (seen[to]++) fail_msg("n %d: %d is reached twice", (int)n, (int)to);
    }
}

static void a_permutation_reaches_every_element_once(void **state)
{
    (void)state;
    static const uint64_t LARGE[] = { 1000, 1023, 1024, 1025, 4095, 4096, 4097, 65537, 99991 };
    for (uint64_t n = 1; n <= 300; n++) check_bijection(n, n);
    for (int i = 0; i < 9; i++) check_bijection(7, LARGE[i]);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void a_huge_permutation_stays_in_range_and_repeats_nothing(void **state)
{
    (void)state;
    static const uint64_t N[] = { (1ull << 40) + 1, 1ull << 62, (1ull << 62) + 1, UINT64_MAX };
    for (int k = 0; k < 4; k++) {
        uint64_t to[2000];
        for (uint64_t i = 0; i < 2000; i++) {
            to[i] = rng_permute(3, 4, N[k] - 1 - i * (N[k] / 2000), N[k]);
            CHECK(to[i] < N[k]);
        }
        qsort(to, 2000, sizeof to[0], compare_u64);
        for (int i = 1; i < 2000; i++) CHECK(to[i - 1] != to[i]);
    }
}

/* All 24 orders of four elements, over many seeds; 23 degrees of freedom: below 49.7 with
 * probability 0.999. */
static void every_order_of_four_is_as_likely(void **state)
{
    (void)state;
    int count[256] = { 0 };
    for (uint64_t seed = 0; seed < 24000; seed++) {
        uint64_t code = 0;
        for (uint64_t i = 0; i < 4; i++) code = code * 4 + rng_permute(seed, 22, i, 4);
        count[code]++;
    }
    double chi2 = 0;
    int orders = 0;
    for (int i = 0; i < 256; i++) {
        if (count[i] == 0) continue;
        orders++;
        chi2 += (count[i] - 1000.0) * (count[i] - 1000.0) / 1000;
    }
    CHECK_INT(orders, 24);
    CHECK(chi2 < 49.7);
}

/* Where one element goes, over many seeds; 99 degrees of freedom. */
static void an_element_goes_anywhere_with_equal_chance(void **state)
{
    (void)state;
    int count[100] = { 0 };
    for (uint64_t seed = 0; seed < 50000; seed++) count[rng_permute(seed, 23, 42, 100)]++;
    double chi2 = 0;
    for (int b = 0; b < 100; b++) chi2 += (count[b] - 500.0) * (count[b] - 500.0) / 500;
    CHECK(chi2 < 149);
}

/* Fixed points of a random permutation are Poisson with mean 1, neighbours that stay neighbours
 * with mean 2. */
static void a_permutation_keeps_no_order(void **state)
{
    (void)state;
    int fixed = 0, neighbours = 0;
    for (uint64_t i = 0; i + 1 < 100000; i++) {
        uint64_t a = rng_permute(24, 25, i, 100000), b = rng_permute(24, 25, i + 1, 100000);
        fixed += a == i;
        neighbours += a + 1 == b || b + 1 == a;
    }
    CHECK(fixed <= 6);
    CHECK(neighbours <= 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(philox_gives_the_known_answers),
        TEST(element_i_is_word_i_of_its_block),
        TEST(a_stream_is_the_hash_of_its_name),
        TEST(seed_stream_and_index_all_matter),
        TEST(uniform_values_spread_evenly),
        TEST(below_n_every_value_is_as_likely),
        TEST(below_a_large_n_all_64_bits_are_random),
        TEST(below_one_is_zero),
        TEST(normal_values_are_the_inverse_of_the_distribution_function),
        TEST(normal_values_stay_within_three_deviations),
        TEST(normal_values_have_their_mean_and_deviation),
        TEST(a_tensor_filled_in_pieces_has_the_same_bits),
        TEST(filling_writes_nothing_beside_its_range),
        TEST(a_permutation_reaches_every_element_once),
        TEST(a_huge_permutation_stays_in_range_and_repeats_nothing),
        TEST(every_order_of_four_is_as_likely),
        TEST(an_element_goes_anywhere_with_equal_chance),
        TEST(a_permutation_keeps_no_order),
    };
    return TEST_RUN(tests);
}
