/* What shares boxes on a lane, and what a page of a trace keeps of events that are too many to be drawn one by
 * one. */
#include "harness/events_of.h"

#include "pages/charts/merge.h"
#include "traces/page/trace_page.h"

#include <stdlib.h>

static Arena arena;

/* 0-2 of kind 1, 3-4 of kind 2, 3.5-5 of kind 1: 1 of the last is covered by none before. */
static void a_group_has_a_box_for_each_kind(void **state)
{
    (void)state;
    Merge m = { 0 };
    MergeBox box[MERGE_KINDS];
    merge_add(&m, 1, 10, 12);
    merge_add(&m, 2, 13, 14);
    merge_add(&m, 1, 13.5, 15);
    CHECK_INT(merge_boxes(&m, box), 2);
    CHECK(box[0].kind == 1 && box[1].kind == 2);
    CHECK_INT(box[0].spans, 2);
    CHECK_NEAR(box[0].sum, 3.5, 1e-12);
    CHECK_NEAR(box[0].length, 3, 1e-12);
    CHECK_NEAR(box[0].start, 10, 0);
    CHECK_NEAR(box[1].start, 13, 0);
    CHECK_NEAR(box[1].length, 1, 1e-12);
    CHECK_NEAR(box[1].end, 14, 1e-12);
    CHECK_INT(merge_boxes(&m, box), 0);
}

static void a_group_ends_at_a_gap_and_at_four_grains(void **state)
{
    (void)state;
    Merge m = { 0 };
    CHECK(merge_takes(&m, 5, 100, 1));
    merge_add(&m, 0, 0, 0.5);
    CHECK(merge_takes(&m, 1.5, 2, 1) && !merge_takes(&m, 1.6, 2, 1));
    merge_add(&m, 0, 1, 3.5);
    CHECK(merge_takes(&m, 3.6, 4, 1) && !merge_takes(&m, 3.6, 4.1, 1));
}

/* What the numbers of a lane say: boxes, the events that they stand for, and ns by kind. */
typedef struct Seen {
    int64_t boxes, events, ns[16];
} Seen;

static Seen seen_in(const char *text)
{
    Seen s = { 0 };
    const char *at = strstr(text, "\"box\":[");
    CHECK(at != NULL);
    at += 6; /* to [; each number stands behind [ or a comma */
    while (*at != ']') {
        long long v[4];
        for (int i = 0; i < 4; i++) {
            char *end = NULL;
            v[i] = strtoll(at + 1, &end, 10);
            CHECK(end > at + 1);
            at = end;
        }
        s.boxes++;
        s.events += v[3] >= 8 ? v[2] : 1;
        s.ns[v[3]] += v[1];
    }
    return s;
}

enum { KERNELS = 480 }; /* of at most EVENTS_OF_MOST */

/* Kernels of 1 us, each 2 us behind the one before, every third one a collective. */
static Seen lanes_of(int64_t most)
{
    static EventOf list[KERNELS];
    static EventsOf of;
    static Tree tree;
    ReportOptions o = { .step = -1 };
    TreeOptions t = { 0 };
    Report r;
    TracePage p;
    for (int i = 0; i < KERNELS; i++)
        list[i] =
            (EventOf){ EVENT_KERNEL, i % 3 == 0 ? "ncclKernel" : "gemm", 4, 2.0 * i, 1, 0, NULL };
    CHECK_OK(arena_init(&arena, "test", MEM_HOST, (size_t)1 << 30));
    events_of(&of, list, KERNELS);
    CHECK_OK(tree_build(&of.e, &t, &arena, &tree));
    CHECK_OK(report_make(&of.e, &tree, &o, &arena, &r));
    CHECK_OK(trace_page_begin(&p, 1));
    CHECK_OK(trace_lanes(&p, &r, most));
    Seen s = seen_in(p.lanes.text.data);
    CHECK_INT(s.boxes, p.drawn[0]);
    trace_page_free(&p);
    events_of_free(&of);
    arena_free(&arena);
    return s;
}

static void few_events_have_a_box_each(void **state)
{
    (void)state;
    Seen s = lanes_of(KERNELS);
    CHECK_INT(s.boxes, KERNELS);
    CHECK_INT(s.ns[BUCKET_COMPUTATION], 320 * 1000);
    CHECK_INT(s.ns[BUCKET_COMM], 160 * 1000);
}

static void of_too_many_events_none_is_left_out(void **state)
{
    (void)state;
    Seen s = lanes_of(60);
    CHECK(s.boxes <= 60 && s.boxes > 10);
    CHECK_INT(s.events, KERNELS);
    CHECK_INT(s.ns[8 + BUCKET_COMPUTATION], 320 * 1000);
    CHECK_INT(s.ns[8 + BUCKET_COMM], 160 * 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_group_has_a_box_for_each_kind),
        TEST(a_group_ends_at_a_gap_and_at_four_grains),
        TEST(few_events_have_a_box_each),
        TEST(of_too_many_events_none_is_left_out),
    };
    return TEST_RUN(tests);
}
