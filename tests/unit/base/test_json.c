/* Texts that people can check by eye are compared byte by byte; what the writer must mean is read
 * back with cJSON, strtod and strtof. */
#include "harness/test.h"

#include "base/rng.h"
#include "base/text.h"

#include <stdlib.h>

#include <cjson/cJSON.h>

typedef struct Out {
    Arena arena;
    Text text;
    Json json;
} Out;

static void out_open(Out *o)
{
    *o = (Out){ 0 };
    CHECK_OK(arena_init(&o->arena, "test", MEM_HOST, 1 << 20));
    CHECK_OK(text_init(&o->text, &o->arena));
    o->json = json_begin(&o->text);
}

static void out_close(Out *o) { arena_free(&o->arena); }

static void commas_stand_between_and_nowhere_else(void **state)
{
    (void)state;
    Out o;
    out_open(&o);
    Json *j = &o.json;
    CHECK_OK(json_object(j));
    CHECK_OK(json_key(j, "step"));
    CHECK_OK(json_int(j, 7));
    CHECK_OK(json_key(j, "loss"));
    CHECK_OK(json_double(j, 2.5));
    CHECK_OK(json_key(j, "load"));
    CHECK_OK(json_array(j));
    CHECK_OK(json_int(j, 1));
    CHECK_OK(json_bool(j, true));
    CHECK_OK(json_bool(j, false));
    CHECK_OK(json_string(j, "x"));
    CHECK_OK(json_array_end(j));
    CHECK_OK(json_key(j, "ok"));
    CHECK_OK(json_bool(j, true));
    CHECK_OK(json_object_end(j));
    CHECK_TEXT(o.text.data, "{\"step\":7,\"loss\":2.5,\"load\":[1,true,false,\"x\"],\"ok\":true}");
    out_close(&o);
}

static void empty_objects_and_arrays_nest(void **state)
{
    (void)state;
    Out o;
    out_open(&o);
    Json *j = &o.json;
    CHECK_OK(json_array(j));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(json_object(j));
        CHECK_OK(json_object_end(j));
        CHECK_OK(json_array(j));
        CHECK_OK(json_array_end(j));
    }
    CHECK_OK(json_array_end(j));
    CHECK_TEXT(o.text.data, "[{},[],{},[]]");
    out_close(&o);
}

static void the_deepest_level_is_usable(void **state)
{
    (void)state;
    Out o;
    out_open(&o);
    for (int i = 0; i < 31; i++) CHECK_OK(json_array(&o.json));
    CHECK_OK(json_int(&o.json, 1));
    CHECK_OK(json_int(&o.json, 2));
    for (int i = 0; i < 31; i++) CHECK_OK(json_array_end(&o.json));
    CHECK(strstr(o.text.data, "[[1,2]]") != NULL);
    CHECK_INT(o.text.used, 65);
    out_close(&o);
}

static void text_goes_on_behind_what_is_there(void **state)
{
    (void)state;
    Out o;
    out_open(&o);
    CHECK_OK(text_printf(&o.text, "data: "));
    CHECK_OK(json_int(&o.json, 3));
    CHECK_TEXT(o.text.data, "data: 3");
    out_close(&o);
}

static void special_characters_are_escaped(void **state)
{
    (void)state;
    Out o;
    out_open(&o);
    CHECK_OK(json_string(&o.json, "a\"b\\c\nd\te\rf\x01g/\x7F\xC3\xA9"));
    CHECK_TEXT(o.text.data, "\"a\\\"b\\\\c\\nd\\te\\rf\\u0001g/\x7F\xC3\xA9\"");
    out_close(&o);
}

static void keys_are_escaped_too(void **state)
{
    (void)state;
    Out o;
    out_open(&o);
    CHECK_OK(json_object(&o.json));
    CHECK_OK(json_key(&o.json, "a\"b"));
    CHECK_OK(json_int(&o.json, 1));
    CHECK_OK(json_object_end(&o.json));
    CHECK_TEXT(o.text.data, "{\"a\\\"b\":1}");
    out_close(&o);
}

static void a_string_may_contain_nul(void **state)
{
    (void)state;
    Out o;
    out_open(&o);
    CHECK_OK(json_string_n(&o.json, "a\0b", 3));
    CHECK_TEXT(o.text.data, "\"a\\u0000b\"");
    out_close(&o);
}

static void bytes_that_are_no_utf8_become_replacement_characters(void **state)
{
    (void)state;
    Out o;
    out_open(&o);
    CHECK_OK(json_string(&o.json, "ok\xFF\xFEok\"\xE2\x82"));
    CHECK_TEXT(o.text.data, "\"ok\\ufffd\\ufffdok\\\"\\ufffd\\ufffd\"");
    out_close(&o);
}

