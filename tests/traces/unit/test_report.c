#include "harness/events_of.h"

#include "compat/compat.h"
#include "engine/base/file.h"
#include "traces/read/events_read.h"
#include "traces/sheets/report.h"

static Arena arena;
static EventsOf of;
static Tree tree;

typedef struct Made {
    Report report;
    ReportOptions o;
} Made;

static void make_report(Made *m, const EventOf *list, int n)
{
    const TreeOptions t = { .python = m->o.recompute };
    events_of(&of, list, n);
    CHECK_OK(tree_build(&of.e, &t, &arena, &tree));
    CHECK_OK(report_make(&of.e, &tree, &m->o, &arena, &m->report));
}

#define REPORT(m, ...)                                                                             \
    make_report((m), (const EventOf[]){ __VA_ARGS__ },                                             \
                (int)(sizeof((const EventOf[]){ __VA_ARGS__ }) / sizeof(EventOf)))

#define OP(name, ts, dur)                                                                          \
    {                                                                                              \
        EVENT_CPU_OP, name, 0, ts, dur, 0, NULL                                                    \
    }
#define SHAPED(name, ts, dims)                                                                     \
    {                                                                                              \
        EVENT_CPU_OP, name, 0, ts, 9, 0, dims                                                      \
    }
#define CALL(ts, id)                                                                               \
    {                                                                                              \
        EVENT_RUNTIME, "cudaLaunchKernel", 0, ts, 1, id, NULL                                      \
    }
#define KERNEL(name, ts, dur, id)                                                                  \
    {                                                                                              \
        EVENT_KERNEL, name, 4, ts, dur, id, NULL                                                   \
    }
#define COPY(ts, dur, id)                                                                          \
    {                                                                                              \
        EVENT_MEMCPY, "Memcpy HtoD", 5, ts, dur, id, NULL                                          \
    }
#define STEP(n, ts, dur)                                                                           \
    {                                                                                              \
        EVENT_ANNOTATION, "ProfilerStep#" n, 0, ts, dur, 0, NULL                                   \
    }

static const Cell *cell(const Table *t, int64_t row, const char *column)
{
    CHECK(row < t->rows);
    for (int i = 0; i < t->columns; i++)
        if (strcmp(t->column[i], column) == 0) return &t->cell[row * t->columns + i];
    fail_msg("no column %s", column);
    return NULL;
}

#define NUMBER_AT(t, row, column, want) CHECK_NEAR(cell(t, row, column)->number, want, 1e-9)
#define TEXT_AT(t, row, column, want)   CHECK_TEXT(cell(t, row, column)->text, want)
#define WHOLE_AT(t, row, column, want)  CHECK_INT(cell(t, row, column)->whole, want)

/* TraceLens' table of that name. */
static Table theirs(Made *m, const char *name)
{
    Table table[REPORT_SHEETS_MOST];
    int n = 0;
    CHECK_OK(compat_tables(&m->report, table, &n));
    for (int i = 0; i < n; i++)
        if (strcmp(table[i].name, name) == 0) return table[i];
    fail_msg("no sheet %s", name);
    return (Table){ 0 };
}

/* ---- timeline ---- */

/* Computation 0-10 and 30-40, NCCL 5-20, a copy 15-25: of NCCL 10 stay uncovered, of the copy 5. */
static void time_is_exposed_where_nothing_covers_it(void **state)
{
    (void)state;
    Made m = { .o = { .step = -1 } };
    double us[TIMELINE_ROWS];
    REPORT(&m, KERNEL("gemm", 0, 10, 0), KERNEL("ncclDevKernel_AllReduce", 5, 15, 0),
           COPY(15, 10, 0), KERNEL("gemm", 30, 10, 0));
    CHECK_OK(report_timeline(&m.report, us));
    const double want[] = { 20, 10, 5, 35, 5, 40, 15, 10 };
    for (int i = 0; i < TIMELINE_ROWS; i++) CHECK_NEAR(us[i], want[i], 1e-9);
    events_of_free(&of);
}

