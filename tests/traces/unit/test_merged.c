/* Files that were merged of several processes, clocks that differ, and durations that are too long.
 * Each trace is text, as merging programs write it. */
#include "traces.h"

#include "traces/read/events_cut.h"
#include "traces/sheets/report.h"

#include <stdarg.h>

static Arena arena;

/* A text of events, one behind the other. */
typedef struct Written {
    char text[8192];
    size_t n;
} Written;

__attribute__((format(printf, 2, 3))) static void put(Written *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    w->n += (size_t)vsnprintf(w->text + w->n, sizeof w->text - w->n, format, args);
    va_end(args);
    CHECK(w->n < sizeof w->text);
}

/* An operator of a process with one launch, and its kernel of `us` on a device. */
static void put_op(Written *w, const char *op, const char *pid, double ts, int link)
{
    put(w,
        "%s{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"%s\",\"pid\":%s,\"tid\":1,\"ts\":%g,\"dur\":"
        "50}",
        w->n == 0 ? "[" : ",", op, pid, ts);
    put(w,
        ",{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":%s,\"tid\":"
        "1,"
        "\"ts\":%g,\"dur\":5,\"args\":{\"correlation\":%d}}",
        pid, ts + 10, link);
}

static void put_kernel(Written *w, const char *name, const char *pid, double ts, double us,
                       int link)
{
    put(w,
        "%s{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"%s\",\"pid\":%s,\"tid\":7,\"ts\":%g,\"dur\":"
        "%g,"
        "\"args\":{\"correlation\":%d,\"stream\":7,\"device\":0}}",
        w->n == 0 ? "[" : ",", name, pid, ts, us, link);
}

typedef struct Loaded {
    Events e;
    Tree tree;
    ReportOptions o;
    Report report;
} Loaded;

static void load(Loaded *l, Written *w)
{
    const ReadAs plain = { 0 };
    const TreeOptions how = { .link = LINK_CORRELATION };
    put(w, "]");
    *l = (Loaded){ .o = { .step = -1 } };
    CHECK_OK(trace_read(w->text, &plain, &l->e));
    CHECK_OK(tree_build(&l->e, &how, &arena, &l->tree));
    CHECK_OK(events_cut(&l->e, &l->tree, &arena));
    CHECK_OK(report_make(&l->e, &l->tree, &l->o, &arena, &l->report));
}

/* Busy time of the kernels of an operator; 0: it launched none. */
static double time_of(const Loaded *l, const char *op)
{
    for (int64_t k = 0; k < l->report.launchers; k++) {
        const Launcher *x = &l->report.launcher[k];
        if (x->event != EVENT_NONE && strcmp(event_name(&l->e, x->event), op) == 0)
            return x->direct_us;
    }
    return 0;
}

static void each_operator_has(const Loaded *l, double us)
{
    static const char *const ops[] = { "aten::mm", "aten::mul", "aten::add", "aten::silu" };
    CHECK_INT(l->report.launchers, 4);
    for (int i = 0; i < 4; i++) CHECK_NEAR(time_of(l, ops[i]), us, 1e-9);
    CHECK_INT(l->tree.unlinked, 0);
}

static void processes_behind_each_other_have_their_own_kernels(void **state)
{
    (void)state;
    /* pids of devices that are like those of processes, that are alike, and that differ */
    static const char *const device[][2] = { { "0", "1" }, { "0", "0" }, { "5", "6" } };
    for (int i = 0; i < 3; i++) {
        Written w = { 0 };
        Loaded l;
        put_op(&w, "aten::mm", "1", 1000, 1);
        put_kernel(&w, "k_mm", device[i][0], 2000, 80, 1);
        put_op(&w, "aten::mul", "1", 1100, 2);
        put_kernel(&w, "k_mul", device[i][0], 2100, 80, 2);
        put_op(&w, "aten::add", "2", 1005, 2);
        put_kernel(&w, "k_add", device[i][1], 2005, 80, 2);
        put_op(&w, "aten::silu", "2", 1105, 1);
        put_kernel(&w, "k_silu", device[i][1], 2105, 80, 1);
        load(&l, &w);
        each_operator_has(&l, 80);
        CHECK_INT(l.tree.processes, 2);
        CHECK_INT(l.tree.guessed, 0);
        CHECK_INT(l.e.counts.cut, 0); /* a stream of each process */
        events_free(&l.e);
    }
}

