/* arena: one that the tests of a file share, from the first to the last. */
#ifndef TESTS_HARNESS_ARENA_H
#define TESTS_HARNESS_ARENA_H

#include "harness/test.h"

#include "engine/base/arena.h"

static Arena arena;

static inline int open_arena(void **state)
{
    (void)state;
    CHECK_OK(arena_init(&arena, "test", MEM_HOST, (size_t)1 << 30));
    return 0;
}

static inline int close_arena(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

#define ARENA_RUN(tests) cmocka_run_group_tests((tests), open_arena, close_arena)

#endif
