#include "harness/test.h"
#include "traces/read/strings.h"

static void equal_texts_have_one_number(void **state)
{
    (void)state;
    Strings t;
    uint32_t a = 9, b = 9, c = 9;
    CHECK_OK(strings_init(&t));
    CHECK_OK(strings_id(&t, "gemm", 4, &a));
    CHECK_OK(strings_id(&t, "gemm_longer", 4, &b));
    CHECK_OK(strings_id(&t, "gem", 3, &c));
    CHECK_INT(a, b);
    CHECK(a != c && a != 0);
    CHECK_TEXT(strings_text(&t, b), "gemm");
    CHECK_INT(t.n, 3);
    strings_free(&t);
    strings_free(&t);
}

static void the_empty_text_is_0(void **state)
{
    (void)state;
    Strings t;
    uint32_t id = 9;
    CHECK_OK(strings_init(&t));
    CHECK_OK(strings_id(&t, "x", 0, &id));
    CHECK_INT(id, 0);
    CHECK_TEXT(strings_text(&t, 0), "");
    CHECK_INT(strings_find(&t, ""), 0);
    strings_free(&t);
}

static void what_was_not_added_is_not_found(void **state)
{
    (void)state;
    Strings t;
    uint32_t id = 0;
    CHECK_OK(strings_init(&t));
    CHECK_OK(strings_id(&t, "there", 5, &id));
    CHECK_INT(strings_find(&t, "there"), id);
    CHECK_INT(strings_find(&t, "ther"), UINT32_MAX);
    CHECK_INT(t.n, 2);
    strings_free(&t);
}

static void a_text_may_hold_nuls(void **state)
{
    (void)state;
    Strings t;
    uint32_t a = 0, b = 0;
    CHECK_OK(strings_init(&t));
    CHECK_OK(strings_id(&t, "a\0b", 3, &a));
    CHECK_OK(strings_id(&t, "a\0c", 3, &b));
    CHECK(a != b);
    CHECK_INT(t.entries[a].bytes, 3);
    CHECK(memcmp(strings_text(&t, b), "a\0c", 4) == 0);
    strings_free(&t);
}

/* Beyond several sizes of the table and of the arenas' steps; no text moves. */
static void many_texts_keep_their_numbers_and_places(void **state)
{
    (void)state;
    enum { MANY = 50000 };
    Strings t;
    char text[64];
    uint32_t id = 0;
    CHECK_OK(strings_init(&t));
    CHECK_OK(strings_id(&t, "first", 5, &id));
    const char *first = strings_text(&t, id);
    for (uint32_t i = 0; i < MANY; i++) {
        int n = snprintf(text, sizeof text, "text %u of many that fill the table", i);
        CHECK_OK(strings_id(&t, text, (size_t)n, &id));
        CHECK_INT(id, i + 2);
    }
    for (uint32_t i = 0; i < MANY; i += 7) {
        snprintf(text, sizeof text, "text %u of many that fill the table", i);
        CHECK_INT(strings_find(&t, text), i + 2);
        CHECK_TEXT(strings_text(&t, i + 2), text);
    }
    CHECK_INT(strings_find(&t, "first"), 1);
    CHECK(strings_text(&t, 1) == first);
    strings_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(equal_texts_have_one_number),
        TEST(the_empty_text_is_0),
        TEST(what_was_not_added_is_not_found),
        TEST(a_text_may_hold_nuls),
        TEST(many_texts_keep_their_numbers_and_places),
    };
    return TEST_RUN(tests);
}