/* Labels as SGLang's merger writes them, and devices with their process's pid. */
static void a_pid_tells_the_process_in_any_order_of_the_file(void **state)
{
    (void)state;
    static const char *const pid[][4] = { { "\"[TP00] 11\"", "\"[TP00] 0\"", "\"[TP01] 12\"",
                                            "\"[TP01] 0\"" },
                                          { "11", "11", "12", "12" } };
    for (int i = 0; i < 2; i++) {
        const char *const *p = pid[i];
        Written w = { 0 };
        Loaded l;
        put_kernel(&w, "k_add", p[3], 2005, 70, 1);
        put_op(&w, "aten::mm", p[0], 1000, 1);
        put_op(&w, "aten::add", p[2], 1005, 1);
        put_op(&w, "aten::mul", p[0], 1100, 2);
        put_op(&w, "aten::silu", p[2], 1105, 2);
        put_kernel(&w, "k_mm", p[1], 2000, 70, 1);
        put_kernel(&w, "k_silu", p[3], 2105, 70, 2);
        put_kernel(&w, "k_mul", p[1], 2100, 70, 2);
        load(&l, &w);
        each_operator_has(&l, 70);
        CHECK_TEXT(event_name(&l.e, l.report.own[l.report.launcher[1].first]), "k_add");
        CHECK_INT(l.tree.guessed, 0);
        events_free(&l.e);
    }
}

/* A file that is sorted by time: number 3 and 4 have one launch each, which tells the devices. */
static void numbers_of_one_process_tell_whose_device_it_is(void **state)
{
    (void)state;
    Written w = { 0 };
    Loaded l;
    put_op(&w, "aten::mm", "31", 1000, 1);
    put_op(&w, "aten::add", "32", 1005, 1);
    put_op(&w, "aten::mul", "31", 1100, 3);
    put_op(&w, "aten::silu", "32", 1105, 4);
    put_kernel(&w, "k_mm", "1", 2000, 60, 1);
    put_kernel(&w, "k_add", "0", 2005, 60, 1);
    put_kernel(&w, "k_mul", "1", 2100, 60, 3);
    put_kernel(&w, "k_silu", "0", 2105, 60, 4);
    load(&l, &w);
    each_operator_has(&l, 60);
    CHECK_TEXT(event_name(&l.e, l.report.own[l.report.launcher[0].first]), "k_mm");
    CHECK_INT(l.tree.guessed, 0);
    events_free(&l.e);
}

/* Both are device 0 of their own machine. Number 1 is of both: which kernel is whose is a guess. */
static void processes_that_share_a_device_have_the_kernels_of_their_numbers(void **state)
{
    (void)state;
    Written w = { 0 };
    Loaded l;
    put_op(&w, "aten::mm", "31", 1000, 3);
    put_op(&w, "aten::add", "32", 1005, 4);
    put_kernel(&w, "k_mm", "0", 2000, 60, 3);
    put_kernel(&w, "k_add", "0", 2100, 60, 4);
    put_op(&w, "aten::mul", "31", 2200, 5);
    put_op(&w, "aten::silu", "32", 2205, 6);
    put_kernel(&w, "k_silu", "0", 2300, 60, 6);
    put_kernel(&w, "k_mul", "0", 2400, 60, 5);
    put_op(&w, "more", "31", 2500, 7);
    put_kernel(&w, "k", "0", 2600, 10, 7);
    put_op(&w, "both", "31", 2700, 1);
    put_op(&w, "both", "32", 2705, 1);
    put_kernel(&w, "k", "0", 2800, 10, 1);
    put_kernel(&w, "k", "0", 2900, 10, 1);
    load(&l, &w);
    static const char *const ops[] = { "aten::mm", "aten::mul", "aten::add", "aten::silu" };
    for (int i = 0; i < 4; i++) CHECK_NEAR(time_of(&l, ops[i]), 60, 1e-9);
    CHECK_INT(l.tree.unlinked, 0);
    CHECK_INT(l.tree.guessed, 2);
    events_free(&l.e);
}