static void names_say_what_is_a_copy_and_what_an_exchange(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        Bucket bucket;
    } row[] = {
        { "gemm", BUCKET_COMPUTATION },
        { "void rcclGenericKernel", BUCKET_COMM },
        { "vllm::Cross_Device_Reduce_2stage", BUCKET_COMM },
        { "multimem_all_reduce_kernel_0", BUCKET_COMM },
        { "void deep_ep::internode::dispatch<true>", BUCKET_COMM },
        { "two_shot_all_reduce_kernel", BUCKET_COMM },
        { "multimem_copy", BUCKET_COMPUTATION },
        { "MEMORY_COPY_DEVICE_TO_HOST", BUCKET_MEMCPY },
        { "MEMORY_COPY_DEVICE_TO_HOST2", BUCKET_COMPUTATION },
        { "__amd_rocclr_copyBuffer", BUCKET_MEMCPY },
        { "__amd_rocclr_copyBufferRectAligned.kd", BUCKET_MEMCPY },
        { "__amd_rocclr_fillBufferAligned", BUCKET_COMPUTATION },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Made m = { .o = { .step = -1 } };
        REPORT(&m, KERNEL(row[i].name, 0, 1, 0));
        CHECK_INT(report_bucket(&m.report, 0), row[i].bucket);
        events_of_free(&of);
    }
}

static void work_without_a_launch_counts_but_not_for_tracelens(void **state)
{
    (void)state;
    const EventOf list[] = { OP("aten::mm", 0, 5), CALL(1, 1), KERNEL("a", 10, 10, 1),
                             KERNEL("b", 30, 10, 0) };
    static const struct {
        bool compat, unlinked;
        double total;
        int launchers;
    } row[] = { { false, false, 30, 2 }, { true, false, 10, 1 }, { true, true, 30, 1 } };
    for (int i = 0; i < 3; i++) {
        Made m = { .o = { .step = -1 } };
        Table table[REPORT_SHEETS_MOST];
        TreeOptions ignored = { 0 };
        int n = 0;
        if (row[i].compat) compat_options(&ignored, &m.o, row[i].unlinked);
        make_report(&m, list, 4);
        if (row[i].compat) CHECK_OK(compat_tables(&m.report, table, &n));
        CHECK_NEAR(m.report.total_us, row[i].total, 1e-9);
        CHECK_INT(m.report.launchers, row[i].launchers);
        events_of_free(&of);
    }
}

/* A device without any launch in the trace: all counts, for TraceLens, too. */
static void a_trace_of_the_device_alone_counts_whole(void **state)
{
    (void)state;
    Made m = { .o = { .step = -1, .linked_only = true, .kernels = true } };
    Table t;
    REPORT(&m, KERNEL("a", 0, 10, 3), KERNEL("a", 20, 30, 4));
    CHECK_NEAR(m.report.total_us, 50, 1e-9);
    t = theirs(&m, "kernel_summary");
    CHECK_INT(t.rows, 1);
    TEXT_AT(&t, 0, "Parent op category", "runtime");
    NUMBER_AT(&t, 0, "Kernel duration (µs)_sum", 40);
    NUMBER_AT(&t, 0, "Kernel duration (µs)_mean", 20);
    NUMBER_AT(&t, 0, "Percent of total time (%)", 80);
    events_of_free(&of);
}

static void short_gaps_are_told_from_long_ones(void **state)
{
    (void)state;
    Made m = { .o = { .step = -1, .micro_idle_us = 5 } };
    Table t;
    REPORT(&m, KERNEL("a", 0, 10, 0), KERNEL("a", 12, 8, 0), KERNEL("a", 25, 5, 0));
    CHECK_OK(sheet_gpu_timeline(&m.report, &t));
    CHECK_INT(t.rows, 9);
    TEXT_AT(&t, 4, "type", "micro_idle_time");
    NUMBER_AT(&t, 4, "time ms", 0.002);
    NUMBER_AT(&t, 5, "time ms", 0.005); /* a gap of the limit itself is a long one */
    NUMBER_AT(&t, 5, "percent", 100 * 5.0 / 30);
    events_of_free(&of);
}

