/* Texts that people can check by eye are compared byte by byte; what the writer must mean is read
 * back with cJSON and strtod. */
#include "harness/out.h"

#include "engine/base/rng.h"

#include <stdlib.h>

#include <cjson/cJSON.h>

static void the_format_is_syntax_and_stays_as_it_is(void **state)
{
    Out *o = *state;
    CHECK_OK(text_printf(&o->text, "data: "));
    CHECK_OK(text_json(&o->text, "{%s:%d,\"loss\":%g,\"at\":[%lld,%zu,%u],\"share\":\"%.1f %%\"}",
                       "step", 7, 2.5, -5LL, (size_t)9, 3u, 12.34));
    CHECK_TEXT(o->text.data,
               "data: {\"step\":7,\"loss\":2.5,\"at\":[-5,9,3],\"share\":\"12.3 %\"}");
}

static void widths_and_precisions_are_those_of_printf(void **state)
{
    Out *o = *state;
    CHECK_OK(text_markup(&o->text, "[%4d|%+.2f|%06.1f|%c|%02x|%.3e|%g]", 42, 1.5, 3.25, 'z', 10,
                         12345.678, 0.5));
    CHECK_TEXT(o->text.data, "[  42|+1.50|0003.2|z|0a|1.235e+04|0.5]");
}

static void special_characters_are_escaped(void **state)
{
    Out *o = *state;
    CHECK_OK(text_json(&o->text, "%s", "a\"b\\c\nd\te\rf\x01g/\x7F\xC3\xA9"));
    CHECK_TEXT(o->text.data, "\"a\\\"b\\\\c\\nd\\te\\rf\\u0001g/\x7F\xC3\xA9\"");
    o->text.used = 0;
    CHECK_OK(text_markup(&o->text, "<b>%s</b>", "a<b>&\"c\"\n\t\x01\x7F'\xC3\xA9"));
    CHECK_TEXT(o->text.data, "<b>a&lt;b&gt;&amp;&quot;c&quot;\n\t\xEF\xBF\xBD\xEF\xBF\xBD'\xC3\xA9"
                             "</b>");
}

static void a_string_with_a_length_may_contain_nul(void **state)
{
    Out *o = *state;
    CHECK_OK(text_json(&o->text, "[%.*s,%.*s]", 3, "a\0b", 2, "xyz"));
    CHECK_TEXT(o->text.data, "[\"a\\u0000b\",\"xy\"]");
}

static void bytes_that_are_no_utf8_become_replacement_characters(void **state)
{
    Out *o = *state;
    CHECK_OK(text_json(&o->text, "%s", "ok\xFF\xFEok\"\xE2\x82"));
    CHECK_TEXT(o->text.data, "\"ok\xEF\xBF\xBD\xEF\xBF\xBDok\\\"\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

static void every_string_reads_back_as_it_was(void **state)
{
    (void)state;
    for (uint64_t k = 0; k < 300; k++) {
        Out o;
        char in[64] = { 0 };
        out_open(&o);
        for (uint64_t i = 0; i < k % 63; i++) in[i] = (char)(1 + rng_below(1, k, i, 127));
        CHECK_OK(text_json(&o.text, "%s", in));
        cJSON *back = cJSON_Parse(o.text.data);
        CHECK(back != NULL);
        CHECK_TEXT(cJSON_GetStringValue(back), in);
        cJSON_Delete(back);
        out_close(&o);
    }
}

static double double_of(uint64_t u)
{
    double v;
    memcpy(&v, &u, sizeof v);
    return v;
}

static void every_double_reads_back_as_it_was(void **state)
{
    Out *o = *state;
    for (uint64_t i = 0; i < 20000; i++) {
        double v = double_of((uint64_t)rng_u32(2, 0, 2 * i) << 32 | rng_u32(2, 0, 2 * i + 1));
        if (i % 3 == 0) v = rng_uniform(2, 1, i) * 1000;
        if (!isfinite(v)) continue;
        size_t at = o->text.used;
        CHECK_OK(text_json(&o->text, "%g", v));
        double back = strtod(o->text.data + at, NULL);
        CHECK(back == v && signbit(back) == signbit(v));
    }
}

static void check_double(double v, const char *want)
{
    Out o;
    out_open(&o);
    CHECK_OK(text_json(&o.text, "%g", v));
    CHECK_TEXT(o.text.data, want);
    out_close(&o);
}

static void numbers_have_no_more_digits_than_they_need(void **state)
{
    (void)state;
    check_double(0.1, "0.1");
    check_double(2.0 / 3, "0.6666666666666666");
    check_double(3e-4, "0.0003");
    check_double(1e-7, "1e-07");
    check_double(5e-324, "5e-324");
    check_double(1.7976931348623157e308, "1.7976931348623157e+308");
}

static void whole_numbers_are_printed_as_such(void **state)
{
    (void)state;
    check_double(0, "0");
    check_double(-0.0, "-0");
    check_double(100000, "100000");
    check_double(-9007199254740991.0, "-9007199254740991");
    check_double(1e22, "1e+22");
}

static void nan_and_infinities_are_null(void **state)
{
    (void)state;
    check_double((double)NAN, "null");
    check_double((double)INFINITY, "null");
    check_double(-(double)INFINITY, "null");
}

static void the_extreme_integers_are_exact(void **state)
{
    Out *o = *state;
    CHECK_OK(text_json(&o->text, "[%lld,%lld]", (long long)INT64_MIN, (long long)INT64_MAX));
    CHECK_TEXT(o->text.data, "[-9223372036854775808,9223372036854775807]");
}

static void a_full_arena_is_an_error(void **state)
{
    (void)state;
    Arena a = { 0 };
    Text t = { 0 };
    Status s = OK;
    CHECK_OK(arena_init(&a, "small", MEM_HOST, 512));
    CHECK_OK(text_init(&t, &a));
    for (int i = 0; i < 1000 && s == OK; i++) s = text_json(&t, "%s,", "entry");
    CHECK_FAILS(s, ERR_MEMORY, "arena small");
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OUT_TEST(the_format_is_syntax_and_stays_as_it_is),
        OUT_TEST(widths_and_precisions_are_those_of_printf),
        OUT_TEST(special_characters_are_escaped),
        OUT_TEST(a_string_with_a_length_may_contain_nul),
        OUT_TEST(bytes_that_are_no_utf8_become_replacement_characters),
        TEST(every_string_reads_back_as_it_was),
        OUT_TEST(every_double_reads_back_as_it_was),
        TEST(numbers_have_no_more_digits_than_they_need),
        TEST(whole_numbers_are_printed_as_such),
        TEST(nan_and_infinities_are_null),
        OUT_TEST(the_extreme_integers_are_exact),
        TEST(a_full_arena_is_an_error),
    };
    return TEST_RUN(tests);
}