/* The file has all calls first, so that the last process does not own what stands behind it. */
static void devices_behind_all_calls_are_not_the_last_process_own(void **state)
{
    (void)state;
    Written w = { 0 };
    Loaded l;
    put_op(&w, "aten::mm", "31", 1000, 1);
    put_op(&w, "aten::mul", "31", 1100, 3);
    put_op(&w, "aten::add", "32", 1005, 1);
    put_op(&w, "aten::silu", "32", 1105, 4);
    put_kernel(&w, "k_mm", "1", 2000, 60, 1);
    put_kernel(&w, "k_add", "0", 2005, 60, 1);
    put_kernel(&w, "k_mul", "1", 2100, 60, 3);
    put_kernel(&w, "k_silu", "0", 2105, 60, 4);
    load(&l, &w);
    each_operator_has(&l, 60);
    CHECK_TEXT(event_name(&l.e, l.report.own[l.report.launcher[0].first]), "k_mm");
    CHECK_INT(l.tree.guessed, 0);
    events_free(&l.e);
}

static void what_nothing_tells_is_a_guess_that_is_said(void **state)
{
    (void)state;
    Written w = { 0 };
    Loaded l;
    Text said;
    put_op(&w, "aten::mm", "31", 1000, 1);
    put_op(&w, "aten::add", "32", 1005, 1);
    put_op(&w, "aten::mul", "31", 1100, 2);
    put_op(&w, "aten::silu", "32", 1105, 2);
    put_kernel(&w, "k_mm", "0", 2000, 60, 1);
    put_kernel(&w, "k_add", "1", 2005, 60, 1);
    put_kernel(&w, "k_mul", "0", 2100, 60, 2);
    put_kernel(&w, "k_silu", "1", 2105, 60, 2);
    load(&l, &w);
    each_operator_has(&l, 60);
    CHECK_INT(l.tree.guessed, 4);
    CHECK_OK(text_init(&said, &arena));
    CHECK_OK(report_doubts(&l.e, &l.tree, &said));
    CHECK(strstr(said.data, "4 device events fit launches of several processes") != NULL);
    CHECK(strstr(said.data, "2 processes make calls") != NULL);
    events_free(&l.e);
}

/* The launch of the first kernel is before the trace; another process has its number. */
static void a_kernel_takes_no_launch_of_another_process(void **state)
{
    (void)state;
    Written w = { 0 };
    Loaded l;
    put_kernel(&w, "k_old", "0", 900, 40, 9);
    put_op(&w, "aten::mm", "1", 1000, 1);
    put_kernel(&w, "k_mm", "0", 2000, 80, 1);
    put_op(&w, "aten::add", "2", 1005, 9);
    put_kernel(&w, "k_add", "1", 2005, 80, 9);
    load(&l, &w);
    CHECK_INT(l.tree.unlinked, 1);
    CHECK_NEAR(time_of(&l, "aten::add"), 80, 1e-9);
    events_free(&l.e);
}

static void a_number_that_comes_again_links_to_the_launch_before(void **state)
{
    (void)state;
    Written w = { 0 };
    Loaded l;
    put_op(&w, "first", "1", 1000, 1);
    put_op(&w, "second", "1", 5000, 1);
    put_kernel(&w, "k", "0", 5100, 30, 1);
    put_kernel(&w, "k", "0", 1100, 20, 1);
    load(&l, &w);
    CHECK_NEAR(time_of(&l, "first"), 20, 1e-9);
    CHECK_NEAR(time_of(&l, "second"), 30, 1e-9);
    events_free(&l.e);
}

