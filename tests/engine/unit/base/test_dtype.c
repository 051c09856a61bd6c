/*
 * The witness: a table of all values of a format as doubles, made from the definition
 * (-1)^s 2^(e - bias) 1.m, and a search for the nearest one. One more entry, what the largest code
 * plus one would mean with a wider exponent, decides what overflows. Ties go to the even code.
 */
#include "harness/test.h"

#include "engine/base/dtype.h"
#include "engine/base/rng.h"

#include <stdbool.h>

enum { CODES_MAX = 1 << 15, RANDOM_INPUTS = 200000 };

typedef struct Case {
    Dtype type;
    int bits, mantissa_bits, bias;
    uint32_t largest, overflow; /* codes without sign */
} Case;

static const Case CASE[] = {
    { DTYPE_BF16, 16, 7, 127, 0x7F7F, 0x7F80 },
    { DTYPE_F16, 16, 10, 15, 0x7BFF, 0x7C00 },
    { DTYPE_E4M3, 8, 3, 7, 0x7E, 0x7F },
    { DTYPE_E5M2, 8, 2, 15, 0x7B, 0x7C },
};

enum { CASES = sizeof CASE / sizeof CASE[0] };

static double table[CODES_MAX + 1];

static double value_of(const Case *c, uint32_t code)
{
    int exponent = (int)(code >> c->mantissa_bits);
    double mantissa = (double)(code & ((1u << c->mantissa_bits) - 1)) / (1 << c->mantissa_bits);
    if (exponent == 0) return ldexp(mantissa, 1 - c->bias);
    return ldexp(1 + mantissa, exponent - c->bias);
}

static void make_table(const Case *c)
{
    for (uint32_t code = 0; code <= c->largest + 1; code++) table[code] = value_of(c, code);
}

static uint32_t sign_of(const Case *c, float v) { return signbit(v) ? 1u << (c->bits - 1) : 0; }

static uint32_t nearest_code(const Case *c, float v)
{
    double x = fabs((double)v);
    if (x >= table[c->largest + 1]) return sign_of(c, v) | c->overflow;
    uint32_t low = 0, high = c->largest + 1; /* table[low] <= x < table[high] */
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (table[middle] <= x)
            low = middle;
        else
            high = middle;
    }
    double down = x - table[low], up = table[high] - x;
    uint32_t code = down < up || (down == up && low % 2 == 0) ? low : high;
    return sign_of(c, v) | (code > c->largest ? c->overflow : code);
}

static uint32_t narrow(Dtype t, float v)
{
    uint16_t code = 0;
    dtype_from_f32(&code, t, &v, 1);
    return code;
}

static float widen(Dtype t, uint32_t code)
{
    float v = 0;
    dtype_to_f32(&v, &(uint16_t){ (uint16_t)code }, t, 1);
    return v;
}

static float float_of(uint32_t u)
{
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}

static uint32_t bits_of(float v)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

static void check_narrow(const Case *c, float v)
{
    uint32_t got = narrow(c->type, v), want = nearest_code(c, v);
    if (got != want) {
        fail_msg("%a to %s is 0x%x, want 0x%x", (double)v, dtype_name(c->type), got, want);
    }
}

static void every_code_widens_to_its_definition(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const Case *c = &CASE[i];
        for (uint32_t code = 0; code <= c->largest; code++) {
            float want = (float)value_of(c, code);
            CHECK_INT(bits_of(widen(c->type, code)), bits_of(want));
            CHECK_INT(bits_of(widen(c->type, code | 1u << (c->bits - 1))), bits_of(-want));
        }
    }
}

static void every_finite_code_survives_the_round_trip(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const Case *c = &CASE[i];
        uint32_t sign = 1u << (c->bits - 1);
        for (uint32_t code = 0; code <= c->largest; code++) {
            CHECK_INT(narrow(c->type, widen(c->type, code)), code);
            CHECK_INT(narrow(c->type, widen(c->type, code | sign)), code | sign);
        }
    }
}

