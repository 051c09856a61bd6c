/* What `switchyard trace report` writes beside TraceLens' own tables of the same traces, and what it
 * refuses. */
#include "harness/program.h"

#include <ctype.h>

static const char TRACES[] = "../shared/traces";
static char traces[FILE_PATH_MAX]; /* absolute; empty: not here */

static void need_traces(void)
{
    if (traces[0] != '\0') return;
    print_message("%s is not here\n", TRACES);
    skip();
}

static const char *trace(Lab *lab, const char *name)
{
    char path[2 * FILE_PATH_MAX];
    const char *out = NULL;
    int n = snprintf(path, sizeof path, "%s/%s", traces, name);
    CHECK_OK(arena_text(&lab->arena, path, (size_t)n, &out));
    return out;
}

/* ---- tables that must be equal ---- */

static bool number_at(const char *s, double *x, const char **end)
{
    char *after = NULL;
    bool sign = *s == '-' && isdigit((unsigned char)s[1]);
    if (!isdigit((unsigned char)*s) && !sign) return false;
    *x = strtod(s, &after);
    *end = after;
    return true;
}

/* Texts that differ in numbers by at most 1e-6 relative. Returns where they part, NULL: nowhere. A
 * word that begins with digits is compared by its value and the rest. */
static const char *difference(const char *a, const char *b)
{
    while (*a != '\0' || *b != '\0') {
        b += *b == '\r';
        double x = 0, y = 0;
        if (number_at(a, &x, &a) && number_at(b, &y, &b)) {
            if (!(fabs(x - y) <= 1e-6 * fmax(fabs(x), fabs(y)) + 1e-9)) return b;
        } else if (*a != *b) {
            return b;
        } else {
            a++, b++;
        }
    }
    return NULL;
}

typedef struct Case {
    const char *trace, *reference;
    const char *flag[6];
} Case;

#define FULL                                                                                       \
    {                                                                                              \
        "--kernels", "--short-kernels", "10"                                                       \
    }

static const Case CASES[] = {
    { "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
      "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005_perf_report_csvs", FULL },
    { "tracelens/h100/facebook_timesformer-base-finetuned-k400__1016002.json.gz",
      "tracelens/h100/facebook_timesformer-base-finetuned-k400__1016002_perf_report_csvs", FULL },
    { "tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz",
      "tracelens/h100/gaunernst_bert-small-uncased__1016001_perf_report_csvs", FULL },
    { "tracelens/h100/google_owlv2-large-patch14-ensemble__1016001.json.gz",
      "tracelens/h100/google_owlv2-large-patch14-ensemble__1016001_perf_report_csvs", FULL },
    { "tracelens/mi300/facebook_timesformer-base-finetuned-k400__1016002.json.gz",
      "tracelens/mi300/facebook_timesformer-base-finetuned-k400__1016002_perf_report_csvs", FULL },
    { "tracelens/mi300/resnet_act_checkpoint.json.gz",
      "tracelens/mi300/resnet_act_checkpoint_recompute_perf_report_csvs",
      { "--recompute" } },
    { "tracelens/mi210/gpu_only_trace/gpu_only_trace.json.gz",
      "tracelens/mi210/gpu_only_trace/gpu_only_trace_perf_report_csvs", FULL },
    { "tracelens/perf_model/normalization/normalization_layer_test.json.gz",
      "tracelens/perf_model/normalization/normalization_layer_test_perf_report_csvs", FULL },
    { "tracelens/torch_compile_triton/trace.json.gz",
      "tracelens/torch_compile_triton/trace_perf_report_csvs", FULL },
    { "param_dlrm_8rank/worker3_step_12.1694128201557.pt.trace.json.gz",
      "computed/dlrm_rank3",
      { NULL } },
    { "tracelens/mi300/resnet_act_checkpoint.json.gz", "computed/resnet_default_flags", { NULL } },
};