static void recomputation_has_a_timeline_of_its_own(void **state)
{
    (void)state;
    Made m = { .o = { .step = -1, .recompute = true } };
    Table t;
    REPORT(&m, OP("aten::mm", 0, 5), CALL(1, 1), KERNEL("a", 100, 10, 1),
           { EVENT_PYTHON, "torch/utils/checkpoint.py(1): recompute_fn", 0, 10, 20, 0, NULL },
           OP("aten::mm", 12, 5), CALL(13, 2), KERNEL("a", 120, 4, 2));
    CHECK_OK(sheet_gpu_timeline(&m.report, &t));
    CHECK_INT(t.rows, 2 * TIMELINE_ROWS);
    NUMBER_AT(&t, 0, "time ms", 0.010);
    NUMBER_AT(&t, TIMELINE_ROWS, "time ms", 0.004);
    CHECK(cell(&t, TIMELINE_ROWS, "is_recompute")->truth);
    CHECK_OK(sheet_ops_summary(&m.report, &t));
    CHECK_INT(t.rows, 2); /* one name, two rows */
    events_of_free(&of);
}

/* ---- steps ---- */

/* Step 7 launches k1 and k2, step 8 k3, which starts at 70: windows 20 to 70 and 70 to 80. Its
 * thread does not matter. */
static void a_step_has_the_work_that_it_launched(void **state)
{
    (void)state;
    const EventOf list[] = { STEP("7", 0, 30),
                             STEP("8", 30, 30),
                             CALL(1, 1),
                             { EVENT_RUNTIME, "cudaLaunchKernel", 1, 29, 1, 2, NULL },
                             CALL(31, 3),
                             KERNEL("k1", 20, 10, 1),
                             KERNEL("k2", 40, 10, 2),
                             KERNEL("k3", 70, 10, 3) };
    Made m = { .o = { .step = -1 } };
    Table t;
    make_report(&m, list, 8);
    CHECK_OK(sheet_timeline_by_step(&m.report, &t));
    CHECK_INT(t.rows, 2);
    TEXT_AT(&t, 0, "step", "7");
    NUMBER_AT(&t, 0, "host ms", 0.030);
    NUMBER_AT(&t, 0, "total_time ms", 0.050);
    NUMBER_AT(&t, 0, "busy_time ms", 0.020);
    NUMBER_AT(&t, 0, "idle_time ms", 0.030);
    NUMBER_AT(&t, 1, "total_time ms", 0.010);
    NUMBER_AT(&t, 1, "busy percent", 100);
    events_of_free(&of);
    m = (Made){ .o = { .step = 7 } };
    make_report(&m, list, 8);
    CHECK_INT(m.report.gpus, 2);
    CHECK_NEAR(m.report.total_us, 30, 1e-9);
    events_of_free(&of);
}

static void a_step_that_is_not_there_is_an_error(void **state)
{
    (void)state;
    Span s;
    Made m = { .o = { .step = -1 } };
    REPORT(&m, STEP("7", 0, 30), STEP("9", 40, 30), KERNEL("a", 0, 1, 0));
    CHECK_OK(report_step(&of.e, 9, &arena, &s));
    CHECK_NEAR(s.start, 40, 0);
    CHECK_FAILS(report_step(&of.e, 8, &arena, &s), ERR_ARG, "has steps 7 to 9");
    events_of_free(&of);
    REPORT(&m, KERNEL("a", 0, 1, 0));
    CHECK_FAILS(report_step(&of.e, 8, &arena, &s), ERR_ARG, "marks no steps");
    events_of_free(&of);
}

/* ---- operators ---- */

