/* Texts that would keep a parser busy: they are refused at once. */
#include "harness/place.h"

#include "engine/base/clock.h"
#include "engine/config/config.h"

enum { DEEP = 100000 };

/* libyaml alone takes minutes for the second text. */
static void text_that_is_deep_is_refused_at_once(void **state)
{
    (void)state;
    Arena a = { 0 };
    Config c;
    char *text = NULL;
    CHECK_OK(arena_init(&a, "deep", MEM_HOST, (size_t)1 << 26));
    CHECK_OK(ARENA_NEW(&a, 4 * DEEP, &text));
    double start = clock_s();
    memset(text, '[', DEEP);
    CHECK_FAILS(config_parse(&c, &a, "deep", text, DEEP), ERR_FORMAT,
                "deep:1:65: lists and mappings lie more than 64 levels deep here");
    for (int i = 0; i < 4 * DEEP; i++) text[i] = "{a: "[i % 4];
    CHECK_FAILS(config_parse(&c, &a, "deep", text, (size_t)4 * DEEP), ERR_FORMAT, "levels deep");
    CHECK(clock_s() - start < 5);
    arena_free(&a);
}

/* As deep as any setting is, and deeper. */
static void text_of_usual_depth_is_read(void **state)
{
    (void)state;
    static const char yaml[] = "data: {sources: [{name: a, path: b}]}\nx: [[[[[[[[1]]]]]]]]\n";
    Arena a = { 0 };
    Config c;
    CHECK_OK(arena_init(&a, "shallow", MEM_HOST, (size_t)1 << 26));
    CHECK_FAILS(config_parse(&c, &a, "shallow", yaml, sizeof yaml - 1), ERR_ARG,
                "shallow:2:1: there is no setting x");
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(text_that_is_deep_is_refused_at_once),
        TEST(text_of_usual_depth_is_read),
    };
    return TEST_RUN(tests);
}
