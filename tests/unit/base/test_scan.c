/* The pull parser of JSON: members, strings and their escapes, and what is no JSON. */
#include "harness/test.h"

#include "base/scan.h"

static void members_are_found_without_being_consumed(void **state)
{
    (void)state;
    char text[] = "{\"nn\":3,\"in\":{\"n\":7},\"a\\\"n\":1,\"n\" : -2.5 "
                  ",\"list\":[1,[2],{}],\"s\":\"x\\ty\"}";
    for (int again = 0; again < 2; again++) {
        CHECK_NEAR(scan_number_at(scan_member(text, "n")), -2.5, 0);
        CHECK_NEAR(scan_number_at(scan_member(scan_member(text, "in"), "n")), 7, 0);
        CHECK(scan_member(text, "m") == NULL && scan_member(NULL, "n") == NULL);
        CHECK(scan_member(scan_member(text, "list"), "n") == NULL);
        CHECK(isnan(scan_number_at(scan_member(text, "list"))) && isnan(scan_number_at(NULL)));
    }
    int n = 0;
    Scan s = scan_inside(scan_member(text, "list"));
    for (; scan_item(&s); n++) scan_skip(&s);
    CHECK_INT(n, 3);
    CHECK(!s.bad && scan_inside(scan_member(text, "n")).bad);
    CHECK(scan_string_at(scan_member(text, "n")) == NULL && scan_string_at(NULL) == NULL);
    CHECK_TEXT(scan_string_at(scan_member(text, "s")), "x\ty");
}

static void members_behind_what_is_no_json_are_not_found(void **state)
{
    (void)state;
    char comma[] = "{\"a\":1 \"b\":2}", colon[] = "{\"a\" 1,\"b\":2}", cut[] = "{\"a\":1,\"b\":\"x";
    CHECK_NEAR(scan_number_at(scan_member(comma, "a")), 1, 0);
    CHECK(scan_member(comma, "b") == NULL);
    CHECK(scan_member(colon, "a") == NULL && scan_member(colon, "b") == NULL);
    CHECK(scan_member(cut, "b") == NULL);
}

/* Takes a value and all that is in it. */
static void take_value(Scan *s)
{
    while (*s->at == ' ') s->at++;
    if (*s->at == '{') {
        scan_object(s);
        while (scan_key(s) != NULL) take_value(s);
    } else if (*s->at == '[') {
        scan_array(s);
        while (scan_item(s)) take_value(s);
    } else if (*s->at == '"') {
        (void)scan_string(s);
    } else {
        (void)scan_skip(s);
    }
}

static bool is_json(const char *text)
{
    char copy[128];
    (void)snprintf(copy, sizeof copy, "%s", text);
    Scan s = scan_begin(copy);
    take_value(&s);
    return scan_end(&s);
}

static void text_that_is_no_json_is_bad(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "hello",
        "{\"a\" 1}",
        "{\"a\":1,}",
        "{\"a\":1}x",
        "{\"a\":nan}",
        "{\"a\":0x10}",
        "[{\"n\":\"\\q\"}]",
        "{\"a\":1 \"b\":2}",
        "[{\"n\":\"\\u12\"}]",
        "{\"a\":",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (is_json(bad[i])) fail_msg("taken: %s", bad[i]);
    }
    CHECK(is_json("{\"a\":[1,-2.5e3,null,true,{}],\"b\":\"\\u00e9\"} "));
}

static void escapes_are_decoded(void **state)
{
    (void)state;
    char text[] = "\"\\u00e9\\ud83d\\ude00\\ud800\\/\\n\\\"\"";
    CHECK_TEXT(scan_string_at(text), "\xC3\xA9\xF0\x9F\x98\x80\xEF\xBF\xBD/\n\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(members_are_found_without_being_consumed),
        TEST(members_behind_what_is_no_json_are_not_found),
        TEST(text_that_is_no_json_is_bad),
        TEST(escapes_are_decoded),
    };
    return TEST_RUN(tests);
}