/* Two kernels of one operator overlap: busy time is their union. Its caller's subtree has both. */
static void an_operator_has_the_busy_time_of_its_kernels(void **state)
{
    (void)state;
    Made m = { .o = { .step = -1 } };
    Table t;
    REPORT(&m, OP("outer", 0, 50), OP("aten::mm", 5, 20), CALL(6, 1), CALL(8, 2), CALL(40, 3),
           KERNEL("g1", 100, 10, 1), KERNEL("g2", 105, 10, 2), KERNEL("k3", 120, 5, 3));
    CHECK_OK(sheet_ops_summary(&m.report, &t));
    CHECK_INT(t.rows, 2);
    TEXT_AT(&t, 0, "name", "aten::mm");
    NUMBER_AT(&t, 0, "total_direct_kernel_time_sum", 15);
    TEXT_AT(&t, 0, "Categories", "['GEMM']");
    TEXT_AT(&t, 1, "name", "outer");
    NUMBER_AT(&t, 1, "total_direct_kernel_time_sum", 5);
    NUMBER_AT(&t, 1, "total_subtree_kernel_time_sum", 20);
    NUMBER_AT(&t, 1, "Percentage (%)", 25);
    NUMBER_AT(&t, 1, "Cumulative Percentage (%)", 100);
    NUMBER_AT(&t, 1, "Percent of total time (%)", 20);
    events_of_free(&of);
}

static void collectives_are_operators_but_not_for_tracelens(void **state)
{
    (void)state;
    const EventOf list[] = { OP("c10d::allreduce_", 0, 5),
                             CALL(1, 1),
                             OP("aten::mm", 10, 5),
                             CALL(11, 2),
                             KERNEL("ncclKernel", 100, 30, 1),
                             KERNEL("gemm", 200, 10, 2) };
    for (int compat = 0; compat < 2; compat++) {
        Made m = { .o = { .step = -1, .linked_only = compat } };
        Table t;
        make_report(&m, list, 6);
        if (compat)
            t = theirs(&m, "ops_summary_by_category");
        else
            CHECK_OK(sheet_ops_by_category(&m.report, &t));
        CHECK_INT(t.rows, compat ? 1 : 2);
        NUMBER_AT(&t, 0, "Percentage (%)", compat ? 100 : 75);
        TEXT_AT(&t, 0, "op category", compat ? "GEMM" : "record_param_comms");
        events_of_free(&of);
    }
}

/* Shapes part rows. Three calls with one shape, of which one launched another number of kernels,
 * which its kernels' places leave out. */
static void operators_with_other_shapes_have_other_rows(void **state)
{
    (void)state;
    Made m = { .o = { .step = -1 } };
    Table t;
    REPORT(&m, SHAPED("aten::mm", 0, "[[2,3],[3,4]]"), CALL(1, 1),
           SHAPED("aten::mm", 10, "[[2,3],[3,4]]"), CALL(11, 2), SHAPED("aten::mm", 20, "[[9]]"),
           CALL(21, 3), KERNEL("gemm", 100, 1, 1), KERNEL("gemm", 110, 4, 2),
           KERNEL("gemm", 120, 2, 3));
    of.ops[1].args = of.ops[0].args; /* equal ones share a row */
    CHECK_OK(report_make(&of.e, &tree, &m.o, &arena, &m.report));
    CHECK_OK(sheet_ops_unique_args(&m.report, &t));
    CHECK_INT(t.rows, 2);
    TEXT_AT(&t, 0, "Input Dims", "((2, 3), (3, 4))");
    WHOLE_AT(&t, 0, "operation_count", 2);
    NUMBER_AT(&t, 0, "total_direct_kernel_time_mean", 2.5);
    NUMBER_AT(&t, 0, "total_direct_kernel_time_median", 2.5);
    NUMBER_AT(&t, 0, "total_direct_kernel_time_std", sqrt(4.5));
    WHOLE_AT(&t, 0, "ex_UID", 0);
    TEXT_AT(&t, 0, "kernel_details_summary",
            "[{'name': 'gemm', 'stream': 4, 'count': 2, 'total_duration_us': np.float64(5.0), "
            "'mean_duration_us': np.float64(2.5), 'median_duration_us': np.float64(2.5), "
            "'std_dev_duration_us': np.float64(1.5), 'min_duration_us': np.float64(1.0), "
            "'max_duration_us': np.float64(4.0)}]");
    TEXT_AT(&t, 0, "trunc_kernel_details",
            "[{'name': 'gemm', 'stream': 4, 'mean_duration_us': np.float64(2.5)}]");
    TEXT_AT(&t, 1, "Input Dims", "((9,),)");
    CHECK(isnan(cell(&t, 1, "total_direct_kernel_time_std")->number));
    events_of_free(&of);
}