static void infinities_widen_and_come_back(void **state)
{
    (void)state;
    static const Dtype WITH_INFINITY[] = { DTYPE_BF16, DTYPE_F16, DTYPE_E5M2 };
    for (int i = 0; i < 3; i++) {
        Dtype t = WITH_INFINITY[i];
        CHECK(widen(t, narrow(t, INFINITY)) == INFINITY);
        CHECK(widen(t, narrow(t, -INFINITY)) == -INFINITY);
    }
}

static void every_code_above_the_overflow_is_nan_and_stays_so(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const Case *c = &CASE[i];
        uint32_t sign = 1u << (c->bits - 1);
        uint32_t first = c->overflow + (c->type != DTYPE_E4M3);
        for (uint32_t code = first; code < sign; code++) {
            CHECK(isnan(widen(c->type, code)));
            CHECK(isnan(widen(c->type, narrow(c->type, widen(c->type, code)))));
            CHECK(narrow(c->type, widen(c->type, code | sign)) >= (first | sign));
        }
    }
}

static void nan_with_any_payload_stays_nan_with_its_sign(void **state)
{
    (void)state;
    static const uint32_t PAYLOAD[] = { 1, 0x1000, 0xFFFF, 0x10000, 0x200000, 0x400000, 0x7FFFFF };
    for (int i = 0; i < CASES; i++) {
        for (int j = 0; j < 7; j++) {
            float got =
                widen(CASE[i].type, narrow(CASE[i].type, float_of(0x7F800000 | PAYLOAD[j])));
            CHECK(isnan(got) && !signbit(got));
            got = widen(CASE[i].type, narrow(CASE[i].type, float_of(0xFF800000 | PAYLOAD[j])));
            CHECK(isnan(got) && signbit(got));
        }
    }
}

static void narrowed_nan_is_quiet(void **state)
{
    (void)state;
    CHECK_INT(bf16_from_f32(float_of(0x7F800001)), 0x7FC0);
    CHECK_INT(narrow(DTYPE_F16, float_of(0x7F800001)), 0x7E00);
    CHECK_INT(narrow(DTYPE_E5M2, float_of(0x7F800001)), 0x7E);
}

/* At the middle between two neighbours, and one f32 to each side of it, past the largest too. */
static void ties_go_to_the_even_neighbour_everywhere(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const Case *c = &CASE[i];
        make_table(c);
        for (uint32_t code = 0; code <= c->largest; code++) {
            double middle = (table[code] + table[code + 1]) / 2;
            float v = (float)middle;
            CHECK((double)v == middle);
            check_narrow(c, v);
            check_narrow(c, -v);
            check_narrow(c, nextafterf(v, 0));
            check_narrow(c, nextafterf(v, INFINITY));
        }
    }
}

static void random_bit_patterns_go_to_the_nearest_code(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const Case *c = &CASE[i];
        make_table(c);
        for (uint64_t k = 0; k < RANDOM_INPUTS; k++) {
            float v = float_of(rng_u32(1, (uint64_t)i, k));
            if (!isnan(v)) check_narrow(c, v);
        }
    }
}

/* Exponents spread over the range of the 8-bit and 16-bit formats, where random patterns are rare:
 * from 2^-27 to 2^17. */
static void random_values_in_range_go_to_the_nearest_code(void **state)
{
    (void)state;
    uint32_t lowest = 100u << 23, span = 44u << 23;
    for (int i = 0; i < CASES; i++) {
        make_table(&CASE[i]);
        for (uint64_t k = 0; k < RANDOM_INPUTS; k++) {
            uint32_t u = lowest + (uint32_t)rng_below(2, (uint64_t)i, k, span);
            check_narrow(&CASE[i], float_of(u | (uint32_t)(k & 1) << 31));
        }
    }
}

static void subnormal_f32_goes_to_the_nearest_code(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        make_table(&CASE[i]);
        for (uint32_t u = 0; u < 0x800000; u += 641) check_narrow(&CASE[i], float_of(u));
        check_narrow(&CASE[i], float_of(0x7FFFFF));
    }
}

