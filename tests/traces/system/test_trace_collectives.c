/* switchyard trace collectives as its user meets it: files of ranks in, a summary and a folder out;
 * what is wrong is one sentence and leaves nothing behind. */
#include "harness/program.h"

static void write_rank(Lab *lab, int rank, const char *name, const char *end)
{
    char text[4096];
    int n = snprintf(text, sizeof text,
                     "{\"distributedInfo\":{\"rank\":%d,\"world_size\":2},\"traceEvents\":[", rank);
    for (int k = 0; k < 6; k++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "%s{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"ncclDevKernel_AllReduce\","
                      "\"pid\":0,\"tid\":7,\"ts\":%d,\"dur\":%d,\"args\":{\"stream\":7,"
                      "\"correlation\":%d,\"Collective name\":\"allreduce\",\"dtype\":\"Float\","
                      "\"In msg nelems\":1000,\"Out msg nelems\":1000,\"Group size\":2,"
                      "\"Process Group Name\":\"0\",\"Process Group Ranks\":\"[0, 1]\"}}",
                      k > 0 ? "," : "", 1000 * k + 40 * rank, 90 - 40 * rank, k);
    (void)snprintf(text + n, sizeof text - (size_t)n, "%s", end);
    CHECK_OK(file_make_folders(lab_path(lab, "t")));
    lab_write_text(lab, lab_path(lab, "t/%s", name), text);
}

static void two_ranks_give_a_summary_and_a_folder(void **state)
{
    Lab *lab = *state;
    write_rank(lab, 0, "a.json", "]}");
    write_rank(lab, 1, "b.json", "]}");
    Outcome o = RUN(lab, "t", "trace", "collectives", "b.json", "a.json", "--out", "all",
                    "--format", "csv,json");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "2 of 2 ranks, known by distributedInfo");
    CHECK_SAYS(o.out, "rank 1 makes the others wait most: 0.24 ms over all of them, last in 6 of");
    CHECK(file_exists(lab_path(lab, "t/all/straggler_summary.csv")));
    CHECK(file_exists(lab_path(lab, "t/all/nccl_implicit_sync.json")));
    CHECK(!file_exists(lab_path(lab, "t/all/nccl_all2allv.csv"))); /* there is none */
    o = RUN(lab, "t", "trace", "collectives", "a.json", "b.json", "--out", "all");
    CHECK_REFUSED(o, 2, "all exists already");
    o = RUN(lab, "t", "trace", "collectives", "a.json", "b.json", "--compat", "tracelens");
    CHECK_EXIT(o, 0);
}

static void ranks_that_are_no_run_leave_nothing(void **state)
{
    Lab *lab = *state;
    write_rank(lab, 0, "a.json", "]}");
    Outcome o = RUN(lab, "t", "trace", "collectives", "a.json", "--out", "none");
    CHECK_REFUSED(o, 2, "rank 1 of 2 is missing");
    o = RUN(lab, "t", "trace", "collectives", "a.json", "a.json", "--out", "none");
    CHECK_REFUSED(o, 2, "are both rank 0 by distributedInfo");
    o = RUN(lab, "t", "trace", "collectives", "a.json", "no.json", "--out", "none");
    CHECK_REFUSED(o, 2, "no.json");
    CHECK(!file_exists(lab_path(lab, "t/none")) && !file_exists(lab_path(lab, "t/none.tmp")));
}

static void a_trace_that_ends_early_is_told_and_used(void **state)
{
    Lab *lab = *state;
    write_rank(lab, 0, "a.json", "]}");
    write_rank(lab, 1, "cut.json", ",{\"ph\":\"X\",\"cat\":\"ker");
    Outcome o = RUN(lab, "t", "trace", "collectives", "a.json", "cut.json", "--out", "most");
    CHECK_REFUSED(o, 3, "cut.json ends early (1 of 2 traces do)");
    CHECK_SAYS(o.out, "12 kernels are 6 collectives of 1 groups");
    CHECK(file_exists(lab_path(lab, "t/most/nccl_long.csv")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(two_ranks_give_a_summary_and_a_folder),
        LAB_TEST(ranks_that_are_no_run_leave_nothing),
        LAB_TEST(a_trace_that_ends_early_is_told_and_used),
    };
    return LAB_RUN_ALL(tests);
}