/* ---- idle ---- */

/* Gaps: 10-20 (k2's launch at 15, after the gap began), 30-40 (k3 was launched at 5: it waited),
 * 50-60 (its launch at 58 follows a synchronisation that ended at 52), 70-80 (nobody knows). */
static void each_gap_has_its_cause(void **state)
{
    (void)state;
    Made m = { .o = { .step = -1 } };
    Table t;
    REPORT(&m, CALL(1, 1), CALL(15, 2), CALL(5, 3),
           { EVENT_RUNTIME, "cudaStreamSynchronize", 0, 45, 7, 0, NULL }, CALL(58, 4),
           KERNEL("k1", 2, 8, 1), KERNEL("k2", 20, 10, 2), KERNEL("k3", 40, 10, 3),
           KERNEL("k4", 60, 10, 4), KERNEL("k5", 80, 10, 0));
    CHECK_OK(sheet_idle_by_cause(&m.report, &t));
    CHECK_INT(t.rows, 7);
    const char *const cause[] = { "host late", "synchronisation", "dependency",
                                  "launch not in the trace" };
    for (int i = 0; i < 4; i++) {
        TEXT_AT(&t, i, "cause", cause[i]);
        WHOLE_AT(&t, i, "gaps", 1);
        NUMBER_AT(&t, i, "time ms", 0.010);
        NUMBER_AT(&t, i, "percent of idle", 25);
    }
    WHOLE_AT(&t, 4, "gaps", 0);
    NUMBER_AT(&t, 5, "time ms", 0.001); /* from the first call to the first kernel */
    CHECK_OK(sheet_idle_gaps(&m.report, &t));
    CHECK_INT(t.rows, 4);
    TEXT_AT(&t, 0, "next work", "k2");
    NUMBER_AT(&t, 0, "launch after start of gap us", 5);
    TEXT_AT(&t, 2, "synchronising call", "cudaStreamSynchronize");
    events_of_free(&of);
}

/* Gaps: 10-30, until 28 of which the thread was in the data loader from 12 on; 40-60, of which it was there
 * for 4 of 18; 70-80, in which another thread was there. */
static void a_gap_in_the_data_loader_is_not_the_hosts_own(void **state)
{
    (void)state;
    static const char LOADER[] = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
    Made m = { .o = { .step = -1 } };
    Table t;
    double us[IDLE_CAUSES];
    REPORT(&m, CALL(1, 1), { EVENT_ANNOTATION, LOADER, 0, 12, 15, 0, NULL }, CALL(28, 2),
           { EVENT_ANNOTATION, LOADER, 0, 42, 4, 0, NULL }, CALL(58, 3),
           { EVENT_ANNOTATION, LOADER, 1, 70, 9, 0, NULL }, CALL(79, 4), KERNEL("k1", 2, 8, 1),
           KERNEL("k2", 30, 10, 2), KERNEL("k3", 60, 10, 3), KERNEL("k4", 80, 10, 4));
    CHECK_OK(sheet_idle_by_cause(&m.report, &t));
    TEXT_AT(&t, 4, "cause", "data loader");
    WHOLE_AT(&t, 4, "gaps", 1);
    NUMBER_AT(&t, 4, "time ms", 0.020);
    WHOLE_AT(&t, 0, "gaps", 2);
    CHECK_OK(report_idle(&m.report, us));
    CHECK_NEAR(us[IDLE_DATA_LOADER], 20, 1e-9);
    CHECK_NEAR(us[IDLE_HOST_LATE], 30, 1e-9);
    events_of_free(&of);
}

