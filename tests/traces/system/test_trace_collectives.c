/* switchyard trace collectives as its user meets it: files of ranks in, a summary and a folder out;
 * what is wrong is one sentence and leaves nothing behind. */
#include "harness/program.h"
#include "pages/unit/xml_check.h"

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

/* How often a text has another. */
static int count_of(const char *text, const char *word)
{
    int n = 0;
    for (; (text = strstr(text, word)) != NULL; text++) n++;
    return n;
}

/* Of six collectives rank 0 waits 40 us in each, and both ranks move data for 50 us. */
static void a_page_says_first_who_makes_the_others_wait(void **state)
{
    Lab *lab = *state;
    write_rank(lab, 0, "a.json", "]}");
    write_rank(lab, 1, "b.json", "]}");
    Outcome o = RUN(lab, "t", "trace", "collectives", "a.json", "b.json", "--out", "page",
                    "--format", "html");
    CHECK_EXIT(o, 0);
    const char *page = lab_read(lab, lab_path(lab, "t/page/report.html"), NULL), *place = NULL;
    const char *error = xml_error(page, &place), *last = page;
    if (error != NULL) fail_msg("%s: %.80s", error, place);
    static const char *const parts[] = {
        "<h1>Collectives of 2 ranks</h1>",
        "<li>rank 1 makes the others wait most: 0.24 ms over all of them, last in 6 of its 6",
        "spent 0.84 ms in collectives that are in sums: 0.24 ms (28.6 %) waiting for the last "
        "rank, 0.6 ms moving data</li>",
        "id=\"chart\"",
        "allreduce, rank 0<",
        "<title>waiting for the last rank: 0.24</title>",
        "<title>moving data: 0.3</title>",
        "allreduce, rank 1<",
        "<title>moving data: 0.3</title>",
        "id=\"sheets\"",
        "<summary>straggler_summary</summary>",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        last = strstr(last, parts[i]);
        if (last == NULL) fail_msg("no \"%s\" behind the part before", parts[i]);
    }
    CHECK_INT(count_of(page, "<title>waiting for the last rank"), 1);
    CHECK(strstr(page, "<details open=\"open\"><summary>straggler_summary") != NULL);
    CHECK(strstr(page, "<details><summary>nccl_long") != NULL); /* it has 23 columns */
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
        LAB_TEST(a_page_says_first_who_makes_the_others_wait),
        LAB_TEST(ranks_that_are_no_run_leave_nothing),
        LAB_TEST(a_trace_that_ends_early_is_told_and_used),
    };
    return LAB_RUN_ALL(tests);
}
