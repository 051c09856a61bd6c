/* The tree of a JSON file. The witness of what is read and written is another's parser, cJSON. */
#include "harness/arena.h"

#include "engine/base/json.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

static Json *parse(const char *text, size_t n, size_t *bad)
{
    Json *json = NULL;
    CHECK_OK(json_parse(text, n, &arena, &json, bad));
    return json;
}

static Json *parsed(const char *text)
{
    size_t bad = 0;
    Json *json = parse(text, strlen(text), &bad);
    CHECK(json != NULL);
    return json;
}

static const char *printed(const Json *json, bool lines)
{
    Text text = { 0 };
    CHECK_OK(text_init(&text, &arena));
    CHECK_OK(json_print(json, lines, &text));
    return text.data;
}

static const char *const GOOD[] = {
    "{}",
    " [ ] ",
    "null",
    "-0.5e3",
    "\"a\\u00e4\\ud83d\\ude00\\n\\\"\\\\\\/\"",
    "{\"a\": [1, 2.5, {\"b\": {\"c\": [true, false, null]}}], \"e\": {}, \"\": \"x\\ty\"}",
    "{\"big\": 123456789012, \"tiny\": 1e-06, \"more\": 0.1, \"n\": 10000000}",
    "[[[[[[[[[[\"deep\"]]]]]]]]]]",
    "\xEF\xBB\xBF{\"bom\": 1}",
};

static void what_is_read_is_written_as_the_witness_writes_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof GOOD / sizeof *GOOD; i++) {
        cJSON *witness = cJSON_ParseWithLengthOpts(GOOD[i], strlen(GOOD[i]) + 1, NULL, true);
        CHECK(witness != NULL);
        char *lines = cJSON_Print(witness), *line = cJSON_PrintUnformatted(witness);
        const Json *json = parsed(GOOD[i]);
        CHECK_TEXT(printed(json, true), lines);
        CHECK_TEXT(printed(json, false), line);
        cJSON_free(lines);
        cJSON_free(line);
        cJSON_Delete(witness);
    }
}

static void what_is_no_json_is_refused_from_its_byte_on(void **state)
{
    static const struct {
        const char *text;
        size_t bad;
    } rows[] = {
        { "", 0 },
        { "{", 1 },
        { "{\"a\":1,}", 7 },
        { "[1 2]", 3 },
        { "[1,]", 3 },
        { "{\"a\" 1}", 5 },
        { "[tru]", 1 },
        { "[01x]", 3 },
        { "{} {}", 3 },
        { "[\"a\\x\"]", 4 },
        { "{\"a\": \"never ends", 7 },
        { "[\"\\ud800\"]", 8 },
        { "[\"\\udc00 \"]", 8 },
        { "[+1]", 1 },
        { "{\"a\":[1}", 7 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t bad = 99;
        CHECK(parse(rows[i].text, strlen(rows[i].text), &bad) == NULL);
        if (bad != rows[i].bad) fail_msg("%s is bad from byte %zu on", rows[i].text, bad);
        cJSON *witness = cJSON_ParseWithLengthOpts(rows[i].text, strlen(rows[i].text) + 1, NULL, 1);
        CHECK(witness == NULL);
    }
    size_t bad = 0;
    CHECK(parse("[1]\0[2]", 7, &bad) == NULL && bad == 3);
}

/* Brackets without end would else end the stack. */
static void depth_has_a_limit(void **state)
{
    static char text[4002];
    size_t bad = 0;
    (void)state;
    memset(text, '[', 2000);
    memset(text + 2000, ']', 2000);
    CHECK(parse(text, 4000, &bad) == NULL && bad == 1001);
    CHECK(parse(text + 1000, 2000, &bad) != NULL);
}

static void members_are_found_by_name_the_last_of_two(void **state)
{
    const Json *json = parsed("{\"a\":{\"b\":\"x\"},\"n\":2,\"n\":3,\"list\":[1,2,3]}");
    (void)state;
    CHECK_TEXT(json_string(json_get(json_get(json, "a"), "b")), "x");
    CHECK_NEAR(json_get(json, "n")->number, 3, 0);
    CHECK_INT(json_count(json_get(json, "list")), 3);
    CHECK_INT(json_count(json), 3);           /* as in a dict of Python's, where a key is once */
    CHECK_TEXT(json->child->next->name, "n"); /* in the place of its first */
    CHECK(json_get(json, "c") == NULL && json_get(json_get(json, "list"), "a") == NULL);
    CHECK(json_get(NULL, "a") == NULL && json_string(NULL) == NULL && json_first(NULL) == NULL);
    CHECK(json_string(json_get(json, "n")) == NULL);
    CHECK(json_is(json, JSON_OBJECT) && !json_is(NULL, JSON_NULL));
}

static void a_member_that_is_put_again_is_the_last_one(void **state)
{
    Json json = json_of(JSON_OBJECT), list = json_of(JSON_ARRAY), real = json_of_number(1);
    char name[] = "a", text[] = "x";
    (void)state;
    real.text = "1.0";
    CHECK_OK(json_put(&arena, &json, name, json_of_text(text)));
    name[0] = text[0] = '?'; /* both were copied */
    CHECK_OK(json_add(&arena, &list, NULL, json_of_bool(true)));
    CHECK_OK(json_add(&arena, &list, NULL, real));
    CHECK_OK(json_put(&arena, &json, "b", list));
    CHECK_OK(json_put(&arena, &json, "c", json_of(JSON_NULL)));
    CHECK_TEXT(printed(&json, false), "{\"a\":\"x\",\"b\":[true,1.0],\"c\":null}");
    CHECK_OK(json_put(&arena, &json, "a", json_of_number((double)NAN)));
    CHECK_OK(json_put(&arena, &json, "c", json_of_number(-2)));
    CHECK_TEXT(printed(&json, false), "{\"b\":[true,1.0],\"a\":null,\"c\":-2}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_read_is_written_as_the_witness_writes_it),
        TEST(what_is_no_json_is_refused_from_its_byte_on),
        TEST(depth_has_a_limit),
        TEST(members_are_found_by_name_the_last_of_two),
        TEST(a_member_that_is_put_again_is_the_last_one),
    };
    return ARENA_RUN(tests);
}