/* The causes of a recorded step add up to its idle time. This one launches late. */
static void a_recorded_step_says_what_it_waited_for(void **state)
{
    (void)state;
    static const char PATH[] = "../shared/traces/param_dlrm_8rank/"
                               "worker0_step_12.1694128201545.pt.trace.json.gz";
    const ReportOptions o = { .step = -1 };
    const TreeOptions t = { 0 };
    double us[TIMELINE_ROWS], idle[IDLE_CAUSES], sum = 0;
    Events e;
    Report r;
    if (!file_exists(PATH)) {
        print_message("%s is not here\n", PATH);
        skip();
    }
    CHECK_OK(events_read(PATH, &(EventsOptions){ 0 }, &e));
    CHECK_OK(tree_build(&e, &t, &arena, &tree));
    CHECK_OK(report_make(&e, &tree, &o, &arena, &r));
    CHECK_OK(report_timeline(&r, us));
    CHECK_OK(report_idle(&r, idle));
    for (int k = 0; k < IDLE_CAUSES; k++) sum += idle[k];
    CHECK(us[TIMELINE_IDLE] > 1000);
    CHECK_NEAR(sum, us[TIMELINE_IDLE], 1e-6 * sum);
    CHECK_NEAR(idle[IDLE_HOST_LATE], 5574, 1);
    events_free(&e);
}

/* A report for TraceLens knows fewer kernels of collectives. */
static void tracelens_counts_multimem_as_computation(void **state)
{
    (void)state;
    Made m = { .o = { .step = -1 } };
    TreeOptions ignored = { 0 };
    compat_options(&ignored, &m.o, true);
    REPORT(&m, KERNEL("multimem_all_reduce_kernel_0", 0, 1, 0));
    CHECK_INT(report_bucket(&m.report, 0), BUCKET_COMPUTATION);
    events_of_free(&of);
}

/* aten::a is late twice, by 10 and 6; aten::b once, by 7; a gap of 20 ends with a's waiting work. */
static void idle_time_stands_by_the_operator_that_ended_it(void **state)
{
    (void)state;
    Made m = { .o = { .step = -1 } };
    Table t;
    REPORT(&m, OP("aten::a", 12, 50), OP("aten::b", 75, 20), CALL(15, 1), CALL(33, 2), CALL(76, 3),
           CALL(20, 4), KERNEL("k", 0, 10, 0), KERNEL("k1", 20, 10, 1), KERNEL("k2", 36, 34, 2),
           KERNEL("k3", 77, 10, 3), KERNEL("k4", 107, 1, 4));
    CHECK_OK(sheet_idle_by_operator(&m.report, &t));
    CHECK_INT(t.rows, 3);
    TEXT_AT(&t, 0, "cause", "dependency");
    TEXT_AT(&t, 0, "operator", "aten::a");
    NUMBER_AT(&t, 0, "time ms", 0.020);
    TEXT_AT(&t, 1, "cause", "host late");
    WHOLE_AT(&t, 1, "gaps", 2);
    NUMBER_AT(&t, 1, "time ms", 0.016);
    NUMBER_AT(&t, 1, "mean us", 8);
    TEXT_AT(&t, 2, "operator", "aten::b");
    NUMBER_AT(&t, 2, "percent of idle", 100 * 7.0 / 43);
    events_of_free(&of);
}

