#include "harness/events_of.h"

#include "traces/read/tree.h"

static Arena arena;
static EventsOf of;

static Tree tree_of(const EventOf *list, int n, TreeOptions o)
{
    Tree t = { 0 };
    events_of(&of, list, n);
    CHECK_OK(tree_build(&of.e, &o, &arena, &t));
    return t;
}

#define TREE(options, ...)                                                                         \
    tree_of((const EventOf[]){ __VA_ARGS__ },                                                      \
            (int)(sizeof((const EventOf[]){ __VA_ARGS__ }) / sizeof(EventOf)),                     \
            (TreeOptions){ options })

static void row_is(const uint32_t *first, const uint32_t *list, int i, int n, const int *want)
{
    CHECK_INT(first[i + 1] - first[i], n);
    for (int k = 0; k < n; k++) CHECK_INT(list[first[i] + (uint32_t)k], want[k]);
}

#define CHILDREN(t, i, n, ...) row_is((t)->first, (t)->child, i, n, (const int[]){ __VA_ARGS__ })
#define WORK(t, i, n, ...)     row_is((t)->gpu_first, (t)->gpu, i, n, (const int[]){ __VA_ARGS__ })

#define OP(name, ts, dur)                                                                          \
    {                                                                                              \
        EVENT_CPU_OP, name, 0, ts, dur, 0, NULL                                                    \
    }
#define CALL(ts, dur, id)                                                                          \
    {                                                                                              \
        EVENT_RUNTIME, "cudaLaunchKernel", 0, ts, dur, id, NULL                                    \
    }
#define KERNEL(ts, dur, id)                                                                        \
    {                                                                                              \
        EVENT_KERNEL, "k", 4, ts, dur, id, NULL                                                    \
    }
#define ON(track_, kind, nm, ts, dur)                                                              \
    {                                                                                              \
        kind, nm, track_, ts, dur, 0, NULL                                                         \
    }

static void calls_hang_under_the_call_that_encloses_them(void **state)
{
    (void)state;
    Tree t =
        TREE(.drop_crossing = false, OP("a", 0, 100), OP("b", 10, 20), OP("c", 12, 5),
             OP("d", 40, 10), OP("e", 100, 5), ON(1, EVENT_CPU_OP, "other", 11, 1), OP("f", 30, 0));
    CHECK_INT(t.parent[0], EVENT_NONE);
    CHILDREN(&t, 0, 3, 1, 6, 3); /* b has ended when f begins */
    CHILDREN(&t, 1, 1, 2);
    CHILDREN(&t, 4, 0, 0);
    CHECK_INT(t.roots, 3);
    CHECK_INT(t.root[0], 0);
    CHECK_INT(t.root[1], 5); /* by time, over threads */
    CHECK_INT(t.root[2], 4);
    CHECK_INT(t.dropped, 0);
    events_of_free(&of);
}

/* The file has children before their callers, and late events first. */
static void the_order_of_the_file_does_not_matter(void **state)
{
    (void)state;
    Tree t = TREE(.drop_crossing = false, OP("d", 40, 10), OP("c", 12, 5), OP("b", 10, 20),
                  OP("a", 0, 100), OP("z", 41, 1));
    CHILDREN(&t, 3, 2, 2, 0);
    CHILDREN(&t, 2, 1, 1);
    CHILDREN(&t, 0, 1, 4);
    CHECK_INT(t.roots, 1);
    events_of_free(&of);
}

/* Two begin together: the longer one is the caller. TraceLens takes the first of the file. */
static void of_two_that_begin_together_the_longer_one_is_the_caller(void **state)
{
    (void)state;
    Tree t = TREE(.drop_crossing = false, OP("inner", 5, 2), OP("outer", 5, 9), CALL(5, 2, 1));
    CHILDREN(&t, 1, 1, 0);
    CHILDREN(&t, 0, 1, 2); /* of one length: an operator calls the runtime */
    CHECK_INT(t.dropped, 0);
    events_of_free(&of);
    t = TREE(.drop_crossing = true, OP("inner", 5, 2), OP("outer", 5, 9));
    CHILDREN(&t, 0, 0, 0);
    CHECK_INT(t.parent[1], EVENT_NONE);
    CHECK_INT(t.dropped, 1);
    CHECK_INT(t.roots, 1);
    events_of_free(&of);
}

