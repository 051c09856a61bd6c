/* The pull parser of JSON: strings and their escapes, and what is no JSON. */
#include "harness/test.h"

#include "engine/base/scan.h"

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
    Scan s = scan_begin(text);
    CHECK_TEXT(scan_string(&s), "\xC3\xA9\xF0\x9F\x98\x80\xEF\xBF\xBD/\n\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(text_that_is_no_json_is_bad),
        TEST(escapes_are_decoded),
    };
    return TEST_RUN(tests);
}
