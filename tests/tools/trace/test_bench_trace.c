/* bench trace over a small trace: a row for every part, its bytes, its refusals. */
#include "traces/unit/traces.h"

#include "trace/bench.h"

static const char TRACE[] =
    "{\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\","
    "\"pid\":1,"
    "\"tid\":1,\"ts\":1,\"dur\":1,\"args\":{\"correlation\":1}},{\"ph\":\"X\",\"cat\":\"kernel\","
    "\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":3,\"dur\":4,\"args\":{\"correlation\":1}}]}";

static void run_bench(bool json, Status want, const char *path)
{
    Arena a = { 0 }, text = { 0 };
    Text out = { 0 };
    static const char *const PARTS[] = { "text alone", "reader, one thread", "reader, two threads",
                                         "whole report" };
    CHECK_OK(arena_init(&a, "bench", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(arena_init(&text, "text", MEM_HOST, (size_t)1 << 20));
    CHECK_OK(text_init(&out, &text));
    CHECK_INT(bench_trace(path, &(BenchTrace){ .steps = 2, .json = json }, &a, &out), want);
    for (int i = 0; i < 4 && want == OK; i++) {
        const char *row = strstr(out.data, PARTS[i]);
        CHECK(row != NULL);
        double seconds = 0, rate = 0, peak = 0;
        row += strlen(PARTS[i]);
        CHECK_INT(
            sscanf(row,
                   json ? "\",\"seconds\":%lf,\"mb_per_s\":%lf,\"peak_bytes\":%lf}" : "%lf%lf%lf",
                   &seconds, &rate, &peak),
            3);
        CHECK(seconds >= 0 && rate >= 0 && peak > (json ? 1e6 : 1));
        if (json) CHECK_NEAR(seconds * rate * 1e6, sizeof TRACE - 1, 1e-3);
    }
    if (want == OK && !json) CHECK(strstr(out.data, "bytes of text, 2 events") != NULL);
    arena_free(&text);
    arena_free(&a);
}

static void each_part_has_its_row(void **state)
{
    (void)state;
    char path[32];
    trace_file(path, TRACE, sizeof TRACE - 1);
    run_bench(false, OK, path);
    run_bench(true, OK, path);
    unlink(path);
}

static void what_cannot_be_read_is_refused(void **state)
{
    (void)state;
    char path[32];
    run_bench(false, ERR_IO, "/tmp/there_is_no_such_trace.json");
    trace_file(path, "{}", 2);
    run_bench(false, ERR_FORMAT, path);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = { TEST(each_part_has_its_row),
                                        TEST(what_cannot_be_read_is_refused) };
    return TEST_RUN(tests);
}