/* Worked by hand: 448 + 16 lies halfway to what would be 480. */
static void e4m3_overflows_to_nan_only_past_the_middle(void **state)
{
    (void)state;
    CHECK_INT(narrow(DTYPE_E4M3, 464.0f), 0x7E);
    CHECK_INT(narrow(DTYPE_E4M3, 464.1f), 0x7F);
    CHECK_INT(narrow(DTYPE_E4M3, -1e30f), 0xFF);
    CHECK_INT(narrow(DTYPE_E4M3, INFINITY), 0x7F);
}

static void e5m2_and_f16_overflow_to_infinity_at_the_middle(void **state)
{
    (void)state;
    CHECK_INT(narrow(DTYPE_E5M2, 61439.0f), 0x7B);
    CHECK_INT(narrow(DTYPE_E5M2, 61440.0f), 0x7C);
    CHECK_INT(narrow(DTYPE_F16, 65519.99f), 0x7BFF);
    CHECK_INT(narrow(DTYPE_F16, -65520.0f), 0xFC00);
}

static uint32_t code_at(const void *data, const Case *c, int64_t i)
{
    return c->bits == 16 ? ((const uint16_t *)data)[i] : ((const uint8_t *)data)[i];
}

static const int64_t LENGTH[] = { 0, 1, 2, 7, 16, 31, 64, 65, 997 };

enum { LENGTHS = sizeof LENGTH / sizeof LENGTH[0], LENGTH_MAX = 1024 };

/* Lengths around the vector widths; the element after the last one must stay as it was. */
static void arrays_narrow_like_single_values(void **state)
{
    (void)state;
    float in[LENGTH_MAX];
    uint16_t out[LENGTH_MAX];
    for (uint64_t k = 0; k < LENGTH_MAX; k++) in[k] = float_of(rng_u32(4, 0, k));
    for (int k = 0; k < 600; k++) in[k] = in[k] > 1e4f ? 0.37f : in[k];
    for (int i = 0; i < CASES * LENGTHS; i++) {
        const Case *c = &CASE[i / LENGTHS];
        int64_t n = LENGTH[i % LENGTHS];
        memset(out, 0xA5, sizeof out);
        dtype_from_f32(out, c->type, in, n);
        for (int64_t k = 0; k < n; k++) CHECK_INT(code_at(out, c, k), narrow(c->type, in[k]));
        CHECK_INT(code_at(out, c, n), c->bits == 16 ? 0xA5A5 : 0xA5);
    }
}

static void arrays_widen_like_single_values(void **state)
{
    (void)state;
    uint16_t in[LENGTH_MAX];
    float out[LENGTH_MAX];
    for (uint64_t k = 0; k < LENGTH_MAX; k++) in[k] = (uint16_t)rng_u32(5, 0, k);
    for (int i = 0; i < CASES * LENGTHS; i++) {
        const Case *c = &CASE[i / LENGTHS];
        int64_t n = LENGTH[i % LENGTHS];
        memset(out, 0xA5, sizeof out);
        dtype_to_f32(out, in, c->type, n);
        for (int64_t k = 0; k < n; k++) {
            CHECK_INT(bits_of(out[k]), bits_of(widen(c->type, code_at(in, c, k))));
        }
        CHECK_INT(bits_of(out[n]), 0xA5A5A5A5);
    }
}

static void f32_arrays_are_copied_bit_by_bit(void **state)
{
    (void)state;
    float in[100], out[100], back[100];
    for (uint64_t k = 0; k < 100; k++) in[k] = float_of(rng_u32(6, 0, k));
    dtype_to_f32(out, in, DTYPE_F32, 100);
    dtype_from_f32(back, DTYPE_F32, out, 100);
    for (int k = 0; k < 100; k++) CHECK_INT(bits_of(back[k]), bits_of(in[k]));
}

static const Case MX[] = {
    { DTYPE_E2M1, 4, 1, 1, 0x07, 0x07 },
    { DTYPE_E2M3, 6, 3, 1, 0x1F, 0x1F },
    { DTYPE_E3M2, 6, 2, 3, 0x1F, 0x1F },
};

static double rounded(Dtype t, double v) { return (double)widen(t, narrow(t, (float)v)); }

