/* `switchyard trace diff` and `trace replay` as their user meets them, up to a bench of what was
 * replayed; and what they refuse. */
#include "harness/program.h"

#define OP(ts, name, dims, n)                                                                      \
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"" name "\",\"pid\":1,\"tid\":1,\"ts\":" ts        \
    ",\"dur\":50,\"args\":{\"Input type\":[\"float\",\"float\"],\"Input Dims\":" dims "}},"        \
    "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":1,\"tid\":1,"    \
    "\"ts\":" ts ",\"dur\":5,\"args\":{\"correlation\":" n "}},"
#define KERNEL(ts, name, dur, n)                                                                   \
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"" name "\",\"pid\":0,\"tid\":7,\"ts\":" ts        \
    ",\"dur\":" dur ",\"args\":{\"correlation\":" n "}}"
#define TRACE(list) "{\"traceEvents\":[" list "]}"
#define MM          OP("100", "aten::mm", "[[64,32],[32,48]]", "1")
#define ARROW                                                                                      \
    ",{\"ph\":\"s\",\"cat\":\"ac2g\",\"name\":\"ac2g\",\"id\":1,\"pid\":1,\"tid\":1,\"ts\":100},"  \
    "{\"ph\":\"f\",\"cat\":\"ac2g\",\"name\":\"ac2g\",\"id\":1,\"pid\":0,\"tid\":7,\"ts\":120,"    \
    "\"bp\":\"e\"}"

static const char OLD[] = TRACE(MM OP("200", "aten::gelu", "[[64,48],[]]", "2") KERNEL(
    "120", "sgemm", "40", "1") "," KERNEL("220", "gelu", "10", "2"));
static const char NEW[] = TRACE(MM OP("200", "aten::gelu", "[[64,48],[]]", "2") KERNEL(
    "120", "tf32gemm", "10", "1") "," KERNEL("220", "gelu", "10", "2"));

static void write_traces(Lab *lab)
{
    CHECK_OK(file_make_folders(lab_path(lab, "cell/there/full/")));
    lab_write_text(lab, lab_path(lab, "cell/old.json"), OLD);
    lab_write_text(lab, lab_path(lab, "cell/new.json"), NEW);
    lab_write_text(lab, lab_path(lab, "cell/none.json"), "{\"traceEvents\":[]}\n");
    lab_write(lab, lab_path(lab, "cell/cut.json"), NEW, sizeof NEW - 100);
}

static void a_summary_says_what_was_gained(void **state)
{
    Lab *lab = *state;
    write_traces(lab);
    Outcome o = RUN(lab, "cell", "trace", "diff", "old.json", "new.json");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out,
               "device work (us)                           50.000   20.000            -30.000");
    CHECK_SAYS(o.out, "aten::mm        1         40.000         10.000");
    CHECK_SAYS(o.out, "sgemm             tf32gemm");
    CHECK_SAYS(o.out, "4.000"); /* old over new: above 1 is faster */
}

static void tables_are_files(void **state)
{
    static const char *const name[] = { "diff_totals",  "diff_ops",  "diff_unique_args",
                                        "diff_kernels", "diff_host", "diff_new_and_vanished" };
    Lab *lab = *state;
    write_traces(lab);
    Outcome o = RUN(lab, "cell", "trace", "diff", "old.json", "new.json", "--out", "changes",
                    "--format", "csv,json");
    CHECK_EXIT(o, 0);
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        CHECK(file_exists(lab_path(lab, "cell/changes/%s.csv", name[i])));
        CHECK(file_exists(lab_path(lab, "cell/changes/%s.json", name[i])));
    }
    CHECK_SAYS(lab_read(lab, lab_path(lab, "cell/changes/diff_ops.csv"), NULL),
               "aten::mm,aten::mm,1,1,1,40.0,10.0,40.0,10.0,-30.0,4.0,50.0,50.0\n");
    CHECK_SAYS(lab_read(lab, lab_path(lab, "cell/changes/merged_tree_output.txt"), NULL),
               "│       └── combined: sgemm | tf32gemm\n");
}

static void compat_has_tracelens_files(void **state)
{
    static const char *const name[] = {
        "merged_tree_output.txt", "diff_stats.csv",         "diff_stats_unique_args_summary.csv",
        "cpu_op_map.json",        "cpu_op_map_trace1.json", "cpu_op_map_trace2.json"
    };
    Lab *lab = *state;
    write_traces(lab);
    Outcome o = RUN(lab, "cell", "trace", "diff", "old.json", "new.json", "--compat=tracelens",
                    "--out", "compat");
    CHECK_EXIT(o, 0);
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        CHECK(file_exists(lab_path(lab, "cell/compat/%s", name[i])));
    CHECK(!file_exists(lab_path(lab, "cell/compat/diff_ops.csv")));
}