static void an_event_that_outlives_its_caller_is_kept(void **state)
{
    (void)state;
    Tree t = TREE(.drop_crossing = false, OP("a", 0, 100), OP("b", 50, 60), OP("c", 105, 2));
    CHILDREN(&t, 0, 1, 1);
    CHECK_INT(t.parent[2], EVENT_NONE); /* b ends with a */
    CHECK_INT(t.dropped, 1);
    events_of_free(&of);
    t = TREE(.drop_crossing = true, OP("a", 0, 100), OP("b", 50, 60), CALL(60, 2, 0));
    CHECK_INT(t.parent[1], EVENT_NONE);
    CHECK_INT(t.parent[2], 0);
    CHECK_INT(t.roots, 1);
    CHECK_INT(t.dropped, 1);
    events_of_free(&of);
}

static void an_event_that_begins_a_little_early_lies_beside(void **state)
{
    (void)state;
    for (int drop = 0; drop < 2; drop++) {
        Tree t = TREE(.drop_crossing = drop, OP("a", 0, 100), OP("b", 10, 10), OP("c", 19.5, 10));
        CHILDREN(&t, 0, 2, 1, 2);
        CHECK_INT(t.dropped, 0);
        events_of_free(&of);
    }
}

static void device_work_hangs_under_its_call_and_counts_for_all_callers(void **state)
{
    (void)state;
    Tree t = TREE(.drop_crossing = false, OP("a", 0, 100), OP("b", 10, 20), CALL(12, 2, 7),
                  CALL(16, 2, 8), KERNEL(60, 5, 8), KERNEL(50, 5, 7), KERNEL(70, 5, 9),
                  CALL(80, 2, 10), KERNEL(90, 1, 0));
    CHILDREN(&t, 2, 1, 5);
    CHILDREN(&t, 3, 1, 4);
    CHILDREN(&t, 7, 0, 0);
    WORK(&t, 0, 2, 5, 4); /* by time */
    WORK(&t, 1, 2, 5, 4);
    WORK(&t, 3, 1, 4);
    CHECK_INT(t.unlinked, 2);
    CHECK_INT(tree_launcher(&t, 5), 1);
    CHECK_INT(tree_launcher(&t, 6), EVENT_NONE);
    events_of_free(&of);
}

static void arrows_link_only_where_both_ends_are_there(void **state)
{
    (void)state;
    const EventOf list[] = { CALL(0, 1, 7),    CALL(2, 1, 8),    CALL(4, 1, 9),
                             KERNEL(10, 1, 7), KERNEL(12, 1, 8), KERNEL(14, 1, 9) };
    TreeOptions o = { .link = LINK_AC2G };
    Tree t;
    events_of(&of, list, 6);
    events_of_arrow(&of, 7, 0, 4);
    events_of_arrow(&of, 9, 0, 5); /* ends on another stream */
    of.flows[of.e.n_flows++] = (Flow){ .id = 8, .track = 4 };
    CHECK_OK(tree_build(&of.e, &o, &arena, &t));
    CHECK_INT(t.parent[3], 0);
    CHECK_INT(t.parent[4], EVENT_NONE);
    CHECK_INT(t.parent[5], EVENT_NONE);
    CHECK_INT(t.unlinked, 2);
    o.link = LINK_CORRELATION;
    CHECK_OK(tree_build(&of.e, &o, &arena, &t));
    CHECK_INT(t.unlinked, 0);
    events_of_free(&of);
}

static void a_graph_launch_has_all_its_kernels(void **state)
{
    (void)state;
    for (int link = 0; link < 2; link++) {
        Tree t = TREE(.link = link, { EVENT_RUNTIME, "hipGraphLaunch", 0, 0, 9, 5, NULL },
                      KERNEL(30, 1, 5), KERNEL(20, 1, 5), KERNEL(40, 1, 6));
        CHILDREN(&t, 0, 2, 2, 1);
        CHECK_INT(t.unlinked, 1);
        CHECK_INT(tree_launcher(&t, 1), 0); /* nobody above */
        events_of_free(&of);
    }
}

/* No correlation on the first launch: the External id links (old ROCm). */
static void without_correlations_the_external_id_links(void **state)
{
    (void)state;
    const EventOf list[] = { OP("a", 0, 50), CALL(1, 1, 0), KERNEL(9, 1, 0), KERNEL(5, 1, 0) };
    const TreeOptions o = { 0 };
    Tree t;
    events_of(&of, list, 4);
    of.external[0] = of.external[1] = of.external[2] = 33;
    CHECK_OK(tree_build(&of.e, &o, &arena, &t));
    CHILDREN(&t, 1, 1, 2);
    CHECK_INT(t.unlinked, 1);
    events_of_free(&of);
}