static void correlation_0_links_nothing(void **state)
{
    (void)state;
    Written w = { 0 };
    Loaded l;
    put_op(&w, "none", "1", 1000, 0);
    put_op(&w, "aten::mm", "1", 1100, 1);
    put_kernel(&w, "k", "0", 1200, 20, 0);
    put_kernel(&w, "k", "0", 1300, 30, 1);
    load(&l, &w);
    CHECK_NEAR(time_of(&l, "none"), 0, 1e-9);
    CHECK_NEAR(time_of(&l, "aten::mm"), 30, 1e-9);
    CHECK_INT(l.tree.unlinked, 1);
    events_free(&l.e);
}

static void a_gpu_whose_clock_is_behind_gives_no_negative_delays(void **state)
{
    (void)state;
    Written w = { 0 };
    Loaded l;
    Text said;
    Table t = { .name = "launch_delays" };
    put_op(&w, "aten::mm", "1", 1000, 1);
    put_kernel(&w, "k", "0", 900, 20, 1);
    put_op(&w, "aten::mul", "1", 1100, 2);
    put_kernel(&w, "k", "0", 1150, 20, 2);
    load(&l, &w);
    CHECK_NEAR(time_of(&l, "aten::mm"), 20, 1e-9);
    CHECK_INT(l.tree.early, 1);
    CHECK_OK(text_init(&said, &arena));
    CHECK_OK(report_doubts(&l.e, &l.tree, &said));
    CHECK(strstr(said.data, "1 device events start before their launch, by up to 110.000 us") !=
          NULL);
    CHECK_OK(sheet_launch_delays(&l.report, &t));
    CHECK_NEAR(table_at(&t, 0, table_column(&t, "delay us_min"))->number, 40, 1e-9);
    CHECK_NEAR(table_at(&t, 0, table_column(&t, "queue depth_mean"))->number, 0, 1e-9);
    events_free(&l.e);
}

/* 500 us over the next kernel; the last of all is not cut, nor is an overlap of rounding. */
static void a_duration_ends_where_the_next_kernel_begins(void **state)
{
    (void)state;
    Written w = { 0 };
    Loaded l;
    Text said;
    put_op(&w, "aten::mm", "1", 1000, 1);
    put_kernel(&w, "long", "0", 2000, 600, 1);
    put_op(&w, "aten::mul", "1", 1100, 2);
    put_kernel(&w, "next", "0", 2100, 50.5, 2);
    put_op(&w, "aten::add", "1", 1200, 3);
    put_kernel(&w, "last", "0", 2150, 900, 3);
    load(&l, &w);
    CHECK_NEAR(time_of(&l, "aten::mm"), 100, 1e-9);
    CHECK_NEAR(time_of(&l, "aten::mul"), 50.5, 1e-9);
    CHECK_NEAR(time_of(&l, "aten::add"), 900, 1e-9);
    CHECK_INT(l.e.counts.cut, 1);
    CHECK_OK(text_init(&said, &arena));
    CHECK_OK(report_doubts(&l.e, &l.tree, &said));
    CHECK(strstr(said.data, "1 device events overlap the next one of their stream, by 0.500 ms") !=
          NULL);
    events_free(&l.e);
}

static void kernels_of_one_graph_may_overlap(void **state)
{
    (void)state;
    Written w = { 0 };
    Loaded l;
    put_op(&w, "graph", "1", 1000, 1);
    put_kernel(&w, "left", "0", 2000, 600, 1);
    put_kernel(&w, "right", "0", 2100, 50, 1);
    put_kernel(&w, "after", "0", 2300, 50, 2);
    load(&l, &w);
    CHECK_INT(l.e.counts.cut, 1);
    CHECK_NEAR(l.e.dur[2], 300, 1e-9); /* to "after" */
    events_free(&l.e);
}

/* Step 4 of two processes is one step. */
static void a_step_of_two_processes_has_the_work_of_both(void **state)
{
    (void)state;
    Written w = { 0 };
    Loaded l;
    Span step;
    for (int p = 1; p <= 2; p++)
        put(&w,
            "%s{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#4\",\"pid\":%d,"
            "\"tid\":1,\"ts\":%d,\"dur\":100}",
            w.n == 0 ? "[" : ",", p, 1000 + 20 * p);
    put_op(&w, "aten::mm", "1", 1025, 1);
    put_kernel(&w, "k", "0", 1100, 20, 1);
    load(&l, &w);
    CHECK_OK(report_step(&l.e, 4, &arena, &step));
    CHECK_NEAR(step.start, 1020, 1e-9);
    CHECK_NEAR(step.end, 1140, 1e-9);
    events_free(&l.e);
}