/* A synchronisation of another thread, or one that was over before the gap, is no cause. */
static void only_a_wait_of_the_launching_thread_counts(void **state)
{
    (void)state;
    Made m = { .o = { .step = -1 } };
    Table t;
    REPORT(&m, CALL(1, 1), { EVENT_RUNTIME, "cudaDeviceSynchronize", 1, 5, 40, 0, NULL },
           { EVENT_RUNTIME, "cudaDeviceSynchronize", 0, 5, 3, 0, NULL }, CALL(48, 2),
           KERNEL("k1", 2, 8, 1), KERNEL("k2", 50, 10, 2));
    CHECK_OK(sheet_idle_by_cause(&m.report, &t));
    WHOLE_AT(&t, 0, "gaps", 1);
    WHOLE_AT(&t, 1, "gaps", 0);
    events_of_free(&of);
}

/* Launched at 0, 1, 2 and 12; started at 5, 10, 20 and 30: the third finds two before it in the
 * queue, the fourth one. */
static void launches_wait_in_a_queue(void **state)
{
    (void)state;
    Made m = { .o = { .step = -1 } };
    Table t;
    REPORT(&m, CALL(0, 1), CALL(1, 2), CALL(2, 3), CALL(12, 4), KERNEL("k", 5, 5, 1),
           KERNEL("k", 10, 5, 2), KERNEL("k", 20, 5, 3), KERNEL("k", 30, 5, 4));
    CHECK_OK(sheet_launch_delays(&m.report, &t));
    CHECK_INT(t.rows, 1);
    TEXT_AT(&t, 0, "launch", "cudaLaunchKernel");
    NUMBER_AT(&t, 0, "delay us_min", 5);
    NUMBER_AT(&t, 0, "delay us_median", 13.5);
    NUMBER_AT(&t, 0, "delay us_max", 18);
    NUMBER_AT(&t, 0, "queue depth_mean", 1);
    NUMBER_AT(&t, 0, "queue depth_max", 2);
    NUMBER_AT(&t, 0, "launches into an empty queue (%)", 25);
    events_of_free(&of);
}

static void waits_of_the_host_stand_by_their_caller(void **state)
{
    (void)state;
    Made m = { .o = { .step = -1 } };
    Table t;
    REPORT(&m, OP("aten::item", 0, 50),
           { EVENT_RUNTIME, "cudaStreamSynchronize", 0, 5, 20, 0, NULL },
           { EVENT_RUNTIME, "cudaStreamSynchronize", 0, 30, 10, 0, NULL },
           { EVENT_RUNTIME, "hipMemcpyWithStream", 0, 60, 4, 0, NULL },
           { EVENT_RUNTIME, "cudaMemcpyAsync", 0, 70, 30, 0, NULL }, KERNEL("k", 0, 100, 0));
    CHECK_OK(sheet_sync_delays(&m.report, &t));
    CHECK_INT(t.rows, 2);
    TEXT_AT(&t, 0, "Parent cpu_op", "aten::item");
    WHOLE_AT(&t, 0, "count", 2);
    NUMBER_AT(&t, 0, "time ms", 0.030);
    NUMBER_AT(&t, 0, "max us", 20);
    NUMBER_AT(&t, 0, "percent of wall", 30);
    TEXT_AT(&t, 1, "call", "hipMemcpyWithStream");
    events_of_free(&of);
}

static void memory_has_its_peak_by_device(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    Made m = { .o = { .step = -1 } };
    Table t;
    REPORT(&m, KERNEL("k", 0, 1, 0));
    const MemoryPoint point[] = {
        { 1, 4 * MIB, 4 * MIB, 10 * MIB, 0, 1, 0 },
        { 2, 8 * MIB, 12 * MIB, 20 * MIB, 0, 1, 0 },
        { 3, -8 * MIB, 4 * MIB, 20 * MIB, 0, 1, 0 },
        { 4, MIB, MIB, 0, -1, 0, 0 },
    };
    memcpy(of.memory, point, sizeof point);
    of.e.n_memory = 4;
    CHECK_OK(sheet_memory_summary(&m.report, &t));
    CHECK_INT(t.rows, 2);
    TEXT_AT(&t, 0, "device", "device 0");
    NUMBER_AT(&t, 0, "peak allocated MiB", 12);
    NUMBER_AT(&t, 0, "peak at us", 2);
    NUMBER_AT(&t, 0, "peak reserved MiB", 20);
    NUMBER_AT(&t, 0, "allocated at the end MiB", 4);
    WHOLE_AT(&t, 0, "allocations", 2);
    TEXT_AT(&t, 1, "device", "host");
    events_of_free(&of);
}

