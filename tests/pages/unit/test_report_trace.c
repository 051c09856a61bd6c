/* What a run's report shows of its recording. */
#include "pages/unit/report_run.h"

#include "engine/trace/record.h"
#include "traces/page/trace_page.h"

#include <unistd.h>

enum { BUFFER_BYTES = 1 << 16 };

static const char NAMES[] = "forward\0attention qkv\0ge<mm";

/* Two steps: an action of 10 ms with a phase of 8 ms; in the second an op of 4 ms. */
static void write_recording(Run *r, size_t cut)
{
    static char buffer[BUFFER_BYTES];
    static const char meta[] = "{\"rank\":0,\"ranks\":1,\"device\":\"CPU\"}";
    const uint32_t head[2] = { 0, 2 };
    const RecordRow rows[2] = {
        { .name = 0, .micro = 0, .layer = -1 },
        { .name = 1, .micro = 0, .layer = 3, .part = RECORD_FORWARD, .flops = 4e9 },
    };
    const RecordTime times[2] = { { 0, 10000000 }, { 1000000, 9000000 } };
    const RecordOp op = { .name = 2,
                          .layer = 3,
                          .step = 2,
                          .start_ns = 2002000000,
                          .dur_ns = 4000000,
                          .flops = 2e9,
                          .bytes = 4e7 };
    char path[FILE_PATH_MAX];
    File f = { 0 };
    CHECK_OK(file_join(path, r->dir, "recording"));
    CHECK_OK(file_make_folders(path));
    CHECK_OK(file_join(path, r->dir, "recording/rank-00000.syr"));
    CHECK_OK(file_create_temp_buffered(&f, path, buffer, sizeof buffer));
    CHECK_OK(record_head(&f));
    CHECK_OK(record_chunk(&f, "META", meta, strlen(meta), NULL, 0));
    CHECK_OK(record_chunk(&f, "ROWS", head, sizeof head, rows, sizeof rows));
    CHECK_OK(record_chunk(&f, "NAME", NAMES, sizeof NAMES, NULL, 0));
    for (int step = 1; step <= 2; step++) {
        const RecordStep s = { .step = step,
                               .unix_ns = step * INT64_C(1000000000),
                               .seconds = 0.01,
                               .tokens = 64,
                               .flags = step == 2 ? RECORD_TRACED : 0,
                               .rows = 2 };
        CHECK_OK(record_chunk(&f, "STEP", &s, sizeof s, times, sizeof times));
    }
    CHECK_OK(record_chunk(&f, "OPS_", &op, sizeof op, NULL, 0));
    CHECK_OK(file_commit(&f));
    if (cut > 0) CHECK_INT(truncate(path, (off_t)cut), 0);
}

static void a_recording_is_a_timeline_and_tables(void **state)
{
    Run *r = *state;
    put_run(r, 2);
    write_recording(r, 0);
    run_report(r);
    has(r, "id=\"timeline\"");
    has(r, "<canvas class=\"trace\"");
    has(r, "\"ProfilerStep#1\",");
    has(r, "000 compute\"");
    has(r, "000 ops\"");
    has(r, "ge\\u003cmm");
    /* phase, part, layer (of all), ms a step, runs a step, percent, TFLOP/s */
    has(r, "attention qkv</td><td title=\"forward\">forward</td><td></td><td>8</td><td>1</td>"
           "<td>80</td><td>0.5</td>");
    /* op, calls, ms, percent, GFLOP/s, GB/s */
    has(r, "ge&lt;mm</td><td>1</td><td>4</td><td>100</td><td>500</td><td>10</td>");
    has(r, "querySelectorAll('canvas.trace')"); /* the script that draws it */
}

static void a_run_without_a_recording_has_no_timeline(void **state)
{
    Run *r = *state;
    put_run(r, 2);
    put_file(r, "trace.json", "{}");
    run_report(r);
    has_not(r, "id=\"timeline\"");
    has_not(r, "querySelectorAll('canvas.trace')");
}

static void a_broken_recording_is_a_sentence_in_the_report(void **state)
{
    Run *r = *state;
    put_run(r, 2);
    write_recording(r, 40);
    run_report(r);
    has(r, "has no complete step");
    has_not(r, "querySelectorAll('canvas.trace')");
}

static void a_heat_map_has_its_class_and_its_shades(void **state)
{
    Run *r = *state;
    char path[FILE_PATH_MAX];
    Table t;
    put_run(r, 2);
    CHECK_OK(table_init(&t, "waits_heatmap", "rank|ms", "", &r->arena));
    CHECK_OK(TABLE_ROW(&t, cell_text("0"), cell_number(4)));
    CHECK_OK(TABLE_ROW(&t, cell_text("1"), cell_number(1)));
    CHECK_OK(file_join(path, r->dir, "tables.html"));
    CHECK_OK(trace_page_tables("tables", &t, 1, path));
    CHECK_OK(file_read_all(path, &r->arena, &r->page, &r->page_bytes));
    check_xml(r);
    has(r, "<table class=\"heat\">");
    has(r, "<td style=\"--heat:0.25\">1</td>");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_TEST(a_recording_is_a_timeline_and_tables),
        RUN_TEST(a_run_without_a_recording_has_no_timeline),
        RUN_TEST(a_broken_recording_is_a_sentence_in_the_report),
        RUN_TEST(a_heat_map_has_its_class_and_its_shades),
    };
    return TEST_RUN(tests);
}