/* Two allocators of device 0. */
static void memory_stands_by_process(void **state)
{
    (void)state;
    Written w = { 0 };
    Loaded l;
    Table t = { .name = "memory_summary" };
    for (int p = 1; p <= 2; p++)
        put(&w,
            "%s{\"ph\":\"i\",\"cat\":\"cpu_instant_event\",\"name\":\"[memory]\",\"pid\":%d,"
            "\"tid\":1,"
            "\"ts\":%d,\"args\":{\"Total Allocated\":%d,\"Total Reserved\":0,\"Bytes\":1,"
            "\"Device Id\":0,\"Device Type\":1}}",
            w.n == 0 ? "[" : ",", p, p, p << 20);
    put_kernel(&w, "k", "0", 1100, 20, 1);
    load(&l, &w);
    CHECK_OK(sheet_memory_summary(&l.report, &t));
    CHECK_INT(t.rows, 2);
    CHECK_TEXT(table_at(&t, 0, 0)->text, "device 0 of process 1");
    CHECK_NEAR(table_at(&t, 1, table_column(&t, "peak allocated MiB"))->number, 2, 1e-9);
    events_free(&l.e);
}

/* DeepSeek's published training step. The numbers were computed from its events by a program of another
 * language: unions of spans, us. */
static void deepep_is_communication_and_mostly_hidden(void **state)
{
    (void)state;
    static const char PATH[] = "../shared/traces/deepseek/train.json.gz";
    const TreeOptions how = { .link = LINK_CORRELATION };
    Loaded l = { .o = { .step = -1 } };
    double us[TIMELINE_ROWS];
    if (!file_exists(PATH)) {
        print_message("%s is not there\n", PATH);
        skip();
    }
    CHECK_OK(events_read(PATH, &(EventsOptions){ 0 }, &l.e));
    CHECK_OK(tree_build(&l.e, &how, &arena, &l.tree));
    CHECK_OK(events_cut(&l.e, &l.tree, &arena));
    CHECK_OK(report_make(&l.e, &l.tree, &l.o, &arena, &l.report));
    CHECK_OK(report_timeline(&l.report, us));
    CHECK_NEAR(us[TIMELINE_COMM], 113440, 0.5);
    CHECK_NEAR(us[TIMELINE_EXPOSED_COMM], 4186, 0.5);
    CHECK_NEAR(us[TIMELINE_COMPUTATION], 124317, 0.5);
    CHECK_INT(l.e.counts.cut, 0);
    events_free(&l.e);
}

int main(void)
{
    CHECK_OK(arena_reserve(&arena, "test", (size_t)1 << 30));
    const struct CMUnitTest tests[] = {
        TEST(processes_behind_each_other_have_their_own_kernels),
        TEST(a_pid_tells_the_process_in_any_order_of_the_file),
        TEST(numbers_of_one_process_tell_whose_device_it_is),
        TEST(processes_that_share_a_device_have_the_kernels_of_their_numbers),
        TEST(devices_behind_all_calls_are_not_the_last_process_own),
        TEST(what_nothing_tells_is_a_guess_that_is_said),
        TEST(a_kernel_takes_no_launch_of_another_process),
        TEST(a_number_that_comes_again_links_to_the_launch_before),
        TEST(correlation_0_links_nothing),
        TEST(a_gpu_whose_clock_is_behind_gives_no_negative_delays),
        TEST(a_duration_ends_where_the_next_kernel_begins),
        TEST(kernels_of_one_graph_may_overlap),
        TEST(a_step_of_two_processes_has_the_work_of_both),
        TEST(memory_stands_by_process),
        TEST(deepep_is_communication_and_mostly_hidden),
    };
    int failed = TEST_RUN(tests);
    arena_free(&arena);
    return failed;
}