/* TraceLens links by arrows alone, and pairs roots by position, whatever their names are. */
static void compat_builds_and_matches_trees_by_tracelens_rules(void **state)
{
    Lab *lab = *state;
    write_traces(lab);
    lab_write_text(lab, lab_path(lab, "cell/arrows_old.json"),
                   TRACE(MM KERNEL("120", "sgemm", "40", "1") ARROW));
    lab_write_text(
        lab, lab_path(lab, "cell/arrows_new.json"),
        TRACE(OP("100", "aten::conv2d", "[[9]]", "1") KERNEL("120", "conv", "10", "1") ARROW));
    Outcome o = RUN(lab, "cell", "trace", "diff", "old.json", "new.json", "--compat", "tracelens",
                    "--out", "alone");
    CHECK_EXIT(o, 0);
    CHECK_TEXT(lab_read(lab, lab_path(lab, "cell/alone/merged_tree_output.txt"), NULL),
               "├── aten::mm\n└── aten::gelu\n");
    o = RUN(lab, "cell", "trace", "diff", "arrows_old.json", "arrows_new.json", "--compat",
            "tracelens", "--out", "linked");
    CHECK_EXIT(o, 0);
    CHECK_TEXT(lab_read(lab, lab_path(lab, "cell/linked/merged_tree_output.txt"), NULL),
               "└── combined: aten::mm | aten::conv2d\n"
               "    └── cudaLaunchKernel\n"
               "        └── combined: sgemm | conv\n");
}

static void what_was_replayed_runs_in_the_bench(void **state)
{
    Lab *lab = *state;
    write_traces(lab);
    Outcome o =
        RUN(lab, "cell", "trace", "replay", "old.json", "--out", "ir.json", "--bench", "ops.jsonl");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "ir.json: 2 operators: 2 of 2 calls, 100.0 % of their 0.050 ms");
    CHECK_SAYS(o.out, "ops.jsonl: 1 operators: 1 of 2 calls, 80.0 % of their 0.050 ms");
    CHECK_SAYS(o.out, "left out:      1 x aten::gelu, 0.010 ms: no op of ours does this");
    o = RUN(lab, "cell", "bench", "shapes", "--list", "ops.jsonl", "--shrink", "2",
            "run.device=cpu", "run.threads=1");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "linear_fwd     mm [64,32] [32,48]");
    CHECK_SAYS(o.out, "right, traced 1 x 40.0 us");
    o = RUN(lab, "cell", "trace", "replay", "old.json", "--out", "one.json", "--op-limit", "1",
            "--op-filter", "ge");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "one.json: 1 operators: 1 of 1 calls");
    CHECK_SAYS(lab_read(lab, lab_path(lab, "cell/one.json"), NULL), "aten::gelu");
}

static void a_file_that_ends_early_is_compared_as_far_as_it_goes(void **state)
{
    Lab *lab = *state;
    write_traces(lab);
    Outcome o = RUN(lab, "cell", "trace", "diff", "old.json", "cut.json", "--out", "cut");
    CHECK_REFUSED(o, 3, "ends early");
    CHECK_SAYS(o.out, "cut.json: 5 events");
    CHECK(file_exists(lab_path(lab, "cell/cut/diff_ops.csv")));
    o = RUN(lab, "cell", "trace", "replay", "cut.json", "--out", "cut_ir.json");
    CHECK_REFUSED(o, 3, "ends early");
    CHECK(file_exists(lab_path(lab, "cell/cut_ir.json")));
}

static void bad_input_is_one_sentence(void **state)
{
    static const struct {
        const char *args[10], *says;
    } row[] = {
        { { "trace", "diff", "old.json" }, "NEW" },
        { { "trace", "diff", "old.json", "nothing.json" }, "nothing.json" },
        { { "trace", "diff", "old.json", "none.json" }, "none.json has no host calls" },
        { { "trace", "diff", "old.json", "new.json", "--out", "there" }, "there exists already" },
        { { "trace", "diff", "old.json", "new.json", "--compat", "tracelens" }, "--out" },
        { { "trace", "diff", "old.json", "new.json", "--compat", "tracelens", "--python", "--out",
            "x" },
          "--python" },
        { { "trace", "replay", "old.json" }, "--bench" },
        { { "trace", "replay", "old.json", "--out", "x", "--op-filter", "conv" },
          "whose name has conv" },
        { { "trace", "replay", "none.json", "--out", "x" }, "no operator" },
        { { "bench", "shapes", "--list", "nothing.jsonl" }, "nothing.jsonl" },
        { { "bench", "shapes", "--list", "old.json", "--seed", "x" }, "--seed" },
    };
    Lab *lab = *state;
    write_traces(lab);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Outcome o = lab_run(lab, &(Launch){ .cell = "cell", .args = row[i].args });
        CHECK_REFUSED(o, 2, row[i].says);
        CHECK_TEXT(o.out, "");
    }
    CHECK(!file_exists(lab_path(lab, "cell/x")) && !file_exists(lab_path(lab, "cell/x.tmp")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_summary_says_what_was_gained),
        LAB_TEST(tables_are_files),
        LAB_TEST(compat_has_tracelens_files),
        LAB_TEST(compat_builds_and_matches_trees_by_tracelens_rules),
        LAB_TEST(what_was_replayed_runs_in_the_bench),
        LAB_TEST(a_file_that_ends_early_is_compared_as_far_as_it_goes),
        LAB_TEST(bad_input_is_one_sentence),
    };
    return LAB_RUN_ALL(tests);
}
