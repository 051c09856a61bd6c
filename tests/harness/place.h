/*
 * place: a folder and an arena of a test's own. A test file keeps them in a struct Place, with what
 * else its tests work on, and has two functions for cmocka: place_open makes it and sets *state to
 * it, place_close takes it down, even after a test that failed.
 */
#ifndef TESTS_HARNESS_PLACE_H
#define TESTS_HARNESS_PLACE_H

#include "harness/test.h"

#include "engine/base/arena.h"
#include "engine/base/file.h"

#include <stdlib.h>

#define PLACE_TEST(name) cmocka_unit_test_setup_teardown(name, place_open, place_close)

static inline void place_make(char folder[64], Arena *arena)
{
    (void)snprintf(folder, 64, "/tmp/switchyard_test_XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    CHECK_OK(arena_init(arena, "test", MEM_HOST, (size_t)1 << 30));
}

static inline void place_drop(const char *folder, Arena *arena)
{
    CHECK_OK(file_remove_tree(folder));
    arena_free(arena);
}

#endif
