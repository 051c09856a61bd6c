/* Which ranks of a run no file is of. Files that do not fit together: tests/traces/system. */
#include "harness/arena.h"

#include "traces/sheets/ranks.h"

static const char *missing(const int64_t *rank, int n, int64_t world)
{
    int64_t copy[] = { rank[0], n > 1 ? rank[1] : 0 };
    const Ranks r = { .rank = copy, .world = world, .n = n };
    Text out = { 0 };
    CHECK_OK(text_init(&out, &arena));
    CHECK_OK(text_append(&out, "", 0));
    CHECK_OK(ranks_missing(&r, &out));
    return out.data;
}

static void missing_ranks_are_counted_and_the_first_is_named(void **state)
{
    (void)state;
    CHECK_TEXT(missing((int64_t[]){ 0, 3 }, 2, 8), "\n6 of 8 ranks are missing, rank 1 first\n");
    CHECK_TEXT(missing((int64_t[]){ 2, 1 }, 2, 3), "\n1 of 3 ranks are missing, rank 0 first\n");
}

static void nothing_is_said_of_whole_runs_single_files_and_unknown_ranks(void **state)
{
    (void)state;
    CHECK_TEXT(missing((int64_t[]){ 1, 0 }, 2, 2), "");
    CHECK_TEXT(missing((int64_t[]){ 5 }, 1, 8), "");
    CHECK_TEXT(missing((int64_t[]){ -1, -1 }, 2, -1), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(missing_ranks_are_counted_and_the_first_is_named),
        TEST(nothing_is_said_of_whole_runs_single_files_and_unknown_ranks),
    };
    return ARENA_RUN(tests);
}