/* Compares what both folders have; a table without rows is one empty line in the reference. */
static int compare_folder(Lab *lab, const char *ours, const char *theirs, bool whole)
{
    static const char *const SHEET[] = { "gpu_timeline",
                                         "ops_summary_by_category",
                                         "ops_summary",
                                         "ops_unique_args",
                                         "kernel_summary",
                                         "short_kernel_histogram",
                                         "short_kernels_summary",
                                         "coll_analysis",
                                         "GEMM",
                                         "CONV_fwd",
                                         "CONV_bwd",
                                         "SDPA_fwd",
                                         "Normalization",
                                         "UnaryElementwise",
                                         "BinaryElementwise",
                                         "Reduce_fwd",
                                         "Reduce_bwd",
                                         "unified_perf_summary" };
    int compared = 0;
    for (size_t i = 0; i < sizeof SHEET / sizeof *SHEET; i++) {
        char want[2 * FILE_PATH_MAX], got[2 * FILE_PATH_MAX];
        snprintf(want, sizeof want, "%s/%s.csv", theirs, SHEET[i]);
        snprintf(got, sizeof got, "%s/%s.csv", ours, SHEET[i]);
        if (!file_exists(want) || (!whole && i > 0)) continue;
        /* Work of Triton's kernels is not told by the trace. */
        if (strcmp(SHEET[i], "unified_perf_summary") == 0 && strstr(want, "triton") != NULL)
            continue;
        size_t n = 0;
        const char *reference = lab_read(lab, want, &n);
        if (n <= 1) continue;
        const char *at = difference(lab_read(lab, got, NULL), reference);
        if (at != NULL) fail_msg("%s differs at byte %td: %.80s", want, at - reference, at);
        compared++;
    }
    return compared;
}

static void tables_are_those_of_tracelens(void **state)
{
    Lab *lab = *state;
    int compared = 0;
    need_traces();
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const Case *c = &CASES[i];
        const char *args[16] = { "trace",     "report", trace(lab, c->trace),         "--compat",
                                 "tracelens", "--out",  lab_path(lab, "compat%zu", i) };
        for (int k = 0, n = 7; k < 6 && c->flag[k] != NULL; k++) args[n++] = c->flag[k];
        Outcome o = lab_run(lab, &(Launch){ .cell = "cell", .args = args });
        CHECK_EXIT(o, 0);
        /* what was computed for us has fewer columns in all but the timeline */
        bool whole = strncmp(c->reference, "computed", 8) != 0;
        compared += compare_folder(lab, args[6], trace(lab, c->reference), whole);
    }
    CHECK_INT(compared, 107);
}

/* The same numbers with all device work, computed with TraceLens' own code. */
static void by_default_all_device_work_counts(void **state)
{
    Lab *lab = *state;
    need_traces();
    const char *qwen = trace(lab, CASES[0].trace);
    Outcome o = RUN(lab, "cell", "trace", "report", qwen, "--out", lab_path(lab, "all"));
    CHECK_EXIT(o, 0);
    CHECK_SAYS(
        o.out,
        "509 device events of 13.742 ms have no matching launch event: included in the totals");
    const char *csv = lab_read(lab, lab_path(lab, "all/gpu_timeline.csv"), NULL);
    CHECK_SAYS(csv, "computation_time,45.644942");
    CHECK_SAYS(csv, "idle_time,4.005");
    CHECK_SAYS(csv, "total_time,49.652832");
    o = RUN(lab, "cell", "trace", "report", qwen, "--out", lab_path(lab, "linked"), "--compat",
            "tracelens", "--micro-idle", "10");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "509 device events of 13.742 ms have no matching launch event: left out");
    csv = lab_read(lab, lab_path(lab, "linked/gpu_timeline.csv"), NULL);
    CHECK_SAYS(csv, "micro_idle_time,1.79321");
    CHECK_SAYS(csv, "macro_idle_time,1.19372");
}