static void a_launcher_is_the_next_operator_through_frames_of_python(void **state)
{
    (void)state;
    Tree t = TREE(.python = true, OP("outer", 0, 100), OP("execute", 5, 50),
                  ON(0, EVENT_PYTHON, "f.py(1): g", 6, 40), CALL(7, 1, 1), KERNEL(60, 1, 1),
                  CALL(80, 9, 2), { EVENT_DRIVER, "cuLaunchKernel", 0, 81, 2, 3, NULL },
                  KERNEL(90, 1, 3));
    CHECK_INT(t.parent[2], 1);
    CHECK_INT(tree_launcher(&t, 4), 0);
    CHECK_INT(tree_launcher(&t, 7), 6); /* below another call: that call itself */
    events_of_free(&of);
}

static void recomputation_marks_its_whole_subtree(void **state)
{
    (void)state;
    Tree t = TREE(.python = true, OP("a", 0, 100),
                  ON(0, EVENT_PYTHON, "torch/utils/checkpoint.py(99): recompute_fn", 10, 50),
                  OP("b", 20, 10), CALL(21, 1, 4), KERNEL(200, 1, 4), OP("c", 70, 5),
                  ON(0, EVENT_PYTHON, "checkpoint.py(99): recompute_fn", 80, 2));
    const bool want[] = { false, true, true, true, true, false, false };
    for (int i = 0; i < 7; i++) CHECK_INT(t.recompute[i], want[i]);
    events_of_free(&of);
}

/* 5,000 calls, each inside the one before, and 80,000 kernels below the last: the tree is 4,096 deep,
 * and there are 300 million pairs of a call and a kernel below it. */
static void calls_without_end_are_refused(void **state)
{
    (void)state;
    enum { CALLS = 5000, KERNELS = 80000, N = CALLS + KERNELS };
    static double ts[N], dur[N];
    static uint32_t zero[N];
    static int64_t link[N];
    static uint8_t kind[N];
    const TreeOptions o = { 0 };
    Tree t;
    events_of(&of, NULL, 0);
    for (int i = 0; i < N; i++) {
        ts[i] = i, dur[i] = 2 * N - 2 * i;
        link[i] = i < CALLS - 1 ? -1 : 1;
        kind[i] = i < CALLS ? EVENT_RUNTIME : EVENT_KERNEL;
    }
    of.e.n = N, of.e.ts = ts, of.e.dur = dur, of.e.name = zero, of.e.track = zero;
    of.e.link = link, of.e.external = link, of.e.kind = kind;
    CHECK_FAILS(tree_build(&of.e, &o, &arena, &t), ERR_UNSUPPORTED, "nested too deep");
    of.e.n = CALLS;
    CHECK_OK(tree_build(&of.e, &o, &arena, &t));
    CHECK_INT(t.dropped, CALLS - 4096);
    CHECK_INT(t.parent[CALLS - 1], 4095);
    events_of_free(&of);
}

static void a_trace_without_events_is_an_empty_tree(void **state)
{
    (void)state;
    const TreeOptions o = { 0 };
    Tree t;
    events_of(&of, NULL, 0);
    CHECK_OK(tree_build(&of.e, &o, &arena, &t));
    CHECK_INT(t.roots + t.unlinked + t.dropped, 0);
    events_of_free(&of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(calls_hang_under_the_call_that_encloses_them),
        TEST(the_order_of_the_file_does_not_matter),
        TEST(of_two_that_begin_together_the_longer_one_is_the_caller),
        TEST(an_event_that_outlives_its_caller_is_kept),
        TEST(an_event_that_begins_a_little_early_lies_beside),
        TEST(device_work_hangs_under_its_call_and_counts_for_all_callers),
        TEST(arrows_link_only_where_both_ends_are_there),
        TEST(a_graph_launch_has_all_its_kernels),
        TEST(without_correlations_the_external_id_links),
        TEST(a_launcher_is_the_next_operator_through_frames_of_python),
        TEST(recomputation_marks_its_whole_subtree),
        TEST(calls_without_end_are_refused),
        TEST(a_trace_without_events_is_an_empty_tree),
    };
    if (arena_init(&arena, "test", MEM_HOST, 64 << 20) != OK) return 1;
    int failed = TEST_RUN(tests);
    arena_free(&arena);
    return failed;
}