static void every_string_reads_back_as_it_was(void **state)
{
    (void)state;
    for (uint64_t k = 0; k < 300; k++) {
        Out o;
        char in[64] = { 0 };
        out_open(&o);
        for (uint64_t i = 0; i < k % 63; i++) in[i] = (char)(1 + rng_below(1, k, i, 127));
        CHECK_OK(json_string(&o.json, in));
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

static float float_of(uint32_t u)
{
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}

static void every_double_reads_back_as_it_was(void **state)
{
    (void)state;
    Out o;
    out_open(&o);
    for (uint64_t i = 0; i < 20000; i++) {
        double v = double_of((uint64_t)rng_u32(2, 0, 2 * i) << 32 | rng_u32(2, 0, 2 * i + 1));
        if (i % 3 == 0) v = rng_uniform(2, 1, i) * 1000;
        if (!isfinite(v)) continue;
        size_t at = o.text.used;
        Json j = json_begin(&o.text);
        CHECK_OK(json_double(&j, v));
        double back = strtod(o.text.data + at, NULL);
        CHECK(back == v && signbit(back) == signbit(v));
    }
    out_close(&o);
}

static void every_float_reads_back_as_it_was(void **state)
{
    (void)state;
    Out o;
    out_open(&o);
    for (uint64_t i = 0; i < 20000; i++) {
        float v = float_of(rng_u32(3, 0, i));
        if (!isfinite(v)) continue;
        size_t at = o.text.used;
        Json j = json_begin(&o.text);
        CHECK_OK(json_float(&j, v));
        float back = strtof(o.text.data + at, NULL);
        CHECK(back == v && signbit(back) == signbit(v));
    }
    out_close(&o);
}

static void check_double(double v, const char *want)
{
    Out o;
    out_open(&o);
    CHECK_OK(json_double(&o.json, v));
    CHECK_TEXT(o.text.data, want);
    out_close(&o);
}

static void check_float(float v, const char *want)
{
    Out o;
    out_open(&o);
    CHECK_OK(json_float(&o.json, v));
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
    check_float(0.1f, "0.1");
    check_float(2.0f / 3, "0.6666667");
    check_float(1e-45f, "1e-45");
}

static void whole_numbers_are_printed_as_such(void **state)
{
    (void)state;
    check_double(0, "0");
    check_double(-0.0, "-0");
    check_double(100000, "100000");
    check_double(-9007199254740991.0, "-9007199254740991");
    check_double(1e22, "1e+22");
    check_float(1048576, "1048576");
}

static void nan_and_infinities_are_null(void **state)
{
    (void)state;
    check_double((double)NAN, "null");
    check_double((double)INFINITY, "null");
    check_double(-(double)INFINITY, "null");
    check_float(NAN, "null");
    check_float(-INFINITY, "null");
}

static void the_extreme_integers_are_exact(void **state)
{
    (void)state;
    Out o;
    out_open(&o);
    CHECK_OK(json_array(&o.json));
    CHECK_OK(json_int(&o.json, INT64_MIN));
    CHECK_OK(json_int(&o.json, INT64_MAX));
    CHECK_OK(json_array_end(&o.json));
    CHECK_TEXT(o.text.data, "[-9223372036854775808,9223372036854775807]");
    out_close(&o);
}

static void a_full_arena_is_an_error(void **state)
{
    (void)state;
    Arena a = { 0 };
    Text t = { 0 };
    Status s = OK;
    CHECK_OK(arena_init(&a, "small", MEM_HOST, 512));
    CHECK_OK(text_init(&t, &a));
    Json j = json_begin(&t);
    for (int i = 0; i < 1000 && s == OK; i++) s = json_string(&j, "entry");
    CHECK_FAILS(s, ERR_MEMORY, "arena small");
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(commas_stand_between_and_nowhere_else),
        TEST(empty_objects_and_arrays_nest),
        TEST(the_deepest_level_is_usable),
        TEST(text_goes_on_behind_what_is_there),
        TEST(special_characters_are_escaped),
        TEST(keys_are_escaped_too),
        TEST(a_string_may_contain_nul),
        TEST(bytes_that_are_no_utf8_become_replacement_characters),
        TEST(every_string_reads_back_as_it_was),
        TEST(every_double_reads_back_as_it_was),
        TEST(every_float_reads_back_as_it_was),
        TEST(numbers_have_no_more_digits_than_they_need),
        TEST(whole_numbers_are_printed_as_such),
        TEST(nan_and_infinities_are_null),
        TEST(the_extreme_integers_are_exact),
        TEST(a_full_arena_is_an_error),
    };
    return TEST_RUN(tests);
}