static void a_summary_says_where_the_time_went(void **state)
{
    Lab *lab = *state;
    need_traces();
    Outcome o = RUN(lab, "cell", "trace", "report", trace(lab, CASES[5].trace));
    CHECK_EXIT(o, 0);
    static const char *const part[] = { "gpu_timeline\n",         "idle_by_cause\n",
                                        "ops_summary\n",          "launch_delays\n",
                                        "sync_delays\n",          "hipDeviceSynchronize",
                                        "gpu_timeline_by_step\n", "coll_analysis\n" };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) CHECK_SAYS(o.out, part[i]);
    o = RUN(lab, "cell", "trace", "report", trace(lab, CASES[5].trace), "--step", "16");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "1,080 of them device work");
}

static void formats_are_files_of_the_folder(void **state)
{
    Lab *lab = *state;
    need_traces();
    Outcome o = RUN(lab, "cell", "trace", "report", trace(lab, CASES[8].trace), "--out",
                    lab_path(lab, "formats"), "--format", "json,html");
    CHECK_EXIT(o, 0);
    CHECK(!file_exists(lab_path(lab, "formats/gpu_timeline.csv")));
    CHECK_SAYS(lab_read(lab, lab_path(lab, "formats/gpu_timeline.json"), NULL),
               "[{\"type\": \"computation_time\", \"time ms\": 12.549");
    const char *page = lab_read(lab, lab_path(lab, "formats/report.html"), NULL);
    CHECK_SAYS(page, "<!DOCTYPE html>");
    CHECK(strstr(page, "http") == NULL); /* nothing from elsewhere */
}

/* Every trace that there is, of every year and vendor, through every sheet. */
static void every_trace_is_read(void **state)
{
    Lab *lab = *state;
    int n = 0;
    need_traces();
    char line[FILE_PATH_MAX];
    FILE *manifest = fopen(trace(lab, "MANIFEST.tsv"), "r");
    CHECK(manifest != NULL && fgets(line, sizeof line, manifest) != NULL); /* names of columns */
    for (; fgets(line, sizeof line, manifest) != NULL; n++) {
        line[strcspn(line, "\t")] = '\0';
        bool host = strstr(line, "cpu_only") != NULL;
        Outcome o =
            RUN(lab, "cell", "trace", "report", trace(lab, line), "--recompute", "--kernels",
                "--short-kernels", "10", "--format", "json", "--out", lab_path(lab, "every%d", n));
        CHECK_EXIT(o, host ? 2 : 0);
        if (!host) CHECK_SAYS(o.out, " of them device work");
    }
    fclose(manifest);
    CHECK(n > 20);
}

/* ---- several ranks ---- */

static void ranks_stand_beside_each_other(void **state)
{
    Lab *lab = *state;
    need_traces();
    const char *zero =
        trace(lab, "param_dlrm_8rank/worker0_step_12.1694128201545.pt.trace.json.gz");
    const char *three = trace(lab, CASES[9].trace);
    Outcome o = RUN(lab, "cell", "trace", "report", zero, three, "--out", lab_path(lab, "ranks"));
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "6 of 8 ranks are missing, rank 1 first");
    CHECK(file_exists(lab_path(lab, "ranks/rank_3/gpu_timeline.csv")));
    CHECK_SAYS(lab_read(lab, lab_path(lab, "ranks/gpu_timeline_by_rank.csv"), NULL), "\n3,worker3");
    o = RUN(lab, "cell", "trace", "report", zero, zero, "--out", lab_path(lab, "twice"));
    CHECK_REFUSED(o, 2, "are both rank 0");
    CHECK(!file_exists(lab_path(lab, "twice")));
    o = RUN(lab, "cell", "trace", "report", zero, trace(lab, CASES[0].trace));
    CHECK_REFUSED(o, 2, "name files of one run");
}

/* ---- bad input ---- */

static const char SMALL[] =
    "{\"traceEvents\": [\n"
    "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 1, \"tid\": 1, \"ts\": "
    "0, "
    "\"dur\": 9, \"args\": {}},\n"
    "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1, "
    "\"tid\": "
    "1, \"ts\": 2, \"dur\": 1, \"args\": {\"correlation\": 5}},\n"
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\", \"pid\": 0, \"tid\": 7, \"ts\": 20, "
    "\"dur\": 10, \"args\": {\"correlation\": 5, \"stream\": 7}},\n"
    "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#4\", \"pid\": 1, "
    "\"tid\": 1, \"ts\": 0, \"dur\": 30, \"args\": {}}\n]}\n";

