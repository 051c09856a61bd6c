/* out: a text that a test writes into. */
#ifndef TESTS_HARNESS_OUT_H
#define TESTS_HARNESS_OUT_H

#include "harness/test.h"

#include "engine/base/text.h"

typedef struct Out {
    Arena arena;
    Text text;
} Out;

static inline void out_open(Out *o)
{
    *o = (Out){ 0 };
    CHECK_OK(arena_init(&o->arena, "test", MEM_HOST, (size_t)64 << 20));
    CHECK_OK(text_init(&o->text, &o->arena));
}

static inline void out_close(Out *o) { arena_free(&o->arena); }

static inline int out_set_up(void **state)
{
    static Out o;
    out_open(*state = &o);
    return 0;
}

static inline int out_tear_down(void **state)
{
    out_close(*state);
    return 0;
}

#define OUT_TEST(name) cmocka_unit_test_setup_teardown(name, out_set_up, out_tear_down)

#endif