/* Elements are E4M3 codes, so what is stored is looked at by its value. Between two neighbours the
 * middle goes to the even code, and what is off the middle by the last bit of an f32 to the nearer. */
static void mx_types_round_to_each_number_of_their_grid(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        const Case *c = &MX[i];
        Dtype t = c->type;
        for (uint32_t code = 0; code <= c->largest; code++) {
            double v = value_of(c, code), next = value_of(c, code + 1), middle = (v + next) / 2;
            CHECK_NEAR(rounded(t, v), v, 0);
            CHECK_NEAR(rounded(t, -v), -v, 0);
            CHECK_INT(narrow(t, (float)v), narrow(DTYPE_E4M3, (float)v));
            if (code == c->largest) break;
            CHECK_NEAR(rounded(t, middle), code % 2 == 0 ? v : next, 0);
            CHECK_NEAR(rounded(t, -middle), code % 2 == 0 ? -v : -next, 0);
            CHECK_NEAR(rounded(t, (double)nextafterf((float)middle, 0)), v, 0);
            CHECK_NEAR(rounded(t, (double)nextafterf((float)middle, 1000)), next, 0);
        }
        double most = value_of(c, c->largest);
        CHECK_NEAR((double)dtype_largest(t), most, 0);
        CHECK_NEAR(rounded(t, 1e30), most, 0);
        CHECK_NEAR(rounded(t, -1.01 * most), -most, 0);
        CHECK(isnan(rounded(t, NAN)));
    }
}

/* The whole grid of e2m1, by hand. */
static void e2m1_has_eight_magnitudes(void **state)
{
    (void)state;
    static const double grid[] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
    for (uint32_t code = 0; code < 8; code++) CHECK_NEAR(value_of(&MX[0], code), grid[code], 0);
    CHECK_NEAR(rounded(DTYPE_E2M1, 2.5), 2, 0);
    CHECK_NEAR(rounded(DTYPE_E2M1, 3.5), 4, 0);
    CHECK_NEAR(rounded(DTYPE_E2M1, 5), 4, 0);
    CHECK_NEAR(rounded(DTYPE_E2M1, 0.25), 0, 0);
    CHECK_NEAR(rounded(DTYPE_E2M1, 0.75), 1, 0);
}

static void types_have_names_and_sizes(void **state)
{
    (void)state;
    static const char *const NAME[] = { "f32",  "bf16", "f16", "e4m3", "e5m2", "e2m1",
                                        "e2m3", "e3m2", "i32", "i64",  "u8" };
    static const int BYTES[] = { 4, 2, 2, 1, 1, 1, 1, 1, 4, 8, 1 };
    static const int BITS[] = { 32, 16, 16, 8, 8, 4, 6, 6, 32, 64, 8 };
    for (int t = 0; t < DTYPE_COUNT; t++) {
        CHECK_TEXT(dtype_name((Dtype)t), NAME[t]);
        CHECK_INT(dtype_bytes((Dtype)t), BYTES[t]);
        CHECK_INT(dtype_bits((Dtype)t), BITS[t]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_code_widens_to_its_definition),
        TEST(mx_types_round_to_each_number_of_their_grid),
        TEST(e2m1_has_eight_magnitudes),
        TEST(every_finite_code_survives_the_round_trip),
        TEST(infinities_widen_and_come_back),
        TEST(every_code_above_the_overflow_is_nan_and_stays_so),
        TEST(nan_with_any_payload_stays_nan_with_its_sign),
        TEST(narrowed_nan_is_quiet),
        TEST(ties_go_to_the_even_neighbour_everywhere),
        TEST(random_bit_patterns_go_to_the_nearest_code),
        TEST(random_values_in_range_go_to_the_nearest_code),
        TEST(subnormal_f32_goes_to_the_nearest_code),
        TEST(e4m3_overflows_to_nan_only_past_the_middle),
        TEST(e5m2_and_f16_overflow_to_infinity_at_the_middle),
        TEST(arrays_narrow_like_single_values),
        TEST(arrays_widen_like_single_values),
        TEST(f32_arrays_are_copied_bit_by_bit),
        TEST(types_have_names_and_sizes),
    };
    return TEST_RUN(tests);
}
