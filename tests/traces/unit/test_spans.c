#include "harness/test.h"

#include "traces/table/spans.h"

enum { MOST = 16 };

/* Spans from pairs; n counts spans. */
#define SPANS(...)                                                                                 \
    {                                                                                              \
        .at = (Span[]){ __VA_ARGS__ }, .n = sizeof((Span[]){ __VA_ARGS__ }) / sizeof(Span)         \
    }

static Arena arena;

static void same(const Spans *got, const Span *want, int64_t n)
{
    CHECK_INT(got->n, n);
    for (int64_t i = 0; i < n; i++) {
        CHECK_NEAR(got->at[i].start, want[i].start, 0);
        CHECK_NEAR(got->at[i].end, want[i].end, 0);
    }
}

static void intervals_that_touch_or_overlap_become_one(void **state)
{
    (void)state;
    Spans s = SPANS({ 20, 30 }, { 0, 10 }, { 10, 12 }, { 25, 26 }, { 29, 35 }, { 40, 41 });
    const Span want[] = { { 0, 12 }, { 20, 35 }, { 40, 41 } };
    spans_merge(&s);
    same(&s, want, 3);
    CHECK_NEAR(spans_length(&s), 28, 0);
}

static void an_interval_inside_another_does_not_shorten_it(void **state)
{
    (void)state;
    Spans s = SPANS({ 0, 100 }, { 1, 2 }, { 99, 100 }), none = { 0 };
    const Span want[] = { { 0, 100 } };
    spans_merge(&s);
    same(&s, want, 1);
    spans_merge(&none);
    CHECK_INT(none.n, 0);
    CHECK_NEAR(spans_length(&none), 0, 0);
}

static void subtracting(const Span *a, int64_t n, const Span *b, int64_t m, const Span *want,
                        int64_t left)
{
    Spans x = { .n = n }, y = { .n = m }, r = { 0 };
    Span room[2][MOST];
    x.at = memcpy(room[0], a, (size_t)n * sizeof *a);
    y.at = memcpy(room[1], b, (size_t)m * sizeof *b);
    CHECK_OK(spans_subtract(&x, &y, &arena, &r));
    same(&r, want, left);
}

#define LIST(...)                                                                                  \
    (const Span[]){ __VA_ARGS__ }, sizeof((const Span[]){ __VA_ARGS__ }) / sizeof(Span)
#define NOTHING (const Span[]){ { 0, 0 } }, 0

static void what_is_subtracted_leaves_holes(void **state)
{
    (void)state;
    subtracting(LIST({ 10, 20 }), LIST({ 15, 16 }, { 16, 18 }), LIST({ 10, 15 }, { 18, 20 }));
    subtracting(LIST({ 10, 20 }), LIST({ 15, 22 }), LIST({ 10, 15 }));
    subtracting(LIST({ 10, 20 }), LIST({ 5, 12 }), LIST({ 12, 20 }));
    subtracting(LIST({ 10, 20 }), LIST({ 10, 20 }), NOTHING);
    subtracting(LIST({ 10, 20 }), LIST({ 0, 30 }), NOTHING);
    subtracting(LIST({ 10, 20 }), LIST({ 0, 10 }, { 20, 30 }), LIST({ 10, 20 }));
    subtracting(LIST({ 10, 20 }), NOTHING, LIST({ 10, 20 }));
    subtracting(NOTHING, LIST({ 10, 20 }), NOTHING);
}

/* One hole over several intervals, several holes in one, in one pass. */
static void a_hole_over_two_intervals_cuts_both(void **state)
{
    (void)state;
    subtracting(LIST({ 0, 4 }, { 6, 10 }, { 12, 20 }), LIST({ 3, 7 }, { 13, 14 }, { 15, 16 }),
                LIST({ 0, 3 }, { 7, 10 }, { 12, 13 }, { 14, 15 }, { 16, 20 }));
    subtracting(LIST({ 0, 1 }, { 2, 3 }, { 4, 5 }), LIST({ 0.5, 4.5 }),
                LIST({ 0, 0.5 }, { 4.5, 5 }));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(intervals_that_touch_or_overlap_become_one),
        TEST(an_interval_inside_another_does_not_shorten_it),
        TEST(what_is_subtracted_leaves_holes),
        TEST(a_hole_over_two_intervals_cuts_both),
    };
    if (arena_init(&arena, "test", MEM_HOST, 1 << 20) != OK) return 1;
    int failed = TEST_RUN(tests);
    arena_free(&arena);
    return failed;
}