static void what_is_left_out_is_counted(void **state)
{
    (void)state;
    Made m = { .o = { .step = -1 } };
    Table t;
    REPORT(&m, OP("a", 0, 10), OP("b", 5, 50), CALL(1, 1), KERNEL("k", 20, 10, 1),
           KERNEL("k", 40, 7, 0));
    of.e.counts.malformed = 3;
    CHECK_OK(sheet_trace_counts(&m.report, &t));
    WHOLE_AT(&t, 1, "count", 3);
    TEXT_AT(&t, 8, "what", "calls that outlive their caller");
    WHOLE_AT(&t, 8, "count", 1);
    WHOLE_AT(&t, 5, "count", 1);  /* b is below a */
    WHOLE_AT(&t, 11, "count", 1); /* linked */
    WHOLE_AT(&t, 12, "count", 2);
    WHOLE_AT(&t, 13, "count", 1);
    NUMBER_AT(&t, 13, "time ms", 0.007);
    events_of_free(&of);
}

/* ---- short kernels ---- */

static void short_kernels_fall_into_equal_bins(void **state)
{
    (void)state;
    Made m = { .o = { .step = -1, .short_us = 10 } };
    Table t;
    int64_t n = 0;
    REPORT(&m, KERNEL("k", 0, 1, 0), KERNEL("k", 20, 3, 0), KERNEL("k", 40, 2, 0),
           KERNEL("k", 60, 10, 0));
    CHECK_OK(sheet_short_histogram(&m.report, &t));
    CHECK_INT(t.rows, 100);
    WHOLE_AT(&t, 0, "count", 1);
    WHOLE_AT(&t, 50, "count", 1); /* 2 begins the bin from 2 to 2.02 */
    WHOLE_AT(&t, 99, "count", 1); /* the last bin has its end */
    for (int i = 0; i < 100; i++) n += cell(&t, i, "count")->whole;
    CHECK_INT(n, 3); /* the limit itself is not short */
    NUMBER_AT(&t, 99, "bin_end", 3);
    events_of_free(&of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(time_is_exposed_where_nothing_covers_it),
        TEST(names_say_what_is_a_copy_and_what_an_exchange),
        TEST(work_without_a_launch_counts_but_not_for_tracelens),
        TEST(a_trace_of_the_device_alone_counts_whole),
        TEST(short_gaps_are_told_from_long_ones),
        TEST(recomputation_has_a_timeline_of_its_own),
        TEST(a_step_has_the_work_that_it_launched),
        TEST(a_step_that_is_not_there_is_an_error),
        TEST(an_operator_has_the_busy_time_of_its_kernels),
        TEST(collectives_are_operators_but_not_for_tracelens),
        TEST(operators_with_other_shapes_have_other_rows),
        TEST(each_gap_has_its_cause),
        TEST(a_gap_in_the_data_loader_is_not_the_hosts_own),
        TEST(a_recorded_step_says_what_it_waited_for),
        TEST(tracelens_counts_multimem_as_computation),
        TEST(idle_time_stands_by_the_operator_that_ended_it),
        TEST(only_a_wait_of_the_launching_thread_counts),
        TEST(launches_wait_in_a_queue),
        TEST(waits_of_the_host_stand_by_their_caller),
        TEST(memory_has_its_peak_by_device),
        TEST(what_is_left_out_is_counted),
        TEST(short_kernels_fall_into_equal_bins),
    };
    if (arena_init(&arena, "test", MEM_HOST, (size_t)1 << 30) != OK) return 1;
    int failed = TEST_RUN(tests);
    arena_free(&arena);
    return failed;
}