static void a_file_that_ends_early_gives_what_was_whole(void **state)
{
    Lab *lab = *state;
    size_t n = strlen(SMALL);
    CHECK_OK(file_make_folders(lab_path(lab, "cell")));
    lab_write(lab, lab_path(lab, "cell/cut.json"), SMALL, n - 40);
    Outcome o = RUN(lab, "cell", "trace", "report", "cut.json", "--out", "cut");
    CHECK_REFUSED(o, 3, "ends early");
    CHECK_SAYS(o.out, "the file ends early: this covers its complete events");
    CHECK_SAYS(lab_read(lab, lab_path(lab, "cell/cut/gpu_timeline.csv"), NULL),
               "computation_time,0.01,100.0");
    lab_write(lab, lab_path(lab, "cell/less.json"), SMALL, 150);
    o = RUN(lab, "cell", "trace", "report", "less.json", "--out", "less");
    CHECK_REFUSED(o, 3, "ends early, before any of its device events");
    CHECK(!file_exists(lab_path(lab, "cell/less")));
}

static void bad_input_is_one_sentence(void **state)
{
    static const struct {
        const char *args[10], *says;
    } row[] = {
        { { "trace", "report" }, "FILE" },
        { { "trace", "report", "nothing.json" }, "nothing.json" },
        { { "trace", "report", "text.json" }, "text.json" },
        { { "trace", "report", "other.json" }, "traceEvents" },
        { { "trace", "report", "host.json", "--out", "host" },
          "has no device events, only 1 operator" },
        { { "trace", "report", "small.json", "--step", "5" }, "has steps 4 to 4" },
        { { "trace", "report", "small.json", "--out", "there" }, "there exists already" },
        { { "trace", "report", "small.json", "--format", "csv" }, "needs --out" },
        { { "trace", "report", "small.json", "--out", "x", "--format", "cvs" }, "cvs" },
        { { "trace", "report", "small.json", "--compat", "hta" }, "tracelens" },
        { { "trace", "report", "small.json", "--micro-idle", "-1" }, "--micro-idle" },
        { { "trace", "report", "small.json", "--gpu", "h10" }, "did you mean h100?" },
    };
    Lab *lab = *state;
    CHECK_OK(file_make_folders(lab_path(lab, "cell/there/full/")));
    lab_write_text(lab, lab_path(lab, "cell/small.json"), SMALL);
    lab_write_text(lab, lab_path(lab, "cell/text.json"), "no JSON at all\n");
    lab_write_text(lab, lab_path(lab, "cell/other.json"), "{\"a\": [1, 2]}\n");
    lab_write_text(
        lab, lab_path(lab, "cell/host.json"),
        "{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", "
        "\"pid\": 1, \"tid\": 1, \"ts\": 0, \"dur\": 9}]}\n");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Outcome o = lab_run(lab, &(Launch){ .cell = "cell", .args = row[i].args });
        CHECK_REFUSED(o, 2, row[i].says);
        CHECK_TEXT(o.out, "");
    }
    CHECK(!file_exists(lab_path(lab, "cell/host")) && !file_exists(lab_path(lab, "cell/host.tmp")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(tables_are_those_of_tracelens),
        LAB_TEST(by_default_all_device_work_counts),
        LAB_TEST(a_summary_says_where_the_time_went),
        LAB_TEST(formats_are_files_of_the_folder),
        LAB_TEST(every_trace_is_read),
        LAB_TEST(ranks_stand_beside_each_other),
        LAB_TEST(a_file_that_ends_early_gives_what_was_whole),
        LAB_TEST(bad_input_is_one_sentence),
    };
    if (realpath(TRACES, traces) == NULL) traces[0] = '\0';
    return LAB_RUN_ALL(tests);
}
